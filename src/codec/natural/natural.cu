/* natural on the device: one thread block a block of 4096, whose numbers stay in registers until their largest exponent is
 * known.
 *
 * Rounding is one addition of 23 random bits to the number's pattern, its sign included; what is written stands in the upper
 * half of the sum. The fast path takes it that no number reaches 2, so that a block's base is 1; one vote of the block
 * says so, at the barrier that it needs anyway. Threads that own a number which is not finite, overflows or lies below an
 * 8-bit block's range are done again by the core. */
#include "codec/natural/cuda_natural.h"

/* Names of templates are the linker's business too: they stay in this file. */
namespace
{
enum { BITS, WARPS = THREADS / 32 };
enum { IMAGE8 = BLOCK / 4 + 40, IMAGE9 = BLOCK / 4 + BLOCK / 32 }; /* words */

/* The upper halves of the thread's numbers, rounded: sign, exponent, and 7 bits of no use; those of number 2i and 2i + 1
 * in high[i]. `number` is of its first random word. Not 0 if some number is not finite or has become 2 or more. */
GW_DEVICE int round_all(uint32_t high[GW_OWN / 2], const float x[GW_OWN], gw_random_pair k,
                        uint32_t number)
{
    uint32_t any = 0;
    float nan =
        0; /* if a number is, or infinite, or far beyond 2: its sum's upper half may not show it */
#pragma unroll
    for (int p = 0; p < 2; p++) {
        uint32_t v[8];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const uint32_t word = gw_random_word(k, number + (uint32_t)(128 * p + j));
            const float a = x[8 * p + j], b = x[8 * p + 4 + j];
            v[j] = gw_bits(a) + (word >> 9);
            v[4 + j] = gw_bits(b) + (__byte_perm(word, 0, 0x1032) >> 9);
            nan = fmaf(a, b, nan);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
            high[4 * p + i] = __byte_perm(v[2 * i], v[2 * i + 1], 0x7632);
            any |= high[4 * p + i];
        }
    }
    return (any & 0x40004000u) != 0 || nan != nan;
}

/* The largest rounded exponent of a thread that had something to say; 255 if a number is not finite. */
GW_DEVICE uint32_t largest_of(const uint32_t high[GW_OWN / 2], const float x[GW_OWN])
{
    uint32_t top = 0;
#pragma unroll
    for (int i = 0; i < GW_OWN; i++) {
        const uint32_t e = high[i / 2] >> (i % 2 * 16 + 7) & 0xFF;
        const uint32_t mine = (gw_bits(x[i]) & GW_ABS_MASK) >= GW_INF_BITS ? 255 : e;
        top = mine > top ? mine : top;
    }
    return top;
}

/* Exponents and signs of a quad, in bytes: signs of zeros too. */
GW_DEVICE uint32_t exponents_of(const uint32_t high[2])
{
    return __byte_perm(high[0] << 1, high[1] << 1, 0x7531);
}

/* 0x80 in every byte whose exponent is not zero and whose number is negative; *some: where it is not zero. */
GW_DEVICE uint32_t signs_of(const uint32_t high[2], uint32_t exponents, uint32_t *some)
{
    *some = (((exponents & 0x7F7F7F7Fu) + 0x7F7F7F7Fu) | exponents) & 0x80808080u;
    return __byte_perm(high[0], high[1], 0x7531) & *some;
}

/* Four codes of numbers that are all zero or in the range of base. */
GW_DEVICE uint32_t fold(const uint32_t high[2], uint32_t less)
{
    uint32_t some;
    const uint32_t exponents = exponents_of(high), signs = signs_of(high, exponents, &some);
    const uint32_t all = some | (some - (some >> 7)); /* 0xFF where it is not zero */
    return (exponents - (less & all)) | signs;
}

/* The same where no exponent reaches 128 and the base is 1. */
GW_DEVICE uint32_t fold_small(const uint32_t high[2])
{
    const uint32_t a = (high[0] << 1 & 0x7FFF7FFFu) | (high[0] & 0x80008000u);
    const uint32_t b = (high[1] << 1 & 0x7FFF7FFFu) | (high[1] & 0x80008000u);
    const uint32_t codes = __byte_perm(a, b, 0x7531);
    return codes & (((codes & 0x7F7F7F7Fu) + 0x7F7F7F7Fu) | 0x7F7F7F7Fu); /* no sign on a zero */
}

