/* The parts of run.json that only runs have whose sending is chosen while they train. Config and layers are read before. */
#ifndef GW_CLI_RUN_READ_CHOICES_H
#define GW_CLI_RUN_READ_CHOICES_H

#include "cli/files/run_object.h"
#include "cli/files/run_read.h"

/* Nothing, of a run whose spec does not begin so. */
bool gw_cli_runfile_adapt_read(const json_t *root, const gw_cli_object_at *r, gw_cli_runfile *run);
bool gw_cli_runfile_auto_read(const json_t *root, const gw_cli_object_at *r, gw_cli_runfile *run);
void gw_cli_runfile_choices_free(gw_cli_runfile *run);

#endif
