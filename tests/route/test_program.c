/* Routes compiled for every rank: run with symbols instead of numbers, every rank ends with the sum of
 * all, by the same operations in the same order, over links that carry the bytes compiled. */
#include "route/symbolic.h"
#include "support/check.h"

static gw_route routes[174 + 9];
enum { N_ROUTES = 174 + 9 };

static int list_routes(void **state)
{
    (void)state;
    size_t n = 0, more = 0;
    assert_int_equal(gw_route_list(GW_DEVICE_CPU, 0, routes, 174, &n, NULL), GW_OK);
    assert_int_equal(gw_route_list(GW_DEVICE_CPU, 1, routes + n, 9, &more, NULL), GW_OK);
    assert_int_equal(n + more, N_ROUTES);
    return 0;
}

static const uint64_t sizes[] = {0, 1, 5, 1000, 100003};
enum { N_SIZES = sizeof sizes / sizeof sizes[0] };

static void run_all(uint32_t ranks, uint32_t ranks_per_node, const char *spec, uint64_t first,
                    uint64_t elements)
{
    const gw_params params = params_of(spec);
    const int additive = (gw_params_flags(&params) & GW_CODEC_ADDITIVE) != 0;
    const int divides = ranks_per_node != 0 && ranks % ranks_per_node == 0;
    for (size_t i = 0; i < N_ROUTES; i++) {
        const gw_route_job job = {.ranks = ranks,
                                  .ranks_per_node = ranks_per_node,
                                  .first = first,
                                  .elements = elements,
                                  .params = &params};
        char text[GW_ROUTE_TEXT];
        gw_program program;
        gw_why why = {""};
        const int fits = additive || gw_route_kind_of(&routes[i]) != GW_ROUTE_ADDITIVE;
        assert_int_equal(gw_route_print(&routes[i], text, sizeof text), GW_OK);
        if (!fits || (gw_route_is_hierarchical(&routes[i]) && !divides)) {
            assert_int_equal(gw_route_compile(&routes[i], &job, &program, &why),
                             GW_ERR_UNSUPPORTED);
            CHECK(strstr(why.text, fits ? "equal numbers of ranks" : "summed without decoding"),
                  "%s: %s", text, why.text);
            continue;
        }
        const char *wrong = symbolic_run(&routes[i], &job, FAULT_NONE);
        CHECK(wrong == NULL, "%s\n%u ranks, %u a node, %llu elements, %s: %s", text, ranks,
              ranks_per_node, (unsigned long long)elements, spec, wrong);
    }
}

static void every_rank_gets_the_sum(void **state)
{
    (void)state;
    static const uint32_t ranks[] = {1, 2, 3, 4, 6, 8};
    static const char *const specs[] = {"cast:to=f32", "dither:bits=4,bucket=64",
                                        "topk:density=0.01", "randk:density=0.1", "adacomp:bin=50"};
    for (size_t p = 0; p < sizeof ranks / sizeof ranks[0]; p++) {
        for (uint32_t k = 0; k <= ranks[p] + 1; k++) {
            for (size_t n = 0; n < N_SIZES; n++) {
                for (size_t s = 0; s < sizeof specs / sizeof specs[0]; s++) {
                    run_all(ranks[p], k, specs[s], 0, sizes[n]);
                }
            }
        }
    }
    run_all(6, 3, "dither:bits=4,bucket=64", 640, 1000); /* a piece of a tensor */
    run_all(4, 2, "cast:to=f32", 8192, 100003);
}

static gw_nodes *nodes_of(const uint32_t *node_of, uint32_t ranks)
{
    gw_nodes *nodes = NULL;
    gw_why why = {""};
    CHECK(gw_nodes_create(node_of, ranks, &nodes, &why) == GW_OK, "%s", why.text);
    return nodes;
}

