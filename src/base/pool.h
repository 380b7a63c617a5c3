/* Running parts of one job on the pool's threads. */
#ifndef GW_BASE_POOL_H
#define GW_BASE_POOL_H

#include <gradwire/base.h>

/* Calls run(job, part) for part = 0 … parts−1, each exactly once, and returns when all are done.
 * The caller's thread works too. NULL pool: all on the caller's thread. */
void gw_pool_run(gw_pool *pool, void (*run)(void *job, unsigned part), void *job, unsigned parts);

#endif
