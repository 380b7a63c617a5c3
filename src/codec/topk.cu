/* topk on the device.
 *   sample:  a few numbers give a limit that a few more than k are expected to reach
 *   collect: reads g and r once, writes G to r′, and appends what reaches the limit. Tiles come in any order, so a table says
 *            where each one's candidates are.
 *   digit:   three times: the next bits of the k-th magnitude, by a histogram of the candidates
 *   count, gather: the chosen in order of index
 *   write:   values, indices, and r′ of the chosen
 * Where the sample misled, all numbers take the candidates' place; nothing of this is known to the host. */
#include "codec/cuda_topk_read.h"

/* Names of templates are the linker's business too: they stay in this file. */
namespace
{
enum { DENSITY, VALUES };
enum { THREADS = 256, WARPS = THREADS / 32, SAMPLE = 32768, SAMPLE_THREADS = 1024 };
enum { RADIX = 2048, DIGITS = 3, DIGIT_BLOCKS = 528, DIGIT_SHARE = 16384, ROWS = GW_TILE / 128 };

typedef struct state {
    uint32_t limit; /* candidates reach it; UINT32_MAX: there are none */
    uint32_t total; /* candidates */
    uint32_t prefix,
        need; /* the digits found of the k-th magnitude; how many with them are chosen */
    uint32_t ticket[DIGITS + 1];
} state;

/* tiles: where a tile's candidates begin, and how many; counts: how many of its numbers are above the k-th magnitude and
 * how many equal it, behind count_kernel of the tiles before it. */
typedef struct places {
    state *at;
    uint32_t *cells;
    uint2 *tiles, *counts;
    uint32_t *candidate_index, *index;
    float *candidate, *value;
    uint64_t kept, room;
    uint32_t n_tiles;
} places;

static places places_in(uint8_t *room, const gw_topk &s, uint64_t count, size_t *bytes)
{
    places p;
    p.kept = gw_kept_of(s.density, count);
    p.n_tiles = count == 0 ? 1 : (uint32_t)((count + GW_TILE - 1) / GW_TILE);
    const double expected = (double)SAMPLE * (double)p.kept / (double)(count != 0 ? count : 1);
    const uint64_t most =
        p.kept == 0 ? 0
                    : p.kept + (uint64_t)(10 * (double)p.kept / sqrt(expected)) + (uint64_t)GW_TILE;
    p.room = count < 2 * SAMPLE ? 0 : most < count ? most : count;
    p.at = (state *)room;
    p.cells = (uint32_t *)(room + 256);
    p.tiles = (uint2 *)(p.cells + RADIX);
    p.counts = p.tiles + p.n_tiles;
    p.index = (uint32_t *)(p.counts + p.n_tiles + 1);
    p.value = (float *)(p.index + p.kept);
    p.candidate_index = (uint32_t *)(p.value + p.kept);
    p.candidate = (float *)(p.candidate_index + p.room);
    *bytes =
        256 + 4 * (size_t)RADIX + 8 * (2 * (size_t)p.n_tiles + 1) + 8 * (size_t)(p.kept + p.room);
    return p;
}

GW_DEVICE uint32_t magnitude(float x)
{
    return gw_bits(x) & GW_ABS_MASK;
}

/* Did the sample mislead, or was there none? Known behind collect. */
GW_DEVICE int is_whole(const places &p)
{
    return p.at->total < p.kept || p.at->total > p.room || p.at->limit == 0xFFFFFFFFu;
}

/* G, behind collect. */
GW_DEVICE float read_again(const gw_select_in &t, gw_dtype dtype, uint64_t i)
{
    return t.after != NULL ? t.after[i] : gw_one(t.in, dtype, i);
}

/* ---- digits ---- */

/* In a histogram of `width` bits, the cell of the need-th largest; *above: how many are in larger ones. By all threads. */
GW_DEVICE uint32_t pick_cell(const uint32_t *cells, uint32_t width, uint32_t need, uint32_t *above)
{
    __shared__ uint32_t of_warps[32], found[2];
    const uint32_t n = 1u << width, own = n / blockDim.x > 0 ? n / blockDim.x : 1;
    const volatile uint32_t *from = cells;
    uint32_t mine = 0, all;
    const uint32_t first = n - 1 - threadIdx.x * own; /* from the top down */
    for (uint32_t i = 0; i < own && threadIdx.x * own < n; i++) {
        mine += from[first - i];
    }
    uint32_t before = gw_block_before(mine, of_warps, &all);
    if (before < need && before + mine >= need) {
        uint32_t d = first;
        while (before + from[d] < need) {
            before += from[d--];
        }
        found[0] = d;
        found[1] = before;
    }
    __syncthreads();
    *above = found[1];
    return found[0];
}

GW_DEVICE uint32_t digit_shift(int digit)
{
    return digit == 0 ? 20 : digit == 1 ? 9 : 0;
}

GW_DEVICE uint32_t digit_width(int digit)
{
    return digit == 2 ? 9 : 11;
}

GW_DEVICE void add_cell(uint32_t *cells, uint32_t a, int digit, uint32_t prefix)
{
    const uint32_t shift = digit_shift(digit), width = digit_width(digit);
    if ((uint64_t)a >> (shift + width) == prefix) {
        atomicAdd(&cells[a >> shift & ((1u << width) - 1)], 1u);
    }
}

/* ---- sample ---- */

GW_DEVICE float sampled(const gw_select_in &t, gw_dtype dtype, uint32_t j)
{
    const gw_random_pair k = {0x6A09E667u, 0xBB67AE85u};
    const uint64_t stride = t.count / SAMPLE;
    const uint64_t i = j * stride + gw_random_word(k, j) % stride;
    const float g = gw_one(t.in, dtype, i);
    return t.residual != NULL ? g + t.residual[i] : g;
}

template <int N>
__global__ void __launch_bounds__(SAMPLE_THREADS)
    sample_kernel(const __grid_constant__ gw_select_batch<gw_topk, places, N> batch)
{
    enum { OWN = SAMPLE / SAMPLE_THREADS };
    __shared__ uint32_t cells[RADIX];
    uint32_t unused;
    const uint32_t which = gw_select_find(batch, &unused);
    const gw_select_in &t = batch.tensor[which];
    const places &p = batch.layout[which];
    const double expected = (double)SAMPLE * (double)p.kept / (double)(t.count != 0 ? t.count : 1);
    uint32_t need = (uint32_t)(expected + 4 * sqrt(expected) + 4), prefix = 0;
    for (uint32_t i = threadIdx.x; i < RADIX; i += SAMPLE_THREADS) {
        p.cells[i] = 0;
    }
    if (threadIdx.x == 0) {
        *p.at = {0xFFFFFFFFu, 0, 0, (uint32_t)p.kept, {0}};
        t.result->written = t.bytes;
    }
    if (p.room == 0 || need >= SAMPLE) {
        return;
    }
    uint32_t a[OWN];
#pragma unroll
    for (uint32_t i = 0; i < OWN; i++) {
        a[i] = magnitude(sampled(t, batch.dtype, threadIdx.x + SAMPLE_THREADS * i));
    }
    for (int digit = 0; digit < DIGITS; digit++) {
        uint32_t above;
        for (uint32_t i = threadIdx.x; i < RADIX; i += SAMPLE_THREADS) {
            cells[i] = 0;
        }
        __syncthreads();
#pragma unroll
        for (uint32_t i = 0; i < OWN; i++) {
            add_cell(cells, a[i], digit, prefix);
        }
        __syncthreads();
        const uint32_t d = pick_cell(cells, digit_width(digit), need, &above);
        prefix = prefix << digit_width(digit) | d;
        need -= above;
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        p.at->limit = prefix;
    }
}

/* ---- collect ---- */

/* Where a thread's candidates go, from the tile's first: those of the rows before, and in its row of the lanes before. */
GW_DEVICE void rank_row(uint32_t marks, uint32_t *before, uint32_t *all)
{
    *before = *all = 0;
    if (!__any_sync(0xFFFFFFFFu, marks != 0)) {
        return;
    }
#pragma unroll
    for (int c = 0; c < 4; c++) {
        const uint32_t lanes = __ballot_sync(0xFFFFFFFFu, marks >> c & 1);
        *before += (uint32_t)__popc(lanes & gw_bits_below(threadIdx.x % 32));
        *all += (uint32_t)__popc(lanes);
    }
}

template <int N, int FEEDBACK>
__global__ void __launch_bounds__(THREADS)
    collect_kernel(const __grid_constant__ gw_select_batch<gw_topk, places, N> batch)
{
    __shared__ uint32_t rows[ROWS], base;
    uint32_t tile;
    const uint32_t which = gw_select_find(batch, &tile);
    const gw_select_in &t = batch.tensor[which];
    const places &p = batch.layout[which];
    const uint64_t at = (uint64_t)tile * GW_TILE;
    const uint32_t m = gw_span_left(t.count, at, GW_TILE), limit = p.at->limit;
    const uint32_t lane = threadIdx.x % 32;
    float G[GW_OWN];
    uint32_t marks = 0, top = 0, before[4];
    gw_select_read<FEEDBACK>(G, t, batch.dtype, at, m);
#pragma unroll
    for (int i = 0; i < GW_OWN; i++) {
        const uint32_t e = gw_quad_at<GW_IN_ROWS>(threadIdx.x, i / 4) + (uint32_t)i % 4,
                       a = magnitude(G[i]);
        top = a > top ? a : top;
        marks |= (uint32_t)(a >= limit && e < m) << i;
    }
#pragma unroll
    for (int q = 0; q < 4; q++) {
        uint32_t all;
        rank_row(marks >> 4 * q & 15, &before[q], &all);
        if (lane == 0) {
            rows[threadIdx.x / 32 * 4 + (uint32_t)q] = all;
        }
    }
    if (top >= GW_INF_BITS) {
        uint64_t odd = 0;
        for (int i = 0; i < GW_OWN; i++) {
            odd += magnitude(G[i]) >= GW_INF_BITS;
        }
        gw_count(&t.result->non_finite, odd);
    }
    __syncthreads();
    uint32_t all;
    const uint32_t row_before = gw_warp_before(rows[lane], &all);
    if (threadIdx.x == 0) {
        base = all != 0 ? atomicAdd(&p.at->total, all) : 0;
        p.tiles[tile] = make_uint2(base, all);
    }
    __syncthreads();
    if ((uint64_t)base + all > p.room) {
        return;
    }
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const uint32_t e = gw_quad_at<GW_IN_ROWS>(threadIdx.x, q);
        uint32_t to = base + before[q] +
                      __shfl_sync(0xFFFFFFFFu, row_before, (int)(threadIdx.x / 32 * 4) + q);
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if (marks >> (4 * q + c) & 1) {
                p.candidate_index[to] = (uint32_t)at + e + (uint32_t)c;
                p.candidate[to++] = G[4 * q + c];
            }
        }
    }
}

