/* Records of a run folder as JSON objects and back, by one table of their fields: what is written is what is read. */
#ifndef GW_CLI_TRAIN_RECORD_H
#define GW_CLI_TRAIN_RECORD_H

#include <stdbool.h>
#include <stddef.h>

#include <gradwire/base.h>
#include <jansson.h>

typedef enum gw_cli_field_kind {
    GW_CLI_FIELD_COUNT,  /* uint64_t */
    GW_CLI_FIELD_NUMBER, /* double; NaN and infinities are null */
    GW_CLI_FIELD_TEXT,   /* const char *; read: lies in the JSON value */
    GW_CLI_FIELD_FLAG,   /* bool */
    GW_CLI_FIELD_MAYBE,  /* as TEXT; NULL: the key is not there */
    GW_CLI_FIELD_LATER   /* uint64_t; older files lack it: then the field two before it */
} gw_cli_field_kind;

typedef struct gw_cli_field {
    const char *key;
    gw_cli_field_kind kind;
    size_t offset;
} gw_cli_field;

/* GW_CLI_FIELD(type, key, COUNT): the field of the record `type` that is called as its key. */
#define GW_CLI_FIELD(type, key, kind)                                                              \
    {                                                                                              \
#        key, GW_CLI_FIELD_##kind, offsetof(type, key)                                             \
    }

typedef struct gw_cli_fields {
    const gw_cli_field *items;
    size_t count;
} gw_cli_fields;

json_t *gw_cli_record_json(const gw_cli_fields *fields, const void *record); /* NULL: no memory */
/* `more` keys, beside the fields', are left to the caller. `where` begins the words: "run.json: steps[3]". */
gw_status gw_cli_record_read(const gw_cli_fields *fields, const json_t *object, size_t more,
                             const char *where, void *record, gw_why *why);
/* The first field in which two records differ; NULL: none. */
const gw_cli_field *gw_cli_record_differs(const gw_cli_fields *fields, const void *a,
                                          const void *b);
/* A field's value in words. */
void gw_cli_record_text(const gw_cli_field *field, const void *record, char *text, size_t size);

/* Arrays of records, `size` bytes each. Room for one more behind n, doubling at powers of two; false: no memory. */
bool gw_cli_records_grow(void **items, size_t n, size_t size);
json_t *gw_cli_records_json(const gw_cli_fields *fields, const void *items, size_t n, size_t size);
/* Words of a failure. */
gw_status gw_cli_train_fail(gw_why *why, gw_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
