/* Low rank on the device, encoding: the right product, and what is left of G. */
#ifndef GW_CUDA_LOWRANK_RIGHT_H
#define GW_CUDA_LOWRANK_RIGHT_H

#include "codec/lowrank/cuda_lowrank_columns.h"
#include "codec/lowrank/cuda_lowrank_left.h"

/* NaN in place of all numbers. */
GW_DEVICE void gw_low_spoil(const gw_select_in &t, const gw_low_places &p)
{
    const uint64_t n = p.m.rank * (p.m.rows + p.m.cols);
    for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) {
        gw_low_leave(t.payload + GW_LOW_HEADER, i, GW_NAN_BITS);
    }
    if (threadIdx.x == 0 && p.at->non_finite == 0) {
        t.result->overflowed += t.count; /* in a product, which spoils all */
    }
}

/* P̂ by one block, or all of it spoilt. */
template <int WORKERS>
GW_DEVICE void gw_low_columns(gw_low_ortho_room<WORKERS> &room, const gw_select_in &t,
                              const gw_low_places &p)
{
    if (p.at->bad_left != 0) {
        gw_low_spoil(t, p);
        return;
    }
    const gw_low_ortho o = {p.columns, p.m.rows, p.m.rank, GW_LOW_CHUNK * gw_low_chunks(p.m),
                            p.left,    t.payload};
    gw_low_orthogonal(room, o);
}

/* ---- right ---- */

static __host__ __device__ inline uint32_t gw_low_right_blocks(const gw_low_places &p)
{
    return gw_low_chunks(p.m) * p.wide * p.n_parts;
}

/* Four of Q's rows and the thread's four columns, over its rows before `end`. */
template <int D, int QUADS>
GW_DEVICE void gw_low_right_rows(float sum[GW_LOW_CHUNK][4], const void *from,
                                 const gw_low_places &p, gw_low_tile at, uint64_t end, uint32_t k)
{
    enum { DEEP = 4 };
    const uint32_t cols = (uint32_t)p.m.cols;
    const uint64_t pitch = (uint64_t)at.groups * cols;
    const uint32_t stride = GW_LOW_CHUNK * gw_low_chunks(p.m);
    const uint64_t full = end < p.m.rows ? end : p.m.rows - (p.m.last < cols);
    const auto add = [&](uint64_t row, const float x[4]) {
        const float4 l = *(const float4 *)(p.left + row * stride + k);
        const float left[GW_LOW_CHUNK] = {l.x, l.y, l.z, l.w};
#pragma unroll
        for (uint32_t a = 0; a < 4 * GW_LOW_CHUNK; a++) {
            sum[a / 4][a % 4] = fmaf(left[a / 4], x[a % 4], sum[a / 4][a % 4]);
        }
    };
    for (; at.row + (DEEP - 1) * at.groups < full; at.row += DEEP * at.groups) {
        const uint64_t i = at.row * cols + at.column;
        float x[DEEP][4];
#pragma unroll
        for (uint32_t a = 0; a < DEEP; a++) {
            if (QUADS) {
                gw_low_load_four<D>(x[a], from, i + a * pitch);
            } else {
                gw_low_load_some<D>(x[a], from, i + a * pitch, at.column, at.step, cols);
            }
        }
#pragma unroll
        for (uint32_t a = 0; a < DEEP; a++) {
            add(at.row + a * at.groups, x[a]);
        }
    }
    for (; at.row < end; at.row += at.groups) {
        float x[4];
        gw_low_load_some<D>(x, from, at.row * cols + at.column, at.column, at.step,
                            gw_low_long(p.m, at.row));
        add(at.row, x);
    }
}

GW_DEVICE void gw_low_right_sums(float sum[GW_LOW_CHUNK][4], const gw_select_in &t,
                                 const gw_low_places &p, gw_dtype dtype, const gw_low_tile &at,
                                 uint64_t end, uint32_t k)
{
    const void *from = t.after != NULL ? t.after : t.in;
    const gw_dtype kind = t.after != NULL ? GW_F32 : dtype;
    const int quads = at.step == 1;
    if (kind == GW_F32) {
        quads ? gw_low_right_rows<GW_F32, 1>(sum, from, p, at, end, k)
              : gw_low_right_rows<GW_F32, 0>(sum, from, p, at, end, k);
    } else if (kind == GW_F16) {
        quads ? gw_low_right_rows<GW_F16, 1>(sum, from, p, at, end, k)
              : gw_low_right_rows<GW_F16, 0>(sum, from, p, at, end, k);
    } else {
        quads ? gw_low_right_rows<GW_BF16, 1>(sum, from, p, at, end, k)
              : gw_low_right_rows<GW_BF16, 0>(sum, from, p, at, end, k);
    }
}

