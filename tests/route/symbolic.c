/* See symbolic.h. Elements between two neighbouring borders of any piece are alike and stand as one atom. */
#include "route/symbolic.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 8, PIECES = 8, ATOMS = 64, BORDERS = 4096, ENCODED = 4 * RANKS * PIECES };

/* What an atom holds: how often each rank's contribution, and by which operations it came to be. */
typedef struct value {
    uint64_t how;
    uint8_t times[RANKS];
} value;

typedef struct payload {
    gw_range range;
    uint32_t origin; /* the rank that encoded it */
    unsigned encoded;
} payload;

typedef struct holding {
    gw_operand_kind kind;
    gw_range range;
    value at[ATOMS]; /* dense, numbers */
    unsigned pieces, payloads;
    payload bundle[PIECES][RANKS];
} holding;

typedef struct drawn {
    uint32_t point, rank;
    gw_range range; /* indices of the random numbers */
    uint32_t by;
} drawn;

static struct run {
    gw_program program[RANKS];
    uint32_t ranks, ranks_per_node;
    const gw_nodes *nodes;
    const gw_params *params;
    symbolic_fault fault;
    uint64_t border[BORDERS];
    unsigned borders;
    holding now[RANKS], next[RANKS];
    value encoded[ENCODED][ATOMS];
    drawn draws[ENCODED];
    unsigned n_encoded;
    uint64_t sent[RANKS][GW_LINKS], received[RANKS][GW_LINKS]; /* of one step */
    char wrong[300];
} run;

__attribute__((format(printf, 1, 2))) static int wrong(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(run.wrong, sizeof run.wrong, format, args);
    va_end(args);
    return 0;
}

/* ---- atoms ---- */

static void add_border(uint64_t at)
{
    if (run.borders < BORDERS) {
        run.border[run.borders++] = at;
    }
}

