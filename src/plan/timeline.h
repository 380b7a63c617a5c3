/* The timeline of one step, event by event, and what is saved of it so that a change of one tensor replays only
 * what can differ. docs/plan.md, "Timeline", has the rules. Times are whole ticks, so that equal is equal. */
#ifndef GW_PLAN_TIMELINE_H
#define GW_PLAN_TIMELINE_H

#include <gradwire/plan.h>

typedef int64_t gw_ticks;

#define GW_NEVER INT64_MAX
enum { GW_TRY_MAX = 8 }; /* tensors changed at once */

/* An operation as the timeline walks it: none is of length 0. */
typedef struct gw_op_time {
    gw_ticks ticks;
    uint8_t track;  /* gw_track */
    uint8_t urgent; /* of the GPU track: some later communication of the tensor waits for it */
    uint8_t first;  /* the tensor's first communication */
} gw_op_time;

/* What a tensor does once its gradient is there. */
typedef struct gw_chain {
    const gw_op_time *op;
    uint32_t n;
    gw_ticks work[GW_TRACKS];
} gw_chain;

typedef struct gw_entry {
    gw_ticks ready;
    uint32_t tensor, op;
} gw_entry;

/* Queues: those of the tracks, and one for what may wait until the GPU has nothing else to do. */
enum { GW_QUEUE_DEFERRED = GW_TRACKS, GW_QUEUES = GW_TRACKS + 1 };
/* Who serves: a track each, the CPU's other workers behind them. */
enum { GW_SERVERS = GW_TRACKS + GW_TIMELINE_MAX_WORKERS - 1 };

/* A moment of the timeline. Queues are spans of logs that only grow, so this is small. */
typedef struct gw_moment {
    gw_ticks now, back_left; /* back_left: of tensor `back`'s backward, when it last began */
    uint32_t back;           /* tensor whose backward is next or under way; n: none */
    int in_back;             /* the GPU is at it */
    uint32_t
        bubble; /* tensors below were all through when the network stood still for the next one */
    gw_ticks begun[GW_TRACKS];      /* work; of the GPU's also finished backward */
    gw_ticks track_free[GW_TRACKS]; /* when it last became idle */
    uint32_t head[GW_QUEUES], tail[GW_QUEUES];
    gw_ticks end[GW_SERVERS]; /* of what each serves; GW_NEVER: idle */
    gw_ticks since[GW_SERVERS];
    gw_entry entry[GW_SERVERS];
} gw_moment;

typedef struct gw_timeline {
    gw_timeline_rules rules;
    uint32_t n, servers;
    gw_ticks *compute;         /* n */
    gw_ticks *behind;          /* n: compute of all later ones */
    const gw_chain **chain;    /* n: what is chosen */
    gw_ticks total[GW_TRACKS]; /* work of all chains; of the GPU's also backward */
    gw_moment *moment; /* n: just before tensor i's gradient is there, in the timeline of `chain` */
    gw_entry *log[GW_QUEUES], *trial_log[GW_QUEUES];
    gw_ticks makespan; /* of `chain` */
    uint32_t bubble;   /* see gw_moment, at the end */
    uint64_t events, evaluations;
    gw_interval *interval; /* where to record; NULL: nowhere */
    size_t n_intervals, room;
} gw_timeline;

/* Chains have at most `max_ops` operations. */
gw_status gw_timeline_create(gw_timeline *t, const gw_timeline_rules *rules,
                             const gw_ticks *compute, uint32_t n, uint32_t max_ops, gw_why *why);
void gw_timeline_destroy(gw_timeline *t);

/* Runs what is chosen, from where tensor `from` is ready, and saves moments. */
void gw_timeline_commit(gw_timeline *t, uint32_t from);
/* The makespan if these `n` tensors, ascending, took other chains; GW_NEVER as soon as it is sure to be `limit`
 * or more. What is committed stays. */
gw_ticks gw_timeline_try(gw_timeline *t, const uint32_t *tensors, const gw_chain *const *chains,
                         uint32_t n, gw_ticks limit);

/* Leaves out what takes no time, and marks. `out` has room for n_ops. */
void gw_chain_build(const gw_timeline_rules *rules, const gw_timed_op *ops, uint32_t n_ops,
                    gw_op_time *out, gw_chain *chain);

#endif
