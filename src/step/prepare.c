/* What an agreed plan takes: exchanges, tasks, memory. */
#include "step/step.h"

#include <stdlib.h>
#include <string.h>

static void destroy_all(gw_exchange **exchanges, uint32_t n)
{
    for (uint32_t i = 0; exchanges != NULL && i < n; i++) {
        gw_exchange_destroy(exchanges[i], 1);
    }
    free(exchanges);
}

void gw_step_drop_exchanges(gw_exchange ***exchanges, uint32_t *n)
{
    destroy_all(*exchanges, *n);
    *exchanges = NULL;
    *n = 0;
}

/* What is shared by all layers; exchanges of layers and fusions stay. */
static void drop_tasks(gw_step *s)
{
    for (uint32_t i = 0; i < s->n_convoys; i++) {
        gw_together_destroy(s->convoys[i].messages);
    }
    free(s->convoys);
    free(s->convoyed);
    free(s->tasks);
    s->convoys = NULL;
    s->convoyed = NULL;
    s->tasks = NULL;
    s->n_convoys = s->n_tasks = 0;
}

void gw_step_unprepare(gw_step *s)
{
    if (gw_step_on_device(s)) {
        gw_device_finish(s);
    }
    drop_tasks(s);
    gw_fusions_drop(s);
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        s->gradients->release(s, s->lanes[i].workspace.data, 1);
        s->gradients->release(s, s->lanes[i].groups.there.data, 0);
        s->lanes[i].workspace = s->lanes[i].groups.there = (gw_workspace){0};
    }
    for (uint32_t i = 0; i < s->n_layers; i++) {
        gw_step_drop_exchanges(&s->layers[i].pieces, &s->layers[i].n_pieces);
        s->gradients->release(s, s->layers[i].widened, 0);
        s->layers[i].widened = NULL;
    }
}

static gw_exchange_config exchange_config(const gw_step *s, const gw_layer *l)
{
    return (gw_exchange_config){
        .route = l->route,
        .params = l->params,
        .ranks = s->config.comm->ranks,
        .ranks_per_node = s->config.ranks_per_node,
        .nodes = s->nodes,
        .rank = s->config.comm->rank,
        .elements = l->elements,
        .dtype = l->sent,
        .exec = {.isa = s->config.isa, .pool = s->pool},
        .divisor = s->config.sum ? 1 : s->config.comm->ranks,
        .store = s->store,
        .store_tensor = l->store_tensor,
        .sharded = s->config.sharded,
        .place = s->config.place,
        .device_comm = s->config.device_comm != NULL,
        .hashed = gw_step_hashes(s) && l->dtype == l->sent, /* others when they are converted */
    };
}

/* Elements of a layer's pieces: all of it, where the codec cannot be cut. */
static uint64_t piece_size(const gw_step *s, const gw_layer *l)
{
    const int codes = gw_route_encodes(&l->route) != 0;
    const uint64_t grain = codes ? gw_codec_grain(&l->params) : 1;
    if (s->config.sharded) { /* whose pieces are the ranks' */
        return l->elements;
    }
    return s->config.piece != 0 ? gw_cut_even(l->elements, grain, s->config.piece)
                                : gw_cut_usual(l->elements, grain);
}

gw_status gw_step_make_exchanges(gw_step *s, gw_layer *l, int together, gw_why *why)
{
    gw_exchange_config config = exchange_config(s, l);
    const uint64_t size = piece_size(s, l);
    const uint64_t n = size != 0 ? (l->elements + size - 1) / size : 1;
    gw_exchange **const old = l->pieces;
    const uint32_t n_old = l->n_pieces;
    gw_status status = GW_OK;
    if (together) {
        config.store = l->params.codec != NULL ? config.store : NULL;
        config.hashed = 0;
    }
    l->pieces = calloc((size_t)n, sizeof(gw_exchange *));
    l->n_pieces = 0;
    if (l->pieces == NULL) {
        status = GW_FAIL(why, GW_ERR_MEMORY, "layer '%.100s': no memory", l->name);
    }
    while (status == GW_OK && l->n_pieces < n) {
        config.piece = l->n_pieces;
        config.first = l->n_pieces * size;
        config.elements = l->elements - config.first < size ? l->elements - config.first : size;
        config.before = old != NULL && l->n_pieces < n_old ? old[l->n_pieces] : NULL;
        gw_why reason = {""};
        status = gw_exchange_create(&config, &l->pieces[l->n_pieces], &reason);
        if (status != GW_OK) {
            status = gw_fail(why, status, "layer '%.100s'%s: %s", l->name,
                             together ? " and those that go with it" : "", reason.text);
        } else {
            l->n_pieces++;
        }
    }
    destroy_all(old, n_old);
    l->changed = status == GW_OK ? 0 : l->changed;
    return status;
}

static void add_tasks(gw_step *s, gw_exchange *const *pieces, uint32_t n, uint32_t layer,
                      uint32_t fusion)
{
    for (uint32_t p = 0; p < n; p++) {
        const gw_range whole = gw_exchange_program(pieces[p])->whole;
        s->tasks[s->n_tasks++] = (gw_task){.exchange = pieces[p],
                                           .layer = layer,
                                           .fusion = fusion,
                                           .convoy = UINT32_MAX,
                                           .first = whole.first,
                                           .elements = whole.count};
    }
}

