/* Payloads: made, shipped, and summed again. Every payload travels with a seal, a hash that also covers step
 * and tensor: a byte changed on the way, or a message of another tensor, is an error with a name and not a
 * wrong number on one replica. */
#include "base/little_endian.h"
#include "coll/exchange.h"

#include <gradwire/frame.h>

#include <string.h>

/* A length on its way: itself, and its seal. */
enum { LENGTH = 2 };

static uint64_t seal_of(const gw_exchange *x, const uint8_t *payload, size_t bytes)
{
    return gw_payload_hash(payload, bytes, x->stream.step * 0x9E3779B97F4A7C15u ^ x->stream.tensor);
}

size_t gw_bundle_entry_bytes(const gw_exchange *x, const gw_operand *operand, uint32_t index)
{
    const gw_range piece = gw_operand_piece(operand, x->program.grain, index);
    size_t bound = 0;
    if (piece.count == 0 ||
        gw_payload_bound(&x->config.params, (size_t)piece.count, &bound) != GW_OK) {
        return 0;
    }
    return x->stay.inside ? gw_stay_entry_bytes(bound) : bound + x->seal_bytes;
}

/* ---- encode ---- */

static gw_status encode_piece(gw_exchange *x, const gw_move *m, uint32_t index, uint8_t *out,
                              size_t capacity, size_t *written, gw_why *why)
{
    const gw_range piece = gw_operand_piece(&m->after, x->program.grain, index);
    const uint64_t at = piece.first - m->before.range.first;
    const gw_tensor in = {(float *)x->values + (piece.first - x->program.whole.first),
                          (size_t)piece.count, GW_F32};
    const gw_stream stream = gw_program_stream(&x->program, m, index, x->stream);
    gw_exec exec = x->config.exec;
    exec.workspace = x->codec_workspace;
    gw_report report = {0};
    const float *r = x->residual[x->move];
    float *after = x->residual_after[x->move];
    const gw_status status = gw_encode_feedback(
        &x->config.params, &exec, &stream, &in, r != NULL ? r + at : NULL,
        after != NULL ? after + at : NULL, out, capacity - x->seal_bytes, written, &report);
    if (status != GW_OK) {
        return gw_fail(why, status, "cannot encode: %s", gw_status_string(status));
    }
    x->stats.report.non_finite += report.non_finite;
    x->stats.report.overflowed += report.overflowed;
    x->stats.report.held_back += report.held_back;
    return GW_OK;
}

void gw_bundle_seal(gw_exchange *x, uint32_t entry)
{
    gw_bundle *b = &x->bundle;
    uint8_t *payload = b->bytes + b->at[entry];
    x->stats.payload_bytes += b->size[entry];
    if (!x->sealed_below) {
        gw_put_u64(payload + b->size[entry], seal_of(x, payload, b->size[entry]));
    }
    b->size[entry] += x->seal_bytes;
}

gw_bundle *gw_bundle_begin(gw_exchange *x, const gw_move *m)
{
    gw_bundle *b = &x->bundle;
    b->pieces = m->after.outer * m->after.inner;
    b->payloads = 1;
    b->packed = 1;
    return b;
}

gw_status gw_bundle_encode(gw_exchange *x, const gw_move *m, gw_why *why)
{
    gw_bundle *b = gw_bundle_begin(x, m);
    size_t at = 0;
    for (uint32_t i = 0; i < b->pieces; i++) {
        const size_t capacity = gw_bundle_entry_bytes(x, &m->after, i);
        b->at[i] = at;
        b->size[i] = 0;
        if (capacity != 0) {
            const gw_status status =
                encode_piece(x, m, i, b->bytes + at, capacity, &b->size[i], why);
            if (status != GW_OK) {
                return status;
            }
            gw_bundle_seal(x, i);
        }
        at += b->size[i];
    }
    return GW_OK;
}

/* ---- decode ---- */

gw_status gw_bundle_open(gw_exchange *x, uint32_t piece, gw_why *why)
{
    const gw_bundle *b = &x->bundle;
    for (uint32_t i = 0; i < b->payloads; i++) {
        const uint32_t e = piece * b->payloads + i;
        const uint8_t *payload = b->bytes + b->at[e];
        const size_t bytes = b->size[e] - x->seal_bytes;
        if (!x->sealed_below && gw_get_u64(payload + bytes) != seal_of(x, payload, bytes)) {
            return gw_fail(why, GW_ERR_CHECKSUM,
                           "payload %u of piece %u (%zu bytes) was changed on its way, or is of "
                           "another step or tensor",
                           i, piece, bytes);
        }
        x->payloads[i] = (gw_payload){payload, bytes};
    }
    return GW_OK;
}

