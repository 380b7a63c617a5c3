/* What topk's inner loops do, over at most one block. */
#ifndef GW_TOPK_H
#define GW_TOPK_H

#include "codec/codec_impl.h"

/* Elements a call, and entries that it may write beyond those it counts. */
enum { GW_TOPK_STEP = 1024, GW_TOPK_SURPLUS = 16 };

typedef struct gw_topk_kernels {
    /* Appends index (`first` + i) and value of every G whose |bits| is `least` or more; returns how
     * many. G is f->g, or with f->r their sum, which is also left in f->after, but 0 in place of those
     * appended if `clear`. n ≤ GW_TOPK_STEP. */
    size_t (*collect)(const gw_fed_block *f, size_t n, uint32_t first, uint32_t least, int clear,
                      uint32_t *index, float *value);
} gw_topk_kernels;

extern const gw_topk_kernels gw_topk_scalar;
#ifdef GW_HAVE_AVX2
extern const gw_topk_kernels gw_topk_avx2;
#endif
#ifdef GW_HAVE_AVX512
extern const gw_topk_kernels gw_topk_avx512;
#endif
#ifdef GW_HAVE_NEON
extern const gw_topk_kernels gw_topk_neon;
#endif

#endif
