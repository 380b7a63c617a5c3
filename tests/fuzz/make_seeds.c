/* Writes the seeds of every fuzz target: make_seeds DIRECTORY fills DIRECTORY/<target>/. The same
 * bytes every time. What fuzzing found on top is in corpus/ beside them, named by its hash. */
#define _POSIX_C_SOURCE 200809L
#include "fuzz.h"
#include "seed_runs.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/stat.h>

static const char *directory;
static const char *const specs[] = {
    "cast:to=f32",    "cast:to=f16",    "cast:to=bf16",
    "natural:bits=8", "natural:bits=9", "ndither:bits=2,bucket=64",
    "ndither:bits=3", "ndither:bits=4", "ndither:bits=8,bucket=128",
    "dither:bits=2",  "dither:bits=4",  "dither:bits=5,bucket=64,rounding=nearest",
    "dither:bits=8",  "lowrank:rank=1", "lowrank:rank=4,cols=31",
};
enum { N_SPECS = sizeof specs / sizeof specs[0] };
static const gw_dtype dtypes[] = {GW_F32, GW_F16, GW_BF16};

/* ---- writing ---- */

typedef struct bytes {
    uint8_t at[65536];
    size_t size;
} bytes;

static void add(bytes *b, const void *data, size_t size)
{
    REQUIRE(size <= sizeof b->at - b->size);
    memcpy(b->at + b->size, data, size);
    b->size += size;
}

static void add_int(bytes *b, uint64_t value, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        const uint8_t byte = (uint8_t)(value >> 8 * i);
        add(b, &byte, 1);
    }
}

__attribute__((format(printf, 3, 4))) static void save(const char *target, const bytes *b,
                                                       const char *name, ...)
{
    char path[1024], leaf[256];
    va_list arguments;
    va_start(arguments, name);
    (void)vsnprintf(leaf, sizeof leaf, name, arguments);
    va_end(arguments);
    for (char *c = leaf; *c != '\0'; c++) { /* file names of plain letters */
        *c = strchr(":=,/ ", *c) != NULL ? '-' : *c;
    }
    (void)snprintf(path, sizeof path, "%s/%s", directory, target);
    REQUIRE(mkdir(path, 0777) == 0 || errno == EEXIST);
    (void)snprintf(path, sizeof path, "%s/%s/%s", directory, target, leaf);
    FILE *file = fopen(path, "wb");
    REQUIRE(file != NULL && fwrite(b->at, 1, b->size, file) == b->size && fclose(file) == 0);
}

/* ---- numbers ---- */

/* Bits of element i: ordinary numbers, and every 16th an odd one. */
static uint32_t element(gw_dtype dtype, size_t i)
{
    static const uint32_t odd32[] = {0, 0x80000000u, 1, 0x007FFFFFu, 0x7F7FFFFFu, 0x3F800000u};
    static const uint16_t odd16[] = {0, 0x8000u, 1, 0x03FFu, 0x7BFFu, 0x3C00u};
    uint32_t x = (uint32_t)(i + 1) * 0x9E3779B9u;
    x ^= x >> 15;
    x *= 0x85EBCA6Bu;
    x ^= x >> 13;
    if (i % 16 == 15) {
        return dtype == GW_F32 ? odd32[i / 16 % 6] : odd16[i / 16 % 6];
    }
    const uint32_t near_one = (x & 0x80FFFFFFu) | 0x3E000000u;
    return dtype == GW_F32   ? near_one
           : dtype == GW_F16 ? (x & 0x83FFu) | 0x3000u | (x >> 8 & 0xC00u)
                             : near_one >> 16;
}

static void fill(gw_dtype dtype, uint8_t *data, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const uint32_t bits = element(dtype, i);
        memcpy(data + i * gw_dtype_size(dtype), &bits, gw_dtype_size(dtype)); /* little-endian */
    }
}

