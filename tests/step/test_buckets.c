/* Buckets: layers that are sent as one tensor. Numbers are those of one layer that has all of theirs; residuals belong to each
 * layer, through new plans and restarts; what cannot be is refused by name. */
#include "support/check.h"
#include "support/gen.h"
#include "support/steps.h"

#include <gradwire/step_adapt.h>
#include <gradwire/step_auto.h>

#include <math.h>

/* Layers 1, 3 and 2 are sent as one, in this order, behind layer 4; 0 and 5 are by themselves. */
enum { N = 6, BUCKET = 3, LAST = 5 };
static const uint32_t wire[N] = {4, 1, 3, 2, 0, 5};
static const uint32_t together[N] = {0, 2, 2, 2, 0, 0};
static const uint32_t members[BUCKET] = {1, 3, 2};

typedef struct pair {
    steps ends[RANKS_MAX], others[RANKS_MAX];
    const char *spec, *route;
    gw_dtype dtype;
    uint64_t piece;
} pair;

static void set_buckets(steps *s, const uint32_t *numbers)
{
    gw_why why = {""};
    RANK_OK(gw_step_buckets(s->step, numbers, s->n, &why), why.text);
}

static void set_order(steps *s, const uint32_t *order)
{
    gw_why why = {""};
    RANK_OK(gw_step_order(s->step, order, s->n, &why), why.text);
}

static void open_bucketed(steps *s, const gw_step_config *config, const pair *p)
{
    const steps_layer layers[N] = {
        {300, "natural:bits=8", "sra", 0},    {700, p->spec, p->route, 0},
        {17 * 40, p->spec, p->route, 0},      {1300, p->spec, p->route, p->dtype},
        {2000, "topk:density=0.1", "sra", 0}, {50, NULL, NULL, 0}};
    steps_open(s, config, layers, N);
    set_order(s, wire);
    set_buckets(s, together);
}

/* ---- what one layer would be ---- */

/* The same with one layer for the bucket, numbered as its first member. */
static void open_whole(steps *s, const gw_step_config *config, const pair *p)
{
    const steps_layer layers[4] = {{300, "natural:bits=8", "sra", 0},
                                   {700 + 17 * 40 + 1300, p->spec, p->route, 0},
                                   {2000, "topk:density=0.1", "sra", 0},
                                   {50, NULL, NULL, 0}};
    steps_open(s, config, layers, 4);
}

static void run_whole(steps *s, const steps *of)
{
    static const uint32_t same[4] = {0, 1, 4, 5};
    gw_why why = {""};
    gw_step_result result;
    for (uint32_t i = 0; i < 4; i++) {
        if (i != 1) {
            memcpy(s->gradient[i], of->gradient[same[i]], steps_bytes(s, i));
        }
    }
    uint8_t *to = s->gradient[1];
    for (uint32_t i = 0; i < BUCKET; i++) {
        memcpy(to, of->gradient[members[i]], steps_bytes(of, members[i]));
        to += steps_bytes(of, members[i]);
    }
    for (uint32_t i = 0; i < 4; i++) {
        steps_post(s, i);
    }
    RANK_OK(gw_step_wait(s->step, &result, &why), why.text);
}

static void compare_stats(steps *s, steps *whole)
{
    gw_layer_stats one, all;
    RANK_OK(gw_step_stats(whole->step, 1, &all), "stats");
    for (uint32_t i = 0; i < BUCKET; i++) {
        RANK_OK(gw_step_stats(s->step, members[i], &one), "stats");
        RANK_TRUE(one.fused == 1, "a layer of a bucket is not said to be fused");
        RANK_TRUE(one.payload_bytes == (i == 0 ? all.payload_bytes : 0) &&
                      one.bytes_sent[1] == (i == 0 ? all.bytes_sent[1] : 0),
                  "other bytes than one layer sends, or not at the first");
    }
}

