#include "plan/problem.h"

#include "base/why.h"

#include <math.h>
#include <stdlib.h>

static const gw_class NO_CHOICES;

gw_status gw_job_check(const gw_job *job, gw_why *why)
{
    const double longest = 1e6; /* seconds */
    double before = 0;
    if (job->n == 0) {
        return GW_FAIL(why, GW_ERR_RANGE, "the job has no tensors: there is nothing to send");
    }
    if (job->dtype != 0 && gw_dtype_size(job->dtype) == 0) {
        return GW_FAIL(why, GW_ERR_ARG, "gradients of an unknown dtype, %d", (int)job->dtype);
    }
    if (job->n > GW_PLAN_MAX_TENSORS) {
        return GW_FAIL(why, GW_ERR_RANGE, "%zu tensors: at most %d", job->n, GW_PLAN_MAX_TENSORS);
    }
    for (size_t i = 0; i < job->n; i++) {
        const gw_job_tensor *t = &job->tensors[i];
        if (!(t->ready >= 0 && t->ready <= longest)) {
            return GW_FAIL(why, GW_ERR_RANGE, "tensor '%.80s': ready at %g s", t->name, t->ready);
        }
        if (t->ready < before) {
            return GW_FAIL(why, GW_ERR_RANGE,
                           "tensor '%.80s' is ready at %g s, the one before it at %g s", t->name,
                           t->ready, before);
        }
        if (t->elements == 0 || t->elements > (uint64_t)1 << 40) {
            return GW_FAIL(why, GW_ERR_RANGE, "tensor '%.80s': %llu elements; 1 to 2^40", t->name,
                           (unsigned long long)t->elements);
        }
        before = t->ready;
    }
    const double fixed[4] = {job->forward, job->backward - before, job->optimizer, job->beside};
    static const char *const NAMES[4] = {"forward", "backward behind the last gradient",
                                         "optimizer", "a step of short exchanges"};
    for (unsigned i = 0; i < 4; i++) {
        if (!(fixed[i] >= 0 && fixed[i] <= longest)) {
            return GW_FAIL(why, GW_ERR_RANGE, "%s takes %g s", NAMES[i], fixed[i]);
        }
    }
    return GW_OK;
}

