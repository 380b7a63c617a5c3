/* Levels that are chosen again during training (docs/adapt.md): every `every` steps each rank copies its gradients, plus
 * residuals, a few layers a step; a thread of its own measures what each level would lose, beside training. The
 * tables are averaged over ranks, every rank makes the same choice of them, and it binds after a step that is fixed
 * beforehand, once all ranks were seen to have the same. Off unless begun. */
#ifndef GRADWIRE_STEP_ADAPT_H
#define GRADWIRE_STEP_ADAPT_H

#include "gradwire/adapt.h"
#include "gradwire/step.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GW_STEP_ADAPT_LEAST_PERIOD = 4 };

/* From this step on, this alpha. */
typedef struct gw_step_alpha {
    uint64_t step;
    double alpha;
} gw_step_alpha;

typedef struct gw_step_adapt_config {
    gw_adapt_rules rules; /* copied; so is what it points to, here and below */
    gw_adapt_metric metric;
    uint64_t every; /* steps of a period; a period begins where the step's number is a multiple */
    double alpha;   /* budget = alpha × error of the default */
    const gw_step_alpha *schedule; /* other alphas, steps rising; may be NULL */
    size_t n_schedule;
    /* Accordion: layers whose gradient's norm changed by eta or more since the last period count with this default,
     * one of their levels, when the budget is made. NULL: none do. */
    const gw_params *milder;
    double eta;
    double least_gain; /* part of the bytes below which nothing is changed: 0.02 */
    /* No layer sends less than this part of its default's bytes; 0: no such floor. What is held back comes later, and an
     * error does not say how much later: without a floor a layer of 0.1 % waits a thousand steps. */
    double floor;
    const uint32_t *pinned; /* layers that stay as they are planned */
    size_t n_pinned;
} gw_step_adapt_config;

/* Called by all ranks, with the same config, between steps after an agree. Layers that are planned with a codec and have
 * more than one level, not fused and not pinned, are planned with the default and from then on by the choice: along the
 * route they have where the level's codec is the default's, else sum, gather or sra, as suits the codec; the level that
 * loses nothing goes dense. Allocates, and so does gw_step_wait after a step that changes the plan. Memory: one
 * fp32 copy of the layers, and the tables. */
GW_API gw_status gw_step_adapt_begin(gw_step *step, const gw_step_adapt_config *config,
                                     gw_why *why);

/* The same in one line of text:
 *
 *     adapt/dither:bits=4                               each layer its own bits, at no more error than bits=4
 *     adapt:period=50,alpha=2/topk:density=0.01/dither  chosen every 50 steps, twice the error, dither's levels too
 *     adapt:metric=relative/topk:density=0.01           every layer's error counts against its own size
 *     adapt:floor=0.1/topk:density=0.01                 down to a tenth of the default's bytes, not three quarters
 *
 * Without a word: period=100, alpha=1, gain=0.02, floor=0.75, metric=norms. */
enum { GW_ADAPT_SPEC_TEXT = 192, GW_ADAPT_SPEC_FAMILIES = 8 };
typedef struct gw_adapt_spec {
    char uniform[GW_ADAPT_SPEC_TEXT];           /* the default, as it was written */
    gw_params families[GW_ADAPT_SPEC_FAMILIES]; /* the default's first */
    size_t n_families;
    uint64_t period;
    double alpha, gain, floor;
    gw_adapt_metric metric;
} gw_adapt_spec;
GW_API int gw_adapt_spec_is(const char *text); /* begins as such a line does */
GW_API gw_status gw_adapt_spec_parse(const char *text, gw_adapt_spec *out, gw_why *why);
GW_API gw_status gw_step_adapt_begin_spec(gw_step *step, const char *text, gw_why *why);

typedef enum gw_step_adapted {
    GW_STEP_ADAPT_SWITCHED = 0,   /* some layers have another level now */
    GW_STEP_ADAPT_SAME = 1,       /* what was chosen is what they had */
    GW_STEP_ADAPT_SMALL_GAIN = 2, /* it would save less than least_gain */
    GW_STEP_ADAPT_DEFAULT = 3,    /* no choice keeps to the budget: the default */
    GW_STEP_ADAPT_NOTHING = 4,    /* no layer could be measured: all stays as it was */
    GW_STEP_ADAPT_FAILED = 5      /* a rank could not measure, which text says: likewise */
} gw_step_adapted;

/* What came of a period, the same on every rank. Bytes are what rank 0 sends a step of the layers that are adapted;
 * errors are in the metric, of the layers that could be measured. */
typedef struct gw_step_decision {
    uint64_t step;     /* of the period's begin */
    uint64_t bound_at; /* the first step that goes by it */
    gw_step_adapted outcome;
    double alpha, budget, error;
    uint64_t bytes, uniform_bytes, bytes_before;
    uint64_t lower_bound;      /* no choice within the budget has fewer; 0: there is no budget */
    uint32_t changed;          /* layers */
    uint32_t not_finite;       /* layers that kept their level for a NaN or infinity on some rank */
    uint32_t without_gradient; /* layers that kept it because all ranks had zeros */
    uint32_t waited;           /* ranks whose step waited for their thread */
    double measure_seconds, solve_seconds; /* of the thread, on the slowest rank */
    char text[256];                        /* all of it in words */
} gw_step_decision;
/* How many decisions there were, and the last one; *decision is untouched if there was none. Between steps. */
GW_API gw_status gw_step_adapt_last(const gw_step *step, uint64_t *n, gw_step_decision *decision);

/* What a checkpoint needs to go on bit for bit, beside the residuals: levels, and what is measured of the
 * period under way. Waits for the thread. Loading comes after begin and gw_step_set_number, and before an agree and
 * the residuals' load; it plans the layers and talks to nobody. */
GW_API gw_status gw_step_adapt_save_bytes(const gw_step *step, size_t *bytes, gw_why *why);
GW_API gw_status gw_step_adapt_save(gw_step *step, void *buffer, size_t capacity, size_t *written,
                                    gw_why *why);
GW_API gw_status gw_step_adapt_load(gw_step *step, const void *bytes, size_t size, gw_why *why);

#ifdef __cplusplus
}
#endif
#endif
