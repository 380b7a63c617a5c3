/* Low rank on the device: sums of small tensors, one block each, out of factors in shared memory. */
#ifndef GW_CUDA_LOWRANK_SMALL_H
#define GW_CUDA_LOWRANK_SMALL_H

#include "codec/lowrank/cuda_lowrank.h"

enum {
    GW_LOW_SUMS = 32768,   /* elements of a tensor, at most */
    GW_LOW_FACTORS = 10240 /* numbers of its payloads' factors, at most */
};

/* Words of shared memory that a tensor needs; 0 if it is not small. */
static inline uint32_t gw_low_sum_room(const gw_matrix &m, uint32_t n_payloads)
{
    const uint64_t words = n_payloads * (m.rank * (m.rows + m.cols));
    return m.rank == 0 || m.count > GW_LOW_SUMS || words > GW_LOW_FACTORS
               ? 0
               : (uint32_t)words + n_payloads;
}

/* What a block has in shared memory: the factors of all payloads, then what was seen of each. */
typedef struct gw_low_desk {
    float *factors;
    uint32_t *seen;
    uint32_t rank, rows, cols, size, n; /* size: of a payload's factors */
} gw_low_desk;

/* Brings a payload, and looks through it. */
template <int WORDS>
GW_DEVICE void gw_low_fetch(const gw_low_desk &d, uint32_t p, const uint8_t *bytes)
{
    uint32_t seen = 0;
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < d.size; i += GW_LOW_THREADS) {
        const float v = gw_low_number<WORDS>(bytes + GW_LOW_HEADER, i);
        const uint32_t odd = (gw_bits(v) & GW_ABS_MASK) >= GW_INF_BITS,
                       nan = gw_bits(v) == GW_NAN_BITS;
        seen |= nan * GW_LOW_NAN | (odd & (nan ^ 1)) * GW_LOW_BAD | (odd ^ 1) * GW_LOW_FINITE;
        d.factors[p * d.size + i] = v;
    }
    if (threadIdx.x == 0 && (gw_there_u32(bytes) != d.rank || gw_there_u32(bytes + 4) != d.cols)) {
        seen |= GW_LOW_BAD;
    }
    if (seen != 0) {
        atomicOr(&d.seen[p], seen);
    }
}

/* One number of a payload's product; RANK is 4, or 0 for any. */
template <int RANK>
GW_DEVICE float gw_low_product(const gw_low_desk &d, uint32_t p, uint32_t row, uint32_t column)
{
    const float *left = d.factors + p * d.size, *right = left + d.rank * d.rows + column;
    float v;
    if (RANK == 4) {
        const float4 l = *(const float4 *)(left + 4 * row);
        v = l.x * right[0];
        v = v + l.y * right[d.cols];
        v = v + l.z * right[2 * d.cols];
        return v + l.w * right[3 * d.cols];
    }
    v = left[row * d.rank] * right[0];
    for (uint32_t k = 1; k < d.rank; k++) {
        v = v + left[row * d.rank + k] * right[k * d.cols];
    }
    return v;
}

/* Returns how many of the thread's sums are not finite. A thread stays in a column, so that what it has of the right factor, where there is
 * only one payload, stays in registers; other threads have other rows, where columns are few. */
template <int RANK, int ALONE, class B>
GW_DEVICE uint32_t gw_low_sums(const B &batch, const gw_select_out &t, const gw_low_desk &d)
{
    const uint32_t count = (uint32_t)t.count, by = batch.divisor, cols = d.cols;
    const uint32_t wide = cols < GW_LOW_THREADS ? cols : (uint32_t)GW_LOW_THREADS;
    const uint32_t apart = GW_LOW_THREADS / wide * cols, down = GW_LOW_THREADS / wide;
    const uint32_t begin = threadIdx.x / wide;
    const int exact = (by & (by - 1)) == 0, sound = d.seen[0] <= GW_LOW_NAN;
    const float factor = 1 / (float)by;
    uint32_t bad = 0;
    for (uint32_t c = threadIdx.x - begin * wide; c < cols && begin < down; c += wide) {
        float q[4];
#pragma unroll
        for (uint32_t k = 0; k < 4; k++) {
            q[k] = RANK == 4 && ALONE ? d.factors[4 * d.rows + k * cols + c] : 0;
        }
        uint32_t row = begin;
#pragma unroll 4
        for (uint32_t i = begin * cols + c; i < count; i += apart, row += down) {
            float sum = batch.add ? gw_one(t.out, batch.dtype, i) : -0.0f;
            if (RANK == 4 && ALONE) {
                const float4 l = *(const float4 *)(d.factors + 4 * row);
                float v = l.x * q[0];
                v = v + l.y * q[1];
                v = v + l.z * q[2];
                v = v + l.w * q[3];
                sum = sound ? sum + v : gw_float(GW_NAN_BITS);
            } else {
                for (uint32_t p = 0; p < d.n; p++) {
                    sum = d.seen[p] <= GW_LOW_NAN ? sum + gw_low_product<RANK>(d, p, row, c)
                                                  : gw_float(GW_NAN_BITS);
                }
            }
            if (by != 1) {
                sum = exact ? sum * factor : sum / (float)by;
            }
            bad += (gw_bits(sum) & GW_ABS_MASK) >= GW_INF_BITS;
            gw_put_one(t.out, batch.dtype, i, sum);
        }
    }
    return bad;
}

template <class B>
__global__ void __launch_bounds__(GW_LOW_THREADS, 5)
    gw_low_small_kernel(const __grid_constant__ B batch)
{
    GW_DYNAMIC_SHARED(memory);
    __shared__ gw_matrix m;
    uint32_t number;
    const uint32_t index = gw_select_find(batch, &number), n = batch.n_payloads;
    const gw_select_out &t = batch.tensor[index];
    if (threadIdx.x == 0) {
        m = gw_low_matrix(batch, t.count);
    }
    __syncthreads();
    const uint32_t size = m.rank * (uint32_t)(m.rows + m.cols);
    float *const factors = (float *)memory;
    const gw_low_desk d = {
        factors, (uint32_t *)(factors + n * size), m.rank, (uint32_t)m.rows, (uint32_t)m.cols, size,
        n};
    for (uint32_t p = threadIdx.x; p < n; p += GW_LOW_THREADS) {
        d.seen[p] = 0;
    }
    __syncthreads();
    for (uint32_t p = 0; p < n; p++) {
        const uint8_t *bytes = (const uint8_t *)batch.payload[index * n + p].bytes;
        if (gw_aligned_to(bytes, 4)) {
            gw_low_fetch<1>(d, p, bytes);
        } else {
            gw_low_fetch<0>(d, p, bytes);
        }
    }
    __syncthreads();
    for (uint32_t p = threadIdx.x; p < n; p += GW_LOW_THREADS) {
        if (d.seen[p] > GW_LOW_NAN) {
            gw_blame(t.result, GW_ERR_CORRUPT);
        }
    }
    gw_count(&t.result->non_finite, m.rank != 4 ? gw_low_sums<0, 0>(batch, t, d)
                                    : n == 1    ? gw_low_sums<4, 1>(batch, t, d)
                                                : gw_low_sums<4, 0>(batch, t, d));
}

#endif
