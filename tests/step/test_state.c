/* What a step remembers: residuals and codec state through non-finite gradients, new plans, and restarts. */
#include "support/check.h"
#include "support/gen.h"
#include "support/steps.h"

#include <math.h>

static const steps_layer layers[] = {
    {500, "cast:to=f32", "gather", 0},
    {2000, "natural:bits=8", "sra", 0},
    {2000, "sign:bucket=64", "sra", 0},
    {1500, "topk:density=0.05", "hier-gather", 0},
    {1500, "adacomp:bin=50", "gather", 0},
    {900, "randk:density=0.1", "sum", 0},
    {17 * 60, "lowrank:rank=2", "sum", 0},
    {2000, "dither:bits=3,bucket=64", "hier2-sra", 0},
    {700, "topk:density=0.1", "gather", GW_F16},
    {2000, "sign:bucket=64", "hier2-sra", 0},
    {1500, "topk:density=0.1,values=natural", "star", 0},
    {1500, "randk:density=0.1,values=natural", "sra", 0},
    {17 * 60, "lowrank:rank=1", "hier-sum", GW_BF16},
    {400, NULL, NULL, 0},
};
enum { LAYERS = sizeof layers / sizeof layers[0] };

typedef struct job {
    steps ends[RANKS_MAX], others[RANKS_MAX];
    uint32_t ranks;
    float bad;
} job;

static void run(uint32_t n, uint32_t per_node, float bad, ranks_main *main)
{
    const gw_threads_config config = {.ranks = n, .ranks_per_node = per_node};
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->ranks = n;
    j->bad = bad;
    ranks_run(&config, main, j);
    free(j);
}

static gw_step_config config_of(gw_comm *comm)
{
    return (gw_step_config){.comm = comm, .ranks_per_node = 2, .lanes = 2, .piece = 512, .seed = 3};
}

static void release(gw_feedback_blob blob)
{
    free((void *)(uintptr_t)blob.bytes);
}

static void same_or_die(const steps *a, const steps *b, const char *words)
{
    for (uint32_t l = 0; l < a->n; l++) {
        if (memcmp(a->gradient[l], b->gradient[l], steps_bytes(a, l)) != 0) {
            print_error("layer %u\n", l);
            RANK_TRUE(0, words);
        }
    }
}

/* ---- a NaN or an infinity in one rank's gradient ---- */

static void poison(steps *s, uint32_t layer, float bad)
{
    const size_t at = s->layers[layer].elements / 3;
    if (s->layers[layer].dtype == GW_F32) {
        ((float *)s->gradient[layer])[at] = bad;
    } else if (s->layers[layer].dtype == GW_F16) {
        ((uint16_t *)s->gradient[layer])[at] = isnan(bad) ? 0x7E00 : 0xFC00;
    } else {
        ((uint16_t *)s->gradient[layer])[at] = isnan(bad) ? 0x7FC0 : 0xFF80;
    }
}

static int all_finite(const steps *s, uint32_t layer)
{
    int finite = 1;
    for (uint64_t i = 0; i < s->layers[layer].elements; i++) {
        const uint32_t half = ((const uint16_t *)s->gradient[layer])[i];
        finite &= s->layers[layer].dtype == GW_F32   ? isfinite(((float *)s->gradient[layer])[i])
                  : s->layers[layer].dtype == GW_F16 ? (half & 0x7C00) != 0x7C00
                                                     : (half & 0x7F80) != 0x7F80;
    }
    return finite;
}

/* Layers from 1 on are poisoned at one rank, the first stays as it is. */
static void poisoned_step(job *j, uint32_t rank, uint64_t step)
{
    steps *s = &j->ends[rank];
    gw_why why = {""};
    gw_step_result result;
    for (uint32_t l = 0; l < LAYERS; l++) {
        steps_fill(s, l, step);
        if (l != 0 && rank == l % j->ranks) {
            poison(s, l, j->bad);
        }
        steps_post(s, l);
    }
    RANK_OK(gw_step_wait(s->step, &result, &why), why.text);
    RANK_TRUE(result.non_finite == LAYERS - 1 && result.first_non_finite == 1,
              "which layers are not finite");
    for (uint32_t l = 0; l < LAYERS; l++) {
        RANK_TRUE(all_finite(s, l) == (l == 0), "a NaN did not arrive, or where there was none");
    }
}

