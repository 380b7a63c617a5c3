/* Running hashes of means: every rank keeps the sum of the hashes of what it wrote, layer by layer, and ranks compare
 * these sums. docs/trust.md says what this finds. */
#include "step/step.h"

#include "base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Numbers that are converted, written and hashed together: they stay in the first-level cache. */
enum { BLOCK = 2048 };
/* What a rank says: the number of the next step, where its hashes were made, their hash. */
enum { SAY_NUMBER, SAY_PLACE, SAY_HASH, SAYS };
/* Where hashes are made: a device hashes another way, so hashes of two places cannot be compared. */
enum { ON_HOST = 1, ON_DEVICE = 2, PLACES = 3 };

static gw_comm *group_of(const gw_step *s)
{
    return s->lanes[0].groups.flat;
}

/* ---- memory ---- */

static gw_status allocate_there(gw_step *s, gw_why *why)
{
    const size_t bytes = s->n_layers * sizeof *s->device.hashes + 1;
    void *there = NULL, *here = NULL;
    s->gradients->release(s, s->device.hashes, 0);
    s->gradients->release(s, s->device.hashes_here, 1);
    s->device.hashes = s->device.hashes_here = NULL;
    gw_status status = s->gradients->allocate(s, bytes, 0, &there, why);
    if (status == GW_OK) {
        s->device.hashes = there;
        status = s->gradients->allocate(s, bytes, 1, &here, why);
        s->device.hashes_here = here;
    }
    return status;
}

/* Nothing was hashed since ranks compared. */
static gw_status begin_again(gw_step *s, gw_why *why)
{
    for (uint32_t i = 0; i < s->n_layers; i++) {
        s->layers[i].hashes = 0;
    }
    s->verify.steps = 0;
    s->verify.loaded = 0;
    if (!gw_step_on_device(s)) {
        return GW_OK;
    }
    gw_status status = gw_cuda_clear(s->config.place, s->device.side, s->device.hashes,
                                     s->verify.layers * sizeof *s->device.hashes, why);
    return status == GW_OK ? gw_cuda_wait(s->config.place, s->device.side, why) : status;
}

gw_status gw_step_verify_prepare(gw_step *s, gw_why *why)
{
    gw_status status = GW_OK;
    if (!gw_step_hashes(s)) {
        return GW_OK;
    }
    if (s->verify.room == NULL) {
        s->verify.room = malloc(gw_gather_room(group_of(s), SAYS * sizeof(uint64_t)));
    }
    if (s->verify.said == NULL) {
        s->verify.said = calloc(SAYS * (size_t)s->config.comm->ranks, sizeof *s->verify.said);
    }
    if (s->verify.room == NULL || s->verify.said == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory to compare means");
    }
    if (gw_step_on_device(s)) {
        status = allocate_there(s, why);
    }
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        s->lanes[i].groups.hashes = s->device.hashes;
    }
    s->verify.layers = s->n_layers;
    s->verify.soon = 1;
    return status == GW_OK ? begin_again(s, why) : status;
}

void gw_step_verify_close(gw_step *s)
{
    free(s->verify.room);
    free(s->verify.said);
    s->gradients->release(s, s->device.hashes, 0);
    s->gradients->release(s, s->device.hashes_here, 1);
}

/* ---- a mean ---- */

uint64_t gw_step_hash_key(const gw_step *s, uint32_t layer)
{
    const uint64_t words[] = {s->number, layer};
    return gw_hash(words, sizeof words, 0);
}

uint32_t gw_step_write_mean(gw_step *s, uint32_t layer, const void *values)
{
    gw_layer *l = &s->layers[layer];
    const size_t width = gw_dtype_size(l->dtype), n = (size_t)l->elements;
    const uint64_t key = gw_step_hash_key(s, layer);
    const float *wide = values;
    uint8_t *to = l->gradient.data;
    uint32_t largest = 0;
    for (size_t at = 0; at < n; at += BLOCK) {
        const size_t some = n - at < BLOCK ? n - at : BLOCK;
        if (l->dtype != l->sent) {
            const uint32_t seen = s->convert->narrow(l->dtype, wide + at, to + at * width, some);
            largest = seen > largest ? seen : largest;
        } else {
            memcpy(to + at * width, (const uint8_t *)values + at * width, some * width);
        }
        if (gw_step_hashes(s)) {
            l->hash += gw_hash_at(key, at, gw_hash(to + at * width, some * width, 0));
        }
    }
    return largest;
}

/* ---- a comparison ---- */

