/* What coding takes on a CUDA device, over sizes, and what copies between it and pinned memory take. Codes are timed by the device's own
 * events, around repeats that are launched one behind the other, so that a launch that lasts longer than its work counts. What a codec
 * leaves due of r′ the next step takes off, as in the runtime. */
#include <math.h>
#include <stdio.h>

#include <gradwire/gradwire.h>

#include "cli/measure/generate.h"
#include "cli/profile/profile.h"

static const double SHORTEST = 5e-3; /* seconds of a sample: no scheduler takes turns here */
enum { STEPS = 40 };                 /* after which a residual is as training leaves it */

typedef struct device {
    gw_cuda_place at;
    void *stream, *begun, *ended;
    double seconds; /* of all that was timed so far */
    size_t most;    /* numbers of each buffer */
    float *here;    /* pinned */
    float *in, *out, *residual, *after;
    gw_cuda_result *result;
    /* of a spec */
    gw_params params;
    bool feedback;
    uint8_t *payload;
    size_t bound, written;
    gw_workspace workspace;
    uint8_t *due, *due_after; /* of r and r′, part by part; NULL: nothing ever is */
    /* of a size */
    size_t n, turn;
    size_t due_step; /* bytes of a part's; 0: nothing is due */
    size_t bytes;    /* of a copy */
    bool out_of_it;
} device;

static double device_clock(void *arg)
{
    return ((const device *)arg)->seconds;
}

/* Each call another part of the buffers, so that what it reads has left the caches where parts are large. */
static size_t next_part(device *d)
{
    return d->turn++ % (d->most / d->n) * d->n;
}

/* A step is over: what it left is what the next begins with. */
static void change_places(device *d)
{
    float *const r = d->residual;
    uint8_t *const due = d->due;
    d->residual = d->after;
    d->after = r;
    d->due = d->due_after;
    d->due_after = due;
}

static gw_status encode_once(device *d, gw_why *why)
{
    static const gw_stream key = {.seed = 1, .step = 2, .tensor = 3};
    const size_t from = next_part(d), owes = d->due_step * (from / d->n);
    const gw_cuda_source source = {.in = {d->in + from, d->n, GW_F32},
                                   .residual = d->feedback ? d->residual + from : NULL,
                                   .residual_after = d->feedback ? d->after + from : NULL,
                                   .key = key,
                                   .payload = d->payload,
                                   .capacity = d->bound,
                                   .result = d->result,
                                   .due = d->due_step != 0 ? d->due + owes : NULL,
                                   .due_after = d->due_step != 0 ? d->due_after + owes : NULL};
    const gw_status status =
        gw_cuda_encode(d->at.cuda, d->stream, &d->params, &source, 1, d->workspace, why);
    if (d->due_step != 0 && from + d->n > d->most - d->n) {
        change_places(d); /* all parts have gone a step */
    }
    return status;
}

static gw_status decode_once(device *d, gw_why *why)
{
    const gw_cuda_payload payload = {d->payload, d->written, NULL};
    const gw_cuda_sink sink = {&payload, 1, {d->out + next_part(d), d->n, GW_F32},
                               GW_ADD,   1, d->result};
    return gw_cuda_decode(d->at.cuda, d->stream, &d->params, &sink, 1, d->workspace, why);
}

static gw_status timed(device *d, gw_status (*once)(device *, gw_why *), uint32_t repeats,
                       gw_why *why)
{
    double seconds = 0;
    gw_status status = gw_cuda_record(d->at, d->begun, d->stream, why);
    for (uint32_t i = 0; i < repeats && status == GW_OK; i++) {
        status = once(d, why);
    }
    status = status == GW_OK ? gw_cuda_record(d->at, d->ended, d->stream, why) : status;
    status = status == GW_OK ? gw_cuda_wait(d->at, d->stream, why) : status;
    status = status == GW_OK ? gw_cuda_elapsed(d->at, d->begun, d->ended, &seconds, why) : status;
    d->seconds += seconds;
    return status;
}

static gw_status encode(void *arg, uint32_t repeats, gw_why *why)
{
    return timed(arg, encode_once, repeats, why);
}

static gw_status decode(void *arg, uint32_t repeats, gw_why *why)
{
    return timed(arg, decode_once, repeats, why);
}

/* One at a time, as whoever waits for it on the host. */
static gw_status copy(void *arg, uint32_t repeats, gw_why *why)
{
    device *d = arg;
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < repeats && status == GW_OK; i++) {
        void *to = d->out_of_it ? d->here : d->in;
        status = gw_cuda_copy(d->at, d->stream, to, d->out_of_it ? d->in : d->here, d->bytes, why);
        status = status == GW_OK ? gw_cuda_wait(d->at, d->stream, why) : status;
    }
    return status;
}

/* By the device's clock. The first calls bring kernels there. */
static gw_status measure_work(gw_cli_meter *m, device *d, const char *what, gw_cli_work *work,
                              gw_cli_measured *out, gw_why *why)
{
    const gw_cli_meter before = *m;
    gw_status status = work(d, 3, why);
    m->clock = device_clock;
    m->arg = d;
    m->shortest = SHORTEST;
    status = status == GW_OK ? gw_cli_measure(m, what, work, d, out, why) : status;
    m->clock = before.clock;
    m->arg = before.arg;
    m->shortest = before.shortest;
    return status;
}

