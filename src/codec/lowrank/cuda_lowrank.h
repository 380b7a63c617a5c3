/* Low rank on the device: the product of two factors by tiles, and reading payloads. */
#ifndef GW_CUDA_LOWRANK_H
#define GW_CUDA_LOWRANK_H

#include "codec/cuda/cuda_select.h"
#include "codec/lowrank/lowrank_core.h"

typedef struct gw_low {
    uint32_t rank;
    uint64_t cols;
    gw_matrix first; /* of a batch's first tensor, to decode: most often others are like it */
} gw_low;

enum {
    GW_LOW_HEADER = 8,
    GW_LOW_THREADS = 256,
    GW_LOW_CHUNK = 4, /* of the rank, at once */
    GW_LOW_ROWS = 8,  /* of a thread */
    GW_LOW_LANES = 64,
    GW_LOW_SURVEYS = 16 /* blocks that look through a payload, at most */
};

/* A tile is `lanes` threads wide, of four columns each, and has 8 rows for every row of threads. Narrow matrices have narrow
 * tiles, which are the higher. */
static __host__ __device__ inline uint32_t gw_low_lanes(uint64_t cols)
{
    uint32_t lanes = 2; /* so that a `step` of 1 is one of quads alone */
    while (lanes < GW_LOW_LANES && 4 * lanes < cols) {
        lanes *= 2;
    }
    return lanes;
}

static __host__ __device__ inline uint32_t gw_low_wide(uint64_t cols)
{
    return (uint32_t)((cols + 4 * gw_low_lanes(cols) - 1) / (4 * gw_low_lanes(cols)));
}

static __host__ __device__ inline uint32_t gw_low_blocks(const gw_matrix &m)
{
    const uint64_t high = GW_LOW_ROWS * GW_LOW_THREADS / gw_low_lanes(m.cols);
    const uint64_t blocks = gw_low_wide(m.cols) * ((m.rows + high - 1) / high);
    return blocks == 0 ? 1 : (uint32_t)blocks;
}

/* The thread's part of a tile: 8 rows, `groups` apart, and 4 columns, `step` apart: 1 if four numbers in a row can be moved
 * as one, else `lanes`. */
typedef struct gw_low_tile {
    uint64_t row;
    uint32_t column, groups, step;
} gw_low_tile;

GW_DEVICE gw_low_tile gw_low_tile_of(const gw_matrix &m, uint32_t number, int quads)
{
    const uint32_t lanes = gw_low_lanes(m.cols), wide = gw_low_wide(m.cols);
    const uint32_t lane = threadIdx.x & (lanes - 1), high = wide == 0 ? 0 : number / wide;
    gw_low_tile at;
    at.groups = GW_LOW_THREADS / lanes;
    at.step = quads ? 1 : lanes;
    at.row = (uint64_t)high * GW_LOW_ROWS * at.groups + threadIdx.x / lanes;
    at.column = (number - high * wide) * 4 * lanes + (quads ? 4 * lane : lane);
    return at;
}

/* The numbers that a row has. */
GW_DEVICE uint32_t gw_low_long(const gw_matrix &m, uint64_t row)
{
    return (uint32_t)(row + 1 < m.rows ? m.cols : row + 1 == m.rows ? m.last : 0);
}

/* Is a tile of full width, and are all of the thread's numbers there? */
GW_DEVICE int gw_low_whole(const gw_matrix &m, const gw_low_tile &at)
{
    const uint64_t row = at.row + (GW_LOW_ROWS - 1) * at.groups;
    return at.groups * GW_LOW_LANES == GW_LOW_THREADS &&
           at.column + 3 * at.step < gw_low_long(m, row);
}

/* Four numbers, `step` apart, of which those before column `end` are there; else 0. */
GW_DEVICE void gw_low_read(float x[4], const void *in, gw_dtype dtype, uint64_t i, uint32_t column,
                           uint32_t step, uint32_t end)
{
    if (step == 1 && column + 3 < end) {
        gw_read_four(x, in, dtype, i, 4, 1);
        return;
    }
#pragma unroll
    for (uint32_t q = 0; q < 4; q++) {
        x[q] = column + q * step < end ? gw_one(in, dtype, i + q * step) : 0.0f;
    }
}

