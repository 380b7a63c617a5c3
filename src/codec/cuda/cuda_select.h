/* Codecs that select over the whole tensor, on the device: how a list of tensors becomes one launch, each with a part of
 * the workspace, and what their kernels share. A launch's blocks are dealt out to its tensors in order. */
#ifndef GW_CUDA_SELECT_H
#define GW_CUDA_SELECT_H

#include "codec/cuda/cuda_span.h"

enum {
    GW_SELECT_ROOM = 32 * 1024 - 256, /* bytes of a launch's arguments that are for its tensors */
    GW_SELECT_SINKS = 64,             /* tensors that one launch takes, to decode many payloads, */
    GW_SELECT_PAYLOADS = 1024,        /* with this many among them */
    GW_SELECT_FEW = 440,              /* and to decode few, with as many payloads */
    GW_SELECT_WINDOW = 8192           /* numbers that a block sums in shared memory */
};

/* One tensor to encode. */
typedef struct gw_select_in {
    const void *in;
    const float *residual;
    float *after;
    uint8_t *payload;
    gw_cuda_result *result;
    uint8_t *room; /* its part of the workspace */
    uint64_t count, key, bytes;
    uint64_t common; /* the key that all ranks have */
    uint32_t begin;  /* its first block of this launch */
} gw_select_in;

/* S is what the codec's kernels share, L where a tensor's parts of the workspace are: laid out by the host, since threads
 * would divide for longer than they work. */
template <class S, class L, int N> struct gw_select_batch {
    S s;
    gw_dtype dtype;
    uint32_t n;
    gw_select_in tensor[N];
    L layout[N];
};

/* Tensors that one launch takes, to encode. */
template <class L> struct gw_select_list {
    enum { N = GW_SELECT_ROOM / (sizeof(gw_select_in) + sizeof(L)) };
};

/* One tensor to decode. */
typedef struct gw_select_out {
    void *out;
    gw_cuda_result *result;
    uint8_t *room;
    uint64_t count, bytes;
    uint32_t begin;
} gw_select_out;

template <class S, int N, int P> struct gw_select_sinks {
    S s;
    gw_dtype dtype;
    uint32_t n, n_payloads, add, divisor;
    gw_select_out tensor[N];
    gw_cuda_payload payload[P];
};

/* Whose block this is, and its number among the tensor's. */
template <class B> GW_DEVICE uint32_t gw_select_find(const B &batch, uint32_t *number)
{
    uint32_t low = 0, high = batch.n;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (batch.tensor[middle].begin <= blockIdx.x) {
            low = middle;
        } else {
            high = middle;
        }
    }
    *number = blockIdx.x - batch.tensor[low].begin;
    return low;
}

/* The sum of v over the lanes before this one; *all: over the warp. */
GW_DEVICE uint32_t gw_warp_before(uint32_t v, uint32_t *all)
{
    uint32_t sum = v;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const uint32_t other = __shfl_up_sync(0xFFFFFFFFu, sum, d);
        sum += threadIdx.x % 32 >= (uint32_t)d ? other : 0;
    }
    *all = __shfl_sync(0xFFFFFFFFu, sum, 31);
    return sum - v;
}

/* The same over the block, of whole warps. `of_warps` has one number a warp; two calls in a row need two of them, or a
 * barrier between. */
GW_DEVICE uint32_t gw_block_before(uint32_t v, uint32_t *of_warps, uint32_t *all)
{
    uint32_t warp_all;
    uint32_t before = gw_warp_before(v, &warp_all);
    const uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32;
    if (threadIdx.x % 32 == 0) {
        of_warps[warp] = warp_all;
    }
    __syncthreads();
    const uint32_t lane = threadIdx.x % 32, of_warp = lane < warps ? of_warps[lane] : 0;
    *all = __reduce_add_sync(0xFFFFFFFFu, of_warp);
    return before + __reduce_add_sync(0xFFFFFFFFu, lane < warp ? of_warp : 0);
}

