/* Bytes that a network card sees: what DDP's ring would send of the same gradients is shared among the ranks of a node as they share
 * what is sent to other nodes; the compression of a node is that of its card; what a route will send is known before. */
#include "support/check.h"
#include "support/gen.h"
#include "support/steps.h"

#include <math.h>

enum { LAYERS = 6, LARGE = 96 * 1024, SMALL = 17 * 50 };

typedef struct told {
    uint64_t sent[GW_LINKS], ring[GW_LINKS], card, card_ring;
} told;

typedef struct job {
    steps all[RANKS_MAX];
    told ranks[RANKS_MAX];
    const uint32_t *node_of;
    uint32_t n;
    const char *spec, *route; /* of the large layers */
    gw_dtype dtype;
} job;

static void bytes_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps *s = &j->all[rank];
    told *t = &j->ranks[rank];
    const char *spec = j->route != NULL ? j->spec : NULL;
    const steps_layer layers[LAYERS] = {{LARGE, spec, j->route, j->dtype},
                                        {SMALL, NULL, NULL, 0},
                                        {7, NULL, NULL, 0},
                                        {SMALL, NULL, NULL, 0},
                                        {0, NULL, NULL, 0},
                                        {LARGE, spec, j->route, 0}};
    const gw_step_config config = {.comm = comm,
                                   .node_of = j->node_of,
                                   .fuse_below = SMALL + 1,
                                   .verify_every = GW_STEP_VERIFY_NEVER};
    gw_why why = {""};
    (void)all;
    steps_open(s, &config, layers, LAYERS);
    RANK_TRUE(gw_step_card_bytes(s->step, &t->card, &t->card_ring, &why) == GW_ERR_STATE,
              "routes before agree");
    for (uint32_t l = 0; l < LAYERS && j->route == NULL; l++) { /* the usual route */
        const int coded = j->spec != NULL && layers[l].elements == LARGE;
        const gw_params params = coded ? params_of(j->spec) : (gw_params){.codec = NULL};
        RANK_OK(gw_step_plan(s->step, l, coded ? &params : NULL, NULL, &why), why.text);
    }
    steps_agree(s);
    RANK_OK(gw_step_card_bytes(s->step, &t->card, &t->card_ring, &why), why.text);
    steps_run(s, 1);
    for (uint32_t l = 0; l < LAYERS; l++) {
        gw_layer_stats stats;
        RANK_OK(gw_step_stats(s->step, l, &stats), "no statistics");
        for (int link = 0; link < GW_LINKS; link++) {
            t->sent[link] += stats.bytes_sent[link];
            t->ring[link] += stats.dense_bytes_sent[link];
        }
    }
    steps_equal_or_die(all, j->all, rank);
    steps_close(s);
}

static job *run(uint32_t n, const uint32_t *node_of, const char *spec, const char *route,
                gw_dtype dtype)
{
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->n = n;
    j->node_of = node_of;
    j->spec = spec;
    j->route = route;
    j->dtype = dtype;
    ranks_run(&(gw_threads_config){.ranks = n}, bytes_main, j);
    return j;
}

/* Of all ranks of the node. */
static told node_of(const job *j, uint32_t node, uint32_t *size)
{
    told sum = {.card = 0};
    *size = 0;
    for (uint32_t r = 0; r < j->n; r++) {
        for (int link = 0; link < GW_LINKS && j->node_of[r] == node; link++) {
            sum.sent[link] += j->ranks[r].sent[link];
            sum.ring[link] += j->ranks[r].ring[link];
        }
        *size += j->node_of[r] == node;
    }
    return sum;
}

static uint64_t elements_bytes(const job *j)
{
    return (uint64_t)LARGE * (gw_dtype_size(j->dtype != 0 ? j->dtype : GW_F32) + 4) +
           (2ULL * SMALL + 7) * 4;
}

static void is_near(double a, double b, double by, const char *what, const job *j)
{
    CHECK(a >= b * (1 - by) && a <= b * (1 + by), "%s: %g, not %g (%s, %s, %u ranks)", what, a, b,
          j->spec != NULL ? j->spec : "dense", j->route != NULL ? j->route : "usual", j->n);
}

