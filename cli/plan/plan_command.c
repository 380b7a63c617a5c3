/* gradwire plan: which tensors to compress, where, along which route. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradwire/gradwire.h>

#include "cli/commands.h"
#include "cli/files/files.h"
#include "cli/json_out.h"
#include "cli/plan/plan_budget.h"
#include "cli/plan/plan_text.h"
#include "cli/plan/planfile.h"
#include "cli/routes/routes.h"
#include "cli/say.h"
#include "cli/seconds.h"

typedef struct values {
    gw_cli_scene_args scene;
    gw_cli_budget_args budget;
    const char *out, *trace, *devices;
    gw_cli_texts forbidden;
    uint32_t max_hops;
    bool no_fusion, one_channel, explain, what_if;
} values;

static const gw_cli_option OPTIONS[] = {
    GW_CLI_SCENE_OPTIONS(values, scene),
    GW_CLI_BUDGET_OPTIONS(values, budget),
    {"output", 'o', GW_CLI_TEXT, offsetof(values, out), "FILE",
     "write the plan (gradwire.plan/1); - prints it instead of the tables"},
    {"trace", 0, GW_CLI_TEXT, offsetof(values, trace), "FILE",
     "write the predicted timeline for ui.perfetto.dev"},
    {"explain", 0, GW_CLI_FLAG, offsetof(values, explain), NULL,
     "why the ten most expensive tensors go as they go"},
    {"what-if", 0, GW_CLI_FLAG, offsetof(values, what_if), NULL,
     "the same job over other link rates and numbers of nodes"},
    {"devices", 0, GW_CLI_TEXT, offsetof(values, devices), "LIST",
     "that may code: cpu, gpu or cpu,gpu (all there are)"},
    {"max-hops", 0, GW_CLI_U32, offsetof(values, max_hops), "N",
     "at most so many lossy hops on a route"},
    {"forbid", 0, GW_CLI_TEXTS, offsetof(values, forbidden), "ROUTE",
     "not this route; again for more"},
    {"no-fusion", 0, GW_CLI_FLAG, offsetof(values, no_fusion), NULL,
     "every tensor travels on its own"},
    {"one-channel", 0, GW_CLI_FLAG, offsetof(values, one_channel), NULL,
     "links inside a node and between nodes are one, as in the paper"},
};

static const gw_cli_page PAGE = {
    .command = "plan",
    .usage = "plan JOB --cluster FILE [-c SPEC]... [-o PLAN.json] [options]\n"
             "       gradwire plan JOB --cluster FILE --budget A --grads FILE --family F[,F] "
             "--default SPEC [options]",
    .about =
        "Chooses, for each tensor of a job, a codec or none, a device and a route, so that the\n"
        "predicted step is short. JOB is a gradwire.job/1 file, or CSV with the columns\n"
        "order,tensor,numel,gap_us; - is standard input. Sending numbers as they are is always\n"
        "among the candidates, for fp32 gradients cast:to=bf16 too. With --budget the levels of\n"
        "the families are, and numbers as they are: the errors of all tensors together, measured\n"
        "on gradients, keep within A times those of the default level everywhere; a route that\n"
        "encodes twice loses twice.",
    .example =
        "  gradwire plan resnet50.json --cluster examples/clusters/h200-100g.json "
        "-c natural:bits=8 -c topk:density=0.01 -o plan.json\n"
        "  gradwire plan job.json --cluster cluster.json --budget 1 --grads grads.safetensors "
        "--family dither,topk --default dither:bits=4 -o plan.json",
    .options = OPTIONS,
    .n_options = sizeof OPTIONS / sizeof OPTIONS[0],
};

/* NULL: said, and *status is set. malloc'd. */
static gw_route *forbidden_routes(const gw_cli_texts *texts, int *status)
{
    gw_route *routes = calloc(texts->count + 1, sizeof *routes);
    gw_why why = {""};
    if (!routes) {
        gw_cli_out_of_memory();
        *status = GW_CLI_FAILED;
    }
    for (size_t i = 0; routes && i < texts->count; i++) {
        if (gw_route_parse(&routes[i], texts->items[i], &why) != GW_OK) {
            *status = gw_cli_misuse(&PAGE, "option --forbid: %s", why.text);
            free(routes);
            return NULL;
        }
    }
    return routes;
}

static bool print(const gw_cli_args *args, const values *v, const gw_cli_scene *scene,
                  const gw_plan_request *request, const gw_plan *plan, double select_ms)
{
    bool fine = true;
    if (v->out && gw_cli_is_stream(v->out)) {
        return true; /* the plan itself is the result */
    }
    if (args->json) {
        json_t *json = gw_cli_plan_report_json(scene, plan, select_ms);
        if (v->what_if) {
            json_object_set_new(json, "what_if", gw_cli_what_if(scene, request, NULL));
        }
        return gw_cli_json_print(json);
    }
    fine = gw_cli_plan_summary(scene, plan, select_ms);
    if (fine && v->explain) {
        fine = gw_cli_plan_explain(scene, request, plan);
    }
    if (fine && v->what_if) {
        json_t *table = gw_cli_what_if(scene, request, &fine);
        json_decref(table);
    }
    return fine;
}