static gw_status clear_result(device *d, gw_why *why)
{
    return gw_cuda_clear(d->at, d->stream, d->result, sizeof *d->result, why);
}

static gw_status look(device *d, const char *spec, gw_cuda_result *out, gw_why *why)
{
    gw_status status = gw_cuda_copy(d->at, d->stream, out, d->result, sizeof *out, why);
    status = status == GW_OK ? gw_cuda_wait(d->at, d->stream, why) : status;
    if (status == GW_OK && out->status != GW_OK) {
        status = (gw_status)out->status;
        (void)gw_cli_measure_fail(why, status, "%.60s on the device: %s", spec,
                                  gw_status_string(status));
    }
    return status;
}

/* The tensors are of another size from here on: nothing is due, and then nothing was. */
static gw_status cut_anew(device *d, size_t n, gw_why *why)
{
    gw_status status = GW_OK;
    for (size_t part = 0; part < d->most / d->n && d->due_step != 0 && status == GW_OK; part++) {
        const gw_cuda_debt debt = {d->residual + part * d->n, d->due + part * d->due_step, d->n};
        status = gw_cuda_settle(d->at.cuda, d->stream, &d->params, &debt, 1, why);
    }
    d->n = n;
    d->turn = 0;
    d->due_step = 0;
    if (d->due != NULL && status == GW_OK) {
        status = gw_cuda_due_bytes(d->at.cuda, &d->params, n, &d->due_step);
    }
    return status == GW_OK && d->due_step != 0
               ? gw_cuda_clear(d->at, d->stream, d->due, d->most / n * d->due_step, why)
               : status;
}

static gw_status measure_size(gw_cli_meter *m, device *d, const char *spec, json_t *points,
                              gw_why *why)
{
    char what[96];
    gw_cli_measured e = {0}, f = {0};
    gw_cuda_result result = {0};
    (void)snprintf(what, sizeof what, "encoding %zu numbers with %.30s on the device", d->n, spec);
    gw_status status = clear_result(d, why);
    status = status == GW_OK ? measure_work(m, d, what, encode, &e, why) : status;
    status = status == GW_OK ? encode_once(d, why) : status;
    status = status == GW_OK ? look(d, spec, &result, why) : status;
    d->written = (size_t)result.written;
    (void)snprintf(what, sizeof what, "decoding %zu numbers with %.30s on the device", d->n, spec);
    status = status == GW_OK ? measure_work(m, d, what, decode, &f, why) : status;
    status = status == GW_OK ? look(d, spec, &result, why) : status;
    if (status == GW_OK) {
        (void)json_array_append_new(points, gw_cli_profile_point(d->n, &e, &f));
    }
    return status;
}

/* As much as the parts of any size want. */
static gw_status open_due(device *d, gw_why *why)
{
    size_t most = 0;
    gw_status status = GW_OK;
    for (size_t n = GW_CLI_PROFILE_LEAST; n <= d->most && status == GW_OK; n *= 4) {
        size_t bytes = 0;
        status = gw_cuda_due_bytes(d->at.cuda, &d->params, n, &bytes);
        most = d->most / n * bytes > most ? d->most / n * bytes : most;
    }
    if (most == 0 || status != GW_OK) {
        return status;
    }
    status = gw_cuda_allocate(d->at, most, 0, (void **)&d->due, why);
    return status == GW_OK ? gw_cuda_allocate(d->at, most, 0, (void **)&d->due_after, why) : status;
}

/* Workspace and payload of the largest size, and what feedback finds after some steps of the same gradient. */
static gw_status open_spec(device *d, const char *spec, gw_why *why)
{
    gw_status status = gw_params_parse(&d->params, spec, why);
    if (status != GW_OK) {
        return status;
    }
    if (!gw_cuda_has(d->at.cuda, d->params.codec)) {
        return gw_cli_measure_fail(why, GW_ERR_UNSUPPORTED, "%.60s has no CUDA side", spec);
    }
    d->feedback = (gw_params_flags(&d->params) & GW_CODEC_WANTS_FEEDBACK) != 0;
    d->n = d->most;
    d->turn = 0;
    status = gw_payload_bound(&d->params, d->most, &d->bound);
    if (status == GW_OK) {
        status = gw_cuda_workspace(d->at.cuda, &d->params, GW_F32, &d->most, 1, d->feedback,
                                   &d->workspace.size);
    }
    status = status == GW_OK
                 ? gw_cuda_allocate(d->at, d->bound, 0, (void **)&d->payload, why)
                 : gw_cli_measure_fail(why, status, "%.60s: %s", spec, gw_status_string(status));
    if (status == GW_OK) {
        status = gw_cuda_allocate(d->at, d->workspace.size, 0, &d->workspace.data, why);
    }
    const size_t bytes = d->most * sizeof(float);
    status = status == GW_OK ? gw_cuda_clear(d->at, d->stream, d->out, bytes, why) : status;
    status = status == GW_OK ? gw_cuda_clear(d->at, d->stream, d->residual, bytes, why) : status;
    for (int step = 0; step < STEPS && d->feedback && status == GW_OK; step++) {
        status = encode_once(d, why);
        change_places(d);
    }
    return status == GW_OK && d->feedback ? open_due(d, why) : status;
}

