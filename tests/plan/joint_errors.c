#include "plan/joint_errors.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SAMPLE = 1 << 14, MEASURED = 10, DEFAULT = 2 };

static double uniform(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return ((double)((z ^ (z >> 31)) >> 11) + 0.5) * 0x1p-53;
}

/* Returns the norm. */
static double draw(float *out, size_t n, double scale, double tail, uint64_t *state)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        const double normal =
            sqrt(-2 * log(uniform(state))) * cos(6.283185307179586 * uniform(state));
        const double x = scale * copysign(pow(fabs(normal), tail), normal);
        out[i] = (float)x;
        sum += x * x;
    }
    return sqrt(sum);
}

static int set_levels(joint_errors *e, gw_why *why)
{
    static const char *const OTHERS[] = {"topk:density=0.001", "topk:density=0.01",
                                         "topk:density=0.1", "cast:to=bf16"};
    for (unsigned i = 0; i < JOINT_LEVELS; i++) {
        char spec[32];
        (void)snprintf(spec, sizeof spec, "dither:bits=%u", i + 2);
        if (gw_params_parse(&e->levels[i], i < 7 ? spec : OTHERS[i - 7], why) != GW_OK) {
            return 0;
        }
    }
    return 1;
}

static int measure(joint_errors *e, const gw_job *job, float *numbers, gw_workspace space,
                   gw_why *why)
{
    uint64_t state = 20;
    for (size_t i = 0; i < job->n; i++) {
        const uint64_t elements = job->tensors[i].elements;
        const size_t n = elements < SAMPLE ? (size_t)elements : SAMPLE;
        const double scale = exp(2 * uniform(&state) - 1) / sqrt((double)elements);
        const double tail = 1 + 2 * (double)i / (double)job->n;
        const double more = sqrt((double)elements / (double)n);
        const double norm = draw(numbers, n, scale, tail, &state);
        double *errors = e->errors + i * JOINT_LEVELS;
        const gw_exec exec = {.workspace = space};
        const gw_tensor tensor = {.data = numbers, .dtype = GW_F32, .count = n};
        if (gw_adapt_measure(e->levels, MEASURED, GW_ADAPT_NORMS, &exec, &tensor, NULL, 0, errors,
                             why) != GW_OK) {
            return 0;
        }
        errors[MEASURED] = norm * 0x1p-9; /* of rounding to 8 bits */
        for (unsigned k = 0; k < JOINT_LEVELS; k++) {
            errors[k] *= more;
        }
        e->tensors[i] = (gw_joint_tensor){
            .levels = e->levels, .errors = errors, .n = JOINT_LEVELS, .uniform = DEFAULT};
    }
    return 1;
}

int joint_errors_make(joint_errors *e, const gw_job *job, gw_why *why)
{
    size_t bytes = 0;
    *e = (joint_errors){.errors = calloc(job->n * JOINT_LEVELS, sizeof *e->errors),
                        .tensors = calloc(job->n, sizeof *e->tensors),
                        .n = job->n};
    float *numbers = malloc(SAMPLE * sizeof *numbers);
    int fine = e->errors != NULL && e->tensors != NULL && numbers != NULL && set_levels(e, why) &&
               gw_adapt_measure_workspace(e->levels, MEASURED, SAMPLE, &bytes) == GW_OK;
    void *space = malloc(bytes + 1);
    fine = fine && space != NULL &&
           measure(e, job, numbers, (gw_workspace){.data = space, .size = bytes}, why);
    free(space);
    free(numbers);
    return fine;
}

void joint_errors_free(joint_errors *e)
{
    free(e->errors);
    free(e->tensors);
}

static int same(const gw_params *a, const gw_params *b)
{
    int equal = a->codec == b->codec;
    for (unsigned i = 0; i < GW_PARAMS_MAX; i++) {
        equal = equal && a->value[i] == b->value[i];
    }
    return equal;
}

double joint_errors_of(const joint_errors *e, const gw_plan *plan)
{
    double sum = 0;
    for (size_t i = 0; i < e->n; i++) {
        gw_plan_entry entry;
        if (gw_plan_entry_at(plan, i, &entry) != GW_OK) {
            return (double)NAN;
        }
        double error = entry.params.codec == NULL ? 0 : (double)NAN;
        for (uint32_t k = 0; k < e->tensors[i].n; k++) {
            if (same(&entry.params, &e->tensors[i].levels[k])) {
                error = e->tensors[i].errors[k];
            }
        }
        sum += gw_route_encodes(&entry.route) * error;
    }
    return sum;
}
