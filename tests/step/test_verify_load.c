/* Means that ranks had not compared before a checkpoint are compared after it was loaded. One rank decodes a number wrong;
 * all ranks save, end, and go on in a new job of as many ranks, of more, or without one of them. */
#include "support/check.h"
#include "support/steps.h"

#include "codec/codec_impl.h"

enum { RANKS = 4, ODD = 2, BEGUN = 4, BAD = 2, MOST = 6 };

static const steps_layer layers[] = {{900, NULL, NULL, 0},
                                     {9000, "natural:bits=8", "gather", 0},
                                     {700, "topk:density=0.1", "gather", 0}};
enum { LAYERS = sizeof layers / sizeof layers[0] };

typedef struct job {
    uint32_t every; /* of verify_every */
    int spoil;      /* the odd rank decodes wrong in step BAD */
    uint32_t lost;  /* whose checkpoint is; RANKS: none */
    gw_feedback_blob saved[RANKS];
    gw_status asked[MOST], stepped[MOST];
    gw_why words[MOST];
} job;

static gw_codec clone;
static const gw_codec *natural;
static _Thread_local int spoilt;

static void decode(const gw_coding *coding, const uint8_t *payload, size_t n, gw_apply how,
                   float *out)
{
    natural->decode(coding, payload, n, how, out);
    if (spoilt && n != 0) {
        out[n / 2] += 1;
    }
}

static void open_steps(steps *s, const job *j, gw_comm *comm)
{
    const gw_step_config config = {
        .comm = comm, .lanes = 1, .verify_every = j->every, .timeout = 60};
    gw_params params;
    gw_route route;
    steps_open(s, &config, layers, LAYERS);
    RANK_OK(gw_params_parse(&params, layers[1].spec, NULL), "natural");
    RANK_OK(gw_route_parse(&route, layers[1].route, NULL), "gather");
    params.codec = &clone;
    RANK_OK(gw_step_plan(s->step, 1, &params, &route, NULL), "a clone of natural");
}

static void save_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    gw_why why = {""};
    size_t bytes = 0;
    steps s;
    open_steps(&s, j, comm);
    steps_agree(&s);
    for (uint64_t step = 0; step < BEGUN; step++) {
        spoilt = j->spoil && rank == ODD && step == BAD;
        steps_run(&s, step + 1);
    }
    spoilt = 0;
    gw_feedback *store = gw_step_feedback(s.step);
    RANK_OK(gw_feedback_save_bytes(store, &bytes, &why), why.text);
    void *blob = malloc(bytes);
    RANK_OK(gw_feedback_save(store, blob, bytes, &bytes, &why), why.text);
    j->saved[rank] = (gw_feedback_blob){blob, bytes};
    ranks_meet(all);
    steps_close(&s);
}

static void load_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    gw_why *why = &j->words[rank];
    steps s;
    open_steps(&s, j, comm);
    gw_step_set_number(s.step, BEGUN);
    steps_agree(&s);
    const size_t n = rank < RANKS && rank != j->lost ? 1 : 0;
    RANK_OK(gw_feedback_load_surviving(gw_step_feedback(s.step), RANKS, &j->saved[rank % RANKS], n,
                                       NULL, why),
            why->text);
    *why = (gw_why){""};
    j->asked[rank] = j->every != GW_STEP_VERIFY_NEVER ? gw_step_verify(s.step, why) : GW_OK;
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < LAYERS && status == GW_OK; i++) {
        const gw_tensor t = {s.gradient[i], layers[i].elements, GW_F32};
        steps_fill(&s, i, BEGUN + 1);
        status = gw_step_post(s.step, i, &t, NULL);
    }
    j->stepped[rank] = status == GW_OK ? gw_step_wait(s.step, NULL, NULL) : status;
    ranks_meet(all);
    steps_close(&s);
}

/* `expected` of gw_step_verify in the new job, on every rank. */
static void go_on(job j, uint32_t world, gw_status expected)
{
    ranks_run(&(gw_threads_config){.ranks = RANKS}, save_main, &j);
    ranks_run(&(gw_threads_config){.ranks = world}, load_main, &j);
    for (uint32_t r = 0; r < world; r++) {
        CHECK(j.asked[r] == expected && j.stepped[r] == expected, "rank %u of %u: %d, then %d: %s",
              r, world, (int)j.asked[r], (int)j.stepped[r], j.words[r].text);
        CHECK(expected == GW_OK ||
                  strstr(j.words[r].text, "means of layer 'layer.1' differ between ranks: rank 2 "
                                          "from rank 0") != NULL,
              "rank %u: %s", r, j.words[r].text);
    }
    CHECK(expected == GW_OK || strstr(j.words[0].text, "steps 1 to 3") != NULL, "%s",
          j.words[0].text);
    for (uint32_t r = 0; r < RANKS; r++) {
        free((void *)(uintptr_t)j.saved[r].bytes);
    }
}

static void as_many_ranks(void **state)
{
    (void)state;
    go_on((job){.every = 1000, .lost = RANKS, .spoil = 1}, RANKS, GW_ERR_CHECKSUM);
    go_on((job){.every = 1000, .lost = RANKS}, RANKS, GW_OK);
    go_on((job){.every = GW_STEP_VERIFY_NEVER, .lost = RANKS, .spoil = 1}, RANKS, GW_OK);
}

/* Those without a checkpoint have nothing to compare. */
static void more_ranks_or_one_lost(void **state)
{
    (void)state;
    go_on((job){.every = 1000, .lost = RANKS, .spoil = 1}, MOST, GW_ERR_CHECKSUM);
    go_on((job){.every = 1000, .lost = RANKS}, MOST, GW_OK);
    go_on((job){.every = 1000, .lost = 1, .spoil = 1}, RANKS, GW_ERR_CHECKSUM);
    go_on((job){.every = 1000, .lost = 1}, RANKS, GW_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_many_ranks),
        cmocka_unit_test(more_ranks_or_one_lost),
    };
    natural = gw_codec_find("natural");
    clone = *natural;
    clone.decode = decode;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
