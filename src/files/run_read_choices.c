/* What was chosen while it trained: `adapt`, `auto` and `watch` of run.json; see run_read_choices.h. */
#define _POSIX_C_SOURCE 200809L
#include "files/run_read_choices.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const gw_json_key ADAPT[] = {
    GW_JSON_KEY(gw_run_file_adapt, step, COUNT),
    GW_JSON_KEY(gw_run_file_adapt, bound_at, COUNT),
    GW_JSON_KEY(gw_run_file_adapt, alpha, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_adapt, budget, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_adapt, error, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_adapt, bytes, COUNT),
    GW_JSON_KEY(gw_run_file_adapt, uniform_bytes, COUNT),
    GW_JSON_KEY(gw_run_file_adapt, lower_bound_bytes, COUNT),
    GW_JSON_KEY(gw_run_file_adapt, waited, COUNT),
    GW_JSON_KEY(gw_run_file_adapt, measure_seconds, REAL),
    GW_JSON_KEY(gw_run_file_adapt, solve_seconds, REAL),
    GW_JSON_KEY(gw_run_file_adapt, outcome, TEXT),
    GW_JSON_KEY(gw_run_file_adapt, words, TEXT),
    {"layers", GW_JSON_INNER, 0},
};

static const gw_json_key AUTO[] = {
    GW_JSON_KEY(gw_run_file_auto, step, COUNT),
    GW_JSON_KEY(gw_run_file_auto, bound_at, COUNT),
    GW_JSON_KEY(gw_run_file_auto, reason, TEXT),
    GW_JSON_KEY(gw_run_file_auto, outcome, TEXT),
    GW_JSON_KEY(gw_run_file_auto, words, TEXT),
    GW_JSON_KEY(gw_run_file_auto, predicted_seconds, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_auto, dense_seconds, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_auto, bound_seconds, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_auto, half_seconds, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_auto, double_seconds, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_auto, alpha, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_auto, budget, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_auto, error, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_auto, noise_ratio, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_auto, link_bytes_per_second, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_auto, latency_seconds, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_auto, bytes, COUNT),
    GW_JSON_KEY(gw_run_file_auto, dense_bytes, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_auto, measure_seconds, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_auto, solve_seconds, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_auto, waited, REAL_OR_NULL),
    {"layers", GW_JSON_INNER, 0},
};

static const gw_json_key TRAVEL[] = {
    GW_JSON_KEY(gw_run_file_travel, spec, TEXT),
    GW_JSON_KEY(gw_run_file_travel, route, TEXT),
};

static const gw_json_key WATCH[] = {
    GW_JSON_KEY(gw_run_file_watch, step, COUNT),
    GW_JSON_KEY(gw_run_file_watch, measured_seconds, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_watch, predicted_seconds, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_watch, expected_seconds, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_watch, error, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_watch, budget, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_watch, noise_ratio, REAL_OR_NULL),
    GW_JSON_KEY(gw_run_file_watch, loss, REAL_OR_NULL),
};

/* ---- adapt ---- */

static bool read_specs(const json_t *value, const gw_json_place *at, const gw_run_file *run,
                       gw_run_file_adapt *adapt)
{
    const json_t *array = json_object_get(value, "layers");
    if (!json_is_array(array) || json_array_size(array) != run->n_layers) {
        return gw_json_fail(at, "layers", "is not an array of %zu, one a layer", run->n_layers);
    }
    adapt->specs = calloc(run->n_layers + 1, sizeof *adapt->specs);
    for (size_t i = 0; adapt->specs && i < run->n_layers; i++) {
        const char *text = json_string_value(json_array_get(array, i));
        if (!text) {
            return gw_json_fail(at, "layers", "[%zu] is not a string", i);
        }
        adapt->specs[i] = strdup(text);
        if (!adapt->specs[i]) {
            return gw_json_fail(at, NULL, "out of memory");
        }
    }
    return adapt->specs || gw_json_fail(at, NULL, "out of memory");
}

bool gw_run_file_adapt_read(const json_t *root, const gw_json_place *r, gw_run_file *run)
{
    if (!gw_run_spec_is(run->config.spec, "adapt")) {
        return true;
    }
    if (!gw_json_records(root, r, "adapt", sizeof *run->adapt, (void **)&run->adapt,
                         &run->n_adapt)) {
        return false;
    }
    const json_t *array = json_object_get(root, "adapt");
    for (size_t i = 0; i < run->n_adapt; i++) {
        const gw_json_place at = gw_json_at_entry(r, "adapt", i);
        gw_run_file_adapt *adapt = &run->adapt[i];
        if (!gw_json_record(json_array_get(array, i), &at, ADAPT, GW_JSON_COUNT_OF(ADAPT), adapt) ||
            !gw_json_rising(&at, i ? run->adapt[i - 1].bound_at : 0, adapt->bound_at) ||
            !gw_json_word(&at, "outcome", adapt->outcome,
                          "switched same small_gain default nothing failed") ||
            !read_specs(json_array_get(array, i), &at, run, adapt)) {
            return false;
        }
    }
    return true;
}

