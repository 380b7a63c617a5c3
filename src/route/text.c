/* Routes as text, and everyday names. */
#include "base/why.h"
#include "route/grammar.h"

#include <stdio.h>
#include <string.h>

/* Longer than any route with blanks around its separators. */
enum { MAX_TEXT = 1023 };
static const char DOT[] = "\xC2\xB7"; /* "·" in UTF-8 */

/* ---- words ---- */

static const char *const ops[] = {
    [GW_OP_ENCODE] = "encode",       [GW_OP_DECODE] = "decode",
    [GW_OP_ALLREDUCE] = "allreduce", [GW_OP_REDUCE_SCATTER] = "reduce_scatter",
    [GW_OP_REDUCE] = "reduce",       [GW_OP_ALLGATHER] = "allgather",
    [GW_OP_BROADCAST] = "broadcast", [GW_OP_ALLTOALL] = "alltoall",
    [GW_OP_GATHER] = "gather"};
static const char *const levels[] = {
    [GW_LEVEL_FLAT] = "flat", [GW_LEVEL_INTRA] = "intra", [GW_LEVEL_INTER] = "inter"};
static const char *const devices[] = {[GW_DEVICE_CPU] = "cpu", [GW_DEVICE_GPU] = "gpu"};
enum {
    N_OPS = sizeof ops / sizeof ops[0],
    N_LEVELS = sizeof levels / sizeof levels[0],
    N_DEVICES = sizeof devices / sizeof devices[0]
};

const char *gw_op_name(unsigned op)
{
    return op < N_OPS ? ops[op] : NULL;
}

const char *gw_level_name(unsigned level)
{
    return level < N_LEVELS ? levels[level] : NULL;
}

const char *gw_device_name(unsigned device)
{
    return device < N_DEVICES ? devices[device] : NULL;
}

/* Its value; 0 if it is none of them. */
static uint8_t find(const char *const *words, unsigned n, const char *word, size_t length)
{
    for (unsigned i = 1; i < n; i++) {
        if (words[i] != NULL && strlen(words[i]) == length && memcmp(words[i], word, length) == 0) {
            return (uint8_t)i;
        }
    }
    return 0;
}

/* A piece of the input inside a message: printable, and not long. */
typedef struct shown {
    char text[40];
} shown;

static shown show(const char *text, size_t length)
{
    shown s;
    size_t n = 0;
    for (; n < length && n < sizeof s.text - 4; n++) {
        s.text[n] = (char)(text[n] >= ' ' && text[n] <= '~' ? text[n] : '?');
    }
    (void)snprintf(s.text + n, sizeof s.text - n, "%s", n < length ? "..." : "");
    return s;
}

/* ---- everyday names ---- */

static const gw_route_name names[] = {
    {"dense", "no compression", "flat:allreduce"},
    {"gather", "everyone sends its payload to everyone", "encode · flat:allgather · decode"},
    {"sra", "scatter, reduce, allgather: pieces are summed by their owners and encoded again",
     "encode · flat:alltoall · decode · encode · flat:allgather · decode"},
    {"star", "rank 0 sums all payloads and sends the sum, encoded again",
     "encode · flat:gather · decode · encode · flat:broadcast · decode"},
    {"hier-dense", "no compression, each node's sum crosses the network once",
     "intra:reduce_scatter · inter:allreduce · intra:allgather"},
    {"hier-gather", "dense inside the nodes, gather between them",
     "intra:reduce_scatter · encode · inter:allgather · decode · intra:allgather"},
    {"hier-sra", "dense inside the nodes, sra between them",
     "intra:reduce_scatter · encode · inter:alltoall · decode · encode · inter:allgather · decode "
     "· "
     "intra:allgather"},
    {"hier2-gather", "compressed inside the nodes too, gather between them",
     "encode · intra:alltoall · decode · encode · inter:allgather · decode · encode · "
     "intra:allgather · decode"},
    {"hier2-sra", "compressed inside the nodes too, sra between them",
     "encode · intra:alltoall · decode · encode · inter:alltoall · decode · encode · "
     "inter:allgather · intra:allgather · decode"},
    {"sum", "additive codecs: payloads are summed as they are", "encode · flat:allreduce · decode"},
    {"hier-sum", "additive codecs, each node's sum crosses the network once",
     "encode · intra:reduce_scatter · inter:allreduce · intra:allgather · decode"},
};
enum { N_NAMES = sizeof names / sizeof names[0] };

