/* The header of a .npy file (versions 1.0, 2.0, 3.0 of NumPy's format). */
#ifndef GW_CLI_NPY_H
#define GW_CLI_NPY_H

#include "cli/files/shape.h"

typedef struct gw_cli_npy_info {
    gw_cli_shape shape;
    size_t data_at; /* offset of the first element; shape.bytes follow, and nothing else */
} gw_cli_npy_info;

/* Reads the header of a whole file of `size` bytes. Any bytes may be given: on false `why` says
 * what is wrong and where, and *info is untouched. */
bool gw_cli_npy_parse(const uint8_t *file, size_t size, gw_cli_npy_info *info, char *why,
                      size_t why_size);

/* Writes the header in front of little-endian data of that shape (not BF16, which .npy does not
 * know) into `header`; returns its bytes. */
enum { GW_CLI_NPY_HEADER_MAX = 512 };
size_t gw_cli_npy_header(const gw_cli_shape *shape, char header[GW_CLI_NPY_HEADER_MAX]);

#endif
