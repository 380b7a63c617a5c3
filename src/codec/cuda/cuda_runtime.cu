/* Memory, streams and events by CUDA's runtime: thin, so that the core can be without it. */
#include "base/hash.h"
#include "codec/cuda/cuda_block.h"

namespace
{
/* The calling thread's device for the length of a call. */
struct on_device {
    int before = 0, device;

    explicit on_device(int wanted) : device(wanted)
    {
        (void)cudaGetDevice(&before);
        if (before != device) {
            (void)cudaSetDevice(device);
        }
    }
    ~on_device()
    {
        if (before != device) {
            (void)cudaSetDevice(before);
        }
    }
    on_device(const on_device &) = delete;
    on_device &operator=(const on_device &) = delete;
};

gw_status told(cudaError_t error, const char *what, gw_why *why)
{
    if (error == cudaSuccess) {
        return GW_OK;
    }
    (void)cudaGetLastError(); /* the failure is told; the next call shall not find it */
    if (why != NULL) {
        (void)snprintf(why->text, sizeof why->text, "CUDA: %s: %s", what,
                       cudaGetErrorString(error));
    }
    return error == cudaErrorMemoryAllocation ? GW_ERR_MEMORY : GW_ERR_SYSTEM;
}

gw_status use(int device, int *before, gw_why *why)
{
    int was = 0;
    cudaError_t error = cudaGetDevice(&was);
    if (error == cudaSuccess) { /* also where it is: only then has a new thread its context */
        error = cudaSetDevice(device);
    }
    if (before != NULL) {
        *before = was;
    }
    return told(error, "choosing a device", why);
}

gw_status allocate(int device, size_t bytes, int pinned, void **out, gw_why *why)
{
    const on_device guard(device);
    void *memory = NULL;
    const size_t n = bytes != 0 ? bytes : 1;
    const cudaError_t error =
        pinned ? cudaHostAlloc(&memory, n, cudaHostAllocPortable) : cudaMalloc(&memory, n);
    const gw_status status = told(error, pinned ? "pinning memory" : "memory", why);
    if (status == GW_OK) {
        *out = memory;
    }
    return status;
}

void give_back(int device, void *memory, int pinned)
{
    const on_device guard(device);
    (void)(pinned ? cudaFreeHost(memory) : cudaFree(memory));
}

gw_status stream_open(int device, void **stream, gw_why *why)
{
    const on_device guard(device);
    int least = 0, greatest = 0;
    cudaStream_t made = NULL;
    (void)cudaDeviceGetStreamPriorityRange(&least, &greatest);
    const gw_status status =
        told(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking, greatest), "a stream", why);
    *stream = made;
    return status;
}

void stream_close(int device, void *stream)
{
    const on_device guard(device);
    (void)cudaStreamDestroy((cudaStream_t)stream);
}

gw_status event_open(int device, void **event, gw_why *why)
{
    const on_device guard(device);
    cudaEvent_t made = NULL;
    const gw_status status = told(cudaEventCreate(&made), "an event", why);
    *event = made;
    return status;
}

void event_close(int device, void *event)
{
    const on_device guard(device);
    (void)cudaEventDestroy((cudaEvent_t)event);
}

gw_status record(int device, void *event, void *stream, gw_why *why)
{
    const on_device guard(device);
    return told(cudaEventRecord((cudaEvent_t)event, (cudaStream_t)stream), "recording an event",
                why);
}

gw_status follow(int device, void *stream, void *event, gw_why *why)
{
    const on_device guard(device);
    return told(cudaStreamWaitEvent((cudaStream_t)stream, (cudaEvent_t)event, 0),
                "waiting for an event", why);
}

gw_status done(int device, void *event, int *is_done, gw_why *why)
{
    const on_device guard(device);
    const cudaError_t error = cudaEventQuery((cudaEvent_t)event);
    *is_done = error == cudaSuccess;
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
        return GW_OK;
    }
    return told(error, "work on the device", why);
}

gw_status wait(int device, void *stream, gw_why *why)
{
    const on_device guard(device);
    return told(cudaStreamSynchronize((cudaStream_t)stream), "work on the device", why);
}

gw_status elapsed(int device, void *from, void *to, double *seconds, gw_why *why)
{
    const on_device guard(device);
    float milliseconds = 0;
    const gw_status status =
        told(cudaEventElapsedTime(&milliseconds, (cudaEvent_t)from, (cudaEvent_t)to),
             "the time between two events", why);
    *seconds = 1e-3 * (double)milliseconds;
    return status;
}

