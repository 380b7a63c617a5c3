/* Which tensor goes how: one spec and one route for all that is worth compressing, or a plan of each. */
#ifndef TRAINER_SENDING_PLAN_H
#define TRAINER_SENDING_PLAN_H

#include "trainer/model.h"

#include <gradwire/gradwire.h>

typedef struct plan_config {
    const char *
        spec; /* a codec's, or step_adapt.h's or step_auto.h's; NULL or "dense": nothing is compressed */
    const char *route;  /* NULL: gw_route_usual … */
    gw_route_job where; /* … for these ranks and nodes */
    /* Params of fewer elements stay as they are; give the step the same number, which sends them together. Biases
     * stay as they are anyway. */
    uint64_t fuse_below;
    const gw_plan_file
        *file; /* instead of the above; NULL: none. Lives as long as what is made of it */
} plan_config;

/* How one tensor goes. */
typedef struct planned {
    int compressed;   /* 0: as it is, and params are not set */
    gw_params params; /* of the spec; of no use if it is not compressed */
    gw_route route;
} planned;

/* Params are layers of the step, in the model's order whatever the plan, since random numbers depend on a layer's number. */
typedef struct wire_plan {
    size_t n;
    planned how[MODEL_MAX_PARAMS];    /* of each param */
    uint32_t order[MODEL_MAX_PARAMS]; /* params, as the wire has them */
    uint32_t bucket
        [MODEL_MAX_PARAMS]; /* of each param: the same number for those that are sent as one; 0: by itself */
} wire_plan;

/* At the start, if the spec adapts. */
gw_status plan_param(const plan_config *config, const param *p, planned *out, gw_why *why);
/* How each of the model's params goes. A plan file that is for another model is an error that names a tensor. */
gw_status plan_make(const plan_config *config, const model *m, wire_plan *out, gw_why *why);
/* How many params from this place of the wire on are sent as one. */
uint32_t plan_together(const wire_plan *p, uint32_t place);
/* Adds a layer for each param to `step`, which has `first` layers already, and plans them. */
gw_status plan_add(const wire_plan *p, const model *m, gw_step *step, uint32_t first, gw_why *why);
/* Begins to choose levels, or all, if the spec says so; all ranks, after the plan is agreed. */
gw_status plan_adapt(const plan_config *config, gw_step *step, gw_why *why);

#endif
