/* A plain pool: the caller publishes a job under the lock and wakes the workers; every thread takes
 * the next part until none is left. Which thread runs which part is left open on purpose: nothing may
 * depend on it. */
#include "base/pool.h"

#include <pthread.h>
#include <stdlib.h>

struct gw_pool {
    unsigned threads; /* the caller's included */
    unsigned started;
    pthread_mutex_t lock;
    pthread_cond_t wake, done;
    void (*run)(void *job, unsigned part);
    void *job;
    unsigned next, parts, running;
    int stop;
    pthread_t workers[]; /* threads − 1 */
};

/* Takes parts until none is left. Called, and returns, with the lock held. */
static void work(gw_pool *pool)
{
    while (pool->next < pool->parts) {
        const unsigned part = pool->next++;
        pool->running++;
        pthread_mutex_unlock(&pool->lock);
        pool->run(pool->job, part);
        pthread_mutex_lock(&pool->lock);
        pool->running--;
    }
    if (pool->running == 0) {
        pthread_cond_broadcast(&pool->done);
    }
}

static void *worker(void *arg)
{
    gw_pool *pool = arg;
    pthread_mutex_lock(&pool->lock);
    while (!pool->stop) {
        if (pool->next < pool->parts) {
            work(pool);
        } else {
            pthread_cond_wait(&pool->wake, &pool->lock);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

gw_status gw_pool_create(unsigned threads, gw_pool **out)
{
    if (out == NULL || threads == 0 || threads > GW_POOL_MAX_THREADS) {
        return GW_ERR_ARG;
    }
    gw_pool *pool = calloc(1, sizeof *pool + (threads - 1) * sizeof pool->workers[0]);
    if (pool == NULL) {
        return GW_ERR_MEMORY;
    }
    pool->threads = threads;
    if (pthread_mutex_init(&pool->lock, NULL) != 0) {
        goto no_lock;
    }
    if (pthread_cond_init(&pool->wake, NULL) != 0) {
        goto no_wake;
    }
    if (pthread_cond_init(&pool->done, NULL) != 0) {
        goto no_done;
    }
    for (; pool->started < threads - 1; pool->started++) {
        if (pthread_create(&pool->workers[pool->started], NULL, worker, pool) != 0) {
            gw_pool_destroy(pool); /* joins those that did start */
            return GW_ERR_SYSTEM;
        }
    }
    *out = pool;
    return GW_OK;

no_done:
    pthread_cond_destroy(&pool->wake);
no_wake:
    pthread_mutex_destroy(&pool->lock);
no_lock:
    free(pool);
    return GW_ERR_SYSTEM;
}

void gw_pool_destroy(gw_pool *pool)
{
    if (pool == NULL) {
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->stop = 1;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->started; i++) {
        pthread_join(pool->workers[i], NULL);
    }
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

unsigned gw_pool_threads(const gw_pool *pool)
{
    return pool != NULL ? pool->threads : 1;
}

void gw_pool_run(gw_pool *pool, void (*run)(void *job, unsigned part), void *job, unsigned parts)
{
    if (pool == NULL || parts <= 1) {
        for (unsigned part = 0; part < parts; part++) {
            run(job, part);
        }
        return;
    }
    pthread_mutex_lock(&pool->lock);
    pool->run = run;
    pool->job = job;
    pool->next = 0;
    pool->parts = parts;
    pthread_cond_broadcast(&pool->wake);
    work(pool);
    while (pool->running != 0) {
        pthread_cond_wait(&pool->done, &pool->lock);
    }
    pool->parts = pool->next = 0;
    pthread_mutex_unlock(&pool->lock);
}
