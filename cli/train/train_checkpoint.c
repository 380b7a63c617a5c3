/* Checkpoints; see train_checkpoint.h. */
#include "cli/train/train_checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/json_out.h"
#include "cli/train/train_agree.h"
#include "cli/train/train_files.h"
#include "cli/train/train_weights.h"

#define FORMAT "gradwire.checkpoint/1"

typedef struct place {
    char folder[GW_CLI_RUN_PATH]; /* checkpoint-000400, or .new */
} place;

static gw_status place_of(const char *run, uint64_t step, const char *suffix, place *p, gw_why *why)
{
    char name[64];
    (void)snprintf(name, sizeof name, "checkpoint-%06" PRIu64 "%s", step, suffix);
    return gw_cli_path(p->folder, sizeof p->folder, run, name, why);
}

/* "rank-3.residuals" */
static gw_status rank_path(const place *p, uint32_t number, const char *what, char *path,
                           size_t size, gw_why *why)
{
    char name[32];
    (void)snprintf(name, sizeof name, "rank-%u.%s", number, what);
    return gw_cli_path(path, size, p->folder, name, why);
}

/* ---- which there are ---- */

typedef enum entry { ENTRY_OTHER, ENTRY_NEW, ENTRY_WHOLE } entry;

/* "checkpoint-000400", or with .new behind it. */
static entry entry_of(const char *name, uint64_t *step)
{
    int end = 0;
    if (sscanf(name, "checkpoint-%" SCNu64 "%n", step, &end) != 1) {
        return ENTRY_OTHER;
    }
    return name[end] == '\0'                 ? ENTRY_WHOLE
           : strcmp(name + end, ".new") == 0 ? ENTRY_NEW
                                             : ENTRY_OTHER;
}

gw_status gw_cli_checkpoint_newest(const char *folder, bool *found, uint64_t *step, gw_why *why)
{
    DIR *entries = opendir(folder);
    if (!entries) {
        return gw_cli_train_fail(why, GW_ERR_SYSTEM, "%.150s: %s", folder, strerror(errno));
    }
    *found = false;
    *step = 0;
    for (struct dirent *e = readdir(entries); e; e = readdir(entries)) {
        uint64_t one = 0;
        if (entry_of(e->d_name, &one) == ENTRY_WHOLE) {
            *step = one > *step ? one : *step;
            *found = true;
        }
    }
    (void)closedir(entries);
    return GW_OK;
}

/* All but that of `keep`: older ones, and those that a kill left half written. */
static gw_status remove_others(const char *folder, uint64_t keep, gw_why *why)
{
    DIR *entries = opendir(folder);
    if (!entries) {
        return gw_cli_train_fail(why, GW_ERR_SYSTEM, "%.150s: %s", folder, strerror(errno));
    }
    gw_status status = GW_OK;
    for (struct dirent *e = readdir(entries); e && status == GW_OK; e = readdir(entries)) {
        uint64_t step = 0;
        char path[GW_CLI_RUN_PATH];
        const entry kind = entry_of(e->d_name, &step);
        if (kind == ENTRY_NEW || (kind == ENTRY_WHOLE && step != keep)) {
            status = gw_cli_path(path, sizeof path, folder, e->d_name, why);
            status = status == GW_OK ? gw_cli_folder_remove(path, why) : status;
        }
    }
    (void)closedir(entries);
    return status;
}

/* ---- save ---- */

gw_status gw_cli_checkpoint_bytes(const rank *r, size_t *bytes, gw_why *why)
{
    size_t residuals = 0;
    const gw_status status = gw_feedback_save_bytes(gw_step_feedback(r->step), &residuals, why);
    *bytes = gw_cli_weights_bytes(r) + r->comm->ranks * residuals + (1 << 20);
    return status;
}

static gw_status save_residuals(const place *p, const rank *r, gw_why *why)
{
    char path[GW_CLI_RUN_PATH];
    size_t size = 0, written = 0;
    const gw_feedback *store = gw_step_feedback(r->step);
    if (access(p->folder, F_OK) != 0) {
        return gw_cli_train_fail(why, GW_ERR_SYSTEM,
                                 "rank %u does not see %.120s, which rank 0 made: all ranks need "
                                 "the same folder",
                                 r->comm->rank, p->folder);
    }
    gw_status status = rank_path(p, r->comm->rank, "residuals", path, sizeof path, why);
    if (status == GW_OK) {
        status = gw_feedback_save_bytes(store, &size, why);
    }
    void *bytes = status == GW_OK ? malloc(size + 1) : NULL;
    if (status == GW_OK && !bytes) {
        status = gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory for %zu bytes", size);
    }
    if (status == GW_OK) {
        status = gw_feedback_save(store, bytes, size, &written, why);
    }
    if (status == GW_OK) {
        status = gw_cli_file_save(path, bytes, written, why);
    }
    free(bytes);
    return status;
}

