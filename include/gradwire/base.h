/* Status codes, element types, instruction sets, threads: what every room of the library speaks. */
#ifndef GRADWIRE_BASE_H
#define GRADWIRE_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#    define GW_API __attribute__((visibility("default")))
#else
#    define GW_API
#endif

#define GW_VERSION_MAJOR 0
#define GW_VERSION_MINOR 1
#define GW_VERSION_PATCH 0

/* 0 is done, negative is a failure. Numbers are pinned by decade and never reused. */
typedef enum gw_status {
    GW_OK = 0,
    GW_ERR_ARG = -1,         /* an argument is wrong in itself */
    GW_ERR_UNSUPPORTED = -2, /* known, but not in this build or on this machine */
    GW_ERR_RANGE = -3,       /* a number is outside its documented range */
    GW_ERR_UNKNOWN = -4,     /* a name nobody here knows: codec, parameter, word */
    GW_ERR_STATE = -5,       /* a call at the wrong moment: begun twice, not begun, retired */
    GW_ERR_MEMORY = -10,     /* an allocation failed */
    GW_ERR_WORKSPACE = -11,  /* the workspace is smaller than gw_codec_workspace said */
    GW_ERR_CAPACITY = -12,   /* the output buffer, or what the caller allows, is too small */
    GW_ERR_CORRUPT = -20,    /* bytes that no encoder writes */
    GW_ERR_CHECKSUM = -21,   /* bytes were changed on their way */
    GW_ERR_VERSION = -22,    /* a frame of a wire version this library does not know */
    GW_ERR_TRUNCATED = -23,  /* fewer bytes than the frame says it has */
    GW_ERR_TIMEOUT = -30,    /* a peer did not answer in time */
    GW_ERR_PEER = -31,       /* a peer is gone, or has given up */
    GW_ERR_DISAGREE = -32,   /* ranks do not want the same */
    GW_ERR_SYSTEM = -40      /* the operating system refused (threads) */
} gw_status;

/* The reason of a failure in words: what was wrong and where. Every function that takes a
 * `gw_why *` accepts NULL; on success the text is untouched. A text that is too long is cut in the middle: the end, where
 * the cause stands, is kept.
 *
 * A NULL handle, or NULL where an answer goes, is GW_ERR_ARG unless the function says otherwise. A function that returns no
 * status then does nothing, or returns 0, NULL or "". */
typedef struct gw_why {
    char text[256];
} gw_why;

typedef enum gw_dtype { GW_F32 = 1, GW_F16 = 2, GW_BF16 = 3 } gw_dtype;

/* Variants of a codec's inner loop. All give the same bytes. AVX512 means F, BW, DQ and VL. Values are
 * pinned and never reused. */
typedef enum gw_isa {
    GW_ISA_AUTO = 0,
    GW_ISA_SCALAR = 1,
    GW_ISA_AVX2 = 2,
    GW_ISA_AVX512 = 3,
    GW_ISA_NEON = 4,
    GW_ISA_COUNT = 5
} gw_isa;

/* `count` elements of `dtype`, contiguous, `data` aligned as its elements are. The library reads
 * `data` of an input and writes `data` of an output; it never keeps the pointer. */
typedef struct gw_tensor {
    void *data;
    size_t count;
    gw_dtype dtype;
} gw_tensor;

/* Scratch memory that the caller owns. Contents are undefined before and after a call. */
typedef struct gw_workspace {
    void *data;
    size_t size;
} gw_workspace;

/* Which random numbers an encoding draws: a pure function of these and the element's index, so
 * that two encodings are alike if and only if all of it is. `first` is the index of the tensor's
 * first element in the whole tensor when only a piece of it is encoded; it must be a multiple of
 * the codec's grain (gw_codec_grain). */
typedef struct gw_stream {
    uint64_t seed, step, tensor;
    uint32_t point, rank;
    uint64_t first;
} gw_stream;

GW_API uint32_t gw_version(void); /* major << 16 | minor << 8 | patch */
GW_API const char *gw_version_string(void);
GW_API const char *gw_status_string(gw_status status); /* never NULL */

GW_API size_t gw_dtype_size(gw_dtype dtype); /* bytes an element; 0 for an unknown dtype */
GW_API const char *gw_dtype_name(gw_dtype dtype);

GW_API const char *gw_isa_name(gw_isa isa);
GW_API gw_status gw_isa_find(const char *name, gw_isa *out);
GW_API int gw_isa_runs_here(gw_isa isa); /* 1 if this processor executes it */
GW_API gw_isa gw_isa_best(void);

/* Worker threads for large tensors. One call at a time may use a pool; results never depend on how
 * many threads it has. gw_pool_destroy joins them and accepts NULL. */
typedef struct gw_pool gw_pool;
enum { GW_POOL_MAX_THREADS = 256 };
GW_API gw_status gw_pool_create(unsigned threads, gw_pool **out);
GW_API void gw_pool_destroy(gw_pool *pool);
GW_API unsigned gw_pool_threads(const gw_pool *pool); /* 1 for NULL */

#ifdef __cplusplus
}
#endif
#endif
