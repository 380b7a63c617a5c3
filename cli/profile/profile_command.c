/* `gradwire profile`: measures, checks that it can be believed, writes gradwire.cluster/1. */
#include "cli/profile/profile.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <gradwire/gradwire.h>
#include <gradwire/threads.h>

#include "cli/files/files.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/say.h"
#include "files/cluster_file.h"

typedef struct values {
    const char *out, *name;
    gw_cli_texts specs;
    uint32_t ranks, ranks_per_node, nodes;
    double link, latency;
    uint64_t most;
    bool force;
    const char *device, *cuda, *cluster;
} values;

static const gw_cli_option OPTIONS[] = {
    {"output", 'o', GW_CLI_TEXT, offsetof(values, out), "FILE",
     "the cluster file (gradwire.cluster/1); - is standard output"},
    {"codec", 'c', GW_CLI_TEXTS, offsetof(values, specs), "SPEC",
     "a codec and its settings; again for more (one of each codec)"},
    {"name", 0, GW_CLI_TEXT, offsetof(values, name), "NAME", "of the cluster (measured)"},
    {"elements", 'n', GW_CLI_SIZE, offsetof(values, most), "N",
     "of the largest tensor (64Mi; at most 4Mi on the cpu)"},
    {"ranks", 0, GW_CLI_U32, offsetof(values, ranks), "P", "ranks, threads of this process (1)"},
    {"ranks-per-node", 0, GW_CLI_U32, offsetof(values, ranks_per_node), "K",
     "ranks of a node, which share its link (1)"},
    {"link", 0, GW_CLI_RATE, offsetof(values, link), "RATE",
     "of each node, each way, with --ranks: 1gbit, 200mbit; 0 no limit (0)"},
    {"latency", 0, GW_CLI_TIME, offsetof(values, latency), "T", "of that link: 1ms, 50us (0)"},
    {"device", 0, GW_CLI_TEXT, offsetof(values, device), "D",
     "cpu or cuda (cpu); cuda: a GPU, and the cpu beside it"},
    {"cuda", 0, GW_CLI_TEXT, offsetof(values, cuda), "FILE",
     "libgradwire_cuda (where the system looks)"},
    {"cluster", 0, GW_CLI_TEXT, offsetof(values, cluster), "FILE",
     "cuda: whose nodes and links to take, since one machine has none"},
    {"nodes", 0, GW_CLI_U32, offsetof(values, nodes), "N",
     "cuda: so many nodes; with --ranks-per-node, --link, --latency said, not measured"},
    {"force", 0, GW_CLI_FLAG, offsetof(values, force), NULL,
     "write the file though measurements are noisy"},
};

static const gw_cli_page PAGE = {
    .command = "profile",
    .usage = "profile -o CLUSTER.json [-c SPEC]... [options]",
    .about =
        "Measures what codecs take on this machine, over sizes, and with several ranks (--ranks,\n"
        "threads on a virtual link; or gradwire-mpi under mpirun, on real ones) what collectives\n"
        "take: a cluster file for `gradwire plan` and `advise`. All ranks measure at once, so "
        "that\n"
        "cores they share are shared here too. A measurement that varies by more than 25 %\n"
        "between its quarters, three times over, is refused. With --device cuda also what codecs\n"
        "take on a GPU and what copies to and from it take; nodes and links of its cluster are "
        "then\n"
        "those of --cluster, or said with --nodes, --ranks-per-node, --link and --latency.",
    .example = "  gradwire profile -o this.json -c natural:bits=8\n"
               "  gradwire profile --device cuda --nodes 8 --ranks-per-node 8 --link 100gbit -o "
               "gpus.json\n"
               "  mpirun -n 4 gradwire-mpi profile -o cluster.json && gradwire plan job.json \\\n"
               "      --cluster cluster.json -c natural:bits=8 -o plan.json",
    .options = OPTIONS,
    .n_options = sizeof OPTIONS / sizeof OPTIONS[0],
};

/* Those of a build that lacks some are left out. */
static const char *const USUAL[] = {"cast:to=bf16", "natural:bits=8",    "dither:bits=4",
                                    "sign",         "topk:density=0.01", "randk:density=0.01",
                                    "adacomp"};
enum { MOST_SPECS = 64, LEAST_ELEMENTS = 1024 };
static const uint64_t MOST_ELEMENTS = 64 << 20, MOST_ON_CPU = 4 << 20;

