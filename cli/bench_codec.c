/* `gradwire bench codec`: how fast a codec is, as a share of what memory allows.
 *
 * Encode is set beside libc's memcpy of the input, decode-add beside d += s, on the same huge-page
 * buffers and threads in the same run. One round times the two references and then every codec
 * once; the figure is the median over the rounds, so that a slow moment of the machine hits all
 * alike. A codec moves fewer bytes than its reference: the roofline compares bytes moved per second.
 * Every timed result is compared with the scalar variant's. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <gradwire/gradwire.h>

#include "bench_codec.h"
#include "exec.h"
#include "generate.h"
#include "huge.h"
#include "json_out.h"
#include "options.h"
#include "say.h"
#include "table.h"

enum { MAX_SPECS = 32, MAX_ROUNDS = 101, N_BUFFERS = 5 };

typedef struct values {
    uint64_t n, rounds;
    uint64_t steps;
    gw_isa isa;
    unsigned threads;
    bool feedback;
    const char *device;
} values;

static const gw_cli_option OPTIONS[] = {
    {"elements", 'n', GW_CLI_SIZE, offsetof(values, n), "N", "fp32 elements (64Mi)"},
    {"rounds", 'r', GW_CLI_U64, offsetof(values, rounds), "R", "timed rounds, median taken (9)"},
    {"isa", 0, GW_CLI_ISA, offsetof(values, isa), "I", "auto, scalar, avx2, avx512, neon (auto)"},
    {"feedback", 0, GW_CLI_FLAG, offsetof(values, feedback), NULL,
     "encode with feedback, beside r2 = r + g"},
    {"steps", 0, GW_CLI_U64, offsetof(values, steps), "N",
     "steps before timing, for a residual in steady state (40)"},
    {"device", 0, GW_CLI_TEXT, offsetof(values, device), "D", "cpu"},
    {"threads", 0, GW_CLI_THREADS, offsetof(values, threads), "T",
     "threads, of the references too (1)"},
};

static const gw_cli_page PAGE = {
    .command = "bench codec",
    .usage = "bench codec [SPEC]... [options]",
    .about =
        "Times encode and decode-add of generated gradient-like numbers, verified while timed.\n"
        "roofline: bytes that must move per second, over the same of memcpy (encode) or of\n"
        "d += s (decode) in the same run; with --feedback of r2 = r + g (encode). break_even: the "
        "link rate below which one encode and\n"
        "one decode cost less than the bytes they save. Without SPEC: the usual ones.",
    .example = "  gradwire bench codec natural:bits=8 dither:bits=4 -n 64Mi\n"
               "  gradwire bench codec --isa avx2 --threads 2 --json",
    .options = OPTIONS,
    .n_options = sizeof OPTIONS / sizeof OPTIONS[0],
};

static const char *const USUAL[] = {"cast:to=bf16",   "cast:to=f16",    "natural:bits=8",
                                    "natural:bits=9", "ndither:bits=4", "dither:bits=4"};

typedef struct timing {
    double seconds[MAX_ROUNDS];
} timing;

typedef struct subject {
    const char *spec;
    gw_params params;
    size_t bound, payload_bytes, workspace;
    uint8_t *expected; /* the scalar variant's payload */
    float *residual;   /* with feedback */
    gw_cli_huge residual_memory;
    timing encode, decode;
} subject;

typedef struct bench {
    size_t n, rounds, inner; /* inner: calls per timing, for tensors too small to time once */
    unsigned threads;
    gw_exec exec;
    bool feedback;
    uint64_t steps;
    float *in, *out, *expected, *after; /* after: r′ */
    uint8_t *payload;
    gw_cli_huge memory[N_BUFFERS];
    subject subjects[MAX_SPECS];
    size_t n_subjects;
    timing copy, add, sum;
} bench;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts. */
static double median(timing *t, size_t n)
{
    qsort(t->seconds, n, sizeof t->seconds[0], by_value);
    return t->seconds[n / 2];
}

/* The references, on as many threads as the codecs. */

typedef enum reference { COPY, ADD, SUM } reference;

typedef struct span {
    float *d;
    const float *s, *t;
    size_t n;
    reference what;
} span;

