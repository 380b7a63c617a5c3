#include "coll/seals.h"

#include "support/check.h"
#include "support/gen.h"
#include "support/ranks.h"

#include "base/hash.h"

static const seals_class classes[] = {
    {.what = "dense sums", .route = "dense", .elements = 20000, .layers = 1},
    {.what = "dense sums", .route = "hier-dense", .elements = 20000, .layers = 1},
    {.what = "sums of 16 bits", .route = "dense", .elements = 20000, .layers = 1, .dtype = GW_BF16},
    {.what = "sums of 16 bits",
     .route = "hier-dense",
     .elements = 20000,
     .layers = 1,
     .dtype = GW_F16},
    {.what = "fused layers of 16 bits",
     .route = "dense",
     .elements = 300,
     .layers = 3,
     .fused = 1,
     .dtype = GW_BF16},
    {.what = "fused small layers", .route = "dense", .elements = 300, .layers = 3, .fused = 1},
    {.what = "convoys",
     .spec = "topk:density=0.05",
     .route = "gather",
     .elements = 900,
     .layers = 3,
     .convoy = 1},
    {.what = "convoys", .route = "dense", .elements = 900, .layers = 3, .convoy = 1},
    {.what = "convoys",
     .spec = "lowrank:rank=2",
     .route = "sum",
     .elements = 900,
     .layers = 3,
     .convoy = 1},
    {.what = "payloads",
     .spec = "natural:bits=8",
     .route = "gather",
     .elements = 20000,
     .layers = 1},
    {.what = "payloads", .spec = "natural:bits=8", .route = "sra", .elements = 20000, .layers = 1},
    {.what = "payloads", .spec = "natural:bits=8", .route = "star", .elements = 20000, .layers = 1},
    {.what = "payloads",
     .spec = "natural:bits=8",
     .route = "hier-gather",
     .elements = 20000,
     .layers = 1},
    {.what = "payloads",
     .spec = "natural:bits=8",
     .route = "hier-sra",
     .elements = 20000,
     .layers = 1},
    {.what = "payloads",
     .spec = "dither:bits=4",
     .route = "hier2-sra",
     .elements = 20000,
     .layers = 1},
    {.what = "payloads and lengths",
     .spec = "adacomp:bin=50",
     .route = "gather",
     .elements = 20000,
     .layers = 1},
    {.what = "payloads and lengths",
     .spec = "adacomp:bin=50",
     .route = "sra",
     .elements = 20000,
     .layers = 1},
    {.what = "payloads and lengths",
     .spec = "adacomp:bin=50",
     .route = "star",
     .elements = 20000,
     .layers = 1},
    {.what = "payloads and lengths",
     .spec = "adacomp:bin=50",
     .route = "hier-gather",
     .elements = 20000,
     .layers = 1},
    {.what = "additive payloads",
     .spec = "randk:density=0.1",
     .route = "sum",
     .elements = 20000,
     .layers = 1},
    {.what = "additive payloads",
     .spec = "randk:density=0.1",
     .route = "hier-sum",
     .elements = 20000,
     .layers = 1},
    {.what = "additive payloads",
     .spec = "cast:to=f32",
     .route = "sum",
     .elements = 20000,
     .layers = 1},
    {.what = "rounds of sums",
     .spec = "lowrank:rank=2",
     .route = "sum",
     .elements = 20000,
     .layers = 1},
    {.what = "rounds of sums",
     .spec = "lowrank:rank=2",
     .route = "hier-sum",
     .elements = 20000,
     .layers = 1},
    {.what = "convoys",
     .spec = "topk:density=0.05",
     .route = "sra",
     .elements = 900,
     .layers = 3,
     .convoy = 1},
    {.what = "payloads",
     .spec = "natural:bits=8",
     .route = "hier2-gather",
     .elements = 20000,
     .layers = 1},
    {.what = "payloads and lengths",
     .spec = "adacomp:bin=50",
     .route = "hier-sra",
     .elements = 20000,
     .layers = 1},
    {.what = "payloads and lengths",
     .spec = "adacomp:bin=50",
     .route = "hier2-sra",
     .elements = 20000,
     .layers = 1},
    {.what = "additive payloads",
     .spec = "cast:to=f32",
     .route = "hier-sum",
     .elements = 20000,
     .layers = 1},
    {.what = "shards, dense",
     .route = "flat:reduce_scatter · flat:allgather",
     .elements = 20000,
     .layers = 1,
     .sharded = 1},
    {.what = "shards, payloads",
     .spec = "natural:bits=8",
     .route = "sra",
     .elements = 20000,
     .layers = 1,
     .sharded = 1},
    {.what = "the last step, dense", .route = "dense", .elements = 20000, .layers = 1, .last = 1},
    {.what = "the last step",
     .spec = "natural:bits=8",
     .route = "sra",
     .elements = 20000,
     .layers = 1,
     .last = 1},
    {.what = "agreement",
     .spec = "natural:bits=8",
     .route = "hier-sra",
     .elements = 500,
     .layers = 2,
     .agreeing = 1},
    {.what = "measuring, adapt",
     .spec = "dither:bits=4",
     .route = "sra",
     .elements = 2000,
     .layers = 2,
     .chooses = "adapt:period=4/dither:bits=4",
     .steps = 5},
    {.what = "measuring, auto",
     .spec = "dither:bits=4",
     .route = "sra",
     .elements = 2000,
     .layers = 2,
     .chooses = "auto:period=40/dither:bits=4"},
};
static gw_dtype dtype_of(const seals_class *c)
{
    return c->dtype != 0 ? c->dtype : GW_F32;
}
static int steps_of(const seals_class *c)
{
    return c->steps != 0 ? c->steps : SEALS_USUAL;
}
/* The step whose messages are struck, from 0. */
static int struck_step(const seals_class *c)
{
    return c->last ? steps_of(c) - 1 : 1;
}
static const size_t bytes_flipped[] = {0, 5, 21, 1003};
enum {
    FLIPS = sizeof bytes_flipped / sizeof *bytes_flipped,
    SCALE = 1 /* of adacomp: no decoder can tell */
};

