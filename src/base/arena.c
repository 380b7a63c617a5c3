/* The arena of arena.h. Pieces are separated by a poisoned red zone under AddressSanitizer. */
#include "base/arena.h"

#if defined(__SANITIZE_ADDRESS__)
#    define GW_ASAN 1
#elif defined(__has_feature)
#    if __has_feature(address_sanitizer)
#        define GW_ASAN 1
#    endif
#endif
#ifdef GW_ASAN
#    include <sanitizer/asan_interface.h>
#    define RED_ZONE       GW_ARENA_ALIGN
#    define poison(p, n)   ASAN_POISON_MEMORY_REGION(p, n)
#    define unpoison(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#    define RED_ZONE       0
#    define poison(p, n)   ((void)(p), (void)(n))
#    define unpoison(p, n) ((void)(p), (void)(n))
#endif

gw_arena gw_arena_over(gw_workspace workspace)
{
    gw_arena arena = {workspace.data, workspace.data != NULL ? workspace.size : 0, 0, 0};
    const size_t off = (size_t)((uintptr_t)workspace.data % GW_ARENA_ALIGN);
    const size_t skip = off != 0 ? GW_ARENA_ALIGN - off : 0;
    if (skip > arena.size) { /* too small for anything; fine if nothing is taken */
        arena.size = 0;
    } else if (arena.base != NULL) {
        unpoison(arena.base, arena.size); /* an earlier call's red zones */
        arena.base += skip;
        arena.size -= skip;
    }
    return arena;
}

gw_arena gw_arena_measuring(void)
{
    return (gw_arena){NULL, SIZE_MAX, 0, 0};
}

void *gw_arena_take(gw_arena *arena, size_t count, size_t item)
{
    const size_t left = arena->size - arena->used;
    const size_t slack = GW_ARENA_ALIGN - 1 + RED_ZONE;
    if (arena->failed || (item != 0 && count > (SIZE_MAX - slack) / item)) {
        arena->failed = 1;
        return NULL;
    }
    const size_t bytes = (count * item + GW_ARENA_ALIGN - 1) / GW_ARENA_ALIGN * GW_ARENA_ALIGN;
    if (bytes + RED_ZONE > left) {
        arena->failed = 1;
        return NULL;
    }
    uint8_t *piece = arena->base != NULL ? arena->base + arena->used : NULL;
    if (piece != NULL) {
        poison(piece + bytes, (size_t)RED_ZONE);
    }
    arena->used += bytes + RED_ZONE;
    return piece;
}

size_t gw_arena_need(const gw_arena *arena)
{
    return arena->used == 0 ? 0 : arena->used + GW_ARENA_ALIGN - 1;
}
