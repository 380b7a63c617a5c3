/* adacomp on the device, in three launches.
 *   survey: a warp a tile, or a block where bins are too long or too odd for that. Reads g and r once and writes G to r′; finds
 *           the bins' maxima, and of every element whether it is sent and with which sign: two planes of bits.
 *   weigh:  sums the maxima in the laid down order, and what is sent by units of tiles; a tensor's last block adds all up, chooses the
 *           form, finds where the cap cuts, and writes the header.
 *   settle: a warp a unit, the last unit first, since its r′ may still be in the cache. Writes entries or bitmap, and takes the
 *           scale off r′ where something was sent.
 * Where the caller lets what was sent stay due, settle does not touch r′: the next call's survey, which reads it anyway, takes the
 * scale off, and `owing` does it for all others who want r′. */
#include "codec/adacomp/cuda_adacomp.h"
#include "codec/adacomp/cuda_adacomp_sum.h"

/* Names of templates are the linker's business too: they stay in this file. */
namespace
{
enum { THREADS = 256, WARPS = THREADS / 32, TILE_WARPS = 2 };
enum { RUNS = 8, PART = 1024 }; /* runs, and units, of a block of weigh */
enum { DUE_PLANE = 256 };

typedef struct state {
    uint32_t ticket, form;
    float scale;
    uint32_t reserved;
    uint64_t end;   /* elements from here on are not sent */
    uint64_t spare; /* entries behind a bin's first that form 0 has room for */
    uint64_t kept;  /* elements sent */
} state;

/* What is still to be taken off r′: the scale, of the elements that the plane of what was sent marks, which lies DUE_PLANE bytes
 * behind this; with the sign that r′ has itself, since it is still G there. */
typedef struct due {
    uint64_t end; /* elements from here on were not sent; 0: nothing is due */
    float scale;
    uint32_t reserved;
} due;

/* What a kernel does with residuals: reads and writes none; takes off what was sent before it ends; leaves it due, and takes
 * off what the call before left. */
enum { NO_FEEDBACK, SETTLES, OWES };

/* The parts of the workspace. Of what is sent: of_tiles has how many are not their bin's first, and in the upper half how many in
 * all; counts the same of the units before, in the unit's part; parts of the parts before. */
typedef struct places {
    state *at;
    double *runs;
    uint2 *counts, *parts; /* of units; one more than parts */
    uint32_t *of_tiles, *tops, *sent, *minus;
    const due *owed; /* of r, and of r′, with which `sent` then lies; or NULL */
    due *owes;
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
    p.weighers = p.n_parts + (p.n_runs + RUNS - 1) / RUNS;
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
    p.owed = NULL;
    p.owes = NULL;
    *bytes = tops + 4 * (size_t)p.bins;
    return p;
}

static __host__ __device__ inline uint32_t *plane_of(due *d)
{
    return (uint32_t *)((uint8_t *)d + DUE_PLANE);
}

/* Of a word whose first element is number `from`, the bits before `end`. */
GW_DEVICE uint32_t cut_off(uint32_t word, uint64_t from, uint64_t end)
{
    return end >= from + 32 ? word : end <= from ? 0 : word & gw_bits_below((uint32_t)(end - from));
}

/* r without what was sent of it. */
GW_DEVICE float less_sent(float r, float scale)
{
    return r - gw_adacomp_value(scale, gw_bits(r) >> 31);
}

#include "codec/adacomp/cuda_adacomp_survey.h"

#include "codec/adacomp/cuda_adacomp_weigh.h"

#include "codec/adacomp/cuda_adacomp_settle.h"

#include "codec/adacomp/cuda_adacomp_owing.h"

/* ---- small tensors ---- */

/* One to encode, and to decode, of a list; up to GW_ADA_SMALL elements. */
typedef struct small_in {
    const void *in;
    const float *residual;
    float *after;
    uint8_t *payload;
    gw_cuda_result *result;
    uint8_t *room;
    uint32_t count, bytes;
} small_in;

typedef struct small_out {
    void *out;
    gw_cuda_result *result;
    uint32_t count, bytes, begin;
    static constexpr uint8_t *room = NULL;
} small_out;

template <int N> struct small_ins {
    gw_ada s;
    gw_dtype dtype;
    small_in tensor[N];
};

template <int N, int P> struct small_outs {
    gw_ada s;
    gw_dtype dtype;
    uint32_t n, n_payloads, add, divisor;
    small_out tensor[N];
    gw_cuda_payload payload[P];
};

/* All three kernels' work on one tensor, by a block. */
template <int N, int FEEDBACK, int ONE>
__global__ void __launch_bounds__(THREADS, 4)
    small_kernel(const __grid_constant__ small_ins<N> batch)
{
    GW_DYNAMIC_SHARED(shared); /* desks of survey, or benches of settle */
    const small_in &i = batch.tensor[blockIdx.x];
    const gw_select_in t = {i.in,    i.residual, i.after, i.payload, i.result, i.room,
                            i.count, 0,          i.bytes, 0,         0};
    const gw_ada &s = batch.s;
    const uint32_t warp = threadIdx.x / 32;
    size_t bytes;
    const places p = places_in(i.room, s, i.count, &bytes);
    for (uint32_t tile = warp; tile < p.tiles; tile += WARPS) {
        survey_tile<FEEDBACK, ONE>(t, s, batch.dtype, p, tile, (desk *)shared + warp);
        __syncwarp();
    }
    __syncthreads();
    sum_runs(p, 0);
    scan_part(p, s, 0);
    __syncthreads();
    conclude(t, s, p);
    __syncthreads();
    for (uint32_t unit = warp; unit < p.units; unit += WARPS) {
        settle_unit<FEEDBACK>(t, s, p, unit, shared);
        __syncwarp();
    }
}

static int is_small(const gw_ada &s, uint64_t count)
{
    /* one block's runs and units */
    return count <= GW_ADA_SMALL && s.per != 1 && count <= (uint64_t)RUNS * GW_ADA_RUN * s.bin;
}

/* ---- the host's side ---- */

static size_t workspace(const double *value, gw_dtype dtype, size_t count, int feedback)
{
    (void)dtype, (void)feedback;
    const gw_ada s = gw_ada_shape(value);
    size_t encoding = 0, decoding = 0;
    (void)places_in(NULL, s, count, &encoding);
    const uint64_t bitmap = gw_cuda_ceil_div(count, 8);
    const uint64_t marks = s.width * gw_cuda_ceil_div(count, s.bin);
    const uint64_t least = bitmap < marks ? bitmap : marks, cap = (uint64_t)value[GW_ADA_CAP];
    const uint64_t most = GW_ADA_HEADER + (cap == 0      ? 2 * bitmap
                                           : cap > least ? cap
                                                         : least); /* at least what is needed */
    if (!is_small(s, count)) {
        (void)gw_ada_tables_in(NULL, count, most, s.window_tile, &decoding);
    }
    return encoding > decoding ? encoding : decoding;
}

enum { MOST_LARGE = 128, MOST_SMALL = 512, MOST_SMALL_OUTS = 200, MOST_SMALL_PAYLOADS = 1024 };

/* Which tensors of a list go together in one launch, and their parts of the workspace. */
typedef struct group {
    size_t index[MOST_SMALL];
    uint8_t *room[MOST_SMALL];
    uint32_t n;
} group;

static uint64_t count_of(const gw_cuda_source &t)
{
    return t.in.count;
}

static uint64_t count_of(const gw_cuda_sink &t)
{
    return t.out.count;
}

/* run(group) for all tensors that are small, or for all that are not, up to `most` at a time. */
template <class T, class F>
static void in_groups(const gw_cuda_call *call, const gw_ada &s, const T *tensors, size_t n,
                      int small, size_t most, F run)
{
    group g;
    uint8_t *room = (uint8_t *)call->workspace.data;
    g.n = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t count = count_of(tensors[i]);
        if (is_small(s, count) == small) {
            g.index[g.n] = i;
            g.room[g.n++] = room;
        }
        room += gw_cuda_aligned(workspace(call->value, call->dtype, count, 0));
        if (g.n == most || (g.n != 0 && i + 1 == n)) {
            run(g);
            g.n = 0;
        }
    }
}

