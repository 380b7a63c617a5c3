/* What an exchange of a codec with rounds costs one rank on the processor, sums aside: milliseconds of each call, with and without leaving
 * something due, beside r2 = r + g over the same memory.
 *   bench_rounds [SPEC [ROWS]]      lowrank:rank=4,cols=4096 4096
 * Medians of the repetitions; OPENBLAS_NUM_THREADS=1 for one core. */
#include "base/convert.h"

#include "base/huge_pages.h"

#include <gradwire/gradwire.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { REPETITIONS = 21, CALLS = 5 };

static void die(const char *what)
{
    (void)fprintf(stderr, "rounds: %s\n", what);
    exit(1);
}

static void must(gw_status status)
{
    if (status != GW_OK) {
        die(gw_status_string(status));
    }
}

static double milliseconds(void)
{
    struct timespec t;
    (void)timespec_get(&t, TIME_UTC);
    return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

/* turn: as a step has it, of residuals 1 and 2, of workspaces 3. */
static float *numbers(size_t n, unsigned turn)
{
    float *x = gw_pages_allocate(4 * n + 64, turn);
    if (x == NULL) {
        die("no memory");
    }
    memset(x, 0, 4 * n + 64);
    return x;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times)
{
    qsort(times, REPETITIONS, sizeof *times, by_size);
    return times[REPETITIONS / 2];
}

static void turn_over(float *pair[2])
{
    float *const first = pair[0];
    pair[0] = pair[1];
    pair[1] = first;
}

static void fill(float *g, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        g[i] = (float)(int32_t)seed * 0x1p-40f;
    }
}

/* Everything that outlives an exchange, twice. */
typedef struct job {
    gw_params params;
    gw_exec exec;
    size_t count;
    float *gradient, *sum, *residual[2], *state[2], *due[2];
} job;

static job job_of(const gw_params *params, size_t count)
{
    job j = {.params = *params, .count = count};
    size_t state = 0, due = 0, round = 0, most = 0;
    must(gw_rounds_workspace(params, count, &j.exec.workspace.size));
    must(gw_rounds_state(params, count, &state));
    must(gw_rounds_due(params, count, &due));
    for (unsigned i = 0; i < 2; i++) {
        must(gw_rounds_elements(params, count, i, &round));
        most = round > most ? round : most;
        j.residual[i] = numbers(count, i + 1);
        j.state[i] = numbers(state, 0);
        j.due[i] = due != 0 ? numbers(due, 0) : NULL;
    }
    j.exec.workspace.data = numbers(j.exec.workspace.size / 4 + 1, 3);
    j.gradient = numbers(count, 0);
    j.sum = numbers(most, 0);
    return j;
}

static void run(job *j, int leaves_due, const char *label)
{
    double times[CALLS + 1][REPETITIONS];
    for (int k = 0; k < REPETITIONS; k++) {
        const gw_stream stream = {.seed = 1, .step = (uint64_t)k};
        gw_tensor in = {j->gradient, j->count, GW_F32};
        const gw_rounds x = {.params = &j->params,
                             .exec = &j->exec,
                             .stream = &stream,
                             .in = &in,
                             .residual = j->residual[0],
                             .residual_after = j->residual[1],
                             .due = leaves_due && k != 0 ? j->due[0] : NULL,
                             .due_after = leaves_due ? j->due[1] : NULL,
                             .state = j->state[0],
                             .state_after = j->state[1]};
        int finite = 0;
        double at[CALLS + 1];
        fill(j->gradient, j->count, (uint32_t)k);
        at[0] = milliseconds();
        for (unsigned round = 0; round < 2; round++) {
            must(gw_rounds_make(&x, round, j->sum, NULL));
            at[2 * round + 1] = milliseconds();
            must(gw_rounds_take(&x, round, j->sum));
            at[2 * round + 2] = milliseconds();
        }
        must(gw_rounds_mean(&x, j->sum, 4, &in, &finite));
        at[CALLS] = milliseconds();
        for (int i = 0; i < CALLS; i++) {
            times[i][k] = at[i + 1] - at[i];
        }
        times[CALLS][k] = at[CALLS] - at[0];
        turn_over(j->residual);
        turn_over(j->state);
        turn_over(j->due);
    }
    (void)printf("%-22s", label);
    for (int i = 0; i <= CALLS; i++) {
        (void)printf(" %9.2f", median(times[i]));
    }
    (void)printf("\n");
}

int main(int argc, char **argv)
{
    gw_params params;
    gw_why why = {""};
    const char *spec = argc > 1 ? argv[1] : "lowrank:rank=4,cols=4096";
    const long rows = argc > 2 ? strtol(argv[2], NULL, 10) : 4096;
    if (gw_params_parse(&params, spec, &why) != GW_OK) {
        die(why.text);
    }
    size_t n = 0;
    const size_t cols = params.value[1] > 0 ? (size_t)params.value[1] : 0;
    if (gw_rounds_elements(&params, 1, 0, &n) != GW_OK || cols == 0 || rows < 1 || rows > 1 << 20) {
        die("a codec with rounds and its cols=, then a number of rows");
    }
    job j = job_of(&params, (size_t)rows * cols);
    double times[REPETITIONS];
    for (int k = 0; k < REPETITIONS; k++) {
        fill(j.gradient, j.count, (uint32_t)k);
        const double begin = milliseconds();
        gw_convert_for(gw_isa_best())->sum(j.residual[1], j.gradient, j.residual[0], j.count);
        times[k] = milliseconds() - begin;
    }
    (void)printf("%s, %ld rows, ms\n%-22s %9s %9s %9s %9s %9s %9s\n", spec, rows, "", "make 0",
                 "take 0", "make 1", "take 1", "mean", "all");
    run(&j, 0, "r' complete");
    if (j.due[0] != NULL) {
        run(&j, 1, "the rest left due");
    }
    (void)printf("%-22s %9.2f\n", "r2 = r + g", median(times));
    return 0;
}
