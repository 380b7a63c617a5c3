/* Values in a device's memory. The walk is the same; here is what a move does there: values go to the host for sums of
 * numbers and steps @cpu, and back; steps @gpu are launched on the lane's stream, and payloads copied to where messages
 * are. Nothing waits: what is under way ends with the lane's event, which gw_exchange_progress asks about. */
#include "coll/device_exchange.h"

#include <stdlib.h>
#include <string.h>

/* Payloads whose size hangs on data begin at multiples of this. */
enum { PAYLOAD_ALIGN = 16 };

/* ---- how much ---- */

/* The bundle that a coding move makes or takes. */
static const gw_operand *bundle_of(const gw_move *m)
{
    return m->step.op == GW_OP_ENCODE ? &m->after : &m->before;
}

int gw_there_can_code(const gw_exchange *x, const gw_move *m)
{
    const gw_params *p = &x->config.params;
    return m->step.device == GW_DEVICE_GPU && gw_cuda_has(x->config.place.cuda, p->codec) &&
           (gw_params_flags(p) & GW_CODEC_ROUNDS) == 0 &&
           (gw_codec_grain(p) != 0 || x->config.elements <= UINT32_MAX);
}

static int device_codes(const gw_exchange *x, const gw_move *m)
{
    return m->runs && bundle_of(m)->payloads <= GW_CUDA_MAX_PAYLOADS && gw_there_can_code(x, m);
}

static gw_status measure_coding(gw_exchange *x, const gw_move *m, gw_why *why)
{
    gw_there *t = x->there;
    const gw_operand *o = bundle_of(m);
    const uint32_t pieces = gw_exchange_is_additive(x) ? 1 : o->outer * o->inner;
    const size_t entries = gw_exchange_is_additive(x) ? 1 : (size_t)pieces * o->payloads;
    size_t *counts = calloc(pieces + 1, sizeof *counts), bytes = 0;
    if (counts == NULL) {
        return gw_fail(why, GW_ERR_MEMORY, "no memory for an exchange");
    }
    for (uint32_t i = 0; i < pieces; i++) {
        counts[i] = gw_exchange_is_additive(x)
                        ? (size_t)x->config.elements
                        : (size_t)gw_operand_piece(o, x->program.grain, i).count;
    }
    const gw_status status = gw_cuda_workspace(x->config.place.cuda, &x->config.params, GW_F32,
                                               counts, pieces, 1, &bytes);
    free(counts);
    t->codec_bytes = bytes > t->codec_bytes ? bytes : t->codec_bytes;
    t->pieces = pieces > t->pieces ? pieces : t->pieces;
    t->entries = entries > t->entries ? entries : t->entries;
    return status == GW_OK ? GW_OK : gw_fail(why, status, "%s", gw_status_string(status));
}

gw_status gw_there_measure(gw_exchange *x, gw_why *why)
{
    gw_there *t = x->there;
    gw_status status = GW_OK;
    int host =
        1; /* whether the host sees values; the last move decides where they are in the end */
    int ever = 0;
    t->rounds = gw_there_can_round(x);
    for (uint32_t i = 0; i < x->program.n_moves && status == GW_OK; i++) {
        const gw_move *m = &x->program.move[i];
        const int dense = m->before.kind == GW_OPERAND_DENSE || m->after.kind == GW_OPERAND_DENSE;
        t->codes[i] = m->step.level == 0 && (t->rounds || device_codes(x, m));
        if (t->codes[i]) {
            status = t->rounds ? gw_there_measure_rounds(x, why) : measure_coding(x, m, why);
        }
        host = m->runs && dense ? !gw_there_works(x, i) : host;
        ever |= host && m->runs && dense;
    }
    const int looks = x->program.n_moves == 0 || !gw_there_works(x, x->program.n_moves - 1);
    t->mirror_bytes = ever || looks ? x->width * (size_t)x->config.elements : 0;
    gw_stay_measure(x);
    t->bytes = x->bundle_bytes + PAYLOAD_ALIGN * t->pieces;
    t->bytes = t->pieces == 0 ? 0 : t->bytes > x->numbers_bytes ? t->bytes : x->numbers_bytes;
    return status;
}

