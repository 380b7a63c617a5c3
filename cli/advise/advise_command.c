/* gradwire advise: should this job compress on this cluster? */
#include "cli/advise/advise.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <gradwire/gradwire.h>

#include "cli/commands.h"
#include "cli/files/files.h"
#include "cli/json_out.h"
#include "cli/plan/planfile.h"
#include "cli/quantity.h"
#include "cli/say.h"

typedef gw_cli_advise_args values;

static const gw_cli_option OPTIONS[] = {
    GW_CLI_SCENE_OPTIONS(values, scene),
    {"grads", 0, GW_CLI_TEXT, offsetof(values, grads), "FILE",
     "gradients of the job's tensors: within the error of dither:bits=4"},
    {"output", 'o', GW_CLI_TEXT, offsetof(values, out), "FILE",
     "write the plan that is recommended (gradwire.plan/1)"},
};

static const gw_cli_page PAGE = {
    .command = "advise",
    .usage = "advise JOB --cluster FILE | --nodes N --link RATE [-c SPEC]... [options]",
    .about =
        "Says whether compression would make the steps of a job shorter, by how much, what it "
        "does\n"
        "to quality, what to run next, and at which link rate the answer would change. Biases,\n"
        "norms and other vectors stay uncompressed. Without -c the candidates are unbiased:\n"
        "natural:bits=8 and dither:bits=4; of these the one with the least noise whose step is\n"
        "within 5 % of the fastest. With --grads each tensor gets a level of these codecs, all\n"
        "errors together within those of dither:bits=4. Codecs of -c are candidates instead, with\n"
        "--grads besides.",
    .example = "  gradwire advise resnet50.json --nodes 8 --link 10gbit -o plan.json",
    .options = OPTIONS,
    .n_options = sizeof OPTIONS / sizeof OPTIONS[0],
};

/* Unbiased, the least noise first. */
static const char *const USUAL[] = {"natural:bits=8", "dither:bits=4"};
enum { N_USUAL = sizeof USUAL / sizeof USUAL[0] };
/* With --grads: levels of bits 2 to 8, and one. */
static const char *const FAMILIES[] = {"dither", "natural:bits=8"};
static const char BUDGET_OF[] = "dither:bits=4";

static bool worth(const gw_plan_report *r)
{
    const bool known = !isnan(r->step_high) && !isnan(r->dense_high);
    return r->dense / r->step - 1 >= GW_CLI_WORTH && (!known || r->step_high < r->dense_high);
}

/* devices 0: all there are. */
static bool plan_at(const gw_cli_scene *scene, double rate, size_t n_specs, uint32_t devices,
                    gw_plan **plan)
{
    gw_cluster c = scene->cluster.cluster;
    gw_why why = {""};
    const gw_plan_request request = {.specs = scene->specs, .n_specs = n_specs, .devices = devices};
    c.inter.rate = rate;
    if (gw_plan_create(&scene->job.job, &c, &request, plan, &why) != GW_OK) {
        gw_cli_error("%s", why.text);
        return false;
    }
    return true;
}

/* ---- the plan ---- */

/* The first of these plans that is worth it and within GW_CLI_WORTH of the fastest, which is the last. */
static bool choose_unbiased(const gw_cli_scene *scene, gw_cli_verdict *v)
{
    const double here = scene->cluster.cluster.inter.rate;
    gw_plan *plans[N_USUAL + 1] = {NULL};
    gw_plan_report reports[N_USUAL + 1];
    size_t chosen = N_USUAL;
    bool fine = plan_at(scene, here, N_USUAL, 0, &plans[N_USUAL]);
    reports[N_USUAL] = gw_plan_report_of(plans[N_USUAL]);
    const double enough = (1 + GW_CLI_WORTH) * reports[N_USUAL].step;
    for (size_t i = 0; fine && i < N_USUAL && chosen == N_USUAL && worth(&reports[N_USUAL]); i++) {
        fine = plan_at(scene, here, i, 0, &plans[i]);
        reports[i] = gw_plan_report_of(plans[i]);
        if (worth(&reports[i]) && reports[i].step <= enough) {
            chosen = i;
        }
    }
    if (fine) {
        v->plan = plans[chosen];
        plans[chosen] = NULL;
        v->report = reports[chosen];
        v->report.all_compressed = reports[N_USUAL].all_compressed;
    }
    for (size_t i = 0; i <= N_USUAL; i++) {
        gw_plan_destroy(plans[i]);
    }
    return fine;
}

