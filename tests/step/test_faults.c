/* When something breaks: a named error on every rank within the timeout, the same one on every later call,
 * residuals as after the last good step. Ranks that lie, stop, or leave. */
#include "comm/faulty.h"
#include "support/check.h"

#include <gradwire/step_adapt.h>

#include "support/steps.h"

enum { RANKS = 4, ODD = 2, GOOD = 2 }; /* the odd one; good steps before the bad one */

typedef struct job {
    fault fault;
    const char *spec, *route;
    uint64_t elements;
    int own_thread, stops;
    int unsealed; /* seals are off, so that a lie comes as far as the check behind them */
    gw_status at_odd[3], elsewhere[3]; /* one of these */
    const char *words;                 /* in the odd one's error, if any */
    uint64_t begun;                    /* operations of a rank before the bad step */
} job;

static int is_one_of(gw_status status, const gw_status may_be[3])
{
    return status != GW_OK && (status == may_be[0] || status == may_be[1] || status == may_be[2]);
}

/* Two layers that are small and early: they have arrived when the third fails. */
static uint32_t layers_of(const job *j, steps_layer layers[3])
{
    layers[0] = (steps_layer){200, "topk:density=0.1", "gather", 0};
    layers[1] = (steps_layer){17 * 20, "lowrank:rank=1", "sum", 0};
    layers[2] = (steps_layer){j->elements, j->spec, j->route, 0};
    return 3;
}

static void check_failure(steps *s, const job *j, gw_status status, const gw_why *why)
{
    const int odd = s->rank == ODD;
    if (!is_one_of(status, odd ? j->at_odd : j->elsewhere)) {
        print_error("rank %u: %d, %s\n", s->rank, (int)status, why->text);
        RANK_TRUE(0, "another status");
    }
    RANK_TRUE(why->text[0] != '\0', "no words");
    RANK_TRUE(!odd || j->words == NULL || strstr(why->text, j->words) != NULL, why->text);
    RANK_TRUE(!odd || j->words == NULL || strstr(why->text, "step 2, 'layer.2'") != NULL,
              why->text);
    RANK_TRUE(status != GW_ERR_PEER || strstr(why->text, "rank") != NULL, why->text);
    gw_why again = {""};
    const gw_tensor t = {s->gradient[0], 200, GW_F32};
    RANK_TRUE(gw_step_wait(s->step, NULL, &again) == status && strcmp(why->text, again.text) == 0,
              "wait says another thing");
    RANK_TRUE(gw_step_post(s->step, 0, &t, &again) == status && strcmp(why->text, again.text) == 0,
              "post says another thing");
    RANK_TRUE(gw_step_agree(s->step, &again) == status && strcmp(why->text, again.text) == 0,
              "agree says another thing");
}

/* If it fails, residuals are what they were; if not, everything has arrived. */
static gw_status bad_step(steps *s, uint64_t step, gw_why *why)
{
    const gw_feedback_blob before = steps_save(s);
    gw_status status = GW_OK;
    for (uint32_t l = 0; l < 3 && status == GW_OK; l++) {
        steps_fill(s, l, step);
        const gw_tensor t = {s->gradient[l], s->layers[l].elements, GW_F32};
        status = gw_step_post(s->step, l, &t, why);
    }
    if (status == GW_OK) {
        status = gw_step_wait(s->step, NULL, why);
    }
    const gw_feedback_blob after = steps_save(s);
    RANK_TRUE(status == GW_OK || steps_same(before, after), "a failed step changed a residual");
    free((void *)(uintptr_t)before.bytes);
    free((void *)(uintptr_t)after.bytes);
    return status;
}

