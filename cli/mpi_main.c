/* The command `gradwire-mpi`: what runs on ranks that mpirun started. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradwire/mpi.h>

#include "cli/bench/bench_allreduce.h"
#include "cli/options.h"
#include "cli/profile/profile.h"
#include "cli/say.h"
#include "cli/train/train.h"

static const char HELP[] =
    "usage: mpirun ... gradwire-mpi bench allreduce -c SPEC [options]\n"
    "       mpirun ... gradwire-mpi train [options]\n"
    "       mpirun ... gradwire-mpi profile -o CLUSTER.json [options]\n"
    "\n"
    "`gradwire bench allreduce`, `gradwire train` and `gradwire profile` on MPI\n"
    "processes instead of threads.\n"
    "\n"
    "example:\n"
    "  mpirun -n 2 gradwire-mpi bench allreduce -c natural:bits=8 -n 25M\n"
    "  mpirun -n 2 gradwire-mpi train -c natural:bits=8\n";

enum { AT_ONCE = 1 << 30 }; /* MPI counts are int */

static bool allreduce(float *values, size_t count)
{
    for (size_t at = 0; at < count; at += AT_ONCE) {
        const int n = (int)(count - at < AT_ONCE ? count - at : AT_ONCE);
        if (MPI_Allreduce(MPI_IN_PLACE, values + at, n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD) !=
            MPI_SUCCESS) {
            return false;
        }
    }
    return true;
}

static int run_on(const gw_cli_engine *engine, int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "bench") == 0 && strcmp(argv[2], "allreduce") == 0) {
        return gw_cli_bench_allreduce(engine, argc - 2, argv + 2);
    }
    if (argc > 1 && strcmp(argv[1], "profile") == 0) {
        return gw_cli_profile_on(engine, argc - 1, argv + 1);
    }
    if (argc > 1 && strcmp(argv[1], "train") == 0) {
        return gw_cli_train_on(engine, argc - 1, argv + 1);
    }
    const bool asked = argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0);
    (void)fputs(HELP, asked ? stdout : stderr);
    return asked ? GW_CLI_DONE : GW_CLI_MISUSED;
}

enum { PATIENCE = 300 }; /* seconds until ranks that start late are missed */

static gw_status find_nodes(gw_comm *comm, gw_nodes **out, gw_why *why)
{
    uint32_t *node_of = calloc(comm->ranks, sizeof *node_of);
    gw_status status = node_of ? gw_comm_nodes(comm, NULL, PATIENCE, node_of, why) : GW_ERR_MEMORY;
    if (status == GW_OK) {
        status = gw_nodes_create(node_of, comm->ranks, out, why);
    }
    free(node_of);
    return status;
}

static int run(gw_comm *comm, int argc, char **argv)
{
    gw_why why = {""};
    gw_cli_engine engine = {.name = "mpi", .comm = comm, .allreduce = allreduce};
    const gw_status found = find_nodes(comm, &engine.nodes, &why);
    if (found != GW_OK) {
        const char *text = why.text[0] ? why.text : gw_status_string(found);
        comm->table->abort(comm, text);
        gw_cli_error("rank %u: %s", comm->rank, text);
        return GW_CLI_FAILED;
    }
    engine.ranks_per_node = gw_nodes_regular(engine.nodes);
    const int status = run_on(&engine, argc, argv);
    gw_nodes_destroy(engine.nodes);
    return status;
}

int main(int argc, char **argv)
{
    int provided = 0, rank = 0;
    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS) {
        gw_cli_error("MPI does not start");
        return GW_CLI_FAILED;
    }
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    /* all ranks come to the same words: one says them */
    if (rank != 0 && freopen("/dev/null", "w", stdout) == NULL) {
        gw_cli_error("rank %d cannot close its stdout", rank);
    }
    gw_why why = {""};
    gw_comm *comm = NULL;
    int status = GW_CLI_FAILED;
    if (gw_mpi_create(MPI_COMM_WORLD, &comm, &why) == GW_OK) {
        (void)gw_mpi_end_job(comm, 1);
        status = run(comm, argc, argv);
        comm->table->close(comm);
    } else {
        gw_cli_error("%s", why.text);
    }
    if (fflush(stdout) != 0 && status == GW_CLI_DONE) {
        gw_cli_error("cannot write to stdout");
        status = GW_CLI_FAILED;
    }
    (void)MPI_Finalize();
    return status;
}
