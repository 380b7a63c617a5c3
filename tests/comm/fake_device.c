#define _POSIX_C_SOURCE 200809L
#include "comm/fake_device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static stream *streams;
static int live, followed; /* live: objects that nobody has destroyed */
void (*fake_nccl_copy)(void *to, const void *from, size_t bytes);
void (*fake_nccl_settle)(void *stream);
static _Thread_local int contexts;

int fake_nccl_live(void)
{
    (void)pthread_mutex_lock(&lock);
    const int n = live;
    (void)pthread_mutex_unlock(&lock);
    return n;
}

void fake_nccl_hold(void *where, int yes)
{
    (void)pthread_mutex_lock(&lock);
    ((stream *)where)->held = yes;
    (void)pthread_mutex_unlock(&lock);
}

int fake_nccl_followed(void)
{
    (void)pthread_mutex_lock(&lock);
    const int n = followed;
    (void)pthread_mutex_unlock(&lock);
    return n;
}

int fake_leave(int code)
{
    (void)pthread_mutex_unlock(&lock);
    return code;
}

int fake_enter(void)
{
    (void)pthread_mutex_lock(&lock);
    return contexts > 0 ? 0 : NO_CONTEXT;
}

void fake_live(int more)
{
    live += more;
}

void *fake_must(void *p)
{
    if (p == NULL) {
        (void)fprintf(stderr, "fake NCCL: out of memory\n");
        abort();
    }
    return p;
}

/* ---- the device's work ---- */

static void copy_bytes(void *to, const void *from, size_t bytes)
{
    if (fake_nccl_copy != NULL) {
        fake_nccl_copy(to, from, bytes);
    } else {
        memmove(to, from, bytes);
    }
}

/* Of an active list: the first that is not done and goes that way. */
static part *first_of(member *m, part_kind kind, int peer)
{
    for (part *p = m != NULL ? m->active : NULL; p != NULL; p = p->behind) {
        if (!p->done && p->kind == kind && p->peer == peer) {
            return p;
        }
    }
    return NULL;
}

static int move_message(part *send)
{
    member *to = send->of->in->members[send->peer];
    part *receive = first_of(to, RECV, send->of->rank);
    if (receive == NULL || send->stuck || receive->stuck ||
        first_of(send->of, SEND, send->peer) != send) {
        return 0;
    }
    const size_t bytes = send->bytes < receive->bytes ? send->bytes : receive->bytes;
    copy_bytes(receive->to, send->from, bytes);
    send->done = send->bytes == bytes;
    receive->done = receive->bytes == bytes;
    send->stuck = !send->done;
    receive->stuck = !receive->done;
    return 1;
}

/* Sum of every member's numbers, in rank order. */
static float *sum_of(part **all, int ranks, size_t bytes)
{
    float *sum = fake_must(calloc(bytes / sizeof *sum + 1, sizeof *sum));
    for (int r = 0; r < ranks; r++) {
        const float *values = all[r]->from;
        for (size_t i = 0; i < bytes / sizeof *sum; i++) {
            sum[i] += values[i];
        }
    }
    return sum;
}

static void run_collective(part **all, int ranks)
{
    const part_kind kind = all[0]->kind;
    const size_t bytes = all[0]->bytes;
    const int root = all[0]->peer;
    float *sum = kind == ALL_REDUCE ? sum_of(all, ranks, bytes) : NULL;
    for (int r = 0; r < ranks; r++) {
        part *p = all[r];
        p->done = 1;
        if (kind == BROADCAST && (r != root || p->from != p->to)) {
            copy_bytes(p->to, all[root]->from, bytes);
        } else if (kind == ALL_REDUCE) {
            memcpy(p->to, sum, bytes);
        }
    }
    free(sum);
}

/* Waits for all members; what they do not mean alike never ends. */
static int meet(part *mine)
{
    world *in = mine->of->in;
    part *all[MOST_RANKS] = {mine};
    for (int r = 0; r < in->ranks; r++) {
        part *p = in->members[r] != NULL ? in->members[r]->active : NULL;
        while (p != NULL && (p->kind == SEND || p->kind == RECV || p->number != mine->number)) {
            p = p->behind;
        }
        if (p == NULL || p->stuck || p->done) {
            return 0;
        }
        if (p->kind != mine->kind || p->bytes != mine->bytes || p->peer != mine->peer) {
            mine->stuck = 1;
            return 0;
        }
        all[r] = p;
    }
    run_collective(all, in->ranks);
    return 1;
}

static void begin(task *t)
{
    t->begun = 1;
    for (part *p = t->parts; p != NULL; p = p->next) {
        if (p->done) {
            continue;
        }
        part **link = &p->of->active;
        while (*link != NULL) {
            link = &(*link)->behind;
        }
        *link = p;
        p->number = p->kind == SEND || p->kind == RECV ? 0 : p->of->collectives++;
    }
}

static void take_off(part *p)
{
    part **link = p->of != NULL ? &p->of->active : NULL;
    while (link != NULL && *link != NULL && *link != p) {
        link = &(*link)->behind;
    }
    if (link != NULL && *link == p) {
        *link = p->behind;
    }
}

/* 1 if the task is over; *moved if anything happened. */
static int work(task *t, int *moved)
{
    int left = 0;
    switch (t->kind) {
    case RECORD:
        t->event->reached = t->number;
        return 1;
    case WAIT:
        return t->event->reached >= t->number;
    case NOTHING:
        return 1;
    case COPY:
        copy_bytes(t->copy.to, t->copy.from, t->copy.bytes);
        return 1;
    default:
        break;
    }
    if (!t->begun) {
        begin(t);
        *moved = 1;
    }
    for (part *p = t->parts; p != NULL; p = p->next) {
        if (!p->done && p->kind != RECV) {
            *moved |= p->kind == SEND ? move_message(p) : meet(p);
        }
        left += !p->done;
    }
    return left == 0;
}

