#include "plan/choices.h"

#include <stdlib.h>
#include <string.h>

void gw_front_begin(gw_front *front, const gw_timeline_rules *rules)
{
    front->rules = *rules;
    front->n = 0;
}

static void count_asks(gw_choice *c, int hops_count)
{
    const gw_chain *chain = &c->chain;
    uint32_t first = chain->n, behind = 0;
    memset(c->ask, 0, sizeof c->ask);
    c->ask[GW_ASK_HOPS] = hops_count ? c->hops : 0;
    for (uint32_t i = 0; i < chain->n; i++) {
        const gw_op_time *op = &chain->op[i];
        const int last = op->track == GW_TRACK_GPU && !op->urgent;
        c->ask[last ? GW_ASK_GPU_LAST : op->track] += op->ticks;
        if (op->track == GW_TRACK_INTRA || op->track == GW_TRACK_NIC) {
            first = i < first ? i : first;
            behind = i + 1;
        }
    }
    for (uint32_t i = 0; i < chain->n; i++) {
        c->ask[GW_ASK_HEAD] += i < first ? chain->op[i].ticks : 0;
        c->ask[GW_ASK_TAIL] += i >= behind ? chain->op[i].ticks : 0;
    }
}

int gw_asks_no_more(const gw_choice *a, const gw_choice *b)
{
    for (unsigned i = 0; i < GW_ASK_HOPS; i++) {
        if (a->ask[i] > b->ask[i]) {
            return 0;
        }
    }
    return 1;
}

static int dominates(const gw_choice *a, const gw_choice *b)
{
    return a->ask[GW_ASK_HOPS] <= b->ask[GW_ASK_HOPS] && gw_asks_no_more(a, b);
}

static int grow(gw_front *front)
{
    const uint32_t capacity = front->capacity == 0 ? 64 : 2 * front->capacity;
    gw_choice *choice = realloc(front->choice, capacity * sizeof *choice);
    if (choice != NULL) {
        front->choice = choice;
    }
    gw_op_time *ops = realloc(front->ops, (size_t)capacity * GW_TIMELINE_MAX_OPS * sizeof *ops);
    if (ops != NULL) {
        front->ops = ops;
    }
    if (choice == NULL || ops == NULL) {
        return 0;
    }
    front->capacity = capacity;
    return 1;
}

/* Those that the newcomer dominates go; the order of the others stays. */
static void drop_dominated(gw_front *front, const gw_choice *by)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < front->n; i++) {
        if (dominates(by, &front->choice[i])) {
            front->dropped++;
            continue;
        }
        if (kept != i) {
            front->choice[kept] = front->choice[i];
            memcpy(front->ops + (size_t)kept * GW_TIMELINE_MAX_OPS,
                   front->ops + (size_t)i * GW_TIMELINE_MAX_OPS,
                   front->choice[i].chain.n * sizeof *front->ops);
        }
        kept++;
    }
    front->n = kept;
}

int gw_front_offer(gw_front *front, const gw_choice *like, const gw_timed_op *ops, uint32_t n_ops,
                   int force)
{
    gw_op_time built[GW_TIMELINE_MAX_OPS];
    gw_choice c = *like;
    gw_chain_build(&front->rules, ops, n_ops, built, &c.chain);
    count_asks(&c, front->hops_count);
    front->offered += !force;
    for (uint32_t i = 0; i < front->n && !force; i++) {
        if (dominates(&front->choice[i], &c)) {
            front->dropped++;
            return 1;
        }
    }
    if (!force) {
        drop_dominated(front, &c);
    }
    if (front->n == front->capacity && !grow(front)) {
        return 0;
    }
    c.kept_for_offload = (uint8_t)(force != 0);
    memcpy(front->ops + (size_t)front->n * GW_TIMELINE_MAX_OPS, built, c.chain.n * sizeof *built);
    front->choice[front->n++] = c;
    return 1;
}

int gw_front_offer_again(gw_front *front, const gw_choice *c)
{
    gw_timed_op ops[GW_TIMELINE_MAX_OPS];
    for (uint32_t i = 0; i < c->chain.n; i++) {
        ops[i] = (gw_timed_op){(gw_track)c->chain.op[i].track, c->chain.op[i].ticks};
    }
    return gw_front_offer(front, c, ops, c->chain.n, c->kept_for_offload);
}

/* ---- some ---- */

enum { FEW = 12 };

