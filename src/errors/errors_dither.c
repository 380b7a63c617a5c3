/* The errors of both dithers at every bit width, bucket by bucket while it is in cache. */
#include "codec/dither/dither.h"
#include "codec/ndither/ndither_core.h"
#include "errors/errors.h"

#include <string.h>

#include "errors/errors_dither_loops.h"

const gw_errors_kernels gw_errors_scalar = {dither, dither_nearest, ndither};

static const gw_errors_kernels *kernels_for(gw_isa isa)
{
#ifdef GW_HAVE_AVX512
    if (isa == GW_ISA_AVX512) {
        return &gw_errors_avx512;
    }
#endif
#ifdef GW_HAVE_AVX2
    if (isa == GW_ISA_AVX2) {
        return &gw_errors_avx2;
    }
#endif
    (void)isa; /* aarch64's own vectors need no flags: its plain loops have them */
    return &gw_errors_scalar;
}

/* What stays the same from bucket to bucket. */
typedef struct sweep {
    gw_errors_of_bucket *of_bucket;
    size_t size;
    int natural, euclidean;
    float most;
} sweep;

static void add_bucket(const sweep *s, const float *x, size_t n, uint32_t top, double *squared)
{
    gw_bucket b = {.scale = gw_bucket_scale(x, n, top, s->euclidean, s->most)};
    b.pre = gw_bucket_pre(b.scale);
    for (b.bits = GW_ERRORS_LEAST_BITS; b.bits <= GW_ERRORS_MOST_BITS; b.bits++) {
        b.levels = (1u << (b.bits - 1)) - 1;
        b.factor = s->natural ? gw_ndither_factor(b.scale * b.pre)
                              : gw_dither_factor(b.scale * b.pre, b.levels);
        squared[b.bits - GW_ERRORS_LEAST_BITS] += s->of_bucket(&b, x, n);
    }
}

static gw_status run(const sweep *s, gw_source *source, double *squared, gw_why *why)
{
    double total[GW_ERRORS_WIDTHS] = {0};
    size_t n;
    for (uint64_t at = 0; at < source->count; at += n) {
        const float *x = gw_errors_block(source, at, s->size, &n);
        const uint32_t top = source->convert->largest(x, n);
        if (top >= GW_INF_BITS) {
            return gw_errors_refuse(x, n, at, why);
        }
        if (top != 0) {
            add_bucket(s, x, n, top, total);
        }
    }
    memcpy(squared, total, sizeof total);
    return GW_OK;
}

gw_status gw_errors_dither(const gw_params *params, const gw_exec *exec, const gw_tensor *in,
                           const float *residual, double squared[GW_ERRORS_WIDTHS], gw_why *why)
{
    gw_source source;
    gw_isa isa;
    gw_status status = gw_params_check(params, why);
    status = status == GW_OK ? gw_errors_open(exec, in, residual, &source, &isa, why) : status;
    if (status != GW_OK || squared == NULL) {
        return status != GW_OK ? status : GW_FAIL(why, GW_ERR_ARG, "errors: no table");
    }
    const int linear = strcmp(params->codec->name, "dither") == 0;
    if (!linear && strcmp(params->codec->name, "ndither") != 0) {
        return GW_FAIL(why, GW_ERR_UNSUPPORTED, "errors: %s has no table of bit widths",
                       params->codec->name);
    }
    gw_arena arena = gw_arena_over(exec != NULL ? exec->workspace : (gw_workspace){0});
    gw_errors_cut(&arena, &source);
    if (arena.failed) {
        return GW_FAIL(why, GW_ERR_WORKSPACE, "errors: the workspace is too small");
    }
    const gw_errors_kernels *kernels = kernels_for(isa);
    const sweep s = {!linear           ? kernels->ndither
                     : NEAREST(params) ? kernels->dither_nearest
                                       : kernels->dither,
                     gw_param(params, GW_BUCKET_SIZE), !linear,
                     gw_param(params, GW_BUCKET_NORM) == 1, gw_bucket_most(in->dtype)};
    const uint32_t caller = gw_fp_enter();
    status = run(&s, &source, squared, why);
    gw_fp_leave(caller);
    return status;
}