static void check_nodes(const job *j, uint32_t nodes)
{
    const double ring = 2.0 * (j->n - 1) / j->n * (double)elements_bytes(j);
    uint64_t most = 0;
    for (uint32_t node = 0; node < nodes; node++) {
        uint32_t size = 0;
        const told t = node_of(j, node, &size);
        most = t.sent[GW_LINK_INTER] > most ? t.sent[GW_LINK_INTER] : most;
        is_near((double)t.ring[GW_LINK_INTER], ring, 1e-4, "a ring through the card", j);
        is_near((double)t.ring[GW_LINK_INTRA], ring * (size - 1), 1e-4, "a ring inside", j);
        const double card = ring / (double)t.sent[GW_LINK_INTER];
        is_near(gw_compression(t.sent, t.ring), card, 1e-4, "of the card", j);
        for (uint32_t r = 0; r < j->n; r++) {
            const told *own = &j->ranks[r];
            if (j->node_of[r] == node && own->sent[GW_LINK_INTER] != 0 && j->route == NULL) {
                is_near(gw_compression(own->sent, own->ring), card, 0.02, "of a rank", j);
            }
            is_near((double)own->card_ring, ring, 1e-4, "a ring, before", j);
            CHECK(own->card == j->ranks[0].card, "ranks differ in what will be sent");
        }
    }
    is_near((double)j->ranks[0].card, (double)most, 0.02, "the busiest card, before", j);
}

static const uint32_t even[] = {0, 0, 1, 1}, uneven[] = {0, 0, 1}, mixed[] = {0, 1, 0, 1},
                      three[] = {0, 0, 0, 1, 1, 1, 2, 2}, alone[] = {0, 1, 2};

static const struct {
    const char *spec, *route;
} ways[] = {{NULL, NULL},
            {NULL, "dense"},
            {"natural:bits=8", NULL},
            {"natural:bits=8", "sra"},
            {"natural:bits=8", "star"},
            {"dither:bits=4", "hier-gather"},
            {"topk:density=0.01", NULL},
            {"topk:density=0.01", "gather"}};

static void cards_are_counted(void **state)
{
    static const struct {
        const uint32_t *node_of;
        uint32_t ranks, nodes;
    } clusters[] = {{even, 4, 2}, {uneven, 3, 2}, {mixed, 4, 2}, {three, 8, 3}, {alone, 3, 3}};
    (void)state;
    for (size_t c = 0; c < sizeof clusters / sizeof *clusters; c++) {
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            const int hier = ways[i].route != NULL && strncmp(ways[i].route, "hier", 4) == 0;
            for (int d = 0; d < 2 && !(hier && clusters[c].node_of == alone); d++) {
                job *j = run(clusters[c].ranks, clusters[c].node_of, ways[i].spec, ways[i].route,
                             d == 0 ? GW_F32 : GW_BF16);
                check_nodes(j, clusters[c].nodes);
                free(j);
            }
        }
    }
}

/* One node has no card: inside it a ring is the reference. */
static void one_node(void **state)
{
    static const uint32_t same[] = {5, 5, 5};
    (void)state;
    job *j = run(3, same, "natural:bits=8", "sra", GW_F32);
    for (uint32_t r = 0; r < 3; r++) {
        const told *t = &j->ranks[r];
        CHECK(t->sent[GW_LINK_INTER] == 0 && t->ring[GW_LINK_INTER] == 0 && t->card == 0 &&
                  t->card_ring == 0,
              "a card that is not there");
        is_near((double)t->ring[GW_LINK_INTRA], 4.0 / 3 * (double)elements_bytes(j), 1e-4,
                "a ring inside", j);
        is_near(gw_compression(t->sent, t->ring),
                (double)t->ring[GW_LINK_INTRA] / (double)t->sent[GW_LINK_INTRA], 1e-9, "inside", j);
    }
    free(j);
    const uint64_t none[GW_LINKS] = {0, 0};
    assert_true(gw_compression(none, none) == 1);
    assert_true(isnan(gw_compression(NULL, none)));
}

/* Four ranks of a node, each of which sends its own payloads: more than a ring. */
static void a_route_that_sends_more(void **state)
{
    static const uint32_t four[] = {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3};
    (void)state;
    job *flat = run(16, four, "natural:bits=8", "sra", GW_BF16);
    job *usual = run(16, four, "natural:bits=8", NULL, GW_BF16);
    CHECK(flat->ranks[0].card > flat->ranks[0].card_ring, "%llu, a ring %llu",
          (unsigned long long)flat->ranks[0].card, (unsigned long long)flat->ranks[0].card_ring);
    CHECK(usual->ranks[0].card < usual->ranks[0].card_ring / 2, "%llu, a ring %llu",
          (unsigned long long)usual->ranks[0].card, (unsigned long long)usual->ranks[0].card_ring);
    free(flat);
    free(usual);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cards_are_counted),
                                       cmocka_unit_test(one_node),
                                       cmocka_unit_test(a_route_that_sends_more)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
