/* natural on the device: one thread block a block of 4096, whose numbers stay in registers while their largest
 * exponent is found.
 *
 * The fast path rounds with one addition on u = 2|bits|, without its sign: u's top byte is the exponent, and the random
 * word's top 24 bits are added (of which the last is too low to carry). Threads that own a number which is not finite, overflows or
 * lies below an 8-bit block's range are done again by the core. */
#include "codec/cuda_decode.h"
#include "codec/natural_core.h"

/* Names of templates are the linker's business too: they stay in this file. */
namespace
{
enum { BITS, THREADS = 256, WARPS = THREADS / 32, BLOCK = GW_NATURAL_BLOCK };
static_assert((int)BLOCK == (int)GW_TILE, "a thread block is a block");

/* The two elements of a random word. */
GW_DEVICE uint32_t first_of(uint32_t word)
{
    return word >> 8;
}

GW_DEVICE uint32_t second_of(uint32_t word)
{
    return __byte_perm(word, 0, 0x4103); /* rotated by 16, then shifted by 8 */
}

/* u of the thread's numbers, rounded; returns the largest. */
GW_DEVICE uint32_t round_all(uint32_t u[GW_OWN], const float x[GW_OWN], gw_random_pair k,
                             uint64_t index)
{
    uint32_t top = 0;
#pragma unroll
    for (int p = 0; p < 2; p++) {
        const uint32_t number =
            gw_random_number(index + gw_quad_at<GW_IN_PAIRS>(threadIdx.x, 2 * p));
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t word = gw_random_word(k, number + (uint32_t)j);
            const int a = 8 * p + j, b = a + 4;
            const uint32_t two_a = gw_bits(x[a]) << 1, two_b = gw_bits(x[b]) << 1;
            u[a] = (two_a < 0xFF000000u ? two_a : 0xFF000000u) + first_of(word);
            u[b] = (two_b < 0xFF000000u ? two_b : 0xFF000000u) + second_of(word);
            top = u[a] > top ? u[a] : top;
            top = u[b] > top ? u[b] : top;
        }
    }
    return top;
}

/* The top bytes of four words. */
GW_DEVICE uint32_t top_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    return __byte_perm(__byte_perm(a, b, 0x0073), __byte_perm(c, d, 0x0073), 0x5410);
}

GW_DEVICE uint32_t exponents_of(const uint32_t u[4])
{
    return top_bytes(u[0], u[1], u[2], u[3]);
}

/* 0x80 in every byte whose exponent is not zero and whose number is negative; *some: where it is not zero. */
GW_DEVICE uint32_t signs_of(const float x[4], uint32_t exponents, uint32_t *some)
{
    *some = (((exponents & 0x7F7F7F7Fu) + 0x7F7F7F7Fu) | exponents) & 0x80808080u;
    return top_bytes(gw_bits(x[0]), gw_bits(x[1]), gw_bits(x[2]), gw_bits(x[3])) & *some;
}

/* Four codes of numbers that are all zero or in the range of base. */
GW_DEVICE uint32_t fold(const float x[4], const uint32_t u[4], uint32_t less)
{
    uint32_t some;
    const uint32_t exponents = exponents_of(u), signs = signs_of(x, exponents, &some);
    const uint32_t all = some | (some - (some >> 7)); /* 0xFF where it is not zero */
    return (exponents - (less & all)) | signs;
}

/* r′ of the fast path: x less the power of two it was rounded to. */
GW_DEVICE void take_off(float x[GW_OWN], const uint32_t u[GW_OWN])
{
#pragma unroll
    for (int i = 0; i < GW_OWN; i++) {
        const uint32_t y = u[i] >> 1 & GW_INF_BITS;
        x[i] = x[i] - gw_float(y != 0 ? y | (gw_bits(x[i]) & GW_SIGN_BIT) : 0);
    }
}

/* What the slow path needs of one of the thread's numbers; it reads them again, so that the fast path's registers are its
 * own. 0 behind the end. */
typedef struct odd_one {
    uint32_t at; /* in the tile */
    uint32_t bits, r;
} odd_one;

GW_DEVICE int look_again(odd_one *o, int i, const gw_span_shared &s, const gw_span_in &t,
                         uint64_t at, uint32_t m)
{
    const uint64_t index = t.first + at;
    o->at = gw_quad_at<GW_IN_PAIRS>(threadIdx.x, i / 4) + (uint32_t)i % 4;
    if (o->at >= m) {
        return 0;
    }
    o->bits = gw_bits(gw_one_source(s, t, at + o->at));
    o->r = gw_random_r23(gw_random_pair_at(t.key, index), index + o->at);
    return 1;
}