/* The order of the wire, and a bucket's exchange under its first member's name. */
static void check_order(steps *s)
{
    static const uint32_t expected[] = {4, 1, 0, 5};
    gw_step_interval list[256];
    size_t n = 0, seen = 0;
    RANK_OK(gw_step_timeline(s->step, list, 256, &n), "timeline");
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || list[i].layer != list[i - 1].layer) {
            RANK_TRUE(seen < 4 && list[i].layer == expected[seen], "another order on the wire");
            seen++;
        }
    }
    RANK_TRUE(seen == 4, "the timeline leaves layers out");
}

static void whole_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    pair *p = arg;
    steps *s = &p->ends[rank], *whole = &p->others[rank];
    gw_comm *second = NULL;
    gw_why why = {""};
    RANK_OK(comm->table->split(comm, 0, rank, &second, &why), why.text);
    gw_step_config config = {
        .comm = comm, .seed = 9, .lanes = 2, .piece = p->piece, .own_thread = 1};
    open_bucketed(s, &config, p);
    config.comm = second;
    config.own_thread = 0;
    open_whole(whole, &config, p);
    steps_agree(s);
    steps_agree(whole);
    for (uint64_t step = 1; step <= 4; step++) {
        gw_step_result result;
        for (uint32_t i = 0; i < N; i++) {
            steps_fill(s, i, step);
        }
        run_whole(whole, s);
        for (uint32_t i = 0; i < N; i++) { /* another order on each rank */
            steps_post(s, (i + rank) % N);
        }
        RANK_OK(gw_step_wait(s->step, &result, &why), why.text);
        RANK_TRUE(result.non_finite == 0, "not finite");
        const uint8_t *from = whole->gradient[1];
        for (uint32_t i = 0; i < BUCKET; i++) {
            const size_t bytes = steps_bytes(s, members[i]);
            RANK_TRUE(memcmp(s->gradient[members[i]], from, bytes) == 0,
                      "a bucket has other means than one layer");
            from += bytes;
        }
        compare_stats(s, whole);
        check_order(s);
        steps_equal_or_die(all, p->ends, rank);
        if (step == 2) { /* nothing changes: residuals stay where they are */
            steps_agree(s);
        }
    }
    RANK_OK(gw_step_verify(s->step, &why), why.text);
    steps_close(s);
    steps_close(whole);
    second->table->close(second);
}

static void a_bucket_is_one_layer(void **state)
{
    (void)state;
    static const char *const ways[][2] = {{NULL, NULL},
                                          {"topk:density=0.05", "gather"},
                                          {"topk:density=0.05", "sra"},
                                          {"natural:bits=8", "sra"},
                                          {"sign:bucket=64", "gather"},
                                          {"adacomp:bin=50", "gather"},
                                          {"lowrank:rank=2", "sum"}};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        gw_params params;
        if (ways[i][0] != NULL && gw_params_parse(&params, ways[i][0], NULL) != GW_OK) {
            continue; /* a build without it */
        }
        for (uint32_t n = 1; n <= 3; n++) {
            pair *p = calloc(1, sizeof *p);
            assert_non_null(p);
            p->spec = ways[i][0];
            p->route = ways[i][1];
            p->piece = n == 2 ? 640 : 0; /* cut inside and across layers */
            ranks_run(&(gw_threads_config){.ranks = n}, whole_main, p);
            free(p);
        }
    }
}

/* ---- members that do not follow each other ---- */

