/* What coding takes, over sizes. All ranks code at once, as they do in a step: cores that they share are shared here too. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradwire/gradwire.h>

#include "cli/measure/generate.h"
#include "cli/profile/profile.h"

typedef struct coder {
    gw_params params;
    bool feedback;
    size_t n, most;
    float *in, *out, *residual, *after;
    uint8_t *payload;
    size_t bound, written;
    gw_exec exec;
} coder;

/* Where a repeat's numbers begin: a step's tensors come out of memory or another core's cache, never twice out of the
 * same. */
static size_t place(const coder *c, uint32_t repeat)
{
    return repeat % (c->most / c->n) * c->n;
}

static gw_status encode(void *arg, uint32_t repeats, gw_why *why)
{
    coder *c = arg;
    static const gw_stream stream = {.seed = 1, .step = 2, .tensor = 3};
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < repeats && status == GW_OK; i++) {
        const size_t at = place(c, i);
        const gw_tensor in = {c->in + at, c->n, GW_F32};
        status = gw_encode_feedback(
            &c->params, &c->exec, &stream, &in, c->feedback ? c->residual + at : NULL,
            c->feedback ? c->after + at : NULL, c->payload, c->bound, &c->written, NULL);
    }
    return status == GW_OK
               ? status
               : gw_cli_measure_fail(why, status, "encode: %s", gw_status_string(status));
}

static gw_status decode(void *arg, uint32_t repeats, gw_why *why)
{
    coder *c = arg;
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < repeats && status == GW_OK; i++) {
        gw_tensor out = {c->out + place(c, i), c->n, GW_F32};
        status = gw_decode(&c->params, &c->exec, c->payload, c->written, GW_ADD, &out, why);
    }
    return status;
}

static gw_status copy(void *arg, uint32_t repeats, gw_why *why)
{
    const coder *c = arg;
    (void)why;
    for (uint32_t i = 0; i < repeats; i++) {
        memcpy(c->out, c->in, c->n * sizeof *c->in);
        c->in[i % c->n] += c->out[0]; /* so that it happens */
    }
    return GW_OK;
}

json_t *gw_cli_profile_point(size_t n, const gw_cli_measured *e, const gw_cli_measured *d)
{
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:I}", "bytes", 4 * (json_int_t)n, "encode_us",
                     1e6 * e->seconds, "decode_us", 1e6 * d->seconds, "encode_deviation_us",
                     1e6 * e->deviation, "decode_deviation_us", 1e6 * d->deviation, "samples",
                     (json_int_t)(e->samples < d->samples ? e->samples : d->samples));
}

static gw_status measure_size(gw_cli_meter *m, coder *c, const char *spec, json_t *points,
                              gw_why *why)
{
    char what[96];
    gw_cli_measured e, d;
    (void)snprintf(what, sizeof what, "encoding %zu numbers with %.40s", c->n, spec);
    gw_status status = gw_cli_measure(m, what, encode, c, &e, why);
    if (status == GW_OK) {
        (void)snprintf(what, sizeof what, "decoding %zu numbers with %.40s", c->n, spec);
        status = gw_cli_measure(m, what, decode, c, &d, why);
    }
    if (status == GW_OK) {
        (void)json_array_append_new(points, gw_cli_profile_point(c->n, &e, &d));
    }
    return status;
}

/* Workspace and payload of the largest size. */
static gw_status open_spec(coder *c, const char *spec, gw_why *why)
{
    size_t bytes = 0;
    gw_status status = gw_params_parse(&c->params, spec, why);
    if (status != GW_OK) {
        return status;
    }
    c->feedback = (gw_params_flags(&c->params) & GW_CODEC_WANTS_FEEDBACK) != 0;
    if (gw_params_flags(&c->params) & GW_CODEC_ROUNDS) {
        return gw_cli_measure_fail(why, GW_ERR_UNSUPPORTED,
                                   "%s goes in rounds, which no cluster file describes",
                                   gw_codec_name(c->params.codec));
    }
    status = gw_payload_bound(&c->params, c->most, &c->bound);
    if (status == GW_OK) {
        status = gw_codec_workspace(&c->params, GW_F32, c->most, c->feedback, 1, &bytes);
    }
    c->payload = malloc(c->bound + 1);
    c->exec.workspace = (gw_workspace){malloc(bytes + 1), bytes};
    return status == GW_OK && c->payload && c->exec.workspace.data
               ? status
               : gw_cli_measure_fail(why, GW_ERR_MEMORY, "no memory to measure %.60s", spec);
}

