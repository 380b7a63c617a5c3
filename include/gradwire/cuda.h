/* The codecs on a CUDA device: the same bytes and the same bits as codec.h, at the memory's speed.
 *
 * The core does not link CUDA. gw_cuda_open loads libgradwire_cuda at run time; that it is not there, or that
 * there is no device, is an error with a name. Calls only launch work on the caller's stream: they never
 * wait, never allocate and never read device memory from the host, so they can be captured into a CUDA graph.
 * Whatever a call is handed by pointer on the host (params, lists) is read before it returns. docs/cuda.md. */
#ifndef GRADWIRE_CUDA_H
#define GRADWIRE_CUDA_H

#include "gradwire/codec.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A loaded library. Immutable: any thread may use it, on any device and stream of its own. */
typedef struct gw_cuda gw_cuda;

/* What happened, in device memory. Calls add to it and never clear it, so that one memset serves a whole step:
 * begin with zeros. */
typedef struct gw_cuda_result {
    uint64_t written; /* encode: bytes of the payload; set, not added to */
    uint64_t
        non_finite; /* encode: as in gw_report; decode: elements of `out` that are not finite */
    uint64_t overflowed, held_back; /* as in gw_report */
    int32_t status; /* GW_OK, or the most negative gw_status that was met: GW_ERR_CORRUPT, … */
    uint32_t reserved;
} gw_cuda_result;

/* One tensor to encode. Pointers are of the device, but for this struct itself. */
typedef struct gw_cuda_source {
    gw_tensor in;
    const float *residual; /* r and r′ of gw_encode_feedback; both NULL without feedback */
    float *residual_after;
    gw_stream key; /* which random numbers */
    void *payload; /* of any alignment; fastest at a multiple of 16 */
    size_t capacity;
    gw_cuda_result *result;
    /* Both NULL, or of gw_cuda_due_bytes, aligned to 256: what is still to be taken off r, read with it; and off r′, written with
     * it instead of being taken off. All zeros: nothing is. */
    const void *due;
    void *due_after;
} gw_cuda_source;

/* A payload in device memory. Where its size depends on data it lies in device memory too, and `size` is then the
 * most it can be, what the buffer holds. */
typedef struct gw_cuda_payload {
    const void *bytes;
    size_t size;
    const uint64_t *size_there; /* NULL where `size` is the size */
} gw_cuda_payload;

enum { GW_CUDA_MAX_PAYLOADS = 1024 };

/* One tensor to decode: ((y0 + y1) + y2) … of its payloads, behind what is there already for GW_ADD, over the divisor,
 * rounded once to out.dtype. For GW_F32 the bits are those of gw_decode and gw_decode_sum. */
typedef struct gw_cuda_sink {
    const gw_cuda_payload *payloads; /* a list on the host */
    size_t n_payloads;               /* 1 … GW_CUDA_MAX_PAYLOADS */
    gw_tensor out;
    gw_apply how;
    uint32_t divisor;
    gw_cuda_result *result;
} gw_cuda_sink;

/* `path` is the library's file, or NULL for libgradwire_cuda.so where the system looks for libraries. GW_ERR_UNSUPPORTED
 * where there is no such library or no device, GW_ERR_VERSION for a library of another version. */
GW_API gw_status gw_cuda_open(const char *path, gw_cuda **out, gw_why *why);
GW_API void gw_cuda_close(gw_cuda *cuda); /* accepts NULL */
/* 1 if the codec has a device side. */
GW_API int gw_cuda_has(const gw_cuda *cuda, const gw_codec *codec);

/* Device bytes that a call with tensors of these counts needs, encode or decode; 0 for most codecs. */
GW_API gw_status gw_cuda_workspace(const gw_cuda *cuda, const gw_params *params, gw_dtype dtype,
                                   const size_t *counts, size_t n, int feedback, size_t *bytes);

/* Encodes a list of tensors with one set of launches. All have one dtype, and all or none have feedback. `stream` is a
 * cudaStream_t; `workspace` is device memory, aligned to 256. Arguments are checked before the first launch. */
