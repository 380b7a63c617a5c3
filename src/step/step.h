/* A step, seen from inside. step_create.c opens and closes it; layers.c takes layers and plans, agree.c compares them with the other
 * ranks'; prepare.c turns the plan into tasks, fusion.c several layers into one, convoy.c several messages. step.c takes gradients and
 * waits for them, run.c runs tasks, task.c is what a task does, gradients.c is for gradients in the host's memory,
 * device_gradients.c for those in a device's; step_timeline.c tells when. What follows a step from above hooks in here:
 * src/control. */
#ifndef GW_STEP_STEP_H
#define GW_STEP_STEP_H

#include "base/clock.h"
#include "base/convert.h"
#include "base/why.h"

#include <gradwire/step.h>
#include <gradwire/together.h>

#include <pthread.h>

/* Layers that go together, as one tensor. Members are layers first … first + count - 1 of the step's `fused` list. */
typedef struct gw_fusion {
    uint32_t first, count;
    uint32_t bucket; /* its number; 0: small layers */
    uint64_t elements;
    gw_params params; /* codec NULL: nothing is coded */
    gw_route route;
    uint32_t joined; /* the store's number of all members together; UINT32_MAX: nothing is coded */
    gw_dtype dtype;  /* of the values: fp32, or uncompressed that of all members */
    void *values;
    gw_exchange **pieces;
    uint32_t n_pieces;
    /* this step */
    int begun, spoilt; /* spoilt: what is coded together is not finite */
    uint32_t pieces_done;
} gw_fusion;

/* Layers that become ready together and whose messages are short: each has its exchange, and their messages go as one. Members are
 * layers first … first + count - 1 of the step's `convoyed` list. */
typedef struct gw_convoy {
    uint32_t first, count;
    gw_together *messages;
    uint32_t ended, at; /* this step: members that have, and the one that was last looked at */
} gw_convoy;

/* One exchange: a layer, a piece of one, or a fusion; or a convoy, and then its first layer's. */
typedef struct gw_task {
    gw_exchange *exchange;
    uint32_t layer, fusion; /* UINT32_MAX: not one of these */
    uint32_t convoy;        /* UINT32_MAX: none */
    uint64_t first, elements;
    uint32_t wave, wave_end; /* tasks of the same layer, as many as lanes, whose posts alternate */
} gw_task;

typedef struct gw_layer {
    char *name;
    uint64_t dims[8], elements;
    size_t n_dims;
    gw_dtype dtype;
    uint32_t store_tensor;
    gw_params params, asked; /* asked: before it was fitted to the layer's shape */
    gw_route route;
    uint32_t bucket;     /* layers of the same number are sent as one; 0: by itself */
    uint32_t ready_with; /* layers of the same number become ready together; 0: by itself */
    int changed;         /* the plan, since the last agree */
    /* prepared by agree */
    gw_dtype sent;  /* of the numbers that its exchange gets: its own dtype, or fp32 for a codec */
    float *widened; /* these, where they are not the gradient's */
    void *event;    /* on a device: the gradient is ready */
    gw_exchange **pieces;
    uint32_t n_pieces;
    uint32_t fusion;         /* UINT32_MAX: none */
    uint64_t ring[GW_LINKS]; /* gw_layer_stats.dense_bytes_sent */
    /* this step */
    gw_tensor gradient;
    int posted, begun, bad;
    uint32_t pieces_done;
    uint64_t hash;           /* of the mean, on the host */
    uint64_t hashes;         /* the sum of these since ranks compared them */
    gw_layer_stats measured; /* of this step, so far */
    gw_layer_stats stats;    /* of the last that arrived; guarded */
} gw_layer;

/* A lane works on tasks lane, lane + lanes, …, one after the other. */
typedef struct gw_step_lane {
    gw_lane groups;
    gw_workspace workspace;
    uint32_t task; /* the next, or the one under way */
    int begun;
    double since; /* of the one under way */
    struct gw_step *of;
} gw_step_lane;

/* Of a step on a device. Lists have room for all layers. */
typedef struct gw_step_device {
    gw_params cast[4]; /* by gw_dtype: to it, and from it */
    void *side;        /* a stream for whoever posts */
    float *staging[2]; /* pinned: for the lanes, and for whoever posts */
    gw_cuda_source *sources;
    gw_cuda_sink *sinks;
    gw_cuda_payload *payloads;
    gw_cuda_result *results, *results_here;
    uint32_t room;
    gw_comm *flat, *intra, *inter;  /* of config.device_comm, for all lanes */
    uint64_t *hashes, *hashes_here; /* of means written there, for the first verify.layers layers */
} gw_step_device;

/* Where gradients lie: in the host's memory (gradients.c), or in a device's (device_gradients.c). Chosen when a step is created. Entries
 * that are NULL do nothing. */
