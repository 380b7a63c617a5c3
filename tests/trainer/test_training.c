/* Two ranks train the mlp on made-up images: as one rank with twice the batch would, and alike on both. */
#include "support/check.h"
#include "support/gen.h"
#include "support/ranks.h"

#include "trainer/rank.h"

#include <cblas.h>
#include <math.h>

enum { STEPS = 30, TRAIN = 400, TEST = 101, WIDTH = 20, CLASSES = 4, SEED = 3 };

/* A class is a random point; examples lie around it. */
static void fill(const dataset *data, int test, const uint32_t *which, size_t n, float *x,
                 int32_t *labels)
{
    for (size_t i = 0; i < n; i++) {
        gen g = {1000 + 2 * (uint64_t)which[i] + (uint64_t)test};
        (void)gen_u64(&g);
        labels[i] = (int32_t)gen_below(&g, CLASSES);
        gen centre = {(uint64_t)labels[i]};
        for (size_t j = 0; j < data->width; j++) {
            x[i * data->width + j] = (float)(gen_normal(&centre) + 0.5 * gen_normal(&g));
        }
    }
}

static const dataset data = {
    .train = TRAIN, .test = TEST, .rows = 1, .width = WIDTH, .classes = CLASSES, .fill = fill};

typedef struct run {
    rank_config config;
    int resumed_at;              /* the rank is made anew before this step; 0: never */
    size_t room;                 /* floats of weights */
    float *weights[RANKS_MAX];   /* at the end */
    double first, last;          /* loss, rank 0's */
    uint64_t bytes, dense_bytes; /* of the last step */
    loss test;
} run;

/* The test set, one example after the other. */
static loss evaluate_alone(model *m)
{
    loss sum = {0};
    for (uint32_t i = 0; i < TEST; i++) {
        float x[WIDTH];
        int32_t label = 0;
        fill(&data, 1, &i, 1, x, &label);
        const loss l = softmax_loss(1, CLASSES, model_forward(m, 1, x), &label, NULL);
        sum.sum += l.sum;
        sum.right += l.right;
        sum.rows++;
    }
    return sum;
}

/* Everything of the rank into a new one; what the codec holds back is none here. */
static void make_anew(rank **r, uint64_t step)
{
    rank *old = *r, *new = NULL;
    gw_why why = {""};
    rank_config config = old->config;
    config.first_step = step;
    RANK_OK(rank_create(&config, &data, old->comm, &new, &why), why.text);
    const size_t bytes = old->model->room * sizeof(float);
    memcpy(new->model->weights, old->model->weights, bytes);
    memcpy(new->optimiser.mean, old->optimiser.mean, bytes);
    rank_destroy(old);
    *r = new;
}

static void train(ranks *all, uint32_t rank_number, gw_comm *comm, void *arg)
{
    run *u = arg;
    gw_why why = {""};
    rank *r = NULL;
    rank_stats s;
    (void)all;
    RANK_OK(rank_create(&u->config, &data, comm, &r, &why), why.text);
    for (int i = 0; i < STEPS; i++) {
        if (u->resumed_at != 0 && i == u->resumed_at) {
            make_anew(&r, (uint64_t)i);
        }
        RANK_OK(rank_step(r, &s, &why), why.text);
        RANK_TRUE(s.step == (uint64_t)i && s.non_finite == 0, "a wrong step");
        if (rank_number == 0) {
            u->first = i == 0 ? s.loss : u->first;
            u->last = s.loss;
        }
    }
    loss test;
    RANK_OK(rank_evaluate(r, 0, &test, &why), why.text);
    const loss alone = evaluate_alone(r->model);
    RANK_TRUE(fabs(test.sum - alone.sum) < 1e-3 && test.right == alone.right &&
                  test.rows == alone.rows,
              "the test set was not shared out");
    u->weights[rank_number] = malloc(r->model->room * sizeof(float));
    RANK_TRUE(u->weights[rank_number] != NULL, "no memory");
    memcpy(u->weights[rank_number], r->model->weights, r->model->room * sizeof(float));
    if (rank_number == 0) {
        u->room = r->model->room;
        u->bytes = s.bytes_sent[0] + s.bytes_sent[1];
        u->dense_bytes = s.dense_bytes[0] + s.dense_bytes[1];
        u->test = test;
    }
    rank_destroy(r);
}

