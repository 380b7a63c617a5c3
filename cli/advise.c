/* gradwire advise: should this job compress on this cluster? */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <gradwire/gradwire.h>

#include "commands.h"
#include "json_out.h"
#include "planfile.h"
#include "say.h"

typedef struct values {
    gw_cli_scene_args scene;
} values;

static const gw_cli_option OPTIONS[] = {GW_CLI_SCENE_OPTIONS(values, scene)};

static const gw_cli_page PAGE = {
    .command = "advise",
    .usage = "advise JOB --cluster FILE | --nodes N --link RATE [-c SPEC]...",
    .about =
        "Says whether compression would make the steps of a job shorter, by how much, what to\n"
        "write, and at which link rate the answer would change. Without -c it looks at\n"
        "natural:bits=8, dither:bits=4 and topk:density=0.01.",
    .example = "  gradwire advise resnet50.json --nodes 8 --link 10gbit",
    .options = OPTIONS,
    .n_options = sizeof OPTIONS / sizeof OPTIONS[0],
};

static const char *const USUAL[] = {"natural:bits=8", "dither:bits=4", "topk:density=0.01"};
/* Below this share of the dense step compression is not worth its loss. */
static const double WORTH = 0.05;
static const double LEAST_GBIT = 0.01, MOST_GBIT = 3200;

typedef struct verdict {
    bool yes;
    gw_plan_report report;
    char spec[256],
        route
            [GW_ROUTE_TEXT]; /* of most of the elements that are coded; of bf16 if nothing else is */
    double share;            /* of all elements that have this spec */
    double changes_at;       /* Gbit/s; 0: nowhere in range */
} verdict;

static bool worth(const gw_plan_report *r)
{
    return r->dense / r->step - 1 >= WORTH && r->step_high < r->dense_high;
}

static bool plan_at(const gw_cli_scene *scene, double rate, gw_plan **plan)
{
    gw_cluster c = scene->cluster.cluster;
    gw_why why = {""};
    const gw_plan_request request = {.specs = scene->specs, .n_specs = scene->n_specs};
    c.inter.rate = rate;
    if (gw_plan_create(&scene->job.job, &c, &request, plan, &why) != GW_OK) {
        gw_cli_error("%s", why.text);
        return false;
    }
    return true;
}

static bool worth_at(const gw_cli_scene *scene, double gbit, bool *out)
{
    gw_plan *plan = NULL;
    if (!plan_at(scene, gbit * 1e9 / 8, &plan)) {
        return false;
    }
    const gw_plan_report r = gw_plan_report_of(plan);
    gw_plan_destroy(plan);
    *out = worth(&r);
    return true;
}

/* The rate above which the answer is no, by halving on a log scale to 5 %. */
static bool find_change(const gw_cli_scene *scene, verdict *v)
{
    const double here = scene->cluster.cluster.inter.rate * 8e-9;
    double yes = v->yes ? here : LEAST_GBIT, no = v->yes ? MOST_GBIT : here;
    bool answer = false;
    v->changes_at = 0;
    if (scene->cluster.cluster.nodes < 2) {
        return true;
    }
    if (!worth_at(scene, v->yes ? MOST_GBIT : LEAST_GBIT, &answer)) {
        return false;
    }
    if (answer == v->yes) {
        return true; /* the same at the end of the range */
    }
    while (no / yes > 1.05) {
        const double middle = sqrt(yes * no);
        if (!worth_at(scene, middle, &answer)) {
            return false;
        }
        *(answer ? &yes : &no) = middle;
    }
    v->changes_at = sqrt(yes * no);
    return true;
}

/* The spec that most coded elements have. */
static void find_spec(const gw_cli_scene *scene, const gw_plan *plan, verdict *v)
{
    double most = 0, all = 0;
    (void)snprintf(v->spec, sizeof v->spec, "dense");
    for (size_t i = 0; i < gw_plan_count(plan); i++) {
        gw_plan_entry one, other;
        double sum = 0;
        (void)gw_plan_entry_at(plan, i, &one);
        all += (double)scene->job.job.tensors[i].elements;
        for (size_t k = 0; one.params.codec && k < gw_plan_count(plan); k++) {
            (void)gw_plan_entry_at(plan, k, &other);
            if (gw_cli_same_spec(&one, &other)) {
                sum += (double)scene->job.job.tensors[k].elements;
            }
        }
        if (sum > most) {
            most = sum;
            gw_cli_entry_spec(&one, v->spec, sizeof v->spec);
            (void)gw_route_print(&one.route, v->route, sizeof v->route);
        }
    }
    v->share = all > 0 ? most / all : 0;
}

/* ---- words ---- */

static void reason_of(const gw_cli_scene *scene, const verdict *v, char *text, size_t size)
{
    const gw_plan_report *r = &v->report;
    const double compute =
        scene->job.job.forward + scene->job.job.backward + scene->job.job.optimizer;
    const double exposed = r->dense - compute;
    if (v->yes) {
        (void)snprintf(
            text, size,
            "a step takes %.1f ms instead of %.1f ms, %.2f times as fast: uncompressed, %.0f %% of "
            "the step is spent waiting for the network",
            r->step * 1e3, r->dense * 1e3, r->dense / r->step, exposed / r->dense * 100);
    } else if (exposed / r->dense < WORTH) {
        (void)snprintf(text, size,
                       "uncompressed, the network is hidden behind the backward pass but for %.1f "
                       "ms of a step of "
                       "%.1f ms",
                       exposed * 1e3, r->dense * 1e3);
    } else if (r->dense / r->step - 1 < WORTH) {
        (void)snprintf(text, size,
                       "the best plan saves only %.1f %% of a step of %.1f ms: coding costs what "
                       "it spares the "
                       "network",
                       (1 - r->step / r->dense) * 100, r->dense * 1e3);
    } else {
        (void)snprintf(text, size,
                       "it would be %.2f times as fast by the mean, but one deviation slower it "
                       "would lose: measure "
                       "the cluster better",
                       r->dense / r->step);
    }
}

