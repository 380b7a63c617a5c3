/* `gradwire encode`: tensors of a file -> one frame, a segment each. The payloads are written where
 * they belong in the frame (gw_frame_begin, gw_frame_next), the header in front when all are there. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradwire/gradwire.h>

#include "cli/commands.h"
#include "cli/exec.h"
#include "cli/files/tensorfile.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/say.h"

typedef struct values {
    const char *spec, *out, *format_text;
    gw_cli_format format;
    uint64_t seed, step;
    uint32_t rank;
    gw_isa isa;
    unsigned threads;
} values;

static const gw_cli_option OPTIONS[] = {
    {"codec", 'c', GW_CLI_TEXT, offsetof(values, spec), "SPEC",
     "codec and its settings, such as natural:bits=8"},
    {"output", 'o', GW_CLI_TEXT, offsetof(values, out), "OUT.gw",
     "the frame to write; - is standard output"},
    {"format", 0, GW_CLI_TEXT, offsetof(values, format_text), "F",
     "IN is " GW_CLI_FORMATS " (by its extension; of - by its first bytes)"},
    {"seed", 0, GW_CLI_U64, offsetof(values, seed), "N", "seed of the random stream (0)"},
    {"step", 0, GW_CLI_U64, offsetof(values, step), "N", "step in the random stream (0)"},
    {"rank", 0, GW_CLI_U32, offsetof(values, rank), "N", "rank in the random stream (0)"},
    {"isa", 0, GW_CLI_ISA, offsetof(values, isa), "I",
     "auto, scalar, avx2, avx512, neon: same bytes (auto)"},
    {"threads", 0, GW_CLI_THREADS, offsetof(values, threads), "T",
     "worker threads: same bytes (1)"},
};

static const gw_cli_page PAGE = {
    .command = "encode",
    .usage = "encode -c SPEC IN -o OUT.gw [options]",
    .about =
        "Encodes IN into a frame with checksums. IN is .npy (f32, f16; f64 is converted to\n"
        "f32), .safetensors (F32, F16, BF16; F64 is converted; every tensor becomes a segment,\n"
        "in order of its offset) or .f32 (raw, one dimension). A tensor's number in the\n"
        "random stream is its index in the file. OUT.gw is written whole or not at all.\n"
        "IN of - is standard input, OUT.gw of - standard output; the result then goes to stderr.",
    .example =
        "  gradwire encode -c natural:bits=8 grads.npy -o grads.gw\n"
        "  gradwire encode -c dither:bits=4,bucket=512 grads.safetensors -o grads.gw --seed 7\n"
        "  gradwire encode -c natural - -o - < grads.npy | ssh host gradwire decode - -o grads.npy",
    .options = OPTIONS,
    .n_options = sizeof OPTIONS / sizeof OPTIONS[0],
};

/* The frame while it is made. */
typedef struct frame {
    gw_segment *segments;
    size_t n;
    void *bytes;
    size_t capacity, size, payloads_at;
    uint64_t elements, tensor_bytes;
    gw_report report;
} frame;

static bool describe(const gw_cli_tensors *tensors, const gw_params *params, frame *f)
{
    if (tensors->n > GW_FRAME_MAX_SEGMENTS) {
        gw_cli_error("%zu tensors; a frame holds at most %d", tensors->n, GW_FRAME_MAX_SEGMENTS);
        return false;
    }
    f->n = tensors->n;
    f->segments = calloc(f->n + 1, sizeof *f->segments);
    if (!f->segments) {
        gw_cli_out_of_memory();
        return false;
    }
    for (size_t i = 0; i < f->n; i++) {
        const gw_cli_tensor *tensor = &tensors->items[i];
        gw_segment *segment = &f->segments[i];
        *segment = (gw_segment){.name = tensor->name,
                                .name_bytes = strlen(tensor->name),
                                .params = *params,
                                .dtype = tensor->dtype,
                                .count = tensor->shape.count,
                                .n_dims = tensor->shape.n_dims,
                                .tensor = i};
        memcpy(segment->dims, tensor->shape.dims, sizeof segment->dims);
        (void)gw_params_fit_shape(&segment->params, segment->dims, segment->n_dims);
        if (segment->name_bytes > GW_FRAME_MAX_NAME) {
            gw_cli_error("tensor '%.80s…': a name of %zu bytes; a frame takes at most %d",
                         tensor->name, segment->name_bytes, GW_FRAME_MAX_NAME);
            return false;
        }
        f->elements += tensor->shape.count;
        f->tensor_bytes += tensor->shape.bytes;
    }
    return true;
}

