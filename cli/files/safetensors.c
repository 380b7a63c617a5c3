/* .safetensors headers; see safetensors.h. jansson reads the JSON; here stands what the format asks
 * for beyond it. Names in messages are cut to NAME_SHOWN bytes so that the reason always fits. */
#define _POSIX_C_SOURCE 200809L
#include "cli/files/safetensors.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#define NAME_SHOWN 80
/* The reference implementation's limit; it bounds what jansson may allocate. */
#define HEADER_MAX UINT64_C(100000000)

static const struct {
    const char *name;
    gw_cli_stored stored;
} DTYPES[] = {{"F32", GW_CLI_F32}, {"F16", GW_CLI_F16}, {"BF16", GW_CLI_BF16}, {"F64", GW_CLI_F64}};
enum { N_DTYPES = sizeof DTYPES / sizeof DTYPES[0] };

/* Where a message goes, and about which tensor it is. */
typedef struct report {
    const char *name;
    char *why;
    size_t size;
} report;

__attribute__((format(printf, 2, 3))) static bool fail(const report *r, const char *format, ...)
{
    int used = 0;
    if (r->name) {
        used = snprintf(r->why, r->size, "tensor '%.*s': ", NAME_SHOWN, r->name);
    }
    if (used >= 0 && (size_t)used < r->size) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(r->why + used, r->size - (size_t)used, format, arguments);
        va_end(arguments);
    }
    return false;
}

static bool read_whole(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        return false;
    }
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static bool read_dtype(const json_t *value, const report *r, gw_cli_stored *out)
{
    const char *text = json_string_value(value);
    if (!text) {
        return fail(r, "dtype is not a string");
    }
    for (size_t i = 0; i < N_DTYPES; i++) {
        if (strcmp(DTYPES[i].name, text) == 0) {
            *out = DTYPES[i].stored;
            return true;
        }
    }
    return fail(r, "dtype '%.*s' is not a float this reads (F32, F16, BF16, F64)", NAME_SHOWN,
                text);
}

static bool read_shape(const json_t *value, const report *r, gw_cli_shape *out)
{
    if (!json_is_array(value)) {
        return fail(r, "shape is not an array");
    }
    if (json_array_size(value) > GW_CLI_MAX_DIMS) {
        return fail(r, "shape has %zu dimensions; at most %d are read", json_array_size(value),
                    GW_CLI_MAX_DIMS);
    }
    out->n_dims = (uint32_t)json_array_size(value);
    for (uint32_t i = 0; i < out->n_dims; i++) {
        if (!read_whole(json_array_get(value, i), &out->dims[i])) {
            return fail(r, "shape[%" PRIu32 "] is not a whole number from 0 up", i);
        }
    }
    return gw_cli_shape_measure(out) || fail(r, "the shape's product is too large");
}

static bool read_offsets(const json_t *value, const report *r, uint64_t data_bytes,
                         gw_cli_safetensor *out)
{
    if (!json_is_array(value) || json_array_size(value) != 2 ||
        !read_whole(json_array_get(value, 0), &out->begin) ||
        !read_whole(json_array_get(value, 1), &out->end)) {
        return fail(r, "data_offsets is not an array of two whole numbers from 0 up");
    }
    if (out->begin > out->end || out->end > data_bytes) {
        return fail(r,
                    "data_offsets [%" PRIu64 ", %" PRIu64 "] do not lie in the file's %" PRIu64
                    " bytes of data",
                    out->begin, out->end, data_bytes);
    }
    return true;
}

static bool read_tensor(const json_t *entry, const report *r, uint64_t data_bytes,
                        gw_cli_safetensor *out)
{
    const json_t *dtype = json_object_get(entry, "dtype"), *shape = json_object_get(entry, "shape"),
                 *offsets = json_object_get(entry, "data_offsets");
    if (!json_is_object(entry)) {
        return fail(r, "its entry is not an object");
    }
    if (!dtype || !shape || !offsets) {
        return fail(r, "key '%s' is missing", !dtype ? "dtype" : !shape ? "shape" : "data_offsets");
    }
    const char *key = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)entry, key, value)
    {
        if (value != dtype && value != shape && value != offsets) {
            return fail(r, "unknown key '%.*s'", NAME_SHOWN, key);
        }
    }
    if (!read_dtype(dtype, r, &out->shape.stored) || !read_shape(shape, r, &out->shape) ||
        !read_offsets(offsets, r, data_bytes, out)) {
        return false;
    }
    if (out->end - out->begin != out->shape.bytes) {
        return fail(r,
                    "its shape and dtype ask for %" PRIu64 " bytes, its data_offsets span %" PRIu64,
                    out->shape.bytes, out->end - out->begin);
    }
    return true;
}

static bool check_metadata(const json_t *metadata, const report *r)
{
    const char *key = NULL;
    json_t *value = NULL;
    if (!json_is_object(metadata)) {
        return fail(r, "__metadata__ is not an object");
    }
    json_object_foreach((json_t *)metadata, key, value)
    {
        if (!json_is_string(value)) {
            return fail(r, "__metadata__: the value of '%.*s' is not a string", NAME_SHOWN, key);
        }
    }
    return true;
}

/* By offset. Where an empty tensor and another begin together the empty one is first; of several
 * empty ones the order of names decides, so that the order never depends on the sort. */
