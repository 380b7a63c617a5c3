/* Check and enumeration: see grammar.h. */
#include "route/grammar.h"

#include "base/why.h"

#include <stdio.h>
#include <string.h>

/* ---- one step ---- */

/* Of an operand that can be summed as it is (numbers) or cannot (payloads). */
static int is_whole(gw_op op, int payloads)
{
    return op == (payloads ? GW_OP_ALLGATHER : GW_OP_ALLREDUCE);
}

static gw_pair first_of(gw_op op, int payloads)
{
    if (op == (payloads ? GW_OP_ALLTOALL : GW_OP_REDUCE_SCATTER)) {
        return GW_PAIR_SCATTER;
    }
    return op == (payloads ? GW_OP_GATHER : GW_OP_REDUCE) ? GW_PAIR_ROOT : GW_PAIR_NONE;
}

static int is_second(gw_op op, gw_pair pair)
{
    return op == (pair == GW_PAIR_SCATTER ? GW_OP_ALLGATHER : GW_OP_BROADCAST);
}

/* A collective of the operand, `payloads` or numbers: 1 and the walk's new place, or 0. */
static int take_collective(gw_walk *w, gw_op op, gw_level level, int payloads, gw_part *part)
{
    const gw_pair first = first_of(op, payloads);
    *part = first != GW_PAIR_NONE ? GW_PART_FIRST : GW_PART_WHOLE;
    switch (w->place) {
    case GW_PLACE_START:
        if (level == GW_LEVEL_FLAT && is_whole(op, payloads)) {
            w->place = GW_PLACE_ARRIVED;
            return 1;
        }
        w->outer = first;
        w->place = level == GW_LEVEL_FLAT ? GW_PLACE_FLAT_SECOND : GW_PLACE_INTER_FIRST;
        return level != GW_LEVEL_INTER && first != GW_PAIR_NONE;
    case GW_PLACE_INTER_FIRST:
        w->inner = first;
        w->place = first != GW_PAIR_NONE ? GW_PLACE_INTER_SECOND : GW_PLACE_INTRA_SECOND;
        return level == GW_LEVEL_INTER && (first != GW_PAIR_NONE || is_whole(op, payloads));
    case GW_PLACE_INTER_SECOND:
        *part = GW_PART_SECOND;
        w->place = GW_PLACE_INTRA_SECOND;
        return level == GW_LEVEL_INTER && is_second(op, w->inner);
    case GW_PLACE_FLAT_SECOND:
    case GW_PLACE_INTRA_SECOND:
        *part = GW_PART_SECOND;
        const gw_level mine = w->place == GW_PLACE_FLAT_SECOND ? GW_LEVEL_FLAT : GW_LEVEL_INTRA;
        w->place = GW_PLACE_ARRIVED;
        return level == mine && is_second(op, w->outer);
    case GW_PLACE_ARRIVED:
        break;
    }
    return 0;
}

static int take_encode(gw_walk *w, unsigned device)
{
    if (w->coded || w->place == GW_PLACE_ARRIVED) {
        return 0;
    }
    w->coded = w->fresh = 1;
    w->device = (uint8_t)device;
    return 1;
}

static int take_decode(gw_walk *w, unsigned device)
{
    const int additive_ends = w->place == GW_PLACE_ARRIVED && device == w->device;
    if (!w->coded || w->fresh || (w->additive && !additive_ends)) {
        return 0;
    }
    w->coded = 0;
    return 1;
}