/* A hierarchical route whose payloads of a node go on to other nodes as they are. */
static int forwards(const gw_route *route)
{
    int coded = 0, collected = 0;
    for (unsigned i = 0; i < route->n_steps && gw_route_kind_of(route) == GW_ROUTE_COMPRESSED;
         i++) {
        const gw_route_step s = route->step[i];
        coded = s.op == GW_OP_ENCODE ? 1 : s.op == GW_OP_DECODE ? 0 : coded;
        collected = coded && (collected || s.level == GW_LEVEL_INTRA);
        if (collected && s.level == GW_LEVEL_INTER) {
            return 1;
        }
    }
    return 0;
}

/* Nodes of any sizes, and ranks that are not in the order of nodes: all routes but those that mix payloads of unequal
 * nodes, which are refused by name. */
static void nodes_of_any_size(void **state)
{
    (void)state;
    static const struct {
        uint32_t ranks, node_of[8];
    } maps[] = {{3, {0, 0, 1}},
                {3, {0, 1, 1}},
                {3, {5, 9, 5}},
                {4, {0, 1, 0, 1}},
                {4, {0, 1, 1, 0}},
                {4, {0, 1, 2, 2}},
                {5, {0, 0, 1, 1, 1}},
                {6, {0, 0, 0, 1, 1, 2}},
                {8, {0, 0, 0, 1, 1, 1, 2, 2}},
                {8, {2, 1, 0, 0, 1, 2, 2, 0}},
                {4, {0, 0, 0, 0}},
                {3, {0, 1, 2}}};
    static const char *const specs[] = {"dither:bits=4,bucket=64", "topk:density=0.01",
                                        "randk:density=0.1", "cast:to=f32"};
    uint32_t refused = 0;
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++) {
        gw_nodes *nodes = nodes_of(maps[i].node_of, maps[i].ranks);
        for (size_t j = 0; j < N_ROUTES * N_SIZES * 4; j++) {
            const gw_route *route = &routes[j % N_ROUTES];
            const gw_params params = params_of(specs[j / N_ROUTES % 4]);
            const gw_route_job job = {.ranks = maps[i].ranks,
                                      .elements = sizes[j / N_ROUTES / 4],
                                      .params = &params,
                                      .nodes = nodes};
            gw_program program;
            gw_why why = {""};
            if (gw_route_fits(route, &params, NULL) != GW_OK) {
                continue;
            }
            if (nodes->least != nodes->most && forwards(route)) {
                assert_int_equal(gw_route_compile(route, &job, &program, &why), GW_ERR_UNSUPPORTED);
                CHECK(strstr(why.text, "payloads must be decoded between"), "%s", why.text);
                refused++;
                continue;
            }
            char text[GW_ROUTE_TEXT];
            (void)gw_route_print(route, text, sizeof text);
            const char *wrong = symbolic_run(route, &job, FAULT_NONE);
            CHECK(wrong == NULL, "%s\nmap %zu, %llu elements, %s: %s", text, i,
                  (unsigned long long)job.elements, specs[j / N_ROUTES % 4], wrong);
        }
        gw_nodes_destroy(nodes);
    }
    assert_true(refused > 0);
}

/* A map of equal nodes in order is what ranks_per_node says. */
static void a_regular_map_changes_nothing(void **state)
{
    (void)state;
    static const uint32_t node_of[] = {7, 7, 3, 3, 5, 5};
    gw_nodes *nodes = nodes_of(node_of, 6);
    const gw_params params = params_of("natural:bits=8");
    for (size_t i = 0; i < N_ROUTES; i++) {
        for (uint32_t rank = 0; rank < 6; rank++) {
            gw_route_job job = {6, 2, rank, 0, 100003, &params, 0, 0, NULL};
            gw_program by_number, by_map;
            if (gw_route_compile(&routes[i], &job, &by_number, NULL) != GW_OK) {
                continue;
            }
            job.nodes = nodes;
            job.ranks_per_node = 0;
            assert_int_equal(gw_route_compile(&routes[i], &job, &by_map, NULL), GW_OK);
            for (uint32_t m = 0; m < by_map.n_moves; m++) {
                gw_move *a = &by_number.move[m], *b = &by_map.move[m];
                for (uint32_t k = 0; a->step.level != 0 && k < a->group.size; k++) {
                    assert_int_equal(gw_group_rank(&a->group, k), gw_group_rank(&b->group, k));
                }
                assert_true(a->group.size == b->group.size && a->group.member == b->group.member);
                a->group = b->group;
                assert_memory_equal(a, b, sizeof *a);
            }
        }
    }
    gw_nodes_destroy(nodes);
}

