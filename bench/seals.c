/* What seals and running hashes cost.
 *   bench_seals [MEGABYTES] [TRIALS] [SPEC] [ROUTE] [RANKS]          ranks are threads, over shared memory: the hardest case
 *   mpirun … bench_seals_mpi [MEGABYTES] [TRIALS] [SPEC] [ROUTE]     on MPI
 *
 * Four settings take turns in one process: nothing is sealed or hashed; messages are sealed; means are hashed; both. An
 * engine that claims to seal by itself (GW_COMM_SEALED) switches seals off. For comparison all ranks copy as much memory
 * at once. Prints medians of the trials; a ratio is the median of the ratios within each trial. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <gradwire/gradwire.h>
#ifdef WITH_MPI
#    include <gradwire/mpi.h>
#endif

enum { MOST_RANKS = 16, MOST_TRIALS = 101, SETTINGS = 4 };
static const char *const names[SETTINGS] = {"neither", "seals", "hashes", "both"};

typedef struct bench {
#ifndef WITH_MPI
    gw_threads *world[SETTINGS];
    pthread_barrier_t barrier;
#endif
    size_t elements;
    uint32_t ranks;
    int trials, coded;
    gw_params params;
    gw_route route;
    double seconds[SETTINGS + 1][MOST_TRIALS]; /* as rank 0 saw them; the last is of copying */
    double cpu[SETTINGS + 1][MOST_TRIALS];     /* CPU time of rank 0's thread */
} bench;

typedef struct rank_arg {
    bench *b;
    uint32_t rank;
} rank_arg;

static double read_clock(clockid_t clock)
{
    struct timespec t;
    (void)clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(gw_status status, const gw_why *why)
{
    if (status != GW_OK) {
        (void)fprintf(stderr, "seals: %s: %s\n", gw_status_string(status), why->text);
        exit(1);
    }
}

/* ---- an engine that claims to seal ---- */

static gw_comm_table claims;
static const gw_comm_table *honest;

static gw_status split(gw_comm *comm, uint32_t colour, uint32_t key, gw_comm **out, gw_why *why)
{
    const gw_status status = honest->split(comm, colour, key, out, why);
    if (status == GW_OK) {
        (*out)->table = &claims;
    }
    return status;
}

static void make_claims(const gw_comm *comm)
{
    honest = comm->table;
    claims = *honest;
    claims.flags |= GW_COMM_SEALED;
    claims.split = split;
}

/* ---- a rank ---- */

static void meet(bench *b)
{
#ifdef WITH_MPI
    (void)b;
    MPI_Barrier(MPI_COMM_WORLD);
#else
    (void)pthread_barrier_wait(&b->barrier);
#endif
}

static gw_comm *open_comm(bench *b, uint32_t rank, int setting)
{
    gw_comm *comm = NULL;
    gw_why why = {""};
#ifdef WITH_MPI
    (void)b;
    (void)rank;
    (void)setting;
    check(gw_mpi_create(MPI_COMM_WORLD, &comm, &why), &why);
#else
    check(gw_threads_comm(b->world[setting], rank, &comm), &why);
#endif
    return comm;
}

static gw_step *open_step(const bench *b, gw_comm *comm, int setting)
{
    gw_step *step = NULL;
    gw_why why = {""};
    uint32_t layer = 0;
    const uint64_t n = b->elements;
    const gw_step_config config = {.comm = comm,
                                   .verify_every = setting < 2 ? GW_STEP_VERIFY_NEVER : 1000000};
    check(gw_step_create(&config, &step, &why), &why);
    check(gw_step_add(step, "layer", &n, 1, GW_F32, &layer, &why), &why);
    check(gw_step_plan(step, 0, b->coded ? &b->params : NULL, &b->route, &why), &why);
    check(gw_step_agree(step, &why), &why);
    return step;
}

/* Seconds of the clock on the wall, and of the CPU for this thread. */
typedef struct times {
    double wall, cpu;
} times;

static times now(void)
{
    return (times){read_clock(CLOCK_MONOTONIC), read_clock(CLOCK_THREAD_CPUTIME_ID)};
}

static times since(times begin)
{
    const times end = now();
    return (times){end.wall - begin.wall, end.cpu - begin.cpu};
}

static times one_step(bench *b, gw_step *step, float *values)
{
    gw_why why = {""};
    const gw_tensor t = {values, b->elements, GW_F32};
    for (size_t i = 0; i < b->elements; i++) {
        values[i] = (float)(i % 1013) * 1e-3F;
    }
    meet(b);
    const times begin = now();
    check(gw_step_post(step, 0, &t, &why), &why);
    check(gw_step_wait(step, NULL, &why), &why);
    meet(b);
    return since(begin);
}

static times one_copy(bench *b, float *to, const float *from)
{
    meet(b);
    const times begin = now();
    memcpy(to, from, b->elements * sizeof *to);
    meet(b);
    return since(begin);
}

static void keep(const rank_arg *a, int setting, int trial, times t)
{
    if (a->rank == 0) {
        a->b->seconds[setting][trial] = t.wall;
        a->b->cpu[setting][trial] = t.cpu;
    }
}

static void run(const rank_arg *a)
{
    bench *b = a->b;
    gw_comm *comm[SETTINGS];
    gw_step *step[SETTINGS];
    float *values = malloc(2 * b->elements * sizeof *values), *copy = values + b->elements;
    memset(values, 0, 2 * b->elements * sizeof *values);
    for (int i = 0; i < SETTINGS; i++) {
        comm[i] = open_comm(b, a->rank, i);
        comm[i]->table = i % 2 == 0 ? &claims : comm[i]->table;
        step[i] = open_step(b, comm[i], i);
        (void)one_step(b, step[i], values);
    }
    for (int trial = 0; trial < b->trials; trial++) {
        for (int i = 0; i < SETTINGS; i++) {
            const int setting = (i + trial) % SETTINGS; /* none is always the first */
            keep(a, setting, trial, one_step(b, step[setting], values));
        }
        keep(a, SETTINGS, trial, one_copy(b, copy, values));
    }
    for (int i = 0; i < SETTINGS; i++) {
        gw_step_destroy(step[i]);
        meet(b);
        comm[i]->table->close(comm[i]);
    }
    free(values);
}

/* ---- what came out ---- */

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *x, int n)
{
    double sorted[MOST_TRIALS];
    memcpy(sorted, x, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, ascending);
    return sorted[n / 2];
}

