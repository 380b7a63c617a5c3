/* How fast the codecs are on this device, next to its copy in the same run: time LIBRARY [-p] [-n ELEMENTS] [-r REPEATS] [SPEC]…
 * A codec's ratio is (bytes that must move / time) over the same of the faster of two copies, cudaMemcpyAsync
 * and a plain kernel, measured again for every row. Medians over events around four calls in a row, copies too: an empty
 * launch between two events takes 6 us by itself. Buffers rotate, and each is larger than the cache. A spec whose codec has no CUDA
 * side is left out, with a line that says so. `-p` before the specs does each thing once, for a profiler that watches. */
#include <gradwire/gradwire.h>

#include <cuda_runtime.h>

#include <algorithm>
#include <functional>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <string>
#include <vector>

namespace
{
enum { IN_A_ROW = 4, SETS = 2, RANKS = 8, SMALL_TENSORS = 1000, SMALL = 10 * 1024, FRESH = 48 };

cudaStream_t stream;
gw_cuda *cuda;
int repeats = 25, warm_ups = 3;

void must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
        exit(3);
    }
}

void must(gw_status status, const gw_why &why, const char *what)
{
    if (status != GW_OK) {
        fprintf(stderr, "%s: %s: %s\n", what, gw_status_string(status), why.text);
        exit(3);
    }
}

template <class T> T *take(size_t n)
{
    void *p = NULL;
    must(cudaMalloc(&p, n * sizeof(T) + 256), "cudaMalloc");
    return (T *)p;
}

/* Gaussian-like numbers of deviation 1e-3: a sum of four uniform ones. */
__global__ void fill(float *x, size_t n, uint32_t seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n;
         i += (size_t)gridDim.x * blockDim.x) {
        float sum = 0;
        uint64_t z = i * 0x9E3779B97F4A7C15u + seed * 0xD1B54A32D192ED03u;
        for (int k = 0; k < 4; k++) {
            z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
            z = (z ^ z >> 27) * 0x94D049BB133111EBu;
            sum += (float)(int32_t)(z >> 32) * 0x1p-31f;
        }
        x[i] = sum * 1e-3f;
    }
}

__global__ void copy_kernel(float4 *to, const float4 *from, size_t n)
{
    const size_t at = blockIdx.x * (size_t)1024 + threadIdx.x;
    float4 v[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
        v[i] = at + 256 * i < n ? __ldcs(from + at + 256 * i) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < 4; i++) {
        if (at + 256 * i < n) {
            __stcs(to + at + 256 * i, v[i]);
        }
    }
}

int in_a_row(void)
{
    return warm_ups != 0 ? IN_A_ROW : 1; /* for a profiler each once */
}

/* Median milliseconds of run(i), i counting calls, `row` of them between two events. */
double median_ms(const std::function<void(int)> &run, int row = 1)
{
    cudaEvent_t begin, end;
    must(cudaEventCreate(&begin), "event");
    must(cudaEventCreate(&end), "event");
    std::vector<float> times;
    for (int i = 0; i < repeats + warm_ups; i++) {
        must(cudaEventRecord(begin, stream), "event");
        for (int k = 0; k < row; k++) {
            run(i * row + k);
        }
        must(cudaEventRecord(end, stream), "event");
        must(cudaEventSynchronize(end), "a run");
        float ms = 0;
        must(cudaEventElapsedTime(&ms, begin, end), "event");
        if (i >= warm_ups) {
            times.push_back(ms / (float)row);
        }
    }
    must(cudaGetLastError(), "a run");
    std::sort(times.begin(), times.end());
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return times[times.size() / 2];
}

struct buffers {
    size_t n;
    float *in[SETS], *residual[SETS], *after[SETS], *out[SETS];
    uint8_t *payload[SETS][RANKS];
    size_t bytes; /* of a payload buffer */
    gw_cuda_result *result;
    void *due[SETS], *due_after[SETS]; /* of r and r′, where the codec leaves something due */
};

double memcpy_gbps, kernel_gbps; /* the last reference's */