static void apart_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    static const uint32_t apart[N] = {0, 2, 2, 2, 5, 5};
    static const uint32_t order[N] = {1, 4, 2, 0, 3, 5};
    static const uint32_t expected[] = {0, 1, 4}; /* where the last of a bucket would be */
    pair *p = arg;
    steps *s = &p->ends[rank];
    gw_step_interval list[256];
    size_t n = 0, seen = 0;
    const gw_step_config config = {.comm = comm, .lanes = 2};
    open_bucketed(s, &config, p);
    steps_plan(s, 4, NULL, NULL);
    set_order(s, order);
    set_buckets(s, apart);
    steps_agree(s);
    steps_run(s, 1);
    steps_equal_or_die(all, p->ends, rank);
    RANK_OK(gw_step_timeline(s->step, list, 256, &n), "timeline");
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || list[i].layer != list[i - 1].layer) {
            RANK_TRUE(seen < 3 && list[i].layer == expected[seen], "another order on the wire");
            seen++;
        }
    }
    RANK_TRUE(seen == 3, "the timeline leaves layers out");
    steps_close(s);
}

static void a_bucket_stands_where_its_last_layer_would(void **state)
{
    (void)state;
    pair *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->spec = "sign:bucket=64";
    p->route = "gather";
    ranks_run(&(gw_threads_config){.ranks = 2}, apart_main, p);
    free(p);
}

/* ---- nothing is lost ---- */

typedef struct sums {
    pair p;
    double put[RANKS_MAX][N][2000], got[N][2000];
} sums;

static float value_of(const steps *s, uint32_t layer, uint64_t i)
{
    return ((const float *)s->gradient[layer])[i];
}

/* Adds up what goes in, and at rank 0 what comes out. `step` 0: zeros. */
static void run_summed(sums *v, steps *s, uint64_t step, ranks *all)
{
    gw_why why = {""};
    gw_step_result result;
    for (uint32_t l = 0; l < N; l++) {
        steps_fill(s, l, step);
        for (uint64_t i = 0; i < s->layers[l].elements; i++) {
            v->put[s->rank][l][i] += (double)value_of(s, l, i);
        }
        steps_post(s, l);
    }
    RANK_OK(gw_step_wait(s->step, &result, &why), why.text);
    for (uint32_t l = 0; l < N && s->rank == 0; l++) {
        for (uint64_t i = 0; i < s->layers[l].elements; i++) {
            v->got[l][i] += (double)value_of(s, l, i);
        }
    }
    ranks_meet(all);
}

static void check_sums(const sums *v, const steps *s, uint32_t n)
{
    for (uint32_t l = 0; l < N && s->rank == 0; l++) {
        for (uint64_t i = 0; i < s->layers[l].elements; i++) {
            double put = 0;
            for (uint32_t r = 0; r < n; r++) {
                put += v->put[r][l][i] / n;
            }
            if (fabs(put - v->got[l][i]) > 1e-4) {
                print_error("layer %u, element %llu: %.6f went in, %.6f came out\n", l,
                            (unsigned long long)i, put, v->got[l][i]);
                RANK_TRUE(0, "something is lost");
            }
        }
    }
}

static void plan_all(steps *s, const char *spec, const char *route)
{
    for (uint32_t l = 0; l < N; l++) {
        steps_plan(s, l, spec, route);
    }
}

static void sums_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    static const uint32_t none[N] = {0};
    static const uint32_t others[N] = {1, 3, 2, 2, 1, 3};
    static const uint32_t straight[N] = {4, 0, 2, 3, 1, 5};
    sums *v = arg;
    steps *s = &v->p.ends[rank];
    const gw_step_config config = {.comm = comm, .lanes = 2, .piece = 640};
    open_bucketed(s, &config, &v->p);
    plan_all(s, v->p.spec, v->p.route);
    steps_agree(s);
    run_summed(v, s, 1, all);
    run_summed(v, s, 2, all);
    set_buckets(s, none); /* each by itself */
    steps_agree(s);
    run_summed(v, s, 3, all);
    set_order(s, straight); /* and in other buckets */
    set_buckets(s, others);
    steps_agree(s);
    run_summed(v, s, 4, all);
    plan_all(s, "topk:density=0.3", "gather"); /* the same, by another codec */
    steps_agree(s);
    run_summed(v, s, 5, all);
    set_order(s, wire); /* back to the first */
    set_buckets(s, together);
    plan_all(s, v->p.spec, v->p.route);
    steps_agree(s);
    run_summed(v, s, 6, all);
    plan_all(s, NULL, NULL); /* buckets that are not coded bring what is left */
    steps_agree(s);
    run_summed(v, s, 0, all);
    run_summed(v, s, 0, all);
    check_sums(v, s, comm->ranks);
    ranks_meet(all);
    steps_close(s);
}

