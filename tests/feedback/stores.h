/* Stores of a small model, and what they hold in all: for tests of checkpoints. */
#ifndef GW_TESTS_FEEDBACK_STORES_H
#define GW_TESTS_FEEDBACK_STORES_H

#include "feedback/expect.h"
#include "support/gen.h"

enum { MAX_BLOB = 2048 };

typedef struct blob {
    uint8_t bytes[MAX_BLOB];
    size_t size;
} blob;

/* ---- making ---- */

static inline gw_feedback *new_store(uint32_t rank, uint32_t world)
{
    gw_feedback *store = NULL;
    OK(gw_feedback_create(rank % 2 == 0 ? GW_FEEDBACK_BESIDE : GW_FEEDBACK_IN_PLACE, rank, world,
                          &store, NULL));
    return store;
}

/* A residual with these numbers; without, of zeros. */
static inline uint64_t put(gw_feedback *store, const char *name, uint32_t point, uint64_t first,
                           uint64_t count, const float *values)
{
    uint32_t tensor = 0;
    uint64_t slot = 0;
    const float *r = NULL;
    float *after = NULL;
    OK(gw_feedback_find(store, name, &tensor, NULL));
    OK(gw_feedback_add(store, tensor, point, first, count, &slot, NULL));
    if (values != NULL) {
        OK(gw_feedback_begin(store, slot, &r, &after, NULL));
        if (after != NULL) {
            memcpy(after, values, (size_t)count * sizeof *values);
        }
        OK(gw_feedback_commit(store, slot, after != NULL ? NULL : values, NULL));
    }
    return slot;
}

static inline void declare(gw_feedback *store, const char *name, uint64_t elements)
{
    uint32_t tensor = 0;
    OK(gw_feedback_add_tensor(store, name, elements, &tensor, NULL));
}

static inline blob save(const gw_feedback *store)
{
    blob b = {.size = 0};
    size_t bytes = 0;
    gw_why why = {""};
    OK(gw_feedback_save_bytes(store, &bytes, NULL));
    assert_int_equal(gw_feedback_save(store, b.bytes, bytes - 1, &b.size, &why), GW_ERR_CAPACITY);
    const gw_status status = gw_feedback_save(store, b.bytes, MAX_BLOB, &b.size, &why);
    CHECK(status == GW_OK && b.size == bytes, "save: %s", why.text);
    return b;
}

enum { ELEMENTS = 24, MAX_WORLD = 6 };

/* As a plan with a scatter-reduce: point 0 the whole of `w`, point 1 the rank's shard. Without numbers
 * a new job's. The sum of what it holds goes to `total`. */
static inline gw_feedback *rank_store(uint32_t rank, uint32_t world, gen *g, double *total)
{
    gw_feedback *store = new_store(rank, world);
    const uint64_t first = ELEMENTS * rank / world, end = ELEMENTS * (rank + 1) / world;
    float values[ELEMENTS];
    declare(store, "w", ELEMENTS);
    declare(store, "v", 3);
    for (uint32_t point = 0; point < 4; point++) {
        const char *name = point == 3 ? "v" : "w";
        const uint64_t from = point == 1 ? first : 0;
        const uint64_t count = point == 1 ? end - first : point == 3 ? 3 : ELEMENTS;
        if (g == NULL && point == 2) {
            continue; /* gone with the old plan */
        }
        for (uint64_t i = 0; g != NULL && i < count; i++) {
            values[i] = (float)((int)gen_below(g, 2001) - 1000) * 0x1p-8f;
            total[(point == 3 ? ELEMENTS : from) + i] += (double)values[i];
        }
        const uint64_t slot = put(store, name, point, from, count, g != NULL ? values : NULL);
        if (point == 2) {
            OK(gw_feedback_retire(store, slot, NULL));
        }
    }
    return store;
}

/* All that a store holds: loaded without encode points, everything is an orphan. */
static inline void take_total(gw_feedback *store, double *total)
{
    const blob b =
        save(store); /* the slots' numbers are not needed: read the store by retiring all */
    gw_feedback *bare = NULL;
    gw_feedback_info info;
    OK(gw_feedback_inspect(b.bytes, b.size, &info, NULL));
    OK(gw_feedback_create(GW_FEEDBACK_BESIDE, info.rank, info.world, &bare, NULL));
    declare(bare, "w", ELEMENTS);
    declare(bare, "v", 3);
    gw_feedback_told told;
    OK(gw_feedback_load(bare, info.world, &(gw_feedback_blob){b.bytes, b.size}, 1, &told, NULL));
    assert_int_equal(told.adopted, info.residuals);
    float w[ELEMENTS] = {0}, v[3] = {0};
    OK(gw_feedback_hand_over(bare, 0, w, 0, ELEMENTS, NULL));
    OK(gw_feedback_hand_over(bare, 1, v, 0, 3, NULL));
    for (int i = 0; i < ELEMENTS + 3; i++) {
        total[i] += (double)(i < ELEMENTS ? w[i] : v[i - ELEMENTS]);
    }
    gw_feedback_destroy(bare);
}

#endif
