/* Options of `gradwire train`; see train_options.h. */
#include "cli/train/train_options.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gradwire/threads.h>

#include "cli/quantity.h"
#include "cli/say.h"
#include "cli/train/train_loop.h"
#include "trainer/data_images.h"
#include "trainer/sending_plan.h"

typedef gw_cli_train_options values;

static const gw_cli_option OPTIONS[] = {
    {"model", 0, GW_CLI_TEXT, offsetof(values, model), "M", "mlp, cnn or lstm (cnn)"},
    {"ranks", 0, GW_CLI_U32, offsetof(values, ranks), "P", "ranks, threads of this process (4)"},
    {"ranks-per-node", 0, GW_CLI_U32, offsetof(values, ranks_per_node), "K",
     "ranks of a node, which share its link (1)"},
    {"batch", 'b', GW_CLI_U64, offsetof(values, batch), "N", "examples a rank and step (32)"},
    {"steps", 0, GW_CLI_U64, offsetof(values, steps), "N", "steps of the run"},
    {"epochs", 0, GW_CLI_U64, offsetof(values, epochs), "N",
     "the same in passes over the data (4; lstm 3)"},
    {"seed", 0, GW_CLI_U64, offsetof(values, seed), "N", "of weights, order and rounding (1)"},
    {"codec", 'c', GW_CLI_TEXT, offsetof(values, spec), "SPEC",
     "codec of the gradients and its settings, or auto (dense)"},
    {"route", 0, GW_CLI_TEXT, offsetof(values, route), "R",
     "their route, name or steps (what suits the codec)"},
    {"adapt", 0, GW_CLI_TEXT, offsetof(values, adapt), "F,...",
     "choose each layer's level of these families on the way; -c is the default"},
    {"period", 0, GW_CLI_U64, offsetof(values, period), "N",
     "of --adapt: steps between choices (100)"},
    {"alpha", 0, GW_CLI_REAL, offsetof(values, alpha), "A",
     "of --adapt: error allowed, times the default's (1)"},
    {"plan", 0, GW_CLI_TEXT, offsetof(values, plan), "FILE",
     "codec and route of every tensor, as `gradwire plan -o` wrote them"},
    {"profile", 0, GW_CLI_TEXT, offsetof(values, profile), "FILE",
     "write when gradients were ready: a JOB for `gradwire plan`"},
    {"trace", 0, GW_CLI_TEXT, offsetof(values, trace), "FILE",
     "write what the last steps did, and when, for ui.perfetto.dev"},
    {"metrics", 0, GW_CLI_TEXT, offsetof(values, metrics), "FILE",
     "keep the run's figures there for Prometheus, in its text format"},
    {"link", 0, GW_CLI_RATE, offsetof(values, link), "RATE",
     "of each node, each way: 1gbit, 200mbit; 0 no limit (0)"},
    {"latency", 0, GW_CLI_TIME, offsetof(values, latency), "T", "of that link: 1ms, 50us (0)"},
    {"optimiser", 0, GW_CLI_TEXT, offsetof(values, optimiser), "O", "sgd or adam (sgd; lstm adam)"},
    {"rate", 0, GW_CLI_REAL, offsetof(values, rate), "X", "learning rate (what suits the model)"},
    {"warmup", 0, GW_CLI_U64, offsetof(values, warmup), "N",
     "steps over which the rate rises (100)"},
    {"momentum", 0, GW_CLI_REAL, offsetof(values, momentum), "X", "of sgd (0.9)"},
    {"decay", 0, GW_CLI_REAL, offsetof(values, decay), "X", "weight decay (5e-4; adam 0)"},
    {"schedule", 0, GW_CLI_TEXT, offsetof(values, schedule), "S",
     "of the rate: constant, cosine, step, or spike: a cosine with a mistake in it (cosine)"},
    {"every", 0, GW_CLI_U64, offsetof(values, every), "N",
     "steps between tests; 0 at the end only (a tenth, 50 at least)"},
    {"images", 0, GW_CLI_TEXT, offsetof(values, images), "DIR",
     "Fashion-MNIST, for mlp and cnn (Debian's)"},
    {"text", 0, GW_CLI_TEXT, offsetof(values, text), "FILE", "for lstm (build/data/kjv.txt)"},
    {"out", 'o', GW_CLI_TEXT, offsetof(values, out), "RUN",
     "folder of the run, new or empty (runs/DATE-MODEL-SPEC)"},
    {"checkpoint", 0, GW_CLI_U64, offsetof(values, checkpoint), "N",
     "steps between checkpoints; 0 at start and end only (as --every)"},
    {"resume", 0, GW_CLI_TEXT, offsetof(values, resume), "RUN",
     "go on with a run, bit for bit, from its last checkpoint"},
    {"missing", 0, GW_CLI_TEXT, offsetof(values, missing), "drop",
     "of --resume: go on if residuals of ranks are lost; theirs begin at zero (error)"},
    {"compare", 0, GW_CLI_TEXTS, offsetof(values, compare), "SPEC,...",
     "one run for each, from the same start; may be given again"},
    {"seeds", 0, GW_CLI_U64, offsetof(values, seeds), "N",
     "runs of each, seeds from --seed on (1)"},
    {"target", 0, GW_CLI_TEXT, offsetof(values, target_text), "X",
     "accuracy (0.9, 90%) or bits a character to time"},
    {"sample", 0, GW_CLI_U64, offsetof(values, sample), "N",
     "steps between samples of all layers; 0 none (a twentieth)"},
};

