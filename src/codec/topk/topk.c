/* topk: the k numbers of largest magnitude, exactly; ties to the smaller index. Their indices as an
 * Elias–Fano list, about 2 + log2(n/k) bits each. Arithmetic: docs/numerics.md section 8. Payload:
 * docs/wire-format.md 3.6.
 *
 * Selecting: a sample of the numbers gives a limit that a few more than k are expected to reach; one
 * pass collects those, one part a thread; a radix selection among them finds the k-th magnitude exactly. Where the sample
 * misled, too few or far too many, the radix selection goes over all numbers instead. Either way the
 * result is the same: the sample only saves time. */
#include "codec/topk/topk.h"

#include "base/arena.h"
#include "base/random.h"
#include "codec/source.h"
#include "codec/topk/topk_list.h"
#include "codec/values/values.h"

#include <math.h>
#include <string.h>

static uint32_t flags(const gw_params *p)
{
    const uint32_t always = GW_CODEC_FIXED_SIZE | GW_CODEC_WANTS_FEEDBACK;
    return gw_param(p, GW_VALUES_KIND) == GW_VALUES_NATURAL ? always | GW_CODEC_STOCHASTIC : always;
}

/* ---- the list of indices ---- */

static gw_index_list shape_of(const gw_params *p, uint64_t count)
{
    return gw_index_list_of(gw_values_kept(p, count),
                            gw_param(p, GW_VALUES_KIND) == GW_VALUES_NATURAL, count);
}

static uint64_t bytes(const gw_params *p, uint64_t count)
{
    const gw_index_list s = shape_of(p, count);
    return s.values_bytes + s.low_bytes + s.high_bytes;
}

static gw_status validate(const gw_params *p, const uint8_t *payload, size_t size, uint64_t count,
                          gw_why *why)
{
    (void)size; /* follows from count */
    const gw_index_list s = shape_of(p, count);
    const gw_status status = gw_values_validate(p, payload, s.kept, why);
    if (status != GW_OK) {
        return status;
    }
    const uint8_t *high = payload + s.values_bytes + s.low_bytes;
    const uint64_t ones = gw_count_ones(high, s.high_bytes);
    const uint64_t low_used = s.kept * s.low_bits % 8, high_used = s.high_bits % 8;
    if (ones != s.kept || (high_used != 0 && high[s.high_bytes - 1] >> high_used != 0) ||
        (low_used != 0 && high[-1] >> low_used != 0)) {
        return gw_fail(why, GW_ERR_CORRUPT,
                       "topk: %llu indices instead of %llu, or unused bits are set",
                       (unsigned long long)ones, (unsigned long long)s.kept);
    }
    uint64_t least = 0; /* one more than the index before */
    for (gw_list_reader r = gw_list_begin(&s, payload); r.entry < s.kept;) {
        gw_list_turn(&r);
        const int inside = gw_list_inside(&r);
        for (; r.word != 0; gw_list_next(&r)) {
            const uint64_t index = gw_list_index(&r, inside);
            if (index >= count || index < least) {
                return gw_fail(
                    why, GW_ERR_CORRUPT,
                    "topk: index %llu of entry %llu is beyond the end or does not ascend",
                    (unsigned long long)index, (unsigned long long)r.entry);
            }
            least = index + 1;
        }
    }
    return GW_OK;
}

/* ---- selecting ---- */

enum {
    AHEAD = 32,
    SAMPLE = 16384,
    FEW = 1024,
    SLACK = GW_TOPK_STEP + GW_TOPK_SURPLUS,
    RADIX = 2048
};

/* Candidates and then the chosen, in order of index; cells of a histogram. */
typedef struct selection {
    uint32_t *index, *cells; /* cells: RADIX, of the first part alone */
    float *value;
    uint64_t room; /* candidates that fit, without SLACK */
    uint64_t count;
} selection;

/* How a limit is guessed: of `taken` numbers, the magnitude of rank `rank`. It is reached by `kept` of all numbers
 * and, but for one case in ten thousand, by no more than `room`. The standard deviation of a count is its root. */
typedef struct sampling {
    uint64_t taken, rank, room;
} sampling;

