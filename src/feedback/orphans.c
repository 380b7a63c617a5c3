/* Hand-over: what a vanished encode point held goes into its holder's next gradient. */
#include "feedback/store.h"

#include "base/divide.h"
#include "base/huge_pages.h"

#include <stdlib.h>

gw_status gw_feedback_retire(gw_feedback *store, uint64_t slot, gw_why *why)
{
    gw_store_slot *s = NULL;
    gw_status status = gw_store_slot_at(store, slot, &s, why);
    if (status != GW_OK) {
        return status;
    }
    gw_store_tensor *t = gw_store_tensor_of(store, s);
    const gw_joined *joined = gw_store_joined(store, s->tensor);
    gw_residual *residual = s->residual;
    /* a commit of an open hand-over would clear an orphan that was never handed over */
    if (residual->open || t->open) {
        return GW_FAIL(why, GW_ERR_STATE, "tensor '%s' has an open %s: a residual cannot retire",
                       gw_name_show(t->name, t->name_bytes).text,
                       t->open ? "hand-over" : "encoding");
    }
    status = joined != NULL ? gw_joined_check_retire(store, joined, why) : GW_OK;
    if (status != GW_OK) {
        return status;
    }
    status = gw_residual_fetch(residual, why); /* the keeper goes, whatever it could bring */
    residual->keeper = (gw_feedback_keeper){0};
    gw_residual_unlink(&t->live, residual);
    const int drop = status != GW_OK || (residual->point & GW_FEEDBACK_COPY) != 0;
    if (joined != NULL) {
        gw_joined_retire_parts(store, joined, residual, drop);
    }
    s->residual = NULL;
    store->n_free += s->generation != UINT32_MAX;
    gw_pages_free(residual->after);
    residual->after = NULL;
    if (drop || joined != NULL || residual->count == 0) {
        gw_residual_destroy(residual);
    } else {
        gw_residual_append(&t->orphans, residual);
    }
    return status;
}

size_t gw_feedback_orphans(const gw_feedback *store, uint32_t tensor)
{
    gw_store_tensor *t = NULL;
    size_t n = 0;
    if (gw_store_tensor_at(store, tensor, &t, NULL) == GW_OK) {
        for (const gw_residual *o = t->orphans; o != NULL; o = o->next) {
            n++;
        }
    }
    return n;
}

/* The part of the orphan that lies in [first, end), as element numbers; empty if *from >= *to. */
static void overlap(const gw_residual *orphan, uint64_t first, uint64_t end, uint64_t *from,
                    uint64_t *to)
{
    const uint64_t orphan_end = orphan->first + orphan->count;
    *from = orphan->first > first ? orphan->first : first;
    *to = orphan_end < end ? orphan_end : end;
}

/* What a hand-over asks first. */
static gw_status check_hand_over(const gw_feedback *store, uint32_t tensor, const void *gradient,
                                 uint64_t first, uint64_t count, int half, gw_store_tensor **out,
                                 gw_why *why)
{
    gw_status status = gw_store_tensor_at(store, tensor, out, why);
    if (status == GW_OK) {
        status = gw_store_check_range(*out, first, count, why);
    }
    if (status != GW_OK) {
        return status;
    }
    const gw_store_tensor *t = *out;
    if (gradient == NULL && count != 0) {
        return GW_FAIL(why, GW_ERR_ARG, "no gradient");
    }
    if (t->open && first != t->open_end) {
        return GW_FAIL(why, GW_ERR_STATE, "tensor '%s' has an open hand-over up to element %llu",
                       gw_name_show(t->name, t->name_bytes).text, (unsigned long long)t->open_end);
    }
    if (t->open && t->rounds != (half && t->orphans != NULL)) {
        return GW_FAIL(why, GW_ERR_STATE, "tensor '%s' has an open hand-over of another width",
                       gw_name_show(t->name, t->name_bytes).text);
    }
    return GW_OK;
}

static void open_hand_over(gw_store_tensor *t, int rounds, uint64_t first, uint64_t count)
{
    if (!t->open) {
        t->open_first = first;
        t->leaves = 0;
    }
    t->open = 1;
    t->rounds = rounds;
    t->open_end = first + count;
}

