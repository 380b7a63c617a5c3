#include "cli/files/strict.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { SHOWN = 60 }; /* bytes of foreign text in a message */

gw_cli_place gw_cli_place_root(char *why, size_t size)
{
    return (gw_cli_place){.why = why, .size = size};
}

gw_cli_place gw_cli_place_key(const gw_cli_place *up, const char *key)
{
    return (gw_cli_place){.up = up, .key = key, .why = up->why, .size = up->size};
}

gw_cli_place gw_cli_place_item(const gw_cli_place *up, size_t index)
{
    return (gw_cli_place){.up = up, .index = index, .why = up->why, .size = up->size};
}

/* Appends the place's name; returns the bytes used. Places are a few levels deep. */
static size_t name_place(const gw_cli_place *at, char *text, size_t size)
{
    const gw_cli_place *chain[16];
    size_t depth = 0, used = 0;
    for (; at->up && depth < sizeof chain / sizeof chain[0]; at = at->up) {
        chain[depth++] = at;
    }
    while (depth-- > 0 && used < size) {
        const gw_cli_place *p = chain[depth];
        const int n =
            p->key ? snprintf(text + used, size - used, "%s%.*s", used ? "." : "", SHOWN, p->key)
                   : snprintf(text + used, size - used, "[%zu]", p->index);
        used += n > 0 ? (size_t)n : 0;
    }
    return used < size ? used : size;
}

bool gw_cli_place_fail(const gw_cli_place *at, const char *format, ...)
{
    size_t used = name_place(at, at->why, at->size);
    if (used > 0 && used < at->size) {
        const int n = snprintf(at->why + used, at->size - used, ": ");
        used += n > 0 ? (size_t)n : 0;
    }
    if (used < at->size) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(at->why + used, at->size - used, format, arguments);
        va_end(arguments);
    }
    return false;
}

json_t *gw_cli_strict_load(const void *data, size_t size, const gw_cli_place *root)
{
    json_error_t error;
    json_t *json = json_loadb(data, size, JSON_REJECT_DUPLICATES, &error);
    if (!json) {
        (void)gw_cli_place_fail(root, "line %d, column %d: %s", error.line, error.column,
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

bool gw_cli_strict_object(const gw_cli_place *at, const json_t *value, const char *keys)
{
    if (!json_is_object(value)) {
        return gw_cli_place_fail(at, "is not an object");
    }
    const char *key = NULL;
    json_t *item = NULL;
    json_object_foreach((json_t *)value, key, item)
    {
        if (!has_word(keys, key)) {
            return gw_cli_place_fail(at, "unknown key '%.*s'", SHOWN, key);
        }
    }
    for (const char *word = keys; *word != '\0';) {
        char name[64];
        const size_t length = strcspn(word, " ");
        (void)snprintf(name, sizeof name, "%.*s", (int)length, word);
        if (name[0] != '?' && !json_object_get(value, name)) {
            return gw_cli_place_fail(at, "key '%s' is missing", name);
        }
        word += length;
        word += strspn(word, " ");
    }
    return true;
}

bool gw_cli_strict_number(const gw_cli_place *at, const json_t *object, const char *key, double min,
                          double max, double *out)
{
    const json_t *value = json_object_get(object, key);
    const gw_cli_place here = gw_cli_place_key(at, key);
    if (!value) {
        return true;
    }
    if (!json_is_number(value)) {
        return gw_cli_place_fail(&here, "is not a number");
    }
    const double number = json_number_value(value);
    if (!isfinite(number) || number < min || number > max) {
        return gw_cli_place_fail(&here, "%g is not from %g to %g", number, min, max);
    }
    *out = number;
    return true;
}

bool gw_cli_strict_whole(const gw_cli_place *at, const json_t *object, const char *key,
                         uint64_t min, uint64_t max, uint64_t *out)
{
    const json_t *value = json_object_get(object, key);
    const gw_cli_place here = gw_cli_place_key(at, key);
    if (!value) {
        return true;
    }
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) < min || (uint64_t)json_integer_value(value) > max) {
        return gw_cli_place_fail(&here, "is not a whole number from %" PRIu64 " to %" PRIu64, min,
                                 max);
    }
    *out = (uint64_t)json_integer_value(value);
    return true;
}

bool gw_cli_strict_text(const gw_cli_place *at, const json_t *object, const char *key,
                        const char **out)
{
    const json_t *value = json_object_get(object, key);
    const gw_cli_place here = gw_cli_place_key(at, key);
    if (!value) {
        return true;
    }
    if (!json_is_string(value)) {
        return gw_cli_place_fail(&here, "is not a string");
    }
    *out = json_string_value(value);
    return true;
}

bool gw_cli_strict_bool(const gw_cli_place *at, const json_t *object, const char *key, bool *out)
{
    const json_t *value = json_object_get(object, key);
    const gw_cli_place here = gw_cli_place_key(at, key);
    if (!value) {
        return true;
    }
    if (!json_is_boolean(value)) {
        return gw_cli_place_fail(&here, "is not true or false");
    }
    *out = json_is_true(value);
    return true;
}

bool gw_cli_strict_array(const gw_cli_place *at, const json_t *object, const char *key, size_t min,
                         size_t max, const json_t **out)
{
    const json_t *value = json_object_get(object, key);
    const gw_cli_place here = gw_cli_place_key(at, key);
    if (!value) {
        return true;
    }
    if (!json_is_array(value)) {
        return gw_cli_place_fail(&here, "is not an array");
    }
    if (json_array_size(value) < min || json_array_size(value) > max) {
        return gw_cli_place_fail(&here, "has %zu entries; %zu to %zu can be read",
                                 json_array_size(value), min, max);
    }
    *out = value;
    return true;
}

bool gw_cli_strict_format(const gw_cli_place *at, const json_t *object, const char *expected)
{
    const json_t *value = json_object_get(object, "format");
    const char *format = json_string_value(value);
    if (!json_is_object(object)) {
        return gw_cli_place_fail(at, "is not an object");
    }
    if (!format || strcmp(format, expected) != 0) {
        return gw_cli_place_fail(at, "its format is '%.*s', not '%s'", SHOWN, format ? format : "",
                                 expected);
    }
    return true;
}
