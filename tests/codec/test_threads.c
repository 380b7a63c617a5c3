/* Codecs that look at a whole tensor leave the same bytes, residual and mean whatever the number of threads. */
#include "support/check.h"
#include "support/gen.h"

#include "base/numeric.h"

enum { N = 660007, RANKS = 3 }; /* enough for five parts, none of them even */

static const unsigned threads[] = {1, 2, 5};
enum { WAYS = sizeof threads / sizeof threads[0] };

/* What the numbers are like. Ties are more than a sample foretells, in all parts together or in one; a dense front has more than its
 * share of what is sent. */
typedef enum shape {
    EVEN,
    FRONT,
    BACK,
    FEW,
    NAN_INSIDE,
    INFINITE_LAST,
    EQUAL,
    TIES,
    DENSE,
    SHAPES
} shape;

typedef struct bench {
    float *normal[RANKS], *sparse; /* made once: that takes longer than coding */
    float *g[RANKS], *r, *after[2], *out[2];
    uint8_t *payload[2], *parts;
    gw_exec exec[WAYS];
} bench;

static void fill(const bench *b, shape s, size_t rank, float *x)
{
    memcpy(x, s == FEW ? b->sparse : b->normal[rank], N * sizeof *x);
    for (size_t i = 0; s == FRONT && i < N / 50; i++) {
        x[i] *= 1e3F;
    }
    for (size_t i = N - N / 50; s == BACK && i < N; i++) {
        x[i] *= 1e3F;
    }
    for (size_t i = 0; s >= EQUAL && i < N; i++) {
        const int one = s == EQUAL || (s == TIES ? i % 33 == 0 : i < N / 10);
        x[i] = one ? (x[i] < 0 ? -1.0F : 1.0F) : s == TIES ? x[i] / 100 : 0;
    }
    if (s == NAN_INSIDE) {
        x[N / 2 + 1] = gw_float(GW_NAN_BITS);
    }
    if (s == INFINITE_LAST) {
        x[N - 1] = -gw_float(GW_INF_BITS);
    }
}

static void *need(size_t bytes)
{
    void *data = calloc(bytes + 64, 1);
    assert_non_null(data);
    return data;
}

static int set_up(void **state)
{
    bench *b = need(sizeof *b);
    gen g = {1};
    for (size_t i = 0; i < RANKS; i++) {
        b->g[i] = need(N * sizeof(float));
        b->normal[i] = need(N * sizeof(float));
        gen_fill(&g, GEN_NORMAL, GW_F32, b->normal[i], N);
    }
    b->sparse = need(N * sizeof(float));
    gen_fill(&g, GEN_SPARSE, GW_F32, b->sparse, N);
    b->r = need(N * sizeof(float));
    for (size_t i = 0; i < 2; i++) {
        b->after[i] = need(N * sizeof(float));
        b->out[i] = need(N * sizeof(float));
        b->payload[i] = need(8 * (size_t)N);
    }
    for (size_t i = 0; i < WAYS; i++) {
        assert_int_equal(gw_pool_create(threads[i], &b->exec[i].pool), GW_OK);
    }
    *state = b;
    return 0;
}

static int tear_down(void **state)
{
    bench *b = *state;
    for (size_t i = 0; i < RANKS; i++) {
        free(b->g[i]);
        free(b->normal[i]);
    }
    free(b->sparse);
    for (size_t i = 0; i < 2; i++) {
        free(b->after[i]);
        free(b->out[i]);
        free(b->payload[i]);
    }
    for (size_t i = 0; i < WAYS; i++) {
        gw_pool_destroy(b->exec[i].pool);
        free(b->exec[i].workspace.data);
    }
    free(b->r);
    free(b);
    return 0;
}

/* Of both, bit for bit. */
static int same(float *const both[2], size_t n)
{
    size_t differ = 0;
    for (size_t i = 0; i < n; i++) {
        differ += gw_bits(both[0][i]) != gw_bits(both[1][i]);
    }
    return differ == 0;
}

