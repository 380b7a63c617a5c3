/* Defects of published code, each with a test that has its name: espresso_9_N is item N of section 9 of our notes on
 * Espresso's artifact, lgreco_N is item N of section 6 of those on L-GreCo and torch_cgx. docs/footguns.md tells
 * them. Gradients are small whole numbers where sums must be exact. */
#include "support/check.h"
#include "support/gen.h"
#include "support/steps.h"

#include <math.h>

enum { RANKS = 4 };

typedef struct job {
    steps ends[RANKS_MAX];
    uint32_t ranks, per_node;
    const gw_route *route;
    const char *spec, *name;
    uint64_t elements;
} job;

static void run(const job *given, ranks_main *main)
{
    job *j = malloc(sizeof *j);
    assert_non_null(j);
    *j = *given;
    j->ranks = j->ranks != 0 ? j->ranks : RANKS;
    j->per_node = j->per_node != 0 ? j->per_node : 2;
    const gw_threads_config world = {.ranks = j->ranks, .ranks_per_node = j->per_node};
    ranks_run(&world, main, j);
    free(j);
}

static void open_one(job *j, uint32_t rank, gw_comm *comm, uint64_t seed)
{
    const steps_layer layer = {j->elements, NULL, NULL, 0};
    const gw_step_config config = {.comm = comm, .ranks_per_node = j->per_node, .seed = seed};
    steps_open(&j->ends[rank], &config, &layer, 1);
}

static void post_and_wait(steps *s)
{
    gw_why why = {""};
    steps_post(s, 0);
    RANK_OK(gw_step_wait(s->step, NULL, &why), why.text);
}

static float *numbers(steps *s)
{
    return s->gradient[0];
}

static float whole_number(uint32_t rank, uint64_t i)
{
    return (float)((int)((i * 7 + rank * 13) % 41) - 20);
}

static void take_route(steps *s, const char *spec, const gw_route *route)
{
    gw_why why = {""};
    const gw_params params = params_of(spec);
    RANK_OK(gw_step_plan(s->step, 0, &params, route, &why), why.text);
    RANK_OK(gw_step_agree(s->step, &why), why.text);
}

static void every_route_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    job *j = arg;
    steps *s = &j->ends[rank];
    open_one(j, rank, comm, 1);
    static const uint8_t to_root[] = {GW_OP_GATHER, GW_OP_REDUCE, GW_OP_BROADCAST};
    for (const gw_route *r = j->route; r->n_steps != 0; r++) {
        int root = 0;
        for (uint32_t i = 0; i < r->n_steps; i++) {
            root |= memchr(to_root, r->step[i].op, sizeof to_root) != NULL;
        }
        if (j->name != NULL && !root) {
            continue;
        }
        take_route(s, "cast:to=f32", r);
        for (uint64_t i = 0; i < j->elements; i++) {
            numbers(s)[i] = whole_number(rank, i);
        }
        post_and_wait(s);
        for (uint64_t i = 0; i < j->elements; i++) {
            float sum = 0;
            for (uint32_t k = 0; k < j->ranks; k++) {
                sum += whole_number(k, i);
            }
            if (numbers(s)[i] != sum / (float)j->ranks) {
                char text[GW_ROUTE_TEXT];
                (void)gw_route_print(r, text, sizeof text);
                print_error("element %llu is %g, not %g\n", (unsigned long long)i,
                            (double)numbers(s)[i], (double)(sum / (float)j->ranks));
                RANK_TRUE(0, text);
            }
        }
    }
    steps_close(s);
}

static const gw_route *every_route(void)
{
    static gw_route routes[256];
    size_t n = 0, additive = 0;
    memset(routes, 0, sizeof routes);
    assert_int_equal(gw_route_list(GW_DEVICE_CPU, 0, routes, 255, &n, NULL), GW_OK);
    assert_int_equal(gw_route_list(GW_DEVICE_CPU, 1, routes + n, 255 - n, &additive, NULL), GW_OK);
    return routes;
}

/* "the root never aggregates: everybody receives the root's own gradient" */
static void espresso_9_10_the_root_aggregates(void **state)
{
    (void)state;
    run(&(job){.route = every_route(), .name = "root", .elements = 97}, every_route_main);
}

