/* lowrank on the device, alone: a payload of one rank's factors.
 *   start:   Q0, the seeded numbers
 *   left:    P = G · Q0ᵀ. Reads g and r once and writes G to r′. A block takes 16 rows, a warp 4 of them and every other 128 columns
 *   columns: P̂, one block a tensor: cuda_lowrank_columns.h
 *   right:   Q = P̂ᵀ · G, by parts of the rows; the last block of a tile of columns adds them up, in order. Begins beside columns
 *   finish:  r′ = G − P̂ · Q
 * A small tensor has all of it in one block. */
#include "codec/lowrank/cuda_lowrank_right.h"
#include "codec/lowrank/cuda_lowrank_small.h"

/* Names of templates are the linker's business too: they stay in this file. */
namespace
{
enum { RANK, COLS };
enum { THREADS = GW_LOW_THREADS };
enum { PRODUCERS = 512, ORTHO_THREADS = PRODUCERS + GW_LOW_ADDERS };

/* ---- the kernels ---- */

template <int N>
__global__ void __launch_bounds__(THREADS)
    start_kernel(const __grid_constant__ gw_select_batch<gw_low, gw_low_places, N> batch)
{
    uint32_t number;
    const uint32_t which = gw_select_find(batch, &number);
    gw_low_start(batch.tensor[which], batch.layout[which], number);
}

template <int N>
__global__ void __launch_bounds__(THREADS, 4)
    left_kernel(const __grid_constant__ gw_select_batch<gw_low, gw_low_places, N> batch)
{
    uint32_t number;
    const uint32_t which = gw_select_find(batch, &number);
    const gw_select_in &t = batch.tensor[which];
    const gw_low_places &p = batch.layout[which];
    if (p.m.rank == 0) {
        gw_low_copy(t, batch.dtype, number, gw_low_left_blocks(p.m));
    }
    gw_low_left(t, p, batch.dtype, number);
}

template <int N>
__global__ void __launch_bounds__(ORTHO_THREADS)
    columns_kernel(const __grid_constant__ gw_select_batch<gw_low, gw_low_places, N> batch)
{
    __shared__ gw_low_ortho_room<PRODUCERS> room;
    uint32_t number;
    const uint32_t which = gw_select_find(batch, &number);
    gw_let_next_begin();
    gw_low_columns(room, batch.tensor[which], batch.layout[which]);
}

template <int N>
__global__ void __launch_bounds__(THREADS, 4)
    right_kernel(const __grid_constant__ gw_select_batch<gw_low, gw_low_places, N> batch)
{
    uint32_t number;
    const uint32_t which = gw_select_find(batch, &number);
    gw_low_right_early(batch.tensor[which], batch.layout[which], batch.dtype, number);
    gw_wait_for_last();
    gw_low_right(batch.tensor[which], batch.layout[which], batch.dtype, number);
}

template <int N>
__global__ void __launch_bounds__(THREADS, 3)
    finish_kernel(const __grid_constant__ gw_select_batch<gw_low, gw_low_places, N> batch)
{
    uint32_t number;
    const uint32_t which = gw_select_find(batch, &number);
    gw_low_finish(batch.tensor[which], batch.layout[which], number);
}

/* A tensor from beginning to end. */
template <class L, int N>
__global__ void __launch_bounds__(THREADS, 3)
    whole_kernel(const __grid_constant__ gw_select_batch<gw_low, L, N> batch)
{
    __shared__ gw_low_ortho_room<THREADS - GW_LOW_ADDERS> room;
    uint32_t number;
    const uint32_t which = gw_select_find(batch, &number);
    const gw_select_in &t = batch.tensor[which];
    const gw_low_places &p = gw_low_places_of(t, batch.layout[which]);
    for (uint32_t i = 0; i < gw_low_start_blocks(p.m); i++) {
        gw_low_start(t, p, i);
    }
    __syncthreads();
    if (p.m.rank == 0) {
        gw_low_copy(t, batch.dtype, 0, 1);
        return;
    }
    for (uint32_t i = 0; i < gw_low_left_blocks(p.m); i++) {
        gw_low_left(t, p, batch.dtype, i);
    }
    gw_low_columns(room, t, p);
    __syncthreads();
    for (uint32_t i = 0; i < gw_low_right_blocks(p); i++) {
        gw_low_right(t, p, batch.dtype, i);
    }
    for (uint32_t i = 0; i < gw_low_blocks(p.m) && t.after != NULL; i++) {
        gw_low_finish(t, p, i);
    }
}

/* ---- the host's side ---- */

static gw_low shape_of(const double *value)
{
    const gw_low s = {(uint32_t)value[RANK], (uint64_t)value[COLS], {}};
    return s;
}

static size_t workspace(const double *value, gw_dtype dtype, size_t count, int feedback)
{
    (void)dtype, (void)feedback;
    size_t encoding = 0;
    (void)gw_low_places_in(NULL, shape_of(value), count, &encoding);
    const size_t decoding = (size_t)GW_CUDA_MAX_PAYLOADS * GW_LOW_SURVEYS;
    return encoding > decoding ? encoding : decoding;
}

struct run_encode {
    const gw_cuda_call *call;

