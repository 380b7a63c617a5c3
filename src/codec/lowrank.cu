/* lowrank on the device, alone: a payload of one rank's factors.
 *   start:   Q0, the seeded numbers
 *   left:    P = G · Q0ᵀ. Reads g and r once and writes G to r′. A block takes 8 rows, so that Q0 is read once for all.
 *   columns: P̂, one block a tensor; the order of its sums is laid down
 *   right, gather: Q = P̂ᵀ · G, by parts of the rows, added up in order
 *   finish:  payload and r′ = G − P̂ · Q
 * Matrices are walked by columns side by side in a block's threads. */
#include "codec/cuda_lowrank.h"

/* Names of templates are the linker's business too: they stay in this file. */
namespace
{
enum { RANK, COLS };
enum { THREADS = 256, CHUNK = GW_LOW_CHUNK, ROWS = GW_LOW_ROWS, WIDE = GW_LOW_WIDE };
enum { ORTHO_THREADS = 512, STAGE = 2048, PARTS_BLOCKS = 528, LEAST_ROWS = 32 };

typedef struct state {
    uint64_t non_finite;          /* of G */
    uint32_t bad_left, bad_right; /* is a product not finite? */
} state;

typedef struct places {
    state *at;
    gw_matrix m;
    double *columns;
    float *start, *left, *right, *parts;
    uint32_t n_parts, wide; /* parts of the rows; tiles of the columns */
    uint64_t part_rows;
} places;

static places places_in(uint8_t *room, const gw_low &s, uint64_t count, size_t *bytes)
{
    places p;
    p.m = gw_matrix_of(s.rank, s.cols, count);
    const uint64_t rank = p.m.rank, rows = p.m.rows, cols = p.m.cols;
    p.wide = (uint32_t)((cols + WIDE - 1) / WIDE);
    const uint64_t wanted = p.wide != 0 ? PARTS_BLOCKS / p.wide + 1 : 1;
    const uint64_t most = (rows + LEAST_ROWS - 1) / LEAST_ROWS;
    const uint64_t parts = rank == 0 || rows == 0 ? 1 : wanted < most ? wanted : most;
    p.part_rows = (rows + parts - 1) / parts;
    p.n_parts = p.part_rows == 0 ? 1 : (uint32_t)((rows + p.part_rows - 1) / p.part_rows);
    p.at = (state *)room;
    p.columns = (double *)(room + 256);
    p.start = (float *)(p.columns + rank * rows);
    p.left = p.start + rank * cols;
    p.right = p.left + rank * rows;
    p.parts = p.right + rank * cols;
    *bytes = 256 + 12 * (size_t)(rank * rows) + 8 * (size_t)(rank * cols) +
             4 * (size_t)(p.n_parts * rank * cols);
    return p;
}

GW_DEVICE int is_odd(float x)
{
    return (gw_bits(x) & GW_ABS_MASK) >= GW_INF_BITS;
}

/* G, where it was summed already. */
GW_DEVICE float read_again(const gw_select_in &t, gw_dtype dtype, uint64_t i)
{
    return t.after != NULL ? t.after[i] : gw_one(t.in, dtype, i);
}

GW_DEVICE float read_first(const gw_select_in &t, gw_dtype dtype, uint64_t i)
{
    const float g = gw_one(t.in, dtype, i);
    return t.residual != NULL ? g + t.residual[i] : g;
}

/* ---- start ---- */

template <int N>
__global__ void __launch_bounds__(THREADS)
    start_kernel(const __grid_constant__ gw_select_batch<gw_low, places, N> batch)
{
    uint32_t number;
    const uint32_t which = gw_select_find(batch, &number);
    const gw_select_in &t = batch.tensor[which];
    const places &p = batch.layout[which];
    const uint64_t i = (uint64_t)number * THREADS + threadIdx.x;
    if (i == 0) {
        *p.at = {0, 0, 0};
        t.result->written = t.bytes;
        gw_leave_u32(t.payload, p.m.rank);
        gw_leave_u32(t.payload + 4, (uint32_t)p.m.cols);
    }
    if (i < p.m.rank * p.m.cols) {
        const uint32_t word = gw_random_word(gw_random_pair_at(t.common, i << 1), (uint32_t)i);
        p.start[i] = (float)((int32_t)word >> 8) * 0x1p-23f;
    }
}

/* ---- left ---- */

/* Every thread has 32 numbers; thread v < 32 gets the sum of all threads' number v. */
GW_DEVICE float sum_block(const float mine[ROWS * CHUNK])
{
    enum { PITCH = THREADS + 1, EIGHTH = THREADS / 8 };
    static_assert(ROWS * CHUNK == 32, "a warp's worth of sums");
    __shared__ float some[ROWS * CHUNK * PITCH], eighths[THREADS];
    float sum = 0;
#pragma unroll
    for (uint32_t v = 0; v < ROWS * CHUNK; v++) {
        some[v * PITCH + threadIdx.x] = mine[v];
    }
    __syncthreads();
    for (uint32_t i = 0; i < EIGHTH; i++) {
        sum += some[threadIdx.x % 32 * PITCH + threadIdx.x / 32 * EIGHTH + i];
    }
    eighths[threadIdx.x] = sum;
    __syncthreads();
    sum = 0;
    for (uint32_t i = 0; i < 8 && threadIdx.x < 32; i++) {
        sum += eighths[32 * i + threadIdx.x];
    }
    return sum; /* the next call's first barrier stands between these readings and its second writings */
}

/* P of 8 rows and up to 4 columns of Q0, from column `k` on. The first time, G is formed. */
GW_DEVICE void left_rows(const gw_select_in &t, const places &p, gw_dtype dtype, uint64_t row,
                         uint32_t k)
{
    float sum[ROWS * CHUNK] = {};
    uint64_t odd = 0;
    for (uint64_t c = threadIdx.x; c < p.m.cols; c += THREADS) {
        float q[CHUNK], G[ROWS];
#pragma unroll
        for (uint32_t r = 0; r < ROWS; r++) {
            const uint64_t i = (row + r) * p.m.cols + c;
            const int in = row + r < p.m.rows && i < p.m.count;
            G[r] = !in ? 0.0f : k == 0 ? read_first(t, dtype, i) : read_again(t, dtype, i);
        }
#pragma unroll
        for (uint32_t j = 0; j < CHUNK; j++) {
            q[j] = k + j < p.m.rank ? p.start[(k + j) * p.m.cols + c] : 0.0f;
        }
#pragma unroll
        for (uint32_t r = 0; r < ROWS; r++) {
            const uint64_t i = (row + r) * p.m.cols + c;
            if (k == 0 && t.after != NULL && row + r < p.m.rows && i < p.m.count) {
                t.after[i] = G[r];
            }
            odd += k == 0 && is_odd(G[r]);
#pragma unroll
            for (uint32_t j = 0; j < CHUNK; j++) {
                sum[r * CHUNK + j] = fmaf(G[r], q[j], sum[r * CHUNK + j]);
            }
        }
    }
    gw_count(&p.at->non_finite, odd);
    gw_count(&t.result->non_finite, odd);
    const float all = sum_block(sum);
    const uint64_t to = row + threadIdx.x / CHUNK;
    const uint32_t column = k + threadIdx.x % CHUNK;
    if (threadIdx.x < ROWS * CHUNK && to < p.m.rows && column < p.m.rank) {
        p.left[to * p.m.rank + column] = all;
        if (is_odd(all)) {
            p.at->bad_left = 1;
        }
    }
}

/* A tensor that is sent as it is. */
GW_DEVICE void copy_whole(const gw_select_in &t, gw_dtype dtype, uint32_t number, uint32_t blocks)
{
    uint64_t odd = 0;
    for (uint64_t i = (uint64_t)number * THREADS + threadIdx.x; i < t.count;
         i += (uint64_t)blocks * THREADS) {
        const float G = read_first(t, dtype, i);
        odd += is_odd(G);
        gw_leave_u32(t.payload + GW_LOW_HEADER + 4 * i, gw_bits(G));
        if (t.after != NULL) {
            t.after[i] = 0;
        }
    }
    gw_count(&t.result->non_finite, odd);
}

static __host__ __device__ inline uint32_t left_blocks(const gw_matrix &m)
{
    return m.rows == 0 ? 1 : (uint32_t)((m.rows + ROWS - 1) / ROWS);
}

template <int N>
__global__ void __launch_bounds__(THREADS, 3)
    left_kernel(const __grid_constant__ gw_select_batch<gw_low, places, N> batch)
{
    uint32_t number;
    const uint32_t which = gw_select_find(batch, &number);
    const gw_select_in &t = batch.tensor[which];
    const places &p = batch.layout[which];
    if (p.m.rank == 0) {
        copy_whole(t, batch.dtype, number, left_blocks(p.m));
    }
    for (uint32_t k = 0; k < p.m.rank; k += CHUNK) {
        left_rows(t, p, batch.dtype, (uint64_t)number * ROWS, k);
    }
}

/* ---- columns ---- */

/* gw_lowrank_dot: products by all warps but the first, a stage ahead of the 16 threads that add them up. */
GW_DEVICE double dot(const double *a, const double *b, uint64_t n)
{
    __shared__ double stage[2][STAGE], lanes[GW_LOWRANK_LANES];
    double sum = 0;
    const uint64_t stages = (n + STAGE - 1) / STAGE;
    for (uint64_t s = 0; s <= stages; s++) {
        if (threadIdx.x >= 32 && s < stages) {
            for (uint32_t i = threadIdx.x - 32; i < STAGE; i += ORTHO_THREADS - 32) {
                const uint64_t at = s * STAGE + i;
                stage[s % 2][i] = at < n ? a[at] * b[at] : 0;
            }
        }
        if (threadIdx.x < GW_LOWRANK_LANES && s > 0) {
            const uint64_t done = (s - 1) * STAGE, left = n - done;
            const uint32_t end = left < STAGE ? (uint32_t)left : (uint32_t)STAGE;
#pragma unroll 8
            for (uint32_t i = threadIdx.x; i < end; i += GW_LOWRANK_LANES) {
                sum += stage[(s - 1) % 2][i];
            }
        }
        __syncthreads();
    }
    if (threadIdx.x < GW_LOWRANK_LANES) {
        lanes[threadIdx.x] = sum;
    }
    __syncthreads();
    for (uint32_t half = GW_LOWRANK_LANES / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) {
            lanes[threadIdx.x] += lanes[threadIdx.x + half];
        }
        __syncthreads();
    }
    const double all = lanes[0];
    __syncthreads();
    return all;
}

