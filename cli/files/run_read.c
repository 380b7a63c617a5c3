/* run.json; see run_read.h. */
#include "cli/files/run_read.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/files/run_history.h"
#include "cli/files/run_object.h"
#include "cli/files/run_read_choices.h"
#include "cli/files/run_upgrade.h"

static const gw_cli_key CONFIG[] = {
    GW_CLI_KEY(gw_cli_runfile_config, model, TEXT),
    GW_CLI_KEY(gw_cli_runfile_config, engine, TEXT),
    GW_CLI_KEY(gw_cli_runfile_config, ranks, COUNT),
    GW_CLI_KEY(gw_cli_runfile_config, ranks_per_node, COUNT),
    GW_CLI_KEY(gw_cli_runfile_config, batch, COUNT),
    GW_CLI_KEY(gw_cli_runfile_config, steps, COUNT),
    GW_CLI_KEY(gw_cli_runfile_config, seed, COUNT),
    GW_CLI_KEY(gw_cli_runfile_config, spec, TEXT),
    GW_CLI_KEY(gw_cli_runfile_config, route, TEXT),
    GW_CLI_KEY(gw_cli_runfile_config, fuse_below, COUNT),
    GW_CLI_KEY(gw_cli_runfile_config, link_bytes_per_second, REAL),
    GW_CLI_KEY(gw_cli_runfile_config, latency_seconds, REAL),
    GW_CLI_KEY(gw_cli_runfile_config, optimiser, TEXT),
    GW_CLI_KEY(gw_cli_runfile_config, rate, REAL),
    GW_CLI_KEY(gw_cli_runfile_config, warmup, REAL),
    GW_CLI_KEY(gw_cli_runfile_config, momentum, REAL),
    GW_CLI_KEY(gw_cli_runfile_config, decay, REAL),
    GW_CLI_KEY(gw_cli_runfile_config, schedule, TEXT),
    GW_CLI_KEY(gw_cli_runfile_config, data, TEXT),
    GW_CLI_KEY(gw_cli_runfile_config, plan, MAYBE),
    GW_CLI_KEY(gw_cli_runfile_config, plan_checksum, MAYBE),
};

static const gw_cli_key LAYER[] = {
    GW_CLI_KEY(gw_cli_runfile_layer, name, TEXT),
    GW_CLI_KEY(gw_cli_runfile_layer, kind, TEXT),
    GW_CLI_KEY(gw_cli_runfile_layer, elements, COUNT),
    GW_CLI_KEY(gw_cli_runfile_layer, spec, TEXT),
    GW_CLI_KEY(gw_cli_runfile_layer, route, TEXT),
    GW_CLI_KEY(gw_cli_runfile_layer, fused, FLAG),
    GW_CLI_KEY(gw_cli_runfile_layer, bytes_sent, COUNT),
    GW_CLI_KEY(gw_cli_runfile_layer, dense_bytes, COUNT),
    GW_CLI_KEY(gw_cli_runfile_layer, far_bytes_sent, LATER),
    GW_CLI_KEY(gw_cli_runfile_layer, far_dense_bytes, LATER),
};

static const gw_cli_key STEP[] = {
    GW_CLI_KEY(gw_cli_runfile_step, step, COUNT),
    GW_CLI_KEY(gw_cli_runfile_step, loss, REAL_OR_NULL),
    GW_CLI_KEY(gw_cli_runfile_step, seconds, REAL),
    GW_CLI_KEY(gw_cli_runfile_step, wait_seconds, REAL),
    GW_CLI_KEY(gw_cli_runfile_step, bytes_sent, COUNT),
    GW_CLI_KEY(gw_cli_runfile_step, dense_bytes, COUNT),
    GW_CLI_KEY(gw_cli_runfile_step, far_bytes_sent, LATER),
    GW_CLI_KEY(gw_cli_runfile_step, far_dense_bytes, LATER),
    GW_CLI_KEY(gw_cli_runfile_step, non_finite, COUNT),
};

static const gw_cli_key TEST[] = {
    GW_CLI_KEY(gw_cli_runfile_test, step, COUNT),
    GW_CLI_KEY(gw_cli_runfile_test, seconds, REAL),
    GW_CLI_KEY(gw_cli_runfile_test, accuracy, REAL_OR_NULL),
    GW_CLI_KEY(gw_cli_runfile_test, loss, REAL_OR_NULL),
    GW_CLI_KEY(gw_cli_runfile_test, bits, REAL_OR_NULL),
};

