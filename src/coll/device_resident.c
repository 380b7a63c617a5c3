/* Payloads and sums that stay in a device's memory: encoded, sent, decoded there, each launched behind the other on the
 * lane's stream and the group's. The host learns what happened when all is over. In front of each payload stands a head
 * (gw_cuda_head) instead of the seal; each travels at the length it has at most, so that nobody waits for one.
 * docs/decisions/009-payloads-that-stay.md. */
#include "coll/device_exchange.h"

#include <stdio.h>
#include <string.h>

enum { ENTRY_ALIGN = 16 /* of payloads, for the kernels' speed */ };

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

size_t gw_stay_entry_bytes(size_t bound)
{
    return sizeof(gw_cuda_head) + (bound + ENTRY_ALIGN - 1) / ENTRY_ALIGN * ENTRY_ALIGN;
}

static int is_coding(const gw_move *m)
{
    return m->step.level == 0;
}

/* How often a move posts on its group. */
static uint32_t posts_of(const gw_move *m)
{
    if (is_coding(m) || m->group.size == 1) {
        return 0;
    }
    return m->step.op == GW_OP_ALLREDUCE || m->step.op == GW_OP_REDUCE ? 2 : 1;
}

/* ---- which, and how much ---- */

/* Between encode and decode all stays or nothing does; sums of numbers outside of these stay. Of what all ranks know. */
static void find_moves(gw_exchange *x)
{
    const gw_program *p = &x->program;
    for (uint32_t i = 0; i < p->n_moves; i++) {
        uint32_t last = i;
        while (p->move[i].step.op == GW_OP_ENCODE && p->move[last].step.op != GW_OP_DECODE) {
            last++;
        }
        const int stays =
            p->move[i].step.op != GW_OP_ENCODE ||
            (gw_there_can_code(x, &p->move[i]) && gw_there_can_code(x, &p->move[last]));
        memset(x->stay->move + i, stays, last + 1 - i);
        i = last;
    }
}

gw_status gw_stay_plan(gw_exchange *x, gw_why *why)
{
    const gw_cuda *cuda = x->config.place.cuda;
    const gw_program *p = &x->program;
    if (!x->config.device_comm || x->config.ranks > GW_CUDA_MAX_PAYLOADS) {
        return GW_OK;
    }
    char as_it_is[32];
    (void)snprintf(as_it_is, sizeof as_it_is, "cast:to=%s", gw_dtype_name(x->dtype));
    gw_status status = gw_params_parse(&x->there->as_it_is, as_it_is, why);
    if (status == GW_OK && !gw_cuda_has(cuda, x->there->as_it_is.codec)) {
        status = gw_fail(why, GW_ERR_UNSUPPORTED, "a group of a device's, and no CUDA side");
    }
    for (uint32_t i = 0; i < p->n_moves && status == GW_OK; i++) {
        if (is_coding(&p->move[i]) && p->move[i].step.device == GW_DEVICE_GPU &&
            !gw_cuda_has(cuda, x->config.params.codec)) { /* do others have one? */
            status = gw_fail(why, GW_ERR_UNSUPPORTED, "%s has no CUDA side here",
                             gw_codec_name(x->config.params.codec));
        }
    }
    if (status == GW_OK) {
        find_moves(x);
    }
    for (uint32_t i = 0; i < p->n_moves; i++) {
        x->memory[i] = x->stay->move[i] ? &gw_memory_resident : &gw_memory_host;
        x->stay->first_post[i + 1] =
            x->stay->first_post[i] + (x->stay->move[i] ? posts_of(&p->move[i]) : 0);
    }
    return status;
}

static size_t bytes_of(const gw_operand *o)
{
    const size_t entries = (size_t)o->outer * o->inner * o->payloads;
    return o->kind == GW_OPERAND_BUNDLE ? (size_t)o->bytes + entries * gw_stay_entry_bytes(1) : 0;
}

