/* Low rank's products over the whole matrix, for lowrank.c. Each goes over memory once, cut into one part a thread, where no part has a
 * share in another's sums: what is added is added in the same order whatever the number of parts. */
#ifndef GW_LOWRANK_PRODUCTS_H
#define GW_LOWRANK_PRODUCTS_H

#include "codec/lowrank/lowrank.h"
#include "codec/source.h"

#include <cblas.h>
#include <string.h>

/* Elements of G that are worked on at once: few enough for the second-level cache, so that g + r is still
 * there when it is multiplied. */
enum { TILE = 64 * 1024 };
/* Columns whose factor stays in the first-level cache for a few rows, at rank 4; and how many rows: memory is walked from front
 * to back. */
enum { STRIPE = 1024, ROWS = 8 };

/* What an exchange keeps from step to step. */
typedef struct workbench {
    float *start;    /* Q0, rank × cols */
    float *left;     /* P, then P̂: rows × rank */
    float *right;    /* Q_own: rank × cols */
    double *columns; /* rank × rows */
    float *tile;     /* scratch: of g in fp32 where it is not */
} workbench;

/* Full rows that are worked on at once. */
static uint64_t tile_rows(const gw_matrix *m)
{
    return m->cols < TILE ? TILE / m->cols : 1;
}

/* What is due: two factors in one buffer, the left one first. NULL: nothing. */
typedef struct factors {
    const float *left, *right;
} factors;

static factors factors_in(const gw_matrix *m, const float *both)
{
    return (factors){both, both != NULL ? both + m->rank * m->rows : NULL};
}

/* Our own loops go over memory once; a library's products are faster where there is more to multiply. */
static int is_thin(const gw_matrix *m)
{
    return m->rank <= GW_LOWRANK_THIN;
}

/* G of the elements [at, at + n), a tile at most; gone at the next call. */
static const float *matrix_at(gw_source *s, const workbench *b, uint64_t at, uint64_t n)
{
    if (s->after == NULL && s->dtype != GW_F32) {
        s->convert->widen(s->dtype, s->in + 2 * at, b->tile, (size_t)n);
        return b->tile;
    }
    for (uint64_t i = at; i < at + n && s->after != NULL; i += GW_SOURCE_BLOCK) {
        const uint64_t left = at + n - i;
        (void)gw_source_block(s, i, left < GW_SOURCE_BLOCK ? (size_t)left : GW_SOURCE_BLOCK);
    }
    return s->after != NULL ? s->after + at : gw_source_gradient(s, at, (size_t)n);
}

/* Tiles of full rows from `row` to `end`, then the last row if it is shorter. */
typedef struct tiling {
    uint64_t row, end, rows, width;
} tiling;

static int next_tile(const gw_matrix *m, tiling *t)
{
    const uint64_t full = m->last == m->cols ? m->rows : m->rows - 1, step = tile_rows(m);
    t->row += t->rows;
    const uint64_t stop = t->end < full ? t->end : full;
    t->rows = t->row == full ? 1 : stop - t->row < step ? stop - t->row : step;
    t->width = t->row == full ? m->last : m->cols;
    return t->row < t->end;
}

/* One product over the matrix, as its parts see it. */
typedef struct products {
    const gw_coding *job;
    const gw_matrix *m;
    gw_source *s;
    const workbench *b;
    factors due;
    unsigned parts;
} products;

/* Where part `part` of `n` units begins. */
static uint64_t part_of(uint64_t n, unsigned part, unsigned parts)
{
    return n * part / parts;
}

/* fp16 and bf16 are widened into one tile. */
static unsigned parts_of(const gw_coding *job, const gw_source *s)
{
    return s->dtype == GW_F32 ? gw_coding_parts(job, s->count) : 1;
}

