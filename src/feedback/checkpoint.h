/* A checkpoint's bytes, docs/feedback.md: the sizes both sides use, and what reading gives. */
#ifndef GW_FEEDBACK_CHECKPOINT_H
#define GW_FEEDBACK_CHECKPOINT_H

#include "base/why.h"

#include <gradwire/feedback.h>

enum {
    GW_CHECKPOINT_HEADER = 64,
    GW_CHECKPOINT_ENTRY = 16,
    GW_CHECKPOINT_RECORD = 24,
    GW_CHECKPOINT_MEAN = 8, /* the hash of one tensor's means */
    GW_CHECKPOINT_HASH_AT = 56
};
enum { GW_CHECKPOINT_PLAIN = 1 }; /* the version without hashes of means */
enum { GW_CHECKPOINT_RESIDUAL = 1, GW_CHECKPOINT_ORPHAN = 2 };
extern const uint8_t gw_checkpoint_magic[4];

static inline uint64_t gw_checkpoint_align(uint64_t n)
{
    return (n + 7) & ~(uint64_t)7;
}

/* XXH3-64 of all bytes, those of the hash itself taken as zero. */
uint64_t gw_checkpoint_hash(const uint8_t *bytes, size_t size);

typedef struct gw_checkpoint_record {
    uint32_t kind, point;
    uint64_t first, count;
    const uint8_t *numbers; /* count fp32, little-endian, of any alignment; all finite */
} gw_checkpoint_record;

typedef struct gw_checkpoint_tensor {
    const char *name; /* not NUL-terminated */
    size_t name_bytes;
    uint64_t elements;
    uint32_t n_records;
    const gw_checkpoint_record *records; /* residuals by encode point, then orphans by age */
} gw_checkpoint_tensor;

/* Points into the bytes it was read from. Tensors are in order of their names. */
typedef struct gw_checkpoint {
    gw_feedback_info info;
    gw_checkpoint_tensor *tensors;
    gw_checkpoint_record *records;
    uint32_t means_kind; /* 0: the checkpoint has no hashes of means */
    uint64_t means_since;
    const uint8_t *means; /* one u64 per tensor, in the order of tensors */
} gw_checkpoint;

/* Checks everything; on failure there is nothing to free. */
gw_status gw_checkpoint_read(const void *bytes, size_t size, gw_checkpoint *out, gw_why *why);
void gw_checkpoint_free(gw_checkpoint *checkpoint);

#endif
