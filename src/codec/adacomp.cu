/* adacomp on the device, in three launches.
 *   survey: a block a tile. Reads g and r once and writes G to r′; finds the bins' maxima, and of every element whether it is sent
 *           and with which sign: two planes of bits.
 *   weigh:  sums the maxima in the laid down order; a tensor's last block adds up the counts of the tiles, chooses the form,
 *           finds where the cap cuts, and writes the header.
 *   settle: a warp a tile, the last tile first, since its r′ may still be in the cache. Writes entries or bitmap, and takes the
 *           scale off r′ where something was sent. */
#include "codec/cuda_adacomp.h"

/* Names of templates are the linker's business too: they stay in this file. */
namespace
{
enum { BIN, FACTOR, CAP };
enum { THREADS = 256, WARPS = THREADS / 32, CHUNK = THREADS * GW_OWN, MOST_BINS = 128 };
enum { WEIGH_THREADS = 512, RUNS = 32 }; /* runs a block of weigh */

typedef struct state {
    uint32_t ticket, form;
    float scale;
    uint32_t reserved;
    uint64_t end;   /* elements from here on are not sent */
    uint64_t spare; /* entries behind a bin's first that form 0 has room for */
    uint64_t kept;  /* elements sent */
} state;

/* The parts of the workspace. counts: of the elements of a tile that are sent how many are not their bin's first, and how
 * many in all; behind weigh, of the tiles before it. */
typedef struct places {
    state *at;
    double *runs;
    uint2 *counts; /* one more than tiles */
    uint32_t *tops, *sent, *minus;
    uint32_t tiles, n_runs;
    uint64_t bins;
} places;

static __host__ __device__ inline places places_in(uint8_t *room, const gw_ada &s, uint64_t count,
                                                   size_t *bytes)
{
    places p;
    p.tiles = gw_ada_tiles(count, s.tile);
    p.bins = (count + s.bin - 1) / s.bin;
    p.n_runs = (uint32_t)((p.bins + GW_ADA_RUN - 1) / GW_ADA_RUN);
    const size_t plane = (size_t)p.tiles * s.words, runs = 256, sent = runs + 8 * (size_t)p.n_runs;
    const size_t sent_at = (sent + 15) / 16 * 16, counts = sent_at + 8 * plane;
    const size_t tops = counts + 8 * ((size_t)p.tiles + 1);
    p.at = (state *)room;
    p.runs = (double *)(room + runs);
    p.sent = (uint32_t *)(room + sent_at);
    p.minus = p.sent + plane;
    p.counts = (uint2 *)(room + counts);
    p.tops = (uint32_t *)(room + tops);
    *bytes = tops + 4 * (size_t)p.bins;
    return p;
}

GW_DEVICE places places_of(const gw_select_in &t, const gw_ada &s)
{
    size_t unused;
    return places_in(t.room, s, t.count, &unused);
}

/* ---- survey ---- */

/* A tile, or a chunk of one that is a single long bin. */
typedef struct work {
    uint64_t at;
    uint32_t m; /* elements */
    int whole;  /* quads are aligned */
} work;

template <int FEEDBACK>
GW_DEVICE void read_all(float g[GW_OWN], float G[GW_OWN], const gw_select_in &t, gw_dtype dtype,
                        const work &w)
{
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const uint32_t e = gw_quad_at<0>(threadIdx.x, q), left = e < w.m ? w.m - e : 0;
        gw_read_four(g + 4 * q, t.in, dtype, w.at + e, left, w.whole && left >= 4);
        if (FEEDBACK) {
            gw_read_four(G + 4 * q, t.residual, GW_F32, w.at + e, left, w.whole && left >= 4);
        }
    }
#pragma unroll
    for (int i = 0; i < GW_OWN; i++) {
        G[i] = FEEDBACK ? g[i] + G[i] : g[i];
    }
}

GW_DEVICE void write_all(const float G[GW_OWN], const gw_select_in &t, const work &w)
{
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const uint32_t e = gw_quad_at<0>(threadIdx.x, q), left = e < w.m ? w.m - e : 0;
        gw_write_four(G + 4 * q, t.after, w.at + e, left, w.whole && left >= 4);
    }
}

