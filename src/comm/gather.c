/* What ranks tell each other between steps: every message is followed by its seal. */
#include "base/hash.h"
#include "base/little_endian.h"
#include "base/why.h"

#include <gradwire/comm.h>

#include <stdlib.h>
#include <string.h>

enum { SEAL = 8 };

/* In `room`: two lists of sizes, the rank's own message, the messages of all ranks. */
typedef struct letters {
    size_t *sizes, *offsets;
    uint8_t *own, *all;
} letters;

static letters open_room(const gw_comm *comm, size_t bytes, const void *room)
{
    size_t *sizes = (size_t *)(uintptr_t)room;
    uint8_t *own = (uint8_t *)(sizes + 2 * (size_t)comm->ranks);
    return (letters){sizes, sizes + comm->ranks, own, own + bytes + SEAL};
}

size_t gw_gather_room(const gw_comm *comm, size_t bytes)
{
    return comm == NULL ? 0
                        : 2 * (size_t)comm->ranks * sizeof(size_t) +
                              (1 + (size_t)comm->ranks) * (bytes + SEAL);
}

gw_status gw_gather_post(gw_comm *comm, const void *own, size_t bytes, void *room,
                         gw_request *request, gw_why *why)
{
    if (comm == NULL || room == NULL || request == NULL || (own == NULL && bytes != 0)) {
        return GW_FAIL(why, GW_ERR_ARG, "gw_gather_post: no comm, room, request or bytes");
    }
    const letters l = open_room(comm, bytes, room);
    for (uint32_t i = 0; i < comm->ranks; i++) {
        l.sizes[i] = bytes + SEAL;
        l.offsets[i] = i * (bytes + SEAL);
    }
    if (bytes != 0) {
        memcpy(l.own, own, bytes);
    }
    gw_put_u64(l.own + bytes, gw_hash(l.own, bytes, comm->rank));
    return comm->table->allgatherv(comm, l.own, bytes + SEAL, l.all, l.sizes, l.offsets, request,
                                   why);
}

gw_status gw_gather_take(const gw_comm *comm, const void *room, size_t bytes, void *all,
                         gw_why *why)
{
    if (comm == NULL || room == NULL || (all == NULL && bytes != 0)) {
        return GW_FAIL(why, GW_ERR_ARG, "gw_gather_take: no comm, room or place for the messages");
    }
    const letters l = open_room(comm, bytes, room);
    const int sealed_below = (comm->table->flags & GW_COMM_SEALED) != 0;
    for (uint32_t i = 0; i < comm->ranks; i++) {
        const uint8_t *from = l.all + i * (bytes + SEAL);
        if (!sealed_below && gw_get_u64(from + bytes) != gw_hash(from, bytes, i)) {
            return GW_FAIL(why, GW_ERR_CHECKSUM,
                           "rank %u's message of %zu bytes was changed on its way to rank %u", i,
                           bytes, comm->rank);
        }
        if (bytes != 0) {
            memcpy((uint8_t *)all + i * bytes, from, bytes);
        }
    }
    return GW_OK;
}

gw_status gw_comm_gather(gw_comm *comm, const void *own, size_t bytes, void *all,
                         double timeout_seconds, gw_why *why)
{
    if (comm == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "gw_comm_gather: no comm");
    }
    void *room = malloc(gw_gather_room(comm, bytes));
    gw_request request = NULL;
    if (room == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for messages of %u ranks", comm->ranks);
    }
    gw_status status = gw_gather_post(comm, own, bytes, room, &request, why);
    const int posted = status == GW_OK;
    if (posted) {
        status = gw_comm_wait(comm, request, timeout_seconds, why);
    }
    const int returned = status != GW_ERR_TIMEOUT && (comm->table->flags & GW_COMM_RETURNS) != 0;
    if (posted && status != GW_OK && !returned) {
        return status; /* `room` is left to the engine: it may still write there */
    }
    if (status == GW_OK) {
        status = gw_gather_take(comm, room, bytes, all, why);
    }
    free(room);
    return status;
}

gw_status gw_comm_share(gw_comm *comm, void *bytes, size_t size, uint32_t root,
                        double timeout_seconds, gw_why *why)
{
    if (comm == NULL || (bytes == NULL && size != 0)) {
        return GW_FAIL(why, GW_ERR_ARG, "gw_comm_share: no comm or no bytes");
    }
    gw_request request = NULL;
    gw_status status = comm->table->broadcast(comm, bytes, size, root, &request, why);
    if (status == GW_OK) {
        status = gw_comm_wait(comm, request, timeout_seconds, why);
    }
    uint64_t *seals = calloc(comm->ranks, sizeof *seals);
    if (status == GW_OK && seals == NULL) {
        status = GW_FAIL(why, GW_ERR_MEMORY, "no memory for seals of %u ranks", comm->ranks);
    }
    if (status == GW_OK) { /* every rank hears of every other's copy */
        const uint64_t mine = gw_hash(bytes, size, root);
        status = gw_comm_gather(comm, &mine, sizeof mine, seals, timeout_seconds, why);
    }
    for (uint32_t i = 0; i < comm->ranks && status == GW_OK; i++) {
        if (seals[i] != seals[root] && (comm->table->flags & GW_COMM_SEALED) == 0) {
            status =
                GW_FAIL(why, GW_ERR_CHECKSUM,
                        "rank %u's %zu bytes were changed on their way to rank %u", root, size, i);
        }
    }
    free(seals);
    return status;
}