/* What one rank does and finds. */
typedef struct seat {
    const gw_cli_engine *engine;
    const values *values;
    const char *specs[MOST_SPECS];
    size_t n_specs;
    gw_comm *comm; /* NULL: alone */
    bool said;     /* why it failed */
    uint32_t ranks_per_node;
    gw_cli_meter meter;
    bool on_gpu;
    json_t *given, *given_sources; /* of a cluster that is not measured; else NULL */
    json_t *cluster;
    gw_status status;
    gw_why why;
    pthread_t thread;
} seat;

/* ---- the file ---- */

static json_t *link_json(const gw_cli_link_fit *l)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f}", "latency_us", 1e6 * l->latency, "gbit_per_s",
                     8e-9 * l->rate, "spread", l->spread < 10 ? l->spread : 10, "cpu_share",
                     l->cpu_share, "busy_us", 1e6 * l->busy);
}

/* A copy goes one of both ways; whoever waits does not know which. */
static json_t *slower_json(const gw_cli_link_fit ways[2])
{
    return json_pack("{s:f, s:f, s:f}", "latency_us", 1e6 * fmax(ways[0].latency, ways[1].latency),
                     "gbit_per_s", 8e-9 * fmin(ways[0].rate, ways[1].rate), "spread",
                     fmin(fmax(ways[0].spread, ways[1].spread), 10));
}

static size_t most_on_cpu(const seat *s)
{
    return (size_t)(s->values->most < MOST_ON_CPU ? s->values->most : MOST_ON_CPU);
}

static void add_source(json_t *sources, const char *what, const char *how)
{
    (void)json_array_append_new(sources, json_pack("{s:s, s:s}", "what", what, "how", how));
}

static void describe_measures(const seat *s, const gw_cli_link_fit copies[2], json_t *sources)
{
    char text[256];
    (void)snprintf(text, sizeof text, "measured: %s, median of up to %d samples%s",
                   s->given ? "one rank alone" : "all ranks coding at once", GW_CLI_SAMPLES,
                   s->given ? "" : " of the slowest");
    add_source(sources, s->on_gpu ? "codecs on the cpu" : "codecs", text);
    if (s->on_gpu) {
        (void)snprintf(
            text, sizeof text,
            "measured: by events around repeats, launches included, median of up to %d samples",
            GW_CLI_SAMPLES);
        add_source(sources, "codecs on the gpu", text);
        (void)snprintf(
            text, sizeof text,
            "measured: pinned memory, the slower way: %.4g Gbit/s to the device, %.4g from it; "
            "a copy that is waited for %.3g and %.3g us",
            8e-9 * copies[0].rate, 8e-9 * copies[1].rate, 1e6 * copies[0].latency,
            1e6 * copies[1].latency);
        add_source(sources, "cpu_workers", "a rank codes on one thread beside its GPU");
    } else {
        (void)snprintf(text, sizeof text, "measured: memcpy of %zu KiB", most_on_cpu(s) / 256);
    }
    add_source(sources, "copy", text);
    if (s->comm) {
        add_source(sources, "collectives", "measured, of the slowest rank, nothing beside");
        add_source(sources, "intra, inter", "fitted to the all-to-all of that level");
    }
}

static void describe(seat *s, const gw_cli_link_fit copies[2])
{
    char text[256], date[32];
    const time_t now = time(NULL);
    struct tm utc;
    (void)strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    (void)snprintf(text, sizeof text, "gradwire %s profile, %s, %u ranks%s", gw_version_string(),
                   s->comm ? s->engine->name : "alone", s->comm ? s->comm->ranks : 1,
                   s->on_gpu ? ", CUDA" : "");
    (void)json_object_set_new(s->cluster, "measured_by", json_string(text));
    (void)json_object_set_new(s->cluster, "measured_at", json_string(date));
    json_t *sources = json_array();
    describe_measures(s, copies, sources);
    (void)json_array_extend(sources, s->given_sources);
    if (s->meter.noisy > 0) {
        (void)snprintf(
            text, sizeof text,
            "%u of %u vary by more than %.0f %%, the worst by %.0f "
            "%%: %.80s%s",
            s->meter.noisy, s->meter.measured, 100 * GW_CLI_MOST_SPREAD, 100 * s->meter.worst,
            s->meter.worst_of,
            gw_cli_meter_verdict(&s->meter, &s->why) == GW_OK ? "" : "; written with --force");
        add_source(sources, "noise", text);
    }
    (void)json_object_set_new(s->cluster, "sources", sources);
}

/* ---- one rank ---- */

