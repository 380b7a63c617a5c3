#include "cli/advise/advise.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradwire/gradwire.h>

#include "cli/exec.h"
#include "cli/measure/error_metrics.h"
#include "cli/measure/generate.h"
#include "cli/plan/planfile.h"
#include "cli/quantity.h"
#include "cli/say.h"

enum { SHORT = 32 };

static const char *time_words(double seconds, char text[SHORT])
{
    gw_cli_time_words(seconds, text, SHORT);
    return text;
}

static const char *gbit_words(double gbit, char text[SHORT])
{
    gw_cli_rate_words(gbit * 1e9 / 8, text, SHORT);
    return text;
}

/* ---- why ---- */

/* What a cast alone would do: the least that any plan has to beat. */
static void bf16_words(const gw_job *job, const gw_plan_report *r, char *text, size_t size)
{
    char took[SHORT];
    if (job->dtype != 0 && gw_dtype_size(job->dtype) == 2) {
        (void)snprintf(text, size, "gradients have 16 bits already, so bf16 changes nothing");
    } else if (!isnan(r->bf16)) {
        (void)snprintf(text, size, "with bf16 for all tensors it would take %s",
                       time_words(r->bf16, took));
    }
}

void gw_cli_advise_reason(const gw_cli_scene *scene, const gw_cli_verdict *v,
                          char text[GW_CLI_ADVISE_TEXT])
{
    const gw_plan_report *r = &v->report;
    const gw_job *job = &scene->job.job;
    const double exposed = r->dense - (job->forward + job->backward + job->optimizer);
    const size_t size = GW_CLI_ADVISE_TEXT;
    char dense[SHORT], step[SHORT], wait[SHORT], bf16[128] = "";
    (void)time_words(r->dense, dense);
    (void)time_words(r->step, step);
    bf16_words(job, r, bf16, sizeof bf16);
    if (v->yes) {
        (void)snprintf(text, size,
                       "a step takes %s instead of %s uncompressed, %.2f times as fast; %s. "
                       "Uncompressed, %.0f %% of the step is spent waiting for the network",
                       step, dense, r->dense / r->step, bf16, exposed / r->dense * 100);
    } else if (exposed / r->dense < GW_CLI_WORTH) {
        (void)snprintf(text, size, "uncompressed, a step takes %s and waits %s for the network; %s",
                       dense, exposed > 0 ? time_words(exposed, wait) : "not at all", bf16);
    } else if (r->dense / r->step - 1 < GW_CLI_WORTH) {
        (void)snprintf(text, size,
                       "the best plan takes %s, uncompressed a step takes %s: coding costs what it "
                       "saves on the network; %s",
                       step, dense, bf16);
    } else {
        (void)snprintf(text, size,
                       "a step would take %s instead of %s, but one deviation slower the plan "
                       "would lose; %s. Measure the cluster with less noise",
                       step, dense, bf16);
    }
}

/* ---- quality ---- */

enum { SAMPLE = 1 << 16 };

/* As `gradwire inspect --generate 64Ki` measures it; NaN for a codec that works on whole matrices. */
static bool error_of(const gw_params *params, double *error)
{
    float *in = malloc(SAMPLE * sizeof *in), *out = malloc(SAMPLE * sizeof *out);
    gw_exec exec;
    size_t bound = 0, written = 0;
    unsigned char *payload = NULL;
    gw_cli_damage damage = {.error = 0};
    const gw_tensor from = {in, SAMPLE, GW_F32};
    gw_tensor to = {out, SAMPLE, GW_F32};
    const gw_stream stream = {.seed = 0};
    gw_report report = {0};
    bool fine = in && out && gw_cli_exec_open(GW_ISA_AUTO, 1, &exec);
    *error = (double)NAN;
    if (!fine) {
        gw_cli_out_of_memory();
    } else if (!(gw_params_flags(params) & GW_CODEC_ROUNDS)) {
        gw_cli_generate(0, in, SAMPLE);
        fine =
            gw_payload_bound(params, SAMPLE, &bound) == GW_OK &&
            (payload = malloc(bound + 1)) != NULL &&
            gw_cli_exec_fit(&exec, params, GW_F32, SAMPLE, false) &&
            gw_encode(params, &exec, &stream, &from, payload, bound, &written, &report) == GW_OK &&
            gw_decode(params, &exec, payload, written, GW_SET, &to, NULL) == GW_OK &&
            gw_cli_damage_add(&damage, &from, &to);
        *error = fine ? gw_cli_rel_error(&damage) : *error;
        gw_cli_exec_close(&exec);
    }
    free(payload);
    free(in);
    free(out);
    return fine;
}

