/* The front door: a training step's gradients, each posted when it is ready, all of them waited for.
 *
 *     gw_step_create, gw_step_add for every layer, gw_step_plan, gw_step_agree        once
 *     gw_step_post for every layer, gw_step_wait                                     every step
 *
 * Gradients become the mean over all ranks, the same bits on each. All ranks make the same calls; posts may
 * come in another order on each. Memory is allocated by add and agree alone. */
#ifndef GRADWIRE_STEP_H
#define GRADWIRE_STEP_H

#include "gradwire/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct gw_step gw_step;
typedef struct gw_plan_file gw_plan_file; /* plan.h */

enum { GW_STEP_MAX_LANES = 16, GW_STEP_MAX_LAYERS = 1 << 18 };

/* For gw_step_config.verify_every. */
enum { GW_STEP_VERIFY_USUAL = 50 };
#define GW_STEP_VERIFY_NEVER UINT32_MAX

typedef struct gw_step_config {
    gw_comm *comm; /* all ranks; not closed by destroy */
    uint64_t seed; /* of the random numbers */
    uint64_t
        piece; /* elements from which tensors are cut, to overlap coding and wire; 0: an eighth of the tensor, 256 Ki to 1 Mi */
    uint64_t
        fuse_below; /* layers of fewer elements and of one dtype go together, uncompressed; 0: none */
    double timeout; /* seconds without an answer from the others; 0: 300 */
    /* Which ranks share a node: a number for each rank, the same for ranks of one node, as gw_comm_nodes has it; copied. NULL:
     * node i has ranks i · ranks_per_node and on; 0: not known, flat routes only. */
    const uint32_t *node_of;
    uint32_t ranks_per_node;
    uint32_t lanes;   /* exchanges under way at once; 0: 6 */
    unsigned threads; /* for coding; 0: 1 */
    gw_isa isa;
    int own_thread; /* 1: exchanges run on a thread of their own, beside backward; 0: in wait */
    int sum;        /* 1: gradients become the sum, not the mean */
    /* 1: a step in which any layer arrived non-finite never happened to any residual. For callers that then skip all
     * of it, as loss scalers do; 0: only to those layers'. */
    int all_or_nothing;
    /* 1: half a route. Of each layer only this rank's piece (gw_range_cut of it by the codec's grain, 1 where nothing
     * is encoded) becomes the mean; the rest is undefined. Routes begin with encode, flat:alltoall or with
     * flat:reduce_scatter; fuse_below is 0. Whether a piece is finite only its rank sees. */
    int sharded;
    /* Where all gradients lie; all zero: on the host. On a device, steps @gpu of a route code there, residuals of those
     * stay there, and all else is brought to the host and back (coll.h); bits are those of a step on the host. */
    gw_cuda_place place;
    /* NULL, or beside `comm`, which is always the host's, a comm of the same ranks with GW_COMM_DEVICE (nccl.h): what is
     * encoded and decoded @gpu, and sums of numbers, then go from device to device and never see the host. Bits are the
     * same. Not closed by destroy; it and groups split from it are nobody else's to call until then. */
    gw_comm *device_comm;
    /* Each rank hashes every mean while it writes it. Ranks compare these running hashes after every step whose number is
     * a multiple of this, after the first step behind an agree, and in gw_step_verify. 0: 50. GW_STEP_VERIFY_NEVER: means
     * are neither hashed nor compared. Steps with `sharded` never are: no two ranks have the same piece. docs/trust.md */
    uint32_t verify_every;
} gw_step_config;

/* Called by all ranks, with the same seed, lanes, piece, fuse_below and ranks_per_node, all or none with a device_comm: else GW_ERR_DISAGREE, and
 * who differs. */
GW_API gw_status gw_step_create(const gw_step_config *config, gw_step **out, gw_why *why);
GW_API void gw_step_destroy(gw_step *step); /* accepts NULL */

