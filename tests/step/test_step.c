/* What a step promises its caller: the mean, the same bits on all ranks, whatever is fused, cut, posted late
 * or in another order; statistics that are true; wrong calls refused in words. */
#define _POSIX_C_SOURCE 200809L
#include "support/check.h"
#include "support/gen.h"
#include "support/steps.h"

#include "base/convert.h"
#include "step/step.h"

#include <math.h>
#include <sched.h>
#if defined(__SSE2__)
#    include <immintrin.h>
#endif

/* Gradients of all ranks, for one of them to look at. */
typedef struct shown {
    steps all[RANKS_MAX], others[RANKS_MAX];
    uint32_t ranks;
} shown;

static int replicas_equal(const shown *v)
{
    for (uint32_t r = 1; r < v->ranks; r++) {
        for (uint32_t l = 0; l < v->all[0].n; l++) {
            if (memcmp(v->all[r].gradient[l], v->all[0].gradient[l], steps_bytes(&v->all[0], l)) !=
                0) {
                print_error("layer %u of rank %u\n", l, r);
                return 0;
            }
        }
    }
    return 1;
}

static int same_gradients(const steps *a, const steps *b)
{
    for (uint32_t l = 0; l < a->n; l++) {
        if (memcmp(a->gradient[l], b->gradient[l], steps_bytes(a, l)) != 0) {
            print_error("layer %u: %.9g, not %.9g\n", l, (double)((float *)b->gradient[l])[0],
                        (double)((float *)a->gradient[l])[0]);
            return 0;
        }
    }
    return 1;
}

static void run_ranks(uint32_t n, uint32_t per_node, ranks_main *main)
{
    const gw_threads_config config = {.ranks = n, .ranks_per_node = per_node};
    shown *v = calloc(1, sizeof *v);
    assert_non_null(v);
    v->ranks = n;
    ranks_run(&config, main, v);
    free(v);
}

/* ---- the mean ---- */

/* fp32, in rank order, divided last. */
static void expected_mean(shown *v, uint32_t layer, uint64_t step, void *out)
{
    const steps_layer *l = &v->all[0].layers[layer];
    float *sum = calloc(l->elements + 1, sizeof *sum);
    for (uint32_t r = 0; r < v->ranks; r++) {
        steps one = {.n = v->all[0].n, .rank = r};
        memcpy(one.layers, v->all[0].layers, sizeof one.layers);
        one.gradient[layer] = calloc(l->elements + 1, sizeof(float));
        steps_fill(&one, layer, step);
        if (r == 0 && l->dtype == GW_F32) {
            memcpy(sum, one.gradient[layer], l->elements * sizeof *sum);
        } else {
            gw_convert_scalar.add(l->dtype, one.gradient[layer], sum, l->elements);
        }
        free(one.gradient[layer]);
    }
    for (uint64_t i = 0; i < l->elements; i++) {
        sum[i] /= (float)v->ranks;
    }
    if (l->dtype == GW_F32) {
        memcpy(out, sum, l->elements * sizeof *sum);
    } else {
        (void)gw_convert_scalar.narrow(l->dtype, sum, out, l->elements);
    }
    free(sum);
}

static int means_are(shown *v, uint64_t step)
{
    for (uint32_t l = 0; l < v->all[0].n; l++) {
        const size_t bytes = steps_bytes(&v->all[0], l);
        void *want = malloc(bytes + 4);
        expected_mean(v, l, step, want);
        const int same = memcmp(want, v->all[0].gradient[l], bytes) == 0;
        free(want);
        if (!same) {
            print_error("layer %u is not the mean\n", l);
            return 0;
        }
    }
    return 1;
}

static const steps_layer mixed[] = {
    {1, NULL, NULL, 0},        {1003, NULL, NULL, GW_F16},    {0, NULL, NULL, 0},
    {50, NULL, NULL, GW_BF16}, {3001, NULL, "hier-dense", 0}, {7, NULL, NULL, 0},
    {0, NULL, NULL, GW_F16},   {2000, NULL, NULL, GW_BF16},
};
enum { MIXED = sizeof mixed / sizeof mixed[0] };

