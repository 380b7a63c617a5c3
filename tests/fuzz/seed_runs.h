/* Run folders for make_seeds. */
#ifndef SEED_RUNS_H
#define SEED_RUNS_H

#include <stddef.h>

/* Writes one seed of a target. */
typedef void (*seed_text)(const char *target, const char *name, const void *content, size_t size);
void seed_runs(seed_text keep);

#endif