static void cut(gw_arena *here, gw_arena *there, gw_exchange *x)
{
    gw_there *t = x->there;
    x->values = gw_arena_take(here, t->mirror_bytes, 1);
    t->results_here = gw_arena_take(here, t->pieces, sizeof *t->results_here);
    t->sources = gw_arena_take(here, t->pieces, sizeof *t->sources);
    t->sinks = gw_arena_take(here, t->pieces, sizeof *t->sinks);
    t->lists = gw_arena_take(here, t->entries, sizeof *t->lists);
    /* first, for its alignment */
    t->codec_workspace = (gw_workspace){gw_arena_take(there, t->codec_bytes, 1), t->codec_bytes};
    t->payloads = gw_arena_take(there, t->bytes, 1);
    t->results = gw_arena_take(there, t->pieces, sizeof *t->results);
    gw_stay_cut(here, there, x);
}

/* ---- residuals ---- */

static uint32_t pieces_of(const gw_exchange *x, const gw_move *m)
{
    return gw_exchange_is_additive(x) ? 1 : m->after.outer * m->after.inner;
}

static gw_range piece_of(const gw_exchange *x, const gw_move *m, uint32_t index)
{
    return gw_exchange_is_additive(x) ? x->program.whole
                                      : gw_operand_piece(&m->after, x->program.grain, index);
}

/* Bytes of what may be due of a piece. */
static size_t due_bytes(const gw_exchange *x, gw_range piece)
{
    size_t bytes = 0;
    (void)gw_cuda_due_bytes(x->config.place.cuda, &x->config.params, (size_t)piece.count, &bytes);
    return bytes;
}

static gw_status copy_now(const gw_kept *k, void *to, const void *from, uint64_t count, gw_why *why)
{
    const gw_cuda_place at = k->of->config.place;
    const gw_status status = gw_cuda_copy(at, NULL, to, from, (size_t)count * sizeof(float), why);
    return status == GW_OK ? gw_cuda_wait(at, NULL, why) : status;
}

/* r as it is without what is due, piece by piece: seldom, and so without a list. */
static gw_status settle(const gw_kept *k, gw_why *why)
{
    const gw_exchange *x = k->of;
    const gw_move *m = &x->program.move[k->move];
    const gw_cuda_place at = x->config.place;
    int before = 0;
    gw_status status = gw_cuda_use(at, &before, why);
    for (uint32_t i = 0; i < pieces_of(x, m) && status == GW_OK; i++) {
        const gw_range piece = piece_of(x, m, i);
        const gw_cuda_debt debt = {k->r + (piece.first - m->before.range.first),
                                   k->due + i * k->due_step, (size_t)piece.count};
        if (due_bytes(x, piece) != 0) {
            status = gw_cuda_settle(at.cuda, NULL, &x->config.params, &debt, 1, why);
        }
    }
    const gw_status back = gw_cuda_use((gw_cuda_place){at.cuda, before}, NULL, why);
    return status == GW_OK ? back : status;
}

static gw_status fetch(void *context, float *r, uint64_t count, gw_why *why)
{
    const gw_kept *k = context;
    const gw_status status = k->due_step != 0 ? settle(k, why) : GW_OK;
    return status == GW_OK ? copy_now(k, r, k->r, count, why) : status;
}

static gw_status put(void *context, const float *r, uint64_t count, gw_why *why)
{
    const gw_kept *k = context;
    const gw_exchange *x = k->of;
    const size_t bytes = k->due_step * pieces_of(x, &x->program.move[k->move]);
    const gw_status status = gw_cuda_clear(x->config.place, NULL, k->due, bytes, why);
    return status == GW_OK ? copy_now(k, k->r, r, count, why) : status;
}

gw_feedback_keeper gw_there_keeper(gw_kept *k)
{
    return (gw_feedback_keeper){k, fetch, put, 0};
}

