/* Checkpoints: what is saved comes back by name, anything else is refused with words and changes
 * nothing, and another number of ranks keeps the total. */
#include "feedback/stores.h"

#include "base/little_endian.h"
#include "base/numeric.h"
#include "base/why.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* w: point 0 whole, point 2 a shard, an orphan; b: one odd number; empty; dense. */
static const float w0[5] = {1, -2, 0.5f, -0.0f, 0x1p-149f}, w2[2] = {8, 16},
                   orphaned[3] = {3, 4, 5};

static gw_feedback *small_store(int with_numbers)
{
    gw_feedback *store = new_store(0, 1);
    declare(store, "w", 5);
    declare(store, "b", 1);
    declare(store, "dense", 3);
    declare(store, "empty", 0);
    if (with_numbers) {
        const uint64_t gone = put(store, "w", 1, 2, 3, orphaned);
        OK(gw_feedback_retire(store, gone, NULL));
    }
    (void)put(store, "w", 2, 3, 2, with_numbers ? w2 : NULL);
    (void)put(store, "w", 0, 0, 5, with_numbers ? w0 : NULL);
    (void)put(store, "b", 0, 0, 1, with_numbers ? w0 : NULL);
    (void)put(store, "empty", 0, 0, 0, NULL);
    return store;
}

static blob small_blob(void)
{
    gw_feedback *store = small_store(1);
    const blob b = save(store);
    gw_feedback_destroy(store);
    return b;
}

static void rehash(blob *b)
{
    memset(b->bytes + 56, 0, 8);
    gw_put_u64(b->bytes + 56, XXH3_64bits(b->bytes, b->size));
}

/* ---- loading ---- */

/* Loads into a store that holds something; a refusal must leave that, bit for bit. */
static gw_status load_one(gw_feedback *store, const blob *b, char *words)
{
    gw_why why = {""};
    const blob before = save(store);
    /* exactly the blob's bytes, at an odd address, so that AddressSanitizer sees one read too many */
    uint8_t *copy = malloc(b->size + 1);
    assert_non_null(copy);
    memcpy(copy + 1, b->bytes, b->size);
    const gw_feedback_blob blobs[1] = {{copy + 1, b->size}};
    const gw_status status = gw_feedback_load(store, 1, blobs, 1, NULL, &why);
    free(copy);
    (void)snprintf(words, sizeof why.text, "%s", why.text);
    if (status != GW_OK) {
        const blob after = save(store);
        assert_int_equal(after.size, before.size);
        assert_memory_equal(after.bytes, before.bytes, before.size);
    }
    return status;
}

static void what_is_saved_comes_back(void **state)
{
    (void)state;
    char words[256];
    const blob saved = small_blob();
    gw_feedback_info info;
    OK(gw_feedback_inspect(saved.bytes, saved.size, &info, NULL));
    assert_int_equal(info.world, 1);
    assert_true(info.tensors == 4 && info.residuals == 4 && info.orphans == 1);
    /* declared in another order, and in the other mode */
    gw_feedback *store = NULL;
    OK(gw_feedback_create(GW_FEEDBACK_IN_PLACE, 0, 1, &store, NULL));
    declare(store, "empty", 0);
    declare(store, "dense", 3);
    declare(store, "b", 1);
    declare(store, "w", 5);
    (void)put(store, "empty", 0, 0, 0, NULL);
    const uint64_t whole = put(store, "w", 0, 0, 5, NULL);
    (void)put(store, "b", 0, 0, 1, NULL);
    const uint64_t shard = put(store, "w", 2, 3, 2, w0);
    OK(load_one(store, &saved, words));
    assert_memory_equal(gw_feedback_residual(store, whole), w0, sizeof w0);
    assert_memory_equal(gw_feedback_residual(store, shard), w2, sizeof w2);
    uint32_t w = 0;
    OK(gw_feedback_find(store, "w", &w, NULL));
    float g[5] = {0};
    OK(gw_feedback_hand_over(store, w, g, 0, 5, NULL));
    OK(gw_feedback_hand_over_rollback(store, w, NULL));
    assert_memory_equal(g + 2, orphaned, sizeof orphaned);
    const blob again = save(store);
    assert_int_equal(again.size, saved.size);
    assert_memory_equal(again.bytes, saved.bytes, saved.size);
    OK(load_one(store, &saved, words)); /* a second load replaces, it does not add */
    assert_memory_equal(save(store).bytes, saved.bytes, saved.size);
    gw_feedback_destroy(store);
}

