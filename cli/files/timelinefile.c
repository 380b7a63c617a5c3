#define _POSIX_C_SOURCE 200809L
#include "cli/files/timelinefile.h"

#include "files/strict.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TENSORS = 1 << 16, MOST_TIMELINES = 1 << 16 };
static const double LONGEST = 1e9; /* units */

static int64_t ticks_of(double units)
{
    return llround(units * GW_CLI_TICKS_PER_UNIT);
}

static bool read_track(const json_t *value, const gw_json_place *at, gw_track *out)
{
    const char *text = json_string_value(value);
    for (int track = 0; text && track < GW_TRACKS; track++) {
        if (strcmp(text, gw_track_name((gw_track)track)) == 0) {
            *out = (gw_track)track;
            return true;
        }
    }
    if (text && strcmp(text, "net") == 0) {
        *out = GW_TRACK_NIC;
        return true;
    }
    return gw_json_fail(at, NULL, "no track '%.40s' (gpu, cpu, copy, intra, nic, net)",
                        text ? text : "");
}

/* ["gpu", 3] */
static bool read_op(const json_t *value, const gw_json_place *at, gw_timed_op *out)
{
    if (!json_is_array(value) || json_array_size(value) != 2) {
        return gw_json_fail(at, NULL, "is not [track, duration]");
    }
    const json_t *duration = json_array_get(value, 1);
    const double units = json_number_value(duration);
    if (!json_is_number(duration) || !(units >= 0 && units <= LONGEST)) {
        return gw_json_fail(at, NULL, "the duration is not a number from 0 to %g", LONGEST);
    }
    out->ticks = ticks_of(units);
    return read_track(json_array_get(value, 0), at, &out->track);
}

static bool read_tensor(const json_t *value, const gw_json_place *at, gw_timed_tensor *out)
{
    const json_t *ops = NULL;
    double compute = 0;
    if (!gw_json_object(at, value, "compute ops") ||
        !gw_json_number(at, value, "compute", 0, LONGEST, &compute) ||
        !gw_json_array(at, value, "ops", 0, GW_TIMELINE_MAX_OPS, &ops)) {
        return false;
    }
    gw_timed_op *read = calloc(json_array_size(ops) + 1, sizeof *read);
    if (!read) {
        return gw_json_fail(at, NULL, "out of memory");
    }
    *out = (gw_timed_tensor){.compute = ticks_of(compute), .ops = read};
    const gw_json_place here = gw_json_at_key(at, "ops");
    for (; out->n_ops < json_array_size(ops); out->n_ops++) {
        const gw_json_place item = gw_json_at_item(&here, out->n_ops);
        if (!read_op(json_array_get(ops, out->n_ops), &item, &read[out->n_ops])) {
            return false;
        }
    }
    return true;
}

static bool read_timeline(const json_t *value, const gw_json_place *at, gw_cli_timeline *out)
{
    const json_t *tensors = NULL;
    const char *figure = "";
    out->expected = -1;
    if (!gw_json_object(at, value, "figure tensors ?makespan") ||
        !gw_json_text(at, value, "figure", &figure) ||
        !gw_json_number(at, value, "makespan", 0, 1e15, &out->expected) ||
        !gw_json_array(at, value, "tensors", 1, MOST_TENSORS, &tensors)) {
        return false;
    }
    out->figure = strdup(figure);
    out->tensors = calloc(json_array_size(tensors), sizeof *out->tensors);
    if (!out->figure || !out->tensors) {
        return gw_json_fail(at, NULL, "out of memory");
    }
    const gw_json_place here = gw_json_at_key(at, "tensors");
    while (out->n < json_array_size(tensors)) {
        const gw_json_place item = gw_json_at_item(&here, out->n);
        gw_timed_tensor *tensor = &out->tensors[out->n];
        if (!read_tensor(json_array_get(tensors, out->n++), &item, tensor)) {
            return false;
        }
    }
    return true;
}

static bool read_all(const json_t *json, const gw_json_place *root, gw_cli_timelines *out)
{
    if (!json_is_array(json) || json_array_size(json) == 0 ||
        json_array_size(json) > MOST_TIMELINES) {
        return gw_json_fail(root, NULL, "is not an array of 1 to %d timelines", MOST_TIMELINES);
    }
    out->items = calloc(json_array_size(json), sizeof *out->items);
    if (!out->items) {
        return gw_json_fail(root, NULL, "out of memory");
    }
    while (out->n < json_array_size(json)) {
        const gw_json_place item = gw_json_at_item(root, out->n);
        gw_cli_timeline *timeline = &out->items[out->n];
        if (!read_timeline(json_array_get(json, out->n++), &item, timeline)) {
            return false;
        }
    }
    return true;
}

bool gw_cli_timelines_parse(const void *data, size_t size, gw_cli_timelines *out, char *why,
                            size_t why_size)
{
    const gw_json_place root = gw_json_root(why, why_size);
    gw_cli_timelines read = {0};
    json_t *json = gw_json_load(data, size, &root);
    const bool fine = json && read_all(json, &root, &read);
    json_decref(json);
    if (fine) {
        *out = read;
    } else {
        gw_cli_timelines_free(&read);
    }
    return fine;
}

void gw_cli_timelines_free(gw_cli_timelines *timelines)
{
    for (size_t i = 0; i < timelines->n; i++) {
        gw_cli_timeline *t = &timelines->items[i];
        for (size_t k = 0; t->tensors && k < t->n; k++) {
            free((void *)t->tensors[k].ops);
        }
        free(t->tensors);
        free(t->figure);
    }
    free(timelines->items);
    *timelines = (gw_cli_timelines){0};
}