/* Lowest bits, and the bits below bit n of a word. */
GW_DEVICE uint32_t gw_bits_below(uint32_t n)
{
    return n >= 32 ? 0xFFFFFFFFu : (1u << n) - 1;
}

/* The index of the lowest bit that is set. */
GW_DEVICE uint32_t gw_lowest(uint32_t word)
{
    return (uint32_t)__ffs((int)word) - 1;
}

/* The sum of a word's bytes. */
GW_DEVICE uint32_t gw_sum_bytes(uint32_t word)
{
    return __dp4a(word, 0x01010101u, 0u);
}

/* Numbers of bytes that may have any alignment, least significant first. */
GW_DEVICE uint32_t gw_there_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

GW_DEVICE uint64_t gw_there_u64(const uint8_t *p)
{
    return gw_there_u32(p) | (uint64_t)gw_there_u32(p + 4) << 32;
}

GW_DEVICE void gw_leave_u32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++) {
        p[i] = (uint8_t)(v >> 8 * i);
    }
}

GW_DEVICE void gw_leave_u64(uint8_t *p, uint64_t v)
{
    gw_leave_u32(p, (uint32_t)v);
    gw_leave_u32(p + 4, (uint32_t)(v >> 32));
}

/* Four numbers from element i on, of which `left` are there and the others 0. `whole`: all are, and aligned. */
GW_DEVICE void gw_read_four(float x[4], const void *in, gw_dtype dtype, uint64_t i, uint32_t left,
                            int whole)
{
    if (whole && dtype == GW_F32) {
        const float4 v = __ldcs((const float4 *)((const float *)in + i));
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
    } else if (whole) {
        const uint2 v = __ldcs((const uint2 *)((const uint16_t *)in + i));
        const uint32_t half[4] = {v.x & 0xFFFF, v.x >> 16, v.y & 0xFFFF, v.y >> 16};
#pragma unroll
        for (int c = 0; c < 4; c++) {
            x[c] = dtype == GW_F16 ? gw_f32_from_f16((uint16_t)half[c])
                                   : gw_f32_from_bf16((uint16_t)half[c]);
        }
    } else {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            x[c] = (uint32_t)c < left ? gw_one(in, dtype, i + (uint32_t)c) : 0.0f;
        }
    }
}

GW_DEVICE void gw_write_four(const float x[4], float *out, uint64_t i, uint32_t left, int whole)
{
    if (whole) {
        *(float4 *)(out + i) = make_float4(x[0], x[1], x[2], x[3]);
    } else {
#pragma unroll
        for (int c = 0; c < 4; c++) {
            if ((uint32_t)c < left) {
                out[i + (uint32_t)c] = x[c];
            }
        }
    }
}

/* May quads of g, r and r′ that begin at multiples of four be read and written whole? */
GW_DEVICE int gw_quads_aligned(const gw_select_in &t, gw_dtype dtype)
{
    return gw_aligned_to(t.in, dtype == GW_F32 ? 16 : 8) && gw_aligned_to(t.residual, 16) &&
           gw_aligned_to(t.after, 16);
}

/* G of the thread's numbers of a tile of m: g, or g + r. */
template <int FEEDBACK>
GW_DEVICE void gw_select_form(float G[GW_OWN], const gw_select_in &t, gw_dtype dtype, uint64_t at,
                              uint32_t m)
{
    gw_read_quads<GW_IN_ROWS>(G, t.in, dtype, at, m, GW_TILE);
    if (FEEDBACK) {
        float r[GW_OWN];
        gw_read_quads<GW_IN_ROWS>(r, t.residual, GW_F32, at, m, GW_TILE);
#pragma unroll
        for (int i = 0; i < GW_OWN; i++) {
            G[i] = G[i] + r[i];
        }
    }
}

/* The same, left in r′ too until it is known what is sent of it. */
template <int FEEDBACK>
GW_DEVICE void gw_select_read(float G[GW_OWN], const gw_select_in &t, gw_dtype dtype, uint64_t at,
                              uint32_t m)
{
    gw_select_form<FEEDBACK>(G, t, dtype, at, m);
    if (FEEDBACK) {
        gw_write_quads<GW_IN_ROWS>(G, t.after, GW_F32, at, m, GW_TILE);
    }
}