/* At the place of its last layer. No convoy goes past a bucket, so that the plan's order is the wire's. */
static gw_status add_fusion(gw_step *s, uint32_t fusion, gw_why *why)
{
    const gw_fusion *f = &s->fusions[fusion];
    const gw_status status = f->bucket != 0 ? gw_convoy_close(s, why) : GW_OK;
    if (status == GW_OK) {
        add_tasks(s, f->pieces, f->n_pieces, UINT32_MAX, fusion);
    }
    return status;
}

static gw_status prepare_layers(gw_step *s, uint64_t *pieces, gw_why *why)
{
    gw_status status = gw_fusions_make(s, why); /* first: what they held may be handed over */
    for (uint32_t i = 0; i < s->n_layers && status == GW_OK; i++) {
        gw_layer *l = &s->layers[i];
        if (l->fusion == UINT32_MAX) {
            l->sent = gw_step_sends(l, &l->route);
        }
        if (l->fusion == UINT32_MAX && (l->changed || l->pieces == NULL)) {
            status = gw_step_make_exchanges(s, l, 0, why);
        }
        *pieces += l->n_pieces;
        if (status == GW_OK && l->dtype != l->sent && l->widened == NULL) {
            void *widened = NULL;
            status =
                s->gradients->allocate(s, (size_t)l->elements * sizeof(float), 0, &widened, why);
            l->widened = widened;
        }
    }
    for (uint32_t i = 0; i < s->n_fusions; i++) {
        *pieces += s->fusions[i].n_pieces;
    }
    return status;
}

static gw_status make_tasks(gw_step *s, gw_why *why)
{
    uint64_t pieces = 0;
    gw_status status = prepare_layers(s, &pieces, why);
    s->tasks = calloc((size_t)pieces + 1, sizeof *s->tasks);
    s->convoyed = calloc((size_t)s->n_layers + 1, sizeof *s->convoyed);
    s->convoys = calloc((size_t)s->n_layers + 1, sizeof *s->convoys);
    if (status == GW_OK && (s->tasks == NULL || s->convoyed == NULL || s->convoys == NULL)) {
        status = GW_FAIL(why, GW_ERR_MEMORY, "no memory for %u layers", s->n_layers);
    }
    for (uint32_t place = 0; place < s->n_layers && status == GW_OK; place++) {
        const uint32_t i = gw_step_in_order(s, place);
        const gw_layer *l = &s->layers[i];
        int joined = 0;
        if (l->fusion != UINT32_MAX) {
            const int ends = gw_fusion_ends_with(s, l->fusion, i);
            status = ends ? add_fusion(s, l->fusion, why) : GW_OK;
            continue;
        }
        status = gw_convoy_add(s, i, &joined, why);
        if (status == GW_OK && !joined) {
            add_tasks(s, l->pieces, l->n_pieces, i, UINT32_MAX);
        }
    }
    status = status == GW_OK ? gw_convoy_close(s, why) : status;
    if (gw_step_on_device(s)) {
        gw_device_make_waves(s);
    }
    return status;
}

/* ---- memory ---- */

/* Else it stays: fresh pages are slow. */
static gw_status make_larger(const gw_step *s, gw_workspace *w, size_t need, int pinned,
                             gw_why *why)
{
    if (w->data != NULL && w->size >= need) {
        return GW_OK;
    }
    s->gradients->release(s, w->data, pinned);
    *w = (gw_workspace){NULL, need};
    return s->gradients->allocate(s, need, pinned, &w->data, why);
}

static gw_status make_workspaces(gw_step *s, gw_why *why)
{
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        gw_step_lane *lane = &s->lanes[i];
        size_t need = 0, there = 0;
        for (uint32_t t = i; t < s->n_tasks; t += s->n_lanes) {
            const gw_exchange *x = s->tasks[t].exchange;
            const uint32_t convoy = s->tasks[t].convoy;
            const size_t bytes = convoy != UINT32_MAX ? gw_convoy_workspace(s, &s->convoys[convoy])
                                                      : gw_exchange_workspace(x);
            const size_t more = gw_exchange_workspace_there(x);
            need = bytes > need ? bytes : need;
            there = more > there ? more : there;
        }
        gw_status status = make_larger(s, &lane->workspace, need, 1, why);
        if (status == GW_OK && gw_step_on_device(s)) {
            status = make_larger(s, &lane->groups.there, there, 0, why);
        }
        if (status != GW_OK) {
            return status;
        }
        lane->task = i;
        lane->begun = 0;
    }
    return GW_OK;
}

gw_status gw_step_prepare(gw_step *s, gw_why *why)
{
    drop_tasks(s);
    gw_status status = gw_step_on_device(s) ? gw_device_prepare(s, why) : GW_OK;
    if (status == GW_OK) {
        status = make_tasks(s, why);
    }
    if (status == GW_OK) {
        status = make_workspaces(s, why);
    }
    return status == GW_OK ? gw_step_count_ring(s, why) : status;
}
