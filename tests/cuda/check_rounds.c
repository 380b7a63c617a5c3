/* lowrank's rounds on the device beside those of scalar C, round by round, with the same sums on both sides. What is taken
 * and decoded then has the same bits, whatever the numbers; the two products too where no sum rounds: matrices with one power
 * of two at most in every row and column. For others they are near, and r′ is what the device's own factors leave.
 *     check_rounds LIBRARY [SEED] */
#include "cuda/memory.h"
#include "support/gen.h"

#include "base/numeric.h"
#include "codec/lowrank/lowrank_core.h"

#include <gradwire/cuda.h>
#include <gradwire/rounds.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 9000, LARGE = 120000 }; /* elements: of one part of the rows, and of several */
enum { HERE, THERE, SIDES };
enum { EXACT, NEAR, KINDS };

static gw_cuda *cuda;
static uint64_t seed = 20261116;

/* One exchange, on both sides. */
typedef struct job {
    gw_params params;
    gw_matrix m;
    gw_dtype dtype;
    int feedback;
    size_t elements[2], floats; /* of the rounds; of the state */
    gw_stream key;
    uint8_t *in;
    float *residual, *state, *sum[2];
    float *own[2][SIDES], *after[SIDES], *state_after[SIDES];
    void *out[SIDES];
    gw_report report;
    gw_cuda_result result;
    /* scalar C's */
    gw_rounds here;
    gw_exec exec;
    gw_tensor tensor;
    /* the device's */
    gw_cuda_rounds there;
    float *numbers; /* of a round */
    void *decoded;
} job;

static void need(const job *j, int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "FAILED rank %g cols %g count %llu %s%s, seed %llu: %s\n",
                j->params.value[0], j->params.value[1], (unsigned long long)j->m.count,
                gw_dtype_name(j->dtype), j->feedback ? " feedback" : "", (unsigned long long)seed,
                what);
        exit(1);
    }
}

static void *take(size_t bytes)
{
    void *p = calloc(bytes != 0 ? bytes : 1, 1);
    if (p == NULL) {
        exit(2);
    }
    return p;
}

static void *there(const void *from, size_t bytes)
{
    void *p = device_take(bytes);
    device_put(p, from, bytes);
    return p;
}

static job begin(gen *g, uint32_t rank, uint64_t cols, size_t count, gw_dtype dtype, int feedback)
{
    job j = {.dtype = dtype, .feedback = feedback};
    char spec[64];
    (void)snprintf(spec, sizeof spec, "lowrank:rank=%u,cols=%llu", rank, (unsigned long long)cols);
    j.m = gw_matrix_of(rank, cols, count);
    need(&j, gw_params_parse(&j.params, spec, NULL) == GW_OK, "parameters");
    need(&j, gw_rounds_state(&j.params, count, &j.floats) == GW_OK, "state");
    j.key = (gw_stream){.seed = gen_u64(g), .step = gen_u64(g), .tensor = gen_u64(g)};
    j.in = take(count * 4);
    j.residual = take(count * 4);
    j.state = take(j.floats * 4);
    for (unsigned r = 0; r < 2; r++) {
        need(&j, gw_rounds_elements(&j.params, count, r, &j.elements[r]) == GW_OK, "elements");
        j.sum[r] = take(j.elements[r] * 4);
        j.own[r][HERE] = take(j.elements[r] * 4);
        j.own[r][THERE] = take(j.elements[r] * 4);
    }
    for (int s = 0; s < SIDES; s++) {
        j.after[s] = take(count * 4);
        j.state_after[s] = take(j.floats * 4);
        j.out[s] = take(count * 4);
    }
    return j;
}

