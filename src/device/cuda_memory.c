/* The core's side of memory, streams, events and heads: is there a library, and does the call make sense? */
#include "base/why.h"
#include "codec/cuda/cuda_impl.h"

static gw_status check(gw_cuda_place at, int makes_sense, gw_why *why)
{
    if (at.cuda == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "no CUDA library was opened");
    }
    return makes_sense ? GW_OK : GW_FAIL(why, GW_ERR_ARG, "a call of CUDA's misses an argument");
}

/* Checks, then calls. */
#define CALL(makes_sense, name, ...)                                                               \
    do {                                                                                           \
        const gw_status status = check(at, makes_sense, why);                                      \
        return status != GW_OK ? status                                                            \
                               : at.cuda->table->runtime->name(at.device, __VA_ARGS__, why);       \
    } while (0)

gw_status gw_cuda_use(gw_cuda_place at, int *before, gw_why *why)
{
    CALL(1, use, before);
}

gw_status gw_cuda_allocate(gw_cuda_place at, size_t bytes, int pinned, void **out, gw_why *why)
{
    CALL(out != NULL, allocate, bytes, pinned, out);
}

void gw_cuda_free(gw_cuda_place at, void *memory, int pinned)
{
    if (at.cuda != NULL && memory != NULL) {
        at.cuda->table->runtime->free(at.device, memory, pinned);
    }
}

gw_status gw_cuda_stream_open(gw_cuda_place at, void **stream, gw_why *why)
{
    CALL(stream != NULL, stream_open, stream);
}

void gw_cuda_stream_close(gw_cuda_place at, void *stream)
{
    if (at.cuda != NULL && stream != NULL) {
        at.cuda->table->runtime->stream_close(at.device, stream);
    }
}

gw_status gw_cuda_event_open(gw_cuda_place at, void **event, gw_why *why)
{
    CALL(event != NULL, event_open, event);
}

void gw_cuda_event_close(gw_cuda_place at, void *event)
{
    if (at.cuda != NULL && event != NULL) {
        at.cuda->table->runtime->event_close(at.device, event);
    }
}

gw_status gw_cuda_record(gw_cuda_place at, void *event, void *stream, gw_why *why)
{
    CALL(event != NULL, record, event, stream);
}

gw_status gw_cuda_follow(gw_cuda_place at, void *stream, void *event, gw_why *why)
{
    CALL(event != NULL, follow, stream, event);
}

gw_status gw_cuda_done(gw_cuda_place at, void *event, int *done, gw_why *why)
{
    CALL(event != NULL && done != NULL, done, event, done);
}

gw_status gw_cuda_wait(gw_cuda_place at, void *stream, gw_why *why)
{
    CALL(1, wait, stream);
}

gw_status gw_cuda_elapsed(gw_cuda_place at, void *from, void *to, double *seconds, gw_why *why)
{
    CALL(from != NULL && to != NULL && seconds != NULL, elapsed, from, to, seconds);
}

gw_status gw_cuda_copy(gw_cuda_place at, void *stream, void *to, const void *from, size_t bytes,
                       gw_why *why)
{
    CALL(bytes == 0 || (to != NULL && from != NULL), copy, stream, to, from, bytes);
}

gw_status gw_cuda_clear(gw_cuda_place at, void *stream, void *to, size_t bytes, gw_why *why)
{
    CALL(bytes == 0 || to != NULL, clear, stream, to, bytes);
}

gw_status gw_cuda_hash(gw_cuda_place at, void *stream, const void *numbers, size_t n, size_t width,
                       uint64_t key, uint64_t first, uint64_t *sum, gw_why *why)
{
    const int sound = (n == 0 || numbers != NULL) && sum != NULL && (width == 2 || width == 4);
    CALL(sound, hash, stream, numbers, n, width, key, first, sum);
}

static int are_entries(const gw_cuda_head *head, const gw_cuda_entry *entries, size_t n)
{
    int sound = head != NULL && (entries != NULL || n == 0);
    for (size_t i = 0; sound && i < n; i++) {
        sound = entries[i].head != NULL && (uintptr_t)entries[i].head % 8 == 0 &&
                entries[i].result != NULL;
    }
    return sound;
}

gw_status gw_cuda_write_heads(gw_cuda_place at, void *stream, const gw_cuda_head *head,
                              const gw_cuda_entry *entries, size_t n, gw_why *why)
{
    CALL(are_entries(head, entries, n), heads, stream, head, entries, n, 0);
}

gw_status gw_cuda_check_heads(gw_cuda_place at, void *stream, const gw_cuda_head *head,
                              const gw_cuda_entry *entries, size_t n, gw_why *why)
{
    CALL(are_entries(head, entries, n), heads, stream, head, entries, n, 1);
}
