/* The last thing that happens to a sum: it becomes the mean, and is looked at. */
#ifndef GW_BASE_DIVIDE_H
#define GW_BASE_DIVIDE_H

#include "base/numeric.h"

#include <gradwire/base.h>

#include <stddef.h>

/* Its top bit: x is not finite. An exponent of all ones carries into it. */
static inline uint32_t gw_carry_non_finite(float x)
{
    return (gw_bits(x) & GW_ABS_MASK) + 0x00800000u;
}

/* 1 if one of them is not finite. */
static inline int gw_any_non_finite(const float *x, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        bad |= gw_carry_non_finite(x[i]);
    }
    return bad >> 31 != 0;
}

/* The same of numbers of any dtype. */
static inline int gw_any_non_finite_of(gw_dtype dtype, const void *numbers, size_t n)
{
    if (dtype == GW_F32) {
        return gw_any_non_finite(numbers, n);
    }
    const uint16_t *x = numbers, carry = dtype == GW_F16 ? 0x0400 : 0x0080;
    uint16_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        bad |= (uint16_t)((x[i] & 0x7FFF) + carry);
    }
    return bad >> 15 != 0;
}

/* The smallest |bits| of an fp32 number that `dtype` rounds to infinity. */
static inline uint32_t gw_overflow_bits(gw_dtype dtype)
{
    return dtype == GW_F16 ? 0x477FF000u : dtype == GW_BF16 ? 0x7F7F8000u : GW_INF_BITS;
}

/* x / by, each rounded once; 1 if one of the results is not finite. */
static inline int gw_divide(float *x, size_t n, uint32_t by)
{
    uint32_t bad = 0;
    if (by == 1) {
        return gw_any_non_finite(x, n);
    }
    if ((by & (by - 1)) == 0) { /* a reciprocal that is exact: the same bits, sooner */
        const float factor = 1 / (float)by;
        for (size_t i = 0; i < n; i++) {
            x[i] *= factor;
            bad |= gw_carry_non_finite(x[i]);
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            x[i] /= (float)by;
            bad |= gw_carry_non_finite(x[i]);
        }
    }
    return bad >> 31 != 0;
}

#endif
