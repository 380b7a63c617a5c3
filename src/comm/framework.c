/* Operations as messages in a queue, from which a host framework takes them. */
#define _POSIX_C_SOURCE 200809L
#include "base/priority.h"
#include "base/why.h"
#include "comm/operations.h"

#include <gradwire/hosted.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct hosted_end hosted_end;

typedef struct hosted_operation {
    struct hosted_operation *next; /* in the queue, or among the idle */
    struct hosted_operation *made; /* before this one */
    hosted_end *end;
    gw_operation operation;
    gw_piece *pieces;
    gw_hosted_message *messages;
    uint32_t n_messages;
    int done;
    unsigned char token[2]; /* of a barrier: sent, received */
} hosted_operation;

/* One rank's end of a group. */
struct hosted_end {
    gw_comm comm;
    gw_hosted *job;
    hosted_end *closed; /* the one closed before it */
    uint32_t *ranks;    /* of the job */
    uint32_t tag;
    void (*call)(void *with); /* when an operation is done; guarded */
    void *with;
};

struct gw_hosted {
    hosted_end *world;
    hosted_end *closed;   /* after a failure: freed with the job */
    pthread_mutex_t lock; /* guards all below, and `done` of operations */
    pthread_cond_t posted;
    hosted_operation *first, *last, *idle;
    hosted_operation *made; /* all there are */
    uint32_t n_made, ends;
    uint32_t under_way;
    uint32_t next_tag;
    int stop, gave_up, told;
    gw_status failed;
    gw_why why;
};

/* ---- operations ---- */

/* Not under the lock. */
static hosted_operation *new_operation(gw_hosted *job)
{
    const uint32_t ranks = job->world->comm.ranks;
    hosted_operation *op = calloc(1, sizeof *op);
    gw_piece *pieces = calloc(ranks, sizeof *pieces);
    gw_hosted_message *messages = calloc(2 * (size_t)ranks, sizeof *messages);
    if (op == NULL || pieces == NULL || messages == NULL) {
        free(op);
        free(pieces);
        free(messages);
        return NULL;
    }
    op->pieces = pieces;
    op->messages = messages;
    (void)pthread_mutex_lock(&job->lock);
    op->made = job->made;
    job->made = op;
    job->n_made++;
    (void)pthread_mutex_unlock(&job->lock);
    return op;
}

static void keep_idle(gw_hosted *job, hosted_operation *op)
{
    (void)pthread_mutex_lock(&job->lock);
    op->next = job->idle;
    job->idle = op;
    (void)pthread_mutex_unlock(&job->lock);
}

/* Another group: as many operations as exchanges can have under way in all of them, so that posting allocates none. */
static gw_status add_end(gw_hosted *job, gw_why *why)
{
    (void)pthread_mutex_lock(&job->lock);
    const uint32_t wanted = GW_COMM_AT_ONCE * ++job->ends, made = job->n_made;
    (void)pthread_mutex_unlock(&job->lock);
    for (uint32_t i = made; i < wanted; i++) {
        hosted_operation *op = new_operation(job);
        if (op == NULL) {
            return GW_FAIL(why, GW_ERR_MEMORY, "no memory for an operation");
        }
        keep_idle(job, op);
    }
    return GW_OK;
}

static gw_status failure(gw_hosted *job, gw_why *why)
{
    (void)pthread_mutex_lock(&job->lock);
    gw_status status = GW_OK;
    if (job->failed != GW_OK) {
        status = gw_fail(why, job->failed, "%s", job->why.text);
    } else if (job->stop) {
        status = GW_FAIL(why, GW_ERR_STATE, "the host has stopped");
    }
    (void)pthread_mutex_unlock(&job->lock);
    return status;
}

/* NULL: *status says why. */
static hosted_operation *take_idle(gw_comm *comm, gw_operation operation, gw_status *status,
                                   gw_why *why)
{
    hosted_end *end = (hosted_end *)comm;
    gw_hosted *job = end->job;
    *status = failure(job, why);
    if (*status != GW_OK) {
        return NULL;
    }
    (void)pthread_mutex_lock(&job->lock);
    hosted_operation *op = job->idle;
    job->idle = op != NULL ? op->next : NULL;
    (void)pthread_mutex_unlock(&job->lock);
    op = op != NULL ? op : new_operation(job);
    if (op == NULL) {
        *status = GW_FAIL(why, GW_ERR_MEMORY, "no memory for an operation");
        return NULL;
    }
    op->end = end;
    op->operation = operation;
    op->n_messages = 0;
    op->done = 0;
    op->next = NULL;
    return op;
}

