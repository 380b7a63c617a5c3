/* Ranks that do not want the same are told who differs and in what, on every rank; nobody hangs, and what
 * can be put right can be agreed upon again. */
#include "comm/faulty.h"
#include "support/check.h"
#include "support/steps.h"

enum { RANKS = 4, ODD = 2 }; /* the odd one */

typedef struct job {
    gw_step_config odd;   /* of the odd rank */
    const char *words[2]; /* that all must say; the second may be NULL */
    const char *name, *long_name;
    const char *spec, *route;
    uint64_t elements;
    gw_dtype dtype;
    uint32_t layers;
    uint64_t number;
} job;

static int says(const gw_why *why, const char *word)
{
    if (word != NULL && strstr(why->text, word) == NULL) {
        print_error("'%s' has no '%s'\n", why->text, word);
        return 0;
    }
    return 1;
}

/* The odd one, and somebody else. */
static void check_words(const job *j, const gw_why *why)
{
    RANK_TRUE(says(why, "rank 2") && says(why, j->words[0]) && says(why, j->words[1]), why->text);
    RANK_TRUE(strstr(why->text, "rank 0") != NULL || strstr(why->text, "rank 1") != NULL ||
                  strstr(why->text, "rank 3") != NULL,
              why->text);
}

/* ---- in create ---- */

static void create_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    const job *j = arg;
    gw_why why = {""};
    gw_step *step = NULL;
    gw_step_config config = {.comm = comm, .ranks_per_node = 2, .seed = 1, .timeout = 60};
    if (rank == ODD) {
        config = j->odd;
        config.comm = comm;
        config.timeout = 60;
    }
    RANK_TRUE(gw_step_create(&config, &step, &why) == GW_ERR_DISAGREE && step == NULL, why.text);
    check_words(j, &why);
}

static void refuse_config(gw_step_config odd, const char *word, const char *value)
{
    const gw_threads_config world = {.ranks = RANKS, .ranks_per_node = 2};
    job j = {.odd = odd, .words = {word, value}};
    ranks_run(&world, create_main, &j);
}

static void other_settings(void **state)
{
    (void)state;
    const gw_step_config same = {.ranks_per_node = 2, .seed = 1};
    gw_step_config odd = same;
    odd.seed = 77;
    refuse_config(odd, "seed", "77");
    odd = same;
    odd.lanes = 2;
    refuse_config(odd, "lanes", " 6");
    odd = same;
    odd.piece = 4096;
    refuse_config(odd, "piece", "4096");
    odd = same;
    odd.fuse_below = 5;
    refuse_config(odd, "fuse_below", " 5");
    odd = same;
    odd.ranks_per_node = 1;
    refuse_config(odd, "ranks_per_node", NULL);
}

/* The first bytes a rank sends are its library's version: here it says another one. */
static void version_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    const job *j = arg;
    gw_why why = {""};
    gw_step *step = NULL;
    comm = faulty_wrap_unsealed(comm, (fault){rank == ODD ? FAULT_LIE : FAULT_NONE, 0, 0});
    RANK_TRUE(comm != NULL, "no memory");
    const gw_step_config config = {.comm = comm, .timeout = 60};
    RANK_TRUE(gw_step_create(&config, &step, &why) == GW_ERR_DISAGREE && step == NULL, why.text);
    check_words(j, &why);
    comm->table->close(comm);
}

static void another_library_version(void **state)
{
    (void)state;
    const gw_threads_config world = {.ranks = RANKS};
    char odd[64];
    (void)snprintf(odd, sizeof odd, " %d.%d.%d", GW_VERSION_MAJOR, GW_VERSION_MINOR,
                   GW_VERSION_PATCH ^ 0x40);
    job j = {.words = {"library version", odd}};
    ranks_run(&world, version_main, &j);
}

/* ---- in agree ---- */

static void build(gw_step *step, const job *j, int odd)
{
    gw_why why = {""};
    uint32_t layer = 0;
    for (uint32_t i = 0; i < (odd && j->layers != 0 ? j->layers : 3); i++) {
        char name[160];
        const uint64_t n = odd && i == 1 && j->elements != 0 ? j->elements : 100 + i;
        const gw_dtype dtype = odd && i == 1 && j->dtype != 0 ? j->dtype : GW_F32;
        (void)snprintf(name, sizeof name, "%s%u", j->long_name != NULL ? j->long_name : "w", i);
        if (odd && i == 1 && j->name != NULL) {
            (void)snprintf(name, sizeof name, "%s", j->name);
        }
        RANK_OK(gw_step_add(step, name, &n, 1, dtype, &layer, &why), why.text);
    }
}

