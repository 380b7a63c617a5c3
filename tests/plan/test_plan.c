/* Whole plans, on the artifact's profiles and the clusters of examples/. */
#include "plan/artifact.h"
#include "support/check.h"

#include <math.h>

#define PROFILES GW_DOCS "/../tests/data/espresso"
#define CLUSTERS GW_DOCS "/../examples/clusters"
static const char NVLINK[] = "espresso-nvlink-100g.json", PCIE[] = "espresso-pcie-25g.json";

typedef struct scene {
    gw_job_file job;
    gw_cluster_file cluster;
    gw_plan_entry *entries;
    gw_plan_report report;
} scene;

static void load(scene *s, const char *job, const char *cluster)
{
    *s = (scene){.entries = NULL};
    assert_true(load_job(PROFILES, job, &s->job));
    assert_true(load_cluster(CLUSTERS, cluster, &s->cluster));
    s->entries = calloc(s->job.job.n, sizeof *s->entries);
    assert_non_null(s->entries);
}

static void release(scene *s)
{
    gw_job_file_free(&s->job);
    gw_cluster_file_free(&s->cluster);
    free(s->entries);
}

static void plan(scene *s, const char *spec, uint32_t devices)
{
    const gw_params params = params_of(spec);
    const gw_plan_request request = {
        .specs = &params, .n_specs = 1, .devices = devices, .no_fusion = 1};
    gw_plan *made = NULL;
    gw_why why = {""};
    const gw_status status =
        gw_plan_create(&s->job.job, &s->cluster.cluster, &request, &made, &why);
    CHECK(status == GW_OK, "%s", why.text);
    s->report = gw_plan_report_of(made);
    for (size_t i = 0; i < s->job.job.n; i++) {
        assert_int_equal(gw_plan_entry_at(made, i, &s->entries[i]), GW_OK);
    }
    gw_plan_destroy(made);
}

/* Gaps are used in full. */
static void spans(void **state)
{
    (void)state;
    const struct {
        const char *file;
        double ms;
        size_t n;
    } all[] = {{"lstm.csv", 71.45, 10},
               {"vgg16.csv", 85.31, 32},
               {"resnet101.csv", 120.391, 314},
               {"gpt2.csv", 211.329, 148},
               {"bert_base.csv", 66.335, 199}};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        gw_job_file job;
        assert_true(load_job(PROFILES, all[i].file, &job));
        CHECK(fabs(job.job.backward * 1e3 - all[i].ms) < 0.006, "%s: %g ms", all[i].file,
              job.job.backward * 1e3);
        assert_int_equal(job.job.n, all[i].n);
        gw_job_file_free(&job);
    }
}

/* Not worse than anything simple or than the artifact's strategy, not better than what is possible; the prediction of the
 * plan is the plan's; twice the same. */
static void profiles(void **state)
{
    (void)state;
    const struct {
        const char *job, *spec;
    } all[] = {{"bert_base.csv", "randk:density=0.01"}, {"gpt2.csv", "sign"},
               {"vgg16.csv", "randk:density=0.01"},     {"lstm.csv", "sign"},
               {"resnet101.csv", "topk:density=0.01"},  {"resnet50.csv", "topk:density=0.01"}};
    for (size_t i = 0; i < 2 * sizeof all / sizeof all[0]; i++) {
        scene s;
        double seconds = 0;
        const int nvlink = i % 2 == 0;
        load(&s, all[i / 2].job, nvlink ? NVLINK : PCIE);
        plan(&s, all[i / 2].spec, 0);
        const gw_plan_report r = s.report;
        print_message("%-14s %s: %.3f ms, bound %.3f, dense %.3f\n", all[i / 2].job,
                      nvlink ? "A" : "B", r.step * 1e3, r.lower_bound * 1e3, r.dense * 1e3);
        assert_true(r.step <= r.dense && r.step <= r.bf16 && r.step <= r.all_compressed);
        assert_true(r.step >= r.lower_bound - 1e-12 && r.step >= r.zero_cost - 1e-12);
        assert_true(r.dense_high >= r.dense && r.step_high >= r.step);
        assert_true(r.candidates > r.dominated && r.evaluations > 0);
        assert_int_equal(gw_plan_predict(&s.job.job, &s.cluster.cluster, s.entries, s.job.job.n, 0,
                                         &seconds, NULL),
                         GW_OK);
        CHECK(fabs(seconds - r.step) < 1e-9, "%s: planned %g, predicted %g", all[i / 2].job, r.step,
              seconds);
        const gw_params spec = params_of(all[i / 2].spec);
        assert_int_equal(
            artifact_plan(&s.job.job, &s.cluster.cluster, &spec, nvlink, s.entries, &seconds, NULL),
            GW_OK);
        CHECK(r.step <= seconds, "%s: the artifact's strategy takes %g, ours %g", all[i / 2].job,
              seconds, r.step);
        release(&s);
    }
}

