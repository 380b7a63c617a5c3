#include "cuda/memory.h"
#include "cuda/scene.h"

#include "base/numeric.h"

#include <stdlib.h>
#include <string.h>

/* Steps in a row in which what was sent stays due until the next one, beside scalar C's, which settles at once. Some steps are rolled
 * back, as those with a NaN are: r and what is due of it must be what they were. */
enum { STEPS = 5 };

/* One tensor's chain: r of scalar C, and on the device r and r′, each with what is due of it. */
typedef struct chain {
    size_t count, due_bytes, bound, written;
    float *r, *after, *got;
    uint8_t *in, *expected, *payload;
    gw_report report;
    uint8_t *d_in, *d_payload, *d_r[2]; /* allocations */
    size_t r_at[2];
    void *d_due[2]; /* NULL where the codec leaves nothing due */
    int now;        /* which of the two is r */
} chain;

static float *r_of(const chain *c, int which)
{
    return (float *)(void *)(c->d_r[which] + c->r_at[which]);
}

static void begin_chain(const scene *s, gen *g, chain *c, size_t count)
{
    const size_t width = gw_dtype_size(s->dtype);
    c->count = count;
    must(s, gw_cuda_due_bytes(cuda, &s->params, count, &c->due_bytes), &(gw_why){"due"});
    must(s, gw_payload_bound(&s->params, count, &c->bound), &(gw_why){"bound"});
    c->r = take(count * 4);
    c->after = take(count * 4);
    c->got = take(count * 4);
    c->in = take(count * width);
    c->expected = take(c->bound);
    c->payload = take(c->bound);
    gen_fill(g, GEN_NORMAL, GW_F32, c->r, count);
    c->d_in = device_take(count * width);
    c->d_payload = device_take(c->bound);
    for (int i = 0; i < 2; i++) {
        c->r_at[i] = s->aligned ? 0 : 4 * gen_below(g, 5);
        c->d_r[i] = device_take(c->r_at[i] + count * 4);
        c->d_due[i] = c->due_bytes != 0 ? device_take(c->due_bytes) : NULL;
    }
    device_put(r_of(c, 0), c->r, count * 4);
    if (c->due_bytes != 0) {
        device_fill(c->d_due[0], 0, c->due_bytes);
    }
}

static void end_chain(chain *c)
{
    free(c->r);
    free(c->after);
    free(c->got);
    free(c->in);
    free(c->expected);
    free(c->payload);
    device_give(c->d_in);
    device_give(c->d_payload);
    for (int i = 0; i < 2; i++) {
        device_give(c->d_r[i]);
        device_give(c->d_due[i]);
    }
}

/* What scalar C does in a step, and what the device is asked to. */
static gw_cuda_source step_of(const scene *s, gen *g, chain *c, gw_cuda_result *result)
{
    const size_t width = gw_dtype_size(s->dtype);
    const gw_exec exec = scalar_exec();
    const gw_stream key = {.seed = s->seed};
    const gw_tensor in = {c->in, c->count, s->dtype};
    const int next = !c->now;
    gen_fill(g, s->content, s->dtype, c->in, c->count);
    c->report = (gw_report){0};
    must(s,
         gw_encode_feedback(&s->params, &exec, &key, &in, c->r, c->after, c->expected, c->bound,
                            &c->written, &c->report),
         &(gw_why){"scalar"});
    device_put(c->d_in, c->in, c->count * width);
    device_fill(c->d_payload, POISON, c->bound);
    device_fill(c->d_r[next], POISON, c->r_at[next] + c->count * 4);
    if (c->due_bytes != 0) {
        device_fill(c->d_due[next], POISON, c->due_bytes);
    }
    return (gw_cuda_source){.in = {c->d_in, c->count, s->dtype},
                            .residual = r_of(c, c->now),
                            .residual_after = r_of(c, next),
                            .key = key,
                            .payload = c->d_payload,
                            .capacity = c->bound,
                            .result = result,
                            .due = c->d_due[c->now],
                            .due_after = c->d_due[next]};
}

