/* The virtual link of the threads backend: when does a message arrive? Clock model: docs/comm.md. */
#ifndef GW_COMM_LINK_H
#define GW_COMM_LINK_H

#include <gradwire/threads.h>

/* Moments when everything handed to a port so far is through, each way on its own. Seconds. */
typedef struct gw_port {
    double out_free, in_free;
} gw_port;

typedef struct gw_links {
    gw_link near, far;
    uint32_t ranks_per_node;
    gw_port *near_ports; /* one a rank */
    gw_port *far_ports;  /* one a node */
    uint64_t (*sent)[2]; /* bytes of each rank: near, far */
} gw_links;

gw_status gw_links_init(gw_links *links, const gw_threads_config *config, gw_why *why);
void gw_links_free(gw_links *links);

/* Hands a message to both ports at the moment `now` and returns the moment of its arrival. */
double gw_links_send(gw_links *links, uint32_t from, uint32_t to, size_t bytes, double now);

#endif
