/* A text as characters, for a model that says which comes next. */
#ifndef TRAINER_DATA_TEXT_H
#define TRAINER_DATA_TEXT_H

#include "trainer/data.h"

/* Examples are windows of `window` characters, one behind the other; labels are the characters that follow. A
 * character's number is its place among the bytes that occur in the text, ascending. The last tenth of the text is the
 * test set. */
gw_status text_open(const char *path, size_t window, dataset **out, gw_why *why);

#endif