static void mean_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    shown *v = arg;
    steps *s = &v->all[rank];
    const gw_step_config config = {.comm = comm, .ranks_per_node = v->ranks % 2 == 0 ? 2 : 1};
    steps_open(s, &config, mixed, MIXED);
    if (v->ranks % 2 != 0) { /* in another order of summation on two levels */
        steps_plan(s, 4, NULL, NULL);
    }
    steps_agree(s);
    for (uint64_t step = 1; step <= 3; step++) {
        steps_run(s, step);
        ranks_meet(all);
        RANK_TRUE(rank != 0 || replicas_equal(v), "replicas differ");
        if (v->ranks % 2 != 0) {
            RANK_TRUE(rank != 0 || means_are(v, step), "not the mean");
        }
        ranks_meet(all);
    }
    steps_close(s);
}

static void the_mean_in_every_dtype(void **state)
{
    (void)state;
    run_ranks(1, 1, mean_main);
    run_ranks(3, 1, mean_main);
    run_ranks(4, 2, mean_main);
}

/* ---- fused, cut, late, in any order ---- */

static const steps_layer small[] = {
    {100000, NULL, NULL, 0},      {100000, NULL, NULL, 0}, {5, NULL, NULL, 0},
    {0, NULL, NULL, 0},           {250000, NULL, NULL, 0}, {100000, NULL, NULL, GW_F16},
    {100000, NULL, NULL, 0},      {1, NULL, NULL, 0},      {700, "sign:bucket=64", "gather", 0},
    {300000, NULL, NULL, GW_BF16}};
enum { SMALL = sizeof small / sizeof small[0] };

static void fusion_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    shown *v = arg;
    steps *s = &v->all[rank], *plain = &v->others[rank];
    const gw_step_config fused = {.comm = comm, .fuse_below = 200000, .lanes = 2};
    const gw_step_config apart = {.comm = comm, .lanes = 3, .piece = 40000};
    steps_open(s, &fused, small, SMALL);
    steps_open(plain, &apart, small, SMALL);
    steps_plan(plain, 8, NULL, NULL); /* as it goes in a fusion */
    steps_agree(s);
    steps_agree(plain);
    for (uint64_t step = 1; step <= 2; step++) {
        steps_run(s, step);
        steps_run(plain, step);
        ranks_meet(all);
        RANK_TRUE(same_gradients(plain, s), "fused is not what it is alone");
        RANK_TRUE(rank != 0 || replicas_equal(v), "replicas differ");
        RANK_TRUE(rank != 0 || means_are(v, step), "not the mean");
        ranks_meet(all);
    }
    for (uint32_t l = 0; l < SMALL; l++) {
        gw_layer_stats stats;
        RANK_OK(gw_step_stats(s->step, l, &stats), "stats");
        RANK_TRUE(stats.fused == (small[l].elements < 200000), "who is fused");
    }
    steps_close(plain);
    steps_close(s);
}

static void fused_is_what_it_is_alone(void **state)
{
    (void)state;
    run_ranks(3, 1, fusion_main);
}

static const steps_layer coded[] = {
    {5000, "natural:bits=8", "sra", 0},        {5000, "sign:bucket=64", "gather", 0},
    {17 * 60, "lowrank:rank=2", "sum", 0},     {3000, "topk:density=0.05", "hier-gather", 0},
    {3000, "adacomp:bin=50", "gather", 0},     {5000, "dither:bits=4,bucket=64", "hier2-sra", 0},
    {900, "randk:density=0.1", "sum", GW_F16}, {1, NULL, NULL, 0},
    {0, "natural:bits=8", "sra", 0},           {0, "topk:density=0.05", "gather", 0},
    {0, "adacomp:bin=50", "sra", 0},           {0, "lowrank:rank=2", "sum", 0},
    {0, "randk:density=0.1", "sum", 0},
};
enum { CODED = sizeof coded / sizeof coded[0] };

