/* lowrank: PowerSGD (Vogels, Karimireddy, Jaggi, NeurIPS 2019). The tensor as a matrix G, projected on the span of P = G·Q:
 * two thin factors instead of the whole. One power step an exchange; Q begins where the last exchange ended.
 * An exchange is two rounds of sums over the ranks (rounds.h); alone, as a payload, the sum is of one.
 * Arithmetic: docs/numerics.md section 10. Payload: docs/wire-format.md 3.9. */
#include "codec/lowrank/lowrank.h"
#include "base/arena.h"
#include "base/random.h"
#include "codec/lowrank/lowrank_products.h"

#include <string.h>

enum { RANK, COLS };
enum { HEADER = 8 };

static const gw_param_info params[] = {
    {"rank", "columns of the two factors", 1, 256, 4, NULL, 0},
    {"cols", "elements of a matrix row; 0: nearly square", 0, 2147483647, 0, NULL, 0},
};

static void row(const uint8_t *left, const uint8_t *right, size_t stride, uint32_t rank, size_t n,
                gw_lowrank_how how, float *out)
{
    for (size_t j = 0; j < n; j++) {
        float value = gw_lowrank_number(left, 0) * gw_lowrank_number(right, j);
        for (uint32_t k = 1; k < rank; k++) {
            value += gw_lowrank_number(left, k) * gw_lowrank_number(right, k * stride + j);
        }
        out[j] = how == GW_LOWRANK_SET   ? value
                 : how == GW_LOWRANK_ADD ? out[j] + value
                                         : out[j] - value;
    }
}

static void project(const gw_lowrank_rows *x, size_t rows, uint32_t rank, float *p)
{
    for (size_t i = 0; i < rows; i++) {
        float lane[GW_LOWRANK_THIN][GW_LOWRANK_LANES] = {{0}};
        const gw_lowrank_rows one = gw_lowrank_rest(x, rank, i, 0);
        gw_lowrank_end(&one, rank, lane, p + i * rank);
    }
}

static void gather(const float *left, const float *g, size_t stride, uint32_t rank, size_t rows,
                   size_t n, float *to)
{
    for (size_t i = 0; i < rows; i++) {
        for (uint32_t k = 0; k < rank; k++) {
            for (size_t j = 0; j < n; j++) {
                to[k * stride + j] += left[i * rank + k] * g[i * stride + j];
            }
        }
    }
}

const gw_lowrank_kernels gw_lowrank_scalar = {row, project, gather};

static gw_matrix matrix(const gw_params *p, uint64_t count)
{
    return gw_matrix_of(gw_param(p, RANK), gw_param(p, COLS), count);
}

static uint32_t flags(const gw_params *p)
{
    (void)p;
    return GW_CODEC_FIXED_SIZE | GW_CODEC_WANTS_FEEDBACK | GW_CODEC_STOCHASTIC | GW_CODEC_ROUNDS |
           GW_CODEC_NEEDS_SHAPE;
}

static uint64_t factor_elements(const gw_matrix *m)
{
    return m->rank != 0 ? m->rank * (m->rows + m->cols) : m->count;
}

static uint64_t bytes(const gw_params *p, uint64_t count)
{
    const gw_matrix m = matrix(p, count);
    return HEADER + 4 * factor_elements(&m);
}

/* ---- the steps of an exchange ---- */

static workbench cut(gw_arena *arena, const gw_matrix *m)
{
    workbench b = {0};
    if (m->rank != 0) {
        b.start = gw_arena_take(arena, m->rank * m->cols, sizeof(float));
        b.left = gw_arena_take(arena, m->rank * m->rows, sizeof(float));
        b.right = gw_arena_take(arena, m->rank * m->cols, sizeof(float));
        b.columns = gw_arena_take(arena, m->rank * m->rows, sizeof(double));
        b.tile = gw_arena_take(arena, tile_rows(m) * m->cols, sizeof(float));
    }
    return b;
}

static uint64_t room(const gw_params *p, uint64_t count)
{
    const gw_matrix m = matrix(p, count);
    gw_arena arena = gw_arena_measuring();
    (void)cut(&arena, &m);
    return gw_arena_need(&arena);
}

