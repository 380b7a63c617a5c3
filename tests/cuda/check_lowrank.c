/* lowrank on the device. Its two products are summed in an order of their own, so bytes are compared where no sum rounds:
 * matrices with one power of two at most in every row and column. There orthogonal columns, factors and residual
 * are those of scalar C. For others the factors are compared with sums in fp64.
 *     check_lowrank LIBRARY [SEED] */
#include "cuda/memory.h"
#include "support/gen.h"

#include "base/numeric.h"
#include "codec/lowrank/lowrank_core.h"

#include <gradwire/cuda.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEADER = 8, MOST = 15000, LARGE = 150000 }; /* elements: of one block's work, and of more */

static gw_cuda *cuda;
static uint64_t seed = 20261116;

/* One encoding, on both sides. */
typedef struct job {
    gw_params params;
    gw_matrix m;
    gw_dtype dtype;
    int feedback;
    size_t bound;
    gw_stream key;
    uint8_t *in;
    float *residual, *after[2];
    uint8_t *payload[2]; /* of C, of the device */
    gw_report report;
    gw_cuda_result result;
} job;

static void *take(size_t bytes)
{
    void *p = malloc(bytes != 0 ? bytes : 1);
    if (p == NULL) {
        exit(2);
    }
    return p;
}

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