/* A workspace of exactly so many bytes: what is written behind it is seen by a sanitizer. */
static void give(gw_exec *exec, size_t bytes)
{
    free(exec->workspace.data);
    exec->workspace = (gw_workspace){malloc(bytes + (bytes == 0)), bytes};
    assert_non_null(exec->workspace.data);
}

static const char *const selecting[] = {
    "topk:density=0.01",       "topk:density=0.2,values=natural",
    "topk:density=0.0001",     "adacomp:bin=500",
    "adacomp:bin=50",          "adacomp:bin=1",
    "adacomp:bin=63,cap=9000", "adacomp:bin=16383",
    "randk:density=0.01",
#ifndef GW_TESTS_NO_BLAS
    "lowrank:rank=2",
#endif
};
enum { SELECTING = sizeof selecting / sizeof selecting[0] };

/* One encoding with feedback on the threads of way `w`, into payload and r′ number `to`. */
static size_t encode(bench *b, const gw_params *p, size_t w, size_t to, gw_dtype dtype,
                     gw_report *report)
{
    const gw_stream stream = {.seed = 7, .step = 3};
    const gw_tensor in = {b->g[0], N, dtype};
    size_t bytes = 0, written = 0;
    assert_int_equal(gw_codec_workspace(p, dtype, N, 1, threads[w], &bytes), GW_OK);
    give(&b->exec[w], bytes);
    memset(b->payload[to], 0xEE, bound_of(p, N));
    assert_int_equal(gw_encode_feedback(p, &b->exec[w], &stream, &in, b->r, b->after[to],
                                        b->payload[to], bound_of(p, N), &written, report),
                     GW_OK);
    return written;
}

static void encodings_are_the_same(void **state)
{
    bench *b = *state;
    for (size_t k = 0; k < (size_t)SELECTING * (SHAPES + 1); k++) {
        const char *spec = selecting[k / (SHAPES + 1)];
        const int halves = k % (SHAPES + 1) == SHAPES; /* of which any bits are numbers */
        const shape s = halves ? EVEN : (shape)(k % (SHAPES + 1));
        const gw_dtype dtype = halves ? GW_BF16 : GW_F32;
        const gw_params p = params_of(spec);
        gw_report one = {0};
        fill(b, s, 0, b->g[0]);
        fill(b, EVEN, 1, b->r);
        if (s >= EQUAL) { /* or the sums would not be */
            memset(b->r, 0, N * sizeof *b->r);
        }
        const size_t want = encode(b, &p, 0, 0, dtype, &one);
        for (size_t w = 1; w < WAYS; w++) {
            gw_report many = {0};
            const size_t got = encode(b, &p, w, 1, dtype, &many);
            CHECK(got == want && memcmp(b->payload[0], b->payload[1], want) == 0,
                  "%s, shape %d, %s: %u threads leave another payload", spec, (int)s,
                  gw_dtype_name(dtype), threads[w]);
            CHECK(same(b->after, N), "%s, shape %d, %s: %u threads leave another residual", spec,
                  (int)s, gw_dtype_name(dtype), threads[w]);
            CHECK(memcmp(&one, &many, sizeof one) == 0, "%s, shape %d: %u threads report otherwise",
                  spec, (int)s, threads[w]);
        }
    }
}

static void sums_are_the_same(void **state)
{
    bench *b = *state;
    for (size_t k = 0; k < (size_t)SELECTING * SHAPES; k++) {
        const gw_params p = params_of(selecting[k / SHAPES]);
        const shape s = (shape)(k % SHAPES);
        const size_t bound = bound_of(&p, N);
        gw_payload payloads[RANKS];
        uint8_t *all = need(RANKS * bound);
        int finite[2];
        for (size_t i = 0; i < RANKS; i++) {
            fill(b, i == 1 ? s : EVEN, i, b->g[0]);
            memset(b->r, 0, N * sizeof *b->r);
            payloads[i].size = encode(b, &p, 0, 0, GW_F32, NULL);
            payloads[i].bytes = memcpy(all + i * bound, b->payload[0], payloads[i].size);
        }
        for (size_t w = 0; w < WAYS; w++) {
            gw_tensor out = {b->out[w != 0], N, GW_F32};
            assert_int_equal(
                gw_decode_sum(&p, &b->exec[w], payloads, RANKS, 3, &out, &finite[w != 0], NULL),
                GW_OK);
            CHECK(w == 0 || same(b->out, N), "%s, shape %d: %u threads make another sum",
                  selecting[k / SHAPES], (int)s, threads[w]);
            CHECK(w == 0 || finite[0] == finite[1], "%s: %u threads see other numbers",
                  selecting[k / SHAPES], threads[w]);
        }
        free(all);
    }
}

