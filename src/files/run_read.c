/* run.json; see run_read.h. */
#include "files/run_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "files/run_history.h"
#include "files/run_read_choices.h"
#include "files/run_upgrade.h"
#include "files/strict.h"

static const gw_json_key CONFIG[] = {
    GW_JSON_KEY(gw_run_file_config, model, TEXT),
    GW_JSON_KEY(gw_run_file_config, engine, TEXT),
    GW_JSON_KEY(gw_run_file_config, ranks, COUNT),
    GW_JSON_KEY(gw_run_file_config, ranks_per_node, COUNT),
    GW_JSON_KEY(gw_run_file_config, batch, COUNT),
    GW_JSON_KEY(gw_run_file_config, steps, COUNT),
    GW_JSON_KEY(gw_run_file_config, seed, COUNT),
    GW_JSON_KEY(gw_run_file_config, spec, TEXT),
    GW_JSON_KEY(gw_run_file_config, route, TEXT),
    GW_JSON_KEY(gw_run_file_config, fuse_below, COUNT),
    GW_JSON_KEY(gw_run_file_config, link_bytes_per_second, REAL),
    GW_JSON_KEY(gw_run_file_config, latency_seconds, REAL),
    GW_JSON_KEY(gw_run_file_config, optimiser, TEXT),
    GW_JSON_KEY(gw_run_file_config, rate, REAL),
    GW_JSON_KEY(gw_run_file_config, warmup, REAL),
    GW_JSON_KEY(gw_run_file_config, momentum, REAL),
    GW_JSON_KEY(gw_run_file_config, decay, REAL),
    GW_JSON_KEY(gw_run_file_config, schedule, TEXT),
    GW_JSON_KEY(gw_run_file_config, data, TEXT),
    GW_JSON_KEY(gw_run_file_config, plan, MAYBE),
    GW_JSON_KEY(gw_run_file_config, plan_checksum, MAYBE),
};

static const gw_json_key LAYER[] = {
    GW_JSON_KEY(gw_run_file_layer, name, TEXT),
    GW_JSON_KEY(gw_run_file_layer, kind, TEXT),
    GW_JSON_KEY(gw_run_file_layer, elements, COUNT),
    GW_JSON_KEY(gw_run_file_layer, spec, TEXT),
    GW_JSON_KEY(gw_run_file_layer, route, TEXT),
    GW_JSON_KEY(gw_run_file_layer, fused, FLAG),
    GW_JSON_KEY(gw_run_file_layer, bytes_sent, COUNT),
    GW_JSON_KEY(gw_run_file_layer, dense_bytes, COUNT),
    GW_JSON_KEY(gw_run_file_layer, far_bytes_sent, LATER),
    GW_JSON_KEY(gw_run_file_layer, far_dense_bytes, LATER),
};

static const gw_json_key STEP[] = {
    GW_JSON_KEY(gw_run_file_step, step, COUNT),
    GW_JSON_KEY(gw_run_file_step, loss, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_step, seconds, REAL),
    GW_JSON_KEY(gw_run_file_step, wait_seconds, REAL),
    GW_JSON_KEY(gw_run_file_step, bytes_sent, COUNT),
    GW_JSON_KEY(gw_run_file_step, dense_bytes, COUNT),
    GW_JSON_KEY(gw_run_file_step, far_bytes_sent, LATER),
    GW_JSON_KEY(gw_run_file_step, far_dense_bytes, LATER),
    GW_JSON_KEY(gw_run_file_step, non_finite, COUNT),
};

static const gw_json_key TEST[] = {
    GW_JSON_KEY(gw_run_file_test, step, COUNT),
    GW_JSON_KEY(gw_run_file_test, seconds, REAL),
    GW_JSON_KEY(gw_run_file_test, accuracy, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_test, loss, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_test, bits, REAL_OR_NULL),
};

static const gw_json_key SAMPLE[] = {
    GW_JSON_KEY(gw_run_file_sample, step, COUNT),
    GW_JSON_KEY(gw_run_file_sample, backward_seconds, REAL),
    GW_JSON_KEY(gw_run_file_sample, forward_seconds, REAL),
    GW_JSON_KEY(gw_run_file_sample, update_seconds, REAL),
    {"layers", GW_JSON_INNER, 0},
};

