/* Reading AdaComp's payloads on the device: headers, and where in a payload each tile of the output begins. */
#ifndef GW_CUDA_ADACOMP_READ_H
#define GW_CUDA_ADACOMP_READ_H

#include "codec/adacomp/cuda_adacomp.h"

/* Bytes of entries that a warp counts at once, and tensors so small that no table is worth its while. */
enum { GW_ADA_PIECE = 2048, GW_ADA_SMALL = 16384 };
enum { GW_ADA_THREADS = 256, GW_ADA_PLACE_THREADS = 1024 };

/* The most bytes that can be read without finding them wrong. */
static __host__ __device__ inline uint64_t gw_ada_most(uint64_t count, uint64_t bytes)
{
    const uint64_t most = GW_ADA_HEADER + 2 * count;
    return bytes < most ? bytes : most;
}

/* A payload's header, checked; status is GW_OK if what it says fits its size. */
typedef struct gw_ada_head {
    const uint8_t *body, *end;
    uint64_t n, ones; /* entries, or elements sent; bytes of what is counted */
    float scale;
    uint32_t form;
    gw_status status;
} gw_ada_head;

GW_DEVICE gw_ada_head gw_ada_read_head(const gw_cuda_payload &p, const gw_ada &s, uint64_t count,
                                       uint64_t most)
{
    gw_ada_head h = {NULL, NULL, 0, 0, 0, GW_ADA_NON_FINITE, GW_OK};
    const uint64_t size = gw_payload_size(p, GW_ADA_HEADER, gw_ada_most(count, most), &h.status);
    if (h.status != GW_OK) {
        return h;
    }
    const uint8_t *bytes = (const uint8_t *)p.bytes;
    const uint32_t first = gw_there_u32(bytes), scale = gw_there_u32(bytes + 4);
    const uint64_t left = size - GW_ADA_HEADER, bitmap = (count + 7) / 8;
    h.n = gw_there_u64(bytes + 8);
    h.body = bytes + GW_ADA_HEADER;
    h.end = bytes + size;
    h.form = first;
    h.scale = gw_float(scale);
    const int fits = first == GW_ADA_NON_FINITE
                         ? scale == GW_NAN_BITS && h.n == 0 && left == 0
                         : scale < GW_INF_BITS &&
                               (first == GW_ADA_ENTRIES ? h.n <= left && h.n * s.width == left
                                                        : first == GW_ADA_BITMAP && h.n <= count &&
                                                              bitmap + (h.n + 7) / 8 == left);
    if (!fits) {
        h.status = GW_ERR_CORRUPT;
    }
    h.ones = first == GW_ADA_ENTRIES ? left : first == GW_ADA_BITMAP ? bitmap : 0;
    return h;
}

/* Where decoding keeps its tables: for every payload its header, with status GW_ERR_CORRUPT if it does not add up; of each unit the
 * marks or ones before it; of entries the unit with which each tile begins. A unit is a tile of a bitmap, or a piece of
 * the entries. */
typedef struct gw_ada_tables {
    gw_ada_head *heads;
    uint32_t *units, *starts;
    uint32_t n_units, n_tiles;
} gw_ada_tables;

static __host__ __device__ inline uint32_t gw_ada_pieces(uint64_t body)
{
    return body == 0 ? 1 : (uint32_t)((body + GW_ADA_PIECE - 1) / GW_ADA_PIECE);
}

/* *size: bytes of all tables, for the most payloads. */
static __host__ __device__ inline gw_ada_tables
gw_ada_tables_in(uint8_t *room, uint64_t count, uint64_t bytes, uint32_t tile, size_t *size)
{
    gw_ada_tables t;
    const uint32_t pieces = gw_ada_pieces(gw_ada_most(count, bytes) - GW_ADA_HEADER);
    t.n_tiles = gw_ada_tiles(count, tile);
    t.n_units = pieces > t.n_tiles ? pieces : t.n_tiles;
    const size_t heads = sizeof(gw_ada_head) * GW_CUDA_MAX_PAYLOADS;
    const size_t units = 4 * (size_t)t.n_units * GW_CUDA_MAX_PAYLOADS;
    t.heads = (gw_ada_head *)room;
    t.units = (uint32_t *)(room + heads);
    t.starts = (uint32_t *)(room + heads + units);
    *size = heads + units + 4 * (size_t)t.n_tiles * GW_CUDA_MAX_PAYLOADS;
    return t;
}