/* A thread with an odd number: counts, and returns the largest exponent of the finite ones. */
GW_DEVICE uint32_t count_odd(const gw_span_shared &s, const gw_span_in &t, uint64_t at, uint32_t m,
                             uint32_t top)
{
    uint32_t largest = 0;
    uint64_t non_finite = 0, overflowed = 0;
#pragma unroll 1
    for (int i = 0; i < GW_OWN; i++) {
        odd_one o;
        if (!look_again(&o, i, s, t, at, m)) {
            continue;
        }
        const uint32_t e = gw_natural_exponent(o.bits, o.r, top);
        const int odd = e == GW_NATURAL_NON_FINITE;
        non_finite += odd;
        overflowed += !odd && ((o.bits & GW_ABS_MASK) + o.r) >> GW_MANT_BITS > top;
        largest = !odd && e > largest ? e : largest;
    }
    gw_count(&t.result->non_finite, non_finite);
    gw_count(&t.result->overflowed, overflowed);
    return largest;
}

GW_DEVICE uint32_t block_max(uint32_t v, uint32_t *shared)
{
    const uint32_t of_warp = __reduce_max_sync(0xFFFFFFFFu, v);
    if (threadIdx.x % 32 == 0) {
        shared[threadIdx.x / 32] = of_warp;
    }
    __syncthreads();
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < WARPS; i++) {
        top = shared[i] > top ? shared[i] : top;
    }
    return top;
}

/* A thread's codes, and r′, by the core. */
template <int FEEDBACK>
GW_DEVICE void codes_by_core(uint8_t *codes, const gw_span_shared &s, const gw_span_in &t,
                             uint64_t at, uint32_t m, uint32_t limit, uint32_t base)
{
#pragma unroll 1
    for (int i = 0; i < GW_OWN; i++) {
        odd_one o;
        if (!look_again(&o, i, s, t, at, m)) {
            continue;
        }
        const uint8_t code = gw_natural_code(o.bits, o.r, limit, base);
        codes[o.at] = code;
        if (FEEDBACK) {
            t.after[at + o.at] = gw_float(o.bits) - gw_natural_value8(code, base);
        }
    }
}

/* bits=8. The image begins with the base in the last byte of its first word, so that codes are words. */
template <int FEEDBACK>
GW_DEVICE void encode8(float x[GW_OWN], const gw_span_shared &s, const gw_span_in &t, uint64_t at,
                       uint32_t m, gw_random_pair k)
{
    __shared__ uint32_t image[BLOCK / 4 + 2], tops[2][WARPS];
    const uint64_t index = t.first + at;
    const uint32_t limit = gw_natural_top(s.dtype == GW_F16);
    uint32_t u[GW_OWN];
    const uint32_t mine = round_all(u, x, k, index);
    uint32_t largest = block_max(mine, tops[0]) >> 24;
    int by_core = 0;
    if (largest > limit) { /* all threads of the block */
        by_core = mine >> 24 > limit;
        largest = block_max(by_core ? count_odd(s, t, at, m, limit) : mine >> 24, tops[1]);
    }
    const uint32_t base = gw_natural_base(largest);
    if (base > 1) {
        const uint32_t low = (base << GW_MANT_BITS) - 1;
#pragma unroll
        for (int i = 0; i < GW_OWN; i++) {
            by_core |= (gw_bits(x[i]) & GW_ABS_MASK) - 1 < low; /* not for zero */
        }
    }
    if (by_core) {
        codes_by_core<FEEDBACK>((uint8_t *)(image + 1), s, t, at, m, limit, base);
    } else {
        const uint32_t less = (base - 1) * 0x01010101u;
#pragma unroll
        for (int q = 0; q < 4; q++) {
            image[1 + gw_quad_at<GW_IN_PAIRS>(threadIdx.x, q) / 4] =
                fold(x + 4 * q, u + 4 * q, less);
        }
        if (FEEDBACK) {
            take_off(x, u);
            gw_write_quads<GW_IN_PAIRS>(x, t.after, GW_F32, at, m, s.tile);
        }
    }
    if (threadIdx.x == 0) {
        image[0] = base << 24;
    }
    __syncthreads();
    gw_copy_out(t.payload + at + at / BLOCK, image, 3, m == 0 ? 0 : 1 + m, threadIdx.x, THREADS);
}