/* The median of each trial's own ratio to what setting 0 took. */
static double ratio(const double x[SETTINGS + 1][MOST_TRIALS], int setting, int n)
{
    double ratios[MOST_TRIALS];
    for (int t = 0; t < n; t++) {
        ratios[t] = x[setting][t] / x[0][t];
    }
    return median(ratios, n);
}

static void print(const bench *b)
{
    const double bytes = 4e-9 * (double)b->elements, copy = median(b->seconds[SETTINGS], b->trials);
    printf("%-8s %9s %8s %9s %8s\n", "", "ms", "ratio", "CPU ms", "ratio");
    for (int i = 0; i < SETTINGS; i++) {
        printf("%-8s %9.2f %8.3f %9.2f %8.3f\n", names[i], 1e3 * median(b->seconds[i], b->trials),
               ratio(b->seconds, i, b->trials), 1e3 * median(b->cpu[i], b->trials),
               ratio(b->cpu, i, b->trials));
    }
    printf("%-8s %9.2f %8s %9.2f %8s  (%u at once, %.1f GB/s each)\n", "a copy", 1e3 * copy, "",
           1e3 * median(b->cpu[SETTINGS], b->trials), "", b->ranks, bytes / copy);
}

#ifdef WITH_MPI
static void run_all(bench *b)
{
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    gw_comm *comm = open_comm(b, (uint32_t)rank, 0);
    make_claims(comm);
    run(&(rank_arg){b, (uint32_t)rank});
    comm->table->close(comm);
    if (rank == 0) {
        print(b);
    }
}
#else
static void *thread_main(void *arg)
{
    run(arg);
    return NULL;
}

static void run_all(bench *b)
{
    pthread_t threads[MOST_RANKS];
    rank_arg args[MOST_RANKS];
    gw_why why = {""};
    for (int i = 0; i < SETTINGS; i++) {
        check(gw_threads_create(&(gw_threads_config){.ranks = b->ranks}, &b->world[i], &why), &why);
    }
    make_claims(open_comm(b, 0, 0));
    (void)pthread_barrier_init(&b->barrier, NULL, b->ranks);
    for (uint32_t r = 0; r < b->ranks; r++) {
        args[r] = (rank_arg){b, r};
        (void)pthread_create(&threads[r], NULL, thread_main, &args[r]);
    }
    for (uint32_t r = 0; r < b->ranks; r++) {
        (void)pthread_join(threads[r], NULL);
    }
    print(b);
    for (int i = 0; i < SETTINGS; i++) {
        gw_threads_destroy(b->world[i]);
    }
}
#endif

static uint32_t count_ranks(int argc, char **argv)
{
#ifdef WITH_MPI
    int ranks = 0, level = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &level);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    return (uint32_t)ranks;
#else
    return argc > 5 ? (uint32_t)atoi(argv[5]) : 2;
#endif
}

int main(int argc, char **argv)
{
    bench b = {.elements = (size_t)(250e3 * (argc > 1 ? atof(argv[1]) : 100)),
               .ranks = count_ranks(argc, argv),
               .trials = argc > 2 ? atoi(argv[2]) : 21,
               .coded = argc > 3 && strcmp(argv[3], "none") != 0};
    gw_why why = {""};
    if (b.elements == 0 || b.ranks < 2 || b.ranks > MOST_RANKS || b.trials < 1 ||
        b.trials > MOST_TRIALS) {
        (void)fprintf(stderr, "seals: 2 to %d ranks, up to %d trials\n", MOST_RANKS, MOST_TRIALS);
        return 2;
    }
    if (b.coded) {
        check(gw_params_parse(&b.params, argv[3], &why), &why);
    }
    check(gw_route_parse(&b.route, argc > 4 ? argv[4] : b.coded ? "gather" : "dense", &why), &why);
    run_all(&b);
#ifdef WITH_MPI
    MPI_Finalize();
#endif
    return 0;
}
