/* Which levels a tensor is offered, what they put on the wire, what they would lose. */
#include <math.h>

#include "support/check.h"
#include "support/gen.h"

enum { MOST = GW_ADAPT_MOST_LEVELS };

typedef struct offer {
    gw_params levels[MOST];
    uint64_t bytes[MOST];
    double errors[MOST];
    size_t n;
    uint32_t uniform;
    uint64_t elements;
} offer;

static gw_adapt_rules rules_of(const gw_params *families, size_t n, const char *uniform)
{
    return (gw_adapt_rules){.families = families, .n_families = n, .uniform = params_of(uniform)};
}

static void make(const gw_adapt_rules *rules, gw_dtype dtype, const uint64_t *dims, size_t n_dims,
                 offer *o)
{
    gw_why why = {""};
    const gw_status status =
        gw_adapt_levels(rules, dtype, dims, n_dims, o->levels, MOST, &o->n, &o->uniform, &why);
    CHECK(status == GW_OK, "%s", why.text);
    o->elements = 1;
    for (size_t i = 0; i < n_dims; i++) {
        o->elements *= dims[i];
    }
    assert_int_equal(gw_adapt_bytes(o->levels, o->n, o->elements, 0, o->bytes, NULL), GW_OK);
}

static gw_status measure(offer *o, gw_adapt_metric metric, const gw_tensor *in,
                         const float *residual)
{
    gw_exec exec = {0};
    gw_why why = {""};
    assert_int_equal(gw_adapt_measure_workspace(o->levels, o->n, in->count, &exec.workspace.size),
                     GW_OK);
    exec.workspace.data = malloc(exec.workspace.size);
    assert_non_null(exec.workspace.data);
    const gw_status status =
        gw_adapt_measure(o->levels, o->n, metric, &exec, in, residual, 1, o->errors, &why);
    free(exec.workspace.data);
    return status;
}

static double value_of(const gw_params *p, const char *name)
{
    for (size_t i = 0; i < gw_codec_param_count(p->codec); i++) {
        if (strcmp(gw_codec_param(p->codec, i)->name, name) == 0) {
            return p->value[i];
        }
    }
    return -1;
}

static int is_of(const gw_params *p, const char *codec)
{
    return strcmp(gw_codec_name(p->codec), codec) == 0;
}

/* Numbers of a few large and many small ones. */
static float *heavy(uint64_t n, uint64_t seed)
{
    gen g = {seed};
    float *x = malloc(n * sizeof *x + 1);
    assert_non_null(x);
    for (uint64_t i = 0; i < n; i++) {
        const double v = gen_normal(&g);
        x[i] = (float)(v * v * v);
    }
    return x;
}

static void lists(void **state)
{
    (void)state;
    static offer o;
    const gw_params families[] = {params_of("dither:bucket=128"), params_of("topk")};
    const gw_adapt_rules rules = rules_of(families, 2, "topk:density=0.01");
    const uint64_t dims[] = {64, 1000};
    make(&rules, GW_F32, dims, 2, &o);
    assert_int_equal(o.n, 1 + 7 + 45);
    assert_true(is_of(&o.levels[0], "cast") && value_of(&o.levels[0], "to") == GW_F32);
    assert_int_equal(o.bytes[0], 4 * 64000);
    for (size_t i = 1; i < 8; i++) {
        assert_true(is_of(&o.levels[i], "dither") && value_of(&o.levels[i], "bucket") == 128);
        assert_true(value_of(&o.levels[i], "bits") == (double)i + 1);
    }
    assert_true(value_of(&o.levels[8], "density") == 0.001);
    assert_true(value_of(&o.levels[o.n - 1], "density") == 0.5);
    assert_true(value_of(&o.levels[o.uniform], "density") == 0.01 &&
                is_of(&o.levels[o.uniform], "topk"));
    for (size_t i = 9; i < o.n; i++) { /* spec strings say all of a level */
        char text[256];
        assert_int_equal(gw_params_print(&o.levels[i], text, sizeof text), GW_OK);
        const gw_params again = params_of(text);
        assert_memory_equal(&again, &o.levels[i], sizeof again);
        assert_true(value_of(&o.levels[i], "density") > value_of(&o.levels[i - 1], "density"));
    }
    make(&rules, GW_F16, dims, 2, &o); /* levels that do not beat fp16 as it is are gone */
    assert_true(value_of(&o.levels[0], "to") == GW_F16 && o.bytes[0] == 2 * 64000);
    for (size_t i = 1; i < o.n; i++) {
        assert_true(o.bytes[i] < o.bytes[0]);
    }
    /* a default of none of the families joins the list */
    const gw_adapt_rules other = rules_of(families, 1, "natural:bits=8");
    make(&other, GW_F32, dims, 2, &o);
    assert_true(o.n == 9 && o.uniform == 8 && is_of(&o.levels[8], "natural"));
    /* nothing and next to nothing */
    const uint64_t empty[] = {0, 7};
    make(&rules, GW_F32, empty, 2, &o);
    assert_true(o.n == 1 && o.uniform == 0 && o.bytes[0] == 0);
    make(&rules, GW_F32, NULL, 0, &o);
    assert_true(o.bytes[0] == 4 && o.uniform == 0);
}

