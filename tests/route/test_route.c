/* The grammar and its text: counts, no route twice, every route there and back, and what is refused. */
#include "support/check.h"

enum { BOTH = GW_DEVICE_CPU | GW_DEVICE_GPU, MOST = 4341 };
static gw_route routes[MOST + 1];

static size_t list(uint32_t devices, int additive)
{
    size_t n = 0, counted = 0;
    gw_why why = {""};
    assert_int_equal(gw_route_list(devices, additive, routes, MOST + 1, &n, &why), GW_OK);
    assert_int_equal(gw_route_list(devices, additive, NULL, 0, &counted, &why), GW_OK);
    assert_int_equal(n, counted);
    return n;
}

static size_t hierarchical(size_t n)
{
    size_t found = 0;
    for (size_t i = 0; i < n; i++) {
        found += (size_t)gw_route_is_hierarchical(&routes[i]);
    }
    return found;
}

/* Espresso's figures: 4341 = 63 + 4278 with two devices; 174 = 12 + 162 with one, 0 … 4 encodes. */
static void counts(void **state)
{
    (void)state;
    assert_int_equal(list(BOTH, 0), 4341);
    assert_int_equal(hierarchical(4341), 4278);
    for (uint32_t device = GW_DEVICE_CPU; device <= GW_DEVICE_GPU; device++) {
        assert_int_equal(list(device, 0), 174);
        assert_int_equal(hierarchical(174), 162);
        size_t encodes[5] = {0};
        for (size_t i = 0; i < 174; i++) {
            const uint32_t n = gw_route_encodes(&routes[i]);
            assert_in_range(n, 0, 4);
            encodes[n]++;
            assert_int_equal(gw_route_kind_of(&routes[i]),
                             n == 0 ? GW_ROUTE_UNCOMPRESSED : GW_ROUTE_COMPRESSED);
        }
        static const size_t expected[5] = {9, 59, 72, 30, 4};
        assert_memory_equal(encodes, expected, sizeof expected);
    }
    assert_int_equal(list(GW_DEVICE_CPU, 1), 9);
    assert_int_equal(list(BOTH, 1), 18);
    for (size_t i = 0; i < 18; i++) {
        assert_int_equal(gw_route_kind_of(&routes[i]), GW_ROUTE_ADDITIVE);
        assert_int_equal(gw_route_encodes(&routes[i]), 1);
        assert_int_equal(routes[i].step[0].device, routes[i].step[routes[i].n_steps - 1].device);
    }
    size_t n = 7;
    gw_why why;
    assert_int_equal(gw_route_list(0, 0, NULL, 0, &n, &why), GW_ERR_ARG);
    assert_int_equal(gw_route_list(4, 0, NULL, 0, &n, &why), GW_ERR_ARG);
    assert_int_equal(gw_route_list(BOTH, 0, routes, 4340, &n, &why), GW_ERR_CAPACITY);
    assert_string_equal(why.text, "4341 routes, room for 4340");
    assert_int_equal(n, 7);
}

static int by_bytes(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(gw_route));
}

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void no_route_twice(void **state)
{
    (void)state;
    static uint64_t hashes[MOST + 18];
    size_t n = list(BOTH, 1);
    for (size_t i = 0; i < n; i++) {
        hashes[MOST + i] = gw_route_hash(&routes[i]);
    }
    n = list(BOTH, 0);
    for (size_t i = 0; i < n; i++) {
        hashes[i] = gw_route_hash(&routes[i]);
    }
    qsort(routes, n, sizeof routes[0], by_bytes);
    for (size_t i = 1; i < n; i++) {
        assert_false(gw_route_equal(&routes[i - 1], &routes[i]));
    }
    qsort(hashes, MOST + 18, sizeof hashes[0], by_number);
    for (size_t i = 1; i < MOST + 18; i++) {
        assert_true(hashes[i - 1] != hashes[i]);
    }
}

/* All of them, also with other separators and blanks. */
static void there_and_back(void **state)
{
    (void)state;
    for (int additive = 0; additive <= 1; additive++) {
        const size_t n = list(BOTH, additive);
        for (size_t i = 0; i < n; i++) {
            char text[GW_ROUTE_TEXT], loose[2 * GW_ROUTE_TEXT], again[GW_ROUTE_TEXT];
            gw_route back;
            gw_why why = {""};
            assert_int_equal(gw_route_check(&routes[i], &why), GW_OK);
            assert_int_equal(gw_route_print(&routes[i], text, sizeof text), GW_OK);
            memset(&back, 0x5A, sizeof back);
            CHECK(gw_route_parse(&back, text, &why) == GW_OK, "%s: %s", text, why.text);
            assert_true(gw_route_equal(&back, &routes[i]));
            assert_int_equal(gw_route_print(&back, again, sizeof again), GW_OK);
            assert_string_equal(text, again);
            assert_int_equal(gw_route_print(&back, again, strlen(text) + 1), GW_OK);
            assert_int_equal(gw_route_print(&back, again, strlen(text)), GW_ERR_CAPACITY);
            size_t used = 0;
            loose[used++] = ' ';
            for (const char *c = text; *c != '\0'; c++) {
                if (*c == '\xC2') { /* the dot has two bytes, and blanks on both sides */
                    c++;
                    loose[used++] = i % 2 ? ',' : '.';
                } else if (*c != ' ' || i % 3 == 0) {
                    loose[used++] = *c;
                }
            }
            loose[used] = '\0';
            CHECK(gw_route_parse(&back, loose, &why) == GW_OK, "%s: %s", loose, why.text);
            assert_true(gw_route_equal(&back, &routes[i]));
        }
    }
}

