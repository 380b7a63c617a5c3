#include "plan/joint_table.h"

#include "base/why.h"

#include <math.h>
#include <stdlib.h>

/* ---- errors ---- */

static gw_status check_tensor(const gw_job_tensor *tensor, const gw_joint_tensor *t, gw_why *why)
{
    if (t->n > GW_ADAPT_MOST_LEVELS) {
        return GW_FAIL(why, GW_ERR_RANGE, "tensor '%.80s': %u levels, at most %d", tensor->name,
                       t->n, GW_ADAPT_MOST_LEVELS);
    }
    if (t->n != 0 && tensor->uncompressed) {
        return GW_FAIL(why, GW_ERR_ARG, "tensor '%.80s' is to be sent uncompressed and has levels",
                       tensor->name);
    }
    if (t->n != 0 && (t->levels == NULL || t->errors == NULL)) {
        return GW_FAIL(why, GW_ERR_ARG, "tensor '%.80s': no levels, or no errors of them",
                       tensor->name);
    }
    if (t->n != 0 && t->uniform >= t->n) {
        return GW_FAIL(why, GW_ERR_RANGE, "tensor '%.80s': level %u is the default, of %u",
                       tensor->name, t->uniform, t->n);
    }
    for (uint32_t i = 0; i < t->n; i++) {
        if (!(t->errors[i] >= 0 && t->errors[i] <= 1e300)) {
            const gw_codec *codec = t->levels[i].codec;
            return GW_FAIL(
                why, GW_ERR_RANGE, "tensor '%.80s': the error of level %u (%s) is %g; from 0 up",
                tensor->name, i, codec != NULL ? gw_codec_name(codec) : "as it is", t->errors[i]);
        }
    }
    return GW_OK;
}

static uint32_t spec_of(const gw_joint_table *t, const gw_params *level)
{
    uint32_t i = 1;
    if (level->codec == NULL || gw_params_equal(level, &t->plain)) {
        return 0;
    }
    while (i < t->n_specs && !gw_params_equal(&t->specs[i], level)) {
        i++;
    }
    return i;
}

static gw_status add_spec(gw_joint_table *t, const gw_params *level, gw_why *why)
{
    if (t->n_specs == t->capacity) {
        const uint32_t capacity = 2 * t->capacity;
        gw_params *specs = realloc(t->specs, capacity * sizeof *specs);
        if (specs == NULL) {
            return GW_FAIL(why, GW_ERR_MEMORY, "no memory for %u levels", capacity);
        }
        t->specs = specs;
        t->capacity = capacity;
    }
    t->specs[t->n_specs++] = *level;
    return gw_params_check(level, why);
}

static gw_status collect(gw_joint_table *t, const gw_joint_request *r, gw_why *why)
{
    t->capacity = 16;
    t->specs = calloc(t->capacity, sizeof *t->specs);
    if (t->specs == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for levels");
    }
    if (gw_params_parse(&t->plain, "cast:to=f32", NULL) != GW_OK) {
        t->plain = (gw_params){.codec = NULL}; /* a build without cast */
    }
    gw_status status = GW_OK;
    for (size_t i = 0; i < r->n_tensors; i++) {
        for (uint32_t k = 0; k < r->tensors[i].n && status == GW_OK; k++) {
            const gw_params *level = &r->tensors[i].levels[k];
            status = spec_of(t, level) == t->n_specs ? add_spec(t, level, why) : GW_OK;
        }
    }
    return status;
}

/* The budget is summed as gw_adapt_choose does. */
static gw_status fill(gw_joint_table *t, const gw_job *job, const gw_joint_request *r, gw_why *why)
{
    double sum = 0;
    for (size_t i = 0; i < job->n; i++) {
        const gw_joint_tensor *tensor = &r->tensors[i];
        double *line = t->error + i * t->n_specs;
        line[0] = 0;
        for (uint32_t spec = 1; spec < t->n_specs; spec++) {
            line[spec] = (double)NAN;
        }
        for (uint32_t k = 0; k < tensor->n; k++) {
            const uint32_t spec = spec_of(t, &tensor->levels[k]);
            if (spec == 0 && tensor->errors[k] != 0) {
                return GW_FAIL(why, GW_ERR_RANGE,
                               "tensor '%.80s': as it is it has no error, and level %u says %g",
                               job->tensors[i].name, k, tensor->errors[k]);
            }
            if (spec != 0 && !isnan(line[spec])) {
                return GW_FAIL(why, GW_ERR_ARG, "tensor '%.80s': level %u (%s) is there twice",
                               job->tensors[i].name, k, gw_codec_name(tensor->levels[k].codec));
            }
            line[spec] = tensor->errors[k];
        }
        t->uniform[i] = tensor->n == 0 ? 0 : spec_of(t, &tensor->levels[tensor->uniform]);
        sum += line[t->uniform[i]];
    }
    t->budget = isinf(r->alpha) ? (double)INFINITY : r->alpha * sum;
    return GW_OK;
}

gw_status gw_joint_table_create(gw_joint_table *t, const gw_job *job,
                                const gw_joint_request *request, gw_why *why)
{
    *t = (gw_joint_table){.n_specs = 1};
    if (request->tensors == NULL || request->n_tensors != job->n) {
        return GW_FAIL(why, GW_ERR_ARG, "levels of %zu tensors; the job has %zu",
                       request->tensors == NULL ? 0 : request->n_tensors, job->n);
    }
    if (!(request->alpha >= 0)) {
        return GW_FAIL(why, GW_ERR_RANGE, "the budget is %g times the default's error; from 0 up",
                       request->alpha);
    }
    gw_status status = GW_OK;
    for (size_t i = 0; i < job->n && status == GW_OK; i++) {
        status = check_tensor(&job->tensors[i], &request->tensors[i], why);
    }
    status = status == GW_OK ? collect(t, request, why) : status;
    if (status == GW_OK) {
        t->error = calloc(job->n * t->n_specs + 1, sizeof *t->error);
        t->uniform = calloc(job->n + 1, sizeof *t->uniform);
        status =
            t->error != NULL && t->uniform != NULL
                ? fill(t, job, request, why)
                : GW_FAIL(why, GW_ERR_MEMORY, "no memory for the errors of %zu tensors", job->n);
    }
    if (status != GW_OK) {
        gw_joint_table_destroy(t);
    }
    return status;
}

void gw_joint_table_destroy(gw_joint_table *t)
{
    free(t->specs);
    free(t->error);
    free(t->uniform);
    *t = (gw_joint_table){.n_specs = 0};
}
