/* A step is opened and closed: its groups, memory and thread. */
#define _POSIX_C_SOURCE 200809L
#include "step/step.h"

#include <stdlib.h>
#include <time.h>

enum { DEFAULT_LANES = 6, DEFAULT_TIMEOUT = 300 };

static gw_status check_config(const gw_step_config *c, gw_why *why)
{
    if (c == NULL || c->comm == NULL || c->comm->table == NULL || c->comm->ranks == 0) {
        return GW_FAIL(why, GW_ERR_ARG, "a step needs a comm");
    }
    if ((c->comm->table->flags & GW_COMM_DEVICE) != 0) {
        return GW_FAIL(
            why, GW_ERR_UNSUPPORTED,
            "ranks agree in host memory, %s works in a device's: give it as device_comm, "
            "beside a comm of the host's",
            c->comm->table->name);
    }
    if (c->device_comm != NULL) {
        const gw_status status = gw_device_check_comm(c, why);
        if (status != GW_OK) {
            return status;
        }
    }
    if (c->lanes > GW_STEP_MAX_LANES || c->threads > GW_POOL_MAX_THREADS ||
        !(c->timeout >= 0 && c->timeout < 1e6)) {
        return GW_FAIL(why, GW_ERR_RANGE, "lanes %u, threads %u or timeout %g out of range",
                       c->lanes, c->threads, c->timeout);
    }
    if (c->sharded && c->fuse_below != 0) {
        return GW_FAIL(why, GW_ERR_ARG, "layers that go together have no pieces of their own");
    }
    return GW_OK;
}

gw_status gw_step_split(const gw_step *s, gw_comm *world, uint32_t colour, gw_comm **out,
                        gw_why *why)
{
    gw_why own = {""};
    why = gw_why_or(why, &own);
    const gw_status status = world->table->split(world, colour, world->rank, out, why);
    if (status != GW_OK) {
        const char *reason = why->text[0] != '\0' ? why->text : gw_status_string(status);
        world->table->abort(world, reason);
        if (world != s->config.comm) {
            s->config.comm->table->abort(s->config.comm, reason);
        }
    }
    return status;
}

gw_status gw_step_split_nodes(const gw_step *s, gw_comm *world, gw_comm **intra, gw_comm **inter,
                              gw_why *why)
{
    const uint32_t k = s->config.ranks_per_node, rank = world->rank;
    if (s->nodes == NULL && (k == 0 || world->ranks % k != 0)) {
        return GW_OK;
    }
    const uint32_t node = s->nodes != NULL ? s->nodes->node_of[rank] : rank / k;
    const uint32_t place = s->nodes != NULL ? s->nodes->place_of[rank] : rank % k;
    const gw_status status = gw_step_split(s, world, node, intra, why);
    return status == GW_OK ? gw_step_split(s, world, place, inter, why) : status;
}

/* Equal nodes, one after the other, need no map: then formulas do. */
static gw_status know_nodes(gw_step *s, const uint32_t *node_of, gw_why *why)
{
    const uint32_t ranks = s->config.comm->ranks;
    gw_nodes *nodes = NULL;
    s->config.node_of = NULL; /* the caller's */
    if (node_of == NULL) {
        return GW_OK;
    }
    const gw_status status = gw_nodes_create(node_of, ranks, &nodes, why);
    if (status != GW_OK) {
        return status;
    }
    s->config.ranks_per_node = gw_nodes_regular(nodes);
    if (s->config.ranks_per_node != 0) {
        gw_nodes_destroy(nodes);
    } else {
        s->nodes = nodes;
    }
    return GW_OK;
}

/* A group of its own for every lane and level, so that exchanges on different lanes never wait for one
 * another's order. */
static gw_status open_lanes(gw_step *s, gw_why *why)
{
    gw_comm *world = s->config.comm;
    gw_status status = GW_OK;
    for (; s->n_lanes < s->config.lanes && status == GW_OK; s->n_lanes++) {
        gw_lane *lane = &s->lanes[s->n_lanes].groups;
        status = gw_step_split(s, world, 0, &lane->flat, why);
        if (status == GW_OK) {
            status = gw_step_split_nodes(s, world, &lane->intra, &lane->inter, why);
        }
    }
    return status;
}

static int listen_to(gw_comm *comm, gw_step *s)
{
    const size_t with_notify = offsetof(gw_comm_table, notify) + sizeof comm->table->notify;
    if (comm->table->size < with_notify || comm->table->notify == NULL) {
        return 0;
    }
    comm->table->notify(comm, s != NULL ? gw_step_notify : NULL, s);
    return 1;
}