#define LOOPS                                                                                      \
    for (size_t i = 0; what == ADD && i < n; i++) {                                                \
        d[i] += s[i];                                                                              \
    }                                                                                              \
    for (size_t i = 0; what == SUM && i < n; i++) {                                                \
        d[i] = s[i] + t[i];                                                                        \
    }

static void loops_plain(reference what, float *restrict d, const float *restrict s,
                        const float *restrict t, size_t n)
{
    LOOPS
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void loops_avx2(reference what, float *restrict d,
                                                       const float *restrict s,
                                                       const float *restrict t, size_t n)
{
    LOOPS
}
#else
#    define loops_avx2 loops_plain
#endif

static void *run_span(void *arg)
{
    const span *s = arg;
    if (s->what == COPY) {
        memcpy(s->d, s->s, s->n * sizeof(float));
    } else if (gw_isa_runs_here(GW_ISA_AVX2)) {
        loops_avx2(s->what, s->d, s->s, s->t, s->n);
    } else {
        loops_plain(s->what, s->d, s->s, s->t, s->n);
    }
    return NULL;
}

/* Seconds of d = s, d += s or d = s + t. */
static double time_reference(bench *b, reference what)
{
    span spans[GW_POOL_MAX_THREADS];
    pthread_t threads[GW_POOL_MAX_THREADS];
    const size_t each = b->n / b->threads;
    for (unsigned i = 0; i < b->threads; i++) {
        const size_t at = i * each, n = i + 1 < b->threads ? each : b->n - at;
        spans[i] = (span){b->out + at, b->in + at, b->expected + at, n, what};
    }
    const double begin = now();
    for (size_t k = 0; k < b->inner; k++) {
        unsigned started = 1;
        while (started < b->threads &&
               pthread_create(&threads[started], NULL, run_span, &spans[started]) == 0) {
            started++;
        }
        for (unsigned i = started; i < b->threads; i++) {
            (void)run_span(&spans[i]);
        }
        (void)run_span(&spans[0]);
        while (started > 1) {
            (void)pthread_join(threads[--started], NULL);
        }
    }
    return (now() - begin) / (double)b->inner;
}

static const gw_stream STREAM = {.seed = 1, .step = 2, .tensor = 3};

static bool encode(bench *b, subject *s, const gw_exec *exec, uint8_t *payload)
{
    size_t written = 0;
    const gw_tensor in = {b->in, b->n, GW_F32};
    const gw_status status =
        gw_encode_feedback(&s->params, exec, &STREAM, &in, s->residual,
                           s->residual ? b->after : NULL, payload, s->bound, &written, NULL);
    if (status != GW_OK) {
        gw_cli_error("%s: cannot encode: %s", s->spec, gw_status_string(status));
    }
    s->payload_bytes = written;
    return status == GW_OK;
}

static bool decode(bench *b, const subject *s, const gw_exec *exec, gw_apply how, float *out)
{
    gw_why why = {""};
    gw_tensor t = {out, b->n, GW_F32};
    const gw_status status =
        gw_decode(&s->params, exec, s->expected, s->payload_bytes, how, &t, &why);
    if (status != GW_OK) {
        gw_cli_error("%s: cannot decode: %s", s->spec, why.text);
    }
    return status == GW_OK;
}

/* As numbers, since −0 becomes 0 when it is added to 0. */
static bool same_numbers(const float *a, const float *b, size_t n)
{
    size_t differ = 0;
    for (size_t i = 0; i < n; i++) {
        differ += !(a[i] == b[i]);
    }
    return differ == 0;
}

static bool time_subject(bench *b, subject *s, size_t round)
{
    double begin = now();
    for (size_t k = 0; k < b->inner; k++) {
        if (!encode(b, s, &b->exec, b->payload)) {
            return false;
        }
    }
    s->encode.seconds[round] = (now() - begin) / (double)b->inner;
    if (memcmp(b->payload, s->expected, s->payload_bytes) != 0) {
        gw_cli_error("%s: encoded bytes differ from the scalar variant's", s->spec);
        return false;
    }
    memset(b->out, 0, b->n * sizeof(float));
    begin = now();
    for (size_t k = 0; k < b->inner; k++) {
        if (!decode(b, s, &b->exec, GW_ADD, b->out)) {
            return false;
        }
    }
    s->decode.seconds[round] = (now() - begin) / (double)b->inner;
    const gw_exec scalar = {.isa = GW_ISA_SCALAR};
    if (b->inner > 1) { /* added many times over: check one addition */
        memset(b->out, 0, b->n * sizeof(float));
        if (!decode(b, s, &b->exec, GW_ADD, b->out)) {
            return false;
        }
    }
    if (!decode(b, s, &scalar, GW_SET, b->expected)) {
        return false;
    }
    for (size_t i = 0; s->residual && i < b->n; i++) { /* exactly what was lost */
        const float sum = b->in[i] + s->residual[i];
        if (b->after[i] != sum - b->expected[i]) {
            gw_cli_error("%s: the residual of element %zu is not what was lost", s->spec, i);
            return false;
        }
    }
    if (!same_numbers(b->out, b->expected, b->n)) {
        gw_cli_error("%s: decoded numbers differ from the scalar variant's", s->spec);
        return false;
    }
    return true;
}

static bool run(bench *b, int talk)
{
    const bool progress = talk >= GW_CLI_NORMAL && isatty(STDERR_FILENO);
    for (size_t round = 0; round < b->rounds; round++) {
        if (progress) {
            (void)fprintf(stderr, "\rround %zu of %zu ", round + 1, b->rounds);
        }
        b->copy.seconds[round] = time_reference(b, COPY);
        b->add.seconds[round] = time_reference(b, ADD);
        b->sum.seconds[round] = time_reference(b, SUM);
        for (size_t i = 0; i < b->n_subjects; i++) {
            if (!time_subject(b, &b->subjects[i], round)) {
                return false;
            }
        }
    }
    if (progress) {
        (void)fputs("\r                    \r", stderr);
    }
    return true;
}

/* The residual of a subject after some steps of other gradients: this one's numbers, moved along. */
static bool reach_steady_state(bench *b, subject *s)
{
    s->residual_memory = gw_cli_huge_open(b->n * sizeof(float), N_BUFFERS);
    s->residual = s->residual_memory.data;
    if (!s->residual) {
        gw_cli_out_of_memory();
        return false;
    }
    memset(s->residual, 0, b->n * sizeof(float));
    for (uint64_t step = 1; step <= b->steps; step++) {
        const size_t shift = (size_t)(step * 1000003) % b->n;
        const gw_tensor in = {b->out, b->n, GW_F32};
        size_t written = 0;
        memcpy(b->out, b->in + shift, (b->n - shift) * sizeof(float));
        memcpy(b->out + b->n - shift, b->in, shift * sizeof(float));
        if (gw_encode_feedback(&s->params, &b->exec, &STREAM, &in, s->residual, b->after,
                               b->payload, s->bound, &written, NULL) != GW_OK) {
            gw_cli_error("%s: cannot encode", s->spec);
            return false;
        }
        memcpy(s->residual, b->after, b->n * sizeof(float));
    }
    return true;
}

/* Workspaces, and the largest payload. */
static bool measure(bench *b, size_t *largest)
{
    for (size_t i = 0; i < b->n_subjects; i++) {
        subject *s = &b->subjects[i];
        if (gw_payload_bound(&s->params, b->n, &s->bound) != GW_OK ||
            gw_codec_workspace(&s->params, GW_F32, b->n, b->feedback, b->threads, &s->workspace) !=
                GW_OK ||
            !gw_cli_exec_fit(&b->exec, &s->params, GW_F32, b->n, b->feedback)) {
            gw_cli_error("%s: cannot run", s->spec);
            return false;
        }
        *largest = s->bound > *largest ? s->bound : *largest;
    }
    return true;
}

/* Buffers, residuals, and every subject's expected payload. */
static bool prepare(bench *b)
{
    size_t largest = 1;
    if (!measure(b, &largest)) {
        return false;
    }
    const size_t bytes = b->n * sizeof(float);
    const size_t sizes[N_BUFFERS] = {bytes, bytes, bytes, largest, b->feedback ? bytes : 1};
    for (size_t i = 0; i < N_BUFFERS; i++) {
        b->memory[i] = gw_cli_huge_open(sizes[i], i);
        if (!b->memory[i].data) {
            gw_cli_out_of_memory();
            return false;
        }
    }
    b->in = b->memory[0].data;
    b->out = b->memory[1].data;
    b->expected = b->memory[2].data;
    b->payload = b->memory[3].data;
    b->after = b->memory[4].data;
    gw_cli_generate(1, b->in, b->n);
    gw_exec scalar = b->exec;
    scalar.isa = GW_ISA_SCALAR;
    for (size_t i = 0; i < b->n_subjects; i++) {
        subject *s = &b->subjects[i];
        s->expected = malloc(s->bound + 1);
        if (!s->expected) {
            gw_cli_out_of_memory();
            return false;
        }
        if ((b->feedback && !reach_steady_state(b, s)) || !encode(b, s, &scalar, s->expected)) {
            return false;
        }
    }
    return true;
}

static void release(bench *b)
{
    for (size_t i = 0; i < N_BUFFERS; i++) {
        gw_cli_huge_close(&b->memory[i]);
    }
    for (size_t i = 0; i < b->n_subjects; i++) {
        free(b->subjects[i].expected);
        gw_cli_huge_close(&b->subjects[i].residual_memory);
    }
    gw_cli_exec_close(&b->exec);
}

/* The figures of one subject. Rates in GB/s of fp32 input. */
typedef struct figures {
    double encode, decode, copy, add, encode_roof, decode_roof, ratio, break_even;
    double encode_low, encode_high, decode_low, decode_high;
} figures;

static figures figures_of(bench *b, subject *s)
{
    const double bytes = 4.0 * (double)b->n, payload = (double)s->payload_bytes;
    const double encode_s = median(&s->encode, b->rounds), decode_s = median(&s->decode, b->rounds);
    const double copy_s = median(&b->copy, b->rounds), add_s = median(&b->add, b->rounds);
    const double sum_s = median(&b->sum, b->rounds);
    figures f = {.encode = 1e-9 * bytes / encode_s,
                 .decode = 1e-9 * bytes / decode_s,
                 .copy = 1e-9 * bytes / copy_s,
                 .add = 1e-9 * bytes / add_s,
                 .ratio = bytes / payload};
    f.encode_roof = b->feedback ? ((3 * bytes + payload) / encode_s) / (3 * bytes / sum_s)
                                : ((bytes + payload) / encode_s) / (2 * bytes / copy_s);
    f.decode_roof = ((2 * bytes + payload) / decode_s) / (3 * bytes / add_s);
    f.break_even = 8 * (1 - 1 / f.ratio) / (1 / f.encode + 1 / f.decode);
    f.encode_low = 1e-9 * bytes / s->encode.seconds[b->rounds - 1];
    f.encode_high = 1e-9 * bytes / s->encode.seconds[0];
    f.decode_low = 1e-9 * bytes / s->decode.seconds[b->rounds - 1];
    f.decode_high = 1e-9 * bytes / s->decode.seconds[0];
    return f;
}

static gw_isa isa_used(const bench *b, const subject *s)
{
    gw_isa isa = b->exec.isa == GW_ISA_AUTO ? gw_isa_best() : b->exec.isa;
    while (!gw_codec_has_isa(s->params.codec, isa)) {
        isa = (gw_isa)(isa - 1);
    }
    return isa;
}

static bool print_json(bench *b)
{
    json_t *all = json_array();
    for (size_t i = 0; i < b->n_subjects; i++) {
        subject *s = &b->subjects[i];
        const figures f = figures_of(b, s);
        json_array_append_new(
            all,
            json_pack(
                "{s:s, s:s, s:s, s:i, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:[ff], "
                "s:[ff], s:I, s:I, s:b}",
                "spec", s->spec, "isa", gw_isa_name(isa_used(b, s)), "device", "cpu", "threads",
                (int)b->threads, "elements", (json_int_t)b->n, "bytes",
                (json_int_t)s->payload_bytes, "encode_gbps", f.encode, "decode_gbps", f.decode,
                "copy_gbps", f.copy, "add_gbps", f.add, "encode_roofline", f.encode_roof,
                "decode_roofline", f.decode_roof, "ratio", f.ratio, "break_even_gbit", f.break_even,
                "encode_range_gbps", f.encode_low, f.encode_high, "decode_range_gbps", f.decode_low,
                f.decode_high, "rounds", (json_int_t)b->rounds, "workspace_bytes",
                (json_int_t)s->workspace));
    }
    return gw_cli_json_print(all);
}

static bool print_table(bench *b)
{
    static const gw_cli_column columns[] = {{"spec", false},       {"isa", false},
                                            {"ratio", true},       {"encode GB/s", true},
                                            {"range", true},       {"roofline", true},
                                            {"decode GB/s", true}, {"range", true},
                                            {"roofline", true},    {"break-even Gbit/s", true}};
    gw_cli_table table = {.columns = columns, .n_columns = sizeof columns / sizeof columns[0]};
    for (size_t i = 0; i < b->n_subjects; i++) {
        subject *s = &b->subjects[i];
        const figures f = figures_of(b, s);
        gw_cli_table_cell(&table, "%s", s->spec);
        gw_cli_table_cell(&table, "%s", gw_isa_name(isa_used(b, s)));
        gw_cli_table_cell(&table, "%.2f", f.ratio);
        gw_cli_table_cell(&table, "%.1f", f.encode);
        gw_cli_table_cell(&table, "%.1f-%.1f", f.encode_low, f.encode_high);
        gw_cli_table_cell(&table, "%.2f", f.encode_roof);
        gw_cli_table_cell(&table, "%.1f", f.decode);
        gw_cli_table_cell(&table, "%.1f-%.1f", f.decode_low, f.decode_high);
        gw_cli_table_cell(&table, "%.2f", f.decode_roof);
        gw_cli_table_cell(&table, "%.0f", f.break_even);
    }
    if (!gw_cli_table_print(&table)) {
        return false;
    }
    const double bytes = 4e-9 * (double)b->n;
    (void)printf(
        "\n%zu elements, %u thread%s, median of %zu rounds%s; copy %.1f GB/s, d += s %.1f GB/s, "
        "r + g %.1f GB/s (all of fp32 input)\n",
        b->n, b->threads, b->threads == 1 ? "" : "s", b->rounds,
        b->feedback ? ", encode with feedback" : "", bytes / median(&b->copy, b->rounds),
        bytes / median(&b->add, b->rounds), bytes / median(&b->sum, b->rounds));
    return true;
}

static int add_subjects(bench *b, char **words, size_t n_words)
{
    const size_t n = n_words > 0 ? n_words : sizeof USUAL / sizeof USUAL[0];
    if (n > MAX_SPECS) {
        return gw_cli_misuse(&PAGE, "more than %d specs", MAX_SPECS);
    }
    for (size_t i = 0; i < n; i++) {
        gw_why why = {""};
        subject *s = &b->subjects[i];
        s->spec = n_words > 0 ? words[i] : USUAL[i];
        if (gw_params_parse(&s->params, s->spec, &why) != GW_OK) {
            return gw_cli_misuse(&PAGE, "'%s': %s", s->spec, why.text);
        }
    }
    b->n_subjects = n;
    return GW_CLI_GO_ON;
}

int gw_cli_bench_codec(int argc, char **argv)
{
    gw_cli_args args;
    values v = {.n = 64 << 20, .rounds = 9, .threads = 1, .device = "cpu", .steps = 40};
    int status = gw_cli_parse(&PAGE, argc, argv, &args, &v);
    if (status != GW_CLI_GO_ON) {
        return status;
    }
    if (strcmp(v.device, "cpu") != 0) {
        return gw_cli_misuse(&PAGE, "--device %s: this build has cpu only", v.device);
    }
    if (v.n == 0 || v.n > (uint64_t)1 << 34 || v.rounds == 0 || v.rounds > MAX_ROUNDS) {
        return gw_cli_misuse(&PAGE, "-n takes 1 to 16Gi, --rounds 1 to %d", MAX_ROUNDS);
    }
    bench *b = calloc(1, sizeof *b);
    if (!b) {
        gw_cli_out_of_memory();
        return GW_CLI_FAILED;
    }
    b->n = (size_t)v.n;
    b->rounds = (size_t)v.rounds;
    b->inner = b->n < 4u << 20 ? (4u << 20) / b->n : 1;
    b->threads = v.threads;
    b->feedback = v.feedback;
    b->steps = v.steps;
    status = add_subjects(b, args.words, args.n_words);
    if (status == GW_CLI_GO_ON) {
        const bool fine = gw_cli_exec_open(v.isa, v.threads, &b->exec) && prepare(b) &&
                          run(b, args.talk) && (args.json ? print_json(b) : print_table(b));
        status = fine ? GW_CLI_DONE : GW_CLI_FAILED;
    }
    release(b);
    free(b);
    return status;
}
