/* Every layer its own level, under one error budget (L-GreCo): records in, a choice out. Nothing here sends, reads
 * files or keeps state; equal records give the equal choice, to the bit, on every rank. docs/adapt.md.
 *
 *     gw_adapt_levels    which levels a tensor could be sent with        shapes     -> settings
 *     gw_adapt_bytes     what each puts on the wire                      settings   -> bytes
 *     gw_adapt_measure   what each would lose                            numbers    -> errors
 *     (average the errors over ranks and steps: plain means, entry by entry)
 *     gw_adapt_choose    one level a layer                               all layers -> choice
 */
#ifndef GRADWIRE_ADAPT_H
#define GRADWIRE_ADAPT_H

#include "gradwire/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    GW_ADAPT_MOST_LEVELS = 256, /* a layer */
    GW_ADAPT_MOST_LAYERS = 1 << 20,
    GW_ADAPT_BUCKETS = 10000, /* what `buckets` = 0 stands for */
    GW_ADAPT_MOST_BUCKETS = 1 << 22
};

/* ---- candidates ---- */

/* How a layer's error enters the sum: ‖G − Ĝ‖, its square, or its square over ‖G‖² (0 for G = 0). */
typedef enum gw_adapt_metric {
    GW_ADAPT_NORMS = 0,
    GW_ADAPT_SQUARES = 1,
    GW_ADAPT_RELATIVE = 2
} gw_adapt_metric;

/* Which levels a job may use. A family is a codec with its settings; the level among them is the middle of the
 * family's range: bits 2 … 8, densities a tenth … 50 × that one, ranks a quarter … 4 × that one, never 0.
 * dither, ndither, topk, lowrank; cast and natural have the one level they are given with. */
typedef struct gw_adapt_rules {
    const gw_params *families;
    size_t n_families;
    gw_params uniform; /* the default: what the budget is measured by; need not be of a family */
    uint64_t min_elements; /* smaller tensors are sent as they are */
    double
        min_ratio; /* so are, as far as lowrank goes, tensors that are not more than this many times
                              as large as its factors; 0: 1. The published code: 2 */
    int keep_vectors; /* tensors of one dim or none are sent as they are, too */
} gw_adapt_rules;

/* The levels of one tensor, at most `capacity` (GW_ADAPT_MOST_LEVELS is enough): level 0 is the tensor as it is, a
 * lossless cast, then each family's, then the default if it is none of these. lowrank
 * only where its factors at the given rank are smaller by min_ratio, no rank above the matrix's own, and
 * nothing that does not beat the tensor as it is.
 * *uniform is the index of the default: 0 where it does not apply to this tensor. */
GW_API gw_status gw_adapt_levels(const gw_adapt_rules *rules, gw_dtype dtype, const uint64_t *dims,
                                 size_t n_dims, gw_params *levels, size_t capacity, size_t *n,
                                 uint32_t *uniform, gw_why *why);

/* bytes[i]: the payload of levels[i] and `header`, what a message carries besides. */
GW_API gw_status gw_adapt_bytes(const gw_params *levels, size_t n, uint64_t elements,
                                uint64_t header, uint64_t *bytes, gw_why *why);

/* errors[i] of levels[i] for this tensor (plus residual, if there is one), by the tables of errors.h: one table
 * for levels of one family that stand together. GW_ERR_RANGE for a NaN or infinity in the tensor; the errors are
 * then untouched. `seed`: of gw_errors_rank, the same on all ranks. */
GW_API gw_status gw_adapt_measure_workspace(const gw_params *levels, size_t n, uint64_t elements,
                                            size_t *bytes);
GW_API gw_status gw_adapt_measure(const gw_params *levels, size_t n, gw_adapt_metric metric,
                                  const gw_exec *exec, const gw_tensor *in, const float *residual,
                                  uint64_t seed, double *errors, gw_why *why);

/* Accordion's test: has the norm of a layer's gradient changed by eta or more since the period before? A first
 * norm of zero counts as a change of 9; a NaN as a change. Critical layers take a milder default. */
GW_API int gw_adapt_is_critical(double norm_before, double norm_now, double eta);

/* ---- the choice ---- */

/* A level whose error is negative, NaN or infinite is never chosen. */
typedef struct gw_adapt_layer {
    const double *errors;  /* of each of n levels, in any order */
    const uint64_t *bytes; /* likewise */
    uint32_t n;
    uint32_t uniform;        /* the default */
    uint32_t first, allowed; /* only first … first + allowed − 1 may be chosen (a floor, a cap; with
                                allowed = 1 a pin); allowed = 0: from first to the last */
    uint32_t group; /* 0, or 1 … n_layers: layers of a group have equal n and get the same index */
} gw_adapt_layer;

typedef enum gw_adapt_method {
    GW_ADAPT_DYNAMIC = 0, /* the dynamic programme, beside the fast path */
    GW_ADAPT_FAST = 1     /* the fast path alone: convex hulls */
} gw_adapt_method;

typedef struct gw_adapt_problem {
    const gw_adapt_layer *layers;
    size_t n_layers;
    double alpha; /* budget = alpha × Σ errors of the defaults; 0 … infinity */
    gw_adapt_method method;
    uint32_t buckets; /* D: the budget is cut into D … 2D; 0: GW_ADAPT_BUCKETS */
} gw_adapt_problem;

typedef enum gw_adapt_outcome {
    GW_ADAPT_FOUND =
        0, /* error ≤ budget; fewer bytes than the default, or the same at less error */
    GW_ADAPT_UNIFORM = 1,    /* error ≤ budget; nothing better than the default was found */
    GW_ADAPT_INFEASIBLE = 2, /* no assignment keeps to the budget: the default (see below) */
    GW_ADAPT_NO_BUDGET = 3   /* a default's error is not a number to go by: likewise */
} gw_adapt_outcome;

/* Where a layer's default is not allowed, the level with the least error among the allowed (then fewest bytes)
 * stands in for it in what is chosen; `budget` and the uniform_… stay the defaults' own. */
typedef struct gw_adapt_choice {
    uint32_t *levels; /* n_layers of the caller's; the rest is filled in */
    gw_adapt_outcome outcome;
    double budget, error, uniform_error;
    uint64_t bytes, uniform_bytes;
    uint64_t
        lower_bound; /* no assignment within the budget has fewer bytes; 0 if there is no budget */
    uint64_t checksum; /* of the levels: equal on ranks that chose the same */
    uint32_t unusable; /* levels with an error that is no number to go by */
} gw_adapt_choice;

GW_API gw_status gw_adapt_workspace(const gw_adapt_problem *problem, size_t *bytes);
/* On failure the choice is untouched. Sums of errors are over the layers in their order, in fp64. */
GW_API gw_status gw_adapt_choose(const gw_adapt_problem *problem, gw_workspace workspace,
                                 gw_adapt_choice *choice, gw_why *why);

#ifdef __cplusplus
}
#endif
#endif
