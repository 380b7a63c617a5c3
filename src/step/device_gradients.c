/* Gradients in a device's memory: what a step does with them around the exchanges. fp16 and bf16 become fp32 and back by
 * the codec `cast`, whose payload is the very tensor; so do small layers that go together, a list at once. */
#include "step/step.h"

#include <stdlib.h>

/* Numbers that go through pinned memory at once. */
enum { STAGING = 256 * 1024 };
static const char *const casts[] = {
    [GW_F32] = "cast:to=f32", [GW_F16] = "cast:to=f16", [GW_BF16] = "cast:to=bf16"};

/* ---- memory ---- */

static gw_status allocate(const gw_step *s, size_t bytes, int pinned, void **out, gw_why *why)
{
    return gw_cuda_allocate(s->config.place, bytes, pinned, out, why);
}

static void release(const gw_step *s, void *memory, int pinned)
{
    gw_cuda_free(s->config.place, memory, pinned);
}

/* ---- groups of a device's memory ---- */

gw_status gw_device_check_comm(const gw_step_config *c, gw_why *why)
{
    const gw_comm *comm = c->device_comm;
    const gw_comm_table *table = comm->table;
    if (c->place.cuda == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "a device_comm is for gradients on a device: no place");
    }
    if (table == NULL || (table->flags & GW_COMM_DEVICE) == 0 ||
        table->size < offsetof(gw_comm_table, after) + sizeof table->after ||
        table->after == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "the device_comm, %s, does not work in a device's memory",
                       table != NULL ? table->name : "nothing");
    }
    return comm->rank == c->comm->rank && comm->ranks == c->comm->ranks
               ? GW_OK
               : GW_FAIL(why, GW_ERR_ARG, "rank %u of %u is rank %u of %u in the device_comm",
                         c->comm->rank, c->comm->ranks, comm->rank, comm->ranks);
}

/* One of each for all lanes: memory of such a group is dear, and its operations go one after the other anyway. */
static gw_status open_groups(gw_step *s, gw_why *why)
{
    gw_comm *world = s->config.device_comm;
    gw_status status = gw_step_split(s, world, 0, &s->device.flat, why);
    return status == GW_OK ? gw_step_split_nodes(s, world, &s->device.intra, &s->device.inter, why)
                           : status;
}

void gw_device_close_groups(gw_step *s)
{
    gw_comm *const groups[] = {s->device.inter, s->device.intra, s->device.flat};
    for (int i = 0; i < 3; i++) {
        if (groups[i] != NULL) {
            groups[i]->table->close(groups[i]);
        }
    }
}

void gw_device_abort(gw_step *s, const char *reason)
{
    if (s->device.flat != NULL) { /* and all that were split with it */
        s->device.flat->table->abort(s->device.flat, reason);
    }
}

void gw_device_make_waves(gw_step *s)
{
    uint32_t first = 0;
    for (uint32_t t = 0; t < s->n_tasks; t++) {
        gw_task *task = &s->tasks[t];
        const int same = t != 0 && task->fusion == task[-1].fusion && task->layer == task[-1].layer;
        first = same && t - first < s->n_lanes ? first : t;
        task->wave = first;
        for (uint32_t i = first; i <= t; i++) {
            s->tasks[i].wave_end = t + 1;
        }
    }
}

/* All ranks must post on a device's groups in one order, whatever their lanes are at: wave after wave; of a wave, whose
 * tasks become ready together, every task's first post, then every task's second, … */
static int may_post(void *owner, uint32_t post)
{
    const gw_step_lane *own = owner;
    const gw_step *s = own->of;
    const gw_task *task = &s->tasks[own->task];
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        const gw_step_lane *lane = &s->lanes[i];
        /* its task, and those behind it in the lane that it has not come to yet */
        for (uint32_t t = lane->task; lane != own && t < task->wave_end; t += s->n_lanes) {
            uint32_t of = 0;
            const uint32_t posted = gw_exchange_posted(s->tasks[t].exchange, &of);
            const uint32_t least = t < task->wave ? of : t < own->task ? post + 1 : post;
            if ((t == lane->task && lane->begun ? posted : 0) < (least < of ? least : of)) {
                return 0;
            }
        }
    }
    return 1;
}

