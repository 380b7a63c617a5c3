/* The residual store: tensors, slots, and the transaction of an encoding. */
#include "feedback/store.h"

#include "base/huge_pages.h"

#include <stdlib.h>

/* ---- numbers ---- */

/* r and r' are gone over side by side, and with the gradient. */
enum { TURN_R = 1, TURN_AFTER = 2 };

static float *numbers_for(uint64_t count, unsigned turn)
{
    const size_t line = 64;
    if (count >= GW_FEEDBACK_MAX_ELEMENTS || count > (SIZE_MAX - line) / sizeof(float)) {
        return NULL;
    }
    const size_t bytes = ((size_t)count * sizeof(float) / line + 1) * line;
    float *numbers = gw_pages_allocate(bytes, turn);
    if (numbers != NULL) {
        memset(numbers, 0, bytes);
    }
    return numbers;
}

gw_residual *gw_residual_create(uint32_t point, uint64_t first, uint64_t count, int with_after)
{
    gw_residual *residual = calloc(1, sizeof *residual);
    if (residual == NULL) {
        return NULL;
    }
    *residual = (gw_residual){.point = point, .first = first, .count = count};
    residual->r = numbers_for(count, TURN_R);
    residual->memory = residual->r;
    residual->after = with_after ? numbers_for(count, TURN_AFTER) : NULL;
    if (residual->r == NULL || (with_after && residual->after == NULL)) {
        gw_residual_destroy(residual);
        return NULL;
    }
    return residual;
}

void gw_residual_destroy(gw_residual *residual)
{
    if (residual != NULL) {
        gw_pages_free(residual->memory);
        gw_pages_free(residual->after);
        free(residual);
    }
}

void gw_residual_destroy_list(gw_residual **list)
{
    while (*list != NULL) {
        gw_residual *residual = *list;
        *list = residual->next;
        gw_residual_destroy(residual);
    }
}

int gw_residual_insert(gw_residual **list, gw_residual *residual)
{
    while (*list != NULL && (*list)->point < residual->point) {
        list = &(*list)->next;
    }
    if (*list != NULL && (*list)->point == residual->point) {
        return 0;
    }
    residual->next = *list;
    *list = residual;
    return 1;
}

void gw_residual_unlink(gw_residual **list, const gw_residual *residual)
{
    while (*list != residual) {
        list = &(*list)->next;
    }
    *list = residual->next;
}

void gw_residual_append(gw_residual **list, gw_residual *residual)
{
    while (*list != NULL) {
        list = &(*list)->next;
    }
    residual->next = NULL;
    *list = residual;
}

gw_status gw_residual_fetch(const gw_residual *residual, gw_why *why)
{
    const gw_feedback_keeper *k = &residual->keeper;
    return k->fetch != NULL ? k->fetch(k->context, residual->r, residual->count, why) : GW_OK;
}

gw_status gw_residual_put(const gw_residual *residual, gw_why *why)
{
    const gw_feedback_keeper *k = &residual->keeper;
    return k->put != NULL ? k->put(k->context, residual->r, residual->count, why) : GW_OK;
}

int gw_all_finite(const float *x, uint64_t count, uint64_t *at)
{
    enum { BLOCK = 4096 };
    for (uint64_t from = 0; from < count; from += BLOCK) {
        const uint64_t to = count - from < BLOCK ? count : from + BLOCK;
        uint32_t seen = 0;
        for (uint64_t i = from; i < to; i++) { /* an exponent of all ones carries into the sign */
            seen |= (gw_bits(x[i]) & GW_INF_BITS) + ((uint32_t)1 << GW_MANT_BITS);
        }
        if ((seen & GW_SIGN_BIT) != 0) {
            *at = from;
            while ((gw_bits(x[*at]) & GW_INF_BITS) != GW_INF_BITS) {
                ++*at;
            }
            return 0;
        }
    }
    return 1;
}

/* ---- the store ---- */