/* Gives each tensor of a batch its blocks; returns how many there are. */
template <class B, class F> static uint32_t deal(B &batch, F blocks)
{
    uint32_t all = 0;
    for (uint32_t i = 0; i < batch.n; i++) {
        batch.tensor[i].begin = all;
        all += blocks(i);
    }
    return all;
}

template <int N, int FEEDBACK>
static void (*survey_for(const gw_ada &s))(gw_select_batch<gw_ada, places, N>)
{
    return s.per == 1    ? survey_blocks_kernel<N, FEEDBACK>
           : s.bins == 1 ? survey_tiles_kernel<N, FEEDBACK, 1>
                         : survey_tiles_kernel<N, FEEDBACK, 0>;
}

template <int N>
static void encode_group(const gw_ada &s, const gw_cuda_call *call, const gw_cuda_source *tensors,
                         const group &g)
{
    typedef gw_select_batch<gw_ada, places, N> B;
    typedef void (*kernel)(B);
    B b;
    b.s = s;
    b.dtype = call->dtype;
    b.n = g.n;
    for (uint32_t i = 0; i < g.n; i++) {
        const gw_cuda_source &t = tensors[g.index[i]];
        size_t used;
        b.tensor[i] = {t.in.data,
                       t.residual,
                       t.residual_after,
                       (uint8_t *)t.payload,
                       t.result,
                       g.room[i],
                       t.in.count,
                       0,
                       call->bytes[g.index[i]],
                       0,
                       0};
        b.layout[i] = places_in(g.room[i], s, t.in.count, &used);
        if (call->due) {
            b.layout[i].owed = (const due *)t.due;
            b.layout[i].owes = (due *)t.due_after;
            b.layout[i].sent = plane_of((due *)t.due_after);
        }
    }
    const kernel survey = call->due        ? survey_for<N, OWES>(s)
                          : call->feedback ? survey_for<N, SETTLES>(s)
                                           : survey_for<N, NO_FEEDBACK>(s);
    const kernel settle = call->due && s.bins == 1 && s.per != 1 ? settle_kernel<N, 0, 1>
                          : call->feedback && !call->due         ? settle_kernel<N, 1, 0>
                                                                 : settle_kernel<N, 0, 0>;
    const uint32_t warps = s.per == 1 ? 1u : (uint32_t)TILE_WARPS,
                   threads = s.per == 1 ? (uint32_t)THREADS : 32 * warps;
    const uint32_t tilings =
        deal(b, [&](uint32_t i) { return (b.layout[i].tiles + warps - 1) / warps; });
    GW_LAUNCH(survey, tilings, threads, 0, call->stream, b);
    const uint32_t parts = deal(b, [&](uint32_t i) { return b.layout[i].weighers; });
    GW_LAUNCH(weigh_kernel<N>, parts, THREADS, 0, call->stream, b);
    const uint32_t benches = settle_warps(s);
    const uint32_t groups =
        deal(b, [&](uint32_t i) { return (b.layout[i].units + benches - 1) / benches; });
    GW_LAUNCH(settle, groups, 32 * benches, 4 * benches * bench_words(s), call->stream, b);
}

