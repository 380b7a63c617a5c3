/* What `auto` decided and saw, as the run folder has it; see train_auto.h. */
#include "cli/train/train_auto.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef gw_cli_run_auto decision;
typedef gw_cli_run_watch window;
typedef gw_cli_run_travel travel;

static const gw_cli_field DECISION_FIELDS[] = {
    GW_CLI_FIELD(decision, step, COUNT),
    GW_CLI_FIELD(decision, bound_at, COUNT),
    GW_CLI_FIELD(decision, reason, TEXT),
    GW_CLI_FIELD(decision, outcome, TEXT),
    GW_CLI_FIELD(decision, words, TEXT),
    GW_CLI_FIELD(decision, predicted_seconds, NUMBER),
    GW_CLI_FIELD(decision, dense_seconds, NUMBER),
    GW_CLI_FIELD(decision, bound_seconds, NUMBER),
    GW_CLI_FIELD(decision, half_seconds, NUMBER),
    GW_CLI_FIELD(decision, double_seconds, NUMBER),
    GW_CLI_FIELD(decision, alpha, NUMBER),
    GW_CLI_FIELD(decision, budget, NUMBER),
    GW_CLI_FIELD(decision, error, NUMBER),
    GW_CLI_FIELD(decision, noise_ratio, NUMBER),
    GW_CLI_FIELD(decision, link_bytes_per_second, NUMBER),
    GW_CLI_FIELD(decision, latency_seconds, NUMBER),
    GW_CLI_FIELD(decision, bytes, COUNT),
    GW_CLI_FIELD(decision, dense_bytes, NUMBER),
    GW_CLI_FIELD(decision, measure_seconds, NUMBER),
    GW_CLI_FIELD(decision, solve_seconds, NUMBER),
    GW_CLI_FIELD(decision, waited, NUMBER),
};
static const gw_cli_fields DECISION = {DECISION_FIELDS,
                                       sizeof DECISION_FIELDS / sizeof *DECISION_FIELDS};

static const gw_cli_field TRAVEL_FIELDS[] = {GW_CLI_FIELD(travel, spec, TEXT),
                                             GW_CLI_FIELD(travel, route, TEXT)};
static const gw_cli_fields TRAVEL = {TRAVEL_FIELDS, sizeof TRAVEL_FIELDS / sizeof *TRAVEL_FIELDS};

static const gw_cli_field WINDOW_FIELDS[] = {
    GW_CLI_FIELD(window, step, COUNT),
    GW_CLI_FIELD(window, measured_seconds, NUMBER),
    GW_CLI_FIELD(window, predicted_seconds, NUMBER),
    GW_CLI_FIELD(window, expected_seconds, NUMBER),
    GW_CLI_FIELD(window, error, NUMBER),
    GW_CLI_FIELD(window, budget, NUMBER),
    GW_CLI_FIELD(window, noise_ratio, NUMBER),
    GW_CLI_FIELD(window, loss, NUMBER),
};
static const gw_cli_fields WINDOW = {WINDOW_FIELDS, sizeof WINDOW_FIELDS / sizeof *WINDOW_FIELDS};

bool gw_cli_run_is_auto(const gw_cli_run *run)
{
    return gw_run_spec_is(run->config.spec, "auto");
}

/* Spec and route of a layer from the next step on. */
static void print_planned(const rank *r, uint32_t number, char spec[GW_CLI_RUN_SPEC],
                          char route[GW_ROUTE_TEXT])
{
    gw_params params = {.codec = NULL};
    gw_route by = {0};
    (void)gw_step_planned(r->step, number, &params, &by);
    if (!params.codec || gw_params_print(&params, spec, GW_CLI_RUN_SPEC) != GW_OK) {
        (void)snprintf(spec, GW_CLI_RUN_SPEC, "dense");
    }
    if (gw_route_name_of(&by, route, GW_ROUTE_TEXT) != GW_OK) {
        (void)gw_route_print(&by, route, GW_ROUTE_TEXT);
    }
}

