/* gw_lowrank_orthogonal by one block. The order of every sum is laid down, 16 lanes of additions one behind the other, so time is
 * the number of sums that wait for each other. Of a column's two walks over the earlier ones the first is done for all
 * later columns abreast, as soon as an earlier one is there: of rank 4's 19 sums that leaves 13. In each, two warps
 * add, four sums of 16 lanes; all others multiply a stage ahead of them, and on the way take off what the sum before gave. */
#ifndef GW_CUDA_LOWRANK_COLUMNS_H
#define GW_CUDA_LOWRANK_COLUMNS_H

#include "codec/cuda_lowrank.h"

enum {
    GW_LOW_ABREAST = 4,
    GW_LOW_ADDERS = GW_LOW_ABREAST * GW_LOWRANK_LANES,
    GW_LOW_MOST_RANK = 256,
    GW_LOW_ROUND = 4 * GW_LOWRANK_LANES /* products that a sum takes at once */
};

/* PRODUCERS is a multiple of GW_LOW_ROUND. A stage is 4 products a producer: of one sum, or of two or four at once. */
template <int PRODUCERS> struct gw_low_ortho_room {
    double stage[2][4 * PRODUCERS];
    double norms[GW_LOW_MOST_RANK],
        shares[GW_LOW_MOST_RANK]; /* squared, at first; of the column in the one before */
};

/* Columns of `rows` numbers; where the finished ones go as fp32: rows of `pitch` numbers, and the payload's. */
typedef struct gw_low_ortho {
    double *columns;
    uint64_t rows;
    uint32_t rank, pitch;
    float *left;
    uint8_t *payload;
} gw_low_ortho;

GW_DEVICE void gw_low_leave(uint8_t *p, uint64_t i, uint32_t word)
{
    if (gw_aligned_to(p, 4)) {
        ((uint32_t *)p)[i] = word;
    } else {
        gw_leave_u32(p + 4 * i, word);
    }
}

GW_DEVICE double gw_low_unit(const gw_low_ortho &o, uint32_t k, uint64_t i, double v, double unit)
{
    const double u = unit == 0 ? 0 : v * unit; /* never −0 */
    o.columns[k * o.rows + i] = u;
    o.left[i * o.pitch + k] = (float)u;
    gw_low_leave(o.payload + GW_LOW_HEADER, i * o.rank + k, gw_bits((float)u));
    return u;
}

/* What a sum is of: n columns from `first` on, each less its share of column `before`, times column `by`, which is first
 * brought to length 1; −1: nothing taken off; times itself; of length 1 already. */
typedef struct gw_low_sum {
    uint32_t first, n;
    int before, by;
    double unit;
} gw_low_sum;

/* A producer's numbers of a stage. */
template <int JOBS> struct gw_low_own {
    double before[4 / JOBS], by[4 / JOBS], v[4 / JOBS][JOBS];
};

/* They are read a stage ahead, so that they are there when they are wanted. WHOLE: all rows of the stage are there. */
template <int PRODUCERS, int JOBS, int WHOLE>
GW_DEVICE void gw_low_fetch(gw_low_own<JOBS> &x, const gw_low_ortho &o, const gw_low_sum &s,
                            uint64_t first)
{
    const uint64_t i = first + threadIdx.x - GW_LOW_ADDERS;
    const double *before = o.columns + (uint32_t)s.before * o.rows + i;
    const double *by = o.columns + (uint32_t)s.by * o.rows + i;
#pragma unroll
    for (uint32_t e = 0; e < 4 / JOBS; e++) {
        const int in = WHOLE || i + e * PRODUCERS < o.rows;
        x.before[e] = in && s.before >= 0 ? before[e * PRODUCERS] : 0;
        x.by[e] = in && s.by >= 0 ? by[e * PRODUCERS] : 0;
#pragma unroll
        for (uint32_t j = 0; j < JOBS; j++) {
            const double *v = o.columns + (s.first + j) * o.rows + i;
            x.v[e][j] = in && j < s.n ? v[e * PRODUCERS] : 0;
        }
    }
}

