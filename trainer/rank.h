/* One rank of a data-parallel training: forward and backward over its own examples, gradients posted as backward
 * completes them, and the same step of the optimiser on every rank. Whoever has a gw_comm can be one. */
#ifndef TRAINER_RANK_H
#define TRAINER_RANK_H

#include "trainer/loss.h"
#include "trainer/model.h"
#include "trainer/optimiser.h"
#include "trainer/sending_plan.h"

typedef struct rank_config {
    const char *model;
    size_t batch; /* examples a rank and step */
    uint64_t seed, steps;
    uint64_t first_step; /* 0; of a run that is resumed the next one, see below */
    optimiser_config optimiser;
    plan_config plan;
    uint32_t ranks_per_node; /* 0: not known, unless `nodes` says it */
    const gw_nodes *nodes;
    int hold; /* 1: gradients are posted when backward is through, so that its times are of computing alone */
} rank_config;

typedef struct rank_stats {
    uint64_t step;                            /* from 0 */
    double loss;                              /* of this step's examples, mean over all ranks */
    double seconds, wait_seconds;             /* all; of it, waiting for gradients after backward */
    double forward_seconds, backward_seconds; /* until the first post, from there to the last */
    double update_seconds;
    uint64_t bytes_sent[GW_LINKS], dense_bytes[GW_LINKS]; /* by this rank, as in gw_step_result */
    uint32_t non_finite; /* layers; the weights were then left as they are, on every rank */
    int stop;            /* some rank wants to stop: all ranks see it in the same step */
} rank_stats;

/* Everything that training changes: the model's weights, the optimiser's mean and square, the step's number and residuals
 * (gw_step_feedback). A run goes on bit for bit with first_step and the others copied back after rank_create. */
typedef struct rank {
    rank_config config;
    const dataset *data;
    gw_comm *comm;
    model *model;
    optimiser optimiser;
    sampler sampler;
    gw_step *step;
    float said[2];  /* goes with the gradients, as layer 0: loss, and whether to stop */
    int wants_stop; /* set before a step */
    float
        *kept; /* model->room floats, or NULL: gets the gradients as they are before the exchange */
    wire_plan plan;
    double first_post, last_ready;           /* of the last step: when backward began, and ended; */
    double forward, backward;                /* where gradients are held: seconds, */
    double crowded;                          /* and how much longer that is than alone; */
    gw_step *beside;                         /* of short exchanges, one a param, and */
    float (*short_ones)[GW_BESIDE_ELEMENTS]; /* what they sum; NULL unless gradients are held */
    double beside_seconds;                   /* of forward and backward with those beside them; */
    double ready[MODEL_MAX_PARAMS]; /* seconds from its begin until each param's gradient was */
    gw_layer_stats *layers;         /* of the last step: layer 0, then the params' */
    uint32_t *which;
    float *x;
    int32_t *labels;
    loss *shares; /* of every rank, when the test set is evaluated */
} rank;

enum { RANK_FIRST_PARAM = 1 }; /* the step's layer that is param 0; before it, what ranks say */

/* Called by all ranks, with the same config. Words in config must live as long. */
gw_status rank_create(const rank_config *config, const dataset *data, gw_comm *comm, rank **out,
                      gw_why *why);
void rank_destroy(rank *r); /* accepts NULL */
/* The next step; which one it is stands in the gw_step. */
gw_status rank_step(rank *r, rank_stats *stats, gw_why *why);
/* The test set, shared out over the ranks; called by all. At most `examples` of it, 0: all. */
gw_status rank_evaluate(rank *r, size_t examples, loss *out, gw_why *why);

#endif
