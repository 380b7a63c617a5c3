#include "control/spec_parse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int gw_spec_word(char *text, size_t room, const char *word, size_t n)
{
    if (n >= room) {
        return 0;
    }
    memcpy(text, word, n);
    text[n] = '\0';
    return 1;
}

int gw_spec_number(const char *text, double *value)
{
    const char *equals = strchr(text, '=');
    char *end = NULL;
    *value = equals != NULL ? strtod(equals + 1, &end) : 0;
    return equals != NULL && end != equals + 1 && *end == '\0' && isfinite(*value);
}
