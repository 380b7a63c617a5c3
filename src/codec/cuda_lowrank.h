/* Low rank on the device: the product of two factors by tiles, and reading payloads. */
#ifndef GW_CUDA_LOWRANK_H
#define GW_CUDA_LOWRANK_H

#include "codec/cuda_select.h"
#include "codec/lowrank_core.h"

typedef struct gw_low {
    uint32_t rank;
    uint64_t cols;
} gw_low;

enum {
    GW_LOW_HEADER = 8,
    GW_LOW_THREADS = 256,
    GW_LOW_CHUNK = 4,                 /* of the rank, at once */
    GW_LOW_ROWS = 8,                  /* of a tile */
    GW_LOW_WIDE = 4 * GW_LOW_THREADS, /* columns of a tile */
    GW_LOW_SURVEY_BLOCKS = 16         /* that look through a payload */
};

/* A tile of 8 rows and 1024 columns, of which a thread has four, side by side with other threads'. */
typedef struct gw_low_tile {
    uint64_t row, column;
} gw_low_tile;

static __host__ __device__ inline uint32_t gw_low_blocks(const gw_matrix &m)
{
    const uint64_t wide = (m.cols + GW_LOW_WIDE - 1) / GW_LOW_WIDE;
    const uint64_t high = (m.rows + GW_LOW_ROWS - 1) / GW_LOW_ROWS;
    return wide * high == 0 ? 1 : (uint32_t)(wide * high);
}

GW_DEVICE gw_low_tile gw_low_tile_of(const gw_matrix &m, uint32_t number)
{
    const uint64_t wide = (m.cols + GW_LOW_WIDE - 1) / GW_LOW_WIDE;
    gw_low_tile t = {0, 0};
    if (wide != 0) {
        t.row = number / wide * GW_LOW_ROWS;
        t.column = number % wide * GW_LOW_WIDE + threadIdx.x;
    }
    return t;
}

/* The element of row r and column q of the thread's; UINT64_MAX if there is none. */
GW_DEVICE uint64_t gw_low_index(const gw_matrix &m, const gw_low_tile &at, uint32_t r, uint32_t q)
{
    const uint64_t column = at.column + q * GW_LOW_THREADS, row = at.row + r;
    const uint64_t i = row * m.cols + column;
    return row < m.rows && column < m.cols && i < m.count ? i : UINT64_MAX;
}

GW_DEVICE float gw_low_number(const uint8_t *factor, uint64_t i)
{
    return gw_aligned_to(factor, 4) ? ((const float *)factor)[i]
                                    : gw_float(gw_there_u32(factor + 4 * i));
}

/* Elements of the tile: the sum over k, ascending, of left · right. */
GW_DEVICE void gw_low_product(float value[GW_LOW_ROWS][4], const gw_matrix &m,
                              const gw_low_tile &at, const uint8_t *left, const uint8_t *right)
{
    for (uint32_t k = 0; k < m.rank; k++) {
        float q[4];
#pragma unroll
        for (uint32_t c = 0; c < 4; c++) {
            const uint64_t column = at.column + c * GW_LOW_THREADS;
            q[c] = column < m.cols ? gw_low_number(right, k * m.cols + column) : 0.0f;
        }
#pragma unroll
        for (uint32_t r = 0; r < GW_LOW_ROWS; r++) {
            const float p =
                at.row + r < m.rows ? gw_low_number(left, (at.row + r) * m.rank + k) : 0.0f;
#pragma unroll
            for (uint32_t c = 0; c < 4; c++) {
                const float v = p * q[c];
                value[r][c] = k == 0 ? v : value[r][c] + v;
            }
        }
    }
}

/* ---- reading ---- */

/* What a payload's factors hold. */
typedef struct gw_low_survey {
    uint32_t bad, nan; /* not finite; exactly the NaN that a spoilt tensor is sent as */
} gw_low_survey;

template <class B>
__global__ void __launch_bounds__(GW_LOW_THREADS)
    gw_low_clear_kernel(const __grid_constant__ B batch)
{
    gw_low_survey *found = (gw_low_survey *)batch.tensor[blockIdx.x].room;
    for (uint32_t p = threadIdx.x; p < batch.n_payloads; p += GW_LOW_THREADS) {
        found[p] = {0, 0};
    }
}

