/* Codecs with a grain, on the device: sums of payloads, tile by tile. */
#ifndef GW_CUDA_DECODE_H
#define GW_CUDA_DECODE_H

#include "codec/cuda/cuda_span.h"

/* Starts `bytes` at `from` on their way to `shared`, where they will begin at byte (from mod 16). Reads nothing outside of
 * them. By `n` ≥ 32 threads. */
GW_DEVICE void gw_copy_in(uint8_t *shared, const uint8_t *from, uint32_t bytes, uint32_t me,
                          uint32_t n)
{
    const uint32_t shift = (uint32_t)(uintptr_t)from & 15, end = shift + bytes;
    const uint8_t *base = from - shift;
    const uint32_t whole_begin = (shift + 15) / 16, whole_end = end / 16;
    for (uint32_t c = whole_begin + me; c < whole_end; c += n) {
        gw_copy16(shared + 16 * c, base + 16 * c);
    }
    if (me < 16) {
        const uint32_t stop = end < 16 ? end : 16;
        if (shift != 0 && me >= shift && me < stop) {
            shared[me] = base[me];
        }
    } else if (me < 32 && whole_end * 16 >= (shift != 0 ? 16u : 0u)) {
        const uint32_t i = 16 * whole_end + me - 16;
        if (i < end) {
            shared[i] = base[i];
        }
    }
}

/* 32 bits from bit `at` of a string on; the word behind the last one may be read. */
GW_DEVICE uint32_t gw_take32(const uint32_t *words, uint32_t at)
{
    return __funnelshift_r(words[at / 32], words[at / 32 + 1], at & 31);
}

/* What the thread's sums begin with. A negative zero changes nothing that is added to it. */
template <int LAYOUT, class B>
GW_DEVICE void gw_begin_sum(float sum[GW_OWN], const B &batch, const gw_span_out &t, uint64_t at,
                            uint32_t m)
{
    if (batch.add) {
        gw_read_quads<LAYOUT>(sum, t.out, batch.s.dtype, at, m, batch.s.tile);
        return;
    }
#pragma unroll
    for (int i = 0; i < GW_OWN; i++) {
        sum[i] = -0.0f;
    }
}

/* The larger of `top` and |x|; a NaN is larger than all else. */
GW_DEVICE float gw_larger(float top, float x)
{
#ifdef __CUDA_ARCH__
    float larger;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(top), "f"(fabsf(x)));
    return larger;
#else
    return gw_bits(fabsf(x)) > gw_bits(top) ? fabsf(x) : top;
#endif
}

/* The sum over the divisor, counted if not finite, and written. ONE_NAN: all NaN are the same. */
template <int LAYOUT, int ONE_NAN = 1, class B>
GW_DEVICE void gw_write_sum(float x[GW_OWN], const B &batch, const gw_span_out &t, uint64_t at,
                            uint32_t m)
{
    const uint32_t by = batch.divisor;
    float top = 0;
    if (by != 1 && (by & (by - 1)) == 0) { /* a reciprocal that is exact */
        const float factor = 1 / (float)by;
#pragma unroll
        for (int i = 0; i < GW_OWN; i++) {
            x[i] *= factor;
        }
    } else if (by != 1) {
#pragma unroll
        for (int i = 0; i < GW_OWN; i++) {
            x[i] /= (float)by;
        }
    }
#pragma unroll
    for (int i = 0; i < GW_OWN; i++) {
        top = gw_larger(top, x[i]);
    }
    if ((gw_bits(top) & GW_ABS_MASK) >= GW_INF_BITS) {
        uint64_t n = 0;
#pragma unroll
        for (int i = 0; i < GW_OWN; i++) {
            const uint32_t j = gw_quad_at<LAYOUT>(threadIdx.x, i / 4) + (uint32_t)i % 4;
            const uint32_t a = gw_bits(x[i]) & GW_ABS_MASK;
            n += j < m && a >= GW_INF_BITS;
            x[i] = ONE_NAN && a > GW_INF_BITS ? gw_float(GW_NAN_BITS) : x[i];
        }
        gw_count(&t.result->non_finite, n);
    }
    gw_write_quads<LAYOUT>(x, t.out, batch.s.dtype, at, m, batch.s.tile);
}

