/* The parts of errors.h that all tables share, and the table of one entry that `natural` has. */
#include "errors/errors.h"

#include "codec/natural/natural_core.h"

void gw_errors_cut(gw_arena *arena, gw_source *source)
{
    float *scratch = gw_arena_take(arena, GW_ERRORS_BLOCK, sizeof(float));
    if (source != NULL) {
        source->scratch = scratch;
    }
}

gw_status gw_errors_open(const gw_exec *exec, const gw_tensor *in, const float *residual,
                         gw_source *source, gw_isa *isa, gw_why *why)
{
    const gw_isa wanted = exec != NULL ? exec->isa : GW_ISA_AUTO;
    if (in == NULL || gw_dtype_size(in->dtype) == 0 || in->count > SIZE_MAX / 8 ||
        (in->data == NULL && in->count != 0) || wanted < GW_ISA_AUTO || wanted >= GW_ISA_COUNT) {
        return GW_FAIL(why, GW_ERR_ARG, "errors: no tensor, or one of no known type");
    }
    *isa = wanted == GW_ISA_AUTO ? gw_isa_best() : wanted;
    if (gw_convert_for(*isa) == NULL || !gw_isa_runs_here(*isa)) {
        return GW_FAIL(why, GW_ERR_UNSUPPORTED, "errors: %s is not in this build or machine",
                       gw_isa_name(*isa));
    }
    *source = (gw_source){.convert = gw_convert_for(*isa),
                          .in = in->data,
                          .dtype = in->dtype,
                          .count = in->count,
                          .residual = residual};
    return GW_OK;
}

gw_status gw_errors_refuse(const float *x, size_t n, uint64_t at, gw_why *why)
{
    size_t i = 0;
    while (i + 1 < n && (gw_bits(x[i]) & GW_ABS_MASK) < GW_INF_BITS) {
        i++;
    }
    return GW_FAIL(why, GW_ERR_RANGE, "errors: element %llu is %g", (unsigned long long)(at + i),
                   (double)x[i]);
}

/* A table of one number, over blocks of `source`. */
static gw_status open_one(const gw_exec *exec, const gw_tensor *in, const float *residual,
                          const double *squared, gw_source *source, gw_why *why)
{
    gw_isa isa;
    const gw_status status = gw_errors_open(exec, in, residual, source, &isa, why);
    if (status != GW_OK) {
        return status;
    }
    if (squared == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "errors: no place for the result");
    }
    gw_arena arena = gw_arena_over(exec != NULL ? exec->workspace : (gw_workspace){0});
    gw_errors_cut(&arena, source);
    return arena.failed ? GW_FAIL(why, GW_ERR_WORKSPACE, "errors: the workspace is too small")
                        : GW_OK;
}

gw_status gw_errors_natural(const gw_exec *exec, const gw_tensor *in, const float *residual,
                            double *squared, gw_why *why)
{
    gw_source source;
    const gw_status status = open_one(exec, in, residual, squared, &source, why);
    if (status != GW_OK) {
        return status;
    }
    const uint32_t top = gw_natural_top(in->dtype == GW_F16);
    double total = 0;
    size_t n;
    const uint32_t caller = gw_fp_enter();
    for (uint64_t at = 0; at < source.count; at += n) {
        const float *x = gw_errors_block(&source, at, GW_ERRORS_BLOCK, &n);
        if (source.convert->largest(x, n) >= GW_INF_BITS) {
            gw_fp_leave(caller);
            return gw_errors_refuse(x, n, at, why);
        }
        for (size_t i = 0; i < n; i++) {
            total += gw_natural_expected(gw_bits(x[i]) & GW_ABS_MASK, top);
        }
    }
    gw_fp_leave(caller);
    *squared = total;
    return GW_OK;
}

gw_status gw_errors_norm(const gw_exec *exec, const gw_tensor *in, const float *residual,
                         double *squared, gw_why *why)
{
    enum { LANES = 16 }; /* sums in a fixed order, side by side */
    gw_source source;
    const gw_status status = open_one(exec, in, residual, squared, &source, why);
    if (status != GW_OK) {
        return status;
    }
    double lane[LANES] = {0}, total = 0;
    size_t n;
    const uint32_t caller = gw_fp_enter();
    for (uint64_t at = 0; at < source.count; at += n) {
        const float *x = gw_errors_block(&source, at, GW_ERRORS_BLOCK, &n);
        if (source.convert->largest(x, n) >= GW_INF_BITS) {
            gw_fp_leave(caller);
            return gw_errors_refuse(x, n, at, why);
        }
        size_t i = 0;
        for (; i + LANES <= n; i += LANES) {
            for (size_t j = 0; j < LANES; j++) {
                lane[j] += (double)x[i + j] * (double)x[i + j];
            }
        }
        for (size_t j = 0; i + j < n; j++) {
            lane[j] += (double)x[i + j] * (double)x[i + j];
        }
    }
    for (size_t j = 0; j < LANES; j++) {
        total += lane[j];
    }
    gw_fp_leave(caller);
    *squared = total;
    return GW_OK;
}
