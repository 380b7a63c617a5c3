/* Tensor files; see tensorfile.h. Elements are used where they lie in the file, except where
 * they lie askew for their type (.safetensors promises no alignment) or are f64. */
#define _POSIX_C_SOURCE 200809L
#include "cli/files/tensorfile.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/files/npy.h"
#include "cli/files/safetensors.h"
#include "cli/say.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#    error "tensor files are little-endian and are used without swapping"
#endif
_Static_assert((int)GW_CLI_MAX_DIMS == (int)GW_FRAME_MAX_DIMS, "a file's shape fits a frame");

enum { WHY_SIZE = 512 };

/* ---- one tensor ---- */

gw_cli_stored gw_cli_stored_as(gw_dtype dtype)
{
    return dtype == GW_F16 ? GW_CLI_F16 : dtype == GW_BF16 ? GW_CLI_BF16 : GW_CLI_F32;
}

static gw_dtype dtype_of(gw_cli_stored stored)
{
    return stored == GW_CLI_F16 ? GW_F16 : stored == GW_CLI_BF16 ? GW_BF16 : GW_F32;
}

bool gw_cli_tensors_reserve(gw_cli_tensors *tensors, size_t n)
{
    tensors->items = calloc(n + 1, sizeof *tensors->items);
    if (!tensors->items) {
        gw_cli_out_of_memory();
    }
    return tensors->items;
}

bool gw_cli_tensor_allocate(gw_cli_tensor *tensor)
{
    tensor->data = tensor->storage = malloc(tensor->shape.bytes + 1); /* not NULL for 0 elements */
    if (!tensor->data) {
        gw_cli_error("tensor '%.80s': no memory for its %" PRIu64 " elements", tensor->name,
                     tensor->shape.count);
    }
    return tensor->data;
}

/* f64 -> f32, rounded to nearest. */
static void narrow(const uint8_t *from, float *to, uint64_t count, uint64_t *became_infinite)
{
    *became_infinite = 0;
    for (uint64_t i = 0; i < count; i++) {
        double wide;
        memcpy(&wide, from + 8 * i, sizeof wide);
        to[i] = (float)wide;
        *became_infinite += isinf(to[i]) && !isinf(wide);
    }
}

/* Completes a tensor whose elements lie at `from` in the file. */
static bool place(const char *path, int talk, gw_cli_tensor *tensor, uint8_t *from)
{
    gw_cli_shape *shape = &tensor->shape;
    bool wide = shape->stored == GW_CLI_F64;
    if (wide) {
        shape->stored = GW_CLI_F32;
        shape->bytes /= 2;
    }
    size_t size = gw_cli_stored_size(shape->stored);
    tensor->dtype = dtype_of(shape->stored);
    if (!wide && (uintptr_t)from % size == 0) {
        tensor->data = from;
        return true;
    }
    if (!gw_cli_tensor_allocate(tensor)) {
        return false;
    }
    if (!wide) {
        memcpy(tensor->data, from, shape->bytes);
        return true;
    }
    uint64_t became_infinite = 0;
    narrow(from, tensor->data, shape->count, &became_infinite);
    gw_cli_note(talk, GW_CLI_NORMAL, "%s: tensor '%.80s': f64 converted to f32", path,
                tensor->name);
    if (became_infinite > 0) {
        gw_cli_note(talk, GW_CLI_NORMAL,
                    "%s: tensor '%.80s': warning: %" PRIu64
                    " values too large for f32 became infinite",
                    path, tensor->name, became_infinite);
    }
    return true;
}

/* "dir/grads.npy" -> "grads"; "tensor" of a stream, or if that is not text. malloc'd. */
static char *stem(const char *path)
{
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    const char *dot = strrchr(base, '.');
    size_t size = dot && dot > base ? (size_t)(dot - base) : 0;
    return size > 0 && gw_cli_text_is_utf8(base, size) ? strndup(base, size) : strdup("tensor");
}