static void no_tensors_are_a_checkpoint(void **state)
{
    (void)state;
    char words[256];
    gw_feedback *store = new_store(0, 1), *other = small_store(1);
    const blob b = save(store);
    assert_int_equal(b.size, 64);
    OK(load_one(store, &b, words));
    assert_int_equal(load_one(other, &b, words), GW_ERR_UNKNOWN);
    assert_non_null(strstr(words, "no tensor 'b'"));
    gw_feedback_destroy(store);
    gw_feedback_destroy(other);
}

/* ---- hostile bytes ---- */

static void every_flipped_bit_is_refused(void **state)
{
    (void)state;
    char words[256];
    blob b = small_blob();
    gw_feedback *store = small_store(1);
    size_t passed = 0;
    for (size_t bit = 0; bit < 8 * b.size; bit++) {
        blob f = b;
        f.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        const gw_status status = load_one(store, &f, words);
        CHECK(status < 0 && words[0] != '\0', "bit %zu flipped: status %d '%s'", bit, status,
              words);
        rehash(&f); /* the negative control: with the hash made right some bits get through */
        passed += load_one(store, &f, words) == GW_OK;
    }
    print_message("%zu single flipped bits refused\n", 8 * b.size);
    assert_true(passed > 0);
    gw_feedback_destroy(store);
}

static void every_truncation_is_refused(void **state)
{
    (void)state;
    char words[256];
    const blob whole = small_blob();
    gw_feedback *store = small_store(1);
    for (size_t size = 0; size < whole.size; size++) {
        blob b = whole;
        b.size = size;
        const gw_status status = load_one(store, &b, words);
        CHECK(status == (size < 4 ? GW_ERR_CORRUPT : GW_ERR_TRUNCATED), "%zu bytes: %d '%s'", size,
              status, words);
    }
    blob longer = whole;
    longer.size += 8;
    assert_int_equal(load_one(store, &longer, words), GW_ERR_CORRUPT);
    gw_feedback_destroy(store);
}

