/* CUDA = scalar C, bit for bit: payloads, residuals, counts, decoded sums, over the settings of tests/codec/specs.h, the
 * shapes of the conformance test and random ones. Every codec that has a device side takes part; the library is
 * the real one, or the emulated one of tests/cuda/emulated.
 *     check LIBRARY [--seed N] [--cases N] [--matrix all|some|none] [--most ELEMENTS] [--spec WORD] [--share I/N]
 * A WORD that begins none of the settings is one itself, for random shapes. */
#include "codec/specs.h"
#include "cuda/memory.h"
#include "cuda/scene.h"

#include "base/numeric.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 9, LINE = 128 /* bytes of memory that some kernels write as one */ };

gw_cuda *cuda;
static uint64_t checked, per_codec[256];

/* Host copies of one tensor, what the scalar codec makes of it, and where it lies on the device. */
typedef struct tensor {
    uint8_t *in, *expected, *got;
    float *residual, *after, *after_got;
    size_t bound, written;
    gw_report report;
    gw_stream key;
    uint8_t *d_in, *d_payload; /* allocations */
    float *d_residual, *d_after;
    size_t in_at, payload_at, residual_at, after_at; /* bytes into them */
} tensor;

void fail(const scene *s, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fprintf(stderr, "FAILED %s %s %s %s%s lists %zu [", s->spec, gw_dtype_name(s->dtype),
            gen_content_name(s->content), s->feedback ? "feedback " : "",
            s->in_place ? "in place" : "", s->n);
    for (size_t i = 0; i < s->n; i++) {
        fprintf(stderr, " %zu", s->count[i]);
    }
    fprintf(stderr, " ] scene seed %llu: ", (unsigned long long)s->seed);
    vfprintf(stderr, format, args);
    fprintf(stderr, "\n");
    va_end(args);
    exit(1);
}

