/* `gradwire report`: run folders -> one page. */
#define _POSIX_C_SOURCE 200809L
#include "cli/report/report.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <gradwire/gradwire.h>

#include "cli/commands.h"
#include "cli/files/files.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/report/report_page.h"
#include "cli/say.h"

typedef struct values {
    const char *output;
} values;

static const gw_cli_option OPTIONS[] = {
    {"output", 'o', GW_CLI_TEXT, offsetof(values, output), "OUT.html",
     "the page to write; - is standard output"},
};

static const gw_cli_page PAGE = {
    .command = "report",
    .usage = "report RUN... -o OUT.html [options]",
    .about =
        "Makes one page of training runs: a summary in words, a table, loss and test quality\n"
        "over steps and over seconds, bytes and error of every layer, and a step as a timeline.\n"
        "RUN is a folder that gradwire train wrote, or a folder of such folders. Runs that\n"
        "differ in their seed only are drawn as one curve with its spread. The page holds all\n"
        "it needs: it loads nothing.",
    .example = "  gradwire report runs/compare -o report.html\n"
               "  gradwire report runs/dense runs/adacomp -o report.html",
    .options = OPTIONS,
    .n_options = sizeof OPTIONS / sizeof OPTIONS[0],
};

/* ---- finding and reading runs ---- */

static char *join(const char *folder, const char *name)
{
    const size_t size = strlen(folder) + strlen(name) + 2;
    char *path = malloc(size);
    if (path) {
        const bool slash = folder[0] && folder[strlen(folder) - 1] == '/';
        (void)snprintf(path, size, "%s%s%s", folder, slash ? "" : "/", name);
    } else {
        gw_cli_out_of_memory();
    }
    return path;
}

static bool is_there(const char *path)
{
    struct stat stat_of;
    return stat(path, &stat_of) == 0;
}

/* What lies beside run.json; no file is no error here. */
static bool read_history(const char *path, gw_file_bytes *out)
{
    const size_t folder = (size_t)(strrchr(path, '/') - path); /* join put it there */
    char *beside = malloc(folder + sizeof "/history.jsonl");
    if (!beside) {
        gw_cli_out_of_memory();
        return false;
    }
    (void)snprintf(beside, folder + sizeof "/history.jsonl", "%.*s/history.jsonl", (int)folder,
                   path);
    const bool fine = !is_there(beside) || gw_cli_file_read(beside, out);
    free(beside);
    return fine;
}

/* Takes `path`, which is malloc'd. */
static bool add_run(gw_cli_comparison *report, char *path)
{
    gw_file_bytes file = {0}, history = {0};
    char why[512] = "";
    gw_cli_report_run *runs = realloc(report->runs, (report->n_runs + 1) * sizeof *runs);
    if (!runs) {
        gw_cli_out_of_memory();
        free(path);
        return false;
    }
    report->runs = runs;
    gw_cli_report_run *run = &runs[report->n_runs];
    *run = (gw_cli_report_run){.path = path};
    /* run.json first: what it knows the history has */
    bool fine = gw_cli_file_read(path, &file) && read_history(path, &history);
    if (fine && !gw_run_file_parse(file.data, file.size, history.data, history.size, &run->run, why,
                                   sizeof why)) {
        gw_cli_error("%s: %s", path, why);
        fine = false;
    }
    gw_cli_bytes_free(&file);
    gw_cli_bytes_free(&history);
    if (!fine) {
        free(path);
        return false;
    }
    report->n_runs++;
    return true;
}

