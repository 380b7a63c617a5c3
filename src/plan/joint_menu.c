/* Options: the choices of a bucket, with errors. */
#include "plan/joint_table.h"

#include "base/why.h"

#include <math.h>
#include <stdlib.h>

static const gw_class NO_CHOICES;

/* ---- the store ---- */

void gw_size_store_free(gw_size_store *store)
{
    for (uint32_t i = 0; i < store->n; i++) {
        for (uint32_t spec = 0; spec < store->n_specs; spec++) {
            gw_class_free(&store->item[i].of[spec]);
        }
        free(store->item[i].of);
    }
    free(store->item);
    *store = (gw_size_store){.n = 0};
}

static gw_status find_size(gw_size_store *store, uint64_t elements, int together, uint32_t *out,
                           gw_why *why)
{
    for (*out = 0; *out < store->n; ++*out) {
        if (store->item[*out].elements == elements && store->item[*out].together == together) {
            return GW_OK;
        }
    }
    if (store->n == store->capacity) {
        const uint32_t capacity = store->capacity == 0 ? 64 : 2 * store->capacity;
        gw_size *item = realloc(store->item, capacity * sizeof *item);
        if (item == NULL) {
            return GW_FAIL(why, GW_ERR_MEMORY, "no memory for %u sizes", capacity);
        }
        store->item = item;
        store->capacity = capacity;
    }
    gw_class *of = calloc(store->n_specs, sizeof *of);
    if (of == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for a size");
    }
    store->item[store->n++] = (gw_size){.elements = elements, .together = together, .of = of};
    return GW_OK;
}

/* ---- errors ---- */

/* With this spec, one hop; NaN: not for all its tensors. */
static double error_of_bucket(const gw_joint_problem *p, uint32_t bucket, uint32_t spec)
{
    double sum = 0;
    for (uint32_t i = p->x.first[bucket]; i < p->x.first[bucket + 1]; i++) {
        sum += p->table->error[(size_t)i * p->table->n_specs + spec];
    }
    return sum;
}

double gw_joint_error_of(const gw_joint_problem *p, const uint32_t *pick)
{
    double sum = 0;
    for (uint32_t b = 0; b < p->x.buckets; b++) {
        const gw_choice *c = p->menu[b].item[pick[b]].of;
        for (uint32_t i = p->x.first[b]; i < p->x.first[b + 1]; i++) {
            sum += c->hops * p->table->error[(size_t)i * p->table->n_specs + c->spec];
        }
    }
    return sum;
}

/* ---- menus ---- */

static int by_error(const void *a, const void *b)
{
    const gw_option *x = a, *y = b;
    if (x->error != y->error) {
        return x->error < y->error ? -1 : 1;
    }
    const gw_ticks p = gw_choice_alone(x->of), q = gw_choice_alone(y->of);
    if (p != q) {
        return p < q ? -1 : 1;
    }
    return x->of->variety != y->of->variety ? (x->of->variety < y->of->variety ? -1 : 1)
                                            : (x->of > y->of) - (x->of < y->of);
}

/* By error, then without those that an earlier one beats on every track. */
static void thin(gw_menu *m)
{
    uint32_t kept = 0;
    qsort(m->item, m->n, sizeof *m->item, by_error);
    for (uint32_t i = 0; i < m->n; i++) {
        int beaten = 0;
        for (uint32_t k = 0; k < kept && !beaten; k++) {
            beaten = gw_asks_no_more(m->item[k].of, m->item[i].of);
        }
        if (!beaten) {
            m->item[kept++] = m->item[i];
        }
    }
    m->n = kept;
}

gw_status gw_joint_class(gw_joint_problem *p, uint32_t b, uint32_t spec, const gw_class **out,
                         gw_why *why)
{
    gw_class *c = &p->store->item[p->size[b]].of[spec];
    *out = c;
    if (c->choice != NULL) {
        return GW_OK;
    }
    p->pricer->together = p->store->item[p->size[b]].together;
    return gw_price_spec(p->pricer, p->x.elements[b], spec, c, why);
}

static gw_status add_options(gw_joint_problem *p, uint32_t b, uint32_t spec, gw_why *why)
{
    gw_menu *m = &p->menu[b];
    const gw_class *c = NULL;
    const double budget = p->table->budget, error = error_of_bucket(p, b, spec);
    if (!(error <= budget)) { /* or a tensor that does not have it */
        return GW_OK;
    }
    const gw_status status = gw_joint_class(p, b, spec, &c, why);
    if (status != GW_OK) {
        return status;
    }
    gw_option *item = realloc(m->item, ((size_t)m->n + c->n + 1) * sizeof *item);
    if (item == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for the choices of a tensor");
    }
    m->item = item;
    for (uint32_t k = 0; k < c->n; k++) {
        const double caused = c->choice[k].hops * error;
        if (caused <= budget) {
            m->item[m->n++] = (gw_option){.of = &c->choice[k], .error = caused};
        }
    }
    return GW_OK;
}

