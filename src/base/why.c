/* Apart from status.c because every library of ours has a copy: it is not exported. */
#include "base/why.h"

#include <stdio.h>
#include <string.h>

enum { WHOLE = 1024, HEAD = 96 /* bytes, of a text that is too long */ };

/* Whether a character of UTF-8 goes on with this byte. */
static int goes_on(char byte)
{
    return ((unsigned char)byte & 0xC0) == 0x80;
}

void gw_why_write(gw_why *why, const char *format, va_list args)
{
    static const char gap[] = " ... ";
    char whole[WHOLE];
    const int written = vsnprintf(whole, sizeof whole, format, args);
    size_t size = written < 0 ? 0 : (size_t)written;
    size = size < sizeof whole ? size : sizeof whole - 1;
    whole[size] = '\0';
    if (size < sizeof why->text) {
        memcpy(why->text, whole, size + 1);
        return;
    }
    size_t head = HEAD;
    while (head > 0 && goes_on(whole[head])) {
        head--;
    }
    const char *tail = whole + size - (sizeof why->text - head - sizeof gap);
    while (goes_on(*tail)) {
        tail++;
    }
    (void)snprintf(why->text, sizeof why->text, "%.*s%s%s", (int)head, whole, gap, tail);
}

gw_status gw_fail(gw_why *why, gw_status status, const char *format, ...)
{
    if (why != NULL) {
        va_list args;
        va_start(args, format);
        gw_why_write(why, format, args);
        va_end(args);
    }
    return status;
}

/* The words of the rank that gave up first, "rank 2 gave up: ..."; NULL: none did. */
static const char *first_to_give_up(const char *reason)
{
    static const char words[] = " gave up: ";
    const char *first = NULL;
    for (const char *at = reason; (at = strstr(at, "rank ")) != NULL; at++) {
        const size_t digits = strspn(at + 5, "0123456789");
        if (digits != 0 && strncmp(at + 5 + digits, words, sizeof words - 1) == 0) {
            first = at;
        }
    }
    return first;
}

gw_status gw_gave_up(gw_why *why, uint32_t rank, const char *reason)
{
    char words[WHOLE]; /* reason may lie in *why */
    (void)snprintf(words, sizeof words, "%s", reason != NULL ? reason : "no reason given");
    const char *first = first_to_give_up(words);
    return first != NULL ? GW_FAIL(why, GW_ERR_PEER, "%s", first)
                         : GW_FAIL(why, GW_ERR_PEER, "rank %u gave up: %s", rank, words);
}