static void give_idle(hosted_operation *op)
{
    keep_idle(op->end->job, op);
}

static void add_message(hosted_operation *op, uint32_t member, int incoming)
{
    const gw_piece *p = &op->pieces[member];
    void *data = incoming ? (void *)p->to : (void *)(uintptr_t)p->from;
    size_t bytes = incoming ? p->received : p->sent;
    if (op->operation == GW_BARRIER) {
        data = &op->token[incoming];
        bytes = 1;
    }
    if (bytes != 0) {
        op->messages[op->n_messages++] =
            (gw_hosted_message){op->end->ranks[member], (uint32_t)incoming, data, bytes};
    }
}

/* Into the queue, unless there is nothing to carry. */
static void begin(hosted_operation *op)
{
    gw_hosted *job = op->end->job;
    const uint32_t own = op->end->comm.rank, ranks = op->end->comm.ranks;
    for (uint32_t i = 1; i < ranks; i++) {
        add_message(op, (own + ranks - i) % ranks, 1);
    }
    for (uint32_t i = 1; i < ranks; i++) {
        add_message(op, (own + i) % ranks, 0);
    }
    const gw_piece *mine = &op->pieces[own];
    if (mine->sent != 0 && mine->from != mine->to) {
        memmove(mine->to, mine->from, mine->sent);
    }
    (void)pthread_mutex_lock(&job->lock);
    op->done = op->n_messages == 0;
    if (!op->done) {
        if (job->last != NULL) {
            job->last->next = op;
        } else {
            job->first = op;
        }
        job->last = op;
        (void)pthread_cond_signal(&job->posted);
    }
    (void)pthread_mutex_unlock(&job->lock);
}

/* ---- the table ---- */

static gw_status post(gw_comm *comm, const gw_call *call, gw_request *request, gw_why *why)
{
    gw_status status = GW_OK;
    hosted_operation *op = take_idle(comm, call->operation, &status, why);
    if (op == NULL) {
        return status;
    }
    status = gw_call_pieces(call, comm, op->pieces, why);
    if (status != GW_OK) {
        give_idle(op);
        return status;
    }
    *request = op;
    begin(op);
    return GW_OK;
}

static gw_status test(gw_comm *comm, gw_request request, int *done, gw_why *why)
{
    gw_hosted *job = ((hosted_end *)comm)->job;
    hosted_operation *op = request;
    (void)pthread_mutex_lock(&job->lock);
    *done = op->done && job->failed == GW_OK;
    const gw_status status =
        job->failed == GW_OK ? GW_OK : gw_fail(why, job->failed, "%s", job->why.text);
    (void)pthread_mutex_unlock(&job->lock);
    if (*done) {
        give_idle(op);
    }
    return status;
}

static void free_end(hosted_end *end)
{
    (void)pthread_mutex_lock(&end->job->lock);
    end->job->ends--;
    (void)pthread_mutex_unlock(&end->job->lock);
    gw_comm_let_go(&end->comm);
    free(end->ranks);
    free(end);
}

static hosted_end *new_end(gw_hosted *job, const gw_comm_table *table, uint32_t ranks)
{
    hosted_end *end = calloc(1, sizeof *end);
    uint32_t *names = calloc(ranks, sizeof *names);
    if (end == NULL || names == NULL) {
        free(end);
        free(names);
        return NULL;
    }
    end->comm = (gw_comm){.table = table, .ranks = ranks};
    end->job = job;
    end->ranks = names;
    return end;
}

typedef struct hosted_wish {
    uint32_t colour, key, next_tag;
} hosted_wish;