static const gw_cli_page PAGE = {
    .command = "train",
    .usage = "train [--model M] [-c SPEC | --compare SPEC,SPEC...] [options]",
    .about =
        "Trains a network on real data, data-parallel: every rank its own examples, gradients\n"
        "compressed on the way. Ranks are threads joined by a virtual link; as gradwire-mpi under\n"
        "mpirun they are MPI processes. Leaves a run folder: run.json, history.jsonl and a "
        "checkpoint.\n"
        "-c auto measures a few steps, plans codec and route of every layer, and again when\n"
        "times, errors or the loss change: docs/auto.md.\n"
        "Ctrl-C ends after the step under way, with a checkpoint and the table of what is there,\n"
        "exit status 130; a second one kills. More: docs/train.md.",
    .example =
        "  gradwire train\n"
        "  gradwire train --link 200mbit --latency 1ms --target 90% \\\n"
        "      --compare dense,cast:to=bf16,natural:bits=8,adacomp\n"
        "  gradwire train --compare dither:bits=4,adapt/dither:bits=4\n"
        "  gradwire train --link 200mbit --latency 1ms --compare dense,dither:bits=4,auto\n"
        "  gradwire train --profile cnn.json && gradwire plan cnn.json --nodes 4 --link 1gbit \\\n"
        "      -c natural:bits=8 -o plan.json && gradwire train --plan plan.json\n"
        "  gradwire train --resume runs/20260131-120000-cnn-dense",
    .options = OPTIONS,
    .n_options = sizeof OPTIONS / sizeof OPTIONS[0],
};

int gw_cli_train_misuse(const gw_why *why)
{
    return gw_cli_misuse(&PAGE, "%s", why->text);
}

static bool given(uint64_t value)
{
    return value != UINT64_MAX;
}

/* ---- specs ---- */

/* "topk:density=0.01,values=natural,adacomp": what has a '=' before any ':' belongs to the spec before it. */
static bool is_setting(const char *part)
{
    return part[strcspn(part, ":,=")] == '=';
}

/* What a family's default is if nobody says. */
static const char *usual_level(const char *family)
{
    return strcmp(family, "dither") == 0    ? "dither:bits=4"
           : strcmp(family, "ndither") == 0 ? "ndither:bits=4"
           : strcmp(family, "topk") == 0    ? "topk:density=0.01"
           : strcmp(family, "lowrank") == 0 ? "lowrank:rank=4"
                                            : family;
}

static bool same_codec(const char *a, const char *b)
{
    const size_t n = strcspn(a, ":");
    return n == strcspn(b, ":") && strncmp(a, b, n) == 0;
}