gw_status gw_feedback_create(gw_feedback_mode mode, uint32_t rank, uint32_t world,
                             gw_feedback **out, gw_why *why)
{
    if (out == NULL || (mode != GW_FEEDBACK_BESIDE && mode != GW_FEEDBACK_IN_PLACE)) {
        return GW_FAIL(why, GW_ERR_ARG, "mode %d is unknown, or nowhere to put the store",
                       (int)mode);
    }
    if (rank >= world) {
        return GW_FAIL(why, GW_ERR_RANGE, "rank %u of %u", rank, world);
    }
    gw_feedback *store = calloc(1, sizeof *store);
    if (store == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for a store");
    }
    *store = (gw_feedback){
        .mode = mode, .rank = rank, .world = world, .convert = gw_convert_for(gw_isa_best())};
    if (store->convert == NULL) {
        store->convert = &gw_convert_scalar;
    }
    *out = store;
    return GW_OK;
}

void gw_feedback_destroy(gw_feedback *store)
{
    if (store == NULL) {
        return;
    }
    for (size_t i = 0; i < store->n_joined; i++) {
        gw_joined_destroy(store->joined[i]);
    }
    free(store->joined);
    for (size_t i = 0; i < store->n_tensors; i++) {
        gw_residual_destroy_list(&store->tensors[i].live);
        gw_residual_destroy_list(&store->tensors[i].orphans);
        gw_residual_destroy(store->tensors[i].rest);
        free(store->tensors[i].name);
    }
    free(store->tensors);
    free(store->sorted);
    free(store->slots);
    free(store);
}

gw_status gw_store_check_name(const char *name, size_t bytes, gw_why *why)
{
    if (bytes == 0 || bytes > GW_FEEDBACK_MAX_NAME || !gw_name_is_utf8(name, bytes)) {
        return GW_FAIL(why, GW_ERR_RANGE,
                       "a tensor's name is empty, longer than %d bytes, has a NUL or is not UTF-8",
                       GW_FEEDBACK_MAX_NAME);
    }
    return GW_OK;
}

gw_store_tensor *gw_store_tensor_of(const gw_feedback *store, const gw_store_slot *slot)
{
    gw_joined *joined = gw_store_joined(store, slot->tensor);
    return joined != NULL ? &joined->whole : &store->tensors[slot->tensor];
}

gw_status gw_store_slot_at(const gw_feedback *store, uint64_t slot, gw_store_slot **out,
                           gw_why *why)
{
    const uint64_t index = slot & UINT32_MAX;
    if (store == NULL || index >= store->n_slots) {
        return GW_FAIL(why, GW_ERR_ARG, "no store, or slot %016llX is not in it",
                       (unsigned long long)slot);
    }
    gw_store_slot *s = &store->slots[index];
    if (s->residual == NULL || s->generation != slot >> 32) {
        return GW_FAIL(why, GW_ERR_STATE, "slot %016llX was retired", (unsigned long long)slot);
    }
    *out = s;
    return GW_OK;
}

