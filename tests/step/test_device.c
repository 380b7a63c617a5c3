/* A step whose gradients lie in a device's memory leaves the bits of the same step on the host: means, residuals, which
 * layers are bad. The device is emulated (tests/cuda/emulated), or the library named as the first argument, on a
 * real one; either way every byte goes through gw_cuda. */
#include "support/check.h"
#include "support/device_comm.h"
#include "support/gen.h"
#include "support/steps.h"

#include "base/numeric.h"

#include <gradwire/step_adapt.h>

#include <math.h>

static gw_cuda *cuda;
static int by_nccl; /* the device's ranks have a comm of its memory */

/* The same step twice: `here` on the host, `there` on the device. */
typedef struct twins {
    steps here, there;
    gw_comm *device_comm;
    gw_cuda_place place;
    void *device[64], *stream;
    ranks *all;
} twins;

static void open_twins(twins *t, const gw_step_config *config, const steps_layer *layers,
                       uint32_t n)
{
    gw_why why = {""};
    gw_step_config there = *config;
    t->place = there.place = (gw_cuda_place){cuda, 0};
    t->device_comm = there.device_comm = by_nccl ? device_comm_join(config->comm) : NULL;
    steps_open(&t->here, config, layers, n);
    steps_open(&t->there, &there, layers, n);
    for (uint32_t i = 0; i < n; i++) {
        RANK_OK(gw_cuda_allocate(t->place, steps_bytes(&t->there, i), 0, &t->device[i], &why),
                why.text);
    }
    RANK_OK(gw_cuda_stream_open(t->place, &t->stream, &why), why.text);
    steps_agree(&t->here);
    steps_agree(&t->there);
}

static void close_twins(twins *t)
{
    steps_close(&t->here);
    steps_close(&t->there);
    if (t->device_comm != NULL) {
        t->device_comm->table->close(t->device_comm);
    }
    for (uint32_t i = 0; i < t->there.n; i++) {
        gw_cuda_free(t->place, t->device[i], 0);
    }
    gw_cuda_stream_close(t->place, t->stream);
}

static void copy(const twins *t, void *to, const void *from, size_t bytes)
{
    gw_why why = {""};
    RANK_OK(gw_cuda_copy(t->place, t->stream, to, from, bytes, &why), why.text);
}

/* Both gradients of a layer, with what the test wants in them. */
typedef void spoil(steps *s, uint32_t layer, uint64_t step);

static void post_twins(twins *t, uint64_t step, spoil *change)
{
    gw_why why = {""};
    for (uint32_t i = 0; i < t->here.n; i++) {
        const steps_layer *l = &t->here.layers[i];
        steps_fill(&t->here, i, step);
        if (change != NULL) {
            change(&t->here, i, step);
        }
        copy(t, t->device[i], t->here.gradient[i], steps_bytes(&t->here, i));
        const gw_tensor tensor = {t->device[i], l->elements, l->dtype};
        RANK_OK(gw_step_post_after(t->there.step, i, &tensor, t->stream, &why), why.text);
        RANK_OK(gw_cuda_wait(t->place, t->stream, &why), why.text); /* the host's is changed next */
        steps_post(&t->here, i);
    }
}

/* NaNs are NaNs, whatever their bits. */
static int same_numbers(const steps_layer *l, const void *a, const void *b)
{
    for (uint64_t i = 0; i < l->elements; i++) {
        float x[2];
        const void *const from[2] = {a, b};
        for (int k = 0; k < 2; k++) {
            const uint16_t half = l->dtype != GW_F32 ? ((const uint16_t *)from[k])[i] : 0;
            x[k] = l->dtype == GW_F32   ? ((const float *)from[k])[i]
                   : l->dtype == GW_F16 ? gw_f32_from_f16(half)
                                        : gw_f32_from_bf16(half);
        }
        if (gw_bits(x[0]) != gw_bits(x[1]) && !(isnan(x[0]) && isnan(x[1]))) {
            print_error("element %llu: %.9g on the host, %.9g on the device\n",
                        (unsigned long long)i, (double)x[0], (double)x[1]);
            return 0;
        }
    }
    return 1;
}

