/* adacomp.cu's second kernel, inside of its namespace: the scale, where each tile's entries begin, the form, the header. */

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

/* Sums of RUNS runs of maxima, a warp each, as if left to right; negative if one is not finite. Where no addition of any order rounds,
 * which the lowest bit of all terms and their total tell, the order does not matter; else one lane does them all. */
GW_DEVICE void sum_runs(const places &p, uint32_t part)
{
    const uint32_t run = part * RUNS + threadIdx.x / 32, lane = threadIdx.x % 32;
    const uint64_t first = (uint64_t)run * GW_ADA_RUN;
    static_assert((int)RUNS == (int)WARPS, "a warp a run");
    if (run >= p.n_runs) {
        return;
    }
    double sum = 0;
    uint32_t v[GW_ADA_RUN / 32], top = 0;
    int low = 2000;
#pragma unroll
    for (uint32_t k = 0; k < GW_ADA_RUN / 32; k++) {
        v[k] = first + 32 * k + lane < p.bins ? p.tops[first + 32 * k + lane] : 0;
    }
#pragma unroll
    for (uint32_t k = 0; k < GW_ADA_RUN / 32; k++) {
        const double x = (double)gw_float(v[k]);
        const int e = v[k] != 0 ? lowest_exponent(x) : 2000;
        top = larger(top, v[k]);
        low = e < low ? e : low;
        sum += x;
    }
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const int other = __shfl_xor_sync(0xFFFFFFFFu, low, d);
        sum += __shfl_xor_sync(0xFFFFFFFFu, sum, d);
        low = other < low ? other : low;
    }
    top = __reduce_max_sync(0xFFFFFFFFu, top);
    if (lane != 0) {
        return;
    }
    if (top != 0 && top < GW_INF_BITS && !(sum < power_of_two(low + 52))) {
        sum = 0;
        for (uint64_t i = first; i < first + GW_ADA_RUN && i < p.bins; i++) {
            sum += (double)gw_float(p.tops[i]);
        }
    }
    p.runs[run] = top < GW_INF_BITS ? sum : -1.0;
}

/* The total of all runs, left to right, or −1; the order matters as little. */
GW_DEVICE double sum_all(const places &p)
{
    __shared__ double partial[THREADS];
    __shared__ int lowest, odd;
    const volatile double *runs = p.runs;
    double mine = 0;
    int low = 2000, bad = 0;
    if (threadIdx.x == 0) {
        lowest = 2000;
        odd = 0;
    }
    enum { ABREAST = 8 }; /* loads under way */
    for (uint32_t row = 0; row < p.n_runs; row += ABREAST * THREADS) {
        double r[ABREAST];
#pragma unroll
        for (uint32_t a = 0; a < ABREAST; a++) {
            const uint32_t i = row + a * THREADS + threadIdx.x;
            r[a] = i < p.n_runs ? runs[i] : 0.0;
        }
#pragma unroll
        for (uint32_t a = 0; a < ABREAST; a++) {
            const int e = r[a] > 0 ? lowest_exponent(r[a]) : 2000;
            bad |= r[a] < 0;
            low = e < low ? e : low;
            mine += r[a];
        }
    }
    partial[threadIdx.x] = mine;
    __syncthreads();
    atomicMin(&lowest, low);
    if (bad) {
        odd = 1;
    }
    for (uint32_t half = THREADS / 2; half > 0; half /= 2) {
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

/* What of a unit's elements is sent: those that are not their bin's first, and all. */
GW_DEVICE uint2 count_unit(const places &p, const gw_ada &s, uint32_t unit)
{
    uint32_t sum = 0;
    if (s.per == 1) {
        sum = p.of_tiles[unit];
    } else if ((unit + 1) * GW_ADA_WARP_TILES <= p.tiles) { /* 4096 at most, twice */
        const uint4 *eight = (const uint4 *)(p.of_tiles + unit * GW_ADA_WARP_TILES);
        const uint4 a = eight[0], b = eight[1];
        sum = a.x + a.y + a.z + a.w + b.x + b.y + b.z + b.w;
    } else {
        for (uint32_t tile = unit * GW_ADA_WARP_TILES; tile < p.tiles; tile++) {
            sum += p.of_tiles[tile];
        }
    }
    return make_uint2(sum & 0xFFFF, sum >> 16);
}

/* Counts of a part's units: of what is before in the part. Its total goes to parts[part + 1]. */
GW_DEVICE void scan_part(const places &p, const gw_ada &s, uint32_t part)
{
    __shared__ uint32_t of_warps[2][WARPS];
    enum { EACH = PART / THREADS };
    const uint32_t first = part * PART + threadIdx.x * EACH;
    uint2 own[EACH];
    uint32_t extras = 0, chosen = 0, all_extras, all_chosen;
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        own[i] = first + i < p.units ? count_unit(p, s, first + i) : make_uint2(0, 0);
        extras += own[i].x;
        chosen += own[i].y;
    }
    uint32_t x = gw_block_before(extras, of_warps[0], &all_extras);
    uint32_t c = gw_block_before(chosen, of_warps[1], &all_chosen);
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++) {
        if (first + i < p.units) {
            p.counts[first + i] = make_uint2(x, c);
        }
        x += own[i].x;
        c += own[i].y;
    }
    if (threadIdx.x == 0) {
        p.parts[part + 1] = make_uint2(all_extras, all_chosen);
    }
}

