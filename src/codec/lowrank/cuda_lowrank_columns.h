/* gw_lowrank_orthogonal by one block. The order of every sum is laid down, 16 lanes of additions one behind the other, so time is
 * the number of sums that wait for each other. Of a column's two walks over the earlier ones the first is done for all
 * later columns abreast, as soon as an earlier one is there: of rank 4's 19 sums that leaves 13. In each, two warps
 * add, four sums of 16 lanes; all others multiply a stage ahead of them, and on the way take off what the sum before gave.
 * One multiprocessor's way to memory is narrow for all this: a column that is walked the second time stays in registers, what a
 * sum begins with is read before the one before it ends, and fp32 is written by whole rows in the end. */
#ifndef GW_CUDA_LOWRANK_COLUMNS_H
#define GW_CUDA_LOWRANK_COLUMNS_H

#include "codec/lowrank/cuda_lowrank.h"

enum {
    GW_LOW_ABREAST = 4,
    GW_LOW_ADDERS = GW_LOW_ABREAST * GW_LOWRANK_LANES,
    GW_LOW_MOST_RANK = 256,
    GW_LOW_ROUND = 4 * GW_LOWRANK_LANES, /* products that a sum takes at once */
    GW_LOW_HELD = 16                     /* a producer's numbers of a column in registers */
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

/* Up to four words, `left` of which are there; PAIRS: at a multiple of 8 bytes, and an even number. */
GW_DEVICE void gw_low_leave_four(uint8_t *to, uint64_t i, const float u[4], uint32_t left,
                                 int pairs)
{
    if (pairs) {
        ((uint2 *)to)[i / 2] = make_uint2(gw_bits(u[0]), gw_bits(u[1]));
        if (left > 2) {
            ((uint2 *)to)[i / 2 + 1] = make_uint2(gw_bits(u[2]), gw_bits(u[3]));
        }
        return;
    }
#pragma unroll
    for (uint32_t j = 0; j < 4; j++) {
        if (j < left) {
            gw_low_leave(to, i + j, gw_bits(u[j]));
        }
    }
}

GW_DEVICE double gw_low_unit(double v, double unit)
{
    return unit == 0 ? 0 : v * unit; /* never −0 */
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

/* They are read one or two stages ahead, so that they are there when they are wanted. WHOLE: all rows of the stage are there. */
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
                x.by[e] = gw_low_unit(x.by[e], s.unit);
                o.columns[(uint32_t)s.by * o.rows + i + e * PRODUCERS] = x.by[e];
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
#pragma unroll 1
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
#pragma unroll 1
    for (; r < rounds; r++) {
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            sum += from[r * GW_LOW_ROUND + i * GW_LOWRANK_LANES];
        }
    }
    return sum;
}

/* One lane's share of a stage. */
template <int PRODUCERS>
GW_DEVICE double gw_low_consume_stage(double sum, const double *from, uint64_t left, uint32_t whole)
{
    const uint32_t rounds =
        ((uint32_t)(left < whole ? left : whole) + GW_LOW_ROUND - 1) / GW_LOW_ROUND;
    return gw_low_consume < PRODUCERS >= 512 ? 8 : 4 > (sum, from, rounds);
}

/* The lanes' sums by halves; the first lane has it. */
GW_DEVICE double gw_low_sum_lanes(double sum)
{
#pragma unroll
    for (int half = GW_LOWRANK_LANES / 2; half > 0; half /= 2) {
        sum += __shfl_down_sync(0xFFFFFFFFu, sum, half, GW_LOWRANK_LANES);
    }
    return sum;
}

