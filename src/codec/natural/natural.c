/* natural: unbiased rounding to powers of two (Horváth et al., "Natural Compression for Distributed
 * Deep Learning"). Relative variance at most 1/8. bits=9 sends sign and exponent as two planes and
 * covers all of fp32; bits=8 sends one byte, with one base exponent a block of 4096.
 * Arithmetic: natural_core.h. Payload: docs/wire-format.md 3.2 and 3.3.
 *
 * Both forms begin with the same pass, `planes`. bits=8 then knows the block's base and folds the
 * planes into codes while they are still in the first-level cache. The cases that the fast pass
 * cannot do, non-finite numbers, overflow, numbers below an 8-bit block's range, are seen from
 * the smallest and largest exponent byte, and only such blocks are done again by the core. */
#include "codec/natural/natural.h"

#include <string.h>

enum { BITS };
enum { BLOCK = GW_NATURAL_BLOCK };

static const gw_param_info params[] = {
    {"bits", "8: one byte, block base; 9: sign and exponent planes, whole range", 8, 9, 8, NULL, 0},
};

static uint32_t flags(const gw_params *p)
{
    (void)p;
    return GW_CODEC_FIXED_SIZE | GW_CODEC_UNBIASED | GW_CODEC_STOCHASTIC;
}

static size_t grain(const gw_params *p)
{
    (void)p;
    return BLOCK;
}

static uint64_t bytes(const gw_params *p, uint64_t count)
{
    return gw_param(p, BITS) == 9 ? count + gw_ceil_div(count, 8)
                                  : count + gw_ceil_div(count, BLOCK);
}

/* Scalar loops over the core. */

static gw_natural_extent planes(const float *x, size_t n, gw_random_pair k, uint64_t index,
                                uint8_t *exponents, uint8_t *signs)
{
    gw_natural_extent extent = {255, 0};
    memset(signs, 0, gw_ceil_div(n, 8));
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = gw_bits(x[i]);
        const uint32_t r = gw_random_r23(k, index + i);
        const uint32_t sum = ((bits & GW_ABS_MASK) + r) >> GW_MANT_BITS;
        const uint8_t e = (uint8_t)(sum < 255 ? sum : 255);
        exponents[i] = e;
        signs[i / 8] |= (uint8_t)((e != 0 ? bits >> 31 : 0) << (i % 8));
        extent.low = e < extent.low ? e : extent.low;
        extent.high = e > extent.high ? e : extent.high;
    }
    return extent;
}

static void fold(uint8_t *codes, const uint8_t *signs, size_t n, uint32_t base)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t level = codes[i] >= base ? codes[i] - base + 1 : 0;
        const uint32_t sign = (uint32_t)signs[i / 8] >> (i % 8) & 1u;
        codes[i] = (uint8_t)(level == 0 ? 0 : level | sign << 7);
    }
}

static int any_below(const float *x, size_t n, uint32_t limit)
{
    int any = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t a = gw_bits(x[i]) & GW_ABS_MASK;
        any |= a != 0 && a < limit;
    }
    return any;
}

static void put(float *out, size_t i, gw_apply how, float v)
{
    out[i] = how == GW_ADD ? out[i] + v : v;
}

static void decode9(const uint8_t *exponents, const uint8_t *signs, size_t n, gw_apply how,
                    float *out)
{
    for (size_t i = 0; i < n; i++) {
        put(out, i, how, gw_natural_value9(exponents[i], (uint32_t)signs[i / 8] >> (i % 8) & 1u));
    }
}

static void decode8(const uint8_t *codes, size_t n, uint32_t base, gw_apply how, float *out)
{
    for (size_t i = 0; i < n; i++) {
        put(out, i, how, gw_natural_value8(codes[i], base));
    }
}

const gw_natural_kernels gw_natural_scalar = {planes, fold, any_below, decode9, decode8};

/* What every block shares. */
typedef struct block_job {
    const gw_natural_kernels *kernels;
    uint64_t key;
    uint32_t top;
    gw_report *report;
} block_job;

