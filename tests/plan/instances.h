/* Small random planning problems whose optimum can be found by trying everything. */
#ifndef GW_TESTS_PLAN_INSTANCES_H
#define GW_TESTS_PLAN_INSTANCES_H

#include "plan/search.h"

enum { INSTANCE_TENSORS = 5, INSTANCE_CHOICES = 8 };

typedef struct instance {
    gw_timeline_rules rules;
    uint32_t n;
    gw_ticks compute[INSTANCE_TENSORS];
    gw_front front;
    gw_class classes[INSTANCE_TENSORS]; /* what the search gets */
    const gw_class *class_of[INSTANCE_TENSORS];
    /* everything, dominated or not */
    gw_op_time ops[INSTANCE_TENSORS][INSTANCE_CHOICES][GW_TIMELINE_MAX_OPS];
    gw_chain all[INSTANCE_TENSORS][INSTANCE_CHOICES];
    uint32_t n_all[INSTANCE_TENSORS];
} instance;

void instance_draw(instance *x, uint64_t seed);
void instance_free(instance *x);
/* The least makespan over every combination; *tried says how many there are. */
gw_ticks instance_enumerate(const instance *x, uint64_t *tried);

#endif