/* bits=9, a thread's exponents, and r′, by the core; returns the quads' signs, one in each byte. */
template <int FEEDBACK>
GW_DEVICE uint32_t exponents_by_core(uint8_t *exponents, const gw_span_shared &s,
                                     const gw_span_in &t, uint64_t at, uint32_t m, uint32_t limit)
{
    uint32_t nibbles = 0;
#pragma unroll 1
    for (int i = 0; i < GW_OWN; i++) {
        odd_one o;
        if (!look_again(&o, i, s, t, at, m)) {
            continue;
        }
        const uint32_t e = gw_natural_exponent(o.bits, o.r, limit),
                       sign = e != 0 ? o.bits >> 31 : 0;
        exponents[o.at] = (uint8_t)e;
        nibbles |= sign << (i / 4 * 8 + i % 4);
        if (FEEDBACK) {
            t.after[at + o.at] = gw_float(o.bits) - gw_natural_value9(e, sign);
        }
    }
    return nibbles;
}

/* bits=9: exponents, then signs; no number needs to know another. */
template <int FEEDBACK>
GW_DEVICE void encode9(float x[GW_OWN], const gw_span_shared &s, const gw_span_in &t, uint64_t at,
                       uint32_t m)
{
    __shared__ uint32_t image[BLOCK / 4 + BLOCK / 32 + 2];
    const uint64_t index = t.first + at;
    const uint32_t limit = gw_natural_top(s.dtype == GW_F16), lane = threadIdx.x % 32;
    uint32_t u[GW_OWN], nibbles = 0; /* signs of a quad in each byte */
    if (round_all(u, x, gw_random_pair_at(t.key, index), index) >> 24 > limit) {
        (void)count_odd(s, t, at, m, limit);
        nibbles = exponents_by_core<FEEDBACK>((uint8_t *)image, s, t, at, m, limit);
    } else {
#pragma unroll
        for (int q = 0; q < 4; q++) {
            uint32_t some;
            const uint32_t exponents = exponents_of(u + 4 * q);
            const uint32_t signs = signs_of(x + 4 * q, exponents, &some);
            image[gw_quad_at<GW_IN_PAIRS>(threadIdx.x, q) / 4] = exponents;
            nibbles |= (signs * 0x00204081u >> 28) << 8 * q; /* bits 7, 15, 23, 31 to 28 … 31 */
        }
        if (FEEDBACK) {
            take_off(x, u);
            gw_write_quads<GW_IN_PAIRS>(x, t.after, GW_F32, at, m, s.tile);
        }
    }
    /* Neighbours have quads side by side: of the four octets each writes two. */
    const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, nibbles, 1);
    const uint32_t octets = lane % 2 == 0 ? nibbles | other << 4 : other | nibbles << 4;
    if (m != BLOCK) {
        __syncthreads(); /* exponents behind the end lie where the signs go */
    }
#pragma unroll
    for (uint32_t q = 0; q < 2; q++) {
        const uint32_t which = lane % 2 * 2 + q; /* quads 0 and 1, or 2 and 3 */
        const uint32_t quad =
            gw_quad_at<GW_IN_PAIRS>(threadIdx.x & ~1u, 0) + lane % 2 * 256 + q * 16;
        ((uint8_t *)image)[m + quad / 8] = (uint8_t)(octets >> 8 * which);
    }
    __syncthreads();
    gw_copy_out(t.payload + at + at / 8, image, 0, m + (m + 7) / 8, threadIdx.x, THREADS);
}

template <int N, int FEEDBACK, int NINE>
__global__ void __launch_bounds__(THREADS, FEEDBACK ? 4 : 5)
    encode_kernel(const __grid_constant__ gw_encode_batch<N> batch)
{
    uint64_t at;
    const gw_span_in &t = batch.tensor[gw_find_tile(batch, &at)];
    const uint32_t m = gw_span_left(t.count, at, BLOCK);
    float x[GW_OWN];
    gw_read_source<GW_IN_PAIRS, FEEDBACK>(x, batch.s, t, at, m);
    if (NINE) {
        encode9<FEEDBACK>(x, batch.s, t, at, m);
    } else {
        encode8<FEEDBACK>(x, batch.s, t, at, m, gw_random_pair_at(t.key, t.first + at));
    }
    if (at == 0 && threadIdx.x == 0) {
        t.result->written = t.bytes;
    }
}

