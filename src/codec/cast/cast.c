/* cast: fp32 to f16 or bf16 (or f32 as it is), rounded to nearest even. What every other system offers;
 * here the baseline that compression has to beat. Payload: docs/wire-format.md 3.1. */
#include "base/convert.h"
#include "codec/cast/cast_core.h"
#include "codec/codec_impl.h"

enum { TO };
enum { BLOCK = 4096 };

static const char *const to_words[] = {"f32", "f16", "bf16"};
static const gw_param_info params[] = {
    {"to", "type on the wire", GW_F32, GW_BF16, GW_BF16, to_words, 0},
};

static uint32_t flags(const gw_params *p)
{
    return gw_param(p, TO) == GW_F32 ? GW_CODEC_FIXED_SIZE | GW_CODEC_UNBIASED | GW_CODEC_ADDITIVE
                                     : GW_CODEC_FIXED_SIZE;
}

static size_t grain(const gw_params *p)
{
    (void)p;
    return BLOCK;
}

static uint64_t bytes(const gw_params *p, uint64_t count)
{
    return count * gw_dtype_size((gw_dtype)gw_param(p, TO));
}

static void count_odd(const float *x, size_t n, uint32_t limit, gw_report *report)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t a = gw_bits(x[i]) & GW_ABS_MASK;
        report->non_finite += a >= GW_INF_BITS;
        report->overflowed += a >= limit && a < GW_INF_BITS;
    }
}

static void encode(const gw_coding *job, const float *x, size_t n, uint64_t first, uint8_t *payload,
                   gw_report *report)
{
    (void)first;
    const gw_convert *convert = job->kernels;
    const gw_dtype to = (gw_dtype)gw_param(job->params, TO);
    const uint32_t limit = gw_cast_overflow_from(to, job->dtype);
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t m = n - at < BLOCK ? n - at : BLOCK;
        const uint32_t top = convert->narrow(to, x + at, payload + at * gw_dtype_size(to), m);
        if (top >= limit) {
            count_odd(x + at, m, limit, report);
        }
    }
}

static void decode(const gw_coding *job, const uint8_t *payload, size_t n, gw_apply how, float *out)
{
    const gw_convert *convert = job->kernels;
    const gw_dtype to = (gw_dtype)gw_param(job->params, TO);
    (how == GW_ADD ? convert->add : convert->widen)(to, payload, out, n);
}

extern const gw_codec gw_codec_cast;
const gw_codec gw_codec_cast = {
    .name = "cast",
    .doc = "a narrower float, rounded to nearest",
    .params = params,
    .n_params = 1,
    .flags = flags,
    .grain = grain,
    .bytes = bytes,
    .encode = encode,
    .decode = decode,
    .kernels = {NULL, &gw_convert_scalar, GW_AVX2(gw_convert_avx2), GW_AVX512(gw_convert_avx512),
                GW_NEON(gw_convert_neon)},
};
