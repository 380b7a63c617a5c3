/* topk on the device.
 *   sample, limit: a few numbers give a limit that a few more than k are expected to reach
 *   collect: reads g and r once, writes G to r′, and appends what reaches the limit. Tiles come in any order, so a table says
 *            where each one's candidates are.
 *   digit:   up to four times: the next bits of the k-th magnitude, by a histogram of the candidates
 *   count:   how many each tile has of the chosen
 *   fetch:   with feedback, if there are no candidates: the chosen, before r′ changes
 *   write:   the chosen in order of index, 4096 a block: values, indices, and r′ of them
 * Where the sample misled, all numbers take the candidates' place; nothing of this is known to the host. Tensors that a block
 * can hold are done by one kernel instead. */
#include "codec/topk/cuda_topk_read.h"

/* Names of templates are the linker's business too: they stay in this file. */
namespace
{
enum { DENSITY, VALUES };
enum { THREADS = 256, WARPS = THREADS / 32 };
enum { SAMPLE = 16384, SAMPLE_THREADS = 1024, SAMPLE_BLOCKS = SAMPLE / SAMPLE_THREADS };
enum {
    RADIX_BITS = 11,
    RADIX = 1 << RADIX_BITS,
    DIGITS = 4,
    DIGIT_BLOCKS = 528,
    DIGIT_SHARE = 16384
};
enum { PARTS = 1024 };

/* Magnitudes [base, base + 2^bits) that hold the k-th; `need` of them are chosen, among candidates or the whole tensor. */
typedef struct cell {
    uint32_t base, bits, need, whole;
} cell;

/* Candidates reach `limit`; there are `total` of them; their first digit is (magnitude - limit) >> shift. */
typedef struct state {
    uint32_t limit, shift, total, unused;
    cell found[DIGITS];
} state;

/* What a tensor's places follow from. room: candidates that fit; 0: there is no sample. */
typedef struct plan {
    uint64_t kept, room, values_bytes, high_bytes;
    uint32_t n_tiles, low_bits;
} plan;

/* Parts of the workspace. cells: a histogram of each digit; sample, tally: magnitudes, and the histogram of each
 * block's first 11 bits of them, two cells a word; candidate: index and bits; tiles: where a tile's
 * candidates begin, and how many; counts: how many numbers are above the k-th magnitude and how many equal it in the tiles of its
 * part before it; parts: the same of whole parts. */
typedef struct places {
    state *at;
    uint32_t *cells, *sample, *tally;
    uint2 *parts, *tiles, *counts, *candidate;
    uint64_t kept, room;
    uint32_t n_tiles;
} places;

static __host__ __device__ inline places places_of(uint8_t *room, const plan &l)
{
    places p;
    p.at = (state *)room;
    p.cells = (uint32_t *)(room + 256);
    p.sample = p.cells + DIGITS * RADIX;
    p.tally = p.sample + (l.room != 0 ? SAMPLE : 0);
    p.parts = (uint2 *)(p.tally + (l.room != 0 ? SAMPLE_BLOCKS * RADIX / 2 : 0));
    p.tiles = p.parts + PARTS;
    p.counts = p.tiles + l.n_tiles;
    p.candidate = p.counts + l.n_tiles;
    p.kept = l.kept;
    p.room = l.room;
    p.n_tiles = l.n_tiles;
    return p;
}

/* Which places in the sample, from the largest on, are surely below and above the k-th magnitude. */
GW_HD static inline double sample_expects(uint64_t kept, uint64_t count)
{
    return (double)SAMPLE * (double)kept / (double)(count != 0 ? count : 1);
}

GW_HD static inline uint32_t place_below(double expected)
{
    return (uint32_t)(expected + 4 * sqrt(expected) + 4);
}

GW_HD static inline uint32_t place_above(double expected)
{
    const double place = expected - 4 * sqrt(expected) - 4;
    return place < 1 ? 0 : (uint32_t)place;
}

GW_DEVICE uint32_t magnitude(float x)
{
    return gw_bits(x) & GW_ABS_MASK;
}

/* G, behind collect. */
GW_DEVICE float read_again(const gw_select_in &t, gw_dtype dtype, uint64_t i)
{
    return t.after != NULL ? t.after[i] : gw_one(t.in, dtype, i);
}

#include "codec/topk/cuda_topk_pick.h"

#include "codec/topk/cuda_topk_write.h"

#include "codec/topk/cuda_topk_small.h"

static plan plan_of(uint8_t *room, const gw_topk &s, uint64_t count, size_t *bytes)
{
    (void)room;
    plan l;
    l.kept = gw_kept_of(s.density, count);
    l.n_tiles = (uint32_t)((count + GW_TILE - 1) / GW_TILE);
    const gw_index_list list = gw_topk_list(s, count);
    l.values_bytes = list.values_bytes;
    l.high_bytes = list.high_bytes;
    l.low_bits = list.low_bits;
    const double expected = sample_expects(l.kept, count);
    l.room = 0;
    if (count >= 4 * SAMPLE && place_below(expected) < SAMPLE) {
        const uint64_t most =
            l.kept + (uint64_t)(10 * (double)l.kept / sqrt(expected)) + (uint64_t)GW_TILE;
        l.room = most < count ? most : count;
    }
    const places p = places_of(NULL, l);
    *bytes = is_small(s, count)
                 ? 0
                 : (size_t)(uintptr_t)(p.candidate + (l.room > l.kept ? l.room : l.kept));
    return l;
}

/* ---- sample ---- */

static __host__ __device__ inline uint32_t sample_blocks(uint64_t count)
{
    return count >= 4 * SAMPLE ? SAMPLE_BLOCKS : 1;
}

template <int N>
__global__ void __launch_bounds__(SAMPLE_THREADS)
    sample_kernel(const __grid_constant__ gw_select_batch<gw_topk, plan, N> batch)
{
    __shared__ uint32_t cells[RADIX];
    uint32_t number;
    const uint32_t which = gw_select_find(batch, &number);
    const gw_select_in &t = batch.tensor[which];
    const places p = places_of(t.room, batch.layout[which]);
    const uint32_t j = number * SAMPLE_THREADS + threadIdx.x;
    for (uint32_t i = j; i < DIGITS * RADIX; i += sample_blocks(t.count) * SAMPLE_THREADS) {
        p.cells[i] = 0;
    }
    if (j == 0) {
        p.at->total = 0;
        t.result->written = t.bytes;
    }
    if (p.room == 0) {
        return;
    }
    const gw_random_pair k = {0x6A09E667u, 0xBB67AE85u};
    const uint64_t stride = t.count / SAMPLE;
    const uint64_t i = j * stride + gw_random_word(k, j) % (uint32_t)stride;
    const float g = gw_one(t.in, batch.dtype, i);
    const uint32_t a = magnitude(t.residual != NULL ? g + t.residual[i] : g);
    cells[2 * threadIdx.x] = cells[2 * threadIdx.x + 1] = 0;
    __syncthreads();
    p.sample[j] = a;
    atomicAdd(&cells[a >> (31 - RADIX_BITS)], 1u);
    __syncthreads();
    p.tally[j] = cells[2 * threadIdx.x] | cells[2 * threadIdx.x + 1] << 16;
}

/* The limit from the sample's first 22 bits; how far above it the k-th magnitude may be, from its first 11. */
template <int N>
__global__ void __launch_bounds__(SAMPLE_THREADS)
    limit_kernel(const __grid_constant__ gw_select_batch<gw_topk, plan, N> batch)
{
    static_assert(RADIX == 2 * SAMPLE_THREADS, "two cells a thread");
    __shared__ uint32_t cells[2][RADIX];
    uint32_t unused;
    const uint32_t which = gw_select_find(batch, &unused);
    const places p = places_of(batch.tensor[which].room, batch.layout[which]);
    if (p.room == 0) {
        return;
    }
    const double expected = sample_expects(p.kept, batch.tensor[which].count);
    const uint32_t above_it = place_above(expected);
    uint32_t a[SAMPLE_BLOCKS], above, sum = 0;
#pragma unroll
    for (uint32_t i = 0; i < SAMPLE_BLOCKS; i++) {
        a[i] = p.sample[threadIdx.x + SAMPLE_THREADS * i];
        sum += p.tally[threadIdx.x + SAMPLE_THREADS * i]; /* each half is SAMPLE at most */
    }
    cells[0][2 * threadIdx.x] = sum & 0xFFFF;
    cells[0][2 * threadIdx.x + 1] = sum >> 16;
    cells[1][2 * threadIdx.x] = cells[1][2 * threadIdx.x + 1] = 0;
    __syncthreads();
    cell c = {0, 31, place_below(expected), 0};
    c = narrow(c, cells[0]);
    uint32_t top = 0x80000000u;
    if (above_it != 0) {
        top = (pick_cell(cells[0], RADIX_BITS, above_it, 0, &above) + 1) << c.bits;
    }
#pragma unroll
    for (uint32_t i = 0; i < SAMPLE_BLOCKS; i++) {
        add_cell(cells[1], c, a[i]);
    }
    __syncthreads();
    c = narrow(c, cells[1]);
    if (threadIdx.x == 0) {
        const uint32_t limit = c.base < GW_INF_BITS ? c.base : GW_INF_BITS;
        uint32_t shift = 0;
        while ((top - limit) >> shift > RADIX) {
            shift++;
        }
        p.at->limit = limit;
        p.at->shift = shift;
    }
}

/* ---- collect ---- */

/* Which of the thread's numbers a tile of m has. */
GW_DEVICE uint32_t marks_there(uint32_t m)
{
    uint32_t there = 0;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const uint32_t e = gw_quad_at<GW_IN_ROWS>(threadIdx.x, q), left = e < m ? m - e : 0;
        there |= gw_bits_below(left < 4 ? left : 4) << 8 * q;
    }
    return there;
}

