#include "trainer/loss.h"

#include <math.h>

loss softmax_loss(size_t rows, size_t classes, const float *numbers, const int32_t *labels,
                  float *gradient)
{
    loss l = {.rows = rows};
    for (size_t i = 0; i < rows; i++) {
        const float *x = numbers + i * classes;
        const size_t label = (size_t)labels[i];
        size_t best = 0;
        double sum = 0;
        for (size_t j = 1; j < classes; j++) {
            best = x[j] > x[best] ? j : best;
        }
        for (size_t j = 0; j < classes; j++) {
            sum += (double)expf(x[j] - x[best]);
        }
        l.sum += log(sum) - (double)(x[label] - x[best]);
        l.right += best == label;
        if (gradient == NULL) {
            continue;
        }
        const float scale = (float)(1 / sum), row = 1 / (float)rows;
        for (size_t j = 0; j < classes; j++) {
            gradient[i * classes + j] =
                row * (scale * expf(x[j] - x[best]) - (j == label ? 1.0F : 0.0F));
        }
    }
    return l;
}