static const gw_json_key SAMPLE_LAYER[] = {
    GW_JSON_KEY(gw_run_file_sample_layer, posted, REAL),
    GW_JSON_KEY(gw_run_file_sample_layer, begun, REAL),
    GW_JSON_KEY(gw_run_file_sample_layer, arrived, REAL),
    GW_JSON_KEY(gw_run_file_sample_layer, encode_seconds, REAL),
    GW_JSON_KEY(gw_run_file_sample_layer, decode_seconds, REAL),
    GW_JSON_KEY(gw_run_file_sample_layer, bytes_sent, COUNT),
    GW_JSON_KEY(gw_run_file_sample_layer, dense_bytes, COUNT),
    GW_JSON_KEY(gw_run_file_sample_layer, rel_error, REAL_OR_NULL),
};

/* The last ones not every run has; SOMETIMES says which. */
static const gw_json_key RUN[] = {
    GW_JSON_KEY(gw_run_file, gradwire, TEXT),
    GW_JSON_KEY(gw_run_file, started, TEXT),
    GW_JSON_KEY(gw_run_file, state, TEXT),
    GW_JSON_KEY(gw_run_file, weights, COUNT),
    {"format", GW_JSON_INNER, 0},
    {"config", GW_JSON_INNER, 0},
    {"layers", GW_JSON_INNER, 0},
    {"steps", GW_JSON_INNER, 0},
    {"tests", GW_JSON_INNER, 0},
    {"samples", GW_JSON_INNER, 0},
    {"adapt", GW_JSON_INNER, 0},
    {"auto", GW_JSON_INNER, 0},
    {"watch", GW_JSON_INNER, 0},
    GW_JSON_KEY(gw_run_file, error, TEXT),
};
enum { SOMETIMES = 4 };

/* ---- the parts ---- */

static bool read_layers(const json_t *root, const gw_json_place *r, gw_run_file *run)
{
    if (!gw_json_records(root, r, "layers", sizeof *run->layers, (void **)&run->layers,
                         &run->n_layers)) {
        return false;
    }
    json_t *seen = json_object();
    bool fine = seen || gw_json_fail(r, NULL, "out of memory");
    for (size_t i = 0; fine && i < run->n_layers; i++) {
        const gw_json_place at = gw_json_at_entry(r, "layers", i);
        gw_run_file_layer *layer = &run->layers[i];
        fine = gw_json_record(json_array_get(json_object_get(root, "layers"), i), &at, LAYER,
                              GW_JSON_COUNT_OF(LAYER), layer) &&
               gw_json_word(&at, "kind", layer->kind, "bias linear conv lstm embedding loss");
        if (fine && json_object_get(seen, layer->name)) {
            fine = gw_json_fail(&at, "name", "'%.80s' was there before", layer->name);
        }
        fine = fine && (json_object_set_new(seen, layer->name, json_null()) == 0 ||
                        gw_json_fail(r, NULL, "out of memory"));
    }
    json_decref(seen);
    return fine;
}

static bool read_steps(const json_t *root, const gw_json_place *r, gw_run_file *run)
{
    if (!gw_json_records(root, r, "steps", sizeof *run->steps, (void **)&run->steps,
                         &run->n_steps)) {
        return false;
    }
    const json_t *array = json_object_get(root, "steps");
    for (size_t i = 0; i < run->n_steps; i++) {
        const gw_json_place at = gw_json_at_entry(r, "steps", i);
        if (!gw_json_record(json_array_get(array, i), &at, STEP, GW_JSON_COUNT_OF(STEP),
                            &run->steps[i]) ||
            !gw_json_rising(&at, i ? run->steps[i - 1].step : 0, run->steps[i].step)) {
            return false;
        }
    }
    return true;
}

