/* The step under way: every lane goes on with its exchange, and begins the next when its gradient is there.
 * One thread does this, the step's own or the one that waits. */
#define _POSIX_C_SOURCE 200809L
#include "step/step.h"

#include "base/divide.h"
#include "base/turn.h"

#include <math.h>
#include <sched.h>
#include <string.h>
#include <time.h>

/* ---- gradients in and out ---- */

static float *values_of(const gw_layer *l)
{
    return l->dtype == GW_F32 ? l->gradient.data : l->widened;
}

/* Coding this gradient once, and how far it moved. */
static double rel_error(gw_step *s, uint32_t layer, const float *values)
{
    const gw_layer *l = &s->layers[layer];
    const gw_stream stream = {
        .seed = s->config.seed, .step = s->number, .tensor = layer, .rank = s->config.comm->rank};
    const gw_exec exec = {s->config.isa, s->pool, s->trial.workspace};
    const gw_tensor in = {(void *)(uintptr_t)values, (size_t)l->elements, GW_F32};
    gw_tensor out = {s->trial.values, in.count, GW_F32};
    size_t written = 0;
    double lost = 0, size = 0;
    if (gw_encode(&l->params, &exec, &stream, &in, s->trial.payload, s->trial.payload_bytes,
                  &written, NULL) != GW_OK ||
        gw_decode(&l->params, &exec, s->trial.payload, written, GW_SET, &out, NULL) != GW_OK) {
        return (double)NAN;
    }
    for (uint64_t i = 0; i < l->elements; i++) {
        const double x = (double)values[i], d = x - (double)s->trial.values[i];
        lost += d * d;
        size += x * x;
    }
    return lost == 0 ? 0 : lost / size;
}

/* The numbers that a rel_error is of; NULL: not to be had. */
static const float *for_trial(gw_step *s, const gw_step_lane *lane, const gw_layer *l,
                              float *values)
{
    const size_t bytes = (size_t)l->elements * sizeof *values;
    const int copied = gw_step_on_device(s) &&
                       gw_cuda_copy(s->config.place, lane->groups.stream, s->trial.input, values,
                                    bytes, NULL) == GW_OK &&
                       gw_cuda_wait(s->config.place, lane->groups.stream, NULL) == GW_OK;
    return copied ? s->trial.input : gw_step_on_device(s) ? NULL : values;
}

static gw_status hand_over(gw_step *s, const gw_step_lane *lane, const gw_layer *l, float *values,
                           gw_why *why)
{
    return gw_step_on_device(s)
               ? gw_device_hand_over(s, lane, l, values, why)
               : gw_feedback_hand_over(s->store, l->store_tensor, values, 0, l->elements, why);
}

/* Before the first piece of a layer, whose fp32 numbers are at `values`: with what vanished encode points held. */
static gw_status open_layer(gw_step *s, const gw_step_lane *lane, uint32_t layer, float *values,
                            gw_why *why)
{
    gw_layer *l = &s->layers[layer];
    l->begun = 1;
    l->bad = 0;
    const double posted = l->measured.posted;
    l->measured = (gw_layer_stats){.step = s->number,
                                   .posted = posted,
                                   .begun = gw_step_now() - s->first_post,
                                   .rel_error = (double)NAN,
                                   .fused = l->fusion != UINT32_MAX};
    const gw_status status = hand_over(s, lane, l, values, why);
    if (status == GW_OK && s->config.measure_error && l->params.codec != NULL &&
        l->fusion == UINT32_MAX) {
        const float *numbers = for_trial(s, lane, l, values);
        l->measured.rel_error = numbers != NULL ? rel_error(s, layer, numbers) : (double)NAN;
    }
    return status;
}

