/* `gradwire bench allreduce`: how long the mean over all ranks takes, compressed, beside the uncompressed one
 * and beside what the link allows. allreduce_race.c runs it; docs/bench.md says what is measured. */
#include "cli/bench/bench_allreduce.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/json_out.h"
#include "cli/measure/meter.h"
#include "cli/options.h"
#include "cli/say.h"
#include "cli/table.h"

enum { MAX_SPECS = GW_CLI_RACE_MAX - 2 }; /* beside the uncompressed route and the engine's own */

typedef struct values {
    gw_cli_texts specs, routes;
    uint64_t n, rounds, piece;
    uint32_t ranks, ranks_per_node, lanes;
    double link, latency, near_link;
} values;

static const gw_cli_option OPTIONS[] = {
    {"codec", 'c', GW_CLI_TEXTS, offsetof(values, specs), "SPEC",
     "codec and its settings; may be given several times"},
    {"route", 0, GW_CLI_TEXTS, offsetof(values, routes), "R",
     "name or steps, for all or one for each -c in turn (sra)"},
    {"elements", 'n', GW_CLI_SIZE, offsetof(values, n), "N", "fp32 elements (25Mi)"},
    {"ranks", 0, GW_CLI_U32, offsetof(values, ranks), "P", "ranks, threads of this process (4)"},
    {"ranks-per-node", 0, GW_CLI_U32, offsetof(values, ranks_per_node), "K",
     "ranks of a node, which share its link (1)"},
    {"link", 0, GW_CLI_RATE, offsetof(values, link), "RATE",
     "of each node, each way: 1gbit, 200mbit; 0 no limit (0)"},
    {"latency", 0, GW_CLI_TIME, offsetof(values, latency), "T", "of that link: 1ms, 50us (0)"},
    {"near-link", 0, GW_CLI_RATE, offsetof(values, near_link), "RATE",
     "between ranks of a node (0)"},
    {"rounds", 'r', GW_CLI_U64, offsetof(values, rounds), "R", "timed rounds, median taken (5)"},
    {"lanes", 0, GW_CLI_U32, offsetof(values, lanes), "L",
     "pieces under way at once, 0 to 16; 0 as usual (0)"},
    {"piece", 0, GW_CLI_SIZE, offsetof(values, piece), "N", "elements of a piece; 0 as usual (0)"},
};

static const gw_cli_page PAGE = {
    .command = "bench allreduce",
    .usage = "bench allreduce -c SPEC... [--route R]... [options]",
    .about =
        "Times the mean of a gradient over all ranks, compressed along a route, in turns with the\n"
        "uncompressed route. Ranks are threads joined by a virtual link; as gradwire-mpi under\n"
        "mpirun they are MPI processes, --link only says how fast the real link is, and the MPI\n"
        "library's own allreduce is timed too. Every result is checked: the same bits on all\n"
        "ranks, and no further from the exact sum than the codec allows. limit: bytes over "
        "--link;\n"
        "share: how much of that was reached. More: docs/bench.md.",
    .example = "  gradwire bench allreduce -c natural:bits=8 --link 1gbit --latency 50us\n"
               "  gradwire bench allreduce -c dither:bits=4 --route sra -c topk:density=0.01 \\\n"
               "      --route gather -n 4Mi --ranks 4 --link 200mbit --json",
    .options = OPTIONS,
    .n_options = sizeof OPTIONS / sizeof OPTIONS[0],
};

/* ---- what is asked for ---- */