/* Check 11: vectors and small tensors stay as they are, and count in full. */
static void vectors_and_small_tensors(void **state)
{
    (void)state;
    static offer o;
    const gw_params family = params_of("topk");
    gw_adapt_rules rules = rules_of(&family, 1, "topk:density=0.01");
    rules.keep_vectors = 1;
    rules.min_elements = 1024;
    const uint64_t vector[] = {100000}, small[] = {31, 33}, enough[] = {32, 32};
    make(&rules, GW_F32, vector, 1, &o);
    assert_true(o.n == 1 && o.uniform == 0 && o.bytes[0] == 400000);
    make(&rules, GW_F32, small, 2, &o);
    assert_true(o.n == 1 && o.uniform == 0 && o.bytes[0] == 4 * 31 * 33);
    make(&rules, GW_F32, enough, 2, &o);
    assert_true(o.n > 1 && o.uniform != 0);
}

static void refusals(void **state)
{
    (void)state;
    static offer o;
    const uint64_t dims[] = {64, 1000};
    gw_why why = {""};
    const gw_params sign = params_of("sign"), topk = params_of("topk");
    gw_adapt_rules rules = rules_of(&sign, 1, "topk");
    assert_int_equal(
        gw_adapt_levels(&rules, GW_F32, dims, 2, o.levels, MOST, &o.n, &o.uniform, &why),
        GW_ERR_UNSUPPORTED);
    assert_non_null(strstr(why.text, "'sign'"));
    rules = rules_of(&topk, 1, "cast:to=bf16"); /* lossy here */
    assert_int_equal(
        gw_adapt_levels(&rules, GW_F32, dims, 2, o.levels, MOST, &o.n, &o.uniform, &why),
        GW_ERR_UNSUPPORTED);
    rules = rules_of(&topk, 1, "topk");
    assert_int_equal(gw_adapt_levels(&rules, GW_F32, dims, 2, o.levels, 10, &o.n, &o.uniform, &why),
                     GW_ERR_CAPACITY);
    make(&rules, GW_F32, dims, 2, &o);
    float *x = heavy(o.elements, 1);
    x[777] = NAN;
    const gw_tensor in = {x, o.elements, GW_F32};
    o.errors[0] = 55;
    assert_int_equal(measure(&o, GW_ADAPT_NORMS, &in, NULL), GW_ERR_RANGE);
    assert_true(o.errors[0] == 55);
    free(x);
}

/* Check 12, with dither's own formula: a scale of four bytes and the codes of each bucket. */
static void bytes_of_dither(void **state)
{
    (void)state;
    static offer o;
    static const uint64_t counts[] = {1, 7, 127, 128, 129, 1000, 4096, 100001};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
        for (uint64_t bucket = 64; bucket <= 1024; bucket *= 2) {
            char spec[64];
            (void)snprintf(spec, sizeof spec, "dither:bucket=%u", (unsigned)bucket);
            const gw_params family = params_of(spec);
            const gw_adapt_rules rules = rules_of(&family, 1, spec);
            make(&rules, GW_F32, &counts[c], 1, &o);
            for (size_t i = 1; i < o.n; i++) {
                const uint64_t bits = (uint64_t)value_of(&o.levels[i], "bits");
                uint64_t expected = 0;
                for (uint64_t at = 0; at < counts[c]; at += bucket) {
                    const uint64_t m = counts[c] - at < bucket ? counts[c] - at : bucket;
                    expected += 4 + (m * bits + 7) / 8;
                }
                CHECK(o.bytes[i] == expected, "%s, %llu bits, %llu elements: %llu bytes, not %llu",
                      spec, (unsigned long long)bits, (unsigned long long)counts[c],
                      (unsigned long long)o.bytes[i], (unsigned long long)expected);
            }
        }
    }
    uint64_t with[MOST];
    assert_int_equal(gw_adapt_bytes(o.levels, o.n, o.elements, 8, with, NULL), GW_OK);
    assert_true(with[1] == o.bytes[1] + 8);
}