static void free_adapt(gw_run_file *run)
{
    for (size_t i = 0; i < run->n_adapt; i++) {
        for (size_t l = 0; run->adapt[i].specs && l < run->n_layers; l++) {
            free(run->adapt[i].specs[l]);
        }
        free(run->adapt[i].specs);
        gw_json_record_free(ADAPT, GW_JSON_COUNT_OF(ADAPT), &run->adapt[i]);
    }
    free(run->adapt);
}

/* ---- auto and watch ---- */

static bool read_travel(const json_t *value, const gw_json_place *at, const gw_run_file *run,
                        gw_run_file_auto *decision)
{
    size_t n = 0;
    if (!gw_json_records(value, at, "layers", sizeof *decision->layers, (void **)&decision->layers,
                         &n)) {
        return false;
    }
    if (n != run->n_layers) {
        free(decision->layers);
        decision->layers = NULL;
        return gw_json_fail(at, "layers", "is not an array of %zu, one a layer", run->n_layers);
    }
    for (size_t i = 0; i < n; i++) {
        const gw_json_place inner = gw_json_at_entry(at, "layers", i);
        if (!gw_json_record(json_array_get(json_object_get(value, "layers"), i), &inner, TRAVEL,
                            GW_JSON_COUNT_OF(TRAVEL), &decision->layers[i])) {
            return false;
        }
    }
    return true;
}

static bool not_falling(const gw_json_place *at, const char *name, uint64_t before, uint64_t now)
{
    return now >= before ||
           gw_json_fail(at, name, "%" PRIu64 " comes before %" PRIu64, now, before);
}

static bool read_decisions(const json_t *root, const gw_json_place *r, gw_run_file *run)
{
    if (!gw_json_records(root, r, "auto", sizeof *run->decisions, (void **)&run->decisions,
                         &run->n_decisions)) {
        return false;
    }
    const json_t *array = json_object_get(root, "auto");
    for (size_t i = 0; i < run->n_decisions; i++) {
        const gw_json_place at = gw_json_at_entry(r, "auto", i);
        gw_run_file_auto *one = &run->decisions[i];
        const gw_run_file_auto *before = i ? one - 1 : NULL;
        if (!gw_json_record(json_array_get(array, i), &at, AUTO, GW_JSON_COUNT_OF(AUTO), one) ||
            !not_falling(&at, "step", before ? before->step : 1, one->step) ||
            !not_falling(&at, "bound_at", before ? before->bound_at : 1, one->bound_at) ||
            !gw_json_word(&at, "reason", one->reason,
                          "start periodic slower faster error quiet diverging non_finite "
                          "recovered") ||
            !gw_json_word(&at, "outcome", one->outcome, "switched same small_gain dense failed") ||
            !read_travel(json_array_get(array, i), &at, run, one)) {
            return false;
        }
    }
    return true;
}

static bool read_watch(const json_t *root, const gw_json_place *r, gw_run_file *run)
{
    if (!gw_json_records(root, r, "watch", sizeof *run->watch, (void **)&run->watch,
                         &run->n_watch)) {
        return false;
    }
    const json_t *array = json_object_get(root, "watch");
    for (size_t i = 0; i < run->n_watch; i++) {
        const gw_json_place at = gw_json_at_entry(r, "watch", i);
        if (!gw_json_record(json_array_get(array, i), &at, WATCH, GW_JSON_COUNT_OF(WATCH),
                            &run->watch[i]) ||
            !gw_json_rising(&at, i ? run->watch[i - 1].step : 0, run->watch[i].step)) {
            return false;
        }
    }
    return true;
}

bool gw_run_file_auto_read(const json_t *root, const gw_json_place *r, gw_run_file *run)
{
    return !gw_run_spec_is(run->config.spec, "auto") ||
           (read_decisions(root, r, run) && read_watch(root, r, run));
}

void gw_run_file_choices_free(gw_run_file *run)
{
    free_adapt(run);
    for (size_t i = 0; i < run->n_decisions; i++) {
        for (size_t l = 0; run->decisions[i].layers && l < run->n_layers; l++) {
            gw_json_record_free(TRAVEL, GW_JSON_COUNT_OF(TRAVEL), &run->decisions[i].layers[l]);
        }
        free(run->decisions[i].layers);
        gw_json_record_free(AUTO, GW_JSON_COUNT_OF(AUTO), &run->decisions[i]);
    }
    free(run->decisions);
    free(run->watch);
}
