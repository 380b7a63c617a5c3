/* What a run gathers; see train_run.h. */
#include "cli/train/train_run.h"

#include <stdlib.h>
#include <string.h>

static void count(gw_cli_run_totals *done, const gw_cli_run_step *step)
{
    done->steps++;
    done->seconds += step->seconds;
    done->wait_seconds += step->wait_seconds;
    done->bytes_sent += step->bytes_sent;
    done->dense_bytes += step->dense_bytes;
    done->far_bytes_sent += step->far_bytes_sent;
    done->far_dense_bytes += step->far_dense_bytes;
    done->non_finite += step->non_finite;
}

bool gw_cli_run_add_step(gw_cli_run *run, const gw_cli_run_step *step)
{
    void *items = run->steps;
    const bool fine = gw_cli_records_grow(&items, run->n_steps, sizeof *run->steps);
    run->steps = items;
    if (fine) {
        run->steps[run->n_steps++] = *step;
        count(&run->done, step);
    }
    return fine;
}

bool gw_cli_run_add_test(gw_cli_run *run, const gw_cli_run_test *test)
{
    void *items = run->tests;
    const bool fine = gw_cli_records_grow(&items, run->n_tests, sizeof *run->tests);
    run->tests = items;
    if (fine) {
        run->tests[run->n_tests++] = *test;
    }
    return fine;
}

gw_cli_run_sample *gw_cli_run_add_sample(gw_cli_run *run)
{
    void *items = run->samples;
    gw_cli_run_sample sample = {.layers = calloc(run->n_layers + 1, sizeof *sample.layers)};
    const bool fine = gw_cli_records_grow(&items, run->n_samples, sizeof *run->samples);
    run->samples = items;
    if (!fine || !sample.layers) {
        free(sample.layers);
        return NULL;
    }
    run->samples[run->n_samples] = sample;
    return &run->samples[run->n_samples++];
}

void gw_cli_run_count(gw_cli_run *run)
{
    run->done = (gw_cli_run_totals){0};
    for (size_t i = 0; i < run->n_steps; i++) {
        count(&run->done, &run->steps[i]);
    }
}

void gw_cli_run_cut(gw_cli_run *run, uint64_t last)
{
    while (run->n_steps > 0 && run->steps[run->n_steps - 1].step > last) {
        run->n_steps--;
    }
    while (run->n_tests > 0 && run->tests[run->n_tests - 1].step > last) {
        run->n_tests--;
    }
    while (run->n_samples > 0 && run->samples[run->n_samples - 1].step > last) {
        free(run->samples[--run->n_samples].layers);
    }
    gw_cli_adapt_cut(run, last);
    gw_cli_auto_cut(run, last);
    gw_cli_run_count(run);
}

static void trim(void *items, size_t *n, size_t *written, size_t keep, size_t size)
{
    const size_t kept = *n - *written > keep ? *n - *written : keep;
    const size_t drop = *n > kept ? *n - kept : 0;
    if (drop > 0) {
        memmove(items, (char *)items + drop * size, (*n - drop) * size);
        *n -= drop;
        *written -= drop;
    }
}

void gw_cli_run_trim(gw_cli_run *run)
{
    gw_cli_run_written *w = &run->written;
    trim(run->steps, &run->n_steps, &w->steps, GW_CLI_RECENT, sizeof *run->steps);
    trim(run->tests, &run->n_tests, &w->tests, 1, sizeof *run->tests);
    trim(run->watch, &run->n_watch, &w->watch, 1, sizeof *run->watch);
    for (size_t i = 0; i < w->samples; i++) {
        free(run->samples[i].layers);
    }
    trim(run->samples, &run->n_samples, &w->samples, 0, sizeof *run->samples);
    gw_cli_adapt_trim(run);
    gw_cli_auto_trim(run);
}

void gw_cli_run_drop(gw_cli_run *run)
{
    run->written = (gw_cli_run_written){run->n_steps, run->n_tests,     run->n_samples,
                                        run->n_adapt, run->n_decisions, run->n_watch};
    gw_cli_run_trim(run);
}

void gw_cli_run_free(gw_cli_run *run)
{
    for (size_t i = 0; i < run->n_samples; i++) {
        free(run->samples[i].layers);
    }
    gw_cli_adapt_free(run);
    gw_cli_auto_free(run);
    free(run->layers);
    free(run->steps);
    free(run->tests);
    free(run->samples);
    if (run->read) {
        gw_run_file_free(run->read);
        free(run->read);
    }
    *run = (gw_cli_run){0};
}
