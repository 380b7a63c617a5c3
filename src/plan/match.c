/* What a plan file is for: devices, and the layers of a model. */
#include "base/why.h"
#include <gradwire/plan.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct model {
    const char *const *names;
    const char *const **sorted; /* pointers to names, by name */
    const uint64_t *elements;
    size_t n;
} model;

static int by_name(const void *a, const void *b)
{
    return strcmp(**(const char *const *const *)a, **(const char *const *const *)b);
}

/* The number of the layer of this name; m->n: there is none. */
static size_t find(const model *m, const char *name)
{
    const char *const *key = &name;
    const char *const *const *found =
        bsearch(&key, m->sorted, m->n, sizeof(const char *const *), by_name);
    return found != NULL ? (size_t)(*found - m->names) : m->n;
}

/* Puts the plan's tensors onto layers, whose buckets are all 0 before. */
static gw_status place(const gw_plan_file *plan, const model *m, uint32_t *order, uint32_t *buckets,
                       gw_why *why)
{
    for (size_t i = 0; i < plan->n; i++) {
        const gw_plan_tensor *t = &plan->tensors[i];
        const size_t layer = find(m, t->name);
        if (layer == m->n) {
            return GW_FAIL(why, GW_ERR_DISAGREE,
                           "%s: the plan has a tensor '%s', and this model has not: a plan for "
                           "another model?",
                           plan->path, t->name);
        }
        if (buckets[layer] != 0) {
            return GW_FAIL(why, GW_ERR_ARG, "%s: the plan has '%s' twice", plan->path, t->name);
        }
        if (t->elements != m->elements[layer]) {
            return GW_FAIL(why, GW_ERR_DISAGREE,
                           "%s: '%s' has %" PRIu64 " elements in the plan, and %" PRIu64
                           " in this model: a plan for another model?",
                           plan->path, t->name, t->elements, m->elements[layer]);
        }
        const int joins = i != 0 && t[-1].bucket == t->bucket;
        buckets[layer] = joins ? buckets[order[i - 1]] : (uint32_t)layer + 1;
        order[i] = (uint32_t)layer;
    }
    return GW_OK;
}

gw_status gw_plan_runs_on(const gw_plan_file *plan, uint32_t devices, gw_why *why)
{
    GW_REQUIRE(why, plan != NULL && plan->path != NULL && plan->tensors != NULL, "no plan");
    for (size_t i = 0; i < plan->n; i++) {
        const gw_plan_tensor *t = &plan->tensors[i];
        for (uint32_t k = 0; k < t->route.n_steps; k++) {
            if ((t->route.step[k].device & ~devices) != 0) {
                const int gpu = t->route.step[k].device == GW_DEVICE_GPU;
                return GW_FAIL(why, GW_ERR_UNSUPPORTED,
                               "%s: '%s' is coded on a %s, and cannot be here: plan with "
                               "--devices %s",
                               plan->path, t->name, gpu ? "GPU" : "CPU", gpu ? "cpu" : "gpu");
            }
        }
    }
    return GW_OK;
}

gw_status gw_plan_match(const gw_plan_file *plan, const char *const *names,
                        const uint64_t *elements, size_t n, uint32_t *order, uint32_t *buckets,
                        gw_why *why)
{
    GW_REQUIRE(why, plan != NULL && plan->path != NULL && plan->tensors != NULL, "no plan");
    GW_REQUIRE(why, names != NULL && elements != NULL, "no layers");
    GW_REQUIRE(why, order != NULL && buckets != NULL, "no place for order and buckets");
    model m = {names, calloc(n + 1, sizeof *m.sorted), elements, n};
    if (m.sorted == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory to match a plan with %zu layers", n);
    }
    for (size_t i = 0; i < n; i++) {
        m.sorted[i] = &names[i];
        buckets[i] = 0;
    }
    qsort(m.sorted, n, sizeof *m.sorted, by_name);
    gw_status status = place(plan, &m, order, buckets, why);
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        if (buckets[i] == 0) {
            status = GW_FAIL(why, GW_ERR_DISAGREE,
                             "%s: the plan says nothing of '%s', which this model has: a plan for "
                             "another model?",
                             plan->path, names[i]);
        }
    }
    free(m.sorted);
    return status;
}
