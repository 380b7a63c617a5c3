/* Cuts a caller's workspace into aligned pieces. One piece of code both measures and cuts: with a
 * NULL base every piece is NULL and `used` grows all the same. */
#ifndef GW_BASE_ARENA_H
#define GW_BASE_ARENA_H

#include <gradwire/base.h>

#define GW_ARENA_ALIGN 64

typedef struct gw_arena {
    uint8_t *base;
    size_t size, used;
    int failed; /* a piece did not fit, or a size overflowed */
} gw_arena;

gw_arena gw_arena_over(gw_workspace workspace);
gw_arena gw_arena_measuring(void);
/* `count` items of `item` bytes, 64-byte aligned whatever the workspace's own alignment; NULL when
 * measuring or failed. */
void *gw_arena_take(gw_arena *arena, size_t count, size_t item);
/* Bytes a workspace must have for all pieces taken so far, its own misalignment included. */
size_t gw_arena_need(const gw_arena *arena);

#endif
