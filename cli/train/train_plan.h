/* A plan file (`gradwire plan -o`) that a training runs. */
#ifndef GW_CLI_TRAIN_PLAN_H
#define GW_CLI_TRAIN_PLAN_H

#include <gradwire/files.h>

#include "cli/train/train_run.h"

/* Starts zeroed. */
typedef struct gw_cli_train_plan {
    gw_plan_file *file; /* NULL: there is none */
    char checksum[32];
    char spec[64]; /* how the run is called: "plan:NAME" */
} gw_cli_train_plan;

/* Also refuses what no processor can run. */
gw_status gw_cli_train_plan_load(const char *path, gw_cli_train_plan *out, gw_why *why);
/* That its routes go with the run's ranks. */
gw_status gw_cli_train_plan_check(const gw_cli_train_plan *plan, const gw_cli_run_config *config,
                                  gw_why *why);
void gw_cli_train_plan_free(gw_cli_train_plan *plan);

#endif
