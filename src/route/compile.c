/* A route for one rank and one tensor: what every step finds and leaves, and the bytes it moves.
 * docs/routes.md says what the steps do; this file says it in numbers. */
#include "base/why.h"
#include "route/cut.h"
#include "route/grammar.h"

/* Bytes an element a payload may take, with room for headers of tiny pieces: what keeps sums of bytes
 * over ranks × ranks below 2^63. */
enum { BYTES_PER_ELEMENT = 32 };

gw_status gw_route_fits(const gw_route *route, const gw_params *params, gw_why *why)
{
    gw_status status = gw_route_check(route, why);
    if (status != GW_OK || gw_route_encodes(route) == 0) {
        return status;
    }
    status = gw_params_check(params, why);
    if (status != GW_OK) {
        return status;
    }
    const uint32_t flags = gw_params_flags(params);
    const char *name = gw_codec_name(params->codec);
    if (gw_route_kind_of(route) == GW_ROUTE_ADDITIVE) {
        return (flags & GW_CODEC_ROUNDS) != 0 || (flags & GW_CODEC_ADDITIVE) != 0
                   ? GW_OK
                   : gw_fail(why, GW_ERR_UNSUPPORTED,
                             "%s with these settings cannot be summed without decoding, as an "
                             "additive route does (cast:to=f32 and randk:values=f32 can)",
                             name);
    }
    return (flags & GW_CODEC_ROUNDS) == 0
               ? GW_OK
               : gw_fail(why, GW_ERR_UNSUPPORTED,
                         "%s runs in rounds of sums: on additive routes only", name);
}

/* ---- groups ---- */

static gw_group mapped_group(const gw_nodes *nodes, uint32_t rank, gw_level level)
{
    const uint32_t node = nodes->node_of[rank], place = nodes->place_of[rank];
    if (level == GW_LEVEL_INTRA) {
        const uint32_t first = nodes->first[node];
        return (gw_group){
            .size = nodes->first[node + 1] - first, .member = place, .ranks = nodes->order + first};
    }
    if (place >= nodes->least) { /* some nodes have no such place: it takes no part between nodes */
        return (gw_group){.first = rank, .size = nodes->n};
    }
    gw_group g = {.size = nodes->n, .ranks = nodes->columns + (size_t)place * nodes->n};
    while (g.ranks[g.member] != rank) {
        g.member++;
    }
    return g;
}

static gw_group group_of(const gw_program *p, uint32_t rank, gw_level level)
{
    const uint32_t k = p->ranks_per_node != 0 ? p->ranks_per_node : 1;
    if (level == GW_LEVEL_FLAT) {
        return (gw_group){.stride = 1, .size = p->ranks, .member = rank};
    }
    if (p->nodes != NULL) {
        return mapped_group(p->nodes, rank, level);
    }
    return level == GW_LEVEL_INTRA ? (gw_group){rank - rank % k, 1, k, rank % k, NULL}
                                   : (gw_group){rank % k, k, p->ranks / k, rank / k, NULL};
}

/* ---- where the tensor is ---- */

typedef struct compiler {
    gw_program *program;
    uint32_t rank;
    gw_walk walk;
    gw_sizes payloads; /* a bundle's */
    gw_sizes numbers;  /* of dense operands and additive payloads */
    gw_range whole;    /* in elements, or in numbers while an additive route sums */
    gw_operand
        shape; /* outer, inner and payloads of the bundle; the same on every rank of a node */
    int mixed; /* the bundle has payloads of several ranks of a node */
} compiler;

static gw_group group_at(const compiler *c, gw_level level)
{
    return group_of(c->program, c->rank, level);
}

/* Pieces of a range that the members of a group share: a node divides it among as many as the smallest node has, so that
 * every piece has a member in every node. */
static uint32_t parts_at(const compiler *c, gw_level level)
{
    const gw_nodes *nodes = c->program->nodes;
    return level == GW_LEVEL_INTRA && nodes != NULL ? nodes->least : group_at(c, level).size;
}

/* What is left of `range` for a member after the first collective of a pair; 0: nothing. */
static int share(const compiler *c, gw_pair pair, gw_level level, gw_range *range)
{
    const uint32_t member = group_at(c, level).member, parts = parts_at(c, level);
    if (pair == GW_PAIR_SCATTER) {
        *range = gw_range_cut(*range, c->numbers.grain, parts, member);
    }
    return pair == GW_PAIR_ROOT ? member == 0 : pair != GW_PAIR_SCATTER || member < parts;
}

