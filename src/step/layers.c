/* Layers and plans: what the caller says before a step, and asks about it later. */
#include "step/step.h"

#include <stdlib.h>
#include <string.h>

static gw_status make_room(gw_step *s, gw_why *why)
{
    if (s->n_layers < s->room) {
        return GW_OK;
    }
    const uint32_t room = s->room != 0 ? 2 * s->room : 64;
    gw_layer *layers =
        room <= GW_STEP_MAX_LAYERS ? realloc(s->layers, room * sizeof *layers) : NULL;
    if (layers == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no room for layer %u", s->n_layers);
    }
    s->layers = layers;
    s->room = room;
    return GW_OK;
}

gw_status gw_step_add(gw_step *s, const char *name, const uint64_t *dims, size_t n_dims,
                      gw_dtype dtype, uint32_t *layer, gw_why *why)
{
    GW_REQUIRE(why, s != NULL && layer != NULL, "no step, or no place for the layer's number");
    gw_layer l = {
        .n_dims = n_dims, .dtype = dtype, .elements = 1, .fusion = UINT32_MAX, .changed = 1};
    if (name == NULL || (dims == NULL && n_dims != 0) || n_dims > 8 || gw_dtype_size(dtype) == 0) {
        return GW_FAIL(why, GW_ERR_ARG, "a layer needs a name, up to 8 dims and a known dtype");
    }
    for (size_t i = 0; i < n_dims; i++) {
        if (dims[i] != 0 && l.elements > ((uint64_t)1 << 48) / dims[i]) {
            return GW_FAIL(why, GW_ERR_RANGE, "layer '%.100s' is too large", name);
        }
        l.dims[i] = dims[i];
        l.elements *= dims[i];
    }
    if (s->posted != 0) {
        return GW_FAIL(why, GW_ERR_STATE, "layer '%.100s': a step is under way", name);
    }
    gw_status status = make_room(s, why);
    if (status == GW_OK) {
        status = gw_feedback_add_tensor(s->store, name, l.elements, &l.store_tensor, why);
    }
    if (status != GW_OK) {
        return status;
    }
    l.name = malloc(strlen(name) + 1);
    if (l.name == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for layer '%.100s'", name);
    }
    memcpy(l.name, name, strlen(name) + 1);
    (void)gw_step_usual(s, NULL, &l.route, NULL);
    l.stats.step = UINT64_MAX;
    s->agreed = 0;
    free(s->order); /* it was of fewer layers */
    s->order = NULL;
    *layer = s->n_layers;
    s->layers[s->n_layers++] = l;
    return GW_OK;
}

/* Half a route is flat: shards are of all ranks. */
gw_status gw_step_usual(const gw_step *s, const gw_params *params, gw_route *out, gw_why *why)
{
    const gw_route_job job = {.ranks = s->config.comm->ranks,
                              .ranks_per_node = s->config.sharded ? 0 : s->config.ranks_per_node,
                              .nodes = s->config.sharded ? NULL : s->nodes};
    if (s->config.sharded && (params == NULL || params->codec == NULL)) {
        return gw_route_parse(out, "flat:reduce_scatter, flat:allgather", why);
    }
    return gw_route_usual(params, &job, gw_step_on_device(s) ? GW_DEVICE_GPU : GW_DEVICE_CPU, out,
                          why);
}

gw_status gw_step_set_plan(gw_step *s, uint32_t layer, const gw_params *params,
                           const gw_route *route, gw_why *why)
{
    if (layer >= s->n_layers) {
        return GW_FAIL(why, GW_ERR_ARG, "no layer %u", layer);
    }
    gw_layer *l = &s->layers[layer];
    if (s->posted != 0) {
        return GW_FAIL(why, GW_ERR_STATE, "layer '%.100s': a step is under way", l->name);
    }
    gw_params fitted = {0};
    gw_route usual;
    if (route == NULL) {
        const gw_status found = gw_step_usual(s, params, &usual, why);
        if (found != GW_OK) {
            return found;
        }
        route = &usual;
    }
    if (gw_route_check(route, NULL) == GW_OK && gw_route_encodes(route) != 0 && params != NULL) {
        fitted = *params;
        (void)gw_params_fit_shape(&fitted, l->dims, l->n_dims);
    }
    gw_why reason = {""};
    const gw_status status = gw_route_fits(route, fitted.codec != NULL ? &fitted : NULL, &reason);
    if (status != GW_OK) {
        return gw_fail(why, status, "layer '%.100s': %s", l->name, reason.text);
    }
    l->changed |= !gw_params_equal(&l->params, &fitted) || !gw_route_equal(&l->route, route);
    l->params = fitted;
    l->asked = fitted.codec != NULL ? *params : fitted;
    l->route = *route;
    s->agreed = 0;
    return GW_OK;
}

