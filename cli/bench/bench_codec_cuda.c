/* `gradwire bench codec --device cuda`: the same figures on a CUDA device, beside a copy on the device.
 *
 * Work is timed by the device's own events. One round times the copy and then every codec once; figures are medians over
 * the rounds. Before that each codec's payload is compared with the host's, but for codecs with rounds, whose sums have
 * another order there. */
#include "cli/bench/bench_codec_cuda.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json_out.h"
#include "cli/measure/generate.h"
#include "cli/measure/meter.h"
#include "cli/say.h"
#include "cli/table.h"

/* As gw_cli_page of bench codec allows. */
enum { MOST_ROUNDS = 101, MOST_SPECS = 32, LEAST_AT_ONCE = 4 << 20 };

typedef struct subject {
    const char *spec;
    const gw_params *params;
    size_t bound, workspace, written;
    float *residual; /* with feedback */
    double encode[MOST_ROUNDS], decode[MOST_ROUNDS];
} subject;

typedef struct bench {
    const gw_cli_cuda_wish *wish;
    gw_cuda *cuda;
    gw_cuda_place at;
    void *stream, *begun, *ended;
    size_t bytes, inner; /* of the input; calls a timing */
    float *in, *out, *after;
    uint8_t *payload;
    gw_cuda_result *result;
    gw_workspace workspace;
    subject subjects[MOST_SPECS];
    double copy[MOST_ROUNDS];
    gw_why why;
} bench;

static const gw_stream KEY = {.seed = 1, .step = 2, .tensor = 3};

static bool good(bench *b, gw_status status, const char *what)
{
    if (status != GW_OK) {
        gw_cli_error("%s: %s", what,
                     b->why.text[0] != '\0' ? b->why.text : gw_status_string(status));
    }
    return status == GW_OK;
}

/* ---- what is timed ---- */

static gw_status copy(bench *b, subject *s)
{
    (void)s;
    return gw_cuda_copy(b->at, b->stream, b->out, b->in, b->bytes, &b->why);
}

static gw_status encode(bench *b, subject *s)
{
    const gw_cuda_source source = {.in = {b->in, b->wish->n, GW_F32},
                                   .residual = s->residual,
                                   .residual_after = s->residual != NULL ? b->after : NULL,
                                   .key = KEY,
                                   .payload = b->payload,
                                   .capacity = s->bound,
                                   .result = b->result};
    return gw_cuda_encode(b->cuda, b->stream, s->params, &source, 1, b->workspace, &b->why);
}

static gw_status decode(bench *b, subject *s)
{
    const gw_cuda_payload payload = {b->payload, s->written, NULL};
    const gw_cuda_sink sink = {&payload, 1, {b->out, b->wish->n, GW_F32}, GW_ADD, 1, b->result};
    return gw_cuda_decode(b->cuda, b->stream, s->params, &sink, 1, b->workspace, &b->why);
}

static bool time_work(bench *b, subject *s, gw_status (*work)(bench *, subject *), double *seconds)
{
    gw_status status = gw_cuda_record(b->at, b->begun, b->stream, &b->why);
    for (size_t k = 0; k < b->inner && status == GW_OK; k++) {
        status = work(b, s);
    }
    if (status == GW_OK) {
        status = gw_cuda_record(b->at, b->ended, b->stream, &b->why);
    }
    status = status == GW_OK ? gw_cuda_wait(b->at, b->stream, &b->why) : status;
    if (status == GW_OK) {
        status = gw_cuda_elapsed(b->at, b->begun, b->ended, seconds, &b->why);
    }
    *seconds /= (double)b->inner;
    return good(b, status, s != NULL ? s->spec : "a copy");
}

/* ---- before ---- */

static bool take(bench *b, size_t bytes, void **out)
{
    return good(b, gw_cuda_allocate(b->at, bytes, 0, out, &b->why), "memory of the device");
}

static bool now(bench *b, void *to, const void *from, size_t bytes)
{
    gw_status status = gw_cuda_copy(b->at, b->stream, to, from, bytes, &b->why);
    status = status == GW_OK ? gw_cuda_wait(b->at, b->stream, &b->why) : status;
    return good(b, status, "a copy");
}

