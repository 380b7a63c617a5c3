/* Gradients in a device's memory: what a step does with them around the exchanges. fp16 and bf16 become fp32 and back by
 * the codec `cast`, whose payload is the very tensor; so do small layers that go together, a list at once. */
#include "step/step.h"

#include "base/pages.h"

#include <stdlib.h>

/* Numbers that go through pinned memory at once. */
enum { STAGING = 256 * 1024 };
static const char *const casts[] = {
    [GW_F32] = "cast:to=f32", [GW_F16] = "cast:to=f16", [GW_BF16] = "cast:to=bf16"};

/* ---- memory ---- */

gw_status gw_device_allocate(const gw_step *s, size_t bytes, int pinned, void **out, gw_why *why)
{
    if (gw_step_on_device(s)) {
        return gw_cuda_allocate(s->config.place, bytes, pinned, out, why);
    }
    *out = gw_pages_allocate(bytes + 1);
    return *out != NULL ? GW_OK : GW_FAIL(why, GW_ERR_MEMORY, "no memory: %zu bytes", bytes);
}

void gw_device_free(const gw_step *s, void *memory, int pinned)
{
    if (gw_step_on_device(s)) {
        gw_cuda_free(s->config.place, memory, pinned);
    } else {
        free(memory);
    }
}

gw_status gw_device_open(gw_step *s, gw_why *why)
{
    const gw_cuda_place at = s->config.place;
    int before = 0;
    gw_status status = gw_step_on_device(s) ? gw_cuda_use(at, &before, why) : GW_OK;
    if (gw_step_on_device(s) && status == GW_OK) { /* it is there; and is not for us to leave so */
        status = gw_cuda_use((gw_cuda_place){at.cuda, before}, NULL, why);
    }
    for (int i = GW_F32; i <= GW_BF16 && gw_step_on_device(s) && status == GW_OK; i++) {
        status = gw_params_parse(&s->device.cast[i], casts[i], why);
        if (status == GW_OK && !gw_cuda_has(at.cuda, s->device.cast[i].codec)) {
            status = GW_FAIL(why, GW_ERR_UNSUPPORTED, "cast has no CUDA side");
        }
    }
    for (uint32_t i = 0; i < s->n_lanes && gw_step_on_device(s) && status == GW_OK; i++) {
        gw_lane *lane = &s->lanes[i].groups;
        status = gw_cuda_stream_open(at, &lane->stream, why);
        if (status == GW_OK) {
            status = gw_cuda_event_open(at, &lane->begun, why);
        }
        if (status == GW_OK) {
            status = gw_cuda_event_open(at, &lane->ended, why);
        }
    }
    for (int i = 0; i < 2 && gw_step_on_device(s) && status == GW_OK; i++) {
        void *staging = NULL;
        status = gw_cuda_allocate(at, STAGING * sizeof(float), 1, &staging, why);
        s->device.staging[i] = staging;
    }
    return status == GW_OK && gw_step_on_device(s) ? gw_cuda_stream_open(at, &s->device.side, why)
                                                   : status;
}

void gw_device_close(gw_step *s)
{
    const gw_cuda_place at = s->config.place;
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        gw_cuda_event_close(at, s->lanes[i].groups.begun);
        gw_cuda_event_close(at, s->lanes[i].groups.ended);
        gw_cuda_stream_close(at, s->lanes[i].groups.stream);
    }
    for (uint32_t i = 0; i < s->n_layers; i++) {
        gw_cuda_event_close(at, s->layers[i].event);
    }
    gw_cuda_stream_close(at, s->device.side);
    gw_cuda_free(at, s->device.staging[0], 1);
    gw_cuda_free(at, s->device.staging[1], 1);
    gw_cuda_free(at, s->device.results, 0);
    gw_cuda_free(at, s->device.results_here, 1);
    free(s->device.sources);
    free(s->device.sinks);
    free(s->device.payloads);
}