/* The first wrong payload is named, whoever looked at it; the output stays as it was. */
static void a_wrong_payload_is_told(void **state)
{
    bench *b = *state;
    const gw_params p = params_of("adacomp:bin=500");
    const size_t bound = bound_of(&p, N);
    gw_payload payloads[RANKS];
    uint8_t *all = need(RANKS * bound);
    fill(b, EVEN, 0, b->g[0]);
    memset(b->r, 0, N * sizeof *b->r);
    for (size_t i = 0; i < RANKS; i++) {
        payloads[i].size = encode(b, &p, 0, 0, GW_F32, NULL);
        payloads[i].bytes = memcpy(all + i * bound, b->payload[0], payloads[i].size);
    }
    all[bound] = 77;     /* a form that is none, in the second */
    all[2 * bound] = 78; /* and another in the third */
    for (size_t w = 0; w < WAYS; w++) {
        gw_tensor out = {b->out[0], N, GW_F32};
        gw_why why = {""};
        int finite = -1;
        memset(b->out[0], 0x55, N * sizeof(float));
        assert_int_equal(gw_decode_sum(&p, &b->exec[w], payloads, RANKS, 3, &out, &finite, &why),
                         GW_ERR_CORRUPT);
        CHECK(strstr(why.text, "form 77") != NULL, "%u threads say: %s", threads[w], why.text);
        memset(b->out[1], 0x55, N * sizeof(float));
        assert_memory_equal(b->out[0], b->out[1], N * sizeof(float));
    }
    free(all);
}

#ifndef GW_TESTS_NO_BLAS
/* Two exchanges of one rank, so that the second takes off what the first left due; everything it makes, one behind the other. */
static float *two_exchanges(bench *b, const char *spec, size_t w, size_t *floats)
{
    const gw_params p = params_of(spec);
    size_t bytes = 0, remembers = 0, owes = 0, most = 0;
    assert_int_equal(gw_rounds_workspace(&p, N, &bytes), GW_OK);
    assert_int_equal(gw_rounds_state(&p, N, &remembers), GW_OK);
    assert_int_equal(gw_rounds_due(&p, N, &owes), GW_OK);
    assert_int_equal(gw_rounds_elements(&p, N, 0, &most), GW_OK);
    give(&b->exec[w], bytes);
    *floats = 2 * (size_t)N + remembers + owes;
    float *all = need(2 * *floats * sizeof(float)), *now = all, *before = all + *floats;
    float *sum = need((most + (size_t)N) * sizeof(float));
    for (uint64_t step = 0; step < 2; step++) {
        const gw_stream stream = {.seed = 7, .step = step};
        const gw_tensor in = {b->g[step], N, GW_F32};
        float *const turn = now;
        now = before;
        before = turn;
        gw_tensor out = {now + N, N, GW_F32};
        const gw_rounds x = {.params = &p,
                             .exec = &b->exec[w],
                             .stream = &stream,
                             .in = &in,
                             .residual = before,
                             .residual_after = now,
                             .due = step != 0 && owes != 0 ? before + 2 * N + remembers : NULL,
                             .due_after = owes != 0 ? now + 2 * N + remembers : NULL,
                             .state = before + 2 * N,
                             .state_after = now + 2 * N};
        size_t n = 0;
        int finite = 0;
        for (unsigned i = 0; gw_rounds_elements(&p, N, i, &n) == GW_OK && n != 0; i++) {
            assert_int_equal(gw_rounds_make(&x, i, sum, NULL), GW_OK);
            assert_int_equal(gw_rounds_take(&x, i, sum), GW_OK);
        }
        assert_int_equal(gw_rounds_mean(&x, sum, 3, &out, &finite), GW_OK);
        assert_int_equal(finite, 1);
    }
    float *last = need(*floats * sizeof(float));
    memcpy(last, now, *floats * sizeof(float));
    free(sum);
    free(all);
    return last;
}

