/* What a run's last steps did, and when: a trace for ui.perfetto.dev. docs/train.md */
#ifndef GW_CLI_TRAIN_TRACE_H
#define GW_CLI_TRAIN_TRACE_H

#include "cli/train/train_run.h"
#include "trainer/rank.h"

enum { GW_CLI_TRACED_STEPS = 20 };

/* Of one step: where it lies on the clock, and its moves. */
typedef struct gw_cli_traced {
    rank_stats stats;
    double first_post; /* seconds of a clock that only goes on */
    gw_step_interval *moves;
    size_t n, room;
} gw_cli_traced;

/* Rank 0's; starts zeroed. */
typedef struct gw_cli_tracer {
    gw_cli_traced steps[GW_CLI_TRACED_STEPS]; /* a ring */
    size_t seen;
} gw_cli_tracer;

/* After a step. */
gw_status gw_cli_tracer_add(gw_cli_tracer *tracer, const rank *r, const rank_stats *stats,
                            gw_why *why);
gw_status gw_cli_tracer_write(const gw_cli_tracer *tracer, const rank *r, const char *path,
                              gw_why *why);
void gw_cli_tracer_free(gw_cli_tracer *tracer);

#endif
