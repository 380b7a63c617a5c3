#include "trainer/optimiser.h"

#include "trainer/fail.h"

#include <math.h>
#include <stdlib.h>

static const double SPIKE = 8;

gw_status optimiser_create(optimiser *o, const optimiser_config *config, size_t count, gw_why *why)
{
    *o = (optimiser){.config = *config, .count = count};
    if (!(config->rate > 0 && config->momentum >= 0 && config->momentum < 1 &&
          config->decay >= 0)) {
        return trainer_fail(why, GW_ERR_RANGE, "rate %g, momentum %g or decay %g out of range",
                            (double)config->rate, (double)config->momentum, (double)config->decay);
    }
    o->mean = calloc(count, sizeof *o->mean);
    o->square = calloc(config->kind == OPTIMISER_ADAM ? count : 1, sizeof *o->square);
    if (o->mean == NULL || o->square == NULL) {
        optimiser_destroy(o);
        return trainer_fail(why, GW_ERR_MEMORY, "no memory for the optimiser");
    }
    return GW_OK;
}

void optimiser_destroy(optimiser *o)
{
    free(o->mean);
    free(o->square);
    o->mean = o->square = NULL;
}

float optimiser_rate(const optimiser_config *config, uint64_t step, uint64_t steps)
{
    const double done = (double)step / (double)steps;
    double part = 1;
    if (config->schedule == SCHEDULE_COSINE || config->schedule == SCHEDULE_SPIKE) {
        part = 0.5 * (1 + cos(3.14159265358979323846 * done));
        part *= config->schedule == SCHEDULE_SPIKE && done >= 0.4 && done < 0.42 ? SPIKE : 1;
    } else if (config->schedule == SCHEDULE_STEP) {
        part = done < 0.5 ? 1 : done < 0.75 ? 0.1 : 0.01;
    }
    if (step < config->warmup) {
        part *= (double)(step + 1) / (double)config->warmup;
    }
    return (float)((double)config->rate * part);
}

static void sgd(optimiser *o, float rate, float *weights, const float *gradients)
{
    const float momentum = o->config.momentum, decay = o->config.decay;
    for (size_t i = 0; i < o->count; i++) {
        o->mean[i] = momentum * o->mean[i] + (gradients[i] + decay * weights[i]);
        weights[i] -= rate * o->mean[i];
    }
}

/* Kingma and Ba 2015. */
static void adam(optimiser *o, float rate, uint64_t step, float *weights, const float *gradients)
{
    const float b1 = 0.9F, b2 = 0.999F, tiny = 1e-8F;
    const double t = (double)step + 1;
    const float scale1 = (float)(1 / (1 - pow((double)b1, t)));
    const float scale2 = (float)(1 / (1 - pow((double)b2, t)));
    for (size_t i = 0; i < o->count; i++) {
        const float g = gradients[i] + o->config.decay * weights[i];
        o->mean[i] = b1 * o->mean[i] + (1 - b1) * g;
        o->square[i] = b2 * o->square[i] + (1 - b2) * g * g;
        weights[i] -= rate * scale1 * o->mean[i] / (sqrtf(scale2 * o->square[i]) + tiny);
    }
}

void optimiser_step(optimiser *o, uint64_t step, uint64_t steps, float *weights,
                    const float *gradients)
{
    const float rate = optimiser_rate(&o->config, step, steps);
    if (o->config.kind == OPTIMISER_ADAM) {
        adam(o, rate, step, weights, gradients);
    } else {
        sgd(o, rate, weights, gradients);
    }
}
