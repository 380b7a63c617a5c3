#define _POSIX_C_SOURCE 200809L
#include "trainer/rank.h"

#include "trainer/fail.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { SAID_LAYER = 0, SAID_LOSS = 0, SAID_STOP = 1 };
enum { TIMEOUT = 300 }; /* seconds that a rank waits for the others */
static const double HOLD_SECONDS = 0.03;

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- before the first step ---- */

static gw_status create_step(rank *r, gw_why *why)
{
    const gw_step_config config = {.comm = r->comm,
                                   .ranks_per_node = r->config.ranks_per_node,
                                   .node_of = r->config.nodes ? r->config.nodes->node_of : NULL,
                                   .seed = r->config.seed,
                                   .fuse_below = r->config.plan.fuse_below,
                                   .timeout = TIMEOUT,
                                   .own_thread = 1};
    const uint64_t said = sizeof r->said / sizeof *r->said;
    uint32_t number = 0;
    gw_status status = gw_step_create(&config, &r->step, why);
    if (status == GW_OK) {
        status = gw_step_add(r->step, "loss", &said, 1, GW_F32, &number, why);
    }
    if (status == GW_OK) {
        status = plan_add(&r->plan, r->model, r->step, RANK_FIRST_PARAM, why);
    }
    if (status == GW_OK) {
        gw_step_set_number(r->step, r->config.first_step);
        status = gw_step_agree(r->step, why);
    }
    return status == GW_OK ? plan_adapt(&r->config.plan, r->step, why) : status;
}

/* Where gradients are held: a step with a short exchange for every param. */
static gw_status create_beside(rank *r, gw_why *why)
{
    const gw_step_config config = {.comm = r->comm, .timeout = TIMEOUT, .own_thread = 1};
    const uint64_t elements = GW_BESIDE_ELEMENTS;
    r->short_ones = calloc(r->model->n_params, sizeof *r->short_ones);
    gw_status status = r->short_ones != NULL
                           ? gw_step_create(&config, &r->beside, why)
                           : trainer_fail(why, GW_ERR_MEMORY, "no memory for short exchanges");
    for (size_t i = 0; i < r->model->n_params && status == GW_OK; i++) {
        uint32_t number = 0;
        status =
            gw_step_add(r->beside, r->model->params[i]->name, &elements, 1, GW_F32, &number, why);
    }
    return status == GW_OK ? gw_step_agree(r->beside, why) : status;
}

static gw_status create_batch(rank *r, gw_why *why)
{
    const size_t rows = r->config.batch * r->data->rows;
    r->which = calloc(r->config.batch, sizeof *r->which);
    r->x = calloc(rows * r->data->width, sizeof *r->x);
    r->labels = calloc(rows, sizeof *r->labels);
    r->layers = calloc(RANK_FIRST_PARAM + r->plan.n, sizeof *r->layers);
    return r->which != NULL && r->x != NULL && r->labels != NULL && r->layers != NULL
               ? GW_OK
               : trainer_fail(why, GW_ERR_MEMORY, "no memory for a batch");
}

static gw_status create_shares(rank *r, gw_why *why)
{
    const uint32_t ranks = r->comm->ranks;
    r->shares = calloc(ranks, sizeof *r->shares);
    return r->shares != NULL ? GW_OK
                             : trainer_fail(why, GW_ERR_MEMORY, "no memory for %u ranks", ranks);
}

gw_status rank_create(const rank_config *config, const dataset *data, gw_comm *comm, rank **out,
                      gw_why *why)
{
    rank *r = calloc(1, sizeof *r);
    if (r == NULL) {
        return trainer_fail(why, GW_ERR_MEMORY, "no memory for a rank");
    }
    r->config = *config;
    r->data = data;
    r->comm = comm;
    gw_status status = sampler_create(&r->sampler, config->seed, data->train, config->batch,
                                      comm->ranks, comm->rank, why);
    if (status == GW_OK) {
        status = model_create(config->model, data, config->batch, config->seed, &r->model, why);
    }
    if (status == GW_OK) {
        status = optimiser_create(&r->optimiser, &config->optimiser, r->model->room, why);
    }
    if (status == GW_OK) {
        r->config.plan.where = (gw_route_job){
            .ranks = comm->ranks, .ranks_per_node = config->ranks_per_node, .nodes = config->nodes};
        status = plan_make(&r->config.plan, r->model, &r->plan, why);
    }
    if (status == GW_OK) {
        status = create_batch(r, why);
    }
    if (status == GW_OK) {
        status = create_shares(r, why);
    }
    if (status == GW_OK) {
        status = create_step(r, why);
    }
    if (status == GW_OK && config->hold) {
        status = create_beside(r, why);
    }
    if (status != GW_OK) {
        rank_destroy(r);
        return status;
    }
    *out = r;
    return GW_OK;
}

