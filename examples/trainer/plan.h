/* Which tensor goes how: one spec and one route for all that is worth compressing. */
#ifndef TRAINER_PLAN_H
#define TRAINER_PLAN_H

#include "model.h"
#include "plan_spec.h"

#include <gradwire/gradwire.h>

typedef struct plan_config {
    const char *spec; /* plan_spec.h; NULL or "dense": nothing is compressed */
    const char *
        route; /* NULL: sum for codecs with rounds, gather for those that want feedback, else sra */
    /* Params of fewer elements stay as they are; give the step the same number, which sends them together. Biases
     * stay as they are anyway. */
    uint64_t fuse_below;
} plan_config;

/* How one tensor goes. */
typedef struct planned {
    int compressed; /* 0: as it is; params and route are then not set */
    gw_params params;
    gw_route route;
} planned;

/* At the start, if the spec adapts. Unless the spec says how wide a bin of adacomp is, it is 50 for convolutions and 500 for others. */
gw_status plan_param(const plan_config *config, const param *p, planned *out, gw_why *why);
/* Plans params that were added to `step` as layers first, first + 1, …. */
gw_status plan_model(const plan_config *config, const model *m, gw_step *step, uint32_t first,
                     gw_why *why);
/* Begins to choose levels, if the spec says so; all ranks, after the plan is agreed. */
gw_status plan_adapt(const plan_config *config, gw_step *step, gw_why *why);

#endif