static void poison_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank], *spared = &j->others[rank];
    const gw_step_config config = config_of(comm);
    steps_open(s, &config, layers, LAYERS);
    steps_open(spared, &config, layers, LAYERS);
    steps_agree(s);
    steps_agree(spared);
    for (uint64_t step = 1; step <= 2; step++) {
        steps_run(s, step);
        steps_run(spared, step);
    }
    const gw_feedback_blob before = steps_save(s);
    poisoned_step(j, rank, 3);
    ranks_meet(all);
    same_or_die(&j->ends[0], s, "replicas differ where they are not finite");
    ranks_meet(all);
    const gw_feedback_blob after = steps_save(s);
    RANK_TRUE(steps_same(before, after), "a non-finite step changed a residual");
    release(before);
    release(after);
    /* to the other, that step never happened; an agree without a change changes nothing */
    gw_step_set_number(spared->step, 3);
    steps_agree(spared);
    for (uint64_t step = 4; step <= 7; step++) {
        if (step == 6) { /* once more, and nobody looked at the residuals before */
            poisoned_step(j, rank, step);
            gw_step_set_number(spared->step, gw_step_number(s->step));
            steps_agree(spared);
            continue;
        }
        steps_run(s, step);
        steps_run(spared, step);
        same_or_die(spared, s, "a non-finite step left a trace");
    }
    steps_close(spared);
    steps_close(s);
}

static void a_nan_leaves_no_trace(void **state)
{
    (void)state;
    run(4, 2, NAN, poison_main);
    run(2, 2, NAN, poison_main);
}

static void an_infinity_leaves_no_trace(void **state)
{
    (void)state;
    run(4, 2, -INFINITY, poison_main);
}

/* ---- new plans ---- */

enum { TENSOR = 17 * 40, PLANS = 9 };
static const struct {
    const char *spec, *route;
} plans[PLANS] = {
    {"topk:density=0.05", "gather"},
    {"sign:bucket=64", "sra"},
    {"lowrank:rank=2", "sum"},
    {"lowrank:rank=1", "hier-sum"},
    {"adacomp:bin=50", "star"},
    {"topk:density=0.02", "hier2-sra"},
    {"randk:density=0.05", "gather"},
    {"sign:bucket=64", "hier2-sra"},
    {NULL, "dense"},
};

static double totals[2][TENSOR]; /* of rank 0's means; of what all ranks put in */

static void replan_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    const steps_layer tensor = {TENSOR, NULL, NULL, 0};
    const gw_step_config config = config_of(comm);
    steps_open(s, &config, &tensor, 1);
    for (uint64_t step = 0; step < 3 * PLANS; step++) {
        /* the last plan is dense, and its last step of zeros brings out what was left */
        const uint64_t seed = step + 1 == (uint64_t)3 * PLANS ? 0 : step + 1;
        if (step % 3 == 0) {
            steps_plan(s, 0, plans[step / 3].spec, plans[step / 3].route);
            steps_agree(s);
        } else {
            steps_plan(s, 0, plans[step / 3].spec, plans[step / 3].route); /* no change at all */
            const size_t orphans = gw_feedback_orphans(gw_step_feedback(s->step), 0);
            const gw_feedback_blob before = steps_save(s);
            steps_agree(s);
            const gw_feedback_blob after = steps_save(s);
            RANK_TRUE(steps_same(before, after) &&
                          gw_feedback_orphans(gw_step_feedback(s->step), 0) == orphans,
                      "the same plan again moved a residual");
            release(before);
            release(after);
        }
        steps_fill(s, 0, seed);
        for (uint32_t r = 0; r < j->ranks; r++) {
            ranks_meet(all);
            for (uint32_t i = 0; r == rank && i < TENSOR; i++) {
                totals[1][i] += (double)((float *)s->gradient[0])[i];
            }
        }
        ranks_meet(all);
        steps_run(s, seed);
        for (uint32_t i = 0; rank == 0 && i < TENSOR; i++) {
            totals[0][i] += (double)((float *)s->gradient[0])[i] * j->ranks;
        }
    }
    ranks_meet(all);
    steps_close(s);
}

static void new_plans_lose_nothing(void **state)
{
    (void)state;
    memset(totals, 0, sizeof totals);
    run(4, 2, 0, replan_main);
    for (uint32_t i = 0; i < TENSOR; i++) {
        CHECK(fabs(totals[0][i] - totals[1][i]) < 1e-3, "element %u: sent %g, put in %g", i,
              totals[0][i], totals[1][i]);
    }
}

