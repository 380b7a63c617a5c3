/* The fast path. With a price on error every layer chooses for itself, on its convex hull; the lowest price at which
 * all keep to the budget together is found by halving; what is then left of the budget is spent step by step. The
 * price also bounds from below what any assignment can cost (Lagrange's bound, the linear relaxation's value). */
#include "adapt/solver.h"

#include <math.h>
#include <string.h>

/* Sets the trial to what the units choose at this price of bytes per error; returns the sum of errors. */
static double choose_at(gw_solver *s, double price)
{
    double error = 0;
    for (size_t i = 0; i < s->n_units; i++) {
        const gw_unit *u = &s->units[i];
        uint32_t low = 0,
                 high = u->n_hull - 1; /* slopes ascend: the last that is worth its price */
        while (low < high) {
            const uint32_t middle = (low + high + 1) / 2;
            if (u->slopes[middle] <= price) {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        s->trial[i] = u->hull[low];
        error += u->points[s->trial[i]].error;
    }
    return error;
}

static double from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* min Σ (bytes + price · error) − price · budget, less what rounding may have added. */
static uint64_t bound_at(const gw_solver *s, double price)
{
    double bytes = 0, error = 0;
    for (size_t i = 0; i < s->n_units; i++) {
        bytes += (double)s->units[i].points[s->trial[i]].bytes;
        error += s->units[i].points[s->trial[i]].error;
    }
    const double n = (double)s->n_units + 4;
    const double bound = bytes + price * error - price * s->budget -
                         n * 0x1p-52 * (bytes + price * (error + s->budget));
    return bound > 0 && bound < 0x1p63 ? (uint64_t)ceil(bound) : 0;
}

void gw_hull_solve(gw_solver *s)
{
    /* Positive doubles are ordered as their bits are. Price 0: the fewest bytes, beyond the budget; infinite:
     * the least error, within it. */
    uint64_t low = 0, high = 0x7FF0000000000000u;
    while (high - low > 1) {
        const uint64_t middle = low + (high - low) / 2;
        if (choose_at(s, from_bits(middle)) <= s->budget) {
            high = middle;
        } else {
            low = middle;
        }
    }
    s->price = from_bits(high < 0x7FF0000000000000u ? high : low); /* finite */
    (void)choose_at(s, s->price);
    const uint64_t bound = bound_at(s, s->price);
    s->lower_bound = bound > s->lower_bound ? bound : s->lower_bound;
    (void)choose_at(s, from_bits(high));
    gw_hull_fill(s);
}

/* The fewest bytes that unit i can have with at most this error. */
static uint32_t cheapest_within(const gw_unit *u, uint32_t current, double error)
{
    uint32_t low = 0, high = current; /* errors descend */
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (u->points[middle].error <= error) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low;
}

void gw_hull_fill(gw_solver *s)
{
    double slack = s->budget - gw_solver_sums(s, NULL, NULL);
    while (slack >= 0) {
        uint64_t most = 0;
        size_t unit = 0;
        uint32_t point = 0;
        for (size_t i = 0; i < s->n_units; i++) {
            const gw_unit *u = &s->units[i];
            const gw_point *now = &u->points[s->trial[i]];
            const uint32_t to = cheapest_within(u, s->trial[i], now->error + slack);
            if (now->bytes - u->points[to].bytes > most) {
                most = now->bytes - u->points[to].bytes;
                unit = i;
                point = to;
            }
        }
        if (most == 0) {
            break;
        }
        const uint32_t before = s->trial[unit];
        s->trial[unit] = point;
        slack = s->budget - gw_solver_sums(s, NULL, NULL);
        if (slack < 0) { /* by rounding */
            s->trial[unit] = before;
        }
    }
    (void)gw_solver_offer(s);
}
