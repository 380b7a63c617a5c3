#define _POSIX_C_SOURCE 200809L
#include "comm/hosts.h"

#include "support/ranks.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGES = 4096, OPERATIONS = 1024 };

typedef struct operation {
    uint32_t left; /* messages; 0: free */
    gw_status status;
} operation;

typedef struct parcel {
    uint32_t from, to, tag;
    int incoming, open;
    void *data;
    size_t bytes;
    gw_hosted *host;
    void *id;
    operation *operation;
} parcel;

typedef struct office {
    pthread_mutex_t lock;
    parcel waiting[MESSAGES];
    operation operations[OPERATIONS];
    uint32_t n;      /* those before are there, open or through */
    char given[300]; /* why a rank gave up; empty: none did */
} office;

typedef struct host {
    office *post;
    gw_hosted *hosted;
    uint32_t rank;
    hosts_main *main;
    void *arg;
} host;

static void through(parcel *p, gw_status status, const char *words)
{
    p->open = 0;
    p->operation->status = status != GW_OK ? status : p->operation->status;
    if (--p->operation->left == 0) {
        const gw_status all = p->operation->status;
        (void)gw_hosted_done(p->host, p->id, all, all != GW_OK ? words : NULL);
    }
}

/* The order of those that wait stays. */
static void close_gaps(office *o)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < o->n; i++) {
        if (o->waiting[i].open) {
            o->waiting[kept++] = o->waiting[i];
        }
    }
    o->n = kept;
}

static void deliver(office *o, parcel *in)
{
    if (o->given[0] != 0) {
        through(in, GW_ERR_PEER, o->given);
        return;
    }
    for (uint32_t i = 0; i < o->n; i++) {
        parcel *p = &o->waiting[i];
        if (p->open && p->incoming != in->incoming && p->from == in->from && p->to == in->to &&
            p->tag == in->tag) {
            const int same = p->bytes == in->bytes;
            const gw_status status = same ? GW_OK : GW_ERR_DISAGREE;
            if (same) {
                memcpy(p->incoming ? p->data : in->data, p->incoming ? in->data : p->data,
                       p->bytes);
            }
            through(p, status, "one sends what the other does not receive");
            through(in, status, "one sends what the other does not receive");
            return;
        }
    }
    if (o->n == MESSAGES) {
        close_gaps(o);
    }
    RANK_TRUE(o->n < MESSAGES, "too many messages");
    o->waiting[o->n++] = *in;
}

/* Everything that waits ends with the reason of the rank that gave up. */
static void give_up(office *o, uint32_t rank, const char *words)
{
    if (o->given[0] == 0) {
        (void)snprintf(o->given, sizeof o->given, "rank %u gave up: %s", rank, words);
    }
    for (uint32_t i = 0; i < o->n; i++) {
        if (o->waiting[i].open) {
            through(&o->waiting[i], GW_ERR_PEER, o->given);
        }
    }
    o->n = 0;
}

static operation *free_operation(office *o)
{
    uint32_t i = 0;
    while (i < OPERATIONS && o->operations[i].left != 0) {
        i++;
    }
    RANK_TRUE(i < OPERATIONS, "too many operations");
    return &o->operations[i];
}

static void carry_work(host *h, const gw_hosted_work *work)
{
    gw_hosted_message messages[2 * HOSTS_MOST]; /* the work is gone with its last message */
    operation *op = free_operation(h->post);    /* no malloc: step/steady counts those */
    const uint32_t n = work->n_messages;
    RANK_TRUE(n != 0 && n <= 2 * HOSTS_MOST, "a work without messages");
    *op = (operation){n, GW_OK};
    memcpy(messages, work->messages, n * sizeof *messages);
    for (uint32_t i = 0; i < n; i++) {
        const gw_hosted_message *m = &messages[i];
        parcel p = {m->incoming ? m->peer : h->rank,
                    m->incoming ? h->rank : m->peer,
                    work->tag,
                    (int)m->incoming,
                    1,
                    m->data,
                    m->bytes,
                    h->hosted,
                    work->id,
                    op};
        deliver(h->post, &p);
    }
}

static void *carry(void *arg)
{
    host *h = arg;
    gw_hosted_work work;
    gw_why why = {""};
    gw_status status = GW_OK;
    while ((status = gw_hosted_take(h->hosted, &work, &why)) == GW_OK || status == GW_ERR_PEER) {
        (void)pthread_mutex_lock(&h->post->lock);
        if (status == GW_ERR_PEER) {
            give_up(h->post, h->rank, why.text);
        } else {
            carry_work(h, &work);
        }
        (void)pthread_mutex_unlock(&h->post->lock);
    }
    return NULL;
}

static void *rank_main(void *arg)
{
    host *h = arg;
    h->main(h->rank, gw_hosted_comm(h->hosted), h->arg);
    return NULL;
}

void hosts_run(uint32_t n, hosts_main *main, void *arg)
{
    static office post;
    host hosts[HOSTS_MOST];
    pthread_t threads[HOSTS_MOST], carriers[HOSTS_MOST];
    memset(&post, 0, sizeof post);
    RANK_TRUE(n <= HOSTS_MOST && pthread_mutex_init(&post.lock, NULL) == 0, "no office");
    for (uint32_t i = 0; i < n; i++) {
        gw_why why = {""};
        hosts[i] = (host){.post = &post, .rank = i, .main = main, .arg = arg};
        RANK_OK(gw_hosted_create(i, n, &hosts[i].hosted, &why), why.text);
        RANK_TRUE(pthread_create(&carriers[i], NULL, carry, &hosts[i]) == 0, "no thread");
    }
    for (uint32_t i = 0; i < n; i++) {
        RANK_TRUE(pthread_create(&threads[i], NULL, rank_main, &hosts[i]) == 0, "no thread");
    }
    for (uint32_t i = 0; i < n; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    for (uint32_t i = 0; i < n; i++) {
        gw_hosted_stop(hosts[i].hosted);
        (void)pthread_join(carriers[i], NULL);
    }
    if (post.given[0] == 0) {
        for (uint32_t i = 0; i < n; i++) {
            RANK_TRUE(gw_hosted_under_way(hosts[i].hosted) == 0, "something is still under way");
        }
    }
    give_up(&post, n, "the job has ended"); /* what nobody waits for any more */
    for (uint32_t i = 0; i < n; i++) {
        RANK_OK(gw_hosted_destroy(hosts[i].hosted), "something is still under way");
    }
    (void)pthread_mutex_destroy(&post.lock);
}