/* ---- the k-th magnitude ---- */

/* Is this the last of a tensor's blocks to come here? All threads return the same; what others wrote before is seen. */
GW_DEVICE int is_last_block(uint32_t *ticket, uint32_t blocks)
{
    __shared__ uint32_t last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(ticket, 1u) == blocks - 1;
    }
    __syncthreads();
    __threadfence();
    return (int)last;
}

static __host__ __device__ inline uint32_t digit_blocks(uint64_t count)
{
    const uint64_t wanted = count / DIGIT_SHARE + 1;
    return wanted < DIGIT_BLOCKS ? (uint32_t)wanted : (uint32_t)DIGIT_BLOCKS;
}

template <int N>
__global__ void __launch_bounds__(THREADS)
    digit_kernel(const __grid_constant__ gw_select_batch<gw_topk, places, N> batch, int digit)
{
    __shared__ uint32_t cells[RADIX];
    uint32_t number;
    const uint32_t which = gw_select_find(batch, &number);
    const gw_select_in &t = batch.tensor[which];
    const places &p = batch.layout[which];
    const int whole = is_whole(p);
    const uint64_t n = whole ? t.count : p.at->total;
    const uint32_t blocks = digit_blocks(t.count), prefix = p.at->prefix, need = p.at->need;
    for (uint32_t i = threadIdx.x; i < RADIX; i += THREADS) {
        cells[i] = 0;
    }
    __syncthreads();
#pragma unroll 4
    for (uint64_t i = (uint64_t)number * THREADS + threadIdx.x; i < n; i += blocks * THREADS) {
        const float x = whole ? read_again(t, batch.dtype, i) : p.candidate[i];
        add_cell(cells, magnitude(x), digit, prefix);
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < RADIX; i += THREADS) {
        if (cells[i] != 0) {
            atomicAdd(&p.cells[i], cells[i]);
        }
    }
    if (!is_last_block(&p.at->ticket[digit], blocks) || p.kept == 0) {
        return;
    }
    uint32_t above;
    const uint32_t d = pick_cell(p.cells, digit_width(digit), need, &above);
    for (uint32_t i = threadIdx.x; i < RADIX; i += THREADS) {
        p.cells[i] = 0;
    }
    if (threadIdx.x == 0) {
        p.at->prefix = prefix << digit_width(digit) | d;
        p.at->need = need - above;
    }
}

