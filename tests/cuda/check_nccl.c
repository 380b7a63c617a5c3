/* Every operation of the NCCL backend with one rank on real device memory: check_nccl [LIBNCCL [LIBCUDA]]
 * One rank is all that one device can have: NCCL refuses a second one, and the last part shows with which words. Run by
 * bench/cuda/run.sh nccl; CI runs it over the fake NCCL. */
#define _POSIX_C_SOURCE 200809L
#include "cuda/memory.h"

#include <gradwire/nccl.h>
#include <gradwire/threads.h>

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PATIENCE = 60, NUMBERS = 1 << 20, BYTES = 4 * NUMBERS, ROUNDS = 200 };

#define EXPECT(holds, ...)                                                                         \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            (void)fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #holds);                      \
            (void)fprintf(stderr, __VA_ARGS__);                                                    \
            (void)fprintf(stderr, "\n");                                                           \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static gw_why why;
static float *out, *in; /* of the device */
static float *host;

static double seconds_now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void finish(gw_comm *comm, gw_status posted, const gw_request *request)
{
    EXPECT(posted == GW_OK, "%s", why.text);
    EXPECT(gw_comm_wait(comm, *request, PATIENCE, &why) == GW_OK, "%s", why.text);
}

/* `out` gets numbers that are told apart by `salt`, on the device's stream; nobody waits for them. */
static void make(gw_comm *comm, float salt)
{
    for (size_t i = 0; i < NUMBERS; i++) {
        host[i] = (float)i + salt;
    }
    device_put(out, host, BYTES);
    device_fill(in, 0xA5, BYTES + 16);
    EXPECT(gw_nccl_after(comm, device_stream(), &why) == GW_OK, "%s", why.text);
}

/* Numbers [first, first + count) of what `make` made stand in `where`, and behind them nothing was written. */
static void look(const float *where, size_t first, size_t count, float salt, const char *what)
{
    unsigned char behind[16];
    device_get(host, where, count * sizeof *host);
    for (size_t i = 0; i < count; i++) {
        EXPECT(host[i] == (float)(first + i) + salt, "%s: number %zu is %g", what, i,
               (double)host[i]);
    }
    if (where == in) {
        device_get(behind, in + count, sizeof behind);
        for (size_t i = 0; i < sizeof behind; i++) {
            EXPECT(behind[i] == 0xA5, "%s: written past its piece", what);
        }
    }
}

static void move_bytes(gw_comm *comm)
{
    const gw_comm_table *t = comm->table;
    const size_t size = BYTES - 40, offset = 8, none = 0;
    gw_request request = NULL;
    make(comm, 0.25f);
    finish(comm, t->allgatherv(comm, out, BYTES, in, &(size_t){BYTES}, &none, &request, &why),
           &request);
    look(in, 0, NUMBERS, 0.25f, "allgatherv");
    make(comm, 0.5f);
    finish(comm, t->alltoallv(comm, out, &size, &offset, in, &size, &none, &request, &why),
           &request);
    look(in, 2, size / sizeof(float), 0.5f, "alltoallv");
    make(comm, 0);
    finish(comm, t->broadcast(comm, out, BYTES, 0, &request, &why), &request);
    look(out, 0, NUMBERS, 0, "broadcast");
    finish(comm, t->barrier(comm, &request, &why), &request);
}

static void sum_numbers(gw_comm *comm)
{
    const gw_comm_table *t = comm->table;
    gw_request request = NULL;
    make(comm, 0.25f);
    finish(comm, t->allreduce(comm, out, NUMBERS, &request, &why), &request);
    look(out, 0, NUMBERS, 0.25f, "allreduce");
}

static void many_under_way(gw_comm *comm)
{
    gw_request requests[ROUNDS];
    const double begun = seconds_now();
    for (int i = 0; i < ROUNDS; i++) {
        EXPECT(comm->table->barrier(comm, &requests[i], &why) == GW_OK, "%s", why.text);
    }
    for (int i = ROUNDS; i-- > 0;) {
        EXPECT(gw_comm_wait(comm, requests[i], PATIENCE, &why) == GW_OK, "%s", why.text);
    }
    printf("%d barriers under way at once: %.1f us each\n", ROUNDS,
           (seconds_now() - begun) * 1e6 / ROUNDS);
    const double alone = seconds_now();
    for (int i = 0; i < ROUNDS; i++) {
        finish(comm, comm->table->barrier(comm, &requests[0], &why), &requests[0]);
    }
    printf("one after the other, waited for: %.1f us each\n",
           (seconds_now() - alone) * 1e6 / ROUNDS);
}