static sampling sampling_of(uint64_t kept, uint64_t count)
{
    const uint64_t least = kept + kept / 2 + 8 * (uint64_t)sqrt((double)kept) + 4096;
    /* from here on one number more costs about as much as the candidates that it saves */
    const double enough = cbrt((double)count * (double)kept);
    const uint64_t fits = least + SLACK < SAMPLE ? least + SLACK : SAMPLE;
    const uint64_t taken = enough < FEW ? FEW : enough < (double)fits ? (uint64_t)enough : fits;
    const double expected = count != 0 ? (double)taken * (double)kept / (double)count : 0;
    const double rank = floor(expected + 4 * sqrt(expected) + 4);
    const double most = (rank + 4 * sqrt(rank) + 4) * (double)count / (double)taken;
    const uint64_t room = most > (double)least ? (uint64_t)most : least;
    return (sampling){taken, (uint64_t)rank, room < count ? room : count};
}

/* Workspace: of every part as many candidates as all may find. */
static void cut_selections(gw_arena *arena, uint64_t kept, uint64_t count, unsigned parts,
                           selection all[GW_POOL_MAX_THREADS])
{
    const uint64_t room = sampling_of(kept, count).room;
    uint32_t *cells = gw_arena_take(arena, RADIX, sizeof *cells);
    for (unsigned i = 0; i < parts; i++) {
        all[i] =
            (selection){.cells = cells,
                        .room = room,
                        .index = gw_arena_take(arena, (size_t)(room + SLACK), sizeof(uint32_t)),
                        .value = gw_arena_take(arena, (size_t)(room + SLACK), sizeof(float))};
    }
}

static uint64_t select_bytes(const gw_params *p, uint64_t count, unsigned threads)
{
    selection unused[GW_POOL_MAX_THREADS];
    gw_arena arena = gw_arena_measuring();
    cut_selections(&arena, gw_values_kept(p, count), count, threads, unused);
    return gw_arena_need(&arena);
}

/* Counts by the `width` bits above `shift`, of numbers whose bits above those are `prefix`. */
static void count_block(const float *x, size_t n, uint32_t prefix, int shift, int width,
                        uint32_t *cells)
{
    const uint32_t mask = (1u << width) - 1;
    for (size_t i = 0; i < n; i++) {
        const uint32_t a = gw_bits(x[i]) & GW_ABS_MASK;
        cells[a >> shift & mask] += (uint64_t)a >> (shift + width) == prefix;
    }
}

/* The kept-th largest magnitude among the candidates, or with source among all numbers; *above is how
 * many are larger. Three digits of 11, 11 and 9 bits. */
static uint32_t kth_magnitude(const selection *s, gw_source *source, uint64_t kept, uint64_t *above)
{
    static const int shifts[3] = {20, 9, 0}, widths[3] = {11, 11, 9};
    uint32_t prefix = 0;
    *above = 0;
    for (int digit = 0; digit < 3; digit++) {
        const int shift = shifts[digit], width = widths[digit];
        memset(s->cells, 0, RADIX * sizeof *s->cells);
        if (source == NULL) {
            count_block(s->value, s->count, prefix, shift, width, s->cells);
        }
        for (uint64_t at = 0; source != NULL && at < source->count; at += GW_SOURCE_BLOCK) {
            const size_t n = gw_source_left(source, at);
            count_block(gw_source_block(source, at, n), n, prefix, shift, width, s->cells);
        }
        uint32_t d = (1u << width) - 1;
        while (*above + s->cells[d] < kept) {
            *above += s->cells[d--];
        }
        prefix = prefix << width | d;
    }
    return prefix;
}

/* A magnitude that a few more than `kept` numbers are expected to reach; 0 where there is nothing to
 * gain. Looks at one number in each of SAMPLE strata, the first time that memory is read. */