/* bits=8 without feedback: a block goes over some blocks of the wire, reading the next while it works on one. Between two
 * of them no barrier is needed: encode8's first stands between this one's image and the next one's. */
enum { STREAM = 4 };

template <int N>
__global__ void __launch_bounds__(THREADS, 4)
    stream_kernel(const __grid_constant__ gw_encode_batch<N> batch)
{
    uint64_t at;
    const gw_span_shared &s = batch.s;
    const gw_span_in &t = batch.tensor[gw_find_tile(batch, &at)];
    const uint64_t stop = t.count < at + s.tile ? t.count : at + s.tile;
    uint64_t era = (t.first + at) >> 33;
    gw_random_pair k = gw_random_pair_at(t.key, t.first + at);
    float next[GW_OWN];
    if (at == 0 && threadIdx.x == 0) {
        t.result->written = t.bytes;
    }
    gw_read_quads<GW_IN_PAIRS>(next, t.in, s.dtype, at, gw_span_left(stop, at, BLOCK), BLOCK);
#pragma unroll 1
    for (; at < stop; at += BLOCK) {
        float x[GW_OWN];
#pragma unroll
        for (int i = 0; i < GW_OWN; i++) {
            x[i] = next[i];
        }
        if (at + BLOCK < stop) {
            gw_read_quads<GW_IN_PAIRS>(next, t.in, s.dtype, at + BLOCK,
                                       gw_span_left(stop, at + BLOCK, BLOCK), BLOCK);
        }
        k.k0 = gw_afresh(k.k0);
        k.k1 = gw_afresh(k.k1);
        if ((t.first + at) >> 33 != era) {
            era = (t.first + at) >> 33;
            k = gw_random_pair_at(t.key, t.first + at);
        }
        encode8<0>(x, s, t, at, gw_span_left(stop, at, BLOCK), k);
    }
}

/* Four codes added to four sums. A code's value is that of base 1 times a power of two, which is exact, so that one rounding
 * is left; zero stays zero by itself. */
GW_DEVICE void add_codes(float sum[4], uint32_t codes, float unit)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t top = codes << (24 - 8 * j);
        sum[j] = fmaf(gw_float((uint32_t)((int32_t)top >> 1) & 0xBF800000u), unit, sum[j]);
    }
}

/* The thread's codes of a payload added; 0 if the base is none. */
GW_DEVICE int add_eight(float sum[GW_OWN], const uint32_t codes[4], uint32_t base)
{
    uint32_t odd = 0;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        odd |= codes[q] & ~((codes[q] & 0x7F7F7F7Fu) + 0x7F7F7F7Fu); /* 0x80: not finite */
    }
    if (base < 1 || base > 128) {
        gw_all_nan(sum);
        return 0;
    }
    if ((odd & 0x80808080u) != 0) {
#pragma unroll
        for (int i = 0; i < GW_OWN; i++) {
            sum[i] += gw_natural_value8((uint8_t)(codes[i / 4] >> 8 * (i % 4)), base);
        }
        return 1;
    }
    const float unit = gw_float((base + 126) << GW_MANT_BITS);
#pragma unroll
    for (int q = 0; q < 4; q++) {
        add_codes(sum + 4 * q, codes[q], unit);
    }
    return 1;
}

struct eight {
    GW_DEVICE uint64_t begin(const gw_span_shared &, uint64_t at)
    {
        return at + at / BLOCK;
    }
    GW_DEVICE uint32_t bytes(const gw_span_shared &, uint32_t m)
    {
        return m == 0 ? 0 : m + 1;
    }
    GW_DEVICE int add(float sum[GW_OWN], gw_string string, const gw_span_shared &, uint32_t)
    {
        const uint32_t at = string.bit / 8, first = at + 1 + gw_quad_at<GW_IN_ROWS>(threadIdx.x, 0);
        const uint32_t base = ((const uint8_t *)string.words)[at];
        const uint32_t *words = string.words + first / 4;
        uint32_t codes[4];
#pragma unroll
        for (int q = 0; q < 4; q++) {
            codes[q] = __funnelshift_r(words[32 * q], words[32 * q + 1], 8 * (first & 3));
        }
        return add_eight(sum, codes, base);
    }
};