/* Two of the last rows alone have numbers, so only their products overflow: whoever made them, it is told. */
static void an_overflow_is_told(void **state)
{
    bench *b = *state;
    const gw_params p = params_of("lowrank:rank=2,cols=1000");
    const gw_stream stream = {.seed = 7};
    const gw_tensor in = {b->g[0], N, GW_F32};
    size_t bytes = 0, remembers = 0, n = 0;
    fill(b, EVEN, 0, b->g[0]);
    memset(b->g[0], 0, (N - 3000) * sizeof(float));
    assert_int_equal(gw_rounds_workspace(&p, N, &bytes), GW_OK);
    assert_int_equal(gw_rounds_state(&p, N, &remembers), GW_OK);
    float *memory[2] = {need(remembers * sizeof(float)), need(remembers * sizeof(float))};
    float *sum = need(2 * N * sizeof(float));
    for (size_t w = 0; w < WAYS; w++) {
        give(&b->exec[w], bytes);
        const gw_rounds x = {.params = &p,
                             .exec = &b->exec[w],
                             .stream = &stream,
                             .in = &in,
                             .state = memory[0],
                             .state_after = memory[1]};
        gw_tensor out = {b->out[0], N, GW_F32};
        int finite = 1;
        for (unsigned i = 0; gw_rounds_elements(&p, N, i, &n) == GW_OK && n != 0; i++) {
            assert_int_equal(gw_rounds_make(&x, i, sum, NULL), GW_OK);
            assert_int_equal(gw_rounds_take(&x, i, sum), GW_OK);
        }
        for (size_t j = 0; j < remembers; j++) {
            sum[j] = j % 1000 < 500 ? 3.4e38F : j < 1000 ? -3.4e38F : 3.4e38F; /* either sign */
        }
        assert_int_equal(gw_rounds_mean(&x, sum, 3, &out, &finite), GW_OK);
        CHECK(finite == 0, "%u threads do not see it", threads[w]);
        CHECK(b->out[0][0] == 0, "%u threads: the first row is not zero", threads[w]);
    }
    free(sum);
    free(memory[0]);
    free(memory[1]);
}

static void rounds_are_the_same(void **state)
{
    bench *b = *state;
    /* wide and narrow rows, one row, a last row that is shorter, and a rank that a library multiplies */
    static const char *const specs[] = {"lowrank:rank=4",           "lowrank:rank=4,cols=4096",
                                        "lowrank:rank=1,cols=100",  "lowrank:rank=2,cols=400000",
                                        "lowrank:rank=3,cols=1000", "lowrank:rank=8"};
    fill(b, EVEN, 0, b->g[0]);
    fill(b, EVEN, 1, b->g[1]);
    for (size_t k = 0; k < sizeof specs / sizeof specs[0]; k++) {
        size_t floats = 0;
        float *want = two_exchanges(b, specs[k], 0, &floats);
        for (size_t w = 1; w < WAYS; w++) {
            float *got = two_exchanges(b, specs[k], w, &floats);
            CHECK(same((float *[]){want, got}, floats),
                  "%s: %u threads leave another residual, mean or state", specs[k], threads[w]);
            free(got);
        }
        free(want);
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(encodings_are_the_same),  cmocka_unit_test(sums_are_the_same),
        cmocka_unit_test(a_wrong_payload_is_told),
#ifndef GW_TESTS_NO_BLAS
        cmocka_unit_test(rounds_are_the_same),     cmocka_unit_test(an_overflow_is_told),
#endif
    };
    return cmocka_run_group_tests_name("codec/threads", tests, set_up, tear_down);
}
