/* Layers that go together as one tensor: buckets of a plan, and small layers. They are copied one behind the other, and one
 * exchange, cut into pieces as a layer's, has them all; residuals belong to each layer by its elements (gw_feedback_join). */
#include "step/step.h"

#include "base/divide.h"

#include <stdlib.h>
#include <string.h>

/* Elements of a fusion of small layers, at most: more would wait too long for its last layer. */
enum { FUSION = 256 * 1024 };

static gw_layer *member(const gw_step *s, const gw_fusion *f, uint32_t i)
{
    return &s->layers[s->fused[f->first + i]];
}

static int is_coded(const gw_fusion *f)
{
    return f->params.codec != NULL;
}

/* ---- what the caller says ---- */

gw_status gw_step_buckets(gw_step *s, const uint32_t *buckets, size_t n, gw_why *why)
{
    GW_REQUIRE(why, s != NULL, "no step");
    int any = 0;
    if (buckets == NULL || n != s->n_layers || s->posted != 0) {
        return GW_FAIL(why, s->posted != 0 ? GW_ERR_STATE : GW_ERR_ARG,
                       "buckets of %zu layers; there are %u%s", n, s->n_layers,
                       s->posted != 0 ? ", and a step is under way" : "");
    }
    for (size_t i = 0; i < n; i++) {
        any |= buckets[i] != 0;
        if (buckets[i] > n) {
            return GW_FAIL(why, GW_ERR_RANGE, "layer '%.100s': bucket %u; numbers go to %zu",
                           s->layers[i].name, buckets[i], n);
        }
    }
    if (any && s->config.sharded) {
        return GW_FAIL(why, GW_ERR_UNSUPPORTED,
                       "a sharded step has no buckets: each layer has pieces of its own");
    }
    if (s->hooks != NULL) {
        return GW_FAIL(why, GW_ERR_UNSUPPORTED,
                       "levels are chosen during training: buckets must be set before that begins");
    }
    for (size_t i = 0; i < n; i++) {
        s->layers[i].bucket = buckets[i];
    }
    s->agreed = 0;
    return GW_OK;
}

static gw_status check_pair(const gw_layer *a, const gw_layer *b, gw_why *why)
{
    const int codec = gw_params_equal(&a->asked, &b->asked);
    if (codec && gw_route_equal(&a->route, &b->route)) {
        return GW_OK;
    }
    return GW_FAIL(why, GW_ERR_ARG, "layers '%.60s' and '%.60s' of bucket %u have other %s",
                   a->name, b->name, a->bucket, codec ? "routes" : "codecs");
}

gw_status gw_fusions_check(const gw_step *s, gw_why *why)
{
    uint32_t *first = calloc((size_t)s->n_layers + 1, sizeof *first); /* of each bucket, from 1 */
    gw_status status =
        first != NULL ? GW_OK : GW_FAIL(why, GW_ERR_MEMORY, "no memory for %u layers", s->n_layers);
    for (uint32_t i = 0; i < s->n_layers && status == GW_OK; i++) {
        const uint32_t bucket = s->layers[i].bucket;
        if (bucket != 0 && first[bucket] != 0) {
            status = check_pair(&s->layers[first[bucket] - 1], &s->layers[i], why);
        }
        first[bucket] = first[bucket] != 0 ? first[bucket] : i + 1;
    }
    free(first);
    return status;
}

/* ---- before the first step ---- */

static void destroy(gw_step *s, gw_fusion *f)
{
    gw_step_drop_exchanges(&f->pieces, &f->n_pieces);
    s->gradients->release(s, f->values, 0);
    f->values = NULL;
    if (f->joined != UINT32_MAX) {
        (void)gw_feedback_part(s->store, f->joined, NULL);
        f->joined = UINT32_MAX;
    }
}

void gw_fusions_drop(gw_step *s)
{
    for (uint32_t i = 0; i < s->n_fusions; i++) {
        destroy(s, &s->fusions[i]);
    }
    free(s->fusions);
    free(s->fused);
    s->fusions = NULL;
    s->fused = NULL;
    s->n_fusions = 0;
}

