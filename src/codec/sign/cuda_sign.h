/* sign's sums on the device. */
#ifndef GW_CUDA_SIGN_H
#define GW_CUDA_SIGN_H

#include "codec/cuda/cuda_bucket.h"

/* Names of templates are the linker's business too: they stay in the file that includes this. */
namespace
{
struct signs {
    GW_DEVICE uint64_t begin(const gw_span_shared &s, uint64_t at)
    {
        return gw_shape_begin(gw_shape_of(1, s.set[GW_SET_SHIFT]), at);
    }
    GW_DEVICE uint32_t bytes(const gw_span_shared &s, uint32_t m)
    {
        return gw_shape_bytes(gw_shape_of(1, s.set[GW_SET_SHIFT]), m);
    }
    GW_DEVICE int add(float sum[GW_OWN], gw_string string, const gw_span_shared &s, uint32_t m)
    {
        const gw_shape shape = gw_shape_of(1, s.set[GW_SET_SHIFT]);
        const uint32_t size = shape.size;
        uint32_t scale = 0;
        int sound = 1;
#pragma unroll
        for (int q = 0; q < 4; q++) {
            const uint32_t at = gw_quad_at<GW_IN_ROWS>(threadIdx.x, q);
            const uint32_t bucket = string.bit + 8 * ((at >> shape.shift) * shape.stride);
            if (q == 0 || size < GW_WARP_OWNS) {
                scale = gw_take32(string.words, bucket);
                const int right = gw_scale_is_sound(scale);
                sound &= right || at >= m;
                scale = right ? scale : GW_NAN_BITS;
            }
            const uint32_t bits =
                gw_take32(string.words, bucket + 8 * GW_BUCKET_HEADER + (at & (size - 1)));
#pragma unroll
            for (int j = 0; j < 4; j++) {
                sum[4 * q + j] += gw_float(scale ^ (bits << (31 - j) & GW_SIGN_BIT));
            }
        }
        if (!gw_rest_is_zero(string, shape, m)) {
            gw_all_nan(sum);
            sound = 0;
        }
        return sound;
    }
};

/* Eight bytes, of which byte p has eight signs of payload p, become eight with the signs of one number each. */
GW_DEVICE void turn(uint32_t *low, uint32_t *high)
{
    uint32_t half[2] = {*low, *high};
#pragma unroll
    for (int h = 0; h < 2; h++) {
        uint32_t t = (half[h] ^ half[h] >> 7) & 0x00AA00AAu;
        half[h] ^= t ^ t << 7;
        t = (half[h] ^ half[h] >> 14) & 0x0000CCCCu;
        half[h] ^= t ^ t << 14;
    }
    const uint32_t t = (half[0] ^ half[1] << 4) & 0xF0F0F0F0u;
    *low = half[0] ^ t;
    *high = half[1] ^ t >> 4;
}

/* A whole tile that is one bucket. The sum of the first eight payloads has 256 values: each is made once, in the order of
 * the payloads, and looked up by the eight signs of a number. Two threads share sixteen numbers. */
typedef struct whole_tile {
    const uint8_t *const *payload;
    uint64_t from;
    uint32_t n; /* payloads */
} whole_tile;

GW_DEVICE uint32_t scale_of(const whole_tile &w, uint32_t p, int *sound)
{
    const uint8_t *at = w.payload[p] + w.from;
    uint32_t scale = 0;
#pragma unroll
    for (int i = 0; i < GW_BUCKET_HEADER; i++) {
        scale |= (uint32_t)at[i] << 8 * i;
    }
    const int right = gw_scale_is_sound(scale);
    *sound &= right;
    return right ? scale : GW_NAN_BITS;
}

/* The thread's bytes of a payload. */
GW_DEVICE const uint8_t *octets_of(const whole_tile &w, uint32_t p)
{
    return w.payload[p] + (w.from + GW_BUCKET_HEADER + threadIdx.x / 32 * 64 + threadIdx.x % 32);
}

/* Four numbers by their signs in a word's bytes. */
GW_DEVICE void look_up_quad(float sum[4], uint32_t signs, const float table[256])
{
    const char *bytes = (const char *)table;
    sum[0] = *(const float *)(bytes + (signs << 2 & 0x3FC));
    sum[1] = *(const float *)(bytes + (signs >> 6 & 0x3FC));
    sum[2] = *(const float *)(bytes + (signs >> 14 & 0x3FC));
    sum[3] = *(const float *)(bytes + (signs >> 22 & 0x3FC));
}

/* By the first K payloads, up to eight. */
template <uint32_t K>
GW_DEVICE void look_up(float sum[GW_OWN], const whole_tile &w, float table[256], int *sound)
{
    const uint32_t lane = threadIdx.x % 32;
    uint32_t octets[2][8] = {};
#pragma unroll
    for (uint32_t p = 0; p < K; p++) {
        const uint8_t *from = octets_of(w, p);
        octets[0][p] = __ldcs(from);
        octets[1][p] = __ldcs(from + 32);
    }
    const uint32_t mine = lane < K ? scale_of(w, lane, sound) : 0;
    float value = -0.0f;
#pragma unroll
    for (uint32_t p = 0; p < K; p++) {
        const uint32_t scale = __shfl_sync(0xFFFFFFFFu, mine, (int)p);
        value = value + gw_float(scale ^ (threadIdx.x << (31 - p) & GW_SIGN_BIT));
    }
    if (threadIdx.x < 256) {
        table[threadIdx.x] = value;
    }
    __syncthreads();
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t *o = octets[half];
        uint32_t low =
            __byte_perm(__byte_perm(o[0], o[1], 0x0040), __byte_perm(o[2], o[3], 0x0040), 0x5410);
        uint32_t high =
            __byte_perm(__byte_perm(o[4], o[5], 0x0040), __byte_perm(o[6], o[7], 0x0040), 0x5410);
        turn(&low, &high);
        const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, lane % 2 ? low : high, 1);
        look_up_quad(sum + 8 * half, lane % 2 ? other : low, table);
        look_up_quad(sum + 8 * half + 4, lane % 2 ? high : other, table);
    }
}

