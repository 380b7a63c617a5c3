/* Levels chosen during training, as the run folder has them; see train_adapt.h. */
#include "cli/train/train_adapt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/rank.h"

typedef gw_cli_run_adapt record;
static const gw_cli_field ITEMS[] = {GW_CLI_FIELD(record, step, COUNT),
                                     GW_CLI_FIELD(record, bound_at, COUNT),
                                     GW_CLI_FIELD(record, alpha, NUMBER),
                                     GW_CLI_FIELD(record, budget, NUMBER),
                                     GW_CLI_FIELD(record, error, NUMBER),
                                     GW_CLI_FIELD(record, bytes, COUNT),
                                     GW_CLI_FIELD(record, uniform_bytes, COUNT),
                                     GW_CLI_FIELD(record, lower_bound_bytes, COUNT),
                                     GW_CLI_FIELD(record, waited, COUNT),
                                     GW_CLI_FIELD(record, measure_seconds, NUMBER),
                                     GW_CLI_FIELD(record, solve_seconds, NUMBER),
                                     GW_CLI_FIELD(record, outcome, TEXT),
                                     GW_CLI_FIELD(record, words, TEXT)};
static const gw_cli_fields ADAPT = {ITEMS, sizeof ITEMS / sizeof *ITEMS};

bool gw_cli_run_adapts(const gw_cli_run *run)
{
    return gw_adapt_spec_is(run->config.spec);
}

/* Room for one more record and its specs; NULL: no memory. */
static record *add(gw_cli_run *run)
{
    void *items = run->adapt;
    const bool fine = gw_cli_records_grow(&items, run->n_adapt, sizeof *run->adapt);
    run->adapt = items;
    record to = {.specs = fine ? calloc(run->n_layers + 1, sizeof *to.specs) : NULL};
    if (!to.specs) {
        return NULL;
    }
    run->adapt[run->n_adapt] = to;
    return &run->adapt[run->n_adapt++];
}

gw_status gw_cli_adapt_note(gw_cli_run *run, const rank *r, gw_why *why)
{
    static const char *const OUTCOMES[] = {"switched", "same",    "small_gain",
                                           "default",  "nothing", "failed"};
    gw_step_decision d;
    uint64_t n = 0;
    if (gw_step_adapt_last(r->step, &n, &d) != GW_OK || n == 0 ||
        (run->n_adapt > 0 && run->adapt[run->n_adapt - 1].bound_at == d.bound_at + 1)) {
        return GW_OK;
    }
    record *to = add(run);
    if (!to) {
        return gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory to note a choice");
    }
    to->step = d.step + 1;
    to->bound_at = d.bound_at + 1;
    to->alpha = d.alpha;
    to->budget = d.budget;
    to->error = d.error;
    to->bytes = d.bytes;
    to->uniform_bytes = d.uniform_bytes;
    to->lower_bound_bytes = d.lower_bound;
    to->waited = d.waited;
    to->measure_seconds = d.measure_seconds;
    to->solve_seconds = d.solve_seconds;
    to->outcome = OUTCOMES[d.outcome];
    to->words = strdup(d.text);
    to->own_words = true;
    for (uint32_t i = 0; i < run->n_layers; i++) {
        gw_params params;
        gw_route route;
        if (gw_step_planned(r->step, i, &params, &route) != GW_OK || !params.codec ||
            gw_params_print(&params, to->specs[i], sizeof to->specs[i]) != GW_OK) {
            (void)snprintf(to->specs[i], sizeof to->specs[i], "dense");
        }
    }
    return to->words ? GW_OK : gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory for words");
}

static void release(const record *one)
{
    free(one->specs);
    if (one->own_words) {
        free((void *)(uintptr_t)one->words);
    }
}

void gw_cli_adapt_trim(gw_cli_run *run)
{
    const size_t written = run->written.adapt;
    const size_t drop = written == run->n_adapt && written > 0 ? written - 1 : written;
    for (size_t i = 0; i < drop; i++) {
        release(&run->adapt[i]);
    }
    if (drop > 0) {
        run->n_adapt -= drop;
        run->written.adapt -= drop;
        memmove(run->adapt, run->adapt + drop, run->n_adapt * sizeof *run->adapt);
    }
}

void gw_cli_adapt_cut(gw_cli_run *run, uint64_t last)
{
    while (run->n_adapt > 0 && run->adapt[run->n_adapt - 1].bound_at > last + 1) {
        release(&run->adapt[--run->n_adapt]);
    }
}

void gw_cli_adapt_free(gw_cli_run *run)
{
    while (run->n_adapt > 0) {
        release(&run->adapt[--run->n_adapt]);
    }
    free(run->adapt);
    run->adapt = NULL;
}

/* ---- run.json ---- */

json_t *gw_cli_adapt_json(const gw_cli_run *run)
{
    json_t *array = gw_cli_records_json(&ADAPT, run->adapt, run->n_adapt, sizeof *run->adapt);
    for (size_t i = 0; array && i < run->n_adapt; i++) {
        json_t *specs = json_array();
        for (size_t l = 0; specs && l < run->n_layers; l++) {
            (void)json_array_append_new(specs, json_string(run->adapt[i].specs[l]));
        }
        if (json_object_set_new(json_array_get(array, i), "layers", specs) != 0) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}
