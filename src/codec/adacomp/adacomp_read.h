/* AdaComp's payload, for adacomp.c: its layout (docs/wire-format.md 3.8), whether one is right, and its numbers. */
#ifndef GW_ADACOMP_READ_H
#define GW_ADACOMP_READ_H

#include "base/bits.h"
#include "base/little_endian.h"
#include "codec/adacomp/adacomp.h"

#include <string.h>

enum { BIN, FACTOR, CAP }; /* parameters */
enum { HEADER = 16, SMALL_BIN = 63 };
enum { ENTRIES, BITMAP, NON_FINITE }; /* forms */

/* Entries: their bytes, and where sign and last mark stand. */
static uint32_t entry_bytes(const gw_params *p)
{
    return gw_param(p, BIN) <= SMALL_BIN ? 1 : 2;
}

static uint32_t index_bits(const gw_params *p)
{
    return gw_param(p, BIN) <= SMALL_BIN ? 6 : 14;
}

static uint64_t bins_of(const gw_params *p, uint64_t count)
{
    return gw_ceil_div(count, gw_param(p, BIN));
}

/* ---- whether it is right ---- */

static uint32_t entry_at(const uint8_t *entries, uint32_t width, uint64_t j)
{
    return width == 1 ? entries[j] : gw_get_u16(entries + 2 * j);
}

/* Whether entries are as docs/wire-format.md 3.8 wants them. Each is looked at beside the one before it alone, so that many are
 * looked at at once: of a bin's entries, which ascend, the last one tells whether they are inside, and as many bins as there are
 * leave none that ends elsewhere. */
GW_INLINE int entries_hold(const uint8_t *entries, uint64_t n, uint32_t width, uint16_t bin,
                           uint64_t bins, uint64_t in_last_bin)
{
    enum { TOGETHER = 256 };
    const uint32_t bits = width == 1 ? 6 : 14;
    const uint16_t empty = (uint16_t)((1u << bits) - 1), last = (uint16_t)(2u << bits);
    const uint16_t mark = empty | last; /* of a bin that has none */
    uint16_t e[1 + TOGETHER] = {last};  /* the one before, and those */
    uint64_t ended = 0;
    for (uint64_t j = 0; j < n; j += TOGETHER) {
        const size_t m = n - j < TOGETHER ? (size_t)(n - j) : TOGETHER;
        uint16_t wrong = 0, ends = 0;
        if (width == 2) {
            memcpy(e + 1, entries + 2 * j, 2 * m); /* little-endian */
        }
        for (size_t k = 0; width == 1 && k < m; k++) {
            e[1 + k] = entries[j + k];
        }
        for (size_t k = 1; k <= m; k++) {
            const uint16_t index = e[k] & empty, before = e[k - 1] & empty;
            const uint16_t begins = (e[k - 1] & last) != 0;
            const uint16_t fits = (uint16_t)((index < bin) & (begins | (index > before)));
            wrong |= (uint16_t)(1 ^ (fits | (begins & (e[k] == mark))));
            ends = (uint16_t)(ends + ((e[k] & last) != 0));
        }
        if (wrong) {
            return 0;
        }
        ended += ends;
        e[0] = e[m];
    }
    return ended == bins && (e[0] & last) != 0 &&
           (n == 0 || e[0] == mark || (e[0] & empty) < in_last_bin);
}

/* The same one by one, with words for what is wrong. */
static gw_status say_what_is_wrong(const gw_params *p, const uint8_t *entries, uint64_t n,
                                   uint64_t count, gw_why *why)
{
    const uint32_t width = entry_bytes(p), bits = index_bits(p), empty = (1u << bits) - 1;
    const uint32_t mark = empty | 2u << bits; /* the last of a bin that has none */
    const uint64_t bin = gw_param(p, BIN);
    uint64_t first = 0;
    int64_t before = -1; /* in the open bin */
    for (uint64_t j = 0; j < n; j++) {
        const uint32_t e = entry_at(entries, width, j), index = e & empty;
        const int64_t last = e >> (bits + 1);
        const int outside = (index >= bin) | (first + index >= count) | ((int64_t)index <= before);
        if ((first >= count) | (outside & !((e == mark) & (before < 0)))) {
            return gw_fail(why, GW_ERR_CORRUPT,
                           "adacomp: entry %llu (index %u) is outside of its bin or does not "
                           "ascend, or there are too many bins",
                           (unsigned long long)j, index);
        }
        before = (int64_t)index | -last;
        first += bin & (uint64_t)-last;
    }
    if (before >= 0 || first < count) {
        return gw_fail(why, GW_ERR_CORRUPT, "adacomp: the last mark of a bin is missing");
    }
    return GW_OK;
}