GW_DEVICE uint32_t magnitude(float x)
{
    return gw_bits(x) & GW_ABS_MASK;
}

GW_DEVICE uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* The maxima of a quad's bins, the first and, where the quad goes over its end, the next; of quads side by side first
 * among each other. */
GW_DEVICE void top_quad(const float G[4], const gw_ada &s, uint32_t e, uint32_t m, uint32_t *tops)
{
    const uint32_t lane = threadIdx.x % 32, bin = gw_ada_bin_of(s, e), in = e - bin * s.bin;
    const uint32_t left = s.bin - in;
    uint32_t first = 0, next = 0;
#pragma unroll
    for (uint32_t c = 0; c < 4; c++) {
        const uint32_t a = magnitude(G[c]);
        first = larger(first, c < left ? a : 0);
        next = larger(next, c < left ? 0 : a);
    }
#pragma unroll
    for (uint32_t d = 1; d < 32; d *= 2) {
        const uint32_t other = __shfl_down_sync(0xFFFFFFFFu, first, (int)d);
        first = larger(first, 4 * d < left && lane + d < 32 ? other : 0);
    }
    if ((lane == 0 || in < 4) && e < m) {
        atomicMax(&tops[bin], first);
    }
    if (left < 4 && e + left < m) {
        atomicMax(&tops[bin + 1], next);
    }
}

GW_DEVICE void top_all(const float G[GW_OWN], const gw_ada &s, uint32_t m, uint32_t *tops)
{
    if (s.bin >= 4) {
#pragma unroll
        for (int q = 0; q < 4; q++) {
            top_quad(G + 4 * q, s, gw_quad_at<0>(threadIdx.x, q), m, tops);
        }
        return;
    }
    for (int i = 0; i < GW_OWN; i++) {
        const uint32_t e = gw_quad_at<0>(threadIdx.x, i / 4) + (uint32_t)i % 4;
        if (e < m) {
            atomicMax(&tops[gw_ada_bin_of(s, e)], magnitude(G[i]));
        }
    }
}

/* What a block of survey counts, in shared memory. */
typedef struct tally {
    uint32_t tops[MOST_BINS], used[MOST_BINS];
    uint32_t chosen, non_empty;
} tally;

/* Which of a quad are sent, and which of these are negative: bits 0 to 3, and 16 to 19. */
GW_DEVICE uint32_t mark_quad(const float G[4], const float g[4], const gw_ada &s, uint32_t e,
                             uint32_t m, tally *shared)
{
    if (e >= m) {
        return 0;
    }
    const uint32_t bin = gw_ada_bin_of(s, e), left = s.bin - (e - bin * s.bin);
    uint32_t marks = 0;
    const uint32_t top = shared->tops[bin];
    uint32_t next = left < 4 && e + left < m ? shared->tops[bin + 1] : top;
#pragma unroll
    for (uint32_t c = 0; c < 4; c++) {
        const uint32_t key = gw_adacomp_key(G[c], g[c], s.d);
        if (s.bin < 4 && e + c < m) {
            next = shared->tops[gw_ada_bin_of(s, e + c)];
        }
        const uint32_t limit = gw_adacomp_limit(c < left ? top : next);
        marks |= ((key & GW_ABS_MASK) >= limit ? 1u | key >> 31 << 16 : 0) << c;
    }
    for (uint32_t some = marks & 15; some != 0; some &= some - 1) {
        shared->used[gw_ada_bin_of(s, e + gw_lowest(some))] = 1;
    }
    return marks;
}

