/* Before the first period: which layers, which levels each could have, by which route, and what that sends. */
#include "control/adapt.h"

#include <string.h>

/* ---- a layer's levels ---- */

/* Codes where the layer's own route did first. */
static void code_as(gw_route *route, const gw_route *own)
{
    uint8_t device = 0;
    for (int i = 0; i < own->n_steps; i++) {
        device = device == 0 ? own->step[i].device : device;
    }
    for (int i = 0; i < route->n_steps && device != 0; i++) {
        route->step[i].device = route->step[i].device != 0 ? device : 0;
    }
}

/* The layer's own route for the codec it was planned with, else what suits. */
static gw_status route_of(const gw_step *s, const gw_layer *l, const gw_params *level, int lossless,
                          gw_route *out, gw_why *why)
{
    if (!lossless && l->params.codec == level->codec) {
        *out = l->route;
        return GW_OK;
    }
    const gw_status status = gw_step_usual(s, lossless ? NULL : level, out, why);
    code_as(out, &l->route);
    return status;
}

/* Levels below the floor are none. */
static void raise(const gw_adapting *a, gw_control_layer *l)
{
    const double least = a->config.floor * (double)l->bytes[l->uniform];
    uint32_t n = 0;
    for (uint32_t i = 0; i < l->n; i++) {
        if ((double)l->bytes[i] < least) {
            continue;
        }
        l->uniform = i == l->uniform ? n : l->uniform;
        l->levels[n] = l->levels[i];
        l->routes[n] = l->routes[i];
        l->bytes[n++] = l->bytes[i];
    }
    l->n = n;
    l->level = l->uniform;
}

static gw_status find_milder(gw_adapting *a, const gw_layer *l, gw_control_layer *to, gw_why *why)
{
    to->milder = to->uniform;
    if (a->config.milder == NULL || to->uniform == 0) {
        return GW_OK;
    }
    gw_params milder = *a->config.milder;
    gw_status status = gw_params_fit_shape(&milder, l->dims, l->n_dims);
    for (uint32_t i = 0; i < to->n && status == GW_OK; i++) {
        if (gw_params_equal(&to->levels[i], &milder)) {
            to->milder = i;
            return GW_OK;
        }
    }
    return GW_FAIL(why, GW_ERR_ARG, "adapt: the milder default is no level of layer '%.100s'",
                   l->name);
}

static int is_pinned(const gw_step_adapt_config *c, uint32_t layer)
{
    size_t i = 0;
    while (i < c->n_pinned && c->pinned[i] != layer) {
        i++;
    }
    return i < c->n_pinned;
}

gw_status gw_adapting_list(gw_control *c, const gw_layer *l, gw_control_layer *to, gw_why *why)
{
    gw_adapting *a = gw_adapting_of(c);
    if (l->params.codec == NULL || l->elements == 0 || is_pinned(&a->config, to->layer)) {
        return GW_OK;
    }
    gw_params *levels = gw_control_memory(c, GW_ADAPT_MOST_LEVELS, sizeof *levels);
    size_t n = 0;
    if (levels == NULL) {
        return gw_control_has_memory(c, why);
    }
    gw_status status = gw_adapt_levels(&a->config.rules, GW_F32, l->dims, l->n_dims, levels,
                                       GW_ADAPT_MOST_LEVELS, &n, &to->uniform, why);
    if (status != GW_OK || n < 2) {
        return status;
    }
    to->levels = levels;
    to->n = (uint32_t)n;
    to->routes = gw_control_memory(c, n, sizeof *to->routes);
    to->bytes = gw_control_memory(c, n, sizeof *to->bytes);
    status = gw_control_has_memory(c, why);
    for (uint32_t i = 0; i < n && status == GW_OK; i++) {
        status = route_of(c->step, l, &levels[i], i == 0, &to->routes[i], why);
        if (status == GW_OK) {
            status =
                gw_control_bytes_sent(c->step, l, &levels[i], &to->routes[i], &to->bytes[i], why);
        }
    }
    if (status != GW_OK) {
        return status;
    }
    raise(a, to);
    return find_milder(a, l, to, why);
}

/* ---- settings ---- */

