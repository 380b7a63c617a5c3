/* Reading topk's payloads on the device. Entries are found by the zeros of the string of high bits: behind its z-th zero begin
 * those whose index is z << low_bits or more. */
#ifndef GW_CUDA_TOPK_READ_H
#define GW_CUDA_TOPK_READ_H

#include "codec/cuda_values.h"

typedef struct gw_topk {
    double density;
    int natural;
} gw_topk;

enum {
    GW_TOPK_THREADS = 256,
    GW_TOPK_PIECE = 8192,
    GW_TOPK_BYTES = GW_TOPK_PIECE / GW_TOPK_THREADS
};

/* For every payload whether its list adds up, the ones of each piece of its high bits, and the entry with which each
 * window begins, or the entries of the high part that the window begins in. */
typedef struct gw_topk_tables {
    uint32_t *sound, *pieces, *starts;
    uint32_t n_pieces, n_windows;
} gw_topk_tables;

static __host__ __device__ inline uint32_t gw_topk_windows(uint64_t count)
{
    return count == 0 ? 1 : (uint32_t)((count + GW_SELECT_WINDOW - 1) / GW_SELECT_WINDOW);
}

static __host__ __device__ inline uint32_t gw_topk_pieces(const gw_index_list &list)
{
    return list.kept == 0 ? 1 : (uint32_t)((list.high_bytes + GW_TOPK_PIECE - 1) / GW_TOPK_PIECE);
}

static __host__ __device__ inline gw_index_list gw_topk_list(const gw_topk &s, uint64_t count)
{
    return gw_index_list_of(gw_kept_of(s.density, count), s.natural, count);
}

static __host__ __device__ inline gw_topk_tables
gw_topk_tables_in(uint8_t *room, const gw_index_list &list, uint64_t count)
{
    gw_topk_tables t;
    t.n_pieces = gw_topk_pieces(list);
    t.n_windows = gw_topk_windows(count);
    t.sound = (uint32_t *)room;
    t.pieces = t.sound + GW_CUDA_MAX_PAYLOADS;
    t.starts = t.pieces + (size_t)t.n_pieces * GW_CUDA_MAX_PAYLOADS;
    return t;
}

/* A block's piece of a payload's high bits. */
typedef struct gw_topk_piece {
    uint32_t payload, number;
    gw_index_list list;
    gw_topk_tables tables;
    const uint8_t *high;
    uint64_t from, to; /* the thread's bytes */
} gw_topk_piece;

template <class B> GW_DEVICE gw_topk_piece gw_topk_find_piece(const B &batch, uint64_t *count)
{
    gw_topk_piece w;
    uint32_t number;
    const uint32_t index = gw_select_find(batch, &number);
    const gw_select_out &t = batch.tensor[index];
    *count = t.count;
    w.list = gw_topk_list(batch.s, t.count);
    w.tables = gw_topk_tables_in(t.room, w.list, t.count);
    w.payload = number / w.tables.n_pieces;
    w.number = number % w.tables.n_pieces;
    w.high = (const uint8_t *)batch.payload[index * batch.n_payloads + w.payload].bytes +
             w.list.values_bytes + w.list.low_bytes;
    w.from = (uint64_t)w.number * GW_TOPK_PIECE + threadIdx.x * GW_TOPK_BYTES;
    w.to = w.from + GW_TOPK_BYTES;
    w.from = w.from < w.list.high_bytes ? w.from : w.list.high_bytes;
    w.to = w.to < w.list.high_bytes ? w.to : w.list.high_bytes;
    return w;
}

GW_DEVICE uint32_t gw_topk_ones(const gw_topk_piece &w)
{
    uint32_t n = 0;
    for (uint64_t i = w.from; i < w.to; i++) {
        n += (uint32_t)__popc(w.high[i]);
    }
    return n;
}

template <class B>
__global__ void __launch_bounds__(GW_TOPK_THREADS)
    gw_topk_count_kernel(const __grid_constant__ B batch)
{
    __shared__ uint32_t of_warps[GW_TOPK_THREADS / 32];
    uint64_t count;
    const gw_topk_piece w = gw_topk_find_piece(batch, &count);
    uint32_t all;
    (void)gw_block_before(gw_topk_ones(w), of_warps, &all);
    if (threadIdx.x == 0) {
        w.tables.pieces[w.payload * w.tables.n_pieces + w.number] = all;
    }
}

