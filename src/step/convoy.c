/* Which layers' messages go together: those of layers that become ready at once and send little, as a bucket's of a deep network do.
 * docs/decisions/012 */
#include "step/step.h"

#include "base/arena.h"

/* Of one convoy: elements that are coded before anything is sent, and about as many bytes to one peer that a message hardly costs
 * more than an empty one. */
enum { ELEMENTS = 4 << 20, BYTES = 128 << 10 };

static const gw_layer *member(const gw_step *s, const gw_convoy *c, uint32_t i)
{
    return &s->layers[s->convoyed[c->first + i]];
}

static uint32_t kind_of(const gw_layer *l)
{
    const uint32_t flags = l->params.codec != NULL ? gw_params_flags(&l->params) : 0;
    return flags & (GW_CODEC_FIXED_SIZE | GW_CODEC_ROUNDS);
}

/* Bytes to one peer, about: caps are seldom reached. Every rank asks rank 0's program, which has the longest pieces and is
 * every root: ranks must put the same layers together. */
static uint64_t message_bytes(const gw_step *s, const gw_layer *l)
{
    const gw_program *own = gw_exchange_program(l->pieces[0]);
    const gw_route_job job = {.ranks = own->ranks,
                              .ranks_per_node = own->ranks_per_node,
                              .nodes = own->nodes,
                              .elements = l->elements,
                              .params = &l->params};
    gw_program first;
    uint64_t most = gw_dtype_size(l->sent) * l->elements;
    if (own->kind == GW_ROUTE_ADDITIVE) { /* the same on every rank */
        most = gw_exchange_most_bytes(l->pieces[0]);
    } else if (own->kind == GW_ROUTE_COMPRESSED &&
               gw_route_compile(&l->route, &job, &first, NULL) == GW_OK) {
        most = first.largest_bundle;
    }
    most /= s->config.comm->ranks;
    return l->params.codec != NULL && (kind_of(l) & GW_CODEC_FIXED_SIZE) == 0 ? most / 8 : most;
}

static int is_flat(const gw_program *p)
{
    int flat = 1;
    for (uint32_t i = 0; i < p->n_moves; i++) {
        flat &= p->move[i].step.level == 0 || p->move[i].step.level == GW_LEVEL_FLAT;
    }
    return flat;
}

static int may_join(const gw_step *s, const gw_layer *l)
{
    return l->ready_with != 0 && l->n_pieces == 1 && s->config.comm->ranks > 1 &&
           !gw_step_on_device(s) && (s->config.comm->table->flags & GW_COMM_SAME_BITS) == 0 &&
           is_flat(gw_exchange_program(l->pieces[0]));
}

/* Members make the same operations, one by one: then what goes to all peers goes to all from every member. */
static int fits(const gw_step *s, const gw_convoy *c, const gw_layer *l)
{
    const gw_layer *first = member(s, c, 0);
    uint64_t elements = l->elements, bytes = message_bytes(s, l);
    for (uint32_t i = 0; i < c->count; i++) {
        elements += member(s, c, i)->elements;
        bytes += message_bytes(s, member(s, c, i));
    }
    return first->ready_with == l->ready_with && gw_route_equal(&first->route, &l->route) &&
           kind_of(first) == kind_of(l) && elements <= ELEMENTS && bytes <= BYTES;
}

/* The last convoy may still get members. */
static int gathers(const gw_step *s)
{
    return s->n_convoys != 0 && s->convoys[s->n_convoys - 1].messages == NULL;
}

gw_status gw_convoy_close(gw_step *s, gw_why *why)
{
    if (!gathers(s)) {
        return GW_OK;
    }
    gw_convoy *c = &s->convoys[s->n_convoys - 1];
    const uint32_t layer = s->convoyed[c->first];
    gw_task task = {.exchange = s->layers[layer].pieces[0],
                    .layer = layer,
                    .fusion = UINT32_MAX,
                    .convoy = (uint32_t)(c - s->convoys)};
    size_t bytes = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        task.elements += member(s, c, i)->elements;
        bytes += gw_exchange_most_bytes(member(s, c, i)->pieces[0]);
    }
    gw_status status = GW_OK;
    if (c->count == 1) {
        task.convoy = UINT32_MAX;
        s->n_convoys--;
    } else {
        gw_comm *const flat = s->lanes[s->n_tasks % s->n_lanes].groups.flat;
        status = gw_together_create(flat, c->count, bytes, &c->messages, why);
    }
    s->tasks[s->n_tasks++] = task;
    return status;
}

