/* The codecs' device side, seen from inside. libgradwire_cuda does not link the core, nor the core CUDA: they meet in
 * one table, the library's only symbol. A codec's device side is one file, <codec>.cu, over its _core.h, that
 * fills in one gw_cuda_codec. */
#ifndef GW_CUDA_IMPL_H
#define GW_CUDA_IMPL_H

#include "base/numeric.h"

#include <gradwire/cuda.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised whenever something in this file changes: a library of another version is refused. */
#define GW_CUDA_TABLE_VERSION 6
#define GW_CUDA_TABLE_SYMBOL  "gw_cuda_library"

/* What all tensors of a call share. The core has checked all of it, and every pointer and size of the lists. */
typedef struct gw_cuda_call {
    void *stream;        /* cudaStream_t */
    const double *value; /* the codec's parameters, GW_PARAMS_MAX of them */
    gw_dtype dtype;
    int feedback;        /* encode only */
    int due;             /* encode only: tensors for which due_bytes is not 0 have it */
    size_t grain;        /* gw_codec_grain */
    const size_t *bytes; /* gw_payload_bound of each tensor */
    gw_workspace workspace;
} gw_cuda_call;

/* The device side of one codec. Both verbs only launch; they return what the launch returned. */
typedef struct gw_cuda_codec {
    /* Device bytes for one tensor; the parts of a list lie behind each other, each aligned to 256. NULL: none. */
    size_t (*workspace)(const double *value, gw_dtype dtype, size_t count, int feedback);
    gw_status (*encode)(const gw_cuda_call *call, const gw_cuda_source *tensors, size_t n,
                        gw_why *why);
    gw_status (*decode)(const gw_cuda_call *call, const gw_cuda_sink *tensors, size_t n,
                        gw_why *why);
    /* Both NULL: the codec leaves nothing due. */
    size_t (*due_bytes)(const double *value, size_t count);
    gw_status (*settle)(const gw_cuda_call *call, const gw_cuda_debt *debts, size_t n, gw_why *why);
} gw_cuda_codec;

/* The device side of a codec's rounds: <codec>_rounds.cu. Only launches; arguments are checked, and there are elements. */
typedef struct gw_cuda_codec_rounds {
    size_t (*workspace)(const double *value, size_t count);
    gw_status (*make)(const gw_cuda_rounds *x, unsigned round, float *own, gw_why *why);
    gw_status (*take)(const gw_cuda_rounds *x, unsigned round, const float *sum, gw_why *why);
    gw_status (*decode)(const gw_cuda_rounds *x, const float *sum, gw_apply how, uint32_t divisor,
                        const gw_tensor *out, gw_cuda_result *result, gw_why *why);
} gw_cuda_codec_rounds;

/* What cuda.h says of memory, streams and events, for one device; arguments are checked. */
typedef struct gw_cuda_runtime {
    gw_status (*use)(int device, int *before, gw_why *why);
    gw_status (*allocate)(int device, size_t bytes, int pinned, void **out, gw_why *why);
    void (*free)(int device, void *memory, int pinned);
    gw_status (*stream_open)(int device, void **stream, gw_why *why);
    void (*stream_close)(int device, void *stream);
    gw_status (*event_open)(int device, void **event, gw_why *why);
    void (*event_close)(int device, void *event);
    gw_status (*record)(int device, void *event, void *stream, gw_why *why);
    gw_status (*follow)(int device, void *stream, void *event, gw_why *why);
    gw_status (*done)(int device, void *event, int *done, gw_why *why);
    gw_status (*wait)(int device, void *stream, gw_why *why);
    gw_status (*elapsed)(int device, void *from, void *to, double *seconds, gw_why *why);
    gw_status (*copy)(int device, void *stream, void *to, const void *from, size_t bytes,
                      gw_why *why);
    gw_status (*clear)(int device, void *stream, void *to, size_t bytes, gw_why *why);
    gw_status (*heads)(int device, void *stream, const gw_cuda_head *head,
                       const gw_cuda_entry *entries, size_t n, int check, gw_why *why);
    gw_status (*hash)(int device, void *stream, const void *numbers, size_t n, size_t width,
                      uint64_t key, uint64_t first, uint64_t *sum, gw_why *why);
} gw_cuda_runtime;

/* What the library exports as gw_cuda_library. */
typedef struct gw_cuda_table {
    uint32_t version;
    /* GW_OK if there is a device; else why not. */
    gw_status (*probe)(gw_why *why);
    const gw_cuda_codec *(*find)(uint8_t wire_id); /* NULL: no device side */
    const gw_cuda_runtime *runtime;
    const gw_cuda_codec_rounds *(*find_rounds)(uint8_t wire_id); /* NULL: none */
} gw_cuda_table;

struct gw_cuda {
    void *library;
    const gw_cuda_table *table;
};

static inline size_t gw_cuda_aligned(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

#ifdef __cplusplus
}
#endif
#endif
