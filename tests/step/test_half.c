/* Uncompressed fp16 and bf16 layers are sent in 16 bits: what that costs on the links, which bits arrive, what overflows, and
 * that residuals which are added to such a gradient lose nothing to its rounding. */
#include "support/check.h"
#include "support/gen.h"
#include "support/steps.h"

#include "base/convert.h"

#include <math.h>

static const gw_dtype halves[] = {GW_F16, GW_BF16};

typedef struct shown {
    steps all[RANKS_MAX];
    uint32_t ranks, per_node;
    gw_dtype dtype;
    const char *route;
} shown;

static void run_ranks(uint32_t n, uint32_t per_node, gw_dtype dtype, const char *route,
                      ranks_main *main)
{
    const gw_threads_config config = {.ranks = n, .ranks_per_node = per_node};
    shown *v = calloc(1, sizeof *v);
    assert_non_null(v);
    v->ranks = n;
    v->per_node = per_node;
    v->dtype = dtype;
    v->route = route;
    ranks_run(&config, main, v);
    free(v);
}

/* What a rank of any number posts. */
static void posted_by(const steps *s, uint32_t rank, uint32_t layer, uint64_t step, float *wide)
{
    steps one = {.n = s->n, .rank = rank};
    const uint64_t n = s->layers[layer].elements;
    memcpy(one.layers, s->layers, sizeof one.layers);
    one.gradient[layer] = calloc(n + 1, sizeof(float));
    RANK_TRUE(one.gradient[layer] != NULL, "no memory");
    steps_fill(&one, layer, step);
    gw_convert_scalar.widen(s->layers[layer].dtype, one.gradient[layer], wide, n);
    free(one.gradient[layer]);
}

/* The fp32 sum in rank order, divided, rounded once: the same bits as in this rank's gradient? */
static int is_the_mean(const steps *s, uint32_t layer, uint64_t step, uint32_t n_ranks)
{
    const size_t n = s->layers[layer].elements, bytes = steps_bytes(s, layer);
    float *sum = calloc(n + 1, sizeof *sum), *one = calloc(n + 1, sizeof *one);
    void *want = calloc(n + 1, sizeof *sum);
    posted_by(s, 0, layer, step, sum);
    for (uint32_t r = 1; r < n_ranks; r++) {
        posted_by(s, r, layer, step, one);
        for (size_t i = 0; i < n; i++) {
            sum[i] += one[i];
        }
    }
    for (size_t i = 0; i < n; i++) {
        sum[i] /= (float)n_ranks;
    }
    (void)gw_convert_scalar.narrow(s->layers[layer].dtype, sum, want, n);
    const int same = memcmp(want, s->gradient[layer], bytes) == 0;
    free(sum);
    free(one);
    free(want);
    return same;
}

static gw_layer_stats stats_of(const steps *s, uint32_t layer)
{
    gw_layer_stats stats;
    RANK_OK(gw_step_stats(s->step, layer, &stats), "no statistics");
    return stats;
}

/* ---- on the links ---- */

/* One layer in pieces, small ones that are fused, and fp32 between them, which fuses apart. */
enum { LARGE = 1000003, SMALL = 40001, LAYERS = 6 };

