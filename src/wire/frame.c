/* Payload <-> frame. The only place that reads a length off the wire: every number is compared with
 * what is left before it is used. Layout and rules: docs/wire-format.md, sections 1 and 2. */
#include <gradwire/frame.h>

#include "base/hash.h"
#include "base/little_endian.h"
#include "base/name.h"
#include "base/why.h"

enum { HEADER = 64, ENTRY = 40, HASH_AT = 56 };
static const uint8_t magic[4] = {0x47, 0x57, 0x46, 0x1A};
static const uint64_t max_count = (uint64_t)1 << 48;
static const uint64_t max_header = (uint64_t)1 << 31;

static uint64_t align8(uint64_t n)
{
    return (n + 7) & ~(uint64_t)7;
}

static uint64_t entry_bytes(uint64_t n_dims, uint64_t n_params, uint64_t name_bytes)
{
    return align8(ENTRY + 8 * n_dims + 8 * n_params + name_bytes);
}

/* The product of dims, or a failure if it is not the segment's count. */
static gw_status check_dims(const gw_segment *s, gw_why *why)
{
    uint64_t product = 1;
    for (uint32_t i = 0; i < s->n_dims; i++) {
        if (s->dims[i] != 0 && product > max_count / s->dims[i]) {
            return gw_fail(why, GW_ERR_CORRUPT, "the dims' product is beyond 2^48");
        }
        product *= s->dims[i];
    }
    if (product != s->count || s->count >= max_count) {
        return gw_fail(why, GW_ERR_CORRUPT, "%llu elements, but the dims' product is %llu",
                       (unsigned long long)s->count, (unsigned long long)product);
    }
    return GW_OK;
}

/* What a writer may ask for; a reader checks the same of what it reads. */
static gw_status check_segment(const gw_segment *s, gw_why *why)
{
    const gw_status status = gw_params_check(&s->params, why);
    if (status != GW_OK) {
        return status;
    }
    if (gw_dtype_size(s->dtype) == 0) {
        return gw_fail(why, GW_ERR_UNKNOWN, "dtype %d is unknown", (int)s->dtype);
    }
    if (s->n_dims > GW_FRAME_MAX_DIMS) {
        return gw_fail(why, GW_ERR_RANGE, "%u dims, at most %d", s->n_dims, GW_FRAME_MAX_DIMS);
    }
    if (s->name_bytes > GW_FRAME_MAX_NAME || !gw_name_is_utf8(s->name, s->name_bytes)) {
        return gw_fail(why, GW_ERR_RANGE,
                       "the name is longer than %d bytes, has a NUL or is not UTF-8",
                       GW_FRAME_MAX_NAME);
    }
    return check_dims(s, why);
}

/* The payload's length is one that the codec writes for so many elements. */
static gw_status check_length(const gw_segment *s, gw_why *why)
{
    size_t bound = 0;
    const gw_status status = gw_payload_bound(&s->params, (size_t)s->count, &bound);
    const int fixed = (gw_params_flags(&s->params) & GW_CODEC_FIXED_SIZE) != 0;
    if (status != GW_OK || s->payload_bytes > bound || (fixed && s->payload_bytes != bound)) {
        return gw_fail(why, GW_ERR_CORRUPT,
                       "a payload of %llu bytes; %s makes %s%zu of %llu elements",
                       (unsigned long long)s->payload_bytes, gw_codec_name(s->params.codec),
                       fixed ? "" : "at most ", bound, (unsigned long long)s->count);
    }
    return GW_OK;
}

/* A failure inside a segment, with the segment's number in front. */
static gw_status in_segment(gw_status status, uint64_t index, const gw_why *inner, gw_why *why)
{
    return gw_fail(why, status, "segment %llu: %s", (unsigned long long)index, inner->text);
}

/* Length of the header and the entries. */
static gw_status measure_header(const gw_segment *segments, size_t n, uint64_t *header, gw_why *why)
{
    uint64_t at = HEADER;
    if ((segments == NULL && n != 0) || n > GW_FRAME_MAX_SEGMENTS) {
        return gw_fail(why, GW_ERR_ARG, "no segments, or more than %d", GW_FRAME_MAX_SEGMENTS);
    }
    for (size_t i = 0; i < n; i++) {
        gw_why inner = {""};
        const gw_status status = check_segment(&segments[i], &inner);
        if (status != GW_OK) {
            return in_segment(status, i, &inner, why);
        }
        at += entry_bytes(segments[i].n_dims, gw_codec_param_count(segments[i].params.codec),
                          segments[i].name_bytes);
    }
    if (at >= max_header) {
        return gw_fail(why, GW_ERR_RANGE, "the header would have 2^31 bytes or more");
    }
    *header = at;
    return GW_OK;
}