static workbench bench_of(const gw_params *p, const gw_matrix *m, void *workspace)
{
    gw_arena arena = gw_arena_over((gw_workspace){workspace, (size_t)room(p, m->count)});
    return cut(&arena, m);
}

/* A power step begins with the last one's Q; a row that is gone (the first step, a rank that was missing,
 * a matrix of lower rank) with random numbers, the same on all ranks. */
static void begin(const gw_coding *job, const gw_matrix *m, const float *state, float *start)
{
    const gw_stream shared = {job->stream->seed, job->stream->step, job->stream->tensor,
                              UINT32_MAX - 1,    UINT32_MAX,        0};
    const uint64_t key = gw_random_key(&shared);
    for (uint32_t k = 0; k < m->rank; k++) {
        float *q = start + k * m->cols;
        uint32_t any = 0, top = 0;
        for (uint64_t j = 0; j < m->cols; j++) {
            q[j] = state != NULL ? state[k * m->cols + j] : 0;
            const uint32_t a = gw_bits(q[j]) & GW_ABS_MASK;
            any |= a;
            top = a > top ? a : top;
        }
        for (uint64_t j = 0; (any == 0 || top >= GW_INF_BITS) && j < m->cols; j++) {
            const uint64_t number = k * m->cols + j;
            const uint32_t word =
                gw_random_word(gw_random_pair_at(key, number << 1), (uint32_t)number);
            q[j] = (float)((int32_t)word >> 8) * 0x1p-23f;
        }
    }
}

static void spoil(float *x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        x[i] = gw_float(GW_NAN_BITS);
    }
}

/* b->left = P_own */
static void project_left(const gw_coding *job, const gw_matrix *m, gw_source *s, const workbench *b,
                         const float *state, factors due, gw_report *report)
{
    begin(job, m, state, b->start);
    multiply_left(job, m, s, b, due);
    if (gw_count_non_finite(b->left, m->rank * m->rows) == 0) {
        return;
    }
    for (uint64_t at = 0; at < s->count; at += GW_SOURCE_BLOCK) {
        const size_t n = gw_source_left(s, at);
        report->non_finite += gw_count_non_finite(matrix_at(s, b, at, n), n);
    }
    if (report->non_finite == 0) {
        report->overflowed = s->count; /* in the product, which spoils all */
    }
}

/* b->left = P̂ of P, which may be b->left itself */
static void orthogonal(const gw_matrix *m, const float *p, const workbench *b)
{
    if (gw_count_non_finite(p, m->rank * m->rows) != 0) {
        spoil(b->left, m->rank * m->rows);
        return;
    }
    for (uint64_t i = 0; i < m->rows; i++) {
        for (uint32_t k = 0; k < m->rank; k++) {
            b->columns[k * m->rows + i] = (double)p[i * m->rank + k];
        }
    }
    gw_lowrank_orthogonal(b->columns, m->rows, m->rank);
    for (uint64_t i = 0; i < m->rows; i++) {
        for (uint32_t k = 0; k < m->rank; k++) {
            b->left[i * m->rank + k] = (float)b->columns[k * m->rows + i];
        }
    }
}

/* b->right = Q_own */
static void project_right(const gw_coding *job, const gw_matrix *m, gw_source *s,
                          const workbench *b)
{
    if (gw_count_non_finite(b->left, 1) != 0) {
        spoil(b->right, m->rank * m->cols);
        return;
    }
    multiply_right(job, m, s, b);
    if (gw_count_non_finite(b->right, m->rank * m->cols) != 0) {
        spoil(b->right, m->rank * m->cols); /* overflowed */
    }
}

/* G − P̂ · Q_own into r′, which holds G; or what will be taken off it later. */
static void keep_the_rest(const gw_coding *job, const gw_matrix *m, gw_source *s,
                          const workbench *b, float *due_after)
{
    if (due_after != NULL && is_thin(m)) {
        memcpy(due_after, b->left, m->rank * m->rows * sizeof *b->left);
        memcpy(due_after + m->rank * m->rows, b->right, m->rank * m->cols * sizeof *b->right);
    } else if (s->after != NULL) {
        product(job, m, b->left, b->right, 0, s->count, GW_LOWRANK_TAKE, s->after);
    }
}