/* ---- the usual route ---- */

static void usual_routes(void **state)
{
    (void)state;
    static const uint32_t irregular[] = {0, 0, 1};
    gw_nodes *nodes = nodes_of(irregular, 3);
    const struct {
        const char *spec, *name;
        gw_route_job job;
        gw_device device;
    } cases[] = {{NULL, "dense", {.ranks = 4}, GW_DEVICE_CPU},
                 {NULL, "dense", {.ranks = 4, .ranks_per_node = 1}, GW_DEVICE_GPU},
                 {NULL, "dense", {.ranks = 4, .ranks_per_node = 4}, GW_DEVICE_CPU},
                 {NULL, "hier-dense", {.ranks = 4, .ranks_per_node = 2}, GW_DEVICE_GPU},
                 {NULL, "hier-dense", {.ranks = 3, .nodes = nodes}, GW_DEVICE_CPU},
                 {"natural", "sra", {.ranks = 4}, GW_DEVICE_CPU},
                 {"natural", "hier-sra", {.ranks = 4, .ranks_per_node = 2}, GW_DEVICE_CPU},
                 {"dither:bits=4", "hier-sra@gpu", {.ranks = 3, .nodes = nodes}, GW_DEVICE_GPU},
                 {"topk", "gather", {.ranks = 4, .ranks_per_node = 4}, GW_DEVICE_CPU},
                 {"topk", "hier-gather", {.ranks = 4, .ranks_per_node = 2}, GW_DEVICE_CPU},
                 {"adacomp", "hier-gather", {.ranks = 3, .nodes = nodes}, GW_DEVICE_CPU},
#ifndef GW_TESTS_NO_BLAS
                 {"lowrank", "sum", {.ranks = 4}, GW_DEVICE_CPU},
                 {"lowrank", "hier-sum", {.ranks = 4, .ranks_per_node = 2}, GW_DEVICE_CPU},
#endif
                 {"sign", "gather@gpu", {.ranks = 6, .ranks_per_node = 4}, GW_DEVICE_GPU}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const gw_params params = params_of(cases[i].spec != NULL ? cases[i].spec : "natural");
        const gw_params *given = cases[i].spec != NULL ? &params : NULL;
        gw_route route, wanted;
        gw_why why = {""};
        CHECK(gw_route_usual(given, &cases[i].job, cases[i].device, &route, &why) == GW_OK, "%s",
              why.text);
        assert_int_equal(gw_route_parse(&wanted, cases[i].name, NULL), GW_OK);
        CHECK(gw_route_equal(&route, &wanted), "case %zu: not %s", i, cases[i].name);
    }
    gw_nodes_destroy(nodes);
}