static void fault_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    job *j = arg;
    steps s;
    steps_layer layers[3];
    gw_why why = {""};
    fault planned = rank == ODD ? j->fault : (fault){FAULT_NONE, 0, 0};
    planned.operation += j->begun;
    gw_comm *wrapped =
        j->unsealed ? faulty_wrap_unsealed(comm, planned) : faulty_wrap(comm, planned);
    RANK_TRUE(wrapped != NULL, "no memory");
    const gw_step_config config = {
        .comm = wrapped, .lanes = 1, .timeout = j->stops ? 1 : 60, .own_thread = j->own_thread};
    steps_open(&s, &config, layers, layers_of(j, layers));
    steps_agree(&s);
    for (uint64_t step = 1; step <= GOOD; step++) {
        steps_run(&s, step);
    }
    if (rank == ODD && j->begun == 0) {
        j->begun = faulty_operations(wrapped); /* to know where the bad step begins */
    }
    ranks_meet(all);
    if (j->fault.kind != FAULT_NONE) {
        /* a rank that has all it needs may not see the fault before the next step */
        gw_status status = bad_step(&s, GOOD + 1, &why);
        status = status == GW_OK ? bad_step(&s, GOOD + 2, &why) : status;
        check_failure(&s, j, status, &why);
    }
    ranks_meet(all);
    steps_close(&s);
    wrapped->table->close(wrapped);
}

/* Of a step: layer 0 takes one operation and layer 1 six (two rounds of two, and their seals). */
enum { OF_LAYER_2 = 7, SEALS_OF_LAYER_1 = 2 };

static void go_wrong(job j)
{
    const gw_threads_config world = {.ranks = RANKS};
    fault planned = j.fault;
    planned.operation -= j.unsealed ? SEALS_OF_LAYER_1 : 0;
    j.stops = planned.kind == FAULT_STOP;
    for (int own_thread = 0; own_thread <= 1; own_thread++) {
        if (j.stops && own_thread != (j.spec != NULL)) {
            continue; /* one of the two: it takes as long as the timeout */
        }
        j.own_thread = own_thread;
        j.begun = 0;
        j.fault = (fault){FAULT_NONE, 0, 0};
        ranks_run(&world, fault_main, &j); /* only counts */
        j.fault = planned;
        ranks_run(&world, fault_main, &j);
    }
}

/* ---- bytes that change on their way ---- */

static void a_corrupt_payload(void **state)
{
    (void)state;
    const job j = {.elements = 30000,
                   .at_odd = {GW_ERR_CHECKSUM},
                   .elsewhere = {GW_ERR_PEER},
                   .words = "changed on its way"};
    static const char *const of[][2] = {{"natural:bits=8", "gather"},
                                        {"natural:bits=8", "sra"},
                                        {"sign:bucket=64", "sra"},
                                        {"dither:bits=4,bucket=64", "gather"}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        for (size_t byte = 0; byte < 400; byte += 133) {
            job one = j;
            one.spec = of[i][0];
            one.route = of[i][1];
            one.fault = (fault){FAULT_CORRUPT, OF_LAYER_2, byte};
            go_wrong(one);
        }
    }
    job second = j; /* the all-gather of sra */
    second.spec = "natural:bits=8";
    second.route = "sra";
    second.fault = (fault){FAULT_CORRUPT, OF_LAYER_2 + 1, 5};
    go_wrong(second);
}

/* Codecs whose size depends on the data send lengths first, 16 bytes each: the length, and its seal. */
static void a_corrupt_payload_of_any_size(void **state)
{
    (void)state;
    const job j = {.spec = "adacomp:bin=50",
                   .route = "gather",
                   .elements = 30000,
                   .fault = {FAULT_CORRUPT, OF_LAYER_2 + 1, 21},
                   .at_odd = {GW_ERR_CHECKSUM},
                   .elsewhere = {GW_ERR_PEER},
                   .words = "changed on its way"};
    go_wrong(j);
}

