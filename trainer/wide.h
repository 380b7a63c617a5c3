/* Loops for processors of today in a program that runs on those of twenty years ago: the same inline body in a function for each. */
#ifndef TRAINER_WIDE_H
#define TRAINER_WIDE_H

#define ALWAYS_INLINE static inline __attribute__((always_inline))

#if defined(__x86_64__)
#    define WIDE_VECTORS __attribute__((target("avx512f")))
static inline int has_wide_vectors(void)
{
    return __builtin_cpu_supports("avx512f");
}
#else
#    define WIDE_VECTORS
static inline int has_wide_vectors(void)
{
    return 0;
}
#endif

#endif
