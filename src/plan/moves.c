#include "plan/moves.h"

int gw_is_done(const gw_search *s)
{
    return s->line.events >= s->event_limit || s->line.makespan <= s->goal;
}

int gw_is_settled(const gw_search *s, uint32_t tensor)
{
    const gw_class *c = s->class_of[tensor];
    return c->n < 2 || (!s->keep_before_bubbles && tensor < s->line.bubble &&
                        c->choice[s->pick[tensor]].coding == GW_CODING_NONE);
}

/* No more than this can be gained by taking `to` for `from`. */
static gw_ticks most_gain(const gw_choice *from, const gw_choice *to)
{
    gw_ticks gain = 0;
    for (unsigned track = 0; track < GW_TRACKS; track++) {
        const gw_ticks less = from->chain.work[track] - to->chain.work[track];
        gain += less > 0 ? less : 0;
    }
    return gain;
}

static void take(gw_search *s, uint32_t tensor, uint32_t choice)
{
    s->pick[tensor] = choice;
    s->line.chain[tensor] = &s->class_of[tensor]->choice[choice].chain;
}

static int allowed(const gw_choice *c, gw_coding device)
{
    return device == GW_CODING_MIXED || c->coding == GW_CODING_NONE || c->coding == (uint8_t)device;
}

/* Tries one choice; keeps the best in *chosen. */
static void try_one(gw_search *s, uint32_t tensor, uint32_t i, gw_ticks *best, uint32_t *chosen)
{
    const gw_class *c = s->class_of[tensor];
    if (i == s->pick[tensor]) {
        return;
    }
    if (most_gain(&c->choice[s->pick[tensor]], &c->choice[i]) <= s->least_gain) {
        s->skipped++;
        return;
    }
    const gw_chain *chain = &c->choice[i].chain;
    const gw_ticks makespan = gw_timeline_try(&s->line, &tensor, &chain, 1, *best);
    if (makespan < *best) {
        *best = makespan;
        *chosen = i;
    }
}

static int settle(gw_search *s, uint32_t tensor, uint32_t chosen)
{
    if (chosen == s->pick[tensor]) {
        return 0;
    }
    take(s, tensor, chosen);
    gw_timeline_commit(&s->line, tensor);
    return 1;
}

int gw_move_one(gw_search *s, uint32_t tensor, gw_coding device)
{
    const gw_class *c = s->class_of[tensor];
    gw_ticks best = s->line.makespan;
    uint32_t chosen = s->pick[tensor];
    for (uint32_t i = 0; i < c->n; i++) {
        if (allowed(&c->choice[i], device)) {
            try_one(s, tensor, i, &best, &chosen);
        }
    }
    return settle(s, tensor, chosen);
}

/* The same among the few that are best under some weighting. */
static int move_one_of_some(gw_search *s, uint32_t tensor)
{
    const gw_class *c = s->class_of[tensor];
    gw_ticks best = s->line.makespan;
    uint32_t chosen = s->pick[tensor];
    for (uint32_t k = 0; k < c->n_some; k++) {
        try_one(s, tensor, c->some[k], &best, &chosen);
    }
    return settle(s, tensor, chosen);
}

/* The best pair of choices, out of some, of two tensors, a before b. */
static int move_two(gw_search *s, uint32_t a, uint32_t b)
{
    const gw_class *ca = s->class_of[a], *cb = s->class_of[b];
    const uint32_t both[2] = {a, b};
    gw_ticks best = s->line.makespan;
    uint32_t x = s->pick[a], y = s->pick[b];
    for (uint32_t k = 0; k < ca->n_some * cb->n_some; k++) {
        const uint32_t i = ca->some[k / cb->n_some], j = cb->some[k % cb->n_some];
        if (i != s->pick[a] && j != s->pick[b]) {
            const gw_chain *chains[2] = {&ca->choice[i].chain, &cb->choice[j].chain};
            if (most_gain(&ca->choice[s->pick[a]], &ca->choice[i]) +
                    most_gain(&cb->choice[s->pick[b]], &cb->choice[j]) <=
                s->least_gain) {
                s->skipped++;
                continue;
            }
            const gw_ticks makespan = gw_timeline_try(&s->line, both, chains, 2, best);
            if (makespan < best) {
                best = makespan;
                x = i;
                y = j;
            }
        }
    }
    if (x == s->pick[a]) {
        return 0;
    }
    take(s, a, x);
    take(s, b, y);
    gw_timeline_commit(&s->line, a);
    return 1;
}

int gw_move_singles(gw_search *s, int all)
{
    int any = 0, moved = 1;
    while (moved && !gw_is_done(s)) {
        moved = 0;
        for (uint32_t k = 0; k < s->line.n && !gw_is_done(s); k++) {
            const uint32_t tensor = s->order[k];
            if (!gw_is_settled(s, tensor)) {
                moved |=
                    all ? gw_move_one(s, tensor, GW_CODING_MIXED) : move_one_of_some(s, tensor);
            }
        }
        any |= moved;
    }
    return any;
}

/* Neighbours first: pairs at distance 1, then 2, and on, as long as events last. */
static int move_pairs(gw_search *s)
{
    int any = 0;
    for (uint32_t distance = 1; distance < s->line.n; distance++) {
        for (uint32_t a = 0; a + distance < s->line.n; a++) {
            if (gw_is_done(s)) {
                return any;
            }
            if (!gw_is_settled(s, a) && !gw_is_settled(s, a + distance)) {
                any |= move_two(s, a, a + distance);
            }
        }
    }
    return any;
}

void gw_search_local(gw_search *s)
{
    do {
        (void)gw_move_singles(s, 0);
        (void)gw_move_singles(s, 1);
    } while (!gw_is_done(s) && move_pairs(s));
}