/* The options that lead to the same scene. */
static void print_where(const gw_cli_scene_args *wanted)
{
    if (wanted->cluster) {
        (void)printf(" --cluster %s", wanted->cluster);
    }
    if (wanted->nodes) {
        (void)printf(" --nodes %u", wanted->nodes);
    }
    if (wanted->ranks_per_node) {
        (void)printf(" --ranks-per-node %u", wanted->ranks_per_node);
    }
    if (wanted->link > 0) {
        (void)printf(" --link %gmbit", wanted->link * 8e-6);
    }
}

static void print_words(const gw_cli_args *args, const gw_cli_scene_args *wanted,
                        const gw_cli_scene *scene, const verdict *v, const char *reason)
{
    const gw_plan_report *r = &v->report;
    (void)printf("%s: %s.\n", v->yes ? "Yes, compress" : "No, do not compress", reason);
    if (v->yes) {
        (void)printf("Most of it (%.0f %% of the elements) goes as %s\n  along %s.\n",
                     v->share * 100, v->spec, v->route);
        (void)printf("Write:\n  gradwire plan %s", args->words[0]);
        print_where(wanted);
        (void)printf(" -c %s -o plan.json\n", v->spec);
    }
    const double here = scene->cluster.cluster.inter.rate * 8e-9;
    if (v->changes_at > 0) {
        (void)printf("The answer changes at about %.3g Gbit/s (the link now: %.3g): below it yes, "
                     "above it no.\n",
                     v->changes_at, here);
    } else if (scene->cluster.cluster.nodes > 1) {
        (void)printf("The answer is the same from %.3g Gbit/s %s.\n", here,
                     v->yes ? "up to 3200" : "down to 0.01");
    }
    (void)printf(
        "\n%-16s %10.3f ms\n%-16s %10.3f ms\n%-16s %10.3f ms\n%-16s %10.3f ms\n%-16s %10.3f ms\n",
        "dense", r->dense * 1e3, "cast:to=bf16", r->bf16 * 1e3, "all compressed",
        r->all_compressed * 1e3, "best plan", r->step * 1e3, "no plan below", r->lower_bound * 1e3);
}

static bool print_json(const gw_cli_scene *scene, const verdict *v, const char *reason)
{
    const gw_plan_report *r = &v->report;
    const gw_cluster *c = &scene->cluster.cluster;
    return gw_cli_json_print(json_pack(
        "{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:s, s:o, s:o, s:o, s:f}", "answer",
        v->yes ? "yes" : "no", "reason", reason, "dense_ms", r->dense * 1e3, "bf16_ms",
        r->bf16 * 1e3, "all_compressed_ms", r->all_compressed * 1e3, "step_ms", r->step * 1e3,
        "lower_bound_ms", r->lower_bound * 1e3, "speed_up", r->dense / r->step, "spec",
        v->yes ? v->spec : "dense", "route", v->yes ? v->route : "", "changes_at_gbit",
        v->changes_at > 0 ? json_real(v->changes_at) : json_null(), "nodes",
        gw_cli_json_count(c->nodes), "ranks_per_node", gw_cli_json_count(c->ranks_per_node),
        "link_gbit", c->inter.rate * 8e-9));
}

static int advise(const gw_cli_args *args, const gw_cli_scene_args *wanted,
                  const gw_cli_scene *scene)
{
    verdict v = {.yes = false};
    gw_plan *plan = NULL;
    char reason[320];
    if (!plan_at(scene, scene->cluster.cluster.inter.rate, &plan)) {
        return GW_CLI_FAILED;
    }
    v.report = gw_plan_report_of(plan);
    v.yes = worth(&v.report);
    find_spec(scene, plan, &v);
    gw_plan_destroy(plan);
    if (!find_change(scene, &v)) {
        return GW_CLI_FAILED;
    }
    reason_of(scene, &v, reason, sizeof reason);
    if (args->json) {
        return print_json(scene, &v, reason) ? GW_CLI_DONE : GW_CLI_FAILED;
    }
    print_words(args, wanted, scene, &v, reason);
    return GW_CLI_DONE;
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
    const char *usual[sizeof USUAL / sizeof USUAL[0]];
    memcpy(usual, USUAL, sizeof usual);
    const gw_cli_texts given = v.scene.specs;
    if (given.count == 0) {
        v.scene.specs = (gw_cli_texts){usual, sizeof USUAL / sizeof USUAL[0]};
    }
    if (args.n_words != 1) {
        status = gw_cli_misuse(&PAGE, "one JOB is needed");
    } else if (!v.scene.cluster && (v.scene.nodes == 0 || v.scene.link <= 0)) {
        status =
            gw_cli_misuse(&PAGE, "--cluster FILE is missing; or say --nodes N and --link RATE");
    } else if (gw_cli_scene_load(&args, &v.scene, &scene)) {
        status = advise(&args, &v.scene, &scene);
        gw_cli_scene_free(&scene);
    } else {
        status = GW_CLI_FAILED;
    }
    v.scene.specs = given;
    gw_cli_texts_free(&v.scene.specs);
    return status;
}