/* Within the budget; dense and bf16 as without one. */
static int choose_within(const gw_cli_args *args, const gw_cli_advise_args *wanted,
                         const gw_cli_texts *named, gw_cli_scene *scene, gw_cli_budgeted *budgeted,
                         gw_cli_verdict *v)
{
    const char *families[64];
    const gw_plan_request request = {.n_specs = 0};
    gw_cli_budget_args budget = {.alpha = "1", .grads = wanted->grads, .uniform = BUDGET_OF};
    gw_plan *base = NULL;
    const size_t n = sizeof FAMILIES / sizeof FAMILIES[0];
    if (named->count > sizeof families / sizeof families[0] - n) {
        return gw_cli_misuse(&PAGE, "too many of -c");
    }
    memcpy((void *)families, (const void *)FAMILIES, sizeof FAMILIES);
    for (size_t i = 0; i < named->count; i++) {
        families[n + i] = named->items[i];
    }
    budget.families = (gw_cli_texts){families, n + named->count};
    const int status =
        gw_cli_budget_plan(args, &PAGE, &budget, &request, scene, &v->plan, budgeted);
    if (status != GW_CLI_GO_ON) {
        return status;
    }
    if (!plan_at(scene, scene->cluster.cluster.inter.rate, scene->n_specs, 0, &base)) {
        return GW_CLI_FAILED;
    }
    const gw_plan_report without = gw_plan_report_of(base);
    v->report = gw_plan_report_of(v->plan);
    v->report.bf16 = without.bf16;
    v->report.all_compressed = without.all_compressed;
    v->budgeted = budgeted;
    gw_plan_destroy(base);
    return GW_CLI_GO_ON;
}

/* The way that most coded elements go, and a codec that needs feedback if there is one. */
static void look_at(const gw_cli_scene *scene, gw_cli_verdict *v)
{
    const gw_job *job = &scene->job.job;
    double most = 0, all = 0;
    size_t specs = 0;
    for (size_t i = 0; i < gw_plan_count(v->plan); i++) {
        gw_plan_entry one, other;
        double sum = 0;
        (void)gw_plan_entry_at(v->plan, i, &one);
        all += (double)job->tensors[i].elements;
        v->kept += job->tensors[i].uncompressed != 0;
        bool first = one.params.codec != NULL;
        for (size_t k = 0; one.params.codec && k < gw_plan_count(v->plan); k++) {
            (void)gw_plan_entry_at(v->plan, k, &other);
            if (gw_params_equal(&one.params, &other.params)) {
                sum += (double)job->tensors[k].elements;
                first = first && k >= i;
            }
        }
        specs += first;
        if (one.params.codec && gw_params_flags(&one.params) & GW_CODEC_WANTS_FEEDBACK) {
            v->feedback = one.params;
        }
        if (sum > most) {
            most = sum;
            v->most = one;
        }
    }
    v->share = all > 0 ? most / all : 0;
    v->others = specs > 0 ? specs - 1 : 0;
}

/* ---- where the answer changes ---- */

