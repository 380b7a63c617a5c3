/* Softmax and cross entropy. */
#ifndef TRAINER_LOSS_H
#define TRAINER_LOSS_H

#include <stddef.h>
#include <stdint.h>

typedef struct loss {
    double sum;     /* of -ln p(label), over rows */
    uint64_t right; /* rows whose largest number is the label's */
    uint64_t rows;
} loss;

/* `gradient` (may be NULL): of the mean over rows. */
loss softmax_loss(size_t rows, size_t classes, const float *numbers, const int32_t *labels,
                  float *gradient);

#endif
