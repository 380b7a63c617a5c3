/* Laws 1 and 2 for every route: on each of them, for every codec that fits, any number of ranks and nodes,
 * replicas are equal bit for bit, nothing is lost, and what is unbiased stays so. Ranks are threads.
 *
 * A job runs one step object a rank through all routes in turn, so that residuals of one plan are handed over to
 * the next. At the end of a route the layers go dense once, with zeros: what residuals held comes out, and
 * the sum over all results must be the sum over all gradients. */
#include "support/check.h"
#include "support/gen.h"
#include "support/ranks.h"

#include "base/numeric.h"

#include <math.h>

#include <gradwire/threads.h>

static const char *const specs[] = {
    "cast:to=f32",
    "natural:bits=8",
    "natural:bits=9",
    "ndither:bits=4,bucket=64",
    "dither:bits=3,bucket=64",
    "sign:bucket=64",
    "topk:density=0.05",
    "randk:density=0.1",
    "adacomp:bin=50",
    "lowrank:rank=2",
    "topk:density=0.2,values=natural",
};
enum { SPECS = sizeof specs / sizeof specs[0] };
static const uint64_t sizes[] = {1, 5, 1003};
enum { SIZES = sizeof sizes / sizeof sizes[0], LAYERS = SPECS * SIZES, STEPS = 2, MOST = 1003 };

/* One rank's end, and what it saw. */
typedef struct end {
    gw_step *step;
    float *gradient[LAYERS];
    double *sent[LAYERS], *posted[LAYERS], *size[LAYERS];
} end;

typedef struct job {
    uint32_t ranks, per_node;
    gw_nodes *nodes; /* a map instead of per_node */
    const gw_route *routes;
    size_t n_routes;
    gw_params params[SPECS];
    end ends[RANKS_MAX];
} job;

/* ---- what a rank does ---- */

static int fits(const job *j, const gw_route *route, size_t layer)
{
    const gw_params *params = &j->params[layer / SIZES];
    const gw_route_job one = {.ranks = j->ranks,
                              .ranks_per_node = j->per_node,
                              .nodes = j->nodes,
                              .elements = 1,
                              .params = params};
    gw_program program;
    return gw_route_fits(route, params, NULL) == GW_OK &&
           gw_route_compile(route, &one, &program, NULL) == GW_OK;
}

static void plan(job *j, uint32_t rank, const gw_route *route)
{
    gw_route dense;
    gw_why why = {""};
    RANK_OK(gw_route_parse(&dense, "dense", &why), why.text);
    for (uint32_t l = 0; l < LAYERS; l++) {
        const int fit = route != NULL && fits(j, route, l);
        RANK_OK(
            gw_step_plan(j->ends[rank].step, l, &j->params[l / SIZES], fit ? route : &dense, &why),
            why.text);
    }
    RANK_OK(gw_step_agree(j->ends[rank].step, &why), why.text);
}

static void one_step(job *j, uint32_t rank, uint64_t seed)
{
    end *e = &j->ends[rank];
    gw_why why = {""};
    gw_step_result result;
    gen g = {seed * 1000 + rank};
    for (uint32_t l = 0; l < LAYERS; l++) {
        const uint64_t n = sizes[l % SIZES];
        for (uint64_t i = 0; i < n; i++) {
            e->gradient[l][i] = seed != 0 ? (float)gen_normal(&g) : 0;
            e->posted[l][i] += (double)e->gradient[l][i];
            e->size[l][i] += fabs((double)e->gradient[l][i]);
        }
        const gw_tensor t = {e->gradient[l], n, GW_F32};
        RANK_OK(gw_step_post(e->step, l, &t, &why), why.text);
    }
    RANK_OK(gw_step_wait(e->step, &result, &why), why.text);
    RANK_TRUE(result.non_finite == 0, "a finite gradient arrived non-finite");
    for (uint32_t l = 0; l < LAYERS; l++) {
        for (uint64_t i = 0; i < sizes[l % SIZES]; i++) {
            e->sent[l][i] += (double)e->gradient[l][i] * j->ranks;
        }
    }
}

/* ---- what rank 0 checks, while the others wait ---- */

static void say(const job *j, const gw_route *route, uint32_t l, const char *what)
{
    char text[GW_ROUTE_TEXT] = "dense";
    if (route != NULL) {
        (void)gw_route_print(route, text, sizeof text);
    }
    print_error("%u ranks, %u a node, %s, %llu elements, %s: %s\n", j->ranks, j->per_node,
                specs[l / SIZES], (unsigned long long)sizes[l % SIZES], text, what);
}

