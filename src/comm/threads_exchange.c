/* Operations of the threads backend: posted, matched member by member, copied by the receiver, done. */
#include "base/clock.h"
#include "base/why.h"
#include "comm/threads_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A slot, its posts, then for each its pieces, then for each its flags. */
static gw_slot *new_slot(gw_threads_group *group)
{
    const size_t m = group->size;
    const size_t size = sizeof(gw_slot) + m * sizeof(gw_post) + m * m * (sizeof(gw_piece) + 1);
    gw_slot *slot = calloc(1, size);
    if (slot == NULL) {
        return NULL;
    }
    gw_piece *pieces = (gw_piece *)(void *)&slot->posts[m];
    unsigned char *ready = (unsigned char *)&pieces[m * m];
    slot->group = group;
    for (uint32_t i = 0; i < m; i++) {
        slot->posts[i] =
            (gw_post){.slot = slot, .member = i, .pieces = pieces + i * m, .ready = ready + i * m};
    }
    return slot;
}

gw_status gw_slots_reserve(gw_threads_group *group)
{
    for (int i = 0; i < GW_SLOTS_AT_ONCE; i++) {
        gw_slot *slot = new_slot(group);
        if (slot == NULL) {
            return GW_ERR_MEMORY;
        }
        slot->next = group->idle;
        group->idle = slot;
    }
    return GW_OK;
}

gw_slot *gw_slot_find(gw_end *end)
{
    gw_threads_group *group = end->group;
    gw_slot **link = &group->live;
    while (*link != NULL && (*link)->number < end->next) {
        link = &(*link)->next;
    }
    if (*link != NULL && (*link)->number == end->next) {
        return *link;
    }
    gw_slot *slot = group->idle;
    if (slot != NULL) {
        group->idle = slot->next;
    } else if ((slot = new_slot(group)) == NULL) {
        return NULL;
    }
    slot->number = end->next;
    slot->done = 0;
    slot->next = *link;
    *link = slot;
    return slot;
}

static void retire(gw_slot *slot)
{
    gw_threads_group *group = slot->group;
    gw_slot **link = &group->live;
    while (*link != slot) {
        link = &(*link)->next;
    }
    *link = slot->next;
    slot->next = group->idle;
    group->idle = slot;
    for (uint32_t i = 0; i < group->size; i++) {
        slot->posts[i].state = GW_POST_NONE;
    }
}

static int is_message(const gw_post *post, size_t bytes)
{
    return bytes != 0 || post->operation == GW_BARRIER;
}

static void send_message(gw_post *from, gw_post *to, double now)
{
    gw_threads_group *group = from->slot->group;
    const size_t bytes = from->pieces[to->member].sent;
    if (!is_message(from, bytes)) {
        return;
    }
    const double arrival = from == to
                               ? now
                               : gw_links_send(&group->world->links, group->ranks[from->member],
                                               group->ranks[to->member], bytes, now);
    from->due = arrival > from->due ? arrival : from->due;
    to->due = arrival > to->due ? arrival : to->due;
    to->ready[from->member] = 1;
    to->ready_left++;
}

/* What one sends is what the other receives? */
static int agree(const gw_post *from, const gw_post *to)
{
    const gw_threads_group *group = from->slot->group;
    const uint32_t a = group->ranks[from->member], b = group->ranks[to->member];
    const size_t sent = from->pieces[to->member].sent, received = to->pieces[from->member].received;
    if (from->operation != to->operation) {
        gw_world_fail(group->world, GW_ERR_DISAGREE, "operation %llu: rank %u calls %s, rank %u %s",
                      (unsigned long long)from->slot->number, a, gw_operation_name(from->operation),
                      b, gw_operation_name(to->operation));
        return 0;
    }
    if (from->root != to->root) {
        gw_world_fail(group->world, GW_ERR_DISAGREE,
                      "operation %llu (%s): the root of rank %u is %u, of rank %u it is %u",
                      (unsigned long long)from->slot->number, gw_operation_name(from->operation), a,
                      from->root, b, to->root);
        return 0;
    }
    if (sent != received) {
        gw_world_fail(group->world, GW_ERR_DISAGREE,
                      "operation %llu (%s): rank %u sends %zu bytes to rank %u, which receives %zu",
                      (unsigned long long)from->slot->number, gw_operation_name(from->operation), a,
                      sent, b, received);
        return 0;
    }
    return 1;
}

