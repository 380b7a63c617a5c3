/* Reads idx files by gzip. Nothing in them is believed: magic, sizes, checksum, and that they end where they should. */
#include "trainer/data_images.h"

#include "trainer/fail.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { MAGIC_LABELS = 0x801, MAGIC_IMAGES = 0x803, MOST_IMAGES = 10 * 1000 * 1000 };

/* Of the training set; as every user of this data has them. */
static const float mean = 0.2860F, deviation = 0.3530F;

typedef struct half {
    uint8_t *pixels, *labels;
    uint32_t n;
} half;

typedef struct images {
    dataset base;
    half train, test;
} images;

/* ---- one file ---- */

/* The next `size` bytes of the stream, all of them. */
static gw_status take(z_stream *z, void *to, size_t size, const char *path, gw_why *why)
{
    unsigned char *at = to;
    while (size > 0) {
        const uInt part = size < 1U << 30 ? (uInt)size : 1U << 30;
        z->next_out = at;
        z->avail_out = part;
        const int status = inflate(z, Z_NO_FLUSH);
        const size_t got = part - z->avail_out;
        at += got;
        size -= got;
        if (status == Z_STREAM_END || (status == Z_BUF_ERROR && got == 0)) {
            break;
        }
        if (status != Z_OK && status != Z_BUF_ERROR) {
            return trainer_fail(why, GW_ERR_CORRUPT, "%s: not gzip, or damaged (%s)", path,
                                z->msg != NULL ? z->msg : "no reason given");
        }
    }
    return size == 0 ? GW_OK
                     : trainer_fail(why, GW_ERR_TRUNCATED, "%s: ends %zu bytes early", path, size);
}

/* The stream, its checksum, and the file end here. */
static gw_status take_end(z_stream *z, const char *path, gw_why *why)
{
    unsigned char more = 0;
    z->next_out = &more;
    z->avail_out = 1;
    const int status = inflate(z, Z_NO_FLUSH);
    if (z->avail_out == 0 || (status == Z_STREAM_END && z->avail_in > 0)) {
        return trainer_fail(why, GW_ERR_CORRUPT, "%s: goes on behind its last number", path);
    }
    if (status == Z_STREAM_END) {
        return GW_OK;
    }
    return z->avail_in == 0 && (status == Z_OK || status == Z_BUF_ERROR)
               ? trainer_fail(why, GW_ERR_TRUNCATED, "%s: ends before its checksum", path)
               : trainer_fail(why, GW_ERR_CORRUPT, "%s: damaged (%s)", path,
                              z->msg != NULL ? z->msg : "no reason given");
}

static uint32_t big_endian(const unsigned char *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static gw_status take_idx(z_stream *z, uint32_t magic, const char *path, uint8_t **out, uint32_t *n,
                          gw_why *why)
{
    unsigned char header[16];
    const size_t dims = magic & 0xff;
    gw_status status = take(z, header, 4 + 4 * dims, path, why);
    if (status != GW_OK) {
        return status;
    }
    if (big_endian(header) != magic) {
        return trainer_fail(why, GW_ERR_CORRUPT, "%s: begins with %08x, not %08x", path,
                            big_endian(header), magic);
    }
    const uint32_t count = big_endian(header + 4);
    if (count == 0 || count > MOST_IMAGES) {
        return trainer_fail(why, GW_ERR_CORRUPT, "%s: says it has %u entries", path, count);
    }
    if (dims == 3 &&
        (big_endian(header + 8) != IMAGE_SIDE || big_endian(header + 12) != IMAGE_SIDE)) {
        return trainer_fail(why, GW_ERR_CORRUPT, "%s: images are %u x %u, not 28 x 28", path,
                            big_endian(header + 8), big_endian(header + 12));
    }
    const size_t bytes = (size_t)count * (dims == 3 ? IMAGE_PIXELS : 1);
    uint8_t *all = malloc(bytes);
    if (all == NULL) {
        return trainer_fail(why, GW_ERR_MEMORY, "%s: no memory for %u entries", path, count);
    }
    status = take(z, all, bytes, path, why);
    if (status == GW_OK) {
        status = take_end(z, path, why);
    }
    if (status != GW_OK) {
        free(all);
        return status;
    }
    *out = all;
    *n = count;
    return GW_OK;
}

static gw_status read_idx(const char *folder, const char *name, uint32_t magic, uint8_t **out,
                          uint32_t *n, gw_why *why)
{
    char path[192];
    unsigned char *bytes = NULL;
    size_t size = 0;
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) {
        return trainer_fail(why, GW_ERR_RANGE, "%.100s…: the path is too long", folder);
    }
    gw_status status =
        data_read_file(path, "it is in Debian's package dataset-fashion-mnist", &bytes, &size, why);
    if (status != GW_OK) {
        return status;
    }
    z_stream z = {.next_in = bytes, .avail_in = (uInt)size};
    if (size > 1U << 30) {
        status = trainer_fail(why, GW_ERR_RANGE, "%s: too large to be this data", path);
    } else if (inflateInit2(&z, 16 + MAX_WBITS) != Z_OK) { /* 16: gzip and nothing else */
        status = trainer_fail(why, GW_ERR_MEMORY, "%s: no memory to unpack it", path);
    } else {
        status = take_idx(&z, magic, path, out, n, why);
        (void)inflateEnd(&z);
    }
    free(bytes);
    return status;
}

