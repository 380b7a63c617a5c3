/* How fast any plan within the budget could be. As bounds.c has it, the end is no earlier than a weighted mean over
 * the tracks of "the moment gradient k is there + the work from then on". Errors have a price: whoever keeps within
 * the budget has price · (Σ errors − budget) ≤ 0, so that adding it makes no bound too high, and each bucket can
 * take its cheapest option by itself. Weights and price are moved as long as the bound rises. */
#include "plan/joint_search.h"

#include <math.h>

enum { UNIT = 64 };

typedef struct bounder {
    const gw_joint_problem *p;
    double workers;
} bounder;

static double least_weighted(const bounder *b, const gw_menu *m, const gw_dual *d)
{
    double least = m->n == 0 ? 0 : (double)INFINITY;
    double weight[GW_TRACKS];
    for (unsigned track = 0; track < GW_TRACKS; track++) {
        weight[track] = (double)d->weight[track] / (track == GW_TRACK_CPU ? b->workers : 1);
    }
    for (uint32_t i = 0; i < m->n; i++) {
        double sum = d->price > 0 ? UNIT * d->price * m->item[i].error : 0;
        for (unsigned track = 0; track < GW_TRACKS; track++) {
            sum += weight[track] * (double)m->item[i].of->chain.work[track];
        }
        least = sum < least ? sum : least;
    }
    return least;
}

/* The best over all "from bucket k's gradient on", in ticks, rounding taken off; d->from is that k. */
static double bound_with(const bounder *b, gw_dual *d)
{
    const gw_problem *x = &b->p->x;
    const double scale = d->price > 0 ? UNIT * d->price : 0;
    const double spent = d->price > 0 ? scale * b->p->table->budget : 0;
    double ready = 0, before = 0, work = 0, best = -1, backward;
    for (uint32_t i = 0; i < x->n; i++) {
        ready += (double)x->compute[i];
        before += scale * b->p->menu[i].least;
    }
    backward = ready;
    for (uint32_t i = x->n; i-- > 0;) {
        before -= scale * b->p->menu[i].least;
        work += least_weighted(b, &b->p->menu[i], d);
        const double sum =
            UNIT * ready + work + (double)d->weight[GW_TRACK_GPU] * (backward - ready);
        const double bound = sum + before - spent - 1e-9 * (sum + before + spent);
        if (bound > best) {
            best = bound;
            d->from = i;
        }
        ready -= (double)x->compute[i];
    }
    return best / UNIT;
}

/* Each bucket on its own: its gradient, then the fastest option that leaves the others their least error. */
static gw_ticks bound_alone(const gw_joint_problem *p)
{
    double least = 0;
    gw_ticks ready = 0, best = 0;
    for (uint32_t b = 0; b < p->x.buckets; b++) {
        least += p->menu[b].least;
    }
    for (uint32_t b = 0; b < p->x.n; b++) {
        const gw_menu *m = &p->menu[b];
        gw_ticks fastest = m->n == 0 ? 0 : GW_NEVER;
        const double room = (p->table->budget - (least - m->least)) + 1e-9 * (least + m->least);
        ready += p->x.compute[b];
        for (uint32_t k = 0; k < m->n; k++) {
            const gw_ticks alone = gw_choice_alone(m->item[k].of);
            if ((k == 0 || m->item[k].error <= room) && alone < fastest) {
                fastest = alone;
            }
        }
        best = ready + fastest > best ? ready + fastest : best;
    }
    return best;
}

/* Takes the change if the bound rises. */
static int improve(const bounder *b, gw_dual *d, const gw_dual *changed, double *best)
{
    gw_dual next = *changed;
    const double bound = bound_with(b, &next);
    if (bound > *best) {
        *best = bound;
        *d = next;
        return 1;
    }
    return 0;
}

static void move_weights(const bounder *b, gw_dual *d, double *best)
{
    for (gw_ticks step = UNIT / 4; step > 0; step /= 2) {
        for (int moved = 1; moved;) {
            moved = 0;
            for (unsigned k = 0; k < GW_TRACKS * GW_TRACKS; k++) {
                gw_dual next = *d;
                if (k / GW_TRACKS != k % GW_TRACKS && next.weight[k / GW_TRACKS] >= step) {
                    next.weight[k / GW_TRACKS] -= step;
                    next.weight[k % GW_TRACKS] += step;
                    moved |= improve(b, d, &next, best);
                }
            }
        }
    }
}

static void move_price(const bounder *b, gw_dual *d, double *best)
{
    double factor = 64;
    for (int k = 0; k < 16; k++, factor = sqrt(factor)) { /* down to 1.0001 */
        for (int moved = 1; moved;) {
            gw_dual up = *d, down = *d;
            up.price *= factor;
            down.price /= factor;
            moved = improve(b, d, &up, best) || improve(b, d, &down, best);
        }
    }
}

void gw_joint_bound(const gw_joint_problem *p, uint32_t cpu_workers, gw_dual *out)
{
    const bounder b = {p, cpu_workers};
    const double budget = p->table->budget;
    *out = (gw_dual){.weight = {[GW_TRACK_NIC] = UNIT}};
    double best = bound_with(&b, out);
    move_weights(&b, out, &best);
    for (int round = 0; round < 2 && budget > 0 && isfinite(budget); round++) {
        if (out->price == 0) { /* as dear as the whole step, then cheaper */
            gw_dual priced = *out;
            priced.price = best / budget;
            for (int k = 0; k < 40 && !improve(&b, out, &priced, &best); k++) {
                priced.price *= 0.5;
            }
        }
        if (out->price > 0) {
            move_price(&b, out, &best);
            move_weights(&b, out, &best);
        }
    }
    const gw_ticks alone = bound_alone(p), weighted = (gw_ticks)floor(best > 0 ? best : 0);
    out->bound = weighted > alone ? weighted : alone;
}
