/* topk's payload against a reading of it bit by bit, as docs/wire-format.md 3.6 has it: lists of every shape, and
 * what every single wrong bit makes of them. Payloads stand in memory of exactly their size, so that sanitizers
 * see a word that is read beyond the end. */
#include "support/check.h"
#include "support/gen.h"

#include "base/numeric.h"

#include <math.h>

enum { MOST = 70000 };

typedef struct list {
    size_t n, kept, low_bits, low_at, high_at, high_bits, bytes; /* at: bytes */
} list;

static list list_of(double density, size_t n)
{
    const double some = floor(density * (double)n + 0.5);
    list l = {.n = n, .kept = n == 0 ? 0 : some < 1 ? 1 : (size_t)some};
    while (l.kept != 0 && l.kept << (l.low_bits + 1) <= n) {
        l.low_bits++;
    }
    l.low_at = 4 * l.kept;
    l.high_at = l.low_at + (l.kept * l.low_bits + 7) / 8;
    l.high_bits = l.kept == 0 ? 0 : l.kept + ((n - 1) >> l.low_bits);
    l.bytes = l.high_at + (l.high_bits + 7) / 8;
    return l;
}

static size_t bit_at(const uint8_t *bytes, size_t i)
{
    return (size_t)bytes[i / 8] >> i % 8 & 1;
}

/* The tensor, or 0 if a reader has to refuse. */
static int read_slowly(const list *l, const uint8_t *payload, float *out)
{
    const uint8_t *low = payload + l->low_at, *high = payload + l->high_at;
    size_t j = 0, least = 0;
    memset(out, 0, l->n * sizeof *out);
    for (size_t i = l->kept * l->low_bits; i < 8 * (l->high_at - l->low_at); i++) {
        if (bit_at(low, i)) {
            return 0;
        }
    }
    for (size_t i = 0; i < 8 * (l->bytes - l->high_at); i++) {
        if (!bit_at(high, i)) {
            continue;
        }
        if (j == l->kept || i >= l->high_bits) {
            return 0;
        }
        size_t index = (i - j) << l->low_bits;
        for (size_t b = 0; b < l->low_bits; b++) {
            index |= bit_at(low, j * l->low_bits + b) << b;
        }
        if (index < least || index >= l->n) {
            return 0;
        }
        memcpy(&out[index], payload + 4 * j, sizeof *out);
        least = index + 1;
        j++;
    }
    return j == l->kept;
}

static void expect_same(const gw_params *p, const list *l, const uint8_t *payload, float *want,
                        float *got, const char *what)
{
    const int good = read_slowly(l, payload, want);
    gw_tensor out = {got, l->n, GW_F32};
    const gw_payload one = {payload, l->bytes};
    gw_why why = {""};
    int finite = 0;
    memset(got, 0x55, l->n * sizeof *got);
    const gw_status status = gw_decode(p, NULL, payload, l->bytes, GW_SET, &out, &why);
    CHECK(status == (good ? GW_OK : GW_ERR_CORRUPT), "%zu of %zu, %s: %s", l->kept, l->n, what,
          why.text);
    CHECK(!good || memcmp(got, want, l->n * sizeof *got) == 0, "%zu of %zu, %s: other numbers",
          l->kept, l->n, what);
    memset(got, 0x55, l->n * sizeof *got); /* block by block */
    assert_int_equal(gw_decode_sum(p, NULL, &one, 1, 1, &out, &finite, NULL), status);
    CHECK(!good || memcmp(got, want, l->n * sizeof *got) == 0, "%zu of %zu, %s: other sums",
          l->kept, l->n, what);
}

static void lists_of_every_shape(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 2, 3, 7, 8, 9, 63, 64, 65, 100, 511, 1000, 4096, 5001, MOST};
    static const double densities[] = {0.00001, 0.001, 0.01, 0.015, 0.1, 0.3, 0.5, 0.7, 1};
    float *x = malloc(MOST * sizeof *x), *want = malloc(MOST * sizeof *x),
          *got = malloc(MOST * sizeof *x);
    gw_exec exec = {.workspace = {malloc(1 << 21), 1 << 21}};
    gen g = {7};
    assert_non_null(x);
    assert_non_null(want);
    assert_non_null(got);
    assert_non_null(exec.workspace.data);
    for (size_t c = 0; c < 15 * 9 * 3; c++) {
        const size_t n = counts[c / 27];
        const double density = densities[c / 3 % 9];
        const list l = list_of(density, n);
        gw_params p = params_of("topk");
        p.value[0] = density;
        assert_int_equal(bound_of(&p, n), l.bytes);
        uint8_t *payload = malloc(l.bytes);
        assert_non_null(payload);
        gen_fill(&g, GEN_NORMAL, GW_F32, x, n);
        for (size_t i = 0; c % 3 != 0 && i < n;
             i++) { /* all at one end: long runs in the high bits */
            x[i] *= (c % 3 == 1) == (i < n / 2) ? 1 : 1e-6f;
        }
        const gw_tensor in = {x, n, GW_F32};
        size_t written = 0;
        assert_int_equal(gw_encode(&p, &exec, NULL, &in, payload, l.bytes, &written, NULL), GW_OK);
        assert_int_equal(written, l.bytes);
        assert_true(read_slowly(&l, payload, want));
        for (size_t i = 0; i < n; i++) {
            assert_true(want[i] == 0 || gw_bits(want[i]) == gw_bits(x[i]));
        }
        expect_same(&p, &l, payload, want, got, "as written");
        const size_t bits = 8 * (l.bytes - l.low_at), step = n > 1000 ? bits / 61 + 1 : 1;
        for (size_t i = 0; i < bits; i += step) {
            payload[l.low_at + i / 8] ^= (uint8_t)(1u << i % 8);
            expect_same(&p, &l, payload, want, got, "a wrong bit");
            if (i > 0) { /* and another, so that the number of ones may be right again */
                const size_t other = i - 1 - (i % 5 < i ? i % 5 : 0);
                payload[l.low_at + other / 8] ^= (uint8_t)(1u << other % 8);
                expect_same(&p, &l, payload, want, got, "two wrong bits");
                payload[l.low_at + other / 8] ^= (uint8_t)(1u << other % 8);
            }
            payload[l.low_at + i / 8] ^= (uint8_t)(1u << i % 8);
        }
        free(payload);
    }
    free(exec.workspace.data);
    free(x);
    free(want);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(lists_of_every_shape)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