static gw_status allocate(gw_kept *k, size_t bytes, gw_why *why)
{
    const gw_exchange *x = k->of;
    const gw_move *m = &x->program.move[k->move];
    const uint32_t pieces = pieces_of(x, m);
    void *memory[4] = {NULL};
    for (uint32_t i = 0; i < pieces; i++) {
        const size_t step = due_bytes(x, piece_of(x, m, i));
        k->due_step = step > k->due_step ? step : k->due_step;
    }
    const int n = k->due_step != 0 ? 4 : 2;
    gw_status status = GW_OK;
    for (int i = 0; i < n && status == GW_OK; i++) {
        status = gw_cuda_allocate(x->config.place, i < 2 ? bytes : k->due_step * pieces, 0,
                                  &memory[i], why);
    }
    k->r = memory[0];
    k->after = memory[1];
    k->due = memory[2];
    k->due_after = memory[3];
    return status;
}

gw_status gw_there_keep(gw_exchange *x, gw_why *why)
{
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < GW_ROUTE_MAX_STEPS && status == GW_OK; i++) {
        gw_kept *k = &x->there->kept[i];
        const size_t bytes = (size_t)x->range[i].count * sizeof(float);
        if (x->slot[i] == GW_NO_SLOT || !x->there->codes[i]) {
            continue;
        }
        k->of = x;
        k->move = i;
        status = allocate(k, bytes, why);
        if (status == GW_OK) {
            const gw_feedback_keeper keeper = gw_there_keeper(k);
            status = gw_feedback_keep(x->config.store, x->slot[i], &keeper, why);
        }
    }
    return status == GW_OK && x->there->rounds ? gw_there_keep_state(x, why) : status;
}

void gw_there_free(gw_exchange *x)
{
    for (uint32_t i = 0; i < GW_ROUTE_MAX_STEPS; i++) {
        gw_cuda_free(x->config.place, x->there->kept[i].r, 0);
        gw_cuda_free(x->config.place, x->there->kept[i].after, 0);
        gw_cuda_free(x->config.place, x->there->kept[i].due, 0);
        gw_cuda_free(x->config.place, x->there->kept[i].due_after, 0);
    }
    gw_cuda_free(x->config.place, x->there->state.r, 0);
    gw_cuda_free(x->config.place, x->there->state.after, 0);
    free(x->there);
    free(x->stay);
}

/* r′ is r from now on, and what is due of it with it. */
static void keep_after(gw_kept *k)
{
    float *const r = k->r;
    uint8_t *const due = k->due;
    k->r = k->after;
    k->after = r;
    k->due = k->due_after;
    k->due_after = due;
}

static void commit(gw_exchange *x)
{
    for (uint32_t i = 0; i < GW_ROUTE_MAX_STEPS; i++) {
        if (x->slot[i] != GW_NO_SLOT && x->there->codes[i]) {
            keep_after(&x->there->kept[i]);
        }
    }
    if (x->there->rounds) {
        keep_after(&x->there->state);
    }
}

/* ---- under way ---- */

gw_status gw_there_begin(gw_exchange *x, gw_why *why)
{
    return gw_cuda_record(x->config.place, x->lane.begun, x->lane.stream, why);
}

gw_status gw_there_end(gw_exchange *x, gw_status status, double *clock, gw_why *why)
{
    if (status == GW_OK) {
        status = gw_cuda_record(x->config.place, x->lane.ended, x->lane.stream, why);
    }
    x->there->clock = clock;
    x->there->waiting = status == GW_OK;
    return status;
}

/* *arrived: what was waited for is done. */
static gw_status test(gw_exchange *x, int *arrived, gw_why *why)
{
    gw_status status = gw_cuda_done(x->config.place, x->lane.ended, arrived, why);
    if (status == GW_OK && *arrived) {
        double seconds = 0;
        status = gw_cuda_elapsed(x->config.place, x->lane.begun, x->lane.ended, &seconds, why);
        *x->there->clock += seconds;
        x->there->waiting = 0;
    }
    return status;
}

static gw_status copy(gw_exchange *x, void *to, const void *from, size_t bytes, gw_why *why)
{
    return gw_cuda_copy(x->config.place, x->lane.stream, to, from, bytes, why);
}

