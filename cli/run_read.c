/* run.json; see run_read.h. An object is read by a table of its keys, so that none can be unknown,
 * missing or of a wrong type. jansson refuses NaN, infinities, overflow and keys given twice. */
#define _POSIX_C_SOURCE 200809L
#include "run_read.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#define TEXT_SHOWN 80

typedef enum kind {
    TEXT,         /* char *, malloc'd */
    MAYBE,        /* the same; NULL if the key is not there */
    COUNT,        /* uint64_t */
    REAL,         /* double, from 0 up */
    REAL_OR_NULL, /* the same, null is NaN */
    FLAG,         /* bool */
    INNER         /* an object or array that its own function reads */
} kind;

typedef struct key {
    const char *name;
    kind kind;
    size_t offset;
} key;

/* Where a message goes, and which part of the file it is about: "steps[3]", "" for all of it. */
typedef struct report {
    char *why;
    size_t size;
    char path[64];
} report;

__attribute__((format(printf, 3, 4))) static bool fail(const report *r, const char *name,
                                                       const char *format, ...)
{
    int used = snprintf(r->why, r->size, "%s%s%.*s%s", r->path, r->path[0] && name ? "." : "",
                        TEXT_SHOWN, name ? name : "", r->path[0] || name ? ": " : "");
    if (used >= 0 && (size_t)used < r->size) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(r->why + used, r->size - (size_t)used, format, arguments);
        va_end(arguments);
    }
    return false;
}

static report inside(const report *r, const char *array, size_t index)
{
    report inner = *r;
    (void)snprintf(inner.path, sizeof inner.path, "%.30s%s%s[%zu]", r->path, r->path[0] ? "." : "",
                   array, index);
    return inner;
}

/* ---- objects by their keys ---- */

static bool read_real(const json_t *value, const report *r, const key *k, double *out)
{
    if (k->kind == REAL_OR_NULL && json_is_null(value)) {
        *out = NAN;
        return true;
    }
    if (!json_is_number(value)) {
        return fail(r, k->name, "is not a number%s", k->kind == REAL_OR_NULL ? " or null" : "");
    }
    *out = json_number_value(value);
    return *out >= 0 || fail(r, k->name, "%g is negative", *out);
}

static bool read_value(const json_t *value, const report *r, const key *k, void *out)
{
    void *at = (char *)out + k->offset;
    switch (k->kind) {
    case TEXT:
    case MAYBE:
        if (!json_is_string(value)) {
            return fail(r, k->name, "is not a string");
        }
        *(char **)at = strdup(json_string_value(value));
        return *(char **)at || fail(r, NULL, "out of memory");
    case COUNT:
        if (!json_is_integer(value) || json_integer_value(value) < 0) {
            return fail(r, k->name, "is not a whole number from 0 up");
        }
        *(uint64_t *)at = (uint64_t)json_integer_value(value);
        return true;
    case FLAG:
        *(bool *)at = json_is_true(value);
        return json_is_boolean(value) || fail(r, k->name, "is not true or false");
    case REAL:
    case REAL_OR_NULL:
        return read_real(value, r, k, at);
    default:
        return true;
    }
}

static bool read_object(const json_t *object, const report *r, const key *keys, size_t n, void *out)
{
    if (!json_is_object(object)) {
        return fail(r, NULL, "is not an object");
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_object_get(object, keys[i].name);
        if (!value && keys[i].kind == MAYBE) {
            continue;
        }
        if (!value) {
            return fail(r, keys[i].name, "is missing");
        }
        if (!read_value(value, r, &keys[i], out)) {
            return false;
        }
    }
    if (json_object_size(object) == n) {
        return true; /* n known keys, none twice */
    }
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)object, name, value)
    {
        bool known = false;
        for (size_t i = 0; i < n; i++) {
            known = known || strcmp(keys[i].name, name) == 0;
        }
        if (!known) {
            return fail(r, name, "this key is not known here");
        }
    }
    return true;
}

static void free_texts(const key *keys, size_t n, void *from)
{
    for (size_t i = 0; i < n; i++) {
        if (keys[i].kind == TEXT || keys[i].kind == MAYBE) {
            free(*(char **)((char *)from + keys[i].offset));
        }
    }
}

#define COUNT_OF(table) (sizeof(table) / sizeof(table)[0])

