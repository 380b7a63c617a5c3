/* The fake device behind the fake NCCL: streams, events, and the messages and collectives that work on them. One lock
 * guards it all. */
#ifndef GW_TESTS_COMM_FAKE_DEVICE_H
#define GW_TESTS_COMM_FAKE_DEVICE_H

#include "comm/fake_nccl.h"
#include "comm/nccl_calls.h"

#include <stdint.h>

enum { MOST_RANKS = 64, NO_CONTEXT = 201 };

#define DECLARE(name, arguments) FAKE_API int name arguments;
GW_NCCL_CALLS(DECLARE)
GW_CUDA_CALLS(DECLARE)
#undef DECLARE
FAKE_API const char *ncclGetErrorString(int code);
FAKE_API const char *ncclGetLastError(gw_nccl_group group);

typedef struct world world;

/* One rank's communicator. */
typedef struct member {
    world *in;
    int rank, state, polls; /* polls: so often it still says "in progress" */
    uint64_t collectives;
    struct part *active; /* begun, not done, in order */
    int splitting, colour, key;
    gw_nccl_group *child;
} member;

struct world {
    world *next;
    gw_nccl_id id;
    int ranks, joined, left;
    member *members[MOST_RANKS];
};

typedef enum part_kind { SEND, RECV, BROADCAST, ALL_REDUCE } part_kind;

typedef struct part {
    struct part *next;   /* of the task */
    struct part *behind; /* among the member's active */
    part_kind kind;
    member *of;
    int peer; /* or root */
    const void *from;
    void *to;
    size_t bytes;
    uint64_t number;
    int done, stuck;
} part;

typedef struct event {
    uint64_t recorded, reached;
} event;

typedef struct task {
    struct task *next;
    enum { RECORD, WAIT, COPY, PARTS, NOTHING } kind;
    event *event;
    uint64_t number;
    part copy, *parts;
    int begun;
} task;

typedef struct stream {
    struct stream *next;
    task *first, *last;
    int held;
} stream;

/* enter takes the lock and says whether a context is current; leave gives it back and returns `code`. */
int fake_enter(void);
int fake_leave(int code);
void *fake_must(void *p); /* not NULL */
void fake_live(int more);
void fake_append(stream *s, task t);
/* All work that names the member is over, done or not. */
void fake_forget(member *m);

#endif
