/* What a codec is, seen from inside: one descriptor, filled in by <name>.c. codec.c does everything
 * that is the same for all: checks, dtypes, threads, cutting. So a codec only ever sees fp32 numbers,
 * one thread, and a span that begins on a grain border. */
#ifndef GW_CODEC_IMPL_H
#define GW_CODEC_IMPL_H

#include "base/numeric.h"
#include "base/why.h"

#include <gradwire/codec.h>

/* One encode or decode, resolved: the same for all spans of a call. */
typedef struct gw_job {
    const gw_params *params;
    const void *kernels; /* the descriptor's entry for the instruction set in use */
    uint64_t random_key; /* encode only */
    gw_dtype dtype;      /* of the caller's tensor; the numbers here are fp32 already */
} gw_job;

struct gw_codec {
    const char *name, *doc;
    const gw_param_info *params;
    size_t n_params;
    /* What the ranges of `params` cannot say; may be NULL. */
    gw_status (*check)(const gw_params *, gw_why *);
    uint32_t (*flags)(const gw_params *);
    size_t (*grain)(const gw_params *);
    /* Payload bytes of `count` elements. Additive over grains, so it also locates a span. */
    uint64_t (*bytes)(const gw_params *, uint64_t count);
    /* Looks at every payload byte that can be wrong; may be NULL. `payload` has bytes(count). */
    gw_status (*validate)(const gw_params *, const uint8_t *payload, uint64_t count, gw_why *);
    /* `first` is the global index of x[0]. */
    void (*encode)(const gw_job *, const float *x, size_t n, uint64_t first, uint8_t *payload,
                   gw_report *);
    /* Reads a validated payload. */
    void (*decode)(const gw_job *, const uint8_t *payload, size_t n, gw_apply, float *out);
    /* Inner loops by gw_isa; NULL is not built. What they are is the codec's own business. */
    const void *kernels[GW_ISA_COUNT];
};

/* Value of parameter `index`, known to be whole and in range. */
static inline uint32_t gw_param(const gw_params *params, int index)
{
    return (uint32_t)params->value[index];
}

static inline uint64_t gw_ceil_div(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

/* For the kernels[] of descriptors: the variant's table if it is built, else NULL. */
#ifdef GW_HAVE_AVX2
#    define GW_AVX2(table) (&(table))
#else
#    define GW_AVX2(table) NULL
#endif
#ifdef GW_HAVE_AVX512
#    define GW_AVX512(table) (&(table))
#else
#    define GW_AVX512(table) NULL
#endif

#endif
