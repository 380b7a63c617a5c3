#include "cli/measure/meter.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/seconds.h"

enum { TRIES = 3, LEAST_SAMPLES = 5, TIMEOUT = 60 /* s that ranks wait for one another */ };
static const double SHORTEST =
    30e-3; /* a sample: several turns of the scheduler, where ranks share cores */
static const double LONG = 1.5; /* a try that lasts so long has enough samples with the least */

gw_status gw_cli_measure_fail(gw_why *why, gw_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    return status;
}

double gw_cli_meter_now(void *unused)
{
    (void)unused;
    return gw_cli_now();
}

static gw_status finish(gw_comm *comm, gw_request request, gw_why *why)
{
    return gw_comm_wait(comm, request, TIMEOUT, why);
}

gw_status gw_cli_gather_numbers(gw_comm *comm, double own, double all[GW_CLI_MOST_RANKS],
                                gw_why *why)
{
    if (comm->ranks > GW_CLI_MOST_RANKS) {
        return gw_cli_measure_fail(why, GW_ERR_RANGE, "more than %d ranks", GW_CLI_MOST_RANKS);
    }
    return gw_comm_gather(comm, &own, sizeof own, all, TIMEOUT, why);
}

/* The slowest rank's. */
static gw_status slowest(gw_comm *comm, double *seconds, gw_why *why)
{
    double all[GW_CLI_MOST_RANKS] = {0};
    const gw_status status = gw_cli_gather_numbers(comm, *seconds, all, why);
    for (uint32_t i = 0; i < comm->ranks && status == GW_OK; i++) {
        *seconds = fmax(*seconds, all[i]);
    }
    return status;
}

static gw_status sample(const gw_cli_meter *m, gw_cli_work *work, void *arg, uint32_t repeats,
                        double *seconds, gw_why *why)
{
    gw_request request = NULL;
    gw_status status = GW_OK;
    if (m->comm) {
        status = m->comm->table->barrier(m->comm, &request, why);
        status = status == GW_OK ? finish(m->comm, request, why) : status;
    }
    if (status != GW_OK) {
        return status;
    }
    const double begin = m->clock(m->arg);
    status = work(arg, repeats, why);
    *seconds = (m->clock(m->arg) - begin) / repeats;
    return status == GW_OK && m->comm ? slowest(m->comm, seconds, why) : status;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double gw_cli_median(double *numbers, size_t n)
{
    qsort(numbers, n, sizeof *numbers, by_value);
    return numbers[n / 2];
}

static gw_cli_measured judge(double *samples, uint32_t n)
{
    double sum = 0, squares = 0;
    const double middle = gw_cli_median(samples, n), low = samples[n / 4],
                 high = samples[n - 1 - n / 4];
    for (uint32_t i = 0; i < n; i++) {
        sum += samples[i];
    }
    for (uint32_t i = 0; i < n; i++) {
        squares += (samples[i] - sum / n) * (samples[i] - sum / n);
    }
    return (gw_cli_measured){.seconds = middle,
                             .deviation = sqrt(squares / (n > 1 ? n - 1 : 1)),
                             .spread = high - low > GW_CLI_UNNOTICED ? (high - low) / middle : 0,
                             .samples = n};
}

gw_status gw_cli_measure(gw_cli_meter *m, const char *what, gw_cli_work *work, void *arg,
                         gw_cli_measured *out, gw_why *why)
{
    double once = 0, samples[GW_CLI_SAMPLES] = {0};
    gw_status status = sample(m, work, arg, 1, &once, why); /* warms up */
    const double shortest = m->shortest > 0 ? m->shortest : SHORTEST;
    const double wanted = once > 0 && once < shortest ? ceil(shortest / once) : 1;
    const uint32_t repeats = (uint32_t)fmin(wanted, 1000);
    *out = (gw_cli_measured){.spread = INFINITY};
    for (int attempt = 0; attempt < TRIES && status == GW_OK && out->spread > GW_CLI_MOST_SPREAD;
         attempt++) {
        double total = 0;
        uint32_t n = 0;
        while (n < GW_CLI_SAMPLES && (n < LEAST_SAMPLES || total < LONG) && status == GW_OK) {
            status = sample(m, work, arg, repeats, &samples[n], why);
            total += samples[n++] * repeats;
        }
        const gw_cli_measured found = judge(samples, n);
        *out = found.spread < out->spread ? found : *out;
    }
    m->measured++;
    m->noisy += out->spread > GW_CLI_MOST_SPREAD;
    if (out->spread > m->worst) {
        m->worst = out->spread;
        (void)snprintf(m->worst_of, sizeof m->worst_of, "%s", what);
    }
    return status;
}

gw_status gw_cli_meter_verdict(const gw_cli_meter *m, gw_why *why)
{
    if (m->worst <= GW_CLI_NOISE && m->noisy <= GW_CLI_MOST_NOISY * m->measured) {
        return GW_OK;
    }
    return gw_cli_measure_fail(
        why, GW_ERR_STATE,
        "%u of %u measurements vary by more than %.0f %% between their quarters, the "
        "worst by %.0f %%: %.80s. Measure when nothing else runs, or take them as they "
        "are with --force",
        m->noisy, m->measured, 100 * GW_CLI_MOST_SPREAD, 100 * m->worst, m->worst_of);
}