static gw_status fill(gw_joint_problem *p, uint32_t b, gw_why *why)
{
    gw_menu *m = &p->menu[b];
    gw_status status = GW_OK;
    for (uint32_t spec = 0; spec < p->table->n_specs && status == GW_OK; spec++) {
        status = add_options(p, b, spec, why);
    }
    if (status == GW_OK && m->n == 0) {
        return GW_FAIL(why, GW_ERR_RANGE,
                       "a tensor of %llu elements: no route that is allowed keeps within the "
                       "budget of %g",
                       (unsigned long long)p->x.elements[b], p->table->budget);
    }
    if (status == GW_OK) {
        thin(m);
        m->least = m->item[0].error;
    }
    return status;
}

gw_status gw_joint_fill(gw_joint_problem *p, gw_why *why)
{
    double least = 0, slowest = 0;
    for (uint32_t b = 0; b < p->x.buckets; b++) {
        gw_ticks most = 0;
        const gw_status status = fill(p, b, why);
        if (status != GW_OK) {
            return status;
        }
        for (uint32_t k = 0; k < p->menu[b].n; k++) {
            const gw_ticks alone = gw_choice_alone(p->menu[b].item[k].of);
            most = alone > most ? alone : most;
        }
        least += p->menu[b].least;
        slowest += (double)most * 1e-9;
    }
    if (least > p->table->budget) {
        return GW_FAIL(why, GW_ERR_RANGE,
                       "the budget is %g, and no plan that is allowed has an error below %g",
                       p->table->budget, least);
    }
    return gw_check_span(slowest, why);
}

gw_status gw_joint_problem_create(gw_joint_problem *p, const gw_job *job, const gw_plan_entry *cut,
                                  const gw_joint_table *table, gw_pricer *pricer,
                                  gw_size_store *store, gw_why *why)
{
    *p = (gw_joint_problem){.table = table, .pricer = pricer, .store = store};
    store->n_specs = table->n_specs;
    gw_status status = gw_problem_of(&p->x, job, cut, why);
    if (status != GW_OK) {
        return status;
    }
    p->menu = calloc((size_t)p->x.n + 1, sizeof *p->menu);
    p->size = calloc((size_t)p->x.n + 1, sizeof *p->size);
    if (p->menu == NULL || p->size == NULL) {
        status = GW_FAIL(why, GW_ERR_MEMORY, "no memory for %u buckets", p->x.n);
    }
    for (uint32_t b = 0; b < p->x.buckets && status == GW_OK; b++) {
        const int together = p->x.first[b + 1] - p->x.first[b] > 1;
        status = find_size(store, p->x.elements[b], together, &p->size[b], why);
    }
    for (uint32_t b = p->x.buckets; b < p->x.n; b++) {
        p->x.class_of[b] = &NO_CHOICES;
    }
    if (status != GW_OK) {
        gw_joint_problem_destroy(p);
    }
    return status;
}

void gw_joint_problem_destroy(gw_joint_problem *p)
{
    for (uint32_t b = 0; p->menu != NULL && b < p->x.buckets; b++) {
        free(p->menu[b].item);
        free(p->menu[b].some);
    }
    free(p->menu);
    free(p->size);
    gw_problem_destroy(&p->x);
    *p = (gw_joint_problem){.menu = NULL};
}

/* ---- some ---- */

enum { FEW = 16 };

uint32_t gw_joint_cheapest(const gw_menu *m, const gw_ticks weight[GW_TRACKS], double price)
{
    double least = (double)INFINITY;
    uint32_t best = 0;
    for (uint32_t i = 0; i < m->n; i++) {
        double sum = price * m->item[i].error;
        for (unsigned track = 0; track < GW_TRACKS; track++) {
            sum += (double)(weight[track] * m->item[i].of->chain.work[track]);
        }
        if (sum < least) {
            least = sum;
            best = i;
        }
    }
    return best;
}

static void find_some(gw_menu *m, double price)
{
    static const gw_ticks WEIGHTS[] = {0, 3, 10, 40};
    static const double PRICES[] = {0, 0.06, 0.25, 1, 4, 16, 256};
    enum { W = sizeof WEIGHTS / sizeof WEIGHTS[0], P = sizeof PRICES / sizeof PRICES[0] };
    for (uint32_t i = 0; i < m->n && m->n <= FEW; i++) {
        m->some[m->n_some++] = i;
    }
    for (unsigned i = 0; i < W * W * 2 * P && m->n > FEW; i++) {
        const unsigned k = i / P;
        const gw_ticks weight[GW_TRACKS] = {[GW_TRACK_NIC] = 10,
                                            [GW_TRACK_INTRA] = k % 2 ? 10 : 3,
                                            [GW_TRACK_GPU] = WEIGHTS[k / 2 % W],
                                            [GW_TRACK_CPU] = WEIGHTS[k / 2 / W],
                                            [GW_TRACK_COPY] = 1};
        const uint32_t best = gw_joint_cheapest(m, weight, 10 * price * PRICES[i % P]);
        int seen = 0;
        for (uint32_t j = 0; j < m->n_some && !seen; j++) {
            seen = m->some[j] == best;
        }
        if (!seen) {
            m->some[m->n_some++] = best;
        }
    }
}

int gw_joint_find_some(gw_joint_problem *p, double price)
{
    for (uint32_t b = 0; b < p->x.buckets; b++) {
        gw_menu *m = &p->menu[b];
        m->some = calloc((size_t)m->n + 1, sizeof *m->some);
        if (m->some == NULL) {
            return 0;
        }
        find_some(m, price);
    }
    return 1;
}
