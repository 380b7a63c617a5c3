/* topk.cu's search for the k-th magnitude, inside of its namespace. A cell is a range of magnitudes that holds it: [base, base + 2^bits),
 * of which the `need` largest are chosen. Histograms of up to 11 bits narrow it down until bits is 0. */

/* In a histogram of `width` bits, the cell of the need-th largest; *above: how many are in larger ones. `total` numbers were
 * counted or lie above all cells (0: none do). UINT32_MAX: the need-th largest lies there. By all threads. */
GW_DEVICE uint32_t pick_cell(const uint32_t *cells, uint32_t width, uint32_t need, uint32_t total,
                             uint32_t *above)
{
    __shared__ uint32_t of_warps[32], found[2];
    const uint32_t n = 1u << width, own = n / blockDim.x > 0 ? n / blockDim.x : 1;
    uint32_t mine = 0, all;
    const uint32_t first = n - 1 - threadIdx.x * own; /* from the top down */
    if (threadIdx.x == 0) {
        found[0] = 0xFFFFFFFFu;
    }
    if (threadIdx.x * own < n) {
#pragma unroll 8
        for (uint32_t i = 0; i < own; i++) {
            mine += cells[first - i];
        }
    }
    uint32_t before = gw_block_before(mine, of_warps, &all);
    before += total != 0 ? total - all : 0;
    if (before < need && before + mine >= need) {
        uint32_t d = first;
        while (before + cells[d] < need) {
            before += cells[d--];
        }
        found[0] = d;
        found[1] = before;
    }
    __syncthreads();
    const uint32_t d = found[0];
    *above = found[1];
    __syncthreads(); /* all have read before another call writes */
    return d;
}

GW_DEVICE uint32_t digit_width(uint32_t bits)
{
    return bits < RADIX_BITS ? bits : (uint32_t)RADIX_BITS;
}

/* Adds a magnitude to the histogram of the next digit, if it is in the cell. */
GW_DEVICE void add_cell(uint32_t *cells, const cell &c, uint32_t a)
{
    const uint32_t in = a - c.base;
    if (in >> c.bits == 0) {
        atomicAdd(&cells[in >> (c.bits - digit_width(c.bits))], 1u);
    }
}

/* Cell d of the histogram of `c`, with `above` numbers in larger ones. */
GW_DEVICE cell inner_cell(cell c, uint32_t d, uint32_t above)
{
    c.bits -= digit_width(c.bits);
    c.base += d << c.bits;
    c.need -= above;
    return c;
}

/* The cell that the histogram of `c` leads to. */
GW_DEVICE cell narrow(const cell &c, const uint32_t *cells)
{
    uint32_t above;
    const uint32_t d = pick_cell(cells, digit_width(c.bits), c.need, 0, &above);
    return inner_cell(c, d, above);
}

GW_DEVICE cell whole_cell(const places &p)
{
    const cell c = {0, 31, (uint32_t)p.kept, 1};
    return c;
}

/* Behind collect. Where the sample misled, or there was none, all numbers take the candidates' place. */
GW_DEVICE cell first_cell(const places &p)
{
    const uint32_t total = p.at->total, bits = p.at->shift + RADIX_BITS;
    cell c = whole_cell(p);
    if (p.room != 0 && total >= p.kept && total <= p.room) {
        c = {p.at->limit, bits < 31 ? bits : 31, c.need, 0};
    }
    return c;
}

/* Behind digit kernel number `digit` - 1. Candidates may lie above the first cell, and so may the k-th magnitude: then the sample
 * misled as well. */
GW_DEVICE cell next_cell(const places &p, int digit)
{
    cell c = p.at->found[digit - 1];
    if (c.bits == 0) {
        return c;
    }
    const uint32_t width = digit_width(c.bits),
                   total = digit == 1 && c.whole == 0 ? p.at->total : 0;
    uint32_t above;
    const uint32_t d = pick_cell(p.cells + (digit - 1) * RADIX, width, c.need, total, &above);
    return d != 0xFFFFFFFFu ? inner_cell(c, d, above) : whole_cell(p);
}

static __host__ __device__ inline uint32_t digit_blocks(uint64_t count)
{
    const uint64_t wanted = count / DIGIT_SHARE + 1;
    return wanted < DIGIT_BLOCKS ? (uint32_t)wanted : (uint32_t)DIGIT_BLOCKS;
}

