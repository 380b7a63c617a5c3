/* Figures for a monitor; see train_metrics.h. */
#include "cli/train/train_metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/say.h"
#include "cli/seconds.h"
#include "cli/train/train_auto.h"
#include "cli/train/train_files.h"
#include "cli/train/train_progress.h"

enum { STEPS_APART = 10 };
static const double PAUSE = 1; /* seconds */

/* ---- the text ---- */

/* The run folder's own name as a label's value: backslash, quote and newline are escaped; what is
 * not UTF-8 has no place there. */
static void print_label(const gw_cli_run *run, FILE *to)
{
    size_t end = strlen(run->folder);
    while (end > 1 && run->folder[end - 1] == '/') {
        end--;
    }
    size_t at = end;
    while (at > 0 && run->folder[at - 1] != '/') {
        at--;
    }
    const bool utf8 = gw_cli_text_is_utf8(run->folder + at, end - at);
    (void)fputs("run=\"", to);
    for (; at < end; at++) {
        const char c = !utf8 && (run->folder[at] & 0x80) ? '_' : run->folder[at];
        if (c == '\n') {
            (void)fputs("\\n", to);
        } else {
            (void)fprintf(to, "%s%c", c == '\\' || c == '"' ? "\\" : "", c);
        }
    }
    (void)fputs("\"", to);
}

static void print_head(FILE *to, const char *name, const char *type, const char *help)
{
    (void)fprintf(to, "# HELP gradwire_%s %s\n# TYPE gradwire_%s %s\n", name, help, name, type);
}

static void print_count(const gw_cli_run *run, FILE *to, const char *name, const char *type,
                        const char *help, uint64_t value)
{
    print_head(to, name, type, help);
    (void)fprintf(to, "gradwire_%s{", name);
    print_label(run, to);
    (void)fprintf(to, "} %" PRIu64 "\n", value);
}

static void print_gauge(const gw_cli_run *run, FILE *to, const char *name, const char *help,
                        double value)
{
    print_head(to, name, "gauge", help);
    (void)fprintf(to, "gradwire_%s{", name);
    print_label(run, to);
    if (isfinite(value)) {
        (void)fprintf(to, "} %.17g\n", value);
    } else {
        (void)fprintf(to, "} %s\n", isnan(value) ? "NaN" : value > 0 ? "+Inf" : "-Inf");
    }
}

static void print_steps(const gw_cli_run *run, FILE *to)
{
    const gw_cli_run_totals *done = &run->done;
    print_count(run, to, "step", "gauge", "Steps that are done.", done->steps);
    if (run->n_steps > 0) {
        const gw_cli_run_step *last = &run->steps[run->n_steps - 1];
        print_gauge(run, to, "loss", "Training loss of the last step.", last->loss);
        print_gauge(run, to, "step_seconds", "Time of the last step.", last->seconds);
        print_gauge(run, to, "wait_seconds",
                    "Of it, time spent waiting for gradients after backward.", last->wait_seconds);
    }
    print_count(run, to, "bytes_sent_total", "counter", "Bytes that rank 0 sent.",
                done->bytes_sent);
    print_count(run, to, "dense_bytes_total", "counter",
                "Bytes that rank 0 would have sent in a ring in fp32, as DDP does.",
                done->dense_bytes);
    print_count(run, to, "far_bytes_sent_total", "counter",
                "Bytes that rank 0 sent to other nodes.", done->far_bytes_sent);
    print_count(run, to, "far_dense_bytes_total", "counter",
                "Bytes that rank 0 would have sent to other nodes in such a ring.",
                done->far_dense_bytes);
    print_count(run, to, "non_finite_total", "counter",
                "Layers that arrived not finite; their steps were skipped.", done->non_finite);
}

static void print_test(const gw_cli_run *run, FILE *to)
{
    if (run->n_tests == 0) {
        return;
    }
    const gw_cli_run_test *last = &run->tests[run->n_tests - 1];
    if (gw_cli_run_is_text(run)) {
        print_gauge(run, to, "test_bits", "Bits a character of the last test.", last->bits);
    } else {
        print_gauge(run, to, "test_accuracy", "Accuracy of the last test, 0 to 1.", last->accuracy);
    }
}

