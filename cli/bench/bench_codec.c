/* `gradwire bench codec`: how fast a codec is, as a share of what memory allows.
 *
 * Encode is set beside libc's memcpy of the input, decode-add beside d += s, on the same huge-page
 * buffers and threads in the same run. One round times the two references and then every codec
 * once; the figure is the median over the rounds, so that a slow moment of the machine hits all
 * alike. A codec moves fewer bytes than its reference: the roofline compares bytes moved per second.
 * Every timed result is compared with the scalar variant's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gradwire/gradwire.h>

#include "cli/bench/bench_codec.h"
#include "cli/bench/bench_codec_cuda.h"
#include "cli/bench/bench_reference.h"
#include "cli/exec.h"
#include "cli/json_out.h"
#include "cli/measure/generate.h"
#include "cli/measure/large_buffers.h"
#include "cli/measure/meter.h"
#include "cli/options.h"
#include "cli/say.h"
#include "cli/seconds.h"
#include "cli/table.h"

enum { MAX_SPECS = 32, MAX_ROUNDS = 101, N_BUFFERS = 5 };

typedef struct values {
    uint64_t n, rounds;
    uint64_t steps;
    gw_isa isa;
    unsigned threads;
    bool feedback;
    const char *device, *cuda;
} values;

static const gw_cli_option OPTIONS[] = {
    {"elements", 'n', GW_CLI_SIZE, offsetof(values, n), "N", "fp32 elements (64Mi)"},
    {"rounds", 'r', GW_CLI_U64, offsetof(values, rounds), "R", "timed rounds, median taken (9)"},
    {"isa", 0, GW_CLI_ISA, offsetof(values, isa), "I", "auto, scalar, avx2, avx512, neon (auto)"},
    {"feedback", 0, GW_CLI_FLAG, offsetof(values, feedback), NULL,
     "encode with feedback, beside r2 = r + g"},
    {"steps", 0, GW_CLI_U64, offsetof(values, steps), "N",
     "steps before timing, for a residual in steady state (40)"},
    {"device", 0, GW_CLI_TEXT, offsetof(values, device), "D",
     "cpu or cuda (cpu); cuda beside a copy on the device"},
    {"cuda", 0, GW_CLI_TEXT, offsetof(values, cuda), "FILE",
     "libgradwire_cuda (where the system looks)"},
    {"threads", 0, GW_CLI_THREADS, offsetof(values, threads), "T",
     "threads, of the references too (1)"},
};

static const gw_cli_page PAGE = {
    .command = "bench codec",
    .usage = "bench codec [SPEC]... [options]",
    .about =
        "Times encode and decode-add of generated gradient-like numbers, verified while timed.\n"
        "roofline: bytes that must move per second, over the same of memcpy (encode) or of\n"
        "d += s (decode) in the same run; with --feedback of r2 = r + g (encode). break_even: the\n"
        "link rate below which one encode and one decode cost less than the bytes they save.\n"
        "topk is also set beside nth_element over a copy and a compaction, lowrank beside its\n"
        "two products by BLAS alone. Without SPEC: the\n"
        "usual ones.",
    .example = "  gradwire bench codec natural:bits=8 dither:bits=4 -n 64Mi\n"
               "  gradwire bench codec --isa avx2 --threads 2 --json\n"
               "  gradwire bench codec --device cuda --feedback",
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
    size_t kept;      /* topk: how many it sends, beside nth_element; else 0 */
    uint32_t *chosen; /* index and value of each */
    size_t rank;      /* lowrank: beside its two bare products; else 0 */
    timing beside;
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

/* Sorts. */
static double median(timing *t, size_t n)
{
    return gw_cli_median(t->seconds, n);
}

