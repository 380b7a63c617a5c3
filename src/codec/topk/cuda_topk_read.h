/* Reading topk's payloads on the device. Entries are found by the zeros of the string of high bits: behind its z-th zero begin
 * those whose index is z << low_bits or more. */
#ifndef GW_CUDA_TOPK_READ_H
#define GW_CUDA_TOPK_READ_H

#include "codec/cuda/cuda_values.h"

typedef struct gw_topk {
    double density;
    int natural;
} gw_topk;

/* A piece of the high bits is some words of 4 bytes a thread. */
enum {
    GW_TOPK_THREADS = 256,
    GW_TOPK_WARPS = GW_TOPK_THREADS / 32,
    GW_TOPK_WORDS = 4,
    GW_TOPK_PIECE = 4 * GW_TOPK_WORDS * GW_TOPK_THREADS
};

/* For every payload whether its list adds up, the ones of each piece of its high bits, and the entry with which each
 * window begins, or the entries of the high part that the window begins in. */
typedef struct gw_topk_tables {
    uint32_t *sound, *pieces, *starts;
    uint32_t n_pieces, n_windows;
} gw_topk_tables;

static __host__ __device__ inline uint32_t gw_topk_windows(uint64_t count)
{
    return count == 0 ? 1 : (uint32_t)((count + GW_SELECT_WINDOW - 1) / GW_SELECT_WINDOW);
}

static __host__ __device__ inline uint32_t gw_topk_pieces(const gw_index_list &list)
{
    return list.kept == 0 ? 1 : (uint32_t)((list.high_bytes + GW_TOPK_PIECE - 1) / GW_TOPK_PIECE);
}

static __host__ __device__ inline gw_index_list gw_topk_list(const gw_topk &s, uint64_t count)
{
    return gw_index_list_of(gw_kept_of(s.density, count), s.natural, count);
}

static __host__ __device__ inline gw_topk_tables
gw_topk_tables_in(uint8_t *room, const gw_index_list &list, uint64_t count)
{
    gw_topk_tables t;
    t.n_pieces = gw_topk_pieces(list);
    t.n_windows = gw_topk_windows(count);
    t.sound = (uint32_t *)room;
    t.pieces = t.sound + GW_CUDA_MAX_PAYLOADS;
    t.starts = t.pieces + (size_t)t.n_pieces * GW_CUDA_MAX_PAYLOADS;
    return t;
}

/* Is the list so short that a block may go over all of it? It needs no tables then. */
static __host__ __device__ inline int gw_topk_is_short(const gw_topk &s, uint64_t count)
{
    return count <= 2 * GW_SELECT_WINDOW && gw_kept_of(s.density, count) <= GW_STAGE;
}

/* A block's piece of a payload's high bits. */
typedef struct gw_topk_piece {
    uint32_t payload, number;
    gw_index_list list;
    gw_topk_tables tables;
    const uint8_t *high;
    uint64_t bit; /* the thread's first */
    uint32_t word[GW_TOPK_WORDS], ones;
} gw_topk_piece;

template <class B> GW_DEVICE gw_topk_piece gw_topk_find_piece(const B &batch, uint64_t *count)
{
    gw_topk_piece w;
    uint32_t number;
    const uint32_t index = gw_select_find(batch, &number);
    const gw_select_out &t = batch.tensor[index];
    *count = t.count;
    w.list = gw_topk_list(batch.s, t.count);
    w.tables = gw_topk_tables_in(t.room, w.list, t.count);
    w.payload = number / w.tables.n_pieces;
    w.number = number % w.tables.n_pieces;
    w.high = (const uint8_t *)batch.payload[index * batch.n_payloads + w.payload].bytes +
             w.list.values_bytes + w.list.low_bytes;
    const uint64_t from = (uint64_t)w.number * GW_TOPK_PIECE + 4 * GW_TOPK_WORDS * threadIdx.x;
    const int aligned = gw_aligned_to(w.high + from, 4);
    w.bit = 8 * from;
    w.ones = 0;
#pragma unroll
    for (uint32_t k = 0; k < GW_TOPK_WORDS; k++) {
        const uint64_t at = from + 4 * k;
        w.word[k] = 0;
        if (aligned && at + 4 <= w.list.high_bytes) {
            w.word[k] = *(const uint32_t *)(w.high + at);
        } else {
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                w.word[k] |= at + i < w.list.high_bytes ? (uint32_t)w.high[at + i] << 8 * i : 0;
            }
        }
        w.ones += (uint32_t)__popc(w.word[k]);
    }
    return w;
}