static void links_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    shown *v = arg;
    steps *s = &v->all[rank];
    const gw_dtype h = v->dtype;
    const steps_layer layers[LAYERS] = {{LARGE, NULL, NULL, h}, {SMALL, NULL, NULL, h},
                                        {7, NULL, NULL, 0},     {SMALL, NULL, NULL, h},
                                        {0, NULL, NULL, h},     {5, NULL, NULL, 0}};
    const gw_step_config config = {
        .comm = comm, .fuse_below = SMALL + 1, .lanes = 2, .verify_every = GW_STEP_VERIFY_NEVER};
    const uint64_t share = 2 * (v->ranks - 1), each = v->ranks;
    uint64_t before[2], after[2], told = 0;
    steps_open(s, &config, layers, LAYERS);
    steps_agree(s);
    ranks_sent(all, rank, before);
    steps_run(s, 1);
    ranks_sent(all, rank, after);
    const double sent = (double)(after[0] + after[1] - before[0] - before[1]);
    const double least = (double)(2 * share) / (double)each * (LARGE + 2 * SMALL) +
                         (double)(4 * share) / (double)each * 12;
    RANK_TRUE(sent >= 0.999 * least && sent <= 1.01 * least, "not 16 bits an element");
    for (uint32_t l = 0; l < LAYERS; l++) {
        const gw_layer_stats stats = stats_of(s, l);
        const uint64_t width = gw_dtype_size(s->layers[l].dtype);
        told += stats.bytes_sent[0] + stats.bytes_sent[1];
        const uint64_t ring = share * width * layers[l].elements / each;
        const uint64_t dense = stats.dense_bytes_sent[0] + stats.dense_bytes_sent[1];
        RANK_TRUE(ring <= dense + v->per_node && dense <= ring,
                  "what a ring sends is not counted in the layer's dtype");
        RANK_TRUE(is_the_mean(s, l, 1, v->ranks), "not the mean, rounded once");
    }
    RANK_TRUE((double)told == sent, "the statistics count other bytes than the links");
    steps_equal_or_die(all, v->all, rank);
    steps_close(s);
}

static void sixteen_bits_on_the_links(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        run_ranks(4, 4, halves[d], NULL, links_main);
        run_ranks(3, 1, halves[d], NULL, links_main);
    }
}

/* ---- every route ---- */

static const char *const routes[] = {
    "flat:allreduce",
    "flat:reduce_scatter, flat:allgather",
    "flat:reduce, flat:broadcast",
    "intra:reduce_scatter, inter:allreduce, intra:allgather",
    "intra:reduce_scatter, inter:reduce_scatter, inter:allgather, intra:allgather",
    "intra:reduce_scatter, inter:reduce, inter:broadcast, intra:allgather",
    "intra:reduce, inter:allreduce, intra:broadcast",
    "intra:reduce, inter:reduce_scatter, inter:allgather, intra:broadcast",
    "intra:reduce, inter:reduce, inter:broadcast, intra:broadcast"};
enum { ROUTES = sizeof routes / sizeof routes[0], FLAT = 3 };

/* Bytes that the compiled route sends from all ranks, in 16 bits. */
static uint64_t compiled_bytes(const shown *v, uint64_t elements)
{
    uint64_t bytes = 0;
    gw_route route;
    RANK_OK(gw_route_parse(&route, v->route, NULL), "no route");
    for (uint32_t r = 0; r < v->ranks; r++) {
        const gw_route_job job = {.ranks = v->ranks,
                                  .ranks_per_node = v->per_node,
                                  .rank = r,
                                  .elements = elements,
                                  .width = 2};
        gw_program p;
        RANK_OK(gw_route_compile(&route, &job, &p, NULL), "does not compile");
        bytes += p.sent[0] + p.sent[1];
    }
    return bytes;
}

static int near_the_mean(const steps *s, uint64_t step, uint32_t n_ranks)
{
    const size_t n = s->layers[0].elements;
    const double ulp = s->layers[0].dtype == GW_F16 ? 0x1p-10 : 0x1p-7;
    float *one = calloc(n + 1, sizeof *one), *got = calloc(n + 1, sizeof *got);
    double *sum = calloc(n + 1, sizeof *sum), *size = calloc(n + 1, sizeof *size);
    int near = 1;
    for (uint32_t r = 0; r < n_ranks; r++) {
        posted_by(s, r, 0, step, one);
        for (size_t i = 0; i < n; i++) {
            sum[i] += (double)one[i] / n_ranks;
            size[i] += fabs((double)one[i]) / n_ranks;
        }
    }
    gw_convert_scalar.widen(s->layers[0].dtype, s->gradient[0], got, n);
    for (size_t i = 0; i < n; i++) { /* rounded once in a node and once between nodes */
        near &= fabs((double)got[i] - sum[i]) <= ulp * size[i] + 0x1p-23;
    }
    free(one);
    free(got);
    free(sum);
    free(size);
    return near;
}