/* ---- the chosen, in order ---- */

/* A tile's numbers that may be chosen, in order. */
typedef struct run {
    const gw_select_in *t;
    const places *p;
    uint64_t at;
    uint32_t n;
    gw_dtype dtype;
    int whole;
} run;

GW_DEVICE run run_of(const gw_select_in &t, const places &p, gw_dtype dtype, uint32_t tile)
{
    run r = {&t, &p, (uint64_t)tile * GW_TILE, 0, dtype, is_whole(p)};
    if (r.whole) {
        r.n = gw_span_left(t.count, r.at, GW_TILE);
    } else {
        const uint2 there = p.tiles[tile];
        r.at = there.x;
        r.n = there.y;
    }
    return r;
}

GW_DEVICE float run_value(const run &r, uint32_t k)
{
    return r.whole ? read_again(*r.t, r.dtype, r.at + k) : r.p->candidate[r.at + k];
}

GW_DEVICE uint32_t run_index(const run &r, uint32_t k)
{
    return r.whole ? (uint32_t)(r.at + k) : r.p->candidate_index[r.at + k];
}

/* Counts become counts of what is before. By the last block. */
GW_DEVICE void scan_tiles(const places &p)
{
    __shared__ uint32_t of_warps[2][WARPS];
    const uint32_t own = (p.n_tiles + THREADS - 1) / THREADS;
    const uint64_t from = (uint64_t)threadIdx.x * own,
                   stop = from + own < p.n_tiles ? from + own : p.n_tiles;
    uint32_t above = 0, ties = 0, all;
#pragma unroll 8
    for (uint64_t i = from; i < stop; i++) {
        above += ((const volatile uint32_t *)p.counts)[2 * i];
        ties += ((const volatile uint32_t *)p.counts)[2 * i + 1];
    }
    uint32_t a = gw_block_before(above, of_warps[0], &all);
    uint32_t b = gw_block_before(ties, of_warps[1], &all);
    for (uint64_t i = from; i < stop; i++) {
        const uint32_t x = ((const volatile uint32_t *)p.counts)[2 * i];
        const uint32_t y = ((const volatile uint32_t *)p.counts)[2 * i + 1];
        p.counts[i] = make_uint2(a, b);
        a += x;
        b += y;
    }
}