void gw_device_settle(gw_step *s)
{
    for (uint32_t i = 0; i < s->n_lanes && gw_step_on_device(s); i++) {
        (void)gw_cuda_wait(s->config.place, s->lanes[i].groups.stream, NULL);
    }
}

static gw_status make_lists(gw_step *s, gw_why *why)
{
    gw_step_device *d = &s->device;
    const gw_cuda_place at = s->config.place;
    const uint32_t n = s->n_layers;
    gw_cuda_free(at, d->results, 0);
    gw_cuda_free(at, d->results_here, 1);
    free(d->sources);
    free(d->sinks);
    free(d->payloads);
    d->results = d->results_here = NULL;
    d->sources = calloc(n, sizeof *d->sources);
    d->sinks = calloc(n, sizeof *d->sinks);
    d->payloads = calloc(n, sizeof *d->payloads);
    if (d->sources == NULL || d->sinks == NULL || d->payloads == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for %u layers", n);
    }
    void *there = NULL, *here = NULL;
    gw_status status = gw_cuda_allocate(at, n * sizeof *d->results, 0, &there, why);
    if (status == GW_OK) {
        status = gw_cuda_allocate(at, n * sizeof *d->results_here, 1, &here, why);
    }
    d->results = there;
    d->results_here = here;
    d->room = status == GW_OK ? n : 0;
    return status;
}

gw_status gw_device_prepare(gw_step *s, gw_why *why)
{
    gw_status status =
        gw_step_on_device(s) && s->device.room < s->n_layers ? make_lists(s, why) : GW_OK;
    for (uint32_t i = 0; i < s->n_layers && gw_step_on_device(s) && status == GW_OK; i++) {
        if (s->layers[i].event == NULL) {
            status = gw_cuda_event_open(s->config.place, &s->layers[i].event, why);
        }
    }
    return status;
}

/* ---- gradients in and out ---- */

static int lies_at(const gw_layer *l, const float *values)
{
    return l->dtype == GW_F32 && l->gradient.data == values;
}

/* How many layers from the first on can be cast in one call. */
static uint32_t of_one_type(const gw_step *s, const uint32_t *layers, uint32_t n)
{
    uint32_t same = 1;
    while (same < n && s->layers[layers[same]].dtype == s->layers[layers[0]].dtype) {
        same++;
    }
    return same;
}

static size_t bytes_of(const gw_layer *l)
{
    return (size_t)l->elements * gw_dtype_size(l->dtype);
}

gw_status gw_device_gather(gw_step *s, const gw_step_lane *lane, const uint32_t *layers, uint32_t n,
                           float *values, gw_why *why)
{
    gw_step_device *d = &s->device;
    const gw_cuda_place at = s->config.place;
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < n && status == GW_OK; i++) {
        status = gw_cuda_follow(at, lane->groups.stream, s->layers[layers[i]].event, why);
    }
    if (n == 1 && lies_at(&s->layers[layers[0]], values)) {
        return status;
    }
    float *to = values;
    for (uint32_t i = 0; i < n; i++) {
        const gw_layer *l = &s->layers[layers[i]];
        d->payloads[i] = (gw_cuda_payload){l->gradient.data, bytes_of(l), NULL};
        d->sinks[i] = (gw_cuda_sink){&d->payloads[i], 1, {to, (size_t)l->elements, GW_F32},
                                     GW_SET,          1, d->results + i};
        to += l->elements;
    }
    for (uint32_t i = 0, same = 0; i < n && status == GW_OK; i += same) {
        same = of_one_type(s, layers + i, n - i);
        status = gw_cuda_decode(at.cuda, lane->groups.stream, &d->cast[s->layers[layers[i]].dtype],
                                d->sinks + i, same, (gw_workspace){0}, why);
    }
    if (status == GW_OK && n == 1) { /* pieces of it may go on other lanes */
        status = gw_cuda_record(at, s->layers[layers[0]].event, lane->groups.stream, why);
    }
    return status;
}

