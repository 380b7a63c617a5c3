/* What an agreed plan takes: exchanges, tasks, memory. */
#include "step/step.h"

#include <stdlib.h>
#include <string.h>

/* Elements of a fusion, at most: more would wait too long for its last layer. */
enum { FUSION = 256 * 1024 };

static void destroy_all(gw_exchange **exchanges, uint32_t n)
{
    for (uint32_t i = 0; exchanges != NULL && i < n; i++) {
        gw_exchange_destroy(exchanges[i], 1);
    }
    free(exchanges);
}

static void drop_pieces(gw_layer *l)
{
    destroy_all(l->pieces, l->n_pieces);
    l->pieces = NULL;
    l->n_pieces = 0;
}

/* What is shared by all layers; the layers' own exchanges stay. */
static void drop_tasks(gw_step *s)
{
    for (uint32_t i = 0; i < s->n_fusions; i++) {
        gw_exchange_destroy(s->fusions[i].exchange, 1);
        gw_device_free(s, s->fusions[i].values, 0);
    }
    for (uint32_t i = 0; i < s->n_convoys; i++) {
        gw_together_destroy(s->convoys[i].messages);
    }
    free(s->fusions);
    free(s->fused);
    free(s->convoys);
    free(s->convoyed);
    free(s->tasks);
    free(s->trial.values);
    free(s->trial.input);
    free(s->trial.payload);
    free(s->trial.workspace.data);
    memset(&s->trial, 0, sizeof s->trial);
    s->fusions = NULL;
    s->fused = NULL;
    s->convoys = NULL;
    s->convoyed = NULL;
    s->tasks = NULL;
    s->n_fusions = s->n_convoys = s->n_tasks = 0;
}

void gw_step_unprepare(gw_step *s)
{
    gw_device_settle(s);
    drop_tasks(s);
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        gw_device_free(s, s->lanes[i].workspace.data, 1);
        gw_device_free(s, s->lanes[i].groups.there.data, 0);
        s->lanes[i].workspace = s->lanes[i].groups.there = (gw_workspace){0};
    }
    for (uint32_t i = 0; i < s->n_layers; i++) {
        drop_pieces(&s->layers[i]);
        gw_device_free(s, s->layers[i].widened, 0);
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

/* The old exchanges go when the new ones have taken over what fits. */
static gw_status prepare_layer(gw_step *s, gw_layer *l, gw_why *why)
{
    gw_exchange_config config = exchange_config(s, l);
    const uint64_t size = piece_size(s, l);
    const uint64_t n = size != 0 ? (l->elements + size - 1) / size : 1;
    gw_exchange **const old = l->pieces;
    const uint32_t n_old = l->n_pieces;
    gw_status status = GW_OK;
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
            status = gw_fail(why, status, "layer '%.100s': %s", l->name, reason.text);
        } else {
            l->n_pieces++;
        }
    }
    destroy_all(old, n_old);
    l->changed = status == GW_OK ? 0 : l->changed;
    return status;
}

static int fuses(const gw_step *s, const gw_layer *l)
{
    return l->elements < s->config.fuse_below;
}

static uint32_t in_order(const gw_step *s, uint32_t place)
{
    return s->order != NULL ? s->order[place] : place;
}

static gw_status close_fusion(gw_step *s, gw_fusion *f, gw_why *why)
{
    gw_layer all = {.elements = f->elements, .dtype = f->dtype, .sent = f->dtype};
    (void)gw_step_usual(s, NULL, &all.route, NULL);
    gw_exchange_config config = exchange_config(s, &all);
    config.store = NULL;
    config.hashed = 0; /* its layers are, when they are written */
    void *values = NULL;
    gw_status status =
        gw_device_allocate(s, (size_t)f->elements * gw_dtype_size(f->dtype), 0, &values, why);
    if (status != GW_OK) {
        return status;
    }
    f->values = values;
    status = gw_exchange_create(&config, &f->exchange, why);
    s->tasks[s->n_tasks++] = (gw_task){.exchange = f->exchange,
                                       .layer = UINT32_MAX,
                                       .fusion = (uint32_t)(f - s->fusions),
                                       .convoy = UINT32_MAX,
                                       .elements = f->elements};
    return status;
}