template <int N>
__global__ void __launch_bounds__(THREADS)
    count_kernel(const __grid_constant__ gw_select_batch<gw_topk, places, N> batch)
{
    uint32_t group;
    const uint32_t which = gw_select_find(batch, &group);
    const gw_select_in &t = batch.tensor[which];
    const places &p = batch.layout[which];
    const uint32_t tile = group * WARPS + threadIdx.x / 32, least = p.at->prefix;
    if (tile < p.n_tiles) {
        const run r = run_of(t, p, batch.dtype, tile);
        uint32_t above = 0, ties = 0;
        for (uint32_t k = threadIdx.x % 32; k < r.n; k += 32) {
            const uint32_t a = magnitude(run_value(r, k));
            above += a > least;
            ties += a == least;
        }
        above = __reduce_add_sync(0xFFFFFFFFu, above);
        ties = __reduce_add_sync(0xFFFFFFFFu, ties);
        if (threadIdx.x % 32 == 0) {
            p.counts[tile] = make_uint2(above, ties);
        }
    }
    if (is_last_block(&p.at->ticket[DIGITS], (p.n_tiles + WARPS - 1) / WARPS)) {
        scan_tiles(p);
    }
}

template <int N>
__global__ void __launch_bounds__(THREADS)
    gather_kernel(const __grid_constant__ gw_select_batch<gw_topk, places, N> batch)
{
    uint32_t group;
    const uint32_t which = gw_select_find(batch, &group);
    const gw_select_in &t = batch.tensor[which];
    const places &p = batch.layout[which];
    const uint32_t tile = group * WARPS + threadIdx.x / 32, least = p.at->prefix;
    const uint32_t need = p.at->need, below = gw_bits_below(threadIdx.x % 32);
    if (tile >= p.n_tiles) {
        return;
    }
    const run r = run_of(t, p, batch.dtype, tile);
    uint32_t ties = p.counts[tile].y, to = p.counts[tile].x + (ties < need ? ties : need);
    for (uint32_t row = 0; row < r.n; row += 32) {
        const uint32_t k = row + threadIdx.x % 32;
        const float v = k < r.n ? run_value(r, k) : 0.0f;
        const uint32_t a = magnitude(v);
        const uint32_t equal = __ballot_sync(0xFFFFFFFFu, k < r.n && a == least);
        const int chosen =
            k < r.n && (a > least || (a == least && ties + (uint32_t)__popc(equal & below) < need));
        const uint32_t which = __ballot_sync(0xFFFFFFFFu, chosen);
        const uint32_t j = to + (uint32_t)__popc(which & below);
        if (chosen && j < p.kept) {
            p.index[j] = run_index(r, k);
            p.value[j] = v;
        }
        ties += (uint32_t)__popc(equal);
        to += (uint32_t)__popc(which);
    }
}

