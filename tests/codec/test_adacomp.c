/* AdaComp's operator to the letter: the note's worked example, its statistics, its edge cases. */
#include "support/check.h"
#include "support/gen.h"

#include "codec/adacomp/adacomp.h"
#include "codec/codec_impl.h"
#include "codec/source.h"

#include <math.h>

enum { HEADER = 16, MAX = 200000 };

typedef struct run {
    gw_params params;
    size_t n, written;
    float r[MAX], g[MAX], after[MAX], q[MAX];
    uint8_t payload[MAX / 2 + 64];
    uint64_t workspace[MAX / 4];
    gw_report report;
} run;

static run *run_new(const char *spec, size_t n)
{
    run *x = calloc(1, sizeof *x);
    assert_non_null(x);
    x->params = params_of(spec);
    x->n = n;
    return x;
}

/* One step; q is what was sent, r becomes what is left. */
static void step(run *x)
{
    const gw_exec exec = {.workspace = {x->workspace, sizeof x->workspace}};
    const gw_tensor in = {x->g, x->n, GW_F32};
    gw_tensor out = {x->q, x->n, GW_F32};
    gw_why why = {""};
    x->report = (gw_report){0};
    assert_int_equal(gw_encode_feedback(&x->params, &exec, NULL, &in, x->r, x->after, x->payload,
                                        sizeof x->payload, &x->written, &x->report),
                     GW_OK);
    const gw_status status =
        gw_decode(&x->params, &exec, x->payload, x->written, GW_SET, &out, &why);
    CHECK(status == GW_OK, "%s", why.text);
    memcpy(x->r, x->after, x->n * sizeof(float));
}

static float scale_of(const run *x)
{
    return gw_float(gw_get_u32(x->payload + 4));
}

static uint64_t sent_count(const run *x)
{
    uint64_t sent = 0;
    for (size_t i = 0; i < x->n; i++) {
        sent += x->q[i] != 0;
    }
    return sent;
}

/* The entries that form 0 would have, whatever form was sent. `before` is r before the step. */
static size_t entries_of(const run *x, const float *before, uint8_t *out)
{
    uint64_t sent[4] = {0};
    float after[64];
    for (size_t i = 0; i < x->n; i++) {
        after[i] = x->g[i] + before[i];
        sent[i / 64] |= (uint64_t)(x->q[i] != 0) << i % 64;
    }
    gw_source source = {.convert = &gw_convert_scalar,
                        .in = (const uint8_t *)x->g,
                        .dtype = GW_F32,
                        .count = x->n,
                        .residual = before,
                        .after = after,
                        .summed = x->n};
    const size_t bytes = gw_adacomp_entries(&x->params, &source, sent, scale_of(x), out);
    assert_memory_equal(after, x->after, x->n * sizeof(float));
    return bytes;
}

