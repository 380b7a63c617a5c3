/* A job cut into buckets, with the choices of each: what the search works on. */
#ifndef GW_PLAN_PROBLEM_H
#define GW_PLAN_PROBLEM_H

#include "plan/price.h"

/* Neighbours of fewer than `below` elements travel together, up to `together` elements; what no codec may take only with
 * its like, unless `mixed`: then a bucket with one such tensor is not coded. */
typedef struct gw_fusion_rule {
    uint64_t below, together;
    int mixed;
} gw_fusion_rule;

/* Ways that are tried, smallest first. */
enum { GW_FUSIONS = 5 };
extern const gw_fusion_rule GW_FUSION[GW_FUSIONS];

/* Classes by size; the same for all ways to cut a job. */
typedef struct gw_class_store {
    gw_class **item;
    uint32_t n, capacity;
} gw_class_store;

typedef struct gw_problem {
    uint32_t n;       /* buckets, and one without choices for what backward does behind the last */
    uint32_t buckets; /* without it */
    uint32_t *first;  /* buckets + 1: first tensor of each */
    uint64_t *elements;        /* of each bucket */
    uint8_t *plain;            /* of each bucket: 1 if no codec may take it */
    gw_ticks *compute;         /* n */
    const gw_class **class_of; /* n; filled by gw_problem_price */
} gw_problem;

gw_status gw_job_check(const gw_job *job, gw_why *why);
/* How many sizes its tensors have; each has to be priced. */
gw_status gw_job_sizes(const gw_job *job, size_t *out, gw_why *why);
/* Seconds of a whole step whose timeline takes so long. */
double gw_step_seconds(const gw_job *job, gw_ticks makespan);
gw_status gw_problem_create(gw_problem *x, const gw_job *job, gw_fusion_rule rule, gw_why *why);
/* The same with the buckets of these entries, one a tensor. */
gw_status gw_problem_of(gw_problem *x, const gw_job *job, const gw_plan_entry *entries,
                        gw_why *why);
void gw_problem_destroy(gw_problem *x);
gw_status gw_problem_price(gw_problem *x, gw_pricer *p, gw_class_store *store, gw_why *why);
void gw_class_store_free(gw_class_store *store);

/* Whether ticks can hold a step of so many seconds, and 64 times as many. */
gw_status gw_check_span(double seconds, gw_why *why);

/* No choice of anything ends earlier. Of the choices given; docs/plan.md, "Bounds". */
gw_ticks gw_lower_bound(const gw_problem *x, uint32_t cpu_workers);

#endif