/* On as many threads as the codecs. */
static double time_reference(bench *b, gw_cli_reference what)
{
    return gw_cli_time_reference(what, b->out, b->in, b->expected, b->n, b->threads, b->inner);
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

/* Parameters of topk, in its order. */
enum { TOPK_DENSITY, TOPK_VALUES };

/* topk's work done the obvious way, on this thread: with feedback r′ = r + g first, and what was chosen cleared
 * there afterwards. Numbers sent as they are must be the same. */
static bool time_nth_element(bench *b, subject *s, size_t round)
{
    float *value = (float *)(void *)(s->chosen + s->kept);
    const double begin = gw_cli_now();
    for (size_t k = 0; k < b->inner; k++) {
        if (b->feedback) {
            (void)gw_cli_time_reference(GW_CLI_SUM, b->after, b->in, s->residual, b->n, 1, 1);
        }
        gw_cli_select_largest(b->feedback ? b->after : b->in, b->n, s->kept,
                              (uint32_t *)(void *)b->out, s->chosen, value);
        for (size_t j = 0; b->feedback && j < s->kept; j++) {
            b->after[s->chosen[j]] = 0;
        }
    }
    s->beside.seconds[round] = (gw_cli_now() - begin) / (double)b->inner;
    if (s->params.value[TOPK_VALUES] == 0 &&
        memcmp(value, s->expected, s->kept * sizeof(float)) != 0) {
        gw_cli_error("%s: nth_element chose other numbers", s->spec);
        return false;
    }
    return true;
}

/* Parameters of lowrank, in its order. */
enum { LOWRANK_RANK, LOWRANK_COLS };

/* The two products of the matrix that lowrank takes n numbers for, a short last row left out. */
static void time_products(bench *b, subject *s, size_t round)
{
    size_t cols = (size_t)s->params.value[LOWRANK_COLS];
    cols = cols != 0 ? cols : (size_t)ceil(sqrt((double)b->n));
    s->beside.seconds[round] = gw_cli_time_products(b->in, b->n / cols, cols, s->rank, b->out);
}

static bool time_subject(bench *b, subject *s, size_t round)
{
    if (s->kept != 0 && !time_nth_element(b, s, round)) {
        return false;
    }
    if (s->rank != 0) {
        time_products(b, s, round);
    }
    double begin = gw_cli_now();
    for (size_t k = 0; k < b->inner; k++) {
        if (!encode(b, s, &b->exec, b->payload)) {
            return false;
        }
    }
    s->encode.seconds[round] = (gw_cli_now() - begin) / (double)b->inner;
    if (memcmp(b->payload, s->expected, s->payload_bytes) != 0) {
        gw_cli_error("%s: encoded bytes differ from the scalar variant's", s->spec);
        return false;
    }
    memset(b->out, 0, b->n * sizeof(float));
    begin = gw_cli_now();
    for (size_t k = 0; k < b->inner; k++) {
        if (!decode(b, s, &b->exec, GW_ADD, b->out)) {
            return false;
        }
    }
    s->decode.seconds[round] = (gw_cli_now() - begin) / (double)b->inner;
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
        b->copy.seconds[round] = time_reference(b, GW_CLI_COPY);
        b->add.seconds[round] = time_reference(b, GW_CLI_ADD);
        b->sum.seconds[round] = time_reference(b, GW_CLI_SUM);
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
        if (s->params.codec == gw_codec_find("topk")) {
            s->kept = (size_t)fmax(1, floor(s->params.value[TOPK_DENSITY] * (double)b->n + 0.5));
            s->chosen = calloc(2 * s->kept, sizeof *s->chosen);
        }
        if (s->params.codec == gw_codec_find("lowrank") && b->n >= 1024) {
            s->rank = (size_t)s->params.value[LOWRANK_RANK];
        }
        if (!s->expected || (s->kept != 0 && !s->chosen)) {
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
        free(b->subjects[i].chosen);
        gw_cli_huge_close(&b->subjects[i].residual_memory);
    }
    gw_cli_exec_close(&b->exec);
}

/* The figures of one subject. Rates in GB/s of fp32 input. */
typedef struct figures {
    double encode, decode, copy, add, encode_roof, decode_roof, ratio, break_even;
    double encode_low, encode_high, decode_low, decode_high;
    double beside; /* nth_element, or two bare products */
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
    if (s->kept != 0 || s->rank != 0) {
        f.beside = 1e-9 * bytes / median(&s->beside, b->rounds);
    }
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
        json_t *one = json_pack(
            "{s:s, s:s, s:s, s:i, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:[ff], "
            "s:[ff], s:I, s:I, s:b}",
            "spec", s->spec, "isa", gw_isa_name(isa_used(b, s)), "device", "cpu", "threads",
            (int)b->threads, "elements", (json_int_t)b->n, "bytes", (json_int_t)s->payload_bytes,
            "encode_gbps", f.encode, "decode_gbps", f.decode, "copy_gbps", f.copy, "add_gbps",
            f.add, "encode_roofline", f.encode_roof, "decode_roofline", f.decode_roof, "ratio",
            f.ratio, "break_even_gbit", f.break_even, "encode_range_gbps", f.encode_low,
            f.encode_high, "decode_range_gbps", f.decode_low, f.decode_high, "rounds",
            (json_int_t)b->rounds, "workspace_bytes", (json_int_t)s->workspace, "feedback",
            (int)b->feedback);
        if (s->kept != 0) {
            (void)json_object_set_new(one, "nth_element_gbps", json_real(f.beside));
        }
        if (s->rank != 0) {
            (void)json_object_set_new(one, "products_gbps", json_real(f.beside));
        }
        json_array_append_new(all, one);
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
    for (size_t i = 0; i < b->n_subjects; i++) {
        subject *s = &b->subjects[i];
        if (s->kept != 0) {
            const figures f = figures_of(b, s);
            (void)printf(
                "%s: %.1f times as fast as nth_element and a compaction, %.2f GB/s on one thread\n",
                s->spec, f.encode / f.beside, f.beside);
        }
        if (s->rank != 0) {
            const figures f = figures_of(b, s);
            (void)printf("%s: %.2f of the speed of its two bare products by BLAS, %.2f GB/s\n",
                         s->spec, f.encode / f.beside, f.beside);
        }
    }
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

static bool run_on_cuda(const bench *b, const values *v, bool json)
{
    const char *specs[MAX_SPECS];
    gw_params params[MAX_SPECS];
    for (size_t i = 0; i < b->n_subjects; i++) {
        specs[i] = b->subjects[i].spec;
        params[i] = b->subjects[i].params;
    }
    return gw_cli_bench_codec_cuda(&(gw_cli_cuda_wish){.library = v->cuda,
                                                       .n = b->n,
                                                       .rounds = b->rounds,
                                                       .steps = b->steps,
                                                       .feedback = b->feedback,
                                                       .json = json,
                                                       .specs = specs,
                                                       .params = params,
                                                       .n_specs = b->n_subjects});
}

int gw_cli_bench_codec(int argc, char **argv)
{
    gw_cli_args args;
    values v = {.n = 64 << 20, .rounds = 9, .threads = 1, .device = "cpu", .steps = 40};
    int status = gw_cli_parse(&PAGE, argc, argv, &args, &v);
    if (status != GW_CLI_GO_ON) {
        return status;
    }
    const bool on_cuda = strcmp(v.device, "cuda") == 0;
    if (!on_cuda && strcmp(v.device, "cpu") != 0) {
        return gw_cli_misuse(&PAGE, "--device %s: cpu or cuda", v.device);
    }
    if (on_cuda && (v.threads != 1 || v.isa != GW_ISA_AUTO)) {
        return gw_cli_misuse(&PAGE, "--threads and --isa are the cpu's");
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
    if (status == GW_CLI_GO_ON && on_cuda) {
        status = run_on_cuda(b, &v, args.json) ? GW_CLI_DONE : GW_CLI_FAILED;
    } else if (status == GW_CLI_GO_ON) {
        const bool fine = gw_cli_exec_open(v.isa, v.threads, &b->exec) && prepare(b) &&
                          run(b, args.talk) && (args.json ? print_json(b) : print_table(b));
        status = fine ? GW_CLI_DONE : GW_CLI_FAILED;
    }
    release(b);
    free(b);
    return status;
}
