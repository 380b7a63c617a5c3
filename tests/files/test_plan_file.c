/* Plan, cluster and job files in C programs: what is read, what is refused and where, and a step that runs a plan. */
#include "support/check.h"
#include "support/ranks.h"

#include <gradwire/files.h>

#include <unistd.h>

#define TENSOR(name, elements, spec, route, bucket)                                                \
    "{\"name\":\"" name "\",\"elements\":" #elements ",\"spec\":\"" spec "\",\"route\":\"" route   \
    "\",\"bucket\":" #bucket "}"
#define PLAN(tensors) "{\"format\":\"gradwire.plan/1\",\"tensors\":[" tensors "]}"

static const char GOOD[] = PLAN(TENSOR("c", 64, "sign", "gather", 0) "," TENSOR(
    "a", 64, "sign", "gather", 0) "," TENSOR("b", 128, "dense", "dense", 3));

static gw_plan_file *plan_of(const char *text)
{
    gw_plan_file *plan = NULL;
    gw_why why = {""};
    CHECK(gw_plan_parse("p.json", text, strlen(text), &plan, &why) == GW_OK, "%s", why.text);
    return plan;
}

/* ---- reading ---- */

static void a_plan_is_read(void **state)
{
    (void)state;
    gw_plan_file *plan = plan_of(GOOD);
    const gw_plan_tensor *a = gw_plan_file_at(plan, 1), *b = gw_plan_file_at(plan, 2);
    assert_int_equal(plan->n, 3);
    assert_null(gw_plan_file_at(plan, 3));
    assert_string_equal(plan->path, "p.json");
    assert_string_equal(a->name, "a");
    assert_string_equal(a->spec, "sign");
    assert_string_equal(a->along, "gather");
    assert_string_equal(gw_codec_name(a->params.codec), "sign");
    assert_int_equal(gw_route_encodes(&a->route), 1);
    assert_int_equal(b->elements, 128);
    assert_int_equal(b->bucket, 3);
    assert_null(b->params.codec);
    gw_plan_file_free(plan);
    gw_plan_file_free(NULL);
}

static void what_is_wrong_has_a_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"", "p.json: line 1, column 0: "},
        {"[]", "p.json: is not an object"},
        {"{\"format\":\"gradwire.job/1\"}",
         "p.json: its format is 'gradwire.job/1', not 'gradwire.plan/1'"},
        {"{\"format\":\"gradwire.plan/1\"}", "p.json: key 'tensors' is missing"},
        {"{\"format\":\"gradwire.plan/1\",\"tensors\":[],\"lanes\":3}",
         "p.json: unknown key 'lanes'"},
        {PLAN(""), "p.json: tensors: has 0 entries; 1 to 65536 can be read"},
        {PLAN("{\"name\":\"a\"}"), "p.json: tensors[0]: key 'elements' is missing"},
        {PLAN(TENSOR("a", 0, "dense", "dense", 0)),
         "p.json: tensors[0].elements: is not a whole number from 1 to 1099511627776"},
        {PLAN(TENSOR("a", 1, "zip", "gather", 0)),
         "p.json: tensors[0].spec: 'a': no codec named 'zip'"},
        {PLAN(TENSOR("a", 1, "sign", "far", 0)), "p.json: tensors[0].route: 'a': "},
        {PLAN(TENSOR("a", 1, "auto", "gather", 0)),
         "p.json: tensors[0].spec: 'a': 'auto': a plan has one codec for each tensor"},
        {PLAN(TENSOR("a", 1, "sign", "dense", 0)),
         "p.json: tensors[0]: 'a': the route encodes nothing, and the spec is sign"},
        {PLAN(TENSOR("a", 1, "dense", "dense", 1) "," TENSOR("b", 1, "dense", "dense", 0)),
         "p.json: tensors[1]: bucket 0 comes after bucket 1"},
        {PLAN(TENSOR("a", 1, "dense", "dense", 0) "," TENSOR("b", 1, "sign", "gather", 0)),
         "p.json: tensors[1]: bucket 0 goes two ways"},
        {PLAN(TENSOR("a", 1, "dense", "dense", 0) "," TENSOR("a", 1, "dense", "dense", 1)),
         "p.json: tensors: two tensors are named 'a'"},
        {"{\"format\":\"gradwire.plan/1\",\"tensors\":[" TENSOR("a", 1, "dense", "dense",
                                                                0) "],\"cluster\":{\"name\":1}}",
         "p.json: cluster: key 'checksum' is missing"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_plan_file *plan = NULL;
        gw_why why = {""};
        const char *text = cases[i].text;
        assert_int_equal(gw_plan_parse("p.json", text, strlen(text), &plan, &why), GW_ERR_CORRUPT);
        CHECK(strncmp(why.text, cases[i].words, strlen(cases[i].words)) == 0, "'%s', not '%s'",
              why.text, cases[i].words);
        assert_null(plan);
        assert_int_equal(gw_plan_parse("p.json", text, strlen(text), &plan, NULL), GW_ERR_CORRUPT);
    }
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, strlen(text), file), strlen(text));
    assert_int_equal(fclose(file), 0);
}

