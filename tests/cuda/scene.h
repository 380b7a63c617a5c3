/* What the parts of check.c share. */
#ifndef GW_TESTS_CUDA_SCENE_H
#define GW_TESTS_CUDA_SCENE_H

#include "support/gen.h"

#include <gradwire/cuda.h>

enum { LIST = 5, GUARD = 32, POISON = 0x5A };

extern gw_cuda *cuda;

/* One list of tensors. */
typedef struct scene {
    const char *spec;
    gw_params params;
    gw_dtype dtype;
    gen_content content;
    int feedback, in_place, aligned;
    size_t front; /* bytes in front of the payload, where it is aligned otherwise */
    size_t n, count[LIST];
    uint64_t seed;
} scene;

/* Says which scene, with its seed, and ends the program. */
__attribute__((format(printf, 2, 3), noreturn)) void fail(const scene *s, const char *format, ...);
void must(const scene *s, gw_status status, const gw_why *why);
void *take(size_t bytes);
/* Scalar C, with a workspace as large as anything here needs. */
gw_exec scalar_exec(void);
/* What gw_cuda_workspace says, poisoned. */
void *workspace_for(const scene *s, size_t *bytes);

/* Hostile bytes into the scene's decoder. */
void run_hostile(scene *s, gen *g);
/* Steps of such a scene's encoder in which r′ is settled by the next one. */
void run_due(const scene *from, gen *g);

#endif