#include "codec/cuda_topk_write.h"

/* ---- the host's side ---- */

static gw_topk shape_of(const double *value)
{
    const gw_topk s = {value[DENSITY], value[VALUES] != 0};
    return s;
}

static size_t workspace(const double *value, gw_dtype dtype, size_t count, int feedback)
{
    (void)dtype, (void)feedback;
    const gw_topk s = shape_of(value);
    size_t encoding = 0;
    (void)places_in(NULL, s, count, &encoding);
    const gw_topk_tables t = gw_topk_tables_in(NULL, gw_topk_list(s, count), count);
    const size_t decoding =
        4 * (size_t)GW_CUDA_MAX_PAYLOADS * (1 + (size_t)t.n_pieces + (size_t)t.n_windows);
    return encoding > decoding ? encoding : decoding;
}

struct run_encode {
    const gw_cuda_call *call;

    template <int N> void operator()(gw_select_part<gw_topk, places, N> &part) const
    {
        const gw_topk s = part.batch.s;
        const auto tiles = [](uint64_t count) { return gw_tiles_of(count, GW_TILE); };
        const auto groups = [&](uint64_t count) { return (tiles(count) + WARPS - 1) / WARPS; };
        void (*const collect)(gw_select_batch<gw_topk, places, N>) =
            call->feedback ? collect_kernel<N, 1> : collect_kernel<N, 0>;
        uint32_t blocks = part.deal([](uint64_t) { return 1u; });
        GW_LAUNCH(sample_kernel<N>, blocks, SAMPLE_THREADS, 0, call->stream, part.batch);
        blocks = part.deal(tiles);
        GW_LAUNCH(collect, blocks, THREADS, 0, call->stream, part.batch);
        blocks = part.deal(digit_blocks);
        for (int digit = 0; digit < DIGITS; digit++) {
            GW_LAUNCH(digit_kernel<N>, blocks, THREADS, 0, call->stream, part.batch, digit);
        }
        blocks = part.deal(groups);
        GW_LAUNCH(count_kernel<N>, blocks, THREADS, 0, call->stream, part.batch);
        GW_LAUNCH(gather_kernel<N>, blocks, THREADS, 0, call->stream, part.batch);
        blocks = part.deal([&](uint64_t count) {
            return gw_tiles_of(gw_kept_of(s.density, count), GW_VALUES_RUN);
        });
        GW_LAUNCH(write_kernel<N>, blocks, GW_VALUES_THREADS, 0, call->stream, part.batch);
    }
};

struct run_decode {
    const gw_cuda_call *call;

    template <class P> void operator()(P &part) const
    {
        typedef decltype(part.batch) B;
        const B &batch = part.batch;
        const uint32_t pieces = part.deal([&](uint64_t count) {
            return gw_topk_pieces(gw_topk_list(batch.s, count)) * batch.n_payloads;
        });
        GW_LAUNCH(gw_topk_count_kernel<B>, pieces, GW_TOPK_THREADS, 0, call->stream, batch);
        GW_LAUNCH(gw_topk_place_kernel<B>, pieces, GW_TOPK_THREADS, 0, call->stream, batch);
        const uint32_t windows = part.deal(gw_topk_windows);
        GW_LAUNCH(gw_topk_sum_kernel<B>, windows, GW_TOPK_THREADS, 0, call->stream, batch);
    }
};

static gw_status encode(const gw_cuda_call *call, const gw_cuda_source *tensors, size_t n,
                        gw_why *why)
{
    gw_select_encode(shape_of(call->value), call, tensors, n, workspace, places_in,
                     run_encode{call});
    return gw_cuda_launched(why, "topk");
}

static gw_status decode(const gw_cuda_call *call, const gw_cuda_sink *tensors, size_t n,
                        gw_why *why)
{
    gw_select_decode(shape_of(call->value), call, tensors, n, workspace, run_decode{call});
    return gw_cuda_launched(why, "topk");
}

} // namespace

extern "C" const gw_cuda_codec gw_cuda_codec_topk = {workspace, encode, decode};
