/* Choosing during training: one controller above the step, which it hooks into, and two policies, adapt.h and auto.h. The
 * controller has what both need: layers with their levels, the timetable, tables of errors, the thread that measures and
 * chooses, the messages between ranks, the checkpoint. A policy lists the levels, begins rounds, chooses, and says what
 * came of it. A round, from its first step:
 *
 *                                  full                         quick
 *     0 … window − 1               post copies a share of the   nothing is copied: errors are
 *                                  layers, the thread measures  those of the last full round
 *     window − 1 + lag             the tables go out            likewise
 *     window + lag                 they are there, and averaged; the thread chooses
 *     window + lag + rest          choices are compared, and bind
 *
 * control.c keeps the timetable, control_ranks.c talks to the other ranks, control_layers.c lays out memory,
 * control_measure.c is the thread, control_state.c the checkpoint, control_spec.c the lines of text. */
#ifndef GW_CONTROL_CONTROL_H
#define GW_CONTROL_CONTROL_H

#include "step/step.h"

#include <gradwire/adapt.h>
#include <gradwire/frame.h>

/* A layer of the step whose level is chosen. */
typedef struct gw_control_layer {
    uint32_t layer;
    uint32_t share; /* step of the window in which it is copied */
    uint32_t n, uniform;
    uint32_t coded; /* of the n, the last: measured by coding, there is no table of them */
    gw_params *levels;
    size_t at; /* in a table: ‖G‖, then the errors of n levels */
    float *copy;
    /* of adapt */
    uint32_t milder, level;
    gw_route *routes; /* of each level */
    uint64_t *bytes;  /* that rank 0 sends */
} gw_control_layer;

/* A table begins with these. */
enum { GW_TABLE_STATUS, GW_TABLE_SECONDS, GW_TABLE_WAITED, GW_TABLE_LAYERS };

typedef struct gw_control gw_control;
typedef struct gw_walk gw_walk;

typedef struct gw_policy {
    const char *name;     /* in messages */
    const char *settings; /* likewise, where ranks have others */
    size_t size;          /* of the state, which begins with a gw_control and is all zeros */
    uint64_t magic;       /* of the checkpoint */

    /* Begin: refuses what cannot be; lists layers, makes room, hashes what choices depend on; lists the levels of a
     * layer, none where there is nothing to choose; plans what holds until the first choice. */
    gw_status (*check)(const gw_step *s, const void *config, gw_why *why);
    gw_status (*open)(gw_control *c, const void *config, gw_why *why);
    gw_status (*list)(gw_control *c, const gw_layer *l, gw_control_layer *to, gw_why *why);
    gw_status (*start)(gw_control *c, const void *config, gw_why *why);

    /* In post; `place` is UINT32_MAX for a layer that nothing is chosen for. After wait: begins rounds, goes on with them. */
    gw_status (*posted)(gw_control *c, uint32_t layer, uint32_t place, const gw_tensor *gradient,
                        gw_why *why);
    gw_status (*waited)(gw_control *c, uint64_t number, gw_why *why);

    /* A round: writes what its table has besides errors (may be NULL); takes what the mean has (may be NULL); by the
     * thread, chooses, or keeps all where that failed, and describes it; a hash of the choice; plans it. */
    void (*complete)(gw_control *c);
    gw_status (*taken)(gw_control *c, gw_why *why);
    gw_status (*decide)(gw_control *c, gw_why *why);
    void (*keep)(gw_control *c);
    void (*describe)(gw_control *c, const gw_why *failed);
    uint64_t (*checksum)(const gw_control *c);
    gw_status (*bind)(gw_control *c, uint64_t number, gw_why *why);

    /* A checkpoint: goes over all that is saved but magic, settings and number; after loading plans it and goes on. */
    void (*walk)(gw_control *c, gw_walk *w);
    gw_status (*resume)(gw_control *c, gw_why *why);

    void (*close)(gw_control *c); /* may be NULL; the thread has ended, memory is still there */
} gw_policy;

struct gw_control {
    gw_step *step;
    const gw_policy *policy;
    struct gw_control_block *blocks; /* gw_control_memory */
    int no_memory;
    gw_control_layer *layers;
    uint32_t n;
    uint32_t *place_of; /* of the step's layers; UINT32_MAX: nothing is chosen for it */
    uint32_t known;     /* so many are in place_of */
    gw_adapt_metric metric;
    uint64_t hash; /* of levels and settings */

    /* the round under way */
    int live, quick;
    uint64_t start, window, lag, rest;
    uint32_t waited;                       /* this rank's step waited for the thread */
    uint32_t late;                         /* ranks whose step did */
    double measure_seconds, solve_seconds; /* of the slowest rank */
    gw_status failed;                      /* why this rank could not choose; GW_OK: it could */
    uint64_t decisions;                    /* of all rounds */

    size_t table; /* numbers of one */
    double *own, *all, *mean;
    void *room; /* of a gather */
    gw_request request;
    double *said;   /* of every rank, when choices are compared */
    double more[2]; /* said besides; then the first that is a number, in rank order */