static void names(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"dense", "flat:allreduce"},
        {"gather", "encode@cpu · flat:allgather · decode@cpu"},
        {"sra@gpu",
         "encode@gpu · flat:alltoall · decode@gpu · encode@gpu · flat:allgather · decode@gpu"},
        {"hier-gather",
         "intra:reduce_scatter · encode@cpu · inter:allgather · decode@cpu · intra:allgather"},
        {"sum@cpu", "encode@cpu · flat:allreduce · decode@cpu"}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        char text[GW_ROUTE_TEXT];
        gw_route route;
        assert_int_equal(gw_route_parse(&route, pairs[i][0], NULL), GW_OK);
        assert_int_equal(gw_route_print(&route, text, sizeof text), GW_OK);
        assert_string_equal(text, pairs[i][1]);
    }
    for (size_t i = 0; i < gw_route_name_count(); i++) {
        for (int gpu = 0; gpu <= 1; gpu++) {
            const char *name = gw_route_name_at(i)->name;
            char asked[40], text[40];
            gw_route route;
            const int dense = strstr(name, "dense") != NULL;
            (void)snprintf(asked, sizeof asked, "%s%s", name, dense ? "" : gpu ? "@gpu" : "@cpu");
            assert_int_equal(gw_route_parse(&route, asked, NULL), GW_OK);
            assert_int_equal(gw_route_name_of(&route, text, sizeof text), GW_OK);
            assert_string_equal(text, asked);
            assert_int_equal(gw_route_name_of(&route, text, strlen(asked)), GW_ERR_CAPACITY);
        }
    }
    assert_null(gw_route_name_at(gw_route_name_count()));
    gw_route mixed;
    char text[40];
    assert_int_equal(gw_route_parse(&mixed, "encode@gpu · flat:allgather · decode@cpu", NULL),
                     GW_OK);
    assert_int_equal(gw_route_name_of(&mixed, text, sizeof text), GW_ERR_UNKNOWN);
}

