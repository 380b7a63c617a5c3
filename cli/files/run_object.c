/* Objects by their keys; see run_object.h. */
#define _POSIX_C_SOURCE 200809L
#include "cli/files/run_object.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_SHOWN 80

bool gw_cli_object_fail(const gw_cli_object_at *r, const char *name, const char *format, ...)
{
    int used = snprintf(r->why, r->size, "%s%s%.*s%s", r->path, r->path[0] && name ? "." : "",
                        TEXT_SHOWN, name ? name : "", r->path[0] || name ? ": " : "");
    if (used >= 0 && (size_t)used < r->size) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(r->why + used, r->size - (size_t)used, format, arguments);
        va_end(arguments);
    }
    return false;
}

gw_cli_object_at gw_cli_object_inside(const gw_cli_object_at *r, const char *array, size_t index)
{
    gw_cli_object_at inner = *r;
    (void)snprintf(inner.path, sizeof inner.path, "%.30s%s%s[%zu]", r->path, r->path[0] ? "." : "",
                   array, index);
    return inner;
}

/* ---- objects by their keys ---- */

static bool read_real(const json_t *value, const gw_cli_object_at *r, const gw_cli_key *k,
                      double *out)
{
    if (k->kind == GW_CLI_KEY_REAL_OR_NULL && json_is_null(value)) {
        *out = NAN;
        return true;
    }
    if (!json_is_number(value)) {
        return gw_cli_object_fail(r, k->name, "is not a number%s",
                                  k->kind == GW_CLI_KEY_REAL_OR_NULL ? " or null" : "");
    }
    *out = json_number_value(value);
    return *out >= 0 || gw_cli_object_fail(r, k->name, "%g is negative", *out);
}

static bool read_value(const json_t *value, const gw_cli_object_at *r, const gw_cli_key *k,
                       void *out)
{
    void *at = (char *)out + k->offset;
    switch (k->kind) {
    case GW_CLI_KEY_TEXT:
    case GW_CLI_KEY_MAYBE:
        if (!json_is_string(value)) {
            return gw_cli_object_fail(r, k->name, "is not a string");
        }
        *(char **)at = strdup(json_string_value(value));
        return *(char **)at || gw_cli_object_fail(r, NULL, "out of memory");
    case GW_CLI_KEY_COUNT:
    case GW_CLI_KEY_LATER:
        if (!json_is_integer(value) || json_integer_value(value) < 0) {
            return gw_cli_object_fail(r, k->name, "is not a whole number from 0 up");
        }
        *(uint64_t *)at = (uint64_t)json_integer_value(value);
        return true;
    case GW_CLI_KEY_FLAG:
        *(bool *)at = json_is_true(value);
        return json_is_boolean(value) || gw_cli_object_fail(r, k->name, "is not true or false");
    case GW_CLI_KEY_REAL:
    case GW_CLI_KEY_REAL_OR_NULL:
        return read_real(value, r, k, at);
    default:
        return true;
    }
}

bool gw_cli_object_read(const json_t *object, const gw_cli_object_at *r, const gw_cli_key *keys,
                        size_t n, void *out)
{
    if (!json_is_object(object)) {
        return gw_cli_object_fail(r, NULL, "is not an object");
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *value = json_object_get(object, keys[i].name);
        if (!value && keys[i].kind == GW_CLI_KEY_MAYBE) {
            continue;
        }
        if (!value && keys[i].kind == GW_CLI_KEY_LATER && i >= 2) {
            value = json_object_get(object, keys[i - 2].name);
        }
        if (!value) {
            return gw_cli_object_fail(r, keys[i].name, "is missing");
        }
        if (!read_value(value, r, &keys[i], out)) {
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
            return gw_cli_object_fail(r, name, "this key is not known here");
        }
    }
    return true;
}

void gw_cli_object_free(const gw_cli_key *keys, size_t n, void *from)
{
    for (size_t i = 0; i < n; i++) {
        if (keys[i].kind == GW_CLI_KEY_TEXT || keys[i].kind == GW_CLI_KEY_MAYBE) {
            free(*(char **)((char *)from + keys[i].offset));
        }
    }
}

/* ---- checks ---- */

bool gw_cli_object_word(const gw_cli_object_at *r, const char *name, const char *text,
                        const char *choices)
{
    text = text ? text : ""; /* never: its object was read; clang-tidy does not see it */
    const size_t length = strlen(text);
    for (const char *at = choices; *at;) {
        const size_t word = strcspn(at, " ");
        if (word == length && memcmp(at, text, length) == 0) {
            return true;
        }
        at += word + (at[word] == ' ');
    }
    return gw_cli_object_fail(r, name, "'%.*s' is none of: %s", TEXT_SHOWN, text, choices);
}

bool gw_cli_object_rising(const gw_cli_object_at *r, uint64_t before, uint64_t step)
{
    return step > before ||
           gw_cli_object_fail(r, "step", "%" PRIu64 " does not come after %" PRIu64, step, before);
}

bool gw_cli_object_array(const json_t *root, const gw_cli_object_at *r, const char *name,
                         size_t item, void **items, size_t *n)
{
    const json_t *array = json_object_get(root, name);
    if (!json_is_array(array)) {
        return gw_cli_object_fail(r, name, "is not an array");
    }
    *items = calloc(json_array_size(array) + 1, item);
    *n = *items ? json_array_size(array) : 0;
    return *items || gw_cli_object_fail(r, NULL, "out of memory");
}
