/* Sums of AdaComp's payloads on the device: a block a tile of the output. Payloads become planes of bits in shared memory, whatever
 * their form, and sums stay in registers. */
#ifndef GW_CUDA_ADACOMP_SUM_H
#define GW_CUDA_ADACOMP_SUM_H

#include "codec/adacomp/cuda_adacomp_read.h"

/* A window is summed in two halves, of each a thread has so many quads; payloads that are planes at a time. */
enum { GW_ADA_HALF = GW_SELECT_WINDOW / 2, GW_ADA_QUADS = GW_ADA_HALF / 4 / GW_ADA_THREADS };
enum { GW_ADA_ABREAST = 8 };

/* Where the tile begins in a payload: the number of the one, or entry; and for entries the bins that end before that. */
typedef struct gw_ada_start {
    uint32_t at, bins;
} gw_ada_start;

/* Of some payloads: which elements of the window have S, and which −S. */
template <int N> struct gw_ada_sheet {
    uint32_t plus[N][GW_ADA_THREADS], minus[N][GW_ADA_THREADS];
    uint32_t of_warps[4][GW_ADA_THREADS / 32];
    gw_ada_head head[N];
    gw_ada_start start[N];
    float scale[N]; /* NaN if it cannot be decoded */
};

/* A tile of the output, of which elements from `skip` on stand in the window. */
typedef struct gw_ada_window {
    uint64_t at;             /* the tile's first element */
    uint32_t tile;           /* its number */
    uint32_t m, skip, shown; /* elements of the tile; of them before the window, in it */
} gw_ada_window;

/* The sum of v over the block. */
GW_DEVICE uint32_t gw_ada_block_sum(uint32_t v, uint32_t *of_warps)
{
    uint32_t all;
    (void)gw_block_before(v, of_warps, &all);
    __syncthreads();
    return all;
}

GW_DEVICE gw_ada_start gw_ada_find_start(const gw_ada_head &h, const gw_ada &s,
                                         const gw_ada_tables &tables, uint32_t payload,
                                         uint32_t tile)
{
    const uint32_t *units = tables.units + (size_t)payload * tables.n_units;
    if (h.form == GW_ADA_ENTRIES) {
        const uint32_t unit = tables.starts[(size_t)payload * tables.n_tiles + tile];
        return {unit * (GW_ADA_PIECE / s.width), units[unit]};
    }
    return {units[tile], 0};
}

/* The same without tables, by all threads; *status says whether the payload adds up. */
template <int N>
GW_DEVICE gw_ada_start gw_ada_look_for_start(const gw_ada_head &h, const gw_ada &s, uint64_t count,
                                             uint64_t to, gw_ada_sheet<N> *sheet, gw_status *status)
{
    const uint32_t me = threadIdx.x;
    uint32_t before = 0, total;
    if (h.form == GW_ADA_ENTRIES) {
        total =
            gw_ada_block_sum(gw_ada_marks(h, s, 0, h.ones, me, GW_ADA_THREADS), sheet->of_warps[0]);
    } else {
        before = gw_ada_block_sum(gw_ada_ones(h, 0, to, me, GW_ADA_THREADS), sheet->of_warps[0]);
        total = before +
                gw_ada_block_sum(gw_ada_ones(h, to, count, me, GW_ADA_THREADS), sheet->of_warps[1]);
    }
    *status = gw_ada_adds_up(h, s, count, total) ? GW_OK : GW_ERR_CORRUPT;
    return {before, 0};
}

GW_DEVICE uint32_t gw_ada_entry(const uint8_t *body, uint32_t width, uint64_t j)
{
    return width == 1 ? body[j] : (uint32_t)body[2 * j] | (uint32_t)body[2 * j + 1] << 8;
}

/* Entries of a payload that adds up, from `start` on, as far as they are the tile's, to planes that are clear. 0: they are not what
 * an encoder writes. By all threads. */