gw_status gw_convoy_add(gw_step *s, uint32_t layer, int *joined, gw_why *why)
{
    const gw_layer *l = &s->layers[layer];
    gw_status status = GW_OK;
    *joined = may_join(s, l);
    if (gathers(s) && !(*joined && fits(s, &s->convoys[s->n_convoys - 1], l))) {
        status = gw_convoy_close(s, why);
    }
    if (!*joined || status != GW_OK) {
        return status;
    }
    if (!gathers(s)) {
        const uint32_t n = s->n_convoys++;
        s->convoys[n] =
            (gw_convoy){.first = n != 0 ? s->convoys[n - 1].first + s->convoys[n - 1].count : 0};
    }
    gw_convoy *c = &s->convoys[s->n_convoys - 1];
    s->convoyed[c->first + c->count++] = layer;
    return GW_OK;
}

size_t gw_convoy_workspace(const gw_step *s, const gw_convoy *c)
{
    gw_arena arena = gw_arena_measuring();
    for (uint32_t i = 0; i < c->count; i++) {
        (void)gw_arena_take(&arena, gw_exchange_workspace(member(s, c, i)->pieces[0]), 1);
    }
    return gw_arena_need(&arena);
}

/* ---- a task ---- */

gw_status gw_convoy_begin(gw_step *s, const gw_step_lane *lane, gw_convoy *c, gw_why *why)
{
    gw_arena arena = gw_arena_over(lane->workspace);
    gw_lane groups = lane->groups;
    gw_status status = GW_OK;
    gw_together_begin(c->messages);
    c->ended = 0;
    for (uint32_t i = 0; i < c->count && status == GW_OK; i++) {
        const uint32_t layer = s->convoyed[c->first + i];
        const gw_layer *l = &s->layers[layer];
        c->at = i;
        const gw_stream stream = gw_task_stream(s, layer);
        const size_t bytes = gw_exchange_workspace(l->pieces[0]);
        const gw_workspace workspace = {gw_arena_take(&arena, bytes, 1), bytes};
        groups.flat = gw_together_comm(c->messages, i);
        status = gw_task_take_in(s, lane, layer, why);
        if (status == GW_OK) {
            status = gw_exchange_begin(l->pieces[0], &groups, gw_task_values(l), &stream, workspace,
                                       why);
        }
    }
    return status;
}

/* Members in turn, up to one that moved, as lanes. */
gw_status gw_convoy_progress(gw_step *s, const gw_step_lane *lane, gw_convoy *c, int *done,
                             int *moved, gw_why *why)
{
    gw_status status = GW_OK;
    *moved = 0;
    for (uint32_t i = 0; i < c->count && status == GW_OK && !*moved; i++) {
        const uint32_t layer = s->convoyed[c->first + i];
        const gw_layer *l = &s->layers[layer];
        int ended = 0;
        if (l->pieces_done != 0) {
            continue;
        }
        c->at = i;
        status = gw_exchange_progress(l->pieces[0], &ended, moved, why);
        if (status == GW_OK && ended) {
            *moved = 1;
            c->ended++;
            status = gw_together_leave(c->messages, i, why);
            status =
                status == GW_OK ? gw_task_end_piece(s, lane, layer, l->pieces[0], why) : status;
        }
    }
    *done = c->ended == c->count;
    return status;
}

/* Seals of the convoy's messages are counted as its first layer's. */
gw_status gw_convoy_end(gw_step *s, const gw_convoy *c)
{
    const uint32_t k = s->config.ranks_per_node, own = s->config.comm->rank;
    gw_layer *first = &s->layers[s->convoyed[c->first]];
    (void)pthread_mutex_lock(&s->lock);
    for (uint32_t i = 0; i < s->config.comm->ranks; i++) {
        const int link = gw_same_node(s->nodes, k, i, own) ? GW_LINK_INTRA : GW_LINK_INTER;
        first->stats.bytes_sent[link] +=
            (uint64_t)GW_TOGETHER_SEAL * gw_together_sent(c->messages, i);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return GW_OK;
}
