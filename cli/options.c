/* The option parser; see options.h. */
#include "cli/options.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gradwire/gradwire.h>

#include "cli/quantity.h"
#include "cli/say.h"

typedef struct common_values {
    bool json, quiet, verbose, help;
} common_values;

static const gw_cli_option COMMON[] = {
    {"json", 0, GW_CLI_FLAG, offsetof(common_values, json), NULL, "the result as JSON"},
    {"quiet", 'q', GW_CLI_FLAG, offsetof(common_values, quiet), NULL, "say errors only"},
    {"verbose", 'v', GW_CLI_FLAG, offsetof(common_values, verbose), NULL, "say more"},
    {"help", 'h', GW_CLI_FLAG, offsetof(common_values, help), NULL, "this text"},
};
enum { N_COMMON = sizeof COMMON / sizeof COMMON[0] };

typedef struct parser {
    const gw_cli_page *page;
    int argc, at;
    char **argv;
    uint64_t seen; /* bit i: option i of the page was given */
    common_values common;
    void *values;
} parser;

/* ---- values ---- */

bool gw_cli_u64_parse(const char *text, uint64_t *out)
{
    uint64_t base = 10, value = 0;
    if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X')) {
        base = 16;
        text += 2;
    }
    if (!*text) {
        return false;
    }
    for (; *text; text++) {
        static const char DIGITS[] = "0123456789abcdef";
        int lower = *text >= 'A' && *text <= 'F' ? *text - 'A' + 'a' : *text;
        const char *digit = strchr(DIGITS, lower);
        if (!digit || (uint64_t)(digit - DIGITS) >= base) {
            return false;
        }
        uint64_t d = (uint64_t)(digit - DIGITS);
        if (value > (UINT64_MAX - d) / base) {
            return false;
        }
        value = value * base + d;
    }
    *out = value;
    return true;
}

bool gw_cli_size_parse(const char *text, uint64_t *out)
{
    static const struct {
        const char *unit;
        uint64_t factor;
    } UNITS[] = {{"", 1},
                 {"k", 1000},
                 {"M", 1000000},
                 {"G", 1000000000},
                 {"Ki", UINT64_C(1) << 10},
                 {"Mi", UINT64_C(1) << 20},
                 {"Gi", UINT64_C(1) << 30}};
    char digits[24];
    size_t n = strspn(text, "0123456789");
    if (n == 0 || n >= sizeof digits) {
        return false;
    }
    memcpy(digits, text, n);
    digits[n] = '\0';
    uint64_t value = 0;
    if (!gw_cli_u64_parse(digits, &value)) {
        return false;
    }
    for (size_t i = 0; i < sizeof UNITS / sizeof UNITS[0]; i++) {
        if (strcmp(text + n, UNITS[i].unit) == 0) {
            *out = value * UNITS[i].factor;
            return value <= UINT64_MAX / UNITS[i].factor;
        }
    }
    return false;
}

void gw_cli_texts_free(gw_cli_texts *texts)
{
    free(texts->items);
    *texts = (gw_cli_texts){0};
}

/* ---- help ---- */

static void print_options(FILE *to, const gw_cli_option *options, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char left[64], letter[8] = "   ";
        if (options[i].letter) {
            (void)snprintf(letter, sizeof letter, "-%c,", options[i].letter);
        }
        (void)snprintf(left, sizeof left, "%s --%s %s", letter, options[i].name,
                       options[i].value ? options[i].value : "");
        (void)fprintf(to, "  %-22s %s\n", left, options[i].doc);
    }
}

static void print_page(FILE *to, const gw_cli_page *page)
{
    (void)fprintf(to, "usage: gradwire %s\n\n%s\n\noptions:\n", page->usage, page->about);
    print_options(to, page->options, page->n_options);
    print_options(to, COMMON, N_COMMON);
    (void)fprintf(to, "\nexample:\n%s\n", page->example);
}

int gw_cli_misuse(const gw_cli_page *page, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    gw_cli_error("%s: %s", page->command, text);
    (void)fprintf(stderr, "usage: gradwire %s\nfor more: gradwire %s --help\n", page->usage,
                  page->command);
    return GW_CLI_MISUSED;
}

