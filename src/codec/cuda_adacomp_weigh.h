/* adacomp.cu's second kernel, inside of its namespace: the scale, where each tile's entries begin, the form, the header. */

/* The sum of one run of maxima; negative if one is not finite. */
GW_DEVICE void sum_runs(const places &p, uint32_t part)
{
    __shared__ uint32_t some[RUNS * (GW_ADA_RUN + 1)];
    const uint64_t first = (uint64_t)part * (RUNS * GW_ADA_RUN);
    for (uint32_t i = threadIdx.x; i < RUNS * GW_ADA_RUN; i += WEIGH_THREADS) {
        some[i / GW_ADA_RUN * (GW_ADA_RUN + 1) + i % GW_ADA_RUN] =
            first + i < p.bins ? p.tops[first + i] : 0;
    }
    __syncthreads();
    const uint32_t run = part * RUNS + threadIdx.x;
    if (threadIdx.x < RUNS && run < p.n_runs) {
        double sum = 0;
        uint32_t top = 0;
#pragma unroll 8
        for (uint32_t i = 0; i < GW_ADA_RUN; i++) {
            const uint32_t v = some[threadIdx.x * (GW_ADA_RUN + 1) + i];
            top = larger(top, v);
            sum += (double)gw_float(v);
        }
        p.runs[run] = top < GW_INF_BITS ? sum : -1.0;
    }
}

/* The exponent of the lowest bit that is set in x > 0. */
GW_DEVICE int lowest_exponent(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint64_t mantissa = (bits & 0xFFFFFFFFFFFFFu) | 0x10000000000000u;
    return (int)(bits >> 52) - 1075 + __popcll((mantissa & (0 - mantissa)) - 1);
}

GW_DEVICE double power_of_two(int exponent)
{
    const uint64_t bits = (uint64_t)(exponent + 1023) << 52;
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The total of all runs, left to right, or −1. Where no addition of any order rounds, which the lowest bit of all terms
 * and their total tell, the order does not matter. */
GW_DEVICE double sum_all(const places &p)
{
    __shared__ double partial[WEIGH_THREADS];
    __shared__ int lowest, odd;
    const volatile double *runs = p.runs;
    double mine = 0;
    int low = 2000, bad = 0;
    if (threadIdx.x == 0) {
        lowest = 2000;
        odd = 0;
    }
    for (uint32_t i = threadIdx.x; i < p.n_runs; i += WEIGH_THREADS) {
        const double r = runs[i];
        const int e = r > 0 ? lowest_exponent(r) : 2000;
        bad |= r < 0;
        low = e < low ? e : low;
        mine += r;
    }
    partial[threadIdx.x] = mine;
    __syncthreads();
    atomicMin(&lowest, low);
    if (bad) {
        odd = 1;
    }
    for (uint32_t half = WEIGH_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            partial[threadIdx.x] += partial[threadIdx.x + half];
        }
    }
    __syncthreads();
    double total = partial[0];
    if (threadIdx.x == 0 && total > 0 && !(total < power_of_two(lowest + 52))) {
        total = 0;
        for (uint32_t i = 0; i < p.n_runs; i++) {
            total += runs[i];
        }
    }
    return odd ? -1.0 : total;
}

/* What the scan of the tiles' counts finds. */
typedef struct totals {
    uint32_t extras, chosen; /* not the first of their bin; in all */
    uint32_t cut[2];         /* the tile in which each form's room ends */
} totals;

/* Counts become counts of what is before. */
GW_DEVICE void scan_tiles(const places &p, uint64_t spare, uint64_t holds, totals *out)
{
    __shared__ uint32_t of_warps[2][WEIGH_THREADS / 32];
    const uint32_t own = (p.tiles + WEIGH_THREADS - 1) / WEIGH_THREADS;
    const uint64_t from = (uint64_t)threadIdx.x * own,
                   stop = from + own < p.tiles ? from + own : p.tiles;
    uint32_t extras = 0, chosen = 0, all_extras, all_chosen;
    if (threadIdx.x == 0) {
        out->cut[0] = out->cut[1] = p.tiles;
    }
#pragma unroll 8
    for (uint64_t i = from; i < stop; i++) {
        const uint2 c = p.counts[i];
        extras += c.x;
        chosen += c.y;
    }
    uint32_t x = gw_block_before(extras, of_warps[0], &all_extras);
    uint32_t c = gw_block_before(chosen, of_warps[1], &all_chosen);
    for (uint64_t i = from; i < stop; i++) {
        const uint2 here = p.counts[i];
        p.counts[i] = make_uint2(x, c);
        if (x <= spare && x + here.x > spare) {
            out->cut[0] = (uint32_t)i;
        }
        if (c <= holds && c + here.y > holds) {
            out->cut[1] = (uint32_t)i;
        }
        x += here.x;
        c += here.y;
    }
    if (threadIdx.x == 0) {
        p.counts[p.tiles] = make_uint2(all_extras, all_chosen);
        out->extras = all_extras;
        out->chosen = all_chosen;
    }
    __syncthreads();
}