static const key CONFIG[] = {
    {"model", TEXT, offsetof(gw_cli_runfile_config, model)},
    {"engine", TEXT, offsetof(gw_cli_runfile_config, engine)},
    {"ranks", COUNT, offsetof(gw_cli_runfile_config, ranks)},
    {"ranks_per_node", COUNT, offsetof(gw_cli_runfile_config, ranks_per_node)},
    {"batch", COUNT, offsetof(gw_cli_runfile_config, batch)},
    {"steps", COUNT, offsetof(gw_cli_runfile_config, steps)},
    {"seed", COUNT, offsetof(gw_cli_runfile_config, seed)},
    {"spec", TEXT, offsetof(gw_cli_runfile_config, spec)},
    {"route", TEXT, offsetof(gw_cli_runfile_config, route)},
    {"fuse_below", COUNT, offsetof(gw_cli_runfile_config, fuse_below)},
    {"link_bytes_per_second", REAL, offsetof(gw_cli_runfile_config, link_bytes_per_second)},
    {"latency_seconds", REAL, offsetof(gw_cli_runfile_config, latency_seconds)},
    {"optimiser", TEXT, offsetof(gw_cli_runfile_config, optimiser)},
    {"rate", REAL, offsetof(gw_cli_runfile_config, rate)},
    {"warmup", REAL, offsetof(gw_cli_runfile_config, warmup)},
    {"momentum", REAL, offsetof(gw_cli_runfile_config, momentum)},
    {"decay", REAL, offsetof(gw_cli_runfile_config, decay)},
    {"schedule", TEXT, offsetof(gw_cli_runfile_config, schedule)},
    {"data", TEXT, offsetof(gw_cli_runfile_config, data)},
    {"plan", MAYBE, offsetof(gw_cli_runfile_config, plan)},
    {"plan_checksum", MAYBE, offsetof(gw_cli_runfile_config, plan_checksum)},
};

static const key LAYER[] = {
    {"name", TEXT, offsetof(gw_cli_runfile_layer, name)},
    {"kind", TEXT, offsetof(gw_cli_runfile_layer, kind)},
    {"elements", COUNT, offsetof(gw_cli_runfile_layer, elements)},
    {"spec", TEXT, offsetof(gw_cli_runfile_layer, spec)},
    {"route", TEXT, offsetof(gw_cli_runfile_layer, route)},
    {"fused", FLAG, offsetof(gw_cli_runfile_layer, fused)},
    {"bytes_sent", COUNT, offsetof(gw_cli_runfile_layer, bytes_sent)},
    {"dense_bytes", COUNT, offsetof(gw_cli_runfile_layer, dense_bytes)},
};

static const key STEP[] = {
    {"step", COUNT, offsetof(gw_cli_runfile_step, step)},
    {"loss", REAL_OR_NULL, offsetof(gw_cli_runfile_step, loss)},
    {"seconds", REAL, offsetof(gw_cli_runfile_step, seconds)},
    {"wait_seconds", REAL, offsetof(gw_cli_runfile_step, wait_seconds)},
    {"bytes_sent", COUNT, offsetof(gw_cli_runfile_step, bytes_sent)},
    {"dense_bytes", COUNT, offsetof(gw_cli_runfile_step, dense_bytes)},
    {"non_finite", COUNT, offsetof(gw_cli_runfile_step, non_finite)},
};

static const key TEST[] = {
    {"step", COUNT, offsetof(gw_cli_runfile_test, step)},
    {"seconds", REAL, offsetof(gw_cli_runfile_test, seconds)},
    {"accuracy", REAL_OR_NULL, offsetof(gw_cli_runfile_test, accuracy)},
    {"loss", REAL_OR_NULL, offsetof(gw_cli_runfile_test, loss)},
    {"bits", REAL_OR_NULL, offsetof(gw_cli_runfile_test, bits)},
};

static const key SAMPLE[] = {
    {"step", COUNT, offsetof(gw_cli_runfile_sample, step)},
    {"backward_seconds", REAL, offsetof(gw_cli_runfile_sample, backward_seconds)},
    {"forward_seconds", REAL, offsetof(gw_cli_runfile_sample, forward_seconds)},
    {"update_seconds", REAL, offsetof(gw_cli_runfile_sample, update_seconds)},
    {"layers", INNER, 0},
};

