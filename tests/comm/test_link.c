/* The virtual link's arithmetic, on a clock of the test's own. */
#include "support/check.h"

#include "comm/link.h"

#include <math.h>

enum { RANKS = 4 };

static gw_links links_of(uint32_t ranks_per_node, gw_link near, gw_link far)
{
    gw_links links;
    gw_why why = {""};
    const gw_threads_config config = {RANKS, ranks_per_node, near, far};
    CHECK(gw_links_init(&links, &config, &why) == GW_OK, "%s", why.text);
    return links;
}

#define ASSERT_AT(moment, wanted)                                                                  \
    CHECK(fabs((moment) - (wanted)) < 1e-9, "at %.12g, not at %.12g", (double)(moment),            \
          (double)(wanted))

/* Messages of one second, latency a tenth. */
static const gw_link slow = {100, 0.1};

static void one_message(void **state)
{
    (void)state;
    gw_links links = links_of(0, (gw_link){0, 0}, slow);
    ASSERT_AT(gw_links_send(&links, 0, 1, 100, 7), 8.1);
    ASSERT_AT(gw_links_send(&links, 1, 0, 100, 7), 8.1); /* the other way shares nothing */
    ASSERT_AT(gw_links_send(&links, 2, 3, 100, 7), 8.1); /* nor do others */
    ASSERT_AT(gw_links_send(&links, 0, 1, 0, 7.5), 8.1); /* nothing overtakes */
    ASSERT_AT(gw_links_send(&links, 0, 1, 0, 9),
              9.1); /* latency alone; idle time is not saved up */
    ASSERT_AT(gw_links_send(&links, 0, 1, 50, 9), 9.6);
    gw_links_free(&links);
}

static void ports_are_queues(void **state)
{
    (void)state;
    gw_links links = links_of(0, slow, slow);
    ASSERT_AT(gw_links_send(&links, 0, 3, 100, 0), 1.1);
    ASSERT_AT(gw_links_send(&links, 1, 3, 100, 0), 2.1); /* the receiver's */
    ASSERT_AT(gw_links_send(&links, 2, 3, 100, 0.5), 3.1);
    ASSERT_AT(gw_links_send(&links, 0, 1, 100, 0), 2.1); /* the sender's */
    gw_links_free(&links);
}

/* However late the ranks come, an all-to-all takes the bytes of one port. */
static void all_to_all_in_any_order(void **state)
{
    (void)state;
    static const uint32_t orders[][RANKS] = {
        {0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}};
    for (size_t o = 0; o < 4; o++) {
        gw_links links = links_of(0, slow, slow);
        double last = 0;
        for (uint32_t i = 1; i < RANKS; i++) {
            for (uint32_t j = 0; j < i; j++) { /* as the i-th comes, it meets those before */
                const uint32_t a = orders[o][i], b = orders[o][j];
                last = fmax(last, gw_links_send(&links, a, b, 100, 0));
                last = fmax(last, gw_links_send(&links, b, a, 100, 0));
            }
        }
        ASSERT_AT(last, 3.1);
        gw_links_free(&links);
    }
}

static void near_and_far(void **state)
{
    (void)state;
    gw_links links = links_of(2, (gw_link){1000, 0.01}, slow);
    ASSERT_AT(gw_links_send(&links, 0, 1, 100, 0), 0.11);
    ASSERT_AT(gw_links_send(&links, 0, 2, 100, 0), 1.1);
    ASSERT_AT(gw_links_send(&links, 1, 3, 100, 0), 2.1);  /* its node's port was taken */
    ASSERT_AT(gw_links_send(&links, 2, 3, 100, 0), 0.11); /* near ports are each rank's own */
    static const uint64_t sent[RANKS][2] = {{100, 100}, {0, 100}, {100, 0}, {0, 0}};
    assert_memory_equal(links.sent, sent, sizeof sent);
    gw_links_free(&links);
}

static void unlimited(void **state)
{
    (void)state;
    gw_links links = links_of(0, slow, (gw_link){0, 0.25});
    for (int i = 0; i < 3; i++) {
        ASSERT_AT(gw_links_send(&links, 0, 1, SIZE_MAX / 8, 1), 1.25);
    }
    gw_links_free(&links);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_message),
        cmocka_unit_test(ports_are_queues),
        cmocka_unit_test(all_to_all_in_any_order),
        cmocka_unit_test(near_and_far),
        cmocka_unit_test(unlimited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