double reference_gbps(const buffers &b)
{
    const double moved = 8.0 * (double)b.n;
    const double by_copy = median_ms(
        [&](int i) {
            must(cudaMemcpyAsync(b.out[i % SETS], b.in[(i + 1) % SETS], 4 * b.n,
                                 cudaMemcpyDeviceToDevice, stream),
                 "copy");
        },
        in_a_row());
    const double by_kernel = median_ms(
        [&](int i) {
            copy_kernel<<<(unsigned)((b.n / 4 + 1023) / 1024), 256, 0, stream>>>(
                (float4 *)b.out[i % SETS], (const float4 *)b.in[(i + 1) % SETS], b.n / 4);
        },
        in_a_row());
    memcpy_gbps = moved / by_copy * 1e-6;
    kernel_gbps = moved / by_kernel * 1e-6;
    return std::max(memcpy_gbps, kernel_gbps);
}

gw_workspace workspace_of(const gw_params &p, const std::vector<size_t> &counts, int feedback)
{
    size_t need = 0;
    must(gw_cuda_workspace(cuda, &p, GW_F32, counts.data(), counts.size(), feedback, &need),
         gw_why{""}, "workspace");
    return {need != 0 ? take<uint8_t>(need) : NULL, need};
}

void encode(const gw_params &p, const buffers &b, int set, int rank, int feedback, gw_workspace w)
{
    gw_cuda_source s = {};
    gw_why why = {""};
    s.in = {b.in[set], b.n, GW_F32};
    s.residual = feedback ? b.residual[set] : NULL;
    s.residual_after = feedback ? b.after[set] : NULL;
    s.key = {1, 2, 3, 0, (uint32_t)rank, 0};
    s.payload = b.payload[set][rank];
    s.capacity = b.bytes;
    s.result = b.result + set * RANKS + rank;
    s.due = feedback ? b.due[set] : NULL;
    s.due_after = feedback ? b.due_after[set] : NULL;
    must(gw_cuda_encode(cuda, stream, &p, &s, 1, w, &why), why, "encode");
}

void decode(const gw_params &p, const buffers &b, int set, int ranks, gw_apply how, size_t size,
            gw_workspace w)
{
    gw_cuda_payload list[RANKS];
    gw_why why = {""};
    const int fixed = (gw_params_flags(&p) & GW_CODEC_FIXED_SIZE) != 0;
    for (int r = 0; r < ranks; r++) {
        list[r] = {b.payload[set][r], size, fixed ? NULL : &b.result[set * RANKS + r].written};
    }
    const gw_cuda_sink s = {list, (size_t)ranks,         {b.out[set], b.n, GW_F32}, how,
                            1,    b.result + set * RANKS};
    must(gw_cuda_decode(cuda, stream, &p, &s, 1, w, &why), why, "decode");
}

struct row {
    double ms, moved; /* bytes */
};

void print_rows(const char *spec, const buffers &b, double reference, const row rows[4])
{
    printf("%-32s", spec);
    for (int i = 0; i < 4; i++) {
        printf(" %6.0f %5.3f |", 4.0 * (double)b.n / rows[i].ms * 1e-6,
               rows[i].moved / rows[i].ms * 1e-6 / reference);
    }
    printf(" %5.0f %5.0f\n", memcpy_gbps, kernel_gbps);
    fflush(stdout);
}

/* Residuals as training leaves them: what remains of 100 steps of fresh gradients. */
void settle_residuals(const gw_params &p, buffers &b, gw_workspace w)
{
    for (int set = 0; set < SETS; set++) {
        must(cudaMemsetAsync(b.residual[set], 0, 4 * b.n, stream), "memset");
        for (int step = 0; step < (warm_ups != 0 ? 100 : 10); step++) {
            fill<<<2048, 256, 0, stream>>>(b.in[set], b.n, (uint32_t)(SETS * step + set));
            encode(p, b, set, 0, 1, w);
            std::swap(b.residual[set], b.after[set]);
        }
    }
}