/* Parts' totals become counts of what is before each; the last is that of all. */
GW_DEVICE uint2 scan_parts(const places &p)
{
    __shared__ uint32_t of_warps[2][WARPS];
    uint2 base = make_uint2(0, 0);
    volatile uint32_t *parts = (volatile uint32_t *)p.parts;
    for (uint32_t row = 0; row < p.n_parts; row += THREADS) {
        const uint32_t part = row + threadIdx.x;
        const int there = part < p.n_parts;
        const uint32_t extras = there ? parts[2 * part + 2] : 0;
        const uint32_t chosen = there ? parts[2 * part + 3] : 0;
        uint2 all;
        const uint32_t x = base.x + gw_block_before(extras, of_warps[0], &all.x) + extras;
        const uint32_t c = base.y + gw_block_before(chosen, of_warps[1], &all.y) + chosen;
        if (there) {
            p.parts[part + 1] = make_uint2(x, c);
        }
        base = make_uint2(base.x + all.x, base.y + all.y);
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        p.parts[0] = make_uint2(0, 0);
    }
    __syncthreads();
    return base;
}

/* Elements sent before unit `unit`, and those of them that are not their bin's first. Behind the last unit: all. */
GW_DEVICE uint2 before_unit(const places &p, uint32_t unit)
{
    const volatile uint32_t *parts = (const volatile uint32_t *)(p.parts + unit / PART);
    if (unit >= p.units) {
        const volatile uint32_t *all = (const volatile uint32_t *)(p.parts + p.n_parts);
        return make_uint2(all[0], all[1]);
    }
    const volatile uint32_t *own = (const volatile uint32_t *)(p.counts + unit);
    return make_uint2(parts[0] + own[0], parts[1] + own[1]);
}

