/* Orphans: what vanished encode points held, until it is handed over. */
#include "feedback/store.h"

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

void gw_orphan_overlap(const gw_residual *orphan, uint64_t first, uint64_t end, uint64_t *from,
                       uint64_t *to)
{
    const uint64_t orphan_end = orphan->first + orphan->count;
    *from = orphan->first > first ? orphan->first : first;
    *to = orphan_end < end ? orphan_end : end;
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

void gw_orphans_take_out(gw_store_tensor *t)
{
    for (gw_residual **place = &t->orphans; *place != NULL;) {
        gw_residual *o = *place;
        uint64_t from = 0, to = 0;
        gw_orphan_overlap(o, t->open_first, t->open_end, &from, &to);
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
