/* The one reader of JSON: strict. An unknown key, a missing one, a wrong type or a number out of range is an error that names
 * its place: "tensors[3].ready_ms: -1 is not from 0 to 1e+08". */
#ifndef GW_FILES_STRICT_H
#define GW_FILES_STRICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

/* A place in the document; chained up to the root on the stack. */
typedef struct gw_json_place {
    const struct gw_json_place *up; /* NULL: the root */
    const char *key;                /* NULL: an entry of `up`, which is an array */
    size_t index;                   /* an array's entry; SIZE_MAX: the value of the key itself */
    char *why;                      /* where the reason goes, of `size` bytes */
    size_t size;
} gw_json_place;

gw_json_place gw_json_root(char *why, size_t size);
gw_json_place gw_json_at_key(const gw_json_place *up, const char *key);
gw_json_place gw_json_at_item(const gw_json_place *up, size_t index);
gw_json_place gw_json_at_entry(const gw_json_place *up, const char *array, size_t index);
/* Writes "place.key: reason"; `key` NULL: the place itself. False. */
bool gw_json_fail(const gw_json_place *at, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The whole text is one JSON value, no key twice. NULL: the reason is written. */
json_t *gw_json_load(const void *data, size_t size, const gw_json_place *root);

/* ---- key by key ---- */

/* `value` is an object with these keys and no others: "format name ?device", "?" for those that may be missing. */
bool gw_json_object(const gw_json_place *at, const json_t *value, const char *keys);
/* Of an object; a key that may be missing leaves *out as it is. */
bool gw_json_number(const gw_json_place *at, const json_t *object, const char *key, double min,
                    double max, double *out);
bool gw_json_whole(const gw_json_place *at, const json_t *object, const char *key, uint64_t min,
                   uint64_t max, uint64_t *out);
bool gw_json_text(const gw_json_place *at, const json_t *object, const char *key, const char **out);
bool gw_json_bool(const gw_json_place *at, const json_t *object, const char *key, bool *out);
/* Also its length is in range. */
bool gw_json_array(const gw_json_place *at, const json_t *object, const char *key, size_t min,
                   size_t max, const json_t **out);
/* The value of "format" is `expected`. */
bool gw_json_format(const gw_json_place *at, const json_t *object, const char *expected);

/* ---- by a table of keys ---- */

typedef enum gw_json_kind {
    GW_JSON_TEXT,         /* char *, malloc'd */
    GW_JSON_MAYBE,        /* the same; NULL if the key is not there */
    GW_JSON_COUNT,        /* uint64_t */
    GW_JSON_LATER,        /* the same; older files lack it: then the key two before it */
    GW_JSON_REAL,         /* double, from 0 up */
    GW_JSON_REAL_OR_NULL, /* the same, null is NaN */
    GW_JSON_FLAG,         /* bool */
    GW_JSON_INNER         /* an object or array that its own function reads */
} gw_json_kind;

typedef struct gw_json_key {
    const char *name;
    gw_json_kind kind;
    size_t offset;
} gw_json_key;

/* GW_JSON_KEY(type, key, COUNT): the member of `type` that is called as its key. */
#define GW_JSON_KEY(type, key, kind)                                                               \
    {                                                                                              \
#        key, GW_JSON_##kind, offsetof(type, key)                                                  \
    }
#define GW_JSON_COUNT_OF(table) (sizeof(table) / sizeof(table)[0])

/* An object with the table's keys and no others, into the members of *out. */
bool gw_json_record(const json_t *object, const gw_json_place *at, const gw_json_key *keys,
                    size_t n, void *out);
void gw_json_record_free(const gw_json_key *keys, size_t n, void *from); /* its texts */
/* Room for the entries of the array root[name], zeros. */
bool gw_json_records(const json_t *root, const gw_json_place *at, const char *name, size_t item,
                     void **items, size_t *n);

/* `choices` is a list such as "threads mpi": words with one space between. */
bool gw_json_word(const gw_json_place *at, const char *name, const char *text, const char *choices);
bool gw_json_rising(const gw_json_place *at, uint64_t before, uint64_t step);

#endif
