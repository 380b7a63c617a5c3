/* The trainer's data: files are believed in nothing, and ranks share out every epoch. */
#define _POSIX_C_SOURCE 200809L
#include "support/check.h"
#include "support/gen.h"

#include "trainer/data_images.h"
#include "trainer/data_text.h"

#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

/* ---- files to read ---- */

static char folder[64];

static int setup(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "trainer-data-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static const char *const names[4] = {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
                                     "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"};

static const char *path_of(const char *name)
{
    static char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int teardown(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        (void)unlink(path_of(names[i]));
    }
    (void)unlink(path_of("text"));
    return rmdir(folder);
}

static void write_file(const char *name, const void *bytes, size_t size)
{
    FILE *file = fopen(path_of(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

enum { IMAGES = 5, MOST = 16 + IMAGES * IMAGE_PIXELS + 64, PACKED = 2 * MOST };

/* An idx file before gzip. */
typedef struct idx {
    unsigned char bytes[MOST];
    size_t size;
} idx;

static void put(unsigned char *at, uint32_t x)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (unsigned char)(x >> (24 - 8 * i));
    }
}

static idx images_of(uint32_t n)
{
    idx f = {.size = 16 + n * IMAGE_PIXELS};
    put(f.bytes, 0x803);
    put(f.bytes + 4, n);
    put(f.bytes + 8, IMAGE_SIDE);
    put(f.bytes + 12, IMAGE_SIDE);
    for (size_t i = 16; i < f.size; i++) {
        f.bytes[i] = (unsigned char)(i * 7 + i / 256);
    }
    return f;
}

static idx labels_of(uint32_t n)
{
    idx f = {.size = 8 + n};
    put(f.bytes, 0x801);
    put(f.bytes + 4, n);
    for (uint32_t i = 0; i < n; i++) {
        f.bytes[8 + i] = (unsigned char)(i % 10);
    }
    return f;
}

static size_t pack(const idx *f, unsigned char packed[PACKED])
{
    z_stream z = {.next_in = (unsigned char *)(uintptr_t)f->bytes,
                  .avail_in = (uInt)f->size,
                  .next_out = packed,
                  .avail_out = PACKED};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    const size_t size = z.total_out;
    (void)deflateEnd(&z);
    return size;
}

static void write_idx(int which, const idx *f)
{
    unsigned char packed[PACKED];
    write_file(names[which], packed, pack(f, packed));
}

static void write_good(void)
{
    const idx images = images_of(IMAGES), labels = labels_of(IMAGES);
    for (int i = 0; i < 4; i++) {
        write_idx(i, i % 2 == 0 ? &images : &labels);
    }
}

/* Refused with this status, naming the file and these words. */
static void refused(gw_status expected, const char *name, const char *words)
{
    dataset *data = NULL;
    gw_why why = {""};
    const gw_status status = images_open(folder, &data, &why);
    CHECK(status == expected, "%s, '%s': status %d: %s", name, words, status, why.text);
    CHECK(strstr(why.text, name) != NULL && strstr(why.text, words) != NULL,
          "no '%s' and '%s' in: %s", name, words, why.text);
    assert_null(data);
    write_good();
}

/* ---- images ---- */

static void images_are_read(void **state)
{
    (void)state;
    dataset *data = NULL;
    gw_why why = {""};
    const uint32_t which[2] = {4, 1};
    float x[2 * IMAGE_PIXELS];
    int32_t labels[2];
    const idx f = images_of(IMAGES);
    write_good();
    CHECK(images_open(folder, &data, &why) == GW_OK, "%s", why.text);
    assert_int_equal(data->train, IMAGES);
    assert_int_equal(data->test, IMAGES);
    data->fill(data, 0, which, 2, x, labels);
    assert_true(labels[0] == 4 && labels[1] == 1);
    for (size_t i = 0; i < 2; i++) {
        for (size_t j = 0; j < IMAGE_PIXELS; j++) {
            const double pixel = (double)f.bytes[16 + which[i] * IMAGE_PIXELS + j] / 255;
            const double d = (double)x[i * IMAGE_PIXELS + j] - (pixel - 0.2860) / 0.3530;
            assert_true(d < 1e-5 && d > -1e-5);
        }
    }
    dataset_destroy(data);
}

static void wrong_headers_are_refused(void **state)
{
    (void)state;
    idx f = images_of(IMAGES);
    f.bytes[3] = 1;
    write_idx(0, &f);
    refused(GW_ERR_CORRUPT, names[0], "00000801");
    f = images_of(IMAGES);
    put(f.bytes + 8, 32);
    write_idx(0, &f);
    refused(GW_ERR_CORRUPT, names[0], "32 x 28");
    f = images_of(IMAGES);
    put(f.bytes + 4, UINT32_MAX);
    write_idx(2, &f);
    refused(GW_ERR_CORRUPT, names[2], "4294967295");
    f = labels_of(IMAGES - 1);
    write_idx(1, &f);
    refused(GW_ERR_CORRUPT, names[1], "4 labels for 5 images");
    f = labels_of(IMAGES);
    f.bytes[10] = 10;
    write_idx(3, &f);
    refused(GW_ERR_CORRUPT, names[3], "label 2 is 10");
}

static void wrong_ends_are_refused(void **state)
{
    (void)state;
    unsigned char packed[PACKED];
    idx f = images_of(IMAGES);
    f.size -= 3;
    write_idx(0, &f);
    refused(GW_ERR_TRUNCATED, names[0], "3 bytes early");
    f.size += 4;
    write_idx(0, &f);
    refused(GW_ERR_CORRUPT, names[0], "goes on");
    f.size = 6;
    write_idx(2, &f);
    refused(GW_ERR_TRUNCATED, names[2], "early");
    /* and of the packed file: every length but the whole, a byte behind it, a wrong checksum, no gzip at all */
    f = labels_of(IMAGES);
    const size_t size = pack(&f, packed);
    for (size_t cut = 0; cut < size; cut++) {
        write_file(names[1], packed, cut);
        refused(GW_ERR_TRUNCATED, names[1], "ends");
    }
    packed[size] = 0;
    write_file(names[1], packed, size + 1);
    refused(GW_ERR_CORRUPT, names[1], "goes on");
    packed[size - 5] ^= 1;
    write_file(names[1], packed, size);
    refused(GW_ERR_CORRUPT, names[1], "damaged");
    write_file(names[1], f.bytes, f.size);
    refused(GW_ERR_CORRUPT, names[1], "not gzip");
}

static void missing_files_name_the_package(void **state)
{
    (void)state;
    dataset *data = NULL;
    gw_why why = {""};
    write_good();
    assert_int_equal(unlink(path_of(names[3])), 0);
    refused(GW_ERR_SYSTEM, names[3], "dataset-fashion-mnist");
    assert_int_equal(text_open("no/such/text", 8, &data, &why), GW_ERR_SYSTEM);
    CHECK(strstr(why.text, "bible-kjv") != NULL, "%s", why.text);
}

static void fashion_mnist_itself(void **state)
{
    (void)state;
    dataset *data = NULL;
    gw_why why = {""};
    if (access(FASHION_MNIST, R_OK) != 0) {
        (void)printf("skip: no dataset-fashion-mnist here\n");
        skip();
    }
    CHECK(images_open(FASHION_MNIST, &data, &why) == GW_OK, "%s", why.text);
    assert_true(data->train == 60000 && data->test == 10000);
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < 1000; i++) {
        float x[IMAGE_PIXELS];
        int32_t label = -1;
        data->fill(data, 0, &i, 1, x, &label);
        for (size_t j = 0; j < IMAGE_PIXELS; j++) {
            sum += (double)x[j];
            squares += (double)x[j] * (double)x[j];
        }
    }
    const double n = 1000.0 * IMAGE_PIXELS;
    CHECK(sum / n < 0.05 && sum / n > -0.05 && squares / n < 1.1 && squares / n > 0.9,
          "mean %g, square %g", sum / n, squares / n);
    dataset_destroy(data);
}

