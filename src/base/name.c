/* Tensor names, as name.h says. */
#include "base/name.h"

int gw_name_is_utf8(const char *name, size_t bytes)
{
    static const uint32_t smallest[5] = {0, 1, 0x80, 0x800, 0x10000};
    const uint8_t *s = (const uint8_t *)name;
    for (size_t i = 0; i < bytes;) {
        const uint32_t lead = s[i];
        const size_t len = lead < 0x80       ? 1
                           : lead >> 5 == 6  ? 2
                           : lead >> 4 == 14 ? 3
                           : lead >> 3 == 30 ? 4
                                             : 0;
        if (len == 0 || len > bytes - i) {
            return 0;
        }
        uint32_t point = len == 1 ? lead : lead & (0x7Fu >> len);
        for (size_t j = 1; j < len; j++) {
            if (s[i + j] >> 6 != 2) {
                return 0;
            }
            point = point << 6 | (s[i + j] & 0x3Fu);
        }
        if (point < smallest[len] || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000)) {
            return 0;
        }
        i += len;
    }
    return 1;
}

gw_name_shown gw_name_show(const char *name, size_t bytes)
{
    static const char more[] = "…";
    gw_name_shown shown = {""};
    if (bytes < sizeof shown.text) {
        memcpy(shown.text, name, bytes);
        return shown;
    }
    size_t cut = sizeof shown.text - sizeof more;
    while (cut > 0 && ((uint8_t)name[cut] >> 6) == 2) { /* not inside a character */
        cut--;
    }
    memcpy(shown.text, name, cut);
    memcpy(shown.text + cut, more, sizeof more);
    return shown;
}