/* Marks the thread's numbers; words of the planes. Returns how many are sent. */
GW_DEVICE uint32_t mark_all(const float G[GW_OWN], const float g[GW_OWN], const gw_ada &s,
                            uint32_t m, uint32_t words, uint32_t *sent, uint32_t *minus,
                            tally *shared)
{
    const uint32_t lane = threadIdx.x % 32;
    uint32_t chosen = 0;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const uint32_t e = gw_quad_at<0>(threadIdx.x, q);
        const uint32_t marks = mark_quad(G + 4 * q, g + 4 * q, s, e, m, shared);
        uint32_t yes = (marks & 15) << lane % 8 * 4, negative = marks >> 16 << lane % 8 * 4;
        if (__any_sync(0xFFFFFFFFu, marks != 0)) {
#pragma unroll
            for (int d = 1; d < 8; d *= 2) {
                yes |= __shfl_xor_sync(0xFFFFFFFFu, yes, d);
                negative |= __shfl_xor_sync(0xFFFFFFFFu, negative, d);
            }
        }
        if (lane % 8 == 0 && e / 32 < words) {
            sent[e / 32] = yes;
            minus[e / 32] = negative;
            chosen += (uint32_t)__popc(yes);
        }
    }
    return chosen;
}

GW_DEVICE void count_odd(const float G[GW_OWN], gw_cuda_result *result)
{
    uint64_t n = 0;
#pragma unroll
    for (int i = 0; i < GW_OWN; i++) {
        n += magnitude(G[i]) >= GW_INF_BITS;
    }
    gw_count(&result->non_finite, n);
}

GW_DEVICE void add_chosen(uint32_t chosen, tally *shared)
{
    const uint32_t of_warp = __reduce_add_sync(0xFFFFFFFFu, chosen);
    if (threadIdx.x % 32 == 0) {
        atomicAdd(&shared->chosen, of_warp);
    }
}

/* A single bin of more elements than a chunk: read twice, the second time for the most part from the cache. */
template <int FEEDBACK>
GW_DEVICE void survey_long(const gw_select_in &t, const gw_ada &s, gw_dtype dtype, uint64_t at,
                           uint32_t m, const places &p, uint32_t tile, tally *shared)
{
    float g[GW_OWN], G[GW_OWN];
    uint32_t top = 0, chosen = 0;
    work w = {at, 0, 0};
    for (uint32_t e = 0; e < m; e += CHUNK) {
        w.at = at + e;
        w.m = m - e < CHUNK ? m - e : (uint32_t)CHUNK;
        read_all<FEEDBACK>(g, G, t, dtype, w);
        for (int i = 0; i < GW_OWN; i++) {
            top = larger(top, magnitude(G[i]));
        }
        count_odd(G, t.result);
    }
    atomicMax(&shared->tops[0], top);
    __syncthreads();
    /* a chunk of the bin is like a tile of one bin */
    for (uint32_t e = 0; e < m; e += CHUNK) {
        w.at = at + e;
        w.m = m - e < CHUNK ? m - e : (uint32_t)CHUNK;
        read_all<FEEDBACK>(g, G, t, dtype, w);
        if (FEEDBACK) {
            write_all(G, t, w);
        }
        const size_t plane = (size_t)tile * s.words + e / 32;
        chosen += mark_all(G, g, s, w.m, s.words - e / 32, p.sent + plane, p.minus + plane, shared);
    }
    add_chosen(chosen, shared);
}

