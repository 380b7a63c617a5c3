/* What the codecs' kernels are written in: CUDA, and the few places where a processor that emulates it
 * (tests/cuda/emulated) needs another word. */
#ifndef GW_CUDA_BLOCK_H
#define GW_CUDA_BLOCK_H

#include "codec/cuda/cuda_impl.h"

#include <cuda_runtime.h>

#include <stdio.h>

#define GW_DEVICE static __device__ __forceinline__

#ifdef __CUDACC__
#    define GW_LAUNCH(kernel, grid, threads, shared, stream, ...)                                  \
        kernel<<<grid, threads, shared, (cudaStream_t)(stream)>>>(__VA_ARGS__)
#    define GW_DYNAMIC_SHARED(name) extern __shared__ __align__(16) uint8_t name[]

/* Begins as soon as all blocks of the launch before it have called gw_let_next_begin, and gets to know what that one did only by
 * gw_wait_for_last. */
template <class B>
static inline void gw_launch_early(void (*kernel)(B), uint32_t grid, uint32_t threads, void *stream,
                                   const B &batch)
{
    cudaLaunchAttribute early = {};
    cudaLaunchConfig_t how = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    how.gridDim = grid;
    how.blockDim = threads;
    how.stream = (cudaStream_t)stream;
    how.attrs = &early;
    how.numAttrs = 1;
    (void)cudaLaunchKernelEx(&how, kernel, batch); /* gw_cuda_launched sees what went wrong */
}
#else
template <class F>
static inline void gw_emulated_start(dim3 grid, dim3 threads, size_t shared, F thread)
{
    gw_emulate(
        grid, threads, shared, [](void *f) { (*static_cast<F *>(f))(); }, &thread);
}
#    define GW_LAUNCH(kernel, grid, threads, shared, stream, ...)                                  \
        ((void)(stream), gw_emulated_start(grid, threads, shared, [&] { kernel(__VA_ARGS__); }))
#    define GW_DYNAMIC_SHARED(name) uint8_t *name = static_cast<uint8_t *>(gw_emulated_shared())
template <class B>
static inline void gw_launch_early(void (*kernel)(B), uint32_t grid, uint32_t threads, void *stream,
                                   const B &batch)
{
    GW_LAUNCH(kernel, grid, threads, 0, stream, batch);
}
#endif

/* After the launches of a call. */
static inline gw_status gw_cuda_launched(gw_why *why, const char *codec)
{
    const cudaError_t error = cudaGetLastError();
    if (error == cudaSuccess) {
        return GW_OK;
    }
    if (why != NULL) {
        (void)snprintf(why->text, sizeof why->text, "%s: the device refused a launch: %s", codec,
                       cudaGetErrorString(error));
    }
    return GW_ERR_SYSTEM;
}

static inline uint64_t gw_cuda_ceil_div(uint64_t a, uint64_t b)
{
    return a / b + (a % b != 0);
}

GW_DEVICE void gw_count(uint64_t *total, uint64_t n)
{
    if (n != 0) {
        atomicAdd((unsigned long long *)total, (unsigned long long)n);
    }
}

GW_DEVICE void gw_let_next_begin(void)
{
#ifdef __CUDA_ARCH__
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

GW_DEVICE void gw_wait_for_last(void)
{
#ifdef __CUDA_ARCH__
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* Brings `bytes` at `from`, both multiples of 16, to the cache that all multiprocessors share. */
GW_DEVICE void gw_prefetch(const void *from, uint32_t bytes)
{
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
#else
    (void)from, (void)bytes;
#endif
}

/* Keeps the most negative status. */
GW_DEVICE void gw_blame(gw_cuda_result *result, gw_status status)
{
    atomicMin(&result->status, (int32_t)status);
}

/* The same number, of which the compiler does not know that it is: what follows from it is computed anew, not kept. */
GW_DEVICE uint32_t gw_afresh(uint32_t v)
{
#ifdef __CUDA_ARCH__
    asm volatile("" : "+r"(v));
#endif
    return v;
}

/* The smaller ones of two numbers of 16 bits each. */
GW_DEVICE uint32_t gw_min2(uint32_t a, uint32_t b)
{
#ifdef __CUDA_ARCH__
    uint32_t v;
    asm("min.u16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
    return v;
#else
    const uint32_t low = (a & 0xFFFFu) < (b & 0xFFFFu) ? a : b, high = a >> 16 < b >> 16 ? a : b;
    return (low & 0xFFFFu) | (high & 0xFFFF0000u);
#endif
}

/* Sixteen bytes from device to shared memory, both aligned so, without passing through registers; there when
 * gw_copies_done and a barrier have been passed. */
GW_DEVICE void gw_copy16(void *shared, const void *global)
{
#ifdef __CUDA_ARCH__
    const uint32_t to = (uint32_t)__cvta_generic_to_shared(shared);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
#else
    *(uint4 *)shared = *(const uint4 *)global; /* so that sanitizers see what is not aligned */
#endif
}

/* Closes a group of the thread's copies; of groups only the last `LEFT` may still be under way when gw_copies_come returns. */
GW_DEVICE void gw_copies_close(void)
{
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int LEFT> GW_DEVICE void gw_copies_come(void)
{
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}

GW_DEVICE void gw_copies_done(void)
{
#ifdef __CUDA_ARCH__
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

/* Bulk copies: as asynchronous ones, but of many bytes by one thread, counted by an announcement in shared memory, one of whose
 * rounds ends when all bytes that were announced for it have come. All of it begins and ends at multiples of 16 bytes. The emulation, whose
 * copies are done at once, relies on a barrier between whoever copies and whoever waits. */
typedef uint64_t gw_announcement;

/* A round ends when `threads` of them have announced what they copy, and all of it has come. */
GW_DEVICE void gw_bulk_begin(gw_announcement *a, uint32_t threads)
{
#ifdef __CUDA_ARCH__
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], %1;\n\tfence.mbarrier_init.release.cluster;" ::"r"(
            (uint32_t)__cvta_generic_to_shared(a)),
        "r"(threads)
        : "memory");
#else
    (void)threads;
    *a = 0;
#endif
}

GW_DEVICE void gw_bulk_expect(gw_announcement *a, uint32_t bytes)
{
#ifdef __CUDA_ARCH__
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(
                     (uint32_t)__cvta_generic_to_shared(a)),
                 "r"(bytes)
                 : "memory");
#else
    *a += bytes;
#endif
}

GW_DEVICE void gw_bulk_copy(void *shared, const void *global, uint32_t bytes, gw_announcement *a)
{
#ifdef __CUDA_ARCH__
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"((uint32_t)__cvta_generic_to_shared(shared)),
        "l"(global), "r"(bytes), "r"((uint32_t)__cvta_generic_to_shared(a))
        : "memory");
#else
    for (uint32_t i = 0; i < bytes / 16; i++) {
        ((uint4 *)shared)[i] = ((const uint4 *)global)[i];
    }
    *a -= bytes;
#endif
}

/* Waits for the end of a round; they are even and odd in turn, beginning with even. */
GW_DEVICE void gw_bulk_wait(gw_announcement *a, uint32_t odd)
{
#ifdef __CUDA_ARCH__
    asm volatile("{\n\t.reg .pred come;\n"
                 "again:\n\tmbarrier.try_wait.parity.shared::cta.b64 come, [%0], %1;\n\t"
                 "@!come bra again;\n\t}" ::"r"((uint32_t)__cvta_generic_to_shared(a)),
                 "r"(odd)
                 : "memory");
#else
    (void)a, (void)odd;
#endif
}

#endif
