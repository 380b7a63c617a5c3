/* What a report says in words and in its table of runs; see report.h. */
#define _POSIX_C_SOURCE 200809L
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/report/report.h"
#include "cli/say.h"

#define DASH  "\xE2\x80\x93" /* – */
#define TIMES "\xC3\x97"     /* × */
#define THIN  "\xC2\xA0"     /* a space that does not break */

/* ---- numbers ---- */

void gw_cli_html_text(FILE *to, const char *text)
{
    char *safe = gw_cli_text_safe(text, strlen(text));
    for (const char *at = safe ? safe : ""; *at; at++) {
        switch (*at) {
        case '<':
            (void)fputs("&lt;", to);
            break;
        case '>':
            (void)fputs("&gt;", to);
            break;
        case '&':
            (void)fputs("&amp;", to);
            break;
        case '"':
            (void)fputs("&quot;", to);
            break;
        case '\'':
            (void)fputs("&#39;", to);
            break;
        default:
            (void)fputc(*at, to);
        }
    }
    free(safe);
}

void gw_cli_html_number(FILE *to, double value)
{
    if (!isfinite(value)) {
        (void)fputs(DASH, to);
    } else {
        (void)fprintf(to, "%.*f", value < 10 ? 2 - (value >= 1) : value < 99.95 ? 1 : 0, value);
    }
}

void gw_cli_html_seconds(FILE *to, double seconds)
{
    const bool small = seconds < 1;
    gw_cli_html_number(to, small ? seconds * 1e3 : seconds);
    (void)fputs(!isfinite(seconds) ? "" : small ? THIN "ms" : THIN "s", to);
}

