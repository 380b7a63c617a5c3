/* topk.cu's way out, inside of its namespace: the chosen in order of index, 4096 a block; values, indices, and r′ of them. */

/* A block's entries; `index` also has those before and the one behind that its first and last byte of high bits need. */
enum { EARLIER = 8, HIGH_WORDS = 2 * PARTS };
typedef struct entries {
    uint32_t index[EARLIER + GW_VALUES_RUN + 8];
    union {
        float value[GW_VALUES_RUN];
        uint32_t low[GW_VALUES_RUN]; /* their low bits, when values are in registers */
    };
    union {
        uint2 part[PARTS];
        uint32_t high[HIGH_WORDS];
        uint32_t cells[RADIX];
    };
} entries;

/* Low bits of the run's n entries. */
GW_DEVICE void put_low(uint32_t *words, const uint32_t index[GW_VALUES_OWN], uint32_t n,
                       uint32_t bits, uint8_t *to)
{
    const uint32_t all = n * bits;
    for (uint32_t i = threadIdx.x; i < all / 32 + 1; i += GW_VALUES_THREADS) {
        words[i] = 0;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < GW_VALUES_OWN; i++) {
        if (gw_values_own(i, n) && bits != 0) {
            const uint32_t at = (threadIdx.x + (uint32_t)(GW_VALUES_THREADS * i)) * bits;
            const uint64_t low = (uint64_t)(index[i] & gw_bits_below(bits)) << at % 32;
            atomicOr(&words[at / 32], (uint32_t)low);
            if (low >> 32 != 0) {
                atomicOr(&words[at / 32 + 1], (uint32_t)(low >> 32));
            }
        }
    }
    __syncthreads();
    gw_copy_out(to, words, 0, (all + 7) / 8, threadIdx.x, GW_VALUES_THREADS);
}

/* High bits: the block writes the bytes from the one of its first entry's on to that of the next block's first. */
GW_DEVICE void put_high(entries &e, const plan &list, uint64_t first,
                        const uint32_t index[GW_VALUES_OWN], uint8_t *high)
{
    const uint32_t *own = e.index + EARLIER;
    const uint64_t next = first + GW_VALUES_RUN, left = list.kept - first;
    const uint32_t n = left < GW_VALUES_RUN ? (uint32_t)left : (uint32_t)GW_VALUES_RUN;
    const uint64_t begin = first == 0 ? 0 : ((own[0] >> list.low_bits) + first) / 8;
    const uint64_t end =
        next >= list.kept ? list.high_bytes : ((own[GW_VALUES_RUN] >> list.low_bits) + next) / 8;
    const auto set = [&](uint64_t j, uint32_t i, uint64_t at, uint64_t stop) {
        const uint64_t bit = (i >> list.low_bits) + j;
        if (bit / 8 >= at && bit / 8 < stop) {
            const uint32_t b = (uint32_t)(bit - 8 * at);
            atomicOr(&e.high[b / 32], 1u << b % 32);
        }
    };
    for (uint64_t at = begin; at < end; at += 4 * (HIGH_WORDS - 1)) {
        const uint64_t some = at + 4 * (HIGH_WORDS - 1), stop = some < end ? some : end;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < (stop - at) / 4 + 1; i += GW_VALUES_THREADS) {
            e.high[i] = 0;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < GW_VALUES_OWN; i++) {
            if (gw_values_own(i, n)) {
                const uint32_t j = threadIdx.x + (uint32_t)(GW_VALUES_THREADS * i);
                set(first + j, index[i], at, stop);
            }
        }
        if (threadIdx.x < EARLIER && threadIdx.x < first) {
            set(first - 1 - threadIdx.x, own[-1 - (int)threadIdx.x], at, stop);
        }
        __syncthreads();
        gw_copy_out(high + at, e.high, 0, (uint32_t)(stop - at), threadIdx.x, GW_VALUES_THREADS);
    }
}

/* Run number `number` of a payload, whose entries are in shared memory, by all threads. */
GW_DEVICE void put_run(entries &e, const gw_select_in &t, const plan &list, int natural,
                       gw_dtype dtype, uint32_t number)
{
    const uint64_t first = (uint64_t)number * GW_VALUES_RUN, left = list.kept - first;
    const uint32_t n = left < GW_VALUES_RUN ? (uint32_t)left : (uint32_t)GW_VALUES_RUN;
    uint32_t index[GW_VALUES_OWN];
    float v[GW_VALUES_OWN];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < GW_VALUES_OWN; i++) {
        const uint32_t j = threadIdx.x + (uint32_t)(GW_VALUES_THREADS * i);
        index[i] = j < n ? e.index[EARLIER + j] : 0;
        v[i] = j < n ? e.value[j] : 0.0f;
    }
    const gw_values_job job = {t.payload, number, t.key, t.result, gw_natural_top(dtype == GW_F16)};
    gw_values_put(v, index, n, natural, job);
