/* A call of encode or decode, while it lasts: codec.c encodes, codec_decode.c decodes, codec_select.c is for codecs that select. */
#ifndef GW_CODEC_CODEC_CALL_H
#define GW_CODEC_CODEC_CALL_H

#include "base/arena.h"
#include "codec/codec_impl.h"

/* Elements of one scratch block, at most 32 KiB of fp32: as many as the largest grain. Blocks are cut
 * smaller where the grain allows, so that they stay in the first-level cache. */
enum { GW_CODING_SCRATCH = 8192, GW_CODING_BLOCK = 2048 };
/* Elements from which a residual is written around the cache: 16 MiB. */
enum { GW_CODING_PAST_CACHE = 4 << 20 };

typedef struct gw_coding_part {
    float *scratch; /* GW_CODING_SCRATCH floats; NULL for fp32 tensors without feedback */
    float *decoded; /* GW_CODING_SCRATCH floats; NULL without feedback */
    gw_report report;
} gw_coding_part;

typedef struct gw_call {
    gw_coding job;
    const gw_convert *convert;
    size_t count, per_part; /* elements; per_part is a multiple of the grain */
    uint64_t first;
    gw_coding_part *parts;
    gw_coding_part only; /* the table of a call that needs one part */
    void *selecting;     /* workspace of a codec that selects */
    /* encode */
    const uint8_t *in;
    uint8_t *payload_out;
    const float *residual; /* feedback: r, read; NULL without */
    float *residual_after; /* r′, written */
    /* decode */
    const uint8_t *payload_in;
    gw_apply how;
    uint8_t *out;
} gw_call;

/* What a call takes from the workspace. */
typedef struct gw_call_needs {
    gw_dtype dtype;
    size_t count;
    int encoding, feedback;
    unsigned parts;
} gw_call_needs;

/* Cuts the table of parts and their scratch blocks; used to measure and to cut. A codec that selects
 * is called once, with a workspace of its own besides. */
void gw_call_cut(gw_arena *arena, const gw_params *params, const gw_call_needs *n, gw_call *c);
/* Resolves instruction set, parts and scratch. *parts is how many to run. */
gw_status gw_call_prepare(gw_call *c, const gw_params *params, const gw_exec *exec,
                          const gw_tensor *tensor, int encoding, unsigned *parts);
/* The part's own range of elements. */
size_t gw_call_range(const gw_call *c, unsigned index, size_t *begin);
/* Elements that go through the scratch at once. */
size_t gw_call_block(const gw_params *params);
/* Encodes n elements from `begin` on, of a part that has a scratch. */
void gw_call_encode_blocks(const gw_call *c, gw_coding_part *mine, size_t begin, size_t n);
/* A codec that selects, run once: the payload's bytes. */
size_t gw_call_encode_selected(gw_call *c, const gw_tensor *in, gw_report *report);
/* Its entries are set, or added. */
void gw_call_decode_selected(const gw_call *c);

#endif
