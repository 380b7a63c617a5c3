/* run.json of a run folder (docs/run-format.md), as it was written by `gradwire train`. */
#ifndef GW_FILES_RUN_READ_H
#define GW_FILES_RUN_READ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Whether a spec is of this way of sending: "auto", "auto:…" or "auto/…". */
static inline bool gw_run_spec_is(const char *spec, const char *way)
{
    const size_t n = strlen(way);
    return strncmp(spec, way, n) == 0 && (spec[n] == '\0' || spec[n] == ':' || spec[n] == '/');
}

/* Names are those of run.json. Seconds, bytes. A number that was null is NaN. */
typedef struct gw_run_file_config {
    char *model, *engine, *spec, *route, *optimiser, *schedule, *data;
    char *plan, *plan_checksum; /* NULL: there is none */
    uint64_t ranks, ranks_per_node, batch, steps, seed, fuse_below;
    double link_bytes_per_second, latency_seconds; /* 0: no limit */
    double rate, warmup, momentum, decay;
} gw_run_file_config;

typedef struct gw_run_file_layer {
    char *name, *kind, *spec, *route;
    uint64_t elements, bytes_sent, dense_bytes; /* bytes of all steps together */
    uint64_t far_bytes_sent, far_dense_bytes;   /* of these, to other nodes */
    bool fused;
} gw_run_file_layer;

typedef struct gw_run_file_step {
    uint64_t step; /* from 1, always rising */
    double loss, seconds, wait_seconds;
    uint64_t bytes_sent, dense_bytes, far_bytes_sent, far_dense_bytes, non_finite;
} gw_run_file_step;

typedef struct gw_run_file_test {
    uint64_t step; /* always rising */
    double seconds, accuracy, loss, bits;
} gw_run_file_test;

typedef struct gw_run_file_sample_layer {
    double posted, begun, arrived, encode_seconds, decode_seconds;
    uint64_t bytes_sent, dense_bytes;
    double rel_error;
} gw_run_file_sample_layer;

typedef struct gw_run_file_sample {
    uint64_t step; /* always rising */
    double backward_seconds, forward_seconds, update_seconds;
    gw_run_file_sample_layer *layers; /* n_layers */
} gw_run_file_sample;

/* A choice of levels during training. */
typedef struct gw_run_file_adapt {
    uint64_t step, bound_at; /* bound_at: the first step that goes by it; always rising */
    uint64_t bytes, uniform_bytes, lower_bound_bytes, waited;
    double alpha, budget, error, measure_seconds, solve_seconds;
    char *outcome, *words;
    char **specs; /* n_layers */
} gw_run_file_adapt;

typedef struct gw_run_file_travel {
    char *spec, *route; /* "dense" where nothing is coded */
} gw_run_file_travel;

/* A decision of `auto`. */
typedef struct gw_run_file_auto {
    uint64_t step, bound_at, bytes; /* neither step falls; several may go by one bound_at */
    char *reason, *outcome, *words;
    double predicted_seconds, dense_seconds, bound_seconds, half_seconds, double_seconds;
    double alpha, budget, error, noise_ratio, link_bytes_per_second, latency_seconds;
    double dense_bytes, measure_seconds, solve_seconds, waited;
    gw_run_file_travel *layers; /* n_layers */
} gw_run_file_auto;

typedef struct gw_run_file_watch {
    uint64_t step; /* always rising */
    double measured_seconds, predicted_seconds, expected_seconds, error, budget, noise_ratio, loss;
} gw_run_file_watch;

typedef struct gw_run_file {
    unsigned
        format; /* N of gradwire.run/N; before 3 an auto run's layers are not what it began with */
    char *gradwire, *started, *state;
    char *error; /* NULL unless failed */
    gw_run_file_config config;
    uint64_t weights;
    uint64_t summed; /* steps whose bytes the layers have: those of run.json */
    gw_run_file_layer *layers;
    size_t n_layers;
    gw_run_file_step *steps;
    size_t n_steps;
    gw_run_file_test *tests;
    size_t n_tests;
    gw_run_file_sample *samples;
    size_t n_samples;
    gw_run_file_adapt *adapt; /* only of a run whose spec begins with "adapt" */
    size_t n_adapt;
    gw_run_file_auto *decisions; /* `auto`; it and watch only of a run whose spec begins so */
    size_t n_decisions;
    gw_run_file_watch *watch;
    size_t n_watch;
} gw_run_file;

/* Reads a whole run: run.json, and from gradwire.run/2 on the folder's history.jsonl (NULL: there is none). Any bytes may be
 * given: on false `why` says what is wrong and at which path, and *run is untouched. */
bool gw_run_file_parse(const uint8_t *file, size_t size, const uint8_t *history,
                       size_t history_size, gw_run_file *run, char *why, size_t why_size);
void gw_run_file_free(gw_run_file *run);

#endif
