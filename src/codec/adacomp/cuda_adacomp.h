/* What AdaComp's kernels share: shapes, and how its bits are read. */
#ifndef GW_CUDA_ADACOMP_H
#define GW_CUDA_ADACOMP_H

#include "codec/adacomp/adacomp_core.h"
#include "codec/cuda/cuda_select.h"

enum { GW_ADA_HEADER = 16, GW_ADA_RUN = 256 };
enum { GW_ADA_ENTRIES, GW_ADA_BITMAP, GW_ADA_NON_FINITE };

/* Tiles are whole bins. To encode: a warp's, up to 512 elements and 32 bins, where such a number of bins has a multiple of four
 * elements, eight of them a unit; else a block's, up to 4096 elements and 128 bins, or one bin, each a unit. To
 * decode: up to a window, or one bin. */
typedef struct gw_ada {
    uint32_t bin, tile, bins; /* elements, elements and bins of a tile */
    uint32_t words, per;      /* words of a tile in each plane, a multiple of 4; tiles of a unit */
    uint32_t width, sign_at;  /* of an entry */
    uint32_t window_tile;     /* elements of a tile to decode */
    uint32_t share, length;   /* lanes that look for a bin's maximum; elements of each */
    float d;
    uint32_t magic;                         /* ⌈2^28 / bin⌉ */
    uint32_t per_bin;                       /* ⌈2^20 / bin⌉, for tiles of a warp */
    uint32_t per_bins, per_tile, per_share; /* ⌈2^20 / bins⌉, ⌈2^24 / tile⌉, ⌈2^16 / share⌉ */
} gw_ada;

enum { GW_ADA_WARP_TILE = 512, GW_ADA_WARP_TILES = 8, GW_ADA_WARP_BINS = 32 };

/* Which bin of its tile element e is in. e < 2^14. */
GW_DEVICE uint32_t gw_ada_bin_of(const gw_ada &s, uint32_t e)
{
    return (uint32_t)((uint64_t)e * s.magic >> 28);
}

/* The bin, or element, of a unit in which tile of it? */
GW_DEVICE uint32_t gw_ada_tile_of_bin(const gw_ada &s, uint32_t bin)
{
    return s.per == 1 ? 0 : bin * s.per_bins >> 20;
}

GW_DEVICE uint32_t gw_ada_tile_of(const gw_ada &s, uint32_t e)
{
    return s.per == 1 ? 0 : e * s.per_tile >> 24;
}

static __host__ __device__ inline uint32_t gw_ada_tiles(uint64_t count, uint32_t tile)
{
    return count == 0 ? 1 : (uint32_t)((count + tile - 1) / tile);
}

/* ---- the host's side ---- */

enum { GW_ADA_BIN, GW_ADA_FACTOR, GW_ADA_CAP };
enum { GW_ADA_CHUNK = 256 * GW_OWN, GW_ADA_MOST_BINS = 128 };

static inline uint32_t gw_ada_over(uint32_t bits, uint32_t by)
{
    return ((1u << bits) + by - 1) / by;
}

/* The most of `most` bins, or fewer, that have a multiple of `by` elements; 0: none. */
static inline uint32_t gw_ada_even_bins(uint32_t bin, uint32_t most, uint32_t by)
{
    while (most > 0 && most * bin % by != 0) {
        most--;
    }
    return most;
}

static inline gw_ada gw_ada_shape(const double *value)
{
    gw_ada s = {};
    s.bin = (uint32_t)value[GW_ADA_BIN];
    const uint32_t fit = GW_ADA_WARP_TILE / s.bin;
    s.bins = gw_ada_even_bins(s.bin, fit < GW_ADA_WARP_BINS ? fit : (uint32_t)GW_ADA_WARP_BINS, 4);
    s.per = GW_ADA_WARP_TILES;
    if (s.bins * s.bin < GW_ADA_WARP_TILE / 2) {
        uint32_t bins = GW_ADA_CHUNK / s.bin;
        bins = bins < 1 ? 1 : bins > GW_ADA_MOST_BINS ? (uint32_t)GW_ADA_MOST_BINS : bins;
        s.bins = bins >= 8 ? bins / 8 * 8 : bins >= 4 ? 4 : bins;
        s.per = 1;
    }
    s.tile = s.bins * s.bin;
    s.words = s.per == 1 ? (s.tile + 127) / 128 * 4 : GW_ADA_WARP_TILE / 32;
    s.width = s.bin <= 63 ? 1 : 2;
    s.sign_at = s.width == 1 ? 6 : 14;
    const uint32_t window = s.bin < GW_SELECT_WINDOW ? GW_SELECT_WINDOW / s.bin : 1;
    const uint32_t even = gw_ada_even_bins(s.bin, window, 32);
    s.window_tile = (2 * even > window ? even : window) * s.bin;
    s.share = s.bins < 32 ? 32 / s.bins : 1;
    s.length = (s.bin + s.share - 1) / s.share;
    s.d = (float)(value[GW_ADA_FACTOR] - 1);
    s.magic = gw_ada_over(28, s.bin);
    s.per_bin = gw_ada_over(20, s.bin);
    s.per_bins = gw_ada_over(20, s.bins);
    s.per_tile = gw_ada_over(24, s.tile);
    s.per_share = gw_ada_over(16, s.share);
    return s;
}

#endif
