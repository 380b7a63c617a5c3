/* tests/cuda/memory.h on a real device. Allocations are kept for the next one of their size, unless
 * GW_EXACT is set: then each is its own, to the byte, for compute-sanitizer. */
#include "cuda/memory.h"

#include <cuda_runtime.h>

#include <map>
#include <stdio.h>
#include <stdlib.h>
#include <vector>

static std::map<size_t, std::vector<void *>> kept;
static std::map<void *, size_t> sizes;

static void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
        exit(3);
    }
}

extern "C" void *device_take(size_t bytes)
{
    static const int exact = getenv("GW_EXACT") != NULL;
    size_t size = bytes != 0 ? bytes : 1;
    while (!exact && (size & (size - 1)) != 0) {
        size += size & (0 - size);
    }
    void *p = NULL;
    if (!exact && !kept[size].empty()) {
        p = kept[size].back();
        kept[size].pop_back();
    } else {
        must(cudaMalloc(&p, size), "cudaMalloc");
    }
    sizes[p] = exact ? 0 : size;
    return p;
}

extern "C" void device_give(void *p)
{
    if (p == NULL) {
        return;
    }
    if (sizes[p] == 0) {
        must(cudaFree(p), "cudaFree");
    } else {
        kept[sizes[p]].push_back(p);
    }
    sizes.erase(p);
}

extern "C" void *device_stream(void)
{
    static cudaStream_t stream = NULL;
    if (stream == NULL) {
        must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream");
    }
    return stream;
}

static cudaStream_t stream(void)
{
    return (cudaStream_t)device_stream();
}

extern "C" void device_put(void *to, const void *from, size_t bytes)
{
    must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream()), "copy to the device");
}

extern "C" void device_get(void *to, const void *from, size_t bytes)
{
    must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream()),
         "copy from the device");
    must(cudaStreamSynchronize(stream()), "copy from the device");
}

extern "C" void device_fill(void *p, int byte, size_t bytes)
{
    must(cudaMemsetAsync(p, byte, bytes, stream()), "memset");
}

extern "C" void device_wait(void)
{
    must(cudaStreamSynchronize(stream()), "kernels");
    must(cudaGetLastError(), "kernels");
}