static uint32_t guess_limit(const selection *s, const gw_source *source, uint64_t kept)
{
    const uint64_t stride = source->count / SAMPLE;
    if (stride < 2) {
        return 0;
    }
    const gw_random_pair k = {0x6A09E667u, 0xBB67AE85u};
    const sampling how = sampling_of(kept, source->count);
    const uint64_t taken = how.taken;
    float *sample = s->value;                      /* has room for them */
    for (uint64_t j = 0; j < taken + AHEAD; j++) { /* asked for first, read some numbers later */
        const uint64_t stratum = j * SAMPLE / taken * stride;
        if (j < taken) {
            const uint64_t i = stratum + gw_random_word(k, (uint32_t)j) % stride;
            gw_prefetch(source->in, i * gw_dtype_size(source->dtype), 1);
            gw_prefetch(source->residual, i * sizeof(float), 1);
        }
        if (j >= AHEAD) {
            const uint64_t before = (j - AHEAD) * SAMPLE / taken * stride;
            sample[j - AHEAD] =
                gw_source_one(source, before + gw_random_word(k, (uint32_t)(j - AHEAD)) % stride);
        }
    }
    if (how.rank >= taken) {
        return 0;
    }
    uint64_t above;
    const selection among = {.cells = s->cells, .value = sample, .count = taken};
    return kth_magnitude(&among, NULL, how.rank, &above);
}

/* One pass over all numbers, as its parts see it. */
typedef struct collecting {
    const gw_topk_kernels *kernels;
    const gw_source *source;
    selection *selections; /* one a part */
    unsigned parts;
    uint32_t limit;
    int clear;
} collecting;

/* Where a part begins: at a block. */
static uint64_t part_begin(uint64_t count, unsigned part, unsigned parts)
{
    const uint64_t blocks = gw_ceil_div(count, GW_SOURCE_BLOCK);
    const uint64_t at = blocks * part / parts * GW_SOURCE_BLOCK;
    return at < count ? at : count;
}

static void collect_part(void *arg, unsigned part)
{
    const collecting *c = arg;
    gw_source source = *c->source;
    selection *s = &c->selections[part];
    const uint64_t end = part_begin(source.count, part + 1, c->parts);
    s->count = 0;
    for (uint64_t at = part_begin(source.count, part, c->parts); at < end; at += GW_SOURCE_BLOCK) {
        const size_t block = gw_source_left(&source, at);
        const gw_fed_block f = gw_source_feedback(&source, at, block);
        for (size_t i = 0; i < block; i += GW_TOPK_STEP) { /* steps of which one always fits */
            const size_t n = block - i < GW_TOPK_STEP ? block - i : GW_TOPK_STEP;
            const gw_fed_block step = gw_feedback_at(&f, i);
            const uint32_t least =
                s->count <= s->room ? c->limit : UINT32_MAX; /* which none reaches */
            s->count += c->kernels->collect(&step, n, (uint32_t)(at + i), least, c->clear,
                                            s->index + s->count, s->value + s->count);
        }
    }
}

/* The first n of those cleared. */
static void put_back(const selection *s, uint64_t n, float *after)
{
    for (uint64_t j = 0; j < n; j++) {
        after[s->index[j]] = s->value[j];
    }
}

/* Collects all that reach the limit into the first part's selection; 0 if there are more than fit: then nothing is
 * cleared. Reads, and with feedback sums, everything in any case. With `clear` the collected are zero in r′ afterwards. */
static int collect(const gw_coding *job, collecting *c, gw_source *source)
{
    selection *all = &c->selections[0];
    gw_coding_run(job, collect_part, c, c->parts);
    source->summed = source->count;
    uint64_t found = 0;
    for (unsigned i = 0; i < c->parts; i++) {
        found += c->selections[i].count;
    }
    if (found > all->room) {
        for (unsigned i = 0; c->clear && i < c->parts; i++) {
            put_back(&c->selections[i], c->selections[i].count, source->after);
        }
        return 0;
    }
    for (unsigned i = 1; i < c->parts; i++) {
        const selection *s = &c->selections[i];
        memcpy(all->index + all->count, s->index, (size_t)s->count * sizeof *s->index);
        memcpy(all->value + all->count, s->value, (size_t)s->count * sizeof *s->value);
        all->count += s->count;
    }
    return 1;
}

/* Is it above `least`, or one of the first *ties that equal it? Without a branch, which would often be foretold
 * wrong. */
static size_t is_chosen(float x, uint32_t least, uint64_t *ties)
{
    const uint32_t a = gw_bits(x) & GW_ABS_MASK;
    const uint64_t tie = (uint64_t)(a == least) & (uint64_t)(*ties != 0);
    *ties -= tie;
    return (size_t)(a > least) | (size_t)tie;
}

/* Candidates that go back to r′, single elements far apart: each batch is asked for before the one before it is
 * written. */
