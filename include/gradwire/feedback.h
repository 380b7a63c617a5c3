/* What a lossy step dropped, kept for the next one: one residual a tensor and encode point, always
 * fp32, zero at the start. Encoding is a transaction: it reads r and writes r' beside it; r' counts
 * once the step says so, else r stays bit for bit. What a vanished encode point held goes into its
 * holder's next gradient. docs/feedback.md: the order of calls in a step, and the checkpoint's bytes.
 *
 * On failure nothing has changed, and `why` names the tensor. Threads: begin, check, commit and
 * rollback of different slots, and hand-overs of different tensors, may run at once; any other call has
 * the store for itself. Memory is allocated by create, add_tensor, join, add, keep and load alone. */
#ifndef GRADWIRE_FEEDBACK_H
#define GRADWIRE_FEEDBACK_H

#include "gradwire/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The newest version. A checkpoint without hashes of means is written as version 1. */
#define GW_CHECKPOINT_VERSION 2
/* Elements of a tensor: below 2^48. */
enum {
    GW_FEEDBACK_MAX_NAME = 1024,
    GW_FEEDBACK_MAX_TENSORS = 1 << 18,
    GW_FEEDBACK_MAX_SLOTS = 1 << 20
};

typedef struct gw_feedback gw_feedback;

/* Where r' waits for its commit. */
typedef enum gw_feedback_mode {
    GW_FEEDBACK_BESIDE = 0,  /* in a second buffer of the store: commit swaps two pointers */
    GW_FEEDBACK_IN_PLACE = 1 /* in the caller's gradient: half the memory, commit copies */
} gw_feedback_mode;

/* `rank` of `world` holds these residuals. */
GW_API gw_status gw_feedback_create(gw_feedback_mode mode, uint32_t rank, uint32_t world,
                                    gw_feedback **out, gw_why *why);
GW_API void gw_feedback_destroy(gw_feedback *store); /* accepts NULL */

/* Declares a tensor of `elements` elements, also one that is sent dense: a checkpoint may bring
 * something for it. Names are UTF-8, of 1 … 1024 bytes, each declared once. */
GW_API gw_status gw_feedback_add_tensor(gw_feedback *store, const char *name, uint64_t elements,
                                        uint32_t *tensor, gw_why *why);
GW_API gw_status gw_feedback_find(const gw_feedback *store, const char *name, uint32_t *tensor,
                                  gw_why *why);
/* A tensor that is others one behind the other: what is added to it is a residual of all of them, and belongs to each by
 * its elements. Checkpoints have each member's part under the member's name; retired, each part is an orphan of its
 * member. No hand-overs of it. A residual takes half as much memory again as another. */
GW_API gw_status gw_feedback_join(gw_feedback *store, const uint32_t *tensors, size_t n,
                                  uint32_t *joined, gw_why *why);
/* Its residuals must be retired. The number may be used again. */
GW_API gw_status gw_feedback_part(gw_feedback *store, uint32_t joined, gw_why *why);
/* A residual of zeros for elements [first, first + count) at encode point `point`, of which a tensor
 * has one. A slot's number is never used again. */
GW_API gw_status gw_feedback_add(gw_feedback *store, uint32_t tensor, uint32_t point,
                                 uint64_t first, uint64_t count, uint64_t *slot, gw_why *why);

/* Several ranks may encode the very same numbers and keep equal residuals. It counts at one of them, whose
 * point has the first bit; the others' have the second, and are dropped where another would become an orphan.
 * In another world size neither goes on as it was: the first becomes an orphan. */
#define GW_FEEDBACK_SHARED 0x40000000u
#define GW_FEEDBACK_COPY   0x80000000u

/* r as last committed, `count` elements, 64-byte aligned; NULL for a slot that is not there. Valid
 * until the next commit or load. */
GW_API const float *gw_feedback_residual(const gw_feedback *store, uint64_t slot);
/* Who keeps a residual outside of the store, in a device's memory; or, `here`, knows what is still to be done to one that lies in
 * the store: fetch then does it, in place, and put hears that r was written anew. Both return when the numbers are there, and must
 * not fail but for reasons that end the training: r is then not what it should be. */
