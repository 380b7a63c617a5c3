/* Timelines written out by hand: gw_timeline_run. */
#include "plan/timeline.h"

#include "base/why.h"

#include <stdlib.h>

const char *gw_track_name(gw_track track)
{
    static const char *const NAMES[GW_TRACKS] = {"gpu", "cpu", "copy", "intra", "nic"};
    return (unsigned)track < GW_TRACKS ? NAMES[track] : "?";
}

/* All durations together must fit, so that no sum of them can overflow. */
static gw_status check(const gw_timed_tensor *tensors, size_t n, gw_why *why)
{
    int64_t room = INT64_MAX / 4;
    if (n == 0 || n > GW_PLAN_MAX_TENSORS) {
        return GW_FAIL(why, GW_ERR_RANGE, "%zu tensors: 1 to %d", n, GW_PLAN_MAX_TENSORS);
    }
    for (size_t i = 0; i < n; i++) {
        if (tensors[i].n_ops > GW_TIMELINE_MAX_OPS) {
            return GW_FAIL(why, GW_ERR_RANGE, "tensor %zu: %u operations, at most %d", i,
                           tensors[i].n_ops, GW_TIMELINE_MAX_OPS);
        }
        if (tensors[i].compute < 0 || tensors[i].compute > room) {
            return GW_FAIL(why, GW_ERR_RANGE, "tensor %zu: compute is %s", i,
                           tensors[i].compute < 0 ? "negative" : "too long");
        }
        room -= tensors[i].compute;
        for (uint32_t j = 0; j < tensors[i].n_ops; j++) {
            const gw_timed_op *op = &tensors[i].ops[j];
            if (op->ticks < 0 || op->ticks > room || (unsigned)op->track >= GW_TRACKS) {
                return GW_FAIL(why, GW_ERR_RANGE, "tensor %zu, operation %u: %s", i, j,
                               (unsigned)op->track >= GW_TRACKS ? "no such track"
                               : op->ticks < 0                  ? "negative time"
                                                                : "too long");
            }
            room -= op->ticks;
        }
    }
    return GW_OK;
}

static void build(gw_timeline *t, const gw_timed_tensor *tensors, gw_chain *chains, gw_op_time *ops)
{
    for (uint32_t i = 0; i < t->n; i++) {
        gw_chain_build(&t->rules, tensors[i].ops, tensors[i].n_ops,
                       ops + (size_t)i * GW_TIMELINE_MAX_OPS, &chains[i]);
        t->chain[i] = &chains[i];
    }
}

gw_status gw_timeline_run(const gw_timed_tensor *tensors, size_t n, const gw_timeline_rules *rules,
                          int64_t *makespan, gw_interval *intervals, size_t *n_intervals,
                          gw_why *why)
{
    gw_timeline t;
    if (tensors == NULL || rules == NULL || makespan == NULL ||
        (intervals != NULL && n_intervals == NULL)) {
        return GW_FAIL(why, GW_ERR_ARG, "no timeline given");
    }
    gw_status status = check(tensors, n, why);
    if (status != GW_OK) {
        return status;
    }
    gw_ticks *compute = calloc(n, sizeof *compute);
    gw_chain *chains = calloc(n, sizeof *chains);
    gw_op_time *ops = calloc(n * GW_TIMELINE_MAX_OPS, sizeof *ops);
    if (compute == NULL || chains == NULL || ops == NULL) {
        status = GW_FAIL(why, GW_ERR_MEMORY, "no memory for a timeline of %zu tensors", n);
    } else {
        for (size_t i = 0; i < n; i++) {
            compute[i] = tensors[i].compute;
        }
        status = gw_timeline_create(&t, rules, compute, (uint32_t)n, GW_TIMELINE_MAX_OPS, why);
    }
    if (status == GW_OK) {
        build(&t, tensors, chains, ops);
        t.interval = intervals;
        t.room = intervals != NULL ? *n_intervals : 0;
        gw_timeline_commit(&t, 0);
        *makespan = t.makespan;
        if (intervals != NULL) {
            *n_intervals = t.n_intervals;
        }
        gw_timeline_destroy(&t);
    }
    free(compute);
    free(chains);
    free(ops);
    return status;
}