/* Gradients of layers that begin, as fp32, one behind the other. */
static gw_status gather(gw_step *s, const gw_step_lane *lane, const uint32_t *layers, uint32_t n,
                        float *values, gw_why *why)
{
    if (gw_step_on_device(s)) {
        return gw_device_gather(s, lane, layers, n, values, why);
    }
    for (uint32_t i = 0; i < n; i++) {
        const gw_layer *l = &s->layers[layers[i]];
        if (l->dtype != GW_F32) {
            s->convert->widen(l->dtype, l->gradient.data, values, (size_t)l->elements);
        } else if (values != l->gradient.data) {
            memcpy(values, l->gradient.data, (size_t)l->elements * sizeof *values);
        }
        values += l->elements;
    }
    return GW_OK;
}

static void add_stats(gw_layer_stats *to, const gw_exchange_stats *from)
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

/* Back into the callers' gradients; a layer with a number too large for its type is bad. */
static gw_status scatter(gw_step *s, const gw_step_lane *lane, const uint32_t *layers, uint32_t n,
                         float *values, gw_why *why)
{
    if (gw_step_on_device(s)) {
        return gw_device_scatter(s, lane, layers, n, values, why);
    }
    for (uint32_t i = 0; i < n; i++) {
        gw_layer *l = &s->layers[layers[i]];
        if (l->dtype != GW_F32) {
            const uint32_t largest =
                s->convert->narrow(l->dtype, values, l->gradient.data, (size_t)l->elements);
            l->bad |=
                l->elements != 0 && largest >= (l->dtype == GW_F16 ? 0x477FF000u : 0x7F7F8000u);
        } else if (values != l->gradient.data) {
            memcpy(l->gradient.data, values, (size_t)l->elements * sizeof *values);
        }
        values += l->elements;
    }
    return GW_OK;
}

/* After the last piece. */
static void close_layer(gw_step *s, uint32_t layer)
{
    gw_layer *l = &s->layers[layer];
    const uint32_t ranks = s->config.comm->ranks;
    for (uint32_t i = 0; i < l->n_pieces; i++) {
        add_stats(&l->measured, gw_exchange_stats_of(l->pieces[i]));
    }
    l->measured.dense_bytes_sent = 8 * l->elements * (ranks - 1) / ranks;
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
    gw_status status = GW_OK;
    int none = 0;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        none |= s->layers[i].bad && s->config.all_or_nothing;
    }
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

static int ready(gw_step *s, const gw_task *t)
{
    int all = 1;
    (void)pthread_mutex_lock(&s->lock);
    if (s->held && s->posted < s->n_layers) {
        all = 0;
    } else if (t->fusion == UINT32_MAX) {
        all = s->layers[t->layer].posted;
    } else {
        const gw_fusion *f = &s->fusions[t->fusion];
        for (uint32_t i = 0; i < f->count; i++) {
            all &= s->layers[s->fused[f->first + i]].posted;
        }
    }
    (void)pthread_mutex_unlock(&s->lock);
    return all;
}

static gw_status begin_task(gw_step *s, gw_step_lane *lane, gw_why *why)
{
    const gw_task *t = &s->tasks[lane->task];
    gw_status status = GW_OK;
    float *values = NULL;
    if (t->fusion != UINT32_MAX) {
        const gw_fusion *f = &s->fusions[t->fusion];
        uint64_t at = 0;
        values = f->values;
        status = gather(s, lane, s->fused + f->first, f->count, values, why);
        for (uint32_t i = 0; i < f->count && status == GW_OK; i++) {
            const uint32_t layer = s->fused[f->first + i];
            status = open_layer(s, lane, layer, values + at, why);
            at += s->layers[layer].elements;
        }
    } else {
        gw_layer *l = &s->layers[t->layer];
        values = values_of(l);
        if (!l->begun) {
            status = gather(s, lane, &t->layer, 1, values, why);
            status = status == GW_OK ? open_layer(s, lane, t->layer, values, why) : status;
        } else if (gw_step_on_device(s)) { /* another lane has gathered it */
            status = gw_cuda_follow(s->config.place, lane->groups.stream, l->event, why);
        }
        values += t->first;
    }
    if (status != GW_OK) {
        return status;
    }
    /* a fusion draws no random numbers: its tensor number only tells its messages from others */
    const gw_stream stream = {.seed = s->config.seed,
                              .step = s->number,
                              .tensor = t->fusion != UINT32_MAX ? ~(uint64_t)t->fusion : t->layer};
    lane->begun = 1;
    lane->since = gw_step_now();
    return gw_exchange_begin(t->exchange, &lane->groups, values, &stream, lane->workspace, why);
}

