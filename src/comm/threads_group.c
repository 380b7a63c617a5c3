/* Groups of the threads backend: made, split, freed. */
#include "comm/threads_world.h"

#include <stdlib.h>

gw_threads_group *gw_group_create(gw_threads *world, uint32_t size, const gw_comm_table *table)
{
    gw_threads_group *group = calloc(1, sizeof *group + size * sizeof group->ends[0]);
    uint32_t *ranks = calloc(size, sizeof *ranks);
    if (group == NULL || ranks == NULL) {
        free(group);
        free(ranks);
        return NULL;
    }
    group->world = world;
    group->size = group->open = size;
    group->ranks = ranks;
    for (uint32_t i = 0; i < size; i++) {
        group->ends[i].comm = (gw_comm){table, i, size, NULL};
        group->ends[i].group = group;
        ranks[i] = i;
    }
    group->next = world->groups;
    world->groups = group;
    return group;
}

static void free_slots(gw_slot *slot)
{
    while (slot != NULL) {
        gw_slot *next = slot->next;
        free(slot);
        slot = next;
    }
}

void gw_group_free(gw_threads_group *group)
{
    gw_threads_group **link = &group->world->groups;
    while (*link != group) {
        link = &(*link)->next;
    }
    *link = group->next;
    free_slots(group->live);
    free_slots(group->idle);
    free(group->ranks);
    free(group);
}

/* The group of the colour of member `first`, its lowest. 0: no memory. */
static int make_group(gw_threads_group *group, uint32_t first)
{
    const uint32_t colour = group->ends[first].colour;
    uint32_t size = 0;
    for (uint32_t i = first; i < group->size; i++) {
        size += group->ends[i].colour == colour;
    }
    gw_threads_group *made = gw_group_create(group->world, size, group->ends[0].comm.table);
    if (made == NULL) {
        return 0;
    }
    if (gw_slots_reserve(made) != GW_OK) {
        gw_group_free(made);
        return 0;
    }
    for (uint32_t i = first; i < group->size; i++) {
        if (group->ends[i].colour != colour) {
            continue;
        }
        uint32_t place = 0; /* by key, then by rank */
        for (uint32_t j = first; j < group->size; j++) {
            const gw_end *other = &group->ends[j];
            const uint32_t key = group->ends[i].key;
            place += other->colour == colour && (other->key < key || (other->key == key && j < i));
        }
        made->ranks[place] = group->ranks[i];
        group->ends[i].split = &made->ends[place].comm;
    }
    return 1;
}

/* Called by the last that came. */
static void take_place(gw_threads_group *group)
{
    for (uint32_t i = 0; i < group->size; i++) {
        group->ends[i].split = NULL;
    }
    for (uint32_t i = 0; i < group->size; i++) {
        if (group->ends[i].split == NULL && !make_group(group, i)) {
            gw_world_fail(group->world, GW_ERR_MEMORY, "no memory for a group");
            break;
        }
    }
    group->splitting = 0;
    group->splits++;
    pthread_cond_broadcast(&group->world->changed);
}

gw_status gw_group_split(gw_end *end, gw_why *why)
{
    gw_threads_group *group = end->group;
    gw_threads *world = group->world;
    const uint64_t before = group->splits;
    for (uint32_t i = 0; i < group->size; i++) {
        if (group->ends[i].closed) {
            gw_world_fail(world, GW_ERR_PEER, "rank %u closed its end before a group was made",
                          group->ranks[i]);
        }
    }
    if (world->failed != GW_OK) {
        return gw_world_failure(world, group->ranks[end->comm.rank], why);
    }
    if (++group->splitting == group->size) {
        take_place(group);
    }
    while (group->splits == before && world->failed == GW_OK) {
        pthread_cond_wait(&world->changed, &world->lock);
    }
    /* one that took place counts, even if somebody has given up since */
    if (group->splits == before || end->split == NULL) {
        return gw_world_failure(world, group->ranks[end->comm.rank], why);
    }
    return GW_OK;
}
