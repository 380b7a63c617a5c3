/* Bytes next to those of a ring: what DDP would send of the same gradients, in their own dtype. Ranks of a node stand behind each
 * other in the ring, so that it crosses each node's network card once each way. */
#include "step/step.h"

#include <gradwire/rounds.h>

#include <math.h>

/* Sharded steps run half a route, and so does their ring: a reduce-scatter. */
static uint64_t halves(const gw_step *s)
{
    return s->config.sharded ? 1 : 2;
}

uint64_t gw_step_dense_bytes(const gw_step *s, const gw_layer *l)
{
    const uint64_t ranks = s->config.comm->ranks;
    return halves(s) * gw_dtype_size(l->dtype) * l->elements * (ranks - 1) / ranks;
}

/* Bytes that `rank` sends to other nodes for this layer, or for the fusion that carries it. For codecs without a fixed size: the
 * most that they may send. */
static gw_status far_bytes(const gw_step *s, const gw_layer *l, uint32_t rank, uint64_t *bytes,
                           gw_why *why)
{
    const gw_fusion *f = l->fusion != UINT32_MAX ? &s->fusions[l->fusion] : NULL;
    const gw_params *params = f != NULL ? &f->params : &l->params;
    const gw_route *route = f != NULL ? &f->route : &l->route;
    const int coded = gw_route_encodes(route) != 0;
    const int rounds = coded && (gw_params_flags(params) & GW_CODEC_ROUNDS) != 0;
    gw_route_job job = {.ranks = s->config.comm->ranks,
                        .ranks_per_node = s->config.ranks_per_node,
                        .nodes = s->nodes,
                        .rank = rank,
                        .elements = f != NULL ? f->elements : l->elements,
                        .params = coded ? params : NULL,
                        .width = (uint32_t)gw_dtype_size(f != NULL ? f->dtype : l->sent)};
    const size_t elements = (size_t)job.elements;
    gw_status status = GW_OK;
    *bytes = 0;
    for (unsigned round = 0; status == GW_OK; round++) {
        size_t n = 0;
        gw_program program;
        if (rounds) {
            status = gw_rounds_elements(params, elements, round, &n);
            job.numbers = n;
        }
        if (status != GW_OK || (rounds && n == 0)) {
            break;
        }
        status = gw_route_compile(route, &job, &program, why);
        *bytes += status == GW_OK ? program.sent[GW_LINK_INTER] * halves(s) / 2 : 0;
        if (!rounds) {
            break;
        }
    }
    return status;
}

static int same_node(const gw_step *s, uint32_t a, uint32_t b)
{
    return gw_same_node(s->nodes, s->config.ranks_per_node, a, b);
}

/* The sum of far_bytes over the ranks of `of`'s node. Sets *neighbours to the number of these ranks. */
static gw_status node_bytes(const gw_step *s, const gw_layer *l, uint32_t of, uint64_t *bytes,
                            uint32_t *neighbours, gw_why *why)
{
    gw_status status = GW_OK;
    *bytes = *neighbours = 0;
    for (uint32_t rank = 0; rank < s->config.comm->ranks && status == GW_OK; rank++) {
        uint64_t one = 0;
        if (same_node(s, rank, of)) {
            status = far_bytes(s, l, rank, &one, why);
            *bytes += one;
            ++*neighbours;
        }
    }
    return status;
}

gw_status gw_step_count_ring(gw_step *s, gw_why *why)
{
    const uint32_t own = s->config.comm->rank;
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < s->n_layers && status == GW_OK; i++) {
        gw_layer *l = &s->layers[i];
        const uint64_t ring = gw_step_dense_bytes(s, l);
        uint64_t node = 0, mine = 0;
        uint32_t neighbours = 0;
        status = node_bytes(s, l, own, &node, &neighbours, why);
        if (status == GW_OK) {
            status = far_bytes(s, l, own, &mine, why);
        }
        if (status != GW_OK) {
            break;
        }
        const int alone = neighbours == s->config.comm->ranks; /* no card sends anything */
        l->ring[GW_LINK_INTRA] = alone ? ring : ring / neighbours * (neighbours - 1);
        l->ring[GW_LINK_INTER] = alone || node == 0 ? 0
                                 : mine == node
                                     ? ring
                                     : (uint64_t)((double)ring * ((double)mine / (double)node));
    }
    return status;
}

gw_status gw_step_card_bytes(const gw_step *s, uint64_t *card, uint64_t *ring, gw_why *why)
{
    if (s == NULL || card == NULL || ring == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "gw_step_card_bytes: no step, or no place for the result");
    }
    if (!s->agreed) {
        return GW_FAIL(why, GW_ERR_STATE, "routes are not known before gw_step_agree");
    }
    gw_status status = GW_OK;
    *card = *ring = 0;
    for (uint32_t rank = 0; rank < s->config.comm->ranks && status == GW_OK; rank++) {
        uint64_t sum = 0, all = 0;
        uint32_t before = 0, neighbours = 0;
        while (before < rank && !same_node(s, before, rank)) {
            before++;
        }
        for (uint32_t i = 0; i < s->n_layers && before == rank && status == GW_OK; i++) {
            const gw_layer *l = &s->layers[i];
            const gw_fusion *f = l->fusion != UINT32_MAX ? &s->fusions[l->fusion] : NULL;
            uint64_t bytes = 0;
            if (f == NULL || s->fused[f->first] == i) { /* its layers are sent once */
                status = node_bytes(s, l, rank, &bytes, &neighbours, why);
            }
            sum += bytes;
            all += gw_step_dense_bytes(s, l);
        }
        *card = sum > *card ? sum : *card;
        *ring = sum != 0 && all > *ring ? all : *ring;
    }
    return status;
}

double gw_compression(const uint64_t sent[GW_LINKS], const uint64_t ring[GW_LINKS])
{
    if (sent == NULL || ring == NULL) {
        return (double)NAN;
    }
    const int link = ring[GW_LINK_INTER] != 0 ? GW_LINK_INTER : GW_LINK_INTRA;
    return sent[link] != 0 ? (double)ring[link] / (double)sent[link] : 1;
}
