/* What auto decided and saw: written, read back the same, cut where a run goes on, and as figures for a monitor. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/train/train_auto.h"
#include "cli/train/train_history.h"
#include "cli/train/train_metrics.h"

enum { LAYERS = 2 };

/* A folder of its own, and a run of four steps in it. */
static void begin(gw_cli_run *run)
{
    *run = (gw_cli_run){.state = "running", .started = "2026-01-31T12:00:00Z", .weights = 12};
    run->config = (gw_cli_run_config){.model = "mlp",
                                      .engine = "threads",
                                      .spec = "auto:alpha=1",
                                      .route = "default",
                                      .optimiser = "sgd",
                                      .schedule = "cosine",
                                      .data = "images",
                                      .ranks = 2,
                                      .ranks_per_node = 1,
                                      .batch = 16,
                                      .steps = 40};
    (void)snprintf(run->folder, sizeof run->folder, "/tmp/gradwire-auto-XXXXXX");
    assert_non_null(mkdtemp(run->folder));
    run->layers = calloc(LAYERS, sizeof *run->layers);
    assert_non_null(run->layers);
    run->n_layers = LAYERS;
    for (size_t i = 0; i < LAYERS; i++) {
        run->layers[i] = (gw_cli_run_layer){.name = i ? "b" : "a",
                                            .kind = "linear",
                                            .spec = "dense",
                                            .route = "dense",
                                            .elements = 6};
    }
    for (uint64_t step = 1; step <= 4; step++) {
        const gw_cli_run_step one = {.step = step,
                                     .loss = 1,
                                     .seconds = 0.25,
                                     .wait_seconds = 0.125,
                                     .bytes_sent = 10,
                                     .dense_bytes = 40};
        assert_true(gw_cli_run_add_step(run, &one));
    }
}

static void decide(gw_cli_run *run, uint64_t step, uint64_t bound_at, const char *reason)
{
    gw_cli_run_auto *d = gw_cli_auto_add(run);
    assert_non_null(d);
    d->step = step;
    d->bound_at = bound_at;
    d->reason = reason;
    d->outcome = "switched";
    d->words = strdup("some words");
    d->own_words = true;
    d->predicted_seconds = 0.125 * (double)step;
    d->budget = 0.5;
    d->bytes = 7;
    d->waited = 2;
    for (size_t i = 0; i < LAYERS; i++) {
        (void)snprintf(d->layers[i].spec_text, sizeof d->layers[i].spec_text, "topk%zu", i);
        (void)snprintf(d->layers[i].route_text, sizeof d->layers[i].route_text, "gather");
    }
}

static void watch(gw_cli_run *run, uint64_t step, double error)
{
    gw_cli_run_watch *w = gw_cli_watch_add(run);
    assert_non_null(w);
    w->step = step;
    w->measured_seconds = 0.25;
    w->predicted_seconds = 0.125;
    w->expected_seconds = step > 2 ? 0.5 : (double)NAN;
    w->error = error;
}

static void fill(gw_cli_run *run)
{
    begin(run);
    decide(run, 1, 2, "start");
    decide(run, 2, 2, "periodic");
    decide(run, 3, 5, "slower");
    watch(run, 2, 0.25);
    watch(run, 4, (double)NAN);
}

static void end(gw_cli_run *run)
{
    char path[GW_CLI_RUN_PATH + 16];
    (void)snprintf(path, sizeof path, "%s/run.json", run->folder);
    (void)unlink(path);
    (void)snprintf(path, sizeof path, "%s/history.jsonl", run->folder);
    (void)unlink(path);
    (void)rmdir(run->folder);
    gw_cli_run_free(run);
}

/* What run.json of `from` reads as. */
static gw_status again(const gw_cli_run *from, gw_cli_run *to, gw_why *why)
{
    *to = (gw_cli_run){0};
    (void)snprintf(to->folder, sizeof to->folder, "%s", from->folder);
    return gw_cli_run_read(to, why);
}

