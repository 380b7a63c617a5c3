/* Trains a model on ranks that are threads, joined by a link of a given speed.
 *     trainer --model cnn --ranks 4 --spec natural:bits=8 --route sra --link 200mbit --steps 200 */
#include "data_images.h"
#include "data_text.h"
#include "rank.h"

#include <cblas.h>
#include <gradwire/threads.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 64 /* characters that the lstm sees at once */, LINES = 20 /* of progress */ };

typedef struct job {
    rank_config config;
    dataset *data;
    gw_threads *world;
    uint64_t every; /* steps between evaluations */
} job;

typedef struct rank_thread {
    const job *job;
    uint32_t rank;
    pthread_t thread;
} rank_thread;

static _Noreturn void give_up(const char *words)
{
    (void)fprintf(stderr, "trainer: %s\n", words);
    exit(1);
}

static void must(gw_status status, const gw_why *why)
{
    if (status != GW_OK) {
        give_up(why->text[0] != '\0' ? why->text : gw_status_string(status));
    }
}

/* ---- options ---- */

static const struct option {
    const char *name, *fallback, *doc;
} options[] = {{"model", "cnn", "mlp, cnn or lstm"},
               {"ranks", "4", "threads that train together"},
               {"batch", "32", "examples a rank and step"},
               {"steps", "500", "steps of the run"},
               {"seed", "1", "of weights, order and rounding"},
               {"spec", "dense", "codec of the gradients"},
               {"route", "", "their route; empty: what suits the codec"},
               {"fuse-below", "2048", "elements; smaller tensors go together, uncompressed"},
               {"link", "0mbit", "rate of every rank's link; 0: no limit"},
               {"latency", "0ms", "of the link"},
               {"optimiser", "sgd", "sgd or adam"},
               {"rate", "0.08", "learning rate; adam wants about 0.003"},
               {"warmup", "100", "steps over which the rate rises"},
               {"momentum", "0.9", "of sgd"},
               {"decay", "0.0005", "weight decay"},
               {"schedule", "cosine", "of the rate: constant, cosine or step"},
               {"every", "0", "evaluate every so many steps; 0: at the end"},
               {"images", FASHION_MNIST, "folder of mlp's and cnn's data"},
               {"text", "build/data/kjv.txt", "file of lstm's data"}};
enum { OPTIONS = sizeof options / sizeof *options };

static _Noreturn void help(FILE *to, int code)
{
    (void)fprintf(to, "usage: trainer [--OPTION VALUE]...\n");
    for (int i = 0; i < OPTIONS; i++) {
        (void)fprintf(to, "  --%-11s %s (%s)\n", options[i].name, options[i].doc,
                      options[i].fallback);
    }
    exit(code);
}

static const char *value_of(const char *const values[OPTIONS], const char *name)
{
    for (int i = 0; i < OPTIONS; i++) {
        if (strcmp(options[i].name, name) == 0) {
            return values[i];
        }
    }
    return NULL;
}

static void parse(int argc, char **argv, const char *values[OPTIONS])
{
    for (int i = 0; i < OPTIONS; i++) {
        values[i] = options[i].fallback;
    }
    for (int at = 1; at < argc; at += 2) {
        int i = 0;
        while (i < OPTIONS &&
               (strncmp(argv[at], "--", 2) != 0 || strcmp(argv[at] + 2, options[i].name) != 0)) {
            i++;
        }
        if (i == OPTIONS || at + 1 == argc) {
            const int asked = strcmp(argv[at], "--help") == 0;
            help(asked ? stdout : stderr, asked ? 0 : 2);
        }
        values[i] = argv[at + 1];
    }
}

/* A number with `unit` behind it. */
static double number_of(const char *const values[OPTIONS], const char *name, const char *unit)
{
    const char *text = value_of(values, name);
    char *end = NULL;
    const double x = strtod(text, &end);
    if (end == text || strcmp(end, unit) != 0 || !(x >= 0 && x < 1e15)) {
        (void)fprintf(stderr, "trainer: --%s %s: not a number%s%s\n", name, text,
                      *unit != '\0' ? " of " : "", unit);
        exit(2);
    }
    return x;
}

/* The place of an option's word among `words`, which end with NULL. */
static int word_of(const char *const values[OPTIONS], const char *name, const char *const *words)
{
    const char *text = value_of(values, name);
    for (int i = 0; words[i] != NULL; i++) {
        if (strcmp(text, words[i]) == 0) {
            return i;
        }
    }
    (void)fprintf(stderr, "trainer: --%s %s: there is no such\n", name, text);
    exit(2);
}