/* Payload of `n` elements at `out`; its bytes. */
static size_t encode(const gw_params *params, gw_dtype dtype, size_t n, uint8_t *out, size_t room)
{
    static uint8_t data[9000 * 4];
    fuzz_buffer workspace;
    const gw_exec exec = fuzz_exec(params, dtype, n, GW_ISA_SCALAR, 0, &workspace);
    const gw_stream stream = {.seed = 1};
    const gw_tensor in = {data, n, dtype};
    size_t written = 0;
    REQUIRE(n <= sizeof data / 4);
    fill(dtype, data, n);
    REQUIRE(gw_encode(params, &exec, &stream, &in, out, room, &written, NULL) == GW_OK);
    fuzz_release(&workspace);
    return written;
}

/* The byte that makes fuzz_take_params choose this value. */
static uint8_t choice_of(const gw_param_info *info, double value)
{
    if (info->max - info->min + 1 <= 64) {
        return (uint8_t)(value - info->min);
    }
    return (uint8_t)(info->min > 0 ? log2(value / info->min) : log2(value + 1));
}

static size_t codec_index(const gw_codec *codec)
{
    size_t i = 0;
    while (gw_codec_at(i) != codec) {
        i++;
    }
    return i;
}

static void add_params(bytes *b, const gw_params *params)
{
    for (size_t i = 0; i < gw_codec_param_count(params->codec); i++) {
        add_int(b, choice_of(gw_codec_param(params->codec, i), params->value[i]), 1);
    }
}

/* ---- frames ---- */

static bytes scratch;

static void frame_of(gw_segment *segments, size_t n, uint32_t flags, unsigned repair,
                     const char *name)
{
    static uint8_t frame[32768];
    const gw_frame_info info = {.flags = flags, .seed = 1, .step = 2, .rank = 3, .point = 4};
    size_t at = 0, size = 0;
    gw_why why = {""};
    REQUIRE(gw_frame_begin(segments, n, &at, NULL) == GW_OK);
    for (size_t i = 0; i < n; i++) {
        segments[i].payload_at = at;
        segments[i].payload_bytes =
            encode(&segments[i].params, segments[i].dtype, (size_t)segments[i].count, frame + at,
                   sizeof frame - at);
        at = gw_frame_next(at + (size_t)segments[i].payload_bytes);
    }
    REQUIRE(gw_frame_seal(frame, sizeof frame, &info, segments, n, &size, &why) == GW_OK);
    scratch.size = 0;
    add_int(&scratch, repair, 1);
    add(&scratch, frame, size);
    save("frame", &scratch, "%s", name);
}

static gw_segment segment(const char *spec, gw_dtype dtype, const char *name, uint64_t count)
{
    gw_segment s = {.name = name,
                    .name_bytes = strlen(name),
                    .dtype = dtype,
                    .count = count,
                    .n_dims = 1,
                    .dims = {count},
                    .tensor = 7};
    REQUIRE(gw_params_parse(&s.params, spec, NULL) == GW_OK);
    return s;
}

/* 16 bytes of adacomp that say "all NaN" of 2^48 - 1 elements; the header's hash is made right by the target. */
static void bomb(void)
{
    static const uint64_t most = ((uint64_t)1 << 48) - 1;
    static const double params[3] = {500, 2, 0};
    static const uint8_t zeros[64];
    bytes *b = &scratch;
    b->size = 0;
    add_int(b, 1, 1);
    add(b, "GWF\x1A\1\0\0\0\1\0\0\0\x88\0\0\0\x98", 17);
    add(b, zeros, 64 - 17);
    add(b, "\5\1\1\3", 4);
    add_int(b, 0, 4);
    add_int(b, most, 8);
    add_int(b, 16, 8);
    add(b, zeros, 16);
    add_int(b, most, 8);
    add(b, params, sizeof params);
    add(b, "\2\0\0\0\0\0\xC0\x7F\0\0\0\0\0\0\0", 16);
    save("frame", b, "bomb");
}