static void worked_example(void **state)
{
    (void)state;
    static const float g1[8] = {.75f, -.25f, .5f, .125f, .0625f, 0, -.125f, .03125f};
    static const float q1[8] = {.4375f, 0, .4375f, 0, .4375f, 0, -.4375f, 0};
    static const float r1[8] = {.3125f, -.25f, .0625f, .125f, -.375f, 0, .3125f, .03125f};
    static const uint8_t e1[4] = {0x00, 0x82, 0x00, 0xC2};
    static const float g2[8] = {-.5f, -.25f, .25f, .0625f, .0625f, 0, -.0625f, .03125f};
    static const float q2[8] = {-.40625f, -.40625f, .40625f, 0, 0, 0, 0, 0};
    static const float r2[8] = {.21875f, -.09375f, -.09375f, .1875f, -.3125f, 0, .25f, .0625f};
    static const uint8_t e2[4] = {0x40, 0x41, 0x82, 0xBF};
    run *x = run_new("adacomp:bin=4", 8);
    uint8_t entries[16];
    float before[8] = {0};
    memcpy(x->g, g1, sizeof g1);
    step(x);
    assert_true(scale_of(x) == .4375f);
    assert_memory_equal(x->q, q1, sizeof q1);
    assert_memory_equal(x->r, r1, sizeof r1);
    assert_int_equal(entries_of(x, before, entries), 4);
    assert_memory_equal(entries, e1, sizeof e1);
    /* with eight elements the bitmap is shorter, and that is what is sent */
    static const uint8_t p1[HEADER + 2] = {1, 0, 0, 0, 0, 0, 0xE0, 0x3E, 4,
                                           0, 0, 0, 0, 0, 0, 0,    0x55, 0x08};
    assert_int_equal(x->written, sizeof p1);
    assert_memory_equal(x->payload, p1, sizeof p1);
    memcpy(before, x->r, sizeof before);
    memcpy(x->g, g2, sizeof g2);
    step(x);
    assert_true(scale_of(x) == .40625f);
    assert_memory_equal(x->q, q2, sizeof q2);
    assert_memory_equal(x->r, r2, sizeof r2);
    assert_int_equal(entries_of(x, before, entries), 4);
    assert_memory_equal(entries, e2, sizeof e2);
    for (int i = 0; i < 8; i++) {
        assert_true(g1[i] + g2[i] == q1[i] + q2[i] + r2[i]);
    }
    free(x);
}

/* Section 2.1: it is not a contraction, and nobody may make it one silently. */
static void the_counter_example_to_contraction(void **state)
{
    (void)state;
    static const float r[4] = {1, -.875f, -.875f, -.875f}, g[4] = {0, 1, 1, 1},
                       left[4] = {0, -.875f, -.875f, -.875f};
    run *x = run_new("adacomp:bin=4", 4);
    memcpy(x->r, r, sizeof r);
    memcpy(x->g, g, sizeof g);
    step(x);
    assert_true(scale_of(x) == 1);
    assert_int_equal(sent_count(x), 4);
    assert_memory_equal(x->r, left, sizeof left);
    free(x);
}

/* Check 4: the selection against a double loop, ties and zeros among the data; check 6, the energy identity. */
static void selection_and_energy(void **state)
{
    (void)state;
    static const size_t bins[] = {1, 2, 48, 50, 63, 64, 500, 512, 16383};
    gen random = {71};
    for (size_t b = 0; b < 9; b++) {
        const size_t bin = bins[b], counts[] = {0, 1, bin - 1, bin, bin + 1, 10 * bin + 7};
        for (size_t c = 0; c < 6; c++) {
            const size_t n = counts[c] < MAX ? counts[c] : MAX;
            char spec[64];
            (void)snprintf(spec, sizeof spec, "adacomp:bin=%zu", bin);
            run *x = run_new(spec, n);
            float *G = calloc(n + 1, sizeof *G);
            double before = 0, after = 0, size = 0, sent = 0;
            assert_non_null(G);
            for (size_t i = 0; i < n; i++) { /* few distinct numbers: many ties; some cancel */
                x->g[i] = (float)((int)gen_below(&random, 17) - 8) * 0.125f;
                x->r[i] = gen_below(&random, 4) == 0
                              ? -x->g[i]
                              : (float)((int)gen_below(&random, 9) - 4) * 0.25f;
                G[i] = x->g[i] + x->r[i];
            }
            step(x);
            for (size_t i = 0; i < n; i++) {
                float top = 0;
                for (size_t j = i / bin * bin; j < n && j < (i / bin + 1) * bin && bin < 1000;
                     j++) {
                    top = fmaxf(top, fabsf(G[j]));
                }
                const int want = G[i] != 0 && fabsf(G[i] + x->g[i]) >= top;
                if (bin < 1000) {
                    CHECK((x->q[i] != 0) == want, "%s, n=%zu: element %zu", spec, n, i);
                }
                if (x->q[i] != 0) {
                    assert_true(x->q[i] == copysignf(scale_of(x), G[i]));
                    size += fabs((double)G[i]);
                    sent++;
                }
                before += (double)G[i] * (double)G[i];
                after += ((double)G[i] - (double)x->q[i]) * ((double)G[i] - (double)x->q[i]);
            }
            const double scale = (double)scale_of(x);
            assert_true(fabs(before - 2 * scale * size + sent * scale * scale - after) <=
                        1e-6 * before);
            free(G);
            free(x);
        }
    }
}