static void same_again(void **state)
{
    (void)state;
    scene a, b;
    load(&a, "vgg16.csv", PCIE);
    load(&b, "vgg16.csv", PCIE);
    plan(&a, "topk:density=0.01", 0);
    plan(&b, "topk:density=0.01", 0);
    assert_memory_equal(a.entries, b.entries, a.job.job.n * sizeof *a.entries);
    assert_memory_equal(&a.report, &b.report, sizeof a.report);
    release(&a);
    release(&b);
}

static double uniform(const scene *s, const char *route)
{
    double seconds = 0;
    for (uint32_t i = 0; i < s->job.job.n; i++) {
        s->entries[i] = (gw_plan_entry){.tensor = i, .bucket = i};
        assert_int_equal(gw_route_parse(&s->entries[i].route, route, NULL), GW_OK);
    }
    assert_int_equal(gw_plan_predict(&s->job.job, &s->cluster.cluster, s->entries, s->job.job.n, 0,
                                     &seconds, NULL),
                     GW_OK);
    return seconds;
}

/* One rank a node: hierarchical routes are flat ones. One node of free links: nothing is compressed. */
static void one_rank_or_one_node(void **state)
{
    (void)state;
    scene s;
    load(&s, "resnet50.csv", PCIE);
    s.cluster.cluster.ranks_per_node = 1;
    assert_true(uniform(&s, "flat:allreduce") ==
                uniform(&s, "intra:reduce_scatter · inter:allreduce · intra:allgather"));
    s.cluster.cluster.ranks_per_node = 8;
    assert_true(uniform(&s, "flat:allreduce") >
                uniform(&s, "intra:reduce_scatter · inter:allreduce · intra:allgather"));
    s.cluster.cluster.nodes = 1;
    s.cluster.cluster.intra = (gw_cluster_link){.rate = 1e18};
    plan(&s, "topk:density=0.01", 0);
    assert_int_equal(s.report.compressed, 0);
    assert_true(fabs(s.report.step - s.job.job.backward) < 1e-6);
    release(&s);
}

/* Elements whose payloads travel by this collective at this level. */
static double elements_by(const scene *s, gw_op op, gw_level level)
{
    double sum = 0;
    for (size_t i = 0; i < s->job.job.n; i++) {
        int coded = 0;
        for (uint32_t k = 0; k < s->entries[i].route.n_steps; k++) {
            const gw_route_step *step = &s->entries[i].route.step[k];
            coded = step->op == GW_OP_ENCODE ? 1 : step->op == GW_OP_DECODE ? 0 : coded;
            sum += coded && step->op == op && (level == 0 || step->level == level)
                       ? (double)s->job.job.tensors[i].elements
                       : 0;
        }
    }
    return sum;
}

