/* history.jsonl; see train_history.h. */
#include "cli/train/train_history.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/seconds.h"
#include "cli/train/train_files.h"

enum { MANY = 256, SECONDS = 5 };

static const char *const KINDS[] = {"steps", "tests", "samples", "adapt", "auto", "watch"};
enum { N_KINDS = sizeof KINDS / sizeof *KINDS };

static gw_status path_of(const gw_cli_run *run, char path[GW_CLI_RUN_PATH], gw_why *why)
{
    return gw_cli_path(path, GW_CLI_RUN_PATH, run->folder, "history.jsonl", why);
}

static gw_status failed(gw_why *why, const char *path, const char *what)
{
    const size_t size = strlen(path), most = 150;
    return gw_cli_train_fail(why, GW_ERR_SYSTEM, "%s: %s: %s",
                             path + (size > most ? size - most : 0), what, strerror(errno));
}

/* Records `at` to `at + MANY` of those that are not written, of each kind. False: there are none. */
static bool window_of(const gw_cli_run *run, size_t at, gw_cli_run *out)
{
    bool any = false;
    *out = *run;
#define WINDOW(items, n, kind)                                                                     \
    do {                                                                                           \
        const size_t from = run->written.kind + at;                                                \
        const size_t left = run->n > from ? run->n - from : 0;                                     \
        out->items = left > 0 ? run->items + from : NULL;                                          \
        out->n = left < MANY ? left : MANY;                                                        \
        any = any || left > 0;                                                                     \
    } while (0)
    WINDOW(steps, n_steps, steps);
    WINDOW(tests, n_tests, tests);
    WINDOW(samples, n_samples, samples);
    WINDOW(adapt, n_adapt, adapt);
    WINDOW(decisions, n_decisions, decisions);
    WINDOW(watch, n_watch, watch);
#undef WINDOW
    return any;
}

/* {"steps":{...}} and a newline. False: no memory. */
static bool print_lines(const json_t *arrays, FILE *to)
{
    bool fine = true;
    for (size_t k = 0; k < N_KINDS; k++) {
        size_t i = 0;
        json_t *record = NULL;
        json_array_foreach(json_object_get(arrays, KINDS[k]), i, record)
        {
            char *text = json_dumps(record, JSON_COMPACT | JSON_ENSURE_ASCII);
            fine = fine && text && fprintf(to, "{\"%s\":%s}\n", KINDS[k], text) > 0;
            free(text);
        }
    }
    return fine;
}

/* The lines of all records that are not written; *text is malloc'd. */
static gw_status print_new(const gw_cli_run *run, char **text, size_t *size, gw_why *why)
{
    gw_cli_run part;
    FILE *to = open_memstream(text, size);
    bool fine = to != NULL;
    for (size_t at = 0; fine && window_of(run, at, &part); at += MANY) {
        json_t *arrays = gw_cli_run_arrays(&part);
        fine = arrays && print_lines(arrays, to);
        json_decref(arrays);
    }
    fine = (!to || fclose(to) == 0) && fine;
    return fine ? GW_OK : gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory for history.jsonl");
}

gw_status gw_cli_history_begin(gw_cli_run *run, gw_why *why)
{
    char path[GW_CLI_RUN_PATH], *text = NULL;
    size_t size = 0;
    run->written = (gw_cli_run_written){0};
    gw_status status = path_of(run, path, why);
    if (status == GW_OK) {
        status = print_new(run, &text, &size, why);
    }
    if (status == GW_OK) {
        status = gw_cli_file_save(path, text, size, why);
    }
    free(text);
    if (status == GW_OK) {
        run->history = true;
        gw_cli_run_drop(run);
    }
    return status;
}

static bool write_all(int file, const char *text, size_t size)
{
    while (size > 0) {
        const ssize_t done = write(file, text, size);
        if (done < 0 && errno != EINTR) {
            return false;
        }
        text += done > 0 ? done : 0;
        size -= done > 0 ? (size_t)done : 0;
    }
    return true;
}

/* All or nothing: half a line would be in the way of what comes later. */
static gw_status append(const char *path, const char *text, size_t size, bool durable, gw_why *why)
{
    struct stat before;
    const int file = open(path, O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) {
        return failed(why, path, "cannot write");
    }
    gw_status status = GW_OK;
    if (fstat(file, &before) != 0 || !S_ISREG(before.st_mode)) {
        status = gw_cli_train_fail(why, GW_ERR_SYSTEM, "%.150s: not a regular file", path);
    } else if (!write_all(file, text, size) || (durable && fsync(file) != 0 && errno != EINVAL)) {
        status = failed(why, path, "cannot write");
        (void)!ftruncate(file, before.st_size);
    }
    (void)close(file);
    return status;
}

gw_status gw_cli_history_append(gw_cli_run *run, bool durable, gw_why *why)
{
    char path[GW_CLI_RUN_PATH], *text = NULL;
    size_t size = 0;
    if (!run->history) {
        return GW_OK; /* a run that fails as it is resumed leaves the file alone */
    }
    gw_status status = path_of(run, path, why);
    if (status == GW_OK) {
        status = print_new(run, &text, &size, why);
    }
    if (status == GW_OK && (size > 0 || durable)) {
        status = append(path, text, size, durable, why);
    }
    free(text);
    if (status == GW_OK) {
        gw_cli_run_drop(run);
    }
    return status;
}

gw_status gw_cli_history_step(gw_cli_run *run, gw_why *why)
{
    const double now = gw_cli_now();
    if (run->n_steps - run->written.steps < MANY && now - run->appended < SECONDS) {
        return GW_OK;
    }
    run->appended = now;
    return gw_cli_history_append(run, false, why);
}