static void compare_means(twins *t)
{
    gw_why why = {""};
    for (uint32_t i = 0; i < t->here.n; i++) {
        copy(t, t->there.gradient[i], t->device[i], steps_bytes(&t->there, i));
        RANK_OK(gw_cuda_wait(t->place, t->stream, &why), why.text);
        if (!same_numbers(&t->here.layers[i], t->here.gradient[i], t->there.gradient[i])) {
            print_error("layer %u: %s %s, rank %u\n", i,
                        t->here.layers[i].spec != NULL ? t->here.layers[i].spec : "dense",
                        t->here.layers[i].route != NULL ? t->here.layers[i].route : "dense",
                        t->here.rank);
            ranks_fail(__FILE__, __LINE__, "the device has other means");
        }
    }
}

static void compare_twins(twins *t)
{
    compare_means(t);
    const gw_feedback_blob a = steps_save(&t->here), b = steps_save(&t->there);
    RANK_TRUE(steps_same(a, b), "the device has other residuals");
    free((void *)(uintptr_t)a.bytes);
    free((void *)(uintptr_t)b.bytes);
}

static gw_step_result wait_twins(twins *t)
{
    gw_why why = {""};
    gw_step_result here, there;
    RANK_OK(gw_step_wait(t->here.step, &here, &why), why.text);
    RANK_OK(gw_step_wait(t->there.step, &there, &why), why.text);
    RANK_TRUE(here.non_finite == there.non_finite &&
                  (here.non_finite == 0 || here.first_non_finite == there.first_non_finite),
              "another number of bad layers");
    RANK_TRUE(by_nccl || memcmp(here.bytes_sent, there.bytes_sent, sizeof here.bytes_sent) == 0,
              "another number of bytes");
    return there;
}

static void run_twins(twins *t, uint64_t step, spoil *change)
{
    post_twins(t, step, change);
    (void)wait_twins(t);
    compare_twins(t);
}

static uint32_t coded_on(const twins *t, uint32_t layer)
{
    gw_layer_stats stats;
    RANK_OK(gw_step_stats(t->there.step, layer, &stats), "stats");
    return stats.coded_on;
}

/* Each rank's end on the heap: they are large. */
static twins *new_twins(ranks *all)
{
    twins *t = calloc(1, sizeof *t);
    RANK_TRUE(t != NULL, "no memory");
    t->all = all;
    return t;
}

static void run_ranks(uint32_t n, uint32_t per_node, ranks_main *main, void *arg)
{
    const gw_threads_config config = {.ranks = n, .ranks_per_node = per_node};
    ranks_run(&config, main, arg);
}

/* ---- every codec, type and everyday route ---- */

static const steps_layer coded[] = {
    {5000, "natural:bits=8", "sra@gpu", 0},
    {5000, "natural:bits=9", "sra@gpu", GW_BF16},
    {4097, "sign:bucket=64", "gather@gpu", 0},
    {3000, "topk:density=0.05", "gather@gpu", 0},
    {3000, "topk:density=0.2,values=natural", "hier-gather@gpu", GW_F16},
    {3000, "adacomp:bin=50", "gather@gpu", 0},
    {3000, "adacomp:bin=50", "sra@gpu", 0},
    {3000, "adacomp:bin=255", "hier2-gather@gpu", 0},
    {5000, "dither:bits=4,bucket=64", "hier2-sra@gpu", 0},
    {5000, "ndither:bits=4,bucket=64", "hier-sra@gpu", GW_F16},
    {900, "randk:density=0.1", "sum@gpu", GW_F16},
    {901, "randk:density=0.1", "hier-sum@gpu", 0},
    {2000, "cast:to=bf16", "star@gpu", 0},
    {2000, "sign:bucket=64", "star@gpu", 0},
    {2000, "topk:density=0.05", "hier2-gather@gpu", 0},
    {3000, "sign:bucket=64", "gather", GW_BF16},
    {17 * 60, "lowrank:rank=2", "sum@cpu", 0}, /* on the device: test_device_rounds.c */
    {3000, NULL, "dense", GW_F16},
    {3001, NULL, "hier-dense", 0},
    {1, "natural:bits=8", "sra@gpu", 0},
    {5, "topk:density=0.05", "gather@gpu", 0},
    {0, "sign:bucket=64", "gather@gpu", 0},
    {0, "randk:density=0.1", "sum@gpu", GW_F16},
    {0, NULL, "dense", 0},
};
enum { CODED = sizeof coded / sizeof coded[0] };

