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

static places places_in(uint8_t *room, const gw_ada &s, uint64_t count, size_t *bytes)
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
        const uint32_t e = gw_quad_at<GW_IN_ROWS>(threadIdx.x, q), left = e < w.m ? w.m - e : 0;
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
        const uint32_t e = gw_quad_at<GW_IN_ROWS>(threadIdx.x, q), left = e < w.m ? w.m - e : 0;
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
    uint32_t first = larger(larger(magnitude(G[0]), magnitude(G[1])),
                            larger(magnitude(G[2]), magnitude(G[3]))),
             next = 0;
    if (__all_sync(0xFFFFFFFFu, left >= 4 * (32 - lane))) { /* one bin */
        first = __reduce_max_sync(0xFFFFFFFFu, first);
        if (lane == 0 && e < m) {
            atomicMax(&tops[bin], first);
        }
        return;
    }
    if (left < 4) {
        first = 0;
#pragma unroll
        for (uint32_t c = 0; c < 4; c++) {
            const uint32_t a = magnitude(G[c]);
            first = larger(first, c < left ? a : 0);
            next = larger(next, c < left ? 0 : a);
        }
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
            top_quad(G + 4 * q, s, gw_quad_at<GW_IN_ROWS>(threadIdx.x, q), m, tops);
        }
        return;
    }
    for (int i = 0; i < GW_OWN; i++) {
        const uint32_t e = gw_quad_at<GW_IN_ROWS>(threadIdx.x, i / 4) + (uint32_t)i % 4;
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
    const uint32_t top = gw_adacomp_limit(shared->tops[bin]);
    uint32_t next = left < 4 && e + left < m ? gw_adacomp_limit(shared->tops[bin + 1]) : top;
    uint32_t marks = 0;
#pragma unroll
    for (uint32_t c = 0; c < 4; c++) {
        if (s.bin < 4 && e + c < m) {
            next = gw_adacomp_limit(shared->tops[gw_ada_bin_of(s, e + c)]);
        }
        const uint32_t key = gw_adacomp_key(G[c], g[c], s.d) & GW_ABS_MASK;
        marks |= (uint32_t)(key >= (c < left ? top : next)) << c;
    }
    for (uint32_t some = marks; some != 0; some &= some - 1) {
        shared->used[gw_ada_bin_of(s, e + gw_lowest(some))] = 1;
    }
    if (marks != 0) { /* the sign of a key is that of G */
#pragma unroll
        for (uint32_t c = 0; c < 4; c++) {
            marks |= (marks >> c & gw_bits(G[c]) >> 31) << (16 + c);
        }
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
        const uint32_t e = gw_quad_at<GW_IN_ROWS>(threadIdx.x, q);
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
__global__ void __launch_bounds__(THREADS, 4)
    survey_kernel(const __grid_constant__ gw_select_batch<gw_ada, places, N> batch)
{
    __shared__ tally shared;
    uint32_t tile;
    const gw_ada &s = batch.s;
    const uint32_t which = gw_select_find(batch, &tile);
    const gw_select_in &t = batch.tensor[which];
    const places &p = batch.layout[which];
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

#include "codec/cuda_adacomp_weigh.h"

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
    s.magic = ((1u << 28) + s.bin - 1) / s.bin;
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

    template <int N> void operator()(gw_select_part<gw_ada, places, N> &part) const
    {
        const gw_ada &s = part.batch.s;
        void (*const survey)(gw_select_batch<gw_ada, places, N>) =
            call->feedback ? survey_kernel<N, 1> : survey_kernel<N, 0>;
        void (*const settle)(gw_select_batch<gw_ada, places, N>) =
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
    gw_select_encode(shape_of(call->value), call, tensors, n, workspace, places_in,
                     run_encode{call});
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
