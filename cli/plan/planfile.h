/* Plans and predicted timelines as files. */
#ifndef GW_CLI_PLANFILE_H
#define GW_CLI_PLANFILE_H

#include <jansson.h>

#include "cli/plan/job_and_cluster.h"

/* gradwire.plan/1; NULL: out of memory. */
json_t *gw_cli_plan_json(const gw_cli_scene *scene, const gw_plan *plan);
/* Predicted times, counts and tensors, as `--json` prints them. */
json_t *gw_cli_plan_report_json(const gw_cli_scene *scene, const gw_plan *plan, double select_ms);
/* Trace events for ui.perfetto.dev, a lane a track. Says what went wrong. */
bool gw_cli_trace_write(const char *path, const gw_cli_scene *scene, const gw_plan *plan,
                        bool one_channel);
/* Writes and releases. */
bool gw_cli_json_write(const char *path, json_t *json);

/* "dense", or the codec with its settings. */
void gw_cli_entry_spec(const gw_plan_entry *entry, char *text, size_t size);

#endif
