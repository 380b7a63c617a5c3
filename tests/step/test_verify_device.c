/* Running hashes of means in a device's memory (the fake NCCL, an emulated device): a bit that flips in a mean at one rank
 * after it was decoded or summed is found at the next comparison. The control hashes nothing and finds nothing. */
#include "support/check.h"
#include "support/device_comm.h"
#include "support/steps.h"

#include "base/hash.h"
#include "codec/cuda/cuda_impl.h"

enum { RANKS = 2, ODD = 1, STEPS = 4, BAD = 1, EVERY = 3, LAYERS = 3 };

typedef struct job {
    const char *spec, *route;
    gw_dtype dtype;
    uint64_t fuse_below;
    uint32_t every;
    uint64_t piece;
    int by_host, asks; /* payloads go through the host; gw_step_verify behind every step */
    int decodings;     /* of step BAD at the odd rank */
    gw_status status[RANKS][STEPS], asked[RANKS];
    char words[RANKS][256];
    uint64_t digest[RANKS][STEPS];
} job;

/* ---- a device library whose decoding goes wrong ---- */

static gw_cuda *opened, spoilt;
static gw_cuda_table table;
static gw_cuda_codec codecs[256];
static const gw_cuda_codec *originals[256];
static _Thread_local int decoded, strike_at; /* which of the step's decodings; 0: none */

static gw_status decode_as(uint8_t id, const gw_cuda_call *call, const gw_cuda_sink *sinks,
                           size_t n, gw_why *why)
{
    const gw_cuda_place at = {opened, 0};
    uint8_t byte = 0;
    gw_status status = originals[id]->decode(call, sinks, n, why);
    if (status != GW_OK || ++decoded != strike_at) {
        return status;
    }
    uint8_t *where = (uint8_t *)sinks[n - 1].out.data + 2;
    RANK_OK(gw_cuda_copy(at, call->stream, &byte, where, 1, why), why->text);
    RANK_OK(gw_cuda_wait(at, call->stream, why), why->text);
    byte ^= 1;
    RANK_OK(gw_cuda_copy(at, call->stream, where, &byte, 1, why), why->text);
    return gw_cuda_wait(at, call->stream, why);
}

static uint8_t natural_id, cast_id;

static gw_status decode_natural(const gw_cuda_call *call, const gw_cuda_sink *sinks, size_t n,
                                gw_why *why)
{
    return decode_as(natural_id, call, sinks, n, why);
}

static gw_status decode_cast(const gw_cuda_call *call, const gw_cuda_sink *sinks, size_t n,
                             gw_why *why)
{
    return decode_as(cast_id, call, sinks, n, why);
}

static const gw_cuda_codec *find(uint8_t id)
{
    return originals[id] != NULL ? &codecs[id] : opened->table->find(id);
}

static void spoil_library(void)
{
    natural_id = gw_codec_id(gw_codec_find("natural"));
    cast_id = gw_codec_id(gw_codec_find("cast"));
    table = *opened->table;
    table.find = find;
    spoilt = (gw_cuda){opened->library, &table};
    const uint8_t ids[] = {natural_id, cast_id};
    for (int i = 0; i < 2; i++) {
        originals[ids[i]] = opened->table->find(ids[i]);
        codecs[ids[i]] = *originals[ids[i]];
        codecs[ids[i]].decode = i == 0 ? decode_natural : decode_cast;
    }
}

/* ---- a rank ---- */

static gw_status one_step(steps *s, void *const *there, uint64_t number, gw_why *why)
{
    const gw_cuda_place at = {opened, 0};
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < s->n && status == GW_OK; i++) {
        steps_fill(s, i, number + 1);
        RANK_OK(gw_cuda_copy(at, NULL, there[i], s->gradient[i], steps_bytes(s, i), why),
                why->text);
        const gw_tensor t = {there[i], s->layers[i].elements, s->layers[i].dtype};
        status = gw_step_post_after(s->step, i, &t, NULL, why);
        RANK_OK(gw_cuda_wait(at, NULL, NULL), "copies");
    }
    return status == GW_OK ? gw_step_wait(s->step, NULL, why) : status;
}

static uint64_t digest_of(steps *s, void *const *there)
{
    const gw_cuda_place at = {opened, 0};
    uint64_t digest = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        RANK_OK(gw_cuda_copy(at, NULL, s->gradient[i], there[i], steps_bytes(s, i), NULL),
                "copies");
        RANK_OK(gw_cuda_wait(at, NULL, NULL), "copies");
        digest = gw_hash_chain(digest, gw_hash(s->gradient[i], steps_bytes(s, i), 0));
    }
    return digest;
}

static void run_steps(job *j, steps *s, uint32_t rank, void *const *there)
{
    for (uint64_t k = 0; k < STEPS; k++) {
        gw_why why = {""};
        decoded = 0;
        strike_at = k == BAD && rank == ODD ? j->decodings : 0;
        j->status[rank][k] = one_step(s, there, k, &why);
        if (k == BAD && rank == ODD && j->decodings == 0) {
            j->decodings = -decoded; /* for the next run */
        }
        j->digest[rank][k] = digest_of(s, there);
        if (j->asks) {
            j->asked[rank] = gw_step_verify(s->step, &why);
        }
        if (j->words[rank][0] == 0) {
            (void)snprintf(j->words[rank], sizeof j->words[rank], "%s", why.text);
        }
    }
}