GW_API gw_status gw_cuda_encode(const gw_cuda *cuda, void *stream, const gw_params *params,
                                const gw_cuda_source *tensors, size_t n, gw_workspace workspace,
                                gw_why *why);

/* What a codec that learns late what it sent (adacomp) would go over r′ again for, it can leave due: the next encoding takes it
 * off while it reads r, to the same bits. Whoever else wants r settles it before. The bytes depend on params and count,
 * and are a multiple of 256; 0: the codec leaves nothing due for such a tensor. Of a call's tensors that could, all or none have it. */
GW_API gw_status gw_cuda_due_bytes(const gw_cuda *cuda, const gw_params *params, size_t count,
                                   size_t *bytes);

/* One residual, in device memory, and what is due of it. */
typedef struct gw_cuda_debt {
    float *residual;
    void *due;
    size_t count;
} gw_cuda_debt;

/* Takes off what is due, by the params that left it; nothing is then. */
GW_API gw_status gw_cuda_settle(const gw_cuda *cuda, void *stream, const gw_params *params,
                                const gw_cuda_debt *debts, size_t n, gw_why *why);

/* Decodes a list of tensors with one set of launches. All have one dtype, one `how`, one divisor and one number of payloads.
 * Bytes that no encoder writes never lead outside of a buffer: result->status becomes GW_ERR_CORRUPT or
 * GW_ERR_TRUNCATED, and the part of `out` they stand for NaN. */
GW_API gw_status gw_cuda_decode(const gw_cuda *cuda, void *stream, const gw_params *params,
                                const gw_cuda_sink *tensors, size_t n, gw_workspace workspace,
                                gw_why *why);

/* ---- codecs whose exchange is rounds of sums: rounds.h on the device ---- */

/* One exchange of one tensor, as gw_rounds; pointers are of the device, but for `params`. The caller owns all of it and
 * keeps it until decode. Calls in the order of rounds.h, on one stream; the sums in between are anybody's. */
typedef struct gw_cuda_rounds {
    const gw_params *params;
    void *stream; /* cudaStream_t */
    gw_workspace
        workspace; /* gw_cuda_rounds_workspace bytes, aligned to 256, for the whole exchange */
    gw_stream key; /* seed, step, tensor: the same on all ranks */
    gw_tensor in;
    const float *residual; /* r and r′; both NULL without feedback */
    float *residual_after;
    const float *state; /* gw_rounds_state floats each */
    float *state_after;
    gw_cuda_result *result; /* of this rank's numbers, written by the first make */
} gw_cuda_rounds;

/* 1 if the codec's rounds have a device side. */
GW_API int gw_cuda_has_rounds(const gw_cuda *cuda, const gw_codec *codec);
GW_API gw_status gw_cuda_rounds_workspace(const gw_cuda *cuda, const gw_params *params,
                                          size_t count, size_t *bytes);
/* `own` and `sum`: gw_rounds_elements floats. Given the same sums, what is taken and decoded has the bits of gw_rounds_take and
 * gw_rounds_decode; products that a make sums are near those of gw_rounds_make: docs/numerics.md section 10. */
GW_API gw_status gw_cuda_rounds_make(const gw_cuda *cuda, const gw_cuda_rounds *x, unsigned round,
                                     float *own, gw_why *why);
GW_API gw_status gw_cuda_rounds_take(const gw_cuda *cuda, const gw_cuda_rounds *x, unsigned round,
                                     const float *sum, gw_why *why);
/* Over the divisor; elements of `out` that are not finite are counted in `result`. An r′ of an exchange whose result is not finite
 * is not to be kept. */
GW_API gw_status gw_cuda_rounds_decode(const gw_cuda *cuda, const gw_cuda_rounds *x,
                                       const float *sum, gw_apply how, uint32_t divisor,
                                       const gw_tensor *out, gw_cuda_result *result, gw_why *why);

/* ---- memory, streams and events: what a runtime needs around the codecs ---- */

/* Where something lies: a device, by its number; or with no library the host. */
typedef struct gw_cuda_place {
    const gw_cuda *cuda;
    int device;
} gw_cuda_place;

