/* Tables that line up, on stdout. Nothing is cut off: a column is as wide as its widest cell. */
#ifndef GW_CLI_TABLE_H
#define GW_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>

typedef struct gw_cli_column {
    const char *title;
    bool right; /* numbers */
} gw_cli_column;

/* Start from {.columns = …, .n_columns = …}. */
typedef struct gw_cli_table {
    const gw_cli_column *columns;
    size_t n_columns;
    char **cells; /* row after row */
    size_t n_cells, capacity;
    bool out_of_memory;
} gw_cli_table;

/* Adds the next cell; rows fill from the left. */
void gw_cli_table_cell(gw_cli_table *table, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Adds text that is not NUL-terminated. */
void gw_cli_table_text(gw_cli_table *table, const char *text, size_t size);
/* Prints and frees. False if memory ran out on the way, which is said. */
bool gw_cli_table_print(gw_cli_table *table);
void gw_cli_table_free(gw_cli_table *table);

#endif