typedef struct gw_gradients {
    int ordered; /* tasks post in an order of their own */
    /* Memory for values, where gradients lie; or, `pinned`, for what the host works on. */
    gw_status (*allocate)(const gw_step *s, size_t bytes, int pinned, void **out, gw_why *why);
    void (*release)(const gw_step *s, void *memory, int pinned);
    /* The gradient is ready when the caller's stream comes to here. */
    gw_status (*post)(gw_step *s, const gw_layer *l, void *stream, gw_why *why);
    /* The calling thread works on this device from now on. Returns the one before. */
    int (*use)(const gw_step *s, int device);
    /* The lane goes on behind the layers' gradients, which are put one behind the other at `values`, as they are sent, unless they lie
     * there. */
    gw_status (*gather)(gw_step *s, const gw_step_lane *lane, const uint32_t *layers, uint32_t n,
                        void *values, gw_why *why);
    /* The lane goes on behind what another lane has gathered. */
    gw_status (*follow)(gw_step *s, const gw_step_lane *lane, const gw_layer *l, gw_why *why);
    /* What vanished encode points held is added. */
    gw_status (*hand_over)(gw_step *s, const gw_step_lane *lane, const gw_layer *l, void *values,
                           gw_why *why);
    /* Back into the callers' gradients, done on return; a layer with a number too large for its type is bad. */
    gw_status (*scatter)(gw_step *s, const gw_step_lane *lane, const uint32_t *layers, uint32_t n,
                         void *values, gw_why *why);
} gw_gradients;
extern const gw_gradients gw_gradients_host, gw_gradients_device;

/* Running hashes of means, which ranks compare. */
typedef struct gw_step_verify_state {
    void *room;      /* for the comparison's messages */
    uint64_t *said;  /* what each rank said */
    uint64_t since;  /* number of the first step that was not compared */
    uint64_t steps;  /* that were not */
    uint32_t layers; /* for which the device has room */
    uint32_t loaded; /* where loaded hashes were made; 0: none were loaded */
    int soon;        /* after the next step */
} gw_step_verify_state;

/* What sits above a step and follows it (src/control). */
typedef struct gw_step_hooks {
    /* In post, before the step takes the gradient: the layer's residuals are those of the last step. */
    gw_status (*posted)(void *above, uint32_t layer, const gw_tensor *gradient, gw_why *why);
    /* At the end of wait: step `number` has arrived on all ranks, the next one may be planned. */
    gw_status (*waited)(void *above, uint64_t number, gw_why *why);
    int (*plans)(const void *above, uint32_t layer); /* gw_step_plan refuses this layer */
    void (*close)(void *above);                      /* the groups are still open */
} gw_step_hooks;

struct gw_step {
    gw_step_config config;
    const gw_gradients *gradients;
    gw_nodes *nodes; /* NULL: config.ranks_per_node says it */
    const gw_convert *convert;
    gw_pool *pool;
    gw_feedback *store;
    gw_layer *layers;
    uint32_t n_layers, room;
    uint32_t *order; /* of the wire; NULL: as added */
    int agreed;
    uint64_t number;

    uint32_t *fused; /* layers of fusions */
    gw_fusion *fusions;
    uint32_t n_fusions;
    uint32_t *convoyed; /* layers of convoys */
    gw_convoy *convoys;
    uint32_t n_convoys;
    gw_task *tasks;
    uint32_t n_tasks;
    gw_step_lane lanes[GW_STEP_MAX_LANES];
    uint32_t n_lanes;
    /* Seconds of the shortest exchange so far of few elements, there and back; 0: none. */
    double quickest;
    const gw_step_hooks *hooks; /* NULL: nothing is above */
    void *above;
    int held;            /* exchanges begin when all layers are posted; guarded */
    uint32_t bad_layers; /* of the last step: that arrived non-finite */
    gw_comm *side;       /* a group for what is above; NULL: none was needed yet */
    gw_step_device device;
    gw_step_verify_state verify;

    /* guarded by `lock`; the rest of a layer belongs to whoever runs it once it is posted */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* what others wait for */
    pthread_cond_t due;     /* what the lanes wait for */
    int woken;              /* since the lanes last waited */
    int told;               /* all groups say when something arrives; not guarded */
    pthread_t thread;
    int has_thread, stop, busy; /* busy: the thread is at work on lanes and layers */
    uint32_t posted, arrived;
    gw_status status; /* of the step; once it failed, for good */
    gw_why why;
    double first_post, last_arrival;
};

/* GW_OK, or what the step failed with. */
gw_status gw_step_failure(gw_step *s, gw_why *why);
/* Records it, tells the other ranks, takes back what was under way. */
void gw_step_fail(gw_step *s, gw_status status, const gw_why *why);
/* No answer came in time: which rank is waited for, and where. */
gw_status gw_step_too_late(const gw_step *s, gw_why *why);
/* Seed, lanes and the like are the same on all ranks? */
gw_status gw_step_compare_config(gw_step *s, gw_why *why);
/* A record of numbers that must be equal has this many in every version of the library. The first is the
 * version; numbers[i] is called names[i]. */