static void close_spec(device *d)
{
    gw_cuda_free(d->at, d->payload, 0);
    gw_cuda_free(d->at, d->workspace.data, 0);
    gw_cuda_free(d->at, d->due, 0);
    gw_cuda_free(d->at, d->due_after, 0);
    d->payload = d->due = d->due_after = NULL;
    d->due_step = 0;
    d->workspace = (gw_workspace){0};
}

static gw_status measure_spec(gw_cli_meter *m, device *d, const char *spec, json_t *codecs,
                              gw_why *why)
{
    json_t *points = json_array();
    gw_status status = open_spec(d, spec, why);
    for (size_t n = GW_CLI_PROFILE_LEAST; n <= d->most && status == GW_OK; n *= 4) {
        status = cut_anew(d, n, why);
        status = status == GW_OK ? measure_size(m, d, spec, points, why) : status;
    }
    close_spec(d);
    (void)json_array_append_new(
        codecs, json_pack("{s:s, s:s, s:o}", "spec", spec, "device", "gpu", "points", points));
    return status;
}

/* A copy of next to nothing is the latency. */
static gw_status measure_copies(gw_cli_meter *m, device *d, bool out_of_it, gw_cli_link_fit *fit,
                                gw_why *why)
{
    char what[96];
    gw_cli_measured found[2] = {{0}};
    const size_t bytes[2] = {GW_CLI_PROFILE_LEAST * sizeof(float), d->most * sizeof(float)};
    gw_status status = GW_OK;
    d->out_of_it = out_of_it;
    for (int i = 0; i < 2 && status == GW_OK; i++) {
        d->bytes = bytes[i];
        (void)snprintf(what, sizeof what, "copying %zu bytes %s the device", bytes[i],
                       out_of_it ? "from" : "to");
        status = gw_cli_measure(m, what, copy, d, &found[i], why);
    }
    const double longer = found[1].seconds - found[0].seconds, all = (double)bytes[1];
    *fit = (gw_cli_link_fit){
        .latency = found[0].seconds,
        .rate = longer > 0 ? (all - (double)bytes[0]) / longer : all / fmax(found[1].seconds, 1e-9),
        .spread = found[1].seconds > 0 ? found[1].deviation / found[1].seconds : 0};
    return status;
}

static gw_status open_device(device *d, gw_why *why)
{
    const size_t bytes = d->most * sizeof(float);
    void **const buffers[] = {(void **)&d->in, (void **)&d->out, (void **)&d->residual,
                              (void **)&d->after};
    gw_status status = gw_cuda_use(d->at, NULL, why);
    status = status == GW_OK ? gw_cuda_stream_open(d->at, &d->stream, why) : status;
    status = status == GW_OK ? gw_cuda_event_open(d->at, &d->begun, why) : status;
    status = status == GW_OK ? gw_cuda_event_open(d->at, &d->ended, why) : status;
    status = status == GW_OK ? gw_cuda_allocate(d->at, bytes, 1, (void **)&d->here, why) : status;
    status = status == GW_OK
                 ? gw_cuda_allocate(d->at, sizeof *d->result, 0, (void **)&d->result, why)
                 : status;
    for (size_t i = 0; i < sizeof buffers / sizeof buffers[0] && status == GW_OK; i++) {
        status = gw_cuda_allocate(d->at, bytes, 0, buffers[i], why);
    }
    if (status == GW_OK) {
        gw_cli_generate(1, d->here, d->most);
        status = gw_cuda_copy(d->at, d->stream, d->in, d->here, bytes, why);
    }
    return status == GW_OK ? gw_cuda_wait(d->at, d->stream, why) : status;
}

static void close_device(device *d)
{
    void *const memory[] = {d->in, d->out, d->residual, d->after, d->result};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++) {
        gw_cuda_free(d->at, memory[i], 0);
    }
    gw_cuda_free(d->at, d->here, 1);
    gw_cuda_event_close(d->at, d->begun);
    gw_cuda_event_close(d->at, d->ended);
    gw_cuda_stream_close(d->at, d->stream);
}

gw_status gw_cli_profile_cuda(gw_cli_meter *m, gw_cuda_place at, const char *const *specs,
                              size_t n_specs, size_t most, json_t *codecs,
                              gw_cli_link_fit copies[2], gw_why *why)
{
    device d = {.at = at, .most = most, .n = most};
    gw_status status = open_device(&d, why);
    for (int i = 0; i < 2 && status == GW_OK; i++) {
        status = measure_copies(m, &d, i == 1, &copies[i], why);
    }
    for (size_t i = 0; i < n_specs && status == GW_OK; i++) {
        status = measure_spec(m, &d, specs[i], codecs, why);
    }
    close_device(&d);
    return status;
}
