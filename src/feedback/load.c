/* Checkpoints of one or several old ranks -> a store. First everything that can fail: reading, names,
 * sums, memory for orphans; then everything is replaced, which cannot. */
#include "base/little_endian.h"
#include "feedback/checkpoint.h"
#include "feedback/store.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

gw_status gw_feedback_heirs(uint32_t old_world, uint32_t new_world, uint32_t new_rank,
                            uint32_t *ranks, size_t capacity, size_t *n, gw_why *why)
{
    if (old_world == 0 || new_rank >= new_world) {
        return GW_FAIL(why, GW_ERR_RANGE, "rank %u of %u, after %u ranks", new_rank, new_world,
                       old_world);
    }
    if (n == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "nowhere to put the answer");
    }
    const size_t count = new_rank < old_world ? (old_world - 1 - new_rank) / new_world + 1 : 0;
    if (ranks != NULL && capacity < count) {
        return GW_FAIL(why, GW_ERR_CAPACITY, "%zu ranks, room for %zu", count, capacity);
    }
    for (size_t i = 0; ranks != NULL && i < count; i++) {
        ranks[i] = new_rank + (uint32_t)i * new_world;
    }
    *n = count;
    return GW_OK;
}

/* A load under way. */
typedef struct load {
    gw_feedback *store;
    uint32_t old_world;
    int some_lost;              /* some of the job's checkpoints are lost */
    size_t heirs;               /* old ranks that this rank takes over */
    size_t n;                   /* checkpoints given … */
    gw_checkpoint *checkpoints; /* … in order of old rank */
    const uint8_t **sources;    /* room for n: the numbers that add up to one residual */
    gw_feedback_means means;
    gw_feedback_told told;
} load;

static gw_name_shown show(const gw_checkpoint_tensor *t)
{
    return gw_name_show(t->name, t->name_bytes);
}

/* The checkpoint knows exactly our tensors. */
static gw_status check_tensors(const load *l, const gw_checkpoint *c, gw_why *why)
{
    const gw_feedback *store = l->store;
    for (size_t i = 0;; i++) { /* both are in order of names */
        const gw_store_tensor *ours =
            i < store->n_tensors ? &store->tensors[store->sorted[i]] : NULL;
        const gw_checkpoint_tensor *theirs = i < c->info.tensors ? &c->tensors[i] : NULL;
        if (ours == NULL && theirs == NULL) {
            return GW_OK;
        }
        const int order =
            ours == NULL || theirs == NULL
                ? 0
                : gw_name_compare(ours->name, ours->name_bytes, theirs->name, theirs->name_bytes);
        if (ours != NULL && (theirs == NULL || order < 0)) {
            return GW_FAIL(why, GW_ERR_UNKNOWN, "rank %u's checkpoint has no tensor '%s'",
                           c->info.rank, gw_name_show(ours->name, ours->name_bytes).text);
        }
        if (ours == NULL || order > 0) {
            return GW_FAIL(why, GW_ERR_UNKNOWN, "rank %u's checkpoint has a tensor '%s', we do not",
                           c->info.rank, show(theirs).text);
        }
        if (ours->elements != theirs->elements) {
            return GW_FAIL(why, GW_ERR_RANGE,
                           "tensor '%s' has %llu elements in rank %u's checkpoint, here %llu",
                           show(theirs).text, (unsigned long long)theirs->elements, c->info.rank,
                           (unsigned long long)ours->elements);
        }
    }
}

/* Puts a checkpoint between those of the `i` read so far, by rank. */
static gw_status place(load *l, size_t i, const gw_checkpoint *c, gw_why *why)
{
    const uint32_t rank = c->info.rank, world = l->store->world;
    if (c->info.world != l->old_world || rank % world != l->store->rank) {
        return GW_FAIL(why, GW_ERR_ARG,
                       "a checkpoint of rank %u of %u is not for rank %u of %u after %u ranks",
                       rank, c->info.world, l->store->rank, world, l->old_world);
    }
    size_t at = i;
    while (at > 0 && l->checkpoints[at - 1].info.rank >= rank) {
        at--;
    }
    if (at < i && l->checkpoints[at].info.rank == rank) {
        return GW_FAIL(why, GW_ERR_ARG, "two checkpoints of rank %u", rank);
    }
    const gw_status status = check_tensors(l, c, why);
    if (status == GW_OK) {
        memmove(l->checkpoints + at + 1, l->checkpoints + at, (i - at) * sizeof *c);
        l->checkpoints[at] = *c;
    }
    return status;
}