/* A layer, in the order in which gradients become ready, which is also that of the wire. Dims slowest first. */
GW_API gw_status gw_step_add(gw_step *step, const char *name, const uint64_t *dims, size_t n_dims,
                             gw_dtype dtype, uint32_t *layer, gw_why *why);
/* The codec and the route of a layer. `params` NULL: uncompressed. `route` NULL: the usual one for this codec and these nodes
 * (gw_route_usual), coded where the gradients lie. Without a plan a layer is uncompressed, along the usual route. In force after the next agree; what residuals of another plan hold goes into the layer's next gradient. */
GW_API gw_status gw_step_plan(gw_step *step, uint32_t layer, const gw_params *params,
                              const gw_route *route, gw_why *why);
/* The order of the wire, all layers once; as they were added, unless told otherwise. In force after the next agree;
 * results, residuals and random numbers do not hang on it. */
GW_API gw_status gw_step_order(gw_step *step, const uint32_t *layers, size_t n, gw_why *why);
/* Which layers become ready at the same time, as those of a bucket do: one number a layer, the same for layers that do; 0: by itself, as
 * unless told otherwise. Those of one number that follow each other, go the same flat route and send little put what they send to a
 * peer into one message. In force after the next agree; results do not hang on it. */
GW_API gw_status gw_step_ready_together(gw_step *step, const uint32_t *groups, size_t n,
                                        gw_why *why);
/* Which layers are sent as one tensor, as the buckets of a plan are (docs/plan.md): they are copied one behind the other and are one exchange, with
 * one codec and one route. One number a layer, from 1 to n, the same for layers of one bucket; 0: by itself, as unless told otherwise. A
 * bucket's layers are planned alike: else agree is GW_ERR_ARG. It stands on the wire where its last layer would. In force after the next agree; residuals
 * belong to each layer, whatever its bucket is. Where a coded bucket arrives non-finite, all its layers do. GW_ERR_UNSUPPORTED with
 * `sharded` and once levels are chosen during training. */
GW_API gw_status gw_step_buckets(gw_step *step, const uint32_t *buckets, size_t n, gw_why *why);
/* Plans the layers from number `first` on by a plan file (gw_plan_read, files.h): codec, route, order and buckets. Layers before
 * `first` stay as they are planned, and go first on the wire. A plan that is for other layers, or cannot run here, is an error
 * that names the file and the tensor. In force after the next agree. */
GW_API gw_status gw_step_use_plan(gw_step *step, const gw_plan_file *plan, uint32_t first,
                                  gw_why *why);
/* What a layer is planned as; params->codec is NULL where nothing is coded. */
GW_API gw_status gw_step_planned(const gw_step *step, uint32_t layer, gw_params *params,
                                 gw_route *route);
/* Called by all ranks, before the first step and after every change: compares layers, plan and step number with
 * the others and says who differs in what (GW_ERR_DISAGREE; it may then be put right and agreed upon again),
 * then prepares everything. */
GW_API gw_status gw_step_agree(gw_step *step, gw_why *why);

/* The gradient is the step's until wait. Each layer once a step. May be called while another thread waits
 * for the previous layer's post, but not by two at once. */
GW_API gw_status gw_step_post(gw_step *step, uint32_t layer, const gw_tensor *gradient,
                              gw_why *why);

/* The same for a step on a device: the gradient is ready when what `stream` (cudaStream_t) was given so far is done;
 * gw_step_post means the default stream, NULL. When the layer has arrived all work on it is done. */
GW_API gw_status gw_step_post_after(gw_step *step, uint32_t layer, const gw_tensor *gradient,
                                    void *stream, gw_why *why);

typedef struct gw_step_result {
    uint64_t number; /* of the step */
    /* Layers that arrived with a NaN or infinity, on every rank alike; their residuals are what they were. */
    uint32_t non_finite, first_non_finite;
    double seconds; /* from the first post to the last arrival */
    /* sums over the layers, as in gw_layer_stats */
    uint64_t bytes_sent[GW_LINKS], dense_bytes_sent[GW_LINKS];
    double encode_seconds, decode_seconds;
} gw_step_result;
/* Returns when these layers of the step have arrived and may be read, or the step has failed; needs own_thread. Any
 * thread, also beside post. gw_step_wait must still follow. */