/* Tiles that a block goes over, if a tensor has so many: they share one place among the candidates, since there is one counter. */
enum { EACH = 4, HELD = 96 };

static __host__ __device__ inline uint32_t tiles_a_block(uint32_t n_tiles)
{
    return n_tiles >= 2048 ? EACH : 1;
}

static inline uint32_t collect_blocks(uint64_t count)
{
    const uint32_t n = gw_tiles_of(count, GW_TILE), each = tiles_a_block(n);
    return (n + each - 1) / each;
}

/* What a block holds until it has a place: each warp's candidates, and how many it has of each tile. */
typedef struct held {
    uint2 item[WARPS][HELD];
    uint32_t n[EACH][WARPS], base, fits;
} held;

/* Element of a mark of a thread's numbers, from the tile's first on. */
GW_DEVICE uint32_t mark_at(uint32_t bit)
{
    return gw_quad_at<GW_IN_ROWS>(threadIdx.x, 0) + (bit >> 3) * 128 + (bit & 7);
}

/* Holds the marked numbers of a tile behind the warp's first `so_far`. r' is not written yet: in place g is read from there. Returns how many there are. */
template <int FEEDBACK>
GW_DEVICE uint32_t hold(held &h, const gw_select_in &t, gw_dtype dtype, uint64_t at, uint32_t marks,
                        uint32_t so_far)
{
    const rows r = rows_of(marks);
    uint32_t odd = 0;
    for (uint32_t left = marks; left != 0; left &= left - 1) {
        const uint32_t bit = gw_lowest(left), j = so_far + marks_before(r, bit);
        const uint64_t i = at + mark_at(bit);
        const float g = gw_one(t.in, dtype, i), v = FEEDBACK ? g + t.residual[i] : g;
        odd += magnitude(v) >= GW_INF_BITS;
        if (j < HELD) {
            h.item[threadIdx.x / 32][j] = make_uint2((uint32_t)i, gw_bits(v));
        }
    }
    gw_count(&t.result->non_finite, odd);
    return gw_sum_bytes(r.all);
}

