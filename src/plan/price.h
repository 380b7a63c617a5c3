/* From specs and routes to choices: every route is compiled once for a size, then priced for every way to spread
 * its coding over devices. */
#ifndef GW_PLAN_PRICE_H
#define GW_PLAN_PRICE_H

#include "plan/choices.h"
#include "plan/cost.h"

typedef struct gw_pricer {
    const gw_cluster *cluster;
    const gw_params *specs; /* 0: none, cast:to=bf16 for fp32 gradients, then the caller's */
    uint32_t n_specs;
    uint32_t width; /* bytes of a number that is not encoded */
    uint32_t devices, max_hops;
    const gw_route *forbidden;
    size_t n_forbidden;
    double sigma;
    int one_device; /* 1: a route codes on one device only */
    int together; /* 1: what is priced is several tensors, copied together before and apart behind */
    int plain;    /* 1: what is priced may not be coded */
    /* Where the cores that compute also send, and job.beside tells how much of them that takes: seconds for every message to another rank.
     * Then what a collective of no bytes takes is no link's, but passes on the track of the CPU, of as many workers as a
     * step has lanes. */
    double exchange;
    int apart;
    gw_timeline_rules rules;
    gw_route *skeleton; /* all routes over one device, then the additive ones */
    uint32_t n_skeletons;
    gw_front front;
} gw_pricer;

/* For gradients of `dtype`; 0: fp32. */
gw_status gw_pricer_create(gw_pricer *p, const gw_cluster *cluster, gw_dtype dtype, gw_why *why);
void gw_pricer_destroy(gw_pricer *p);
/* Whether something may code, and the cluster knows what each spec costs. */
gw_status gw_pricer_check(const gw_pricer *p, gw_why *why);

int gw_price_forbidden(const gw_pricer *p, const gw_route *route);

/* All choices of tensors of this size. */
gw_status gw_price_class(gw_pricer *p, uint64_t elements, gw_class *out, gw_why *why);
/* Those of one spec alone, with more hops only where they save something; there may be none. */
gw_status gw_price_spec(gw_pricer *p, uint64_t elements, uint32_t spec, gw_class *out, gw_why *why);
/* One choice; `params` NULL for an uncompressed route. Offered to p->front by force. */
gw_status gw_price_one(gw_pricer *p, uint64_t elements, const gw_params *params,
                       const gw_route *route, gw_why *why);

#endif
