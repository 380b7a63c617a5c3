#include "plan.h"

#include <stdio.h>
#include <string.h>

static const char *default_route(const gw_params *params)
{
    const uint32_t flags = gw_params_flags(params);
    if (flags & GW_CODEC_ROUNDS) {
        return "sum";
    }
    return flags & GW_CODEC_WANTS_FEEDBACK ? "gather" : "sra";
}

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
    if (config->spec == NULL || strcmp(config->spec, "dense") == 0) {
        return GW_OK;
    }
    plan_spec spec;
    gw_status status = plan_spec_parse(config->spec, &spec, why);
    if (status == GW_OK) {
        status = params_for(spec.uniform, p, &out->params, why);
    }
    if (status == GW_OK) {
        const char *route = config->route != NULL ? config->route : default_route(&out->params);
        status = gw_route_parse(&out->route, route, why);
    }
    if (status == GW_OK) {
        status = gw_route_fits(&out->route, &out->params, why);
    }
    out->compressed = p->kind != PARAM_BIAS && p->count >= config->fuse_below;
    return status;
}

gw_status plan_model(const plan_config *config, const model *m, gw_step *step, uint32_t first,
                     gw_why *why)
{
    gw_status status = GW_OK;
    for (size_t i = 0; i < m->n_params && status == GW_OK; i++) {
        planned p;
        status = plan_param(config, m->params[i], &p, why);
        if (status == GW_OK && p.compressed) {
            status = gw_step_plan(step, first + (uint32_t)i, &p.params, &p.route, why);
        }
    }
    return status;
}

gw_status plan_adapt(const plan_config *config, gw_step *step, gw_why *why)
{
    plan_spec spec;
    const gw_status status =
        plan_spec_parse(config->spec != NULL ? config->spec : "dense", &spec, why);
    if (status != GW_OK || !spec.adapts) {
        return status;
    }
    const gw_step_adapt_config adapt = {.rules = {.families = spec.families,
                                                  .n_families = spec.n_families,
                                                  .uniform = spec.families[0]},
                                        .every = spec.period,
                                        .alpha = spec.alpha,
                                        .least_gain = spec.gain};
    return gw_step_adapt_begin(step, &adapt, why);
}