static void order_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    shown *v = arg;
    steps *s = &v->all[rank], *calm = &v->others[rank];
    const gw_step_config config = {
        .comm = comm, .ranks_per_node = 2, .lanes = 3, .piece = 1024, .own_thread = 1};
    gw_step_config in_order = config;
    in_order.own_thread = 0;
    in_order.threads = 2;
    steps_open(s, &config, coded, CODED);
    steps_open(calm, &in_order, coded, CODED);
    steps_agree(s);
    steps_agree(calm);
    gen g = {rank};
    for (uint64_t step = 1; step <= 40; step++) {
        uint32_t order[CODED];
        gw_why why = {""};
        for (uint32_t i = 0; i < CODED; i++) { /* every rank another order, every step too */
            const uint32_t at = gen_below(&g, i + 1);
            order[i] = order[at];
            order[at] = i;
        }
        for (uint32_t i = 0; i < CODED; i++) {
            steps_fill(s, order[i], step);
            steps_post(s, order[i]);
        }
        gw_step_result result;
        RANK_OK(gw_step_wait(s->step, &result, &why), why.text);
        RANK_TRUE(result.number == step - 1 && result.non_finite == 0, "the result");
        steps_run(calm, step);
        ranks_meet(all);
        RANK_TRUE(same_gradients(calm, s), "the order of posts changed a number");
        RANK_TRUE(rank != 0 || replicas_equal(v), "replicas differ");
        ranks_meet(all);
    }
    const gw_feedback_blob a = steps_save(s), b = steps_save(calm);
    RANK_TRUE(steps_same(a, b), "the order of posts changed a residual");
    free((void *)(uintptr_t)a.bytes);
    free((void *)(uintptr_t)b.bytes);
    steps_close(calm);
    steps_close(s);
}

static void posts_in_any_order(void **state)
{
    (void)state;
    run_ranks(4, 2, order_main);
    run_ranks(2, 2, order_main);
}

/* An early layer arrives while later ones are not even posted. */
static void late_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    shown *v = arg;
    steps *s = &v->all[rank];
    const gw_step_config config = {.comm = comm, .lanes = 2, .own_thread = 1, .piece = 300};
    steps_open(s, &config, small, 3);
    steps_agree(s);
    for (uint64_t step = 1; step <= 3; step++) {
        gw_why why = {""};
        gw_layer_stats stats = {0};
        for (uint32_t l = 0; l < s->n; l++) {
            steps_fill(s, l, step);
            steps_post(s, l);
            do {
                RANK_OK(gw_step_stats(s->step, l, &stats), "stats");
                (void)sched_yield();
            } while (stats.step != step - 1);
            ranks_meet(all);
            RANK_TRUE(memcmp(v->all[0].gradient[l], s->gradient[l], steps_bytes(s, l)) == 0,
                      "replicas differ before wait");
            ranks_meet(all);
        }
        RANK_OK(gw_step_wait(s->step, NULL, &why), why.text);
        ranks_meet(all);
        RANK_TRUE(rank != 0 || means_are(v, step), "not the mean");
        ranks_meet(all);
    }
    steps_close(s);
}

static void early_layers_arrive_before_late_posts(void **state)
{
    (void)state;
    run_ranks(3, 1, late_main);
}

/* Where a small exchange is quick, a large one begins behind the step's first small one; where it is not, the step is done as well. */
static void ahead_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    static const steps_layer layers[] = {{.elements = 100}, {.elements = 100000}};
    shown *v = arg;
    steps *s = &v->all[rank];
    const gw_step_config config = {.comm = comm, .lanes = 2};
    steps_open(s, &config, layers, 2);
    steps_agree(s);
    for (uint64_t step = 1; step <= 20; step++) {
        gw_layer_stats first = {0}, large = {0};
        const int quick = step % 2 == 0;
        s->step->quickest = quick ? 1e-9 : 1;
        steps_run(s, step);
        RANK_OK(gw_step_stats(s->step, 0, &first), "stats");
        RANK_OK(gw_step_stats(s->step, 1, &large), "stats");
        RANK_TRUE(!quick || large.begun >= first.arrived, "large bytes before all have come");
        ranks_meet(all);
        RANK_TRUE(rank != 0 || means_are(v, step), "not the mean");
        ranks_meet(all);
    }
    steps_close(s);
}

static void who_is_ahead_waits(void **state)
{
    (void)state;
    run_ranks(3, 1, ahead_main);
}

/* ---- every rank rounds alike ---- */

