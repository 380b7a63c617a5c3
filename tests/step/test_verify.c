/* Running hashes of means: what differs between ranks is found at the next comparison, with the layer and the rank; what
 * all ranks share is not. Every scene has a control, which hashes nothing and finds nothing. */
#include "comm/faulty.h"
#include "support/check.h"
#include "support/steps.h"

#include "base/hash.h"
#include "codec/codec_impl.h"

enum { RANKS = 4, ODD = 2, STEPS = 5, BAD = 2, EVERY = 4, LAYERS = 3 };

/* What goes wrong, at the odd rank in step BAD. */
typedef enum spoil {
    SPOIL_NOTHING,
    SPOIL_DECODED, /* a number that the codec decoded, the last one of the step */
    SPOIL_SEALED,  /* a message, on an engine that says it seals and does not */
    SPOIL_ENGINE,  /* a sum that the engine made */
    SPOIL_LATER    /* the gradient after the step: it is the user's own then */
} spoil;

typedef struct job {
    const char *spec, *route;
    gw_dtype dtype;
    uint64_t fuse_below;
    uint32_t every;
    spoil what;
    int asks;           /* gw_step_verify behind every step */
    uint64_t operation; /* of the step, for messages and sums */
    int decodings;      /* in a step of the odd rank, found by a run without fault */
    uint64_t began, ended;
    gw_status status[RANKS][STEPS], asked[RANKS];
    char words[RANKS][256];
    uint64_t digest[RANKS][STEPS];
} job;

/* ---- a codec that goes wrong ---- */

static gw_codec clone;
static const gw_codec *natural;
static _Thread_local int decoded, strike_at;

static void decode(const gw_coding *coding, const uint8_t *payload, size_t n, gw_apply how,
                   float *out)
{
    natural->decode(coding, payload, n, how, out);
    if (++decoded == strike_at && n != 0) {
        uint32_t bits = gw_bits(out[n / 2]) ^ 0x00400000u; /* any type keeps it */
        out[n / 2] = gw_float(bits);
    }
}

/* ---- a rank ---- */

static gw_comm *wrap(const job *j, gw_comm *comm)
{
    fault planned = {FAULT_CORRUPT, j->began + j->operation, 2};
    if (comm->rank != ODD || j->operation == UINT64_MAX) {
        planned.kind = FAULT_NONE;
    }
    return j->what == SPOIL_SEALED   ? faulty_wrap_unsealed(comm, planned)
           : j->what == SPOIL_ENGINE ? faulty_wrap_engine(comm, planned)
                                     : faulty_wrap(comm, planned);
}

static void open_steps(steps *s, const job *j, gw_comm *comm)
{
    const gw_step_config config = {.comm = comm,
                                   .ranks_per_node = 2,
                                   .lanes = 1,
                                   .fuse_below = j->fuse_below,
                                   .verify_every = j->every,
                                   .timeout = 60};
    const steps_layer layers[LAYERS] = {{900, NULL, NULL, j->dtype},
                                        {9000, j->spec, j->route, j->dtype},
                                        {700, NULL, NULL, j->dtype}};
    gw_why why = {""};
    steps_open(s, &config, layers, LAYERS);
    if (j->what == SPOIL_DECODED) {
        gw_params params;
        gw_route route;
        RANK_OK(gw_params_parse(&params, j->spec, &why), why.text);
        RANK_OK(gw_route_parse(&route, j->route, &why), why.text);
        params.codec = &clone;
        RANK_OK(gw_step_plan(s->step, 1, &params, &route, &why), why.text);
    }
    steps_agree(s);
}

static uint64_t digest_of(const steps *s)
{
    uint64_t digest = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        digest = gw_hash_chain(digest, gw_hash(s->gradient[i], steps_bytes(s, i), 0));
    }
    return digest;
}

static gw_status one_step(steps *s, uint64_t number, gw_why *why)
{
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < s->n && status == GW_OK; i++) {
        steps_fill(s, i, number + 1);
        const gw_tensor t = {s->gradient[i], s->layers[i].elements, s->layers[i].dtype};
        status = gw_step_post(s->step, i, &t, why);
    }
    return status == GW_OK ? gw_step_wait(s->step, NULL, why) : status;
}

static void rank_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps s;
    gw_comm *wrapped = wrap(j, comm);
    RANK_TRUE(wrapped != NULL, "no memory");
    open_steps(&s, j, wrapped);
    for (uint64_t k = 0; k < STEPS; k++) {
        gw_why why = {""};
        const uint64_t operations = faulty_operations(wrapped);
        decoded = 0;
        strike_at = k == BAD && rank == ODD ? j->decodings : 0;
        j->status[rank][k] = one_step(&s, k, &why);
        j->digest[rank][k] = digest_of(&s);
        if (k == BAD && rank == ODD && j->operation == UINT64_MAX) {
            j->began = operations;
            j->ended = faulty_operations(wrapped);
        }
        if (k == BAD && rank == ODD && j->decodings == 0) {
            j->decodings = -decoded; /* for the next run */
        }
        if (k == BAD && rank == ODD && j->what == SPOIL_LATER) {
            ((uint8_t *)s.gradient[1])[100] ^= 1;
        }
        if (j->asks) {
            j->asked[rank] = gw_step_verify(s.step, &why);
        }
        if (j->words[rank][0] == 0) {
            (void)snprintf(j->words[rank], sizeof j->words[rank], "%s", why.text);
        }
    }
    ranks_meet(all);
    steps_close(&s);
    wrapped->table->close(wrapped);
}

