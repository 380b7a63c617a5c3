/* What the trainer learns from: examples by number, and in which order each rank sees them. */
#ifndef TRAINER_DATA_H
#define TRAINER_DATA_H

#include <gradwire/base.h>

/* An example is `rows` rows of `width` floats with a label each: an image is one row, a window of text one row a
 * character. Rows of a batch of n lie row by row of the examples: row 0 of all, row 1 of all, …, which is the order in
 * which an LSTM takes them. */
typedef struct dataset dataset;
struct dataset {
    size_t train, test; /* examples */
    size_t rows, width, classes;
    /* Examples which[0 … n) of the training set, or of the test set, into x and labels. */
    void (*fill)(const dataset *data, int test, const uint32_t *which, size_t n, float *x,
                 int32_t *labels);
    void (*destroy)(dataset *data);
};

static inline void dataset_destroy(dataset *data)
{
    if (data != NULL) {
        data->destroy(data);
    }
}

/* The whole file; `text` is freed by the caller. `hint`: what to say if it is not there. */
gw_status data_read_file(const char *path, const char *hint, unsigned char **bytes, size_t *size,
                         gw_why *why);

/* Who sees what: a permutation of all examples an epoch, the same on every rank, of which step s takes the next
 * batch · ranks and rank r every ranks-th of those. The last examples of an epoch that fill no step are left out. */
typedef struct sampler {
    uint64_t seed;
    size_t examples, batch;
    uint32_t ranks, rank;
    uint64_t epoch; /* of `order` */
    uint32_t *order;
} sampler;

gw_status sampler_create(sampler *s, uint64_t seed, size_t examples, size_t batch, uint32_t ranks,
                         uint32_t rank, gw_why *why);
void sampler_destroy(sampler *s);
uint64_t sampler_steps(const sampler *s); /* an epoch */
/* The rank's `batch` examples of a step, counted from the first epoch's first. */
void sampler_pick(sampler *s, uint64_t step, uint32_t *which);

#endif