static gw_status save_levels(const place *p, const rank *r, bool automatic, gw_why *why)
{
    char path[GW_CLI_RUN_PATH];
    size_t size = 0, written = 0;
    gw_status status = rank_path(p, r->comm->rank, "levels", path, sizeof path, why);
    if (status == GW_OK) {
        status = automatic ? gw_step_auto_save_bytes(r->step, &size, why)
                           : gw_step_adapt_save_bytes(r->step, &size, why);
    }
    void *bytes = status == GW_OK ? malloc(size + 1) : NULL;
    if (status == GW_OK && !bytes) {
        status = gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory for %zu bytes", size);
    }
    if (status == GW_OK) {
        status = automatic ? gw_step_auto_save(r->step, bytes, size, &written, why)
                           : gw_step_adapt_save(r->step, bytes, size, &written, why);
    }
    if (status == GW_OK) {
        status = gw_cli_file_save(path, bytes, written, why);
    }
    free(bytes);
    return status;
}

static const gw_cli_field BYTES_FIELDS[] = {
    GW_CLI_FIELD(gw_cli_run_layer, bytes_sent, COUNT),
    GW_CLI_FIELD(gw_cli_run_layer, dense_bytes, COUNT),
    GW_CLI_FIELD(gw_cli_run_layer, far_bytes_sent, LATER),
    GW_CLI_FIELD(gw_cli_run_layer, far_dense_bytes, LATER),
};
static const gw_cli_fields BYTES = {BYTES_FIELDS, sizeof BYTES_FIELDS / sizeof *BYTES_FIELDS};

static json_t *describe(const gw_cli_run *run, const gw_cli_pace *pace, uint64_t step)
{
    json_t *layers = json_array();
    for (size_t i = 0; i < run->n_layers; i++) {
        json_t *one = gw_cli_record_json(&BYTES, &run->layers[i]);
        (void)json_object_set_new(one, "name", json_string(run->layers[i].name));
        (void)json_array_append_new(layers, one);
    }
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:o, s:o}", "format", FORMAT, "step",
                     (json_int_t)step, "every", (json_int_t)pace->every, "checkpoint",
                     (json_int_t)pace->checkpoint, "sample", (json_int_t)pace->sample, "config",
                     gw_cli_record_json(&GW_CLI_RUN_CONFIG, &run->config), "layers", layers);
}

/* What rank 0 writes beside its residuals. */
static gw_status save_rest(const place *p, const gw_cli_run *run, const gw_cli_pace *pace,
                           const rank *r, uint64_t step, gw_why *why)
{
    char path[GW_CLI_RUN_PATH];
    void *frame = NULL;
    size_t size = 0;
    gw_status status = gw_cli_path(path, sizeof path, p->folder, "weights.gw", why);
    if (status == GW_OK) {
        status = gw_cli_weights_pack(r, step, &frame, &size, why);
    }
    if (status == GW_OK) {
        status = gw_cli_file_save(path, frame, size, why);
    }
    free(frame);
    if (status == GW_OK) {
        status = gw_cli_path(path, sizeof path, p->folder, "checkpoint.json", why);
    }
    if (status != GW_OK) {
        return status;
    }
    json_t *all = describe(run, pace, step);
    char *text = all ? json_dumps(all, JSON_INDENT(1) | JSON_ENSURE_ASCII) : NULL;
    json_decref(all);
    status = text ? gw_cli_file_save(path, text, strlen(text), why)
                  : gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory for checkpoint.json");
    free(text);
    return status;
}

/* run.json comes first, and the history before it: they may know more steps than the checkpoint, never fewer. */
static gw_status rename_whole(const place *new, const place *whole, const gw_cli_run *run,
                              uint64_t step, gw_why *why)
{
    gw_status status = gw_cli_run_write(run, why);
    if (status == GW_OK) {
        status = gw_cli_folder_sync(new->folder, why);
    }
    if (status == GW_OK && rename(new->folder, whole->folder) != 0) {
        status = gw_cli_train_fail(why, GW_ERR_SYSTEM, "%.150s: cannot rename: %s", new->folder,
                                   strerror(errno));
    }
    if (status == GW_OK) {
        status = gw_cli_folder_sync(run->folder, why);
    }
    return status == GW_OK ? remove_others(run->folder, step, why) : status;
}