/* One field changed, the hash made right. Entries in order: b, dense, empty, w. */
enum { B = 64, DENSE = B + 48, EMPTY = DENSE + 24, W = EMPTY + 48, NUMBERS = W + 96 };
static const struct {
    size_t at, width;
    uint64_t value;
    gw_status status;
    const char *words;
} fields[] = {
    {0, 1, 'X', GW_ERR_CORRUPT, "magic"},
    {4, 2, 0, GW_ERR_VERSION, "checkpoint version 0; this library reads versions 1 to 2"},
    {4, 2, 3, GW_ERR_VERSION, "checkpoint version 3; this library reads versions 1 to 2"},
    {4, 2, 2, GW_ERR_CORRUPT, "hashes of means: kind 0"},
    {6, 2, 1, GW_ERR_CORRUPT, "reserved"},
    {8, 4, 1, GW_ERR_CORRUPT, "rank 1 of 1"},
    {12, 4, 0, GW_ERR_CORRUPT, "rank 0 of 0"},
    {12, 4, 2, GW_ERR_ARG, "a checkpoint of rank 0 of 2 is not for rank 0 of 1 after 1 ranks"},
    {16, 8, 1 << 20, GW_ERR_TRUNCATED, "truncated"},
    {16, 8, UINT64_MAX, GW_ERR_TRUNCATED, "truncated"},
    {16, 8, 64, GW_ERR_CORRUPT, "lengths disagree"},
    {24, 8, 56, GW_ERR_CORRUPT, "lengths disagree"},
    {24, 8, 68, GW_ERR_CORRUPT, "lengths disagree"},
    {24, 8, UINT64_MAX - 7, GW_ERR_CORRUPT, "lengths disagree"},
    {24, 8, NUMBERS - 8, GW_ERR_CORRUPT, "tensor 3: its entry does not fit"},
    {24, 8, NUMBERS + 8, GW_ERR_CORRUPT, ""},
    {32, 4, 3, GW_ERR_CORRUPT, "the header says"},
    {32, 4, 5, GW_ERR_CORRUPT, "tensor 4: its entry does not fit"},
    {32, 4, UINT32_MAX, GW_ERR_CORRUPT, "4294967295 tensors"},
    {36, 4, 5, GW_ERR_CORRUPT, "the header says"},
    {36, 4, 3, GW_ERR_CORRUPT, "more records than the header says"},
    {36, 4, UINT32_MAX, GW_ERR_CORRUPT, "do not fit"},
    {40, 4, UINT32_MAX, GW_ERR_CORRUPT, "do not fit"},
    {44, 4, 1, GW_ERR_CORRUPT, "reserved"},
    {48, 8, 1, GW_ERR_CORRUPT, "reserved"},
    {B, 8, 0, GW_ERR_CORRUPT, "tensor 0: 1 elements from 0 on, of 0"},
    {B, 8, 2, GW_ERR_RANGE, "tensor 'b' has 2 elements in rank 0's checkpoint, here 1"},
    {B, 8, UINT64_MAX, GW_ERR_CORRUPT, "2^48"},
    {B + 8, 4, 0, GW_ERR_RANGE, "empty"},
    {B + 8, 4, UINT32_MAX, GW_ERR_CORRUPT, "does not fit"},
    {B + 12, 4, UINT32_MAX, GW_ERR_CORRUPT, "does not fit"},
    {B + 16, 4, 3, GW_ERR_UNKNOWN, "kind 3"},
    {B + 24, 8, UINT64_MAX, GW_ERR_CORRUPT, "elements from"},
    {B + 32, 8, UINT64_MAX, GW_ERR_CORRUPT, "elements from"},
    {B + 40, 1, 'c', GW_ERR_UNKNOWN, "checkpoint has no tensor 'b'"}, /* as long, not the same */
    {B + 40, 1, 'a', GW_ERR_UNKNOWN, "has a tensor 'a', we do not"},
    {B + 40, 1, 'x', GW_ERR_CORRUPT, "twice or out of order"},
    {B + 40, 1, 0xFF, GW_ERR_RANGE, "not UTF-8"},
    {B + 40, 1, 0, GW_ERR_RANGE, "NUL"},
    {B + 41, 1, 1, GW_ERR_CORRUPT, "padding behind its name"},
    {EMPTY + 16, 4, 2, GW_ERR_CORRUPT, "0 elements from 0 on"},
    {W + 16 + 24 + 4, 4, 0, GW_ERR_CORRUPT, "encode point 0 is there twice"},
    {W + 16, 4, 2, GW_ERR_CORRUPT, "out of order"},
    {W + 16 + 16, 8, 4, GW_ERR_CORRUPT, ""},
    {NUMBERS, 4, GW_INF_BITS, GW_ERR_CORRUPT, "tensor 0: a number is not finite"},
    {NUMBERS + 8, 4, GW_NAN_BITS, GW_ERR_CORRUPT, "tensor 3: a number is not finite"},
    {NUMBERS + 4, 4, 1, GW_ERR_CORRUPT, "padding behind its numbers"}};