void gw_stay_measure(gw_exchange *x)
{
    gw_staying *s = x->stay;
    gw_there *t = x->there;
    uint32_t results = 0;
    int any = 0;
    for (uint32_t i = 0; i < x->program.n_moves; i++) {
        const gw_move *m = &x->program.move[i];
        const gw_operand *bundle = m->step.op == GW_OP_ENCODE ? &m->after : &m->before;
        s->first_result[i] = results;
        if (!s->move[i]) {
            continue;
        }
        any = 1;
        if (is_coding(m) && t->codes[i]) {
            results += gw_exchange_is_additive(x) ? 1 : bundle->outer * bundle->inner;
        }
        s->bytes = larger(s->bytes, larger(bytes_of(&m->before), bytes_of(&m->after)));
        if (m->before.kind == GW_OPERAND_DENSE || m->before.kind == GW_OPERAND_NUMBERS) {
            const uint32_t members = is_coding(m) ? 1 : m->group.size;
            const gw_range piece =
                gw_range_cut(m->before.range, x->program.grain, is_coding(m) ? 1 : m->parts, 0);
            s->bytes =
                larger(s->bytes, is_coding(m) ? 0 : x->width * (size_t)piece.count * members);
            t->entries = larger(t->entries, members);
        }
    }
    s->first_result[x->program.n_moves] = results;
    s->results = any ? results + 2 : 0; /* of sums, which nobody reads, and of the last look */
    t->pieces = any ? larger(t->pieces, 1) : t->pieces;
    t->entries = any ? larger(t->entries, 1) : t->entries;
}

static gw_bundle cut_bundle(gw_arena *here, gw_arena *there, const gw_exchange *x)
{
    gw_bundle b = {0};
    b.bytes = gw_arena_take(there, x->stay->bytes, 1);
    b.at = gw_arena_take(here, x->bundle_entries, sizeof *b.at);
    b.size = gw_arena_take(here, x->bundle_entries, sizeof *b.size);
    return b;
}

void gw_stay_cut(gw_arena *here, gw_arena *there, gw_exchange *x)
{
    gw_staying *s = x->stay;
    if (s->results == 0) {
        return;
    }
    s->inside = 0;
    s->pair[0] = cut_bundle(here, there, x);
    s->pair[1] = cut_bundle(here, there, x);
    s->entries = gw_arena_take(here, x->there->entries, sizeof *s->entries);
    s->result_here = gw_arena_take(here, s->results, sizeof *s->result_here);
    s->result = gw_arena_take(there, s->results, sizeof *s->result);
}

/* ---- the run ---- */

gw_status gw_stay_begin(gw_exchange *x, gw_why *why)
{
    gw_staying *s = x->stay;
    s->state = GW_RESULTS_NONE;
    s->finished = 0;
    memset(s->marked, 0, sizeof s->marked);
    return s->results == 0 ? GW_OK
                           : gw_cuda_clear(x->config.place, x->lane.stream, s->result,
                                           s->results * sizeof *s->result, why);
}

void gw_stay_use(gw_exchange *x)
{
    gw_staying *s = x->stay;
    const int stays = s->move[x->move];
    if (stays != s->inside) {
        const gw_bundle bundle = x->bundle, next = x->next;
        x->bundle = s->pair[0];
        x->next = s->pair[1];
        s->pair[0] = bundle;
        s->pair[1] = next;
        s->inside = stays;
    }
    if (!gw_exchange_is_additive(x)) {
        x->base = stays ? x->there->values : (uint8_t *)x->values;
    }
}

int gw_stay_must_wait(const gw_exchange *x)
{
    const gw_staying *s = x->stay;
    return s->move[x->move] && x->phase < posts_of(&x->program.move[x->move]) &&
           x->lane.may_post != NULL &&
           !x->lane.may_post(x->lane.owner, s->first_post[x->move] + x->phase);
}