/* The range this rank has a part in at the walk's place, and whether it holds anything of it. */
static int range_at(const compiler *c, gw_place place, gw_range *range)
{
    *range = c->whole;
    switch (place) {
    case GW_PLACE_FLAT_SECOND:
        return share(c, c->walk.outer, GW_LEVEL_FLAT, range);
    case GW_PLACE_INTER_FIRST:
    case GW_PLACE_INTRA_SECOND:
        return share(c, c->walk.outer, GW_LEVEL_INTRA, range);
    case GW_PLACE_INTER_SECOND:
        return share(c, c->walk.outer, GW_LEVEL_INTRA, range) &&
               share(c, c->walk.inner, GW_LEVEL_INTER, range);
    case GW_PLACE_START:
    case GW_PLACE_ARRIVED:
        break;
    }
    return 1;
}

/* The operand that lies at the walk's place. */
static gw_operand operand_here(const compiler *c, gw_operand_kind kind)
{
    gw_operand o = {.kind = kind};
    if (!range_at(c, c->walk.place, &o.range)) {
        return (gw_operand){0};
    }
    if (kind != GW_OPERAND_BUNDLE) {
        o.bytes = c->numbers.width * o.range.count;
        return o;
    }
    o.outer = c->shape.outer;
    o.inner = c->shape.inner;
    o.payloads = c->shape.payloads;
    o.bytes = o.payloads * gw_cut_bytes(&c->payloads, o.range.count, o.outer, 0, o.outer, o.inner);
    return o;
}

/* ---- encode and decode ---- */

/* Pieces for the all-to-alls between the encode at step `at` and the next decode. */
static gw_operand shape_of_encode(const compiler *c, unsigned at)
{
    const gw_route *route = &c->program->route;
    gw_operand shape = {.outer = 1, .inner = 1, .payloads = 1};
    for (unsigned i = at + 1; i < route->n_steps && route->step[i].op != GW_OP_DECODE; i++) {
        if (route->step[i].op == GW_OP_ALLTOALL) {
            const gw_level level = (gw_level)route->step[i].level;
            *(level == GW_LEVEL_INTER ? &shape.inner : &shape.outer) = parts_at(c, level);
        }
    }
    return shape;
}

static uint32_t point_at(gw_place place)
{
    return place == GW_PLACE_START          ? 0
           : place == GW_PLACE_INTER_FIRST  ? 1
           : place == GW_PLACE_INTRA_SECOND ? 3
                                            : 2;
}

/* Numbers of an additive payload: what all ranks have in common is what a payload of nothing holds. */
static gw_status count_numbers(const gw_route_job *job, uint64_t *numbers, gw_why *why)
{
    size_t all = 0, common = 0;
    *numbers = job->numbers;
    if (job->numbers != 0 || job->elements == 0) {
        return GW_OK;
    }
    if (gw_payload_bound(job->params, (size_t)job->elements, &all) != GW_OK ||
        gw_payload_bound(job->params, 0, &common) != GW_OK || all < common ||
        (all - common) % 4 != 0) {
        return gw_fail(why, GW_ERR_UNSUPPORTED, "%s: how many numbers to sum must be said",
                       gw_codec_name(job->params->codec));
    }
    *numbers = (all - common) / 4;
    return GW_OK;
}

/* Every rank must say the same, so it is asked of rank 0, which has the longest pieces and is every root. */
static gw_status check_selection(const compiler *c, unsigned at, gw_why *why)
{
    compiler first = *c;
    first.rank = 0;
    const gw_operand bundle = operand_here(&first, GW_OPERAND_BUNDLE);
    const uint64_t longest = gw_operand_piece(&bundle, c->payloads.grain, 0).count;
    if (c->program->piece_points && longest > UINT32_MAX) {
        return gw_fail(why, GW_ERR_UNSUPPORTED,
                       "step %u: %s selects among at most 2^32 - 1 elements, not %llu", at + 1,
                       gw_codec_name(c->payloads.params->codec), (unsigned long long)longest);
    }
    return GW_OK;
}

static gw_status encode(compiler *c, unsigned at, const gw_route_job *job, gw_move *m, gw_why *why)
{
    gw_status status = GW_OK;
    m->point = point_at(c->walk.place);
    m->owner = c->rank;
    if (c->walk.place == GW_PLACE_INTRA_SECOND) { /* every node has the same by now */
        const gw_group column = group_at(c, GW_LEVEL_INTER);
        m->owner = gw_group_rank(&column, 0);
    }
    if (c->program->kind == GW_ROUTE_ADDITIVE) {
        c->whole.first = 0;
        c->numbers.grain = 1;
        status = count_numbers(job, &c->whole.count, why);
        m->after = operand_here(c, GW_OPERAND_NUMBERS);
        return status;
    }
    c->shape = shape_of_encode(c, at);
    m->after = operand_here(c, GW_OPERAND_BUNDLE);
    return check_selection(c, at, why);
}