/* Mistakes that published code makes, and some more, are seen. */
static void control(void **state)
{
    (void)state;
    static const struct {
        symbolic_fault fault;
        const char *route, *words;
    } cases[] = {{FAULT_OWN_FIRST, "gather", "another order of operations"},
                 {FAULT_OWN_LEFT_OUT, "gather", "counts 0 times"},
                 {FAULT_OVERWRITE, "sra", "counts 0 times"},
                 {FAULT_ROOT_ALONE, "star", "rank 0 counts 4 times"},
                 {FAULT_ROOT_ALONE, "gather", "rank 0 counts 4 times"},
                 {FAULT_OTHER_ROOT, "star", "nobody has it"},
                 {FAULT_OWN_DRAWS, "hier2-gather", "another order of operations"},
                 {FAULT_SHIFTED_CUT, "sra", "other range or bytes than compiled"}};
    const gw_params params = params_of("natural:bits=8");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const gw_route_job job = {
            .ranks = 4, .ranks_per_node = 2, .elements = 100003, .params = &params};
        gw_route route;
        assert_int_equal(gw_route_parse(&route, cases[i].route, NULL), GW_OK);
        assert_null(symbolic_run(&route, &job, FAULT_NONE));
        const char *wrong = symbolic_run(&route, &job, cases[i].fault);
        CHECK(wrong != NULL && strstr(wrong, cases[i].words), "%s with fault %d: %s",
              cases[i].route, cases[i].fault, wrong ? wrong : "not seen");
    }
}

/* ---- bytes by formula ---- */

static gw_program compiled(const char *name, const gw_route_job *job)
{
    gw_route route;
    gw_program program;
    gw_why why = {""};
    assert_int_equal(gw_route_parse(&route, name, &why), GW_OK);
    CHECK(gw_route_compile(&route, job, &program, &why) == GW_OK, "%s: %s", name, why.text);
    return program;
}

/* Numbers of 16 bits are half of fp32's bytes on uncompressed routes; others do not look at the width. */
static void bytes_of_width(void **state)
{
    (void)state;
    const gw_params params = params_of("cast:to=f32");
    for (size_t i = 0; i < N_ROUTES; i++) {
        const int plain = gw_route_kind_of(&routes[i]) == GW_ROUTE_UNCOMPRESSED;
        for (uint32_t rank = 0; rank < 6; rank++) {
            gw_route_job job = {.ranks = 6,
                                .ranks_per_node = 3,
                                .rank = rank,
                                .elements = 100003,
                                .params = &params,
                                .width = 4};
            gw_program four, two;
            assert_int_equal(gw_route_compile(&routes[i], &job, &four, NULL), GW_OK);
            job.width = 2;
            assert_int_equal(gw_route_compile(&routes[i], &job, &two, NULL), GW_OK);
            for (int link = 0; link < GW_LINKS; link++) {
                assert_int_equal(four.sent[link], (plain ? 2 : 1) * two.sent[link]);
                assert_int_equal(four.received[link], (plain ? 2 : 1) * two.received[link]);
            }
            assert_int_equal(four.move[0].before.bytes, (plain ? 2 : 1) * two.move[0].before.bytes);
            assert_true(two.sent[0] + two.sent[1] != 0 || rank != 0);
        }
    }
}

