/* `gradwire inspect`: every tensor of a file through every codec asked for, and what that costs:
 * bytes, and the damage after decoding into the tensor's own element type. */
#define _POSIX_C_SOURCE 200809L
#include "cli/codec/inspect.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gradwire/gradwire.h>

#include "cli/commands.h"
#include "cli/exec.h"
#include "cli/files/framefile.h"
#include "cli/files/tensorfile.h"
#include "cli/json_out.h"
#include "cli/measure/error_metrics.h"
#include "cli/measure/generate.h"
#include "cli/say.h"
#include "cli/table.h"

typedef struct values {
    gw_cli_texts specs;
    const char *format_text;
    gw_cli_format format;
    uint64_t seed, generate;
    gw_isa isa;
    unsigned threads;
    bool total;
} values;

#define NOT_GIVEN UINT64_MAX

static const gw_cli_option OPTIONS[] = {
    {"codec", 'c', GW_CLI_TEXTS, offsetof(values, specs), "SPEC",
     "codec and its settings; again for more (every codec)"},
    {"generate", 0, GW_CLI_SIZE, offsetof(values, generate), "N",
     "N made-up numbers instead of FILE, such as 64Ki"},
    {"seed", 0, GW_CLI_U64, offsetof(values, seed), "N", "seed of the random stream (0)"},
    {"format", 0, GW_CLI_TEXT, offsetof(values, format_text), "F",
     "FILE is " GW_CLI_FORMATS " (by its extension; of - by its first bytes)"},
    {"total", 0, GW_CLI_FLAG, offsetof(values, total), NULL, "all tensors together only"},
    {"isa", 0, GW_CLI_ISA, offsetof(values, isa), "I",
     "auto, scalar, avx2, avx512, neon: same bytes (auto)"},
    {"threads", 0, GW_CLI_THREADS, offsetof(values, threads), "T",
     "worker threads: same bytes (1)"},
};

static const gw_cli_page PAGE = {
    .command = "inspect",
    .usage = "inspect FILE [-c SPEC]... [options]\n"
             "       gradwire inspect --generate N [-c SPEC]... [options]\n"
             "       gradwire inspect FILE.gw [options]",
    .about =
        "Encodes and decodes each tensor of FILE (.npy, .safetensors, .f32) with each SPEC and\n"
        "shows the payload's bytes and the damage: rel_error = |x-y|^2 / |x|^2 and the cosine\n"
        "between x and y, y being decoded into x's own type. A payload is the one that encode\n"
        "writes with the same seed. --generate makes numbers that look like a gradient: nearly\n"
        "normal with deviation 1e-3 (12 in 16), 4e-3 (3 in 16), 3.2e-2 (1 in 16); the same on "
        "every\n"
        "machine for the same N and seed. Of a frame (.gw), shows the segments. FILE of - is "
        "standard input.",
    .example = "  gradwire inspect grads.safetensors -c natural:bits=8 -c dither:bits=4\n"
               "  gradwire inspect --generate 1Mi\n"
               "  gradwire inspect grads.gw",
    .options = OPTIONS,
    .n_options = sizeof OPTIONS / sizeof OPTIONS[0],
};

/* A codec to try, and what it did to all tensors together. */
typedef struct trial {
    const char *spec; /* as the user wrote it */
    gw_params params;
    uint64_t elements, bytes, non_finite;
    gw_cli_damage damage;
} trial;

typedef struct job {
    const gw_cli_args *args;
    const values *v;
    trial *trials;
    size_t n_trials;
    gw_exec exec;
    gw_file_bytes *file; /* what was read */
    gw_cli_tensors tensors;
    void *payload, *decoded; /* large enough for every tensor and trial */
    size_t capacity;
    uint64_t non_finite; /* of the tensor tried last: the same for every codec */
    gw_cli_table table;
    json_t *rows;
} job;

/* ---- what to try, and on what ---- */