/* Reads every blob into its place by rank. */
static gw_status read_blobs(load *l, const gw_feedback_blob *blobs, gw_why *why)
{
    for (size_t i = 0; i < l->n; i++) {
        gw_checkpoint c = {.tensors = NULL};
        gw_why inner = {""};
        gw_status status = gw_checkpoint_read(blobs[i].bytes, blobs[i].size, &c, &inner);
        if (status != GW_OK) {
            return GW_FAIL(why, status, "checkpoint %zu of %zu: %s", i + 1, l->n, inner.text);
        }
        status = place(l, i, &c, why);
        if (status != GW_OK) {
            gw_checkpoint_free(&c);
            return status;
        }
    }
    return GW_OK;
}

/* Whether a record goes into this residual. Copies stay equal only if every rank of the job gets its own back. */
static int fits(const load *l, const gw_checkpoint_record *record, const gw_residual *residual)
{
    const int shared = (record->point & (GW_FEEDBACK_SHARED | GW_FEEDBACK_COPY)) != 0;
    const int same_ranks = l->old_world == l->store->world && !l->some_lost;
    return (!shared || same_ranks) && record->kind == GW_CHECKPOINT_RESIDUAL &&
           record->point == residual->point && record->first == residual->first &&
           record->count == residual->count;
}

/* Tensor `t` in order of names: fills l->sources for one of its residuals, returns how many. */
static size_t find_sources(const load *l, size_t t, const gw_residual *residual)
{
    size_t found = 0;
    for (size_t i = 0; i < l->n; i++) {
        const gw_checkpoint_tensor *theirs = &l->checkpoints[i].tensors[t];
        for (uint32_t j = 0; j < theirs->n_records; j++) {
            if (fits(l, &theirs->records[j], residual)) {
                l->sources[found++] = theirs->records[j].numbers;
            }
        }
    }
    return found;
}

/* Element i of the sum; of one source its very bits, of none zero. */
static float sum_at(const load *l, size_t n, uint64_t i)
{
    float sum = n != 0 ? gw_float(gw_get_u32(l->sources[0] + 4 * i)) : 0;
    for (size_t k = 1; k < n; k++) {
        sum += gw_float(gw_get_u32(l->sources[k] + 4 * i));
    }
    return sum;
}

/* The sums of one tensor's residuals are finite. */
static gw_status check_sums(load *l, size_t t, gw_why *why)
{
    const gw_store_tensor *ours = &l->store->tensors[l->store->sorted[t]];
    for (const gw_residual *r = ours->live; r != NULL; r = r->next) {
        const size_t n = find_sources(l, t, r);
        l->told.at_zero += n == 0;
        for (uint64_t i = 0; n > 1 && i < r->count; i++) {
            const uint64_t element = r->first + i;
            if ((gw_bits(sum_at(l, n, i)) & GW_ABS_MASK) >= GW_INF_BITS) {
                return GW_FAIL(why, GW_ERR_RANGE,
                               "tensor '%s', encode point %u: the ranks' residuals add up to "
                               "infinity at element %llu",
                               gw_name_show(ours->name, ours->name_bytes).text, r->point,
                               (unsigned long long)element);
            }
        }
    }
    return GW_OK;
}

/* What finds no slot waits in t->arriving, oldest rank first. */
static gw_status adopt(load *l, size_t t, gw_why *why)
{
    gw_store_tensor *ours = &l->store->tensors[l->store->sorted[t]];
    gw_residual **last = &ours->arriving;
    for (size_t i = 0; i < l->n; i++) {
        const gw_checkpoint_tensor *theirs = &l->checkpoints[i].tensors[t];
        for (uint32_t j = 0; j < theirs->n_records; j++) {
            const gw_checkpoint_record *record = &theirs->records[j];
            const gw_residual *slot = ours->live;
            while (slot != NULL && !fits(l, record, slot)) {
                slot = slot->next;
            }
            const uint64_t was_residual = record->kind == GW_CHECKPOINT_RESIDUAL;
            l->told.residuals += was_residual;
            l->told.orphans += 1 - was_residual;
            if (slot != NULL || record->count == 0 ||
                (was_residual && (record->point & GW_FEEDBACK_COPY) != 0)) {
                continue;
            }
            l->told.adopted += was_residual;
            *last = gw_residual_create(record->point, record->first, record->count, 0);
            if (*last == NULL) {
                return GW_FAIL(why, GW_ERR_MEMORY, "no memory for an orphan of tensor '%s'",
                               show(theirs).text);
            }
            for (uint64_t k = 0; k < record->count; k++) {
                (*last)->r[k] = gw_float(gw_get_u32(record->numbers + 4 * k));
            }
            last = &(*last)->next;
        }
    }
    return GW_OK;
}

