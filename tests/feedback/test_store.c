/* The residual store: nothing is lost, and nothing changes but by commit. */
#include "feedback/expect.h"
#include "support/gen.h"

#include "base/convert.h"

#include <math.h>

enum { N = 64 };

static gw_feedback *new_store(gw_feedback_mode mode)
{
    gw_feedback *store = NULL;
    OK(gw_feedback_create(mode, 0, 1, &store, NULL));
    return store;
}

static uint32_t tensor_of(gw_feedback *store, const char *name, uint64_t elements)
{
    uint32_t tensor = UINT32_MAX;
    OK(gw_feedback_add_tensor(store, name, elements, &tensor, NULL));
    return tensor;
}

static uint64_t slot_of(gw_feedback *store, uint32_t tensor, uint32_t point, uint64_t first,
                        uint64_t count)
{
    uint64_t slot = 0;
    OK(gw_feedback_add(store, tensor, point, first, count, &slot, NULL));
    return slot;
}

/* Commits `values` as r', in either mode. */
static void set(gw_feedback *store, gw_feedback_mode mode, uint64_t slot, const float *values,
                size_t n)
{
    const float *r = NULL;
    float *after = NULL;
    OK(gw_feedback_begin(store, slot, &r, &after, NULL));
    if (mode == GW_FEEDBACK_BESIDE) {
        memcpy(after, values, n * sizeof *values);
    }
    OK(gw_feedback_commit(store, slot, mode == GW_FEEDBACK_BESIDE ? NULL : values, NULL));
}

/* ---- law 2: what is sent, and what is kept, is what came in ---- */

typedef enum sabotage {
    NONE,
    RESET,          /* a restart without the checkpoint */
    COMMIT_TWICE,   /* a second commit without a new r' */
    COMMIT_SKIPPED, /* a step that was skipped is committed */
    ORPHANS_LOST,   /* handed over to no gradient */
    ORPHANS_TWICE,  /* handed over, then rolled back although the step counted */
    SABOTAGES
} sabotage;

/* One rank's training. Point 0 covers the tensor, point 1 only [16, 40), as an owner's re-encoding. */
typedef struct training {
    gw_feedback_mode mode;
    sabotage how;
    gw_feedback *store;
    uint32_t tensor;
    uint64_t own, shard;
    int dense; /* the plan in force sends all */
    double came[N], sent[N];
} training;

/* Keeps what is large; r' to `after`, which may be x. */
static void lossy(const float *r, const float *x, float *out, float *after, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const float sum = x[i] + r[i];
        out[i] = fabsf(sum) >= 1.5f ? sum : 0;
        after[i] = sum - out[i];
    }
}

/* Encodes x into out at one point; in place, r' then lies in x. */
static void encode(training *t, uint64_t slot, float *x, float *out, size_t n)
{
    const float *r = NULL;
    float *after = NULL;
    OK(gw_feedback_begin(t->store, slot, &r, &after, NULL));
    assert_true((after == NULL) == (t->mode == GW_FEEDBACK_IN_PLACE));
    lossy(r, x, out, after != NULL ? after : x, n);
}

static void close_slot(training *t, uint64_t slot, const float *x, int skip)
{
    const float *after = t->mode == GW_FEEDBACK_IN_PLACE ? x : NULL;
    if (skip && t->how != COMMIT_SKIPPED) {
        OK(gw_feedback_rollback(t->store, slot, NULL));
        return;
    }
    OK(gw_feedback_commit(t->store, slot, after, NULL));
    REFUSED(GW_ERR_STATE, "no new r'", gw_feedback_commit(t->store, slot, after, &why));
    if (t->how == COMMIT_TWICE) { /* around the refusal: begin, and write no r' */
        static float stale[N];
        const float *r = NULL;
        float *unwritten = NULL;
        OK(gw_feedback_begin(t->store, slot, &r, &unwritten, NULL));
        OK(gw_feedback_commit(t->store, slot, after != NULL ? stale : NULL, NULL));
    }
}

static void one_step(training *t, gen *g, int skip)
{
    float x[N], y[N], sent[N];
    double came[N];
    for (int i = 0; i < N; i++) { /* multiples of 2^-10 below 2^12: every sum is exact */
        x[i] = (float)((int)gen_below(g, 2049) - 1024) * 0x1p-10f;
        came[i] = (double)x[i];
    }
    float nowhere[N] = {0};
    OK(gw_feedback_hand_over(t->store, t->tensor, t->how == ORPHANS_LOST ? nowhere : x, 0, N,
                             NULL));
    if (t->dense) {
        memcpy(sent, x, sizeof sent);
    } else {
        encode(t, t->own, x, y, N);
        memcpy(sent, y, sizeof sent);
        encode(t, t->shard, y + 16, sent + 16, 24);
        close_slot(t, t->own, x, skip);
        close_slot(t, t->shard, y + 16, skip);
    }
    if (skip || t->how == ORPHANS_TWICE) {
        OK(gw_feedback_hand_over_rollback(t->store, t->tensor, NULL));
    } else {
        OK(gw_feedback_hand_over_commit(t->store, t->tensor, NULL));
    }
    for (int i = 0; !skip && i < N; i++) { /* a skipped step's gradient is dropped by the job */
        t->came[i] += came[i];
        t->sent[i] += (double)sent[i];
    }
}

