/* adacomp.cu's last kernel, inside of its namespace: payload and r′ of a tile, by one warp. */

/* What a warp keeps in shared memory: both planes of its tile without what is cut off, how many are sent before each word, and
 * of each bin how many empty ones are before it and how many elements are sent up to its end. In form 1 signs
 * take the place of the bins. */
typedef struct bench {
    uint32_t *sent, *minus; /* words, and one that is zero */
    uint32_t *bins, *signs;
    uint16_t *before; /* one more than words */
} bench;

static __host__ __device__ inline uint32_t bench_words(const gw_ada &s)
{
    const uint32_t bins = s.tile / s.bin, signs = s.words + 2;
    return 2 * (s.words + 1) + (bins > signs ? bins : signs) + (s.words + 2) / 2;
}

static inline uint32_t settle_bytes(const gw_ada &s)
{
    return 4 * bench_words(s);
}

GW_DEVICE bench bench_of(uint8_t *shared, const gw_ada &s)
{
    bench b;
    b.sent = (uint32_t *)shared + threadIdx.x / 32 * bench_words(s);
    b.minus = b.sent + s.words + 1;
    b.before = (uint16_t *)(b.minus + s.words + 1);
    b.bins = b.minus + s.words + 1 + (s.words + 2) / 2;
    b.signs = b.bins;
    return b;
}

/* Elements sent before element e of the tile. */
GW_DEVICE uint32_t rank_of(const bench &b, uint32_t e)
{
    return b.before[e / 32] + (uint32_t)__popc(b.sent[e / 32] & gw_bits_below(e % 32));
}

/* Reads the planes; `shown` elements of the tile are before the cut. Returns how many are sent. */
GW_DEVICE uint32_t lay_out(const bench &b, const gw_ada &s, const places &p, uint32_t tile,
                           uint64_t shown)
{
    const uint32_t lane = threadIdx.x % 32;
    const size_t plane = (size_t)tile * s.words;
    uint32_t n = 0;
    for (uint32_t row = 0; row <= s.words; row += 32) {
        const uint32_t w = row + lane;
        uint32_t word = 0;
        if (w < s.words) {
            const uint64_t from = 32 * (uint64_t)w;
            word =
                p.sent[plane + w] &
                (shown <= from ? 0
                               : gw_bits_below((uint32_t)(shown - from < 32 ? shown - from : 32)));
            b.minus[w] = p.minus[plane + w];
        }
        uint32_t all;
        const uint32_t before = n + gw_warp_before((uint32_t)__popc(word), &all);
        if (w <= s.words) {
            b.sent[w] = word;
            b.before[w] = (uint16_t)before;
        }
        n += all;
    }
    if (lane == 0) {
        b.minus[s.words] = 0;
    }
    __syncwarp();
    return n;
}

GW_DEVICE void put_entry(uint8_t *entries, uint32_t width, uint64_t j, uint32_t entry)
{
    if (width == 1) {
        entries[j] = (uint8_t)entry;
    } else {
        entries[2 * j] = (uint8_t)entry;
        entries[2 * j + 1] = (uint8_t)(entry >> 8);
    }
}

/* Fills the table of bins, and writes the marks of empty ones. */
GW_DEVICE void walk_bins(const bench &b, const gw_ada &s, uint32_t m, uint8_t *entries,
                         uint64_t first)
{
    const uint32_t lane = threadIdx.x % 32, bins = (m + s.bin - 1) / s.bin;
    uint32_t n_empty = 0;
    for (uint32_t row = 0; row < bins; row += 32) {
        const uint32_t bin = row + lane, begin = bin * s.bin;
        const uint32_t end = begin + s.bin < m ? begin + s.bin : m;
        const uint32_t from = bin < bins ? rank_of(b, begin) : 0;
        const uint32_t to = bin < bins ? rank_of(b, end) : 0;
        const int empty = bin < bins && from == to;
        const uint32_t which = __ballot_sync(0xFFFFFFFFu, empty);
        const uint32_t before = n_empty + (uint32_t)__popc(which & gw_bits_below(lane));
        n_empty += (uint32_t)__popc(which);
        if (bin < bins) {
            b.bins[bin] = before | to << 16;
        }
        if (empty) {
            put_entry(entries, s.width, first + from + before, s.width == 1 ? 0xBFu : 0xBFFFu);
        }
    }
    __syncwarp();
}