static void every_field_is_checked(void **state)
{
    (void)state;
    char words[256];
    gw_feedback *store = small_store(1);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++) {
        blob b = small_blob();
        for (size_t k = 0; k < fields[i].width; k++) {
            b.bytes[fields[i].at + k] = (uint8_t)(fields[i].value >> 8 * k);
        }
        rehash(&b);
        const gw_status status = load_one(store, &b, words);
        CHECK(status == fields[i].status && strstr(words, fields[i].words) != NULL,
              "case %zu, offset %zu: %d '%s'", i, fields[i].at, status, words);
    }
    gw_feedback_destroy(store);
}

/* ---- hashes of means ---- */

typedef struct keeper {
    gw_feedback_means means; /* to save, and what was loaded */
    uint64_t hashes[4];
    gw_status status;
} keeper;

static gw_status give(void *owner, gw_feedback_means *means, gw_why *why)
{
    const keeper *k = owner;
    means->kind = k->means.kind;
    means->since = k->means.since;
    if (means->hashes != NULL) {
        memcpy(means->hashes, k->hashes, sizeof k->hashes);
    }
    return k->status == GW_OK ? GW_OK : gw_fail(why, k->status, "no hashes today");
}

static void take(void *owner, const gw_feedback_means *means)
{
    keeper *k = owner;
    k->means = *means;
    memcpy(k->hashes, means->hashes, sizeof k->hashes);
}

static gw_status save_means(keeper *k, uint32_t rank, uint32_t world, blob *out)
{
    gw_feedback *store = new_store(rank, world);
    gw_why why = {""};
    declare(store, "w", 5);
    declare(store, "b", 1);
    declare(store, "dense", 3);
    declare(store, "empty", 0);
    gw_feedback_keep_means(store, &(gw_feedback_means_keeper){k, give, take});
    const gw_status status = gw_feedback_save(store, out->bytes, MAX_BLOB, &out->size, &why);
    gw_feedback_destroy(store);
    return status;
}

static const keeper some = {{3, 41, NULL}, {1, 2, 0xFEDCBA9876543210u, UINT64_MAX}, GW_OK};

static void hashes_of_means_come_back(void **state)
{
    (void)state;
    keeper k = some, other = {{0, 0, NULL}, {0}, GW_OK};
    blob b = {.size = 0}, plain = {.size = 0}, longer;
    char words[256];
    OK(save_means(&k, 0, 1, &b));
    OK(save_means(&other, 0, 1, &plain));
    assert_int_equal(gw_get_u16(plain.bytes + 4),
                     1); /* nothing to compare: as before there were hashes */
    assert_int_equal(gw_get_u16(b.bytes + 4), GW_CHECKPOINT_VERSION);
    assert_int_equal(b.size, plain.size + 4 * 8);
    gw_feedback *store = small_store(1); /* declares its tensors in the same order */
    gw_feedback_keep_means(store, &(gw_feedback_means_keeper){&other, give, take});
    OK(load_one(store, &b, words));
    assert_true(other.means.kind == 3 && other.means.since == 41);
    assert_memory_equal(other.hashes, some.hashes, sizeof some.hashes);
    OK(load_one(store, &plain, words));
    assert_int_equal(other.means.kind, 0);
    for (size_t bit = 0; bit < 8 * b.size; bit++) {
        blob f = b;
        f.bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        CHECK(load_one(store, &f, words) < 0, "bit %zu flipped: '%s'", bit, words);
    }
    longer = b;
    gw_put_u32(longer.bytes + 32, 400); /* more hashes than there are bytes */
    rehash(&longer);
    assert_int_equal(load_one(store, &longer, words), GW_ERR_CORRUPT);
    gw_feedback_keep_means(store, NULL);
    OK(load_one(store, &b, words)); /* a store without a keeper leaves them alone */
    gw_feedback_destroy(store);
    k.status = GW_ERR_SYSTEM;
    assert_int_equal(save_means(&k, 0, 1, &b), GW_ERR_SYSTEM);
}

