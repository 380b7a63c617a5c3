/* What the command says to people: errors and notes on stderr, and text that came from a file,
 * made safe for a terminal. */
#ifndef GW_CLI_SAY_H
#define GW_CLI_SAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* How much a run talks: -q, nothing, -v. */
enum { GW_CLI_QUIET = 0, GW_CLI_NORMAL = 1, GW_CLI_VERBOSE = 2 };

/* "gradwire: <text>" and a newline, on stderr. */
void gw_cli_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same, if the run talks at least as much as `level`. */
void gw_cli_note(int talk, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The line that ends a command which wrote `out`: on stdout; where that is "-", on stderr unless quiet. */
void gw_cli_result(int talk, const char *out, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Says, unless quiet, which tensor has NaNs and infinities, and how many; nothing for none. */
void gw_cli_warn_non_finite(int talk, const char *tensor, uint64_t non_finite, uint64_t elements);
void gw_cli_out_of_memory(void);

/* Names come out of files that anybody may have written: control characters (a terminal obeys
 * them) and bytes that are not UTF-8 are shown as \xNN. Text of the first function is malloc'd;
 * NULL if there is no memory. */
char *gw_cli_text_safe(const char *text, size_t size);
bool gw_cli_text_is_utf8(const char *text, size_t size);
/* Columns on a terminal, taking every character as one. For UTF-8. */
size_t gw_cli_text_width(const char *text);

#endif
