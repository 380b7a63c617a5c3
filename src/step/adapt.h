/* Choosing during training, seen from inside. adapt.c keeps the timetable and talks to the other ranks; adapt_measure.c is
 * the thread beside it; adapt_save.c the checkpoint. Offsets from the period's first step, with window = lag = a
 * tenth of the period, 1 to 10:
 *
 *     0 … window − 1              post copies a share of the layers, wait hands it to the thread
 *     window − 1 + lag            the tables go out
 *     window + lag                they are there, and averaged; the thread begins to solve
 *     window + 2 lag              choices are compared, and bind
 */
#ifndef GW_STEP_ADAPT_H
#define GW_STEP_ADAPT_H

#include "step/step.h"

#include <gradwire/step_adapt.h>

/* A layer of the step. */
typedef struct gw_adapted {
    uint32_t layer;
    uint32_t share; /* step of the window in which it is copied */
    uint32_t n, uniform, milder, level;
    gw_params *levels;
    gw_route *routes; /* of each level */
    uint64_t *bytes;  /* that rank 0 sends */
    size_t at;        /* in a table: ‖G‖, then the errors of n levels */
    float *copy;
} gw_adapted;

/* A table begins with these. */
enum { GW_TABLE_STATUS, GW_TABLE_SECONDS, GW_TABLE_WAITED, GW_TABLE_LAYERS };

typedef struct gw_step_adapt {
    gw_step *step;
    gw_step_adapt_config config;
    gw_params *families;
    gw_step_alpha *schedule;
    gw_params milder;
    gw_adapted *layers;
    uint32_t n;
    uint32_t *place_of; /* of the step's layers; UINT32_MAX: not adapted */
    uint32_t known;     /* so many are in place_of */
    uint64_t hash;      /* of levels and settings */
    uint64_t window, lag;

    size_t table; /* numbers of one */
    double *own, *all, *mean;
    double *norms; /* of the last period, of each layer; 0: none */
    size_t *sizes; /* ranks, and as many offsets */
    int live;      /* a period is under way that was begun at its first step */
    gw_request request;
    uint32_t *chosen; /* levels that will bind */
    gw_step_decision next, last;
    uint64_t decisions;
    double *said; /* of every rank, when choices are compared */

    /* guarded; the thread owns copies and `own` of shares that were handed to it, and `mean`, `chosen` and `next`
     * while it solves */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    int has_thread, stop;
    uint64_t handed, measured; /* shares of the window */
    int solve, solved;         /* asked for, done */
    int awaited;               /* a step waits for the thread */
    float *copies;
    gw_workspace workspace; /* of measuring */
    uint32_t waited;        /* this rank's step waited, this period */
    /* tests only: called by the thread before a share (0) or the choice (1) */
    void (*hold)(void *context, struct gw_step_adapt *adapt, int choice);
    void *hold_context;
} gw_step_adapt;

uint64_t gw_step_adapt_bound(const gw_step_adapt *a); /* the offset of the last row above */
/* The period of step `number`, from its begin; the thread is idle. */
void gw_step_adapt_resume(gw_step_adapt *a, uint64_t number, int live);
void *gw_step_adapt_thread(void *adapt);
/* Waits for the thread: all handed shares measured and, if asked for, the choice made. 1 if it was not done. */
int gw_step_adapt_idle(gw_step_adapt *a);
void gw_step_adapt_hand(gw_step_adapt *a, uint64_t shares);
void gw_step_adapt_ask(gw_step_adapt *a);
gw_status gw_step_adapt_plan(gw_step_adapt *a, uint32_t place, uint32_t level, gw_why *why);

#endif