/* ---- text ---- */

static void text_is_windows(void **state)
{
    (void)state;
    dataset *data = NULL;
    gw_why why = {""};
    char words[100];
    for (size_t i = 0; i < sizeof words; i++) {
        words[i] = "cab\n"[i % 4]; /* as numbers 3 1 2 0 */
    }
    write_file("text", words, sizeof words);
    CHECK(text_open(path_of("text"), 6, &data, &why) == GW_OK, "%s", why.text);
    assert_int_equal(data->classes, 4);
    assert_int_equal(data->train, 14); /* of 90 characters the last only follows */
    assert_int_equal(data->test, 1);
    static const int number[4] = {3, 1, 2, 0};
    const uint32_t which[2] = {13, 2}, first[3] = {13 * 6, 2 * 6, 90};
    float x[12];
    int32_t labels[12];
    data->fill(data, 0, which, 2, x, labels);
    for (uint32_t row = 0; row < 6; row++) {
        for (uint32_t i = 0; i < 2; i++) {
            assert_int_equal((int)x[row * 2 + i], number[(first[i] + row) % 4]);
            assert_int_equal(labels[row * 2 + i], number[(first[i] + row + 1) % 4]);
        }
    }
    data->fill(data, 1, (const uint32_t[]){0}, 1, x, labels);
    assert_int_equal((int)x[0], number[first[2] % 4]);
    assert_int_equal(labels[5], number[(first[2] + 6) % 4]);
    dataset_destroy(data);
    data = NULL;
    assert_int_equal(text_open(path_of("text"), 10, &data, &why), GW_ERR_RANGE);
}