/* gw_lowrank_dot of up to JOBS columns, to[column] */
template <int PRODUCERS, int JOBS>
GW_DEVICE void gw_low_dots(gw_low_ortho_room<PRODUCERS> &room, const gw_low_ortho &o,
                           const gw_low_sum &s, double *to)
{
    enum { LONG = 4 / JOBS * PRODUCERS, AHEAD = PRODUCERS >= 512 && JOBS > 1 ? 2 : 1 };
    static_assert(LONG % GW_LOW_ROUND == 0, "whole rounds");
    const uint32_t job = threadIdx.x / GW_LOWRANK_LANES, lane = threadIdx.x % GW_LOWRANK_LANES;
    const int producer = threadIdx.x >= GW_LOW_ADDERS;
    gw_low_own<JOBS> own[AHEAD] = {};
    double sum = 0;
    const auto fetch = [&](gw_low_own<JOBS> &x, uint64_t first) {
        if (first + LONG <= o.rows) {
            gw_low_fetch<PRODUCERS, JOBS, 1>(x, o, s, first);
        } else if (first < o.rows) {
            gw_low_fetch<PRODUCERS, JOBS, 0>(x, o, s, first);
        }
    };
    const auto stage = [&](gw_low_own<JOBS> &x, uint64_t first, uint32_t which) {
        if (producer && first < o.rows) {
            if (first + LONG <= o.rows) {
                gw_low_produce<PRODUCERS, JOBS, 1>(room.stage[which], x, room.shares, o, s, first);
            } else {
                gw_low_produce<PRODUCERS, JOBS, 0>(room.stage[which], x, room.shares, o, s, first);
            }
            fetch(x, first + AHEAD * LONG);
        } else if (!producer && job < s.n && first != 0) {
            sum = gw_low_consume_stage<PRODUCERS>(sum, room.stage[which ^ 1] + job * LONG + lane,
                                                  o.rows - (first - LONG), LONG);
        }
        __syncthreads();
    };
    if (producer) {
        fetch(own[0], 0);
        if (AHEAD > 1) {
            fetch(own[AHEAD - 1], LONG);
        }
    }
    for (uint64_t first = 0; first < o.rows + LONG; first += 2 * LONG) {
        stage(own[0], first, 0);
        if (first < o.rows) {
            stage(own[AHEAD - 1], first + LONG, 1);
        }
    }
    if (!producer) {
        sum = gw_low_sum_lanes(sum);
        if (lane == 0 && job < s.n) {
            to[s.first + job] = sum;
        }
    }
    __syncthreads();
}

/* A producer's numbers of a stage of one column, from row i on; 0 behind the last. */
template <int PRODUCERS>
GW_DEVICE void gw_low_fetch_four(double x[4], const double *column, uint32_t i, uint32_t rows)
{
#pragma unroll
    for (uint32_t e = 0; e < 4; e++) {
        x[e] = i + e * PRODUCERS < rows ? column[i + e * PRODUCERS] : 0;
    }
}

