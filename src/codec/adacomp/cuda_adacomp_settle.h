/* adacomp.cu's last kernel, inside of its namespace: payload and r′ of a unit, by one warp. */

/* Words in which a unit's part of the payload is put together, if they hold it; elements that are worked on together. */
enum { STAGE = 256, LIST = 512 };

/* What a warp keeps in shared memory: both planes of its unit without what is cut off, how many are sent before each word, and
 * of each bin how many empty ones are before it and how many elements are sent up to its end. In form 1 signs
 * take the place of the bins. Places of elements are those of their bits. */
typedef struct bench {
    uint32_t *sent, *minus; /* words, and some that are zero */
    uint32_t *bins, *signs, *stage;
    uint16_t *before; /* one more than words */
    uint16_t *list;
    uint32_t words;
} bench;

static __host__ __device__ inline uint32_t bench_words(const gw_ada &s)
{
    const uint32_t words = s.per * s.words, bins = s.per * s.bins, signs = words + 4;
    return 2 * (words + 4) + (bins > signs ? (bins + 3) / 4 * 4 : signs) + (words + 8) / 8 * 4 +
           STAGE + 4 + LIST / 2;
}

/* Warps of a block: as many as have room. */
static inline uint32_t settle_warps(const gw_ada &s)
{
    return 4 * WARPS * bench_words(s) <= GW_SHARED ? (uint32_t)WARPS : WARPS / 4;
}

GW_DEVICE bench bench_of(uint8_t *shared, const gw_ada &s)
{
    bench b;
    b.words = s.per * s.words;
    b.sent = (uint32_t *)shared + threadIdx.x / 32 * bench_words(s);
    b.minus = b.sent + b.words + 4;
    b.before = (uint16_t *)(b.minus + b.words + 4);
    b.stage = b.minus + b.words + 4 + (b.words + 8) / 8 * 4;
    b.list = (uint16_t *)(b.stage + STAGE + 4);
    b.bins = b.stage + STAGE + 4 + LIST / 2;
    b.signs = b.bins;
    return b;
}

/* Elements sent before place e of the unit. */
GW_DEVICE uint32_t rank_of(const bench &b, uint32_t e)
{
    return b.before[e / 32] + (uint32_t)__popc(b.sent[e / 32] & gw_bits_below(e % 32));
}

/* Reads the planes, four words a lane. Returns how many are sent. */
GW_DEVICE uint32_t lay_out(const bench &b, const gw_ada &s, const places &p, uint32_t first_tile,
                           uint64_t end)
{
    const uint32_t lane = threadIdx.x % 32;
    const size_t plane = (size_t)first_tile * s.words;
    uint32_t n = 0;
    for (uint32_t row = 0; row <= b.words; row += 128) {
        const uint32_t w = row + 4 * lane, tile = first_tile + (s.per == 1 ? 0 : w / 16);
        uint4 word = make_uint4(0, 0, 0, 0), sign = word;
        if (w < b.words && tile < p.tiles) {
            word = *(const uint4 *)(p.sent + plane + w);
            sign = *(const uint4 *)(p.minus + plane + w);
            const uint64_t from =
                (uint64_t)tile * s.tile + 32 * (w - (tile - first_tile) * s.words);
            if (end < from + 128) {
                word.x = cut_off(word.x, from, end);
                word.y = cut_off(word.y, from + 32, end);
                word.z = cut_off(word.z, from + 64, end);
                word.w = cut_off(word.w, from + 96, end);
            }
        }
        const uint32_t x = (uint32_t)__popc(word.x), y = x + (uint32_t)__popc(word.y),
                       z = y + (uint32_t)__popc(word.z);
        uint32_t all;
        const uint32_t before = n + gw_warp_before(z + (uint32_t)__popc(word.w), &all);
        if (w <= b.words) {
            *(uint4 *)(b.sent + w) = word;
            *(uint4 *)(b.minus + w) = sign;
            *(uint2 *)(b.before + w) =
                make_uint2(before | (before + x) << 16, (before + y) | (before + z) << 16);
        }
        n += all;
    }
    __syncwarp();
    return n;
}