/* "some divide by all GPUs in the first step, some by machines at the end, some not at all" */
static void espresso_9_14_every_route_gives_the_mean(void **state)
{
    (void)state;
    run(&(job){.route = every_route(), .elements = 101}, every_route_main);
    run(&(job){.ranks = 6, .per_node = 3, .route = every_route(), .elements = 5}, every_route_main);
}

/* "colliding indices overwrite each other instead of adding up" */
static void collide_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    job *j = arg;
    steps *s = &j->ends[rank];
    open_one(j, rank, comm, 1);
    gw_route route;
    static const char *const names[] = {"gather", "sra", "star", "hier-gather", "hier2-gather"};
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        RANK_OK(gw_route_parse(&route, names[n], NULL), names[n]);
        take_route(s, j->spec, &route);
        for (uint64_t i = 0; i < j->elements; i++) { /* one in a hundred is large, the rest is 0 */
            numbers(s)[i] = i % 100 == 7 ? (float)(1 << rank) : 0;
        }
        post_and_wait(s);
        for (uint64_t i = 0; i < j->elements; i++) {
            RANK_TRUE(numbers(s)[i] == (i % 100 == 7 ? 15.0F / 4 : 0), names[n]);
        }
    }
    steps_close(s);
}

static void espresso_9_11_colliding_indices_add_up(void **state)
{
    (void)state;
    run(&(job){.spec = "topk:density=0.02", .elements = 2000}, collide_main);
}

/* "all-to-all mode picks random elements, not the largest; the indices are relative to each shard but the error memory
 * clears them as if absolute" */
static void largest_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    job *j = arg;
    steps *s = &j->ends[rank];
    enum { N = 4000, PIECE = N / RANKS, KEPT = PIECE / 10 };
    gw_route route;
    float given[N];
    open_one(j, rank, comm, 1);
    RANK_OK(gw_route_parse(&route, "sra", NULL), "sra");
    take_route(s, "topk:density=0.1", &route);
    for (uint32_t i = 0; i < N;
         i++) { /* only rank 1 has any; all different: 617 and 4001 share no factor */
        given[i] = (float)(1 + i * 617 % 4001);
        numbers(s)[i] = rank == 1 ? given[i] : 0;
    }
    post_and_wait(s);
    float sent[N];
    for (uint32_t i = 0; i < N; i++) {
        uint32_t larger = 0;
        for (uint32_t k = i / PIECE * PIECE; k < (i / PIECE + 1) * PIECE; k++) {
            larger += given[k] > given[i];
        }
        sent[i] = numbers(s)[i] * RANKS;
        RANK_TRUE(sent[i] == (larger < KEPT ? given[i] : 0), "not the largest of its piece");
    }
    RANK_OK(gw_route_parse(&route, "dense", NULL), "dense");
    take_route(s, "topk:density=0.1", &route);
    memset(numbers(s), 0, sizeof given);
    post_and_wait(s);
    for (uint32_t i = 0; i < N; i++) { /* what stayed is what was not sent */
        RANK_TRUE(numbers(s)[i] * RANKS == given[i] - sent[i], "residual of another element");
    }
    steps_close(s);
}

static void espresso_9_12_pieces_send_their_largest(void **state)
{
    (void)state;
    run(&(job){.elements = 4000}, largest_main);
}

/* "decays the residual instead of keeping it; the CPU path runs without any" */
static void keeps_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    job *j = arg;
    steps *s = &j->ends[rank];
    enum { N = 400, STEPS = 60 };
    float sum[N] = {0};
    gw_route route;
    open_one(j, rank, comm, 1);
    RANK_OK(gw_route_parse(&route, j->name, NULL), j->name);
    take_route(s, "topk:density=0.1", &route);
    for (uint32_t step = 0; step < STEPS;
         step++) { /* one gradient, then none: it comes out in parts */
        for (uint32_t i = 0; i < N; i++) {
            numbers(s)[i] = step == 0 && rank == 3 ? (float)(i + 1) : 0;
        }
        post_and_wait(s);
        for (uint32_t i = 0; i < N; i++) {
            sum[i] += numbers(s)[i] * RANKS;
        }
    }
    for (uint32_t i = 0; i < N; i++) {
        RANK_TRUE(sum[i] == (float)(i + 1), "some of it never came out");
    }
    steps_close(s);
}