static void read_golden(const char *name, blob *out)
{
    char path[512];
    (void)snprintf(path, sizeof path, "%s/%s", GW_TESTS_GOLDEN, name);
    FILE *file = fopen(path, "rb");
    CHECK(file != NULL, "%s", path);
    out->size = fread(out->bytes, 1, MAX_BLOB, file);
    (void)fclose(file);
}

/* One stored checkpoint of each version: it is still written with the same bytes, and still loads. */
static void stored_checkpoints_load(void **state)
{
    (void)state;
    keeper k = some, loaded = {{0, 0, NULL}, {0}, GW_OK};
    blob b;
    char words[256];
    gw_feedback *full = small_store(1), *empty = small_store(0);
    const gw_feedback_means_keeper gives = {&k, give, take}, takes = {&loaded, give, take};
    for (int version = 1; version <= GW_CHECKPOINT_VERSION; version++) {
        read_golden(version == 1 ? "checkpoint-v1.gwr" : "checkpoint-v2.gwr", &b);
        gw_feedback_keep_means(full, version == 1 ? NULL : &gives);
        const blob now = save(full);
        CHECK(now.size == b.size && memcmp(now.bytes, b.bytes, b.size) == 0,
              "version %d: other bytes", version);
        gw_feedback_keep_means(empty, &takes);
        OK(load_one(empty, &b, words));
        assert_int_equal(loaded.means.kind, version == 1 ? 0 : some.means.kind);
        const blob again = save(empty); /* the keeper gives back what it took */
        CHECK(again.size == b.size && memcmp(again.bytes, b.bytes, b.size) == 0,
              "version %d: loads as something else", version);
    }
    assert_memory_equal(loaded.hashes, some.hashes, sizeof some.hashes);
    gw_feedback_destroy(full);
    gw_feedback_destroy(empty);
}

/* A rank that takes over two old ranks with different means reports it. */
static void old_ranks_that_differ_are_refused(void **state)
{
    (void)state;
    keeper k = some;
    blob of[2] = {{.size = 0}, {.size = 0}};
    gw_why why = {""};
    for (int differ = 0; differ <= 1; differ++) {
        k.hashes[2] += (uint64_t)differ;
        OK(save_means(&k, 1, 2, &of[1]));
        k = some;
        OK(save_means(&k, 0, 2, &of[0]));
        gw_feedback *store = new_store(0, 1);
        declare(store, "w", 5);
        declare(store, "b", 1);
        declare(store, "dense", 3);
        declare(store, "empty", 0);
        const gw_feedback_blob both[2] = {{of[0].bytes, of[0].size}, {of[1].bytes, of[1].size}};
        const gw_status status = gw_feedback_load(store, 2, both, 2, NULL, &why);
        assert_int_equal(status, differ ? GW_ERR_CHECKSUM : GW_OK);
        assert_true(!differ ||
                    strstr(why.text, "ranks 0 and 1 of 2 disagree: since step 41 the means of "
                                     "'dense' differ") != NULL);
        gw_feedback_destroy(store);
    }
}

/* A record that claims more numbers than there are, within its tensor's elements. */
static void numbers_must_be_there(void **state)
{
    (void)state;
    static const uint64_t counts[] = {5, 1 << 20, ((uint64_t)1 << 48) - 3};
    char words[256];
    gw_feedback *store = small_store(1);
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        blob b = small_blob();
        gw_put_u64(b.bytes + W, ((uint64_t)1 << 48) - 1);
        gw_put_u64(b.bytes + W + 16 + 48 + 16, counts[i]); /* the orphan, last of all */
        rehash(&b);
        assert_int_equal(load_one(store, &b, words), GW_ERR_CORRUPT);
        assert_non_null(strstr(words, "numbers do not fit"));
    }
    gw_feedback_destroy(store);
}

