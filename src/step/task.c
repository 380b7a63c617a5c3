/* Tasks: a layer's gradient goes in, its exchange goes on, the mean comes out; of a piece, of small layers that are one, of layers whose
 * messages go together. */
#include "step/step.h"

#include "base/arena.h"
#include "base/divide.h"

#include <stdio.h>
#include <string.h>

/* ---- gradients in and out ---- */

/* What its exchange works on. */
static void *values_of(const gw_layer *l)
{
    return l->dtype == l->sent ? l->gradient.data : l->widened;
}

void *gw_task_behind(void *values, gw_dtype dtype, uint64_t elements)
{
    return (uint8_t *)values + elements * gw_dtype_size(dtype);
}

static gw_status hand_over(gw_step *s, const gw_step_lane *lane, const gw_layer *l, void *values,
                           gw_why *why)
{
    if (!gw_step_on_device(s) && l->sent != GW_F32) {
        return gw_feedback_hand_over_half(s->store, l->store_tensor, l->sent, values, 0,
                                          l->elements, why);
    }
    return gw_step_on_device(s)
               ? gw_device_hand_over(s, lane, l, values, why)
               : gw_feedback_hand_over(s->store, l->store_tensor, values, 0, l->elements, why);
}

gw_status gw_task_open_layer(gw_step *s, const gw_step_lane *lane, uint32_t layer, void *values,
                             gw_why *why)
{
    gw_layer *l = &s->layers[layer];
    l->begun = 1;
    l->bad = 0;
    l->hash = 0;
    const double posted = l->measured.posted;
    l->measured = (gw_layer_stats){.step = s->number,
                                   .posted = posted,
                                   .begun = gw_step_now() - s->first_post,
                                   .fused = l->fusion != UINT32_MAX};
    return hand_over(s, lane, l, values, why);
}

gw_status gw_task_gather(gw_step *s, const gw_step_lane *lane, const uint32_t *layers, uint32_t n,
                         void *values, gw_why *why)
{
    if (gw_step_on_device(s)) {
        return gw_device_gather(s, lane, layers, n, values, why);
    }
    for (uint32_t i = 0; i < n; i++) {
        const gw_layer *l = &s->layers[layers[i]];
        if (l->dtype != l->sent) {
            s->convert->widen(l->dtype, l->gradient.data, values, (size_t)l->elements);
        } else if (values != l->gradient.data) {
            memcpy(values, l->gradient.data, (size_t)l->elements * gw_dtype_size(l->dtype));
        }
        values = gw_task_behind(values, l->sent, l->elements);
    }
    return GW_OK;
}

void gw_task_add_stats(gw_layer_stats *to, const gw_exchange_stats *from)
{
    to->encode_seconds += from->encode_seconds;
    to->decode_seconds += from->decode_seconds;
    to->payload_bytes += from->payload_bytes;
    to->non_finite += from->report.non_finite;
    to->coded_on |= from->coded_on;
    to->copy_seconds += from->copy_seconds;
    for (int i = 0; i < GW_LINKS; i++) {
        to->bytes_sent[i] += from->bytes_sent[i];
    }
}

gw_status gw_task_scatter(gw_step *s, const gw_step_lane *lane, const uint32_t *layers, uint32_t n,
                          void *values, gw_why *why)
{
    if (gw_step_on_device(s)) {
        return gw_device_scatter(s, lane, layers, n, values, why);
    }
    for (uint32_t i = 0; i < n; i++) {
        gw_layer *l = &s->layers[layers[i]];
        if (values != l->gradient.data) {
            const uint32_t largest = gw_step_write_mean(s, layers[i], values);
            l->bad |= largest >= gw_overflow_bits(l->dtype);
        }
        values = gw_task_behind(values, l->sent, l->elements);
    }
    return GW_OK;
}

void gw_task_close_layer(gw_step *s, uint32_t layer)
{
    gw_layer *l = &s->layers[layer];
    for (uint32_t i = 0; i < l->n_pieces; i++) {
        gw_task_add_stats(&l->measured, gw_exchange_stats_of(l->pieces[i]));
    }
    memcpy(l->measured.dense_bytes_sent, l->ring, sizeof l->ring);
    const double now = gw_step_now();
    l->measured.arrived = now - s->first_post;
    (void)pthread_mutex_lock(&s->lock);
    l->stats = l->measured;
    s->arrived++;
    s->last_arrival = now;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
}