/* The runs in a folder's folders, in the order of their names. */
static bool add_inner(gw_cli_comparison *report, const char *folder)
{
    struct dirent **entries = NULL;
    const size_t before = report->n_runs;
    const int n = scandir(folder, &entries, NULL, alphasort);
    bool fine = n >= 0;
    for (int i = 0; i < n; i++) {
        if (fine && entries[i]->d_name[0] != '.') {
            char *inner = join(folder, entries[i]->d_name);
            char *path = inner ? join(inner, "run.json") : NULL;
            fine = path != NULL;
            if (fine && is_there(path)) {
                fine = add_run(report, path);
            } else {
                free(path);
            }
            free(inner);
        }
        free(entries[i]);
    }
    free(entries);
    if (fine && report->n_runs == before) {
        gw_cli_error("%s: no run.json in it, nor in the folders in it", folder);
        fine = false;
    }
    return fine;
}

static bool add_word(gw_cli_comparison *report, const char *word)
{
    struct stat stat_of;
    if (stat(word, &stat_of) != 0) {
        gw_cli_error("%s: there is no such run folder", word);
        return false;
    }
    if (!S_ISDIR(stat_of.st_mode)) {
        gw_cli_error("%s: is not a run folder", word);
        return false;
    }
    char *path = join(word, "run.json");
    if (path && is_there(path)) {
        return add_run(report, path);
    }
    free(path);
    return path && add_inner(report, word);
}

/* ---- the page ---- */

static void write_title(const gw_cli_comparison *report, FILE *to)
{
    gw_cli_html_text(to, report->runs[0].run.config.model);
    if (report->n_ways == 1) {
        (void)fputs(", ", to);
        gw_cli_html_text(to, report->ways[0].label);
    } else {
        (void)fprintf(to, ", %zu ways to send its gradients", report->n_ways);
    }
}

static void write_foot(const gw_cli_comparison *report, FILE *to)
{
    const char *earliest = report->runs[0].run.started;
    (void)fprintf(to, "Made by gradwire %s of", gw_version_string());
    for (size_t i = 0; i < report->n_runs; i++) {
        const char *started = report->runs[i].run.started;
        earliest = strcmp(started, earliest) < 0 ? started : earliest;
        char *path = strdup(report->runs[i].path);
        if (path) {
            *strrchr(path, '/') = '\0'; /* join put it there */
            const char *leaf = strrchr(path, '/');
            (void)fputs(i ? ", " : " ", to);
            gw_cli_html_text(to, leaf && leaf[1] ? leaf + 1 : path);
        }
        free(path);
    }
    (void)fputs("; begun ", to);
    gw_cli_html_text(to, earliest);
    (void)fputs(".", to);
}

/* One {{word}} of report_page.html. */
static bool write_part(const gw_cli_comparison *report, const char *word, size_t size, FILE *to)
{
    const struct {
        const char *word;
        void (*write)(const gw_cli_comparison *, FILE *);
        const char *text;
    } parts[] = {{"title", write_title, NULL},
                 {"style", NULL, gw_cli_report_page_css},
                 {"script", NULL, gw_cli_report_page_js},
                 {"script_auto", NULL, gw_cli_report_page_auto_js},
                 {"summary", gw_cli_report_summary, NULL},
                 {"table", gw_cli_report_table, NULL},
                 {"foot", write_foot, NULL}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (strlen(parts[i].word) == size && memcmp(parts[i].word, word, size) == 0) {
            if (parts[i].write) {
                parts[i].write(report, to);
            } else {
                (void)fputs(parts[i].text, to);
            }
            return true;
        }
    }
    return gw_cli_report_data(report, to); /* {{data}} */
}

static bool write_page(const gw_cli_comparison *report, FILE *to)
{
    bool fine = true;
    for (const char *at = gw_cli_report_page_html; fine && *at;) {
        const char *open = strstr(at, "{{"), *close = open ? strstr(open, "}}") : NULL;
        if (!close) {
            (void)fputs(at, to);
            break;
        }
        (void)fwrite(at, 1, (size_t)(open - at), to);
        fine = write_part(report, open + 2, (size_t)(close - open) - 2, to);
        at = close + 2;
    }
    return fine;
}

/* ---- the command ---- */