static void files_are_read_by_name(void **state)
{
    (void)state;
    char path[] = "/tmp/gradwire-XXXXXX";
    gw_plan_file *plan = NULL;
    gw_cluster *cluster = NULL;
    gw_job *job = NULL;
    gw_why why = {""};
    const int file = mkstemp(path);
    assert_true(file >= 0);
    (void)close(file);
    write_file(path, GOOD);
    assert_int_equal(gw_plan_read(path, &plan, &why), GW_OK);
    assert_int_equal(plan->n, 3);
    gw_plan_file_free(plan);
    assert_int_equal(gw_job_read(path, &job, &why), GW_ERR_CORRUPT);
    CHECK(strncmp(why.text, path, strlen(path)) == 0, "%s", why.text);
    write_file(path, "{\"format\":\"gradwire.job/1\",\"name\":\"j\",\"tensors\":[{\"name\":\"a\","
                     "\"shape\":[2,3],\"ready_ms\":2}]}");
    assert_int_equal(gw_job_read(path, &job, &why), GW_OK);
    assert_int_equal(job->tensors[0].elements, 6);
    gw_job_free(job);
    write_file(path, "{\"format\":\"gradwire.cluster/1\",\"name\":\"c\",\"nodes\":2,"
                     "\"ranks_per_node\":1,\"device\":\"cpu\",\"cpu_workers\":0,\"inter\":"
                     "{\"latency_us\":1,\"gbit_per_s\":8},\"codecs\":[]}");
    assert_int_equal(gw_cluster_read(path, &cluster, &why), GW_OK);
    assert_true(cluster->nodes == 2 && cluster->inter.rate == 1e9);
    gw_cluster_free(cluster);
    assert_int_equal(remove(path), 0);
    assert_int_equal(gw_cluster_read(path, &cluster, &why), GW_ERR_SYSTEM);
    CHECK(strstr(why.text, path) && strstr(why.text, "No such file"), "%s", why.text);
    assert_int_equal(gw_plan_read("/dev/null", &plan, &why), GW_ERR_SYSTEM);
    CHECK(strstr(why.text, "/dev/null: not a regular file") != NULL, "%s", why.text);
}

/* ---- a step ---- */

/* A layer of the caller's, then the plan's three. */
static gw_step *step_of(gw_comm *comm)
{
    static const struct {
        const char *name;
        uint64_t elements;
    } layers[] = {{"loss", 2}, {"a", 64}, {"b", 128}, {"c", 64}};
    const gw_step_config config = {.comm = comm};
    gw_step *step = NULL;
    gw_why why = {""};
    uint32_t number = 0;
    RANK_OK(gw_step_create(&config, &step, &why), why.text);
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        RANK_OK(gw_step_add(step, layers[i].name, &layers[i].elements, 1, GW_F32, &number, &why),
                why.text);
    }
    return step;
}

