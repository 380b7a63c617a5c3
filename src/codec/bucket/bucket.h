/* Buckets of packed codes: what `dither` and `ndither` share (docs/wire-format.md 3.4, numerics.md 4).
 * The two differ in how a number becomes a level and a level a number; each says so in its core.
 *
 * The walk over buckets is written once, in bucket_walk.h, and compiled for every instruction set
 * with that set's loops over one bucket. */
#ifndef GW_BUCKET_H
#define GW_BUCKET_H

#include "base/little_endian.h"
#include "base/random.h"
#include "codec/bucket/bucket_core.h"
#include "codec/codec_impl.h"

/* How one bucket is quantised. */
typedef struct gw_bucket {
    uint32_t bits, levels;    /* levels = 2^(bits−1) − 1, called s in the docs */
    int nearest;              /* r is the middle for all */
    float scale, pre, factor; /* S, P and h of numerics.md */
} gw_bucket;

typedef struct gw_bucket_kernels {
    void (*encode)(const gw_coding *job, const float *x, size_t n, uint64_t first, uint8_t *payload,
                   gw_report *report);
    void (*decode)(const gw_coding *job, const uint8_t *payload, size_t n, gw_apply how,
                   float *out);
} gw_bucket_kernels;

extern const gw_bucket_kernels gw_dither_scalar, gw_ndither_scalar;
#ifdef GW_HAVE_AVX2
extern const gw_bucket_kernels gw_dither_avx2, gw_ndither_avx2;
#endif
#ifdef GW_HAVE_AVX512
extern const gw_bucket_kernels gw_dither_avx512, gw_ndither_avx512;
#endif
#ifdef GW_HAVE_NEON
extern const gw_bucket_kernels gw_dither_neon, gw_ndither_neon;
#endif

#define GW_BUCKET_BITS_PARAM                                                                       \
    {                                                                                              \
        "bits", "bits an element, sign included", 2, 8, 4, NULL, 0                                 \
    }
#define GW_BUCKET_SIZE_PARAM                                                                       \
    {                                                                                              \
        "bucket", "elements that share one scale, a power of two", 64, 8192, 512, NULL, 0          \
    }
#define GW_BUCKET_NORM_PARAM                                                                       \
    {                                                                                              \
        "norm", "what the scale is", 0, 1, 0, gw_bucket_norm_words, 0                              \
    }
extern const char *const gw_bucket_norm_words[];

/* The descriptor's functions. */
gw_status gw_bucket_check(const gw_params *p, gw_why *why);
size_t gw_bucket_grain(const gw_params *p);
uint64_t gw_bucket_bytes(const gw_params *p, uint64_t count);
gw_status gw_bucket_validate(const gw_params *p, const uint8_t *payload, size_t payload_bytes,
                             uint64_t count, gw_why *why);
void gw_bucket_encode(const gw_coding *job, const float *x, size_t n, uint64_t first,
                      uint8_t *payload, gw_report *report);
void gw_bucket_decode(const gw_coding *job, const uint8_t *payload, size_t n, gw_apply how,
                      float *out);

/* The bucket's scale. The lanes are an array the compiler makes vectors of; their order is fixed. */
static inline float gw_bucket_scale(const float *x, size_t n, uint32_t top, int euclidean,
                                    float most)
{
    if (!euclidean) {
        return gw_float(top);
    }
    const float pre = gw_bucket_square_pre(top);
    float lane[GW_BUCKET_LANES] = {0};
    size_t i = 0;
    for (; i + GW_BUCKET_LANES <= n; i += GW_BUCKET_LANES) {
        for (size_t j = 0; j < GW_BUCKET_LANES; j++) {
            const float v = x[i + j] * pre;
            lane[j] += v * v;
        }
    }
    for (size_t j = 0; i + j < n; j++) {
        const float v = x[i + j] * pre;
        lane[j] += v * v;
    }
    return gw_bucket_norm(lane, pre, top, most);
}

static inline uint32_t gw_bucket_random(const gw_bucket *b, gw_random_pair k, uint64_t index)
{
    return b->nearest ? 1u << (GW_MANT_BITS - 1) : gw_random_r23(k, index);
}

/* How far ahead of the codes being made memory is asked for: behind the next bucket, whose maximum
 * is already known. Without it memory idles while codes are made, and codes wait while it is read. */
static inline size_t gw_bucket_ahead(size_t n)
{
    const size_t two = 2 * n * sizeof(float);
    return two > 4096 ? two : 4096;
}

/* A string of codes, least significant bit first, written and read one after the other. */
typedef struct gw_code_string {
    uint64_t held; /* bits not yet written, or read and not yet taken */
    uint32_t n_held;
} gw_code_string;

static inline uint8_t *gw_code_put(gw_code_string *s, uint8_t *out, uint32_t bits, uint32_t code)
{
    s->held |= (uint64_t)code << s->n_held;
    for (s->n_held += bits; s->n_held >= 8; s->n_held -= 8) {
        *out++ = (uint8_t)s->held;
        s->held >>= 8;
    }
    return out;
}

static inline void gw_code_flush(const gw_code_string *s, uint8_t *out)
{
    if (s->n_held != 0) {
        *out = (uint8_t)s->held;
    }
}

static inline uint32_t gw_code_take(gw_code_string *s, const uint8_t **in, uint32_t bits)
{
    for (; s->n_held < bits; s->n_held += 8) {
        s->held |= (uint64_t) * (*in)++ << s->n_held;
    }
    const uint32_t code = (uint32_t)s->held & ((1u << bits) - 1);
    s->held >>= bits;
    s->n_held -= bits;
    return code;
}

/* The used bytes of `n` 64-bit fields, `bits` each, moved together. Fields are stored eight bytes at a
 * time, each store's surplus overwritten by the next. Narrow fields are joined in pairs first, so
 * that a surplus never reaches beyond the last field. */
GW_INLINE void gw_fields_store(const uint64_t *field, size_t n, uint32_t bits, uint8_t *out)
{
    const size_t join = bits < 4 ? 2 : 1, step = join * bits;
    for (size_t i = 0; i < n / join; i++) {
        const uint64_t pair = join == 2 ? field[2 * i] | field[2 * i + 1] << 8 * bits : field[i];
        memcpy(out + i * step, &pair, i + 1 < n / join ? 8 : step);
    }
}

/* Field i of `n`, and back; reads nothing outside of the fields: the last one is taken from the eight
 * bytes that end with it. Bits above a field are anything. */
GW_INLINE long long gw_field_load(const uint8_t *in, size_t i, size_t n, uint32_t bits)
{
    const size_t join = bits < 4 ? 2 : 1, step = join * bits;
    const int last = i / join + 1 == n / join;
    uint64_t pair;
    memcpy(&pair, last ? in + n * bits - 8 : in + i / join * step, 8);
    pair = last ? pair >> (64 - 8 * step) : pair;
    return (long long)(join == 2 && i % 2 == 1 ? pair >> 8 * bits : pair);
}

#endif
