/* natural's sums on the device. */
#ifndef GW_CUDA_NATURAL_H
#define GW_CUDA_NATURAL_H

#include "codec/cuda/cuda_decode.h"
#include "codec/natural/natural_core.h"

/* Names of templates are the linker's business too: they stay in the file that includes this. */
namespace
{
enum { THREADS = 256, BLOCK = GW_NATURAL_BLOCK };
static_assert((int)BLOCK == (int)GW_TILE, "a thread block is a block");

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

/* The thread's codes of a payload added; 0 if the base is none. What is odd changes sums where they are, so that the compiler moves none
 * of them. */
GW_DEVICE int add_eight(float sum[GW_OWN], const uint32_t codes[4], uint32_t base)
{
    const int right = base - 1 < 128;
    const float unit = gw_float(right ? (base + 126) << GW_MANT_BITS : GW_NAN_BITS);
    uint32_t odd = 0;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        odd |= codes[q] & ~((codes[q] & 0x7F7F7F7Fu) + 0x7F7F7F7Fu); /* 0x80: not finite */
    }
    if ((odd & 0x80808080u) != 0) {
#pragma unroll
        for (int i = 0; i < GW_OWN; i++) {
            if ((codes[i / 4] >> 8 * (i % 4) & 0xFF) == 0x80) {
                sum[i] = gw_float(GW_NAN_BITS);
            }
        }
    }
#pragma unroll
    for (int q = 0; q < 4; q++) {
        add_codes(sum + 4 * q, codes[q], unit);
    }
    return right;
}

/* The same by branches, which is faster where a payload comes straight to registers. */
GW_DEVICE int add_eight_apart(float sum[GW_OWN], const uint32_t codes[4], uint32_t base)
{
    uint32_t odd = 0;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        odd |= codes[q] & ~((codes[q] & 0x7F7F7F7Fu) + 0x7F7F7F7Fu);
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

/* For gw_roll_by_copies. */
struct eight_whole {
    const uint32_t first = gw_afresh(1 + gw_quad_at<GW_IN_ROWS>(threadIdx.x, 0));

    __device__ __forceinline__ int add(float sum[GW_OWN], const uint8_t *strings,
                                       uint32_t begin) const
    {
        const uint32_t mine = begin + first, shift = 8 * (mine & 3);
        const uint32_t *words = (const uint32_t *)(strings + (mine & ~3u));
        uint32_t codes[4];
#pragma unroll
        for (int q = 0; q < 4; q++) {
            codes[q] = __funnelshift_r(words[32 * q], words[32 * q + 1], shift);
        }
        return add_eight(sum, codes, strings[begin]);
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
                sound &= add_eight_apart(sum, codes, base[p]);
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

enum { LOAD8 = 4 /* payloads */ };

template <class B>
__global__ void __launch_bounds__(THREADS, 4) roll8_kernel(const __grid_constant__ B batch)
{
    gw_roll_by_copies<LOAD8, eight_whole, eight>(batch);
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
} // namespace

#endif
