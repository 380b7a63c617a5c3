/* Payloads: made, shipped, and summed again. Every payload travels with a seal, a hash that also covers step
 * and tensor: a byte changed on the way, or a message of another tensor, is an error with a name and not a
 * wrong number on one replica. */
#include "base/little_endian.h"
#include "coll/exchange.h"

#include <gradwire/frame.h>

#include <string.h>

uint64_t gw_bundle_seal_of(const gw_exchange *x, const uint8_t *payload, size_t bytes)
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
    return x->memory[x->move]->entry_bytes(x, bound);
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
        gw_put_u64(payload + b->size[entry], gw_bundle_seal_of(x, payload, b->size[entry]));
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

gw_status gw_bundle_encode(gw_exchange *x, const gw_move *m, int *done, gw_why *why)
{
    gw_bundle *b = gw_bundle_begin(x, m);
    size_t at = 0;
    *done = 1;
    x->stats.coded_on |= GW_DEVICE_CPU;
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
        if (!x->sealed_below &&
            gw_get_u64(payload + bytes) != gw_bundle_seal_of(x, payload, bytes)) {
            return gw_fail(why, GW_ERR_CHECKSUM,
                           "payload %u of piece %u (%zu bytes) was changed on its way, or is of "
                           "another step or tensor",
                           i, piece, bytes);
        }
        x->payloads[i] = (gw_payload){payload, bytes};
    }
    return GW_OK;
}

/* The last decode leaves the result: divided, looked at for NaN and infinity, and hashed. */
gw_status gw_bundle_decode(gw_exchange *x, const gw_move *m, int *done, gw_why *why)
{
    const gw_bundle *b = &x->bundle;
    const int last = x->move + 1 == x->program.n_moves, hashes = last && x->hashes;
    const uint32_t divisor = gw_exchange_at_last(x) ? gw_exchange_divisor(x) : 1;
    *done = 1;
    x->stats.coded_on |= GW_DEVICE_CPU;
    x->stats.finite |= last; /* only the result counts */
    x->looked = x->divided = last;
    x->hashed |= hashes;
    for (uint32_t p = 0; p < b->pieces; p++) {
        const gw_range piece = gw_operand_piece(&m->before, x->program.grain, p);
        gw_tensor out = {(float *)x->values + (piece.first - x->program.whole.first),
                         (size_t)piece.count, GW_F32};
        int finite = 1;
        gw_status status = piece.count != 0 ? gw_bundle_open(x, p, why) : GW_OK;
        if (status == GW_OK && piece.count != 0) {
            const uint64_t first = x->config.first + (piece.first - x->program.whole.first);
            status = hashes ? gw_decode_sum_hashed(&x->config.params, &x->config.exec, x->payloads,
                                                   b->payloads, divisor, &out, &finite, x->hash_key,
                                                   first, &x->stats.hash, why)
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
