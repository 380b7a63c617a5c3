/* How much of the exchange hides behind backward: overlap [LAYERS] [RANKS] [SPEC] [ROUTE] [SECONDS]
 *
 * Ranks are threads, joined by a virtual link. The link's rate is chosen so that the exchange alone takes about SECONDS
 * (0.2 by default); backward is simulated: a rank sleeps, since a GPU would do it, and posts a layer at equal
 * distances. Three times are measured: backward alone, the exchange alone, both. Hidden share:
 * (backward + exchange − both) / smaller of the two. Median of the trials. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <gradwire/gradwire.h>

enum { MOST_RANKS = 16, MOST_LAYERS = 256, ELEMENTS = 64 * 1024, TRIALS = 7 };

typedef struct bench {
    gw_threads *world;
    pthread_barrier_t barrier;
    uint32_t layers, ranks;
    gw_params params;
    gw_route route;
    double seconds;                        /* of backward */
    double exchange[TRIALS], both[TRIALS]; /* as rank 0 saw them */
} bench;

typedef struct rank_arg {
    bench *b;
    uint32_t rank;
} rank_arg;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void sleep_until(double when)
{
    struct timespec t = {(time_t)when, 0};
    t.tv_nsec = (long)((when - (double)t.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0) {
    }
}

static void check(gw_status status, const gw_why *why)
{
    if (status != GW_OK) {
        (void)fprintf(stderr, "overlap: %s: %s\n", gw_status_string(status), why->text);
        exit(1);
    }
}

/* One step; gradients come at equal distances over `backward` seconds, or all at once. */
static double one_step(bench *b, gw_step *step, float *values, double backward)
{
    gw_why why = {""};
    (void)pthread_barrier_wait(&b->barrier);
    const double begin = now();
    for (uint32_t l = 0; l < b->layers; l++) {
        const gw_tensor t = {values + (size_t)l * ELEMENTS, ELEMENTS, GW_F32};
        if (backward > 0) {
            sleep_until(begin + backward * (l + 1) / b->layers);
        }
        check(gw_step_post(step, l, &t, &why), &why);
    }
    check(gw_step_wait(step, NULL, &why), &why);
    return now() - begin;
}

static void *rank_main(void *arg)
{
    const rank_arg *a = arg;
    bench *b = a->b;
    gw_comm *comm = NULL;
    gw_step *step = NULL;
    gw_why why = {""};
    float *values = malloc((size_t)b->layers * ELEMENTS * sizeof *values);
    for (size_t i = 0; values != NULL && i < (size_t)b->layers * ELEMENTS; i++) {
        values[i] = (float)(i % 1013) * 1e-3F + (float)a->rank;
    }
    check(gw_threads_comm(b->world, a->rank, &comm), &why);
    const gw_step_config config = {.comm = comm, .own_thread = 1};
    check(gw_step_create(&config, &step, &why), &why);
    for (uint32_t l = 0; l < b->layers; l++) {
        char name[32];
        uint32_t layer = 0;
        const uint64_t n = ELEMENTS;
        (void)snprintf(name, sizeof name, "layer.%u", l);
        check(gw_step_add(step, name, &n, 1, GW_F32, &layer, &why), &why);
        check(gw_step_plan(step, l, &b->params, &b->route, &why), &why);
    }
    check(gw_step_agree(step, &why), &why);
    (void)one_step(b, step, values, 0);
    for (int trial = 0; trial < TRIALS; trial++) {
        const double exchange = one_step(b, step, values, 0);
        const double both = one_step(b, step, values, b->seconds);
        if (a->rank == 0) {
            b->exchange[trial] = exchange;
            b->both[trial] = both;
        }
    }
    (void)pthread_barrier_wait(&b->barrier);
    gw_step_destroy(step);
    comm->table->close(comm);
    free(values);
    return NULL;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *x)
{
    double sorted[TRIALS];
    memcpy(sorted, x, sizeof sorted);
    qsort(sorted, TRIALS, sizeof *sorted, ascending);
    return sorted[TRIALS / 2];
}

/* Bytes that rank 0 sends in a step. */
static uint64_t step_bytes(const bench *b)
{
    gw_program program;
    gw_why why = {""};
    const gw_route_job job = {.ranks = b->ranks, .elements = ELEMENTS, .params = &b->params};
    check(gw_route_compile(&b->route, &job, &program, &why), &why);
    return b->layers * (program.sent[0] + program.sent[1]);
}

int main(int argc, char **argv)
{
    bench b = {.layers = argc > 1 ? (uint32_t)atoi(argv[1]) : 64,
               .ranks = argc > 2 ? (uint32_t)atoi(argv[2]) : 4,
               .seconds = argc > 5 ? atof(argv[5]) : 0.2};
    const char *spec = argc > 3 ? argv[3] : "natural:bits=8", *route = argc > 4 ? argv[4] : "sra";
    pthread_t threads[MOST_RANKS];
    rank_arg args[MOST_RANKS];
    gw_why why = {""};
    if (b.layers == 0 || b.layers > MOST_LAYERS || b.ranks < 2 || b.ranks > MOST_RANKS) {
        (void)fprintf(stderr, "overlap: 1 to %d layers, 2 to %d ranks\n", MOST_LAYERS, MOST_RANKS);
        return 2;
    }
    check(gw_params_parse(&b.params, spec, &why), &why);
    check(gw_route_parse(&b.route, route, &why), &why);
    const gw_threads_config config = {.ranks = b.ranks,
                                      .far = {(double)step_bytes(&b) / b.seconds, 20e-6}};
    check(gw_threads_create(&config, &b.world, &why), &why);
    (void)pthread_barrier_init(&b.barrier, NULL, b.ranks);
    for (uint32_t i = 0; i < b.ranks; i++) {
        args[i] = (rank_arg){&b, i};
        if (pthread_create(&threads[i], NULL, rank_main, &args[i]) != 0) {
            return 1;
        }
    }
    for (uint32_t i = 0; i < b.ranks; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    double hidden[TRIALS];
    for (int i = 0; i < TRIALS; i++) {
        const double smaller = b.exchange[i] < b.seconds ? b.exchange[i] : b.seconds;
        hidden[i] = (b.seconds + b.exchange[i] - b.both[i]) / smaller;
    }
    (void)printf("%u ranks, %u layers of %d, %s along %s, link %.1f MB/s\n", b.ranks, b.layers,
                 ELEMENTS, spec, route, config.far.bytes_per_second * 1e-6);
    (void)printf("backward %.1f ms, exchange %.1f ms, both %.1f ms: hidden %.0f %%\n",
                 b.seconds * 1e3, median(b.exchange) * 1e3, median(b.both) * 1e3,
                 median(hidden) * 100);
    gw_threads_destroy(b.world);
    (void)pthread_barrier_destroy(&b.barrier);
    return 0;
}