/* A rank's device is its number in its node. */
static gw_status measure_gpu(seat *s, json_t *codecs, gw_cli_link_fit copies[2])
{
    gw_cuda *cuda = NULL;
    const uint32_t rank = s->comm ? s->comm->rank : 0;
    gw_status status = gw_cuda_open(s->values->cuda, &cuda, &s->why);
    if (status == GW_OK) {
        const gw_cuda_place at = {cuda, (int)(rank % s->ranks_per_node)};
        status = gw_cli_profile_cuda(&s->meter, at, s->specs, s->n_specs, (size_t)s->values->most,
                                     codecs, copies, &s->why);
    }
    gw_cuda_close(cuda);
    return status;
}

static gw_status measure_parts(seat *s, json_t *codecs, json_t *collectives, uint32_t *workers,
                               gw_cli_link_fit *intra, gw_cli_link_fit *inter,
                               gw_cli_link_fit copies[2])
{
    gw_status status = GW_OK;
    if (s->on_gpu) { /* first, since it may be missing */
        status = measure_gpu(s, codecs, copies);
    }
    if (status == GW_OK) {
        status =
            gw_cli_profile_links(&s->meter, s->ranks_per_node, collectives, intra, inter, &s->why);
    }
    if (status == GW_OK && !s->on_gpu) {
        status = gw_cli_profile_workers(&s->meter, workers, &s->why);
    }
    if (status == GW_OK) {
        status = gw_cli_profile_codecs(&s->meter, s->specs, s->n_specs, most_on_cpu(s), codecs,
                                       s->on_gpu ? NULL : &copies[0].rate, &s->why);
    }
    return status;
}

static gw_status measure(seat *s, json_t *codecs, json_t *collectives)
{
    const uint32_t ranks = s->comm ? s->comm->ranks : 1;
    gw_cli_link_fit intra = {0}, inter = {0}, copies[2] = {{0}};
    uint32_t workers = 1;
    const gw_status status =
        measure_parts(s, codecs, collectives, &workers, &intra, &inter, copies);
    if (status != GW_OK) {
        return status;
    }
    const char *name = s->values->name ? s->values->name : "measured";
    s->cluster = json_pack("{s:s, s:s, s:I, s:I, s:s, s:I, s:o}", "format", "gradwire.cluster/1",
                           "name", name, "nodes", (json_int_t)(ranks / s->ranks_per_node),
                           "ranks_per_node", (json_int_t)s->ranks_per_node, "device",
                           s->on_gpu ? "gpu" : "cpu", "cpu_workers", (json_int_t)workers, "copy",
                           s->on_gpu ? slower_json(copies) : link_json(&copies[0]));
    if (intra.rate > 0) {
        (void)json_object_set_new(s->cluster, "intra", link_json(&intra));
    }
    if (inter.rate > 0) {
        (void)json_object_set_new(s->cluster, "inter", link_json(&inter));
    }
    (void)json_object_set(s->cluster, "codecs", codecs);
    (void)json_object_set(s->cluster, "collectives", collectives);
    if (s->given) {
        (void)json_object_update(s->cluster, s->given);
    }
    describe(s, copies);
    return GW_OK;
}

static void *run_rank(void *arg)
{
    seat *s = arg;
    json_t *codecs = json_array(), *collectives = json_array();
    s->meter = (gw_cli_meter){.clock = gw_cli_meter_now, .comm = s->comm};
    s->status = measure(s, codecs, collectives);
    json_decref(codecs);
    json_decref(collectives);
    if (s->status != GW_OK && s->comm) {
        s->said = s->status != GW_ERR_PEER;
        if (s->said) { /* an abort may end this process */
            gw_cli_error("profile: rank %u: %s", s->comm->rank,
                         s->why.text[0] ? s->why.text : gw_status_string(s->status));
        }
        s->comm->table->abort(s->comm, s->why.text[0] ? s->why.text : "its profile failed");
    }
    if (s->status == GW_OK && !s->values->force) { /* the same on all ranks */
        s->status = gw_cli_meter_verdict(&s->meter, &s->why);
    }
    return NULL;
}

/* ---- all of them ---- */

