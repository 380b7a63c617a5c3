/* run.json, written; see train_run.h. */
#include "cli/train/train_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json_out.h"
#include "cli/train/train_files.h"
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