/* Everything is known to go well, keepers aside: replaces what one tensor holds. */
static gw_status replace(const load *l, size_t t, gw_why *why)
{
    gw_status status = GW_OK;
    gw_store_tensor *ours = &l->store->tensors[l->store->sorted[t]];
    for (gw_residual *r = ours->live; r != NULL; r = r->next) {
        const size_t n = find_sources(l, t, r);
        for (uint64_t i = 0; i < r->count; i++) {
            r->r[i] = sum_at(l, n, i);
        }
        status = status == GW_OK ? gw_residual_put(r, why) : status;
    }
    gw_residual_destroy_list(&ours->orphans);
    ours->orphans = ours->arriving;
    ours->arriving = NULL;
    return status;
}

/* ---- in words ---- */

typedef struct words {
    char *text;
    size_t size;
} words;

__attribute__((format(printf, 2, 3))) static void say(words w, const char *format, ...)
{
    const size_t used = strlen(w.text);
    va_list args;
    va_start(args, format);
    (void)vsnprintf(w.text + used, w.size - used, format, args);
    va_end(args);
}

/* "ranks 1 and 4": old ranks whose checkpoints were given, or were not. */
static void say_ranks(words w, const load *l, int given, size_t most)
{
    const size_t count = given ? l->n : l->heirs - l->n, named = count <= most ? count : most - 1;
    say(w, "%s", count == 0 ? "none" : count == 1 ? "rank " : "ranks ");
    for (size_t heir = 0, next = 0, said = 0; said < named; heir++) {
        const uint32_t rank = l->store->rank + (uint32_t)heir * l->store->world;
        const int is_given = next < l->n && l->checkpoints[next].info.rank == rank;
        next += is_given != 0;
        if (is_given == given) {
            say(w, "%s%u", said == 0 ? "" : said + 1 == count ? " and " : ", ", rank);
            said++;
        }
    }
    if (named < count) {
        say(w, " and %zu more", count - named);
    }
}

/* "rank 1 of 3 took over ranks 1 and 4 of 5: 12 residuals, 2 became orphans" */
static void tell(load *l)
{
    enum { NAMED = 8 };
    gw_feedback_told *told = &l->told;
    const words w = {told->text, sizeof told->text};
    say(w, "rank %u of %u took over ", l->store->rank, l->store->world);
    say_ranks(w, l, 1, NAMED);
    say(w, " of %u", l->old_world);
    if (l->n < l->heirs) {
        say(w, ", ");
        say_ranks(w, l, 0, NAMED);
        say(w, l->heirs - l->n == 1 ? " is lost" : " are lost");
    }
    say(w, ": %llu residual%s", (unsigned long long)told->residuals,
        told->residuals == 1 ? "" : "s");
    if (told->adopted != 0) {
        say(w, ", %llu became %s", (unsigned long long)told->adopted,
            told->adopted == 1 ? "an orphan" : "orphans");
    }
    if (told->orphans != 0) {
        say(w, ", %llu orphan%s came along", (unsigned long long)told->orphans,
            told->orphans == 1 ? "" : "s");
    }
    if (told->at_zero != 0) {
        say(w, ", %llu slot%s start%s at zero", (unsigned long long)told->at_zero,
            told->at_zero == 1 ? "" : "s", told->at_zero == 1 ? "s" : "");
    }
}

/* ---- the load ---- */

/* Names the old ranks whose checkpoints were not given. */
static gw_status missing(const load *l, gw_why *why)
{
    char ranks[80] = "";
    const int one = l->heirs - l->n == 1;
    say_ranks((words){ranks, sizeof ranks}, l, 0, 4);
    return GW_FAIL(
        why, GW_ERR_ARG,
        "rank %u of %u takes over %zu of %u ranks, and the checkpoint%s of %s %s missing; "
        "if %s lost, gw_feedback_load_surviving drops their residuals",
        l->store->rank, l->store->world, l->heirs, l->old_world, one ? "" : "s", ranks,
        one ? "is" : "are", one ? "it is" : "they are");
}

/* ---- hashes of means ---- */

/* Replicas are equal: the old ranks that this rank takes over must have applied the same means. */
static gw_status check_means(const load *l, gw_why *why)
{
    const gw_checkpoint *first = NULL;
    for (size_t i = 0; i < l->n; i++) {
        const gw_checkpoint *c = &l->checkpoints[i];
        for (size_t t = 0; first != NULL && c->means_kind == first->means_kind &&
                           c->means_since == first->means_since && t < l->store->n_tensors;
             t++) {
            if (memcmp(c->means + 8 * t, first->means + 8 * t, 8) != 0) {
                return GW_FAIL(why, GW_ERR_CHECKSUM,
                               "the checkpoints of ranks %u and %u of %u disagree: since step %llu "
                               "the means of '%s' differ",
                               first->info.rank, c->info.rank, l->old_world,
                               (unsigned long long)c->means_since, show(&c->tensors[t]).text);
            }
        }
        first = first == NULL && c->means_kind != 0 ? c : first;
    }
    return GW_OK;
}

