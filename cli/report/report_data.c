/* The data of a report's charts; see report.h. Curves are thinned out to MOST_POINTS; report_choices.c has what
 * was chosen while training. */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "cli/json_out.h"
#include "cli/measure/compression.h"
#include "cli/report/report.h"

enum { MOST_POINTS = GW_CLI_REPORT_POINTS, WINDOWS = 50 };

/* Steps that a point of the loss curve is the mean of; odd. */
static size_t window_of(size_t n_steps)
{
    return n_steps / WINDOWS / 2 * 2 + 1;
}

/* A curve of a way: by step and by second, the mean over its runs, and their range. */
typedef struct curve {
    json_t *step, *seconds, *mean, *low, *high;
} curve;

static curve curve_new(void)
{
    return (curve){json_array(), json_array(), json_array(), json_array(), json_array()};
}

/* Values of the way's runs at one point; NaN are left out. */
static void curve_add(const curve *c, double step, double seconds, const double *values, size_t n)
{
    double sum = 0, low = NAN, high = NAN;
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (isfinite(values[i])) {
            sum += values[i];
            low = fmin(low, values[i]);
            high = fmax(high, values[i]);
            count++;
        }
    }
    json_array_append_new(c->step, gw_cli_json_number(step));
    json_array_append_new(c->seconds, gw_cli_json_number(seconds));
    json_array_append_new(c->mean, gw_cli_json_number(count ? sum / (double)count : (double)NAN));
    json_array_append_new(c->low, gw_cli_json_number(low));
    json_array_append_new(c->high, gw_cli_json_number(high));
}

static json_t *curve_json(const curve *c)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "step", c->step, "seconds", c->seconds, "mean",
                     c->mean, "low", c->low, "high", c->high);
}

size_t gw_cli_report_thinned(size_t i, size_t n, size_t length)
{
    return n < 2 ? length - 1 : (size_t)((double)i * (double)(length - 1) / (double)(n - 1) + 0.5);
}

static double smooth_loss(const gw_run_file *run, size_t at, size_t n, size_t window)
{
    const size_t half =
        window / 2 < at ? window / 2 : at; /* the start is steep: no one-sided mean */
    double sum = 0;
    size_t count = 0;
    for (size_t i = at - half; i <= at + half && i < n; i++) {
        if (isfinite(run->steps[i].loss)) {
            sum += run->steps[i].loss;
            count++;
        }
    }
    return count ? sum / (double)count : (double)NAN;
}

static json_t *loss_json(const gw_cli_way *way)
{
    const size_t n = way->n_steps, points = n < MOST_POINTS ? n : MOST_POINTS;
    const curve c = curve_new();
    double *values = calloc(way->n_counted, sizeof *values), seconds = 0;
    for (size_t p = 0, done = 0; values && p < points; p++) {
        const size_t at = gw_cli_report_thinned(p, points, n);
        for (; done <= at; done++) {
            for (size_t r = 0; r < way->n_counted; r++) {
                seconds += way->runs[r].run.steps[done].seconds / (double)way->n_counted;
            }
        }
        for (size_t r = 0; r < way->n_counted; r++) {
            values[r] = smooth_loss(&way->runs[r].run, at, n, window_of(n));
        }
        curve_add(&c, (double)way->runs[0].run.steps[at].step, seconds, values, way->n_counted);
    }
    free(values);
    return curve_json(&c);
}

static json_t *test_json(const gw_cli_comparison *report, const gw_cli_way *way)
{
    size_t n = way->runs[0].run.n_tests;
    for (size_t r = 1; r < way->n_counted; r++) {
        n = way->runs[r].run.n_tests < n ? way->runs[r].run.n_tests : n;
    }
    const size_t points = n < MOST_POINTS ? n : MOST_POINTS;
    const curve c = curve_new();
    double *values = calloc(way->n_counted, sizeof *values);
    for (size_t p = 0; values && p < points; p++) {
        const size_t at = gw_cli_report_thinned(p, points, n);
        double seconds = 0;
        for (size_t r = 0; r < way->n_counted; r++) {
            const gw_run_file_test *test = &way->runs[r].run.tests[at];
            seconds += test->seconds / (double)way->n_counted;
            values[r] = gw_cli_report_quality(report, test) * (report->in_bits ? 1 : 100);
        }
        curve_add(&c, (double)way->runs[0].run.tests[at].step, seconds, values, way->n_counted);
    }
    free(values);
    return curve_json(&c);
}

/* ---- layers ---- */

static double layer_error(const gw_cli_way *way, size_t layer)
{
    size_t most = 0, n = 0;
    for (size_t r = 0; r < way->n_counted; r++) {
        most += way->runs[r].run.n_samples;
    }
    double *errors = malloc((most + 1) * sizeof *errors), median = NAN;
    for (size_t r = 0; errors && r < way->n_counted; r++) {
        const gw_run_file *run = &way->runs[r].run;
        for (size_t s = 0; s < run->n_samples; s++) {
            const double error = run->samples[s].layers[layer].rel_error;
            if (isfinite(error)) {
                errors[n++] = error;
            }
        }
    }
    if (errors) {
        median = gw_cli_report_median(errors, n);
    }
    free(errors);
    return median;
}