/* Too small for its rank to pay: G itself, and nothing is left. */
static void copy_whole(gw_source *s, uint8_t *out, gw_report *report)
{
    for (uint64_t at = 0; at < s->count; at += GW_SOURCE_BLOCK) {
        const size_t n = gw_source_left(s, at);
        const float *g = gw_source_block(s, at, n);
        memcpy(out + 4 * at, g, 4 * n);
        report->non_finite += gw_count_non_finite(g, n);
    }
    if (s->after != NULL) {
        memset(s->after, 0, s->count * sizeof *s->after);
    }
}

/* ---- an exchange in rounds ---- */

static uint64_t round_elements(const gw_params *p, uint64_t count, unsigned round)
{
    const gw_matrix m = matrix(p, count);
    if (m.rank == 0) {
        return round == 0 ? count : 0;
    }
    return round == 0 ? m.rank * m.rows : round == 1 ? m.rank * m.cols : 0;
}

static uint64_t state_elements(const gw_params *p, uint64_t count)
{
    const gw_matrix m = matrix(p, count);
    return m.rank * m.cols;
}

static uint64_t due_elements(const gw_params *p, uint64_t count)
{
    const gw_matrix m = matrix(p, count);
    return is_thin(&m) ? m.rank * (m.rows + m.cols) : 0;
}

static void settle(const gw_coding *job, const float *due, uint64_t count, float *r)
{
    const gw_matrix m = matrix(job->params, count);
    const factors f = factors_in(&m, due);
    if (is_thin(&m) && m.rank != 0) {
        product(job, &m, f.left, f.right, 0, count, GW_LOWRANK_TAKE, r);
    }
}

static void make(const gw_coding *job, gw_source *s, const float *state, const float *due,
                 unsigned round, void *workspace, float *own, gw_report *report)
{
    const gw_matrix m = matrix(job->params, s->count);
    const workbench b = bench_of(job->params, &m, workspace);
    if (m.rank == 0) {
        copy_whole(s, (uint8_t *)own, report);
    } else if (round == 0) {
        project_left(job, &m, s, &b, state, factors_in(&m, due), report);
        memcpy(own, b.left, m.rank * m.rows * sizeof *own);
    } else {
        project_right(job, &m, s, &b);
        memcpy(own, b.right, m.rank * m.cols * sizeof *own);
    }
}

static void take(const gw_coding *job, gw_source *s, unsigned round, void *workspace,
                 const float *sum, float *state_after, float *due_after)
{
    const gw_matrix m = matrix(job->params, s->count);
    const workbench b = bench_of(job->params, &m, workspace);
    if (m.rank != 0 && round == 0) {
        orthogonal(&m, sum, &b);
    } else if (m.rank != 0) {
        keep_the_rest(job, &m, s, &b, due_after);
        memcpy(state_after, sum, m.rank * m.cols * sizeof *sum);
    }
}

static void decode_rounds(const gw_coding *job, void *workspace, const float *sum, uint64_t count,
                          uint64_t first, size_t n, gw_apply how, float *out)
{
    const gw_matrix m = matrix(job->params, count);
    if (m.rank != 0) {
        const workbench b = bench_of(job->params, &m, workspace);
        product(job, &m, b.left, sum, first, n, how == GW_ADD ? GW_LOWRANK_ADD : GW_LOWRANK_SET,
                out);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        out[i] = how == GW_ADD ? out[i] + sum[first + i] : sum[first + i];
    }
}

static int mean(const gw_coding *job, void *workspace, const gw_convert *convert, const float *sum,
                uint64_t count, uint32_t divisor, int past, float *out)
{
    const gw_matrix m = matrix(job->params, count);
    if (m.rank == 0) {
        return convert->divide(out, sum, (size_t)count, divisor, past);
    }
    const workbench b = bench_of(job->params, &m, workspace);
    return divided_product(job, &m, b.left, sum, divisor, convert, past, out);
}

static const gw_codec_rounds rounds = {
    .elements = round_elements,
    .state = state_elements,
    .due = due_elements,
    .workspace = room,
    .make = make,
    .take = take,
    .settle = settle,
    .decode = decode_rounds,
    .mean = mean,
};