gw_status copy(int device, void *stream, void *to, const void *from, size_t bytes, gw_why *why)
{
    const on_device guard(device);
    return bytes == 0
               ? GW_OK
               : told(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, (cudaStream_t)stream),
                      "a copy", why);
}

gw_status clear(int device, void *stream, void *to, size_t bytes, gw_why *why)
{
    const on_device guard(device);
    return bytes == 0
               ? GW_OK
               : told(cudaMemsetAsync(to, 0, bytes, (cudaStream_t)stream), "clearing memory", why);
}

/* ---- heads of payloads ---- */

enum { HEADS = 128 /* of a launch: they travel in its arguments */ };

struct head_list {
    gw_cuda_head head;
    uint32_t n, check;
    gw_cuda_entry entry[HEADS];
};

__global__ void __launch_bounds__(HEADS) heads_kernel(const __grid_constant__ head_list list)
{
    const uint32_t i = threadIdx.x;
    if (i >= list.n) {
        return;
    }
    gw_cuda_head *at = list.entry[i].head;
    gw_cuda_result *result = list.entry[i].result;
    const gw_cuda_head wanted = list.head;
    if (!list.check) {
        const gw_cuda_head head = {result->written, wanted.step, wanted.tensor, wanted.codec};
        *at = head;
        return;
    }
    const gw_cuda_head head = *at;
    const uint64_t size = list.entry[i].size;
    if (head.step != wanted.step || head.tensor != wanted.tensor || head.codec != wanted.codec ||
        (size != 0 && head.size != size)) {
        at->size = UINT64_MAX;
        gw_blame(result, GW_ERR_CHECKSUM);
    }
}

gw_status heads(int device, void *stream, const gw_cuda_head *head, const gw_cuda_entry *entries,
                size_t n, int check, gw_why *why)
{
    const on_device guard(device);
    head_list list;
    for (size_t i = 0; i < n; i += HEADS) {
        list.head = *head;
        list.n = n - i < HEADS ? (uint32_t)(n - i) : (uint32_t)HEADS;
        list.check = check != 0;
        for (uint32_t j = 0; j < list.n; j++) {
            list.entry[j] = entries[i + j];
        }
        GW_LAUNCH(heads_kernel, 1, HEADS, 0, stream, list);
    }
    return gw_cuda_launched(why, "heads of payloads");
}

/* ---- hashes ---- */

enum { HASHERS = 256, HASHED = 16 /* numbers a thread */ };

/* Every number is mixed with its place, so that the sum may be made in any order. */
template <class T>
__global__ void __launch_bounds__(HASHERS)
    hash_kernel(const T *numbers, uint64_t n, uint64_t key, uint64_t first, uint64_t *sum)
{
    __shared__ unsigned long long of_block;
    const uint64_t begin = (uint64_t)blockIdx.x * HASHERS * HASHED;
    uint64_t own = 0;
    if (threadIdx.x == 0) {
        of_block = 0;
    }
    __syncthreads();
    for (uint32_t i = 0; i < HASHED; i++) {
        const uint64_t at = begin + i * HASHERS + threadIdx.x;
        if (at < n) {
            own += gw_hash_at(key, first + at, numbers[at]);
        }
    }
    for (int by = 16; by != 0; by /= 2) {
        own += __shfl_xor_sync(0xFFFFFFFFu, own, by);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(&of_block, (unsigned long long)own);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd((unsigned long long *)sum, of_block);
    }
}

gw_status hash(int device, void *stream, const void *numbers, size_t n, size_t width, uint64_t key,
               uint64_t first, uint64_t *sum, gw_why *why)
{
    const on_device guard(device);
    const uint32_t blocks = (uint32_t)gw_cuda_ceil_div(n, (uint64_t)HASHERS * HASHED);
    if (n == 0) {
        return GW_OK;
    }
    if (width == 4) {
        GW_LAUNCH(hash_kernel<uint32_t>, blocks, HASHERS, 0, stream, (const uint32_t *)numbers, n,
                  key, first, sum);
    } else {
        GW_LAUNCH(hash_kernel<uint16_t>, blocks, HASHERS, 0, stream, (const uint16_t *)numbers, n,
                  key, first, sum);
    }
    return gw_cuda_launched(why, "hash");
}
} // namespace

extern "C" {
extern const gw_cuda_runtime gw_cuda_runtime_calls __attribute__((visibility("hidden")));
const gw_cuda_runtime gw_cuda_runtime_calls = {
    use,    allocate, give_back, stream_open, stream_close, event_open, event_close, record,
    follow, done,     wait,      elapsed,     copy,         clear,      heads,       hash};
}