gw_status gw_frame_begin(const gw_segment *segments, size_t n, size_t *payload_at, gw_why *why)
{
    uint64_t header = 0;
    if (payload_at == NULL) {
        return gw_fail(why, GW_ERR_ARG, "nowhere to put the answer");
    }
    const gw_status status = measure_header(segments, n, &header, why);
    if (status == GW_OK) {
        *payload_at = (size_t)header;
    }
    return status;
}

size_t gw_frame_next(size_t end)
{
    return (size_t)align8(end);
}

/* Writes one entry and returns its bytes. The payload lies in place. */
static size_t write_entry(uint8_t *at, const uint8_t *frame, const gw_segment *s, int hashed)
{
    const size_t n_params = gw_codec_param_count(s->params.codec);
    const size_t bytes = (size_t)entry_bytes(s->n_dims, n_params, s->name_bytes);
    memset(at, 0, bytes);
    at[0] = gw_codec_id(s->params.codec);
    at[1] = (uint8_t)s->dtype;
    at[2] = (uint8_t)s->n_dims;
    at[3] = (uint8_t)n_params;
    gw_put_u32(at + 4, (uint32_t)s->name_bytes);
    gw_put_u64(at + 8, s->count);
    gw_put_u64(at + 16, s->payload_bytes);
    gw_put_u64(at + 24, hashed ? gw_hash(frame + s->payload_at, s->payload_bytes, 0) : 0);
    gw_put_u64(at + 32, s->tensor);
    uint8_t *p = at + ENTRY;
    for (uint32_t i = 0; i < s->n_dims; i++, p += 8) {
        gw_put_u64(p, s->dims[i]);
    }
    for (size_t i = 0; i < n_params; i++, p += 8) {
        gw_put_f64(p, s->params.value[i]);
    }
    if (s->name_bytes != 0) { /* an empty name may be NULL */
        memcpy(p, s->name, s->name_bytes);
    }
    return bytes;
}

gw_status gw_frame_seal(void *frame, size_t capacity, const gw_frame_info *info,
                        const gw_segment *segments, size_t n, size_t *bytes, gw_why *why)
{
    uint64_t header = 0;
    if (frame == NULL || info == NULL || bytes == NULL ||
        (info->flags & ~(uint32_t)GW_FRAME_HASHED)) {
        return gw_fail(why, GW_ERR_ARG, "no frame, no info or an unknown flag");
    }
    gw_status status = measure_header(segments, n, &header, why);
    uint64_t end = header;
    for (size_t i = 0; status == GW_OK && i < n; i++) {
        gw_why inner = {""};
        status = check_length(&segments[i], &inner);
        if (status == GW_OK && segments[i].payload_at != end) {
            status = gw_fail(&inner, GW_ERR_ARG, "its payload is not where it must be");
        }
        if (status != GW_OK) {
            return in_segment(status, i, &inner, why);
        }
        end = align8(end + segments[i].payload_bytes);
    }
    if (status != GW_OK) {
        return status;
    }
    if (end > capacity) {
        return gw_fail(why, GW_ERR_CAPACITY, "the frame has %llu bytes, the buffer %zu",
                       (unsigned long long)end, capacity);
    }
    uint8_t *f = frame;
    memset(f, 0, HEADER);
    memcpy(f, magic, sizeof magic);
    gw_put_u16(f + 4, GW_WIRE_VERSION);
    gw_put_u16(f + 6, (uint16_t)info->flags);
    gw_put_u32(f + 8, (uint32_t)n);
    gw_put_u32(f + 12, (uint32_t)header);
    gw_put_u64(f + 16, end);
    gw_put_u64(f + 24, info->seed);
    gw_put_u64(f + 32, info->step);
    gw_put_u32(f + 40, info->rank);
    gw_put_u32(f + 44, info->point);
    size_t at = HEADER;
    for (size_t i = 0; i < n; i++) {
        const uint64_t stop = segments[i].payload_at + segments[i].payload_bytes;
        memset(f + stop, 0, (size_t)(align8(stop) - stop));
        at += write_entry(f + at, f, &segments[i], (info->flags & GW_FRAME_HASHED) != 0);
    }
    gw_put_u64(f + HASH_AT, gw_hash_around(f, (size_t)header, HASH_AT));
    *bytes = (size_t)end;
    return GW_OK;
}

/* Reads the entry at s.entry_at of a frame whose header is `header` bytes. Checks it whole, except
 * for its payload. *next is where the next entry begins. */