GW_DEVICE void gw_low_write(const float x[4], void *out, gw_dtype dtype, uint64_t i,
                            uint32_t column, uint32_t step, uint32_t end)
{
    if (step != 1 || column + 3 >= end) {
#pragma unroll
        for (uint32_t q = 0; q < 4; q++) {
            if (column + q * step < end) {
                gw_put_one(out, dtype, i + q * step, x[q]);
            }
        }
    } else if (dtype == GW_F32) {
        __stcs((float4 *)((float *)out + i), make_float4(x[0], x[1], x[2], x[3]));
    } else {
        uint32_t half[4];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            half[c] = dtype == GW_F16 ? gw_f16_from_f32(x[c]) : gw_bf16_from_f32(x[c]);
        }
        __stcs((uint2 *)((uint16_t *)out + i),
               make_uint2(half[0] | half[1] << 16, half[2] | half[3] << 16));
    }
}

/* ---- the product ---- */

/* Numbers of a factor; WORDS: at a multiple of 4 bytes. */
template <int WORDS> GW_DEVICE float gw_low_number(const uint8_t *factor, uint64_t i)
{
    return WORDS ? ((const float *)factor)[i] : gw_float(gw_there_u32(factor + 4 * i));
}

/* Four numbers at a multiple of 8 bytes. */
GW_DEVICE void gw_low_two_pairs(float x[4], const float *from)
{
    const uint2 a = *(const uint2 *)from, b = *(const uint2 *)(from + 2);
    x[0] = gw_float(a.x), x[1] = gw_float(a.y), x[2] = gw_float(b.x), x[3] = gw_float(b.y);
}

/* Adds, or TAKE: takes off. */
template <int TAKE> GW_DEVICE void gw_low_apply(float sum[4], const float v[4])
{
#pragma unroll
    for (uint32_t c = 0; c < 4; c++) {
        sum[c] = TAKE ? sum[c] - v[c] : sum[c] + v[c];
    }
}

/* What the product of two factors of rank 4 needs of the right one, for gw_low_whole. PAIRS: columns are side by side and the
 * factors at multiples of 8 bytes, else of 4. */
template <int PAIRS>
GW_DEVICE void gw_low_right_whole(float q[4][4], const gw_matrix &m, const gw_low_tile &at,
                                  const uint8_t *payload)
{
    const float *right = (const float *)(payload + GW_LOW_HEADER) + 4 * m.rows + at.column;
#pragma unroll
    for (uint32_t k = 0; k < 4; k++) {
        if (PAIRS) {
            gw_low_two_pairs(q[k], right + k * m.cols);
        } else {
#pragma unroll
            for (uint32_t c = 0; c < 4; c++) {
                q[k][c] = right[k * m.cols + c * at.step];
            }
        }
    }
}

/* The product, to numbers of the thread's rows from `row` on: the sum over k, ascending, of left · right. */
template <int TAKE, int PAIRS, int ROWS>
GW_DEVICE void gw_low_product_whole(float sum[ROWS][4], const float q[4][4], uint64_t row,
                                    const uint8_t *payload)
{
    const float *left = (const float *)(payload + GW_LOW_HEADER) + 4 * row;
#pragma unroll
    for (uint32_t r = 0; r < ROWS; r++) {
        const float *from = left + 4 * r * (GW_LOW_THREADS / GW_LOW_LANES);
        float p[4], v[4];
        if (PAIRS) {
            gw_low_two_pairs(p, from);
        } else {
            p[0] = from[0], p[1] = from[1], p[2] = from[2], p[3] = from[3];
        }
#pragma unroll
        for (uint32_t c = 0; c < 4; c++) {
            v[c] = p[0] * q[0][c];
            v[c] = v[c] + p[1] * q[1][c];
            v[c] = v[c] + p[2] * q[2][c];
            v[c] = v[c] + p[3] * q[3][c];
        }
        gw_low_apply<TAKE>(sum[r], v);
    }
}

