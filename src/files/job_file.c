#define _POSIX_C_SOURCE 200809L
#include "files/job_file.h"

#include "base/why.h"
#include "files/read_file.h"
#include "files/strict.h"

#include <gradwire/files.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const double LONGEST_MS = 1e8;
enum { MOST_DIMS = 8, SHOWN = 60 };
static const uint64_t MOST_ELEMENTS = (uint64_t)1 << 40;

static gw_job_tensor *room_for(gw_job_file *job, size_t n)
{
    gw_job_tensor *tensors = calloc(n, sizeof *tensors);
    job->job.tensors = tensors;
    job->vector = calloc(n, sizeof *job->vector);
    return job->vector ? tensors : NULL;
}

void gw_job_file_free(gw_job_file *job)
{
    for (size_t i = 0; i < job->job.n; i++) {
        free((void *)job->job.tensors[i].name);
    }
    free((void *)job->job.tensors);
    free(job->vector);
    free((void *)job->job.name);
    *job = (gw_job_file){0};
}

void gw_job_file_keep_vectors(gw_job_file *job)
{
    for (size_t i = 0; i < job->job.n; i++) {
        ((gw_job_tensor *)job->job.tensors)[i].uncompressed = job->vector[i];
    }
}

/* ---- order, names ---- */

typedef struct placed {
    gw_job_tensor tensor;
    bool vector;
    size_t place;
} placed;

static int by_ready(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    if (x->tensor.ready != y->tensor.ready) {
        return x->tensor.ready < y->tensor.ready ? -1 : 1;
    }
    return x->place < y->place ? -1 : x->place > y->place;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const placed *)a)->tensor.name, ((const placed *)b)->tensor.name);
}

/* No name twice, then in the order of readiness; of equal moments in the file's. */
static bool sort_tensors(gw_job_file *read, const gw_json_place *at)
{
    gw_job *job = &read->job;
    gw_job_tensor *tensors = (gw_job_tensor *)job->tensors;
    placed *all = calloc(job->n + 1, sizeof *all);
    if (!all) {
        return gw_json_fail(at, NULL, "out of memory");
    }
    for (size_t i = 0; i < job->n; i++) {
        all[i] = (placed){tensors[i], read->vector[i], i};
    }
    qsort(all, job->n, sizeof *all, by_name);
    for (size_t i = 1; i < job->n; i++) {
        if (strcmp(all[i].tensor.name, all[i - 1].tensor.name) == 0) {
            (void)gw_json_fail(at, NULL, "two tensors are named '%.*s'", SHOWN, all[i].tensor.name);
            free(all);
            return false;
        }
    }
    qsort(all, job->n, sizeof *all, by_ready);
    for (size_t i = 0; i < job->n; i++) {
        tensors[i] = all[i].tensor;
        read->vector[i] = all[i].vector;
    }
    free(all);
    return true;
}

/* ---- JSON ---- */

static bool read_shape(const gw_json_place *at, const json_t *value, uint64_t *elements,
                       bool *vector)
{
    const json_t *shape = NULL;
    if (!gw_json_array(at, value, "shape", 0, MOST_DIMS, &shape)) {
        return false;
    }
    *elements = 1;
    *vector = json_array_size(shape) < 2;
    const gw_json_place here = gw_json_at_key(at, "shape");
    for (size_t i = 0; i < json_array_size(shape); i++) {
        const json_t *dim = json_array_get(shape, i);
        const gw_json_place item = gw_json_at_item(&here, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 1) {
            return gw_json_fail(&item, NULL, "is not a whole number from 1 up");
        }
        if ((uint64_t)json_integer_value(dim) > MOST_ELEMENTS / *elements) {
            return gw_json_fail(&here, NULL, "more than 2^40 elements");
        }
        *elements *= (uint64_t)json_integer_value(dim);
    }
    return true;
}