static void flushing_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    shown *v = arg;
    steps *s = &v->all[rank];
    const steps_layer layers[] = {{1000, NULL, NULL, 0}, {1000, "natural:bits=9", "sra", 0}};
    const gw_step_config config = {.comm = comm};
    steps_open(s, &config, layers, 2);
    steps_agree(s);
    for (uint32_t l = 0; l < 2; l++) {
        for (uint32_t i = 0; i < 1000; i++) { /* subnormal */
            ((float *)s->gradient[l])[i] = 1e-41F * (float)(i + rank);
        }
        steps_post(s, l);
    }
#if defined(__SSE2__)
    const unsigned before = _mm_getcsr();
    _mm_setcsr(rank == 1 ? before | 0xE040 : before); /* to zero, subnormals are zero */
    RANK_OK(gw_step_wait(s->step, NULL, NULL), "wait");
    RANK_TRUE((_mm_getcsr() & 0xFFC0) == (rank == 1 ? (before | 0xE040) & 0xFFC0 : before & 0xFFC0),
              "the caller's rounding is changed");
    _mm_setcsr(before);
#else
    RANK_OK(gw_step_wait(s->step, NULL, NULL), "wait");
#endif
    ranks_meet(all);
    RANK_TRUE(rank != 0 || replicas_equal(v), "replicas differ");
    RANK_TRUE(((float *)s->gradient[0])[500] > 0, "subnormals are lost");
    ranks_meet(all);
    steps_close(s);
}

static void a_rank_that_flushes_subnormals(void **state)
{
    (void)state;
    run_ranks(3, 1, flushing_main);
}

/* Every rank looks at its own piece of a sum as it is made, and at the others' when they have come. */
static void bad_anywhere_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    static const uint32_t places[] = {0, 999, 1000, 1500, 2000, 2999, UINT32_MAX};
    shown *v = arg;
    steps *s = &v->all[rank];
    const steps_layer layers[] = {{3000, NULL, NULL, 0}, {3000, NULL, NULL, 0}};
    const gw_step_config config = {.comm = comm};
    steps_open(s, &config, layers, 2);
    steps_agree(s);
    for (uint32_t k = 0; k < 2 * sizeof places / sizeof places[0]; k++) {
        gw_step_result result;
        const uint32_t at = places[k / 2];
        for (uint32_t l = 0; l < 2; l++) {
            steps_fill(s, l, 1);
        }
        if (at != UINT32_MAX && k % 2 == 0 && rank == k % 3) {
            ((float *)s->gradient[1])[at] = NAN;
        } else if (at != UINT32_MAX && k % 2 == 1) { /* finite, but not their sum */
            ((float *)s->gradient[1])[at] = 3e38F;
        }
        steps_post(s, 0);
        steps_post(s, 1);
        RANK_OK(gw_step_wait(s->step, &result, NULL), "wait");
        RANK_TRUE(result.non_finite == (at != UINT32_MAX) &&
                      (at == UINT32_MAX || result.first_non_finite == 1),
                  "a bad number is not seen, or one is that is not there");
    }
    steps_close(s);
}

static void a_bad_number_anywhere_in_a_sum_is_seen(void **state)
{
    (void)state;
    run_ranks(3, 1, bad_anywhere_main);
}

/* A mean that fp16 has no number for arrives as an infinity, and is said. */
static void overflow_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    shown *v = arg;
    steps *s = &v->all[rank];
    const steps_layer layers[] = {{10, NULL, NULL, 0}, {200, "natural:bits=9", "gather", GW_F16}};
    const gw_step_config config = {.comm = comm};
    gw_step_result result;
    steps_open(s, &config, layers, 2);
    steps_agree(s);
    steps_fill(s, 0, 1);
    for (uint32_t i = 0; i < 200; i++) {
        ((uint16_t *)s->gradient[1])[i] = 0x7B53; /* 60000: natural makes 32768 or 65536 of it */
    }
    steps_post(s, 0);
    steps_post(s, 1);
    RANK_OK(gw_step_wait(s->step, &result, NULL), "wait");
    RANK_TRUE(result.non_finite == 1 && result.first_non_finite == 1, "an overflow is not said");
    steps_close(s);
}

static void overflow_of_fp16_is_said(void **state)
{
    (void)state;
    run_ranks(1, 1, overflow_main);
}