    /* blocks(gw_low_places) of a tensor's for a kernel, of those that have one for each. */
    template <class P, class F> uint32_t deal(P &part, F blocks) const
    {
        uint32_t all = 0;
        for (uint32_t i = 0; i < part.batch.n; i++) {
            part.batch.tensor[i].begin = all;
            all += part.batch.layout[i].m.count <= GW_LOW_SMALL ? 0 : blocks(part.batch.layout[i]);
        }
        return all;
    }

    template <int N> void operator()(gw_select_part<gw_low, gw_low_places, N> &part) const
    {
        uint32_t n = part.deal([](uint64_t count) { return count <= GW_LOW_SMALL ? 1u : 0u; });
        if (n != 0) {
            GW_LAUNCH((whole_kernel<gw_low_places, N>), n, THREADS, 0, call->stream, part.batch);
        }
        n = deal(part, [](const gw_low_places &p) { return gw_low_start_blocks(p.m); });
        if (n == 0) {
            return;
        }
        GW_LAUNCH(start_kernel<N>, n, THREADS, 0, call->stream, part.batch);
        n = deal(part, [](const gw_low_places &p) { return gw_low_left_blocks(p.m); });
        GW_LAUNCH(left_kernel<N>, n, THREADS, 0, call->stream, part.batch);
        n = deal(part, [](const gw_low_places &p) { return p.m.rank != 0 ? 1u : 0u; });
        if (n == 0) {
            return;
        }
        GW_LAUNCH(columns_kernel<N>, n, ORTHO_THREADS, 0, call->stream, part.batch);
        n = deal(part, [](const gw_low_places &p) { return gw_low_right_blocks(p); });
        gw_launch_early(right_kernel<N>, n, THREADS, call->stream, part.batch);
        if (call->feedback) {
            n = deal(part, [](const gw_low_places &p) {
                return p.m.rank != 0 ? gw_low_blocks(p.m) : 0u;
            });
            GW_LAUNCH(finish_kernel<N>, n, THREADS, 0, call->stream, part.batch);
        }
    }
};

struct run_small {
    const gw_cuda_call *call;

    template <int N> void operator()(gw_select_part<gw_low, gw_low_small, N> &part) const
    {
        const uint32_t n = part.deal([](uint64_t) { return 1u; });
        GW_LAUNCH((whole_kernel<gw_low_small, N>), n, THREADS, 0, call->stream, part.batch);
    }
};

struct run_decode {
    const gw_cuda_call *call;

    template <class P> void operator()(P &part) const
    {
        typedef decltype(part.batch) B;
        B &batch = part.batch;
        const auto matrix = [&](uint64_t count) {
            return gw_matrix_of(batch.s.rank, batch.s.cols, count);
        };
        batch.s.first = matrix(batch.tensor[0].count);
        uint32_t words = 0;
        uint32_t n = part.deal([&](uint64_t count) {
            const uint32_t room = gw_low_sum_room(matrix(count), batch.n_payloads);
            words = room > words ? room : words;
            return room != 0 ? 1u : 0u;
        });
        if (n != 0) {
            GW_LAUNCH(gw_low_small_kernel<B>, n, THREADS, 4 * words, call->stream, batch);
        }
        /* blocks(matrix) of the tensors that are left */
        const auto deal = [&](uint32_t (*blocks)(const gw_matrix &), uint32_t times) {
            return part.deal([&](uint64_t count) {
                const gw_matrix m = matrix(count);
                return gw_low_sum_room(m, batch.n_payloads) != 0 ? 0u : times * blocks(m);
            });
        };
        n = deal(gw_low_surveys, batch.n_payloads);
        if (n != 0) {
            GW_LAUNCH(gw_low_survey_kernel<B>, n, THREADS, 0, call->stream, batch);
            n = deal(gw_low_blocks, 1);
            GW_LAUNCH(gw_low_sum_kernel<B>, n, THREADS, 0, call->stream, batch);
        }
    }
};

static gw_status encode(const gw_cuda_call *call, const gw_cuda_source *tensors, size_t n,
                        gw_why *why)
{
    const gw_low s = shape_of(call->value);
    const uint32_t point = UINT32_MAX - 1;
    int small = 1;
    for (size_t i = 0; i < n; i++) {
        small &= tensors[i].in.count <= GW_LOW_SMALL;
    }
    if (small) {
        gw_select_encode(s, call, tensors, n, workspace, gw_low_small_in, run_small{call}, point);
    } else {
        gw_select_encode(s, call, tensors, n, workspace, gw_low_places_in, run_encode{call}, point);
    }
    return gw_cuda_launched(why, "lowrank");
}

static gw_status decode(const gw_cuda_call *call, const gw_cuda_sink *tensors, size_t n,
                        gw_why *why)
{
    gw_select_decode(shape_of(call->value), call, tensors, n, workspace, run_decode{call});
    return gw_cuda_launched(why, "lowrank");
}

} // namespace

extern "C" const gw_cuda_codec gw_cuda_codec_lowrank = {workspace, encode, decode, NULL, NULL};