/* gw_lowrank_orthogonal */
GW_DEVICE void orthogonal(double *columns, uint64_t rows, uint32_t rank)
{
    for (uint32_t k = 0; k < rank; k++) {
        double *v = columns + k * rows;
        const double before = sqrt(dot(v, v, rows));
        for (uint32_t pass = 0; pass < 2 * k; pass++) {
            const double *u = columns + pass % k * rows;
            const double share = dot(u, v, rows);
            for (uint64_t i = threadIdx.x; i < rows; i += ORTHO_THREADS) {
                v[i] -= share * u[i];
            }
            __syncthreads();
        }
        const double after = sqrt(dot(v, v, rows));
        const int spanned = !(after > 0x1p-20 * before);
        const double unit = spanned ? 0 : 1 / after;
        for (uint64_t i = threadIdx.x; i < rows; i += ORTHO_THREADS) {
            v[i] = spanned ? 0 : v[i] * unit;
        }
        __syncthreads();
    }
}

template <int N>
__global__ void __launch_bounds__(ORTHO_THREADS)
    columns_kernel(const __grid_constant__ gw_select_batch<gw_low, places, N> batch)
{
    const places &p = batch.layout[blockIdx.x];
    const uint64_t rows = p.m.rows, n = p.m.rank * rows;
    if (p.at->bad_left != 0) {
        return;
    }
    for (uint64_t i = threadIdx.x; i < n; i += ORTHO_THREADS) {
        p.columns[i % p.m.rank * rows + i / p.m.rank] = (double)p.left[i];
    }
    __syncthreads();
    orthogonal(p.columns, rows, p.m.rank);
    for (uint64_t i = threadIdx.x; i < n; i += ORTHO_THREADS) {
        p.left[i] = (float)p.columns[i % p.m.rank * rows + i / p.m.rank];
    }
}