void gw_slot_post(gw_end *end, gw_post *post)
{
    gw_slot *slot = post->slot;
    const uint32_t m = end->comm.ranks, own = post->member;
    const double now = gw_clock();
    post->state = GW_POST_UNDER_WAY;
    post->due = 0;
    post->in_left = post->out_left = post->ready_left = 0;
    memset(post->ready, 0, m);
    for (uint32_t i = 0; i < m; i++) {
        post->in_left += (uint32_t)is_message(post, post->pieces[i].received);
        post->out_left += (uint32_t)is_message(post, post->pieces[i].sent);
    }
    end->next++;
    send_message(post, post, now);
    /* own + 1, own + 2, …: everybody begins with another */
    for (uint32_t i = 1; i < m; i++) {
        gw_post *peer = &slot->posts[(own + i) % m];
        if (peer->state == GW_POST_NONE) {
            continue;
        }
        if (!agree(post, peer) || !agree(peer, post)) {
            return;
        }
        send_message(post, peer, now);
        send_message(peer, post, now);
    }
}

/* Copies what is ready, giving the lock away meanwhile. Ahead of its arrival: a network card, too, writes
 * while the bytes come in, and nobody may look before the operation is done. */
static void copy_ready(gw_end *end, gw_post *post)
{
    gw_threads_group *group = end->group;
    gw_threads *world = group->world;
    for (uint32_t i = 0; i < end->comm.ranks && post->ready_left > 0; i++) {
        const uint32_t member = (post->member + end->comm.ranks - i) % end->comm.ranks;
        if (!post->ready[member] || world->failed != GW_OK) {
            continue;
        }
        gw_post *from = &post->slot->posts[member];
        const gw_piece *sent = &from->pieces[post->member], *received = &post->pieces[member];
        post->ready[member] = 0;
        post->ready_left--;
        uint32_t *readers = &world->readers[group->ranks[member]];
        ++*readers;
        pthread_mutex_unlock(&world->lock);
        if (sent->sent != 0 && sent->from != received->to) {
            memcpy(received->to, sent->from, sent->sent);
        }
        pthread_mutex_lock(&world->lock);
        if (--*readers == 0 && world->failed != GW_OK) {
            pthread_cond_broadcast(&world->changed);
        }
        from->out_left--;
        post->in_left--;
    }
}

gw_status gw_slot_test(gw_end *end, gw_post *post, int *done, gw_why *why)
{
    gw_threads *world = end->group->world;
    *done = 0;
    copy_ready(end, post);
    if (world->failed != GW_OK) {
        /* not before the others have taken their hands off: the caller may free its buffers then */
        const uint32_t rank = end->group->ranks[end->comm.rank];
        return world->readers[rank] != 0 ? GW_OK : gw_world_failure(world, rank, why);
    }
    if (post->in_left != 0 || post->out_left != 0 || (post->due > 0 && gw_clock() < post->due)) {
        return GW_OK;
    }
    *done = 1;
    post->state = GW_POST_DONE;
    if (++post->slot->done == end->comm.ranks) {
        retire(post->slot);
    }
    return GW_OK;
}

void gw_slot_describe(gw_end *end, const gw_post *post, char *text, size_t size)
{
    const gw_threads_group *group = end->group;
    gw_rank_list missing = {0};
    for (uint32_t i = 0; i < group->size; i++) {
        if (post->slot->posts[i].state == GW_POST_NONE) {
            gw_rank_list_add(&missing, group->ranks[i]);
        }
    }
    (void)snprintf(text, size, "operation %llu (%s):%s", (unsigned long long)post->slot->number,
                   gw_operation_name(post->operation),
                   missing.n != 0                              ? ""
                   : post->in_left != 0 || post->out_left != 0 ? " not copied by all yet"
                                                               : " still on its way");
    gw_rank_list_say(&missing, " not called by", text, size);
}
