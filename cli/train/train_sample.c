/* Samples; see train_sample.h. */
#include "cli/train/train_sample.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the layers ---- */

/* Params that are sent as one, from this place of the wire on, and how many numbers these are. */
static uint32_t together(const rank *r, uint32_t place, uint64_t *elements)
{
    const uint32_t n = plan_together(&r->plan, place);
    *elements = 0;
    for (uint32_t i = 0; i < n; i++) {
        *elements += r->model->params[r->plan.order[place + i]]->count;
    }
    return n;
}

/* With the shape that the step gives to the codec. */
static gw_params params_of(const rank *r, uint32_t place, uint32_t n, uint64_t elements)
{
    const param *only = r->model->params[r->plan.order[place]];
    gw_params params = r->plan.how[r->plan.order[place]].params;
    (void)gw_params_fit_shape(&params, n == 1 ? only->dims : &elements, n == 1 ? only->n_dims : 1);
    return params;
}

static void plan_text(const gw_params *params, const gw_route *route, gw_cli_run_layer *to)
{
    if (!params || gw_params_print(params, to->spec_text, sizeof to->spec_text) != GW_OK) {
        (void)snprintf(to->spec_text, sizeof to->spec_text, "dense");
    }
    if (!route || (gw_route_name_of(route, to->route_text, sizeof to->route_text) != GW_OK &&
                   gw_route_print(route, to->route_text, sizeof to->route_text) != GW_OK)) {
        (void)snprintf(to->route_text, sizeof to->route_text, "dense");
    }
    to->name = to->name_text;
    to->spec = to->spec_text;
    to->route = to->route_text;
}

static void describe(const rank *r, uint32_t index, uint32_t n, gw_params params,
                     gw_cli_run_layer *first)
{
    static const char *const KINDS[] = {"bias", "linear", "conv", "lstm", "embedding"};
    const param *p = r->model->params[index];
    const planned *how = &r->plan.how[index];
    gw_cli_run_layer *to = first + index;
    to->kind = KINDS[p->kind];
    to->elements = p->count;
    to->fused = n > 1 || p->count < r->config.plan.fuse_below;
    (void)snprintf(to->name_text, sizeof to->name_text, "%s", p->name);
    plan_text(how->compressed ? &params : NULL, &how->route, to);
}

gw_status gw_cli_describe_layers(gw_cli_run *run, const rank *r, gw_why *why)
{
    free(run->layers);
    run->n_layers = RANK_FIRST_PARAM + r->plan.n;
    run->layers = calloc(run->n_layers, sizeof *run->layers);
    run->weights = r->model->count;
    if (!run->layers) {
        return gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory for %zu layers", run->n_layers);
    }
    gw_cli_run_layer *to = run->layers;
    *to = (gw_cli_run_layer){
        .kind = "loss", .name_text = "loss", .elements = sizeof r->said / sizeof *r->said};
    to->fused = to->elements < r->config.plan.fuse_below;
    plan_text(NULL, NULL, to++);
    for (uint32_t place = 0, n = 0; place < r->plan.n; place += n) {
        uint64_t elements = 0;
        n = together(r, place, &elements);
        for (uint32_t i = 0; i < n; i++) {
            describe(r, r->plan.order[place + i], n, params_of(r, place, n, elements), to);
        }
    }
    return GW_OK;
}

/* ---- the error ---- */

gw_status gw_cli_sampler_open(gw_cli_sampler *s, const rank *r, gw_why *why)
{
    s->gradients = calloc(r->model->room, sizeof *s->gradients);
    s->together = calloc(r->model->count, sizeof *s->together);
    s->decoded = calloc(r->model->room, sizeof *s->decoded);
    return s->gradients && s->together && s->decoded
               ? GW_OK
               : gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory for samples");
}

void gw_cli_sampler_close(gw_cli_sampler *s)
{
    free(s->gradients);
    free(s->together);
    free(s->decoded);
    free(s->payload);
    free(s->workspace);
    *s = (gw_cli_sampler){0};
}

