/* Checkpoints that are lost with their machine: the survivors' residuals are all there, to the bit, and
 * the missing ranks are named. */
#include "feedback/store.h"
#include "feedback/stores.h"

#include <math.h>

static blob blobs[MAX_WORLD];

static gw_feedback_blob given_of(uint32_t rank)
{
    return (gw_feedback_blob){blobs[rank].bytes, blobs[rank].size};
}

/* Checkpoints of `world` ranks; what the ranks that are not in the bits of `lost` hold goes to `total`. */
static void save_all(uint32_t world, unsigned lost, double *total)
{
    gen g = {100 * world + lost};
    for (uint32_t r = 0; r < world; r++) {
        double nowhere[ELEMENTS + 3] = {0};
        gw_feedback *store = rank_store(r, world, &g, (lost >> r & 1) != 0 ? nowhere : total);
        blobs[r] = save(store);
        gw_feedback_destroy(store);
    }
}

/* Every rank of the new world loads what is left of its heirs' checkpoints; the sum goes to `total`. */
static void load_all(uint32_t old_world, uint32_t new_world, unsigned lost, double *total)
{
    for (uint32_t r = 0; r < new_world; r++) {
        uint32_t ranks[MAX_WORLD];
        gw_feedback_blob given[MAX_WORLD];
        size_t n = 0, left = 0;
        gw_feedback_told told;
        gw_why why = {""};
        OK(gw_feedback_heirs(old_world, new_world, r, ranks, MAX_WORLD, &n, NULL));
        for (size_t i = n; i-- > 0;) { /* in any order */
            if ((lost >> ranks[i] & 1) == 0) {
                given[left++] = given_of(ranks[i]);
            }
        }
        gw_feedback *store = rank_store(r, new_world, NULL, NULL);
        const gw_status status =
            gw_feedback_load_surviving(store, old_world, given, left, &told, &why);
        CHECK(status == GW_OK, "%u -> %u, lost %x, rank %u: %s", old_world, new_world, lost, r,
              why.text);
        assert_int_equal(told.residuals, 3 * left);
        assert_int_equal(strstr(told.text, "lost") != NULL, left < n);
        take_total(store, total);
        gw_feedback_destroy(store);
    }
}

/* Law 2: exactly, since the numbers are multiples of 2^-8. */
static void survivors_keep_all(void **state)
{
    (void)state;
    for (uint32_t old_world = 1; old_world <= 4; old_world++) {
        for (uint32_t new_world = 1; new_world <= 5; new_world++) {
            for (unsigned lost = 0; lost < 1U << old_world; lost++) {
                double before[ELEMENTS + 3] = {0}, after[ELEMENTS + 3] = {0};
                save_all(old_world, lost, before);
                load_all(old_world, new_world, lost, after);
                for (int i = 0; i < ELEMENTS + 3; i++) {
                    CHECK(before[i] == after[i],
                          "%u -> %u, lost %x, element %d: %g of the survivors became %g", old_world,
                          new_world, lost, i, before[i], after[i]);
                }
            }
        }
    }
}

static void the_lost_are_named(void **state)
{
    (void)state;
    double total[ELEMENTS + 3] = {0};
    gw_feedback_told told;
    save_all(5, 0, total);
    gw_feedback *store = rank_store(0, 2, NULL, NULL);
    const blob before = save(store);
    const gw_feedback_blob one[1] = {given_of(2)};
    REFUSED(
        GW_ERR_ARG,
        "rank 0 of 2 takes over 3 of 5 ranks, and the checkpoints of ranks 0 and 4 are missing; "
        "if they are lost, gw_feedback_load_surviving drops their residuals",
        gw_feedback_load(store, 5, one, 1, NULL, &why));
    const gw_feedback_blob two[2] = {given_of(0), given_of(4)};
    REFUSED(GW_ERR_ARG, "the checkpoint of rank 2 is missing; if it is lost, ",
            gw_feedback_load(store, 5, two, 2, NULL, &why));
    assert_memory_equal(save(store).bytes, before.bytes, before.size);
    OK(gw_feedback_load_surviving(store, 5, one, 1, &told, NULL));
    CHECK(strstr(told.text, "rank 0 of 2 took over rank 2 of 5, ranks 0 and 4 are lost: 3 resid"),
          "%s", told.text);
    OK(gw_feedback_load_surviving(store, 5, two, 2, &told, NULL));
    CHECK(strstr(told.text, "took over ranks 0 and 4 of 5, rank 2 is lost: 6 residuals"), "%s",
          told.text);
    OK(gw_feedback_load_surviving(store, 5, NULL, 0, &told, NULL));
    CHECK(strstr(told.text, "took over none of 5, ranks 0, 2 and 4 are lost: 0 residuals"), "%s",
          told.text);
    gw_feedback_destroy(store);
    store =
        rank_store(0, 1, NULL, NULL); /* memory and time do not depend on the old number of ranks */
    OK(gw_feedback_load_surviving(store, UINT32_MAX, NULL, 0, &told, NULL));
    CHECK(strstr(told.text, "ranks 0, 1, 2, 3, 4, 5, 6 and 4294967288 more are lost"), "%s",
          told.text);
    gw_feedback_destroy(store);
}