/* Fusions that still get layers, one for each dtype: their values are sent as one tensor. Each has a part of s->fused. */
typedef struct gathering {
    uint32_t fusion[GW_BF16 + 1]; /* by gw_dtype; UINT32_MAX: none */
    uint32_t fused[GW_BF16 + 1];  /* where the next layer stands in s->fused */
} gathering;

static gathering gather_nothing(const gw_step *s)
{
    gathering g;
    for (uint32_t i = 0; i <= GW_BF16; i++) {
        g.fusion[i] = UINT32_MAX;
        g.fused[i] = i * s->n_layers;
    }
    return g;
}

/* Small layers wait for one another; a fusion stands where its last layer would. */
static gw_status add_fused(gw_step *s, uint32_t layer, gathering *g, gw_why *why)
{
    gw_layer *l = &s->layers[layer];
    uint32_t *fusion = &g->fusion[l->dtype];
    if (*fusion == UINT32_MAX) {
        *fusion = s->n_fusions++;
        s->fusions[*fusion] = (gw_fusion){.first = g->fused[l->dtype], .dtype = l->dtype};
    }
    gw_fusion *f = &s->fusions[*fusion];
    drop_pieces(l);
    l->changed = 1;
    l->fusion = *fusion;
    s->fused[g->fused[l->dtype]++] = layer;
    f->count++;
    f->elements += l->elements;
    if (f->elements < FUSION) {
        return GW_OK;
    }
    *fusion = UINT32_MAX;
    return close_fusion(s, f, why);
}

/* Behind a layer that is the last small one of its dtype. */
static gw_status close_last(gw_step *s, gw_dtype dtype, gathering *g, gw_why *why)
{
    const uint32_t fusion = g->fusion[dtype];
    g->fusion[dtype] = UINT32_MAX;
    return fusion != UINT32_MAX ? close_fusion(s, &s->fusions[fusion], why) : GW_OK;
}

static void add_pieces(gw_step *s, uint32_t layer)
{
    const gw_layer *l = &s->layers[layer];
    for (uint32_t p = 0; p < l->n_pieces; p++) {
        const gw_range whole = gw_exchange_program(l->pieces[p])->whole;
        s->tasks[s->n_tasks++] = (gw_task){.exchange = l->pieces[p],
                                           .layer = layer,
                                           .fusion = UINT32_MAX,
                                           .convoy = UINT32_MAX,
                                           .first = whole.first,
                                           .elements = whole.count};
    }
}

/* Every layer's own exchanges, and room for values that are not its gradient's. */
static gw_status prepare_layers(gw_step *s, uint64_t *pieces, gw_why *why)
{
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < s->n_layers && status == GW_OK; i++) {
        gw_layer *l = &s->layers[i];
        l->fusion = UINT32_MAX;
        l->sent = fuses(s, l) ? l->dtype : gw_step_sends(l, &l->route);
        if (!fuses(s, l) && (l->changed || l->pieces == NULL)) {
            status = prepare_layer(s, l, why);
        }
        *pieces += l->n_pieces + 1;
        if (status == GW_OK && l->dtype != l->sent && l->widened == NULL) {
            void *widened = NULL;
            status = gw_device_allocate(s, (size_t)l->elements * sizeof(float), 0, &widened, why);
            l->widened = widened;
        }
    }
    return status;
}