static void route_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    enum { N = 5003, STEPS = 2 };
    shown *v = arg;
    steps *s = &v->all[rank];
    const steps_layer layer = {N, NULL, v->route, v->dtype};
    const gw_step_config config = {.comm = comm, .ranks_per_node = v->per_node, .verify_every = 1};
    const int flat = strncmp(v->route, "flat", 4) == 0;
    steps_open(s, &config, &layer, 1);
    steps_agree(s);
    for (uint64_t step = 1; step <= STEPS; step++) { /* means are compared by their hashes too */
        steps_run(s, step);
        RANK_TRUE(!flat || is_the_mean(s, 0, step, v->ranks), "not the mean, rounded once");
        RANK_TRUE(near_the_mean(s, step, v->ranks), "far from the mean");
        steps_equal_or_die(all, v->all, rank);
    }
    ranks_meet(all);
    if (rank == 0) {
        uint64_t sent = 0;
        for (uint32_t r = 0; r < v->ranks; r++) {
            const gw_layer_stats stats = stats_of(&v->all[r], 0);
            sent += stats.bytes_sent[0] + stats.bytes_sent[1];
        }
        const uint64_t least = compiled_bytes(v, N), seals = 16 * 4 * v->ranks * (v->ranks - 1);
        RANK_TRUE(sent >= least && sent <= least + seals, "other bytes than the route compiles to");
    }
    ranks_meet(all);
    steps_close(s);
}

static void every_uncompressed_route(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        for (size_t i = 0; i < ROUTES; i++) {
            run_ranks(4, 2, halves[d], routes[i], route_main);
            run_ranks(6, 3, halves[d], routes[i], route_main);
            run_ranks(3, 1, halves[d], routes[i], route_main);
            run_ranks(1, 1, halves[d], routes[i], route_main);
        }
    }
}

/* ---- half a route ---- */

static void sharded_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    enum { ROW = 3001 };
    shown *v = arg;
    steps *s = &v->all[rank];
    const steps_layer layer = {(uint64_t)ROW * v->ranks, NULL, routes[1], v->dtype};
    const gw_step_config config = {.comm = comm, .sharded = 1};
    uint64_t before[2], after[2];
    steps_open(s, &config, &layer, 1);
    steps_agree(s);
    ranks_sent(all, rank, before);
    steps_run(s, 1);
    ranks_sent(all, rank, after);
    const double sent = (double)(after[0] + after[1] - before[0] - before[1]);
    const double least = 2.0 * ROW * (v->ranks - 1);
    RANK_TRUE(sent >= least && sent <= 1.01 * least, "not 16 bits an element");
    ranks_meet(all);
    uint16_t *whole = calloc((size_t)ROW * v->ranks, sizeof *whole);
    for (uint32_t r = 0; r < v->ranks; r++) {
        memcpy(whole + (size_t)ROW * r, (uint16_t *)v->all[r].gradient[0] + (size_t)ROW * r,
               ROW * sizeof *whole);
    }
    steps joined = *s;
    joined.gradient[0] = whole;
    RANK_TRUE(is_the_mean(&joined, 0, 1, v->ranks), "shards are not of the mean, rounded once");
    free(whole);
    ranks_meet(all);
    steps_close(s);
}

static void shards(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        run_ranks(4, 1, halves[d], NULL, sharded_main);
        run_ranks(3, 1, halves[d], NULL, sharded_main);
    }
}

/* ---- what does not fit ---- */

static void set_all(steps *s, float value)
{
    const size_t n = s->layers[0].elements;
    uint16_t *to = s->gradient[0];
    for (size_t i = 0; i < n; i++) {
        (void)gw_convert_scalar.narrow(s->layers[0].dtype, &value, to + i, 1);
    }
}