/* Every rank draws numbers of its own, so that errors average out: natural makes 2 or 4 of 3, each rank for itself. */
static void draws_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    shown *v = arg;
    steps *s = &v->all[rank];
    enum { N = 40000 };
    const steps_layer layer = {N, "natural:bits=9", "gather", 0};
    const gw_step_config config = {.comm = comm};
    steps_open(s, &config, &layer, 1);
    steps_agree(s);
    float *x = s->gradient[0];
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < N; i++) {
        x[i] = 3;
    }
    steps_post(s, 0);
    RANK_OK(gw_step_wait(s->step, NULL, NULL), "wait");
    for (uint32_t i = 0; i < N; i++) {
        sum += (double)x[i] - 3;
        squares += ((double)x[i] - 3) * ((double)x[i] - 3);
    }
    /* of the mean of four: variance 1/4; one of 40000 such is 1/4 ± 5 · 0.0015 */
    RANK_TRUE(fabs(sum / N) < 5 * 0.5 / 200, "biased");
    RANK_TRUE(fabs(squares / N - 0.25) < 0.01, "ranks draw the same numbers");
    steps_close(s);
}

static void ranks_draw_their_own_numbers(void **state)
{
    (void)state;
    run_ranks(4, 1, draws_main);
}

/* ---- statistics ---- */

static const steps_layer counted[] = {
    {1003, NULL, NULL, 0},
    {5001, "natural:bits=8", "gather", 0},
    {5001, "dither:bits=4,bucket=64", "sra", 0},
    {5001, "natural:bits=8", "hier-sra", 0},
    {3000, "adacomp:bin=50", "sra", 0},
    {3000, "topk:density=0.05", "hier2-gather", 0},
    {17 * 60, "lowrank:rank=2", "hier-sum", 0},
    {2000, "sign:bucket=64", "star", 0},
    {0, "sign:bucket=64", "star", 0},
};
enum { COUNTED = sizeof counted / sizeof counted[0] };

/* Payloads of everyone to everyone. */
static uint64_t gather_bytes(const shown *v, uint32_t layer)
{
    const gw_params p = params_of(counted[layer].spec);
    return (v->ranks - 1) * (bound_of(&p, counted[layer].elements) + 8);
}

/* Pieces to their owners, the owner's piece to all. */
static uint64_t sra_bytes(const shown *v, uint32_t layer, uint32_t rank)
{
    const gw_params p = params_of(counted[layer].spec);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < v->ranks; i++) {
        const gw_range all = {0, counted[layer].elements};
        const uint64_t n = gw_range_cut(all, gw_codec_grain(&p), v->ranks, i).count;
        const uint64_t bytes = n != 0 ? bound_of(&p, n) + 8 : 0;
        sum += i != rank ? bytes : (v->ranks - 1) * bytes;
    }
    return sum;
}

static void check_layer_stats(const shown *v, uint32_t rank, uint32_t l, const gw_layer_stats *t,
                              uint64_t step)
{
    const uint64_t sent = t->bytes_sent[0] + t->bytes_sent[1];
    RANK_TRUE(t->step == step, "of another step");
    RANK_TRUE(0 <= t->posted && t->posted <= t->begun && t->begun <= t->arrived, "times");
    RANK_TRUE(t->encode_seconds >= 0 && t->decode_seconds >= 0, "times");
    RANK_TRUE(t->encode_seconds + t->decode_seconds <= t->arrived, "more time than there was");
    RANK_TRUE(!t->fused && t->non_finite == 0, "not by itself, or not finite");
    const uint64_t ring = 8 * counted[l].elements * (v->ranks - 1) / v->ranks;
    const uint64_t dense = t->dense_bytes_sent[0] + t->dense_bytes_sent[1];
    RANK_TRUE(v->ranks % 2 == 0 || dense == ring, "what a ring sends"); /* else test_bytes.c */
    RANK_TRUE(l != 1 || sent == gather_bytes(v, l), "gather's bytes");
    RANK_TRUE(l != 2 || sent == sra_bytes(v, l, rank), "sra's bytes");
    RANK_TRUE(l != 8 || sent == 0, "an empty layer's bytes");
    RANK_TRUE(counted[l].spec == NULL || counted[l].elements == 0 || t->payload_bytes > 0 ||
                  (l == 7 && rank != 0),
              "nothing was encoded");
}

