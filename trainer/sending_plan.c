#include "trainer/sending_plan.h"

#include "trainer/fail.h"

#include <stdio.h>
#include <string.h>

static gw_status params_for(const char *spec, const param *p, gw_params *params, gw_why *why)
{
    char text[160];
    int own_bin = strncmp(spec, "adacomp", 7) == 0 && strstr(spec, "bin=") == NULL;
    if (own_bin) {
        own_bin = snprintf(text, sizeof text, "%s%cbin=%d", spec, spec[7] == ':' ? ',' : ':',
                           p->kind == PARAM_CONV ? 50 : 500) < (int)sizeof text;
    }
    gw_status status = gw_params_parse(params, own_bin ? text : spec, why);
    if (status == GW_OK) {
        status = gw_params_fit_shape(params, p->dims, p->n_dims);
    }
    return status;
}

gw_status plan_param(const plan_config *config, const param *p, planned *out, gw_why *why)
{
    *out = (planned){0};
    gw_status status = gw_route_usual(NULL, &config->where, GW_DEVICE_CPU, &out->route, why);
    if (status != GW_OK || config->spec == NULL || strcmp(config->spec, "dense") == 0) {
        return status;
    }
    if (gw_auto_spec_is(config->spec)) { /* which plans once it has seen some steps */
        gw_auto_spec automatic;
        return gw_auto_spec_parse(config->spec, &automatic, why);
    }
    gw_adapt_spec spec;
    gw_route route = {0};
    const int adapts = gw_adapt_spec_is(config->spec);
    if (adapts) {
        status = gw_adapt_spec_parse(config->spec, &spec, why);
    }
    if (status == GW_OK) {
        status = params_for(adapts ? spec.uniform : config->spec, p, &out->params, why);
    }
    if (status == GW_OK) {
        status = config->route != NULL
                     ? gw_route_parse(&route, config->route, why)
                     : gw_route_usual(&out->params, &config->where, GW_DEVICE_CPU, &route, why);
    }
    if (status == GW_OK) {
        status = gw_route_fits(&route, &out->params, why);
    }
    out->compressed = p->kind != PARAM_BIAS && p->count >= config->fuse_below;
    out->route = out->compressed ? route : out->route;
    return status;
}

/* ---- layers ---- */

static gw_status plan_uniform(const plan_config *config, const model *m, wire_plan *out,
                              gw_why *why)
{
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < m->n_params && status == GW_OK; i++) {
        out->order[i] = i;
        status = plan_param(config, m->params[i], &out->how[i], why);
    }
    return status;
}

/* The param that an entry speaks of. */
static gw_status find_param(const plan_entry *e, const model *m, uint32_t *out, gw_why *why)
{
    for (uint32_t i = 0; i < m->n_params; i++) {
        if (strcmp(m->params[i]->name, e->name) != 0) {
            continue;
        }
        *out = i;
        return m->params[i]->count == e->elements
                   ? GW_OK
                   : trainer_fail(why, GW_ERR_DISAGREE,
                                  "the plan is of another model: '%.60s' has %llu elements there "
                                  "and %zu here",
                                  e->name, (unsigned long long)e->elements, m->params[i]->count);
    }
    return trainer_fail(why, GW_ERR_DISAGREE,
                        "the plan is of another model: this one has no tensor '%.60s'", e->name);
}

/* Ways, order and buckets as the entries have them. A bucket's number is its first param's, from 1. */
static gw_status collect(const plan_config *config, const model *m, wire_plan *out, gw_why *why)
{
    uint32_t seen[MODEL_MAX_PARAMS] = {0};
    for (uint32_t i = 0; i < config->n_entries; i++) {
        const plan_entry *e = &config->entries[i];
        uint32_t at = 0;
        const gw_status status = find_param(e, m, &at, why);
        if (status != GW_OK) {
            return status;
        }
        if (seen[at]++ != 0) {
            return trainer_fail(why, GW_ERR_ARG, "the plan has '%.60s' twice", e->name);
        }
        const int joins = i != 0 && e[-1].bucket == e->bucket;
        out->order[i] = at;
        out->bucket[at] = joins ? out->bucket[out->order[i - 1]] : at + 1;
        out->how[at] = (planned){e->params.codec != NULL, e->params, e->route};
    }
    for (uint32_t i = 0; i < m->n_params; i++) {
        if (seen[i] == 0) {
            return trainer_fail(why, GW_ERR_DISAGREE,
                                "the plan is of another model: it does not have '%s'",
                                m->params[i]->name);
        }
    }
    return GW_OK;
}

gw_status plan_make(const plan_config *config, const model *m, wire_plan *out, gw_why *why)
{
    *out = (wire_plan){.n = m->n_params};
    if (config->entries == NULL) {
        return plan_uniform(config, m, out, why);
    }
    if (config->n_entries > m->n_params) {
        return trainer_fail(why, GW_ERR_DISAGREE,
                            "the plan is of another model: it has %zu tensors, this one %zu",
                            config->n_entries, m->n_params);
    }
    return collect(config, m, out, why);
}

uint32_t plan_together(const wire_plan *p, uint32_t place)
{
    const uint32_t bucket = p->bucket[p->order[place]];
    uint32_t n = 1;
    while (bucket != 0 && place + n < p->n && p->bucket[p->order[place + n]] == bucket) {
        n++;
    }
    return n;
}

gw_status plan_adapt(const plan_config *config, gw_step *step, gw_why *why)
{
    if (config->entries != NULL || config->spec == NULL) {
        return GW_OK;
    }
    return gw_adapt_spec_is(config->spec)  ? gw_step_adapt_begin_spec(step, config->spec, why)
           : gw_auto_spec_is(config->spec) ? gw_step_auto_begin_spec(step, config->spec, why)
                                           : GW_OK;
}

gw_status plan_add(const wire_plan *p, const model *m, gw_step *step, uint32_t first, gw_why *why)
{
    uint32_t order[MODEL_MAX_PARAMS + 1] = {0}, bucket[MODEL_MAX_PARAMS + 1] = {0};
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < p->n && status == GW_OK; i++) {
        const param *l = m->params[i];
        const planned *how = &p->how[i];
        uint32_t number = 0;
        status = gw_step_add(step, l->name, l->dims, l->n_dims, GW_F32, &number, why);
        if (status == GW_OK) {
            status =
                gw_step_plan(step, number, how->compressed ? &how->params : NULL, &how->route, why);
        }
    }
    for (uint32_t i = 0; i < first; i++) {
        order[i] = i;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        order[first + i] = first + p->order[i];
        bucket[first + i] = p->bucket[i];
    }
    if (status == GW_OK) {
        status = gw_step_order(step, order, first + p->n, why);
    }
    return status == GW_OK ? gw_step_buckets(step, bucket, first + p->n, why) : status;
}
