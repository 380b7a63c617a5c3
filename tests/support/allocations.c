#define _GNU_SOURCE
#include "support/allocations.h"

#include "support/check.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *block, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
int __real_posix_memalign(void **block, size_t alignment, size_t bytes);
void __real_free(void *block);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *block, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
int __wrap_posix_memalign(void **block, size_t alignment, size_t bytes);
void __wrap_free(void *block);

static atomic_int watching, failed;
static atomic_uint_fast64_t seen, left; /* left: before one fails */
static atomic_int_fast64_t live;
static _Atomic(void *) where;

void allocations_watch(int on)
{
    if (on) {
        atomic_store(&seen, 0);
        atomic_store(&where, NULL);
    }
    atomic_store(&watching, on);
}

uint64_t allocations_seen(void)
{
    return atomic_load(&seen);
}

void allocations_fail(uint64_t number)
{
    atomic_store(&left, number);
    if (number != 0) {
        atomic_store(&failed, 0);
        atomic_store(&where, NULL);
    }
}

int allocations_failed(void)
{
    return atomic_load(&failed);
}

int64_t allocations_live(void)
{
    return atomic_load(&live);
}

const char *allocations_where(void)
{
    static char text[300];
    Dl_info info;
    void *at = atomic_load(&where);
    if (at == NULL || dladdr(at, &info) == 0) {
        return "nowhere";
    }
    (void)snprintf(text, sizeof text, "addr2line -fe %s %#tx", info.dli_fname,
                   (char *)at - (char *)info.dli_fbase - 1);
    return text;
}

static void came_from(void *caller)
{
    void *none = NULL;
    (void)atomic_compare_exchange_strong(&where, &none, caller);
}

/* 1: the call is to fail. */
static int asked(void *caller)
{
    if (atomic_load(&watching)) {
        atomic_fetch_add(&seen, 1);
        came_from(caller);
    }
    uint_fast64_t before = atomic_load(&left);
    while (before != 0 && !atomic_compare_exchange_weak(&left, &before, before - 1)) {
    }
    if (before == 1) {
        atomic_store(&failed, 1);
        came_from(caller);
        errno = ENOMEM;
    }
    return before == 1;
}

static void *given(void *block)
{
    atomic_fetch_add(&live, block != NULL);
    return block;
}

#define CALLER __builtin_return_address(0)

void *__wrap_malloc(size_t bytes)
{
    return asked(CALLER) ? NULL : given(__real_malloc(bytes));
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return asked(CALLER) ? NULL : given(__real_calloc(n, bytes));
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
    return asked(CALLER) ? NULL : given(__real_aligned_alloc(alignment, bytes));
}

int __wrap_posix_memalign(void **block, size_t alignment, size_t bytes)
{
    if (asked(CALLER)) {
        return ENOMEM;
    }
    const int code = __real_posix_memalign(block, alignment, bytes);
    atomic_fetch_add(&live, code == 0);
    return code;
}

void *__wrap_realloc(void *block, size_t bytes)
{
    if (asked(CALLER)) {
        return NULL;
    }
    void *moved = __real_realloc(block, bytes);
    atomic_fetch_add(&live, block == NULL && moved != NULL);
    return moved;
}

void __wrap_free(void *block)
{
    if (block != NULL && atomic_load(&watching)) {
        atomic_fetch_add(&seen, 1);
        came_from(CALLER);
    }
    atomic_fetch_sub(&live, block != NULL);
    __real_free(block);
}

uint64_t allocations_try(const char *name, allocations_scene *scene, void *arg)
{
    for (uint64_t i = 1;; i++) {
        gw_why why = {""};
        const int64_t before = allocations_live();
        allocations_fail(i);
        const gw_status status = scene(arg, &why);
        const int reached = allocations_failed();
        allocations_fail(0);
        CHECK(allocations_live() == before, "%s, allocation %llu fails (%s): %lld blocks stay",
              name, (unsigned long long)i, allocations_where(),
              (long long)(allocations_live() - before));
        if (!reached) {
            CHECK(status == GW_OK, "%s: %s", name, why.text);
            return i - 1;
        }
        CHECK(status == GW_ERR_MEMORY && why.text[0] != '\0',
              "%s, allocation %llu fails (%s): status %d, reason '%s'", name, (unsigned long long)i,
              allocations_where(), (int)status, why.text);
    }
}
