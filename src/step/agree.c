/* Do all ranks want the same? What differs is said field by field, on every rank, with who. */
#include "step/step.h"

#include <gradwire/frame.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gw_status gather_into(gw_step *s, gw_comm *comm, const void *own, size_t bytes, void *room,
                             void *all, gw_why *why)
{
    gw_request request = NULL;
    gw_status status = gw_gather_post(comm, own, bytes, room, &request, why);
    if (status == GW_OK) {
        status = gw_comm_wait(comm, request, s->config.timeout, why);
    }
    return status == GW_OK ? gw_gather_take(comm, room, bytes, all, why) : status;
}

gw_status gw_step_gather(gw_step *s, gw_comm *comm, const char *what, const void *own, size_t bytes,
                         void *room, void *all, gw_why *why)
{
    gw_why reason = {""};
    const gw_status status =
        room != NULL ? gather_into(s, comm, own, bytes, room, all, &reason)
                     : gw_comm_gather(comm, own, bytes, all, s->config.timeout, &reason);
    if (status != GW_OK) {
        gw_why said;
        (void)gw_fail(&said, status, "%s: %s", what,
                      reason.text[0] != '\0' ? reason.text : gw_status_string(status));
        comm->table->abort(comm, said.text);
        gw_step_fail(s, status, &said);
        (void)gw_fail(why, status, "%s", said.text);
    }
    return status;
}

static gw_status gather(gw_step *s, gw_comm *comm, const void *own, size_t bytes, void *all,
                        gw_why *why)
{
    return gw_step_gather(s, comm, "comparing plans", own, bytes, NULL, all, why);
}

/* ---- numbers that must be equal ---- */

static gw_status numbers_differ(const char *name, uint32_t a, uint64_t x, uint32_t b, uint64_t y,
                                int version, gw_why *why)
{
    if (version) {
        return GW_FAIL(why, GW_ERR_DISAGREE, "rank %u has %s %u.%u.%u, rank %u has %u.%u.%u", a,
                       name, (unsigned)(x >> 16), (unsigned)(x >> 8 & 255), (unsigned)(x & 255), b,
                       (unsigned)(y >> 16), (unsigned)(y >> 8 & 255), (unsigned)(y & 255));
    }
    return GW_FAIL(why, GW_ERR_DISAGREE, "rank %u has %s %llu, rank %u has %llu", a, name,
                   (unsigned long long)x, b, (unsigned long long)y);
}

gw_status gw_step_compare_numbers(gw_step *s, gw_comm *comm,
                                  const uint64_t numbers[GW_STEP_NUMBERS], const char *const *names,
                                  int n, gw_why *why)
{
    const uint32_t ranks = comm->ranks, me = comm->rank;
    uint64_t(*all)[GW_STEP_NUMBERS] = calloc(ranks, sizeof *all);
    if (all == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory to compare plans");
    }
    gw_status status = gather(s, comm, numbers, sizeof *all, all, why);
    for (int i = 0; i < n && status == GW_OK; i++) {
        for (uint32_t r = 0; r < ranks && status == GW_OK; r++) {
            if (all[r][i] != all[me][i]) {
                status = numbers_differ(names[i], r, all[r][i], me, all[me][i],
                                        strcmp(names[i], "library version") == 0, why);
            }
        }
    }
    free(all);
    return status;
}

static uint64_t hash_nodes(const gw_step *s)
{
    return s->nodes != NULL
               ? gw_payload_hash(s->nodes->node_of, s->nodes->ranks * sizeof(uint32_t), 0)
               : 0;
}

gw_status gw_step_compare_config(gw_step *s, gw_why *why)
{
    static const char *const names[] = {
        "library version", "seed",         "lanes",          "piece",   "fuse_below",
        "ranks_per_node",  "sum",          "all_or_nothing", "sharded", "device comms:",
        "sealed comms:",   "verify_every", "map of nodes:"};
    const gw_step_config *c = &s->config;
    const uint64_t numbers[GW_STEP_NUMBERS] = {gw_version(),
                                               c->seed,
                                               c->lanes,
                                               c->piece,
                                               c->fuse_below,
                                               c->ranks_per_node,
                                               (uint64_t)c->sum,
                                               (uint64_t)c->all_or_nothing,
                                               (uint64_t)c->sharded,
                                               c->device_comm != NULL,
                                               (c->comm->table->flags & GW_COMM_SEALED) != 0,
                                               c->verify_every,
                                               hash_nodes(s)};
    return gw_step_compare_numbers(s, c->comm, numbers, names, 13, why);
}

/* ---- layers, in words ---- */

enum { WORDS = 4, WORD = GW_ROUTE_TEXT };

/* Everything of a layer that ranks must agree on. Zeros behind each text, so that equal is equal bytes. */
typedef struct words {
    char of[WORDS][WORD];
} words;
static const char *const word_names[WORDS] = {"the name", "the size", "the codec", "the route"};

static words describe(const gw_layer *l)
{
    words w;
    memset(&w, 0, sizeof w);
    (void)snprintf(w.of[0], WORD, "'%.100s'", l->name);
    if (strlen(l->name) > 100) {
        (void)snprintf(w.of[0], WORD, "'%.100s…' hash:%016llx", l->name,
                       (unsigned long long)gw_payload_hash(l->name, strlen(l->name), 0));
    }
    (void)snprintf(w.of[1], WORD, "%llu elements of %s", (unsigned long long)l->elements,
                   gw_dtype_name(l->dtype));
    (void)snprintf(w.of[2], WORD, "none");
    if (l->params.codec != NULL) {
        (void)gw_params_print(&l->params, w.of[2], WORD);
    }
    if (gw_route_name_of(&l->route, w.of[3], WORD) != GW_OK) {
        (void)gw_route_print(&l->route, w.of[3], WORD);
    }
    return w;
}