/* r′ of the fast path: x less the power of two it was rounded to. */
GW_DEVICE void take_off(float x[GW_OWN], const uint32_t high[GW_OWN / 2])
{
#pragma unroll
    for (int i = 0; i < GW_OWN; i++) {
        const uint32_t y = (i % 2 == 0 ? high[i / 2] << 16 : high[i / 2]) & 0xFF800000u;
        x[i] = x[i] - gw_float((y & GW_ABS_MASK) != 0 ? y : 0);
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

/* bits=8, a block whose base is perhaps not 1. Returns whether the core has done the thread's numbers, and r′. */
template <int FEEDBACK>
GW_DEVICE int encode_large(uint32_t *image, const uint32_t high[GW_OWN / 2], const float x[GW_OWN],
                           const gw_span_shared &s, const gw_span_in &t, uint64_t at, uint32_t m)
{
    __shared__ uint32_t tops[2][WARPS];
    const uint32_t limit = gw_natural_top(s.dtype == GW_F16), mine = largest_of(high, x);
    uint32_t largest = block_max(mine, tops[0]);
    int by_core = 0;
    if (largest > limit) { /* all threads of the block */
        by_core = mine > limit;
        largest = block_max(by_core ? count_odd(s, t, at, m, limit) : mine, tops[1]);
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
            image[1 + gw_quad_at<GW_IN_PAIRS>(threadIdx.x, q) / 4] = fold(high + 2 * q, less);
        }
    }
    if (threadIdx.x == 0) {
        image[0] = base << 24;
    }
    __syncthreads();
    return by_core;
}

/* Where the image of a whole block lies in its memory, in words, so that what goes to a line of the payload is found from a multiple
 * of 128 bytes on, but for the shift of bytes: memory likes to be written by whole lines. */
GW_DEVICE uint32_t place_of(const uint8_t *to)
{
    return ((uint32_t)(uintptr_t)to & 127) / 4;
}

/* 16 bytes of the payload, number i from `line` on, out of the image, if `wanted`. By whole warps: a lane's next word is the next lane's. */
GW_DEVICE void put16(uint8_t *line, const uint32_t *memory, uint32_t i, uint32_t shift, int wanted)
{
    const uint4 v = ((const uint4 *)memory)[i];
    uint32_t next = __shfl_down_sync(0xFFFFFFFFu, v.x, 1);
    if (threadIdx.x % 32 == 31) {
        next = memory[4 * i + 4];
    }
    if (wanted) {
        __stcs((uint4 *)line + i,
               make_uint4(__funnelshift_r(v.x, v.y, shift), __funnelshift_r(v.y, v.z, shift),
                          __funnelshift_r(v.z, v.w, shift), __funnelshift_r(v.w, next, shift)));
    }
}

/* A whole block's 4097 bytes, from the last of the image's first word on. If the blocks before and behind it in memory are the thread block's too,
 * `begun` and `goes_on`: what is in front of it in its first line is in the image, and what it has of its last is left to the next. */
GW_DEVICE void put8(uint8_t *to, const uint32_t *memory, int begun, int goes_on)
{
    const uint32_t me = threadIdx.x, before = (uint32_t)(uintptr_t)to & 127,
                   end = before + BLOCK + 1;
    const uint32_t shift = 8 * (3 - before % 4), head = begun ? 0 : (0u - before) & 15,
                   whole = goes_on ? end / 128 * 8 : end / 16, tail = goes_on ? 0 : end % 16;
    put16(to - before, memory, me, shift, begun || 16 * me >= before);
    if (me / 32 == 1 && whole > THREADS) { /* at most eight more */
        const uint32_t lane = me % 32, i = THREADS + (lane < 8 ? lane : 8);
        put16(to - before, memory, i, shift, lane < whole - THREADS);
    }
    if (me / 32 == 2 && me % 32 < head + tail) { /* around what is whole */
        const uint32_t i = me % 32 < head ? me % 32 : BLOCK + 1 - tail + me % 32 - head;
        to[i] = ((const uint8_t *)(memory + place_of(to)))[3 + i];
    }
}

/* What put8 has left of a block's last line to the next block, to that one's image; and its base, 1. By one warp. */
GW_DEVICE void carry8(uint32_t *next, const uint32_t *memory, const uint8_t *to)
{
    const uint32_t lane = threadIdx.x % 32, end = ((uint32_t)(uintptr_t)to & 127) + BLOCK + 1;
    const uint32_t *from = memory + end / 128 * 32 - (end % 4 == 0) + lane;
    if (lane <= end % 128 / 4) { /* both images' bytes are shifted, the next's by one less */
        const uint32_t word = __funnelshift_r(from[0], from[1], 8);
        next[lane] = lane == end % 128 / 4 ? (word & 0xFFFFFFu) | 1u << 24 : word;
    }
}

/* bits=8. The image begins with the base in the last byte of its first word, so that codes are words. This is it for small
 * numbers. */
GW_DEVICE void image8(uint32_t *image, const uint32_t high[GW_OWN / 2])
{
#pragma unroll
    for (int q = 0; q < 4; q++) {
        image[1 + gw_quad_at<GW_IN_PAIRS>(threadIdx.x, q) / 4] = fold_small(high + 2 * q);
    }
}

template <int FEEDBACK>
GW_DEVICE void encode8(uint32_t *image, float x[GW_OWN], const gw_span_shared &s,
                       const gw_span_in &t, uint64_t at, uint32_t m, gw_random_pair k,
                       uint32_t number)
{
    uint32_t high[GW_OWN / 2];
    const int large = round_all(high, x, k, number);
    uint8_t *to = t.payload + at + at / BLOCK;
    uint32_t *const placed = image + (m == BLOCK ? place_of(to) : 0);
    int by_core = 0;
    image8(placed, high);
    if (threadIdx.x == 0) {
        placed[0] = 1u << 24;
    }
    if (__syncthreads_or(large)) {
        by_core = encode_large<FEEDBACK>(placed, high, x, s, t, at, m);
    }
    if (m == BLOCK) {
        put8(to, image, 0, 0);
    } else {
        gw_copy_out(to, image, 3, m == 0 ? 0 : 1 + m, threadIdx.x, THREADS);
    }
    if (FEEDBACK && !by_core) {
        take_off(x, high);
        gw_write_quads<GW_IN_PAIRS>(x, t.after, GW_F32, at, m, BLOCK);
    }
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

/* bits=9: exponents, then signs. Of the first; returns the quads' signs. */
GW_DEVICE uint32_t image9(uint32_t *image, const uint32_t high[GW_OWN / 2])
{
    uint32_t nibbles = 0;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        uint32_t some;
        const uint32_t exponents = exponents_of(high + 2 * q);
        const uint32_t signs = signs_of(high + 2 * q, exponents, &some);
        image[gw_quad_at<GW_IN_PAIRS>(threadIdx.x, q) / 4] = exponents;
        nibbles |= (signs * 0x00204081u >> 28) << 8 * q; /* bits 7, 15, 23, 31 to 28 … 31 */
    }
    return nibbles;
}

/* Of the signs. Neighbours have quads side by side: of the four octets each writes two. */
GW_DEVICE void image_signs(uint32_t *image, uint32_t nibbles, uint32_t m)
{
    const uint32_t lane = threadIdx.x % 32, other = __shfl_xor_sync(0xFFFFFFFFu, nibbles, 1);
    const uint32_t octets = lane % 2 == 0 ? nibbles | other << 4 : other | nibbles << 4;
#pragma unroll
    for (uint32_t q = 0; q < 2; q++) {
        const uint32_t which = lane % 2 * 2 + q; /* quads 0 and 1, or 2 and 3 */
        const uint32_t quad =
            gw_quad_at<GW_IN_PAIRS>(threadIdx.x & ~1u, 0) + lane % 2 * 256 + q * 16;
        ((uint8_t *)image)[m + quad / 8] = (uint8_t)(octets >> 8 * which);
    }
}

GW_DEVICE void put9(uint8_t *to, const uint32_t *image, uint32_t m)
{
    if (m == BLOCK && gw_aligned_to(to, 16)) {
        const uint4 *from = (const uint4 *)image + threadIdx.x;
        __stcs((uint4 *)to + threadIdx.x, *from);
        if (threadIdx.x < IMAGE9 / 4 - THREADS) {
            __stcs((uint4 *)to + THREADS + threadIdx.x, from[THREADS]);
        }
    } else {
        gw_copy_out(to, image, 0, m + (m + 7) / 8, threadIdx.x, THREADS);
    }
}

/* No number needs to know another. */
template <int FEEDBACK>
GW_DEVICE void encode9(uint32_t *image, float x[GW_OWN], const gw_span_shared &s,
                       const gw_span_in &t, uint64_t at, uint32_t m, gw_random_pair k,
                       uint32_t number)
{
    const uint32_t limit = gw_natural_top(s.dtype == GW_F16);
    uint32_t high[GW_OWN / 2], nibbles; /* signs of a quad in each byte */
    if (round_all(high, x, k, number) && largest_of(high, x) > limit) {
        (void)count_odd(s, t, at, m, limit);
        nibbles = exponents_by_core<FEEDBACK>((uint8_t *)image, s, t, at, m, limit);
    } else {
        nibbles = image9(image, high);
        if (FEEDBACK) {
            take_off(x, high);
            gw_write_quads<GW_IN_PAIRS>(x, t.after, GW_F32, at, m, BLOCK);
        }
    }
    if (m != BLOCK) {
        __syncthreads(); /* exponents behind the end lie where the signs go */
    }
    image_signs(image, nibbles, m);
    __syncthreads();
    put9(t.payload + at + at / 8, image, m);
}

template <int FEEDBACK, int NINE>
GW_DEVICE void encode_block(uint32_t *image, float x[GW_OWN], const gw_span_shared &s,
                            const gw_span_in &t, uint64_t at, uint32_t m, gw_random_pair k,
                            uint32_t number)
{
    if (NINE) {
        encode9<FEEDBACK>(image, x, s, t, at, m, k, number);
    } else {
        encode8<FEEDBACK>(image, x, s, t, at, m, k, number);
    }
}

/* With feedback. */
template <int N, int NINE>
__global__ void __launch_bounds__(THREADS, 4)
    encode_kernel(const __grid_constant__ gw_encode_batch<N> batch)
{
    __shared__ __align__(16) uint32_t image[NINE ? IMAGE9 + 2 : IMAGE8];
    uint64_t at;
    const gw_span_in &t = batch.tensor[gw_find_tile(batch, &at)];
    const uint32_t m = gw_span_left(t.count, at, BLOCK);
    const uint64_t index = t.first + at;
    float x[GW_OWN];
    gw_read_source<GW_IN_PAIRS, 1>(x, batch.s, t, at, m);
    encode_block<1, NINE>(image, x, batch.s, t, at, m, gw_random_pair_at(t.key, index),
                          gw_random_number(index + gw_quad_at<GW_IN_PAIRS>(threadIdx.x, 0)));
    if (at == 0 && threadIdx.x == 0) {
        t.result->written = t.bytes;
    }
}

/* Without feedback a thread block goes over some blocks of the wire, reading the next before it writes one. It takes it that all
 * numbers are small; blocks where that was wrong are done again in the end. Images alternate, so that one barrier a block is
 * enough. */
enum { STREAM = 2 };

GW_DEVICE void widen(float x[4], uint4 raw, gw_dtype)
{
    x[0] = gw_float(raw.x), x[1] = gw_float(raw.y), x[2] = gw_float(raw.z), x[3] = gw_float(raw.w);
}

GW_DEVICE void widen(float x[4], uint2 raw, gw_dtype dtype)
{
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const uint16_t half = (uint16_t)((i < 2 ? raw.x : raw.y) >> i % 2 * 16);
        x[i] = dtype == GW_F16 ? gw_f32_from_f16(half) : gw_f32_from_bf16(half);
    }
}