/* The specs of -c, or every codec with its defaults. Returns an exit status or GW_CLI_GO_ON. */
static int prepare_trials(job *j)
{
    const gw_cli_texts *specs = &j->v->specs;
    size_t n = specs->count ? specs->count : gw_codec_count();
    j->trials = calloc(n + 1, sizeof *j->trials);
    if (!j->trials) {
        gw_cli_out_of_memory();
        return GW_CLI_FAILED;
    }
    for (; j->n_trials < n; j->n_trials++) {
        size_t i = j->n_trials;
        gw_why why = {""};
        const char *spec = specs->count ? specs->items[i] : gw_codec_name(gw_codec_at(i));
        j->trials[i].spec = spec;
        if (gw_params_parse(&j->trials[i].params, spec, &why) != GW_OK) {
            return gw_cli_misuse(&PAGE, "-c '%s': %s", spec, why.text);
        }
    }
    return GW_CLI_GO_ON;
}

static bool generate(job *j)
{
    if (j->v->generate > SIZE_MAX / sizeof(float) / 2) {
        gw_cli_error("--generate: %" PRIu64 " elements are too many", j->v->generate);
        return false;
    }
    if (!gw_cli_tensors_reserve(&j->tensors, 1)) {
        return false;
    }
    j->tensors.n = 1;
    gw_cli_tensor *tensor = &j->tensors.items[0];
    tensor->dtype = GW_F32;
    tensor->shape = (gw_cli_shape){.stored = GW_CLI_F32, .n_dims = 1, .dims = {j->v->generate}};
    tensor->name = strdup("generated");
    if (!tensor->name || !gw_cli_shape_measure(&tensor->shape) || !gw_cli_tensor_allocate(tensor)) {
        return false;
    }
    gw_cli_generate(j->v->seed, tensor->data, tensor->shape.count);
    return true;
}

/* Made-up numbers have no shape worth telling. */
static gw_params params_for(const job *j, const trial *all, const gw_cli_tensor *tensor)
{
    gw_params params = all->params;
    if (j->args->n_words > 0) {
        (void)gw_params_fit_shape(&params, tensor->shape.dims, tensor->shape.n_dims);
    }
    return params;
}

/* Memory for the largest payload and the largest decoded tensor, once. */
static bool reserve(job *j)
{
    size_t largest = 0;
    for (size_t t = 0; t < j->tensors.n; t++) {
        const gw_cli_tensor *tensor = &j->tensors.items[t];
        largest = tensor->shape.bytes > largest ? tensor->shape.bytes : largest;
        for (size_t i = 0; i < j->n_trials; i++) {
            size_t bound = 0;
            const gw_params params = params_for(j, &j->trials[i], tensor);
            if (gw_payload_bound(&params, tensor->shape.count, &bound) != GW_OK) {
                gw_cli_error("tensor '%.80s': too large for '%s'", tensor->name, j->trials[i].spec);
                return false;
            }
            j->capacity = bound > j->capacity ? bound : j->capacity;
        }
    }
    j->payload = malloc(j->capacity + 1);
    j->decoded = malloc(largest + 1);
    if (!j->payload || !j->decoded) {
        gw_cli_out_of_memory();
    }
    return j->payload && j->decoded;
}

/* ---- results ---- */

static void add_number(gw_cli_table *table, const char *format, double value)
{
    char text[64];
    (void)snprintf(text, sizeof text, format, value);
    gw_cli_table_cell(table, "%s", isfinite(value) ? text : "-");
}

static void add_row(gw_cli_table *table, const char *tensor, const trial *result)
{
    gw_cli_table_cell(table, "%s", tensor);
    gw_cli_table_cell(table, "%" PRIu64, result->elements);
    gw_cli_table_cell(table, "%s", result->spec);
    gw_cli_table_cell(table, "%" PRIu64, result->bytes);
    add_number(table, "%.3f", 8.0 * (double)result->bytes / (double)result->elements);
    add_number(table, "%.4g", gw_cli_rel_error(&result->damage));
    add_number(table, "%.6f", gw_cli_cosine(&result->damage));
}

