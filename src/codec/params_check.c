/* Are the parameters of a codec in their ranges? */
#include "codec/codec_impl.h"

#include <math.h>

gw_status gw_params_check(const gw_params *params, gw_why *why)
{
    if (params == NULL || params->codec == NULL) {
        return gw_fail(why, GW_ERR_ARG, "no codec given");
    }
    const gw_codec *codec = params->codec;
    for (size_t i = 0; i < codec->n_params; i++) {
        const gw_param_info *info = &codec->params[i];
        const double v = params->value[i];
        if (!(v >= info->min && v <= info->max) || (!info->fractional && v != floor(v))) {
            char range[128];
            gw_param_range(info, range, sizeof range);
            return gw_fail(why, GW_ERR_RANGE, "%s: %s=%.17g is not one of %s", codec->name,
                           info->name, v, range);
        }
    }
    return codec->check != NULL ? codec->check(params, why) : GW_OK;
}
