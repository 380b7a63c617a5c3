/* When gradients are ready, seen by the step itself: seconds from the end of one wait to each post of the next step, while
 * exchanges are held back so that they are of computing alone. And the ranks' noise, of a sample of the gradients. */
#include "control/auto.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STRIDE = 16 }; /* one block in so many is looked at */

double gw_auto_now(const gw_step_auto *u)
{
    return u->clock != NULL ? u->clock(u->test_context) : gw_clock();
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double gw_auto_median(double *numbers, uint32_t n)
{
    if (n == 0) {
        return (double)NAN;
    }
    qsort(numbers, n, sizeof *numbers, by_size);
    return n % 2 != 0 ? numbers[n / 2] : (numbers[n / 2 - 1] + numbers[n / 2]) / 2;
}

/* ---- in post ---- */

/* A scrambled number of a block: the same on all ranks. */
static uint64_t scramble(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

/* Adds the layer's blocks, with random signs, into 64 bins: squared norms of such a sketch, and of differences of
 * sketches, are those of what it is of, on the average. The squared norm of the layer. */
static double sample(gw_step_auto *u, uint32_t layer, const gw_tensor *gradient, gw_auto_sketch *to)
{
    const gw_step *s = u->control.step;
    const uint64_t blocks = gradient->count / GW_AUTO_BINS;
    const size_t size = gw_dtype_size(gradient->dtype);
    double bins[GW_AUTO_BINS] = {0}, squares = 0;
    uint64_t n = 0;
    for (uint64_t b = scramble(s->number + 1) % STRIDE % blocks; b < blocks; b += STRIDE, n++) {
        float wide[GW_AUTO_BINS];
        const uint8_t *at = (const uint8_t *)gradient->data + b * GW_AUTO_BINS * size;
        const uint64_t signs = scramble(((uint64_t)layer + 1) << 40 ^ b);
        const float *x = (const float *)(const void *)at;
        if (gradient->dtype != GW_F32) {
            s->convert->widen(gradient->dtype, at, wide, GW_AUTO_BINS);
            x = wide;
        }
        for (int i = 0; i < GW_AUTO_BINS; i++) {
            const double value = (double)x[i];
            bins[i] += (signs >> i & 1) != 0 ? value : -value;
            squares += value * value;
        }
    }
    const double scale = (double)blocks / (double)n;
    (void)pthread_mutex_lock(&u->control.lock);
    to->squares += scale * squares;
    for (int i = 0; i < GW_AUTO_BINS; i++) {
        to->bins[i] += sqrt(scale) * bins[i];
    }
    (void)pthread_mutex_unlock(&u->control.lock);
    return scale * squares;
}

gw_status gw_auto_posted(gw_control *c, uint32_t layer, uint32_t place, const gw_tensor *gradient,
                         gw_why *why)
{
    gw_step_auto *u = gw_auto_of(c);
    const uint64_t number = c->step->number;
    if (u->timing && layer < c->known) {
        u->posted[(size_t)u->n_timed * c->known + layer] = gw_auto_now(u) - u->ended;
    }
    if (place == UINT32_MAX) {
        return GW_OK;
    }
    if (number - u->window_from == place % GW_AUTO_WINDOW) {
        (void)sample(u, layer, gradient, &u->watching);
    }
    if (!c->live || u->control.quick || number - c->start != c->layers[place].share) {
        return GW_OK;
    }
    c->own[u->gradients_at + place] = sqrt(sample(u, layer, gradient, &u->sketch));
    return gw_control_copy(c, place, gradient, why);
}

/* ---- between steps ---- */

void gw_auto_noise(const gw_step_auto *u, const double *sketches, size_t stride, double *noise,
                   double *squares)
{
    const uint32_t ranks = u->control.step->config.comm->ranks;
    double mean[GW_AUTO_SKETCH] = {0}, apart = 0;
    for (uint32_t r = 0; r < ranks; r++) {
        for (size_t i = 0; i < GW_AUTO_SKETCH; i++) {
            mean[i] += sketches[r * stride + i] / ranks;
        }
    }
    for (uint32_t r = 0; r < ranks; r++) {
        for (size_t i = 1; i < GW_AUTO_SKETCH; i++) {
            const double d = sketches[r * stride + i] - mean[i];
            apart += d * d;
        }
    }
    *noise = ranks > 1 ? apart / (ranks - 1) : (double)NAN;
    *squares = mean[0];
}

/* Medians of what was timed, and the sketch. */
void gw_auto_complete(gw_control *c)
{
    gw_step_auto *u = gw_auto_of(c);
    const uint32_t known = c->known;
    for (uint32_t l = 0; l < known && u->n_timed != 0; l++) {
        for (uint32_t i = 0; i < u->n_timed; i++) {
            u->sorted[i] = u->posted[(size_t)i * known + l];
        }
        u->control.own[u->posted_at + l] = gw_auto_median(u->sorted, u->n_timed);
    }
    memcpy(u->control.own + u->posted_at + known, &u->sketch, sizeof u->sketch);
}

/* Layer, or fusion, of the step as one tensor. */
static void add_tensor(gw_step_auto *u, const char *name, uint64_t elements, double ready,
                       uint32_t place)
{
    size_t at = u->job.n++;
    for (; at > 0 && u->tensors[at - 1].ready > ready; at--) { /* in order of readiness */
        u->tensors[at] = u->tensors[at - 1];
        u->place_of[at] = u->place_of[at - 1];
    }
    u->tensors[at] = (gw_job_tensor){.name = name, .elements = elements, .ready = ready};
    u->place_of[at] = place;
}

static void add_fusion(gw_step_auto *u, const gw_fusion *f)
{
    const gw_step *s = u->control.step;
    double ready = 0;
    for (uint32_t i = 0; i < f->count; i++) {
        const uint32_t layer = s->fused[f->first + i];
        const double one = layer < u->control.known ? u->ready[layer] : 0;
        ready = one > ready ? one : ready;
    }
    if (f->elements != 0) {
        add_tensor(u, "small layers", f->elements, ready, UINT32_MAX);
    }
}

/* Of all layers; fp32 where they differ: the planner knows one. */
static gw_dtype dtype_of(const gw_step *s, uint32_t layers)
{
    gw_dtype dtype = layers != 0 ? s->layers[0].dtype : GW_F32;
    for (uint32_t l = 1; l < layers; l++) {
        dtype = s->layers[l].dtype == dtype ? dtype : GW_F32;
    }
    return dtype;
}

void gw_auto_job_make(gw_step_auto *u)
{
    const gw_step *s = u->control.step;
    const gw_control *c = &u->control;
    double first = (double)INFINITY, last = 0;
    u->job = (gw_job){.name = "this step", .tensors = u->tensors, .dtype = dtype_of(s, c->known)};
    for (uint32_t l = 0; l < c->known; l++) {
        u->ready[l] = 0;
        for (uint32_t r = 0; r < s->config.comm->ranks; r++) {
            const double seconds = c->all[r * c->table + u->posted_at + l];
            u->ready[l] = seconds > u->ready[l] ? seconds : u->ready[l];
        }
        first = u->ready[l] < first ? u->ready[l] : first;
        last = u->ready[l] > last ? u->ready[l] : last;
    }
    /* computing takes no longer than all of a step did before: else others had the cores while it was timed */
    u->whole = u->watch.measured_seconds;
    const double scale = last > u->whole ? u->whole / last : 1;
    first = isfinite(first) ? scale * first : 0;
    last *= scale;
    for (uint32_t l = 0; l < c->known; l++) {
        u->ready[l] = scale * u->ready[l] - first;
        u->ready[l] = u->ready[l] > 0 ? u->ready[l] : 0;
    }
    for (uint32_t l = 0; l < c->known; l++) {
        const int alone = s->layers[l].fusion == UINT32_MAX || s->layers[l].bucket != 0;
        if (alone && s->layers[l].elements != 0) {
            add_tensor(u, s->layers[l].name, s->layers[l].elements, u->ready[l], c->place_of[l]);
        }
    }
    for (uint32_t i = 0; i < s->n_fusions; i++) {
        if (s->fusions[i].bucket == 0) { /* buckets are the plan's own, to be chosen again */
            add_fusion(u, &s->fusions[i]);
        }
    }
    u->job.forward = first;
    u->job.backward = last - first;
    for (size_t i = 0; i < u->job.n; i++) { /* rounding */
        u->job.backward = fmax(u->job.backward, u->tensors[i].ready);
    }
}
