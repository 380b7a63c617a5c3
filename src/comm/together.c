/* Operations of several users in one message a peer, with one seal behind them. */
#include "base/hash.h"
#include "base/little_endian.h"
#include "base/why.h"
#include "comm/operations.h"

#include <gradwire/together.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct user {
    gw_comm comm;
    gw_together *of;
    gw_piece *pieces; /* of its operation */
    enum { FREE, POSTED, DONE, LEFT } state;
} user;

struct gw_together {
    gw_comm *over;
    user *users;
    gw_piece *pieces; /* of all users */
    uint32_t n_users;
    int under_way;
    gw_request request;
    uint64_t number; /* of the message; the seal covers it */
    size_t bytes;
    uint8_t *send, *receive;
    uint32_t *sent;                          /* messages to each peer since the last begin */
    size_t *send_size, *send_at, *size, *at; /* by peer */
};

/* ---- one message a peer ---- */

enum { SEAL = GW_TOGETHER_SEAL };

static uint64_t seal_of(const gw_together *t, const uint8_t *message, size_t bytes)
{
    const int sealed_below = (t->over->table->flags & GW_COMM_SEALED) != 0;
    return sealed_below ? 0 : gw_hash(message, bytes, t->number);
}

/* Every user sends the same to all: it stands in the buffer once. */
static int same_for_all(const gw_together *t)
{
    const uint32_t own = t->over->rank, first = own == 0 ? 1 : 0;
    for (uint32_t u = 0; u < t->n_users; u++) {
        const gw_piece *p = t->users[u].pieces;
        for (uint32_t i = 0; t->users[u].state == POSTED && i < t->over->ranks; i++) {
            if (i != own && (p[i].from != p[first].from || p[i].sent != p[first].sent)) {
                return 0;
            }
        }
    }
    return 1;
}

static gw_status measure(gw_together *t, int same, gw_why *why)
{
    const uint32_t own = t->over->rank;
    size_t sent = 0, received = 0; /* without seals */
    size_t send_at = 0, at = 0;
    for (uint32_t i = 0; i < t->over->ranks; i++) {
        t->send_at[i] = same ? 0 : send_at;
        t->at[i] = at;
        t->send_size[i] = t->size[i] = 0;
        for (uint32_t u = 0; i != own && u < t->n_users; u++) {
            const user *who = &t->users[u];
            t->send_size[i] += who->state == POSTED ? who->pieces[i].sent : 0;
            t->size[i] += who->state == POSTED ? who->pieces[i].received : 0;
        }
        sent = same && i != own ? t->send_size[i] : sent + t->send_size[i];
        received += t->size[i];
        t->send_size[i] += t->send_size[i] != 0 ? SEAL : 0;
        t->size[i] += t->size[i] != 0 ? SEAL : 0;
        t->sent[i] += t->send_size[i] != 0;
        send_at += t->send_size[i];
        at += t->size[i];
    }
    return sent <= t->bytes && received <= t->bytes
               ? GW_OK
               : GW_FAIL(why, GW_ERR_CAPACITY,
                         "%zu bytes to send and %zu to receive together; there is room for %zu",
                         sent, received, t->bytes);
}

static void pack(const gw_together *t, int same)
{
    const uint32_t own = t->over->rank;
    for (uint32_t i = 0, packed = 0; i < t->over->ranks && !(same && packed); i++) {
        uint8_t *to = t->send + t->send_at[i];
        for (uint32_t u = 0; i != own && u < t->n_users; u++) {
            const gw_piece *p = &t->users[u].pieces[i];
            if (t->users[u].state == POSTED && p->sent != 0) {
                memcpy(to, p->from, p->sent);
                to += p->sent;
            }
        }
        if (t->send_size[i] != 0) {
            const size_t bytes = t->send_size[i] - SEAL;
            gw_put_u64(to, seal_of(t, to - bytes, bytes));
        }
        packed |= i != own;
    }
}

static gw_status unpack(const gw_together *t, gw_why *why)
{
    const uint32_t own = t->over->rank;
    for (uint32_t i = 0; i < t->over->ranks; i++) {
        const uint8_t *from = t->receive + t->at[i];
        const size_t bytes = t->size[i] != 0 ? t->size[i] - SEAL : 0;
        if (bytes != 0 && gw_get_u64(from + bytes) != seal_of(t, from, bytes)) {
            return GW_FAIL(why, GW_ERR_CHECKSUM,
                           "a message of member %u (%zu bytes, of several layers) was changed on "
                           "its way",
                           i, bytes);
        }
        for (uint32_t u = 0; i != own && u < t->n_users; u++) {
            const gw_piece *p = &t->users[u].pieces[i];
            if (t->users[u].state == POSTED && p->received != 0) {
                memcpy(p->to, from, p->received);
                from += p->received;
            }
        }
    }
    return GW_OK;
}

