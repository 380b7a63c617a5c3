/* Runs of formats before the present one, made into it; docs/run-format.md says what changed. */
#ifndef GW_CLI_RUN_UPGRADE_H
#define GW_CLI_RUN_UPGRADE_H

#include <stdbool.h>

#include <jansson.h>

#define GW_CLI_RUN_FORMAT  "gradwire.run/3"
#define GW_CLI_RUN_FORMATS "\"gradwire.run/3\", \"gradwire.run/2\" or \"gradwire.run/1\""

/* 1 to 3; 0: another format. */
unsigned gw_cli_run_format(const char *text);

/* `root` has the records as arrays. Before 3, predicted_seconds of a window was what is now expected_seconds, and before
 * something was expected the planner's number. False: a window has a key of format 3 already, or there is no memory. */
bool gw_cli_run_upgrade(json_t *root, unsigned format);

#endif
