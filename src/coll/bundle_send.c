/* Payloads sent: how a collective's messages are made of a bundle's entries, and where these stand when they arrive. */
#include "coll/exchange.h"

#include <string.h>

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
        if (status == GW_OK) {
            status = x->memory[x->move]->copy(x, to->bytes + at, from->bytes + from->at[e],
                                              from->size[e], why);
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
            const gw_status status = gw_bundle_take_length(x, i, slot, &x->next.size[index], why);
            if (status != GW_OK) {
                return status;
            }
        }
    }
    return GW_OK;
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
    const int told = !x->fixed_size && !x->memory[x->move]->device;
    if (status != GW_OK) {
        return status;
    }
    if (x->phase == 0 && told) {
        gw_bundle_put_lengths(x, m->before.kind == GW_OPERAND_BUNDLE);
        return post(x, m, &s, x->lengths, x->lengths + GW_LENGTH * x->bundle_entries,
                    GW_LENGTH * sizeof *x->lengths, why);
    }
    if (x->phase == 0 || (x->phase == 1 && told)) {
        status = expect(x, m, &s, told, why);
        return status == GW_OK ? post(x, m, &s, x->bundle.bytes, x->next.bytes, 0, why) : status;
    }
    arrive(x, m, &s);
    *done = 1;
    return GW_OK;
}
