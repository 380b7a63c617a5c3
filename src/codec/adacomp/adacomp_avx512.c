/* AdaComp, sixteen numbers at a time; the end of a bin by a mask. Bins of up to 64 elements stay in registers. */
#include "codec/adacomp/adacomp.h"

#include <immintrin.h>

/* The mask of the first n ≤ 16 lanes. */
static inline __mmask16 lanes(size_t n)
{
    return (__mmask16)(n < 16 ? (1u << n) - 1 : 0xFFFFu);
}

static inline __m512i abs16(__m512i bits)
{
    return _mm512_and_si512(bits, _mm512_set1_epi32((int)GW_ABS_MASK));
}

/* Asks for what comes some blocks later, into the second-level cache: the first has no room while blocks are worked on. */
GW_INLINE void ask_ahead(const float *x)
{
    enum { BYTES_AHEAD = 8192 };
    _mm_prefetch((const void *)((uintptr_t)x + BYTES_AHEAD), _MM_HINT_T1);
}

/* Sixteen keys, from i of the block on; the others zero. Writes G, takes |G| into *tops. */
GW_INLINE __m512i keys16(const gw_adacomp_block *b, int with_r, __mmask16 some, size_t i,
                         __m512i *tops)
{
    const __m512 g = _mm512_maskz_loadu_ps(some, b->g + i);
    const __m512 G = with_r ? _mm512_add_ps(g, _mm512_maskz_loadu_ps(some, b->r + i)) : g;
    const __m512 H = _mm512_add_ps(G, _mm512_mul_ps(g, _mm512_set1_ps(b->d)));
    const __m512i a = abs16(_mm512_castps_si512(G));
    *tops = _mm512_max_epu32(*tops, a);
    ask_ahead(b->g + i);
    if (with_r) {
        ask_ahead(b->r + i);
    }
    _mm512_mask_storeu_ps(b->G + i, some, G);
    /* the sign bit of G, the others of H */
    return _mm512_maskz_ternarylogic_epi32(_mm512_test_epi32_mask(a, a),
                                           _mm512_set1_epi32((int)GW_SIGN_BIT),
                                           _mm512_castps_si512(G), _mm512_castps_si512(H), 0xCA);
}

static inline __mmask16 marks16(__m512i keys, __m512i limit)
{
    return _mm512_cmpge_epu32_mask(abs16(keys), limit);
}

/* Entries of the elements marked in m, with one store whatever their number. */
GW_INLINE uint8_t *list16(uint8_t *out, __mmask16 m, __m512i keys, size_t first, uint32_t sign_at)
{
    const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512i sign =
        _mm512_and_si512(_mm512_srl_epi32(keys, _mm_cvtsi32_si128((int)(31 - sign_at))),
                         _mm512_set1_epi32(1 << sign_at));
    const __m512i index = _mm512_add_epi32(lane, _mm512_set1_epi32((int)first));
    const __m512i entries = _mm512_maskz_compress_epi32(m, _mm512_or_si512(index, sign));
    const size_t n = (size_t)__builtin_popcount(m);
    if (sign_at > 8) {
        _mm256_storeu_si256((__m256i *)(void *)out, _mm512_cvtepi32_epi16(entries));
        return out + 2 * n;
    }
    _mm_storeu_si128((__m128i *)(void *)out, _mm512_cvtepi32_epi8(entries));
    return out + n;
}

GW_INLINE uint32_t sums(const gw_adacomp_block *b, int with_r, size_t i, size_t n)
{
    __m512i tops = _mm512_setzero_si512();
    size_t j = 0;
    for (; j + 16 <= n; j += 16) {
        _mm512_storeu_si512(b->keys + j, keys16(b, with_r, 0xFFFF, i + j, &tops));
    }
    if (j < n) {
        const __mmask16 some = lanes(n - j);
        _mm512_mask_storeu_epi32(b->keys + j, some, keys16(b, with_r, some, i + j, &tops));
    }
    return _mm512_reduce_max_epu32(tops);
}

static inline uint64_t marks64(const uint32_t *keys, __m512i limit)
{
    const __mmask16 m0 = marks16(_mm512_loadu_si512(keys), limit);
    const __mmask16 m1 = marks16(_mm512_loadu_si512(keys + 16), limit);
    const __mmask16 m2 = marks16(_mm512_loadu_si512(keys + 32), limit);
    const __mmask16 m3 = marks16(_mm512_loadu_si512(keys + 48), limit);
    return _mm512_kunpackd(_mm512_kunpackw(m3, m2), _mm512_kunpackw(m1, m0));
}

/* Which of the four sixteens of a word have marks: four bits. */
static inline uint32_t any_of_four(uint64_t word)
{
    const uint64_t low = 0x7FFF7FFF7FFF7FFFu;
    const uint64_t some = (((word & low) + low) | word) >> 15 & 0x0001000100010001u;
    return (uint32_t)(some * 0x0001000200040008u >> 48 & 15);
}