/* --adapt dither,topk -c dither:bits=4 --alpha 2 is -c adapt:alpha=2/dither:bits=4/topk:density=0.01 */
static int compose_adapt(values *v)
{
    char *to = v->adapt_spec, families[200];
    const size_t room = sizeof v->adapt_spec;
    if (!v->adapt) {
        return given(v->period) || !isnan(v->alpha)
                   ? gw_cli_misuse(&PAGE, "--period and --alpha are of --adapt")
                   : GW_CLI_GO_ON;
    }
    if (v->compare.count > 0) {
        return gw_cli_misuse(&PAGE, "in --compare write it out: adapt/dither:bits=4");
    }
    if (strlen(v->adapt) >= sizeof families || (v->spec && strlen(v->spec) > 100)) {
        return gw_cli_misuse(&PAGE, "--adapt or -c is too long");
    }
    size_t n = (size_t)snprintf(to, room, "adapt");
    if (given(v->period)) {
        n += (size_t)snprintf(to + n, room - n, ":period=%llu", (unsigned long long)v->period);
    }
    if (!isnan(v->alpha)) {
        n += (size_t)snprintf(to + n, room - n, "%calpha=%.9g", given(v->period) ? ',' : ':',
                              v->alpha);
    }
    const char *first = v->spec;
    (void)snprintf(families, sizeof families, "%s", v->adapt);
    n += first ? (size_t)snprintf(to + n, room - n, "/%s", first) : 0;
    for (char *at = families, *next = at; next && n < room; at = next) {
        for (next = strchr(at, ','); next && is_setting(next + 1);) {
            next = strchr(next + 1, ',');
        }
        if (next) {
            *next++ = '\0';
        }
        if (!first || !same_codec(first, at)) {
            n += (size_t)snprintf(to + n, room - n, "/%s", usual_level(at));
        }
    }
    v->spec = v->adapt_spec;
    return n < room ? GW_CLI_GO_ON : gw_cli_misuse(&PAGE, "--adapt is too long");
}

static int split_specs(values *v)
{
    size_t bytes = 1, most = 1;
    for (size_t i = 0; i < v->compare.count; i++) {
        bytes += strlen(v->compare.items[i]) + 1;
    }
    most += bytes;
    v->spec_words = calloc(bytes, 1);
    v->specs = calloc(most, sizeof *v->specs);
    if (!v->spec_words || !v->specs) {
        gw_cli_out_of_memory();
        return GW_CLI_FAILED;
    }
    if (v->compare.count == 0) {
        v->specs[v->n_specs++] = v->spec;
    }
    char *to = v->spec_words;
    for (size_t i = 0; i < v->compare.count; i++) {
        v->specs[v->n_specs++] = to;
        for (const char *from = v->compare.items[i]; *from; from++, to++) {
            *to = *from;
            if (*from == ',' && !is_setting(from + 1)) {
                *to = '\0';
                v->specs[v->n_specs++] = to + 1;
            }
        }
        *to++ = '\0';
    }
    for (size_t i = 0; v->compare.count > 0 && i < v->n_specs; i++) {
        for (size_t j = 0; j < i; j++) {
            if (strcmp(v->specs[i], v->specs[j]) == 0) {
                return gw_cli_misuse(&PAGE, "--compare names '%s' twice", v->specs[i]);
            }
        }
    }
    return GW_CLI_GO_ON;
}

/* ---- reading ---- */

static bool is_text_model(const char *name)
{
    return strcmp(name, "lstm") == 0;
}

static int read_target(values *v)
{
    char number[32];
    const char *text = v->target_text;
    v->target = (double)NAN;
    if (!text) {
        return GW_CLI_GO_ON;
    }
    const size_t size = strlen(text);
    const bool percent = size > 0 && text[size - 1] == '%';
    if (size >= sizeof number) {
        return gw_cli_misuse(&PAGE, "--target '%.40s' is not a number", text);
    }
    memcpy(number, text, size + 1);
    number[size - percent] = '\0';
    if (!gw_cli_real_parse(number, &v->target) || !(v->target > 0)) {
        return gw_cli_misuse(&PAGE, "--target '%s' is not a number such as 0.9, 90%% or 2.1", text);
    }
    v->target = percent ? v->target / 100 : v->target;
    return GW_CLI_GO_ON;
}

static int check_engine(const gw_cli_engine *engine, const values *v)
{
    if (!engine->comm) {
        return v->ranks != UINT32_MAX && (v->ranks == 0 || v->ranks > GW_THREADS_MAX_RANKS)
                   ? gw_cli_misuse(&PAGE, "--ranks takes 1 to %d", GW_THREADS_MAX_RANKS)
                   : GW_CLI_GO_ON;
    }
    if (!isnan(v->link) || !isnan(v->latency) ||
        (v->ranks != UINT32_MAX && v->ranks != engine->comm->ranks)) {
        return gw_cli_misuse(&PAGE, "mpirun has started %u ranks, on links that are real",
                             engine->comm->ranks);
    }
    return GW_CLI_GO_ON;
}

