/* Residuals and orphans -> bytes: a checkpoint, docs/feedback.md. The same content gives the same
 * bytes, in whatever order it was declared. */
#include "base/little_endian.h"
#include "feedback/checkpoint.h"
#include "feedback/store.h"

#include <stdio.h>
#include <stdlib.h>

/* What a first pass over the store finds. */
typedef struct measure {
    uint64_t directory, bytes; /* of header and entries; of everything except hashes of means */
    uint64_t residuals, orphans;
} measure;

static measure measure_store(const gw_feedback *store)
{
    measure m = {.directory = GW_CHECKPOINT_HEADER};
    uint64_t numbers = 0;
    for (size_t i = 0; i < store->n_tensors; i++) {
        const gw_store_tensor *t = &store->tensors[i];
        uint64_t records = 0;
        for (const gw_residual *r = t->live; r != NULL; r = r->next, records++) {
            numbers += gw_checkpoint_align(4 * r->count);
            m.residuals++;
        }
        for (const gw_residual *r = t->orphans; r != NULL; r = r->next, records++) {
            numbers += gw_checkpoint_align(4 * r->count);
            m.orphans++;
        }
        m.directory += gw_checkpoint_align(GW_CHECKPOINT_ENTRY + GW_CHECKPOINT_RECORD * records +
                                           t->name_bytes);
    }
    m.bytes = m.directory + numbers;
    return m;
}

/* Where the next entry and the next numbers go. */
typedef struct pen {
    uint8_t *entry, *numbers;
} pen;

static gw_status write_records(pen *p, const gw_residual *list, uint32_t kind, gw_why *why)
{
    for (const gw_residual *r = list; r != NULL; r = r->next) {
        const gw_status status = gw_residual_fetch(r, why);
        if (status != GW_OK) {
            return status;
        }
        gw_put_u32(p->entry, kind);
        gw_put_u32(p->entry + 4, r->point);
        gw_put_u64(p->entry + 8, r->first);
        gw_put_u64(p->entry + 16, r->count);
        p->entry += GW_CHECKPOINT_RECORD;
        for (uint64_t i = 0; i < r->count; i++) {
            gw_put_u32(p->numbers + 4 * i, gw_bits(r->r[i]));
        }
        if (r->count % 2 != 0) {
            gw_put_u32(p->numbers + 4 * r->count, 0);
        }
        p->numbers += gw_checkpoint_align(4 * r->count);
    }
    return GW_OK;
}

static uint32_t length_of(const gw_residual *list)
{
    uint32_t n = 0;
    for (; list != NULL; list = list->next) {
        n++;
    }
    return n;
}

static gw_status write_tensor(pen *p, const gw_store_tensor *t, gw_why *why)
{
    gw_put_u64(p->entry, t->elements);
    gw_put_u32(p->entry + 8, (uint32_t)t->name_bytes);
    gw_put_u32(p->entry + 12, length_of(t->live) + length_of(t->orphans));
    p->entry += GW_CHECKPOINT_ENTRY;
    gw_status status = write_records(p, t->live, GW_CHECKPOINT_RESIDUAL, why);
    if (status == GW_OK) {
        status = write_records(p, t->orphans, GW_CHECKPOINT_ORPHAN, why);
    }
    const size_t padded = (size_t)gw_checkpoint_align(t->name_bytes);
    memset(p->entry, 0, padded); /* entries and records are multiples of 8 */
    memcpy(p->entry, t->name, t->name_bytes);
    p->entry += padded;
    return status;
}

static gw_status ask_means(const gw_feedback *store, gw_feedback_means *means, gw_why *why)
{
    return store->means.save != NULL ? store->means.save(store->means.owner, means, why) : GW_OK;
}

static size_t all_bytes(const gw_feedback *store, const measure *m, const gw_feedback_means *means)
{
    return (size_t)m->bytes + (means->kind != 0 ? GW_CHECKPOINT_MEAN * store->n_tensors : 0);
}