/* ---- right ---- */

static __host__ __device__ inline uint32_t right_blocks(const places &p)
{
    const uint32_t chunks = (p.m.rank + CHUNK - 1) / CHUNK;
    return p.m.rank == 0 ? 1 : chunks * p.wide * p.n_parts;
}

/* Q of a part of the rows, 1024 columns and 4 of the rank. */
template <int N>
__global__ void __launch_bounds__(THREADS)
    right_kernel(const __grid_constant__ gw_select_batch<gw_low, places, N> batch)
{
    uint32_t number;
    const uint32_t which = gw_select_find(batch, &number);
    const gw_select_in &t = batch.tensor[which];
    const places &p = batch.layout[which];
    if (p.m.rank == 0 || p.at->bad_left != 0) {
        return;
    }
    const uint32_t part = number % p.n_parts, wide = number / p.n_parts % p.wide;
    const uint32_t k = number / p.n_parts / p.wide * CHUNK;
    const uint64_t first = part * p.part_rows, cols = p.m.cols;
    const uint64_t end = first + p.part_rows < p.m.rows ? first + p.part_rows : p.m.rows;
    float sum[CHUNK][4] = {};
#pragma unroll 4
    for (uint64_t row = first; row < end; row++) {
        float left[CHUNK];
#pragma unroll
        for (uint32_t j = 0; j < CHUNK; j++) {
            left[j] = k + j < p.m.rank ? p.left[row * p.m.rank + k + j] : 0.0f;
        }
#pragma unroll
        for (uint32_t q = 0; q < 4; q++) {
            const uint64_t c = (uint64_t)wide * WIDE + q * THREADS + threadIdx.x;
            const uint64_t i = row * cols + c;
            const float G = c < cols && i < p.m.count ? read_again(t, batch.dtype, i) : 0.0f;
#pragma unroll
            for (uint32_t j = 0; j < CHUNK; j++) {
                sum[j][q] = fmaf(left[j], G, sum[j][q]);
            }
        }
    }
#pragma unroll
    for (uint32_t j = 0; j < CHUNK; j++) {
#pragma unroll
        for (uint32_t q = 0; q < 4; q++) {
            const uint64_t c = (uint64_t)wide * WIDE + q * THREADS + threadIdx.x;
            if (c < cols && k + j < p.m.rank) {
                p.parts[((uint64_t)part * p.m.rank + k + j) * cols + c] = sum[j][q];
            }
        }
    }
}