static const key SAMPLE_LAYER[] = {
    {"posted", REAL, offsetof(gw_cli_runfile_sample_layer, posted)},
    {"begun", REAL, offsetof(gw_cli_runfile_sample_layer, begun)},
    {"arrived", REAL, offsetof(gw_cli_runfile_sample_layer, arrived)},
    {"encode_seconds", REAL, offsetof(gw_cli_runfile_sample_layer, encode_seconds)},
    {"decode_seconds", REAL, offsetof(gw_cli_runfile_sample_layer, decode_seconds)},
    {"bytes_sent", COUNT, offsetof(gw_cli_runfile_sample_layer, bytes_sent)},
    {"dense_bytes", COUNT, offsetof(gw_cli_runfile_sample_layer, dense_bytes)},
    {"rel_error", REAL_OR_NULL, offsetof(gw_cli_runfile_sample_layer, rel_error)},
};

static const key ADAPT[] = {
    {"step", COUNT, offsetof(gw_cli_runfile_adapt, step)},
    {"bound_at", COUNT, offsetof(gw_cli_runfile_adapt, bound_at)},
    {"alpha", REAL_OR_NULL, offsetof(gw_cli_runfile_adapt, alpha)},
    {"budget", REAL_OR_NULL, offsetof(gw_cli_runfile_adapt, budget)},
    {"error", REAL_OR_NULL, offsetof(gw_cli_runfile_adapt, error)},
    {"bytes", COUNT, offsetof(gw_cli_runfile_adapt, bytes)},
    {"uniform_bytes", COUNT, offsetof(gw_cli_runfile_adapt, uniform_bytes)},
    {"lower_bound_bytes", COUNT, offsetof(gw_cli_runfile_adapt, lower_bound_bytes)},
    {"waited", COUNT, offsetof(gw_cli_runfile_adapt, waited)},
    {"measure_seconds", REAL, offsetof(gw_cli_runfile_adapt, measure_seconds)},
    {"solve_seconds", REAL, offsetof(gw_cli_runfile_adapt, solve_seconds)},
    {"outcome", TEXT, offsetof(gw_cli_runfile_adapt, outcome)},
    {"words", TEXT, offsetof(gw_cli_runfile_adapt, words)},
    {"layers", INNER, 0},
};

/* The last two not every run has: `adapt` one that chooses levels, `error` one that failed. */
static const key RUN[] = {
    {"gradwire", TEXT, offsetof(gw_cli_runfile, gradwire)},
    {"started", TEXT, offsetof(gw_cli_runfile, started)},
    {"state", TEXT, offsetof(gw_cli_runfile, state)},
    {"weights", COUNT, offsetof(gw_cli_runfile, weights)},
    {"format", INNER, 0},
    {"config", INNER, 0},
    {"layers", INNER, 0},
    {"steps", INNER, 0},
    {"tests", INNER, 0},
    {"samples", INNER, 0},
    {"adapt", INNER, 0},
    {"error", TEXT, offsetof(gw_cli_runfile, error)},
};
enum { SOMETIMES = 2 };

/* ---- the parts ---- */

/* `choices` is a list such as "threads mpi": words with one space between. */
static bool check_word(const report *r, const char *name, const char *text, const char *choices)
{
    text = text ? text : ""; /* never: its object was read; clang-tidy does not see it */
    const size_t length = strlen(text);
    for (const char *at = choices; *at;) {
        const size_t word = strcspn(at, " ");
        if (word == length && memcmp(at, text, length) == 0) {
            return true;
        }
        at += word + (at[word] == ' ');
    }
    return fail(r, name, "'%.*s' is none of: %s", TEXT_SHOWN, text, choices);
}

static bool check_rising(const report *r, uint64_t before, uint64_t step)
{
    return step > before ||
           fail(r, "step", "%" PRIu64 " does not come after %" PRIu64, step, before);
}

static bool read_array(const json_t *root, const report *r, const char *name, size_t item,
                       void **items, size_t *n)
{
    const json_t *array = json_object_get(root, name);
    if (!json_is_array(array)) {
        return fail(r, name, "is not an array");
    }
    *items = calloc(json_array_size(array) + 1, item);
    *n = *items ? json_array_size(array) : 0;
    return *items || fail(r, NULL, "out of memory");
}

static bool read_layers(const json_t *root, const report *r, gw_cli_runfile *run)
{
    if (!read_array(root, r, "layers", sizeof *run->layers, (void **)&run->layers,
                    &run->n_layers)) {
        return false;
    }
    json_t *seen = json_object();
    bool fine = seen || fail(r, NULL, "out of memory");
    for (size_t i = 0; fine && i < run->n_layers; i++) {
        const report at = inside(r, "layers", i);
        gw_cli_runfile_layer *layer = &run->layers[i];
        fine = read_object(json_array_get(json_object_get(root, "layers"), i), &at, LAYER,
                           COUNT_OF(LAYER), layer) &&
               check_word(&at, "kind", layer->kind, "bias linear conv lstm embedding loss");
        if (fine && json_object_get(seen, layer->name)) {
            fine = fail(&at, "name", "'%.*s' was there before", TEXT_SHOWN, layer->name);
        }
        fine = fine && (json_object_set_new(seen, layer->name, json_null()) == 0 ||
                        fail(r, NULL, "out of memory"));
    }
    json_decref(seen);
    return fine;
}