/* The span's whole blocks, aligned; Q is a quad as it lies in memory. Returns in which the thread has a large number, a bit each. */
template <int NINE, class Q>
GW_DEVICE uint32_t encode_quickly(uint32_t *image, uint32_t *image_after, const gw_span_shared &s,
                                  const gw_span_in &t, uint64_t at, uint32_t blocks)
{
    const uint32_t first = gw_quad_at<GW_IN_PAIRS>(threadIdx.x, 0);
    const Q *from = (const Q *)t.in + (at + first) / 4;
    uint8_t *to = t.payload + at + (NINE ? at / 8 : at / BLOCK);
    gw_random_pair k = gw_random_pair_at(t.key, t.first + at);
    uint32_t number = gw_random_number(t.first + at + first), left = 0;
    Q raw[4] = {__ldcs(from), __ldcs(from + 4), __ldcs(from + 64), __ldcs(from + 68)};
#pragma unroll 1
    for (uint32_t i = 0; i < blocks; i++) {
        float x[GW_OWN];
        uint32_t high[GW_OWN / 2];
#pragma unroll
        for (int q = 0; q < 4; q++) {
            widen(x + 4 * q, raw[q], s.dtype);
        }
        k.k0 = gw_afresh(k.k0);
        k.k1 = gw_afresh(k.k1);
        left |= round_all(high, x, k, number) ? 1u << i : 0;
        if (i + 1 < blocks) {
            from += BLOCK / 4;
            raw[0] = __ldcs(from), raw[1] = __ldcs(from + 4);
            raw[2] = __ldcs(from + 64), raw[3] = __ldcs(from + 68);
        }
        if (NINE) {
            image_signs(image, image9(image, high), BLOCK);
        } else {
            image8(image + place_of(to), high);
            if (i == 0 && threadIdx.x == 0) {
                image[place_of(to)] = 1u << 24;
            }
        }
        __syncthreads();
        if (NINE) {
            put9(to, image, BLOCK);
        } else {
            put8(to, image, i != 0, i + 1 < blocks);
            if (threadIdx.x / 32 == WARPS - 1 && i + 1 < blocks) {
                carry8(image_after, image, to);
            }
        }
        uint32_t *const now = image;
        image = image_after;
        image_after = now;
        to += NINE ? BLOCK + BLOCK / 8 : BLOCK + 1;
        number += BLOCK / 2;
        if (number < BLOCK / 2) { /* another pair from here on */
            k = gw_random_pair_at(t.key, t.first + at + s.tile);
        }
    }
    return left;
}