/* Calls that launch (encode, decode) want their device to be the calling thread's: this makes it so. `before`: what
 * it was, to be set again in another's thread; may be NULL. All calls below leave it as it was. */
GW_API gw_status gw_cuda_use(gw_cuda_place at, int *before, gw_why *why);

/* Memory of the device, aligned to 256; or `pinned` memory of the host, to and from which copies do not wait. May wait
 * for the device. Never NULL for want of bytes. */
GW_API gw_status gw_cuda_allocate(gw_cuda_place at, size_t bytes, int pinned, void **out,
                                  gw_why *why);
GW_API void gw_cuda_free(gw_cuda_place at, void *memory, int pinned); /* accepts NULL */

/* A stream that waits for no other, before those of the usual priority; events that know when they were. */
GW_API gw_status gw_cuda_stream_open(gw_cuda_place at, void **stream, gw_why *why);
GW_API void gw_cuda_stream_close(gw_cuda_place at, void *stream); /* accepts NULL */
GW_API gw_status gw_cuda_event_open(gw_cuda_place at, void **event, gw_why *why);
GW_API void gw_cuda_event_close(gw_cuda_place at, void *event); /* accepts NULL */

/* The event is done when all is that `stream` was given so far. */
GW_API gw_status gw_cuda_record(gw_cuda_place at, void *event, void *stream, gw_why *why);
/* What `stream` is given next begins when the event is done. */
GW_API gw_status gw_cuda_follow(gw_cuda_place at, void *stream, void *event, gw_why *why);
GW_API gw_status gw_cuda_done(gw_cuda_place at, void *event, int *done, gw_why *why);
GW_API gw_status gw_cuda_wait(gw_cuda_place at, void *stream, gw_why *why); /* for all of it */
/* Between two events that are done. */
GW_API gw_status gw_cuda_elapsed(gw_cuda_place at, void *from, void *to, double *seconds,
                                 gw_why *why);

/* From and to either memory, behind what `stream` was given; both belong to the copy until it is done. */
GW_API gw_status gw_cuda_copy(gw_cuda_place at, void *stream, void *to, const void *from,
                              size_t bytes, gw_why *why);
GW_API gw_status gw_cuda_clear(gw_cuda_place at, void *stream, void *to, size_t bytes, gw_why *why);

/* Adds a hash of `n` numbers of 2 or 4 bytes each (`width`) at `numbers` to *sum, both in device memory, behind what
 * `stream` was given. `key` says what the numbers are, `first` the index of the first one. The sum of a tensor's pieces is
 * the tensor's hash, in any order. */
GW_API gw_status gw_cuda_hash(gw_cuda_place at, void *stream, const void *numbers, size_t n,
                              size_t width, uint64_t key, uint64_t first, uint64_t *sum,
                              gw_why *why);

/* ---- payloads that go from device to device ---- */

/* What stands in front of such a payload, as the host cannot look at it on its way: how long it is, and whose. */
typedef struct gw_cuda_head {
    uint64_t size; /* bytes of the payload */
    uint64_t step, tensor;
    uint64_t codec; /* gw_codec_id */
} gw_cuda_head;

/* One head in device memory, aligned to 8, and the result of the payload behind it. */
typedef struct gw_cuda_entry {
    gw_cuda_head *head;
    gw_cuda_result *result;
    uint64_t size; /* of heads that are checked: what it must say; 0: anything */
} gw_cuda_entry;

/* Heads for payloads that the stream has encoded: all is `head`'s, but the size, which is result->written. */
GW_API gw_status gw_cuda_write_heads(gw_cuda_place at, void *stream, const gw_cuda_head *head,
                                     const gw_cuda_entry *entries, size_t n, gw_why *why);
/* Heads that arrived: another step, tensor or codec than `head`'s, or a size that must not be, is GW_ERR_CHECKSUM in
 * the result, and the size becomes one that no decoder takes. head->size is not looked at. */
GW_API gw_status gw_cuda_check_heads(gw_cuda_place at, void *stream, const gw_cuda_head *head,
                                     const gw_cuda_entry *entries, size_t n, gw_why *why);

#ifdef __cplusplus
}
#endif
#endif
