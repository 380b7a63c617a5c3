/* Layers whose messages go together: every number, residual and statistic is what it is alone, in fewer messages; whatever breaks is
 * said of the layer it is in. */
#include "comm/faulty.h"
#include "support/check.h"
#include "support/gen.h"
#include "support/steps.h"

#include "step/step.h"

#include <math.h>

static const steps_layer deep[] = {
    {17 * 60, "lowrank:rank=2", "sum", 0},
    {17 * 40, "lowrank:rank=1", "sum", 0},
    {17 * 90, "lowrank:rank=4", "sum", 0},
    {0, "lowrank:rank=2", "sum", 0},
    {700, NULL, NULL, 0},
    {17, "lowrank:rank=4", "sum", 0},
    {3000, "topk:density=0.05", "gather", 0},
    {100, "topk:density=0.05", "gather", 0},
    {900, "topk:density=0.2", "gather", 0},
    {3000, "adacomp:bin=50", "gather", 0},
    {2500, "adacomp:bin=50", "gather", 0},
    {0, "adacomp:bin=50", "gather", 0},
    {60, "adacomp:bin=500", "gather", 0},
    {5000, "natural:bits=8", "sra", 0},
    {5000, "dither:bits=4", "sra", GW_F16},
    {1, "natural:bits=8", "sra", 0},
    {1500, NULL, NULL, 0},
    {2000, NULL, NULL, GW_BF16},
    {900, "topk:density=0.1", "sra", 0},
    {800, "topk:density=0.1", "sra", 0},
    {3000, "adacomp:bin=50", "sra", 0},
};
enum { DEEP = sizeof deep / sizeof deep[0], STEPS = 9, POISONED = 4, REPLANNED = 6 };

typedef struct shown {
    steps with[RANKS_MAX], alone[RANKS_MAX];
} shown;

/* The first ten become ready together, and the rest; one by itself. */
static void group(steps *s, gw_status want)
{
    uint32_t groups[64];
    gw_why why = {""};
    for (uint32_t i = 0; i < s->n; i++) {
        groups[i] = i == 8 ? 0 : i < 10 ? 1 : 2;
    }
    RANK_TRUE(gw_step_ready_together(s->step, groups, s->n, &why) == want, why.text);
}

/* Step `step`, posted in an order of this rank's own; 1: layer 1 of rank 1 has a NaN. */
static void run(steps *s, uint64_t step, gen *g, int poisoned)
{
    uint32_t order[DEEP];
    gw_why why = {""};
    gw_step_result result;
    for (uint32_t i = 0; i < DEEP; i++) {
        const uint32_t at = gen_below(g, i + 1);
        order[i] = order[at];
        order[at] = i;
    }
    for (uint32_t i = 0; i < DEEP; i++) {
        steps_fill(s, order[i], step);
        if (poisoned && order[i] == 1 && s->rank == 1) {
            ((float *)s->gradient[1])[5] = NAN;
        }
        steps_post(s, order[i]);
        if (i == DEEP / 2) {
            group(s, GW_ERR_STATE);
        }
    }
    RANK_OK(gw_step_wait(s->step, &result, &why), why.text);
    RANK_TRUE(result.non_finite == (uint32_t)poisoned, "another layer was spoilt");
    RANK_TRUE(!poisoned || result.first_non_finite == 1, "another layer is said to be spoilt");
}

static void check_same(steps *a, steps *b)
{
    for (uint32_t l = 0; l < DEEP; l++) {
        gw_layer_stats x, y;
        RANK_TRUE(memcmp(a->gradient[l], b->gradient[l], steps_bytes(a, l)) == 0,
                  "going together changed a number");
        RANK_OK(gw_step_stats(a->step, l, &x), "stats");
        RANK_OK(gw_step_stats(b->step, l, &y), "stats");
        RANK_TRUE(x.payload_bytes == y.payload_bytes && x.step == y.step,
                  "going together changed what a layer is said to have sent");
    }
    const gw_feedback_blob r = steps_save(a), q = steps_save(b);
    RANK_TRUE(steps_same(r, q), "going together changed a residual");
    free((void *)(uintptr_t)r.bytes);
    free((void *)(uintptr_t)q.bytes);
}

/* What the link saw is what the layers are said to have sent. */
static void check_bytes(steps *s, const uint64_t before[2], const uint64_t after[2])
{
    uint64_t sent = 0;
    for (uint32_t l = 0; l < DEEP; l++) {
        gw_layer_stats stats;
        RANK_OK(gw_step_stats(s->step, l, &stats), "stats");
        sent += stats.bytes_sent[0] + stats.bytes_sent[1];
    }
    RANK_TRUE(sent == after[0] + after[1] - before[0] - before[1], "other bytes than the link saw");
}

