/* adacomp.cu's first kernel, inside of its namespace: G to r′, the bins' maxima, and which elements are sent. */

/* A tile, or a chunk of one that is a single long bin. */
typedef struct work {
    uint64_t at;
    uint32_t m; /* elements */
    int whole;  /* quads are aligned */
} work;

/* What the call before left due of a tile or chunk: its part of the plane. */
typedef struct debt {
    const uint32_t *plane;
    uint64_t end;
    float scale;
} debt;

template <int FEEDBACK>
GW_DEVICE debt debt_of(const places &p, const gw_ada &s, uint32_t tile, uint32_t chunk)
{
    debt d = {NULL, 0, 0.0f};
    if (FEEDBACK == OWES) {
        const due owed = *p.owed;
        d = {plane_of((due *)p.owed) + (size_t)tile * s.words + chunk / 32, owed.end, owed.scale};
    }
    return d;
}

/* Of four quads of r, which may be read so. */
GW_DEVICE void take_off(float r[GW_OWN], const uint32_t sent[4], const debt &d, const work &w,
                        uint32_t thread)
{
    const int all = d.end >= w.at + w.m;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const uint32_t e = gw_quad_at<GW_IN_ROWS>(thread, q);
        const uint32_t word = all ? sent[q] : cut_off(sent[q], w.at + e / 32 * 32, d.end);
#pragma unroll
        for (uint32_t c = 0; c < 4; c++) {
            if (word >> (e % 32 + c) & 1) {
                r[4 * q + (int)c] = less_sent(r[4 * q + (int)c], d.scale);
            }
        }
    }
}

template <int FEEDBACK>
GW_DEVICE void read_all(float g[GW_OWN], float G[GW_OWN], const gw_select_in &t, gw_dtype dtype,
                        const work &w, const debt &d, uint32_t thread)
{
    uint32_t sent[4];
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const uint32_t e = gw_quad_at<GW_IN_ROWS>(thread, q);
        sent[q] = FEEDBACK == OWES && e < w.m ? d.plane[e / 32] : 0;
    }
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const uint32_t e = gw_quad_at<GW_IN_ROWS>(thread, q), left = e < w.m ? w.m - e : 0;
        gw_read_four(g + 4 * q, t.in, dtype, w.at + e, left, w.whole && left >= 4);
        if (FEEDBACK) {
            gw_read_four(G + 4 * q, t.residual, GW_F32, w.at + e, left, w.whole && left >= 4);
        }
    }
    if (FEEDBACK == OWES) {
        take_off(G, sent, d, w, thread);
    }
#pragma unroll
    for (int i = 0; i < GW_OWN; i++) {
        G[i] = FEEDBACK ? g[i] + G[i] : g[i];
    }
}

GW_DEVICE void write_all(const float G[GW_OWN], const gw_select_in &t, const work &w,
                         uint32_t thread)
{
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const uint32_t e = gw_quad_at<GW_IN_ROWS>(thread, q), left = e < w.m ? w.m - e : 0;
        gw_write_four(G + 4 * q, t.after, w.at + e, left, w.whole && left >= 4);
    }
}

GW_DEVICE uint32_t magnitude(float x)
{
    return gw_bits(x) & GW_ABS_MASK;
}

GW_DEVICE uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* The maxima of a quad's bins, the first and, where the quad goes over its end, the next; of quads side by side first
 * among each other. */
GW_DEVICE void top_quad(const float G[4], const gw_ada &s, uint32_t e, uint32_t m, uint32_t *tops)
{
    const uint32_t lane = threadIdx.x % 32, bin = gw_ada_bin_of(s, e), in = e - bin * s.bin;
    const uint32_t left = s.bin - in;
    uint32_t first = larger(larger(magnitude(G[0]), magnitude(G[1])),
                            larger(magnitude(G[2]), magnitude(G[3]))),
             next = 0;
    if (__all_sync(0xFFFFFFFFu, left >= 4 * (32 - lane))) { /* one bin */
        first = __reduce_max_sync(0xFFFFFFFFu, first);
        if (lane == 0 && e < m) {
            atomicMax(&tops[bin], first);
        }
        return;
    }
    if (left < 4) {
        first = 0;
#pragma unroll
        for (uint32_t c = 0; c < 4; c++) {
            const uint32_t a = magnitude(G[c]);
            first = larger(first, c < left ? a : 0);
            next = larger(next, c < left ? 0 : a);
        }
    }
#pragma unroll
    for (uint32_t d = 1; d < 32; d *= 2) {
        const uint32_t other = __shfl_down_sync(0xFFFFFFFFu, first, (int)d);
        first = larger(first, 4 * d < left && lane + d < 32 ? other : 0);
    }
    if ((lane == 0 || in < 4) && e < m) {
        atomicMax(&tops[bin], first);
    }
    if (left < 4 && e + left < m) {
        atomicMax(&tops[bin + 1], next);
    }
}