uint32_t gw_exchange_posted(const gw_exchange *x, uint32_t *of)
{
    if (of == NULL) {
        return 0;
    }
    *of = 0;
    if (x == NULL || x->stay == NULL) {
        return 0;
    }
    const uint32_t n = x->program.n_moves;
    *of = x->stay->first_post[n];
    if (!x->running || x->move >= n) {
        return x->running ? *of : 0;
    }
    const uint32_t within = x->phase + (x->request != NULL);
    const uint32_t most = x->stay->first_post[x->move + 1] - x->stay->first_post[x->move];
    return x->stay->first_post[x->move] + (within < most ? within : most);
}

static gw_status copy(gw_exchange *x, void *to, const void *from, size_t bytes, gw_why *why)
{
    return gw_cuda_copy(x->config.place, x->lane.stream, to, from, bytes, why);
}

/* The time of what is launched between the two marks of a move is the device's own. */
static gw_status mark(gw_exchange *x, int behind, gw_why *why)
{
    void *event = x->lane.marks[2 * x->move + (uint32_t)behind];
    x->stay->state = GW_RESULTS_DUE;
    x->stay->marked[x->move] = event != NULL && behind;
    return event != NULL ? gw_cuda_record(x->config.place, event, x->lane.stream, why) : GW_OK;
}

static gw_cuda_head head_of(const gw_exchange *x)
{
    return (gw_cuda_head){0, x->stream.step, x->stream.tensor, gw_codec_id(x->config.params.codec)};
}

/* ---- coding ---- */

static size_t list_sources(gw_exchange *x, const gw_move *m)
{
    gw_bundle *b = gw_bundle_begin(x, m);
    size_t at = 0, n = 0;
    for (uint32_t i = 0; i < b->pieces; i++) {
        b->at[i] = at;
        b->size[i] = gw_bundle_entry_bytes(x, &m->after, i);
        at += b->size[i];
        if (b->size[i] != 0) {
            gw_cuda_result *result = x->stay->result + x->stay->first_result[x->move] + i;
            uint8_t *head = b->bytes + b->at[i];
            x->stay->entries[n] = (gw_cuda_entry){(gw_cuda_head *)(void *)head, result, 0};
            x->there->sources[n++] = gw_there_source(
                x, m, gw_operand_piece(&m->after, x->program.grain, i), i,
                head + sizeof(gw_cuda_head), b->size[i] - sizeof(gw_cuda_head), result);
        }
    }
    return n;
}

/* Of an additive route: the payload's numbers take the tensor's place. */
static size_t list_numbers(gw_exchange *x, const gw_move *m)
{
    size_t shared = 0;
    (void)gw_payload_bound(&x->config.params, 0, &shared);
    x->base = x->there->payloads + shared;
    x->base_first = 0;
    x->there->sources[0] =
        gw_there_source(x, m, x->program.whole, 0, x->there->payloads, x->numbers_bytes,
                        x->stay->result + x->stay->first_result[x->move]);
    return 1;
}

gw_status gw_stay_encode(gw_exchange *x, const gw_move *m, int *done, gw_why *why)
{
    *done = 1;
    x->stats.coded_on |= GW_DEVICE_GPU;
    const int additive = gw_exchange_is_additive(x);
    const size_t n = additive ? list_numbers(x, m) : list_sources(x, m);
    const gw_cuda_head head = head_of(x);
    gw_status status = mark(x, 0, why);
    if (status == GW_OK && n != 0) {
        status = gw_cuda_encode(x->config.place.cuda, x->lane.stream, &x->config.params,
                                x->there->sources, n, x->there->codec_workspace, why);
    }
    if (status == GW_OK && !additive) {
        status =
            gw_cuda_write_heads(x->config.place, x->lane.stream, &head, x->stay->entries, n, why);
    }
    return status == GW_OK ? mark(x, 1, why) : status;
}