static void frames(void)
{
    char name[256];
    for (size_t i = 0; i < N_SPECS; i++) {
        for (int d = 0; d < 3; d++) {
            gw_segment s = segment(specs[i], dtypes[d], "w", 21 + i);
            (void)snprintf(name, sizeof name, "%s-%s", specs[i], gw_dtype_name(dtypes[d]));
            frame_of(&s, 1, i % 2 ? GW_FRAME_HASHED : 0, 7, name);
        }
    }
    gw_segment scalar = segment("cast:to=f32", GW_F32, "scalar", 1);
    scalar.n_dims = 0;
    gw_segment empty = segment("natural", GW_BF16, "", 0);
    empty.n_dims = 3;
    empty.dims[0] = 5, empty.dims[1] = 0, empty.dims[2] = 9;
    gw_segment deep =
        segment("dither:bits=3,bucket=64", GW_F16, "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x8C\x8D", 96);
    static const uint64_t dims[8] = {1, 2, 3, 2, 2, 2, 1, 2};
    deep.n_dims = 8;
    memcpy(deep.dims, dims, sizeof dims);
    gw_segment blocks = segment("natural:bits=8", GW_F32, "two.blocks", 4100);
    gw_segment all[] = {scalar, empty, deep};
    frame_of(all, 0, GW_FRAME_HASHED, 0, "no-segments");
    frame_of(all, 3, GW_FRAME_HASHED, 0, "three-as-is");
    frame_of(all, 3, GW_FRAME_HASHED, 7, "three-repaired");
    frame_of(all, 3, 0, 15, "three-unhashed-unaligned");
    frame_of(&all[1], 1, 0, 3, "empty");
    bomb();
    frame_of(&blocks, 1, 0, 3, "two-blocks");
    bytes *b = &scratch; /* the last frame cut short */
    b->size = 100;
    save("frame", b, "cut");
    b->size = 5;
    save("frame", b, "cut-in-magic");
}

/* ---- decode and encode ---- */

static void decode_seed(const gw_params *params, gw_dtype dtype, unsigned isa_how, unsigned mode,
                        size_t n, const char *name)
{
    static uint8_t payload[40000];
    scratch.size = 0;
    add_int(&scratch, codec_index(params->codec), 1);
    add_int(&scratch, (uint64_t)dtype, 1);
    add_int(&scratch, isa_how, 1);
    add_int(&scratch, mode, 1);
    add_int(&scratch, n, 2);
    add_int(&scratch, 0x3F812345u, 4);
    add_params(&scratch, params);
    /* of a long payload the beginning; the target fills it up */
    const size_t size = encode(params, dtype, n, payload, sizeof payload);
    add(&scratch, payload, size < 600 ? size : 600);
    save("decode", &scratch, "%s-%s-%zu-%s", name, gw_dtype_name(dtype), n,
         isa_how >> 3 ? "add" : "set");
}

static void encode_seed(const gw_params *params, gw_dtype dtype, unsigned mode, size_t n,
                        uint64_t first, const char *name)
{
    static uint8_t data[70 * 4];
    const size_t there = n < 70 ? n : 70;
    scratch.size = 0;
    add_int(&scratch, codec_index(params->codec), 1);
    add_int(&scratch, (uint64_t)(dtype - GW_F32), 1);
    add_int(&scratch, mode, 1);
    add_int(&scratch, n, 2);
    add_int(&scratch, 0x0403020101u, 5);
    add_int(&scratch, first, 8);
    add_params(&scratch, params);
    fill(dtype, data, there);
    add(&scratch, data, there * gw_dtype_size(dtype));
    save("encode", &scratch, "%s-%s-%zu-%u", name, gw_dtype_name(dtype), n, mode);
}

static void calls(void)
{
    for (size_t i = 0; i < N_SPECS; i++) {
        gw_params params;
        REQUIRE(gw_params_parse(&params, specs[i], NULL) == GW_OK);
        for (unsigned d = 0; d < 3; d++) {
            decode_seed(&params, dtypes[d], (unsigned)(i + d) % 4, 0, 37 + i, specs[i]);
            decode_seed(&params, dtypes[d], 8, 1 + 2 * d, d == 1 ? 8500 : 4200, specs[i]);
            encode_seed(&params, dtypes[d], 0, 33 + i, 0, specs[i]);
            encode_seed(&params, dtypes[d], 1 + 2 * d, d == 1 ? 8500 : 4200,
                        ((uint64_t)1 << 33) - 8192, specs[i]);
        }
        encode_seed(&params, GW_F32, 4, 9, 0, specs[i]);
        for (unsigned mode = 32; mode < 128 && gw_params_flags(&params) & GW_CODEC_ROUNDS;
             mode += 32) {
            encode_seed(&params, dtypes[mode / 32 - 1], mode + 1, 700, 0, specs[i]); /* rounds */
        }
    }
    gw_params params;
    REQUIRE(gw_params_parse(&params, "cast", NULL) == GW_OK);
    decode_seed(&params, GW_F32, 0, 4, 30, "huge");
    decode_seed(&params, GW_F16, 0, 8, 30, "no-space");
    decode_seed(&params, GW_BF16, 0, 16, 30, "shifted");
    encode_seed(&params, GW_F32, 8, 30, 0, "off-grain");
    encode_seed(&params, GW_F32, 0, 0, 0, "nothing");
}