static void fill_normal(run *x, gen *g)
{
    for (size_t i = 0; i < x->n; i++) {
        x->g[i] = (float)gen_normal(g);
    }
}

/* Checks 9 and 11: the first step on Gaussian numbers, and more with a larger factor. */
static void first_step(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        size_t bin;
        double entries, slack, scale, scale_slack;
    } cases[] = {{"adacomp:bin=50", 50, 11.05, 0.7, 2.509, 0.07},
                 {"adacomp:bin=64", 64, 13.1, 0.8, 2.597, 0.07},
                 {"adacomp:bin=500", 500, 55.2, 8, 3.239, 0.15},
                 {"adacomp:bin=50,factor=1.5", 50, 5.4, 0.5, 2.509, 0.07},
                 {"adacomp:bin=50,factor=1", 50, 1, 0, 2.509, 0.07}};
    for (size_t c = 0; c < 5; c++) {
        gen g = {81};
        run *x = run_new(cases[c].spec,
                         2000 * cases[c].bin < MAX ? 2000 * cases[c].bin : 400 * cases[c].bin);
        fill_normal(x, &g);
        step(x);
        const double entries = (double)sent_count(x) / ((double)x->n / (double)cases[c].bin);
        CHECK(fabs(entries - cases[c].entries) <= cases[c].slack, "%s: %.2f entries a bin",
              cases[c].spec, entries);
        CHECK(fabs((double)scale_of(x) - cases[c].scale) <= cases[c].scale_slack, "%s: scale %.3f",
              cases[c].spec, (double)scale_of(x));
        free(x);
    }
}

/* Check 10: unit noise, 300 steps, the last 100: bytes on the wire, header included, and a bounded residual. */
static void steady_state(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        double low, high, residual;
    } cases[] = {{"adacomp:bin=50", 37, 44, 2.5}, {"adacomp:bin=500", 150, 210, 8}};
    for (size_t c = 0; c < 2; c++) {
        gen g = {91};
        run *x = run_new(cases[c].spec, 100000);
        double bytes = 0, size_r = 0, size_g = 0;
        for (int k = 0; k < 300; k++) {
            fill_normal(x, &g);
            step(x);
            bytes += k >= 200 ? (double)x->written : 0;
        }
        for (size_t i = 0; i < x->n; i++) {
            size_r += (double)x->r[i] * (double)x->r[i];
            size_g += (double)x->g[i] * (double)x->g[i];
        }
        const double ratio = 400.0 * (double)x->n / bytes;
        print_message("%s: %.1f times smaller, |R|/|dW| %.2f\n", cases[c].spec, ratio,
                      sqrt(size_r / size_g));
        CHECK(ratio >= cases[c].low && ratio <= cases[c].high, "%s: %.1f times smaller",
              cases[c].spec, ratio);
        assert_true(sqrt(size_r / size_g) <= cases[c].residual);
        free(x);
    }
}