/* The bytes a payload has; 0 and a status if it cannot be one of at least `least` and at most `most` bytes. */
GW_DEVICE uint64_t gw_payload_size(const gw_cuda_payload &p, uint64_t least, uint64_t most,
                                   gw_status *status)
{
    const uint64_t size = p.size_there != NULL ? *p.size_there : p.size;
    *status = size > most || size > p.size ? GW_ERR_CORRUPT
              : size < least               ? GW_ERR_TRUNCATED
                                           : GW_OK;
    return *status == GW_OK ? size : 0;
}

/* How many whole quads of a window of m numbers can be moved by 16 bytes: all, or none. */
GW_DEVICE uint32_t gw_window_quads(const float *sum, const void *out, gw_dtype dtype, uint64_t at,
                                   uint32_t m)
{
    const int wide =
        dtype == GW_F32 && gw_aligned_to((const float *)out + at, 16) && gw_aligned_to(sum, 16);
    return wide ? m / 4 : 0;
}

/* m sums of shared memory over the divisor, counted if not finite, and written from element `at` on. */
template <class B>
GW_DEVICE void gw_write_window(const float *sum, const B &batch, const gw_select_out &t,
                               uint64_t at, uint32_t m)
{
    const uint32_t by = batch.divisor, n = gw_window_quads(sum, t.out, batch.dtype, at, m);
    const int exact = (by & (by - 1)) == 0;
    const float factor = 1 / (float)by;
    float all = 0; /* NaN if one is not finite */
    const auto over = [&](float x) {
        x = exact ? x * factor : x / (float)by;
        all = fmaf(x, 0.0f, all);
        return x;
    };
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
        const float4 x = ((const float4 *)sum)[i];
        __stcs((float4 *)((float *)t.out + at) + i,
               make_float4(over(x.x), over(x.y), over(x.z), over(x.w)));
    }
#pragma unroll 4
    for (uint32_t i = 4 * n + threadIdx.x; i < m; i += blockDim.x) {
        gw_put_one(t.out, batch.dtype, at + i, over(sum[i]));
    }
    if (all != all) {
        uint32_t bad = 0;
        for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
            for (uint32_t c = 0; c < 4; c++) {
                bad += (gw_bits(over(sum[4 * i + c])) & GW_ABS_MASK) >= GW_INF_BITS;
            }
        }
        for (uint32_t i = 4 * n + threadIdx.x; i < m; i += blockDim.x) {
            bad += (gw_bits(over(sum[i])) & GW_ABS_MASK) >= GW_INF_BITS;
        }
        gw_count(&t.result->non_finite, bad);
    }
}

/* What the sums begin with: there when gw_copies_done and a barrier have been passed. */
template <class B>
GW_DEVICE void gw_start_window(float *sum, const B &batch, const gw_select_out &t, uint64_t at,
                               uint32_t m)
{
    const uint32_t n = gw_window_quads(sum, t.out, batch.dtype, at, m);
#pragma unroll 4
    for (uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
        if (batch.add) {
            gw_copy16((float4 *)sum + i, (const float4 *)((const float *)t.out + at) + i);
        } else {
            ((float4 *)sum)[i] = make_float4(0, 0, 0, 0);
        }
    }
#pragma unroll 4
    for (uint32_t i = 4 * n + threadIdx.x; i < m; i += blockDim.x) {
        sum[i] = batch.add ? gw_one(t.out, batch.dtype, at + i) : 0.0f;
    }
}

/* There when a barrier has been passed. */
template <class B>
GW_DEVICE void gw_begin_window(float *sum, const B &batch, const gw_select_out &t, uint64_t at,
                               uint32_t m)
{
    gw_start_window(sum, batch, t, at, m);
    gw_copies_done();
}

