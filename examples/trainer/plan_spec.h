/* What a spec of the trainer says: one codec for all that is worth compressing, or one to begin with and levels that are
 * chosen during training.
 *
 *     natural:bits=8                                    every layer so
 *     adapt/dither:bits=4                               dither, each layer its own bits, at no more error than bits=4
 *     adapt:period=50,alpha=2/topk:density=0.01/dither  chosen every 50 steps, twice the error, dither's levels too
 *     adapt:metric=relative/topk:density=0.01           every layer's error counts against its own size
 */
#ifndef TRAINER_PLAN_SPEC_H
#define TRAINER_PLAN_SPEC_H

#include <gradwire/gradwire.h>

enum { PLAN_SPEC_TEXT = 192, PLAN_MOST_FAMILIES = 8 };

typedef struct plan_spec {
    int adapts;
    char uniform[PLAN_SPEC_TEXT]; /* the one, or the default */
    /* if it adapts: */
    gw_params families[PLAN_MOST_FAMILIES]; /* the default's first */
    size_t n_families;
    uint64_t period;
    double alpha, gain;
    gw_adapt_metric metric;
} plan_spec;

/* Does not look at the codec of a spec that does not adapt. */
gw_status plan_spec_parse(const char *text, plan_spec *out, gw_why *why);

#endif