static int check(const gw_cli_engine *engine, const gw_cli_args *args, const values *v)
{
    if (args->n_words != 0) {
        return gw_cli_misuse(&PAGE, "what is '%s'?", args->words[0]);
    }
    if (given(v->steps) && given(v->epochs)) {
        return gw_cli_misuse(&PAGE, "--steps and --epochs say the same thing: give one");
    }
    if (v->steps == 0 || v->epochs == 0) {
        return gw_cli_misuse(&PAGE, "a run has at least one step");
    }
    if (v->spec && v->compare.count > 0) {
        return gw_cli_misuse(&PAGE, "-c is one spec and --compare several: give one of them");
    }
    if (v->plan && (v->spec || v->compare.count > 0 || v->route || v->adapt)) {
        return gw_cli_misuse(&PAGE, "--plan says codec and route of every tensor: -c, --compare, "
                                    "--route and --adapt are not for it");
    }
    if ((v->profile || v->trace) && (v->compare.count > 0 || (given(v->seeds) && v->seeds > 1))) {
        return gw_cli_misuse(&PAGE, "%s is of one run: --compare and --seeds are not for it",
                             v->profile ? "--profile" : "--trace");
    }
    if (v->out && v->resume) {
        return gw_cli_misuse(&PAGE, "--resume goes on in its own folder: --out is not for it");
    }
    if (v->missing &&
        (!v->resume || (strcmp(v->missing, "drop") != 0 && strcmp(v->missing, "error") != 0))) {
        return gw_cli_misuse(&PAGE, "--missing is of --resume, and takes error or drop");
    }
    if (v->seeds == 0 || (given(v->seeds) && v->seeds > 1000)) {
        return gw_cli_misuse(&PAGE, "--seeds takes 1 to 1000");
    }
    if (given(v->seed) && v->seed > (uint64_t)1 << 52) {
        return gw_cli_misuse(&PAGE, "--seed takes 0 to 2^52");
    }
    return check_engine(engine, v);
}

int gw_cli_train_options_read(const gw_cli_engine *engine, int argc, char **argv, gw_cli_args *args,
                              gw_cli_train_options *out)
{
    const double none = (double)NAN;
    *out = (values){.batch = UINT64_MAX,
                    .steps = UINT64_MAX,
                    .epochs = UINT64_MAX,
                    .seed = UINT64_MAX,
                    .seeds = UINT64_MAX,
                    .warmup = UINT64_MAX,
                    .every = UINT64_MAX,
                    .checkpoint = UINT64_MAX,
                    .sample = UINT64_MAX,
                    .period = UINT64_MAX,
                    .alpha = none,
                    .ranks = UINT32_MAX,
                    .ranks_per_node = UINT32_MAX,
                    .link = none,
                    .latency = none,
                    .rate = none,
                    .momentum = none,
                    .decay = none};
    int status = gw_cli_parse(&PAGE, argc, argv, args, out);
    if (status == GW_CLI_GO_ON) {
        status = check(engine, args, out);
    }
    if (status == GW_CLI_GO_ON) {
        status = read_target(out);
    }
    if (status == GW_CLI_GO_ON) {
        status = compose_adapt(out);
    }
    if (status == GW_CLI_GO_ON) {
        status = split_specs(out);
    }
    out->many = out->compare.count > 0 || (given(out->seeds) && out->seeds > 1);
    out->seeds = given(out->seeds) ? out->seeds : 1;
    return status;
}

void gw_cli_train_options_free(gw_cli_train_options *options)
{
    gw_cli_texts_free(&options->compare);
    free(options->specs);
    free(options->spec_words);
}

/* ---- a run's config ---- */

/* What suits a model. A rate of NaN: nobody has found one yet. */
typedef struct suit {
    const char *model, *optimiser;
    double sgd_rate, adam_rate;
    uint64_t epochs;
} suit;
static const suit SUITS[] = {{"cnn", "sgd", 0.08, 0.003, 4},
                             {"mlp", "sgd", 0.08, 0.003, 4},
                             {"lstm", "adam", (double)NAN, 0.005, 3}};