static void espresso_9_13_residuals_are_kept_whole(void **state)
{
    (void)state;
    static const char *const names[] = {"gather", "sra", "star", "hier-sra", "hier2-sra"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        run(&(job){.name = names[i], .elements = 400}, keeps_main);
    }
}

/* "sizes not a multiple of k are sent uncompressed, cut unevenly; equal GPUs per machine assumed everywhere; an unknown
 * name falls back to fp32" */
static void any_size_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    job *j = arg;
    gw_why why = {""};
    gw_route route;
    const gw_params natural = params_of("dither:bits=4,bucket=64");
    const int equal = j->ranks % j->per_node == 0;
    for (uint64_t n = 1; n < 700; n = n * 3 + 1) {
        steps *s = &j->ends[rank];
        gw_layer_stats stats;
        ranks_meet(all);
        if (rank == 0) {
            j->elements = n;
        }
        ranks_meet(all);
        open_one(j, rank, comm, 1);
        RANK_OK(gw_route_parse(&route, equal ? "hier2-sra" : "sra", NULL), "route");
        take_route(s, "dither:bits=4,bucket=64", &route);
        steps_run(s, n);
        RANK_OK(gw_step_stats(s->step, 0, &stats), "stats");
        const uint64_t mine = gw_range_cut((gw_range){0, n}, 64, j->ranks, rank).count;
        RANK_TRUE(mine == 0 || (stats.payload_bytes > 0 && stats.payload_bytes < 8 * n + 16),
                  "not compressed");
        if (!equal) {
            RANK_OK(gw_route_parse(&route, "hier-sra", NULL), "route");
            RANK_OK(gw_step_plan(s->step, 0, &natural, &route, &why), why.text);
            RANK_TRUE(gw_step_agree(s->step, &why) == GW_ERR_UNSUPPORTED &&
                          strstr(why.text, "layer.0") != NULL,
                      "unequal nodes are not refused");
        }
        RANK_TRUE(gw_step_plan(s->step, 1, &natural, &route, &why) == GW_ERR_ARG,
                  "a plan for a layer that is not there");
        steps_close(s);
        ranks_meet(all);
    }
}

static void espresso_9_16_any_size_of_layer_and_node(void **state)
{
    (void)state;
    run(&(job){.ranks = 4, .per_node = 2}, any_size_main);
    run(&(job){.ranks = 5, .per_node = 2}, any_size_main);
}

/* "the root keeps its exact sum while the others get the quantised one" */
static void quantised_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->ends[rank];
    static const char *const names[] = {"star", "sra", "hier2-sra", "hier-sra"};
    open_one(j, rank, comm, 1);
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        gw_route route;
        RANK_OK(gw_route_parse(&route, names[n], NULL), names[n]);
        take_route(s, "natural:bits=9", &route);
        steps_fill(s, 0, n + 1);
        post_and_wait(s);
        for (uint64_t i = 0; i < j->elements; i++) { /* natural sends powers of two, or zero */
            int exponent = 0;
            const float half = frexpf(numbers(s)[i], &exponent);
            RANK_TRUE(half == 0 || fabsf(half) == 0.5F, "a sum that was never sent");
        }
        ranks_meet(all);
        RANK_TRUE(memcmp(numbers(s), numbers(&j->ends[0]), j->elements * sizeof(float)) == 0,
                  names[n]);
        ranks_meet(all);
    }
    steps_close(s);
}

static void lgreco_18_the_root_takes_what_it_sent(void **state)
{
    (void)state;
    run(&(job){.elements = 20000}, quantised_main);
}