static void give_up(gw_comm *comm)
{
    gw_request request = NULL;
    comm->table->abort(comm, "the test is over");
    EXPECT(comm->table->barrier(comm, &request, &why) == GW_ERR_PEER, "works after an abort");
    EXPECT(strcmp(why.text, "rank 0 gave up: the test is over") == 0, "said: %s", why.text);
}

/* ---- two ranks on one device ---- */

typedef struct rank_of {
    const gw_nccl *nccl;
    gw_comm *host;
    gw_status status;
    gw_why why;
} rank_of;

static void *second_rank(void *arg)
{
    rank_of *rank = arg;
    gw_comm *comm = NULL;
    device_fill(in + 4 * (size_t)rank->host->rank, 0, 16); /* makes the device this thread's too */
    rank->status = gw_nccl_create(rank->nccl, rank->host, 20, &comm, &rank->why);
    if (comm != NULL) {
        comm->table->close(comm);
    }
    return NULL;
}

static void two_on_one(const gw_nccl *nccl)
{
    gw_threads *world = NULL;
    rank_of ranks[2];
    pthread_t threads[2];
    EXPECT(gw_threads_create(&(gw_threads_config){.ranks = 2}, &world, &why) == GW_OK, "%s",
           why.text);
    for (uint32_t i = 0; i < 2; i++) {
        ranks[i] = (rank_of){.nccl = nccl};
        EXPECT(gw_threads_comm(world, i, &ranks[i].host) == GW_OK, "rank %u", i);
        EXPECT(pthread_create(&threads[i], NULL, second_rank, &ranks[i]) == 0, "no thread");
    }
    for (uint32_t i = 0; i < 2; i++) {
        (void)pthread_join(threads[i], NULL);
        printf("two ranks on one device, rank %u: %s\n", i,
               ranks[i].status == GW_OK ? "joined" : ranks[i].why.text);
    }
    gw_threads_destroy(world);
}

/* The fake has no runtime that makes a device current. */
static void enter_fake(const char *path)
{
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    int (*push)(void *context) = NULL;
    if (library != NULL && dlsym(library, "fake_nccl_live") != NULL) {
        void *symbol = dlsym(library, "cuCtxPushCurrent_v2");
        memcpy(&push, &symbol, sizeof push);
        (void)push(NULL);
    }
}

int main(int argc, char **argv)
{
    const char *nccl_path = argc > 1 ? argv[1] : NULL, *cuda_path = argc > 2 ? argv[2] : NULL;
    gw_nccl *nccl = NULL;
    gw_threads *world = NULL;
    gw_comm *comm = NULL, *part = NULL, *alone = NULL;
    EXPECT(gw_nccl_open(nccl_path, cuda_path, &nccl, &why) == GW_OK, "%s", why.text);
    enter_fake(cuda_path);
    out = device_take(BYTES);
    in = device_take(BYTES + 16);
    host = malloc(BYTES);
    EXPECT(host != NULL, "no memory");
    EXPECT(gw_threads_create(&(gw_threads_config){.ranks = 1}, &world, &why) == GW_OK, "%s",
           why.text);
    EXPECT(gw_threads_comm(world, 0, &alone) == GW_OK, "no host group");
    EXPECT(gw_nccl_create(nccl, alone, PATIENCE, &comm, &why) == GW_OK, "%s", why.text);
    EXPECT(comm->rank == 0 && comm->ranks == 1, "%u of %u", comm->rank, comm->ranks);
    move_bytes(comm);
    sum_numbers(comm);
    EXPECT(comm->table->split(comm, 3, 7, &part, &why) == GW_OK, "%s", why.text);
    move_bytes(part);
    sum_numbers(part);
    many_under_way(part);
    part->table->close(part);
    move_bytes(comm);
    give_up(comm);
    comm->table->close(comm);
    two_on_one(nccl);
    device_give(out);
    device_give(in);
    free(host);
    gw_threads_destroy(world);
    printf("NCCL %d: every operation with one rank, a split group, an abort: as they should\n",
           gw_nccl_version(nccl));
    gw_nccl_close(nccl);
    return 0;
}