static bool read_tensor(const gw_json_place *at, const json_t *value, gw_job_tensor *out,
                        bool *vector)
{
    const char *name = NULL;
    double ready = 0;
    if (!gw_json_object(at, value, "name shape ready_ms") ||
        !gw_json_text(at, value, "name", &name) || !read_shape(at, value, &out->elements, vector) ||
        !gw_json_number(at, value, "ready_ms", 0, LONGEST_MS, &ready)) {
        return false;
    }
    out->ready = ready * 1e-3;
    return (out->name = strdup(name)) != NULL || gw_json_fail(at, NULL, "out of memory");
}

/* As torch says it, or as the library does. */
static bool read_dtype(const gw_json_place *root, const char *text, gw_dtype *out)
{
    static const struct {
        const char *torch;
        gw_dtype dtype;
    } KNOWN[] = {{"float32", GW_F32}, {"float16", GW_F16}, {"bfloat16", GW_BF16}};
    for (size_t i = 0; i < sizeof KNOWN / sizeof KNOWN[0]; i++) {
        if (strcmp(text, KNOWN[i].torch) == 0 || strcmp(text, gw_dtype_name(KNOWN[i].dtype)) == 0) {
            *out = KNOWN[i].dtype;
            return true;
        }
    }
    const gw_json_place here = gw_json_at_key(root, "gradient_dtype");
    return gw_json_fail(&here, NULL, "'%.*s' is not float32, float16 or bfloat16", SHOWN, text);
}

/* "cpu, 2 cores", "x86_64", "Intel(R) Xeon(R) CPU …": a processor's architecture or maker, in any case. */
static bool names_cpu(const char *device)
{
    static const char *const BEGINNINGS[] = {
        "amd64",    "x86",       "i386",  "i486",    "i586",      "i686",     "aarch64",
        "arm",      "ppc",       "s390",  "powerpc", "riscv",     "mips",     "sparc",
        "amd epyc", "amd ryzen", "alpha", "ia64",    "loongarch", "intel(r)", "intel xeon"};
    for (size_t i = 0; i < sizeof BEGINNINGS / sizeof BEGINNINGS[0]; i++) {
        if (strncasecmp(device, BEGINNINGS[i], strlen(BEGINNINGS[i])) == 0) {
            return true;
        }
    }
    for (const char *at = device; *at; at++) {
        if (strncasecmp(at, "cpu", 3) == 0) {
            return true;
        }
    }
    return false;
}

