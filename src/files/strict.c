#define _POSIX_C_SOURCE 200809L
#include "files/strict.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHOWN = 80 }; /* bytes of foreign text in a message */

gw_json_place gw_json_root(char *why, size_t size)
{
    return (gw_json_place){.index = SIZE_MAX, .why = why, .size = size};
}

gw_json_place gw_json_at_entry(const gw_json_place *up, const char *array, size_t index)
{
    return (gw_json_place){up, array, index, up->why, up->size};
}

gw_json_place gw_json_at_key(const gw_json_place *up, const char *key)
{
    return gw_json_at_entry(up, key, SIZE_MAX);
}

gw_json_place gw_json_at_item(const gw_json_place *up, size_t index)
{
    return gw_json_at_entry(up, NULL, index);
}

/* Appends to a text of `size` bytes, of which *used are taken; what finds no room is cut off. */
__attribute__((format(printf, 4, 0))) static void append(char *text, size_t size, size_t *used,
                                                         const char *format, va_list arguments)
{
    const int n = *used < size ? vsnprintf(text + *used, size - *used, format, arguments) : 0;
    *used += n > 0 ? (size_t)n : 0;
}

__attribute__((format(printf, 3, 4))) static void add(const gw_json_place *at, size_t *used,
                                                      const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    append(at->why, at->size, used, format, arguments);
    va_end(arguments);
}

/* The place's name, from the root down. Places are a few levels deep. */
static void name_place(const gw_json_place *at, size_t *used)
{
    enum { DEEPEST = 16 };
    const gw_json_place *chain[DEEPEST];
    size_t depth = 0;
    for (; at->up && depth < DEEPEST; at = at->up) {
        chain[depth++] = at;
    }
    while (depth-- > 0) {
        const gw_json_place *p = chain[depth];
        if (p->key) {
            add(p, used, "%s%.*s", *used ? "." : "", SHOWN, p->key);
        }
        if (p->index != SIZE_MAX) {
            add(p, used, "[%zu]", p->index);
        }
    }
}

bool gw_json_fail(const gw_json_place *at, const char *key, const char *format, ...)
{
    const gw_json_place inner = gw_json_at_key(at, key);
    size_t used = 0;
    va_list arguments;
    name_place(key ? &inner : at, &used);
    if (used > 0) {
        add(at, &used, ": ");
    }
    va_start(arguments, format);
    append(at->why, at->size, &used, format, arguments);
    va_end(arguments);
    return false;
}

json_t *gw_json_load(const void *data, size_t size, const gw_json_place *root)
{
    json_error_t error;
    json_t *json = json_loadb(data, size, JSON_REJECT_DUPLICATES, &error);
    if (!json) {
        (void)gw_json_fail(root, NULL, "line %d, column %d: %s", error.line, error.column,
                           error.text);
    }
    return json;
}

/* Finds `key` in a list of words; *optional says whether it has a "?". */
static bool has_word(const char *words, const char *key)
{
    const size_t length = strlen(key);
    while (*words != '\0') {
        const size_t word = strcspn(words, " ");
        const size_t mark = *words == '?';
        if (word - mark == length && strncmp(words + mark, key, length) == 0) {
            return true;
        }
        words += word;
        words += strspn(words, " ");
    }
    return false;
}

bool gw_json_object(const gw_json_place *at, const json_t *value, const char *keys)
{
    if (!json_is_object(value)) {
        return gw_json_fail(at, NULL, "is not an object");
    }
    const char *key = NULL;
    json_t *item = NULL;
    json_object_foreach((json_t *)value, key, item)
    {
        if (!has_word(keys, key)) {
            return gw_json_fail(at, NULL, "unknown key '%.*s'", SHOWN, key);
        }
    }
    for (const char *word = keys; *word != '\0';) {
        char name[64];
        const size_t length = strcspn(word, " ");
        (void)snprintf(name, sizeof name, "%.*s", (int)length, word);
        if (name[0] != '?' && !json_object_get(value, name)) {
            return gw_json_fail(at, NULL, "key '%s' is missing", name);
        }
        word += length;
        word += strspn(word, " ");
    }
    return true;
}

bool gw_json_number(const gw_json_place *at, const json_t *object, const char *key, double min,
                    double max, double *out)
{
    const json_t *value = json_object_get(object, key);
    if (!value) {
        return true;
    }
    if (!json_is_number(value)) {
        return gw_json_fail(at, key, "is not a number");
    }
    const double number = json_number_value(value);
    if (!isfinite(number) || number < min || number > max) {
        return gw_json_fail(at, key, "%g is not from %g to %g", number, min, max);
    }
    *out = number;
    return true;
}

bool gw_json_whole(const gw_json_place *at, const json_t *object, const char *key, uint64_t min,
                   uint64_t max, uint64_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!value) {
        return true;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) < min || (uint64_t)json_integer_value(value) > max) {
        return gw_json_fail(at, key, "is not a whole number from %" PRIu64 " to %" PRIu64, min,
                            max);
    }
    *out = (uint64_t)json_integer_value(value);
    return true;
}

bool gw_json_text(const gw_json_place *at, const json_t *object, const char *key, const char **out)
{
    const json_t *value = json_object_get(object, key);
    if (!value) {
        return true;
    }
    if (!json_is_string(value)) {
        return gw_json_fail(at, key, "is not a string");
    }
    *out = json_string_value(value);
    return true;
}

bool gw_json_bool(const gw_json_place *at, const json_t *object, const char *key, bool *out)
{
    const json_t *value = json_object_get(object, key);
    if (!value) {
        return true;
    }
    if (!json_is_boolean(value)) {
        return gw_json_fail(at, key, "is not true or false");
    }
    *out = json_is_true(value);
    return true;
}