/* Every layer of any elements is there, and as often. */
static void check_timeline(steps *a, steps *b)
{
    gw_step_interval list[2][32 * DEEP];
    size_t n[2] = {0, 0}, seen[2][DEEP] = {{0}};
    RANK_OK(gw_step_timeline(a->step, list[0], 32 * DEEP, &n[0]), "timeline");
    RANK_OK(gw_step_timeline(b->step, list[1], 32 * DEEP, &n[1]), "timeline");
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < n[k]; i++) {
            seen[k][list[k][i].layer]++;
        }
    }
    RANK_TRUE(n[0] == n[1] && memcmp(seen[0], seen[1], sizeof seen[0]) == 0,
              "the timeline leaves layers out");
}

static void alone_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    shown *v = arg;
    steps *with = &v->with[rank], *alone = &v->alone[rank];
    gw_comm *groups[2] = {NULL, NULL};
    uint64_t before[2], made[2];
    gw_why why = {""};
    gen g = {rank};
    for (int i = 0; i < 2; i++) {
        gw_comm *own = NULL;
        RANK_OK(comm->table->split(comm, 0, rank, &own, &why), why.text);
        groups[i] = faulty_wrap(own, (fault){.kind = FAULT_NONE});
        RANK_TRUE(groups[i] != NULL, "no memory");
    }
    const gw_step_config config = {
        .comm = groups[0], .lanes = 2, .own_thread = 1, .verify_every = GW_STEP_VERIFY_NEVER};
    const gw_step_config calm = {
        .comm = groups[1], .lanes = 3, .threads = 2, .verify_every = GW_STEP_VERIFY_NEVER};
    steps_open(with, &config, deep, DEEP);
    steps_open(alone, &calm, deep, DEEP);
    group(with, GW_OK);
    steps_agree(with);
    steps_agree(alone);
    for (uint64_t step = 1; step <= STEPS; step++) {
        if (step ==
            REPLANNED) { /* residuals go over to others, some convoys part and others meet */
            for (int i = 0; i < 2; i++) {
                steps *s = i == 0 ? with : alone;
                steps_plan(s, 1, "topk:density=0.1", "gather");
                steps_plan(s, 6, "lowrank:rank=3", "sum");
                steps_plan(s, 9, NULL, NULL);
                steps_agree(s);
            }
        }
        for (int i = 0; i < 2; i++) {
            uint64_t link[2][2];
            before[i] = faulty_operations(groups[i]);
            ranks_sent(all, rank, link[0]);
            run(i == 0 ? with : alone, step, &g, step == POISONED);
            ranks_sent(all, rank, link[1]);
            made[i] = faulty_operations(groups[i]) - before[i];
            check_bytes(i == 0 ? with : alone, link[0], link[1]);
        }
        RANK_TRUE(made[0] == (step < REPLANNED ? 26 : 33) &&
                      made[1] == (step < REPLANNED ? 58 : 56),
                  "messages did not go together");
        check_same(with, alone);
        check_timeline(with, alone);
        steps_equal_or_die(all, v->with, rank);
    }
    steps_close(with);
    steps_close(alone);
    groups[0]->table->close(groups[0]);
    groups[1]->table->close(groups[1]);
}

static void together_is_what_it_is_alone(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 4; n++) {
        shown *v = calloc(1, sizeof *v);
        assert_non_null(v);
        ranks_run(&(gw_threads_config){.ranks = n}, alone_main, v);
        free(v);
    }
}

/* ---- who does not ---- */

static void long_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    (void)rank;
    (void)arg;
    /* 128 KiB to a peer, and a little more; what both of the first send is above it too */
    static const steps_layer large[] = {
        {65536, NULL, NULL, 0}, {1000, NULL, NULL, 0}, {66000, NULL, NULL, 0}};
    uint64_t made[2] = {0, 0};
    gw_comm *counted = faulty_wrap(comm, (fault){.kind = FAULT_NONE});
    steps s;
    const gw_step_config config = {.comm = counted, .verify_every = GW_STEP_VERIFY_NEVER};
    steps_open(&s, &config, large, 3);
    for (int i = 0; i < 2; i++) {
        uint32_t groups[3] = {7, i == 0 ? 7 : 0, 7};
        gw_why why = {""};
        RANK_OK(gw_step_ready_together(s.step, groups, 3, &why), why.text);
        steps_agree(&s);
        made[i] = faulty_operations(counted);
        steps_run(&s, 1);
        made[i] = faulty_operations(counted) - made[i];
    }
    RANK_TRUE(made[0] == made[1], "long messages went together");
    steps_close(&s);
    counted->table->close(counted);
}

static void long_messages_go_alone(void **state)
{
    (void)state;
    ranks_run(&(gw_threads_config){.ranks = 2}, long_main, NULL);
}

/* ---- what is wrong ---- */

