#include "cli/train/train_plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/files/checksum.h"
#include "cli/train/train_files.h"

void gw_cli_train_plan_free(gw_cli_train_plan *plan)
{
    gw_cli_plan_free(&plan->read);
    free(plan->entries);
    *plan = (gw_cli_train_plan){.entries = NULL};
}

static bool codes_on_gpu(const gw_route *route)
{
    for (uint32_t i = 0; i < route->n_steps; i++) {
        if (route->step[i].device == GW_DEVICE_GPU) {
            return true;
        }
    }
    return false;
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

static gw_status take_tensors(const char *path, gw_cli_train_plan *out, gw_why *why)
{
    out->entries = calloc(out->read.n + 1, sizeof *out->entries);
    if (!out->entries) {
        return gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory for a plan");
    }
    for (size_t i = 0; i < out->read.n; i++) {
        const gw_cli_plan_tensor *t = &out->read.tensors[i];
        if (codes_on_gpu(&t->route)) {
            return gw_cli_train_fail(why, GW_ERR_UNSUPPORTED,
                                     "%.80s: '%.60s' is coded on a GPU, and the trainer has none: "
                                     "plan with --devices cpu",
                                     path, t->name);
        }
        out->entries[i] = (plan_entry){t->name, t->elements, t->bucket, t->params, t->route};
    }
    return GW_OK;
}

gw_status gw_cli_train_plan_load(const char *path, gw_cli_train_plan *out, gw_why *why)
{
    void *bytes = NULL;
    size_t size = 0;
    char reason[200] = "";
    gw_status status = gw_cli_file_load(path, &bytes, &size, why);
    if (status != GW_OK) {
        return status;
    }
    gw_cli_checksum(bytes, size, out->checksum, sizeof out->checksum);
    name_spec(path, out->spec, sizeof out->spec);
    status = gw_cli_plan_parse(bytes, size, &out->read, reason, sizeof reason)
                 ? take_tensors(path, out, why)
                 : gw_cli_train_fail(why, GW_ERR_CORRUPT, "%.80s: %.160s", path, reason);
    free(bytes);
    return status;
}

gw_status gw_cli_train_plan_check(const gw_cli_train_plan *plan, const gw_cli_run_config *config,
                                  gw_why *why)
{
    const bool nodes = config->ranks_per_node != 0 && config->ranks % config->ranks_per_node == 0;
    for (size_t i = 0; i < plan->read.n && !nodes; i++) {
        if (gw_route_is_hierarchical(&plan->entries[i].route)) {
            return gw_cli_train_fail(why, GW_ERR_RANGE,
                                     "the plan's route of '%.60s' needs nodes with equally many "
                                     "ranks",
                                     plan->entries[i].name);
        }
    }
    return GW_OK;
}