static void add_orphans(const gw_feedback *store, const gw_store_tensor *t, float *gradient,
                        uint64_t first, uint64_t count)
{
    for (const gw_residual *o = t->orphans; o != NULL; o = o->next) {
        uint64_t from = 0, to = 0;
        overlap(o, first, first + count, &from, &to);
        if (from < to) {
            store->convert->add(GW_F32, o->r + (from - o->first), gradient + (from - first),
                                (size_t)(to - from));
        }
    }
}

gw_status gw_feedback_hand_over(gw_feedback *store, uint32_t tensor, float *gradient,
                                uint64_t first, uint64_t count, gw_why *why)
{
    gw_store_tensor *t = NULL;
    const gw_status status = check_hand_over(store, tensor, gradient, first, count, 0, &t, why);
    if (status != GW_OK) {
        return status;
    }
    const uint32_t caller = gw_fp_enter();
    add_orphans(store, t, gradient, first, count);
    gw_fp_leave(caller);
    open_hand_over(t, 0, first, count);
    return GW_OK;
}

/* ---- to 16 bits ---- */

/* The orphan that rounding leaves, where one was committed; else what stands ready for it. */
static gw_residual *rest_of(const gw_store_tensor *t)
{
    gw_residual *o = t->orphans;
    while (o != NULL && o->after == NULL) {
        o = o->next;
    }
    return o != NULL ? o : t->rest;
}

/* The largest number that `dtype` has, with the sign of x, for a finite x beyond it. */
static float clamp(float x, gw_dtype dtype)
{
    const uint32_t bits = gw_bits(x), size = bits & GW_ABS_MASK;
    const uint32_t largest = dtype == GW_F16 ? 0x477FE000u : 0x7F7F0000u;
    return size >= gw_overflow_bits(dtype) && size < GW_INF_BITS
               ? gw_float((bits & GW_SIGN_BIT) | largest)
               : x;
}

enum { BLOCK = 1024 };

/* Numbers that were finite stay so. A block's rest goes to `after`. */
static void round_block(const gw_feedback *store, gw_store_tensor *t, gw_dtype dtype,
                        uint16_t *gradient, uint64_t first, size_t n, float *after)
{
    float whole[BLOCK], sent[BLOCK];
    store->convert->widen(dtype, gradient, sent, n);
    memcpy(whole, sent, n * sizeof *whole);
    add_orphans(store, t, whole, first, n);
    for (size_t i = 0; i < n; i++) {
        const int finite = (gw_bits(sent[i]) & GW_ABS_MASK) < GW_INF_BITS;
        sent[i] = finite ? clamp(whole[i], dtype) : whole[i];
    }
    (void)store->convert->narrow(dtype, sent, gradient, n);
    store->convert->widen(dtype, gradient, sent, n);
    for (size_t i = 0; i < n; i++) {
        after[i] = whole[i] - sent[i];
    }
    t->leaves |= store->convert->largest(after, n);
}

gw_status gw_feedback_hand_over_half(gw_feedback *store, uint32_t tensor, gw_dtype dtype,
                                     void *gradient, uint64_t first, uint64_t count, gw_why *why)
{
    gw_store_tensor *t = NULL;
    const gw_status status = check_hand_over(store, tensor, gradient, first, count, 1, &t, why);
    if (status != GW_OK) {
        return status;
    }
    if (dtype != GW_F16 && dtype != GW_BF16) {
        return GW_FAIL(why, GW_ERR_ARG, "a hand-over to 16 bits, not to %s", gw_dtype_name(dtype));
    }
    if (t->orphans == NULL) {
        open_hand_over(t, 0, first, count);
        return GW_OK;
    }
    gw_residual *rest = rest_of(t);
    if (rest == NULL) { /* once for all steps that rounding leaves something to */
        rest = t->rest = gw_residual_create(0, 0, t->elements, 1);
    }
    if (rest == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "tensor '%s': no memory for what rounding leaves",
                       gw_name_show(t->name, t->name_bytes).text);
    }
    open_hand_over(t, 1, first, count);
    const uint32_t caller = gw_fp_enter();
    uint16_t *to = gradient;
    for (uint64_t at = 0; at < count; at += BLOCK) {
        const size_t n = count - at < BLOCK ? (size_t)(count - at) : BLOCK;
        round_block(store, t, dtype, to + at, first + at, n, rest->after + first + at);
    }
    gw_fp_leave(caller);
    return GW_OK;
}

