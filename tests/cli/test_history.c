/* history.jsonl: what is appended comes back, memory does not grow with it, and a crash or a full disk loses no more than the
 * last lines. */
#include "support/check.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "cli/train/train_history.h"

enum { LAYERS = 2 };

static void begin(gw_cli_run *run)
{
    *run = (gw_cli_run){.state = "running", .started = "2026-01-31T12:00:00Z", .weights = 12};
    run->config = (gw_cli_run_config){.model = "mlp",
                                      .engine = "threads",
                                      .spec = "adapt/topk:density=0.1",
                                      .route = "default",
                                      .optimiser = "sgd",
                                      .schedule = "cosine",
                                      .data = "images",
                                      .ranks = 2,
                                      .batch = 16,
                                      .steps = 1 << 20};
    (void)snprintf(run->folder, sizeof run->folder, "/tmp/gradwire-history-XXXXXX");
    assert_non_null(mkdtemp(run->folder));
    run->layers = calloc(LAYERS, sizeof *run->layers);
    assert_non_null(run->layers);
    run->n_layers = LAYERS;
    for (size_t i = 0; i < LAYERS; i++) {
        run->layers[i] = (gw_cli_run_layer){
            .name = i ? "b" : "a", .kind = "linear", .spec = "dense", .route = "dense"};
    }
}

static char *path_of(const gw_cli_run *run, const char *name)
{
    static char path[GW_CLI_RUN_PATH + 32];
    (void)snprintf(path, sizeof path, "%s/%s", run->folder, name);
    return path;
}

static void end(gw_cli_run *run)
{
    (void)unlink(path_of(run, "run.json"));
    (void)unlink(path_of(run, "history.jsonl"));
    assert_int_equal(rmdir(run->folder), 0); /* nothing else was left behind */
    gw_cli_run_free(run);
}

/* Step `step` and what comes after some of them. */
static void go(gw_cli_run *run, uint64_t step)
{
    gw_why why = {""};
    const gw_cli_run_step one = {.step = step,
                                 .loss = 1 / (double)step,
                                 .seconds = 0.25,
                                 .wait_seconds = 0.125,
                                 .bytes_sent = step,
                                 .dense_bytes = 40};
    assert_true(gw_cli_run_add_step(run, &one));
    CHECK(gw_cli_history_step(run, &why) == GW_OK, "%s", why.text);
    if (step % 5 == 0) {
        const gw_cli_run_test test = {.step = step, .seconds = run->done.seconds, .bits = 1};
        assert_true(gw_cli_run_add_test(run, &test));
    }
    if (step % 3 == 0) {
        gw_cli_run_sample *sample = gw_cli_run_add_sample(run);
        assert_non_null(sample);
        sample->step = step;
        sample->layers[1].arrived = 0.5;
    }
}

static gw_status again(const gw_cli_run *from, gw_cli_run *to, gw_why *why)
{
    *to = (gw_cli_run){0};
    (void)snprintf(to->folder, sizeof to->folder, "%s", from->folder);
    return gw_cli_run_read(to, why);
}

static void must_hold(const gw_cli_run *from, uint64_t steps, size_t tests, size_t samples)
{
    gw_cli_run read;
    gw_why why = {""};
    CHECK(again(from, &read, &why) == GW_OK, "%s", why.text);
    assert_int_equal(read.n_steps, steps);
    assert_int_equal(read.done.steps, steps);
    assert_int_equal(read.n_tests, tests);
    assert_int_equal(read.n_samples, samples);
    for (uint64_t i = 0; i < steps; i++) {
        assert_int_equal(read.steps[i].bytes_sent, i + 1);
    }
    if (samples > 0) {
        assert_true(read.samples[samples - 1].layers[1].arrived == 0.5);
    }
    gw_cli_run_free(&read);
}

static void save(gw_cli_run *run)
{
    gw_why why = {""};
    CHECK(gw_cli_history_append(run, true, &why) == GW_OK, "%s", why.text);
    CHECK(gw_cli_run_write(run, &why) == GW_OK, "%s", why.text);
}

