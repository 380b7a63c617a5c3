/* The figures of a report; see report.h. */
#define _POSIX_C_SOURCE 200809L
#include "cli/measure/compression.h"
#include "cli/report/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const GW_CLI_REPORT_KIND[GW_CLI_REPORT_KINDS] = {"conv", "linear", "lstm", "embedding",
                                                             "bias"};

/* Settings that make another way of a run; spec and seed aside. */
typedef struct setting {
    const char *name;
    enum { WORD, WHOLE, NUMBER } kind;
    size_t offset;
} setting;

static const setting SETTINGS[] = {
    {"route", WORD, offsetof(gw_run_file_config, route)}, /* the first two go with the codec */
    {"fuse_below", WHOLE, offsetof(gw_run_file_config, fuse_below)},
    {"ranks", WHOLE, offsetof(gw_run_file_config, ranks)},
    {"link", NUMBER, offsetof(gw_run_file_config, link_bytes_per_second)},
    {"latency", NUMBER, offsetof(gw_run_file_config, latency_seconds)},
    {"engine", WORD, offsetof(gw_run_file_config, engine)},
    {"batch", WHOLE, offsetof(gw_run_file_config, batch)},
    {"steps", WHOLE, offsetof(gw_run_file_config, steps)},
    {"optimiser", WORD, offsetof(gw_run_file_config, optimiser)},
    {"rate", NUMBER, offsetof(gw_run_file_config, rate)},
    {"warmup", NUMBER, offsetof(gw_run_file_config, warmup)},
    {"momentum", NUMBER, offsetof(gw_run_file_config, momentum)},
    {"decay", NUMBER, offsetof(gw_run_file_config, decay)},
    {"schedule", WORD, offsetof(gw_run_file_config, schedule)},
    {"data", WORD, offsetof(gw_run_file_config, data)},
    {"ranks_per_node", WHOLE, offsetof(gw_run_file_config, ranks_per_node)},
};
enum { N_SETTINGS = sizeof SETTINGS / sizeof SETTINGS[0], N_OF_CODEC = 2 };

static bool same_setting(const setting *s, const gw_run_file_config *a, const gw_run_file_config *b)
{
    const void *left = (const char *)a + s->offset, *right = (const char *)b + s->offset;
    switch (s->kind) {
    case WORD:
        return strcmp(*(char *const *)left, *(char *const *)right) == 0;
    case WHOLE:
        return *(const uint64_t *)left == *(const uint64_t *)right;
    default:
        return *(const double *)left == *(const double *)right;
    }
}

static void print_setting(FILE *to, const setting *s, const gw_run_file_config *config)
{
    const void *at = (const char *)config + s->offset;
    if (strcmp(s->name, "link") == 0) {
        const double mbit = *(const double *)at * 8e-6;
        if (mbit > 0) {
            (void)fprintf(to, " %g %s", mbit >= 1000 ? mbit / 1000 : mbit,
                          mbit >= 1000 ? "Gbit/s" : "Mbit/s");
        } else {
            (void)fputs(" no link limit", to);
        }
    } else if (s->kind == WORD) {
        (void)fprintf(to, " %s", *(char *const *)at);
    } else if (s->kind == WHOLE) {
        (void)fprintf(to, " %s=%llu", s->name, (unsigned long long)*(const uint64_t *)at);
    } else {
        (void)fprintf(to, " %s=%g", s->name, *(const double *)at);
    }
}

static const gw_run_file_config *config_of(const gw_cli_way *way)
{
    return &way->runs[0].run.config;
}

static bool same_way(const gw_run_file_config *a, const gw_run_file_config *b)
{
    bool same = strcmp(a->spec, b->spec) == 0;
    for (size_t i = 0; same && i < N_SETTINGS; i++) {
        same = same_setting(&SETTINGS[i], a, b);
    }
    return same;
}

/* ---- which run belongs to which way ---- */

static bool failed(const gw_run_file *run)
{
    return strcmp(run->state, "failed") == 0;
}

