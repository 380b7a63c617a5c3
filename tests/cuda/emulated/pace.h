/* The emulated device's clock, made up by a test: symbol GW_EMULATED_PACE of the library. As long as `made_up` is 0 it is the machine's. */
#ifndef GW_TESTS_EMULATED_PACE_H
#define GW_TESTS_EMULATED_PACE_H

#define GW_EMULATED_PACE "gw_emulated_pace"

typedef struct gw_emulated_times {
    int made_up;
    double now;           /* seconds: passes by what follows alone */
    double launch, block; /* seconds of a launch, and of each of its blocks */
    double latency[2],
        rate[2]; /* of a copy to the device (0) and from it (1): seconds, bytes a second */
    double
        swing; /* launches between two pairs of events last 1, 1 + swing, 1 + 2 swing times as long */
    unsigned records; /* of events so far */
} gw_emulated_times;

#endif