template <int PRODUCERS, int JOBS, int WHOLE>
GW_DEVICE void gw_low_produce(double *to, gw_low_own<JOBS> &x, const double *shares,
                              const gw_low_ortho &o, const gw_low_sum &s, uint64_t first)
{
    enum { OWN = 4 / JOBS };
    const uint64_t i = first + threadIdx.x - GW_LOW_ADDERS;
    to += threadIdx.x - GW_LOW_ADDERS;
    if (s.unit >= 0) {
#pragma unroll
        for (uint32_t e = 0; e < OWN; e++) {
            if (WHOLE || i + e * PRODUCERS < o.rows) {
                x.by[e] = gw_low_unit(o, (uint32_t)s.by, i + e * PRODUCERS, x.by[e], s.unit);
            }
        }
    }
#pragma unroll
    for (uint32_t j = 0; j < JOBS; j++) {
        double *v = o.columns + (s.first + j) * o.rows + i;
        if (j < s.n && s.before >= 0) {
            const double share = shares[s.first + j];
#pragma unroll
            for (uint32_t e = 0; e < OWN; e++) {
                x.v[e][j] -= share * x.before[e];
                if (WHOLE || i + e * PRODUCERS < o.rows) {
                    v[e * PRODUCERS] = x.v[e][j];
                }
            }
        }
#pragma unroll
        for (uint32_t e = 0; e < OWN; e++) {
            to[(j * OWN + e) * PRODUCERS] = x.v[e][j] * (s.by >= 0 ? x.by[e] : x.v[e][j]);
        }
    }
}

/* One lane's sum. What is behind the last row is +0, which changes no sum. DEEP products are fetched while as many are added. */
template <int DEEP> GW_DEVICE double gw_low_consume(double sum, const double *from, uint32_t rounds)
{
    enum { STEP = DEEP / 4, BOTH = 2 * STEP }; /* rounds */
    uint32_t r = 0;
    if (rounds >= BOTH) {
        double a[DEEP], b[DEEP];
#pragma unroll
        for (uint32_t i = 0; i < DEEP; i++) {
            a[i] = from[i * GW_LOWRANK_LANES];
        }
        for (; r + BOTH <= rounds; r += BOTH) {
            const uint32_t next = r + 2 * BOTH <= rounds ? r + BOTH : 0;
#pragma unroll
            for (uint32_t i = 0; i < DEEP; i++) {
                b[i] = from[(r + STEP) * GW_LOW_ROUND + i * GW_LOWRANK_LANES];
            }
#pragma unroll
            for (uint32_t i = 0; i < DEEP; i++) {
                sum += a[i];
            }
#pragma unroll
            for (uint32_t i = 0; i < DEEP; i++) {
                a[i] = from[next * GW_LOW_ROUND + i * GW_LOWRANK_LANES];
            }
#pragma unroll
            for (uint32_t i = 0; i < DEEP; i++) {
                sum += b[i];
            }
        }
    }
    for (; r < rounds; r++) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            sum += from[r * GW_LOW_ROUND + i * GW_LOWRANK_LANES];
        }
    }
    return sum;
}