int gw_cli_check_stream(const gw_cli_page *page, const gw_cli_args *args, const char *out,
                        bool binary)
{
    if (!out || strcmp(out, "-") != 0) {
        return GW_CLI_GO_ON;
    }
    if (args->json) {
        return gw_cli_misuse(page, "--json and -o - both want standard output");
    }
    if (binary && isatty(STDOUT_FILENO)) {
        return gw_cli_misuse(page, "-o - would write binary data to a terminal; redirect it");
    }
    return GW_CLI_GO_ON;
}

/* ---- setting one option ---- */

static bool set_isa(void *target, const char *value)
{
    gw_isa isa = GW_ISA_AUTO;
    if (gw_isa_find(value, &isa) != GW_OK) {
        return false;
    }
    *(gw_isa *)target = isa;
    return true;
}

static bool set_text(gw_cli_texts *texts, const char *value, size_t most)
{
    if (!texts->items) {
        texts->items = calloc(most, sizeof *texts->items);
    }
    if (!texts->items) {
        gw_cli_out_of_memory();
        return false;
    }
    texts->items[texts->count++] = value;
    return true;
}

static bool set_number(gw_cli_kind kind, void *target, const char *value)
{
    uint64_t number = 0;
    bool fine =
        kind == GW_CLI_SIZE ? gw_cli_size_parse(value, &number) : gw_cli_u64_parse(value, &number);
    switch (kind) {
    case GW_CLI_U32:
        fine = fine && number <= UINT32_MAX;
        *(uint32_t *)target = (uint32_t)number;
        break;
    case GW_CLI_THREADS:
        fine = fine && number >= 1 && number <= GW_POOL_MAX_THREADS;
        *(unsigned *)target = (unsigned)number;
        break;
    default:
        *(uint64_t *)target = number;
    }
    return fine;
}

/* What a good value looks like, for the message about a bad one. */
static const char *expectation(gw_cli_kind kind)
{
    switch (kind) {
    case GW_CLI_U64:
        return "a whole number from 0 to 2^64-1";
    case GW_CLI_U32:
        return "a whole number from 0 to 2^32-1";
    case GW_CLI_SIZE:
        return "a number such as 4096, 1k, 1M or 64Mi";
    case GW_CLI_THREADS:
        return "a number of threads from 1 to 256";
    case GW_CLI_ISA:
        return "auto, scalar, avx2, avx512 or neon";
    case GW_CLI_RATE:
        return "a rate such as 1gbit, 200mbit or 64kbit, or 0 for no limit";
    case GW_CLI_TIME:
        return "a time such as 1ms, 50us or 0";
    case GW_CLI_REAL:
        return "a number such as 0.08 or 5e-4";
    default:
        return "a value";
    }
}
_Static_assert(GW_POOL_MAX_THREADS == 256, "expectation() names it");
_Static_assert(GW_ISA_COUNT == 5, "expectation() names them");

/* Sets `option` of `table`. `value` is NULL for a flag. */
static int set(parser *p, void *table, const gw_cli_option *option, const char *value)
{
    void *target = (char *)table + option->offset;
    bool fine = true;
    if (table == p->values && option->kind != GW_CLI_TEXTS) {
        uint64_t bit = UINT64_C(1) << (option - p->page->options);
        if (p->seen & bit) {
            return gw_cli_misuse(p->page, "option --%s is given twice", option->name);
        }
        p->seen |= bit;
    }
    switch (option->kind) {
    case GW_CLI_FLAG:
        *(bool *)target = true;
        break;
    case GW_CLI_TEXT:
        *(const char **)target = value;
        break;
    case GW_CLI_TEXTS:
        return set_text(target, value, (size_t)p->argc) ? GW_CLI_GO_ON : GW_CLI_FAILED;
    case GW_CLI_ISA:
        fine = set_isa(target, value);
        break;
    case GW_CLI_RATE:
        fine = gw_cli_rate_parse(value, target);
        break;
    case GW_CLI_TIME:
        fine = gw_cli_time_parse(value, target);
        break;
    case GW_CLI_REAL:
        fine = gw_cli_real_parse(value, target);
        break;
    default:
        fine = set_number(option->kind, target, value);
    }
    if (!fine) {
        return gw_cli_misuse(p->page, "option --%s: '%s' is not %s", option->name, value,
                             expectation(option->kind));
    }
    return GW_CLI_GO_ON;
}

