/* One clock for every room: monotonic, in seconds. */
#ifndef GW_BASE_CLOCK_H
#define GW_BASE_CLOCK_H

/* Seconds since a fixed point in the past. All threads and processes of a machine share it. */
double gw_clock(void);

#endif
