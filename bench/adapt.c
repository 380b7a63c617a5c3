/* How long choosing takes, on one core: the dynamic programme and the fast path on 400 layers of 121 levels, and the error
 * tables of each family. Prints medians. bench/README.md.
 *
 *     bench_adapt [elements in millions (100)] [repetitions (5)]
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <gradwire/gradwire.h>

enum { LAYERS = 400, LEVELS = 121, MOST_TIMES = 101 };

/* Seconds of this core: others may be at work beside us. */
static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double uniform(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *times, int n)
{
    qsort(times, (size_t)n, sizeof *times, compare);
    return times[n / 2];
}

static void *must(void *memory)
{
    if (memory == NULL) {
        (void)fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return memory;
}

static void must_be_ok(gw_status status)
{
    if (status != GW_OK) {
        (void)fprintf(stderr, "%s\n", gw_status_string(status));
        exit(1);
    }
}

/* Ranks 8 … 128 of matrices with spectra that fall like powers. */
static void time_choosing(int repetitions)
{
    double *errors = must(malloc(sizeof(double[LAYERS][LEVELS]))), times[2][MOST_TIMES];
    uint64_t *bytes = must(malloc(sizeof(uint64_t[LAYERS][LEVELS]))), state = 1;
    gw_adapt_layer *layers = must(calloc(LAYERS, sizeof *layers));
    uint32_t levels[LAYERS];
    for (size_t l = 0; l < LAYERS; l++) {
        const double size = exp(6 * uniform(&state)), power = 0.2 + uniform(&state);
        const uint64_t sides = 256 + (uint64_t)(8192 * uniform(&state));
        for (size_t i = 0; i < LEVELS; i++) {
            errors[l * LEVELS + i] = size * pow((double)i + 8, -power);
            bytes[l * LEVELS + i] = 8 + 4 * sides * (i + 8);
        }
        layers[l] = (gw_adapt_layer){
            .errors = errors + l * LEVELS, .bytes = bytes + l * LEVELS, .n = LEVELS, .uniform = 24};
    }
    gw_adapt_choice choice[2] = {{.levels = levels}, {.levels = levels}};
    size_t size = 0;
    gw_adapt_problem p = {layers, LAYERS, 1, GW_ADAPT_DYNAMIC, 10000};
    must_be_ok(gw_adapt_workspace(&p, &size));
    const gw_workspace w = {must(malloc(size)), size};
    memset(w.data, 0, size);
    for (int i = 0; i < repetitions; i++) {
        for (int fast = 0; fast < 2; fast++) {
            p.method = fast ? GW_ADAPT_FAST : GW_ADAPT_DYNAMIC;
            const double begin = now();
            must_be_ok(gw_adapt_choose(&p, w, &choice[fast], NULL));
            times[fast][i] = now() - begin;
        }
    }
    (void)printf(
        "programme, %d layers x %d levels, D = 10000: %.3f s, %.1f MB; %.3f x fewer bytes than "
        "uniform, at most %.4f %% from the optimum\n",
        LAYERS, LEVELS, median(times[0], repetitions), (double)size * 1e-6,
        (double)choice[0].uniform_bytes / (double)choice[0].bytes,
        100 * ((double)choice[0].bytes / (double)choice[0].lower_bound - 1));
    (void)printf("fast path: %.2f ms; %.4f %% more bytes than the programme\n",
                 1e3 * median(times[1], repetitions),
                 100 * ((double)choice[1].bytes / (double)choice[0].bytes - 1));
    free(w.data);
    free(layers);
    free(bytes);
    free(errors);
}

static void time_table(const char *spec, float *x, size_t n, int repetitions)
{
    static gw_params levels[GW_ADAPT_MOST_LEVELS];
    static double errors[GW_ADAPT_MOST_LEVELS];
    double times[MOST_TIMES];
    const uint64_t dims[] = {n / 1000, 1000};
    size_t n_levels = 0, size = 0;
    uint32_t unused = 0;
    gw_params family;
    gw_why why = {""};
    must_be_ok(gw_params_parse(&family, spec, &why));
    const gw_adapt_rules rules = {.families = &family, .n_families = 1, .uniform = family};
    must_be_ok(gw_adapt_levels(&rules, GW_F32, dims, 2, levels, GW_ADAPT_MOST_LEVELS, &n_levels,
                               &unused, &why));
    must_be_ok(gw_adapt_measure_workspace(levels, n_levels, n, &size));
    const gw_exec exec = {.workspace = {must(malloc(size)), size}};
    const gw_tensor in = {x, n, GW_F32};
    for (int i = 0; i < repetitions; i++) {
        const double begin = now();
        must_be_ok(
            gw_adapt_measure(levels, n_levels, GW_ADAPT_NORMS, &exec, &in, NULL, 1, errors, &why));
        times[i] = now() - begin;
    }
    (void)printf("errors of %-28s %3zu levels, %zu M elements: %.3f s\n", spec, n_levels,
                 n / 1000000, median(times, repetitions));
    free(exec.workspace.data);
}

int main(int argc, char **argv)
{
    static const char *const specs[] = {"dither:bits=4",     "dither:bits=4,rounding=nearest",
                                        "ndither:bits=4",    "natural",
                                        "topk:density=0.01", "topk:density=0.01,values=natural"};
    const size_t n = (size_t)(argc > 1 ? atoi(argv[1]) : 100) * 1000000;
    const int repetitions =
        argc > 2 && atoi(argv[2]) > 0 && atoi(argv[2]) <= MOST_TIMES ? atoi(argv[2]) : 5;
    uint64_t state = 1;
    time_choosing(repetitions);
    float *x = must(malloc(n * sizeof *x + 1));
    for (size_t i = 0; i < n; i++) { /* nearly normal, some far out */
        const double v = uniform(&state) + uniform(&state) + uniform(&state) - 1.5;
        x[i] = (float)(1e-3 * v * (i % 16 == 0 ? 30 : 1));
    }
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        time_table(specs[i], x, n, repetitions);
    }
    free(x);
    return 0;
}