size_t gw_store_search(const gw_feedback *store, const char *name, size_t bytes, int *found)
{
    size_t low = 0, high = store->n_tensors;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const gw_store_tensor *t = &store->tensors[store->sorted[middle]];
        const int c = gw_name_compare(t->name, t->name_bytes, name, bytes);
        if (c == 0) {
            *found = 1;
            return middle;
        }
        if (c < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    *found = 0;
    return low;
}

gw_status gw_store_check_quiet(const gw_feedback *store, gw_why *why)
{
    for (size_t i = 0; i < store->n_tensors + store->n_joined; i++) {
        const gw_joined *joined = i < store->n_tensors ? NULL : store->joined[i - store->n_tensors];
        if (i >= store->n_tensors && joined == NULL) {
            continue;
        }
        const gw_store_tensor *t = joined != NULL ? &joined->whole : &store->tensors[i];
        int open = t->open;
        for (const gw_residual *r = t->live; r != NULL; r = r->next) {
            open |= r->open;
        }
        if (open) {
            return GW_FAIL(
                why, GW_ERR_STATE, "tensor '%s' has an open %s: commit it or roll it back first",
                gw_name_show(t->name, t->name_bytes).text, t->open ? "hand-over" : "encoding");
        }
    }
    return GW_OK;
}

/* ---- tensors and slots ---- */

int gw_store_grow(void **items, size_t item, size_t n, size_t *room)
{
    if (n < *room) {
        return 1;
    }
    const size_t larger = *room != 0 ? *room * 2 : 16;
    void *moved = realloc(*items, larger * item);
    if (moved == NULL) {
        return 0;
    }
    *items = moved;
    *room = larger;
    return 1;
}

gw_status gw_feedback_add_tensor(gw_feedback *store, const char *name, uint64_t elements,
                                 uint32_t *tensor, gw_why *why)
{
    if (store == NULL || name == NULL || tensor == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "no store, no name or nowhere to put the tensor's number");
    }
    const size_t bytes = strlen(name);
    const gw_status status = gw_store_check_name(name, bytes, why);
    if (status != GW_OK) {
        return status;
    }
    int found = 0;
    const size_t place = gw_store_search(store, name, bytes, &found);
    if (found) {
        return GW_FAIL(why, GW_ERR_STATE, "tensor '%s' is there already",
                       gw_name_show(name, bytes).text);
    }
    if (elements >= GW_FEEDBACK_MAX_ELEMENTS || store->n_tensors >= GW_FEEDBACK_MAX_TENSORS) {
        return GW_FAIL(why, GW_ERR_RANGE, "tensor '%s': 2^48 elements or more, or after %d tensors",
                       gw_name_show(name, bytes).text, GW_FEEDBACK_MAX_TENSORS);
    }
    size_t room = store->room_tensors;
    void *tensors = store->tensors, *sorted = store->sorted;
    char *copy = malloc(bytes + 1);
    const int grown =
        copy != NULL && gw_store_grow(&sorted, sizeof *store->sorted, store->n_tensors, &room);
    store->sorted = sorted;
    if (!grown ||
        !gw_store_grow(&tensors, sizeof *store->tensors, store->n_tensors, &store->room_tensors)) {
        free(copy);
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for tensor '%s'",
                       gw_name_show(name, bytes).text);
    }
    store->tensors = tensors;
    memcpy(copy, name, bytes + 1);
    store->tensors[store->n_tensors] =
        (gw_store_tensor){.name = copy, .name_bytes = bytes, .elements = elements};
    memmove(store->sorted + place + 1, store->sorted + place,
            (store->n_tensors - place) * sizeof *store->sorted);
    store->sorted[place] = (uint32_t)store->n_tensors;
    *tensor = (uint32_t)store->n_tensors++;
    return GW_OK;
}

gw_status gw_feedback_find(const gw_feedback *store, const char *name, uint32_t *tensor,
                           gw_why *why)
{
    int found = 0;
    if (store == NULL || name == NULL || tensor == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "no store, no name or nowhere to put the tensor's number");
    }
    const size_t bytes = strlen(name), place = gw_store_search(store, name, bytes, &found);
    if (!found) {
        return GW_FAIL(why, GW_ERR_UNKNOWN, "tensor '%s' is unknown",
                       gw_name_show(name, bytes).text);
    }
    *tensor = store->sorted[place];
    return GW_OK;
}

/* A free slot: a retired one under its next number, or a new one. NULL without memory. */
static gw_store_slot *free_slot(gw_feedback *store)
{
    for (size_t i = 0; store->n_free != 0 && i < store->n_slots; i++) {
        if (store->slots[i].residual == NULL && store->slots[i].generation != UINT32_MAX) {
            store->n_free--;
            return &store->slots[i];
        }
    }
    void *slots = store->slots;
    if (!gw_store_grow(&slots, sizeof *store->slots, store->n_slots, &store->room_slots)) {
        return NULL;
    }
    store->slots = slots;
    gw_store_slot *slot = &store->slots[store->n_slots++];
    *slot = (gw_store_slot){0};
    return slot;
}