static void note_layers(const gw_cli_run *run, decision *to, const rank *r)
{
    for (uint32_t i = 0; i < run->n_layers; i++) {
        print_planned(r, i, to->layers[i].spec_text, to->layers[i].route_text);
    }
}

void gw_cli_auto_describe(gw_cli_run *run, const rank *r)
{
    for (uint32_t i = 0; i < run->n_layers && gw_cli_run_is_auto(run); i++) {
        print_planned(r, i, run->layers[i].spec_text, run->layers[i].route_text);
    }
}

static gw_status note_decision(gw_cli_run *run, const rank *r, const gw_auto_decision *d,
                               gw_why *why)
{
    decision *to = gw_cli_auto_add(run);
    if (!to) {
        return gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory to note a decision");
    }
    to->step = d->step + 1;
    to->bound_at = d->bound_at + 1;
    to->reason = gw_auto_reason_name(d->reason);
    to->outcome = gw_auto_outcome_name(d->outcome);
    to->predicted_seconds = d->predicted_seconds;
    to->dense_seconds = d->dense_seconds;
    to->bound_seconds = d->bound_seconds;
    to->half_seconds = d->half_seconds;
    to->double_seconds = d->double_seconds;
    to->alpha = d->alpha;
    to->budget = d->budget;
    to->error = d->error;
    to->noise_ratio = d->noise_ratio;
    to->link_bytes_per_second = d->link_bytes_per_second;
    to->latency_seconds = d->latency_seconds;
    to->bytes = d->bytes;
    to->dense_bytes = (double)d->dense_bytes;
    to->measure_seconds = d->measure_seconds;
    to->solve_seconds = d->solve_seconds;
    to->waited = d->waited;
    to->words = strdup(d->text);
    to->own_words = true;
    note_layers(run, to, r);
    return to->words ? GW_OK : gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory for words");
}

static gw_status note_window(gw_cli_run *run, const gw_auto_watch *w, gw_why *why)
{
    window *to = gw_cli_watch_add(run);
    if (!to) {
        return gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory to note a window");
    }
    *to = (window){.step = w->step + 1,
                   .measured_seconds = w->measured_seconds,
                   .predicted_seconds = w->predicted_seconds,
                   .expected_seconds = w->expected_seconds,
                   .error = w->error,
                   .budget = w->budget,
                   .noise_ratio = w->noise_ratio,
                   .loss = w->loss};
    return GW_OK;
}

gw_status gw_cli_auto_note(gw_cli_run *run, const rank *r, gw_why *why)
{
    gw_auto_decision d;
    gw_auto_watch w;
    uint64_t n = 0;
    gw_status status = GW_OK;
    if (gw_step_auto_watched(r->step, &n, &w) == GW_OK && n > 0 &&
        (run->n_watch == 0 || run->watch[run->n_watch - 1].step < w.step + 1)) {
        status = note_window(run, &w, why);
    }
    n = 0;
    if (status == GW_OK && gw_step_auto_last(r->step, &n, &d) == GW_OK && n > 0 &&
        (run->n_decisions == 0 || run->decisions[run->n_decisions - 1].bound_at < d.bound_at + 1)) {
        status = note_decision(run, r, &d, why);
    }
    return status;
}

/* ---- one more, fewer ---- */

/* Every number of a record is unknown. */
static void forget(const gw_cli_fields *fields, void *record)
{
    for (size_t i = 0; i < fields->count; i++) {
        if (fields->items[i].kind == GW_CLI_FIELD_NUMBER) {
            *(double *)(void *)((char *)record + fields->items[i].offset) = (double)NAN;
        }
    }
}

