/* The errors of topk at many densities. A histogram of the magnitudes by their first bits holds in each cell how many
 * there are and what they would cost, lost or kept. The cell in which a density's k-th magnitude lies is split
 * by the next bits in a second reading, and that one by the last in a third, where all of a cell are equal. What
 * is lost is then summed upwards from the smallest: nothing cancels.
 *
 * Large tensors have a finer first digit: few of their numbers are then in cells that are split, and seldom two
 * neighbours in the same cell, where one addition would wait for the other. */
#include "codec/values/values.h"
#include "errors/errors.h"

#include <string.h>

enum { DIGITS = 3, LARGE = 1 << 20, MOST_CELLS = 1 << 16 };

typedef struct digits {
    int shift[DIGITS], width[DIGITS];
} digits;
static const digits coarse = {{20, 9, 0}, {11, 11, 9}}, fine = {{15, 7, 0}, {16, 8, 7}};

typedef struct cell {
    double lost, kept; /* sums of squared errors of its numbers: sent as nothing; sent */
    uint32_t count;
    uint32_t split; /* 1 + the group that splits this cell by the next digit; 0 for none */
} cell;

/* Where the k-th magnitude of one density lies. */
typedef struct target {
    uint64_t
        rank; /* counted from the largest of its group; at the end, how many of its equals are sent */
    uint32_t group;    /* of the digit being looked at */
    double lost, kept; /* by all that are already known to be smaller, larger */
} target;

/* Groups of cells, one a value of the digit: one group for the first digit, then at most one a density. */
typedef struct table {
    const digits *by;
    cell *groups[DIGITS];
    uint32_t *marks; /* a bit for each cell of the first digit: is it split? */
    target *targets;
    size_t n;
    int natural;
    uint32_t top; /* of natural values */
} table;

static void cut(gw_arena *arena, size_t n, gw_source *source, table *t)
{
    gw_errors_cut(arena, source);
    t->n = n;
    t->targets = gw_arena_take(arena, n, sizeof(target));
    t->marks = gw_arena_take(arena, n != 0 ? MOST_CELLS / 32 : 0, sizeof *t->marks);
    for (int digit = 0; digit < DIGITS && n != 0; digit++) { /* room for either kind of digits */
        const size_t groups = digit == 0 ? 1 : n;
        const int c = coarse.width[digit], f = fine.width[digit];
        t->groups[digit] =
            gw_arena_take(arena, groups, ((size_t)1 << (c > f ? c : f)) * sizeof(cell));
    }
}

gw_status gw_errors_workspace(size_t densities, size_t *bytes)
{
    table unused = {0};
    gw_arena arena = gw_arena_measuring();
    cut(&arena, densities, NULL, &unused);
    if (bytes == NULL || arena.failed) {
        return bytes == NULL ? GW_ERR_ARG : GW_ERR_RANGE;
    }
    *bytes = gw_arena_need(&arena);
    return GW_OK;
}

/* The cell of `a` in the last digit that is split so far, or NULL where its cell was not split. */
GW_INLINE cell *cell_of(const table *t, uint32_t a, int digit)
{
    const digits *by = t->by;
    cell *group = t->groups[0];
    for (int d = 0; d < digit; d++) {
        const uint32_t split = group[a >> by->shift[d] & ((1u << by->width[d]) - 1)].split;
        if (split == 0) {
            return NULL;
        }
        group = t->groups[d + 1] + ((size_t)(split - 1) << by->width[d + 1]);
    }
    return &group[a >> by->shift[digit] & ((1u << by->width[digit]) - 1)];
}

GW_INLINE void add_block(const table *t, const float *x, size_t n, int digit, int natural)
{
    const int shift = t->by->shift[0];
    for (size_t i = 0; i < n; i++) {
        const uint32_t a = gw_bits(x[i]) & GW_ABS_MASK, first = a >> shift;
        if (digit > 0 && (t->marks[first / 32] >> first % 32 & 1) == 0) {
            continue; /* nearly all */
        }
        cell *c = cell_of(t, a, digit);
        if (c == NULL) {
            continue;
        }
        const double size = (double)gw_float(a);
        c->count++;
        c->lost += size * size;
        if (natural) {
            c->kept += gw_natural_expected(a, t->top);
        }
    }
}

static void add(const table *t, const float *x, size_t n, int digit)
{
    switch (2 * digit + t->natural) { /* each compiled by itself */
    case 0:
        add_block(t, x, n, 0, 0);
        break;
    case 1:
        add_block(t, x, n, 0, 1);
        break;
    case 2:
        add_block(t, x, n, 1, 0);
        break;
    case 3:
        add_block(t, x, n, 1, 1);
        break;
    case 4:
        add_block(t, x, n, 2, 0);
        break;
    default:
        add_block(t, x, n, 2, 1);
    }
}