size_t gw_route_name_count(void)
{
    return N_NAMES;
}

const gw_route_name *gw_route_name_at(size_t index)
{
    return index < N_NAMES ? &names[index] : NULL;
}

/* ---- reading ---- */

/* One step, without blanks around it. `device` stands in where the step has none; 0: it must have one. */
static gw_status parse_step(const char *text, size_t length, unsigned number, uint8_t device,
                            gw_route_step *step, gw_why *why)
{
    const char *mark = memchr(text, ':', length);
    if (mark != NULL) {
        const size_t level = (size_t)(mark - text), op = length - level - 1;
        *step = (gw_route_step){.op = find(ops, N_OPS, mark + 1, op),
                                .level = find(levels, N_LEVELS, text, level)};
        if (step->level == 0) {
            return gw_fail(why, GW_ERR_UNKNOWN, "step %u: no level '%s' (flat, intra, inter)",
                           number, show(text, level).text);
        }
        if (step->op == 0 || gw_is_coding(step->op)) {
            return gw_fail(why, GW_ERR_UNKNOWN,
                           "step %u: no collective '%s' (allreduce, reduce_scatter, reduce, "
                           "allgather, broadcast, alltoall, gather)",
                           number, show(mark + 1, op).text);
        }
        return GW_OK;
    }
    mark = memchr(text, '@', length);
    const size_t op = mark != NULL ? (size_t)(mark - text) : length;
    *step = (gw_route_step){.op = find(ops, N_OPS, text, op), .device = device};
    if (!gw_is_coding(step->op)) {
        return gw_fail(why, GW_ERR_UNKNOWN,
                       "step %u: '%s' is not LEVEL:COLLECTIVE, encode@DEVICE "
                       "or decode@DEVICE",
                       number, length != 0 ? show(text, length).text : "");
    }
    if (mark != NULL) {
        step->device = find(devices, N_DEVICES, mark + 1, length - op - 1);
    }
    return step->device != 0 ? GW_OK
                             : gw_fail(why, GW_ERR_UNKNOWN,
                                       "step %u: %s on which device? %s@cpu or "
                                       "%s@gpu",
                                       number, ops[step->op], ops[step->op], ops[step->op]);
}

/* Bytes of the separator that begins here; 0 if none does. */
static size_t separator(const char *text)
{
    if (*text == ',' || *text == '.') {
        return 1;
    }
    return strncmp(text, DOT, sizeof DOT - 1) == 0 ? sizeof DOT - 1 : 0;
}

static gw_status parse_steps(gw_route *route, const char *text, uint8_t device, gw_why *why)
{
    for (;;) {
        const char *begin = text + strspn(text, " "), *end = begin;
        while (*end != '\0' && separator(end) == 0) {
            end++;
        }
        const size_t skip = separator(end);
        text = end + skip;
        while (end > begin && end[-1] == ' ') {
            end--;
        }
        if (route->n_steps == GW_ROUTE_MAX_STEPS) {
            return gw_fail(why, GW_ERR_ARG, "more than %d steps", GW_ROUTE_MAX_STEPS);
        }
        gw_route_step *step = &route->step[route->n_steps++];
        const gw_status status =
            parse_step(begin, (size_t)(end - begin), route->n_steps, device, step, why);
        if (status != GW_OK || skip == 0) {
            return status;
        }
    }
}

/* "sra", "sra@gpu". GW_ERR_UNKNOWN and no words if it is not one of the names. */
static gw_status parse_name(gw_route *route, const char *text, gw_why *why)
{
    const size_t length = strcspn(text, "@");
    for (size_t i = 0; i < N_NAMES; i++) {
        if (strlen(names[i].name) != length || memcmp(names[i].name, text, length) != 0) {
            continue;
        }
        const char *word = text[length] == '@' ? text + length + 1 : NULL;
        const uint8_t device =
            word != NULL ? find(devices, N_DEVICES, word, strlen(word)) : (uint8_t)GW_DEVICE_CPU;
        if (device == 0) {
            return gw_fail(why, GW_ERR_UNKNOWN, "%s: no device '%s' (cpu, gpu)", names[i].name,
                           show(word, strlen(word)).text);
        }
        const gw_status status = parse_steps(route, names[i].steps, device, why);
        if (status == GW_OK && word != NULL && gw_route_encodes(route) == 0) {
            return gw_fail(why, GW_ERR_ARG, "%s encodes nothing, so it takes no device",
                           names[i].name);
        }
        return status;
    }
    return GW_ERR_UNKNOWN;
}

