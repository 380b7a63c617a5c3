/* Choosing during training, seen from inside. adapt.c keeps the timetable and talks to the other ranks; adapt_measure.c is
 * the thread beside it; adapt_save.c the checkpoint. Offsets from the period's first step, with window = lag = a
 * tenth of the period, 1 to 10:
 *
 *     0 … window − 1              post copies a share of the layers, wait hands it to the thread
 *     window − 1 + lag            the tables go out
 *     window + lag                they are there, and averaged; the thread begins to solve
 *     window + 2 lag              choices are compared, and bind
 */
#ifndef GW_CONTROL_CONTROL_H
#define GW_CONTROL_CONTROL_H

#include "step/step.h"

#include <gradwire/step_adapt.h>

/* A layer of the step. */
typedef struct gw_adapted {
    uint32_t layer;
    uint32_t share; /* step of the window in which it is copied */
    uint32_t n, uniform, milder, level;
    uint32_t coded; /* of the n, the last: measured by coding, there is no table of them */
    gw_params *levels;
    gw_route *routes; /* of each level */
    uint64_t *bytes;  /* that rank 0 sends */
    size_t at;        /* in a table: ‖G‖, then the errors of n levels */
    float *copy;
} gw_adapted;

/* A table begins with these. */
enum { GW_TABLE_STATUS, GW_TABLE_SECONDS, GW_TABLE_WAITED, GW_TABLE_LAYERS };

struct gw_step_auto;

typedef struct gw_step_adapt {
    gw_step *step;
    struct gw_step_auto *over; /* what is chosen when is its affair; NULL: as above */
    gw_step_adapt_config config;
    gw_params *families;
    gw_step_alpha *schedule;
    gw_params milder;
    gw_adapted *layers;
    uint32_t n;
    uint32_t *place_of; /* of the step's layers; UINT32_MAX: not adapted */
    uint32_t known;     /* so many are in place_of */
    uint64_t hash;      /* of levels and settings */
    uint64_t start;     /* of the period under way */
    uint64_t window, lag;
    uint64_t rest; /* steps to choose in */

    size_t table; /* numbers of one */
    double *own, *all, *mean;
    double *norms; /* of the last period, of each layer; 0: none */
    void *room;    /* of a gather */
    int live;      /* a period is under way that was begun at its first step */
    gw_request request;
    uint32_t *chosen; /* levels that will bind */
    gw_step_decision next, last;
    uint64_t decisions;
    double *said;     /* of every rank, when choices are compared */
    double more[2];   /* said besides; then the first that is a number, in rank order */
    gw_status failed; /* why this rank could not choose; GW_OK: it could */

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
    struct {                /* of levels that are coded, of the largest layer */
        float *values;
        uint8_t *payload;
        size_t bytes;
        gw_workspace workspace;
    } trial;
    uint32_t waited; /* this rank's step waited, this period */
    /* tests only: called by the thread before a share (0) or the choice (1) */
    void (*hold)(void *context, struct gw_step_adapt *adapt, int choice);
    void *hold_context;
} gw_step_adapt;

/* What follows this step; NULL: nothing does. */
static inline gw_step_adapt *gw_control_of(const gw_step *s)
{
    return s->above;
}

/* The hooks of the step. */
extern const gw_step_hooks gw_control_hooks;
gw_status gw_step_adapt_copy(void *adapt, uint32_t layer, const gw_tensor *gradient, gw_why *why);
void gw_step_adapt_end(void *adapt);

uint64_t gw_step_adapt_bound(const gw_step_adapt *a); /* the offset of the last row above */
/* Before the first period: settles what hangs on no levels; then, with a->layers there, copies and tables, and `more`
 * numbers behind them; then the thread. On failure gw_step_adapt_end. */
gw_status gw_step_adapt_open(gw_step *s, gw_step_adapt **out, gw_why *why);
/* Room for as many layers as the step has. */
gw_status gw_step_adapt_make_places(gw_step_adapt *a, gw_why *why);
gw_status gw_step_adapt_lay_out(gw_step_adapt *a, size_t more, gw_why *why);
gw_status gw_step_adapt_run(gw_step_adapt *a, gw_why *why);
/* Words with the other ranks: tables, and whether all chose the same. */
gw_status gw_step_adapt_send(gw_step_adapt *a, gw_why *why);
gw_status gw_step_adapt_take(gw_step_adapt *a, gw_why *why);
gw_status gw_step_adapt_compare(gw_step_adapt *a, uint64_t checksum, gw_why *why);
/* What rank 0 sends of a layer in a step. */
gw_status gw_step_bytes_sent(const gw_step *s, const gw_layer *l, const gw_params *level,
                             const gw_route *route, uint64_t *bytes, gw_why *why);
/* A layer's gradient plus residual, into its copy. */
gw_status gw_step_adapt_keep(gw_step_adapt *a, uint32_t place, const gw_tensor *gradient,
                             gw_why *why);
/* The period of step `number`, from its begin; the thread is idle. */
void gw_step_adapt_resume(gw_step_adapt *a, uint64_t number, int live);
void *gw_step_adapt_thread(void *adapt);
/* Waits for the thread: all handed shares measured and, if asked for, the choice made. 1 if it was not done. */
int gw_step_adapt_idle(gw_step_adapt *a);
void gw_step_adapt_hand(gw_step_adapt *a, uint64_t shares);
void gw_step_adapt_ask(gw_step_adapt *a);
gw_status gw_step_adapt_plan(gw_step_adapt *a, uint32_t place, uint32_t level, gw_why *why);

#endif