/* ---- values ---- */

static gw_status move_range(gw_exchange *x, gw_range range, int to_host, gw_why *why)
{
    const size_t at = (size_t)(range.first - x->program.whole.first) * x->width;
    uint8_t *here = (uint8_t *)x->values + at, *there = x->there->values + at;
    const size_t bytes = (size_t)range.count * x->width;
    gw_status status = gw_there_begin(x, why);
    if (status == GW_OK) {
        status = to_host ? copy(x, here, there, bytes, why) : copy(x, there, here, bytes, why);
    }
    x->there->here = to_host;
    return gw_there_end(x, status, &x->stats.copy_seconds, why);
}

/* Values go where move `m` wants them; x->there->waiting if they are on their way. */
static gw_status bring_values(gw_exchange *x, const gw_move *m, gw_why *why)
{
    const int to_host = !gw_there_works(x, x->move);
    const int reads = m->before.kind == GW_OPERAND_DENSE;
    const int writes = m->after.kind == GW_OPERAND_DENSE;
    if (to_host == x->there->here || !(reads || writes) ||
        (m->step.level != 0 && m->group.size == 1)) {
        return GW_OK;
    }
    if (reads) {
        return move_range(x, m->before.range, to_host, why);
    }
    x->there->here = to_host; /* what the move makes is all that counts from now on */
    return GW_OK;
}

/* The whole result goes back to where the values were; x->there->waiting. */
static gw_status return_values(gw_exchange *x, gw_why *why)
{
    const gw_operand *last = &x->program.move[x->program.n_moves - 1].after;
    return move_range(x, x->config.sharded ? last->range : x->program.whole, 0, why);
}

gw_status gw_there_hash(gw_exchange *x, gw_why *why)
{
    const int due = x->config.hashed && !x->hashed && x->lane.hashes != NULL;
    x->hashed = 1;
    return due ? gw_cuda_hash(x->config.place, x->lane.stream, x->there->values,
                              (size_t)x->config.elements, x->width, x->hash_key, x->config.first,
                              x->lane.hashes + x->stream.tensor, why)
               : GW_OK;
}

const void *gw_exchange_values_here(const gw_exchange *x)
{
    if (x == NULL || x->there == NULL) {
        return NULL;
    }
    return x->there->mirror_bytes != 0 && !gw_there_works(x, x->program.n_moves - 1) ? x->values
                                                                                     : NULL;
}

/* ---- coding ---- */

static gw_status clear_results(gw_exchange *x, gw_why *why)
{
    return gw_cuda_clear(x->config.place, x->lane.stream, x->there->results,
                         x->there->pieces * sizeof *x->there->results, why);
}

static gw_status copy_results(gw_exchange *x, gw_why *why)
{
    return copy(x, x->there->results_here, x->there->results,
                x->there->pieces * sizeof *x->there->results, why);
}

/* Where an fp32 element lies there. */
static float *float_there(const gw_exchange *x, uint64_t element)
{
    return (float *)(void *)x->there->values + (element - x->program.whole.first);
}

gw_cuda_source gw_there_source(gw_exchange *x, const gw_move *m, gw_range piece, uint32_t index,
                               uint8_t *payload, size_t capacity, gw_cuda_result *result)
{
    const uint64_t within = piece.first - m->before.range.first;
    const float *r = x->residual[x->move];
    float *after = x->residual_after[x->move];
    const gw_kept *k = &x->there->kept[x->move];
    const int owes = r != NULL && k->due_step != 0 && due_bytes(x, piece) != 0;
    return (gw_cuda_source){.in = {float_there(x, piece.first), (size_t)piece.count, GW_F32},
                            .residual = r != NULL ? r + within : NULL,
                            .residual_after = after != NULL ? after + within : NULL,
                            .key = gw_program_stream(&x->program, m, index, x->stream),
                            .payload = payload,
                            .capacity = capacity,
                            .result = result,
                            .due = owes ? k->due + index * k->due_step : NULL,
                            .due_after = owes ? k->due_after + index * k->due_step : NULL};
}