void rank_destroy(rank *r)
{
    if (r == NULL) {
        return;
    }
    gw_step_destroy(r->step);
    gw_step_destroy(r->beside);
    free(r->short_ones);
    sampler_destroy(&r->sampler);
    optimiser_destroy(&r->optimiser);
    model_destroy(r->model);
    free(r->which);
    free(r->x);
    free(r->labels);
    free(r->layers);
    free(r->shares);
    free(r);
}

/* ---- a step ---- */

static gw_status post_param(rank *r, uint32_t index, gw_why *why)
{
    const param *p = r->model->params[index];
    const gw_tensor gradient = {p->gradient, p->count, GW_F32};
    return gw_step_post(r->step, RANK_FIRST_PARAM + index, &gradient, why);
}

static gw_status post(void *arg, size_t index, gw_why *why)
{
    rank *r = arg;
    const param *p = r->model->params[index];
    r->ready[index] = now() - r->first_post;
    if (r->kept != NULL) {
        memcpy(r->kept + (p->gradient - r->model->gradients), p->gradient,
               p->count * sizeof *p->gradient);
    }
    return r->config.hold ? GW_OK : post_param(r, (uint32_t)index, why);
}

static gw_status post_short(void *arg, size_t index, gw_why *why)
{
    rank *r = arg;
    const gw_tensor gradient = {r->short_ones[index], GW_BESIDE_ELEMENTS, GW_F32};
    return gw_step_post(r->beside, (uint32_t)index, &gradient, why);
}

/* The batch, and its loss. */
static loss compute_loss(rank *r)
{
    const size_t rows = r->config.batch * r->data->rows;
    sampler_pick(&r->sampler, gw_step_number(r->step), r->which);
    r->data->fill(r->data, 0, r->which, r->config.batch, r->x, r->labels);
    const float *numbers = model_forward(r->model, rows, r->x);
    return softmax_loss(rows, r->data->classes, numbers, r->labels,
                        model_output_gradient(r->model));
}

/* Gradients of this rank's examples, posted one after the other, the first at r->first_post. */
static gw_status forward_backward(rank *r, gw_why *why)
{
    const size_t rows = r->config.batch * r->data->rows;
    const loss l = compute_loss(r);
    r->said[SAID_LOSS] = (float)(l.sum / (double)rows);
    r->said[SAID_STOP] = r->wants_stop ? 1.0F : 0.0F;
    const gw_tensor said = {r->said, sizeof r->said / sizeof *r->said, GW_F32};
    r->first_post = now();
    gw_status status = r->config.hold ? GW_OK : gw_step_post(r->step, SAID_LAYER, &said, why);
    status = status == GW_OK ? model_backward(r->model, rows, r->x, post, r, why) : status;
    r->last_ready = now();
    return status;
}

