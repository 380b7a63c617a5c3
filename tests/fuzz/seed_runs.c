/* Seeds of fuzz_run; see seed_runs.h. */
#include "seed_runs.h"

#include "fuzz.h"

#define RUN_CONFIG                                                                                 \
    "\"config\":{\"model\":\"cnn\",\"engine\":\"threads\",\"ranks\":2,\"ranks_per_node\":1,"       \
    "\"batch\":8,\"steps\":2,\"seed\":1,\"spec\":\"natural:bits=8\",\"route\":\"sra\","            \
    "\"fuse_below\":64,\"link_bytes_per_second\":25e6,\"latency_seconds\":0.001,"                  \
    "\"optimiser\":\"sgd\",\"rate\":0.1,\"warmup\":0,\"momentum\":0.9,\"decay\":0,"                \
    "\"schedule\":\"cosine\",\"data\":\"fashion-mnist\"},"
#define RUN_LAYER                                                                                  \
    "{\"name\":\"fc\",\"kind\":\"linear\",\"elements\":10,\"spec\":\"dense\",\"route\":\"dense\"," \
    "\"fused\":false,\"bytes_sent\":80,\"dense_bytes\":80}"
#define RUN_STEP                                                                                   \
    "{\"step\":1,\"loss\":2.5,\"seconds\":0.1,\"wait_seconds\":0.05,\"bytes_sent\":40,"            \
    "\"dense_bytes\":40,\"non_finite\":0}"
#define RUN_TEST "{\"step\":1,\"seconds\":0.1,\"accuracy\":0.5,\"loss\":null,\"bits\":1}"
#define RUN_SAMPLE                                                                                 \
    "{\"step\":1,\"backward_seconds\":0.1,\"forward_seconds\":0.1,\"update_seconds\":0.01,"        \
    "\"layers\":[{\"posted\":0,\"begun\":0.1,\"arrived\":0.2,\"encode_seconds\":0,"                \
    "\"decode_seconds\":0,\"bytes_sent\":40,\"dense_bytes\":40,\"rel_error\":null}]}"

static void run_file(seed_text keep, const char *name, const char *head, const char *layers,
                     const char *steps, const char *tests, const char *samples)
{
    char line[4096];
    const int size = snprintf(line, sizeof line,
                              "{\"format\":\"gradwire.run/1\",\"gradwire\":\"0.1.0\","
                              "\"started\":\"2026-01-31T12:00:00Z\",%s,\"weights\":10," RUN_CONFIG
                              "\"layers\":[%s],\"steps\":[%s],\"tests\":[%s],\"samples\":[%s]}",
                              head, layers, steps, tests, samples);
    REQUIRE(size > 0 && (size_t)size < sizeof line);
    keep("run", name, line, (size_t)size);
}

/* From gradwire.run/2 on: a head, a NUL, a history. */
static void run_folder_of(seed_text keep, int format, const char *name, const char *head,
                          const char *spec, const char *history)
{
    char line[4096];
    const int size =
        snprintf(line, sizeof line,
                 "{\"format\":\"gradwire.run/"
                 "%d\",\"gradwire\":\"0.1.0\",\"started\":\"2026-01-31T12:00:00Z\",%s,"
                 "\"weights\":10," RUN_CONFIG "\"layers\":[" RUN_LAYER "],\"summary\":{\"steps\":1,"
                 "\"seconds\":0.1,\"wait_seconds\":0.05,\"bytes_sent\":40,\"dense_bytes\":40,"
                 "\"non_finite\":0}}%c%s",
                 format, head, 0, history);
    REQUIRE(size > 0 && (size_t)size < sizeof line);
    char *at = strstr(line, "natural:bits=8"); /* specs of as many characters */
    REQUIRE(at != NULL && strlen(spec) == strlen("natural:bits=8"));
    memcpy(at, spec, strlen(spec));
    keep("run", name, line, (size_t)size);
}