static void encode_small(const gw_ada &s, const gw_cuda_call *call, const gw_cuda_source *tensors,
                         const group &g)
{
    typedef small_ins<MOST_SMALL> B;
    typedef void (*kernel)(B);
    B b;
    b.s = s;
    b.dtype = call->dtype;
    for (uint32_t i = 0; i < g.n; i++) {
        const gw_cuda_source &t = tensors[g.index[i]];
        b.tensor[i] = {
            t.in.data, t.residual, t.residual_after,     (uint8_t *)t.payload,
            t.result,  g.room[i],  (uint32_t)t.in.count, (uint32_t)call->bytes[g.index[i]]};
    }
    const int one = s.bins == 1, fed = call->feedback;
    const kernel small =
        one ? (fed ? small_kernel<MOST_SMALL, 1, 1> : small_kernel<MOST_SMALL, 0, 1>)
            : (fed ? small_kernel<MOST_SMALL, 1, 0> : small_kernel<MOST_SMALL, 0, 0>);
    const uint32_t desks = WARPS * (uint32_t)sizeof(desk), benches = 4 * WARPS * bench_words(s);
    GW_LAUNCH(small, g.n, THREADS, most_of(desks, benches), call->stream, b);
}

/* What all batches of sinks begin with. */
template <class B>
static void begin_sinks(B &b, const gw_ada &s, const gw_cuda_call *call,
                        const gw_cuda_sink *tensors, const group &g)
{
    const size_t n_payloads = tensors->n_payloads;
    b.s = s;
    b.dtype = call->dtype;
    b.n = g.n;
    b.n_payloads = (uint32_t)n_payloads;
    b.add = tensors->how == GW_ADD;
    b.divisor = tensors->divisor;
    for (uint32_t i = 0; i < g.n; i++) {
        for (size_t p = 0; p < n_payloads; p++) {
            b.payload[i * n_payloads + p] = tensors[g.index[i]].payloads[p];
        }
    }
}