enum { BATCH = 64 };
typedef struct batch {
    uint32_t index[BATCH];
    float value[BATCH];
    size_t n;
} batch;

static void write_batch(const batch *b, float *after)
{
    for (size_t j = 0; j < b->n; j++) {
        after[b->index[j]] = b->value[j];
    }
}

/* Of the candidates, moves the `kept` largest to the front. Where they were cleared, the others go back to
 * r′. */
static void choose(selection *s, uint64_t kept, float *cleared)
{
    uint64_t above = 0, chosen = 0;
    const uint32_t least = kth_magnitude(s, NULL, kept, &above);
    uint64_t ties = kept - above;
    batch both[2];
    both[1].n = 0;
    for (uint64_t first = 0, turn = 0; first < s->count; first += BATCH, turn ^= 1) {
        const uint64_t end = s->count - first < BATCH ? s->count : first + BATCH;
        batch *b = &both[turn];
        b->n = 0;
        for (uint64_t j = first; j < end; j++) { /* stored in both, kept in one */
            const float v = s->value[j];
            const uint32_t i = s->index[j];
            const size_t in = is_chosen(v, least, &ties);
            b->value[b->n] = s->value[chosen] = v;
            b->index[b->n] = s->index[chosen] = i;
            chosen += in;
            b->n += 1 - in;
        }
        if (cleared == NULL) {
            continue;
        }
        for (size_t j = 0; j < b->n; j++) {
            __builtin_prefetch(cleared + b->index[j], 1);
        }
        write_batch(&both[turn ^ 1], cleared);
        if (end == s->count) {
            write_batch(b, cleared);
        }
    }
}

/* The `kept` numbers of largest magnitude, in order of index. Those found cleared in r′ if `clear` still
 * stands in the end. */
static void find(const gw_coding *job, selection *selections, unsigned parts, gw_source *source,
                 uint64_t kept, int *clear)
{
    selection *s = &selections[0];
    collecting c = {.kernels = job->kernels,
                    .source = source,
                    .selections = selections,
                    .parts = parts,
                    .limit = guess_limit(s, source, kept)};
    c.clear = *clear && c.limit != 0; /* else more would be put back than taken off */
    const int fit = collect(job, &c, source);
    *clear = c.clear && fit;
    if (fit && s->count >= kept) {
        choose(s, kept, *clear ? source->after : NULL);
        return;
    }
    if (*clear) {
        put_back(s, s->count, source->after);
        *clear = 0;
    }
    uint64_t above = 0, chosen = 0;
    const uint32_t least = kth_magnitude(s, source, kept, &above);
    uint64_t ties = kept - above;
    for (uint64_t at = 0; at < source->count; at += GW_SOURCE_BLOCK) {
        const size_t n = gw_source_left(source, at);
        const float *x = gw_source_block(source, at, n);
        for (size_t i = 0; i < n; i++) {
            if (is_chosen(x[i], least, &ties)) {
                s->value[chosen] = x[i];
                s->index[chosen++] = (uint32_t)(at + i);
            }
        }
    }
}

static size_t select(const gw_coding *job, gw_source *source, uint8_t *payload, void *workspace,
                     gw_report *report)
{
    const gw_index_list shape = shape_of(job->params, source->count);
    /* fp16 and bf16 are widened into one scratch */
    const unsigned parts = source->dtype == GW_F32 ? gw_coding_parts(job, source->count) : 1;
    gw_arena arena = gw_arena_over(
        (gw_workspace){workspace, (size_t)select_bytes(job->params, source->count, parts)});
    selection selections[GW_POOL_MAX_THREADS];
    const selection *s = &selections[0];
    cut_selections(&arena, shape.kept, source->count, parts, selections);
    /* numbers sent as they are leave nothing: cleared on the way, which saves going back for them */
    int cleared = source->after != NULL && gw_param(job->params, GW_VALUES_KIND) == GW_VALUES_F32;
    find(job, selections, parts, source, shape.kept, &cleared);
    report->non_finite += gw_count_non_finite(s->value, shape.kept); /* they are among the first */
    if (cleared && report->non_finite != 0) {                        /* these do leave something */
        put_back(s, shape.kept, source->after);
        cleared = 0;
    }
    if (report->non_finite == shape.kept && shape.kept != 0) { /* and may be more than these */
        report->non_finite = 0;
        for (uint64_t at = 0; at < source->count; at += GW_SOURCE_BLOCK) {
            const size_t n = gw_source_left(source, at);
            report->non_finite += gw_count_non_finite(gw_source_block(source, at, n), n);
        }
    }
    gw_values_encode(job, s->value, s->index, shape.kept, payload, report);
    gw_list_write(&shape, s->index, payload + shape.values_bytes,
                  payload + shape.values_bytes + shape.low_bytes);
    for (uint64_t j = 0; source->after != NULL && !cleared && j < shape.kept; j++) {
        /* single elements, far apart: asked for some entries ahead */
        gw_prefetch(source->after + s->index[j + AHEAD < shape.kept ? j + AHEAD : j], 0, 1);
        source->after[s->index[j]] -= s->value[j];
    }
    return (size_t)(shape.values_bytes + shape.low_bytes + shape.high_bytes);
}