static gw_status end_fusion(gw_step *s, const gw_step_lane *lane, const gw_fusion *f, gw_why *why)
{
    const float *numbers = gw_step_on_device(s) ? gw_exchange_values_here(f->exchange) : f->values;
    gw_status status = gw_exchange_commit(f->exchange, why); /* it has no residuals */
    for (uint32_t i = 0; i < f->count && status == GW_OK; i++) {
        gw_layer *l = &s->layers[s->fused[f->first + i]];
        if (!gw_step_on_device(s) || numbers != NULL) { /* else scatter looks */
            l->bad = gw_any_non_finite(numbers, (size_t)l->elements);
            numbers += l->elements;
        }
        if (i == 0) { /* bytes and times of the whole stand at its first layer */
            add_stats(&l->measured, gw_exchange_stats_of(f->exchange));
        }
    }
    if (status == GW_OK) {
        status = scatter(s, lane, s->fused + f->first, f->count, f->values, why);
    }
    for (uint32_t i = 0; i < f->count && status == GW_OK; i++) {
        close_layer(s, s->fused[f->first + i]);
    }
    return status;
}

static gw_status end_task(gw_step *s, const gw_step_lane *lane, const gw_task *t, gw_why *why)
{
    if (t->fusion != UINT32_MAX) {
        return end_fusion(s, lane, &s->fusions[t->fusion], why);
    }
    gw_layer *l = &s->layers[t->layer];
    gw_status status = GW_OK;
    l->bad |= !gw_exchange_stats_of(t->exchange)->finite;
    if (++l->pieces_done == l->n_pieces) {
        status = scatter(s, lane, &t->layer, 1, values_of(l), why);
        if (status == GW_OK) {
            close_layer(s, t->layer);
        }
    }
    return status;
}

static const char *name_of(const gw_step *s, const gw_task *t)
{
    return t->fusion != UINT32_MAX ? "small layers" : s->layers[t->layer].name;
}

enum { FEW = 64 * 1024 }; /* elements */

/* A rank that is ahead of others keeps its large exchanges back until a small one of this step has ended, and so all have come to
 * it: its bytes would take the link from those of the step before, and make who is late later. Not where a small one takes long by
 * itself, nor where a step begins with a large one. docs/decisions/006 */
static int too_early(const gw_step *s, const gw_task *t)
{
    static const double LONG = 2e-3; /* seconds */
    int waits = 0;
    if (t->elements < FEW || s->quickest == 0 || s->quickest > LONG ||
        gw_step_on_device(s)) { /* where posts have an order of their own */
        return 0;
    }
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        const gw_step_lane *lane = &s->lanes[i];
        if (lane->task >= s->n_lanes) { /* it has ended one */
            return 0;
        }
        waits |= lane->begun && s->tasks[lane->task].elements < FEW;
    }
    return waits;
}

/* Of those that need an answer of others, or who comes last would find everything there. */
static void time_task(gw_step *s, const gw_step_lane *lane, const gw_task *t)
{
    const gw_program *program = gw_exchange_program(t->exchange);
    const double seconds = gw_step_now() - lane->since;
    uint32_t phases = 0;
    for (uint32_t i = 0; i < program->n_moves; i++) {
        const gw_move *m = &program->move[i];
        const int coding = m->step.op == GW_OP_ENCODE || m->step.op == GW_OP_DECODE;
        phases += coding || m->group.size < 2 ? 0 : m->step.op == GW_OP_ALLREDUCE ? 2 : 1;
    }
    if (t->elements < FEW && phases >= 2 && (s->quickest == 0 || seconds < s->quickest)) {
        s->quickest = seconds;
    }
}