template <int N>
__global__ void __launch_bounds__(THREADS)
    digit_kernel(const __grid_constant__ gw_select_batch<gw_topk, plan, N> batch, int digit)
{
    __shared__ uint32_t cells[RADIX];
    uint32_t number;
    const uint32_t which = gw_select_find(batch, &number);
    const gw_select_in &t = batch.tensor[which];
    const places p = places_of(t.room, batch.layout[which]);
    if (digit > 1 && number != 0 && p.at->found[digit - 1].bits <= RADIX_BITS) {
        return; /* there is no further digit */
    }
    const cell c = digit == 0 ? first_cell(p) : next_cell(p, digit);
    if (number == 0 && threadIdx.x == 0) {
        p.at->found[digit] = c;
    }
    if (c.bits == 0) {
        return;
    }
    for (uint32_t i = threadIdx.x; i < RADIX; i += THREADS) {
        cells[i] = 0;
    }
    __syncthreads();
    const uint64_t n = c.whole ? t.count : p.at->total;
    const uint32_t step = digit_blocks(t.count) * THREADS;
    if (c.whole) {
#pragma unroll 4
        for (uint64_t i = (uint64_t)number * THREADS + threadIdx.x; i < n; i += step) {
            add_cell(cells, c, magnitude(read_again(t, batch.dtype, i)));
        }
    } else {
#pragma unroll 4
        for (uint64_t i = (uint64_t)number * THREADS + threadIdx.x; i < n; i += step) {
            add_cell(cells, c, p.candidate[i].y & GW_ABS_MASK);
        }
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < RADIX; i += THREADS) {
        if (cells[i] != 0) {
            atomicAdd(&p.cells[digit * RADIX + i], cells[i]);
        }
    }
}

/* ---- how many of each tile are chosen ---- */

/* A tile's numbers that may be chosen, in order: places among the candidates, or among all numbers. */
GW_DEVICE uint2 run_of(const gw_select_in &t, const places &p, int whole, uint32_t tile)
{
    const uint64_t at = (uint64_t)tile * GW_TILE;
    return whole ? make_uint2((uint32_t)at, gw_span_left(t.count, at, GW_TILE)) : p.tiles[tile];
}

/* Index and bits of one of them. */
GW_DEVICE uint2 run_item(const gw_select_in &t, const places &p, gw_dtype dtype, int whole,
                         uint32_t i)
{
    return whole ? make_uint2(i, gw_bits(read_again(t, dtype, i))) : p.candidate[i];
}

static __host__ __device__ inline uint32_t tiles_a_part(uint32_t n_tiles)
{
    return n_tiles <= WARPS * PARTS ? (uint32_t)WARPS : (n_tiles + PARTS - 1) / PARTS;
}

static __host__ __device__ inline uint32_t parts_of(uint32_t n_tiles)
{
    const uint32_t per = tiles_a_part(n_tiles);
    return (n_tiles + per - 1) / per;
}

/* A part's tiles: how many are above the k-th magnitude and how many equal it, in the tiles before it, and in all. */
template <int N>
__global__ void __launch_bounds__(THREADS)
    count_kernel(const __grid_constant__ gw_select_batch<gw_topk, plan, N> batch)
{
    __shared__ uint2 of_warps[WARPS];
    uint32_t part;
    const uint32_t which = gw_select_find(batch, &part);
    const gw_select_in &t = batch.tensor[which];
    const places p = places_of(t.room, batch.layout[which]);
    const cell c = next_cell(p, DIGITS);
    const uint32_t per = tiles_a_part(p.n_tiles), warp = threadIdx.x / 32;
    uint2 sum = make_uint2(0, 0);
    for (uint32_t i = 0; i < per; i += WARPS) {
        const uint32_t tile = part * per + i + warp;
        const int there = i + warp < per && tile < p.n_tiles;
        const uint2 run = there ? run_of(t, p, (int)c.whole, tile) : make_uint2(0, 0);
        uint32_t above = 0, ties = 0;
#pragma unroll 2
        for (uint32_t k = threadIdx.x % 32; k < run.y; k += 32) {
            const uint32_t a = run_item(t, p, batch.dtype, (int)c.whole, run.x + k).y & GW_ABS_MASK;
            above += a > c.base;
            ties += a == c.base;
        }
        above = __reduce_add_sync(0xFFFFFFFFu, above);
        ties = __reduce_add_sync(0xFFFFFFFFu, ties);
        if (threadIdx.x % 32 == 0) {
            of_warps[warp] = make_uint2(above, ties);
        }
        __syncthreads();
        uint2 before = sum;
        for (uint32_t w = 0; w < WARPS; w++) {
            before.x += w < warp ? of_warps[w].x : 0;
            before.y += w < warp ? of_warps[w].y : 0;
            sum.x += of_warps[w].x;
            sum.y += of_warps[w].y;
        }
        __syncthreads();
        if (there && threadIdx.x % 32 == 0) {
            p.counts[tile] = before;
        }
    }
    if (threadIdx.x == 0) {
        p.parts[part] = sum;
    }
}