template <int N, int FEEDBACK>
__global__ void __launch_bounds__(THREADS)
    survey_kernel(const __grid_constant__ gw_select_batch<gw_ada, N> batch)
{
    __shared__ tally shared;
    uint32_t tile;
    const gw_ada &s = batch.s;
    const gw_select_in &t = batch.tensor[gw_select_find(batch, &tile)];
    const places p = places_of(t, s);
    const uint64_t at = (uint64_t)tile * s.tile;
    const uint32_t m = gw_span_left(t.count, at, s.tile), bins = (m + s.bin - 1) / s.bin;
    if (threadIdx.x < MOST_BINS) {
        shared.tops[threadIdx.x] = 0;
        shared.used[threadIdx.x] = 0;
    }
    if (threadIdx.x == 0) {
        shared.chosen = 0;
        shared.non_empty = 0;
        if (tile == 0) {
            p.at->ticket = 0;
        }
    }
    if (s.tile > CHUNK) {
        __syncthreads();
        survey_long<FEEDBACK>(t, s, batch.dtype, at, m, p, tile, &shared);
    } else {
        float g[GW_OWN], G[GW_OWN];
        const work w = {at, m, s.tile % 4 == 0 && gw_quads_aligned(t, batch.dtype)};
        read_all<FEEDBACK>(g, G, t, batch.dtype, w);
        if (FEEDBACK) {
            write_all(G, t, w);
        }
        __syncthreads();
        top_all(G, s, m, shared.tops);
        __syncthreads();
        const size_t plane = (size_t)tile * s.words;
        add_chosen(mark_all(G, g, s, m, s.words, p.sent + plane, p.minus + plane, &shared),
                   &shared);
        int odd = 0;
        for (uint32_t b = threadIdx.x % 32; b < bins; b += 32) {
            odd |= shared.tops[b] >= GW_INF_BITS;
        }
        if (__any_sync(0xFFFFFFFFu, odd)) {
            count_odd(G, t.result);
        }
    }
    __syncthreads();
    if (threadIdx.x < bins) {
        p.tops[(uint64_t)tile * (s.tile / s.bin) + threadIdx.x] = shared.tops[threadIdx.x];
        if (shared.used[threadIdx.x] != 0) {
            atomicAdd(&shared.non_empty, 1u);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        p.counts[tile] = make_uint2(shared.chosen - shared.non_empty, shared.chosen);
    }
}

/* ---- weigh ---- */

/* The sum of one run of maxima; negative if one is not finite. */
GW_DEVICE void sum_runs(const places &p, uint32_t part)
{
    __shared__ uint32_t some[RUNS * (GW_ADA_RUN + 1)];
    const uint64_t first = (uint64_t)part * (RUNS * GW_ADA_RUN);
    for (uint32_t i = threadIdx.x; i < RUNS * GW_ADA_RUN; i += WEIGH_THREADS) {
        some[i / GW_ADA_RUN * (GW_ADA_RUN + 1) + i % GW_ADA_RUN] =
            first + i < p.bins ? p.tops[first + i] : 0;
    }
    __syncthreads();
    const uint32_t run = part * RUNS + threadIdx.x;
    if (threadIdx.x < RUNS && run < p.n_runs) {
        double sum = 0;
        uint32_t top = 0;
#pragma unroll 8
        for (uint32_t i = 0; i < GW_ADA_RUN; i++) {
            const uint32_t v = some[threadIdx.x * (GW_ADA_RUN + 1) + i];
            top = larger(top, v);
            sum += (double)gw_float(v);
        }
        p.runs[run] = top < GW_INF_BITS ? sum : -1.0;
    }
}

/* The exponent of the lowest bit that is set in x > 0. */
GW_DEVICE int lowest_exponent(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint64_t mantissa = (bits & 0xFFFFFFFFFFFFFu) | 0x10000000000000u;
    return (int)(bits >> 52) - 1075 + __popcll((mantissa & (0 - mantissa)) - 1);
}

GW_DEVICE double power_of_two(int exponent)
{
    const uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The total of all runs, left to right, or −1. Where no addition of any order rounds, which the lowest bit of all terms
 * and their total tell, the order does not matter. */
GW_DEVICE double sum_all(const places &p)
{
    __shared__ double partial[WEIGH_THREADS];
    __shared__ int lowest, odd;
    const volatile double *runs = p.runs;
    double mine = 0;
    int low = 2000, bad = 0;
    if (threadIdx.x == 0) {
        lowest = 2000;
        odd = 0;
    }
    for (uint32_t i = threadIdx.x; i < p.n_runs; i += WEIGH_THREADS) {
        const double r = runs[i];
        const int e = r > 0 ? lowest_exponent(r) : 2000;
        bad |= r < 0;
        low = e < low ? e : low;
        mine += r;
    }
    partial[threadIdx.x] = mine;
    __syncthreads();
    atomicMin(&lowest, low);
    if (bad) {
        odd = 1;
    }
    for (uint32_t half = WEIGH_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            partial[threadIdx.x] += partial[threadIdx.x + half];
        }
    }
    __syncthreads();
    double total = partial[0];
    if (threadIdx.x == 0 && total > 0 && !(total < power_of_two(lowest + 52))) {
        total = 0;
        for (uint32_t i = 0; i < p.n_runs; i++) {
            total += runs[i];
        }
    }
    return odd ? -1.0 : total;
}

/* What the scan of the tiles' counts finds. */
typedef struct totals {
    uint32_t extras, chosen; /* not the first of their bin; in all */
    uint32_t cut[2];         /* the tile in which each form's room ends */
} totals;

/* Counts become counts of what is before. */
GW_DEVICE void scan_tiles(const places &p, uint64_t spare, uint64_t holds, totals *out)
{
    __shared__ uint32_t of_warps[2][WEIGH_THREADS / 32];
    const uint32_t own = (p.tiles + WEIGH_THREADS - 1) / WEIGH_THREADS;
    const uint64_t from = (uint64_t)threadIdx.x * own,
                   stop = from + own < p.tiles ? from + own : p.tiles;
    uint32_t extras = 0, chosen = 0, all_extras, all_chosen;
    if (threadIdx.x == 0) {
        out->cut[0] = out->cut[1] = p.tiles;
    }
#pragma unroll 8
    for (uint64_t i = from; i < stop; i++) {
        const uint2 c = p.counts[i];
        extras += c.x;
        chosen += c.y;
    }
    uint32_t x = gw_block_before(extras, of_warps[0], &all_extras);
    uint32_t c = gw_block_before(chosen, of_warps[1], &all_chosen);
    for (uint64_t i = from; i < stop; i++) {
        const uint2 here = p.counts[i];
        p.counts[i] = make_uint2(x, c);
        if (x <= spare && x + here.x > spare) {
            out->cut[0] = (uint32_t)i;
        }
        if (c <= holds && c + here.y > holds) {
            out->cut[1] = (uint32_t)i;
        }
        x += here.x;
        c += here.y;
    }
    if (threadIdx.x == 0) {
        p.counts[p.tiles] = make_uint2(all_extras, all_chosen);
        out->extras = all_extras;
        out->chosen = all_chosen;
    }
    __syncthreads();
}

/* The first element of tile `tile` for which there is no room: behind `rest` that are not the first of their bin, or in
 * bitmaps behind `rest` of any kind. *before: elements sent before it. */
GW_DEVICE uint64_t cut_in_tile(const places &p, const gw_ada &s, uint32_t tile, uint64_t rest,
                               int bitmap, uint64_t *before)
{
    const uint32_t *sent = p.sent + (size_t)tile * s.words;
    uint32_t last_bin = 0xFFFFFFFFu;
    uint64_t n = p.counts[tile].y;
    for (uint32_t w = 0; w < s.words; w++) {
        for (uint32_t word = sent[w]; word != 0; word &= word - 1, n++) {
            const uint32_t e = 32 * w + gw_lowest(word), bin = gw_ada_bin_of(s, e);
            const int counts = bitmap || bin == last_bin;
            if (counts && rest == 0) {
                *before = n;
                return (uint64_t)tile * s.tile + e;
            }
            rest -= counts ? 1 : 0;
            last_bin = bin;
        }
    }
    *before = n;
    return (uint64_t)tile * s.tile + s.tile; /* not reached */
}

/* Form, cut and header, as `fit` of adacomp.c has it. By one thread. */
GW_DEVICE void fit(const gw_select_in &t, const gw_ada &s, const places &p, const totals &all,
                   double sum, uint64_t spare, uint64_t holds)
{
    const uint64_t room = t.bytes - GW_ADA_HEADER, bitmap = (t.count + 7) / 8;
    const uint64_t size0 = (p.bins + all.extras) * s.width, size1 = bitmap + (all.chosen + 7) / 8;
    const int can0 = room / s.width >= p.bins, can1 = room >= bitmap;
    state *at = p.at;
    uint32_t form = GW_ADA_ENTRIES;
    uint64_t end = t.count, kept = all.chosen;
    at->spare = all.extras;
    if (size0 <= room || size1 <= room) {
        form = size0 <= room && (size0 <= size1 || size1 > room) ? GW_ADA_ENTRIES : GW_ADA_BITMAP;
    } else {
        uint64_t holds0 = 0, end0 = 0, end1 = 0, before = 0;
        if (can0) {
            end0 = cut_in_tile(p, s, all.cut[0], spare - p.counts[all.cut[0]].x, 0, &holds0);
        }
        if (can1) {
            end1 = cut_in_tile(p, s, all.cut[1], holds - p.counts[all.cut[1]].y, 1, &before);
        }
        form = can0 && (!can1 || holds0 >= holds) ? GW_ADA_ENTRIES : GW_ADA_BITMAP;
        end = form == GW_ADA_ENTRIES ? end0 : end1;
        kept = form == GW_ADA_ENTRIES ? holds0 : holds;
        at->spare = spare;
        t.result->held_back += all.chosen - kept;
    }
    const float scale = p.bins > 0 ? (float)(sum / (double)p.bins) : 0.0f;
    const uint64_t entries = p.bins + (at->spare < all.extras ? at->spare : (uint64_t)all.extras);
    at->form = form;
    at->scale = scale;
    at->end = end;
    at->kept = kept;
    gw_leave_u32(t.payload, form);
    gw_leave_u32(t.payload + 4, gw_bits(scale));
    gw_leave_u64(t.payload + 8, form == GW_ADA_BITMAP ? kept : entries);
    t.result->written =
        GW_ADA_HEADER + (form == GW_ADA_BITMAP ? bitmap + (kept + 7) / 8 : entries * s.width);
}

template <int N>
__global__ void __launch_bounds__(WEIGH_THREADS)
    weigh_kernel(const __grid_constant__ gw_select_batch<gw_ada, N> batch)
{
    __shared__ uint32_t is_last;
    __shared__ totals all;
    uint32_t part;
    const gw_ada &s = batch.s;
    const gw_select_in &t = batch.tensor[gw_select_find(batch, &part)];
    const places p = places_of(t, s);
    const uint32_t parts = p.n_runs == 0 ? 1 : (p.n_runs + RUNS - 1) / RUNS;
    sum_runs(p, part);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(&p.at->ticket, 1u) == parts - 1;
    }
    __syncthreads();
    if (!is_last) {
        return;
    }
    __threadfence();
    const double sum = sum_all(p);
    const uint64_t room = t.bytes - GW_ADA_HEADER, bitmap = (t.count + 7) / 8;
    const uint64_t spare = room / s.width >= p.bins ? room / s.width - p.bins : 0;
    const uint64_t holds = room >= bitmap ? 8 * (room - bitmap) : 0;
    scan_tiles(p, spare, holds, &all);
    if (threadIdx.x != 0) {
        return;
    }
    if (sum >= 0) {
        fit(t, s, p, all, sum, spare, holds);
        return;
    }
    p.at->form = GW_ADA_NON_FINITE;
    gw_leave_u32(t.payload, GW_ADA_NON_FINITE);
    gw_leave_u32(t.payload + 4, GW_NAN_BITS);
    gw_leave_u64(t.payload + 8, 0);
    t.result->written = GW_ADA_HEADER;
}