static void compare_step(const scene *s, const chain *c, const gw_cuda_result *r, int step)
{
    device_get(c->payload, c->d_payload, c->bound);
    if (r->status != GW_OK || r->written != c->written || r->non_finite != c->report.non_finite ||
        r->held_back != c->report.held_back || memcmp(c->payload, c->expected, c->written) != 0) {
        fail(s, "step %d of a chain with dues: another payload of %zu elements, or another report",
             step, c->count);
    }
}

/* Settles the chains' residuals, or those that can owe something, and compares. */
static void compare_settled(const scene *s, chain *c, size_t n, int step)
{
    gw_cuda_debt debts[LIST];
    gw_why why = {""};
    size_t owing = 0;
    for (size_t i = 0; i < n; i++) {
        if (c[i].due_bytes != 0) {
            debts[owing++] =
                (gw_cuda_debt){r_of(&c[i], c[i].now), c[i].d_due[c[i].now], c[i].count};
        }
    }
    for (int twice = 0; twice < 2; twice++) { /* the second time nothing is due */
        must(s, gw_cuda_settle(cuda, device_stream(), &s->params, debts, owing, &why), &why);
    }
    device_wait();
    for (size_t i = 0; i < n; i++) {
        device_get(c[i].got, r_of(&c[i], c[i].now), c[i].count * 4);
        for (size_t e = 0; e < c[i].count; e++) {
            if (gw_bits(c[i].got[e]) != gw_bits(c[i].r[e])) {
                fail(s, "step %d of a chain with dues: residual %zu of %zu is %08X, not %08X", step,
                     e, c[i].count, gw_bits(c[i].got[e]), gw_bits(c[i].r[e]));
            }
        }
    }
}

static int can_owe(const scene *s, size_t count)
{
    size_t bytes = 0;
    must(s, gw_cuda_due_bytes(cuda, &s->params, count, &bytes), &(gw_why){"due"});
    return bytes != 0;
}

void run_due(const scene *from, gen *g)
{
    scene scene_here = *from, *s = &scene_here;
    s->count[0] = can_owe(s, s->count[0]) ? s->count[0] : 16385 + gen_below(g, 20000);
    if (!can_owe(s, s->count[0])) {
        return; /* the codec never does */
    }
    s->feedback = 1;
    const size_t n = s->n;
    chain c[LIST] = {0};
    gw_cuda_source sources[LIST];
    gw_cuda_result result[LIST], *there = device_take(sizeof result);
    gw_why why = {""};
    size_t need = 0;
    void *workspace = workspace_for(s, &need);
    for (size_t i = 0; i < n; i++) {
        begin_chain(s, g, &c[i], s->count[i]);
    }
    for (int step = 0; step < STEPS; step++) {
        int bad = 0;
        if (step == 2) { /* contents with a NaN have some steps without */
            s->content = GEN_NORMAL;
        }
        device_fill(there, 0, sizeof result);
        device_fill(workspace, POISON, need);
        for (size_t i = 0; i < n; i++) {
            sources[i] = step_of(s, g, &c[i], there + i);
            bad |= c[i].report.non_finite != 0;
        }
        must(s,
             gw_cuda_encode(cuda, device_stream(), &s->params, sources, n,
                            (gw_workspace){workspace, need}, &why),
             &why);
        device_wait();
        device_get(result, there, sizeof result);
        for (size_t i = 0; i < n; i++) {
            compare_step(s, &c[i], &result[i], step);
        }
        if (bad || gen_below(g, 4) == 0) { /* rolled back */
            continue;
        }
        for (size_t i = 0; i < n; i++) {
            float *const r = c[i].r;
            c[i].r = c[i].after;
            c[i].after = r;
            c[i].now = !c[i].now;
        }
        if (gen_below(g, 4) == 0) {
            compare_settled(s, c, n, step);
        }
    }
    compare_settled(s, c, n, STEPS);
    for (size_t i = 0; i < n; i++) {
        end_chain(&c[i]);
    }
    device_give(there);
    device_give(workspace);
}