/* The same for one row, of which columns before `end` are there, and any rank. */
template <int TAKE, int WORDS>
GW_DEVICE void gw_low_product_row(float sum[4], const gw_matrix &m, const gw_low_tile &at,
                                  uint64_t row, uint32_t end, const uint8_t *payload)
{
    const uint8_t *left = payload + GW_LOW_HEADER, *right = left + 4 * m.rank * m.rows;
    float v[4] = {};
#pragma unroll 4
    for (uint32_t k = 0; k < m.rank; k++) {
        const float p = gw_low_number<WORDS>(left, row * m.rank + k);
#pragma unroll
        for (uint32_t c = 0; c < 4; c++) {
            const uint32_t column = at.column + c * at.step;
            const float q = column < end ? gw_low_number<WORDS>(right, k * m.cols + column) : 0.0f;
            v[c] = k == 0 ? p * q : v[c] + p * q;
        }
    }
    gw_low_apply<TAKE>(sum, v);
}

/* ---- reading ---- */

/* What a block saw of a payload; a sound one has nothing, numbers or NaN in all of its bytes. */
enum { GW_LOW_FINITE = 1, GW_LOW_NAN = 2, GW_LOW_BAD = 4 };

static __host__ __device__ inline uint32_t gw_low_surveys(const gw_matrix &m)
{
    const uint64_t blocks = m.rank * (m.rows + m.cols) / 4096 + 1;
    return blocks < GW_LOW_SURVEYS ? (uint32_t)blocks : (uint32_t)GW_LOW_SURVEYS;
}

template <class B> GW_DEVICE gw_matrix gw_low_matrix(const B &batch, uint64_t count)
{
    return count == batch.s.first.count ? batch.s.first
                                        : gw_matrix_of(batch.s.rank, batch.s.cols, count);
}

template <int WORDS>
GW_DEVICE uint32_t gw_low_look(const uint8_t *factors, uint64_t n, uint32_t part, uint32_t parts)
{
    enum { DEEP = 8 };
    const uint64_t apart = parts * GW_LOW_THREADS;
    uint32_t seen = 0;
    for (uint64_t i = part * GW_LOW_THREADS + threadIdx.x; i < n; i += DEEP * apart) {
        uint32_t word[DEEP]; /* all of them under way before the first is looked at */
#pragma unroll
        for (uint32_t d = 0; d < DEEP; d++) {
            word[d] = gw_bits(gw_low_number<WORDS>(factors, i + d * apart < n ? i + d * apart : i));
        }
#pragma unroll
        for (uint32_t d = 0; d < DEEP; d++) {
            const uint32_t odd = (word[d] & GW_ABS_MASK) >= GW_INF_BITS,
                           nan = word[d] == GW_NAN_BITS;
            seen |= nan * GW_LOW_NAN | (odd & (nan ^ 1)) * GW_LOW_BAD | (odd ^ 1) * GW_LOW_FINITE;
        }
    }
    return seen;
}

template <class B>
__global__ void __launch_bounds__(GW_LOW_THREADS)
    gw_low_survey_kernel(const __grid_constant__ B batch)
{
    __shared__ uint32_t all;
    uint32_t number;
    const uint32_t index = gw_select_find(batch, &number);
    const gw_select_out &t = batch.tensor[index];
    const gw_matrix m = gw_low_matrix(batch, t.count);
    const uint32_t parts = gw_low_surveys(m), payload = number / parts, part = number % parts;
    const uint8_t *bytes = (const uint8_t *)batch.payload[index * batch.n_payloads + payload].bytes;
    const uint64_t n = m.rank * (m.rows + m.cols);
    if (threadIdx.x == 0) {
        const int ours = gw_there_u32(bytes) == m.rank && gw_there_u32(bytes + 4) == m.cols;
        all = ours ? 0 : GW_LOW_BAD;
    }
    const uint32_t seen = gw_aligned_to(bytes, 4)
                              ? gw_low_look<1>(bytes + GW_LOW_HEADER, n, part, parts)
                              : gw_low_look<0>(bytes + GW_LOW_HEADER, n, part, parts);
    __syncthreads();
    if (seen != 0) {
        atomicOr(&all, seen);
    }
    __syncthreads();
    uint8_t *found = t.room + payload * GW_LOW_SURVEYS;
    if (threadIdx.x == 0) {
        found[part] = (uint8_t)all;
    } else if (part == 0 && threadIdx.x >= parts && threadIdx.x < GW_LOW_SURVEYS) {
        found[threadIdx.x] = 0;
    }
}