static void decode(compiler *c, gw_move *m)
{
    c->mixed = 0;
    if (c->program->kind == GW_ROUTE_ADDITIVE) {
        c->whole = c->program->whole;
    }
    m->after = operand_here(c, GW_OPERAND_DENSE);
}

/* ---- collectives ---- */

/* The peers of a rank behind one kind of link: members low … high - 1, or all others. */
typedef struct peers {
    uint32_t low, high, n; /* n: how many, oneself left out */
    int outside, root;     /* root: member 0 is one of them */
    const gw_nodes
        *nodes; /* not NULL: near are the ranks of the node, wherever they are in the group */
} peers;

/* All ranks of a flat group, whose order need not be that of nodes. */
static peers mapped_peers(const gw_program *p, const gw_move *m, int link)
{
    const gw_nodes *nodes = p->nodes;
    const uint32_t node = nodes->node_of[p->rank];
    const uint32_t near = nodes->first[node + 1] - nodes->first[node];
    const int outside = link == GW_LINK_INTER;
    return (peers){.n = outside ? p->ranks - near : near - 1,
                   .outside = outside,
                   .root = m->group.member != 0 && (nodes->node_of[0] != node) == outside,
                   .nodes = nodes};
}

static peers peers_behind(const gw_program *p, const gw_move *m, int link)
{
    const gw_group g = m->group;
    uint32_t low = g.member, high = g.member + 1; /* who is near */
    if (m->step.level == GW_LEVEL_INTRA) {
        low = 0;
        high = g.size;
    } else if (m->step.level == GW_LEVEL_FLAT && p->nodes != NULL) {
        return mapped_peers(p, m, link);
    } else if (m->step.level == GW_LEVEL_FLAT && p->ranks_per_node != 0) {
        low = p->rank - p->rank % p->ranks_per_node;
        high = g.size - low < p->ranks_per_node ? g.size : low + p->ranks_per_node;
    }
    const int outside = link == GW_LINK_INTER;
    return (peers){.low = low,
                   .high = high,
                   .n = outside ? g.size - (high - low) : high - low - 1,
                   .outside = outside,
                   .root = g.member != 0 && (outside ? low > 0 : low == 0)};
}

/* One collective's pieces, one a member. */
typedef struct pieces {
    const gw_sizes *sizes;
    uint64_t count;    /* of all together */
    uint32_t inner;    /* each is cut further into so many */
    uint64_t payloads; /* of each */
} pieces;

static uint64_t bytes_between(const pieces *x, const gw_move *m, uint32_t from, uint32_t to)
{
    return x->payloads * gw_cut_bytes(x->sizes, x->count, m->parts, from, to, x->inner);
}

/* Of all members on this rank's side of the links between nodes, its own among them. */
static uint64_t bytes_near(const pieces *x, const gw_move *m, const peers *who, uint32_t me)
{
    const gw_nodes *nodes = who->nodes;
    uint64_t bytes = 0;
    if (nodes == NULL) {
        return bytes_between(x, m, who->low, who->high);
    }
    const uint32_t node = nodes->node_of[me];
    for (uint32_t i = nodes->first[node]; i < nodes->first[node + 1]; i++) {
        bytes += bytes_between(x, m, nodes->order[i], nodes->order[i] + 1);
    }
    return bytes;
}

/* Of all peers' pieces. */
static uint64_t bytes_of_peers(const pieces *x, const gw_move *m, const peers *who)
{
    const uint32_t me = m->group.member;
    const uint64_t near = bytes_near(x, m, who, me);
    return who->outside ? bytes_between(x, m, 0, m->group.size) - near
                        : near - bytes_between(x, m, me, me + 1);
}