/* ---- text ---- */

static void text(const char *target, const char *name, const void *content, size_t size)
{
    scratch.size = 0;
    add(&scratch, content, size);
    save(target, &scratch, "%s", name);
}

static void spec_texts(void)
{
    static const char *const more[] = {"",
                                       ":",
                                       "cast",
                                       "natural",
                                       "ndither",
                                       "dither",
                                       "cast:",
                                       "cast:to",
                                       "cast:to=",
                                       "cast:to=f64",
                                       "nothing:bits=4",
                                       "dither:bits=4,bits=4",
                                       "dither:bits=4,",
                                       "dither:,bits=4",
                                       "dither:bits=04",
                                       "dither:bits=4e0",
                                       "dither:bits=40e-1",
                                       "dither:bits=0x4",
                                       "dither:bits=nan",
                                       "dither:bits=inf",
                                       "dither:bits= 4",
                                       "dither:bits=4 ",
                                       "dither:bits=-4",
                                       "dither:bits=+4",
                                       "dither:bits=4.5",
                                       "dither:bits=1e999",
                                       "dither:bucket=65",
                                       "dither:bucket=8192",
                                       "dither:bucket=16384",
                                       "dither:norm=max,rounding=stochastic",
                                       "dither:bits=8,bucket=64,norm=max,rounding=nearest",
                                       "dither:rounding=Nearest",
                                       "ndither:rounding=nearest",
                                       "natural:bits=10",
                                       "natural:bits=9=9"};
    for (size_t i = 0; i < N_SPECS; i++) {
        text("spec", specs[i], specs[i], strlen(specs[i]));
    }
    char name[32], line[300];
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        (void)snprintf(name, sizeof name, "text%02zu", i);
        text("spec", name, more[i], strlen(more[i]));
    }
    for (size_t i = 0; i < 2; i++) { /* 255 characters are read, 256 are not */
        (void)snprintf(line, sizeof line, "dither:bits=%0*d", 243 + (int)i, 4);
        text("spec", i ? "256-characters" : "255-characters", line, strlen(line));
    }
}

/* Job: ranks, rank, ranks a node, codec, elements as mantissa, shift and rest. */
static void route_text(const char *name, const char *route, uint64_t job)
{
    scratch.size = 0;
    add_int(&scratch, job, 8);
    add(&scratch, route, strlen(route));
    save("route", &scratch, "%s", name);
}

static void route_texts(void)
{
    static const char *const more[] = {
        "",
        "dense@cpu",
        "sra@",
        "sra@tpu",
        "ring",
        "encode",
        "encode@cpu",
        "encode@cpu,flat:allgather,decode@gpu",
        "encode@cpu . flat:allgather . decode@cpu",
        " flat:reduce_scatter\xC2\xB7 flat:allgather ",
        "flat:reduce,flat:allgather",
        "flat:allreduce,",
        "flat:allreduce,,",
        "round:allreduce",
        "flat:all",
        "flat:allreduce\xC2",
        "encode@gpu,flat:reduce,flat:broadcast,decode@gpu",
        "encode@cpu,intra:gather,inter:alltoall,inter:allgather,intra:broadcast,decode@gpu",
        "encode@cpu,intra:alltoall,inter:alltoall,inter:allgather,intra:allgather,decode@cpu",
        "intra:reduce,encode@cpu,inter:gather,decode@cpu,inter:broadcast,intra:broadcast"};
    const uint64_t job = 0x0003108002030508u; /* rank 5 of 8 … */
    for (size_t i = 0; i < gw_route_name_count(); i++) {
        const char *name = gw_route_name_at(i)->name;
        route_text(name, name, 0x0003108000020508u + (i % 6 << 24)); /* two a node, codec i */
    }
    char name[32], line[1100];
    for (size_t i = 0; i < sizeof more / sizeof more[0]; i++) {
        (void)snprintf(name, sizeof name, "text%02zu", i);
        route_text(name, more[i], i % 2 ? job : 0x0003108000020508u);
    }
    for (size_t i = 0; i < 13; i++) { /* 12 are the most */
        memcpy(line + 12 * i, "flat:reduce,", 12);
    }
    line[13 * 12 - 1] = '\0';
    route_text("13-steps", line, job);
    for (int i = 0; i < 2; i++) { /* 1023 characters are read, 1024 are not */
        (void)snprintf(line, sizeof line, "%*s", 1023 + i, "flat:allreduce");
        route_text(i ? "1024-characters" : "1023-characters", line, job);
    }
}