static bool read_steps(const json_t *root, const report *r, gw_cli_runfile *run)
{
    if (!read_array(root, r, "steps", sizeof *run->steps, (void **)&run->steps, &run->n_steps)) {
        return false;
    }
    const json_t *array = json_object_get(root, "steps");
    for (size_t i = 0; i < run->n_steps; i++) {
        const report at = inside(r, "steps", i);
        if (!read_object(json_array_get(array, i), &at, STEP, COUNT_OF(STEP), &run->steps[i]) ||
            !check_rising(&at, i ? run->steps[i - 1].step : 0, run->steps[i].step)) {
            return false;
        }
    }
    return true;
}

static bool read_tests(const json_t *root, const report *r, gw_cli_runfile *run)
{
    if (!read_array(root, r, "tests", sizeof *run->tests, (void **)&run->tests, &run->n_tests)) {
        return false;
    }
    const json_t *array = json_object_get(root, "tests");
    for (size_t i = 0; i < run->n_tests; i++) {
        const report at = inside(r, "tests", i);
        const gw_cli_runfile_test *test = &run->tests[i];
        if (!read_object(json_array_get(array, i), &at, TEST, COUNT_OF(TEST), &run->tests[i]) ||
            (i > 0 && !check_rising(&at, run->tests[i - 1].step, test->step))) {
            return false;
        }
        if (test->accuracy > 1) {
            return fail(&at, "accuracy", "%g is more than 1", test->accuracy);
        }
    }
    return true;
}

static bool read_sample(const json_t *value, const report *at, gw_cli_runfile *run,
                        gw_cli_runfile_sample *sample)
{
    if (!read_object(value, at, SAMPLE, COUNT_OF(SAMPLE), sample)) {
        return false;
    }
    const json_t *array = json_object_get(value, "layers");
    if (!json_is_array(array) || json_array_size(array) != run->n_layers) {
        return fail(at, "layers", "is not an array of %zu, one a layer", run->n_layers);
    }
    sample->layers = calloc(run->n_layers + 1, sizeof *sample->layers);
    if (!sample->layers) {
        return fail(at, NULL, "out of memory");
    }
    for (size_t i = 0; i < run->n_layers; i++) {
        const report inner = inside(at, "layers", i);
        if (!read_object(json_array_get(array, i), &inner, SAMPLE_LAYER, COUNT_OF(SAMPLE_LAYER),
                         &sample->layers[i])) {
            return false;
        }
    }
    return true;
}

static bool read_samples(const json_t *root, const report *r, gw_cli_runfile *run)
{
    if (!read_array(root, r, "samples", sizeof *run->samples, (void **)&run->samples,
                    &run->n_samples)) {
        return false;
    }
    const json_t *array = json_object_get(root, "samples");
    for (size_t i = 0; i < run->n_samples; i++) {
        const report at = inside(r, "samples", i);
        if (!read_sample(json_array_get(array, i), &at, run, &run->samples[i]) ||
            !check_rising(&at, i ? run->samples[i - 1].step : 0, run->samples[i].step)) {
            return false;
        }
    }
    return true;
}

static bool read_specs(const json_t *value, const report *at, const gw_cli_runfile *run,
                       gw_cli_runfile_adapt *adapt)
{
    const json_t *array = json_object_get(value, "layers");
    if (!json_is_array(array) || json_array_size(array) != run->n_layers) {
        return fail(at, "layers", "is not an array of %zu, one a layer", run->n_layers);
    }
    adapt->specs = calloc(run->n_layers + 1, sizeof *adapt->specs);
    for (size_t i = 0; adapt->specs && i < run->n_layers; i++) {
        const char *text = json_string_value(json_array_get(array, i));
        if (!text) {
            return fail(at, "layers", "[%zu] is not a string", i);
        }
        adapt->specs[i] = strdup(text);
        if (!adapt->specs[i]) {
            return fail(at, NULL, "out of memory");
        }
    }
    return adapt->specs || fail(at, NULL, "out of memory");
}