GW_DEVICE void gw_low_put_right(const gw_select_in &t, const gw_low_places &p, uint64_t i, float v)
{
    gw_low_leave(t.payload + GW_LOW_HEADER, p.m.rank * p.m.rows + i, gw_bits(v));
    if (gw_low_odd(v)) {
        p.at->bad_right = 1;
    }
}

/* Is this block the last of `n` to come here? All threads of it learn it, and see what the others wrote. */
GW_DEVICE int gw_low_last_of(uint32_t *ticket, uint32_t n)
{
    __shared__ int last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(ticket, 1u) == n - 1;
        __threadfence();
    }
    __syncthreads();
    const int mine = last;
    __syncthreads();
    return mine;
}

/* The sums of a part, over the block's rows of threads. */
GW_DEVICE void gw_low_put_part(const gw_select_in &t, const gw_low_places &p,
                               const float sum[GW_LOW_CHUNK][4], const gw_low_tile &at,
                               uint32_t part, uint64_t first, uint32_t k)
{
    __shared__ float some[4 * GW_LOW_CHUNK][GW_LOW_THREADS];
    const uint32_t lanes = GW_LOW_THREADS / at.groups;
#pragma unroll
    for (uint32_t a = 0; a < 4 * GW_LOW_CHUNK; a++) {
        some[a][threadIdx.x] = sum[a / 4][a % 4];
    }
    __syncthreads();
    for (uint32_t n = threadIdx.x; n < 4 * GW_LOW_CHUNK * lanes; n += GW_LOW_THREADS) {
        const uint32_t a = n / lanes, lane = n % lanes, j = k + a / 4, q = a % 4;
        const uint64_t c = first + (at.step == 1 ? 4 * lane + q : lane + lanes * q);
        float all = 0;
        for (uint32_t g = 0; g < at.groups; g++) {
            all += some[a][g * lanes + lane];
        }
        if (c >= p.m.cols || j >= p.m.rank) {
            continue;
        }
        if (p.n_parts == 1) {
            gw_low_put_right(t, p, j * p.m.cols + c, all);
        } else {
            p.parts[((uint64_t)part * p.m.rank + j) * p.m.cols + c] = all;
        }
    }
    __syncthreads();
}

/* All parts of a tile of Q. */
GW_DEVICE void gw_low_gather(const gw_select_in &t, const gw_low_places &p, uint64_t first,
                             uint32_t width, uint32_t k)
{
    for (uint32_t n = threadIdx.x; n < GW_LOW_CHUNK * width; n += GW_LOW_THREADS) {
        const uint64_t j = k + n / width, c = first + n % width, i = j * p.m.cols + c;
        if (c >= p.m.cols || j >= p.m.rank) {
            continue;
        }
        const volatile float *from = p.parts + i;
        float sum = 0;
#pragma unroll 8
        for (uint32_t part = 0; part < p.n_parts; part++) {
            sum += from[part * p.m.rank * p.m.cols];
        }
        gw_low_put_right(t, p, i, sum);
    }
}

/* Asks for the first rows of a block's part while P̂ is still being made, by one block that leaves memory alone. */
GW_DEVICE void gw_low_right_early(const gw_select_in &t, const gw_low_places &p, gw_dtype dtype,
                                  uint32_t number)
{
    const uint32_t part = number / p.wide % p.n_parts, width = 4 * gw_low_lanes(p.m.cols);
    const uint64_t first = (uint64_t)(number % p.wide) * width, left = p.m.cols - first;
    const uint64_t row = part * p.part_rows + threadIdx.x, i = row * p.m.cols + first;
    const uint32_t size = t.after != NULL || dtype == GW_F32 ? 4 : 2;
    const uint8_t *from = (const uint8_t *)(t.after != NULL ? t.after : t.in) + i * size;
    const uint32_t bytes = (uint32_t)(left < width ? left : width) * size;
    if (threadIdx.x < GW_LOW_EARLY_ROWS && threadIdx.x < p.part_rows && i + width <= p.m.count &&
        bytes % 16 == 0 && gw_aligned_to(from, 16)) {
        gw_prefetch(from, bytes);
    }
}

