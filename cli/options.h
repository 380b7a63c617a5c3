/* The options of a subcommand as a table. Parsing and --help both come from that table, so that
 * neither can know an option the other does not. --json, -q, -v and -h belong to every command.
 *
 *     typedef struct values { const char *spec; uint64_t seed; } values;
 *     static const gw_cli_option OPTIONS[] = {
 *         {"codec", 'c', GW_CLI_TEXT, offsetof(values, spec), "SPEC", "codec and its settings"},
 *         {"seed", 0, GW_CLI_U64, offsetof(values, seed), "N", "seed of the random stream"}};
 */
#ifndef GW_CLI_OPTIONS_H
#define GW_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GW_CLI_DONE = 0, GW_CLI_FAILED = 1, GW_CLI_MISUSED = 2 }; /* exit statuses */
enum { GW_CLI_GO_ON = -1 };                                      /* of gw_cli_parse: no exit yet */

/* What an option sets, at its offset in the command's values. */
typedef enum gw_cli_kind {
    GW_CLI_FLAG,    /* bool; takes no value */
    GW_CLI_TEXT,    /* const char *, NULL if not given */
    GW_CLI_TEXTS,   /* gw_cli_texts; may be given again and again, all others once */
    GW_CLI_U64,     /* uint64_t, decimal or 0x… */
    GW_CLI_U32,     /* uint32_t */
    GW_CLI_SIZE,    /* uint64_t, written 4096, 1k, 64Mi, … */
    GW_CLI_THREADS, /* unsigned, 1 … GW_POOL_MAX_THREADS */
    GW_CLI_ISA,     /* gw_isa by name */
    GW_CLI_RATE,    /* double, bytes a second, written 1gbit, 200mbit, …; 0: no limit */
    GW_CLI_TIME,    /* double, seconds, written 1ms, 50us, … */
    GW_CLI_REAL     /* double, 0 or more, written 0.08, 5e-4, … */
} gw_cli_kind;

typedef struct gw_cli_texts {
    const char **items; /* gw_cli_texts_free */
    size_t count;
} gw_cli_texts;
void gw_cli_texts_free(gw_cli_texts *texts);

typedef struct gw_cli_option {
    const char *name; /* without its dashes */
    char letter;      /* 0: none */
    gw_cli_kind kind;
    size_t offset;
    const char *value; /* how help calls its value; NULL for a flag */
    const char *doc;
} gw_cli_option;

/* All that --help of a command says. */
typedef struct gw_cli_page {
    const char *command; /* "encode" */
    const char *usage;   /* "encode -c SPEC IN -o OUT.gw [options]" */
    const char *about;
    const char *example; /* command lines */
    const gw_cli_option *options;
    size_t n_options; /* at most 64 */
} gw_cli_page;

typedef struct gw_cli_args {
    bool json;
    int talk;     /* GW_CLI_QUIET, _NORMAL, _VERBOSE */
    char **words; /* what is not an option; lies in argv */
    size_t n_words;
} gw_cli_args;

/* Reads argv[1] and on into *args and *values, which holds the defaults before. Returns
 * GW_CLI_GO_ON, or the exit status when help was asked for or an error was told. */
int gw_cli_parse(const gw_cli_page *page, int argc, char **argv, gw_cli_args *args, void *values);

/* An error of usage: says it and the usage line on stderr; returns GW_CLI_MISUSED. */
int gw_cli_misuse(const gw_cli_page *page, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* GW_CLI_GO_ON, or an error of usage: `out` is "-", and standard output is a terminal or is wanted
 * for --json too. */
int gw_cli_check_stream(const gw_cli_page *page, const gw_cli_args *args, const char *out,
                        bool binary);

bool gw_cli_u64_parse(const char *text, uint64_t *out);
/* 4096, 1k (1000), 1M, 1G, 1Ki (1024), 64Mi, 1Gi. */
bool gw_cli_size_parse(const char *text, uint64_t *out);

#endif
