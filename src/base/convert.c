/* Scalar conversions, and the table of variants. */
#include "base/convert.h"

#include "base/divide.h"
#include "base/little_endian.h"

/* Payloads have no alignment, so halves and floats are moved by bytes. */
static float load(gw_dtype from, const uint8_t *src, size_t i)
{
    if (from == GW_F32) {
        return gw_float(gw_get_u32(src + 4 * i));
    }
    const uint16_t half = gw_get_u16(src + 2 * i);
    return from == GW_F16 ? gw_f32_from_f16(half) : gw_f32_from_bf16(half);
}

static void store(gw_dtype to, uint8_t *dst, size_t i, float v)
{
    if (to == GW_F32) {
        gw_put_u32(dst + 4 * i, gw_bits(v));
    } else {
        gw_put_u16(dst + 2 * i, to == GW_F16 ? gw_f16_from_f32(v) : gw_bf16_from_f32(v));
    }
}

static uint32_t narrow(gw_dtype to, const float *src, void *dst, size_t n)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t a = gw_bits(src[i]) & GW_ABS_MASK;
        largest = a > largest ? a : largest;
        store(to, dst, i, src[i]);
    }
    return largest;
}

static void widen(gw_dtype from, const void *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dst[i] = load(from, src, i);
    }
}

static void add(gw_dtype from, const void *src, float *dst, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dst[i] += load(from, src, i);
    }
}

static void sum(float *dst, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        dst[i] = a[i] + b[i];
    }
}

static void difference(float *dst, const float *a, const float *b, size_t n, int past,
                       const void *const next[2])
{
    (void)past;
    (void)next;
    for (size_t i = 0; i < n; i++) {
        dst[i] = a[i] - b[i];
    }
}

static uint32_t largest(const float *x, size_t n)
{
    uint32_t top = 0;
    for (size_t i = 0; i < n; i++) {
        const uint32_t a = gw_bits(x[i]) & GW_ABS_MASK;
        top = a > top ? a : top;
    }
    return top;
}

static int divide(float *dst, const float *src, size_t n, uint32_t by, int past)
{
    (void)past;
    if (dst != src && n != 0) {
        memcpy(dst, src, n * sizeof *dst);
    }
    return gw_divide(dst, n, by);
}

const gw_convert gw_convert_scalar = {narrow, widen, add, sum, difference, largest, divide};

const gw_convert *gw_convert_for(gw_isa isa)
{
    switch (isa) {
    case GW_ISA_SCALAR:
        return &gw_convert_scalar;
#ifdef GW_HAVE_AVX2
    case GW_ISA_AVX2:
        return &gw_convert_avx2;
#endif
#ifdef GW_HAVE_AVX512
    case GW_ISA_AVX512:
        return &gw_convert_avx512;
#endif
#ifdef GW_HAVE_NEON
    case GW_ISA_NEON:
        return &gw_convert_neon;
#endif
    default:
        return NULL;
    }
}
