/* Law 7 on any engine: one bit of one message is flipped, for every message of a step, class by class and route by
 * route. The rank that received it fails at once, all others by the end of the next step. With seals off the same flip
 * goes unseen, which shows that it was the seals. */
#ifndef GW_TESTS_COLL_SEALS_H
#define GW_TESTS_COLL_SEALS_H

#include "comm/faulty.h"

#include <gradwire/step_adapt.h>
#include <gradwire/step_auto.h>

enum { SEALS_RANKS = 4, SEALS_PER_NODE = 2, SEALS_USUAL = 3, SEALS_STEPS = 5, SEALS_ODD = 2 };

/* Messages of one class: what is sent, and by which route. */
typedef struct seals_class {
    const char *what, *spec, *route;
    uint64_t elements;
    uint32_t layers;
    int fused, convoy; /* the layers are small: summed as one, or sent in one message */
    int agreeing;      /* the messages before the first step, instead of the step's */
    int last;    /* those of the last step: other ranks see it when they compare means at the end */
    int sharded; /* half a route */
    const char *chooses; /* "adapt:…", "auto:…": levels are chosen, and all messages since count */
    int steps;           /* 0: SEALS_USUAL */
    gw_dtype dtype;      /* 0: fp32 */
} seals_class;

typedef struct seals_job {
    const seals_class *of;
    fault fault; /* of the odd rank */
    int unsealed;
} seals_job;

/* What one rank saw. Plain numbers, so that ranks of an engine can exchange it. */
typedef struct seals_result {
    int status
        [1 + SEALS_STEPS]; /* of agreeing, then of each step; later ones repeat the first failure */
    int closed;            /* of comparing means after the last step */
    char words[256];       /* of the first failure */
    uint64_t digest[SEALS_STEPS]; /* of the means */
    /* Operations after agreeing, after choosing began, before and after the step that is struck. */
    uint64_t agreed, chose, began, ended;
    uint64_t all; /* operations before the last step */
    int kept; /* checkpoints that this rank wrote, one a step from the first on; none after a failure */
    uint64_t saved[2]; /* residuals before the step that is struck, and at the end */
    int struck;        /* the fault changed a byte */
} seals_result;

/* What a rank of an engine does. */
void seals_rank(const seals_job *job, uint32_t rank, gw_comm *comm, seals_result *out);

/* Runs the job on all ranks; every caller of check gets all results. */
typedef void seals_world(const seals_job *job, seals_result results[SEALS_RANKS]);

typedef struct seals_engine {
    const char *name;
    seals_world *world;
    int talks;   /* prints the table */
    int thrifty; /* a run takes long: one byte of every message instead of four */
} seals_engine;

/* All classes by this engine; exits with words if a flip was missed. */
void seals_check(const seals_engine *engine);

#endif
