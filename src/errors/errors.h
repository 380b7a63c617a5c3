/* What the error tables share: how they read G, refuse what is not finite, and the loops over a bucket. */
#ifndef GW_ERRORS_H
#define GW_ERRORS_H

#include "base/arena.h"
#include "codec/bucket/bucket.h"
#include "codec/source.h"

#include <gradwire/errors.h>

enum { GW_ERRORS_BLOCK = 8192 }; /* elements read at once: the largest bucket */

/* The error of one bucket of n ≤ GW_ERRORS_BLOCK numbers, finite and not all zero. */
typedef double gw_errors_of_bucket(const gw_bucket *b, const float *x, size_t n);
typedef struct gw_errors_kernels {
    gw_errors_of_bucket *dither, *dither_nearest, *ndither;
} gw_errors_kernels;

extern const gw_errors_kernels gw_errors_scalar;
#ifdef GW_HAVE_AVX2
extern const gw_errors_kernels gw_errors_avx2;
#endif
#ifdef GW_HAVE_AVX512
extern const gw_errors_kernels gw_errors_avx512;
#endif

/* Takes GW_ERRORS_BLOCK floats of the arena; used to measure, too, with source NULL. */
void gw_errors_cut(gw_arena *arena, gw_source *source);
/* Checks the arguments that all tables have, and resolves the instruction set. */
gw_status gw_errors_open(const gw_exec *exec, const gw_tensor *in, const float *residual,
                         gw_source *source, gw_isa *isa, gw_why *why);
/* Names the first element of x[0 … n−1] that is not finite; x[0] is element `at` of the tensor. */
gw_status gw_errors_refuse(const float *x, size_t n, uint64_t at, gw_why *why);

/* The block of G at `at`, `*n` elements of it. */
static inline const float *gw_errors_block(gw_source *source, uint64_t at, size_t most, size_t *n)
{
    *n = source->count - at < most ? (size_t)(source->count - at) : most;
    return gw_source_block(source, at, *n);
}

#endif
