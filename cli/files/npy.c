/* .npy headers; see npy.h. The header is a Python dictionary such as
 *
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *
 * with these three keys in any order. The scanner below knows just that much of Python. Every read
 * of a character goes through peek(), which knows where the header ends. */
#include "cli/files/npy.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct scanner {
    const uint8_t *file;
    size_t at, end; /* of the dictionary's text */
    char *why;
    size_t why_size;
} scanner;

typedef struct string {
    const char *text;
    int size; /* as %.*s wants it */
} string;

__attribute__((format(printf, 2, 3))) static bool fail(scanner *s, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(s->why, s->why_size, format, arguments);
    va_end(arguments);
    return false;
}

static int peek(scanner *s)
{
    while (s->at < s->end && strchr(" \t\r\n", s->file[s->at]) && s->file[s->at]) {
        s->at++;
    }
    return s->at < s->end ? s->file[s->at] : -1;
}

static bool take(scanner *s, char wanted)
{
    if (peek(s) != wanted) {
        return false;
    }
    s->at++;
    return true;
}

static bool expect(scanner *s, char wanted)
{
    return take(s, wanted) || fail(s, "header, byte %zu: '%c' expected", s->at, wanted);
}

static bool take_word(scanner *s, const char *word)
{
    size_t size = strlen(word);
    (void)peek(s);
    if (s->end - s->at < size || memcmp(s->file + s->at, word, size) != 0) {
        return false;
    }
    s->at += size;
    return true;
}

/* A string in single or double quotes, without escapes: no key or dtype needs one. */
static bool scan_string(scanner *s, string *out)
{
    int quote = peek(s);
    if (quote != '\'' && quote != '"') {
        return fail(s, "header, byte %zu: a string expected", s->at);
    }
    size_t from = ++s->at;
    while (s->at < s->end && s->file[s->at] != quote) {
        s->at++;
    }
    if (s->at == s->end || s->at - from > 64) {
        return fail(s, "header, byte %zu: a string that does not end, or is too long", from - 1);
    }
    *out = (string){(const char *)s->file + from, (int)(s->at - from)};
    s->at++;
    return true;
}

static bool is(string s, const char *text)
{
    return strlen(text) == (size_t)s.size && memcmp(s.text, text, (size_t)s.size) == 0;
}

static bool scan_dtype(scanner *s, gw_cli_shape *shape)
{
    string dtype = {0};
    if (peek(s) == '[') {
        return fail(s, "a structured dtype is not a float this reads (f4, f2, f8)");
    }
    if (!scan_string(s, &dtype)) {
        return false;
    }
    if (is(dtype, "<f4")) {
        shape->stored = GW_CLI_F32;
    } else if (is(dtype, "<f2")) {
        shape->stored = GW_CLI_F16;
    } else if (is(dtype, "<f8")) {
        shape->stored = GW_CLI_F64;
    } else if (is(dtype, ">f4") || is(dtype, ">f2") || is(dtype, ">f8")) {
        return fail(s, "dtype '%.*s' is big-endian; this reads little-endian ('<%.*s')", dtype.size,
                    dtype.text, dtype.size - 1, dtype.text + 1);
    } else {
        return fail(s, "dtype '%.*s' is not a float this reads (f4, f2, f8)", dtype.size,
                    dtype.text);
    }
    return true;
}

static bool scan_dim(scanner *s, uint64_t *out)
{
    uint64_t value = 0;
    size_t from = s->at;
    for (; s->at < s->end && s->file[s->at] >= '0' && s->file[s->at] <= '9'; s->at++) {
        uint64_t digit = (uint64_t)s->file[s->at] - '0';
        if (value > (UINT64_MAX - digit) / 10) {
            return fail(s, "header, byte %zu: a dimension of 2^64 or more", from);
        }
        value = value * 10 + digit;
    }
    *out = value;
    return s->at > from || fail(s, "header, byte %zu: a dimension expected", from);
}

/* (), (3,), (3, 4), (3, 4,). A lone (3) is a number in Python, not a shape. */
static bool scan_shape(scanner *s, gw_cli_shape *shape)
{
    shape->n_dims = 0;
    bool comma = true;
    if (!expect(s, '(')) {
        return false;
    }
    while (!take(s, ')')) {
        if (!comma) {
            return fail(s, "header, byte %zu: ',' or ')' expected in the shape", s->at);
        }
        if (shape->n_dims == GW_CLI_MAX_DIMS) {
            return fail(s, "the shape has more than %d dimensions", GW_CLI_MAX_DIMS);
        }
        if (!scan_dim(s, &shape->dims[shape->n_dims])) {
            return false;
        }
        shape->n_dims++;
        comma = take(s, ',');
    }
    if (shape->n_dims == 1 && !comma) {
        return fail(s, "header, byte %zu: a shape of one dimension is written (N,)", s->at);
    }
    return true;
}