gw_status gw_feedback_save_bytes(const gw_feedback *store, size_t *bytes, gw_why *why)
{
    if (store == NULL || bytes == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "no store, or nowhere to put the answer");
    }
    const measure m = measure_store(store);
    if (m.residuals > UINT32_MAX || m.orphans > UINT32_MAX) {
        return GW_FAIL(why, GW_ERR_RANGE, "more than 2^32 residuals or orphans");
    }
    gw_feedback_means means = {.hashes = NULL};
    const gw_status status = ask_means(store, &means, why);
    *bytes = all_bytes(store, &m, &means);
    return status;
}

void gw_feedback_refuse_saving(gw_feedback *store, const char *reason)
{
    if (store != NULL) {
        (void)snprintf(store->refused.text, sizeof store->refused.text, "%s",
                       reason == NULL      ? ""
                       : reason[0] == '\0' ? "no reason was given"
                                           : reason);
    }
}

void gw_feedback_keep_means(gw_feedback *store, const gw_feedback_means_keeper *keeper)
{
    if (store != NULL) {
        store->means = keeper != NULL ? *keeper : (gw_feedback_means_keeper){NULL, NULL, NULL};
    }
}

/* Writes the checkpoint after all checks have passed. */
static gw_status write_all(const gw_feedback *store, const gw_feedback_means *means, uint8_t *b,
                           size_t *bytes, gw_why *why)
{
    const measure m = measure_store(store);
    gw_status status = GW_OK;
    *bytes = all_bytes(store, &m, means);
    memset(b, 0, GW_CHECKPOINT_HEADER);
    memcpy(b, gw_checkpoint_magic, sizeof gw_checkpoint_magic);
    gw_put_u16(b + 4, means->kind != 0 ? GW_CHECKPOINT_VERSION : GW_CHECKPOINT_PLAIN);
    gw_put_u32(b + 8, store->rank);
    gw_put_u32(b + 12, store->world);
    gw_put_u64(b + 16, *bytes);
    gw_put_u64(b + 24, m.directory);
    gw_put_u32(b + 32, (uint32_t)store->n_tensors);
    gw_put_u32(b + 36, (uint32_t)m.residuals);
    gw_put_u32(b + 40, (uint32_t)m.orphans);
    gw_put_u32(b + 44, means->kind);
    gw_put_u64(b + 48, means->kind != 0 ? means->since : 0);
    pen p = {b + GW_CHECKPOINT_HEADER, b + m.directory};
    for (size_t i = 0; i < store->n_tensors && status == GW_OK; i++) {
        status = write_tensor(&p, &store->tensors[store->sorted[i]], why);
    }
    for (size_t i = 0; i < store->n_tensors && means->kind != 0; i++) {
        gw_put_u64(b + m.bytes + GW_CHECKPOINT_MEAN * i, means->hashes[store->sorted[i]]);
    }
    if (status == GW_OK) {
        gw_put_u64(b + GW_CHECKPOINT_HASH_AT, gw_checkpoint_hash(b, *bytes));
    }
    return status;
}

gw_status gw_feedback_save(const gw_feedback *store, void *buffer, size_t capacity, size_t *written,
                           gw_why *why)
{
    size_t bytes = 0;
    gw_status status = gw_feedback_save_bytes(store, &bytes, why);
    if (status == GW_OK && (buffer == NULL || written == NULL)) {
        status = GW_FAIL(why, GW_ERR_ARG, "no buffer, or nowhere to put its length");
    }
    if (status == GW_OK) {
        status = gw_store_check_quiet(store, why);
    }
    if (status == GW_OK && store->refused.text[0] != '\0') {
        status =
            GW_FAIL(why, GW_ERR_STATE,
                    "nothing is saved after a failure; go on from the last checkpoint that all "
                    "ranks have. It was: %s",
                    store->refused.text);
    }
    if (status != GW_OK) {
        return status;
    }
    if (capacity < bytes) {
        return GW_FAIL(why, GW_ERR_CAPACITY, "the checkpoint has %zu bytes, the buffer %zu", bytes,
                       capacity);
    }
    gw_feedback_means means = {.hashes = calloc(store->n_tensors + 1, sizeof *means.hashes)};
    if (means.hashes == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for hashes of means");
    }
    status = ask_means(store, &means, why);
    if (status == GW_OK) {
        status = write_all(store, &means, buffer, &bytes, why);
    }
    free(means.hashes);
    if (status == GW_OK) {
        *written = bytes;
    }
    return status;
}