/* What the hand-over left becomes what the orphan of rounding holds there. */
static void keep_rest(gw_store_tensor *t)
{
    gw_residual *rest = rest_of(t);
    const uint64_t count = t->open_end - t->open_first;
    memcpy(rest->r + t->open_first, rest->after + t->open_first, (size_t)count * sizeof *rest->r);
    const int empty = t->leaves == 0 && count == t->elements;
    if (rest == t->rest && !empty) {
        gw_residual_append(&t->orphans, rest);
        t->rest = NULL;
    } else if (rest != t->rest && empty) {
        gw_residual **place = &t->orphans;
        while (*place != rest) {
            place = &(*place)->next;
        }
        *place = rest->next;
        t->rest = rest;
    }
}

/* Takes [from, to), not all of it, out of an orphan: at an end it shrinks, in the middle zeros stay. */
static void cut(gw_residual *orphan, uint64_t from, uint64_t to)
{
    const uint64_t gone = to - from;
    gw_pages_free(orphan->after);
    orphan->after = NULL;
    if (from == orphan->first) {
        orphan->r += gone;
        orphan->first = to;
        orphan->count -= gone;
    } else if (to == orphan->first + orphan->count) {
        orphan->count -= gone;
    } else {
        memset(orphan->r + (from - orphan->first), 0, (size_t)gone * sizeof *orphan->r);
    }
}

/* The tensor, if a hand-over of it is open. */
static gw_status open_tensor(const gw_feedback *store, uint32_t tensor, gw_store_tensor **out,
                             gw_why *why)
{
    const gw_status status = gw_store_tensor_at(store, tensor, out, why);
    if (status == GW_OK && !(*out)->open) {
        return GW_FAIL(why, GW_ERR_STATE, "tensor '%s': no hand-over is open",
                       gw_name_show((*out)->name, (*out)->name_bytes).text);
    }
    return status;
}

gw_status gw_feedback_hand_over_commit(gw_feedback *store, uint32_t tensor, gw_why *why)
{
    gw_store_tensor *t = NULL;
    const gw_status status = open_tensor(store, tensor, &t, why);
    if (status != GW_OK) {
        return status;
    }
    for (gw_residual **place = &t->orphans; *place != NULL;) {
        gw_residual *o = *place;
        uint64_t from = 0, to = 0;
        overlap(o, t->open_first, t->open_end, &from, &to);
        if (t->rounds && o->after != NULL) {
            place = &o->next;
            continue;
        }
        if (from < to && to - from == o->count) {
            *place = o->next;
            gw_residual_destroy(o);
            continue;
        }
        if (from < to) {
            cut(o, from, to);
        }
        place = &o->next;
    }
    if (t->rounds) {
        keep_rest(t);
    }
    t->open = 0;
    return GW_OK;
}

gw_status gw_feedback_hand_over_rollback(gw_feedback *store, uint32_t tensor, gw_why *why)
{
    gw_store_tensor *t = NULL;
    const gw_status status = open_tensor(store, tensor, &t, why);
    if (status == GW_OK) {
        t->open = 0;
    }
    return status;
}

static gw_status scale_list(const gw_residual *list, float factor, gw_why *why)
{
    gw_status status = GW_OK;
    for (; list != NULL && status == GW_OK; list = list->next) {
        status = gw_residual_fetch(list, why);
        for (uint64_t i = 0; i < list->count && status == GW_OK; i++) {
            list->r[i] *= factor;
        }
        status = status == GW_OK ? gw_residual_put(list, why) : status;
    }
    return status;
}

gw_status gw_feedback_scale(gw_feedback *store, double factor, gw_why *why)
{
    GW_REQUIRE(why, store != NULL, "no store");
    if (!(factor > 0 && factor < 1e30)) {
        return GW_FAIL(why, GW_ERR_RANGE, "residuals times %g", factor);
    }
    gw_status status = gw_store_check_quiet(store, why);
    for (size_t i = 0; i < store->n_tensors && status == GW_OK; i++) {
        status = scale_list(store->tensors[i].live, (float)factor, why);
        if (status == GW_OK) {
            status = scale_list(store->tensors[i].orphans, (float)factor, why);
        }
    }
    return status;
}