/* Entries of a quad's marks. */
GW_DEVICE void write_entries(const bench &b, const gw_ada &s, uint32_t e, uint32_t yes,
                             uint32_t negative, uint8_t *entries, uint64_t first)
{
    uint32_t rank = rank_of(b, e);
    for (; yes != 0; yes &= yes - 1, rank++) {
        const uint32_t c = gw_lowest(yes), bin = gw_ada_bin_of(s, e + c), row = b.bins[bin];
        const uint32_t last = rank + 1 == row >> 16;
        put_entry(entries, s.width, first + rank + (row & 0xFFFF),
                  (e + c - bin * s.bin) | (negative >> c & 1) << s.sign_at |
                      last << (s.sign_at + 1));
    }
}

/* Signs of a quad's marks, into the tile's string. */
GW_DEVICE void collect_signs(const bench &b, uint32_t e, uint32_t yes, uint32_t negative,
                             uint32_t shift)
{
    uint32_t at = rank_of(b, e) + shift;
    for (; yes != 0; yes &= yes - 1, at++) {
        atomicOr(&b.signs[at / 32], (negative >> gw_lowest(yes) & 1) << at % 32);
    }
}

/* The sign of the element sent as number `rank` of the tensor. */
GW_DEVICE uint32_t sign_at_rank(const places &p, const gw_ada &s, uint64_t rank)
{
    uint32_t low = 0, high = p.tiles;
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (p.counts[middle].y <= rank) {
            low = middle;
        } else {
            high = middle;
        }
    }
    uint32_t rest = (uint32_t)(rank - p.counts[low].y);
    for (uint32_t w = 0; w < s.words; w++) {
        uint32_t word = p.sent[(size_t)low * s.words + w];
        const uint32_t n = (uint32_t)__popc(word);
        if (rest < n) {
            for (; rest > 0; rest--) {
                word &= word - 1;
            }
            return p.minus[(size_t)low * s.words + w] >> gw_lowest(word) & 1;
        }
        rest -= n;
    }
    return 0;
}

/* The tile's part of the string of signs: bytes whose first bit is the tile's, to the end of the last of them. */
GW_DEVICE void write_signs(const bench &b, const places &p, const gw_ada &s, uint64_t rank,
                           uint32_t n, uint8_t *signs)
{
    const uint32_t lane = threadIdx.x % 32, shift = (uint32_t)(rank % 8), end = shift + n;
    const uint64_t kept = p.at->kept, byte = rank / 8;
    if (lane < 8 && n != 0) { /* the last byte, as far as the next tiles fill it */
        const uint32_t at = end + lane;
        if (at / 8 == (end - 1) / 8 && rank + n + lane < kept &&
            sign_at_rank(p, s, rank + n + lane)) {
            atomicOr(&b.signs[at / 32], 1u << at % 32);
        }
    }
    __syncwarp();
    for (uint32_t i = (shift != 0) + lane; 8 * i < end; i += 32) {
        signs[byte + i] = (uint8_t)(b.signs[i / 4] >> i % 4 * 8);
    }
}

/* Is element i sent? */
GW_DEVICE uint32_t is_sent(const places &p, const gw_ada &s, uint64_t i)
{
    const uint32_t tile = (uint32_t)(i / s.tile), e = (uint32_t)(i - (uint64_t)tile * s.tile);
    return i < p.at->end ? p.sent[(size_t)tile * s.words + e / 32] >> e % 32 & 1 : 0;
}

/* The bytes of the bitmap whose first bit is the tile's. */
GW_DEVICE void write_bitmap(const bench &b, const places &p, const gw_ada &s, uint64_t at,
                            uint32_t m, uint64_t count, uint8_t *bitmap)
{
    const uint32_t lane = threadIdx.x % 32;
    if (s.tile % 8 == 0) {
        for (uint32_t i = lane; 8 * i < m; i += 32) {
            bitmap[at / 8 + i] = (uint8_t)(b.sent[i / 4] >> i % 4 * 8);
        }
        return;
    }
    for (uint64_t i = (at + 7) / 8 + lane; 8 * i < at + m; i += 32) {
        uint32_t byte = 0;
        for (uint64_t j = 8 * i; j < 8 * i + 8 && j < count; j++) {
            byte |= is_sent(p, s, j) << (j - 8 * i);
        }
        bitmap[i] = (uint8_t)byte;
    }
}