GW_DEVICE void gw_low_right(const gw_select_in &t, const gw_low_places &p, gw_dtype dtype,
                            uint32_t number)
{
    if (p.at->bad_left != 0) {
        return;
    }
    const uint32_t part = number / p.wide % p.n_parts, wide = number % p.wide;
    const uint32_t chunk = number / p.wide / p.n_parts, k = chunk * GW_LOW_CHUNK;
    const uint32_t lanes = gw_low_lanes(p.m.cols), lane = threadIdx.x & (lanes - 1);
    const uint64_t first = (uint64_t)wide * 4 * lanes, row = part * p.part_rows;
    const uint64_t end = row + p.part_rows < p.m.rows ? row + p.part_rows : p.m.rows;
    const int quads = p.m.cols % 4 == 0 && gw_quads_aligned(t, dtype);
    const gw_low_tile at = {row + threadIdx.x / lanes, (uint32_t)first + (quads ? 4 * lane : lane),
                            GW_LOW_THREADS / lanes, quads ? 1 : lanes};
    float sum[GW_LOW_CHUNK][4] = {};
    if (at.column < p.m.cols) {
        gw_low_right_sums(sum, t, p, dtype, at, end, k);
    }
    gw_low_put_part(t, p, sum, at, part, first, k);
    if (p.n_parts > 1) {
        if (!gw_low_last_of(&p.tickets[chunk * p.wide + wide], p.n_parts)) {
            return;
        }
        gw_low_gather(t, p, first, 4 * lanes, k);
    }
    if (gw_low_last_of(&p.at->tiles, gw_low_chunks(p.m) * p.wide) &&
        *(const volatile uint32_t *)&p.at->bad_right != 0) {
        gw_low_spoil(t, p);
    }
}

/* ---- finish ---- */

template <int PAIRS>
GW_DEVICE void gw_low_finish_whole(const gw_select_in &t, const gw_low_places &p,
                                   const gw_low_tile &at)
{
    enum { HALF = GW_LOW_ROWS / 2 };
    const uint64_t pitch = at.groups * p.m.cols;
    const uint32_t end = (uint32_t)p.m.cols;
    float q[4][4];
    gw_low_right_whole<PAIRS>(q, p.m, at, t.payload);
#pragma unroll 1
    for (uint32_t n = 0; n < GW_LOW_ROWS; n += HALF) {
        const uint64_t row = at.row + n * at.groups, first = row * p.m.cols + at.column;
        float G[HALF][4];
#pragma unroll
        for (uint32_t r = 0; r < HALF; r++) {
            gw_low_read(G[r], t.after, GW_F32, first + r * pitch, at.column, at.step, end);
        }
        gw_low_product_whole<1, PAIRS, HALF>(G, q, row, t.payload);
#pragma unroll
        for (uint32_t r = 0; r < HALF; r++) {
            gw_low_write(G[r], t.after, GW_F32, first + r * pitch, at.column, at.step, end);
        }
    }
}

GW_DEVICE void gw_low_finish(const gw_select_in &t, const gw_low_places &p, uint32_t number)
{
    const gw_low_tile at =
        gw_low_tile_of(p.m, number, p.m.cols % 4 == 0 && gw_aligned_to(t.after, 16));
    if (t.after == NULL || p.at->bad_left != 0 || p.at->bad_right != 0) {
        return; /* a bad one's r′ is not to be kept */
    }
    if (p.m.rank == 4 && gw_aligned_to(t.payload, 4) && gw_low_whole(p.m, at)) {
        if (at.step == 1 && gw_aligned_to(t.payload, 8)) {
            gw_low_finish_whole<1>(t, p, at);
        } else {
            gw_low_finish_whole<0>(t, p, at);
        }
        return;
    }
#pragma unroll 1
    for (uint32_t r = 0; r < GW_LOW_ROWS; r++) {
        const uint64_t row = at.row + r * at.groups, i = row * p.m.cols + at.column;
        const uint32_t end = gw_low_long(p.m, row);
        float G[4];
        if (at.column >= end) {
            continue;
        }
        gw_low_read(G, t.after, GW_F32, i, at.column, at.step, end);
        if (gw_aligned_to(t.payload, 4)) {
            gw_low_product_row<1, 1>(G, p.m, at, row, end, t.payload);
        } else {
            gw_low_product_row<1, 0>(G, p.m, at, row, end, t.payload);
        }
        gw_low_write(G, t.after, GW_F32, i, at.column, at.step, end);
    }
}

#endif
