/* Which tensors to compress, where, and along which route, so that the step is short. A job says when each
 * gradient is ready, a cluster what links, devices and codecs cost; the timeline draws a step from them, and
 * the search looks for the choice of spec and route for every tensor whose timeline ends first.
 * Nothing here sends, reads files or prints. docs/plan.md: the models, the rules, the search. */
#ifndef GRADWIRE_PLAN_H
#define GRADWIRE_PLAN_H

#include "gradwire/route.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- timelines ---- */

/* What works in parallel on one node, seen from one of its ranks. */
typedef enum gw_track {
    GW_TRACK_GPU = 0,   /* backward pass, and coding on the GPU */
    GW_TRACK_CPU = 1,   /* coding on the processor: several workers */
    GW_TRACK_COPY = 2,  /* between host and device */
    GW_TRACK_INTRA = 3, /* links inside the node */
    GW_TRACK_NIC = 4,   /* what leaves the node */
    GW_TRACKS = 5
} gw_track;

enum { GW_TIMELINE_MAX_WORKERS = 16, GW_TIMELINE_MAX_OPS = 32, GW_PLAN_MAX_TENSORS = 1 << 16 };

typedef struct gw_timed_op {
    gw_track track;
    int64_t ticks; /* from 0 up */
} gw_timed_op;

/* `compute` is how long the backward pass works between the gradient before and this one. */
typedef struct gw_timed_tensor {
    int64_t compute;
    const gw_timed_op *ops;
    uint32_t n_ops;
} gw_timed_tensor;

typedef struct gw_timeline_rules {
    uint32_t cpu_workers;   /* 1 … GW_TIMELINE_MAX_WORKERS */
    int one_channel;        /* links inside the node and out of it are one track, as in the paper */
    int urgent_last_decode; /* 1: a decode that nothing waits for interrupts the backward pass too */
} gw_timeline_rules;

/* When an operation ran; a backward pass that was interrupted has several. `op` is UINT32_MAX for backward. */
typedef struct gw_interval {
    uint32_t tensor, op;
    gw_track track;
    uint32_t worker;
    int64_t begin, end;
} gw_interval;

/* The end of everything. `intervals` may be NULL; else *n_intervals is its room before and what is filled
 * behind, in order of their ends. */
GW_API gw_status gw_timeline_run(const gw_timed_tensor *tensors, size_t n,
                                 const gw_timeline_rules *rules, int64_t *makespan,
                                 gw_interval *intervals, size_t *n_intervals, gw_why *why);
GW_API const char *gw_track_name(gw_track track); /* "gpu", "cpu", "copy", "intra", "nic" */

#ifdef __cplusplus
}
#endif
#endif