/* Only what is left out is dropped. */
static void what_is_damaged_is_refused(void **state)
{
    (void)state;
    double total[ELEMENTS + 3] = {0};
    save_all(3, 0, total);
    gw_feedback *store = rank_store(0, 1, NULL, NULL);
    const blob before = save(store);
    const gw_feedback_blob given[3] = {given_of(0), given_of(1), given_of(1)};
    REFUSED(GW_ERR_ARG, "two checkpoints of rank 1",
            gw_feedback_load_surviving(store, 3, given, 3, NULL, &why));
    REFUSED(GW_ERR_ARG, "a checkpoint of rank 0 of 3 is not for rank 0 of 1 after 4 ranks",
            gw_feedback_load_surviving(store, 4, given, 2, NULL, &why));
    blobs[1].bytes[blobs[1].size / 2] ^= 1;
    REFUSED(GW_ERR_CHECKSUM,
            "checkpoint 2 of 2: ", gw_feedback_load_surviving(store, 3, given, 2, NULL, &why));
    assert_memory_equal(save(store).bytes, before.bytes, before.size);
    gw_feedback_destroy(store);
}

/* One of three ranks that keep equal residuals is lost: the copy cannot stay, and what counts is handed over. */
static void copies_are_not_kept(void **state)
{
    (void)state;
    static const float values[4] = {1, 2, 4, 8};
    for (int counts = 0; counts < 2; counts++) {
        const uint32_t point = 3 | (counts ? GW_FEEDBACK_SHARED : GW_FEEDBACK_COPY);
        gw_feedback_told told;
        double norm = -1;
        gw_feedback *store = new_store(0, 3);
        declare(store, "w", 4);
        const uint64_t slot = put(store, "w", point, 0, 4, values);
        const blob b = save(store);
        const gw_feedback_blob given[1] = {{b.bytes, b.size}};
        OK(gw_feedback_load(store, 3, given, 1, &told, NULL));
        assert_memory_equal(gw_feedback_residual(store, slot), values, sizeof values);
        OK(gw_feedback_load_surviving(store, 3, given, 1, &told, NULL));
        for (int i = 0; i < 4; i++) {
            assert_true(gw_feedback_residual(store, slot)[i] == 0);
        }
        assert_int_equal(gw_feedback_orphans(store, 0), counts);
        OK(gw_feedback_checkpoint_norm(b.bytes, b.size, &norm, NULL));
        assert_true(norm == (counts ? sqrt(85) : 0));
        gw_feedback_destroy(store);
    }
}

static void a_norm_is_of_all_it_holds(void **state)
{
    (void)state;
    double norm = -1;
    static const float w[3] = {3, 0, -4}, shard[1] = {12}, gone[2] = {0x1p127f, 0};
    gw_feedback *store = new_store(0, 1);
    declare(store, "w", 3);
    (void)put(store, "w", 0, 0, 3, w);
    const uint64_t slot = put(store, "w", 1, 2, 1, shard);
    OK(gw_feedback_retire(store, slot, NULL));
    blob b = save(store);
    OK(gw_feedback_checkpoint_norm(b.bytes, b.size, &norm, NULL));
    assert_true(norm == 13);
    (void)put(store, "w", 2, 0, 2, gone); /* its square is beyond fp32 */
    b = save(store);
    OK(gw_feedback_checkpoint_norm(b.bytes, b.size, &norm, NULL));
    assert_true(norm == 0x1p127);
    b.bytes[b.size - 1] ^= 1;
    REFUSED(GW_ERR_CHECKSUM, "checksum", gw_feedback_checkpoint_norm(b.bytes, b.size, &norm, &why));
    REFUSED(GW_ERR_ARG, "nowhere", gw_feedback_checkpoint_norm(b.bytes, b.size, NULL, &why));
    assert_int_equal(gw_feedback_checkpoint_norm(NULL, 0, &norm, NULL), GW_ERR_ARG);
    gw_feedback_destroy(store);
}

/* After a failure: the message says what failed, and ends with the cause. */
static void nothing_is_saved_after_a_failure(void **state)
{
    (void)state;
    blob b = {.size = 0};
    gw_why why = {""}, reason = {""};
    gw_feedback *store = new_store(0, 1);
    memset(reason.text, 'x', sizeof reason.text - 1);
    (void)snprintf(reason.text + sizeof reason.text - 12, 12, ": the cause");
    gw_feedback_refuse_saving(store, reason.text);
    assert_int_equal(gw_feedback_save(store, b.bytes, MAX_BLOB, &b.size, &why), GW_ERR_STATE);
    assert_non_null(strstr(why.text, "nothing is saved after a failure"));
    assert_non_null(strstr(why.text, ": the cause"));
    gw_feedback_refuse_saving(store, NULL);
    assert_int_equal(gw_feedback_save(store, b.bytes, MAX_BLOB, &b.size, &why), GW_OK);
    gw_feedback_destroy(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survivors_keep_all),
        cmocka_unit_test(the_lost_are_named),
        cmocka_unit_test(what_is_damaged_is_refused),
        cmocka_unit_test(copies_are_not_kept),
        cmocka_unit_test(a_norm_is_of_all_it_holds),
        cmocka_unit_test(nothing_is_saved_after_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
