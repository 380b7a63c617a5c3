/* lowrank on the device, in rounds of sums (cuda.h): the work of lowrank.cu, cut where the ranks meet.
 *   make 0:  Q0, the last step's Q or seeded numbers; G to r′; P_own = G · Q0ᵀ
 *   take 0:  P̂ of the ranks' P
 *   make 1:  Q_own = P̂ᵀ · G
 *   take 1:  r′ = G − P̂ · Q_own; Q is the next state
 *   decode:  P̂ · Q
 * From call to call the factors lie in the workspace as a payload has them, P̂ and Q_own; then Q in its place. A tensor that
 * is sent as it is has its numbers there. */
#include "codec/lowrank/cuda_lowrank_right.h"

/* Names of templates are the linker's business too: they stay in this file. */
namespace
{
enum { RANK, COLS };
enum { THREADS = GW_LOW_THREADS };
enum { PRODUCERS = 512, ORTHO_THREADS = PRODUCERS + GW_LOW_ADDERS };

typedef gw_select_batch<gw_low, gw_low_places, 1> low_batch;
typedef gw_select_sinks<gw_low, 1, 16> low_sinks;

/* ---- the kernels ---- */

/* A row of Q0 is a block's: the state's, or, where that is gone, seeded numbers; behind the rank zeros. The first block clears
 * what the others count in. `found`: what a survey would have found in the factors, nothing. */
__global__ void __launch_bounds__(THREADS)
    begin_kernel(const __grid_constant__ low_batch batch, const float *state, uint4 *found)
{
    const gw_select_in &t = batch.tensor[0];
    const gw_low_places &p = batch.layout[0];
    const uint64_t cols = p.m.cols;
    const uint32_t k = blockIdx.x;
    if (k == 0 && threadIdx.x == 0) {
        *p.at = {0, 0, 0, 0};
        *found = make_uint4(0, 0, 0, 0);
        gw_leave_u32(t.payload, p.m.rank);
        gw_leave_u32(t.payload + 4, (uint32_t)cols);
    }
    for (uint32_t i = threadIdx.x; k == 0 && i < gw_low_chunks(p.m) * p.wide; i += THREADS) {
        p.tickets[i] = 0;
    }
    if (p.m.rank == 0) {
        return;
    }
    uint32_t top = 0; /* 0: all are */
    for (uint64_t j = threadIdx.x; k < p.m.rank && j < cols; j += THREADS) {
        const uint32_t a = gw_bits(state[k * cols + j]) & GW_ABS_MASK;
        top = a > top ? a : top;
    }
    const int any = __syncthreads_or(top != 0), odd = __syncthreads_or(top >= GW_INF_BITS);
    for (uint64_t j = threadIdx.x; j < cols; j += THREADS) {
        const uint64_t i = k * cols + j;
        const uint32_t word = gw_random_word(gw_random_pair_at(t.common, i << 1), (uint32_t)i);
        p.start[i] = k >= p.m.rank ? 0
                     : !any || odd ? (float)((int32_t)word >> 8) * 0x1p-23f
                                   : state[i];
    }
}

__global__ void __launch_bounds__(THREADS, 4) left_kernel(const __grid_constant__ low_batch batch)
{
    const gw_select_in &t = batch.tensor[0];
    const gw_low_places &p = batch.layout[0];
    if (p.m.rank == 0) {
        gw_low_copy(t, batch.dtype, blockIdx.x, gw_low_left_blocks(p.m));
    }
    gw_low_left(t, p, batch.dtype, blockIdx.x);
}

/* P_own out of its columns. That it is not finite was this rank's fault; whether P is remains to be seen. */
__global__ void __launch_bounds__(THREADS)
    own_kernel(const __grid_constant__ low_batch batch, float *own)
{
    const gw_select_in &t = batch.tensor[0];
    const gw_low_places &p = batch.layout[0];
    const uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < p.m.rank * p.m.rows) {
        own[i] = (float)p.columns[i % p.m.rank * p.m.rows + i / p.m.rank];
    }
    if (i == 0) {
        if (p.at->bad_left != 0 && p.at->non_finite == 0) {
            t.result->overflowed += t.count; /* in the product, which spoils all */
        }
        p.at->bad_left = 0;
    }
}