/* The aligned word at p, as far as it is before `end`. */
GW_DEVICE uint32_t gw_ada_word(const uint8_t *p, const uint8_t *end)
{
    if (p + 4 <= end) {
        return __ldg((const uint32_t *)p);
    }
    uint32_t v = 0;
    for (uint32_t i = 0; i < 4 && p + i < end; i++) {
        v |= (uint32_t)p[i] << 8 * i;
    }
    return v;
}

/* 32 bits from bit `bit` of `from` on, which has four bytes before it that can be read; what lies behind `end` is 0. */
GW_DEVICE uint32_t gw_ada_bits(const uint8_t *from, uint64_t bit, const uint8_t *end)
{
    const uint8_t *p = from + bit / 8;
    const uint32_t odd = (uint32_t)(uintptr_t)p & 3, shift = 8 * odd + (uint32_t)(bit % 8);
    const uint32_t low = gw_ada_word(p - odd, end);
    return shift == 0 ? low : __funnelshift_r(low, gw_ada_word(p - odd + 4, end), shift);
}

/* What `mask` leaves of bits from … to − 1 of the body, counted; the share of thread `me` of n. */
GW_DEVICE uint32_t gw_ada_count_bits(const gw_ada_head &h, uint64_t from, uint64_t to,
                                     uint32_t mask, uint32_t me, uint32_t n)
{
    const uint8_t *begin = h.body + from / 8;
    const uint32_t bits = to > from ? (uint32_t)(to - from) : 0, words = bits / 32;
    uint32_t sum = 0;
    if (from % 8 == 0 && gw_aligned_to(begin, 4)) {
#pragma unroll 4
        for (uint32_t i = me; i < words; i += n) {
            sum += (uint32_t)__popc(__ldg((const uint32_t *)begin + i) & mask);
        }
    } else {
#pragma unroll 2
        for (uint32_t i = me; i < words; i += n) {
            sum += (uint32_t)__popc(gw_ada_bits(h.body, from + 32 * i, h.end) & mask);
        }
    }
    if (me == 0 && bits % 32 != 0) {
        sum += (uint32_t)__popc(gw_ada_bits(h.body, from + 32 * words, h.end) & mask &
                                gw_bits_below(bits % 32));
    }
    return sum;
}

/* The ones among bits from … to − 1 of a bitmap. */
GW_DEVICE uint32_t gw_ada_ones(const gw_ada_head &h, uint64_t from, uint64_t to, uint32_t me,
                               uint32_t n)
{
    return gw_ada_count_bits(h, from, to, 0xFFFFFFFFu, me, n);
}

/* Last marks in bytes from … to − 1 of entries. Pieces begin with an entry's first byte. */
GW_DEVICE uint32_t gw_ada_marks(const gw_ada_head &h, const gw_ada &s, uint64_t from, uint64_t to,
                                uint32_t me, uint32_t n)
{
    return gw_ada_count_bits(h, 8 * from, 8 * to, s.width == 1 ? 0x80808080u : 0x80008000u, me, n);
}

/* Marks or ones of every unit, a warp each. */
template <class B>
__global__ void __launch_bounds__(GW_ADA_THREADS)
    gw_ada_count_kernel(const __grid_constant__ B batch)
{
    uint32_t number;
    size_t size;
    const uint32_t tensor = gw_select_find(batch, &number), lane = threadIdx.x % 32;
    const gw_select_out &t = batch.tensor[tensor];
    const gw_ada &s = batch.s;
    const gw_ada_tables tables = gw_ada_tables_in(t.room, t.count, t.bytes, s.window_tile, &size);
    const uint32_t blocks = (tables.n_units + GW_ADA_THREADS / 32 - 1) / (GW_ADA_THREADS / 32);
    const uint32_t payload = number / blocks;
    const uint32_t unit = number % blocks * (GW_ADA_THREADS / 32) + threadIdx.x / 32;
    const gw_ada_head h =
        gw_ada_read_head(batch.payload[tensor * batch.n_payloads + payload], s, t.count, t.bytes);
    if (unit >= tables.n_units || h.status != GW_OK) {
        return;
    }
    uint32_t n = 0;
    if (h.form == GW_ADA_BITMAP) {
        const uint64_t from = (uint64_t)unit * s.window_tile, to = from + s.window_tile;
        n = gw_ada_ones(h, from, to < t.count ? to : t.count, lane, 32);
    } else {
        const uint64_t from = (uint64_t)unit * GW_ADA_PIECE, to = from + GW_ADA_PIECE;
        n = gw_ada_marks(h, s, from, to < h.ones ? to : h.ones, lane, 32);
    }
    n = __reduce_add_sync(0xFFFFFFFFu, n);
    if (lane == 0) {
        tables.units[(size_t)payload * tables.n_units + unit] = n;
    }
}

