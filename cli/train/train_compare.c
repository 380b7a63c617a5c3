/* The table of runs; see train_compare.h. */
#include "cli/train/train_compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json_out.h"
#include "cli/measure/compression.h"
#include "cli/table.h"
#include "cli/train/train_progress.h"

enum { KINDS = 4 };
static const char *const KIND[KINDS] = {"conv", "linear", "lstm", "embedding"};

/* Of one run; NaN: there is none. */
typedef struct figures {
    double quality; /* accuracy, or bits */
    double to_target, step_seconds, waiting, megabytes, ratio, kinds[KINDS];
} figures;

/* Of the seeds of a spec. */
typedef struct mean {
    double mean, deviation;
    size_t n; /* seeds that have it */
} mean;

typedef struct row {
    const gw_cli_run *first;
    size_t n;
    mean quality, to_target, step_seconds, waiting, megabytes, ratio, kinds[KINDS];
} row;

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_seconds(const gw_cli_run *run)
{
    const size_t n = run->n_steps;
    double *all = malloc((n + 1) * sizeof *all), middle = (double)NAN;
    if (all && n > 0) {
        for (size_t i = 0; i < n; i++) {
            all[i] = run->steps[i].seconds;
        }
        qsort(all, n, sizeof *all, by_size);
        middle = (all[(n - 1) / 2] + all[n / 2]) / 2;
    }
    free(all);
    return middle;
}

static double time_to(const gw_cli_run *run, double target)
{
    for (size_t i = 0; i < run->n_tests; i++) {
        const gw_cli_run_test *t = &run->tests[i];
        if (gw_cli_run_is_text(run) ? t->bits <= target : t->accuracy >= target) {
            return t->seconds;
        }
    }
    return (double)NAN;
}

/* Fused layers share their bytes with others, so that a kind's ratio is of those that go alone. */
static double kind_ratio(const gw_cli_run *run, const char *kind)
{
    gw_cli_traffic traffic = {0};
    for (size_t i = 0; i < run->n_layers; i++) {
        const gw_cli_run_layer *l = &run->layers[i];
        if (!l->fused && strcmp(l->kind, kind) == 0) {
            GW_CLI_TRAFFIC_ADD(&traffic, l);
        }
    }
    return gw_cli_compression(&traffic);
}

static figures figures_of(const gw_cli_run *run, double target)
{
    figures f = {.quality = (double)NAN, .to_target = time_to(run, target)};
    double seconds = 0, wait = 0;
    gw_cli_traffic traffic = {0};
    for (size_t i = 0; i < run->n_steps; i++) {
        seconds += run->steps[i].seconds;
        wait += run->steps[i].wait_seconds;
        GW_CLI_TRAFFIC_ADD(&traffic, &run->steps[i]);
    }
    if (run->n_tests > 0) {
        const gw_cli_run_test *last = &run->tests[run->n_tests - 1];
        f.quality = gw_cli_run_is_text(run) ? last->bits : last->accuracy;
    }
    f.step_seconds = median_seconds(run);
    f.waiting = seconds > 0 ? wait / seconds : (double)NAN;
    f.megabytes = 1e-6 * traffic.sent;
    f.ratio = gw_cli_compression(&traffic);
    for (size_t i = 0; i < KINDS; i++) {
        f.kinds[i] = kind_ratio(run, KIND[i]);
    }
    return f;
}

/* Over what member `offset` of n figures is, where it is. */
static mean mean_of(const figures *all, size_t n, size_t offset)
{
    mean m = {0};
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) {
        const double x = *(const double *)((const char *)&all[i] + offset);
        sum += isnan(x) ? 0 : x;
        m.n += isnan(x) ? 0 : 1;
    }
    m.mean = m.n > 0 ? sum / (double)m.n : (double)NAN;
    for (size_t i = 0; i < n; i++) {
        const double x = *(const double *)((const char *)&all[i] + offset);
        squares += isnan(x) ? 0 : (x - m.mean) * (x - m.mean);
    }
    m.deviation = m.n > 1 ? sqrt(squares / (double)(m.n - 1)) : (double)NAN;
    return m;
}