gw_status gw_adapting_check(const gw_step *s, const void *config, gw_why *why)
{
    const gw_step_adapt_config *c = config;
    (void)s;
    if (c->every < GW_STEP_ADAPT_LEAST_PERIOD || c->every > (uint64_t)1 << 40) {
        return GW_FAIL(why, GW_ERR_RANGE, "adapt: a period has %d steps at least, not %llu",
                       GW_STEP_ADAPT_LEAST_PERIOD, (unsigned long long)c->every);
    }
    if (!(c->alpha >= 0) || !(c->least_gain >= 0 && c->least_gain < 1) ||
        !(c->floor >= 0 && c->floor <= 1) || (c->milder != NULL && !(c->eta >= 0)) ||
        (c->schedule == NULL && c->n_schedule != 0) || (c->pinned == NULL && c->n_pinned != 0)) {
        return GW_FAIL(why, GW_ERR_RANGE, "adapt: alpha, eta, least_gain or floor out of range");
    }
    for (size_t i = 0; i < c->n_schedule; i++) {
        if (!(c->schedule[i].alpha >= 0) ||
            (i != 0 && c->schedule[i].step <= c->schedule[i - 1].step)) {
            return GW_FAIL(why, GW_ERR_RANGE,
                           "adapt: entry %zu of the schedule: an alpha below 0, or a step that "
                           "does not come after the last",
                           i);
        }
    }
    return GW_OK;
}

/* What rounds need of the config. Families, milder default and pins are the caller's, and only begin reads them. */
static void keep_config(gw_adapting *a, const gw_step_adapt_config *config)
{
    gw_control *c = &a->control;
    a->config = *config;
    a->schedule = gw_control_memory(c, config->n_schedule, sizeof *a->schedule);
    if (a->schedule != NULL && config->n_schedule != 0) {
        memcpy(a->schedule, config->schedule, config->n_schedule * sizeof *a->schedule);
    }
    const uint64_t tenth = config->every / 10;
    c->metric = config->metric;
    c->window = c->lag = c->rest = tenth < 1 ? 1 : tenth > 10 ? 10 : tenth;
}

/* Of all that the choice depends on but the tables. */
static uint64_t hash_of(const gw_adapting *a)
{
    const gw_control *c = &a->control;
    const gw_step_adapt_config *f = &a->config;
    const double numbers[] = {(double)f->every, f->alpha,     f->eta,
                              f->least_gain,    (double)c->n, (double)f->metric};
    uint64_t hash = gw_control_mix(0, numbers, sizeof numbers);
    for (size_t i = 0; i < f->n_schedule; i++) {
        const double entry[] = {(double)a->schedule[i].step, a->schedule[i].alpha};
        hash = gw_control_mix(hash, entry, sizeof entry);
    }
    for (uint32_t i = 0; i < c->n; i++) {
        const gw_control_layer *l = &c->layers[i];
        const uint64_t of_layer[] = {l->layer, l->n, l->uniform, l->milder};
        hash = gw_control_mix(hash, of_layer, sizeof of_layer);
        hash = gw_control_mix(hash, l->bytes, l->n * sizeof *l->bytes);
        for (uint32_t k = 0; k < l->n; k++) {
            const uint64_t route = gw_route_hash(&l->routes[k]);
            hash = gw_control_mix_level(hash, &l->levels[k]);
            hash = gw_control_mix(hash, &route, sizeof route);
        }
    }
    return hash;
}

gw_status gw_adapting_open(gw_control *c, const void *config, gw_why *why)
{
    gw_adapting *a = gw_adapting_of(c);
    keep_config(a, config);
    gw_status status = gw_control_list(c, why);
    a->norms = gw_control_memory(c, c->n, sizeof *a->norms);
    a->chosen = gw_control_memory(c, c->n, sizeof *a->chosen);
    a->posed = gw_control_memory(c, c->n, sizeof *a->posed);
    a->which = gw_control_memory(c, c->n, sizeof *a->which);
    a->levels = gw_control_memory(c, c->n, sizeof *a->levels);
    if (status == GW_OK) {
        status = gw_control_lay_out(c, 0, why);
    }
    c->hash = status == GW_OK ? hash_of(a) : 0;
    return status;
}