/* Quantisers go by all-to-all where sparsifiers gather; slow links inside a node are compressed too. */
static void directions(void **state)
{
    (void)state;
    scene sparse, quantised, slow;
    load(&sparse, "vgg16.csv", NVLINK);
    load(&quantised, "vgg16.csv", NVLINK);
    load(&slow, "vgg16.csv", PCIE);
    /* slow enough that the codec's route decides */
    sparse.cluster.cluster.inter.rate = quantised.cluster.cluster.inter.rate = 10e9 / 8;
    slow.cluster.cluster.inter.rate = 10e9 / 8;
    plan(&sparse, "randk:density=0.01,values=natural", GW_DEVICE_GPU);
    plan(&quantised, "sign", GW_DEVICE_GPU);
    plan(&slow, "sign", GW_DEVICE_GPU);
    const double share_quantised = elements_by(&quantised, GW_OP_ALLTOALL, 0) /
                                   (1 + elements_by(&quantised, GW_OP_ALLGATHER, 0));
    const double share_sparse =
        elements_by(&sparse, GW_OP_ALLTOALL, 0) / (1 + elements_by(&sparse, GW_OP_ALLGATHER, 0));
    print_message("all-to-all over allgather: quantiser %.2f, sparsifier %.2f\n", share_quantised,
                  share_sparse);
    assert_true(share_quantised >= share_sparse);
    const double near_slow = elements_by(&slow, GW_OP_ALLTOALL, GW_LEVEL_INTRA) +
                             elements_by(&slow, GW_OP_ALLGATHER, GW_LEVEL_INTRA);
    const double near_fast = elements_by(&quantised, GW_OP_ALLTOALL, GW_LEVEL_INTRA) +
                             elements_by(&quantised, GW_OP_ALLGATHER, GW_LEVEL_INTRA);
    print_message("elements compressed inside a node: PCIe %g, NVLink %g\n", near_slow, near_fast);
    assert_true(near_slow >= near_fast);
    release(&sparse);
    release(&quantised);
    release(&slow);
}

/* Caps and bans are kept. */
static void kept_within(void **state)
{
    (void)state;
    scene s;
    load(&s, "lstm.csv", PCIE);
    const gw_params spec = params_of("sign");
    gw_route route;
    gw_plan *made = NULL;
    assert_int_equal(gw_route_parse(&route, "hier-gather@cpu", NULL), GW_OK);
    const gw_plan_request request = {.specs = &spec,
                                     .n_specs = 1,
                                     .max_hops = 1,
                                     .devices = GW_DEVICE_CPU,
                                     .forbidden = &route,
                                     .n_forbidden = 1};
    assert_int_equal(gw_plan_create(&s.job.job, &s.cluster.cluster, &request, &made, NULL), GW_OK);
    for (size_t i = 0; i < s.job.job.n; i++) {
        gw_plan_entry entry;
        assert_int_equal(gw_plan_entry_at(made, i, &entry), GW_OK);
        assert_true(gw_route_encodes(&entry.route) <= 1 && !gw_route_equal(&entry.route, &route));
        for (uint32_t k = 0; k < entry.route.n_steps; k++) {
            assert_true(entry.route.step[k].device != GW_DEVICE_GPU);
        }
    }
    gw_plan_destroy(made);
    release(&s);
}