int gw_walk_take(gw_walk *walk, gw_route_step step, gw_part *part)
{
    gw_walk next = *walk;
    gw_part unused;
    part = part != NULL ? part : &unused;
    *part = GW_PART_NONE;
    if (gw_is_coding(step.op)) {
        if (step.level != 0 || gw_device_name(step.device) == NULL ||
            !(step.op == GW_OP_ENCODE ? take_encode(&next, step.device)
                                      : take_decode(&next, step.device))) {
            return 0;
        }
        *walk = next;
        return 1;
    }
    if (gw_op_name(step.op) == NULL || gw_level_name(step.level) == NULL || step.device != 0) {
        return 0;
    }
    const gw_op op = (gw_op)step.op;
    const gw_level level = (gw_level)step.level;
    next.fresh = 0;
    int legal = take_collective(&next, op, level, next.coded && !next.additive, part);
    /* numbers summed right behind the first encode: an additive route */
    if (!legal && walk->place == GW_PLACE_START && walk->coded) {
        next = *walk;
        next.fresh = 0;
        next.additive = 1;
        legal = take_collective(&next, op, level, 0, part);
    }
    *walk = legal ? next : *walk;
    return legal;
}

int gw_walk_is_over(const gw_walk *walk)
{
    return walk->place == GW_PLACE_ARRIVED && !walk->coded;
}

/* ---- all steps ---- */

/* Every step there is, in the order of lists and of messages. 0 past the last. */
static int nth_step(size_t n, gw_route_step *step)
{
    static const gw_op coding[] = {GW_OP_ENCODE, GW_OP_DECODE};
    static const gw_device devices[] = {GW_DEVICE_CPU, GW_DEVICE_GPU};
    enum { CODING = 4, LEVELS = 3, COLLECTIVES = 7 };
    if (n < CODING) {
        *step = (gw_route_step){(uint8_t)coding[n / 2], 0, (uint8_t)devices[n % 2]};
        return 1;
    }
    n -= CODING;
    *step = (gw_route_step){(uint8_t)(GW_OP_ALLREDUCE + n % COLLECTIVES),
                            (uint8_t)(GW_LEVEL_FLAT + n / COLLECTIVES), 0};
    return n < (size_t)LEVELS * COLLECTIVES;
}

/* "intra:alltoall, intra:gather or decode@cpu": what may stand next. */
static void print_expected(const gw_walk *walk, char *text, size_t size)
{
    gw_route_step step;
    size_t used = 0;
    text[0] = '\0';
    if (gw_walk_is_over(walk)) {
        (void)snprintf(text, size, "the end");
        return;
    }
    for (size_t n = 0; nth_step(n, &step) && used < size; n++) {
        gw_walk next = *walk;
        char word[GW_ROUTE_STEP_TEXT];
        /* one device stands for all, unless the route asks for it */
        if (gw_walk_take(&next, step, NULL) &&
            (step.device != GW_DEVICE_GPU || (walk->additive && step.op == GW_OP_DECODE))) {
            gw_route_step_print(step, word);
            const int wrote =
                snprintf(text + used, size - used, "%s%s", used == 0 ? "" : ", ", word);
            used += wrote > 0 ? (size_t)wrote : 0;
        }
    }
}

gw_status gw_route_check(const gw_route *route, gw_why *why)
{
    if (route == NULL || route->n_steps > GW_ROUTE_MAX_STEPS) {
        return gw_fail(why, GW_ERR_ARG, "a route has at most %d steps", GW_ROUTE_MAX_STEPS);
    }
    gw_walk walk = {0};
    char expected[160], word[GW_ROUTE_STEP_TEXT];
    for (unsigned i = 0; i < route->n_steps; i++) {
        if (!gw_walk_take(&walk, route->step[i], NULL)) {
            gw_route_step_print(route->step[i], word);
            print_expected(&walk, expected, sizeof expected);
            return gw_fail(why, GW_ERR_ARG, "step %u: %s cannot stand here; expected %s", i + 1,
                           word, expected);
        }
    }
    if (!gw_walk_is_over(&walk)) {
        print_expected(&walk, expected, sizeof expected);
        return gw_fail(why, GW_ERR_ARG, "the route ends after step %u; expected %s",
                       (unsigned)route->n_steps, expected);
    }
    static const gw_route_step none;
    for (unsigned i = route->n_steps; i < GW_ROUTE_MAX_STEPS; i++) {
        if (memcmp(&route->step[i], &none, sizeof none) != 0) {
            return gw_fail(why, GW_ERR_ARG, "step %u lies past the end and is not zero", i + 1);
        }
    }
    return GW_OK;
}

