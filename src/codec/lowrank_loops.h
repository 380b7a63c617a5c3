/* The one loop, compiled for each instruction set by the file that includes this: every element is a sum of
 * its own, so the compiler may put as many side by side as it likes. */
#include "codec/lowrank.h"

#include <string.h>

/* Elements side by side: two registers of the widest set. */
enum { WIDE = 32 };

GW_INLINE void apply(gw_lowrank_how how, float value, float *out)
{
    *out = how == GW_LOWRANK_SET ? value : how == GW_LOWRANK_ADD ? *out + value : *out - value;
}

/* Both factors may lie in a payload, of any alignment. */
GW_INLINE float number(const uint8_t *factor, size_t i)
{
    float x;
    memcpy(&x, factor + 4 * i, sizeof x);
    return x;
}

GW_INLINE void row_how(const uint8_t *left, const uint8_t *right, size_t stride, uint32_t rank,
                       size_t n, gw_lowrank_how how, float *restrict out)
{
    size_t j = 0;
    for (; j + WIDE <= n; j += WIDE) {
        float value[WIDE], q[WIDE];
        memcpy(q, right + 4 * j, sizeof q);
        for (int l = 0; l < WIDE; l++) {
            value[l] = number(left, 0) * q[l];
        }
        for (uint32_t k = 1; k < rank; k++) {
            const float p = number(left, k);
            memcpy(q, right + 4 * (k * stride + j), sizeof q);
            for (int l = 0; l < WIDE; l++) {
                value[l] += p * q[l];
            }
        }
        for (int l = 0; l < WIDE; l++) {
            apply(how, value[l], &out[j + (size_t)l]);
        }
    }
    for (; j < n; j++) {
        float value = number(left, 0) * number(right, j);
        for (uint32_t k = 1; k < rank; k++) {
            value += number(left, k) * number(right, k * stride + j);
        }
        apply(how, value, &out[j]);
    }
}

static void row(const uint8_t *left, const uint8_t *right, size_t stride, uint32_t rank, size_t n,
                gw_lowrank_how how, float *out)
{
    if (how == GW_LOWRANK_SET) {
        row_how(left, right, stride, rank, n, GW_LOWRANK_SET, out);
    } else if (how == GW_LOWRANK_ADD) {
        row_how(left, right, stride, rank, n, GW_LOWRANK_ADD, out);
    } else {
        row_how(left, right, stride, rank, n, GW_LOWRANK_TAKE, out);
    }
}