#include "codec/cuda_adacomp_settle.h"

/* ---- the host's side ---- */

static gw_ada shape_of(const double *value)
{
    gw_ada s = {};
    s.bin = (uint32_t)value[BIN];
    uint32_t per = CHUNK / s.bin;
    per = per < 1 ? 1 : per > MOST_BINS ? (uint32_t)MOST_BINS : per;
    per = per >= 8 ? per / 8 * 8 : per >= 4 ? 4 : per;
    s.tile = per * s.bin;
    s.words = (s.tile + 127) / 128 * 4;
    s.width = s.bin <= 63 ? 1 : 2;
    s.sign_at = s.width == 1 ? 6 : 14;
    s.window_tile = s.bin < GW_SELECT_WINDOW ? GW_SELECT_WINDOW / s.bin * s.bin : s.bin;
    s.d = (float)(value[FACTOR] - 1);
    s.magic = (0x100000000u + s.bin - 1) / s.bin;
    return s;
}

static size_t workspace(const double *value, gw_dtype dtype, size_t count, int feedback)
{
    (void)dtype, (void)feedback;
    const gw_ada s = shape_of(value);
    size_t encoding = 0;
    (void)places_in(NULL, s, count, &encoding);
    const uint64_t bitmap = gw_cuda_ceil_div(count, 8);
    const uint64_t marks = s.width * gw_cuda_ceil_div(count, s.bin);
    const uint64_t least = bitmap < marks ? bitmap : marks, cap = (uint64_t)value[CAP];
    const uint64_t most = GW_ADA_HEADER + (cap == 0      ? 2 * bitmap
                                           : cap > least ? cap
                                                         : least); /* at least what is needed */
    const gw_ada_tables t = gw_ada_tables_in(NULL, count, most, s.window_tile);
    const size_t decoding =
        4 * (size_t)GW_CUDA_MAX_PAYLOADS * (1 + (size_t)t.n_pieces + (size_t)t.n_tiles);
    return encoding > decoding ? encoding : decoding;
}

