/* The header of any .safetensors file. What is accepted must cover the data area exactly, and must
 * come back from the header that gw_cli_safetensors_header writes of it; what is refused must have a
 * reason. */
#include "fuzz.h"

#include <cli/files/safetensors.h>

static void require_tensors(const gw_cli_safetensors_info *info, size_t size)
{
    uint64_t at = 0;
    REQUIRE(info->data_at >= 8 && info->data_at <= size);
    for (size_t i = 0; i < info->n; i++) {
        const gw_cli_safetensor *t = &info->tensors[i];
        uint64_t product = 1;
        REQUIRE(t->name != NULL && t->begin == at && t->end >= t->begin);
        REQUIRE(t->end - t->begin == t->shape.bytes && t->shape.n_dims <= GW_CLI_MAX_DIMS);
        for (uint32_t d = 0; d < t->shape.n_dims; d++) {
            product *= t->shape.dims[d]; /* may wrap only where a zero follows */
        }
        REQUIRE(product == t->shape.count);
        REQUIRE(t->shape.bytes == product * gw_cli_stored_size(t->shape.stored));
        at = t->end;
    }
    REQUIRE(at == size - info->data_at);
}

static void require_comes_back(const gw_cli_safetensors_info *info, size_t data_bytes)
{
    gw_cli_safetensors_info again;
    char why[256];
    size_t bytes = 0;
    char *header = gw_cli_safetensors_header(info->tensors, info->n, &bytes, why, sizeof why);
    REQUIRE(header != NULL && bytes % 8 == 0);
    fuzz_buffer file = fuzz_acquire(bytes + data_bytes, 0);
    memcpy(file.data, header, bytes);
    free(header);
    REQUIRE(gw_cli_safetensors_parse(file.data, file.size, &again, why, sizeof why));
    REQUIRE(again.data_at == bytes && again.n == info->n);
    for (size_t i = 0; i < info->n; i++) {
        const gw_cli_safetensor *a = &info->tensors[i], *b = &again.tensors[i];
        REQUIRE(strcmp(a->name, b->name) == 0 && a->begin == b->begin && a->end == b->end);
        REQUIRE(a->shape.stored == b->shape.stored && a->shape.n_dims == b->shape.n_dims);
        for (uint32_t d = 0; d < a->shape.n_dims; d++) {
            REQUIRE(a->shape.dims[d] == b->shape.dims[d]);
        }
    }
    gw_cli_safetensors_free(&again);
    fuzz_release(&file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const size_t rooms[] = {256, 24, 1};
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
        fuzz_buffer file = fuzz_copy(data, size, 0), why = fuzz_acquire(rooms[i], 0);
        gw_cli_safetensors_info info;
        memset(&info, 0x77, sizeof info);
        const gw_cli_safetensors_info before = info;
        if (gw_cli_safetensors_parse(file.data, size, &info, (char *)why.data, why.size)) {
            require_tensors(&info, size);
            require_comes_back(&info, size - info.data_at);
            gw_cli_safetensors_free(&info);
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
