/* The host's side of the emulated device: memory that nobody may touch but the device, and copies that are as late as
 * CUDA allows them to be. */
#include "cuda_runtime.h"
#include "pace.h"

#include <list>
#include <mutex>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <vector>

extern "C" {
extern __attribute__((visibility("default"))) gw_emulated_times gw_emulated_pace;
gw_emulated_times gw_emulated_pace;
}
static gw_emulated_times &pace = gw_emulated_pace;

struct gw_emulated_stream {
    uint64_t given; /* copies to the host */
};
struct gw_emulated_event {
    cudaStream_t stream;
    uint64_t given; /* of the stream, when it was recorded */
    int asked;
    double when;
};

namespace
{
enum : size_t { ROOM = (size_t)4 << 30, PAGE = 4096 };
enum { POISON = 0xA5 };

struct copy_out {
    cudaStream_t stream;
    uint64_t number;
    void *to;
    std::vector<uint8_t> bytes;
};
struct copy_in {
    void *to;
    const void *from;
    size_t n;
};

struct machine {
    std::recursive_mutex lock;
    int inside = 0;
    uint8_t *memory = NULL;
    size_t used = 0;
    std::list<copy_out> out;
    std::list<copy_in> in;
    gw_emulated_stream usual = {0}; /* the stream NULL */
};

machine m;

thread_local int current;

bool is_ours(const void *p)
{
    const uint8_t *byte = (const uint8_t *)p;
    return m.memory != NULL && byte >= m.memory && byte < m.memory + ROOM;
}

void read_late(void)
{
    for (const copy_in &c : m.in) {
        memcpy(c.to, c.from, c.n);
    }
    m.in.clear();
}

/* Copies to the host that `stream` was given, up to a number, arrive. */
void deliver(cudaStream_t stream, uint64_t up_to)
{
    for (auto c = m.out.begin(); c != m.out.end();) {
        if (c->stream == stream && c->number <= up_to) {
            memcpy(c->to, c->bytes.data(), c->bytes.size());
            c = m.out.erase(c);
        } else {
            ++c;
        }
    }
}

struct inside {
    inside()
    {
        gw_emulated_enter();
    }
    ~inside()
    {
        gw_emulated_leave();
    }
};

cudaStream_t real(cudaStream_t stream)
{
    return stream != NULL ? stream : &m.usual;
}

double now(void)
{
    struct timespec t;
    if (pace.made_up) {
        return pace.now;
    }
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
} // namespace

void gw_emulated_launched(double blocks)
{
    pace.now += (pace.launch + blocks * pace.block) * (1 + pace.swing * (pace.records / 2 % 3));
}

void gw_emulated_enter(void)
{
    m.lock.lock();
    if (m.inside++ == 0) {
        if (m.used != 0) {
            (void)mprotect(m.memory, m.used, PROT_READ | PROT_WRITE);
        }
        read_late();
    }
}

void gw_emulated_leave(void)
{
    if (--m.inside == 0 && m.used != 0) {
        (void)mprotect(m.memory, m.used, PROT_NONE);
    }
    m.lock.unlock();
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "out of memory"
           : error == cudaErrorInvalidDevice  ? "invalid device ordinal"
                                              : "emulated";
}

cudaError_t cudaGetDeviceCount(int *n)
{
    *n = 1;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (device != 0) {
        return cudaErrorInvalidDevice;
    }
    current = device;
    return cudaSuccess;
}

/* Pages are used once, so that what was freed is never another's. */
cudaError_t cudaMalloc(void **out, size_t bytes)
{
    const inside here;
    const size_t n = (bytes + PAGE - 1) / PAGE * PAGE;
    if (m.memory == NULL) {
        void *room =
            mmap(NULL, ROOM, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (room == MAP_FAILED) {
            return cudaErrorMemoryAllocation;
        }
        m.memory = (uint8_t *)room;
    }
    if (n > ROOM - m.used) {
        return cudaErrorMemoryAllocation;
    }
    *out = m.memory + m.used;
    m.used += n;
    (void)mprotect(*out, n, PROT_READ | PROT_WRITE);
    memset(*out, POISON, n);
    return cudaSuccess;
}

cudaError_t cudaFree(void *)
{
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned)
{
    *out = malloc(bytes);
    return *out != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFreeHost(void *memory)
{
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -1;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned, int)
{
    *out = new gw_emulated_stream{0};
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    (void)cudaStreamSynchronize(stream);
    delete stream;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    const inside here;
    deliver(real(stream), real(stream)->given);
    return cudaSuccess;
}

/* Launches run at once, in the order of the host's calls. */
cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned)
{
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    *out = new gw_emulated_event{&m.usual, 0, 0, 0};
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    delete event;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    const inside here;
    pace.records++;
    *event = {real(stream), real(stream)->given, 0, now()};
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    if (event->asked++ == 0) {
        return cudaErrorNotReady;
    }
    const inside here;
    deliver(event->stream, event->given);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t from, cudaEvent_t to)
{
    *milliseconds = (float)(1e3 * (to->when - from->when));
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *p, int byte, size_t n, cudaStream_t)
{
    const inside here;
    memset(p, byte, n);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, int, cudaStream_t stream)
{
    const inside here;
    if (pace.made_up && is_ours(from) != is_ours(to)) {
        const int way = is_ours(from) ? 1 : 0;
        pace.now += pace.latency[way] + (double)n / pace.rate[way];
    }
    if (is_ours(from) && !is_ours(to)) {
        const uint8_t *bytes = (const uint8_t *)from;
        m.out.push_back({real(stream), ++real(stream)->given, to, {bytes, bytes + n}});
        memset(to, POISON, n);
    } else if (is_ours(to) && !is_ours(from)) {
        m.in.push_back({to, from, n});
    } else {
        memmove(to, from, n);
    }
    return cudaSuccess;
}