void *take(size_t bytes)
{
    void *p = malloc(bytes != 0 ? bytes : 1);
    if (p == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    return p;
}

void must(const scene *s, gw_status status, const gw_why *why)
{
    if (status != GW_OK) {
        fail(s, "%s: %s", gw_status_string(status), why->text);
    }
}

static float widen(gw_dtype dtype, const void *p, size_t i)
{
    return dtype == GW_F32   ? ((const float *)p)[i]
           : dtype == GW_F16 ? gw_f32_from_f16(((const uint16_t *)p)[i])
                             : gw_f32_from_bf16(((const uint16_t *)p)[i]);
}

static int is_nan(float x)
{
    return (gw_bits(x) & GW_ABS_MASK) > GW_INF_BITS;
}

static int same(float a, float b)
{
    return gw_bits(a) == gw_bits(b) || (is_nan(a) && is_nan(b));
}

/* The scalar codec's workspace, as large as anything here needs. */
gw_exec scalar_exec(void)
{
    static uint64_t memory[(64 << 20) / 8];
    return (gw_exec){.isa = GW_ISA_SCALAR, .workspace = {memory, sizeof memory}};
}

/* Where a tensor may begin, as a part of a larger one: anywhere, or shortly before random numbers get another pair of keys. */
static uint64_t some_first(gen *g, size_t grain)
{
    const uint32_t kind = gen_below(g, 4);
    return grain == 0  ? 0
           : kind == 0 ? grain * (gen_u64(g) >> 24)
           : kind == 1 ? (UINT64_C(1) << 33) - grain * (1 + gen_below(g, 9))
                       : 0;
}

static void make_expected(const scene *s, gen *g, tensor *t, size_t count)
{
    const size_t width = gw_dtype_size(s->dtype), grain = gw_codec_grain(&s->params);
    const gw_exec exec = scalar_exec();
    gw_why why = {""};
    must(s, gw_payload_bound(&s->params, count, &t->bound), &why);
    t->in = take(count * width);
    t->expected = take(t->bound);
    t->got = take(t->bound + GUARD);
    t->residual = take(count * 4);
    t->after = take(count * 4);
    t->after_got = take(count * 4);
    gen_fill(g, s->content, s->dtype, t->in, count);
    gen_fill(g, s->content == GEN_ONE_NAN ? GEN_NORMAL : s->content, GW_F32, t->residual, count);
    t->key = (gw_stream){.seed = gen_u64(g),
                         .step = gen_u64(g),
                         .tensor = gen_u64(g),
                         .point = gen_below(g, 100),
                         .rank = gen_below(g, 100),
                         .first = some_first(g, grain)};
    const gw_tensor in = {t->in, count, s->dtype};
    must(s,
         gw_encode_feedback(&s->params, &exec, &t->key, &in, s->feedback ? t->residual : NULL,
                            s->feedback ? t->after : NULL, t->expected, t->bound, &t->written,
                            &t->report),
         &why);
}

static void drop(tensor *t)
{
    free(t->in);
    free(t->expected);
    free(t->got);
    free(t->residual);
    free(t->after);
    free(t->after_got);
    device_give(t->d_in);
    device_give(t->d_payload);
    device_give(t->d_residual);
    device_give(t->d_after);
}

/* The tensor on the device, at an odd place now and then; outputs poisoned. */
static gw_cuda_source send(const scene *s, gen *g, tensor *t, size_t count, gw_cuda_result *result)
{
    const size_t width = gw_dtype_size(s->dtype);
    t->in_at = s->aligned ? 0 : width * gen_below(g, 5);
    t->payload_at = s->aligned ? s->front : gen_below(g, 17);
    t->residual_at = s->aligned ? 0 : 4 * gen_below(g, 5);
    t->after_at = s->aligned ? 0 : 4 * gen_below(g, 5);
    t->d_in = device_take(t->in_at + count * width);
    t->d_payload = device_take(t->payload_at + t->bound + GUARD);
    t->d_residual = device_take(t->residual_at + count * 4);
    t->d_after = device_take(t->after_at + count * 4);
    device_put(t->d_in + t->in_at, t->in, count * width);
    device_put((uint8_t *)t->d_residual + t->residual_at, t->residual, count * 4);
    device_fill(t->d_after, POISON, t->after_at + count * 4);
    device_fill(t->d_payload, POISON, t->payload_at + t->bound + GUARD);
    gw_cuda_source source = {.in = {t->d_in + t->in_at, count, s->dtype},
                             .key = t->key,
                             .payload = t->d_payload + t->payload_at,
                             .capacity = t->bound,
                             .result = result};
    if (s->feedback) {
        source.residual = t->d_residual + t->residual_at / 4;
        source.residual_after =
            s->in_place ? (float *)source.in.data : t->d_after + t->after_at / 4;
    }
    return source;
}

/* g + r of two infinities is a NaN whose sign and size are the machine's own, so what is coded of it may differ in sign,
 * and of several such numbers another may be selected. */
static int is_open(const scene *s, const tensor *t, size_t i)
{
    const float g = widen(s->dtype, t->in, i);
    return is_nan(s->feedback ? g + t->residual[i] : g);
}

/* Payload bytes that differ are alike if they decode alike: which NaN a NaN becomes is not laid down. */
static void compare_payload(const scene *s, const tensor *t, size_t count)
{
    if (t->written == 0 || memcmp(t->got, t->expected, t->written) == 0) {
        return;
    }
    size_t at = 0;
    while (t->got[at] == t->expected[at]) {
        at++;
    }
    if (t->report.non_finite == 0) {
        fail(s, "payload of %zu elements: byte %zu of %zu is %02X, not %02X", count, at, t->written,
             t->got[at], t->expected[at]);
    }
    const gw_exec exec = scalar_exec();
    float *a = take(count * 4), *b = take(count * 4);
    gw_tensor out[2] = {{a, count, GW_F32}, {b, count, GW_F32}};
    gw_why why = {""};
    must(s, gw_decode(&s->params, &exec, t->got, t->written, GW_SET, &out[0], &why), &why);
    must(s, gw_decode(&s->params, &exec, t->expected, t->written, GW_SET, &out[1], &why), &why);
    for (size_t i = 0; i < count; i++) {
        if (!same(a[i], b[i]) && !is_open(s, t, i)) {
            fail(s, "element %zu of %zu arrives as %08X, not %08X", i, count, gw_bits(a[i]),
                 gw_bits(b[i]));
        }
    }
    free(a);
    free(b);
}

static void compare(const scene *s, tensor *t, size_t count, const gw_cuda_source *source,
                    const gw_cuda_result *r)
{
    if (r->written != t->written || r->non_finite != t->report.non_finite ||
        r->overflowed != t->report.overflowed || r->held_back != t->report.held_back ||
        r->status != GW_OK) {
        fail(s,
             "%zu elements: written %llu not %zu, non-finite %llu not %llu, overflowed %llu not "
             "%llu, "
             "held back %llu not %llu, status %d",
             count, (unsigned long long)r->written, t->written, (unsigned long long)r->non_finite,
             (unsigned long long)t->report.non_finite, (unsigned long long)r->overflowed,
             (unsigned long long)t->report.overflowed, (unsigned long long)r->held_back,
             (unsigned long long)t->report.held_back, r->status);
    }
    uint8_t front[LINE];
    device_get(t->got, source->payload, t->bound + GUARD);
    device_get(front, t->d_payload, t->payload_at);
    compare_payload(s, t, count);
    for (size_t i = 0; i < GUARD + t->payload_at; i++) {
        if ((i < GUARD ? t->got[t->bound + i] : front[i - GUARD]) != POISON) {
            fail(s, "a byte outside of the payload was written");
        }
    }
    if (!s->feedback) {
        return;
    }
    device_get(t->after_got, source->residual_after, count * 4);
    for (size_t i = 0; i < count; i++) {
        /* with a non-finite number selecting codecs leave r' open */
        const int open = t->report.non_finite != 0 && gw_codec_grain(&s->params) == 0;
        if (!open && !same(t->after_got[i], t->after[i])) {
            fail(s, "residual %zu of %zu is %08X, not %08X", i, count, gw_bits(t->after_got[i]),
                 gw_bits(t->after[i]));
        }
    }
}

void *workspace_for(const scene *s, size_t *bytes)
{
    must(s, gw_cuda_workspace(cuda, &s->params, s->dtype, s->count, s->n, s->feedback, bytes),
         &(gw_why){"workspace"});
    void *p = *bytes != 0 ? device_take(*bytes) : NULL;
    if (p != NULL) {
        device_fill(p, POISON, *bytes);
    }
    return p;
}

static void check_encode(const scene *s, gen *g)
{
    const size_t n = s->n; /* as the analyser sees it, it could change */
    tensor t[LIST] = {0};
    gw_cuda_source source[LIST];
    gw_cuda_result result[LIST], *there = device_take(sizeof result);
    gw_why why = {""};
    size_t need = 0;
    void *workspace = workspace_for(s, &need);
    device_fill(there, 0, sizeof result);
    for (size_t i = 0; i < n; i++) {
        make_expected(s, g, &t[i], s->count[i]);
        source[i] = send(s, g, &t[i], s->count[i], there + i);
    }
    must(s,
         gw_cuda_encode(cuda, device_stream(), &s->params, source, s->n,
                        (gw_workspace){workspace, need}, &why),
         &why);
    device_wait();
    device_get(result, there, sizeof result);
    for (size_t i = 0; i < n; i++) {
        compare(s, &t[i], s->count[i], &source[i], &result[i]);
        drop(&t[i]);
    }
    device_give(there);
    device_give(workspace);
}

/* One tensor's payloads and what is to come out of them. */
typedef struct arrival {
    uint8_t *d_payload[RANKS], *d_out;
    gw_cuda_payload payloads[RANKS];
    float *expected;
    size_t out_at;
} arrival;

static void make_arrival(const scene *s, gen *g, arrival *a, size_t count, size_t ranks,
                         gw_apply how, uint32_t divisor, uint64_t *sizes)
{
    const size_t width = gw_dtype_size(s->dtype);
    const gw_exec exec = scalar_exec();
    gw_why why = {""};
    uint8_t *before = take(count * width);
    a->expected = take(count * 4);
    gen_fill(g, GEN_NORMAL, s->dtype, before, count);
    for (size_t i = 0; i < count; i++) {
        a->expected[i] = widen(s->dtype, before, i);
    }
    gw_tensor sum = {a->expected, count, GW_F32};
    for (size_t r = 0; r < ranks; r++) {
        tensor t = {0};
        make_expected(s, g, &t, count);
        must(s,
             gw_decode(&s->params, &exec, t.expected, t.written, r == 0 ? how : GW_ADD, &sum, &why),
             &why);
        const size_t at = s->aligned ? 0 : gen_below(g, 17);
        a->d_payload[r] = device_take(at + t.written);
        device_put(a->d_payload[r] + at, t.expected, t.written);
        a->payloads[r] = (gw_cuda_payload){a->d_payload[r] + at, t.written, NULL};
        if (sizes != NULL) { /* the size is read there, the most is known here */
            const uint64_t size = t.written;
            device_put(sizes + r, &size, sizeof size);
            a->payloads[r].size_there = sizes + r;
        }
        drop(&t);
    }
    for (size_t i = 0; i < count; i++) {
        a->expected[i] = a->expected[i] / (float)divisor;
    }
    a->out_at = s->aligned ? 0 : width * gen_below(g, 5);
    a->d_out = device_take(a->out_at + count * width);
    device_fill(a->d_out, POISON, a->out_at + count * width);
    if (how == GW_ADD) {
        device_put(a->d_out + a->out_at, before, count * width);
    }
    free(before);
}

static void compare_sum(const scene *s, const arrival *a, size_t count, const gw_cuda_result *r)
{
    const size_t width = gw_dtype_size(s->dtype);
    uint8_t *out = take(count * width);
    uint64_t non_finite = 0;
    device_get(out, a->d_out + a->out_at, count * width);
    for (size_t i = 0; i < count; i++) {
        const float v = a->expected[i];
        const uint16_t half[1] = {s->dtype == GW_F16 ? gw_f16_from_f32(v) : gw_bf16_from_f32(v)};
        const float e = s->dtype == GW_F32 ? v : widen(s->dtype, half, 0);
        non_finite += (gw_bits(v) & GW_ABS_MASK) >= GW_INF_BITS;
        if (!same(widen(s->dtype, out, i), e)) {
            fail(s, "decoded %zu of %zu is %08X, not %08X", i, count,
                 gw_bits(widen(s->dtype, out, i)), gw_bits(e));
        }
    }
    if (r->status != GW_OK || r->non_finite != non_finite) {
        fail(s, "decoding %zu: status %d, non-finite %llu not %llu", count, r->status,
             (unsigned long long)r->non_finite, (unsigned long long)non_finite);
    }
    free(out);
}

static void check_decode(const scene *s, gen *g)
{
    const size_t n = s->n; /* as the analyser sees it, it could change */
    static const size_t some[] = {1, 1, 2, 3, 8, 9};
    static const uint32_t over[] = {1, 1, 2, 3, 8, 7};
    arrival a[LIST] = {0};
    gw_cuda_sink sink[LIST];
    gw_cuda_result result[LIST], *there = device_take(sizeof result);
    uint64_t *sizes = device_take(LIST * RANKS * sizeof *sizes);
    const size_t ranks = some[gen_below(g, 6)];
    const uint32_t divisor = over[gen_below(g, 6)];
    const gw_apply how = gen_below(g, 2) == 0 ? GW_SET : GW_ADD;
    const int fixed = (gw_params_flags(&s->params) & GW_CODEC_FIXED_SIZE) != 0;
    gw_why why = {""};
    size_t need = 0;
    void *workspace = workspace_for(s, &need);
    device_fill(there, 0, sizeof result);
    for (size_t i = 0; i < n; i++) {
        make_arrival(s, g, &a[i], s->count[i], ranks, how, divisor,
                     fixed ? NULL : sizes + i * RANKS);
        sink[i] = (gw_cuda_sink){.payloads = a[i].payloads,
                                 .n_payloads = ranks,
                                 .out = {a[i].d_out + a[i].out_at, s->count[i], s->dtype},
                                 .how = how,
                                 .divisor = divisor,
                                 .result = there + i};
    }
    must(s,
         gw_cuda_decode(cuda, device_stream(), &s->params, sink, s->n,
                        (gw_workspace){workspace, need}, &why),
         &why);
    device_wait();
    device_get(result, there, sizeof result);
    for (size_t i = 0; i < n; i++) {
        compare_sum(s, &a[i], s->count[i], &result[i]);
        for (size_t r = 0; r < ranks; r++) {
            device_give(a[i].d_payload[r]);
        }
        device_give(a[i].d_out);
        free(a[i].expected);
    }
    device_give(sizes);
    device_give(there);
    device_give(workspace);
}

static void run_scene(scene *s)
{
    if (!gw_cuda_has(cuda, s->params.codec)) {
        return;
    }
    gen g = {s->seed};
    if (!(gw_params_flags(&s->params) & GW_CODEC_ROUNDS)) { /* check_lowrank.c */
        check_encode(s, &g);
    }
    s->feedback = 0;
    check_decode(s, &g);
    checked++;
    per_codec[gw_codec_id(s->params.codec)]++;
}

static void params_from(scene *s, const char *spec)
{
    gw_why why = {""};
    s->spec = spec;
    if (gw_params_parse(&s->params, spec, &why) != GW_OK) {
        fprintf(stderr, "%s: %s\n", spec, why.text);
        exit(2);
    }
}

/* What the command line says. */
typedef struct wish {
    uint64_t seed, cases;
    size_t most;
    int all, none;
    const char *spec;
    unsigned share, shares; /* every shares-th spec, beginning with this one */
} wish;

static int wanted(const wish *w, size_t index)
{
    return index % w->shares == w->share &&
           (w->spec == NULL || strncmp(all_specs[index], w->spec, strlen(w->spec)) == 0);
}

static void run_matrix(const wish *w)
{
    static const size_t shapes[] = {0,    1,    7,    15,   16,   17,   31,   32,
                                    33,   63,   64,   65,   127,  511,  512,  513,
                                    1023, 4095, 4096, 4097, 8191, 8192, 8193, 300000};
    enum { SHAPES = sizeof shapes / sizeof shapes[0] };
    static const gw_dtype dtypes[] = {GW_F32, GW_F16, GW_BF16};
    uint64_t turn = w->seed;
    for (size_t i = 0; i < ALL_SPECS; i++) {
        for (size_t n = 0; n < SHAPES && wanted(w, i); n++) {
            if (shapes[n] > w->most) {
                continue;
            }
            for (int d = 0; d < 3; d++) {
                for (int content = 0; content < GEN_CONTENTS; content++) {
                    turn++;
                    /* prime to 3 and 14, so that every pair comes up; the largest shape is dear */
                    if ((!w->all && turn % 47 != 0) || (shapes[n] > 10000 && turn % 5 != 0)) {
                        continue;
                    }
                    for (int feedback = 0; feedback < 2; feedback++) {
                        scene s = {.dtype = dtypes[d],
                                   .content = (gen_content)content,
                                   .feedback = feedback,
                                   .aligned = turn % 2 == 0,
                                   .n = 1,
                                   .count = {shapes[n]},
                                   .seed = turn};
                        params_from(&s, all_specs[i]);
                        run_scene(&s);
                    }
                }
            }
        }
    }
}

/* natural:bits=8 leaves what it has of a line to its next block: from every place in a line on, of numbers that are small, and
 * of others, whose blocks are done again. */
static void run_lines(const wish *w)
{
    for (size_t i = 0; i < ALL_SPECS; i++) {
        for (size_t at = 0; at < LINE && strcmp(all_specs[i], "natural:bits=8") == 0; at++) {
            scene s = {.dtype = GW_F32,
                       .content = at % 8 != 0 ? GEN_NORMAL : (gen_content)(at / 8 % GEN_CONTENTS),
                       .aligned = 1,
                       .front = at,
                       .n = 1,
                       .count = {3 * 4096 + 5},
                       .seed = w->seed + at};
            if (wanted(w, i)) {
                params_from(&s, all_specs[i]);
                run_scene(&s);
            }
        }
    }
}

static int is_known(const wish *w)
{
    for (size_t i = 0; i < ALL_SPECS; i++) {
        if (w->spec == NULL || strncmp(all_specs[i], w->spec, strlen(w->spec)) == 0) {
            return 1;
        }
    }
    return 0;
}

static void run_random(const wish *w)
{
    gen g = {w->seed};
    const int known = is_known(w);
    for (uint64_t i = 0; i < w->cases; i++) {
        const size_t index = gen_below(&g, ALL_SPECS);
        scene s = {.dtype = (gw_dtype)(GW_F32 + gen_below(&g, 3)),
                   .content = (gen_content)gen_below(&g, GEN_CONTENTS),
                   .feedback = (int)gen_below(&g, 2),
                   .aligned = (int)gen_below(&g, 2),
                   .n = gen_below(&g, 3) == 0 ? 1 + gen_below(&g, LIST) : 1,
                   .seed = gen_u64(&g)};
        s.in_place = s.feedback && s.dtype == GW_F32 && gen_below(&g, 4) == 0;
        for (size_t t = 0; t < s.n; t++) {
            const uint32_t most = (uint32_t)w->most >> gen_below(&g, 12);
            s.count[t] = gen_below(&g, most + 1);
        }
        if (known && !wanted(w, index)) {
            continue;
        }
        params_from(&s, known ? all_specs[index] : w->spec);
        run_scene(&s);
        if (gw_cuda_has(cuda, s.params.codec)) {
            run_due(&s, &g);
            run_hostile(&s, &g);
            checked++;
        }
    }
}

int main(int argc, char **argv)
{
    wish w = {.seed = 20261116, .cases = 200, .most = 20000, .shares = 1};
    for (int i = 2; i + 1 < argc; i += 2) {
        const char *name = argv[i], *value = argv[i + 1];
        if (strcmp(name, "--seed") == 0) {
            w.seed = strtoull(value, NULL, 10);
        } else if (strcmp(name, "--cases") == 0) {
            w.cases = strtoull(value, NULL, 10);
        } else if (strcmp(name, "--most") == 0) {
            w.most = (size_t)strtoull(value, NULL, 10);
        } else if (strcmp(name, "--spec") == 0) {
            w.spec = value;
        } else if (strcmp(name, "--share") == 0) {
            char *slash = NULL;
            w.share = (unsigned)strtoul(value, &slash, 10);
            w.shares = slash != NULL && *slash == '/' ? (unsigned)strtoul(slash + 1, NULL, 10) : 0;
            if (w.shares == 0) {
                return 2;
            }
        } else if (strcmp(name, "--matrix") == 0) {
            w.all = strcmp(value, "all") == 0;
            w.none = strcmp(value, "none") == 0;
        } else {
            fprintf(stderr, "check LIBRARY [--seed N] [--cases N] [--matrix all|some|none] [--most "
                            "N] [--spec WORD]\n");
            return 2;
        }
    }
    gw_why why = {""};
    if (argc < 2 || gw_cuda_open(argv[1], &cuda, &why) != GW_OK) {
        fprintf(stderr, "check: %s\n", argc < 2 ? "no library named" : why.text);
        return 2;
    }
    printf("seed %llu\n", (unsigned long long)w.seed);
    if (!w.none) {
        run_matrix(&w);
        run_lines(&w);
    }
    run_random(&w);
    for (size_t i = 0; i < gw_codec_count(); i++) {
        const gw_codec *codec = gw_codec_at(i);
        printf("%-10s %s%llu\n", gw_codec_name(codec),
               gw_cuda_has(cuda, codec) ? "" : "no CUDA side; ",
               (unsigned long long)per_codec[gw_codec_id(codec)]);
    }
    printf("%llu scenes: CUDA and scalar C agree to the bit\n", (unsigned long long)checked);
    gw_cuda_close(cuda);
    return checked == 0;
}
