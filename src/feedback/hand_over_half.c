/* A hand-over to gradients of 16 bits: what rounding takes off becomes an orphan itself. */
#include "feedback/store.h"

#include "base/divide.h"

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
    gw_orphans_add(store, t, whole, first, n);
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
    const gw_status status = gw_hand_over_check(store, tensor, gradient, first, count, 1, &t, why);
    if (status != GW_OK) {
        return status;
    }
    if (dtype != GW_F16 && dtype != GW_BF16) {
        return GW_FAIL(why, GW_ERR_ARG, "a hand-over to 16 bits, not to %s", gw_dtype_name(dtype));
    }
    if (t->orphans == NULL) {
        gw_hand_over_open(t, 0, first, count);
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
    gw_hand_over_open(t, 1, first, count);
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
void gw_orphans_keep_rest(gw_store_tensor *t)
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