template <class B>
__global__ void __launch_bounds__(GW_TOPK_THREADS)
    gw_topk_count_kernel(const __grid_constant__ B batch)
{
    __shared__ uint32_t of_warps[GW_TOPK_THREADS / 32];
    uint64_t count;
    const gw_topk_piece w = gw_topk_find_piece(batch, &count);
    uint32_t all;
    (void)gw_block_before(w.ones, of_warps, &all);
    if (threadIdx.x == 0) {
        w.tables.pieces[w.payload * w.tables.n_pieces + w.number] = all;
    }
}

enum { GW_TOPK_LOG = 13 };
static_assert(1 << GW_TOPK_LOG == GW_SELECT_WINDOW, "a window");

/* Behind zero number z there have been `ones` ones: the windows whose first element's high part is z. */
GW_DEVICE void gw_topk_place(const gw_topk_piece &w, uint64_t z, uint32_t ones, uint32_t *starts)
{
    enum { LOG = GW_TOPK_LOG };
    const uint32_t l = w.list.low_bits;
    if (l >= LOG) {
        for (uint64_t i = z << (l - LOG); i < (z + 1) << (l - LOG); i++) {
            if (i < w.tables.n_windows) {
                starts[i] = ones;
            }
        }
    } else if (z % ((uint64_t)1 << (LOG - l)) == 0 && z >> (LOG - l) < w.tables.n_windows) {
        starts[z >> (LOG - l)] = ones;
    }
}

/* Are the bits behind the last ones of low and high bits 0? */
GW_DEVICE int gw_topk_padded(const uint8_t *high, const gw_index_list &list)
{
    const uint64_t low_used = list.kept * list.low_bits % 8, high_used = list.high_bits % 8;
    return (high_used == 0 || high[list.high_bytes - 1] >> high_used == 0) &&
           (low_used == 0 || high[-1] >> low_used == 0);
}

/* The zeros of a word from bit `bit` on, before which there have been `ones` ones; most words have none that a window begins with. */
GW_DEVICE void gw_topk_place_word(const gw_topk_piece &w, uint64_t bit, uint32_t word,
                                  uint32_t ones, uint32_t *starts)
{
    const uint32_t l = w.list.low_bits, step = l < GW_TOPK_LOG ? GW_TOPK_LOG - l : 0;
    const uint64_t left = bit < w.list.high_bits ? w.list.high_bits - bit : 0, first = bit - ones;
    uint32_t zeros = ~word & gw_bits_below(left < 32 ? (uint32_t)left : 32);
    const uint32_t n = (uint32_t)__popc(zeros);
    uint32_t z = 1; /* of this word's, the first that a window may begin behind */
    for (uint32_t want = (uint32_t)((((first >> step) + 1) << step) - first); want <= n;
         want += 1u << step) {
        for (; z < want; z++) {
            zeros &= zeros - 1;
        }
        gw_topk_place(w, first + z, ones + gw_lowest(zeros) + 1 - z, starts);
    }
}

