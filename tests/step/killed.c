/* Under mpirun, with a launcher that lets the others live: one rank is killed or stopped in mid-training, and every
 * other must come back with a named error within the timeout. With `end` the survivors have asked gradwire to end the
 * job, and close what they hold; without it they leave by themselves. killed kill|stop [end] */
#define _POSIX_C_SOURCE 200809L
#include <gradwire/gradwire.h>
#include <gradwire/mpi.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N = 300000, VICTIM = 2, STEPS = 5 };

/* Stands before the library's own, so that who ends the job is seen. */
int MPI_Abort(MPI_Comm comm, int code)
{
    int rank = -1;
    (void)MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    (void)printf("rank %d: MPI_Abort\n", rank);
    (void)fflush(stdout);
    return PMPI_Abort(comm, code);
}

static void need(gw_status status, const gw_why *why)
{
    if (status != GW_OK) {
        (void)fprintf(stderr, "cannot begin: %s\n", why->text);
        (void)MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

int main(int argc, char **argv)
{
    gw_why why = {""};
    gw_comm *comm = NULL;
    gw_step *step = NULL;
    gw_params params;
    gw_route route;
    uint32_t layer = 0;
    const uint64_t n = N;
    gw_status status = GW_OK;
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    float *gradient = calloc(N, sizeof *gradient);
    need(gw_mpi_create(MPI_COMM_WORLD, &comm, &why), &why);
    const int end = argc > 2 && strcmp(argv[2], "end") == 0;
    need(gw_mpi_end_job(comm, end), &why);
    const gw_step_config config = {.comm = comm, .timeout = 2};
    need(gw_step_create(&config, &step, &why), &why);
    need(gw_step_add(step, "weights", &n, 1, GW_F32, &layer, &why), &why);
    need(gw_params_parse(&params, "natural:bits=8", &why), &why);
    need(gw_route_parse(&route, "sra", &why), &why);
    need(gw_step_plan(step, layer, &params, &route, &why), &why);
    need(gw_step_agree(step, &why), &why);
    for (int i = 0; i < STEPS && status == GW_OK; i++) {
        if (i == 2 && comm->rank == VICTIM) {
            (void)raise(argc > 1 && strcmp(argv[1], "stop") == 0 ? SIGSTOP : SIGKILL);
        }
        const gw_tensor t = {gradient, N, GW_F32};
        status = gw_step_post(step, layer, &t, &why);
        if (status == GW_OK) {
            status = gw_step_wait(step, NULL, &why);
        }
    }
    (void)printf("rank %u: %s: %s\n", comm->rank, gw_status_string(status), why.text);
    (void)fflush(stdout);
    if (status == GW_OK) {
        return 4;
    }
    if (end) {
        gw_step_destroy(step);
        comm->table->close(comm);
        (void)printf("rank %u: the job goes on\n", comm->rank);
        (void)fflush(stdout);
    }
    /* MPI_Finalize would wait for the rank that is gone */
    _exit(5);
}