static void disagree_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    (void)arg;
    gw_why why = {""};
    steps s;
    const gw_step_config config = {.comm = comm, .timeout = 60};
    steps_open(&s, &config, deep, 3);
    const uint32_t same[3] = {1, 1, 1}, other[3] = {1, 2, 1};
    RANK_TRUE(gw_step_ready_together(s.step, same, 2, &why) == GW_ERR_ARG &&
                  strstr(why.text, "groups of 2 layers; there are 3") != NULL,
              why.text);
    RANK_TRUE(gw_step_ready_together(s.step, NULL, 3, &why) == GW_ERR_ARG, why.text);
    RANK_OK(gw_step_ready_together(s.step, rank == 1 ? other : same, 3, &why), why.text);
    RANK_TRUE(gw_step_agree(s.step, &why) == GW_ERR_DISAGREE &&
                  strstr(why.text, "ready together") != NULL && strstr(why.text, "rank 1") != NULL,
              why.text);
    RANK_OK(gw_step_ready_together(s.step, same, 3, &why), why.text);
    steps_agree(&s);
    steps_run(&s, 1);
    steps_close(&s);
}

static void other_groups_are_said(void **state)
{
    (void)state;
    ranks_run(&(gw_threads_config){.ranks = 2}, disagree_main, NULL);
}

/* A byte of a convoy's message is changed on its way. */
static void spoilt_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    (void)arg;
    static const steps_layer two[] = {{3000, "topk:density=0.05", "gather", 0},
                                      {2000, "topk:density=0.05", "gather", 0}};
    const uint32_t groups[2] = {1, 1};
    gw_why why = {""};
    gw_params params;
    size_t first = 0;
    steps s;
    RANK_OK(gw_params_parse(&params, two[0].spec, &why), why.text);
    RANK_OK(gw_payload_bound(&params, 3000, &first), "bound");
    gw_comm *counted = faulty_wrap(comm, (fault){.kind = FAULT_NONE});
    const gw_step_config plain = {
        .comm = counted, .timeout = 60, .verify_every = GW_STEP_VERIFY_NEVER};
    steps_open(&s, &plain, two, 2);
    RANK_OK(gw_step_ready_together(s.step, groups, 2, &why), why.text);
    steps_agree(&s);
    const uint64_t before = faulty_operations(counted);
    steps_run(&s, 1);
    RANK_TRUE(faulty_operations(counted) == before + 1, "not one message");
    steps_close(&s);
    gw_comm *faulty = faulty_wrap(
        counted, (fault){rank == 0 ? FAULT_CORRUPT : FAULT_NONE, before, first + 8 + 20});
    const gw_step_config config = {.comm = faulty, .timeout = 60};
    steps_open(&s, &config, two, 2);
    RANK_OK(gw_step_ready_together(s.step, groups, 2, &why), why.text);
    steps_agree(&s);
    for (uint32_t l = 0; l < 2; l++) {
        steps_fill(&s, l, 1);
        steps_post(&s, l);
    }
    const gw_status status = gw_step_wait(s.step, NULL, &why);
    RANK_TRUE(rank != 0 ||
                  (status == GW_ERR_CHECKSUM && strstr(why.text, "of several layers") != NULL),
              why.text);
    steps_close(&s);
    faulty->table->close(faulty);
}

static void a_spoilt_message_is_seen(void **state)
{
    (void)state;
    ranks_run(&(gw_threads_config){.ranks = 2}, spoilt_main, NULL);
}

/* ---- ranks join the same layers ---- */

typedef struct sized {
    steps_layer layers[2];
    uint32_t convoys[RANKS_MAX];
} sized;

static void sized_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    sized *v = arg;
    const uint32_t together[2] = {1, 1};
    gw_why why = {""};
    steps s;
    steps_open(&s, &(gw_step_config){.comm = comm, .lanes = 1, .piece = 1 << 30}, v->layers, 2);
    RANK_OK(gw_step_ready_together(s.step, together, 2, &why), why.text);
    steps_agree(&s);
    v->convoys[rank] = s.step->n_convoys;
    ranks_meet(all);
    if (rank == 0) {
        for (uint32_t r = 1; r < comm->ranks; r++) {
            RANK_TRUE(v->convoys[r] == v->convoys[0], "ranks put other layers into one message");
        }
    }
    ranks_meet(all);
    steps_close(&s);
}

/* A rank's own pieces and the root's bundles differ in size; what goes together must not depend on them. */
static void no_rank_joins_other_layers(void **state)
{
    (void)state;
    static const char *const ways[][2] = {
        {"natural:bits=8", "sra"}, {"topk:density=0.05", "star"}, {"dither:bits=4", "star"},
        {"adacomp:bin=50", "sra"}, {"topk:density=0.05", "sra"},  {"natural:bits=8", "star"}};
    uint32_t joined = 0, apart = 0;
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        for (uint64_t n = 4096; n < 2000000; n += n / 5 + 1) {
            sized v = {.layers = {{n, ways[w][0], ways[w][1], 0}, {n, ways[w][0], ways[w][1], 0}}};
            ranks_run(&(gw_threads_config){.ranks = 4}, sized_main, &v);
            joined += v.convoys[0];
            apart += !v.convoys[0];
        }
    }
    assert_true(joined > 0 && apart > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(together_is_what_it_is_alone), cmocka_unit_test(long_messages_go_alone),
        cmocka_unit_test(other_groups_are_said),        cmocka_unit_test(a_spoilt_message_is_seen),
        cmocka_unit_test(no_rank_joins_other_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