/* Coding on one kind of device at a time: 174 routes each instead of 4341. */
static bool worth_at(const gw_cli_scene *scene, double gbit, bool *out)
{
    static const uint32_t DEVICES[] = {GW_DEVICE_GPU, GW_DEVICE_CPU};
    *out = false;
    for (size_t i = scene->cluster.cluster.has_gpu ? 0 : 1; i < 2 && !*out; i++) {
        gw_plan *plan = NULL;
        if (!plan_at(scene, gbit * 1e9 / 8, scene->n_specs, DEVICES[i], &plan)) {
            return false;
        }
        const gw_plan_report r = gw_plan_report_of(plan);
        gw_plan_destroy(plan);
        *out = worth(&r);
    }
    return true;
}

static bool shows_progress(int talk)
{
    return talk >= GW_CLI_NORMAL && isatty(STDERR_FILENO);
}

/* The rate above which the answer is no, by halving on a log scale to 5 %. */
static bool halve(const gw_cli_scene *scene, bool progress, double yes, double no, double *found)
{
    char from[32], to[32];
    bool answer = false;
    while (no / yes > 1.05) {
        const double middle = sqrt(yes * no);
        if (progress) {
            gw_cli_rate_words(yes * 125e6, from, sizeof from);
            gw_cli_rate_words(no * 125e6, to, sizeof to);
            (void)fprintf(stderr, "\033[Kthe answer changes between %s and %s\r", from, to);
        }
        if (!worth_at(scene, middle, &answer)) {
            return false;
        }
        *(answer ? &yes : &no) = middle;
    }
    *found = sqrt(yes * no);
    return true;
}

static bool find_change(const gw_cli_scene *scene, int talk, gw_cli_verdict *v)
{
    const double here = scene->cluster.cluster.inter.rate * 8e-9;
    const double yes = v->yes ? here : GW_CLI_LEAST_GBIT, no = v->yes ? GW_CLI_MOST_GBIT : here;
    const bool progress = shows_progress(talk);
    bool answer = v->yes;
    if (scene->cluster.cluster.nodes < 2) {
        return true;
    }
    bool fine = worth_at(scene, v->yes ? GW_CLI_MOST_GBIT : GW_CLI_LEAST_GBIT, &answer);
    if (fine && answer != v->yes) { /* else it is the same at the end of the range */
        fine = halve(scene, progress, yes, no, &v->changes_at);
    }
    if (progress) {
        (void)fprintf(stderr, "\033[K"); /* leaves the line as it was found */
    }
    return fine;
}

/* ---- the answer ---- */

static bool print_json(const gw_cli_scene *scene, const gw_cli_verdict *v, const char *reason,
                       const char *quality, double error)
{
    const gw_plan_report *r = &v->report;
    const gw_cluster *c = &scene->cluster.cluster;
    char spec[256] = "dense", route[GW_ROUTE_TEXT] = "";
    if (v->yes) {
        gw_cli_entry_spec(&v->most, spec, sizeof spec);
        (void)gw_route_print(&v->most.route, route, sizeof route);
    }
    return gw_cli_json_print(json_pack(
        "{s:s, s:s, s:f, s:o, s:o, s:f, s:f, s:f, s:s, s:s, s:o, s:o, s:o, s:f, s:s, s:o}",
        "answer", v->yes ? "yes" : "no", "reason", reason, "dense_ms", r->dense * 1e3, "bf16_ms",
        gw_cli_json_number(r->bf16 * 1e3), "all_compressed_ms",
        gw_cli_json_number(r->all_compressed * 1e3), "step_ms", r->step * 1e3, "lower_bound_ms",
        r->lower_bound * 1e3, "speed_up", r->dense / r->step, "spec", spec, "route", route,
        "changes_at_gbit", v->changes_at > 0 ? json_real(v->changes_at) : json_null(), "nodes",
        gw_cli_json_count(c->nodes), "ranks_per_node", gw_cli_json_count(c->ranks_per_node),
        "link_gbit", c->inter.rate * 8e-9, "quality", quality, "relative_error",
        gw_cli_json_number(v->yes ? error : 0)));
}

