/* Numbers <-> payload. A codec is an immutable descriptor; gw_params is a codec with its settings, a
 * plain value to copy; two verbs do the work. docs/codecs.md explains each codec,
 * docs/wire-format.md its bytes, docs/numerics.md its arithmetic. */
#ifndef GRADWIRE_CODEC_H
#define GRADWIRE_CODEC_H

#include "gradwire/base.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_codec gw_codec;

enum {
    GW_CODEC_FIXED_SIZE = 1,      /* payload bytes depend on the count alone, never on the values */
    GW_CODEC_UNBIASED = 2,        /* the expectation of the decoded value is the value */
    GW_CODEC_ADDITIVE = 4,        /* payloads of several ranks may be summed without decoding */
    GW_CODEC_STOCHASTIC = 8,      /* draws random numbers: gw_encode needs a stream */
    GW_CODEC_WANTS_FEEDBACK = 16, /* biased: what it loses must be fed back (gw_encode_feedback) */
    GW_CODEC_ROUNDS = 32,         /* can be exchanged as rounds of sums (rounds.h) */
    GW_CODEC_NEEDS_SHAPE = 64     /* wants to know a matrix row: its parameter `cols` */
};

typedef struct gw_param_info {
    const char *name, *doc;
    double min, max, fallback;
    /* NULL for a number; else max - min + 1 words, the value of words[i] being min + i. */
    const char *const *words;
    int fractional; /* 0: whole numbers only */
} gw_param_info;

enum { GW_PARAMS_MAX = 8 };

/* Set up by gw_params_init or gw_params_parse; then read it, copy it, or change a value[i], which
 * belongs to parameter i of the codec. Every call that takes params checks them. */
typedef struct gw_params {
    const gw_codec *codec;
    double value[GW_PARAMS_MAX];
} gw_params;

/* What an encoding noticed, at no extra pass over the data. */
typedef struct gw_report {
    uint64_t non_finite; /* inputs that were NaN or infinite */
    uint64_t overflowed; /* finite inputs beyond the code's range: docs/numerics.md */
    uint64_t
        held_back; /* elements chosen but beyond the payload's cap: they stay in the residual */
} gw_report;

/* How to run: NULL or all zero is the best instruction set on the calling thread. A workspace (of any
 * alignment) is needed where gw_codec_workspace says so: for fp16 and bf16, and with a pool. */
typedef struct gw_exec {
    gw_isa isa;
    gw_pool *pool; /* borrowed for the call; NULL runs on the calling thread */
    gw_workspace workspace;
} gw_exec;

typedef enum gw_apply { GW_SET = 0, GW_ADD = 1 } gw_apply;

GW_API size_t gw_codec_count(void);
GW_API const gw_codec *gw_codec_at(size_t index); /* NULL past the end */
GW_API const gw_codec *gw_codec_find(const char *name);
GW_API const gw_codec *gw_codec_by_id(uint8_t wire_id);
GW_API const char *gw_codec_name(const gw_codec *codec);
GW_API const char *gw_codec_doc(const gw_codec *codec); /* one line */
GW_API uint8_t gw_codec_id(const gw_codec *codec);
GW_API int gw_codec_has_isa(const gw_codec *codec,
                            gw_isa isa); /* compiled in, whatever this machine is */
GW_API size_t gw_codec_param_count(const gw_codec *codec);
GW_API const gw_param_info *gw_codec_param(const gw_codec *codec,
                                           size_t index); /* NULL past the end */

/* Defaults of the codec. */
GW_API gw_status gw_params_init(gw_params *params, const gw_codec *codec);
/* "natural:bits=8", "dither:bits=4,bucket=512,rounding=nearest". Unknown or repeated words are errors. */
GW_API gw_status gw_params_parse(gw_params *params, const char *spec, gw_why *why);
/* The same for a tensor of these dims, slowest first: what the spec leaves open and the shape decides is set for it. A bin of
 * adacomp is 50 elements with more than two dims, as of convolutions, and 500 otherwise. */
GW_API gw_status gw_params_parse_for(gw_params *params, const char *spec, const uint64_t *dims,
                                     size_t n_dims, gw_why *why);