static size_t list_sinks(gw_exchange *x, const gw_move *m, uint32_t divisor, size_t *heads)
{
    const gw_bundle *b = &x->bundle;
    size_t n = 0;
    for (uint32_t p = 0; p < b->pieces; p++) {
        const gw_range piece = gw_operand_piece(&m->before, x->program.grain, p);
        gw_cuda_payload *list = x->there->lists + *heads;
        gw_cuda_result *result = x->stay->result + x->stay->first_result[x->move] + p;
        size_t bound = 0;
        (void)gw_payload_bound(&x->config.params, (size_t)piece.count, &bound);
        for (uint32_t i = 0; i < b->payloads && piece.count != 0; i++) {
            uint8_t *at = b->bytes + b->at[p * b->payloads + i];
            gw_cuda_head *head = (gw_cuda_head *)(void *)at;
            list[i] =
                (gw_cuda_payload){at + sizeof *head, bound, x->fixed_size ? NULL : &head->size};
            x->stay->entries[(*heads)++] = (gw_cuda_entry){head, result, x->fixed_size ? bound : 0};
        }
        if (piece.count != 0) {
            x->there->sinks[n++] = gw_there_sink(x, piece, divisor, list, b->payloads, result);
        }
    }
    return n;
}

gw_status gw_stay_decode(gw_exchange *x, const gw_move *m, int *done, gw_why *why)
{
    const uint32_t divisor = gw_there_divisor(x);
    *done = 1;
    const gw_cuda_head head = head_of(x);
    size_t n = 1, heads = 0;
    if (gw_exchange_is_additive(x)) {
        x->there->lists[0] = (gw_cuda_payload){x->there->payloads, x->numbers_bytes, NULL};
        x->there->sinks[0] = gw_there_sink(x, x->program.whole, divisor, x->there->lists, 1,
                                           x->stay->result + x->stay->first_result[x->move]);
    } else {
        n = list_sinks(x, m, divisor, &heads);
    }
    gw_status status = mark(x, 0, why);
    if (status == GW_OK) {
        status = gw_cuda_check_heads(x->config.place, x->lane.stream, &head, x->stay->entries,
                                     heads, why);
    }
    if (status == GW_OK && n != 0) {
        status = gw_cuda_decode(x->config.place.cuda, x->lane.stream, &x->config.params,
                                x->there->sinks, n, x->there->codec_workspace, why);
    }
    return status == GW_OK ? mark(x, 1, why) : status;
}

/* ---- sums ---- */

/* `n` lists of numbers become one; it may be one of them. */
static gw_status sum(gw_exchange *x, void *out, uint64_t count, size_t n, uint32_t divisor,
                     gw_cuda_result *result, gw_why *why)
{
    const gw_cuda_sink sink = {.payloads = x->there->lists,
                               .n_payloads = n,
                               .out = {out, (size_t)count, x->dtype},
                               .how = GW_SET,
                               .divisor = divisor,
                               .result = result};
    return count == 0 ? GW_OK
                      : gw_cuda_decode(x->config.place.cuda, x->lane.stream, &x->there->as_it_is,
                                       &sink, 1, (gw_workspace){0}, why);
}

static gw_status sum_members(gw_exchange *x, const gw_move *m, gw_range piece, uint32_t divisor,
                             gw_why *why)
{
    uint8_t *own = x->base + (piece.first - x->base_first) * x->width;
    for (uint32_t i = 0; i < m->group.size; i++) {
        const void *from = x->next.bytes + x->messages.at[i];
        x->there->lists[i] = (gw_cuda_payload){i == m->group.member ? own : from,
                                               (size_t)piece.count * x->width, NULL};
    }
    gw_status status = mark(x, 0, why);
    if (status == GW_OK) {
        status = sum(x, own, piece.count, m->group.size, divisor,
                     x->stay->result + x->stay->results - 2, why);
    }
    return status == GW_OK ? mark(x, 1, why) : status;
}

/* ---- where messages lie ---- */

static gw_comm *comm_of(const gw_lane *lane, uint32_t level)
{
    return level == GW_LEVEL_FLAT    ? lane->device_flat
           : level == GW_LEVEL_INTRA ? lane->device_intra
                                     : lane->device_inter;
}

/* What is posted next begins behind what the lane's stream was given. */
static gw_status turn(gw_exchange *x, gw_why *why)
{
    return x->comm->table->after(x->comm, x->lane.stream, why);
}