/* With feedback once more, where r′ may be settled by the next step: steps in a row, as in training. Each takes off what the one
 * before it left due; r and r′ change places; gradients are fresh ones, of which there are FRESH. */
void time_due(const char *spec, const gw_params &p, buffers &b, gw_workspace w, double reference)
{
    size_t bytes = 0;
    must(gw_cuda_due_bytes(cuda, &p, b.n, &bytes), gw_why{""}, "due");
    if (bytes == 0) {
        return;
    }
    float *const own[SETS] = {b.in[0], b.in[1]};
    static std::vector<float *>
        gradients; /* kept: the copy of the next row is slower where they are freed */
    for (int set = 0; set < SETS; set++) {
        b.due[set] = take<uint8_t>(bytes);
        b.due_after[set] = take<uint8_t>(bytes);
        must(cudaMemsetAsync(b.due[set], 0, bytes, stream), "memset");
    }
    while (gradients.size() < (warm_ups != 0 ? FRESH : 4)) {
        gradients.push_back(take<float>(b.n));
    }
    for (size_t i = 0; i < gradients.size(); i++) {
        fill<<<2048, 256, 0, stream>>>(gradients[i], b.n, (uint32_t)(1000 + i));
    }
    const auto step = [&](int i) {
        const int set = i % SETS;
        b.in[set] = gradients[(size_t)i % gradients.size()];
        encode(p, b, set, 0, 1, w);
        std::swap(b.residual[set], b.after[set]);
        std::swap(b.due[set], b.due_after[set]);
    };
    const double ms = median_ms(step, in_a_row());
    gw_cuda_result seen;
    must(cudaMemcpy(&seen, b.result, sizeof seen, cudaMemcpyDeviceToHost), "result");
    printf("%-32s %14s | %6.0f %5.3f | settled by the next step; payload of %.4f byte an element\n",
           spec, "", 4.0 * (double)b.n / ms * 1e-6,
           (12 * (double)b.n + (double)seen.written) / ms * 1e-6 / reference,
           (double)seen.written / (double)b.n);
    for (int set = 0; set < SETS; set++) {
        cudaFree(b.due[set]);
        cudaFree(b.due_after[set]);
        b.due[set] = b.due_after[set] = NULL;
        b.in[set] = own[set];
    }
}

void time_spec(const char *spec, const gw_params &p, buffers &b)
{
    const double n = (double)b.n;
    size_t bound = 0;
    must(gw_payload_bound(&p, b.n, &bound), gw_why{""}, "bound");
    const gw_workspace plain = workspace_of(p, {b.n}, 0), fed = workspace_of(p, {b.n}, 1);
    must(cudaMemset(b.result, 0, SETS * RANKS * sizeof *b.result), "memset");
    for (int set = 0; set < SETS; set++) {
        for (int r = 0; r < RANKS; r++) {
            encode(p, b, set, r, 0, plain);
        }
    }
    gw_cuda_result seen;
    must(cudaStreamSynchronize(stream), "encode");
    must(cudaMemcpy(&seen, b.result, sizeof seen, cudaMemcpyDeviceToHost), "result");
    const double payload = (double)seen.written;
    const double reference = reference_gbps(b);
    row rows[4];
    rows[0] = {median_ms([&](int i) { encode(p, b, i % SETS, 0, 0, plain); }, in_a_row()),
               4 * n + payload};
    settle_residuals(p, b, fed);
    rows[1].ms = median_ms([&](int i) { encode(p, b, i % SETS, 0, 1, fed); }, in_a_row());
    must(cudaMemcpy(&seen, b.result, sizeof seen, cudaMemcpyDeviceToHost), "result");
    rows[1].moved = 12 * n + (double)seen.written;
    for (int set = 0; set < SETS; set++) {
        for (int r = 0; r < RANKS; r++) {
            encode(p, b, set, r, 0, plain);
        }
    }
    rows[2] = {
        median_ms([&](int i) { decode(p, b, i % SETS, 1, GW_ADD, bound, plain); }, in_a_row()),
        8 * n + payload};
    rows[3] = {
        median_ms([&](int i) { decode(p, b, i % SETS, RANKS, GW_SET, bound, plain); }, in_a_row()),
        4 * n + RANKS * payload};
    print_rows(spec, b, reference, rows);
    settle_residuals(p, b, fed);
    time_due(spec, p, b, fed, reference);
    cudaFree(plain.data);
    cudaFree(fed.data);
}

