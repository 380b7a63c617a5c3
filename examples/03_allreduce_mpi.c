/* Ranks that mpirun started average a gradient: as it is, then in eight bits an element.
 *     mpicc 03_allreduce_mpi.c -lgradwire_mpi -lgradwire -lm -o allreduce && mpirun -n 2 ./allreduce */
#include <gradwire/gradwire.h>
#include <gradwire/mpi.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 200000, STEPS = 3 };

/* Two layers of the same size, one each way, so that one step shows both. */
static gw_status average(gw_comm *comm, float *plain, float *coded, gw_why *why)
{
    /* Without a thread of its own the exchange runs in wait, and MPI_THREAD_SERIALIZED is enough. */
    const gw_step_config config = {.comm = comm, .seed = 42, .piece = N / 4};
    const uint64_t dims[1] = {N};
    const gw_tensor gradients[2] = {{plain, N, GW_F32}, {coded, N, GW_F32}};
    gw_step *step = NULL;
    gw_params params;
    gw_route route;
    gw_layer_stats stats;
    uint32_t layer = 0;

    gw_status status = gw_step_create(&config, &step, why);
    for (int i = 0; i < 2 && status == GW_OK; i++) {
        status = gw_step_add(step, i == 0 ? "plain" : "coded", dims, 1, GW_F32, &layer, why);
    }
    if (status == GW_OK && (status = gw_params_parse(&params, "natural:bits=8", why)) == GW_OK &&
        (status = gw_route_parse(&route, "sra", why)) == GW_OK) {
        status = gw_step_plan(step, layer, &params, &route, why);
    }
    if (status == GW_OK) {
        status = gw_step_agree(step, why);
    }
    for (int s = 0; s < STEPS && status == GW_OK; s++) {
        for (int i = 0; i < N; i++) {
            plain[i] = coded[i] = (float)((i * 7 + s) % 101 - 50) * (float)(comm->rank + 1);
        }
        for (uint32_t i = 0; i < 2 && status == GW_OK; i++) {
            status = gw_step_post(step, i, &gradients[i], why);
        }
        if (status == GW_OK) {
            status = gw_step_wait(step, NULL, why);
        }
    }
    double lost = 0, size = 0;
    for (int i = 0; i < N && status == GW_OK; i++) {
        lost += pow((double)coded[i] - (double)plain[i], 2);
        size += pow((double)plain[i], 2);
    }
    for (uint32_t i = 0; i < 2 && status == GW_OK && comm->rank == 0; i++) {
        (void)gw_step_stats(step, i, &stats);
        (void)printf("%s: %llu bytes sent, from %.1f to %.1f ms, relative error %.3f\n",
                     i == 0 ? "plain" : "coded",
                     (unsigned long long)stats.bytes_sent[GW_LINK_INTER], 1e3 * stats.begun,
                     1e3 * stats.arrived, i == 0 ? 0 : lost / size);
    }
    gw_step_destroy(step);
    return status;
}

int main(int argc, char **argv)
{
    int provided = 0;
    gw_why why = {"no memory"};
    gw_comm *comm = NULL;
    float *gradients = malloc(2 * N * sizeof *gradients);
    (void)MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    gw_status status =
        gradients != NULL ? gw_mpi_create(MPI_COMM_WORLD, &comm, &why) : GW_ERR_MEMORY;
    if (status == GW_OK) {
        (void)gw_mpi_end_job(comm,
                             1); /* a failure ends the job, rather than leave the others waiting */
        status = average(comm, gradients, gradients + N, &why);
    }
    if (status != GW_OK) {
        (void)fprintf(stderr, "%s\n", why.text);
    }
    if (comm != NULL) {
        comm->table->close(comm);
    }
    free(gradients);
    (void)MPI_Finalize();
    return status == GW_OK ? 0 : 1;
}
