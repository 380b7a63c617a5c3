/* A run folder, read by libgradwire_files into what a training goes on with; see train_run.h. */
#include "cli/train/train_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/train/train_files.h"

static gw_status no_memory(const gw_cli_run *run, gw_why *why)
{
    return gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory to read %.120s", run->folder);
}

/* ---- from the file's records ---- */

static void take_head(gw_cli_run *run)
{
    static const char *const states[] = {"running", "finished", "interrupted", "failed"};
    const gw_run_file *from = run->read;
    const gw_run_file_config *c = &from->config;
    (void)snprintf(run->started, sizeof run->started, "%s", from->started);
    for (size_t i = 0; i < 4; i++) {
        run->state = strcmp(from->state, states[i]) == 0 ? states[i] : run->state;
    }
    run->weights = from->weights;
    run->config = (gw_cli_run_config){.model = c->model,
                                      .engine = c->engine,
                                      .spec = c->spec,
                                      .route = c->route,
                                      .optimiser = c->optimiser,
                                      .schedule = c->schedule,
                                      .data = c->data,
                                      .plan = c->plan,
                                      .plan_checksum = c->plan_checksum,
                                      .ranks = c->ranks,
                                      .ranks_per_node = c->ranks_per_node,
                                      .batch = c->batch,
                                      .steps = c->steps,
                                      .seed = c->seed,
                                      .fuse_below = c->fuse_below,
                                      .warmup = (uint64_t)c->warmup,
                                      .link = c->link_bytes_per_second,
                                      .latency = c->latency_seconds,
                                      .rate = c->rate,
                                      .momentum = c->momentum,
                                      .decay = c->decay};
}

static bool take_layers(gw_cli_run *run)
{
    const gw_run_file *from = run->read;
    run->layers = calloc(from->n_layers + 1, sizeof *run->layers);
    for (; run->layers && run->n_layers < from->n_layers; run->n_layers++) {
        const gw_run_file_layer *l = &from->layers[run->n_layers];
        run->layers[run->n_layers] = (gw_cli_run_layer){.name = l->name,
                                                        .kind = l->kind,
                                                        .spec = l->spec,
                                                        .route = l->route,
                                                        .elements = l->elements,
                                                        .bytes_sent = l->bytes_sent,
                                                        .dense_bytes = l->dense_bytes,
                                                        .far_bytes_sent = l->far_bytes_sent,
                                                        .far_dense_bytes = l->far_dense_bytes,
                                                        .fused = l->fused};
    }
    return run->layers != NULL;
}

/* Moves an array whose records are the same in the file. Its room becomes a power of two: gw_cli_records_grow expects that. */
static bool take_records(void **from, size_t *n_from, size_t size, void **to, size_t *n)
{
    size_t room = 1;
    while (room < *n_from + 1) {
        room *= 2;
    }
    *to = realloc(*from, room * size);
    if (*to) {
        *n = *n_from;
        *from = NULL;
        *n_from = 0;
    }
    return *to;
}

static bool take_adapt(gw_cli_run *run)
{
    for (size_t i = 0; i < run->read->n_adapt; i++) {
        const gw_run_file_adapt *from = &run->read->adapt[i];
        void *items = run->adapt;
        gw_cli_run_adapt one = {.step = from->step,
                                .bound_at = from->bound_at,
                                .bytes = from->bytes,
                                .uniform_bytes = from->uniform_bytes,
                                .lower_bound_bytes = from->lower_bound_bytes,
                                .waited = from->waited,
                                .alpha = from->alpha,
                                .budget = from->budget,
                                .error = from->error,
                                .measure_seconds = from->measure_seconds,
                                .solve_seconds = from->solve_seconds,
                                .outcome = from->outcome,
                                .words = from->words,
                                .specs = calloc(run->n_layers + 1, sizeof *one.specs)};
        const bool fine = gw_cli_records_grow(&items, run->n_adapt, sizeof one);
        run->adapt = items;
        if (!fine || !one.specs) {
            free(one.specs);
            return false;
        }
        for (size_t l = 0; l < run->n_layers; l++) {
            (void)snprintf(one.specs[l], sizeof one.specs[l], "%s", from->specs[l]);
        }
        run->adapt[run->n_adapt++] = one;
    }
    return true;
}

