/* Codecs with buckets, on the device: what `dither`, `ndither` and `sign` share. A bucket of up to 512 numbers lies in
 * one warp, which needs no other; of a larger one the warps meet in shared memory. */
#ifndef GW_CUDA_BUCKET_H
#define GW_CUDA_BUCKET_H

#include "codec/bucket/bucket_core.h"
#include "codec/cuda/cuda_decode.h"

/* gw_span_shared.set */
enum { GW_SET_BITS, GW_SET_SHIFT, GW_SET_NORM };

enum { GW_WARP_OWNS = 512, GW_MOST_WARPS = 16, GW_MOST_BUCKETS = 64 /* of a tile */ };

/* Codes of `bits` in buckets of `size`, 2 to the `shift`; a whole one has `stride` bytes. */
typedef struct gw_shape {
    uint32_t bits, size, shift, stride;
} gw_shape;

GW_HD static inline gw_shape gw_shape_of(uint32_t bits, uint32_t shift)
{
    const gw_shape b = {bits, 1u << shift, shift, GW_BUCKET_HEADER + (bits << shift >> 3)};
    return b;
}

/* Bytes of m elements from a bucket's border on. */
GW_HD static inline uint32_t gw_shape_bytes(const gw_shape &b, uint32_t m)
{
    const uint32_t rest = m & (b.size - 1);
    return (m >> b.shift) * b.stride + (rest != 0 ? GW_BUCKET_HEADER + (rest * b.bits + 7) / 8 : 0);
}

/* Where the bucket of element `at` begins. */
GW_HD static inline uint64_t gw_shape_begin(const gw_shape &b, uint64_t at)
{
    return (at >> b.shift) * b.stride;
}

static inline uint32_t gw_log2(double size)
{
    uint32_t shift = 0;
    while (1u << shift < (uint32_t)size) {
        shift++;
    }
    return shift;
}

static inline gw_span_shared gw_bucket_shared(const gw_cuda_call *call, uint32_t bits, double size,
                                              uint32_t norm)
{
    const uint32_t tile = size > (double)GW_TILE ? (uint32_t)size : (uint32_t)GW_TILE;
    const gw_span_shared s = {0, tile, call->dtype, {bits, gw_log2(size), norm, 0}};
    return s;
}

/* The largest |bits| of each half of the thread's numbers becomes that of the bucket it lies in. */
GW_DEVICE void gw_bucket_tops(uint32_t top[2], uint32_t size, uint32_t shared[GW_MOST_WARPS])
{
    if (size >= GW_WARP_OWNS) {
        uint32_t both = __reduce_max_sync(0xFFFFFFFFu, top[0] > top[1] ? top[0] : top[1]);
        if (size > GW_WARP_OWNS) {
            const uint32_t warp = threadIdx.x / 32, warps = size / GW_WARP_OWNS;
            if (threadIdx.x % 32 == 0) {
                shared[warp] = both;
            }
            __syncthreads();
            for (uint32_t i = 0; i < warps; i++) {
                const uint32_t other = shared[(warp & ~(warps - 1)) + i];
                both = other > both ? other : both;
            }
        }
        top[0] = top[1] = both;
    } else if (size == 256) {
        top[0] = __reduce_max_sync(0xFFFFFFFFu, top[0]);
        top[1] = __reduce_max_sync(0xFFFFFFFFu, top[1]);
    } else {
        for (int by = (int)size / 16; by > 0; by /= 2) {
            const uint32_t a = __shfl_xor_sync(0xFFFFFFFFu, top[0], by);
            const uint32_t b = __shfl_xor_sync(0xFFFFFFFFu, top[1], by);
            top[0] = a > top[0] ? a : top[0];
            top[1] = b > top[1] ? b : top[1];
        }
    }
}

/* Sums over buckets whose order the wire lays down: 32 strided lanes, then by halves; so a lane of a warp takes a lane, one
 * warp a bucket, from the tile in shared memory. S says what is summed (S::pre, S::term) and what becomes of it (S::scale). */
typedef struct gw_chains {
    uint32_t top[GW_MOST_BUCKETS];
    float scale[GW_MOST_BUCKETS];
} gw_chains;

template <class S>
GW_DEVICE void gw_bucket_chains(gw_chains *c, float *tile, const float x[GW_OWN],
                                const uint32_t top[2], const gw_shape &shape, uint32_t m,
                                float most, float scale[2])
{
    const uint32_t lane = threadIdx.x % 32, size = shape.size;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        *(float4 *)(tile + gw_quad_at<GW_IN_PAIRS>(threadIdx.x, q)) =
            make_float4(x[4 * q], x[4 * q + 1], x[4 * q + 2], x[4 * q + 3]);
    }
#pragma unroll
    for (int p = 0; p < 2; p++) {
        const uint32_t at = gw_quad_at<GW_IN_PAIRS>(threadIdx.x, 2 * p);
        if ((at & (size - 1)) == 0) {
            c->top[at >> shape.shift] = top[p];
        }
    }
    __syncthreads();
    for (uint32_t b = threadIdx.x / 32; b * size < m; b += blockDim.x / 32) {
        const float pre = S::pre(c->top[b]), *from = tile + b * size + lane;
        const uint32_t left = m - b * size;
        float sum = 0;
#pragma unroll 16
        for (uint32_t i = 0; i < size; i += 32) {
            sum = sum + S::term(from[i], pre); /* zeros behind the end change nothing */
        }
        for (int half = 16; half > 0; half /= 2) {
            sum = sum + __shfl_down_sync(0xFFFFFFFFu, sum, half);
        }
        if (lane == 0) {
            c->scale[b] = S::scale(sum, pre, c->top[b], left < size ? left : size, most);
        }
    }
    __syncthreads();
