/* Error metrics; see error_metrics.h. */
#include "cli/measure/error_metrics.h"

#include <math.h>

#include "cli/say.h"

enum { PIECE = 4096 };

/* Elements first … first + n - 1 as fp32. Numbers of fp16 or bf16 are a payload of `cast` as they
 * lie there, so the library widens them and no second formula for that stands here. NULL: said. */
static const float *widened(const gw_tensor *tensor, size_t first, size_t n, float *room)
{
    char *data = (char *)tensor->data + first * gw_dtype_size(tensor->dtype);
    if (tensor->dtype == GW_F32) {
        return (const float *)(void *)data;
    }
    gw_tensor piece = {room, n, GW_F32};
    gw_params cast;
    gw_status status =
        gw_params_parse(&cast, tensor->dtype == GW_F16 ? "cast:to=f16" : "cast:to=bf16", NULL);
    if (status == GW_OK) {
        status =
            gw_decode(&cast, NULL, data, n * gw_dtype_size(tensor->dtype), GW_SET, &piece, NULL);
    }
    if (status != GW_OK) {
        gw_cli_error("cannot widen %s to f32: %s", gw_dtype_name(tensor->dtype),
                     gw_status_string(status));
        return NULL;
    }
    return room;
}

bool gw_cli_damage_add(gw_cli_damage *sums, const gw_tensor *original, const gw_tensor *decoded)
{
    float room_x[PIECE], room_y[PIECE];
    for (size_t first = 0; first < original->count; first += PIECE) {
        size_t n = original->count - first < PIECE ? original->count - first : PIECE;
        const float *x = widened(original, first, n, room_x);
        const float *y = widened(decoded, first, n, room_y);
        if (!x || !y) {
            return false;
        }
        for (size_t i = 0; i < n; i++) {
            double a = x[i], b = y[i];
            sums->error += (a - b) * (a - b);
            sums->original += a * a;
            sums->decoded += b * b;
            sums->product += a * b;
        }
    }
    return true;
}

void gw_cli_damage_join(gw_cli_damage *sums, const gw_cli_damage *more)
{
    sums->error += more->error;
    sums->original += more->original;
    sums->decoded += more->decoded;
    sums->product += more->product;
}

double gw_cli_rel_error(const gw_cli_damage *sums)
{
    return sums->error == 0 ? 0 : sums->error / sums->original;
}

double gw_cli_cosine(const gw_cli_damage *sums)
{
    if (sums->original == 0 && sums->decoded == 0) {
        return 1;
    }
    return sums->product / (sqrt(sums->original) * sqrt(sums->decoded));
}
