/* randk on the device.
 *   collect: with feedback reads g and r once and writes G to r′; without, reads g. Counts what is not finite.
 *   write:   the strata's numbers, 4096 a block, and r′ of them
 * A single element that is not finite spoils all values: known only when everything was read. */
#include "codec/cuda/cuda_values.h"

/* Names of templates are the linker's business too: they stay in this file. */
namespace
{
enum { DENSITY, VALUES, THREADS = 256, KEY_BYTES = 8 };

typedef struct gw_randk {
    double density;
    int natural;
} gw_randk;

/* How many elements are not finite: the workspace. */
typedef struct state {
    uint64_t non_finite;
} state;

typedef state *state_place;

static state_place places_in(uint8_t *room, const gw_randk &s, uint64_t count, size_t *bytes)
{
    (void)s, (void)count;
    *bytes = sizeof(state);
    return (state_place)room;
}

template <int N>
__global__ void
clear_kernel(const __grid_constant__ gw_select_batch<gw_randk, state_place, N> batch)
{
    uint32_t unused;
    ((state *)batch.tensor[gw_select_find(batch, &unused)].room)->non_finite = 0;
}

template <int N, int FEEDBACK>
__global__ void __launch_bounds__(THREADS)
    collect_kernel(const __grid_constant__ gw_select_batch<gw_randk, state_place, N> batch)
{
    uint32_t tile;
    const gw_select_in &t = batch.tensor[gw_select_find(batch, &tile)];
    const uint64_t at = (uint64_t)tile * GW_TILE;
    const uint32_t m = gw_span_left(t.count, at, GW_TILE);
    float G[GW_OWN];
    uint32_t top = 0;
    gw_select_read<FEEDBACK>(G, t, batch.dtype, at, m);
#pragma unroll
    for (int i = 0; i < GW_OWN; i++) {
        const uint32_t a = gw_bits(G[i]) & GW_ABS_MASK;
        top = a > top ? a : top;
    }
    if (top >= GW_INF_BITS) {
        uint64_t odd = 0;
        for (int i = 0; i < GW_OWN; i++) {
            odd += (gw_bits(G[i]) & GW_ABS_MASK) >= GW_INF_BITS;
        }
        gw_count(&t.result->non_finite, odd);
        gw_count(&((state *)t.room)->non_finite, odd);
    }
}

/* Run number `number` of a payload; odd: something is not finite. By all threads. */
GW_DEVICE void put_run(const gw_select_in &t, const gw_randk &s, gw_dtype dtype, uint32_t number,
                       int odd)
{
    const uint64_t kept = gw_kept_of(s.density, t.count), first = (uint64_t)number * GW_VALUES_RUN,
                   left = kept - first;
    const gw_strata strata = gw_strata_of(t.common, kept, t.count);
    const uint32_t n = left < GW_VALUES_RUN ? (uint32_t)left : (uint32_t)GW_VALUES_RUN;
    uint32_t index[GW_VALUES_OWN];
    float v[GW_VALUES_OWN], G[GW_VALUES_OWN];
#pragma unroll
    for (int i = 0; i < GW_VALUES_OWN; i++) {
        const uint64_t j = first + threadIdx.x + (uint32_t)(GW_VALUES_THREADS * i);
        const int own = gw_values_own(i, n);
        index[i] = own ? (uint32_t)gw_strata_element(&strata, j) : 0;
        G[i] = !own ? 0.0f : t.after != NULL ? t.after[index[i]] : gw_one(t.in, dtype, index[i]);
        v[i] = odd ? gw_float(GW_NAN_BITS) : G[i];
    }
    if (first == 0 && threadIdx.x == 0) {
        gw_leave_u64(t.payload, t.common);
        t.result->written = t.bytes;
    }
    const gw_values_job job = {t.payload + KEY_BYTES, number, t.key, t.result,
                               gw_natural_top(dtype == GW_F16)};
    gw_values_put(v, index, n, s.natural, job);
#pragma unroll
    for (int i = 0; i < GW_VALUES_OWN; i++) {
        if (t.after != NULL && gw_values_own(i, n)) { /* sent as it is, it leaves nothing */
            t.after[index[i]] = s.natural ? G[i] - v[i] : 0.0f;
        }
    }
}

template <int N>
__global__ void __launch_bounds__(GW_VALUES_THREADS)
    write_kernel(const __grid_constant__ gw_select_batch<gw_randk, state_place, N> batch)
{
    uint32_t number;
    const gw_select_in &t = batch.tensor[gw_select_find(batch, &number)];
    put_run(t, batch.s, batch.dtype, number, ((const state *)t.room)->non_finite != 0);
}

/* A tensor that one block can go over: all that the others do. */
enum { SMALL = 16384 };

static int is_small(const gw_randk &s, uint64_t count)
{
    return count <= SMALL && gw_kept_of(s.density, count) <= GW_VALUES_RUN;
}

template <int N, int FEEDBACK>
__global__ void __launch_bounds__(GW_VALUES_THREADS, 2)
    small_kernel(const __grid_constant__ gw_select_batch<gw_randk, state_place, N> batch)
{
    enum { QUADS = SMALL / (4 * GW_VALUES_THREADS) };
    __shared__ uint32_t odd;
    uint32_t unused;
    const gw_select_in &t = batch.tensor[gw_select_find(batch, &unused)];
    const uint32_t m = (uint32_t)t.count;
    const int whole = gw_quads_aligned(t, batch.dtype);
    uint32_t mine = 0;
    if (threadIdx.x == 0) {
        odd = 0;
    }
    __syncthreads();
#pragma unroll
    for (uint32_t q = 0; q < QUADS; q++) {
        const uint32_t i = 4 * (q * GW_VALUES_THREADS + threadIdx.x), left = i < m ? m - i : 0;
        float x[4], r[4];
        gw_read_four(x, t.in, batch.dtype, i, left, whole && left >= 4);
        if (FEEDBACK) {
            gw_read_four(r, t.residual, GW_F32, i, left, whole && left >= 4);
        }
#pragma unroll
        for (int c = 0; c < 4; c++) {
            x[c] = FEEDBACK ? x[c] + r[c] : x[c];
            mine += (gw_bits(x[c]) & GW_ABS_MASK) >= GW_INF_BITS;
        }
        if (FEEDBACK) {
            gw_write_four(x, t.after, i, left, whole && left >= 4);
        }
    }
    if (mine != 0) {
        gw_count(&t.result->non_finite, mine);
        odd = 1;
    }
    __syncthreads(); /* also: r' is read again */
    put_run(t, batch.s, batch.dtype, 0, (int)odd);
}

/* ---- reading ---- */

/* The strata that may have their element in [at, at + m). */
GW_DEVICE uint64_t stratum_of(const gw_strata &s, uint64_t i)
{
    const uint64_t border = s.longer * (s.size + 1);
    return i < border ? i / (s.size + 1) : s.longer + (i - border) / s.size;
}

/* A window of the output, and the strata that may have an element in it. */
typedef struct window {
    uint64_t at, kept, count, first;
    uint32_t m, n;
    int natural;
} window;

/* Stratum w.first + i of a payload: where its element is in the window, and its value. 0: it has none. */
GW_DEVICE int read_entry(const window &w, const uint8_t *payload, const gw_strata &s, uint32_t i,
                         uint32_t *at, float *v)
{
    const uint64_t j = w.first + i, e = gw_strata_element(&s, j);
    *at = e >= w.at && e - w.at < w.m ? (uint32_t)(e - w.at) : (uint32_t)GW_STAGE_NOWHERE;
    return gw_values_get(payload + KEY_BYTES, w.natural, j, v);
}

/* k payloads that fit the stage together, by all threads. */
GW_DEVICE int add_staged(float *sum, gw_stage &stage, const window &w,
                         const gw_cuda_payload *payload, uint32_t k, int set)
{
    int sound = 1;
    gw_strata s = gw_strata_of(0, w.kept, w.count);
    for (uint32_t p = threadIdx.x / 32; p < k; p += THREADS / 32) {
        const uint8_t *bytes = (const uint8_t *)payload[p].bytes;
        s.key = gw_there_u64(bytes);
#pragma unroll 4
        for (uint32_t i = threadIdx.x % 32; i < w.n; i += 32) {
            uint32_t at;
            sound &= read_entry(w, bytes, s, i, &at, &stage.value[p * w.n + i]);
            stage.at[p * w.n + i] = (uint16_t)at;
        }
    }
    gw_copies_done();
    __syncthreads();
    for (uint32_t p = 0; p < k; p++) {
        (void)gw_add_stage(sum, stage, p * w.n, w.n, p == 0 && set);
    }
    return sound;
}

/* One payload of many entries. */
GW_DEVICE int add_straight(float *sum, const window &w, const uint8_t *payload, int set)
{
    const gw_strata s = gw_strata_of(gw_there_u64(payload), w.kept, w.count);
    int sound = 1;
    gw_copies_done();
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < w.n; i += THREADS) {
        uint32_t at;
        float v;
        sound &= read_entry(w, payload, s, i, &at, &v);
        if (at != GW_STAGE_NOWHERE) {
            sum[at] = set ? v : sum[at] + v;
        }
    }
    __syncthreads();
    return sound;
}