/* Behind zero number z there have been `ones` ones: the windows whose first element's high part is z. */
GW_DEVICE void gw_topk_place(const gw_topk_piece &w, uint64_t z, uint32_t ones, uint32_t *starts)
{
    enum { LOG = 13 };
    static_assert(1 << LOG == GW_SELECT_WINDOW, "a window");
    const uint32_t l = w.list.low_bits;
    if (l >= LOG) {
        for (uint64_t i = z << (l - LOG); i < (z + 1) << (l - LOG); i++) {
            if (i < w.tables.n_windows) {
                starts[i] = ones;
            }
        }
    } else if (z % ((uint64_t)1 << (LOG - l)) == 0 && z >> (LOG - l) < w.tables.n_windows) {
        starts[z >> (LOG - l)] = ones;
    }
}

template <class B>
__global__ void __launch_bounds__(GW_TOPK_THREADS)
    gw_topk_place_kernel(const __grid_constant__ B batch)
{
    __shared__ uint32_t of_warps[2][GW_TOPK_THREADS / 32];
    uint64_t count;
    const gw_topk_piece w = gw_topk_find_piece(batch, &count);
    const gw_index_list &list = w.list;
    const uint32_t *pieces = w.tables.pieces + w.payload * w.tables.n_pieces;
    uint32_t *starts = w.tables.starts + (size_t)w.payload * w.tables.n_windows;
    uint32_t mine = 0, base, all;
    for (uint32_t i = threadIdx.x; i < w.number; i += GW_TOPK_THREADS) {
        mine += pieces[i];
    }
    (void)gw_block_before(mine, of_warps[0], &base);
    uint32_t ones = base + gw_block_before(gw_topk_ones(w), of_warps[1], &all);
    for (uint64_t i = w.from; i < w.to; i++) {
        const uint32_t byte = w.high[i];
        for (uint32_t b = 0; b < 8 && 8 * i + b < list.high_bits; b++) {
            if (byte >> b & 1) {
                ones++;
            } else {
                gw_topk_place(w, 8 * i + b + 1 - ones, ones, starts);
            }
        }
    }
    if (threadIdx.x == 0 && w.number == 0) {
        gw_topk_place(w, 0, 0, starts);
    }
    if (threadIdx.x == 0 && w.number == w.tables.n_pieces - 1) {
        const uint64_t low_used = list.kept * list.low_bits % 8, high_used = list.high_bits % 8;
        w.tables.sound[w.payload] =
            base + all == list.kept &&
            (high_used == 0 || w.high[list.high_bytes - 1] >> high_used == 0) &&
            (low_used == 0 || w.high[-1] >> low_used == 0);
    }
}

/* The low bits of entry j. */
GW_DEVICE uint64_t gw_topk_low(const uint8_t *low, uint32_t bits, uint64_t j)
{
    const uint64_t at = j * bits;
    uint64_t some = 0;
    for (uint64_t i = at / 8; 8 * i < at + bits; i++) {
        some |= (uint64_t)low[i] << 8 * (i - at / 8);
    }
    return some >> at % 8 & (((uint64_t)1 << bits) - 1);
}

/* 32 of the high bits from `bit` on; zeros behind the end. */
GW_DEVICE uint32_t gw_topk_word(const uint8_t *high, const gw_index_list &list, uint64_t bit)
{
    uint64_t some = 0;
    for (uint64_t i = bit / 8; i < list.high_bytes && 8 * i < bit + 32; i++) {
        some |= (uint64_t)high[i] << 8 * (i - bit / 8);
    }
    return (uint32_t)(some >> bit % 8);
}

/* A window of the output, and one payload. */
typedef struct gw_topk_window {
    float *sum;
    uint64_t at, count;
    uint32_t m, number;
    int set, natural;
    const uint8_t *payload;
    gw_index_list list;
} gw_topk_window;

