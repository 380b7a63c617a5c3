/* gradwire simulate FILE: timelines written out by hand. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <gradwire/gradwire.h>

#include "cli/commands.h"
#include "cli/files/files.h"
#include "cli/files/timelinefile.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/say.h"
#include "cli/table.h"

static const gw_cli_page PAGE = {
    .command = "simulate",
    .usage = "simulate FILE [options]",
    .about = "Draws timelines whose durations are given: tensors in the order of their backward\n"
             "pass, each with the operations that follow, as\n"
             "  [{\"figure\": \"2b\", \"tensors\": [{\"compute\": 8, \"ops\": [[\"gpu\", 3], "
             "[\"net\", 3]]}]}]\n"
             "and prints when each ends. Where the file says a \"makespan\", another one is a "
             "failure. FILE of - is standard input.",
    .example = "  gradwire simulate timelines.json",
};

static bool load(const char *path, gw_cli_timelines *out)
{
    gw_file_bytes file;
    char why[256];
    if (!gw_cli_file_read(path, &file)) {
        return false;
    }
    const bool fine = gw_cli_timelines_parse(file.data, file.size, out, why, sizeof why);
    gw_cli_bytes_free(&file);
    if (!fine) {
        gw_cli_error("%s: %s", path, why);
    }
    return fine;
}

static bool run(const gw_cli_timelines *all, double *makespans)
{
    /* the drawings' rules: one CPU, one channel, a last decode waits */
    const gw_timeline_rules rules = {.cpu_workers = 1, .one_channel = 1};
    for (size_t i = 0; i < all->n; i++) {
        int64_t ticks = 0;
        gw_why why = {""};
        if (gw_timeline_run(all->items[i].tensors, all->items[i].n, &rules, &ticks, NULL, NULL,
                            &why) != GW_OK) {
            gw_cli_error("timeline %zu: %s", i, why.text);
            return false;
        }
        makespans[i] = (double)ticks / GW_CLI_TICKS_PER_UNIT;
    }
    return true;
}

static bool print(const gw_cli_timelines *all, const double *makespans, bool as_json)
{
    static const gw_cli_column COLUMNS[] = {{"figure", false}, {"makespan", true}};
    gw_cli_table table = {.columns = COLUMNS, .n_columns = 2};
    json_t *json = as_json ? json_array() : NULL;
    for (size_t i = 0; i < all->n; i++) {
        if (as_json) {
            json_array_append_new(json, json_pack("{s:s, s:o}", "figure", all->items[i].figure,
                                                  "makespan", gw_cli_json_number(makespans[i])));
        } else {
            gw_cli_table_cell(&table, "%s", all->items[i].figure);
            gw_cli_table_cell(&table, "%.10g", makespans[i]);
        }
    }
    return as_json ? gw_cli_json_print(json) : gw_cli_table_print(&table);
}

static bool compare(const gw_cli_timelines *all, const double *makespans)
{
    bool same = true;
    for (size_t i = 0; i < all->n; i++) {
        const double expected = all->items[i].expected;
        if (expected >= 0 && fabs(expected - makespans[i]) > 1e-6) {
            gw_cli_error("%s: ends at %.10g, the file says %.10g", all->items[i].figure,
                         makespans[i], expected);
            same = false;
        }
    }
    return same;
}

int gw_cli_simulate(int argc, char **argv)
{
    gw_cli_args args;
    gw_cli_timelines all = {0};
    char unused = 0;
    const int status = gw_cli_parse(&PAGE, argc, argv, &args, &unused);
    if (status != GW_CLI_GO_ON) {
        return status;
    }
    if (args.n_words != 1) {
        return gw_cli_misuse(&PAGE, "one FILE of timelines is needed");
    }
    if (!load(args.words[0], &all)) {
        return GW_CLI_FAILED;
    }
    double *makespans = calloc(all.n, sizeof *makespans);
    bool fine = makespans != NULL;
    if (!fine) {
        gw_cli_out_of_memory();
    }
    fine = fine && run(&all, makespans) && print(&all, makespans, args.json) &&
           compare(&all, makespans);
    free(makespans);
    gw_cli_timelines_free(&all);
    return fine ? GW_CLI_DONE : GW_CLI_FAILED;
}
