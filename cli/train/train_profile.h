/* When gradients were ready: a job file (gradwire.job/1) from a run. */
#ifndef GW_CLI_TRAIN_PROFILE_H
#define GW_CLI_TRAIN_PROFILE_H

#include "cli/train/train_run.h"
#include "trainer/rank.h"

/* Starts zeroed. Each step: ready of all params, then forward, backward, update, and a step of short exchanges; seconds. Of the slowest rank each, on a clock that
 * begins with the step: an exchange goes as far as all have come. */
typedef struct gw_cli_times {
    double *times;
    size_t n_steps, width;
} gw_cli_times;

/* Of the last step. Called by all ranks, after which they go on together; rank 0 has a profile, the others NULL. */
gw_status gw_cli_times_add(gw_cli_times *profile, rank *r, const rank_stats *stats, gw_why *why);
/* Medians over the steps but the first, which warms up; of one step that one. */
gw_status gw_cli_times_write(const gw_cli_times *profile, const rank *r, const char *path,
                             gw_why *why);
void gw_cli_times_free(gw_cli_times *profile);

#endif