gw_status gw_feedback_add(gw_feedback *store, uint32_t tensor, uint32_t point, uint64_t first,
                          uint64_t count, uint64_t *slot, gw_why *why)
{
    gw_store_tensor *t = NULL;
    gw_status status = gw_store_tensor_at(store, tensor, &t, why);
    if (status == GW_OK) {
        status = slot == NULL ? GW_FAIL(why, GW_ERR_ARG, "nowhere to put the slot")
                              : gw_store_check_range(t, first, count, why);
    }
    if (status != GW_OK) {
        return status;
    }
    const gw_name_shown name = gw_name_show(t->name, t->name_bytes);
    if (store->n_slots - store->n_free >= GW_FEEDBACK_MAX_SLOTS) {
        return GW_FAIL(why, GW_ERR_RANGE, "tensor '%s': after %d slots", name.text,
                       GW_FEEDBACK_MAX_SLOTS);
    }
    gw_residual *residual =
        gw_residual_create(point, first, count, store->mode == GW_FEEDBACK_BESIDE);
    if (residual == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for %llu numbers of tensor '%s'",
                       (unsigned long long)count, name.text);
    }
    if (!gw_residual_insert(&t->live, residual)) {
        gw_residual_destroy(residual);
        return GW_FAIL(why, GW_ERR_STATE, "tensor '%s' has a residual at encode point %u already",
                       name.text, point);
    }
    const gw_joined *joined = gw_store_joined(store, tensor);
    status = joined != NULL ? gw_joined_add_parts(store, joined, residual, why) : GW_OK;
    gw_store_slot *s = status == GW_OK ? free_slot(store) : NULL;
    if (s == NULL) {
        if (status == GW_OK && joined != NULL) {
            gw_joined_retire_parts(store, joined, residual, 1);
        }
        gw_residual_unlink(&t->live, residual);
        gw_residual_destroy(residual);
        return status != GW_OK
                   ? status
                   : GW_FAIL(why, GW_ERR_MEMORY, "no memory for a slot of tensor '%s'", name.text);
    }
    *s = (gw_store_slot){residual, tensor, s->generation + 1};
    *slot = (uint64_t)s->generation << 32 | (uint64_t)(s - store->slots);
    return GW_OK;
}

/* ---- the transaction of an encoding ---- */

const float *gw_feedback_residual(const gw_feedback *store, uint64_t slot)
{
    gw_store_slot *s = NULL;
    return gw_store_slot_at(store, slot, &s, NULL) == GW_OK &&
                   gw_residual_fetch(s->residual, NULL) == GW_OK
               ? s->residual->r
               : NULL;
}

/* A failure about one residual, with its tensor and encode point in front. */
static gw_status fail_at(const gw_feedback *store, const gw_store_slot *s, gw_status status,
                         const char *words, gw_why *why)
{
    const gw_store_tensor *t = gw_store_tensor_of(store, s);
    return GW_FAIL(why, status, "tensor '%s', encode point %u: %s",
                   gw_name_show(t->name, t->name_bytes).text, s->residual->point, words);
}

gw_status gw_feedback_keep(gw_feedback *store, uint64_t slot, const gw_feedback_keeper *keeper,
                           gw_why *why)
{
    gw_store_slot *s = NULL;
    gw_status status = gw_store_slot_at(store, slot, &s, why);
    if (status != GW_OK) {
        return status;
    }
    gw_residual *residual = s->residual;
    if (residual->open || store->mode != GW_FEEDBACK_BESIDE) {
        return fail_at(store, s, GW_ERR_STATE, "an encoding is open, or r' lies in the gradient",
                       why);
    }
    const int here = keeper == NULL || keeper->here, lacks = here && residual->after == NULL;
    float *after = lacks ? numbers_for(residual->count, TURN_AFTER) : NULL;
    if (lacks && after == NULL) {
        return fail_at(store, s, GW_ERR_MEMORY, "no memory", why);
    }
    status = gw_residual_fetch(residual, why);
    if (status == GW_OK && keeper != NULL) {
        status = keeper->put(keeper->context, residual->r, residual->count, why);
    }
    if (status != GW_OK) {
        gw_pages_free(after);
        return status;
    }
    if (!here) {
        gw_pages_free(residual->after);
    }
    residual->after = !here ? NULL : lacks ? after : residual->after;
    residual->keeper = keeper != NULL ? *keeper : (gw_feedback_keeper){0};
    return GW_OK;
}