template <int N>
GW_DEVICE int gw_ada_put_entries(const gw_ada_head &h, const gw_ada &s, const gw_ada_window &w,
                                 gw_ada_start start, gw_ada_sheet<N> *sheet, uint32_t k)
{
    const uint32_t empty = (1u << s.sign_at) - 1, last_at = s.sign_at + 1;
    const uint32_t tile_bins = s.window_tile / s.bin;
    uint32_t bins = start.bins - w.tile * tile_bins, turn = 0; /* below 0 before the tile */
    int sound = 1;
    for (uint64_t round = start.at; round < h.n && (int32_t)bins < (int32_t)tile_bins;
         round += GW_ADA_THREADS, turn ^= 1) {
        const uint64_t j = round + threadIdx.x;
        const uint32_t entry = j < h.n ? gw_ada_entry(h.body, s.width, j) : 0;
        const uint32_t last = entry >> last_at;
        uint32_t all;
        const uint32_t bin = bins + gw_block_before(last, sheet->of_warps[turn], &all);
        bins += all;
        const uint32_t first = bin * s.bin, index = entry & empty;
        if (j >= h.n || bin >= tile_bins) { /* another tile's */
            continue;
        }
        const uint32_t before = j > 0 ? gw_ada_entry(h.body, s.width, j - 1) : 1u << last_at;
        const int opens = before >> last_at != 0;
        const int mark = index == empty && last != 0 && opens && (entry >> s.sign_at & 1) == 0;
        const uint32_t length = first >= w.m ? 0 : w.m - first < s.bin ? w.m - first : s.bin;
        const uint32_t e = first + index - w.skip;
        if (!mark && (index >= length || (!opens && index <= (before & empty)))) {
            sound = 0;
        } else if (!mark && e < w.shown) {
            uint32_t *plane = entry >> s.sign_at & 1 ? sheet->minus[k] : sheet->plus[k];
            atomicOr(&plane[e / 32], 1u << e % 32);
        }
    }
    return sound;
}

/* Of the elements of `word`, those whose signs, in order, are set. */
GW_DEVICE uint32_t gw_ada_spread(uint32_t word, uint32_t signs)
{
    uint32_t out = 0;
#pragma unroll 2
    for (; word != 0; signs >>= 1) {
        const uint32_t lowest = word & (0 - word);
        out |= signs & 1 ? lowest : 0;
        word ^= lowest;
    }
    return out;
}

/* Headers of payloads first … first + n − 1, and where the window begins in them. FUSED: there are no tables. */
template <int FUSED, int N, class B>
GW_DEVICE void gw_ada_open(const B &batch, uint32_t index, uint32_t first, uint32_t n,
                           const gw_ada_window &w, gw_ada_sheet<N> *sheet)
{
    const auto &t = batch.tensor[index];
    const gw_ada &s = batch.s;
    const uint32_t me = threadIdx.x;
    if (me < n) {
        gw_ada_head h;
        gw_ada_start start = {0, 0};
        if (FUSED) {
            h = gw_ada_read_head(batch.payload[index * batch.n_payloads + first + me], s, t.count,
                                 t.bytes);
        } else {
            size_t size;
            const gw_ada_tables tables =
                gw_ada_tables_in(t.room, t.count, t.bytes, s.window_tile, &size);
            h = tables.heads[first + me];
            if (h.status == GW_OK && h.form != GW_ADA_NON_FINITE) {
                start = gw_ada_find_start(h, s, tables, first + me, w.tile);
            }
        }
        sheet->head[me] = h;
        sheet->start[me] = start;
    }
    __syncthreads();
    for (uint32_t k = 0; (FUSED || w.skip != 0) && k < n; k++) {
        const gw_ada_head &h = sheet->head[k];
        gw_status status = h.status;
        if (h.status != GW_OK || h.form == GW_ADA_NON_FINITE) {
            continue;
        }
        gw_ada_start start = sheet->start[k];
        if (FUSED) {
            start = gw_ada_look_for_start(h, s, t.count, w.at + w.skip, sheet, &status);
        } else if (h.form == GW_ADA_BITMAP) {
            start.at += gw_ada_block_sum(gw_ada_ones(h, w.at, w.at + w.skip, me, GW_ADA_THREADS),
                                         sheet->of_warps[0]);
        }
        __syncthreads();
        if (me == 0) {
            sheet->start[k] = start;
            sheet->head[k].status = status;
        }
        __syncthreads();
    }
    if (me < n) {
        const gw_ada_head &h = sheet->head[me];
        sheet->scale[me] =
            h.status == GW_OK && h.form != GW_ADA_NON_FINITE ? h.scale : gw_float(GW_NAN_BITS);
        if (h.status != GW_OK) {
            gw_blame(t.result, h.status);
        }
    }
    __syncthreads();
}