static bool row_of(const gw_cli_run *first, size_t n, double target, row *out)
{
    figures *all = calloc(n, sizeof *all);
    if (!all) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        all[i] = figures_of(&first[i], target);
    }
    *out = (row){.first = first,
                 .n = n,
                 .quality = mean_of(all, n, offsetof(figures, quality)),
                 .to_target = mean_of(all, n, offsetof(figures, to_target)),
                 .step_seconds = mean_of(all, n, offsetof(figures, step_seconds)),
                 .waiting = mean_of(all, n, offsetof(figures, waiting)),
                 .megabytes = mean_of(all, n, offsetof(figures, megabytes)),
                 .ratio = mean_of(all, n, offsetof(figures, ratio))};
    for (size_t i = 0; i < KINDS; i++) {
        out->kinds[i] = mean_of(all, n, offsetof(figures, kinds) + i * sizeof(double));
    }
    free(all);
    return true;
}

/* The rows; freed by the caller. NULL: no memory. */
static row *rows_of(const gw_cli_comparison *c, size_t *n)
{
    row *rows = calloc(c->n_runs + 1, sizeof *rows);
    *n = 0;
    for (size_t at = 0, end = 0; rows && at < c->n_runs; at = end) {
        for (end = at; end < c->n_runs && c->runs[end].n_steps > 0 &&
                       strcmp(c->runs[end].config.spec, c->runs[at].config.spec) == 0;) {
            end++;
        }
        if (end == at) {
            end++; /* a run that has not begun */
        } else if (!row_of(&c->runs[at], end - at, c->target, &rows[(*n)++])) {
            free(rows);
            rows = NULL;
        }
    }
    return rows;
}

/* ---- as a table ---- */

static void cell(gw_cli_table *table, const mean *m, int digits, double scale, bool spread)
{
    if (m->n == 0) {
        gw_cli_table_cell(table, "-");
    } else if (spread && m->n > 1) {
        gw_cli_table_cell(table, "%.*f ± %.*f", digits, scale * m->mean, digits,
                          scale * m->deviation);
    } else {
        gw_cli_table_cell(table, "%.*f", digits, scale * m->mean);
    }
}

static void ratio_cell(gw_cli_table *table, const mean *m)
{
    cell(table, m, m->n > 0 && m->mean < 100 ? 1 : 0, 1, false);
}

static bool has_kind(const row *rows, size_t n, size_t kind)
{
    bool found = false;
    for (size_t i = 0; i < n; i++) {
        found = found || rows[i].kinds[kind].n > 0;
    }
    return found;
}

static void add_row(gw_cli_table *table, const row *r, bool text, bool timed, const bool *kinds)
{
    gw_cli_table_cell(table, "%s", r->first->config.spec);
    cell(table, &r->quality, text ? 3 : 2, text ? 1 : 100, true);
    if (timed && r->to_target.n > 0 && r->to_target.n < r->n) {
        gw_cli_table_cell(table, "%.1f (%zu of %zu)", r->to_target.mean, r->to_target.n, r->n);
    } else if (timed) {
        cell(table, &r->to_target, 1, 1, true);
    }
    cell(table, &r->step_seconds, 1, 1e3, false);
    cell(table, &r->waiting, 0, 100, false);
    cell(table, &r->megabytes, 1, 1, false);
    ratio_cell(table, &r->ratio);
    for (size_t i = 0; i < KINDS; i++) {
        if (kinds[i]) {
            ratio_cell(table, &r->kinds[i]);
        }
    }
}