/* Check 9, through the list: each level's error is that of compressing with it. */
static void errors_are_those_of_compressing(void **state)
{
    (void)state;
    static offer o;
    const gw_params families[] = {params_of("topk"), params_of("dither:rounding=nearest"),
                                  params_of("dither:rounding=nearest,bucket=64"),
                                  params_of("topk:density=0.02")};
    const gw_adapt_rules rules = rules_of(families, 4, "dither:bits=4,rounding=nearest");
    const uint64_t dims[] = {50, 200};
    make(&rules, GW_F32, dims, 2, &o);
    float *x = heavy(o.elements, 2), *r = heavy(o.elements, 3), *after = malloc(40000);
    const gw_tensor in = {x, o.elements, GW_F32};
    uint8_t *memory = malloc(1 << 20), *payload = malloc(1 << 20);
    assert_true(after != NULL && memory != NULL && payload != NULL);
    const gw_exec exec = {.workspace = {memory, 1 << 20}};
    assert_int_equal(measure(&o, GW_ADAPT_NORMS, &in, r), GW_OK);
    for (size_t i = 0; i < o.n; i++) {
        size_t written = 0;
        double sum = 0;
        assert_int_equal(gw_encode_feedback(&o.levels[i], &exec, NULL, &in, r, after, payload,
                                            1 << 20, &written, NULL),
                         GW_OK);
        for (uint64_t k = 0; k < o.elements; k++) {
            sum += (double)after[k] * (double)after[k];
        }
        CHECK(fabs(o.errors[i] - sqrt(sum)) <= 1e-6 * sqrt(sum), "level %zu: %g, measured %g", i,
              o.errors[i], sqrt(sum));
        CHECK(written == o.bytes[i], "level %zu: %zu bytes, not %llu", i, written,
              (unsigned long long)o.bytes[i]);
    }
    free(payload);
    free(memory);
    free(after);
    free(r);
    free(x);
}

static void metrics(void **state)
{
    (void)state;
    static offer norms, squares, relative;
    const gw_params family = params_of("dither");
    const gw_adapt_rules rules = rules_of(&family, 1, "dither");
    const uint64_t dims[] = {20, 30};
    float *x = heavy(600, 4);
    const gw_tensor in = {x, 600, GW_F32};
    double norm = 0;
    for (size_t i = 0; i < 600; i++) {
        norm += (double)x[i] * (double)x[i];
    }
    make(&rules, GW_F32, dims, 2, &norms);
    squares = relative = norms;
    assert_int_equal(measure(&norms, GW_ADAPT_NORMS, &in, NULL), GW_OK);
    assert_int_equal(measure(&squares, GW_ADAPT_SQUARES, &in, NULL), GW_OK);
    assert_int_equal(measure(&relative, GW_ADAPT_RELATIVE, &in, NULL), GW_OK);
    for (size_t i = 0; i < norms.n; i++) {
        assert_true(norms.errors[i] == sqrt(squares.errors[i]));
        assert_true(fabs(relative.errors[i] * norm - squares.errors[i]) <=
                    1e-12 * squares.errors[i]);
    }
    memset(x, 0, 600 * sizeof *x); /* nothing to lose */
    assert_int_equal(measure(&relative, GW_ADAPT_RELATIVE, &in, NULL), GW_OK);
    assert_true(relative.errors[1] == 0);
    free(x);
}

#ifndef GW_TESTS_NO_BLAS

