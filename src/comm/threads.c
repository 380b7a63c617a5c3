/* The threads backend: worlds, and the table's functions. */
#include "base/why.h"
#include "comm/operations.h"
#include "comm/threads_world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void gw_world_fail(gw_threads *world, gw_status status, const char *format, ...)
{
    if (world->failed != GW_OK) {
        return;
    }
    va_list args;
    va_start(args, format);
    gw_why_write(&world->why, format, args);
    va_end(args);
    world->failed = status;
    pthread_cond_broadcast(&world->changed);
}

void gw_world_finish_copies(gw_threads *world, uint32_t rank)
{
    while (world->readers[rank] != 0) {
        pthread_cond_wait(&world->changed, &world->lock);
    }
}

gw_status gw_world_failure(gw_threads *world, uint32_t rank, gw_why *why)
{
    gw_world_finish_copies(world, rank);
    return gw_fail(why, world->failed, "%s", world->why.text);
}

/* Every call of the table begins here. */
static gw_end *enter(gw_comm *comm)
{
    gw_end *end = (gw_end *)comm;
    pthread_mutex_lock(&end->group->world->lock);
    return end;
}

static gw_status leave(gw_end *end, gw_status status)
{
    pthread_mutex_unlock(&end->group->world->lock);
    return status;
}

/* The place for the end's next operation, or NULL and why there is none. */
static gw_post *next_post(gw_end *end, gw_operation operation, uint32_t root, gw_status *status,
                          gw_why *why)
{
    gw_threads_group *group = end->group;
    for (uint32_t i = 0; group->open < group->size && i < group->size; i++) {
        const gw_end *peer = &group->ends[i];
        if (peer->closed && peer->next <= end->next) {
            gw_world_fail(group->world, GW_ERR_PEER, "rank %u closed its end before operation %llu",
                          group->ranks[i], (unsigned long long)end->next);
        }
    }
    if (group->world->failed != GW_OK) {
        *status = gw_world_failure(group->world, group->ranks[end->comm.rank], why);
        return NULL;
    }
    gw_slot *slot = gw_slot_find(end);
    if (slot == NULL) {
        *status =
            GW_FAIL(why, GW_ERR_MEMORY, "no memory for an operation of %u ranks", group->size);
        return NULL;
    }
    gw_post *next = &slot->posts[end->comm.rank];
    next->operation = operation;
    next->root = root;
    *status = GW_OK;
    return next;
}

static gw_status post(gw_comm *comm, const gw_call *call, gw_request *request, gw_why *why)
{
    gw_end *end = enter(comm);
    gw_status status = GW_OK;
    gw_post *next = next_post(end, call->operation, call->root, &status, why);
    if (next != NULL) {
        status = gw_call_pieces(call, comm, next->pieces, why);
    }
    if (status == GW_OK) {
        gw_slot_post(end, *request = next);
    }
    return leave(end, status);
}

static gw_status test(gw_comm *comm, gw_request request, int *done, gw_why *why)
{
    gw_end *end = enter(comm);
    return leave(end, gw_slot_test(end, request, done, why));
}

static gw_status split(gw_comm *comm, uint32_t colour, uint32_t key, gw_comm **out, gw_why *why)
{
    gw_end *end = enter(comm);
    end->colour = colour;
    end->key = key;
    const gw_status status = gw_group_split(end, why);
    if (status == GW_OK) {
        *out = end->split;
    }
    return leave(end, status);
}

static void give_up(gw_comm *comm, const char *reason)
{
    gw_end *end = enter(comm);
    gw_threads_group *group = end->group;
    const uint32_t rank = group->ranks[comm->rank];
    gw_why words;
    (void)gw_gave_up(&words, rank, reason);
    gw_world_fail(group->world, GW_ERR_PEER, "%s", words.text);
    gw_world_finish_copies(group->world, rank);
    (void)leave(end, GW_OK);
}

/* Does anybody wait for this end, which will not come? */
static int is_waited_for(const gw_end *end, uint64_t *number)
{
    for (const gw_slot *slot = end->group->live; slot != NULL; slot = slot->next) {
        *number = slot->number;
        const gw_post *own = &slot->posts[end->comm.rank];
        if (own->state == GW_POST_UNDER_WAY) {
            return 1;
        }
        for (uint32_t i = 0; own->state == GW_POST_NONE && i < end->comm.ranks; i++) {
            if (slot->posts[i].state != GW_POST_NONE) {
                return 1;
            }
        }
    }
    return 0;
}