/* Entries of several payloads on their way to a window: where, from the window's first number on, and what. Those of one payload
 * have different places, those of different payloads are added in order. */
enum { GW_STAGE = 2048, GW_STAGE_NOWHERE = 0xFFFF };
typedef struct gw_stage {
    uint16_t at[GW_STAGE];
    float value[GW_STAGE];
} gw_stage;

/* n entries of one payload; `set`: in place of what is there. By all threads, a barrier behind it. 0: their places do not ascend, and
 * nothing was added: two of them could be the same. */
GW_DEVICE int gw_add_stage(float *sum, const gw_stage &stage, uint32_t from, uint32_t n, int set)
{
    int ascend = 1;
    for (uint32_t i = from + 1 + threadIdx.x; i < from + n; i += blockDim.x) {
        const uint32_t at = stage.at[i], last = stage.at[i - 1];
        ascend &= at == GW_STAGE_NOWHERE || last < at || last == GW_STAGE_NOWHERE;
    }
    if (__syncthreads_or(!ascend)) {
        return 0;
    }
    for (uint32_t i = from + threadIdx.x; i < from + n; i += blockDim.x) {
        const uint32_t at = stage.at[i];
        if (at != GW_STAGE_NOWHERE) {
            sum[at] = set ? stage.value[i] : sum[at] + stage.value[i];
        }
    }
    __syncthreads();
    return 1;
}

GW_DEVICE void gw_spoil_window(float *sum, uint32_t m)
{
    for (uint32_t i = threadIdx.x; i < m; i += blockDim.x) {
        sum[i] = gw_float(GW_NAN_BITS);
    }
}

/* The host's side. launch(batch, blocks) is called for every kernel of a part of the list; `blocks` gives how many a
 * tensor of so many elements gets there. */
template <class S, class L, int N> struct gw_select_part {
    gw_select_batch<S, L, N> batch;

    gw_select_part(const S &shared, const gw_cuda_call *call, const gw_cuda_source *tensors,
                   const size_t *bytes, size_t n, uint8_t *room,
                   size_t (*need)(const double *, gw_dtype, size_t, int),
                   L (*lay_out)(uint8_t *, const S &, uint64_t, size_t *), uint32_t point)
    {
        batch.s = shared;
        batch.dtype = call->dtype;
        batch.n = (uint32_t)n;
        for (size_t i = 0; i < n; i++) {
            const gw_cuda_source *t = &tensors[i];
            const gw_stream shared_key = {t->key.seed, t->key.step, t->key.tensor,
                                          point,       UINT32_MAX,  0};
            batch.tensor[i] = {t->in.data,
                               t->residual,
                               t->residual_after,
                               (uint8_t *)t->payload,
                               t->result,
                               room,
                               t->in.count,
                               gw_random_key(&t->key),
                               bytes[i],
                               gw_random_key(&shared_key),
                               0};
            size_t used;
            batch.layout[i] = lay_out(room, shared, t->in.count, &used);
            room += gw_cuda_aligned(need(call->value, call->dtype, t->in.count, call->feedback));
        }
    }

    template <class F> uint32_t deal(F blocks)
    {
        uint32_t all = 0;
        for (uint32_t i = 0; i < batch.n; i++) {
            batch.tensor[i].begin = all;
            all += blocks(batch.tensor[i].count);
        }
        return all;
    }
};

