/* Bytes -> what a checkpoint holds. The only place of this room that reads a length off bytes from
 * outside: every number is compared with what is left before it is used. Layout: docs/feedback.md. */
#include "base/hash.h"
#include "base/little_endian.h"
#include "base/name.h"
#include "base/numeric.h"
#include "base/why.h"
#include "feedback/checkpoint.h"
#include "feedback/store.h"

#include <math.h>
#include <stdlib.h>

const uint8_t gw_checkpoint_magic[4] = {0x47, 0x57, 0x52, 0x1A};

uint64_t gw_checkpoint_hash(const uint8_t *bytes, size_t size)
{
    return gw_hash_around(bytes, size, GW_CHECKPOINT_HASH_AT);
}

/* Where reading is. Entries lie in [entry, directory), numbers in [numbers, size). */
typedef struct reader {
    const uint8_t *bytes;
    uint64_t size, directory;
    uint64_t entry, numbers;
    uint64_t n_records; /* read so far */
    int means;          /* 1: hashes of means follow behind `size` */
} reader;

/* Everything before the first entry. */
static gw_status read_header(reader *r, gw_feedback_info *info, gw_why *why)
{
    const uint8_t *b = r->bytes;
    const size_t size = (size_t)r->size;
    if (size < sizeof gw_checkpoint_magic ||
        memcmp(b, gw_checkpoint_magic, sizeof gw_checkpoint_magic) != 0) {
        return GW_FAIL(why, GW_ERR_CORRUPT, "not a gradwire checkpoint: the magic is missing");
    }
    if (size < GW_CHECKPOINT_HEADER) {
        return GW_FAIL(why, GW_ERR_TRUNCATED, "truncated: %zu bytes, a header alone has %d", size,
                       GW_CHECKPOINT_HEADER);
    }
    const unsigned version = gw_get_u16(b + 4);
    r->means = version == GW_CHECKPOINT_VERSION;
    if (version != GW_CHECKPOINT_PLAIN && !r->means) {
        return GW_FAIL(why, GW_ERR_VERSION,
                       "checkpoint version %u; this library reads versions %d to %d", version,
                       GW_CHECKPOINT_PLAIN, GW_CHECKPOINT_VERSION);
    }
    const uint64_t bytes = gw_get_u64(b + 16);
    if (bytes > size) {
        return GW_FAIL(why, GW_ERR_TRUNCATED, "truncated: %zu bytes of %llu", size,
                       (unsigned long long)bytes);
    }
    r->directory = gw_get_u64(b + 24);
    if (bytes != size || size % 8 != 0 || r->directory < GW_CHECKPOINT_HEADER ||
        r->directory % 8 != 0 || r->directory > size) {
        return GW_FAIL(why, GW_ERR_CORRUPT,
                       "lengths disagree: %zu bytes given, checkpoint %llu, directory %llu", size,
                       (unsigned long long)bytes, (unsigned long long)r->directory);
    }
    if (gw_checkpoint_hash(b, size) != gw_get_u64(b + GW_CHECKPOINT_HASH_AT)) {
        return GW_FAIL(why, GW_ERR_CHECKSUM, "the checkpoint's checksum does not match");
    }
    *info = (gw_feedback_info){.rank = gw_get_u32(b + 8),
                               .world = gw_get_u32(b + 12),
                               .tensors = gw_get_u32(b + 32),
                               .residuals = gw_get_u32(b + 36),
                               .orphans = gw_get_u32(b + 40)};
    if (gw_get_u16(b + 6) != 0 ||
        (!r->means && (gw_get_u32(b + 44) != 0 || gw_get_u64(b + 48) != 0))) {
        return GW_FAIL(why, GW_ERR_CORRUPT, "a reserved field is not zero");
    }
    if (info->rank >= info->world || info->tensors > GW_FEEDBACK_MAX_TENSORS) {
        return GW_FAIL(why, GW_ERR_CORRUPT, "rank %u of %u, with %u tensors", info->rank,
                       info->world, info->tensors);
    }
    /* before anything is allocated by these numbers */
    const uint64_t room = r->directory - GW_CHECKPOINT_HEADER;
    if (info->tensors * (uint64_t)GW_CHECKPOINT_ENTRY +
            ((uint64_t)info->residuals + info->orphans) * GW_CHECKPOINT_RECORD >
        room) {
        return GW_FAIL(why, GW_ERR_CORRUPT, "%u tensors, %u residuals and %u orphans do not fit",
                       info->tensors, info->residuals, info->orphans);
    }
    return GW_OK;
}

/* Hashes of means are the last bytes of a checkpoint. Takes them off `size`, where the numbers end. */
static gw_status read_means(reader *r, gw_checkpoint *c, gw_why *why)
{
    const uint64_t bytes = (uint64_t)GW_CHECKPOINT_MEAN * c->info.tensors;
    if (!r->means) {
        return GW_OK;
    }
    c->means_kind = gw_get_u32(r->bytes + 44);
    c->means_since = gw_get_u64(r->bytes + 48);
    if (c->means_kind == 0 || bytes > r->size - r->directory) {
        return GW_FAIL(why, GW_ERR_CORRUPT, "hashes of means: kind %u, %llu bytes", c->means_kind,
                       (unsigned long long)bytes);
    }
    r->size -= bytes;
    c->means = r->bytes + r->size;
    return GW_OK;
}