void gw_cli_html_bytes(FILE *to, double bytes)
{
    static const char *const UNITS[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    size_t unit = 0;
    while (bytes >= 999.5 && unit + 1 < sizeof UNITS / sizeof UNITS[0]) {
        bytes /= 1000;
        unit++;
    }
    if (!isfinite(bytes)) {
        (void)fputs(DASH, to);
    } else {
        const int digits = unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2;
        (void)fprintf(to, "%.*f" THIN "%s", digits, bytes, UNITS[unit]);
    }
}

void gw_cli_html_quality(const gw_cli_comparison *report, FILE *to, double quality)
{
    if (!isfinite(quality)) {
        (void)fputs(DASH, to);
    } else if (report->in_bits) {
        (void)fprintf(to, "%.3f", quality);
    } else {
        (void)fprintf(to, "%.2f" THIN "%%", 100 * quality);
    }
}

static void print_count(FILE *to, uint64_t value)
{
    char digits[24];
    const int n = snprintf(digits, sizeof digits, "%" PRIu64, value);
    for (int i = 0; i < n; i++) {
        (void)fprintf(to, "%s%c", i > 0 && (n - i) % 3 == 0 ? "," : "", digits[i]);
    }
}

static double share(const gw_cli_way *way)
{
    return way->wait_seconds / (way->wait_seconds + way->compute_seconds);
}

static void print_share(FILE *to, double part)
{
    if (isfinite(part)) {
        (void)fprintf(to, "%.0f" THIN "%%", 100 * part);
    } else {
        (void)fputs(DASH, to);
    }
}

/* ---- the summary ---- */

enum { TARGET_TEXT = 24 };

/* It is rounded: fewer digits than a quality. */
static void print_target(const gw_cli_comparison *report, char text[TARGET_TEXT])
{
    (void)snprintf(text, TARGET_TEXT, report->in_bits ? "%.2f" : "%.1f" THIN "%%",
                   report->target * (report->in_bits ? 1 : 100));
    if (!isfinite(report->target)) {
        (void)snprintf(text, TARGET_TEXT, "target");
    }
}

static void say_target(const gw_cli_comparison *report, FILE *to)
{
    char target[TARGET_TEXT];
    print_target(report, target);
    (void)fprintf(to, "%s %s", target, report->in_bits ? "bits/character" : "test accuracy");
}

/* Who was first at the target. */
static void say_lead(const gw_cli_comparison *report, FILE *to)
{
    const gw_cli_way *first = NULL;
    size_t there = 0;
    for (size_t w = 0; w < report->n_ways; w++) {
        const gw_cli_way *way = &report->ways[w];
        there += isfinite(way->target_seconds) ? 1 : 0;
        if (isfinite(way->target_seconds) &&
            (!first || way->target_seconds < first->target_seconds)) {
            first = way;
        }
    }
    if (!first || there < 2) {
        return;
    }
    (void)fputs("<p class=\"lead\">", to);
    const gw_cli_way *dense = first->dense;
    if (!dense && strcmp(first->runs[0].run.config.spec, "dense") == 0) {
        (void)fputs("Nothing was faster to ", to);
        say_target(report, to);
        (void)fputs(" than <b>", to);
        gw_cli_html_text(to, first->label);
        (void)fputs("</b>: ", to);
        gw_cli_html_seconds(to, first->target_seconds);
        (void)fputs(" of training.", to);
    } else {
        (void)fputs("<b>", to);
        gw_cli_html_text(to, first->label);
        (void)fputs("</b> was the fastest to ", to);
        say_target(report, to);
        (void)fputs(", the best that every run reached: ", to);
        gw_cli_html_seconds(to, first->target_seconds);
        (void)fputs(" of training", to);
        if (dense && isfinite(dense->target_seconds)) {
            (void)fputs(". Uncompressed (<b>dense</b>) took ", to);
            gw_cli_html_seconds(to, dense->target_seconds);
            (void)fputs(", ", to);
            gw_cli_html_number(to, dense->target_seconds / first->target_seconds);
            (void)fputs(" times as long", to);
        }
        (void)fputs(".", to);
    }
    (void)fputs("</p>\n", to);
}

static void say_link(const gw_run_file_config *config, FILE *to)
{
    const bool threads = strcmp(config->engine, "threads") == 0;
    if (config->link_bytes_per_second > 0) {
        const double mbit = config->link_bytes_per_second * 8e-6;
        (void)fprintf(to, ", each with a %slink of %g" THIN "%s", threads ? "virtual " : "",
                      mbit >= 1000 ? mbit / 1000 : mbit, mbit >= 1000 ? "Gbit/s" : "Mbit/s");
        if (config->latency_seconds > 0) {
            (void)fprintf(to, " and %g" THIN "ms latency", config->latency_seconds * 1e3);
        }
    }
}

/* What was done: of the first way, and in what the others differ from it. */
static void say_setting(const gw_cli_comparison *report, FILE *to)
{
    const gw_run_file *run = &report->ways[0].runs[0].run;
    const gw_run_file_config *config = &run->config;
    (void)fputs("<p>The model <b>", to);
    gw_cli_html_text(to, config->model);
    (void)fputs("</b> (", to);
    print_count(to, run->weights);
    (void)fputs(" weights) on ", to);
    const char *slash = strrchr(config->data, '/'); /* whose machine it was is nobody's matter */
    gw_cli_html_text(to, slash && slash[1] ? slash + 1 : config->data);
    (void)fprintf(to, ", trained by %" PRIu64 " rank%s", config->ranks,
                  config->ranks == 1 ? "" : "s");
    (void)fputs(strcmp(config->engine, "threads") == 0 ? " (threads of one machine)" : " (MPI)",
                to);
    say_link(config, to);
    (void)fprintf(to,
                  ": %" PRIu64 " steps of %" PRIu64 THIN "\xC3\x97" THIN "%" PRIu64 " examples, ",
                  config->steps, config->ranks, config->batch);
    gw_cli_html_text(to, config->optimiser);
    (void)fprintf(to, " at rate %g.", config->rate);
    if (report->differs[0]) {
        (void)fprintf(to, " The runs differ in more than codec and route: <b>%s</b>.",
                      report->differs);
    }
    (void)fputs("</p>\n", to);
}

static bool lies_within(double value, const gw_cli_spread *spread)
{
    return value >= spread->low && value <= spread->high;
}

static void say_range(const gw_cli_comparison *report, FILE *to, const gw_cli_spread *spread)
{
    const int digits = report->in_bits ? 3 : 2;
    const double unit = report->in_bits ? 1 : 100;
    (void)fprintf(to, "%.*f to %.*f", digits, unit * spread->low, digits, unit * spread->high);
}

/* Against dense. "Within the spread of seeds" is said only where there are seeds. */
static void say_difference(const gw_cli_comparison *report, const gw_cli_way *way, FILE *to)
{
    const gw_cli_way *dense = way->dense;
    const double by = way->quality.mean - dense->quality.mean;
    if (dense->n_counted < 2) {
        (void)fputs(" (dense ", to);
        gw_cli_html_quality(report, to, dense->quality.mean);
        (void)fputs(")", to);
    } else if (lies_within(way->quality.mean, &dense->quality)) {
        (void)fputs(", within dense\xE2\x80\x99s seed spread", to);
    } else {
        (void)fprintf(to, report->in_bits ? ", %.3f %s dense" : ", %.2f points %s dense",
                      fabs(by) * (report->in_bits ? 1 : 100), by < 0 ? "below" : "above");
        (void)fputs(" and outside its seed spread", to);
    }
}

static void say_quality(const gw_cli_comparison *report, const gw_cli_way *way, FILE *to)
{
    const gw_cli_way *dense = way->dense;
    if (!isfinite(way->quality.mean)) {
        (void)fputs(" was not tested", to);
        return;
    }
    (void)fputs(" reached ", to);
    gw_cli_html_quality(report, to, way->quality.mean);
    (void)fputs(report->in_bits ? " bits/character" : "", to);
    if (way->n_counted > 1) {
        (void)fprintf(to, " (%zu seeds, ", way->n_counted);
        say_range(report, to, &way->quality);
        (void)fputs(")", to);
    }
    if (dense && isfinite(dense->quality.mean)) {
        say_difference(report, way, to);
    }
}

static void say_speed(const gw_cli_way *way, FILE *to)
{
    const gw_cli_way *dense = way->dense;
    if (!isfinite(way->step_seconds)) {
        (void)fputs(".", to);
        return;
    }
    (void)fputs(", at ", to);
    gw_cli_html_seconds(to, way->step_seconds);
    (void)fputs("/step", to);
    if (!dense || !isfinite(dense->step_seconds)) {
        (void)fputs(", ", to);
        print_share(to, share(way));
        (void)fputs(" of it waiting for gradients. Rank 0 sent ", to);
        gw_cli_html_bytes(to, way->bytes);
        (void)fputs("/step.", to);
        return;
    }
    const double faster = dense->step_seconds / way->step_seconds;
    (void)fputs(" instead of ", to);
    gw_cli_html_seconds(to, dense->step_seconds);
    if (faster > 1.05 || faster < 1 / 1.05) {
        (void)fputs(": <b>", to);
        gw_cli_html_number(to, faster > 1 ? faster : 1 / faster);
        (void)fprintf(to, " times %s</b>", faster > 1 ? "faster" : "slower");
    } else {
        (void)fputs(": no faster and no slower", to);
    }
    if (way->ratio > 1.05) {
        (void)fputs(". Its compression was <b>", to);
        gw_cli_html_number(to, way->ratio);
        (void)fputs(TIMES "</b> against DDP in fp32", to);
    } else {
        (void)fputs(". It sent no fewer bytes than DDP does in fp32", to);
    }
    (void)fputs(", and it waited for gradients ", to);
    print_share(to, share(way));
    (void)fputs(" of the time instead of ", to);
    print_share(to, share(dense));
    (void)fputs(".", to);
}

/* Bytes of the layers whose levels are chosen, by the choices in force, and as the default everywhere. */
static void adapted_bytes(const gw_run_file *run, double *chosen, double *uniform)
{
    for (size_t i = 0; i < run->n_adapt; i++) {
        const gw_run_file_adapt *adapt = &run->adapt[i];
        const double end =
            i + 1 < run->n_adapt ? (double)run->adapt[i + 1].bound_at : (double)run->n_steps + 1;
        const double before =
            i == 0 ? (double)adapt->bound_at - 1 : 0; /* the default was in force */
        const double steps = end > (double)adapt->bound_at ? end - (double)adapt->bound_at : 0;
        *chosen += before * (double)adapt->uniform_bytes + steps * (double)adapt->bytes;
        *uniform += (before + steps) * (double)adapt->uniform_bytes;
    }
}

static void say_adapted(const gw_cli_way *way, FILE *to)
{
    double chosen = 0, uniform = 0;
    size_t n = 0;
    for (size_t i = 0; i < way->n_counted; i++) {
        adapted_bytes(&way->runs[i].run, &chosen, &uniform);
        n += way->runs[i].run.n_adapt;
    }
    if (n == 0 || !(chosen > 0)) {
        return;
    }
    const char *first = strchr(way->runs[0].run.config.spec, '/');
    char name[96];
    (void)snprintf(name, sizeof name, "%.*s", (int)(first ? strcspn(first + 1, "/") : 0),
                   first ? first + 1 : "");
    (void)fputs(" The levels that it chose compress <b>", to);
    gw_cli_html_number(to, uniform / chosen);
    (void)fputs(TIMES "</b> as much as ", to);
    gw_cli_html_text(to, name);
    (void)fputs(" everywhere.", to);
}

static void say_auto(const gw_cli_way *way, FILE *to)
{
    gw_cli_report_autos all;
    if (!gw_cli_report_count_auto(way, &all) || all.decisions == 0) {
        return;
    }
    (void)fprintf(to, " It made <b>%zu decision%s</b> and changed its plan %zu time%s.",
                  all.decisions, all.decisions == 1 ? "" : "s", all.switches,
                  all.switches == 1 ? "" : "s");
    if (isfinite(all.off)) {
        (void)fputs(" The median window was ", to);
        gw_cli_html_number(to, 100 * all.off);
        (void)fputs(THIN "% off what the planner had predicted.", to);
    }
}

/* What the reader must know before believing the figures. */
static void say_states(const gw_cli_way *way, FILE *to)
{
    for (size_t i = 0; i < way->n_runs; i++) {
        const gw_run_file *run = &way->runs[i].run;
        if (strcmp(run->state, "finished") == 0) {
            continue;
        }
        (void)fprintf(to, " <span class=\"warn\">Seed %" PRIu64, run->config.seed);
        if (strcmp(run->state, "running") == 0) {
            (void)fputs(" is still running", to);
        } else {
            (void)fprintf(to, " %s", run->state[0] == 'f' ? "failed" : "was interrupted");
        }
        (void)fprintf(to, " after %zu of %" PRIu64 " steps", run->n_steps, run->config.steps);
        if (run->error) {
            (void)fputs(": ", to);
            gw_cli_html_text(to, run->error);
        }
        (void)fputs(i < way->n_counted ? "." : "; its figures are left out.", to);
        (void)fputs("</span>", to);
    }
    if (way->skipped > 0) {
        (void)fprintf(
            to,
            " <span class=\"warn\">Steps skipped for a gradient that was not finite: %" PRIu64
            ".</span>",
            way->skipped);
    }
}

void gw_cli_report_summary(const gw_cli_comparison *report, FILE *to)
{
    bool seeds = false;
    say_lead(report, to);
    say_setting(report, to);
    (void)fputs("<ul class=\"ways\">\n", to);
    for (size_t w = 0; w < report->n_ways; w++) {
        const gw_cli_way *way = &report->ways[w];
        seeds = seeds || way->n_counted > 1;
        (void)fprintf(to, "<li><span class=\"key\" data-way=\"%zu\"></span><b>", w);
        gw_cli_html_text(to, way->label);
        (void)fputs("</b>", to);
        say_quality(report, way, to);
        say_speed(way, to);
        say_adapted(way, to);
        say_auto(way, to);
        say_states(way, to);
        (void)fputs("</li>\n", to);
    }
    (void)fputs("</ul>\n", to);
    if (!seeds && report->n_ways > 1) {
        (void)fputs("<p class=\"note\">One seed each: small differences in quality may be chance."
                    "</p>\n",
                    to);
    }
}

/* ---- the table of runs ---- */

/* Columns of the table; on a phone each cell says which it is of. */
enum { MOST_COLUMNS = 6 + GW_CLI_REPORT_KINDS };
typedef struct column {
    char title[48];
    const char *unit;
} column;

static void head(FILE *to, const column *c)
{
    (void)fprintf(to, "<th scope=\"col\">%s%s%s%s</th>", c->title, *c->unit ? "<br><small>" : "",
                  c->unit, *c->unit ? "</small>" : "");
}

static void begin_cell(FILE *to, const column *c)
{
    (void)fprintf(to, "<td data-label=\"%s\">", c->title);
}

/* A number and no unit: the column's title has it. */
static void number_cell(FILE *to, const column *c, double value, const char *behind)
{
    begin_cell(to, c);
    gw_cli_html_number(to, value);
    (void)fprintf(to, "%s</td>", isfinite(value) ? behind : "");
}

/* A kind that no run compresses has no column. */
static bool has_kind(const gw_cli_comparison *report, size_t kind)
{
    bool found = false;
    for (size_t w = 0; w < report->n_ways; w++) {
        found = found || fabs(report->ways[w].kind_ratio[kind] - 1) > 0.01;
    }
    return found;
}

/* Quality, time to the target, step, waiting, sent, compression; then the kinds of layers. Returns how many. */
static size_t columns_of(const gw_cli_comparison *report, column out[MOST_COLUMNS])
{
    size_t n = 6;
    char target[TARGET_TEXT];
    print_target(report, target);
    out[0] = (column){"", "last test"};
    (void)snprintf(out[0].title, sizeof out[0].title, "%s",
                   report->in_bits ? "bits/character" : "accuracy (%)");
    out[1] = (column){"", "seconds of training"};
    (void)snprintf(out[1].title, sizeof out[1].title, "time to %s", target);
    out[2] = (column){"ms/step", "median"};
    out[3] = (column){"waiting (%)", "of the time"};
    out[4] = (column){"sent/step", "by rank 0"};
    out[5] = (column){"compression", "against fp32 DDP"};
    for (size_t k = 0; k < GW_CLI_REPORT_KINDS; k++) {
        if (has_kind(report, k)) {
            out[n] = (column){"", "compression"};
            (void)snprintf(out[n].title, sizeof out[n].title, "%s", GW_CLI_REPORT_KIND[k]);
            n++;
        }
    }
    return n;
}

static void run_note(const gw_cli_way *way, FILE *to)
{
    size_t unfinished = 0;
    for (size_t i = 0; i < way->n_runs; i++) {
        unfinished += strcmp(way->runs[i].run.state, "finished") != 0;
    }
    if (way->n_runs > 1) {
        (void)fprintf(to, "<br><small>%zu seeds</small>", way->n_runs);
    }
    if (unfinished > 0) {
        (void)fprintf(to, "<br><small class=\"warn\">%s</small>",
                      way->n_runs == 1 ? way->runs[0].run.state : "not all finished");
    }
}

static void quality_cell(const gw_cli_comparison *report, FILE *to, const gw_cli_way *way,
                         const column *c)
{
    const double value = way->quality.mean;
    begin_cell(to, c);
    if (isfinite(value)) {
        (void)fprintf(to, report->in_bits ? "%.3f" : "%.2f", value * (report->in_bits ? 1 : 100));
    } else {
        (void)fputs(DASH, to);
    }
    if (way->n_counted > 1) {
        (void)fputs("<br><small>", to);
        say_range(report, to, &way->quality);
        (void)fputs("</small>", to);
    }
    (void)fputs("</td>", to);
}

static void row(const gw_cli_comparison *report, FILE *to, size_t w, const column *columns)
{
    const gw_cli_way *way = &report->ways[w];
    size_t n = 6;
    (void)fprintf(to, "<tr><th scope=\"row\"><span class=\"key\" data-way=\"%zu\"></span>", w);
    gw_cli_html_text(to, way->label);
    run_note(way, to);
    (void)fputs("</th>", to);
    quality_cell(report, to, way, &columns[0]);
    number_cell(to, &columns[1], way->target_seconds, THIN "s");
    number_cell(to, &columns[2], 1e3 * way->step_seconds, "");
    begin_cell(to, &columns[3]);
    if (isfinite(share(way))) {
        (void)fprintf(to, "%.0f</td>", 100 * share(way));
    } else {
        (void)fputs(DASH "</td>", to);
    }
    begin_cell(to, &columns[4]);
    gw_cli_html_bytes(to, way->bytes);
    (void)fputs("</td>", to);
    number_cell(to, &columns[5], way->ratio, TIMES);
    for (size_t k = 0; k < GW_CLI_REPORT_KINDS; k++) {
        if (has_kind(report, k)) {
            number_cell(to, &columns[n++], way->kind_ratio[k], TIMES);
        }
    }
    (void)fputs("</tr>\n", to);
}

void gw_cli_report_table(const gw_cli_comparison *report, FILE *to)
{
    column columns[MOST_COLUMNS];
    const size_t n = columns_of(report, columns);
    (void)fputs("<table class=\"runs cards\">\n<thead><tr><th scope=\"col\">run</th>", to);
    for (size_t i = 0; i < n; i++) {
        head(to, &columns[i]);
    }
    (void)fputs("</tr></thead>\n<tbody>\n", to);
    for (size_t w = 0; w < report->n_ways; w++) {
        row(report, to, w, columns);
    }
    (void)fputs("</tbody></table>\n", to);
}