/* When its numbers are there. */
static void open_sides(job *j)
{
    const size_t count = j->m.count, width = gw_dtype_size(j->dtype);
    size_t room = 0, bytes = 0;
    need(j, gw_rounds_workspace(&j->params, count, &room) == GW_OK, "workspace");
    j->exec = (gw_exec){.isa = GW_ISA_SCALAR, .workspace = {take(room), room}};
    j->tensor = (gw_tensor){j->in, count, j->dtype};
    j->here = (gw_rounds){.params = &j->params,
                          .exec = &j->exec,
                          .stream = &j->key,
                          .in = &j->tensor,
                          .residual = j->feedback ? j->residual : NULL,
                          .residual_after = j->feedback ? j->after[HERE] : NULL,
                          .state = j->state,
                          .state_after = j->state_after[HERE]};
    need(j, gw_cuda_rounds_workspace(cuda, &j->params, count, &bytes) == GW_OK, "workspace");
    j->there = (gw_cuda_rounds){.params = &j->params,
                                .stream = device_stream(),
                                .workspace = {device_take(bytes), bytes},
                                .key = j->key,
                                .in = {there(j->in, count * width), count, j->dtype},
                                .residual = j->feedback ? there(j->residual, count * 4) : NULL,
                                .residual_after = j->feedback ? device_take(count * 4) : NULL,
                                .state = there(j->state, j->floats * 4),
                                .state_after = device_take(j->floats * 4),
                                .result = device_take(sizeof *j->there.result)};
    const size_t most = j->elements[0] > j->elements[1] ? j->elements[0] : j->elements[1];
    j->numbers = device_take(most * 4);
    j->decoded = device_take(count * 4);
    device_fill(j->there.workspace.data, 0x5A, bytes);
    device_fill(j->there.result, 0, sizeof *j->there.result);
}

static void drop(job *j)
{
    void *const device[] = {j->there.workspace.data,
                            j->there.in.data,
                            (void *)(uintptr_t)j->there.residual,
                            j->there.residual_after,
                            (void *)(uintptr_t)j->there.state,
                            j->there.state_after,
                            j->there.result,
                            j->numbers,
                            j->decoded};
    for (size_t i = 0; i < sizeof device / sizeof device[0]; i++) {
        if (device[i] != NULL) {
            device_give(device[i]);
        }
    }
    for (int s = 0; s < SIDES; s++) {
        free(j->after[s]);
        free(j->state_after[s]);
        free(j->out[s]);
        free(j->own[0][s]);
        free(j->own[1][s]);
    }
    free(j->sum[0]);
    free(j->sum[1]);
    free(j->in);
    free(j->residual);
    free(j->state);
    free(j->exec.workspace.data);
}

static float get(const job *j, size_t i)
{
    const uint16_t *half = (const uint16_t *)(const void *)j->in;
    const float g = j->dtype == GW_F32   ? ((const float *)(const void *)j->in)[i]
                    : j->dtype == GW_F16 ? gw_f32_from_f16(half[i])
                                         : gw_f32_from_bf16(half[i]);
    return j->feedback ? g + j->residual[i] : g;
}

static void put(job *j, size_t i, float v)
{
    if (j->dtype == GW_F32) {
        ((float *)(void *)j->in)[i] = v;
    } else {
        ((uint16_t *)(void *)j->in)[i] =
            j->dtype == GW_F16 ? gw_f16_from_f32(v) : gw_bf16_from_f32(v);
    }
}

/* One power of two in some of the rows, each in a column of its own; or normal numbers. */
static void fill(gen *g, job *j, int kind)
{
    const uint64_t cols = j->m.cols, turn = cols != 0 ? gen_below(g, (uint32_t)cols) : 0;
    if (kind == NEAR) {
        gen_fill(g, GEN_NORMAL, j->dtype, j->in, j->m.count);
        gen_fill(g, GEN_NORMAL, GW_F32, j->residual, j->m.count);
        return;
    }
    for (uint64_t row = 0; row < j->m.rows && row < cols; row++) {
        const uint64_t i = row * cols + (row + turn) % cols;
        const float v = gw_float((117 + gen_below(g, 20)) << GW_MANT_BITS | gen_below(g, 2) << 31);
        if (i < j->m.count && j->feedback && gen_below(g, 3) == 0) {
            j->residual[i] = v;
        } else if (i < j->m.count) {
            put(j, i, v);
        }
    }
}

