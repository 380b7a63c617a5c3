/* The thread beside training: what each level would lose of the copies, then which level each layer gets. It never
 * talks to other ranks. */
#include "control/auto.h"

#include "base/numeric.h"
#include "base/priority.h"

#include <gradwire/errors.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- copies ---- */

/* In post: the layer still belongs to the caller, its residuals are those of the last step. */
gw_status gw_step_adapt_copy(void *adapt, uint32_t layer, const gw_tensor *gradient, gw_why *why)
{
    gw_step_adapt *a = adapt;
    const gw_step *s = a->step;
    const uint32_t place = layer < a->known ? a->place_of[layer] : UINT32_MAX;
    if (a->over != NULL) {
        return gw_step_auto_seen(a->over, layer, place, gradient, why);
    }
    const uint64_t offset = s->number % a->config.every;
    if (place == UINT32_MAX || a->layers[place].share != offset || (offset != 0 && !a->live)) {
        return GW_OK;
    }
    return gw_step_adapt_keep(a, place, gradient, why);
}

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

gw_status gw_step_adapt_keep(gw_step_adapt *a, uint32_t place, const gw_tensor *gradient,
                             gw_why *why)
{
    gw_step *s = a->step;
    const gw_layer *l = &s->layers[a->layers[place].layer];
    float *copy = a->layers[place].copy;
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
        add_residuals(s, f->pieces, f->n_pieces, gw_fusion_place(s, f, a->layers[place].layer),
                      l->elements, copy);
    } else {
        add_residuals(s, l->pieces, l->n_pieces, 0, l->elements, copy);
    }
    gw_fp_leave(caller);
    return GW_OK;
}

/* ---- tables ---- */

/* The norm of what a level without a table loses, of coding once. */
static gw_status measure_coded(const gw_step_adapt *a, const gw_adapted *l, uint32_t level,
                               double *error, gw_why *why)
{
    const gw_params *params = &l->levels[level];
    const gw_stream stream = {.seed = a->step->config.seed,
                              .step = a->start,
                              .tensor = l->layer,
                              .rank = a->step->config.comm->rank};
    const gw_exec exec = {.isa = a->step->config.isa, .workspace = a->trial.workspace};
    const gw_tensor in = {l->copy, (size_t)a->step->layers[l->layer].elements, GW_F32};
    gw_tensor out = {a->trial.values, in.count, GW_F32};
    size_t written = 0;
    gw_status status =
        gw_encode(params, &exec, &stream, &in, a->trial.payload, a->trial.bytes, &written, NULL);
    if (status == GW_OK) {
        status = gw_decode(params, &exec, a->trial.payload, written, GW_SET, &out, why);
    }
    double squared = 0;
    for (size_t i = 0; i < in.count && status == GW_OK; i++) {
        const double lost = (double)l->copy[i] - (double)a->trial.values[i];
        squared += lost * lost;
    }
    *error = sqrt(squared);
    return status;
}

