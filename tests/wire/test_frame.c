/* Frames: what is written is read, and everything else is refused with words. */
#include "support/check.h"
#include "support/gen.h"

#include "base/little_endian.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { MAX_FRAME = 4096 };

typedef struct made {
    uint8_t bytes[MAX_FRAME];
    size_t size;
} made;

/* Three segments: a matrix, a scalar, an empty tensor. */
static made make_frame(uint32_t flags)
{
    made f = {.size = 0};
    static float x[200];
    gen g = {21};
    gen_fill(&g, GEN_NORMAL, GW_F32, x, 200);
    gw_segment s[3] = {{.name = "layer/w",
                        .name_bytes = 7,
                        .dtype = GW_F32,
                        .count = 200,
                        .n_dims = 2,
                        .dims = {20, 10},
                        .tensor = 7},
                       {.name = "schön", .name_bytes = 6, .dtype = GW_F32, .count = 1},
                       {.dtype = GW_BF16, .n_dims = 3, .dims = {4, 0, 9}}};
    s[0].params = params_of("dither:bits=3,bucket=64");
    s[1].params = params_of("natural:bits=9");
    s[2].params = params_of("cast:to=f16");
    size_t at = 0;
    assert_int_equal(gw_frame_begin(s, 3, &at, NULL), GW_OK);
    for (int i = 0; i < 3; i++) {
        const gw_stream stream = {.seed = 5, .step = 6, .tensor = s[i].tensor, .rank = 2};
        const gw_tensor in = {x, (size_t)s[i].count, GW_F32};
        size_t written = 0;
        assert_int_equal(gw_encode(&s[i].params, NULL, &stream, &in, f.bytes + at, MAX_FRAME - at,
                                   &written, NULL),
                         GW_OK);
        s[i].payload_at = at;
        s[i].payload_bytes = written;
        at = gw_frame_next(at + written);
    }
    const gw_frame_info info = {.flags = flags, .seed = 5, .step = 6, .rank = 2, .point = 1};
    gw_why why = {""};
    const gw_status status = gw_frame_seal(f.bytes, MAX_FRAME, &info, s, 3, &f.size, &why);
    CHECK(status == GW_OK, "seal: %s", why.text);
    return f;
}

/* The header's hash made right again, for tests of what lies behind it. */
static void rehash(made *f)
{
    uint8_t copy[MAX_FRAME];
    const uint32_t header = gw_get_u32(f->bytes + 12);
    memcpy(copy, f->bytes, header);
    memset(copy + 56, 0, 8);
    gw_put_u64(f->bytes + 56, XXH3_64bits(copy, header));
}

static gw_status open_frame(const made *f, char *words)
{
    gw_frame_info info;
    gw_why why = {""};
    /* exactly the frame's bytes, so that AddressSanitizer sees one read too many */
    uint8_t *copy = malloc(f->size != 0 ? f->size : 1);
    assert_non_null(copy);
    memcpy(copy, f->bytes, f->size);
    const gw_status status = gw_frame_open(copy, f->size, &info, &why);
    free(copy);
    (void)snprintf(words, sizeof why.text, "%s", why.text);
    return status;
}

static void what_is_written_is_read(void **state)
{
    (void)state;
    for (uint32_t flags = 0; flags < 2; flags++) {
        const made f = make_frame(flags);
        gw_frame_info info;
        gw_frame_cursor cursor = {0};
        gw_segment s;
        assert_int_equal(gw_frame_open(f.bytes, f.size, &info, NULL), GW_OK);
        assert_int_equal(info.flags, flags);
        assert_int_equal(info.segments, 3);
        assert_int_equal(info.bytes, f.size);
        assert_int_equal(info.seed, 5);
        assert_int_equal(info.step, 6);
        assert_int_equal(info.rank, 2);
        assert_int_equal(info.point, 1);
        assert_int_equal(gw_frame_segment(f.bytes, f.size, &cursor, &s, NULL), GW_OK);
        assert_memory_equal(s.name, "layer/w", 7);
        assert_int_equal(s.tensor, 7);
        assert_int_equal(s.dims[0] * 100 + s.dims[1], 2010);
        assert_string_equal(gw_codec_name(s.params.codec), "dither");
        assert_true(s.params.value[0] == 3 && s.params.value[1] == 64);
        float y[200];
        gw_tensor out = {y, 200, GW_F32};
        assert_int_equal(gw_decode(&s.params, NULL, f.bytes + s.payload_at, (size_t)s.payload_bytes,
                                   GW_SET, &out, NULL),
                         GW_OK);
        assert_int_equal(gw_frame_segment(f.bytes, f.size, &cursor, &s, NULL), GW_OK);
        assert_int_equal(s.n_dims, 0);
        assert_int_equal(s.count, 1);
        assert_int_equal(gw_frame_segment(f.bytes, f.size, &cursor, &s, NULL), GW_OK);
        assert_int_equal(s.count, 0);
        assert_int_equal(s.dtype, GW_BF16);
        assert_int_equal(gw_frame_segment(f.bytes, f.size, &cursor, &s, NULL), GW_ERR_RANGE);
    }
}