static void coded_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    const gw_step_config config = {.comm = comm,
                                   .seed = 7,
                                   .ranks_per_node = comm->ranks == 4 ? 2 : 1,
                                   .lanes = 3,
                                   .piece = 3000,
                                   .own_thread = arg != NULL};
    twins *t = new_twins(all);
    (void)rank;
    open_twins(t, &config, coded, CODED);
    for (uint64_t step = 1; step <= 2; step++) {
        run_twins(t, step, NULL);
    }
    for (uint32_t i = 0; i < CODED; i++) {
        const steps_layer *l = &coded[i];
        const int on_cpu = l->route != NULL && strstr(l->route, "@gpu") == NULL;
        const uint32_t where = coded_on(t, i);
        gw_layer_stats here, there;
        RANK_TRUE(l->elements == 0 || where == (l->spec == NULL ? 0u
                                                : on_cpu        ? (uint32_t)GW_DEVICE_CPU
                                                                : (uint32_t)GW_DEVICE_GPU),
                  "stats say another device");
        RANK_OK(gw_step_stats(t->here.step, i, &here), "stats");
        RANK_OK(gw_step_stats(t->there.step, i, &there), "stats");
        RANK_TRUE(here.payload_bytes == there.payload_bytes, "other payloads");
    }
    close_twins(t);
    free(t);
}

static void same_bits_for_every_codec(void **state)
{
    int own_thread = 1;
    (void)state;
    run_ranks(4, 2, coded_main, &own_thread);
    run_ranks(1, 1, coded_main, NULL);
}

/* All that one device can have over NCCL itself. */
static void same_bits_alone(void **state)
{
    (void)state;
    run_ranks(1, 1, coded_main, NULL);
}

/* ---- all kinds of routes, some coding here and some there ---- */

enum { SPECS = 4 };
static const char *const few[SPECS] = {"natural:bits=8", "topk:density=0.05", "sign:bucket=64",
                                       "randk:density=0.1"};

typedef struct routes {
    gw_route *list;
    size_t n;
} routes;

/* Every stride-th of all routes. */
static routes some_routes(size_t stride)
{
    gw_why why = {""};
    routes all = {NULL, 0}, some = {NULL, 0};
    assert_int_equal(gw_route_list(GW_DEVICE_CPU | GW_DEVICE_GPU, 0, NULL, 0, &all.n, &why), GW_OK);
    all.list = calloc(all.n, sizeof *all.list);
    some.list = calloc(all.n / stride + 1, sizeof *some.list);
    assert_non_null(all.list);
    assert_non_null(some.list);
    assert_int_equal(gw_route_list(GW_DEVICE_CPU | GW_DEVICE_GPU, 0, all.list, all.n, &all.n, &why),
                     GW_OK);
    for (size_t i = stride / 2; i < all.n; i += stride) {
        some.list[some.n++] = all.list[i];
    }
    free(all.list);
    return some;
}

/* One step object goes through all routes, so that residuals are taken over or handed over. */
static void routes_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    const routes *r = arg;
    steps_layer layers[SPECS];
    gw_params params[SPECS];
    gw_why why = {""};
    const gw_step_config config = {.comm = comm, .ranks_per_node = 2, .lanes = 2, .fuse_below = 2};
    twins *t = new_twins(all);
    (void)rank;
    for (int i = 0; i < SPECS; i++) {
        layers[i] = (steps_layer){1003, NULL, NULL, i % 2 == 0 ? GW_F32 : GW_F16};
        RANK_OK(gw_params_parse(&params[i], few[i], &why), why.text);
    }
    open_twins(t, &config, layers, SPECS);
    for (size_t k = 0; k < r->n; k++) {
        steps *const both[2] = {&t->here, &t->there};
        for (uint32_t i = 0; i < SPECS; i++) {
            const int fit = gw_route_fits(&r->list[k], &params[i], NULL) == GW_OK;
            gw_route route;
            RANK_OK(gw_route_parse(&route, "dense", &why), why.text);
            for (int b = 0; b < 2 && (fit || k % 5 == 0); b++) {
                RANK_OK(gw_step_plan(both[b]->step, i, fit ? &params[i] : NULL,
                                     fit ? &r->list[k] : &route, &why),
                        why.text);
            }
        }
        steps_agree(&t->here);
        steps_agree(&t->there);
        run_twins(t, k + 1, NULL);
    }
    close_twins(t);
    free(t);
}