/* Does what was counted agree with the header, and are bits that nobody uses zero? */
GW_DEVICE int gw_ada_adds_up(const gw_ada_head &h, const gw_ada &s, uint64_t count, uint64_t total)
{
    if (h.form == GW_ADA_ENTRIES) {
        const uint64_t bins = (count + s.bin - 1) / s.bin;
        return total == bins && (h.n == 0 || h.body[h.ones - 1] >> 7 != 0);
    }
    return total == h.n && (count % 8 == 0 || h.body[h.ones - 1] >> count % 8 == 0) &&
           (h.n % 8 == 0 || h.body[h.ones + h.n / 8] >> h.n % 8 == 0);
}

/* What is before each unit, and in which one each tile of entries begins: behind that many whole bins. A block a payload. */
GW_DEVICE uint32_t gw_ada_scan_units(const gw_ada_tables &tables, const gw_ada_head &h,
                                     uint32_t payload, uint32_t tile_bins)
{
    enum { EACH = 8 };
    __shared__ uint32_t of_warps[2][GW_ADA_PLACE_THREADS / 32];
    const int entries = h.form == GW_ADA_ENTRIES;
    const uint32_t n_units = entries ? gw_ada_pieces(h.ones) : tables.n_tiles;
    uint32_t *units = tables.units + (size_t)payload * tables.n_units;
    uint32_t *starts = tables.starts + (size_t)payload * tables.n_tiles;
    uint32_t base = 0, turn = 0;
    for (uint32_t row = 0; row < n_units; row += EACH * GW_ADA_PLACE_THREADS, turn ^= 1) {
        const uint32_t first = row + EACH * threadIdx.x;
        uint32_t own[EACH], sum = 0, all;
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++) {
            own[i] = first + i < n_units ? units[first + i] : 0;
            sum += own[i];
        }
        uint32_t n = base + gw_block_before(sum, of_warps[turn], &all);
        base += all;
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++) {
            if (first + i < n_units) {
                units[first + i] = n;
            }
            for (uint32_t tile = n / tile_bins + 1;
                 entries && (uint64_t)tile * tile_bins <= (uint64_t)n + own[i] &&
                 tile < tables.n_tiles;
                 tile++) {
                starts[tile] = first + i;
            }
            n += own[i];
        }
    }
    if (threadIdx.x == 0) {
        starts[0] = 0;
    }
    return base;
}

template <class B>
__global__ void __launch_bounds__(GW_ADA_PLACE_THREADS)
    gw_ada_place_kernel(const __grid_constant__ B batch)
{
    uint32_t payload;
    size_t size;
    const uint32_t tensor = gw_select_find(batch, &payload);
    const gw_select_out &t = batch.tensor[tensor];
    const gw_ada &s = batch.s;
    const gw_ada_tables tables = gw_ada_tables_in(t.room, t.count, t.bytes, s.window_tile, &size);
    gw_ada_head h =
        gw_ada_read_head(batch.payload[tensor * batch.n_payloads + payload], s, t.count, t.bytes);
    if (h.status == GW_OK && h.form != GW_ADA_NON_FINITE) {
        const uint32_t total = gw_ada_scan_units(tables, h, payload, s.window_tile / s.bin);
        if (!gw_ada_adds_up(h, s, t.count, total)) {
            h.status = GW_ERR_CORRUPT;
        }
    }
    if (threadIdx.x == 0) {
        tables.heads[payload] = h;
    }
}

#endif