static void add_member(gw_step *s, gw_fusion *f, uint32_t layer)
{
    s->fused[f->first + f->count++] = layer;
    f->elements += s->layers[layer].elements;
}

/* A bucket's layers in the order of the wire. Both lists have room for all numbers: how many layers have it, its fusion from 1. */
static uint32_t list_buckets(gw_step *s, uint32_t *size, uint32_t *fusion)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        size[s->layers[i].bucket]++;
    }
    for (uint32_t place = 0; place < s->n_layers; place++) {
        const uint32_t layer = gw_step_in_order(s, place);
        const gw_layer *l = &s->layers[layer];
        if (l->bucket == 0 || size[l->bucket] < 2) {
            continue;
        }
        if (fusion[l->bucket] == 0) {
            s->fusions[s->n_fusions] = (gw_fusion){.first = n,
                                                   .joined = UINT32_MAX,
                                                   .bucket = l->bucket,
                                                   .params = l->asked,
                                                   .route = l->route};
            fusion[l->bucket] = ++s->n_fusions;
            n += size[l->bucket];
        }
        add_member(s, &s->fusions[fusion[l->bucket] - 1], layer);
    }
    return n;
}

/* Small layers of one dtype. Returns how many layers are listed. */
static uint32_t list_small(gw_step *s, gw_dtype dtype, uint32_t n)
{
    gw_fusion *f = NULL;
    for (uint32_t place = 0; place < s->n_layers; place++) {
        const uint32_t layer = gw_step_in_order(s, place);
        const gw_layer *l = &s->layers[layer];
        if (l->bucket != 0 || l->elements >= s->config.fuse_below || l->dtype != dtype) {
            continue;
        }
        if (f == NULL) {
            f = &s->fusions[s->n_fusions++];
            *f = (gw_fusion){.first = n, .joined = UINT32_MAX};
            (void)gw_step_usual(s, NULL, &f->route, NULL);
        }
        add_member(s, f, layer);
        n++;
        f = f->elements >= FUSION ? NULL : f;
    }
    return n;
}

/* What is coded is fp32. Numbers are sent as they are if all members have one dtype. */
static gw_dtype dtype_of(const gw_step *s, const gw_fusion *f)
{
    const gw_dtype dtype = member(s, f, 0)->dtype;
    int one = !is_coded(f);
    for (uint32_t i = 0; i < f->count; i++) {
        one &= member(s, f, i)->dtype == dtype;
    }
    return one ? dtype : GW_F32;
}

/* Who goes with whom. */
static gw_status list_members(gw_step *s, gw_why *why)
{
    const size_t room = (size_t)s->n_layers + 1;
    uint32_t *numbers = calloc(2 * room, sizeof *numbers);
    s->fusions = calloc(room, sizeof *s->fusions);
    s->fused = calloc(room, sizeof *s->fused);
    s->n_fusions = 0;
    if (numbers == NULL || s->fusions == NULL || s->fused == NULL) {
        free(numbers);
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for %u layers", s->n_layers);
    }
    uint32_t n = list_buckets(s, numbers, numbers + room);
    static const gw_dtype dtypes[] = {GW_F32, GW_F16, GW_BF16};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        n = list_small(s, dtypes[i], n);
    }
    free(numbers);
    for (uint32_t i = 0; i < s->n_fusions; i++) {
        gw_fusion *f = &s->fusions[i];
        f->dtype = dtype_of(s, f);
        if (is_coded(f)) {
            (void)gw_params_fit_shape(&f->params, &f->elements, 1);
        }
    }
    return GW_OK;
}

/* What was prepared before for the very same layers goes on, residuals too. */
static void take_over(gw_step *s, gw_fusion *f, gw_fusion *old, uint32_t n_old,
                      const uint32_t *old_fused)
{
    const uint32_t was = member(s, f, 0)->fusion;
    gw_fusion *g = was < n_old ? &old[was] : NULL;
    if (g == NULL || g->pieces == NULL || g->count != f->count || g->elements != f->elements ||
        memcmp(old_fused + g->first, s->fused + f->first, f->count * sizeof *old_fused) != 0 ||
        !gw_params_equal(&g->params, &f->params) || !gw_route_equal(&g->route, &f->route)) {
        return;
    }
    f->joined = g->joined;
    f->values = g->values;
    f->pieces = g->pieces;
    f->n_pieces = g->n_pieces;
    g->joined = UINT32_MAX;
    g->values = NULL;
    g->pieces = NULL;
    g->n_pieces = 0;
}