template <int FUSED, class B> static void launch_sums(B &b, const gw_cuda_call *call)
{
    const uint32_t tiles =
        deal(b, [&](uint32_t i) { return gw_ada_tiles(b.tensor[i].count, b.s.window_tile); });
    if (b.n_payloads == 1) {
        GW_LAUNCH((gw_ada_sum_kernel<B, 1, FUSED>), tiles, GW_ADA_THREADS, 0, call->stream, b);
    } else {
        GW_LAUNCH((gw_ada_sum_kernel<B, GW_ADA_ABREAST, FUSED>), tiles, GW_ADA_THREADS, 0,
                  call->stream, b);
    }
}

template <int N, int P>
static void decode_group(const gw_ada &s, const gw_cuda_call *call, const gw_cuda_sink *tensors,
                         const group &g)
{
    typedef gw_select_sinks<gw_ada, N, P> B;
    B b;
    begin_sinks(b, s, call, tensors, g);
    for (uint32_t i = 0; i < g.n; i++) {
        const gw_cuda_sink &t = tensors[g.index[i]];
        b.tensor[i] = {t.out.data, t.result, g.room[i], t.out.count, call->bytes[g.index[i]], 0};
    }
    const uint32_t blocks = deal(b, [&](uint32_t i) {
        size_t size;
        const gw_ada_tables t =
            gw_ada_tables_in(NULL, b.tensor[i].count, b.tensor[i].bytes, s.window_tile, &size);
        return (t.n_units + WARPS - 1) / WARPS * b.n_payloads;
    });
    GW_LAUNCH(gw_ada_count_kernel<B>, blocks, GW_ADA_THREADS, 0, call->stream, b);
    const uint32_t payloads = deal(b, [&](uint32_t) { return b.n_payloads; });
    GW_LAUNCH(gw_ada_place_kernel<B>, payloads, GW_ADA_PLACE_THREADS, 0, call->stream, b);
    launch_sums<0>(b, call);
}

template <int N, int P>
static void decode_small(const gw_ada &s, const gw_cuda_call *call, const gw_cuda_sink *tensors,
                         const group &g)
{
    small_outs<N, P> b;
    begin_sinks(b, s, call, tensors, g);
    for (uint32_t i = 0; i < g.n; i++) {
        const gw_cuda_sink &t = tensors[g.index[i]];
        b.tensor[i].out = t.out.data;
        b.tensor[i].result = t.result;
        b.tensor[i].count = (uint32_t)t.out.count;
        b.tensor[i].bytes = (uint32_t)call->bytes[g.index[i]];
    }
    launch_sums<1>(b, call);
}

