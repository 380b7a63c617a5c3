/* Layers, plans and gradients: what the caller brings. */
#define _POSIX_C_SOURCE 200809L
#include "step/step.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEFAULT_LANES = 6, DEFAULT_TIMEOUT = 300 };

gw_status gw_step_failure(gw_step *s, gw_why *why)
{
    if (s == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "no step");
    }
    (void)pthread_mutex_lock(&s->lock);
    const gw_status status =
        s->status == GW_OK ? GW_OK : gw_fail(why, s->status, "%s", s->why.text);
    (void)pthread_mutex_unlock(&s->lock);
    return status;
}

static gw_status check_config(const gw_step_config *c, gw_why *why)
{
    if (c == NULL || c->comm == NULL || c->comm->table == NULL || c->comm->ranks == 0) {
        return GW_FAIL(why, GW_ERR_ARG, "a step needs a comm");
    }
    if ((c->comm->table->flags & GW_COMM_DEVICE) != 0) {
        return GW_FAIL(
            why, GW_ERR_UNSUPPORTED,
            "ranks agree in host memory, %s works in a device's: give it as device_comm, "
            "beside a comm of the host's",
            c->comm->table->name);
    }
    if (c->device_comm != NULL) {
        const gw_status status = gw_device_check_comm(c, why);
        if (status != GW_OK) {
            return status;
        }
    }
    if (c->lanes > GW_STEP_MAX_LANES || c->threads > GW_POOL_MAX_THREADS ||
        !(c->timeout >= 0 && c->timeout < 1e6)) {
        return GW_FAIL(why, GW_ERR_RANGE, "lanes %u, threads %u or timeout %g out of range",
                       c->lanes, c->threads, c->timeout);
    }
    if (c->sharded && c->fuse_below != 0) {
        return GW_FAIL(why, GW_ERR_ARG, "layers that go together have no pieces of their own");
    }
    return GW_OK;
}

gw_status gw_step_split(const gw_step *s, gw_comm *world, uint32_t colour, gw_comm **out,
                        gw_why *why)
{
    gw_why own = {""};
    why = gw_why_or(why, &own);
    const gw_status status = world->table->split(world, colour, world->rank, out, why);
    if (status != GW_OK) {
        const char *reason = why->text[0] != '\0' ? why->text : gw_status_string(status);
        world->table->abort(world, reason);
        if (world != s->config.comm) {
            s->config.comm->table->abort(s->config.comm, reason);
        }
    }
    return status;
}

gw_status gw_step_split_nodes(const gw_step *s, gw_comm *world, gw_comm **intra, gw_comm **inter,
                              gw_why *why)
{
    const uint32_t k = s->config.ranks_per_node, rank = world->rank;
    if (s->nodes == NULL && (k == 0 || world->ranks % k != 0)) {
        return GW_OK;
    }
    const uint32_t node = s->nodes != NULL ? s->nodes->node_of[rank] : rank / k;
    const uint32_t place = s->nodes != NULL ? s->nodes->place_of[rank] : rank % k;
    const gw_status status = gw_step_split(s, world, node, intra, why);
    return status == GW_OK ? gw_step_split(s, world, place, inter, why) : status;
}

/* Equal nodes, one after the other, need no map: then formulas do. */
static gw_status know_nodes(gw_step *s, const uint32_t *node_of, gw_why *why)
{
    const uint32_t ranks = s->config.comm->ranks;
    gw_nodes *nodes = NULL;
    s->config.node_of = NULL; /* the caller's */
    if (node_of == NULL) {
        return GW_OK;
    }
    const gw_status status = gw_nodes_create(node_of, ranks, &nodes, why);
    if (status != GW_OK) {
        return status;
    }
    s->config.ranks_per_node = gw_nodes_regular(nodes);
    if (s->config.ranks_per_node != 0) {
        gw_nodes_destroy(nodes);
    } else {
        s->nodes = nodes;
    }
    return GW_OK;
}

/* A group of its own for every lane and level, so that exchanges on different lanes never wait for one
 * another's order. */
static gw_status open_lanes(gw_step *s, gw_why *why)
{
    gw_comm *world = s->config.comm;
    gw_status status = GW_OK;
    for (; s->n_lanes < s->config.lanes && status == GW_OK; s->n_lanes++) {
        gw_lane *lane = &s->lanes[s->n_lanes].groups;
        status = gw_step_split(s, world, 0, &lane->flat, why);
        if (status == GW_OK) {
            status = gw_step_split_nodes(s, world, &lane->intra, &lane->inter, why);
        }
    }
    return status;
}