bool gw_json_array(const gw_json_place *at, const json_t *object, const char *key, size_t min,
                   size_t max, const json_t **out)
{
    const json_t *value = json_object_get(object, key);
    if (!value) {
        return true;
    }
    if (!json_is_array(value)) {
        return gw_json_fail(at, key, "is not an array");
    }
    if (json_array_size(value) < min || json_array_size(value) > max) {
        return gw_json_fail(at, key, "has %zu entries; %zu to %zu can be read",
                            json_array_size(value), min, max);
    }
    *out = value;
    return true;
}

bool gw_json_format(const gw_json_place *at, const json_t *object, const char *expected)
{
    const json_t *value = json_object_get(object, "format");
    const char *format = json_string_value(value);
    if (!json_is_object(object)) {
        return gw_json_fail(at, NULL, "is not an object");
    }
    if (!format || strcmp(format, expected) != 0) {
        return gw_json_fail(at, NULL, "its format is '%.*s', not '%s'", SHOWN, format ? format : "",
                            expected);
    }
    return true;
}

/* ---- by a table of keys ---- */

static bool read_real(const json_t *value, const gw_json_place *at, const gw_json_key *k,
                      double *out)
{
    if (k->kind == GW_JSON_REAL_OR_NULL && json_is_null(value)) {
        *out = NAN;
        return true;
    }
    if (!json_is_number(value)) {
        return gw_json_fail(at, k->name, "is not a number%s",
                            k->kind == GW_JSON_REAL_OR_NULL ? " or null" : "");
    }
    *out = json_number_value(value);
    return *out >= 0 || gw_json_fail(at, k->name, "%g is negative", *out);
}

static bool read_value(const json_t *value, const gw_json_place *at, const gw_json_key *k,
                       void *out)
{
    void *to = (char *)out + k->offset;
    switch (k->kind) {
    case GW_JSON_TEXT:
    case GW_JSON_MAYBE:
        if (!json_is_string(value)) {
            return gw_json_fail(at, k->name, "is not a string");
        }
        *(char **)to = strdup(json_string_value(value));
        return *(char **)to || gw_json_fail(at, NULL, "out of memory");
    case GW_JSON_COUNT:
    case GW_JSON_LATER:
        if (!json_is_integer(value) || json_integer_value(value) < 0) {
            return gw_json_fail(at, k->name, "is not a whole number from 0 up");
        }
        *(uint64_t *)to = (uint64_t)json_integer_value(value);
        return true;
    case GW_JSON_FLAG:
        *(bool *)to = json_is_true(value);
        return json_is_boolean(value) || gw_json_fail(at, k->name, "is not true or false");
    case GW_JSON_REAL:
    case GW_JSON_REAL_OR_NULL:
        return read_real(value, at, k, to);
    default:
        return true;
    }
}

bool gw_json_record(const json_t *object, const gw_json_place *at, const gw_json_key *keys,
                    size_t n, void *out)
{
    if (!json_is_object(object)) {
        return gw_json_fail(at, NULL, "is not an object");
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_object_get(object, keys[i].name);
        if (!value && keys[i].kind == GW_JSON_MAYBE) {
            continue;
        }
        if (!value && keys[i].kind == GW_JSON_LATER && i >= 2) {
            value = json_object_get(object, keys[i - 2].name);
        }
        if (!value) {
            return gw_json_fail(at, NULL, "key '%s' is missing", keys[i].name);
        }
        if (!read_value(value, at, &keys[i], out)) {
            return false;
        }
    }
    if (json_object_size(object) == n) {
        return true; /* n known keys, none twice */
    }
    const char *name = NULL;
    json_t *value = NULL;
    json_object_foreach((json_t *)object, name, value)
    {
        bool known = false;
        for (size_t i = 0; i < n; i++) {
            known = known || strcmp(keys[i].name, name) == 0;
        }
        if (!known) {
            return gw_json_fail(at, NULL, "unknown key '%.*s'", SHOWN, name);
        }
    }
    return true;
}

void gw_json_record_free(const gw_json_key *keys, size_t n, void *from)
{
    for (size_t i = 0; i < n; i++) {
        if (keys[i].kind == GW_JSON_TEXT || keys[i].kind == GW_JSON_MAYBE) {
            free(*(char **)((char *)from + keys[i].offset));
        }
    }
}

/* ---- checks ---- */

bool gw_json_word(const gw_json_place *at, const char *name, const char *text, const char *choices)
{
    text = text ? text : ""; /* never: its object was read; clang-tidy does not see it */
    const size_t length = strlen(text);
    for (const char *one = choices; *one;) {
        const size_t word = strcspn(one, " ");
        if (word == length && memcmp(one, text, length) == 0) {
            return true;
        }
        one += word + (one[word] == ' ');
    }
    return gw_json_fail(at, name, "'%.*s' is none of: %s", SHOWN, text, choices);
}

bool gw_json_rising(const gw_json_place *at, uint64_t before, uint64_t step)
{
    return step > before ||
           gw_json_fail(at, "step", "%" PRIu64 " does not come after %" PRIu64, step, before);
}

bool gw_json_records(const json_t *root, const gw_json_place *at, const char *name, size_t item,
                     void **items, size_t *n)
{
    const json_t *array = json_object_get(root, name);
    if (!json_is_array(array)) {
        return gw_json_fail(at, name, "is not an array");
    }
    *items = calloc(json_array_size(array) + 1, item);
    *n = *items ? json_array_size(array) : 0;
    return *items || gw_json_fail(at, NULL, "out of memory");
}