/* The layer's hash since the last comparison, wherever its means were written. */
static uint64_t hash_of(const gw_step *s, uint32_t layer)
{
    const int there = s->device.hashes_here != NULL && layer < s->verify.layers;
    return s->layers[layer].hashes + (there ? s->device.hashes_here[layer] : 0);
}

static gw_status fetch(gw_step *s, gw_why *why)
{
    gw_status status = GW_OK;
    if (gw_step_on_device(s)) {
        status = gw_cuda_copy(s->config.place, s->device.side, s->device.hashes_here,
                              s->device.hashes, s->verify.layers * sizeof *s->device.hashes, why);
        status = status == GW_OK ? gw_cuda_wait(s->config.place, s->device.side, why) : status;
    }
    return status;
}

static uint32_t made_now(const gw_step *s)
{
    return gw_step_on_device(s) ? ON_DEVICE : ON_HOST;
}

/* ---- checkpoints ---- */

static gw_status save_means(void *owner, gw_feedback_means *means, gw_why *why)
{
    gw_step *s = owner;
    if (!gw_step_hashes(s) || s->verify.steps == 0) {
        return GW_OK;
    }
    means->kind = made_now(s) | s->verify.loaded;
    means->since = s->verify.since;
    if (means->hashes == NULL) {
        return GW_OK;
    }
    const gw_status status = fetch(s, why);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        means->hashes[s->layers[i].store_tensor] = hash_of(s, i);
    }
    return status;
}

/* The next comparison covers loaded hashes too. */
static void load_means(void *owner, const gw_feedback_means *means)
{
    gw_step *s = owner;
    if (!gw_step_hashes(s) || means->kind == 0) {
        return;
    }
    s->verify.since = means->since;
    s->verify.steps++;
    s->verify.loaded = means->kind & PLACES;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        s->layers[i].hashes += means->hashes[s->layers[i].store_tensor];
    }
}

void gw_step_verify_open(gw_step *s)
{
    gw_feedback_keep_means(s->store, &(gw_feedback_means_keeper){s, save_means, load_means});
}

/* ---- what ranks say ---- */

/* The first rank whose hashes were made where this rank's were. */
static uint32_t first_like(const uint64_t *said, uint32_t rank)
{
    uint32_t first = 0;
    while (said[first * SAYS + SAY_PLACE] != said[rank * SAYS + SAY_PLACE]) {
        first++;
    }
    return first;
}

static int differ(const gw_step *s, const uint64_t *all, size_t step)
{
    int found = 0;
    for (uint32_t r = 0; r < s->config.comm->ranks; r++) {
        found |= all[r * step] != all[first_like(s->verify.said, r) * step];
    }
    return found;
}

/* The first rank of the largest group that agrees, among ranks whose hashes were made where this rank's were. */
static uint32_t most_alike(const gw_step *s, const uint64_t *all, size_t step, uint32_t rank)
{
    const uint64_t *said = s->verify.said;
    uint32_t best = rank, most = 0;
    for (uint32_t i = 0; i < s->config.comm->ranks; i++) {
        uint32_t alike = 0;
        for (uint32_t r = 0; r < s->config.comm->ranks; r++) {
            alike += said[r * SAYS + SAY_PLACE] == said[rank * SAYS + SAY_PLACE] &&
                     all[r * step] == all[i * step];
        }
        if (said[i * SAYS + SAY_PLACE] == said[rank * SAYS + SAY_PLACE] && alike > most) {
            best = i;
            most = alike;
        }
    }
    return best;
}

/* "rank 2 from rank 0", or "ranks 1, 3 from rank 0": the ranks that differ from the majority, and one of it. */
static void name_ranks(const gw_step *s, const uint64_t *all, size_t step, char *text, size_t size)
{
    enum { NAMED = 8 };
    uint32_t odd = 0, n = 0;
    while (odd + 1 < s->config.comm->ranks &&
           all[odd * step] == all[first_like(s->verify.said, odd) * step]) {
        odd++;
    }
    const uint32_t most = most_alike(s, all, step, odd);
    char ranks[64] = "";
    size_t used = 0;
    for (uint32_t r = 0; r < s->config.comm->ranks; r++) {
        if (first_like(s->verify.said, r) != first_like(s->verify.said, odd) ||
            all[r * step] == all[most * step]) {
            continue;
        }
        if (n++ < NAMED && used < sizeof ranks) {
            used +=
                (size_t)snprintf(ranks + used, sizeof ranks - used, "%s%u", n > 1 ? ", " : "", r);
        }
    }
    char more[32] = "";
    if (n > NAMED) {
        (void)snprintf(more, sizeof more, " and %u more", n - NAMED);
    }
    (void)snprintf(text, size, "rank%s %s%s from rank %u", n > 1 ? "s" : "", ranks, more, most);
}

