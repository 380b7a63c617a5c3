/* run.json, written and read; see train_run.h. */
#include "cli/train/train_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json_out.h"
#include "cli/train/train_files.h"
#include "cli/train/train_history.h"
#include "files/run_upgrade.h"

#define COUNT(type, key)                                                                           \
    {                                                                                              \
#        key, GW_CLI_FIELD_COUNT, offsetof(type, key)                                              \
    }
#define NUMBER(type, key)                                                                          \
    {                                                                                              \
#        key, GW_CLI_FIELD_NUMBER, offsetof(type, key)                                             \
    }
#define TEXT(type, key)                                                                            \
    {                                                                                              \
#        key, GW_CLI_FIELD_TEXT, offsetof(type, key)                                               \
    }
#define FIELDS(items)                                                                              \
    {                                                                                              \
        items, sizeof(items) / sizeof *items                                                       \
    }

typedef gw_cli_run_config config;
static const gw_cli_field CONFIG_FIELDS[] = {
    TEXT(config, model),
    TEXT(config, engine),
    COUNT(config, ranks),
    COUNT(config, ranks_per_node),
    COUNT(config, batch),
    COUNT(config, steps),
    COUNT(config, seed),
    TEXT(config, spec),
    TEXT(config, route),
    COUNT(config, fuse_below),
    {"link_bytes_per_second", GW_CLI_FIELD_NUMBER, offsetof(config, link)},
    {"latency_seconds", GW_CLI_FIELD_NUMBER, offsetof(config, latency)},
    TEXT(config, optimiser),
    NUMBER(config, rate),
    COUNT(config, warmup),
    NUMBER(config, momentum),
    NUMBER(config, decay),
    TEXT(config, schedule),
    TEXT(config, data),
    {"plan", GW_CLI_FIELD_MAYBE, offsetof(config, plan)},
    {"plan_checksum", GW_CLI_FIELD_MAYBE, offsetof(config, plan_checksum)}};
const gw_cli_fields GW_CLI_RUN_CONFIG = FIELDS(CONFIG_FIELDS);

typedef gw_cli_run_layer layer;
static const gw_cli_field LAYER_FIELDS[] = {TEXT(layer, name),
                                            TEXT(layer, kind),
                                            COUNT(layer, elements),
                                            TEXT(layer, spec),
                                            TEXT(layer, route),
                                            {"fused", GW_CLI_FIELD_FLAG, offsetof(layer, fused)},
                                            COUNT(layer, bytes_sent),
                                            COUNT(layer, dense_bytes),
                                            GW_CLI_FIELD(layer, far_bytes_sent, LATER),
                                            GW_CLI_FIELD(layer, far_dense_bytes, LATER)};
static const gw_cli_fields LAYER = FIELDS(LAYER_FIELDS);

typedef gw_cli_run_step step;
static const gw_cli_field STEP_FIELDS[] = {COUNT(step, step),
                                           NUMBER(step, loss),
                                           NUMBER(step, seconds),
                                           NUMBER(step, wait_seconds),
                                           COUNT(step, bytes_sent),
                                           COUNT(step, dense_bytes),
                                           GW_CLI_FIELD(step, far_bytes_sent, LATER),
                                           GW_CLI_FIELD(step, far_dense_bytes, LATER),
                                           COUNT(step, non_finite)};
static const gw_cli_fields STEP = FIELDS(STEP_FIELDS);

typedef gw_cli_run_totals totals;
static const gw_cli_field SUMMARY_FIELDS[] = {COUNT(totals, steps),
                                              NUMBER(totals, seconds),
                                              NUMBER(totals, wait_seconds),
                                              COUNT(totals, bytes_sent),
                                              COUNT(totals, dense_bytes),
                                              GW_CLI_FIELD(totals, far_bytes_sent, LATER),
                                              GW_CLI_FIELD(totals, far_dense_bytes, LATER),
                                              COUNT(totals, non_finite)};
static const gw_cli_fields SUMMARY = FIELDS(SUMMARY_FIELDS);

typedef gw_cli_run_test test;
static const gw_cli_field TEST_FIELDS[] = {COUNT(test, step), NUMBER(test, seconds),
                                           NUMBER(test, accuracy), NUMBER(test, loss),
                                           NUMBER(test, bits)};