/* "stops after the first over-long layer and never reduces the last group collected" */
static void groups_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    job *j = arg;
    steps *s = &j->ends[rank];
    const steps_layer layers[] = {{100, NULL, NULL, 0},    {350000, NULL, NULL, 0},
                                  {7, NULL, NULL, 0},      {300000, NULL, NULL, 0},
                                  {500000, NULL, NULL, 0}, {9, NULL, NULL, 0},
                                  {11, NULL, NULL, 0}};
    enum { N = sizeof layers / sizeof layers[0] };
    const gw_step_config config = {.comm = comm, .fuse_below = 400000};
    steps_open(s, &config, layers, N);
    steps_agree(s);
    for (uint32_t l = 0; l < N; l++) {
        for (uint64_t i = 0; i < layers[l].elements; i++) {
            ((float *)s->gradient[l])[i] = (float)(rank + 1);
        }
        steps_post(s, l);
    }
    RANK_OK(gw_step_wait(s->step, NULL, NULL), "wait");
    for (uint32_t l = 0; l < N; l++) {
        for (uint64_t i = 0; i < layers[l].elements; i++) {
            RANK_TRUE(((float *)s->gradient[l])[i] == 2.5F, "a group was not summed");
        }
    }
    steps_close(s);
}

static void lgreco_19_the_last_group_is_summed(void **state)
{
    (void)state;
    run(&(job){0}, groups_main);
}

/* "reserves no memory for the random states it then writes; seed is the wall clock": the sanitizers see the first */
static void seed_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    job *j = arg;
    steps *s = &j->ends[rank];
    float first[3000];
    for (uint64_t trial = 0; trial < 3; trial++) {
        gw_route route;
        open_one(j, rank, comm, trial == 2 ? 6 : 5);
        RANK_OK(gw_route_parse(&route, "hier2-sra", NULL), "route");
        take_route(s, "dither:bits=2,bucket=64", &route);
        steps_fill(s, 0, 1);
        post_and_wait(s);
        if (trial == 0) {
            memcpy(first, numbers(s), sizeof first);
        }
        int same = 1;
        for (uint32_t i = 0; i < 3000; i++) {
            same &= first[i] == numbers(s)[i];
        }
        RANK_TRUE(same == (trial != 2), "the seed, and nothing else, decides");
        steps_close(s);
        ranks_meet(all);
    }
}

static void lgreco_20_the_seed_alone_decides(void **state)
{
    (void)state;
    run(&(job){.elements = 3000}, seed_main);
}

/* "result code uninitialised with one process per machine; int (32-bit) element counts throughout" */
static void lgreco_21_one_rank_a_node_and_long_layers(void **state)
{
    (void)state;
    run(&(job){.ranks = 3, .per_node = 1, .route = every_route(), .elements = 40},
        every_route_main);
    gw_exchange *x = NULL;
    gw_why why = {""};
    const uint64_t n = ((uint64_t)5 << 32) + 3;
    gw_exchange_config config = {
        .params = params_of("natural:bits=8"), .ranks = 4, .elements = n, .rank = 1};
    CHECK(gw_route_parse(&config.route, "sra", &why) == GW_OK, "%s", why.text);
    CHECK(gw_exchange_create(&config, &x, &why) == GW_OK, "%s", why.text);
    const gw_program *p = gw_exchange_program(x);
    assert_true(p->sent[GW_LINK_INTER] > n && p->sent[GW_LINK_INTER] < 2 * n);
    assert_true(gw_exchange_workspace(x) > n); /* the payloads, and those of a quarter from all */
    gw_exchange_destroy(x, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(espresso_9_10_the_root_aggregates),
        cmocka_unit_test(espresso_9_11_colliding_indices_add_up),
        cmocka_unit_test(espresso_9_12_pieces_send_their_largest),
        cmocka_unit_test(espresso_9_13_residuals_are_kept_whole),
        cmocka_unit_test(espresso_9_14_every_route_gives_the_mean),
        cmocka_unit_test(espresso_9_16_any_size_of_layer_and_node),
        cmocka_unit_test(lgreco_18_the_root_takes_what_it_sent),
        cmocka_unit_test(lgreco_19_the_last_group_is_summed),
        cmocka_unit_test(lgreco_20_the_seed_alone_decides),
        cmocka_unit_test(lgreco_21_one_rank_a_node_and_long_layers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