/* Compressible tensors of a list of shapes, and elements before and after at this rank. */
static size_t count_compressible(const char *file, const char *spec, double ratio[1])
{
    static offer o;
    char path[512], line[256];
    const gw_params family = params_of(spec);
    gw_adapt_rules rules = rules_of(&family, 1, spec);
    size_t compressible = 0;
    uint64_t before = 0, after = 0;
    rules.min_ratio = 2;
    (void)snprintf(path, sizeof path, "%s/lgreco/%s", GW_TESTS_DATA, file);
    FILE *in = fopen(path, "r");
    CHECK(in != NULL, "no %s", path);
    assert_non_null(fgets(line, sizeof line, in)); /* titles */
    while (fgets(line, sizeof line, in) != NULL) {
        const char *at = strchr(line, ',');
        assert_non_null(at);
        char *end = NULL;
        const uint64_t dims[2] = {strtoull(at + 1, &end, 10), strtoull(end + 1, &end, 10)};
        const int is_vector = atoi(strrchr(line, ',') + 1);
        make(&rules, GW_F32, dims, is_vector ? 1 : 2, &o);
        size_t sent = 0, round = 0;
        for (unsigned i = 0;
             o.uniform != 0 &&
             gw_rounds_elements(&o.levels[o.uniform], o.elements, i, &round) == GW_OK && round != 0;
             i++) {
            sent += round;
        }
        compressible += o.uniform != 0;
        before += o.elements;
        after += o.uniform != 0 ? sent : o.elements;
    }
    (void)fclose(in);
    *ratio = (double)before / (double)after;
    return compressible;
}

/* 64 x 9 at rank 4: 292 numbers instead of 576, fewer, but not half as many. */
static void thin_matrices(void **state)
{
    (void)state;
    static offer o;
    const gw_params family = params_of("lowrank");
    gw_adapt_rules rules = rules_of(&family, 1, "lowrank:rank=4");
    const uint64_t dims[] = {64, 9}, vector[] = {576};
    make(&rules, GW_F32, dims, 2, &o);
    assert_true(o.uniform != 0 && o.bytes[o.uniform] == 8 + 4 * 292);
    rules.min_ratio = 2;
    make(&rules, GW_F32, dims, 2, &o);
    assert_true(o.n == 1 && o.uniform == 0);
    rules.min_ratio = 0;
    make(&rules, GW_F32, vector, 1, &o);
    assert_true(o.n == 1 && o.uniform == 0);
}

/* Check 10. */
static void published_shapes(void **state)
{
    (void)state;
    double ratio;
    assert_int_equal(count_compressible("resnet18_cifar100_shapes.csv", "lowrank:rank=4", &ratio),
                     21);
    CHECK(fabs(ratio - 72.22) < 0.005, "%.4f", ratio);
    assert_int_equal(count_compressible("resnet50_imagenet_shapes.csv", "lowrank:rank=4", &ratio),
                     54);
    CHECK(fabs(ratio - 66.54) < 0.005, "%.4f", ratio);
    assert_int_equal(
        count_compressible("transformer_xl_base_wt103_shapes.csv", "lowrank:rank=32", &ratio), 81);
    CHECK(fabs(ratio - 14.07) < 0.005, "%.4f", ratio);
}

/* ---- defects of the published code ---- */

static void offer_ranks(const char *spec, uint64_t rows, uint64_t cols, offer *o)
{
    const gw_params family = params_of(spec);
    const gw_adapt_rules rules = rules_of(&family, 1, spec);
    const uint64_t dims[] = {rows, cols};
    make(&rules, GW_F32, dims, 2, o);
    float *x = heavy(o->elements, rows + cols);
    const gw_tensor in = {x, o->elements, GW_F32};
    assert_int_equal(measure(o, GW_ADAPT_NORMS, &in, NULL), GW_OK);
    free(x);
}

/* 4: a crash where a matrix has fewer rows than the top rank; 5: an error of 0 for ranks it does not have. */
static void lgreco_4_5_matrices_smaller_than_the_top_rank(void **state)
{
    (void)state;
    static offer o;
    offer_ranks("lowrank:rank=4", 6, 4000, &o); /* ranks up to 16 asked for */
    assert_true(o.uniform != 0 && o.n > 3);
    for (size_t i = 1; i < o.n; i++) {
        assert_true(value_of(&o.levels[i], "rank") < 6 && o.errors[i] > 0);
    }
}