static int by_value(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static int find_atoms(uint64_t first, uint64_t elements)
{
    add_border(0);
    add_border(first);
    add_border(first + elements);
    for (uint32_t r = 0; r < run.ranks; r++) {
        for (unsigned i = 0; i < run.program[r].n_moves; i++) {
            const gw_operand *o = &run.program[r].move[i].after;
            add_border(o->range.first);
            add_border(o->range.first + o->range.count);
            for (uint32_t j = 0; j < o->outer * o->inner; j++) {
                const gw_range piece = gw_operand_piece(o, run.program[r].grain, j);
                add_border(piece.first);
                add_border(piece.first + piece.count);
            }
        }
    }
    qsort(run.border, run.borders, sizeof run.border[0], by_value);
    unsigned n = 0;
    for (unsigned i = 0; i < run.borders; i++) {
        if (n == 0 || run.border[n - 1] != run.border[i]) {
            run.border[n++] = run.border[i];
        }
    }
    run.borders = n;
    return n <= ATOMS ? 1 : wrong("%u atoms", n);
}

static int inside(unsigned atom, gw_range range)
{
    return run.border[atom] >= range.first && run.border[atom + 1] <= range.first + range.count;
}

static uint64_t mix(uint64_t a, uint64_t b)
{
    a = (a ^ (b + 0x9E3779B97F4A7C15u)) * 0xBF58476D1CE4E5B9u;
    return (a ^ a >> 29) * 0x94D049BB133111EBu + b;
}

static void add_value(value *sum, const value *more)
{
    sum->how = mix(sum->how, more->how);
    for (unsigned r = 0; r < RANKS; r++) {
        sum->times[r] = (uint8_t)(sum->times[r] + more->times[r]);
    }
}

/* ---- messages ---- */

static void send(uint32_t from, uint32_t to, uint64_t bytes)
{
    const int near = gw_same_node(run.nodes, run.ranks_per_node, from, to);
    if (from != to) {
        run.sent[from][near ? GW_LINK_INTRA : GW_LINK_INTER] += bytes;
        run.received[to][near ? GW_LINK_INTRA : GW_LINK_INTER] += bytes;
    }
}

static uint64_t payload_bytes(const payload *p)
{
    size_t bytes = 0;
    if (p->range.count != 0) {
        (void)gw_payload_bound(run.params, (size_t)p->range.count, &bytes);
    }
    return bytes;
}

static uint64_t bundle_bytes(const holding *h, unsigned from, unsigned to)
{
    uint64_t bytes = 0;
    for (unsigned i = from; i < to; i++) {
        for (unsigned j = 0; j < h->payloads; j++) {
            bytes += payload_bytes(&h->bundle[i][j]);
        }
    }
    return bytes;
}

static uint64_t bytes_of(const holding *h)
{
    return h->kind == GW_OPERAND_BUNDLE ? bundle_bytes(h, 0, h->pieces) : 4 * h->range.count;
}

/* ---- encode, decode ---- */

/* No random number may serve two values; `made` is what came of the piece. */
static int draw(const gw_program *p, const gw_stream *s, gw_range range, const value *made)
{
    const drawn d = {s->point, s->rank, {s->first, range.count}, p->rank};
    if (s->first != 0 && gw_codec_grain(run.params) == 0) {
        return wrong("rank %u: a stream that gw_encode refuses", p->rank);
    }
    for (unsigned i = 0; i < run.n_encoded; i++) {
        const drawn *o = &run.draws[i];
        const int overlap = o->range.first < d.range.first + d.range.count &&
                            d.range.first < o->range.first + o->range.count;
        if (o->point == d.point && o->rank == d.rank && overlap &&
            (o->by == d.by || memcmp(run.encoded[i], made, sizeof run.encoded[i]) != 0)) {
            return wrong("rank %u: random numbers drawn twice", p->rank);
        }
    }
    run.draws[run.n_encoded] = d;
    return 1;
}

static int encode(const gw_program *p, const gw_move *m, const holding *h, holding *out)
{
    *out = (holding){.kind = m->after.kind, .range = h->range, .payloads = 1};
    if (h->kind != GW_OPERAND_DENSE) {
        return wrong("rank %u encodes what is not dense", p->rank);
    }
    if (m->after.kind == GW_OPERAND_NUMBERS) {
        out->range = m->after.range;
        for (unsigned a = 0; a + 1 < run.borders; a++) {
            if (inside(a, out->range)) {
                out->at[a] = h->at[0];
            }
        }
        return 1;
    }
    out->pieces = m->after.outer * m->after.inner;
    uint64_t at = h->range.first;
    for (unsigned i = 0; i < out->pieces; i++) {
        const gw_range piece = gw_operand_piece(&m->after, p->grain, i);
        if (piece.first != at || (piece.count != 0 && piece.first % p->grain != 0)) {
            return wrong("rank %u: piece %u begins wrongly", p->rank, i);
        }
        at += piece.count;
        gw_stream s = gw_program_stream(p, m, i, (gw_stream){.seed = 1});
        s.rank = run.fault == FAULT_OWN_DRAWS ? p->rank : s.rank;
        out->bundle[i][0] = (payload){piece, p->rank, run.n_encoded};
        value *v = run.encoded[run.n_encoded];
        memset(v, 0, sizeof run.encoded[0]);
        for (unsigned a = 0; a + 1 < run.borders; a++) {
            if (inside(a, piece)) {
                v[a] = h->at[a];
                v[a].how = mix(mix(mix(v[a].how, s.point), s.rank), s.first);
            }
        }
        if (!draw(p, &s, piece, v)) {
            return 0;
        }
        run.n_encoded++;
    }
    return at == h->range.first + h->range.count ? 1
                                                 : wrong("rank %u: pieces miss the end", p->rank);
}

/* The payloads of one piece into `out`. */
static int decode_piece(const gw_program *p, const payload *list, unsigned n, holding *out)
{
    unsigned own = n;
    for (unsigned j = 0; j < n; j++) {
        own = list[j].origin == p->rank ? j : own;
        if (j > 0 && run.nodes == NULL && list[j].origin <= list[j - 1].origin) {
            return wrong("rank %u: payloads of rank %u before %u", p->rank, list[j - 1].origin,
                         list[j].origin);
        }
    }
    int first = 1;
    for (unsigned k = 0; k < n; k++) {
        unsigned j = k;
        if (run.fault == FAULT_OWN_FIRST && own < n) {
            j = k == 0 ? own : k <= own ? k - 1 : k;
        }
        if (run.fault == FAULT_OWN_LEFT_OUT && n > 1 && j == own) {
            continue;
        }
        for (unsigned a = 0; a + 1 < run.borders; a++) {
            const value *v = &run.encoded[list[j].encoded][a];
            if (!inside(a, list[j].range)) {
                continue;
            }
            if (first || run.fault == FAULT_OVERWRITE) {
                out->at[a] = *v;
            } else {
                add_value(&out->at[a], v);
            }
        }
        first = 0;
    }
    return 1;
}

static int decode(const gw_program *p, const holding *h, holding *out)
{
    *out = (holding){.kind = GW_OPERAND_DENSE, .range = h->range};
    if (h->kind == GW_OPERAND_NUMBERS) {
        out->range = p->whole;
        value all = h->at[0]; /* every element may come from any number */
        for (unsigned a = 0; a + 1 < run.borders; a++) {
            if (inside(a, h->range)) {
                all.how = mix(all.how, h->at[a].how);
                if (memcmp(all.times, h->at[a].times, sizeof all.times) != 0) {
                    return wrong("rank %u: numbers are not alike", p->rank);
                }
            }
        }
        for (unsigned a = 0; a + 1 < run.borders; a++) {
            out->at[a] = all;
        }
        return 1;
    }
    if (h->kind != GW_OPERAND_BUNDLE) {
        return wrong("rank %u decodes what is not encoded", p->rank);
    }
    uint64_t at = h->range.first;
    for (unsigned i = 0; i < h->pieces; i++) {
        if (h->bundle[i][0].range.first != at) {
            return wrong("rank %u: piece %u is not where it belongs", p->rank, i);
        }
        at += h->bundle[i][0].range.count;
        if (!decode_piece(p, h->bundle[i], h->payloads, out)) {
            return 0;
        }
    }
    return 1;
}

/* ---- collectives: what member `me` of a group gets ---- */

typedef struct group {
    gw_group g;
    const gw_program *p;
    const gw_move *m;
} group;

static uint32_t rank_of(const group *x, uint32_t member)
{
    return gw_group_rank(&x->g, member);
}

static const holding *held_by(const group *x, uint32_t member)
{
    return &run.now[rank_of(x, member)];
}

static gw_range piece_of(const group *x, gw_range range, uint32_t member)
{
    return gw_range_cut(range, x->p->grain, x->m->parts, member);
}

/* Sum of what the members have, in their order, over `range`. */
static void sum_members(const group *x, gw_range range, holding *out)
{
    for (uint32_t q = 0; q < x->g.size; q++) {
        for (unsigned a = 0; a + 1 < run.borders; a++) {
            if (inside(a, range)) {
                if (q == 0) {
                    out->at[a] = held_by(x, q)->at[a];
                } else {
                    add_value(&out->at[a], &held_by(x, q)->at[a]);
                }
            }
        }
    }
}

/* allreduce, reduce_scatter, reduce */
static int reduce(const group *x, holding *out)
{
    const uint32_t me = x->g.member, size = x->g.size;
    const gw_range whole = held_by(x, me)->range, mine = piece_of(x, whole, me);
    const int to_all = x->m->step.op == GW_OP_ALLREDUCE, to_root = x->m->step.op == GW_OP_REDUCE;
    for (uint32_t q = 0; q < size; q++) {
        if (held_by(x, q)->kind == GW_OPERAND_NONE || held_by(x, q)->range.first != whole.first ||
            held_by(x, q)->range.count != whole.count) {
            return wrong("rank %u: members hold different ranges", x->p->rank);
        }
        send(rank_of(x, q), x->p->rank, 4 * mine.count);
        if (to_all || (to_root && me == 0)) { /* the sums of the others */
            send(rank_of(x, q), x->p->rank, 4 * piece_of(x, whole, q).count);
        }
    }
    *out = (holding){0};
    if (me >= x->m->parts) { /* its node is larger than others: nothing is left for it */
        return 1;
    }
    if (!to_root || me == 0) {
        out->kind = held_by(x, me)->kind;
        out->range = to_all || to_root ? whole : mine;
        sum_members(x, out->range, out);
    }
    return 1;
}

/* alltoall, gather, allgather of everyone's own: payload lists of the members one after the other */
static int collect(const group *x, holding *out)
{
    const uint32_t me = x->g.member, size = x->g.size;
    const holding *own = held_by(x, me);
    const int scatters = x->m->step.op == GW_OP_ALLTOALL;
    const uint32_t parts = x->m->parts;
    if (scatters && own->pieces % parts != 0) {
        return wrong("rank %u: %u pieces for %u members", x->p->rank, own->pieces, parts);
    }
    const unsigned pieces = scatters ? own->pieces / parts : own->pieces;
    const unsigned which = (run.fault == FAULT_SHIFTED_CUT ? (me + 1) % parts : me);
    const unsigned begin = scatters ? pieces * which : 0;
    *out = (holding){0};
    if ((x->m->step.op == GW_OP_GATHER && me != 0) || (scatters && me >= parts)) {
        return 1;
    }
    out->kind = GW_OPERAND_BUNDLE;
    out->pieces = pieces;
    for (uint32_t q = 0; q < size; q++) {
        const holding *h = held_by(x, q);
        if (h->kind != GW_OPERAND_BUNDLE || h->pieces != own->pieces ||
            h->payloads != own->payloads || h->range.first != own->range.first) {
            return wrong("rank %u: members hold different bundles", x->p->rank);
        }
        send(rank_of(x, q), x->p->rank, bundle_bytes(h, begin, begin + pieces));
        for (unsigned i = 0; i < pieces; i++) {
            memcpy(&out->bundle[i][out->payloads], h->bundle[begin + i],
                   h->payloads * sizeof(payload));
            for (unsigned j = 0; run.fault == FAULT_ROOT_ALONE && j < h->payloads; j++) {
                out->bundle[i][out->payloads + j].encoded = own->bundle[begin + i][j].encoded;
            }
        }
        out->payloads += h->payloads;
    }
    out->range = (gw_range){out->bundle[0][0].range.first, 0};
    for (unsigned i = 0; i < pieces; i++) {
        out->range.count += out->bundle[i][0].range.count;
    }
    return 1;
}

/* The second collective: allgather, ranges or pieces one after the other; broadcast. */
static int spread(const group *x, holding *out)
{
    const int all = x->m->step.op == GW_OP_ALLGATHER;
    const uint32_t root = run.fault == FAULT_OTHER_ROOT ? x->g.size - 1 : 0;
    *out = *held_by(x, all ? 0 : root);
    send(rank_of(x, all ? 0 : root), x->p->rank, bytes_of(out));
    for (uint32_t q = 1; q < x->g.size; q++) {
        const holding *h = held_by(x, q);
        if (all && q >= x->m->parts) {
            if (h->kind != GW_OPERAND_NONE) {
                return wrong("rank %u: a member without a piece holds something", x->p->rank);
            }
            continue;
        }
        if (!all) {
            if (h->kind != GW_OPERAND_NONE) {
                return wrong("rank %u: not only the root holds something", x->p->rank);
            }
            continue;
        }
        if (h->kind != out->kind || h->range.first != out->range.first + out->range.count ||
            h->payloads != out->payloads) {
            return wrong("rank %u: pieces do not follow each other", x->p->rank);
        }
        send(rank_of(x, q), x->p->rank, bytes_of(h));
        out->range.count += h->range.count;
        memcpy(out->bundle[out->pieces], h->bundle, h->pieces * sizeof h->bundle[0]);
        out->pieces += h->pieces;
        for (unsigned a = 0; a + 1 < run.borders; a++) {
            if (inside(a, h->range)) {
                out->at[a] = h->at[a];
            }
        }
    }
    return out->kind != GW_OPERAND_NONE ? 1 : wrong("rank %u: nobody has it", x->p->rank);
}

/* ---- steps ---- */

static int is_as_compiled(uint32_t rank, const gw_operand *o, const holding *h)
{
    const int bundle = h->kind == GW_OPERAND_BUNDLE;
    if (o->kind != h->kind) {
        return wrong("rank %u holds kind %d, compiled is %d", rank, h->kind, o->kind);
    }
    if (h->kind == GW_OPERAND_NONE) {
        return o->bytes == 0 && o->range.count == 0 ? 1 : wrong("rank %u: bytes of nothing", rank);
    }
    if (o->range.first != h->range.first || o->range.count != h->range.count ||
        o->bytes != bytes_of(h)) {
        return wrong("rank %u: other range or bytes than compiled: %llu bytes, not %llu", rank,
                     (unsigned long long)bytes_of(h), (unsigned long long)o->bytes);
    }
    if (bundle && (o->outer * o->inner != h->pieces || o->payloads != h->payloads)) {
        return wrong("rank %u: %u pieces of %u payloads, compiled are %u of %u", rank, h->pieces,
                     h->payloads, o->outer * o->inner, o->payloads);
    }
    for (unsigned i = 0; bundle && i < h->pieces; i++) {
        const gw_range piece = gw_operand_piece(o, run.program[rank].grain, i);
        if (piece.first != h->bundle[i][0].range.first ||
            piece.count != h->bundle[i][0].range.count) {
            return wrong("rank %u: piece %u is another", rank, i);
        }
    }
    return 1;
}

static int take_step(uint32_t rank, unsigned i)
{
    const gw_program *p = &run.program[rank];
    const gw_move *m = &p->move[i];
    const holding *h = &run.now[rank];
    holding *out = &run.next[rank];
    if (!m->runs) {
        *out = *h;
        return h->kind == GW_OPERAND_NONE ? 1 : wrong("rank %u should run", rank);
    }
    if (m->step.op == GW_OP_ENCODE) {
        return encode(p, m, h, out);
    }
    if (m->step.op == GW_OP_DECODE) {
        return decode(p, h, out);
    }
    const group x = {m->group, p, m};
    if (rank_of(&x, m->group.member) != rank) {
        return wrong("rank %u is not in its group", rank);
    }
    if (m->part == GW_PART_SECOND) {
        return spread(&x, out);
    }
    return m->step.op == GW_OP_ALLREDUCE || m->step.op == GW_OP_REDUCE ||
                   m->step.op == GW_OP_REDUCE_SCATTER
               ? reduce(&x, out)
               : collect(&x, out);
}

static int take_steps(unsigned i)
{
    memset(run.sent, 0, sizeof run.sent);
    memset(run.received, 0, sizeof run.received);
    for (uint32_t r = 0; r < run.ranks; r++) {
        if (!is_as_compiled(r, &run.program[r].move[i].before, &run.now[r]) || !take_step(r, i)) {
            return 0;
        }
    }
    for (uint32_t r = 0; r < run.ranks; r++) {
        const gw_move *m = &run.program[r].move[i];
        run.now[r] = run.next[r];
        if (!is_as_compiled(r, &m->after, &run.now[r])) {
            return 0;
        }
        if (memcmp(m->sent, run.sent[r], sizeof m->sent) != 0 ||
            memcmp(m->received, run.received[r], sizeof m->received) != 0) {
            return wrong("rank %u: sent %llu+%llu, compiled are %llu+%llu; received %llu+%llu, "
                         "compiled are %llu+%llu",
                         r, (unsigned long long)run.sent[r][0], (unsigned long long)run.sent[r][1],
                         (unsigned long long)m->sent[0], (unsigned long long)m->sent[1],
                         (unsigned long long)run.received[r][0],
                         (unsigned long long)run.received[r][1], (unsigned long long)m->received[0],
                         (unsigned long long)m->received[1]);
        }
    }
    return 1;
}

static int is_the_sum(gw_range whole)
{
    for (uint32_t r = 0; r < run.ranks; r++) {
        const holding *h = &run.now[r];
        if (h->kind != GW_OPERAND_DENSE || h->range.first != whole.first ||
            h->range.count != whole.count) {
            return wrong("rank %u does not end with the tensor", r);
        }
        for (unsigned a = 0; a + 1 < run.borders; a++) {
            for (uint32_t q = 0; inside(a, whole) && q < run.ranks; q++) {
                if (h->at[a].times[q] != 1) {
                    return wrong("rank %u, element %llu: rank %u counts %u times", r,
                                 (unsigned long long)run.border[a], q, h->at[a].times[q]);
                }
            }
            if (inside(a, whole) && h->at[a].how != run.now[0].at[a].how) {
                return wrong("rank %u, element %llu: another order of operations than on rank 0", r,
                             (unsigned long long)run.border[a]);
            }
        }
    }
    return 1;
}

const char *symbolic_run(const gw_route *route, const gw_route_job *job, symbolic_fault fault)
{
    run.ranks = job->ranks;
    run.ranks_per_node = job->ranks_per_node;
    run.nodes = job->nodes;
    run.params = job->params;
    run.fault = fault;
    run.borders = run.n_encoded = 0;
    for (uint32_t r = 0; r < job->ranks; r++) {
        gw_route_job mine = *job;
        gw_why why = {""};
        mine.rank = r;
        if (gw_route_compile(route, &mine, &run.program[r], &why) != GW_OK) {
            (void)wrong("rank %u: %s", r, why.text);
            return run.wrong;
        }
    }
    int fine = find_atoms(job->first, job->elements);
    for (uint32_t r = 0; r < job->ranks; r++) {
        holding *h = &run.now[r];
        *h = (holding){.kind = GW_OPERAND_DENSE, .range = {job->first, job->elements}};
        for (unsigned a = 0; a < ATOMS; a++) {
            h->at[a].how = r + 1;
            h->at[a].times[r] = 1;
        }
    }
    for (unsigned i = 0; fine && i < route->n_steps; i++) {
        fine = take_steps(i);
    }
    return fine && is_the_sum((gw_range){job->first, job->elements}) ? NULL : run.wrong;
}