/* What the codec does, in a sentence without its name. */
static void effect_words(const gw_params *params, double error, uint32_t hops, char *text,
                         size_t size)
{
    const uint32_t flags = gw_params_flags(params);
    char lost[96] = "";
    if (!isnan(error)) {
        (void)snprintf(lost, sizeof lost, "%s of relative squared error %.2g for each lossy hop",
                       flags & GW_CODEC_UNBIASED ? "noise" : "an error", error);
    }
    if (flags & GW_CODEC_WANTS_FEEDBACK) {
        (void)snprintf(
            text, size,
            "is biased: it leaves out most of each gradient and sends the rest in later "
            "steps (error feedback). Measured, such codecs lose accuracy with SGD, and "
            "with Adam they ruin training (docs/train.md, docs/pytorch.md, \"Quality\") unless "
            "PyTorch's attach is given optimizer= (docs/adam.md). Compare a short run with dense "
            "before using it");
    } else if (flags & GW_CODEC_UNBIASED) {
        (void)snprintf(
            text, size,
            "is unbiased: it adds %s (%u on its route), and no bias. Measured: docs/train.md, "
            "docs/pytorch.md",
            lost, hops);
    } else {
        (void)snprintf(
            text, size,
            "rounds each number: it adds %s (%u on its route), with a bias where roundings agree",
            lost, hops);
    }
}

bool gw_cli_advise_quality(const gw_cli_verdict *v, char text[GW_CLI_ADVISE_TEXT], double *error)
{
    char spec[256], effect[480];
    const gw_plan_entry *most = &v->most;
    if (!v->yes) {
        (void)snprintf(text, GW_CLI_ADVISE_TEXT, "uncompressed gradients lose nothing");
        return true;
    }
    if (!error_of(&most->params, error)) {
        return false;
    }
    gw_plan_entry said = *most;
    if (v->feedback.codec) {
        said.params = v->feedback;
    }
    gw_cli_entry_spec(&said, spec, sizeof spec);
    spec[strcspn(spec, ",")] = '\0';
    effect_words(&said.params, *error, gw_route_encodes(&most->route), effect, sizeof effect);
    const int used = snprintf(text, GW_CLI_ADVISE_TEXT, "%s %s", spec, effect);
    if (v->budgeted && used > 0 && used < GW_CLI_ADVISE_TEXT) {
        (void)snprintf(text + used, GW_CLI_ADVISE_TEXT - (size_t)used,
                       ". On the gradients given, all errors together are %.3g, within the %.3g of "
                       "%s everywhere",
                       v->budgeted->report.error, v->budgeted->report.budget, v->budgeted->uniform);
    }
    return true;
}

/* ---- what next ---- */

/* As the user wrote it, or in full. */
static void spec_words(const gw_cli_advise_args *wanted, const gw_plan_entry *entry, char *text,
                       size_t size)
{
    gw_plan_entry other = *entry;
    gw_cli_entry_spec(entry, text, size);
    for (size_t i = 0; i < wanted->scene.specs.count; i++) {
        const char *written = wanted->scene.specs.items[i];
        if (gw_params_parse(&other.params, written, NULL) == GW_OK &&
            gw_params_equal(&entry->params, &other.params)) {
            (void)snprintf(text, size, "%s", written);
        }
    }
}

/* Back to this advice, with the plan written. */
static void print_again(const gw_cli_args *args, const gw_cli_advise_args *wanted, bool named)
{
    const gw_cli_scene_args *s = &wanted->scene;
    char rate[SHORT];
    (void)printf("  gradwire advise %s", args->words[0]);
    if (s->cluster) {
        (void)printf(" --cluster %s", s->cluster);
    }
    if (s->nodes) {
        (void)printf(" --nodes %u", s->nodes);
    }
    if (s->ranks_per_node) {
        (void)printf(" --ranks-per-node %u", s->ranks_per_node);
    }
    if (s->link > 0) {
        gw_cli_rate_option(s->link, rate, sizeof rate);
        (void)printf(" --link %s", rate);
    }
    for (size_t i = 0; named && i < s->specs.count; i++) {
        (void)printf(" -c %s", s->specs.items[i]);
    }
    if (wanted->grads) {
        (void)printf(" --grads %s", wanted->grads);
    }
    (void)printf(" -o plan.json\n");
}

