/* Low rank on the device, encoding: where a tensor's parts of the workspace are, Q0 and the left product. */
#ifndef GW_CUDA_LOWRANK_LEFT_H
#define GW_CUDA_LOWRANK_LEFT_H

#include "codec/lowrank/cuda_lowrank.h"

enum {
    GW_LOW_LEFT_ROWS =
        16, /* of a block of wide matrices; of them a warp's, and its columns at once */
    GW_LOW_WARP_ROWS = 4,
    GW_LOW_WARP_COLS = 128,
    GW_LOW_LEFT_COLS = 2 * GW_LOW_WARP_COLS,
    GW_LOW_PARTS_BLOCKS = 528, /* of the right product */
    GW_LOW_LEAST_ROWS = 16,    /* of a thread of it */
    GW_LOW_EARLY_ROWS =
        48, /* of a block of it, that are asked for early; all of them fit into the cache */
    GW_LOW_SMALL = 32768 /* elements, one block's work */
};

typedef struct gw_low_state {
    uint64_t non_finite;          /* of G */
    uint32_t bad_left, bad_right; /* is a product not finite? */
    uint32_t tiles;               /* of Q, that are done */
} gw_low_state;

typedef struct gw_low_places {
    gw_low_state *at;
    gw_matrix m;
    double *columns;
    float *start, *left, *parts;
    uint32_t *tickets;      /* parts of a tile of Q that are done */
    uint32_t n_parts, wide; /* parts of the rows; tiles of the columns */
    uint64_t part_rows;
} gw_low_places;

/* Q0 has as many rows, and a row of P̂ as many numbers, as whole chunks of the rank. */
static __host__ __device__ inline uint32_t gw_low_chunks(const gw_matrix &m)
{
    return (m.rank + GW_LOW_CHUNK - 1) / GW_LOW_CHUNK;
}

/* Where a matrix's parts lie, from `room` on. */
static __host__ __device__ inline gw_low_places gw_low_lay_out(uint8_t *room, const gw_matrix &m,
                                                               size_t *bytes)
{
    gw_low_places p;
    const uint64_t rank = m.rank, rows = m.rows, cols = m.cols, chunks = gw_low_chunks(m);
    p.m = m;
    p.wide = gw_low_wide(cols);
    p.n_parts = 1;
    p.part_rows = rows;
    if (rank != 0 && m.count > GW_LOW_SMALL) {
        const uint64_t least = (uint64_t)GW_LOW_LEAST_ROWS * GW_LOW_THREADS / gw_low_lanes(cols);
        const uint64_t most = (rows + least - 1) / least;
        const uint64_t wanted = GW_LOW_PARTS_BLOCKS / (p.wide * chunks);
        const uint64_t parts = wanted == 0 ? 1 : wanted < most ? wanted : most;
        p.part_rows = (rows + parts - 1) / parts;
        p.n_parts = (uint32_t)((rows + p.part_rows - 1) / p.part_rows);
    }
    const uint64_t apart = p.n_parts > 1 ? p.n_parts * rank * cols : 0;
    p.at = (gw_low_state *)room;
    p.start = (float *)(room + 256);
    p.left = p.start + GW_LOW_CHUNK * chunks * cols;
    p.columns = (double *)(p.left + GW_LOW_CHUNK * chunks * rows);
    p.parts = (float *)(p.columns + rank * rows);
    p.tickets = (uint32_t *)(p.parts + apart);
    *bytes = (size_t)(256 + 4 * GW_LOW_CHUNK * chunks * (rows + cols) + 8 * rank * rows +
                      4 * apart + 4 * chunks * p.wide);
    return p;
}

static inline gw_low_places gw_low_places_in(uint8_t *room, const gw_low &s, uint64_t count,
                                             size_t *bytes)
{
    return gw_low_lay_out(room, gw_matrix_of(s.rank, s.cols, count), bytes);
}

/* All that a launch needs to be told of a small tensor, so that it takes many. */
typedef struct gw_low_small {
    uint32_t cols, rank;
} gw_low_small;

static inline gw_low_small gw_low_small_in(uint8_t *room, const gw_low &s, uint64_t count,
                                           size_t *bytes)
{
    const gw_matrix m = gw_matrix_of(s.rank, s.cols, count);
    (void)gw_low_lay_out(room, m, bytes);
    return {(uint32_t)m.cols, m.rank};
}

GW_DEVICE const gw_low_places &gw_low_places_of(const gw_select_in &, const gw_low_places &p)
{
    return p;
}

