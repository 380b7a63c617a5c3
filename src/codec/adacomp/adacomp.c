/* adacomp: from every bin of the residual gradient what is about as large as the bin's maximum, as one
 * bit of sign and one scale a tensor. Operator: adacomp_core.h, docs/numerics.md section 8. Payload:
 * docs/wire-format.md 3.8. Patents may cover it: docs/codecs.md.
 *
 * The scale is the mean of all bins' maxima, so a residual is final only after the last bin. First
 * pass, in stretches of bins, block by block in cache: G to r′, and entries, which do not hold the scale, to the payload; also
 * a bitmap of what they send. Second pass, over the entries alone: the scale off r′. Where a bitmap is
 * shorter or the cap cuts, the second pass writes the payload anew from the bitmap. */
#include "codec/adacomp/adacomp_read.h"

#include "base/arena.h"
#include "base/bits.h"
#include "base/little_endian.h"
#include "codec/source.h"

#include <string.h>

/* Bins whose maxima are summed before the sums are. */
enum { SUM_RUN = 256 };
/* Elements of a block, unless a bin has more. */
enum { BLOCK = 1024 };

static const gw_param_info params[] = {
    {"bin", "elements of a bin; 50 for convolutions, 500 for others", 1, 16383, 500, NULL, 0},
    {"factor", "how much more than its share the newest gradient counts", 1, 8, 2, NULL, 1},
    {"cap", "most payload bytes; 0 is the bitmap's size", 0, 1099511627776.0, 0, NULL, 0},
};

static uint32_t flags(const gw_params *p)
{
    (void)p;
    return GW_CODEC_WANTS_FEEDBACK;
}

static uint64_t bytes(const gw_params *p, uint64_t count)
{
    const uint64_t bitmap = gw_ceil_div(count, 8), marks = entry_bytes(p) * bins_of(p, count);
    const uint64_t least = HEADER + (bitmap < marks ? bitmap : marks);
    const uint64_t cap = (uint64_t)p->value[CAP];
    return cap == 0 ? HEADER + 2 * bitmap : cap > least ? cap : least;
}

/* Elements of a block: whole bins. */
static size_t block_of(const gw_params *p)
{
    const size_t bin = gw_param(p, BIN);
    return bin < BLOCK ? BLOCK / bin * bin : bin;
}

/* ---- scalar loops ---- */

static uint32_t sums(const gw_adacomp_block *b, size_t i, size_t n)
{
    return gw_adacomp_tail(b, i, 0, n);
}

static uint64_t marks(const uint32_t *keys, uint32_t limit)
{
    uint64_t word = 0;
    for (size_t j = 0; j < 64; j++) {
        word |= (uint64_t)((keys[j] & GW_ABS_MASK) >= limit) << j;
    }
    return word;
}

#include "codec/adacomp/adacomp_bins.h"

const gw_adacomp_kernels gw_adacomp_scalar = {bins, NULL};

/* ---- first pass, one part a thread ---- */

typedef struct survey {
    uint64_t *sent;           /* bitmap */
    uint64_t chosen, entries; /* bits set; entries that they and the empty bins take */
    int stored;               /* the entries are in the payload */
    float scale;
    uint64_t non_finite;
} survey;

/* Whole runs of bins, and what a thread needs to survey them. */
typedef struct stretch {
    uint64_t at, n;         /* elements */
    uint64_t *bitmaps;      /* of all stretches, each with one word more than it needs */
    double *runs;           /* of all: sums of the maxima of SUM_RUN bins each */
    float *g, *G;           /* of one block: g in fp32, G */
    uint32_t *keys, *tops;  /* of one bin; of the block's bins */
    uint8_t *block_entries; /* of one block */
    uint8_t *entries;       /* its share of the payload */
    uint64_t most;          /* bytes of that */
    uint64_t used, empty; /* bytes of entries, also of those that found no room; bins without any */
    uint64_t non_finite;
} stretch;

typedef struct surveying {
    const gw_coding *job;
    const gw_source *source;
    stretch *stretches;
    float scale; /* second pass */
} surveying;

/* Elements of a run of bins, a multiple of 64: so borders of stretches are borders of words and of sums. */
static uint64_t run_of(const gw_params *p)
{
    return (uint64_t)SUM_RUN * gw_param(p, BIN);
}