static void nothing_is_lost_over_plans(void **state)
{
    (void)state;
    static const char *const ways[][2] = {{"topk:density=0.05", "sra"},
                                          {"topk:density=0.05", "gather"},
                                          {"sign:bucket=64", "gather"},
                                          {"adacomp:bin=50", "gather"},
                                          {"lowrank:rank=1", "sum"}};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        gw_params params;
        sums *v = calloc(1, sizeof *v);
        assert_non_null(v);
        v->p.spec = ways[i][0];
        v->p.route = ways[i][1];
        if (gw_params_parse(&params, v->p.spec, NULL) == GW_OK) {
            ranks_run(&(gw_threads_config){.ranks = 3}, sums_main, v);
        }
        free(v);
    }
}

/* ---- restarts ---- */

static void load(steps *s, gw_feedback_blob blob, uint32_t n)
{
    gw_why why = {""};
    gw_feedback_told told;
    RANK_OK(gw_feedback_load(gw_step_feedback(s->step), n, &blob, 1, &told, &why), why.text);
}

static void restart_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    static const uint32_t none[N] = {0};
    sums *v = arg;
    steps *s = &v->p.ends[rank], *again = &v->p.others[rank];
    gw_why why = {""};
    gw_comm *second = NULL, *third = NULL;
    RANK_OK(comm->table->split(comm, 0, rank, &second, &why), why.text);
    RANK_OK(comm->table->split(comm, 0, rank, &third, &why), why.text);
    gw_step_config config = {.comm = comm, .lanes = 2, .piece = 640};
    open_bucketed(s, &config, &v->p);
    plan_all(s, v->p.spec, v->p.route); /* with feedback, all of them */
    steps_agree(s);
    run_summed(v, s, 1, all);
    run_summed(v, s, 2, all);
    gw_feedback_blob saved = steps_save(s);
    /* with the same plan it goes on bit for bit */
    config.comm = second;
    open_bucketed(again, &config, &v->p);
    plan_all(again, v->p.spec, v->p.route);
    gw_step_set_number(again->step, gw_step_number(s->step));
    steps_agree(again);
    load(again, saved, comm->ranks);
    gw_feedback_blob loaded = steps_save(again);
    RANK_TRUE(steps_same(saved, loaded), "what is loaded is not what was saved");
    steps_run(s, 3);
    steps_run(again, 3);
    for (uint32_t l = 0; l < N; l++) {
        RANK_TRUE(memcmp(s->gradient[l], again->gradient[l], steps_bytes(s, l)) == 0,
                  "a restart changed a number");
    }
    steps_close(again);
    /* without the buckets nothing is lost */
    config.comm = third;
    open_bucketed(again, &config, &v->p);
    set_buckets(again, none);
    plan_all(again, NULL, NULL);
    gw_step_set_number(again->step, 2);
    steps_agree(again);
    load(again, saved, comm->ranks);
    run_summed(v, again, 0, all);
    check_sums(v, again, comm->ranks);
    ranks_meet(all);
    steps_close(again);
    steps_close(s);
    free((void *)(uintptr_t)saved.bytes);
    free((void *)(uintptr_t)loaded.bytes);
    second->table->close(second);
    third->table->close(third);
}

static void a_restart_goes_on(void **state)
{
    (void)state;
    static const char *const ways[][2] = {
        {"topk:density=0.05", "sra"}, {"adacomp:bin=50", "gather"}, {"lowrank:rank=2", "sum"}};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        gw_params params;
        sums *v = calloc(1, sizeof *v);
        assert_non_null(v);
        v->p.spec = ways[i][0];
        v->p.route = ways[i][1];
        if (gw_params_parse(&params, v->p.spec, NULL) == GW_OK) {
            ranks_run(&(gw_threads_config){.ranks = 2}, restart_main, v);
        }
        free(v);
    }
}