GW_DEVICE void top_all(const float G[GW_OWN], const gw_ada &s, uint32_t m, uint32_t *tops)
{
    if (s.bin >= 4) {
#pragma unroll
        for (int q = 0; q < 4; q++) {
            top_quad(G + 4 * q, s, gw_quad_at<GW_IN_ROWS>(threadIdx.x, q), m, tops);
        }
        return;
    }
    for (int i = 0; i < GW_OWN; i++) {
        const uint32_t e = gw_quad_at<GW_IN_ROWS>(threadIdx.x, i / 4) + (uint32_t)i % 4;
        if (e < m) {
            atomicMax(&tops[gw_ada_bin_of(s, e)], magnitude(G[i]));
        }
    }
}

/* What a block of survey counts, in shared memory. */
typedef struct tally {
    uint32_t tops[GW_ADA_MOST_BINS], used[GW_ADA_MOST_BINS];
    uint32_t chosen, non_empty;
} tally;

/* Which of a quad are sent, and which of these are negative: bits 0 to 3, and 16 to 19. */
GW_DEVICE uint32_t mark_quad(const float G[4], const float g[4], const gw_ada &s, uint32_t e,
                             uint32_t m, tally *shared)
{
    if (e >= m) {
        return 0;
    }
    const uint32_t bin = gw_ada_bin_of(s, e), left = s.bin - (e - bin * s.bin);
    const uint32_t top = gw_adacomp_limit(shared->tops[bin]);
    uint32_t next = left < 4 && e + left < m ? gw_adacomp_limit(shared->tops[bin + 1]) : top;
    uint32_t marks = 0;
#pragma unroll
    for (uint32_t c = 0; c < 4; c++) {
        if (s.bin < 4 && e + c < m) {
            next = gw_adacomp_limit(shared->tops[gw_ada_bin_of(s, e + c)]);
        }
        const uint32_t key = gw_adacomp_key(G[c], g[c], s.d) & GW_ABS_MASK;
        marks |= (uint32_t)(key >= (c < left ? top : next)) << c;
    }
    for (uint32_t some = marks; some != 0; some &= some - 1) {
        shared->used[gw_ada_bin_of(s, e + gw_lowest(some))] = 1;
    }
    if (marks != 0) { /* the sign of a key is that of G */
#pragma unroll
        for (uint32_t c = 0; c < 4; c++) {
            marks |= (marks >> c & gw_bits(G[c]) >> 31) << (16 + c);
        }
    }
    return marks;
}

/* Marks the thread's numbers; words of the planes. Returns how many are sent. */
GW_DEVICE uint32_t mark_all(const float G[GW_OWN], const float g[GW_OWN], const gw_ada &s,
                            uint32_t m, uint32_t words, uint32_t *sent, uint32_t *minus,
                            tally *shared)
{
    const uint32_t lane = threadIdx.x % 32;
    uint32_t chosen = 0;
#pragma unroll
    for (int q = 0; q < 4; q++) {
        const uint32_t e = gw_quad_at<GW_IN_ROWS>(threadIdx.x, q);
        const uint32_t marks = mark_quad(G + 4 * q, g + 4 * q, s, e, m, shared);
        uint32_t yes = (marks & 15) << lane % 8 * 4, negative = marks >> 16 << lane % 8 * 4;
        if (__any_sync(0xFFFFFFFFu, marks != 0)) {
#pragma unroll
            for (int d = 1; d < 8; d *= 2) {
                yes |= __shfl_xor_sync(0xFFFFFFFFu, yes, d);
                negative |= __shfl_xor_sync(0xFFFFFFFFu, negative, d);
            }
        }
        if (lane % 8 == 0 && e / 32 < words) {
            sent[e / 32] = yes;
            minus[e / 32] = negative;
            chosen += (uint32_t)__popc(yes);
        }
    }
    return chosen;
}