/* Room for coding so; levels that are chosen on the way need more than the first. */
static bool make_room(gw_cli_sampler *s, const gw_params *params, size_t count)
{
    size_t payload = 0, workspace = 0;
    if (gw_payload_bound(params, count, &payload) != GW_OK ||
        gw_codec_workspace(params, GW_F32, count, 0, 1, &workspace) != GW_OK) {
        return false;
    }
    if (payload > s->payload_bytes) {
        free(s->payload);
        s->payload = malloc(payload);
        s->payload_bytes = s->payload ? payload : 0;
    }
    if (workspace > s->workspace_bytes) {
        free(s->workspace);
        s->workspace = malloc(workspace);
        s->workspace_bytes = s->workspace ? workspace : 0;
    }
    return s->payload_bytes >= payload && s->workspace_bytes >= workspace;
}

/* Of coding the tensor once, without its residual; NaN: unknown. */
static double rel_error(gw_cli_sampler *s, const gw_params *params, const gw_stream *stream,
                        const float *x, size_t count)
{
    if (!make_room(s, params, count)) {
        return (double)NAN;
    }
    const gw_exec exec = {.workspace = {s->workspace, s->workspace_bytes}};
    const gw_tensor in = {(void *)(uintptr_t)x, count, GW_F32};
    gw_tensor out = {s->decoded, count, GW_F32};
    size_t written = 0;
    double lost = 0, size = 0;
    if (gw_encode(params, &exec, stream, &in, s->payload, s->payload_bytes, &written, NULL) !=
            GW_OK ||
        gw_decode(params, &exec, s->payload, written, GW_SET, &out, NULL) != GW_OK) {
        return (double)NAN;
    }
    for (size_t i = 0; i < count; i++) {
        const double d = (double)x[i] - (double)s->decoded[i];
        lost += d * d;
        size += (double)x[i] * (double)x[i];
    }
    return lost == 0 ? 0 : lost / size;
}

/* Gradients before the exchange, of params that are sent as one, one behind the other. */
static const float *kept(const gw_cli_sampler *s, const rank *r, uint32_t place, uint32_t n)
{
    float *to = s->together;
    for (uint32_t i = 0; i < n; i++) {
        const param *p = r->model->params[r->plan.order[place + i]];
        const float *from = s->gradients + (p->gradient - r->model->gradients);
        if (n == 1) {
            return from;
        }
        memcpy(to, from, p->count * sizeof *to);
        to += p->count;
    }
    return s->together;
}

/* What is coded together has one error, at its first param. */
static gw_status errors(gw_cli_sampler *s, gw_cli_sample_layer *layers, const rank *r,
                        uint64_t step)
{
    gw_status status = GW_OK;
    for (uint32_t place = 0, n = 0; place < r->plan.n && status == GW_OK; place += n) {
        const uint32_t number = RANK_FIRST_PARAM + r->plan.order[place];
        const gw_stream stream = {
            .seed = r->config.seed, .step = step, .tensor = number, .rank = r->comm->rank};
        uint64_t elements = 0;
        gw_params params;
        gw_route route;
        n = together(r, place, &elements);
        status = gw_step_planned(r->step, number, &params, &route);
        if (status == GW_OK && params.codec) {
            params = n > 1 ? params_of(r, place, n, elements) : params; /* levels may be chosen */
            layers[number].rel_error =
                rel_error(s, &params, &stream, kept(s, r, place, n), (size_t)elements);
        }
    }
    return status;
}

gw_status gw_cli_sample(gw_cli_sampler *s, gw_cli_run *run, const rank *r, const rank_stats *stats,
                        gw_why *why)
{
    gw_cli_run_sample *sample = gw_cli_run_add_sample(run);
    if (!sample) {
        return gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory for a sample");
    }
    sample->step = stats->step + 1;
    sample->backward_seconds = stats->backward_seconds;
    sample->forward_seconds = stats->forward_seconds;
    sample->update_seconds = stats->update_seconds;
    for (size_t i = 0; i < run->n_layers; i++) {
        const gw_layer_stats *l = &r->layers[i];
        sample->layers[i] = (gw_cli_sample_layer){
            .posted = l->posted,
            .begun = l->begun,
            .arrived = l->arrived,
            .encode_seconds = l->encode_seconds,
            .decode_seconds = l->decode_seconds,
            .bytes_sent = l->bytes_sent[GW_LINK_INTRA] + l->bytes_sent[GW_LINK_INTER],
            .dense_bytes = l->dense_bytes_sent[0] + l->dense_bytes_sent[1],
            .rel_error = (double)NAN};
    }
    return errors(s, sample->layers, r, stats->step);
}