/* The second walk of column k, whose share in the one before it is not yet taken off, and the square of its length, as shares[k]. */
template <int PRODUCERS>
GW_DEVICE void gw_low_walk(gw_low_ortho_room<PRODUCERS> &room, const gw_low_ortho &o, uint32_t k)
{
    enum { LONG = 4 * PRODUCERS, STAGES = GW_LOW_HELD / 4 };
    const uint32_t rows = (uint32_t)o.rows, me = threadIdx.x - GW_LOW_ADDERS;
    const int producer = threadIdx.x >= GW_LOW_ADDERS;
    double v[GW_LOW_HELD] = {}, before[4] = {}, by[4] = {};
    const auto fetch = [&](double x[4], uint32_t column, uint32_t first) {
        gw_low_fetch_four<PRODUCERS>(x, o.columns + column * o.rows, first + me, rows);
    };
    const auto produce = [&](double x[4], double share, uint32_t m, uint32_t first, double *to) {
        double *column = o.columns + k * o.rows + first + me;
#pragma unroll
        for (uint32_t e = 0; e < 4; e++) {
            x[e] -= share * before[e];
            to[me + e * PRODUCERS] = x[e] * (m < k ? by[e] : x[e]);
            if (m == k && first + me + e * PRODUCERS < rows) {
                column[e * PRODUCERS] = x[e];
            }
        }
        const int last = first + LONG >= rows;
        const uint32_t then = last ? 0 : first + LONG, next = last ? m + 1 : m;
        if (next <= k) {
            fetch(before, next == 0 ? k - 1 : next - 1, then);
            fetch(by, next, then); /* of the sum of squares unused */
        }
    };
    if (producer) {
        fetch(before, k - 1, 0);
        fetch(by, 0, 0);
#pragma unroll
        for (uint32_t n = 0; n < STAGES; n++) {
            fetch(v + 4 * n, k, n * LONG);
        }
    }
    for (uint32_t m = 0; m <= k; m++) {
        const double share = room.shares[k];
        double sum = 0;
#pragma unroll
        for (uint32_t n = 0; n <= STAGES; n++) {
            const uint32_t first = n * LONG;
            if (first >= rows + LONG) {
                break;
            }
            if (producer && n < STAGES && first < rows) {
                produce(v + 4 * (n % STAGES), share, m, first, room.stage[n % 2]);
            } else if (threadIdx.x < GW_LOWRANK_LANES && n != 0) {
                sum = gw_low_consume_stage<PRODUCERS>(sum, room.stage[(n + 1) % 2] + threadIdx.x,
                                                      rows - (first - LONG), LONG);
            }
            __syncthreads();
        }
        if (!producer) {
            sum = gw_low_sum_lanes(sum);
            if (threadIdx.x == 0) {
                room.shares[k] = sum;
            }
        }
        __syncthreads();
    }
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

/* All columns as fp32, row by row: four numbers of a row of P̂ as one, pairs of the payload's where they can be. The last column has no sum to
 * be brought to length 1 in. */
GW_DEVICE void gw_low_leave_rows(const gw_low_ortho &o, double unit)
{
    enum { DEEP = 4 };
    uint8_t *to = o.payload + GW_LOW_HEADER;
    const int pairs = o.rank % 2 == 0 && gw_aligned_to(to, 8);
    for (uint32_t k = 0; k < o.rank; k += GW_LOW_CHUNK) {
        for (uint64_t i = threadIdx.x; i < o.rows; i += DEEP * blockDim.x) {
            double v[DEEP][GW_LOW_CHUNK];
#pragma unroll
            for (uint32_t a = 0; a < DEEP * GW_LOW_CHUNK; a++) {
                const uint64_t row = i + a / GW_LOW_CHUNK * blockDim.x;
                const uint32_t column = k + a % GW_LOW_CHUNK;
                v[a / GW_LOW_CHUNK][a % GW_LOW_CHUNK] =
                    row < o.rows && column < o.rank ? o.columns[column * o.rows + row] : 0;
            }
#pragma unroll
            for (uint32_t d = 0; d < DEEP; d++) {
                const uint64_t row = i + d * blockDim.x;
                float u[GW_LOW_CHUNK];
#pragma unroll
                for (uint32_t j = 0; j < GW_LOW_CHUNK; j++) {
                    u[j] = (float)(k + j + 1 == o.rank ? gw_low_unit(v[d][j], unit) : v[d][j]);
                }
                if (row < o.rows) {
                    *(float4 *)(o.left + row * o.pitch + k) = make_float4(u[0], u[1], u[2], u[3]);
                    gw_low_leave_four(to, row * o.rank + k, u, o.rank - k, pairs);
                }
            }
        }
    }
}

/* By GW_LOW_ADDERS + PRODUCERS threads. */
template <int PRODUCERS>
GW_DEVICE void gw_low_orthogonal(gw_low_ortho_room<PRODUCERS> &room, const gw_low_ortho &o)
{
    const int held = PRODUCERS >= 512 && o.rows <= GW_LOW_HELD * PRODUCERS;
    double unit = 0;
    gw_low_dots_abreast(room, o, {0, 0, -1, -1, -1}, room.norms);
    for (uint32_t k = 0; k < o.rank; k++) {
        const double before = sqrt(room.norms[k]);
        if (held && k > 0) {
            gw_low_walk(room, o, k);
        }
        for (uint32_t m = 0; m <= k && k > 0 && !held; m++) {
            const int last = m == 0 ? (int)k - 1 : (int)m - 1;
            const gw_low_sum s = {k, 1, last, m < k ? (int)m : -1, -1};
            gw_low_dots<PRODUCERS, 1>(room, o, s, room.shares);
        }
        const double after = k == 0 ? before : sqrt(room.shares[k]);
        unit = !(after > 0x1p-20 * before) ? 0 : 1 / after;
        gw_low_dots_abreast(room, o, {k + 1, 0, (int)k - 1, (int)k, unit}, room.shares);
    }
    gw_low_leave_rows(o, unit);
}

#endif