static void memory_does_not_grow(void **state)
{
    (void)state;
    enum { FEW = 2000, MANY_STEPS = 50000, ROOM = 2048 /* KB; the records would take 5 MB */ };
    gw_cli_run run;
    gw_why why = {""};
    struct rusage few, many;
    size_t most = 0;
    begin(&run);
    CHECK(gw_cli_history_begin(&run, &why) == GW_OK, "%s", why.text);
    for (uint64_t step = 1; step <= MANY_STEPS; step++) {
        go(&run, step);
        most = run.n_steps > most ? run.n_steps : most;
        if (step == FEW) {
            assert_int_equal(getrusage(RUSAGE_SELF, &few), 0);
        }
    }
    save(&run);
    assert_int_equal(getrusage(RUSAGE_SELF, &many), 0);
    CHECK(most <= 512, "%zu steps in memory", most);
    assert_in_range(run.n_steps, 1, GW_CLI_RECENT);
    assert_int_equal(run.n_tests, 1);
    assert_int_equal(run.n_samples, 0);
    assert_int_equal(run.done.steps, MANY_STEPS);
#ifndef GW_TESTS_SANITIZED /* which keep what is freed for a while */
    CHECK(many.ru_maxrss - few.ru_maxrss < ROOM, "%ld KB after %d steps, %ld KB after %d",
          few.ru_maxrss, FEW, many.ru_maxrss, MANY_STEPS);
#endif
    FILE *file = fopen(path_of(&run, "run.json"), "r");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    assert_in_range(ftell(file), 100, 2000);
    assert_int_equal(fclose(file), 0);
    must_hold(&run, MANY_STEPS, MANY_STEPS / 5, MANY_STEPS / 3);
    end(&run);
}

/* Whatever the length that a crash left: whole lines are kept, the rest is left out. */
static void a_torn_end_is_left_out(void **state)
{
    (void)state;
    gw_cli_run run;
    gw_why why = {""};
    begin(&run);
    CHECK(gw_cli_history_begin(&run, &why) == GW_OK, "%s", why.text);
    save(&run); /* the last run.json knows of no step */
    for (uint64_t step = 1; step <= 4; step++) {
        go(&run, step);
    }
    CHECK(gw_cli_history_append(&run, false, &why) == GW_OK, "%s", why.text);
    char text[4096] = "";
    FILE *file = fopen(path_of(&run, "history.jsonl"), "r");
    assert_non_null(file);
    const size_t size = fread(text, 1, sizeof text, file);
    assert_int_equal(fclose(file), 0);
    for (size_t left = size + 1; left-- > 0;) {
        size_t steps = 0, samples = 0;
        for (size_t i = 0; i < left; i++) {
            steps += text[i] == '\n' ? 1 : 0;
        }
        samples = steps == 5; /* after the four steps stands the sample of the third */
        assert_int_equal(truncate(path_of(&run, "history.jsonl"), (off_t)left), 0);
        must_hold(&run, steps - samples, 0, samples);
    }
    end(&run);
}

static void what_goes_on_is_cut_and_continued(void **state)
{
    (void)state;
    gw_cli_run run, later;
    gw_why why = {""};
    begin(&run);
    CHECK(gw_cli_history_begin(&run, &why) == GW_OK, "%s", why.text);
    for (uint64_t step = 1; step <= 1000; step++) {
        go(&run, step);
    }
    save(&run);
    CHECK(again(&run, &later, &why) == GW_OK, "%s", why.text);
    gw_cli_run_cut(&later, 600);
    CHECK(gw_cli_history_begin(&later, &why) == GW_OK, "%s", why.text);
    must_hold(&run, 600, 120, 200);
    assert_in_range(later.n_steps, 1, GW_CLI_RECENT);
    assert_true(later.done.seconds == 150);
    for (uint64_t step = 601; step <= 700; step++) {
        go(&later, step);
    }
    save(&later);
    must_hold(&run, 700, 140, 233);
    gw_cli_run_free(&later);
    end(&run);
}