/* ---- alone: the sum of one rank as a payload ---- */

static uint64_t select_bytes(const gw_params *p, uint64_t count, unsigned threads)
{
    (void)threads; /* all share the workbench */
    return room(p, count);
}

static size_t select(const gw_coding *job, gw_source *s, uint8_t *payload, void *workspace,
                     gw_report *report)
{
    const gw_matrix m = matrix(job->params, s->count);
    const workbench b = bench_of(job->params, &m, workspace);
    gw_put_u32(payload, m.rank);
    gw_put_u32(payload + 4, (uint32_t)m.cols);
    if (m.rank == 0) {
        copy_whole(s, payload + HEADER, report);
    } else {
        const uint64_t left_bytes = 4 * m.rank * m.rows;
        project_left(job, &m, s, &b, NULL, factors_in(&m, NULL), report);
        orthogonal(&m, b.left, &b);
        project_right(job, &m, s, &b);
        if (gw_count_non_finite(b.right, 1) != 0) { /* also if only the second product overflowed */
            spoil(b.left, m.rank * m.rows);
            report->overflowed += report->non_finite == 0 && report->overflowed == 0 ? s->count : 0;
        }
        memcpy(payload + HEADER, b.left, left_bytes);
        memcpy(payload + HEADER + left_bytes, b.right, 4 * m.rank * m.cols);
        keep_the_rest(job, &m, s, &b, NULL);
    }
    return (size_t)bytes(job->params, s->count);
}

static gw_status validate(const gw_params *p, const uint8_t *payload, size_t size, uint64_t count,
                          gw_why *why)
{
    (void)size; /* follows from count */
    const gw_matrix m = matrix(p, count);
    const uint32_t rank = gw_get_u32(payload), cols = gw_get_u32(payload + 4);
    if (rank != m.rank || cols != m.cols) {
        return gw_fail(why, GW_ERR_CORRUPT,
                       "lowrank: payload of rank %u with %u columns, not of rank %u with %llu",
                       rank, cols, m.rank, (unsigned long long)m.cols);
    }
    const uint64_t n = factor_elements(&m);
    uint64_t bad = 0, nan = 0;
    for (uint64_t i = 0; m.rank != 0 && i < n; i++) {
        const uint32_t word = gw_get_u32(payload + HEADER + 4 * i);
        bad += (word & GW_ABS_MASK) >= GW_INF_BITS;
        nan += word == GW_NAN_BITS;
    }
    if (bad != 0 && nan != n) {
        return gw_fail(why, GW_ERR_CORRUPT, "lowrank: %llu of %llu factor elements are not finite",
                       (unsigned long long)bad, (unsigned long long)n);
    }
    return GW_OK;
}

static void scatter(const gw_coding *job, const uint8_t *payload, uint64_t count, gw_cursor *cursor,
                    uint64_t first, size_t n, gw_apply how, float *out)
{
    (void)cursor;
    const gw_matrix m = matrix(job->params, count);
    const uint8_t *left = payload + HEADER, *right = left + 4 * (uint64_t)m.rank * m.rows;
    if (m.rank != 0) {
        product(job, &m, left, right, first, n, how == GW_ADD ? GW_LOWRANK_ADD : GW_LOWRANK_SET,
                out);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const float v = gw_float(gw_get_u32(left + 4 * (first + i)));
        out[i] = how == GW_ADD ? out[i] + v : v;
    }
}

extern const gw_codec gw_codec_lowrank;
const gw_codec gw_codec_lowrank = {
    .name = "lowrank",
    .doc = "two thin factors of the tensor as a matrix (PowerSGD)",
    .params = params,
    .n_params = 2,
    .flags = flags,
    .bytes = bytes,
    .validate = validate,
    .select_bytes = select_bytes,
    .select = select,
    .scatter = scatter,
    .fills = 1,
    .rounds = &rounds,
    .kernels = {NULL, &gw_lowrank_scalar, GW_AVX2(gw_lowrank_avx2), GW_AVX512(gw_lowrank_avx512),
                GW_NEON(gw_lowrank_neon)},
};