/* ---- enumeration ---- */

typedef struct list {
    uint32_t devices;
    int additive;
    gw_route route; /* the way to where the walk stands */
    gw_route *routes;
    size_t capacity, n;
} list;

/* Every way on from here; at most GW_ROUTE_MAX_STEPS deep. */
/* NOLINTNEXTLINE(misc-no-recursion) */
static void extend(list *l, const gw_walk *walk)
{
    if (gw_walk_is_over(walk)) {
        if (walk->additive == l->additive) {
            if (l->n < l->capacity) {
                l->routes[l->n] = l->route;
            }
            l->n++;
        }
        return;
    }
    gw_route_step step;
    for (size_t n = 0; nth_step(n, &step); n++) {
        gw_walk next = *walk;
        if ((step.device & ~l->devices) == 0 && gw_walk_take(&next, step, NULL)) {
            l->route.step[l->route.n_steps++] = step;
            extend(l, &next);
            l->route.step[--l->route.n_steps] = (gw_route_step){0};
        }
    }
}

gw_status gw_route_list(uint32_t devices, int additive, gw_route *routes, size_t capacity,
                        size_t *n, gw_why *why)
{
    GW_REQUIRE(why, routes != NULL || capacity == 0, "no place for the routes");
    if (n == NULL || devices == 0 || (devices & ~(uint32_t)(GW_DEVICE_CPU | GW_DEVICE_GPU)) != 0) {
        return gw_fail(why, GW_ERR_ARG, "devices are cpu, gpu or both");
    }
    list l = {.devices = devices,
              .additive = additive != 0,
              .routes = routes,
              .capacity = routes != NULL ? capacity : 0};
    const gw_walk start = {0};
    extend(&l, &start);
    if (routes != NULL && l.n > capacity) {
        return gw_fail(why, GW_ERR_CAPACITY, "%zu routes, room for %zu", l.n, capacity);
    }
    *n = l.n;
    return GW_OK;
}

/* ---- what a route is ---- */

gw_route_kind gw_route_kind_of(const gw_route *route)
{
    if (route == NULL) {
        return GW_ROUTE_UNCOMPRESSED;
    }
    const unsigned second = route->step[1].op;
    if (gw_route_encodes(route) == 0) {
        return GW_ROUTE_UNCOMPRESSED;
    }
    const int sums =
        second == GW_OP_ALLREDUCE || second == GW_OP_REDUCE_SCATTER || second == GW_OP_REDUCE;
    return route->step[0].op == GW_OP_ENCODE && sums ? GW_ROUTE_ADDITIVE : GW_ROUTE_COMPRESSED;
}

int gw_route_is_hierarchical(const gw_route *route)
{
    if (route == NULL) {
        return 0;
    }
    const unsigned first = route->step[0].op == GW_OP_ENCODE; /* of the collectives */
    return route->step[first].level == GW_LEVEL_INTRA;
}

uint32_t gw_route_encodes(const gw_route *route)
{
    if (route == NULL) {
        return 0;
    }
    uint32_t n = 0;
    for (unsigned i = 0; i < GW_ROUTE_MAX_STEPS; i++) {
        n += route->step[i].op == GW_OP_ENCODE;
    }
    return n;
}

int gw_route_equal(const gw_route *a, const gw_route *b)
{
    if (a == NULL || b == NULL) {
        return a == b;
    }
    return memcmp(a, b, sizeof *a) == 0;
}

/* FNV-1a over the bytes of the steps, of which there are few. */
uint64_t gw_route_hash(const gw_route *route)
{
    if (route == NULL) {
        return 0;
    }
    uint64_t hash = 0xCBF29CE484222325u;
    for (unsigned i = 0; i < GW_ROUTE_MAX_STEPS; i++) {
        const uint8_t bytes[3] = {route->step[i].op, route->step[i].level, route->step[i].device};
        for (unsigned j = 0; j < sizeof bytes; j++) {
            hash = (hash ^ bytes[j]) * 0x100000001B3u;
        }
    }
    return hash;
}
