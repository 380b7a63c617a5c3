/* Levels and errors for jobs of which only shapes are known: what each level loses of numbers drawn for the purpose. */
#ifndef GW_TESTS_PLAN_JOINT_ERRORS_H
#define GW_TESTS_PLAN_JOINT_ERRORS_H

#include <gradwire/joint.h>

enum { JOINT_LEVELS = 11 };

typedef struct joint_errors {
    gw_params levels[JOINT_LEVELS]; /* dither of 2 … 8 bits, topk of 0.1, 1 and 10 %, bf16 */
    double *errors;                 /* JOINT_LEVELS a tensor */
    gw_joint_tensor *tensors;       /* one a tensor; default: dither:bits=4 */
    size_t n;
} joint_errors;

/* Normal numbers times a scale of the tensor's own, heavier in the tail the later the tensor; at most 2^14 of them, and
 * errors (metric `norms`) then as of so many more. False: no memory, or a codec that is left out. */
int joint_errors_make(joint_errors *e, const gw_job *job, gw_why *why);
void joint_errors_free(joint_errors *e);

/* Σ hops × error of a plan over all tensors, in their order; NaN: a spec that is no level. */
double joint_errors_of(const joint_errors *e, const gw_plan *plan);

#endif