/* Checks 7, 8, 12 and 13. */
static void edges(void **state)
{
    (void)state;
    run *x = run_new("adacomp:bin=50", 1000);
    step(x); /* all zero: one mark a bin */
    assert_int_equal(x->written, HEADER + 20);
    assert_true(scale_of(x) == 0 && sent_count(x) == 0);
    x->g[333] = -2; /* alone among zeros */
    step(x);
    assert_int_equal(sent_count(x), 1);
    assert_true(x->q[333] == -scale_of(x) && scale_of(x) == 2.0f / 20);
    memset(x->r, 0, sizeof x->r);
    memset(x->g, 0, sizeof x->g);
    x->r[5] = -1; /* G = 0 with |H| = 1: not sent */
    x->g[5] = 1;
    x->g[7] = .5f;
    step(x);
    assert_true(x->q[5] == 0 && x->r[5] == 0 && x->q[7] != 0);
    memset(x->g, 0, sizeof x->g);
    memset(x->r, 0, sizeof x->r);
    x->r[9] = -1; /* sign from G, not from H */
    x->g[9] = .75f;
    step(x);
    assert_true(x->q[9] == -scale_of(x) && scale_of(x) > 0);
    free(x);
    run *a = run_new("adacomp:bin=50", 5000), *b = run_new("adacomp:bin=50", 5000);
    gen g = {101};
    for (int k = 0; k < 20; k++) { /* scaled by 2^k: the same bytes but for the scale */
        fill_normal(a, &g);
        for (size_t i = 0; i < a->n; i++) {
            b->g[i] = ldexpf(a->g[i], -30);
        }
        step(a);
        step(b);
        assert_int_equal(a->written, b->written);
        assert_true(ldexpf(scale_of(a), -30) == scale_of(b));
        assert_memory_equal(a->payload + 8, b->payload + 8, a->written - 8);
    }
    free(a);
    free(b);
}

/* The cap: what does not fit stays in the residual, in order, and is counted. */
static void the_cap_holds_back(void **state)
{
    (void)state;
    run *all = run_new("adacomp:bin=500", 50000),
        *some = run_new("adacomp:bin=500,cap=5000", 50000);
    gen g = {111};
    fill_normal(all, &g);
    memcpy(some->g, all->g, sizeof some->g);
    step(all);
    step(some);
    assert_true(all->written > 5000 && some->written <= 5000 && some->written > 4900);
    assert_int_equal(some->report.held_back, sent_count(all) - sent_count(some));
    size_t i = 0;
    for (; i < all->n && some->q[i] == all->q[i]; i++) { /* the same beginning */
    }
    for (; i < all->n; i++) { /* and nothing behind it */
        assert_true(some->q[i] == 0 && some->r[i] == some->g[i]);
    }
    free(all);
    free(some);
}

/* Check 15. */
static void malformed_messages(void **state)
{
    (void)state;
    static const struct {
        const char *words;
        size_t at, size;
        uint8_t byte;
    } cases[] = {{"form 3", 0, 0, 3},
                 {"reserved", 1, 0, 1},
                 {"scale of pattern", 7, 0, 0xFF},
                 {"scale of pattern", 7, 0, 0x80},
                 {"do not make", 8, 0, 1},
                 {"do not make", 0, 40, 0},
                 {"header alone", 0, 15, 0},
                 {"outside of its bin", 16, 0, 60},
                 {"do not make", 15, 0, 0x80}};
    run *x = run_new("adacomp:bin=50", 1000);
    gen g = {121};
    for (int k = 0; k < 30; k++) {
        fill_normal(x, &g);
        step(x);
    }
    assert_int_equal(x->payload[0], 0);
    float y[1000] = {0};
    gw_tensor out = {y, 1000, GW_F32};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t bad[2048];
        gw_why why = {""};
        memcpy(bad, x->payload, x->written);
        bad[cases[i].at] = cases[i].byte;
        const size_t size = cases[i].size ? cases[i].size : x->written;
        const gw_status status = gw_decode(&x->params, NULL, bad, size, GW_ADD, &out, &why);
        CHECK(status < 0 && strstr(why.text, cases[i].words) != NULL, "case %zu: %d '%s'", i,
              status, why.text);
    }
    uint8_t bad[2048];
    memcpy(bad, x->payload,
           x->written); /* the last mark gone: two bins in one, and too few of them */
    for (size_t i = HEADER; i < x->written; i++) {
        bad[i] &= 0x7F;
        gw_why why = {""};
        if (x->payload[i] & 0x80) {
            assert_int_equal(gw_decode(&x->params, NULL, bad, x->written, GW_ADD, &out, &why),
                             GW_ERR_CORRUPT);
        }
        bad[i] = x->payload[i];
    }
    for (size_t i = 0; i < 1000; i++) {
        assert_true(y[i] == 0);
    }
    free(x);
}