gw_status gw_device_scatter(gw_step *s, const gw_step_lane *lane, const uint32_t *layers,
                            uint32_t n, float *values, gw_why *why)
{
    gw_step_device *d = &s->device;
    const gw_cuda_place at = s->config.place;
    if (n == 1 && lies_at(&s->layers[layers[0]], values)) {
        return GW_OK;
    }
    gw_status status =
        gw_cuda_clear(at, lane->groups.stream, d->results, n * sizeof *d->results, why);
    for (uint32_t i = 0; i < n; i++) {
        const gw_layer *l = &s->layers[layers[i]];
        d->sources[i] = (gw_cuda_source){.in = {values, (size_t)l->elements, GW_F32},
                                         .payload = l->gradient.data,
                                         .capacity = bytes_of(l),
                                         .result = d->results + i};
        values += l->elements;
    }
    for (uint32_t i = 0, same = 0; i < n && status == GW_OK; i += same) {
        same = of_one_type(s, layers + i, n - i);
        status = gw_cuda_encode(at.cuda, lane->groups.stream, &d->cast[s->layers[layers[i]].dtype],
                                d->sources + i, same, (gw_workspace){0}, why);
    }
    if (status == GW_OK) {
        status = gw_cuda_copy(at, lane->groups.stream, d->results_here, d->results,
                              n * sizeof *d->results, why);
    }
    if (status == GW_OK) {
        status = gw_cuda_wait(at, lane->groups.stream, why);
    }
    for (uint32_t i = 0; i < n && status == GW_OK; i++) {
        s->layers[layers[i]].bad |= d->results_here[i].overflowed != 0;
    }
    return status;
}

gw_status gw_device_hand_over(gw_step *s, const gw_step_lane *lane, const gw_layer *l,
                              float *values, gw_why *why)
{
    const gw_cuda_place at = s->config.place;
    float *const here = s->device.staging[0];
    if (gw_feedback_orphans(s->store, l->store_tensor) == 0) {
        return gw_feedback_hand_over(s->store, l->store_tensor, NULL, 0, 0, why);
    }
    gw_status status = GW_OK;
    for (uint64_t first = 0; first < l->elements && status == GW_OK; first += STAGING) {
        const uint64_t n = l->elements - first < STAGING ? l->elements - first : STAGING;
        const size_t bytes = (size_t)n * sizeof *values;
        status = gw_cuda_copy(at, lane->groups.stream, here, values + first, bytes, why);
        status = status == GW_OK ? gw_cuda_wait(at, lane->groups.stream, why) : status;
        if (status == GW_OK) {
            status = gw_feedback_hand_over(s->store, l->store_tensor, here, first, n, why);
        }
        if (status == GW_OK) {
            status = gw_cuda_copy(at, lane->groups.stream, values + first, here, bytes, why);
        }
        status = status == GW_OK ? gw_cuda_wait(at, lane->groups.stream, why) : status;
    }
    return status;
}

gw_status gw_device_read(gw_step *s, const gw_layer *l, const gw_tensor *gradient, float *to,
                         gw_why *why)
{
    const gw_cuda_place at = s->config.place;
    const size_t width = gw_dtype_size(l->dtype);
    gw_status status = gw_cuda_follow(at, s->device.side, l->event, why);
    for (uint64_t first = 0; first < l->elements && status == GW_OK; first += STAGING) {
        const uint64_t n = l->elements - first < STAGING ? l->elements - first : STAGING;
        status =
            gw_cuda_copy(at, s->device.side, s->device.staging[1],
                         (const uint8_t *)gradient->data + first * width, (size_t)n * width, why);
        status = status == GW_OK ? gw_cuda_wait(at, s->device.side, why) : status;
        if (status == GW_OK) {
            s->convert->widen(l->dtype, s->device.staging[1], to + first, (size_t)n);
        }
    }
    return status;
}