static void same_bits_on_every_kind_of_route(void **state)
{
    (void)state;
    routes some = some_routes(331);
    run_ranks(4, 2, routes_main, &some);
    free(some.list);
}

/* ---- uncompressed numbers of 16 bits ---- */

enum { PLAIN = 9, LARGE = 20000, HALVES = 2 * (PLAIN + 2) };

/* Every uncompressed route, and a layer each that topk coded before: what rounding leaves of its residual is the host's too. */
static void halves_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    static const gw_dtype dtypes[2] = {GW_F16, GW_BF16};
    const gw_route *list = arg;
    const gw_step_config config = {.comm = comm, .ranks_per_node = 2, .lanes = 3, .piece = 3000};
    gw_why why = {""};
    steps_layer layers[HALVES];
    twins *t = new_twins(all);
    (void)rank;
    for (uint32_t i = 0; i < HALVES; i++) {
        layers[i] = (steps_layer){1003, NULL, NULL, dtypes[i % 2]};
    }
    layers[2 * PLAIN].elements = layers[2 * PLAIN + 1].elements = LARGE;
    layers[HALVES - 2].spec = layers[HALVES - 1].spec = "topk:density=0.05";
    layers[HALVES - 2].route = layers[HALVES - 1].route = "gather@gpu";
    open_twins(t, &config, layers, HALVES);
    steps *const both[2] = {&t->here, &t->there};
    for (uint64_t step = 1; step <= 5; step++) {
        for (uint32_t b = 0; b < 2 && (step == 1 || step == 3); b++) {
            for (uint32_t i = 0; i < 2 * PLAIN && step == 1; i++) {
                RANK_OK(gw_step_plan(both[b]->step, i, NULL, &list[i / 2], &why), why.text);
            }
            for (uint32_t i = HALVES - 2; i < HALVES && step == 3; i++) {
                steps_plan(both[b], i, NULL, "dense");
            }
            steps_agree(both[b]);
        }
        run_twins(t, step, NULL);
    }
    RANK_TRUE(gw_feedback_orphans(gw_step_feedback(t->there.step), HALVES - 1) == 1,
              "what rounding left is not kept");
    for (uint32_t i = 2 * PLAIN; i < 2 * PLAIN + 2; i++) {
        gw_layer_stats stats;
        RANK_OK(gw_step_stats(t->there.step, i, &stats), "stats");
        const uint64_t least = 2 * (comm->ranks - 1) * 2 * LARGE / comm->ranks;
        const uint64_t sent = stats.bytes_sent[0] + stats.bytes_sent[1];
        RANK_TRUE(stats.dense_bytes_sent[0] + stats.dense_bytes_sent[1] == least &&
                      sent >= least - least / 50 && sent <= least + least / 50,
                  "not 16 bits an element");
    }
    close_twins(t);
    free(t);
}

static void uncompressed_halves(void **state)
{
    gw_route list[256], plain[PLAIN];
    size_t n = 0, found = 0;
    (void)state;
    assert_int_equal(gw_route_list(GW_DEVICE_CPU, 0, list, 256, &n, NULL), GW_OK);
    for (size_t i = 0; i < n; i++) {
        if (gw_route_encodes(&list[i]) == 0) {
            assert_true(found < PLAIN);
            plain[found++] = list[i];
        }
    }
    assert_int_equal(found, PLAIN);
    run_ranks(4, 2, halves_main, plain);
}

/* ---- small layers together ---- */

static const steps_layer small[] = {{1000, NULL, NULL, 0},        {1000, NULL, NULL, GW_F16},
                                    {5, NULL, NULL, GW_BF16},     {0, NULL, NULL, 0},
                                    {2500, NULL, NULL, 0},        {1, NULL, NULL, GW_F16},
                                    {7, "sign", "gather@gpu", 0}, {9000, "sign", "gather@gpu", 0}};