/* Returns how many payloads are in the sum. */
GW_DEVICE uint32_t look_up_some(float sum[GW_OWN], const whole_tile &w, float table[256],
                                int *sound)
{
    if (w.n >= 8) {
        look_up<8>(sum, w, table, sound);
        return 8;
    }
    if (w.n >= 4) {
        look_up<4>(sum, w, table, sound);
        return 4;
    }
    look_up<2>(sum, w, table, sound);
    return 2;
}

GW_DEVICE void add_octets(float sum[GW_OWN], const whole_tile &w, uint32_t p, int *sound)
{
    const uint32_t scale = scale_of(w, p, sound), odd = threadIdx.x % 2;
#pragma unroll
    for (int half = 0; half < 2; half++) {
        const uint32_t mine = __ldcs(octets_of(w, p) + 32 * half);
        const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, mine, 1);
        const uint32_t bits = odd ? other >> 4 | (mine & 0xF0) : (mine & 15) | other << 4;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            sum[8 * half + i] += gw_float(scale ^ (bits << (31 - i) & GW_SIGN_BIT));
        }
    }
}

template <class B> GW_DEVICE void decode_at_once(const B &batch, uint32_t index, uint64_t at)
{
    __shared__ float table[256];
    const gw_span_out &t = batch.tensor[index];
    const whole_tile w = {batch.payload + index * batch.n_payloads,
                          gw_shape_begin(gw_shape_of(1, batch.s.set[GW_SET_SHIFT]), at),
                          batch.n_payloads};
    float sum[GW_OWN];
    int sound = 1;
    uint32_t p = 0;
    if (batch.add || w.n == 1) {
        gw_begin_sum<GW_IN_OCTETS>(sum, batch, t, at, batch.s.tile);
    } else {
        p = look_up_some(sum, w, table, &sound);
    }
#pragma unroll 2
    for (; p < w.n; p++) {
        add_octets(sum, w, p, &sound);
    }
    if (!sound) {
        gw_blame(t.result, GW_ERR_CORRUPT);
    }
    gw_write_sum<GW_IN_OCTETS>(sum, batch, t, at, batch.s.tile);
}

/* The sum of eight payloads of one large tensor: a block goes over about GW_ROLL buckets, the words of the next on their way. A thread reads the
 * same word of four payloads and writes four words of one octet each, byte p being payload p's, to shared memory. */
enum {
    EIGHT = 8,
    LONG_TILE = 4096,
    SHELF = 128 + 8 /* words: neither writing nor reading meets in a bank */
};

typedef struct shelf {
    uint32_t octets[2][4][SHELF]; /* four payloads; octet mod 4; octet / 4 */
    float table[256];
} shelf;

typedef struct eight_words {
    uint32_t words[4], scale; /* the scale is of payload `lane` */
} eight_words;