static void build(training *t)
{
    t->store = new_store(t->mode);
    t->tensor = tensor_of(t->store, "layer/w", N);
    t->own = slot_of(t->store, t->tensor, 0, 0, N);
    t->shard = slot_of(t->store, t->tensor, 1, 16, 24);
}

static void restart(training *t)
{
    size_t bytes = 0, written = 0;
    OK(gw_feedback_save_bytes(t->store, &bytes, NULL));
    void *blob = malloc(bytes);
    assert_non_null(blob);
    OK(gw_feedback_save(t->store, blob, bytes, &written, NULL));
    gw_feedback_destroy(t->store);
    build(t);
    if (t->how != RESET) {
        const gw_feedback_blob blobs[1] = {{blob, written}};
        OK(gw_feedback_load(t->store, 1, blobs, 1, NULL, NULL));
    }
    free(blob);
}

/* Largest |came − sent − residuals − orphans| after 200 steps with skips, new plans and a restart. */
static double imbalance(gw_feedback_mode mode, sabotage how)
{
    training t = {.mode = mode, .how = how};
    gen g = {7};
    build(&t);
    for (int step = 0; step < 200; step++) {
        if (step == 60 || step == 149) { /* to dense, and from the last step on: orphans remain */
            OK(gw_feedback_retire(t.store, t.own, NULL));
            OK(gw_feedback_retire(t.store, t.shard, NULL));
            t.dense = 1;
        }
        if (step == 64 || step == 150) {
            t.own = slot_of(t.store, t.tensor, 0, 0, N);
            t.shard = slot_of(t.store, t.tensor, 1, 16, 24);
            t.dense = 0;
        }
        if (step == 120) {
            restart(&t);
        }
        one_step(&t, &g, step % 7 == 3);
    }
    OK(gw_feedback_retire(t.store, t.shard, NULL)); /* so that an orphan is in the balance too */
    float held[N] = {0};
    OK(gw_feedback_hand_over(t.store, t.tensor, held, 0, N, NULL));
    const float *r = gw_feedback_residual(t.store, t.own);
    double worst = 0;
    for (int i = 0; i < N; i++) {
        const double kept = (double)held[i] + (double)r[i];
        const double off = fabs(t.came[i] - t.sent[i] - kept);
        worst = off > worst ? off : worst;
    }
    gw_feedback_destroy(t.store);
    return worst;
}

static void nothing_is_lost(void **state)
{
    (void)state;
    for (int mode = GW_FEEDBACK_BESIDE; mode <= GW_FEEDBACK_IN_PLACE; mode++) {
        const double off = imbalance((gw_feedback_mode)mode, NONE);
        CHECK(off == 0, "mode %d: off by %g", mode, off);
    }
}

/* Law 9: each of these must be seen. */
static void a_reset_residual_is_seen(void **state)
{
    (void)state;
    for (int mode = GW_FEEDBACK_BESIDE; mode <= GW_FEEDBACK_IN_PLACE; mode++) {
        for (int how = NONE + 1; how < SABOTAGES; how++) {
            const double off = imbalance((gw_feedback_mode)mode, (sabotage)how);
            CHECK(off > 0, "mode %d: sabotage %d was not seen", mode, how);
        }
    }
}

/* ---- the transaction ---- */

static void rollback_keeps_every_bit(void **state)
{
    (void)state;
    gen g = {11};
    for (int mode = GW_FEEDBACK_BESIDE; mode <= GW_FEEDBACK_IN_PLACE; mode++) {
        gw_feedback *store = new_store((gw_feedback_mode)mode);
        const uint64_t slot = slot_of(store, tensor_of(store, "w", N), 0, 0, N);
        float values[N], before[N], *after = NULL;
        const float *r = NULL;
        gen_fill(&g, GEN_FINITE_BITS, GW_F32, values, N); /* −0 and subnormals too */
        set(store, (gw_feedback_mode)mode, slot, values, N);
        assert_memory_equal(gw_feedback_residual(store, slot), values, sizeof values);
        memcpy(before, values, sizeof before);
        OK(gw_feedback_begin(store, slot, &r, &after, NULL));
        assert_int_equal((uintptr_t)r % 64, 0);
        gen_fill(&g, GEN_BITS, GW_F32, mode == GW_FEEDBACK_BESIDE ? after : values, N);
        OK(gw_feedback_rollback(store, slot, NULL));
        assert_memory_equal(gw_feedback_residual(store, slot), before, sizeof before);
        REFUSED(GW_ERR_STATE, "no encoding is open", gw_feedback_rollback(store, slot, &why));
        gw_feedback_destroy(store);
    }
}

