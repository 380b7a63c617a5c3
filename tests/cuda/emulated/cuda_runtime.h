/* Just enough of CUDA for the codecs' .cu files to be compiled by g++ and run on a processor: found in place of the
 * real header. A block's threads are fibers that switch at barriers and warp exchanges; blocks run one after the other.
 * What it cannot show, races and speed, is for bench/cuda on a real device. */
#ifndef GW_TESTS_CUDA_RUNTIME_H
#define GW_TESTS_CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define GW_EMULATED 1
#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __shared__       static /* one block at a time */

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c)
    {
    }
};
struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
static inline uint2 make_uint2(uint32_t x, uint32_t y)
{
    return {x, y};
}
static inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
    return {x, y, z, w};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

/* Runs body once for every thread of every block; all see `shared_bytes` of poisoned shared memory a block. */
typedef void gw_emulated_body(void *arg);
void gw_emulate(dim3 grid, dim3 threads, size_t shared_bytes, gw_emulated_body *body, void *arg);
void gw_emulated_launched(double blocks); /* so much time passes where time is made up */
/* What a launch may ask for; more after cudaFuncSetAttribute, of whatever kernel. */
extern size_t gw_emulated_most_shared;
void *gw_emulated_shared(void);
void gw_emulated_wait_block(void);
void gw_emulated_wait_warp(uint32_t mask);
uint64_t *gw_emulated_slots(void); /* one a thread of the block */

