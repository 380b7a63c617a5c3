/* The search for the choices whose timeline ends first. docs/plan.md, "Search". Works on classes of choices alone,
 * whatever they stand for; the same for three tensors and for a thousand. */
#ifndef GW_PLAN_SEARCH_H
#define GW_PLAN_SEARCH_H

#include "plan/choices.h"

typedef struct gw_search {
    gw_timeline line;
    const gw_class *const
        *class_of;    /* of each tensor; a tensor without choices has none but nothing to do */
    uint32_t *pick;   /* choice of each tensor */
    uint32_t *order;  /* largest first, of equal ones the latest first */
    uint32_t *best;   /* the run's best picks */
    uint32_t *room;   /* the offload pass's: three lists */
    gw_coding device; /* where the greedy pass codes: GW_CODING_GPU, or _CPU where there is none */
    uint64_t event_limit;    /* no new round of moves beyond so many events */
    gw_ticks goal;           /* a bound: once it is reached there is nothing to look for */
    gw_ticks least_gain;     /* a move that can gain no more is not tried */
    int keep_before_bubbles; /* 1: tensors in front of a bubble are tried all the same */
    uint64_t skipped;        /* moves that were not tried, for that or a bound */
} gw_search;

gw_status gw_search_create(gw_search *s, const gw_timeline_rules *rules, const gw_ticks *compute,
                           const gw_class *const *class_of, uint32_t n, gw_why *why);
void gw_search_destroy(gw_search *s);

/* Takes these picks and draws their timeline. */
void gw_search_set(gw_search *s, const uint32_t *pick);
/* The choice that is fastest alone, for each tensor, of those that code so. */
void gw_search_all(gw_search *s, gw_coding coding);
/* The same, uncompressed. */
void gw_search_dense(gw_search *s);

/* The choice that is fastest alone, coded or not. */
void gw_search_links(gw_search *s);

/* Algorithm 1: one go over the tensors, uncompressed and `device` choices. */
void gw_search_greedy(gw_search *s);
/* Algorithm 2, group by group: the earliest of equal tensors with equal choices go to the CPU. */
void gw_search_offload(gw_search *s);
/* Single and pairwise moves over all choices until none helps, or the limit of events. */
void gw_search_local(gw_search *s);
/* All of it. */
void gw_search_run(gw_search *s);

#endif
