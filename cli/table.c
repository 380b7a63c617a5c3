/* Tables; see table.h. */
#include "cli/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/say.h"

void gw_cli_table_text(gw_cli_table *table, const char *text, size_t size)
{
    if (table->n_cells == table->capacity) {
        size_t capacity = table->capacity ? 2 * table->capacity : 64;
        char **cells = realloc(table->cells, capacity * sizeof *cells);
        if (!cells) {
            table->out_of_memory = true;
            return;
        }
        table->cells = cells;
        table->capacity = capacity;
    }
    char *cell = gw_cli_text_safe(text, size);
    if (!cell) {
        table->out_of_memory = true;
        return;
    }
    table->cells[table->n_cells++] = cell;
}

void gw_cli_table_cell(gw_cli_table *table, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int size = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *text = size < 0 ? NULL : malloc((size_t)size + 1);
    if (!text) {
        table->out_of_memory = true;
        return;
    }
    va_start(arguments, format);
    (void)vsnprintf(text, (size_t)size + 1, format, arguments);
    va_end(arguments);
    gw_cli_table_text(table, text, (size_t)size);
    free(text);
}

/* One row; empty cells at its end leave no spaces behind. */
static void print_row(const gw_cli_table *table, char *const *row, const size_t *widths)
{
    size_t pending = 0;
    for (size_t i = 0; i < table->n_columns; i++) {
        const char *text = row ? row[i] : table->columns[i].title;
        size_t space = widths[i] - gw_cli_text_width(text);
        size_t left = table->columns[i].right ? space : 0;
        if (*text) {
            (void)printf("%*s%s", (int)(pending + left), "", text);
            pending = space - left + 2;
        } else {
            pending += widths[i] + 2;
        }
    }
    (void)putchar('\n');
}

bool gw_cli_table_print(gw_cli_table *table)
{
    size_t n = table->n_columns, *widths = calloc(n, sizeof *widths);
    bool fine = widths && !table->out_of_memory;
    if (fine) {
        for (size_t i = 0; i < n; i++) {
            widths[i] = gw_cli_text_width(table->columns[i].title);
        }
        for (size_t i = 0; i < table->n_cells; i++) {
            size_t width = gw_cli_text_width(table->cells[i]);
            widths[i % n] = width > widths[i % n] ? width : widths[i % n];
        }
        print_row(table, NULL, widths);
        for (size_t i = 0; i + n <= table->n_cells; i += n) {
            print_row(table, table->cells + i, widths);
        }
    } else {
        gw_cli_out_of_memory();
    }
    free(widths);
    gw_cli_table_free(table);
    return fine;
}

void gw_cli_table_free(gw_cli_table *table)
{
    for (size_t i = 0; i < table->n_cells; i++) {
        free(table->cells[i]);
    }
    free(table->cells);
    table->cells = NULL;
    table->n_cells = table->capacity = 0;
}
