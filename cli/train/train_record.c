/* Records and JSON; see train_record.h. */
#include "cli/train/train_record.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/json_out.h"

gw_status gw_cli_train_fail(gw_why *why, gw_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(why->text, sizeof why->text, format, arguments);
    va_end(arguments);
    return status;
}

static const void *place(const gw_cli_field *field, const void *record)
{
    return (const char *)record + field->offset;
}

static json_t *value_of(const gw_cli_field *field, const void *record)
{
    const void *at = place(field, record);
    switch (field->kind) {
    case GW_CLI_FIELD_COUNT:
    case GW_CLI_FIELD_LATER:
        return gw_cli_json_count(*(const uint64_t *)at);
    case GW_CLI_FIELD_NUMBER:
        return gw_cli_json_number(*(const double *)at);
    case GW_CLI_FIELD_FLAG:
        return json_boolean(*(const bool *)at);
    default:
        return json_string(*(const char *const *)at);
    }
}

static bool is_absent(const gw_cli_field *field, const void *record)
{
    return field->kind == GW_CLI_FIELD_MAYBE && !*(const char *const *)place(field, record);
}

json_t *gw_cli_record_json(const gw_cli_fields *fields, const void *record)
{
    json_t *object = json_object();
    for (size_t i = 0; object && i < fields->count; i++) {
        if (is_absent(&fields->items[i], record)) {
            continue;
        }
        if (json_object_set_new(object, fields->items[i].key,
                                value_of(&fields->items[i], record)) != 0) {
            json_decref(object);
            object = NULL;
        }
    }
    return object;
}

static bool set(const gw_cli_field *field, const json_t *value, void *record)
{
    void *at = (char *)record + field->offset;
    switch (field->kind) {
    case GW_CLI_FIELD_COUNT:
    case GW_CLI_FIELD_LATER:
        *(uint64_t *)at = (uint64_t)json_integer_value(value);
        return json_is_integer(value) && json_integer_value(value) >= 0;
    case GW_CLI_FIELD_NUMBER:
        *(double *)at = json_is_null(value) ? (double)NAN : json_number_value(value);
        return json_is_null(value) || json_is_number(value);
    case GW_CLI_FIELD_FLAG:
        *(bool *)at = json_is_true(value);
        return json_is_boolean(value);
    default:
        *(const char **)at = json_string_value(value);
        return json_is_string(value);
    }
}

gw_status gw_cli_record_read(const gw_cli_fields *fields, const json_t *object, size_t more,
                             const char *where, void *record, gw_why *why)
{
    static const char *const KINDS[] = {
        "a whole number from 0", "a number or null", "a text",
        "true or false",         "a text",           "a whole number from 0"};
    size_t known = fields->count + more;
    if (!json_is_object(object)) {
        return gw_cli_train_fail(why, GW_ERR_CORRUPT, "%s: not an object", where);
    }
    for (size_t i = 0; i < fields->count; i++) {
        const gw_cli_field *field = &fields->items[i];
        const json_t *value = json_object_get(object, field->key);
        if (!value && field->kind == GW_CLI_FIELD_MAYBE) {
            *(const char **)((char *)record + field->offset) = NULL;
            known--;
            continue;
        }
        if (!value && field->kind == GW_CLI_FIELD_LATER && i >= 2) {
            known--;
            value = json_object_get(object, fields->items[i - 2].key);
        }
        if (!value || !set(field, value, record)) {
            return gw_cli_train_fail(why, GW_ERR_CORRUPT, "%s: '%s' is %s%s", where, field->key,
                                     value ? "not " : "missing", value ? KINDS[field->kind] : "");
        }
    }
    return json_object_size(object) == known
               ? GW_OK
               : gw_cli_train_fail(why, GW_ERR_CORRUPT, "%s: %zu keys, not %zu", where,
                                   json_object_size(object), known);
}

const gw_cli_field *gw_cli_record_differs(const gw_cli_fields *fields, const void *a, const void *b)
{
    for (size_t i = 0; i < fields->count; i++) {
        char one[256], two[256];
        gw_cli_record_text(&fields->items[i], a, one, sizeof one);
        gw_cli_record_text(&fields->items[i], b, two, sizeof two);
        if (strcmp(one, two) != 0) {
            return &fields->items[i];
        }
    }
    return NULL;
}

void gw_cli_record_text(const gw_cli_field *field, const void *record, char *text, size_t size)
{
    const void *at = place(field, record);
    switch (field->kind) {
    case GW_CLI_FIELD_COUNT:
    case GW_CLI_FIELD_LATER:
        (void)snprintf(text, size, "%" PRIu64, *(const uint64_t *)at);
        break;
    case GW_CLI_FIELD_NUMBER:
        (void)snprintf(text, size, "%.9g", *(const double *)at);
        break;
    case GW_CLI_FIELD_FLAG:
        (void)snprintf(text, size, "%s", *(const bool *)at ? "true" : "false");
        break;
    default:
        (void)snprintf(text, size, "%s",
                       is_absent(field, record) ? "none" : *(const char *const *)at);
    }
}

/* ---- arrays of them ---- */

bool gw_cli_records_grow(void **items, size_t n, size_t size)
{
    if (n != 0 && (n & (n - 1)) != 0) {
        return true;
    }
    void *more = realloc(*items, (n == 0 ? 1 : 2 * n) * size);
    *items = more ? more : *items;
    return more;
}

json_t *gw_cli_records_json(const gw_cli_fields *fields, const void *items, size_t n, size_t size)
{
    json_t *array = json_array();
    for (size_t i = 0; array && i < n; i++) {
        const void *one = (const char *)items + i * size;
        if (json_array_append_new(array, gw_cli_record_json(fields, one)) != 0) {
            json_decref(array);
            array = NULL;
        }
    }
    return array;
}