template <class B>
__global__ void __launch_bounds__(THREADS) sum_kernel(const __grid_constant__ B batch)
{
    alignas(16) __shared__ float sum[GW_SELECT_WINDOW];
    __shared__ gw_stage stage;
    __shared__ uint32_t unsound;
    uint32_t number;
    const uint32_t index = gw_select_find(batch, &number);
    const gw_select_out &t = batch.tensor[index];
    const gw_cuda_payload *payload = batch.payload + index * batch.n_payloads;
    window w;
    w.at = (uint64_t)number * GW_SELECT_WINDOW;
    w.m = gw_span_left(t.count, w.at, GW_SELECT_WINDOW);
    if (w.m == 0) {
        return; /* an empty tensor */
    }
    w.kept = gw_kept_of(batch.s.density, t.count);
    w.count = t.count;
    w.natural = batch.s.natural;
    const gw_strata s = gw_strata_of(0, w.kept, t.count);
    w.first = stratum_of(s, w.at);
    w.n = (uint32_t)(stratum_of(s, w.at + w.m - 1) + 1 - w.first);
    gw_start_window(sum, batch, t, w.at, w.m);
    if (threadIdx.x == 0) {
        unsound = 0;
    }
    __syncthreads();
    int sound = 1;
    for (uint32_t p = 0, k; p < batch.n_payloads; p += k) {
        const uint32_t left = batch.n_payloads - p, fit = GW_STAGE / w.n;
        const int set = p == 0 && !batch.add;
        k = fit < left ? fit : left;
        if (k != 0) {
            sound &= add_staged(sum, stage, w, payload + p, k, set);
        } else {
            k = 1;
            sound &= add_straight(sum, w, (const uint8_t *)payload[p].bytes, set);
        }
    }
    if (!sound) {
        atomicOr(&unsound, 1u);
    }
    __syncthreads();
    if (unsound != 0) {
        gw_spoil_window(sum, w.m);
        if (threadIdx.x == 0) {
            gw_blame(t.result, GW_ERR_CORRUPT);
        }
        __syncthreads();
    }
    gw_write_window(sum, batch, t, w.at, w.m);
}

