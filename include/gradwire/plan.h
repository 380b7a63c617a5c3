/* Which tensors to compress, where, and along which route, so that the step is short. A job says when each
 * gradient is ready, a cluster what links, devices and codecs cost; the timeline draws a step from them, and
 * the search looks for the choice of spec and route for every tensor whose timeline ends first.
 * Nothing here sends, reads files or prints. docs/plan.md: the models, the rules, the search. */
#ifndef GRADWIRE_PLAN_H
#define GRADWIRE_PLAN_H

#include "gradwire/route.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- timelines ---- */

/* What works in parallel on one node, seen from one of its ranks. */
typedef enum gw_track {
    GW_TRACK_GPU = 0,   /* backward pass, and coding on the GPU */
    GW_TRACK_CPU = 1,   /* coding on the processor: several workers */
    GW_TRACK_COPY = 2,  /* between host and device */
    GW_TRACK_INTRA = 3, /* links inside the node */
    GW_TRACK_NIC = 4,   /* what leaves the node */
    GW_TRACKS = 5
} gw_track;

enum { GW_TIMELINE_MAX_WORKERS = 16, GW_TIMELINE_MAX_OPS = 32, GW_PLAN_MAX_TENSORS = 1 << 16 };

typedef struct gw_timed_op {
    gw_track track;
    int64_t ticks; /* from 0 up */
} gw_timed_op;

/* `compute` is how long the backward pass works between the gradient before and this one. */
typedef struct gw_timed_tensor {
    int64_t compute;
    const gw_timed_op *ops;
    uint32_t n_ops;
} gw_timed_tensor;

typedef struct gw_timeline_rules {
    uint32_t cpu_workers;   /* 1 … GW_TIMELINE_MAX_WORKERS */
    int one_channel;        /* links inside the node and out of it are one track, as in the paper */
    int urgent_last_decode; /* 1: a decode that nothing waits for interrupts the backward pass too */
    /* Part of what computes that a busy track needs, 0 … 1: links whose protocol runs on the cores of backward. */
    double core_share[GW_TRACKS];
    int64_t
        busy[GW_TRACKS]; /* ticks that a link waits at most for its turn while backward computes */
} gw_timeline_rules;

/* When an operation ran; a backward pass that was interrupted has several. `op` is UINT32_MAX for backward. */
typedef struct gw_interval {
    uint32_t tensor, op;
    gw_track track;
    uint32_t worker;
    int64_t begin, end;
} gw_interval;

/* The end of everything. `intervals` may be NULL; else *n_intervals is its room before and what is filled
 * behind, in order of their ends. */
GW_API gw_status gw_timeline_run(const gw_timed_tensor *tensors, size_t n,
                                 const gw_timeline_rules *rules, int64_t *makespan,
                                 gw_interval *intervals, size_t *n_intervals, gw_why *why);
GW_API const char *gw_track_name(gw_track track); /* "gpu", "cpu", "copy", "intra", "nic" */

/* ---- the cluster ---- */

/* A measurement: so many bytes took so long. */
typedef struct gw_cost_point {
    double bytes, seconds, deviation; /* deviation: one standard one, in seconds; 0: not known */
    uint32_t samples;                 /* 0: not measured, from a data sheet or an estimate */
} gw_cost_point;

enum { GW_COST_POINTS = 16 };

/* Constant up to the first point, straight between points, beyond the last as the last two say; proportional beyond a
 * single one. Bytes ascend. */
typedef struct gw_cost_curve {
    uint32_t n; /* 1 … GW_COST_POINTS */
    gw_cost_point point[GW_COST_POINTS];
} gw_cost_curve;

/* A phase of a collective takes latency + messages · message + bytes / rate, of one rank. */
typedef struct gw_cluster_link {
    double latency, message; /* seconds */
    double rate;             /* bytes a second */
    double spread;           /* deviation of the rate, as a share of it */
    int shared;              /* one for all ranks of a node, as a NIC always is */
    double cpu_share;        /* of the cores that compute, needed while the link is busy: 0 … 1 */
    double busy;             /* seconds that an operation waits at most while ranks compute */
} gw_cluster_link;

/* What was measured of one collective goes before what the link says. Bytes: sent or received by a rank, the more. */
typedef struct gw_collective_cost {
    gw_op op;
    gw_level level;
    gw_cost_curve curve;
} gw_collective_cost;

/* Bytes are those of the fp32 operand; decode: of one payload, and added to what is there. */
typedef struct gw_codec_cost {
    gw_params params;
    gw_device device;
    gw_cost_curve encode, decode;
} gw_codec_cost;

typedef struct gw_cluster {
    const char *name;
    uint32_t nodes, ranks_per_node;
    gw_cluster_link intra, inter;
    gw_cluster_link
        copy; /* between host and device; without GPUs in memory, of tensors that travel together */
    int has_gpu; /* gradients lie on GPUs; else the processor computes them */
    uint32_t
        cpu_workers; /* 0: coding on the processor takes time from the backward pass (without GPUs only) */
    const gw_codec_cost *codecs;
    size_t n_codecs;
    const gw_collective_cost *collectives;
    size_t n_collectives;
} gw_cluster;

/* ---- the job ---- */

