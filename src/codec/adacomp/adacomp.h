/* AdaComp's inner loops. */
#ifndef GW_ADACOMP_H
#define GW_ADACOMP_H

#include "codec/adacomp/adacomp_core.h"
#include "codec/codec_impl.h"

/* Whole bins, few enough to stay in the first-level cache, and where their parts go. */
typedef struct gw_adacomp_block {
    const float *g, *r; /* r may be NULL: then G = g */
    float *G;           /* n numbers, written; may be g */
    uint32_t *keys;     /* scratch of one bin: its keys, and zeros up to a multiple of 64 */
    uint32_t *tops;     /* written: the largest |bits| of G of each bin */
    uint64_t *sent;   /* bitmap of the tensor; no bit from `at` on is set, also in the word after */
    uint8_t *entries; /* written: entries of the payload's form 0 */
    uint64_t at;      /* index of the first element */
    size_t n, bin;    /* elements of the block, of a bin; only the last bin may be shorter */
    float d;          /* factor less one */
    uint32_t sign_at; /* bit of an entry: 6, then entries are bytes, or 14, then they have two */
} gw_adacomp_block;

/* Bytes that `bins` may write behind the last entry, and then does not count. */
enum { GW_ADACOMP_SLACK = 64 };

typedef struct gw_adacomp_kernels {
    /* Does a block; returns the bytes of its entries, and adds the bins without any to *empty. */
    size_t (*bins)(const gw_adacomp_block *block, uint64_t *empty);
    /* dst = src around the cache; NULL where the instruction set has no such stores. */
    void (*write_past)(float *dst, const float *src, size_t n);
} gw_adacomp_kernels;

extern const gw_adacomp_kernels gw_adacomp_scalar;
#ifdef GW_HAVE_AVX2
extern const gw_adacomp_kernels gw_adacomp_avx2;
#endif
#ifdef GW_HAVE_AVX512
extern const gw_adacomp_kernels gw_adacomp_avx512;
#endif
#ifdef GW_HAVE_NEON
extern const gw_adacomp_kernels gw_adacomp_neon;
#endif

/* Form 0 of the payload, without its header, and the scale taken off r′; returns its bytes. For the
 * codec itself, and for tests, which ask for this form where the bitmap would be shorter. */
size_t gw_adacomp_entries(const gw_params *p, gw_source *source, const uint64_t *sent, float scale,
                          uint8_t *begin);

/* What a bin's vectors leave over: writes G and keys of its elements j … n − 1, i being the bin's first in the block;
 * returns the largest |bits| of G. */
static inline uint32_t gw_adacomp_tail(const gw_adacomp_block *b, size_t i, size_t j, size_t n)
{
    uint32_t largest = 0;
    for (; j < n; j++) {
        const float g = b->g[i + j], G = b->r != NULL ? g + b->r[i + j] : g;
        const uint32_t a = gw_bits(G) & GW_ABS_MASK;
        largest = a > largest ? a : largest;
        b->keys[j] = gw_adacomp_key(G, g, b->d);
        b->G[i + j] = G;
    }
    return largest;
}

/* Zeros, of which none is sent, behind n keys. Bins of one length share them. */
static inline void gw_adacomp_pad(uint32_t *keys, size_t n)
{
    memset(keys + n, 0, (0 - n) % 64 * sizeof *keys);
}

/* Sets bits from `at` on to `bits`, and to zero those behind in the next word, which is always there. */
static inline void gw_adacomp_put(uint64_t *sent, uint64_t at, uint64_t bits)
{
    const uint32_t shift = (uint32_t)(at % 64);
    sent[at / 64] |= bits << shift;
    sent[at / 64 + 1] = bits >> 1 >> (63 - shift);
}

/* Ends a bin of `n` entries behind which `out` points: last mark, or an entry that says empty. */
static inline uint8_t *gw_adacomp_close(uint8_t *out, uint32_t sign_at, size_t n)
{
    if (n > 0) {
        out[-1] |= 0x80;
        return out;
    }
    if (sign_at > 8) {
        *out++ = 0xFF;
    }
    *out++ = 0xBF; /* index all ones, sign 0, last */
    return out;
}

#endif