gw_status gw_step_create(const gw_step_config *config, gw_step **out, gw_why *why)
{
    GW_REQUIRE(why, out != NULL, "no place for the step");
    gw_status status = check_config(config, why);
    if (status != GW_OK) {
        return status;
    }
    gw_step *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for a step");
    }
    s->config = *config;
    s->config.lanes = config->lanes != 0 ? config->lanes : DEFAULT_LANES;
    s->config.timeout = config->timeout != 0 ? config->timeout : DEFAULT_TIMEOUT;
    s->config.verify_every =
        config->verify_every != 0 ? config->verify_every : GW_STEP_VERIFY_USUAL;
    s->convert = gw_convert_for(config->isa != GW_ISA_AUTO ? config->isa : gw_isa_best());
    (void)pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&s->changed, &monotonic);
    (void)pthread_cond_init(&s->due, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    status = s->convert == NULL ? GW_FAIL(why, GW_ERR_UNSUPPORTED, "no such variant here") : GW_OK;
    if (status == GW_OK) {
        status = gw_feedback_create(GW_FEEDBACK_BESIDE, config->comm->rank, config->comm->ranks,
                                    &s->store, why);
    }
    if (status == GW_OK) {
        gw_feedback_load_when(s->store, &s->agreed, "call gw_step_agree first");
        gw_step_verify_open(s);
    }
    if (status == GW_OK) {
        status = know_nodes(s, config->node_of, why);
    }
    if (status == GW_OK && config->threads > 1) {
        status = gw_pool_create(config->threads, &s->pool);
        if (status != GW_OK) {
            (void)gw_fail(why, status, "%u threads for coding: %s", config->threads,
                          gw_status_string(status));
        }
    }
    if (status == GW_OK) {
        status = gw_step_compare_config(s, why); /* how many groups there are hangs on it */
    }
    if (status == GW_OK) {
        status = open_lanes(s, why);
    }
    if (status == GW_OK) {
        gw_step_listen(s, 1);
        status = gw_device_open(s, why);
    }
    if (status == GW_OK && config->own_thread) {
        s->has_thread = pthread_create(&s->thread, NULL, gw_step_thread, s) == 0;
        status = s->has_thread ? GW_OK : GW_FAIL(why, GW_ERR_SYSTEM, "cannot start a thread");
    }
    if (status != GW_OK) {
        gw_step_destroy(s);
        return status;
    }
    *out = s;
    return GW_OK;
}

static void close_group(gw_comm *comm)
{
    if (comm != NULL) {
        comm->table->close(comm);
    }
}

void gw_step_destroy(gw_step *s)
{
    if (s == NULL) {
        return;
    }
    if (s->has_thread) {
        (void)pthread_mutex_lock(&s->lock);
        s->stop = 1;
        gw_step_wake(s);
        (void)pthread_mutex_unlock(&s->lock);
        (void)pthread_join(s->thread, NULL);
    }
    if (s->posted != 0 && s->status == GW_OK) { /* others may be reading what is freed here */
        gw_why why;
        (void)gw_fail(&why, GW_ERR_STATE, "destroyed in the middle of step %llu",
                      (unsigned long long)s->number);
        gw_step_fail(s, GW_ERR_STATE, &why);
    }
    gw_step_listen(s, 0);
    gw_step_adapt_end(s);
    gw_step_unprepare(s);
    gw_device_close(s);
    close_group(s->side);
    gw_device_close_groups(s);
    for (uint32_t i = 0; i < s->config.lanes; i++) {
        close_group(s->lanes[i].groups.inter);
        close_group(s->lanes[i].groups.intra);
        close_group(s->lanes[i].groups.flat);
    }
    gw_step_verify_close(s);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        free(s->layers[i].name);
    }
    gw_nodes_destroy(s->nodes);
    free(s->layers);
    free(s->order);
    gw_feedback_destroy(s->store);
    gw_pool_destroy(s->pool);
    (void)pthread_cond_destroy(&s->changed);
    (void)pthread_cond_destroy(&s->due);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}