static uint32_t best_under(const gw_class *c, const gw_ticks weight[GW_TRACKS])
{
    gw_ticks least = GW_NEVER;
    uint32_t best = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        gw_ticks sum = 0;
        for (unsigned track = 0; track < GW_TRACKS; track++) {
            sum += weight[track] * c->choice[i].chain.work[track];
        }
        if (sum < least) {
            least = sum;
            best = i;
        }
    }
    return best;
}

static void add_some(gw_class *c, uint32_t choice)
{
    for (uint32_t i = 0; i < c->n_some; i++) {
        if (c->some[i] == choice) {
            return;
        }
    }
    c->some[c->n_some++] = choice;
}

/* Links against GPU, CPU, and links inside the node against those between nodes. */
static void find_some(gw_class *c)
{
    static const gw_ticks WEIGHTS[] = {0, 1, 3, 10, 30, 100};
    enum { N = sizeof WEIGHTS / sizeof WEIGHTS[0] };
    for (uint32_t i = 0; i < c->n && c->n <= FEW; i++) {
        c->some[c->n_some++] = i;
    }
    for (unsigned i = 0; i < N * N * 2 && c->n > FEW; i++) {
        const gw_ticks weight[GW_TRACKS] = {[GW_TRACK_NIC] = 10,
                                            [GW_TRACK_INTRA] = i % 2 ? 10 : 3,
                                            [GW_TRACK_GPU] = WEIGHTS[i / 2 % N],
                                            [GW_TRACK_CPU] = WEIGHTS[i / 2 / N],
                                            [GW_TRACK_COPY] = 1};
        add_some(c, best_under(c, weight));
    }
}

int gw_class_free_coding(gw_front *front, const gw_class *c, gw_class *out)
{
    for (uint32_t i = 0; i < c->n; i++) {
        gw_timed_op ops[GW_TIMELINE_MAX_OPS];
        uint32_t n = 0;
        for (uint32_t k = 0; k < c->choice[i].chain.n; k++) {
            const gw_op_time *op = &c->choice[i].chain.op[k];
            if (op->track == GW_TRACK_INTRA || op->track == GW_TRACK_NIC) {
                ops[n++] = (gw_timed_op){(gw_track)op->track, op->ticks};
            }
        }
        if (!gw_front_offer(front, &c->choice[i], ops, n, 0)) {
            return 0;
        }
    }
    return gw_front_seal(front, c->elements, out);
}

/* ---- sealing ---- */

int gw_front_seal(const gw_front *front, uint64_t elements, gw_class *out)
{
    size_t ops = 0;
    for (uint32_t i = 0; i < front->n; i++) {
        ops += front->choice[i].chain.n;
    }
    *out = (gw_class){.elements = elements, .n = front->n};
    out->choice = calloc((size_t)front->n + 1, sizeof *out->choice);
    out->ops = malloc((ops + 1) * sizeof *out->ops);
    out->some = malloc((front->n + FEW) * sizeof *out->some);
    if (out->choice == NULL || out->ops == NULL || out->some == NULL) {
        gw_class_free(out);
        return 0;
    }
    gw_op_time *at = out->ops;
    for (uint32_t i = 0; i < front->n; i++) {
        gw_choice *c = &out->choice[i];
        *c = front->choice[i];
        memcpy(at, front->ops + (size_t)i * GW_TIMELINE_MAX_OPS, c->chain.n * sizeof *at);
        c->chain.op = at;
        at += c->chain.n;
    }
    find_some(out);
    return 1;
}

void gw_front_free(gw_front *front)
{
    free(front->choice);
    free(front->ops);
    *front = (gw_front){0};
}

void gw_class_free(gw_class *c)
{
    free(c->choice);
    free(c->ops);
    free(c->some);
    *c = (gw_class){0};
}

gw_ticks gw_choice_alone(const gw_choice *c)
{
    gw_ticks sum = 0;
    for (unsigned track = 0; track < GW_TRACKS; track++) {
        sum += c->chain.work[track];
    }
    return sum;
}

uint32_t gw_class_cpu_twin(const gw_class *c, uint32_t choice)
{
    for (uint32_t i = 0; i < c->n; i++) {
        if (c->choice[i].variety == c->choice[choice].variety &&
            c->choice[i].coding == GW_CODING_CPU) {
            return i;
        }
    }
    return UINT32_MAX;
}