/* If nobody is missing. */
static gw_status set_out(gw_together *t, gw_why *why)
{
    uint32_t posted = 0;
    for (uint32_t u = 0; u < t->n_users; u++) {
        posted += t->users[u].state == POSTED;
        if (t->users[u].state == FREE || t->users[u].state == DONE) {
            return GW_OK;
        }
    }
    if (posted == 0) {
        return GW_OK;
    }
    const int same = same_for_all(t);
    t->number++;
    gw_status status = measure(t, same, why);
    if (status == GW_OK) {
        pack(t, same);
        status = t->over->table->alltoallv(t->over, t->send, t->send_size, t->send_at, t->receive,
                                           t->size, t->at, &t->request, why);
    }
    t->under_way = status == GW_OK;
    return status;
}

/* ---- the table ---- */

static gw_status post(gw_comm *comm, const gw_call *call, gw_request *request, gw_why *why)
{
    user *who = (user *)comm;
    if (who->state != FREE) { /* the last operation's pieces are still needed */
        return GW_FAIL(why, GW_ERR_STATE, "one operation at a time goes together with others'");
    }
    const gw_status status = gw_call_pieces(call, comm, who->pieces, why);
    if (status != GW_OK) {
        return status;
    }
    const gw_piece *mine = &who->pieces[comm->rank];
    if (mine->sent != 0 && mine->from != mine->to) {
        memmove(mine->to, mine->from, mine->sent);
    }
    who->state = POSTED;
    *request = who;
    return set_out(who->of, why);
}

static gw_status test(gw_comm *comm, gw_request request, int *done, gw_why *why)
{
    user *who = request;
    gw_together *t = who->of;
    gw_status status = GW_OK;
    int arrived = 0;
    (void)comm;
    if (t->under_way) {
        status = t->over->table->test(t->over, t->request, &arrived, why);
        t->under_way = status == GW_OK && !arrived;
    }
    if (status == GW_OK && arrived) {
        status = unpack(t, why);
        for (uint32_t u = 0; u < t->n_users; u++) {
            t->users[u].state = t->users[u].state == POSTED ? DONE : t->users[u].state;
        }
    }
    *done = who->state == DONE;
    who->state = *done ? FREE : who->state;
    return status;
}

static void describe(gw_comm *comm, gw_request request, char *text, size_t size)
{
    const user *who = request;
    const gw_together *t = who->of;
    (void)comm;
    if (t->under_way) {
        gw_comm_describe(t->over, t->request, text, size);
    } else {
        (void)snprintf(text, size, "the other layers of its message");
    }
}

static const gw_comm_table table = {
    .size = sizeof table,
    .flags = GW_COMM_SEALED,
    .name = "together",
    .allgatherv = allgatherv,
    .alltoallv = alltoallv,
    .broadcast = broadcast,
    .test = test,
    .describe = describe,
};

/* ---- users ---- */

gw_status gw_together_create(gw_comm *over, uint32_t users, size_t bytes, gw_together **out,
                             gw_why *why)
{
    GW_REQUIRE(why, out != NULL, "no place for the messages");
    if (over == NULL || users == 0) {
        return GW_FAIL(why, GW_ERR_ARG, "messages that go together need a comm and users");
    }
    const size_t ranks = over->ranks;
    gw_together *t = calloc(1, sizeof *t);
    if (t != NULL) {
        *t = (gw_together){.over = over, .n_users = users, .bytes = bytes};
        t->users = calloc(users, sizeof *t->users);
        t->pieces = calloc(users * ranks, sizeof *t->pieces);
        t->send = malloc(2 * (bytes + SEAL * ranks));
        t->send_size = calloc(4 * ranks, sizeof *t->send_size);
        t->sent = calloc(ranks, sizeof *t->sent);
    }
    if (t == NULL || t->users == NULL || t->pieces == NULL || t->send == NULL ||
        t->send_size == NULL || t->sent == NULL) {
        gw_together_destroy(t);
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for messages that go together");
    }
    t->receive = t->send + bytes + SEAL * ranks;
    t->send_at = t->send_size + ranks;
    t->size = t->send_at + ranks;
    t->at = t->size + ranks;
    for (uint32_t u = 0; u < users; u++) {
        t->users[u] =
            (user){{&table, over->rank, over->ranks, NULL}, t, t->pieces + u * ranks, LEFT};
    }
    *out = t;
    return GW_OK;
}

void gw_together_destroy(gw_together *t)
{
    if (t != NULL) {
        free(t->users);
        free(t->pieces);
        free(t->send);
        free(t->send_size);
        free(t->sent);
        free(t);
    }
}

void gw_together_begin(gw_together *t)
{
    if (t == NULL) {
        return;
    }
    for (uint32_t u = 0; u < t->n_users; u++) {
        t->users[u].state = FREE;
    }
    memset(t->sent, 0, t->over->ranks * sizeof *t->sent);
}

uint32_t gw_together_sent(const gw_together *t, uint32_t member)
{
    return t != NULL && member < t->over->ranks ? t->sent[member] : 0;
}

gw_comm *gw_together_comm(gw_together *t, uint32_t number)
{
    return t != NULL && number < t->n_users ? &t->users[number].comm : NULL;
}

gw_status gw_together_leave(gw_together *t, uint32_t number, gw_why *why)
{
    GW_REQUIRE(why, t != NULL, "no messages");
    if (number >= t->n_users) {
        return GW_FAIL(why, GW_ERR_ARG, "user %u of %u", number, t->n_users);
    }
    t->users[number].state = LEFT;
    return set_out(t, why);
}
