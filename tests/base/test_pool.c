/* The pool: every part exactly once, whatever the number of threads, many jobs in a row. Run under
 * the thread sanitizer too. */
#include "support/check.h"

#include "base/pool.h"

#include <stdatomic.h>

enum { PARTS = 37 };

typedef struct job {
    atomic_uint seen[PARTS];
    unsigned plain[PARTS]; /* written without a lock: the pool must order it before its return */
} job;

static void mark(void *arg, unsigned part)
{
    job *j = arg;
    atomic_fetch_add(&j->seen[part], 1);
    j->plain[part] = part + 1;
}

static void every_part_once(void **state)
{
    (void)state;
    for (unsigned threads = 1; threads <= 5; threads++) {
        gw_pool *pool = NULL;
        assert_int_equal(gw_pool_create(threads, &pool), GW_OK);
        assert_int_equal(gw_pool_threads(pool), threads);
        for (unsigned round = 0; round < 300; round++) {
            job j = {0};
            const unsigned parts = round % (PARTS + 1);
            gw_pool_run(pool, mark, &j, parts);
            for (unsigned i = 0; i < PARTS; i++) {
                assert_int_equal(atomic_load(&j.seen[i]), i < parts);
                assert_int_equal(j.plain[i], i < parts ? i + 1 : 0);
            }
        }
        gw_pool_destroy(pool);
    }
}

static void arguments(void **state)
{
    (void)state;
    gw_pool *pool = NULL;
    assert_int_equal(gw_pool_create(0, &pool), GW_ERR_ARG);
    assert_int_equal(gw_pool_create(GW_POOL_MAX_THREADS + 1, &pool), GW_ERR_ARG);
    assert_int_equal(gw_pool_create(1, NULL), GW_ERR_ARG);
    assert_null(pool);
    gw_pool_destroy(NULL);
    assert_int_equal(gw_pool_threads(NULL), 1);
    job j = {0};
    gw_pool_run(NULL, mark, &j, PARTS);
    assert_int_equal(j.plain[PARTS - 1], PARTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_once),
        cmocka_unit_test(arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