static gw_status read_entry(const uint8_t *frame, uint64_t header, uint64_t at, gw_segment *s,
                            uint64_t *hash, uint64_t *next, gw_why *why)
{
    const uint8_t *e = frame + at;
    if (header - at < ENTRY) {
        return gw_fail(why, GW_ERR_CORRUPT, "its entry does not fit into the header");
    }
    const uint64_t n_params = e[3], name_bytes = gw_get_u32(e + 4);
    const uint64_t bytes = entry_bytes(e[2], n_params, name_bytes);
    if (bytes > header - at) {
        return gw_fail(why, GW_ERR_CORRUPT, "its entry does not fit into the header");
    }
    *s = (gw_segment){.dtype = (gw_dtype)e[1], .n_dims = e[2], .name_bytes = (size_t)name_bytes};
    if (gw_params_init(&s->params, gw_codec_by_id(e[0])) != GW_OK) {
        return gw_fail(why, GW_ERR_UNKNOWN, "codec id %u is unknown", e[0]);
    }
    if (n_params > gw_codec_param_count(s->params.codec)) {
        return gw_fail(why, GW_ERR_UNKNOWN, "%s with %u parameters is from a later version",
                       gw_codec_name(s->params.codec), (unsigned)n_params);
    }
    if (s->n_dims > GW_FRAME_MAX_DIMS) { /* before dims[] is filled */
        return gw_fail(why, GW_ERR_CORRUPT, "%u dims, at most %d", s->n_dims, GW_FRAME_MAX_DIMS);
    }
    s->count = gw_get_u64(e + 8);
    s->payload_bytes = gw_get_u64(e + 16);
    *hash = gw_get_u64(e + 24);
    s->tensor = gw_get_u64(e + 32);
    const uint8_t *p = e + ENTRY;
    for (uint32_t i = 0; i < s->n_dims; i++, p += 8) {
        s->dims[i] = gw_get_u64(p);
    }
    for (size_t i = 0; i < n_params; i++, p += 8) {
        s->params.value[i] = gw_get_f64(p);
    }
    s->name = (const char *)p;
    for (p += name_bytes; p < e + bytes; p++) {
        if (*p != 0) {
            return gw_fail(why, GW_ERR_CORRUPT, "padding behind its name is not zero");
        }
    }
    *next = at + bytes;
    return check_segment(s, why);
}

/* Everything before the first entry. *header is its length. */
static gw_status read_header(const uint8_t *f, size_t size, gw_frame_info *info, uint64_t *header,
                             gw_why *why)
{
    if (size < sizeof magic || memcmp(f, magic, sizeof magic) != 0) {
        return gw_fail(why, GW_ERR_CORRUPT, "not a gradwire frame: the magic bytes are missing");
    }
    if (size < HEADER) {
        return gw_fail(why, GW_ERR_TRUNCATED, "truncated: %zu bytes, a header alone has %d", size,
                       HEADER);
    }
    const unsigned version = gw_get_u16(f + 4);
    if (version != GW_WIRE_VERSION) {
        return gw_fail(why, GW_ERR_VERSION, "wire version %u; this library reads version %d",
                       version, GW_WIRE_VERSION);
    }
    *info = (gw_frame_info){.flags = gw_get_u16(f + 6),
                            .segments = gw_get_u32(f + 8),
                            .bytes = gw_get_u64(f + 16),
                            .seed = gw_get_u64(f + 24),
                            .step = gw_get_u64(f + 32),
                            .rank = gw_get_u32(f + 40),
                            .point = gw_get_u32(f + 44)};
    *header = gw_get_u32(f + 12);
    if (info->bytes > size) {
        return gw_fail(why, GW_ERR_TRUNCATED, "truncated: %zu bytes of %llu", size,
                       (unsigned long long)info->bytes);
    }
    if (info->bytes != size || *header < HEADER || *header % 8 != 0 || *header > size ||
        *header >= max_header) {
        return gw_fail(why, GW_ERR_CORRUPT,
                       "lengths disagree: %zu bytes given, frame %llu, header %llu", size,
                       (unsigned long long)info->bytes, (unsigned long long)*header);
    }
    if (gw_hash_around(f, (size_t)*header, HASH_AT) != gw_get_u64(f + HASH_AT)) {
        return gw_fail(why, GW_ERR_CHECKSUM, "the header's checksum does not match");
    }
    if (info->flags & ~(uint32_t)GW_FRAME_HASHED) {
        return gw_fail(why, GW_ERR_UNKNOWN, "unknown flags %04X", info->flags);
    }
    if (info->segments > GW_FRAME_MAX_SEGMENTS || gw_get_u64(f + 48) != 0) {
        return gw_fail(why, GW_ERR_CORRUPT, "too many segments, or a reserved field is not zero");
    }
    return GW_OK;
}

