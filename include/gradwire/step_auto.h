/* Error and time together, followed through training (docs/auto.md): a few steps are measured, the joint plan
 * (joint.h) binds, and from then on step time, link, compression error and loss are watched. When they leave what is
 * expected every rank makes the same new plan, in parallel with training, and it binds at a step that all agreed on.
 * Off unless begun. */
#ifndef GRADWIRE_STEP_AUTO_H
#define GRADWIRE_STEP_AUTO_H

#include "gradwire/joint.h"
#include "gradwire/step.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GW_AUTO_LEAST_PERIOD = 40, GW_AUTO_FAMILIES = 8, GW_AUTO_SPEC_TEXT = 192 };

/* 0 or NULL anywhere: as said. */
typedef struct gw_step_auto_config {
    /* dither, ndither: bits 2 … 8. topk: the given density, twice, five and ten times that. lowrank: the given rank,
     * twice and four times that. Others as they are given. 0: dither, natural:bits=8, cast:to=bf16, lowrank:rank=4, as far as
     * `cluster`, if there is one, has their costs. */
    const gw_params *families;
    size_t n_families;
    gw_params uniform;     /* what the budget is measured by; codec NULL: dither:bits=4 */
    double alpha;          /* budget at the start, times the default's error: 1 */
    double limit;          /* of the squared compression error over the gradients' noise: 0.5 */
    uint64_t period;       /* steps after which all is measured again: 200 */
    uint64_t min_elements; /* smaller layers stay as they are planned: 1024 */
    const gw_cluster *
        cluster; /* what coding costs, ranks and workers; NULL: measured by begin. Links are measured
                                  in any case. Copied */
} gw_step_auto_config;

/* Called by all ranks, with the same config, between steps after an agree; neither sharded nor on a device, nor beside
 * adapt. Takes a third of a second. All layers of min_elements and more that are not fused go by the default until the first plan
 * (dense if that wants feedback), and then by the plan. Allocates, and so does gw_step_wait after a step that plans. Between steps links may be
 * measured, for up to 0.2 s, where time says that they have changed. Memory: one fp32 copy of the layers, and the tables. */
GW_API gw_status gw_step_auto_begin(gw_step *step, const gw_step_auto_config *config, gw_why *why);

/* The same in one line of text:
 *
 *     auto                                                          all as above
 *     auto:alpha=2,limit=1,period=100/dither:bits=4/topk:density=0.01   these families only, the first the default */
typedef struct gw_auto_spec {
    gw_params families[GW_AUTO_FAMILIES];
    size_t n_families;
    uint64_t period;
    double alpha, limit;
} gw_auto_spec;
GW_API int gw_auto_spec_is(const char *text); /* begins as such a line does */
GW_API gw_status gw_auto_spec_parse(const char *text, gw_auto_spec *out, gw_why *why);
GW_API gw_status gw_step_auto_begin_spec(gw_step *step, const char *text, gw_why *why);

/* The loss of the step that was waited for last, this rank's or all ranks'. Without it nothing is said of a loss that
 * diverges. */
GW_API gw_status gw_step_auto_loss(gw_step *step, double loss);

/* Why a plan was made. */
typedef enum gw_auto_reason {
    GW_AUTO_START = 0,
    GW_AUTO_PERIODIC = 1,
    GW_AUTO_SLOWER = 2, /* windows of steps longer than expected: two, or one by half */
    GW_AUTO_FASTER = 3,
    GW_AUTO_ERROR = 4,      /* too much of it for the gradients' noise: alpha is halved */
    GW_AUTO_QUIET = 5,      /* far below: alpha grows by half */
    GW_AUTO_DIVERGING = 6,  /* the loss */
    GW_AUTO_NON_FINITE = 7, /* several steps of a window */
    GW_AUTO_RECOVERED = 8   /* from the two above */
} gw_auto_reason;

typedef enum gw_auto_outcome {
    GW_AUTO_SWITCHED = 0,
    GW_AUTO_SAME = 1,       /* what was found is in force already */
    GW_AUTO_SMALL_GAIN = 2, /* it is less than 3 % faster */
    GW_AUTO_DENSE = 3,      /* nothing is compressed until training has recovered */
    GW_AUTO_FAILED = 4      /* text says why: all stays */
} gw_auto_outcome;
GW_API const char *gw_auto_reason_name(gw_auto_reason reason); /* "start", "periodic", … */
GW_API const char *gw_auto_outcome_name(gw_auto_outcome outcome);

/* The same on every rank. Seconds are of a step; what is not known is NaN. Which layer goes how: gw_step_planned. */
typedef struct gw_auto_decision {
    uint64_t step;     /* that the reason came up in */
    uint64_t bound_at; /* the first step that goes by it */
    gw_auto_reason reason;
    gw_auto_outcome outcome;
    double predicted_seconds, dense_seconds;
    double bound_seconds; /* no plan within the budget, with these buckets, is faster */
    /* the best plan with links of half and of double the rate; NaN: not looked for, the plan is as it was */
    double half_seconds, double_seconds;
    double alpha, budget, error;
    double noise_ratio;                            /* squared error over the gradients' noise */
    double link_bytes_per_second, latency_seconds; /* between nodes, if there are several */
    uint64_t bytes, dense_bytes;                   /* that rank 0 sends a step */
    double measure_seconds, solve_seconds;         /* of the thread, on the slowest rank */
    uint32_t changed;                              /* layers */
    uint32_t waited;                               /* ranks whose step waited for their thread */
    char text[320];                                /* all of it in words */
} gw_auto_decision;

/* A window of steps, the same on every rank. */
typedef struct gw_auto_watch {
    uint64_t step;            /* its last */
    double measured_seconds;  /* of a step, as the other two */
    double predicted_seconds; /* by the planner, when it made the plan in force */
    double expected_seconds;  /* by the windows since; NaN: this is the plan's first */
    double error, budget, noise_ratio, loss; /* of a loss that nobody told: NaN */
} gw_auto_watch;

/* How many there were, and the last one, untouched if there was none. Between steps; at most one of each comes with a
 * step. */
GW_API gw_status gw_step_auto_last(const gw_step *step, uint64_t *n, gw_auto_decision *decision);
GW_API gw_status gw_step_auto_watched(const gw_step *step, uint64_t *n, gw_auto_watch *watch);

/* What a checkpoint needs, beside the residuals: the plan in force, budget, tables, times. Waits for the thread. A plan that is
 * being made is begun again after loading. Loading comes after begin and gw_step_set_number, and before an agree and
 * the residuals' load; it plans the layers and talks to nobody. */
GW_API gw_status gw_step_auto_save_bytes(const gw_step *step, size_t *bytes, gw_why *why);
GW_API gw_status gw_step_auto_save(gw_step *step, void *buffer, size_t capacity, size_t *written,
                                   gw_why *why);
GW_API gw_status gw_step_auto_load(gw_step *step, const void *bytes, size_t size, gw_why *why);

#ifdef __cplusplus
}
#endif
#endif