static void run_folder(seed_text keep, const char *name, const char *head, const char *spec,
                       const char *history)
{
    run_folder_of(keep, 2, name, head, spec, history);
}

static void run_folders(seed_text keep)
{
    const char *finished = "\"state\":\"finished\"", *running = "\"state\":\"running\"";
    const char *plain = "natural:bits=8", *automatic = "auto:alpha=1.0";
    const char *all =
        "{\"steps\":" RUN_STEP "}\n{\"tests\":" RUN_TEST "}\n{\"samples\":" RUN_SAMPLE "}\n";
    run_folder(keep, "history", finished, plain, all);
    run_folder(keep, "history-torn", running, plain, "{\"steps\":" RUN_STEP "}\n{\"steps\":{\"st");
    run_folder(keep, "history-behind", running, plain, "");
    run_folder(keep, "history-short", finished, plain, "");
    run_folder(keep, "history-unknown", finished, plain, "{\"colours\":1}\n");
    run_folder(keep, "history-two", finished, plain,
               "{\"steps\":" RUN_STEP ",\"tests\":" RUN_TEST "}\n");
    run_folder(keep, "history-watch", running, automatic,
               "{\"watch\":{\"step\":1,\"measured_seconds\":1,\"predicted_seconds\":null,"
               "\"error\":null,\"budget\":null,\"noise_ratio\":null,\"loss\":2}}\n");
    run_folder_of(keep, 3, "history-expected", running, automatic,
                  "{\"watch\":{\"step\":1,\"measured_seconds\":1,\"predicted_seconds\":1,"
                  "\"expected_seconds\":null,\"error\":null,\"budget\":null,"
                  "\"noise_ratio\":null,\"loss\":2}}\n");
    run_folder(keep, "history-not-auto", running, plain, "{\"watch\":{}}\n");
}

static void run_files(seed_text keep)
{
    const char *finished = "\"state\":\"finished\"";
    run_file(keep, "whole", finished, RUN_LAYER, RUN_STEP, RUN_TEST, RUN_SAMPLE);
    run_file(keep, "begun", "\"state\":\"running\"", RUN_LAYER, "", "", "");
    run_file(keep, "failed", "\"state\":\"failed\",\"error\":\"</script>\"", RUN_LAYER, RUN_STEP,
             "", "");
    run_file(keep, "no-error", "\"state\":\"failed\"", RUN_LAYER, RUN_STEP, "", "");
    run_file(keep, "unknown-key", "\"state\":\"finished\",\"more\":1", RUN_LAYER, RUN_STEP, "", "");
    run_file(keep, "same-layer", finished, RUN_LAYER "," RUN_LAYER, RUN_STEP, RUN_TEST, "");
    run_file(keep, "same-step", finished, RUN_LAYER, RUN_STEP "," RUN_STEP, RUN_TEST, RUN_SAMPLE);
    run_file(keep, "same-test", finished, RUN_LAYER, RUN_STEP, RUN_TEST "," RUN_TEST, RUN_SAMPLE);
    run_file(keep, "same-sample", finished, RUN_LAYER, RUN_STEP, "", RUN_SAMPLE "," RUN_SAMPLE);
    run_file(keep, "no-layers", finished, "", RUN_STEP, RUN_TEST, RUN_SAMPLE);
    run_file(keep, "wrong-rows", finished, "1", "null", "\"x\"", "[]");
    keep("run", "other-format", "{\"format\":\"gradwire.run/4\"}", 27);
    keep("run", "no-history", "{\"format\":\"gradwire.run/2\"}", 27);
    keep("run", "format-alone", "{\"format\":\"gradwire.run/1\"}", 27);
    keep("run", "array", "[]", 2);
    keep("run", "cut", "{\"format\":\"grad", 15);
}

void seed_runs(seed_text keep)
{
    run_files(keep);
    run_folders(keep);
}