static json_t *layers_json(const gw_cli_way *way)
{
    const gw_run_file *first = &way->runs[0].run;
    json_t *rows = json_array();
    for (size_t l = 0; l < first->n_layers; l++) {
        const gw_run_file_layer *layer = &first->layers[l];
        gw_cli_traffic traffic = {0};
        double steps = 0;
        const char *spec = NULL, *route = NULL;
        gw_cli_report_in_force(first, l, &spec, &route);
        for (size_t r = 0; r < way->n_counted; r++) {
            const gw_run_file *run = &way->runs[r].run;
            GW_CLI_TRAFFIC_ADD(&traffic, &run->layers[l]);
            steps += (double)run->summed;
        }
        const bool far = traffic.far_ring > 0; /* what a network card sees */
        json_array_append_new(
            rows,
            json_pack("{s:s, s:s, s:I, s:s, s:s, s:b, s:o, s:o, s:o, s:o, s:o}", "name",
                      layer->name, "kind", layer->kind, "elements", (json_int_t)layer->elements,
                      "spec", spec, "route", route, "fused", layer->fused, "bytes",
                      gw_cli_json_number(traffic.sent / steps), "dense",
                      gw_cli_json_number(traffic.ring / steps), "seen",
                      gw_cli_json_number((far ? traffic.far_sent : traffic.sent) / steps), "ring",
                      gw_cli_json_number((far ? traffic.far_ring : traffic.ring) / steps), "error",
                      gw_cli_json_number(layer_error(way, l))));
    }
    return rows;
}

/* ---- the timeline ---- */

static const gw_run_file_step *find_step(const gw_run_file *run, uint64_t number)
{
    size_t low = 0, high = run->n_steps;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (run->steps[middle].step < number) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < run->n_steps && run->steps[low].step == number ? &run->steps[low] : NULL;
}

typedef struct timed {
    double seconds;
    size_t sample;
} timed;

static int compare_timed(const void *left, const void *right)
{
    const timed *a = left, *b = right;
    return (a->seconds > b->seconds) - (a->seconds < b->seconds);
}

/* The sample whose step took the median time of all samples' steps; NULL: there is none. */
static const gw_run_file_sample *middle_sample(const gw_run_file *run)
{
    timed *all = malloc((run->n_samples + 1) * sizeof *all);
    const gw_run_file_sample *middle = NULL;
    size_t n = 0;
    for (size_t s = 0; all && s < run->n_samples; s++) {
        const gw_run_file_step *step = find_step(run, run->samples[s].step);
        if (step) {
            all[n++] = (timed){step->seconds, s};
        }
    }
    if (n > 0) {
        qsort(all, n, sizeof *all, compare_timed);
        middle = &run->samples[all[(n - 1) / 2].sample];
    }
    free(all);
    return middle;
}

static json_t *timeline_json(const gw_cli_way *way)
{
    const gw_run_file *run = &way->runs[0].run;
    const gw_run_file_sample *sample = middle_sample(run);
    if (!sample) {
        return json_null();
    }
    json_t *layers = json_array();
    for (size_t l = 0; l < run->n_layers; l++) {
        const gw_run_file_sample_layer *layer = &sample->layers[l];
        json_array_append_new(layers, json_pack("[f, f, f, f, f, o]", layer->posted, layer->begun,
                                                layer->arrived, layer->encode_seconds,
                                                layer->decode_seconds,
                                                gw_cli_json_count(layer->bytes_sent)));
    }
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:o}", "step", (json_int_t)sample->step,
                     "seconds", find_step(run, sample->step)->seconds, "wait",
                     find_step(run, sample->step)->wait_seconds, "forward", sample->forward_seconds,
                     "backward", sample->backward_seconds, "update", sample->update_seconds,
                     "layers", layers);
}

/* ---- all of it ---- */

static json_t *way_json(const gw_cli_comparison *report, const gw_cli_way *way)
{
    return json_pack(
        "{s:s, s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "label", way->label, "runs",
        (json_int_t)way->n_counted, "window", (json_int_t)window_of(way->n_steps), "compute",
        gw_cli_json_number(way->compute_seconds * 1e3), "wait",
        gw_cli_json_number(way->wait_seconds * 1e3), "loss", loss_json(way), "test",
        test_json(report, way), "layers", layers_json(way), "timeline", timeline_json(way), "adapt",
        gw_cli_report_adapt(way), "auto", gw_cli_report_auto(way));
}

/* In a script element only "<" could begin its end, or a comment; JSON has it in strings alone. */
static void write_safe(const char *json, FILE *to)
{
    for (; *json; json++) {
        if (*json == '<') {
            (void)fputs("\\u003c", to);
        } else {
            (void)fputc(*json, to);
        }
    }
}

bool gw_cli_report_data(const gw_cli_comparison *report, FILE *to)
{
    json_t *ways = json_array();
    for (size_t w = 0; w < report->n_ways; w++) {
        json_array_append_new(ways, way_json(report, &report->ways[w]));
    }
    json_t *root =
        json_pack("{s:s, s:b, s:b, s:o, s:o}", "model", report->runs[0].run.config.model, "bits",
                  report->in_bits, "dense", report->has_dense, "target",
                  gw_cli_json_number(report->target * (report->in_bits ? 1 : 100)), "ways", ways);
    char *text =
        root ? json_dumps(root, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_REAL_PRECISION(5)) : NULL;
    bool fine = text && json_array_size(json_object_get(root, "ways")) == report->n_ways;
    if (fine) {
        write_safe(text, to);
    }
    free(text);
    json_decref(root);
    return fine;
}