static void stats_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    shown *v = arg;
    steps *s = &v->all[rank];
    const gw_step_config config = {.comm = comm,
                                   .ranks_per_node = v->ranks % 2 == 0 ? 2 : 1,
                                   .verify_every =
                                       GW_STEP_VERIFY_NEVER}; /* whose messages no layer counts */
    steps_open(s, &config, counted, COUNTED);
    gw_layer_stats none;
    RANK_OK(gw_step_stats(s->step, 0, &none), "stats");
    RANK_TRUE(none.step == UINT64_MAX, "stats of a step that was not");
    steps_agree(s);
    for (uint64_t step = 1; step <= 3; step++) {
        uint64_t before[2], after[2], told[2] = {0, 0};
        ranks_meet(all);
        ranks_sent(all, rank, before);
        steps_run(s, step);
        ranks_sent(all, rank, after);
        for (uint32_t l = 0; l < COUNTED; l++) {
            gw_layer_stats stats;
            RANK_OK(gw_step_stats(s->step, l, &stats), "stats");
            check_layer_stats(v, rank, l, &stats, step - 1);
            told[0] += stats.bytes_sent[GW_LINK_INTRA];
            told[1] += stats.bytes_sent[GW_LINK_INTER];
        }
        /* what the links saw is what the step says */
        RANK_TRUE(after[0] - before[0] == told[0], "bytes inside the node");
        RANK_TRUE(after[1] - before[1] == told[1], "bytes between nodes");
    }
    RANK_TRUE(gw_step_stats(s->step, COUNTED, &none) == GW_ERR_ARG, "no such layer");
    ranks_meet(all);
    steps_close(s);
}

static void statistics_are_true(void **state)
{
    (void)state;
    run_ranks(4, 2, stats_main);
    run_ranks(1, 1, stats_main);
}

/* ---- wrong calls ---- */

static int refused(gw_status status, gw_status want, const gw_why *why, const char *word)
{
    const int as_said = status == want && strstr(why->text, word) != NULL;
    if (!as_said) {
        print_error("%d (%s), not %d with '%s'\n", (int)status, why->text, (int)want, word);
    }
    return as_said;
}

static void before_agree(steps *s)
{
    gw_why why = {""};
    gw_route dense;
    uint32_t layer = 0;
    const uint64_t n = 3, huge[2] = {(uint64_t)1 << 40, (uint64_t)1 << 40};
    const gw_params topk = params_of("topk:density=0.1");
    const gw_tensor t = {s->gradient[0], 100, GW_F32};
    RANK_OK(gw_route_parse(&dense, "dense", NULL), "dense");
    RANK_TRUE(refused(gw_step_post(s->step, 0, &t, &why), GW_ERR_STATE, &why, "agree"), "post");
    RANK_TRUE(refused(gw_step_wait(s->step, NULL, &why), GW_ERR_STATE, &why, "agree"), "wait");
    RANK_TRUE(refused(gw_step_add(s->step, "layer.0", &n, 1, GW_F32, &layer, &why), GW_ERR_STATE,
                      &why, "layer.0"),
              "a name twice");
    RANK_TRUE(refused(gw_step_add(s->step, "h", huge, 2, GW_F32, &layer, &why), GW_ERR_RANGE, &why,
                      "'h'"),
              "too large");
    RANK_TRUE(
        refused(gw_step_add(s->step, "", &n, 1, GW_F32, &layer, &why), GW_ERR_RANGE, &why, "name"),
        "no name");
    RANK_TRUE(gw_step_add(s->step, "d", &n, 1, (gw_dtype)9, &layer, &why) == GW_ERR_ARG, "dtype");
    RANK_TRUE(refused(gw_step_plan(s->step, 9, NULL, &dense, &why), GW_ERR_ARG, &why, "no layer 9"),
              "plan of an unknown layer");
    gw_route sra;
    RANK_OK(gw_route_parse(&sra, "sra", NULL), "sra");
    RANK_TRUE(gw_step_plan(s->step, 0, NULL, &sra, &why) != GW_OK &&
                  strstr(why.text, "layer.0") != NULL,
              "a route that encodes, and no codec");
    RANK_OK(gw_route_parse(&sra, "sum", NULL), "sum");
    RANK_TRUE(gw_step_plan(s->step, 0, &topk, &sra, &why) != GW_OK &&
                  strstr(why.text, "layer.0") != NULL,
              "payloads of topk cannot be summed");
}