static uint32_t bad_after(steps *s)
{
    gw_why why = {""};
    gw_step_result result;
    steps_post(s, 0);
    RANK_OK(gw_step_wait(s->step, &result, &why), why.text);
    return result.non_finite;
}

/* Numbers near the largest of the dtype: their mean has one, their sum has none. */
static void range_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    enum { N = 5003 };
    shown *v = arg;
    const float large = v->dtype == GW_F16 ? 60000 : 3.2e38F;
    for (int sum = 0; sum < 2; sum++) {
        steps *s = &v->all[rank];
        const steps_layer layer = {N, NULL, v->route, v->dtype};
        const gw_step_config config = {.comm = comm, .ranks_per_node = v->per_node, .sum = sum};
        steps_open(s, &config, &layer, 1);
        steps_agree(s);
        set_all(s, large);
        const uint16_t posted = ((uint16_t *)s->gradient[0])[0];
        /* an fp32 sum of numbers near bf16's largest is infinite, as it was before 16 bits were sent */
        const int fits = !sum && v->dtype == GW_F16;
        RANK_TRUE(bad_after(s) == (fits ? 0U : 1U), "a mean that fits, or does not, is not told");
        RANK_TRUE(!fits || ((uint16_t *)s->gradient[0])[N - 1] == posted, "another mean");
        for (size_t i = 0; i < N && !fits;
             i += N / 4) { /* one number, in each rank's piece in turn */
            set_all(s, 1);
            const uint16_t one = ((uint16_t *)s->gradient[0])[i];
            ((uint16_t *)s->gradient[0])[i] = posted;
            RANK_TRUE(bad_after(s) == 1, "one number that does not fit is not told on all ranks");
            RANK_TRUE(sum || ((uint16_t *)s->gradient[0])[N - 1 - i] == one, "another mean");
        }
        set_all(s, 1);
        ((uint16_t *)s->gradient[0])[N / 2] = rank == v->ranks - 1 ? 0xFFFF : 0;
        RANK_TRUE(bad_after(s) == 1, "a NaN of one rank is not seen on all");
        set_all(s, 1);
        RANK_TRUE(bad_after(s) == 0, "a finite mean counts as non-finite");
        ranks_meet(all);
        steps_close(s);
    }
}

static void overflow_is_seen(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        for (size_t i = 0; i < ROUTES; i++) {
            run_ranks(4, 2, halves[d], routes[i], range_main);
        }
    }
}

/* ---- residuals ---- */

enum { HELD = 2000, SENT_BY_TOPK = HELD / 10, LAST = HELD - 1, DRAIN = 5 };

/* Rank 0 alone has gradients. A tenth of the elements is always sent by topk; the others are held back. Their sums have more bits than
 * a number of 16 bits, and that of the last one, with the gradient it is added to, is larger than fp16's largest. */
static void fill_held(steps *s, uint32_t step)
{
    static const float scale[] = {1, 0x1p-12F, 0x1p-12F};
    float values[HELD] = {0};
    for (uint32_t i = 0; i < HELD && s->rank == 0 && step < 3; i++) {
        values[i] = i < SENT_BY_TOPK ? 65000 : scale[step] * (1 + (float)(i % 64) / 64);
    }
    values[LAST] = s->rank != 0 ? 0 : step < 3 ? 20000 : step == 3 ? 30000 : 0;
    (void)gw_convert_scalar.narrow(s->layers[0].dtype, values, s->gradient[0], HELD);
}

static void add_mean(const steps *s, double *sum)
{
    float mean[HELD];
    gw_convert_scalar.widen(s->layers[0].dtype, s->gradient[0], mean, HELD);
    for (uint32_t i = 0; i < HELD; i++) {
        sum[i] += (double)mean[i];
    }
}

static void add_input(const steps *s, double *sum, uint32_t n_ranks)
{
    float values[HELD];
    gw_convert_scalar.widen(s->layers[0].dtype, s->gradient[0], values, HELD);
    for (uint32_t i = 0; i < HELD; i++) {
        sum[i] += (double)values[i] / n_ranks;
    }
}