/* Results are those of `first`, which is rank 0's seat. */
static gw_status run_on_threads(seat *first, const values *v, gw_why *why)
{
    const gw_threads_config config = {
        .ranks = v->ranks, .ranks_per_node = v->ranks_per_node, .far = {v->link, v->latency}};
    gw_threads *world = NULL;
    seat *seats = calloc(v->ranks, sizeof *seats);
    gw_status status = seats ? gw_threads_create(&config, &world, why) : GW_ERR_MEMORY;
    uint32_t begun = 0;
    for (uint32_t i = 0; i < v->ranks && status == GW_OK; i++) {
        seats[i] = *first;
        status = gw_threads_comm(world, i, &seats[i].comm);
    }
    while (status == GW_OK && begun < v->ranks &&
           pthread_create(&seats[begun].thread, NULL, run_rank, &seats[begun]) == 0) {
        begun++;
    }
    if (status == GW_OK && begun < v->ranks) {
        seats[0].comm->table->abort(seats[0].comm, "a rank could not be started");
        status = gw_cli_measure_fail(why, GW_ERR_SYSTEM, "no more threads");
    }
    for (uint32_t i = 0; i < begun; i++) {
        (void)pthread_join(seats[i].thread, NULL);
        if (i > 0) {
            json_decref(seats[i].cluster);
        }
    }
    if (begun > 0) {
        *first = seats[0];
        first->comm = NULL;
    }
    gw_threads_destroy(world);
    free(seats);
    return status;
}

/* Read back as a plan would. */
static bool is_readable(const char *text)
{
    char why[256] = "";
    gw_cluster_file read;
    if (!gw_cluster_file_parse(text, strlen(text), &read, why, sizeof why)) {
        gw_cli_error("what was measured makes no cluster file: %s", why);
        return false;
    }
    gw_cluster_file_free(&read);
    return true;
}

static bool write_cluster(const seat *s, const gw_cli_args *args, const values *v)
{
    char *text = json_dumps(s->cluster, JSON_INDENT(1) | JSON_REAL_PRECISION(9));
    char newline[] = "\n";
    if (!text) {
        gw_cli_out_of_memory();
        return false;
    }
    const struct iovec pieces[2] = {{text, strlen(text)}, {newline, 1}};
    bool fine = is_readable(text) && gw_cli_file_write(v->out, pieces, 2);
    free(text);
    if (fine && args->json) {
        fine = gw_cli_json_print(json_incref(s->cluster));
    } else if (fine) {
        gw_cli_result(args->talk, v->out, "%s: %u measurements, the widest spread %.0f %%: %s",
                      v->out, s->meter.measured, 100 * s->meter.worst, s->meter.worst_of);
    }
    return fine;
}

static int run(const gw_cli_engine *engine, const gw_cli_args *args, const values *v, seat *s)
{
    gw_why why = {""};
    const bool first = !engine->comm || engine->comm->rank == 0;
    gw_status status = GW_OK;
    if (!engine->comm && v->ranks > 1) {
        status = run_on_threads(s, v, &why);
    } else {
        s->comm = engine->comm;
        (void)run_rank(s);
    }
    if (status == GW_OK && s->status != GW_OK) {
        status = s->status;
        why = s->why;
    }
    if (status != GW_OK && first && !s->said) {
        gw_cli_error("profile: %s", why.text[0] ? why.text : gw_status_string(status));
    }
    bool fine = status == GW_OK;
    if (fine && first) {
        fine = write_cluster(s, args, v);
    }
    json_decref(s->cluster);
    return fine ? GW_CLI_DONE : GW_CLI_FAILED;
}

/* ---- what was asked for ---- */

static int take_specs(const values *v, seat *s)
{
    gw_why why = {""};
    gw_params params;
    if (v->specs.count > MOST_SPECS) {
        return gw_cli_misuse(&PAGE, "more than %d specs", MOST_SPECS);
    }
    for (size_t i = 0; i < v->specs.count; i++) {
        if (gw_params_parse(&params, v->specs.items[i], &why) != GW_OK) {
            return gw_cli_misuse(&PAGE, "'%s': %s", v->specs.items[i], why.text);
        }
        if (gw_params_flags(&params) & GW_CODEC_ROUNDS) {
            return gw_cli_misuse(&PAGE, "%s goes in rounds, which no cluster file describes",
                                 v->specs.items[i]);
        }
        s->specs[s->n_specs++] = v->specs.items[i];
    }
    for (size_t i = 0; v->specs.count == 0 && i < sizeof USUAL / sizeof USUAL[0]; i++) {
        if (gw_params_parse(&params, USUAL[i], NULL) == GW_OK) {
            s->specs[s->n_specs++] = USUAL[i];
        }
    }
    return GW_CLI_GO_ON;
}