template <class B>
__global__ void __launch_bounds__(GW_TOPK_THREADS)
    gw_topk_place_kernel(const __grid_constant__ B batch)
{
    __shared__ uint32_t of_warps[2][GW_TOPK_THREADS / 32];
    uint64_t count;
    const gw_topk_piece w = gw_topk_find_piece(batch, &count);
    const gw_index_list &list = w.list;
    const uint32_t *pieces = w.tables.pieces + w.payload * w.tables.n_pieces;
    uint32_t *starts = w.tables.starts + (size_t)w.payload * w.tables.n_windows;
    uint32_t mine = 0, base, all;
    for (uint32_t i = threadIdx.x; i < w.number; i += GW_TOPK_THREADS) {
        mine += pieces[i];
    }
    (void)gw_block_before(mine, of_warps[0], &base);
    uint32_t ones = base + gw_block_before(w.ones, of_warps[1], &all);
#pragma unroll
    for (uint32_t k = 0; k < GW_TOPK_WORDS; k++) {
        gw_topk_place_word(w, w.bit + 32 * k, w.word[k], ones, starts);
        ones += (uint32_t)__popc(w.word[k]);
    }
    if (threadIdx.x == 0 && w.number == 0) {
        gw_topk_place(w, 0, 0, starts);
    }
    if (threadIdx.x == 0 && w.number == w.tables.n_pieces - 1) {
        w.tables.sound[w.payload] = base + all == list.kept && gw_topk_padded(w.high, list);
    }
}

/* The low bits of entry j. Behind them lie the high bits, before them the values: `wide`, if those are enough that whole words may be
 * read. */
GW_DEVICE uint32_t gw_topk_low(const uint8_t *low, uint32_t bits, uint64_t j, int wide)
{
    if (wide) {
        const uint64_t at = j * bits + 8 * ((uint32_t)(uintptr_t)low & 3);
        const uint32_t *words = (const uint32_t *)(low - ((uint32_t)(uintptr_t)low & 3)) + at / 32;
        const uint32_t shift = (uint32_t)at & 31;
        return __funnelshift_r(words[0], shift + bits > 32 ? words[1] : 0, shift) &
               gw_bits_below(bits);
    }
    const uint64_t at = j * bits;
    uint64_t some = 0;
#pragma unroll 1
    for (uint32_t i = 0; i < 5; i++) { /* of at most 32 bits */
        some |= 8 * i < at % 8 + bits ? (uint64_t)low[at / 8 + i] << 8 * i : 0;
    }
    return (uint32_t)(some >> at % 8) & gw_bits_below(bits);
}

/* 32 of the high bits from `bit` on; zeros behind the end. */
GW_DEVICE uint32_t gw_topk_word(const uint8_t *high, const gw_index_list &list, uint64_t bit)
{
    uint64_t some = 0;
    for (uint64_t i = bit / 8; i < list.high_bytes && 8 * i < bit + 32; i++) {
        some |= (uint64_t)high[i] << 8 * (i - bit / 8);
    }
    return (uint32_t)(some >> bit % 8);
}

/* A window of the output, and one payload. */
typedef struct gw_topk_window {
    float *sum;
    uint64_t at, count;
    uint32_t m, number;
    int set, natural, is_short;
    int wide; /* gw_topk_low's */
    int far;  /* a high part may have elements in several windows */
    const uint8_t *payload;
    gw_index_list list;
} gw_topk_window;

/* Entry j, with this many zeros before it in the high bits. Where it belongs in the window, or GW_STAGE_NOWHERE, and its value.
 * 0: it is not what an encoder writes. */
GW_DEVICE int gw_topk_get(const gw_topk_window &w, uint64_t j, uint64_t zeros, uint32_t *at,
                          float *v)
{
    const uint32_t l = w.list.low_bits;
    const uint32_t low = gw_topk_low(w.payload + w.list.values_bytes, l, j, w.wide);
    const uint64_t index = zeros << l | low, in = index - w.at;
    const int sound = gw_values_get(w.payload, w.natural, j, v);
    *at = in < w.m ? (uint32_t)in : (uint32_t)GW_STAGE_NOWHERE;
    return sound && index < w.count;
}

