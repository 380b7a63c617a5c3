/* Files of tensors: .npy, .safetensors and raw .f32, chosen by the path's extension or by the caller. */
#ifndef GW_CLI_TENSORFILE_H
#define GW_CLI_TENSORFILE_H

#include <gradwire/gradwire.h>

#include "cli/files/files.h"
#include "cli/files/shape.h"

typedef struct gw_cli_tensor {
    char *name; /* UTF-8; of a file without names, the file's own without folder and extension */
    gw_cli_shape shape; /* never F64: it was turned into F32 */
    gw_dtype dtype;
    void *data;    /* aligned for its type; never written to when it lies in the file */
    void *storage; /* what to free; NULL if data lies in the file */
} gw_cli_tensor;

typedef struct gw_cli_tensors {
    gw_cli_tensor *items;
    size_t n;
    gw_file_bytes file;
} gw_cli_tensors;

typedef enum gw_cli_format {
    GW_CLI_BY_NAME, /* the path's extension; of "-" the first bytes, written as safetensors */
    GW_CLI_NPY,
    GW_CLI_SAFETENSORS,
    GW_CLI_RAW
} gw_cli_format;

/* What --format says: npy, safetensors or f32; NULL: by name. */
bool gw_cli_format_parse(const char *text, gw_cli_format *out);
#define GW_CLI_FORMATS "npy, safetensors or f32"

/* True if the extension is one that this reads and writes, or the path is "-". */
bool gw_cli_tensors_known(const char *path);
#define GW_CLI_TENSOR_FILES ".npy, .safetensors or .f32"

/* Reads a file; on false the error was said. A conversion from f64 is said unless `talk` is quiet. */
bool gw_cli_tensors_open(const char *path, gw_cli_format format, int talk, gw_cli_tensors *out);
/* The same of bytes that were read; takes *file in any case. `path` is for names and messages. */
bool gw_cli_tensors_take(const char *path, gw_cli_format format, int talk, gw_file_bytes *file,
                         gw_cli_tensors *out);
void gw_cli_tensors_close(gw_cli_tensors *tensors);

/* Room for n tensors, and for the data of one whose shape and dtype are set. False: no memory,
 * said. */
bool gw_cli_tensors_reserve(gw_cli_tensors *tensors, size_t n);
bool gw_cli_tensor_allocate(gw_cli_tensor *tensor);
gw_cli_stored gw_cli_stored_as(gw_dtype dtype);

/* Writes a file; on false the error was said and nothing was written. */
bool gw_cli_tensors_write(const char *path, gw_cli_format format, const gw_cli_tensors *tensors);

#endif
