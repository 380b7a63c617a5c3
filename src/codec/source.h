/* What a selecting codec reads: G = g, or G = g + r with feedback, block by block in fp32. With feedback the
 * first reading of a block writes G to r′, where it stays until the codec has taken off what was sent. Without an r′
 * (error tables) every reading sums into scratch. */
#ifndef GW_SOURCE_H
#define GW_SOURCE_H

#include "base/convert.h"
#include "base/little_endian.h"
#include "codec/codec_impl.h"

/* Small enough to stay in the first-level cache while it is worked on. */
enum { GW_SOURCE_BLOCK = 2048 };

struct gw_source {
    const gw_convert *convert;
    const uint8_t *in; /* g */
    gw_dtype dtype;
    uint64_t count;
    const float *residual; /* r, or NULL */
    float *after;          /* r′, or NULL */
    float *scratch;  /* a block of floats for fp16 and bf16, and for r without r′; else NULL */
    int past;        /* r′ may be written around the cache: codec.c calls gw_stores_done */
    uint64_t summed; /* r′ holds G for the elements before this one */
};

/* g of `n` ≤ GW_SOURCE_BLOCK elements. In scratch for fp16 and bf16: gone at the next call. */
static inline const float *gw_source_gradient(const gw_source *s, uint64_t at, size_t n)
{
    if (s->dtype == GW_F32) {
        return (const float *)(const void *)s->in + at;
    }
    s->convert->widen(s->dtype, s->in + at * 2, s->scratch, n);
    return s->scratch;
}

/* G of `n` ≤ GW_SOURCE_BLOCK elements. The first reading goes through the tensor in order. */
static inline const float *gw_source_block(gw_source *s, uint64_t at, size_t n)
{
    if (s->after == NULL) {
        const float *g = gw_source_gradient(s, at, n);
        if (s->residual == NULL) {
            return g;
        }
        s->convert->sum(s->scratch, g, s->residual + at, n);
        return s->scratch;
    }
    if (at >= s->summed) {
        s->convert->sum(s->after + at, gw_source_gradient(s, at, n), s->residual + at, n);
        s->summed = at + n;
    }
    return s->after + at;
}

/* What gw_source_block would sum, for a codec that does so itself, in order, and leaves G in r′. Without
 * feedback r and r′ are NULL. */
static inline gw_fed_block gw_source_feedback(gw_source *s, uint64_t at, size_t n)
{
    const float *g = gw_source_gradient(s, at, n);
    const uint64_t next = at + n < s->count ? at + n : at;
    s->summed = at + n;
    return (gw_fed_block){.g = g,
                          .r = s->residual != NULL ? s->residual + at : NULL,
                          .after = s->after != NULL ? s->after + at : NULL,
                          .past = s->past,
                          .next = {s->in + next * gw_dtype_size(s->dtype),
                                   s->residual != NULL ? (const void *)(s->residual + next) : g}};
}

/* G of one element. */
static inline float gw_source_one(const gw_source *s, uint64_t i)
{
    float g;
    if (s->after != NULL && i < s->summed) {
        return s->after[i];
    }
    g = s->dtype == GW_F32   ? ((const float *)(const void *)s->in)[i]
        : s->dtype == GW_F16 ? gw_f32_from_f16(gw_get_u16(s->in + 2 * i))
                             : gw_f32_from_bf16(gw_get_u16(s->in + 2 * i));
    return s->residual != NULL ? g + s->residual[i] : g;
}

/* Elements of the block that begins at `at`. */
static inline size_t gw_source_left(const gw_source *s, uint64_t at)
{
    return s->count - at < GW_SOURCE_BLOCK ? (size_t)(s->count - at) : GW_SOURCE_BLOCK;
}

#endif
