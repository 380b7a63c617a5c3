/* Natural compression of one number: docs/numerics.md section 3. The random mantissa carries into the
 * exponent with exactly the right probability, so rounding is one addition. */
#ifndef GW_NATURAL_CORE_H
#define GW_NATURAL_CORE_H

#include "base/numeric.h"

enum { GW_NATURAL_BLOCK = 4096 };
#define GW_NATURAL_NON_FINITE 255u

/* Largest biased exponent of a power of two that the tensor's own dtype holds. */
GW_HD static inline uint32_t gw_natural_top(int is_f16)
{
    return is_f16 ? 142 : 254;
}

/* The biased exponent of the rounded magnitude, 0 … top, or GW_NATURAL_NON_FINITE. r has 23 bits. */
GW_HD static inline uint32_t gw_natural_exponent(uint32_t bits, uint32_t r, uint32_t top)
{
    const uint32_t a = bits & GW_ABS_MASK;
    const uint32_t e = (a + r) >> GW_MANT_BITS;
    return a >= GW_INF_BITS ? GW_NATURAL_NON_FINITE : e < top ? e : top;
}

/* The expectation over r of the squared error of a finite |x|, whose pattern is `a`. */
GW_HD static inline double gw_natural_expected(uint32_t a, uint32_t top)
{
    const uint32_t e = a >> GW_MANT_BITS, low = e < top ? e : top, high = e < top ? e + 1 : top;
    const double up = (double)(a & 0x7FFFFFu) * 0x1p-23;
    const double below = (double)gw_float(a) - (double)gw_float(low << GW_MANT_BITS);
    const double above = (double)gw_float(high << GW_MANT_BITS) - (double)gw_float(a);
    return (1.0 - up) * (below * below) + up * (above * above);
}

/* The base of a block whose largest rounded finite exponent is `largest`. */
GW_HD static inline uint32_t gw_natural_base(uint32_t largest)
{
    return largest > 127 ? largest - 126 : 1;
}

/* The 8-bit code: sign and level 0 … 127, or 0x80 for a non-finite number. */
GW_HD static inline uint8_t gw_natural_code(uint32_t bits, uint32_t r, uint32_t top, uint32_t base)
{
    const uint32_t a = bits & GW_ABS_MASK, e = a >> GW_MANT_BITS;
    uint32_t level;
    if (a >= GW_INF_BITS) {
        return 0x80;
    }
    if (e >= base || base == 1) {
        level = gw_natural_exponent(bits, r, top) - base + 1;
    } else { /* below the range: round between zero and the smallest level */
        const uint32_t mantissa = a & 0x7FFFFFu;
        const uint32_t full = e != 0 ? mantissa | 0x800000u : mantissa;
        const uint32_t shift = base - (e != 0 ? e : 1);
        level = ((full >> (shift < 31 ? shift : 31)) + r) >> GW_MANT_BITS;
    }
    return (uint8_t)(level == 0 ? 0 : level | (bits >> 24 & 0x80));
}

GW_HD static inline float gw_natural_value9(uint32_t exponent, uint32_t sign)
{
    return gw_float(sign << 31 | exponent << GW_MANT_BITS);
}

GW_HD static inline float gw_natural_value8(uint8_t code, uint32_t base)
{
    const uint32_t level = code & 0x7Fu;
    if (level == 0) {
        return gw_float(code == 0 ? 0 : GW_NAN_BITS);
    }
    return gw_float((uint32_t)(code & 0x80) << 24 | (level + base - 1) << GW_MANT_BITS);
}

#endif