/* bits=9: four exponents, and four signs from the last bit on. */
GW_DEVICE void add_nine(float sum[4], uint32_t exponents, uint32_t signs)
{
#pragma unroll
    for (int j = 0; j < 4; j++) {
        const uint32_t top = __byte_perm(exponents, 0, 0x0444u | (uint32_t)j << 12);
        sum[j] = sum[j] + gw_float(top >> 1 | (signs << (31 - j) & GW_SIGN_BIT));
    }
}

struct nine {
    GW_DEVICE uint64_t begin(const gw_span_shared &, uint64_t at)
    {
        return at + at / 8;
    }
    GW_DEVICE uint32_t bytes(const gw_span_shared &, uint32_t m)
    {
        return m + (m + 7) / 8;
    }
    GW_DEVICE int add(float sum[GW_OWN], gw_string string, const gw_span_shared &, uint32_t m)
    {
        const uint32_t signs_at = string.bit + 8 * m;
        if (m % 8 != 0 &&
            (gw_take32(string.words, signs_at + m) & ((1u << (8 - m % 8)) - 1)) != 0) {
            gw_all_nan(sum);
            return 0;
        }
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const uint32_t quad = gw_quad_at<GW_IN_ROWS>(threadIdx.x, q), in = quad < m ? quad : 0;
            add_nine(sum + 4 * q, gw_take32(string.words, string.bit + 8 * in),
                     gw_take32(string.words, signs_at + in));
        }
        return 1;
    }
};

/* Whole tiles of bits=9 whose words are aligned need no shared memory: a warp has sixteen words of signs. */
template <class B> GW_DEVICE void nine_at_once(const B &batch, uint32_t index, uint64_t at)
{
    enum { ABREAST = 4 };
    const gw_span_out &t = batch.tensor[index];
    const uint8_t *const *payload = batch.payload + index * batch.n_payloads;
    const uint32_t lane = threadIdx.x % 32, mine = gw_quad_at<GW_IN_ROWS>(threadIdx.x, 0);
    const uint32_t n = batch.n_payloads, warp = threadIdx.x / 32;
    float sum[GW_OWN];
    gw_begin_sum<GW_IN_ROWS>(sum, batch, t, at, BLOCK);
    for (uint32_t first = 0; first < n; first += ABREAST) {
        uint32_t exponents[ABREAST][4], signs[ABREAST];
#pragma unroll
        for (uint32_t p = 0; p < ABREAST; p++) {
            if (first + p < n) {
                const uint8_t *from = payload[first + p] + at + at / 8;
#pragma unroll
                for (int q = 0; q < 4; q++) {
                    exponents[p][q] = __ldcs((const uint32_t *)(from + mine) + 32 * q);
                }
                signs[p] = __ldcs((const uint32_t *)(from + BLOCK) + warp * 16 + lane % 16);
            }
        }
#pragma unroll
        for (uint32_t p = 0; p < ABREAST; p++) {
            if (first + p < n) {
#pragma unroll
                for (int q = 0; q < 4; q++) {
                    const uint32_t word =
                        __shfl_sync(0xFFFFFFFFu, signs[p], 4 * q + (int)(lane / 8));
                    add_nine(sum + 4 * q, exponents[p][q], word >> 4 * (lane % 8));
                }
            }
        }
    }
    gw_write_sum<GW_IN_ROWS>(sum, batch, t, at, BLOCK);
}

/* A block of bits=8 without shared memory. Its codes begin anywhere, so a warp reads the 129 words around its 512 of them: the
 * last reaches up to four bytes into the next block. */
