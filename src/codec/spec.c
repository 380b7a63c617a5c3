/* Spec strings: name[:key=value[,key=value]…]. Strict: an unknown or repeated key, an unknown word, a
 * number with anything behind it, or a value out of range is an error that names it. */
#include "codec/codec_impl.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

gw_status gw_params_init(gw_params *params, const gw_codec *codec)
{
    if (params == NULL || codec == NULL) {
        return GW_ERR_ARG;
    }
    *params = (gw_params){.codec = codec};
    for (size_t i = 0; i < codec->n_params; i++) {
        params->value[i] = codec->params[i].fallback;
    }
    return GW_OK;
}

void gw_param_range(const gw_param_info *info, char *text, size_t size)
{
    if (info->words == NULL) {
        (void)snprintf(text, size, "%.17g to %.17g", info->min, info->max);
        return;
    }
    size_t used = 0;
    for (int i = 0; i <= (int)(info->max - info->min) && used < size; i++) {
        const int n =
            snprintf(text + used, size - used, "%s%s", i == 0 ? "" : ", ", info->words[i]);
        used += n > 0 ? (size_t)n : 0;
    }
}

int gw_params_equal(const gw_params *a, const gw_params *b)
{
    if (a == NULL || b == NULL) {
        return a == b;
    }
    int same = a->codec == b->codec;
    for (size_t i = 0; same && a->codec != NULL && i < a->codec->n_params; i++) {
        same = a->value[i] == b->value[i];
    }
    return same;
}

/* Digits, perhaps with a point: strtod would also take blanks, signs, "nan", and the locale's own
 * decimal point. Up to 15 digits over a power of ten is rounded once, as strtod would. */
static int parse_number(const char *text, int fractional, double *out)
{
    static const double power[16] = {1,   1e1, 1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                     1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};
    int digits = 0, behind = -1; /* behind the point; -1 before one was seen */
    double value = 0;
    for (; *text != '\0'; text++) {
        if (*text == '.' && fractional && behind < 0 && digits > 0) {
            behind = 0;
        } else if (*text >= '0' && *text <= '9' && digits < 15) {
            value = 10 * value + (*text - '0');
            digits++;
            behind += behind >= 0;
        } else {
            return 0;
        }
    }
    const uint32_t caller = gw_fp_enter(); /* the same number whatever the caller's rounding */
    *out = value / power[behind > 0 ? behind : 0];
    gw_fp_leave(caller);
    return digits > 0 && behind != 0;
}

/* A word of the parameter, or a number. */
static gw_status parse_value(const gw_codec *codec, const gw_param_info *info, const char *text,
                             double *out, gw_why *why)
{
    if (info->words != NULL) {
        for (int i = 0; i <= (int)(info->max - info->min); i++) {
            if (strcmp(text, info->words[i]) == 0) {
                *out = info->min + i;
                return GW_OK;
            }
        }
        char range[128];
        gw_param_range(info, range, sizeof range);
        return gw_fail(why, GW_ERR_UNKNOWN, "%s: %s=%s is not one of %s", codec->name, info->name,
                       text, range);
    }
    if (!parse_number(text, info->fractional, out)) {
        return gw_fail(why, GW_ERR_ARG, "%s: %s=%s is not a %s", codec->name, info->name, text,
                       info->fractional ? "number of up to 15 digits"
                                        : "whole number of up to 15 digits");
    }
    return GW_OK;
}

static gw_status parse_setting(gw_params *params, char *setting, uint32_t *seen, gw_why *why)
{
    const gw_codec *codec = params->codec;
    char *equals = strchr(setting, '=');
    if (equals == NULL) {
        return gw_fail(why, GW_ERR_ARG, "%s: '%s' is not of the form key=value", codec->name,
                       setting);
    }
    *equals = '\0';
    for (size_t i = 0; i < codec->n_params; i++) {
        if (strcmp(codec->params[i].name, setting) != 0) {
            continue;
        }
        if (*seen & 1u << i) {
            return gw_fail(why, GW_ERR_ARG, "%s: '%s' is given twice", codec->name, setting);
        }
        *seen |= 1u << i;
        return parse_value(codec, &codec->params[i], equals + 1, &params->value[i], why);
    }
    char known[160] = "";
    for (size_t i = 0, used = 0; i < codec->n_params && used < sizeof known; i++) {
        const int n = snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ",
                               codec->params[i].name);
        used += n > 0 ? (size_t)n : 0;
    }
    return gw_fail(why, GW_ERR_UNKNOWN, "%s has no parameter '%s' (it has: %s)", codec->name,
                   setting, known);
}

