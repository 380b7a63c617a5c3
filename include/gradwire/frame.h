/* Payload <-> frame: the .gw format of docs/wire-format.md. A frame holds any number of segments,
 * one a tensor, in bytes that any reader can check before it trusts them.
 *
 * Writing needs no copy: gw_frame_begin says where the first payload goes, gw_encode writes it
 * there, gw_frame_next says where the next one goes, gw_frame_seal writes the header in front. */
#ifndef GRADWIRE_FRAME_H
#define GRADWIRE_FRAME_H

#include "gradwire/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GW_WIRE_VERSION 1
enum { GW_FRAME_MAX_DIMS = 8, GW_FRAME_MAX_NAME = 1024, GW_FRAME_MAX_SEGMENTS = 1 << 20 };

enum { GW_FRAME_HASHED = 1 /* every payload carries its XXH3-64 */ };

typedef struct gw_frame_info {
    uint32_t flags;    /* GW_FRAME_* */
    uint32_t segments; /* how many */
    uint64_t bytes;    /* the whole frame */
    uint64_t seed, step;
    uint32_t rank, point;
} gw_frame_info;

typedef struct gw_segment {
    const char *name; /* UTF-8, not NUL-terminated when read from a frame */
    size_t name_bytes;
    gw_params params;
    gw_dtype dtype;  /* what was encoded */
    uint64_t count;  /* elements; the product of dims */
    uint32_t n_dims; /* 0 is a scalar: count 1 */
    uint64_t dims[GW_FRAME_MAX_DIMS];
    uint64_t tensor;     /* the random stream's tensor number */
    uint64_t payload_at; /* offset from the frame's first byte */
    uint64_t payload_bytes;
} gw_segment;

/* Bytes of the header in front of the first payload, which is also that payload's offset. */
GW_API gw_status gw_frame_begin(const gw_segment *segments, size_t n, size_t *payload_at,
                                gw_why *why);
/* Where the payload after one that ends at `end` begins. */
GW_API size_t gw_frame_next(size_t end);
/* Writes the header and zero padding around payloads that already lie in place, and the hashes if
 * info->flags says so. *bytes is the frame's length; info->segments and info->bytes are ignored. */
GW_API gw_status gw_frame_seal(void *frame, size_t capacity, const gw_frame_info *info,
                               const gw_segment *segments, size_t n, size_t *bytes, gw_why *why);

/* Checks everything a header claims, its own hash and, where there are, the payloads' hashes.
 * Afterwards gw_frame_segment of the same bytes cannot read out of bounds.
 *
 * A short frame may stand for many elements. The frame is refused with GW_ERR_CAPACITY if all its
 * segments together decode to more bytes (elements times element size) than the limit. gw_frame_open
 * takes the default: 1 GiB, or 64 times the frame's size where that is larger. gw_frame_open_limited
 * takes max_bytes: 0 is the default, UINT64_MAX no limit. */
GW_API gw_status gw_frame_open(const void *frame, size_t size, gw_frame_info *info, gw_why *why);
GW_API gw_status gw_frame_open_limited(const void *frame, size_t size, uint64_t max_bytes,
                                       gw_frame_info *info, gw_why *why);
/* Walks the segments in order: start with a zeroed cursor, which each call moves on. Names point
 * into `frame`. Only for bytes that gw_frame_open accepted; GW_ERR_RANGE after the last segment. */
typedef struct gw_frame_cursor {
    uint64_t index, entry_at, payload_at;
} gw_frame_cursor;
GW_API gw_status gw_frame_segment(const void *frame, size_t size, gw_frame_cursor *cursor,
                                  gw_segment *out, gw_why *why);

/* XXH3-64 with a seed: what a payload carries between ranks, where no frame is around it. */
GW_API uint64_t gw_payload_hash(const void *payload, size_t bytes, uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
