/* Progress; see train_progress.h. */
#include "cli/train/train_progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli/measure/compression.h"
#include "cli/seconds.h"

enum { LINES = 20 /* of a run whose talk goes to a file */ };
static const double PAUSE = 0.1; /* seconds between lines on a terminal */

bool gw_cli_run_is_text(const gw_cli_run *run)
{
    return strcmp(run->config.model, "lstm") == 0;
}

void gw_cli_progress_begin(gw_cli_progress *p, const gw_cli_run *run)
{
    p->begun = gw_cli_now();
    p->printed = 0;
    p->first = run->done.steps;
}

static void time_text(double seconds, char *text, size_t size)
{
    const uint64_t s = seconds > 0 && seconds < 1e9 ? (uint64_t)(seconds + 0.5) : 0;
    if (s < 3600) {
        (void)snprintf(text, size, "%" PRIu64 ":%02" PRIu64, s / 60, s % 60);
    } else {
        (void)snprintf(text, size, "%" PRIu64 ":%02" PRIu64 ":%02" PRIu64, s / 3600, s / 60 % 60,
                       s % 60);
    }
}

/* A line that is longer than the terminal is wide could not be taken back. */
static void say(const gw_cli_progress *p, const char *line)
{
    struct winsize window = {0};
    if (!p->terminal) {
        (void)fprintf(stderr, "%s\n", line);
        return;
    }
    const bool known = ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 1;
    (void)fprintf(stderr, "\r\033[K%.*s", known ? window.ws_col - 1 : 79, line);
    (void)fflush(stderr);
}

void gw_cli_progress_step(gw_cli_progress *p, const gw_cli_run *run)
{
    const uint64_t done = run->done.steps, all = run->config.steps;
    const double time = gw_cli_now();
    const uint64_t apart = (all + LINES - 1) / LINES;
    const bool due = p->terminal ? time - p->printed >= PAUSE : done % apart == 0;
    if (!p->on || done == 0 || !due) {
        return;
    }
    p->printed = time;
    double loss = 0, seconds = 0;
    gw_cli_traffic traffic = {0};
    const size_t recent = run->n_steps < GW_CLI_RECENT ? run->n_steps : GW_CLI_RECENT;
    for (size_t i = run->n_steps - recent; i < run->n_steps; i++) {
        loss += run->steps[i].loss;
        seconds += run->steps[i].seconds;
        GW_CLI_TRAFFIC_ADD(&traffic, &run->steps[i]);
    }
    const double compression = gw_cli_compression(&traffic);
    char left[32], line[512];
    time_text((time - p->begun) / (double)(done - p->first) * (double)(all - done), left,
              sizeof left);
    (void)snprintf(line, sizeof line,
                   "%sstep %" PRIu64 "/%" PRIu64
                   "  loss %.4f  %.0f examples/s  compression %.1fx  ETA %s",
                   p->label, done, all, loss / (double)recent,
                   (double)(recent * run->config.batch * run->config.ranks) / seconds,
                   compression > 0 ? compression : 1, left);
    say(p, line);
}

void gw_cli_progress_test(gw_cli_progress *p, const gw_cli_run *run)
{
    if (!p->on) {
        return;
    }
    const gw_cli_run_test *t = &run->tests[run->n_tests - 1];
    (void)fprintf(stderr,
                  "%s%stest after %" PRIu64 " steps, %.1f s: ", p->terminal ? "\r\033[K" : "",
                  p->label, t->step, t->seconds);
    if (gw_cli_run_is_text(run)) {
        (void)fprintf(stderr, "%.3f bits/character\n", t->bits);
    } else {
        (void)fprintf(stderr, "accuracy %.2f %%, loss %.4f\n", 100 * t->accuracy, t->loss);
    }
}

void gw_cli_progress_note(const gw_cli_progress *p, const char *text)
{
    if (p->on) {
        (void)fprintf(stderr, "%sgradwire: %s%s\n", p->terminal ? "\r\033[K" : "", p->label, text);
    }
}

void gw_cli_progress_end(gw_cli_progress *p)
{
    if (p->on && p->terminal) {
        (void)fputs("\r\033[K", stderr);
    }
}
