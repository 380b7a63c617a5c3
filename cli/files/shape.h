/* What .npy and .safetensors headers have in common: an element type and a shape. */
#ifndef GW_CLI_SHAPE_H
#define GW_CLI_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GW_CLI_MAX_DIMS = 8 }; /* as in a frame */

/* Element types of files. F64 is read only, and turned into fp32. */
typedef enum gw_cli_stored { GW_CLI_F32, GW_CLI_F16, GW_CLI_BF16, GW_CLI_F64 } gw_cli_stored;

typedef struct gw_cli_shape {
    gw_cli_stored stored;
    uint32_t n_dims; /* 0 is a scalar: one element */
    uint64_t dims[GW_CLI_MAX_DIMS];
    uint64_t count; /* product of dims */
    uint64_t bytes; /* in the file */
} gw_cli_shape;

size_t gw_cli_stored_size(gw_cli_stored stored);
/* Sets count and bytes from the rest; false if the bytes would pass 2^63. */
bool gw_cli_shape_measure(gw_cli_shape *shape);

#endif