/* What docs/routes.md says of the everyday names, with E divisible by everything. */
static void bytes_of_names(void **state)
{
    (void)state;
    enum { P = 8, K = 2, N = P / K };
    const uint64_t elements = (uint64_t)P * 4096 * 3;
    const gw_params params = params_of("natural:bits=8");
    const uint64_t b = bound_of(&params, elements), e = 4 * elements;
    const struct {
        const char *name;
        uint64_t sent; /* by each rank */
        uint32_t encodes;
    } cases[] = {
        {"dense", 2 * (P - 1) * e / P, 0},
        {"gather", (P - 1) * b, 1},
        {"sra", 2 * (P - 1) * b / P, 2},
        {"hier-dense", 2 * (K - 1) * e / K + 2 * (N - 1) * e / K / N, 0},
        {"hier-gather", 2 * (K - 1) * e / K + (N - 1) * b / K, 1},
        {"hier-sra", 2 * (K - 1) * e / K + 2 * (N - 1) * b / K / N, 2},
        {"hier2-gather", 2 * (K - 1) * b / K + (N - 1) * b / K, 3},
        {"hier2-sra", 2 * (K - 1) * b / K + 2 * (N - 1) * b / K / N, 3},
        /* payloads forwarded as they are: N of every piece come back, K are collected on the way */
        {"encode@cpu,flat:alltoall,flat:allgather,decode@cpu", (P - 1) * b / P + (P - 1) * b, 1},
    };
    for (uint32_t rank = 0; rank < P; rank++) {
        const gw_route_job job = {P, K, rank, 0, elements, &params, 0, 0, NULL};
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            const gw_program p = compiled(cases[i].name, &job);
            CHECK(p.sent[0] + p.sent[1] == cases[i].sent, "%s: rank %u sends %llu + %llu, not %llu",
                  cases[i].name, rank, (unsigned long long)p.sent[0], (unsigned long long)p.sent[1],
                  (unsigned long long)cases[i].sent);
            assert_int_equal(p.received[0] + p.received[1], cases[i].sent);
            assert_int_equal(p.encodes, cases[i].encodes);
        }
        /* the root's burden */
        const gw_program star = compiled("star", &job);
        const uint64_t sent = star.sent[0] + star.sent[1];
        const uint64_t received = star.received[0] + star.received[1];
        assert_int_equal(sent, rank == 0 ? (P - 1) * b : b);
        assert_int_equal(received, sent);
        assert_int_equal(star.received[GW_LINK_INTRA], rank == 0 ? (K - 1) * b : rank < K ? b : 0);
    }
}

static void points_of(const char *text, const uint32_t *points, uint32_t n)
{
    const gw_params params = params_of("cast:to=f32");
    const gw_route_job job = {4, 2, 3, 0, 100, &params, 0, 0, NULL};
    const gw_program p = compiled(text, &job);
    uint32_t found = 0;
    for (uint32_t i = 0; i < p.n_moves; i++) {
        if (p.move[i].step.op == GW_OP_ENCODE) {
            CHECK(found < n && p.move[i].point == points[found], "%s: point %u", text,
                  p.move[i].point);
            assert_int_equal(p.move[i].owner, p.move[i].point == 3 ? 1 : 3);
            found++;
        }
    }
    assert_int_equal(found, n);
}

/* An encode point keeps its number when a route changes elsewhere. */
static void points(void **state)
{
    (void)state;
    points_of("gather", (const uint32_t[]){0}, 1);
    points_of("sra", (const uint32_t[]){0, 2}, 2);
    points_of("hier-gather", (const uint32_t[]){1}, 1);
    points_of("hier-sra", (const uint32_t[]){1, 2}, 2);
    points_of("hier2-gather", (const uint32_t[]){0, 1, 3}, 3);
    points_of("sum", (const uint32_t[]){0}, 1);
}

/* Selecting codecs number their elements from 0 in each piece; the others through the tensor. */
static void streams(void **state)
{
    (void)state;
    const gw_params topk = params_of("topk:values=natural"), natural = params_of("natural");
    const gw_stream base = {.seed = 5, .step = 6, .tensor = 7, .point = 99, .rank = 99, .first = 9};
    gw_route_job job = {4, 2, 3, 0, 40960, &topk, 0, 0, NULL};
    gw_program p = compiled("sra", &job);
    gw_stream s = gw_program_stream(&p, &p.move[0], 2, base);
    assert_true(s.seed == 5 && s.step == 6 && s.tensor == 7);
    assert_true(s.point == 8 && s.rank == 3 && s.first == 0);
    job.params = &natural;
    p = compiled("sra", &job);
    s = gw_program_stream(&p, &p.move[0], 2, base);
    assert_true(s.point == 0 && s.rank == 3 && s.first == 6 * 4096); /* 3 + 3 + 2 + 2 blocks */
    s = gw_program_stream(&p, &p.move[3], 0, base);
    assert_true(s.point == 2 && s.rank == 3 && s.first == 8 * 4096);
}

/* ---- cuts ---- */

