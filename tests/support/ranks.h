/* A job of several ranks inside a test: one thread each. Checks made by a rank's thread are collected, since
 * cmocka's own end the thread that began the test. */
#ifndef GW_TESTS_RANKS_H
#define GW_TESTS_RANKS_H

#include <gradwire/threads.h>

enum { RANKS_MAX = 16 };

typedef struct ranks ranks;
typedef void ranks_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg);

/* Runs main on every rank and joins them; fails the test if any check failed. */
void ranks_run(const gw_threads_config *config, ranks_main *main, void *arg);
/* A barrier. */
void ranks_meet(ranks *all);
/* What a rank has put on the links so far, in all groups: [0] near, [1] far. */
void ranks_sent(const ranks *all, uint32_t rank, uint64_t bytes[2]);
/* Records a failure of this rank's and ends the job: the process exits with the words. */
void ranks_fail(const char *file, int line, const char *words);

#define RANK_TRUE(holds, words)                                                                    \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            ranks_fail(__FILE__, __LINE__, words);                                                 \
        }                                                                                          \
    } while (0)
#define RANK_OK(status, words) RANK_TRUE((status) == GW_OK, words)

#endif
