/* Plans that are given, priced and drawn. */
#ifndef GW_PLAN_PREDICT_H
#define GW_PLAN_PREDICT_H

#include "plan/problem.h"

/* One spec (NULL: none) along one route for every bucket that may be coded, and an uncompressed route for the others;
 * or for every bucket, whether it may be coded or not: a baseline. */
typedef struct gw_uniform {
    const gw_params *spec;
    const gw_route *route, *plain; /* plain NULL: every bucket */
} gw_uniform;

gw_status gw_predict_uniform(gw_pricer *p, const gw_job *job, gw_fusion_rule rule,
                             const gw_uniform *all, gw_ticks *makespan, gw_why *why);
gw_status gw_entries_uniform(const gw_job *job, gw_fusion_rule rule, const gw_uniform *all,
                             gw_plan_entry *entries, gw_why *why);
/* `intervals` as in gw_timeline_run. */
gw_status gw_predict_entries(gw_pricer *p, const gw_job *job, const gw_plan_entry *entries,
                             gw_ticks *makespan, gw_interval *intervals, size_t *n_intervals,
                             gw_why *why);

/* Finds p->exchange, so that what job->beside says comes out. */
gw_status gw_price_exchange(gw_pricer *p, const gw_job *job, gw_why *why);

/* "name@device" */
char *gw_text_join(char *text, size_t size, const char *name, const char *device);

#endif
