/* Tensors that no codec may take: biases and norms. */
#include "support/check.h"

#include <gradwire/joint.h>

#include <math.h>

enum { TENSORS = 8, LARGE = 100000, SMALL = 200 };

typedef struct scene {
    gw_job_tensor tensor[TENSORS];
    gw_job job;
    gw_codec_cost cost[2];
    gw_cluster cluster;
} scene;

/* Weights and biases in turn on two nodes and a slow link; the last weight is flagged as a bias is. */
static void make(scene *s)
{
    static const char *const NAMES[TENSORS] = {"w0", "b0", "w1", "b1", "w2", "b2", "w3", "table"};
    for (unsigned i = 0; i < TENSORS; i++) {
        const int bias = NAMES[i][0] == 'b';
        s->tensor[i] = (gw_job_tensor){.name = NAMES[i],
                                       .elements = bias ? SMALL : LARGE,
                                       .ready = 1e-3,
                                       .uncompressed = bias || NAMES[i][0] == 't'};
    }
    s->job = (gw_job){.name = "j", .tensors = s->tensor, .n = TENSORS, .backward = 1e-3};
    for (unsigned i = 0; i < 2; i++) {
        s->cost[i] =
            (gw_codec_cost){.params = params_of(i ? "natural:bits=8" : "cast:to=bf16"),
                            .device = GW_DEVICE_CPU,
                            .encode = {.n = 1, .point = {{.bytes = 1e4, .seconds = 1e-6}}},
                            .decode = {.n = 1, .point = {{.bytes = 1e4, .seconds = 1e-6}}}};
    }
    s->cluster = (gw_cluster){.name = "c",
                              .nodes = 2,
                              .ranks_per_node = 1,
                              .inter = {.latency = 1e-4, .rate = 1e7},
                              .copy = {.rate = 1e10},
                              .cpu_workers = 1,
                              .codecs = s->cost,
                              .n_codecs = 2};
}

static gw_plan *plan(const scene *s)
{
    const gw_params natural = params_of("natural:bits=8");
    const gw_plan_request request = {.specs = &natural, .n_specs = 1};
    gw_plan *made = NULL;
    gw_why why = {""};
    const gw_status status = gw_plan_create(&s->job, &s->cluster, &request, &made, &why);
    CHECK(status == GW_OK, "%s", why.text);
    return made;
}

static void stay_as_they_are(void **state)
{
    (void)state;
    scene s;
    make(&s);
    gw_plan *made = plan(&s);
    const gw_plan_report r = gw_plan_report_of(made);
    gw_plan_entry all[TENSORS];
    double seconds = 0;
    for (unsigned i = 0; i < TENSORS; i++) {
        assert_int_equal(gw_plan_entry_at(made, i, &all[i]), GW_OK);
        const int coded = all[i].params.codec != NULL;
        CHECK(coded != s.tensor[i].uncompressed, "tensor %u: coded %d", i, coded);
        CHECK(coded == (gw_route_encodes(&all[i].route) > 0), "tensor %u: its route", i);
    }
    assert_int_equal(gw_plan_predict(&s.job, &s.cluster, all, TENSORS, 0, &seconds, NULL), GW_OK);
    CHECK(fabs(seconds - r.step) < 1e-9, "%g s drawn, %g s reported", seconds, r.step);
    CHECK(r.lower_bound <= r.step && r.step < r.bf16 && r.bf16 < r.dense,
          "bound %g, plan %g, bf16 %g, dense %g", r.lower_bound, r.step, r.bf16, r.dense);
    gw_plan_destroy(made);
    /* baselines are of everything */
    for (unsigned i = 0; i < TENSORS; i++) {
        s.tensor[i].uncompressed = 0;
    }
    made = plan(&s);
    const gw_plan_report free = gw_plan_report_of(made);
    CHECK(free.dense == r.dense && free.bf16 == r.bf16 && free.all_compressed == r.all_compressed,
          "dense %g and %g, bf16 %g and %g", free.dense, r.dense, free.bf16, r.bf16);
    CHECK(free.step < r.step, "%g, and %g with some uncompressed", free.step, r.step);
    gw_plan_destroy(made);
}

/* Nothing may be coded: the plan is the best uncompressed one, and no bound is above it. */
static void all_of_them(void **state)
{
    (void)state;
    scene s;
    make(&s);
    for (unsigned i = 0; i < TENSORS; i++) {
        s.tensor[i].uncompressed = 1;
    }
    gw_plan *made = plan(&s);
    const gw_plan_report r = gw_plan_report_of(made);
    assert_int_equal(r.compressed, 0);
    CHECK(r.step <= r.dense && r.lower_bound <= r.step && r.zero_cost <= r.step,
          "bound %g, free %g, plan %g, dense %g", r.lower_bound, r.zero_cost, r.step, r.dense);
    gw_plan_destroy(made);
}

/* Within a budget they have no levels; one that has some is named. */
static void have_no_levels(void **state)
{
    (void)state;
    scene s;
    make(&s);
    const gw_params natural = params_of("natural:bits=8");
    const double error = 0.25;
    gw_joint_tensor tensors[TENSORS] = {{.n = 0}};
    const gw_joint_request request = {.tensors = tensors, .n_tensors = TENSORS, .alpha = 2};
    gw_joint_report report;
    gw_plan *made = NULL;
    gw_why why = {""};
    for (unsigned i = 0; i < TENSORS; i++) {
        if (!s.tensor[i].uncompressed) {
            tensors[i] = (gw_joint_tensor){.levels = &natural, .errors = &error, .n = 1};
        }
    }
    const gw_status status = gw_joint_create(&s.job, &s.cluster, &request, &made, &report, &why);
    CHECK(status == GW_OK, "%s", why.text);
    for (unsigned i = 0; i < TENSORS; i++) {
        gw_plan_entry entry;
        assert_int_equal(gw_plan_entry_at(made, i, &entry), GW_OK);
        CHECK((entry.params.codec != NULL) != s.tensor[i].uncompressed, "tensor %u", i);
    }
    gw_plan_destroy(made);
    tensors[1] = (gw_joint_tensor){.levels = &natural, .errors = &error, .n = 1};
    assert_int_equal(gw_joint_create(&s.job, &s.cluster, &request, &made, &report, &why),
                     GW_ERR_ARG);
    assert_string_equal(why.text, "tensor 'b0' is to be sent uncompressed and has levels");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(stay_as_they_are),
                                       cmocka_unit_test(all_of_them),
                                       cmocka_unit_test(have_no_levels)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