/* The most bytes the frame can have, and memory for them. */
static bool reserve(frame *f)
{
    size_t end = 0;
    gw_why why = {""};
    gw_status status = gw_frame_begin(f->segments, f->n, &end, &why);
    f->payloads_at = end;
    for (size_t i = 0; status == GW_OK && i < f->n; i++) {
        size_t bound = 0;
        status = gw_payload_bound(&f->segments[i].params, f->segments[i].count, &bound);
        end = gw_frame_next(end + bound);
    }
    if (status != GW_OK) {
        gw_cli_error("these tensors do not fit a frame: %s",
                     why.text[0] ? why.text : gw_status_string(status));
        return false;
    }
    f->capacity = end;
    f->bytes = malloc(end + 1);
    if (!f->bytes) {
        gw_cli_out_of_memory();
    }
    return f->bytes;
}

static bool encode_all(const gw_cli_tensors *tensors, const values *v, int talk, gw_exec *exec,
                       frame *f)
{
    size_t at = f->payloads_at;
    for (size_t i = 0; i < f->n; i++) {
        gw_segment *segment = &f->segments[i];
        const gw_tensor in = {tensors->items[i].data, segment->count, segment->dtype};
        const gw_stream stream = {
            .seed = v->seed, .step = v->step, .tensor = segment->tensor, .rank = v->rank};
        gw_report report = {0};
        size_t written = 0;
        if (!gw_cli_exec_fit(exec, &segment->params, segment->dtype, segment->count, false)) {
            return false;
        }
        gw_status status = gw_encode(&segment->params, exec, &stream, &in, (char *)f->bytes + at,
                                     f->capacity - at, &written, &report);
        if (status != GW_OK) {
            gw_cli_error("tensor '%.80s': cannot encode: %s", tensors->items[i].name,
                         gw_status_string(status));
            return false;
        }
        segment->payload_at = at;
        segment->payload_bytes = written;
        at = gw_frame_next(at + written);
        gw_cli_warn_non_finite(talk, tensors->items[i].name, report.non_finite, segment->count);
        f->report.non_finite += report.non_finite;
        f->report.overflowed += report.overflowed;
    }
    return true;
}

static bool seal(const values *v, frame *f)
{
    gw_why why = {""};
    const gw_frame_info info = {
        .flags = GW_FRAME_HASHED, .seed = v->seed, .step = v->step, .rank = v->rank};
    size_t size = 0;
    gw_status status = gw_frame_seal(f->bytes, f->capacity, &info, f->segments, f->n, &size, &why);
    f->size = size;
    if (status != GW_OK) {
        gw_cli_error("cannot make the frame: %s",
                     why.text[0] ? why.text : gw_status_string(status));
    }
    return status == GW_OK;
}