static void set_plan(gw_step *step, const char *spec, const char *route)
{
    gw_why why = {""};
    gw_route parsed;
    const gw_params params = params_of(spec);
    RANK_OK(gw_route_parse(&parsed, route, &why), why.text);
    RANK_OK(gw_step_plan(step, 1, &params, &parsed, &why), why.text);
}

static void agree_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)all;
    const job *j = arg;
    gw_why why = {""};
    gw_step *step = NULL;
    const int odd = rank == ODD;
    const gw_step_config config = {.comm = comm, .ranks_per_node = 2, .timeout = 60};
    RANK_OK(gw_step_create(&config, &step, &why), why.text);
    build(step, j, odd);
    set_plan(step, "topk:density=0.1", "hier2-sra");
    if (odd && j->spec != NULL) {
        set_plan(step, j->spec, j->route);
    }
    if (odd) {
        gw_step_set_number(step, j->number);
    }
    RANK_TRUE(gw_step_agree(step, &why) == GW_ERR_DISAGREE, why.text);
    check_words(j, &why);
    const gw_tensor t = {NULL, 0, GW_F32};
    RANK_TRUE(gw_step_post(step, 0, &t, &why) == GW_ERR_STATE, "post after a disagreement");
    if (j->spec != NULL) { /* put right */
        set_plan(step, "topk:density=0.1", "hier2-sra");
        RANK_OK(gw_step_agree(step, &why), why.text);
    }
    gw_step_destroy(step);
}

static void refuse(const job *j)
{
    const gw_threads_config world = {.ranks = RANKS, .ranks_per_node = 2};
    ranks_run(&world, agree_main, (void *)(uintptr_t)j);
}

static void other_layers(void **state)
{
    (void)state;
    refuse(&(job){.layers = 2, .words = {"layers: ", " 2"}});
    refuse(&(job){.name = "v", .words = {"layer 1", "'v'"}});
    refuse(&(job){.elements = 55, .words = {"'w1'", "55 elements"}});
    refuse(&(job){.dtype = GW_F16, .words = {"'w1'", "f16"}});
    refuse(&(job){.number = 9, .words = {"step number", " 9"}});
    /* names that begin alike */
    char base[121], name[130];
    memset(base, 'n', 120);
    base[120] = '\0';
    (void)snprintf(name, sizeof name, "%s_", base);
    refuse(&(job){.long_name = base, .name = name, .words = {"layer 1", "hash"}});
}

static void other_plans(void **state)
{
    (void)state;
    refuse(&(job){.spec = "topk:density=0.2", .route = "hier2-sra", .words = {"'w1'", "0.2"}});
    refuse(&(job){.spec = "topk:density=0.1", .route = "gather", .words = {"'w1'", "gather"}});
    /* two long routes that differ at the end */
    refuse(&(job){.spec = "topk:density=0.1",
                  .route = "encode@cpu,intra:alltoall,decode@cpu,encode@cpu,inter:alltoall,"
                           "decode@cpu,encode@cpu,inter:allgather,decode@cpu,intra:allgather",
                  .words = {"the route is"}});
}

/* A rank that never comes: the others say so in time, and what they lent is theirs again. */
static void absent_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    (void)arg;
    gw_why why = {""}, again = {""};
    gw_step *step = NULL;
    uint32_t layer = 0;
    const uint64_t n = 10;
    const gw_step_config config = {.comm = comm, .timeout = 0.3};
    RANK_OK(gw_step_create(&config, &step, &why), why.text);
    RANK_OK(gw_step_add(step, "w", &n, 1, GW_F32, &layer, &why), why.text);
    if (rank != ODD) {
        const gw_status status = gw_step_agree(step, &why);
        RANK_TRUE(status == GW_ERR_TIMEOUT || status == GW_ERR_PEER, why.text);
        RANK_TRUE(says(&why, "rank 2"), why.text);
        RANK_TRUE(gw_step_agree(step, &again) == status && strcmp(why.text, again.text) == 0,
                  "another error the second time");
    }
    ranks_meet(all);
    if (rank == ODD) { /* much too late */
        RANK_TRUE(gw_step_agree(step, &why) == GW_ERR_PEER, why.text);
    }
    gw_step_destroy(step);
}

static void a_rank_that_never_agrees(void **state)
{
    (void)state;
    const gw_threads_config world = {.ranks = RANKS};
    ranks_run(&world, absent_main, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_settings),
        cmocka_unit_test(another_library_version),
        cmocka_unit_test(other_layers),
        cmocka_unit_test(other_plans),
        cmocka_unit_test(a_rank_that_never_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
