/* Low rank's loops, 4 numbers at a time. */
#include "codec/lowrank/lowrank.h"

#include <arm_neon.h>

typedef float32x4_t vec;
enum { LANES = 4 };

static inline vec load(const uint8_t *p)
{
    return vreinterpretq_f32_u8(vld1q_u8(p));
}

static inline void store(float *p, vec v)
{
    vst1q_f32(p, v);
}

/* Around the cache; p is aligned to the register. */
static inline void store_past(float *p, vec v)
{
    store(p, v);
}

static inline vec splat(float x)
{
    return vdupq_n_f32(x);
}

static inline vec plus(vec a, vec b)
{
    return vaddq_f32(a, b);
}

static inline vec minus(vec a, vec b)
{
    return vsubq_f32(a, b);
}

static inline vec times(vec a, vec b)
{
    return vmulq_f32(a, b);
}

#include "codec/lowrank/lowrank_loops.h"

const gw_lowrank_kernels gw_lowrank_neon = {row, project, gather};