static void cuts(void **state)
{
    (void)state;
    for (uint64_t grain = 1; grain <= 64; grain *= 4) {
        for (uint64_t count = 0; count < 200; count++) {
            for (uint32_t pieces = 1; pieces <= 9; pieces++) {
                uint64_t at = 1000, most = 0, least = UINT64_MAX;
                for (uint32_t i = 0; i < pieces; i++) {
                    const gw_range r = gw_range_cut((gw_range){1000, count}, grain, pieces, i);
                    const uint64_t blocks = (r.count + grain - 1) / grain;
                    assert_int_equal(r.first, at);
                    assert_true(r.count == 0 || (r.first - 1000) % grain == 0);
                    at += r.count;
                    most = blocks > most ? blocks : most;
                    least = blocks < least ? blocks : least;
                }
                assert_int_equal(at, 1000 + count);
                assert_true(most - least <= 1);
            }
        }
    }
}

/* ---- refusals ---- */

static void jobs_refused(void **state)
{
    (void)state;
    const gw_params natural = params_of("natural"), f32 = params_of("cast:to=f32"),
                    topk = params_of("topk");
    gw_params bad = natural;
    bad.value[0] = 77;
    const struct {
        const char *route, *words;
        gw_route_job job;
        gw_status status;
    } cases[] = {
        {"dense", "rank 0 of 0", {0, 1, 0, 0, 5, NULL, 0, 0, NULL}, GW_ERR_RANGE},
        {"dense", "rank 4 of 4", {4, 1, 4, 0, 5, NULL, 0, 0, NULL}, GW_ERR_RANGE},
        {"dense", "numbers of 3 bytes", {4, 1, 0, 0, 5, NULL, 0, 3, NULL}, GW_ERR_RANGE},
        {"dense", "1 to 16384 ranks", {16385, 1, 0, 0, 5, NULL, 0, 0, NULL}, GW_ERR_RANGE},
        {"dense",
         "4 ranks: at most",
         {4, 1, 0, 0, (uint64_t)1 << 60, NULL, 0, 0, NULL},
         GW_ERR_RANGE},
        {"sum",
         "4 ranks: at most",
         {4, 1, 0, 0, 5, &f32, (uint64_t)1 << 60, 0, NULL},
         GW_ERR_RANGE},
        {"hier-dense",
         "6 ranks, 4 a node; flat routes run",
         {6, 4, 0, 0, 5, NULL, 0, 0, NULL},
         GW_ERR_UNSUPPORTED},
        {"hier-dense", "6 ranks, 0 a node", {6, 0, 0, 0, 5, NULL, 0, 0, NULL}, GW_ERR_UNSUPPORTED},
        {"hier-dense",
         "6 ranks, 12 a node",
         {6, 12, 0, 0, 5, NULL, 0, 0, NULL},
         GW_ERR_UNSUPPORTED},
        {"sra", "no codec given", {4, 1, 0, 0, 5, NULL, 0, 0, NULL}, GW_ERR_ARG},
        {"sra", "bits=77", {4, 1, 0, 0, 5, &bad, 0, 0, NULL}, GW_ERR_RANGE},
        {"sum",
         "natural with these settings cannot be summed",
         {4, 1, 0, 0, 5, &natural, 0, 0, NULL},
         GW_ERR_UNSUPPORTED},
        {"sra",
         "begins at element 100, which is not a multiple",
         {4, 1, 0, 100, 5, &natural, 0, 0, NULL},
         GW_ERR_RANGE},
        {"sra",
         "begins at element 4096, and this codec selects",
         {4, 1, 0, 4096, 5, &topk, 0, 0, NULL},
         GW_ERR_RANGE},
        {"flat:reduce,encode@cpu,flat:broadcast,decode@cpu", /* rank 0 alone encodes */
         "step 2: topk selects",
         {4, 1, 3, 0, (uint64_t)1 << 32, &topk, 0, 0, NULL},
         GW_ERR_UNSUPPORTED},
        {"flat:reduce_scatter,encode@cpu,flat:allgather,decode@cpu", /* rank 0's piece is too long */
         "step 2: topk selects",
         {4, 1, 3, 0, ((uint64_t)1 << 34) - 3, &topk, 0, 0, NULL},
         GW_ERR_UNSUPPORTED},
        {"gather",
         "step 1: topk selects among at most 2^32 - 1 elements, not 4294967296",
         {4, 1, 0, 0, (uint64_t)1 << 32, &topk, 0, 0, NULL},
         GW_ERR_UNSUPPORTED}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_route route;
        gw_program program, before;
        gw_why why = {""};
        memset(&program, 0x5A, sizeof program);
        memcpy(&before, &program, sizeof program);
        assert_int_equal(gw_route_parse(&route, cases[i].route, NULL), GW_OK);
        const gw_status status = gw_route_compile(&route, &cases[i].job, &program, &why);
        CHECK(status == cases[i].status, "%zu: status %d, %s", i, status, why.text);
        CHECK(strstr(why.text, cases[i].words), "%zu: %s", i, why.text);
        assert_memory_equal(&program, &before, sizeof program);
    }
    /* in pieces it fits */
    const gw_route_job job = {4, 1, 0, 0, (uint64_t)1 << 32, &topk, 0, 0, NULL};
    (void)compiled("sra", &job);
}

