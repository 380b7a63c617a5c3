#define _POSIX_C_SOURCE 200809L
#include "support/ranks.h"

#include "support/check.h"

#include <pthread.h>

struct ranks {
    pthread_barrier_t barrier;
    gw_threads *world;
    ranks_main *main;
    void *arg;
};

typedef struct one {
    ranks *all;
    uint32_t rank;
} one;

static void *start(void *arg)
{
    const one *o = arg;
    gw_comm *comm = NULL;
    RANK_OK(gw_threads_comm(o->all->world, o->rank, &comm), "no comm");
    o->all->main(o->all, o->rank, comm, o->all->arg);
    comm->table->close(comm);
    return NULL;
}

void ranks_meet(ranks *all)
{
    (void)pthread_barrier_wait(&all->barrier);
}

void ranks_sent(const ranks *all, uint32_t rank, uint64_t bytes[2])
{
    RANK_OK(gw_threads_sent(all->world, rank, bytes), "no such rank");
}

void ranks_fail(const char *file, int line, const char *words)
{
    (void)fprintf(stderr, "%s:%d: %s\n", file, line, words);
    exit(1); /* the other ranks would wait for this one */
}

void ranks_run(const gw_threads_config *config, ranks_main *main, void *arg)
{
    ranks all = {.main = main, .arg = arg};
    one ones[RANKS_MAX];
    pthread_t threads[RANKS_MAX];
    gw_why why = {""};
    assert_true(config->ranks <= RANKS_MAX);
    CHECK(gw_threads_create(config, &all.world, &why) == GW_OK, "%s", why.text);
    assert_int_equal(pthread_barrier_init(&all.barrier, NULL, config->ranks), 0);
    for (uint32_t i = 0; i < config->ranks; i++) {
        ones[i] = (one){&all, i};
        assert_int_equal(pthread_create(&threads[i], NULL, start, &ones[i]), 0);
    }
    for (uint32_t i = 0; i < config->ranks; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    }
    (void)pthread_barrier_destroy(&all.barrier);
    gw_threads_destroy(all.world);
}