/* The payload that begins at `at`: inside the frame, its padding zero, its hash right. */
static gw_status check_payload(const uint8_t *frame, size_t size, uint64_t at, const gw_segment *s,
                               int hashed, uint64_t hash, gw_why *why)
{
    if (s->payload_bytes > size - at) {
        return gw_fail(why, GW_ERR_CORRUPT, "its payload of %llu bytes does not fit into the frame",
                       (unsigned long long)s->payload_bytes);
    }
    const uint64_t end = at + s->payload_bytes;
    for (uint64_t i = end; i < align8(end); i++) { /* size is a multiple of 8: see gw_frame_open */
        if (frame[i] != 0) {
            return gw_fail(why, GW_ERR_CORRUPT, "padding behind its payload is not zero");
        }
    }
    if (hash != (hashed ? gw_hash(frame + at, (size_t)s->payload_bytes, 0) : 0)) {
        return gw_fail(why, GW_ERR_CHECKSUM, "its payload's checksum does not match");
    }
    return GW_OK;
}

/* What a frame of `size` bytes may decode to where the caller gives no limit. */
static uint64_t default_limit(size_t size)
{
    const uint64_t least = (uint64_t)1 << 30;
    return size > least / 64 ? (uint64_t)size * 64 : least;
}

static gw_status check_expanded(uint64_t expanded, uint64_t limit, gw_why *why)
{
    return expanded <= limit ? GW_OK
                             : gw_fail(why, GW_ERR_CAPACITY,
                                       "the frame decodes to %llu bytes; the limit is %llu bytes",
                                       (unsigned long long)expanded, (unsigned long long)limit);
}

gw_status gw_frame_open(const void *frame, size_t size, gw_frame_info *info, gw_why *why)
{
    return gw_frame_open_limited(frame, size, 0, info, why);
}

gw_status gw_frame_open_limited(const void *frame, size_t size, uint64_t max_bytes,
                                gw_frame_info *info, gw_why *why)
{
    const uint8_t *f = frame;
    gw_frame_info read = {0};
    uint64_t header = 0;
    if (frame == NULL || info == NULL) {
        return gw_fail(why, GW_ERR_ARG, "no frame");
    }
    gw_status status = read_header(f, size, &read, &header, why);
    if (status != GW_OK) {
        return status;
    }
    if (size % 8 != 0) {
        return gw_fail(why, GW_ERR_CORRUPT, "the frame's length is not a multiple of 8");
    }
    uint64_t entry_at = HEADER, payload_at = header, hash = 0, expanded = 0;
    for (uint64_t i = 0; i < read.segments; i++) {
        gw_segment s = {0};
        gw_why inner = {""};
        status = read_entry(f, header, entry_at, &s, &hash, &entry_at, &inner);
        if (status == GW_OK) {
            status = check_length(&s, &inner);
        }
        if (status == GW_OK) {
            status = check_payload(f, size, payload_at, &s, (read.flags & GW_FRAME_HASHED) != 0,
                                   hash, &inner);
        }
        if (status != GW_OK) {
            return in_segment(status, i, &inner, why);
        }
        payload_at = align8(payload_at + s.payload_bytes);
        const uint64_t bytes = s.count * gw_dtype_size(s.dtype); /* below 2^51 */
        expanded = bytes > UINT64_MAX - expanded ? UINT64_MAX : expanded + bytes;
    }
    if (entry_at != header || payload_at != size) {
        return gw_fail(why, GW_ERR_CORRUPT, "bytes are left over behind the last %s",
                       entry_at != header ? "entry" : "payload");
    }
    status = check_expanded(expanded, max_bytes != 0 ? max_bytes : default_limit(size), why);
    if (status == GW_OK) {
        *info = read;
    }
    return status;
}

gw_status gw_frame_segment(const void *frame, size_t size, gw_frame_cursor *cursor, gw_segment *out,
                           gw_why *why)
{
    const uint8_t *f = frame;
    if (frame == NULL || cursor == NULL || out == NULL || size < HEADER) {
        return gw_fail(why, GW_ERR_ARG, "no frame");
    }
    const uint64_t header = gw_get_u32(f + 12);
    if (cursor->index >= gw_get_u32(f + 8)) {
        return gw_fail(why, GW_ERR_RANGE, "the frame has no further segment");
    }
    if (cursor->index == 0) {
        cursor->entry_at = HEADER;
        cursor->payload_at = header;
    }
    gw_segment s = {0};
    gw_why inner = {""};
    uint64_t hash = 0, next = 0;
    if (header > size || cursor->entry_at > header) {
        return gw_fail(why, GW_ERR_ARG, "the frame was not opened");
    }
    const gw_status status = read_entry(f, header, cursor->entry_at, &s, &hash, &next, &inner);
    if (status != GW_OK) {
        return in_segment(status, cursor->index, &inner, why);
    }
    s.payload_at = cursor->payload_at;
    cursor->index++;
    cursor->entry_at = next;
    cursor->payload_at = align8(s.payload_at + s.payload_bytes);
    *out = s;
    return GW_OK;
}
