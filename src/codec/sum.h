/* A sum of payloads, while it is made: sum.c has it, sum_select.c the part for codecs that select. */
#ifndef GW_CODEC_SUM_H
#define GW_CODEC_SUM_H

#include "base/convert.h"
#include "base/pool.h"
#include "codec/codec_impl.h"

/* Elements of a block that codecs read: those of a grain, which divides the first, and of others; elements of
 * a block of a codec that multiplies matrices to make it. */
enum {
    GW_SUM_MOST = 8 * 1024,
    GW_SUM_SMALL = 4 * 1024,
    GW_SUM_SELECTED = 4 * 1024,
    GW_SUM_FILLED = 16 * 1024
};
/* Elements from which the sum is written around the cache: 4 MiB. */
enum { GW_SUM_PAST_CACHE = 1 << 20 };
/* Payloads of a codec without a grain that are read side by side. */
enum { GW_SUM_ABREAST = 64 };

typedef struct gw_sum {
    gw_coding job;
    const gw_convert *convert;
    const gw_payload *payloads;
    size_t n, count, block, per_part; /* elements; per_part: whole blocks */
    float *out;
    uint32_t divisor;
    unsigned parts;
    int bad[GW_POOL_MAX_THREADS]; /* by part */
    int hashes;
    uint64_t key, first, hash[GW_POOL_MAX_THREADS]; /* by part */
} gw_sum;

/* A block whose sum is complete: divided, hashed, written. */
void gw_sum_write(gw_sum *s, unsigned part, float *block, size_t at, size_t m, int past);
/* A part of the sum, for gw_coding_run. */
void gw_sum_selected(void *arg, unsigned index);

#endif