/* n payloads that are open to planes. */
template <int N>
GW_DEVICE void gw_ada_fill_planes(const gw_ada &s, const gw_ada_window &w, uint32_t n,
                                  gw_ada_sheet<N> *sheet, gw_cuda_result *result)
{
    const uint32_t e = 32 * threadIdx.x, left = e < w.shown ? w.shown - e : 0;
    uint32_t word[N], before[N];
#pragma unroll
    for (uint32_t k = 0; k < N; k++) {
        const gw_ada_head &h = sheet->head[k];
        word[k] = left != 0 && k < n && h.status == GW_OK && h.form == GW_ADA_BITMAP
                      ? gw_ada_bits(h.body, w.at + w.skip + e, h.end) & gw_bits_below(left)
                      : 0;
    }
#pragma unroll
    for (uint32_t k = 0; k < N; k += 2) { /* two counts in one number: each is below 2^16 */
        const uint32_t next = k + 1 < N ? k + 1 : k;
        uint32_t all, two = (uint32_t)__popc(word[k]) | (uint32_t)__popc(word[next]) << 16;
        two = gw_block_before(two, sheet->of_warps[k / 2], &all);
        before[next] = two >> 16;
        before[k] = two & 0xFFFF;
    }
#pragma unroll
    for (uint32_t k = 0; k < N; k++) {
        uint32_t minus = 0;
        if (word[k] != 0) {
            const gw_ada_head &h = sheet->head[k];
            minus = gw_ada_bits(h.body + h.ones, (uint64_t)sheet->start[k].at + before[k], h.end);
            minus = gw_ada_spread(word[k], minus);
        }
        sheet->plus[k][threadIdx.x] = word[k] & ~minus;
        sheet->minus[k][threadIdx.x] = minus;
    }
    __syncthreads();
    for (uint32_t k = 0; k < n; k++) {
        const gw_ada_head &h = sheet->head[k];
        if (h.status == GW_OK && h.form == GW_ADA_ENTRIES) {
            if (!gw_ada_put_entries(h, s, w, sheet->start[k], sheet, k)) {
                sheet->scale[k] = gw_float(GW_NAN_BITS);
                gw_blame(result, GW_ERR_CORRUPT);
            }
            __syncthreads();
        }
    }
}

/* Adds what the sheet has of one payload to the thread's sums, or sets them. A scale that is NaN spoils them all. */
template <int SET>
GW_DEVICE void gw_ada_add_plane(float x[GW_ADA_QUADS][4], const uint32_t *plus,
                                const uint32_t *minus, float scale)
{
    const uint32_t shift = threadIdx.x % 8 * 4, first = threadIdx.x / 8;
    const float other = -scale;
#pragma unroll
    for (uint32_t q = 0; q < GW_ADA_QUADS; q++) {
        const uint32_t w = q * (GW_ADA_THREADS / 8) + first;
        const uint32_t up = plus[w] >> shift, down = minus[w] >> shift;
#pragma unroll
        for (uint32_t c = 0; c < 4; c++) {
            if (SET) {
                x[q][c] = 0.0f;
            }
            if (up & 1u << c) {
                x[q][c] = SET ? scale : x[q][c] + scale;
            }
            if (down & 1u << c) {
                x[q][c] = SET ? other : x[q][c] + other;
            }
        }
    }
    if ((gw_bits(scale) & GW_ABS_MASK) >= GW_INF_BITS) {
#pragma unroll
        for (int i = 0; i < 4 * GW_ADA_QUADS; i++) {
            x[i / 4][i % 4] = scale;
        }
    }
}

/* Sums over the divisor; the largest pattern without sign of any. */
GW_DEVICE uint32_t gw_ada_divide(float x[GW_ADA_QUADS][4], uint32_t by)
{
    uint32_t top = 0;
    if ((by & (by - 1)) == 0) {
        const float factor = 1 / (float)by;
#pragma unroll
        for (int i = 0; i < 4 * GW_ADA_QUADS; i++) {
            x[i / 4][i % 4] *= factor;
        }
    } else {
#pragma unroll
        for (int i = 0; i < 4 * GW_ADA_QUADS; i++) {
            x[i / 4][i % 4] /= (float)by;
        }
    }
#pragma unroll
    for (int i = 0; i < 4 * GW_ADA_QUADS; i++) {
        const uint32_t a = gw_bits(x[i / 4][i % 4]) & GW_ABS_MASK;
        top = a > top ? a : top;
    }
    return top;
}