template <int N>
__global__ void __launch_bounds__(THREADS)
    gather_kernel(const __grid_constant__ gw_select_batch<gw_low, places, N> batch)
{
    uint32_t number;
    const uint32_t which = gw_select_find(batch, &number);
    const places &p = batch.layout[which];
    const uint64_t n = p.m.rank * p.m.cols, i = (uint64_t)number * THREADS + threadIdx.x;
    if (i >= n || p.at->bad_left != 0) {
        return;
    }
    float sum = 0;
#pragma unroll 8
    for (uint32_t part = 0; part < p.n_parts; part++) {
        sum += p.parts[part * n + i];
    }
    p.right[i] = sum;
    if (is_odd(sum)) {
        p.at->bad_right = 1;
    }
}

/* ---- finish ---- */

/* The factors, or NaN in place of all of them. */
GW_DEVICE void put_factors(const gw_select_in &t, const places &p, uint32_t number, uint32_t blocks,
                           int bad)
{
    const uint64_t n_left = p.m.rank * p.m.rows, n = n_left + p.m.rank * p.m.cols;
    uint8_t *to = t.payload + GW_LOW_HEADER;
    for (uint64_t i = (uint64_t)number * THREADS + threadIdx.x; i < n;
         i += (uint64_t)blocks * THREADS) {
        const float v = i < n_left ? p.left[i] : p.right[i - n_left];
        gw_leave_u32(to + 4 * i, bad ? GW_NAN_BITS : gw_bits(v));
    }
}

template <int N>
__global__ void __launch_bounds__(THREADS)
    finish_kernel(const __grid_constant__ gw_select_batch<gw_low, places, N> batch)
{
    uint32_t number;
    const uint32_t which = gw_select_find(batch, &number);
    const gw_select_in &t = batch.tensor[which];
    const places &p = batch.layout[which];
    if (p.m.rank == 0) {
        return;
    }
    const int bad = p.at->bad_left != 0 || p.at->bad_right != 0;
    put_factors(t, p, number, gw_low_blocks(p.m), bad);
    if (number == 0 && threadIdx.x == 0 && bad && p.at->non_finite == 0) {
        t.result->overflowed += t.count; /* in a product, which spoils all */
    }
    if (t.after == NULL || bad) { /* then r′ is not to be kept */
        return;
    }
    float value[ROWS][4];
    const gw_low_tile at = gw_low_tile_of(p.m, number);
    gw_low_product(value, p.m, at, (const uint8_t *)p.left, (const uint8_t *)p.right);
#pragma unroll
    for (uint32_t r = 0; r < ROWS; r++) {
#pragma unroll
        for (uint32_t q = 0; q < 4; q++) {
            const uint64_t i = gw_low_index(p.m, at, r, q);
            if (i < p.m.count) {
                t.after[i] = t.after[i] - value[r][q];
            }
        }
    }
}