/* 6: ranks from 0 on: a layer was dropped, and nobody told. */
static void lgreco_6_no_rank_is_zero(void **state)
{
    (void)state;
    static offer o;
    offer_ranks("lowrank:rank=1", 100, 100, &o);
    assert_int_equal(o.n, 1 + 4);
    assert_true(value_of(&o.levels[1], "rank") == 1);
}

/* 7: each rank from a random start of its own: more rank, more error. 8: ranks that are larger than the tensor. */
static void lgreco_7_8_more_rank_is_never_worse_nor_larger_than_all(void **state)
{
    (void)state;
    static offer o;
    offer_ranks("lowrank:rank=32", 128, 160,
                &o); /* 128 is asked for; 71 beats the tensor as it is */
    assert_true(value_of(&o.levels[1], "rank") == 8);
    assert_true(value_of(&o.levels[o.n - 1], "rank") == 71);
    for (size_t i = 1; i < o.n; i++) {
        assert_true(o.bytes[i] < o.bytes[0]);
        assert_true(i == 1 || o.errors[i] <= o.errors[i - 1]);
    }
}

/* 9: what was logged went on counting the default. 13: one worker's gradients decided for all. */
static void lgreco_9_13_every_rank_counts_and_so_does_the_choice(void **state)
{
    (void)state;
    static offer o[2];
    double mean[2][MOST];
    const gw_params family = params_of("dither");
    const gw_adapt_rules rules = rules_of(&family, 1, "dither:bits=4");
    const uint64_t dims[] = {100, 100};
    uint32_t alone[2], both[2];
    gw_adapt_layer layers[2];
    static uint8_t memory[1 << 24];
    gw_adapt_choice choice = {.levels = alone};
    for (int turn = 0; turn < 2; turn++) { /* rank 0 by itself, then with rank 1 */
        for (size_t l = 0; l < 2; l++) {
            make(&rules, GW_F32, dims, 2, &o[l]);
            memset(mean[l], 0, sizeof mean[l]);
            for (size_t rank = 0; rank <= (size_t)turn; rank++) {
                float *x = heavy(10000, 10 * l + rank);
                for (size_t i = 0; i < 10000; i++) { /* layer 1 is small on rank 0 alone */
                    x[i] *= l == 0 ? 1 : rank == 0 ? 0.02f : 50;
                }
                const gw_tensor in = {x, 10000, GW_F32};
                assert_int_equal(measure(&o[l], GW_ADAPT_NORMS, &in, NULL), GW_OK);
                for (size_t i = 0; i < o[l].n; i++) {
                    mean[l][i] += o[l].errors[i] / (turn + 1);
                }
                free(x);
            }
            layers[l] = (gw_adapt_layer){.errors = mean[l],
                                         .bytes = o[l].bytes,
                                         .n = (uint32_t)o[l].n,
                                         .uniform = o[l].uniform};
        }
        choice.levels = turn == 0 ? alone : both;
        const gw_adapt_problem p = {layers, 2, 1, GW_ADAPT_DYNAMIC, 0};
        assert_int_equal(gw_adapt_choose(&p, (gw_workspace){memory, sizeof memory}, &choice, NULL),
                         GW_OK);
        const uint32_t *levels = choice.levels;
        assert_true(choice.bytes == o[0].bytes[levels[0]] + o[1].bytes[levels[1]]);
        assert_true(choice.bytes < choice.uniform_bytes);
    }
    assert_true(alone[0] != both[0] || alone[1] != both[1]);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists),
        cmocka_unit_test(vectors_and_small_tensors),
        cmocka_unit_test(refusals),
        cmocka_unit_test(bytes_of_dither),
        cmocka_unit_test(errors_are_those_of_compressing),
        cmocka_unit_test(metrics),
#ifndef GW_TESTS_NO_BLAS
        cmocka_unit_test(thin_matrices),
        cmocka_unit_test(published_shapes),
        cmocka_unit_test(lgreco_4_5_matrices_smaller_than_the_top_rank),
        cmocka_unit_test(lgreco_6_no_rank_is_zero),
        cmocka_unit_test(lgreco_7_8_more_rank_is_never_worse_nor_larger_than_all),
        cmocka_unit_test(lgreco_9_13_every_rank_counts_and_so_does_the_choice),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
