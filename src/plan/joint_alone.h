/* What error and time reach without each other, within the same budget: starts of the joint search, and what it is
 * compared with. */
#ifndef GW_PLAN_JOINT_ALONE_H
#define GW_PLAN_JOINT_ALONE_H

#include "plan/joint_table.h"

/* A plan and what it takes. */
typedef struct gw_joint_found {
    gw_ticks makespan; /* GW_NEVER: none */
    double error;
    gw_plan_entry *entry; /* one a tensor */
} gw_joint_found;

typedef enum gw_alone {
    GW_ALONE_LEVELS,  /* `level` of each tensor, along routes of one hop */
    GW_ALONE_ROUTES,  /* any spec and route whose error is within the tensor's part of the budget */
    GW_ALONE_DEFAULT, /* of these, only the default and none: for a first look */
} gw_alone;

typedef struct gw_alone_rules {
    gw_alone kind;
    const uint32_t *level; /* spec of each tensor */
    double alpha;
    int whole; /* 0: a greedy pass */
    gw_coding device;
    uint64_t event_limit;
} gw_alone_rules;

/* The spec of each tensor that gw_adapt_choose finds: fewest bytes within the budget. */
gw_status gw_joint_levels(const gw_job *job, const gw_joint_table *table, double alpha,
                          uint32_t *level, gw_why *why);
/* The timeline search among what is allowed; out->entry has room. `evaluations` grows. */
gw_status gw_joint_alone(gw_joint_problem *p, const gw_alone_rules *rules, gw_joint_found *out,
                         uint64_t *evaluations, gw_why *why);

#endif