/* ---- the host's side ---- */

static gw_low shape_of(const double *value)
{
    const gw_low s = {(uint32_t)value[RANK], (uint64_t)value[COLS]};
    return s;
}

static size_t workspace(const double *value, gw_dtype dtype, size_t count, int feedback)
{
    (void)dtype, (void)feedback;
    size_t encoding = 0;
    (void)places_in(NULL, shape_of(value), count, &encoding);
    const size_t decoding = GW_CUDA_MAX_PAYLOADS * sizeof(gw_low_survey);
    return encoding > decoding ? encoding : decoding;
}

struct run_encode {
    const gw_cuda_call *call;

    template <int N> void operator()(gw_select_part<gw_low, places, N> &part) const
    {
        const gw_low s = part.batch.s;
        const auto shape = [&](uint64_t count) {
            size_t unused;
            return places_in(NULL, s, count, &unused);
        };
        const auto right_side = [&](uint64_t count) {
            const gw_matrix m = shape(count).m;
            return gw_tiles_of(m.rank * m.cols, THREADS);
        };
        uint32_t blocks = part.deal(right_side);
        GW_LAUNCH(start_kernel<N>, blocks, THREADS, 0, call->stream, part.batch);
        blocks = part.deal([&](uint64_t count) { return left_blocks(shape(count).m); });
        GW_LAUNCH(left_kernel<N>, blocks, THREADS, 0, call->stream, part.batch);
        GW_LAUNCH(columns_kernel<N>, part.batch.n, ORTHO_THREADS, 0, call->stream, part.batch);
        blocks = part.deal([&](uint64_t count) { return right_blocks(shape(count)); });
        GW_LAUNCH(right_kernel<N>, blocks, THREADS, 0, call->stream, part.batch);
        blocks = part.deal(right_side);
        GW_LAUNCH(gather_kernel<N>, blocks, THREADS, 0, call->stream, part.batch);
        blocks = part.deal([&](uint64_t count) { return gw_low_blocks(shape(count).m); });
        GW_LAUNCH(finish_kernel<N>, blocks, THREADS, 0, call->stream, part.batch);
    }
};

struct run_decode {
    const gw_cuda_call *call;

    template <class P> void operator()(P &part) const
    {
        typedef decltype(part.batch) B;
        const B &batch = part.batch;
        GW_LAUNCH(gw_low_clear_kernel<B>, batch.n, THREADS, 0, call->stream, batch);
        uint32_t blocks =
            part.deal([&](uint64_t) { return batch.n_payloads * GW_LOW_SURVEY_BLOCKS; });
        GW_LAUNCH(gw_low_survey_kernel<B>, blocks, THREADS, 0, call->stream, batch);
        blocks = part.deal([&](uint64_t count) {
            return gw_low_blocks(gw_matrix_of(batch.s.rank, batch.s.cols, count));
        });
        GW_LAUNCH(gw_low_sum_kernel<B>, blocks, THREADS, 0, call->stream, batch);
    }
};

static gw_status encode(const gw_cuda_call *call, const gw_cuda_source *tensors, size_t n,
                        gw_why *why)
{
    gw_select_encode(shape_of(call->value), call, tensors, n, workspace, places_in,
                     run_encode{call}, UINT32_MAX - 1);
    return gw_cuda_launched(why, "lowrank");
}

static gw_status decode(const gw_cuda_call *call, const gw_cuda_sink *tensors, size_t n,
                        gw_why *why)
{
    gw_select_decode(shape_of(call->value), call, tensors, n, workspace, run_decode{call});
    return gw_cuda_launched(why, "lowrank");
}

} // namespace

extern "C" const gw_cuda_codec gw_cuda_codec_lowrank = {workspace, encode, decode};
