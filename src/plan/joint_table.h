/* What the joint search works on: the errors of all tensors and specs, and for each bucket its options, a choice
 * of the timeline's with the error it causes. */
#ifndef GW_PLAN_JOINT_TABLE_H
#define GW_PLAN_JOINT_TABLE_H

#include "plan/problem.h"

#include <gradwire/joint.h>

/* One line a tensor. Spec 0 is the tensor as it is. */
typedef struct gw_joint_table {
    gw_params *specs; /* all that some tensor may take */
    uint32_t n_specs, capacity;
    gw_params plain;   /* cast:to=f32: another name for spec 0 */
    double *error;     /* tensors × n_specs, of one hop; NaN: not for this tensor */
    uint32_t *uniform; /* spec of each tensor's default */
    double budget;
} gw_joint_table;

gw_status gw_joint_table_create(gw_joint_table *t, const gw_job *job,
                                const gw_joint_request *request, gw_why *why);
void gw_joint_table_destroy(gw_joint_table *t);

typedef struct gw_option {
    const gw_choice *of;
    double error;
} gw_option;

/* Of one bucket. None is dominated by another that causes no more error. */
typedef struct gw_menu {
    gw_option *item;
    uint32_t n;
    uint32_t *some; /* the best under some price of error and of each track */
    uint32_t n_some;
    double least; /* error */
} gw_menu;

/* Choices by size and spec, the same for all ways to cut a job. */
typedef struct gw_size {
    uint64_t elements;
    int together;
    gw_class *of; /* n_specs; without memory: not priced yet */
} gw_size;

typedef struct gw_size_store {
    gw_size *item;
    uint32_t n, capacity, n_specs;
} gw_size_store;

void gw_size_store_free(gw_size_store *store);

/* A job cut into buckets, with the options of each. */
typedef struct gw_joint_problem {
    gw_problem x; /* its class_of is the caller's to fill */
    const gw_joint_table *table;
    gw_pricer *pricer;
    gw_size_store *store;
    uint32_t *size; /* x.buckets: place in the store */
    gw_menu *menu;  /* x.n; behind the last bucket there may be one without options */
} gw_joint_problem;

/* `cut`: one entry a tensor, whose buckets are meant. Menus are still empty. */
gw_status gw_joint_problem_create(gw_joint_problem *p, const gw_job *job, const gw_plan_entry *cut,
                                  const gw_joint_table *table, gw_pricer *pricer,
                                  gw_size_store *store, gw_why *why);
/* The choices of bucket b with this spec, priced when first asked for. */
gw_status gw_joint_class(gw_joint_problem *p, uint32_t b, uint32_t spec, const gw_class **out,
                         gw_why *why);
gw_status gw_joint_fill(gw_joint_problem *p, gw_why *why);
void gw_joint_problem_destroy(gw_joint_problem *p);
/* Fills `some`; a unit of error costs about `price` ticks. False: no memory. */
int gw_joint_find_some(gw_joint_problem *p, double price);

/* Σ hops × error over the tensors in their order; of bucket b with option pick[b]. */
double gw_joint_error_of(const gw_joint_problem *p, const uint32_t *pick);
/* The option that costs least when a unit of error costs `price` and a tick of each track its weight. */
uint32_t gw_joint_cheapest(const gw_menu *m, const gw_ticks weight[GW_TRACKS], double price);

#endif