/* Milliseconds of `run` as a captured graph, replayed; it must be capturable for that. */
double graph_ms(const std::function<void()> &run)
{
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "capture");
    run();
    must(cudaStreamEndCapture(stream, &graph), "capture");
    must(cudaGraphInstantiate(&exec, graph, 0), "graph");
    const double ms = median_ms([&](int) { must(cudaGraphLaunch(exec, stream), "graph"); });
    cudaGraphExecDestroy(exec);
    cudaGraphDestroy(graph);
    return ms;
}

/* 1,000 tensors of 10 Ki elements in one call, against one of as many elements. */
void time_small(const char *spec, const gw_params &p, buffers &b)
{
    std::vector<gw_cuda_source> many(SMALL_TENSORS), one(1);
    std::vector<gw_cuda_sink> sinks(SMALL_TENSORS), sink(1);
    std::vector<gw_cuda_payload> payloads(SMALL_TENSORS);
    size_t bound = 0, whole = 0;
    gw_why why = {""};
    must(gw_payload_bound(&p, SMALL, &bound), why, "bound");
    must(gw_payload_bound(&p, (size_t)SMALL * SMALL_TENSORS, &whole), why, "bound");
    const size_t step = (bound + 15) / 16 * 16;
    gw_cuda_result *results = take<gw_cuda_result>(SMALL_TENSORS);
    for (size_t i = 0; i < SMALL_TENSORS; i++) {
        many[i] = {};
        many[i].in = {b.in[0] + i * SMALL, SMALL, GW_F32};
        many[i].payload = b.payload[0][0] + i * step;
        many[i].capacity = bound;
        many[i].key.tensor = i;
        many[i].result = results + i;
        payloads[i] = {many[i].payload, bound,
                       (gw_params_flags(&p) & GW_CODEC_FIXED_SIZE) ? NULL : &results[i].written};
        sinks[i] = {&payloads[i], 1, {b.out[0] + i * SMALL, SMALL, GW_F32}, GW_SET, 1, results + i};
    }
    one[0] = many[0];
    one[0].in.count = (size_t)SMALL * SMALL_TENSORS;
    one[0].capacity = whole;
    gw_cuda_payload payload = {b.payload[0][0], whole,
                               (gw_params_flags(&p) & GW_CODEC_FIXED_SIZE) ? NULL
                                                                           : &results->written};
    sink[0] = {&payload, 1, {b.out[0], (size_t)SMALL * SMALL_TENSORS, GW_F32}, GW_SET, 1, results};
    const gw_workspace wm = workspace_of(p, std::vector<size_t>(SMALL_TENSORS, SMALL), 0);
    const gw_workspace w1 = workspace_of(p, {(size_t)SMALL * SMALL_TENSORS}, 0);
    auto run = [&](const std::vector<gw_cuda_source> &list, gw_workspace w) {
        must(gw_cuda_encode(cuda, stream, &p, list.data(), list.size(), w, &why), why, "encode");
    };
    auto back = [&](const std::vector<gw_cuda_sink> &list, gw_workspace w) {
        must(gw_cuda_decode(cuda, stream, &p, list.data(), list.size(), w, &why), why, "decode");
    };
    must(cudaMemset(results, 0, SMALL_TENSORS * sizeof *results), "memset");
    const double one_enc = graph_ms([&] { run(one, w1); }),
                 one_dec = graph_ms([&] { back(sink, w1); });
    const double many_enc = graph_ms([&] { run(many, wm); }),
                 many_dec = graph_ms([&] { back(sinks, wm); });
    const double call = median_ms([&](int) { run(many, wm); });
    printf("%-32s %8.1f %8.1f %6.2f | %8.1f %8.1f %6.2f | %8.1f\n", spec, 1e3 * one_enc,
           1e3 * many_enc, many_enc / one_enc, 1e3 * one_dec, 1e3 * many_dec, many_dec / one_dec,
           1e3 * call);
    fflush(stdout);
    cudaFree(results);
    cudaFree(wm.data);
    cudaFree(w1.data);
}

