/* The MPI backend, under mpirun: every operation, many at once, groups, disagreement, abort. Each part
 * ends in a sentence of rank 0; the first thing wrong ends the job. */
#include "comm/exchange.h"

#include <gradwire/mpi.h>

#include <stdio.h>

enum { PATIENCE = 60, MANY = 40 };

#define EXPECT(holds, ...)                                                                         \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            (void)fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #holds);                      \
            (void)fprintf(stderr, __VA_ARGS__);                                                    \
            (void)fprintf(stderr, "\n");                                                           \
            (void)MPI_Abort(MPI_COMM_WORLD, 1);                                                    \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static void finish(gw_comm *comm, exchange *x)
{
    gw_why why = {""};
    EXPECT(gw_comm_wait(comm, x->request, PATIENCE, &why) == GW_OK, "%s", why.text);
    EXPECT(exchange_arrived(x, comm), "operation %u: wrong bytes", x->number);
}

static void post(gw_comm *comm, exchange *x, uint32_t number)
{
    gw_why why = {""};
    EXPECT(exchange_post(x, comm, number % KINDS, number, &why) == GW_OK, "%s", why.text);
}

static void every_operation(gw_comm *comm)
{
    exchange x;
    for (uint32_t number = 0; number < MANY; number++) {
        post(comm, &x, number);
        finish(comm, &x);
    }
}

static void many_under_way(gw_comm *comm)
{
    static exchange x[MANY];
    for (uint32_t number = 0; number < MANY; number++) {
        post(comm, &x[number], number);
    }
    for (uint32_t number = MANY; number-- > 0;) {
        finish(comm, &x[number]);
    }
}

static void groups(gw_comm *comm)
{
    gw_why why = {""};
    gw_comm *intra = NULL, *inter = NULL;
    const uint32_t node = comm->rank / 2, place = comm->rank % 2, nodes = (comm->ranks + 1) / 2;
    EXPECT(comm->table->split(comm, node, 0, &intra, &why) == GW_OK, "%s", why.text);
    EXPECT(comm->table->split(comm, place, nodes - node, &inter, &why) == GW_OK, "%s", why.text);
    EXPECT(intra->rank == place, "%u", intra->rank);
    EXPECT(inter->rank == inter->ranks - 1 - node, "%u of %u", inter->rank, inter->ranks);
    gw_comm *const all[] = {intra, comm, inter};
    exchange x[12];
    for (uint32_t i = 0; i < 12; i++) {
        post(all[i % 3], &x[i], i);
    }
    for (uint32_t i = 12; i-- > 0;) {
        finish(all[i % 3], &x[i]);
    }
    inter->table->close(inter);
    intra->table->close(intra);
}

/* All ranks of this test are on one machine. */
static void nodes(gw_comm *comm)
{
    gw_why why = {""};
    uint32_t node_of[EXCHANGE_RANKS];
    EXPECT(gw_comm_nodes(comm, NULL, PATIENCE, node_of, &why) == GW_OK, "%s", why.text);
    for (uint32_t r = 0; r < comm->ranks; r++) {
        EXPECT(node_of[r] == 0, "rank %u is on the node of rank %u", r, node_of[r]);
    }
    const char *told = comm->rank % 3 == 0 ? "a" : "b"; /* named by the user */
    EXPECT(gw_comm_nodes(comm, told, PATIENCE, node_of, &why) == GW_OK, "%s", why.text);
    for (uint32_t r = 0; r < comm->ranks; r++) {
        EXPECT(node_of[r] == (r % 3 != 0), "rank %u is on the node of rank %u", r, node_of[r]);
    }
}

/* A large one: no eager message, and a count that is no multiple of anything. */
static void large(gw_comm *comm)
{
    enum { BYTES = 5000003 };
    unsigned char *buffer = malloc(BYTES);
    EXPECT(buffer != NULL, "no memory");
    for (size_t i = 0; i < BYTES; i++) {
        buffer[i] = comm->rank == 1 ? byte_of(1, 2, 3, i) : 0;
    }
    gw_why why = {""};
    gw_request request = NULL;
    EXPECT(comm->table->broadcast(comm, buffer, BYTES, 1, &request, &why) == GW_OK, "%s", why.text);
    EXPECT(gw_comm_wait(comm, request, PATIENCE, &why) == GW_OK, "%s", why.text);
    for (size_t i = 0; i < BYTES; i++) {
        EXPECT(buffer[i] == byte_of(1, 2, 3, i), "byte %zu", i);
    }
    free(buffer);
}

