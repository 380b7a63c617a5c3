/* Philox4x32-10 (Salmon et al. 2011), a second random stream: the operators are tested given r, whatever
 * r comes from. Not part of the library. Element i of a group of 64 takes word (i mod 64) / 16 of
 * block 16 · (i / 64) + i mod 16. */
#ifndef GW_TESTS_PHILOX_H
#define GW_TESTS_PHILOX_H

#include <stdint.h>

static inline void philox(const uint32_t counter[4], const uint32_t key[2], int rounds,
                          uint32_t out[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]}, k[2] = {key[0], key[1]};
    for (int i = 0; i < rounds; i++) {
        const uint64_t a = (uint64_t)0xD2511F53u * c[0], b = (uint64_t)0xCD9E8D57u * c[2];
        const uint32_t next[4] = {(uint32_t)(b >> 32) ^ c[1] ^ k[0], (uint32_t)b,
                                  (uint32_t)(a >> 32) ^ c[3] ^ k[1], (uint32_t)a};
        for (int j = 0; j < 4; j++) {
            c[j] = next[j];
        }
        k[0] += 0x9E3779B9u;
        k[1] += 0xBB67AE85u;
    }
    for (int j = 0; j < 4; j++) {
        out[j] = c[j];
    }
}

static inline uint32_t philox_word(const uint32_t key[2], uint64_t i)
{
    const uint64_t block = 16 * (i / 64) + i % 16;
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), 0, 0};
    uint32_t out[4];
    philox(counter, key, 10, out);
    return out[i % 64 / 16];
}

#endif