static const gw_cli_fields TEST = FIELDS(TEST_FIELDS);

typedef gw_cli_run_sample sample;
static const gw_cli_field SAMPLE_FIELDS[] = {COUNT(sample, step), NUMBER(sample, backward_seconds),
                                             NUMBER(sample, forward_seconds),
                                             NUMBER(sample, update_seconds)};
static const gw_cli_fields SAMPLE = FIELDS(SAMPLE_FIELDS);

typedef gw_cli_sample_layer part;
static const gw_cli_field PART_FIELDS[] = {
    NUMBER(part, posted),         NUMBER(part, begun),          NUMBER(part, arrived),
    NUMBER(part, encode_seconds), NUMBER(part, decode_seconds), COUNT(part, bytes_sent),
    COUNT(part, dense_bytes),     NUMBER(part, rel_error)};
static const gw_cli_fields PART = FIELDS(PART_FIELDS);

/* ---- out ---- */

static json_t *samples_of(const gw_cli_run *run)
{
    json_t *array =
        gw_cli_records_json(&SAMPLE, run->samples, run->n_samples, sizeof *run->samples);
    for (size_t i = 0; array && i < run->n_samples; i++) {
        json_t *parts = gw_cli_records_json(&PART, run->samples[i].layers, run->n_layers,
                                            sizeof *run->samples[i].layers);
        if (json_object_set_new(json_array_get(array, i), "layers", parts) != 0) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}

json_t *gw_cli_run_arrays(const gw_cli_run *run)
{
    json_t *all =
        json_pack("{s:o, s:o, s:o}", "steps",
                  gw_cli_records_json(&STEP, run->steps, run->n_steps, sizeof *run->steps), "tests",
                  gw_cli_records_json(&TEST, run->tests, run->n_tests, sizeof *run->tests),
                  "samples", samples_of(run));
    if (all && ((gw_cli_run_adapts(run) &&
                 json_object_set_new(all, "adapt", gw_cli_adapt_json(run)) != 0) ||
                (gw_cli_run_is_auto(run) && !gw_cli_auto_json(run, all)))) {
        json_decref(all);
        return NULL;
    }
    return all;
}

/* What does not grow with the steps. */
static json_t *head_json(const gw_cli_run *run)
{
    json_t *all =
        json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o}", "format", GW_RUN_FORMAT, "gradwire",
                  gw_version_string(), "started", run->started, "state", run->state, "config",
                  gw_cli_record_json(&GW_CLI_RUN_CONFIG, &run->config), "weights",
                  gw_cli_json_count(run->weights), "layers",
                  gw_cli_records_json(&LAYER, run->layers, run->n_layers, sizeof *run->layers));
    if (all && run->error.text[0] != '\0') {
        (void)json_object_set_new(all, "error", json_string(run->error.text));
    }
    return all;
}

json_t *gw_cli_run_json(const gw_cli_run *run)
{
    json_t *all = head_json(run), *arrays = gw_cli_run_arrays(run);
    if (!all || !arrays || json_object_update(all, arrays) != 0) {
        json_decref(all);
        all = NULL;
    }
    json_decref(arrays);
    return all;
}

