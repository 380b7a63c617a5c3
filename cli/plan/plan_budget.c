#include "cli/plan/plan_budget.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/adapt/layer_levels.h"
#include "cli/json_out.h"
#include "cli/plan/assumed_costs.h"
#include "cli/plan/plan_text.h"
#include "cli/plan/planfile.h"
#include "cli/say.h"
#include "cli/seconds.h"

/* ---- from the file to the job ---- */

/* Costs of every level; said once a codec where they are assumed. */
static bool assume(const gw_cli_args *args, gw_cli_scene *scene, const gw_cli_layer *layer)
{
    const gw_codec *said = NULL;
    for (size_t i = 1; i < layer->n; i++) {
        const gw_params *level = &layer->levels[i];
        bool added = false;
        if (!gw_cli_assume_codec(&scene->cluster, level, &added)) {
            gw_cli_out_of_memory();
            return false;
        }
        if (added && level->codec != said) {
            said = level->codec;
            gw_cli_note(args->talk, GW_CLI_NORMAL, "what %s costs is assumed, not measured",
                        gw_codec_name(said));
        }
    }
    return true;
}

/* The layer of each of the job's tensors, in the job's order. */
static bool match(const gw_cli_args *args, const gw_cli_budget_args *wanted,
                  const gw_cli_levels *levels, gw_cli_scene *scene, gw_joint_tensor *out)
{
    const gw_job *job = &scene->job.job;
    for (size_t i = 0; i < job->n; i++) {
        const gw_job_tensor *t = &job->tensors[i];
        if (t->uncompressed) {
            out[i] = (gw_joint_tensor){.n = 0};
            continue;
        }
        gw_cli_layer *layer = gw_cli_levels_find(levels, t->name, strlen(t->name));
        if (!layer) {
            gw_cli_error("%s: no tensor '%.80s', which the job %s sends", wanted->grads, t->name,
                         args->words[0]);
            return false;
        }
        if (layer->tensor->shape.count != t->elements) {
            gw_cli_error("%s: tensor '%.80s' has %llu elements, in the job %s it has %llu",
                         wanted->grads, t->name, (unsigned long long)layer->tensor->shape.count,
                         args->words[0], (unsigned long long)t->elements);
            return false;
        }
        if (!assume(args, scene, layer)) {
            return false;
        }
        /* as it is: the job's tensors are fp32, whatever the file holds */
        layer->levels[0] = (gw_params){.codec = NULL};
        out[i] = (gw_joint_tensor){.levels = layer->levels,
                                   .errors = layer->errors,
                                   .n = (uint32_t)layer->n,
                                   .uniform = layer->uniform};
    }
    if (levels->n_layers > job->n) {
        gw_cli_note(args->talk, GW_CLI_NORMAL, "%s: %zu of %zu tensors are not the job's",
                    wanted->grads, levels->n_layers - job->n, levels->n_layers);
    }
    return true;
}

static bool choose(const gw_cli_args *args, const gw_cli_budget_args *wanted,
                   const gw_plan_request *like, const gw_cli_levels *levels, gw_cli_scene *scene,
                   gw_plan **plan, gw_cli_budgeted *out)
{
    const gw_job *job = &scene->job.job;
    gw_joint_tensor *tensors = calloc(job->n, sizeof *tensors);
    gw_why why = {""};
    if (!tensors) {
        gw_cli_out_of_memory();
        return false;
    }
    const gw_joint_request request = {.tensors = tensors,
                                      .n_tensors = job->n,
                                      .alpha = out->alpha,
                                      .devices = like->devices,
                                      .max_hops = like->max_hops,
                                      .forbidden = like->forbidden,
                                      .n_forbidden = like->n_forbidden,
                                      .no_fusion = like->no_fusion,
                                      .one_channel = like->one_channel};
    bool fine = match(args, wanted, levels, scene, tensors);
    const double begin = gw_cli_now();
    if (fine && gw_joint_create(job, &scene->cluster.cluster, &request, plan, &out->report, &why) !=
                    GW_OK) {
        gw_cli_error("%s: %s", args->words[0], why.text);
        fine = false;
    }
    out->select_ms = 1e3 * (gw_cli_now() - begin);
    free(tensors);
    return fine;
}

