/* Reading AdaComp's payloads on the device. */
#ifndef GW_CUDA_ADACOMP_READ_H
#define GW_CUDA_ADACOMP_READ_H

#include "codec/cuda_adacomp.h"

/* ---- reading ---- */

enum { GW_ADA_PIECE = 8192, GW_ADA_THREADS = 256, GW_ADA_OWN = GW_ADA_PIECE / GW_ADA_THREADS };

/* Where decoding keeps its tables: for every payload whether it adds up, the marks or ones of each piece of it, and the
 * entry or one with which each tile begins. */
typedef struct gw_ada_tables {
    uint32_t *sound, *pieces, *starts;
    uint32_t n_pieces, n_tiles;
} gw_ada_tables;

/* The most bytes that can be read without finding them wrong. */
static __host__ __device__ inline uint64_t gw_ada_most(uint64_t count, uint64_t bytes)
{
    const uint64_t most = GW_ADA_HEADER + 2 * count;
    return bytes < most ? bytes : most;
}

static __host__ __device__ inline uint32_t gw_ada_pieces(uint64_t count, uint64_t bytes)
{
    const uint64_t body = gw_ada_most(count, bytes) - GW_ADA_HEADER;
    return body == 0 ? 1 : (uint32_t)((body + GW_ADA_PIECE - 1) / GW_ADA_PIECE);
}

static __host__ __device__ inline gw_ada_tables gw_ada_tables_in(uint8_t *room, uint64_t count,
                                                                 uint64_t bytes, uint32_t tile)
{
    gw_ada_tables t;
    t.n_pieces = gw_ada_pieces(count, bytes);
    t.n_tiles = gw_ada_tiles(count, tile);
    t.sound = (uint32_t *)room;
    t.pieces = t.sound + GW_CUDA_MAX_PAYLOADS;
    t.starts = t.pieces + (size_t)t.n_pieces * GW_CUDA_MAX_PAYLOADS;
    return t;
}

/* A payload's header, checked; status is GW_OK if what it says fits its size. */
typedef struct gw_ada_head {
    const uint8_t *body;
    uint64_t n, ones; /* entries, or elements sent; bytes of what is counted */
    float scale;
    uint32_t form;
    gw_status status;
} gw_ada_head;

GW_DEVICE gw_ada_head gw_ada_read_head(const gw_cuda_payload &p, const gw_ada &s, uint64_t count,
                                       uint64_t most)
{
    gw_ada_head h = {NULL, 0, 0, 0, GW_ADA_NON_FINITE, GW_OK};
    const uint64_t size = gw_payload_size(p, GW_ADA_HEADER, gw_ada_most(count, most), &h.status);
    if (h.status != GW_OK) {
        return h;
    }
    const uint8_t *bytes = (const uint8_t *)p.bytes;
    const uint32_t first = gw_there_u32(bytes), scale = gw_there_u32(bytes + 4);
    const uint64_t left = size - GW_ADA_HEADER, bitmap = (count + 7) / 8;
    h.n = gw_there_u64(bytes + 8);
    h.body = bytes + GW_ADA_HEADER;
    h.form = first;
    h.scale = gw_float(scale);
    const int fits = first == GW_ADA_NON_FINITE
                         ? scale == GW_NAN_BITS && h.n == 0 && left == 0
                         : scale < GW_INF_BITS &&
                               (first == GW_ADA_ENTRIES ? h.n <= left && h.n * s.width == left
                                                        : first == GW_ADA_BITMAP && h.n <= count &&
                                                              bitmap + (h.n + 7) / 8 == left);
    if (!fits) {
        h.status = GW_ERR_CORRUPT;
    }
    h.ones = first == GW_ADA_ENTRIES ? left : first == GW_ADA_BITMAP ? bitmap : 0;
    return h;
}