gw_status gw_cli_checkpoint_save(const gw_cli_run *run, const gw_cli_pace *pace, rank *r,
                                 uint64_t step, gw_why *why)
{
    const bool first = r->comm->rank == 0;
    place new, whole;
    gw_status status = place_of(run->folder, step, ".new", &new, why);
    if (status == GW_OK) {
        status = place_of(run->folder, step, "", &whole, why);
    }
    if (status == GW_OK && first) {
        status = gw_cli_folder_remove(new.folder, why);
        status = status == GW_OK ? gw_cli_folder_make(new.folder, why) : status;
    }
    status = gw_cli_train_agree(r->comm, status, why);
    if (status != GW_OK) {
        return status;
    }
    status = save_residuals(&new, r, why);
    if (status == GW_OK && (gw_cli_run_adapts(run) || gw_cli_run_is_auto(run))) {
        status = save_levels(&new, r, gw_cli_run_is_auto(run), why);
    }
    if (status == GW_OK && first) {
        status = save_rest(&new, run, pace, r, step, why);
    }
    status = gw_cli_train_agree(r->comm, status, why);
    if (status != GW_OK) {
        gw_why other = {""};
        if (first) {
            (void)gw_cli_folder_remove(new.folder, &other); /* its room may be wanted */
        }
        return status;
    }
    if (first) {
        status = rename_whole(&new, &whole, run, step, why);
    }
    return gw_cli_train_agree(r->comm, status, why);
}

/* ---- load ---- */

static gw_status read_layers(const json_t *all, gw_cli_run_layer *layers, size_t n, gw_why *why)
{
    gw_status status = GW_OK;
    for (size_t i = 0; i < n && status == GW_OK; i++) {
        status = gw_cli_record_read(&BYTES, json_array_get(json_object_get(all, "layers"), i), 1,
                                    "checkpoint.json", &layers[i], why);
    }
    return status == GW_OK && json_array_size(json_object_get(all, "layers")) != n ? GW_ERR_CORRUPT
                                                                                   : status;
}

gw_status gw_cli_checkpoint_read(const char *folder, uint64_t step, gw_cli_pace *pace,
                                 gw_cli_run_layer *layers, size_t n_layers, gw_why *why)
{
    static const gw_cli_field ITEMS[] = {
        {"every", GW_CLI_FIELD_COUNT, offsetof(gw_cli_pace, every)},
        {"checkpoint", GW_CLI_FIELD_COUNT, offsetof(gw_cli_pace, checkpoint)},
        {"sample", GW_CLI_FIELD_COUNT, offsetof(gw_cli_pace, sample)}};
    static const gw_cli_fields PACE = {ITEMS, 3};
    char path[GW_CLI_RUN_PATH];
    place p;
    void *text = NULL;
    size_t size = 0;
    gw_status status = place_of(folder, step, "", &p, why);
    if (status == GW_OK) {
        status = gw_cli_path(path, sizeof path, p.folder, "checkpoint.json", why);
    }
    if (status == GW_OK) {
        status = gw_cli_file_load(path, &text, &size, why);
    }
    if (status != GW_OK) {
        return status;
    }
    json_t *all = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    free(text);
    const char *format = json_string_value(json_object_get(all, "format"));
    if (!format || strcmp(format, FORMAT) != 0 ||
        json_integer_value(json_object_get(all, "step")) != (json_int_t)step ||
        (!pace && read_layers(all, layers, n_layers, why) != GW_OK)) {
        status = gw_cli_train_fail(why, GW_ERR_CORRUPT, "%.150s: not this run's " FORMAT, path);
    } else if (pace) {
        status = gw_cli_record_read(&PACE, all, 4, path, pace, why);
    }
    json_decref(all);
    return status;
}

/* Whose words they are. */
static gw_status in_file(const char *path, gw_status status, gw_why *why)
{
    if (status == GW_OK) {
        return status;
    }
    const gw_why words = *why;
    const size_t size = strlen(path), most = 110;
    return gw_cli_train_fail(why, status, "%s: %.130s", path + (size > most ? size - most : 0),
                             words.text);
}