/* The first element of tile `tile` for which there is no room: behind `rest` that are not the first of their bin, or in
 * bitmaps behind `rest` of any kind. *before: elements sent before it. */
GW_DEVICE uint64_t cut_in_tile(const places &p, const gw_ada &s, uint32_t tile, uint64_t rest,
                               int bitmap, uint64_t *before)
{
    const uint32_t *sent = p.sent + (size_t)tile * s.words;
    uint32_t last_bin = 0xFFFFFFFFu;
    uint64_t n = p.counts[tile].y;
    for (uint32_t w = 0; w < s.words; w++) {
        for (uint32_t word = sent[w]; word != 0; word &= word - 1, n++) {
            const uint32_t e = 32 * w + gw_lowest(word), bin = gw_ada_bin_of(s, e);
            const int counts = bitmap || bin == last_bin;
            if (counts && rest == 0) {
                *before = n;
                return (uint64_t)tile * s.tile + e;
            }
            rest -= counts ? 1 : 0;
            last_bin = bin;
        }
    }
    *before = n;
    return (uint64_t)tile * s.tile + s.tile; /* not reached */
}

/* Form, cut and header, as `fit` of adacomp.c has it. By one thread. */
GW_DEVICE void fit(const gw_select_in &t, const gw_ada &s, const places &p, const totals &all,
                   double sum, uint64_t spare, uint64_t holds)
{
    const uint64_t room = t.bytes - GW_ADA_HEADER, bitmap = (t.count + 7) / 8;
    const uint64_t size0 = (p.bins + all.extras) * s.width, size1 = bitmap + (all.chosen + 7) / 8;
    const int can0 = room / s.width >= p.bins, can1 = room >= bitmap;
    state *at = p.at;
    uint32_t form = GW_ADA_ENTRIES;
    uint64_t end = t.count, kept = all.chosen;
    at->spare = all.extras;
    if (size0 <= room || size1 <= room) {
        form = size0 <= room && (size0 <= size1 || size1 > room) ? GW_ADA_ENTRIES : GW_ADA_BITMAP;
    } else {
        uint64_t holds0 = 0, end0 = 0, end1 = 0, before = 0;
        if (can0) {
            end0 = cut_in_tile(p, s, all.cut[0], spare - p.counts[all.cut[0]].x, 0, &holds0);
        }
        if (can1) {
            end1 = cut_in_tile(p, s, all.cut[1], holds - p.counts[all.cut[1]].y, 1, &before);
        }
        form = can0 && (!can1 || holds0 >= holds) ? GW_ADA_ENTRIES : GW_ADA_BITMAP;
        end = form == GW_ADA_ENTRIES ? end0 : end1;
        kept = form == GW_ADA_ENTRIES ? holds0 : holds;
        at->spare = spare;
        t.result->held_back += all.chosen - kept;
    }
    const float scale = p.bins > 0 ? (float)(sum / (double)p.bins) : 0.0f;
    const uint64_t entries = p.bins + (at->spare < all.extras ? at->spare : (uint64_t)all.extras);
    at->form = form;
    at->scale = scale;
    at->end = end;
    at->kept = kept;
    gw_leave_u32(t.payload, form);
    gw_leave_u32(t.payload + 4, gw_bits(scale));
    gw_leave_u64(t.payload + 8, form == GW_ADA_BITMAP ? kept : entries);
    t.result->written =
        GW_ADA_HEADER + (form == GW_ADA_BITMAP ? bitmap + (kept + 7) / 8 : entries * s.width);
}

template <int N>
__global__ void __launch_bounds__(WEIGH_THREADS)
    weigh_kernel(const __grid_constant__ gw_select_batch<gw_ada, places, N> batch)
{
    __shared__ uint32_t is_last;
    __shared__ totals all;
    uint32_t part;
    const gw_ada &s = batch.s;
    const uint32_t which = gw_select_find(batch, &part);
    const gw_select_in &t = batch.tensor[which];
    const places &p = batch.layout[which];
    const uint32_t parts = p.n_runs == 0 ? 1 : (p.n_runs + RUNS - 1) / RUNS;
    sum_runs(p, part);
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(&p.at->ticket, 1u) == parts - 1;
    }
    __syncthreads();
    if (!is_last) {
        return;
    }
    __threadfence();
    const double sum = sum_all(p);
    const uint64_t room = t.bytes - GW_ADA_HEADER, bitmap = (t.count + 7) / 8;
    const uint64_t spare = room / s.width >= p.bins ? room / s.width - p.bins : 0;
    const uint64_t holds = room >= bitmap ? 8 * (room - bitmap) : 0;
    scan_tiles(p, spare, holds, &all);
    if (threadIdx.x != 0) {
        return;
    }
    if (sum >= 0) {
        fit(t, s, p, all, sum, spare, holds);
        return;
    }
    p.at->form = GW_ADA_NON_FINITE;
    gw_leave_u32(t.payload, GW_ADA_NON_FINITE);
    gw_leave_u32(t.payload + 4, GW_NAN_BITS);
    gw_leave_u64(t.payload + 8, 0);
    t.result->written = GW_ADA_HEADER;
}
