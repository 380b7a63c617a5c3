/* What each level would lose: the tables of errors.h, one for each run of levels of the same family. */
#include "adapt/levels.h"

#include "base/arena.h"
#include "base/why.h"

#include <gradwire/errors.h>

#include <math.h>

/* The parameter that tells levels of one family apart. */
static const char *level_name(gw_level_kind kind)
{
    return kind == GW_LEVEL_BITS      ? "bits"
           : kind == GW_LEVEL_DENSITY ? "density"
           : kind == GW_LEVEL_RANK    ? "rank"
                                      : "";
}

/* How many levels from the first on one table serves. */
static size_t run_length(const gw_params *levels, size_t n)
{
    const gw_params *first = &levels[0];
    const size_t params = gw_codec_param_count(first->codec);
    const size_t level = gw_level_param(first, level_name(gw_level_kind_of(first)));
    size_t length = 1;
    for (; length < n && levels[length].codec == first->codec; length++) {
        for (size_t i = 0; i < params; i++) {
            if (i != level && levels[length].value[i] != first->value[i]) {
                return length;
            }
        }
    }
    return length;
}

static size_t top_rank(const gw_params *levels, size_t n, uint64_t elements)
{
    const gw_level_matrix shape = gw_level_matrix_of(&levels[0], elements);
    uint64_t top = 0;
    for (size_t i = 0; i < n; i++) {
        const uint64_t rank = gw_level_matrix_of(&levels[i], elements).rank;
        top = rank > top ? rank : top;
    }
    const uint64_t own = shape.rows < shape.cols ? shape.rows : shape.cols;
    return (size_t)(top < own ? top : own);
}

/* Pieces of the workspace: densities or a table of ranks, and what errors.h wants. */
typedef struct pieces {
    double *numbers;
    gw_workspace tables;
} pieces;

static gw_status cut(gw_arena *arena, const gw_params *levels, size_t n, uint64_t elements,
                     pieces *out)
{
    const gw_level_kind kind = gw_level_kind_of(&levels[0]);
    size_t numbers = kind == GW_LEVEL_DENSITY ? n : 0;
    gw_status status = gw_errors_workspace(kind == GW_LEVEL_DENSITY ? n : 0, &out->tables.size);
    if (kind == GW_LEVEL_RANK) {
        const gw_level_matrix shape = gw_level_matrix_of(&levels[0], elements);
        const size_t top = top_rank(levels, n, elements);
        numbers = top + 1;
        status = gw_errors_rank_workspace((size_t)shape.rows, (size_t)shape.cols, top,
                                          &out->tables.size);
    }
    out->numbers = gw_arena_take(arena, numbers, sizeof(double));
    out->tables.data = gw_arena_take(arena, out->tables.size, 1);
    return status;
}

static gw_status check(const gw_params *levels, size_t n, uint64_t elements, gw_why *why)
{
    if (levels == NULL && n != 0) {
        return GW_FAIL(why, GW_ERR_ARG, "adapt: no levels");
    }
    for (size_t i = 0; i < n; i++) {
        const gw_status status = gw_params_check(&levels[i], why);
        if (status != GW_OK) {
            return status;
        }
        const gw_level_kind kind = gw_level_kind_of(&levels[i]);
        if (kind == GW_LEVEL_NONE) {
            return GW_FAIL(why, GW_ERR_UNSUPPORTED, "adapt: '%s' has no table of errors",
                           gw_codec_name(levels[i].codec));
        }
        const gw_level_matrix m =
            kind == GW_LEVEL_RANK ? gw_level_matrix_of(&levels[i], elements) : (gw_level_matrix){0};
        if (m.rows * m.cols != elements && kind == GW_LEVEL_RANK) {
            return GW_FAIL(why, GW_ERR_ARG, "adapt: lowrank without the columns of the tensor");
        }
    }
    return GW_OK;
}

gw_status gw_adapt_measure_workspace(const gw_params *levels, size_t n, uint64_t elements,
                                     size_t *bytes)
{
    gw_status status = check(levels, n, elements, NULL);
    size_t most = 0;
    if (status == GW_OK && bytes == NULL) {
        return GW_ERR_ARG;
    }
    for (size_t i = 0, length; i < n && status == GW_OK; i += length) {
        pieces unused;
        gw_arena arena = gw_arena_measuring();
        length = run_length(levels + i, n - i);
        status = cut(&arena, levels + i, length, elements, &unused);
        status = status == GW_OK && arena.failed ? GW_ERR_RANGE : status;
        most = gw_arena_need(&arena) > most ? gw_arena_need(&arena) : most;
    }
    if (status == GW_OK) {
        size_t norm = 0; /* of gw_errors_norm */
        status = gw_errors_workspace(0, &norm);
        *bytes = most > norm ? most : norm;
    }
    return status;
}

/* What stays the same from run to run. */
typedef struct view {
    const gw_exec *exec;
    const gw_tensor *in;
    const float *residual;
    uint64_t seed;
} view;