template <class S, int N, int P> struct gw_select_sink_part {
    gw_select_sinks<S, N, P> batch;

    gw_select_sink_part(const S &shared, const gw_cuda_call *call, const gw_cuda_sink *tensors,
                        const size_t *bytes, size_t n, uint8_t *room,
                        size_t (*need)(const double *, gw_dtype, size_t, int))
    {
        batch.s = shared;
        batch.dtype = call->dtype;
        batch.n = (uint32_t)n;
        batch.n_payloads = (uint32_t)tensors->n_payloads;
        batch.add = tensors->how == GW_ADD;
        batch.divisor = tensors->divisor;
        for (size_t i = 0; i < n; i++) {
            const gw_cuda_sink *t = &tensors[i];
            batch.tensor[i] = {t->out.data, t->result, room, t->out.count, bytes[i], 0};
            for (size_t p = 0; p < t->n_payloads; p++) {
                batch.payload[i * t->n_payloads + p] = t->payloads[p];
            }
            room += gw_cuda_aligned(need(call->value, call->dtype, t->out.count, call->feedback));
        }
    }

    template <class F> uint32_t deal(F blocks)
    {
        uint32_t all = 0;
        for (uint32_t i = 0; i < batch.n; i++) {
            batch.tensor[i].begin = all;
            all += blocks(batch.tensor[i].count);
        }
        return all;
    }
};

/* run(part) for parts of the list. */
template <class S, class L, class F>
static inline void gw_select_encode(const S &shared, const gw_cuda_call *call,
                                    const gw_cuda_source *tensors, size_t n,
                                    size_t (*need)(const double *, gw_dtype, size_t, int),
                                    L (*lay_out)(uint8_t *, const S &, uint64_t, size_t *), F run,
                                    uint32_t point = UINT32_MAX)
{
    enum { N = gw_select_list<L>::N };
    static_assert(sizeof(gw_select_batch<S, L, N>) <= 32764 - 64, "a launch's arguments");
    uint8_t *room = (uint8_t *)call->workspace.data;
    for (size_t i = 0; i < n;) {
        const size_t m = n - i < N ? n - i : (size_t)N;
        if (m == 1) {
            gw_select_part<S, L, 1> part(shared, call, tensors + i, call->bytes + i, m, room, need,
                                         lay_out, point);
            run(part);
        } else {
            gw_select_part<S, L, N> part(shared, call, tensors + i, call->bytes + i, m, room, need,
                                         lay_out, point);
            run(part);
        }
        for (size_t j = i; j < i + m; j++) {
            room += gw_cuda_aligned(
                need(call->value, call->dtype, tensors[j].in.count, call->feedback));
        }
        i += m;
    }
}

template <class S, class F>
static inline void gw_select_decode(const S &shared, const gw_cuda_call *call,
                                    const gw_cuda_sink *tensors, size_t n,
                                    size_t (*need)(const double *, gw_dtype, size_t, int), F run)
{
    static_assert(sizeof(gw_select_sinks<S, GW_SELECT_FEW, GW_SELECT_FEW>) <= 32764 - 64, "few");
    static_assert(sizeof(gw_select_sinks<S, GW_SELECT_SINKS, GW_SELECT_PAYLOADS>) <= 32764, "many");
    uint8_t *room = (uint8_t *)call->workspace.data;
    const size_t each = n != 0 ? tensors->n_payloads : 1;
    const size_t some = GW_SELECT_FEW / each, fit = GW_SELECT_PAYLOADS / each;
    const int few = some >= (fit < GW_SELECT_SINKS ? fit : (size_t)GW_SELECT_SINKS);
    const size_t most = few ? some : fit < GW_SELECT_SINKS ? fit : (size_t)GW_SELECT_SINKS;
    for (size_t i = 0; i < n;) {
        const size_t m = n - i < most ? n - i : most;
        if (m == 1 && each <= 16) {
            gw_select_sink_part<S, 1, 16> part(shared, call, tensors + i, call->bytes + i, m, room,
                                               need);
            run(part);
        } else if (few) {
            gw_select_sink_part<S, GW_SELECT_FEW, GW_SELECT_FEW> part(
                shared, call, tensors + i, call->bytes + i, m, room, need);
            run(part);
        } else {
            gw_select_sink_part<S, GW_SELECT_SINKS, GW_SELECT_PAYLOADS> part(
                shared, call, tensors + i, call->bytes + i, m, room, need);
            run(part);
        }
        for (size_t j = i; j < i + m; j++) {
            room += gw_cuda_aligned(
                need(call->value, call->dtype, tensors[j].out.count, call->feedback));
        }
        i += m;
    }
}

#endif