static gw_status open_lane(gw_step *s, gw_step_lane *l, gw_why *why)
{
    const gw_cuda_place at = s->config.place;
    gw_lane *lane = &l->groups;
    const int marks = s->config.device_comm != NULL ? 2 * GW_ROUTE_MAX_STEPS : 0;
    gw_status status = gw_cuda_stream_open(at, &lane->stream, why);
    if (status == GW_OK) {
        status = gw_cuda_event_open(at, &lane->begun, why);
    }
    if (status == GW_OK) {
        status = gw_cuda_event_open(at, &lane->ended, why);
    }
    for (int i = 0; i < marks && status == GW_OK; i++) {
        status = gw_cuda_event_open(at, &lane->marks[i], why);
    }
    lane->device_flat = s->device.flat;
    lane->device_intra = s->device.intra;
    lane->device_inter = s->device.inter;
    lane->may_post = may_post;
    lane->owner = l;
    l->of = s;
    return status;
}

gw_status gw_device_open(gw_step *s, gw_why *why)
{
    const gw_cuda_place at = s->config.place;
    int before = 0;
    gw_status status = gw_cuda_use(at, &before, why);
    if (status == GW_OK) { /* it is there; and is not for us to leave so */
        status = gw_cuda_use((gw_cuda_place){at.cuda, before}, NULL, why);
    }
    for (int i = GW_F32; i <= GW_BF16 && status == GW_OK; i++) {
        status = gw_params_parse(&s->device.cast[i], casts[i], why);
        if (status == GW_OK && !gw_cuda_has(at.cuda, s->device.cast[i].codec)) {
            status = GW_FAIL(why, GW_ERR_UNSUPPORTED, "cast has no CUDA side");
        }
    }
    if (status == GW_OK && s->config.device_comm != NULL) {
        status = open_groups(s, why);
    }
    for (uint32_t i = 0; i < s->n_lanes && status == GW_OK; i++) {
        status = open_lane(s, &s->lanes[i], why);
    }
    for (int i = 0; i < 2 && status == GW_OK; i++) {
        void *staging = NULL;
        status = gw_cuda_allocate(at, STAGING * sizeof(float), 1, &staging, why);
        s->device.staging[i] = staging;
    }
    return status == GW_OK ? gw_cuda_stream_open(at, &s->device.side, why) : status;
}