/* ---- restarts ---- */

static void resume_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    job *j = arg;
    steps *s = &j->ends[rank], *resumed = &j->others[rank];
    const gw_step_config config = config_of(comm);
    gw_why why = {""};
    gw_feedback_told told;
    steps_open(s, &config, layers, LAYERS);
    steps_agree(s);
    for (uint64_t step = 1; step <= 3; step++) {
        steps_run(s, step);
    }
    const gw_feedback_blob saved = steps_save(s);
    steps_open(resumed, &config, layers, LAYERS);
    gw_step_set_number(resumed->step, gw_step_number(s->step));
    steps_agree(resumed);
    for (uint64_t step = 7; step <= 8; step++) { /* it has been elsewhere: a load replaces all */
        steps_run(resumed, step);
    }
    gw_step_set_number(resumed->step, gw_step_number(s->step));
    steps_agree(resumed);
    RANK_OK(gw_feedback_load(gw_step_feedback(resumed->step), comm->ranks, &saved, 1, &told, &why),
            why.text);
    RANK_TRUE(told.adopted == 0 && told.at_zero == 0, told.text);
    for (uint64_t step = 4; step <= 6; step++) {
        steps_run(s, step);
        steps_run(resumed, step);
        same_or_die(s, resumed, "a resumed run goes another way");
    }
    const gw_feedback_blob a = steps_save(s), b = steps_save(resumed);
    RANK_TRUE(steps_same(a, b), "a resumed run has other residuals");
    release(a);
    release(b);
    release(saved);
    steps_close(resumed);
    steps_close(s);
}

static void a_resumed_run_goes_on_bit_for_bit(void **state)
{
    (void)state;
    run(4, 2, 0, resume_main);
}

static void refused_or_die(const steps *s, uint32_t world, const gw_feedback_blob *saved)
{
    gw_why why = {""};
    gw_feedback *store = gw_step_feedback(s->step);
    const gw_status status = gw_feedback_load(store, world, saved, 1, NULL, &why);
    RANK_TRUE(status == GW_ERR_STATE && strstr(why.text, "call gw_step_agree first") != NULL,
              "a load before agree was not refused");
    RANK_TRUE(gw_feedback_load(store, world, saved, 1, NULL, NULL) == GW_ERR_STATE, "with no why");
    for (uint32_t i = 0; i < s->n; i++) {
        RANK_TRUE(gw_feedback_orphans(store, i) == 0, "a refused load made orphans");
    }
}

/* Before agree no residual has its place: loaded, all would become orphans. */
static void early_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    job *j = arg;
    steps *s = &j->ends[rank], *resumed = &j->others[rank];
    const gw_step_config config = config_of(comm);
    gw_why why = {""};
    gw_feedback_told told;
    steps_open(s, &config, layers, LAYERS);
    steps_agree(s);
    steps_run(s, 1);
    const gw_feedback_blob saved = steps_save(s);
    steps_open(resumed, &config, layers, LAYERS);
    refused_or_die(resumed, comm->ranks, &saved);
    steps_agree(resumed);
    gw_step_set_number(resumed->step, gw_step_number(s->step)); /* needs an agree again */
    refused_or_die(resumed, comm->ranks, &saved);
    steps_agree(resumed);
    RANK_OK(gw_feedback_load(gw_step_feedback(resumed->step), comm->ranks, &saved, 1, &told, &why),
            why.text);
    RANK_TRUE(told.adopted == 0 && told.at_zero == 0, told.text);
    steps_run(s, 2);
    steps_run(resumed, 2);
    same_or_die(s, resumed, "a resumed run goes another way");
    release(saved);
    steps_close(resumed);
    steps_close(s);
}

static void residuals_are_not_loaded_before_they_have_a_place(void **state)
{
    (void)state;
    run(4, 2, 0, early_main);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_nan_leaves_no_trace),
        cmocka_unit_test(an_infinity_leaves_no_trace),
        cmocka_unit_test(new_plans_lose_nothing),
        cmocka_unit_test(a_resumed_run_goes_on_bit_for_bit),
        cmocka_unit_test(residuals_are_not_loaded_before_they_have_a_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
