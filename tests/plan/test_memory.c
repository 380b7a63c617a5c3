/* An allocation that fails anywhere is GW_ERR_MEMORY with a reason, and nothing leaks: the planners, the residual store, the
 * pool, a host's groups. Of a step: tests/step/test_memory.c. */
#include "support/allocations.h"
#include "support/check.h"

#include <gradwire/hosted.h>
#include <gradwire/joint.h>
#include <gradwire/plan.h>
#include <gradwire/threads.h>
#include <gradwire/together.h>

enum { TENSORS = 3, CODECS = 2 };

typedef struct problem {
    gw_job_tensor tensors[TENSORS];
    gw_job job;
    gw_codec_cost costs[CODECS];
    gw_params specs[CODECS];
    gw_cluster cluster;
    double errors[CODECS];
    gw_joint_tensor joint[TENSORS];
} problem;

static void make(problem *p)
{
    static const char *const names[TENSORS] = {"a", "b", "c"};
    static const char *const specs[CODECS] = {"dither:bits=4", "cast:to=bf16"};
    *p = (problem){.errors = {0.2, 0.001}};
    for (uint32_t i = 0; i < CODECS; i++) {
        const gw_cost_curve curve = {.n = 1, .point = {{.bytes = 4096, .seconds = 1e-6}}};
        p->specs[i] = params_of(specs[i]);
        p->costs[i] = (gw_codec_cost){p->specs[i], GW_DEVICE_CPU, curve, curve};
    }
    for (uint32_t i = 0; i < TENSORS; i++) {
        p->tensors[i] = (gw_job_tensor){
            .name = names[i], .elements = 20000 * (i / 2 + 1), .ready = 1e-3 * (i + 1)};
        p->joint[i] = (gw_joint_tensor){p->specs, p->errors, CODECS, 0};
    }
    p->job = (gw_job){.name = "job", .tensors = p->tensors, .n = TENSORS, .backward = 6e-3};
    p->cluster = (gw_cluster){.name = "cluster",
                              .nodes = 2,
                              .ranks_per_node = 1,
                              .intra = {.latency = 1e-6, .rate = 1e10},
                              .inter = {.latency = 1e-5, .rate = 1e7},
                              .cpu_workers = 1,
                              .codecs = p->costs,
                              .n_codecs = CODECS};
}

static gw_status plan(void *arg, gw_why *why)
{
    problem *p = arg;
    gw_plan *made = NULL;
    gw_plan_entry entries[TENSORS];
    double seconds = 0;
    const gw_plan_request request = {.specs = p->specs, .n_specs = CODECS, .no_fusion = 1};
    gw_status status = gw_plan_create(&p->job, &p->cluster, &request, &made, why);
    for (uint32_t i = 0; status == GW_OK && i < TENSORS; i++) {
        status = gw_plan_entry_at(made, i, &entries[i]);
    }
    if (status == GW_OK) {
        status = gw_plan_predict(&p->job, &p->cluster, entries, TENSORS, 0, &seconds, why);
    }
    gw_plan_destroy(made);
    return status;
}

static gw_status joint(void *arg, gw_why *why)
{
    problem *p = arg;
    gw_plan *made = NULL;
    gw_joint_report report;
    const gw_joint_request request = {
        .tensors = p->joint, .n_tensors = TENSORS, .alpha = 1, .max_hops = 1, .no_fusion = 1};
    const gw_status status = gw_joint_create(&p->job, &p->cluster, &request, &made, &report, why);
    gw_plan_destroy(made);
    return status;
}

static void planners(void **state)
{
    (void)state;
    problem p;
    make(&p);
    const uint64_t plans = allocations_try("gw_plan_create", plan, &p);
    const uint64_t joints = allocations_try("gw_joint_create", joint, &p);
    print_message("%llu and %llu allocations\n", (unsigned long long)plans,
                  (unsigned long long)joints);
    CHECK(plans > 20 && joints > 20, "only %llu and %llu", (unsigned long long)plans,
          (unsigned long long)joints);
}

static gw_status residuals(void *arg, gw_why *why)
{
    static unsigned char checkpoint[8192];
    gw_feedback *store = NULL;
    uint32_t tensor = 0;
    uint64_t slot = 0;
    size_t written = 0;
    gw_feedback_told told;
    (void)arg;
    gw_status status = gw_feedback_create(GW_FEEDBACK_BESIDE, 0, 1, &store, why);
    for (uint32_t i = 0; i < 3 && status == GW_OK; i++) {
        const char name[2] = {(char)('a' + i), '\0'};
        status = gw_feedback_add_tensor(store, name, 100, &tensor, why);
        if (status == GW_OK) {
            status = gw_feedback_add(store, tensor, 0, 0, 100, &slot, why);
        }
    }
    if (status == GW_OK) {
        status = gw_feedback_retire(store, slot, why);
    }
    if (status == GW_OK) {
        status = gw_feedback_save(store, checkpoint, sizeof checkpoint, &written, why);
    }
    if (status == GW_OK) {
        const gw_feedback_blob blob = {checkpoint, written};
        status = gw_feedback_load(store, 1, &blob, 1, &told, why);
    }
    gw_feedback_destroy(store);
    return status;
}

static gw_status pool(void *arg, gw_why *why)
{
    gw_pool *made = NULL;
    (void)arg;
    const gw_status status = gw_pool_create(3, &made);
    if (status != GW_OK) {
        (void)snprintf(why->text, sizeof why->text, "%s", gw_status_string(status));
    }
    gw_pool_destroy(made);
    return status;
}

static gw_status groups(void *arg, gw_why *why)
{
    gw_hosted *host = NULL;
    gw_comm *part = NULL;
    gw_together *together = NULL;
    (void)arg;
    gw_status status = gw_hosted_create(0, 1, &host, why);
    if (status == GW_OK) {
        gw_comm *comm = gw_hosted_comm(host);
        status = comm->table->split(comm, 0, 0, &part, why);
    }
    if (status == GW_OK) {
        status = gw_together_create(part, 3, 100, &together, why);
    }
    gw_together_destroy(together);
    if (part != NULL) {
        part->table->close(part);
    }
    const gw_status freed = gw_hosted_destroy(host);
    return status != GW_OK ? status : freed;
}

static gw_status threads(void *arg, gw_why *why)
{
    gw_threads *world = NULL;
    (void)arg;
    const gw_status status =
        gw_threads_create(&(gw_threads_config){.ranks = 4, .ranks_per_node = 2}, &world, why);
    gw_threads_destroy(world);
    return status;
}

static void stores_and_groups(void **state)
{
    (void)state;
    assert_true(allocations_try("gw_feedback", residuals, NULL) > 10);
    assert_true(allocations_try("gw_pool_create", pool, NULL) >= 1);
    assert_true(allocations_try("gw_hosted", groups, NULL) > 10);
    assert_true(allocations_try("gw_threads_create", threads, NULL) > 3);
}

/* What allocations_try looks at. */
static void control(void **state)
{
    (void)state;
    void *(*volatile allocate)(size_t) = malloc; /* no compiler leaves it out */
    const int64_t before = allocations_live();
    allocations_fail(2);
    void *first = allocate(1), *second = allocate(1);
    assert_true(first != NULL && second == NULL && allocations_failed());
    assert_int_equal(allocations_live() - before, 1);
    allocations_fail(0);
    free(first);
    free(second);
    assert_int_equal(allocations_live(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(control), cmocka_unit_test(planners),
                                       cmocka_unit_test(stores_and_groups)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
