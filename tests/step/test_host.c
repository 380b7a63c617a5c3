/* What a host framework asks of a step: another order of the wire, layers waited for one by one, a step that counts
 * as a whole or not at all, shards, residuals of another loss scale. */
#define _POSIX_C_SOURCE 200809L
#include "support/check.h"
#include "support/gen.h"
#include "support/steps.h"

#include <math.h>

typedef struct job {
    steps all[RANKS_MAX], others[RANKS_MAX];
    uint32_t ranks;
} job;

static void run(uint32_t n, ranks_main *main)
{
    const gw_threads_config config = {.ranks = n};
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->ranks = n;
    ranks_run(&config, main, j);
    free(j);
}

static void release(gw_feedback_blob blob)
{
    free((void *)(uintptr_t)blob.bytes);
}

static const steps_layer layers[] = {
    {5000, "natural:bits=8", "sra", 0},
    {3000, "topk:density=0.05", "gather", 0},
    {17 * 60, "lowrank:rank=2", "sum", 0},
    {200, NULL, NULL, 0},
    {300, NULL, NULL, GW_F16},
    {3000, "adacomp:bin=50", "gather", 0},
};
enum { LAYERS = sizeof layers / sizeof layers[0] };

static void same_or_die(const steps *a, const steps *b, const char *words)
{
    for (uint32_t l = 0; l < a->n; l++) {
        RANK_TRUE(memcmp(a->gradient[l], b->gradient[l], steps_bytes(a, l)) == 0, words);
    }
}

/* ---- order ---- */

static void order_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    job *j = arg;
    steps *s = &j->all[rank], *still = &j->others[rank];
    const gw_step_config config = {
        .comm = comm, .lanes = 2, .piece = 1024, .fuse_below = 1000, .own_thread = 1};
    gw_why why = {""};
    const uint32_t twice[LAYERS] = {0, 1, 2, 3, 3, 5}, beyond[LAYERS] = {0, 1, 2, 3, 4, 6};
    steps_open(s, &config, layers, LAYERS);
    steps_open(still, &config, layers, LAYERS);
    RANK_TRUE(gw_step_order(s->step, twice, LAYERS, &why) == GW_ERR_ARG, "a layer twice");
    RANK_TRUE(strstr(why.text, "twice") != NULL, why.text);
    RANK_TRUE(gw_step_order(s->step, beyond, LAYERS, &why) == GW_ERR_ARG, "a layer beyond");
    RANK_TRUE(gw_step_order(s->step, twice, 3, &why) == GW_ERR_ARG, "too few");
    steps_agree(s);
    steps_agree(still);
    gen g = {7};
    for (uint64_t step = 1; step <= 6; step++) {
        uint32_t order[LAYERS];
        for (uint32_t i = 0; i < LAYERS; i++) {
            const uint32_t at = gen_below(&g, i + 1);
            order[i] = order[at];
            order[at] = i;
        }
        RANK_OK(gw_step_order(s->step, order, LAYERS, &why), why.text);
        steps_agree(s);
        steps_run(s, step);
        steps_run(still, step);
        same_or_die(s, still, "the order of the wire changed a number");
    }
    const gw_feedback_blob a = steps_save(s), b = steps_save(still);
    RANK_TRUE(steps_same(a, b), "the order of the wire changed a residual");
    release(a);
    release(b);
    uint32_t mine[LAYERS] = {0, 1, 2, 3, 4, 5};
    mine[0] = rank == 1 ? 1 : 0;
    mine[1] = rank == 1 ? 0 : 1;
    RANK_OK(gw_step_order(s->step, mine, LAYERS, &why), why.text);
    RANK_TRUE(gw_step_agree(s->step, &why) == GW_ERR_DISAGREE, "an order of one rank's own");
    RANK_TRUE(strstr(why.text, "wire order") != NULL, why.text);
    steps_close(still);
    steps_close(s);
}