static gw_status launch_encode(gw_exchange *x, size_t n, gw_why *why)
{
    gw_status status = gw_there_begin(x, why);
    if (status == GW_OK) {
        status = clear_results(x, why);
    }
    if (status == GW_OK && n != 0) {
        status = gw_cuda_encode(x->config.place.cuda, x->lane.stream, &x->config.params,
                                x->there->sources, n, x->there->codec_workspace, why);
    }
    return status == GW_OK ? copy_results(x, why) : status;
}

/* Entries lie there as they will here, but for sizes that are not known yet. */
static gw_status begin_bundle(gw_exchange *x, const gw_move *m, gw_why *why)
{
    gw_bundle *b = gw_bundle_begin(x, m);
    size_t at = 0, n = 0;
    for (uint32_t i = 0; i < b->pieces; i++) {
        const size_t entry = gw_bundle_entry_bytes(x, &m->after, i);
        b->at[i] = at;
        b->size[i] = 0;
        if (entry != 0) {
            const gw_range piece = gw_operand_piece(&m->after, x->program.grain, i);
            b->size[i] = entry - x->seal_bytes;
            x->there->sources[n++] = gw_there_source(x, m, piece, i, x->there->payloads + at,
                                                     b->size[i], x->there->results + i);
        }
        at += x->fixed_size ? entry : (entry + PAYLOAD_ALIGN - 1) / PAYLOAD_ALIGN * PAYLOAD_ALIGN;
    }
    gw_status status = launch_encode(x, n, why);
    if (status == GW_OK && x->fixed_size) {
        status = copy(x, b->bytes, x->there->payloads, at, why);
    }
    return status;
}

/* Sizes are known now: payloads come one behind the other. */
static gw_status fetch_bundle(gw_exchange *x, gw_why *why)
{
    gw_bundle *b = &x->bundle;
    size_t at = 0;
    gw_status status = gw_there_begin(x, why);
    for (uint32_t i = 0; i < b->pieces && status == GW_OK; i++) {
        const size_t from = b->at[i];
        b->at[i] = at;
        if (b->size[i] != 0) {
            b->size[i] = (size_t)x->there->results_here[i].written;
            status = copy(x, b->bytes + at, x->there->payloads + from, b->size[i], why);
            at += b->size[i] + x->seal_bytes;
        }
    }
    return status;
}

gw_status gw_there_take_report(gw_exchange *x, const gw_cuda_result *result, gw_why *why)
{
    x->stats.report.non_finite += result->non_finite;
    x->stats.report.overflowed += result->overflowed;
    x->stats.report.held_back += result->held_back;
    return result->status == GW_OK ? GW_OK
                                   : gw_fail(why, (gw_status)result->status, "cannot encode: %s",
                                             gw_status_string((gw_status)result->status));
}

static gw_status seal_bundle(gw_exchange *x, const gw_move *m, gw_why *why)
{
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < x->bundle.pieces && status == GW_OK; i++) {
        if (gw_bundle_entry_bytes(x, &m->after, i) != 0) {
            status = gw_there_take_report(x, &x->there->results_here[i], why);
            gw_bundle_seal(x, i);
        }
    }
    return status;
}

/* The payload's numbers take the tensor's place, on the host. */
static gw_status begin_numbers(gw_exchange *x, const gw_move *m, gw_why *why)
{
    size_t shared = 0;
    gw_status status = gw_payload_bound(&x->config.params, 0, &shared);
    x->base_first = 0;
    x->base = (uint8_t *)x->numbers + shared;
    x->there->sources[0] = gw_there_source(x, m, x->program.whole, 0, x->there->payloads,
                                           x->numbers_bytes, x->there->results);
    if (status == GW_OK) {
        status = launch_encode(x, 1, why);
    }
    return status == GW_OK ? copy(x, x->numbers, x->there->payloads, x->numbers_bytes, why)
                           : status;
}