static bool read_json(const gw_json_place *root, const json_t *json, gw_job_file *out)
{
    const json_t *tensors = NULL;
    const char *name = "", *device = "", *dtype = "float32", *software = "", *ignored = "";
    double forward = 0, backward = -1, optimizer = 0, beside = 0, batch = 0;
    if (!gw_json_format(root, json, "gradwire.job/1") ||
        !gw_json_object(root, json,
                        "format name ?device ?software ?batch_per_rank ?gradient_dtype ?compute "
                        "?forward_ms ?backward_ms ?optimizer_ms ?beside_ms tensors") ||
        !gw_json_text(root, json, "name", &name) || !gw_json_text(root, json, "device", &device) ||
        !gw_json_text(root, json, "software", &software) ||
        !gw_json_text(root, json, "gradient_dtype", &dtype) ||
        !read_dtype(root, dtype, &out->job.dtype) ||
        !gw_json_text(root, json, "compute", &ignored) ||
        !gw_json_number(root, json, "batch_per_rank", 0, 1e9, &batch) ||
        !gw_json_number(root, json, "forward_ms", 0, LONGEST_MS, &forward) ||
        !gw_json_number(root, json, "backward_ms", 0, LONGEST_MS, &backward) ||
        !gw_json_number(root, json, "optimizer_ms", 0, LONGEST_MS, &optimizer) ||
        !gw_json_number(root, json, "beside_ms", 0, LONGEST_MS, &beside) ||
        !gw_json_array(root, json, "tensors", 0, GW_PLAN_MAX_TENSORS, &tensors)) {
        return false;
    }
    const gw_json_place here = gw_json_at_key(root, "tensors");
    if (json_array_size(tensors) == 0) {
        return gw_json_fail(&here, NULL, "is empty: the job has nothing to send");
    }
    gw_job *job = &out->job;
    gw_job_tensor *read = room_for(out, json_array_size(tensors));
    job->name = strdup(name);
    if (!read || !job->name) {
        return gw_json_fail(root, NULL, "out of memory");
    }
    while (job->n < json_array_size(tensors)) {
        const gw_json_place item = gw_json_at_item(&here, job->n);
        const size_t i = job->n++;
        if (!read_tensor(&item, json_array_get(tensors, i), &read[i], &out->vector[i])) {
            return false;
        }
    }
    if (!sort_tensors(out, &here)) {
        return false;
    }
    const double last = read[job->n - 1].ready;
    if (backward >= 0 && backward * 1e-3 < last) {
        return gw_json_fail(root, NULL, "backward_ms is %g, but '%.*s' is ready at %g", backward,
                            SHOWN, read[job->n - 1].name, last * 1e3);
    }
    job->forward = forward * 1e-3;
    job->backward = backward >= 0 ? backward * 1e-3 : last;
    job->optimizer = optimizer * 1e-3;
    job->beside = beside * 1e-3;
    out->has_device = device[0] != '\0';
    out->on_gpu = out->has_device && !names_cpu(device);
    out->from_trainer = strncmp(software, "gradwire", 8) == 0;
    return true;
}

bool gw_job_file_parse(const void *data, size_t size, gw_job_file *out, char *why, size_t why_size)
{
    const gw_json_place root = gw_json_root(why, why_size);
    gw_job_file read = {.job = {.name = NULL}};
    json_t *json = gw_json_load(data, size, &root);
    const bool fine = json && read_json(&root, json, &read);
    json_decref(json);
    if (fine) {
        *out = read;
    } else {
        gw_job_file_free(&read);
    }
    return fine;
}

/* ---- CSV ---- */

static const char HEADER[] = "order,tensor,numel,gap_us";

/* A decimal number from 0 up to `most`, and nothing else. */
static bool read_decimal(const char *text, double most, double *out)
{
    char *end = NULL;
    if (text[0] < '0' || text[0] > '9') {
        return false;
    }
    *out = strtod(text, &end);
    return *end == '\0' && strpbrk(text, "xXnNiI") == NULL && *out >= 0 && *out <= most;
}

/* Cuts a line at its commas; false unless there are four fields. */
static bool cut_line(char *line, char *field[4])
{
    for (int i = 0; i < 4; i++) {
        field[i] = line;
        char *comma = strchr(line, ',');
        if ((comma == NULL) != (i == 3)) {
            return false;
        }
        if (comma) {
            *comma = '\0';
            line = comma + 1;
        }
    }
    return true;
}

/* gradwire.attach leaves smaller tensors uncompressed (dense_below). */
static const double CSV_LARGE = 16384;

