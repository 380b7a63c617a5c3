/* The search for the options whose timeline ends first while their errors keep within the budget. Two ways to weigh:
 * a price, at which error is added to time, and the budget itself. docs/joint.md. */
#ifndef GW_PLAN_JOINT_SEARCH_H
#define GW_PLAN_JOINT_SEARCH_H

#include "plan/joint_table.h"

/* A bound and what proves it: weights of the tracks in 64ths, the price of error in ticks, the bucket from which on
 * the machine is taken to be busy. */
typedef struct gw_dual {
    gw_ticks weight[GW_TRACKS];
    double price;
    uint32_t from;
    gw_ticks bound; /* no options within the budget end earlier */
} gw_dual;

void gw_joint_bound(const gw_joint_problem *p, uint32_t cpu_workers, gw_dual *out);

typedef struct gw_joint_search {
    gw_timeline line;
    const gw_joint_problem *p;
    gw_dual dual;
    uint32_t *pick;  /* option of each bucket */
    uint32_t *order; /* largest first, of equal ones the latest first */
    double error;    /* of `pick` */
    double price;    /* below 0: within the budget; else ticks for a unit of error */
    uint32_t *best_pick, *spare;
    gw_ticks best; /* makespan of the best within the budget */
    double best_error;
    uint64_t event_limit, until; /* of the whole, and of what is under way */
} gw_joint_search;

gw_status gw_joint_search_create(gw_joint_search *s, const gw_joint_problem *p,
                                 const gw_timeline_rules *rules, gw_why *why);
void gw_joint_search_destroy(gw_joint_search *s);

/* Takes these options and moves to where no change of one bucket helps; what is within the budget is kept. */
void gw_joint_try(gw_joint_search *s, const uint32_t *pick);
/* All of it; what gw_joint_try kept counts as a start. The picks are then the best. */
void gw_joint_run(gw_joint_search *s);

#endif