static inline uint32_t gw_emulated_thread(void)
{
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

static inline void __syncthreads(void)
{
    gw_emulated_wait_block();
}

static inline int __syncthreads_or(int holds)
{
    uint64_t *slots = gw_emulated_slots();
    int any = 0;
    slots[gw_emulated_thread()] = holds != 0;
    gw_emulated_wait_block();
    for (uint32_t i = 0; i < blockDim.x * blockDim.y * blockDim.z; i++) {
        any |= slots[i] != 0;
    }
    gw_emulated_wait_block();
    return any;
}

static inline void __syncwarp(uint32_t mask = 0xFFFFFFFFu)
{
    gw_emulated_wait_warp(mask);
}

/* Every thread of the mask shows `v`; fold(lane, value) then sees them all. */
template <class T, class F> static inline void gw_emulated_exchange(uint32_t mask, T v, F fold)
{
    static_assert(sizeof(T) <= 8, "one slot a thread");
    const uint32_t thread = gw_emulated_thread(), warp = thread / 32 * 32;
    uint64_t *slots = gw_emulated_slots();
    memcpy(&slots[thread], &v, sizeof v);
    gw_emulated_wait_warp(mask);
    for (uint32_t lane = 0; lane < 32; lane++) {
        if (mask >> lane & 1) {
            T other;
            memcpy(&other, &slots[warp + lane], sizeof other);
            fold(lane, other);
        }
    }
    gw_emulated_wait_warp(mask);
}

template <class T> static inline T gw_emulated_from(uint32_t mask, T v, uint32_t source)
{
    T got = v;
    gw_emulated_exchange(mask, v, [&](uint32_t lane, T other) {
        if (lane == source) {
            got = other;
        }
    });
    return got;
}

static inline uint32_t gw_emulated_lane(void)
{
    return gw_emulated_thread() % 32;
}

template <class T> static inline T __shfl_sync(uint32_t mask, T v, int source, int width = 32)
{
    const uint32_t w = (uint32_t)width;
    return gw_emulated_from(mask, v,
                            (gw_emulated_lane() & ~(w - 1)) | ((uint32_t)source & (w - 1)));
}

template <class T> static inline T __shfl_xor_sync(uint32_t mask, T v, int with, int width = 32)
{
    (void)width;
    return gw_emulated_from(mask, v, gw_emulated_lane() ^ (uint32_t)with);
}

template <class T> static inline T __shfl_down_sync(uint32_t mask, T v, int by, int width = 32)
{
    const uint32_t lane = gw_emulated_lane(), w = (uint32_t)width, at = lane + (uint32_t)by;
    return gw_emulated_from(mask, v, at / w == lane / w ? at : lane);
}

template <class T> static inline T __shfl_up_sync(uint32_t mask, T v, int by, int width = 32)
{
    const uint32_t lane = gw_emulated_lane(), w = (uint32_t)width;
    return gw_emulated_from(mask, v, lane % w >= (uint32_t)by ? lane - (uint32_t)by : lane);
}

static inline uint32_t __ballot_sync(uint32_t mask, int holds)
{
    uint32_t all = 0;
    gw_emulated_exchange(mask, holds,
                         [&](uint32_t lane, int other) { all |= (uint32_t)(other != 0) << lane; });
    return all;
}

static inline int __any_sync(uint32_t mask, int holds)
{
    return __ballot_sync(mask, holds) != 0;
}

static inline int __all_sync(uint32_t mask, int holds)
{
    return __ballot_sync(mask, holds) == mask;
}

static inline uint32_t __reduce_max_sync(uint32_t mask, uint32_t v)
{
    uint32_t all = v;
    gw_emulated_exchange(mask, v,
                         [&](uint32_t, uint32_t other) { all = other > all ? other : all; });
    return all;
}

static inline uint32_t __reduce_min_sync(uint32_t mask, uint32_t v)
{
    uint32_t all = v;
    gw_emulated_exchange(mask, v,
                         [&](uint32_t, uint32_t other) { all = other < all ? other : all; });
    return all;
}

static inline uint32_t __reduce_add_sync(uint32_t mask, uint32_t v)
{
    uint32_t all = 0;
    gw_emulated_exchange(mask, v, [&](uint32_t, uint32_t other) { all += other; });
    return all;
}

static inline uint32_t __reduce_or_sync(uint32_t mask, uint32_t v)
{
    uint32_t all = 0;
    gw_emulated_exchange(mask, v, [&](uint32_t, uint32_t other) { all |= other; });
    return all;
}

static inline void __threadfence(void)
{
}

static inline void __threadfence_block(void)
{
}

static inline int __popc(uint32_t v)
{
    return __builtin_popcount(v);
}

static inline int __popcll(uint64_t v)
{
    return __builtin_popcountll(v);
}

static inline int __clz(int v)
{
    return v == 0 ? 32 : __builtin_clz((unsigned)v);
}

static inline int __ffs(int v)
{
    return __builtin_ffs(v);
}

static inline uint32_t __brev(uint32_t v)
{
    uint32_t back = 0;
    for (int i = 0; i < 32; i++) {
        back |= (v >> i & 1u) << (31 - i);
    }
    return back;
}

static inline uint32_t __funnelshift_r(uint32_t low, uint32_t high, uint32_t by)
{
    return (uint32_t)(((uint64_t)high << 32 | low) >> (by & 31));
}

static inline uint32_t __funnelshift_l(uint32_t low, uint32_t high, uint32_t by)
{
    return (uint32_t)(((uint64_t)high << 32 | low) << (by & 31) >> 32);
}

static inline uint32_t __dp4a(uint32_t x, uint32_t y, uint32_t sum)
{
    for (int i = 0; i < 32; i += 8) {
        sum += (x >> i & 0xFFu) * (y >> i & 0xFFu);
    }
    return sum;
}

static inline uint32_t __byte_perm(uint32_t x, uint32_t y, uint32_t selector)
{
    const uint64_t both = (uint64_t)y << 32 | x;
    uint32_t out = 0;
    for (int i = 0; i < 4; i++) {
        const uint32_t pick = selector >> 4 * i;
        uint32_t byte = (uint32_t)(both >> 8 * (pick & 7)) & 0xFFu;
        byte = (pick & 8) == 0 ? byte : (byte & 0x80) != 0 ? 0xFFu : 0;
        out |= byte << 8 * i;
    }
    return out;
}

template <class T> static inline T __ldg(const T *p)
{
    return *p;
}

template <class T> static inline T __ldcs(const T *p)
{
    return *p;
}

template <class T> static inline void __stcs(T *p, T v)
{
    *p = v;
}

/* One thread runs at a time. */
template <class T> static inline T atomicAdd(T *p, T v)
{
    const T before = *p;
    *p = (T)(before + v);
    return before;
}
template <class T> static inline T atomicMin(T *p, T v)
{
    const T before = *p;
    *p = v < before ? v : before;
    return before;
}
template <class T> static inline T atomicMax(T *p, T v)
{
    const T before = *p;
    *p = v > before ? v : before;
    return before;
}
template <class T> static inline T atomicOr(T *p, T v)
{
    const T before = *p;
    *p = (T)(before | v);
    return before;
}
template <class T> static inline T atomicExch(T *p, T v)
{
    const T before = *p;
    *p = v;
    return before;
}
template <class T> static inline T atomicCAS(T *p, T expected, T v)
{
    const T before = *p;
    *p = before == expected ? v : before;
    return before;
}

/* The host's side. Device memory cannot be touched but by launches and calls of this header. A copy to the host leaves
 * poison until its event or stream is asked, one from the host reads as late as it can, and an event is not done the
 * first time it is asked. Memory that did not come from cudaMalloc may stand in for a device's. */
typedef struct gw_emulated_stream *cudaStream_t;
typedef struct gw_emulated_event *cudaEvent_t;
typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorMemoryAllocation = 2,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNotReady = 600
} cudaError_t;
typedef enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8
} cudaFuncAttribute;
enum { cudaMemcpyDefault = 4, cudaStreamNonBlocking = 1, cudaHostAllocPortable = 1 };

static inline cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}
const char *cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetDeviceCount(int *n);
cudaError_t cudaGetDevice(int *device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaMalloc(void **out, size_t bytes);
cudaError_t cudaFree(void *memory);
cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *memory);
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreate(cudaEvent_t *out);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaMemsetAsync(void *p, int byte, size_t n, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, int kind, cudaStream_t stream);
template <class F> static inline cudaError_t cudaFuncSetAttribute(F, cudaFuncAttribute, int bytes)
{
    gw_emulated_most_shared = (size_t)bytes;
    return cudaSuccess;
}

/* One launch or call at a time; device memory can be touched in between. */
void gw_emulated_enter(void);
void gw_emulated_leave(void);

#endif