static bool read_adapt(const json_t *root, const report *r, gw_cli_runfile *run)
{
    if (!json_object_get(root, "adapt")) {
        return true; /* read_object has seen that it may be missing */
    }
    if (!read_array(root, r, "adapt", sizeof *run->adapt, (void **)&run->adapt, &run->n_adapt)) {
        return false;
    }
    const json_t *array = json_object_get(root, "adapt");
    for (size_t i = 0; i < run->n_adapt; i++) {
        const report at = inside(r, "adapt", i);
        gw_cli_runfile_adapt *adapt = &run->adapt[i];
        if (!read_object(json_array_get(array, i), &at, ADAPT, COUNT_OF(ADAPT), adapt) ||
            !check_rising(&at, i ? run->adapt[i - 1].bound_at : 0, adapt->bound_at) ||
            !check_word(&at, "outcome", adapt->outcome,
                        "switched same small_gain default nothing failed") ||
            !read_specs(json_array_get(array, i), &at, run, adapt)) {
            return false;
        }
    }
    return true;
}

static bool read_config(const json_t *root, const report *r, gw_cli_runfile_config *config)
{
    report at = *r;
    (void)snprintf(at.path, sizeof at.path, "config");
    return read_object(json_object_get(root, "config"), &at, CONFIG, COUNT_OF(CONFIG), config) &&
           check_word(&at, "engine", config->engine, "threads mpi") &&
           (config->ranks > 0 || fail(&at, "ranks", "is 0"));
}

/* The format first: of another one nothing else is worth saying. */
static bool read_run(const json_t *root, const report *r, gw_cli_runfile *run)
{
    if (!json_is_object(root)) {
        return fail(r, NULL, "is not a JSON object");
    }
    const char *format = json_string_value(json_object_get(root, "format"));
    if (!format || strcmp(format, "gradwire.run/1") != 0) {
        return fail(r, "format", "is not \"gradwire.run/1\"");
    }
    const char *state = json_string_value(json_object_get(root, "state"));
    const bool failed = state && strcmp(state, "failed") == 0;
    const char *spec = json_string_value(json_object_get(json_object_get(root, "config"), "spec"));
    const bool adapts =
        spec && (strncmp(spec, "adapt/", 6) == 0 || strncmp(spec, "adapt:", 6) == 0);
    key keys[COUNT_OF(RUN)];
    size_t n = COUNT_OF(RUN) - SOMETIMES;
    memcpy(keys, RUN, sizeof keys);
    if (adapts) {
        keys[n++] = RUN[COUNT_OF(RUN) - 2];
    }
    if (failed) {
        keys[n++] = RUN[COUNT_OF(RUN) - 1];
    }
    return read_object(root, r, keys, n, run) &&
           check_word(r, "state", run->state, "running finished interrupted failed") &&
           read_config(root, r, &run->config) && read_layers(root, r, run) &&
           read_steps(root, r, run) && read_tests(root, r, run) && read_samples(root, r, run) &&
           read_adapt(root, r, run);
}

bool gw_cli_runfile_parse(const uint8_t *file, size_t size, gw_cli_runfile *run, char *why,
                          size_t why_size)
{
    const report r = {why, why_size, ""};
    json_error_t error;
    json_t *root = json_loadb((const char *)file, size, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        return fail(&r, NULL, "line %d, column %d: %s", error.line, error.column, error.text);
    }
    gw_cli_runfile found = {0};
    const bool fine = read_run(root, &r, &found);
    json_decref(root);
    if (fine) {
        *run = found;
    } else {
        gw_cli_runfile_free(&found);
    }
    return fine;
}

void gw_cli_runfile_free(gw_cli_runfile *run)
{
    for (size_t i = 0; i < run->n_layers; i++) {
        free_texts(LAYER, COUNT_OF(LAYER), &run->layers[i]);
    }
    for (size_t i = 0; i < run->n_samples; i++) {
        free(run->samples[i].layers);
    }
    for (size_t i = 0; i < run->n_adapt; i++) {
        for (size_t l = 0; run->adapt[i].specs && l < run->n_layers; l++) {
            free(run->adapt[i].specs[l]);
        }
        free(run->adapt[i].specs);
        free_texts(ADAPT, COUNT_OF(ADAPT), &run->adapt[i]);
    }
    free(run->adapt);
    free_texts(CONFIG, COUNT_OF(CONFIG), &run->config);
    free_texts(RUN, COUNT_OF(RUN), run);
    free(run->layers);
    free(run->steps);
    free(run->tests);
    free(run->samples);
    *run = (gw_cli_runfile){0};
}