void gw_device_close(gw_step *s)
{
    const gw_cuda_place at = s->config.place;
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        gw_cuda_event_close(at, s->lanes[i].groups.begun);
        gw_cuda_event_close(at, s->lanes[i].groups.ended);
        for (int m = 0; m < 2 * GW_ROUTE_MAX_STEPS; m++) {
            gw_cuda_event_close(at, s->lanes[i].groups.marks[m]);
        }
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

void gw_device_finish(gw_step *s)
{
    for (uint32_t i = 0; i < s->n_lanes; i++) {
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
    gw_status status = s->device.room < s->n_layers ? make_lists(s, why) : GW_OK;
    for (uint32_t i = 0; i < s->n_layers && status == GW_OK; i++) {
        if (s->layers[i].event == NULL) {
            status = gw_cuda_event_open(s->config.place, &s->layers[i].event, why);
        }
    }
    return status;
}

/* ---- gradients in and out ---- */

static int lies_at(const gw_layer *l, const void *values)
{
    return l->dtype == l->sent && l->gradient.data == values;
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

static gw_status gather(gw_step *s, const gw_step_lane *lane, const uint32_t *layers, uint32_t n,
                        void *values, gw_why *why)
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
    uint8_t *to = values;
    for (uint32_t i = 0; i < n; i++) {
        const gw_layer *l = &s->layers[layers[i]];
        d->payloads[i] = (gw_cuda_payload){l->gradient.data, bytes_of(l), NULL};
        d->sinks[i] = (gw_cuda_sink){&d->payloads[i], 1, {to, (size_t)l->elements, l->sent},
                                     GW_SET,          1, d->results + i};
        to += l->elements * gw_dtype_size(l->sent);
    }
    for (uint32_t i = 0, same = 0; i < n && status == GW_OK; i += same) {
        same = of_one_type(s, layers + i, n - i);
        status = gw_cuda_decode(at.cuda, lane->groups.stream, &d->cast[s->layers[layers[i]].dtype],
                                d->sinks + i, same, (gw_workspace){0}, why);
    }
    if (status == GW_OK) { /* pieces of it may go on other lanes */
        status = gw_cuda_record(at, s->layers[layers[0]].event, lane->groups.stream, why);
    }
    return status;
}

static gw_status scatter(gw_step *s, const gw_step_lane *lane, const uint32_t *layers, uint32_t n,
                         void *values, gw_why *why)
{
    gw_step_device *d = &s->device;
    const gw_cuda_place at = s->config.place;
    if (n == 1 && lies_at(&s->layers[layers[0]], values)) {
        return GW_OK;
    }
    uint8_t *from = values;
    gw_status status =
        gw_cuda_clear(at, lane->groups.stream, d->results, n * sizeof *d->results, why);
    for (uint32_t i = 0; i < n; i++) {
        const gw_layer *l = &s->layers[layers[i]];
        d->sources[i] = (gw_cuda_source){.in = {from, (size_t)l->elements, l->sent},
                                         .payload = l->gradient.data,
                                         .capacity = bytes_of(l),
                                         .result = d->results + i};
        from += l->elements * gw_dtype_size(l->sent);
    }
    for (uint32_t i = 0, same = 0; i < n && status == GW_OK; i += same) {
        same = of_one_type(s, layers + i, n - i);
        status = gw_cuda_encode(at.cuda, lane->groups.stream, &d->cast[s->layers[layers[i]].dtype],
                                d->sources + i, same, (gw_workspace){0}, why);
    }
    for (uint32_t i = 0; i < n && gw_step_hashes(s) && status == GW_OK; i++) {
        const gw_layer *l = &s->layers[layers[i]];
        status = gw_cuda_hash(at, lane->groups.stream, l->gradient.data, (size_t)l->elements,
                              gw_dtype_size(l->dtype), gw_step_hash_key(s, layers[i]), 0,
                              d->hashes + layers[i], why);
    }
    if (status == GW_OK) {
        status = gw_cuda_copy(at, lane->groups.stream, d->results_here, d->results,
                              n * sizeof *d->results, why);
    }
    if (status == GW_OK) {
        status = gw_cuda_wait(at, lane->groups.stream, why);
    }
    for (uint32_t i = 0; i < n && status == GW_OK; i++) {
        s->layers[layers[i]].bad |=
            d->results_here[i].overflowed != 0 || d->results_here[i].non_finite != 0;
    }
    return status;
}

static gw_status hand_over(gw_step *s, const gw_step_lane *lane, const gw_layer *l, void *values,
                           gw_why *why)
{
    const gw_cuda_place at = s->config.place;
    const size_t width = gw_dtype_size(l->sent);
    float *const here = s->device.staging[0];
    if (gw_feedback_orphans(s->store, l->store_tensor) == 0) {
        return gw_feedback_hand_over(s->store, l->store_tensor, NULL, 0, 0, why);
    }
    gw_status status = GW_OK;
    for (uint64_t first = 0; first < l->elements && status == GW_OK; first += STAGING) {
        const uint64_t n = l->elements - first < STAGING ? l->elements - first : STAGING;
        const size_t bytes = (size_t)n * width;
        uint8_t *const there = (uint8_t *)values + first * width;
        status = gw_cuda_copy(at, lane->groups.stream, here, there, bytes, why);
        status = status == GW_OK ? gw_cuda_wait(at, lane->groups.stream, why) : status;
        if (status == GW_OK) {
            status = l->sent == GW_F32
                         ? gw_feedback_hand_over(s->store, l->store_tensor, here, first, n, why)
                         : gw_feedback_hand_over_half(s->store, l->store_tensor, l->sent, here,
                                                      first, n, why);
        }
        if (status == GW_OK) {
            status = gw_cuda_copy(at, lane->groups.stream, there, here, bytes, why);
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

/* ---- around them ---- */

static gw_status post(gw_step *s, const gw_layer *l, void *stream, gw_why *why)
{
    return gw_cuda_record(s->config.place, l->event, stream, why);
}

static gw_status follow(gw_step *s, const gw_step_lane *lane, const gw_layer *l, gw_why *why)
{
    return gw_cuda_follow(s->config.place, lane->groups.stream, l->event, why);
}

static int use(const gw_step *s, int device)
{
    int before = device;
    (void)gw_cuda_use((gw_cuda_place){s->config.place.cuda, device}, &before, NULL);
    return before;
}

const gw_gradients gw_gradients_device = {.ordered = 1,
                                          .allocate = allocate,
                                          .release = release,
                                          .post = post,
                                          .use = use,
                                          .gather = gather,
                                          .follow = follow,
                                          .hand_over = hand_over,
                                          .scatter = scatter};