static void refused(void **state)
{
    (void)state;
    scene s;
    gw_plan *made = NULL;
    gw_why why;
    const gw_plan_request nothing = {.n_specs = 0};
    load(&s, "lstm.csv", PCIE);
    gw_job_tensor tensor = {.name = "w", .elements = 1000000000, .ready = 0.001};
    gw_job job = {.name = "one", .tensors = &tensor, .n = 1, .backward = 0.001};
    gw_cluster *c = &s.cluster.cluster;
    assert_int_equal(gw_plan_create(&job, c, &nothing, &made, &why),
                     GW_OK); /* 10^9 elements are fine */
    assert_true(gw_plan_report_of(made).step > 0.1);
    gw_plan_destroy(made);
    job.n = 0;
    assert_int_equal(gw_plan_create(&job, c, &nothing, &made, &why), GW_ERR_RANGE);
    assert_string_equal(why.text, "the job has no tensors: there is nothing to send");
    job.n = 1;
    job.backward = 0;
    assert_int_equal(gw_plan_create(&job, c, &nothing, &made, &why), GW_ERR_RANGE);
    job.backward = tensor.ready;
    tensor.ready = -1;
    assert_int_equal(gw_plan_create(&job, c, &nothing, &made, &why), GW_ERR_RANGE);
    assert_string_equal(why.text, "tensor 'w': ready at -1 s");
    tensor.ready = 0.001;
    c->inter.rate = 0;
    assert_int_equal(gw_plan_create(&job, c, &nothing, &made, &why), GW_ERR_RANGE);
    assert_string_equal(why.text, "inter: a link needs a rate above 0");
    c->inter.rate = 1e-3; /* bytes a second */
    static gw_job_tensor many[200];
    for (size_t i = 0; i < 200; i++) {
        many[i] = (gw_job_tensor){.name = "w", .elements = 1000000000, .ready = 0.001};
    }
    const gw_job slow = {.name = "slow", .tensors = many, .n = 200, .backward = 0.001};
    assert_int_equal(gw_plan_create(&slow, c, &nothing, &made, &why), GW_ERR_RANGE);
    assert_non_null(strstr(why.text, "years: does the cluster fit the job?"));
    c->inter.rate = 1e9;
    const gw_params unmeasured = params_of("natural:bits=8");
    const gw_plan_request strange = {.specs = &unmeasured, .n_specs = 1};
    assert_int_equal(gw_plan_create(&job, c, &strange, &made, &why), GW_ERR_UNKNOWN);
    assert_string_equal(
        why.text,
        "cluster 'espresso-pcie-25g' does not say what natural costs on a device that may code");
    gw_plan_entry entry = {.tensor = 0, .params = params_of("cast:to=bf16")};
    double seconds = 0;
    assert_int_equal(gw_plan_predict(&s.job.job, c, &entry, 1, 0, &seconds, &why), GW_ERR_ARG);
    assert_string_equal(why.text, "the plan has 1 tensors, the job 10");
    release(&s);
}

/* ---- prices ---- */

/* Two tensors of 1000 elements that are ready at once, one way, in one bucket or in two; two nodes of one rank whose processors compute. */
static double two_tensors(const char *spec, double latency, double copy_rate, uint32_t buckets)
{
    gw_job_tensor tensors[] = {{.name = "a", .elements = 1000}, {.name = "b", .elements = 1000}};
    const gw_job job = {.tensors = tensors, .n = 2};
    gw_codec_cost cost = {.params = params_of(spec),
                          .device = GW_DEVICE_CPU,
                          .encode = {.n = 1, .point = {{.bytes = 1}}},
                          .decode = {.n = 1, .point = {{.bytes = 1}}}};
    const gw_cluster cluster = {.nodes = 2,
                                .ranks_per_node = 1,
                                .codecs = &cost,
                                .n_codecs = 1,
                                .inter = {.latency = latency, .rate = 1e18},
                                .copy = {.rate = copy_rate}};
    gw_plan_entry entries[2];
    double seconds = NAN;
    gw_why why = {""};
    for (uint32_t i = 0; i < 2; i++) {
        entries[i] =
            (gw_plan_entry){.tensor = i, .bucket = buckets == 2 ? i : 0, .params = params_of(spec)};
        assert_int_equal(gw_route_parse(&entries[i].route, "gather", &why), GW_OK);
    }
    const gw_status status = gw_plan_predict(&job, &cluster, entries, 2, 0, &seconds, &why);
    CHECK(status == GW_OK, "%s", why.text);
    return seconds;
}

static void near(double seconds, double expected)
{
    CHECK(fabs(seconds - expected) < 1e-6, "%g s, not %g", seconds, expected);
}