/* Nothing; or numbers of which a row may be gone: all zero, or one not finite. */
static void fill_state(gen *g, job *j, uint32_t what)
{
    if (what == 0 || j->floats == 0) {
        return;
    }
    gen_fill(g, GEN_NORMAL, GW_F32, j->state, j->floats);
    float *row = j->state + gen_below(g, j->m.rank) * j->m.cols;
    if (what == 1) {
        memset(row, 0, j->m.cols * 4);
    } else if (what == 2) {
        row[gen_below(g, (uint32_t)j->m.cols)] =
            gw_float(gen_below(g, 2) ? GW_NAN_BITS : 0xFF800000u);
    }
}

static void make(job *j, unsigned round)
{
    gw_why why = {""};
    gw_report *report = round == 0 ? &j->report : NULL;
    need(j, gw_rounds_make(&j->here, round, j->own[round][HERE], report) == GW_OK, "make");
    need(j, gw_cuda_rounds_make(cuda, &j->there, round, j->numbers, &why) == GW_OK, why.text);
    device_wait();
    device_get(j->own[round][THERE], j->numbers, j->elements[round] * 4);
}

/* Another rank's numbers are added to scalar C's. */
static void exchange(gen *g, job *j, unsigned round, float by)
{
    gw_why why = {""};
    gen_fill(g, GEN_NORMAL, GW_F32, j->sum[round], j->elements[round]);
    for (size_t i = 0; i < j->elements[round]; i++) {
        j->sum[round][i] = j->own[round][HERE][i] + by * j->sum[round][i];
    }
    device_put(j->numbers, j->sum[round], j->elements[round] * 4);
    need(j, gw_rounds_take(&j->here, round, j->sum[round]) == GW_OK, "take");
    need(j, gw_cuda_rounds_take(cuda, &j->there, round, j->numbers, &why) == GW_OK, why.text);
}

/* NaNs are NaNs, whatever their bits. */
static int same(const float *a, const float *b, size_t n)
{
    int all = 1;
    for (size_t i = 0; i < n; i++) {
        all &= gw_bits(a[i]) == gw_bits(b[i]) || (isnan(a[i]) && isnan(b[i]));
    }
    return all;
}

static double apart(const float *a, const float *b, size_t n)
{
    double wrong = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        wrong += pow((double)a[i] - (double)b[i], 2);
        all += (double)a[i] * (double)a[i];
    }
    return wrong == 0 ? 0 : sqrt(wrong / all);
}

/* `sum`, of the last round, as both sides decode it: how many of the device's are not finite. */
static uint64_t decode(job *j, const float *sum, gw_dtype dtype, gw_apply how, uint32_t divisor)
{
    const size_t count = j->m.count, bytes = count * gw_dtype_size(dtype);
    const unsigned last = j->elements[1] != 0;
    gw_tensor here = {j->out[HERE], count, dtype}, out = {j->decoded, count, dtype};
    gw_why why = {""};
    device_put(j->numbers, sum, j->elements[last] * 4);
    device_put(j->decoded, j->out[HERE], bytes);
    device_fill(j->there.result, 0, sizeof *j->there.result);
    need(j, gw_rounds_decode(&j->here, sum, how, &here) == GW_OK, "decode");
    need(j,
         gw_cuda_rounds_decode(cuda, &j->there, j->numbers, how, divisor, &out, j->there.result,
                               &why) == GW_OK,
         why.text);
    device_wait();
    device_get(j->out[THERE], j->decoded, bytes);
    device_get(&j->result, j->there.result, sizeof j->result);
    uint64_t odd = 0;
    for (size_t i = 0; i < count && dtype == GW_F32; i++) {
        float *y = &((float *)j->out[HERE])[i];
        *y = *y / (float)divisor;
        odd += isfinite(*y) ? 0 : 1;
    }
    need(j, j->result.status == GW_OK, "status of a decode");
    need(j, dtype != GW_F32 || j->result.non_finite == odd, "not finite, decoded");
    need(j,
         dtype == GW_F32 ? same(j->out[HERE], j->out[THERE], count)
                         : memcmp(j->out[HERE], j->out[THERE], bytes) == 0,
         "decoded to other bits");
    return j->result.non_finite;
}