static void run_plan(ranks *all, uint32_t rank, gw_comm *comm, void *plan)
{
    gw_step *step = step_of(comm);
    gw_why why = {""};
    gw_params params;
    gw_route route;
    float numbers[4][128] = {{0}};
    (void)all;
    RANK_OK(gw_step_use_plan(step, plan, 1, &why), why.text);
    RANK_OK(gw_step_agree(step, &why), why.text);
    for (uint32_t i = 0; i < 4; i++) {
        const int coded = i == 1 || i == 3;
        RANK_OK(gw_step_planned(step, i, &params, &route), "planned");
        RANK_TRUE((params.codec != NULL) == coded, "the codec is not the plan's");
        const gw_tensor tensor = {numbers[i], i == 0 ? 2 : i == 2 ? 128 : 64, GW_F32};
        numbers[i][0] = (float)rank;
        RANK_OK(gw_step_post(step, i, &tensor, &why), why.text);
    }
    RANK_OK(gw_step_wait(step, NULL, &why), why.text);
    for (uint32_t i = 0; i < 4; i++) { /* a and c are a bucket, whose bytes stand at its first */
        gw_layer_stats stats;
        RANK_OK(gw_step_stats(step, i, &stats), "stats");
        RANK_TRUE((stats.bytes_sent[0] + stats.bytes_sent[1] == 0) == (i == 1), "another bucket");
    }
    gw_step_destroy(step);
}

static void a_step_runs_a_plan(void **state)
{
    (void)state;
    gw_plan_file *plan = plan_of(GOOD);
    ranks_run(&(gw_threads_config){.ranks = 2}, run_plan, plan);
    gw_plan_file_free(plan);
}

static void refuse_plans(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
#define A TENSOR("a", 64, "dense", "dense", 0)
#define B TENSOR("b", 128, "dense", "dense", 1)
    static const struct {
        const char *text, *words;
        gw_status status;
    } cases[] = {
        {PLAN(A "," B),
         "p.json: the plan says nothing of 'c', which this model has: a plan for "
         "another model?",
         GW_ERR_DISAGREE},
        {PLAN(A "," B
                "," TENSOR("c", 64, "dense", "dense", 2) "," TENSOR("d", 1, "dense", "dense", 3)),
         "p.json: the plan has a tensor 'd', and this model has not: a plan for another model?",
         GW_ERR_DISAGREE},
        {PLAN(A "," B "," TENSOR("loss", 2, "dense", "dense", 2)),
         "p.json: the plan has a tensor 'loss', and this model has not", GW_ERR_DISAGREE},
        {PLAN(A "," TENSOR("b", 129, "dense", "dense", 1)),
         "p.json: 'b' has 129 elements in the plan, and 128 in this model", GW_ERR_DISAGREE},
        {PLAN(A "," B "," TENSOR("c", 64, "sign", "gather@gpu", 2)),
         "p.json: 'c' is coded on a GPU, and cannot be here: plan with --devices cpu",
         GW_ERR_UNSUPPORTED},
    };
    gw_step *step = step_of(comm);
    (void)all;
    (void)rank;
    (void)arg;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        gw_plan_file *plan = plan_of(cases[i].text);
        gw_why why = {""};
        RANK_TRUE(gw_step_use_plan(step, plan, 1, &why) == cases[i].status, cases[i].words);
        RANK_TRUE(strncmp(why.text, cases[i].words, strlen(cases[i].words)) == 0, why.text);
        gw_plan_file_free(plan);
    }
    gw_step_destroy(step);
}

static void other_plans_are_refused(void **state)
{
    (void)state;
    ranks_run(&(gw_threads_config){.ranks = 1}, refuse_plans, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plan_is_read),          cmocka_unit_test(what_is_wrong_has_a_place),
        cmocka_unit_test(files_are_read_by_name),  cmocka_unit_test(a_step_runs_a_plan),
        cmocka_unit_test(other_plans_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