static void what_is_not_finite_never_enters(void **state)
{
    (void)state;
    static const uint32_t bad[] = {GW_INF_BITS, GW_INF_BITS | GW_SIGN_BIT, GW_NAN_BITS, 0x7F800001u,
                                   0xFFFFFFFFu};
    enum { LONG = 9000 };
    static float values[LONG], before[LONG];
    for (int mode = GW_FEEDBACK_BESIDE; mode <= GW_FEEDBACK_IN_PLACE; mode++) {
        gw_feedback *store = new_store((gw_feedback_mode)mode);
        const uint64_t slot = slot_of(store, tensor_of(store, "w", LONG + 5), 3, 5, LONG);
        gen g = {12};
        gen_fill(&g, GEN_FINITE_BITS, GW_F32, before, LONG);
        before[17] = gw_float(GW_INF_BITS - 1); /* the largest float is fine */
        set(store, (gw_feedback_mode)mode, slot, before, LONG);
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
            static const size_t places[] = {0, 4095, 4096, LONG - 1};
            const size_t at = places[i % 4];
            const float *r = NULL;
            float *after = NULL;
            char words[64];
            OK(gw_feedback_begin(store, slot, &r, &after, NULL));
            memcpy(values, before, sizeof values);
            values[at] = gw_float(bad[i]);
            if (after != NULL) {
                memcpy(after, values, sizeof values);
            }
            const float *where = mode == GW_FEEDBACK_BESIDE ? NULL : values;
            (void)snprintf(words, sizeof words,
                           "tensor 'w', encode point 3: r' is not finite at element %zu", at + 5);
            REFUSED(GW_ERR_RANGE, words, gw_feedback_check(store, slot, where, &why));
            REFUSED(GW_ERR_RANGE, words, gw_feedback_commit(store, slot, where, &why));
            assert_memory_equal(gw_feedback_residual(store, slot), before, sizeof before);
            OK(gw_feedback_rollback(store, slot, NULL)); /* it was still open */
            assert_memory_equal(gw_feedback_residual(store, slot), before, sizeof before);
        }
        gw_feedback_destroy(store);
    }
}

static void a_call_at_the_wrong_moment_is_named(void **state)
{
    (void)state;
    for (int mode = GW_FEEDBACK_BESIDE; mode <= GW_FEEDBACK_IN_PLACE; mode++) {
        gw_feedback *store = new_store((gw_feedback_mode)mode);
        const uint32_t tensor = tensor_of(store, "w", 4);
        const uint64_t slot = slot_of(store, tensor, 0, 0, 4);
        float x[4] = {1, 2, 3, 4}, *after = NULL;
        const float *r = NULL, *where = mode == GW_FEEDBACK_BESIDE ? NULL : x;
        size_t written = 0;
        uint8_t blob[256];
        REFUSED(GW_ERR_STATE, "tensor 'w', encode point 0: no encoding is open",
                gw_feedback_commit(store, slot, where, &why));
        OK(gw_feedback_begin(store, slot, &r, &after, NULL));
        REFUSED(GW_ERR_STATE, "open already", gw_feedback_begin(store, slot, &r, &after, &why));
        REFUSED(GW_ERR_ARG, "r' ",
                gw_feedback_commit(store, slot, mode == GW_FEEDBACK_BESIDE ? x : NULL, &why));
        REFUSED(GW_ERR_STATE, "cannot retire", gw_feedback_retire(store, slot, &why));
        REFUSED(GW_ERR_STATE, "'w' has an open encoding",
                gw_feedback_save(store, blob, sizeof blob, &written, &why));
        REFUSED(GW_ERR_STATE, "'w' has an open encoding",
                gw_feedback_load(store, 1, &(gw_feedback_blob){blob, 1}, 1, NULL, &why));
        OK(gw_feedback_rollback(store, slot, NULL));
        OK(gw_feedback_hand_over(store, tensor, x, 0, 4, NULL));
        REFUSED(GW_ERR_STATE, "open hand-over", gw_feedback_retire(store, slot, &why));
        REFUSED(GW_ERR_STATE, "open hand-over",
                gw_feedback_save(store, blob, sizeof blob, &written, &why));
        REFUSED(GW_ERR_STATE, "up to element 4",
                gw_feedback_hand_over(store, tensor, x, 0, 4, &why));
        OK(gw_feedback_hand_over_commit(store, tensor, NULL));
        REFUSED(GW_ERR_STATE, "no hand-over is open",
                gw_feedback_hand_over_commit(store, tensor, &why));
        REFUSED(GW_ERR_STATE, "no hand-over is open",
                gw_feedback_hand_over_rollback(store, tensor, &why));
        OK(gw_feedback_retire(store, slot, NULL));
        REFUSED(GW_ERR_STATE, "was retired", gw_feedback_begin(store, slot, &r, &after, &why));
        assert_null(gw_feedback_residual(store, slot));
        const uint64_t again =
            slot_of(store, tensor, 0, 0, 4); /* the point is free, the number new */
        assert_true(again != slot);
        REFUSED(GW_ERR_STATE, "was retired", gw_feedback_retire(store, slot, &why));
        gw_feedback_destroy(store);
    }
}