/* Workspace of all stretches; bitmaps side by side, in the order of elements. */
static void cut_stretches(gw_arena *arena, const gw_params *p, uint64_t count, unsigned parts,
                          stretch all[GW_POOL_MAX_THREADS])
{
    const size_t block = block_of(p), bin = gw_param(p, BIN);
    const uint64_t runs = gw_ceil_div(count, run_of(p));
    uint64_t *bitmaps =
        gw_arena_take(arena, (size_t)gw_ceil_div(count, 64) + parts, sizeof(uint64_t));
    double *sums = gw_arena_take(arena, (size_t)runs, sizeof(double));
    for (unsigned i = 0; i < parts; i++) {
        const uint64_t at = runs * i / parts * run_of(p);
        const uint64_t end = runs * (i + 1) / parts * run_of(p);
        all[i] = (stretch){.at = at,
                           .n = (end < count ? end : count) - at,
                           .bitmaps = bitmaps,
                           .runs = sums,
                           .g = gw_arena_take(arena, block, sizeof(float)),
                           .G = gw_arena_take(arena, block, sizeof(float)),
                           .keys = gw_arena_take(arena, bin + 63, sizeof(uint32_t)),
                           .tops = gw_arena_take(arena, block / bin, sizeof(uint32_t)),
                           .block_entries =
                               gw_arena_take(arena, entry_bytes(p) * block + GW_ADACOMP_SLACK, 1)};
    }
}

/* Stretches of at least one run. */
static unsigned stretches_of(const gw_params *p, uint64_t count, unsigned threads)
{
    const uint64_t runs = gw_ceil_div(count, run_of(p));
    return (unsigned)(runs < 1 ? 1 : runs < threads ? runs : threads);
}

static uint64_t select_bytes(const gw_params *p, uint64_t count, unsigned threads)
{
    stretch unused[GW_POOL_MAX_THREADS];
    gw_arena arena = gw_arena_measuring();
    cut_stretches(&arena, p, count, stretches_of(p, count, threads), unused);
    return gw_arena_need(&arena);
}

/* The sum of section 8 of docs/numerics.md, of one run after the other. */
typedef struct mean {
    double run, *sums;
    uint64_t bins;
} mean;

static void mean_add(mean *m, uint32_t top)
{
    m->run = (m->bins % SUM_RUN == 0 ? 0 : m->run) + (double)gw_float(top);
    m->sums[m->bins++ / SUM_RUN] = m->run;
}

/* g of n elements in fp32. */
static const float *gradient(const gw_source *source, const stretch *x, uint64_t at, size_t n)
{
    if (source->dtype == GW_F32) {
        return (const float *)(const void *)source->in + at;
    }
    source->convert->widen(source->dtype, source->in + 2 * at, x->g, n);
    return x->g;
}

static void survey_stretch(void *arg, unsigned part)
{
    const surveying *all = arg;
    stretch *x = &all->stretches[part];
    const gw_source *source = all->source;
    const gw_params *p = all->job->params;
    const gw_adacomp_kernels *kernels = all->job->kernels;
    const size_t block = block_of(p), bin = gw_param(p, BIN);
    const int past = source->past && source->after != NULL && kernels->write_past != NULL;
    mean sum = {.sums = x->runs + x->at / run_of(p)};
    uint64_t *sent = x->bitmaps + x->at / 64 + part;
    sent[0] = 0;
    for (uint64_t at = x->at; at < x->at + x->n; at += block) {
        const uint64_t left = x->at + x->n - at;
        const size_t n = left < block ? (size_t)left : block;
        const gw_adacomp_block b = {.g = gradient(source, x, at, n),
                                    .r = source->residual != NULL ? source->residual + at : NULL,
                                    .G = source->after != NULL && !past ? source->after + at : x->G,
                                    .keys = x->keys,
                                    .tops = x->tops,
                                    .sent = sent,
                                    .entries = x->block_entries,
                                    .at = at - x->at,
                                    .n = n,
                                    .bin = bin,
                                    .d = (float)(p->value[FACTOR] - 1),
                                    .sign_at = index_bits(p)};
        const size_t bytes = kernels->bins(&b, &x->empty);
        if (x->used + bytes <= x->most) {
            memcpy(x->entries + x->used, b.entries, bytes);
        }
        x->used += bytes;
        uint32_t largest = 0;
        for (size_t i = 0; i < gw_ceil_div(n, bin); i++) {
            mean_add(&sum, b.tops[i]);
            largest = b.tops[i] > largest ? b.tops[i] : largest;
        }
        x->non_finite += largest >= GW_INF_BITS ? gw_count_non_finite(b.G, n) : 0;
        if (past) {
            kernels->write_past(source->after + at, b.G, n);
        }
    }
}