/* ---- reading ---- */

static bool open_one(const char *path, int talk, const gw_cli_shape *shape, size_t data_at,
                     gw_cli_tensors *out)
{
    if (!gw_cli_tensors_reserve(out, 1)) {
        return false;
    }
    out->n = 1;
    out->items[0].shape = *shape;
    out->items[0].name = stem(path);
    if (!out->items[0].name) {
        gw_cli_out_of_memory();
        return false;
    }
    return place(path, talk, &out->items[0], out->file.data + data_at);
}

static bool open_npy(const char *path, int talk, gw_cli_tensors *out)
{
    char why[WHY_SIZE];
    gw_cli_npy_info info;
    if (!gw_cli_npy_parse(out->file.data, out->file.size, &info, why, sizeof why)) {
        gw_cli_error("%s: %s", path, why);
        return false;
    }
    return open_one(path, talk, &info.shape, info.data_at, out);
}

static bool open_f32(const char *path, int talk, gw_cli_tensors *out)
{
    if (out->file.size % 4 != 0) {
        gw_cli_error("%s: %zu bytes are not a whole number of f32 elements", path, out->file.size);
        return false;
    }
    gw_cli_shape shape = {.stored = GW_CLI_F32, .n_dims = 1, .dims = {out->file.size / 4}};
    shape.count = shape.dims[0];
    shape.bytes = out->file.size;
    return open_one(path, talk, &shape, 0, out);
}

static bool open_safetensors(const char *path, int talk, gw_cli_tensors *out)
{
    char why[WHY_SIZE];
    gw_cli_safetensors_info info;
    if (!gw_cli_safetensors_parse(out->file.data, out->file.size, &info, why, sizeof why)) {
        gw_cli_error("%s: %s", path, why);
        return false;
    }
    bool fine = gw_cli_tensors_reserve(out, info.n);
    for (size_t i = 0; fine && i < info.n; i++) {
        gw_cli_tensor *tensor = &out->items[out->n++];
        tensor->name = info.tensors[i].name;
        tensor->shape = info.tensors[i].shape;
        info.tensors[i].name = NULL; /* it moved */
        fine = place(path, talk, tensor, out->file.data + info.data_at + info.tensors[i].begin);
    }
    gw_cli_safetensors_free(&info);
    return fine;
}

bool gw_cli_format_parse(const char *text, gw_cli_format *out)
{
    static const char *const NAMES[] = {NULL, "npy", "safetensors", "f32"};
    *out = GW_CLI_BY_NAME;
    for (size_t i = 1; text && i < sizeof NAMES / sizeof *NAMES; i++) {
        if (strcmp(text, NAMES[i]) == 0) {
            *out = (gw_cli_format)i;
        }
    }
    return !text || *out != GW_CLI_BY_NAME;
}

static gw_cli_format named(const char *path)
{
    return gw_cli_has_extension(path, "npy")           ? GW_CLI_NPY
           : gw_cli_has_extension(path, "safetensors") ? GW_CLI_SAFETENSORS
           : gw_cli_has_extension(path, "f32")         ? GW_CLI_RAW
                                                       : GW_CLI_BY_NAME;
}

bool gw_cli_tensors_known(const char *path)
{
    return named(path) != GW_CLI_BY_NAME || gw_cli_is_stream(path);
}

/* A stream has no name: the magic of .npy, or the '{' behind the length of a .safetensors header. */
static gw_cli_format recognise(const gw_file_bytes *file)
{
    return file->size >= 6 && memcmp(file->data, "\x93NUMPY", 6) == 0 ? GW_CLI_NPY
           : file->size > 8 && file->data[8] == '{'                   ? GW_CLI_SAFETENSORS
                                                                      : GW_CLI_BY_NAME;
}