static bool read_tests(const json_t *root, const gw_json_place *r, gw_run_file *run)
{
    if (!gw_json_records(root, r, "tests", sizeof *run->tests, (void **)&run->tests,
                         &run->n_tests)) {
        return false;
    }
    const json_t *array = json_object_get(root, "tests");
    for (size_t i = 0; i < run->n_tests; i++) {
        const gw_json_place at = gw_json_at_entry(r, "tests", i);
        const gw_run_file_test *test = &run->tests[i];
        if (!gw_json_record(json_array_get(array, i), &at, TEST, GW_JSON_COUNT_OF(TEST),
                            &run->tests[i]) ||
            (i > 0 && !gw_json_rising(&at, run->tests[i - 1].step, test->step))) {
            return false;
        }
        if (test->accuracy > 1) {
            return gw_json_fail(&at, "accuracy", "%g is more than 1", test->accuracy);
        }
    }
    return true;
}

static bool read_sample(const json_t *value, const gw_json_place *at, gw_run_file *run,
                        gw_run_file_sample *sample)
{
    if (!gw_json_record(value, at, SAMPLE, GW_JSON_COUNT_OF(SAMPLE), sample)) {
        return false;
    }
    const json_t *array = json_object_get(value, "layers");
    if (!json_is_array(array) || json_array_size(array) != run->n_layers) {
        return gw_json_fail(at, "layers", "is not an array of %zu, one a layer", run->n_layers);
    }
    sample->layers = calloc(run->n_layers + 1, sizeof *sample->layers);
    if (!sample->layers) {
        return gw_json_fail(at, NULL, "out of memory");
    }
    for (size_t i = 0; i < run->n_layers; i++) {
        const gw_json_place inner = gw_json_at_entry(at, "layers", i);
        if (!gw_json_record(json_array_get(array, i), &inner, SAMPLE_LAYER,
                            GW_JSON_COUNT_OF(SAMPLE_LAYER), &sample->layers[i])) {
            return false;
        }
    }
    return true;
}

static bool read_samples(const json_t *root, const gw_json_place *r, gw_run_file *run)
{
    if (!gw_json_records(root, r, "samples", sizeof *run->samples, (void **)&run->samples,
                         &run->n_samples)) {
        return false;
    }
    const json_t *array = json_object_get(root, "samples");
    for (size_t i = 0; i < run->n_samples; i++) {
        const gw_json_place at = gw_json_at_entry(r, "samples", i);
        if (!read_sample(json_array_get(array, i), &at, run, &run->samples[i]) ||
            !gw_json_rising(&at, i ? run->samples[i - 1].step : 0, run->samples[i].step)) {
            return false;
        }
    }
    return true;
}

static bool read_config(const json_t *root, const gw_json_place *r, gw_run_file_config *config)
{
    const gw_json_place at = gw_json_at_key(r, "config");
    return gw_json_record(json_object_get(root, "config"), &at, CONFIG, GW_JSON_COUNT_OF(CONFIG),
                          config) &&
           gw_json_word(&at, "engine", config->engine, "threads mpi") &&
           (config->ranks > 0 || gw_json_fail(&at, "ranks", "is 0"));
}

/* From gradwire.run/2 on: sums over the steps, as they were when run.json was written. */
typedef struct summary {
    uint64_t steps, bytes_sent, dense_bytes, far_bytes_sent, far_dense_bytes, non_finite;
    double seconds, wait_seconds;
} summary;
static const gw_json_key SUMMARY[] = {
    GW_JSON_KEY(summary, steps, COUNT),           GW_JSON_KEY(summary, seconds, REAL),
    GW_JSON_KEY(summary, wait_seconds, REAL),     GW_JSON_KEY(summary, bytes_sent, COUNT),
    GW_JSON_KEY(summary, dense_bytes, COUNT),     GW_JSON_KEY(summary, far_bytes_sent, LATER),
    GW_JSON_KEY(summary, far_dense_bytes, LATER), GW_JSON_KEY(summary, non_finite, COUNT),
};