static void count_bytes(const gw_program *p, gw_move *m, const pieces *x)
{
    const uint32_t me = m->group.member;
    const uint64_t mine = bytes_between(x, m, me, me + 1);
    for (int link = 0; link < GW_LINKS; link++) {
        const peers who = peers_behind(p, m, link);
        const uint64_t theirs = bytes_of_peers(x, m, &who);
        uint64_t *sent = &m->sent[link], *received = &m->received[link];
        switch ((gw_op)m->step.op) {
        case GW_OP_ALLREDUCE: /* pieces to their owners, sums to all */
            *sent = *received = theirs + who.n * mine;
            break;
        case GW_OP_REDUCE_SCATTER:
        case GW_OP_ALLTOALL:
            *sent = theirs;
            *received = who.n * mine;
            break;
        case GW_OP_REDUCE: /* pieces to their owners, sums to the root */
            *sent = theirs + (who.root ? mine : 0);
            *received = who.n * mine + (me == 0 ? theirs : 0);
            break;
        case GW_OP_ALLGATHER:
            *sent = who.n * m->before.bytes;
            *received = m->part == GW_PART_WHOLE ? *sent : theirs;
            break;
        case GW_OP_BROADCAST:
            *sent = me == 0 ? who.n * m->after.bytes : 0;
            *received = who.root ? m->after.bytes : 0;
            break;
        case GW_OP_GATHER:
            *sent = who.root ? m->before.bytes : 0;
            *received = me == 0 ? who.n * m->before.bytes : 0;
            break;
        case GW_OP_ENCODE:
        case GW_OP_DECODE:
            break;
        }
    }
}

/* Pieces and payloads of the bundle behind a collective; the same on every rank. */
static gw_operand shape_behind(const gw_operand *before, const gw_move *m)
{
    gw_operand shape = *before;
    uint32_t *cut = m->step.level == GW_LEVEL_INTER ? &shape.inner : &shape.outer;
    if (m->step.op == GW_OP_ALLTOALL) {
        *cut = 1;
    } else if (m->step.op == GW_OP_ALLGATHER && m->part == GW_PART_SECOND) {
        *cut = m->parts;
    }
    if (m->step.op == GW_OP_ALLTOALL || m->step.op == GW_OP_GATHER || m->part == GW_PART_WHOLE) {
        shape.payloads *= m->group.size;
    }
    return shape;
}

/* Nodes of different sizes would have different numbers of payloads. */
static gw_status check_mixed(compiler *c, unsigned at, const gw_move *m, gw_why *why)
{
    const gw_nodes *nodes = c->program->nodes;
    if (m->step.level == GW_LEVEL_INTER && c->mixed && nodes != NULL &&
        nodes->least != nodes->most) {
        return gw_fail(why, GW_ERR_UNSUPPORTED,
                       "step %u: nodes have %u to %u ranks, so payloads must be decoded between "
                       "the intra and the inter steps; other routes run",
                       at + 1, nodes->least, nodes->most);
    }
    return GW_OK;
}

/* `kind` is what is sent; `from` is where the walk stood before. */
static void collective(compiler *c, gw_operand_kind kind, gw_place from, gw_move *m)
{
    const int bundle = kind == GW_OPERAND_BUNDLE;
    gw_range before = {0}, after = {0};
    m->group = group_at(c, (gw_level)m->step.level);
    m->parts = m->step.op == GW_OP_ALLREDUCE || m->step.op == GW_OP_REDUCE
                   ? m->group.size /* pieces that are summed here come together here */
                   : parts_at(c, (gw_level)m->step.level);
    const int held = range_at(c, from, &before);
    const int holds = range_at(c, c->walk.place, &after);
    m->runs = m->part == GW_PART_SECOND ? holds : held;
    c->shape = shape_behind(&c->shape, m);
    c->mixed |= bundle && m->step.level == GW_LEVEL_INTRA && m->part == GW_PART_FIRST;
    m->after = operand_here(c, kind);
    if (m->runs) {
        /* an all-to-all's messages have what was there before, the others' all there is behind */
        const uint32_t more = m->step.op == GW_OP_ALLTOALL ? m->group.size : 1;
        const pieces x = {.sizes = bundle ? &c->payloads : &c->numbers,
                          .count = m->part == GW_PART_SECOND ? after.count : before.count,
                          .inner = bundle && m->step.level != GW_LEVEL_INTER ? c->shape.inner : 1,
                          .payloads = bundle ? c->shape.payloads / more : 1};
        count_bytes(c->program, m, &x);
    }
}

/* ---- the whole ---- */

