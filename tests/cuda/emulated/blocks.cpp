/* A block's threads as fibers, which live from block to block. One is entered by ucontext, which asks the kernel for the mask of
 * signals, and left and resumed by the compiler's own jump, which does not: blocks meet at barriers millions of times. */
#include "cuda_runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

dim3 threadIdx, blockIdx, blockDim, gridDim;
size_t gw_emulated_most_shared = 48 * 1024;

namespace
{
enum { MAX_THREADS = 1024, STACK = 128 * 1024, MAX_SHARED = 227 * 1024 };

struct barrier {
    uint32_t arrived, generation;
};

struct fiber {
    ucontext_t first;
    void *at[5]; /* where it was left */
    bool begun;
};

struct block {
    fiber scheduler, threads[MAX_THREADS];
    dim3 index[MAX_THREADS];
    bool done[MAX_THREADS];
    uint32_t n, now, live;
    uint64_t idle;                    /* switches since a barrier last opened or a thread ended */
    barrier whole, warp[MAX_THREADS]; /* of a warp's threads: by the mask's lowest */
    uint64_t slot[MAX_THREADS];
    alignas(256) uint8_t shared[MAX_SHARED];
    gw_emulated_body *body;
    void *arg;
    uint8_t *stacks;
};
block *b;

/* Not looked at by the address sanitizer, which takes a jump for one back along the thread's own stack. */
__attribute__((noinline, no_sanitize("address"))) void enter(fiber *to)
{
    if (to->begun) {
        __builtin_longjmp(to->at, 1);
    }
    to->begun = true;
    setcontext(&to->first);
    abort();
}

/* Comes back when someone enters `from` again. */
__attribute__((noinline, no_sanitize("address"))) void leave(fiber *from, fiber *to)
{
    if (__builtin_setjmp(from->at) == 0) {
        enter(to);
    }
}

/* To the next thread that is not done, or where the block began; back here when it is this one's turn again. */
void yield(void)
{
    fiber *const me = &b->threads[b->now];
    if (b->live == 0) {
        leave(me, &b->scheduler);
        return;
    }
    if (++b->idle > 8ull * b->n + 64) {
        fprintf(stderr, "threads of block %u wait for each other at different places\n",
                blockIdx.x);
        abort();
    }
    do {
        b->now = (b->now + 1) % b->n;
    } while (b->done[b->now]);
    threadIdx = b->index[b->now];
    if (&b->threads[b->now] != me) {
        leave(me, &b->threads[b->now]);
    }
}

void wait(barrier *at, uint32_t members)
{
    const uint32_t generation = at->generation;
    if (++at->arrived == members) {
        at->arrived = 0;
        at->generation++;
        b->idle = 0;
        return;
    }
    while (at->generation == generation) {
        yield();
    }
}

void run_fiber(void)
{
    for (;;) { /* block after block */
        b->body(b->arg);
        b->done[b->now] = true;
        b->live--;
        b->idle = 0;
        yield();
    }
}

void run_block(void)
{
    b->now = 0;
    b->live = b->n;
    b->idle = 0;
    b->whole = {0, 0};
    memset(b->warp, 0, sizeof b->warp);
    memset(b->done, 0, sizeof b->done);
    for (uint32_t i = 0; i < b->n; i++) {
        fiber *const f = &b->threads[i];
        if (!f->begun) {
            getcontext(&f->first);
            f->first.uc_stack.ss_sp = b->stacks + (size_t)i * STACK;
            f->first.uc_stack.ss_size = STACK;
            makecontext(&f->first, run_fiber, 0);
        }
        b->index[i] =
            dim3(i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y);
    }
    threadIdx = b->index[0];
    leave(&b->scheduler, &b->threads[0]);
}
} // namespace

void gw_emulate(dim3 grid, dim3 threads, size_t shared_bytes, gw_emulated_body *body, void *arg)
{
    gw_emulated_enter();
    if (b == NULL) {
        b = (block *)aligned_alloc(256, (sizeof *b + 255) / 256 * 256);
        void *stacks = mmap(NULL, (size_t)MAX_THREADS * STACK, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (b == NULL || stacks == MAP_FAILED) {
            abort();
        }
        b->stacks = (uint8_t *)stacks;
        b->scheduler.begun = true;
        for (fiber &f : b->threads) {
            f.begun = false;
        }
    }
    gridDim = grid;
    blockDim = threads;
    b->n = threads.x * threads.y * threads.z;
    b->body = body;
    b->arg = arg;
    if (b->n == 0 || b->n > MAX_THREADS || shared_bytes > gw_emulated_most_shared || grid.x == 0) {
        fprintf(stderr, "a launch that no device would take\n");
        abort();
    }
    for (uint32_t z = 0; z < grid.z; z++) {
        for (uint32_t y = 0; y < grid.y; y++) {
            for (uint32_t x = 0; x < grid.x; x++) {
                blockIdx = dim3(x, y, z);
                memset(b->shared, 0xA5, shared_bytes);
                run_block();
            }
        }
    }
    gw_emulated_launched((double)grid.x * grid.y * grid.z);
    gw_emulated_leave();
}

__attribute__((destructor)) static void give_back(void)
{
    if (b != NULL) {
        munmap(b->stacks, (size_t)MAX_THREADS * STACK);
        free(b);
    }
}

void *gw_emulated_shared(void)
{
    return b->shared;
}

uint64_t *gw_emulated_slots(void)
{
    return b->slot;
}

void gw_emulated_wait_block(void)
{
    wait(&b->whole, b->live);
}

void gw_emulated_wait_warp(uint32_t mask)
{
    const uint32_t warp = gw_emulated_thread() / 32 * 32;
    const uint32_t there = b->n - warp < 32 ? (1u << (b->n - warp)) - 1 : 0xFFFFFFFFu;
    wait(&b->warp[warp + (uint32_t)__builtin_ctz(mask)],
         (uint32_t)__builtin_popcount(mask & there));
}