/* Where entries go: `at` is the unit's first of the payload; through the stage if that holds all of them. */
typedef struct outlet {
    uint8_t *to;
    uint32_t width;
} outlet;

GW_DEVICE void put_entry(const outlet &o, uint32_t j, uint32_t entry)
{
    if (o.width == 1) {
        o.to[j] = (uint8_t)entry;
    } else {
        o.to[2 * j] = (uint8_t)entry;
        o.to[2 * j + 1] = (uint8_t)(entry >> 8);
    }
}

/* Fills the table of bins; returns how many are empty. */
GW_DEVICE uint32_t walk_bins(const bench &b, const gw_ada &s, uint32_t bins)
{
    const uint32_t lane = threadIdx.x % 32;
    uint32_t n_empty = 0;
    for (uint32_t row = 0; row < bins; row += 32) {
        const uint32_t bin = row + lane, tile = gw_ada_tile_of_bin(s, bin);
        const uint32_t begin = tile * 32 * s.words + (bin - tile * s.bins) * s.bin;
        const uint32_t from = bin < bins ? rank_of(b, begin) : 0;
        const uint32_t to = bin < bins ? rank_of(b, begin + s.bin) : 0;
        const int empty = bin < bins && from == to;
        const uint32_t which = __ballot_sync(0xFFFFFFFFu, empty);
        const uint32_t before = n_empty + (uint32_t)__popc(which & gw_bits_below(lane));
        n_empty += (uint32_t)__popc(which);
        if (bin < bins) {
            b.bins[bin] = before | to << 16;
        }
    }
    __syncwarp();
    return n_empty;
}

/* Marks of empty bins. */
GW_DEVICE void write_empty(const bench &b, uint32_t bins, const outlet &o)
{
    for (uint32_t bin = threadIdx.x % 32; bin < bins; bin += 32) {
        const uint32_t row = b.bins[bin], before = bin == 0 ? 0 : b.bins[bin - 1] >> 16;
        if (row >> 16 == before) {
            put_entry(o, before + (row & 0xFFFF), o.width == 1 ? 0xBFu : 0xBFFFu);
        }
    }
}

/* Places of the elements sent as numbers first … first + LIST − 1 of the unit; bit 14 is the sign. Four words a lane. */
GW_DEVICE void list_places(const bench &b, uint32_t first)
{
    for (uint32_t w = threadIdx.x % 32 * 4; w < b.words; w += 128) {
        uint32_t i = w, word = b.sent[w], rank = b.before[w] - first;
        if ((int32_t)rank >= LIST || (int32_t)(b.before[w + 4] - first) <= 0) {
            continue;
        }
        for (;; word &= word - 1, rank++) {
            while (word == 0 && ++i < w + 4) {
                word = b.sent[i];
            }
            if (word == 0) {
                break;
            }
            const uint32_t bit = gw_lowest(word);
            if (rank < LIST) {
                b.list[rank] = (uint16_t)((32 * i + bit) | (b.minus[i] >> bit & 1) << 14);
            }
        }
    }
    __syncwarp();
}

/* What is done with the elements of a list. */
typedef struct task {
    outlet entries; /* NULL: none */
    float *after;   /* r′ of the unit's first element */
    float scale;
} task;

GW_DEVICE void write_entry(const bench &b, const gw_ada &s, const outlet &o, uint32_t tile,
                           uint32_t e, uint32_t rank, uint32_t negative)
{
    const uint32_t bin = gw_ada_bin_of(s, e), row = b.bins[tile * s.bins + bin];
    const uint32_t last = rank + 1 == row >> 16;
    put_entry(o, rank + (row & 0xFFFF),
              (e - bin * s.bin) | negative << s.sign_at | last << (s.sign_at + 1));
}