/* Payloads whose length depends on the data follow their lengths; tensors that travel together are copied, there and back. */
static void prices(void **state)
{
    (void)state;
    near(two_tensors("natural:bits=8", 1e-3, 1e18, 1), 1e-3);
    near(two_tensors("adacomp", 1e-3, 1e18, 1), 2e-3);
    near(two_tensors("adacomp", 1e-3, 1e18, 2), 4e-3);
    near(two_tensors("natural:bits=8", 1e-3, 8e6, 1), 3e-3); /* 8000 bytes, 1 ms */
    near(two_tensors("natural:bits=8", 1e-3, 8e6, 2), 2e-3);
}

/* Four ranks on two nodes, one tensor, one uncompressed route, links without latency: seconds of its bytes. */
static double dense_seconds(gw_dtype dtype, const gw_route *route, uint32_t buckets)
{
    gw_job_tensor tensors[] = {{.name = "a", .elements = 120000},
                               {.name = "b", .elements = 240000}};
    const gw_job job = {.tensors = tensors, .n = 2, .dtype = dtype};
    const gw_cluster cluster = {.nodes = 2,
                                .ranks_per_node = 2,
                                .intra = {.rate = 1e8},
                                .inter = {.rate = 1e7},
                                .copy = {.rate = 1e9}};
    gw_plan_entry entries[2];
    double seconds = NAN;
    gw_why why = {""};
    for (uint32_t i = 0; i < 2; i++) {
        entries[i] = (gw_plan_entry){.tensor = i, .bucket = buckets == 2 ? i : 0, .route = *route};
    }
    const gw_status status = gw_plan_predict(&job, &cluster, entries, 2, 0, &seconds, &why);
    CHECK(status == GW_OK, "%s", why.text);
    return seconds;
}

/* Numbers of 16 bits take half the time of fp32's on links and in copies; a cast that would spare nothing is no candidate. */
static void sixteen_bits(void **state)
{
    (void)state;
    static const gw_dtype halves[] = {GW_F16, GW_BF16};
    gw_route routes[256];
    size_t n = 0, plain = 0;
    assert_int_equal(gw_route_list(GW_DEVICE_CPU, 0, routes, 256, &n, NULL), GW_OK);
    for (size_t i = 0; i < n; i++) {
        for (int d = 0; d < 2 && gw_route_encodes(&routes[i]) == 0; d++, plain++) {
            for (uint32_t buckets = 1; buckets <= 2; buckets++) {
                const double whole = dense_seconds(GW_F32, &routes[i], buckets);
                near(2 * dense_seconds(halves[d], &routes[i], buckets), whole);
                near(dense_seconds(0, &routes[i], buckets), whole);
            }
        }
    }
    assert_int_equal(plain, 2 * 9);
    scene s;
    const gw_plan_request nothing = {.n_specs = 0};
    load(&s, "vgg16.csv", PCIE);
    for (int d = 0; d < 2; d++) {
        gw_plan *made = NULL;
        gw_why why = {""};
        s.job.job.dtype = halves[d];
        assert_int_equal(gw_plan_create(&s.job.job, &s.cluster.cluster, &nothing, &made, &why),
                         GW_OK);
        const gw_plan_report r = gw_plan_report_of(made);
        assert_true(r.bf16 == r.dense && r.step <= r.dense && r.lower_bound <= r.step);
        assert_true(isnan(r.all_compressed) && r.compressed == 0);
        gw_plan_destroy(made);
    }
    gw_plan *made = NULL;
    gw_why why = {""};
    s.job.job.dtype = (gw_dtype)77;
    assert_int_equal(gw_plan_create(&s.job.job, &s.cluster.cluster, &nothing, &made, &why),
                     GW_ERR_ARG);
    assert_string_equal(why.text, "gradients of an unknown dtype, 77");
    release(&s);
}