/* Of the thread's bytes of a piece: last marks, or ones. */
GW_DEVICE uint32_t gw_ada_count(const gw_ada_head &h, const gw_ada &s, uint64_t from, uint64_t to)
{
    uint32_t n = 0;
    for (uint64_t i = from; i < to; i++) {
        n += h.form == GW_ADA_BITMAP ? (uint32_t)__popc(h.body[i])
                                     : (i % s.width == s.width - 1 ? h.body[i] >> 7 : 0);
    }
    return n;
}

/* Which payload and piece this block has. */
typedef struct gw_ada_piece {
    uint32_t tensor, payload, number;
    gw_ada_head head;
    gw_ada_tables tables;
    uint64_t from, to; /* the thread's bytes */
} gw_ada_piece;

template <class B> GW_DEVICE gw_ada_piece gw_ada_find_piece(const B &batch)
{
    gw_ada_piece w;
    uint32_t number;
    w.tensor = gw_select_find(batch, &number);
    const gw_select_out &t = batch.tensor[w.tensor];
    w.tables = gw_ada_tables_in(t.room, t.count, t.bytes, batch.s.window_tile);
    w.payload = number / w.tables.n_pieces;
    w.number = number % w.tables.n_pieces;
    w.head = gw_ada_read_head(batch.payload[w.tensor * batch.n_payloads + w.payload], batch.s,
                              t.count, t.bytes);
    const uint64_t all = w.head.status == GW_OK ? w.head.ones : 0;
    w.from = (uint64_t)w.number * GW_ADA_PIECE + threadIdx.x * GW_ADA_OWN;
    w.to = w.from + GW_ADA_OWN;
    w.from = w.from < all ? w.from : all;
    w.to = w.to < all ? w.to : all;
    return w;
}

template <class B>
__global__ void __launch_bounds__(GW_ADA_THREADS)
    gw_ada_count_kernel(const __grid_constant__ B batch)
{
    __shared__ uint32_t of_warps[GW_ADA_THREADS / 32];
    const gw_ada_piece w = gw_ada_find_piece(batch);
    uint32_t all;
    (void)gw_block_before(gw_ada_count(w.head, batch.s, w.from, w.to), of_warps, &all);
    if (threadIdx.x == 0) {
        w.tables.pieces[w.payload * w.tables.n_pieces + w.number] = all;
    }
}

/* Does what was counted agree with the header, and are bits that nobody uses zero? */
GW_DEVICE int gw_ada_adds_up(const gw_ada_head &h, const gw_ada &s, uint64_t count, uint64_t total)
{
    if (h.form == GW_ADA_ENTRIES) {
        const uint64_t bins = (count + s.bin - 1) / s.bin;
        return total == bins && (h.n == 0 || h.body[h.ones - 1] >> 7 != 0);
    }
    return total == h.n && (count % 8 == 0 || h.body[h.ones - 1] >> count % 8 == 0) &&
           (h.n % 8 == 0 || h.body[h.ones + h.n / 8] >> h.n % 8 == 0);
}

/* Where each tile begins. Every block adds up the pieces before its own. */
template <class B>
__global__ void __launch_bounds__(GW_ADA_THREADS)
    gw_ada_place_kernel(const __grid_constant__ B batch)
{
    __shared__ uint32_t of_warps[2][GW_ADA_THREADS / 32];
    const gw_ada_piece w = gw_ada_find_piece(batch);
    const gw_ada &s = batch.s;
    const gw_select_out &t = batch.tensor[w.tensor];
    const uint32_t *pieces = w.tables.pieces + w.payload * w.tables.n_pieces;
    uint32_t *starts = w.tables.starts + (size_t)w.payload * w.tables.n_tiles;
    uint32_t mine = 0, base, all;
    for (uint32_t i = threadIdx.x; i < w.number; i += GW_ADA_THREADS) {
        mine += pieces[i];
    }
    (void)gw_block_before(mine, of_warps[0], &base);
    uint32_t n = base + gw_block_before(gw_ada_count(w.head, s, w.from, w.to), of_warps[1], &all);
    const uint32_t tile_bins = s.window_tile / s.bin;
    for (uint64_t i = w.from; i < w.to; i++) {
        if (w.head.form == GW_ADA_BITMAP) {
            const uint64_t tile = (8 * i + s.window_tile - 1) / s.window_tile;
            const uint64_t ahead = tile * s.window_tile - 8 * i; /* of the next border */
            if (ahead < 8 && tile < w.tables.n_tiles) {
                starts[tile] =
                    n + (uint32_t)__popc(w.head.body[i] & gw_bits_below((uint32_t)ahead));
            }
            n += (uint32_t)__popc(w.head.body[i]);
        } else if (i % s.width == s.width - 1 && w.head.body[i] >> 7 != 0) {
            n++;
            if (n % tile_bins == 0 && n / tile_bins < w.tables.n_tiles) {
                starts[n / tile_bins] = (uint32_t)(i / s.width) + 1;
            }
        }
    }
    if (threadIdx.x == 0 && w.number == 0) {
        starts[0] = 0;
    }
    if (threadIdx.x == 0 && w.number == w.tables.n_pieces - 1) {
        const int sound =
            w.head.status == GW_OK &&
            (w.head.form == GW_ADA_NON_FINITE || gw_ada_adds_up(w.head, s, t.count, base + all));
        w.tables.sound[w.payload] = (uint32_t)sound;
    }
}