/* Entry j, whose one is bit `bit`. 0: it is not what an encoder writes. */
GW_DEVICE int gw_topk_put(const gw_topk_window &w, const uint8_t *high, uint64_t j, uint64_t bit)
{
    const uint8_t *low = w.payload + w.list.values_bytes;
    const uint32_t l = w.list.low_bits;
    const uint64_t mine = gw_topk_low(low, l, j), index = (bit - j) << l | mine;
    const int beside = j > 0 && bit > 0 && (high[(bit - 1) / 8] >> (bit - 1) % 8 & 1) != 0;
    float v;
    if (!gw_values_get(w.payload, w.natural, j, &v) || index >= w.count ||
        (beside && gw_topk_low(low, l, j - 1) >= mine)) {
        return 0;
    }
    if (index >= w.at && index - w.at < w.m) {
        float *to = &w.sum[index - w.at];
        *to = w.set ? v : *to + v;
    }
    return 1;
}

GW_DEVICE int gw_topk_add(const gw_topk_window &w, const uint32_t *starts, uint32_t n_windows)
{
    __shared__ uint32_t of_warps[2][GW_TOPK_THREADS / 32];
    const uint8_t *high = w.payload + w.list.values_bytes + w.list.low_bytes;
    const uint32_t l = w.list.low_bits;
    const uint64_t part = w.at >> l; /* the high part of the window's first element */
    const uint64_t next = ((part + 1) << l) / GW_SELECT_WINDOW, after = w.number + 1;
    const uint64_t stop = next > after ? next : after;
    const uint64_t end = stop < n_windows ? starts[stop] : w.list.kept;
    uint64_t j = starts[w.number], bit = part + j;
    int sound = 1;
    for (uint32_t turn = 0; j < end && bit < w.list.high_bits;
         bit += 32 * GW_TOPK_THREADS, turn ^= 1) {
        const uint64_t mine = bit + 32 * threadIdx.x;
        uint32_t word = gw_topk_word(high, w.list, mine), all;
        uint64_t k = j + gw_block_before((uint32_t)__popc(word), of_warps[turn], &all);
        for (; word != 0 && k < end; word &= word - 1, k++) {
            sound &= gw_topk_put(w, high, k, mine + gw_lowest(word));
        }
        j += all;
    }
    return sound;
}

template <class B>
__global__ void __launch_bounds__(GW_TOPK_THREADS)
    gw_topk_sum_kernel(const __grid_constant__ B batch)
{
    __shared__ float sum[GW_SELECT_WINDOW];
    __shared__ uint32_t unsound;
    uint32_t number;
    const uint32_t index = gw_select_find(batch, &number);
    const gw_select_out &t = batch.tensor[index];
    gw_topk_window w;
    w.sum = sum;
    w.at = (uint64_t)number * GW_SELECT_WINDOW;
    w.count = t.count;
    w.m = gw_span_left(t.count, w.at, GW_SELECT_WINDOW);
    w.number = number;
    w.natural = batch.s.natural;
    w.list = gw_topk_list(batch.s, t.count);
    const gw_topk_tables tables = gw_topk_tables_in(t.room, w.list, t.count);
    gw_begin_window(sum, batch, t, w.at, w.m);
    for (uint32_t p = 0; p < batch.n_payloads; p++) {
        w.payload = (const uint8_t *)batch.payload[index * batch.n_payloads + p].bytes;
        w.set = p == 0 && !batch.add;
        if (threadIdx.x == 0) {
            unsound = tables.sound[p] == 0;
        }
        __syncthreads();
        if (unsound == 0) {
            /* all threads have read it before one of them can write it: the first barrier inside is passed by all */
            const int sound =
                gw_topk_add(w, tables.starts + (size_t)p * tables.n_windows, tables.n_windows);
            __syncthreads();
            if (!sound) {
                unsound = 1;
            }
        }
        __syncthreads();
        if (unsound != 0) {
            gw_spoil_window(sum, w.m);
            if (threadIdx.x == 0) {
                gw_blame(t.result, GW_ERR_CORRUPT);
            }
        }
        __syncthreads();
    }
    gw_write_window(sum, batch, t, w.at, w.m);
}

#endif