static void close_end(gw_comm *comm)
{
    gw_end *end = enter(comm);
    gw_threads_group *group = end->group;
    gw_threads *world = group->world;
    const uint32_t rank = group->ranks[comm->rank];
    uint64_t number = 0;
    if (!end->closed) {
        if (is_waited_for(end, &number)) {
            gw_world_fail(world, GW_ERR_PEER,
                          "rank %u closed its end before operation %llu was done", rank,
                          (unsigned long long)number);
        } else if (group->splitting != 0) {
            gw_world_fail(world, GW_ERR_PEER, "rank %u closed its end before a group was made",
                          rank);
        }
        end->closed = 1;
        group->open--;
        if (world->failed != GW_OK) {
            gw_world_finish_copies(world, rank);
        }
        gw_comm_let_go(comm);
        if (group->open == 0 && group != world->all) {
            gw_group_free(group);
        }
    }
    pthread_mutex_unlock(&world->lock);
}

static void describe(gw_comm *comm, gw_request request, char *text, size_t size)
{
    gw_end *end = enter(comm);
    gw_slot_describe(end, request, text, size);
    (void)leave(end, GW_OK);
}

static const gw_comm_table table = {
    .size = sizeof(gw_comm_table),
    .name = "threads",
    .allgatherv = allgatherv,
    .alltoallv = alltoallv,
    .broadcast = broadcast,
    .barrier = barrier,
    .test = test,
    .split = split,
    .abort = give_up,
    .close = close_end,
    .describe = describe,
};

gw_status gw_threads_create(const gw_threads_config *config, gw_threads **out, gw_why *why)
{
    if (config == NULL || out == NULL || config->ranks == 0 ||
        config->ranks > GW_THREADS_MAX_RANKS) {
        return GW_FAIL(why, GW_ERR_ARG, "threads: 1 to %d ranks, not %u", GW_THREADS_MAX_RANKS,
                       config != NULL ? config->ranks : 0);
    }
    gw_threads *world = calloc(1, sizeof *world);
    uint32_t *readers = calloc(config->ranks, sizeof *readers);
    if (world == NULL || readers == NULL) {
        free(world);
        free(readers);
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for %u ranks", config->ranks);
    }
    world->ranks = config->ranks;
    world->readers = readers;
    gw_status status = gw_links_init(&world->links, config, why);
    if (status != GW_OK) {
        goto no_links;
    }
    status = GW_ERR_SYSTEM;
    if (pthread_mutex_init(&world->lock, NULL) != 0) {
        goto no_lock;
    }
    if (pthread_cond_init(&world->changed, NULL) != 0) {
        goto no_condition;
    }
    world->all = gw_group_create(world, config->ranks, &table);
    if (world->all == NULL) {
        gw_threads_destroy(world);
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for %u ranks", config->ranks);
    }
    *out = world;
    return GW_OK;

no_condition:
    pthread_mutex_destroy(&world->lock);
no_lock:
    gw_links_free(&world->links);
no_links:
    free(readers);
    free(world);
    return status == GW_ERR_SYSTEM ? GW_FAIL(why, GW_ERR_SYSTEM, "no lock for a world") : status;
}

void gw_threads_destroy(gw_threads *world)
{
    if (world == NULL) {
        return;
    }
    while (world->groups != NULL) {
        gw_group_free(world->groups);
    }
    pthread_cond_destroy(&world->changed);
    pthread_mutex_destroy(&world->lock);
    gw_links_free(&world->links);
    free(world->readers);
    free(world);
}

gw_status gw_threads_comm(gw_threads *world, uint32_t rank, gw_comm **out)
{
    if (world == NULL || out == NULL || rank >= world->ranks) {
        return GW_ERR_ARG;
    }
    *out = &world->all->ends[rank].comm;
    return GW_OK;
}

gw_status gw_threads_sent(gw_threads *world, uint32_t rank, uint64_t bytes[2])
{
    if (world == NULL || bytes == NULL || rank >= world->ranks) {
        return GW_ERR_ARG;
    }
    pthread_mutex_lock(&world->lock);
    bytes[0] = world->links.sent[rank][0];
    bytes[1] = world->links.sent[rank][1];
    pthread_mutex_unlock(&world->lock);
    return GW_OK;
}
