/* gw_frame_open, gw_frame_segment and gw_decode of any frame. The first byte says what is made right
 * before the frame is opened, for else every change ends at a checksum; the rest is the frame.
 *
 * An accepted frame must lie within its bytes wherever it points, must decode or be refused without
 * harm, and is what gw_frame_seal writes from its segments. */
#include "fuzz.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    HEADER_HASH = 1,
    PAYLOAD_HASHES = 2,
    LENGTHS =
        4, /* payloads have what the codec makes of their elements, the frame what they need */
    UNALIGNED = 8 /* a frame may lie anywhere */
};
enum { HEADER = 64, ENTRY = 40, FRAME_MAX = 1 << 16, COUNT_MAX = 8 * FRAME_MAX };

static uint64_t get(const uint8_t *at, size_t bytes)
{
    fuzz_input in = {at, bytes};
    return fuzz_take(&in, bytes);
}

static void put_u64(uint8_t *at, uint64_t value)
{
    for (int i = 0; i < 8; i++) {
        at[i] = (uint8_t)(value >> 8 * i);
    }
}

/* ---- repair: follows the entries as far as they make sense ---- */

/* What the entry's codec makes of its elements; if that is anyone's guess, what the entry says. */
static uint64_t payload_bytes(const uint8_t *entry)
{
    const uint64_t said = get(entry + 16, 8), count = get(entry + 8, 8);
    gw_params params;
    size_t bound = 0;
    if (gw_params_init(&params, gw_codec_by_id(entry[0])) != GW_OK || entry[3] > GW_PARAMS_MAX) {
        return said;
    }
    memcpy(params.value, entry + ENTRY + 8 * (size_t)entry[2], 8 * (size_t)entry[3]);
    if (gw_payload_bound(&params, (size_t)count, &bound) != GW_OK) {
        return said;
    }
    return fuzz_fixed_size(&params) || said > bound ? bound : said;
}

/* `frame` has FRAME_MAX bytes, zero from `size` on. Returns the size after the repair. */
static size_t repair_payloads(uint8_t *frame, size_t size, size_t header, unsigned what)
{
    const uint64_t n = get(frame + 8, 4), hashed = get(frame + 6, 2) & GW_FRAME_HASHED;
    const size_t limit = what & LENGTHS ? FRAME_MAX : size;
    size_t at = HEADER, payload_at = header;
    for (uint64_t i = 0; i < n; i++) {
        uint8_t *e = frame + at;
        if (header - at < ENTRY) {
            return size;
        }
        const uint64_t bytes = ENTRY + 8 * (uint64_t)e[2] + 8 * (uint64_t)e[3] + get(e + 4, 4);
        if (bytes > header - at) {
            return size;
        }
        const uint64_t payload = what & LENGTHS ? payload_bytes(e) : get(e + 16, 8);
        if (payload > limit - payload_at || gw_frame_next((size_t)bytes) > header - at) {
            return size;
        }
        const size_t end = payload_at + (size_t)payload, next = gw_frame_next(end);
        if (next > limit) {
            return size;
        }
        if (what & LENGTHS) {
            put_u64(e + 16, payload);
            memset(frame + end, 0, next - end);
        }
        if (what & PAYLOAD_HASHES) {
            put_u64(e + 24, hashed ? XXH3_64bits(frame + payload_at, (size_t)payload) : 0);
        }
        payload_at = next;
        at += gw_frame_next((size_t)bytes);
    }
    return what & LENGTHS ? payload_at : size;
}

static size_t repair(uint8_t *frame, size_t size, unsigned what)
{
    const size_t header = size < HEADER ? 0 : (size_t)get(frame + 12, 4);
    if (header < HEADER || header > size) {
        return size;
    }
    if (what & (LENGTHS | PAYLOAD_HASHES)) {
        size = repair_payloads(frame, size, header, what);
    }
    if (what & LENGTHS) {
        put_u64(frame + 16, size);
    }
    if (what & HEADER_HASH) {
        memset(frame + 56, 0, 8);
        put_u64(frame + 56, XXH3_64bits(frame, header));
    }
    return size;
}

/* ---- checks of what was accepted ---- */

static void decode_segment(const uint8_t *frame, const gw_segment *s)
{
    fuzz_buffer workspace, out;
    const gw_exec exec = fuzz_exec(&s->params, s->dtype, 0, GW_ISA_AUTO, 0, &workspace);
    size_t bound = 0;
    REQUIRE(gw_payload_bound(&s->params, (size_t)s->count, &bound) == GW_OK);
    REQUIRE(s->payload_bytes <= bound);
    REQUIRE(s->payload_bytes == bound || !fuzz_fixed_size(&s->params));
    if (s->count > COUNT_MAX) { /* bounds memory; a codec of fixed size cannot get here */
        fuzz_release(&workspace);
        return;
    }
    out = fuzz_acquire((size_t)s->count * gw_dtype_size(s->dtype), 0);
    gw_tensor tensor = {out.data, (size_t)s->count, s->dtype};
    gw_why why = {""};
    const gw_status status = gw_decode(&s->params, &exec, frame + s->payload_at,
                                       (size_t)s->payload_bytes, GW_SET, &tensor, &why);
    if (status == GW_OK) {
        REQUIRE(why.text[0] == '\0');
    } else {
        REQUIRE(status == GW_ERR_CORRUPT ||
                (status == GW_ERR_TRUNCATED && !fuzz_fixed_size(&s->params)));
        fuzz_require_reason(why.text, sizeof why.text);
    }
    fuzz_release(&out);
    fuzz_release(&workspace);
}