gw_status gw_there_encode(gw_exchange *x, const gw_move *m, int *done, gw_why *why)
{
    const uint32_t phase = x->phase++;
    x->stats.coded_on |= GW_DEVICE_GPU;
    *done = 0;
    if (phase == 0) {
        const gw_status status =
            gw_exchange_is_additive(x) ? begin_numbers(x, m, why) : begin_bundle(x, m, why);
        return gw_there_end(x, status, &x->stats.encode_seconds, why);
    }
    if (gw_exchange_is_additive(x)) {
        *done = 1;
        x->stats.payload_bytes = x->numbers_bytes;
        return gw_there_take_report(x, &x->there->results_here[0], why);
    }
    if (phase == 1 && !x->fixed_size) {
        return gw_there_end(x, fetch_bundle(x, why), &x->stats.encode_seconds, why);
    }
    *done = 1;
    return seal_bundle(x, m, why);
}

gw_cuda_sink gw_there_sink(gw_exchange *x, gw_range piece, uint32_t divisor,
                           const gw_cuda_payload *list, size_t payloads, gw_cuda_result *result)
{
    return (gw_cuda_sink){.payloads = list,
                          .n_payloads = payloads,
                          .out = {float_there(x, piece.first), (size_t)piece.count, GW_F32},
                          .how = GW_SET,
                          .divisor = divisor,
                          .result = result};
}

/* The bundle goes there as it lies here. *used: of its bytes. */
static gw_status list_bundle(gw_exchange *x, const gw_move *m, uint32_t divisor, size_t *n,
                             size_t *used, gw_why *why)
{
    const gw_bundle *b = &x->bundle;
    gw_cuda_payload *list = x->there->lists;
    for (uint32_t p = 0; p < b->pieces; p++) {
        const gw_range piece = gw_operand_piece(&m->before, x->program.grain, p);
        const gw_status status = piece.count != 0 ? gw_bundle_open(x, p, why) : GW_OK;
        if (status != GW_OK) {
            return status;
        }
        for (uint32_t i = 0; i < b->payloads && piece.count != 0; i++) {
            const size_t at = b->at[p * b->payloads + i], size = x->payloads[i].size;
            list[i] = (gw_cuda_payload){x->there->payloads + at, size, NULL};
            *used = at + size > *used ? at + size : *used;
        }
        if (piece.count != 0) {
            x->there->sinks[(*n)++] =
                gw_there_sink(x, piece, divisor, list, b->payloads, x->there->results + p);
            list += b->payloads;
        }
    }
    return GW_OK;
}

static gw_status launch_decode(gw_exchange *x, size_t n, const void *bytes, size_t used,
                               gw_why *why)
{
    gw_status status = gw_there_begin(x, why);
    if (status == GW_OK) {
        status = clear_results(x, why);
    }
    if (status == GW_OK) {
        status = copy(x, x->there->payloads, bytes, used, why);
    }
    if (status == GW_OK && n != 0) {
        status = gw_cuda_decode(x->config.place.cuda, x->lane.stream, &x->config.params,
                                x->there->sinks, n, x->there->codec_workspace, why);
    }
    return status == GW_OK ? copy_results(x, why) : status;
}

uint32_t gw_there_divisor(gw_exchange *x)
{
    const int last = x->move + 1 == x->program.n_moves;
    x->looked = x->divided = last;
    x->stats.finite |= last; /* only the result counts */
    x->stats.coded_on |= GW_DEVICE_GPU;
    return gw_exchange_is_additive(x) ? gw_exchange_divisor(x) : gw_exchange_last_divisor(x);
}

