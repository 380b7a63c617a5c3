/* history.jsonl; see run_history.h. */
#include "files/run_history.h"

#include <stdio.h>
#include <string.h>

static const char *const KINDS[] = {"steps", "tests", "samples", "adapt", "auto", "watch"};
enum { N_KINDS = GW_JSON_COUNT_OF(KINDS) };

static bool take_line(json_t *root, const char *line, size_t size, const gw_json_place *r)
{
    json_error_t error;
    json_t *object = json_loadb(line, size, JSON_REJECT_DUPLICATES, &error);
    if (!object) {
        return gw_json_fail(r, NULL, "%s", error.text);
    }
    size_t k = 0;
    while (k < N_KINDS && !json_object_get(object, KINDS[k])) {
        k++;
    }
    bool fine = false;
    if (k == N_KINDS || json_object_size(object) != 1) {
        (void)gw_json_fail(r, NULL, "is not one record of a known kind");
    } else if (!json_object_get(root, KINDS[k])) {
        (void)gw_json_fail(r, KINDS[k], "the run's spec has none");
    } else {
        fine = json_array_append(json_object_get(root, KINDS[k]),
                                 json_object_get(object, KINDS[k])) == 0 ||
               gw_json_fail(r, NULL, "out of memory");
    }
    json_decref(object);
    return fine;
}

bool gw_run_history_join(json_t *root, const uint8_t *lines, size_t size, bool adapts, bool is_auto,
                         const gw_json_place *r)
{
    const bool has[N_KINDS] = {true, true, true, adapts, is_auto, is_auto};
    for (size_t k = 0; k < N_KINDS; k++) {
        if (json_object_get(root, KINDS[k])) {
            return gw_json_fail(r, NULL, "unknown key '%s'", KINDS[k]);
        }
        if (has[k] && json_object_set_new(root, KINDS[k], json_array()) != 0) {
            return gw_json_fail(r, NULL, "out of memory");
        }
    }
    const char *at = (const char *)lines, *end = NULL;
    for (size_t number = 1; size > 0 && (end = memchr(at, '\n', size)) != NULL; number++) {
        const size_t length = (size_t)(end - at);
        char name[64];
        (void)snprintf(name, sizeof name, "history.jsonl, line %zu", number);
        const gw_json_place here = gw_json_at_key(r, name);
        if (!take_line(root, at, length, &here)) {
            return false;
        }
        at += length + 1;
        size -= length + 1;
    }
    return true;
}