static gw_status validate_entries(const gw_params *p, const uint8_t *entries, uint64_t n,
                                  uint64_t count, gw_why *why)
{
    const uint64_t bin = gw_param(p, BIN), bins = bins_of(p, count);
    const uint64_t in_last = bins > 0 ? count - (bins - 1) * bin : 0;
    const int hold = entry_bytes(p) == 1
                         ? entries_hold(entries, n, 1, (uint16_t)bin, bins, in_last)
                         : entries_hold(entries, n, 2, (uint16_t)bin, bins, in_last);
    return hold ? GW_OK : say_what_is_wrong(p, entries, n, count, why);
}

static gw_status validate_bitmap(const uint8_t *bitmap, uint64_t chosen, uint64_t count,
                                 gw_why *why)
{
    const uint64_t size = gw_ceil_div(count, 8);
    const uint64_t ones = gw_count_ones(bitmap, size);
    if (ones != chosen || (count % 8 != 0 && bitmap[size - 1] >> count % 8 != 0) ||
        (chosen % 8 != 0 && bitmap[size + chosen / 8] >> chosen % 8 != 0)) {
        return gw_fail(why, GW_ERR_CORRUPT,
                       "adacomp: %llu elements in the bitmap, not %llu, or unused bits are set",
                       (unsigned long long)ones, (unsigned long long)chosen);
    }
    return GW_OK;
}

static gw_status validate(const gw_params *p, const uint8_t *payload, size_t size, uint64_t count,
                          gw_why *why)
{
    if (size < HEADER) {
        return gw_fail(why, GW_ERR_TRUNCATED, "adacomp: %zu bytes, the header alone has %d", size,
                       HEADER);
    }
    const uint32_t form = payload[0], scale = gw_get_u32(payload + 4);
    const uint64_t n = gw_get_u64(payload + 8), left = size - HEADER;
    if (form > NON_FINITE || payload[1] != 0 || payload[2] != 0 || payload[3] != 0) {
        return gw_fail(why, GW_ERR_CORRUPT,
                       "adacomp: form %u is unknown, or reserved bytes are not zero", form);
    }
    if (form == NON_FINITE ? scale != GW_NAN_BITS : scale >= GW_INF_BITS) {
        return gw_fail(why, GW_ERR_CORRUPT, "adacomp: a scale of pattern %08X in form %u", scale,
                       form);
    }
    const uint64_t bitmap = gw_ceil_div(count, 8);
    const int fits = form == NON_FINITE ? n == 0 && left == 0
                     : form == ENTRIES  ? n <= left && n * entry_bytes(p) == left
                                        : n <= count && bitmap + gw_ceil_div(n, 8) == left;
    if (!fits) {
        return gw_fail(why, GW_ERR_CORRUPT, "adacomp: %llu entries do not make %llu bytes",
                       (unsigned long long)n, (unsigned long long)left);
    }
    return form == ENTRIES  ? validate_entries(p, payload + HEADER, n, count, why)
           : form == BITMAP ? validate_bitmap(payload + HEADER, n, count, why)
                            : GW_OK;
}

/* ---- its numbers ---- */

static void put(float *out, gw_apply how, float v)
{
    *out = how == GW_ADD ? *out + v : v;
}

/* cursor: entry, and in state[0] the open bin's first element. The mark of a bin without elements goes nowhere. */
GW_INLINE void scatter_as(const gw_params *p, const uint8_t *payload, gw_cursor *c, uint64_t begin,
                          size_t n, uint32_t width, gw_apply how, float *out)
{
    const uint32_t bits = width == 1 ? 6 : 14, empty = (1u << bits) - 1;
    const uint64_t bin = gw_param(p, BIN), entries = gw_get_u64(payload + 8);
    const float scale = gw_float(gw_get_u32(payload + 4));
    uint64_t j = c->entry, first = c->state[0];
    float nowhere = 0;
    for (; j < entries; j++) {
        const uint32_t e = entry_at(payload + HEADER, width, j), index = e & empty;
        const uint64_t i = first + (index != empty ? index : 0);
        if (i >= begin + n) {
            break;
        }
        float *to[2] = {&nowhere, out + (i - begin)};
        put(to[index != empty], how, gw_adacomp_value(scale, e >> bits & 1));
        first += bin & (0 - (uint64_t)(e >> (bits + 1)));
    }
    c->entry = j;
    c->state[0] = first;
}

