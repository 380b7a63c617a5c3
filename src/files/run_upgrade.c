/* Formats before; see run_upgrade.h. */
#include "files/run_upgrade.h"

#include <stdint.h>
#include <string.h>

unsigned gw_run_format(const char *text)
{
    static const char *const FORMATS[] = {"gradwire.run/1", "gradwire.run/2", GW_RUN_FORMAT};
    for (unsigned i = 0; text && i < sizeof FORMATS / sizeof *FORMATS; i++) {
        if (strcmp(text, FORMATS[i]) == 0) {
            return i + 1;
        }
    }
    return 0;
}

static bool made_a_plan(const json_t *decision, size_t i)
{
    const char *outcome = json_string_value(json_object_get(decision, "outcome"));
    return i == 0 ||
           (outcome && (strcmp(outcome, "switched") == 0 || strcmp(outcome, "dense") == 0));
}

/* What the planner predicted of the plan in force at a step: when it made the plan, and at the last look. */
static void find_predictions(const json_t *decisions, json_int_t step, const json_t **made,
                             const json_t **last)
{
    for (size_t i = 0; i < json_array_size(decisions); i++) {
        const json_t *one = json_array_get(decisions, i);
        if (json_integer_value(json_object_get(one, "bound_at")) <= step) {
            *last = json_object_get(one, "predicted_seconds");
            *made = made_a_plan(one, i) ? *last : *made;
        }
    }
}

static bool upgrade_window(json_t *window, const json_t *decisions)
{
    const json_t *made = NULL, *last = NULL;
    const json_t *was = json_object_get(window, "predicted_seconds");
    if (!was) {
        return true; /* the strict reader reports the missing key */
    }
    find_predictions(decisions, json_integer_value(json_object_get(window, "step")), &made, &last);
    const bool planned = last && json_equal(was, last);
    return !json_object_get(window, "expected_seconds") &&
           json_object_set_new(window, "expected_seconds",
                               planned ? json_null() : json_copy((json_t *)(uintptr_t)was)) == 0 &&
           json_object_set_new(window, "predicted_seconds",
                               made ? json_copy((json_t *)(uintptr_t)made) : json_null()) == 0;
}

bool gw_run_upgrade(json_t *root, unsigned format)
{
    const json_t *windows = json_object_get(root, "watch");
    const json_t *decisions = json_object_get(root, "auto");
    bool fine = true;
    for (size_t i = 0; format < 3 && i < json_array_size(windows); i++) {
        fine = fine && upgrade_window(json_array_get(windows, i), decisions);
    }
    return fine;
}