GW_DEVICE gw_low_places gw_low_places_of(const gw_select_in &t, const gw_low_small &s)
{
    const uint32_t count = (uint32_t)t.count, rows = count == 0 ? 0 : (count - 1) / s.cols + 1;
    const gw_matrix m = {count, rows, s.cols, count == 0 ? 0 : count - (rows - 1) * s.cols, s.rank};
    size_t unused;
    return gw_low_lay_out(t.room, m, &unused);
}

GW_DEVICE int gw_low_odd(float x)
{
    return (gw_bits(x) & GW_ABS_MASK) >= GW_INF_BITS;
}

/* Four numbers in a row, and four of which those below `limit` are there, `step` apart from column c on. */
template <int D> GW_DEVICE void gw_low_load_four(float x[4], const void *in, uint64_t i)
{
    gw_read_four(x, in, (gw_dtype)D, i, 4, 1);
}

template <int D>
GW_DEVICE void gw_low_load_some(float x[4], const void *in, uint64_t i, uint32_t c, uint32_t step,
                                uint32_t limit)
{
#pragma unroll
    for (uint32_t q = 0; q < 4; q++) {
        x[q] = c + q * step < limit ? gw_one(in, (gw_dtype)D, i + q * step) : 0.0f;
    }
}

/* ---- start ---- */

static __host__ __device__ inline uint32_t gw_low_start_blocks(const gw_matrix &m)
{
    return (uint32_t)((GW_LOW_CHUNK * gw_low_chunks(m) * m.cols) / GW_LOW_THREADS) + 1;
}

GW_DEVICE void gw_low_start(const gw_select_in &t, const gw_low_places &p, uint32_t number)
{
    const uint64_t i = (uint64_t)number * GW_LOW_THREADS + threadIdx.x;
    const uint32_t chunks = gw_low_chunks(p.m);
    if (i == 0) {
        *p.at = {0, 0, 0, 0};
        t.result->written = t.bytes;
        gw_leave_u32(t.payload, p.m.rank);
        gw_leave_u32(t.payload + 4, (uint32_t)p.m.cols);
    }
    if (i < chunks * p.wide) {
        p.tickets[i] = 0;
    }
    if (i < p.m.rank * p.m.cols) {
        const uint32_t word = gw_random_word(gw_random_pair_at(t.common, i << 1), (uint32_t)i);
        p.start[i] = (float)((int32_t)word >> 8) * 0x1p-23f;
    } else if (i < GW_LOW_CHUNK * chunks * p.m.cols) {
        p.start[i] = 0;
    }
}

/* ---- left ---- */

/* Rows in quads, in singles, or perhaps not all there. */
enum { GW_LOW_QUADS, GW_LOW_SINGLES, GW_LOW_EDGE };

/* G of four rows and the lane's four columns; with feedback it is left in r′. */
template <int D, int MODE, int FEEDBACK>
GW_DEVICE void gw_low_read_rows(float x[GW_LOW_WARP_ROWS][4], const gw_select_in &t,
                                const void *from, const gw_matrix &m, uint64_t row, uint32_t c)
{
    const uint64_t i = row * m.cols + c;
#pragma unroll
    for (uint32_t a = 0; a < GW_LOW_WARP_ROWS; a++) {
        if (MODE == GW_LOW_QUADS) {
            gw_low_load_four<D>(x[a], from, i + a * m.cols);
        } else {
            gw_low_load_some<D>(x[a], from, i + a * m.cols, c, 32,
                                MODE == GW_LOW_EDGE ? gw_low_long(m, row + a) : (uint32_t)m.cols);
        }
    }
    if (!FEEDBACK) {
        return;
    }
    if (t.residual != NULL) {
        float r[GW_LOW_WARP_ROWS][4];
#pragma unroll
        for (uint32_t a = 0; a < GW_LOW_WARP_ROWS; a++) {
            if (MODE == GW_LOW_QUADS) {
                gw_low_load_four<GW_F32>(r[a], t.residual, i + a * m.cols);
            } else {
                gw_low_load_some<GW_F32>(r[a], t.residual, i + a * m.cols, c, 32,
                                         MODE == GW_LOW_EDGE ? gw_low_long(m, row + a)
                                                             : (uint32_t)m.cols);
            }
        }
#pragma unroll
        for (uint32_t a = 0; a < 4 * GW_LOW_WARP_ROWS; a++) {
            x[a / 4][a % 4] = x[a / 4][a % 4] + r[a / 4][a % 4];
        }
    }
#pragma unroll
    for (uint32_t a = 0; a < GW_LOW_WARP_ROWS && t.after != NULL; a++) {
        float *to = t.after + i + a * m.cols;
        if (MODE == GW_LOW_QUADS) {
            *(float4 *)to = make_float4(x[a][0], x[a][1], x[a][2], x[a][3]);
        } else {
#pragma unroll
            for (uint32_t q = 0; q < 4; q++) {
                if (c + 32 * q <
                    (MODE == GW_LOW_EDGE ? gw_low_long(m, row + a) : (uint32_t)m.cols)) {
                    to[32 * q] = x[a][q];
                }
            }
        }
    }
}

