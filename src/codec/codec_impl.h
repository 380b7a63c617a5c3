/* What a codec is, seen from inside: one descriptor, filled in by <name>.c. codec.c does everything
 * that is the same for all: checks, dtypes, threads, cutting. So a codec with a grain only ever sees fp32
 * numbers, one thread, and a span that begins on a grain border. One that selects over the whole tensor
 * cuts its work itself (gw_coding_run). */
#ifndef GW_CODEC_IMPL_H
#define GW_CODEC_IMPL_H

#include "base/ceil_div.h"
#include "base/convert.h"
#include "base/why.h"

#include <gradwire/codec.h>

/* One encode or decode, resolved: the same for all spans of a call. */
typedef struct gw_coding {
    const gw_params *params;
    const gw_stream *stream; /* encode only; NULL where none was given */
    const void *kernels;     /* the descriptor's entry for the instruction set in use */
    uint64_t random_key;     /* encode only */
    gw_dtype dtype;          /* of the caller's tensor; the numbers here are fp32 already */
    gw_pool *pool;           /* threads for a codec that cuts its own work; NULL: this one alone */
} gw_coding;

/* Where an encoding reads its numbers: source.h. */
typedef struct gw_source gw_source;

/* A block of an encoding with feedback: n elements of each. */
typedef struct gw_fed_block {
    const float *g, *r;
    float *after; /* r′; may be g, so element i is written after it was last read */
    int past;     /* write r′ around the cache; codec.c then calls gw_stores_done */
    const void
        *next[2]; /* where g and r go on; never NULL, may lie beyond the end: to be asked for */
} gw_fed_block;

/* What is left of `f` from element i on. */
static inline gw_fed_block gw_feedback_at(const gw_fed_block *f, size_t i)
{
    return (gw_fed_block){
        f->g + i,
        f->r != NULL ? f->r + i : NULL,
        f->after != NULL ? f->after + i : NULL,
        f->past,
        {(const uint8_t *)f->next[0] + 4 * i, (const uint8_t *)f->next[1] + 4 * i}};
}

/* Where a decoding of ascending entries stands. */
typedef struct gw_cursor {
    uint64_t entry;    /* entries behind it */
    uint64_t state[5]; /* the codec's own */
} gw_cursor;

/* What a codec with rounds does in them (gradwire/rounds.h). `workspace` keeps what it holds from call to
 * call of an exchange; G is formed by the first make. */
typedef struct gw_codec_rounds {
    uint64_t (*elements)(const gw_params *, uint64_t count, unsigned round);
    uint64_t (*state)(const gw_params *, uint64_t count);     /* floats */
    uint64_t (*due)(const gw_params *, uint64_t count);       /* floats */
    uint64_t (*workspace)(const gw_params *, uint64_t count); /* bytes */
    void (*make)(const gw_coding *, gw_source *, const float *state, const float *due,
                 unsigned round, void *workspace, float *own, gw_report *);
    void (*take)(const gw_coding *, gw_source *, unsigned round, void *workspace, const float *sum,
                 float *state_after, float *due_after);
    void (*settle)(const gw_coding *, const float *due, uint64_t count, float *r);
    /* `sum` is that of the last round; elements [first, first + n) */
    void (*decode)(const gw_coding *, void *workspace, const float *sum, uint64_t count,
                   uint64_t first, size_t n, gw_apply, float *out);
    /* The whole of it, divided; 1 if one is not finite. `past` as in base/convert.h. */
    int (*mean)(const gw_coding *, void *workspace, const gw_convert *, const float *sum,
                uint64_t count, uint32_t divisor, int past, float *out);
} gw_codec_rounds;

/* A codec either codes spans that begin on a grain border (encode, decode), or selects over the whole
 * tensor (select, scatter). */
struct gw_codec {
    const char *name, *doc;
    const gw_param_info *params;
    size_t n_params;
    /* What the ranges of `params` cannot say; may be NULL. */
    gw_status (*check)(const gw_params *, gw_why *);
    /* Fits settings to a tensor of so many dims, but not those that a spec gave: bit i of `given` is parameter i. May be
     * NULL. */
    void (*suit)(gw_params *, uint32_t given, size_t n_dims);
    uint32_t (*flags)(const gw_params *);
    /* Payload bytes of `count` elements; the most, if not GW_CODEC_FIXED_SIZE. For codecs with a grain
     * additive over grains, so it also locates a span. */
    uint64_t (*bytes)(const gw_params *, uint64_t count);
    /* Looks at every payload byte that can be wrong; may be NULL. `size` is what bytes() allows. */
    gw_status (*validate)(const gw_params *, const uint8_t *payload, size_t size, uint64_t count,
                          gw_why *);

