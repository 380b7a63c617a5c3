/* As much of NCCL and (fake_device.c) of the CUDA driver as comm/nccl calls, for ranks that are threads of one process:
 * device memory is the process's, a stream is a queue that only moves when somebody asks for an event. Strict where the
 * real ones are lenient or dangerous: a call without a context, a call while a group is in progress. Messages of unequal
 * size do what NCCL does at best: the longer side never ends. */
#define _POSIX_C_SOURCE 200809L
#include "comm/fake_device.h"

#include <stdlib.h>
#include <string.h>

enum { INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE = 6 };

static world *worlds;
static uint32_t ids;
int fake_nccl_version = 22005, fake_nccl_fail_next;
/* a thread's open group of calls */
static _Thread_local int depth, wrong;
static _Thread_local part *told, **told_end;
static _Thread_local stream *told_stream;

int ncclGetVersion(int *version)
{
    *version = fake_nccl_version;
    return 0;
}

const char *ncclGetErrorString(int code)
{
    static const char *const words[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or there was a network error",
                                        "NCCL operation in progress"};
    return code >= 0 && code < 8 ? words[code] : "unknown result code";
}

const char *ncclGetLastError(gw_nccl_group group)
{
    return group != NULL ? "fake words" : "";
}

int ncclGetUniqueId(gw_nccl_id *id)
{
    const int code = fake_enter();
    memset(id, 0, sizeof *id);
    ids++;
    memcpy(id->bytes, &ids, sizeof ids);
    return fake_leave(code != 0);
}

/* ---- groups ---- */

static world *new_world(const gw_nccl_id *id, int ranks)
{
    world *w = fake_must(calloc(1, sizeof *w));
    w->id = *id;
    w->ranks = ranks;
    w->next = worlds;
    worlds = w;
    return w;
}

static member *join(world *w, int rank)
{
    member *m = fake_must(calloc(1, sizeof *m));
    m->in = w;
    m->rank = rank;
    m->polls = 1;
    w->members[rank] = m;
    w->joined++;
    fake_live(1);
    return m;
}

int ncclCommInitRankConfig(gw_nccl_group *out, int ranks, gw_nccl_id id, int rank,
                           gw_nccl_settings *settings)
{
    int code = fake_enter() != 0 ? INVALID_USAGE : 0;
    if (settings->magic != 0xcafebeefu || settings->blocking != 0 || ranks > MOST_RANKS) {
        code = INVALID_ARGUMENT;
    }
    world *w = worlds;
    while (w != NULL && memcmp(&w->id, &id, sizeof id) != 0) {
        w = w->next;
    }
    if (code == 0) {
        w = w != NULL ? w : new_world(&id, ranks);
        if (w->ranks != ranks || w->members[rank] != NULL) {
            code = INVALID_ARGUMENT;
        } else {
            *out = join(w, rank);
        }
    }
    return fake_leave(code != 0 ? code : GW_NCCL_IN_PROGRESS);
}

int ncclCommUserRank(gw_nccl_group group, int *rank)
{
    *rank = ((member *)group)->rank;
    return 0;
}

int ncclCommCount(gw_nccl_group group, int *ranks)
{
    *ranks = ((member *)group)->in->ranks;
    return 0;
}

int ncclCommGetAsyncError(gw_nccl_group group, int *state)
{
    (void)fake_enter();
    member *m = group;
    *state = m->state;
    if (m->state == 0 && (m->polls > 0 || m->splitting || m->in->joined < m->in->ranks)) {
        m->polls -= m->polls > 0;
        *state = GW_NCCL_IN_PROGRESS;
    }
    return fake_leave(0);
}

/* Of those of a colour that have not got their group yet: the first by key, then by rank. */
static member *next_of(const world *w, int colour, int *left)
{
    member *least = NULL;
    *left = 0;
    for (int i = 0; i < w->ranks; i++) {
        member *m = w->members[i];
        if (m != NULL && m->splitting && m->colour == colour) {
            (*left)++;
            least = least == NULL || m->key < least->key ? m : least;
        }
    }
    return least;
}

/* Everybody of a world has called it. */
static void split_all(world *w)
{
    static const gw_nccl_id none = {{0}};
    for (int i = 0; i < w->ranks; i++) {
        const member *first = w->members[i];
        int left = 0;
        if (first == NULL || !first->splitting) {
            continue;
        }
        const int colour = first->colour;
        (void)next_of(w, colour, &left);
        world *child = new_world(&none, left);
        for (member *m = NULL; (m = next_of(w, colour, &left)) != NULL;) {
            m->splitting = 0;
            *m->child = join(child, child->joined);
        }
    }
}