#pragma unroll
    for (int i = 0; i < GW_VALUES_OWN; i++) {
        if (t.after != NULL && gw_values_own(i, n)) {
            t.after[index[i]] = e.value[threadIdx.x + GW_VALUES_THREADS * i] - v[i];
        }
    }
    __syncthreads();
    put_low(e.low, index, n, list.low_bits,
            t.payload + list.values_bytes + first / 8 * list.low_bits);
    put_high(e, list, first, index,
             t.payload + list.values_bytes + (list.kept * list.low_bits + 7) / 8);
}

/* ---- fetching what was chosen ---- */

/* Entries [from, to) of the list are wanted; ties are chosen while fewer than `need` were. */
typedef struct wanted {
    uint64_t from, to, first;
    cell c;
} wanted;

GW_DEVICE uint32_t chosen_of(uint2 before, uint32_t need)
{
    return before.x + (before.y < need ? before.y : need);
}

/* Where each part begins, to e.part; the tiles that have something wanted: *begin to *end. */
GW_DEVICE void find_tiles(entries &e, const places &p, const wanted &w, uint32_t *begin,
                          uint32_t *end)
{
    enum { OWN = PARTS / GW_VALUES_THREADS };
    __shared__ uint32_t of_warps[2][GW_VALUES_THREADS / 32], range[2];
    const uint32_t n = parts_of(p.n_tiles), per = tiles_a_part(p.n_tiles);
    uint2 own[OWN], sum = make_uint2(0, 0);
    uint32_t all;
    if (threadIdx.x == 0) {
        range[0] = n;
        range[1] = 0;
    }
#pragma unroll
    for (uint32_t i = 0; i < OWN; i++) {
        const uint32_t part = OWN * threadIdx.x + i;
        own[i] = part < n ? p.parts[part] : make_uint2(0, 0);
        sum.x += own[i].x;
        sum.y += own[i].y;
    }
    uint2 before = make_uint2(gw_block_before(sum.x, of_warps[0], &all),
                              gw_block_before(sum.y, of_warps[1], &all));
#pragma unroll
    for (uint32_t i = 0; i < OWN; i++) {
        const uint32_t part = OWN * threadIdx.x + i, from = chosen_of(before, w.c.need);
        e.part[part] = before;
        before.x += own[i].x;
        before.y += own[i].y;
        if (part < n && from < w.to && chosen_of(before, w.c.need) > w.from) {
            atomicMin(&range[0], part);
            atomicMax(&range[1], part + 1);
        }
    }
    __syncthreads();
    *begin = range[0] * per;
    *end = range[1] * per < p.n_tiles ? range[1] * per : p.n_tiles;
}

/* Entry j: its index and bits. */
GW_DEVICE void put_entry(entries &e, const wanted &w, uint64_t j, uint2 item)
{
    e.index[EARLIER + (uint32_t)(j - w.first)] = item.x;
    if (j >= w.first && j - w.first < GW_VALUES_RUN) {
        e.value[j - w.first] = gw_float(item.y);
    }
}

/* One row of a tile's numbers: those chosen and wanted go to shared memory. before: of the list and of ties. */
GW_DEVICE uint2 put_row(entries &e, const wanted &w, uint2 item, int there, uint2 before)
{
    const uint32_t below = gw_bits_below(threadIdx.x % 32), a = item.y & GW_ABS_MASK;
    const uint32_t equal = __ballot_sync(0xFFFFFFFFu, there && a == w.c.base);
    const uint32_t rank = before.y + (uint32_t)__popc(equal & below);
    const int chosen = there && (a > w.c.base || (a == w.c.base && rank < w.c.need));
    const uint32_t all = __ballot_sync(0xFFFFFFFFu, chosen);
    const uint64_t j = before.x + (uint64_t)__popc(all & below);
    if (chosen && j >= w.from && j < w.to) {
        put_entry(e, w, j, item);
    }
    return make_uint2(before.x + (uint32_t)__popc(all), before.y + (uint32_t)__popc(equal));
}