/* r′ by the factors that the device has: P̂ is what a Q of ones on the diagonal decodes to. */
static void check_rest(job *j)
{
    const gw_matrix m = j->m;
    float *left = take(m.rank * m.rows * 4), *ones = take(m.rank * m.cols * 4);
    if (m.cols < m.rank || m.last < m.rank) {
        free(left);
        free(ones);
        return;
    }
    for (uint32_t k = 0; k < m.rank; k++) {
        ones[k * m.cols + k] = 1;
    }
    (void)decode(j, ones, GW_F32, GW_SET, 1);
    for (uint64_t i = 0; i < m.rows; i++) {
        for (uint32_t k = 0; k < m.rank; k++) {
            left[i * m.rank + k] = ((float *)j->out[THERE])[i * m.cols + k];
        }
    }
    for (uint64_t i = 0; i < m.count; i++) {
        const uint64_t row = i / m.cols, c = i % m.cols;
        float y = left[row * m.rank] * j->own[1][THERE][c];
        for (uint32_t k = 1; k < m.rank; k++) {
            y += left[row * m.rank + k] * j->own[1][THERE][k * m.cols + c];
        }
        const float r = get(j, i) - y;
        need(j, gw_bits(r) == gw_bits(j->after[THERE][i]), "r' is not what the factors leave");
    }
    free(left);
    free(ones);
}

static void check(gen *g, int kind, uint32_t rank, uint64_t cols, size_t count, gw_dtype dtype,
                  int feedback)
{
    job j = begin(g, rank, cols, count, dtype, feedback);
    fill(g, &j, kind);
    fill_state(g, &j, gen_below(g, 4));
    open_sides(&j);
    const unsigned rounds = j.elements[1] != 0 ? 2 : 1;
    for (unsigned r = 0; r < rounds; r++) {
        make(&j, r);
        need(&j,
             kind == EXACT || j.m.rank == 0
                 ? same(j.own[r][HERE], j.own[r][THERE], j.elements[r])
                 : apart(j.own[r][HERE], j.own[r][THERE], j.elements[r]) < 1e-5,
             r == 0 ? "the first round's numbers" : "the second round's numbers");
        exchange(g, &j, r, 0.25f);
    }
    device_wait();
    device_get(&j.result, j.there.result, sizeof j.result);
    need(&j, j.result.non_finite == j.report.non_finite, "non-finite");
    need(&j, j.result.overflowed == j.report.overflowed, "overflowed");
    if (feedback) {
        device_get(j.after[THERE], j.there.residual_after, count * 4);
    }
    device_get(j.state_after[THERE], j.there.state_after, j.floats * 4);
    need(&j, same(j.state_after[HERE], j.state_after[THERE], j.floats), "the state");
    need(&j, (kind == NEAR && j.m.rank != 0) || same(j.after[HERE], j.after[THERE], count),
         "the residuals differ");
    (void)decode(&j, j.sum[rounds - 1], GW_F32, GW_SET, 1);
    (void)decode(&j, j.sum[rounds - 1], GW_F32, GW_ADD, 3);
    (void)decode(&j, j.sum[rounds - 1], dtype, GW_SET, 1);
    if (feedback && j.m.rank != 0) {
        check_rest(&j);
    }
    drop(&j);
}

/* What is not finite in P spoils all, in Q what it meets; a rank's own numbers are reported as scalar C does. */
static void check_odd(gen *g, float bad, unsigned in_round)
{
    job j = begin(g, 2, 0, 5000, GW_F32, 1);
    fill(g, &j, NEAR);
    for (size_t i = 0; i < 5000 && bad == 3e38f; i++) { /* overflows in the product */
        put(&j, i, bad);
    }
    if (bad != 3e38f && in_round == 2) {
        put(&j, 4321, bad);
    }
    open_sides(&j);
    for (unsigned r = 0; r < 2; r++) {
        make(&j, r);
        if (r == in_round) {
            j.own[r][HERE][77] = bad;
        }
        exchange(g, &j, r, r == 1 && in_round == 1 ? 0 : 0.25f);
    }
    device_wait();
    device_get(&j.result, j.there.result, sizeof j.result);
    need(&j, j.result.non_finite == j.report.non_finite, "non-finite");
    need(&j, j.result.overflowed == j.report.overflowed, "overflowed");
    need(&j, (j.report.non_finite != 0) == (in_round == 2 && bad != 3e38f), "whose fault it is");
    const uint64_t odd = decode(&j, j.sum[1], GW_F32, GW_SET, 1);
    need(&j, in_round == 1 ? odd != 0 && odd < 5000 : odd == 5000, "how far it spoils");
    drop(&j);
}

