/* gw_feedback_inspect and gw_feedback_load of any bytes. The first byte says what is made right
 * before, for else every change ends at a checksum; the rest is the checkpoint.
 *
 * A refused one leaves a store as it was. An accepted one, loaded into a store with its tensors and
 * encode points, is what gw_feedback_save writes from there; into a store without encode points, all
 * of it becomes orphans. */
#include "fuzz.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    HASH = 1,
    LENGTHS = 2,   /* the counts are those of the entries, there are as many numbers as they say */
    UNALIGNED = 4, /* a checkpoint may lie anywhere */
    IN_PLACE = 8   /* mode of the store */
};
enum { HEADER = 64, ENTRY = 16, RECORD = 24, BLOB_MAX = 1 << 14 };

static uint64_t get(const uint8_t *at, size_t bytes)
{
    fuzz_input in = {at, bytes};
    return fuzz_take(&in, bytes);
}

static void put(uint8_t *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        at[i] = (uint8_t)(value >> 8 * i);
    }
}

/* ---- repair: follows the entries as far as they make sense ---- */

/* `b` has BLOB_MAX bytes, zero from `size` on. Returns the size after the repair. */
static size_t repair_lengths(uint8_t *b, size_t size)
{
    const uint64_t directory = get(b + 24, 8);
    uint64_t at = HEADER, tensors = 0, kinds[2] = {0, 0}, numbers = 0;
    if (directory < HEADER || directory > size) {
        return size;
    }
    while (directory - at >= ENTRY) {
        const uint64_t records = get(b + at + 12, 4);
        const uint64_t bytes = (ENTRY + RECORD * records + get(b + at + 8, 4) + 7) & ~(uint64_t)7;
        if (bytes > directory - at) {
            return size;
        }
        for (uint64_t i = 0; i < records; i++) {
            const uint8_t *record = b + at + ENTRY + RECORD * i;
            kinds[get(record, 4) == 2]++;
            const uint64_t count = get(record + 16, 8);
            numbers += count < BLOB_MAX ? (4 * count + 7) & ~(uint64_t)7 : 0;
        }
        tensors++;
        at += bytes;
    }
    if (numbers > BLOB_MAX - directory) {
        return size;
    }
    put(b + 16, directory + numbers, 8);
    put(b + 32, tensors, 4);
    put(b + 36, kinds[0], 4);
    put(b + 40, kinds[1], 4);
    return (size_t)(directory + numbers);
}

static size_t repair(uint8_t *b, size_t size, unsigned what)
{
    if (size < HEADER) {
        return size;
    }
    if (what & LENGTHS) {
        size = repair_lengths(b, size);
    }
    if (what & HASH) {
        memset(b + 56, 0, 8);
        put(b + 56, XXH3_64bits(b, size), 8);
    }
    return size;
}

/* ---- checks ---- */

static fuzz_buffer save(const gw_feedback *store)
{
    size_t bytes = 0, written = 0;
    REQUIRE(gw_feedback_save_bytes(store, &bytes, NULL) == GW_OK);
    fuzz_buffer b = fuzz_acquire(bytes, 0);
    REQUIRE(gw_feedback_save(store, b.data, bytes, &written, NULL) == GW_OK && written == bytes);
    return b;
}

/* A store with the tensors of an accepted checkpoint, and its encode points if asked for. */
static gw_feedback *store_like(const uint8_t *b, const gw_feedback_info *info, unsigned what,
                               int with_slots)
{
    gw_feedback *store = NULL;
    const gw_feedback_mode mode = what & IN_PLACE ? GW_FEEDBACK_IN_PLACE : GW_FEEDBACK_BESIDE;
    REQUIRE(gw_feedback_create(mode, info->rank, info->world, &store, NULL) == GW_OK);
    size_t at = HEADER;
    for (uint32_t i = 0; i < info->tensors; i++) {
        char name[GW_FEEDBACK_MAX_NAME + 1] = "";
        const size_t name_bytes = (size_t)get(b + at + 8, 4), records = (size_t)get(b + at + 12, 4);
        uint32_t tensor = 0;
        REQUIRE(name_bytes <= GW_FEEDBACK_MAX_NAME);
        memcpy(name, b + at + ENTRY + RECORD * records, name_bytes);
        REQUIRE(gw_feedback_add_tensor(store, name, get(b + at, 8), &tensor, NULL) == GW_OK);
        for (size_t k = 0; k < records; k++) {
            const uint8_t *r = b + at + ENTRY + RECORD * k;
            uint64_t slot = 0;
            if (with_slots && get(r, 4) == 1) {
                REQUIRE(gw_feedback_add(store, tensor, (uint32_t)get(r + 4, 4), get(r + 8, 8),
                                        get(r + 16, 8), &slot, NULL) == GW_OK);
            }
        }
        at += (ENTRY + RECORD * records + name_bytes + 7) & ~(size_t)7;
    }
    return store;
}