/* A place for all that is held: where this warp's part of each tile begins, in lane EACH's order; lane WARPS * k + w has that of
 * warp w and tile k. By all threads. */
GW_DEVICE uint32_t reserve(held &h, const places &p, uint32_t first, uint32_t stop)
{
    static_assert(EACH * WARPS == 32, "one lane each");
    const uint32_t lane = threadIdx.x % 32;
    __syncthreads();
    uint32_t all, before = gw_warp_before((&h.n[0][0])[lane], &all);
    if (threadIdx.x == 0) {
        h.base = all != 0 ? atomicAdd(&p.at->total, all) : 0;
        h.fits = (uint64_t)h.base + all <= p.room;
    }
    __syncthreads();
    before += h.base;
    const uint32_t next = __shfl_down_sync(0xFFFFFFFFu, before, WARPS);
    if (threadIdx.x < 32 && lane % WARPS == 0 && first + lane / WARPS < stop) {
        const uint32_t end = lane + WARPS < 32 ? next : h.base + all;
        p.tiles[first + lane / WARPS] = make_uint2(before, end - before);
    }
    return before;
}

/* One warp's candidates of a tile that were too many to be held. Behind r'. */
GW_DEVICE void append_marked(const gw_select_in &t, const places &p, gw_dtype dtype, uint64_t at,
                             uint32_t marks, uint32_t to)
{
    const rows r = rows_of(marks);
    for (uint32_t left = marks; left != 0; left &= left - 1) {
        const uint32_t bit = gw_lowest(left);
        const uint64_t i = at + mark_at(bit);
        p.candidate[to + marks_before(r, bit)] =
            make_uint2((uint32_t)i, gw_bits(read_again(t, dtype, i)));
    }
}