bool gw_cli_tensors_take(const char *path, gw_cli_format format, int talk, gw_file_bytes *file,
                         gw_cli_tensors *out)
{
    bool fine = false;
    *out = (gw_cli_tensors){.file = *file};
    *file = (gw_file_bytes){0};
    format = format != GW_CLI_BY_NAME ? format
             : gw_cli_is_stream(path) ? recognise(&out->file)
                                      : named(path);
    if (format == GW_CLI_BY_NAME) {
        gw_cli_error("%s: neither .npy nor .safetensors; --format f32 reads raw numbers", path);
    } else {
        fine = format == GW_CLI_NPY   ? open_npy(path, talk, out)
               : format == GW_CLI_RAW ? open_f32(path, talk, out)
                                      : open_safetensors(path, talk, out);
    }
    if (!fine) {
        gw_cli_tensors_close(out);
    }
    return fine;
}

bool gw_cli_tensors_open(const char *path, gw_cli_format format, int talk, gw_cli_tensors *out)
{
    gw_file_bytes file;
    *out = (gw_cli_tensors){0};
    return gw_cli_file_read(path, &file) && gw_cli_tensors_take(path, format, talk, &file, out);
}

void gw_cli_tensors_close(gw_cli_tensors *tensors)
{
    for (size_t i = 0; i < tensors->n; i++) {
        free(tensors->items[i].name);
        free(tensors->items[i].storage);
    }
    free(tensors->items);
    gw_cli_bytes_free(&tensors->file);
    *tensors = (gw_cli_tensors){0};
}

/* ---- writing ---- */

static bool write_safetensors(const char *path, const gw_cli_tensors *tensors)
{
    bool fine = false;
    char why[WHY_SIZE], *header = NULL;
    gw_cli_safetensor *entries = calloc(tensors->n + 1, sizeof *entries);
    struct iovec *pieces = calloc(tensors->n + 1, sizeof *pieces);
    if (!entries || !pieces) {
        gw_cli_out_of_memory();
        goto done;
    }
    for (size_t i = 0; i < tensors->n; i++) {
        entries[i].name = tensors->items[i].name;
        entries[i].shape = tensors->items[i].shape;
        pieces[i + 1].iov_base = tensors->items[i].data;
        pieces[i + 1].iov_len = tensors->items[i].shape.bytes;
    }
    header = gw_cli_safetensors_header(entries, tensors->n, &pieces[0].iov_len, why, sizeof why);
    if (!header) {
        gw_cli_error("%s: %s", path, why);
        goto done;
    }
    pieces[0].iov_base = header;
    fine = gw_cli_file_write(path, pieces, tensors->n + 1);
done:
    free(header);
    free(pieces);
    free(entries);
    return fine;
}

bool gw_cli_tensors_write(const char *path, gw_cli_format format, const gw_cli_tensors *tensors)
{
    format = format != GW_CLI_BY_NAME ? format : named(path);
    if (format == GW_CLI_SAFETENSORS || format == GW_CLI_BY_NAME) {
        return write_safetensors(path, tensors);
    }
    const bool npy = format == GW_CLI_NPY;
    const char *kind = npy ? ".npy" : ".f32";
    if (tensors->n != 1) {
        gw_cli_error("%s: a %s file holds one tensor, the frame has %zu: use .safetensors", path,
                     kind, tensors->n);
        return false;
    }
    const gw_cli_tensor *tensor = &tensors->items[0];
    if (npy ? tensor->dtype == GW_BF16 : tensor->dtype != GW_F32) {
        gw_cli_error("%s: a %s file cannot hold %s: use .safetensors%s", path, kind,
                     gw_dtype_name(tensor->dtype), tensor->dtype == GW_F16 ? " or .npy" : "");
        return false;
    }
    char header[GW_CLI_NPY_HEADER_MAX];
    struct iovec pieces[2] = {{header, npy ? gw_cli_npy_header(&tensor->shape, header) : 0},
                              {tensor->data, tensor->shape.bytes}};
    return gw_cli_file_write(path, pieces, 2);
}