int ncclCommSplit(gw_nccl_group group, int colour, int key, gw_nccl_group *out,
                  gw_nccl_settings *settings)
{
    int code = fake_enter() != 0 ? INVALID_USAGE : 0;
    member *m = group;
    if (code != 0 || m->polls > 0 || m->state != 0 || settings != NULL) {
        return fake_leave(INVALID_USAGE);
    }
    *out = NULL;
    m->splitting = 1;
    m->colour = colour;
    m->key = key;
    m->child = out;
    int called = 0;
    for (int i = 0; i < m->in->ranks; i++) {
        called += m->in->members[i] != NULL && m->in->members[i]->splitting;
    }
    if (called == m->in->ranks) {
        split_all(m->in);
    }
    return fake_leave(GW_NCCL_IN_PROGRESS);
}

/* Gone; the others of its world are told if it was at work, or meant to tell. */
static int end_member(member *m, int tell)
{
    const int code = fake_enter() != 0 ? INVALID_USAGE : 0;
    world *w = m->in;
    tell |= m->active != NULL;
    fake_forget(m);
    w->members[m->rank] = NULL;
    for (int i = 0; tell && i < w->ranks; i++) {
        if (w->members[i] != NULL) {
            w->members[i]->state = REMOTE;
        }
    }
    free(m);
    fake_live(-1);
    if (++w->left == w->joined && (w->joined == w->ranks || tell)) {
        world **link = &worlds;
        while (*link != w) {
            link = &(*link)->next;
        }
        *link = w->next;
        free(w);
    }
    return fake_leave(code);
}

int ncclCommAbort(gw_nccl_group group)
{
    return end_member(group, 1);
}

int ncclCommDestroy(gw_nccl_group group)
{
    return end_member(group, 0);
}

/* ---- operations ---- */

int ncclGroupStart(void)
{
    if (depth++ == 0) {
        told = NULL;
        told_end = &told;
        wrong = 0;
    }
    return 0;
}

int ncclGroupEnd(void)
{
    if (--depth > 0) {
        return 0;
    }
    int code = fake_enter() != 0 ? INVALID_USAGE : wrong;
    if (fake_nccl_fail_next != 0) {
        code = fake_nccl_fail_next;
        fake_nccl_fail_next = 0;
    }
    if (code == 0 && told != NULL) {
        told->of->polls = 4;
        fake_append(told_stream, (task){.kind = PARTS, .parts = told});
        return fake_leave(GW_NCCL_IN_PROGRESS);
    }
    while (told != NULL) {
        part *p = told;
        told = p->next;
        free(p);
    }
    return fake_leave(code);
}

static int tell(part p, gw_nccl_group group, gw_cuda_handle where)
{
    (void)ncclGroupStart();
    (void)fake_enter();
    member *m = group;
    if (m->polls > 0 || m->splitting || m->in->joined < m->in->ranks || p.peer >= m->in->ranks) {
        wrong = INVALID_USAGE;
    } else if (p.bytes != 0) {
        p.of = m;
        *told_end = fake_must(malloc(sizeof p));
        **told_end = p;
        told_end = &(*told_end)->next;
        told_stream = where;
    }
    (void)fake_leave(0);
    return ncclGroupEnd();
}

static size_t bytes_of(size_t count, int type)
{
    return type == GW_NCCL_FLOAT32 ? count * sizeof(float) : count;
}

int ncclSend(const void *from, size_t count, int type, int peer, gw_nccl_group group,
             gw_cuda_handle where)
{
    return tell((part){.kind = SEND, .peer = peer, .from = from, .bytes = bytes_of(count, type)},
                group, where);
}

int ncclRecv(void *to, size_t count, int type, int peer, gw_nccl_group group, gw_cuda_handle where)
{
    return tell((part){.kind = RECV, .peer = peer, .to = to, .bytes = bytes_of(count, type)}, group,
                where);
}

int ncclBroadcast(const void *from, void *to, size_t count, int type, int root, gw_nccl_group group,
                  gw_cuda_handle where)
{
    return tell((part){.kind = BROADCAST,
                       .peer = root,
                       .from = from,
                       .to = to,
                       .bytes = bytes_of(count, type)},
                group, where);
}

int ncclAllReduce(const void *from, void *to, size_t count, int type, int op, gw_nccl_group group,
                  gw_cuda_handle where)
{
    return op != GW_NCCL_SUM ? INVALID_ARGUMENT
                             : tell((part){.kind = ALL_REDUCE,
                                           .from = from,
                                           .to = to,
                                           .bytes = bytes_of(count, type)},
                                    group, where);
}