static void npy(unsigned version, const char *dictionary, size_t data, const char *name)
{
    static const uint8_t zeros[1024];
    const size_t length_bytes = version == 1 ? 2 : 4;
    scratch.size = 0;
    add(&scratch, "\x93NUMPY", 6);
    add_int(&scratch, version, 2);
    add_int(&scratch, strlen(dictionary), length_bytes);
    add(&scratch, dictionary, strlen(dictionary));
    add(&scratch, zeros, data);
    save("npy", &scratch, "%s-v%u", name, version);
}

static void npy_files(void)
{
    for (unsigned v = 1; v <= 3; v++) {
        npy(v, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }          \n", 48, "f4");
        npy(v, "{'descr': '<f2', 'fortran_order': False, 'shape': (5,), }\n", 10, "f2");
        npy(v, "{'descr': '<f8', 'fortran_order': False, 'shape': (), }\n", 8, "f8");
    }
    npy(1, "{\"shape\":(2,3,),\"descr\":\"<f4\",\"fortran_order\":False}", 24, "double-quotes");
    npy(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (4,)}", 16, "fortran-flat");
    npy(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2)}", 16, "fortran");
    npy(1, "{'descr': '>f4', 'fortran_order': False, 'shape': (1,)}", 4, "big-endian");
    npy(1, "{'descr': '<i8', 'fortran_order': False, 'shape': (1,)}", 8, "integers");
    npy(1, "{'descr': [('x', '<f4')], 'fortran_order': False, 'shape': (1,)}", 4, "structured");
    npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,2)}", 8, "eight");
    npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", 4, "nine");
    npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3)}", 12, "no-tuple");
    npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551615, 0)}", 0,
        "max");
    npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551616,)}", 0, "over");
    npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 4)}", 0,
        "wrap");
    npy(1, "{'descr': '<f4', 'shape': (1,)}", 4, "missing");
    npy(1, "{'descr': '<f4', 'descr': '<f4'}", 4, "twice");
    npy(1, "{'other': 1}", 4, "unknown");
    npy(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", 7, "short");
    npy(4, "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", 4, "future");
    text("npy", "preamble", "\x93NUMPY\2\0\1\0", 10);
}

static void safetensors(const char *json, size_t data, const char *name)
{
    static const uint8_t zeros[1024];
    scratch.size = 0;
    add_int(&scratch, strlen(json), 8);
    add(&scratch, json, strlen(json));
    add(&scratch, zeros, data);
    save("safetensors", &scratch, "%s", name);
}