bool known(const char *spec, gw_params *p)
{
    gw_why why = {""};
    if (gw_params_parse(p, spec, &why) != GW_OK) {
        printf("%-32s left out: %s\n", spec, why.text);
        return false;
    }
    if (!gw_cuda_has(cuda, p->codec)) {
        printf("%-32s left out: no CUDA side\n", spec);
        return false;
    }
    return true;
}

buffers make_buffers(size_t n, const std::vector<std::string> &specs)
{
    buffers b = {};
    b.n = n;
    b.bytes = 1 << 20;
    for (const std::string &spec : specs) {
        gw_params p;
        size_t bound = 0, small = 0;
        if (gw_params_parse(&p, spec.c_str(), NULL) == GW_OK &&
            gw_payload_bound(&p, n, &bound) == GW_OK &&
            gw_payload_bound(&p, SMALL, &small) == GW_OK) {
            b.bytes = std::max({b.bytes, bound, (small + 16) * SMALL_TENSORS});
        }
    }
    for (int s = 0; s < SETS; s++) {
        float **all[] = {&b.in[s], &b.residual[s], &b.after[s], &b.out[s]};
        for (int i = 0; i < 4; i++) {
            *all[i] = take<float>(n);
            fill<<<2048, 256, 0, stream>>>(*all[i], n, (uint32_t)(4 * s + i));
        }
        for (int r = 0; r < RANKS; r++) {
            b.payload[s][r] = take<uint8_t>(b.bytes);
        }
    }
    b.result = take<gw_cuda_result>(SETS * RANKS);
    must(cudaStreamSynchronize(stream), "buffers");
    return b;
}
} // namespace

int main(int argc, char **argv)
{
    size_t n = (size_t)64 << 20;
    std::vector<std::string> specs;
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "-n") == 0 && i + 1 < argc) {
            n = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "-r") == 0 && i + 1 < argc) {
            repeats = atoi(argv[++i]);
        } else if (strcmp(argv[i], "-p") == 0) {
            repeats = 1;
            warm_ups = 0;
        } else {
            specs.push_back(argv[i]);
        }
    }
    gw_why why = {""};
    if (argc < 2 || gw_cuda_open(argv[1], &cuda, &why) != GW_OK) {
        fprintf(stderr, "time: %s\n", argc < 2 ? "no library named" : why.text);
        return 2;
    }
    cudaDeviceProp device;
    must(cudaGetDeviceProperties(&device, 0), "device");
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    printf("%s, %d multiprocessors, L2 %d MiB; %zu elements of fp32, medians of %d\n", device.name,
           device.multiProcessorCount, device.l2CacheSize >> 20, n, repeats);
    buffers b = make_buffers(n, specs);
    printf("%-32s %-14s %-14s %-14s %-14s %s\n", "GB/s of fp32 input, and ratio", " encode",
           " with feedback", " decode-add", " sum of 8", "copy: memcpy, kernel GB/s");
    for (const std::string &spec : specs) {
        gw_params p;
        if (known(spec.c_str(), &p)) {
            time_spec(spec.c_str(), p, b);
        }
    }
    printf("\n%-32s %-26s %-26s %s\n", "microseconds, as graphs", " encode: one, 1000, ratio",
           " decode: one, 1000, ratio", "encode 1000, called");
    for (const std::string &spec : specs) {
        gw_params p;
        if (known(spec.c_str(), &p)) {
            time_small(spec.c_str(), p, b);
        }
    }
    return 0;
}