#pragma unroll
    for (int p = 0; p < 2; p++) {
        scale[p] = c->scale[gw_quad_at<GW_IN_PAIRS>(threadIdx.x, 2 * p) >> shape.shift];
    }
}

/* The thread's numbers again, from the tile: so that they need no registers while the sum is under way. */
GW_DEVICE void gw_tile_again(float x[GW_OWN], const float *tile)
{
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const float4 v = *(const float4 *)(tile + gw_quad_at<GW_IN_PAIRS>(threadIdx.x, q));
        x[4 * q] = v.x, x[4 * q + 1] = v.y, x[4 * q + 2] = v.z, x[4 * q + 3] = v.w;
    }
}

GW_DEVICE uint32_t gw_top_of(const float x[8])
{
    float top = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        top = gw_larger(top, x[i]);
    }
    return gw_bits(top) & GW_ABS_MASK;
}

/* For a thread whose bucket is not finite. */
GW_DEVICE void gw_count_non_finite(const float x[8], gw_cuda_result *result)
{
    uint64_t n = 0;
#pragma unroll
    for (int i = 0; i < 8; i++) {
        n += (gw_bits(x[i]) & GW_ABS_MASK) >= GW_INF_BITS;
    }
    gw_count(&result->non_finite, n);
}

/* Codes of neighbours, 4·bits bits each of two quads: the even thread gets the octet of quad `a`, the odd one that of quad `b`.
 * `at` is where the thread's first quad begins in the tile. Returns where the octet does. */
GW_DEVICE uint32_t gw_swap_octets(uint32_t *low, uint32_t *high, uint32_t a, uint32_t b,
                                  uint32_t at)
{
    const uint32_t odd = threadIdx.x & 1;
    const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, odd ? a : b, 1);
    *low = odd ? other : a;
    *high = odd ? b : other;
    return odd ? at - 4 + 16 : at;
}

template <int BITS>
GW_DEVICE void gw_put_octets(uint8_t *image, uint32_t a, uint32_t b, uint32_t at,
                             const gw_shape &shape)
{
    uint32_t low, high;
    const uint32_t e = gw_swap_octets(&low, &high, a, b, at); /* the octet's first element */
    uint8_t *to = image + (e >> shape.shift) * shape.stride + GW_BUCKET_HEADER +
                  (e & (shape.size - 1)) / 8 * shape.bits;
    if (BITS == 4) {
        *(uint32_t *)to = low | high << 16;
        return;
    }
    if (BITS == 1) {
        *to = (uint8_t)(low | high << 4);
        return;
    }
    uint64_t octet = low | (uint64_t)high << 4 * shape.bits;
    for (uint32_t i = 0; i < shape.bits; i++) {
        to[i] = (uint8_t)octet;
        octet >>= 8;
    }
}

/* The image of a tile, or of a warp's part of it, to the payload. */
GW_DEVICE void gw_put_image(const uint32_t *image, uint8_t *payload, const gw_shape &shape,
                            uint32_t m)
{
    if (shape.size > GW_WARP_OWNS) {
        __syncthreads();
        gw_copy_out(payload, image, 0, gw_shape_bytes(shape, m), threadIdx.x, blockDim.x);
        return;
    }
    const uint32_t at = threadIdx.x / 32 * GW_WARP_OWNS;
    const uint32_t left = at < m ? m - at : 0,
                   mine = left < GW_WARP_OWNS ? left : (uint32_t)GW_WARP_OWNS;
    const uint32_t skip = (at >> shape.shift) * shape.stride;
    __syncwarp();
    gw_copy_out(payload + skip, image + skip / 4, 0, gw_shape_bytes(shape, mine), threadIdx.x % 32,
                32);
}

/* A word of a payload, or as many of its bytes as are `left`. */
GW_DEVICE void gw_put_word(uint8_t *to, uint32_t word, uint32_t left, int aligned)
{
    if (aligned && left >= 4) {
        __stcs((uint32_t *)to, word);
        return;
    }
#pragma unroll 1
    for (uint32_t i = 0; i < 4 && i < left; i++) {
        to[i] = (uint8_t)(word >> 8 * i);
    }
}

/* A pattern that may stand as a bucket's scale. */
GW_DEVICE int gw_scale_is_sound(uint32_t scale)
{
    return scale < GW_INF_BITS || scale == GW_NAN_BITS;
}

/* The bits behind the last code of a tile whose last bucket is short. */
GW_DEVICE int gw_rest_is_zero(gw_string string, const gw_shape &shape, uint32_t m)
{
    const uint32_t used = (m & (shape.size - 1)) * shape.bits % 8;
    const uint32_t last = string.bit + 8 * (gw_shape_bytes(shape, m) - 1);
    return used == 0 || (gw_take32(string.words, last) & 0xFF) >> used == 0;
}

#endif