static gw_status run_lane(gw_step *s, gw_step_lane *lane, int *moved, gw_why *why)
{
    gw_task *t = &s->tasks[lane->task];
    gw_why reason = {""};
    int done = 0;
    gw_status status = GW_OK;
    if (!lane->begun) {
        if (!ready(s, t) || too_early(s, t)) {
            *moved = 0;
            return GW_OK;
        }
        status = begin_task(s, lane, &reason);
    }
    if (status == GW_OK) {
        status = gw_exchange_progress(t->exchange, &done, moved, &reason);
    }
    if (status == GW_OK && done) {
        *moved = 1;
        time_task(s, lane, t);
        lane->task += s->n_lanes;
        lane->begun = 0;
        status = end_task(s, lane, t, &reason);
    }
    if (status != GW_OK) {
        char where[128];
        gw_exchange_where(t->exchange, where, sizeof where);
        return gw_fail(why, status, "step %llu, '%.60s' (%.60s): %.100s",
                       (unsigned long long)s->number, name_of(s, t), where,
                       reason.text[0] != '\0' ? reason.text : gw_status_string(status));
    }
    return GW_OK;
}

/* Lanes in turn, the one with the oldest task first, up to one that moved: coding takes long, and bytes of the others
 * only go on while the engine is asked about them. *idle if nothing is under way. */
static gw_status run_lanes(gw_step *s, int *moved, int *idle, gw_why *why)
{
    uint32_t oldest = 0;
    for (uint32_t i = 1; i < s->n_lanes; i++) {
        if (s->lanes[i].task < s->lanes[oldest].task) {
            oldest = i;
        }
    }
    *moved = 0;
    *idle = 1;
    for (uint32_t i = 0; i < s->n_lanes && !*moved; i++) {
        gw_step_lane *lane = &s->lanes[(oldest + i) % s->n_lanes];
        if (lane->task >= s->n_tasks) {
            continue;
        }
        const gw_status status = run_lane(s, lane, moved, why);
        if (status != GW_OK) {
            return status;
        }
        *idle &= !lane->begun;
    }
    return GW_OK;
}

/* ---- failures ---- */

void gw_step_fail(gw_step *s, gw_status status, const gw_why *why)
{
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        gw_comm *const groups[] = {s->lanes[i].groups.flat, s->lanes[i].groups.intra,
                                   s->lanes[i].groups.inter};
        for (int g = 0; g < 3; g++) {
            if (groups[g] != NULL) {
                groups[g]->table->abort(groups[g], why->text);
            }
        }
    }
    if (s->side != NULL) {
        s->side->table->abort(s->side, why->text);
    }
    gw_device_abort(s, why->text);
    gw_device_settle(s);
    for (uint32_t i = 0; i < s->n_tasks; i++) {
        (void)gw_exchange_rollback(s->tasks[i].exchange, NULL);
    }
    for (uint32_t i = 0; i < s->n_layers; i++) {
        (void)gw_feedback_hand_over_rollback(s->store, s->layers[i].store_tensor, NULL);
    }
    (void)pthread_mutex_lock(&s->lock);
    s->status = status;
    s->why = *why;
    (void)pthread_cond_broadcast(&s->changed);
    (void)pthread_mutex_unlock(&s->lock);
}

static gw_status too_late(const gw_step *s, gw_why *why)
{
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        const gw_step_lane *lane = &s->lanes[i];
        if (lane->begun && lane->task < s->n_tasks) {
            char where[128];
            gw_exchange_where(s->tasks[lane->task].exchange, where, sizeof where);
            return GW_FAIL(
                why, GW_ERR_TIMEOUT,
                "step %llu, '%.60s' (%.60s): no answer for %g s; a rank is gone, stopped, or far "
                "behind",
                (unsigned long long)s->number, name_of(s, &s->tasks[lane->task]), where,
                s->config.timeout);
        }
    }
    return GW_FAIL(why, GW_ERR_TIMEOUT, "no answer for %g s", s->config.timeout);
}

/* ---- the two who run it ---- */

/* Naps grow with what was waited already: on a fast engine an answer is near, on a slow link looking often costs the
 * processor that backward and the link's own protocol need. */