/* Groups say when something arrives, as far as they can, or no more. */
static void listen(gw_step *s, int on)
{
    s->told = !gw_step_on_device(s); /* nobody says when a device is done */
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        const gw_lane *g = &s->lanes[i].groups;
        gw_comm *const groups[] = {g->flat, g->intra, g->inter};
        for (int j = 0; j < 3; j++) {
            s->told &= groups[j] == NULL || listen_to(groups[j], on ? s : NULL);
        }
    }
}

gw_status gw_step_create(const gw_step_config *config, gw_step **out, gw_why *why)
{
    GW_REQUIRE(why, out != NULL, "no place for the step");
    gw_status status = check_config(config, why);
    if (status != GW_OK) {
        return status;
    }
    gw_step *s = calloc(1, sizeof *s);
    if (s == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for a step");
    }
    s->config = *config;
    s->gradients = gw_step_on_device(s) ? &gw_gradients_device : &gw_gradients_host;
    s->config.lanes = config->lanes != 0 ? config->lanes : DEFAULT_LANES;
    s->config.timeout = config->timeout != 0 ? config->timeout : DEFAULT_TIMEOUT;
    s->config.verify_every =
        config->verify_every != 0 ? config->verify_every : GW_STEP_VERIFY_USUAL;
    s->convert = gw_convert_for(config->isa != GW_ISA_AUTO ? config->isa : gw_isa_best());
    (void)pthread_mutex_init(&s->lock, NULL);
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&s->changed, &monotonic);
    (void)pthread_cond_init(&s->due, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    status = s->convert == NULL ? GW_FAIL(why, GW_ERR_UNSUPPORTED, "no such variant here") : GW_OK;
    if (status == GW_OK) {
        status = gw_feedback_create(GW_FEEDBACK_BESIDE, config->comm->rank, config->comm->ranks,
                                    &s->store, why);
    }
    if (status == GW_OK) {
        gw_feedback_load_when(s->store, &s->agreed, "call gw_step_agree first");
        gw_step_verify_open(s);
    }
    if (status == GW_OK) {
        status = know_nodes(s, config->node_of, why);
    }
    if (status == GW_OK && config->threads > 1) {
        status = gw_pool_create(config->threads, &s->pool);
        if (status != GW_OK) {
            (void)gw_fail(why, status, "%u threads for coding: %s", config->threads,
                          gw_status_string(status));
        }
    }
    if (status == GW_OK) {
        status = gw_step_compare_config(s, why); /* how many groups there are hangs on it */
    }
    if (status == GW_OK) {
        status = open_lanes(s, why);
    }
    if (status == GW_OK) {
        listen(s, 1);
        status = gw_step_on_device(s) ? gw_device_open(s, why) : GW_OK;
    }
    if (status == GW_OK && config->own_thread) {
        s->has_thread = pthread_create(&s->thread, NULL, gw_step_thread, s) == 0;
        status = s->has_thread ? GW_OK : GW_FAIL(why, GW_ERR_SYSTEM, "cannot start a thread");
    }
    if (status != GW_OK) {
        gw_step_destroy(s);
        return status;
    }
    *out = s;
    return GW_OK;
}

static void close_group(gw_comm *comm)
{
    if (comm != NULL) {
        comm->table->close(comm);
    }
}

void gw_step_destroy(gw_step *s)
{
    if (s == NULL) {
        return;
    }
    if (s->has_thread) {
        (void)pthread_mutex_lock(&s->lock);
        s->stop = 1;
        gw_step_wake(s);
        (void)pthread_mutex_unlock(&s->lock);
        (void)pthread_join(s->thread, NULL);
    }
    if (s->posted != 0 && s->status == GW_OK) { /* others may be reading what is freed here */
        gw_why why;
        (void)gw_fail(&why, GW_ERR_STATE, "destroyed in the middle of step %llu",
                      (unsigned long long)s->number);
        gw_step_fail(s, GW_ERR_STATE, &why);
    }
    listen(s, 0);
    if (s->hooks != NULL) {
        s->hooks->close(s->above);
    }
    gw_step_unprepare(s);
    if (gw_step_on_device(s)) {
        gw_device_close(s);
    }
    close_group(s->side);
    if (gw_step_on_device(s)) {
        gw_device_close_groups(s);
    }
    for (uint32_t i = 0; i < s->config.lanes; i++) {
        close_group(s->lanes[i].groups.inter);
        close_group(s->lanes[i].groups.intra);
        close_group(s->lanes[i].groups.flat);
    }
    gw_step_verify_close(s);
    for (uint32_t i = 0; i < s->n_layers; i++) {
        free(s->layers[i].name);
    }
    gw_nodes_destroy(s->nodes);
    free(s->layers);
    free(s->order);
    gw_feedback_destroy(s->store);
    gw_pool_destroy(s->pool);
    (void)pthread_cond_destroy(&s->changed);
    (void)pthread_cond_destroy(&s->due);
    (void)pthread_mutex_destroy(&s->lock);
    free(s);
}