/* ---- layers ---- */

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
    if (gw_step_adapt_has(s, layer)) {
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

/* ---- a step ---- */

gw_status gw_step_post(gw_step *s, uint32_t layer, const gw_tensor *gradient, gw_why *why)
{
    return gw_step_post_after(s, layer, gradient, NULL, why);
}

gw_status gw_step_post_after(gw_step *s, uint32_t layer, const gw_tensor *gradient, void *stream,
                             gw_why *why)
{
    gw_status status = gw_step_failure(s, why);
    if (status != GW_OK) {
        return status;
    }
    if (!s->agreed) {
        return GW_FAIL(why, GW_ERR_STATE, "no plan is agreed: call gw_step_agree first");
    }
    if (layer >= s->n_layers || gradient == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "no layer %u, or no gradient", layer);
    }
    gw_layer *l = &s->layers[layer];
    if (gradient->count != l->elements || gradient->dtype != l->dtype ||
        (gradient->data == NULL && l->elements != 0)) {
        return GW_FAIL(why, GW_ERR_ARG, "layer '%.100s' has %llu elements of %s, not %zu of %s",
                       l->name, (unsigned long long)l->elements, gw_dtype_name(l->dtype),
                       gradient->count, gw_dtype_name(gradient->dtype));
    }
    if (gw_step_on_device(s) && !l->posted) {
        status = gw_cuda_record(s->config.place, l->event, stream, why);
    }
    if (status == GW_OK && s->adapt != NULL) {
        status = gw_step_adapt_copy(s, layer, gradient, why);
    }
    if (status != GW_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&s->lock);
    if (l->posted) {
        status = GW_FAIL(why, GW_ERR_STATE, "layer '%.100s' is posted twice", l->name);
    } else {
        const double now = gw_step_now();
        if (s->posted == 0) { /* later the thread reads it without the lock */
            s->first_post = now;
        }
        l->gradient = *gradient;
        l->posted = 1;
        l->measured.posted = now - s->first_post;
        s->posted++;
        gw_step_wake(s);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return status;
}

static gw_status all_posted(const gw_step *s, gw_why *why)
{
    for (uint32_t i = 0; i < s->n_layers && s->status == GW_OK; i++) {
        if (!s->layers[i].posted) {
            return GW_FAIL(why, GW_ERR_STATE,
                           "layer '%.100s' was not posted: %u of %u were; post zeros for a layer "
                           "without a gradient",
                           s->layers[i].name, s->posted, s->n_layers);
        }
    }
    return GW_OK;
}

/* Everything has arrived: what to tell, and ready for the next. */
static void close_step(gw_step *s, gw_step_result *result)
{
    gw_step_result r = {.number = s->number, .seconds = s->last_arrival - s->first_post};
    for (uint32_t i = 0; i < s->n_layers; i++) {
        gw_layer *l = &s->layers[i];
        r.first_non_finite = l->bad && r.non_finite == 0 ? i : r.first_non_finite;
        r.non_finite += l->bad != 0;
        for (int link = 0; link < GW_LINKS; link++) {
            r.bytes_sent[link] += l->stats.bytes_sent[link];
            r.dense_bytes_sent[link] += l->stats.dense_bytes_sent[link];
        }
        r.encode_seconds += l->stats.encode_seconds;
        r.decode_seconds += l->stats.decode_seconds;
        l->posted = l->begun = l->bad = 0;
        l->pieces_done = 0;
    }
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        s->lanes[i].task = i;
        s->lanes[i].begun = 0;
    }
    s->posted = s->arrived = 0;
    s->bad_layers = r.non_finite;
    s->number++;
    if (result != NULL) {
        *result = r;
    }
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

gw_status gw_step_wait(gw_step *s, gw_step_result *result, gw_why *why)
{
    gw_status status = gw_step_failure(s, why);
    if (status != GW_OK) {
        return status;
    }
    if (!s->agreed) {
        return GW_FAIL(why, GW_ERR_STATE, "no plan is agreed: call gw_step_agree first");
    }
    (void)pthread_mutex_lock(&s->lock);
    status = all_posted(s, why);
    if (status == GW_OK && !s->has_thread) {
        (void)pthread_mutex_unlock(&s->lock);
        gw_step_run_all(s);
        (void)pthread_mutex_lock(&s->lock);
    }
    while (status == GW_OK && (s->busy || (s->status == GW_OK && s->arrived < s->n_layers))) {
        (void)pthread_cond_wait(&s->changed, &s->lock);
    }
    if (status == GW_OK && s->status != GW_OK) {
        status = gw_fail(why, s->status, "%s", s->why.text);
    }
    if (status == GW_OK) {
        status = gw_step_settle(s, why);
    }
    if (status == GW_OK) {
        gw_step_verify_count(s);
        close_step(s, result);
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (status == GW_OK) {
        status = gw_step_verify_after(s, why);
    }
    return status == GW_OK && s->adapt != NULL ? gw_step_adapt_go_on(s, s->number - 1, why)
                                               : status;
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
