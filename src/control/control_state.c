/* What a run that is resumed needs of the controller: a list of 64-bit words, little-endian. Magic, hash of the settings, number
 * of the step; what the policy walks over; a hash of all words before it. */
#include "control/control.h"

#include "base/little_endian.h"

#include <string.h>

enum { AT_MAGIC, AT_SETTINGS, AT_NUMBER, AT_POLICY };

/* ---- the walk ---- */

/* The word that comes next: read or, while counting or writing, `value`. */
static uint64_t next(gw_walk *w, uint64_t value)
{
    const size_t at = 8 * w->n++;
    if (w->to != NULL) {
        gw_put_u64(w->to + at, value);
    }
    return w->from != NULL ? gw_get_u64(w->from + at) : value;
}

void gw_walk_word(gw_walk *w, uint64_t *value)
{
    const uint64_t word = next(w, *value);
    *value = gw_walk_reads(w) ? word : *value;
}

void gw_walk_numbers(gw_walk *w, double *values, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        gw_walk_word(w, &bits);
        memcpy(&values[i], &bits, sizeof bits);
    }
}

void gw_walk_same(gw_walk *w, uint64_t value)
{
    w->differs |= next(w, value) != value;
}

void gw_walk_below(gw_walk *w, uint32_t *value, uint64_t limit)
{
    const uint64_t word = next(w, *value);
    w->wrong |= word >= limit;
    *value = gw_walk_reads(w) ? (uint32_t)word : *value;
}

static void walk(gw_control *c, gw_walk *w)
{
    w->n = AT_POLICY;
    c->policy->walk(c, w);
}

/* The thread may be at work on what the walk goes over. */
static size_t bytes_of(gw_control *c)
{
    gw_walk w = {.to = NULL};
    (void)gw_control_idle(c);
    walk(c, &w);
    return 8 * (w.n + 1);
}

/* ---- save ---- */

gw_status gw_control_save_bytes(const gw_step *s, const gw_policy *policy, size_t *bytes,
                                gw_why *why)
{
    if (s == NULL || bytes == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "%s: no step, or no place for the size", policy->name);
    }
    gw_control *c = gw_control_by(s, policy);
    if (c == NULL) {
        return GW_FAIL(why, GW_ERR_STATE, "%s was not begun", policy->name);
    }
    *bytes = bytes_of(c);
    return GW_OK;
}

gw_status gw_control_save(gw_step *s, const gw_policy *policy, void *buffer, size_t capacity,
                          size_t *written, gw_why *why)
{
    size_t bytes = 0;
    const gw_status status = gw_control_save_bytes(s, policy, written != NULL ? &bytes : NULL, why);
    if (status != GW_OK) {
        return status;
    }
    gw_control *c = gw_control_of(s);
    if (buffer == NULL || capacity < bytes || s->posted != 0) {
        return GW_FAIL(why, GW_ERR_CAPACITY, "%s's state is saved between steps, in %zu bytes",
                       policy->name, bytes);
    }
    gw_walk w = {.to = buffer};
    gw_put_u64(w.to + (size_t)8 * AT_MAGIC, policy->magic);
    gw_put_u64(w.to + (size_t)8 * AT_SETTINGS, c->hash);
    gw_put_u64(w.to + (size_t)8 * AT_NUMBER, s->number);
    walk(c, &w);
    gw_put_u64(w.to + bytes - 8, gw_payload_hash(buffer, bytes - 8, 0));
    *written = bytes;
    return GW_OK;
}

/* ---- load ---- */

static gw_status check(gw_control *c, const uint8_t *from, size_t size, gw_why *why)
{
    const char *name = c->policy->name;
    const size_t bytes = bytes_of(c);
    gw_walk w = {.from = from, .checks = 1};
    if (size != bytes || gw_get_u64(from + (size_t)8 * AT_MAGIC) != c->policy->magic ||
        gw_get_u64(from + bytes - 8) != gw_payload_hash(from, bytes - 8, 0)) {
        return GW_FAIL(why, GW_ERR_CORRUPT, "%s's state: %zu bytes, not %zu, or damaged", name,
                       size, bytes);
    }
    walk(c, &w);
    if (gw_get_u64(from + (size_t)8 * AT_SETTINGS) != c->hash || w.differs) {
        return GW_FAIL(why, GW_ERR_DISAGREE, "%s's state is of other layers or settings", name);
    }
    const uint64_t number = gw_get_u64(from + (size_t)8 * AT_NUMBER);
    if (number != c->step->number) {
        return GW_FAIL(why, GW_ERR_DISAGREE, "%s's state is of step %llu, not %llu", name,
                       (unsigned long long)number, (unsigned long long)c->step->number);
    }
    return !w.wrong ? GW_OK
                    : GW_FAIL(why, GW_ERR_CORRUPT, "%s's state: a level or layer that is not there",
                              name);
}

gw_status gw_control_load(gw_step *s, const gw_policy *policy, const void *bytes, size_t size,
                          gw_why *why)
{
    if (s == NULL || bytes == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "%s: no step, or no bytes", policy->name);
    }
    gw_control *c = gw_control_by(s, policy);
    if (c == NULL || s->posted != 0) {
        return GW_FAIL(why, GW_ERR_STATE, "%s's state is loaded between steps, after begin",
                       policy->name);
    }
    const gw_status status = check(c, bytes, size, why);
    if (status != GW_OK) {
        return status;
    }
    gw_walk w = {.from = bytes};
    walk(c, &w);
    return policy->resume(c, why);
}