static gw_status make_tasks(gw_step *s, gw_why *why)
{
    uint64_t pieces = 0;
    uint32_t last[GW_BF16 + 1] = {0}; /* by gw_dtype: the last small layer */
    gathering fusing = gather_nothing(s);
    gw_status status = prepare_layers(s, &pieces, why);
    s->tasks = calloc((size_t)pieces + 1, sizeof *s->tasks);
    s->fused = calloc((GW_BF16 + 1) * (size_t)s->n_layers + 1, sizeof *s->fused);
    s->fusions = calloc((size_t)s->n_layers + 1, sizeof *s->fusions);
    s->convoyed = calloc((size_t)s->n_layers + 1, sizeof *s->convoyed);
    s->convoys = calloc((size_t)s->n_layers + 1, sizeof *s->convoys);
    if (status == GW_OK && (s->tasks == NULL || s->fused == NULL || s->fusions == NULL ||
                            s->convoyed == NULL || s->convoys == NULL)) {
        status = GW_FAIL(why, GW_ERR_MEMORY, "no memory for %u layers", s->n_layers);
    }
    for (uint32_t place = 0; place < s->n_layers; place++) {
        const gw_layer *l = &s->layers[in_order(s, place)];
        last[l->dtype] = fuses(s, l) ? place : last[l->dtype];
    }
    for (uint32_t place = 0; place < s->n_layers && status == GW_OK; place++) {
        const uint32_t i = in_order(s, place);
        const gw_layer *l = &s->layers[i];
        int joined = 0;
        if (fuses(s, l)) {
            status = add_fused(s, i, &fusing, why);
            if (status == GW_OK && place == last[l->dtype]) {
                status = close_last(s, l->dtype, &fusing, why);
            }
            continue;
        }
        status = gw_convoy_add(s, i, &joined, why);
        if (status == GW_OK && !joined) {
            add_pieces(s, i);
        }
    }
    status = status == GW_OK ? gw_convoy_close(s, why) : status;
    gw_device_make_waves(s);
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
    gw_device_free(s, w->data, pinned);
    *w = (gw_workspace){NULL, need};
    return gw_device_allocate(s, need, pinned, &w->data, why);
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

/* For rel_error: one coding of the largest layer. */
static gw_status make_trial(gw_step *s, gw_why *why)
{
    uint64_t largest = 0;
    for (uint32_t i = 0; i < s->n_layers && s->config.measure_error; i++) {
        const gw_layer *l = &s->layers[i];
        size_t payload = 0, workspace = 0;
        if (l->params.codec == NULL || l->pieces == NULL) {
            continue;
        }
        (void)gw_payload_bound(&l->params, (size_t)l->elements, &payload);
        (void)gw_codec_workspace(&l->params, GW_F32, (size_t)l->elements, 0,
                                 gw_pool_threads(s->pool), &workspace);
        largest = l->elements > largest ? l->elements : largest;
        s->trial.payload_bytes =
            payload > s->trial.payload_bytes ? payload : s->trial.payload_bytes;
        s->trial.workspace.size =
            workspace > s->trial.workspace.size ? workspace : s->trial.workspace.size;
    }
    if (!s->config.measure_error) {
        return GW_OK;
    }
    s->trial.values = malloc((size_t)largest * sizeof(float) + 1);
    s->trial.input = malloc((gw_step_on_device(s) ? (size_t)largest * sizeof(float) : 0) + 1);
    s->trial.payload = malloc(s->trial.payload_bytes + 1);
    s->trial.workspace.data = malloc(s->trial.workspace.size + 1);
    return s->trial.values != NULL && s->trial.input != NULL && s->trial.payload != NULL &&
                   s->trial.workspace.data != NULL
               ? GW_OK
               : GW_FAIL(why, GW_ERR_MEMORY, "no memory to measure errors");
}

gw_status gw_step_prepare(gw_step *s, gw_why *why)
{
    drop_tasks(s);
    gw_status status = gw_device_prepare(s, why);
    if (status == GW_OK) {
        status = make_tasks(s, why);
    }
    if (status == GW_OK) {
        status = make_workspaces(s, why);
    }
    return status == GW_OK ? make_trial(s, why) : status;
}