/* ---- of auto ---- */

static void print_known(const gw_cli_run *run, FILE *to, const char *name, const char *help,
                        double value)
{
    if (isfinite(value)) {
        print_gauge(run, to, name, help, value);
    }
}

static void print_replans(const gw_cli_run *run, FILE *to)
{
    uint64_t counts[GW_CLI_AUTO_REASONS];
    gw_cli_auto_count(run, counts);
    print_head(to, "replans_total", "counter", "Decisions of auto, by what led to them.");
    for (size_t r = 0; r < GW_CLI_AUTO_REASONS; r++) {
        (void)fputs("gradwire_replans_total{", to);
        print_label(run, to);
        (void)fprintf(to, ",reason=\"%s\"} %" PRIu64 "\n", GW_CLI_AUTO_REASON[r], counts[r]);
    }
}

/* Of the newest window, or where a decision is newer, or alone knows, of that. */
static void print_auto(const gw_cli_run *run, FILE *to)
{
    const gw_cli_run_watch *w = run->n_watch ? &run->watch[run->n_watch - 1] : NULL;
    const gw_cli_run_auto *d = run->n_decisions ? &run->decisions[run->n_decisions - 1] : NULL;
    const bool newer = d && (!w || d->step >= w->step);
    const double none = (double)NAN;
    const double error = newer ? d->error : w ? w->error : none;
    const double budget = newer ? d->budget : w ? w->budget : none;
    const double ratio = newer ? d->noise_ratio : w ? w->noise_ratio : none;
    print_known(run, to, "predicted_step_seconds", "A step by the plan in force, as predicted.",
                d ? d->predicted_seconds : none);
    print_known(run, to, "error", "Compression error, in the plan's metric.",
                isfinite(error) || !d ? error : d->error);
    print_known(run, to, "error_budget", "What the error may be.",
                isfinite(budget) || !d ? budget : d->budget);
    print_known(run, to, "noise_ratio",
                "Variance of the compression error over that of the gradients' noise.",
                isfinite(ratio) || !d ? ratio : d->noise_ratio);
    print_replans(run, to);
}

void gw_cli_metrics_print(const gw_cli_run *run, FILE *to)
{
    print_steps(run, to);
    print_test(run, to);
    if (gw_cli_run_is_auto(run)) {
        print_auto(run, to);
    }
}

/* ---- the file ---- */

/* A reader never sees half of it. It need not outlive a crash of the machine. */
static gw_status replace(const gw_cli_metrics *m, const gw_cli_run *run, gw_why *why)
{
    char *text = NULL, reason[GW_FILE_WHY] = "out of memory";
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);
    if (to) {
        gw_cli_metrics_print(run, to);
    }
    const bool fine =
        to && fclose(to) == 0 &&
        gw_cli_file_put(m->path, &(struct iovec){text, size}, 1, GW_CLI_FOLLOW, reason);
    free(text);
    return fine ? GW_OK : gw_cli_train_fail(why, GW_ERR_SYSTEM, "%.110s: %.130s", m->path, reason);
}

gw_status gw_cli_metrics_begin(gw_cli_metrics *m, const gw_cli_run *run, gw_why *why)
{
    return m->path ? replace(m, run, why) : GW_OK;
}

void gw_cli_metrics_write(gw_cli_metrics *m, const gw_cli_run *run)
{
    gw_why why = {""};
    if (!m->path) {
        return;
    }
    m->written = gw_cli_now();
    if (replace(m, run, &why) != GW_OK && !m->warned) {
        gw_cli_error("train: %s; training goes on", why.text);
        m->warned = true;
    }
}

void gw_cli_metrics_step(gw_cli_metrics *m, const gw_cli_run *run)
{
    if (m->path && run->done.steps % STEPS_APART == 0 && gw_cli_now() - m->written >= PAUSE) {
        gw_cli_metrics_write(m, run);
    }
}
