#include "plan/instances.h"

#include <stdlib.h>
#include <string.h>

static void must(int holds)
{
    if (!holds) {
        abort();
    }
}

static uint64_t next_word(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static gw_ticks draw(uint64_t *state, gw_ticks low, gw_ticks high)
{
    return low + (gw_ticks)(next_word(state) % (uint64_t)(high - low + 1));
}

static void add(instance *x, uint32_t tensor, gw_coding coding, uint32_t variety,
                const gw_timed_op *ops, uint32_t n_ops)
{
    const uint32_t k = x->n_all[tensor]++;
    const gw_choice like = {.coding = (uint8_t)coding, .variety = variety};
    must(k < INSTANCE_CHOICES);
    gw_chain_build(&x->rules, ops, n_ops, x->ops[tensor][k], &x->all[tensor][k]);
    must(gw_front_offer(&x->front, &like, ops, n_ops, 0));
}

/* One tensor: sent as it is, or coded once or twice, here or there. Sizes set the times of all of it. */
static void draw_tensor(instance *x, uint32_t i, uint64_t *state)
{
    const gw_track near = draw(state, 0, 1) ? GW_TRACK_INTRA : GW_TRACK_NIC;
    const gw_ticks dense = draw(state, 4, 40);
    const gw_ticks sent = 1 + dense * draw(state, 1, 5) / 10, shared = 1 + sent / 2;
    const gw_ticks ge = draw(state, 1, 8), gd = draw(state, 1, 5);
    const gw_ticks ce = ge + draw(state, 0, 12), cd = gd + draw(state, 0, 8);
    const gw_ticks inside = draw(state, 1, 6);
    const gw_track G = GW_TRACK_GPU, C = GW_TRACK_CPU, X = GW_TRACK_NIC;
    gw_front_begin(&x->front, &x->rules);
    add(x, i, GW_CODING_NONE, 0, (gw_timed_op[]){{X, dense}}, 1);
    add(x, i, GW_CODING_NONE, 1,
        (gw_timed_op[]){{near, inside}, {X, dense - dense / 4}, {near, inside}}, 3);
    add(x, i, GW_CODING_GPU, 2, (gw_timed_op[]){{G, ge}, {X, sent}, {G, gd}}, 3);
    add(x, i, GW_CODING_CPU, 2, (gw_timed_op[]){{C, ce}, {X, sent}, {C, cd}}, 3);
    add(x, i, GW_CODING_MIXED, 2, (gw_timed_op[]){{G, ge}, {X, sent}, {C, cd}}, 3);
    add(x, i, GW_CODING_MIXED, 2, (gw_timed_op[]){{C, ce}, {X, sent}, {G, gd}}, 3);
    add(x, i, GW_CODING_GPU, 3,
        (gw_timed_op[]){
            {G, ge}, {X, shared}, {G, gd}, {G, 1 + ge / 2}, {X, shared / 2}, {G, 1 + gd / 2}},
        6);
    add(x, i, GW_CODING_CPU, 4,
        (gw_timed_op[]){
            {near, inside}, {C, 1 + ce / 2}, {X, shared}, {C, 1 + cd / 2}, {near, inside}},
        5);
    must(gw_front_seal(&x->front, (uint64_t)dense, &x->classes[i]));
}

void instance_draw(instance *x, uint64_t seed)
{
    uint64_t state = seed;
    memset(x, 0, sizeof *x);
    x->rules = (gw_timeline_rules){.cpu_workers = (uint32_t)draw(&state, 1, 2),
                                   .one_channel = draw(&state, 0, 1) == 0};
    x->n = (uint32_t)draw(&state, 3, INSTANCE_TENSORS);
    for (uint32_t i = 0; i < x->n; i++) {
        x->compute[i] = draw(&state, 0, 25);
        draw_tensor(x, i, &state);
        x->class_of[i] = &x->classes[i];
    }
}

void instance_free(instance *x)
{
    for (uint32_t i = 0; i < x->n; i++) {
        gw_class_free(&x->classes[i]);
    }
    gw_front_free(&x->front);
}

gw_ticks instance_enumerate(const instance *x, uint64_t *tried)
{
    gw_timeline line;
    uint32_t at[INSTANCE_TENSORS] = {0};
    gw_ticks best = GW_NEVER;
    uint32_t changed = 0;
    const gw_status made =
        gw_timeline_create(&line, &x->rules, x->compute, x->n, GW_TIMELINE_MAX_OPS, NULL);
    must(made == GW_OK);
    for (uint32_t i = 0; i < x->n; i++) {
        line.chain[i] = &x->all[i][0];
    }
    for (*tried = 0;; ++*tried) {
        gw_timeline_commit(&line, changed);
        best = line.makespan < best ? line.makespan : best;
        changed = x->n; /* the last tensor counts fastest, so that little is replayed */
        while (changed > 0 && ++at[changed - 1] == x->n_all[changed - 1]) {
            at[--changed] = 0;
            line.chain[changed] = &x->all[changed][0];
        }
        if (changed == 0) {
            break;
        }
        changed--;
        line.chain[changed] = &x->all[changed][at[changed]];
    }
    ++*tried;
    gw_timeline_destroy(&line);
    return best;
}
