/* topk.cu's kernel for tensors that one block can hold, inside of its namespace: all that the others do, without them. A warp owns
 * rows of 128 numbers in a row, four a lane. */

enum { SMALL = 16384, SMALL_ROWS = SMALL / (4 * GW_VALUES_THREADS), SMALL_OWN = 4 * SMALL_ROWS };

static __host__ __device__ inline int is_small(const gw_topk &s, uint64_t count)
{
    return count <= SMALL && gw_kept_of(s.density, count) <= GW_VALUES_RUN;
}

/* How many of a lane's marks lie in each of its rows, a byte a row: marks are bits 8 * row + 0 to 3. */
GW_DEVICE uint32_t marks_a_row(uint32_t marks)
{
    const uint32_t pairs = marks - (marks >> 1 & 0x05050505u);
    return (pairs & 0x03030303u) + (pairs >> 2 & 0x03030303u);
}

/* Marks of a warp in order of index. before: of the lanes before this one, in each row; all: of all lanes. */
typedef struct rows {
    uint32_t marks, before, all;
} rows;

GW_DEVICE rows rows_of(uint32_t marks)
{
    rows r;
    r.marks = marks;
    r.before = gw_warp_before(marks_a_row(marks), &r.all);
    return r;
}

/* How many marks lie before a bit of this lane, which need not be one. */
GW_DEVICE uint32_t marks_before(const rows &r, uint32_t bit)
{
    const uint32_t row = bit & 24, below = gw_bits_below(row);
    return gw_sum_bytes(r.all & below) + (r.before >> row & 255) +
           (uint32_t)__popc(r.marks & gw_bits_below(bit) & ~below);
}

/* The lane's row q. */
GW_DEVICE uint32_t small_at(uint32_t n_rows, uint32_t q)
{
    return (threadIdx.x / 32 * n_rows + q) * 128 + threadIdx.x % 32 * 4;
}

/* G of the lane's numbers, by magnitude; 0 behind the end. */
template <int FEEDBACK>
GW_DEVICE void small_read(uint32_t a[SMALL_OWN], const gw_select_in &t, gw_dtype dtype,
                          uint32_t n_rows)
{
    const uint32_t m = (uint32_t)t.count;
    const int whole = gw_quads_aligned(t, dtype);
    uint32_t odd = 0;
#pragma unroll
    for (uint32_t q = 0; q < SMALL_ROWS; q++) {
        const uint32_t i = small_at(n_rows, q), left = q < n_rows && i < m ? m - i : 0;
        float x[4], r[4];
        gw_read_four(x, t.in, dtype, i, left, whole && left >= 4);
        if (FEEDBACK) {
            gw_read_four(r, t.residual, GW_F32, i, left, whole && left >= 4);
        }
#pragma unroll
        for (int c = 0; c < 4; c++) {
            x[c] = FEEDBACK ? x[c] + r[c] : x[c];
            a[4 * q + c] = magnitude(x[c]);
            odd += a[4 * q + c] >= GW_INF_BITS;
        }
        if (FEEDBACK) {
            gw_write_four(x, t.after, i, left, whole && left >= 4);
        }
    }
    gw_count(&t.result->non_finite, odd);
}

/* The cell of the k-th magnitude alone. */
GW_DEVICE cell small_cell(uint32_t *cells, const uint32_t a[SMALL_OWN], uint32_t m, uint32_t n_rows,
                          uint32_t kept)
{
    cell c = {0, 31, kept, 1};
    while (c.bits != 0) {
        for (uint32_t i = threadIdx.x; i < RADIX; i += GW_VALUES_THREADS) {
            cells[i] = 0;
        }
        __syncthreads();
#pragma unroll
        for (uint32_t i = 0; i < SMALL_OWN; i++) {
            if (i / 4 < n_rows && small_at(n_rows, i / 4) + i % 4 < m) {
                add_cell(cells, c, a[i]);
            }
        }
        __syncthreads();
        c = narrow(c, cells);
    }
    return c;
}

/* The chosen of four rows, from list entry so_far.x on; so_far.y ties were before. Returns what is so far behind them. */
GW_DEVICE uint2 small_put(entries &e, const gw_select_in &t, gw_dtype dtype, const rows &above,
                          const rows &ties, uint32_t first, uint2 so_far, uint32_t need)
{
    for (uint32_t left = above.marks | ties.marks; left != 0; left &= left - 1) {
        const uint32_t bit = gw_lowest(left), i = first + (bit >> 3) * 128 + (bit & 7);
        const uint2 before =
            make_uint2(so_far.x + marks_before(above, bit), so_far.y + marks_before(ties, bit));
        if ((above.marks >> bit & 1) != 0 || before.y < need) {
            const uint32_t j = chosen_of(before, need);
            e.index[EARLIER + j] = i;
            e.value[j] = read_again(t, dtype, i);
        }
    }
    return make_uint2(so_far.x + gw_sum_bytes(above.all), so_far.y + gw_sum_bytes(ties.all));
}

template <int N, int FEEDBACK>
__global__ void __launch_bounds__(GW_VALUES_THREADS, 2)
    small_kernel(const __grid_constant__ gw_select_batch<gw_topk, plan, N> batch)
{
    enum { HALVES = SMALL_ROWS / 4, ROW_WARPS = GW_VALUES_THREADS / 32 };
    __shared__ entries e;
    __shared__ uint2 of_warps[ROW_WARPS];
    uint32_t unused;
    const uint32_t which = gw_select_find(batch, &unused), warp = threadIdx.x / 32;
    const gw_select_in &t = batch.tensor[which];
    const uint32_t m = (uint32_t)t.count,
                   n_rows = (m + 4 * GW_VALUES_THREADS - 1) / (4 * GW_VALUES_THREADS);
    uint32_t a[SMALL_OWN];
    if (threadIdx.x == 0) {
        t.result->written = t.bytes;
    }
    if (m == 0) {
        return;
    }
    small_read<FEEDBACK>(a, t, batch.dtype, n_rows);
    const cell c = small_cell(e.cells, a, m, n_rows, (uint32_t)batch.layout[which].kept);
    rows above[HALVES], ties[HALVES];
    uint2 sum = make_uint2(0, 0), before = make_uint2(0, 0);
#pragma unroll
    for (uint32_t h = 0; h < HALVES; h++) {
        uint32_t more = 0, equal = 0;
#pragma unroll
        for (uint32_t i = 0; i < 16; i++) {
            const uint32_t q = 4 * h + i / 4, v = a[16 * h + i];
            const int there = q < n_rows && small_at(n_rows, q) + i % 4 < m;
            more |= (uint32_t)(there && v > c.base) << (i / 4 * 8 + i % 4);
            equal |= (uint32_t)(there && v == c.base) << (i / 4 * 8 + i % 4);
        }
        above[h] = rows_of(more);
        ties[h] = rows_of(equal);
        sum.x += gw_sum_bytes(above[h].all);
        sum.y += gw_sum_bytes(ties[h].all);
    }
    if (threadIdx.x % 32 == 0) {
        of_warps[warp] = sum;
    }
    __syncthreads();
    for (uint32_t w = 0; w < ROW_WARPS; w++) {
        before.x += w < warp ? of_warps[w].x : 0;
        before.y += w < warp ? of_warps[w].y : 0;
    }
#pragma unroll
    for (uint32_t h = 0; h < HALVES; h++) {
        before = small_put(e, t, batch.dtype, above[h], ties[h], small_at(n_rows, 4 * h), before,
                           c.need);
    }
    put_run(e, t, batch.layout[which], batch.s.natural, batch.dtype, 0);
}
