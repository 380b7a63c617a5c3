/* Figures of a run under way for a monitor: a file in the text format of Prometheus, replaced whole. docs/train.md */
#ifndef GW_CLI_TRAIN_METRICS_H
#define GW_CLI_TRAIN_METRICS_H

#include <stdio.h>

#include "cli/train/train_run.h"

/* Rank 0's. Starts with the path alone; without one nothing is done. */
typedef struct gw_cli_metrics {
    const char *path;
    double written; /* seconds of the clock */
    bool warned;
} gw_cli_metrics;

/* Before the first step: a file that cannot be written says so now. */
gw_status gw_cli_metrics_begin(gw_cli_metrics *m, const gw_cli_run *run, gw_why *why);
/* After a step: every tenth, and at most once a second. */
void gw_cli_metrics_step(gw_cli_metrics *m, const gw_cli_run *run);
/* At once. A failure is told once, and training goes on. */
void gw_cli_metrics_write(gw_cli_metrics *m, const gw_cli_run *run);

/* What the file holds. */
void gw_cli_metrics_print(const gw_cli_run *run, FILE *to);

#endif
