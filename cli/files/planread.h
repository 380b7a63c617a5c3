/* Plans that were written by `gradwire plan`: reads gradwire.plan/1. docs/plan.md, "Files". */
#ifndef GW_CLI_PLANREAD_H
#define GW_CLI_PLANREAD_H

#include <stdbool.h>
#include <stddef.h>

#include <gradwire/plan.h>

typedef struct gw_cli_plan_tensor {
    char *name;
    uint64_t elements;
    uint32_t bucket;
    gw_params params; /* codec NULL: uncompressed */
    gw_route route;
} gw_cli_plan_tensor;

typedef struct gw_cli_plan_read {
    gw_cli_plan_tensor *tensors; /* in wire order */
    size_t n;
    uint32_t nodes, ranks_per_node; /* that it was made for */
    double step;                    /* predicted, in seconds */
} gw_cli_plan_read;

/* False: the reason is in `why`, and *out is untouched. */
bool gw_cli_plan_parse(const void *data, size_t size, gw_cli_plan_read *out, char *why,
                       size_t why_size);
void gw_cli_plan_free(gw_cli_plan_read *plan);

#endif