gw_status gw_bundle_decode(gw_exchange *x, const gw_move *m, uint32_t divisor, gw_why *why)
{
    const gw_bundle *b = &x->bundle;
    const int hashes = x->looked && gw_exchange_hashes_here(x); /* this is the result */
    x->hashed |= hashes;
    for (uint32_t p = 0; p < b->pieces; p++) {
        const gw_range piece = gw_operand_piece(&m->before, x->program.grain, p);
        gw_tensor out = {(float *)x->values + (piece.first - x->program.whole.first),
                         (size_t)piece.count, GW_F32};
        int finite = 1;
        gw_status status = piece.count != 0 ? gw_bundle_open(x, p, why) : GW_OK;
        if (status == GW_OK && piece.count != 0) {
            const uint64_t first = x->config.first + (piece.first - x->program.whole.first);
            status = hashes
                         ? gw_decode_sum_hashed(&x->config.params, &x->config.exec, x->payloads,
                                                b->payloads, divisor, &out, &finite,
                                                gw_exchange_hash_key(x), first, &x->stats.hash, why)
                         : gw_decode_sum(&x->config.params, &x->config.exec, x->payloads,
                                         b->payloads, divisor, &out, &finite, why);
        }
        if (status != GW_OK) {
            return status;
        }
        x->stats.finite &= finite;
    }
    return GW_OK;
}

/* ---- collectives ---- */

/* How a collective's messages are made of entries: a message has `pieces` pieces of `payloads` payloads. */
typedef struct shape {
    uint32_t members, own, pieces, payloads;
    uint32_t parts; /* members from here on get and hold no pieces */
    int by_payload; /* members' payloads come together at each piece; else their pieces are put in a row */
    int to_all, to_root, from_root, scatters, second;
} shape;

static shape shape_of(const gw_exchange *x, const gw_move *m)
{
    const int all_to_all = m->step.op == GW_OP_ALLTOALL, from_root = m->step.op == GW_OP_BROADCAST;
    shape s = {.members = m->group.size,
               .own = m->group.member,
               .parts = m->parts,
               .payloads = m->after.payloads};
    s.by_payload = all_to_all || m->step.op == GW_OP_GATHER || m->part == GW_PART_WHOLE;
    if (m->before.kind == GW_OPERAND_BUNDLE) {
        s.pieces = m->before.outer * m->before.inner / (all_to_all ? s.parts : 1);
        s.payloads = x->bundle.payloads;
    } else { /* it held nothing */
        s.pieces = m->after.outer * m->after.inner / (from_root ? 1 : s.parts);
    }
    s.to_all = m->step.op == GW_OP_ALLGATHER;
    s.scatters = all_to_all;
    s.second = s.to_all && m->part == GW_PART_SECOND;
    s.to_root = m->step.op == GW_OP_GATHER;
    s.from_root = from_root;
    return s;
}

static uint32_t entries_of(const shape *s)
{
    return s->pieces * s->payloads;
}

/* Whether member `from` sends to member `to`. */
static int sends(const shape *s, uint32_t from, uint32_t to)
{
    return s->from_root  ? from == 0 && to != 0
           : s->to_root  ? to == 0
           : s->scatters ? to < s->parts
           : s->second   ? from < s->parts
                         : 1;
}

/* Where entry `e` of member `from`'s message stands in the bundle that arrives. */
static uint32_t arrives_at(const shape *s, uint32_t from, uint32_t e)
{
    const uint32_t piece = e / s->payloads, payload = e % s->payloads;
    if (s->from_root) {
        return e;
    }
    return s->by_payload ? (piece * s->members + from) * s->payloads + payload
                         : (from * s->pieces + piece) * s->payloads + payload;
}

static void swap_bundles(gw_exchange *x)
{
    const gw_bundle b = x->bundle;
    x->bundle = x->next;
    x->next = b;
}

/* Entries one behind the other in order, so that a message is one stretch of memory. */
static gw_status pack(gw_exchange *x, gw_why *why)
{
    gw_bundle *from = &x->bundle, *to = &x->next;
    gw_status status = GW_OK;
    size_t at = 0;
    for (uint32_t e = 0; !from->packed && e < from->pieces * from->payloads; e++) {
        if (x->stay.inside && status == GW_OK) {
            status = gw_stay_copy(x, to->bytes + at, from->bytes + from->at[e], from->size[e], why);
        } else if (!x->stay.inside) {
            memcpy(to->bytes + at, from->bytes + from->at[e], from->size[e]);
        }
        to->at[e] = at;
        to->size[e] = from->size[e];
        at += from->size[e];
    }
    if (!from->packed) {
        to->pieces = from->pieces;
        to->payloads = from->payloads;
        to->packed = 1;
        swap_bundles(x);
    }
    return status;
}