/* Those that failed last; else by seed. */
static int compare_runs(const void *left, const void *right)
{
    const gw_run_file *a = &((const gw_cli_report_run *)left)->run,
                      *b = &((const gw_cli_report_run *)right)->run;
    if (failed(a) != failed(b)) {
        return failed(a) ? 1 : -1;
    }
    return (a->config.seed > b->config.seed) - (a->config.seed < b->config.seed);
}

/* Another seed of the same settings, on the same layers. */
static bool check_seed(const gw_cli_way *way, const gw_cli_report_run *run, char *why,
                       size_t why_size)
{
    for (size_t i = 0; i < way->n_runs; i++) {
        if (way->runs[i].run.config.seed == run->run.config.seed) {
            (void)snprintf(why, why_size, "%s: has the settings and the seed of %s: leave one out",
                           run->path, way->runs[i].path);
            return false;
        }
    }
    const gw_cli_report_run *first = &way->runs[0];
    const gw_run_file *a = &first->run, *b = &run->run;
    bool same = a->n_layers == b->n_layers;
    for (size_t i = 0; same && i < a->n_layers; i++) {
        same = strcmp(a->layers[i].name, b->layers[i].name) == 0;
    }
    if (!same) {
        (void)snprintf(why, why_size, "%s: its layers are not those of %s, which has its settings",
                       run->path, first->path);
    }
    return same;
}

static bool deal_out(gw_cli_comparison *report, char *why, size_t why_size)
{
    report->n_ways = 0;
    for (size_t i = 0; i < report->n_runs; i++) {
        const gw_cli_report_run *run = &report->runs[i], *first = &report->runs[0];
        if (strcmp(run->run.config.model, first->run.config.model) != 0) {
            (void)snprintf(why, why_size, "%s: trains '%.80s', and %s '%.80s': one report a model",
                           run->path, run->run.config.model, first->path, first->run.config.model);
            return false;
        }
        size_t w = 0;
        while (w < report->n_ways && !same_way(config_of(&report->ways[w]), &run->run.config)) {
            w++;
        }
        gw_cli_way *way = &report->ways[w];
        if (w == report->n_ways) {
            way->runs = calloc(report->n_runs, sizeof *way->runs);
            if (!way->runs) {
                (void)snprintf(why, why_size, "out of memory");
                return false;
            }
            report->n_ways++;
        } else if (!check_seed(way, run, why, why_size)) {
            return false;
        }
        way->runs[way->n_runs++] = *run;
    }
    for (size_t w = 0; w < report->n_ways; w++) {
        gw_cli_way *way = &report->ways[w];
        qsort(way->runs, way->n_runs, sizeof *way->runs, compare_runs);
        while (way->n_counted < way->n_runs && !failed(&way->runs[way->n_counted].run)) {
            way->n_counted++;
        }
        way->n_counted = way->n_counted ? way->n_counted : way->n_runs;
    }
    return true;
}

/* ---- figures ---- */