/* Of a way that is auto; else null. */
static json_t *auto_json(const gw_cli_way *way)
{
    gw_cli_report_autos all;
    if (!gw_cli_report_count_auto(way, &all)) {
        return json_null();
    }
    return json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "decisions",
                     (json_int_t)all.decisions, "switches", (json_int_t)all.switches,
                     "prediction_off", gw_cli_json_number(all.off), "predicted_seconds",
                     gw_cli_json_number(all.predicted_seconds), "half_seconds",
                     gw_cli_json_number(all.half_seconds), "double_seconds",
                     gw_cli_json_number(all.double_seconds), "dense_seconds",
                     gw_cli_json_number(all.dense_seconds), "bound_seconds",
                     gw_cli_json_number(all.bound_seconds));
}

static json_t *way_json(const gw_cli_way *way)
{
    return json_pack(
        "{s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "label", way->label, "seeds",
        (json_int_t)way->n_counted, "quality", gw_cli_json_number(way->quality.mean),
        "target_seconds", gw_cli_json_number(way->target_seconds), "step_seconds",
        gw_cli_json_number(way->step_seconds), "wait_share",
        gw_cli_json_number(way->wait_seconds / (way->wait_seconds + way->compute_seconds)),
        "bytes_sent", gw_cli_json_number(way->bytes), "ratio", gw_cli_json_number(way->ratio),
        "auto", auto_json(way));
}

static bool print_result(const gw_cli_args *args, const gw_cli_comparison *report,
                         const char *output, size_t bytes)
{
    if (!args->json) {
        gw_cli_result(args->talk, output, "%s: %zu run%s, %zu kB", output, report->n_runs,
                      report->n_runs == 1 ? "" : "s", bytes / 1000);
        return true;
    }
    json_t *ways = json_array();
    for (size_t w = 0; w < report->n_ways; w++) {
        json_array_append_new(ways, way_json(&report->ways[w]));
    }
    return gw_cli_json_print(json_pack("{s:s, s:I, s:I, s:s, s:o, s:o}", "output", output, "bytes",
                                       (json_int_t)bytes, "runs", (json_int_t)report->n_runs,
                                       "quality", report->in_bits ? "bits" : "accuracy", "target",
                                       gw_cli_json_number(report->target), "ways", ways));
}

static bool make(const gw_cli_args *args, const char *output, gw_cli_comparison *report)
{
    char why[8192] = "", *page = NULL;
    size_t size = 0;
    for (size_t i = 0; i < args->n_words; i++) {
        if (!add_word(report, args->words[i])) {
            return false;
        }
    }
    if (!gw_cli_report_measure(report, why, sizeof why)) {
        gw_cli_error("%s", why);
        return false;
    }
    FILE *to = open_memstream(&page, &size);
    bool fine = to && write_page(report, to);
    fine = to && fclose(to) == 0 && fine;
    if (!fine) {
        gw_cli_out_of_memory();
    }
    fine = fine && gw_cli_file_write(output, &(struct iovec){page, size}, 1) &&
           print_result(args, report, output, size);
    free(page);
    return fine;
}

int gw_cli_report(int argc, char **argv)
{
    gw_cli_args args;
    values v = {0};
    gw_cli_comparison report = {0};
    int status = gw_cli_parse(&PAGE, argc, argv, &args, &v);
    if (status != GW_CLI_GO_ON) {
        return status;
    }
    if (args.n_words == 0) {
        return gw_cli_misuse(&PAGE, "RUN is missing: a folder that gradwire train wrote");
    }
    if (!v.output) {
        return gw_cli_misuse(&PAGE, "-o OUT.html is missing");
    }
    if ((status = gw_cli_check_stream(&PAGE, &args, v.output, false)) != GW_CLI_GO_ON) {
        return status;
    }
    status = make(&args, v.output, &report) ? GW_CLI_DONE : GW_CLI_FAILED;
    gw_cli_report_free(&report);
    return status;
}
