/* `gradwire train`: the runs that are asked for, one after the other, and what came of them. */
#include "cli/train/train.h"

#include <cblas.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <gradwire/threads.h>

#include "cli/json_out.h"
#include "cli/say.h"
#include "cli/train/train_agree.h"
#include "cli/train/train_compare.h"
#include "cli/train/train_files.h"
#include "cli/train/train_loop.h"
#include "cli/train/train_options.h"
#include "trainer/data_images.h"
#include "trainer/data_text.h"

enum { WINDOW = 64 /* characters that the lstm sees at once */, INTERRUPTED = 130 };

typedef struct session {
    const gw_cli_engine *engine;
    gw_cli_args args;
    gw_cli_train_options options;
    dataset *data;
    gw_cli_train_plan plan;
    char folder[GW_CLI_RUN_PATH]; /* of the run, or of the runs' folders */
    gw_cli_run *runs;
    size_t n_runs;
    bool reported; /* a failure, by the run that failed */
} session;

static bool is_first(const session *s)
{
    return !s->engine->comm || s->engine->comm->rank == 0;
}

/* Says what went wrong: by rank 0 and by the rank that found it. */
static int failed(const session *s, gw_status status, const gw_why *why)
{
    static const gw_comm alone = {.ranks = 1};
    if (!s->reported) {
        gw_cli_train_report(s->engine->comm ? s->engine->comm : &alone, status, why);
    }
    return GW_CLI_FAILED;
}

/* Failures of one process are all processes'. */
static gw_status agree(const session *s, gw_status own, gw_why *why)
{
    return s->engine->comm ? gw_cli_train_agree(s->engine->comm, own, why) : own;
}

/* ---- signals ---- */

static atomic_int stop_asked;

static void ask_to_stop(int number)
{
    (void)number;
    atomic_store(&stop_asked, 1);
}

/* The first asks, the second kills. A file that grows too large is an error like others. */
static void catch_signals(void)
{
    struct sigaction action = {.sa_handler = ask_to_stop,
                               .sa_flags = SA_RESTART | (int)SA_RESETHAND};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    (void)signal(SIGXFSZ, SIG_IGN);
}

/* ---- folders ---- */