/* ---- a rank ---- */

static gw_status add_layers(gw_step *step, const seals_class *c, gw_why *why)
{
    const uint64_t dims[2] = {c->elements / 50, 50};
    const uint32_t together[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    gw_params params;
    gw_route route;
    gw_status status = gw_route_parse(&route, c->route, why);
    if (status == GW_OK && c->spec != NULL) {
        status = gw_params_parse(&params, c->spec, why);
    }
    for (uint32_t i = 0; i < c->layers && status == GW_OK; i++) {
        const char name[] = {'w', (char)('0' + i), 0};
        uint32_t layer = 0;
        status = gw_step_add(step, name, dims, 2, dtype_of(c), &layer, why);
        if (status == GW_OK) {
            status = gw_step_plan(step, layer, c->spec != NULL ? &params : NULL, &route, why);
        }
    }
    if (status == GW_OK && c->convoy) {
        status = gw_step_ready_together(step, together, c->layers, why);
    }
    return status == GW_OK ? gw_step_agree(step, why) : status;
}

static gw_status choose(gw_step *step, const seals_class *c, gw_why *why)
{
    return c->chooses == NULL             ? GW_OK
           : gw_adapt_spec_is(c->chooses) ? gw_step_adapt_begin_spec(step, c->chooses, why)
                                          : gw_step_auto_begin_spec(step, c->chooses, why);
}

static gw_status one_step(gw_step *step, const seals_class *c, uint32_t rank, uint64_t number,
                          uint8_t *gradient, gw_why *why)
{
    const size_t bytes = (size_t)c->elements * gw_dtype_size(dtype_of(c));
    gw_status status = GW_OK;
    gen g = {1000 * number + rank};
    gen_fill(&g, GEN_NORMAL, dtype_of(c), gradient, c->layers * c->elements);
    for (uint32_t i = 0; i < c->layers && status == GW_OK; i++) {
        const gw_tensor t = {gradient + i * bytes, (size_t)c->elements, dtype_of(c)};
        status = gw_step_post(step, i, &t, why);
    }
    return status == GW_OK ? gw_step_wait(step, NULL, why) : status;
}

/* A checkpoint of this rank, as a trainer writes one: whether it may. */
static int may_save(gw_step *step)
{
    static _Thread_local uint8_t blob[1 << 20];
    size_t bytes = 0;
    gw_why why = {""};
    const gw_status status =
        gw_feedback_save(gw_step_feedback(step), blob, sizeof blob, &bytes, &why);
    RANK_TRUE(status == GW_OK || (status == GW_ERR_STATE && strstr(why.text, "It was: ") != NULL),
              why.text);
    return status == GW_OK;
}

static uint64_t saved(gw_step *step)
{
    size_t bytes = 0;
    gw_feedback *store = gw_step_feedback(step);
    RANK_OK(gw_feedback_save_bytes(store, &bytes, NULL), "how large a checkpoint is");
    uint8_t *blob = calloc(bytes + 1, 1);
    gw_feedback_refuse_saving(store, NULL); /* a failed step's are only looked at */
    RANK_TRUE(blob != NULL && gw_feedback_save(store, blob, bytes, &bytes, NULL) == GW_OK,
              "cannot save");
    const uint64_t hash = gw_hash(blob, bytes, 0);
    free(blob);
    return hash;
}

static void run_steps(const seals_class *c, gw_step *step, const gw_comm *comm, uint32_t rank,
                      seals_result *out, gw_why *why)
{
    const size_t bytes = c->layers * c->elements * gw_dtype_size(dtype_of(c));
    uint8_t *gradient = malloc(bytes);
    RANK_TRUE(gradient != NULL, "no memory");
    for (uint64_t k = 0; k < (uint64_t)steps_of(c); k++) {
        out->all = faulty_operations(comm); /* before the last step */
        if ((int)k == struck_step(c)) {
            out->began = faulty_operations(comm);
            out->saved[0] = saved(step);
        }
        out->status[1 + k] = one_step(step, c, rank, k, gradient, why);
        out->digest[k] = gw_hash(gradient, bytes, 0);
        out->ended = (int)k == struck_step(c) ? faulty_operations(comm) : out->ended;
        out->kept += may_save(step);
    }
    out->saved[1] = saved(step);
    out->closed = c->sharded ? GW_OK : gw_step_verify(step, why);
    free(gradient);
}

void seals_rank(const seals_job *job, uint32_t rank, gw_comm *comm, seals_result *out)
{
    const seals_class *c = job->of;
    const fault none = {FAULT_NONE, 0, 0}, planned = rank == SEALS_ODD ? job->fault : none;
    gw_comm *wrapped =
        job->unsealed ? faulty_wrap_unsealed(comm, planned) : faulty_wrap(comm, planned);
    gw_why why = {""};
    gw_step *step = NULL;
    RANK_TRUE(wrapped != NULL, "no memory");
    const gw_step_config config = {.comm = wrapped,
                                   .ranks_per_node = SEALS_PER_NODE,
                                   .fuse_below = c->fused ? 1000 : 0,
                                   .lanes = 1,
                                   .sharded = c->sharded,
                                   .timeout = 60};
    memset(out, 0, sizeof *out);
    gw_status status = gw_step_create(&config, &step, &why);
    if (status == GW_OK) {
        status = add_layers(step, c, &why);
    }
    out->status[0] = status;
    out->agreed = faulty_operations(wrapped);
    status = status == GW_OK ? choose(step, c, &why) : status;
    out->chose = faulty_operations(wrapped);
    if (status == GW_OK) {
        run_steps(c, step, wrapped, rank, out, &why);
    } else {
        for (int i = 0; i <= SEALS_STEPS; i++) {
            out->status[i] = status;
        }
    }
    (void)snprintf(out->words, sizeof out->words, "%s", why.text);
    out->struck = faulty_struck(wrapped);
    gw_step_destroy(step);
    wrapped->table->close(wrapped);
}

/* ---- all of them ---- */

typedef struct count {
    uint32_t flips, unseen;
} count;

static int is_auto(const seals_class *c)
{
    return c->chooses != NULL && !gw_adapt_spec_is(c->chooses);
}

static void complain(const char *engine, const seals_job *job, const seals_result *r,
                     const char *words)
{
    (void)fprintf(stderr, "%s, %s by %s (%s), operation %llu, byte %zu%s: %s\n", engine,
                  job->of->spec != NULL ? job->of->spec : "no codec", job->of->route, job->of->what,
                  (unsigned long long)job->fault.operation, job->fault.amount,
                  job->unsealed ? ", without seals" : "", words);
    for (uint32_t i = 0; i < SEALS_RANKS; i++) {
        (void)fprintf(stderr, "  rank %u: %d %d %d %d %d %d, kept %d: %s\n", i, r[i].status[0],
                      r[i].status[1], r[i].status[2], r[i].status[3], r[i].status[4],
                      r[i].status[5], r[i].kept, r[i].words);
    }
    ranks_fail(__FILE__, __LINE__, words);
}

/* A flip that arrived is an error at once where it did, and everywhere by the end of the next step. */
static void check_seen(const char *engine, const seals_job *job, const seals_result *r)
{
    const seals_result *odd = &r[SEALS_ODD];
    const int last = steps_of(job->of), bad = job->of->agreeing ? 0 : 1 + struck_step(job->of);
    const int *at = odd->status + (job->of->chooses != NULL ? last : bad);
    int named = 0, complete = last;
    for (uint32_t i = 0; i < SEALS_RANKS;
         i++) { /* a payload that is passed on may be opened elsewhere first */
        const int *there = r[i].status + (at - odd->status);
        named |= *there == GW_ERR_CHECKSUM && strstr(r[i].words, "changed on") != NULL;
    }
    if (*at == GW_OK || !named) {
        complain(engine, job, r, "the rank that received it did not see it at once");
    }
    for (uint32_t i = 0; i < SEALS_RANKS; i++) {
        const int ended = job->of->last ? r[i].closed : r[i].status[last];
        if (ended == GW_OK || r[i].words[0] == 0) {
            complain(engine, job, r, "a rank went on as if nothing had happened");
        }
        complete = r[i].kept < complete ? r[i].kept : complete;
    }
    if (job->of->chooses == NULL && complete >= (job->of->agreeing ? 1 : bad)) {
        complain(engine, job, r, "all ranks wrote a checkpoint behind the flip");
    }
    if (!job->of->agreeing && job->of->chooses == NULL && odd->saved[0] != odd->saved[1]) {
        complain(engine, job, r, "the failed step changed a residual");
    }
}

/* Without seals: no rank noticed, but a mean is another one. */
static int is_unseen(const seals_result *r, const seals_result *good)
{
    int other = 0;
    for (uint32_t i = 0; i < SEALS_RANKS; i++) {
        for (int k = 0; k <= SEALS_STEPS; k++) { /* later ones than there are: GW_OK */
            if (r[i].status[k] != GW_OK) {
                return 0;
            }
        }
        other |= memcmp(r[i].digest, good[i].digest, sizeof good[i].digest) != 0;
    }
    return other;
}

static count flip_all(const seals_engine *e, const seals_class *c, int unsealed)
{
    seals_result good[SEALS_RANKS], r[SEALS_RANKS];
    seals_job job = {c, {FAULT_NONE, 0, 0}, unsealed};
    count n = {0, 0};
    e->world(&job, good);
    for (uint32_t i = 0; i < SEALS_RANKS; i++) {
        if (good[i].status[steps_of(c)] != GW_OK ||
            (!c->sharded && good[i].digest[1] != good[0].digest[1])) {
            complain(e->name, &job, good, "fails without a fault");
        }
    }
    const seals_result *odd = &good[SEALS_ODD];
    const uint64_t from = c->agreeing ? 0 : c->chooses != NULL ? odd->agreed : odd->began;
    const uint64_t to = c->agreeing          ? odd->agreed
                        : is_auto(c)         ? odd->chose /* later is as of adapt, and takes long */
                        : c->chooses != NULL ? odd->all
                                             : odd->ended;
    const int few = e->thrifty || c->chooses != NULL;
    for (uint64_t op = from; op < to; op++) {
        for (int i = few ? SCALE : 0; i < (few ? SCALE + 1 : FLIPS); i++) {
            job.fault = (fault){FAULT_CORRUPT, op, bytes_flipped[i]};
            e->world(&job, r);
            if (!r[SEALS_ODD].struck) {
                break; /* it receives nothing by this operation */
            }
            n.flips++;
            n.unseen += (uint32_t)is_unseen(r, good);
            if (!unsealed) {
                check_seen(e->name, &job, r);
            }
        }
    }
    return n;
}

void seals_check(const seals_engine *e)
{
    if (e->talks) {
        printf("%-8s %-21s %-18s %-12s %6s %6s %20s\n", "engine", "messages", "codec", "route",
               "flips", "seen", "unseen without seals");
    }
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        const seals_class *c = &classes[i];
        const count sealed = flip_all(e, c, 0);
        const int controlled = !c->agreeing && c->chooses == NULL;
        const count bare = controlled ? flip_all(e, c, 1) : (count){0, 0};
        RANK_TRUE(sealed.flips > 0 && sealed.unseen == 0, "a class without a message");
        RANK_TRUE(!controlled || bare.unseen > 0, "the control sees all flips without seals");
        if (e->talks) {
            printf("%-8s %-21s %-18s %-12s %6u %6u %13u of %u\n", e->name, c->what,
                   c->spec != NULL ? c->spec : "-", c->route, sealed.flips,
                   sealed.flips - sealed.unseen, bare.unseen, bare.flips);
            (void)fflush(stdout);
        }
    }
}