static rank_config config_of(const char *const values[OPTIONS])
{
    const char *route = value_of(values, "route");
    const optimiser_config chosen = {
        .kind = (optimiser_kind)word_of(values, "optimiser",
                                        (const char *const[]){"sgd", "adam", NULL}),
        .schedule = (schedule)word_of(values, "schedule",
                                      (const char *const[]){"constant", "cosine", "step", NULL}),
        .rate = (float)number_of(values, "rate", ""),
        .warmup = (uint64_t)number_of(values, "warmup", ""),
        .momentum = (float)number_of(values, "momentum", ""),
        .decay = (float)number_of(values, "decay", "")};
    const plan_config plan = {.spec = value_of(values, "spec"),
                              .route = *route != '\0' ? route : NULL,
                              .fuse_below = (uint64_t)number_of(values, "fuse-below", "")};
    return (rank_config){.model = value_of(values, "model"),
                         .batch = (size_t)number_of(values, "batch", ""),
                         .seed = (uint64_t)number_of(values, "seed", ""),
                         .steps = (uint64_t)number_of(values, "steps", ""),
                         .optimiser = chosen,
                         .plan = plan};
}

/* ---- a rank ---- */

/* Since the last line. */
typedef struct progress {
    rank_stats sum;
    uint64_t steps;
} progress;

static void add(progress *p, const rank_stats *s)
{
    p->sum.loss += s->loss;
    p->sum.seconds += s->seconds;
    p->sum.wait_seconds += s->wait_seconds;
    p->sum.bytes_sent += s->bytes_sent;
    p->sum.dense_bytes += s->dense_bytes;
    p->sum.non_finite += s->non_finite;
    p->steps++;
}

static void say(const char *head, uint64_t step, const progress *p)
{
    const double n = (double)p->steps;
    (void)printf("%s%llu loss %.4f, %.1f ms a step, %.1f ms of it waiting, %.0f bytes sent (%.1fx "
                 "fewer)%s\n",
                 head, (unsigned long long)step, p->sum.loss / n, 1e3 * p->sum.seconds / n,
                 1e3 * p->sum.wait_seconds / n, (double)p->sum.bytes_sent / n,
                 p->sum.bytes_sent > 0 ? (double)p->sum.dense_bytes / (double)p->sum.bytes_sent : 1,
                 p->sum.non_finite > 0 ? ", some not finite" : "");
    (void)fflush(stdout);
}

static void evaluate(rank *r, uint64_t step, double seconds)
{
    gw_why why = {""};
    loss l;
    must(rank_evaluate(r, 0, &l, &why), &why);
    if (r->comm->rank == 0) {
        (void)printf("test after %llu steps, %.1f s: %.2f %% right, loss %.4f, %.4f bits a row\n",
                     (unsigned long long)step, seconds, 100 * (double)l.right / (double)l.rows,
                     l.sum / (double)l.rows, l.sum / (double)l.rows / log(2));
        (void)fflush(stdout);
    }
}

static void *train(void *arg)
{
    const rank_thread *t = arg;
    const job *j = t->job;
    const uint64_t steps = j->config.steps, line = (steps + LINES - 1) / LINES;
    gw_why why = {""};
    gw_comm *comm = NULL;
    rank *r = NULL;
    progress all = {{0}, 0}, part = {{0}, 0};
    must(gw_threads_comm(j->world, t->rank, &comm), &why);
    must(rank_create(&j->config, j->data, comm, &r, &why), &why);
    if (t->rank == 0) {
        (void)printf("%s: %zu weights, %llu steps an epoch\n", j->config.model, r->model->count,
                     (unsigned long long)sampler_steps(&r->sampler));
    }
    for (uint64_t i = 1; i <= steps; i++) {
        rank_stats s;
        must(rank_step(r, &s, &why), &why);
        add(&all, &s);
        add(&part, &s);
        if (t->rank == 0 && (i % line == 0 || i == steps)) {
            say("step ", i, &part);
            part = (progress){{0}, 0};
        }
        if (i == steps || (j->every != 0 && i % j->every == 0)) {
            evaluate(r, i, all.sum.seconds);
        }
    }
    if (t->rank == 0) {
        say("all ", steps, &all);
    }
    rank_destroy(r);
    comm->table->close(comm);
    return NULL;
}

int main(int argc, char **argv)
{
    const char *values[OPTIONS];
    parse(argc, argv, values);
    job j = {.config = config_of(values), .every = (uint64_t)number_of(values, "every", "")};
    const gw_threads_config config = {
        .ranks = (uint32_t)number_of(values, "ranks", ""),
        .far = {.bytes_per_second = 125e3 * number_of(values, "link", "mbit"),
                .latency_seconds = 1e-3 * number_of(values, "latency", "ms")}};
    gw_why why = {""};
    openblas_set_num_threads(1); /* ranks are threads already */
    must(strcmp(j.config.model, "lstm") == 0
             ? text_open(value_of(values, "text"), WINDOW, &j.data, &why)
             : images_open(value_of(values, "images"), &j.data, &why),
         &why);
    must(gw_threads_create(&config, &j.world, &why), &why);
    rank_thread threads[GW_THREADS_MAX_RANKS];
    for (uint32_t i = 0; i < config.ranks; i++) {
        threads[i] = (rank_thread){.job = &j, .rank = i};
        if (pthread_create(&threads[i].thread, NULL, train, &threads[i]) != 0) {
            give_up("no more threads");
        }
    }
    for (uint32_t i = 0; i < config.ranks; i++) {
        (void)pthread_join(threads[i].thread, NULL);
    }
    gw_threads_destroy(j.world);
    dataset_destroy(j.data);
    return 0;
}
