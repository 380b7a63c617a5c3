/* What was chosen while training, for the page: levels (`adapt`), plans (`auto`); see report.h. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gradwire/gradwire.h>

#include "cli/json_out.h"
#include "cli/report/report.h"

/* ---- layers over steps ---- */

/* How many times smaller than fp32 a payload of such a layer is; null where the spec is not known here. */
static json_t *spec_ratio(const char *spec, uint64_t elements)
{
    gw_params params;
    gw_why why;
    size_t bytes = 0;
    if (strcmp(spec, "dense") == 0) {
        return json_real(1);
    }
    return gw_params_parse(&params, spec, &why) == GW_OK && elements < (uint64_t)1 << 40 &&
                   gw_payload_bound(&params, (size_t)elements, &bytes) == GW_OK && bytes > 0
               ? gw_cli_json_number(4 * (double)elements / (double)bytes)
               : json_null();
}

/* What a layer is sent by from a step on. */
typedef struct sending {
    uint64_t from;
    const char *spec, *route;
} sending;

/* Before gradwire.run/3 an auto run says "dense" of layers that were sent by its default. */
static bool knows_begin(const gw_run_file *run)
{
    return run->format >= 3 || !gw_run_spec_is(run->config.spec, "auto");
}

/* After n choices, which are those of `auto` or of `adapt`, whose routes stay. */
static sending sending_after(const gw_run_file *run, size_t n, size_t layer)
{
    const gw_run_file_layer *first = &run->layers[layer];
    if (n > 0 && run->n_decisions > 0) {
        const gw_run_file_auto *last = &run->decisions[n - 1];
        return (sending){last->bound_at, last->layers[layer].spec, last->layers[layer].route};
    }
    if (n > 0) {
        return (sending){run->adapt[n - 1].bound_at, run->adapt[n - 1].specs[layer], first->route};
    }
    const bool known = knows_begin(run) || first->fused;
    return (sending){1, known ? first->spec : "not recorded",
                     known ? first->route : "not recorded"};
}

static bool same_sending(const sending *a, const sending *b)
{
    return strcmp(a->spec, b->spec) == 0 && strcmp(a->route, b->route) == 0;
}

void gw_cli_report_in_force(const gw_run_file *run, size_t layer, const char **spec,
                            const char **route)
{
    const sending last =
        sending_after(run, run->n_decisions > 0 ? run->n_decisions : run->n_adapt, layer);
    *spec = last.spec;
    *route = last.route;
}

static json_t *part_json(const sending *w, uint64_t elements)
{
    return json_pack("[I, s, o, s]", (json_int_t)w->from, w->spec, spec_ratio(w->spec, elements),
                     w->route);
}

/* [step, spec, ratio, route] of each layer that is ever coded, where it changes. */
static json_t *rows_json(const gw_run_file *run, size_t n_choices)
{
    json_t *rows = json_array();
    for (size_t l = 0; l < run->n_layers; l++) {
        const gw_run_file_layer *layer = &run->layers[l];
        sending now = sending_after(run, 0, l);
        bool coded = strcmp(now.spec, "dense") != 0;
        json_t *parts = json_array();
        json_array_append_new(parts, part_json(&now, layer->elements));
        for (size_t i = 0; i < n_choices; i++) {
            const sending next = sending_after(run, i + 1, l);
            if (!same_sending(&next, &now)) {
                json_array_append_new(parts, part_json(&next, layer->elements));
                coded = coded || strcmp(next.spec, "dense") != 0;
                now = next;
            }
        }
        if (coded) {
            json_array_append_new(rows,
                                  json_pack("{s:s, s:O}", "name", layer->name, "parts", parts));
        }
        json_decref(parts);
    }
    return rows;
}

static json_int_t last_step(const gw_run_file *run)
{
    return (json_int_t)(run->n_steps ? run->steps[run->n_steps - 1].step : 1);
}

json_t *gw_cli_report_adapt(const gw_cli_way *way)
{
    const gw_run_file *run = &way->runs[0].run;
    return run->n_adapt == 0 ? json_null()
                             : json_pack("{s:o, s:I}", "rows", rows_json(run, run->n_adapt),
                                         "steps", last_step(run));
}

/* ---- auto ---- */

/* By decision i some layer has another codec or another route. */
static bool changed(const gw_run_file *run, size_t i)
{
    if (i == 0 && !knows_begin(run)) {
        return strcmp(run->decisions[0].outcome, "switched") == 0 ||
               strcmp(run->decisions[0].outcome, "dense") == 0;
    }
    bool found = false;
    for (size_t l = 0; l < run->n_layers && !found; l++) {
        const sending before = sending_after(run, i, l), after = sending_after(run, i + 1, l);
        found = !same_sending(&before, &after);
    }
    return found;
}

static double median_off(const gw_cli_way *way)
{
    size_t most = 0, n = 0;
    for (size_t r = 0; r < way->n_counted; r++) {
        most += way->runs[r].run.n_watch;
    }
    double *off = malloc((most + 1) * sizeof *off), median = NAN;
    for (size_t r = 0; off && r < way->n_counted; r++) {
        const gw_run_file *run = &way->runs[r].run;
        for (size_t i = 0; i < run->n_watch; i++) {
            const double value =
                fabs(run->watch[i].measured_seconds / run->watch[i].predicted_seconds - 1);
            if (isfinite(value)) {
                off[n++] = value;
            }
        }
    }
    if (off) {
        median = gw_cli_report_median(off, n);
    }
    free(off);
    return median;
}