static void require_segment(const uint8_t *frame, size_t size, const gw_segment *s, uint64_t header)
{
    const size_t name_at = (size_t)((const uint8_t *)s->name - frame);
    uint64_t product = 1;
    REQUIRE(gw_params_check(&s->params, NULL) == GW_OK && gw_dtype_size(s->dtype) != 0);
    REQUIRE(s->n_dims <= GW_FRAME_MAX_DIMS && s->name_bytes <= GW_FRAME_MAX_NAME);
    for (uint32_t i = 0; i < s->n_dims; i++) {
        product *= s->dims[i]; /* cannot wrap: no product on the way exceeds 2^48 */
    }
    REQUIRE(product == s->count && s->count < (uint64_t)1 << 48);
    REQUIRE(name_at >= HEADER + ENTRY && name_at <= header && s->name_bytes <= header - name_at);
    REQUIRE(memchr(s->name, '\0', s->name_bytes) == NULL);
    REQUIRE(s->payload_at >= header && s->payload_at % 8 == 0 && s->payload_at <= size &&
            s->payload_bytes <= size - s->payload_at);
}

/* A frame that names every parameter has just one form. */
static void require_canonical(const uint8_t *frame, size_t size, const gw_frame_info *info,
                              const gw_segment *segments)
{
    size_t begin = 0, sealed = 0;
    REQUIRE(gw_frame_begin(segments, info->segments, &begin, NULL) == GW_OK);
    if (begin != get(frame + 12, 4)) {
        return; /* parameters left out */
    }
    fuzz_buffer again = fuzz_copy(frame, size, 0);
    memset(again.data, 0xEE, begin);
    for (uint32_t i = 0; i < info->segments; i++) {
        const size_t end = (size_t)(segments[i].payload_at + segments[i].payload_bytes);
        memset(again.data + end, 0xEE, gw_frame_next(end) - end);
    }
    gw_why why = {""};
    REQUIRE(gw_frame_seal(again.data, size - 1, info, segments, info->segments, &sealed, &why) ==
            GW_ERR_CAPACITY);
    REQUIRE(gw_frame_seal(again.data, size, info, segments, info->segments, &sealed, NULL) ==
            GW_OK);
    REQUIRE(sealed == size && memcmp(again.data, frame, size) == 0);
    fuzz_release(&again);
}

/* What a frame decodes to is what its limit is compared with. */
static void require_limit(const uint8_t *frame, size_t size, uint64_t expanded)
{
    const uint64_t least = (uint64_t)1 << 30, usual = size > least / 64 ? 64 * size : least;
    gw_frame_info info;
    gw_why why = {""};
    const gw_status status = gw_frame_open(frame, size, &info, &why);
    REQUIRE(status == (expanded <= usual ? GW_OK : GW_ERR_CAPACITY));
    REQUIRE(expanded == 0 || gw_frame_open_limited(frame, size, expanded, &info, NULL) == GW_OK);
    REQUIRE(expanded < 2 ||
            gw_frame_open_limited(frame, size, expanded - 1, &info, &why) == GW_ERR_CAPACITY);
}

static void walk(const uint8_t *frame, size_t size, const gw_frame_info *info)
{
    const uint64_t header = get(frame + 12, 4);
    gw_segment *segments = calloc((size_t)info->segments + 1, sizeof *segments);
    gw_frame_cursor cursor = {0};
    gw_why why = {""};
    uint64_t payload_at = header, expanded = 0;
    REQUIRE(segments != NULL && info->segments <= size / ENTRY && info->bytes == size);
    for (uint32_t i = 0; i < info->segments; i++) {
        gw_segment *s = &segments[i];
        REQUIRE(gw_frame_segment(frame, size, &cursor, s, &why) == GW_OK);
        require_segment(frame, size, s, header);
        REQUIRE(s->payload_at == payload_at);
        payload_at = gw_frame_next((size_t)(s->payload_at + s->payload_bytes));
        decode_segment(frame, s);
        expanded += s->count * gw_dtype_size(s->dtype); /* at most 2^14 segments of 2^51 */
    }
    REQUIRE(payload_at == size && why.text[0] == '\0');
    gw_segment none;
    REQUIRE(gw_frame_segment(frame, size, &cursor, &none, &why) == GW_ERR_RANGE);
    require_canonical(frame, size, info, segments);
    require_limit(frame, size, expanded);
    free(segments);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t repaired[FRAME_MAX];
    if (size == 0 || size - 1 > FRAME_MAX) {
        return 0;
    }
    const unsigned what = data[0];
    memset(repaired, 0, sizeof repaired);
    memcpy(repaired, data + 1, size - 1);
    const size_t bytes = repair(repaired, size - 1, what);
    fuzz_buffer frame = fuzz_copy(repaired, bytes, what & UNALIGNED ? 1 : 0);
    gw_frame_info info;
    memset(&info, 0x77, sizeof info);
    const gw_frame_info before = info;
    gw_why why = {""};
    if (gw_frame_open_limited(frame.data, frame.size, UINT64_MAX, &info, &why) == GW_OK) {
        REQUIRE(why.text[0] == '\0');
        walk(frame.data, frame.size, &info);
    } else {
        REQUIRE(memcmp(&info, &before, sizeof info) == 0);
        fuzz_require_reason(why.text, sizeof why.text);
    }
    fuzz_release(&frame);
    return 0;
}