static void run(job *j)
{
    memset(j->words, 0, sizeof j->words);
    ranks_run(&(gw_threads_config){.ranks = RANKS}, rank_main, j);
}

/* ---- what they saw ---- */

static void complain(const job *j, const char *words)
{
    print_error("%s by %s, spoil %d, dtype %d, operation %llu, every %u: %s\n",
                j->spec != NULL ? j->spec : "no codec", j->route, (int)j->what, (int)j->dtype,
                (unsigned long long)j->operation, j->every, words);
    for (int r = 0; r < RANKS; r++) {
        print_error("  rank %d: %d %d %d %d %d, asked %d: %s\n", r, j->status[r][0],
                    j->status[r][1], j->status[r][2], j->status[r][3], j->status[r][4], j->asked[r],
                    j->words[r]);
    }
    fail();
}

static int replicas_differ(const job *j)
{
    int differ = 0;
    for (int r = 1; r < RANKS; r++) {
        differ |= j->digest[r][BAD] != j->digest[0][BAD];
    }
    return differ;
}

/* Behind step EVERY every rank fails alike, with the layer; before it, none. */
static void check_found(const job *j)
{
    for (int r = 0; r < RANKS; r++) {
        if (j->status[r][EVERY - 1] != GW_OK || j->status[r][EVERY] != GW_ERR_CHECKSUM) {
            complain(j, "not found at the comparison");
        }
        if (strstr(j->words[r], "steps 1 to 4") == NULL || strstr(j->words[r], "layer.1") == NULL ||
            (strstr(j->words[r], "rank 2 from rank 0") == NULL &&
             strstr(j->words[r], "ranks 2, 3 from rank 0") == NULL) ||
            strcmp(j->words[r], j->words[0]) != 0) {
            complain(j, "other words");
        }
    }
}

static void check_quiet(const job *j)
{
    for (int r = 0; r < RANKS; r++) {
        for (int k = 0; k < STEPS; k++) {
            if (j->status[r][k] != GW_OK) {
                complain(j, "an error where there is none");
            }
        }
    }
}

/* A scene with hashes and its control without. */
static void decoded_wrong(job j)
{
    j.what = SPOIL_DECODED;
    j.operation = UINT64_MAX;
    j.every = EVERY;
    run(&j);
    check_quiet(&j);
    assert_false(replicas_differ(&j));
    j.decodings = -j.decodings;
    assert_true(j.decodings > 0);
    run(&j);
    assert_true(replicas_differ(&j));
    check_found(&j);
    j.every = GW_STEP_VERIFY_NEVER;
    run(&j);
    assert_true(replicas_differ(&j));
    check_quiet(&j);
}

/* ---- scenes ---- */

static void a_number_that_was_decoded_wrong(void **state)
{
    static const char *const routes[] = {"gather", "sra", "star", "hier-sra"};
    static const gw_dtype dtypes[] = {GW_F32, GW_F16, GW_BF16};
    (void)state;
    for (size_t i = 0; i < sizeof routes / sizeof *routes; i++) {
        for (size_t d = 0; d < (i == 0 ? 3 : 1); d++) {
            decoded_wrong((job){.spec = "natural:bits=8", .route = routes[i], .dtype = dtypes[d]});
        }
    }
}

/* Every message of a step, on an engine that claims seals it has not; every sum of an engine that sums by itself. The
 * comparison finds what makes replicas differ and, as docs say, not what all of them share. */
static void what_an_engine_does(spoil what, job j)
{
    uint32_t found = 0, shared = 0;
    j.what = what;
    j.operation = UINT64_MAX;
    j.every = EVERY;
    j.decodings = -1;
    run(&j);
    check_quiet(&j);
    const uint64_t n = j.ended - j.began;
    assert_true(n > 0);
    for (uint64_t op = 0; op < n; op++) {
        j.operation = op;
        j.every = EVERY;
        run(&j);
        const int differ = replicas_differ(&j);
        for (int r = 0; r < RANKS; r++) {
            if (differ != (j.status[r][EVERY] == GW_ERR_CHECKSUM)) {
                complain(&j, "found without a difference, or not found with one");
            }
        }
        found += (uint32_t)differ;
        shared += !differ;
        j.every = GW_STEP_VERIFY_NEVER;
        run(&j);
        check_quiet(&j);
    }
    if (found == 0 || (what == SPOIL_ENGINE && shared != 0)) {
        complain(&j, "no flip was found, or one of an engine's sum was not");
    }
}