/* Results of a half, the thread's quads of it. */
template <class B>
GW_DEVICE void gw_ada_write_half(float x[GW_ADA_QUADS][4], const B &batch, void *out,
                                 gw_cuda_result *result, uint64_t at, uint32_t shown, int whole)
{
    if (gw_ada_divide(x, batch.divisor) >= GW_INF_BITS) {
        uint64_t bad = 0;
#pragma unroll
        for (uint32_t i = 0; i < 4 * GW_ADA_QUADS; i++) {
            const uint32_t e = 4 * (i / 4 * GW_ADA_THREADS + threadIdx.x) + i % 4;
            bad += e < shown && (gw_bits(x[i / 4][i % 4]) & GW_ABS_MASK) >= GW_INF_BITS;
        }
        gw_count(&result->non_finite, bad);
    }
#pragma unroll
    for (uint32_t q = 0; q < GW_ADA_QUADS; q++) {
        const uint32_t e = 4 * (q * GW_ADA_THREADS + threadIdx.x);
        if (whole && batch.dtype == GW_F32 && e + 4 <= shown) {
            __stcs((float4 *)((float *)out + at + e),
                   make_float4(x[q][0], x[q][1], x[q][2], x[q][3]));
            continue;
        }
#pragma unroll
        for (uint32_t c = 0; c < 4; c++) {
            if (e + c < shown) {
                gw_put_one(out, batch.dtype, at + e + c, x[q][c]);
            }
        }
    }
}

/* The thread's quads of a half that begins at element `at` and has `shown` elements. */
GW_DEVICE void gw_ada_read_half(float x[GW_ADA_QUADS][4], const void *out, gw_dtype dtype,
                                uint64_t at, uint32_t shown, int whole)
{
#pragma unroll
    for (uint32_t q = 0; q < GW_ADA_QUADS; q++) {
        const uint32_t e = 4 * (q * GW_ADA_THREADS + threadIdx.x);
        const uint32_t there = e < shown ? shown - e : 0;
        gw_read_four(x[q], out, dtype, at + e, there, whole && there >= 4);
    }
}

/* More payloads than N become planes anew for the second half. */
template <int N, int FUSED, class B>
GW_DEVICE void gw_ada_sum_window(const B &batch, uint32_t index, const gw_ada_window &w,
                                 gw_ada_sheet<N> *sheet)
{
    enum { WORDS = GW_ADA_HALF / 32 };
    const auto &t = batch.tensor[index];
    const int whole =
        (w.at + w.skip) % 4 == 0 && gw_aligned_to(t.out, batch.dtype == GW_F32 ? 16 : 8);
    for (uint32_t half = 0; half == 0 || half * GW_ADA_HALF < w.shown; half++) {
        const uint32_t left = w.shown - half * GW_ADA_HALF;
        const uint32_t shown = left < GW_ADA_HALF ? left : (uint32_t)GW_ADA_HALF;
        const uint64_t at = w.at + w.skip + half * GW_ADA_HALF;
        float x[GW_ADA_QUADS][4];
        if (batch.add) {
            gw_ada_read_half(x, t.out, batch.dtype, at, shown, whole);
        }
        for (uint32_t first = 0; first < batch.n_payloads; first += N) {
            const uint32_t rest = batch.n_payloads - first, n = rest < N ? rest : (uint32_t)N;
            if (half == 0 || batch.n_payloads > N) {
                __syncthreads();
                gw_ada_open<FUSED>(batch, index, first, n, w, sheet);
                gw_ada_fill_planes(batch.s, w, n, sheet, t.result);
            }
            for (uint32_t k = 0; k < n; k++) {
                const uint32_t *plus = sheet->plus[k] + half * WORDS;
                const uint32_t *minus = sheet->minus[k] + half * WORDS;
                if (first + k == 0 && !batch.add) {
                    gw_ada_add_plane<1>(x, plus, minus, sheet->scale[k]);
                } else {
                    gw_ada_add_plane<0>(x, plus, minus, sheet->scale[k]);
                }
            }
        }
        gw_ada_write_half(x, batch, t.out, t.result, at, shown, whole);
    }
    __syncthreads();
}

template <class B, int N, int FUSED>
__global__ void __launch_bounds__(GW_ADA_THREADS, 4)
    gw_ada_sum_kernel(const __grid_constant__ B batch)
{
    __shared__ gw_ada_sheet<N> sheet;
    gw_ada_window w = {};
    const uint32_t index = gw_select_find(batch, &w.tile);
    w.at = (uint64_t)w.tile * batch.s.window_tile;
    w.m = gw_span_left(batch.tensor[index].count, w.at, batch.s.window_tile);
    for (; w.skip < w.m || (w.m == 0 && w.skip == 0); w.skip += GW_SELECT_WINDOW) {
        const uint32_t left = w.m - w.skip;
        w.shown = left < GW_SELECT_WINDOW ? left : (uint32_t)GW_SELECT_WINDOW;
        gw_ada_sum_window<N, FUSED>(batch, index, w, &sheet);
    }
}

#endif