/* The same collective for lengths and for payloads: `unit` 0 takes the entries' own sizes. */
static gw_status post(gw_exchange *x, const gw_move *m, const shape *s, const void *send,
                      void *receive, size_t unit, gw_why *why)
{
    const gw_messages *v = &x->messages;
    const gw_bundle *b = &x->bundle;
    const uint32_t entries = entries_of(s);
    size_t arrived = 0;
    for (uint32_t i = 0; i < s->members; i++) {
        /* an all-to-all sends a slice to each; everything else the whole bundle */
        const uint32_t first = s->to_all || s->to_root || s->from_root ? 0 : i * entries;
        v->send_size[i] = v->send_at[i] = v->size[i] = 0;
        v->at[i] = arrived;
        for (uint32_t e = first; sends(s, s->own, i) && e < first + entries; e++) {
            v->send_at[i] = e == first ? (unit != 0 ? unit * e : b->at[e]) : v->send_at[i];
            v->send_size[i] += unit != 0 ? unit : b->size[e];
        }
        for (uint32_t e = 0; sends(s, i, s->own) && e < entries; e++) {
            v->size[i] += unit != 0 ? unit : x->next.size[arrives_at(s, i, e)];
        }
        arrived += v->size[i];
        gw_exchange_count_sent(x, m, i, v->send_size[i]);
    }
    const gw_status status = gw_exchange_turn_to_comm(x, why);
    if (status != GW_OK) {
        return status;
    }
    if (s->from_root) {
        return s->own == 0
                   ? x->comm->table->broadcast(x->comm, (void *)(uintptr_t)send, v->send_size[1], 0,
                                               &x->request, why)
                   : x->comm->table->broadcast(x->comm, receive, v->size[0], 0, &x->request, why);
    }
    if (s->to_all) {
        return x->comm->table->allgatherv(x->comm, send, v->send_size[s->own], receive, v->size,
                                          v->at, &x->request, why);
    }
    return x->comm->table->alltoallv(x->comm, send, v->send_size, v->send_at, receive, v->size,
                                     v->at, &x->request, why);
}

/* Sizes of what will arrive: known from the counts, or told, and then looked at. */
static gw_status expect(gw_exchange *x, const gw_move *m, const shape *s, int told, gw_why *why)
{
    const uint32_t entries = entries_of(s);
    size_t slot = 0;
    for (uint32_t i = 0; i < s->members; i++) {
        for (uint32_t e = 0; sends(s, i, s->own) && e < entries; e++, slot++) {
            const uint32_t index = arrives_at(s, i, e);
            const size_t most = gw_bundle_entry_bytes(x, &m->after, index / m->after.payloads);
            x->next.size[index] = most;
            if (!told) {
                continue;
            }
            const uint64_t *length = x->lengths + LENGTH * (x->bundle_entries + slot);
            const uint64_t size = length[0];
            if (!x->sealed_below &&
                length[1] != seal_of(x, (const uint8_t *)length, sizeof *length)) {
                return gw_fail(why, GW_ERR_CHECKSUM,
                               "the length of a payload of member %u was changed on its way", i);
            }
            if (size > most || (most != 0 && size < x->seal_bytes)) {
                return gw_fail(why, GW_ERR_CORRUPT,
                               "member %u says it sends a payload of %llu bytes; at most %zu", i,
                               (unsigned long long)size, most);
            }
            x->next.size[index] = (size_t)size;
        }
    }
    return GW_OK;
}

static gw_status post_lengths(gw_exchange *x, const gw_move *m, const shape *s, gw_why *why)
{
    const int holds = m->before.kind == GW_OPERAND_BUNDLE;
    const uint32_t own = holds ? x->bundle.pieces * x->bundle.payloads : 0;
    for (uint32_t e = 0; e < own; e++) {
        uint64_t *length = x->lengths + LENGTH * (size_t)e;
        length[0] = x->bundle.size[e];
        length[1] = seal_of(x, (const uint8_t *)length, sizeof *length);
    }
    return post(x, m, s, x->lengths, x->lengths + LENGTH * x->bundle_entries,
                LENGTH * sizeof *x->lengths, why);
}

/* Everything has landed: say where each entry is. */
static void arrive(gw_exchange *x, const gw_move *m, const shape *s)
{
    if (m->after.kind == GW_OPERAND_NONE || (s->from_root && s->own == 0)) {
        return; /* sent all it had; or the root, which keeps it */
    }
    for (uint32_t i = 0; i < s->members; i++) {
        size_t at = x->messages.at[i];
        for (uint32_t e = 0; sends(s, i, s->own) && e < entries_of(s); e++) {
            const uint32_t index = arrives_at(s, i, e);
            x->next.at[index] = at;
            at += x->next.size[index];
        }
    }
    x->next.pieces = m->after.outer * m->after.inner;
    x->next.payloads = m->after.payloads;
    x->next.packed = 0;
    swap_bundles(x);
}

gw_status gw_bundle_collective(gw_exchange *x, const gw_move *m, int *done, gw_why *why)
{
    gw_status status = GW_OK;
    if (x->phase == 0 && m->before.kind == GW_OPERAND_BUNDLE) {
        status = pack(x, why);
    }
    const shape s = shape_of(x, m);
    /* on a device nobody waits for a length: entries are as long as they can be */
    const int told = !x->fixed_size && !x->stay.inside;
    if (status != GW_OK) {
        return status;
    }
    if (x->phase == 0 && told) {
        return post_lengths(x, m, &s, why);
    }
    if (x->phase == 0 || (x->phase == 1 && told)) {
        status = expect(x, m, &s, told, why);
        return status == GW_OK ? post(x, m, &s, x->bundle.bytes, x->next.bytes, 0, why) : status;
    }
    arrive(x, m, &s);
    *done = 1;
    return GW_OK;
}