    size_t (*grain)(const gw_params *); /* NULL: this codec selects */
    /* `first` is the global index of x[0]. */
    void (*encode)(const gw_coding *, const float *x, size_t n, uint64_t first, uint8_t *payload,
                   gw_report *);
    /* The same with feedback, for a codec that needs fewer passes than the sum, encode, decode and
     * difference of codec.c, which is what happens where this is NULL. */
    void (*encode_feedback)(const gw_coding *, const gw_fed_block *, size_t n, uint8_t *payload,
                            gw_report *);
    /* Reads a validated payload. */
    void (*decode)(const gw_coding *, const uint8_t *payload, size_t n, gw_apply, float *out);

    /* Workspace of select in up to `threads` parts. */
    uint64_t (*select_bytes)(const gw_params *, uint64_t count, unsigned threads);
    /* Encodes everything; returns the bytes written, at most bytes(). */
    size_t (*select)(const gw_coding *, gw_source *, uint8_t *payload, void *workspace,
                     gw_report *);
    /* Where a cursor stands that has passed the elements before `to`, a multiple of 64, without reading all on the way.
     * NULL: only scatter gets there, from the front. */
    void (*skip)(const gw_coding *, const uint8_t *payload, uint64_t count, uint64_t to,
                 gw_cursor *);
    /* Sets or adds the entries of a validated payload that fall into [begin, begin + n); `out` has
     * zeros where nothing was added yet. Called with ascending ranges and one cursor, zeroed at first or set by skip. */
    void (*scatter)(const gw_coding *, const uint8_t *payload, uint64_t count, gw_cursor *,
                    uint64_t begin, size_t n, gw_apply, float *out);

    int fills;                     /* scatter touches every element: setting them needs no zeros */
    const gw_codec_rounds *rounds; /* NULL for most */

    /* Inner loops by gw_isa; NULL is not built. What they are is the codec's own business. */
    const void *kernels[GW_ISA_COUNT];
};

/* Into how many parts a codec that selects, or has rounds, should cut work on `count` elements: one a thread, and fewer
 * where waking a thread costs more than it brings. */
unsigned gw_coding_parts(const gw_coding *job, uint64_t count);
/* Runs work(arg, part) of every part on the coding's threads, with the library's rounding; returns when all are done, and what they
 * wrote around the cache is there. The results may not depend on how many parts there are. */
void gw_coding_run(const gw_coding *job, void (*work)(void *arg, unsigned part), void *arg,
                   unsigned parts);

/* The variant that `exec` asks for, or the best; `exec` may be NULL. */
gw_status gw_codec_choose_isa(const gw_codec *codec, const gw_exec *exec, gw_isa *out);

/* Everything about a payload of `count` elements that can be wrong; the params are known to be right. */
gw_status gw_payload_check(const gw_params *params, const void *payload, size_t size, size_t count,
                           gw_why *why);

/* "max, l2" or "2 to 8": what a parameter takes, for error messages. */
void gw_param_range(const gw_param_info *info, char *text, size_t size);

/* Value of parameter `index`, known to be whole and in range. */
#define gw_param(params, index) ((uint32_t)(params)->value[index])

static inline uint64_t gw_count_non_finite(const float *x, size_t n)
{
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++) {
        count += (gw_bits(x[i]) & GW_ABS_MASK) >= GW_INF_BITS;
    }
    return count;
}

/* For the kernels[] of descriptors: the variant's table if it is built, else NULL. */
#ifdef GW_HAVE_AVX2
#    define GW_AVX2(table) (&(table))
#else
#    define GW_AVX2(table) NULL
#endif
#ifdef GW_HAVE_AVX512
#    define GW_AVX512(table) (&(table))
#else
#    define GW_AVX512(table) NULL
#endif
#ifdef GW_HAVE_NEON
#    define GW_NEON(table) (&(table))
#else
#    define GW_NEON(table) NULL
#endif

#endif