static void free_task(task *t)
{
    while (t->parts != NULL) {
        part *p = t->parts;
        t->parts = p->next;
        take_off(p);
        free(p);
    }
    free(t);
}

static void progress(void)
{
    for (int moved = 1; moved;) {
        moved = 0;
        for (stream *s = streams; s != NULL; s = s->next) {
            while (s->first != NULL && !s->held && work(s->first, &moved)) {
                task *t = s->first;
                s->first = t->next;
                free_task(t);
                moved = 1;
            }
        }
    }
}

void fake_append(stream *s, task t)
{
    task *made = fake_must(malloc(sizeof *made));
    *made = t;
    if (s->first != NULL) {
        s->last->next = made;
    } else {
        s->first = made;
    }
    s->last = made;
}

void fake_forget(member *m)
{
    for (stream *s = streams; s != NULL; s = s->next) {
        for (task *t = s->first; t != NULL; t = t->next) {
            for (part *p = t->parts; p != NULL; p = p->next) {
                p->done |= p->of == m;
                p->of = p->of == m ? NULL : p->of;
            }
        }
    }
}

/* ---- the driver ---- */

int cuInit(unsigned flags)
{
    return (int)flags;
}

int cuGetErrorString(int code, const char **text)
{
    *text = code == NO_CONTEXT ? "invalid device context" : "a fake error";
    return 0;
}

int cuCtxGetCurrent(gw_cuda_handle *context)
{
    *context = contexts > 0 ? (void *)&lock : NULL;
    return 0;
}

int cuCtxPushCurrent_v2(gw_cuda_handle context)
{
    contexts++;
    return context == (void *)&lock || contexts == 1 ? 0 : NO_CONTEXT;
}

int cuCtxPopCurrent_v2(gw_cuda_handle *context)
{
    *context = (void *)&lock;
    return contexts-- > 0 ? 0 : NO_CONTEXT;
}

int cuStreamCreate(gw_cuda_handle *out, unsigned flags)
{
    const int code = fake_enter();
    (void)flags;
    if (code == 0) {
        stream *s = fake_must(calloc(1, sizeof *s));
        s->next = streams;
        streams = s;
        live++;
        *out = s;
    }
    return fake_leave(code);
}

int cuStreamDestroy_v2(gw_cuda_handle stream_)
{
    const int code = fake_enter();
    stream *s = stream_, **link = &streams;
    while (*link != s) {
        link = &(*link)->next;
    }
    *link = s->next;
    while (s->first != NULL) {
        task *t = s->first;
        s->first = t->next;
        free_task(t);
    }
    free(s);
    live--;
    return fake_leave(code);
}

int cuStreamWaitEvent(gw_cuda_handle stream_, gw_cuda_handle event_, unsigned flags)
{
    const int code = fake_enter();
    event *e = event_;
    (void)flags;
    fake_append(stream_, (task){.kind = WAIT, .event = e, .number = e->recorded});
    return fake_leave(code);
}

int cuEventCreate(gw_cuda_handle *out, unsigned flags)
{
    const int code = fake_enter();
    (void)flags;
    if (code == 0) {
        *out = fake_must(calloc(1, sizeof(event)));
        live++;
    }
    return fake_leave(code);
}

int cuEventDestroy_v2(gw_cuda_handle event_)
{
    const int code = fake_enter();
    for (stream *s = streams; s != NULL; s = s->next) { /* work that names it goes on without */
        for (task *t = s->first; t != NULL; t = t->next) {
            t->kind = t->event == event_ ? NOTHING : t->kind;
        }
    }
    free(event_);
    live--;
    return fake_leave(code);
}

static int is_own(const void *stream_)
{
    const stream *s = streams;
    while (s != NULL && s != stream_) {
        s = s->next;
    }
    return s != NULL;
}

int cuEventRecord(gw_cuda_handle event_, gw_cuda_handle stream_)
{
    const int code = fake_enter();
    event *e = event_;
    e->recorded++;
    if (stream_ == NULL) { /* the default stream, which never has anything to do */
        e->reached = e->recorded;
    } else if (!is_own(stream_)) {
        followed++;
        if (fake_nccl_settle != NULL) {
            fake_nccl_settle(stream_);
        }
        e->reached = e->recorded;
    } else {
        fake_append(stream_, (task){.kind = RECORD, .event = e, .number = e->recorded});
    }
    return fake_leave(code);
}

int cuEventQuery(gw_cuda_handle event_)
{
    const int code = fake_enter();
    const event *e = event_;
    progress();
    return fake_leave(code != 0 ? code : e->reached >= e->recorded ? 0 : GW_CUDA_NOT_READY);
}

int cuMemAlloc_v2(gw_cuda_address *at, size_t bytes)
{
    const int code = fake_enter();
    *at = (gw_cuda_address)(uintptr_t)fake_must(calloc(1, bytes));
    live++;
    return fake_leave(code);
}

int cuMemFree_v2(gw_cuda_address at)
{
    const int code = fake_enter();
    free((void *)(uintptr_t)at);
    live--;
    return fake_leave(code);
}

int cuMemcpyDtoDAsync_v2(gw_cuda_address to, gw_cuda_address from, size_t bytes,
                         gw_cuda_handle stream_)
{
    const int code = fake_enter();
    fake_append(stream_, (task){.kind = COPY,
                                .copy = {.from = (const void *)(uintptr_t)from,
                                         .to = (void *)(uintptr_t)to,
                                         .bytes = bytes}});
    return fake_leave(code);
}
