/* The same job on threads and under mpirun: every rank's every result is the same, bit for bit, whatever carries
 * the bytes. A sample with each kind of step. */
#include "support/check.h"
#include "support/gen.h"
#include "support/ranks.h"

#include <gradwire/mpi.h>

enum { RANKS = 4, PER_NODE = 2, STRIDE = 11, N = 2500, STEPS = 2, MOST_ROUTES = 64 };

static const char *const specs[] = {"cast:to=f32",       "natural:bits=8", "dither:bits=4",
                                    "topk:density=0.05", "adacomp:bin=50", "sign:bucket=64",
                                    "randk:density=0.1", "lowrank:rank=2"};
enum { LAYERS = sizeof specs / sizeof specs[0] };

typedef struct sample {
    gw_route routes[MOST_ROUTES];
    size_t n;
    uint64_t digest[RANKS][MOST_ROUTES];
} sample;

static void choose(sample *s)
{
    static gw_route all[256];
    size_t n = 0, additive = 0;
    RANK_OK(gw_route_list(GW_DEVICE_CPU, 0, all, 256, &n, NULL), "list");
    RANK_OK(gw_route_list(GW_DEVICE_CPU, 1, all + n, 256 - n, &additive, NULL), "list");
    for (size_t i = 0; i < n + additive; i += i < n ? STRIDE : 2) {
        s->routes[s->n++] = all[i];
    }
}

static void plan(gw_step *step, const gw_route *route)
{
    gw_route dense;
    gw_why why = {""};
    RANK_OK(gw_route_parse(&dense, "hier-dense", &why), why.text);
    for (uint32_t l = 0; l < LAYERS; l++) {
        gw_params p;
        RANK_OK(gw_params_parse(&p, specs[l], &why), why.text);
        const int fits = gw_route_fits(route, &p, NULL) == GW_OK;
        RANK_OK(gw_step_plan(step, l, &p, fits ? route : &dense, &why), why.text);
    }
    RANK_OK(gw_step_agree(step, &why), why.text);
}

static void rank_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    sample *s = arg;
    gw_why why = {""};
    gw_step *step = NULL;
    float *gradient = calloc(LAYERS * N, sizeof *gradient);
    const uint64_t dims[] = {50, N / 50};
    const gw_step_config config = {.comm = comm,
                                   .ranks_per_node = PER_NODE,
                                   .seed = 3,
                                   .piece = 1000,
                                   .timeout = 60,
                                   .own_thread = rank % 2 == 0};
    RANK_OK(gw_step_create(&config, &step, &why), why.text);
    for (uint32_t l = 0; l < LAYERS; l++) {
        uint32_t layer = 0;
        RANK_OK(gw_step_add(step, specs[l], dims, 2, GW_F32, &layer, &why), why.text);
    }
    for (size_t i = 0; i < s->n; i++) {
        plan(step, &s->routes[i]);
        for (uint64_t k = 0; k < STEPS; k++) {
            gen g = {1000 * i + 10 * k + rank};
            gen_fill(&g, GEN_NORMAL, GW_F32, gradient, LAYERS * N);
            for (uint32_t l = 0; l < LAYERS; l++) {
                const gw_tensor t = {gradient + l * N, N, GW_F32};
                RANK_OK(gw_step_post(step, l, &t, &why), why.text);
            }
            RANK_OK(gw_step_wait(step, NULL, &why), why.text);
            s->digest[rank][i] =
                gw_payload_hash(gradient, LAYERS * N * sizeof *gradient, s->digest[rank][i]);
        }
    }
    gw_step_destroy(step);
    free(gradient);
}

int main(int argc, char **argv)
{
    static sample by_threads, by_mpi;
    int level = 0, rank = 0, count = 0;
    gw_comm *comm = NULL;
    gw_why why = {""};
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    RANK_TRUE(count == RANKS && level >= MPI_THREAD_SERIALIZED, "four ranks, serialized threads");
    choose(&by_threads);
    choose(&by_mpi);
    const gw_threads_config config = {.ranks = RANKS, .ranks_per_node = PER_NODE};
    ranks_run(&config, rank_main, &by_threads);
    RANK_OK(gw_mpi_create(MPI_COMM_WORLD, &comm, &why), why.text);
    rank_main(NULL, (uint32_t)rank, comm, &by_mpi);
    comm->table->close(comm);
    for (size_t i = 0; i < by_mpi.n; i++) {
        char text[GW_ROUTE_TEXT];
        (void)gw_route_print(&by_mpi.routes[i], text, sizeof text);
        for (int r = 0; r < RANKS; r++) {
            RANK_TRUE(by_threads.digest[r][i] == by_threads.digest[0][i], text);
        }
        RANK_TRUE(by_mpi.digest[rank][i] == by_threads.digest[rank][i], text);
    }
    if (rank == 0) {
        printf("%zu routes, %d codecs: the same bits by MPI and by threads\n", by_mpi.n, LAYERS);
    }
    MPI_Finalize();
    return 0;
}
