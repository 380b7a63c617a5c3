/* sign: one bit a number and a bucket's mean magnitude (EF-SignSGD: Karimireddy et al., "Error Feedback
 * Fixes SignSGD", ICML 2019). Biased; a contraction, so it works with feedback and not without.
 * Arithmetic: sign_core.h. Payload: docs/wire-format.md 3.5. */
#include "codec/sign/sign.h"

#include "base/little_endian.h"

#include <string.h>

enum { BUCKET };
enum { SCALE_BYTES = 4 };

static const gw_param_info params[] = {
    {"bucket", "elements that share one magnitude, a power of two", 64, 8192, 4096, NULL, 0},
};

static gw_status check(const gw_params *p, gw_why *why)
{
    const uint32_t size = gw_param(p, BUCKET);
    if ((size & (size - 1)) != 0) {
        return gw_fail(why, GW_ERR_RANGE, "sign: bucket=%u is not a power of two", size);
    }
    return GW_OK;
}

static uint32_t flags(const gw_params *p)
{
    (void)p;
    return GW_CODEC_FIXED_SIZE | GW_CODEC_WANTS_FEEDBACK;
}

static size_t grain(const gw_params *p)
{
    return gw_param(p, BUCKET);
}

static uint64_t bytes(const gw_params *p, uint64_t count)
{
    return SCALE_BYTES * gw_ceil_div(count, gw_param(p, BUCKET)) + gw_ceil_div(count, 8);
}

/* Element i of x, with feedback of x + r. */
static float at(const float *x, const float *r, size_t i)
{
    return r != NULL ? x[i] + r[i] : x[i];
}

static uint32_t sums(const float *x, const float *r, size_t n, float lane[GW_SIGN_LANES])
{
    uint32_t top = 0;
    memset(lane, 0, GW_SIGN_LANES * sizeof lane[0]);
    for (size_t i = 0; i < n; i++) {
        const uint32_t a = gw_bits(at(x, r, i)) & GW_ABS_MASK;
        top = a > top ? a : top;
        lane[i % GW_SIGN_LANES] += gw_float(a);
    }
    return top;
}

static void signs(const float *x, size_t n, uint8_t *out)
{
    memset(out, 0, gw_ceil_div(n, 8));
    for (size_t i = 0; i < n; i++) {
        out[i / 8] |= (uint8_t)(gw_sign_bit(gw_bits(x[i])) << (i % 8));
    }
}

static void keep(const gw_fed_block *f, size_t n, float scale, uint8_t *out)
{
    memset(out, 0, gw_ceil_div(n, 8));
    for (size_t i = 0; i < n; i++) {
        const float x = at(f->g, f->r, i);
        const uint32_t bit = gw_sign_bit(gw_bits(x));
        out[i / 8] |= (uint8_t)(bit << (i % 8));
        f->after[i] = x - (bit ? -scale : scale);
    }
}

static void decode_bucket(const uint8_t *bits, size_t n, float scale, gw_apply how, float *out)
{
    for (size_t i = 0; i < n; i++) {
        const float v = (uint32_t)bits[i / 8] >> (i % 8) & 1u ? -scale : scale;
        out[i] = how == GW_ADD ? out[i] + v : v;
    }
}

const gw_sign_kernels gw_sign_scalar = {sums, signs, keep, decode_bucket};

/* Mean magnitude; NaN for a bucket with a non-finite number, which it counts. */
static float scale_of(const gw_sign_kernels *kernels, const float *x, const float *r, size_t n,
                      gw_report *report)
{
    float lane[GW_SIGN_LANES];
    const uint32_t top = kernels->sums(x, r, n, lane);
    const float pre = gw_sign_pre(top);
    if (top >= GW_INF_BITS) {
        for (size_t i = 0; i < n; i++) {
            report->non_finite += (gw_bits(at(x, r, i)) & GW_ABS_MASK) >= GW_INF_BITS;
        }
        return gw_float(GW_NAN_BITS);
    }
    if (pre != 1.0f) { /* near the edge of fp32: once more, smaller */
        memset(lane, 0, sizeof lane);
        for (size_t i = 0; i < n; i++) {
            lane[i % GW_SIGN_LANES] += gw_float(gw_bits(at(x, r, i)) & GW_ABS_MASK) * pre;
        }
    }
    return gw_sign_mean(lane, n, pre);
}