static bool print_result(const gw_cli_args *args, const char *out, const frame *f)
{
    double ratio = (double)f->tensor_bytes / (double)f->size;
    double bits = f->elements ? 8.0 * (double)f->size / (double)f->elements : NAN;
    const gw_report *report = &f->report;
    if (args->json) {
        json_t *json =
            json_pack("{s:o, s:o, s:o, s:o}", "elements", gw_cli_json_count(f->elements), "bytes",
                      gw_cli_json_count(f->size), "ratio", gw_cli_json_number(ratio),
                      "bits_per_element", gw_cli_json_number(bits));
        if (report->non_finite > 0) {
            json_object_set_new(json, "non_finite", gw_cli_json_count(report->non_finite));
        }
        if (report->overflowed > 0) {
            json_object_set_new(json, "overflowed", gw_cli_json_count(report->overflowed));
        }
        return gw_cli_json_print(json);
    }
    char per_element[64] = "", odd[96] = "";
    if (f->elements > 0) {
        (void)snprintf(per_element, sizeof per_element, ", %.3f bits per element", bits);
    }
    if (report->non_finite > 0) {
        (void)snprintf(odd, sizeof odd, ", %" PRIu64 " non-finite", report->non_finite);
    }
    if (report->overflowed > 0) {
        const size_t at = strlen(odd);
        (void)snprintf(odd + at, sizeof odd - at, ", %" PRIu64 " overflowed", report->overflowed);
    }
    gw_cli_result(args->talk, out, "%" PRIu64 " elements, %zu bytes, ratio %.3f%s%s", f->elements,
                  f->size, ratio, per_element, odd);
    return true;
}

static bool encode(const gw_cli_args *args, const values *v, const gw_params *params)
{
    frame f = {0};
    gw_exec exec = {0};
    gw_cli_tensors tensors = {0};
    bool fine = gw_cli_exec_open(v->isa, v->threads, &exec) &&
                gw_cli_tensors_open(args->words[0], v->format, args->talk, &tensors) &&
                describe(&tensors, params, &f) && reserve(&f) &&
                encode_all(&tensors, v, args->talk, &exec, &f) && seal(v, &f);
    if (fine) {
        const struct iovec whole = {f.bytes, f.size};
        gw_cli_note(args->talk, GW_CLI_VERBOSE, "%s: %zu segments, %" PRIu64 " bytes of tensors",
                    args->words[0], f.n, f.tensor_bytes);
        fine = gw_cli_file_write(v->out, &whole, 1) && print_result(args, v->out, &f);
    }
    free(f.bytes);
    free(f.segments);
    gw_cli_tensors_close(&tensors);
    gw_cli_exec_close(&exec);
    return fine;
}

int gw_cli_encode(int argc, char **argv)
{
    gw_cli_args args;
    values v = {.threads = 1};
    int status = gw_cli_parse(&PAGE, argc, argv, &args, &v);
    if (status != GW_CLI_GO_ON) {
        return status;
    }
    if (args.n_words == 0) {
        return gw_cli_misuse(&PAGE, "IN is missing: the file to encode");
    }
    if (args.n_words > 1) {
        return gw_cli_misuse(&PAGE, "one file at a time: what is '%s'?", args.words[1]);
    }
    if (!v.spec || !v.out) {
        return gw_cli_misuse(&PAGE, !v.spec ? "-c SPEC is missing" : "-o OUT.gw is missing");
    }
    if (!gw_cli_format_parse(v.format_text, &v.format)) {
        return gw_cli_misuse(&PAGE, "option --format: '%s' is not " GW_CLI_FORMATS, v.format_text);
    }
    if (v.format == GW_CLI_BY_NAME && !gw_cli_tensors_known(args.words[0])) {
        return gw_cli_misuse(&PAGE, "'%s' is not named " GW_CLI_TENSOR_FILES, args.words[0]);
    }
    if ((status = gw_cli_check_stream(&PAGE, &args, v.out, true)) != GW_CLI_GO_ON) {
        return status;
    }
    gw_why why = {""};
    gw_params params;
    if (gw_params_parse(&params, v.spec, &why) != GW_OK) {
        return gw_cli_misuse(&PAGE, "-c '%s': %s", v.spec, why.text);
    }
    return encode(&args, &v, &params) ? GW_CLI_DONE : GW_CLI_FAILED;
}