/* ---- what is not finite ---- */

static void bad_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    pair *p = arg;
    steps *s = &p->ends[rank];
    gw_why why = {""};
    gw_step_result result;
    const gw_step_config config = {.comm = comm, .lanes = 2, .piece = 640};
    open_bucketed(s, &config, p);
    steps_plan(s, 4, NULL, NULL); /* so that the bucket alone has residuals */
    steps_agree(s);
    steps_run(s, 1);
    const gw_feedback_blob before = steps_save(s);
    for (uint32_t l = 0; l < N; l++) {
        steps_fill(s, l, 2);
        if (l == 3 && rank == 1) { /* an infinity */
            ((uint16_t *)s->gradient[3])[1200] = 0x7C00;
        }
        steps_post(s, l);
    }
    RANK_OK(gw_step_wait(s->step, &result, &why), why.text);
    const int coded = p->spec != NULL;
    RANK_TRUE(result.non_finite == (coded ? BUCKET : 1) &&
                  result.first_non_finite == (coded ? 1 : 3),
              "other layers are bad");
    const gw_feedback_blob after = steps_save(s);
    RANK_TRUE(steps_same(before, after), "a residual has changed");
    steps_run(s, 3);
    steps_equal_or_die(all, p->ends, rank);
    free((void *)(uintptr_t)before.bytes);
    free((void *)(uintptr_t)after.bytes);
    steps_close(s);
}

static void what_is_coded_together_is_bad_together(void **state)
{
    (void)state;
    pair *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->dtype = GW_F16;
    ranks_run(&(gw_threads_config){.ranks = 2}, bad_main, p);
    p->spec = "topk:density=0.05";
    p->route = "gather";
    ranks_run(&(gw_threads_config){.ranks = 2}, bad_main, p);
    free(p);
}

/* ---- refusals ---- */

static void refuse(steps *s, gw_status expected, const char *words)
{
    gw_why why = {""};
    const gw_status status = gw_step_agree(s->step, &why);
    if (status != expected || strstr(why.text, words) == NULL) {
        print_error("%s: %s\n", gw_status_string(status), why.text);
        RANK_TRUE(0, "not refused, or in other words");
    }
}

static void refused_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    static const uint32_t one[N] = {0, 1, 1, 1, 0, 0};
    static const uint32_t large[N] = {0, 7, 7, 0, 0, 0};
    (void)all;
    pair *p = arg;
    steps *s = &p->ends[rank];
    gw_why why = {""};
    const gw_step_config config = {.comm = comm, .timeout = 60};
    open_bucketed(s, &config, p);
    RANK_TRUE(gw_step_buckets(s->step, together, N - 1, &why) == GW_ERR_ARG &&
                  strstr(why.text, "buckets of 5 layers; there are 6") != NULL,
              why.text);
    RANK_TRUE(gw_step_buckets(s->step, NULL, N, &why) == GW_ERR_ARG, why.text);
    RANK_TRUE(gw_step_buckets(s->step, large, N, &why) == GW_ERR_RANGE &&
                  strstr(why.text, "'layer.1'") != NULL,
              why.text);
    set_buckets(s, rank == 1 ? one : together);
    refuse(s, GW_ERR_DISAGREE, "buckets");
    set_buckets(s, together);
    steps_plan(s, 2, "natural:bits=9", "sra");
    refuse(s, GW_ERR_ARG, "layers 'layer.1' and 'layer.2' of bucket 2 have other codecs");
    steps_plan(s, 2, "natural:bits=8", "gather");
    refuse(s, GW_ERR_ARG, "have other routes");
    steps_plan(s, 2, "natural:bits=8", "sra");
    steps_agree(s); /* it may be put right */
    steps_run(s, 1);
    RANK_TRUE(gw_step_auto_begin(s->step, &(gw_step_auto_config){.period = 0}, &why) ==
                      GW_ERR_UNSUPPORTED &&
                  strstr(why.text, "is in a bucket") != NULL,
              why.text);
    steps_plan(s, 4, "dither:bits=4", "sra");
    steps_plan(s, 0, "dither:bits=4", "sra");
    steps_agree(s);
    RANK_OK(gw_step_adapt_begin_spec(s->step, "adapt:period=8/dither:bits=4", &why), why.text);
    RANK_TRUE(gw_step_buckets(s->step, together, N, &why) == GW_ERR_UNSUPPORTED &&
                  strstr(why.text, "chosen during training") != NULL,
              why.text);
    steps_run(s, 2);
    steps_close(s);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    pair *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->spec = "natural:bits=8";
    p->route = "sra";
    ranks_run(&(gw_threads_config){.ranks = 2}, refused_main, p);
    free(p);
}