static void a_length_that_lies(void **state)
{
    (void)state;
    static const char *const of[][2] = {
        {"adacomp:bin=50", "gather"}, {"adacomp:bin=50", "sra"}, {"adacomp:bin=50", "star"}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        for (size_t byte = 1; byte < 8; byte++) { /* 16 Ki and more of bytes that are not there */
            job j = {.spec = of[i][0],
                     .route = of[i][1],
                     .elements = 30000,
                     .unsealed = 1,
                     .fault = {FAULT_CORRUPT, OF_LAYER_2, byte},
                     .at_odd = {GW_ERR_CORRUPT},
                     .elsewhere = {GW_ERR_PEER},
                     .words = "says it sends a payload of"};
            if (i == 2) { /* only the root receives; a rank's own lie is caught there */
                j.fault.kind = FAULT_LIE;
                j.at_odd[0] = GW_ERR_PEER;
                j.elsewhere[1] = GW_ERR_CORRUPT;
                j.words = NULL;
            }
            go_wrong(j);
        }
        /* a little lie, within what could be: the sizes no longer fit together */
        const job j = {
            .spec = of[i][0],
            .route = of[i][1],
            .elements = 30000,
            .unsealed = 1,
            .fault = {FAULT_LIE, OF_LAYER_2, 0},
            .at_odd = {GW_ERR_PEER, GW_ERR_DISAGREE, GW_ERR_ARG}, /* it is told its own lie */
            .elsewhere = {GW_ERR_PEER, GW_ERR_DISAGREE}};
        go_wrong(j);
    }
}

/* ---- an engine that fails, a rank that stops, a rank that leaves ---- */

static void an_operation_that_fails(void **state)
{
    (void)state;
    for (uint64_t at = OF_LAYER_2; at < OF_LAYER_2 + 2; at++) {
        const job j = {.spec = "natural:bits=8",
                       .route = "sra",
                       .elements = 30000,
                       .fault = {FAULT_FAIL, at, 0},
                       .at_odd = {GW_ERR_SYSTEM},
                       .elsewhere = {GW_ERR_PEER},
                       .words = "on purpose"};
        go_wrong(j);
    }
}

static void a_rank_that_stops(void **state)
{
    (void)state;
    static const char *const of[][2] = {
        {"natural:bits=8", "sra"}, {"adacomp:bin=50", "gather"}, {NULL, "dense"}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        const job j = {.spec = of[i][0],
                       .route = of[i][1],
                       .elements = 30000,
                       .fault = {FAULT_STOP, OF_LAYER_2 + 1, 0},
                       .at_odd = {GW_ERR_TIMEOUT, GW_ERR_PEER},
                       .elsewhere = {GW_ERR_TIMEOUT, GW_ERR_PEER}};
        go_wrong(j);
    }
}

/* One rank posts nothing, or only the first, and waits for the others to have noticed; or destroys its step. */
typedef struct leaving {
    int posts, destroys, own_thread;
} leaving;

static void leave_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    const leaving *l = arg;
    steps s;
    gw_why why = {""};
    const steps_layer layers[] = {{20000, "sign:bucket=64", "sra", 0}, {3000, NULL, NULL, 0}};
    const gw_step_config config = {
        .comm = comm, .lanes = 1, .timeout = l->destroys ? 60 : 1, .own_thread = l->own_thread};
    steps_open(&s, &config, layers, 2);
    steps_agree(&s);
    steps_run(&s, 1);
    ranks_meet(all); /* a world that has failed fails those who are late, too */
    const gw_feedback_blob before = steps_save(&s);
    for (uint32_t i = 0; i < (rank != ODD ? 2U : (uint32_t)l->posts); i++) {
        steps_fill(&s, i, 2);
        if (rank == ODD) {
            steps_post(&s, i);
        } else { /* the odd one may have left already: wait tells */
            const gw_tensor t = {s.gradient[i], s.layers[i].elements, s.layers[i].dtype};
            (void)gw_step_post(s.step, i, &t, &why);
        }
    }
    if (rank == ODD && l->destroys) {
        gw_step_destroy(s.step);
        s.step = NULL;
    } else if (rank != ODD) {
        const gw_status status = gw_step_wait(s.step, NULL, &why);
        RANK_TRUE(status == GW_ERR_TIMEOUT || status == GW_ERR_PEER, why.text);
        RANK_TRUE(!l->destroys || status == GW_ERR_PEER, why.text);
        char silent[64];
        (void)snprintf(silent, sizeof silent, "not called by rank %d", ODD);
        const char *found = strstr(why.text, "no answer for 1 s");
        RANK_TRUE(l->destroys || (found != NULL && strstr(found, silent) != NULL), why.text);
        const gw_feedback_blob after = steps_save(&s);
        RANK_TRUE(steps_same(before, after), "a failed step changed a residual");
        free((void *)(uintptr_t)after.bytes);
    }
    ranks_meet(all);
    if (s.step != NULL && rank == ODD) { /* comes back, too late */
        for (uint32_t i = (uint32_t)l->posts; i < 2; i++) {
            const gw_tensor t = {s.gradient[i], layers[i].elements, GW_F32};
            (void)gw_step_post(s.step, i, &t, &why);
        }
        RANK_TRUE(gw_step_wait(s.step, NULL, &why) == GW_ERR_PEER, why.text);
    }
    free((void *)(uintptr_t)before.bytes);
    steps_close(&s);
}