static void an_engine_that_does_not_seal(void **state)
{
    static const job jobs[] = {{.route = "dense", .dtype = GW_F32},
                               {.route = "dense", .dtype = GW_F16},
                               {.route = "dense", .dtype = GW_BF16, .fuse_below = 10000},
                               {.route = "hier-dense", .dtype = GW_BF16},
                               {.route = "hier-dense", .dtype = GW_F32},
                               {.route = "dense", .dtype = GW_F32, .fuse_below = 10000},
                               {.spec = "randk:density=0.1", .route = "sum", .dtype = GW_F32},
                               {.spec = "lowrank:rank=2", .route = "sum", .dtype = GW_F32}};
    (void)state;
    for (size_t i = 0; i < sizeof jobs / sizeof *jobs; i++) {
        what_an_engine_does(SPOIL_SEALED, jobs[i]);
    }
}

static void an_engine_that_sums(void **state)
{
    (void)state;
    what_an_engine_does(SPOIL_ENGINE, (job){.route = "dense", .dtype = GW_F32});
}

/* gw_step_verify finds at once what the next comparison would find later. */
static void asked_for(void **state)
{
    job j = {.spec = "natural:bits=8",
             .route = "gather",
             .dtype = GW_F32,
             .what = SPOIL_DECODED,
             .operation = UINT64_MAX,
             .every = 1000,
             .asks = 1};
    (void)state;
    run(&j);
    check_quiet(&j);
    j.decodings = -j.decodings;
    run(&j);
    for (int r = 0; r < RANKS; r++) {
        if (j.status[r][BAD] != GW_OK || j.asked[r] != GW_ERR_CHECKSUM ||
            j.status[r][BAD + 1] != GW_ERR_CHECKSUM ||
            strstr(j.words[r], "steps 2 to 2: the means of layer 'layer.1'") == NULL ||
            strstr(j.words[r], "rank 2") == NULL) {
            complain(&j, "not found when asked");
        }
    }
}

static void what_is_changed_later_is_the_callers(void **state)
{
    job j = {.spec = "natural:bits=8",
             .route = "gather",
             .dtype = GW_F32,
             .what = SPOIL_LATER,
             .operation = UINT64_MAX,
             .every = 1,
             .asks = 1};
    (void)state;
    run(&j);
    check_quiet(&j);
    for (int r = 0; r < RANKS; r++) {
        assert_int_equal(j.asked[r], GW_OK);
    }
}

/* ---- when it cannot be ---- */

static void refused_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    const steps_layer layers[] = {{700, NULL, NULL, 0}};
    gw_why why = {""};
    steps s;
    (void)arg;
    (void)all;
    (void)rank;
    RANK_TRUE(gw_step_verify(NULL, &why) == GW_ERR_ARG, why.text);
    steps_open(&s, &(gw_step_config){.comm = comm}, layers, 1);
    RANK_TRUE(gw_step_verify(s.step, &why) == GW_ERR_STATE, why.text);
    steps_agree(&s);
    RANK_OK(gw_step_verify(s.step, &why), why.text); /* nothing yet */
    steps_run(&s, 1);
    RANK_OK(gw_step_verify(s.step, &why), why.text);
    steps_fill(&s, 0, 2);
    steps_post(&s, 0);
    RANK_TRUE(gw_step_verify(s.step, &why) == GW_ERR_STATE, "in the middle of a step");
    RANK_OK(gw_step_wait(s.step, NULL, &why), why.text);
    steps_close(&s);
    steps_open(&s, &(gw_step_config){.comm = comm, .verify_every = GW_STEP_VERIFY_NEVER}, layers,
               1);
    steps_agree(&s);
    RANK_TRUE(gw_step_verify(s.step, &why) == GW_ERR_STATE, "nothing is hashed");
    steps_close(&s);
    gw_step *other = NULL;
    const gw_step_config differs = {.comm = comm, .verify_every = rank == 0 ? 7 : 8};
    RANK_TRUE(gw_step_create(&differs, &other, &why) == GW_ERR_DISAGREE, "other intervals");
    RANK_TRUE(strstr(why.text, "verify_every") != NULL, why.text);
}

static void when_it_cannot_be(void **state)
{
    (void)state;
    ranks_run(&(gw_threads_config){.ranks = 2}, refused_main, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_number_that_was_decoded_wrong),
        cmocka_unit_test(an_engine_that_does_not_seal),
        cmocka_unit_test(an_engine_that_sums),
        cmocka_unit_test(asked_for),
        cmocka_unit_test(what_is_changed_later_is_the_callers),
        cmocka_unit_test(when_it_cannot_be),
    };
    natural = gw_codec_find("natural");
    clone = *natural;
    clone.decode = decode;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
