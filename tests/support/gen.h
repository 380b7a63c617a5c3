/* Numbers to test with: plain, nasty and hostile, all from a seed. */
#ifndef GW_TESTS_GEN_H
#define GW_TESTS_GEN_H

#include <stddef.h>
#include <stdint.h>

#include <gradwire/gradwire.h>

/* A generator of the tests' own (splitmix64), so that no test draws from what it tests. */
typedef struct gen {
    uint64_t state;
} gen;

uint64_t gen_u64(gen *g);
uint32_t gen_below(gen *g, uint32_t n);
double gen_uniform(gen *g); /* [0, 1) */
double gen_normal(gen *g);

typedef enum gen_content {
    GEN_NORMAL,      /* N(0, 1e-3²) */
    GEN_LARGE,       /* N(0, 1): blocks reach 1 and more */
    GEN_HEAVY,       /* heavy tails over twelve decades */
    GEN_SPARSE,      /* three in four are zero, the rest up to 2^10 */
    GEN_EQUAL,       /* all the same */
    GEN_POWERS,      /* ± powers of two */
    GEN_DENORMAL,    /* fp32 subnormals */
    GEN_TINY_LARGE,  /* subnormals beside numbers near 2^100 */
    GEN_HUGE,        /* up to the largest float */
    GEN_ZEROS,       /* +0 and −0 */
    GEN_BITS,        /* random bit patterns, NaNs and infinities included */
    GEN_FINITE_BITS, /* random bit patterns without them */
    GEN_ONE_NAN,     /* GEN_NORMAL with one NaN */
    GEN_ONE_INF,     /* GEN_NORMAL with one −infinity */
    GEN_CONTENTS
} gen_content;

const char *gen_content_name(gen_content content);
/* `n` elements of `dtype` at `out`, the fp32 content narrowed to it. */
void gen_fill(gen *g, gen_content content, gw_dtype dtype, void *out, size_t n);

#endif
