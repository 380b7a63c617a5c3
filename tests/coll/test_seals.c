/* Law 7 on threads, and on messages that a host carries. */
#include "coll/seals.h"

#include "comm/hosts.h"
#include "support/check.h"
#include "support/ranks.h"

typedef struct shared {
    const seals_job *job;
    seals_result *results;
} shared;

static void thread_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    const shared *s = arg;
    (void)all;
    seals_rank(s->job, rank, comm, &s->results[rank]);
}

static void by_threads(const seals_job *job, seals_result results[SEALS_RANKS])
{
    shared s = {job, results};
    ranks_run(&(gw_threads_config){.ranks = SEALS_RANKS}, thread_main, &s);
}

static void host_main(uint32_t rank, gw_comm *comm, void *arg)
{
    const shared *s = arg;
    seals_rank(s->job, rank, comm, &s->results[rank]);
}

static void by_hosts(const seals_job *job, seals_result results[SEALS_RANKS])
{
    shared s = {job, results};
    hosts_run(SEALS_RANKS, host_main, &s);
}

static void on_threads(void **state)
{
    (void)state;
    seals_check(&(seals_engine){"threads", by_threads, 1, 0});
}

static void on_hosts(void **state)
{
    (void)state;
    seals_check(&(seals_engine){"hosted", by_hosts, 1, 1});
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(on_threads), cmocka_unit_test(on_hosts)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