/* A bin of any length: its maximum; then the marks of 512 elements, then of those the sixteens that have any. */
static uint8_t *one_bin(const gw_adacomp_block *b, size_t i, size_t n, uint32_t *top, uint8_t *out)
{
    *top = b->r != NULL ? sums(b, 1, i, n) : sums(b, 0, i, n);
    if (i == 0 || n < b->bin) {
        gw_adacomp_pad(b->keys, n);
    }
    const __m512i limit = _mm512_set1_epi32((int)gw_adacomp_limit(*top));
    for (size_t j = 0; j < n; j += 512) {
        uint64_t words[8];
        uint32_t some = 0;
        for (size_t k = 0; k < 8 && j + 64 * k < n; k++) {
            words[k] = marks64(b->keys + j + 64 * k, limit);
            some |= any_of_four(words[k]) << 4 * k;
            gw_adacomp_put(b->sent, b->at + i + j + 64 * k, words[k]);
        }
        for (; some != 0; some &= some - 1) {
            const size_t v = (size_t)__builtin_ctz(some);
            const __mmask16 bits = (__mmask16)(words[v / 4] >> v % 4 * 16);
            const __m512i keys = _mm512_loadu_si512(b->keys + j + 16 * v);
            out = list16(out, bits, keys, j + 16 * v, b->sign_at);
        }
    }
    return out;
}

/* The maximum, in every lane. */
static inline __m512i spread_max(__m512i v)
{
    v = _mm512_max_epu32(v, _mm512_shuffle_i64x2(v, v, 0x4E));
    v = _mm512_max_epu32(v, _mm512_shuffle_i64x2(v, v, 0xB1));
    v = _mm512_max_epu32(v, _mm512_shuffle_epi32(v, 0x4E));
    return _mm512_max_epu32(v, _mm512_shuffle_epi32(v, 0xB1));
}

/* Whole bins of 16 · vectors − 15 … 16 · vectors elements, below 64, with r: without a branch. */
GW_INLINE uint8_t *short_bins(const gw_adacomp_block *b, int vectors, size_t n, uint64_t *empty)
{
    const __mmask16 end = lanes(b->bin - 16 * (size_t)(vectors - 1));
    uint8_t *out = b->entries;
    uint32_t *tops = b->tops;
    for (size_t i = 0; i < n; i += b->bin) {
        __m512i keys[4], top = _mm512_setzero_si512();
        uint64_t word = 0;
        const uint8_t *before = out;
        for (int v = 0; v < vectors; v++) {
            keys[v] = keys16(b, 1, v + 1 < vectors ? 0xFFFF : end, i + 16 * (size_t)v, &top);
        }
        top = spread_max(top);
        *tops++ = (uint32_t)_mm512_cvtsi512_si32(top);
        const __m512i limit = _mm512_max_epu32(top, _mm512_set1_epi32(1)); /* gw_adacomp_limit */
        for (int v = 0; v < vectors; v++) {
            const __mmask16 bits = marks16(keys[v], limit);
            word |= (uint64_t)bits << 16 * v;
            out = list16(out, bits, keys[v], 16 * (size_t)v, 6);
        }
        gw_adacomp_put(b->sent, b->at + i, word);
        *empty += out == before;
        out = gw_adacomp_close(out, 6, (size_t)(out - before));
    }
    return out;
}

static size_t bins(const gw_adacomp_block *b, uint64_t *empty)
{
    const size_t quick = b->sign_at == 6 && b->r != NULL ? b->n / b->bin * b->bin : 0;
    uint8_t *out = quick == 0     ? b->entries
                   : b->bin <= 16 ? short_bins(b, 1, quick, empty)
                   : b->bin <= 32 ? short_bins(b, 2, quick, empty)
                   : b->bin <= 48 ? short_bins(b, 3, quick, empty)
                                  : short_bins(b, 4, quick, empty);
    uint32_t *tops = b->tops + quick / b->bin;
    for (size_t i = quick; i < b->n; i += b->bin) {
        const uint8_t *before = out;
        out = one_bin(b, i, b->n - i < b->bin ? b->n - i : b->bin, tops++, out);
        *empty += out == before;
        out = gw_adacomp_close(out, b->sign_at, (size_t)(out - before));
    }
    return (size_t)(out - b->entries);
}

static void write_past(float *dst, const float *src, size_t n)
{
    const size_t head = (0 - (uintptr_t)dst) % 64 / sizeof(float);
    size_t i = head < n ? head : n;
    memcpy(dst, src, i * sizeof(float));
    for (; i + 16 <= n; i += 16) {
        _mm512_stream_ps(dst + i, _mm512_loadu_ps(src + i));
    }
    memcpy(dst + i, src + i, (n - i) * sizeof(float));
}

const gw_adacomp_kernels gw_adacomp_avx512 = {bins, write_past};