static void add_json(json_t *rows, const char *tensor, const trial *result)
{
    double bits = 8.0 * (double)result->bytes / (double)result->elements;
    json_array_append_new(
        rows,
        json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "tensor", tensor, "spec",
                  result->spec, "elements", gw_cli_json_count(result->elements), "bytes",
                  gw_cli_json_count(result->bytes), "bits_per_element", gw_cli_json_number(bits),
                  "rel_error", gw_cli_json_number(gw_cli_rel_error(&result->damage)), "cosine",
                  gw_cli_json_number(gw_cli_cosine(&result->damage)), "non_finite",
                  gw_cli_json_count(result->non_finite)));
}

static void add_result(job *j, const char *tensor, const trial *result)
{
    if (j->args->json) {
        add_json(j->rows, tensor, result);
    } else {
        add_row(&j->table, tensor, result);
    }
}

/* ---- the work ---- */

static bool try_one(job *j, size_t index, trial *all)
{
    const gw_cli_tensor *tensor = &j->tensors.items[index];
    const gw_tensor in = {tensor->data, tensor->shape.count, tensor->dtype};
    const gw_stream stream = {.seed = j->v->seed, .tensor = index};
    trial one = {.spec = all->spec, .elements = tensor->shape.count};
    gw_report report = {0};
    gw_why why = {""};
    size_t written = 0;
    const gw_params params = params_for(j, all, tensor);
    if (!gw_cli_exec_fit(&j->exec, &params, in.dtype, in.count, false)) {
        return false;
    }
    gw_status status =
        gw_encode(&params, &j->exec, &stream, &in, j->payload, j->capacity, &written, &report);
    gw_tensor out = {j->decoded, in.count, in.dtype};
    if (status == GW_OK) {
        status = gw_decode(&params, &j->exec, j->payload, written, GW_SET, &out, &why);
    }
    if (status != GW_OK) {
        gw_cli_error("tensor '%.80s', '%s': %s", tensor->name, all->spec,
                     why.text[0] ? why.text : gw_status_string(status));
        return false;
    }
    if (!gw_cli_damage_add(&one.damage, &in, &out)) {
        return false;
    }
    one.bytes = written;
    all->bytes += one.bytes;
    all->elements += one.elements;
    gw_cli_damage_join(&all->damage, &one.damage);
    all->non_finite += report.non_finite;
    one.non_finite = report.non_finite;
    j->non_finite = report.non_finite;
    if (!j->v->total) {
        add_result(j, tensor->name, &one);
    }
    return true;
}

static bool try_all(job *j)
{
    bool progress = j->args->talk > GW_CLI_QUIET && j->tensors.n > 1 && isatty(STDERR_FILENO);
    bool fine = true;
    for (size_t t = 0; fine && t < j->tensors.n; t++) {
        if (progress) {
            (void)fprintf(stderr, "\rtensor %zu of %zu", t + 1, j->tensors.n);
        }
        for (size_t i = 0; fine && i < j->n_trials; i++) {
            fine = try_one(j, t, &j->trials[i]);
        }
        if (fine) {
            const gw_cli_tensor *tensor = &j->tensors.items[t];
            (void)fputs(progress && j->non_finite > 0 ? "\r\033[K" : "", stderr);
            gw_cli_warn_non_finite(j->args->talk, tensor->name, j->non_finite, tensor->shape.count);
        }
    }
    if (progress) {
        (void)fprintf(stderr, "\r\033[K"); /* leaves the line as it was found */
    }
    return fine;
}

/* A table ends with the totals. JSON has them only when asked for alone, so that a reader's own sums
 * count nothing twice. */
static bool print_results(job *j)
{
    for (size_t i = 0; (j->v->total || !j->args->json) && i < j->n_trials; i++) {
        add_result(j, "total", &j->trials[i]);
    }
    if (!j->args->json) {
        return gw_cli_table_print(&j->table);
    }
    json_t *rows = j->rows;
    j->rows = NULL;
    return gw_cli_json_print(rows);
}