/* Has entry j, the one before which has as many zeros, more low bits than it? */
GW_DEVICE int gw_topk_ascends(const gw_topk_window &w, uint64_t j)
{
    const uint8_t *low = w.payload + w.list.values_bytes;
    const uint32_t l = w.list.low_bits;
    return gw_topk_low(low, l, j - 1, w.wide) < gw_topk_low(low, l, j, w.wide);
}

/* The entries from j on, below end, that lie in the window or in the high part that it begins in. */
typedef struct gw_topk_share {
    uint64_t j, end, part;
} gw_topk_share;

GW_DEVICE gw_topk_share gw_topk_share_of(const gw_topk_window &w, const uint32_t *starts,
                                         uint32_t n_windows)
{
    const uint32_t l = w.list.low_bits;
    const uint64_t part = w.at >> l; /* the high part of the window's first element */
    const uint64_t next = ((part + 1) << l) / GW_SELECT_WINDOW, after = w.number + 1;
    const uint64_t stop = next > after ? next : after;
    const gw_topk_share s = {starts[w.number], stop < n_windows ? starts[stop] : w.list.kept, part};
    return s;
}

/* The entries of a word of high bits, the first of which is the payload's k-th: `write` adds them to the window. 0: not what an
 * encoder writes. */
GW_DEVICE int gw_topk_add_word(const gw_topk_window &w, uint64_t k, uint64_t end, uint64_t bit,
                               uint32_t word, int write)
{
    const uint8_t *high = w.payload + w.list.values_bytes + w.list.low_bytes;
    int sound = 1;
    for (; word != 0 && k < end; word &= word - 1, k++) {
        const uint64_t one = bit + gw_lowest(word);
        const int beside = k > 0 && one > 0 && (high[(one - 1) / 8] >> (one - 1) % 8 & 1) != 0;
        uint32_t at;
        float v;
        sound &= gw_topk_get(w, k, one - k, &at, &v) && (!beside || gw_topk_ascends(w, k));
        if (write && at != GW_STAGE_NOWHERE) {
            w.sum[at] = w.set ? v : w.sum[at] + v;
        }
    }
    return sound;
}

/* Many entries of one payload, by all threads. They are looked at before they are added: of those that do not ascend two could
 * be the same. */
GW_DEVICE int gw_topk_add(const gw_topk_window &w, const gw_topk_share &s)
{
    __shared__ uint32_t of_warps[2][GW_TOPK_WARPS];
    const uint8_t *high = w.payload + w.list.values_bytes + w.list.low_bytes;
    uint64_t j = s.j, bit = s.part + s.j;
    for (uint32_t turn = 0; j < s.end && bit < w.list.high_bits;
         bit += 32 * GW_TOPK_THREADS, turn ^= 1) {
        const uint64_t mine = bit + 32 * threadIdx.x;
        const uint32_t word = gw_topk_word(high, w.list, mine);
        uint32_t all;
        const uint64_t k = j + gw_block_before((uint32_t)__popc(word), of_warps[turn], &all);
        if (__syncthreads_or(!gw_topk_add_word(w, k, s.end, mine, word, 0))) {
            return 0;
        }
        (void)gw_topk_add_word(w, k, s.end, mine, word, 1);
        j += all;
    }
    return 1;
}

/* One warp: leaves for each entry of the share how many zeros the high bits have between its part and it, and where it matters
 * whether the entry before has as many. all: goes on to the end. Returns how many ones it has seen. */