GW_DEVICE void count_odd(const float G[GW_OWN], gw_cuda_result *result)
{
    uint64_t n = 0;
#pragma unroll
    for (int i = 0; i < GW_OWN; i++) {
        n += magnitude(G[i]) >= GW_INF_BITS;
    }
    gw_count(&result->non_finite, n);
}

GW_DEVICE void add_chosen(uint32_t chosen, tally *shared)
{
    const uint32_t of_warp = __reduce_add_sync(0xFFFFFFFFu, chosen);
    if (threadIdx.x % 32 == 0) {
        atomicAdd(&shared->chosen, of_warp);
    }
}

/* A single bin of more elements than a chunk: read twice, the second time for the most part from the cache. */
template <int FEEDBACK>
GW_DEVICE void survey_long(const gw_select_in &t, const gw_ada &s, gw_dtype dtype, uint64_t at,
                           uint32_t m, const places &p, uint32_t tile, tally *shared)
{
    float g[GW_OWN], G[GW_OWN];
    uint32_t top = 0, chosen = 0;
    work w = {at, 0, 0};
    for (uint32_t e = 0; e < m; e += GW_ADA_CHUNK) {
        w.at = at + e;
        w.m = m - e < GW_ADA_CHUNK ? m - e : (uint32_t)GW_ADA_CHUNK;
        read_all<FEEDBACK>(g, G, t, dtype, w, debt_of<FEEDBACK>(p, s, tile, e), threadIdx.x);
        for (int i = 0; i < GW_OWN; i++) {
            top = larger(top, magnitude(G[i]));
        }
        count_odd(G, t.result);
    }
    atomicMax(&shared->tops[0], top);
    __syncthreads();
    /* a chunk of the bin is like a tile of one bin */
    for (uint32_t e = 0; e < m; e += GW_ADA_CHUNK) {
        w.at = at + e;
        w.m = m - e < GW_ADA_CHUNK ? m - e : (uint32_t)GW_ADA_CHUNK;
        read_all<FEEDBACK>(g, G, t, dtype, w, debt_of<FEEDBACK>(p, s, tile, e), threadIdx.x);
        if (FEEDBACK) {
            write_all(G, t, w, threadIdx.x);
        }
        const size_t plane = (size_t)tile * s.words + e / 32;
        chosen += mark_all(G, g, s, w.m, s.words - e / 32, p.sent + plane, p.minus + plane, shared);
    }
    add_chosen(chosen, shared);
}

/* A block's tile. */
template <int FEEDBACK>
GW_DEVICE void survey_block(const gw_select_in &t, const gw_ada &s, gw_dtype dtype, const places &p,
                            uint32_t tile)
{
    __shared__ tally shared;
    const uint64_t at = (uint64_t)tile * s.tile;
    const uint32_t m = gw_span_left(t.count, at, s.tile), bins = (m + s.bin - 1) / s.bin;
    if (threadIdx.x < GW_ADA_MOST_BINS) {
        shared.tops[threadIdx.x] = 0;
        shared.used[threadIdx.x] = 0;
    }
    if (threadIdx.x == 0) {
        shared.chosen = 0;
        shared.non_empty = 0;
    }
    if (s.tile > GW_ADA_CHUNK) {
        __syncthreads();
        survey_long<FEEDBACK>(t, s, dtype, at, m, p, tile, &shared);
    } else {
        float g[GW_OWN], G[GW_OWN];
        const work w = {at, m, s.tile % 4 == 0 && gw_quads_aligned(t, dtype)};
        read_all<FEEDBACK>(g, G, t, dtype, w, debt_of<FEEDBACK>(p, s, tile, 0), threadIdx.x);
        if (FEEDBACK) {
            write_all(G, t, w, threadIdx.x);
        }
        __syncthreads();
        top_all(G, s, m, shared.tops);
        __syncthreads();
        const size_t plane = (size_t)tile * s.words;
        add_chosen(mark_all(G, g, s, m, s.words, p.sent + plane, p.minus + plane, &shared),
                   &shared);
        int odd = 0;
        for (uint32_t b = threadIdx.x % 32; b < bins; b += 32) {
            odd |= shared.tops[b] >= GW_INF_BITS;
        }
        if (__any_sync(0xFFFFFFFFu, odd)) {
            count_odd(G, t.result);
        }
    }
    __syncthreads();
    if (threadIdx.x < bins) {
        p.tops[(uint64_t)tile * s.bins + threadIdx.x] = shared.tops[threadIdx.x];
        if (shared.used[threadIdx.x] != 0) {
            atomicAdd(&shared.non_empty, 1u);
        }
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        p.of_tiles[tile] = (shared.chosen - shared.non_empty) | shared.chosen << 16;
    }
}

