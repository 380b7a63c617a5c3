#include "support/gen.h"

#include "base/numeric.h"

#include <math.h>

uint64_t gen_u64(gen *g)
{
    uint64_t z = g->state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

uint32_t gen_below(gen *g, uint32_t n)
{
    return (uint32_t)(gen_u64(g) >> 32) % n;
}

double gen_uniform(gen *g)
{
    return (double)(gen_u64(g) >> 11) * 0x1p-53;
}

double gen_normal(gen *g)
{
    const double u = 1 - gen_uniform(g), v = gen_uniform(g);
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

static const char *const names[GEN_CONTENTS] = {
    "normal",     "large", "heavy", "sparse", "equal",       "powers",  "denormal",
    "tiny+large", "huge",  "zeros", "bits",   "finite bits", "one NaN", "one -inf"};

const char *gen_content_name(gen_content content)
{
    return names[content];
}

static float one(gen *g, gen_content content, float constant)
{
    const uint32_t bits = (uint32_t)gen_u64(g);
    switch (content) {
    case GEN_NORMAL:
    case GEN_ONE_NAN:
    case GEN_ONE_INF:
        return (float)(1e-3 * gen_normal(g));
    case GEN_LARGE:
        return (float)gen_normal(g);
    case GEN_HEAVY:
        return (float)(gen_normal(g) * pow(10, 4 - 12 * gen_uniform(g)));
    case GEN_SPARSE:
        return bits % 4 != 0 ? 0 : (float)(gen_normal(g) * 256);
    case GEN_EQUAL:
        return constant;
    case GEN_POWERS:
        return gw_float((bits & GW_SIGN_BIT) | (1 + bits % 254) << 23);
    case GEN_DENORMAL:
        return gw_float(bits & 0x807FFFFFu);
    case GEN_TINY_LARGE:
        return bits % 3 == 0 ? gw_float(bits & 0x807FFFFFu) : (float)(gen_normal(g) * 0x1p100);
    case GEN_HUGE:
        return gw_float((bits & 0x83FFFFFFu) | 0x7C000000u) * 0.5f;
    case GEN_ZEROS:
        return gw_float(bits & GW_SIGN_BIT);
    case GEN_FINITE_BITS:
        return gw_float((bits & GW_ABS_MASK) >= GW_INF_BITS ? bits & 0xBFFFFFFFu : bits);
    case GEN_BITS:
    case GEN_CONTENTS:
        break;
    }
    return gw_float(bits);
}

void gen_fill(gen *g, gen_content content, gw_dtype dtype, void *out, size_t n)
{
    const float constant = (float)(gen_normal(g) * pow(2, (double)gen_below(g, 80) - 40));
    const size_t special = n != 0 ? gen_below(g, (uint32_t)n) : 0;
    for (size_t i = 0; i < n; i++) {
        float v = one(g, content, constant);
        if (i == special && content == GEN_ONE_NAN) {
            v = gw_float(GW_NAN_BITS);
        } else if (i == special && content == GEN_ONE_INF) {
            v = gw_float(GW_INF_BITS | GW_SIGN_BIT);
        }
        if (dtype == GW_F32) {
            ((float *)out)[i] = v;
        } else {
            ((uint16_t *)out)[i] = dtype == GW_F16 ? gw_f16_from_f32(v) : gw_bf16_from_f32(v);
        }
    }
}