/* Rank 0 sends `sent` bytes where rank 1 has room for 100: rank 1 is told, and gives up; then all are. */
static void disagree(size_t sent)
{
    gw_comm *comm = NULL;
    gw_why why = {""};
    EXPECT(gw_mpi_create(MPI_COMM_WORLD, &comm, &why) == GW_OK, "%s", why.text);
    size_t out_sizes[EXCHANGE_RANKS] = {0}, in_sizes[EXCHANGE_RANKS] = {0};
    const size_t offsets[EXCHANGE_RANKS] = {0};
    static unsigned char out[1000], in[1000];
    memset(in, UNTOUCHED, sizeof in);
    out_sizes[1] = comm->rank == 0 ? sent : 0;
    in_sizes[0] = comm->rank == 1 ? 100 : 0;
    if (comm->rank < 2) {
        gw_request request = NULL;
        out_sizes[comm->rank] = in_sizes[comm->rank] = 0;
        gw_status status = comm->table->alltoallv(comm, out, out_sizes, offsets, in, in_sizes,
                                                  offsets, &request, &why);
        EXPECT(status == GW_OK, "%s", why.text);
        status = gw_comm_wait(comm, request, PATIENCE, &why);
        EXPECT(comm->rank == 0 || status == GW_ERR_DISAGREE, "%d: %s", status, why.text);
        EXPECT(comm->rank == 0 || strstr(why.text, "100 bytes from rank 0") != NULL, "%s",
               why.text);
        for (size_t i = 100; i < sizeof in; i++) {
            EXPECT(in[i] == UNTOUCHED, "written past its piece");
        }
        if (comm->rank == 1) {
            comm->table->abort(comm, why.text);
        }
    }
    if (comm->rank != 1) {
        gw_request request = NULL;
        gw_status status = comm->table->barrier(comm, &request, &why);
        if (status == GW_OK) {
            status = gw_comm_wait(comm, request, PATIENCE, &why);
        }
        EXPECT(status == GW_ERR_PEER, "%d: %s", status, why.text);
        EXPECT(strstr(why.text, "rank 1 gave up: operation 0 (alltoallv)") != NULL, "%s", why.text);
    }
    gw_request request = NULL;
    EXPECT(comm->table->barrier(comm, &request, &why) != GW_OK, "works after a failure");
    comm->table->close(comm);
}

/* Rank 1 does not come; the others say so. */
static void timeout_is_told(void)
{
    gw_comm *comm = NULL;
    gw_why why = {""};
    EXPECT(gw_mpi_create(MPI_COMM_WORLD, &comm, &why) == GW_OK, "%s", why.text);
    if (comm->rank == 0) {
        gw_request request = NULL;
        EXPECT(comm->table->barrier(comm, &request, &why) == GW_OK, "%s", why.text);
        const gw_status status = gw_comm_wait(comm, request, 0.05, &why);
        EXPECT(status == GW_ERR_TIMEOUT, "%d: %s", status, why.text);
        EXPECT(strstr(why.text,
                      comm->ranks == 2 ? ": not received from rank 1" : "from ranks 1, 2") != NULL,
               "%s", why.text);
        comm->table->abort(comm, "nobody came");
    }
    comm->table->close(comm);
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    int level = 0;
    gw_comm *comm = NULL;
    gw_why why = {""};
    EXPECT(gw_mpi_create(MPI_COMM_WORLD, &comm, &why) == GW_ERR_STATE, "before MPI_Init");
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN); /* docs/mpi.md: MPICH wants it */
    EXPECT(gw_mpi_create(MPI_COMM_WORLD, &comm, &why) == GW_OK, "%s", why.text);
    every_operation(comm);
    many_under_way(comm);
    groups(comm);
    nodes(comm);
    if (comm->ranks > 1) {
        large(comm);
    }
    const uint32_t rank = comm->rank, ranks = comm->ranks;
    comm->table->close(comm);
    if (ranks > 1) {
        disagree(101);
        MPI_Barrier(MPI_COMM_WORLD);
        disagree(99);
        MPI_Barrier(MPI_COMM_WORLD);
        timeout_is_told();
    }
    MPI_Finalize();
    if (rank == 0) {
        printf("%u ranks exchange, split, disagree and give up as they should\n", ranks);
    }
    return 0;
}