template <class B> GW_DEVICE void eight_at_once(const B &batch, uint32_t index, uint64_t at)
{
    enum { ABREAST = 4 };
    const gw_span_out &t = batch.tensor[index];
    const uint8_t *const *payload = batch.payload + index * batch.n_payloads;
    const uint32_t lane = threadIdx.x % 32, n = batch.n_payloads;
    const uint64_t begin = at + at / BLOCK, mine = begin + 1 + threadIdx.x / 32 * 512;
    float sum[GW_OWN];
    int sound = 1;
    gw_begin_sum<GW_IN_ROWS>(sum, batch, t, at, BLOCK);
    for (uint32_t first = 0; first < n; first += ABREAST) {
        uint32_t base[ABREAST], words[ABREAST][5], skip[ABREAST];
#pragma unroll
        for (uint32_t p = 0; p < ABREAST; p++) {
            if (first + p < n) {
                const uint8_t *from = payload[first + p] + mine;
                skip[p] = (uint32_t)(uintptr_t)from & 3;
                const uint32_t *aligned = (const uint32_t *)(from - skip[p]);
#pragma unroll
                for (int q = 0; q < 4; q++) {
                    words[p][q] = __ldcs(aligned + lane + 32 * q);
                }
                words[p][4] = aligned[128];
                base[p] = payload[first + p][begin];
            }
        }
#pragma unroll
        for (uint32_t p = 0; p < ABREAST; p++) {
            if (first + p < n) {
                uint32_t codes[4];
#pragma unroll
                for (int q = 0; q < 4;
                     q++) { /* the word behind lane 31's is the next row's first */
                    const uint32_t next = __shfl_sync(
                        0xFFFFFFFFu, lane == 0 ? words[p][q + 1] : words[p][q], (int)lane + 1);
                    codes[q] = __funnelshift_r(words[p][q], next, 8 * skip[p]);
                }
                sound &= add_eight(sum, codes, base[p]);
            }
        }
    }
    if (!sound) {
        gw_blame(t.result, GW_ERR_CORRUPT);
    }
    gw_write_sum<GW_IN_ROWS>(sum, batch, t, at, BLOCK);
}

template <class B>
__global__ void __launch_bounds__(THREADS, 4) decode8_kernel(const __grid_constant__ B batch)
{
    uint64_t at;
    const uint32_t index = gw_find_tile(batch, &at);
    const uint64_t left = batch.tensor[index].count - at;
    if (left >= BLOCK + 3 && (at != 0 || (batch.loose & 3) == 0)) {
        eight_at_once(batch, index, at);
    } else {
        gw_decode_tile<eight>(batch, index, at, left < BLOCK ? (uint32_t)left : (uint32_t)BLOCK);
    }
}

template <class B>
__global__ void __launch_bounds__(THREADS, 4) decode9_kernel(const __grid_constant__ B batch)
{
    uint64_t at;
    const uint32_t index = gw_find_tile(batch, &at);
    const uint32_t m = gw_span_left(batch.tensor[index].count, at, BLOCK);
    if (m == BLOCK && (batch.loose & 3) == 0) {
        nine_at_once(batch, index, at);
    } else {
        gw_decode_tile<nine>(batch, index, at, m);
    }
}

struct start_encode {
    const gw_cuda_call *call;

    template <int N> void operator()(const gw_encode_batch<N> &batch, uint32_t tiles) const
    {
        void (*const kernels[])(gw_encode_batch<N>) = {stream_kernel<N>, encode_kernel<N, 0, 1>,
                                                       encode_kernel<N, 1, 0>,
                                                       encode_kernel<N, 1, 1>};
        const int which = (call->feedback ? 2 : 0) + (call->value[BITS] == 9);
        GW_LAUNCH(kernels[which], tiles, THREADS, 0, call->stream, batch);
    }
};

struct start_decode {
    const gw_cuda_call *call;

    template <class B> void operator()(const B &batch, uint32_t tiles) const
    {
        void (*const kernel)(B) = call->value[BITS] == 9 ? decode9_kernel<B> : decode8_kernel<B>;
        GW_LAUNCH(kernel, tiles, THREADS, batch.abreast * batch.stride, call->stream, batch);
    }
};

static gw_status encode(const gw_cuda_call *call, const gw_cuda_source *tensors, size_t n,
                        gw_why *why)
{
    const int streams = call->value[BITS] == 8 && !call->feedback;
    const gw_span_shared shared = {
        0, (uint32_t)(streams ? STREAM * BLOCK : BLOCK), call->dtype, {0}};
    gw_encode_list(shared, call, tensors, n, start_encode{call});
    return gw_cuda_launched(why, "natural");
}

static gw_status decode(const gw_cuda_call *call, const gw_cuda_sink *tensors, size_t n,
                        gw_why *why)
{
    const gw_span_shared shared = {0, BLOCK, call->dtype, {0}};
    const uint32_t bytes = call->value[BITS] == 9 ? BLOCK + BLOCK / 8 : BLOCK + 1;
    gw_decode_list(shared, tensors, n, gw_string_stride(bytes), start_decode{call});
    return gw_cuda_launched(why, "natural");
}

} // namespace

extern "C" const gw_cuda_codec gw_cuda_codec_natural = {NULL, encode, decode};
