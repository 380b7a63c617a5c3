#include "plan.h"

#include "fail.h"

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
        const param *p = m->params[i];
        plan_layer *l = &out->layers[i];
        *l = (plan_layer){.first = i, .count = 1, .elements = p->count};
        (void)snprintf(l->name, sizeof l->name, "%s", p->name);
        out->members[i] = out->layer_of[i] = out->order[i] = i;
        status = plan_param(config, p, &l->how, why);
    }
    out->n_layers = m->n_params;
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

static int same_way(const plan_entry *a, const plan_entry *b)
{
    int same = a->params.codec == b->params.codec && gw_route_equal(&a->route, &b->route);
    for (int i = 0; i < GW_PARAMS_MAX; i++) {
        same &= a->params.value[i] == b->params.value[i];
    }
    return same;
}

/* Of a bucket: its first name and its last. */
static void name_layer(plan_layer *l, const char *first, const char *last)
{
    const char *between = l->count > 2 ? "+...+" : "+";
    (void)snprintf(l->name, sizeof l->name, "%.32s%s%.32s", first, l->count > 1 ? between : "",
                   l->count > 1 ? last : "");
}

/* Layers as the entries have them, one behind the other. */
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
        if (joins && !same_way(e - 1, e)) {
            return trainer_fail(why, GW_ERR_ARG,
                                "the plan sends '%.60s' and '%.60s' as one, by different ways",
                                e[-1].name, e->name);
        }
        if (!joins) {
            out->layers[out->n_layers++] =
                (plan_layer){.first = i, .how = {e->params.codec != NULL, e->params, e->route}};
        }
        plan_layer *l = &out->layers[out->n_layers - 1];
        l->count++;
        l->elements += e->elements;
        name_layer(l, config->entries[l->first].name, e->name);
        out->members[i] = at;
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

/* Random numbers hang on a layer's number: so that they are those of a run without a plan, layers stand in the order of the
 * model, and `order` has the wire's. */
static void sort_layers(wire_plan *p)
{
    plan_layer wire[MODEL_MAX_PARAMS];
    memcpy(wire, p->layers, sizeof wire);
    for (uint32_t i = 0; i < p->n_layers; i++) {
        uint32_t place = 0;
        for (uint32_t j = 0; j < p->n_layers; j++) {
            place += p->members[wire[j].first] < p->members[wire[i].first];
        }
        p->layers[place] = wire[i];
        p->order[i] = place;
        for (uint32_t k = 0; k < wire[i].count; k++) {
            p->layer_of[p->members[wire[i].first + k]] = place;
        }
    }
}

static void place_layers(wire_plan *p)
{
    for (size_t i = 1; i < p->n_layers; i++) {
        p->layers[i].place = p->layers[i - 1].place + p->layers[i - 1].elements;
    }
}

gw_status plan_make(const plan_config *config, const model *m, wire_plan *out, gw_why *why)
{
    *out = (wire_plan){.n_layers = 0};
    if (config->entries == NULL) {
        return plan_uniform(config, m, out, why);
    }
    if (config->n_entries > m->n_params) {
        return trainer_fail(why, GW_ERR_DISAGREE,
                            "the plan is of another model: it has %zu tensors, this one %zu",
                            config->n_entries, m->n_params);
    }
    const gw_status status = collect(config, m, out, why);
    if (status == GW_OK) {
        sort_layers(out);
        place_layers(out);
    }
    return status;
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
    uint32_t order[MODEL_MAX_PARAMS + 1];
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < p->n_layers && status == GW_OK; i++) {
        const plan_layer *l = &p->layers[i];
        const param *only = m->params[p->members[l->first]];
        uint32_t number = 0;
        status = l->count == 1
                     ? gw_step_add(step, l->name, only->dims, only->n_dims, GW_F32, &number, why)
                     : gw_step_add(step, l->name, &l->elements, 1, GW_F32, &number, why);
        if (status == GW_OK) {
            status = gw_step_plan(step, number, l->how.compressed ? &l->how.params : NULL,
                                  &l->how.route, why);
        }
    }
    for (uint32_t i = 0; i < first; i++) {
        order[i] = i;
    }
    for (uint32_t i = 0; i < p->n_layers; i++) {
        order[first + i] = first + p->order[i];
    }
    return status == GW_OK ? gw_step_order(step, order, first + p->n_layers, why) : status;
}