/* 1 if none of `count` numbers is infinite or NaN. */
static int all_finite(const uint8_t *numbers, uint64_t count)
{
    uint32_t seen = 0;
    for (uint64_t i = 0; i < count; i++) {
        seen |= (gw_get_u32(numbers + 4 * i) & GW_INF_BITS) + ((uint32_t)1 << GW_MANT_BITS);
    }
    return (seen & GW_SIGN_BIT) == 0;
}

/* The numbers of a record whose range is sound. */
static gw_status read_numbers(reader *r, gw_checkpoint_record *record, gw_why *why)
{
    const uint64_t bytes = gw_checkpoint_align(4 * record->count); /* below 2^51 */
    if (bytes > r->size - r->numbers) {
        return GW_FAIL(why, GW_ERR_CORRUPT, "its %llu numbers do not fit into the checkpoint",
                       (unsigned long long)record->count);
    }
    record->numbers = r->bytes + r->numbers;
    if (record->count % 2 != 0 && gw_get_u32(record->numbers + 4 * record->count) != 0) {
        return GW_FAIL(why, GW_ERR_CORRUPT, "padding behind its numbers is not zero");
    }
    if (!all_finite(record->numbers, record->count)) {
        return GW_FAIL(why, GW_ERR_CORRUPT, "a number is not finite");
    }
    r->numbers += bytes;
    return GW_OK;
}

/* The record at `at`, which lies in the directory; `before` is the tensor's last one or NULL. */
static gw_status read_record(reader *r, const uint8_t *at, uint64_t elements,
                             const gw_checkpoint_record *before, gw_checkpoint_record *record,
                             gw_why *why)
{
    *record = (gw_checkpoint_record){.kind = gw_get_u32(at),
                                     .point = gw_get_u32(at + 4),
                                     .first = gw_get_u64(at + 8),
                                     .count = gw_get_u64(at + 16)};
    if (record->kind != GW_CHECKPOINT_RESIDUAL && record->kind != GW_CHECKPOINT_ORPHAN) {
        return GW_FAIL(why, GW_ERR_UNKNOWN, "kind %u of a record is unknown", record->kind);
    }
    if (record->first > elements || record->count > elements - record->first ||
        (record->kind == GW_CHECKPOINT_ORPHAN && record->count == 0)) {
        return GW_FAIL(why, GW_ERR_CORRUPT, "%llu elements from %llu on, of %llu",
                       (unsigned long long)record->count, (unsigned long long)record->first,
                       (unsigned long long)elements);
    }
    if (record->kind == GW_CHECKPOINT_RESIDUAL && before != NULL &&
        (before->kind != GW_CHECKPOINT_RESIDUAL || before->point >= record->point)) {
        return GW_FAIL(why, GW_ERR_CORRUPT, "encode point %u is there twice or out of order",
                       record->point);
    }
    return read_numbers(r, record, why);
}

/* The entry at r->entry without its records: lengths and name. *records is where they begin. */
static gw_status read_entry(reader *r, const gw_checkpoint_tensor *before, gw_checkpoint_tensor *t,
                            const uint8_t **records, gw_why *why)
{
    const uint8_t *e = r->bytes + r->entry;
    const uint64_t left = r->directory - r->entry;
    if (left < GW_CHECKPOINT_ENTRY) {
        return GW_FAIL(why, GW_ERR_CORRUPT, "its entry does not fit into the directory");
    }
    *t = (gw_checkpoint_tensor){.elements = gw_get_u64(e),
                                .name_bytes = gw_get_u32(e + 8),
                                .n_records = gw_get_u32(e + 12)};
    const uint64_t name_at = GW_CHECKPOINT_ENTRY + (uint64_t)GW_CHECKPOINT_RECORD * t->n_records;
    const uint64_t end = name_at + t->name_bytes, bytes = gw_checkpoint_align(end);
    if (bytes > left) {
        return GW_FAIL(why, GW_ERR_CORRUPT, "its entry does not fit into the directory");
    }
    t->name = (const char *)e + name_at;
    const gw_status status = gw_store_check_name(t->name, t->name_bytes, why);
    if (status != GW_OK) {
        return status;
    }
    for (uint64_t i = end; i < bytes; i++) {
        if (e[i] != 0) {
            return GW_FAIL(why, GW_ERR_CORRUPT, "padding behind its name is not zero");
        }
    }
    if (before != NULL &&
        gw_name_compare(before->name, before->name_bytes, t->name, t->name_bytes) >= 0) {
        return GW_FAIL(why, GW_ERR_CORRUPT, "its name is there twice or out of order");
    }
    if (t->elements >= GW_FEEDBACK_MAX_ELEMENTS) {
        return GW_FAIL(why, GW_ERR_CORRUPT, "2^48 elements or more");
    }
    *records = e + GW_CHECKPOINT_ENTRY;
    r->entry += bytes;
    return GW_OK;
}