static gw_status encode(const gw_cuda_call *call, const gw_cuda_source *tensors, size_t n,
                        gw_why *why)
{
    const gw_ada s = gw_ada_shape(call->value);
    in_groups(call, s, tensors, n, 1, MOST_SMALL,
              [&](const group &g) { encode_small(s, call, tensors, g); });
    in_groups(call, s, tensors, n, 0, MOST_LARGE, [&](const group &g) {
        if (g.n == 1) {
            encode_group<1>(s, call, tensors, g);
        } else {
            encode_group<MOST_LARGE>(s, call, tensors, g);
        }
    });
    return gw_cuda_launched(why, "adacomp");
}

static size_t due_bytes(const double *value, size_t count)
{
    const gw_ada s = gw_ada_shape(value);
    const size_t plane = 4 * (size_t)gw_ada_tiles(count, s.tile) * s.words;
    return is_small(s, count) ? 0 : DUE_PLANE + gw_cuda_aligned(plane);
}

static gw_status settle(const gw_cuda_call *call, const gw_cuda_debt *debts, size_t n, gw_why *why)
{
    debt_list list;
    list.s = gw_ada_shape(call->value);
    for (size_t i = 0; i < n; i += MOST_DEBTS) {
        uint32_t blocks = 0;
        list.n = n - i < MOST_DEBTS ? (uint32_t)(n - i) : (uint32_t)MOST_DEBTS;
        for (uint32_t j = 0; j < list.n; j++) {
            const gw_cuda_debt &d = debts[i + j];
            const uint64_t words = (uint64_t)gw_ada_tiles(d.count, list.s.tile) * list.s.words;
            list.tensor[j] = {d.residual, (due *)d.due, words, blocks};
            blocks += (uint32_t)((words + THREADS - 1) / THREADS);
        }
        GW_LAUNCH(owing_kernel, blocks, THREADS, 0, call->stream, list);
        GW_LAUNCH(paid_kernel, 1, MOST_DEBTS, 0, call->stream, list);
    }
    return gw_cuda_launched(why, "adacomp");
}

static gw_status decode(const gw_cuda_call *call, const gw_cuda_sink *tensors, size_t n,
                        gw_why *why)
{
    const gw_ada s = gw_ada_shape(call->value);
    const size_t payloads = n != 0 ? tensors->n_payloads : 1;
    const size_t small = MOST_SMALL_PAYLOADS / payloads, large = GW_SELECT_PAYLOADS / payloads;
    if (payloads == 1) {
        in_groups(call, s, tensors, n, 1, MOST_SMALL, [&](const group &g) {
            decode_small<MOST_SMALL, MOST_SMALL>(s, call, tensors, g);
        });
    } else {
        in_groups(call, s, tensors, n, 1, small < MOST_SMALL_OUTS ? small : (size_t)MOST_SMALL_OUTS,
                  [&](const group &g) {
                      decode_small<MOST_SMALL_OUTS, MOST_SMALL_PAYLOADS>(s, call, tensors, g);
                  });
    }
    in_groups(call, s, tensors, n, 0, large < GW_SELECT_SINKS ? large : (size_t)GW_SELECT_SINKS,
              [&](const group &g) {
                  if (g.n == 1 && payloads <= 16) {
                      decode_group<1, 16>(s, call, tensors, g);
                  } else {
                      decode_group<GW_SELECT_SINKS, GW_SELECT_PAYLOADS>(s, call, tensors, g);
                  }
              });
    return gw_cuda_launched(why, "adacomp");
}

} // namespace

extern "C" const gw_cuda_codec gw_cuda_codec_adacomp = {workspace, encode, decode, due_bytes,
                                                        settle};
