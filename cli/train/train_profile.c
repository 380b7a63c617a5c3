#include "cli/train/train_profile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/measure/meter.h"
#include "cli/train/train_agree.h"
#include "cli/train/train_files.h"

enum { FORWARD, BACKWARD, UPDATE, BESIDE, SPANS };

void gw_cli_times_free(gw_cli_times *profile)
{
    free(profile->times);
    *profile = (gw_cli_times){0};
}

/* The largest of all ranks' numbers, in place. */
static gw_status largest(gw_comm *comm, double *numbers, size_t n, gw_why *why)
{
    const size_t bytes = n * sizeof *numbers;
    double *all = calloc(comm->ranks, bytes);
    if (!all) {
        return gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory to profile");
    }
    const gw_status status = gw_comm_gather(comm, numbers, bytes, all, GW_CLI_TRAIN_TIMEOUT, why);
    for (size_t i = 0; i < comm->ranks * n && status == GW_OK; i++) {
        numbers[i % n] = fmax(numbers[i % n], all[i]);
    }
    free(all);
    return status;
}

static bool make_room(gw_cli_times *p)
{
    if ((p->n_steps & (p->n_steps - 1)) != 0) {
        return true;
    }
    const size_t room = p->n_steps == 0 ? 1 : 2 * p->n_steps;
    double *more = realloc(p->times, room * p->width * sizeof *more);
    p->times = more ? more : p->times;
    return more;
}

gw_status gw_cli_times_add(gw_cli_times *p, rank *r, const rank_stats *stats, gw_why *why)
{
    const size_t n = r->model->n_params;
    const double forward = stats->forward_seconds;
    double row[MODEL_MAX_PARAMS + SPANS];
    for (size_t i = 0; i < n; i++) {
        row[i] = forward + r->ready[i];
    }
    row[n + FORWARD] = forward;
    row[n + BACKWARD] = forward + stats->backward_seconds;
    row[n + UPDATE] = stats->update_seconds;
    row[n + BESIDE] = r->beside_seconds;
    const gw_status status = largest(r->comm, row, n + SPANS, why);
    if (status != GW_OK || !p) {
        return status;
    }
    for (size_t i = 0; i < n; i++) {
        row[i] -= row[n + FORWARD];
    }
    row[n + BACKWARD] -= row[n + FORWARD];
    p->width = n + SPANS;
    if (!make_room(p)) {
        return gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory to profile");
    }
    memcpy(p->times + p->n_steps++ * p->width, row, p->width * sizeof *row);
    return GW_OK;
}

/* Median in milliseconds, to a tenth of a microsecond. `some` has room for all steps. */
static double median_ms(const gw_cli_times *p, size_t column, double *some)
{
    const size_t from = p->n_steps > 1 ? 1 : 0, n = p->n_steps - from;
    for (size_t i = 0; i < n; i++) {
        some[i] = p->times[(from + i) * p->width + column];
    }
    return round(gw_cli_median(some, n) * 1e7) / 1e4;
}

static json_t *tensor_json(const param *t, double ready_ms)
{
    json_t *shape = json_array();
    for (size_t i = 0; i < t->n_dims; i++) {
        (void)json_array_append_new(shape, json_integer((json_int_t)t->dims[i]));
    }
    return json_pack("{s:s, s:o, s:f}", "name", t->name, "shape", shape, "ready_ms", ready_ms);
}

static json_t *job_json(const gw_cli_times *p, const rank *r, double *some)
{
    const size_t n = r->model->n_params;
    char device[64], software[64];
    json_t *tensors = json_array();
    for (size_t i = 0; i < n; i++) {
        (void)json_array_append_new(tensors,
                                    tensor_json(r->model->params[i], median_ms(p, i, some)));
    }
    (void)snprintf(device, sizeof device, "cpu, %ld cores", sysconf(_SC_NPROCESSORS_ONLN));
    (void)snprintf(software, sizeof software, "gradwire %s", gw_version_string());
    return json_pack("{s:s, s:s, s:s, s:s, s:I, s:s, s:s, s:f, s:f, s:f, s:f, s:o}", "format",
                     "gradwire.job/1", "name", r->config.model, "device", device, "software",
                     software, "batch_per_rank", (json_int_t)r->config.batch, "gradient_dtype",
                     "float32", "compute", "float32", "forward_ms", median_ms(p, n + FORWARD, some),
                     "backward_ms", median_ms(p, n + BACKWARD, some), "optimizer_ms",
                     median_ms(p, n + UPDATE, some), "beside_ms", median_ms(p, n + BESIDE, some),
                     "tensors", tensors);
}

gw_status gw_cli_times_write(const gw_cli_times *p, const rank *r, const char *path, gw_why *why)
{
    if (p->n_steps == 0) {
        return gw_cli_train_fail(why, GW_ERR_STATE, "%.120s: no step was made to profile", path);
    }
    double *some = calloc(p->n_steps, sizeof *some);
    json_t *job = some ? job_json(p, r, some) : NULL;
    char *text = job ? json_dumps(job, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) : NULL;
    const gw_status status = text ? gw_cli_file_save(path, text, strlen(text), why)
                                  : gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory for a job");
    free(text);
    json_decref(job);
    free(some);
    return status;
}