static int add_racers(gw_cli_race *race, const values *v)
{
    gw_why why = {""};
    gw_cli_racer *racer = race->racers;
    racer->name = "dense";
    if (gw_route_parse(&racer->route, "dense", &why) != GW_OK) {
        return gw_cli_misuse(&PAGE, "%s", why.text);
    }
    racer++;
    if (race->engine->allreduce) {
        *racer++ = (gw_cli_racer){.name = race->engine->name, .engine = true};
    }
    for (size_t i = 0; i < v->specs.count; i++, racer++) {
        const char *route = v->routes.count == 0   ? NULL
                            : v->routes.count == 1 ? v->routes.items[0]
                                                   : v->routes.items[i];
        const gw_route_job where = {.ranks = race->ranks,
                                    .ranks_per_node = race->ranks_per_node,
                                    .nodes = race->nodes,
                                    .elements = 1,
                                    .params = &racer->params};
        gw_program program;
        racer->name = v->specs.items[i];
        if (gw_params_parse(&racer->params, racer->name, &why) != GW_OK) {
            return gw_cli_misuse(&PAGE, "'%s': %s", racer->name, why.text);
        }
        if (!route) {
            (void)gw_route_usual(&racer->params, &where, GW_DEVICE_CPU, &racer->route, &why);
            continue;
        }
        if (gw_route_parse(&racer->route, route, &why) != GW_OK) {
            return gw_cli_misuse(&PAGE, "route '%s': %s", route, why.text);
        }
        if (gw_route_fits(&racer->route, &racer->params, &why) != GW_OK) {
            return gw_cli_misuse(&PAGE, "%s along '%s': %s", racer->name, route, why.text);
        }
        if (gw_route_compile(&racer->route, &where, &program, &why) != GW_OK) {
            return gw_cli_misuse(&PAGE, "route '%s': %s", route, why.text);
        }
    }
    race->n_racers = (size_t)(racer - race->racers);
    return GW_CLI_GO_ON;
}

static int check(const gw_cli_engine *engine, const gw_cli_args *args, const values *v)
{
    if (args->n_words != 0) {
        return gw_cli_misuse(&PAGE, "what is '%s'?", args->words[0]);
    }
    if (v->specs.count == 0 || v->specs.count > MAX_SPECS) {
        return v->specs.count == 0 ? gw_cli_misuse(&PAGE, "-c SPEC is missing")
                                   : gw_cli_misuse(&PAGE, "more than %d specs", MAX_SPECS);
    }
    if (v->routes.count > 1 && v->routes.count != v->specs.count) {
        return gw_cli_misuse(&PAGE, "%zu routes for %zu specs: one for all, or one for each",
                             v->routes.count, v->specs.count);
    }
    if (v->n == 0 || v->n > (uint64_t)1 << 34 || v->rounds == 0 ||
        v->rounds > GW_CLI_RACE_MAX_ROUNDS) {
        return gw_cli_misuse(&PAGE, "-n takes 1 to 16Gi, --rounds 1 to %d", GW_CLI_RACE_MAX_ROUNDS);
    }
    if (v->lanes > GW_STEP_MAX_LANES) {
        return gw_cli_misuse(&PAGE, "--lanes takes 0 to %d", GW_STEP_MAX_LANES);
    }
    if (engine->comm) {
        if (v->latency != 0 || (v->ranks != 0 && v->ranks != engine->comm->ranks)) {
            return gw_cli_misuse(&PAGE, "mpirun has started %u ranks, on links that are real",
                                 engine->comm->ranks);
        }
    } else if (v->ranks > GW_THREADS_MAX_RANKS) {
        return gw_cli_misuse(&PAGE, "--ranks takes 1 to %d", GW_THREADS_MAX_RANKS);
    }
    return GW_CLI_GO_ON;
}

/* ---- ranks that are threads ---- */

typedef struct rank_thread {
    pthread_t thread;
    gw_cli_race *race;
    gw_comm *comm;
    bool done;
} rank_thread;

static void *run_rank(void *arg)
{
    rank_thread *rank = arg;
    rank->done = gw_cli_race_run(rank->race, rank->comm);
    return NULL;
}

static bool run_on_threads(gw_cli_race *race, const values *v)
{
    const gw_threads_config config = {.ranks = race->ranks,
                                      .ranks_per_node = race->ranks_per_node,
                                      .near = {.bytes_per_second = v->near_link},
                                      .far = {v->link, v->latency}};
    gw_threads *world = NULL;
    gw_why why = {""};
    rank_thread *ranks = calloc(race->ranks, sizeof *ranks);
    if (!ranks || gw_threads_create(&config, &world, &why) != GW_OK) {
        gw_cli_error("%s", ranks ? why.text : "out of memory");
        free(ranks);
        return false;
    }
    bool done = true;
    uint32_t started = 0;
    for (; started < race->ranks && done; started++) {
        rank_thread *rank = &ranks[started];
        rank->race = race;
        (void)gw_threads_comm(world, started, &rank->comm);
        done = pthread_create(&rank->thread, NULL, run_rank, rank) == 0;
    }
    if (!done) {
        gw_cli_error("cannot start a thread for rank %u", --started);
        ranks[started].comm->table->abort(ranks[started].comm, "it has no thread");
    }
    for (uint32_t i = 0; i < started; i++) {
        (void)pthread_join(ranks[i].thread, NULL);
        done = done && ranks[i].done;
    }
    gw_threads_destroy(world);
    free(ranks);
    return done;
}