/* A block with a non-finite or overflowing number. Also counts them. */
static uint32_t exponents_by_core(const block_job *job, const float *x, size_t n, gw_random_pair k,
                                  uint64_t index, uint8_t *exponents)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = gw_bits(x[i]), r = gw_random_r23(k, index + i);
        const uint32_t e = gw_natural_exponent(bits, r, job->top);
        exponents[i] = (uint8_t)e;
        if (e == GW_NATURAL_NON_FINITE) {
            job->report->non_finite++;
        } else {
            job->report->overflowed += ((bits & GW_ABS_MASK) + r) >> GW_MANT_BITS > job->top;
            largest = e > largest ? e : largest;
        }
    }
    return largest;
}

static void encode9(const block_job *job, const float *x, size_t n, uint64_t first,
                    uint8_t *exponents)
{
    const gw_random_pair k = gw_random_pair_at(job->key, first);
    uint8_t *signs = exponents + n;
    const gw_natural_extent extent = job->kernels->planes(x, n, k, first, exponents, signs);
    if (extent.high > job->top) {
        (void)exponents_by_core(job, x, n, k, first, exponents);
    }
}

static void encode8(const block_job *job, const float *x, size_t n, uint64_t first,
                    uint8_t *payload)
{
    const gw_random_pair k = gw_random_pair_at(job->key, first);
    uint8_t signs[BLOCK / 8], *codes = payload + 1;
    const gw_natural_extent extent = job->kernels->planes(x, n, k, first, codes, signs);
    int by_core = extent.high > job->top;
    const uint32_t largest = by_core ? exponents_by_core(job, x, n, k, first, codes) : extent.high;
    const uint32_t base = gw_natural_base(largest);
    if (base > 1 && extent.low <= base && !by_core) {
        by_core = job->kernels->any_below(x, n, base << GW_MANT_BITS);
    }
    payload[0] = (uint8_t)base;
    if (!by_core) {
        job->kernels->fold(codes, signs, n, base);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const uint32_t r = gw_random_r23(k, first + i);
        codes[i] = gw_natural_code(gw_bits(x[i]), r, job->top, base);
    }
}

static void encode(const gw_coding *job, const float *x, size_t n, uint64_t first, uint8_t *payload,
                   gw_report *report)
{
    const block_job block = {job->kernels, job->random_key, gw_natural_top(job->dtype == GW_F16),
                             report};
    const int nine = gw_param(job->params, BITS) == 9;
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t m = n - at < BLOCK ? n - at : BLOCK;
        (nine ? encode9 : encode8)(&block, x + at, m, first + at, payload);
        payload += bytes(job->params, m);
    }
}

static gw_status validate(const gw_params *p, const uint8_t *payload, size_t payload_bytes,
                          uint64_t count, gw_why *why)
{
    (void)payload_bytes; /* follows from count */
    if (gw_param(p, BITS) == 9) {
        if (count % 8 != 0 && payload[bytes(p, count) - 1] >> count % 8 != 0) {
            return gw_fail(why, GW_ERR_CORRUPT, "natural: unused sign bits are not zero");
        }
        return GW_OK;
    }
    for (uint64_t at = 0; at < count; at += BLOCK) {
        const uint32_t base = payload[at + at / BLOCK];
        if (base < 1 || base > 128) {
            return gw_fail(why, GW_ERR_CORRUPT,
                           "natural: block at element %llu has base %u, not 1 to 128",
                           (unsigned long long)at, base);
        }
    }
    return GW_OK;
}

static void decode(const gw_coding *job, const uint8_t *payload, size_t n, gw_apply how, float *out)
{
    const gw_natural_kernels *kernels = job->kernels;
    const int nine = gw_param(job->params, BITS) == 9;
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t m = n - at < BLOCK ? n - at : BLOCK;
        if (nine) { /* the sign plane is a stream too short for the processor to foresee */
            gw_prefetch(payload + m, bytes(job->params, m), BLOCK / 8);
            kernels->decode9(payload, payload + m, m, how, out + at);
        } else {
            kernels->decode8(payload + 1, m, payload[0], how, out + at);
        }
        payload += bytes(job->params, m);
    }
}

extern const gw_codec gw_codec_natural;
const gw_codec gw_codec_natural = {
    .name = "natural",
    .doc = "unbiased rounding to powers of two",
    .params = params,
    .n_params = 1,
    .flags = flags,
    .grain = grain,
    .bytes = bytes,
    .validate = validate,
    .encode = encode,
    .decode = decode,
    .kernels = {NULL, &gw_natural_scalar, GW_AVX2(gw_natural_avx2), GW_AVX512(gw_natural_avx512),
                GW_NEON(gw_natural_neon)},
};