/* Four rows times four of Q0, over every other 128 columns. */
template <int D, int MODE, int FEEDBACK>
GW_DEVICE uint32_t gw_low_left_rows(float sum[GW_LOW_WARP_ROWS * GW_LOW_CHUNK],
                                    const gw_select_in &t, const void *from, const gw_low_places &p,
                                    uint64_t row, uint32_t k)
{
    const uint32_t lane = threadIdx.x % 32, cols = (uint32_t)p.m.cols;
    const uint32_t half = cols <= GW_LOW_WARP_COLS ? 0 : threadIdx.x / 32 % 2;
    uint32_t odd = 0;
    for (uint32_t c = half * GW_LOW_WARP_COLS + (MODE == GW_LOW_QUADS ? 4 * lane : lane); c < cols;
         c += GW_LOW_LEFT_COLS) {
        float x[GW_LOW_WARP_ROWS][4];
        gw_low_read_rows<D, MODE, FEEDBACK>(x, t, from, p.m, row, c);
#pragma unroll
        for (uint32_t j = 0; j < GW_LOW_CHUNK; j++) {
            float q[4];
            const float *q0 = p.start + (uint64_t)(k + j) * cols + c;
            if (MODE == GW_LOW_QUADS) {
                const float4 v = *(const float4 *)q0;
                q[0] = v.x, q[1] = v.y, q[2] = v.z, q[3] = v.w;
            } else {
                gw_low_load_some<GW_F32>(q, q0, 0, c, 32, cols);
            }
#pragma unroll
            for (uint32_t a = 0; a < 4 * GW_LOW_WARP_ROWS; a++) {
                float *to = &sum[a / 4 * GW_LOW_CHUNK + j];
                *to = fmaf(x[a / 4][a % 4], q[a % 4], *to);
            }
        }
#pragma unroll
        for (uint32_t a = 0; a < 4 * GW_LOW_WARP_ROWS; a++) {
            odd += gw_low_odd(x[a / 4][a % 4]);
        }
    }
    return odd;
}

template <int D>
GW_DEVICE uint32_t gw_low_left_dtype(float sum[GW_LOW_WARP_ROWS * GW_LOW_CHUNK],
                                     const gw_select_in &t, const void *from,
                                     const gw_low_places &p, uint64_t row, uint32_t k, int mode)
{
    const int feedback = k == 0 && (t.residual != NULL || t.after != NULL);
    if (feedback) {
        return mode == GW_LOW_QUADS ? gw_low_left_rows<D, GW_LOW_QUADS, 1>(sum, t, from, p, row, k)
               : mode == GW_LOW_SINGLES
                   ? gw_low_left_rows<D, GW_LOW_SINGLES, 1>(sum, t, from, p, row, k)
                   : gw_low_left_rows<D, GW_LOW_EDGE, 1>(sum, t, from, p, row, k);
    }
    return mode == GW_LOW_QUADS ? gw_low_left_rows<D, GW_LOW_QUADS, 0>(sum, t, from, p, row, k)
           : mode == GW_LOW_SINGLES
               ? gw_low_left_rows<D, GW_LOW_SINGLES, 0>(sum, t, from, p, row, k)
               : gw_low_left_rows<D, GW_LOW_EDGE, 0>(sum, t, from, p, row, k);
}

/* Every lane has 16 numbers; lane l gets the sum of all lanes' number l / 2. */
GW_DEVICE float gw_low_sum_warp(float v[16])
{
    const uint32_t lane = threadIdx.x % 32;
#pragma unroll
    for (uint32_t n = 8; n > 0; n /= 2) {
        const int upper = (lane & 2 * n) != 0;
#pragma unroll
        for (uint32_t i = 0; i < n; i++) {
            const float keep = upper ? v[i + n] : v[i], give = upper ? v[i] : v[i + n];
            v[i] = keep + __shfl_xor_sync(0xFFFFFFFFu, give, (int)(2 * n));
        }
    }
    return v[0] + __shfl_xor_sync(0xFFFFFFFFu, v[0], 1);
}