enum { SMALL = sizeof small / sizeof small[0] };

/* fp16: the sum is finite in fp32, but not its mean in fp16; and a NaN somewhere. */
static void too_large(steps *s, uint32_t layer, uint64_t step)
{
    if (step == 2 && layer == 1) {
        ((uint16_t *)s->gradient[layer])[3] = 0x7BFFu;
    }
    if (step == 3 && layer == 4 && s->rank == 1) {
        ((float *)s->gradient[layer])[7] = (float)NAN;
    }
    if (step == 4 && layer == 7 && s->rank == 0) {
        ((float *)s->gradient[layer])[7] = (float)INFINITY;
    }
}

static void small_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    const int together = *(int *)arg;
    const gw_step_config config = {.comm = comm,
                                   .fuse_below = 5000,
                                   .lanes = 2,
                                   .sum = 1, /* 65504 twice is too large for fp16 */
                                   .all_or_nothing = together};
    twins *t = new_twins(all);
    (void)rank;
    open_twins(t, &config, small, SMALL);
    for (uint64_t step = 1; step <= 5; step++) {
        post_twins(t, step, too_large);
        const gw_step_result r = wait_twins(t);
        RANK_TRUE(r.non_finite == (step >= 2 && step <= 4), "a bad layer that is not seen");
        RANK_TRUE(r.non_finite == 0 || r.first_non_finite == (step == 2   ? 1u
                                                              : step == 3 ? 4u
                                                                          : 7u),
                  "another layer");
        compare_twins(t);
    }
    close_twins(t);
    free(t);
}

static void small_and_bad_layers(void **state)
{
    (void)state;
    for (int together = 0; together < 2; together++) {
        run_ranks(2, 1, small_main, &together);
    }
}

/* ---- buckets ---- */

static const steps_layer bucketed[] = {{1000, "topk:density=0.05", "gather@gpu", 0},
                                       {1700, "topk:density=0.05", "gather@gpu", GW_F16},
                                       {300, "topk:density=0.05", "gather@gpu", GW_BF16},
                                       {2500, "adacomp:bin=50", "sra@gpu", 0},
                                       {600, "adacomp:bin=50", "sra@gpu", 0},
                                       {900, NULL, NULL, 0},
                                       {1200, NULL, NULL, GW_F16}};
enum { BUCKETED = sizeof bucketed / sizeof bucketed[0] };

static void set_buckets(twins *t, const uint32_t *buckets)
{
    gw_why why = {""};
    RANK_OK(gw_step_buckets(t->here.step, buckets, BUCKETED, &why), why.text);
    RANK_OK(gw_step_buckets(t->there.step, buckets, BUCKETED, &why), why.text);
    steps_agree(&t->here);
    steps_agree(&t->there);
}

static void bad_member(steps *s, uint32_t layer, uint64_t step)
{
    if (step == 3 && s->rank == 1 && (layer == 4 || layer == 5)) {
        ((float *)s->gradient[layer])[7] = (float)NAN;
    }
}

static void buckets_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    static const uint32_t first[BUCKETED] = {1, 1, 1, 2, 2, 3, 3}, none[BUCKETED] = {0};
    const gw_step_config config = {.comm = comm, .lanes = 3, .piece = 640};
    twins *t = new_twins(all);
    gw_why why = {""};
    (void)rank;
    (void)arg;
    open_twins(t, &config, bucketed, BUCKETED);
    set_buckets(t, first);
    for (uint64_t step = 1; step <= 4; step++) {
        post_twins(t, step, bad_member);
        const gw_step_result r = wait_twins(t);
        RANK_TRUE(r.non_finite == (step == 3 ? 3u : 0u), "other layers are bad");
        compare_twins(t);
    }
    RANK_TRUE(coded_on(t, 0) == (uint32_t)GW_DEVICE_GPU, "a bucket is coded elsewhere");
    RANK_OK(gw_feedback_scale(gw_step_feedback(t->here.step), 0.37, &why), why.text);
    RANK_OK(gw_feedback_scale(gw_step_feedback(t->there.step), 0.37, &why), why.text);
    run_twins(t, 5, NULL);
    gw_feedback_blob saved = steps_save(&t->here);
    for (int i = 0; i < 2; i++) { /* each to the other's place */
        gw_feedback_told told;
        RANK_OK(gw_feedback_load(gw_step_feedback(i == 0 ? t->there.step : t->here.step),
                                 comm->ranks, &saved, 1, &told, &why),
                why.text);
    }
    run_twins(t, 6, NULL);
    set_buckets(t, none); /* what they held goes into each layer's next gradient */
    run_twins(t, 7, NULL);
    set_buckets(t, first);
    run_twins(t, 8, NULL);
    free((void *)(uintptr_t)saved.bytes);
    close_twins(t);
    free(t);
}