/* Entries go to `begin` as long as their shares of `most` bytes hold them: all, or they are not used. */
static survey run_survey(surveying *all, gw_source *source, unsigned parts, uint8_t *begin,
                         uint64_t most)
{
    const gw_params *p = all->job->params;
    const uint64_t runs = gw_ceil_div(source->count, run_of(p)), bins = bins_of(p, source->count);
    survey s = {.sent = all->stretches[0].bitmaps, .stored = 1};
    uint64_t used = 0, empty = 0;
    for (unsigned i = 0; i < parts; i++) {
        const uint64_t from = most * i / parts;
        all->stretches[i].entries = begin + from;
        all->stretches[i].most = most * (i + 1) / parts - from;
    }
    gw_coding_run(all->job, survey_stretch, all, parts);
    source->summed = source->count;
    for (unsigned i = 0; i < parts; i++) { /* one behind the other */
        stretch *x = &all->stretches[i];
        s.stored &= x->used <= x->most;
        if (s.stored) {
            memmove(begin + used, x->entries, (size_t)x->used);
            x->entries = begin + used;
        }
        memmove(s.sent + x->at / 64, s.sent + x->at / 64 + i,
                (size_t)gw_ceil_div(x->n, 64) * sizeof *s.sent);
        used += x->used;
        empty += x->empty;
        s.non_finite += x->non_finite;
    }
    double total = 0;
    for (uint64_t i = 0; i < runs; i++) {
        total += all->stretches[0].runs[i];
    }
    s.entries = used / entry_bytes(p);
    s.chosen = s.entries - empty;
    s.scale = bins > 0 ? (float)(total / (double)bins) : 0;
    return s;
}

/* ---- what fits ---- */

/* The form to send, after taking off what does not fit: bits from the first that does not on. */
static int fit(const gw_params *p, uint64_t count, survey *s, gw_report *report)
{
    const uint64_t room = bytes(p, count) - HEADER, width = entry_bytes(p), bin = gw_param(p, BIN);
    const uint64_t bitmap = gw_ceil_div(count, 8), bins = bins_of(p, count);
    const uint64_t size0 = s->entries * width, size1 = bitmap + gw_ceil_div(s->chosen, 8);
    if (size0 <= room || size1 <= room) {
        return size0 <= room && (size0 <= size1 || size1 > room) ? ENTRIES : BITMAP;
    }
    /* An entry is free for the first element of a bin, whose mark it replaces. */
    const int can0 = room / width >= bins, can1 = room >= bitmap; /* at least one can: bytes() */
    uint64_t spare = can0 ? room / width - bins : 0;
    const uint64_t holds1 = can1 ? 8 * (room - bitmap) : 0;
    uint64_t holds0 = 0, end0 = 0, end1 = 0, number = 0, last_bin = UINT64_MAX;
    int open0 = can0;
    for (uint64_t w = 0; w < gw_ceil_div(count, 64); w++) {
        for (uint64_t word = s->sent[w]; word != 0; word &= word - 1, number++) {
            const uint64_t i = 64 * w + (uint64_t)__builtin_ctzll(word);
            const int first = i / bin != last_bin;
            open0 = open0 && (first || spare > 0);
            if (open0) {
                spare -= !first;
                last_bin = i / bin;
                holds0 = number + 1;
                end0 = i + 1;
            }
            if (number < holds1) {
                end1 = i + 1;
            }
        }
    }
    const int form = can0 && (!can1 || holds0 >= holds1) ? ENTRIES : BITMAP;
    const uint64_t end = form == ENTRIES ? end0 : end1, kept = form == ENTRIES ? holds0 : holds1;
    for (uint64_t i = end; i < count; i++) {
        s->sent[i / 64] &= ~((uint64_t)1 << i % 64);
    }
    report->held_back += s->chosen - kept;
    s->chosen = kept;
    return form;
}