static void safetensors_files(void)
{
    safetensors("{}", 0, "empty");
    safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}   ", 16,
                "one");
    safetensors("{\"a\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[4,10]},"
                "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,1],\"data_offsets\":[0,4]},"
                "\"c\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[10,18]}}",
                18, "three");
    safetensors("{\"__metadata__\":{\"format\":\"pt\"},"
                "\"z\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[0,0]},"
                "\"y\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
                "\"x\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
                4, "metadata-and-empties");
    safetensors("{\"\\u00e9\\ud83c\\udf0d\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1],"
                "\"data_offsets\":[0,4]}}",
                4, "escapes");
    safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                8, "same-name");
    safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
                8, "overlap");
    safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}", 8, "gap");
    safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 8, "behind");
    safetensors("{\"a\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8, "integers");
    safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "real");
    safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "negative");
    safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],"
                "\"data_offsets\":[0,0]}}",
                0, "wrap");
    safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,0],"
                "\"data_offsets\":[0,0]}}",
                0, "max");
    safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":1}}", 4,
                "unknown-key");
    safetensors("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "missing-key");
    safetensors("{\"a\":[],\"__metadata__\":{\"n\":1}}", 0, "wrong-types");
    safetensors("{\"a\":{\"dtype\":true,\"shape\":{},\"data_offsets\":[0]}}", 0, "wrong-values");
    safetensors("{\"__metadata__\":7}", 0, "metadata-number");
    safetensors("[1, 2.5e3, null, false, \"x\\n\"]", 0, "array");
    safetensors("{\"a\":", 0, "cut");
    text("safetensors", "length-alone", "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}", 10);
    text("safetensors", "short", "\2\0\0\0", 4);
}

/* ---- jobs, clusters, timelines ---- */

static void planning(char which, const char *name, const char *body)
{
    bytes b = {.size = 0};
    add(&b, &which, 1);
    add(&b, body, strlen(body));
    save("job", &b, "%s", name);
}

#define LINK "{\"latency_us\": 20, \"gbit_per_s\": 10}"
#define CLUSTER                                                                                    \
    "{\"format\": \"gradwire.cluster/1\", \"name\": \"c\", \"nodes\": 2, \"ranks_per_node\": 1, "  \
    "\"device\": "                                                                                 \
    "\"cpu\", \"cpu_workers\": 1, \"inter\": "

static void planner_files(void)
{
    planning(
        0, "job",
        "{\"format\": \"gradwire.job/1\", \"name\": \"j\", \"forward_ms\": 1, \"backward_ms\": 3, "
        "\"tensors\": [{\"name\": \"a\", \"shape\": [3, 4], \"ready_ms\": 2}, {\"name\": \"b\", "
        "\"shape\": "
        "[], \"ready_ms\": 1}]}");
    planning(0, "job-negative",
             "{\"format\": \"gradwire.job/1\", \"name\": \"j\", \"tensors\": [{\"name\": \"a\", "
             "\"shape\": [3], "
             "\"ready_ms\": -2}]}");
    planning(1, "csv", "order,tensor,numel,gap_us\n0,a,10,0\n1,b,20,5.5\n");
    planning(1, "csv-short", "order,tensor,numel,gap_us\n0,a,10\n");
    planning(2, "cluster",
             CLUSTER LINK ", \"codecs\": [{\"spec\": \"sign\", \"device\": \"cpu\", "
                          "\"encode_gbps\": 5, \"decode_gbps\": 9}]}");
    planning(2, "cluster-points",
             CLUSTER LINK
             ", \"codecs\": [{\"spec\": \"topk\", \"device\": \"cpu\", \"points\": [{\"bytes\": "
             "1000, \"encode_us\": 5, \"decode_us\": 2, \"samples\": 9}]}], \"collectives\": "
             "[{\"op\": \"allreduce\", \"level\": \"flat\", \"points\": [{\"bytes\": 8, \"us\": "
             "3}]}]}");
    planning(2, "cluster-no-rate",
             CLUSTER "{\"latency_us\": 20, \"gbit_per_s\": 0}, \"codecs\": []}");
    planning(3, "timelines",
             "[{\"figure\": \"2b\", \"tensors\": [{\"compute\": 8, \"ops\": [[\"gpu\", 3], "
             "[\"net\", 3.5]]}], "
             "\"makespan\": 14.5}]");
    planning(3, "timelines-lane",
             "[{\"figure\": \"x\", \"tensors\": [{\"compute\": 8, \"ops\": [[\"tpu\", 3]]}]}]");
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: make_seeds DIRECTORY\n");
        return 2;
    }
    directory = argv[1];
    REQUIRE(mkdir(directory, 0777) == 0 || errno == EEXIST);
    frames();
    calls();
    spec_texts();
    route_texts();
    npy_files();
    safetensors_files();
    seed_runs(text);
    planner_files();
    return 0;
}