/* ---- a keeper ---- */

/* Knows that one is still to be added to every number of a residual in the store. */
typedef struct adder {
    int owes, fetched, put;
} adder;

static gw_status add_one(void *context, float *r, uint64_t count, gw_why *why)
{
    (void)why;
    adder *a = context;
    a->fetched++;
    for (uint64_t i = 0; i < count && a->owes; i++) {
        r[i] += 1;
    }
    a->owes = 0;
    return GW_OK;
}

static gw_status written_anew(void *context, const float *r, uint64_t count, gw_why *why)
{
    (void)r;
    (void)count;
    (void)why;
    adder *a = context;
    a->put++;
    a->owes = 0;
    return GW_OK;
}

static void encode_tens(gw_feedback *store, uint64_t slot, adder *a)
{
    const float *r = NULL;
    float *after = NULL;
    OK(gw_feedback_begin(store, slot, &r, &after, NULL));
    assert_non_null(r);
    assert_non_null(after);
    for (int i = 0; i < 4; i++) {
        after[i] = 10;
    }
    REFUSED(GW_ERR_STATE, "is not complete", gw_feedback_commit(store, slot, NULL, &why));
    OK(gw_feedback_commit_checked(store, slot, NULL, NULL));
    a->owes = 1;
}

static void what_is_owed_here_is_done_before_anyone_looks(void **state)
{
    (void)state;
    gw_feedback *store = new_store(GW_FEEDBACK_BESIDE);
    const uint32_t tensor = tensor_of(store, "w", 4);
    const uint64_t slot = slot_of(store, tensor, 0, 0, 4);
    adder a = {.owes = 1};
    uint8_t blob[512];
    size_t written = 0;
    float handed[4] = {0};
    const gw_feedback_keeper keeper = {&a, add_one, written_anew, 1};
    OK(gw_feedback_keep(store, slot, &keeper, NULL));
    assert_int_equal(a.owes, 0); /* what it was told is all there is */
    encode_tens(store, slot, &a);
    assert_true(gw_feedback_residual(store, slot)[3] == 11);
    assert_true(gw_feedback_residual(store, slot)[3] == 11); /* once */
    encode_tens(store, slot, &a);
    OK(gw_feedback_scale(store, 2, NULL));
    assert_true(gw_feedback_residual(store, slot)[0] == 22);
    encode_tens(store, slot, &a);
    OK(gw_feedback_save(store, blob, sizeof blob, &written, NULL));
    encode_tens(store, slot, &a);
    OK(gw_feedback_load(store, 1, &(gw_feedback_blob){blob, written}, 1, NULL, NULL));
    assert_int_equal(a.owes, 0); /* what was loaded owes nothing */
    assert_true(gw_feedback_residual(store, slot)[0] == 11);
    encode_tens(store, slot, &a);
    OK(gw_feedback_keep(store, slot, NULL, NULL));
    assert_true(gw_feedback_residual(store, slot)[1] == 11);
    OK(gw_feedback_keep(store, slot, &keeper, NULL));
    encode_tens(store, slot, &a);
    OK(gw_feedback_retire(store, slot, NULL));
    OK(gw_feedback_hand_over(store, tensor, handed, 0, 4, NULL));
    assert_true(handed[2] == 11);
    OK(gw_feedback_hand_over_commit(store, tensor, NULL));
    gw_feedback_destroy(store);
}

/* ---- hand-over ---- */