GW_DEVICE void gw_add_all(float sum[GW_OWN], const float v[GW_OWN])
{
#pragma unroll
    for (int i = 0; i < GW_OWN; i++) {
        sum[i] = sum[i] + v[i];
    }
}

/* Decodes a tile: `abreast` payloads at a time are brought to shared memory, a warp each, all of them under way at once, and
 * added up in registers. C says what a codec's bytes mean:
 *   C::begin(s, at)           where the bytes of element `at` begin, `at` being a multiple of the tile
 *   C::bytes(s, m)            how many a tile of m elements has
 *   C::add(sum, string, s, m) adds the thread's 16 numbers, in rows; 0 for bytes that no encoder writes */
typedef struct gw_string {
    const uint32_t *words; /* shared memory */
    uint32_t bit;          /* of the string's first byte in it */
} gw_string;

template <class C, class B>
GW_DEVICE void gw_decode_tile(const B &batch, uint32_t index, uint64_t at, uint32_t m)
{
    GW_DYNAMIC_SHARED(strings);
    const gw_span_out &t = batch.tensor[index];
    const uint32_t bytes = C::bytes(batch.s, m), warp = threadIdx.x / 32;
    if (m == 0) {
        return; /* an empty tensor */
    }
    const uint64_t from = C::begin(batch.s, at);
    const uint8_t *const *payload = batch.payload + index * batch.n_payloads;
    float sum[GW_OWN];
    int sound = 1;
    for (uint32_t first = 0; first < batch.n_payloads; first += batch.abreast) {
        const uint32_t left = batch.n_payloads - first,
                       k = left < batch.abreast ? left : batch.abreast;
        if (first != 0) {
            __syncthreads();
        }
        for (uint32_t p = warp; p < k; p += blockDim.x / 32) {
            gw_copy_in(strings + p * batch.stride, payload[first + p] + from, bytes,
                       threadIdx.x % 32, 32);
        }
        if (first == 0) {
            gw_begin_sum<GW_IN_ROWS>(sum, batch, t, at, m);
        }
        gw_copies_done();
        __syncthreads();
        for (uint32_t p = 0; p < k; p++) {
            const gw_string string = {(const uint32_t *)(strings + p * batch.stride),
                                      8 * ((uint32_t)(uintptr_t)(payload[first + p] + from) & 15)};
            sound &= C::add(sum, string, batch.s, m);
        }
    }
    if (!sound) {
        gw_blame(t.result, GW_ERR_CORRUPT);
    }
    gw_write_sum<GW_IN_ROWS>(sum, batch, t, at, m);
}

template <class C, class B> GW_DEVICE void gw_decode_tile(const B &batch)
{
    uint64_t at;
    const uint32_t index = gw_find_tile(batch, &at);
    gw_decode_tile<C>(batch, index, at, gw_span_left(batch.tensor[index].count, at, batch.s.tile));
}

/* The sum of many payloads of one large tensor: a block goes over GW_ROLL tiles, side by side, which memory likes better than far apart, and
 * as soon as a payload's words have been added asks for those that come next in their place, so that as many as fit into
 * registers are always on their way. R says how:
 *   R::slot, R::SLOTS         a thread's words of one payload's tile; how many payloads are in registers
 *   R::LAYOUT                 of the thread's numbers
 *   R::load(&slot, payload, at), R::add(sum, &slot)
 * A last tile that is not whole is gw_decode_tile's. */
#ifdef GW_EMULATED
enum { GW_ROLL = 4, GW_ROLL_LEAST = 2 /* tiles; a processor is slow */ };
#else
enum { GW_ROLL = 2, GW_ROLL_LEAST = 1024 };
#endif

template <int N, int P>
static inline int gw_rolls(const gw_decode_batch<N, P> &batch, uint32_t slots)
{
    return batch.s.n == 1 && !batch.add && batch.n_payloads % slots == 0 &&
           (batch.loose & 3) == 0 && batch.s.tile == GW_TILE && batch.begin[1] >= GW_ROLL_LEAST;
}

