/* Valid arguments for the calls that null_calls.py generates, and the loop that makes them. Each call has a process
 * of its own, so a crash is counted and named, and nothing is freed. */
#ifndef GW_TESTS_NULL_VALUES_H
#define GW_TESTS_NULL_VALUES_H

#include <gradwire/gradwire.h>
#include <gradwire/hosted.h>
#include <gradwire/plan.h>
#include <gradwire/threads.h>
#include <gradwire/together.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAKER __attribute__((unused)) static

enum { ELEMENTS = 1 << 14, PLACES = 16, PLACE_BYTES = 1 << 20, SECONDS = 20 };

/* Zeroed memory that is large enough for any output. */
MAKER void *a_place(int argument)
{
    static _Alignas(64) unsigned char places[PLACES][PLACE_BYTES];
    return places[argument % PLACES];
}

static void must(gw_status status, const char *what)
{
    if (status != GW_OK) {
        (void)fprintf(stderr, "this test cannot make %s: %s\n", what, gw_status_string(status));
        abort();
    }
}

MAKER gw_why *a_gw_why(void)
{
    static gw_why why;
    return &why;
}

MAKER gw_params *a_gw_params(void)
{
    static gw_params params;
    must(gw_params_parse(&params, "natural:bits=8", NULL), "params");
    return &params;
}

MAKER gw_route *a_gw_route(void)
{
    static gw_route route;
    must(gw_route_parse(&route, "gather", NULL), "a route");
    return &route;
}

MAKER const gw_codec *a_gw_codec(void)
{
    return gw_codec_find("natural");
}

MAKER gw_tensor *a_gw_tensor(void)
{
    static gw_tensor tensor = {NULL, ELEMENTS, GW_F32};
    tensor.data = a_place(PLACES - 1);
    return &tensor;
}

MAKER gw_workspace a_gw_workspace(void)
{
    return (gw_workspace){a_place(PLACES - 2), PLACE_BYTES};
}

MAKER gw_pool *a_gw_pool(void)
{
    gw_pool *pool = NULL;
    must(gw_pool_create(1, &pool), "a pool");
    return pool;
}

MAKER gw_threads_config *a_gw_threads_config(void)
{
    static gw_threads_config config = {.ranks = 1};
    return &config;
}

MAKER gw_threads *a_gw_threads(void)
{
    static gw_threads *world;
    if (world == NULL) {
        must(gw_threads_create(a_gw_threads_config(), &world, NULL), "a world");
    }
    return world;
}

MAKER gw_comm *a_gw_comm(void)
{
    gw_comm *comm = NULL;
    must(gw_threads_comm(a_gw_threads(), 0, &comm), "a comm");
    return comm;
}

MAKER gw_hosted *a_gw_hosted(void)
{
    gw_hosted *hosted = NULL;
    must(gw_hosted_create(0, 1, &hosted, NULL), "a hosted group");
    gw_hosted_stop(hosted); /* take would wait for an operation */
    return hosted;
}

MAKER gw_together *a_gw_together(void)
{
    gw_together *together = NULL;
    must(gw_together_create(a_gw_comm(), 1, ELEMENTS, &together, NULL), "messages together");
    return together;
}

MAKER gw_feedback *a_gw_feedback(void)
{
    gw_feedback *store = NULL;
    uint32_t tensor = 0;
    uint64_t slot = 0;
    must(gw_feedback_create(GW_FEEDBACK_BESIDE, 0, 1, &store, NULL), "a store");
    must(gw_feedback_add_tensor(store, "w", ELEMENTS, &tensor, NULL), "a tensor");
    must(gw_feedback_add(store, tensor, 0, 0, ELEMENTS, &slot, NULL), "a slot");
    return store;
}

MAKER gw_exchange_config *a_gw_exchange_config(void)
{
    static gw_exchange_config config = {.ranks = 1, .elements = ELEMENTS};
    config.params = *a_gw_params();
    config.route = *a_gw_route();
    return &config;
}

MAKER gw_exchange *a_gw_exchange(void)
{
    gw_exchange *exchange = NULL;
    must(gw_exchange_create(a_gw_exchange_config(), &exchange, NULL), "an exchange");
    return exchange;
}