/* ---- who sees what ---- */

static void ranks_share_every_epoch(void **state)
{
    (void)state;
    enum { N = 103, BATCH = 4, RANKS = 3, STEPS = N / (BATCH * RANKS) };
    uint32_t first_of[2] = {0, 0};
    gw_why why = {""};
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        unsigned char seen[N] = {0};
        for (uint32_t rank = 0; rank < RANKS; rank++) {
            sampler s;
            uint32_t which[BATCH];
            CHECK(sampler_create(&s, 5, N, BATCH, RANKS, rank, &why) == GW_OK, "%s", why.text);
            assert_int_equal(sampler_steps(&s), STEPS);
            /* backwards: nothing depends on what was picked before */
            for (uint64_t step = STEPS; step-- > 0;) {
                sampler_pick(&s, epoch * STEPS + step, which);
                for (size_t i = 0; i < BATCH; i++) {
                    assert_true(which[i] < N);
                    CHECK(seen[which[i]]++ == 0, "example %u twice", which[i]);
                }
            }
            first_of[epoch] = rank == 0 ? which[0] * N + which[1] : first_of[epoch];
            sampler_destroy(&s);
        }
    }
    assert_true(first_of[0] != first_of[1]);
}

/* One rank with a batch of four sees what two ranks with two see. */
static void steps_do_not_depend_on_ranks(void **state)
{
    (void)state;
    sampler one, two[2];
    uint32_t all[4], half[2];
    assert_int_equal(sampler_create(&one, 9, 50, 4, 1, 0, NULL), GW_OK);
    assert_int_equal(sampler_create(&two[0], 9, 50, 2, 2, 0, NULL), GW_OK);
    assert_int_equal(sampler_create(&two[1], 9, 50, 2, 2, 1, NULL), GW_OK);
    for (uint64_t step = 0; step < 30; step++) {
        sampler_pick(&one, step, all);
        for (uint32_t r = 0; r < 2; r++) {
            sampler_pick(&two[r], step, half);
            assert_true(half[0] == all[r] && half[1] == all[2 + r]);
        }
    }
    sampler_destroy(&one);
    sampler_destroy(&two[0]);
    sampler_destroy(&two[1]);
    gw_why why = {""};
    assert_int_equal(sampler_create(&one, 9, 7, 4, 2, 0, &why), GW_ERR_RANGE);
    assert_non_null(strstr(why.text, "7 examples"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(images_are_read),         cmocka_unit_test(wrong_headers_are_refused),
        cmocka_unit_test(wrong_ends_are_refused),  cmocka_unit_test(missing_files_name_the_package),
        cmocka_unit_test(fashion_mnist_itself),    cmocka_unit_test(text_is_windows),
        cmocka_unit_test(ranks_share_every_epoch), cmocka_unit_test(steps_do_not_depend_on_ranks)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