gw_status gw_feedback_begin(gw_feedback *store, uint64_t slot, const float **r, float **after,
                            gw_why *why)
{
    gw_store_slot *s = NULL;
    const gw_status status = gw_store_slot_at(store, slot, &s, why);
    if (status != GW_OK) {
        return status;
    }
    if (r == NULL || (after == NULL && store->mode == GW_FEEDBACK_BESIDE)) {
        return fail_at(store, s, GW_ERR_ARG, "nowhere to put r or where r' goes", why);
    }
    if (s->residual->open) {
        return fail_at(store, s, GW_ERR_STATE, "an encoding is open already", why);
    }
    s->residual->open = 1;
    *r = gw_residual_is_away(s->residual) ? NULL : s->residual->r;
    if (after != NULL) {
        *after = s->residual->after;
    }
    return GW_OK;
}

/* The slot of an open encoding, and in *from where its r' lies. */
static gw_status open_slot(const gw_feedback *store, uint64_t slot, const float *after,
                           gw_store_slot **out, const float **from, gw_why *why)
{
    const gw_status status = gw_store_slot_at(store, slot, out, why);
    if (status != GW_OK) {
        return status;
    }
    const gw_residual *residual = (*out)->residual;
    if (!residual->open) {
        return fail_at(store, *out, GW_ERR_STATE, "no encoding is open, so there is no new r'",
                       why);
    }
    if (store->mode == GW_FEEDBACK_BESIDE && after != NULL) {
        return fail_at(store, *out, GW_ERR_ARG, "r' lies in the store, not elsewhere", why);
    }
    if (store->mode == GW_FEEDBACK_IN_PLACE && (after == NULL || after == residual->r)) {
        return fail_at(store, *out, GW_ERR_ARG, "r' must lie in the caller's gradient", why);
    }
    *from = store->mode == GW_FEEDBACK_BESIDE ? residual->after : after;
    return GW_OK;
}

gw_status gw_feedback_check(const gw_feedback *store, uint64_t slot, const float *after,
                            gw_why *why)
{
    gw_store_slot *s = NULL;
    const float *from = NULL;
    uint64_t at = 0;
    const gw_status status = open_slot(store, slot, after, &s, &from, why);
    if (status == GW_OK && s->residual->keeper.fetch != NULL) {
        return fail_at(store, s, GW_ERR_STATE,
                       "r' lies elsewhere or is not complete, and cannot be looked at", why);
    }
    if (status == GW_OK && !gw_all_finite(from, s->residual->count, &at)) {
        const gw_store_tensor *t = gw_store_tensor_of(store, s);
        const uint64_t element = s->residual->first + at;
        return GW_FAIL(why, GW_ERR_RANGE,
                       "tensor '%s', encode point %u: r' is not finite at element %llu",
                       gw_name_show(t->name, t->name_bytes).text, s->residual->point,
                       (unsigned long long)element);
    }
    return status;
}

gw_status gw_feedback_commit_checked(gw_feedback *store, uint64_t slot, const float *after,
                                     gw_why *why)
{
    gw_store_slot *s = NULL;
    const float *from = NULL;
    const gw_status status = open_slot(store, slot, after, &s, &from, why);
    if (status != GW_OK) {
        return status;
    }
    gw_residual *residual = s->residual;
    if (gw_residual_is_away(residual)) {
        residual->open = 0;
        return GW_OK;
    }
    if (store->mode == GW_FEEDBACK_BESIDE) {
        float *old = residual->r;
        residual->r = residual->after;
        residual->memory = residual->r;
        residual->after = old;
    } else {
        memcpy(residual->r, from, (size_t)residual->count * sizeof *from);
    }
    residual->open = 0;
    return GW_OK;
}

gw_status gw_feedback_commit(gw_feedback *store, uint64_t slot, const float *after, gw_why *why)
{
    const gw_status status = gw_feedback_check(store, slot, after, why);
    return status == GW_OK ? gw_feedback_commit_checked(store, slot, after, why) : status;
}

gw_status gw_feedback_rollback(gw_feedback *store, uint64_t slot, gw_why *why)
{
    gw_store_slot *s = NULL;
    const gw_status status = gw_store_slot_at(store, slot, &s, why);
    if (status != GW_OK) {
        return status;
    }
    if (!s->residual->open) {
        return fail_at(store, s, GW_ERR_STATE, "no encoding is open", why);
    }
    s->residual->open = 0;
    return GW_OK;
}
