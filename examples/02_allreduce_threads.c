/* Four ranks, threads of one process on a virtual link of 200 Mbit/s, average a gradient: as it is, then in
 * eight bits an element.
 *     cc 02_allreduce_threads.c -lgradwire -lpthread -lm -o allreduce && ./allreduce */
#include <gradwire/gradwire.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 4, N = 200000, STEPS = 3 };

/* Two layers of the same size, one each way, so that one step shows both. */
static gw_status average(gw_comm *comm, float *plain, float *coded, gw_why *why)
{
    const gw_step_config config = {.comm = comm, .seed = 42, .piece = N / 4, .own_thread = 1};
    const uint64_t dims[1] = {N};
    const gw_tensor gradients[2] = {{plain, N, GW_F32}, {coded, N, GW_F32}};
    gw_step *step = NULL;
    gw_params params;
    gw_route route;
    gw_layer_stats stats;
    uint32_t layer = 0;

    /* Once: layers in the order in which they become ready, how each goes, and do all ranks agree? */
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

    /* Every step: post what is ready, go on computing, wait. Then gradients are the mean. */
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

static void *rank_main(void *comm)
{
    float *gradients = malloc(2 * N * sizeof *gradients);
    gw_why why = {"no memory"};
    const gw_status status =
        gradients != NULL ? average(comm, gradients, gradients + N, &why) : GW_ERR_MEMORY;
    if (status != GW_OK) {
        (void)fprintf(stderr, "rank %u: %s\n", ((gw_comm *)comm)->rank, why.text);
    }
    free(gradients);
    return status == GW_OK ? NULL : comm;
}

int main(void)
{
    const gw_threads_config config = {.ranks = RANKS, .far = {200e6 / 8, 50e-6}};
    gw_threads *world = NULL;
    gw_comm *comm[RANKS];
    pthread_t thread[RANKS];
    gw_why why;
    int failed = gw_threads_create(&config, &world, &why) != GW_OK;
    for (uint32_t r = 0; r < RANKS; r++) {
        if (failed || gw_threads_comm(world, r, &comm[r]) != GW_OK ||
            pthread_create(&thread[r], NULL, rank_main, comm[r]) != 0) {
            return 1; /* and with it all ranks */
        }
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        void *result = NULL;
        failed |= pthread_join(thread[r], &result) != 0 || result != NULL;
    }
    gw_threads_destroy(world);
    return failed;
}