/* A matrix of 100 x 50 in two rounds of sums, of 200 and of 100 numbers, each with half of the coding. */
static void rounds_have_a_price(void **state)
{
    (void)state;
    if (gw_codec_find("lowrank") == NULL) {
        print_message("skip: no lowrank in this build\n");
        return;
    }
    const gw_job_tensor tensor = {.name = "a", .elements = 5000};
    const gw_job job = {.tensors = &tensor, .n = 1};
    const gw_codec_cost costs[] = {
        {.params = params_of("lowrank:rank=4"),
         .device = GW_DEVICE_CPU,
         .encode = {.n = 1, .point = {{.bytes = 20000, .seconds = 1}}},
         .decode = {.n = 1, .point = {{.bytes = 20000, .seconds = 1}}}},
        {.params = params_of("lowrank:rank=2"), /* shares more settings with what is asked for */
         .device = GW_DEVICE_CPU,
         .encode = {.n = 1, .point = {{.bytes = 20000, .seconds = 4e-3}}},
         .decode = {.n = 1, .point = {{.bytes = 20000, .seconds = 2e-3}}}},
        {.params = params_of("cast:to=bf16"), /* always among the candidates */
         .device = GW_DEVICE_CPU,
         .encode = {.n = 1, .point = {{.bytes = 20000, .seconds = 1}}},
         .decode = {.n = 1, .point = {{.bytes = 20000, .seconds = 1}}}}};
    const gw_cluster cluster = {.nodes = 2,
                                .ranks_per_node = 1,
                                .codecs = costs,
                                .n_codecs = 3,
                                .inter = {.latency = 1e-4, .rate = 1e6}};
    gw_plan_entry entry = {.params = params_of("lowrank:rank=2,cols=50")};
    double seconds = NAN;
    gw_why why = {""};
    assert_int_equal(gw_route_parse(&entry.route, "sum", &why), GW_OK);
    assert_int_equal(gw_plan_predict(&job, &cluster, &entry, 1, 0, &seconds, &why), GW_OK);
    near(seconds, 6e-3 + 1200 / 1e6 + 4e-4);
    size_t n = 64;
    gw_interval drawn[64];
    assert_int_equal(gw_plan_draw(&job, &cluster, &entry, 1, 0, drawn, &n, &why), GW_OK);
    assert_int_equal(n, 6);
    near(1e-9 * (double)drawn[1].end, 2e-3 + 1e-3); /* half of the encoding, and 800 bytes */
    const gw_plan_request request = {.specs = &entry.params, .n_specs = 1};
    gw_plan *plan = NULL;
    assert_int_equal(gw_plan_create(&job, &cluster, &request, &plan, &why), GW_OK);
    assert_int_equal(gw_plan_entry_at(plan, 0, &entry), GW_OK);
    assert_ptr_equal(entry.params.codec, costs[0].params.codec); /* dense: 20.2 ms */
    gw_plan_destroy(plan);
}

/* Three tensors, four ranks whose processors compute: a step of 64 elements each along one way. */
static double short_step(double beside, uint32_t workers, const char *route)
{
    gw_job_tensor tensors[] = {{.name = "a", .elements = 64, .ready = 1e-3},
                               {.name = "b", .elements = 64, .ready = 2e-3},
                               {.name = "c", .elements = 64, .ready = 2e-3}};
    const gw_job job = {
        .tensors = tensors, .n = 3, .forward = 1e-3, .backward = 3e-3, .beside = beside};
    const gw_cluster cluster = {.nodes = 4,
                                .ranks_per_node = 1,
                                .cpu_workers = workers,
                                .inter = {.latency = 1e-4, .rate = 1e18}};
    gw_plan_entry entries[3];
    double seconds = NAN;
    gw_why why = {""};
    for (uint32_t i = 0; i < 3; i++) {
        entries[i] = (gw_plan_entry){.tensor = i, .bucket = i};
        assert_int_equal(gw_route_parse(&entries[i].route, route, &why), GW_OK);
    }
    const gw_status status = gw_plan_predict(&job, &cluster, entries, 3, 0, &seconds, &why);
    CHECK(status == GW_OK, "%s", why.text);
    return seconds;
}

/* What a step of short exchanges was measured to take comes out; half of its messages take half as much from the cores; where these
 * do not send, and where a step takes no longer than its computing, it has no price. */