gw_status gw_cli_run_write(const gw_cli_run *run, gw_why *why)
{
    char path[GW_CLI_RUN_PATH];
    gw_status status = gw_cli_path(path, sizeof path, run->folder, "run.json", why);
    if (status != GW_OK) {
        return status;
    }
    json_t *all = head_json(run);
    if (all) {
        (void)json_object_set_new(all, "summary", gw_cli_record_json(&SUMMARY, &run->done));
    }
    char *text = all ? json_dumps(all, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    json_decref(all);
    if (!text) {
        return gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory to write run.json");
    }
    status = gw_cli_file_save(path, text, strlen(text), why);
    free(text);
    return status;
}

/* ---- in ---- */

static gw_status read_samples(gw_cli_run *run, const json_t *root, gw_why *why)
{
    void *items = NULL;
    gw_status status = gw_cli_records_read(root, "samples", &SAMPLE, 1, sizeof *run->samples,
                                           &items, &run->n_samples, why);
    run->samples = items;
    for (size_t i = 0; run->samples && i < run->n_samples && status == GW_OK; i++) {
        const json_t *one = json_array_get(json_object_get(root, "samples"), i);
        size_t n = 0;
        void *parts = NULL;
        status = gw_cli_records_read(one, "layers", &PART, 0, sizeof *run->samples->layers, &parts,
                                     &n, why);
        run->samples[i].layers = parts;
        if (status == GW_OK && n != run->n_layers) {
            status = gw_cli_train_fail(why, GW_ERR_CORRUPT,
                                       "run.json: samples[%zu] has %zu layers, not %zu", i, n,
                                       run->n_layers);
        }
    }
    return status;
}

/* In order, one after the other: what is cut off later relies on it. */
static gw_status check_steps(const gw_cli_run *run, gw_why *why)
{
    for (size_t i = 0; run->steps && i < run->n_steps; i++) {
        if (run->steps[i].step != i + 1) {
            return gw_cli_train_fail(why, GW_ERR_CORRUPT, "run.json: steps[%zu] is step %llu", i,
                                     (unsigned long long)run->steps[i].step);
        }
    }
    return GW_OK;
}

static gw_status take_sample(gw_cli_run *run, const json_t *record, const char *where, gw_why *why)
{
    sample *to = gw_cli_run_add_sample(run);
    if (!to) {
        return gw_cli_train_fail(why, GW_ERR_MEMORY, "%s: no memory for it", where);
    }
    const json_t *parts = json_object_get(record, "layers");
    gw_status status = gw_cli_record_read(&SAMPLE, record, 1, where, to, why);
    if (status == GW_OK && (!json_is_array(parts) || json_array_size(parts) != run->n_layers)) {
        status = gw_cli_train_fail(why, GW_ERR_CORRUPT, "%s: 'layers' is not an array of %zu",
                                   where, run->n_layers);
    }
    for (size_t i = 0; i < run->n_layers && status == GW_OK; i++) {
        status = gw_cli_record_read(&PART, json_array_get(parts, i), 0, where, &to->layers[i], why);
    }
    return status;
}

gw_status gw_cli_run_take(gw_cli_run *run, const char *kind, const json_t *record,
                          const char *where, gw_why *why)
{
    step one_step;
    test one_test;
    gw_status status = GW_OK;
    bool fine = true;
    if (strcmp(kind, "steps") == 0) {
        status = gw_cli_record_read(&STEP, record, 0, where, &one_step, why);
        fine = status != GW_OK || gw_cli_run_add_step(run, &one_step);
    } else if (strcmp(kind, "tests") == 0) {
        status = gw_cli_record_read(&TEST, record, 0, where, &one_test, why);
        fine = status != GW_OK || gw_cli_run_add_test(run, &one_test);
    } else {
        return take_sample(run, record, where, why);
    }
    return fine ? status : gw_cli_train_fail(why, GW_ERR_MEMORY, "%s: no memory for it", where);
}

/* The arrays of gradwire.run/1. */
static gw_status read_arrays(gw_cli_run *run, const json_t *root, gw_why *why)
{
    void *items = NULL;
    gw_status status = gw_cli_records_read(root, "steps", &STEP, 0, sizeof *run->steps, &items,
                                           &run->n_steps, why);
    run->steps = items;
    if (status == GW_OK) {
        status = gw_cli_records_read(root, "tests", &TEST, 0, sizeof *run->tests, &items,
                                     &run->n_tests, why);
        run->tests = items;
    }
    if (status == GW_OK) {
        status = read_samples(run, root, why);
    }
    return status;
}

/* What the head has and the arrays are checked by. */
static gw_status read_history(gw_cli_run *run, json_t *root, unsigned format, gw_why *why)
{
    void *items = NULL;
    gw_status status = gw_cli_records_read(root, "layers", &LAYER, 0, sizeof *run->layers, &items,
                                           &run->n_layers, why);
    run->layers = items;
    if (status == GW_OK) {
        status = format == 1 ? read_arrays(run, root, why) : gw_cli_history_read(run, root, why);
    }
    if (status == GW_OK && !gw_run_upgrade(root, format)) {
        status = gw_cli_train_fail(why, GW_ERR_CORRUPT,
                                   "history.jsonl: 'expected_seconds' is of a later format");
    }
    if (status == GW_OK) {
        status = gw_cli_adapt_read(run, root, why);
    }
    if (status == GW_OK) {
        status = gw_cli_auto_read(run, root, why);
    }
    return status == GW_OK ? check_steps(run, why) : status;
}

static gw_status read_root(gw_cli_run *run, const json_t *root, unsigned *format, gw_why *why)
{
    const char *const texts[] = {"format", "gradwire", "started", "state"};
    static const char *const states[] = {"running", "finished", "interrupted", "failed"};
    const char *value[4];
    for (size_t i = 0; i < 4; i++) {
        value[i] = json_string_value(json_object_get(root, texts[i]));
        if (!value[i]) {
            return gw_cli_train_fail(why, GW_ERR_CORRUPT, "run.json: '%s' is not a text", texts[i]);
        }
    }
    *format = gw_run_format(value[0]);
    const bool whole = *format == 1; /* all arrays in it */
    if (*format == 0) {
        return gw_cli_train_fail(why, GW_ERR_VERSION,
                                 "run.json: format '%.40s', not " GW_RUN_FORMATS, value[0]);
    }
    (void)snprintf(run->started, sizeof run->started, "%s", value[2]);
    for (size_t i = 0; i < 4; i++) {
        run->state = strcmp(value[3], states[i]) == 0 ? states[i] : run->state;
    }
    const json_t *weights = json_object_get(root, "weights");
    const json_t *error = json_object_get(root, "error");
    if (!run->state || !json_is_integer(weights) || (error && !json_is_string(error))) {
        return gw_cli_train_fail(why, GW_ERR_CORRUPT,
                                 "run.json: 'state', 'weights' or 'error' is wrong");
    }
    run->weights = (uint64_t)json_integer_value(weights);
    gw_status status = gw_cli_record_read(&GW_CLI_RUN_CONFIG, json_object_get(root, "config"), 0,
                                          "run.json: config", &run->config, why);
    if (status == GW_OK && !whole) {
        status = gw_cli_record_read(&SUMMARY, json_object_get(root, "summary"), 0,
                                    "run.json: summary", &run->done, why);
    }
    const size_t arrays = !whole || status != GW_OK ? 0
                          : gw_cli_run_is_auto(run) ? 2u
                                                    : (size_t)gw_cli_run_adapts(run);
    const size_t keys = (whole ? 10u : 8u) + (error ? 1u : 0u) + arrays;
    return status == GW_OK && json_object_size(root) != keys
               ? gw_cli_train_fail(why, GW_ERR_CORRUPT, "run.json: %zu keys, not %zu",
                                   json_object_size(root), keys)
               : status;
}

/* While a run is under way its history may be ahead of run.json, and behind it where a kill came as a run went on. */
static gw_status check_whole(const gw_cli_run *run, uint64_t steps, gw_why *why)
{
    return strcmp(run->state, "finished") == 0 && run->n_steps != steps
               ? gw_cli_train_fail(why, GW_ERR_CORRUPT,
                                   "history.jsonl: %zu steps; the run finished with %llu",
                                   run->n_steps, (unsigned long long)steps)
               : GW_OK;
}

gw_status gw_cli_run_read(gw_cli_run *run, gw_why *why)
{
    char path[GW_CLI_RUN_PATH];
    void *bytes = NULL;
    size_t size = 0;
    json_error_t error;
    gw_status status = gw_cli_path(path, sizeof path, run->folder, "run.json", why);
    if (status == GW_OK) {
        status = gw_cli_file_load(path, &bytes, &size, why);
    }
    if (status != GW_OK) {
        return status;
    }
    run->read = json_loadb(bytes, size, JSON_REJECT_DUPLICATES, &error);
    free(bytes);
    if (!run->read) {
        return gw_cli_train_fail(why, GW_ERR_CORRUPT, "%.120s: line %d: %.80s", path, error.line,
                                 error.text);
    }
    unsigned format = 0;
    status = read_root(run, run->read, &format, why);
    const uint64_t steps = run->done.steps;
    if (status == GW_OK) {
        status = read_history(run, run->read, format, why);
    }
    static const char *const NUMBERS[] = {"steps", "tests", "samples", "watch"};
    for (size_t i = 0; i < sizeof NUMBERS / sizeof *NUMBERS; i++) {
        (void)json_object_del(run->read, NUMBERS[i]); /* no text of theirs is pointed to */
    }
    gw_cli_run_count(run);
    return status == GW_OK && format > 1 ? check_whole(run, steps, why) : status;
}