static const suit *suit_of(const char *name)
{
    for (size_t i = 1; i < sizeof SUITS / sizeof SUITS[0]; i++) {
        if (strcmp(SUITS[i].model, name) == 0) {
            return &SUITS[i];
        }
    }
    return &SUITS[0];
}

static const char *text_or(const char *text, const char *other)
{
    return text ? text : other;
}

static uint64_t count_or(uint64_t value, uint64_t other)
{
    return given(value) ? value : other;
}

static double number_or(double value, double other)
{
    return isnan(value) ? other : value;
}

static gw_cli_run_config suited(const char *name, const char *chosen)
{
    const suit *s = suit_of(name);
    const char *kind = text_or(chosen, s->optimiser);
    const bool adam = strcmp(kind, "adam") == 0;
    return (gw_cli_run_config){.model = name,
                               .spec = "dense",
                               .route = "default",
                               .optimiser = kind,
                               .schedule = "cosine",
                               .data = is_text_model(name) ? "build/data/kjv.txt" : FASHION_MNIST,
                               .ranks = 4,
                               .ranks_per_node = 1,
                               .batch = 32,
                               .seed = 1,
                               .fuse_below = 2048,
                               .rate = adam ? s->adam_rate : s->sgd_rate,
                               .momentum = adam ? 0 : 0.9,
                               .decay = adam ? 0 : 5e-4};
}

gw_cli_run_config gw_cli_train_config(const gw_cli_train_options *o, const gw_cli_engine *engine,
                                      const gw_cli_run_config *base)
{
    const char *name = text_or(o->model, base ? base->model : "cnn");
    gw_cli_run_config c = base ? *base : suited(name, o->optimiser);
    c.model = name;
    c.engine = engine->name;
    c.spec = text_or(o->spec, c.spec);
    c.route = text_or(o->route, c.route);
    c.plan = text_or(o->plan, c.plan);
    if (c.plan) { /* which says how tensors go together */
        c.fuse_below = 0;
    }
    c.optimiser = text_or(o->optimiser, c.optimiser);
    c.schedule = text_or(o->schedule, c.schedule);
    c.data = text_or(is_text_model(name) ? o->text : o->images, c.data);
    c.batch = count_or(o->batch, c.batch);
    c.seed = count_or(o->seed, c.seed);
    c.link = number_or(o->link, c.link);
    c.latency = number_or(o->latency, c.latency);
    c.rate = number_or(o->rate, c.rate);
    c.momentum = number_or(o->momentum, c.momentum);
    c.decay = number_or(o->decay, c.decay);
    if (engine->comm) {
        c.ranks = engine->comm->ranks;
        c.ranks_per_node = engine->ranks_per_node;
    } else {
        c.ranks = o->ranks != UINT32_MAX ? o->ranks : c.ranks;
    }
    c.ranks_per_node = o->ranks_per_node != UINT32_MAX ? o->ranks_per_node : c.ranks_per_node;
    return c;
}

gw_status gw_cli_train_steps(const gw_cli_train_options *o, const gw_cli_run_config *base,
                             const dataset *data, gw_cli_run_config *config, gw_why *why)
{
    const uint64_t epoch = data->train / (config->batch * config->ranks);
    if (epoch == 0) {
        return gw_cli_train_fail(why, GW_ERR_RANGE,
                                 "%.80s: %zu examples do not fill one batch of %llu on each of "
                                 "%llu ranks",
                                 config->data, data->train, (unsigned long long)config->batch,
                                 (unsigned long long)config->ranks);
    }
    if (given(o->steps)) {
        config->steps = o->steps;
    } else if (given(o->epochs)) {
        config->steps = o->epochs * epoch;
    } else if (!base) {
        config->steps = suit_of(config->model)->epochs * epoch;
    }
    const uint64_t tenth = config->steps / 10;
    config->warmup = count_or(o->warmup, base ? base->warmup : tenth < 100 ? tenth : 100);
    return GW_OK;
}

static bool is_one_of(const char *word, const char *const *words)
{
    for (; *words; words++) {
        if (strcmp(word, *words) == 0) {
            return true;
        }
    }
    return false;
}