static void the_wire_in_another_order(void **state)
{
    (void)state;
    run(3, order_main);
}

/* ---- layers one by one ---- */

static void layers_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    job *j = arg;
    steps *s = &j->all[rank], *whole = &j->others[rank];
    const gw_step_config config = {.comm = comm, .lanes = 2, .own_thread = 1};
    gw_step_config without = config;
    without.own_thread = 0;
    gw_why why = {""};
    steps_open(s, &config, layers, LAYERS);
    steps_open(whole, &without, layers, LAYERS);
    steps_agree(s);
    steps_agree(whole);
    const uint32_t none = LAYERS;
    RANK_TRUE(gw_step_wait_layers(whole->step, &none, 0, &why) == GW_ERR_STATE, "without a thread");
    RANK_TRUE(gw_step_wait_layers(s->step, &none, 1, &why) == GW_ERR_ARG, "no such layer");
    for (uint64_t step = 1; step <= 3; step++) {
        steps_run(whole, step);
        for (uint32_t l = 0; l < LAYERS;
             l += 2) { /* two at a time: the others are not even posted */
            const uint32_t pair[2] = {l + 1, l};
            steps_fill(s, l, step);
            steps_post(s, l);
            steps_fill(s, l + 1, step);
            steps_post(s, l + 1);
            RANK_OK(gw_step_wait_layers(s->step, pair, 2, &why), why.text);
            for (uint32_t i = 0; i < 2; i++) {
                RANK_TRUE(memcmp(s->gradient[pair[i]], whole->gradient[pair[i]],
                                 steps_bytes(s, pair[i])) == 0,
                          "a layer that was waited for has not arrived");
            }
        }
        gw_step_result result;
        gw_layer_stats one;
        RANK_OK(gw_step_wait(s->step, &result, &why), why.text);
        uint64_t sent[2] = {0, 0}, dense[2] = {0, 0};
        for (uint32_t l = 0; l < LAYERS; l++) {
            RANK_OK(gw_step_stats(s->step, l, &one), "stats");
            for (int link = 0; link < 2; link++) {
                sent[link] += one.bytes_sent[link];
                dense[link] += one.dense_bytes_sent[link];
            }
        }
        RANK_TRUE(sent[0] + sent[1] != 0 && memcmp(result.bytes_sent, sent, sizeof sent) == 0 &&
                      memcmp(result.dense_bytes_sent, dense, sizeof dense) == 0,
                  "the sums of the result");
    }
    steps_close(whole);
    steps_close(s);
}

static void layers_are_waited_for(void **state)
{
    (void)state;
    run(3, layers_main);
}

/* ---- when ---- */

/* Every move of every exchange once: in its place on the route, within the step, in order. */
static void timeline_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    job *j = arg;
    steps *s = &j->all[rank];
    const gw_step_config config = {
        .comm = comm, .lanes = 2, .piece = 2048, .fuse_below = 1000, .own_thread = 1};
    gw_step_interval moves[64] = {{.layer = 0}}, one;
    size_t n = 0, first_n = 0;
    steps_open(s, &config, layers, LAYERS);
    steps_agree(s);
    for (uint64_t step = 1; step <= 2; step++) {
        steps_run(s, step);
        RANK_OK(gw_step_timeline(s->step, moves, 64, &n), "room enough");
        RANK_TRUE(step == 1 || n == first_n, "as many in every step");
        first_n = n;
        uint32_t seen[LAYERS] = {0};
        for (size_t i = 0; i < n; i++) {
            const gw_step_interval *m = &moves[i];
            const int goes_on = i > 0 && m->layer == m[-1].layer && m->piece == m[-1].piece;
            RANK_TRUE(m->layer < LAYERS && m->lane < 2, "a layer and a lane");
            RANK_TRUE(m->begun >= 0 && m->ended >= m->begun, "ended before it began");
            RANK_TRUE(!goes_on || m->begun >= m[-1].ended, "a move before the one before it");
            RANK_TRUE(goes_on ||
                          m->piece == (i > 0 && m->layer == m[-1].layer ? m[-1].piece + 1 : 0),
                      "pieces in order");
            seen[m->layer]++;
        }
        /* 5000 elements are two blocks of the codec, each along six steps; a gather has three; small layers of one dtype go as one */
        RANK_TRUE(seen[0] == 2 * 6 && seen[1] == 3 && seen[5] == 3, "moves of a route");
        RANK_TRUE(seen[3] == 1 && seen[4] == 1, "small layers of each dtype at their first");
    }
    RANK_TRUE(gw_step_timeline(s->step, &one, 1, &n) == GW_ERR_CAPACITY && n == first_n,
              "too small");
    RANK_TRUE(one.layer == moves[0].layer && one.ended == moves[0].ended, "the first of them");
    steps_close(s);
}