/* Characters that every file system and shell likes. */
static void add_name(char *to, size_t size, const char *text)
{
    static const char FINE[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.=_-";
    size_t at = strlen(to);
    for (; *text && at + 1 < size; text++, at++) {
        to[at] = strchr(FINE, *text) ? *text : '_';
    }
    to[at] = '\0';
}

static void usual_folder(const session *s, char *folder, size_t size)
{
    char name[128] = "", date[32];
    const time_t now = time(NULL);
    struct tm local;
    (void)strftime(date, sizeof date, "%Y%m%d-%H%M%S", localtime_r(&now, &local));
    add_name(name, sizeof name, s->options.model ? s->options.model : "cnn");
    add_name(name, sizeof name, "-");
    add_name(name, sizeof name,
             s->options.plan                ? s->plan.spec
             : s->options.compare.count > 0 ? "compare"
             : s->options.spec              ? s->options.spec
                                            : "dense");
    (void)snprintf(folder, size, "runs/%s-%s", date, name);
}

static gw_status choose_folder(session *s, gw_why *why)
{
    const char *asked = s->options.resume ? s->options.resume : s->options.out;
    gw_status status = GW_OK;
    if (asked && strlen(asked) >= sizeof s->folder - 64) {
        return gw_cli_train_fail(why, GW_ERR_RANGE, "%.60s...: the path is too long", asked);
    }
    if (asked) {
        (void)snprintf(s->folder, sizeof s->folder, "%s", asked);
    } else {
        usual_folder(s, s->folder, sizeof s->folder);
    }
    if (s->engine->comm) { /* the date may be another elsewhere */
        status = gw_cli_train_tell(s->engine->comm, s->folder, sizeof s->folder, why);
    }
    if (status != GW_OK || s->options.resume || !is_first(s)) {
        return status;
    }
    if (gw_cli_folder_has_entries(s->folder)) {
        return gw_cli_train_fail(why, GW_ERR_STATE,
                                 "%.150s is there and not empty; --resume goes on with a run",
                                 s->folder);
    }
    return gw_cli_folder_make(s->folder, why);
}

/* That this rank sees what rank 0 wrote: a file of a name that no old folder has. */
static gw_status check_seen(const session *s, const char *folder, gw_why *why)
{
    gw_comm *comm = s->engine->comm;
    char path[GW_CLI_RUN_PATH], name[64];
    uint64_t token = (uint64_t)time(NULL) << 20 ^ (uint64_t)getpid();
    gw_status status = gw_cli_train_tell(comm, &token, sizeof token, why);
    (void)snprintf(name, sizeof name, "seen-%llx.new", (unsigned long long)token);
    if (status == GW_OK) {
        status = gw_cli_path(path, sizeof path, folder, name, why);
    }
    if (status == GW_OK && comm->rank == 0) {
        status = gw_cli_file_save(path, "", 0, why);
    }
    status = gw_cli_train_agree(comm, status, why);
    if (status == GW_OK && access(path, F_OK) != 0) {
        status = gw_cli_train_fail(why, GW_ERR_SYSTEM,
                                   "rank %u does not see %.150s, which rank 0 made: all ranks "
                                   "need the same folder",
                                   comm->rank, folder);
    }
    status = gw_cli_train_agree(comm, status, why);
    if (comm->rank == 0) {
        (void)unlink(path);
    }
    return status;
}

/* ---- before a run ---- */

static gw_status open_data(session *s, const gw_cli_run_config *config, gw_why *why)
{
    return strcmp(config->model, "lstm") == 0 ? text_open(config->data, WINDOW, &s->data, why)
                                              : images_open(config->data, &s->data, why);
}

/* A run that is there already must be the one that is asked for. */
static gw_status check_same(const gw_cli_run *run, const gw_cli_run_config *asked, gw_why *why)
{
    char was[64], is[64];
    const gw_cli_field *field = gw_cli_record_differs(&GW_CLI_RUN_CONFIG, &run->config, asked);
    if (!field) {
        return GW_OK;
    }
    gw_cli_record_text(field, &run->config, was, sizeof was);
    gw_cli_record_text(field, asked, is, sizeof is);
    return gw_cli_train_fail(why, GW_ERR_DISAGREE,
                             "%.100s: a run goes on as it began: %s is %s there, not %s",
                             run->folder, field->key, was, is);
}

/* The run's folder, from which it goes on if it is there. */
static gw_status open_run(const session *s, gw_cli_run *run, const gw_cli_run_config *asked,
                          gw_cli_training *t, gw_why *why)
{
    char path[GW_CLI_RUN_PATH];
    gw_status status = gw_cli_path(path, sizeof path, run->folder, "run.json", why);
    if (status != GW_OK || !s->options.resume || access(path, F_OK) != 0) {
        const time_t now = time(NULL);
        struct tm utc;
        run->config = *asked;
        (void)strftime(run->started, sizeof run->started, "%Y-%m-%dT%H:%M:%SZ",
                       gmtime_r(&now, &utc));
        t->pace = gw_cli_train_pace(&s->options, NULL, asked->steps);
        return status == GW_OK && is_first(s) ? gw_cli_folder_make(run->folder, why) : status;
    }
    if (!run->read) {
        status = gw_cli_run_read(run, why);
    }
    if (status == GW_OK) {
        status = check_same(run, asked, why);
    }
    if (status == GW_OK) {
        status = gw_cli_checkpoint_newest(run->folder, &t->resumed, &t->first_step, why);
    }
    gw_cli_pace pace;
    if (status == GW_OK && t->resumed) {
        status = gw_cli_checkpoint_read(run->folder, t->first_step, &pace, NULL, 0, why);
    }
    if (status == GW_OK && (t->first_step > asked->steps || t->first_step > run->n_steps)) {
        status = gw_cli_train_fail(why, GW_ERR_CORRUPT,
                                   "%.120s: a checkpoint of %llu steps, and run.json knows fewer",
                                   run->folder, (unsigned long long)t->first_step);
    }
    t->pace = gw_cli_train_pace(&s->options, t->resumed ? &pace : NULL, asked->steps);
    return status;
}

/* ---- a run on ranks that are threads ---- */

typedef struct rank_thread {
    pthread_t thread;
    gw_cli_training *training;
    gw_comm *comm;
    gw_status status;
    gw_why why;
} rank_thread;

static void *run_rank(void *arg)
{
    rank_thread *r = arg;
    r->status = gw_cli_train_rank(r->training, r->comm, &r->why);
    r->comm->table->close(r->comm);
    return NULL;
}

/* Starts and joins; the first failure that is a rank's own. */
static gw_status join_ranks(rank_thread *ranks, uint32_t n, uint32_t begun, gw_why *why)
{
    gw_status status = GW_OK;
    if (begun < n) {
        ranks[0].comm->table->abort(ranks[0].comm, "a rank could not be started");
    }
    for (uint32_t i = 0; i < begun; i++) {
        (void)pthread_join(ranks[i].thread, NULL);
        if (ranks[i].status != GW_OK && (status == GW_OK || status == GW_ERR_PEER)) {
            status = ranks[i].status;
            *why = ranks[i].why;
        }
    }
    return begun < n ? gw_cli_train_fail(why, GW_ERR_SYSTEM, "no more threads") : status;
}

static gw_status run_on_threads(gw_cli_training *t, gw_why *why)
{
    const gw_cli_run_config *c = &t->run->config;
    const gw_threads_config config = {.ranks = (uint32_t)c->ranks,
                                      .ranks_per_node = (uint32_t)c->ranks_per_node,
                                      .far = {c->link, c->latency}};
    gw_threads *world = NULL;
    uint32_t begun = 0;
    rank_thread *ranks = calloc(config.ranks, sizeof *ranks);
    if (!ranks) {
        return gw_cli_train_fail(why, GW_ERR_MEMORY, "no memory for %u ranks", config.ranks);
    }
    gw_status status = gw_threads_create(&config, &world, why);
    for (uint32_t i = 0; i < config.ranks && status == GW_OK; i++) {
        ranks[i].training = t;
        status = gw_threads_comm(world, i, &ranks[i].comm);
    }
    if (status == GW_OK) {
        while (begun < config.ranks &&
               pthread_create(&ranks[begun].thread, NULL, run_rank, &ranks[begun]) == 0) {
            begun++;
        }
        status = join_ranks(ranks, config.ranks, begun, why);
    }
    gw_threads_destroy(world);
    free(ranks);
    return status;
}

/* ---- the runs ---- */

static void label(const session *s, size_t i, char text[160])
{
    if (s->n_runs > 1) {
        (void)snprintf(text, 160, "[%zu/%zu] %.50s, seed %llu: ", i + 1, s->n_runs,
                       s->runs[i].config.spec, (unsigned long long)s->runs[i].config.seed);
    }
}

static gw_status train_one(session *s, size_t i, const gw_cli_run_config *asked, gw_why *why)
{
    gw_cli_run *run = &s->runs[i];
    const bool on = s->args.talk >= GW_CLI_NORMAL && is_first(s);
    gw_cli_training t = {.run = run,
                         .data = s->data,
                         .progress = {.on = on, .terminal = on && isatty(STDERR_FILENO)},
                         .metrics = {.path = s->options.metrics},
                         .stop = &stop_asked,
                         .drop = s->options.missing && strcmp(s->options.missing, "drop") == 0,
                         .plan = run->config.plan ? &s->plan : NULL,
                         .profile = s->options.profile,
                         .trace = s->options.trace,
                         .nodes = s->options.ranks_per_node == UINT32_MAX ? s->engine->nodes : NULL,
                         .alone = s->engine->comm};
    gw_status status = agree(s, open_run(s, run, asked, &t, why), why);
    if (status == GW_OK && s->engine->comm) {
        status = check_seen(s, run->folder, why);
    }
    if (status != GW_OK) {
        return status;
    }
    if (t.first_step == asked->steps && strcmp(run->state, "finished") == 0) {
        gw_cli_note(s->args.talk, GW_CLI_NORMAL, "%s is finished", run->folder);
        return GW_OK;
    }
    gw_cli_run_cut(run, t.first_step);
    if (!is_first(s)) { /* rank 0 writes */
        gw_cli_run_drop(run);
    }
    run->state = "running";
    run->error = (gw_why){""};
    label(s, i, t.progress.label);
    if (t.first_step > 0 && on) {
        gw_cli_note(s->args.talk, GW_CLI_NORMAL, "%s goes on after step %llu", run->folder,
                    (unsigned long long)t.first_step);
    }
    if (!s->engine->comm) {
        return run_on_threads(&t, why);
    }
    status = gw_cli_train_rank(&t, s->engine->comm, why);
    s->reported = status != GW_OK;
    return status;
}

/* Folder of run i, beside its siblings or alone. */
static gw_status name_run(const session *s, gw_cli_run *run, const gw_cli_run_config *config,
                          gw_why *why)
{
    char name[256] = "", seed[32];
    if (!s->options.many) {
        (void)snprintf(run->folder, sizeof run->folder, "%s", s->folder);
        return GW_OK;
    }
    add_name(name, sizeof name - 32, config->spec);
    (void)snprintf(seed, sizeof seed, "-seed%llu", (unsigned long long)config->seed);
    add_name(name, sizeof name, seed);
    return gw_cli_path(run->folder, sizeof run->folder, s->folder, name, why);
}

static gw_cli_run_config config_of_run(const session *s, const gw_cli_run_config *common, size_t i)
{
    gw_cli_run_config config = *common;
    const char *spec = s->options.specs[i / s->options.seeds];
    config.spec = spec ? spec : config.spec;
    config.seed += i % s->options.seeds;
    return config;
}

static int train_all(session *s, const gw_cli_run_config *common)
{
    gw_why why = {""};
    gw_status status = GW_OK;
    bool interrupted = false;
    for (size_t i = 0; i < s->n_runs && status == GW_OK && !interrupted; i++) {
        const gw_cli_run_config config = config_of_run(s, common, i);
        status = name_run(s, &s->runs[i], &config, &why);
        if (status == GW_OK) {
            s->runs[i].config = s->runs[i].read ? s->runs[i].config : config;
            status = train_one(s, i, &config, &why);
        }
        interrupted = s->runs[i].state && strcmp(s->runs[i].state, "interrupted") == 0;
        if (status == GW_OK && s->engine->comm && s->n_runs > 1) { /* only rank 0 has the state */
            status = gw_cli_train_tell(s->engine->comm, &interrupted, sizeof interrupted, &why);
        }
    }
    if (status == GW_OK && s->engine->comm) {
        status = gw_cli_train_part(s->engine->comm, &why);
    }
    return status != GW_OK ? failed(s, status, &why) : interrupted ? INTERRUPTED : GW_CLI_DONE;
}

/* ---- what came of them ---- */

/* What happened is on the disk. A run that did not begin has nothing there. */
static bool read_back(gw_cli_run *run)
{
    gw_why why = {""};
    gw_cli_run whole = {.config = run->config};
    if (run->n_layers == 0) {
        return true;
    }
    memcpy(whole.folder, run->folder, sizeof whole.folder);
    if (gw_cli_run_read(&whole, &why) != GW_OK) {
        gw_cli_error("train: %s", why.text);
        gw_cli_run_free(&whole);
        return false;
    }
    gw_cli_run_free(run);
    *run = whole;
    return true;
}

static bool print_results(const session *s)
{
    for (size_t i = 0; i < s->n_runs; i++) {
        if (!read_back(&s->runs[i])) {
            return false;
        }
    }
    const gw_cli_comparison all = {s->runs, s->n_runs, s->options.target};
    if (s->args.json) {
        return gw_cli_json_print(s->options.many ? gw_cli_comparison_json(&all, s->folder)
                                                 : gw_cli_run_json(&s->runs[0]));
    }
    if (!gw_cli_comparison_print(&all)) {
        return false;
    }
    (void)printf("run folder: %s\n", s->folder);
    return true;
}

/* Of a single run that goes on: its config is what was not given. */
static gw_status read_base(session *s, const gw_cli_run_config **base, gw_why *why)
{
    *base = NULL;
    if (!s->options.resume || s->options.many) {
        return GW_OK;
    }
    (void)snprintf(s->runs[0].folder, sizeof s->runs[0].folder, "%s", s->options.resume);
    char path[GW_CLI_RUN_PATH];
    gw_status status = gw_cli_path(path, sizeof path, s->options.resume, "run.json", why);
    if (status == GW_OK && access(path, F_OK) != 0) {
        return gw_cli_train_fail(why, GW_ERR_STATE,
                                 "%.120s holds no run.json; a comparison goes on with the "
                                 "--compare and --seeds it began with",
                                 s->options.resume);
    }
    if (status == GW_OK) {
        status = gw_cli_run_read(&s->runs[0], why);
    }
    *base = &s->runs[0].config;
    return status;
}

static int check_runs(const session *s, const gw_cli_run_config *common)
{
    gw_why why = {""};
    for (size_t i = 0; i < s->n_runs; i += s->options.seeds) {
        const gw_cli_run_config config = config_of_run(s, common, i);
        if (gw_cli_train_check(&config, &why) != GW_OK) {
            return gw_cli_train_misuse(&why);
        }
    }
    if (gw_cli_train_unused(&s->options, common, &why) != GW_OK) {
        return gw_cli_train_misuse(&why);
    }
    if (!isnan(s->options.target) && s->options.target > 1 && strcmp(common->model, "lstm") != 0) {
        (void)gw_cli_train_fail(&why, GW_ERR_RANGE, "--target is an accuracy for %s: 0.9 or 90%%",
                                common->model);
        return gw_cli_train_misuse(&why);
    }
    return GW_CLI_GO_ON;
}

/* The plan's file, as the config names it; of a run that goes on it must be what it was. */
static gw_status read_plan(session *s, gw_cli_run_config *config, const gw_cli_run_config *base,
                           gw_why *why)
{
    if (!config->plan) {
        return GW_OK;
    }
    gw_status status = gw_cli_train_plan_load(config->plan, &s->plan, why);
    if (status != GW_OK) {
        return status;
    }
    if (base && strcmp(s->plan.checksum, base->plan_checksum ? base->plan_checksum : "none") != 0) {
        return gw_cli_train_fail(why, GW_ERR_DISAGREE,
                                 "%.100s: a run goes on as it began, and this is not the plan it "
                                 "began with",
                                 config->plan);
    }
    config->spec = s->plan.spec;
    config->route = "default";
    config->plan_checksum = s->plan.checksum;
    return gw_cli_train_plan_check(&s->plan, config, why);
}

static void note_plan(const session *s, const gw_cli_run_config *c)
{
    const gw_plan_file *p = s->plan.file;
    if (p && p->nodes != 0 && is_first(s) &&
        (c->ranks != (uint64_t)p->nodes * p->ranks_per_node ||
         c->ranks_per_node != p->ranks_per_node)) {
        gw_cli_note(s->args.talk, GW_CLI_NORMAL,
                    "the plan was made for %u nodes of %u ranks; here are %llu ranks, %llu a node",
                    p->nodes, p->ranks_per_node, (unsigned long long)c->ranks,
                    (unsigned long long)c->ranks_per_node);
    }
}

static int train(session *s)
{
    gw_why why = {""};
    const gw_cli_run_config *base = NULL;
    s->n_runs = s->options.n_specs * (size_t)s->options.seeds;
    s->runs = calloc(s->n_runs, sizeof *s->runs);
    if (!s->runs) {
        gw_cli_out_of_memory();
        return GW_CLI_FAILED;
    }
    gw_status status = agree(s, read_base(s, &base, &why), &why);
    if (status != GW_OK) {
        return failed(s, status, &why);
    }
    gw_cli_run_config common = gw_cli_train_config(&s->options, s->engine, base);
    common.steps = 1; /* not known before the data is */
    status = agree(s, read_plan(s, &common, base, &why), &why);
    if (status != GW_OK) {
        return failed(s, status, &why);
    }
    int code = check_runs(s, &common);
    if (code != GW_CLI_GO_ON) {
        return code;
    }
    common.steps = base ? base->steps : 0;
    status = open_data(s, &common, &why);
    if (status == GW_OK) {
        status = gw_cli_train_steps(&s->options, base, s->data, &common, &why);
    }
    status = agree(s, status, &why);
    if (status != GW_OK) {
        return failed(s, status, &why);
    }
    code = check_runs(s, &common);
    if (code != GW_CLI_GO_ON) {
        return code;
    }
    status = agree(s, choose_folder(s, &why), &why);
    if (status != GW_OK) {
        return failed(s, status, &why);
    }
    note_plan(s, &common);
    catch_signals();
    openblas_set_num_threads(1); /* ranks are threads already */
    code = train_all(s, &common);
    if (is_first(s) && !print_results(s)) {
        code = code == GW_CLI_DONE ? GW_CLI_FAILED : code;
    }
    return code;
}

int gw_cli_train_on(const gw_cli_engine *engine, int argc, char **argv)
{
    session s = {.engine = engine};
    int status = gw_cli_train_options_read(engine, argc, argv, &s.args, &s.options);
    if (status == GW_CLI_GO_ON) {
        status = train(&s);
    }
    for (size_t i = 0; i < s.n_runs && s.runs; i++) {
        gw_cli_run_free(&s.runs[i]);
    }
    free(s.runs);
    dataset_destroy(s.data);
    gw_cli_train_plan_free(&s.plan);
    gw_cli_train_options_free(&s.options);
    return status;
}