/* Encodes once, tells how many bytes came of it, and compares them with the host's. */
static bool check_subject(bench *b, subject *s, const float *numbers)
{
    const size_t n = b->wish->n;
    gw_cuda_result result;
    size_t need = 0, written = 0;
    const gw_tensor in = {(void *)(uintptr_t)numbers, n, GW_F32};
    (void)gw_codec_workspace(s->params, GW_F32, n, 0, 1, &need);
    uint8_t *here = malloc(s->bound + 1), *there = malloc(s->bound + 1);
    void *workspace = malloc(need + 1);
    const gw_exec exec = {.workspace = {workspace, need}};
    bool fine = here != NULL && there != NULL && workspace != NULL;
    float *const residual = s->residual;
    s->residual = NULL;
    fine = fine &&
           good(b, gw_cuda_clear(b->at, b->stream, b->result, sizeof result, &b->why), s->spec) &&
           good(b, encode(b, s), s->spec) && now(b, &result, b->result, sizeof result) &&
           now(b, there, b->payload, (size_t)result.written);
    s->residual = residual;
    if (fine && (gw_params_flags(s->params) & GW_CODEC_ROUNDS) == 0) {
        fine = gw_encode(s->params, &exec, &KEY, &in, here, s->bound, &written, NULL) == GW_OK &&
               written == result.written && memcmp(here, there, written) == 0;
        if (!fine) {
            gw_cli_error("%s: the device's bytes differ from the host's", s->spec);
        }
    }
    s->written = fine ? (size_t)result.written : 0;
    free(here);
    free(there);
    free(workspace);
    return fine;
}

/* The residual after some steps of the same gradient. */
static bool reach_steady_state(bench *b, subject *s)
{
    bool fine = take(b, b->bytes, (void **)&s->residual) &&
                good(b, gw_cuda_clear(b->at, b->stream, s->residual, b->bytes, &b->why), s->spec);
    for (uint64_t step = 0; step < b->wish->steps && fine; step++) {
        fine = good(b, encode(b, s), s->spec);
        float *const before = s->residual;
        s->residual = b->after;
        b->after = before;
    }
    gw_cuda_result result = {0};
    fine = fine &&
           good(b, gw_cuda_clear(b->at, b->stream, b->result, sizeof result, &b->why), s->spec) &&
           good(b, encode(b, s), s->spec) && now(b, &result, b->result, sizeof result);
    s->written = (size_t)result.written; /* what is sent in steady state */
    return fine;
}

static bool measure(bench *b, size_t *payload, size_t *workspace)
{
    const gw_cli_cuda_wish *w = b->wish;
    for (size_t i = 0; i < w->n_specs; i++) {
        subject *s = &b->subjects[i];
        s->spec = w->specs[i];
        s->params = &w->params[i];
        if (!gw_cuda_has(b->cuda, s->params->codec)) {
            gw_cli_error("%s has no CUDA side", s->spec);
            return false;
        }
        if (!good(b, gw_payload_bound(s->params, w->n, &s->bound), s->spec) ||
            !good(
                b,
                gw_cuda_workspace(b->cuda, s->params, GW_F32, &w->n, 1, w->feedback, &s->workspace),
                s->spec)) {
            return false;
        }
        *payload = s->bound > *payload ? s->bound : *payload;
        *workspace = s->workspace > *workspace ? s->workspace : *workspace;
    }
    return true;
}

static bool prepare(bench *b, float *numbers)
{
    size_t payload = 1;
    gw_cli_generate(1, numbers, b->wish->n);
    bool fine = good(b, gw_cuda_use(b->at, NULL, &b->why), "CUDA") &&
                good(b, gw_cuda_stream_open(b->at, &b->stream, &b->why), "CUDA") &&
                good(b, gw_cuda_event_open(b->at, &b->begun, &b->why), "CUDA") &&
                good(b, gw_cuda_event_open(b->at, &b->ended, &b->why), "CUDA") &&
                measure(b, &payload, &b->workspace.size) && take(b, b->bytes, (void **)&b->in) &&
                take(b, b->bytes, (void **)&b->out) && take(b, b->bytes, (void **)&b->after) &&
                take(b, payload, (void **)&b->payload) &&
                take(b, sizeof *b->result, (void **)&b->result) &&
                take(b, b->workspace.size, &b->workspace.data) && now(b, b->in, numbers, b->bytes);
    for (size_t i = 0; i < b->wish->n_specs && fine; i++) {
        subject *s = &b->subjects[i];
        fine = check_subject(b, s, numbers) && (!b->wish->feedback || reach_steady_state(b, s));
    }
    return fine && good(b, gw_cuda_clear(b->at, b->stream, b->out, b->bytes, &b->why), "CUDA");
}

static bool run(bench *b)
{
    for (size_t round = 0; round < b->wish->rounds; round++) {
        if (!time_work(b, NULL, copy, &b->copy[round])) {
            return false;
        }
        for (size_t i = 0; i < b->wish->n_specs; i++) {
            subject *s = &b->subjects[i];
            if (!time_work(b, s, encode, &s->encode[round]) ||
                !time_work(b, s, decode, &s->decode[round])) {
                return false;
            }
        }
    }
    return true;
}

/* ---- figures, in GB/s of fp32 input ---- */

typedef struct figures {
    double encode, decode, encode_roof, decode_roof, ratio, break_even;
    double encode_low, encode_high, decode_low, decode_high;
} figures;

