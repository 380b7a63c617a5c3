/* The store's insides. A residual is one heap node: it lives in its tensor's list `live` (by encode
 * point) and behind a slot; retired, the same node moves to the list `orphans` (by age), so that
 * retiring cannot fail for want of memory. */
#ifndef GW_FEEDBACK_STORE_H
#define GW_FEEDBACK_STORE_H

#include "base/convert.h"
#include "base/name.h"
#include "base/why.h"

#include <gradwire/feedback.h>

#define GW_FEEDBACK_MAX_ELEMENTS ((uint64_t)1 << 48)

typedef struct gw_residual {
    struct gw_residual *next;
    uint32_t point;
    int open;              /* an encoding reads r and writes r' */
    uint64_t first, count; /* an orphan's shrink as it is handed over */
    float *r, *after;      /* after: NULL in place, and for an orphan, but that of rounding */
    void *memory;          /* what r points into */
    gw_feedback_keeper
        keeper; /* fetch is NULL: the store has r; else, unless `here`, r is only where it is brought to */
    struct gw_residual *whole; /* the joined tensor's residual that this is a part of; NULL: none */
    uint64_t at;               /* where in it */
} gw_residual;

typedef struct gw_store_tensor {
    char *name;
    size_t name_bytes;
    uint64_t elements;
    gw_residual *live, *orphans;
    gw_residual *arriving; /* orphans of a load that is not yet sure */
    /* What rounding leaves of orphans: NULL until a hand-over to 16 bits needs it. It is the orphan that has `after`, where a
     * hand-over writes what a commit makes r; or stands here while no commit was made. */
    gw_residual *rest;
    int open;                      /* a hand-over … */
    int rounds;                    /* … to 16 bits, where there were orphans … */
    uint32_t leaves;               /* … not 0: the rest is not … */
    uint64_t open_first, open_end; /* … of these elements */
} gw_store_tensor;

/* Tensors one behind the other. Only `whole.live` is used; each member's `live` has its parts. */
typedef struct gw_joined {
    gw_store_tensor whole; /* its name is the first member's */
    uint32_t *members;
    size_t n;
} gw_joined;

/* Numbers of joined tensors have this bit. */
#define GW_STORE_JOINED 0x80000000u

typedef struct gw_store_slot {
    gw_residual *residual; /* NULL: free */
    uint32_t tensor, generation;
} gw_store_slot;

struct gw_feedback {
    gw_feedback_mode mode;
    uint32_t rank, world;
    gw_store_tensor *tensors; /* in order of declaration: the caller's numbers */
    uint32_t *sorted;         /* the same by name */
    size_t n_tensors, room_tensors;
    gw_joined **joined; /* NULL: a number to be used again */
    size_t n_joined, room_joined;
    gw_store_slot *slots;
    size_t n_slots, room_slots, n_free; /* n_free: of n_slots, those to be used again */
    const gw_convert *convert;
    const int *ready; /* NULL, or a load is refused while it is 0: `first` says what to do */
    const char *first;
    gw_why refused; /* why nothing is saved; "": it is */
    gw_feedback_means_keeper means;
};

/* r of zeros, and after if asked for. */
gw_residual *gw_residual_create(uint32_t point, uint64_t first, uint64_t count, int with_after);
void gw_residual_destroy(gw_residual *residual);
void gw_residual_destroy_list(gw_residual **list);
void gw_residual_append(gw_residual **list, gw_residual *residual);

static inline int gw_residual_is_away(const gw_residual *residual)
{
    return residual->keeper.fetch != NULL && !residual->keeper.here;
}
/* r is what its keeper has; or the keeper has what r is. Nothing to do where the store has it. */
gw_status gw_residual_fetch(const gw_residual *residual, gw_why *why);
gw_status gw_residual_put(const gw_residual *residual, gw_why *why);

/* 1 if all are finite; else 0 and *at the first that is not. */
int gw_all_finite(const float *x, uint64_t count, uint64_t *at);

gw_status gw_store_check_name(const char *name, size_t bytes, gw_why *why);
/* [first, first + count) lies in the tensor. */
gw_status gw_store_check_range(const gw_store_tensor *tensor, uint64_t first, uint64_t count,
                               gw_why *why);
gw_status gw_store_tensor_at(const gw_feedback *store, uint32_t tensor, gw_store_tensor **out,
                             gw_why *why);
gw_status gw_store_slot_at(const gw_feedback *store, uint64_t slot, gw_store_slot **out,
                           gw_why *why);
/* The tensor of a slot that is there; it may be a joined one. */
gw_store_tensor *gw_store_tensor_of(const gw_feedback *store, const gw_store_slot *slot);
/* Room for one more item in an array, or 0. */
int gw_store_grow(void **items, size_t item, size_t n, size_t *room);
/* NULL: the tensor is not a joined one. */
gw_joined *gw_store_joined(const gw_feedback *store, uint32_t tensor);
/* The part of the orphan that lies in [first, end), as element numbers; empty if *from >= *to. */
void gw_orphan_overlap(const gw_residual *orphan, uint64_t first, uint64_t end, uint64_t *from,
                       uint64_t *to);
/* What orphans hold of these elements is added to the gradient. */
void gw_orphans_add(const gw_feedback *store, const gw_store_tensor *t, float *gradient,
                    uint64_t first, uint64_t count);
/* A hand-over is committed: what it took is no orphan's any more; what rounding left is one. */
void gw_orphans_take_out(gw_store_tensor *t);
void gw_orphans_keep_rest(gw_store_tensor *t);
/* What every hand-over asks first, and notes in the end. */
gw_status gw_hand_over_check(const gw_feedback *store, uint32_t tensor, const void *gradient,
                             uint64_t first, uint64_t count, int half, gw_store_tensor **out,
                             gw_why *why);
void gw_hand_over_open(gw_store_tensor *t, int rounds, uint64_t first, uint64_t count);
/* A part for each member that the new residual covers. On failure there is none. */
gw_status gw_joined_add_parts(gw_feedback *store, const gw_joined *joined, gw_residual *whole,
                              gw_why *why);
/* No member may have an open hand-over when the whole retires. */
gw_status gw_joined_check_retire(const gw_feedback *store, const gw_joined *joined, gw_why *why);
/* Parts of the whole, which is up to date, become orphans; or, `drop`, are no more. */
void gw_joined_retire_parts(gw_feedback *store, const gw_joined *joined, const gw_residual *whole,
                            int drop);
void gw_joined_destroy(gw_joined *joined);
/* Puts a residual into a list of live ones, which is in order of encode points; 0: there is one of its point. */
int gw_residual_insert(gw_residual **list, gw_residual *residual);
/* Takes a residual out of the list that it is in. */
void gw_residual_unlink(gw_residual **list, const gw_residual *residual);
/* Where `name` is in `sorted`, or would be; *found says which. */
size_t gw_store_search(const gw_feedback *store, const char *name, size_t bytes, int *found);
/* A failure if an encoding or a hand-over is open anywhere. */
gw_status gw_store_check_quiet(const gw_feedback *store, gw_why *why);

#endif