decision *gw_cli_auto_add(gw_cli_run *run)
{
    void *items = run->decisions;
    const bool fine = gw_cli_records_grow(&items, run->n_decisions, sizeof *run->decisions);
    run->decisions = items;
    decision to = {.layers = fine ? calloc(run->n_layers + 1, sizeof *to.layers) : NULL};
    if (!to.layers) {
        return NULL;
    }
    forget(&DECISION, &to);
    for (size_t i = 0; i < run->n_layers; i++) {
        to.layers[i].spec = to.layers[i].spec_text;
        to.layers[i].route = to.layers[i].route_text;
    }
    run->decisions[run->n_decisions] = to;
    return &run->decisions[run->n_decisions++];
}

window *gw_cli_watch_add(gw_cli_run *run)
{
    void *items = run->watch;
    const bool fine = gw_cli_records_grow(&items, run->n_watch, sizeof *run->watch);
    run->watch = items;
    if (!fine) {
        return NULL;
    }
    run->watch[run->n_watch] = (window){0};
    forget(&WINDOW, &run->watch[run->n_watch]);
    return &run->watch[run->n_watch++];
}

static void release(const decision *one)
{
    free(one->layers);
    if (one->own_words) {
        free((void *)(uintptr_t)one->words);
    }
}

const char *const GW_CLI_AUTO_REASON[GW_CLI_AUTO_REASONS] = {
    "start", "periodic",  "slower",     "faster",   "error",
    "quiet", "diverging", "non_finite", "recovered"};

static void count_reasons(const decision *all, size_t n, uint64_t *counts)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t r = 0; r < GW_CLI_AUTO_REASONS; r++) {
            counts[r] += strcmp(all[i].reason, GW_CLI_AUTO_REASON[r]) == 0;
        }
    }
}

void gw_cli_auto_count(const gw_cli_run *run, uint64_t counts[GW_CLI_AUTO_REASONS])
{
    memcpy(counts, run->forgotten, sizeof run->forgotten);
    count_reasons(run->decisions, run->n_decisions, counts);
}

void gw_cli_auto_trim(gw_cli_run *run)
{
    const size_t written = run->written.decisions;
    const size_t drop = written == run->n_decisions && written > 0 ? written - 1 : written;
    count_reasons(run->decisions, drop, run->forgotten);
    for (size_t i = 0; i < drop; i++) {
        release(&run->decisions[i]);
    }
    if (drop > 0) {
        run->n_decisions -= drop;
        run->written.decisions -= drop;
        memmove(run->decisions, run->decisions + drop, run->n_decisions * sizeof *run->decisions);
    }
}

/* A decision that was not in force yet is taken again, as a choice of `adapt` is. */
void gw_cli_auto_cut(gw_cli_run *run, uint64_t last)
{
    while (run->n_decisions > 0 && (run->decisions[run->n_decisions - 1].step > last ||
                                    run->decisions[run->n_decisions - 1].bound_at > last + 1)) {
        release(&run->decisions[--run->n_decisions]);
    }
    while (run->n_watch > 0 && run->watch[run->n_watch - 1].step > last) {
        run->n_watch--;
    }
}

void gw_cli_auto_free(gw_cli_run *run)
{
    while (run->n_decisions > 0) {
        release(&run->decisions[--run->n_decisions]);
    }
    free(run->decisions);
    free(run->watch);
    run->decisions = NULL;
    run->watch = NULL;
    run->n_watch = 0;
}

/* ---- run.json ---- */

static json_t *decisions_json(const gw_cli_run *run)
{
    json_t *array =
        gw_cli_records_json(&DECISION, run->decisions, run->n_decisions, sizeof *run->decisions);
    for (size_t i = 0; array && i < run->n_decisions; i++) {
        json_t *layers = gw_cli_records_json(&TRAVEL, run->decisions[i].layers, run->n_layers,
                                             sizeof *run->decisions[i].layers);
        if (json_object_set_new(json_array_get(array, i), "layers", layers) != 0) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}

bool gw_cli_auto_json(const gw_cli_run *run, json_t *root)
{
    return json_object_set_new(root, "auto", decisions_json(run)) == 0 &&
           json_object_set_new(
               root, "watch",
               gw_cli_records_json(&WINDOW, run->watch, run->n_watch, sizeof *run->watch)) == 0;
}