static void check_accepted(const fuzz_buffer *b, const gw_feedback_info *info, unsigned what)
{
    const gw_feedback_blob blob = {b->data, b->size};
    gw_feedback_told told;
    gw_why why = {""};
    double norm = -1;
    REQUIRE(gw_feedback_checkpoint_norm(b->data, b->size, &norm, NULL) == GW_OK && norm >= 0);
    gw_feedback *store = store_like(b->data, info, what, 1);
    REQUIRE(gw_feedback_load(store, info->world, &blob, 1, &told, &why) == GW_OK);
    REQUIRE(told.residuals == info->residuals && told.orphans == info->orphans);
    REQUIRE(told.adopted == 0 && told.at_zero == 0 && why.text[0] == '\0');
    fuzz_require_reason(told.text, sizeof told.text);
    fuzz_buffer again = save(store);
    REQUIRE(again.size == b->size && memcmp(again.data, b->data, b->size) == 0);
    fuzz_release(&again);
    gw_feedback_destroy(store);
    store = store_like(b->data, info, what, 0);
    REQUIRE(gw_feedback_load(store, info->world, &blob, 1, &told, NULL) == GW_OK);
    uint64_t orphans = 0;
    for (uint32_t i = 0; i < info->tensors; i++) {
        orphans += gw_feedback_orphans(store, i);
    }
    REQUIRE(orphans == told.adopted + told.orphans);
    gw_feedback_destroy(store);
}

/* A store with something in it: rank 0 of 1, tensors `b` and `w`. */
static gw_feedback *other_store(void)
{
    static const float numbers[3] = {1, 2, 3};
    gw_feedback *store = NULL;
    uint32_t tensor = 0;
    uint64_t slot = 0;
    const float *r = NULL;
    REQUIRE(gw_feedback_create(GW_FEEDBACK_IN_PLACE, 0, 1, &store, NULL) == GW_OK);
    REQUIRE(gw_feedback_add_tensor(store, "b", 1, &tensor, NULL) == GW_OK);
    REQUIRE(gw_feedback_add_tensor(store, "w", 5, &tensor, NULL) == GW_OK);
    for (uint32_t point = 0; point < 2; point++) {
        REQUIRE(gw_feedback_add(store, tensor, point, 2, 3, &slot, NULL) == GW_OK);
        REQUIRE(gw_feedback_begin(store, slot, &r, NULL, NULL) == GW_OK);
        REQUIRE(gw_feedback_commit(store, slot, numbers, NULL) == GW_OK);
    }
    REQUIRE(gw_feedback_retire(store, slot, NULL) == GW_OK);
    return store;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t repaired[BLOB_MAX];
    if (size == 0 || size - 1 > BLOB_MAX) {
        return 0;
    }
    const unsigned what = data[0];
    memset(repaired, 0, sizeof repaired);
    memcpy(repaired, data + 1, size - 1);
    const size_t bytes = repair(repaired, size - 1, what);
    fuzz_buffer b = fuzz_copy(repaired, bytes, what & UNALIGNED ? 1 : 0);
    gw_feedback_info info;
    gw_why why = {""};
    const gw_status status = gw_feedback_inspect(b.data, b.size, &info, &why);
    if (status == GW_OK) {
        REQUIRE(why.text[0] == '\0');
        check_accepted(&b, &info, what);
    } else {
        fuzz_require_reason(why.text, sizeof why.text);
    }
    gw_feedback *store = other_store();
    fuzz_buffer before = save(store);
    const gw_feedback_blob blob = {b.data, b.size};
    const gw_status loaded = (what & IN_PLACE) != 0
                                 ? gw_feedback_load_surviving(store, 1, &blob, 1, NULL, &why)
                                 : gw_feedback_load(store, 1, &blob, 1, NULL, &why);
    REQUIRE(status == GW_OK || loaded == status);
    fuzz_buffer after = save(store);
    if (loaded != GW_OK) {
        fuzz_require_reason(why.text, sizeof why.text);
        REQUIRE(after.size == before.size && memcmp(after.data, before.data, before.size) == 0);
    }
    gw_feedback_destroy(store);
    fuzz_release(&after);
    fuzz_release(&before);
    fuzz_release(&b);
    return 0;
}
