/* Tensors that are sent as one: a residual of all of them has a part in every member's list, which a keeper keeps equal.
 * So checkpoints, loads, scaling and hand-overs know members alone. */
#include "feedback/store.h"

#include <stdlib.h>

void gw_joined_destroy(gw_joined *joined)
{
    if (joined != NULL) {
        gw_residual_destroy_list(&joined->whole.live);
        free(joined->members);
        free(joined);
    }
}

gw_status gw_feedback_join(gw_feedback *store, const uint32_t *tensors, size_t n, uint32_t *joined,
                           gw_why *why)
{
    if (store == NULL || tensors == NULL || n == 0 || joined == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "no store, no tensors or nowhere to put the number");
    }
    gw_joined *j = calloc(1, sizeof *j);
    size_t at = 0;
    while (at < store->n_joined && store->joined[at] != NULL) {
        at++;
    }
    void *list = store->joined;
    if (j != NULL) {
        j->members = calloc(n, sizeof *j->members);
    }
    if (j == NULL || j->members == NULL ||
        !gw_store_grow(&list, sizeof(gw_joined *), at, &store->room_joined)) {
        gw_joined_destroy(j);
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory to join %zu tensors", n);
    }
    store->joined = list;
    for (; j->n < n; j->n++) {
        const uint32_t tensor = tensors[j->n];
        if (tensor >= store->n_tensors) {
            gw_joined_destroy(j);
            return GW_FAIL(why, GW_ERR_ARG, "tensor number %u is not in the store", tensor);
        }
        j->members[j->n] = tensor;
        j->whole.elements += store->tensors[tensor].elements;
    }
    j->whole.name = store->tensors[tensors[0]].name;
    j->whole.name_bytes = store->tensors[tensors[0]].name_bytes;
    store->n_joined += at == store->n_joined;
    store->joined[at] = j;
    *joined = (uint32_t)at | GW_STORE_JOINED;
    return GW_OK;
}

gw_status gw_feedback_part(gw_feedback *store, uint32_t joined, gw_why *why)
{
    gw_joined *j = store != NULL ? gw_store_joined(store, joined) : NULL;
    if (j == NULL || j->whole.live != NULL) {
        return GW_FAIL(why, j == NULL ? GW_ERR_ARG : GW_ERR_STATE, "tensor number %u: %s", joined,
                       j == NULL ? "no joined tensor" : "it has residuals");
    }
    store->joined[joined & ~GW_STORE_JOINED] = NULL;
    gw_joined_destroy(j);
    return GW_OK;
}

/* ---- parts ---- */

static gw_status fetch_part(void *context, float *r, uint64_t count, gw_why *why)
{
    const gw_residual *part = context;
    const gw_status status = gw_residual_fetch(part->whole, why);
    if (status == GW_OK) {
        memcpy(r, part->whole->r + part->at, (size_t)count * sizeof *r);
    }
    return status;
}

static gw_status put_part(void *context, const float *r, uint64_t count, gw_why *why)
{
    const gw_residual *part = context;
    gw_status status = gw_residual_fetch(part->whole, why); /* the other parts stay */
    if (status == GW_OK) {
        memcpy(part->whole->r + part->at, r, (size_t)count * sizeof *r);
        status = gw_residual_put(part->whole, why);
    }
    return status;
}

/* The member that begins at element `base` of the joined tensor, as far as the residual covers it. */
static gw_status add_part(gw_store_tensor *member, uint64_t base, gw_residual *whole, gw_why *why)
{
    const uint64_t end = whole->first + whole->count, last = base + member->elements;
    const uint64_t from = whole->first > base ? whole->first : base;
    const uint64_t to = end < last ? end : last;
    if (from >= to) {
        return GW_OK;
    }
    gw_residual *part = gw_residual_create(whole->point, from - base, to - from, 0);
    const gw_name_shown name = gw_name_show(member->name, member->name_bytes);
    if (part == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for %llu numbers of tensor '%s'",
                       (unsigned long long)(to - from), name.text);
    }
    part->whole = whole;
    part->at = from - whole->first;
    part->keeper =
        (gw_feedback_keeper){.context = part, .fetch = fetch_part, .put = put_part, .here = 0};
    if (!gw_residual_insert(&member->live, part)) {
        gw_residual_destroy(part);
        return GW_FAIL(why, GW_ERR_STATE, "tensor '%s' has a residual at encode point %u already",
                       name.text, whole->point);
    }
    return GW_OK;
}

gw_status gw_joined_add_parts(gw_feedback *store, const gw_joined *joined, gw_residual *whole,
                              gw_why *why)
{
    gw_status status = GW_OK;
    uint64_t base = 0;
    for (size_t i = 0; i < joined->n && status == GW_OK; i++) {
        gw_store_tensor *member = &store->tensors[joined->members[i]];
        status = add_part(member, base, whole, why);
        base += member->elements;
    }
    if (status != GW_OK) {
        gw_joined_retire_parts(store, joined, whole, 1);
    }
    return status;
}

gw_status gw_joined_check_retire(const gw_feedback *store, const gw_joined *joined, gw_why *why)
{
    for (size_t i = 0; i < joined->n; i++) {
        const gw_store_tensor *t = &store->tensors[joined->members[i]];
        if (t->open) {
            return GW_FAIL(why, GW_ERR_STATE,
                           "tensor '%s' has an open hand-over: a residual cannot retire",
                           gw_name_show(t->name, t->name_bytes).text);
        }
    }
    return GW_OK;
}

void gw_joined_retire_parts(gw_feedback *store, const gw_joined *joined, const gw_residual *whole,
                            int drop)
{
    for (size_t i = 0; i < joined->n; i++) {
        gw_store_tensor *member = &store->tensors[joined->members[i]];
        gw_residual *part = member->live;
        while (part != NULL && part->whole != whole) {
            part = part->next;
        }
        if (part == NULL) {
            continue;
        }
        gw_residual_unlink(&member->live, part);
        memcpy(part->r, whole->r + part->at, (size_t)part->count * sizeof *part->r);
        part->keeper = (gw_feedback_keeper){0};
        part->whole = NULL;
        if (drop) {
            gw_residual_destroy(part);
        } else {
            gw_residual_append(&member->orphans, part);
        }
    }
}