/* Law 5, and its negative control: with hashes every flipped bit is refused; without, some payload
 * bit gets through, so that the test above does see payloads. */
static void every_flipped_bit_is_refused(void **state)
{
    (void)state;
    char words[256];
    made f = make_frame(GW_FRAME_HASHED), plain = make_frame(0);
    size_t passed = 0;
    for (size_t bit = 0; bit < 8 * f.size; bit++) {
        f.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        const gw_status status = open_frame(&f, words);
        CHECK(status < 0 && words[0] != '\0', "bit %zu flipped: status %d '%s'", bit, status,
              words);
        f.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    print_message("%zu single flipped bits refused\n", 8 * f.size);
    for (size_t bit = 0; bit < 8 * plain.size; bit++) {
        plain.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        passed += open_frame(&plain, words) == GW_OK;
        plain.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_true(passed > 0);
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    char words[256];
    const made whole = make_frame(GW_FRAME_HASHED);
    for (size_t size = 0; size < whole.size; size++) {
        made f = whole;
        f.size = size;
        const gw_status status = open_frame(&f, words);
        CHECK(status == (size < 4 ? GW_ERR_CORRUPT : GW_ERR_TRUNCATED), "%zu bytes: %d '%s'", size,
              status, words);
    }
    made longer = whole;
    longer.size += 8;
    assert_int_equal(open_frame(&longer, words), GW_ERR_CORRUPT);
}

/* One field changed, the header's hash made right. */
static void every_field_is_checked(void **state)
{
    (void)state;
    enum { E0 = 64 }; /* the first entry: 40 + 2 dims + 4 params + name, 96 bytes */
    static const struct {
        size_t at, width;
        uint64_t value;
        gw_status status;
        const char *words;
    } cases[] = {
        {0, 1, 'X', GW_ERR_CORRUPT, "magic"},
        {4, 2, 2, GW_ERR_VERSION, "wire version 2; this library reads version 1"},
        {6, 2, 2, GW_ERR_UNKNOWN, "unknown flags 0002"},
        {8, 4, 4, GW_ERR_CORRUPT, "segment 3: its entry does not fit"},
        {8, 4, 2, GW_ERR_CORRUPT, "left over behind the last entry"},
        {8, 4, 1u << 21, GW_ERR_CORRUPT, "too many segments"},
        {16, 8, 1 << 20, GW_ERR_TRUNCATED, "truncated"},
        {16, 8, UINT64_MAX, GW_ERR_TRUNCATED, "truncated"},
        {16, 8, 64, GW_ERR_CORRUPT, "lengths disagree"},
        {48, 8, 1, GW_ERR_CORRUPT, "reserved"},
        {E0, 1, 99, GW_ERR_UNKNOWN, "segment 0: codec id 99 is unknown"},
        {E0 + 1, 1, 4, GW_ERR_UNKNOWN, "dtype 4"},
        {E0 + 2, 1, 9, GW_ERR_CORRUPT, "9 dims"},
        {E0 + 2, 1, 255, GW_ERR_CORRUPT, "does not fit"},
        {E0 + 3, 1, 5, GW_ERR_UNKNOWN, "5 parameters is from a later version"},
        {E0 + 4, 4, UINT32_MAX, GW_ERR_CORRUPT, "does not fit"},
        {E0 + 8, 8, 201, GW_ERR_CORRUPT, "201 elements, but the dims' product is 200"},
        {E0 + 16, 8, 1, GW_ERR_CORRUPT, "a payload of 1 bytes; dither makes"},
        {E0 + 16, 8, UINT64_MAX, GW_ERR_CORRUPT, "a payload of"},
        {E0 + 24, 8, 1, GW_ERR_CHECKSUM, "payload's checksum"},
        {E0 + 40, 8, UINT64_MAX, GW_ERR_CORRUPT, "beyond 2^48"},
        {E0 + 56, 8, 0x4012000000000000u, GW_ERR_RANGE, "bits=4.5 is not one of"},
        {E0 + 56, 8, 0x7FF8000000000000u, GW_ERR_RANGE, "bits=nan"},
        {E0 + 64, 8, 0x4059000000000000u, GW_ERR_RANGE, "bucket=100 is not a power of two"},
        {E0 + 88, 1, 0xFF, GW_ERR_RANGE, "not UTF-8"},
        {E0 + 88, 1, 0, GW_ERR_RANGE, "NUL"},
        {E0 + 95, 1, 1, GW_ERR_CORRUPT, "padding behind its name"}};
    char words[256];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        made f = make_frame(GW_FRAME_HASHED);
        for (size_t b = 0; b < cases[i].width; b++) {
            f.bytes[cases[i].at + b] = (uint8_t)(cases[i].value >> 8 * b);
        }
        rehash(&f);
        const gw_status status = open_frame(&f, words);
        CHECK(status == cases[i].status && strstr(words, cases[i].words) != NULL,
              "case %zu: status %d '%s'", i, status, words);
    }
}

static void padding_is_looked_at(void **state)
{
    (void)state;
    char words[256];
    made f = make_frame(0);
    gw_frame_cursor cursor = {0};
    gw_segment s;
    assert_int_equal(gw_frame_segment(f.bytes, f.size, &cursor, &s, NULL), GW_OK);
    const size_t end = (size_t)(s.payload_at + s.payload_bytes);
    assert_true(end % 8 != 0);
    f.bytes[end] = 1;
    assert_int_equal(open_frame(&f, words), GW_ERR_CORRUPT);
    assert_non_null(strstr(words, "segment 0: padding behind its payload"));
}

/* Payload bytes that no encoder writes, behind a right hash: the decoder's own checks, and the output
 * stays as it was. */
static void corrupt_payloads_leave_the_output_alone(void **state)
{
    (void)state;
    enum { N = 5000 };
    static const struct {
        const char *spec, *words;
        size_t at;
        uint8_t byte;
    } cases[] = {{"natural:bits=8", "base 0", 4097, 0},
                 {"natural:bits=8", "base 129", 0, 129},
                 {"natural:bits=9", "unused sign bits", 0, 0x80}, /* at the very end: see below */
                 {"dither:bits=4", "has a scale of pattern", 260 * 3 + 3, 0xBF},
                 {"ndither:bits=4", "has a scale of pattern", 260 * 9 + 3, 0xFF},
                 {"ndither:bits=3,bucket=64", "unused bits", 0, 0x80}};
    static float x[N], y[N];
    static uint8_t payload[2 * N];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const gw_params p = params_of(cases[i].spec);
        const size_t n = N - 3; /* a tail with unused bits */
        const gw_tensor in = {x, n, GW_F32};
        gw_tensor out = {y, n, GW_F32};
        const gw_stream stream = {.seed = 23};
        size_t written = 0;
        gw_why why = {""};
        gen g = {23};
        gen_fill(&g, GEN_NORMAL, GW_F32, x, N);
        assert_int_equal(gw_encode(&p, NULL, &stream, &in, payload, sizeof payload, &written, NULL),
                         GW_OK);
        payload[strstr(cases[i].words, "unused") ? written - 1 : cases[i].at] |= cases[i].byte;
        if (strstr(cases[i].words, "base")) {
            payload[cases[i].at] = cases[i].byte;
        }
        memcpy(y, x, sizeof y);
        CHECK(gw_decode(&p, NULL, payload, written, GW_ADD, &out, &why) == GW_ERR_CORRUPT,
              "%s: accepted", cases[i].spec);
        CHECK(strstr(why.text, cases[i].words) != NULL, "%s: says '%s'", cases[i].spec, why.text);
        assert_memory_equal(x, y, sizeof x);
    }
}