enum { GW_TOPK_BESIDE = 0x8000 };
GW_DEVICE uint32_t gw_topk_walk(const gw_topk_window &w, const gw_topk_share &s, int all,
                                uint16_t *zeros)
{
    const uint64_t bit = s.part + s.j, begin = bit / 8;
    const uint8_t *high = w.payload + w.list.values_bytes + w.list.low_bytes + begin;
    const uint32_t bytes = (uint32_t)(w.list.high_bytes - begin), n = (uint32_t)(s.end - s.j),
                   skip = (uint32_t)bit & 7;
    uint32_t j = 0;
    for (uint32_t from = 0; from < bytes && (all || j < n); from += 32) {
        const uint32_t mine = from + threadIdx.x % 32, byte = mine < bytes ? high[mine] : 0;
        uint32_t left = mine == 0 ? byte & 0xFFu << skip : byte, ones, with = 0;
        if (w.far && mine < bytes) {
            with = byte << 1 | (begin + mine != 0 ? high[(int)mine - 1] >> 7 : 0);
        }
        uint32_t k = j + gw_warp_before((uint32_t)__popc(left), &ones);
        for (; left != 0 && k < n; left &= left - 1, k++) {
            const uint32_t b = gw_lowest(left), beside = with >> b & 1;
            zeros[k] = (uint16_t)(((8 * mine + b - skip - k) & 0x7FFF) | beside * GW_TOPK_BESIDE);
        }
        j += ones;
    }
    return j;
}

/* What the warps of a block have of up to as many payloads. */
typedef struct gw_topk_group {
    gw_topk_share share[GW_TOPK_WARPS];
    uint32_t n[GW_TOPK_WARPS]; /* entries; 0 of a payload that is not sound */
    uint32_t unsound;
} gw_topk_group;

/* Payload p, by one warp, as far as the tables tell. */
GW_DEVICE void gw_topk_look(gw_topk_group &group, const gw_topk_window &w,
                            const gw_topk_tables &tables, uint32_t p)
{
    const uint32_t warp = threadIdx.x / 32;
    if (threadIdx.x % 32 != 0) {
        return;
    }
    gw_topk_share s = {0, w.list.kept, 0};
    int sound = 1;
    if (!w.is_short) {
        s = gw_topk_share_of(w, tables.starts + (size_t)p * tables.n_windows, tables.n_windows);
        sound = tables.sound[p] != 0;
    }
    group.share[warp] = s;
    group.n[warp] = !sound                         ? 0
                    : s.end - s.j <= 0xFFFFFFFFull ? (uint32_t)(s.end - s.j)
                                                   : 0xFFFFFFFFu;
    if (!sound) {
        atomicOr(&group.unsound, 1u);
    }
}

/* A payload's n entries on the stage from `from` on: zeros become places and values. By `step` threads, of which this is `me`. */
GW_DEVICE int gw_topk_read_stage(gw_stage &stage, const gw_topk_window &w, const gw_topk_share &s,
                                 uint32_t from, uint32_t n, uint32_t me, uint32_t step)
{
    int sound = 1;
#pragma unroll 1
    for (uint32_t i = me; i < n; i += step) {
        const uint32_t zeros = stage.at[from + i];
        uint32_t at;
        sound &= gw_topk_get(w, s.j + i, s.part + (zeros & ~(uint32_t)GW_TOPK_BESIDE), &at,
                             &stage.value[from + i]);
        if ((zeros & GW_TOPK_BESIDE) != 0 && s.j + i > 0) {
            sound &= gw_topk_ascends(w, s.j + i);
        }
        stage.at[from + i] = (uint16_t)at;
    }
    return sound;
}