static void leave(int posts, int destroys)
{
    const gw_threads_config world = {.ranks = RANKS};
    for (int own_thread = 0; own_thread <= 1; own_thread++) {
        leaving l = {posts, destroys, own_thread};
        if (destroys || own_thread == posts) {
            ranks_run(&world, leave_main, &l);
        }
    }
}

static void a_rank_that_posts_nothing(void **state)
{
    (void)state;
    leave(0, 0);
    leave(1, 0);
}

static void a_rank_that_leaves_in_mid_step(void **state)
{
    (void)state;
    leave(0, 1);
    leave(1, 1);
    leave(2, 1);
}

/* ---- groups that cannot be made ---- */

enum { SPLITS = 4 }; /* three for a lane, and adapt's own */

static void split_main(ranks *all, uint32_t rank, gw_comm *comm, void *arg)
{
    const uint64_t *which = arg, dims[] = {40, 50};
    const fault planned = {rank == ODD ? FAULT_SPLIT : FAULT_NONE, *which, 0};
    gw_comm *wrapped = faulty_wrap(comm, planned);
    gw_step *step = NULL;
    gw_why why = {""};
    uint32_t layer = 0;
    RANK_TRUE(wrapped != NULL, "no memory");
    const gw_step_config config = {.comm = wrapped, .lanes = 1, .ranks_per_node = 2, .timeout = 60};
    gw_status status = gw_step_create(&config, &step, &why);
    RANK_TRUE((status == GW_OK) == (*which == SPLITS - 1), "the split is another one");
    if (status == GW_OK) {
        RANK_OK(gw_step_add(step, "w", dims, 2, GW_F32, &layer, &why), why.text);
        RANK_OK(gw_step_agree(step, &why), why.text);
        ranks_meet(all);
        status = gw_step_adapt_begin_spec(step, "adapt/dither:bits=4", &why);
    }
    RANK_TRUE(status == (rank == ODD ? GW_ERR_CHECKSUM : GW_ERR_PEER), why.text);
    RANK_TRUE(strstr(why.text, "fails on purpose") != NULL, why.text);
    ranks_meet(all);
    gw_step_destroy(step);
    wrapped->table->close(wrapped);
}

/* The rank that finds its group's messages changed tells the others, who would wait for ever. */
static void a_group_that_cannot_be_made(void **state)
{
    (void)state;
    const gw_threads_config world = {.ranks = RANKS};
    for (uint64_t which = 0; which < SPLITS; which++) {
        ranks_run(&world, split_main, &which);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_corrupt_payload),
        cmocka_unit_test(a_corrupt_payload_of_any_size),
        cmocka_unit_test(a_length_that_lies),
        cmocka_unit_test(an_operation_that_fails),
        cmocka_unit_test(a_rank_that_stops),
        cmocka_unit_test(a_rank_that_posts_nothing),
        cmocka_unit_test(a_rank_that_leaves_in_mid_step),
        cmocka_unit_test(a_group_that_cannot_be_made),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