/* ---- what came out ---- */

typedef struct figures {
    double seconds, low, high;
    double limit, share; /* NaN without a link */
} figures;

/* Sorts. */
static figures figures_of(const gw_cli_race *race, gw_cli_racer *racer, const values *v)
{
    figures f = {.seconds = gw_cli_median(racer->seconds, race->rounds),
                 .low = racer->seconds[0],
                 .high = racer->seconds[race->rounds - 1],
                 .limit = (double)NAN};
    const double far = v->link > 0 ? (double)racer->far_bytes / v->link : 0;
    const double near = v->near_link > 0 ? (double)racer->near_bytes / v->near_link : 0;
    if ((v->link > 0 || v->near_link > 0) && !racer->engine) {
        f.limit = fmax(far, near);
    }
    f.share = f.limit / f.seconds;
    return f;
}

static void route_text(const gw_cli_racer *racer, char text[GW_ROUTE_TEXT])
{
    if (gw_route_name_of(&racer->route, text, GW_ROUTE_TEXT) != GW_OK &&
        gw_route_print(&racer->route, text, GW_ROUTE_TEXT) != GW_OK) {
        text[0] = '\0';
    }
}

static json_t *json_of(gw_cli_race *race, gw_cli_racer *racer, const values *v)
{
    char route[GW_ROUTE_TEXT];
    route_text(racer, route);
    gw_cli_racer *dense = &race->racers[0];
    const figures f = figures_of(race, racer, v), d = figures_of(race, dense, v);
    json_t *one = json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:[ff], s:[ff], s:o, s:o, "
        "s:o, s:o, s:f, s:f, s:f}",
        "engine", race->engine->name, "route", route, "spec", racer->name, "ranks",
        (json_int_t)race->ranks, "ranks_per_node", (json_int_t)race->ranks_per_node, "elements",
        (json_int_t)race->elements, "rounds", (json_int_t)race->rounds, "seconds", f.seconds,
        "dense_seconds", d.seconds, "speed_up", d.seconds / f.seconds, "wire_bytes",
        (json_int_t)racer->wire_bytes, "dense_wire_bytes", (json_int_t)dense->wire_bytes, "spread",
        f.low, f.high, "dense_spread", d.low, d.high, "limit_seconds", gw_cli_json_number(f.limit),
        "limit_share", gw_cli_json_number(f.share), "dense_limit_seconds",
        gw_cli_json_number(d.limit), "dense_limit_share", gw_cli_json_number(d.share),
        "encode_seconds", racer->encode_seconds, "decode_seconds", racer->decode_seconds,
        "rel_error", racer->rel_error);
    if (one && race->engine->allreduce) {
        const figures own = figures_of(race, &race->racers[1], v);
        char key[32];
        (void)snprintf(key, sizeof key, "%s_seconds", race->engine->name);
        (void)json_object_set_new(one, key, json_real(own.seconds));
        (void)snprintf(key, sizeof key, "%s_spread", race->engine->name);
        (void)json_object_set_new(one, key, json_pack("[ff]", own.low, own.high));
    }
    return one;
}

static bool print_json(gw_cli_race *race, const values *v)
{
    gw_cli_racer *first = &race->racers[race->n_racers - v->specs.count];
    if (v->specs.count == 1) {
        return gw_cli_json_print(json_of(race, first, v));
    }
    json_t *all = json_array();
    for (size_t i = 0; i < v->specs.count; i++) {
        (void)json_array_append_new(all, json_of(race, first + i, v));
    }
    return gw_cli_json_print(all);
}