struct run_encode {
    const gw_cuda_call *call;

    template <int N> void operator()(gw_select_part<gw_ada, N> &part) const
    {
        const gw_ada &s = part.batch.s;
        void (*const survey)(gw_select_batch<gw_ada, N>) =
            call->feedback ? survey_kernel<N, 1> : survey_kernel<N, 0>;
        void (*const settle)(gw_select_batch<gw_ada, N>) =
            call->feedback ? settle_kernel<N, 1> : settle_kernel<N, 0>;
        const uint32_t tiles =
            part.deal([&](uint64_t count) { return gw_ada_tiles(count, s.tile); });
        GW_LAUNCH(survey, tiles, THREADS, 0, call->stream, part.batch);
        const uint32_t parts = part.deal(
            [&](uint64_t count) { return gw_ada_tiles(count, RUNS * GW_ADA_RUN * s.bin); });
        GW_LAUNCH(weigh_kernel<N>, parts, WEIGH_THREADS, 0, call->stream, part.batch);
        const uint32_t groups = part.deal(
            [&](uint64_t count) { return (gw_ada_tiles(count, s.tile) + WARPS - 1) / WARPS; });
        GW_LAUNCH(settle, groups, THREADS, WARPS * settle_bytes(s), call->stream, part.batch);
    }
};

