/* What a plan says to people. */
#ifndef GW_CLI_PLAN_TEXT_H
#define GW_CLI_PLAN_TEXT_H

#include <jansson.h>

#include "cli/plan/job_and_cluster.h"

/* How many tensors go which way. */
bool gw_cli_plan_ways(const gw_cli_scene *scene, const gw_plan *plan);
/* Predicted times, then the ways. */
bool gw_cli_plan_summary(const gw_cli_scene *scene, const gw_plan *plan, double select_ms);
/* What the step would be if each of the ten largest buckets went another way. */
bool gw_cli_plan_explain(const gw_cli_scene *scene, const gw_plan_request *request,
                         const gw_plan *plan);
/* Other link rates, other numbers of nodes, up to 10,000 ranks. Printed if `fine` is given; else returned as JSON. */
json_t *gw_cli_what_if(const gw_cli_scene *scene, const gw_plan_request *request, bool *fine);

#endif
