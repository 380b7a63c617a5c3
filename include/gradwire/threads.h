/* Ranks that are threads of one process, joined by a virtual link with rate and latency, so that a slow
 * network can be shown on any machine. Its clock model: docs/comm.md. */
#ifndef GRADWIRE_THREADS_H
#define GRADWIRE_THREADS_H

#include "gradwire/comm.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GW_THREADS_MAX_RANKS = 256 };

typedef struct gw_link {
    double bytes_per_second; /* each way; 0: unlimited */
    double latency_seconds;
} gw_link;

/* Ranks r with the same r / ranks_per_node are a node. `near` joins ranks of one node, every rank with a
 * port of its own; `far` joins nodes, and the ranks of a node share its port. */
typedef struct gw_threads_config {
    uint32_t ranks;
    uint32_t ranks_per_node; /* 0: every rank is a node of its own */
    gw_link near, far;
} gw_threads_config;

typedef struct gw_threads gw_threads;

GW_API gw_status gw_threads_create(const gw_threads_config *config, gw_threads **world,
                                   gw_why *why);
/* The rank's end of the group of all, for the thread that is this rank. Lives as long as the world: its
 * close only says that this rank is through. */
GW_API gw_status gw_threads_comm(gw_threads *world, uint32_t rank, gw_comm **out);
/* Bytes that the rank has sent to others so far, in all groups: [0] near, [1] far. */
GW_API gw_status gw_threads_sent(gw_threads *world, uint32_t rank, uint64_t bytes[2]);
/* When no thread uses it any more. Accepts NULL. */
GW_API void gw_threads_destroy(gw_threads *world);

#ifdef __cplusplus
}
#endif
#endif
