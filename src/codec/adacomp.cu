/* adacomp on the device, in three launches.
 *   survey: a warp a tile, or a block where bins are too long or too odd for that. Reads g and r once and writes G to r′; finds
 *           the bins' maxima, and of every element whether it is sent and with which sign: two planes of bits.
 *   weigh:  sums the maxima in the laid down order, and what is sent by units of tiles; a tensor's last block adds all up, chooses the
 *           form, finds where the cap cuts, and writes the header.
 *   settle: a warp a unit, the last unit first, since its r′ may still be in the cache. Writes entries or bitmap, and takes the
 *           scale off r′ where something was sent. */
#include "codec/cuda_adacomp.h"
#include "codec/cuda_adacomp_read.h"

/* Names of templates are the linker's business too: they stay in this file. */
namespace
{
enum { THREADS = 256, WARPS = THREADS / 32 };
enum { RUNS = 8, PART = 1024 }; /* runs, and units, of a block of weigh */

typedef struct state {
    uint32_t ticket, form;
    float scale;
    uint32_t reserved;
    uint64_t end;   /* elements from here on are not sent */
    uint64_t spare; /* entries behind a bin's first that form 0 has room for */
    uint64_t kept;  /* elements sent */
} state;

/* The parts of the workspace. Of what is sent: of_tiles has how many are not their bin's first, and in the upper half how many in
 * all; counts the same of the units before, in the unit's part; parts of the parts before. */
typedef struct places {
    state *at;
    double *runs;
    uint2 *counts, *parts; /* of units; one more than parts */
    uint32_t *of_tiles, *tops, *sent, *minus;
    uint32_t tiles, units, n_parts, n_runs;
    uint32_t weighers; /* blocks of weigh */
    uint64_t bins;
} places;

static __host__ __device__ inline uint32_t most_of(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static __host__ __device__ inline size_t aligned16(size_t bytes)
{
    return (bytes + 15) / 16 * 16;
}

static __host__ __device__ inline places places_in(uint8_t *room, const gw_ada &s, uint64_t count,
                                                   size_t *bytes)
{
    places p;
    p.tiles = gw_ada_tiles(count, s.tile);
    p.units = (p.tiles + s.per - 1) / s.per;
    p.n_parts = (p.units + PART - 1) / PART;
    p.bins = (count + s.bin - 1) / s.bin;
    p.n_runs = (uint32_t)((p.bins + GW_ADA_RUN - 1) / GW_ADA_RUN);
    p.weighers = most_of(p.n_parts, (p.n_runs + RUNS - 1) / RUNS);
    const size_t plane = 4 * (size_t)p.tiles * s.words, runs = 256;
    const size_t sent = runs + aligned16(8 * (size_t)p.n_runs), of_tiles = sent + 2 * plane;
    const size_t counts = of_tiles + aligned16(4 * (size_t)p.tiles);
    const size_t parts = counts + 8 * (size_t)p.units, tops = parts + 8 * ((size_t)p.n_parts + 1);
    p.at = (state *)room;
    p.runs = (double *)(room + runs);
    p.sent = (uint32_t *)(room + sent);
    p.minus = (uint32_t *)(room + sent + plane);
    p.of_tiles = (uint32_t *)(room + of_tiles);
    p.counts = (uint2 *)(room + counts);
    p.parts = (uint2 *)(room + parts);
    p.tops = (uint32_t *)(room + tops);
    *bytes = tops + 4 * (size_t)p.bins;
    return p;
}

#include "codec/cuda_adacomp_survey.h"

#include "codec/cuda_adacomp_weigh.h"

#include "codec/cuda_adacomp_settle.h"

/* ---- the host's side ---- */

static size_t workspace(const double *value, gw_dtype dtype, size_t count, int feedback)
{
    (void)dtype, (void)feedback;
    const gw_ada s = gw_ada_shape(value);
    size_t encoding = 0;
    (void)places_in(NULL, s, count, &encoding);
    const uint64_t bitmap = gw_cuda_ceil_div(count, 8);
    const uint64_t marks = s.width * gw_cuda_ceil_div(count, s.bin);
    const uint64_t least = bitmap < marks ? bitmap : marks, cap = (uint64_t)value[GW_ADA_CAP];
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
        typedef void (*kernel)(gw_select_batch<gw_ada, places, N>);
        const gw_ada &s = part.batch.s;
        const int one = s.bins == 1, fed = call->feedback;
        const kernel tiles =
            one ? (fed ? survey_tiles_kernel<N, 1, 1> : survey_tiles_kernel<N, 0, 1>)
                : (fed ? survey_tiles_kernel<N, 1, 0> : survey_tiles_kernel<N, 0, 0>);
        const kernel blocks = fed ? survey_blocks_kernel<N, 1> : survey_blocks_kernel<N, 0>;
        const kernel settle = fed ? settle_kernel<N, 1> : settle_kernel<N, 0>;
        uint32_t i = 0;
        const uint32_t units = part.deal([&](uint64_t) { return part.batch.layout[i++].units; });
        const kernel survey = s.per == 1 ? blocks : tiles;
        GW_LAUNCH(survey, units, THREADS, 0, call->stream, part.batch);
        i = 0;
        const uint32_t parts = part.deal([&](uint64_t) { return part.batch.layout[i++].weighers; });
        GW_LAUNCH(weigh_kernel<N>, parts, THREADS, 0, call->stream, part.batch);
        const uint32_t warps = settle_warps(s);
        i = 0;
        const uint32_t groups =
            part.deal([&](uint64_t) { return (part.batch.layout[i++].units + warps - 1) / warps; });
        GW_LAUNCH(settle, groups, 32 * warps, 4 * warps * bench_words(s), call->stream, part.batch);
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
    gw_select_encode(gw_ada_shape(call->value), call, tensors, n, workspace, places_in,
                     run_encode{call});
    return gw_cuda_launched(why, "adacomp");
}

static gw_status decode(const gw_cuda_call *call, const gw_cuda_sink *tensors, size_t n,
                        gw_why *why)
{
    gw_select_decode(gw_ada_shape(call->value), call, tensors, n, workspace, run_decode{call});
    return gw_cuda_launched(why, "adacomp");
}

} // namespace

extern "C" const gw_cuda_codec gw_cuda_codec_adacomp = {workspace, encode, decode};