/* Writes entries of n elements, numbers first … of the unit, and takes the scale off their r′. */
template <int FEEDBACK>
GW_DEVICE void do_list(const bench &b, const gw_ada &s, const task &t, uint32_t first, uint32_t n)
{
    enum { ABREAST = 4 };
    for (uint32_t k = threadIdx.x % 32; k < n; k += 32 * ABREAST) {
        float x[ABREAST];
        uint32_t place[ABREAST];
#pragma unroll
        for (uint32_t a = 0; a < ABREAST; a++) {
            place[a] = k + 32 * a < n ? b.list[k + 32 * a] : 0xFFFFu;
            const uint32_t at = place[a] & 0x3FFF, tile = s.per == 1 ? 0 : at / GW_ADA_WARP_TILE;
            const uint32_t e = at - tile * GW_ADA_WARP_TILE;
            x[a] = FEEDBACK && place[a] != 0xFFFFu ? t.after[tile * s.tile + e] : 0.0f;
        }
#pragma unroll
        for (uint32_t a = 0; a < ABREAST; a++) {
            const uint32_t at = place[a] & 0x3FFF, tile = s.per == 1 ? 0 : at / GW_ADA_WARP_TILE;
            const uint32_t e = at - tile * GW_ADA_WARP_TILE, negative = place[a] >> 14 & 1;
            if (place[a] == 0xFFFFu) {
                continue;
            }
            if (t.entries.to != NULL) {
                write_entry(b, s, t.entries, tile, e, first + k + 32 * a, negative);
            }
            if (FEEDBACK) {
                t.after[tile * s.tile + e] = x[a] - gw_adacomp_value(t.scale, negative);
            }
        }
    }
    __syncwarp();
}

/* Signs of what is sent, into the unit's string from bit `shift` on, which is clear. */
GW_DEVICE void collect_signs(const bench &b, uint32_t shift)
{
    for (uint32_t w = threadIdx.x % 32; w < b.words; w += 32) {
        const uint32_t minus = b.minus[w];
        uint32_t some = 0, n = 0;
        for (uint32_t word = b.sent[w]; word != 0; word &= word - 1, n++) {
            some |= (minus >> gw_lowest(word) & 1) << n;
        }
        const uint32_t at = b.before[w] + shift;
        if (some != 0) {
            atomicOr(&b.signs[at / 32], some << at % 32);
            if (at % 32 + n > 32) {
                atomicOr(&b.signs[at / 32 + 1], some >> (32 - at % 32));
            }
        }
    }
}

/* The sign of the element sent as number `rank` of the tensor, which is in `unit` or behind it. */
GW_DEVICE uint32_t sign_at_rank(const places &p, const gw_ada &s, uint32_t unit, uint64_t rank)
{
    uint32_t low = unit, high = p.units;
    if (before_unit(p, unit + 1).y > rank) { /* as a rule */
        high = unit + 1;
    }
    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (before_unit(p, middle).y <= rank) {
            low = middle;
        } else {
            high = middle;
        }
    }
    uint32_t rest = (uint32_t)(rank - before_unit(p, low).y);
    const size_t plane = (size_t)low * s.per * s.words, words = (size_t)p.tiles * s.words;
    for (size_t w = plane; w < plane + s.per * s.words && w < words; w++) {
        uint32_t word = p.sent[w];
        const uint32_t n = (uint32_t)__popc(word);
        if (rest < n) {
            for (; rest > 0; rest--) {
                word &= word - 1;
            }
            return p.minus[w] >> gw_lowest(word) & 1;
        }
        rest -= n;
    }
    return 0;
}