/* One tensor with its records, into `c`, which has room for what the header says. */
static gw_status read_tensor(reader *r, gw_checkpoint *c, uint32_t index, gw_why *why)
{
    gw_checkpoint_tensor *t = &c->tensors[index];
    const uint8_t *at = NULL;
    gw_status status = read_entry(r, index != 0 ? t - 1 : NULL, t, &at, why);
    if (status != GW_OK) {
        return status;
    }
    const uint64_t room = (uint64_t)c->info.residuals + c->info.orphans;
    if (t->n_records > room - r->n_records) {
        return GW_FAIL(why, GW_ERR_CORRUPT, "more records than the header says");
    }
    gw_checkpoint_record *records = c->records + r->n_records;
    for (uint32_t i = 0; status == GW_OK && i < t->n_records; i++) {
        status = read_record(r, at + (size_t)GW_CHECKPOINT_RECORD * i, t->elements,
                             i != 0 ? &records[i - 1] : NULL, &records[i], why);
    }
    t->records = records;
    r->n_records += t->n_records;
    return status;
}

/* Behind the last entry: the header's numbers are the directory's, and no bytes are left. */
static gw_status check_end(const reader *r, const gw_checkpoint *c, gw_why *why)
{
    uint64_t residuals = 0;
    for (uint64_t i = 0; i < r->n_records; i++) {
        residuals += c->records[i].kind == GW_CHECKPOINT_RESIDUAL;
    }
    if (residuals != c->info.residuals || r->n_records - residuals != c->info.orphans) {
        return GW_FAIL(why, GW_ERR_CORRUPT, "the header says %u residuals and %u orphans",
                       c->info.residuals, c->info.orphans);
    }
    if (r->entry != r->directory || r->numbers != r->size) {
        return GW_FAIL(why, GW_ERR_CORRUPT, "bytes are left over behind the last %s",
                       r->entry != r->directory ? "entry" : "number");
    }
    return GW_OK;
}

gw_status gw_checkpoint_read(const void *bytes, size_t size, gw_checkpoint *out, gw_why *why)
{
    if (bytes == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "no checkpoint");
    }
    reader r = {.bytes = bytes, .size = size};
    gw_checkpoint c = {.tensors = NULL};
    gw_status status = read_header(&r, &c.info, why);
    if (status == GW_OK) {
        status = read_means(&r, &c, why);
    }
    if (status != GW_OK) {
        return status;
    }
    r.entry = GW_CHECKPOINT_HEADER;
    r.numbers = r.directory;
    c.tensors = calloc((size_t)c.info.tensors + 1, sizeof *c.tensors);
    c.records = calloc((size_t)c.info.residuals + c.info.orphans + 1, sizeof *c.records);
    if (c.tensors == NULL || c.records == NULL) {
        status =
            GW_FAIL(why, GW_ERR_MEMORY, "no memory for the list of %u tensors", c.info.tensors);
    }
    for (uint32_t i = 0; status == GW_OK && i < c.info.tensors; i++) {
        gw_why inner = {""};
        status = read_tensor(&r, &c, i, &inner);
        if (status != GW_OK) {
            (void)gw_fail(why, status, "tensor %u: %s", i, inner.text);
        }
    }
    if (status == GW_OK) {
        status = check_end(&r, &c, why);
    }
    if (status != GW_OK) {
        gw_checkpoint_free(&c);
        return status;
    }
    *out = c;
    return GW_OK;
}

void gw_checkpoint_free(gw_checkpoint *checkpoint)
{
    free(checkpoint->tensors);
    free(checkpoint->records);
    checkpoint->tensors = NULL;
    checkpoint->records = NULL;
}

gw_status gw_feedback_inspect(const void *bytes, size_t size, gw_feedback_info *info, gw_why *why)
{
    gw_checkpoint c = {.tensors = NULL};
    if (info == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "nowhere to put the answer");
    }
    const gw_status status = gw_checkpoint_read(bytes, size, &c, why);
    if (status == GW_OK) {
        *info = c.info;
        gw_checkpoint_free(&c);
    }
    return status;
}

gw_status gw_feedback_checkpoint_norm(const void *bytes, size_t size, double *norm, gw_why *why)
{
    gw_checkpoint c = {.tensors = NULL};
    if (norm == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "nowhere to put the answer");
    }
    const gw_status status = gw_checkpoint_read(bytes, size, &c, why);
    if (status != GW_OK) {
        return status;
    }
    double squares = 0;
    for (uint64_t i = 0; i < (uint64_t)c.info.residuals + c.info.orphans; i++) {
        const gw_checkpoint_record *r = &c.records[i];
        const int copy = r->kind == GW_CHECKPOINT_RESIDUAL && (r->point & GW_FEEDBACK_COPY) != 0;
        for (uint64_t k = 0; k < r->count && !copy; k++) {
            const double x = (double)gw_float(gw_get_u32(r->numbers + 4 * k));
            squares += x * x;
        }
    }
    *norm = sqrt(squares);
    gw_checkpoint_free(&c);
    return GW_OK;
}