gw_status gw_cli_checkpoint_has(const char *folder, uint64_t step, uint32_t whose, const char *what,
                                bool *there, gw_why *why)
{
    char path[GW_CLI_RUN_PATH];
    place p;
    gw_status status = place_of(folder, step, "", &p, why);
    if (status == GW_OK) {
        status = rank_path(&p, whose, what, path, sizeof path, why);
    }
    if (status == GW_OK) {
        *there = access(path, F_OK) == 0 || errno != ENOENT; /* else reading says what is wrong */
    }
    return status;
}

/* Where a rank's residuals are lost, those that ranks keep equal begin anew on all ranks. */
static gw_status load_surviving(const gw_feedback_blob *blob, const rank *r, double *norm,
                                gw_why *why)
{
    gw_status status = gw_feedback_checkpoint_norm(blob->bytes, blob->size, norm, why);
    if (status == GW_OK) {
        status = gw_feedback_load_surviving(gw_step_feedback(r->step), r->comm->ranks, blob, 1,
                                            NULL, why);
    }
    return status;
}

/* A damaged file is not a lost one: whoever wants to drop it says so. */
static gw_status damaged(gw_status status, gw_why *why)
{
    if (status != GW_ERR_CHECKSUM && status != GW_ERR_CORRUPT && status != GW_ERR_TRUNCATED) {
        return status;
    }
    const gw_why words = *why;
    return gw_cli_train_fail(why, status,
                             "%.180s; to go on without it, remove the file and pass --missing drop",
                             words.text);
}

static gw_status load_residuals(const place *p, const gw_cli_lost *lost, rank *r, double *norm,
                                gw_why *why)
{
    char path[GW_CLI_RUN_PATH];
    void *bytes = NULL;
    size_t size = 0;
    if (lost->own) {
        return GW_OK; /* zeros, as they are in a new step */
    }
    gw_status status = rank_path(p, r->comm->rank, "residuals", path, sizeof path, why);
    if (status == GW_OK) {
        status = gw_cli_file_load(path, &bytes, &size, why);
    }
    const gw_feedback_blob blob = {bytes, size};
    gw_feedback_told told = {0};
    if (status == GW_OK) {
        gw_feedback *store = gw_step_feedback(r->step);
        status = lost->n != 0 ? load_surviving(&blob, r, norm, why)
                              : gw_feedback_load(store, r->comm->ranks, &blob, 1, &told, why);
        status = damaged(in_file(path, status, why), why);
    }
    if (status == GW_OK && (told.adopted != 0 || told.at_zero != 0)) {
        status = gw_cli_train_fail(why, GW_ERR_DISAGREE, "%.120s is of another plan: %.100s", path,
                                   told.text);
    }
    free(bytes);
    return status;
}

gw_status gw_cli_checkpoint_load_levels(const char *folder, uint64_t step, uint32_t whose, rank *r,
                                        gw_why *why)
{
    char path[GW_CLI_RUN_PATH];
    place p;
    void *bytes = NULL;
    size_t size = 0;
    gw_status status = place_of(folder, step, "", &p, why);
    if (status == GW_OK) {
        status = rank_path(&p, whose, "levels", path, sizeof path, why);
    }
    if (status == GW_OK) {
        status = gw_cli_file_load(path, &bytes, &size, why);
    }
    if (status == GW_OK) {
        status = gw_auto_spec_is(r->config.plan.spec)
                     ? gw_step_auto_load(r->step, bytes, size, why)
                     : gw_step_adapt_load(r->step, bytes, size, why);
        status = in_file(path, status, why);
    }
    free(bytes);
    return status;
}

gw_status gw_cli_checkpoint_load(const char *folder, uint64_t step, const gw_cli_lost *lost,
                                 rank *r, double *norm, gw_why *why)
{
    char path[GW_CLI_RUN_PATH];
    place p;
    void *frame = NULL;
    size_t size = 0;
    gw_status status = place_of(folder, step, "", &p, why);
    if (status == GW_OK) {
        status = gw_cli_path(path, sizeof path, p.folder, "weights.gw", why);
    }
    if (status == GW_OK) {
        status = gw_cli_file_load(path, &frame, &size, why);
    }
    if (status == GW_OK) {
        status = in_file(path, gw_cli_weights_unpack(r, step, frame, size, why), why);
    }
    free(frame);
    return status == GW_OK ? load_residuals(&p, lost, r, norm, why) : status;
}