static void close_spec(coder *c)
{
    free(c->payload);
    free(c->exec.workspace.data);
    c->payload = NULL;
    c->exec.workspace = (gw_workspace){0};
}

static gw_status measure_spec(gw_cli_meter *m, coder *c, const char *spec, json_t *codecs,
                              gw_why *why)
{
    json_t *points = json_array();
    gw_status status = open_spec(c, spec, why);
    for (size_t n = GW_CLI_PROFILE_LEAST; n <= c->most && status == GW_OK; n *= 4) {
        c->n = n;
        memset(c->residual, 0, c->most * sizeof *c->residual);
        memset(c->out, 0, c->most * sizeof *c->out);
        status = measure_size(m, c, spec, points, why);
    }
    close_spec(c);
    (void)json_array_append_new(
        codecs, json_pack("{s:s, s:s, s:o}", "spec", spec, "device", "cpu", "points", points));
    return status;
}

static gw_status open_coder(coder *c, size_t most, gw_why *why)
{
    *c = (coder){.n = most, .most = most};
    float **const buffers[] = {&c->in, &c->out, &c->residual, &c->after};
    bool fine = true;
    for (size_t i = 0; i < 4; i++) {
        *buffers[i] = malloc(most * sizeof(float));
        fine = fine && *buffers[i];
    }
    if (!fine) {
        return gw_cli_measure_fail(why, GW_ERR_MEMORY, "no memory to measure codecs");
    }
    gw_cli_generate(1, c->in, most);
    memset(c->out, 0, most * sizeof(float));
    memset(c->residual, 0, most * sizeof(float));
    memset(c->after, 0, most * sizeof(float));
    return GW_OK;
}

static void close_coder(coder *c)
{
    free(c->in);
    free(c->out);
    free(c->residual);
    free(c->after);
}

gw_status gw_cli_profile_codecs(gw_cli_meter *m, const char *const *specs, size_t n_specs,
                                size_t most, json_t *codecs, double *copy_rate, gw_why *why)
{
    coder c;
    gw_cli_measured copied = {0};
    gw_status status = open_coder(&c, most, why);
    if (status == GW_OK && copy_rate) {
        status = gw_cli_measure(m, "copying memory", copy, &c, &copied, why);
        *copy_rate = copied.seconds > 0 ? (double)(most * sizeof(float)) / copied.seconds : 1e12;
    }
    for (size_t i = 0; i < n_specs && status == GW_OK; i++) {
        status = measure_spec(m, &c, specs[i], codecs, why);
    }
    close_coder(&c);
    return status;
}

/* ---- cores ---- */

static void *burn(void *arg)
{
    const atomic_int *stop = arg;
    volatile double x = 1;
    while (!atomic_load_explicit(stop, memory_order_relaxed)) {
        for (int i = 0; i < 1000; i++) {
            x = x * 1.0000001;
        }
    }
    return NULL;
}

static gw_status multiply(void *arg, uint32_t repeats, gw_why *why)
{
    volatile double *x = arg;
    (void)why;
    for (uint32_t i = 0; i < repeats * 1000000U; i++) {
        *x = *x * 1.0000001;
    }
    return GW_OK;
}

gw_status gw_cli_profile_workers(gw_cli_meter *m, uint32_t *workers, gw_why *why)
{
    static const double SLOWER = 1.5; /* beside a second thread: they take turns on a core */
    double x = 1;
    atomic_int stop = 0;
    pthread_t thread;
    gw_cli_measured alone, beside;
    gw_status status = gw_cli_measure(m, "computing on one thread", multiply, &x, &alone, why);
    if (status == GW_OK && pthread_create(&thread, NULL, burn, &stop) != 0) {
        status = gw_cli_measure_fail(why, GW_ERR_SYSTEM, "cannot start a thread");
    }
    if (status == GW_OK) {
        status = gw_cli_measure(m, "computing beside another thread", multiply, &x, &beside, why);
        atomic_store(&stop, 1);
        (void)pthread_join(thread, NULL);
    }
    if (status == GW_OK) {
        *workers = beside.seconds < SLOWER * alone.seconds ? 1 : 0;
    }
    return status;
}
