/* The error of one bucket, for every instruction set: the core's formula in loops that the compiler makes vectors
 * of. Each number's squared error is fp32, relative to the scale's power of two; sums are fp64 in a fixed
 * order, so that every variant gives the same. */

enum { LANES = 8, STEP = 256 };

/* A power of two that brings the scale near 1, subnormals up to 2^-22. */
static inline float near_one(float scale)
{
    const uint32_t e = gw_bits(scale) >> GW_MANT_BITS;
    return gw_float((e < 1 ? 253 : e > 252 ? 1 : 254 - e) << GW_MANT_BITS);
}

GW_INLINE uint32_t level_of(const gw_bucket *b, float size, uint32_t r, int natural)
{
    return natural ? gw_ndither_level(size * b->pre, b->factor, b->levels, r)
                   : gw_dither_level(size * b->pre, b->factor, b->levels, r);
}

/* What a decoder makes of level k. */
GW_INLINE float value_of(const gw_bucket *b, uint32_t k, int natural)
{
    return b->scale *
           (natural ? gw_ndither_fraction(k, b->levels) : gw_dither_fraction(k, b->levels));
}

/* The expectation over r of the squared error, in units of 1/unit². Of 2^23 values of r as many round up as the
 * fraction of the fixed-point level says. */
GW_INLINE float expected(const gw_bucket *b, float x, float unit, int natural, int nearest)
{
    const float size = gw_float(gw_bits(x) & GW_ABS_MASK);
    const uint32_t mask = (1u << GW_MANT_BITS) - 1, middle = 1u << (GW_MANT_BITS - 1);
    const uint32_t low = level_of(b, size, nearest ? middle : 0, natural);
    const float below = (size - value_of(b, low, natural)) * unit;
    if (nearest) {
        return below * below;
    }
    const uint32_t high = level_of(b, size, mask, natural);
    const float above = (value_of(b, high, natural) - size) * unit;
    const uint32_t fixed = natural ? gw_ndither_fixed(size * b->pre, b->factor, b->levels)
                                   : gw_dither_fixed(size * b->pre, b->factor);
    const float up = (float)(int32_t)(fixed & mask) * 0x1p-23f;
    return (1.0f - up) * (below * below) + up * (above * above);
}

GW_INLINE double of_bucket(const gw_bucket *bucket, const float *x, size_t n, int natural,
                           int nearest)
{
    const gw_bucket b = *bucket; /* nothing written below can be part of it */
    const float unit = near_one(b.scale);
    double lane[LANES] = {0};
    float square[STEP];
    for (size_t at = 0; at < n; at += STEP) {
        const size_t m = n - at < STEP ? n - at : STEP;
        for (size_t i = 0; i < m; i++) {
            square[i] = expected(&b, x[at + i], unit, natural, nearest);
        }
        size_t i = 0;
        for (; i + LANES <= m; i += LANES) {
            for (size_t j = 0; j < LANES; j++) {
                lane[j] += (double)square[i + j];
            }
        }
        for (size_t j = 0; i + j < m; j++) {
            lane[j] += (double)square[i + j];
        }
    }
    for (size_t j = 1; j < LANES; j++) {
        lane[0] += lane[j];
    }
    return lane[0] / (double)unit / (double)unit;
}

static double dither(const gw_bucket *b, const float *x, size_t n)
{
    return of_bucket(b, x, n, 0, 0);
}

static double dither_nearest(const gw_bucket *b, const float *x, size_t n)
{
    return of_bucket(b, x, n, 0, 1);
}

static double ndither(const gw_bucket *b, const float *x, size_t n)
{
    return of_bucket(b, x, n, 1, 0);
}
