/* What check_walk.py looks at: two ranks, threads of this process, make a step so that everything stands ready; then counters
 * begin at zero, and one more step is posted and waited for. */
#define _POSIX_C_SOURCE 200809L
#include <gradwire/step.h>
#include <gradwire/threads.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void __gcov_reset(void);
void __gcov_dump(void);

enum { RANKS = 2, LAYERS = 2, ELEMENTS = 3 * 4096 };
static const char *const routes[LAYERS] = {"sra", "gather"};

typedef struct rank {
    gw_comm *comm;
    gw_step *step;
    float gradient[LAYERS][ELEMENTS];
} rank;

static pthread_barrier_t all;

static void must(gw_status status, const gw_why *why)
{
    if (status != GW_OK) {
        (void)fprintf(stderr, "%s\n", why->text);
        exit(1);
    }
}

static void open_step(rank *r)
{
    gw_why why = {""};
    gw_params params;
    gw_route route;
    /* scalar loops, so that every processor runs the same files */
    const gw_step_config config = {.comm = r->comm, .own_thread = 1, .isa = GW_ISA_SCALAR};
    must(gw_step_create(&config, &r->step, &why), &why);
    must(gw_params_parse(&params, "natural:bits=8", &why), &why);
    for (uint32_t i = 0; i < LAYERS; i++) {
        const uint64_t n = ELEMENTS;
        uint32_t layer = 0;
        must(gw_route_parse(&route, routes[i], &why), &why);
        must(gw_step_add(r->step, routes[i], &n, 1, GW_F32, &layer, &why), &why);
        must(gw_step_plan(r->step, layer, &params, &route, &why), &why);
    }
    must(gw_step_agree(r->step, &why), &why);
}

static void post_and_wait(rank *r)
{
    gw_why why = {""};
    for (uint32_t i = 0; i < LAYERS; i++) {
        const gw_tensor t = {r->gradient[i], ELEMENTS, GW_F32};
        must(gw_step_post(r->step, i, &t, &why), &why);
    }
    must(gw_step_wait(r->step, NULL, &why), &why);
}

static void *run(void *arg)
{
    rank *r = arg;
    open_step(r);
    for (uint32_t i = 0; i < LAYERS * ELEMENTS; i++) {
        r->gradient[i / ELEMENTS][i % ELEMENTS] = (float)(i % 97) - 48;
    }
    post_and_wait(r);
    if (pthread_barrier_wait(&all) == PTHREAD_BARRIER_SERIAL_THREAD) {
        __gcov_reset();
    }
    (void)pthread_barrier_wait(&all);
    post_and_wait(r);
    if (pthread_barrier_wait(&all) == PTHREAD_BARRIER_SERIAL_THREAD) {
        __gcov_dump();
        _exit(0);
    }
    return NULL;
}

int main(void)
{
    static rank ranks[RANKS];
    gw_threads *world = NULL;
    pthread_t threads[RANKS];
    gw_why why = {""};
    const gw_threads_config config = {.ranks = RANKS};
    must(gw_threads_create(&config, &world, &why), &why);
    (void)pthread_barrier_init(&all, NULL, RANKS);
    for (int i = 0; i < RANKS; i++) {
        must(gw_threads_comm(world, (uint32_t)i, &ranks[i].comm), &why);
        (void)pthread_create(&threads[i], NULL, run, &ranks[i]);
    }
    for (int i = 0; i < RANKS; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    return 1; /* not reached */
}
