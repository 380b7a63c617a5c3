/* The values of values.h on the device: a block of threads writes a run of 4096 of them, eight a thread. */
#ifndef GW_CUDA_VALUES_H
#define GW_CUDA_VALUES_H

#include "codec/cuda/cuda_select.h"
#include "codec/values/values_core.h"

enum {
    GW_VALUES_OWN = 8,
    GW_VALUES_THREADS = GW_NATURAL_BLOCK / GW_VALUES_OWN,
    GW_VALUES_RUN = GW_NATURAL_BLOCK
};

/* What encoding one block of values needs to know. */
typedef struct gw_values_job {
    uint8_t *payload; /* where values begin */
    uint64_t block;   /* which 4096 of them */
    uint64_t key;
    gw_cuda_result *result;
    uint32_t top; /* gw_natural_top */
} gw_values_job;

/* The thread's entries of a run are threadIdx.x + GW_VALUES_THREADS * i: is entry i one of n? */
GW_DEVICE int gw_values_own(int i, uint32_t n)
{
    return threadIdx.x + (uint32_t)(GW_VALUES_THREADS * i) < n;
}

GW_DEVICE void gw_values_put_f32(const float v[GW_VALUES_OWN], uint32_t n, uint8_t *to)
{
    const int aligned = gw_aligned_to(to, 4);
#pragma unroll
    for (int i = 0; i < GW_VALUES_OWN; i++) {
        const uint32_t j = threadIdx.x + (uint32_t)(GW_VALUES_THREADS * i);
        if (j < n && aligned) {
            ((uint32_t *)to)[j] = gw_bits(v[i]);
        } else if (j < n) {
            gw_leave_u32(to + 4 * j, gw_bits(v[i]));
        }
    }
}

/* The thread's values of elements index[…] as codes; v becomes what a decoder makes of them. */
GW_DEVICE void gw_values_put_natural(float v[GW_VALUES_OWN], const uint32_t index[GW_VALUES_OWN],
                                     uint32_t n, const gw_values_job &job)
{
    __shared__ uint32_t largest;
    const gw_random_pair k = gw_random_pair_at(job.key, 0); /* indices are below 2^32 */
    uint32_t mine = 0, overflowed = 0, r[GW_VALUES_OWN];
    if (threadIdx.x == 0) {
        largest = 0;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < GW_VALUES_OWN; i++) {
        r[i] = gw_random_r23(k, index[i]);
        const uint32_t bits = gw_bits(v[i]), e = gw_natural_exponent(bits, r[i], job.top);
        if (gw_values_own(i, n) && e != GW_NATURAL_NON_FINITE) {
            overflowed += ((bits & GW_ABS_MASK) + r[i]) >> GW_MANT_BITS > job.top;
            mine = e > mine ? e : mine;
        }
    }
    gw_count(&job.result->overflowed, overflowed);
    const uint32_t of_warp = __reduce_max_sync(0xFFFFFFFFu, mine);
    if (threadIdx.x % 32 == 0) {
        atomicMax(&largest, of_warp);
    }
    __syncthreads();
    const uint32_t base = gw_natural_base(largest);
    uint8_t *block = job.payload + job.block * (GW_VALUES_RUN + 1);
    if (threadIdx.x == 0 && n != 0) {
        block[0] = (uint8_t)base;
    }
#pragma unroll
    for (int i = 0; i < GW_VALUES_OWN; i++) {
        if (gw_values_own(i, n)) {
            const uint8_t code = gw_natural_code(gw_bits(v[i]), r[i], job.top, base);
            block[1 + threadIdx.x + GW_VALUES_THREADS * i] = code;
            v[i] = gw_natural_value8(code, base);
        }
    }
}

/* The n values of a run. By all threads of a block of GW_VALUES_THREADS. */
GW_DEVICE void gw_values_put(float v[GW_VALUES_OWN], const uint32_t index[GW_VALUES_OWN],
                             uint32_t n, int natural, const gw_values_job &job)
{
    if (natural) {
        gw_values_put_natural(v, index, n, job);
    } else {
        gw_values_put_f32(v, n, job.payload + 4 * job.block * GW_VALUES_RUN);
    }
}

/* Value j; 0 if its block's base is none. */
GW_DEVICE int gw_values_get(const uint8_t *payload, int natural, uint64_t j, float *v)
{
    if (!natural) {
        *v = gw_float(gw_aligned_to(payload, 4) ? ((const uint32_t *)payload)[j]
                                                : gw_there_u32(payload + 4 * j));
        return 1;
    }
    const uint8_t *block = payload + j / GW_VALUES_RUN * (GW_VALUES_RUN + 1);
    *v = gw_natural_value8(block[1 + j % GW_VALUES_RUN], block[0]);
    return block[0] >= 1 && block[0] <= 128;
}

#endif