/* Seconds that this thread had a core. */
static double worked(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Ranks that share cores compute a short step one after the other, each as if it were alone. So it is repeated until they
 * had to take turns. Times are the first one's, whose data is not in the cache, stretched to what its work takes when a
 * core is had as seldom as on the average. */
/* The same computing with short exchanges beside it, as often as steps follow each other. Gradients are as before. */
static gw_status compute_beside(rank *r, gw_why *why)
{
    enum { ROUNDS = 4 };
    const size_t rows = r->config.batch * r->data->rows;
    gw_step_result result;
    gw_status status = GW_OK;
    double begun = now();
    for (int i = 0; i <= ROUNDS && status == GW_OK; i++) {
        begun = i == 1 ? now() : begun; /* the first brings the ranks together */
        (void)compute_loss(r);
        status = model_backward(r->model, rows, r->x, post_short, r, why);
        status = status == GW_OK ? gw_step_wait(r->beside, &result, why) : status;
    }
    r->beside_seconds = (now() - begun) / ROUNDS;
    return status;
}

static gw_status hold(rank *r, double begun, gw_why *why)
{
    const double before = worked();
    gw_status status = forward_backward(r, why);
    const double first = r->last_ready - begun, first_work = worked() - before;
    const double forward = r->first_post - begun;
    double ready[MODEL_MAX_PARAMS];
    memcpy(ready, r->ready, sizeof ready);
    while (status == GW_OK && r->last_ready - begun < HOLD_SECONDS) {
        status = forward_backward(r, why);
    }
    r->crowded = (r->last_ready - begun) / (worked() - before) * first_work / first;
    r->forward = forward * r->crowded;
    r->backward = (first - forward) * r->crowded;
    for (uint32_t i = 0; i < r->model->n_params; i++) {
        r->ready[i] = ready[i] * r->crowded;
    }
    status = status == GW_OK ? compute_beside(r, why) : status;
    const gw_tensor said = {r->said, sizeof r->said / sizeof *r->said, GW_F32};
    status = status == GW_OK ? gw_step_post(r->step, SAID_LAYER, &said, why) : status;
    for (uint32_t i = 0; i < r->plan.n && status == GW_OK; i++) {
        status = post_param(r, r->plan.order[i], why);
    }
    return status;
}

/* What the links saw of the step. */
static gw_status count_bytes(rank *r, rank_stats *stats)
{
    gw_status status = GW_OK;
    for (uint32_t i = 0; i < RANK_FIRST_PARAM + r->plan.n && status == GW_OK; i++) {
        gw_layer_stats *l = &r->layers[i];
        status = gw_step_stats(r->step, i, l);
        if (status == GW_OK) {
            for (int link = 0; link < GW_LINKS; link++) {
                stats->bytes_sent[link] += l->bytes_sent[link];
                stats->dense_bytes[link] += l->dense_bytes_sent[link];
            }
        }
    }
    return status;
}

gw_status rank_step(rank *r, rank_stats *stats, gw_why *why)
{
    const double begun = now();
    gw_step_result result;
    gw_status status = r->config.hold ? hold(r, begun, why) : forward_backward(r, why);
    if (status != GW_OK) {
        return status;
    }
    const double posted = now();
    status = gw_step_wait(r->step, &result, why);
    if (status != GW_OK) {
        return status;
    }
    (void)gw_step_auto_loss(r->step, (double)r->said[SAID_LOSS]); /* if it wants to know */
    const double arrived = now();
    if (result.non_finite == 0) {
        optimiser_step(&r->optimiser, result.number, r->config.steps, r->model->weights,
                       r->model->gradients);
    }
    const double updated = now();
    *stats = (rank_stats){.step = result.number,
                          .loss = (double)r->said[SAID_LOSS],
                          .seconds = updated - begun,
                          .wait_seconds = arrived - posted,
                          .forward_seconds = r->config.hold ? r->forward : r->first_post - begun,
                          .backward_seconds =
                              r->config.hold ? r->backward : r->last_ready - r->first_post,
                          .update_seconds = (updated - arrived) * (r->config.hold ? r->crowded : 1),
                          .non_finite = result.non_finite,
                          .stop = r->said[SAID_STOP] > 0};
    return count_bytes(r, stats);
}

/* ---- the test set ---- */

/* Examples rank, rank + ranks, … below n. */
static loss evaluate_share(rank *r, size_t n)
{
    loss all = {0};
    size_t next = r->comm->rank;
    while (next < n) {
        size_t count = 0;
        for (; count < r->config.batch && next < n; next += r->comm->ranks) {
            r->which[count++] = (uint32_t)next;
        }
        const size_t rows = count * r->data->rows;
        r->data->fill(r->data, 1, r->which, count, r->x, r->labels);
        const float *numbers = model_forward(r->model, rows, r->x);
        const loss l = softmax_loss(rows, r->data->classes, numbers, r->labels, NULL);
        all.sum += l.sum;
        all.right += l.right;
        all.rows += l.rows;
    }
    return all;
}

/* Sums, in rank order, of what every rank has: the same bits on all. */
static gw_status sum_shares(rank *r, const loss *own, loss *sum, gw_why *why)
{
    gw_comm *comm = r->comm;
    const gw_status status = gw_comm_gather(comm, own, sizeof *own, r->shares, TIMEOUT, why);
    if (status != GW_OK) {
        return status;
    }
    *sum = (loss){0};
    for (uint32_t i = 0; i < comm->ranks; i++) {
        sum->sum += r->shares[i].sum;
        sum->right += r->shares[i].right;
        sum->rows += r->shares[i].rows;
    }
    return GW_OK;
}

gw_status rank_evaluate(rank *r, size_t examples, loss *out, gw_why *why)
{
    const size_t all = r->data->test;
    const loss own = evaluate_share(r, examples != 0 && examples < all ? examples : all);
    return sum_shares(r, &own, out, why);
}