typedef struct gw_job_tensor {
    const char *name;
    uint64_t elements;
    double ready;     /* seconds since the backward pass began; never falls from tensor to tensor */
    int uncompressed; /* 1: no codec may take it, as for biases and norms */
} gw_job_tensor;

typedef struct gw_job {
    const char *name;
    const gw_job_tensor *tensors;
    size_t n;
    double forward, backward, optimizer; /* seconds; backward is at least the last `ready` */
    /* Seconds of forward and backward with an uncompressed exchange of GW_BESIDE_ELEMENTS for every tensor beside them, on this cluster;
     * 0: not measured. Where the cores that compute also send, it tells what every exchange takes from them. */
    double beside;
    gw_dtype
        dtype; /* of all gradients: as wide are their numbers where nothing encodes them; 0: fp32 */
} gw_job;
enum { GW_BESIDE_ELEMENTS = 64 };

/* ---- the plan ---- */

/* Uncompressed routes are always among the candidates; for fp32 gradients cast:to=bf16 too. */
typedef struct gw_plan_request {
    const gw_params *specs; /* besides */
    size_t n_specs;
    uint32_t devices;  /* that may code: OR of gw_device; 0: all the cluster has */
    uint32_t max_hops; /* lossy ones on a route; 0: any number */
    const gw_route *forbidden;
    size_t n_forbidden;
    int no_fusion;   /* every tensor on its own */
    int one_channel; /* links inside and out of the node are one, as in the paper */
} gw_plan_request;

/* One tensor of the job, in wire order. Neighbours with the same bucket travel as one tensor. */
typedef struct gw_plan_entry {
    uint32_t tensor, bucket;
    gw_params params; /* codec NULL: uncompressed */
    gw_route route;
} gw_plan_entry;

/* Seconds are of a whole step: forward, timeline, optimizer. */
typedef struct gw_plan_report {
    double step, dense, bf16,
        all_compressed; /* the last two NaN if nothing may code; bf16 of 16-bit gradients is dense */
    double zero_cost;   /* if coding took no time: no plan is faster */
    double lower_bound;           /* proven: no plan is faster */
    double step_high, dense_high; /* with everything one deviation slower */
    uint64_t evaluations;         /* timelines, whole or in part */
    uint64_t candidates;          /* spec and route, for each size of tensor */
    uint64_t dominated; /* of these not tried: another asks less of every part of the machine */
    uint64_t untried;   /* moves skipped because a bound said that they cannot help */
    uint32_t buckets, compressed; /* buckets that are sent, and those that are coded */
} gw_plan_report;

typedef struct gw_plan gw_plan;

GW_API gw_status gw_plan_create(const gw_job *job, const gw_cluster *cluster,
                                const gw_plan_request *request, gw_plan **out, gw_why *why);
GW_API void gw_plan_destroy(gw_plan *plan); /* accepts NULL */
GW_API gw_plan_report gw_plan_report_of(const gw_plan *plan);
/* One a tensor of the job. */
GW_API size_t gw_plan_count(const gw_plan *plan);
GW_API gw_status gw_plan_entry_at(const gw_plan *plan, size_t index, gw_plan_entry *out);

/* The step time of any plan, in seconds. `entries` are in the job's order. */
GW_API gw_status gw_plan_predict(const gw_job *job, const gw_cluster *cluster,
                                 const gw_plan_entry *entries, size_t n, int one_channel,
                                 double *seconds, gw_why *why);
/* The same, drawn: times in nanoseconds since backward began; an interval's tensor is its bucket's first, its op a
 * number among its operations that take time. */
GW_API gw_status gw_plan_draw(const gw_job *job, const gw_cluster *cluster,
                              const gw_plan_entry *entries, size_t n, int one_channel,
                              gw_interval *intervals, size_t *n_intervals, gw_why *why);

/* ---- plans in files ---- */

/* How one tensor is sent. */
typedef struct gw_plan_tensor {
    const char *name;
    const char *spec, *along; /* as the file has them: codec ("dense": none) and route */
    uint64_t elements;
    uint32_t bucket;  /* neighbours of the same bucket are sent as one tensor */
    gw_params params; /* codec NULL: uncompressed */
    gw_route route;
} gw_plan_tensor;

/* gradwire.plan/1, as gw_plan_read reads it (files.h). */
typedef struct gw_plan_file {
    const char *path;              /* for messages */
    const gw_plan_tensor *tensors; /* in wire order */
    size_t n;
    uint32_t nodes, ranks_per_node; /* that it was made for; 0: not recorded */
    double step;                    /* predicted, in seconds; 0: not recorded */
} gw_plan_file;

/* Whether these devices, an OR of gw_device, are all that code. GW_ERR_UNSUPPORTED names the file and the tensor. */
GW_API gw_status gw_plan_runs_on(const gw_plan_file *plan, uint32_t devices, gw_why *why);
/* Finds the tensors of a plan among n layers of these names and sizes. order[i] is the layer of tensor i. buckets[l] is a
 * number, from 1, that layer l shares with the other layers of its bucket. A plan for another model is GW_ERR_DISAGREE, and
 * the message names the file and the tensor. */
GW_API gw_status gw_plan_match(const gw_plan_file *plan, const char *const *names,
                               const uint64_t *elements, size_t n, uint32_t *order,
                               uint32_t *buckets, gw_why *why);

#ifdef __cplusplus
}
#endif
#endif