template <class B>
__global__ void __launch_bounds__(GW_LOW_THREADS)
    gw_low_survey_kernel(const __grid_constant__ B batch)
{
    uint32_t number;
    const uint32_t index = gw_select_find(batch, &number);
    const gw_select_out &t = batch.tensor[index];
    const gw_matrix m = gw_matrix_of(batch.s.rank, batch.s.cols, t.count);
    const uint32_t payload = number / GW_LOW_SURVEY_BLOCKS, part = number % GW_LOW_SURVEY_BLOCKS;
    const uint8_t *bytes = (const uint8_t *)batch.payload[index * batch.n_payloads + payload].bytes;
    const uint64_t n = m.rank * (m.rows + m.cols);
    uint32_t bad = 0, nan = 0;
    for (uint64_t i = part * GW_LOW_THREADS + threadIdx.x; i < n;
         i += GW_LOW_SURVEY_BLOCKS * GW_LOW_THREADS) {
        const uint32_t word = gw_bits(gw_low_number(bytes + GW_LOW_HEADER, i));
        bad += (word & GW_ABS_MASK) >= GW_INF_BITS;
        nan += word == GW_NAN_BITS;
    }
    gw_low_survey *found = (gw_low_survey *)t.room + payload;
    if (bad != 0) {
        atomicAdd(&found->bad, bad);
        atomicAdd(&found->nan, nan);
    }
}

/* Is it what an encoder writes? */
GW_DEVICE int gw_low_sound(const uint8_t *bytes, const gw_matrix &m, const gw_low_survey &found)
{
    return gw_there_u32(bytes) == m.rank && gw_there_u32(bytes + 4) == m.cols &&
           (m.rank == 0 || found.bad == 0 || found.nan == m.rank * (m.rows + m.cols));
}

template <class B>
GW_DEVICE void gw_low_put(const B &batch, const gw_select_out &t, uint64_t i, float sum,
                          uint64_t *bad)
{
    const uint32_t by = batch.divisor;
    const float x = (by & (by - 1)) == 0 ? sum * (1 / (float)by) : sum / (float)by;
    *bad += (gw_bits(x) & GW_ABS_MASK) >= GW_INF_BITS;
    gw_put_one(t.out, batch.dtype, i, x);
}

/* One payload's numbers of the tile, into the sums. */
template <class B>
GW_DEVICE void gw_low_add(float sum[GW_LOW_ROWS][4], const B &batch, const gw_matrix &m,
                          const gw_low_tile &at, const uint8_t *bytes, int sound, int set)
{
    float value[GW_LOW_ROWS][4];
    const uint8_t *left = bytes + GW_LOW_HEADER;
    if (sound && m.rank != 0) {
        gw_low_product(value, m, at, left, left + 4 * m.rank * m.rows);
    }
#pragma unroll
    for (uint32_t r = 0; r < GW_LOW_ROWS; r++) {
#pragma unroll
        for (uint32_t q = 0; q < 4; q++) {
            const uint64_t i = gw_low_index(m, at, r, q);
            if (i < m.count) {
                const float v = !sound        ? gw_float(GW_NAN_BITS)
                                : m.rank != 0 ? value[r][q]
                                              : gw_low_number(left, i);
                sum[r][q] = set ? v : sum[r][q] + v;
            }
        }
    }
    (void)batch;
}

template <class B>
__global__ void __launch_bounds__(GW_LOW_THREADS) gw_low_sum_kernel(const __grid_constant__ B batch)
{
    uint32_t number;
    const uint32_t index = gw_select_find(batch, &number);
    const gw_select_out &t = batch.tensor[index];
    const gw_matrix m = gw_matrix_of(batch.s.rank, batch.s.cols, t.count);
    const gw_low_tile at = gw_low_tile_of(m, number);
    const gw_low_survey *found = (const gw_low_survey *)t.room;
    float sum[GW_LOW_ROWS][4] = {};
    uint64_t bad = 0;
#pragma unroll
    for (uint32_t r = 0; r < GW_LOW_ROWS && batch.add; r++) {
#pragma unroll
        for (uint32_t q = 0; q < 4; q++) {
            const uint64_t i = gw_low_index(m, at, r, q);
            sum[r][q] = i < m.count ? gw_one(t.out, batch.dtype, i) : 0.0f;
        }
    }
    for (uint32_t p = 0; p < batch.n_payloads; p++) {
        const uint8_t *bytes = (const uint8_t *)batch.payload[index * batch.n_payloads + p].bytes;
        const int sound = gw_low_sound(bytes, m, found[p]);
        if (!sound && threadIdx.x == 0) {
            gw_blame(t.result, GW_ERR_CORRUPT);
        }
        gw_low_add(sum, batch, m, at, bytes, sound, p == 0 && !batch.add);
    }
#pragma unroll
    for (uint32_t r = 0; r < GW_LOW_ROWS; r++) {
#pragma unroll
        for (uint32_t q = 0; q < 4; q++) {
            const uint64_t i = gw_low_index(m, at, r, q);
            if (i < m.count) {
                gw_low_put(batch, t, i, sum[r][q], &bad);
            }
        }
    }
    gw_count(&t.result->non_finite, bad);
}

#endif