int gw_cli_budget_plan(const gw_cli_args *args, const gw_cli_page *page,
                       const gw_cli_budget_args *wanted, const gw_plan_request *request,
                       gw_cli_scene *scene, gw_plan **plan, gw_cli_budgeted *out)
{
    gw_cli_levels levels = {.isa = GW_ISA_AUTO};
    *out = (gw_cli_budgeted){.uniform = wanted->uniform};
    if (!gw_cli_factor_parse(wanted->alpha, &out->alpha)) {
        return gw_cli_misuse(page, "--budget '%s' is not a number of 0 or more", wanted->alpha);
    }
    if (!wanted->grads) {
        return gw_cli_misuse(page, "--grads is missing");
    }
    if (!gw_cli_tensors_known(wanted->grads)) {
        return gw_cli_misuse(page, "--grads '%s' is not named " GW_CLI_TENSOR_FILES, wanted->grads);
    }
    int status = gw_cli_levels_ask(&levels, page, &wanted->families, wanted->uniform);
    if (status == GW_CLI_GO_ON) {
        const bool fine = gw_cli_levels_measure(&levels, wanted->grads, args->talk) &&
                          choose(args, wanted, request, &levels, scene, plan, out);
        out->tables_ms = levels.tables_ms;
        status = fine ? GW_CLI_GO_ON : GW_CLI_FAILED;
    }
    gw_cli_levels_free(&levels);
    return status;
}

/* ---- what is said ---- */

static json_t *budget_json(const gw_cli_budgeted *b)
{
    const gw_joint_report *r = &b->report;
    return json_pack(
        "{s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "alpha", gw_cli_json_number(b->alpha),
        "default", b->uniform, "budget", gw_cli_json_number(r->budget), "error",
        gw_cli_json_number(r->error), "levels_alone_ms", gw_cli_json_number(r->levels_alone * 1e3),
        "levels_error", gw_cli_json_number(r->levels_error), "routes_alone_ms",
        gw_cli_json_number(r->routes_alone * 1e3), "routes_error",
        gw_cli_json_number(r->routes_error), "tables_ms", gw_cli_json_number(b->tables_ms));
}

static void print_line(const char *name, double seconds, double dense, double error,
                       const char *meaning)
{
    if (isnan(seconds)) { /* routes are forbidden that it would need */
        (void)printf("%-13s %13s  %7s  %9s  %s\n", name, "-", "-", "-", meaning);
    } else if (isnan(error)) {
        (void)printf("%-13s %10.3f ms  %6.2fx  %9s  %s\n", name, seconds * 1e3, dense / seconds, "",
                     meaning);
    } else {
        (void)printf("%-13s %10.3f ms  %6.2fx  %9.4g  %s\n", name, seconds * 1e3, dense / seconds,
                     error, meaning);
    }
}

static void print_words(const gw_cli_scene *scene, const gw_cli_budgeted *b)
{
    const gw_joint_report *r = &b->report;
    const gw_cluster *c = &scene->cluster.cluster;
    const double d = r->dense, none = (double)NAN;
    (void)printf("%s: %zu tensors on %s, %u nodes of %u ranks; error at most %g x that of %s "
                 "everywhere\n\n",
                 scene->job.job.name, scene->job.job.n, c->name, c->nodes, c->ranks_per_node,
                 b->alpha, b->uniform);
    (void)printf("%-13s %13s  %7s  %9s\n", "", "step", "faster", "error");
    print_line("plan", r->step, d, r->error, "what was chosen");
    print_line("levels alone", r->levels_alone, d, r->levels_error,
               "L-GreCo: fewest bytes within the budget, then the best routes");
    print_line("routes alone", r->routes_alone, d, r->routes_error,
               "Espresso: each tensor within its own part of the budget");
    print_line("dense", d, d, 0, "no compression");
    print_line("bound", r->lower_bound, d, none,
               "no plan with these buckets and this budget can be faster");
    (void)printf("\nError %.4g of a budget of %.4g", r->error, r->budget);
    if (r->budget > 0 && isfinite(r->budget)) {
        (void)printf(" (%.1f %%)", 100 * r->error / r->budget);
    }
    (void)printf(". At most %.2f %% above the fastest plan with these buckets.\n"
                 "Errors measured in %.1f ms, selected in %.1f ms: %llu candidates, %llu "
                 "timelines.\n\n",
                 100 * (r->step / r->lower_bound - 1), b->tables_ms, b->select_ms,
                 (unsigned long long)r->candidates, (unsigned long long)r->evaluations);
}

bool gw_cli_budget_print(const gw_cli_args *args, const gw_cli_scene *scene, const gw_plan *plan,
                         const gw_cli_budgeted *b)
{
    if (args->json) {
        json_t *json = gw_cli_plan_report_json(scene, plan, b->select_ms);
        json_object_set_new(json, "within", budget_json(b));
        return gw_cli_json_print(json);
    }
    print_words(scene, b);
    return gw_cli_plan_ways(scene, plan);
}
