/* The policy that gives each layer its level, within one error budget: every `every` steps a round, with window = lag = rest
 * = a tenth of the period, 1 to 10. adapt_begin.c lists the levels, adapt_choose.c chooses. docs/adapt.md */
#ifndef GW_CONTROL_ADAPT_H
#define GW_CONTROL_ADAPT_H

#include "control/control.h"

#include <gradwire/step_adapt.h>

typedef struct gw_adapting {
    gw_control control;
    gw_step_adapt_config config; /* what it points to is the caller's */
    gw_step_alpha *schedule;
    double *norms;         /* of the last period, of each layer; 0: none */
    uint32_t *chosen;      /* levels that will bind */
    gw_adapt_layer *posed; /* by the thread: the problem, which layers it has, and the answer */
    uint32_t *which, *levels;
    gw_step_decision next, last;
} gw_adapting;

static inline gw_adapting *gw_adapting_of(gw_control *c)
{
    return (gw_adapting *)(void *)c;
}

gw_status gw_adapting_check(const gw_step *s, const void *config, gw_why *why);
gw_status gw_adapting_open(gw_control *c, const void *config, gw_why *why);
gw_status gw_adapting_list(gw_control *c, const gw_layer *l, gw_control_layer *to, gw_why *why);

#endif