static void print_notes(const row *rows, size_t n)
{
    const gw_cli_run_config *config = &rows[0].first->config;
    bool several = false;
    uint64_t least = UINT64_MAX;
    for (size_t i = 0; i < n; i++) {
        several = several || rows[i].n > 1;
        for (size_t j = 0; j < rows[i].n; j++) {
            least = rows[i].first[j].n_steps < least ? rows[i].first[j].n_steps : least;
        }
    }
    (void)printf("\n%s, %llu weights, %llu ranks (%s), %llu examples a rank and step, %llu steps",
                 config->model, (unsigned long long)rows[0].first->weights,
                 (unsigned long long)config->ranks, config->engine,
                 (unsigned long long)config->batch, (unsigned long long)config->steps);
    if (least < config->steps) {
        (void)printf(several || n > 1 ? " (at least one run stopped after %llu)"
                                      : " (stopped after %llu)",
                     (unsigned long long)least);
    }
    (void)printf("; MB sent by rank 0; compression of what fp32 DDP sends between nodes%s\n",
                 several ? "; ± is the standard deviation over seeds" : "");
}

bool gw_cli_comparison_print(const gw_cli_comparison *c)
{
    size_t n = 0, columns = 0;
    row *rows = rows_of(c, &n);
    if (!rows || n == 0) {
        free(rows);
        return rows;
    }
    const bool text = gw_cli_run_is_text(rows[0].first), timed = !isnan(c->target);
    bool kinds[KINDS];
    char target[48];
    (void)snprintf(target, sizeof target, text ? "s to %.4g bits" : "s to %.4g %%",
                   text ? c->target : 100 * c->target);
    gw_cli_column titles[8 + KINDS] = {{"spec", false},
                                       {text ? "bits/char" : "accuracy (%)", true}};
    columns = 2;
    if (timed) {
        titles[columns++] = (gw_cli_column){target, true};
    }
    titles[columns++] = (gw_cli_column){"ms/step", true};
    titles[columns++] = (gw_cli_column){"waiting (%)", true};
    titles[columns++] = (gw_cli_column){"MB sent", true};
    titles[columns++] = (gw_cli_column){"compression", true};
    for (size_t i = 0; i < KINDS; i++) {
        kinds[i] = has_kind(rows, n, i);
        if (kinds[i]) {
            titles[columns++] = (gw_cli_column){KIND[i], true};
        }
    }
    gw_cli_table table = {.columns = titles, .n_columns = columns};
    for (size_t i = 0; i < n; i++) {
        add_row(&table, &rows[i], text, timed, kinds);
    }
    const bool fine = gw_cli_table_print(&table);
    if (fine) {
        print_notes(rows, n);
    }
    free(rows);
    return fine;
}

/* ---- as JSON ---- */

static json_t *mean_json(const mean *m, size_t seeds)
{
    return json_pack("{s:o, s:o, s:I, s:I}", "mean", gw_cli_json_number(m->mean), "deviation",
                     gw_cli_json_number(m->deviation), "seeds", (json_int_t)m->n, "of",
                     (json_int_t)seeds);
}

static json_t *row_json(const row *r)
{
    const bool text = gw_cli_run_is_text(r->first);
    json_t *ratios = json_object(), *folders = json_array();
    for (size_t i = 0; i < KINDS; i++) {
        if (r->kinds[i].n > 0) {
            (void)json_object_set_new(ratios, KIND[i], mean_json(&r->kinds[i], r->n));
        }
    }
    for (size_t i = 0; i < r->n; i++) {
        (void)json_array_append_new(folders, json_string(r->first[i].folder));
    }
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "spec", r->first->config.spec,
                     text ? "bits" : "accuracy", mean_json(&r->quality, r->n), "seconds_to_target",
                     mean_json(&r->to_target, r->n), "step_seconds",
                     mean_json(&r->step_seconds, r->n), "wait_share", mean_json(&r->waiting, r->n),
                     "megabytes_sent", mean_json(&r->megabytes, r->n), "ratio",
                     mean_json(&r->ratio, r->n), "ratios", ratios, "folders", folders);
}

json_t *gw_cli_comparison_json(const gw_cli_comparison *c, const char *folder)
{
    size_t n = 0;
    row *rows = rows_of(c, &n);
    json_t *array = json_array();
    for (size_t i = 0; rows && i < n; i++) {
        (void)json_array_append_new(array, row_json(&rows[i]));
    }
    free(rows);
    return json_pack("{s:s, s:o, s:o}", "folder", folder, "target", gw_cli_json_number(c->target),
                     "rows", array);
}