static void rank_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps s;
    gw_why why = {""};
    void *there[LAYERS];
    gw_comm *device = j->by_host ? NULL : device_comm_join(comm);
    const gw_cuda_place at = {&spoilt, 0};
    const gw_step_config config = {.comm = comm,
                                   .place = at,
                                   .device_comm = device,
                                   .lanes = 1,
                                   .piece = j->piece,
                                   .fuse_below = j->fuse_below,
                                   .verify_every = j->every};
    const steps_layer layers[LAYERS] = {{300, NULL, NULL, j->dtype},
                                        {5000, j->spec, j->route, j->dtype},
                                        {200, NULL, NULL, j->dtype}};
    steps_open(&s, &config, layers, LAYERS);
    steps_agree(&s);
    for (uint32_t i = 0; i < LAYERS; i++) {
        RANK_OK(gw_cuda_allocate(at, steps_bytes(&s, i), 0, &there[i], &why), why.text);
    }
    run_steps(j, &s, rank, there);
    ranks_meet(all);
    steps_close(&s);
    for (uint32_t i = 0; i < LAYERS; i++) {
        gw_cuda_free(at, there[i], 0);
    }
    if (device != NULL) {
        device->table->close(device);
    }
}

static void run(job *j)
{
    memset(j->words, 0, sizeof j->words);
    ranks_run(&(gw_threads_config){.ranks = RANKS}, rank_main, j);
}

/* ---- what they saw ---- */

static void complain(const job *j, const char *words)
{
    print_error("%s by %s, dtype %d, decoding %d, every %u: %s\n",
                j->spec != NULL ? j->spec : "no codec", j->route != NULL ? j->route : "dense",
                (int)j->dtype, j->decodings, j->every, words);
    for (int r = 0; r < RANKS; r++) {
        print_error("  rank %d: %d %d %d %d, asked %d: %s\n", r, j->status[r][0], j->status[r][1],
                    j->status[r][2], j->status[r][3], j->asked[r], j->words[r]);
    }
    fail();
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

/* Every decoding of a step in turn, and a control. Those that make replicas differ are found, and no others. */
static void every_decoding(job j)
{
    int found = 0;
    j.every = EVERY;
    run(&j);
    check_quiet(&j);
    const int n = -j.decodings;
    assert_true(n > 0 && j.digest[0][BAD] == j.digest[1][BAD]);
    for (j.decodings = 1; j.decodings <= n; j.decodings++) {
        j.every = EVERY;
        run(&j);
        const int differ = j.digest[0][BAD] != j.digest[1][BAD];
        for (int r = 0; r < RANKS; r++) {
            if (j.status[r][EVERY - 1] != GW_OK ||
                j.status[r][EVERY] != (differ ? GW_ERR_CHECKSUM : GW_OK)) {
                complain(&j, "found without a difference, or not found with one");
            }
            if (differ && (strstr(j.words[r], "steps 1 to 3: the means of layer 'layer.") == NULL ||
                           strstr(j.words[r], "rank 1") == NULL)) {
                complain(&j, "other words");
            }
        }
        found = differ ? j.decodings : found;
    }
    j.decodings = found;
    j.every = GW_STEP_VERIFY_NEVER;
    run(&j);
    check_quiet(&j);
    if (found == 0 || j.digest[0][BAD] == j.digest[1][BAD]) {
        complain(&j, "no flip made replicas differ");
    }
}

static void what_stays_on_the_device(void **state)
{
    (void)state;
    every_decoding((job){.spec = "natural:bits=8", .route = "sra@gpu", .dtype = GW_F32});
    every_decoding(
        (job){.spec = "natural:bits=8", .route = "gather@gpu", .dtype = GW_F32, .piece = 2048});
    every_decoding((job){.dtype = GW_F32});
    every_decoding((job){.dtype = GW_F16});
    every_decoding((job){.dtype = GW_F32, .fuse_below = 1000});
}

static void what_goes_through_the_host(void **state)
{
    (void)state;
    every_decoding(
        (job){.spec = "natural:bits=8", .route = "gather@gpu", .dtype = GW_F32, .by_host = 1});
    every_decoding(
        (job){.spec = "natural:bits=8", .route = "gather@gpu", .dtype = GW_BF16, .by_host = 1});
}

static void asked_for(void **state)
{
    job j = {
        .spec = "natural:bits=8", .route = "gather@gpu", .dtype = GW_F32, .every = 1000, .asks = 1};
    (void)state;
    run(&j);
    check_quiet(&j);
    j.decodings = -j.decodings; /* the last of the step */
    run(&j);
    for (int r = 0; r < RANKS; r++) {
        if (j.status[r][BAD] != GW_OK || j.asked[r] != GW_ERR_CHECKSUM ||
            j.status[r][BAD + 1] != GW_ERR_CHECKSUM ||
            strstr(j.words[r], "steps 1 to 1:") == NULL) {
            complain(&j, "not found when asked");
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_stays_on_the_device),
        cmocka_unit_test(what_goes_through_the_host),
        cmocka_unit_test(asked_for),
    };
    gw_why why = {""};
    if (gw_cuda_open(GW_TESTS_EMULATED, &opened, &why) != GW_OK) {
        print_error("%s\n", why.text);
        return 2;
    }
    spoil_library();
    device_comm_open(GW_TESTS_FAKE_NCCL, (gw_cuda_place){opened, 0}, 1);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    device_comm_close();
    failed += device_comm_live() != 0;
    gw_cuda_close(opened);
    return failed;
}