/* cursor: entry, the first of 64 high bits, and those of them that were not read. */
GW_INLINE void scatter_as(const gw_index_list *shape, const uint8_t *payload, gw_cursor *cursor,
                          uint64_t begin, size_t n, int natural, gw_apply how, float *out)
{
    gw_list_reader r = gw_list_begin(shape, payload);
    if (cursor->entry != 0) {
        r.entry = cursor->entry;
        r.at = cursor->state[0];
        r.word = cursor->state[1];
    }
    uint64_t index = 0;
    while (r.entry < shape->kept && index < begin + n) {
        gw_list_turn(&r);
        const int inside = gw_list_inside(&r);
        for (; r.word != 0; gw_list_next(&r)) {
            index = gw_list_index(&r, inside);
            if (index >= begin + n) {
                break;
            }
            const float v = gw_values_at_as(natural, payload, r.entry);
            out[index - begin] = how == GW_ADD ? out[index - begin] + v : v;
        }
    }
    *cursor = (gw_cursor){r.entry, {r.at, r.word, 0, 0, 0}};
}

static void skip(const gw_coding *job, const uint8_t *payload, uint64_t count, uint64_t to,
                 gw_cursor *cursor)
{
    const gw_index_list s = shape_of(job->params, count);
    gw_list_reader r = gw_list_begin(&s, payload);
    gw_list_skip(&r, s.kept, to);
    *cursor = (gw_cursor){r.entry, {r.at, r.word}};
}

static void scatter(const gw_coding *job, const uint8_t *payload, uint64_t count, gw_cursor *cursor,
                    uint64_t begin, size_t n, gw_apply how, float *out)
{
    const gw_index_list s = shape_of(job->params, count);
    const int natural = gw_param(job->params, GW_VALUES_KIND) == GW_VALUES_NATURAL;
    if (natural) {
        scatter_as(&s, payload, cursor, begin, n, 1, how, out);
    } else if (how == GW_ADD) {
        scatter_as(&s, payload, cursor, begin, n, 0, GW_ADD, out);
    } else {
        scatter_as(&s, payload, cursor, begin, n, 0, GW_SET, out);
    }
}

static size_t collect_step(const gw_fed_block *f, size_t n, uint32_t first, uint32_t least,
                           int clear, uint32_t *index, float *value)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        const float x = f->r != NULL ? f->g[i] + f->r[i] : f->g[i];
        const int large = (gw_bits(x) & GW_ABS_MASK) >= least;
        if (f->r != NULL) {
            f->after[i] = large && clear ? 0 : x;
        }
        if (large) {
            index[found] = first + (uint32_t)i;
            value[found++] = x;
        }
    }
    return found;
}

const gw_topk_kernels gw_topk_scalar = {collect_step};

extern const gw_codec gw_codec_topk;
const gw_codec gw_codec_topk = {
    .name = "topk",
    .doc = "the largest magnitudes, exactly; indices packed",
    .params = gw_values_params,
    .n_params = GW_VALUES_PARAMS,
    .flags = flags,
    .bytes = bytes,
    .validate = validate,
    .select_bytes = select_bytes,
    .select = select,
    .skip = skip,
    .scatter = scatter,
    .kernels = {NULL, &gw_topk_scalar, GW_AVX2(gw_topk_avx2), GW_AVX512(gw_topk_avx512),
                GW_NEON(gw_topk_neon)},
};