static job begin(gen *g, uint32_t rank, uint64_t cols, size_t count, gw_dtype dtype, int feedback)
{
    job j = {.dtype = dtype, .feedback = feedback};
    char spec[64];
    (void)snprintf(spec, sizeof spec, "lowrank:rank=%u,cols=%llu", rank, (unsigned long long)cols);
    j.m = gw_matrix_of(rank, cols, count);
    need(&j, gw_params_parse(&j.params, spec, NULL) == GW_OK, "parameters");
    need(&j, gw_payload_bound(&j.params, count, &j.bound) == GW_OK, "bound");
    j.key = (gw_stream){gen_u64(g), gen_u64(g), gen_u64(g), 3, 1, 0};
    j.in = take(count * 4);
    j.residual = take(count * 4);
    memset(j.in, 0, count * 4);
    memset(j.residual, 0, count * 4);
    for (int i = 0; i < 2; i++) {
        j.after[i] = take(count * 4);
        j.payload[i] = take(j.bound);
    }
    return j;
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

static float get(const job *j, size_t i)
{
    const uint16_t *half = (const uint16_t *)(const void *)j->in;
    const float g = j->dtype == GW_F32   ? ((const float *)(const void *)j->in)[i]
                    : j->dtype == GW_F16 ? gw_f32_from_f16(half[i])
                                         : gw_f32_from_bf16(half[i]);
    return j->feedback ? g + j->residual[i] : g;
}

static void on_device(job *j)
{
    const size_t count = j->m.count, width = gw_dtype_size(j->dtype);
    size_t room = 0, written = 0;
    gw_why why = {""};
    need(j, gw_cuda_workspace(cuda, &j->params, j->dtype, &count, 1, j->feedback, &room) == GW_OK,
         "workspace");
    void *in = device_take(count * width), *workspace = device_take(room);
    float *r = device_take(count * 4), *after = device_take(count * 4);
    uint8_t *payload = device_take(j->bound);
    gw_cuda_result *result = device_take(sizeof *result);
    device_put(in, j->in, count * width);
    device_put(r, j->residual, count * 4);
    device_fill(result, 0, sizeof *result);
    device_fill(workspace, 0x5A, room);
    device_fill(payload, 0x5A, j->bound);
    const gw_cuda_source source = {.in = {in, count, j->dtype},
                                   .residual = j->feedback ? r : NULL,
                                   .residual_after = j->feedback ? after : NULL,
                                   .key = j->key,
                                   .payload = payload,
                                   .capacity = j->bound,
                                   .result = result};
    need(j,
         gw_cuda_encode(cuda, device_stream(), &j->params, &source, 1,
                        (gw_workspace){workspace, room}, &why) == GW_OK,
         why.text);
    device_wait();
    device_get(j->payload[1], payload, j->bound);
    device_get(&j->result, result, sizeof *result);
    device_get(j->after[1], after, count * 4);
    device_give(in);
    device_give(workspace);
    device_give(r);
    device_give(after);
    device_give(payload);
    device_give(result);
    static uint64_t memory[(16 << 20) / 8];
    const gw_exec exec = {.isa = GW_ISA_SCALAR, .workspace = {memory, sizeof memory}};
    const gw_tensor tensor = {j->in, count, j->dtype};
    need(j,
         gw_encode_feedback(&j->params, &exec, &j->key, &tensor, j->feedback ? j->residual : NULL,
                            j->feedback ? j->after[0] : NULL, j->payload[0], j->bound, &written,
                            &j->report) == GW_OK,
         "scalar C");
    need(j, j->result.written == written, "bytes written");
    need(j, j->result.non_finite == j->report.non_finite, "non-finite");
    need(j, j->result.overflowed == j->report.overflowed, "overflowed");
    need(j, j->result.status == GW_OK, "status");
}

static void drop(job *j)
{
    free(j->in);
    free(j->residual);
    for (int i = 0; i < 2; i++) {
        free(j->after[i]);
        free(j->payload[i]);
    }
}

static void same_bytes(const job *j)
{
    need(j, memcmp(j->payload[0], j->payload[1], j->bound) == 0, "the payloads differ");
    need(j, !j->feedback || memcmp(j->after[0], j->after[1], 4 * j->m.count) == 0,
         "the residuals differ");
}

/* One power of two in some of the rows, each in a column of its own. */
static void check_exact(gen *g, uint32_t rank, uint64_t cols, size_t count, gw_dtype dtype,
                        int feedback)
{
    job j = begin(g, rank, cols, count, dtype, feedback);
    const uint64_t skip = gen_below(g, 5), turn = gen_below(g, (uint32_t)j.m.cols);
    for (uint64_t row = 0; row < j.m.rows && row < j.m.cols; row++) {
        const uint64_t i = row * j.m.cols + (row + turn) % j.m.cols;
        const float v = gw_float((117 + gen_below(g, 20)) << GW_MANT_BITS | gen_below(g, 2) << 31);
        if (i >= count || (skip != 0 && gen_below(g, 5) < skip)) {
            continue;
        }
        if (feedback && gen_below(g, 3) == 0) {
            j.residual[i] = v;
        } else {
            put(&j, i, v);
        }
    }
    on_device(&j);
    same_bytes(&j);
    drop(&j);
}

static float factor(const job *j, uint64_t i)
{
    uint32_t word;
    memcpy(&word, j->payload[1] + HEADER + 4 * i, 4);
    return gw_float(word);
}

/* Normal numbers: columns are orthonormal, Q is P̂ᵀ · G, r′ is G − P̂ · Q, and both sides decode to nearly the same. */
static void check_near(gen *g, uint32_t rank, uint64_t cols, size_t count, gw_dtype dtype)
{
    job j = begin(g, rank, cols, count, dtype, 1);
    gen_fill(g, GEN_NORMAL, dtype, j.in, count);
    gen_fill(g, GEN_NORMAL, GW_F32, j.residual, count);
    on_device(&j);
    const gw_matrix m = j.m;
    const uint64_t right = m.rank * m.rows;
    for (uint32_t a = 0; a < m.rank; a++) {
        for (uint32_t b = 0; b <= a; b++) {
            double dot = 0;
            for (uint64_t i = 0; i < m.rows; i++) {
                dot += (double)factor(&j, i * m.rank + a) * (double)factor(&j, i * m.rank + b);
            }
            need(&j, fabs(dot - (a == b)) < 1e-5, "columns are not orthonormal");
        }
    }
    double wrong = 0, all = 0, apart = 0, whole = 0;
    for (uint64_t c = 0; c < m.cols; c++) {
        for (uint32_t k = 0; k < m.rank; k++) {
            double dot = 0;
            for (uint64_t i = 0; i < m.rows && i * m.cols + c < count; i++) {
                dot += (double)factor(&j, i * m.rank + k) * (double)get(&j, i * m.cols + c);
            }
            const double q = (double)factor(&j, right + k * m.cols + c);
            wrong += (q - dot) * (q - dot);
            all += dot * dot;
        }
    }
    need(&j, sqrt(wrong / all) < 1e-5, "Q is not the product");
    uint64_t row = 0, c = 0;
    for (uint64_t i = 0; i < count; i++, c++) {
        row += c == m.cols;
        c = c == m.cols ? 0 : c;
        float y = factor(&j, row * m.rank) * factor(&j, right + c);
        for (uint32_t k = 1; k < m.rank; k++) {
            y += factor(&j, row * m.rank + k) * factor(&j, right + k * m.cols + c);
        }
        const float G = get(&j, i), r = G - y;
        need(&j, gw_bits(r) == gw_bits(j.after[1][i]), "r' is not what the factors leave");
        apart += pow((double)j.after[0][i] - (double)r, 2);
        whole += (double)G * (double)G;
    }
    need(&j, sqrt(apart / whole) < 1e-4, "far from what scalar C leaves");
    drop(&j);
}

/* What is not finite, or becomes so, spoils all; small tensors are sent as they are. */
static void check_odd(gen *g)
{
    job j = begin(g, 2, 0, 5000, GW_F32, 1);
    gen_fill(g, GEN_NORMAL, GW_F32, j.in, 5000);
    put(&j, 4321, gw_float(GW_NAN_BITS));
    on_device(&j);
    need(&j, memcmp(j.payload[0], j.payload[1], j.bound) == 0, "a NaN does not spoil all");
    drop(&j);
    j = begin(g, 2, 0, 5000, GW_F32, 0);
    for (size_t i = 0; i < 5000; i++) {
        put(&j, i, 3e38f);
    }
    on_device(&j);
    need(&j, memcmp(j.payload[0], j.payload[1], j.bound) == 0, "an overflow does not spoil all");
    drop(&j);
    for (size_t n = 0; n < 40; n++) {
        j = begin(g, 4, 0, n, GW_BF16, n % 2 == 0);
        gen_fill(g, GEN_NORMAL, GW_BF16, j.in, n);
        gen_fill(g, GEN_NORMAL, GW_F32, j.residual, n);
        on_device(&j);
        same_bytes(&j);
        drop(&j);
    }
}

int main(int argc, char **argv)
{
    static const uint64_t cols[] = {0, 0, 7, 100, 256, 1500};
    gw_why why = {""};
    if (argc < 2 || gw_cuda_open(argv[1], &cuda, &why) != GW_OK) {
        fprintf(stderr, "check_lowrank: %s\n", argc < 2 ? "no library named" : why.text);
        return 2;
    }
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : seed;
    gen g = {seed};
    for (int i = 0; i < 12; i++) {
        const uint32_t rank = i % 3 == 2 ? 4 : 1 + gen_below(&g, i == 0 ? 9 : 4);
        const uint64_t c = cols[i < 6 ? (size_t)i : gen_below(&g, 6)];
        const size_t count =
            i % 2 != 0 ? LARGE / 2 + gen_below(&g, LARGE / 2) : 1 + gen_below(&g, MOST);
        check_exact(&g, rank, c, count, (gw_dtype)(GW_F32 + gen_below(&g, 3)), i / 2 % 2);
        if (gw_matrix_of(rank, c, count).rank != 0 && rank <= gw_matrix_of(rank, c, count).rows) {
            check_near(&g, rank, c, count, (gw_dtype)(GW_F32 + gen_below(&g, 3)));
        }
    }
    check_odd(&g);
    printf("seed %llu: lowrank on the device is scalar C's\n", (unsigned long long)seed);
    gw_cuda_close(cuda);
    return 0;
}