gw_status gw_step_order(gw_step *s, const uint32_t *layers, size_t n, gw_why *why)
{
    GW_REQUIRE(why, s != NULL, "no step");
    if (layers == NULL || n != s->n_layers || s->posted != 0) {
        return GW_FAIL(why, s->posted != 0 ? GW_ERR_STATE : GW_ERR_ARG,
                       "an order of %zu layers; there are %u%s", n, s->n_layers,
                       s->posted != 0 ? ", and a step is under way" : "");
    }
    uint32_t *order = calloc(n + 1, sizeof *order);
    uint8_t *seen = calloc(n + 1, 1);
    gw_status status = order != NULL && seen != NULL
                           ? GW_OK
                           : GW_FAIL(why, GW_ERR_MEMORY, "no memory for an order");
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        if (layers[i] >= n || seen[layers[i]]) {
            status = GW_FAIL(why, GW_ERR_ARG, "place %zu of the order: layer %u %s", i, layers[i],
                             layers[i] >= n ? "is not there" : "stands there twice");
        } else {
            seen[layers[i]] = 1;
            order[i] = layers[i];
        }
    }
    free(seen);
    if (status != GW_OK) {
        free(order);
        return status;
    }
    free(s->order);
    s->order = order;
    s->agreed = 0;
    return GW_OK;
}

gw_status gw_step_ready_together(gw_step *s, const uint32_t *groups, size_t n, gw_why *why)
{
    GW_REQUIRE(why, s != NULL, "no step");
    if (groups == NULL || n != s->n_layers || s->posted != 0) {
        return GW_FAIL(why, s->posted != 0 ? GW_ERR_STATE : GW_ERR_ARG,
                       "groups of %zu layers; there are %u%s", n, s->n_layers,
                       s->posted != 0 ? ", and a step is under way" : "");
    }
    for (size_t i = 0; i < n; i++) {
        s->layers[i].ready_with = groups[i];
    }
    s->agreed = 0;
    return GW_OK;
}

gw_status gw_step_plan(gw_step *s, uint32_t layer, const gw_params *params, const gw_route *route,
                       gw_why *why)
{
    GW_REQUIRE(why, s != NULL, "no step");
    if (s->hooks != NULL && s->hooks->plans(s->above, layer)) {
        return GW_FAIL(why, GW_ERR_STATE, "layer '%.100s': its level is chosen during training",
                       s->layers[layer].name);
    }
    return gw_step_set_plan(s, layer, params, route, why);
}

gw_status gw_step_planned(const gw_step *s, uint32_t layer, gw_params *params, gw_route *route)
{
    GW_REQUIRE(NULL, s != NULL && params != NULL && route != NULL,
               "no step, or no place for the plan");
    if (layer >= s->n_layers) {
        return GW_ERR_ARG;
    }
    *params = s->layers[layer].params;
    *route = s->layers[layer].route;
    return GW_OK;
}

gw_status gw_step_wait_layers(gw_step *s, const uint32_t *layers, size_t n, gw_why *why)
{
    GW_REQUIRE(why, s != NULL && (layers != NULL || n == 0), "no step, or no layers");
    if (!s->has_thread) {
        return GW_FAIL(why, GW_ERR_STATE, "without a thread of its own a step moves in wait only");
    }
    (void)pthread_mutex_lock(&s->lock);
    gw_status status = s->status;
    if (s->held) { /* the caller may post no more before these are there */
        s->held = 0;
        gw_step_wake(s);
    }
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        if (layers[i] >= s->n_layers) {
            status = GW_ERR_ARG;
        }
        while (status == GW_OK && s->layers[layers[i]].stats.step != s->number) {
            (void)pthread_cond_wait(&s->changed, &s->lock);
            status = s->status;
        }
    }
    if (status != GW_OK) {
        status = gw_fail(why, status, "%s", status == GW_ERR_ARG ? "no such layer" : s->why.text);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return status;
}

gw_status gw_step_stats(gw_step *s, uint32_t layer, gw_layer_stats *out)
{
    GW_REQUIRE(NULL, s != NULL && out != NULL, "no step, or no place for the stats");
    if (layer >= s->n_layers) {
        return GW_ERR_ARG;
    }
    (void)pthread_mutex_lock(&s->lock);
    *out = s->layers[layer].stats;
    (void)pthread_mutex_unlock(&s->lock);
    return GW_OK;
}

gw_feedback *gw_step_feedback(gw_step *s)
{
    if (s == NULL) {
        return NULL;
    }
    return s->store;
}

uint64_t gw_step_number(const gw_step *s)
{
    if (s == NULL) {
        return 0;
    }
    return s->number;
}

void gw_step_set_number(gw_step *s, uint64_t number)
{
    if (s == NULL) {
        return;
    }
    s->agreed &= s->number == number; /* the others must have the same */
    s->number = number;
}