MAKER gw_step_config *a_gw_step_config(void)
{
    static gw_step_config config;
    config.comm = a_gw_comm();
    return &config;
}

MAKER gw_step *a_gw_step(void)
{
    const uint64_t dims[] = {ELEMENTS};
    gw_step *step = NULL;
    uint32_t layer = 0;
    must(gw_step_create(a_gw_step_config(), &step, NULL), "a step");
    must(gw_step_add(step, "w", dims, 1, GW_F32, &layer, NULL), "a layer");
    must(gw_step_plan(step, layer, a_gw_params(), a_gw_route(), NULL), "a plan");
    must(gw_step_agree(step, NULL), "an agreed step");
    return step;
}

/* For the functions gw_step_adapt_* and gw_step_auto_*, but not for those that begin. */
MAKER gw_step *a_gw_step_that_adapts(void)
{
    gw_step *step = a_gw_step();
    must(gw_step_adapt_begin_spec(step, "adapt/natural:bits=8", NULL), "a step that adapts");
    return step;
}

MAKER gw_step *a_gw_step_on_auto(void)
{
    gw_step *step = a_gw_step();
    must(gw_step_auto_begin_spec(step, "auto", NULL), "a step on auto");
    return step;
}

MAKER gw_cluster *a_gw_cluster(void)
{
    static gw_codec_cost cost;
    const gw_cost_curve curve = {1, {{1e6, 1e-3, 0, 0}}};
    static gw_cluster cluster = {.name = "test",
                                 .nodes = 2,
                                 .ranks_per_node = 1,
                                 .intra = {.rate = 1e9},
                                 .inter = {.rate = 1e9},
                                 .copy = {.rate = 1e9},
                                 .codecs = &cost,
                                 .n_codecs = 1};
    cost = (gw_codec_cost){.device = GW_DEVICE_CPU, .encode = curve, .decode = curve};
    must(gw_params_parse(&cost.params, "cast:to=bf16", NULL), "params");
    return &cluster;
}

MAKER gw_job *a_gw_job(void)
{
    static gw_job_tensor tensor = {.name = "w", .elements = 1 << 20, .ready = 0.01};
    static gw_job job = {.name = "test",
                         .tensors = &tensor,
                         .n = 1,
                         .forward = 0.01,
                         .backward = 0.01,
                         .optimizer = 0.001};
    return &job;
}

MAKER gw_plan *a_gw_plan(void)
{
    static const gw_plan_request request;
    gw_plan *plan = NULL;
    gw_why why = {""};
    const gw_status status = gw_plan_create(a_gw_job(), a_gw_cluster(), &request, &plan, &why);
    must(status, why.text);
    return plan;
}

/* ---- the calls ---- */

typedef struct null_call {
    const char *function, *null;
    int (*call)(void); /* 1: it returned GW_OK */
    int refuse;        /* 1: it must not */
} null_call;

enum { RETURNED = 40, ACCEPTED = 41 }; /* exit statuses that no sanitizer uses */

/* 0, or 1 and a line on stdout. */
static int null_call_fails(const null_call *c)
{
    (void)fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        (void)alarm(SECONDS);
        _exit(c->call() ? ACCEPTED : RETURNED);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) {
        (void)printf("cannot start a process for %s\n", c->function);
        return 1;
    }
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (WIFSIGNALED(status) || (code != RETURNED && code != ACCEPTED)) {
        (void)printf("%s, NULL for %s: %s\n", c->function, c->null,
                     WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "a sanitizer's report");
        return 1;
    }
    if (code == ACCEPTED && c->refuse) {
        (void)printf("%s, NULL for %s: returned GW_OK\n", c->function, c->null);
        return 1;
    }
    return 0;
}

static int null_calls_run(const null_call *calls, size_t n, int argc, char **argv)
{
    size_t failed = 0;
    for (size_t i = 0; i < n; i++) {
        if (argc > 1 && strcmp(argv[1], "--list") == 0) {
            (void)puts(calls[i].function);
        } else {
            failed += (size_t)null_call_fails(&calls[i]);
        }
    }
    if (argc == 1) {
        (void)printf("%zu calls, %zu failed\n", n, failed);
    }
    return failed != 0;
}

#endif