static gw_status unknown_codec(const char *name, gw_why *why)
{
    char known[160] = "";
    for (size_t i = 0, used = 0; i < gw_codec_count() && used < sizeof known; i++) {
        const int n = snprintf(known + used, sizeof known - used, "%s%s", i == 0 ? "" : ", ",
                               gw_codec_at(i)->name);
        used += n > 0 ? (size_t)n : 0;
    }
    return gw_fail(why, GW_ERR_UNKNOWN, "no codec named '%s' (there are: %s)", name, known);
}

/* *seen: which parameters the spec gave. */
static gw_status parse(gw_params *params, const char *spec, uint32_t *seen, gw_why *why)
{
    char text[256];
    if (params == NULL || spec == NULL) {
        return gw_fail(why, GW_ERR_ARG, "no spec given");
    }
    if (strlen(spec) >= sizeof text) {
        return gw_fail(why, GW_ERR_ARG, "spec is longer than %zu characters", sizeof text - 1);
    }
    memcpy(text, spec, strlen(spec) + 1);
    char *settings = strchr(text, ':');
    if (settings != NULL) {
        *settings++ = '\0';
    }
    gw_params parsed;
    if (gw_params_init(&parsed, gw_codec_find(text)) != GW_OK) {
        return unknown_codec(text, why);
    }
    while (settings != NULL) {
        char *next = strchr(settings, ',');
        if (next != NULL) {
            *next++ = '\0';
        }
        const gw_status status = parse_setting(&parsed, settings, seen, why);
        if (status != GW_OK) {
            return status;
        }
        settings = next;
    }
    const gw_status status = gw_params_check(&parsed, why);
    if (status == GW_OK) {
        *params = parsed;
    }
    return status;
}

gw_status gw_params_parse(gw_params *params, const char *spec, gw_why *why)
{
    uint32_t seen = 0;
    return parse(params, spec, &seen, why);
}

gw_status gw_params_parse_for(gw_params *params, const char *spec, const uint64_t *dims,
                              size_t n_dims, gw_why *why)
{
    uint32_t seen = 0;
    if (dims == NULL && n_dims != 0) {
        return gw_fail(why, GW_ERR_ARG, "no dims given");
    }
    const gw_status status = parse(params, spec, &seen, why);
    if (status == GW_OK && params->codec->suit != NULL) {
        params->codec->suit(params, seen, n_dims);
    }
    return status;
}

/* As few digits as give the same number again, whatever the locale's decimal point. */
static int print_number(char *text, size_t size, const char *mark, const char *name, double value)
{
    char digits[40] = "";
    for (int behind = 0; behind <= 20; behind++) {
        double again = 0;
        (void)snprintf(digits, sizeof digits, "%.*f", behind, value);
        for (char *c = digits; *c != '\0'; c++) {
            *c = *c >= '0' && *c <= '9' ? *c : '.';
        }
        if (parse_number(digits, 1, &again) && again == value) {
            break;
        }
    }
    return snprintf(text, size, "%s%s=%s", mark, name, digits);
}

gw_status gw_params_print(const gw_params *params, char *text, size_t size)
{
    if (params == NULL || text == NULL || gw_params_check(params, NULL) != GW_OK) {
        return GW_ERR_ARG;
    }
    const gw_codec *codec = params->codec;
    int n = snprintf(text, size, "%s", codec->name);
    size_t used = n > 0 ? (size_t)n : 0;
    for (size_t i = 0; i < codec->n_params && used < size; i++) {
        const gw_param_info *info = &codec->params[i];
        const char *mark = i == 0 ? ":" : ",";
        if (info->words != NULL) {
            n = snprintf(text + used, size - used, "%s%s=%s", mark, info->name,
                         info->words[(int)(params->value[i] - info->min)]);
        } else {
            n = print_number(text + used, size - used, mark, info->name, params->value[i]);
        }
        used += n > 0 ? (size_t)n : 0;
    }
    return used < size ? GW_OK : GW_ERR_CAPACITY;
}

gw_status gw_params_fit_shape(gw_params *params, const uint64_t *dims, size_t n_dims)
{
    const gw_status status = gw_params_check(params, NULL);
    if (status != GW_OK || (dims == NULL && n_dims != 0)) {
        return status != GW_OK ? status : GW_ERR_ARG;
    }
    for (size_t i = 0; i < params->codec->n_params; i++) {
        const gw_param_info *info = &params->codec->params[i];
        if ((params->codec->flags(params) & GW_CODEC_NEEDS_SHAPE) == 0 ||
            strcmp(info->name, "cols") != 0 || params->value[i] != 0) {
            continue;
        }
        double cols = 1;
        for (size_t d = n_dims > 1; d < n_dims; d++) {
            cols *= (double)dims[d];
        }
        if (cols >= 1 && cols <= info->max) { /* a longer row, or none: nearly square serves */
            params->value[i] = cols;
        }
    }
    return GW_OK;
}
