/* A plan file onto the layers of a step: gw_plan_match finds them by name. */
#include "step/step.h"

#include <gradwire/plan.h>

#include <stdlib.h>

/* Of the layers from `first` on: what gw_plan_match asks for, and what it answers. */
typedef struct matched {
    const char **names;
    uint64_t *elements;
    uint32_t *order, *buckets; /* of all layers */
} matched;

static gw_status match(gw_step *s, const gw_plan_file *plan, uint32_t first, matched *m,
                       gw_why *why)
{
    const uint32_t n = s->n_layers - first;
    for (uint32_t i = 0; i < n; i++) {
        m->names[i] = s->layers[first + i].name;
        m->elements[i] = s->layers[first + i].elements;
    }
    const uint32_t devices = GW_DEVICE_CPU | (s->config.place.cuda != NULL ? GW_DEVICE_GPU : 0U);
    gw_status status = gw_plan_runs_on(plan, devices, why);
    if (status == GW_OK) {
        status = gw_plan_match(plan, m->names, m->elements, n, m->order + first, m->buckets + first,
                               why);
    }
    for (uint32_t i = 0; i < s->n_layers && status == GW_OK; i++) {
        m->order[i] = i < first ? i : m->order[i] + first;
    }
    return status;
}

gw_status gw_step_use_plan(gw_step *s, const gw_plan_file *plan, uint32_t first, gw_why *why)
{
    GW_REQUIRE(why, s != NULL && plan != NULL, "no step, or no plan");
    GW_REQUIRE(why, first <= s->n_layers, "the step has fewer layers");
    const size_t n = s->n_layers;
    /* a plan of too many tensors is refused before its end */
    matched m = {calloc(n + 1, sizeof *m.names), calloc(n + 1, sizeof *m.elements),
                 calloc(n + 1, sizeof *m.order), calloc(n + 1, sizeof *m.buckets)};
    gw_status status = m.names != NULL && m.elements != NULL && m.order != NULL && m.buckets != NULL
                           ? match(s, plan, first, &m, why)
                           : GW_FAIL(why, GW_ERR_MEMORY, "no memory for a plan of %zu layers", n);
    for (size_t i = first; i < n && status == GW_OK; i++) {
        const gw_plan_tensor *t = &plan->tensors[i - first];
        gw_why reason = {""};
        status = gw_step_plan(s, m.order[i], t->params.codec != NULL ? &t->params : NULL, &t->route,
                              &reason);
        if (status != GW_OK) {
            (void)gw_fail(why, status, "%s: %s", plan->path, reason.text);
        }
    }
    if (status == GW_OK) {
        status = gw_step_order(s, m.order, n, why);
    }
    if (status == GW_OK) {
        status = gw_step_buckets(s, m.buckets, n, why);
    }
    free(m.names);
    free(m.elements);
    free(m.order);
    free(m.buckets);
    return status;
}