static const gw_cli_key SAMPLE[] = {
    GW_CLI_KEY(gw_cli_runfile_sample, step, COUNT),
    GW_CLI_KEY(gw_cli_runfile_sample, backward_seconds, REAL),
    GW_CLI_KEY(gw_cli_runfile_sample, forward_seconds, REAL),
    GW_CLI_KEY(gw_cli_runfile_sample, update_seconds, REAL),
    {"layers", GW_CLI_KEY_INNER, 0},
};

static const gw_cli_key SAMPLE_LAYER[] = {
    GW_CLI_KEY(gw_cli_runfile_sample_layer, posted, REAL),
    GW_CLI_KEY(gw_cli_runfile_sample_layer, begun, REAL),
    GW_CLI_KEY(gw_cli_runfile_sample_layer, arrived, REAL),
    GW_CLI_KEY(gw_cli_runfile_sample_layer, encode_seconds, REAL),
    GW_CLI_KEY(gw_cli_runfile_sample_layer, decode_seconds, REAL),
    GW_CLI_KEY(gw_cli_runfile_sample_layer, bytes_sent, COUNT),
    GW_CLI_KEY(gw_cli_runfile_sample_layer, dense_bytes, COUNT),
    GW_CLI_KEY(gw_cli_runfile_sample_layer, rel_error, REAL_OR_NULL),
};

/* The last ones not every run has; SOMETIMES says which. */
static const gw_cli_key RUN[] = {
    GW_CLI_KEY(gw_cli_runfile, gradwire, TEXT),
    GW_CLI_KEY(gw_cli_runfile, started, TEXT),
    GW_CLI_KEY(gw_cli_runfile, state, TEXT),
    GW_CLI_KEY(gw_cli_runfile, weights, COUNT),
    {"format", GW_CLI_KEY_INNER, 0},
    {"config", GW_CLI_KEY_INNER, 0},
    {"layers", GW_CLI_KEY_INNER, 0},
    {"steps", GW_CLI_KEY_INNER, 0},
    {"tests", GW_CLI_KEY_INNER, 0},
    {"samples", GW_CLI_KEY_INNER, 0},
    {"adapt", GW_CLI_KEY_INNER, 0},
    {"auto", GW_CLI_KEY_INNER, 0},
    {"watch", GW_CLI_KEY_INNER, 0},
    GW_CLI_KEY(gw_cli_runfile, error, TEXT),
};
enum { SOMETIMES = 4 };

/* ---- the parts ---- */

static bool read_layers(const json_t *root, const gw_cli_object_at *r, gw_cli_runfile *run)
{
    if (!gw_cli_object_array(root, r, "layers", sizeof *run->layers, (void **)&run->layers,
                             &run->n_layers)) {
        return false;
    }
    json_t *seen = json_object();
    bool fine = seen || gw_cli_object_fail(r, NULL, "out of memory");
    for (size_t i = 0; fine && i < run->n_layers; i++) {
        const gw_cli_object_at at = gw_cli_object_inside(r, "layers", i);
        gw_cli_runfile_layer *layer = &run->layers[i];
        fine = gw_cli_object_read(json_array_get(json_object_get(root, "layers"), i), &at, LAYER,
                                  GW_CLI_COUNT_OF(LAYER), layer) &&
               gw_cli_object_word(&at, "kind", layer->kind, "bias linear conv lstm embedding loss");
        if (fine && json_object_get(seen, layer->name)) {
            fine = gw_cli_object_fail(&at, "name", "'%.80s' was there before", layer->name);
        }
        fine = fine && (json_object_set_new(seen, layer->name, json_null()) == 0 ||
                        gw_cli_object_fail(r, NULL, "out of memory"));
    }
    json_decref(seen);
    return fine;
}

static bool read_steps(const json_t *root, const gw_cli_object_at *r, gw_cli_runfile *run)
{
    if (!gw_cli_object_array(root, r, "steps", sizeof *run->steps, (void **)&run->steps,
                             &run->n_steps)) {
        return false;
    }
    const json_t *array = json_object_get(root, "steps");
    for (size_t i = 0; i < run->n_steps; i++) {
        const gw_cli_object_at at = gw_cli_object_inside(r, "steps", i);
        if (!gw_cli_object_read(json_array_get(array, i), &at, STEP, GW_CLI_COUNT_OF(STEP),
                                &run->steps[i]) ||
            !gw_cli_object_rising(&at, i ? run->steps[i - 1].step : 0, run->steps[i].step)) {
            return false;
        }
    }
    return true;
}

