#include "cli/train/train_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/files/checksum.h"
#include "cli/train/train_files.h"

void gw_cli_train_plan_free(gw_cli_train_plan *plan)
{
    gw_plan_file_free(plan->file);
    *plan = (gw_cli_train_plan){.file = NULL};
}

/* The file's name without folders and extension. */
static void name_spec(const char *path, char *spec, size_t size)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    const char *dot = strrchr(name, '.');
    const size_t length = dot && dot != name ? (size_t)(dot - name) : strlen(name);
    (void)snprintf(spec, size, "plan:%.*s", (int)length, name);
}

gw_status gw_cli_train_plan_load(const char *path, gw_cli_train_plan *out, gw_why *why)
{
    void *bytes = NULL;
    size_t size = 0;
    gw_status status = gw_cli_file_load(path, &bytes, &size, why);
    if (status != GW_OK) {
        return status;
    }
    gw_cli_checksum(bytes, size, out->checksum, sizeof out->checksum);
    name_spec(path, out->spec, sizeof out->spec);
    status = gw_plan_parse(path, bytes, size, &out->file, why);
    free(bytes);
    return status == GW_OK ? gw_plan_runs_on(out->file, GW_DEVICE_CPU, why) : status;
}

gw_status gw_cli_train_plan_check(const gw_cli_train_plan *plan, const gw_cli_run_config *config,
                                  gw_why *why)
{
    const bool nodes = config->ranks_per_node != 0 && config->ranks % config->ranks_per_node == 0;
    for (size_t i = 0; i < plan->file->n && !nodes; i++) {
        if (gw_route_is_hierarchical(&plan->file->tensors[i].route)) {
            return gw_cli_train_fail(why, GW_ERR_RANGE,
                                     "the plan's route of '%.60s' needs nodes with equally many "
                                     "ranks",
                                     plan->file->tensors[i].name);
        }
    }
    return GW_OK;
}