__global__ void __launch_bounds__(THREADS)
    sum_kernel(const __grid_constant__ low_batch batch, const float *sum)
{
    const gw_low_places &p = batch.layout[0];
    const uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < p.m.rank * p.m.rows) {
        const float v = sum[i];
        p.columns[i % p.m.rank * p.m.rows + i / p.m.rank] = (double)v;
        if (gw_low_odd(v)) {
            p.at->bad_left = 1;
        }
    }
}

__global__ void __launch_bounds__(ORTHO_THREADS)
    columns_kernel(const __grid_constant__ low_batch batch)
{
    __shared__ gw_low_ortho_room<PRODUCERS> room;
    gw_low_columns(room, batch.tensor[0], batch.layout[0]);
}

__global__ void __launch_bounds__(THREADS, 4) right_kernel(const __grid_constant__ low_batch batch)
{
    gw_low_right(batch.tensor[0], batch.layout[0], batch.dtype, blockIdx.x);
}

__global__ void __launch_bounds__(THREADS, 3) finish_kernel(const __grid_constant__ low_batch batch)
{
    gw_low_finish(batch.tensor[0], batch.layout[0], blockIdx.x);
}

/* ---- the host's side ---- */

static gw_low shape_of(const double *value)
{
    const gw_low s = {(uint32_t)value[RANK], (uint64_t)value[COLS], {}};
    return s;
}

/* Behind what encoding needs: what was found, results that nobody reads, and the factors. */
struct workbench {
    uint4 *found;
    gw_cuda_result *unread;
    uint8_t *payload;
    size_t bytes; /* of all, `room` included */

    workbench(uint8_t *room, const gw_matrix &m)
    {
        size_t used = 0;
        (void)gw_low_lay_out(room, m, &used);
        used = gw_cuda_aligned(used);
        found = (uint4 *)(room + used);
        unread = (gw_cuda_result *)(room + used + 64);
        payload = room + used + 256;
        const uint64_t numbers = m.rank != 0 ? m.rank * (m.rows + m.cols) : m.count;
        bytes = used + 256 + GW_LOW_HEADER + 4 * (size_t)numbers;
    }
};

static size_t workspace(const double *value, size_t count)
{
    return workbench(NULL, gw_matrix_of((uint32_t)value[RANK], (uint64_t)value[COLS], count)).bytes;
}

static size_t no_more(const double *, gw_dtype, size_t, int)
{
    return 0;
}

/* An exchange, as kernels of one tensor want it. */
struct exchange {
    gw_cuda_call call;
    gw_matrix m;
    workbench bench;
    cudaStream_t stream;

    explicit exchange(const gw_cuda_rounds *x)
        : call(), m(gw_matrix_of((uint32_t)x->params->value[RANK], (uint64_t)x->params->value[COLS],
                                 x->in.count)),
          bench((uint8_t *)x->workspace.data, m), stream((cudaStream_t)x->stream)
    {
        call.stream = x->stream;
        call.value = x->params->value;
        call.dtype = x->in.dtype;
        call.feedback = x->residual != NULL;
    }

    gw_select_part<gw_low, gw_low_places, 1> part(const gw_cuda_rounds *x,
                                                  gw_cuda_result *result) const
    {
        gw_cuda_source source = {};
        const size_t bytes = 0;
        source.in = x->in;
        source.residual = x->residual;
        source.residual_after = x->residual_after;
        source.key = x->key;
        source.payload = bench.payload;
        source.result = result;
        return gw_select_part<gw_low, gw_low_places, 1>(shape_of(call.value), &call, &source,
                                                        &bytes, 1, (uint8_t *)x->workspace.data,
                                                        no_more, gw_low_places_in, UINT32_MAX - 1);
    }

    /* Where the numbers of the last round lie. */
    uint8_t *last(void) const
    {
        return bench.payload + GW_LOW_HEADER + 4 * (size_t)(m.rank * m.rows);
    }
    size_t last_bytes(void) const
    {
        return 4 * (size_t)(m.rank != 0 ? m.rank * m.cols : m.count);
    }
};

