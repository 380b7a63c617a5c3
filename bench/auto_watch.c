/* What watching costs: auto_watch [STEPS] [RATE, Mbit/s] [COMPUTING, ms]
 *
 * Four ranks, threads joined by a virtual link, with the layers of the trainer's cnn; computing is simulated: a rank sleeps. Two steps
 * of the library go by the same plan: one is auto's, between two of its plans, the other has none of it. They take turns, twenty steps
 * each, so that what disturbs one disturbs the other. 200 Mbit/s, 15 ms and 600 steps of either, unless told otherwise. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <gradwire/gradwire.h>

enum { RANKS = 4, LAYERS = 3, TURN = 20, MOST_TURNS = 1000, FIRST = 100 };
static const uint64_t DIMS[LAYERS][2] = {{10, 384}, {384, 1568}, {32, 144}};

typedef struct bench {
    gw_threads *worlds[2]; /* watched, and not */
    double computing;
    int turns;
    double seconds[2][MOST_TURNS]; /* of a step, as rank 0 saw it */
} bench;

typedef struct rank_arg {
    bench *b;
    uint32_t rank;
    float *source[LAYERS], *gradient[LAYERS];
} rank_arg;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(gw_status status, const gw_why *why)
{
    if (status != GW_OK) {
        (void)fprintf(stderr, "auto_watch: %s: %s\n", gw_status_string(status), why->text);
        exit(1);
    }
}

static size_t elements(int layer)
{
    return (size_t)(DIMS[layer][0] * DIMS[layer][1]);
}

static void take_steps(rank_arg *r, gw_step *step, int n)
{
    const double part = r->b->computing / LAYERS;
    const struct timespec nap = {0, (long)(1e9 * part)};
    gw_why why = {""};
    for (int i = 0; i < n; i++) {
        for (int l = 0; l < LAYERS; l++) {
            (void)nanosleep(&nap, NULL);
            memcpy(r->gradient[l], r->source[l], elements(l) * sizeof(float));
            const gw_tensor gradient = {r->gradient[l], elements(l), GW_F32};
            check(gw_step_post(step, (uint32_t)l, &gradient, &why), &why);
        }
        check(gw_step_wait(step, NULL, &why), &why);
    }
}

static gw_step *open_step(rank_arg *r, int which)
{
    gw_step_config config = {.seed = 1, .own_thread = 1, .ranks_per_node = 1};
    gw_step *step = NULL;
    gw_why why = {""};
    check(gw_threads_comm(r->b->worlds[which], r->rank, &config.comm), &why);
    check(gw_step_create(&config, &step, &why), &why);
    for (int l = 0; l < LAYERS; l++) {
        uint32_t layer = 0;
        check(gw_step_add(step,
                          l == 0   ? "fc2"
                          : l == 1 ? "fc1"
                                   : "conv2",
                          DIMS[l], 2, GW_F32, &layer, &why),
              &why);
    }
    check(gw_step_agree(step, &why), &why);
    return step;
}

static void plan_alike(const gw_step *from, gw_step *to)
{
    gw_why why = {""};
    for (uint32_t l = 0; l < LAYERS; l++) {
        gw_params params;
        gw_route route;
        check(gw_step_planned(from, l, &params, &route), &why);
        check(gw_step_plan(to, l, params.codec != NULL ? &params : NULL, &route, &why), &why);
    }
    check(gw_step_agree(to, &why), &why);
}

static uint64_t decisions(const gw_step *step)
{
    uint64_t n = 0;
    gw_auto_decision last;
    gw_why why = {""};
    check(gw_step_auto_last(step, &n, &last), &why);
    return n;
}