/* ---- the host's side ---- */

static gw_randk shape_of(const double *value)
{
    const gw_randk s = {value[DENSITY], value[VALUES] != 0};
    return s;
}

static size_t workspace(const double *value, gw_dtype dtype, size_t count, int feedback)
{
    (void)value, (void)dtype, (void)count, (void)feedback;
    return sizeof(state);
}

struct run_encode {
    const gw_cuda_call *call;

    template <int N> void operator()(gw_select_part<gw_randk, state_place, N> &part) const
    {
        const gw_randk s = part.batch.s;
        const auto if_large = [&](auto blocks) {
            return part.deal(
                [&](uint64_t count) { return is_small(s, count) ? 0 : blocks(count); });
        };
        void (*const collect)(gw_select_batch<gw_randk, state_place, N>) =
            call->feedback ? collect_kernel<N, 1> : collect_kernel<N, 0>;
        void (*const small)(gw_select_batch<gw_randk, state_place, N>) =
            call->feedback ? small_kernel<N, 1> : small_kernel<N, 0>;
        uint32_t blocks = part.deal([&](uint64_t count) { return (uint32_t)is_small(s, count); });
        if (blocks != 0) {
            GW_LAUNCH(small, blocks, GW_VALUES_THREADS, 0, call->stream, part.batch);
        }
        blocks = if_large([](uint64_t) { return 1u; });
        if (blocks == 0) {
            return;
        }
        GW_LAUNCH(clear_kernel<N>, blocks, 1, 0, call->stream, part.batch);
        blocks = if_large([](uint64_t count) { return gw_tiles_of(count, GW_TILE); });
        GW_LAUNCH(collect, blocks, THREADS, 0, call->stream, part.batch);
        blocks = if_large([&](uint64_t count) {
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
        const uint32_t windows =
            part.deal([](uint64_t count) { return gw_tiles_of(count, GW_SELECT_WINDOW); });
        GW_LAUNCH(sum_kernel<B>, windows, THREADS, 0, call->stream, part.batch);
    }
};

static gw_status encode(const gw_cuda_call *call, const gw_cuda_source *tensors, size_t n,
                        gw_why *why)
{
    gw_select_encode(shape_of(call->value), call, tensors, n, workspace, places_in,
                     run_encode{call});
    return gw_cuda_launched(why, "randk");
}

static gw_status decode(const gw_cuda_call *call, const gw_cuda_sink *tensors, size_t n,
                        gw_why *why)
{
    gw_select_decode(shape_of(call->value), call, tensors, n, workspace, run_decode{call});
    return gw_cuda_launched(why, "randk");
}

} // namespace

extern "C" const gw_cuda_codec gw_cuda_codec_randk = {workspace, encode, decode, NULL, NULL};
