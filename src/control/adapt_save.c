/* What a run that is resumed needs of adapt: a list of 64-bit words, little-endian, the last a hash of the others. Where
 * in the period it stands follows from the step's number. */
#include "control/control.h"

#include "base/little_endian.h"

#include <gradwire/frame.h>

#include <string.h>

#define MAGIC UINT64_C(0x3154504144415747) /* "GWADAPT1" */
enum { HEAD_MAGIC, HEAD_SETTINGS, HEAD_NUMBER, HEAD_LIVE, HEAD_LAYERS, HEAD_TABLE, HEAD };

static size_t words_of(const gw_step_adapt *a)
{
    return HEAD + 2 * (size_t)a->n + 2 * a->table + 1;
}

gw_status gw_step_adapt_save_bytes(const gw_step *s, size_t *bytes, gw_why *why)
{
    GW_REQUIRE(why, s != NULL && bytes != NULL, "no step, or no place for the size");
    if (gw_control_of(s) == NULL || gw_control_of(s)->over != NULL) {
        return GW_FAIL(why, GW_ERR_STATE, "adapt was not begun");
    }
    *bytes = 8 * words_of(gw_control_of(s));
    return GW_OK;
}

static uint8_t *put(uint8_t *to, uint64_t word)
{
    gw_put_u64(to, word);
    return to + 8;
}

static uint8_t *put_numbers(uint8_t *to, const double *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t word;
        memcpy(&word, &numbers[i], sizeof word);
        to = put(to, word);
    }
    return to;
}

/* Times and who waited are no part of it: equal runs leave equal bytes. */
static uint8_t *put_table(uint8_t *to, const double *table, size_t n)
{
    double head[GW_TABLE_LAYERS] = {0};
    head[GW_TABLE_STATUS] = table[GW_TABLE_STATUS];
    to = put_numbers(to, head, GW_TABLE_LAYERS);
    return put_numbers(to, table + GW_TABLE_LAYERS, n - GW_TABLE_LAYERS);
}

gw_status gw_step_adapt_save(gw_step *s, void *buffer, size_t capacity, size_t *written,
                             gw_why *why)
{
    GW_REQUIRE(why, s != NULL && written != NULL, "no step, or no place for the size");
    size_t bytes = 0;
    gw_status status = gw_step_adapt_save_bytes(s, &bytes, why);
    if (status == GW_OK && (buffer == NULL || capacity < bytes || s->posted != 0)) {
        status = GW_FAIL(why, GW_ERR_CAPACITY, "adapt's state is saved between steps, in %zu bytes",
                         bytes);
    }
    if (status != GW_OK) {
        return status;
    }
    gw_step_adapt *a = gw_control_of(s);
    (void)gw_step_adapt_idle(a);
    const uint64_t head[HEAD] = {MAGIC, a->hash, s->number, (uint64_t)a->live, a->n, a->table};
    uint8_t *to = buffer;
    for (int i = 0; i < HEAD; i++) {
        to = put(to, head[i]);
    }
    for (uint32_t i = 0; i < a->n; i++) {
        to = put(to, a->layers[i].level);
    }
    to = put_numbers(to, a->norms, a->n);
    to = put_table(to, a->own, a->table);
    to = put_table(to, a->mean, a->table);
    (void)put(to, gw_payload_hash(buffer, bytes - 8, 0));
    *written = bytes;
    return GW_OK;
}

/* ---- load ---- */

static gw_status check(const gw_step_adapt *a, const uint8_t *from, size_t size, gw_why *why)
{
    const size_t bytes = 8 * words_of(a);
    const gw_step *s = a->step;
    if (size != bytes || gw_get_u64(from + 8 * HEAD_MAGIC) != MAGIC ||
        gw_get_u64(from + bytes - 8) != gw_payload_hash(from, bytes - 8, 0)) {
        return GW_FAIL(why, GW_ERR_CORRUPT, "adapt's state: %zu bytes, not %zu, or damaged", size,
                       bytes);
    }
    if (gw_get_u64(from + 8 * HEAD_SETTINGS) != a->hash ||
        gw_get_u64(from + 8 * HEAD_LAYERS) != a->n ||
        gw_get_u64(from + 8 * HEAD_TABLE) != a->table) {
        return GW_FAIL(why, GW_ERR_DISAGREE, "adapt's state is of other layers or settings");
    }
    if (gw_get_u64(from + 8 * HEAD_NUMBER) != s->number) {
        return GW_FAIL(why, GW_ERR_DISAGREE, "adapt's state is of step %llu, not %llu",
                       (unsigned long long)gw_get_u64(from + 8 * HEAD_NUMBER),
                       (unsigned long long)s->number);
    }
    int fine = gw_get_u64(from + 8 * HEAD_LIVE) <= 1;
    for (uint32_t i = 0; i < a->n; i++) {
        fine = fine && gw_get_u64(from + 8 * (HEAD + (size_t)i)) < a->layers[i].n;
    }
    return fine ? GW_OK : GW_FAIL(why, GW_ERR_CORRUPT, "adapt's state: a level that is not there");
}

static const uint8_t *get_numbers(const uint8_t *from, double *numbers, size_t n)
{
    for (size_t i = 0; i < n; i++, from += 8) {
        const uint64_t word = gw_get_u64(from);
        memcpy(&numbers[i], &word, sizeof word);
    }
    return from;
}

gw_status gw_step_adapt_load(gw_step *s, const void *bytes, size_t size, gw_why *why)
{
    GW_REQUIRE(why, s != NULL && bytes != NULL, "no step, or no bytes");
    gw_step_adapt *a = gw_control_of(s);
    if (a == NULL || a->over != NULL || bytes == NULL || s->posted != 0) {
        return GW_FAIL(why, GW_ERR_STATE, "adapt's state is loaded between steps, after begin");
    }
    const uint8_t *from = bytes;
    gw_status status = check(a, from, size, why);
    const int live = status == GW_OK && gw_get_u64(from + 8 * HEAD_LIVE) == 1;
    from += (size_t)8 * HEAD;
    for (uint32_t i = 0; i < a->n && status == GW_OK; i++, from += 8) {
        status = gw_step_adapt_plan(a, i, (uint32_t)gw_get_u64(from), why);
    }
    if (status != GW_OK) {
        return status;
    }
    (void)gw_step_adapt_idle(a);
    const uint64_t done = s->number % a->config.every; /* steps of the period */
    gw_step_adapt_resume(a, s->number - done, live);
    from = get_numbers(from, a->norms, a->n);
    from = get_numbers(from, a->own, a->table);
    (void)get_numbers(from, a->mean, a->table);
    (void)pthread_mutex_lock(&a->lock);
    a->measured = a->handed = !live ? 0 : done < a->window ? done : a->window;
    (void)pthread_mutex_unlock(&a->lock);
    if (live && done > a->window + a->lag) { /* the tables had arrived */
        gw_step_adapt_ask(a);
    }
    return GW_OK;
}