static void scatter_entries(const gw_params *p, const uint8_t *payload, gw_cursor *c,
                            uint64_t begin, size_t n, gw_apply how, float *out)
{
    if (entry_bytes(p) == 1) {
        scatter_as(p, payload, c, begin, n, 1, how, out);
    } else if (how == GW_ADD) {
        scatter_as(p, payload, c, begin, n, 2, GW_ADD, out);
    } else {
        scatter_as(p, payload, c, begin, n, 2, GW_SET, out);
    }
}

/* By 64 entries as long as none of them reaches into the bin of element `to`, then one by one. */
static void skip_entries(const gw_params *p, const uint8_t *payload, uint64_t to, gw_cursor *c)
{
    const uint32_t width = entry_bytes(p), bits = index_bits(p), empty = (1u << bits) - 1;
    const uint64_t bin = gw_param(p, BIN), entries = gw_get_u64(payload + 8);
    uint64_t j = 0, first = 0;
    for (; j + 64 <= entries; j += 64) {
        uint32_t ended = 0;
        for (uint64_t k = j; k < j + 64; k++) {
            ended += entry_at(payload + HEADER, width, k) >> (bits + 1);
        }
        if (first + (ended + 1) * bin > to) {
            break;
        }
        first += ended * bin;
    }
    for (; j < entries; j++) {
        const uint32_t e = entry_at(payload + HEADER, width, j), index = e & empty;
        if (first + (index != empty ? index : 0) >= to) {
            break;
        }
        first += e >> (bits + 1) ? bin : 0;
    }
    *c = (gw_cursor){j, {first}};
}

static void skip(const gw_coding *job, const uint8_t *payload, uint64_t count, uint64_t to,
                 gw_cursor *cursor)
{
    (void)count;
    if (payload[0] == ENTRIES) {
        skip_entries(job->params, payload, to, cursor);
    } else if (payload[0] == BITMAP) {
        cursor->entry = gw_count_ones(payload + HEADER, to / 8);
    }
}

/* cursor: entry is the number of signs used. Ranges begin on multiples of 8. Goes by 32 elements: as many
 * signs are in one word at any bit. */
static void scatter_bitmap(const uint8_t *payload, uint64_t count, gw_cursor *c, uint64_t begin,
                           size_t n, gw_apply how, float *out)
{
    const uint8_t *bitmap = payload + HEADER, *signs = bitmap + gw_ceil_div(count, 8);
    const uint8_t *end = signs + gw_ceil_div(gw_get_u64(payload + 8), 8);
    const float scale = gw_float(gw_get_u32(payload + 4));
    uint64_t j = c->entry;
    for (uint64_t at = 0; at < n; at += 32) {
        const uint64_t those = n - at < 32 ? ((uint64_t)1 << (n - at)) - 1 : UINT32_MAX;
        uint64_t word = gw_word_at(bitmap + (begin + at) / 8, end) & those;
        uint64_t sign = gw_word_at(signs + j / 8, end) >> j % 8;
        for (; word != 0; word &= word - 1, sign >>= 1, j++) {
            put(&out[at + (uint64_t)__builtin_ctzll(word)], how,
                gw_adacomp_value(scale, (uint32_t)sign & 1));
        }
    }
    c->entry = j;
}

static void scatter(const gw_coding *job, const uint8_t *payload, uint64_t count, gw_cursor *cursor,
                    uint64_t begin, size_t n, gw_apply how, float *out)
{
    if (payload[0] == ENTRIES) {
        scatter_entries(job->params, payload, cursor, begin, n, how, out);
    } else if (payload[0] == BITMAP) {
        scatter_bitmap(payload, count, cursor, begin, n, how, out);
    } else {
        for (size_t i = 0; i < n; i++) {
            put(&out[i], how, gw_float(GW_NAN_BITS));
        }
    }
}

#endif