static void check_refusals(gen *g)
{
    job j = begin(g, 2, 0, 5000, GW_F32, 1);
    open_sides(&j);
    gw_cuda_rounds x = j.there;
    x.state = NULL;
    need(&j, gw_cuda_rounds_make(cuda, &x, 0, j.numbers, NULL) == GW_ERR_ARG, "no state");
    x = j.there;
    x.residual_after = NULL;
    need(&j, gw_cuda_rounds_make(cuda, &x, 0, j.numbers, NULL) == GW_ERR_ARG, "no r'");
    x = j.there;
    x.workspace.size--;
    need(&j, gw_cuda_rounds_take(cuda, &x, 0, j.numbers, NULL) == GW_ERR_WORKSPACE, "no room");
    need(&j, gw_cuda_rounds_make(cuda, &j.there, 2, j.numbers, NULL) == GW_ERR_ARG, "no round 2");
    need(&j, gw_cuda_rounds_take(NULL, &j.there, 0, j.numbers, NULL) == GW_ERR_ARG, "no library");
    need(&j,
         gw_cuda_rounds_decode(cuda, &j.there, j.numbers, GW_SET, 0, &j.there.in, j.there.result,
                               NULL) == GW_ERR_ARG,
         "by zero");
    gw_params other;
    size_t bytes = 0;
    need(&j, gw_params_parse(&other, "topk", NULL) == GW_OK, "topk");
    need(&j, !gw_cuda_has_rounds(cuda, other.codec) && gw_cuda_has_rounds(cuda, j.params.codec),
         "who has rounds");
    need(&j, gw_cuda_rounds_workspace(cuda, &other, 100, &bytes) == GW_ERR_UNSUPPORTED, "topk's");
    drop(&j);
}

int main(int argc, char **argv)
{
    static const uint64_t cols[] = {0, 0, 7, 100, 256, 1500};
    gw_why why = {""};
    if (argc < 2 || gw_cuda_open(argv[1], &cuda, &why) != GW_OK) {
        fprintf(stderr, "check_rounds: %s\n", argc < 2 ? "no library named" : why.text);
        return 2;
    }
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : seed;
    gen g = {seed};
    for (int i = 0; i < 24; i++) {
        const uint32_t rank = i % 3 == 2 ? 4 : 1 + gen_below(&g, i < 2 ? 9 : 4);
        const uint64_t c = cols[gen_below(&g, 6)];
        const size_t count =
            i % 4 == 3 ? LARGE / 2 + gen_below(&g, LARGE / 2) : 1 + gen_below(&g, MOST);
        check(&g, i % KINDS, rank, c, count, (gw_dtype)(GW_F32 + gen_below(&g, 3)),
              gen_below(&g, 4) != 0);
    }
    for (size_t n = 0; n < 40; n++) { /* too small for their rank: as they are */
        check(&g, NEAR, 4, 0, n, n % 3 == 0 ? GW_BF16 : GW_F32, n % 2 == 0);
    }
    for (unsigned round = 0; round <= 2; round++) { /* of the sums, or 2: of the input */
        check_odd(&g, (float)NAN, round);
        check_odd(&g, (float)INFINITY, round);
    }
    check_odd(&g, 3e38f, 2);
    check_refusals(&g);
    printf("seed %llu: lowrank's rounds on the device are scalar C's\n", (unsigned long long)seed);
    gw_cuda_close(cuda);
    return 0;
}