static bool take_decisions(gw_cli_run *run)
{
    for (size_t i = 0; i < run->read->n_decisions; i++) {
        const gw_run_file_auto *from = &run->read->decisions[i];
        void *items = run->decisions;
        gw_cli_run_auto one = {.step = from->step,
                               .bound_at = from->bound_at,
                               .bytes = from->bytes,
                               .predicted_seconds = from->predicted_seconds,
                               .dense_seconds = from->dense_seconds,
                               .bound_seconds = from->bound_seconds,
                               .half_seconds = from->half_seconds,
                               .double_seconds = from->double_seconds,
                               .alpha = from->alpha,
                               .budget = from->budget,
                               .error = from->error,
                               .noise_ratio = from->noise_ratio,
                               .link_bytes_per_second = from->link_bytes_per_second,
                               .latency_seconds = from->latency_seconds,
                               .dense_bytes = from->dense_bytes,
                               .measure_seconds = from->measure_seconds,
                               .solve_seconds = from->solve_seconds,
                               .waited = from->waited,
                               .reason = from->reason,
                               .outcome = from->outcome,
                               .words = from->words,
                               .layers = calloc(run->n_layers + 1, sizeof *one.layers)};
        const bool fine = gw_cli_records_grow(&items, run->n_decisions, sizeof one);
        run->decisions = items;
        if (!fine || !one.layers) {
            free(one.layers);
            return false;
        }
        for (size_t l = 0; l < run->n_layers; l++) {
            one.layers[l].spec = from->layers[l].spec;
            one.layers[l].route = from->layers[l].route;
        }
        run->decisions[run->n_decisions++] = one;
    }
    return true;
}

/* In order, one after the other: what is cut off later relies on it. */
static gw_status check_steps(const gw_cli_run *run, gw_why *why)
{
    for (size_t i = 0; i < run->n_steps; i++) {
        if (run->steps[i].step != i + 1) {
            return gw_cli_train_fail(why, GW_ERR_CORRUPT, "%.120s: step %llu is followed by %llu",
                                     run->folder, (unsigned long long)i,
                                     (unsigned long long)run->steps[i].step);
        }
    }
    return GW_OK;
}

static gw_status take_all(gw_cli_run *run, gw_why *why)
{
    gw_run_file *f = run->read;
    take_head(run);
#define TAKE(items, n)                                                                             \
    take_records((void **)&f->items, &f->n, sizeof *f->items, (void **)&run->items, &run->n)
    const bool fine = take_layers(run) && take_adapt(run) && take_decisions(run) &&
                      TAKE(steps, n_steps) && TAKE(tests, n_tests) && TAKE(samples, n_samples) &&
                      TAKE(watch, n_watch);
#undef TAKE
    if (!fine) {
        return no_memory(run, why);
    }
    gw_cli_run_count(run);
    return check_steps(run, why);
}

/* ---- the files ---- */

/* run.json first: what it knows the history has. */
static gw_status load(const gw_cli_run *run, const char *name, void **bytes, size_t *size,
                      gw_why *why)
{
    char path[GW_CLI_RUN_PATH];
    const gw_status status = gw_cli_path(path, sizeof path, run->folder, name, why);
    return status == GW_OK ? gw_cli_file_load(path, bytes, size, why) : status;
}

static bool has_history(const gw_cli_run *run)
{
    char path[GW_CLI_RUN_PATH];
    return gw_cli_path(path, sizeof path, run->folder, "history.jsonl", &(gw_why){""}) == GW_OK &&
           access(path, F_OK) == 0;
}

gw_status gw_cli_run_read(gw_cli_run *run, gw_why *why)
{
    char reason[200] = "";
    void *head = NULL, *history = NULL;
    size_t head_size = 0, history_size = 0;
    gw_run_file *read = calloc(1, sizeof *read);
    if (!read) {
        return no_memory(run, why);
    }
    gw_status status = load(run, "run.json", &head, &head_size, why);
    if (status == GW_OK && has_history(run)) {
        status = load(run, "history.jsonl", &history, &history_size, why);
    }
    if (status == GW_OK &&
        !gw_run_file_parse(head, head_size, history, history_size, read, reason, sizeof reason)) {
        status = gw_cli_train_fail(why, GW_ERR_CORRUPT, "%.80s/run.json: %s", run->folder, reason);
    }
    free(head);
    free(history);
    if (status != GW_OK) {
        free(read);
        return status;
    }
    run->read = read;
    return take_all(run, why);
}