template <int N, int NINE, class Q>
__global__ void __launch_bounds__(THREADS, 4)
    stream_kernel(const __grid_constant__ gw_encode_batch<N> batch)
{
    __shared__ __align__(16) uint32_t images[2][NINE ? IMAGE9 + 4 : IMAGE8];
    uint64_t at;
    const gw_span_shared &s = batch.s;
    const gw_span_in &t = batch.tensor[gw_find_tile(batch, &at)];
    const uint32_t span = gw_span_left(t.count, at, s.tile);
    const uint32_t blocks = gw_aligned_to(t.in, sizeof(Q)) ? span / BLOCK : 0;
    uint32_t left = ~0u << blocks;
    if (at == 0 && threadIdx.x == 0) {
        t.result->written = t.bytes;
    }
    if (blocks != 0) {
        left |= encode_quickly<NINE, Q>(images[0], images[1], s, t, at, blocks);
    }
#pragma unroll 1
    for (uint32_t i = 0; i * BLOCK < span; i++, at += BLOCK) {
        if (__syncthreads_or(left >> i & 1)) {
            const uint64_t index = t.first + at;
            const uint32_t m = span - i * BLOCK < BLOCK ? span - i * BLOCK : (uint32_t)BLOCK;
            float x[GW_OWN];
            gw_read_quads<GW_IN_PAIRS>(x, t.in, s.dtype, at, m, BLOCK);
            encode_block<0, NINE>(
                images[0], x, s, t, at, m, gw_random_pair_at(t.key, index),
                gw_random_number(index + gw_quad_at<GW_IN_PAIRS>(threadIdx.x, 0)));
        }
    }
}

