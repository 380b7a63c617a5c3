/* weights.gw; see train_weights.h. A segment for every param, "fc1.weight", then its "fc1.weight.mean" and, with adam,
 * "fc1.weight.square". */
#include "cli/train/train_weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/train/train_record.h"

enum { MAX_SEGMENTS = 3 * MODEL_MAX_PARAMS, NAME = 48 };
static const char SPEC[] = "cast:to=f32";

typedef struct list {
    gw_segment segments[MAX_SEGMENTS];
    float *values[MAX_SEGMENTS];
    char names[MAX_SEGMENTS][NAME];
    size_t n;
} list;

static void add(list *l, const param *p, const char *suffix, const gw_params *params, float *values)
{
    const int length = snprintf(l->names[l->n], NAME, "%s%s", p->name, suffix);
    gw_segment *s = &l->segments[l->n];
    *s = (gw_segment){.name = l->names[l->n],
                      .name_bytes = (size_t)length,
                      .params = *params,
                      .dtype = GW_F32,
                      .count = p->count,
                      .n_dims = (uint32_t)p->n_dims,
                      .tensor = l->n};
    memcpy(s->dims, p->dims, p->n_dims * sizeof *p->dims);
    l->values[l->n++] = values;
}

static gw_status list_all(const rank *r, list *l, gw_why *why)
{
    gw_params params;
    const gw_status status = gw_params_parse(&params, SPEC, why);
    l->n = 0;
    for (size_t i = 0; i < r->model->n_params && status == GW_OK; i++) {
        const param *p = r->model->params[i];
        const size_t at = (size_t)(p->value - r->model->weights);
        add(l, p, "", &params, p->value);
        add(l, p, ".mean", &params, r->optimiser.mean + at);
        if (r->optimiser.config.kind == OPTIMISER_ADAM) {
            add(l, p, ".square", &params, r->optimiser.square + at);
        }
    }
    return status;
}

size_t gw_cli_weights_bytes(const rank *r)
{
    const size_t copies = r->optimiser.config.kind == OPTIMISER_ADAM ? 3 : 2;
    return copies * (r->model->count * sizeof(float) + r->model->n_params * 192) + 4096;
}

static gw_status pack(list *l, uint64_t seed, uint64_t step, char *frame, size_t capacity,
                      size_t *size, gw_why *why)
{
    const gw_frame_info info = {.flags = GW_FRAME_HASHED, .seed = seed, .step = step};
    size_t at = 0;
    gw_status status = gw_frame_begin(l->segments, l->n, &at, why);
    for (size_t i = 0; i < l->n && status == GW_OK; i++) {
        gw_segment *s = &l->segments[i];
        const gw_tensor in = {l->values[i], s->count, GW_F32};
        size_t written = 0;
        status = gw_encode(&s->params, NULL, NULL, &in, frame + at, capacity - at, &written, NULL);
        s->payload_at = at;
        s->payload_bytes = written;
        at = gw_frame_next(at + written);
    }
    return status == GW_OK ? gw_frame_seal(frame, capacity, &info, l->segments, l->n, size, why)
                           : status;
}

gw_status gw_cli_weights_pack(const rank *r, uint64_t step, void **frame, size_t *size, gw_why *why)
{
    list *l = malloc(sizeof *l);
    size_t end = 0;
    void *bytes = NULL;
    gw_status status = l ? list_all(r, l, why) : GW_ERR_MEMORY;
    if (status == GW_OK) {
        status = gw_frame_begin(l->segments, l->n, &end, why);
    }
    for (size_t i = 0; status == GW_OK && i < l->n; i++) {
        size_t bound = 0;
        status = gw_payload_bound(&l->segments[i].params, l->segments[i].count, &bound);
        end = gw_frame_next(end + bound);
    }
    if (status == GW_OK) {
        bytes = malloc(end + 1);
        status = bytes ? pack(l, r->config.seed, step, bytes, end, size, why) : GW_ERR_MEMORY;
    }
    free(l);
    if (status != GW_OK) {
        free(bytes);
        return gw_cli_train_fail(why, status, "the weights' frame: %s", gw_status_string(status));
    }
    *frame = bytes;
    return GW_OK;
}

static int same_place(const gw_segment *a, const gw_segment *b)
{
    return a->name_bytes == b->name_bytes && memcmp(a->name, b->name, a->name_bytes) == 0 &&
           a->count == b->count && a->dtype == b->dtype && a->params.codec == b->params.codec;
}

gw_status gw_cli_weights_unpack(rank *r, uint64_t step, const void *frame, size_t size, gw_why *why)
{
    gw_frame_info info;
    gw_frame_cursor cursor = {0};
    list *l = malloc(sizeof *l);
    if (!l) {
        return gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory for weights");
    }
    gw_status status = list_all(r, l, why);
    if (status == GW_OK) {
        status = gw_frame_open(frame, size, &info, why);
    }
    if (status == GW_OK &&
        (info.segments != l->n || info.step != step || info.seed != r->config.seed)) {
        status =
            gw_cli_train_fail(why, GW_ERR_DISAGREE, "weights.gw is of another model, step or seed");
    }
    for (size_t i = 0; status == GW_OK && i < l->n; i++) {
        gw_segment s;
        gw_tensor out = {l->values[i], l->segments[i].count, GW_F32};
        status = gw_frame_segment(frame, size, &cursor, &s, why);
        if (status == GW_OK && !same_place(&s, &l->segments[i])) {
            status = gw_cli_train_fail(why, GW_ERR_DISAGREE, "weights.gw has no '%s' at its place",
                                       l->names[i]);
        }
        if (status == GW_OK) {
            status = gw_decode(&s.params, NULL, (const char *)frame + s.payload_at, s.payload_bytes,
                               GW_SET, &out, why);
        }
    }
    free(l);
    return status;
}