/* gw_lowrank_dot of up to JOBS columns, to[column] */
template <int PRODUCERS, int JOBS>
GW_DEVICE void gw_low_dots(gw_low_ortho_room<PRODUCERS> &room, const gw_low_ortho &o,
                           const gw_low_sum &s, double *to)
{
    enum { LONG = 4 / JOBS * PRODUCERS };
    static_assert(LONG % GW_LOW_ROUND == 0, "whole rounds");
    const uint32_t job = threadIdx.x / GW_LOWRANK_LANES, lane = threadIdx.x % GW_LOWRANK_LANES;
    const int producer = threadIdx.x >= GW_LOW_ADDERS;
    gw_low_own<JOBS> x = {};
    double sum = 0;
    const auto fetch = [&](uint64_t first) {
        if (first + LONG <= o.rows) {
            gw_low_fetch<PRODUCERS, JOBS, 1>(x, o, s, first);
        } else if (first < o.rows) {
            gw_low_fetch<PRODUCERS, JOBS, 0>(x, o, s, first);
        }
    };
    if (producer) {
        fetch(0);
    }
    for (uint64_t first = 0; first < o.rows + LONG; first += LONG) {
        const uint64_t stage = first / LONG;
        if (producer && first < o.rows) {
            if (first + LONG <= o.rows) {
                gw_low_produce<PRODUCERS, JOBS, 1>(room.stage[stage % 2], x, room.shares, o, s,
                                                   first);
            } else {
                gw_low_produce<PRODUCERS, JOBS, 0>(room.stage[stage % 2], x, room.shares, o, s,
                                                   first);
            }
            fetch(first + LONG);
        } else if (!producer && job < s.n && first != 0) {
            const uint64_t left = o.rows - (first - LONG);
            const uint32_t rounds = left < LONG ? ((uint32_t)left + GW_LOW_ROUND - 1) / GW_LOW_ROUND
                                                : (uint32_t)LONG / GW_LOW_ROUND;
            sum = gw_low_consume < PRODUCERS >= 512
                      ? 16
                      : 4 > (sum, room.stage[(stage + 1) % 2] + job * LONG + lane, rounds);
        }
        __syncthreads();
    }
    if (!producer) {
#pragma unroll
        for (int half = GW_LOWRANK_LANES / 2; half > 0; half /= 2) {
            sum += __shfl_down_sync(0xFFFFFFFFu, sum, half, GW_LOWRANK_LANES);
        }
        if (lane == 0 && job < s.n) {
            to[s.first + job] = sum;
        }
    }
    __syncthreads();
}

/* Some columns abreast, from `first` on. */
template <int PRODUCERS>
GW_DEVICE void gw_low_dots_abreast(gw_low_ortho_room<PRODUCERS> &room, const gw_low_ortho &o,
                                   gw_low_sum s, double *to)
{
    for (; s.first < o.rank; s.first += GW_LOW_ABREAST) {
        const uint32_t left = o.rank - s.first;
        s.n = left < GW_LOW_ABREAST ? left : (uint32_t)GW_LOW_ABREAST;
        if (s.n == 1) {
            gw_low_dots<PRODUCERS, 1>(room, o, s, to);
        } else if (s.n == 2) {
            gw_low_dots<PRODUCERS, 2>(room, o, s, to);
        } else {
            gw_low_dots<PRODUCERS, 4>(room, o, s, to);
        }
        s.unit = -1;
    }
}

/* The last column has no sum to be brought to length 1 in. */
GW_DEVICE void gw_low_last_unit(const gw_low_ortho &o, uint32_t k, double unit)
{
    enum { DEEP = 8 };
    const double *from = o.columns + k * o.rows;
    for (uint64_t i = threadIdx.x; i < o.rows; i += DEEP * blockDim.x) {
        double v[DEEP];
#pragma unroll
        for (uint32_t d = 0; d < DEEP; d++) {
            const uint64_t at = i + d * blockDim.x;
            v[d] = from[at < o.rows ? at : i];
        }
#pragma unroll
        for (uint32_t d = 0; d < DEEP; d++) {
            const uint64_t at = i + d * blockDim.x;
            if (at < o.rows) {
                (void)gw_low_unit(o, k, at, v[d], unit);
            }
        }
    }
}

/* By GW_LOW_ADDERS + PRODUCERS threads. */
template <int PRODUCERS>
GW_DEVICE void gw_low_orthogonal(gw_low_ortho_room<PRODUCERS> &room, const gw_low_ortho &o)
{
    gw_low_dots_abreast(room, o, {0, 0, -1, -1, -1}, room.norms);
    for (uint32_t k = 0; k < o.rank; k++) {
        const double before = sqrt(room.norms[k]);
        for (uint32_t m = 0; m <= k && k > 0; m++) {
            const int last = m == 0 ? (int)k - 1 : (int)m - 1;
            const gw_low_sum s = {k, 1, last, m < k ? (int)m : -1, -1};
            gw_low_dots<PRODUCERS, 1>(room, o, s, room.shares);
        }
        const double after = k == 0 ? before : sqrt(room.shares[k]);
        const double unit = !(after > 0x1p-20 * before) ? 0 : 1 / after;
        gw_low_dots_abreast(room, o, {k + 1, 0, (int)k - 1, (int)k, unit}, room.shares);
        if (k + 1 == o.rank) {
            gw_low_last_unit(o, k, unit);
        }
    }
}

#endif