/* Some rows of P = G · Q0ᵀ, every row a sum of its own. */
static void left_part(void *arg, unsigned part)
{
    const products *x = arg;
    const gw_matrix *m = x->m;
    const gw_source *s = x->s;
    const gw_lowrank_kernels *kernels = x->job->kernels;
    tiling t = {.row = part_of(m->rows, part, x->parts),
                .end = part_of(m->rows, part + 1, x->parts)};
    while (next_tile(m, &t)) {
        const uint64_t at = t.row * m->cols, n = t.rows * t.width;
        const float *g = (const float *)(const void *)s->in + at;
        if (s->dtype != GW_F32) {
            s->convert->widen(s->dtype, s->in + 2 * at, x->b->tile, (size_t)n);
            g = x->b->tile;
        }
        const gw_lowrank_rows rows = {.g = g,
                                      .r = s->residual + at,
                                      .after = s->after + at,
                                      .n = (size_t)t.width,
                                      .stride = (size_t)m->cols,
                                      .left = x->due.left != NULL ? x->due.left + t.row * m->rank
                                                                  : NULL,
                                      .right = x->due.right,
                                      .q = x->b->start,
                                      .past = s->past};
        kernels->project(&rows, (size_t)t.rows, m->rank, x->b->left + t.row * m->rank);
    }
}

/* P = G · Q0ᵀ; G is formed on the way. */
static void multiply_left(const gw_coding *job, const gw_matrix *m, gw_source *s,
                          const workbench *b, factors due)
{
    if (s->after != NULL && is_thin(m)) {
        products x = {job, m, s, b, due, parts_of(job, s)};
        gw_coding_run(job, left_part, &x, x.parts);
        s->summed = s->count;
        return;
    }
    const int rank = (int)m->rank;
    for (tiling t = {.end = m->rows}; next_tile(m, &t);) {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)t.rows, rank, (int)t.width, 1,
                    matrix_at(s, b, t.row * m->cols, t.rows * t.width), (int)t.width, b->start,
                    (int)m->cols, 0, b->left + t.row * m->rank, rank);
    }
}

/* Columns that a part has at least: a few lines of every row. */
enum { COLUMNS = 256, LINE = 64 };

/* Some columns of Q = P̂ᵀ · G, every column a sum over the rows. */
static void right_part(void *arg, unsigned part)
{
    const products *x = arg;
    const gw_matrix *m = x->m;
    const gw_lowrank_kernels *kernels = x->job->kernels;
    const uint64_t lines = (m->cols - 1) / LINE + 1;
    const uint64_t first = part_of(lines, part, x->parts) * LINE;
    const uint64_t last = part_of(lines, part + 1, x->parts) * LINE;
    for (tiling t = {.end = m->rows}; next_tile(m, &t);) {
        const float *g = matrix_at(x->s, x->b, t.row * m->cols, t.rows * t.width);
        const float *p = x->b->left + t.row * m->rank;
        const uint64_t stop = t.width < last ? t.width : last;
        for (uint64_t i = 0; i < t.rows; i += ROWS) {
            const uint64_t rows = t.rows - i < ROWS ? t.rows - i : ROWS;
            for (uint64_t j = first; j < stop; j += STRIPE) {
                const uint64_t n = stop - j < STRIPE ? stop - j : STRIPE;
                kernels->gather(p + i * m->rank, g + i * m->cols + j, (size_t)m->cols, m->rank,
                                (size_t)rows, (size_t)n, x->b->right + j);
            }
        }
    }
}

/* Q = P̂ᵀ · G, which is formed. */
static void multiply_right(const gw_coding *job, const gw_matrix *m, gw_source *s,
                           const workbench *b)
{
    memset(b->right, 0, m->rank * m->cols * sizeof *b->right);
    if (is_thin(m)) {
        const uint64_t parts = parts_of(job, s), most = (m->cols - 1) / COLUMNS + 1;
        products x = {job, m, s, b, {0}, (unsigned)(parts < most ? parts : most)};
        gw_coding_run(job, right_part, &x, x.parts);
        return;
    }
    const int rank = (int)m->rank, cols = (int)m->cols;
    for (tiling t = {.end = m->rows}; next_tile(m, &t);) {
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, rank, (int)t.width, (int)t.rows, 1,
                    b->left + t.row * m->rank, rank,
                    matrix_at(s, b, t.row * m->cols, t.rows * t.width), (int)t.width, 1, b->right,
                    cols);
    }
}