static void comes_back(void **state)
{
    gw_cli_run run, read;
    gw_why why = {""};
    (void)state;
    fill(&run);
    json_t *one = gw_cli_run_json(&run); /* before its records leave the memory */
    CHECK(gw_cli_history_begin(&run, &why) == GW_OK, "%s", why.text);
    assert_int_equal(run.n_decisions + run.n_watch, 2); /* the last of each */
    CHECK(gw_cli_run_write(&run, &why) == GW_OK, "%s", why.text);
    CHECK(again(&run, &read, &why) == GW_OK, "%s", why.text);
    json_t *two = gw_cli_run_json(&read);
    CHECK(one && two && json_equal(one, two), "what was read is not what was written");
    const json_t *first = json_array_get(json_object_get(one, "auto"), 0);
    assert_int_equal(json_object_size(first), 22);
    assert_true(json_is_null(json_object_get(first, "error"))); /* never set: not known */
    assert_int_equal(json_integer_value(json_object_get(first, "waited")), 2);
    assert_int_equal(json_array_size(json_object_get(first, "layers")), LAYERS);
    json_decref(one);
    json_decref(two);
    assert_int_equal(read.n_decisions, 3);
    assert_string_equal(read.decisions[2].layers[1].spec, "topk1");
    assert_true(isnan(read.watch[1].error) && isnan(read.decisions[0].half_seconds));
    assert_true(read.watch[0].predicted_seconds == 0.125 && isnan(read.watch[0].expected_seconds));
    assert_true(read.watch[1].predicted_seconds == 0.125 && read.watch[1].expected_seconds == 0.5);
    decide(&read, 6, 7, "error"); /* behind what was read */
    watch(&read, 6, 1);
    assert_int_equal(read.n_decisions, 4);
    assert_string_equal(read.decisions[1].reason, "periodic");
    gw_cli_run_free(&read);
    end(&run);
}

static void is_cut(void **state)
{
    static const struct {
        uint64_t last;
        size_t decisions, windows;
    } CUTS[] = {{4, 3, 2}, {3, 2, 1}, {2, 2, 1}, {1, 1, 0}, {0, 0, 0}};
    (void)state;
    for (size_t i = 0; i < sizeof CUTS / sizeof *CUTS; i++) {
        gw_cli_run run;
        fill(&run);
        gw_cli_run_cut(&run, CUTS[i].last);
        CHECK(run.n_decisions == CUTS[i].decisions && run.n_watch == CUTS[i].windows,
              "after step %llu: %zu decisions, %zu windows", (unsigned long long)CUTS[i].last,
              run.n_decisions, run.n_watch);
        end(&run);
    }
}

/* As gradwire.run/1 had it: all in one file, and nothing expected. */
static void make_whole(json_t *all)
{
    size_t i = 0;
    json_t *window = NULL;
    (void)json_object_set_new(all, "format", json_string("gradwire.run/1"));
    json_array_foreach(json_object_get(all, "watch"), i, window)
    {
        (void)json_object_del(window, "expected_seconds");
    }
}

/* Writes run.json with one text replaced; the reader's words. */
static void refused(const char *from, const char *to, const char *words)
{
    gw_cli_run run, read;
    gw_why why = {""};
    char path[GW_CLI_RUN_PATH + 16], text[8192], *at = NULL;
    fill(&run);
    json_t *all = gw_cli_run_json(&run);
    make_whole(all);
    char *dump = json_dumps(all, JSON_COMPACT);
    at = dump ? strstr(dump, from) : NULL;
    CHECK(at, "no %s in it", from);
    (void)snprintf(text, sizeof text, "%.*s%s%s", (int)(at - dump), dump, to, at + strlen(from));
    free(dump);
    json_decref(all);
    (void)snprintf(path, sizeof path, "%s/run.json", run.folder);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fputs(text, file);
    assert_int_equal(fclose(file), 0);
    const gw_status status = again(&run, &read, &why);
    CHECK(status == GW_ERR_CORRUPT && strstr(why.text, words), "%s: status %d, %s", to, status,
          why.text);
    gw_cli_run_free(&read);
    end(&run);
}