/* Up to 32 tiles of a warp, the first of which is `tile` and which lie `step` apart; one is read while another is put. */
GW_DEVICE void put_tiles(entries &e, const gw_select_in &t, const places &p, gw_dtype dtype,
                         const wanted &w, uint32_t tile, uint32_t step, uint32_t end)
{
    const uint32_t lane = threadIdx.x % 32, mine = tile + step * lane;
    const int whole = (int)w.c.whole;
    uint2 run = make_uint2(0, 0), before = make_uint2(0, 0);
    if (mine < end) {
        const uint2 part = e.part[mine / tiles_a_part(p.n_tiles)], inside = p.counts[mine];
        run = run_of(t, p, whole, mine);
        before = make_uint2(part.x + inside.x, part.y + inside.y);
    }
    const uint32_t from = chosen_of(before, w.c.need);
    uint32_t left = __ballot_sync(0xFFFFFFFFu, from < w.to && from + run.y > w.from && run.y != 0);
    uint2 ahead[2];
    const auto fetch = [&](uint32_t l) {
        const uint32_t at = __shfl_sync(0xFFFFFFFFu, run.x, (int)l),
                       n = __shfl_sync(0xFFFFFFFFu, run.y, (int)l);
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t k = lane + 32 * i;
            ahead[i] = k < n ? run_item(t, p, dtype, whole, at + k) : make_uint2(0, 0);
        }
    };
    if (left != 0) {
        fetch(gw_lowest(left));
    }
    while (left != 0) {
        const int l = (int)gw_lowest(left);
        const uint2 now[2] = {ahead[0], ahead[1]};
        const uint32_t at = __shfl_sync(0xFFFFFFFFu, run.x, l),
                       n = __shfl_sync(0xFFFFFFFFu, run.y, l);
        uint2 so_far =
            make_uint2(__shfl_sync(0xFFFFFFFFu, from, l), __shfl_sync(0xFFFFFFFFu, before.y, l));
        left &= left - 1;
        if (left != 0) {
            fetch(gw_lowest(left));
        }
        for (uint32_t row = 0; row < n; row += 32) {
            const uint32_t k = row + lane;
            const uint2 item = row == 0    ? now[0]
                               : row == 32 ? now[1]
                               : k < n     ? run_item(t, p, dtype, whole, at + k)
                                           : make_uint2(0, 0);
            so_far = put_row(e, w, item, k < n, so_far);
        }
    }
}

/* The entries of run number `number` that its bytes need, to shared memory. */
GW_DEVICE wanted wanted_of(const places &p, uint32_t number)
{
    wanted w;
    w.c = next_cell(p, DIGITS);
    w.first = (uint64_t)number * GW_VALUES_RUN;
    w.from = w.first < EARLIER ? 0 : w.first - EARLIER;
    w.to = w.first + GW_VALUES_RUN + 1 < p.kept ? w.first + GW_VALUES_RUN + 1 : p.kept;
    return w;
}

GW_DEVICE void fetch_run(entries &e, const gw_select_in &t, const places &p, gw_dtype dtype,
                         const wanted &w)
{
    enum { STEP = GW_VALUES_THREADS / 32 };
    uint32_t begin, end;
    find_tiles(e, p, w, &begin, &end);
    for (uint32_t tile = begin + threadIdx.x / 32; tile < end; tile += 32 * STEP) {
        put_tiles(e, t, p, dtype, w, tile, STEP, end);
    }
}

/* Of a whole tensor with feedback all runs are fetched before one of them changes r', out of which they come: the entries go to
 * the candidates' place. */
GW_DEVICE int is_fetched(const gw_select_in &t, const cell &c)
{
    return c.whole != 0 && t.after != NULL;
}

template <int N>
__global__ void __launch_bounds__(GW_VALUES_THREADS, 2)
    fetch_kernel(const __grid_constant__ gw_select_batch<gw_topk, plan, N> batch)
{
    __shared__ entries e;
    uint32_t number;
    const uint32_t which = gw_select_find(batch, &number);
    const gw_select_in &t = batch.tensor[which];
    const places p = places_of(t.room, batch.layout[which]);
    const wanted w = wanted_of(p, number);
    if (!is_fetched(t, w.c)) {
        return;
    }
    fetch_run(e, t, p, batch.dtype, w);
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < GW_VALUES_RUN && w.first + i < p.kept;
         i += GW_VALUES_THREADS) {
        p.candidate[w.first + i] = make_uint2(e.index[EARLIER + i], gw_bits(e.value[i]));
    }
}

template <int N>
__global__ void __launch_bounds__(GW_VALUES_THREADS, 2)
    write_kernel(const __grid_constant__ gw_select_batch<gw_topk, plan, N> batch)
{
    __shared__ entries e;
    uint32_t number;
    const uint32_t which = gw_select_find(batch, &number);
    const gw_select_in &t = batch.tensor[which];
    const places p = places_of(t.room, batch.layout[which]);
    const wanted w = wanted_of(p, number);
    if (is_fetched(t, w.c)) {
        for (uint64_t j = w.from + threadIdx.x; j < w.to; j += GW_VALUES_THREADS) {
            put_entry(e, w, j, p.candidate[j]);
        }
    } else {
        fetch_run(e, t, p, batch.dtype, w);
    }
    put_run(e, t, batch.layout[which], batch.s.natural, batch.dtype, number);
}