enum { GW_STEP_NUMBERS = 16 };
gw_status gw_step_compare_numbers(gw_step *s, gw_comm *comm,
                                  const uint64_t numbers[GW_STEP_NUMBERS], const char *const *names,
                                  int n, gw_why *why);
/* The ranks of `world` with this colour, in order of rank. A failure ends the world: other ranks may be waiting in a split. */
gw_status gw_step_split(const gw_step *s, gw_comm *world, uint32_t colour, gw_comm **out,
                        gw_why *why);
/* The groups of this rank's node, and of its place in every node; none where nodes are not known. */
gw_status gw_step_split_nodes(const gw_step *s, gw_comm *world, gw_comm **intra, gw_comm **inter,
                              gw_why *why);
/* `all` gets the `bytes` of every rank. A failure is the step's: members may still be writing. `room`: gw_gather_room bytes,
 * or NULL to allocate them. */
gw_status gw_step_gather(gw_step *s, gw_comm *comm, const char *what, const void *own, size_t bytes,
                         void *room, void *all, gw_why *why);
/* The route of a codec, or of uncompressed numbers (NULL), where the user names none. */
gw_status gw_step_usual(const gw_step *s, const gw_params *params, gw_route *out, gw_why *why);
/* gw_step_plan, also of a layer that is planned from above. */
gw_status gw_step_set_plan(gw_step *s, uint32_t layer, const gw_params *params,
                           const gw_route *route, gw_why *why);
/* The layer at this place of the wire. */
static inline uint32_t gw_step_in_order(const gw_step *s, uint32_t place)
{
    return s->order != NULL ? s->order[place] : place;
}
/* Exchanges, tasks and memory of the plan. What a changed layer's residuals held is handed over. */
gw_status gw_step_prepare(gw_step *s, gw_why *why);
/* A layer's exchanges; the old ones go when these have taken over what fits. `together`: of a fusion, whose layers are hashed
 * when they are written. */
gw_status gw_step_make_exchanges(gw_step *s, gw_layer *layer, int together, gw_why *why);
void gw_step_drop_exchanges(gw_exchange ***exchanges, uint32_t *n);

/* ---- layers that go together ---- */

/* Layers of a bucket are planned alike. */
gw_status gw_fusions_check(const gw_step *s, gw_why *why);
/* From buckets, sizes and the order: sets each layer's fusion, and drops the exchanges of those that have one. */
gw_status gw_fusions_make(gw_step *s, gw_why *why);
void gw_fusions_drop(gw_step *s);
/* Where the layer's first element lies in it. */
uint64_t gw_fusion_place(const gw_step *s, const gw_fusion *f, uint32_t layer);
int gw_fusion_ends_with(const gw_step *s, uint32_t fusion, uint32_t layer);
gw_status gw_fusion_begin(gw_step *s, const gw_step_lane *lane, const gw_task *t, gw_why *why);
gw_status gw_fusion_end(gw_step *s, const gw_step_lane *lane, const gw_task *t, gw_why *why);
/* `none`: the step never happened to any residual. */
gw_status gw_fusions_conclude(gw_step *s, int none, gw_why *why);
void gw_fusions_roll_back(gw_step *s);

/* Layers in the order of the wire; *joined: it goes in a convoy, whose task is made when it is closed, by a layer that does not join or
 * at the end. */
gw_status gw_convoy_add(gw_step *s, uint32_t layer, int *joined, gw_why *why);
gw_status gw_convoy_close(gw_step *s, gw_why *why);
gw_status gw_convoy_begin(gw_step *s, const gw_step_lane *lane, gw_convoy *c, gw_why *why);
gw_status gw_convoy_progress(gw_step *s, const gw_step_lane *lane, gw_convoy *c, int *done,
                             int *moved, gw_why *why);
gw_status gw_convoy_end(gw_step *s, const gw_convoy *c);
size_t gw_convoy_workspace(const gw_step *s, const gw_convoy *c);
/* Frees what agree prepared. Residuals of exchanges are retired. */
void gw_step_unprepare(gw_step *s);
/* ---- a layer, of a task ---- */

/* What its exchange works on: the gradient, or its numbers widened. */
void *gw_task_values(const gw_layer *l);
/* A layer's gradient as it is sent, with what vanished encode points held. */
gw_status gw_task_take_in(gw_step *s, const gw_step_lane *lane, uint32_t layer, gw_why *why);
/* The key of the random numbers of `tensor` in this step. */
gw_stream gw_task_stream(const gw_step *s, uint64_t tensor);
/* A piece is done; the last writes the mean. */
gw_status gw_task_end_piece(gw_step *s, const gw_step_lane *lane, uint32_t layer,
                            const gw_exchange *exchange, gw_why *why);
