/* Low rank's loops, 16 numbers at a time. */
#include "codec/lowrank/lowrank.h"

#include <immintrin.h>

typedef __m512 vec;
enum { LANES = 16 };

static inline vec load(const uint8_t *p)
{
    return _mm512_loadu_ps(p);
}

static inline void store(float *p, vec v)
{
    _mm512_storeu_ps(p, v);
}

/* Around the cache; p is aligned to the register. */
static inline void store_past(float *p, vec v)
{
    _mm512_stream_ps(p, v);
}

static inline vec splat(float x)
{
    return _mm512_set1_ps(x);
}

static inline vec plus(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}

static inline vec minus(vec a, vec b)
{
    return _mm512_sub_ps(a, b);
}

static inline vec times(vec a, vec b)
{
    return _mm512_mul_ps(a, b);
}

#include "codec/lowrank/lowrank_loops.h"

const gw_lowrank_kernels gw_lowrank_avx512 = {row, project, gather};
