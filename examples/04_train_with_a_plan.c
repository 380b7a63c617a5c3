/* Two ranks, threads of one process, train by a plan file, stop halfway, and go on from what they saved.
 *     gradwire plan 04_job.json --nodes 2 --link 10mbit -c topk:density=0.05 -o plan.json
 *     cc 04_train_with_a_plan.c $(pkg-config --cflags --libs gradwire-files) -lpthread -o train && ./train plan.json */
#include <gradwire/files.h>
#include <gradwire/gradwire.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 2, MATRIX = 256 * 256, ALL = MATRIX + 256, STEPS = 200 };

/* A rank. Its checkpoint is what training changes: step, weights, residuals (what codecs have still to send). */
typedef struct rank {
    gw_comm *comm;
    uint64_t step, last;
    float weights[ALL], grads[ALL];
    gw_feedback_blob saved; /* residuals */
} rank;

static gw_plan_file *plan;
static void must(gw_status status, const gw_why *why)
{
    if (status != GW_OK) {
        exit(fprintf(stderr, "%s\n", why->text) != 0);
    }
}

/* In place of a network: ranks and steps want weights to be other numbers, from 0 to 6. */
static void backward(rank *r)
{
    for (uint64_t i = 0; i < ALL; i++) {
        r->grads[i] = r->weights[i] - (float)((i + r->step * RANKS + r->comm->rank) % 7);
    }
}

static void *rank_main(void *arg)
{
    rank *r = arg;
    const gw_step_config config = {.comm = r->comm, .seed = 42, .own_thread = 1};
    const gw_tensor matrix = {r->grads, MATRIX, GW_F32}, row = {&r->grads[MATRIX], 256, GW_F32};
    gw_step *step = NULL;
    gw_why why = {""};
    uint32_t weight = 0, bias = 0;
    must(gw_step_create(&config, &step, &why), &why); /* its layers are those of the job file */
    must(gw_step_add(step, "bias", (uint64_t[]){256}, 1, GW_F32, &bias, &why), &why);
    must(gw_step_add(step, "weight", (uint64_t[]){256, 256}, 2, GW_F32, &weight, &why), &why);
    must(gw_step_use_plan(step, plan, 0, &why), &why);
    gw_step_set_number(step, r->step);
    must(gw_step_agree(step, &why), &why);
    if (r->saved.size != 0) {
        must(gw_feedback_load(gw_step_feedback(step), RANKS, &r->saved, 1, NULL, &why), &why);
    }
    for (; r->step < r->last; r->step++) {
        backward(r);
        must(gw_step_post(step, bias, &row, &why), &why);
        must(gw_step_post(step, weight, &matrix, &why), &why);
        must(gw_step_wait(step, NULL, &why), &why); /* gradients are the mean over all ranks */
        for (int i = 0; i < ALL; i++) {
            r->weights[i] -= 0.05F * r->grads[i];
        }
    }
    must(gw_feedback_save_bytes(gw_step_feedback(step), &r->saved.size, &why), &why);
    void *bytes = realloc((void *)r->saved.bytes, r->saved.size);
    must(gw_feedback_save(gw_step_feedback(step), bytes, r->saved.size, &r->saved.size, &why),
         &why);
    r->saved.bytes = bytes;
    gw_step_destroy(step);
    return NULL;
}

static void train(rank ranks[RANKS], uint64_t last)
{
    gw_threads *world = NULL;
    pthread_t thread;
    gw_why why = {""};
    must(gw_threads_create(&(gw_threads_config){.ranks = RANKS}, &world, &why), &why);
    for (uint32_t i = 0; i < RANKS; i++) {
        ranks[i].last = last;
        must(gw_threads_comm(world, i, &ranks[i].comm), &why);
    }
    must(pthread_create(&thread, NULL, rank_main, &ranks[1]) ? GW_ERR_SYSTEM : GW_OK, &why);
    (void)rank_main(&ranks[0]);
    (void)pthread_join(thread, NULL);
    gw_threads_destroy(world);
}

int main(int argc, char **argv)
{
    static rank whole[RANKS], parts[RANKS];
    gw_why why = {""};
    must(gw_plan_read(argc > 1 ? argv[1] : "plan.json", &plan, &why), &why);
    train(whole, STEPS);
    train(parts, STEPS / 2);
    train(parts, STEPS); /* other threads, another world: what they know is the checkpoint */
    (void)printf("weight 3 is %.2f\n", (double)parts->weights[3]);
    gw_plan_file_free(plan);
    return memcmp((char *)whole->weights, (char *)parts->weights, sizeof whole->weights) != 0;
}
