/* Ranks that choose levels during training, for the tests of it. */
#ifndef TESTS_CONTROL_ADAPTING_H
#define TESTS_CONTROL_ADAPTING_H

#include "support/check.h"
#include "support/gen.h"
#include "support/steps.h"

#include "coll/exchange.h"
#include "control/adapt.h"

#include <math.h>

enum { RANKS = 3, PERIOD = 8, BOUND = 4 /* the step of a period that goes by its choice first */ };

static const steps_layer dithers[] = {{17 * 400, "dither:bits=4", "sra", 0},
                                      {17 * 60, "dither:bits=4", "sra", 0},
                                      {17 * 120, "dither:bits=4", "sra", GW_BF16},
                                      {500, NULL, NULL, 0},
                                      {17 * 80, "dither:bits=4", "sra", 0}};
static const steps_layer topks[] = {{17 * 400, "topk:density=0.05", "gather", 0},
                                    {17 * 60, "topk:density=0.05", "gather", 0},
                                    {17 * 120, "topk:density=0.05", "gather", 0},
                                    {500, NULL, NULL, 0},
                                    {17 * 80, "topk:density=0.05", "gather", 0}};
enum { LAYERS = 5 };

typedef struct job {
    const steps_layer *layers;
    const char *family, *uniform;
    steps ends[RANKS], others[RANKS];
    double *sums[RANKS][LAYERS]; /* of gradients */
    int same_always;             /* every step the same gradients; set before the ranks begin */
    double alpha;
    gw_step_decision said[RANKS];
} job;

static void run_with(const steps_layer *layers, const char *family, const char *uniform,
                     ranks_main *main, int same_always)
{
    const gw_threads_config config = {.ranks = RANKS, .ranks_per_node = 1};
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->layers = layers;
    j->family = family;
    j->uniform = uniform;
    j->alpha = 1;
    j->same_always = same_always;
    ranks_run(&config, main, j);
    free(j);
}

static void run(const steps_layer *layers, const char *family, const char *uniform,
                ranks_main *main)
{
    run_with(layers, family, uniform, main, 0);
}

static gw_params parsed(const char *spec)
{
    gw_why why = {""};
    gw_params p;
    RANK_OK(gw_params_parse(&p, spec, &why), why.text);
    return p;
}

/* fp32 layers only where sums are looked at. */
static void begin(steps *s, const job *j, gw_comm *comm, const gw_step_adapt_config *more)
{
    gw_why why = {""};
    const gw_step_config config = {.comm = comm, .lanes = 2, .seed = 5, .own_thread = 1};
    const gw_params family = parsed(j->family);
    gw_step_adapt_config adapt = more != NULL ? *more : (gw_step_adapt_config){0};
    adapt.rules =
        (gw_adapt_rules){.families = &family, .n_families = 1, .uniform = parsed(j->uniform)};
    adapt.every = PERIOD;
    adapt.alpha = j->alpha;
    steps_open(s, &config, j->layers, LAYERS);
    steps_agree(s);
    RANK_OK(gw_step_adapt_begin(s->step, &adapt, &why), why.text);
}

/* Gradients of layers differ in size and in how they are spread, from period to period in another way, so that there
 * is something to choose. */
static void fill(steps *s, uint32_t layer, uint64_t step)
{
    steps_fill(s, layer, step + 1);
    float *values = s->gradient[layer];
    const uint32_t loud = step / PERIOD % 2 == 0 ? 1 : 4;
    for (uint64_t i = 0; s->layers[layer].dtype == GW_F32 && i < s->layers[layer].elements; i++) {
        const float x = values[i];
        values[i] = layer == loud ? 50 * x * x * x : layer == 5 - loud ? 0.01f * x : x;
    }
}

static void take_step(job *j, steps *s, uint64_t step)
{
    gw_why why = {""};
    gw_step_result result;
    for (uint32_t l = 0; l < s->n; l++) {
        fill(s, l, j->same_always ? 0 : step);
        double *sum = j->sums[s->rank][l];
        for (uint64_t i = 0; sum != NULL && i < s->layers[l].elements; i++) {
            sum[i] += (double)((float *)s->gradient[l])[i];
        }
        steps_post(s, l);
    }
    RANK_OK(gw_step_wait(s->step, &result, &why), why.text);
}

static gw_step_decision last(steps *s, uint64_t expected)
{
    gw_step_decision d = {0};
    uint64_t n = 0;
    RANK_OK(gw_step_adapt_last(s->step, &n, &d), "no decisions");
    RANK_TRUE(n == expected, "another number of decisions");
    return d;
}

#endif