static figures figures_of(bench *b, subject *s)
{
    const size_t n = b->wish->rounds;
    const double bytes = (double)b->bytes, payload = (double)s->written;
    const double encode_s = gw_cli_median(s->encode, n), decode_s = gw_cli_median(s->decode, n);
    const double rate = 2 * bytes / gw_cli_median(b->copy, n);
    figures f = {.encode = 1e-9 * bytes / encode_s,
                 .decode = 1e-9 * bytes / decode_s,
                 .ratio = bytes / payload,
                 .encode_low = 1e-9 * bytes / s->encode[n - 1],
                 .encode_high = 1e-9 * bytes / s->encode[0],
                 .decode_low = 1e-9 * bytes / s->decode[n - 1],
                 .decode_high = 1e-9 * bytes / s->decode[0]};
    f.encode_roof = ((b->wish->feedback ? 3 : 1) * bytes + payload) / encode_s / rate;
    f.decode_roof = (2 * bytes + payload) / decode_s / rate;
    f.break_even = 8 * (1 - 1 / f.ratio) / (1 / f.encode + 1 / f.decode);
    return f;
}

static bool print_json(bench *b)
{
    json_t *all = json_array();
    const double copy_rate = 1e-9 * (double)b->bytes / gw_cli_median(b->copy, b->wish->rounds);
    for (size_t i = 0; i < b->wish->n_specs; i++) {
        subject *s = &b->subjects[i];
        const figures f = figures_of(b, s);
        json_array_append_new(
            all,
            json_pack(
                "{s:s, s:s, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:[ff], s:[ff], s:I, "
                "s:I, s:b}",
                "spec", s->spec, "device", "cuda", "elements", (json_int_t)b->wish->n, "bytes",
                (json_int_t)s->written, "encode_gbps", f.encode, "decode_gbps", f.decode,
                "copy_gbps", copy_rate, "encode_roofline", f.encode_roof, "decode_roofline",
                f.decode_roof, "ratio", f.ratio, "break_even_gbit", f.break_even,
                "encode_range_gbps", f.encode_low, f.encode_high, "decode_range_gbps", f.decode_low,
                f.decode_high, "rounds", (json_int_t)b->wish->rounds, "workspace_bytes",
                (json_int_t)s->workspace, "feedback", (int)b->wish->feedback));
    }
    return gw_cli_json_print(all);
}

static bool print_table(bench *b)
{
    static const gw_cli_column columns[] = {{"spec", false},       {"device", false},
                                            {"ratio", true},       {"encode GB/s", true},
                                            {"range", true},       {"roofline", true},
                                            {"decode GB/s", true}, {"range", true},
                                            {"roofline", true},    {"break-even Gbit/s", true}};
    gw_cli_table table = {.columns = columns, .n_columns = sizeof columns / sizeof columns[0]};
    for (size_t i = 0; i < b->wish->n_specs; i++) {
        const figures f = figures_of(b, &b->subjects[i]);
        gw_cli_table_cell(&table, "%s", b->subjects[i].spec);
        gw_cli_table_cell(&table, "cuda");
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
    (void)printf(
        "\n%zu elements, median of %zu rounds%s; a copy on the device %.1f GB/s (of fp32 input)\n",
        b->wish->n, b->wish->rounds, b->wish->feedback ? ", encode with feedback" : "",
        1e-9 * (double)b->bytes / gw_cli_median(b->copy, b->wish->rounds));
    return true;
}

static void release(bench *b)
{
    for (size_t i = 0; i < b->wish->n_specs; i++) {
        gw_cuda_free(b->at, b->subjects[i].residual, 0);
    }
    void *const memory[] = {b->in, b->out, b->after, b->payload, b->result, b->workspace.data};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
        gw_cuda_free(b->at, memory[i], 0);
    }
    gw_cuda_event_close(b->at, b->begun);
    gw_cuda_event_close(b->at, b->ended);
    gw_cuda_stream_close(b->at, b->stream);
    gw_cuda_close(b->cuda);
}

bool gw_cli_bench_codec_cuda(const gw_cli_cuda_wish *wish)
{
    bench *b = calloc(1, sizeof *b);
    float *numbers = malloc(wish->n * sizeof *numbers + 1);
    bool fine = false;
    if (b == NULL || numbers == NULL) {
        gw_cli_out_of_memory();
    } else if (gw_cuda_open(wish->library, &b->cuda, &b->why) != GW_OK) {
        gw_cli_error("%s", b->why.text);
    } else {
        b->wish = wish;
        b->at = (gw_cuda_place){b->cuda, 0};
        b->bytes = wish->n * sizeof(float);
        b->inner = wish->n < LEAST_AT_ONCE ? LEAST_AT_ONCE / wish->n : 1;
        b->inner = b->inner > 64 ? 64 : b->inner;
        fine = prepare(b, numbers) && run(b) && (wish->json ? print_json(b) : print_table(b));
        release(b);
    }
    free(numbers);
    free(b);
    return fine;
}