static int by_number(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

gw_status gw_job_sizes(const gw_job *job, size_t *out, gw_why *why)
{
    uint64_t *sizes = malloc(job->n * sizeof *sizes);
    size_t n = 0;
    if (sizes == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for a plan of %zu tensors", job->n);
    }
    for (size_t i = 0; i < job->n; i++) {
        sizes[i] = job->tensors[i].elements;
    }
    qsort(sizes, job->n, sizeof *sizes, by_number);
    for (size_t i = 0; i < job->n; i++) {
        n += i == 0 || sizes[i] != sizes[i - 1];
    }
    free(sizes);
    *out = n;
    return GW_OK;
}

double gw_step_seconds(const gw_job *job, gw_ticks makespan)
{
    return job->forward + (double)makespan * 1e-9 + job->optimizer;
}

/* ---- buckets ---- */

const gw_fusion_rule GW_FUSION[GW_FUSIONS] = {{0, 0, 0},
                                              {1 << 14, 1 << 16, 0},
                                              {1 << 16, 1 << 20, 0},
                                              {1 << 18, 1 << 22, 0},
                                              {1 << 20, 1 << 23, 0}};

static void cut(gw_problem *x, const gw_job *job, gw_fusion_rule rule)
{
    uint32_t b = 0;
    for (size_t i = 0; i < job->n; i++) {
        const uint64_t more = job->tensors[i].elements;
        const int small = more < rule.below;
        const uint8_t plain = job->tensors[i].uncompressed != 0;
        const int joins = b > 0 && small && job->tensors[i - 1].elements < rule.below &&
                          (rule.mixed || x->plain[b - 1] == plain) &&
                          x->elements[b - 1] + more <= rule.together;
        if (!joins) {
            x->first[b] = (uint32_t)i;
            x->plain[b] = 0;
            x->elements[b++] = 0;
        }
        x->elements[b - 1] += more;
        x->plain[b - 1] |= plain;
    }
    x->first[b] = (uint32_t)job->n;
    x->buckets = b;
}

gw_status gw_problem_create(gw_problem *x, const gw_job *job, gw_fusion_rule rule, gw_why *why)
{
    const size_t room = job->n + 2;
    *x = (gw_problem){.first = calloc(room, sizeof *x->first),
                      .elements = calloc(room, sizeof *x->elements),
                      .plain = calloc(room, sizeof *x->plain),
                      .compute = calloc(room, sizeof *x->compute),
                      .class_of = calloc(room, sizeof(void *))};
    if (x->first == NULL || x->elements == NULL || x->plain == NULL || x->compute == NULL ||
        x->class_of == NULL) {
        gw_problem_destroy(x);
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for a job of %zu tensors", job->n);
    }
    cut(x, job, rule);
    gw_ticks before = 0;
    for (uint32_t b = 0; b < x->buckets; b++) {
        const gw_ticks ready = gw_ticks_of(job->tensors[x->first[b + 1] - 1].ready);
        x->compute[b] = ready - before;
        before = ready;
    }
    x->n = x->buckets;
    if (gw_ticks_of(job->backward) > before) {
        x->compute[x->n] = gw_ticks_of(job->backward) - before;
        x->class_of[x->n++] = &NO_CHOICES;
    }
    return GW_OK;
}

gw_status gw_problem_of(gw_problem *x, const gw_job *job, const gw_plan_entry *entries, gw_why *why)
{
    const gw_status status = gw_problem_create(x, job, GW_FUSION[0], why);
    if (status != GW_OK) {
        return status;
    }
    uint32_t b = 0;
    for (uint32_t i = 0; i < job->n; i++) {
        if (i > 0 && entries[i].bucket == entries[i - 1].bucket) {
            x->elements[b - 1] += job->tensors[i].elements;
            x->compute[b - 1] += x->compute[i];
        } else {
            x->first[b] = i;
            x->elements[b] = job->tensors[i].elements;
            x->plain[b] = job->tensors[i].uncompressed != 0;
            x->compute[b++] = x->compute[i];
        }
    }
    const int tail = x->n > x->buckets;
    x->compute[b] = tail ? x->compute[x->buckets] : 0;
    x->first[b] = (uint32_t)job->n;
    x->buckets = b;
    x->n = b + (uint32_t)tail;
    return GW_OK;
}

void gw_problem_destroy(gw_problem *x)
{
    free(x->first);
    free(x->elements);
    free(x->plain);
    free(x->compute);
    free((void *)x->class_of);
    *x = (gw_problem){0};
}

/* ---- classes ---- */

static gw_class *find(const gw_class_store *store, uint64_t elements, int together, int plain)
{
    for (uint32_t i = 0; i < store->n; i++) {
        const gw_class *c = store->item[i];
        if (c->elements == elements && c->together == together && c->plain == plain) {
            return store->item[i];
        }
    }
    return NULL;
}

static gw_status add_class(gw_class_store *store, gw_pricer *p, uint64_t elements, gw_class **out,
                           gw_why *why)
{
    if (store->n == store->capacity) {
        const uint32_t capacity = store->capacity == 0 ? 64 : 2 * store->capacity;
        gw_class **item = realloc((void *)store->item, capacity * sizeof(void *));
        if (item == NULL) {
            return GW_FAIL(why, GW_ERR_MEMORY, "no memory for %u sizes", capacity);
        }
        store->item = item;
        store->capacity = capacity;
    }
    gw_class *c = calloc(1, sizeof *c);
    if (c == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for a size");
    }
    const gw_status status = gw_price_class(p, elements, c, why);
    c->together = p->together;
    c->plain = p->plain;
    if (status != GW_OK) {
        free(c);
        return status;
    }
    store->item[store->n++] = c;
    *out = c;
    return GW_OK;
}

gw_status gw_check_span(double seconds, gw_why *why)
{
    return seconds < 1e8 ? GW_OK
                         : GW_FAIL(why, GW_ERR_RANGE,
                                   "a step could take %.0f years: does the cluster fit the job?",
                                   seconds / 3.2e7);
}

/* Everything by its slowest choice, one after the other. */
static gw_status check_slowest(const gw_problem *x, gw_why *why)
{
    double sum = 0;
    for (uint32_t b = 0; b < x->buckets; b++) {
        gw_ticks most = 0;
        for (uint32_t k = 0; k < x->class_of[b]->n; k++) {
            const gw_ticks alone = gw_choice_alone(&x->class_of[b]->choice[k]);
            most = alone > most ? alone : most;
        }
        sum += (double)most * 1e-9;
    }
    return gw_check_span(sum, why);
}

gw_status gw_problem_price(gw_problem *x, gw_pricer *p, gw_class_store *store, gw_why *why)
{
    for (uint32_t b = 0; b < x->buckets; b++) {
        p->together = x->first[b + 1] - x->first[b] > 1;
        p->plain = x->plain[b];
        gw_class *c = find(store, x->elements[b], p->together, p->plain);
        const gw_status status = c != NULL ? GW_OK : add_class(store, p, x->elements[b], &c, why);
        if (status != GW_OK) {
            return status;
        }
        x->class_of[b] = c;
    }
    return check_slowest(x, why);
}

void gw_class_store_free(gw_class_store *store)
{
    for (uint32_t i = 0; i < store->n; i++) {
        gw_class_free(store->item[i]);
        free(store->item[i]);
    }
    free((void *)store->item);
    *store = (gw_class_store){0};
}
