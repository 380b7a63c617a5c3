/* The table of docs/plan.md: the artifact's profiles on the paper's two testbeds.
 *     build/dev/tests/bench_plan_table tests/data/espresso examples/clusters */
#include "plan/artifact.h"

#include <stdio.h>
#include <stdlib.h>

static const struct {
    const char *job, *spec;
} CASES[] = {{"bert_base.csv", "randk:density=0.01"},
             {"gpt2.csv", "sign"},
             {"vgg16.csv", "randk:density=0.01"},
             {"vgg16.csv", "topk:density=0.01"},
             {"vgg16.csv", "sign"},
             {"lstm.csv", "sign"},
             {"resnet101.csv", "topk:density=0.01"},
             {"resnet50.csv", "topk:density=0.01"}};

static int row(const char *jobs, const char *clusters, size_t i, int nvlink)
{
    gw_job_file job;
    gw_cluster_file cluster;
    gw_params spec;
    gw_plan *plan = NULL;
    gw_why why = {""};
    double artifact = 0;
    if (!load_job(jobs, CASES[i].job, &job) ||
        !load_cluster(clusters, nvlink ? "espresso-nvlink-100g.json" : "espresso-pcie-25g.json",
                      &cluster)) {
        return 0;
    }
    gw_plan_entry *entries = calloc(job.job.n, sizeof *entries);
    const gw_plan_request request = {.specs = &spec, .n_specs = 1};
    const int fine =
        entries && gw_params_parse(&spec, CASES[i].spec, &why) == GW_OK &&
        gw_plan_create(&job.job, &cluster.cluster, &request, &plan, &why) == GW_OK &&
        artifact_plan(&job.job, &cluster.cluster, &spec, nvlink, entries, &artifact, &why) == GW_OK;
    if (fine) {
        const gw_plan_report r = gw_plan_report_of(plan);
        printf("| %s | %s | %s | %.2f | %.2f | %.2f | %.2f | %.2f | %.1f %% | %.1f %% |\n",
               CASES[i].job, CASES[i].spec, nvlink ? "A" : "B", r.step * 1e3, r.dense / r.step,
               r.bf16 / r.step, r.all_compressed / r.step, artifact / r.step,
               (r.step / r.zero_cost - 1) * 100, (r.step / r.lower_bound - 1) * 100);
    } else {
        fprintf(stderr, "%s: %s\n", CASES[i].job, why.text);
    }
    gw_plan_destroy(plan);
    free(entries);
    gw_job_file_free(&job);
    gw_cluster_file_free(&cluster);
    return fine;
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        fprintf(stderr, "usage: bench_plan_table PROFILES CLUSTERS\n");
        return 2;
    }
    printf("| profile | codec | testbed | plan, ms | over dense | over bf16 | over all compressed "
           "| over the artifact's | "
           "above free coding | above the bound |\n|---|---|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        if (!row(argv[1], argv[2], i, 1) || !row(argv[1], argv[2], i, 0)) {
            return 1;
        }
    }
    return 0;
}