/* docs/wire-format.md 3.8, bin by bin. */
static int entries_are_right(const uint32_t *entries, size_t n, uint32_t bits, size_t bin,
                             size_t count)
{
    const uint32_t empty = (1u << bits) - 1;
    size_t at = 0;
    for (size_t first = 0; first < count; first += bin) {
        const size_t length = count - first < bin ? count - first : bin;
        int64_t before = -1;
        int ended = at < n && entries[at] == (empty | 2u << bits);
        at += (size_t)ended;
        while (!ended) {
            if (at == n || entries[at] % (empty + 1) >= length ||
                (int64_t)(entries[at] % (empty + 1)) <= before) {
                return 0;
            }
            before = entries[at] % (empty + 1);
            ended = entries[at++] >> (bits + 1) != 0;
        }
    }
    return at == n;
}

/* Every sequence of up to `most` entries, of those that stand at a border of something. */
static void all_sequences(const char *spec, size_t bin, size_t count, size_t most)
{
    const gw_params params = params_of(spec);
    const uint32_t bits = bin <= 63 ? 6 : 14, empty = (1u << bits) - 1;
    const uint32_t b = (uint32_t)bin, indices[] = {0, 1, b - 2, b - 1, b, empty - 1, empty};
    enum { INDICES = 7, KINDS = 4 * INDICES };
    size_t sequences = 1, right = 0, width = bits == 6 ? 1 : 2;
    for (size_t n = 0; n <= most; n++, sequences *= KINDS) {
        for (size_t number = 0; number < sequences; number++) {
            uint32_t entries[4] = {0};
            uint8_t payload[HEADER + 8] = {0};
            size_t digits = number;
            for (size_t j = 0; j < n; j++, digits /= KINDS) {
                const uint32_t kind = (uint32_t)(digits % KINDS);
                entries[j] = indices[kind % INDICES] | kind / INDICES << bits;
                payload[HEADER + width * j] = (uint8_t)entries[j];
                if (width == 2) {
                    payload[HEADER + 2 * j + 1] = (uint8_t)(entries[j] >> 8);
                }
            }
            payload[8] = (uint8_t)n;
            const int want = entries_are_right(entries, n, bits, bin, count);
            const gw_status status =
                gw_payload_check(&params, payload, HEADER + width * n, count, NULL);
            CHECK(status == (want ? GW_OK : GW_ERR_CORRUPT), "%s: sequence %zu of %zu entries: %d",
                  spec, number, n, status);
            right += (size_t)want;
        }
    }
    CHECK(right > 100, "%s: only %zu were right", spec, right);
}

static void every_short_message(void **state)
{
    (void)state;
    all_sequences("adacomp:bin=5", 5, 13, 4); /* three bins, the last of three elements */
    all_sequences("adacomp:bin=63", 63, 65, 3);
    all_sequences("adacomp:bin=100", 100, 199, 3);
    all_sequences("adacomp:bin=16383", 16383, 16385, 3);
}