/* Finds the target's cell by this digit, and has it split by the next one. */
static void descend(table *t, target *goal, int digit, uint32_t *splits)
{
    const int width = t->by->width[digit];
    cell *group = t->groups[digit] + ((size_t)goal->group << width);
    uint32_t d = (1u << width) - 1;
    for (; group[d].count < goal->rank; d--) {
        goal->rank -= group[d].count;
        goal->kept += group[d].kept;
    }
    double smaller = 0;
    for (uint32_t below = 0; below < d; below++) {
        smaller += group[below].lost;
    }
    goal->lost += smaller;
    if (digit == 0) {
        t->marks[d / 32] |= 1u << d % 32;
    }
    if (digit + 1 < DIGITS) {
        if (group[d].split == 0) {
            group[d].split = ++*splits;
        }
        goal->group = group[d].split - 1;
    } else { /* all of this cell are equal */
        const double one = 1.0 / (double)group[d].count;
        goal->kept += group[d].kept * one * (double)goal->rank;
        goal->lost += group[d].lost * one * (double)(group[d].count - goal->rank);
    }
}

static gw_status fill(table *t, gw_source *source, gw_why *why)
{
    uint32_t groups = 1;
    t->by = source->count < LARGE ? &coarse : &fine;
    memset(t->marks, 0, MOST_CELLS / 8);
    for (int digit = 0; digit < DIGITS; digit++) {
        size_t n;
        memset(t->groups[digit], 0, ((size_t)groups << t->by->width[digit]) * sizeof(cell));
        for (uint64_t at = 0; at < source->count; at += n) {
            const float *x = gw_errors_block(source, at, GW_SOURCE_BLOCK, &n);
            if (digit == 0 && source->convert->largest(x, n) >= GW_INF_BITS) {
                return gw_errors_refuse(x, n, at, why);
            }
            add(t, x, n, digit);
        }
        groups = 0;
        for (size_t i = 0; i < t->n; i++) {
            descend(t, &t->targets[i], digit, &groups);
        }
    }
    return GW_OK;
}

static gw_status check(const gw_params *params, const gw_tensor *in, const double *densities,
                       size_t n, const double *squared, gw_why *why)
{
    const gw_param_info *density = &gw_values_params[GW_VALUES_DENSITY];
    const gw_status status = gw_params_check(params, why);
    if (status != GW_OK) {
        return status;
    }
    if (strcmp(params->codec->name, "topk") != 0) {
        return GW_FAIL(why, GW_ERR_UNSUPPORTED, "errors: %s has no table of densities",
                       params->codec->name);
    }
    if ((densities == NULL || squared == NULL) && n != 0) {
        return GW_FAIL(why, GW_ERR_ARG, "errors: no densities, or no table");
    }
    for (size_t i = 0; i < n; i++) {
        if (!(densities[i] >= density->min && densities[i] <= density->max)) {
            return GW_FAIL(why, GW_ERR_RANGE, "errors: density %g is not within %g and %g",
                           densities[i], density->min, density->max);
        }
    }
    if (in != NULL && in->count > UINT32_MAX) {
        return GW_FAIL(why, GW_ERR_UNSUPPORTED, "errors: topk has indices of 32 bits");
    }
    return GW_OK;
}

gw_status gw_errors_topk(const gw_params *params, const gw_exec *exec, const gw_tensor *in,
                         const float *residual, const double *densities, size_t n, double *squared,
                         gw_why *why)
{
    gw_source source;
    gw_isa isa;
    gw_status status = check(params, in, densities, n, squared, why);
    status = status == GW_OK ? gw_errors_open(exec, in, residual, &source, &isa, why) : status;
    if (status != GW_OK) {
        return status;
    }
    table t = {.natural = gw_param(params, GW_VALUES_KIND) == GW_VALUES_NATURAL,
               .top = gw_natural_top(in->dtype == GW_F16)};
    gw_arena arena = gw_arena_over(exec != NULL ? exec->workspace : (gw_workspace){0});
    cut(&arena, n, &source, &t);
    if (arena.failed) {
        return GW_FAIL(why, GW_ERR_WORKSPACE, "errors: the workspace is too small");
    }
    for (size_t i = 0; i < n; i++) {
        t.targets[i] = (target){.rank = gw_values_kept_at(densities[i], in->count)};
    }
    const uint32_t caller = gw_fp_enter();
    status = n != 0 && in->count != 0 ? fill(&t, &source, why) : GW_OK;
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        squared[i] = t.targets[i].lost + t.targets[i].kept;
    }
    gw_fp_leave(caller);
    return status;
}