/* Before its first piece, with what vanished encode points held; after its last. */
gw_status gw_task_open_layer(gw_step *s, const gw_step_lane *lane, uint32_t layer, void *values,
                             gw_why *why);
/* Where element `elements` of numbers of a dtype lies. */
void *gw_task_behind(void *values, gw_dtype dtype, uint64_t elements);
void gw_task_close_layer(gw_step *s, uint32_t layer);
void gw_task_add_stats(gw_layer_stats *to, const gw_exchange_stats *from);

/* ---- running hashes ---- */

/* Means are hashed. */
static inline int gw_step_hashes(const gw_step *s)
{
    return s->config.verify_every != GW_STEP_VERIFY_NEVER && !s->config.sharded &&
           s->config.comm->ranks > 1;
}
/* From now on checkpoints of the step's store carry the hashes that ranks have not compared yet. */
void gw_step_verify_open(gw_step *s);
gw_status gw_step_verify_prepare(gw_step *s, gw_why *why);
void gw_step_verify_close(gw_step *s);
/* The layer's mean as it is written to its gradient: numbers of `sent` become its dtype. Returns the largest |bits|, as
 * gw_convert.narrow does, or 0 where both are the same. */
uint32_t gw_step_write_mean(gw_step *s, uint32_t layer, const void *values);
uint64_t gw_step_hash_key(const gw_step *s, uint32_t layer);
/* Ranks compare what they have not compared yet. */
gw_status gw_step_verify_compare(gw_step *s, gw_why *why);
/* What was not compared yet; before agree changes anything. */
gw_status gw_step_verify_rest(gw_step *s, gw_why *why);

/* ---- a task, at a lane ---- */

int gw_task_ready(gw_step *s, const gw_task *t); /* its gradients are there */
gw_status gw_task_begin(gw_step *s, gw_step_lane *lane, gw_why *why);
gw_status gw_task_progress(gw_step *s, const gw_step_lane *lane, int *done, int *moved,
                           gw_why *why);
/* When it is done. The lane is at the next one already. */
gw_status gw_task_end(gw_step *s, const gw_step_lane *lane, const gw_task *t, gw_why *why);
typedef struct gw_task_words {
    char text[128];
} gw_task_words;
/* Which layer it is at, and where. */
void gw_task_say(const gw_step *s, const gw_task *t, gw_task_words *words);
/* What a task that has begun waits for (gw_exchange_waits_for). */
void gw_task_waits_for(const gw_step *s, const gw_task *t, char *text, size_t size);

/* The lanes have something to look at. Under the lock, or as what groups call. */
void gw_step_wake(gw_step *s);
/* The same for a group that says when something arrives: takes the lock. */
void gw_step_notify(void *step);
/* The thread's function, and what wait does without one. */
void *gw_step_thread(void *step);
void gw_step_run_all(gw_step *s);
/* What numbers of a layer are sent as, along a route: uncompressed as they are. */
static inline gw_dtype gw_step_sends(const gw_layer *l, const gw_route *route)
{
    return gw_route_encodes(route) == 0 ? l->dtype : GW_F32;
}
/* What a rank of a ring sends of the layer uncompressed, on all links together. */
uint64_t gw_step_dense_bytes(const gw_step *s, const gw_layer *l);
/* Of every layer, this rank's part of what a ring sends; after the exchanges are made. */
gw_status gw_step_count_ring(gw_step *s, gw_why *why);
/* Everything has arrived: residuals and codec state count from now on, or stay where a mean is not finite,
 * which every rank sees alike. */
gw_status gw_step_conclude(gw_step *s, gw_why *why);

/* ---- gradients on a device: for steps on one alone ---- */

static inline int gw_step_on_device(const gw_step *s)
{
    return s->config.place.cuda != NULL;
}

gw_status gw_device_check_comm(const gw_step_config *config, gw_why *why);
gw_status gw_device_open(gw_step *s, gw_why *why); /* after the lanes */
void gw_device_close(gw_step *s);
void gw_device_close_groups(gw_step *s);
void gw_device_abort(gw_step *s, const char *reason);
/* Tasks that wait for one another's posts on the device's groups. */
void gw_device_make_waves(gw_step *s);
/* Lists and events for the layers there are. */
gw_status gw_device_prepare(gw_step *s, gw_why *why);
void gw_device_finish(gw_step *s); /* waits for all work of the lanes */
/* A gradient as fp32 on the host, done on return; by whoever posts. */
gw_status gw_device_read(gw_step *s, const gw_layer *l, const gw_tensor *gradient, float *to,
                         gw_why *why);

#endif