static int compare_offsets(const void *left, const void *right)
{
    const gw_cli_safetensor *a = left, *b = right;
    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    if (a->end != b->end) {
        return a->end < b->end ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

/* The tensors, in order, must cover the data area: no overlap, no gap, nothing behind. */
static bool check_cover(const gw_cli_safetensors_info *info, uint64_t data_bytes, report r)
{
    uint64_t at = 0;
    for (size_t i = 0; i < info->n; i++) {
        r.name = info->tensors[i].name;
        if (info->tensors[i].begin != at) {
            return fail(&r, "its data begin at %" PRIu64 ", those before end at %" PRIu64 ": %s",
                        info->tensors[i].begin, at,
                        info->tensors[i].begin < at ? "they overlap" : "a gap");
        }
        at = info->tensors[i].end;
    }
    r.name = NULL;
    return at == data_bytes ||
           fail(&r, "the tensors end at %" PRIu64 ", the file has %" PRIu64 " bytes of data", at,
                data_bytes);
}

static bool read_tensors(json_t *root, const report *r, uint64_t data_bytes,
                         gw_cli_safetensors_info *info)
{
    const char *key = NULL;
    json_t *value = NULL;
    info->tensors = calloc(json_object_size(root) + 1, sizeof *info->tensors);
    if (!info->tensors) {
        return fail(r, "out of memory");
    }
    json_object_foreach(root, key, value)
    {
        if (strcmp(key, "__metadata__") == 0) {
            if (!check_metadata(value, r)) {
                return false;
            }
            continue;
        }
        gw_cli_safetensor *tensor = &info->tensors[info->n];
        report about = {key, r->why, r->size};
        if (!read_tensor(value, &about, data_bytes, tensor)) {
            return false;
        }
        tensor->name = strdup(key);
        if (!tensor->name) {
            return fail(r, "out of memory");
        }
        info->n++;
    }
    qsort(info->tensors, info->n, sizeof *info->tensors, compare_offsets);
    return check_cover(info, data_bytes, *r);
}

bool gw_cli_safetensors_parse(const uint8_t *file, size_t size, gw_cli_safetensors_info *info,
                              char *why, size_t why_size)
{
    const report r = {NULL, why, why_size};
    uint64_t length = 0;
    if (size < 8) {
        return fail(&r, "the file has %zu bytes; its header length alone takes 8", size);
    }
    for (int i = 7; i >= 0; i--) {
        length = length << 8 | file[i];
    }
    if (length > size - 8) {
        return fail(&r,
                    "the header says it has %" PRIu64 " bytes, the file has %zu after its length",
                    length, size - 8);
    }
    if (length > HEADER_MAX) {
        return fail(&r, "a header of %" PRIu64 " bytes; at most %" PRIu64 " are read", length,
                    HEADER_MAX);
    }
    json_error_t error;
    json_t *root =
        json_loadb((const char *)file + 8, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        return fail(&r, "header, byte %d: %s", error.position, error.text);
    }
    gw_cli_safetensors_info found = {.data_at = 8 + (size_t)length};
    bool fine = json_is_object(root) ? read_tensors(root, &r, size - found.data_at, &found)
                                     : fail(&r, "the header is not a JSON object");
    json_decref(root);
    if (fine) {
        *info = found;
    } else {
        gw_cli_safetensors_free(&found);
    }
    return fine;
}

void gw_cli_safetensors_free(gw_cli_safetensors_info *info)
{
    for (size_t i = 0; i < info->n; i++) {
        free(info->tensors[i].name);
    }
    free(info->tensors);
    *info = (gw_cli_safetensors_info){0};
}

/* ---- writing ---- */

static const char *dtype_name(gw_cli_stored stored)
{
    for (size_t i = 0; i < N_DTYPES; i++) {
        if (DTYPES[i].stored == stored) {
            return DTYPES[i].name;
        }
    }
    return "";
}

static bool add_entry(json_t *root, const gw_cli_safetensor *tensor, uint64_t *at, const report *r)
{
    if (strcmp(tensor->name, "__metadata__") == 0) {
        return fail(r, ".safetensors keeps this name for itself");
    }
    if (json_object_get(root, tensor->name)) {
        return fail(r, "two tensors have this name; .safetensors cannot hold both");
    }
    json_t *shape = json_array();
    for (uint32_t i = 0; i < tensor->shape.n_dims; i++) {
        json_array_append_new(shape, json_integer((json_int_t)tensor->shape.dims[i]));
    }
    uint64_t begin = *at;
    *at += tensor->shape.bytes;
    json_t *entry = json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype_name(tensor->shape.stored),
                              "shape", shape, "data_offsets", (json_int_t)begin, (json_int_t)*at);
    return json_object_set_new(root, tensor->name, entry) == 0 ||
           fail(r, "its name is not UTF-8, or memory ran out");
}

char *gw_cli_safetensors_header(const gw_cli_safetensor *tensors, size_t n, size_t *header_bytes,
                                char *why, size_t why_size)
{
    json_t *root = json_object();
    char *header = NULL;
    uint64_t at = 0;
    for (size_t i = 0; i < n; i++) {
        report r = {tensors[i].name, why, why_size};
        if (!add_entry(root, &tensors[i], &at, &r)) {
            goto done;
        }
    }
    /* Filled up with spaces, so that the data begin at a multiple of eight. */
    size_t used = json_dumpb(root, NULL, 0, JSON_COMPACT), padded = (used + 7) / 8 * 8;
    header = used ? malloc(8 + padded) : NULL;
    if (!header) {
        (void)snprintf(why, why_size, "out of memory");
        goto done;
    }
    for (int i = 0; i < 8; i++) {
        header[i] = (char)(padded >> 8 * i & 0xFF);
    }
    memset(header + 8, ' ', padded);
    (void)json_dumpb(root, header + 8, padded, JSON_COMPACT);
    *header_bytes = 8 + padded;
done:
    json_decref(root);
    return header;
}
