/* How fast any plan could be. A track that has to do W from a moment on is busy until that moment + W, so the end is
 * no earlier than any weighted mean of such moments over the tracks; each tensor adds at least its cheapest
 * choice under these weights. The weights are moved as long as the bound rises. */
#include "plan/problem.h"

enum { UNIT = 64 }; /* weights are whole 64ths, so that no rounding can lift the bound */

static gw_ticks least_weighted(const gw_class *c, const gw_ticks weight[GW_TRACKS],
                               uint32_t workers)
{
    gw_ticks least = c->n == 0 ? 0 : GW_NEVER;
    for (uint32_t i = 0; i < c->n; i++) {
        gw_ticks sum = 0;
        for (unsigned track = 0; track < GW_TRACKS; track++) {
            const gw_ticks work = c->choice[i].chain.work[track];
            sum += weight[track] * (track == GW_TRACK_CPU ? work / workers : work);
        }
        least = sum < least ? sum : least;
    }
    return least;
}

/* The best bound, in 1/UNIT ticks, over all "from tensor k's gradient on". */
static gw_ticks bound_with(const gw_problem *x, const gw_ticks weight[GW_TRACKS], uint32_t workers)
{
    gw_ticks backward = 0, behind = 0, work = 0, best = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        backward += x->compute[i];
    }
    gw_ticks ready = backward;
    const gw_class *last = NULL;
    gw_ticks last_least = 0;
    for (uint32_t i = x->n; i-- > 0;) {
        if (x->class_of[i] != last) {
            last = x->class_of[i];
            last_least = least_weighted(last, weight, workers);
        }
        work += last_least;
        behind = backward - ready; /* of backward, once tensor i's gradient is there */
        const gw_ticks bound = UNIT * ready + work + weight[GW_TRACK_GPU] * behind;
        best = bound > best ? bound : best;
        ready -= x->compute[i];
    }
    return best;
}

/* Each tensor on its own: its gradient, then its fastest choice. */
static gw_ticks bound_alone(const gw_problem *x)
{
    gw_ticks ready = 0, best = 0;
    for (uint32_t i = 0; i < x->n; i++) {
        gw_ticks least = x->class_of[i]->n == 0 ? 0 : GW_NEVER;
        ready += x->compute[i];
        for (uint32_t k = 0; k < x->class_of[i]->n; k++) {
            const gw_ticks sum = gw_choice_alone(&x->class_of[i]->choice[k]);
            least = sum < least ? sum : least;
        }
        best = ready + least > best ? ready + least : best;
    }
    return best;
}

gw_ticks gw_lower_bound(const gw_problem *x, uint32_t workers)
{
    gw_ticks weight[GW_TRACKS] = {0};
    weight[GW_TRACK_NIC] = UNIT;
    gw_ticks best = bound_with(x, weight, workers);
    for (gw_ticks step = UNIT / 4; step > 0; step /= 2) {
        for (int moved = 1; moved;) {
            moved = 0;
            for (unsigned from = 0; from < GW_TRACKS; from++) {
                for (unsigned to = 0; to < GW_TRACKS; to++) {
                    if (from == to || weight[from] < step) {
                        continue;
                    }
                    weight[from] -= step;
                    weight[to] += step;
                    const gw_ticks bound = bound_with(x, weight, workers);
                    if (bound > best) {
                        best = bound;
                        moved = 1;
                    } else {
                        weight[from] += step;
                        weight[to] -= step;
                    }
                }
            }
        }
    }
    const gw_ticks alone = bound_alone(x);
    return best / UNIT > alone ? best / UNIT : alone;
}