static uint64_t hash_layer(const gw_layer *l)
{
    const words w = describe(l);
    return gw_payload_hash(&w, sizeof w, 0);
}

/* The first word that differs, from where it differs on. */
static gw_status words_differ(uint32_t layer, uint32_t a, const words *x, uint32_t b,
                              const words *y, gw_why *why)
{
    int i = 0;
    while (i < WORDS - 1 && memcmp(x->of[i], y->of[i], WORD) == 0) {
        i++;
    }
    size_t from = 0, at = 0;
    for (; at + 1 < WORD && x->of[i][at] != '\0' && x->of[i][at] == y->of[i][at]; at++) {
        from = at > 40 && x->of[i][at] == ' ' ? at + 1 : from;
    }
    return GW_FAIL(why, GW_ERR_DISAGREE,
                   "layer %u (%.50s): %s is %s%.48s at rank %u, but %s%.48s at rank %u", layer,
                   x->of[0], word_names[i], from != 0 ? "… " : "", x->of[i] + from, a,
                   from != 0 ? "… " : "", y->of[i] + from, b);
}

/* All ranks come here, each with as many layers. */
static gw_status name_layer(gw_step *s, gw_comm *comm, gw_why *why)
{
    const uint32_t ranks = comm->ranks, me = comm->rank, n = s->n_layers;
    uint64_t *own = calloc((1 + (size_t)ranks) * n + 1, sizeof *own);
    words *texts = calloc(ranks, sizeof *texts);
    if (own == NULL || texts == NULL) {
        free(own);
        free(texts);
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory to compare plans");
    }
    uint64_t *all = own + n;
    uint32_t layer = n, other = 0;
    for (uint32_t i = 0; i < n; i++) {
        own[i] = hash_layer(&s->layers[i]);
    }
    gw_status status = gather(s, comm, own, n * sizeof *own, all, why);
    for (uint32_t r = 1; r < ranks && status == GW_OK; r++) {
        for (uint32_t i = 0; i < layer; i++) {
            layer = all[(size_t)r * n + i] != all[i] ? i : layer;
        }
    }
    if (status == GW_OK) {
        const words mine = describe(&s->layers[layer < n ? layer : n - 1]);
        status = gather(s, comm, &mine, sizeof mine, texts, why);
    }
    while (status == GW_OK && other < ranks - 1 &&
           memcmp(&texts[other], &texts[me], sizeof *texts) == 0) {
        other++;
    }
    if (status == GW_OK) {
        texts[me].of[0][WORD - 1] = texts[other].of[0][WORD - 1] = '\0';
        status = words_differ(layer, me, &texts[me], other, &texts[other], why);
    }
    free(own);
    free(texts);
    return status;
}

static uint64_t hash_order(const gw_step *s)
{
    return s->order != NULL ? gw_payload_hash(s->order, s->n_layers * sizeof *s->order, 0) : 0;
}

static uint64_t hash_groups(const gw_step *s)
{
    uint64_t hash = 0;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        hash = (hash ^ s->layers[i].ready_with) * 0x9E3779B97F4A7C15u;
    }
    return hash;
}

static uint64_t hash_buckets(const gw_step *s)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < s->n_layers; i++) {
        all = (all ^ s->layers[i].bucket) * 0x9E3779B97F4A7C15u;
    }
    return all;
}

static gw_status compare_layers(gw_step *s, gw_why *why)
{
    static const char *const names[] = {
        "library version", "step number", "layers:", "wire order", "ready together", "buckets"};
    gw_comm *comm = s->lanes[0].groups.flat;
    const uint64_t numbers[GW_STEP_NUMBERS] = {gw_version(),  s->number,      s->n_layers,
                                               hash_order(s), hash_groups(s), hash_buckets(s)};
    gw_status status = gw_step_compare_numbers(s, comm, numbers, names, 6, why);
    uint64_t own = 0;
    uint64_t *all = calloc(comm->ranks, sizeof *all);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        own = (own ^ hash_layer(&s->layers[i])) * 0x9E3779B97F4A7C15u;
    }
    if (status == GW_OK) {
        status = all != NULL ? gather(s, comm, &own, sizeof own, all, why)
                             : GW_FAIL(why, GW_ERR_MEMORY, "no memory to compare plans");
    }
    int differ = 0;
    for (uint32_t i = 1; i < comm->ranks && status == GW_OK; i++) {
        differ |= all[i] != all[0];
    }
    free(all);
    return differ ? name_layer(s, comm, why) : status;
}

gw_status gw_step_agree(gw_step *s, gw_why *why)
{
    gw_status status = gw_step_failure(s, why);
    if (status != GW_OK) {
        return status;
    }
    if (s->posted != 0) {
        return GW_FAIL(why, GW_ERR_STATE, "a step is under way");
    }
    status = compare_layers(s, why);
    if (status == GW_OK) {
        status = gw_step_verify_rest(s, why);
    }
    if (status == GW_OK) {
        status = gw_fusions_check(s, why); /* the same on all ranks */
    }
    if (status == GW_OK) {
        status = gw_step_prepare(s, why);
    }
    if (status == GW_OK) {
        status = gw_step_verify_prepare(s, why);
    }
    s->agreed = status == GW_OK;
    return status;
}