bool gw_cli_report_count_auto(const gw_cli_way *way, gw_cli_report_autos *out)
{
    const gw_run_file *first = &way->runs[0].run;
    *out = (gw_cli_report_autos){0, 0, median_off(way), NAN, NAN, NAN, NAN, NAN, NAN};
    for (size_t r = 0; r < way->n_counted; r++) {
        const gw_run_file *run = &way->runs[r].run;
        out->decisions += run->n_decisions;
        for (size_t i = 0; i < run->n_decisions; i++) {
            out->switches += changed(run, i);
        }
    }
    for (size_t i = first->n_decisions; i-- > 0;) {
        const gw_run_file_auto *d = &first->decisions[i];
        if (isfinite(d->predicted_seconds) &&
            (isfinite(d->half_seconds) || isfinite(d->double_seconds) || i == 0)) {
            out->predicted_seconds = d->predicted_seconds;
            out->half_seconds = d->half_seconds;
            out->double_seconds = d->double_seconds;
            out->dense_seconds = d->dense_seconds;
            out->bound_seconds = d->bound_seconds;
            out->link_bytes_per_second = d->link_bytes_per_second;
            break;
        }
    }
    return gw_run_spec_is(first->config.spec, "auto");
}

/* All decisions, or where they are many those that changed the plan; the last GW_CLI_REPORT_POINTS of them. */
static json_t *decisions_json(const gw_run_file *run)
{
    json_t *array = json_array();
    size_t kept = 0;
    for (size_t i = run->n_decisions; i-- > 0 && kept < GW_CLI_REPORT_POINTS;) {
        const gw_run_file_auto *d = &run->decisions[i];
        if (run->n_decisions > GW_CLI_REPORT_POINTS && !changed(run, i)) {
            continue;
        }
        kept++;
        json_array_insert_new(
            array, 0,
            json_pack("{s:I, s:I, s:b, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "step",
                      (json_int_t)d->step, "bound", (json_int_t)d->bound_at, "changed",
                      changed(run, i), "reason", d->reason, "outcome", d->outcome, "words",
                      d->words, "predicted", gw_cli_json_number(d->predicted_seconds), "dense",
                      gw_cli_json_number(d->dense_seconds), "bytes", gw_cli_json_count(d->bytes),
                      "denseBytes", gw_cli_json_number(d->dense_bytes)));
    }
    return array;
}

/* Windows as [step, measured, predicted, expected, error, budget, noise ratio]. */
static json_t *watch_json(const gw_run_file *run)
{
    const size_t n = run->n_watch, points = n < GW_CLI_REPORT_POINTS ? n : GW_CLI_REPORT_POINTS;
    json_t *array = json_array();
    for (size_t p = 0; p < points; p++) {
        const gw_run_file_watch *w = &run->watch[gw_cli_report_thinned(p, points, n)];
        json_array_append_new(
            array, json_pack("[I, o, o, o, o, o, o]", (json_int_t)w->step,
                             gw_cli_json_number(w->measured_seconds),
                             gw_cli_json_number(w->predicted_seconds),
                             gw_cli_json_number(w->expected_seconds), gw_cli_json_number(w->error),
                             gw_cli_json_number(w->budget), gw_cli_json_number(w->noise_ratio)));
    }
    return array;
}

/* Steps as [step, sent, dense]. */
static json_t *bytes_json(const gw_run_file *run)
{
    const size_t n = run->n_steps, points = n < GW_CLI_REPORT_POINTS ? n : GW_CLI_REPORT_POINTS;
    json_t *array = json_array();
    for (size_t p = 0; p < points; p++) {
        const gw_run_file_step *s = &run->steps[gw_cli_report_thinned(p, points, n)];
        json_array_append_new(array, json_pack("[I, o, o]", (json_int_t)s->step,
                                               gw_cli_json_count(s->bytes_sent),
                                               gw_cli_json_count(s->dense_bytes)));
    }
    return array;
}

json_t *gw_cli_report_auto(const gw_cli_way *way)
{
    gw_cli_report_autos all;
    const gw_run_file *run = &way->runs[0].run;
    if (!gw_cli_report_count_auto(way, &all)) {
        return json_null();
    }
    json_t *rates = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o}", "half", gw_cli_json_number(all.half_seconds), "same",
        gw_cli_json_number(all.predicted_seconds), "double", gw_cli_json_number(all.double_seconds),
        "dense", gw_cli_json_number(all.dense_seconds), "bound",
        gw_cli_json_number(all.bound_seconds), "link",
        gw_cli_json_number(all.link_bytes_per_second));
    return json_pack("{s:o, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "rows",
                     rows_json(run, run->n_decisions), "steps", last_step(run), "taken",
                     (json_int_t)all.decisions, "switches", (json_int_t)all.switches, "off",
                     gw_cli_json_number(all.off), "rates", rates, "decisions", decisions_json(run),
                     "watch", watch_json(run), "bytes", bytes_json(run));
}