static void a_writer_is_told_what_is_wrong(void **state)
{
    (void)state;
    gw_segment s = {
        .name = "x", .name_bytes = 1, .dtype = GW_F32, .count = 8, .n_dims = 1, .dims = {8}};
    uint8_t frame[512] = {0};
    size_t at = 0, bytes = 0;
    gw_why why = {""};
    const gw_frame_info info = {.flags = GW_FRAME_HASHED};
    assert_int_equal(gw_frame_begin(&s, 1, &at, &why), GW_ERR_ARG); /* no codec */
    s.params = params_of("natural:bits=9");
    assert_int_equal(gw_frame_begin(&s, 1, &at, NULL), GW_OK);
    s.payload_at = at;
    s.payload_bytes = 9;
    assert_int_equal(gw_frame_seal(frame, at + 15, &info, &s, 1, &bytes, &why), GW_ERR_CAPACITY);
    assert_int_equal(gw_frame_seal(frame, at + 16, &info, &s, 1, &bytes, &why), GW_OK);
    assert_int_equal(bytes, at + 16);
    s.payload_bytes = 10;
    assert_int_equal(gw_frame_seal(frame, sizeof frame, &info, &s, 1, &bytes, &why),
                     GW_ERR_CORRUPT);
    assert_non_null(
        strstr(why.text, "segment 0: a payload of 10 bytes; natural makes 9 of 8 elements"));
    s.payload_bytes = 9;
    s.payload_at = at + 8;
    assert_int_equal(gw_frame_seal(frame, sizeof frame, &info, &s, 1, &bytes, &why), GW_ERR_ARG);
    s.dims[0] = 9;
    assert_int_equal(gw_frame_begin(&s, 1, &at, &why), GW_ERR_CORRUPT);
    s.name = "\xC0\x80";
    s.name_bytes = 2;
    s.dims[0] = 8;
    assert_int_equal(gw_frame_begin(&s, 1, &at, &why), GW_ERR_RANGE);
}

