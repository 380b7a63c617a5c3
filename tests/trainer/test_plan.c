/* One plan, run by the trainer from its file and by a C program that has it built in: every rank posts the same messages. With the
 * argument `print` it writes the file and what the C program posts, for a test of PyTorch (tests/python/test_plan.py). */
#include "comm/faulty.h"
#include "support/check.h"
#include "support/gen.h"
#include "support/ranks.h"

#include <gradwire/files.h>

#include "trainer/rank.h"

enum { RANKS = 2, STEPS = 2, MOST = 4096, PARAMS = 6, WIDTH = 20, CLASSES = 4 };

#define TENSOR(name, elements, spec, route, bucket)                                                \
    "{\"name\":\"" name "\",\"elements\":" #elements ",\"spec\":\"" spec "\",\"route\":\"" route   \
    "\",\"bucket\":" #bucket "}"

/* A bucket that is coded, one that is not, an order that is not the model's, four routes. */
static const char file[] =
    "{\"format\":\"gradwire.plan/1\",\"job\":{\"name\":\"mlp\",\"checksum\":\"none\"},"
    "\"cluster\":{\"name\":\"two\",\"checksum\":\"none\",\"nodes\":1,\"ranks_per_node\":2},"
    "\"predicted\":{\"step_ms\":1,\"dense_ms\":1,\"bf16_ms\":1,\"all_compressed_ms\":1,"
    "\"zero_cost_ms\":1,\"lower_bound_ms\":1,\"step_high_ms\":1,\"dense_high_ms\":1,\"gap\":0},"
    "\"tensors\":[" TENSOR("fc2.bias", 128, "sign", "gather", 0) "," TENSOR(
        "fc3.weight", 512, "sign", "gather",
        0) "," TENSOR("fc3.bias", 4, "dense", "dense",
                      1) "," TENSOR("fc1.bias", 256, "dense", "dense",
                                    1) "," TENSOR("fc1.weight", 5120, "natural:bits=8", "hier2-sra",
                                                  2) "," TENSOR("fc2.weight", 32768,
                                                                "dither:bits=4", "sra", 3) "]}";

/* The same, by hand: layers in the order of backward. */
static const struct tensor {
    const char *name;
    uint64_t elements;
    const char *spec, *route;
    uint32_t bucket;
} tensors[PARAMS] = {
    {"fc3.bias", 4, NULL, "dense", 1},      {"fc3.weight", 512, "sign", "gather", 2},
    {"fc2.bias", 128, "sign", "gather", 2}, {"fc2.weight", 32768, "dither:bits=4", "sra", 4},
    {"fc1.bias", 256, NULL, "dense", 1},    {"fc1.weight", 5120, "natural:bits=8", "hier2-sra", 6},
};

static const uint32_t wire[PARAMS] = {2, 1, 0, 4, 5, 3};

/* What a rank posts, group by group in the order of posts; and what each param is said to have sent. */
typedef struct log {
    size_t n;
    struct {
        uint64_t group;
        uint32_t member;
        size_t bytes;
    } message[MOST];
    uint64_t sent[PARAMS];
} log;

static void take_down(void *with, uint64_t group, uint32_t member, size_t bytes)
{
    log *l = with;
    RANK_TRUE(l->n < MOST, "more messages than the log holds");
    size_t at = l->n++;
    for (; at > 0 && l->message[at - 1].group > group; at--) {
        l->message[at] = l->message[at - 1];
    }
    l->message[at].group = group;
    l->message[at].member = member;
    l->message[at].bytes = bytes;
}

/* ---- the trainer ---- */

static void fill(const dataset *data, int test, const uint32_t *which, size_t n, float *x,
                 int32_t *labels)
{
    gen g = {which[0] + 7U + (uint64_t)test};
    for (size_t i = 0; i < n; i++) {
        labels[i] = (int32_t)gen_below(&g, CLASSES);
        for (size_t j = 0; j < data->width; j++) {
            x[i * data->width + j] = (float)gen_normal(&g);
        }
    }
}