/* A tile of the output, of which elements from `skip` on stand in the window. */
typedef struct gw_ada_window {
    float *sum;
    uint64_t at;             /* the tile's first element */
    uint32_t m, skip, shown; /* elements of the tile; of them before the window, in it */
    int set;                 /* the first payload of GW_SET */
} gw_ada_window;

GW_DEVICE void gw_ada_put(const gw_ada_window &w, uint32_t e, float v)
{
    if (e - w.skip < w.shown) {
        float *to = &w.sum[e - w.skip];
        *to = w.set ? v : *to + v;
    }
}

GW_DEVICE uint32_t gw_ada_entry(const uint8_t *body, uint32_t width, uint64_t j)
{
    return width == 1 ? body[j] : (uint32_t)body[2 * j] | (uint32_t)body[2 * j + 1] << 8;
}

/* Entries begin … end − 1 of a payload that adds up are the tile's. 0: they are not what an encoder writes. */
GW_DEVICE int gw_ada_put_entries(const gw_ada_head &h, const gw_ada &s, const gw_ada_window &w,
                                 uint64_t begin, uint64_t end)
{
    __shared__ uint32_t of_warps[2][GW_ADA_THREADS / 32];
    const uint32_t empty = (1u << s.sign_at) - 1, last_at = s.sign_at + 1;
    uint32_t bins = 0, turn = 0;
    int sound = 1;
    for (uint64_t round = begin; round < end; round += GW_ADA_THREADS, turn ^= 1) {
        const uint64_t j = round + threadIdx.x;
        const uint32_t entry = j < end ? gw_ada_entry(h.body, s.width, j) : 0;
        const uint32_t last = entry >> last_at;
        uint32_t all;
        const uint32_t bin = bins + gw_block_before(last, of_warps[turn], &all);
        bins += all;
        const uint32_t first = bin * s.bin, index = entry & empty;
        if (j >= end) {
            continue;
        }
        const uint32_t before = j > begin ? gw_ada_entry(h.body, s.width, j - 1) : 1u << last_at;
        const int opens = before >> last_at != 0;
        const int mark = index == empty && last != 0 && opens && (entry >> s.sign_at & 1) == 0;
        const uint32_t length = first >= w.m ? 0 : w.m - first < s.bin ? w.m - first : s.bin;
        if (!mark && (index >= length || (!opens && index <= (before & empty)))) {
            sound = 0;
        } else if (!mark) {
            gw_ada_put(w, first + index, gw_adacomp_value(h.scale, entry >> s.sign_at & 1));
        }
    }
    return sound;
}