/* `n` segments whose payloads of 16 bytes say "all NaN" of `count` elements each (adacomp, form 2). */
static made make_bomb(size_t n, uint64_t count)
{
    made f = {.size = 0};
    gw_segment s[4] = {{.name = NULL}};
    size_t at = 0;
    for (size_t i = 0; i < n; i++) {
        s[i] = (gw_segment){.dtype = GW_F32, .count = count, .n_dims = 1, .dims = {count}};
        s[i].params = params_of("adacomp");
    }
    assert_int_equal(gw_frame_begin(s, n, &at, NULL), GW_OK);
    for (size_t i = 0; i < n; i++) {
        f.bytes[at] = 2;
        gw_put_u32(f.bytes + at + 4, 0x7FC00000);
        s[i].payload_at = at;
        s[i].payload_bytes = 16;
        at = gw_frame_next(at + 16);
    }
    const gw_frame_info info = {.flags = GW_FRAME_HASHED};
    assert_int_equal(gw_frame_seal(f.bytes, MAX_FRAME, &info, s, n, &f.size, NULL), GW_OK);
    return f;
}

static gw_status open_limited(const made *f, uint64_t limit, gw_why *why)
{
    gw_frame_info info;
    return gw_frame_open_limited(f->bytes, f->size, limit, &info, why);
}

static void a_frame_is_not_larger_than_allowed(void **state)
{
    (void)state;
    const uint64_t gib = (uint64_t)1 << 30, most = ((uint64_t)1 << 48) - 1;
    gw_why why = {""};
    made f = make_bomb(1, gib / 4);
    assert_in_range(f.size, 1, 200);
    assert_int_equal(gw_frame_open(f.bytes, f.size, &(gw_frame_info){0}, &why), GW_OK);
    assert_int_equal(open_limited(&f, 0, &why), GW_OK);
    assert_int_equal(open_limited(&f, gib - 1, &why), GW_ERR_CAPACITY);
    f = make_bomb(1, gib / 4 + 1);
    assert_int_equal(gw_frame_open(f.bytes, f.size, &(gw_frame_info){0}, &why), GW_ERR_CAPACITY);
    assert_non_null(strstr(why.text, "1073741828 bytes"));
    assert_non_null(strstr(why.text, "limit is 1073741824 bytes"));
    assert_int_equal(open_limited(&f, gib + 4, &why), GW_OK);
    /* a sum over segments, which neither of them exceeds alone */
    f = make_bomb(3, gib / 8);
    assert_int_equal(open_limited(&f, 0, &why), GW_ERR_CAPACITY);
    assert_int_equal(open_limited(&f, gib / 2 * 3, &why), GW_OK);
    f = make_bomb(4, most);
    assert_int_equal(open_limited(&f, 0, &why), GW_ERR_CAPACITY);
    assert_int_equal(open_limited(&f, UINT64_MAX, &why), GW_OK);
    assert_int_equal(open_limited(&f, 16 * most - 1, &why), GW_ERR_CAPACITY);
    /* an honest frame of bf16 numbers is under 64 times its size, whatever that is */
    f = make_frame(GW_FRAME_HASHED);
    assert_int_equal(open_limited(&f, 803, &why), GW_ERR_CAPACITY); /* 200 + 1 of fp32, no bf16 */
    assert_int_equal(open_limited(&f, 804, &why), GW_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(every_flipped_bit_is_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_field_is_checked),
        cmocka_unit_test(padding_is_looked_at),
        cmocka_unit_test(corrupt_payloads_leave_the_output_alone),
        cmocka_unit_test(a_writer_is_told_what_is_wrong),
        cmocka_unit_test(a_frame_is_not_larger_than_allowed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