/* With "no" there is nothing to write, and a file of before must not be taken for it. */
static bool write_plan(const gw_cli_scene *scene, const gw_cli_verdict *v, const char *path)
{
    if (path && !v->yes) {
        gw_cli_error("%s: no plan is written, since the answer is no", path);
        return false;
    }
    return !path || gw_cli_json_write(path, gw_cli_plan_json(scene, v->plan));
}

static int answer(const gw_cli_args *args, const gw_cli_advise_args *wanted,
                  const gw_cli_texts *named, const gw_cli_scene *scene, gw_cli_verdict *v)
{
    char reason[GW_CLI_ADVISE_TEXT], quality[GW_CLI_ADVISE_TEXT];
    double error = (double)NAN;
    v->yes = worth(&v->report);
    look_at(scene, v);
    if (!find_change(scene, args->talk, v) || !gw_cli_advise_quality(v, quality, &error)) {
        return GW_CLI_FAILED;
    }
    gw_cli_advise_reason(scene, v, reason);
    if (args->json) {
        if (!print_json(scene, v, reason, quality, error)) {
            return GW_CLI_FAILED;
        }
    } else {
        gw_cli_advise_print(args, wanted, scene, v, named->count > 0, reason, quality);
    }
    return write_plan(scene, v, wanted->out) ? GW_CLI_DONE : GW_CLI_FAILED;
}

static int advise(const gw_cli_args *args, const gw_cli_advise_args *wanted,
                  const gw_cli_texts *named, gw_cli_scene *scene)
{
    gw_cli_verdict v = {.plan = NULL};
    gw_cli_budgeted budgeted;
    int status = GW_CLI_GO_ON;
    gw_job_file_keep_vectors(&scene->job);
    if (shows_progress(args->talk)) {
        (void)fprintf(stderr, "planning %zu tensors\r", scene->job.job.n);
        (void)fflush(stderr);
    }
    if (wanted->grads) {
        status = choose_within(args, wanted, named, scene, &budgeted, &v);
    } else if (named->count > 0) {
        status = plan_at(scene, scene->cluster.cluster.inter.rate, scene->n_specs, 0, &v.plan)
                     ? GW_CLI_GO_ON
                     : GW_CLI_FAILED;
        v.report = gw_plan_report_of(v.plan);
    } else {
        status = choose_unbiased(scene, &v) ? GW_CLI_GO_ON : GW_CLI_FAILED;
    }
    status = status == GW_CLI_GO_ON ? answer(args, wanted, named, scene, &v) : status;
    gw_plan_destroy(v.plan);
    return status;
}

int gw_cli_advise(int argc, char **argv)
{
    values v = {.scene = {.cluster = NULL}};
    gw_cli_args args;
    gw_cli_scene scene;
    int status = gw_cli_parse(&PAGE, argc, argv, &args, &v);
    if (status != GW_CLI_GO_ON) {
        return status;
    }
    const char *usual[N_USUAL];
    memcpy((void *)usual, (const void *)USUAL, sizeof usual);
    const gw_cli_texts named = v.scene.specs;
    if (named.count == 0) {
        v.scene.specs = (gw_cli_texts){usual, N_USUAL};
    }
    if (args.n_words != 1) {
        status = gw_cli_misuse(&PAGE, "one JOB is needed");
    } else if (!v.scene.cluster && (v.scene.nodes == 0 || v.scene.link <= 0)) {
        status =
            gw_cli_misuse(&PAGE, "--cluster FILE is missing; or say --nodes N and --link RATE");
    } else if (v.out && gw_cli_is_stream(v.out)) {
        status = gw_cli_misuse(&PAGE, "option -o: a file is needed");
    } else if (gw_cli_scene_load(&args, &v.scene, &scene)) {
        status = advise(&args, &v, &named, &scene);
        gw_cli_scene_free(&scene);
    } else {
        status = GW_CLI_FAILED;
    }
    v.scene.specs = named;
    gw_cli_texts_free(&v.scene.specs);
    return status;
}