static void residual_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    shown *v = arg;
    steps *s = &v->all[rank];
    const steps_layer layer = {HELD, "topk:density=0.1", "gather", v->dtype};
    const gw_step_config config = {.comm = comm, .ranks_per_node = v->per_node};
    double came[HELD] = {0}, went[HELD] = {0};
    gw_feedback *store = NULL;
    uint32_t differ = 0;
    steps_open(s, &config, &layer, 1);
    steps_agree(s);
    store = gw_step_feedback(s->step);
    for (uint32_t step = 0; step < 3; step++) {
        fill_held(s, step);
        add_input(s, came, v->ranks);
        RANK_TRUE(bad_after(s) == 0, "a finite mean counts as non-finite");
        add_mean(s, went);
    }
    steps_plan(s, 0, NULL, v->route);
    steps_agree(s);
    RANK_TRUE(gw_feedback_orphans(store, 0) == 1, "topk held nothing");
    for (uint32_t step = 3; step < 3 + DRAIN; step++) {
        fill_held(s, step);
        if (step == 4) { /* one that does not count: what rounding left is what it was */
            const gw_feedback_blob before = steps_save(s);
            ((uint16_t *)s->gradient[0])[1] = rank == 1 ? 0xFFFF : 0;
            RANK_TRUE(bad_after(s) == 1, "a NaN of one rank is not seen on all");
            const gw_feedback_blob after = steps_save(s);
            RANK_TRUE(steps_same(before, after), "a step that did not count changed a residual");
            free((void *)(uintptr_t)before.bytes);
            free((void *)(uintptr_t)after.bytes);
            continue;
        }
        add_input(s, came, v->ranks);
        RANK_TRUE(bad_after(s) == 0, "a finite mean counts as non-finite");
        add_mean(s, went);
        for (uint32_t i = SENT_BY_TOPK; i < HELD && step == 3; i++) {
            differ += rank != 0 || went[i] != came[i];
        }
        RANK_TRUE(step != 3 || (gw_feedback_orphans(store, 0) == 1) == (rank == 0),
                  "what rounding left is not kept");
    }
    RANK_TRUE(differ > 1000, "every residual was a number of 16 bits: nothing was tested");
    for (uint32_t i = SENT_BY_TOPK; i < HELD; i++) {
        RANK_TRUE(rank != 0 || went[i] == came[i], "rounding lost a part of a residual");
    }
    RANK_TRUE(gw_feedback_orphans(store, 0) == 0, "all was sent, and something is kept");
    steps_equal_or_die(all, v->all, rank);
    steps_close(s);
}

static void rounding_loses_no_residual(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        run_ranks(4, 2, halves[d], "dense", residual_main);
        run_ranks(2, 1, halves[d], routes[1], residual_main);
    }
}

/* ---- refusals ---- */

static void what_has_no_16_bits(void **state)
{
    (void)state;
    gw_exchange *x = NULL;
    gw_why why = {""};
    gw_exchange_config config = {
        .ranks = 1, .ranks_per_node = 1, .elements = 5, .dtype = (gw_dtype)77};
    assert_int_equal(gw_route_parse(&config.route, "dense", NULL), GW_OK);
    assert_int_equal(gw_exchange_create(&config, &x, &why), GW_ERR_ARG);
    assert_string_equal(why.text, "unknown dtype 77");
    config.dtype = GW_BF16;
    config.params = params_of("natural:bits=8");
    assert_int_equal(gw_route_parse(&config.route, "sra", NULL), GW_OK);
    assert_int_equal(gw_exchange_create(&config, &x, &why), GW_ERR_UNSUPPORTED);
    assert_string_equal(why.text, "a route that encodes takes f32 values, not bf16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(sixteen_bits_on_the_links),
                                       cmocka_unit_test(every_uncompressed_route),
                                       cmocka_unit_test(shards),
                                       cmocka_unit_test(overflow_is_seen),
                                       cmocka_unit_test(rounding_loses_no_residual),
                                       cmocka_unit_test(what_has_no_16_bits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
