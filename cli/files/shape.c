/* Shapes; see shape.h. */
#include "cli/files/shape.h"

size_t gw_cli_stored_size(gw_cli_stored stored)
{
    return stored == GW_CLI_F64 ? 8 : stored == GW_CLI_F32 ? 4 : 2;
}

bool gw_cli_shape_measure(gw_cli_shape *shape)
{
    uint64_t size = gw_cli_stored_size(shape->stored), count = 1;
    for (uint32_t i = 0; i < shape->n_dims; i++) {
        if (shape->dims[i] == 0) { /* whatever the others are */
            shape->count = shape->bytes = 0;
            return true;
        }
    }
    for (uint32_t i = 0; i < shape->n_dims; i++) {
        if (count > (UINT64_MAX >> 1) / size / shape->dims[i]) {
            return false;
        }
        count *= shape->dims[i];
    }
    shape->count = count;
    shape->bytes = count * size;
    return true;
}