/* ---- both halves ---- */

static gw_status read_half(const char *folder, const char *prefix, half *h, gw_why *why)
{
    char name[64];
    uint32_t labels = 0;
    (void)snprintf(name, sizeof name, "%s-images-idx3-ubyte.gz", prefix);
    gw_status status = read_idx(folder, name, MAGIC_IMAGES, &h->pixels, &h->n, why);
    if (status != GW_OK) {
        return status;
    }
    (void)snprintf(name, sizeof name, "%s-labels-idx1-ubyte.gz", prefix);
    status = read_idx(folder, name, MAGIC_LABELS, &h->labels, &labels, why);
    if (status != GW_OK) {
        return status;
    }
    if (labels != h->n) {
        return trainer_fail(why, GW_ERR_CORRUPT, "%.100s/%s: %u labels for %u images", folder, name,
                            labels, h->n);
    }
    for (uint32_t i = 0; i < labels; i++) {
        if (h->labels[i] >= IMAGE_CLASSES) {
            return trainer_fail(why, GW_ERR_CORRUPT, "%.100s/%s: label %u is %u, not 0 to 9",
                                folder, name, i, h->labels[i]);
        }
    }
    return GW_OK;
}

static void fill(const dataset *data, int test, const uint32_t *which, size_t n, float *x,
                 int32_t *labels)
{
    const images *all = (const images *)data;
    const half *h = test ? &all->test : &all->train;
    for (size_t i = 0; i < n; i++) {
        const uint8_t *pixels = h->pixels + (size_t)which[i] * IMAGE_PIXELS;
        float *row = x + i * IMAGE_PIXELS;
        for (size_t j = 0; j < IMAGE_PIXELS; j++) {
            row[j] = ((float)pixels[j] / 255.0F - mean) / deviation;
        }
        labels[i] = h->labels[which[i]];
    }
}

static void destroy(dataset *data)
{
    images *all = (images *)data;
    free(all->train.pixels);
    free(all->train.labels);
    free(all->test.pixels);
    free(all->test.labels);
    free(all);
}

gw_status images_open(const char *folder, dataset **out, gw_why *why)
{
    images *all = calloc(1, sizeof *all);
    if (all == NULL) {
        return trainer_fail(why, GW_ERR_MEMORY, "no memory for images");
    }
    gw_status status = read_half(folder, "train", &all->train, why);
    if (status == GW_OK) {
        status = read_half(folder, "t10k", &all->test, why);
    }
    if (status != GW_OK) {
        destroy(&all->base);
        return status;
    }
    all->base = (dataset){.train = all->train.n,
                          .test = all->test.n,
                          .rows = 1,
                          .width = IMAGE_PIXELS,
                          .classes = IMAGE_CLASSES,
                          .fill = fill,
                          .destroy = destroy};
    *out = &all->base;
    return GW_OK;
}