static bool read_tests(const json_t *root, const gw_cli_object_at *r, gw_cli_runfile *run)
{
    if (!gw_cli_object_array(root, r, "tests", sizeof *run->tests, (void **)&run->tests,
                             &run->n_tests)) {
        return false;
    }
    const json_t *array = json_object_get(root, "tests");
    for (size_t i = 0; i < run->n_tests; i++) {
        const gw_cli_object_at at = gw_cli_object_inside(r, "tests", i);
        const gw_cli_runfile_test *test = &run->tests[i];
        if (!gw_cli_object_read(json_array_get(array, i), &at, TEST, GW_CLI_COUNT_OF(TEST),
                                &run->tests[i]) ||
            (i > 0 && !gw_cli_object_rising(&at, run->tests[i - 1].step, test->step))) {
            return false;
        }
        if (test->accuracy > 1) {
            return gw_cli_object_fail(&at, "accuracy", "%g is more than 1", test->accuracy);
        }
    }
    return true;
}

static bool read_sample(const json_t *value, const gw_cli_object_at *at, gw_cli_runfile *run,
                        gw_cli_runfile_sample *sample)
{
    if (!gw_cli_object_read(value, at, SAMPLE, GW_CLI_COUNT_OF(SAMPLE), sample)) {
        return false;
    }
    const json_t *array = json_object_get(value, "layers");
    if (!json_is_array(array) || json_array_size(array) != run->n_layers) {
        return gw_cli_object_fail(at, "layers", "is not an array of %zu, one a layer",
                                  run->n_layers);
    }
    sample->layers = calloc(run->n_layers + 1, sizeof *sample->layers);
    if (!sample->layers) {
        return gw_cli_object_fail(at, NULL, "out of memory");
    }
    for (size_t i = 0; i < run->n_layers; i++) {
        const gw_cli_object_at inner = gw_cli_object_inside(at, "layers", i);
        if (!gw_cli_object_read(json_array_get(array, i), &inner, SAMPLE_LAYER,
                                GW_CLI_COUNT_OF(SAMPLE_LAYER), &sample->layers[i])) {
            return false;
        }
    }
    return true;
}

static bool read_samples(const json_t *root, const gw_cli_object_at *r, gw_cli_runfile *run)
{
    if (!gw_cli_object_array(root, r, "samples", sizeof *run->samples, (void **)&run->samples,
                             &run->n_samples)) {
        return false;
    }
    const json_t *array = json_object_get(root, "samples");
    for (size_t i = 0; i < run->n_samples; i++) {
        const gw_cli_object_at at = gw_cli_object_inside(r, "samples", i);
        if (!read_sample(json_array_get(array, i), &at, run, &run->samples[i]) ||
            !gw_cli_object_rising(&at, i ? run->samples[i - 1].step : 0, run->samples[i].step)) {
            return false;
        }
    }
    return true;
}

static bool read_config(const json_t *root, const gw_cli_object_at *r,
                        gw_cli_runfile_config *config)
{
    gw_cli_object_at at = *r;
    (void)snprintf(at.path, sizeof at.path, "config");
    return gw_cli_object_read(json_object_get(root, "config"), &at, CONFIG, GW_CLI_COUNT_OF(CONFIG),
                              config) &&
           gw_cli_object_word(&at, "engine", config->engine, "threads mpi") &&
           (config->ranks > 0 || gw_cli_object_fail(&at, "ranks", "is 0"));
}

/* From gradwire.run/2 on: sums over the steps, as they were when run.json was written. */
typedef struct summary {
    uint64_t steps, bytes_sent, dense_bytes, far_bytes_sent, far_dense_bytes, non_finite;
    double seconds, wait_seconds;
} summary;
static const gw_cli_key SUMMARY[] = {
    GW_CLI_KEY(summary, steps, COUNT),           GW_CLI_KEY(summary, seconds, REAL),
    GW_CLI_KEY(summary, wait_seconds, REAL),     GW_CLI_KEY(summary, bytes_sent, COUNT),
    GW_CLI_KEY(summary, dense_bytes, COUNT),     GW_CLI_KEY(summary, far_bytes_sent, LATER),
    GW_CLI_KEY(summary, far_dense_bytes, LATER), GW_CLI_KEY(summary, non_finite, COUNT),
};

