/* Tasks: a layer's gradient goes in, its exchange goes on, the mean comes out; of a piece, of small layers that are one, of layers whose
 * messages go together. */
#include "step/step.h"

#include <string.h>

/* ---- gradients in and out ---- */

/* What its exchange works on. */
void *gw_task_values(const gw_layer *l)
{
    return l->dtype == l->sent ? l->gradient.data : l->widened;
}

void *gw_task_behind(void *values, gw_dtype dtype, uint64_t elements)
{
    return (uint8_t *)values + elements * gw_dtype_size(dtype);
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
                                   .begun = gw_clock() - s->first_post,
                                   .fused = l->fusion != UINT32_MAX};
    return s->gradients->hand_over(s, lane, l, values, why);
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

void gw_task_close_layer(gw_step *s, uint32_t layer)
{
    gw_layer *l = &s->layers[layer];
    for (uint32_t i = 0; i < l->n_pieces; i++) {
        gw_task_add_stats(&l->measured, gw_exchange_stats_of(l->pieces[i]));
    }
    memcpy(l->measured.dense_bytes_sent, l->ring, sizeof l->ring);
    const double now = gw_clock();
    l->measured.arrived = now - s->first_post;
    (void)pthread_mutex_lock(&s->lock);
    l->stats = l->measured;
    s->arrived++;
    s->last_arrival = now;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
}

gw_status gw_step_conclude(gw_step *s, gw_why *why)
{
    int none = 0;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        none |= s->layers[i].bad && s->config.all_or_nothing;
    }
    gw_status status = s->n_fusions != 0 ? gw_fusions_conclude(s, none, why) : GW_OK;
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
gw_status gw_task_take_in(gw_step *s, const gw_step_lane *lane, uint32_t layer, gw_why *why)
{
    void *values = gw_task_values(&s->layers[layer]);
    const gw_status status = s->gradients->gather(s, lane, &layer, 1, values, why);
    return status == GW_OK ? gw_task_open_layer(s, lane, layer, values, why) : status;
}

gw_stream gw_task_stream(const gw_step *s, uint64_t tensor)
{
    return (gw_stream){.seed = s->config.seed, .step = s->number, .tensor = tensor};
}

static gw_status begin_piece(gw_step *s, const gw_step_lane *lane, const gw_task *t, gw_why *why)
{
    gw_layer *l = &s->layers[t->layer];
    gw_status status = GW_OK;
    if (!l->begun) {
        status = gw_task_take_in(s, lane, t->layer, why);
    } else if (s->gradients->follow != NULL) { /* another lane has gathered it */
        status = s->gradients->follow(s, lane, l, why);
    }
    const gw_stream stream = gw_task_stream(s, t->layer);
    return status == GW_OK ? gw_exchange_begin(t->exchange, &lane->groups,
                                               gw_task_behind(gw_task_values(l), l->sent, t->first),
                                               &stream, lane->workspace, why)
                           : status;
}

gw_status gw_task_begin(gw_step *s, gw_step_lane *lane, gw_why *why)
{
    const gw_task *t = &s->tasks[lane->task];
    const gw_status status = t->fusion != UINT32_MAX ? gw_fusion_begin(s, lane, t, why)
                             : t->convoy != UINT32_MAX
                                 ? gw_convoy_begin(s, lane, &s->convoys[t->convoy], why)
                                 : begin_piece(s, lane, t, why);
    lane->begun = status == GW_OK;
    lane->since = gw_clock();
    return status;
}

gw_status gw_task_end_piece(gw_step *s, const gw_step_lane *lane, uint32_t layer,
                            const gw_exchange *exchange, gw_why *why)
{
    gw_layer *l = &s->layers[layer];
    gw_status status = GW_OK;
    l->bad |= !gw_exchange_stats_of(exchange)->finite;
    l->hash += gw_exchange_stats_of(exchange)->hash;
    if (++l->pieces_done == l->n_pieces) {
        status = s->gradients->scatter(s, lane, &layer, 1, gw_task_values(l), why);
        if (status == GW_OK) {
            gw_task_close_layer(s, layer);
        }
    }
    return status;
}

gw_status gw_task_progress(gw_step *s, const gw_step_lane *lane, int *done, int *moved, gw_why *why)
{
    const gw_task *t = &s->tasks[lane->task];
    return t->convoy != UINT32_MAX
               ? gw_convoy_progress(s, lane, &s->convoys[t->convoy], done, moved, why)
               : gw_exchange_progress(t->exchange, done, moved, why);
}

gw_status gw_task_end(gw_step *s, const gw_step_lane *lane, const gw_task *t, gw_why *why)
{
    return t->fusion != UINT32_MAX   ? gw_fusion_end(s, lane, t, why)
           : t->convoy != UINT32_MAX ? gw_convoy_end(s, &s->convoys[t->convoy])
                                     : gw_task_end_piece(s, lane, t->layer, t->exchange, why);
}
