/* A training run: what was asked for and what happened, as docs/run-format.md has it. */
#ifndef GW_CLI_TRAIN_RUN_H
#define GW_CLI_TRAIN_RUN_H

#include <gradwire/gradwire.h>

#include "cli/train/train_record.h"
#include "files/run_read.h"

enum { GW_CLI_RUN_PATH = 1024, GW_CLI_RUN_SPEC = 192, GW_CLI_AUTO_REASONS = 9 };
enum { GW_CLI_RECENT = 20 /* steps that stay in memory */ };

typedef struct gw_cli_run_config {
    const char *model, *engine, *spec, *route, *optimiser, *schedule, *data;
    const char *plan, *plan_checksum; /* the file; NULL: none */
    uint64_t ranks, ranks_per_node, batch, steps, seed, fuse_below, warmup;
    double link, latency; /* bytes a second, seconds */
    double rate, momentum, decay;
} gw_cli_run_config;

typedef struct gw_cli_run_layer {
    const char *name, *kind, *spec, *route;
    uint64_t elements, bytes_sent, dense_bytes;
    uint64_t far_bytes_sent, far_dense_bytes; /* of these, to other nodes */
    bool fused;
    char name_text[80], spec_text[GW_CLI_RUN_SPEC],
        route_text[GW_ROUTE_TEXT]; /* of a run that is under way */
} gw_cli_run_layer;

/* What a run's files hold as it is. */
typedef gw_run_file_step gw_cli_run_step;
typedef gw_run_file_test gw_cli_run_test;
typedef gw_run_file_sample_layer gw_cli_sample_layer;
typedef gw_run_file_sample gw_cli_run_sample;
typedef gw_run_file_watch gw_cli_run_watch;

/* A choice of levels; steps count from 1. */
typedef struct gw_cli_run_adapt {
    uint64_t step, bound_at, bytes, uniform_bytes, lower_bound_bytes, waited;
    double alpha, budget, error, measure_seconds, solve_seconds;
    const char *outcome, *words;
    bool own_words;                 /* to be freed */
    char (*specs)[GW_CLI_RUN_SPEC]; /* of as many layers as the run has */
} gw_cli_run_adapt;

/* How a layer travels. Read: the words lie in gw_cli_run.read; else in the texts. */
typedef struct gw_cli_run_travel {
    const char *spec, *route; /* "dense" where nothing is coded */
    char spec_text[GW_CLI_RUN_SPEC], route_text[GW_ROUTE_TEXT];
} gw_cli_run_travel;

/* A decision of `auto`; steps count from 1, numbers that are not known are NaN. */
typedef struct gw_cli_run_auto {
    uint64_t step, bound_at, bytes;
    double predicted_seconds, dense_seconds, bound_seconds, half_seconds, double_seconds;
    double alpha, budget, error, noise_ratio, link_bytes_per_second, latency_seconds;
    double dense_bytes, measure_seconds, solve_seconds, waited;
    const char *reason, *outcome, *words;
    bool own_words;            /* to be freed */
    gw_cli_run_travel *layers; /* of as many as the run has */
} gw_cli_run_auto;

/* Sums over all steps of a run, also those that are no longer in memory. */
typedef struct gw_cli_run_totals {
    uint64_t steps, bytes_sent, dense_bytes, far_bytes_sent, far_dense_bytes, non_finite;
    double seconds, wait_seconds;
} gw_cli_run_totals;

/* Of each array in memory: how many of its first records history.jsonl holds already. */
typedef struct gw_cli_run_written {
    size_t steps, tests, samples, adapt, decisions, watch;
} gw_cli_run_written;

/* Starts zeroed. The arrays hold all that happened after gw_cli_run_read. While a run is under way they hold its last
 * records only: those that train_history.h has not written yet, and a few before them. */
typedef struct gw_cli_run {
    char folder[GW_CLI_RUN_PATH];
    gw_cli_run_config config;
    char started[32];
    const char *state;
    gw_why error; /* words, if it failed */
    uint64_t weights;
    gw_cli_run_layer *layers;
    size_t n_layers;
    gw_cli_run_step *steps;
    size_t n_steps;
    gw_cli_run_test *tests;
    size_t n_tests;
    gw_cli_run_sample *samples;
    size_t n_samples;
    gw_cli_run_adapt *adapt;
    size_t n_adapt;
    gw_cli_run_auto *decisions; /* `auto` of run.json */
    size_t n_decisions;
    gw_cli_run_watch *watch;
    size_t n_watch;
    gw_cli_run_totals done;
    gw_cli_run_written written;
    bool history;    /* history.jsonl holds what was written: it has begun */
    double appended; /* gw_cli_now() when history.jsonl was last appended to */
    uint64_t forgotten[GW_CLI_AUTO_REASONS]; /* decisions that are no longer in memory, by reason */
    gw_run_file *read;                       /* words of a run that was read lie in it */
} gw_cli_run;

extern const gw_cli_fields GW_CLI_RUN_CONFIG; /* of gw_cli_run_config */

/* False: no memory. */
bool gw_cli_run_add_step(gw_cli_run *run, const gw_cli_run_step *step);
bool gw_cli_run_add_test(gw_cli_run *run, const gw_cli_run_test *test);
/* A sample whose layers are zeros; NULL: no memory. */
gw_cli_run_sample *gw_cli_run_add_sample(gw_cli_run *run);
/* Drops what came after step `last`, of a run whose records are all in memory. */
void gw_cli_run_cut(gw_cli_run *run, uint64_t last);
/* Sums up the steps in memory: all there are. */
void gw_cli_run_count(gw_cli_run *run);
/* Drops from memory what is written, but for the last steps and the last record of each kind. */
void gw_cli_run_trim(gw_cli_run *run);
void gw_cli_run_drop(gw_cli_run *run); /* takes all as written, and drops it */
void gw_cli_run_free(gw_cli_run *run);

bool gw_cli_run_adapts(const gw_cli_run *run); /* its spec says so */
/* As the functions of all of it, for `adapt`. */
void gw_cli_adapt_cut(gw_cli_run *run, uint64_t last);
void gw_cli_adapt_trim(gw_cli_run *run);
void gw_cli_adapt_free(gw_cli_run *run);
json_t *gw_cli_adapt_json(const gw_cli_run *run);

bool gw_cli_run_is_auto(const gw_cli_run *run); /* its spec says so */
/* The same for `auto` and `watch`. */
void gw_cli_auto_cut(gw_cli_run *run, uint64_t last);
void gw_cli_auto_trim(gw_cli_run *run);
void gw_cli_auto_free(gw_cli_run *run);
bool gw_cli_auto_json(const gw_cli_run *run, json_t *root); /* sets both; false: no memory */

/* run.json without `summary`, with the records as arrays; NULL: no memory. */
json_t *gw_cli_run_json(const gw_cli_run *run);
/* The arrays of the records in memory: an object with `steps`, `tests` and so on; NULL: no memory. */
json_t *gw_cli_run_arrays(const gw_cli_run *run);
/* run.json of run->folder, beside and renamed. The history is written before. */
gw_status gw_cli_run_write(const gw_cli_run *run, gw_why *why);
/* The run in run->folder, of this format or one before, strictly and all of it. */
gw_status gw_cli_run_read(gw_cli_run *run, gw_why *why);

#endif
