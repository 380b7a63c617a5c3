/* Random numbers as a pure function of what they are for, so that every rank can draw any of them and a run that is
 * resumed draws the same. The mixing is splitmix64's. */
#ifndef TRAINER_RANDOM_DRAWS_H
#define TRAINER_RANDOM_DRAWS_H

#include <math.h>
#include <stdint.h>

static inline uint64_t random_mix(uint64_t x)
{
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

/* Number `index` of stream `stream` under `seed`. */
static inline uint64_t random_at(uint64_t seed, uint64_t stream, uint64_t index)
{
    return random_mix(random_mix(random_mix(seed) ^ stream) ^ index);
}

/* 0 … n - 1; n below 2^32, so that what is uneven about it is below 2^-32. */
static inline uint64_t random_below(uint64_t random, uint64_t n)
{
    return (random >> 32) * n >> 32;
}

/* Normal, mean 0, deviation 1 (Box and Muller). */
static inline float random_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    const double unit = 1.0 / 9007199254740992.0; /* 2^-53 */
    const double a = ((double)(random_at(seed, stream, 2 * index) >> 11) + 0.5) * unit;
    const double b = (double)(random_at(seed, stream, 2 * index + 1) >> 11) * unit;
    return (float)(sqrt(-2 * log(a)) * cos(6.283185307179586 * b));
}

#endif