static int compare_doubles(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double gw_cli_report_median(double *values, size_t n)
{
    if (n == 0) {
        return NAN;
    }
    qsort(values, n, sizeof *values, compare_doubles);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double gw_cli_report_quality(const gw_cli_comparison *report, const gw_run_file_test *test)
{
    return report->in_bits ? test->bits : test->accuracy;
}

static bool better(const gw_cli_comparison *report, double a, double b)
{
    return report->in_bits ? a < b : a > b;
}

static void measure_quality(const gw_cli_comparison *report, gw_cli_way *way)
{
    double sum = 0;
    size_t n = 0;
    way->quality = (gw_cli_spread){NAN, NAN, NAN};
    for (size_t i = 0; i < way->n_counted; i++) {
        const gw_run_file *run = &way->runs[i].run;
        double last = run->n_tests ? gw_cli_report_quality(report, &run->tests[run->n_tests - 1])
                                   : (double)NAN;
        if (isfinite(last)) {
            sum += last;
            way->quality.low = n ? fmin(way->quality.low, last) : last;
            way->quality.high = n ? fmax(way->quality.high, last) : last;
            n++;
        }
    }
    way->quality.mean = n ? sum / (double)n : (double)NAN;
}

static bool measure_steps(gw_cli_way *way)
{
    double seconds = 0, wait = 0;
    gw_cli_traffic traffic = {0};
    size_t n = 0, at = 0;
    way->n_steps = way->runs[0].run.n_steps;
    for (size_t i = 0; i < way->n_counted; i++) {
        const size_t own = way->runs[i].run.n_steps;
        way->n_steps = own < way->n_steps ? own : way->n_steps;
        n += own;
    }
    double *all = malloc((n + 1) * sizeof *all);
    if (!all) {
        return false;
    }
    for (size_t i = 0; i < way->n_counted; i++) {
        const gw_run_file *run = &way->runs[i].run;
        for (size_t s = 0; s < run->n_steps; s++) {
            const gw_run_file_step *step = &run->steps[s];
            all[at++] = step->seconds;
            seconds += step->seconds;
            wait += fmin(step->wait_seconds, step->seconds);
            GW_CLI_TRAFFIC_ADD(&traffic, step);
            way->skipped += step->non_finite > 0;
        }
    }
    way->step_seconds = gw_cli_report_median(all, n);
    const double count = n ? (double)n : (double)NAN;
    way->wait_seconds = wait / count;
    way->compute_seconds = (seconds - wait) / count;
    way->bytes = traffic.sent / count;
    way->dense_bytes = traffic.ring / count;
    way->ratio = gw_cli_compression(&traffic);
    free(all);
    return true;
}

/* Without layers that travel together: what they cost stands at the first, of whatever kind. */
static void measure_kinds(gw_cli_way *way)
{
    for (size_t k = 0; k < GW_CLI_REPORT_KINDS; k++) {
        gw_cli_traffic traffic = {0};
        for (size_t i = 0; i < way->n_counted; i++) {
            const gw_run_file *run = &way->runs[i].run;
            for (size_t l = 0; l < run->n_layers; l++) {
                if (!run->layers[l].fused &&
                    strcmp(run->layers[l].kind, GW_CLI_REPORT_KIND[k]) == 0) {
                    GW_CLI_TRAFFIC_ADD(&traffic, &run->layers[l]);
                }
            }
        }
        way->kind_ratio[k] = gw_cli_compression(&traffic);
    }
}

/* ---- the target ---- */

/* The worst of all runs' best tests, on the worse side of it rounded to a number people say. */
static void choose_target(gw_cli_comparison *report)
{
    double worst = NAN;
    for (size_t w = 0; w < report->n_ways; w++) {
        const gw_cli_way *way = &report->ways[w];
        for (size_t i = 0; i < way->n_counted && !failed(&way->runs[i].run); i++) {
            const gw_run_file *run = &way->runs[i].run;
            double best = NAN;
            for (size_t t = 0; t < run->n_tests; t++) {
                const double now = gw_cli_report_quality(report, &run->tests[t]);
                best = isnan(best) || better(report, now, best) ? now : best;
            }
            worst = isnan(worst) || better(report, worst, best) ? best : worst;
        }
    }
    report->target = report->in_bits ? ceil(worst * 100) / 100 : floor(worst * 1000) / 1000;
}

static void measure_target(const gw_cli_comparison *report, gw_cli_way *way)
{
    double sum = 0;
    for (size_t i = 0; i < way->n_counted; i++) {
        const gw_run_file *run = &way->runs[i].run;
        size_t t = 0;
        while (t < run->n_tests &&
               !(gw_cli_report_quality(report, &run->tests[t]) == report->target ||
                 better(report, gw_cli_report_quality(report, &run->tests[t]), report->target))) {
            t++;
        }
        sum += t < run->n_tests ? run->tests[t].seconds : (double)NAN;
    }
    way->target_seconds = sum / (double)way->n_counted;
}

/* ---- order and names ---- */

static bool is_dense(const gw_cli_way *way)
{
    return strcmp(config_of(way)->spec, "dense") == 0;
}

static int compare_ways(const void *left, const void *right)
{
    const gw_cli_way *a = left, *b = right;
    if (is_dense(a) != is_dense(b)) {
        return is_dense(a) ? -1 : 1;
    }
    const double left_bytes = isnan(a->bytes) ? 0 : a->bytes, /* no steps yet */
        right_bytes = isnan(b->bytes) ? 0 : b->bytes;
    if (left_bytes != right_bytes) {
        return left_bytes > right_bytes ? -1 : 1;
    }
    return strcmp(config_of(a)->spec, config_of(b)->spec);
}

/* The spec, and each setting in which a way of the same spec differs. */
static bool name_way(const gw_cli_comparison *report, gw_cli_way *way)
{
    size_t size = 0;
    FILE *to = open_memstream(&way->label, &size);
    if (!to) {
        return false;
    }
    (void)fputs(config_of(way)->spec, to);
    for (size_t s = 0; s < N_SETTINGS; s++) {
        bool differs = false;
        for (size_t w = 0; w < report->n_ways; w++) {
            const gw_run_file_config *other = config_of(&report->ways[w]);
            differs = differs || (strcmp(other->spec, config_of(way)->spec) == 0 &&
                                  !same_setting(&SETTINGS[s], config_of(way), other));
        }
        if (differs) {
            print_setting(to, &SETTINGS[s], config_of(way));
        }
    }
    return fclose(to) == 0;
}

static void find_dense(const gw_cli_comparison *report, gw_cli_way *way)
{
    for (size_t w = 0; w < report->n_ways && !way->dense; w++) {
        const gw_cli_way *other = &report->ways[w];
        bool same = is_dense(other) && !is_dense(way);
        for (size_t s = N_OF_CODEC; same && s < N_SETTINGS; s++) {
            same = same_setting(&SETTINGS[s], config_of(way), config_of(other));
        }
        way->dense = same ? other : NULL;
    }
}

static void find_differences(gw_cli_comparison *report)
{
    size_t used = 0;
    for (size_t s = N_OF_CODEC; s < N_SETTINGS; s++) {
        bool differs = false;
        for (size_t w = 1; w < report->n_ways; w++) {
            differs = differs || !same_setting(&SETTINGS[s], config_of(&report->ways[0]),
                                               config_of(&report->ways[w]));
        }
        if (differs && used + strlen(SETTINGS[s].name) + 3 < sizeof report->differs) {
            used += (size_t)snprintf(report->differs + used, sizeof report->differs - used, "%s%s",
                                     used ? ", " : "", SETTINGS[s].name);
        }
    }
}

bool gw_cli_report_measure(gw_cli_comparison *report, char *why, size_t why_size)
{
    report->ways = calloc(report->n_runs + 1, sizeof *report->ways);
    if (!report->ways) {
        (void)snprintf(why, why_size, "out of memory");
        return false;
    }
    report->in_bits = strcmp(report->runs[0].run.config.model, "lstm") == 0;
    if (!deal_out(report, why, why_size)) {
        return false;
    }
    for (size_t w = 0; w < report->n_ways; w++) {
        measure_quality(report, &report->ways[w]);
        measure_kinds(&report->ways[w]);
        if (!measure_steps(&report->ways[w])) {
            (void)snprintf(why, why_size, "out of memory");
            return false;
        }
    }
    choose_target(report);
    qsort(report->ways, report->n_ways, sizeof *report->ways, compare_ways);
    for (size_t w = 0; w < report->n_ways; w++) {
        measure_target(report, &report->ways[w]);
        find_dense(report, &report->ways[w]);
        if (!name_way(report, &report->ways[w])) {
            (void)snprintf(why, why_size, "out of memory");
            return false;
        }
    }
    find_differences(report);
    report->has_dense = is_dense(&report->ways[0]);
    return true;
}

void gw_cli_report_free(gw_cli_comparison *report)
{
    for (size_t i = 0; i < report->n_runs; i++) {
        free(report->runs[i].path);
        gw_run_file_free(&report->runs[i].run);
    }
    for (size_t w = 0; w < report->n_ways; w++) {
        free(report->ways[w].label);
        free(report->ways[w].runs);
    }
    free(report->runs);
    free(report->ways);
    *report = (gw_cli_comparison){0};
}