gw_status gw_step_settle(gw_step *s, gw_why *why)
{
    int none = 0;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        none |= s->layers[i].bad && s->config.all_or_nothing;
    }
    gw_status status = gw_fusions_settle(s, none, why);
    for (uint32_t i = 0; i < s->n_layers && status == GW_OK; i++) {
        const gw_layer *l = &s->layers[i];
        const int bad = l->bad || none;
        for (uint32_t p = 0; p < l->n_pieces && status == GW_OK; p++) {
            status = bad ? gw_exchange_rollback(l->pieces[p], why)
                         : gw_exchange_commit(l->pieces[p], why);
        }
        if (status == GW_OK) {
            status = bad ? gw_feedback_hand_over_rollback(s->store, l->store_tensor, why)
                         : gw_feedback_hand_over_commit(s->store, l->store_tensor, why);
        }
    }
    return status;
}

/* ---- tasks ---- */

int gw_task_ready(gw_step *s, const gw_task *t)
{
    const uint32_t *layers = &t->layer;
    uint32_t n = 1;
    if (t->fusion != UINT32_MAX) {
        layers = s->fused + s->fusions[t->fusion].first;
        n = s->fusions[t->fusion].count;
    } else if (t->convoy != UINT32_MAX) {
        layers = s->convoyed + s->convoys[t->convoy].first;
        n = s->convoys[t->convoy].count;
    }
    (void)pthread_mutex_lock(&s->lock);
    int all = !s->held || s->posted == s->n_layers;
    for (uint32_t i = 0; i < n && all; i++) {
        all = s->layers[layers[i]].posted;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return all;
}

/* A layer's gradient as it is sent, with what vanished encode points held. */
static gw_status take_in(gw_step *s, const gw_step_lane *lane, uint32_t layer, gw_why *why)
{
    void *values = values_of(&s->layers[layer]);
    const gw_status status = gw_task_gather(s, lane, &layer, 1, values, why);
    return status == GW_OK ? gw_task_open_layer(s, lane, layer, values, why) : status;
}

static gw_stream stream_of(const gw_step *s, uint64_t tensor)
{
    return (gw_stream){.seed = s->config.seed, .step = s->number, .tensor = tensor};
}

static gw_status begin_piece(gw_step *s, const gw_step_lane *lane, const gw_task *t, gw_why *why)
{
    gw_layer *l = &s->layers[t->layer];
    gw_status status = GW_OK;
    if (!l->begun) {
        status = take_in(s, lane, t->layer, why);
    } else if (gw_step_on_device(s)) { /* another lane has gathered it */
        status = gw_cuda_follow(s->config.place, lane->groups.stream, l->event, why);
    }
    const gw_stream stream = stream_of(s, t->layer);
    return status == GW_OK ? gw_exchange_begin(t->exchange, &lane->groups,
                                               gw_task_behind(values_of(l), l->sent, t->first),
                                               &stream, lane->workspace, why)
                           : status;
}

static gw_status begin_convoy(gw_step *s, const gw_step_lane *lane, gw_convoy *c, gw_why *why)
{
    gw_arena arena = gw_arena_over(lane->workspace);
    gw_lane groups = lane->groups;
    gw_status status = GW_OK;
    gw_together_begin(c->messages);
    c->ended = 0;
    for (uint32_t i = 0; i < c->count && status == GW_OK; i++) {
        const uint32_t layer = s->convoyed[c->first + i];
        const gw_layer *l = &s->layers[layer];
        c->at = i;
        const gw_stream stream = stream_of(s, layer);
        const size_t bytes = gw_exchange_workspace(l->pieces[0]);
        const gw_workspace workspace = {gw_arena_take(&arena, bytes, 1), bytes};
        groups.flat = gw_together_comm(c->messages, i);
        status = take_in(s, lane, layer, why);
        if (status == GW_OK) {
            status =
                gw_exchange_begin(l->pieces[0], &groups, values_of(l), &stream, workspace, why);
        }
    }
    return status;
}

gw_status gw_task_begin(gw_step *s, gw_step_lane *lane, gw_why *why)
{
    const gw_task *t = &s->tasks[lane->task];
    const gw_status status = t->fusion != UINT32_MAX ? gw_fusion_begin(s, lane, t, why)
                             : t->convoy != UINT32_MAX
                                 ? begin_convoy(s, lane, &s->convoys[t->convoy], why)
                                 : begin_piece(s, lane, t, why);
    lane->begun = status == GW_OK;
    lane->since = gw_step_now();
    return status;
}

static gw_status end_piece(gw_step *s, const gw_step_lane *lane, uint32_t layer,
                           const gw_exchange *exchange, gw_why *why)
{
    gw_layer *l = &s->layers[layer];
    gw_status status = GW_OK;
    l->bad |= !gw_exchange_stats_of(exchange)->finite;
    l->hash += gw_exchange_stats_of(exchange)->hash;
    if (++l->pieces_done == l->n_pieces) {
        status = gw_task_scatter(s, lane, &layer, 1, values_of(l), why);
        if (status == GW_OK) {
            gw_task_close_layer(s, layer);
        }
    }
    return status;
}

/* Members in turn, up to one that moved, as lanes. */
static gw_status progress_convoy(gw_step *s, const gw_step_lane *lane, gw_convoy *c, int *done,
                                 int *moved, gw_why *why)
{
    gw_status status = GW_OK;
    *moved = 0;
    for (uint32_t i = 0; i < c->count && status == GW_OK && !*moved; i++) {
        const uint32_t layer = s->convoyed[c->first + i];
        const gw_layer *l = &s->layers[layer];
        int ended = 0;
        if (l->pieces_done != 0) {
            continue;
        }
        c->at = i;
        status = gw_exchange_progress(l->pieces[0], &ended, moved, why);
        if (status == GW_OK && ended) {
            *moved = 1;
            c->ended++;
            status = gw_together_leave(c->messages, i, why);
            status = status == GW_OK ? end_piece(s, lane, layer, l->pieces[0], why) : status;
        }
    }
    *done = c->ended == c->count;
    return status;
}

/* Seals of the convoy's messages are counted as its first layer's. */
static gw_status count_seals(gw_step *s, const gw_convoy *c)
{
    const uint32_t k = s->config.ranks_per_node, own = s->config.comm->rank;
    gw_layer *first = &s->layers[s->convoyed[c->first]];
    (void)pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < s->config.comm->ranks; i++) {
        const int link = gw_same_node(s->nodes, k, i, own) ? GW_LINK_INTRA : GW_LINK_INTER;
        first->stats.bytes_sent[link] +=
            (uint64_t)GW_TOGETHER_SEAL * gw_together_sent(c->messages, i);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return GW_OK;
}

gw_status gw_task_progress(gw_step *s, const gw_step_lane *lane, int *done, int *moved, gw_why *why)
{
    const gw_task *t = &s->tasks[lane->task];
    return t->convoy != UINT32_MAX
               ? progress_convoy(s, lane, &s->convoys[t->convoy], done, moved, why)
               : gw_exchange_progress(t->exchange, done, moved, why);
}

gw_status gw_task_end(gw_step *s, const gw_step_lane *lane, const gw_task *t, gw_why *why)
{
    return t->fusion != UINT32_MAX   ? gw_fusion_end(s, lane, t, why)
           : t->convoy != UINT32_MAX ? count_seals(s, &s->convoys[t->convoy])
                                     : end_piece(s, lane, t->layer, t->exchange, why);
}

void gw_task_say(const gw_step *s, const gw_task *t, gw_task_words *words)
{
    const gw_convoy *c = t->convoy != UINT32_MAX ? &s->convoys[t->convoy] : NULL;
    const gw_fusion *f = t->fusion != UINT32_MAX ? &s->fusions[t->fusion] : NULL;
    const uint32_t layer = c != NULL   ? s->convoyed[c->first + c->at]
                           : f != NULL ? s->fused[f->first]
                                       : t->layer;
    char where[128], more[32] = "";
    gw_exchange_where(c != NULL ? s->layers[layer].pieces[0] : t->exchange, where, sizeof where);
    if (f != NULL && f->bucket != 0) {
        (void)snprintf(more, sizeof more, " and %u more", f->count - 1);
    }
    (void)snprintf(words->text, sizeof words->text, "'%.48s'%s (%.50s)",
                   f != NULL && f->bucket == 0 ? "small layers" : s->layers[layer].name, more,
                   where);
}

void gw_task_waits_for(const gw_step *s, const gw_task *t, char *text, size_t size)
{
    const gw_convoy *c = t->convoy != UINT32_MAX ? &s->convoys[t->convoy] : NULL;
    if (c == NULL) {
        gw_exchange_waits_for(t->exchange, text, size);
        return;
    }
    text[0] = '\0';
    for (uint32_t i = 0; i < c->count && text[0] == '\0'; i++) {
        gw_exchange_waits_for(s->layers[s->convoyed[c->first + i]].pieces[0], text, size);
    }
}