gw_status gw_route_parse(gw_route *route, const char *text, gw_why *why)
{
    if (route == NULL || text == NULL) {
        return gw_fail(why, GW_ERR_ARG, "no route given");
    }
    size_t length = 0;
    while (length <= MAX_TEXT && text[length] != '\0') {
        length++;
    }
    if (length > MAX_TEXT) {
        return gw_fail(why, GW_ERR_ARG, "a route's text has at most %d bytes", MAX_TEXT);
    }
    gw_route parsed = {0};
    gw_why said = {""};
    gw_status status = parse_name(&parsed, text, &said);
    if (status == GW_ERR_UNKNOWN && said.text[0] == '\0') {
        const int word = strpbrk(text, ":@,. ") == NULL && strstr(text, DOT) == NULL;
        if (word && text[0] != '\0' && !gw_is_coding(find(ops, N_OPS, text, length))) {
            return gw_fail(why, GW_ERR_UNKNOWN, "no route named '%s'", show(text, length).text);
        }
        status = parse_steps(&parsed, text, 0, &said);
    }
    status = status == GW_OK ? gw_route_check(&parsed, &said) : status;
    if (status != GW_OK) {
        return gw_fail(why, status, "%s", said.text);
    }
    *route = parsed;
    return GW_OK;
}

/* ---- writing ---- */

void gw_route_step_print(gw_route_step step, char text[GW_ROUTE_STEP_TEXT])
{
    if (text == NULL) {
        return;
    }
    const char *op = gw_op_name(step.op), *level = gw_level_name(step.level);
    const char *device = gw_device_name(step.device);
    op = op != NULL ? op : "?";
    if (gw_is_coding(step.op)) {
        (void)snprintf(text, GW_ROUTE_STEP_TEXT, "%s@%s", op, device != NULL ? device : "?");
    } else {
        (void)snprintf(text, GW_ROUTE_STEP_TEXT, "%s:%s", level != NULL ? level : "?", op);
    }
}

gw_status gw_route_print(const gw_route *route, char *text, size_t size)
{
    if (text == NULL || gw_route_check(route, NULL) != GW_OK) {
        return GW_ERR_ARG;
    }
    size_t used = 0;
    for (unsigned i = 0; i < route->n_steps; i++) {
        char word[GW_ROUTE_STEP_TEXT];
        gw_route_step_print(route->step[i], word);
        const char *before = i == 0 ? "" : " \xC2\xB7 ";
        const size_t length = strlen(before) + strlen(word);
        if (size - used <= length || size <= used) {
            return GW_ERR_CAPACITY;
        }
        (void)snprintf(text + used, size - used, "%s%s", before, word);
        used += length;
    }
    return GW_OK;
}

gw_status gw_route_name_of(const gw_route *route, char *text, size_t size)
{
    if (text == NULL || gw_route_check(route, NULL) != GW_OK) {
        return GW_ERR_ARG;
    }
    uint8_t device = 0; /* the first one; a name has the same everywhere */
    for (unsigned i = 0; i < route->n_steps && device == 0; i++) {
        device = route->step[i].device;
    }
    for (size_t i = 0; i < N_NAMES; i++) {
        gw_route named = {0};
        if (parse_steps(&named, names[i].steps, device != 0 ? device : (uint8_t)GW_DEVICE_CPU,
                        NULL) == GW_OK &&
            gw_route_equal(&named, route)) {
            const int n = device != 0
                              ? snprintf(text, size, "%s@%s", names[i].name, devices[device])
                              : snprintf(text, size, "%s", names[i].name);
            return n >= 0 && (size_t)n < size ? GW_OK : GW_ERR_CAPACITY;
        }
    }
    return GW_ERR_UNKNOWN;
}