static void a_step_tells_when(void **state)
{
    (void)state;
    run(3, timeline_main);
}

/* ---- all or nothing, and the loss scale ---- */

static void skip_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    job *j = arg;
    steps *s = &j->all[rank];
    gw_why why = {""};
    for (int whole = 0; whole < 2; whole++) {
        const gw_step_config config = {.comm = comm, .all_or_nothing = whole};
        gw_step_result result;
        steps_open(s, &config, layers, LAYERS);
        steps_agree(s);
        steps_run(s, 1);
        const gw_feedback_blob before = steps_save(s);
        for (uint32_t l = 0; l < LAYERS; l++) {
            steps_fill(s, l, 2);
            if (l == 0 && rank == 1) {
                ((float *)s->gradient[l])[77] = (float)NAN;
            }
            steps_post(s, l);
        }
        RANK_OK(gw_step_wait(s->step, &result, &why), why.text);
        RANK_TRUE(result.non_finite == 1 && result.first_non_finite == 0, "what is not finite");
        const gw_feedback_blob after = steps_save(s);
        RANK_TRUE(steps_same(before, after) == whole, "whose residuals it happened to");
        release(before);
        release(after);
        steps_close(s);
    }
}

static void a_step_counts_as_a_whole(void **state)
{
    (void)state;
    run(2, skip_main);
}

static void scale_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    job *j = arg;
    steps *s = &j->all[rank], *scaled = &j->others[rank];
    const gw_step_config config = {.comm = comm};
    gw_why why = {""};
    gw_step_result result;
    steps_open(s, &config, layers, LAYERS);
    steps_open(scaled, &config, layers, LAYERS);
    steps_agree(s);
    steps_agree(scaled);
    steps_run(s, 1);
    steps_run(scaled, 1);
    RANK_TRUE(gw_feedback_scale(gw_step_feedback(s->step), 0, &why) == GW_ERR_RANGE, "times 0");
    RANK_TRUE(gw_feedback_scale(gw_step_feedback(s->step), (double)NAN, &why) == GW_ERR_RANGE,
              "times NaN");
    RANK_OK(gw_feedback_scale(gw_step_feedback(scaled->step), 8, &why), why.text);
    steps_run(s, 2);
    for (uint32_t l = 0; l < LAYERS; l++) {
        steps_fill(scaled, l, 2);
        for (uint64_t i = 0; layers[l].dtype == 0 && i < layers[l].elements; i++) {
            ((float *)scaled->gradient[l])[i] *= 8;
        }
        steps_post(scaled, l);
    }
    RANK_OK(gw_step_wait(scaled->step, &result, &why), why.text);
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint64_t i = 0; layers[l].dtype == 0 && i < layers[l].elements; i++) {
            RANK_TRUE(((float *)scaled->gradient[l])[i] == 8 * ((float *)s->gradient[l])[i],
                      "eight times the gradient is not eight times the mean");
        }
    }
    steps_close(scaled);
    steps_close(s);
}