typedef struct gw_feedback_keeper {
    void *context;
    gw_status (*fetch)(void *context, float *r, uint64_t count, gw_why *why);
    gw_status (*put)(void *context, const float *r, uint64_t count, gw_why *why);
    int here;
} gw_feedback_keeper;
/* From now on r is with the keeper, which gets what it is; NULL: with the store again. The store asks for it where it
 * needs numbers (residual, retire, scale, save) and says where they change (scale, load). An encoding's r and r' are then the
 * keeper's business: begin leaves NULL for both unless they are `here`, and commit says that r' counts. Nothing may be open. */
GW_API gw_status gw_feedback_keep(gw_feedback *store, uint64_t slot,
                                  const gw_feedback_keeper *keeper, gw_why *why);
/* Opens an encoding: *r is to be read, r' to be written in full to *after, which is NULL in place.
 * One at a time a slot. `after` may be NULL for a caller that encodes in place. */
GW_API gw_status gw_feedback_begin(gw_feedback *store, uint64_t slot, const float **r,
                                   float **after, gw_why *why);
/* Whether every number of r' is finite; GW_ERR_RANGE if not. One pass that reads r'. `after` here
 * and below: where r' lies if in place, else NULL. */
GW_API gw_status gw_feedback_check(const gw_feedback *store, uint64_t slot, const float *after,
                                   gw_why *why);
/* Looks as gw_feedback_check does, then r = r' and the encoding is closed. If refused, it is still open. */
GW_API gw_status gw_feedback_commit(gw_feedback *store, uint64_t slot, const float *after,
                                    gw_why *why);
/* The same without looking, for an r' that gw_feedback_check or the encoder found finite. */
GW_API gw_status gw_feedback_commit_checked(gw_feedback *store, uint64_t slot, const float *after,
                                            gw_why *why);
/* Closes the encoding; r is what it was. */
GW_API gw_status gw_feedback_rollback(gw_feedback *store, uint64_t slot, gw_why *why);

/* The encode point disappears (new plan, route, level, world size, fall-back to dense): its residual
 * becomes an orphan of the tensor. The point may be added again. */
GW_API gw_status gw_feedback_retire(gw_feedback *store, uint64_t slot, gw_why *why);
GW_API size_t gw_feedback_orphans(const gw_feedback *store, uint32_t tensor); /* how many wait */
/* Adds what orphans hold of [first, first + count) to `gradient`, whose first element is element
 * `first` of the tensor; the oldest orphan first. Opens a hand-over even if there was nothing to add;
 * a further piece may follow at once where the last one ended. */
GW_API gw_status gw_feedback_hand_over(gw_feedback *store, uint32_t tensor, float *gradient,
                                       uint64_t first, uint64_t count, gw_why *why);
/* The same for a gradient of fp16 or bf16, which is sent as it is: it becomes gradient and orphans together, rounded to its
 * dtype. What rounding takes off, and what would overflow, stays behind: committed, one orphan holds it. */
GW_API gw_status gw_feedback_hand_over_half(gw_feedback *store, uint32_t tensor, gw_dtype dtype,
                                            void *gradient, uint64_t first, uint64_t count,
                                            gw_why *why);
/* Orphans lose what was handed over, and keep the rest; or keep all, bit for bit. */
GW_API gw_status gw_feedback_hand_over_commit(gw_feedback *store, uint32_t tensor, gw_why *why);
GW_API gw_status gw_feedback_hand_over_rollback(gw_feedback *store, uint32_t tensor, gw_why *why);

/* Multiplies all residuals and orphans by a finite factor above 0: gradients of another loss scale follow. Nothing may
 * be open. */
GW_API gw_status gw_feedback_scale(gw_feedback *store, double factor, gw_why *why);

/* A checkpoint holds all residuals and orphans by tensor name and encode point. Nothing may be open
 * (an encoding, a hand-over). */
GW_API gw_status gw_feedback_save_bytes(const gw_feedback *store, size_t *bytes, gw_why *why);
GW_API gw_status gw_feedback_save(const gw_feedback *store, void *buffer, size_t capacity,
                                  size_t *written, gw_why *why);
/* From now on save is GW_ERR_STATE, with this reason; NULL: it works again. A step calls it when it fails: what a rank
 * saved then would not belong to what others have saved. */