static gw_status measure_layer(gw_step_adapt *a, const gw_adapted *l, gw_why *why)
{
    double *to = a->own + l->at;
    double squared = 0;
    const gw_exec exec = {.isa = a->step->config.isa, .workspace = a->workspace};
    const gw_tensor in = {l->copy, (size_t)a->step->layers[l->layer].elements, GW_F32};
    gw_status status = gw_errors_norm(&exec, &in, NULL, &squared, why);
    if (status == GW_OK) {
        status = gw_adapt_measure(l->levels, l->n - l->coded, a->config.metric, &exec, &in, NULL,
                                  a->step->config.seed, to + 1, why);
    }
    for (uint32_t i = l->n - l->coded; i < l->n && status == GW_OK; i++) {
        status = measure_coded(a, l, i, &to[1 + i], why);
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

static void measure_share(gw_step_adapt *a, uint64_t share)
{
    gw_why why = {""};
    const double begin = gw_step_now();
    for (uint32_t i = 0; i < a->n; i++) {
        const gw_status status =
            a->layers[i].share == share ? measure_layer(a, &a->layers[i], &why) : GW_OK;
        if (status != GW_OK) {
            a->own[GW_TABLE_STATUS] = (double)status;
        }
    }
    a->own[GW_TABLE_SECONDS] += gw_step_now() - begin;
}

/* ---- the choice ---- */

static double alpha_at(const gw_step_adapt *a, uint64_t step)
{
    double alpha = a->config.alpha;
    for (size_t i = 0; i < a->config.n_schedule && a->schedule[i].step <= step; i++) {
        alpha = a->schedule[i].alpha;
    }
    return alpha;
}

/* The problem of the layers that could be measured; the others keep their level. which[i] is problem layer i. */
static size_t pose(gw_step_adapt *a, gw_adapt_layer *layers, uint32_t *which)
{
    gw_step_decision *d = &a->next;
    size_t n = 0;
    for (uint32_t i = 0; i < a->n; i++) {
        const gw_adapted *l = &a->layers[i];
        const double *table = a->mean + l->at;
        a->chosen[i] = l->level;
        if (!isfinite(table[0]) || table[0] == 0) {
            d->not_finite += table[0] != 0;
            d->without_gradient += table[0] == 0;
            continue;
        }
        const int critical =
            a->config.milder != NULL && gw_adapt_is_critical(a->norms[i], table[0], a->config.eta);
        layers[n] = (gw_adapt_layer){.errors = table + 1,
                                     .bytes = l->bytes,
                                     .n = l->n,
                                     .uniform = critical ? l->milder : l->uniform};
        which[n++] = i;
    }
    return n;
}

/* Levels of the problem's layers, by what was chosen and what is in force. */
static void decide(gw_step_adapt *a, const gw_adapt_layer *layers, const uint32_t *which, size_t n,
                   const gw_adapt_choice *choice)
{
    gw_step_decision *d = &a->next;
    double error = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t level = a->layers[which[i]].level;
        error += layers[i].errors[level];
        bytes += layers[i].bytes[level];
        d->changed += choice->levels[i] != level;
    }
    const int forced =
        choice->outcome == GW_ADAPT_INFEASIBLE || choice->outcome == GW_ADAPT_NO_BUDGET;
    const int small = error <= choice->budget &&
                      (double)choice->bytes > (1 - a->config.least_gain) * (double)bytes;
    d->budget = choice->budget;
    d->lower_bound = choice->lower_bound;
    d->outcome = forced            ? GW_STEP_ADAPT_DEFAULT
                 : d->changed == 0 ? GW_STEP_ADAPT_SAME
                 : small           ? GW_STEP_ADAPT_SMALL_GAIN
                                   : GW_STEP_ADAPT_SWITCHED;
    d->changed = d->outcome == GW_STEP_ADAPT_SMALL_GAIN ? 0 : d->changed;
    d->error = d->changed != 0 ? choice->error : error;
    for (size_t i = 0; i < n && d->changed != 0; i++) {
        a->chosen[which[i]] = choice->levels[i];
    }
}

static gw_status solve(gw_step_adapt *a, gw_adapt_layer *layers, uint32_t *which, uint32_t *levels,
                       gw_why *why)
{
    const gw_adapt_problem problem = {
        .layers = layers, .n_layers = pose(a, layers, which), .alpha = a->next.alpha};
    gw_adapt_choice choice = {.levels = levels};
    size_t bytes = 0;
    if (problem.n_layers == 0) {
        a->next.outcome = GW_STEP_ADAPT_NOTHING;
        return GW_OK;
    }
    gw_status status = gw_adapt_workspace(&problem, &bytes);
    void *workspace = status == GW_OK ? malloc(bytes + 1) : NULL;
    if (workspace == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory to choose levels");
    }
    status = gw_adapt_choose(&problem, (gw_workspace){workspace, bytes}, &choice, why);
    if (status == GW_OK) {
        decide(a, layers, which, problem.n_layers, &choice);
    }
    free(workspace);
    return status;
}

static void sum_up(gw_step_adapt *a)
{
    gw_step_decision *d = &a->next;
    for (uint32_t i = 0; i < a->n; i++) {
        const gw_adapted *l = &a->layers[i];
        const double norm = a->mean[l->at];
        d->bytes += l->bytes[a->chosen[i]];
        d->bytes_before += l->bytes[l->level];
        d->uniform_bytes += l->bytes[l->uniform];
        if (d->lower_bound != 0 && (!isfinite(norm) || norm == 0)) {
            d->lower_bound += l->bytes[l->level];
        }
    }
}

static void words(gw_step_adapt *a, const gw_why *why)
{
    gw_step_decision *d = &a->next;
    char kept[96] = "";
    if (d->not_finite != 0) {
        (void)snprintf(kept, sizeof kept, "; %u layers keep their level: NaN or infinity",
                       d->not_finite);
    } else if (d->without_gradient != 0) {
        (void)snprintf(kept, sizeof kept, "; %u layers keep their level: no gradient",
                       d->without_gradient);
    }
    char what[128];
    switch (d->outcome) {
    case GW_STEP_ADAPT_SWITCHED:
        (void)snprintf(what, sizeof what, "%u of %u layers have another level", d->changed, a->n);
        break;
    case GW_STEP_ADAPT_SAME:
        (void)snprintf(what, sizeof what, "the levels are the best already");
        break;
    case GW_STEP_ADAPT_SMALL_GAIN:
        (void)snprintf(what, sizeof what, "nothing that saves %g %% of the bytes",
                       100 * a->config.least_gain);
        break;
    case GW_STEP_ADAPT_DEFAULT:
        (void)snprintf(what, sizeof what, "nothing keeps to the budget: the default");
        break;
    case GW_STEP_ADAPT_NOTHING:
        (void)snprintf(what, sizeof what, "no layer could be measured");
        break;
    default:
        (void)snprintf(what, sizeof what, "%.120s", why->text);
    }
    (void)snprintf(d->text, sizeof d->text, "%s%s", what, kept);
}

/* A rank that could not measure said so in its table: everything stays, on all of them. */
static gw_status said_failure(const gw_step_adapt *a, gw_why *why)
{
    return a->mean[GW_TABLE_STATUS] == 0
               ? GW_OK
               : GW_FAIL(why, GW_ERR_STATE, "a rank could not measure its layers: all stays");
}

static void choose(gw_step_adapt *a)
{
    const double begin = gw_step_now();
    gw_why why = {""};
    gw_adapt_layer *layers = calloc(a->n + 1, sizeof *layers);
    uint32_t *lists = calloc(2 * (size_t)a->n + 2, sizeof *lists);
    a->next.alpha = alpha_at(a, a->next.step);
    gw_status status = said_failure(a, &why);
    if (status == GW_OK && (layers == NULL || lists == NULL)) {
        status = GW_FAIL(&why, GW_ERR_MEMORY, "no memory to choose levels");
    }
    if (status == GW_OK) {
        status = solve(a, layers, lists, lists + a->n + 1, &why);
    }
    a->failed = status;
    if (status != GW_OK) {
        a->next.outcome = GW_STEP_ADAPT_FAILED;
        for (uint32_t i = 0; i < a->n; i++) {
            a->chosen[i] = a->layers[i].level;
        }
    }
    free(lists);
    free(layers);
    sum_up(a);
    words(a, &why);
    a->next.solve_seconds = gw_step_now() - begin;
}

/* ---- the thread ---- */

static int has_work(const gw_step_adapt *a)
{
    return a->measured < a->handed || (a->solve && !a->solved);
}

void *gw_step_adapt_thread(void *adapt)
{
    gw_step_adapt *a = adapt;
    (void)gw_fp_enter(); /* the thread's own for good */
    gw_turn_late(); /* if it comes too late, the step that needs the tables waits, and says so */
    (void)pthread_mutex_lock(&a->lock);
    while (!a->stop) {
        if (!has_work(a)) {
            (void)pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        const uint64_t share = a->measured;
        const int choice = share == a->handed;
        (void)pthread_mutex_unlock(&a->lock);
        if (a->hold != NULL) {
            a->hold(a->hold_context, a, choice);
        }
        if (choice && a->over != NULL) {
            gw_step_auto_choose(a->over);
        } else if (choice) {
            choose(a);
        } else {
            measure_share(a, share);
        }
        (void)pthread_mutex_lock(&a->lock);
        a->measured += !choice;
        a->solved |= choice;
        (void)pthread_cond_broadcast(&a->changed);
    }
    (void)pthread_mutex_unlock(&a->lock);
    return NULL;
}

int gw_step_adapt_idle(gw_step_adapt *a)
{
    (void)pthread_mutex_lock(&a->lock);
    const int late = has_work(a);
    a->awaited = late;
    (void)pthread_cond_broadcast(&a->changed);
    while (has_work(a)) {
        (void)pthread_cond_wait(&a->changed, &a->lock);
    }
    a->awaited = 0;
    (void)pthread_mutex_unlock(&a->lock);
    return late;
}

void gw_step_adapt_hand(gw_step_adapt *a, uint64_t shares)
{
    (void)pthread_mutex_lock(&a->lock);
    a->handed = shares;
    (void)pthread_cond_broadcast(&a->changed);
    (void)pthread_mutex_unlock(&a->lock);
}

void gw_step_adapt_ask(gw_step_adapt *a)
{
    (void)pthread_mutex_lock(&a->lock);
    a->solve = 1;
    (void)pthread_cond_broadcast(&a->changed);
    (void)pthread_mutex_unlock(&a->lock);
}