static int replicas_equal(const job *j, const gw_route *route)
{
    for (uint32_t r = 1; r < j->ranks; r++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            if (memcmp(j->ends[r].gradient[l], j->ends[0].gradient[l],
                       sizes[l % SIZES] * sizeof(float)) != 0) {
                say(j, route, l, "replicas differ");
                return 0;
            }
        }
    }
    return 1;
}

/* Σ sent = Σ gradients, after the residuals came out: to rounding, or unbiased. */
static int sums_hold(const job *j, const gw_route *route)
{
    for (uint32_t l = 0; l < LAYERS; l++) {
        const uint32_t flags = fits(j, route, l) ? gw_params_flags(&j->params[l / SIZES]) : 0;
        const int exact = strcmp(specs[l / SIZES], "cast:to=f32") == 0; /* the plain sum */
        const int unbiased = !exact && (flags & GW_CODEC_UNBIASED) != 0;
        double toward = 0, along = 0, squares = 0;
        for (uint64_t i = 0; i < sizes[l % SIZES]; i++) {
            double want = 0, size = 0;
            for (uint32_t r = 0; r < j->ranks; r++) {
                want += j->ends[r].posted[l][i];
                size += j->ends[r].size[l][i];
            }
            const double off = j->ends[0].sent[l][i] - want;
            toward += want > 0 ? off : -off;
            along += off;
            squares += off * off;
            if (!unbiased && !(fabs(off) <= 1e-5 * size)) {
                say(j, route, l, "sent and kept do not add up to the gradients");
                print_error("element %llu: off by %g of %g\n", (unsigned long long)i, off, size);
                return 0;
            }
        }
        /* 1,003 independent errors: their sum over its own deviation is a normal number */
        if (unbiased && sizes[l % SIZES] > 1000 && squares > 0 &&
            !(fabs(toward) <= 5 * sqrt(squares) && fabs(along) <= 5 * sqrt(squares))) {
            say(j, route, l, "an unbiased codec is biased on this route");
            return 0;
        }
    }
    return 1;
}

static void forget(job *j)
{
    for (uint32_t r = 0; r < j->ranks; r++) {
        for (uint32_t l = 0; l < LAYERS; l++) {
            const size_t bytes = sizes[l % SIZES] * sizeof(double);
            memset(j->ends[r].sent[l], 0, bytes);
            memset(j->ends[r].posted[l], 0, bytes);
            memset(j->ends[r].size[l], 0, bytes);
        }
    }
}

/* ---- all of it ---- */

static void open_end(job *j, uint32_t rank, gw_comm *comm)
{
    end *e = &j->ends[rank];
    gw_why why = {""};
    const gw_step_config config = {.comm = comm,
                                   .ranks_per_node = j->per_node,
                                   .node_of = j->nodes != NULL ? j->nodes->node_of : NULL,
                                   .seed = 5,
                                   .lanes = 3,
                                   .piece = 400, /* so that what can be cut is */
                                   .timeout = 60};
    RANK_OK(gw_step_create(&config, &e->step, &why), why.text);
    for (uint32_t l = 0; l < LAYERS; l++) {
        char name[32];
        uint32_t layer = 0;
        const uint64_t n = sizes[l % SIZES];
        (void)snprintf(name, sizeof name, "layer.%u", l);
        const uint64_t dims[2] = {n / 17, 17};
        RANK_OK(gw_step_add(e->step, name, n % 17 == 0 ? dims : &n, n % 17 == 0 ? 2 : 1, GW_F32,
                            &layer, &why),
                why.text);
        e->gradient[l] = calloc(n, sizeof(float));
        e->sent[l] = calloc(n, sizeof(double));
        e->posted[l] = calloc(n, sizeof(double));
        e->size[l] = calloc(n, sizeof(double));
    }
}

static void close_end(end *e)
{
    gw_step_destroy(e->step);
    for (uint32_t l = 0; l < LAYERS; l++) {
        free(e->gradient[l]);
        free(e->sent[l]);
        free(e->posted[l]);
        free(e->size[l]);
    }
}