static gw_status check_job(const gw_route *route, const gw_route_job *job, gw_why *why)
{
    if (job->ranks == 0 || job->ranks > GW_ROUTE_MAX_RANKS || job->rank >= job->ranks) {
        return gw_fail(why, GW_ERR_RANGE, "rank %u of %u: 1 to %d ranks", job->rank, job->ranks,
                       GW_ROUTE_MAX_RANKS);
    }
    if (job->width != 0 && job->width != 2 && job->width != 4) {
        return gw_fail(why, GW_ERR_RANGE, "numbers of %u bytes: 2 or 4", job->width);
    }
    const uint64_t ranks = job->ranks;
    const uint64_t most = ((uint64_t)1 << 63) / BYTES_PER_ELEMENT / ranks / ranks;
    if (job->elements > most || job->numbers > most || job->first > most - job->elements) {
        return gw_fail(why, GW_ERR_RANGE, "%u ranks: at most %llu elements", job->ranks,
                       (unsigned long long)most);
    }
    if (job->nodes != NULL && job->nodes->ranks != job->ranks) {
        return gw_fail(why, GW_ERR_ARG, "%u ranks, and a map of %u ranks to nodes", job->ranks,
                       job->nodes->ranks);
    }
    if (gw_route_is_hierarchical(route) && job->nodes == NULL &&
        (job->ranks_per_node == 0 || job->ranks % job->ranks_per_node != 0)) {
        return gw_fail(why, GW_ERR_UNSUPPORTED,
                       "a hierarchical route needs nodes with equal numbers of ranks, or a map of "
                       "nodes: %u ranks, %u a node; flat routes run",
                       job->ranks, job->ranks_per_node);
    }
    return GW_OK;
}

static gw_status compile_steps(compiler *c, const gw_route_job *job, gw_why *why)
{
    gw_program *p = c->program;
    gw_operand operand = operand_here(c, GW_OPERAND_DENSE);
    for (unsigned i = 0; i < p->route.n_steps; i++) {
        gw_move *m = &p->move[i];
        const gw_place from = c->walk.place;
        const gw_operand_kind kind = !c->walk.coded                 ? GW_OPERAND_DENSE
                                     : p->kind == GW_ROUTE_ADDITIVE ? GW_OPERAND_NUMBERS
                                                                    : GW_OPERAND_BUNDLE;
        gw_status status = GW_OK;
        m->step = p->route.step[i];
        m->before = operand;
        (void)gw_walk_take(&c->walk, m->step, &m->part);
        if (m->step.op == GW_OP_ENCODE) {
            status = encode(c, i, job, m, why);
        } else if (m->step.op == GW_OP_DECODE) {
            decode(c, m);
        } else {
            status = check_mixed(c, i, m, why);
            collective(c, kind, from, m);
        }
        if (status != GW_OK) {
            return status;
        }
        if (gw_is_coding(m->step.op)) {
            m->runs = m->before.kind != GW_OPERAND_NONE;
        }
        operand = m->after;
        for (int link = 0; link < GW_LINKS; link++) {
            p->sent[link] += m->sent[link];
            p->received[link] += m->received[link];
        }
        if (m->after.kind == GW_OPERAND_BUNDLE && m->after.bytes > p->largest_bundle) {
            p->largest_bundle = m->after.bytes;
        }
    }
    return GW_OK;
}

gw_status gw_route_compile(const gw_route *route, const gw_route_job *job, gw_program *out,
                           gw_why *why)
{
    if (job == NULL || out == NULL) {
        return gw_fail(why, GW_ERR_ARG, "no job given");
    }
    gw_status status = gw_route_fits(route, job->params, why);
    status = status == GW_OK ? check_job(route, job, why) : status;
    if (status != GW_OK) {
        return status;
    }
    const int coded = gw_route_encodes(route) != 0;
    const size_t grain = coded ? gw_codec_grain(job->params) : 1;
    gw_program program = {.route = *route,
                          .kind = gw_route_kind_of(route),
                          .ranks = job->ranks,
                          .ranks_per_node = job->ranks_per_node,
                          .rank = job->rank,
                          .nodes = job->nodes,
                          .whole = {job->first, job->elements},
                          .piece_points = grain == 0,
                          .n_moves = route->n_steps,
                          .encodes = gw_route_encodes(route)};
    program.grain = grain == 0 || program.kind == GW_ROUTE_ADDITIVE ? 1 : grain;
    if (job->first != 0 && (grain == 0 || job->first % grain != 0)) {
        return gw_fail(why, GW_ERR_RANGE, "a piece of a tensor begins at element %llu, %s",
                       (unsigned long long)job->first,
                       grain == 0 ? "and this codec selects over the whole"
                                  : "which is not a multiple of the codec's grain");
    }
    compiler c = {.program = &program,
                  .rank = job->rank,
                  .payloads = {job->params, program.grain, 0},
                  .numbers = {NULL, program.grain, !coded && job->width != 0 ? job->width : 4},
                  .whole = program.whole,
                  .shape = {.outer = 1, .inner = 1, .payloads = 1}};
    status = compile_steps(&c, job, why);
    if (status == GW_OK) {
        *out = program;
    }
    return status;
}