GW_API void gw_feedback_refuse_saving(gw_feedback *store, const char *reason);

/* Running hashes of the means that a rank applied after the last comparison between ranks. */
typedef struct gw_feedback_means {
    uint32_t kind;    /* 0: no hashes. Only hashes of the same kind can be compared */
    uint64_t since;   /* the first step that they cover */
    uint64_t *hashes; /* one per tensor */
} gw_feedback_means;
typedef struct gw_feedback_means_keeper {
    void *owner;
    /* Fills in kind and since, and the hashes, which are zero before, unless they are NULL. */
    gw_status (*save)(void *owner, gw_feedback_means *means, gw_why *why);
    void (*load)(void *owner, const gw_feedback_means *means);
} gw_feedback_means_keeper;
/* From now on save asks the keeper for hashes, and load passes the hashes of the checkpoint to it. A step registers itself
 * with its store: means that ranks had not compared before a save are then compared after the load. NULL: no keeper. */
GW_API void gw_feedback_keep_means(gw_feedback *store, const gw_feedback_means_keeper *keeper);

/* What a checkpoint says of itself. */
typedef struct gw_feedback_info {
    uint32_t rank, world; /* of who saved it */
    uint32_t tensors, residuals, orphans;
} gw_feedback_info;
/* Checks all of it that can be checked without a store, every byte's hash included. */
GW_API gw_status gw_feedback_inspect(const void *bytes, size_t size, gw_feedback_info *info,
                                     gw_why *why);

/* The old ranks whose checkpoints rank `new_rank` of `new_world` loads, ascending: old rank i goes to
 * i mod new_world, so that each goes to exactly one. *n may be 0. With `ranks` NULL only counts. */
GW_API gw_status gw_feedback_heirs(uint32_t old_world, uint32_t new_world, uint32_t new_rank,
                                   uint32_t *ranks, size_t capacity, size_t *n, gw_why *why);

typedef struct gw_feedback_blob {
    const void *bytes; /* of any alignment; not kept */
    size_t size;
} gw_feedback_blob;

/* What a load did. */
typedef struct gw_feedback_told {
    uint64_t residuals, adopted; /* read; of these, the ones that became orphans */
    uint64_t orphans;            /* read */
    uint64_t at_zero;            /* slots that no checkpoint knew */
    char text[512];              /* all of it in words */
} gw_feedback_told;

/* Replaces every residual and orphan of the store by the sum, in order of old rank, of `n` checkpoints:
 * those that gw_feedback_heirs names for the store's rank and world, in any order. Each must have
 * exactly the store's tensors, by name and elements. A residual goes into the slot of the same tensor,
 * encode point and range; without such a slot it becomes an orphan. `told` may be NULL. */
GW_API gw_status gw_feedback_load(gw_feedback *store, uint32_t old_world,
                                  const gw_feedback_blob *blobs, size_t n, gw_feedback_told *told,
                                  gw_why *why);
/* The same when checkpoints of some old ranks are lost: `blobs` may lack ranks, and their residuals begin at zero. If one
 * rank's checkpoint is lost, every rank of the job calls this, also a rank that misses none: equal residuals of several
 * ranks (GW_FEEDBACK_SHARED) cannot stay equal, and are handed over as in another world size. A damaged checkpoint is an
 * error here too: leave it out to drop it. */
GW_API gw_status gw_feedback_load_surviving(gw_feedback *store, uint32_t old_world,
                                            const gw_feedback_blob *blobs, size_t n,
                                            gw_feedback_told *told, gw_why *why);
/* How large the residuals of a checkpoint are: the square root of the sum of squares of all residuals and orphans. Copies
 * (GW_FEEDBACK_COPY) do not count. The unit is that of one rank's gradient, and of the sum over ranks. */
GW_API gw_status gw_feedback_checkpoint_norm(const void *bytes, size_t size, double *norm,
                                             gw_why *why);
/* From now on load is GW_ERR_STATE while *ready is 0, since the slots are not there yet; `first`, which must live as long as the
 * store, says what the caller has to do first. `ready` NULL: always ready. A step does this to its store. */
GW_API void gw_feedback_load_when(gw_feedback *store, const int *ready, const char *first);

#ifdef __cplusplus
}
#endif
#endif