/* Is it what an encoder writes? */
GW_DEVICE int gw_low_sound(const uint8_t *found)
{
    static_assert(GW_LOW_SURVEYS == 16, "one load");
    const uint4 v = *(const uint4 *)found;
    uint32_t seen = v.x | v.y | v.z | v.w;
    seen |= seen >> 16;
    seen = (seen | seen >> 8) & 0xFF;
    return seen <= GW_LOW_NAN;
}

/* Over the divisor; how many are not finite, of those before column `end`. */
GW_DEVICE uint32_t gw_low_divide(float sum[4], uint32_t by, uint32_t column, uint32_t step,
                                 uint32_t end)
{
    uint32_t bad = 0;
    if (by != 1) {
        const int exact = (by & (by - 1)) == 0;
        const float factor = 1 / (float)by;
#pragma unroll
        for (uint32_t q = 0; q < 4; q++) {
            sum[q] = exact ? sum[q] * factor : sum[q] / (float)by;
        }
    }
#pragma unroll
    for (uint32_t q = 0; q < 4; q++) {
        bad += column + q * step < end && (gw_bits(sum[q]) & GW_ABS_MASK) >= GW_INF_BITS;
    }
    return bad;
}

/* Sums of rank 4 of a thread whose numbers are all there, of payloads at multiples of 4 bytes; 0 and nothing done if one is not
 * sound, which is asked last, so that nothing waits for it. */
template <class B>
GW_DEVICE int gw_low_sum_whole(const B &batch, uint32_t index, const gw_matrix &m,
                               const gw_low_tile &at)
{
    const gw_select_out &t = batch.tensor[index];
    const uint64_t first = at.row * m.cols + at.column, pitch = at.groups * m.cols;
    const uint32_t end = (uint32_t)m.cols, by = batch.divisor;
    int sound = 1;
    float sum[GW_LOW_ROWS][4];
#pragma unroll
    for (uint32_t r = 0; r < GW_LOW_ROWS; r++) {
        sum[r][0] = sum[r][1] = sum[r][2] = sum[r][3] = -0.0f; /* leaves as it is what is added */
    }
    if (batch.add && batch.dtype == GW_F32 && at.step == 1) {
#pragma unroll
        for (uint32_t r = 0; r < GW_LOW_ROWS; r++) {
            gw_read_four(sum[r], t.out, GW_F32, first + r * pitch, 4, 1);
        }
    } else if (batch.add) {
#pragma unroll
        for (uint32_t r = 0; r < GW_LOW_ROWS; r++) {
            gw_low_read(sum[r], t.out, batch.dtype, first + r * pitch, at.column, at.step, end);
        }
    }
    for (uint32_t p = 0; p < batch.n_payloads; p++) {
        const uint8_t *bytes = (const uint8_t *)batch.payload[index * batch.n_payloads + p].bytes;
        float q[4][4];
        if (at.step == 1 && gw_aligned_to(bytes, 8)) {
            gw_low_right_whole<1>(q, m, at, bytes);
            gw_low_product_whole<0, 1, GW_LOW_ROWS>(sum, q, at.row, bytes);
        } else {
            gw_low_right_whole<0>(q, m, at, bytes);
            gw_low_product_whole<0, 0, GW_LOW_ROWS>(sum, q, at.row, bytes);
        }
        sound &= gw_low_sound(t.room + p * GW_LOW_SURVEYS);
    }
    if (!sound) {
        return 0;
    }
    uint32_t bad = 0;
#pragma unroll
    for (uint32_t r = 0; r < GW_LOW_ROWS; r++) {
        bad += gw_low_divide(sum[r], by, at.column, at.step, end);
    }
    if (batch.dtype == GW_F32 && at.step == 1) {
#pragma unroll
        for (uint32_t r = 0; r < GW_LOW_ROWS; r++) {
            __stcs((float4 *)((float *)t.out + first + r * pitch),
                   make_float4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]));
        }
    } else {
#pragma unroll
        for (uint32_t r = 0; r < GW_LOW_ROWS; r++) {
            gw_low_write(sum[r], t.out, batch.dtype, first + r * pitch, at.column, at.step, end);
        }
    }
    gw_count(&t.result->non_finite, bad);
    return 1;
}