static void another_models_layers_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t elements;
        gw_status status;
        const char *words;
    } cases[] = {{"layer.1", 4, GW_OK, ""},
                 {"layer.2", 4, GW_ERR_UNKNOWN, "has a tensor 'layer.1', we do not"},
                 {"layer.0", 4, GW_ERR_UNKNOWN, "no tensor 'layer.0'"},
                 {"layer.10", 4, GW_ERR_UNKNOWN, "has a tensor 'layer.1', we do not"},
                 {"layer.", 4, GW_ERR_UNKNOWN, "no tensor 'layer.'"},
                 {"layer.1", 3, GW_ERR_RANGE, "'layer.1' has 4 elements in rank 0's checkpoint"}};
    char words[256];
    gw_feedback *saver = new_store(0, 1);
    declare(saver, "layer.1", 4);
    (void)put(saver, "layer.1", 0, 0, 4, w0);
    const blob b = save(saver);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_feedback *store = new_store(0, 1);
        declare(store, cases[i].name, cases[i].elements);
        (void)put(store, cases[i].name, 0, 0, 3, w0);
        const gw_status status = load_one(store, &b, words);
        CHECK(status == cases[i].status && strstr(words, cases[i].words) != NULL, "case %zu: %d %s",
              i, status, words);
        declare(store, "more", 1);
        assert_true(load_one(store, &b, words) < 0); /* a tensor that the checkpoint lacks */
        gw_feedback_destroy(store);
    }
    gw_feedback_destroy(saver);
}

/* ---- another number of ranks ---- */

/* Old world -> new world. `lost`: one heir is passed over, as a control. Returns whether the total is kept. */
static int keeps_the_total(uint32_t old_world, uint32_t new_world, uint32_t lost)
{
    static blob blobs[MAX_WORLD];
    double before[ELEMENTS + 3] = {0}, after[ELEMENTS + 3] = {0};
    gen g = {100 * old_world + new_world};
    for (uint32_t r = 0; r < old_world; r++) {
        gw_feedback *store = rank_store(r, old_world, &g, before);
        blobs[r] = save(store);
        gw_feedback_destroy(store);
    }
    for (uint32_t r = 0; r < new_world; r++) {
        uint32_t ranks[MAX_WORLD];
        gw_feedback_blob given[MAX_WORLD];
        size_t n = 0;
        gw_feedback_told told;
        gw_why why = {""};
        OK(gw_feedback_heirs(old_world, new_world, r, ranks, MAX_WORLD, &n, NULL));
        assert_true((n == 0) == (r >= old_world));
        for (size_t i = 0; i < n; i++) { /* in any order */
            const blob *b = &blobs[ranks[n - 1 - i]];
            given[i] = (gw_feedback_blob){b->bytes, b->size};
        }
        gw_feedback *store = rank_store(r, new_world, NULL, NULL);
        if (r != lost) {
            const gw_status status = gw_feedback_load(store, old_world, given, n, &told, &why);
            CHECK(status == GW_OK, "%u -> %u, rank %u: %s", old_world, new_world, r, why.text);
            assert_int_equal(told.residuals, 3 * n);
            assert_int_equal(told.orphans, n);
            if (old_world == new_world) {
                assert_int_equal(told.adopted + told.at_zero, 0);
            }
        }
        take_total(store, after);
        gw_feedback_destroy(store);
    }
    int same = 1;
    for (int i = 0; i < ELEMENTS + 3; i++) {
        same &= before[i] == after[i];
    }
    return same;
}

static void another_world_keeps_the_total(void **state)
{
    (void)state;
    for (uint32_t old_world = 1; old_world <= MAX_WORLD; old_world++) {
        for (uint32_t new_world = 1; new_world <= MAX_WORLD; new_world++) {
            CHECK(keeps_the_total(old_world, new_world, UINT32_MAX), "%u -> %u", old_world,
                  new_world);
            CHECK(!keeps_the_total(old_world, new_world, 0), "%u -> %u: a loss was not seen",
                  old_world, new_world);
        }
    }
}