static gw_status join(gw_step *s, gw_fusion *f, gw_why *why)
{
    uint32_t *tensors = calloc(f->count, sizeof *tensors);
    if (tensors == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for %u layers", f->count);
    }
    for (uint32_t i = 0; i < f->count; i++) {
        tensors[i] = member(s, f, i)->store_tensor;
    }
    const gw_status status = gw_feedback_join(s->store, tensors, f->count, &f->joined, why);
    free(tensors);
    return status;
}

static gw_status prepare(gw_step *s, gw_fusion *f, gw_why *why)
{
    gw_status status = GW_OK;
    if (f->pieces != NULL) {
        return GW_OK;
    }
    if (is_coded(f)) {
        status = join(s, f, why);
    }
    if (status == GW_OK) {
        void *values = NULL;
        status = s->gradients->allocate(s, (size_t)f->elements * gw_dtype_size(f->dtype) + 1, 0,
                                        &values, why);
        f->values = values;
    }
    if (status == GW_OK) {
        gw_layer all = {.name = member(s, f, 0)->name,
                        .elements = f->elements,
                        .dtype = f->dtype,
                        .sent = f->dtype,
                        .store_tensor = f->joined,
                        .params = f->params,
                        .route = f->route};
        status = gw_step_make_exchanges(s, &all, 1, why);
        f->pieces = all.pieces;
        f->n_pieces = all.n_pieces;
    }
    if (status != GW_OK) {
        gw_step_drop_exchanges(&f->pieces, &f->n_pieces);
    }
    return status;
}

gw_status gw_fusions_make(gw_step *s, gw_why *why)
{
    gw_fusion *const old = s->fusions;
    uint32_t *const old_fused = s->fused;
    const uint32_t n_old = s->n_fusions;
    gw_status status = list_members(s, why);
    for (uint32_t i = 0; i < s->n_fusions; i++) {
        take_over(s, &s->fusions[i], old, n_old, old_fused);
    }
    for (uint32_t i = 0; i < n_old; i++) {
        destroy(s, &old[i]);
    }
    free(old);
    free(old_fused);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        s->layers[i].fusion = UINT32_MAX;
    }
    for (uint32_t i = 0; i < s->n_fusions; i++) {
        for (uint32_t k = 0; k < s->fusions[i].count; k++) {
            gw_layer *l = member(s, &s->fusions[i], k);
            gw_step_drop_exchanges(&l->pieces, &l->n_pieces);
            l->changed = 1;
            l->fusion = i;
            l->sent = s->fusions[i].dtype;
        }
    }
    for (uint32_t i = 0; i < s->n_fusions && status == GW_OK; i++) {
        status = prepare(s, &s->fusions[i], why);
    }
    return status;
}

uint64_t gw_fusion_place(const gw_step *s, const gw_fusion *f, uint32_t layer)
{
    uint64_t at = 0;
    for (uint32_t i = 0; s->fused[f->first + i] != layer; i++) {
        at += member(s, f, i)->elements;
    }
    return at;
}

int gw_fusion_ends_with(const gw_step *s, uint32_t fusion, uint32_t layer)
{
    const gw_fusion *f = &s->fusions[fusion];
    return s->fused[f->first + f->count - 1] == layer;
}

/* ---- a task ---- */

static gw_status open_all(gw_step *s, const gw_step_lane *lane, gw_fusion *f, gw_why *why)
{
    const uint32_t *layers = s->fused + f->first;
    void *values = f->values;
    gw_status status = s->gradients->gather(s, lane, layers, f->count, f->values, why);
    for (uint32_t i = 0; i < f->count && status == GW_OK; i++) {
        status = gw_task_open_layer(s, lane, layers[i], values, why);
        values = gw_task_behind(values, f->dtype, s->layers[layers[i]].elements);
    }
    f->begun = 1;
    f->spoilt = 0;
    f->pieces_done = 0;
    return status;
}

