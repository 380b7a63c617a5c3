/* An object of run.json is read by a table of its keys, so that none can be unknown, missing or of a wrong type. jansson
 * refuses NaN, infinities, overflow and keys given twice. */
#ifndef GW_CLI_RUN_OBJECT_H
#define GW_CLI_RUN_OBJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

typedef enum gw_cli_key_kind {
    GW_CLI_KEY_TEXT,         /* char *, malloc'd */
    GW_CLI_KEY_MAYBE,        /* the same; NULL if the key is not there */
    GW_CLI_KEY_COUNT,        /* uint64_t */
    GW_CLI_KEY_LATER,        /* the same; older files lack it: then the key two before it */
    GW_CLI_KEY_REAL,         /* double, from 0 up */
    GW_CLI_KEY_REAL_OR_NULL, /* the same, null is NaN */
    GW_CLI_KEY_FLAG,         /* bool */
    GW_CLI_KEY_INNER         /* an object or array that its own function reads */
} gw_cli_key_kind;

typedef struct gw_cli_key {
    const char *name;
    gw_cli_key_kind kind;
    size_t offset;
} gw_cli_key;

/* GW_CLI_KEY(type, key, COUNT): the member of `type` that is called as its key. */
#define GW_CLI_KEY(type, key, kind)                                                                \
    {                                                                                              \
#        key, GW_CLI_KEY_##kind, offsetof(type, key)                                               \
    }
#define GW_CLI_COUNT_OF(table) (sizeof(table) / sizeof(table)[0])

/* Where a message goes, and which part of the file it is about: "steps[3]", "" for all of it. */
typedef struct gw_cli_object_at {
    char *why;
    size_t size;
    char path[64];
} gw_cli_object_at;

/* Writes "path.name: reason"; false. */
bool gw_cli_object_fail(const gw_cli_object_at *r, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
gw_cli_object_at gw_cli_object_inside(const gw_cli_object_at *r, const char *array, size_t index);

bool gw_cli_object_read(const json_t *object, const gw_cli_object_at *r, const gw_cli_key *keys,
                        size_t n, void *out);
void gw_cli_object_free(const gw_cli_key *keys, size_t n, void *from); /* its texts */
/* Room for root[name], zeros. */
bool gw_cli_object_array(const json_t *root, const gw_cli_object_at *r, const char *name,
                         size_t item, void **items, size_t *n);

/* `choices` is a list such as "threads mpi": words with one space between. */
bool gw_cli_object_word(const gw_cli_object_at *r, const char *name, const char *text,
                        const char *choices);
bool gw_cli_object_rising(const gw_cli_object_at *r, uint64_t before, uint64_t step);

#endif
