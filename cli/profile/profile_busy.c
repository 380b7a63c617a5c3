/* How late a link's answer comes while every rank computes: seen with the step's own thread, as training will. */
#include <math.h>

#include <gradwire/gradwire.h>

#include "cli/profile/profile.h"

/* An exchange needs the core to send pieces, to send sums, and to see that they are there. */
enum { ROUNDS = 15, TIMEOUT = 60, TURNS = 3 };
static const double BESIDE = 0.03; /* seconds of computing beside one exchange */

static void compute(double seconds)
{
    volatile double x = 1;
    const double end = gw_cli_meter_now(NULL) + seconds;
    while (gw_cli_meter_now(NULL) < end) {
        for (int i = 0; i < 1000; i++) {
            x = x * 1.0000001;
        }
    }
}

/* Of the rank that came last: the others also waited for it. */
static gw_status least(gw_comm *comm, double *seconds, gw_why *why)
{
    double all[GW_CLI_MOST_RANKS];
    const gw_status status = gw_cli_gather_numbers(comm, *seconds, all, why);
    for (uint32_t i = 0; i < comm->ranks && status == GW_OK; i++) {
        *seconds = fmin(*seconds, all[i]);
    }
    return status;
}

static gw_status once(gw_step *step, gw_comm *comm, double beside, double *seconds, gw_why *why)
{
    float values[64] = {1};
    const gw_tensor gradient = {values, sizeof values / sizeof *values, GW_F32};
    gw_request request = NULL;
    gw_step_result result;
    gw_layer_stats stats = {0};
    gw_status status = comm->table->barrier(comm, &request, why);
    status = status == GW_OK ? gw_comm_wait(comm, request, TIMEOUT, why) : status;
    status = status == GW_OK ? gw_step_post(step, 0, &gradient, why) : status;
    if (status == GW_OK) {
        compute(beside);
        status = gw_step_wait(step, &result, why);
    }
    status = status == GW_OK ? gw_step_stats(step, 0, &stats) : status;
    *seconds = stats.arrived;
    return status == GW_OK ? least(comm, seconds, why) : status;
}

static gw_status compare(gw_step *step, gw_comm *comm, double *longer, gw_why *why)
{
    double idle[ROUNDS], busy[ROUNDS];
    gw_status status = GW_OK;
    for (int i = 0; i < ROUNDS && status == GW_OK; i++) {
        status = once(step, comm, 0, &idle[i], why);
        status = status == GW_OK ? once(step, comm, BESIDE, &busy[i], why) : status;
    }
    if (status == GW_OK) {
        *longer = fmax(gw_cli_median(busy, ROUNDS) - gw_cli_median(idle, ROUNDS), 0) / TURNS;
    }
    return status;
}

gw_status gw_cli_profile_busy(gw_comm *comm, double *longer, gw_why *why)
{
    const gw_step_config config = {.comm = comm, .timeout = TIMEOUT, .own_thread = 1};
    const uint64_t elements = 64;
    uint32_t number = 0;
    gw_step *step = NULL;
    gw_status status = gw_step_create(&config, &step, why);
    status =
        status == GW_OK ? gw_step_add(step, "short", &elements, 1, GW_F32, &number, why) : status;
    status = status == GW_OK ? gw_step_agree(step, why) : status;
    status = status == GW_OK ? compare(step, comm, longer, why) : status;
    gw_step_destroy(step);
    return status;
}