/* The most ranks and elements: sums of bytes stay exact. */
static void large(void **state)
{
    (void)state;
    const gw_params topk = params_of("topk:density=1");
    const uint64_t elements = ((uint64_t)1 << 63) / 32 / 16384 / 16384;
    const gw_route_job job = {16384, 8, 16383, 0, elements, &topk, 0, 0, NULL};
    const gw_program p = compiled("encode@cpu,flat:gather,flat:broadcast,decode@cpu", &job);
    const gw_program f = compiled("encode@cpu,flat:alltoall,flat:allgather,decode@cpu", &job);
    const uint64_t piece = bound_of(&topk, elements / 16384);
    assert_int_equal(p.largest_bundle, 16384 * bound_of(&topk, elements));
    assert_int_equal(f.largest_bundle, 16384 * 16384 * piece);
    assert_int_equal(f.sent[0] + f.sent[1], 16383 * piece + (uint64_t)16383 * 16384 * piece);
}

/* A caller that knows its buffers (low rank) says how many numbers are summed. */
static void numbers_given(void **state)
{
    (void)state;
    const gw_params f32 = params_of("cast:to=f32"), randk = params_of("randk:density=0.1");
    gw_route_job job = {4, 2, 1, 0, 100000, &f32, 400, 0, NULL};
    assert_int_equal(compiled("sum", &job).move[1].sent[1], 2 * 2 * 400);
    job.numbers = 0;
    assert_int_equal(compiled("sum", &job).move[1].sent[1], 2 * 2 * 100000);
    job.params = &randk; /* 10000 values behind the key, which all ranks know */
    assert_int_equal(compiled("sum", &job).move[1].sent[1], 2 * 2 * 10000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_rank_gets_the_sum),
                                       cmocka_unit_test(nodes_of_any_size),
                                       cmocka_unit_test(a_regular_map_changes_nothing),
                                       cmocka_unit_test(usual_routes),
                                       cmocka_unit_test(control),
                                       cmocka_unit_test(bytes_of_names),
                                       cmocka_unit_test(bytes_of_width),
                                       cmocka_unit_test(points),
                                       cmocka_unit_test(streams),
                                       cmocka_unit_test(cuts),
                                       cmocka_unit_test(jobs_refused),
                                       cmocka_unit_test(large),
                                       cmocka_unit_test(numbers_given)};
    return cmocka_run_group_tests(tests, list_routes, NULL);
}