struct run_decode {
    const gw_cuda_call *call;

    template <class P> void operator()(P &part) const
    {
        typedef decltype(part.batch) B;
        const B &batch = part.batch;
        uint32_t i = 0;
        const uint32_t pieces = part.deal([&](uint64_t count) {
            return gw_ada_pieces(count, batch.tensor[i++].bytes) * batch.n_payloads;
        });
        GW_LAUNCH(gw_ada_count_kernel<B>, pieces, GW_ADA_THREADS, 0, call->stream, batch);
        GW_LAUNCH(gw_ada_place_kernel<B>, pieces, GW_ADA_THREADS, 0, call->stream, batch);
        const uint32_t tiles =
            part.deal([&](uint64_t count) { return gw_ada_tiles(count, batch.s.window_tile); });
        GW_LAUNCH(gw_ada_sum_kernel<B>, tiles, GW_ADA_THREADS, 0, call->stream, batch);
    }
};

static gw_status encode(const gw_cuda_call *call, const gw_cuda_source *tensors, size_t n,
                        gw_why *why)
{
    gw_select_encode(shape_of(call->value), call, tensors, n, workspace, run_encode{call});
    return gw_cuda_launched(why, "adacomp");
}

static gw_status decode(const gw_cuda_call *call, const gw_cuda_sink *tensors, size_t n,
                        gw_why *why)
{
    gw_select_decode(shape_of(call->value), call, tensors, n, workspace, run_decode{call});
    return gw_cuda_launched(why, "adacomp");
}

} // namespace

extern "C" const gw_cuda_codec gw_cuda_codec_adacomp = {workspace, encode, decode};
