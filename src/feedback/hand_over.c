/* Hand-over: what a vanished encode point held goes into its holder's next gradient. */
#include "feedback/store.h"

gw_status gw_hand_over_check(const gw_feedback *store, uint32_t tensor, const void *gradient,
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

void gw_hand_over_open(gw_store_tensor *t, int rounds, uint64_t first, uint64_t count)
{
    if (!t->open) {
        t->open_first = first;
        t->leaves = 0;
    }
    t->open = 1;
    t->rounds = rounds;
    t->open_end = first + count;
}

void gw_orphans_add(const gw_feedback *store, const gw_store_tensor *t, float *gradient,
                    uint64_t first, uint64_t count)
{
    for (const gw_residual *o = t->orphans; o != NULL; o = o->next) {
        uint64_t from = 0, to = 0;
        gw_orphan_overlap(o, first, first + count, &from, &to);
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
    const gw_status status = gw_hand_over_check(store, tensor, gradient, first, count, 0, &t, why);
    if (status != GW_OK) {
        return status;
    }
    const uint32_t caller = gw_fp_enter();
    gw_orphans_add(store, t, gradient, first, count);
    gw_fp_leave(caller);
    gw_hand_over_open(t, 0, first, count);
    return GW_OK;
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
    if (t->orphans != NULL) {
        gw_orphans_take_out(t);
    }
    if (t->rounds) {
        gw_orphans_keep_rest(t);
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