static void rank_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    open_end(j, rank, comm);
    for (size_t i = 0; i < j->n_routes; i++) {
        const gw_route *route = &j->routes[i];
        ranks_meet(all);
        if (rank == 0) {
            forget(j);
        }
        ranks_meet(all);
        plan(j, rank, route);
        for (uint64_t step = 0; step < STEPS; step++) {
            one_step(j, rank, 1 + i * STEPS + step);
            ranks_meet(all);
            RANK_TRUE(rank != 0 || replicas_equal(j, route), "replicas differ");
            ranks_meet(all);
        }
        plan(j, rank, NULL);
        one_step(j, rank, 0);
        ranks_meet(all);
        RANK_TRUE(rank != 0 || sums_hold(j, route), "sums do not hold");
        ranks_meet(all);
    }
    ranks_meet(all);
    close_end(&j->ends[rank]);
}

static void run_nodes(uint32_t n_ranks, uint32_t per_node, const uint32_t *node_of, size_t stride)
{
    static gw_route routes[256];
    size_t n = 0, additive = 0, taken = 0;
    assert_int_equal(gw_route_list(GW_DEVICE_CPU, 0, routes, 256, &n, NULL), GW_OK);
    assert_int_equal(n, 174);
    assert_int_equal(gw_route_list(GW_DEVICE_CPU, 1, routes + n, 256 - n, &additive, NULL), GW_OK);
    const int nodes = node_of != NULL || n_ranks % per_node == 0;
    for (size_t i = 0; i < n + additive; i += i < n ? stride : 1) {
        if (nodes || !gw_route_is_hierarchical(&routes[i])) {
            routes[taken++] = routes[i];
        }
    }
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->ranks = n_ranks;
    j->per_node = per_node;
    if (node_of != NULL) {
        assert_int_equal(gw_nodes_create(node_of, n_ranks, &j->nodes, NULL), GW_OK);
    }
    j->routes = routes;
    j->n_routes = taken;
    for (size_t i = 0; i < SPECS; i++) {
        j->params[i] = params_of(specs[i]);
    }
    const gw_threads_config config = {.ranks = n_ranks,
                                      .ranks_per_node = nodes && node_of == NULL ? per_node : 0};
    ranks_run(&config, rank_main, j);
    gw_nodes_destroy(j->nodes);
    free(j);
}

static void run_routes(uint32_t n_ranks, uint32_t per_node, size_t stride)
{
    run_nodes(n_ranks, per_node, NULL, stride);
}

/* Nodes of different sizes, and ranks in another order than nodes. */
static void run_maps(size_t stride)
{
    run_nodes(3, 0, (const uint32_t[]){0, 0, 1}, stride);
    run_nodes(4, 0, (const uint32_t[]){0, 1, 1, 0}, stride);
    run_nodes(5, 0, (const uint32_t[]){0, 1, 0, 0, 1}, stride);
    run_nodes(6, 0, (const uint32_t[]){0, 0, 0, 1, 1, 2}, stride);
}

static void every_route(void **state)
{
    (void)state;
    static const uint32_t counts[] = {1, 2, 3, 4, 6, 8};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (uint32_t k = 1; k <= 4; k++) {
            if (k <= counts[i]) {
                run_routes(counts[i], k, 1);
            }
        }
    }
    run_maps(1);
}

/* A fixed sample for builds that are slow. */
static void some_routes(void **state)
{
    (void)state;
    run_routes(4, 2, 13);
    run_routes(3, 1, 13);
    run_maps(29);
}

/* Where nodes are unequal, a hierarchical route is refused by name. */
static void refuse_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)arg;
    (void)all;
    gw_why why = {""};
    gw_step *step = NULL;
    gw_route route;
    uint32_t layer = 0;
    const uint64_t n = 100;
    const gw_step_config config = {.comm = comm, .ranks_per_node = 2};
    RANK_OK(gw_step_create(&config, &step, &why), why.text);
    RANK_OK(gw_step_add(step, "w", &n, 1, GW_F32, &layer, &why), why.text);
    RANK_OK(gw_route_parse(&route, "hier-dense", &why), why.text);
    RANK_OK(gw_step_plan(step, layer, NULL, &route, &why), why.text);
    RANK_TRUE(gw_step_agree(step, &why) == GW_ERR_UNSUPPORTED, "unequal nodes are not refused");
    RANK_TRUE(strstr(why.text, "'w'") != NULL, why.text);
    (void)rank;
    gw_step_destroy(step);
}

static void unequal_nodes_are_refused(void **state)
{
    (void)state;
    const gw_threads_config config = {.ranks = 3};
    ranks_run(&config, refuse_main, NULL);
}

int main(int argc, char **argv)
{
    const int all = argc > 1 && strcmp(argv[1], "all") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unequal_nodes_are_refused),
        all ? (struct CMUnitTest)cmocka_unit_test(every_route)
            : (struct CMUnitTest)cmocka_unit_test(some_routes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