/* Any sums, row by row. */
template <class B>
GW_DEVICE void gw_low_sum_rows(const B &batch, uint32_t index, const gw_matrix &m,
                               const gw_low_tile &at)
{
    const gw_select_out &t = batch.tensor[index];
    uint32_t bad = 0;
#pragma unroll 1
    for (uint32_t r = 0; r < GW_LOW_ROWS; r++) {
        const uint64_t row = at.row + r * at.groups, i = row * m.cols + at.column;
        const uint32_t end = gw_low_long(m, row);
        float sum[4] = {-0.0f, -0.0f, -0.0f, -0.0f};
        if (batch.add) {
            gw_low_read(sum, t.out, batch.dtype, i, at.column, at.step, end);
        }
        for (uint32_t p = 0; p < batch.n_payloads && at.column < end; p++) {
            const uint8_t *bytes =
                (const uint8_t *)batch.payload[index * batch.n_payloads + p].bytes;
            const int sound = gw_low_sound(t.room + p * GW_LOW_SURVEYS);
            if (!sound) {
                sum[0] = sum[1] = sum[2] = sum[3] = gw_float(GW_NAN_BITS);
            } else if (m.rank == 0) {
#pragma unroll
                for (uint32_t q = 0; q < 4; q++) {
                    if (at.column + q * at.step < end) {
                        sum[q] += gw_low_number<0>(bytes + GW_LOW_HEADER, i + q * at.step);
                    }
                }
            } else if (gw_aligned_to(bytes, 4)) {
                gw_low_product_row<0, 1>(sum, m, at, row, end, bytes);
            } else {
                gw_low_product_row<0, 0>(sum, m, at, row, end, bytes);
            }
        }
        bad += gw_low_divide(sum, batch.divisor, at.column, at.step, end);
        gw_low_write(sum, t.out, batch.dtype, i, at.column, at.step, end);
    }
    gw_count(&t.result->non_finite, bad);
}

template <class B>
__global__ void __launch_bounds__(GW_LOW_THREADS, 3)
    gw_low_sum_kernel(const __grid_constant__ B batch)
{
    uint32_t number;
    const uint32_t index = gw_select_find(batch, &number);
    const gw_select_out &t = batch.tensor[index];
    const gw_matrix m = gw_low_matrix(batch, t.count);
    const int quads = m.cols % 4 == 0 && gw_aligned_to(t.out, batch.dtype == GW_F32 ? 16 : 8);
    const gw_low_tile at = gw_low_tile_of(m, number, quads);
    int words = 1;
    for (uint32_t p = 0; p < batch.n_payloads; p++) {
        words &= gw_aligned_to(batch.payload[index * batch.n_payloads + p].bytes, 4);
        if (number == 0 && threadIdx.x == 0 && !gw_low_sound(t.room + p * GW_LOW_SURVEYS)) {
            gw_blame(t.result, GW_ERR_CORRUPT);
        }
    }
    if (m.rank != 4 || !words || !gw_low_whole(m, at) || !gw_low_sum_whole(batch, index, m, at)) {
        gw_low_sum_rows(batch, index, m, at);
    }
}

#endif
