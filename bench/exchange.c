/* The bytes of a dense allreduce, without its sums: an all-to-all of pieces, then an allgather of them.
 *   bench_exchange RANKS GBIT LATENCY_US BYTES...        on threads, over the virtual link
 *   mpirun … bench_exchange_mpi [allreduce] BYTES...     on MPI; allreduce: the library's own, in the same run
 * Prints a line a size: bytes, seconds (median of the repetitions, of each the slowest rank's). */
#define _POSIX_C_SOURCE 200809L
#include <gradwire/gradwire.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef WITH_MPI
#    include <gradwire/mpi.h>
#else
#    include <pthread.h>
#endif

enum { MAX_RANKS = 64, REPETITIONS = 5, MAX_SIZES = 32 };
static const double patience = 120; /* seconds */

static void die(const char *what)
{
    (void)fprintf(stderr, "exchange: %s\n", what);
    exit(1);
}

static double seconds_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void finish(gw_comm *comm, gw_status status, const gw_request *request, gw_why *why)
{
    if (status != GW_OK || gw_comm_wait(comm, *request, patience, why) != GW_OK) {
        die(why->text);
    }
}

static void exchange(gw_comm *comm, unsigned char *mine, unsigned char *theirs, size_t bytes)
{
    const gw_comm_table *t = comm->table;
    const size_t piece = bytes / comm->ranks;
    size_t sizes[MAX_RANKS], offsets[MAX_RANKS];
    for (uint32_t i = 0; i < comm->ranks; i++) {
        sizes[i] = piece;
        offsets[i] = i * piece;
    }
    gw_request request = NULL;
    gw_why why = {""};
    finish(comm, t->alltoallv(comm, mine, sizes, offsets, theirs, sizes, offsets, &request, &why),
           &request, &why);
    finish(comm, t->allgatherv(comm, theirs, piece, mine, sizes, offsets, &request, &why), &request,
           &why);
}

/* Of this repetition: the slowest rank's. */
static double slowest(gw_comm *comm, double own)
{
    double all[MAX_RANKS], most = 0;
    size_t sizes[MAX_RANKS], offsets[MAX_RANKS];
    for (uint32_t i = 0; i < comm->ranks; i++) {
        sizes[i] = sizeof own;
        offsets[i] = i * sizeof own;
    }
    gw_request request = NULL;
    gw_why why = {""};
    finish(comm,
           comm->table->allgatherv(comm, &own, sizeof own, all, sizes, offsets, &request, &why),
           &request, &why);
    for (uint32_t i = 0; i < comm->ranks; i++) {
        most = all[i] > most ? all[i] : most;
    }
    return most;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void library_allreduce(gw_comm *comm, unsigned char *mine, unsigned char *theirs,
                              size_t bytes)
{
    (void)comm;
#ifdef WITH_MPI
    MPI_Allreduce(mine, theirs, (int)(bytes / 4), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
#else
    (void)mine, (void)theirs, (void)bytes;
#endif
}

typedef void one_run(gw_comm *comm, unsigned char *mine, unsigned char *theirs, size_t bytes);

static void measure(gw_comm *comm, one_run *const *runs, size_t kinds, size_t bytes)
{
    unsigned char *mine = calloc(bytes + 1, 1), *theirs = calloc(bytes + 1, 1);
    double times[2][REPETITIONS + 1];
    if (mine == NULL || theirs == NULL) {
        die("no memory");
    }
    for (size_t i = 0; i < bytes; i++) {
        mine[i] = i % 4 == 3 ? 60 : (unsigned char)(i * 7); /* floats of moderate size */
    }
    for (int r = 0; r <= REPETITIONS; r++) {
        for (size_t k = 0; k < kinds; k++) {
            gw_request request = NULL;
            gw_why why = {""};
            finish(comm, comm->table->barrier(comm, &request, &why), &request, &why);
            const double begun = seconds_now();
            runs[k](comm, mine, theirs, bytes);
            times[k][r] = slowest(comm, seconds_now() - begun);
        }
    }
    if (comm->rank == 0) {
        printf("%zu", bytes);
        for (size_t k = 0; k < kinds; k++) { /* the first warms up */
            qsort(times[k] + 1, REPETITIONS, sizeof(double), ascending);
            printf(" %.6f", times[k][1 + REPETITIONS / 2]);
        }
        printf("\n");
    }
    free(mine);
    free(theirs);
}

typedef struct work {
    gw_comm *comm;
    one_run *runs[2];
    size_t kinds, count, sizes[MAX_SIZES];
} work;

static void *run(void *arg)
{
    const work *w = arg;
    for (size_t i = 0; i < w->count; i++) {
        measure(w->comm, w->runs, w->kinds, w->sizes[i]);
    }
    w->comm->table->close(w->comm);
    return NULL;
}

static void read_sizes(work *w, int argc, char **argv, int from)
{
    for (int i = from; i < argc && w->count < MAX_SIZES; i++) {
        w->sizes[w->count++] = strtoul(argv[i], NULL, 10);
    }
    if (w->count == 0) {
        die("which sizes?");
    }
}

#ifdef WITH_MPI
int main(int argc, char **argv)
{
    work w = {.runs = {exchange, library_allreduce}, .kinds = 1};
    int level = 0, from = 1;
    gw_why why = {""};
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    if (argc > 1 && strcmp(argv[1], "allreduce") == 0) {
        w.kinds = 2;
        from = 2;
    }
    if (gw_mpi_create(MPI_COMM_WORLD, &w.comm, &why) != GW_OK) {
        die(why.text);
    }
    read_sizes(&w, argc, argv, from);
    (void)run(&w);
    MPI_Finalize();
    return 0;
}
#else
int main(int argc, char **argv)
{
    if (argc < 5) {
        die("RANKS GBIT LATENCY_US BYTES...");
    }
    work w = {.runs = {exchange, library_allreduce}, .kinds = 1};
    read_sizes(&w, argc, argv, 4);
    const gw_threads_config config = {
        .ranks = (uint32_t)strtoul(argv[1], NULL, 10),
        .far = {strtod(argv[2], NULL) * 1e9 / 8, strtod(argv[3], NULL) * 1e-6}};
    gw_threads *world = NULL;
    gw_why why = {""};
    if (config.ranks > MAX_RANKS || gw_threads_create(&config, &world, &why) != GW_OK) {
        die(why.text);
    }
    work ranks[MAX_RANKS];
    pthread_t threads[MAX_RANKS];
    for (uint32_t i = 0; i < config.ranks; i++) {
        ranks[i] = w;
        if (gw_threads_comm(world, i, &ranks[i].comm) != GW_OK ||
            pthread_create(&threads[i], NULL, run, &ranks[i]) != 0) {
            die("no thread");
        }
    }
    for (uint32_t i = 0; i < config.ranks; i++) {
        pthread_join(threads[i], NULL);
    }
    gw_threads_destroy(world);
    return 0;
}
#endif
