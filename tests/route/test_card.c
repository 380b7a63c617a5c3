/* What a node's network card sends for one tensor along the usual route, from compiled routes, next to an uncompressed ring:
 * no codec's default sends more. Prints the table of docs/routes.md. */
#include "support/check.h"

#include <gradwire/rounds.h>

enum { ROWS = 4096, COLS = 4096, MOST = 256 };
static const uint64_t elements = (uint64_t)ROWS * COLS;

static const char *const specs[] = {
    NULL,
    "cast:to=bf16",
    "natural:bits=9",
    "natural:bits=8",
    "ndither:bits=4",
    "dither:bits=4",
    "dither:bits=2",
    "adacomp",
    "topk:density=0.01",
    "randk:density=0.01",
    "sign",
#ifndef GW_TESTS_NO_BLAS
    "lowrank:rank=4",
#endif
};
enum { SPECS = sizeof specs / sizeof *specs };

static const struct {
    const char *name;
    uint32_t nodes, size[3]; /* ranks of nodes; the last one again for those that follow */
} clusters[] = {{"2x2", 2, {2, 2, 2}}, {"2+1", 2, {2, 1, 1}},   {"2x8", 2, {8, 8, 8}},
                {"4x8", 4, {8, 8, 8}}, {"8x4", 8, {4, 4, 4}},   {"4+4+2", 3, {4, 4, 2}},
                {"8x1", 8, {1, 1, 1}}, {"64x1", 64, {1, 1, 1}}, {"32x8", 32, {8, 8, 8}}};
enum { CLUSTERS = sizeof clusters / sizeof *clusters };

static gw_nodes *nodes_of(uint32_t n, const uint32_t size[3])
{
    uint32_t node_of[MOST], ranks = 0;
    gw_nodes *nodes = NULL;
    for (uint32_t node = 0; node < n; node++) {
        for (uint32_t i = 0; i < size[node < 3 ? node : 2]; i++) {
            node_of[ranks++] = node;
        }
    }
    assert_int_equal(gw_nodes_create(node_of, ranks, &nodes, NULL), GW_OK);
    return nodes;
}

/* Bytes that the rank sends to other nodes. */
static uint64_t sent_far(const gw_route *route, const gw_params *params, const gw_nodes *nodes,
                         uint32_t rank)
{
    gw_route_job job = {.ranks = nodes->ranks,
                        .nodes = nodes,
                        .rank = rank,
                        .elements = elements,
                        .params = params};
    const int rounds = params != NULL && (gw_params_flags(params) & GW_CODEC_ROUNDS) != 0;
    uint64_t bytes = 0;
    for (unsigned round = 0;; round++) {
        size_t n = 0;
        gw_program program;
        gw_why why = {""};
        if (rounds) {
            assert_int_equal(gw_rounds_elements(params, (size_t)elements, round, &n), GW_OK);
            job.numbers = n;
        }
        if (rounds && n == 0) {
            return bytes;
        }
        CHECK(gw_route_compile(route, &job, &program, &why) == GW_OK, "%s", why.text);
        bytes += program.sent[GW_LINK_INTER];
        if (!rounds) {
            return bytes;
        }
    }
}

/* Of the node that sends most, in units of the fp32 tensor. */
static double card(const char *spec, const gw_nodes *nodes, const char *route_name)
{
    const uint64_t dims[] = {ROWS, COLS};
    const gw_route_job where = {.ranks = nodes->ranks, .nodes = nodes};
    gw_params params = params_of(spec != NULL ? spec : "natural");
    const gw_params *given = spec != NULL ? &params : NULL;
    gw_route route;
    uint64_t most = 0;
    (void)gw_params_fit_shape(&params, dims, 2);
    assert_int_equal(route_name != NULL
                         ? gw_route_parse(&route, route_name, NULL)
                         : gw_route_usual(given, &where, GW_DEVICE_CPU, &route, NULL),
                     GW_OK);
    for (uint32_t node = 0; node < nodes->n; node++) {
        uint64_t bytes = 0;
        for (uint32_t i = nodes->first[node]; i < nodes->first[node + 1]; i++) {
            bytes += sent_far(&route, given, nodes, nodes->order[i]);
        }
        most = bytes > most ? bytes : most;
    }
    return (double)most / (4 * (double)elements);
}

static double ring(const gw_nodes *nodes)
{
    return 2 * (double)(nodes->ranks - 1) / (double)nodes->ranks;
}

static void no_default_sends_more_than_a_ring(void **state)
{
    (void)state;
    gw_nodes *nodes[CLUSTERS];
    printf("%-20s", "codec");
    for (size_t c = 0; c < CLUSTERS; c++) {
        nodes[c] = nodes_of(clusters[c].nodes, clusters[c].size);
        printf(" %8s", clusters[c].name);
    }
    printf("\n%-20s", "ring, fp32");
    for (size_t c = 0; c < CLUSTERS; c++) {
        printf(" %8.3f", ring(nodes[c]));
    }
    printf("\n%-20s", "ring, bf16");
    for (size_t c = 0; c < CLUSTERS; c++) {
        printf(" %8.3f", ring(nodes[c]) / 2);
    }
    for (size_t i = 0; i < SPECS; i++) {
        printf("\n%-20s", specs[i] != NULL ? specs[i] : "dense");
        for (size_t c = 0; c < CLUSTERS; c++) {
            const double x = card(specs[i], nodes[c], NULL);
            const double limit = specs[i] != NULL ? ring(nodes[c]) / 2 : ring(nodes[c]);
            printf(" %8.3f", x);
            CHECK(x <= limit * (1 + 1e-9), "%s on %s: %g, a ring %g",
                  specs[i] != NULL ? specs[i] : "dense", clusters[c].name, x, limit);
        }
    }
    printf("\n");
    /* the control: the flat route that was the default */
    assert_true(card("natural:bits=8", nodes[3], "sra") > ring(nodes[3]));
    for (size_t c = 0; c < CLUSTERS; c++) {
        gw_nodes_destroy(nodes[c]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(no_default_sends_more_than_a_ring)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