static void add_row(gw_cli_table *table, gw_cli_race *race, gw_cli_racer *racer, const values *v)
{
    char route[GW_ROUTE_TEXT];
    route_text(racer, route);
    const figures f = figures_of(race, racer, v), d = figures_of(race, &race->racers[0], v);
    gw_cli_table_cell(table, "%s", racer->engine ? "its own allreduce" : racer->name);
    gw_cli_table_cell(table, "%s", racer->engine ? race->engine->name : route);
    if (racer->engine) {
        gw_cli_table_cell(table, "-");
    } else {
        gw_cli_table_cell(table, "%.3f", 1e-6 * (double)racer->wire_bytes);
    }
    gw_cli_table_cell(table, "%.4f", f.seconds);
    gw_cli_table_cell(table, "%.4f-%.4f", f.low, f.high);
    gw_cli_table_cell(table, "%.2f", d.seconds / f.seconds);
    if (race->engine->allreduce) {
        const figures own = figures_of(race, &race->racers[1], v);
        gw_cli_table_cell(table, "%.2f", own.seconds / f.seconds);
    }
    if (isnan(f.limit)) {
        gw_cli_table_cell(table, "-");
        gw_cli_table_cell(table, "-");
    } else {
        gw_cli_table_cell(table, "%.4f", f.limit);
        gw_cli_table_cell(table, "%.2f", f.share);
    }
    gw_cli_table_cell(table, "%.1e", racer->rel_error);
}

static bool print_table(gw_cli_race *race, const values *v)
{
    gw_cli_column columns[] = {{"spec", false},        {"route", false},  {"MB sent", true},
                               {"seconds", true},      {"range", true},   {"speed-up", true},
                               {"over its own", true}, {"limit s", true}, {"share", true},
                               {"rel error", true}};
    size_t n = sizeof columns / sizeof columns[0];
    if (!race->engine->allreduce) {
        memmove(columns + 6, columns + 7, (n - 7) * sizeof columns[0]);
        n--;
    }
    gw_cli_table table = {.columns = columns, .n_columns = n};
    for (size_t i = 0; i < race->n_racers; i++) {
        add_row(&table, race, &race->racers[i], v);
    }
    if (!gw_cli_table_print(&table)) {
        return false;
    }
    (void)printf("\n%zu elements, %u ranks (%s), median of %zu rounds; MB sent by the rank that "
                 "sends most; every result checked\n",
                 race->elements, race->ranks, race->engine->name, race->rounds);
    return true;
}

static int race_and_print(const gw_cli_engine *engine, const gw_cli_args *args, const values *v)
{
    gw_cli_race *race = calloc(1, sizeof *race);
    if (!race) {
        gw_cli_out_of_memory();
        return GW_CLI_FAILED;
    }
    race->engine = engine;
    race->elements = (size_t)v->n;
    race->rounds = (size_t)v->rounds;
    race->lanes = v->lanes;
    race->piece = v->piece;
    race->ranks = engine->comm ? engine->comm->ranks : v->ranks ? v->ranks : 4;
    race->ranks_per_node = v->ranks_per_node ? v->ranks_per_node
                           : engine->comm    ? engine->ranks_per_node
                                             : 1;
    race->nodes = v->ranks_per_node == 0 && engine->comm ? engine->nodes : NULL;
    race->progress = args->talk >= GW_CLI_NORMAL && isatty(STDERR_FILENO);
    int status = add_racers(race, v);
    if (status == GW_CLI_GO_ON) {
        bool fine = engine->comm ? gw_cli_race_run(race, engine->comm) : run_on_threads(race, v);
        if (fine && (!engine->comm || engine->comm->rank == 0)) {
            fine = args->json ? print_json(race, v) : print_table(race, v);
        }
        status = fine ? GW_CLI_DONE : GW_CLI_FAILED;
    }
    free(race);
    return status;
}

int gw_cli_bench_allreduce(const gw_cli_engine *engine, int argc, char **argv)
{
    gw_cli_args args;
    values v = {.n = 25 << 20, .rounds = 5};
    int status = gw_cli_parse(&PAGE, argc, argv, &args, &v);
    if (status == GW_CLI_GO_ON) {
        status = check(engine, &args, &v);
    }
    if (status == GW_CLI_GO_ON) {
        status = race_and_print(engine, &args, &v);
    }
    gw_cli_texts_free(&v.specs);
    gw_cli_texts_free(&v.routes);
    return status;
}