static void a_load_says_what_it_did(void **state)
{
    (void)state;
    static blob blobs[12];
    gw_feedback_blob given[12];
    gw_feedback_told told;
    gen g = {5};
    double total[ELEMENTS + 3] = {0};
    for (uint32_t r = 0; r < 12; r++) {
        gw_feedback *saver = rank_store(r, r < 5 ? 5 : 12, &g, total);
        blobs[r] = save(saver);
        gw_feedback_destroy(saver);
    }
    gw_feedback *store = rank_store(1, 3, NULL, NULL);
    given[0] = (gw_feedback_blob){blobs[1].bytes, blobs[1].size};
    given[1] = (gw_feedback_blob){blobs[4].bytes, blobs[4].size};
    OK(gw_feedback_load(store, 5, given, 2, &told, NULL));
    assert_string_equal(told.text,
                        "rank 1 of 3 took over ranks 1 and 4 of 5: 6 residuals, 2 became "
                        "orphans, 2 orphans came along, 1 slot starts at zero");
    gw_feedback_destroy(store);
    store = rank_store(5, 6, NULL, NULL);
    OK(gw_feedback_load(store, 5, NULL, 0, &told, NULL));
    assert_string_equal(told.text,
                        "rank 5 of 6 took over none of 5: 0 residuals, 3 slots start at zero");
    gw_feedback_destroy(store);
    for (uint32_t r = 0; r < 12; r++) {
        gw_feedback *saver = rank_store(r, 12, &g, total);
        blobs[r] = save(saver);
        given[r] = (gw_feedback_blob){blobs[r].bytes, blobs[r].size};
        gw_feedback_destroy(saver);
    }
    store = rank_store(0, 1, NULL, NULL);
    OK(gw_feedback_load(store, 12, given, 12, &told, NULL));
    assert_non_null(strstr(told.text, "took over ranks 0, 1, 2, 3, 4, 5, 6 and 5 more of 12: 36"));
    gw_feedback_destroy(store);
}

static void the_wrong_ranks_are_refused(void **state)
{
    (void)state;
    blob blobs[3];
    double total[ELEMENTS + 3] = {0};
    gen g = {6};
    gw_why why = {""};
    for (uint32_t r = 0; r < 3; r++) {
        gw_feedback *saver = rank_store(r, 3, &g, total);
        blobs[r] = save(saver);
        gw_feedback_destroy(saver);
    }
    gw_feedback *store = rank_store(0, 2, NULL, NULL);
    static const struct {
        uint32_t old_world;
        size_t n;
        unsigned given[2];
        const char *words;
    } cases[] = {
        {2, 2, {0, 0}, "2 checkpoints given; rank 0 of 2 takes over 1 of 2 ranks"},
        {3, 2, {0, 1}, "a checkpoint of rank 1 of 3 is not for rank 0 of 2"},
        {3, 2, {2, 2}, "two checkpoints of rank 2"},
        {4, 2, {0, 2}, "a checkpoint of rank 0 of 3 is not for rank 0 of 2 after 4 ranks"}};
    const blob before = save(store);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_feedback_blob given[2];
        for (size_t k = 0; k < 2; k++) {
            const blob *b = &blobs[cases[i].given[k]];
            given[k] = (gw_feedback_blob){b->bytes, b->size};
        }
        const gw_status status =
            gw_feedback_load(store, cases[i].old_world, given, cases[i].n, NULL, &why);
        CHECK(status == GW_ERR_ARG && strstr(why.text, cases[i].words) != NULL, "case %zu: %d '%s'",
              i, status, why.text);
        assert_memory_equal(save(store).bytes, before.bytes, before.size);
    }
    /* the second of two is damaged: the first has changed nothing */
    gw_feedback_blob given[2] = {{blobs[0].bytes, blobs[0].size}, {blobs[2].bytes, blobs[2].size}};
    blobs[2].bytes[blobs[2].size - 1] ^= 1;
    assert_int_equal(gw_feedback_load(store, 3, given, 2, NULL, &why), GW_ERR_CHECKSUM);
    assert_non_null(strstr(why.text, "checkpoint 2 of 2"));
    assert_memory_equal(save(store).bytes, before.bytes, before.size);
    gw_feedback_destroy(store);
}