static size_t entry_bytes(const gw_exchange *x, size_t bound)
{
    (void)x;
    return gw_stay_entry_bytes(bound);
}

const gw_memory gw_memory_resident = {.device = 1,
                                      .comm = comm_of,
                                      .turn = turn,
                                      .entry_bytes = entry_bytes,
                                      .copy = copy,
                                      .sum = sum_members};

/* ---- the end ---- */

static gw_status ask(gw_exchange *x, double *clock, gw_why *why)
{
    gw_staying *s = x->stay;
    gw_status status = gw_there_hash(x, why);
    if (status == GW_OK) {
        status = copy(x, s->result_here, s->result, s->results * sizeof *s->result, why);
    }
    s->state = GW_RESULTS_ASKED;
    return gw_there_end(x, status, clock, why);
}

gw_status gw_stay_finish(gw_exchange *x, gw_why *why)
{
    const gw_operand *last = &x->program.move[x->program.n_moves - 1].after;
    const gw_range range = x->config.sharded ? last->range : x->program.whole;
    uint8_t *values = x->there->values + (range.first - x->program.whole.first) * x->width;
    x->there->lists[0] = (gw_cuda_payload){values, (size_t)range.count * x->width, NULL};
    gw_status status = gw_there_begin(x, why);
    if (status == GW_OK) {
        status = sum(x, values, range.count, 1, x->divided ? 1 : gw_exchange_divisor(x),
                     x->stay->result + x->stay->results - 1, why);
    }
    x->divided = x->looked = x->stay->finished = 1;
    return status == GW_OK ? ask(x, &x->stats.decode_seconds, why) : status;
}

static gw_status take_coding(gw_exchange *x, uint32_t move, gw_why *why)
{
    const int encodes = x->program.move[move].step.op == GW_OP_ENCODE;
    const uint32_t first = x->stay->first_result[move], end = x->stay->first_result[move + 1];
    gw_status status = GW_OK;
    for (uint32_t i = first; i < end && status == GW_OK; i++) {
        const gw_cuda_result *r = &x->stay->result_here[i]; /* zeros where there is no piece */
        if (encodes) {
            x->stats.payload_bytes += r->written;
            status = gw_there_take_report(x, r, why);
        } else if (r->status != GW_OK) {
            status = gw_fail(why, (gw_status)r->status, "a payload of piece %u: %s", i - first,
                             r->status == GW_ERR_CHECKSUM
                                 ? "it is of another step, tensor or codec, or its head was changed"
                                 : gw_status_string((gw_status)r->status));
        }
        x->stats.finite &= encodes || move + 1 != x->program.n_moves || r->non_finite == 0;
    }
    return status;
}

static gw_status take(gw_exchange *x, gw_why *why)
{
    const gw_cuda_place at = x->config.place;
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < x->program.n_moves && status == GW_OK; i++) {
        double seconds = 0;
        if (x->stay->marked[i]) {
            status =
                gw_cuda_elapsed(at, x->lane.marks[2 * i], x->lane.marks[2 * i + 1], &seconds, why);
        }
        if (x->program.move[i].step.op == GW_OP_ENCODE) {
            x->stats.encode_seconds += seconds;
        } else {
            x->stats.decode_seconds += seconds;
        }
        if (status == GW_OK && x->stay->move[i]) {
            status = take_coding(x, i, why);
        }
    }
    if (x->stay->finished) {
        x->stats.finite = x->stay->result_here[x->stay->results - 1].non_finite == 0;
    }
    return status;
}

gw_status gw_resident_fetch(gw_exchange *x, int *done, gw_why *why)
{
    gw_staying *s = x->stay;
    if (s->state == GW_RESULTS_DUE) {
        const gw_status status = gw_there_begin(x, why);
        *done = 0;
        return status == GW_OK ? ask(x, &x->stats.copy_seconds, why) : status;
    }
    *done = 1;
    if (s->state != GW_RESULTS_ASKED) {
        return GW_OK;
    }
    s->state = GW_RESULTS_TAKEN;
    return take(x, why);
}