static void layers_that_are_sent_as_one(void **state)
{
    (void)state;
    run_ranks(2, 1, buckets_main, NULL);
}

/* ---- residuals: planned anew, scaled, saved, loaded ---- */

static void state_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    static const steps_layer layers[] = {{3000, "topk:density=0.05", "gather@gpu", 0},
                                         {3000, "sign:bucket=64", "gather@gpu", 0},
                                         {3000, "adacomp:bin=50", "sra@gpu", GW_F16},
                                         {3000, "sign:bucket=64", "gather", 0}};
    static const char *const next[][2] = {{"topk:density=0.05", "gather"},
                                          {NULL, "dense"},
                                          {"sign:bucket=64", "gather@gpu"},
                                          {"sign:bucket=64", "gather@gpu"}};
    const gw_step_config config = {.comm = comm, .lanes = 2};
    gw_why why = {""};
    twins *t = new_twins(all);
    (void)rank;
    (void)arg;
    open_twins(t, &config, layers, 4);
    run_twins(t, 1, NULL);
    RANK_OK(gw_feedback_scale(gw_step_feedback(t->here.step), 0.37, &why), why.text);
    RANK_OK(gw_feedback_scale(gw_step_feedback(t->there.step), 0.37, &why), why.text);
    compare_twins(t);
    run_twins(t, 2, NULL);
    const gw_feedback_blob saved = steps_save(&t->there);
    run_twins(t, 3, NULL);
    steps *const both[2] = {&t->here, &t->there};
    for (int b = 0; b < 2; b++) { /* back to after the second step */
        gw_step_set_number(both[b]->step, 2);
        steps_agree(both[b]);
        RANK_OK(
            gw_feedback_load(gw_step_feedback(both[b]->step), comm->ranks, &saved, 1, NULL, &why),
            why.text);
    }
    compare_twins(t);
    run_twins(t, 3, NULL);
    for (int b = 0; b < 2;
         b++) { /* residuals stay, come to the host, go to the device, are handed over */
        for (uint32_t i = 0; i < 4; i++) {
            steps_plan(both[b], i, next[i][0], next[i][1]);
        }
        steps_agree(both[b]);
    }
    compare_twins(t);
    run_twins(t, 4, NULL);
    run_twins(t, 5, NULL);
    free((void *)(uintptr_t)saved.bytes);
    close_twins(t);
    free(t);
}

static void residuals_go_where_they_are_needed(void **state)
{
    (void)state;
    run_ranks(2, 1, state_main, NULL);
}

/* ---- residuals of which something is still due: nobody looks at them between these steps ---- */

static void one_nan(steps *s, uint32_t layer, uint64_t step)
{
    if (step % 4 == 0 && layer == step / 4 % 2 && s->rank == 1) {
        ((float *)s->gradient[layer])[77] = (float)NAN;
    }
}

static void run_unseen(twins *t, uint64_t first, uint64_t last)
{
    for (uint64_t step = first; step <= last; step++) {
        post_twins(t, step, one_nan);
        const gw_step_result r = wait_twins(t);
        RANK_TRUE((r.non_finite != 0) == (step % 4 == 0), "a bad layer that is not seen");
        compare_means(t);
    }
}