template <class R, class C, class B> GW_DEVICE void gw_roll(const B &batch)
{
    const gw_span_out &t = batch.tensor[0];
    const uint8_t *const *payload = batch.payload;
    const uint64_t whole = t.count / GW_TILE * GW_TILE;
    uint64_t at = (uint64_t)blockIdx.x * (GW_ROLL * GW_TILE);
    const uint64_t end = at + GW_ROLL * GW_TILE, stop = end < whole ? end : whole;
    const uint32_t n = batch.n_payloads;
    int sound = 1;
    if (at < stop) {
        typename R::slot slots[R::SLOTS];
#pragma unroll
        for (int p = 0; p < R::SLOTS; p++) {
            R::load(&slots[p], payload[p], at);
        }
#pragma unroll 1
        for (; at < stop; at += GW_TILE) {
            float sum[GW_OWN];
#pragma unroll
            for (int i = 0; i < GW_OWN; i++) {
                sum[i] = -0.0f; /* changes nothing that is added to it */
            }
#pragma unroll 1
            for (uint32_t first = 0; first < n; first += R::SLOTS) {
                const int last = first + R::SLOTS >= n, more = !last || at + GW_TILE < stop;
                const uint8_t *const *next = payload + (last ? 0 : first + R::SLOTS);
                const uint64_t then = last ? at + GW_TILE : at;
#pragma unroll
                for (int p = 0; p < R::SLOTS; p++) {
                    sound &= R::add(sum, &slots[p]);
                    if (more) {
                        R::load(&slots[p], next[p], then);
                    }
                }
            }
            gw_write_sum<R::LAYOUT>(sum, batch, t, at, GW_TILE);
        }
    }
    if (!sound) {
        gw_blame(t.result, GW_ERR_CORRUPT);
    }
    if (at < end && at < t.count) {
        gw_decode_tile<C>(batch, 0, at, (uint32_t)(t.count - at));
    }
}

/* The same by way of shared memory, for strings that begin anywhere: LOAD payloads of a tile are a load, and while one load is added the next
 * is on its way. r.add(sum, strings, begin) adds a whole tile's, whose first byte is there. */
template <class B> struct gw_ring {
    const B *batch;
    uint8_t *strings;      /* of two loads */
    gw_announcement *come; /* two */
    uint64_t at, whole;    /* of the load that is to come next, of the tiles */
    uint32_t first;
};

/* One payload's string of a tile: where its bytes in blocks of 16 begin and end, from the address in front of it that is a multiple of
 * 16 on. Blocks that the payload does not fill are left out. */
typedef struct gw_blocks {
    uint32_t begin, end;
} gw_blocks;

GW_DEVICE gw_blocks gw_blocks_of(const uint8_t *payload, uint64_t from, uint32_t bytes,
                                 uint64_t all)
{
    const uint32_t shift = (uint32_t)(uintptr_t)(payload + from) & 15;
    const uint32_t begin = from < shift ? 16 : 0, end = (shift + bytes + 15) / 16 * 16;
    return {begin, from + end - shift > all ? end - 16 : end};
}