static bool scan_order(scanner *s, bool *fortran)
{
    *fortran = take_word(s, "True");
    return *fortran || take_word(s, "False") ||
           fail(s, "header, byte %zu: fortran_order is True or False", s->at);
}

static bool scan_dictionary(scanner *s, gw_cli_shape *shape)
{
    static const char *const KEYS[] = {"descr", "fortran_order", "shape"};
    bool seen[3] = {false}, fortran = false, comma = true;
    if (!expect(s, '{')) {
        return false;
    }
    while (!take(s, '}')) {
        string key = {0};
        int which = 0;
        if (!comma) {
            return fail(s, "header, byte %zu: ',' or '}' expected", s->at);
        }
        if (!scan_string(s, &key)) {
            return false;
        }
        while (which < 3 && !is(key, KEYS[which])) {
            which++;
        }
        if (which == 3 || seen[which]) {
            return fail(s, "header: %s key '%.*s'", which == 3 ? "unknown" : "repeated", key.size,
                        key.text);
        }
        seen[which] = true;
        if (!expect(s, ':') || !(which == 0   ? scan_dtype(s, shape)
                                 : which == 1 ? scan_order(s, &fortran)
                                              : scan_shape(s, shape))) {
            return false;
        }
        comma = take(s, ',');
    }
    if (peek(s) != -1) {
        return fail(s, "header, byte %zu: something follows the dictionary", s->at);
    }
    for (int i = 0; i < 3; i++) {
        if (!seen[i]) {
            return fail(s, "header: key '%s' is missing", KEYS[i]);
        }
    }
    if (fortran && shape->n_dims > 1) {
        return fail(s, "fortran_order is True: this reads arrays in C order "
                       "(numpy.ascontiguousarray makes one)");
    }
    return true;
}

static const uint8_t MAGIC[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

/* Magic, version, and the header's length: sets where the dictionary stands. */
static bool scan_preamble(scanner *s, size_t size)
{
    if (size < 10 || memcmp(s->file, MAGIC, sizeof MAGIC) != 0) {
        return fail(s, "not a .npy file: it does not begin with \\x93NUMPY and a header");
    }
    unsigned major = s->file[6], minor = s->file[7];
    if (major < 1 || major > 3 || minor != 0) {
        return fail(s, ".npy version %u.%u is unknown (1.0, 2.0, 3.0 are read)", major, minor);
    }
    s->at = major == 1 ? 10 : 12;
    if (size < s->at) {
        return fail(s, "the file ends within its header");
    }
    size_t length = s->file[8] | (size_t)s->file[9] << 8;
    if (major > 1) {
        length |= (size_t)s->file[10] << 16 | (size_t)s->file[11] << 24;
    }
    if (length > size - s->at) {
        return fail(s, "the header says it has %zu bytes, the file has %zu after it", length,
                    size - s->at);
    }
    s->end = s->at + length;
    return true;
}

bool gw_cli_npy_parse(const uint8_t *file, size_t size, gw_cli_npy_info *info, char *why,
                      size_t why_size)
{
    scanner s = {.file = file, .why = why, .why_size = why_size};
    gw_cli_npy_info found = {0};
    if (!scan_preamble(&s, size) || !scan_dictionary(&s, &found.shape)) {
        return false;
    }
    found.data_at = s.end;
    if (!gw_cli_shape_measure(&found.shape)) {
        return fail(&s, "the shape's product is too large");
    }
    uint64_t there = size - s.end;
    if (there != found.shape.bytes) {
        return fail(&s,
                    "the shape asks for %" PRIu64 " bytes of data, the file has %" PRIu64 ": %s",
                    found.shape.bytes, there,
                    there < found.shape.bytes ? "it is cut short" : "something follows the array");
    }
    *info = found;
    return true;
}

size_t gw_cli_npy_header(const gw_cli_shape *shape, char header[GW_CLI_NPY_HEADER_MAX])
{
    char dims[GW_CLI_MAX_DIMS * 24] = "";
    size_t at = 0;
    for (uint32_t i = 0; i < shape->n_dims; i++) {
        const char *after = shape->n_dims == 1 ? "," : i + 1 < shape->n_dims ? ", " : "";
        at += (size_t)snprintf(dims + at, sizeof dims - at, "%" PRIu64 "%s", shape->dims[i], after);
    }
    int text = snprintf(header + 10, GW_CLI_NPY_HEADER_MAX - 10,
                        "{'descr': '<f%zu', 'fortran_order': False, 'shape': (%s), }",
                        gw_cli_stored_size(shape->stored), dims);
    /* Spaces and a newline up to a multiple of 64: the data can be mapped and is aligned. */
    size_t used = 10 + (size_t)text, size = (used + 1 + 63) / 64 * 64;
    memset(header + used, ' ', size - used - 1);
    header[size - 1] = '\n';
    memcpy(header, MAGIC, sizeof MAGIC);
    header[6] = 1;
    header[7] = 0;
    header[8] = (char)((size - 10) & 0xFF);
    header[9] = (char)((size - 10) >> 8);
    return size;
}