GW_DEVICE void gw_ada_put_bitmap(const gw_ada_head &h, const gw_ada_window &w, uint64_t rank)
{
    __shared__ uint32_t of_warps[2][GW_ADA_THREADS / 32];
    const uint8_t *signs = h.body + h.ones;
    uint32_t turn = 0;
    for (uint32_t round = 0; round < w.m; round += 32 * GW_ADA_THREADS, turn ^= 1) {
        const uint32_t e = round + 32 * threadIdx.x, n = e >= w.m ? 0 : w.m - e;
        const uint64_t bit = w.at + e, stop = bit + (n < 32 ? n : 32);
        uint64_t some = 0;
        for (uint64_t i = bit / 8; 8 * i < stop; i++) {
            some |= (uint64_t)h.body[i] << 8 * (i - bit / 8);
        }
        uint32_t word = (uint32_t)(some >> bit % 8) & gw_bits_below(n), all;
        uint64_t j = rank + gw_block_before((uint32_t)__popc(word), of_warps[turn], &all);
        rank += all;
        for (; word != 0; word &= word - 1, j++) {
            gw_ada_put(w, e + gw_lowest(word),
                       gw_adacomp_value(h.scale, (uint32_t)signs[j / 8] >> j % 8 & 1u));
        }
    }
}

/* Adds payload p to the window; 0 if it is not what an encoder writes. All threads return the same. */
template <class B>
GW_DEVICE int gw_ada_add(const B &batch, uint32_t index, uint32_t p, uint32_t tile,
                         const gw_ada_window &w, gw_status *status)
{
    __shared__ uint32_t unsound;
    const gw_select_out &t = batch.tensor[index];
    const gw_ada_tables tables = gw_ada_tables_in(t.room, t.count, t.bytes, batch.s.window_tile);
    const gw_ada_head h =
        gw_ada_read_head(batch.payload[index * batch.n_payloads + p], batch.s, t.count, t.bytes);
    *status = h.status == GW_OK && tables.sound[p] == 0 ? GW_ERR_CORRUPT : h.status;
    if (*status != GW_OK || h.form == GW_ADA_NON_FINITE) {
        return 0;
    }
    const uint32_t *starts = tables.starts + (size_t)p * tables.n_tiles;
    if (threadIdx.x == 0) {
        unsound = 0;
    }
    __syncthreads();
    if (h.form == GW_ADA_BITMAP) {
        gw_ada_put_bitmap(h, w, starts[tile]);
    } else if (!gw_ada_put_entries(h, batch.s, w, starts[tile],
                                   tile + 1 < tables.n_tiles ? starts[tile + 1] : h.n)) {
        unsound = 1;
    }
    __syncthreads();
    *status = unsound != 0 ? GW_ERR_CORRUPT : GW_OK;
    const int sound = unsound == 0;
    __syncthreads();
    return sound;
}

template <class B>
__global__ void __launch_bounds__(GW_ADA_THREADS) gw_ada_sum_kernel(const __grid_constant__ B batch)
{
    __shared__ float sum[GW_SELECT_WINDOW];
    uint32_t tile;
    const uint32_t index = gw_select_find(batch, &tile);
    const gw_select_out &t = batch.tensor[index];
    gw_ada_window w = {sum, (uint64_t)tile * batch.s.window_tile, 0, 0, 0, 0};
    w.m = gw_span_left(t.count, w.at, batch.s.window_tile);
    for (; w.skip < w.m || (w.m == 0 && w.skip == 0); w.skip += GW_SELECT_WINDOW) {
        const uint32_t left = w.m - w.skip;
        w.shown = left < GW_SELECT_WINDOW ? left : (uint32_t)GW_SELECT_WINDOW;
        gw_begin_window(sum, batch, t, w.at + w.skip, w.shown);
        __syncthreads();
        for (uint32_t p = 0; p < batch.n_payloads; p++) {
            gw_status status;
            w.set = p == 0 && !batch.add;
            if (!gw_ada_add(batch, index, p, tile, w, &status)) {
                gw_spoil_window(sum, w.shown);
                if (threadIdx.x == 0 && status != GW_OK) {
                    gw_blame(t.result, status);
                }
                __syncthreads();
            }
        }
        gw_write_window(sum, batch, t, w.at + w.skip, w.shown);
        __syncthreads();
    }
}

#endif
