/* How weights follow gradients, and how fast. */
#ifndef TRAINER_OPTIMISER_H
#define TRAINER_OPTIMISER_H

#include <gradwire/base.h>

typedef enum optimiser_kind { OPTIMISER_SGD, OPTIMISER_ADAM } optimiser_kind;
/* Of the rate over the steps of a run: as it is; half a cosine down to 0; a tenth after 1/2, a hundredth after 3/4; the
 * cosine with a mistake in it, far too high for a fiftieth of the run, to see who recovers. */
typedef enum schedule {
    SCHEDULE_CONSTANT,
    SCHEDULE_COSINE,
    SCHEDULE_STEP,
    SCHEDULE_SPIKE
} schedule;

typedef struct optimiser_config {
    optimiser_kind kind;
    schedule schedule;
    float rate;
    uint64_t warmup; /* steps over which the rate rises; the first gradients are the largest */
    float momentum;  /* sgd; adam's are 0.9 and 0.999 */
    float decay;     /* added to the gradient: decay · weight */
} optimiser_config;

typedef struct optimiser {
    optimiser_config config;
    size_t count;
    float *mean, *square; /* momentum, and adam's mean of squares; `count` each */
} optimiser;

gw_status optimiser_create(optimiser *o, const optimiser_config *config, size_t count, gw_why *why);
void optimiser_destroy(optimiser *o);
float optimiser_rate(const optimiser_config *config, uint64_t step, uint64_t steps);
/* Step `step`, from 0, of a run of `steps`. */
void optimiser_step(optimiser *o, uint64_t step, uint64_t steps, float *weights,
                    const float *gradients);

#endif
