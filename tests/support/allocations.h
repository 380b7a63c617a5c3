/* The allocations of a test program and of the static library, counted or made to fail. Shared libraries, OpenBLAS and
 * libc among them, have their own. Needs support/allocations.c and the linker's --wrap: gw_allocations in CMakeLists.txt. */
#ifndef GW_TESTS_ALLOCATIONS_H
#define GW_TESTS_ALLOCATIONS_H

#include <gradwire/base.h>

#include <stdint.h>

/* 1: from now on allocations of all threads are counted, from 0; also calls of free. */
void allocations_watch(int on);
/* How many there were while they were watched. */
uint64_t allocations_seen(void);
/* The number-th allocation from now on, of all threads, fails; 0: none. */
void allocations_fail(uint64_t number);
/* Whether one has failed since then. */
int allocations_failed(void);
/* Blocks that are allocated and not freed. */
int64_t allocations_live(void);
/* Runs the scene with its first allocation failing, then its second, and so on, until none is left to fail: a failure has to
 * be GW_ERR_MEMORY, with a reason; nothing may stay allocated. Returns how many there were. */
typedef gw_status allocations_scene(void *arg, gw_why *why);
uint64_t allocations_try(const char *name, allocations_scene *scene, void *arg);
/* Where in the program the first watched allocation, or the failed one, was asked for: for addr2line. */
const char *allocations_where(void);

#endif