/* ---- second pass ---- */

/* Sign of G of an element that is sent; takes its value off r′. */
static uint32_t take(gw_source *source, float scale, uint64_t i)
{
    const float G = gw_source_one(source, i);
    const uint32_t negative = gw_bits(G) >> 31;
    if (source->after != NULL) {
        source->after[i] = G - gw_adacomp_value(scale, negative);
    }
    return negative;
}

/* Asks for r′ (or g) of what is sent some words later: single elements, far apart, which the processor does
 * not foresee. */
static void ask_ahead(const gw_source *source, const uint64_t *sent, uint64_t w)
{
    enum { WORDS_AHEAD = 12 };
    const float *numbers =
        source->after != NULL ? source->after : (const float *)(const void *)source->in;
    if (w + WORDS_AHEAD >= gw_ceil_div(source->count, 64)) {
        return;
    }
    for (uint64_t word = sent[w + WORDS_AHEAD]; word != 0; word &= word - 1) {
        const uint64_t i = 64 * (w + WORDS_AHEAD) + (uint64_t)__builtin_ctzll(word);
        gw_prefetch(numbers, sizeof(float) * i, 1);
    }
}

size_t gw_adacomp_entries(const gw_params *p, gw_source *source, const uint64_t *sent, float scale,
                          uint8_t *begin)
{
    const uint32_t width = entry_bytes(p), sign_at = index_bits(p);
    const uint64_t bin = gw_param(p, BIN);
    uint64_t first = 0; /* of the open bin */
    uint8_t *out = begin;
    size_t any = 0;
    for (uint64_t w = 0; w < gw_ceil_div(source->count, 64); w++) {
        ask_ahead(source, sent, w);
        for (uint64_t word = sent[w]; word != 0; word &= word - 1) {
            const uint64_t i = 64 * w + (uint64_t)__builtin_ctzll(word);
            for (; i >= first + bin; first += bin, any = 0) {
                out = gw_adacomp_close(out, sign_at, any);
            }
            const uint32_t entry = (uint32_t)(i - first) | take(source, scale, i) << sign_at;
            out[0] = (uint8_t)entry;
            if (width == 2) {
                out[1] = (uint8_t)(entry >> 8);
            }
            out += width;
            any = 1;
        }
    }
    for (; first < source->count; first += bin, any = 0) {
        out = gw_adacomp_close(out, sign_at, any);
    }
    return (size_t)(out - begin);
}

static size_t write_bitmap(gw_source *source, const survey *s, uint8_t *begin)
{
    const uint64_t bitmap = gw_ceil_div(source->count, 8);
    uint8_t *signs = begin + bitmap;
    uint64_t j = 0;
    memcpy(begin, s->sent, (size_t)bitmap); /* little-endian */
    memset(signs, 0, (size_t)gw_ceil_div(s->chosen, 8));
    for (uint64_t w = 0; w < gw_ceil_div(source->count, 64); w++) {
        ask_ahead(source, s->sent, w);
        for (uint64_t word = s->sent[w]; word != 0; word &= word - 1, j++) {
            const uint64_t i = 64 * w + (uint64_t)__builtin_ctzll(word);
            signs[j / 8] |= (uint8_t)(take(source, s->scale, i) << j % 8);
        }
    }
    return (size_t)(bitmap + gw_ceil_div(s->chosen, 8));
}

/* Some of the elements that entries name: where they stand in r′, and what to take off. */
enum { BATCH = 32 };
typedef struct batch {
    float *at[BATCH];
    float value[BATCH];
    size_t n;
} batch;

/* Reads up to BATCH entries from number j on, and asks for their elements. *first is the open bin's first. */
static uint64_t name_batch(batch *b, const uint8_t *entries, uint64_t j, uint64_t n, uint32_t bits,
                           uint64_t bin, float scale, float **first)
{
    const uint32_t empty = (1u << bits) - 1;
    const uint64_t end = n - j < BATCH ? n : j + BATCH;
    b->n = 0;
    for (; j < end; j++) {
        const uint32_t e = bits == 6 ? entries[j] : gw_get_u16(entries + 2 * j), index = e & empty;
        b->at[b->n] = *first + index;
        b->value[b->n] = gw_adacomp_value(scale, e >> bits & 1);
        __builtin_prefetch(b->at[b->n], 1, 2); /* into the second level, which has more under way */
        b->n += index != empty;                /* of a bin without elements nothing is kept */
        *first += e >> (bits + 1) ? bin : 0;
    }
    return j;
}

