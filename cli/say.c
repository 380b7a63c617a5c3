/* Talk of the command line; see say.h. */
#include "cli/say.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the UTF-8 character at `text`, 0 if there is none: too short, overlong, a surrogate. */
static size_t utf8_length(const uint8_t *text, size_t size)
{
    static const uint32_t SMALLEST[5] = {0, 0, 0x80, 0x800, 0x10000};
    uint8_t first = text[0];
    if (first < 0x80) {
        return 1;
    }
    size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC0 || first > 0xF7 || length > size) {
        return 0;
    }
    uint32_t code = first & (0x7FU >> length);
    for (size_t i = 1; i < length; i++) {
        if ((text[i] & 0xC0) != 0x80) {
            return 0;
        }
        code = code << 6 | (text[i] & 0x3FU);
    }
    bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    return code < SMALLEST[length] || code > 0x10FFFF || surrogate ? 0 : length;
}

static bool is_control(const uint8_t *text, size_t length)
{
    return (length == 1 && (text[0] < 0x20 || text[0] == 0x7F)) ||
           (length == 2 && text[0] == 0xC2 && text[1] < 0xA0);
}

char *gw_cli_text_safe(const char *text, size_t size)
{
    const uint8_t *from = (const uint8_t *)text;
    char *safe = malloc(4 * size + 1);
    if (!safe) {
        return NULL;
    }
    size_t to = 0;
    for (size_t at = 0; at < size;) {
        size_t length = utf8_length(from + at, size - at);
        if (length > 0 && !is_control(from + at, length)) {
            memcpy(safe + to, from + at, length);
            to += length;
            at += length;
        } else {
            static const char DIGITS[] = "0123456789abcdef";
            safe[to++] = '\\';
            safe[to++] = 'x';
            safe[to++] = DIGITS[from[at] >> 4];
            safe[to++] = DIGITS[from[at] & 15];
            at++;
        }
    }
    safe[to] = '\0';
    return safe;
}

bool gw_cli_text_is_utf8(const char *text, size_t size)
{
    for (size_t at = 0; at < size;) {
        size_t length = utf8_length((const uint8_t *)text + at, size - at);
        if (length == 0) {
            return false;
        }
        at += length;
    }
    return true;
}

size_t gw_cli_text_width(const char *text)
{
    size_t width = 0;
    for (; *text; text++) {
        width += ((uint8_t)*text & 0xC0) != 0x80;
    }
    return width;
}

static void say(const char *format, va_list arguments)
{
    char text[2048];
    int length = vsnprintf(text, sizeof text, format, arguments);
    if (length < 0) {
        return;
    }
    size_t size = (size_t)length < sizeof text ? (size_t)length : sizeof text - 1;
    char *safe = gw_cli_text_safe(text, size);
    (void)fprintf(stderr, "gradwire: %s\n", safe ? safe : "out of memory");
    free(safe);
}

void gw_cli_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
}

void gw_cli_note(int talk, int level, const char *format, ...)
{
    if (talk < level) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    say(format, arguments);
    va_end(arguments);
}

void gw_cli_result(int talk, const char *out, const char *format, ...)
{
    const bool stream = strcmp(out, "-") == 0;
    va_list arguments;
    va_start(arguments, format);
    if (!stream) {
        (void)vprintf(format, arguments);
        (void)putchar('\n');
    } else if (talk > GW_CLI_QUIET) {
        say(format, arguments);
    }
    va_end(arguments);
}

void gw_cli_warn_non_finite(int talk, const char *tensor, uint64_t non_finite, uint64_t elements)
{
    if (non_finite > 0) {
        gw_cli_note(talk, GW_CLI_NORMAL,
                    "warning: tensor '%.80s': %" PRIu64 " of %" PRIu64
                    " elements are NaN or infinite",
                    tensor, non_finite, elements);
    }
}

void gw_cli_out_of_memory(void)
{
    gw_cli_error("out of memory");
}