static uint32_t blocks_of(uint64_t n)
{
    return (uint32_t)gw_cuda_ceil_div(n, THREADS);
}

static gw_status copy(void *to, const void *from, size_t bytes, cudaStream_t stream, gw_why *why)
{
    const cudaError_t error = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
    if (error != cudaSuccess && why != NULL) {
        (void)snprintf(why->text, sizeof why->text, "lowrank: a copy: %s",
                       cudaGetErrorString(error));
    }
    return error == cudaSuccess ? GW_OK : GW_ERR_SYSTEM;
}

static gw_status make(const gw_cuda_rounds *x, unsigned round, float *own, gw_why *why)
{
    const exchange e(x);
    const auto part = e.part(x, round == 0 ? x->result : e.bench.unread);
    const gw_low_places &p = part.batch.layout[0];
    if (round == 0) {
        const uint32_t rows = GW_LOW_CHUNK * gw_low_chunks(e.m);
        GW_LAUNCH(begin_kernel, rows == 0 ? 1 : rows, THREADS, 0, x->stream, part.batch, x->state,
                  e.bench.found);
        GW_LAUNCH(left_kernel, gw_low_left_blocks(e.m), THREADS, 0, x->stream, part.batch);
    }
    if (round == 0 && e.m.rank != 0) {
        GW_LAUNCH(own_kernel, blocks_of(e.m.rank * e.m.rows), THREADS, 0, x->stream, part.batch,
                  own);
        return gw_cuda_launched(why, "lowrank");
    }
    if (round != 0) {
        GW_LAUNCH(right_kernel, gw_low_right_blocks(p), THREADS, 0, x->stream, part.batch);
    }
    const gw_status status = gw_cuda_launched(why, "lowrank");
    return status == GW_OK ? copy(own, e.last(), e.last_bytes(), e.stream, why) : status;
}

static gw_status take(const gw_cuda_rounds *x, unsigned round, const float *sum, gw_why *why)
{
    const exchange e(x);
    const auto part = e.part(x, e.bench.unread);
    if (e.m.rank == 0) {
        return GW_OK;
    }
    if (round == 0) {
        GW_LAUNCH(sum_kernel, blocks_of(e.m.rank * e.m.rows), THREADS, 0, x->stream, part.batch,
                  sum);
        GW_LAUNCH(columns_kernel, 1, ORTHO_THREADS, 0, x->stream, part.batch);
        return gw_cuda_launched(why, "lowrank");
    }
    if (x->residual_after != NULL) {
        GW_LAUNCH(finish_kernel, gw_low_blocks(e.m), THREADS, 0, x->stream, part.batch);
    }
    const gw_status status = gw_cuda_launched(why, "lowrank");
    return status == GW_OK ? copy(x->state_after, sum, e.last_bytes(), e.stream, why) : status;
}

static gw_status decode(const gw_cuda_rounds *x, const float *sum, gw_apply how, uint32_t divisor,
                        const gw_tensor *out, gw_cuda_result *result, gw_why *why)
{
    exchange e(x);
    const size_t bytes = 0;
    const gw_cuda_payload payload = {e.bench.payload, 0, NULL};
    const gw_cuda_sink sink = {&payload, 1, *out, how, divisor, result};
    gw_low s = shape_of(e.call.value);
    s.first = e.m;
    e.call.dtype = out->dtype;
    const gw_select_sink_part<gw_low, 1, 16> part(s, &e.call, &sink, &bytes, 1,
                                                  (uint8_t *)e.bench.found, no_more);
    const gw_status status = copy(e.last(), sum, e.last_bytes(), e.stream, why);
    if (status != GW_OK) {
        return status;
    }
    GW_LAUNCH(gw_low_sum_kernel<low_sinks>, gw_low_blocks(e.m), THREADS, 0, x->stream, part.batch);
    return gw_cuda_launched(why, "lowrank");
}

} // namespace

extern "C" const gw_cuda_codec_rounds gw_cuda_rounds_lowrank;
extern "C" const gw_cuda_codec_rounds gw_cuda_rounds_lowrank = {workspace, make, take, decode};