GW_DEVICE void load_eight(eight_words *v, const uint8_t *const *payload, uint64_t bucket)
{
    const uint64_t from = bucket * (GW_BUCKET_HEADER + LONG_TILE / 8);
    const uint32_t four = threadIdx.x / 128 * 4, lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t p = 0; p < 4; p++) {
        v->words[p] = __ldcs((const uint32_t *)(payload[four + p] + from) + 1 + threadIdx.x % 128);
    }
    v->scale = lane < EIGHT ? *(const uint32_t *)(payload[lane] + from) : 0;
}

/* Returns whether the scales are sound. */
GW_DEVICE int shelve_eight(shelf *to, const eight_words *v)
{
    const uint32_t *w = v->words, word = threadIdx.x % 128, four = threadIdx.x / 128;
    const uint32_t a = __byte_perm(w[0], w[1], 0x5140), b = __byte_perm(w[2], w[3], 0x5140);
    const uint32_t c = __byte_perm(w[0], w[1], 0x7362), d = __byte_perm(w[2], w[3], 0x7362);
    to->octets[four][0][word] = __byte_perm(a, b, 0x5410);
    to->octets[four][1][word] = __byte_perm(a, b, 0x7632);
    to->octets[four][2][word] = __byte_perm(c, d, 0x5410);
    to->octets[four][3][word] = __byte_perm(c, d, 0x7632);
    const int right = gw_scale_is_sound(v->scale);
    const uint32_t mine = right ? v->scale : GW_NAN_BITS;
    float value = -0.0f;
#pragma unroll
    for (uint32_t p = 0; p < EIGHT; p++) {
        const uint32_t scale = __shfl_sync(0xFFFFFFFFu, mine, (int)p);
        value = value + gw_float(scale ^ (threadIdx.x << (31 - p) & GW_SIGN_BIT));
    }
    to->table[threadIdx.x] = value;
    return right;
}

GW_DEVICE void take_eight(float sum[GW_OWN], const shelf *from)
{
    const uint32_t odd = threadIdx.x % 2;
#pragma unroll
    for (uint32_t half = 0; half < 2; half++) {
        const uint32_t octet = threadIdx.x / 32 * 64 + 32 * half + threadIdx.x % 32;
        uint32_t low = from->octets[0][octet % 4][octet / 4];
        uint32_t high = from->octets[1][octet % 4][octet / 4];
        turn(&low, &high);
        const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, odd ? low : high, 1);
        look_up_quad(sum + 8 * half, odd ? other : low, from->table);
        look_up_quad(sum + 8 * half + 4, odd ? high : other, from->table);
    }
}

template <class B>
__global__ void __launch_bounds__(256, 5) roll_kernel(const __grid_constant__ B batch)
{
    __shared__ shelf shelves[2];
    const gw_span_out &t = batch.tensor[0];
    const uint64_t whole = t.count / LONG_TILE;
    uint64_t bucket = blockIdx.x;
    eight_words v = {{0, 0, 0, 0}, 0};
    int sound = 1;
    if (bucket < whole) {
        load_eight(&v, batch.payload, bucket);
    }
#pragma unroll 1
    for (uint32_t i = 0; bucket < whole; i ^= 1, bucket += gridDim.x) {
        float sum[GW_OWN];
        sound &= shelve_eight(&shelves[i], &v);
        if (bucket + gridDim.x < whole) {
            load_eight(&v, batch.payload, bucket + gridDim.x);
        }
        __syncthreads();
        take_eight(sum, &shelves[i]);
        gw_write_sum<GW_IN_OCTETS>(sum, batch, t, bucket * LONG_TILE, LONG_TILE);
    }
    if (!sound) {
        gw_blame(t.result, GW_ERR_CORRUPT);
    }
    if (bucket * LONG_TILE < t.count) {
        gw_decode_tile<signs>(batch, 0, bucket * LONG_TILE,
                              (uint32_t)(t.count - bucket * LONG_TILE));
    }
}

template <class B>
__global__ void __launch_bounds__(512, 3) decode_kernel(const __grid_constant__ B batch)
{
    uint64_t at;
    const uint32_t index = gw_find_tile(batch, &at);
    const uint32_t m = gw_span_left(batch.tensor[index].count, at, batch.s.tile);
    if (m == batch.s.tile && 1u << batch.s.set[GW_SET_SHIFT] == m) {
        decode_at_once(batch, index, at);
    } else {
        gw_decode_tile<signs>(batch, index, at, m);
    }
}
} // namespace

#endif
