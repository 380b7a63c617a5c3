#include "plan/artifact.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- files ---- */

static char *read_all(const char *folder, const char *name, size_t *size)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    char *data = malloc(1 << 20);
    *size = file && data ? fread(data, 1, 1 << 20, file) : 0;
    if (file) {
        (void)fclose(file);
    } else {
        (void)fprintf(stderr, "cannot read %s\n", path);
    }
    return data;
}

int load_job(const char *folder, const char *name, gw_job_file *out)
{
    size_t size = 0;
    char why[256] = "", *data = read_all(folder, name, &size);
    const int csv = strstr(name, ".csv") != NULL;
    const int fine = data && (csv ? gw_job_file_parse_csv(data, size, name, out, why, sizeof why)
                                  : gw_job_file_parse(data, size, out, why, sizeof why));
    if (!fine) {
        (void)fprintf(stderr, "%s: %s\n", name, why);
    }
    free(data);
    return fine;
}

int load_cluster(const char *folder, const char *name, gw_cluster_file *out)
{
    size_t size = 0;
    char why[256] = "", *data = read_all(folder, name, &size);
    const int fine = data && gw_cluster_file_parse(data, size, out, why, sizeof why);
    if (!fine) {
        (void)fprintf(stderr, "%s: %s\n", name, why);
    }
    free(data);
    return fine;
}

/* ---- the strategy ---- */

static const char DENSE[] = "intra:reduce_scatter · inter:allreduce · intra:allgather";
static const char HALF[] =
    "intra:reduce_scatter · encode@gpu · inter:alltoall · decode@gpu · encode@gpu · "
    "inter:allgather · decode@gpu · intra:allgather";
static const char INTER_GATHER[] =
    "intra:reduce_scatter · encode@gpu · inter:allgather · decode@gpu · intra:allgather";
static const char BOTH_SPARSE[] =
    "encode@gpu · intra:alltoall · decode@gpu · encode@gpu · inter:allgather · "
    "decode@gpu · encode@gpu · intra:allgather · decode@gpu";
static const char BOTH_QUANT[] =
    "encode@gpu · intra:alltoall · decode@gpu · encode@gpu · inter:gather · decode@gpu "
    "· encode@gpu · inter:broadcast · intra:allgather · decode@gpu";

typedef struct rule {
    uint64_t one_level, two_levels;
    int sparse;
    gw_params spec, half;
} rule;

static void set(gw_plan_entry *entry, const char *route, const gw_params *params)
{
    (void)gw_route_parse(&entry->route, route, NULL);
    entry->params = params ? *params : (gw_params){.codec = NULL};
}

/* The one compressed way of a tensor of that size; 0: it has none. */
static int compress(const rule *r, uint64_t elements, uint32_t nodes, gw_plan_entry *entry)
{
    if (elements >= r->two_levels) {
        set(entry, r->sparse ? BOTH_SPARSE : BOTH_QUANT, &r->spec);
    } else if (elements >= r->one_level) {
        const int alltoall = !r->sparse && elements >= (1U << 24) && nodes > 3;
        set(entry, alltoall ? HALF : INTER_GATHER, &r->spec);
    } else if (elements > (1U << 17)) {
        set(entry, HALF, &r->half);
    } else {
        return 0;
    }
    return 1;
}

static const gw_job *sorted_job;
static int by_size(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const uint64_t s = sorted_job->tensors[x].elements, t = sorted_job->tensors[y].elements;
    return s != t ? (s < t) - (s > t) : (x < y) - (x > y);
}

gw_status artifact_plan(const gw_job *job, const gw_cluster *cluster, const gw_params *spec,
                        int nvlink, gw_plan_entry *entries, double *seconds, gw_why *why)
{
    const char *name = gw_codec_name(spec->codec);
    rule r = {.one_level = nvlink ? 1U << 19 : 1U << 20,
              .two_levels = nvlink ? 1U << 22 : 1U << 23,
              .sparse = strcmp(name, "topk") == 0 || strcmp(name, "randk") == 0,
              .spec = *spec};
    uint32_t *order = malloc(job->n * sizeof *order);
    gw_status status = gw_params_parse(&r.half, "cast:to=f16", why);
    for (uint32_t i = 0; i < job->n && order; i++) {
        order[i] = i;
        entries[i] = (gw_plan_entry){.tensor = i, .bucket = i};
        set(&entries[i], DENSE, NULL);
    }
    if (order) {
        sorted_job = job;
        qsort(order, job->n, sizeof *order, by_size);
    }
    status =
        status == GW_OK ? gw_plan_predict(job, cluster, entries, job->n, 0, seconds, why) : status;
    for (size_t k = 0; order && k < job->n && status == GW_OK; k++) {
        const gw_plan_entry before = entries[order[k]];
        double step = 0;
        if (!compress(&r, job->tensors[order[k]].elements, cluster->nodes, &entries[order[k]])) {
            break;
        }
        status = gw_plan_predict(job, cluster, entries, job->n, 0, &step, why);
        if (status == GW_OK && step < *seconds) {
            *seconds = step;
        } else {
            entries[order[k]] = before;
        }
    }
    free(order);
    return status;
}
