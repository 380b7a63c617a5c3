/* Tables of errors as the plan takes them: of a step, in force for a while. docs/auto.md, "Delayed errors". */
#include "control/auto.h"

#include <math.h>
#include <string.h>

/* Steps in which what feedback holds back may come: a gradient moves the weights for as many where momentum is 0.9. */
static const double LATE = GW_AUTO_WINDOW;

static double setting(const gw_params *p, const char *name, double otherwise)
{
    gw_params copy = *p;
    const double *value = gw_auto_setting(&copy, name);
    return value != NULL ? *value : otherwise;
}

/* The part that a step sends of what there is to send: of the numbers, or of the matrix's directions. */
static double density_of(const gw_params *p, uint64_t elements)
{
    const double rank = setting(p, "rank", 0), cols = setting(p, "cols", 0);
    if (rank != 0 && cols != 0) {
        return rank / fmax(fmin(cols, (double)elements / cols), rank);
    }
    return setting(p, "density", 1);
}

/* ‖r‖² once it no longer grows, over what coding the gradient alone leaves, a share e of it. If what waits were as easy to
 * code as what comes, e of both would stay: 1/(1 − e). But what a codec leaves is what is small: that waits until it has grown,
 * some 1/(2 density) steps, and adds up as noise does. */
static double filled(double density, double share)
{
    return fmax(1 / fmax(1 - share, 0.01), 0.5 / density);
}

/* Of the squared residual: what counts in a step. Over n steps what is sent is the sum of the gradients less one residual, where errors of codecs
 * without feedback add up n times. Noise that comes late is as good as noise that comes at once; what all ranks and steps agree
 * on is not. */
static double counted(double signal)
{
    return signal + (1 - signal) / LATE;
}

/* A layer as it goes now, and its tables. */
typedef struct layer {
    const gw_control_layer *of;
    uint64_t elements;
    const gw_params *in_force;
    double gradient; /* ‖g‖, without what waits */
    double counted;
} layer;

/* The error of a step that in the long run is as bad. `mean`: ‖G‖, then the errors of the levels, of gradient and residual. */
static double of_a_step(const layer *x, const double *mean, uint32_t k)
{
    const gw_params *p = &x->of->levels[k];
    const double error = mean[1 + k];
    if (!gw_auto_comes_late(p)) { /* its own would be of the gradient alone */
        return gw_auto_comes_late(x->in_force) ? error * fmin(x->gradient / mean[0], 1) : error;
    }
    const double density = density_of(p, x->elements);
    if (p->codec == x->in_force->codec) { /* as it is; of other levels more or less waits */
        return error * sqrt(x->counted * density_of(x->in_force, x->elements) / density);
    }
    const double share = error * error / (mean[0] * mean[0]);
    return error * sqrt(x->counted * filled(density, share));
}

void gw_auto_keep_tables(gw_step_auto *u)
{
    const gw_control *c = &u->control;
    double noise = 0, squares = 0;
    gw_auto_noise(u, c->all + u->posted_at + c->known, c->table, &noise, &squares);
    if (isfinite(noise) && isfinite(squares) && squares > 0) {
        u->noise_then = noise;
        u->squares_then = squares;
    }
    /* the noise is known to a tenth, from so small a sample */
    const double signal = 1 - 1.1 * u->noise_then / u->squares_then;
    for (uint32_t i = 0; i < c->n; i++) {
        const gw_control_layer *l = &c->layers[i];
        const double *mean = c->mean + l->at;
        const layer x = {.of = l,
                         .elements = u->control.step->layers[l->layer].elements,
                         .in_force = &u->ways[i].params,
                         .gradient = c->mean[u->gradients_at + i],
                         .counted = counted(signal > 0 ? signal : 0)};
        if (!isfinite(mean[0]) || mean[0] <= 0) {
            continue;
        }
        u->table[l->at] = mean[0];
        for (uint32_t k = 0; k < l->n; k++) {
            u->table[l->at + 1 + k] = of_a_step(&x, mean, k);
        }
    }
}