/* Payloads from p on, as many as fit the stage at once; returns how many those were. By all threads. */
template <class B>
GW_DEVICE uint32_t gw_topk_add_some(gw_topk_group &group, gw_stage &stage, gw_topk_window &w,
                                    const gw_topk_tables &tables, const B &batch, uint32_t of,
                                    uint32_t p)
{
    const uint32_t warp = threadIdx.x / 32, left = batch.n_payloads - p;
    const uint32_t most = left < GW_TOPK_WARPS ? left : (uint32_t)GW_TOPK_WARPS;
    if (warp < most) {
        gw_topk_look(group, w, tables, p + warp);
    }
    __syncthreads();
    uint32_t n = 0, total = 0, mine = 0;
    while (n < most && total + (uint64_t)group.n[n] <= GW_STAGE) {
        mine = n == warp ? total : mine;
        total += group.n[n++];
    }
    int sound = 1;
    if (n == 0) {
        gw_copies_done();
        __syncthreads();
        w.payload = (const uint8_t *)batch.payload[of + p].bytes;
        w.set = p == 0 && !batch.add;
        sound = gw_topk_add(w, group.share[0]);
        n = 1;
    } else {
        const int alone = most == 1; /* then all threads read its entries */
        const uint32_t mine_n = alone ? group.n[0] : warp < n ? group.n[warp] : 0;
        w.payload = (const uint8_t *)batch.payload[of + p + (warp < n ? warp : 0)].bytes;
        if (warp < n && mine_n != 0) {
            const uint32_t seen = gw_topk_walk(w, group.share[warp], w.is_short, stage.at + mine);
            if (w.is_short) {
                sound = seen == w.list.kept &&
                        gw_topk_padded(w.payload + w.list.values_bytes + w.list.low_bytes, w.list);
            }
        }
        if (alone) {
            __syncthreads();
            sound &= gw_topk_read_stage(stage, w, group.share[0], 0, mine_n, threadIdx.x,
                                        GW_TOPK_THREADS);
        } else {
            __syncwarp();
            sound &=
                gw_topk_read_stage(stage, w, group.share[warp], mine, mine_n, threadIdx.x % 32, 32);
        }
        gw_copies_done();
        __syncthreads();
        for (uint32_t q = 0, from = 0; q < n; from += group.n[q++]) {
            sound &= gw_add_stage(w.sum, stage, from, group.n[q], p + q == 0 && !batch.add);
        }
    }
    if (!sound) {
        atomicOr(&group.unsound, 1u);
    }
    __syncthreads();
    return n;
}

template <class B>
__global__ void __launch_bounds__(GW_TOPK_THREADS, 5)
    gw_topk_sum_kernel(const __grid_constant__ B batch)
{
    alignas(16) __shared__ float sum[GW_SELECT_WINDOW];
    __shared__ gw_stage stage;
    __shared__ gw_topk_group group;
    __shared__ gw_topk_window of_all;
    uint32_t number;
    const uint32_t index = gw_select_find(batch, &number);
    const gw_select_out &t = batch.tensor[index];
    const uint64_t at = (uint64_t)number * GW_SELECT_WINDOW;
    const uint32_t m = gw_span_left(t.count, at, GW_SELECT_WINDOW);
    if (m == 0) {
        return; /* an empty tensor */
    }
    if (threadIdx.x == 0) { /* it takes more than what follows: one warp for all */
        of_all.list = gw_topk_list(batch.s, t.count);
        of_all.is_short = gw_topk_is_short(batch.s, t.count);
        group.unsound = 0;
    }
    gw_start_window(sum, batch, t, at, m);
    __syncthreads();
    gw_topk_window w = of_all;
    w.sum = sum;
    w.at = at;
    w.count = t.count;
    w.m = m;
    w.number = number;
    w.natural = batch.s.natural;
    w.wide = w.list.values_bytes >= 4 && w.list.high_bytes >= 4;
    w.far = w.list.low_bits > GW_TOPK_LOG;
    const gw_topk_tables tables = gw_topk_tables_in(t.room, w.list, t.count);
    for (uint32_t p = 0; p < batch.n_payloads;) {
        p += gw_topk_add_some(group, stage, w, tables, batch, index * batch.n_payloads, p);
    }
    if (group.unsound != 0) {
        gw_spoil_window(sum, m);
        if (threadIdx.x == 0) {
            gw_blame(t.result, GW_ERR_CORRUPT);
        }
        __syncthreads();
    }
    gw_write_window(sum, batch, t, at, m);
}

#endif