/* G of the thread's numbers of a tile: r' of all, what reaches the limit marked and held. */
template <int FEEDBACK>
GW_DEVICE uint32_t collect_tile(held &h, const gw_select_in &t, gw_dtype dtype, uint32_t tile,
                                float least, uint32_t so_far, uint32_t *n)
{
    const uint64_t at = (uint64_t)tile * GW_TILE;
    const uint32_t m = gw_span_left(t.count, at, GW_TILE);
    float G[GW_OWN];
    uint32_t marks = 0;
    gw_select_form<FEEDBACK>(G, t, dtype, at, m);
#pragma unroll
    for (int i = 0; i < GW_OWN; i++) { /* a NaN is above all limits */
        marks |= !(fabsf(G[i]) < least) ? 1u << (i / 4 * 8 + i % 4) : 0;
    }
    if (m < GW_TILE) {
        marks &= marks_there(m);
    }
    *n = hold<FEEDBACK>(h, t, dtype, at, marks, so_far);
    if (FEEDBACK) {
        gw_write_quads<GW_IN_ROWS>(G, t.after, GW_F32, at, m, GW_TILE);
    }
    return marks;
}

template <int N, int FEEDBACK>
__global__ void __launch_bounds__(THREADS, FEEDBACK ? 4 : 6)
    collect_kernel(const __grid_constant__ gw_select_batch<gw_topk, plan, N> batch)
{
    __shared__ held h;
    uint32_t number;
    const uint32_t which = gw_select_find(batch, &number);
    const gw_select_in &t = batch.tensor[which];
    const places p = places_of(t.room, batch.layout[which]);
    const uint32_t limit = p.room != 0 ? p.at->limit : GW_INF_BITS;
    const uint32_t each = tiles_a_block(p.n_tiles), first = number * each;
    const uint32_t stop = first + each < p.n_tiles ? first + each : p.n_tiles;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t marks[EACH], n[EACH], held_n = 0;
#pragma unroll
    for (uint32_t k = 0; k < EACH; k++) {
        marks[k] = n[k] = 0;
        if (first + k < stop) {
            marks[k] = collect_tile<FEEDBACK>(h, t, batch.dtype, first + k, gw_float(limit), held_n,
                                              &n[k]);
        }
        held_n += n[k];
        if (lane == 0) {
            h.n[k][warp] = n[k];
        }
    }
    if (p.room == 0) {
        return;
    }
    const uint32_t begin = reserve(h, p, first, stop);
    if (!h.fits) {
        return;
    }
    uint32_t from = 0;
#pragma unroll
    for (uint32_t k = 0; k < EACH; k++) {
        const uint32_t to = __shfl_sync(0xFFFFFFFFu, begin, (int)(WARPS * k + warp));
        if (held_n > HELD) {
            append_marked(t, p, batch.dtype, (uint64_t)(first + k) * GW_TILE, marks[k], to);
        } else {
            for (uint32_t i = lane; i < n[k]; i += 32) {
                p.candidate[to + i] = h.item[warp][from + i];
            }
        }
        from += n[k];
    }
}

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
    (void)plan_of(NULL, s, count, &encoding);
    const gw_topk_tables t = gw_topk_tables_in(NULL, gw_topk_list(s, count), count);
    const size_t tables =
        4 * (size_t)GW_CUDA_MAX_PAYLOADS * (1 + (size_t)t.n_pieces + (size_t)t.n_windows);
    const size_t decoding = gw_topk_is_short(s, count) ? 0 : tables;
    return encoding > decoding ? encoding : decoding;
}

