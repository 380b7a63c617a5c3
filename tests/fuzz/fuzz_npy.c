/* The header of any .npy file. What is accepted must lie within the file, and must come back from
 * the header that gw_cli_npy_header writes of it; what is refused must have a reason. */
#include "fuzz.h"

#include <cli/files/npy.h>

static void require_same_shape(const gw_cli_shape *a, const gw_cli_shape *b)
{
    REQUIRE(a->stored == b->stored && a->n_dims == b->n_dims);
    REQUIRE(a->count == b->count && a->bytes == b->bytes);
    for (uint32_t i = 0; i < a->n_dims; i++) {
        REQUIRE(a->dims[i] == b->dims[i]);
    }
}

static void require_shape(const gw_cli_shape *shape)
{
    uint64_t product = 1;
    REQUIRE(shape->n_dims <= GW_CLI_MAX_DIMS);
    for (uint32_t i = 0; i < shape->n_dims; i++) {
        product *= shape->dims[i]; /* may wrap only where a zero follows */
    }
    REQUIRE(product == shape->count);
    REQUIRE(shape->bytes == product * gw_cli_stored_size(shape->stored));
}

static void require_comes_back(const gw_cli_npy_info *info)
{
    char header[GW_CLI_NPY_HEADER_MAX], why[256];
    gw_cli_npy_info again;
    const size_t bytes = gw_cli_npy_header(&info->shape, header);
    REQUIRE(bytes <= sizeof header);
    fuzz_buffer file = fuzz_acquire(bytes + (size_t)info->shape.bytes, 0);
    memcpy(file.data, header, bytes);
    REQUIRE(gw_cli_npy_parse(file.data, file.size, &again, why, sizeof why));
    REQUIRE(again.data_at == bytes);
    require_same_shape(&info->shape, &again.shape);
    fuzz_release(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t rooms[] = {256, 24, 1};
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
        fuzz_buffer file = fuzz_copy(data, size, 0), why = fuzz_acquire(rooms[i], 0);
        gw_cli_npy_info info;
        memset(&info, 0x77, sizeof info);
        const gw_cli_npy_info before = info;
        if (gw_cli_npy_parse(file.data, size, &info, (char *)why.data, why.size)) {
            REQUIRE(info.data_at <= size && size - info.data_at == info.shape.bytes);
            require_shape(&info.shape);
            require_comes_back(&info);
        } else {
            REQUIRE(memcmp(&info, &before, sizeof info) == 0);
            REQUIRE(memchr(why.data, '\0', why.size) != NULL);
            REQUIRE(rooms[i] == 1 || why.data[0] != '\0');
        }
        fuzz_release(&file);
        fuzz_release(&why);
    }
    return 0;
}