/* LOAD threads of a warp start the next load on its way to place `which`, a payload each. */
template <int LOAD, class C, class B> GW_DEVICE void gw_ring_load(gw_ring<B> &ring, uint32_t which)
{
    const B &batch = *ring.batch;
    if (ring.at >= ring.whole) {
        return;
    }
    const uint64_t from = C::begin(batch.s, ring.at), count = batch.tensor[0].count;
    const uint64_t all =
        C::begin(batch.s, ring.whole) + C::bytes(batch.s, (uint32_t)(count - ring.whole));
    const uint32_t bytes = C::bytes(batch.s, GW_TILE), p = threadIdx.x;
    if (ring.first + p < batch.n_payloads) {
        const uint8_t *payload = batch.payload[ring.first + p], *string = payload + from;
        const gw_blocks b = gw_blocks_of(payload, from, bytes, all);
        const uint32_t shift = (uint32_t)(uintptr_t)string & 15;
        uint8_t *to = ring.strings + (LOAD * which + p) * batch.stride;
#pragma unroll 1
        for (uint32_t i = shift; i < b.begin; i++) {
            to[i] = string[i - shift];
        }
#pragma unroll 1
        for (uint32_t i = b.end; i < shift + bytes; i++) {
            to[i] = string[i - shift];
        }
        gw_bulk_expect(&ring.come[which], b.end - b.begin);
        gw_bulk_copy(to + b.begin, string - shift + b.begin, b.end - b.begin, &ring.come[which]);
    } else {
        gw_bulk_expect(&ring.come[which], 0);
    }
    ring.first += LOAD;
    if (ring.first >= batch.n_payloads) {
        ring.first = 0;
        ring.at += (uint64_t)gridDim.x * GW_TILE;
    }
}

template <int LOAD, class R, class C, class B> GW_DEVICE void gw_roll_by_copies(const B &batch)
{
    GW_DYNAMIC_SHARED(strings);
    __shared__ gw_announcement come[2];
    const gw_span_out &t = batch.tensor[0];
    const uint64_t whole = t.count / GW_TILE * GW_TILE;
    uint64_t at = (uint64_t)blockIdx.x * GW_TILE;
    gw_ring<B> ring = {&batch, strings, come, at, whole, 0};
    const R r;
    uint32_t k = 0;
    int sound = 1;
    if (threadIdx.x == 0) {
        gw_bulk_begin(&come[0], LOAD);
        gw_bulk_begin(&come[1], LOAD);
    }
    __syncthreads();
    if (threadIdx.x < LOAD) {
        gw_ring_load<LOAD, C>(ring, 0);
        gw_ring_load<LOAD, C>(ring, 1);
    }
    __syncthreads();
#pragma unroll 1
    for (; at < whole; at += (uint64_t)gridDim.x * GW_TILE) {
        const uint32_t from = gw_afresh((uint32_t)C::begin(batch.s, at));
        float sum[GW_OWN];
#pragma unroll
        for (int i = 0; i < GW_OWN; i++) {
            sum[i] = -0.0f; /* changes nothing that is added to it */
        }
#pragma unroll 1
        for (uint32_t first = 0; first < batch.n_payloads; first += LOAD, k++) {
            gw_bulk_wait(&come[k % 2], k / 2 % 2);
            const uint32_t load = k % 2 * LOAD * batch.stride, left = batch.n_payloads - first;
            const auto add = [&](uint32_t p) {
                const uint32_t shift = ((uint32_t)(uintptr_t)batch.payload[first + p] + from) & 15;
                sound &= r.add(sum, strings, load + p * batch.stride + shift);
            };
            if (left >= LOAD) {
#pragma unroll
                for (uint32_t p = 0; p < LOAD; p++) {
                    add(p);
                }
            } else {
#pragma unroll 1
                for (uint32_t p = 0; p < left; p++) {
                    add(p);
                }
            }
            __syncthreads();
            if (threadIdx.x < LOAD) {
                gw_ring_load<LOAD, C>(ring, k % 2);
            }
        }
        gw_write_sum<GW_IN_ROWS>(sum, batch, t, at, GW_TILE);
    }
    if (!sound) {
        gw_blame(t.result, GW_ERR_CORRUPT);
    }
    if (at < t.count) {
        gw_decode_tile<C>(batch, 0, at, (uint32_t)(t.count - at));
    }
}

/* Shared memory of one string of `bytes`: it begins anywhere in its first 16 bytes, and a word behind it may be read. */
static inline uint32_t gw_string_stride(uint32_t bytes)
{
    return (bytes + 15 + 4 + 15) / 16 * 16;
}

GW_DEVICE void gw_all_nan(float v[GW_OWN])
{
#pragma unroll
    for (int i = 0; i < GW_OWN; i++) {
        v[i] = gw_float(GW_NAN_BITS);
    }
}

#endif