    /* guarded; the thread owns copies and `own` of shares that were handed to it, and what it chooses while it does */
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
    /* tests only: called by the thread before a share (0) or the choice (1) */
    void (*hold)(void *context, gw_control *c, int choice);
    void *hold_context;
};

/* What is above this step; NULL: nothing. */
static inline gw_control *gw_control_of(const gw_step *s)
{
    return s->above;
}

/* The same, if it goes by this policy. */
static inline gw_control *gw_control_by(const gw_step *s, const gw_policy *policy)
{
    return s->above != NULL && gw_control_of(s)->policy == policy ? s->above : NULL;
}

gw_status gw_control_begin(gw_step *s, const gw_policy *policy, const void *config, gw_why *why);

/* Zeros, for as long as the controller is there. NULL: there is no memory, and begin fails when it looks. */
void *gw_control_memory(gw_control *c, size_t n, size_t item);
gw_status gw_control_has_memory(const gw_control *c, gw_why *why);

/* ---- rounds ---- */

/* From step `start` on; the policy sets window, lag and rest. */
void gw_control_begin_round(gw_control *c, uint64_t start, int quick);
/* The same of one that was under way, or over, when its checkpoint was written: the table stays. */
void gw_control_resume_round(gw_control *c, uint64_t start, int live);
uint64_t gw_control_bound(const gw_control *c); /* the offset of the last row above */
/* After step `number`: the row that it is. */
gw_status gw_control_go_on(gw_control *c, uint64_t number, gw_why *why);
/* All is planned: ranks agree, and the round is over. */
gw_status gw_control_agree(gw_control *c, gw_why *why);

/* ---- the other ranks ---- */

/* A gather of `bytes` of every rank; a failure is the step's. */
gw_status gw_control_post(gw_control *c, const void *own, size_t bytes, void *room,
                          gw_request *request, gw_why *why);
gw_status gw_control_arrive(gw_control *c, gw_request *request, const void *room, size_t bytes,
                            void *all, gw_why *why);
gw_status gw_control_send(gw_control *c, gw_why *why); /* this rank's table */
gw_status gw_control_take(gw_control *c, gw_why *why); /* means, summed in the order of ranks */
/* All ranks chose the same, or this fails on all of them. */
gw_status gw_control_compare(gw_control *c, uint64_t checksum, gw_why *why);

/* ---- layers ---- */

/* By the policy's open: the step's layers that are sent by themselves, with their levels. */
gw_status gw_control_list(gw_control *c, gw_why *why);
/* Once they are listed, and with the window: copies and tables, with `more` numbers behind each. */
gw_status gw_control_lay_out(gw_control *c, size_t more, gw_why *why);
/* What rank 0 sends of a layer in a step. */
gw_status gw_control_bytes_sent(const gw_step *s, const gw_layer *l, const gw_params *level,
                                const gw_route *route, uint64_t *bytes, gw_why *why);
static inline uint64_t gw_control_mix(uint64_t hash, const void *bytes, size_t size)
{
    return gw_payload_hash(bytes, size, hash);
}
uint64_t gw_control_mix_level(uint64_t hash, const gw_params *level);

/* ---- measuring ---- */

/* A layer's gradient plus residual, into its copy. */
gw_status gw_control_copy(gw_control *c, uint32_t place, const gw_tensor *gradient, gw_why *why);
gw_status gw_control_run(gw_control *c, gw_why *why); /* the thread */
/* Waits for it: all handed shares measured and, if asked for, the choice made. 1 if it was not done. */
int gw_control_idle(gw_control *c);
/* Shares of the window that are copied; it is time to choose. */
void gw_control_hand(gw_control *c, uint64_t shares, int solve);

/* ---- checkpoints ---- */

/* Goes over the words that are saved, in their order. */
struct gw_walk {
    uint8_t *to;         /* writes; NULL: does not */
    const uint8_t *from; /* reads, or only checks what it reads; both NULL: counts */
    int checks;
    size_t n; /* words so far */
    int differs, wrong;
};

static inline int gw_walk_reads(const gw_walk *w)
{
    return w->from != NULL && !w->checks;
}
void gw_walk_word(gw_walk *w, uint64_t *value);
void gw_walk_numbers(gw_walk *w, double *values, size_t n);
void gw_walk_same(gw_walk *w,
                  uint64_t value); /* another one: the checkpoint is of other settings */
/* A number below `limit`; another one: the checkpoint is damaged. */
void gw_walk_below(gw_walk *w, uint32_t *value, uint64_t limit);

gw_status gw_control_save_bytes(const gw_step *s, const gw_policy *policy, size_t *bytes,
                                gw_why *why);
gw_status gw_control_save(gw_step *s, const gw_policy *policy, void *buffer, size_t capacity,
                          size_t *written, gw_why *why);
gw_status gw_control_load(gw_step *s, const gw_policy *policy, const void *bytes, size_t size,
                          gw_why *why);

#endif