/* ---- a warp's tile ---- */

/* What a warp of survey keeps in shared memory where a tile has several bins. */
typedef struct alignas(16) desk {
    float G[GW_ADA_WARP_TILE];
    uint32_t tops[GW_ADA_WARP_BINS + 4];
} desk;

/* The maxima of the tile's bins, in shared memory: `share` lanes look through each. */
GW_DEVICE void top_tile(const float G[GW_OWN], const gw_ada &s, desk *d)
{
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t b = lane; b < GW_ADA_WARP_BINS + 4; b += 32) {
        d->tops[b] = 0;
    }
#pragma unroll
    for (int q = 0; q < 4; q++) {
        *(float4 *)&d->G[gw_quad_at<GW_IN_ROWS>(lane, q)] =
            make_float4(G[4 * q], G[4 * q + 1], G[4 * q + 2], G[4 * q + 3]);
    }
    __syncwarp();
    const uint32_t bin = lane * s.per_share >> 16, from = (lane - bin * s.share) * s.length;
    if (bin < s.bins && from < s.bin) {
        const uint32_t n = s.bin - from < s.length ? s.bin - from : s.length;
        const float *numbers = d->G + bin * s.bin + from;
        uint32_t top = 0;
#pragma unroll 4
        for (uint32_t i = 0; i < n; i++) {
            top = larger(top, magnitude(numbers[i]));
        }
        atomicMax(&d->tops[bin], top);
    }
    __syncwarp();
}

/* A thread's marks: bit 8 q + c is element c of its quad q. */
typedef struct marks {
    uint32_t sent, minus;
    uint32_t used; /* bins */
} marks;

/* gw_adacomp_key against a limit, for finite numbers: compared as what they are. With others nothing is sent at all. */
GW_DEVICE int is_over(float G, float g, float d, float limit)
{
    const float soft = g * d, H = G + soft;
    return G != 0.0f && fabsf(H) >= limit;
}

/* `top` is the one bin's maximum, or else the desk has them. */
template <int ONE>
GW_DEVICE marks mark_tile(const float G[GW_OWN], const float g[GW_OWN], const gw_ada &s,
                          uint32_t top, const desk *d)
{
    marks k = {0, 0, 0};
#pragma unroll
    for (uint32_t q = 0; q < 4; q++) {
        const uint32_t e = gw_quad_at<GW_IN_ROWS>(threadIdx.x % 32, (int)q);
        uint32_t bin = 0, left = 4;
        float first = gw_float(gw_adacomp_limit(top)), next = first;
        if (!ONE) {
            bin = e * s.per_bin >> 20;
            left = s.bin - (e - bin * s.bin);
            first = gw_float(gw_adacomp_limit(d->tops[bin]));
            next = gw_float(gw_adacomp_limit(d->tops[bin + 1]));
        }
#pragma unroll
        for (uint32_t c = 0; c < 4; c++) {
            const int i = (int)(4 * q + c);
            if (is_over(G[i], g[i], s.d, ONE || c < left ? first : next)) {
                k.sent |= 1u << (8 * q + c);
            }
            k.minus |= (gw_bits(G[i]) & GW_SIGN_BIT) >> (31 - (8 * q + c));
        }
        if (!ONE) {
            const uint32_t some = k.sent >> 8 * q & 15, low = gw_bits_below(left);
            k.used |= (uint32_t)((some & low) != 0) << bin;
            k.used |= (some & ~low) != 0 ? 2u << bin : 0; /* a bin of its own: below 32 */
        }
    }
    return k;
}

/* From a lane's nibbles to the planes' words: an even lane gets a word of what is sent, the odd one beside it the same of the
 * signs, number *word of the tile. */
