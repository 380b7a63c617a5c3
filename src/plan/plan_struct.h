/* A plan that was made, by plan.c or joint.c. */
#ifndef GW_PLAN_PLAN_STRUCT_H
#define GW_PLAN_PLAN_STRUCT_H

#include <gradwire/plan.h>

struct gw_plan {
    gw_plan_entry *entry; /* one a tensor */
    size_t n;
    gw_plan_report report;
};

#endif