GW_API gw_status gw_step_wait_layers(gw_step *step, const uint32_t *layers, size_t n, gw_why *why);
/* Returns when every layer has arrived, or the step has failed. After a failure gradients may be half
 * written, residuals are those of the last good step, and the step can only be destroyed. */
GW_API gw_status gw_step_wait(gw_step *step, gw_step_result *result, gw_why *why);

/* Called by all ranks between steps: compares the hashes of the means since the last comparison. Ranks that differ are
 * GW_ERR_CHECKSUM on every rank, with the first such layer and the ranks; the step has then failed. GW_ERR_UNSUPPORTED
 * with `sharded`, GW_ERR_STATE with GW_STEP_VERIFY_NEVER, in the middle of a step, or before agree. */
GW_API gw_status gw_step_verify(gw_step *step, gw_why *why);

/* Of the last time that the layer arrived. Seconds count from the step's first post. */
typedef struct gw_layer_stats {
    uint64_t step; /* its number; UINT64_MAX: none yet */
    double posted, begun, arrived;
    double encode_seconds, decode_seconds;
    uint64_t bytes_sent[GW_LINKS];
    /* This rank's part of what DDP would send: a ring of uncompressed numbers in the layer's dtype. It crosses each node's
     * network card once; ranks of a node share that as they share what the layer's route sends to other nodes. */
    uint64_t dense_bytes_sent[GW_LINKS];
    uint64_t payload_bytes;
    uint64_t non_finite; /* in this rank's own gradient, as far as a codec saw it */
    int fused; /* it goes with others: bytes and times of all of them stand at the first on the wire */
    uint32_t coded_on;   /* gw_device of its codings; 0: it is not coded */
    double copy_seconds; /* gradients between device and host */
} gw_layer_stats;
/* At any time. A layer whose stats are of this step has arrived: its mean is there and may be read, though whether
 * the step is good is only known by wait. */
GW_API gw_status gw_step_stats(gw_step *step, uint32_t layer, gw_layer_stats *out);

/* The compression that a network card sees: how many times fewer bytes were sent than a ring sends (dense_bytes_sent). Between
 * nodes; of a rank that sends nothing there, inside its node. 1 if nothing was sent. */
GW_API double gw_compression(const uint64_t sent[GW_LINKS], const uint64_t ring[GW_LINKS]);
/* After agree: what the busiest node's network card will send in a step at most, without seals, and what a ring would send
 * through it; 0 where all ranks share a node. */
GW_API gw_status gw_step_card_bytes(const gw_step *step, uint64_t *card, uint64_t *ring,
                                    gw_why *why);

/* One move of one exchange: a step of its route, from when this rank came to it until it was done. */
typedef struct gw_step_interval {
    uint32_t layer; /* of small layers that go together the first */
    uint32_t piece, lane;
    gw_route_step step;
    double begun, ended; /* seconds since the step's first post */
} gw_step_interval;
/* What the last step did, and when, in the order of the wire. *n: how many there are; GW_ERR_CAPACITY if `room` is less, which is then
 * full. Between wait and the next step's first post. */
GW_API gw_status gw_step_timeline(gw_step *step, gw_step_interval *out, size_t room, size_t *n);

/* The residuals, for gw_feedback_save and load; between steps only. */
GW_API gw_feedback *gw_step_feedback(gw_step *step);
/* The number of the next step, part of every random number: a run that is resumed sets it, before agree. */
GW_API uint64_t gw_step_number(const gw_step *step);
GW_API void gw_step_set_number(gw_step *step, uint64_t number);

#ifdef __cplusplus
}
#endif
#endif