/* Entries are looked at many at once: also where those end. */
static void a_long_message(void **state)
{
    (void)state;
    const gw_params params = params_of("adacomp:bin=500");
    enum { ENTRIES = 1000, N = 500 * ENTRIES };
    uint8_t payload[HEADER + 2 * ENTRIES] = {[8] = ENTRIES % 256, [9] = ENTRIES / 256};
    for (size_t i = 0; i < ENTRIES; i++) { /* one element of each bin */
        payload[HEADER + 2 * i] = (uint8_t)(i % 200);
        payload[HEADER + 2 * i + 1] = 0x80;
    }
    assert_int_equal(gw_payload_check(&params, payload, sizeof payload, N, NULL), GW_OK);
    for (size_t i = 0; i < ENTRIES; i++) {
        uint8_t *high = payload + HEADER + 2 * i + 1;
        *high = 0x02; /* its bin goes on: one bin too few, or an index that does not ascend */
        assert_int_equal(gw_payload_check(&params, payload, sizeof payload, N, NULL),
                         GW_ERR_CORRUPT);
        *high = 0x82; /* past the end of its bin */
        assert_int_equal(gw_payload_check(&params, payload, sizeof payload, N, NULL),
                         GW_ERR_CORRUPT);
        *high = 0x80;
    }
}

/* Tensors too large for the cache take another way to r′: the bytes of scalar C all the same, also with r′ in the
 * gradient's own buffer, whatever the pointers' alignment. */
static void large_tensors(void **state)
{
    (void)state;
    enum { N = (4 << 20) + 1013 };
    static const char *const specs[] = {"adacomp:bin=50", "adacomp:bin=500", "adacomp:bin=16383"};
    float *g = calloc(N, sizeof *g), *r = calloc(N, sizeof *r), *want = calloc(N, sizeof *want),
          *got = calloc(N + 16, sizeof *got);
    gen random = {131};
    assert_true(g && r && want && got);
    for (size_t i = 0; i < N; i++) {
        g[i] = (float)((int)gen_below(&random, 2001) - 1000) * 0x1p-10f;
        r[i] = (float)((int)gen_below(&random, 20001) - 10000) * 0x1p-12f;
    }
    for (size_t s = 0; s < 3; s++) {
        const gw_params params = params_of(specs[s]);
        size_t bound, need, expected, written;
        assert_int_equal(gw_payload_bound(&params, N, &bound), GW_OK);
        assert_int_equal(gw_codec_workspace(&params, GW_F32, N, 1, 1, &need), GW_OK);
        uint8_t *a = malloc(bound), *b = malloc(bound), *workspace = malloc(need);
        gw_exec exec = {.isa = GW_ISA_SCALAR, .workspace = {workspace, need}};
        gw_tensor in = {g, N, GW_F32};
        assert_true(a && b && workspace);
        assert_int_equal(
            gw_encode_feedback(&params, &exec, NULL, &in, r, want, a, bound, &expected, NULL),
            GW_OK);
        for (int isa = GW_ISA_SCALAR; isa < GW_ISA_COUNT; isa++) {
            exec.isa = (gw_isa)isa;
            if (!gw_codec_has_isa(params.codec, exec.isa) || !gw_isa_runs_here(exec.isa)) {
                continue;
            }
            for (size_t shift = 0; shift < 6; shift += 5) {
                float *after = got + shift;
                in.data = shift == 0 ? g : after;
                memcpy(after, g, N * sizeof *g); /* in place the second time */
                assert_int_equal(gw_encode_feedback(&params, &exec, NULL, &in, r, after, b, bound,
                                                    &written, NULL),
                                 GW_OK);
                CHECK(written == expected && memcmp(a, b, written) == 0, "%s, %s, shifted by %zu",
                      specs[s], gw_isa_name(exec.isa), shift);
                assert_memory_equal(after, want, N * sizeof *want);
            }
        }
        free(a);
        free(b);
        free(workspace);
    }
    free(g);
    free(r);
    free(want);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worked_example),
        cmocka_unit_test(the_counter_example_to_contraction),
        cmocka_unit_test(selection_and_energy),
        cmocka_unit_test(first_step),
        cmocka_unit_test(steady_state),
        cmocka_unit_test(edges),
        cmocka_unit_test(the_cap_holds_back),
        cmocka_unit_test(malformed_messages),
        cmocka_unit_test(every_short_message),
        cmocka_unit_test(a_long_message),
        cmocka_unit_test(large_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
