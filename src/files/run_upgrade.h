/* Converts runs of older formats into the current one. docs/run-format.md lists what changed. */
#ifndef GW_FILES_RUN_UPGRADE_H
#define GW_FILES_RUN_UPGRADE_H

#include <stdbool.h>

#include <jansson.h>

#define GW_RUN_FORMAT  "gradwire.run/3"
#define GW_RUN_FORMATS "\"gradwire.run/3\", \"gradwire.run/2\" or \"gradwire.run/1\""

/* 1 to 3; 0: another format. */
unsigned gw_run_format(const char *text);

/* `root` has the records as arrays. Before format 3 a window's predicted_seconds held what is now expected_seconds; until
 * something was expected it held the planner's number. False: a window already has a key of format 3, or out of memory. */
bool gw_run_upgrade(json_t *root, unsigned format);

#endif