static void due_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    static const steps_layer layers[] = {
        {3000, "adacomp:bin=255", "sra@gpu", 0},
        {3001, "adacomp:bin=700,cap=300", "hier2-gather@gpu", 0},
        {17000, "adacomp:bin=50", "gather@gpu", 0},
        {8000, "adacomp:bin=500", "sra@gpu", GW_BF16}, /* pieces too small to owe */
    };
    static const char *const next[][2] = {{"adacomp:bin=255", "gather@gpu"},
                                          {"adacomp:bin=127,cap=300", "hier2-gather@gpu"},
                                          {"adacomp:bin=500", "gather@gpu"},
                                          {NULL, "dense"}};
    const gw_step_config config = {
        .comm = comm, .lanes = 2, .ranks_per_node = comm->ranks == 4 ? 2 : 1};
    gw_why why = {""};
    twins *t = new_twins(all);
    (void)rank;
    (void)arg;
    open_twins(t, &config, layers, 4);
    run_unseen(t, 1, 3);
    compare_twins(t);
    run_unseen(t, 4, 4);
    RANK_OK(gw_feedback_scale(gw_step_feedback(t->here.step), 0.37, &why), why.text);
    RANK_OK(gw_feedback_scale(gw_step_feedback(t->there.step), 0.37, &why), why.text);
    run_unseen(t, 5, 6);
    const gw_feedback_blob saved = steps_save(&t->there);
    run_unseen(t, 7, 8);
    steps *const both[2] = {&t->here, &t->there};
    for (int b = 0; b < 2; b++) {
        gw_step_set_number(both[b]->step, 6);
        steps_agree(both[b]);
        RANK_OK(
            gw_feedback_load(gw_step_feedback(both[b]->step), comm->ranks, &saved, 1, NULL, &why),
            why.text);
    }
    run_unseen(t, 7, 9);
    for (int b = 0; b < 2; b++) { /* other routes, other bins: by whose params is it taken off? */
        for (uint32_t i = 0; i < 4; i++) {
            steps_plan(both[b], i, next[i][0], next[i][1]);
        }
        steps_agree(both[b]);
    }
    run_unseen(t, 10, 11);
    compare_twins(t);
    free((void *)(uintptr_t)saved.bytes);
    close_twins(t);
    free(t);
}

static void what_is_due_is_taken_off(void **state)
{
    (void)state;
#if defined(GW_TESTS_SANITIZED) /* two minutes there */
    run_ranks(2, 1, due_main, NULL);
#else
    run_ranks(4, 2, due_main, NULL);
#endif
}

/* ---- half a route; levels chosen during training ---- */

static void sharded_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    static const steps_layer layers[] = {{3001, "natural:bits=8", "sra@gpu", 0},
                                         {3000, "sign:bucket=64", "sra@gpu", 0},
                                         {3000, "natural:bits=8", "sra", 0},
                                         {3000, NULL, "flat:reduce_scatter,flat:allgather", 0}};
    const gw_step_config config = {.comm = comm, .lanes = 2, .sharded = 1};
    gw_why why = {""};
    twins *t = new_twins(all);
    (void)arg;
    open_twins(t, &config, layers, 4);
    for (uint64_t step = 1; step <= 2; step++) {
        post_twins(t, step, NULL);
        (void)wait_twins(t);
        for (uint32_t i = 0; i < 4; i++) {
            gw_params params;
            const int codes = layers[i].spec != NULL;
            if (codes) {
                RANK_OK(gw_params_parse(&params, layers[i].spec, &why), why.text);
            }
            const gw_range whole = {0, layers[i].elements};
            const gw_range own =
                gw_range_cut(whole, codes ? gw_codec_grain(&params) : 1, comm->ranks, rank);
            copy(t, t->there.gradient[i], t->device[i], steps_bytes(&t->there, i));
            RANK_OK(gw_cuda_wait(t->place, t->stream, &why), why.text);
            const size_t at = (size_t)own.first;
            RANK_TRUE(memcmp((float *)t->here.gradient[i] + at, (float *)t->there.gradient[i] + at,
                             (size_t)own.count * sizeof(float)) == 0,
                      "another piece");
        }
    }
    close_twins(t);
    free(t);
}

static void half_a_route(void **state)
{
    (void)state;
    run_ranks(3, 1, sharded_main, NULL);
}