static gw_status by_density(const view *v, const gw_exec *exec, const pieces *w,
                            const gw_params *levels, size_t n, double *squared, gw_why *why)
{
    const size_t at = gw_level_param(levels, "density");
    for (size_t i = 0; i < n; i++) {
        w->numbers[i] = levels[i].value[at];
    }
    return gw_errors_topk(levels, exec, v->in, v->residual, w->numbers, n, squared, why);
}

static gw_status by_bits(const view *v, const gw_exec *exec, const gw_params *levels, size_t n,
                         double *squared, gw_why *why)
{
    const size_t at = gw_level_param(levels, "bits");
    double table[GW_ERRORS_WIDTHS];
    const gw_status status = gw_errors_dither(levels, exec, v->in, v->residual, table, why);
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        squared[i] = table[(size_t)levels[i].value[at] - GW_ERRORS_LEAST_BITS];
    }
    return status;
}

/* Where two factors are not less than the tensor it is sent as it is, and nothing lost. */
static gw_status by_rank(const view *v, const gw_exec *exec, const pieces *w,
                         const gw_params *levels, size_t n, double *squared, gw_why *why)
{
    const size_t top = top_rank(levels, n, v->in->count);
    const gw_level_matrix shape = gw_level_matrix_of(levels, v->in->count);
    const gw_status status = gw_errors_rank(exec, v->in, v->residual, (size_t)shape.rows,
                                            (size_t)shape.cols, top, v->seed, w->numbers, why);
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        const uint64_t rank = gw_level_matrix_of(&levels[i], v->in->count).rank;
        const int is_sent_whole = rank * (shape.rows + shape.cols) >= v->in->count;
        squared[i] = is_sent_whole ? 0 : w->numbers[rank];
    }
    return status;
}

static gw_status measure_run(const view *v, const gw_params *levels, size_t n, double *squared,
                             gw_why *why)
{
    pieces w;
    gw_exec exec = v->exec != NULL ? *v->exec : (gw_exec){0};
    gw_arena arena = gw_arena_over(exec.workspace);
    gw_status status = cut(&arena, levels, n, v->in->count, &w);
    if (status != GW_OK || arena.failed) {
        return GW_FAIL(why, status != GW_OK ? status : GW_ERR_WORKSPACE,
                       status != GW_OK ? "adapt: no table of ranks in a build without BLAS"
                                       : "adapt: the workspace is too small");
    }
    exec.workspace = w.tables;
    switch (gw_level_kind_of(levels)) {
    case GW_LEVEL_BITS:
        return by_bits(v, &exec, levels, n, squared, why);
    case GW_LEVEL_DENSITY:
        return by_density(v, &exec, &w, levels, n, squared, why);
    case GW_LEVEL_RANK:
        return by_rank(v, &exec, &w, levels, n, squared, why);
    case GW_LEVEL_NATURAL:
        status = gw_errors_natural(&exec, v->in, v->residual, squared, why);
        break;
    default:
        squared[0] = 0;
    }
    for (size_t i = 1; i < n && status == GW_OK; i++) {
        squared[i] = squared[0];
    }
    return status;
}

static double in_metric(gw_adapt_metric metric, double squared, double norm)
{
    switch (metric) {
    case GW_ADAPT_SQUARES:
        return squared;
    case GW_ADAPT_RELATIVE:
        return norm > 0 ? squared / norm : 0;
    default:
        return sqrt(squared);
    }
}

gw_status gw_adapt_measure(const gw_params *levels, size_t n, gw_adapt_metric metric,
                           const gw_exec *exec, const gw_tensor *in, const float *residual,
                           uint64_t seed, double *errors, gw_why *why)
{
    if (in == NULL || (errors == NULL && n != 0) || metric < GW_ADAPT_NORMS ||
        metric > GW_ADAPT_RELATIVE) {
        return GW_FAIL(why, GW_ERR_ARG, "adapt: no tensor, no room for errors, or no such metric");
    }
    const view v = {exec, in, residual, seed};
    double squared[GW_ADAPT_MOST_LEVELS], norm = 0;
    gw_status status = check(levels, n, in->count, why);
    if (status == GW_OK && n > GW_ADAPT_MOST_LEVELS) {
        return GW_FAIL(why, GW_ERR_RANGE, "adapt: %zu levels are more than %d", n,
                       GW_ADAPT_MOST_LEVELS);
    }
    /* by its own pass in any case: levels that lose nothing see no NaN */
    status = status == GW_OK ? gw_errors_norm(exec, in, residual, &norm, why) : status;
    for (size_t i = 0, length; i < n && status == GW_OK; i += length) {
        length = run_length(levels + i, n - i);
        status = measure_run(&v, levels + i, length, squared + i, why);
    }
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        errors[i] = in_metric(metric, squared[i], norm);
    }
    return status;
}