static gw_status check_words(const gw_cli_run_config *c, gw_why *why)
{
    static const char *const MODELS[] = {"mlp", "cnn", "lstm", NULL};
    static const char *const OPTIMISERS[] = {"sgd", "adam", NULL};
    static const char *const SCHEDULES[] = {"constant", "cosine", "step", "spike", NULL};
    if (!is_one_of(c->model, MODELS)) {
        return gw_cli_train_fail(why, GW_ERR_UNKNOWN, "no model '%.40s': there are mlp, cnn, lstm",
                                 c->model);
    }
    if (!is_one_of(c->optimiser, OPTIMISERS)) {
        return gw_cli_train_fail(why, GW_ERR_UNKNOWN, "no optimiser '%.40s': there are sgd, adam",
                                 c->optimiser);
    }
    if (!is_one_of(c->schedule, SCHEDULES)) {
        return gw_cli_train_fail(why, GW_ERR_UNKNOWN,
                                 "no schedule '%.40s': there are constant, cosine, step, spike",
                                 c->schedule);
    }
    return GW_OK;
}

gw_status gw_cli_train_check(const gw_cli_run_config *c, gw_why *why)
{
    const rank_config trained = gw_cli_rank_config(c, 0);
    const param any = {.kind = PARAM_LINEAR, .dims = {64, 64}, .n_dims = 2, .count = 4096};
    planned plan;
    gw_status status = check_words(c, why);
    if (status != GW_OK) {
        return status;
    }
    if (c->batch == 0 || c->batch > 1 << 20 || c->steps == 0 || c->steps > 1U << 30) {
        return gw_cli_train_fail(why, GW_ERR_RANGE,
                                 "a batch has 1 to 2^20 examples, a run 1 to 2^30 steps");
    }
    if (isnan(c->rate)) {
        return gw_cli_train_fail(why, GW_ERR_RANGE, "%s with %s has no usual --rate: give one",
                                 c->model, c->optimiser);
    }
    if (!(c->rate > 0) || !(c->momentum < 1)) {
        return gw_cli_train_fail(why, GW_ERR_RANGE, "--rate is above 0, --momentum below 1");
    }
    if (c->plan) {
        return GW_OK; /* its own file was read strictly */
    }
    status = plan_param(&trained.plan, &any, &plan, why);
    if (status != GW_OK) {
        gw_why words = *why;
        return gw_cli_train_fail(why, status, "'%.60s': %.180s", c->spec, words.text);
    }
    if (plan.compressed && gw_route_is_hierarchical(&plan.route) && c->ranks_per_node != 0 &&
        c->ranks % c->ranks_per_node != 0) {
        return gw_cli_train_fail(why, GW_ERR_RANGE,
                                 "route '%.60s' needs nodes with equally many ranks", c->route);
    }
    return GW_OK;
}

gw_status gw_cli_train_unused(const gw_cli_train_options *o, const gw_cli_run_config *config,
                              gw_why *why)
{
    if (is_text_model(config->model) ? o->images : o->text) {
        return gw_cli_train_fail(why, GW_ERR_ARG, "%s does not read %s", config->model,
                                 o->images ? "--images" : "--text");
    }
    if (config->plan && (o->spec || o->route)) {
        return gw_cli_train_fail(why, GW_ERR_ARG,
                                 "the run has a plan: -c and --route are not for it");
    }
    if (!isnan(o->momentum) && strcmp(config->optimiser, "adam") == 0) {
        return gw_cli_train_fail(why, GW_ERR_ARG, "--momentum is sgd's; adam has its own");
    }
    if (o->route && o->compare.count == 0 && strcmp(config->spec, "dense") == 0) {
        return gw_cli_train_fail(why, GW_ERR_ARG, "--route needs a codec, -c");
    }
    return GW_OK;
}

gw_cli_pace gw_cli_train_pace(const gw_cli_train_options *o, const gw_cli_pace *base,
                              uint64_t steps)
{
    /* a test takes as long as some 25 steps */
    const uint64_t tenth = steps >= 500 ? steps / 10 : 50, twentieth = steps >= 20 ? steps / 20 : 1;
    const gw_cli_pace usual =
        base ? *base : (gw_cli_pace){.every = tenth, .checkpoint = tenth, .sample = twentieth};
    return (gw_cli_pace){.every = count_or(o->every, usual.every),
                         .checkpoint = count_or(o->checkpoint, usual.checkpoint),
                         .sample = count_or(o->sample, usual.sample)};
}