/* Members of the caller's colour, by key, then rank. The tag is one that none of them has used. */
static gw_status make_part(hosted_end *end, const hosted_wish *all, gw_comm **out, gw_why *why)
{
    const uint32_t own = end->comm.rank;
    hosted_end *part = new_end(end->job, end->comm.table, end->comm.ranks);
    if (part == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for a group");
    }
    part->comm.ranks = 0;
    for (uint32_t i = 0; i < end->comm.ranks; i++) {
        if (all[i].colour != all[own].colour) {
            continue;
        }
        uint32_t before = 0; /* members that stand before i */
        for (uint32_t j = 0; j < end->comm.ranks; j++) {
            before += all[j].colour == all[i].colour &&
                      (all[j].key < all[i].key || (all[j].key == all[i].key && j < i));
        }
        part->ranks[before] = end->ranks[i];
        part->comm.rank = i == own ? before : part->comm.rank;
        part->comm.ranks++;
        part->tag = all[i].next_tag > part->tag ? all[i].next_tag : part->tag;
    }
    end->job->next_tag = part->tag + 1;
    const gw_status status = add_end(end->job, why);
    if (status != GW_OK) {
        free_end(part);
        return status;
    }
    *out = &part->comm;
    return GW_OK;
}

static gw_status split(gw_comm *comm, uint32_t colour, uint32_t key, gw_comm **out, gw_why *why)
{
    hosted_end *end = (hosted_end *)comm;
    const hosted_wish mine = {colour, key, end->job->next_tag};
    hosted_wish *all = calloc(comm->ranks, sizeof *all);
    gw_status status = all != NULL /* the host knows how long to wait */
                           ? gw_comm_gather(comm, &mine, sizeof mine, all, 0, why)
                           : GW_FAIL(why, GW_ERR_MEMORY, "no memory for a group");
    if (status == GW_OK) {
        status = make_part(end, all, out, why);
    }
    free(all);
    return status;
}

static void give_up(gw_comm *comm, const char *reason)
{
    gw_hosted *job = ((hosted_end *)comm)->job;
    (void)pthread_mutex_lock(&job->lock);
    if (!job->gave_up) { /* these words know step and tensor: better than what the host said */
        job->gave_up = 1;
        job->failed = gw_fail(&job->why, job->failed != GW_OK ? job->failed : GW_ERR_PEER, "%s",
                              reason != NULL ? reason : "no reason given");
    }
    (void)pthread_cond_signal(&job->posted);
    (void)pthread_mutex_unlock(&job->lock);
}

static void close_end(gw_comm *comm)
{
    hosted_end *end = (hosted_end *)comm;
    gw_hosted *job = end->job;
    if (end == job->world) {
        return;
    }
    if (job->failed == GW_OK) {
        free_end(end);
    } else { /* the host may still be at work on its operations, which name it */
        end->closed = job->closed;
        job->closed = end;
    }
}

static void describe(gw_comm *comm, gw_request request, char *text, size_t size)
{
    const hosted_operation *op = request;
    const hosted_end *end = (const hosted_end *)comm;
    gw_rank_list peers = {0};
    for (uint32_t i = 0; i < op->end->comm.ranks; i++) {
        if (i != comm->rank && (op->pieces[i].received != 0 || op->operation == GW_BARRIER)) {
            gw_rank_list_add(&peers, end->ranks[i]);
        }
    }
    /* the host says when all messages are through, not which */
    (void)snprintf(text, size, "%s (tag %u):", gw_operation_name(op->operation), end->tag);
    gw_rank_list_say(&peers, peers.n > 1 ? " at least one of" : "", text, size);
    const size_t used = strlen(text);
    (void)snprintf(text + used, size - used, "%s",
                   peers.n != 0 ? " has not answered" : " not sent yet");
}

static void notify(gw_comm *comm, void (*call)(void *with), void *with)
{
    hosted_end *end = (hosted_end *)comm;
    (void)pthread_mutex_lock(&end->job->lock);
    end->call = call;
    end->with = with;
    (void)pthread_mutex_unlock(&end->job->lock);
}

static const gw_comm_table table = {
    .size = sizeof(gw_comm_table),
    .name = "hosted",
    .allgatherv = allgatherv,
    .alltoallv = alltoallv,
    .broadcast = broadcast,
    .barrier = barrier,
    .test = test,
    .split = split,
    .abort = give_up,
    .close = close_end,
    .describe = describe,
    .notify = notify,
};

/* ---- the host's side ---- */

