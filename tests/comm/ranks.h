/* P ranks as threads of a test. cmocka's assertions belong to the main thread: a rank says what went wrong
 * in words instead, and ranks_run fails with them. */
#ifndef GW_TESTS_COMM_RANKS_H
#define GW_TESTS_COMM_RANKS_H

#include "support/check.h"

#include <pthread.h>

typedef struct rank_of {
    gw_threads *world;
    gw_comm *comm;
    const void *arg;
    char said[512]; /* empty: fine */
    void (*run)(struct rank_of *rank);
} rank_of;

/* In a rank's function: says, and returns from it. */
#define EXPECT(rank, holds, ...)                                                                   \
    do {                                                                                           \
        if (!(holds)) {                                                                            \
            (void)snprintf((rank)->said, sizeof(rank)->said, __VA_ARGS__);                         \
            return;                                                                                \
        }                                                                                          \
    } while (0)

static inline void *rank_main(void *arg)
{
    rank_of *rank = arg;
    rank->run(rank);
    if (rank->said[0] != 0) {
        rank->comm->table->abort(rank->comm, rank->said); /* so that the others end too */
    }
    rank->comm->table->close(rank->comm);
    return NULL;
}

/* bytes: if not NULL, what each rank has sent, near and far. */
static inline void ranks_run(const gw_threads_config *config, void (*run)(rank_of *rank),
                             const void *arg, uint64_t (*bytes)[2])
{
    static rank_of ranks[GW_THREADS_MAX_RANKS];
    pthread_t threads[GW_THREADS_MAX_RANKS];
    gw_threads *world = NULL;
    gw_why why = {""};
    CHECK(gw_threads_create(config, &world, &why) == GW_OK, "%s", why.text);
    for (uint32_t i = 0; i < config->ranks; i++) {
        ranks[i] = (rank_of){.world = world, .arg = arg, .run = run};
        assert_int_equal(gw_threads_comm(world, i, &ranks[i].comm), GW_OK);
    }
    for (uint32_t i = 0; i < config->ranks; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, rank_main, &ranks[i]), 0);
    }
    for (uint32_t i = 0; i < config->ranks; i++) {
        pthread_join(threads[i], NULL);
    }
    for (uint32_t i = 0; bytes != NULL && i < config->ranks; i++) {
        assert_int_equal(gw_threads_sent(world, i, bytes[i]), GW_OK);
    }
    gw_threads_destroy(world);
    for (uint32_t i = 0; i < config->ranks; i++) {
        CHECK(ranks[i].said[0] == 0, "P = %u, rank %u: %s", config->ranks, i, ranks[i].said);
    }
}

#endif