/* Takes the summary out of root. While a run is under way its history may be ahead, or behind where it goes on. */
static bool read_summary(json_t *root, const gw_json_place *r, const char *state, uint64_t *steps)
{
    summary found = {0};
    const gw_json_place at = gw_json_at_key(r, "summary");
    const size_t n = json_array_size(json_object_get(root, "steps"));
    if (!gw_json_record(json_object_get(root, "summary"), &at, SUMMARY, GW_JSON_COUNT_OF(SUMMARY),
                        &found)) {
        return false;
    }
    (void)json_object_del(root, "summary");
    *steps = found.steps;
    return !state || strcmp(state, "finished") != 0 || found.steps == n ||
           gw_json_fail(&at, "steps", "is %llu; history.jsonl has %zu",
                        (unsigned long long)found.steps, n);
}

/* The format first: of another one nothing else is worth saying. */
static bool read_run(json_t *root, const uint8_t *history, size_t history_size,
                     const gw_json_place *r, gw_run_file *run)
{
    if (!json_is_object(root)) {
        return gw_json_fail(r, NULL, "is not a JSON object");
    }
    const unsigned format = gw_run_format(json_string_value(json_object_get(root, "format")));
    if (format == 0) {
        return gw_json_fail(r, "format", "is not " GW_RUN_FORMATS);
    }
    const bool lines = format > 1; /* records stand in history.jsonl */
    if (lines && !history) {
        return gw_json_fail(r, NULL, "there is no history.jsonl beside it");
    }
    const char *state = json_string_value(json_object_get(root, "state"));
    const bool failed = state && strcmp(state, "failed") == 0;
    const char *spec = json_string_value(json_object_get(json_object_get(root, "config"), "spec"));
    const bool is_auto = spec && gw_run_spec_is(spec, "auto");
    const bool adapts = spec && gw_run_spec_is(spec, "adapt");
    const bool has[SOMETIMES] = {adapts, is_auto, is_auto, failed};
    uint64_t summed = json_array_size(json_object_get(root, "steps"));
    if (lines && !(gw_run_history_join(root, history, history_size, adapts, is_auto, r) &&
                   read_summary(root, r, state, &summed))) {
        return false;
    }
    if (!gw_run_upgrade(root, format)) {
        return gw_json_fail(r, "watch", "has 'expected_seconds', a key of a later format");
    }
    gw_json_key keys[GW_JSON_COUNT_OF(RUN)];
    size_t n = GW_JSON_COUNT_OF(RUN) - SOMETIMES;
    memcpy(keys, RUN, sizeof keys);
    for (size_t i = 0; i < SOMETIMES; i++) {
        if (has[i]) {
            keys[n++] = RUN[GW_JSON_COUNT_OF(RUN) - SOMETIMES + i];
        }
    }
    run->summed = summed;
    run->format = format;
    return gw_json_record(root, r, keys, n, run) &&
           gw_json_word(r, "state", run->state, "running finished interrupted failed") &&
           read_config(root, r, &run->config) && read_layers(root, r, run) &&
           read_steps(root, r, run) && read_tests(root, r, run) && read_samples(root, r, run) &&
           gw_run_file_adapt_read(root, r, run) && gw_run_file_auto_read(root, r, run);
}

bool gw_run_file_parse(const uint8_t *file, size_t size, const uint8_t *history,
                       size_t history_size, gw_run_file *run, char *why, size_t why_size)
{
    const gw_json_place r = gw_json_root(why, why_size);
    json_t *root = gw_json_load(file, size, &r);
    if (!root) {
        return false;
    }
    gw_run_file found = {0};
    const bool fine = read_run(root, history, history_size, &r, &found);
    json_decref(root);
    if (fine) {
        *run = found;
    } else {
        gw_run_file_free(&found);
    }
    return fine;
}

void gw_run_file_free(gw_run_file *run)
{
    for (size_t i = 0; i < run->n_layers; i++) {
        gw_json_record_free(LAYER, GW_JSON_COUNT_OF(LAYER), &run->layers[i]);
    }
    for (size_t i = 0; i < run->n_samples; i++) {
        free(run->samples[i].layers);
    }
    gw_run_file_choices_free(run);
    gw_json_record_free(CONFIG, GW_JSON_COUNT_OF(CONFIG), &run->config);
    gw_json_record_free(RUN, GW_JSON_COUNT_OF(RUN), run);
    free(run->layers);
    free(run->steps);
    free(run->tests);
    free(run->samples);
    *run = (gw_run_file){0};
}