static void a_sum_beyond_fp32_is_refused(void **state)
{
    (void)state;
    static const float huge[2] = {1, 0x1.8p127f};
    blob blobs[2];
    gw_why why = {""};
    for (uint32_t r = 0; r < 2; r++) {
        gw_feedback *saver = new_store(r, 2);
        declare(saver, "w", 2);
        (void)put(saver, "w", 0, 0, 2, huge);
        blobs[r] = save(saver);
        gw_feedback_destroy(saver);
    }
    const gw_feedback_blob given[2] = {{blobs[0].bytes, blobs[0].size},
                                       {blobs[1].bytes, blobs[1].size}};
    gw_feedback *store = new_store(0, 1);
    declare(store, "w", 2);
    const uint64_t slot = put(store, "w", 0, 0, 2, w2);
    assert_int_equal(gw_feedback_load(store, 2, given, 2, NULL, &why), GW_ERR_RANGE);
    assert_non_null(strstr(why.text, "tensor 'w', encode point 0: the ranks' residuals add up to "
                                     "infinity at element 1"));
    assert_memory_equal(gw_feedback_residual(store, slot), w2, sizeof w2);
    gw_feedback_destroy(store);
}

static void heirs_share_the_old_ranks(void **state)
{
    (void)state;
    uint32_t ranks[4] = {9, 9, 9, 9};
    size_t n = 99;
    gw_why why = {""};
    OK(gw_feedback_heirs(5, 3, 1, ranks, 4, &n, NULL));
    assert_true(n == 2 && ranks[0] == 1 && ranks[1] == 4 && ranks[2] == 9);
    assert_int_equal(gw_feedback_heirs(5, 3, 1, ranks, 1, &n, &why), GW_ERR_CAPACITY);
    OK(gw_feedback_heirs(5, 3, 1, NULL, 0, &n, NULL));
    assert_int_equal(n, 2);
    OK(gw_feedback_heirs(UINT32_MAX, 1, 0, NULL, 0, &n, NULL));
    assert_int_equal(n, UINT32_MAX);
    OK(gw_feedback_heirs(UINT32_MAX, UINT32_MAX, UINT32_MAX - 1, ranks, 1, &n, NULL));
    assert_true(n == 1 && ranks[0] == UINT32_MAX - 1);
    assert_int_equal(gw_feedback_heirs(0, 3, 1, ranks, 4, &n, &why), GW_ERR_RANGE);
    assert_int_equal(gw_feedback_heirs(5, 3, 3, ranks, 4, &n, &why), GW_ERR_RANGE);
    assert_non_null(strstr(why.text, "rank 3 of 3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_saved_comes_back),
        cmocka_unit_test(no_tensors_are_a_checkpoint),
        cmocka_unit_test(every_flipped_bit_is_refused),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(every_field_is_checked),
        cmocka_unit_test(numbers_must_be_there),
        cmocka_unit_test(hashes_of_means_come_back),
        cmocka_unit_test(stored_checkpoints_load),
        cmocka_unit_test(old_ranks_that_differ_are_refused),
        cmocka_unit_test(another_models_layers_are_refused),
        cmocka_unit_test(another_world_keeps_the_total),
        cmocka_unit_test(a_load_says_what_it_did),
        cmocka_unit_test(the_wrong_ranks_are_refused),
        cmocka_unit_test(a_sum_beyond_fp32_is_refused),
        cmocka_unit_test(heirs_share_the_old_ranks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