static void adapt_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    static const steps_layer layers[] = {{3000, "topk:density=0.05", "gather@gpu", GW_F16},
                                         {3000, "topk:density=0.05", "gather@gpu", 0},
                                         {900, NULL, NULL, 0}};
    const gw_step_config config = {.comm = comm, .lanes = 2};
    gw_params family;
    gw_why why = {""};
    twins *t = new_twins(all);
    (void)rank;
    (void)arg;
    RANK_OK(gw_params_parse(&family, "topk:density=0.05", &why), why.text);
    const gw_step_adapt_config adapt = {
        .rules = {.families = &family, .n_families = 1, .uniform = family}, .every = 4, .alpha = 3};
    open_twins(t, &config, layers, 3);
    RANK_OK(gw_step_adapt_begin(t->here.step, &adapt, &why), why.text);
    RANK_OK(gw_step_adapt_begin(t->there.step, &adapt, &why), why.text);
    for (uint64_t step = 1; step <= 6; step++) {
        run_twins(t, step, NULL);
    }
    uint64_t n[2] = {0, 0};
    gw_step_decision decision[2];
    RANK_OK(gw_step_adapt_last(t->here.step, &n[0], &decision[0]), "adapt");
    RANK_OK(gw_step_adapt_last(t->there.step, &n[1], &decision[1]), "adapt");
    RANK_TRUE(n[0] != 0 && n[0] == n[1] && decision[0].bytes == decision[1].bytes &&
                  decision[0].error == decision[1].error,
              "the device chose otherwise");
    RANK_TRUE(coded_on(t, 0) == GW_DEVICE_GPU, "levels are coded elsewhere");
    close_twins(t);
    free(t);
}

static void levels_are_chosen_alike(void **state)
{
    (void)state;
    run_ranks(2, 1, adapt_main, NULL);
}

/* ---- refusals ---- */

static void refused_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    gw_why why = {""};
    gw_step *step = NULL;
    const gw_step_config config = {.comm = comm, .place = {cuda, 99}};
    (void)all;
    (void)rank;
    (void)arg;
    RANK_TRUE(gw_step_create(&config, &step, &why) == GW_ERR_SYSTEM, why.text);
    RANK_TRUE(strstr(why.text, "CUDA") != NULL, why.text);
    void *memory = NULL;
    RANK_TRUE(gw_cuda_allocate((gw_cuda_place){NULL, 0}, 1, 0, &memory, &why) == GW_ERR_ARG,
              "no library");
    RANK_TRUE(gw_cuda_copy((gw_cuda_place){cuda, 0}, NULL, NULL, &memory, 8, &why) == GW_ERR_ARG,
              "a copy to nowhere");
}

static void what_cannot_be_is_said(void **state)
{
    (void)state;
    run_ranks(1, 1, refused_main, NULL);
}

/* test_step_device [LIBRARY [NCCL]]: `emulated` is the emulated one. With an NCCL, fake or real, ranks have a comm of the
 * device's memory; a real one takes one rank a device. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_for_every_codec),
        cmocka_unit_test(same_bits_on_every_kind_of_route),
        cmocka_unit_test(uncompressed_halves),
        cmocka_unit_test(small_and_bad_layers),
        cmocka_unit_test(layers_that_are_sent_as_one),
        cmocka_unit_test(residuals_go_where_they_are_needed),
        cmocka_unit_test(what_is_due_is_taken_off),
        cmocka_unit_test(half_a_route),
        cmocka_unit_test(levels_are_chosen_alike),
        cmocka_unit_test(what_cannot_be_is_said),
    };
    gw_why why = {""};
    const int emulated = argc < 2 || strcmp(argv[1], "emulated") == 0;
    if (gw_cuda_open(emulated ? GW_TESTS_EMULATED : argv[1], &cuda, &why) != GW_OK) {
        print_error("%s\n", why.text);
        return 2;
    }
    by_nccl = argc > 2;
    if (by_nccl) {
        device_comm_open(argv[2], (gw_cuda_place){cuda, 0}, emulated);
    }
    const struct CMUnitTest alone[] = {cmocka_unit_test(same_bits_alone)};
    int failed = by_nccl && !device_comm_is_fake() ? cmocka_run_group_tests(alone, NULL, NULL)
                                                   : cmocka_run_group_tests(tests, NULL, NULL);
    if (by_nccl) {
        device_comm_close();
        failed += device_comm_live() != 0;
    }
    gw_cuda_close(cuda);
    return failed;
}