/* ---- finding options in argv ---- */

/* The option of that name (of `size` characters) or letter; *table is where its value belongs. */
static const gw_cli_option *find(parser *p, const char *name, size_t size, char letter,
                                 void **table)
{
    for (size_t i = 0; i < p->page->n_options + N_COMMON; i++) {
        bool own = i < p->page->n_options;
        const gw_cli_option *option = own ? &p->page->options[i] : &COMMON[i - p->page->n_options];
        if (name ? strlen(option->name) == size && strncmp(option->name, name, size) == 0
                 : option->letter == letter) {
            *table = own ? p->values : &p->common;
            return option;
        }
    }
    return NULL;
}

/* --name, --name VALUE, --name=VALUE */
static int parse_long(parser *p, const char *text)
{
    void *table = NULL;
    const char *name = text + 2, *equals = strchr(name, '=');
    size_t size = equals ? (size_t)(equals - name) : strlen(name);
    const gw_cli_option *option = find(p, name, size, 0, &table);
    if (!option) {
        return gw_cli_misuse(p->page, "unknown option '%s'", text);
    }
    const char *value = equals ? equals + 1 : NULL;
    if (option->kind == GW_CLI_FLAG && value) {
        return gw_cli_misuse(p->page, "option --%s takes no value", option->name);
    }
    if (option->kind != GW_CLI_FLAG && !value) {
        if (p->at == p->argc) {
            return gw_cli_misuse(p->page, "option --%s needs a value %s", option->name,
                                 option->value);
        }
        value = p->argv[p->at++];
    }
    return set(p, table, option, value);
}

/* -q, -qv, -c VALUE, -cVALUE */
static int parse_short(parser *p, const char *text)
{
    for (const char *letter = text + 1; *letter; letter++) {
        void *table = NULL;
        const gw_cli_option *option = find(p, NULL, 0, *letter, &table);
        if (!option) {
            return gw_cli_misuse(p->page, "unknown option '-%c' in '%s'", *letter, text);
        }
        const char *value = NULL;
        if (option->kind != GW_CLI_FLAG) {
            if (!letter[1] && p->at == p->argc) {
                return gw_cli_misuse(p->page, "option -%c needs a value %s", *letter,
                                     option->value);
            }
            value = letter[1] ? letter + 1 : p->argv[p->at++];
        }
        int status = set(p, table, option, value);
        if (status != GW_CLI_GO_ON || value) {
            return status;
        }
    }
    return GW_CLI_GO_ON;
}

int gw_cli_parse(const gw_cli_page *page, int argc, char **argv, gw_cli_args *args, void *values)
{
    parser p = {.page = page, .argc = argc, .at = 1, .argv = argv, .values = values};
    bool words_only = false;
    *args = (gw_cli_args){.talk = GW_CLI_NORMAL, .words = argv + 1};
    while (p.at < argc) {
        char *text = argv[p.at++];
        int status = GW_CLI_GO_ON;
        if (words_only || text[0] != '-' || !text[1]) {
            /* Words are gathered at argv's front: at most as many as were read, so none is lost. */
            args->words[args->n_words++] = text;
        } else if (strcmp(text, "--") == 0) {
            words_only = true;
        } else {
            status = text[1] == '-' ? parse_long(&p, text) : parse_short(&p, text);
        }
        if (p.common.help) {
            print_page(stdout, page);
            return GW_CLI_DONE;
        }
        if (status != GW_CLI_GO_ON) {
            return status;
        }
    }
    args->json = p.common.json;
    if (p.common.verbose) {
        args->talk = GW_CLI_VERBOSE;
    }
    if (p.common.quiet) {
        args->talk = GW_CLI_QUIET;
    }
    return GW_CLI_GO_ON;
}