static const dataset data = {
    .train = 100, .test = 10, .rows = 1, .width = WIDTH, .classes = CLASSES, .fill = fill};

typedef struct job {
    log logs[RANKS];
    const gw_plan_file *plan;
    int with_loss; /* the program has a first layer of two numbers, as the trainer has */
} job;

static void trainer_main(ranks *all, uint32_t rank_number, gw_comm *comm, void *arg)
{
    job *j = arg;
    log *l = &j->logs[rank_number];
    gw_why why = {""};
    rank *r = NULL;
    rank_stats stats;
    (void)all;
    gw_comm *heard = faulty_wrap(comm, (fault){.kind = FAULT_NONE});
    RANK_TRUE(heard != NULL && j->plan->n == PARAMS, "no memory, or another plan");
    const rank_config config = {.model = "mlp",
                                .batch = 4,
                                .seed = 3,
                                .steps = STEPS,
                                .optimiser = {.rate = 0.125F},
                                .plan = {.file = j->plan},
                                .ranks_per_node = RANKS};
    RANK_OK(rank_create(&config, &data, heard, &r, &why), why.text);
    faulty_listen(heard, take_down, l);
    for (int step = 0; step < STEPS; step++) {
        RANK_OK(rank_step(r, &stats, &why), why.text);
    }
    faulty_listen(heard, NULL, NULL);
    for (uint32_t i = 0; i < PARAMS; i++) {
        const gw_layer_stats *of = &r->layers[RANK_FIRST_PARAM + i];
        RANK_TRUE(strcmp(r->model->params[i]->name, tensors[i].name) == 0, "another model");
        l->sent[i] = of->bytes_sent[0] + of->bytes_sent[1];
    }
    rank_destroy(r);
    heard->table->close(heard);
}

/* ---- a C program ---- */

static void add_layers(gw_step *step, uint32_t first)
{
    uint32_t order[PARAMS + 1] = {0}, buckets[PARAMS + 1] = {0}, number = 0;
    const uint64_t two = 2;
    gw_why why = {""};
    if (first != 0) {
        RANK_OK(gw_step_add(step, "loss", &two, 1, GW_F32, &number, &why), why.text);
    }
    for (uint32_t i = 0; i < PARAMS; i++) {
        const struct tensor *l = &tensors[i];
        const gw_params params = l->spec != NULL ? params_of(l->spec) : (gw_params){.codec = NULL};
        gw_route route;
        RANK_OK(gw_route_parse(&route, l->route, &why), why.text);
        RANK_OK(gw_step_add(step, l->name, &l->elements, 1, GW_F32, &number, &why), why.text);
        RANK_OK(gw_step_plan(step, number, l->spec != NULL ? &params : NULL, &route, &why),
                why.text);
        buckets[number] = l->bucket;
    }
    for (uint32_t i = 0; i < PARAMS; i++) {
        order[first + i] = first + wire[i];
    }
    RANK_OK(gw_step_order(step, order, first + PARAMS, &why), why.text);
    RANK_OK(gw_step_buckets(step, buckets, first + PARAMS, &why), why.text);
    RANK_OK(gw_step_agree(step, &why), why.text);
}

