/* The table of docs/joint.md: jobs on clusters, within the error of dither:bits=4 everywhere. A job may be left out, or named alone.
 *     build/release/tests/bench_joint_table ../shared/data/jobs examples/clusters [JOB] */
#include "cli/plan/assumed_costs.h"
#include "plan/artifact.h"
#include "plan/joint_errors.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const char *const JOBS[] = {"bert-base.json", "gpt2.json",  "lstm-lm.json",
                                   "resnet50.json",  "vgg16.json", "vit_b_16.json"};
static const char *const CLUSTERS[] = {"espresso-nvlink-100g.json", "espresso-pcie-25g.json",
                                       "h200-100g.json", "office-1g.json", "wan-100m.json"};
enum { N_JOBS = sizeof JOBS / sizeof JOBS[0], N_CLUSTERS = sizeof CLUSTERS / sizeof CLUSTERS[0] };

static double seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void print(const char *job, const char *cluster, const gw_joint_report *r, double taken)
{
    const double least = fmin(r->levels_alone, r->routes_alone);
    printf("| %.*s | %.*s | %.2f | %.2f | %.2f | %.2f | %.2f | %.0f %% | %.1f %% | %.1f |\n",
           (int)strcspn(job, "."), job, (int)strcspn(cluster, "."), cluster, r->dense * 1e3,
           r->levels_alone * 1e3, r->routes_alone * 1e3, r->step * 1e3, least / r->step,
           100 * r->error / r->budget, 100 * (r->step / r->lower_bound - 1), taken);
    (void)fflush(stdout);
}

static int row(const char *jobs, const char *job_name, const char *clusters,
               const char *cluster_name)
{
    gw_job_file job;
    gw_cluster_file cluster;
    joint_errors errors;
    gw_plan *plan = NULL;
    gw_joint_report report;
    gw_why why = {""};
    bool added = false;
    if (!load_job(jobs, job_name, &job) || !load_cluster(clusters, cluster_name, &cluster)) {
        return 0;
    }
    int fine = joint_errors_make(&errors, &job.job, &why);
    for (unsigned k = 0; k < JOINT_LEVELS && fine; k++) {
        fine = gw_cli_assume_codec(&cluster, &errors.levels[k], &added);
    }
    const gw_joint_request request = {.tensors = errors.tensors, .n_tensors = errors.n, .alpha = 1};
    const double before = seconds();
    fine = fine &&
           gw_joint_create(&job.job, &cluster.cluster, &request, &plan, &report, &why) == GW_OK;
    if (fine) {
        print(job_name, cluster_name, &report, seconds() - before);
        fine = !(report.step > fmin(report.levels_alone, report.routes_alone)) &&
               report.error <= report.budget && joint_errors_of(&errors, plan) == report.error;
    }
    if (!fine) {
        fprintf(stderr, "%s on %s: %s\n", job_name, cluster_name, why.text);
    }
    gw_plan_destroy(plan);
    joint_errors_free(&errors);
    gw_job_file_free(&job);
    gw_cluster_file_free(&cluster);
    return fine;
}

int main(int argc, char **argv)
{
    if (argc != 3 && argc != 4) {
        fprintf(stderr, "usage: bench_joint_table JOBS CLUSTERS [JOB]\n");
        return 2;
    }
    printf("| job | cluster | dense, ms | levels alone | routes alone | joint | times faster than "
           "both | budget spent | above the bound | selection, s |\n"
           "|---|---|---|---|---|---|---|---|---|---|\n");
    for (unsigned i = 0; i < N_JOBS * N_CLUSTERS; i++) {
        const char *job = JOBS[i / N_CLUSTERS];
        if ((argc == 3 || strncmp(job, argv[3], strlen(argv[3])) == 0) &&
            !row(argv[1], job, argv[2], CLUSTERS[i % N_CLUSTERS])) {
            return 1;
        }
    }
    return 0;
}