static void exchanges_need_cores(void **state)
{
    (void)state;
    near(short_step(0, 0, "dense"), 4e-3);
    near(short_step(7e-3, 0, "dense"), 7e-3);
    near(short_step(5e-3, 0, "dense"), 5e-3);
    near(short_step(3e-3, 0, "dense"), 4e-3);
    near(short_step(7e-3, 2, "dense"), 4e-3);
    const double half =
        short_step(7e-3, 0, "flat:reduce \xC2\xB7 flat:broadcast"); /* three phases */
    CHECK(half > 8e-3 && half < 9e-3, "%g s for half as many messages again", half);
}

/* One tensor to the root and back; a payload's byte takes 10 ns, coding nothing. */
static double rooted_step(uint64_t elements, double beside, uint32_t ranks_per_node,
                          const char *route)
{
    gw_job_tensor tensor = {.name = "a", .elements = elements, .ready = 0};
    const gw_job job = {.tensors = &tensor, .n = 1, .forward = 1e-9, .beside = beside};
    gw_codec_cost cost = {.params = params_of("cast:to=bf16"),
                          .device = GW_DEVICE_CPU,
                          .encode = {.point = {{.bytes = 1}}, .n = 1},
                          .decode = {.point = {{.bytes = 1}}, .n = 1}};
    gw_plan_entry entry = {.tensor = 0, .params = params_of("cast:to=bf16")};
    double seconds = NAN;
    gw_why why = {""};
    assert_int_equal(gw_route_parse(&entry.route, route, &why), GW_OK);
    const gw_cluster cluster = {.nodes = 2,
                                .ranks_per_node = ranks_per_node,
                                .intra = {.rate = 1e18},
                                .inter = {.rate = 1e8},
                                .codecs = &cost,
                                .n_codecs = 1};
    const gw_status status = gw_plan_predict(&job, &cluster, &entry, 1, 0, &seconds, &why);
    CHECK(status == GW_OK, "%s", why.text);
    return seconds;
}

/* A tensor that is cut, or in parts of a node's ranks, goes back while the rest is still coming: six tenths of what could overlap. */
static void roots_send_while_they_gather(void **state)
{
    (void)state;
    const uint64_t piece = 256 * 1024;
    const double there = (double)piece * 2 * 1e-8, beside = 1e-8; /* seconds of a piece, one way */
    const char *parts =
        "intra:reduce_scatter \xC2\xB7 encode@cpu \xC2\xB7 inter:gather \xC2\xB7 decode@cpu "
        "\xC2\xB7 encode@cpu \xC2\xB7 inter:broadcast \xC2\xB7 decode@cpu \xC2\xB7 intra:allgather";
    const double whole = rooted_step(piece, beside, 1, "star"),
                 cut = rooted_step(4 * piece, beside, 1, "star"),
                 not_measured = rooted_step(4 * piece, 0, 1, "star"),
                 two = rooted_step(piece, beside, 2, parts);
    CHECK(fabs(whole / there - 2) < 0.01, "%g of a piece's way", whole / there);
    CHECK(fabs(cut / there - (8 - 0.6 * 4 * 0.75)) < 0.01, "%g of a piece's way", cut / there);
    CHECK(fabs(not_measured / there - 8) < 0.01, "%g of a piece's way", not_measured / there);
    CHECK(fabs(two / there - (2 - 0.6 * 0.5)) < 0.01, "%g of a piece's way", two / there);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(spans),
                                       cmocka_unit_test(profiles),
                                       cmocka_unit_test(same_again),
                                       cmocka_unit_test(one_rank_or_one_node),
                                       cmocka_unit_test(directions),
                                       cmocka_unit_test(kept_within),
                                       cmocka_unit_test(prices),
                                       cmocka_unit_test(rounds_have_a_price),
                                       cmocka_unit_test(sixteen_bits),
                                       cmocka_unit_test(refused),
                                       cmocka_unit_test(exchanges_need_cores),
                                       cmocka_unit_test(roots_send_while_they_gather)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