static void encode(const gw_coding *job, const float *x, size_t n, uint64_t first, uint8_t *payload,
                   gw_report *report)
{
    (void)first;
    const gw_sign_kernels *kernels = job->kernels;
    const size_t size = gw_param(job->params, BUCKET);
    for (size_t i = 0; i < n; i += size) {
        const size_t m = n - i < size ? n - i : size;
        const float scale = scale_of(kernels, x + i, NULL, m, report);
        gw_put_u32(payload, gw_bits(scale));
        if (scale > 0) {
            kernels->signs(x + i, m, payload + SCALE_BYTES);
        } else { /* NaN, or all zero */
            memset(payload + SCALE_BYTES, 0, gw_ceil_div(m, 8));
        }
        payload += SCALE_BYTES + gw_ceil_div(m, 8);
    }
}

/* Two passes over a bucket: its mean, then signs and what they lose. g + r is formed in both: a second
 * addition costs less than keeping the first one's results. */
static void encode_feedback(const gw_coding *job, const gw_fed_block *f, size_t n, uint8_t *payload,
                            gw_report *report)
{
    const gw_sign_kernels *kernels = job->kernels;
    const size_t size = gw_param(job->params, BUCKET);
    for (size_t i = 0; i < n; i += size) {
        const size_t m = n - i < size ? n - i : size;
        const gw_fed_block bucket = gw_feedback_at(f, i);
        const float scale = scale_of(kernels, bucket.g, bucket.r, m, report);
        gw_put_u32(payload, gw_bits(scale));
        if (scale > 0) {
            kernels->keep(&bucket, m, scale, payload + SCALE_BYTES);
        } else { /* NaN, or all zero: no bit is set, which says plus */
            memset(payload + SCALE_BYTES, 0, gw_ceil_div(m, 8));
            for (size_t j = 0; j < m; j++) {
                f->after[i + j] = at(f->g, f->r, i + j) - scale;
            }
        }
        payload += SCALE_BYTES + gw_ceil_div(m, 8);
    }
}

static gw_status validate(const gw_params *p, const uint8_t *payload, size_t payload_bytes,
                          uint64_t count, gw_why *why)
{
    (void)payload_bytes; /* follows from count */
    const uint64_t size = gw_param(p, BUCKET);
    for (uint64_t i = 0; i < count; i += size) {
        const uint32_t scale = gw_get_u32(payload + i / size * (SCALE_BYTES + size / 8));
        if (scale >= GW_INF_BITS && scale != GW_NAN_BITS) {
            return gw_fail(why, GW_ERR_CORRUPT,
                           "sign: bucket at element %llu has a scale of pattern %08X",
                           (unsigned long long)i, scale);
        }
    }
    if (count % 8 != 0 && payload[bytes(p, count) - 1] >> count % 8 != 0) {
        return gw_fail(why, GW_ERR_CORRUPT, "sign: unused sign bits are not zero");
    }
    return GW_OK;
}

static void decode(const gw_coding *job, const uint8_t *payload, size_t n, gw_apply how, float *out)
{
    const gw_sign_kernels *kernels = job->kernels;
    const size_t size = gw_param(job->params, BUCKET);
    for (size_t at = 0; at < n; at += size) {
        const size_t m = n - at < size ? n - at : size;
        kernels->decode(payload + SCALE_BYTES, m, gw_float(gw_get_u32(payload)), how, out + at);
        payload += SCALE_BYTES + gw_ceil_div(m, 8);
    }
}

extern const gw_codec gw_codec_sign;
const gw_codec gw_codec_sign = {
    .name = "sign",
    .doc = "one bit, and a mean magnitude a bucket (EF-SignSGD)",
    .params = params,
    .n_params = 1,
    .check = check,
    .flags = flags,
    .grain = grain,
    .bytes = bytes,
    .validate = validate,
    .encode = encode,
    .encode_feedback = encode_feedback,
    .decode = decode,
    .kernels = {NULL, &gw_sign_scalar, GW_AVX2(gw_sign_avx2), GW_AVX512(gw_sign_avx512),
                GW_NEON(gw_sign_neon)},
};
