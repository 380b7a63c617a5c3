/* Inside the threads backend: a world, its groups, the operations under way. One lock guards it all; only
 * copying takes place outside it. */
#ifndef GW_COMM_THREADS_WORLD_H
#define GW_COMM_THREADS_WORLD_H

#include "comm/link.h"
#include "comm/pieces.h"

#include <pthread.h>

typedef struct gw_threads_group gw_threads_group;

/* One member's share of an operation. */
typedef struct gw_post {
    struct gw_slot *slot;
    uint32_t member;
    enum { GW_POST_NONE, GW_POST_UNDER_WAY, GW_POST_DONE } state;
    gw_operation operation;
    uint32_t root;
    gw_piece *pieces;     /* one a member */
    unsigned char *ready; /* one a member: its message can be copied */
    uint32_t in_left,
        out_left;        /* messages that are not copied yet; out: that others have to copy */
    uint32_t ready_left; /* of in_left, those that can be copied */
    double due;          /* all messages matched so far have arrived by then */
} gw_post;

/* An operation of a group: number n of each member's. */
typedef struct gw_slot {
    gw_threads_group *group;
    struct gw_slot *next;
    uint64_t number;
    uint32_t done; /* members */
    gw_post posts[];
} gw_slot;

/* One rank's end of a group. */
typedef struct gw_end {
    gw_comm comm;
    gw_threads_group *group;
    uint64_t next; /* number of its next operation */
    int closed;
    /* what it wants of the split under way, and what it gets */
    uint32_t colour, key;
    gw_comm *split;
} gw_end;

struct gw_threads_group {
    gw_threads *world;
    gw_threads_group *next;
    uint32_t size, open, splitting;
    uint64_t splits;      /* that took place */
    uint32_t *ranks;      /* of the world */
    gw_slot *live, *idle; /* live: by ascending number */
    gw_end ends[];
};

struct gw_threads {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a split took place, a copy ended, the world failed */
    uint32_t ranks;
    gw_links links;
    uint32_t *readers; /* per rank: copies out of its buffers that are being made */
    gw_threads_group *all, *groups;
    gw_status failed; /* GW_OK, or why nothing works any more */
    gw_why why;
};

/* All of these with the lock held. */
gw_threads_group *gw_group_create(gw_threads *world, uint32_t size, const gw_comm_table *table);
void gw_group_free(gw_threads_group *group); /* takes it off the world's list */
gw_status gw_group_split(gw_end *end, gw_why *why);
/* The first failure is kept; everybody's operations end with it. */
__attribute__((format(printf, 3, 4))) void gw_world_fail(gw_threads *world, gw_status status,
                                                         const char *format, ...);
/* Waits until nobody copies out of the rank's buffers. */
void gw_world_finish_copies(gw_threads *world, uint32_t rank);
/* Settles, then returns what failed. */
gw_status gw_world_failure(gw_threads *world, uint32_t rank, gw_why *why);

/* Slots in use at once, where exchanges post: an exchange has at most four operations of a group (two collectives, each
 * with lengths or seals), and its result needs a message of every rank. So the first rank is in the exchange after the
 * last rank's at most. */
enum { GW_SLOTS_AT_ONCE = 8 };
gw_status gw_slots_reserve(gw_threads_group *group); /* so that exchanges allocate none */
gw_slot *gw_slot_find(gw_end *end);                  /* of its next operation; NULL: no memory */
void gw_slot_post(gw_end *end, gw_post *post);       /* its operation, root and pieces are set */
gw_status gw_slot_test(gw_end *end, gw_post *post, int *done, gw_why *why);
void gw_slot_describe(gw_end *end, const gw_post *post, char *text, size_t size);

#endif
