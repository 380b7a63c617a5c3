/* Waiting for an operation by testing it. */
#define _POSIX_C_SOURCE 200809L
#include "base/clock.h"
#include "base/why.h"

#include <gradwire/comm.h>

#include <sched.h>
#include <stdio.h>
#include <time.h>

/* A hundredth of what was waited already: yields for the first 2 ms, so that short operations are not
 * slept over, then sleeps of 20 to 200 µs. */
static void pause_after(double waited)
{
    const double length = waited / 100 < 200e-6 ? waited / 100 : 200e-6;
    if (length < 20e-6) {
        (void)sched_yield();
        return;
    }
    const struct timespec sleep = {0, (long)(length * 1e9)};
    (void)nanosleep(&sleep, NULL);
}

void gw_comm_describe(gw_comm *comm, gw_request request, char *text, size_t size)
{
    if (comm == NULL || text == NULL || size == 0) {
        return;
    }
    const gw_comm_table *table = comm->table;
    const size_t with_describe = offsetof(gw_comm_table, describe) + sizeof table->describe;
    (void)snprintf(text, size, "an operation");
    if (request != NULL && table->size >= with_describe && table->describe != NULL) {
        table->describe(comm, request, text, size);
    }
}

gw_status gw_comm_wait(gw_comm *comm, gw_request request, double timeout_seconds, gw_why *why)
{
    GW_REQUIRE(why, request != NULL, "no operation to wait for");
    if (comm == NULL || !(timeout_seconds >= 0)) {
        return GW_FAIL(why, GW_ERR_ARG, "gw_comm_wait: no group, or a negative timeout");
    }
    const gw_comm_table *table = comm->table;
    const double begun = gw_clock();
    for (;;) {
        int done = 0;
        const gw_status status = table->test(comm, request, &done, why);
        if (status != GW_OK || done) {
            return status;
        }
        const double waited = gw_clock() - begun;
        if (timeout_seconds > 0 && waited > timeout_seconds) {
            char what[GW_DESCRIBED];
            gw_comm_describe(comm, request, what, sizeof what);
            return GW_FAIL(why, GW_ERR_TIMEOUT, "rank %u waited %.3g s for %s", comm->rank,
                           timeout_seconds, what);
        }
        pause_after(waited);
    }
}