/* The rows of a block: a matrix of few columns has no second half of them. */
static __host__ __device__ inline uint32_t gw_low_left_high(const gw_matrix &m)
{
    return m.cols <= GW_LOW_WARP_COLS ? 2 * GW_LOW_LEFT_ROWS : GW_LOW_LEFT_ROWS;
}

static __host__ __device__ inline uint32_t gw_low_left_blocks(const gw_matrix &m)
{
    const uint32_t high = gw_low_left_high(m);
    return m.rows == 0 ? 1 : (uint32_t)((m.rows + high - 1) / high);
}

/* P of a block's rows, as columns of fp64. */
GW_DEVICE void gw_low_left(const gw_select_in &t, const gw_low_places &p, gw_dtype dtype,
                           uint32_t number)
{
    __shared__ float halves[GW_LOW_THREADS / 32][GW_LOW_WARP_ROWS * GW_LOW_CHUNK];
    const uint32_t warp = threadIdx.x / 32, high = gw_low_left_high(p.m);
    const uint32_t split = high == GW_LOW_LEFT_ROWS ? 2 : 1; /* warps that share rows */
    const uint64_t first = (uint64_t)number * high, row = first + warp / split * GW_LOW_WARP_ROWS;
    const int mode = (row + GW_LOW_WARP_ROWS) * p.m.cols > p.m.count   ? GW_LOW_EDGE
                     : p.m.cols % 4 == 0 && gw_quads_aligned(t, dtype) ? GW_LOW_QUADS
                                                                       : GW_LOW_SINGLES;
    for (uint32_t k = 0; k < p.m.rank; k += GW_LOW_CHUNK) {
        float sum[GW_LOW_WARP_ROWS * GW_LOW_CHUNK] = {};
        const int again = k != 0 && t.after != NULL;
        const void *from = again ? t.after : t.in;
        const gw_dtype kind = again ? GW_F32 : dtype;
        const uint32_t odd =
            kind == GW_F32   ? gw_low_left_dtype<GW_F32>(sum, t, from, p, row, k, mode)
            : kind == GW_F16 ? gw_low_left_dtype<GW_F16>(sum, t, from, p, row, k, mode)
                             : gw_low_left_dtype<GW_BF16>(sum, t, from, p, row, k, mode);
        gw_count(&p.at->non_finite, k == 0 ? odd : 0);
        gw_count(&t.result->non_finite, k == 0 ? odd : 0);
        const float mine = gw_low_sum_warp(sum);
        if (threadIdx.x % 2 == 0) {
            halves[warp][threadIdx.x % 32 / 2] = mine;
        }
        __syncthreads();
        if (threadIdx.x < high * GW_LOW_CHUNK) {
            const uint32_t at = threadIdx.x / 16, n = threadIdx.x % 16;
            const float all =
                split == 1 ? halves[at][n] : halves[2 * at][n] + halves[2 * at + 1][n];
            const uint64_t to = first + threadIdx.x / GW_LOW_CHUNK;
            const uint32_t column = k + threadIdx.x % GW_LOW_CHUNK;
            if (to < p.m.rows && column < p.m.rank) {
                p.columns[column * p.m.rows + to] = (double)all;
                if (gw_low_odd(all)) {
                    p.at->bad_left = 1;
                }
            }
        }
        __syncthreads();
    }
}

/* A tensor that is sent as it is. */
GW_DEVICE void gw_low_copy(const gw_select_in &t, gw_dtype dtype, uint32_t number, uint32_t blocks)
{
    uint64_t odd = 0;
    for (uint64_t i = (uint64_t)number * GW_LOW_THREADS + threadIdx.x; i < t.count;
         i += (uint64_t)blocks * GW_LOW_THREADS) {
        const float g = gw_one(t.in, dtype, i), G = t.residual != NULL ? g + t.residual[i] : g;
        odd += gw_low_odd(G);
        gw_leave_u32(t.payload + GW_LOW_HEADER + 4 * i, gw_bits(G));
        if (t.after != NULL) {
            t.after[i] = 0;
        }
    }
    gw_count(&t.result->non_finite, odd);
}

#endif
