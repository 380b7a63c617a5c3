#include "trainer/sending_plan.h"

#include <string.h>

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
        status = gw_params_parse_for(&out->params, adapts ? spec.uniform : config->spec, p->dims,
                                     p->n_dims, why);
    }
    if (status == GW_OK) {
        status = gw_params_fit_shape(&out->params, p->dims, p->n_dims);
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

/* Codecs, routes, order and buckets as the file has them. */
static gw_status plan_by_file(const gw_plan_file *file, const model *m, wire_plan *out, gw_why *why)
{
    const char *names[MODEL_MAX_PARAMS];
    uint64_t elements[MODEL_MAX_PARAMS];
    for (size_t i = 0; i < m->n_params; i++) {
        names[i] = m->params[i]->name;
        elements[i] = m->params[i]->count;
    }
    const gw_status status =
        gw_plan_match(file, names, elements, m->n_params, out->order, out->bucket, why);
    for (size_t i = 0; i < m->n_params && status == GW_OK; i++) {
        const gw_plan_tensor *t = &file->tensors[i];
        out->how[out->order[i]] = (planned){t->params.codec != NULL, t->params, t->route};
    }
    return status;
}

gw_status plan_make(const plan_config *config, const model *m, wire_plan *out, gw_why *why)
{
    *out = (wire_plan){.n = m->n_params};
    return config->file != NULL ? plan_by_file(config->file, m, out, why)
                                : plan_uniform(config, m, out, why);
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
    if (config->file != NULL || config->spec == NULL) {
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
