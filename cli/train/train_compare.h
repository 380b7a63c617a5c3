/* Runs side by side: one row a spec, over all its seeds. */
#ifndef GW_CLI_TRAIN_COMPARE_H
#define GW_CLI_TRAIN_COMPARE_H

#include "cli/train/train_run.h"

/* Runs as they were made: all seeds of the first spec, then of the next. Runs of fewer than one step are left out.
 * `target`: NaN for none. */
typedef struct gw_cli_comparison {
    const gw_cli_run *runs;
    size_t n_runs;
    double target;
} gw_cli_comparison;

bool gw_cli_comparison_print(const gw_cli_comparison *c);
json_t *gw_cli_comparison_json(const gw_cli_comparison *c, const char *folder);

#endif
