/* Fashion-MNIST, in the files it comes in: idx, by gzip. */
#ifndef TRAINER_DATA_IMAGES_H
#define TRAINER_DATA_IMAGES_H

#include "trainer/data.h"

/* Where Debian's dataset-fashion-mnist puts it. */
#define FASHION_MNIST "/usr/share/datasets/fashion-mnist"

enum { IMAGE_SIDE = 28, IMAGE_PIXELS = IMAGE_SIDE * IMAGE_SIDE, IMAGE_CLASSES = 10 };

/* The four files of `folder`. Pixels become (x / 255 - mean) / deviation over the training set. */
gw_status images_open(const char *folder, dataset **out, gw_why *why);

#endif