/* r′ of a quad. */
GW_DEVICE void take_quad(float x[4], uint32_t yes, uint32_t negative, float scale)
{
#pragma unroll
    for (int c = 0; c < 4; c++) {
        x[c] = yes >> c & 1 ? x[c] - gw_adacomp_value(scale, negative >> c & 1) : x[c];
    }
}

template <int N, int FEEDBACK>
__global__ void __launch_bounds__(THREADS)
    settle_kernel(const __grid_constant__ gw_select_batch<gw_ada, places, N> batch)
{
    enum { ABREAST = 4 };
    GW_DYNAMIC_SHARED(shared);
    uint32_t group;
    const gw_ada &s = batch.s;
    const uint32_t which = gw_select_find(batch, &group);
    const gw_select_in &t = batch.tensor[which];
    const places &p = batch.layout[which];
    const uint32_t number = group * WARPS + threadIdx.x / 32;
    if (number >= p.tiles || p.at->form == GW_ADA_NON_FINITE) {
        return; /* the whole warp; there are no barriers of the block here */
    }
    const uint32_t tile = p.tiles - 1 - number;
    const uint64_t at = (uint64_t)tile * s.tile, end = p.at->end;
    const uint32_t m = gw_span_left(t.count, at, s.tile);
    const bench b = bench_of(shared, s);
    const uint2 before = p.counts[tile];
    const uint32_t n = lay_out(b, s, p, tile, end > at ? end - at : 0);
    const int bitmap = p.at->form == GW_ADA_BITMAP;
    const float scale = p.at->scale;
    uint8_t *body = t.payload + GW_ADA_HEADER;
    const uint64_t extras = before.x < p.at->spare ? before.x : p.at->spare;
    const uint64_t first = (uint64_t)tile * (s.tile / s.bin) + extras;
    if (bitmap) {
        write_bitmap(b, p, s, at, m, t.count, body);
        for (uint32_t i = threadIdx.x % 32; 32 * i < n + 7 + 8; i += 32) {
            b.signs[i] = 0;
        }
        __syncwarp();
    } else {
        walk_bins(b, s, m, body, first);
    }
    const int whole = s.tile % 4 == 0 && gw_aligned_to(t.after, 16);
    for (uint32_t row = 0; row < m; row += ABREAST * 128) {
        float x[ABREAST][4];
        uint32_t yes[ABREAST], negative[ABREAST];
#pragma unroll
        for (uint32_t a = 0; a < ABREAST; a++) {
            const uint32_t e = row + a * 128 + threadIdx.x % 32 * 4;
            yes[a] = e < m ? b.sent[e / 32] >> e % 32 & 15 : 0;
            negative[a] = e < m ? b.minus[e / 32] >> e % 32 & 15 : 0;
            if (FEEDBACK && yes[a] != 0) {
                const uint32_t left = m - e;
                if (whole && left >= 4) {
                    const float4 v = *(const float4 *)(t.after + at + e);
                    x[a][0] = v.x, x[a][1] = v.y, x[a][2] = v.z, x[a][3] = v.w;
                } else {
#pragma unroll
                    for (uint32_t c = 0; c < 4; c++) {
                        x[a][c] = c < left ? t.after[at + e + c] : 0.0f;
                    }
                }
            }
        }
#pragma unroll
        for (uint32_t a = 0; a < ABREAST; a++) {
            const uint32_t e = row + a * 128 + threadIdx.x % 32 * 4;
            if (yes[a] == 0) {
                continue;
            }
            if (bitmap) {
                collect_signs(b, e, yes[a], negative[a], before.y % 8);
            } else {
                write_entries(b, s, e, yes[a], negative[a], body, first);
            }
            if (FEEDBACK) {
                take_quad(x[a], yes[a], negative[a], scale);
                gw_write_four(x[a], t.after, at + e, m - e, whole && m - e >= 4);
            }
        }
    }
    if (bitmap) {
        __syncwarp();
        write_signs(b, p, s, before.y, n, body + (t.count + 7) / 8);
    }
}