/* GW_CLI_GO_ON and a plan that was printed, or an exit status and it was said. */
static int choose(const gw_cli_args *args, const values *v, const gw_plan_request *request,
                  gw_cli_scene *scene, gw_plan **plan)
{
    gw_why why = {""};
    if (v->budget.alpha) {
        gw_cli_budgeted budgeted;
        const int status =
            gw_cli_budget_plan(args, &PAGE, &v->budget, request, scene, plan, &budgeted);
        return status != GW_CLI_GO_ON || (v->out && gw_cli_is_stream(v->out)) ||
                       gw_cli_budget_print(args, scene, *plan, &budgeted)
                   ? status
                   : GW_CLI_FAILED;
    }
    const double before = gw_cli_now();
    if (gw_plan_create(&scene->job.job, &scene->cluster.cluster, request, plan, &why) != GW_OK) {
        gw_cli_error("%s: %s", args->words[0], why.text);
        return GW_CLI_FAILED;
    }
    return print(args, v, scene, request, *plan, 1e3 * (gw_cli_now() - before)) ? GW_CLI_GO_ON
                                                                                : GW_CLI_FAILED;
}

static int run(const gw_cli_args *args, const values *v, const gw_plan_request *request,
               gw_cli_scene *scene)
{
    gw_plan *plan = NULL;
    int status = choose(args, v, request, scene, &plan);
    if (status == GW_CLI_GO_ON) {
        const bool fine = (!v->out || gw_cli_json_write(v->out, gw_cli_plan_json(scene, plan))) &&
                          (!v->trace || gw_cli_trace_write(v->trace, scene, plan, v->one_channel));
        status = fine ? GW_CLI_DONE : GW_CLI_FAILED;
    }
    gw_plan_destroy(plan);
    return status;
}

/* What goes with --budget and what does not. */
static int check_budget(const values *v)
{
    const gw_cli_budget_args *b = &v->budget;
    if (!b->alpha && (b->grads || b->uniform || b->families.count > 0)) {
        return gw_cli_misuse(&PAGE, "option --%s needs --budget",
                             b->grads     ? "grads"
                             : b->uniform ? "default"
                                          : "family");
    }
    if (b->alpha && v->scene.specs.count > 0) {
        return gw_cli_misuse(&PAGE, "option -c does not go with --budget: say --family SPEC");
    }
    if (b->alpha && (v->explain || v->what_if)) {
        return gw_cli_misuse(&PAGE, "option --%s does not go with --budget",
                             v->explain ? "explain" : "what-if");
    }
    return GW_CLI_GO_ON;
}

/* Standard output takes one thing. */
static int check_output(const gw_cli_args *args, const values *v)
{
    if (v->trace && gw_cli_is_stream(v->trace)) {
        return gw_cli_misuse(&PAGE, "option --trace: a file is needed");
    }
    if (v->out && gw_cli_is_stream(v->out) && (v->explain || v->what_if)) {
        return gw_cli_misuse(&PAGE, "option --%s and -o - both want standard output",
                             v->explain ? "explain" : "what-if");
    }
    return gw_cli_check_stream(&PAGE, args, v->out, false);
}

int gw_cli_plan(int argc, char **argv)
{
    values v = {.out = NULL};
    gw_cli_args args;
    gw_cli_scene scene;
    int status = gw_cli_parse(&PAGE, argc, argv, &args, &v);
    if (status != GW_CLI_GO_ON) {
        return status;
    }
    gw_plan_request request = {.max_hops = v.max_hops,
                               .no_fusion = v.no_fusion,
                               .one_channel = v.one_channel,
                               .n_forbidden = v.forbidden.count};
    gw_route *forbidden = NULL;
    if (args.n_words != 1) {
        status = gw_cli_misuse(&PAGE, "one JOB is needed");
    } else if (!v.scene.cluster && (v.scene.nodes == 0 || v.scene.link <= 0)) {
        status =
            gw_cli_misuse(&PAGE, "--cluster FILE is missing; or say --nodes N and --link RATE");
    } else if (v.devices && (request.devices = gw_cli_devices_of(v.devices)) == 0) {
        status =
            gw_cli_misuse(&PAGE, "option --devices: '%s' is not cpu, gpu or cpu,gpu", v.devices);
    } else if ((status = check_output(&args, &v)) == GW_CLI_GO_ON &&
               (status = check_budget(&v)) == GW_CLI_GO_ON &&
               (forbidden = forbidden_routes(&v.forbidden, &status)) != NULL) {
        status = GW_CLI_FAILED;
        request.forbidden = forbidden;
        if (gw_cli_scene_load(&args, &v.scene, &scene)) {
            request.specs = scene.specs;
            request.n_specs = scene.n_specs;
            status = run(&args, &v, &request, &scene);
            gw_cli_scene_free(&scene);
        }
    }
    free(forbidden);
    gw_cli_texts_free(&v.scene.specs);
    gw_cli_texts_free(&v.forbidden);
    gw_cli_texts_free(&v.budget.families);
    return status;
}