static void refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
        gw_status status;
    } cases[] = {
        {"", "step 1: '' is not LEVEL:COLLECTIVE", GW_ERR_UNKNOWN},
        {" ", "step 1: '' is not", GW_ERR_UNKNOWN},
        {"ring", "no route named 'ring'", GW_ERR_UNKNOWN},
        {"sra@tpu", "sra: no device 'tpu'", GW_ERR_UNKNOWN},
        {"sra@", "sra: no device ''", GW_ERR_UNKNOWN},
        {"dense@cpu", "dense encodes nothing, so it takes no device", GW_ERR_ARG},
        {"encode", "step 1: encode on which device?", GW_ERR_UNKNOWN},
        {"encode@", "step 1: encode on which device?", GW_ERR_UNKNOWN},
        {"encode@fpga · flat:allgather", "step 1: encode on which device?", GW_ERR_UNKNOWN},
        {"flat:allgather@cpu", "step 1: no collective 'allgather@cpu'", GW_ERR_UNKNOWN},
        {"flat:encode", "step 1: no collective 'encode'", GW_ERR_UNKNOWN},
        {"round:allreduce", "step 1: no level 'round'", GW_ERR_UNKNOWN},
        {"flat:allreduce,", "step 2: '' is not", GW_ERR_UNKNOWN},
        {"flat:allreduce, ,", "step 2: '' is not", GW_ERR_UNKNOWN},
        {"flat :allreduce", "step 1: no level 'flat '", GW_ERR_UNKNOWN},
        {"FLAT:allreduce", "step 1: no level 'FLAT'", GW_ERR_UNKNOWN},
        {"flat:allreduce\n", "no collective 'allreduce?'", GW_ERR_UNKNOWN},
        {"flat:allreduce · flat:allreduce",
         "step 2: flat:allreduce cannot stand here; expected the end", GW_ERR_ARG},
        {"flat:allgather",
         "step 1: flat:allgather cannot stand here; expected encode@cpu, "
         "flat:allreduce, flat:reduce_scatter, flat:reduce, intra:reduce_scatter",
         GW_ERR_ARG},
        {"inter:allreduce", "step 1: inter:allreduce cannot stand here", GW_ERR_ARG},
        {"decode@cpu", "step 1: decode@cpu cannot stand here", GW_ERR_ARG},
        {"encode@cpu", "the route ends after step 1; expected", GW_ERR_ARG},
        {"encode@cpu · decode@cpu", "step 2: decode@cpu cannot stand here", GW_ERR_ARG},
        {"encode@cpu · flat:allgather", "the route ends after step 2; expected decode@cpu",
         GW_ERR_ARG},
        /* a pair is fixed by its first step */
        {"flat:reduce_scatter · flat:broadcast",
         "step 2: flat:broadcast cannot stand here; expected "
         "encode@cpu, flat:allgather",
         GW_ERR_ARG},
        {"encode@cpu · flat:gather · decode@cpu · flat:allgather",
         "expected encode@cpu, flat:broadcast", GW_ERR_ARG},
        {"encode@cpu · intra:alltoall · inter:allgather · intra:broadcast", "step 4:", GW_ERR_ARG},
        /* inside a node only pairs */
        {"intra:allreduce", "step 1: intra:allreduce cannot stand here", GW_ERR_ARG},
        {"encode@cpu · intra:allgather", "step 2: intra:allgather cannot stand here", GW_ERR_ARG},
        /* levels */
        {"flat:reduce_scatter · inter:allreduce", "step 2: inter:allreduce", GW_ERR_ARG},
        {"intra:reduce · intra:broadcast", "step 2: intra:broadcast", GW_ERR_ARG},
        /* additive: summed all the way, and on one device */
        {"encode@cpu · flat:allreduce · decode@gpu", "expected decode@cpu", GW_ERR_ARG},
        {"encode@gpu · flat:allreduce · decode@cpu", "expected decode@gpu", GW_ERR_ARG},
        {"encode@cpu · flat:reduce_scatter · decode@cpu · flat:allgather", "step 3: decode@cpu",
         GW_ERR_ARG},
        {"encode@cpu · flat:alltoall · flat:allreduce", "step 3: flat:allreduce", GW_ERR_ARG},
        {"intra:reduce_scatter · encode@cpu · inter:allreduce", "step 3: inter:allreduce",
         GW_ERR_ARG},
        {"encode@cpu,encode@cpu,encode@cpu,encode@cpu,encode@cpu,encode@cpu,encode@cpu,encode@cpu,"
         "encode@cpu,encode@cpu,encode@cpu,encode@cpu,encode@cpu",
         "more than 12 steps", GW_ERR_ARG}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        gw_route route, before;
        gw_why why = {""};
        memset(&route, 0x5A, sizeof route);
        before = route;
        const gw_status status = gw_route_parse(&route, cases[i].text, &why);
        CHECK(status == cases[i].status, "'%s': status %d, '%s'", cases[i].text, status, why.text);
        CHECK(strstr(why.text, cases[i].words) != NULL, "'%s': says '%s'", cases[i].text, why.text);
        assert_true(gw_route_equal(&route, &before)); /* untouched */
        assert_int_equal(gw_route_parse(&route, cases[i].text, NULL), cases[i].status);
    }
    static char long_text[5000];
    gw_route route;
    gw_why why;
    memset(long_text, ' ', sizeof long_text - 1);
    assert_int_equal(gw_route_parse(&route, long_text, &why), GW_ERR_ARG);
    assert_string_equal(why.text, "a route's text has at most 1023 bytes");
    assert_int_equal(gw_route_parse(NULL, "sra", &why), GW_ERR_ARG);
    assert_int_equal(gw_route_parse(&route, NULL, &why), GW_ERR_ARG);
}

/* Values that no parser makes. */
static void odd_values(void **state)
{
    (void)state;
    gw_route route = {0}, sra;
    gw_why why = {""};
    char text[GW_ROUTE_TEXT];
    assert_int_equal(gw_route_check(NULL, &why), GW_ERR_ARG);
    assert_int_equal(gw_route_check(&route, &why), GW_ERR_ARG);
    assert_non_null(strstr(why.text, "the route ends after step 0"));
    assert_int_equal(gw_route_parse(&sra, "sra", NULL), GW_OK);
    for (size_t at = 0; at < sizeof sra; at++) { /* every byte, every value: a route or refused */
        for (unsigned v = 0; v < 256; v++) {
            route = sra;
            memset((char *)&route + at, (int)v, 1);
            if (gw_route_check(&route, &why) == GW_OK) {
                gw_route back;
                assert_int_equal(gw_route_print(&route, text, sizeof text), GW_OK);
                assert_int_equal(gw_route_parse(&back, text, NULL), GW_OK);
                assert_true(gw_route_equal(&back, &route));
            } else {
                assert_int_equal(gw_route_print(&route, text, sizeof text), GW_ERR_ARG);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts),         cmocka_unit_test(no_route_twice),
        cmocka_unit_test(there_and_back), cmocka_unit_test(names),
        cmocka_unit_test(refused),        cmocka_unit_test(odd_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
