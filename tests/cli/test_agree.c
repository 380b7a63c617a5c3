/* Ranks of a training that fails: those without a failure of their own get the cause from the rank that found it, and a
 * reason that is too long keeps its end. */
#include "support/check.h"
#include "support/ranks.h"

#include <stdio.h>
#include <string.h>

#include "cli/train/train_agree.h"

enum { RANKS = 4, FOUND = 2, FINE = 3 };

/* As long as a reason can be; ends with its cause. */
static gw_why long_reason(void)
{
    static const char cause[] = ": the cause";
    gw_why why = {""};
    memset(why.text, 'x', sizeof why.text - 1);
    memcpy(why.text + sizeof why.text - sizeof cause, cause, sizeof cause);
    return why;
}

static void chain_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    const gw_why cause = long_reason();
    gw_why why = {""};
    gw_status own = GW_OK;
    (void)all, (void)arg;
    if (rank == FOUND) {
        own = GW_ERR_CHECKSUM;
        why = cause;
    } else if (rank != FINE) { /* a chain of its own */
        own = GW_ERR_PEER;
        (void)snprintf(why.text, sizeof why.text,
                       "step %u, 'a layer with a name': rank %d gave up: step 7", (unsigned)rank,
                       FOUND);
    }
    const gw_status status = gw_cli_train_agree(comm, own, &why);
    RANK_TRUE(status == (rank == FOUND ? GW_ERR_CHECKSUM : GW_ERR_PEER), why.text);
    if (rank == FOUND) {
        RANK_TRUE(strcmp(why.text, cause.text) == 0, why.text);
    }
    if (rank == FINE) {
        const char *end = strstr(why.text, ": the cause");
        RANK_TRUE(strncmp(why.text, "rank 2 gave up: x", 17) == 0, why.text);
        RANK_TRUE(end != NULL && strlen(end) == strlen(": the cause"), why.text);
    }
}

static void a_rank_gets_the_cause(void **state)
{
    const gw_threads_config world = {.ranks = RANKS};
    (void)state;
    ranks_run(&world, chain_main, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_rank_gets_the_cause)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