/* Levels of other layers are chosen beside a bucket. */
static void adapt_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    pair *p = arg;
    steps *s = &p->ends[rank];
    gw_why why = {""};
    gw_step_decision decision;
    uint64_t n = 0;
    const gw_step_config config = {.comm = comm, .timeout = 60, .lanes = 2};
    open_bucketed(s, &config, p);
    steps_plan(s, 0, "dither:bits=4", "sra");
    steps_plan(s, 4, "dither:bits=4", "sra");
    steps_agree(s);
    RANK_OK(gw_step_adapt_begin_spec(s->step, "adapt:period=8/dither:bits=4", &why), why.text);
    for (uint64_t step = 1; step < 24; step++) {
        steps_run(s, step);
        steps_equal_or_die(all, p->ends, rank);
    }
    RANK_OK(gw_step_adapt_last(s->step, &n, &decision), "last");
    RANK_TRUE(n != 0, "nothing was chosen");
    for (uint32_t i = 0; i < BUCKET; i++) {
        gw_params params;
        gw_route route;
        char text[64];
        RANK_OK(gw_step_planned(s->step, members[i], &params, &route), "planned");
        RANK_OK(gw_params_print(&params, text, sizeof text), "print");
        RANK_TRUE(strncmp(text, "topk:density=0.05", 17) == 0, "a bucket's level was changed");
    }
    steps_close(s);
}

static void levels_are_chosen_beside_it(void **state)
{
    (void)state;
    pair *p = calloc(1, sizeof *p);
    assert_non_null(p);
    p->spec = "topk:density=0.05";
    p->route = "gather";
    ranks_run(&(gw_threads_config){.ranks = 2}, adapt_main, p);
    free(p);
}

static void sharded_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    (void)arg;
    (void)rank;
    static const steps_layer layers[2] = {{300, "natural:bits=8", "sra", 0},
                                          {300, "natural:bits=8", "sra", 0}};
    static const uint32_t both[2] = {1, 1};
    gw_why why = {""};
    steps s;
    const gw_step_config config = {.comm = comm, .sharded = 1};
    steps_open(&s, &config, layers, 2);
    RANK_TRUE(gw_step_buckets(s.step, both, 2, &why) == GW_ERR_UNSUPPORTED &&
                  strstr(why.text, "sharded") != NULL,
              why.text);
    steps_close(&s);
}

static void shards_have_none(void **state)
{
    (void)state;
    ranks_run(&(gw_threads_config){.ranks = 2}, sharded_main, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bucket_is_one_layer),
        cmocka_unit_test(a_bucket_stands_where_its_last_layer_would),
        cmocka_unit_test(nothing_is_lost_over_plans),
        cmocka_unit_test(a_restart_goes_on),
        cmocka_unit_test(what_is_coded_together_is_bad_together),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(levels_are_chosen_beside_it),
        cmocka_unit_test(shards_have_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