enum { NAP_SHARE = 4, LEAST_NAP = 25, MOST_NAP = 100, IDLE_NAP = 2000, TOLD_NAP = 50000 /* µs */ };

static void wake(void *step)
{
    gw_step *s = step;
    (void)pthread_mutex_lock(&s->lock);
    gw_step_wake(s);
    (void)pthread_mutex_unlock(&s->lock);
}

void gw_step_wake(gw_step *s)
{
    s->woken = 1;
    (void)pthread_cond_signal(&s->due);
}

static int listen_to(gw_comm *comm, gw_step *s)
{
    const size_t with_notify = offsetof(gw_comm_table, notify) + sizeof comm->table->notify;
    if (comm->table->size < with_notify || comm->table->notify == NULL) {
        return 0;
    }
    comm->table->notify(comm, s != NULL ? wake : NULL, s);
    return 1;
}

void gw_step_listen(gw_step *s, int on)
{
    s->told = !gw_step_on_device(s); /* nobody says when a device is done */
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        const gw_lane *g = &s->lanes[i].groups;
        gw_comm *const groups[] = {g->flat, g->intra, g->inter};
        for (int j = 0; j < 3; j++) {
            s->told &= groups[j] == NULL || listen_to(groups[j], on ? s : NULL);
        }
    }
}

/* Sleeps until something is posted or has arrived, or a little while. */
static void rest(gw_step *s, double since, int idle)
{
    const double share = 1e6 * (gw_step_now() - since) / NAP_SHARE;
    const long nap = share < LEAST_NAP ? LEAST_NAP : share > MOST_NAP ? MOST_NAP : (long)share;
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 1000L * (s->told ? TOLD_NAP : idle ? IDLE_NAP : nap);
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_mutex_lock(&s->lock);
    if (!s->stop && !s->woken) {
        (void)pthread_cond_timedwait(&s->due, &s->lock, &until);
    }
    s->woken = 0;
    (void)pthread_mutex_unlock(&s->lock);
}

/* *since: of the last movement. */
static gw_status run_once(gw_step *s, double *since)
{
    gw_why why = {""};
    int moved = 0, idle = 0;
    const uint32_t caller = gw_fp_enter(); /* sums must not hang on how a rank rounds */
    gw_status status = run_lanes(s, &moved, &idle, &why);
    gw_fp_leave(caller);
    if (moved || idle) {
        *since = gw_step_now();
    }
    if (status == GW_OK && !moved && !idle && gw_step_now() - *since > s->config.timeout) {
        status = too_late(s, &why);
    }
    if (status != GW_OK) {
        gw_step_fail(s, status, &why);
        return status;
    }
    if (!moved) {
        rest(s, *since, idle);
    }
    return GW_OK;
}

void gw_step_run_all(gw_step *s)
{
    double since = gw_step_now();
    gw_cuda_place callers = s->config.place;
    if (gw_step_on_device(s)) {
        (void)gw_cuda_use(s->config.place, &callers.device, NULL);
    }
    while (s->status == GW_OK && s->arrived < s->n_layers && run_once(s, &since) == GW_OK) {
    }
    if (gw_step_on_device(s)) {
        (void)gw_cuda_use(callers, NULL, NULL);
    }
}

void *gw_step_thread(void *step)
{
    gw_step *s = step;
    double since = gw_step_now();
    gw_turn_soon();
    if (gw_step_on_device(s)) {
        (void)gw_cuda_use(s->config.place, NULL, NULL);
    }
    (void)pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        if (s->status != GW_OK || s->posted == 0 || s->arrived == s->n_layers) {
            (void)pthread_cond_wait(&s->due, &s->lock);
            since = gw_step_now();
            continue;
        }
        s->busy = 1;
        (void)pthread_mutex_unlock(&s->lock);
        (void)run_once(s, &since);
        (void)pthread_mutex_lock(&s->lock);
        s->busy = 0;
        if (s->status != GW_OK || s->arrived == s->n_layers) { /* what wait waits for */
            (void)pthread_cond_broadcast(&s->changed);
        }
    }
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}