/* All ranks come here. */
static gw_status name_layer(gw_step *s, gw_why *why)
{
    const uint32_t n = s->n_layers, ranks = s->config.comm->ranks;
    uint64_t *own = calloc((1 + (size_t)ranks) * n, sizeof *own);
    char names[128] = "";
    uint32_t layer = 0;
    if (own == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory to compare means");
    }
    uint64_t *all = own + n;
    for (uint32_t i = 0; i < n; i++) {
        own[i] = hash_of(s, i);
    }
    gw_status status =
        gw_step_gather(s, group_of(s), "comparing means", own, n * sizeof *own, NULL, all, why);
    while (status == GW_OK && layer + 1 < n && !differ(s, all + layer, n)) {
        layer++;
    }
    if (status == GW_OK) {
        name_ranks(s, all + layer, n, names, sizeof names);
        status = GW_FAIL(why, GW_ERR_CHECKSUM,
                         "steps %llu to %llu: the means of layer '%.60s' differ between ranks: %s",
                         (unsigned long long)s->verify.since, (unsigned long long)(s->number - 1),
                         s->layers[layer].name, names);
    }
    free(own);
    return status;
}

/* The step's, for good. What all ranks see alike needs no abort: that could only overtake the words. */
static gw_status fail(gw_step *s, gw_status status, const gw_why *reason, gw_why *why)
{
    const int alike = status == GW_ERR_CHECKSUM || status == GW_ERR_DISAGREE;
    gw_why before = {""};
    if (gw_step_failure(s, &before) == GW_OK && alike) {
        gw_feedback_refuse_saving(s->store, reason->text);
        (void)pthread_mutex_lock(&s->lock);
        s->status = status;
        s->why = *reason;
        (void)pthread_mutex_unlock(&s->lock);
    } else if (before.text[0] == '\0') {
        gw_step_fail(s, status, reason);
    }
    return gw_fail(why, status, "%s", reason->text);
}

gw_status gw_step_verify_compare(gw_step *s, gw_why *why)
{
    gw_why reason = {""};
    uint64_t own[SAYS] = {s->number, made_now(s) | (uint64_t)s->verify.loaded * (PLACES + 1), 0};
    gw_status status = fetch(s, &reason);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        own[SAY_HASH] = gw_hash_at(own[SAY_HASH], i, hash_of(s, i));
    }
    if (status == GW_OK) {
        status = gw_step_gather(s, group_of(s), "comparing means", own, sizeof own, s->verify.room,
                                s->verify.said, &reason);
    }
    for (uint32_t r = 1; r < s->config.comm->ranks && status == GW_OK; r++) {
        if (s->verify.said[r * SAYS + SAY_NUMBER] != s->verify.said[SAY_NUMBER]) {
            status = GW_FAIL(&reason, GW_ERR_DISAGREE,
                             "rank %u compares means before step %llu, rank 0 before step %llu", r,
                             (unsigned long long)s->verify.said[r * SAYS + SAY_NUMBER],
                             (unsigned long long)s->verify.said[SAY_NUMBER]);
        }
    }
    if (status == GW_OK && differ(s, s->verify.said + SAY_HASH, SAYS)) {
        status = name_layer(s, &reason);
    }
    s->verify.soon = 0;
    status = status == GW_OK ? begin_again(s, &reason) : status;
    return status == GW_OK ? GW_OK : fail(s, status, &reason, why);
}

gw_status gw_step_verify_rest(gw_step *s, gw_why *why)
{
    const int prepared = s->verify.room != NULL; /* alike on all ranks, since they agreed before */
    return gw_step_hashes(s) && prepared ? gw_step_verify_compare(s, why) : GW_OK;
}

gw_status gw_step_verify(gw_step *s, gw_why *why)
{
    if (s == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "gw_step_verify: no step");
    }
    gw_status status = gw_step_failure(s, why);
    if (status != GW_OK) {
        return status;
    }
    if (s->config.sharded) {
        return GW_FAIL(why, GW_ERR_UNSUPPORTED, "of shards no two ranks have the same numbers");
    }
    if (s->config.verify_every == GW_STEP_VERIFY_NEVER) {
        return GW_FAIL(why, GW_ERR_STATE,
                       "verify_every is GW_STEP_VERIFY_NEVER: nothing is hashed");
    }
    if (s->posted != 0 || !s->agreed) {
        return GW_FAIL(why, GW_ERR_STATE, "%s",
                       s->agreed ? "a step is under way" : "no plan is agreed");
    }
    return gw_step_hashes(s) ? gw_step_verify_compare(s, why) : GW_OK;
}