struct start_encode {
    const gw_cuda_call *call;

    template <int N> void operator()(const gw_encode_batch<N> &batch, uint32_t tiles) const
    {
        const int nine = call->value[BITS] == 9;
        void (*const fed[2])(gw_encode_batch<N>) = {encode_kernel<N, 0>, encode_kernel<N, 1>};
        void (*const streams[2][2])(gw_encode_batch<N>) = {
            {stream_kernel<N, 0, uint4>, stream_kernel<N, 1, uint4>},
            {stream_kernel<N, 0, uint2>, stream_kernel<N, 1, uint2>}};
        void (*const kernel)(gw_encode_batch<N>) =
            call->feedback ? fed[nine] : streams[batch.s.dtype != GW_F32][nine];
        GW_LAUNCH(kernel, tiles, THREADS, 0, call->stream, batch);
    }
};

struct start_decode {
    const gw_cuda_call *call;

    template <int N, int P>
    void operator()(const gw_decode_batch<N, P> &batch, uint32_t tiles) const
    {
        typedef gw_decode_batch<N, P> B;
        if (N == 1 && call->value[BITS] == 8 && batch.n_payloads > 1 && gw_rolls(batch, 1)) {
            GW_LAUNCH(roll8_kernel<B>, (tiles + GW_ROLL - 1) / GW_ROLL, THREADS,
                      2 * LOAD8 * batch.stride, call->stream, batch);
            return;
        }
        void (*const kernel)(B) = call->value[BITS] == 9 ? decode9_kernel<B> : decode8_kernel<B>;
        GW_LAUNCH(kernel, tiles, THREADS, batch.abreast * batch.stride, call->stream, batch);
    }
};

static gw_status encode(const gw_cuda_call *call, const gw_cuda_source *tensors, size_t n,
                        gw_why *why)
{
    const gw_span_shared shared = {
        0, (uint32_t)(call->feedback ? BLOCK : STREAM * BLOCK), call->dtype, {0}};
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

extern "C" const gw_cuda_codec gw_cuda_codec_natural = {NULL, encode, decode, NULL, NULL};