static void orphans_are_handed_over_piece_by_piece(void **state)
{
    (void)state;
    gw_feedback *store = new_store(GW_FEEDBACK_BESIDE);
    const uint32_t tensor = tensor_of(store, "w", 10);
    const uint64_t a = slot_of(store, tensor, 0, 0, 10), b = slot_of(store, tensor, 1, 4, 3);
    const float ten[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, three[3] = {100, 200, 300};
    set(store, GW_FEEDBACK_BESIDE, a, ten, 10);
    set(store, GW_FEEDBACK_BESIDE, b, three, 3);
    OK(gw_feedback_retire(store, a, NULL));
    OK(gw_feedback_retire(store, b, NULL));
    assert_int_equal(gw_feedback_orphans(store, tensor), 2);
    float g[10] = {0};
    OK(gw_feedback_hand_over(store, tensor, g, 0, 10, NULL));
    const float all[10] = {1, 2, 3, 4, 105, 206, 307, 8, 9, 10};
    assert_memory_equal(g, all, sizeof all);
    OK(gw_feedback_hand_over_rollback(store, tensor, NULL));
    /* the middle, then both ends, adjacent pieces in one hand-over */
    float piece[2] = {0.5f, 0.5f};
    OK(gw_feedback_hand_over(store, tensor, piece, 5, 2, NULL));
    assert_true(piece[0] == 206.5f && piece[1] == 307.5f);
    OK(gw_feedback_hand_over_commit(store, tensor, NULL));
    assert_int_equal(gw_feedback_orphans(store, tensor), 2);
    memset(g, 0, sizeof g);
    OK(gw_feedback_hand_over(store, tensor, g, 0, 10, NULL));
    const float rest[10] = {1, 2, 3, 4, 105, 0, 0, 8, 9, 10};
    assert_memory_equal(g, rest, sizeof rest);
    OK(gw_feedback_hand_over_rollback(store, tensor, NULL));
    memset(g, 0, sizeof g);
    OK(gw_feedback_hand_over(store, tensor, g, 0, 2, NULL));
    OK(gw_feedback_hand_over(store, tensor, g + 2, 2, 3, NULL));
    OK(gw_feedback_hand_over_commit(store, tensor, NULL));
    assert_int_equal(gw_feedback_orphans(store, tensor), 1);
    OK(gw_feedback_hand_over(store, tensor, g + 9, 9, 1, NULL));
    OK(gw_feedback_hand_over_commit(store, tensor, NULL));
    OK(gw_feedback_hand_over(store, tensor, g + 5, 5, 4, NULL));
    OK(gw_feedback_hand_over_commit(store, tensor, NULL));
    assert_memory_equal(g, rest, sizeof rest);
    assert_int_equal(gw_feedback_orphans(store, tensor), 0);
    REFUSED(GW_ERR_RANGE, "'w' has 10 elements",
            gw_feedback_hand_over(store, tensor, g, 9, 2, &why));
    REFUSED(GW_ERR_RANGE, "'w' has 10 elements",
            gw_feedback_hand_over(store, tensor, g, 2, UINT64_MAX, &why));
    REFUSED(GW_ERR_ARG, "no gradient", gw_feedback_hand_over(store, tensor, NULL, 0, 1, &why));
    gw_feedback_destroy(store);
}

/* fp32 sums depend on order: (2^24 + 1) + 1 is not 2^24 + (1 + 1). The oldest comes first. */
static void orphans_are_added_oldest_first(void **state)
{
    (void)state;
    static const float values[2][3] = {{0x1p24f, 1, -0x1p24f}, {-0x1p24f, 1, 0x1p24f}};
    for (int k = 0; k < 2; k++) {
        gw_feedback *store = new_store(GW_FEEDBACK_IN_PLACE);
        const uint32_t tensor = tensor_of(store, "w", 1);
        float g = 1, expected = 1;
        for (uint32_t i = 0; i < 3; i++) {
            const uint64_t slot = slot_of(store, tensor, 9 - i, 0, 1);
            set(store, GW_FEEDBACK_IN_PLACE, slot, &values[k][i], 1);
            OK(gw_feedback_retire(store, slot, NULL));
            expected += values[k][i];
        }
        OK(gw_feedback_hand_over(store, tensor, &g, 0, 1, NULL));
        assert_true(g == expected);
        gw_feedback_destroy(store);
    }
}

/* ---- hand-over to 16 bits ---- */

/* Multiples of 2^-10 below 2^12: more bits than a number of 16 bits has, and every sum is exact. */
static void random_orphan(gw_feedback *store, uint32_t tensor, gen *g, uint64_t first,
                          uint64_t count, double *came)
{
    float values[N];
    for (uint64_t i = 0; i < count; i++) {
        values[i] = (float)((int)gen_below(g, 1 << 21) - (1 << 20)) * 0x1p-10f;
        came[first + i] += (double)values[i];
    }
    const uint64_t slot = slot_of(store, tensor, 3, first, count);
    set(store, GW_FEEDBACK_BESIDE, slot, values, count);
    OK(gw_feedback_retire(store, slot, NULL));
}

static void held_by_orphans(gw_feedback *store, uint32_t tensor, float held[N])
{
    memset(held, 0, N * sizeof *held);
    OK(gw_feedback_hand_over(store, tensor, held, 0, N, NULL));
    OK(gw_feedback_hand_over_rollback(store, tensor, NULL));
}

/* A step of one or several pieces, or of a part of the tensor. A tenth does not count. */
static void half_step(gw_feedback *store, uint32_t tensor, gw_dtype dtype, gen *g, double *came,
                      double *sent)
{
    uint16_t gradient[N];
    float before[N], after[N], wide[N], values[N];
    const uint64_t first = gen_below(g, 2) != 0 ? 0 : gen_below(g, N);
    const uint64_t end = first + gen_below(g, (uint32_t)(N - first) + 1);
    const uint64_t middle = first + gen_below(g, (uint32_t)(end - first) + 1);
    for (uint32_t i = 0; i < N; i++) {
        values[i] = (float)((int)gen_below(g, 129) - 64) * 0x1p-2f;
    }
    (void)gw_convert_scalar.narrow(dtype, values, gradient, N);
    held_by_orphans(store, tensor, before);
    OK(gw_feedback_hand_over_half(store, tensor, dtype, gradient + first, first, middle - first,
                                  NULL));
    OK(gw_feedback_hand_over_half(store, tensor, dtype, gradient + middle, middle, end - middle,
                                  NULL));
    if (gen_below(g, 10) == 0) {
        OK(gw_feedback_hand_over_rollback(store, tensor, NULL));
        held_by_orphans(store, tensor, after);
        assert_memory_equal(after, before, sizeof after);
        return;
    }
    OK(gw_feedback_hand_over_commit(store, tensor, NULL));
    gw_convert_scalar.widen(dtype, gradient, wide, N);
    for (uint64_t i = first; i < end; i++) {
        came[i] += (double)values[i];
        sent[i] += (double)wide[i];
    }
}

/* Nothing is lost to rounding or to a number that 16 bits do not have, and in the end nothing is left. */
static void rounding_stays_behind(void **state)
{
    static const gw_dtype dtypes[] = {GW_F16, GW_BF16};
    (void)state;
    for (int d = 0; d < 2; d++) {
        gw_feedback *store = new_store(GW_FEEDBACK_BESIDE);
        const uint32_t tensor = tensor_of(store, "w", N);
        double came[N] = {0}, sent[N] = {0};
        float held[N];
        gen g = {7};
        for (uint32_t step = 0; step < 400; step++) {
            if (step % 50 == 0) {
                const uint64_t first = gen_below(&g, N);
                random_orphan(store, tensor, &g, first, N - first, came);
            }
            half_step(store, tensor, dtypes[d], &g, came, sent);
            held_by_orphans(store, tensor, held);
            for (uint32_t i = 0; i < N; i++) {
                CHECK(came[i] == sent[i] + (double)held[i],
                      "step %u, element %u of %s: %.17g came, %.17g was sent, %.17g is held", step,
                      i, gw_dtype_name(dtypes[d]), came[i], sent[i], (double)held[i]);
            }
        }
        assert_true(gw_feedback_orphans(store, tensor) >= 1);
        for (uint32_t step = 0; step < 4;
             step++) { /* of zeros: three numbers of 8 bits are enough */
            uint16_t zeros[N] = {0};
            OK(gw_feedback_hand_over_half(store, tensor, dtypes[d], zeros, 0, N, NULL));
            OK(gw_feedback_hand_over_commit(store, tensor, NULL));
        }
        assert_int_equal(gw_feedback_orphans(store, tensor), 0);
        gw_feedback_destroy(store);
    }
}

/* What was handed over to 16 bits may go on in fp32, and the other way round; but not within one hand-over. */
static void rounding_and_fp32(void **state)
{
    (void)state;
    gw_feedback *store = new_store(GW_FEEDBACK_BESIDE);
    const uint32_t tensor = tensor_of(store, "w", 2);
    const uint64_t slot = slot_of(store, tensor, 0, 0, 2);
    const float values[2] = {100000, 1 + 0x1p-20f};
    uint16_t half[2] = {0};
    float g[2] = {0};
    set(store, GW_FEEDBACK_BESIDE, slot, values, 2);
    OK(gw_feedback_retire(store, slot, NULL));
    OK(gw_feedback_hand_over_half(store, tensor, GW_F16, half, 0, 1, NULL));
    REFUSED(GW_ERR_STATE, "another width", gw_feedback_hand_over(store, tensor, g, 1, 1, &why));
    OK(gw_feedback_hand_over_half(store, tensor, GW_F16, half + 1, 1, 1, NULL));
    assert_true(half[0] == 0x7BFF && half[1] == 0x3C00); /* fp16's largest, and 1 */
    OK(gw_feedback_hand_over_commit(store, tensor, NULL));
    OK(gw_feedback_hand_over(store, tensor, g, 0, 1, NULL));
    REFUSED(GW_ERR_STATE, "another width",
            gw_feedback_hand_over_half(store, tensor, GW_F16, half, 1, 1, &why));
    OK(gw_feedback_hand_over_commit(store, tensor, NULL));
    OK(gw_feedback_hand_over(store, tensor, g + 1, 1, 1, NULL));
    OK(gw_feedback_hand_over_commit(store, tensor, NULL));
    assert_true(g[0] == 100000 - 65504 && g[1] == 0x1p-20f);
    assert_int_equal(gw_feedback_orphans(store, tensor), 0);
    half[0] = 0x7C00; /* what is not finite stays visible */
    OK(gw_feedback_hand_over_half(store, tensor, GW_F16, half, 0, 2, NULL));
    assert_int_equal(half[0], 0x7C00);
    OK(gw_feedback_hand_over_rollback(store, tensor, NULL));
    REFUSED(GW_ERR_ARG, "16 bits, not to f32",
            gw_feedback_hand_over_half(store, tensor, GW_F32, half, 0, 2, &why));
    gw_feedback_destroy(store);
}

/* ---- tensors and slots ---- */

static void arguments_are_checked(void **state)
{
    (void)state;
    gw_feedback *store = NULL;
    uint32_t tensor = 0, found = 9;
    uint64_t slot = 0;
    char name[GW_FEEDBACK_MAX_NAME + 2];
    memset(name, 'n', sizeof name);
    name[GW_FEEDBACK_MAX_NAME + 1] = '\0';
    REFUSED(GW_ERR_RANGE, "rank 2 of 2",
            gw_feedback_create(GW_FEEDBACK_BESIDE, 2, 2, &store, &why));
    REFUSED(GW_ERR_ARG, "mode 7", gw_feedback_create((gw_feedback_mode)7, 0, 1, &store, &why));
    store = new_store(GW_FEEDBACK_BESIDE);
    REFUSED(GW_ERR_RANGE, "longer", gw_feedback_add_tensor(store, name, 1, &tensor, &why));
    REFUSED(GW_ERR_RANGE, "empty", gw_feedback_add_tensor(store, "", 1, &tensor, &why));
    REFUSED(GW_ERR_RANGE, "UTF-8", gw_feedback_add_tensor(store, "a\xC0\x80", 1, &tensor, &why));
    REFUSED(GW_ERR_RANGE, "2^48",
            gw_feedback_add_tensor(store, "w", (uint64_t)1 << 48, &tensor, &why));
    name[GW_FEEDBACK_MAX_NAME] = '\0';
    tensor = tensor_of(store, name, 3);
    REFUSED(GW_ERR_STATE, "nnn…' is there already", /* shown cut */
            gw_feedback_add_tensor(store, name, 3, &tensor, &why));
    (void)tensor_of(store, "schön/β", 0);
    OK(gw_feedback_find(store, name, &found, NULL));
    assert_int_equal(found, tensor);
    REFUSED(GW_ERR_UNKNOWN, "'x' is unknown", gw_feedback_find(store, "x", &found, &why));
    REFUSED(GW_ERR_RANGE, "has 3 elements, not 2 from 2 on",
            gw_feedback_add(store, tensor, 0, 2, 2, &slot, &why));
    REFUSED(GW_ERR_RANGE, "has 3 elements",
            gw_feedback_add(store, tensor, 0, UINT64_MAX, 2, &slot, &why));
    REFUSED(GW_ERR_ARG, "tensor number 2", gw_feedback_add(store, 2, 0, 0, 0, &slot, &why));
    slot = slot_of(store, tensor, 7, 0, 3);
    REFUSED(GW_ERR_STATE, "residual at encode point 7 already",
            gw_feedback_add(store, tensor, 7, 0, 1, &slot, &why));
    REFUSED(GW_ERR_ARG, "slot", gw_feedback_rollback(store, 5, &why));
    assert_null(gw_feedback_residual(NULL, slot));
    assert_int_equal(gw_feedback_orphans(store, 99), 0);
    gw_feedback_destroy(store);
    gw_feedback_destroy(NULL);
}

static void no_memory_is_an_error_with_a_name(void **state)
{
    (void)state;
#ifdef GW_TESTS_SANITIZED
    print_message("the sanitizer's allocator ends the program instead\n");
#else
    gw_feedback *store = new_store(GW_FEEDBACK_IN_PLACE);
    uint64_t slot = 0;
    const uint64_t most = ((uint64_t)1 << 48) - 1; /* more than an address space */
    const uint32_t tensor = tensor_of(store, "huge", most);
    REFUSED(GW_ERR_MEMORY, "numbers of tensor 'huge'",
            gw_feedback_add(store, tensor, 0, 0, most, &slot, &why));
    (void)slot_of(store, tensor, 0, most - 1, 1); /* the store is as it was; 64-bit ranges */
    gw_feedback_destroy(store);
#endif
}

static void names_are_found_in_any_order(void **state)
{
    (void)state;
    enum { TENSORS = 300 };
    gw_feedback *store = new_store(GW_FEEDBACK_IN_PLACE);
    char name[16];
    for (uint32_t i = 0; i < TENSORS; i++) {
        (void)snprintf(name, sizeof name, "t%u", i * 7919 % TENSORS);
        assert_int_equal(tensor_of(store, name, 1), i);
        (void)slot_of(store, i, 0, 0, 1);
    }
    for (uint32_t i = 0; i < TENSORS; i++) {
        uint32_t found = UINT32_MAX;
        (void)snprintf(name, sizeof name, "t%u", i * 7919 % TENSORS);
        OK(gw_feedback_find(store, name, &found, NULL));
        assert_int_equal(found, i);
    }
    gw_feedback_destroy(store);
}

static void an_empty_tensor_is_one(void **state)
{
    (void)state;
    for (int mode = GW_FEEDBACK_BESIDE; mode <= GW_FEEDBACK_IN_PLACE; mode++) {
        gw_feedback *store = new_store((gw_feedback_mode)mode);
        const uint32_t tensor = tensor_of(store, "empty", 0);
        const uint64_t slot = slot_of(store, tensor, 0, 0, 0);
        const float nothing = 0;
        assert_non_null(gw_feedback_residual(store, slot));
        set(store, (gw_feedback_mode)mode, slot, &nothing, 0);
        OK(gw_feedback_hand_over(store, tensor, NULL, 0, 0, NULL));
        OK(gw_feedback_hand_over_commit(store, tensor, NULL));
        OK(gw_feedback_retire(store, slot, NULL));
        assert_int_equal(gw_feedback_orphans(store, tensor), 0);
        gw_feedback_destroy(store);
    }
}

/* ---- tensors one behind the other ---- */

static float residual_at(const gw_feedback *store, uint64_t slot, size_t i)
{
    return gw_feedback_residual(store, slot)[i];
}

static void what_is_joined_belongs_to_each(void **state)
{
    (void)state;
    const gw_feedback_mode mode = GW_FEEDBACK_BESIDE;
    gw_feedback *store = new_store(mode), *other = new_store(mode);
    const float values[5] = {1, 2, 3, 4, 5};
    float gradient[4] = {0, 0, 0, 0};
    uint8_t blob[2048];
    size_t size = 0;
    uint32_t joined = 0;
    const uint32_t a = tensor_of(store, "a", 3), b = tensor_of(store, "b", 4);
    const uint32_t list[2] = {b, a}, unknown[1] = {9};
    OK(gw_feedback_join(store, list, 2, &joined, NULL));
    const uint64_t slot = slot_of(store, joined, 7, 2, 5); /* b's last two, and all of a */
    set(store, mode, slot, values, 5);
    OK(gw_feedback_scale(store, 2, NULL));
    assert_true(residual_at(store, slot, 0) == 2 && residual_at(store, slot, 4) == 10);
    REFUSED(GW_ERR_STATE, "it has residuals", gw_feedback_part(store, joined, &why));
    REFUSED(GW_ERR_STATE, "tensor 'a' has a residual at encode point 7 already",
            gw_feedback_add(store, a, 7, 0, 1, &(uint64_t){0}, &why));
    REFUSED(GW_ERR_STATE, "residual at encode point 7 already",
            gw_feedback_add(store, joined, 7, 0, 1, &(uint64_t){0}, &why));
    REFUSED(GW_ERR_RANGE, "has 7 elements",
            gw_feedback_add(store, joined, 8, 6, 2, &(uint64_t){0}, &why));
    REFUSED(GW_ERR_ARG, "tensor number 9", gw_feedback_join(store, unknown, 1, &joined, &why));
    REFUSED(GW_ERR_ARG, "no tensors", gw_feedback_join(store, list, 0, &joined, &why));
    /* a checkpoint knows the members' names; other slots get the parts that are theirs */
    OK(gw_feedback_save(store, blob, sizeof blob, &size, NULL));
    const uint32_t of_a = tensor_of(other, "a", 3), of_b = tensor_of(other, "b", 4);
    const uint64_t whole = slot_of(other, of_a, 7, 0, 3);
    const gw_feedback_blob saved = {blob, size};
    OK(gw_feedback_load(other, 1, &saved, 1, NULL, NULL));
    assert_true(residual_at(other, whole, 0) == 6 && residual_at(other, whole, 2) == 10);
    assert_int_equal(gw_feedback_orphans(other, of_b), 1);
    /* and back: only what fits is a residual again */
    OK(gw_feedback_save(other, blob, sizeof blob, &size, NULL));
    const gw_feedback_blob again = {blob, size};
    OK(gw_feedback_load(store, 1, &again, 1, NULL, NULL));
    assert_true(residual_at(store, slot, 0) == 0 && residual_at(store, slot, 2) == 6);
    OK(gw_feedback_hand_over(store, b, gradient, 0, 4, NULL));
    REFUSED(GW_ERR_STATE, "tensor 'b' has an open hand-over",
            gw_feedback_retire(store, slot, &why));
    OK(gw_feedback_hand_over_commit(store, b, NULL));
    assert_true(gradient[1] == 0 && gradient[2] == 2 && gradient[3] == 4);
    OK(gw_feedback_retire(store, slot, NULL));
    assert_int_equal(gw_feedback_orphans(store, a), 1);
    OK(gw_feedback_part(store, joined, NULL));
    REFUSED(GW_ERR_ARG, "no joined tensor", gw_feedback_part(store, joined, &why));
    REFUSED(GW_ERR_ARG, "no joined tensor", gw_feedback_part(store, a, &why));
    gw_feedback_destroy(store);
    gw_feedback_destroy(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(a_reset_residual_is_seen),
        cmocka_unit_test(rollback_keeps_every_bit),
        cmocka_unit_test(what_is_not_finite_never_enters),
        cmocka_unit_test(a_call_at_the_wrong_moment_is_named),
        cmocka_unit_test(what_is_owed_here_is_done_before_anyone_looks),
        cmocka_unit_test(orphans_are_handed_over_piece_by_piece),
        cmocka_unit_test(orphans_are_added_oldest_first),
        cmocka_unit_test(rounding_stays_behind),
        cmocka_unit_test(rounding_and_fp32),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(no_memory_is_an_error_with_a_name),
        cmocka_unit_test(names_are_found_in_any_order),
        cmocka_unit_test(an_empty_tensor_is_one),
        cmocka_unit_test(what_is_joined_belongs_to_each),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