/* The last unit before which no more than `most` stand: of any kind, or of those that are not their bin's first. */
GW_DEVICE uint32_t unit_of_cut(const places &p, uint64_t most, int bitmap)
{
    uint32_t low = 0, high = p.units;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        const uint2 before = before_unit(p, middle);
        if ((bitmap ? before.y : before.x) <= most) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The first element for which there is no room: behind `most` that are not the first of their bin, or in bitmaps behind `most` of
 * any kind. *before: elements sent before it. */
GW_DEVICE uint64_t find_cut(const places &p, const gw_ada &s, uint64_t most, int bitmap,
                            uint64_t *before)
{
    const uint32_t unit = unit_of_cut(p, most, bitmap);
    const uint2 here = before_unit(p, unit);
    uint64_t rest = most - (bitmap ? here.y : here.x), n = here.y;
    for (uint32_t tile = unit * s.per; tile < (unit + 1) * s.per && tile < p.tiles; tile++) {
        const uint32_t *sent = p.sent + (size_t)tile * s.words;
        uint32_t last_bin = 0xFFFFFFFFu;
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
    }
    *before = n;
    return (uint64_t)(unit + 1) * s.per * s.tile; /* not reached */
}

/* Form, cut and header, as `fit` of adacomp.c has it. By one thread. */
GW_DEVICE void fit(const gw_select_in &t, const gw_ada &s, const places &p, uint32_t extras,
                   uint32_t chosen, double sum)
{
    const uint64_t room = t.bytes - GW_ADA_HEADER, bitmap = (t.count + 7) / 8;
    const uint64_t size0 = (p.bins + extras) * s.width, size1 = bitmap + ((uint64_t)chosen + 7) / 8;
    const int can0 = room / s.width >= p.bins, can1 = room >= bitmap;
    const uint64_t spare = can0 ? room / s.width - p.bins : 0;
    const uint64_t holds = can1 ? 8 * (room - bitmap) : 0;
    state *at = p.at;
    uint32_t form = GW_ADA_ENTRIES;
    uint64_t end = t.count, kept = chosen;
    at->spare = extras;
    if (size0 <= room || size1 <= room) {
        form = size0 <= room && (size0 <= size1 || size1 > room) ? GW_ADA_ENTRIES : GW_ADA_BITMAP;
    } else {
        uint64_t holds0 = 0, end0 = 0, end1 = 0, before = 0;
        if (can0) {
            end0 = find_cut(p, s, spare, 0, &holds0);
        }
        if (can1) {
            end1 = find_cut(p, s, holds, 1, &before);
        }
        form = can0 && (!can1 || holds0 >= holds) ? GW_ADA_ENTRIES : GW_ADA_BITMAP;
        end = form == GW_ADA_ENTRIES ? end0 : end1;
        kept = form == GW_ADA_ENTRIES ? holds0 : holds;
        at->spare = spare;
        t.result->held_back += chosen - kept;
    }
    const float scale = p.bins > 0 ? (float)(sum / (double)p.bins) : 0.0f;
    const uint64_t entries = p.bins + (at->spare < extras ? at->spare : (uint64_t)extras);
    at->form = form;
    at->scale = scale;
    at->end = end;
    at->kept = kept;
    if (p.owes != NULL) {
        *p.owes = {end, scale, 0};
    }
    gw_leave_u32(t.payload, form);
    gw_leave_u32(t.payload + 4, gw_bits(scale));
    gw_leave_u64(t.payload + 8, form == GW_ADA_BITMAP ? kept : entries);
    t.result->written =
        GW_ADA_HEADER + (form == GW_ADA_BITMAP ? bitmap + (kept + 7) / 8 : entries * s.width);
}

/* What follows from all parts and runs. By a block. */
GW_DEVICE void conclude(const gw_select_in &t, const gw_ada &s, const places &p)
{
    const double sum = sum_all(p);
    const uint2 all = scan_parts(p);
    if (threadIdx.x != 0) {
        return;
    }
    if (sum >= 0) {
        fit(t, s, p, all.x, all.y, sum);
        return;
    }
    p.at->form = GW_ADA_NON_FINITE;
    if (p.owes != NULL) {
        *p.owes = {0, 0.0f, 0};
    }
    gw_leave_u32(t.payload, GW_ADA_NON_FINITE);
    gw_leave_u32(t.payload + 4, GW_NAN_BITS);
    gw_leave_u64(t.payload + 8, 0);
    t.result->written = GW_ADA_HEADER;
}

template <int N>
__global__ void __launch_bounds__(THREADS)
    weigh_kernel(const __grid_constant__ gw_select_batch<gw_ada, places, N> batch)
{
    __shared__ uint32_t is_last;
    uint32_t part;
    const uint32_t which = gw_select_find(batch, &part);
    const gw_select_in &t = batch.tensor[which];
    const places &p = batch.layout[which];
    if (part < p.n_parts) {
        scan_part(p, batch.s, part);
    } else {
        sum_runs(p, part - p.n_parts);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        is_last = atomicAdd(&p.at->ticket, 1u) == p.weighers - 1;
    }
    __syncthreads();
    if (is_last) {
        __threadfence();
        conclude(t, batch.s, p);
    }
}