static run run_of(uint32_t n, size_t batch, const char *spec, optimiser_kind kind, int resumed_at)
{
    run u = {.resumed_at = resumed_at,
             .config = {.model = "mlp",
                        .batch = batch,
                        .seed = SEED,
                        .steps = STEPS,
                        .optimiser = {.kind = kind,
                                      .schedule = SCHEDULE_COSINE,
                                      .rate = kind == OPTIMISER_ADAM ? 0.003F : 0.05F,
                                      .momentum = 0.9F,
                                      .decay = 1e-4F},
                        .plan = {.spec = spec, .fuse_below = 300}}};
    const gw_threads_config config = {.ranks = n};
    ranks_run(&config, train, &u);
    return u;
}

static void end(run *u)
{
    for (int i = 0; i < RANKS_MAX; i++) {
        free(u->weights[i]);
    }
}

static double distance(const float *a, const float *b, size_t n)
{
    double apart = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        apart += pow((double)a[i] - (double)b[i], 2);
        size += (double)a[i] * (double)a[i];
    }
    return sqrt(apart / size);
}

static void two_ranks_are_one_with_twice_the_batch(void **state)
{
    (void)state;
    run one = run_of(1, 32, "dense", OPTIMISER_SGD, 0),
        two = run_of(2, 16, "dense", OPTIMISER_SGD, 0);
    run other = run_of(2, 8, "dense", OPTIMISER_SGD, 0);
    const double apart = distance(one.weights[0], two.weights[0], one.room);
    CHECK(apart < 1e-5, "weights are %g apart", apart);
    CHECK(fabs(one.last - two.last) < 1e-5, "losses %g and %g", one.last, two.last);
    CHECK(one.test.right == two.test.right && one.test.rows == TEST && two.test.rows == TEST,
          "%llu and %llu right of %llu and %llu", (unsigned long long)one.test.right,
          (unsigned long long)two.test.right, (unsigned long long)one.test.rows,
          (unsigned long long)two.test.rows);
    /* what a forgotten division, or rank, would look like */
    CHECK(distance(one.weights[0], other.weights[0], one.room) > 1e-3, "half the batch is as good");
    end(&one);
    end(&two);
    end(&other);
}

static void check_replicas(const char *spec, optimiser_kind kind, double fewer)
{
    run u = run_of(2, 16, spec, kind, 0);
    CHECK(memcmp(u.weights[0], u.weights[1], u.room * sizeof(float)) == 0,
          "%s: weights of the two ranks differ", spec);
    CHECK(u.last < 0.3 * u.first, "%s: loss went from %g to %g", spec, u.first, u.last);
    CHECK((double)u.test.right > 0.9 * TEST, "%s: %llu of %d right", spec,
          (unsigned long long)u.test.right, TEST);
    CHECK((double)u.dense_bytes > fewer * (double)u.bytes, "%s: %llu bytes sent, dense %llu", spec,
          (unsigned long long)u.bytes, (unsigned long long)u.dense_bytes);
    end(&u);
}

static void replicas_are_equal(void **state)
{
    (void)state;
    check_replicas("dense", OPTIMISER_SGD, 0.9);
    check_replicas("dense", OPTIMISER_ADAM, 0.9);
    check_replicas("natural:bits=8", OPTIMISER_SGD, 2.5);
    check_replicas("topk:density=0.05", OPTIMISER_SGD, 3);
    check_replicas("adacomp", OPTIMISER_SGD, 3);
    check_replicas("lowrank:rank=2", OPTIMISER_SGD, 3);
}

/* The same run twice is the same to the bit, and so is one that was interrupted: in the second epoch here. */
static void runs_repeat(void **state)
{
    (void)state;
    run a = run_of(2, 16, "natural:bits=8", OPTIMISER_SGD, 0);
    run b = run_of(2, 16, "natural:bits=8", OPTIMISER_SGD, 0);
    run c = run_of(2, 16, "natural:bits=8", OPTIMISER_SGD, 17);
    assert_memory_equal(a.weights[0], b.weights[0], a.room * sizeof(float));
    assert_memory_equal(a.weights[0], c.weights[0], a.room * sizeof(float));
    end(&a);
    end(&b);
    end(&c);
}

