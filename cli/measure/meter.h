/* Measurements that are repeated until they can be believed. */
#ifndef GW_CLI_METER_H
#define GW_CLI_METER_H

#include <stdbool.h>

#include <gradwire/comm.h>

/* Of all measurements one after the other. Ranks that measure together see the same numbers, those of the slowest. */
typedef struct gw_cli_meter {
    double (*clock)(void *arg); /* seconds */
    void *arg;
    gw_comm *comm;   /* NULL: alone */
    double shortest; /* seconds that a sample lasts at least, by repeats; 0: the usual */
    /* what came of them */
    uint32_t measured, noisy;
    double worst; /* spread, of the noisiest */
    char worst_of[96];
} gw_cli_meter;

/* What is timed; once for `repeats`. */
typedef gw_status gw_cli_work(void *arg, uint32_t repeats, gw_why *why);

typedef struct gw_cli_measured {
    double seconds;   /* median of one repeat */
    double deviation; /* a standard one, of the samples */
    double spread;    /* between the quarters, over the median; 0 if a step would not notice */
    uint32_t samples;
} gw_cli_measured;

/* Beyond this spread, three times over, a measurement is noisy: of ten one may be, since deviations are written down too... */
#define GW_CLI_MOST_SPREAD 0.25
#define GW_CLI_MOST_NOISY  0.1
/* ... but none so. */
#define GW_CLI_NOISE 0.5
/* Seconds. So much between the quarters is no noise, whatever the median: a step is made of milliseconds. */
#define GW_CLI_UNNOTICED 200e-6
enum { GW_CLI_SAMPLES = 9 };

/* Samples until the spread is small enough, or the tries are over. `what` names it for people. */
gw_status gw_cli_measure(gw_cli_meter *meter, const char *what, gw_cli_work *work, void *arg,
                         gw_cli_measured *out, gw_why *why);
/* GW_ERR_STATE, with which measurement was how noisy and what to do, if they are too noisy. */
gw_status gw_cli_meter_verdict(const gw_cli_meter *meter, gw_why *why);
/* Sorts them, and takes the middle one. */
double gw_cli_median(double *numbers, size_t n);
/* Every rank's number, in the order of ranks; called by all. */
enum { GW_CLI_MOST_RANKS = 1024 };
gw_status gw_cli_gather_numbers(gw_comm *comm, double own, double all[GW_CLI_MOST_RANKS],
                                gw_why *why);
/* Words of a failure. */
gw_status gw_cli_measure_fail(gw_why *why, gw_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
double gw_cli_meter_now(void *unused); /* a real clock */

#endif
