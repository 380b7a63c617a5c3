/* What the planner reads: byte 0 says which, the rest is the file: a job as JSON or CSV, a cluster, timelines. What
 * is accepted must be in order and run; what is refused must have a reason, and leave the output alone. */
#include "fuzz.h"

#include <cli/files/timelinefile.h>
#include <files/cluster_file.h>
#include <files/job_file.h>

static void require_job(const gw_job_file *job)
{
    REQUIRE(job->job.n >= 1 && job->job.n <= GW_PLAN_MAX_TENSORS && job->job.name != NULL);
    for (size_t i = 0; i < job->job.n; i++) {
        const gw_job_tensor *t = &job->job.tensors[i];
        REQUIRE(t->name != NULL && t->elements >= 1 && t->elements <= (uint64_t)1 << 40);
        REQUIRE(t->ready >= 0 && t->ready <= job->job.backward);
        REQUIRE(i == 0 || t->ready >= t[-1].ready);
    }
}

/* Every cluster that is read is one that the planner takes. */
static void require_cluster(const gw_cluster_file *cluster)
{
    const gw_job_tensor tensor = {.name = "w", .elements = 1000, .ready = 0.001};
    const gw_job job = {.name = "one", .tensors = &tensor, .n = 1, .backward = 0.001};
    gw_plan_entry entry = {.tensor = 0};
    double seconds = 0;
    gw_why why;
    REQUIRE(gw_route_parse(&entry.route, "flat:allreduce", &why) == GW_OK);
    REQUIRE(gw_plan_predict(&job, &cluster->cluster, &entry, 1, 0, &seconds, &why) == GW_OK);
    REQUIRE(seconds >= 0.001);
}

static void require_timelines(const gw_cli_timelines *all)
{
    const gw_timeline_rules rules = {.cpu_workers = 1, .one_channel = 1};
    for (size_t i = 0; i < all->n; i++) {
        int64_t makespan = -1;
        gw_why why;
        const gw_status status = gw_timeline_run(all->items[i].tensors, all->items[i].n, &rules,
                                                 &makespan, NULL, NULL, &why);
        REQUIRE(status == GW_OK ? makespan >= 0 : status == GW_ERR_RANGE);
    }
}

static void check_reason(const fuzz_buffer *why)
{
    REQUIRE(memchr(why->data, '\0', why->size) != NULL);
    REQUIRE(why->size == 1 || why->data[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t rooms[] = {256, 24, 1};
    if (size == 0) {
        return 0;
    }
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
        fuzz_buffer file = fuzz_copy(data + 1, size - 1, 0), why = fuzz_acquire(rooms[i], 0);
        char *reason = (char *)why.data;
        gw_job_file job = {.job = {.n = 77}};
        gw_cluster_file cluster = {.name = NULL};
        gw_cli_timelines timelines = {.n = 77};
        reason[0] = '\0';
        if (data[0] % 4 < 2) {
            if (data[0] % 4 == 0 ? gw_job_file_parse(file.data, file.size, &job, reason, why.size)
                                 : gw_job_file_parse_csv((const char *)file.data, file.size, "fuzz",
                                                         &job, reason, why.size)) {
                require_job(&job);
                gw_job_file_free(&job);
            } else {
                REQUIRE(job.job.n == 77);
                check_reason(&why);
            }
        } else if (data[0] % 4 == 2) {
            if (gw_cluster_file_parse(file.data, file.size, &cluster, reason, why.size)) {
                require_cluster(&cluster);
                gw_cluster_file_free(&cluster);
            } else {
                REQUIRE(cluster.name == NULL);
                check_reason(&why);
            }
        } else if (gw_cli_timelines_parse(file.data, file.size, &timelines, reason, why.size)) {
            require_timelines(&timelines);
            gw_cli_timelines_free(&timelines);
        } else {
            REQUIRE(timelines.n == 77);
            check_reason(&why);
        }
        fuzz_release(&file);
        fuzz_release(&why);
    }
    return 0;
}