gw_status gw_fusion_begin(gw_step *s, const gw_step_lane *lane, const gw_task *t, gw_why *why)
{
    gw_fusion *f = &s->fusions[t->fusion];
    gw_status status = GW_OK;
    if (!f->begun) {
        status = open_all(s, lane, f, why);
    } else if (s->gradients->follow != NULL) { /* another lane has gathered it */
        status = s->gradients->follow(s, lane, member(s, f, 0), why);
    }
    /* random numbers are those of the first layer's number, which has no other exchange */
    const gw_stream stream = {
        .seed = s->config.seed, .step = s->number, .tensor = s->fused[f->first]};
    return status == GW_OK ? gw_exchange_begin(t->exchange, &lane->groups,
                                               gw_task_behind(f->values, f->dtype, t->first),
                                               &stream, lane->workspace, why)
                           : status;
}

/* Something of this piece is not finite: of what is coded together all layers are bad, else those where it is. */
static void spoil(gw_step *s, gw_fusion *f, const gw_task *t)
{
    const size_t width = gw_dtype_size(f->dtype);
    const uint8_t *numbers = gw_step_on_device(s) ? gw_exchange_values_here(t->exchange)
                                                  : gw_task_behind(f->values, f->dtype, t->first);
    const uint64_t end = t->first + t->elements;
    uint64_t base = 0;
    f->spoilt |= is_coded(f);
    for (uint32_t i = 0; i < f->count && numbers != NULL; i++) { /* else scatter looks */
        gw_layer *l = member(s, f, i);
        const uint64_t from = base > t->first ? base : t->first;
        const uint64_t last = base + l->elements, to = last < end ? last : end;
        if (from < to) {
            l->bad |= gw_any_non_finite_of(f->dtype, numbers + (from - t->first) * width,
                                           (size_t)(to - from));
        }
        base = last;
    }
}

gw_status gw_fusion_end(gw_step *s, const gw_step_lane *lane, const gw_task *t, gw_why *why)
{
    gw_fusion *f = &s->fusions[t->fusion];
    const uint32_t *layers = s->fused + f->first;
    if (!gw_exchange_stats_of(t->exchange)->finite) {
        spoil(s, f, t);
    }
    if (++f->pieces_done < f->n_pieces) {
        return GW_OK;
    }
    const gw_status status = s->gradients->scatter(s, lane, layers, f->count, f->values, why);
    if (status != GW_OK) {
        return status;
    }
    for (uint32_t i = 0; i < f->count; i++) {
        f->spoilt |= is_coded(f) && member(s, f, i)->bad;
    }
    for (uint32_t i = 0; i < f->n_pieces;
         i++) { /* bytes and times of the whole stand at its first layer */
        gw_task_add_stats(&member(s, f, 0)->measured, gw_exchange_stats_of(f->pieces[i]));
    }
    for (uint32_t i = 0; i < f->count; i++) {
        member(s, f, i)->bad |= f->spoilt;
        gw_task_close_layer(s, layers[i]);
    }
    return GW_OK;
}

gw_status gw_fusions_conclude(gw_step *s, int none, gw_why *why)
{
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < s->n_fusions && status == GW_OK; i++) {
        gw_fusion *f = &s->fusions[i];
        for (uint32_t p = 0; p < f->n_pieces && status == GW_OK; p++) {
            status = f->spoilt || none ? gw_exchange_rollback(f->pieces[p], why)
                                       : gw_exchange_commit(f->pieces[p], why);
        }
        f->begun = 0;
    }
    return status;
}

void gw_fusions_roll_back(gw_step *s)
{
    for (uint32_t i = 0; i < s->n_fusions; i++) {
        for (uint32_t p = 0; p < s->fusions[i].n_pieces; p++) {
            (void)gw_exchange_rollback(s->fusions[i].pieces[p], NULL);
        }
    }
}