static void wrong_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    shown *v = arg;
    steps *s = &v->all[rank];
    gw_why why = {""};
    const steps_layer layers[] = {{100, NULL, NULL, 0}, {50, NULL, NULL, 0}};
    const gw_step_config config = {.comm = comm, .own_thread = rank == 0};
    const gw_step_config wrong[] = {{.comm = NULL},
                                    {.comm = comm, .lanes = GW_STEP_MAX_LANES + 1},
                                    {.comm = comm, .timeout = -1},
                                    {.comm = comm, .timeout = (double)NAN},
                                    {.comm = comm, .threads = GW_POOL_MAX_THREADS + 1}};
    gw_step *none = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        RANK_TRUE(gw_step_create(&wrong[i], &none, &why) < 0 && none == NULL, "a wrong config");
    }
    steps_open(s, &config, layers, 2);
    before_agree(s);
    steps_agree(s);
    const gw_tensor t = {s->gradient[0], 100, GW_F32}, less = {s->gradient[0], 99, GW_F32},
                    half = {s->gradient[0], 100, GW_F16}, nowhere = {NULL, 100, GW_F32};
    steps_fill(s, 0, 1);
    steps_fill(s, 1, 1);
    RANK_TRUE(refused(gw_step_post(s->step, 2, &t, &why), GW_ERR_ARG, &why, "no layer 2"), "who?");
    RANK_TRUE(refused(gw_step_post(s->step, 0, &less, &why), GW_ERR_ARG, &why, "99"), "short");
    RANK_TRUE(refused(gw_step_post(s->step, 0, &half, &why), GW_ERR_ARG, &why, "f16"), "dtype");
    RANK_TRUE(gw_step_post(s->step, 0, &nowhere, &why) == GW_ERR_ARG, "nowhere");
    steps_post(s, 0);
    RANK_TRUE(refused(gw_step_post(s->step, 0, &t, &why), GW_ERR_STATE, &why, "'layer.0'"),
              "posted twice");
    RANK_TRUE(refused(gw_step_wait(s->step, NULL, &why), GW_ERR_STATE, &why, "'layer.1'"),
              "not all are posted");
    RANK_TRUE(refused(gw_step_agree(s->step, &why), GW_ERR_STATE, &why, "under way"), "agree");
    uint32_t layer = 0;
    const uint64_t n = 3;
    gw_route dense;
    RANK_OK(gw_route_parse(&dense, "dense", NULL), "dense");
    RANK_TRUE(refused(gw_step_plan(s->step, 1, NULL, &dense, &why), GW_ERR_STATE, &why, "way"),
              "plan in mid-step");
    RANK_TRUE(refused(gw_step_add(s->step, "late", &n, 1, GW_F32, &layer, &why), GW_ERR_STATE, &why,
                      "under way"),
              "add in mid-step");
    steps_post(s, 1); /* none of this did any harm */
    RANK_OK(gw_step_wait(s->step, NULL, &why), why.text);
    steps_run(s, 2);
    steps_close(s);
}

static void wrong_calls_are_refused(void **state)
{
    (void)state;
    run_ranks(2, 1, wrong_main);
    run_ranks(1, 1, wrong_main);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mean_in_every_dtype),
        cmocka_unit_test(fused_is_what_it_is_alone),
        cmocka_unit_test(posts_in_any_order),
        cmocka_unit_test(early_layers_arrive_before_late_posts),
        cmocka_unit_test(who_is_ahead_waits),
        cmocka_unit_test(a_rank_that_flushes_subnormals),
        cmocka_unit_test(a_bad_number_anywhere_in_a_sum_is_seen),
        cmocka_unit_test(overflow_of_fp16_is_said),
        cmocka_unit_test(ranks_draw_their_own_numbers),
        cmocka_unit_test(statistics_are_true),
        cmocka_unit_test(wrong_calls_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
