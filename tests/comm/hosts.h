/* Ranks of one process whose messages are carried by hosts (gradwire/hosted.h). The hosts copy bytes between them: a
 * message waits until its other end is there, as in a network, and messages of one pair and tag keep their order. A rank
 * that gives up is heard by all. */
#ifndef GW_TESTS_COMM_HOSTS_H
#define GW_TESTS_COMM_HOSTS_H

#include <gradwire/hosted.h>

enum { HOSTS_MOST = 7 };

typedef void hosts_main(uint32_t rank, gw_comm *comm, void *arg);

/* Runs main on n ranks, each a thread, with a host each, and joins them. */
void hosts_run(uint32_t n, hosts_main *main, void *arg);

#endif