/* Takes what the entries say off r′. Single elements, far apart, which the processor does not foresee: each batch
 * is asked for before the one before it is worked on. */
static void settle(const gw_params *p, const uint8_t *entries, uint64_t n, float scale,
                   float *after)
{
    batch both[2] = {{.n = 0}, {.n = 0}};
    uint64_t j = 0;
    for (unsigned turn = 0; j < n || both[turn % 2 ^ 1].n > 0; turn++) {
        const batch *ready = &both[turn % 2 ^ 1];
        j = name_batch(&both[turn % 2], entries, j, n, index_bits(p), gw_param(p, BIN), scale,
                       &after);
        for (size_t i = 0; i < ready->n; i++) {
            *ready->at[i] -= ready->value[i];
        }
    }
}

static void settle_stretch(void *arg, unsigned part)
{
    const surveying *all = arg;
    const stretch *x = &all->stretches[part];
    const gw_params *p = all->job->params;
    settle(p, x->entries, x->used / entry_bytes(p), all->scale, all->source->after + x->at);
}

static size_t select(const gw_coding *job, gw_source *source, uint8_t *payload, void *workspace,
                     gw_report *report)
{
    const gw_params *p = job->params;
    const size_t most = (size_t)bytes(p, source->count) - HEADER;
    const unsigned parts = stretches_of(p, source->count, gw_coding_parts(job, source->count));
    gw_arena arena =
        gw_arena_over((gw_workspace){workspace, (size_t)select_bytes(p, source->count, parts)});
    stretch stretches[GW_POOL_MAX_THREADS];
    cut_stretches(&arena, p, source->count, parts, stretches);
    surveying all = {.job = job, .source = source, .stretches = stretches};
    survey s = run_survey(&all, source, parts, payload + HEADER, most);
    memset(payload, 0, HEADER);
    if (s.non_finite != 0) {
        report->non_finite += s.non_finite;
        payload[0] = NON_FINITE;
        gw_put_u32(payload + 4, GW_NAN_BITS);
        return HEADER;
    }
    const int form = fit(p, source->count, &s, report);
    size_t size = (size_t)s.entries * entry_bytes(p);
    payload[0] = (uint8_t)form;
    gw_put_u32(payload + 4, gw_bits(s.scale));
    if (form == BITMAP) {
        size = write_bitmap(source, &s, payload + HEADER);
    } else if (!s.stored || size > most) { /* or some were taken off */
        size = gw_adacomp_entries(p, source, s.sent, s.scale, payload + HEADER);
    } else if (source->after != NULL) {
        all.scale = s.scale;
        gw_coding_run(job, settle_stretch, &all, parts);
    }
    gw_put_u64(payload + 8, form == BITMAP ? s.chosen : size / entry_bytes(p));
    return HEADER + size;
}

/* The paper's bins: convolutions, of four dims, need smaller ones than matrices. */
static void suit(gw_params *p, uint32_t given, size_t n_dims)
{
    if ((given & 1U << BIN) == 0 && n_dims > 2) {
        p->value[BIN] = 50;
    }
}

extern const gw_codec gw_codec_adacomp;
const gw_codec gw_codec_adacomp = {
    .name = "adacomp",
    .doc = "what stands out in its bin, as signs of one scale (AdaComp)",
    .params = params,
    .n_params = sizeof params / sizeof params[0],
    .suit = suit,
    .flags = flags,
    .bytes = bytes,
    .validate = validate,
    .select_bytes = select_bytes,
    .select = select,
    .skip = skip,
    .scatter = scatter,
    .kernels = {NULL, &gw_adacomp_scalar, GW_AVX2(gw_adacomp_avx2), GW_AVX512(gw_adacomp_avx512),
                GW_NEON(gw_adacomp_neon)},
};
