/* A step with layers, for the ranks of a test: opened, planned, fed with numbers that depend on rank, step and
 * layer alone. Everything that must work is checked inside. */
#ifndef GW_TESTS_STEPS_H
#define GW_TESTS_STEPS_H

#include "support/ranks.h"

#include <gradwire/step.h>

typedef struct steps_layer {
    uint64_t elements;
    const char *spec;  /* NULL: none */
    const char *route; /* NULL: dense */
    gw_dtype dtype;    /* 0: fp32 */
} steps_layer;

typedef struct steps {
    gw_step *step;
    uint32_t n, rank;
    steps_layer layers[64];
    void *gradient[64];
} steps;

/* Layers are named "layer.0" and on; of 17 columns where that goes. */
void steps_open(steps *s, const gw_step_config *config, const steps_layer *layers, uint32_t n);
void steps_close(steps *s);
void steps_plan(steps *s, uint32_t layer, const char *spec, const char *route);
void steps_agree(steps *s);
/* Normal numbers into the layer's gradient; fp16 and bf16 rounded. `step` 0: zeros. */
void steps_fill(steps *s, uint32_t layer, uint64_t step);
void steps_post(steps *s, uint32_t layer);
/* fill and post of every layer, wait, all finite. */
void steps_run(steps *s, uint64_t step);
size_t steps_bytes(const steps *s, uint32_t layer);
/* All ranks: what they have is what rank 0 has, bit for bit. `ends`: of all ranks. */
void steps_equal_or_die(ranks *all, const steps *ends, uint32_t rank);
/* What the residuals of the step are, as a checkpoint without hashes of means; to be freed. */
gw_feedback_blob steps_save(steps *s);
int steps_same(gw_feedback_blob a, gw_feedback_blob b);

#endif