/* Takes the hashes of the first checkpoint that has any. check_means compares the others with it. */
static gw_status prepare_means(load *l, gw_why *why)
{
    l->means.hashes = calloc(l->store->n_tensors + 1, sizeof *l->means.hashes);
    if (l->means.hashes == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for hashes of means");
    }
    for (size_t i = 0; i < l->n && l->means.kind == 0; i++) {
        const gw_checkpoint *c = &l->checkpoints[i];
        l->means.kind = c->means_kind;
        l->means.since = c->means_since;
        for (size_t t = 0; c->means_kind != 0 && t < l->store->n_tensors; t++) {
            l->means.hashes[l->store->sorted[t]] = gw_get_u64(c->means + 8 * t);
        }
    }
    return check_means(l, why);
}

static gw_status prepare(load *l, const gw_feedback_blob *blobs, gw_why *why)
{
    l->checkpoints = calloc(l->n + 1, sizeof *l->checkpoints);
    l->sources = calloc(l->n + 1, sizeof *l->sources);
    if (l->checkpoints == NULL || l->sources == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for %zu checkpoints", l->n);
    }
    gw_status status = read_blobs(l, blobs, why);
    if (status == GW_OK && l->n < l->heirs && !l->some_lost) {
        status = missing(l, why);
    }
    if (status == GW_OK) {
        status = prepare_means(l, why);
    }
    for (size_t t = 0; status == GW_OK && t < l->store->n_tensors; t++) {
        status = check_sums(l, t, why);
        if (status == GW_OK) {
            status = adopt(l, t, why);
        }
    }
    return status;
}

static gw_status check_arguments(const gw_feedback *store, uint32_t old_world,
                                 const gw_feedback_blob *blobs, size_t n, size_t *heirs,
                                 gw_why *why)
{
    if (store == NULL || (blobs == NULL && n != 0)) {
        return GW_FAIL(why, GW_ERR_ARG, "no store, or no checkpoints");
    }
    const gw_status status =
        gw_feedback_heirs(old_world, store->world, store->rank, NULL, 0, heirs, why);
    if (status != GW_OK) {
        return status;
    }
    if (n > *heirs) {
        return GW_FAIL(why, GW_ERR_ARG,
                       "%zu checkpoints given; rank %u of %u takes over %zu of %u ranks", n,
                       store->rank, store->world, *heirs, old_world);
    }
    if (store->ready != NULL && !*store->ready) {
        return GW_FAIL(why, GW_ERR_STATE, "residuals have no place to go yet: %s", store->first);
    }
    return gw_store_check_quiet(store, why);
}

void gw_feedback_load_when(gw_feedback *store, const int *ready, const char *first)
{
    if (store != NULL) {
        store->ready = ready;
        store->first = first != NULL ? first : "";
    }
}

static gw_status load_all(gw_feedback *store, uint32_t old_world, int some_lost,
                          const gw_feedback_blob *blobs, size_t n, gw_feedback_told *told,
                          gw_why *why)
{
    load l = {.store = store, .old_world = old_world, .some_lost = some_lost, .n = n};
    gw_status status = check_arguments(store, old_world, blobs, n, &l.heirs, why);
    if (status != GW_OK) {
        return status;
    }
    const uint32_t caller = gw_fp_enter();
    status = prepare(&l, blobs, why);
    for (size_t t = 0; t < store->n_tensors; t++) {
        if (status == GW_OK) {
            status = replace(&l, t, why);
        } else {
            gw_residual_destroy_list(&store->tensors[t].arriving);
        }
    }
    gw_fp_leave(caller);
    if (status == GW_OK && store->means.load != NULL) {
        store->means.load(store->means.owner, &l.means);
    }
    if (status == GW_OK && told != NULL) {
        tell(&l);
        *told = l.told;
    }
    for (size_t i = 0; l.checkpoints != NULL && i < n; i++) {
        gw_checkpoint_free(&l.checkpoints[i]);
    }
    free(l.checkpoints);
    free(l.sources);
    free(l.means.hashes);
    return status;
}

gw_status gw_feedback_load(gw_feedback *store, uint32_t old_world, const gw_feedback_blob *blobs,
                           size_t n, gw_feedback_told *told, gw_why *why)
{
    return load_all(store, old_world, 0, blobs, n, told, why);
}

gw_status gw_feedback_load_surviving(gw_feedback *store, uint32_t old_world,
                                     const gw_feedback_blob *blobs, size_t n,
                                     gw_feedback_told *told, gw_why *why)
{
    return load_all(store, old_world, 1, blobs, n, told, why);
}
