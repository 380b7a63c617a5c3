/* A rank's residuals are lost with its machine: the others go on with all of theirs, and replicas stay equal. */
#include "support/check.h"
#include "support/gen.h"
#include "support/steps.h"

#include "base/little_endian.h"
#include "base/numeric.h"
#include "feedback/checkpoint.h"

#include <math.h>

enum { WORLD = 4, TENSOR = 17 * 60, BEGUN = 3 };

/* Residuals of one rank; a warm start that all ranks keep equal; residuals that several ranks keep equal (hier2-gather). */
static const steps_layer layers[] = {
    {TENSOR, "topk:density=0.05", "gather", 0},
    {TENSOR, "sign:bucket=64", "sra", 0},
    {TENSOR, "topk:density=0.05", "hier-gather", 0},
    {TENSOR, "sign:bucket=64", "hier2-sra", 0},
    {TENSOR, "lowrank:rank=2", "sum", 0},
    {TENSOR, "lowrank:rank=1", "hier-sum", 0},
    {TENSOR, "adacomp:bin=50", "star", 0},
    {TENSOR, "sign:bucket=64", "hier2-gather", 0},
};
enum { LAYERS = sizeof layers / sizeof layers[0] };

typedef struct job {
    steps ends[RANKS_MAX];
    gw_feedback_blob saved[RANKS_MAX];
    uint32_t lost;
    double held[LAYERS][TENSOR]; /* by the survivors' checkpoints */
} job;

static gw_step_config config_of(gw_comm *comm)
{
    return (gw_step_config){.comm = comm, .ranks_per_node = 2, .lanes = 2, .piece = 512, .seed = 3};
}

/* What a checkpoint holds of each layer, read off its bytes; equal residuals count at one of their ranks. */
static void add_held(job *j, uint32_t rank)
{
    gw_checkpoint c;
    gw_why why = {""};
    RANK_OK(gw_checkpoint_read(j->saved[rank].bytes, j->saved[rank].size, &c, &why), why.text);
    for (uint32_t l = 0; l < LAYERS; l++) { /* layer.0 to layer.7: in order of their names */
        for (uint32_t i = 0; i < c.tensors[l].n_records; i++) {
            const gw_checkpoint_record *r = &c.tensors[l].records[i];
            for (uint64_t k = 0; k < r->count && (r->point & GW_FEEDBACK_COPY) == 0; k++) {
                j->held[l][r->first + k] += (double)gw_float(gw_get_u32(r->numbers + 4 * k));
            }
        }
    }
    gw_checkpoint_free(&c);
}

/* Some steps, a checkpoint, a new job that loads what is left of it. */
static void resume_without(ranks *all, uint32_t rank, gw_comm *comm, job *j)
{
    steps *s = &j->ends[rank];
    const gw_step_config config = config_of(comm);
    gw_feedback_told told;
    gw_why why = {""};
    steps_open(s, &config, layers, LAYERS);
    steps_agree(s);
    for (uint64_t step = 1; step <= BEGUN; step++) {
        steps_run(s, step);
    }
    j->saved[rank] = steps_save(s);
    steps_close(s);
    steps_open(s, &config, layers, LAYERS);
    gw_step_set_number(s->step, BEGUN);
    steps_agree(s);
    const size_t n = rank != j->lost ? 1 : 0;
    RANK_OK(gw_feedback_load_surviving(gw_step_feedback(s->step), WORLD, &j->saved[rank], n, &told,
                                       &why),
            why.text);
    RANK_TRUE((strstr(told.text, "is lost") != NULL) == (rank == j->lost), told.text);
    ranks_meet(all);
    for (uint32_t r = 0; r < WORLD && rank == 0; r++) {
        if (r != j->lost) {
            add_held(j, r);
        }
    }
    ranks_meet(all);
}

static void close_all(ranks *all, uint32_t rank, job *j)
{
    ranks_meet(all);
    free((void *)(uintptr_t)j->saved[rank].bytes);
    steps_close(&j->ends[rank]);
}

/* Law 1. */
static void equal_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    resume_without(all, rank, comm, j);
    for (uint64_t step = 1; step <= 4; step++) {
        steps_run(&j->ends[rank], BEGUN + step);
        steps_equal_or_die(all, j->ends, rank);
    }
    close_all(all, rank, j);
}

/* Law 2: gradients of zeros, uncompressed, bring out what the survivors' checkpoints hold, and nothing else. */
static void total_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    resume_without(all, rank, comm, j);
    for (uint32_t l = 0; l < LAYERS; l++) {
        steps_plan(s, l, NULL, NULL);
    }
    steps_agree(s);
    steps_run(s, 0);
    for (uint32_t l = 0; l < LAYERS && rank == 0; l++) {
        double worst = 0, most = 0;
        for (int i = 0; i < TENSOR; i++) {
            const double sent = (double)((float *)s->gradient[l])[i] * WORLD;
            worst = fmax(worst, fabs(sent - j->held[l][i]));
            most = fmax(most, fabs(sent));
        }
        if (!(worst < 1e-4 && most > 0.1)) {
            print_error("layer %u, rank %u lost: off by %g of %g\n", l, j->lost, worst, most);
            RANK_TRUE(0, "the survivors' residuals are not what was sent");
        }
    }
    close_all(all, rank, j);
}

static void each_rank_lost(ranks_main *main)
{
    const gw_threads_config config = {.ranks = WORLD, .ranks_per_node = 2};
    for (uint32_t lost = 0; lost < WORLD; lost++) {
        job *j = calloc(1, sizeof *j);
        assert_non_null(j);
        j->lost = lost;
        ranks_run(&config, main, j);
        free(j);
    }
}

static void replicas_stay_equal(void **state)
{
    (void)state;
    each_rank_lost(equal_main);
}

static void survivors_lose_nothing(void **state)
{
    (void)state;
    each_rank_lost(total_main);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_stay_equal),
        cmocka_unit_test(survivors_lose_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