/* The trainer's own jobs are named after its models; other models it does not have. */
static void print_trainer(const gw_cli_advise_args *wanted, const gw_cli_scene *scene,
                          const char *plan)
{
    const gw_cluster *c = &scene->cluster.cluster;
    char rate[SHORT];
    (void)printf("  gradwire train");
    if (!scene->job.from_trainer) {
        (void)printf(" --plan %s …    for a model of its own trainer\n", plan);
        return;
    }
    (void)printf(" --model %s --ranks %u", scene->job.job.name, c->nodes * c->ranks_per_node);
    if (c->ranks_per_node > 1) {
        (void)printf(" --ranks-per-node %u", c->ranks_per_node);
    }
    if (wanted->scene.link > 0) {
        gw_cli_rate_option(wanted->scene.link, rate, sizeof rate);
        (void)printf(" --link %s", rate);
    }
    (void)printf(" --plan %s\n", plan);
}

static void print_next(const gw_cli_args *args, const gw_cli_advise_args *wanted,
                       const gw_cli_scene *scene, bool named)
{
    const char *plan = wanted->out ? wanted->out : "plan.json";
    (void)printf("Next:\n");
    if (!wanted->out) {
        print_again(args, wanted, named);
    }
    (void)printf("  gradwire.attach(ddp, \"%s\")    in PyTorch\n", plan);
    print_trainer(wanted, scene, plan);
}

static void print_plan(const gw_cli_advise_args *wanted, const gw_cli_verdict *v)
{
    char spec[256], route[GW_ROUTE_TEXT];
    spec_words(wanted, &v->most, spec, sizeof spec);
    (void)gw_route_print(&v->most.route, route, sizeof route);
    (void)printf("Plan: %.0f %% of the elements are sent as %s", v->share * 100, spec);
    if (v->others > 0) {
        (void)printf(", others with %zu other setting%s", v->others, v->others > 1 ? "s" : "");
    }
    (void)printf(", most along\n  %s.\n", route);
    if (v->kept == 1) {
        (void)printf("  1 vector (bias, norm) stays uncompressed.\n");
    } else if (v->kept > 1) {
        (void)printf("  %zu vectors (biases, norms) stay uncompressed.\n", v->kept);
    }
}

static void print_change(const gw_cli_advise_args *wanted, const gw_cli_scene *scene,
                         const gw_cli_verdict *v)
{
    char at[SHORT], here[SHORT], whole[SHORT], why[96] = "";
    const double gbit = scene->cluster.cluster.inter.rate * 8e-9;
    if (scene->cluster.cluster.nodes < 2) {
        return;
    }
    (void)gbit_words(gbit, here);
    if (!wanted->scene.cluster) {
        gw_cli_rate_words(wanted->scene.link, whole, sizeof whole);
        (void)snprintf(why, sizeof why, " (%s less 5 %% protocol overhead)", whole);
    }
    if (v->changes_at > 0) {
        (void)printf("Compression pays below about %s. ", gbit_words(v->changes_at, at));
    } else if (v->yes) {
        (void)printf("Compression pays at any rate up to %s. ",
                     gbit_words(fmax(gbit, GW_CLI_MOST_GBIT), at));
    } else {
        (void)printf("Compression pays at no rate down to %s. ",
                     gbit_words(fmin(gbit, GW_CLI_LEAST_GBIT), at));
    }
    (void)printf("Your link delivers %s%s.\n", here, why);
}

static void print_times(const gw_cli_verdict *v)
{
    const gw_plan_report *r = &v->report;
    const struct {
        const char *name;
        double seconds;
    } lines[] = {{"dense", r->dense},
                 {"bf16", r->bf16},
                 {"all compressed", r->all_compressed},
                 {v->yes ? "this plan" : "best plan", r->step},
                 {"lower bound", r->lower_bound}};
    (void)printf("\nPredicted step:\n");
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        char text[SHORT];
        if (!isnan(lines[i].seconds)) {
            (void)printf("  %-16s %9s\n", lines[i].name, time_words(lines[i].seconds, text));
        }
    }
}

void gw_cli_advise_print(const gw_cli_args *args, const gw_cli_advise_args *wanted,
                         const gw_cli_scene *scene, const gw_cli_verdict *v, bool named,
                         const char *reason, const char *quality)
{
    (void)printf("%s: %s.\n", v->yes ? "Yes, compress" : "No, do not compress", reason);
    if (v->yes) {
        print_plan(wanted, v);
        (void)printf("Quality: %s.\n", quality);
    }
    print_change(wanted, scene, v);
    print_times(v);
    if (v->yes) {
        (void)printf("\n");
        print_next(args, wanted, scene, named);
    }
}