static bool read_line(char *line, const gw_json_place *at, gw_job_file *read, double *clock)
{
    gw_job *job = &read->job;
    char *field[4];
    double order = 0, elements = 0, gap = 0;
    gw_job_tensor *tensor = (gw_job_tensor *)&job->tensors[job->n];
    const size_t number = job->n + 2;
    if (!cut_line(line, field)) {
        return gw_json_fail(at, NULL, "line %zu: not four fields", number);
    }
    if (!read_decimal(field[0], 1e9, &order) || (size_t)order != job->n) {
        return gw_json_fail(at, NULL, "line %zu: order '%.*s' is not %zu", number, SHOWN, field[0],
                            job->n);
    }
    if (field[1][0] == '\0') {
        return gw_json_fail(at, NULL, "line %zu: a tensor without a name", number);
    }
    if (!read_decimal(field[2], (double)MOST_ELEMENTS, &elements) || elements < 1 ||
        elements != floor(elements)) {
        return gw_json_fail(at, NULL, "line %zu: numel '%.*s' is not a whole number from 1 to 2^40",
                            number, SHOWN, field[2]);
    }
    if (!read_decimal(field[3], LONGEST_MS * 1e3, &gap)) {
        return gw_json_fail(at, NULL, "line %zu: gap_us '%.*s' is not a time from 0 up", number,
                            SHOWN, field[3]);
    }
    *clock += gap;
    *tensor = (gw_job_tensor){
        .name = strdup(field[1]), .elements = (uint64_t)elements, .ready = *clock * 1e-6};
    if (!tensor->name) {
        return gw_json_fail(at, NULL, "out of memory");
    }
    read->vector[job->n] = elements < CSV_LARGE || strstr(tensor->name, "bias") != NULL;
    job->n++;
    return true;
}

static bool read_csv(char *text, const gw_json_place *at, const char *name, gw_job_file *out)
{
    gw_job *job = &out->job;
    double clock = 0;
    size_t lines = 1;
    for (const char *c = text; *c; c++) {
        lines += *c == '\n';
    }
    char *rest = NULL, *line = strtok_r(text, "\r\n", &rest);
    if (!line || strcmp(line, HEADER) != 0) {
        return gw_json_fail(at, NULL, "the first line is not '%s'", HEADER);
    }
    job->name = strdup(name);
    if (!room_for(out, lines) || !job->name) {
        return gw_json_fail(at, NULL, "out of memory");
    }
    while ((line = strtok_r(NULL, "\r\n", &rest)) != NULL) {
        if (job->n == GW_PLAN_MAX_TENSORS) {
            return gw_json_fail(at, NULL, "more than %d tensors", GW_PLAN_MAX_TENSORS);
        }
        if (!read_line(line, at, out, &clock)) {
            return false;
        }
    }
    if (job->n == 0) {
        return gw_json_fail(at, NULL, "no tensors: the job has nothing to send");
    }
    job->backward = clock * 1e-6;
    return sort_tensors(out, at);
}

bool gw_job_file_parse_csv(const char *data, size_t size, const char *name, gw_job_file *out,
                           char *why, size_t why_size)
{
    const gw_json_place root = gw_json_root(why, why_size);
    gw_job_file read = {.job = {.name = NULL}};
    if (memchr(data, '\0', size)) {
        return gw_json_fail(&root, NULL, "a byte of 0 in a text file");
    }
    char *text = strndup(data, size);
    const bool fine =
        text ? read_csv(text, &root, name, &read) : gw_json_fail(&root, NULL, "out of memory");
    free(text);
    if (fine) {
        *out = read;
    } else {
        gw_job_file_free(&read);
    }
    return fine;
}

/* ---- in C programs ---- */

gw_status gw_job_read(const char *path, gw_job **out, gw_why *why)
{
    gw_file_bytes file;
    char reason[GW_FILE_WHY] = "";
    GW_REQUIRE(why, path != NULL && out != NULL, "no path, or no place for the job");
    gw_job_file *read = calloc(1, sizeof *read);
    gw_status status = read ? gw_file_open(path, &file, why)
                            : GW_FAIL(why, GW_ERR_MEMORY, "%s: no memory for a job", path);
    if (status == GW_OK) {
        status = gw_job_file_parse(file.data, file.size, read, reason, sizeof reason)
                     ? GW_OK
                     : GW_FAIL(why, GW_ERR_CORRUPT, "%s: %s", path, reason);
        free(file.data);
    }
    if (status != GW_OK) {
        free(read);
        return status;
    }
    *out = &read->job;
    return GW_OK;
}

void gw_job_free(gw_job *job)
{
    gw_job_file *read = (gw_job_file *)job; /* its first member */
    if (read) {
        gw_job_file_free(read);
        free(read);
    }
}