/* Every value within its range, and what else the codec asks for. */
GW_API gw_status gw_params_check(const gw_params *params, gw_why *why);
/* The same codec, or none, with the same values. */
GW_API int gw_params_equal(const gw_params *a, const gw_params *b);
/* Writes the spec string with every parameter; `size` includes the final NUL. */
GW_API gw_status gw_params_print(const gw_params *params, char *text, size_t size);
/* For a codec that needs the shape and was not told it: a row is all but the first of `n_dims` dims, so that a
 * tensor of one dim is one row. Others stay as they are. */
GW_API gw_status gw_params_fit_shape(gw_params *params, const uint64_t *dims, size_t n_dims);
/* GW_CODEC_* of this codec with these settings. */
GW_API uint32_t gw_params_flags(const gw_params *params);
/* A payload may be cut at multiples of this many elements: the payload of a whole is the
 * concatenation of the payloads of its pieces. 0 for a codec that selects over the whole tensor and
 * cannot be cut, and if params fail gw_params_check. */
GW_API size_t gw_codec_grain(const gw_params *params);

/* Most payload bytes for `count` elements; for GW_CODEC_FIXED_SIZE exactly so many. */
GW_API gw_status gw_payload_bound(const gw_params *params, size_t count, size_t *bytes);
/* Workspace bytes for gw_encode (or with feedback) and gw_decode of up to `count` elements of `dtype`
 * with `threads` threads (1 without a pool). 0 for fp32 without feedback on one thread, unless the codec
 * selects; gw_decode needs none for fp32 on one thread. */
GW_API gw_status gw_codec_workspace(const gw_params *params, gw_dtype dtype, size_t count,
                                    int feedback, unsigned threads, size_t *bytes);

/* Encodes `in` into `payload`. On failure *written and *report are untouched; the payload's bytes
 * are undefined. May run on several threads at once with different payloads and workspaces.
 * `stream` may be NULL for deterministic settings only. `report` may be NULL. */
GW_API gw_status gw_encode(const gw_params *params, const gw_exec *exec, const gw_stream *stream,
                           const gw_tensor *in, void *payload, size_t capacity, size_t *written,
                           gw_report *report);

/* The same with feedback: codes g + r, r being what earlier encodings lost, and leaves in r′ exactly what
 * this one lost: r′ = (g + r) − decoded, in fp32. Both have in->count elements. r is only read, so that
 * the step can still be taken back: keep r until the tensor has arrived everywhere, then let r′ take its
 * place (feedback.h). r′ may be in->data of an fp32 tensor, for callers short of memory; it must not be
 * r. With a non-finite number in g + r (report->non_finite says so) r′ is not to be kept. */
GW_API gw_status gw_encode_feedback(const gw_params *params, const gw_exec *exec,
                                    const gw_stream *stream, const gw_tensor *in,
                                    const float *residual, float *residual_after, void *payload,
                                    size_t capacity, size_t *written, gw_report *report);
/* Decodes a payload that was made with the same params and count, and sets or adds to `out`. All
 * bytes that could be wrong are looked at before the first is applied: on failure `out` is
 * untouched. Values are decoded in fp32; with fp16 or bf16 outputs the (sum's) value is then
 * rounded to nearest even. The output's dtype need not be the one that was encoded. */
GW_API gw_status gw_decode(const gw_params *params, const gw_exec *exec, const void *payload,
                           size_t size, gw_apply how, gw_tensor *out, gw_why *why);

typedef struct gw_payload {
    const void *bytes;
    size_t size;
} gw_payload;

/* The sum of `n` payloads in their order, ((y0 + y1) + y2) + …, over the `divisor`: what gw_decode with GW_SET,
 * then GW_ADD, then a division leave in an fp32 tensor, but block by block while it is in cache. *finite says
 * whether all of it is. Everything is checked before `out` is touched. Needs no workspace. */
GW_API gw_status gw_decode_sum(const gw_params *params, const gw_exec *exec,
                               const gw_payload *payloads, size_t n, uint32_t divisor,
                               gw_tensor *out, int *finite, gw_why *why);
/* The same, and adds a hash of what it writes to *hash while it is in cache. `key` says what the tensor is, `first` the
 * index of its first element. Ranks that write the same numbers add the same. */
GW_API gw_status gw_decode_sum_hashed(const gw_params *params, const gw_exec *exec,
                                      const gw_payload *payloads, size_t n, uint32_t divisor,
                                      gw_tensor *out, int *finite, uint64_t key, uint64_t first,
                                      uint64_t *hash, gw_why *why);

#ifdef __cplusplus
}
#endif
#endif