struct run_encode {
    const gw_cuda_call *call;

    template <int N> void operator()(gw_select_part<gw_topk, plan, N> &part) const
    {
        const gw_topk s = part.batch.s;
        const auto if_large = [&](auto blocks) {
            return part.deal(
                [&](uint64_t count) { return is_small(s, count) ? 0 : blocks(count); });
        };
        const auto tiles = [](uint64_t count) { return gw_tiles_of(count, GW_TILE); };
        void (*const collect)(gw_select_batch<gw_topk, plan, N>) =
            call->feedback ? collect_kernel<N, 1> : collect_kernel<N, 0>;
        void (*const small)(gw_select_batch<gw_topk, plan, N>) =
            call->feedback ? small_kernel<N, 1> : small_kernel<N, 0>;
        uint32_t blocks = part.deal([&](uint64_t count) { return (uint32_t)is_small(s, count); });
        if (blocks != 0) {
            GW_LAUNCH(small, blocks, GW_VALUES_THREADS, 0, call->stream, part.batch);
        }
        blocks = if_large(sample_blocks);
        if (blocks == 0) {
            return;
        }
        GW_LAUNCH(sample_kernel<N>, blocks, SAMPLE_THREADS, 0, call->stream, part.batch);
        blocks = if_large([](uint64_t) { return 1u; });
        GW_LAUNCH(limit_kernel<N>, blocks, SAMPLE_THREADS, 0, call->stream, part.batch);
        blocks = if_large(collect_blocks);
        GW_LAUNCH(collect, blocks, THREADS, 0, call->stream, part.batch);
        blocks = if_large(digit_blocks);
        for (int digit = 0; digit < DIGITS; digit++) {
            GW_LAUNCH(digit_kernel<N>, blocks, THREADS, 0, call->stream, part.batch, digit);
        }
        blocks = if_large([&](uint64_t count) { return parts_of(tiles(count)); });
        GW_LAUNCH(count_kernel<N>, blocks, THREADS, 0, call->stream, part.batch);
        blocks = if_large([&](uint64_t count) {
            return gw_tiles_of(gw_kept_of(s.density, count), GW_VALUES_RUN);
        });
        if (call->feedback) {
            GW_LAUNCH(fetch_kernel<N>, blocks, GW_VALUES_THREADS, 0, call->stream, part.batch);
        }
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
            const uint32_t each = gw_topk_pieces(gw_topk_list(batch.s, count));
            return gw_topk_is_short(batch.s, count) ? 0 : each * batch.n_payloads;
        });
        if (pieces != 0) {
            GW_LAUNCH(gw_topk_count_kernel<B>, pieces, GW_TOPK_THREADS, 0, call->stream, batch);
            GW_LAUNCH(gw_topk_place_kernel<B>, pieces, GW_TOPK_THREADS, 0, call->stream, batch);
        }
        const uint32_t windows = part.deal(gw_topk_windows);
        GW_LAUNCH(gw_topk_sum_kernel<B>, windows, GW_TOPK_THREADS, 0, call->stream, batch);
    }
};

static gw_status encode(const gw_cuda_call *call, const gw_cuda_source *tensors, size_t n,
                        gw_why *why)
{
    gw_select_encode(shape_of(call->value), call, tensors, n, workspace, plan_of, run_encode{call});
    return gw_cuda_launched(why, "topk");
}

static gw_status decode(const gw_cuda_call *call, const gw_cuda_sink *tensors, size_t n,
                        gw_why *why)
{
    gw_select_decode(shape_of(call->value), call, tensors, n, workspace, run_decode{call});
    return gw_cuda_launched(why, "topk");
}

} // namespace

extern "C" const gw_cuda_codec gw_cuda_codec_topk = {workspace, encode, decode, NULL, NULL};