static void plans_are_checked(void **state)
{
    (void)state;
    const plan_config unknown = {.spec = "zip"};
    const plan_config unfit = {.spec = "lowrank:rank=2", .route = "sra"};
    gw_threads *world = NULL;
    gw_comm *comm = NULL;
    gw_why why = {""};
    const gw_threads_config one = {.ranks = 1};
    assert_int_equal(gw_threads_create(&one, &world, &why), GW_OK);
    assert_int_equal(gw_threads_comm(world, 0, &comm), GW_OK);
    rank_config config = {
        .model = "mlp", .batch = 1, .steps = 1, .optimiser = {.rate = 1}, .plan = unknown};
    rank *r = NULL;
    assert_int_equal(rank_create(&config, &data, comm, &r, &why), GW_ERR_UNKNOWN);
    CHECK(strstr(why.text, "zip") != NULL, "%s", why.text);
    config.plan = unfit;
    assert_int_not_equal(rank_create(&config, &data, comm, &r, &why), GW_OK);
    assert_null(r);
    comm->table->close(comm);
    gw_threads_destroy(world);
}

static void rates_follow_the_schedule(void **state)
{
    (void)state;
    optimiser_config c = {.rate = 1, .schedule = SCHEDULE_COSINE};
    assert_true(optimiser_rate(&c, 0, 100) == 1);
    assert_true(fabs((double)optimiser_rate(&c, 50, 100) - 0.5) < 1e-6);
    assert_true(optimiser_rate(&c, 99, 100) > 0 && optimiser_rate(&c, 99, 100) < 1e-3F);
    c.schedule = SCHEDULE_STEP;
    assert_true(optimiser_rate(&c, 49, 100) == 1 && optimiser_rate(&c, 50, 100) == 0.1F &&
                optimiser_rate(&c, 75, 100) == 0.01F);
    optimiser_config spike = {.rate = 1, .schedule = SCHEDULE_SPIKE};
    c.schedule = SCHEDULE_COSINE;
    for (uint64_t i = 0; i < 100; i++) { /* two steps of a hundred are far too high */
        const float times = optimiser_rate(&spike, i, 100) / optimiser_rate(&c, i, 100);
        assert_true(i == 40 || i == 41 ? times > 7 : times == 1);
    }
    c.schedule = SCHEDULE_CONSTANT;
    assert_true(optimiser_rate(&c, 99, 100) == 1);
    c.warmup = 10;
    assert_true(optimiser_rate(&c, 0, 100) == 0.1F && optimiser_rate(&c, 4, 100) == 0.5F &&
                optimiser_rate(&c, 9, 100) == 1 && optimiser_rate(&c, 10, 100) == 1);
}

/* Two steps, by hand. */
static void optimisers_follow_their_formulas(void **state)
{
    (void)state;
    optimiser_config c = {.rate = 0.1F, .momentum = 0.5F, .decay = 0.25F};
    optimiser o;
    float weight = 2;
    const float gradients[2] = {1, -3};
    assert_int_equal(optimiser_create(&o, &c, 1, NULL), GW_OK);
    optimiser_step(&o, 0, 2, &weight, &gradients[0]); /* m = 1 + 0.5 = 1.5 */
    assert_true(fabs((double)weight - 1.85) < 1e-6);
    optimiser_step(&o, 1, 2, &weight, &gradients[1]); /* m = 0.75 - 3 + 0.4625 */
    assert_true(fabs((double)weight - (1.85 + 0.17875)) < 1e-6);
    optimiser_destroy(&o);

    c = (optimiser_config){.kind = OPTIMISER_ADAM, .rate = 0.1F};
    weight = 2;
    assert_int_equal(optimiser_create(&o, &c, 1, NULL), GW_OK);
    optimiser_step(&o, 0, 2, &weight, &gradients[0]); /* whatever its size, a rate's worth */
    assert_true(fabs((double)weight - 1.9) < 1e-6);
    optimiser_step(&o, 1, 2, &weight, &gradients[1]);
    const double m = (0.9 * 0.1 - 0.1 * 3) / (1 - 0.81);
    const double v = (0.999 * 0.001 + 0.001 * 9) / (1 - 0.998001);
    assert_true(fabs((double)weight - (1.9 - 0.1 * m / sqrt(v))) < 1e-5);
    optimiser_destroy(&o);
    c.rate = 0;
    gw_why why = {""};
    assert_int_equal(optimiser_create(&o, &c, 1, &why), GW_ERR_RANGE);
}

int main(void)
{
    openblas_set_num_threads(1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(two_ranks_are_one_with_twice_the_batch),
                                       cmocka_unit_test(replicas_are_equal),
                                       cmocka_unit_test(runs_repeat),
                                       cmocka_unit_test(plans_are_checked),
                                       cmocka_unit_test(rates_follow_the_schedule),
                                       cmocka_unit_test(optimisers_follow_their_formulas)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
