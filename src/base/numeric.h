/* The numeric law's smallest pieces (docs/numerics.md): bit patterns, half types, and the
 * floating-point environment in which every codec runs. */
#ifndef GW_BASE_NUMERIC_H
#define GW_BASE_NUMERIC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#    include <xmmintrin.h>
#endif

#ifdef __CUDACC__
#    define GW_HD __host__ __device__
#else
#    define GW_HD
#endif

/* For functions whose constant arguments must become constants of the loop. */
#define GW_INLINE static inline __attribute__((always_inline))

#define GW_SIGN_BIT  0x80000000u
#define GW_ABS_MASK  0x7FFFFFFFu
#define GW_INF_BITS  0x7F800000u /* |bits| from here up is not finite */
#define GW_NAN_BITS  0x7FC00000u
#define GW_MANT_BITS 23

GW_HD static inline uint32_t gw_bits(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

GW_HD static inline float gw_float(uint32_t b)
{
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

GW_HD static inline float gw_f32_from_bf16(uint16_t h)
{
    return gw_float((uint32_t)h << 16);
}

GW_HD static inline uint16_t gw_bf16_from_f32(float x)
{
    const uint32_t b = gw_bits(x);
    if ((b & GW_ABS_MASK) > GW_INF_BITS) {
        return (uint16_t)(b >> 16 |
                          0x40); /* quiet, so that rounding cannot carry a NaN into infinity */
    }
    return (uint16_t)((b + 0x7FFF + (b >> 16 & 1)) >> 16);
}

GW_HD static inline float gw_f32_from_f16(uint16_t h)
{
    const uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 0x3FF;
#ifdef __CUDA_ARCH__
    if (e != 31) { /* the same in one instruction, but for NaN patterns */
        float x;
        asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h));
        return x;
    }
#endif
    if (e == 31) {
        return gw_float(sign | GW_INF_BITS | m << 13 | (m != 0 ? 0x400000u : 0));
    }
    if (e != 0) {
        return gw_float(sign | (e + 112) << 23 | m << 13);
    }
    /* subnormal: m units of 2^-24, exact in fp32 */
    return gw_float(sign | gw_bits((float)m * 0x1p-24f));
}

GW_HD static inline uint16_t gw_f16_from_f32(float x)
{
    const uint32_t b = gw_bits(x), a = b & GW_ABS_MASK;
    const uint32_t sign = b >> 16 & 0x8000;
    if (a > GW_INF_BITS) {
        return (uint16_t)(sign | 0x7E00 | (a >> 13 & 0x3FF));
    }
#ifdef __CUDA_ARCH__
    uint16_t h; /* the same in one instruction, but for NaN patterns */
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x));
    return h;
#else
    if (a >= 0x477FF000) { /* 65520 and up, infinity too */
        return (uint16_t)(sign | 0x7C00);
    }
    if (a >= 0x38800000) { /* normal in fp16: drop 13 bits to nearest even, rebias by 112 */
        return (uint16_t)(sign | (a + 0xFFF + (a >> 13 & 1) - (112u << 23)) >> 13);
    }
    /* Subnormal in fp16: adding 1/2 aligns the units of 2^-24 with the last mantissa bit, and the
     * addition itself rounds to nearest even. */
    return (uint16_t)(sign | (gw_bits(gw_float(a) + 0.5f) - gw_bits(0.5f)));
#endif
}

/* Asks for the `bytes` that lie `ahead` bytes behind p; harmless beyond the end of an array. */
GW_INLINE void gw_prefetch(const void *p, size_t ahead, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) {
        __builtin_prefetch((const void *)((uintptr_t)p + ahead + i));
    }
}

/* After stores around the cache, before another thread is told that they are there. Once a call: it waits
 * for memory. */
static inline void gw_stores_done(void)
{
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

/* A host program may have switched subnormals off or rounding to another direction; our bytes
 * must not depend on it. Enter before a codec's arithmetic, leave with what enter returned. */
static inline uint32_t gw_fp_enter(void)
{
#if defined(__x86_64__)
    const uint32_t caller = _mm_getcsr();
    _mm_setcsr(0x1F80); /* nearest even, no FTZ, no DAZ, all exceptions masked */
    return caller;
#elif defined(__aarch64__)
    uint64_t caller;
    __asm__ volatile("mrs %0, fpcr" : "=r"(caller) : : "memory");
    /* nearest even, no flushing, IEEE halves, NaN payloads kept, no traps */
    __asm__ volatile("msr fpcr, xzr" : : : "memory");
    return (uint32_t)caller; /* the upper half is reserved and zero */
#else
    return 0;
#endif
}

static inline void gw_fp_leave(uint32_t caller)
{
#if defined(__x86_64__)
    _mm_setcsr(caller);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"((uint64_t)caller) : "memory");
#else
    (void)caller;
#endif
}

#endif