/* A disk that fills up in the middle of a line: the lines before it stay, and later ones do not follow half a line. */
static void a_full_disk_leaves_whole_lines(void **state)
{
    (void)state;
    gw_cli_run run;
    gw_why why = {""};
    struct rlimit limit;
    begin(&run);
    CHECK(gw_cli_history_begin(&run, &why) == GW_OK, "%s", why.text);
    for (uint64_t step = 1; step <= 10; step++) {
        go(&run, step);
    }
    save(&run);
    for (uint64_t step = 11; step <= 60; step++) {
        go(&run, step);
    }
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const struct rlimit small = {4000, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const gw_status status = gw_cli_history_append(&run, true, &why);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_equal(status, GW_ERR_SYSTEM);
    CHECK(strstr(why.text, "history.jsonl: cannot write: File too large"), "%s", why.text);
    must_hold(&run, 10, 2, 3);
    save(&run); /* there is room again: nothing was lost, nothing is there twice */
    must_hold(&run, 60, 12, 20);
    end(&run);
}

static void a_missing_or_foreign_history_is_refused(void **state)
{
    (void)state;
    gw_cli_run run, read;
    gw_why why = {""};
    begin(&run);
    CHECK(gw_cli_history_begin(&run, &why) == GW_OK, "%s", why.text);
    for (uint64_t step = 1; step <= 4; step++) {
        go(&run, step);
    }
    save(&run);
    static const struct {
        const char *line, *words;
    } LINES[] = {{"{\"steps\":{\"step\":5}}", "run.json: steps[4]: key 'loss' is missing"},
                 {"{\"auto\":{}}", "line 6.auto: the run's spec has none"},
                 {"{\"colour\":{}}", "line 6: is not one record of a known kind"},
                 {"{}", "line 6: is not one record of a known kind"},
                 {"7", "line 6"},
                 {"", "line 6"},
                 {"{\"adapt\":{}}", "adapt[0]: key 'step' is missing"}};
    for (size_t i = 0; i < sizeof LINES / sizeof *LINES; i++) {
        FILE *file = fopen(path_of(&run, "history.jsonl"), "r+");
        assert_non_null(file);
        assert_int_equal(fseek(file, 0, SEEK_END), 0);
        const long size = ftell(file);
        (void)fprintf(file, "%s\n", LINES[i].line);
        assert_int_equal(fclose(file), 0);
        CHECK(again(&run, &read, &why) == GW_ERR_CORRUPT && strstr(why.text, LINES[i].words),
              "%s: %s", LINES[i].line, why.text);
        gw_cli_run_free(&read);
        assert_int_equal(truncate(path_of(&run, "history.jsonl"), size), 0);
    }
    run.state = "finished";
    save(&run);
    must_hold(&run, 4, 0, 1);
    assert_int_equal(truncate(path_of(&run, "history.jsonl"), 0), 0);
    assert_int_equal(again(&run, &read, &why), GW_ERR_CORRUPT);
    CHECK(strstr(why.text, "summary.steps: is 4; history.jsonl has 0"), "%s", why.text);
    gw_cli_run_free(&read);
    assert_int_equal(unlink(path_of(&run, "history.jsonl")), 0);
    assert_int_equal(again(&run, &read, &why), GW_ERR_CORRUPT);
    CHECK(strstr(why.text, "there is no history.jsonl beside it"), "%s", why.text);
    gw_cli_run_free(&read);
    end(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_does_not_grow),
        cmocka_unit_test(a_torn_end_is_left_out),
        cmocka_unit_test(what_goes_on_is_cut_and_continued),
        cmocka_unit_test(a_full_disk_leaves_whole_lines),
        cmocka_unit_test(a_missing_or_foreign_history_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