/* Takes the summary out of root. While a run is under way its history may be ahead, or behind where it goes on. */
static bool read_summary(json_t *root, const gw_cli_object_at *r, const char *state,
                         uint64_t *steps)
{
    summary found = {0};
    gw_cli_object_at at = *r;
    (void)snprintf(at.path, sizeof at.path, "summary");
    const size_t n = json_array_size(json_object_get(root, "steps"));
    if (!gw_cli_object_read(json_object_get(root, "summary"), &at, SUMMARY,
                            GW_CLI_COUNT_OF(SUMMARY), &found)) {
        return false;
    }
    (void)json_object_del(root, "summary");
    *steps = found.steps;
    return !state || strcmp(state, "finished") != 0 || found.steps == n ||
           gw_cli_object_fail(&at, "steps", "is %llu; history.jsonl has %zu",
                              (unsigned long long)found.steps, n);
}

/* The format first: of another one nothing else is worth saying. */
static bool read_run(json_t *root, const uint8_t *history, size_t history_size,
                     const gw_cli_object_at *r, gw_cli_runfile *run)
{
    if (!json_is_object(root)) {
        return gw_cli_object_fail(r, NULL, "is not a JSON object");
    }
    const unsigned format = gw_cli_run_format(json_string_value(json_object_get(root, "format")));
    if (format == 0) {
        return gw_cli_object_fail(r, "format", "is not " GW_CLI_RUN_FORMATS);
    }
    const bool lines = format > 1; /* records stand in history.jsonl */
    if (lines && !history) {
        return gw_cli_object_fail(r, NULL, "there is no history.jsonl beside it");
    }
    const char *state = json_string_value(json_object_get(root, "state"));
    const bool failed = state && strcmp(state, "failed") == 0;
    const char *spec = json_string_value(json_object_get(json_object_get(root, "config"), "spec"));
    const bool is_auto = spec && gw_cli_spec_is(spec, "auto");
    const bool adapts = spec && gw_cli_spec_is(spec, "adapt");
    const bool has[SOMETIMES] = {adapts, is_auto, is_auto, failed};
    uint64_t summed = json_array_size(json_object_get(root, "steps"));
    if (lines && !(gw_cli_run_history_join(root, history, history_size, adapts, is_auto, r) &&
                   read_summary(root, r, state, &summed))) {
        return false;
    }
    if (!gw_cli_run_upgrade(root, format)) {
        return gw_cli_object_fail(r, "watch", "has 'expected_seconds', a key of a later format");
    }
    gw_cli_key keys[GW_CLI_COUNT_OF(RUN)];
    size_t n = GW_CLI_COUNT_OF(RUN) - SOMETIMES;
    memcpy(keys, RUN, sizeof keys);
    for (size_t i = 0; i < SOMETIMES; i++) {
        if (has[i]) {
            keys[n++] = RUN[GW_CLI_COUNT_OF(RUN) - SOMETIMES + i];
        }
    }
    run->summed = summed;
    run->format = format;
    return gw_cli_object_read(root, r, keys, n, run) &&
           gw_cli_object_word(r, "state", run->state, "running finished interrupted failed") &&
           read_config(root, r, &run->config) && read_layers(root, r, run) &&
           read_steps(root, r, run) && read_tests(root, r, run) && read_samples(root, r, run) &&
           gw_cli_runfile_adapt_read(root, r, run) && gw_cli_runfile_auto_read(root, r, run);
}

bool gw_cli_runfile_parse(const uint8_t *file, size_t size, const uint8_t *history,
                          size_t history_size, gw_cli_runfile *run, char *why, size_t why_size)
{
    const gw_cli_object_at r = {why, why_size, ""};
    json_error_t error;
    json_t *root = json_loadb((const char *)file, size, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        return gw_cli_object_fail(&r, NULL, "line %d, column %d: %s", error.line, error.column,
                                  error.text);
    }
    gw_cli_runfile found = {0};
    const bool fine = read_run(root, history, history_size, &r, &found);
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
        gw_cli_object_free(LAYER, GW_CLI_COUNT_OF(LAYER), &run->layers[i]);
    }
    for (size_t i = 0; i < run->n_samples; i++) {
        free(run->samples[i].layers);
    }
    gw_cli_runfile_choices_free(run);
    gw_cli_object_free(CONFIG, GW_CLI_COUNT_OF(CONFIG), &run->config);
    gw_cli_object_free(RUN, GW_CLI_COUNT_OF(RUN), run);
    free(run->layers);
    free(run->steps);
    free(run->tests);
    free(run->samples);
    *run = (gw_cli_runfile){0};
}