gw_status gw_there_decode(gw_exchange *x, const gw_move *m, int *done, gw_why *why)
{
    gw_status status = GW_OK;
    const uint32_t divisor = gw_there_divisor(x);
    size_t n = 0, used = 0;
    *done = x->phase++ != 0;
    if (!*done && gw_exchange_is_additive(x)) {
        x->there->lists[0] = (gw_cuda_payload){x->there->payloads, x->numbers_bytes, NULL};
        x->there->sinks[0] =
            gw_there_sink(x, x->program.whole, divisor, x->there->lists, 1, x->there->results);
        status = launch_decode(x, 1, x->numbers, x->numbers_bytes, why);
    } else if (!*done) {
        status = list_bundle(x, m, divisor, &n, &used, why);
        status = status == GW_OK ? launch_decode(x, n, x->bundle.bytes, used, why) : status;
    }
    if (!*done) {
        return gw_there_end(x, status, &x->stats.decode_seconds, why);
    }
    for (size_t i = 0; i < x->there->pieces && status == GW_OK; i++) {
        const gw_cuda_result *r = &x->there->results_here[i]; /* zeros where there is no piece */
        x->stats.finite &= r->non_finite == 0;
        status = r->status == GW_OK ? GW_OK
                                    : gw_fail(why, (gw_status)r->status, "piece %zu: %s", i,
                                              gw_status_string((gw_status)r->status));
    }
    return status;
}

/* ---- around the moves ---- */

static gw_status begin(gw_exchange *x, void *values, gw_why *why)
{
    gw_there *t = x->there;
    for (uint32_t i = 0; i < x->program.n_moves; i++) {
        if (x->slot[i] != GW_NO_SLOT && t->codes[i]) {
            x->residual[i] = t->kept[i].r;
            x->residual_after[i] = t->kept[i].after;
        }
    }
    t->values = values;
    t->here = t->waiting = 0;
    return gw_stay_begin(x, why);
}

static gw_status before(gw_exchange *x, int *ready, int *moved, gw_why *why)
{
    gw_there *t = x->there;
    gw_status status = GW_OK;
    if (t->waiting) {
        int arrived = 0;
        status = test(x, &arrived, why);
        *moved |= arrived;
    }
    *ready = status == GW_OK && !t->waiting;
    if (!*ready || x->move == x->program.n_moves) {
        return status;
    }
    *ready = !gw_stay_must_wait(x);
    if (!*ready) {
        return GW_OK;
    }
    *moved = 1;
    gw_exchange_begin_move(x);
    status = bring_values(x, &x->program.move[x->move], why);
    *ready = status == GW_OK && !t->waiting;
    if (*ready) {
        gw_stay_use(x);
    }
    return status;
}

static gw_status end(gw_exchange *x, int *done, int *moved, gw_why *why)
{
    gw_there *t = x->there;
    if (!x->looked && !t->here) {
        *moved = 1;
        return x->stay->move[x->program.n_moves - 1] ? gw_stay_finish(x, why)
                                                     : move_range(x, x->program.whole, 1, why);
    }
    gw_exchange_complete(x, moved);
    if (t->here) {
        *moved = 1;
        return return_values(x, why);
    }
    gw_status status = gw_resident_fetch(x, done, why);
    if (status == GW_OK && *done && x->config.hashed && !x->hashed) {
        *done = 0;
        status = gw_there_begin(x, why);
        status = status == GW_OK ? gw_there_hash(x, why) : status;
        status = gw_there_end(x, status, &x->stats.decode_seconds, why);
    }
    *moved |= !*done;
    return status;
}

static const gw_place_table place = {cut, begin, before, end, commit};

gw_status gw_there_open(gw_exchange *x, gw_why *why)
{
    x->there = calloc(1, sizeof *x->there);
    x->stay = calloc(1, sizeof *x->stay);
    if (x->there == NULL || x->stay == NULL) {
        free(x->there);
        free(x->stay);
        x->there = NULL;
        x->stay = NULL;
        return gw_fail(why, GW_ERR_MEMORY, "no memory for an exchange");
    }
    x->place = &place;
    return gw_stay_plan(x, why);
}

void gw_there_choose(gw_exchange *x)
{
    for (uint32_t i = 0; i < x->program.n_moves; i++) {
        const int encodes = x->program.move[i].step.op == GW_OP_ENCODE;
        if (!x->there->codes[i]) {
            continue;
        }
        x->operation[i] = x->stay->move[i] ? (encodes ? gw_stay_encode : gw_stay_decode)
                          : x->there->rounds
                              ? (encodes ? gw_there_encode_rounds : gw_there_decode_rounds)
                              : (encodes ? gw_there_encode : gw_there_decode);
    }
}