static void program_main(ranks *all, uint32_t rank_number, gw_comm *comm, void *arg)
{
    job *j = arg;
    log *l = &j->logs[rank_number];
    const uint32_t first = j->with_loss ? 1 : 0;
    float *gradient[PARAMS], ended[2] = {1, 0};
    gw_why why = {""};
    gw_step *step = NULL;
    gen g = {rank_number};
    (void)all;
    gw_comm *heard = faulty_wrap(comm, (fault){.kind = FAULT_NONE});
    RANK_TRUE(heard != NULL, "no memory");
    const gw_step_config config = {.comm = heard, .ranks_per_node = RANKS, .own_thread = 1};
    RANK_OK(gw_step_create(&config, &step, &why), why.text);
    add_layers(step, first);
    faulty_listen(heard, take_down, l);
    for (int k = 0; k < STEPS; k++) {
        const gw_tensor said = {ended, 2, GW_F32};
        if (first != 0) {
            RANK_OK(gw_step_post(step, 0, &said, &why), why.text);
        }
        for (uint32_t i = 0; i < PARAMS; i++) {
            gradient[i] = k == 0 ? calloc(tensors[i].elements, sizeof(float)) : gradient[i];
            RANK_TRUE(gradient[i] != NULL, "no memory");
            for (uint64_t n = 0; n < tensors[i].elements; n++) {
                gradient[i][n] = (float)gen_normal(&g);
            }
            const gw_tensor tensor = {gradient[i], (size_t)tensors[i].elements, GW_F32};
            RANK_OK(gw_step_post(step, first + i, &tensor, &why), why.text);
        }
        RANK_OK(gw_step_wait(step, NULL, &why), why.text);
    }
    faulty_listen(heard, NULL, NULL);
    for (uint32_t i = 0; i < PARAMS; i++) {
        gw_layer_stats stats;
        RANK_OK(gw_step_stats(step, first + i, &stats), "stats");
        l->sent[i] = stats.bytes_sent[0] + stats.bytes_sent[1];
        free(gradient[i]);
    }
    gw_step_destroy(step);
    heard->table->close(heard);
}

static job *run(ranks_main *main, const gw_plan_file *plan, int with_loss)
{
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->plan = plan;
    j->with_loss = with_loss;
    ranks_run(&(gw_threads_config){.ranks = RANKS, .ranks_per_node = RANKS}, main, j);
    return j;
}

/* ---- compared ---- */

static void compare(const log *a, const log *b)
{
    CHECK(a->n == b->n, "the trainer posts %zu messages, the program %zu", a->n, b->n);
    for (size_t i = 0; i < a->n; i++) {
        CHECK(
            a->message[i].group == b->message[i].group &&
                a->message[i].member == b->message[i].member &&
                a->message[i].bytes == b->message[i].bytes,
            "message %zu: %zu bytes in group %llu by the trainer, %zu in group %llu by the program",
            i, a->message[i].bytes, (unsigned long long)a->message[i].group, b->message[i].bytes,
            (unsigned long long)b->message[i].group);
    }
    for (uint32_t i = 0; i < PARAMS; i++) {
        CHECK(a->sent[i] == b->sent[i], "%s: %llu bytes by the trainer, %llu by the program",
              tensors[i].name, (unsigned long long)a->sent[i], (unsigned long long)b->sent[i]);
    }
}

static void a_plan_is_the_same_messages(void **state)
{
    gw_plan_file *plan = NULL;
    gw_why why = {""};
    (void)state;
    CHECK(gw_plan_parse("plan.json", file, strlen(file), &plan, &why) == GW_OK, "%s", why.text);
    job *trainer = run(trainer_main, plan, 0), *program = run(program_main, NULL, 1);
    for (int r = 0; r < RANKS; r++) {
        compare(&trainer->logs[r], &program->logs[r]);
        CHECK(trainer->logs[r].sent[1] == 0 && trainer->logs[r].sent[4] == 0 &&
                  trainer->logs[r].sent[2] != 0 && trainer->logs[r].sent[0] != 0,
              "bytes of a bucket do not stand at its first layer");
    }
    gw_plan_file_free(plan);
    free(trainer);
    free(program);
}

static int print(void)
{
    job *program = run(program_main, NULL, 0);
    (void)printf("%s\n", file);
    for (int r = 0; r < RANKS; r++) {
        const log *l = &program->logs[r];
        for (size_t i = 0; i < l->n; i++) {
            (void)printf("message %d %llu %u %zu\n", r, (unsigned long long)l->message[i].group,
                         l->message[i].member, l->message[i].bytes);
        }
        for (uint32_t i = 0; i < PARAMS; i++) {
            (void)printf("sent %d %s %llu\n", r, tensors[i].name, (unsigned long long)l->sent[i]);
        }
    }
    free(program);
    return 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_plan_is_the_same_messages)};
    if (argc > 1 && strcmp(argv[1], "print") == 0) {
        return print();
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
