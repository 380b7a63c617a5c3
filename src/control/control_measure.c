/* The thread beside training: what each level would lose of the copies, then the choice. It never talks to other
 * ranks. */
#include "control/control.h"

#include "base/numeric.h"
#include "base/priority.h"

#include <gradwire/errors.h>

#include <math.h>

/* ---- copies ---- */

/* Of those of all pieces, what lies in [first, first + count). */
static void add_residuals(const gw_step *s, gw_exchange *const *pieces, uint32_t n, uint64_t first,
                          uint64_t count, float *to)
{
    for (uint32_t i = 0; i < n; i++) {
        gw_range range;
        const float *residual = gw_exchange_residual(pieces[i], &range);
        const uint64_t from = range.first > first ? range.first : first;
        const uint64_t end = range.first + range.count, last = first + count;
        const uint64_t until = end < last ? end : last;
        if (residual != NULL && from < until) {
            s->convert->add(GW_F32, residual + (from - range.first), to + (from - first),
                            (size_t)(until - from));
        }
    }
}

gw_status gw_control_copy(gw_control *c, uint32_t place, const gw_tensor *gradient, gw_why *why)
{
    gw_step *s = c->step;
    const gw_layer *l = &s->layers[c->layers[place].layer];
    float *copy = c->layers[place].copy;
    if (gw_step_on_device(s)) {
        const gw_status status = gw_device_read(s, l, gradient, copy, why);
        if (status != GW_OK) {
            return status;
        }
    } else if (l->dtype == GW_F32) {
        memcpy(copy, gradient->data, (size_t)l->elements * sizeof *copy);
    } else {
        s->convert->widen(l->dtype, gradient->data, copy, (size_t)l->elements);
    }
    const uint32_t caller = gw_fp_enter();
    if (l->fusion != UINT32_MAX) {
        const gw_fusion *f = &s->fusions[l->fusion];
        add_residuals(s, f->pieces, f->n_pieces, gw_fusion_place(s, f, c->layers[place].layer),
                      l->elements, copy);
    } else {
        add_residuals(s, l->pieces, l->n_pieces, 0, l->elements, copy);
    }
    gw_fp_leave(caller);
    return GW_OK;
}

/* ---- tables ---- */

/* The norm of what a level without a table loses, of coding once. */
static gw_status measure_coded(const gw_control *c, const gw_control_layer *l, uint32_t level,
                               double *error, gw_why *why)
{
    const gw_params *params = &l->levels[level];
    const gw_stream stream = {.seed = c->step->config.seed,
                              .step = c->start,
                              .tensor = l->layer,
                              .rank = c->step->config.comm->rank};
    const gw_exec exec = {.isa = c->step->config.isa, .workspace = c->trial.workspace};
    const gw_tensor in = {l->copy, (size_t)c->step->layers[l->layer].elements, GW_F32};
    gw_tensor out = {c->trial.values, in.count, GW_F32};
    size_t written = 0;
    gw_status status =
        gw_encode(params, &exec, &stream, &in, c->trial.payload, c->trial.bytes, &written, NULL);
    if (status == GW_OK) {
        status = gw_decode(params, &exec, c->trial.payload, written, GW_SET, &out, why);
    }
    double squared = 0;
    for (size_t i = 0; i < in.count && status == GW_OK; i++) {
        const double lost = (double)l->copy[i] - (double)c->trial.values[i];
        squared += lost * lost;
    }
    *error = sqrt(squared);
    return status;
}

static gw_status measure_layer(gw_control *c, const gw_control_layer *l, gw_why *why)
{
    double *to = c->own + l->at;
    double squared = 0;
    const gw_exec exec = {.isa = c->step->config.isa, .workspace = c->workspace};
    const gw_tensor in = {l->copy, (size_t)c->step->layers[l->layer].elements, GW_F32};
    gw_status status = gw_errors_norm(&exec, &in, NULL, &squared, why);
    if (status == GW_OK) {
        status = gw_adapt_measure(l->levels, l->n - l->coded, c->metric, &exec, &in, NULL,
                                  c->step->config.seed, to + 1, why);
    }
    for (uint32_t i = l->n - l->coded; i < l->n && status == GW_OK; i++) {
        status = measure_coded(c, l, i, &to[1 + i], why);
    }
    to[0] = sqrt(squared);
    if (status == GW_ERR_RANGE) { /* a NaN or infinity: so says its mean over ranks */
        for (uint32_t i = 0; i <= l->n; i++) {
            to[i] = (double)NAN;
        }
        return GW_OK;
    }
    return status;
}

static void measure_share(gw_control *c, uint64_t share)
{
    gw_why why = {""};
    const double begin = gw_clock();
    for (uint32_t i = 0; i < c->n; i++) {
        const gw_status status =
            c->layers[i].share == share ? measure_layer(c, &c->layers[i], &why) : GW_OK;
        if (status != GW_OK) {
            c->own[GW_TABLE_STATUS] = (double)status;
        }
    }
    c->own[GW_TABLE_SECONDS] += gw_clock() - begin;
}

static void choose(gw_control *c)
{
    const gw_policy *policy = c->policy;
    const double begin = gw_clock();
    gw_why why = {""};
    c->failed = c->mean[GW_TABLE_STATUS] == 0
                    ? policy->decide(c, &why)
                    : GW_FAIL(&why, GW_ERR_STATE, "a rank could not measure its layers");
    if (c->failed != GW_OK) {
        policy->keep(c);
    }
    policy->describe(c, &why);
    c->solve_seconds = gw_clock() - begin;
}

/* ---- the thread ---- */

static int has_work(const gw_control *c)
{
    return c->measured < c->handed || (c->solve && !c->solved);
}

static void *run(void *control)
{
    gw_control *c = control;
    (void)gw_fp_enter(); /* the thread's own for good */
    gw_turn_late(); /* if it comes too late, the step that needs the tables waits, and says so */
    (void)pthread_mutex_lock(&c->lock);
    while (!c->stop) {
        if (!has_work(c)) {
            (void)pthread_cond_wait(&c->changed, &c->lock);
            continue;
        }
        const uint64_t share = c->measured;
        const int choice = share == c->handed;
        (void)pthread_mutex_unlock(&c->lock);
        if (c->hold != NULL) {
            c->hold(c->hold_context, c, choice);
        }
        if (choice) {
            choose(c);
        } else {
            measure_share(c, share);
        }
        (void)pthread_mutex_lock(&c->lock);
        c->measured += !choice;
        c->solved |= choice;
        (void)pthread_cond_broadcast(&c->changed);
    }
    (void)pthread_mutex_unlock(&c->lock);
    return NULL;
}

int gw_control_idle(gw_control *c)
{
    (void)pthread_mutex_lock(&c->lock);
    const int late = has_work(c);
    c->awaited = late;
    (void)pthread_cond_broadcast(&c->changed);
    while (has_work(c)) {
        (void)pthread_cond_wait(&c->changed, &c->lock);
    }
    c->awaited = 0;
    (void)pthread_mutex_unlock(&c->lock);
    return late;
}

void gw_control_hand(gw_control *c, uint64_t shares, int solve)
{
    (void)pthread_mutex_lock(&c->lock);
    c->handed = shares;
    c->solve = solve;
    (void)pthread_cond_broadcast(&c->changed);
    (void)pthread_mutex_unlock(&c->lock);
}

gw_status gw_control_run(gw_control *c, gw_why *why)
{
    c->has_thread = pthread_create(&c->thread, NULL, run, c) == 0;
    return c->has_thread ? GW_OK : GW_FAIL(why, GW_ERR_SYSTEM, "cannot start a thread");
}
