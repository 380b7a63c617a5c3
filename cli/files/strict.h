/* JSON read strictly: an unknown key, a missing one, a wrong type or a number out of range is an error that says
 * where: "tensors[3].ready_ms: -1 is not a number from 0 up". */
#ifndef GW_CLI_STRICT_H
#define GW_CLI_STRICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <jansson.h>

/* A place in the document; chained up to the root on the stack. */
typedef struct gw_cli_place {
    const struct gw_cli_place *up; /* NULL: the root */
    const char *key;               /* NULL: an array's element */
    size_t index;
    char *why; /* of the root: where the reason goes */
    size_t size;
} gw_cli_place;

gw_cli_place gw_cli_place_root(char *why, size_t size);
gw_cli_place gw_cli_place_key(const gw_cli_place *up, const char *key);
gw_cli_place gw_cli_place_item(const gw_cli_place *up, size_t index);
/* Writes "place: reason"; false. */
bool gw_cli_place_fail(const gw_cli_place *at, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The whole text is one JSON value, no key twice. NULL: the reason is written. */
json_t *gw_cli_strict_load(const void *data, size_t size, const gw_cli_place *root);

/* `value` is an object with these keys and no others: "format name ?device", "?" for those that may be missing. */
bool gw_cli_strict_object(const gw_cli_place *at, const json_t *value, const char *keys);
/* Of an object; a key that may be missing leaves *out as it is. */
bool gw_cli_strict_number(const gw_cli_place *at, const json_t *object, const char *key, double min,
                          double max, double *out);
bool gw_cli_strict_whole(const gw_cli_place *at, const json_t *object, const char *key,
                         uint64_t min, uint64_t max, uint64_t *out);
bool gw_cli_strict_text(const gw_cli_place *at, const json_t *object, const char *key,
                        const char **out);
bool gw_cli_strict_bool(const gw_cli_place *at, const json_t *object, const char *key, bool *out);
/* Also its length is in range. */
bool gw_cli_strict_array(const gw_cli_place *at, const json_t *object, const char *key, size_t min,
                         size_t max, const json_t **out);
/* The value of "format" is `expected`. */
bool gw_cli_strict_format(const gw_cli_place *at, const json_t *object, const char *expected);

#endif
