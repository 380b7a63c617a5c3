/* The front door of a step under way: gradients are posted, and waited for. */
#define _POSIX_C_SOURCE 200809L
#include "step/step.h"

#include <time.h>

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
    if (s->gradients->post != NULL && !l->posted) {
        status = s->gradients->post(s, l, stream, why);
    }
    if (status == GW_OK && s->hooks != NULL) {
        status = s->hooks->posted(s->above, layer, gradient, why);
    }
    if (status != GW_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&s->lock);
    if (l->posted) {
        status = GW_FAIL(why, GW_ERR_STATE, "layer '%.100s' is posted twice", l->name);
    } else {
        const double now = gw_clock();
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

/* Everything has arrived: the hashes of its means join those that ranks will compare. What is not finite counts for no rank: its bits
 * may depend on the machine. */
static void count_hashes(gw_step *s)
{
    s->verify.since = s->verify.steps++ == 0 ? s->number : s->verify.since;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        s->layers[i].hashes += s->layers[i].bad ? 0 : s->layers[i].hash;
    }
}

/* What to tell, and ready for the next. */
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
        status = gw_step_conclude(s, why);
    }
    if (status == GW_OK) {
        count_hashes(s);
        close_step(s, result);
    }
    (void)pthread_mutex_unlock(&s->lock);
    const int hashes = s->verify.room != NULL; /* prepared by agree */
    if (status == GW_OK && hashes &&
        (s->verify.soon || (s->number - 1) % s->config.verify_every == 0)) {
        status = gw_step_verify_compare(s, why);
    }
    return status == GW_OK && s->hooks != NULL ? s->hooks->waited(s->above, s->number - 1, why)
                                               : status;
}