static void is_read_strictly(void **state)
{
    (void)state;
    refused("\"auto\":[", "\"autos\":[", "key 'auto' is missing");
    refused("\"alpha\":null", "\"alpha\":\"much\"", "auto[0].alpha: is not a number or null");
    refused("\"alpha\":null", "\"beta\":null", "auto[0]: key 'alpha' is missing");
    refused("\"alpha\":null", "\"alpha\":null,\"beta\":1", "auto[0]: unknown key 'beta'");
    refused("\"bytes\":7", "\"bytes\":null", "auto[0].bytes: is not a whole number");
    refused("{\"spec\":\"topk0\",\"route\":\"gather\"},", "",
            "auto[0].layers: is not an array of 2, one a layer");
    refused("\"topk0\"", "4", "auto[0].layers[0].spec: is not a string");
    refused("\"step\":3,\"bound_at\":5", "\"step\":1,\"bound_at\":5",
            "auto[2].step: 1 comes before");
    refused("\"step\":3,\"bound_at\":5", "\"step\":3,\"bound_at\":1",
            "auto[2].bound_at: 1 comes before");
    refused("\"step\":4,\"measured", "\"step\":2,\"measured",
            "watch[1].step: 2 does not come after");
    refused("\"watch\":[", "\"watch\":[7,", "watch[0]: is not an object");
}

static char *figures(const gw_cli_run *run)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    assert_non_null(to);
    gw_cli_metrics_print(run, to);
    assert_int_equal(fclose(to), 0);
    return text;
}

static void are_figures(void **state)
{
    static const char *const LINES[] = {
        "gradwire_step{run=\"a \\\"b\\\\\\n\"} 4\n",
        "# TYPE gradwire_bytes_sent_total counter\n",
        "gradwire_bytes_sent_total{run=\"a \\\"b\\\\\\n\"} 40\n",
        "gradwire_predicted_step_seconds{run=\"a \\\"b\\\\\\n\"} 0.375\n",
        "gradwire_error_budget{run=\"a \\\"b\\\\\\n\"} 0.5\n", /* only decisions know it */
        "reason=\"start\"} 1\n",
        "reason=\"slower\"} 1\n",
        "reason=\"recovered\"} 0\n"};
    gw_cli_run run;
    char folder[sizeof run.folder];
    (void)state;
    fill(&run);
    memcpy(folder, run.folder, sizeof folder);
    (void)snprintf(run.folder, sizeof run.folder, "/x/a \"b\\\n//");
    char *text = figures(&run);
    for (size_t i = 0; i < sizeof LINES / sizeof *LINES; i++) {
        CHECK(strstr(text, LINES[i]), "no %s in\n%s", LINES[i], text);
    }
    CHECK(!strstr(text, "gradwire_error{") && !strstr(text, "noise_ratio{"), "not known:\n%s",
          text);
    /* what is on the disk only still counts */
    char *const before = text;
    gw_cli_run_drop(&run);
    assert_int_equal(run.n_decisions, 1);
    text = figures(&run);
    assert_string_equal(text, before);
    free(before);
    free(text);
    watch(&run, 5, 0.75);
    run.config.spec = "autos";
    text = figures(&run);
    CHECK(!strstr(text, "replans"), "it is not auto:\n%s", text);
    free(text);
    run.config.spec = "auto";
    (void)snprintf(run.folder, sizeof run.folder, "\xff");
    text = figures(&run);
    CHECK(strstr(text, "gradwire_error{run=\"_\"} 0.75\n"), "the newest window's:\n%s", text);
    free(text);
    memcpy(run.folder, folder, sizeof folder);
    end(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(comes_back), cmocka_unit_test(is_cut),
                                       cmocka_unit_test(is_read_strictly),
                                       cmocka_unit_test(are_figures)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