static void residuals_follow_the_scale(void **state)
{
    (void)state;
    run(2, scale_main);
}

/* ---- shards ---- */

static const steps_layer sharded[] = {
    {3 * 4096, "natural:bits=8", "sra", 0},
    {3 * 4096 + 100, "cast:to=f32", "sra", 0},
    {1001, "topk:density=0.1", "sra", 0},
    {1001, NULL, "flat:reduce_scatter, flat:allgather", 0},
    {1, NULL, "flat:reduce_scatter, flat:allgather", 0},
    {0, "natural:bits=8", "sra", 0},
};
enum { SHARDED = sizeof sharded / sizeof sharded[0] };

static gw_range piece_of(uint32_t layer, uint32_t n, uint32_t rank)
{
    gw_params params;
    uint64_t grain = 1;
    if (sharded[layer].spec != NULL &&
        gw_params_parse(&params, sharded[layer].spec, NULL) == GW_OK) {
        grain = gw_codec_grain(&params) != 0 ? gw_codec_grain(&params) : 1;
    }
    return gw_range_cut((gw_range){0, sharded[layer].elements}, grain, n, rank);
}

/* The first half of sra leaves what its second half would encode: with a last hop that loses nothing (a route that
 * ends in a plain allgather) the whole route gives the same numbers. */
static void shard_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    job *j = arg;
    steps *s = &j->all[rank], *whole = &j->others[rank];
    const gw_step_config half = {.comm = comm, .sharded = 1, .own_thread = 1, .piece = 1024};
    const gw_step_config full = {.comm = comm, .piece = (uint64_t)1 << 40};
    gw_why why = {""};
    gw_step *refused = NULL;
    const gw_step_config fused = {.comm = comm, .sharded = 1, .fuse_below = 10};
    RANK_TRUE(gw_step_create(&fused, &refused, &why) == GW_ERR_ARG, "fused shards");
    steps_open(s, &half, sharded, SHARDED);
    steps_open(whole, &full, sharded, SHARDED);
    for (uint32_t l = 0; l < 3; l++) {
        steps_plan(whole, l, sharded[l].spec,
                   "encode@cpu, flat:alltoall, decode@cpu, flat:allgather");
    }
    steps_agree(s);
    steps_agree(whole);
    for (uint64_t step = 1; step <= 3; step++) {
        steps_run(s, step);
        steps_run(whole, step);
        for (uint32_t l = 0; l < SHARDED; l++) {
            const gw_range own = piece_of(l, j->ranks, rank);
            RANK_TRUE(memcmp((float *)s->gradient[l] + own.first,
                             (float *)whole->gradient[l] + own.first,
                             (size_t)own.count * sizeof(float)) == 0,
                      "a shard is not what the whole route has there");
        }
        gw_layer_stats a, b;
        RANK_OK(gw_step_stats(s->step, 3, &a), "stats");
        RANK_OK(gw_step_stats(whole->step, 3, &b), "stats");
        RANK_TRUE(j->ranks == 1 || a.bytes_sent[1] < b.bytes_sent[1], "half a route sends less");
    }
    steps_plan(s, 0, "natural:bits=8", "gather");
    RANK_TRUE(gw_step_agree(s->step, &why) == GW_ERR_UNSUPPORTED, "gather has no shards");
    RANK_TRUE(strstr(why.text, "layer.0") != NULL, why.text);
    steps_close(whole);
    steps_close(s);
}

static void shards_are_halves_of_routes(void **state)
{
    (void)state;
    run(3, shard_main);
    run(4, shard_main);
    run(1, shard_main);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_wire_in_another_order),   cmocka_unit_test(layers_are_waited_for),
        cmocka_unit_test(a_step_counts_as_a_whole),    cmocka_unit_test(residuals_follow_the_scale),
        cmocka_unit_test(shards_are_halves_of_routes), cmocka_unit_test(a_step_tells_when),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