gw_status gw_hosted_create(uint32_t rank, uint32_t ranks, gw_hosted **out, gw_why *why)
{
    if (out == NULL || rank >= ranks) {
        return GW_FAIL(why, GW_ERR_ARG, "gw_hosted_create: rank %u of %u", rank, ranks);
    }
    gw_hosted *job = calloc(1, sizeof *job);
    hosted_end *world = job != NULL ? new_end(job, &table, ranks) : NULL;
    if (world == NULL) {
        free(job);
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for a group");
    }
    world->comm.rank = rank;
    for (uint32_t i = 0; i < ranks; i++) {
        world->ranks[i] = i;
    }
    job->world = world;
    job->next_tag = 1;
    (void)pthread_mutex_init(&job->lock, NULL);
    (void)pthread_cond_init(&job->posted, NULL);
    const gw_status status = add_end(job, why);
    if (status != GW_OK) {
        (void)gw_hosted_destroy(job);
        return status;
    }
    *out = job;
    return GW_OK;
}

gw_comm *gw_hosted_comm(gw_hosted *job)
{
    if (job == NULL) {
        return NULL;
    }
    return &job->world->comm;
}

gw_status gw_hosted_take(gw_hosted *job, gw_hosted_work *work, gw_why *why)
{
    GW_REQUIRE(why, job != NULL && work != NULL, "no group, or no place for the work");
    (void)pthread_mutex_lock(&job->lock);
    while (!job->stop && (!job->gave_up || job->told) && job->first == NULL) {
        (void)pthread_cond_wait(&job->posted, &job->lock);
    }
    gw_status status = GW_OK;
    hosted_operation *op = job->first;
    if (job->gave_up && !job->told) { /* before `stop`: a rank may fail and close at once */
        job->told = 1;
        job->first = job->last = NULL; /* no rank waits for these any more */
        status = gw_fail(why, GW_ERR_PEER, "%s", job->why.text);
    } else if (job->stop) {
        status = GW_FAIL(why, GW_ERR_STATE, "stopped");
    } else {
        job->first = op->next;
        job->last = job->first != NULL ? job->last : NULL;
        op->next = NULL;
        job->under_way++;
        *work = (gw_hosted_work){op, op->end->tag, op->n_messages, op->messages};
    }
    (void)pthread_mutex_unlock(&job->lock);
    return status;
}

gw_status gw_hosted_done(gw_hosted *job, void *id, gw_status status, const char *text)
{
    hosted_operation *op = id;
    if (job == NULL || op == NULL) {
        return GW_ERR_ARG;
    }
    (void)pthread_mutex_lock(&job->lock);
    job->under_way--;
    op->done = 1;
    if (status != GW_OK && job->failed == GW_OK) {
        job->failed =
            gw_fail(&job->why, status, "%s", text != NULL ? text : gw_status_string(status));
    }
    if (op->end->call != NULL) { /* under the lock, so that it ends with notify(NULL) */
        op->end->call(op->end->with);
    }
    (void)pthread_mutex_unlock(&job->lock);
    return GW_OK;
}

uint32_t gw_hosted_under_way(gw_hosted *job)
{
    if (job == NULL) {
        return 0;
    }
    (void)pthread_mutex_lock(&job->lock);
    const uint32_t n = job->under_way;
    (void)pthread_mutex_unlock(&job->lock);
    return n;
}

void gw_hosted_hurry(int hurry)
{
    if (hurry) {
        gw_turn_soon();
    } else {
        gw_turn_as_usual();
    }
}

void gw_hosted_stop(gw_hosted *job)
{
    if (job == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&job->lock);
    job->stop = 1;
    (void)pthread_cond_broadcast(&job->posted);
    (void)pthread_mutex_unlock(&job->lock);
}

gw_status gw_hosted_destroy(gw_hosted *job)
{
    if (job == NULL) {
        return GW_OK;
    }
    if (gw_hosted_under_way(job) != 0) {
        return GW_ERR_STATE;
    }
    while (job->made != NULL) {
        hosted_operation *op = job->made;
        job->made = op->made;
        free(op->pieces);
        free(op->messages);
        free(op);
    }
    while (job->closed != NULL) {
        hosted_end *end = job->closed;
        job->closed = end->closed;
        free_end(end);
    }
    free_end(job->world);
    (void)pthread_cond_destroy(&job->posted);
    (void)pthread_mutex_destroy(&job->lock);
    free(job);
    return GW_OK;
}
