/* Error and time in one plan: for every tensor the spec and the route whose step is shortest while the errors of all
 * together keep within a budget. What adapt.h measures and what plan.h predicts go in; a plan as plan.h has it comes
 * out. Nothing here sends, reads files or prints. docs/joint.md: the problem, the search, the bound. */
#ifndef GRADWIRE_JOINT_H
#define GRADWIRE_JOINT_H

#include "gradwire/adapt.h"
#include "gradwire/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What one tensor may be sent with. The tensor as it is, at no error, is always allowed, listed (codec NULL, or
 * cast:to=f32) or not. A route causes the error of its spec once for each lossy hop. */
typedef struct gw_joint_tensor {
    const gw_params *levels;
    const double *errors; /* of each level; finite, from 0 up */
    uint32_t n;           /* 0 … GW_ADAPT_MOST_LEVELS; 0: as it is */
    uint32_t uniform; /* the default, which the budget is measured by; not looked at if n is 0 */
} gw_joint_tensor;

typedef struct gw_joint_request {
    const gw_joint_tensor *tensors; /* in the job's order */
    size_t n_tensors;
    double alpha;     /* budget = alpha × Σ errors of the defaults; 0 … infinity */
    uint32_t devices; /* these five as in gw_plan_request */
    uint32_t max_hops;
    const gw_route *forbidden;
    size_t n_forbidden;
    int no_fusion;
    int one_channel;
} gw_joint_request;

/* Seconds are of a whole step. "Alone" keeps to the same budget and the same rule for hops. */
typedef struct gw_joint_report {
    double budget, error; /* Σ hops × error over the tensors, in their order; error ≤ budget */
    double step;          /* the plan's */
    double dense;         /* nothing is compressed */
    double levels_alone;  /* fewest bytes (gw_adapt_choose), then the best routes of one hop */
    double levels_error;
    double routes_alone; /* each tensor within its own part of the budget, then shortest */
    double routes_error;
    double lower_bound;   /* proven: no plan with these buckets and this budget is faster */
    uint64_t evaluations; /* timelines, whole or in part */
    uint64_t candidates;  /* spec and route, for each size of tensor */
    uint32_t buckets, compressed;
} gw_joint_report;

/* The plan's own report has step, dense, lower_bound and the counts; what it does not know is NaN. */
GW_API gw_status gw_joint_create(const gw_job *job, const gw_cluster *cluster,
                                 const gw_joint_request *request, gw_plan **plan,
                                 gw_joint_report *report, gw_why *why);

/* The lower bound of a plan that may come from elsewhere, in seconds: no plan with its buckets that keeps to the request is
 * faster. `entries` are in the job's order; only their buckets are looked at. */
GW_API gw_status gw_joint_bound_of(const gw_job *job, const gw_cluster *cluster,
                                   const gw_joint_request *request, const gw_plan_entry *entries,
                                   size_t n, double *seconds, gw_why *why);

#ifdef __cplusplus
}
#endif
#endif
