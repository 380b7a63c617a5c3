/* history.jsonl of a run folder: a record a line, {"steps": {...}}. */
#ifndef GW_FILES_RUN_HISTORY_H
#define GW_FILES_RUN_HISTORY_H

#include "files/strict.h"

/* Makes of the head and the lines what gradwire.run/1 has in one object: root gets the arrays `steps`, `tests` and `samples`,
 * and where the spec has them `adapt`, `auto` and `watch`. A last line without an end is left out: a crash tore it. False:
 * the reason is at r. */
bool gw_run_history_join(json_t *root, const uint8_t *lines, size_t size, bool adapts, bool is_auto,
                         const gw_json_place *r);

#endif