/* Pieces of rows, in an order in which a stripe of the right factor serves several rows. */
typedef struct walk {
    const gw_matrix *m;
    uint64_t first, last; /* elements */
    uint64_t rows, turn;
} walk;

typedef struct piece {
    uint64_t row, column, at; /* at: of its first element */
    size_t n;
} piece;

static walk walk_over(const gw_matrix *m, uint64_t first, uint64_t n)
{
    return (walk){m, first, first + n, first / m->cols, 0};
}

static int walk_on(walk *w, piece *p)
{
    const uint64_t cols = w->m->cols, turns = ((cols - 1) / STRIPE + 1) * ROWS;
    for (; w->rows * cols < w->last; w->rows += ROWS, w->turn = 0) {
        while (w->turn < turns) {
            const uint64_t row_number = w->rows + w->turn % ROWS, stripe = w->turn / ROWS * STRIPE;
            const uint64_t stop = cols - stripe < STRIPE ? cols : stripe + STRIPE;
            uint64_t from = row_number * cols + stripe, to = row_number * cols + stop;
            w->turn++;
            from = from < w->first ? w->first : from;
            to = to > w->last ? w->last : to;
            if (from < to) {
                *p = (piece){row_number, from - row_number * cols, from, (size_t)(to - from)};
                return 1;
            }
        }
    }
    return 0;
}

/* The product of the factors into, onto or off elements [first, first + n), `out` being the first of them. */
static void product(const gw_coding *job, const gw_matrix *m, const void *left_factor,
                    const void *right_factor, uint64_t first, uint64_t n, gw_lowrank_how how,
                    float *out)
{
    const gw_lowrank_kernels *kernels = job->kernels;
    const uint8_t *left = left_factor, *right = right_factor;
    walk w = walk_over(m, first, n);
    for (piece p; walk_on(&w, &p);) {
        kernels->row(left + 4 * p.row * m->rank, right + 4 * p.column, m->cols, m->rank, p.n, how,
                     out + (p.at - first));
    }
}

/* The product of the factors over a number, as its parts see it. */
typedef struct division {
    const gw_coding *job;
    const gw_matrix *m;
    const float *left, *right;
    uint32_t divisor;
    const gw_convert *convert;
    int past;
    float *out;
    unsigned parts;
    int bad[GW_POOL_MAX_THREADS]; /* by part */
} division;

static void divided_part(void *arg, unsigned part)
{
    division *d = arg;
    const gw_matrix *m = d->m;
    const gw_lowrank_kernels *kernels = d->job->kernels;
    const uint64_t first = part_of(m->rows, part, d->parts) * m->cols;
    const uint64_t end = part_of(m->rows, part + 1, d->parts) * m->cols;
    walk w = walk_over(m, first, (end < m->count ? end : m->count) - first);
    _Alignas(64) float sum[STRIPE];
    for (piece p; walk_on(&w, &p);) {
        kernels->row((const uint8_t *)(d->left + p.row * m->rank),
                     (const uint8_t *)(d->right + p.column), m->cols, m->rank, p.n, GW_LOWRANK_SET,
                     sum);
        d->bad[part] |= d->convert->divide(d->out + p.at, sum, p.n, d->divisor, d->past);
    }
}

/* The product of the factors over `divisor`, written once; 1 if some of it is not finite. */
static int divided_product(const gw_coding *job, const gw_matrix *m, const float *left,
                           const float *right, uint32_t divisor, const gw_convert *convert,
                           int past, float *out)
{
    division d = {.job = job,
                  .m = m,
                  .left = left,
                  .right = right,
                  .divisor = divisor,
                  .convert = convert,
                  .past = past,
                  .out = out,
                  .parts = gw_coding_parts(job, m->count)};
    gw_coding_run(job, divided_part, &d, d.parts);
    int bad = 0;
    for (unsigned i = 0; i < d.parts; i++) {
        bad |= d.bad[i];
    }
    return bad;
}

#endif