static void *rank_main(void *arg)
{
    rank_arg *r = arg;
    bench *b = r->b;
    gw_why why = {""};
    gw_step *steps[2] = {open_step(r, 0), open_step(r, 1)};
    check(gw_step_auto_begin_spec(steps[0], "auto:period=1000000/dither:bits=4", &why), &why);
    take_steps(r, steps[0], FIRST); /* past its second plan */
    plan_alike(steps[0], steps[1]);
    take_steps(r, steps[1], TURN);
    const uint64_t before = decisions(steps[0]);
    for (int i = 0; i < b->turns; i++) {
        for (int k = 0; k < 2; k++) {
            const int which = (i + k) % 2; /* neither is always first */
            const double begin = now();
            take_steps(r, steps[which], TURN);
            if (r->rank == 0) {
                b->seconds[which][i] = (now() - begin) / TURN;
            }
        }
    }
    if (decisions(steps[0]) != before) {
        (void)fprintf(stderr, "auto_watch: another plan was made meanwhile: run it again\n");
        exit(1);
    }
    gw_step_destroy(steps[0]);
    gw_step_destroy(steps[1]);
    return NULL;
}

static void prepare(rank_arg *r, bench *b, uint32_t rank)
{
    uint32_t state = rank + 1;
    *r = (rank_arg){.b = b, .rank = rank};
    for (int l = 0; l < LAYERS; l++) {
        r->source[l] = malloc(elements(l) * sizeof(float));
        r->gradient[l] = malloc(elements(l) * sizeof(float));
        for (size_t i = 0; r->source[l] != NULL && i < elements(l); i++) {
            state = state * 1664525U + 1013904223U;
            r->source[l][i] = (float)(int32_t)state * 0x1p-31F;
        }
        if (r->source[l] == NULL || r->gradient[l] == NULL) {
            (void)fprintf(stderr, "auto_watch: no memory\n");
            exit(1);
        }
    }
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *numbers, int n)
{
    qsort(numbers, (size_t)n, sizeof *numbers, by_size);
    return n % 2 != 0 ? numbers[n / 2] : (numbers[n / 2 - 1] + numbers[n / 2]) / 2;
}

int main(int argc, char **argv)
{
    static bench b;
    static double ratios[MOST_TURNS];
    rank_arg args[RANKS];
    pthread_t threads[RANKS];
    gw_why why = {""};
    const long steps = argc > 1 ? strtol(argv[1], NULL, 10) : 600;
    const double rate = argc > 2 ? strtod(argv[2], NULL) : 200;
    b.computing = 1e-3 * (argc > 3 ? strtod(argv[3], NULL) : 15);
    b.turns = (int)(steps / TURN);
    if (b.turns < 1 || b.turns > MOST_TURNS || !(rate > 0) || !(b.computing > 0) ||
        b.computing > 1) {
        (void)fprintf(stderr, "usage: auto_watch [STEPS] [RATE, Mbit/s] [COMPUTING, ms]\n");
        return 2;
    }
    const gw_threads_config config = {
        .ranks = RANKS,
        .ranks_per_node = 1,
        .far = {.bytes_per_second = rate * 125000, .latency_seconds = 1e-4}};
    for (int k = 0; k < 2; k++) {
        check(gw_threads_create(&config, &b.worlds[k], &why), &why);
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        prepare(&args[r], &b, r);
        if (pthread_create(&threads[r], NULL, rank_main, &args[r]) != 0) {
            return 1;
        }
    }
    for (uint32_t r = 0; r < RANKS; r++) {
        (void)pthread_join(threads[r], NULL);
        for (int l = 0; l < LAYERS; l++) {
            free(args[r].source[l]);
            free(args[r].gradient[l]);
        }
    }
    for (int k = 0; k < 2; k++) {
        gw_threads_destroy(b.worlds[k]);
    }
    for (int i = 0; i < b.turns; i++) {
        ratios[i] = b.seconds[0][i] / b.seconds[1][i];
    }
    const double ratio = median(ratios, b.turns);
    (void)printf("%d turns of %d steps, medians: watched %.3f ms/step, not watched %.3f, ratio "
                 "of a turn %.4f "
                 "(half of them %.4f to %.4f)\n",
                 b.turns, TURN, 1e3 * median(b.seconds[0], b.turns),
                 1e3 * median(b.seconds[1], b.turns), ratio, ratios[b.turns / 4],
                 ratios[3 * b.turns / 4]);
    return 0;
}