static bool inspect_tensors(job *j)
{
    static const gw_cli_column COLUMNS[] = {
        {"tensor", false}, {"elements", true},  {"spec", false},  {"bytes", true},
        {"bits/el", true}, {"rel_error", true}, {"cosine", true},
    };
    j->table.columns = COLUMNS;
    j->table.n_columns = sizeof COLUMNS / sizeof COLUMNS[0];
    j->rows = json_array();
    return gw_cli_exec_open(j->v->isa, j->v->threads, &j->exec) &&
           (j->args->n_words == 0 ? generate(j)
                                  : gw_cli_tensors_take(j->args->words[0], j->v->format,
                                                        j->args->talk, j->file, &j->tensors)) &&
           reserve(j) && try_all(j) && print_results(j);
}

static int inspect(const gw_cli_args *args, const values *v, gw_file_bytes *file)
{
    job j = {.args = args, .v = v, .file = file};
    int status = prepare_trials(&j);
    if (status == GW_CLI_GO_ON) {
        status = inspect_tensors(&j) ? GW_CLI_DONE : GW_CLI_FAILED;
    }
    json_decref(j.rows);
    gw_cli_table_free(&j.table);
    free(j.decoded);
    free(j.payload);
    gw_cli_tensors_close(&j.tensors);
    gw_cli_exec_close(&j.exec);
    free(j.trials);
    return status;
}

/* A frame or tensors, by the file's name; of a stream by its first bytes. */
static int inspect_file(const gw_cli_args *args, const values *v)
{
    const char *path = args->words[0];
    bool frame = v->format == GW_CLI_BY_NAME && gw_cli_has_extension(path, "gw");
    gw_file_bytes file = {0};
    if (v->format == GW_CLI_BY_NAME && !frame && !gw_cli_tensors_known(path)) {
        return gw_cli_misuse(&PAGE, "'%s' is not named " GW_CLI_TENSOR_FILES ", or .gw", path);
    }
    if (!(frame && v->specs.count > 0) && !gw_cli_file_read(path, &file)) {
        return GW_CLI_FAILED;
    }
    frame =
        frame || (v->format == GW_CLI_BY_NAME && gw_cli_is_stream(path) && gw_cli_frame_is(&file));
    int status = GW_CLI_FAILED;
    if (frame && v->specs.count > 0) {
        status = gw_cli_misuse(&PAGE, "-c says nothing about a frame: its codecs are in it");
    } else if (frame) {
        status = gw_cli_inspect_frame(args, path, &file) ? GW_CLI_DONE : GW_CLI_FAILED;
    } else {
        status = inspect(args, v, &file);
    }
    gw_cli_bytes_free(&file);
    return status;
}

static int choose(const gw_cli_args *args, values *v)
{
    bool generated = v->generate != NOT_GIVEN;
    if (args->n_words == 0 && !generated) {
        return gw_cli_misuse(&PAGE, "FILE is missing");
    }
    if (args->n_words > 1 || (args->n_words == 1 && generated)) {
        return gw_cli_misuse(&PAGE, "one file at a time: what is '%s'?",
                             args->words[generated ? 0 : 1]);
    }
    if (!gw_cli_format_parse(v->format_text, &v->format)) {
        return gw_cli_misuse(&PAGE, "option --format: '%s' is not " GW_CLI_FORMATS, v->format_text);
    }
    return generated ? inspect(args, v, NULL) : inspect_file(args, v);
}

int gw_cli_inspect(int argc, char **argv)
{
    gw_cli_args args;
    values v = {.generate = NOT_GIVEN, .threads = 1};
    int status = gw_cli_parse(&PAGE, argc, argv, &args, &v);
    if (status == GW_CLI_GO_ON) {
        status = choose(&args, &v);
    }
    gw_cli_texts_free(&v.specs);
    return status;
}
