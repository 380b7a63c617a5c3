/* The one symbol of libgradwire_cuda: which codecs have a device side, and which of their rounds. A codec of the list without one is a weak
 * symbol that nobody defines. */
#include "codec/cuda/cuda_block.h"

extern "C" {
#define GW_CODEC(id, name)                                                                         \
    extern const gw_cuda_codec gw_cuda_codec_##name __attribute__((weak, visibility("hidden")));   \
    extern const gw_cuda_codec_rounds gw_cuda_rounds_##name                                        \
        __attribute__((weak, visibility("hidden")));
#include "codec/list.def"
#undef GW_CODEC
}

static gw_status probe(gw_why *why)
{
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error == cudaSuccess && devices > 0) {
        return GW_OK;
    }
    (void)cudaGetLastError(); /* the failure is told; the next call shall not find it */
    if (why != NULL) {
        (void)snprintf(why->text, sizeof why->text, "no CUDA device: %s",
                       error != cudaSuccess ? cudaGetErrorString(error) : "none is there");
    }
    return GW_ERR_UNSUPPORTED;
}

static const gw_cuda_codec *find(uint8_t wire_id)
{
    switch (wire_id) {
#define GW_CODEC(id, name)                                                                         \
    case id:                                                                                       \
        return &gw_cuda_codec_##name;
#include "codec/list.def"
#undef GW_CODEC
    default:
        return NULL;
    }
}

static const gw_cuda_codec_rounds *find_rounds(uint8_t wire_id)
{
    switch (wire_id) {
#define GW_CODEC(id, name)                                                                         \
    case id:                                                                                       \
        return &gw_cuda_rounds_##name;
#include "codec/list.def"
#undef GW_CODEC
    default:
        return NULL;
    }
}

extern "C" {
extern const gw_cuda_runtime gw_cuda_runtime_calls __attribute__((visibility("hidden")));
extern GW_API const gw_cuda_table gw_cuda_library;
const gw_cuda_table gw_cuda_library = {GW_CUDA_TABLE_VERSION, probe, find, &gw_cuda_runtime_calls,
                                       find_rounds};
}