/* The unit's part of the string of signs: bytes whose first bit is the unit's, to the end of the last of them. */
GW_DEVICE void write_signs(const bench &b, const places &p, const gw_ada &s, uint32_t unit,
                           uint64_t rank, uint32_t n, uint8_t *signs)
{
    const uint32_t lane = threadIdx.x % 32, shift = (uint32_t)(rank % 8), end = shift + n;
    const uint64_t kept = p.at->kept, byte = rank / 8;
    for (uint32_t i = lane; 32 * i < end + 8; i += 32) {
        b.signs[i] = 0;
    }
    __syncwarp();
    collect_signs(b, shift);
    if (lane < 8 && n != 0) { /* the last byte, as far as the next units fill it */
        const uint32_t at = end + lane;
        if (at / 8 == (end - 1) / 8 && rank + n + lane < kept &&
            sign_at_rank(p, s, unit + 1, rank + n + lane)) {
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

/* The bytes of the bitmap whose first bit is the unit's, which has m elements from `at` on. */
GW_DEVICE void write_bitmap(const bench &b, const places &p, const gw_ada &s, uint64_t at,
                            uint32_t m, uint64_t count, uint8_t *bitmap)
{
    const uint32_t lane = threadIdx.x % 32;
    if (s.per != 1) { /* tiles without the gaps between them: at most STAGE / 2 words */
        for (uint32_t i = lane; 32 * i < m; i += 32) {
            const uint32_t tile = gw_ada_tile_of(s, 32 * i), e = 32 * i - tile * s.tile;
            const uint32_t *from = b.sent + tile * s.words + e / 32;
            const uint32_t here = __funnelshift_r(from[0], from[1], e % 32), left = s.tile - e;
            b.stage[i] = left >= 32
                             ? here
                             : (here & gw_bits_below(left)) | b.sent[(tile + 1) * s.words] << left;
        }
        __syncwarp();
        gw_copy_out(bitmap + at / 8, b.stage, 0, (m + 7) / 8, lane, 32);
        return;
    }
    for (uint64_t i = (at + 7) / 8 + lane; 8 * i < at + m; i += 32) {
        uint32_t byte = 0;
        if (s.tile % 8 == 0) {
            const uint32_t j = (uint32_t)(i - at / 8);
            byte = b.sent[j / 4] >> j % 4 * 8;
        } else {
            for (uint64_t j = 8 * i; j < 8 * i + 8 && j < count; j++) {
                byte |= is_sent(p, s, j) << (j - 8 * i);
            }
        }
        bitmap[i] = (uint8_t)byte;
    }
}

template <int FEEDBACK>
GW_DEVICE void settle_unit(const gw_select_in &t, const gw_ada &s, const places &p, uint32_t unit,
                           uint8_t *shared)
{
    const bench b = bench_of(shared, s);
    const state at = *p.at;
    const uint64_t from = (uint64_t)unit * s.per * s.tile;
    const uint32_t m = gw_span_left(t.count, from, s.per * s.tile);
    const uint2 before = before_unit(p, unit);
    const uint32_t n = lay_out(b, s, p, unit * s.per, at.end), lane = threadIdx.x % 32;
    if (at.form == GW_ADA_NON_FINITE) {
        return;
    }
    uint8_t *body = t.payload + GW_ADA_HEADER;
    task job = {{NULL, s.width}, FEEDBACK ? t.after + from : NULL, at.scale};
    uint32_t staged = 0;
    if (at.form == GW_ADA_BITMAP) {
        write_bitmap(b, p, s, from, m, t.count, body);
        write_signs(b, p, s, unit, before.y, n, body + (t.count + 7) / 8);
    } else {
        const uint64_t extras = before.x < at.spare ? before.x : at.spare;
        const uint32_t bins = (m + s.bin - 1) / s.bin;
        const uint32_t bytes = s.width * (n + walk_bins(b, s, bins));
        body += s.width * ((uint64_t)unit * s.per * s.bins + extras);
        staged = bytes <= 4 * STAGE ? bytes : 0;
        job.entries.to = staged != 0 ? (uint8_t *)b.stage : body;
        write_empty(b, bins, job.entries);
    }
    for (uint32_t first = 0; (FEEDBACK || job.entries.to != NULL) && first < n; first += LIST) {
        list_places(b, first);
        do_list<FEEDBACK>(b, s, job, first, n - first < LIST ? n - first : (uint32_t)LIST);
    }
    if (staged != 0) {
        __syncwarp();
        gw_copy_out(body, b.stage, 0, staged, lane, 32);
    }
}

/* Bits of a word as entries of a single bin, from number *at of the stage on. */
GW_DEVICE void list_bits(uint16_t *stage, uint32_t *at, uint32_t word, uint32_t minus, uint32_t e)
{
    for (; word != 0; word &= word - 1) {
        const uint32_t bit = gw_lowest(word);
        stage[(*at)++] = (uint16_t)((e + bit) | (minus >> bit & 1) << 14);
    }
}

/* Entries where a tile is a single bin and r′ stays as it is: four lanes have a tile, and no table is needed. 0: another form, or more
 * than `room` bytes, and nothing was written. `words` has four more. */
GW_DEVICE int list_single_bins(const gw_select_in &t, const gw_ada &s, const places &p,
                               uint32_t unit, uint32_t *words, uint32_t room)
{
    const uint32_t lane = threadIdx.x % 32, tile = unit * GW_ADA_WARP_TILES + lane / 4;
    const uint32_t first = lane % 4 * 128; /* of the tile's elements */
    const int there = tile < p.tiles;
    const state at = *p.at;
    const uint32_t extras = before_unit(p, unit).x;
    uint4 word = make_uint4(0, 0, 0, 0), sign = word;
    if (there) {
        const size_t plane = (size_t)tile * s.words + lane % 4 * 4;
        word = *(const uint4 *)(p.sent + plane);
        sign = *(const uint4 *)(p.minus + plane);
    }
    const uint64_t from = (uint64_t)tile * s.tile + first;
    if (at.end < from + 128) {
        word.x = cut_off(word.x, from, at.end);
        word.y = cut_off(word.y, from + 32, at.end);
        word.z = cut_off(word.z, from + 64, at.end);
        word.w = cut_off(word.w, from + 96, at.end);
    }
    const uint32_t own =
        (uint32_t)(__popc(word.x) + __popc(word.y) + __popc(word.z) + __popc(word.w));
    uint32_t n, of_bin = own + __shfl_xor_sync(0xFFFFFFFFu, own, 1);
    of_bin += __shfl_xor_sync(0xFFFFFFFFu, of_bin, 2);
    const uint32_t before = gw_warp_before(own, &n);
    const int leads = there && lane % 4 == 0;
    const uint32_t empty = __ballot_sync(0xFFFFFFFFu, leads && of_bin == 0);
    const uint32_t bytes = 2 * (n + (uint32_t)__popc(empty));
    if (at.form != GW_ADA_ENTRIES || bytes > room) {
        return 0;
    }
    uint16_t *stage = (uint16_t *)words;
    const uint32_t begin = before + (uint32_t)__popc(empty & gw_bits_below(lane / 4 * 4));
    uint32_t i = begin;
    list_bits(stage, &i, word.x, sign.x, first);
    list_bits(stage, &i, word.y, sign.y, first + 32);
    list_bits(stage, &i, word.z, sign.z, first + 64);
    list_bits(stage, &i, word.w, sign.w, first + 96);
    __syncwarp();
    if (leads) {
        if (of_bin != 0) {
            stage[begin + of_bin - 1] |= 0x8000;
        } else {
            stage[begin] = 0xBFFF;
        }
    }
    __syncwarp();
    const uint64_t more = extras < at.spare ? extras : at.spare;
    gw_copy_out(t.payload + GW_ADA_HEADER + 2 * ((uint64_t)unit * GW_ADA_WARP_TILES + more), words,
                0, bytes, lane, 32);
    return 1;
}

/* SPARSE: tiles are single bins of which little is sent, as feedback leaves it, and r′ stays as it is. All is light then, and more warps
 * share the latency; the way for other units has too few registers for that, so this is not for what is dense. */
template <int N, int FEEDBACK, int SPARSE>
__global__ void __launch_bounds__(THREADS, SPARSE ? 6 : 4)
    settle_kernel(const __grid_constant__ gw_select_batch<gw_ada, places, N> batch)
{
    GW_DYNAMIC_SHARED(shared);
    uint32_t group;
    const uint32_t which = gw_select_find(batch, &group);
    const places &p = batch.layout[which];
    const uint32_t number = group * (blockDim.x / 32) + threadIdx.x / 32;
    const uint32_t unit = p.units - 1 - number;
    if (number >= p.units || /* no barriers of the block here */
        (SPARSE &&
         list_single_bins(batch.tensor[which], batch.s, p, unit, bench_of(shared, batch.s).sent,
                          4 * (bench_words(batch.s) - 4)))) {
        return;
    }
    settle_unit<FEEDBACK>(batch.tensor[which], batch.s, p, unit, shared);
}