/* With a GPU and one rank nodes and links are said. */
static int check_device(bool alone, const values *v, seat *s)
{
    s->on_gpu = v->device && strcmp(v->device, "cuda") == 0;
    if (v->device && !s->on_gpu && strcmp(v->device, "cpu") != 0) {
        return gw_cli_misuse(&PAGE, "--device %s: cpu or cuda", v->device);
    }
    if (!s->on_gpu && (v->cuda || v->cluster || v->nodes)) {
        return gw_cli_misuse(&PAGE, "--cuda, --cluster and --nodes are of --device cuda");
    }
    if (!alone && (v->cluster || v->nodes)) {
        return gw_cli_misuse(&PAGE, "links between ranks are measured: no --cluster, no --nodes");
    }
    if (alone && !s->on_gpu && (v->link > 0 || v->latency > 0)) {
        return gw_cli_misuse(&PAGE, "--link and --latency need --ranks, or --device cuda");
    }
    if (alone && s->on_gpu && !v->cluster && (v->nodes > 1) != (v->link > 0)) {
        return gw_cli_misuse(&PAGE, "several --nodes need a --link, and a --link --nodes");
    }
    if (alone && s->on_gpu && v->latency > 0 && !v->cluster && v->link <= 0) {
        return gw_cli_misuse(&PAGE, "--latency needs --link");
    }
    if (v->most < LEAST_ELEMENTS || v->most > MOST_ELEMENTS) {
        return gw_cli_misuse(&PAGE, "--elements takes 1Ki to 64Mi");
    }
    return GW_CLI_GO_ON;
}

static int check_ranks(const gw_cli_engine *engine, values *v, seat *s)
{
    if (engine->comm && (v->ranks != 0 || v->link > 0 || v->latency > 0)) {
        return gw_cli_misuse(&PAGE, "mpirun has started %u ranks, on links that are real",
                             engine->comm->ranks);
    }
    if (v->ranks > GW_THREADS_MAX_RANKS) {
        return gw_cli_misuse(&PAGE, "--ranks takes 1 to %d", GW_THREADS_MAX_RANKS);
    }
    const uint32_t found = engine->comm ? engine->ranks_per_node : 1;
    v->ranks = engine->comm ? engine->comm->ranks : v->ranks > 0 ? v->ranks : 1;
    v->ranks_per_node = v->ranks_per_node > 0 ? v->ranks_per_node : found;
    if (v->ranks_per_node == 0 || v->ranks % v->ranks_per_node != 0) {
        return gw_cli_misuse(&PAGE, "nodes need equally many ranks: give --ranks-per-node");
    }
    s->ranks_per_node = v->ranks_per_node;
    return GW_CLI_GO_ON;
}

static int check(const gw_cli_engine *engine, const gw_cli_args *args, values *v, seat *s)
{
    const bool alone = !engine->comm && v->ranks < 2;
    if (args->n_words != 0) {
        return gw_cli_misuse(&PAGE, "what is '%s'?", args->words[0]);
    }
    if (!v->out) {
        return gw_cli_misuse(&PAGE, "-o FILE is missing");
    }
    int status = gw_cli_check_stream(&PAGE, args, v->out, false);
    status = status == GW_CLI_GO_ON ? check_device(alone, v, s) : status;
    if (status == GW_CLI_GO_ON && alone && s->on_gpu) {
        const gw_cli_said said = {v->cluster, v->nodes, v->ranks_per_node, v->link, v->latency};
        v->ranks = 1;
        s->given = json_object();
        s->given_sources = json_array();
        status = gw_cli_profile_said(&said, s->given, s->given_sources) ? status : GW_CLI_FAILED;
        if (v->name) {
            (void)json_object_del(s->given, "name");
        }
    } else if (status == GW_CLI_GO_ON) {
        status = check_ranks(engine, v, s);
    }
    return status == GW_CLI_GO_ON ? take_specs(v, s) : status;
}

int gw_cli_profile_on(const gw_cli_engine *engine, int argc, char **argv)
{
    values v = {.most = MOST_ELEMENTS};
    gw_cli_args args;
    seat s = {.engine = engine, .values = &v, .ranks_per_node = 1};
    int status = gw_cli_parse(&PAGE, argc, argv, &args, &v);
    if (status == GW_CLI_GO_ON) {
        status = check(engine, &args, &v, &s);
    }
    if (status == GW_CLI_GO_ON) {
        status = run(engine, &args, &v, &s);
    }
    json_decref(s.given);
    json_decref(s.given_sources);
    gw_cli_texts_free(&v.specs);
    return status;
}
