/* Runs a route on all ranks with symbols for numbers: the interpreter that docs/routes.md describes, as
 * slow and plain as can be, to compare gw_route_compile with. */
#ifndef GW_TESTS_SYMBOLIC_H
#define GW_TESTS_SYMBOLIC_H

#include <gradwire/gradwire.h>

/* What to do wrong, for negative controls. */
typedef enum symbolic_fault {
    FAULT_NONE,
    FAULT_OWN_FIRST,    /* sums begin with one's own */
    FAULT_OWN_LEFT_OUT, /* one's own payload is not decoded */
    FAULT_OVERWRITE,    /* decode sets where it should add */
    FAULT_ROOT_ALONE,   /* a collection holds one's own payload in place of the others' */
    FAULT_OTHER_ROOT,   /* broadcasts come from the last member */
    FAULT_OWN_DRAWS,    /* nodes with the same sum encode it with different random numbers */
    FAULT_SHIFTED_CUT   /* pieces go to the next member */
} symbolic_fault;

/* NULL if on every rank every element ends as the sum of every rank's, once, by the same operations in
 * the same order, each operand as compiled and each link with the bytes compiled; else what went wrong.
 * At most 8 ranks. */
const char *symbolic_run(const gw_route *route, const gw_route_job *job, symbolic_fault fault);

#endif