GW_DEVICE uint32_t words_of(const marks &k, uint32_t *word)
{
    const uint32_t lane = threadIdx.x % 32, odd = lane & 1, row = lane >> 1 & 3;
    uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, odd ? k.sent : k.minus, 1);
    uint32_t mine = odd ? other | k.minus << 4 : k.sent | other << 4; /* bytes of four rows */
    other = __shfl_xor_sync(0xFFFFFFFFu, mine, 2);
    mine = __byte_perm(mine, other, row & 1 ? 0x3715 : 0x6240);
    other = __shfl_xor_sync(0xFFFFFFFFu, mine, 4);
    *word = 4 * row + lane / 8;
    return __byte_perm(mine, other, row & 2 ? 0x3276 : 0x5410);
}

/* All of it, by one warp, which needs no other. ONE: the tile is a single bin. */
template <int FEEDBACK, int ONE>
GW_DEVICE void survey_tile(const gw_select_in &t, const gw_ada &s, gw_dtype dtype, const places &p,
                           uint32_t tile, desk *d)
{
    const uint32_t lane = threadIdx.x % 32;
    const uint64_t at = (uint64_t)tile * s.tile;
    const work w = {at, gw_span_left(t.count, at, s.tile), gw_quads_aligned(t, dtype)};
    float g[GW_OWN], G[GW_OWN];
    read_all<FEEDBACK>(g, G, t, dtype, w, debt_of<FEEDBACK>(p, s, tile, 0), lane);
    if (FEEDBACK) {
        write_all(G, t, w, lane);
    }
    uint32_t top = 0;
    if (ONE) {
#pragma unroll
        for (int i = 0; i < GW_OWN; i++) {
            top = larger(top, magnitude(G[i]));
        }
        top = __reduce_max_sync(0xFFFFFFFFu, top);
    } else {
        top_tile(G, s, d);
        top = d->tops[lane];
    }
    const marks k = mark_tile<ONE>(G, g, s, top, d);
    if (__any_sync(0xFFFFFFFFu, top >= GW_INF_BITS)) {
        count_odd(G, t.result);
    }
    uint32_t number;
    const uint32_t word = words_of(k, &number);
    (lane & 1 ? p.minus : p.sent)[(size_t)tile * s.words + number] = word;
    const uint32_t chosen = __reduce_add_sync(0xFFFFFFFFu, (uint32_t)__popc(k.sent));
    const uint32_t used =
        ONE ? chosen != 0 : (uint32_t)__popc(__reduce_or_sync(0xFFFFFFFFu, k.used));
    const uint64_t bin = (uint64_t)tile * s.bins + lane;
    if (lane < s.bins && bin < p.bins) {
        p.tops[bin] = top;
    }
    if (lane == 0) {
        p.of_tiles[tile] = (chosen - used) | chosen << 16;
    }
}

template <int N, int FEEDBACK, int ONE>
__global__ void __launch_bounds__(TILE_WARPS * 32, 32 / TILE_WARPS)
    survey_tiles_kernel(const __grid_constant__ gw_select_batch<gw_ada, places, N> batch)
{
    __shared__ desk desks[ONE ? 1 : TILE_WARPS];
    uint32_t part;
    const uint32_t which = gw_select_find(batch, &part), warp = threadIdx.x / 32;
    const places &p = batch.layout[which];
    const uint32_t tile = part * TILE_WARPS + warp;
    if (threadIdx.x == 0 && part == 0) {
        p.at->ticket = 0;
    }
    if (tile < p.tiles) {
        survey_tile<FEEDBACK, ONE>(batch.tensor[which], batch.s, batch.dtype, p, tile,
                                   &desks[ONE ? 0 : warp]);
    }
}

template <int N, int FEEDBACK>
__global__ void __launch_bounds__(THREADS, 4)
    survey_blocks_kernel(const __grid_constant__ gw_select_batch<gw_ada, places, N> batch)
{
    uint32_t tile;
    const uint32_t which = gw_select_find(batch, &tile);
    if (threadIdx.x == 0 && tile == 0) {
        batch.layout[which].at->ticket = 0;
    }
    survey_block<FEEDBACK>(batch.tensor[which], batch.s, batch.dtype, batch.layout[which], tile);
}
