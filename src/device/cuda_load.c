/* libgradwire_cuda, loaded when it is asked for, and everything about a call that can be checked without a device. */
#include "base/why.h"
#include "codec/cuda/cuda_impl.h"

#include <dlfcn.h>
#include <stdlib.h>

static gw_status find_table(void *library, const char *name, const gw_cuda_table **out, gw_why *why)
{
    const gw_cuda_table *table = dlsym(library, GW_CUDA_TABLE_SYMBOL);
    if (table == NULL) {
        return GW_FAIL(why, GW_ERR_VERSION, "%s is not a libgradwire_cuda: it has no %s", name,
                       GW_CUDA_TABLE_SYMBOL);
    }
    if (table->version != GW_CUDA_TABLE_VERSION) {
        return GW_FAIL(why, GW_ERR_VERSION, "%s is of version %u, not %u", name,
                       (unsigned)table->version, GW_CUDA_TABLE_VERSION);
    }
    *out = table;
    return table->probe(why);
}

gw_status gw_cuda_open(const char *path, gw_cuda **out, gw_why *why)
{
    const char *name = path != NULL ? path : "libgradwire_cuda.so";
    if (out == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "no place for the result");
    }
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        return GW_FAIL(why, GW_ERR_UNSUPPORTED, "no CUDA: %s", dlerror());
    }
    const gw_cuda_table *table = NULL;
    gw_status status = find_table(library, name, &table, why);
    gw_cuda *cuda = status == GW_OK ? malloc(sizeof *cuda) : NULL;
    if (cuda == NULL) {
        (void)dlclose(library);
        return status != GW_OK ? status : GW_FAIL(why, GW_ERR_MEMORY, "out of memory");
    }
    *cuda = (gw_cuda){library, table};
    *out = cuda;
    return GW_OK;
}

void gw_cuda_close(gw_cuda *cuda)
{
    if (cuda != NULL) {
        (void)dlclose(cuda->library);
        free(cuda);
    }
}

int gw_cuda_has(const gw_cuda *cuda, const gw_codec *codec)
{
    return cuda != NULL && codec != NULL && cuda->table->find(gw_codec_id(codec)) != NULL;
}

static gw_status find_codec(const gw_cuda *cuda, const gw_params *params,
                            const gw_cuda_codec **codec, gw_why *why)
{
    if (cuda == NULL || params == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "%s",
                       cuda == NULL ? "no CUDA library was opened" : "no params");
    }
    const gw_status status = gw_params_check(params, why);
    if (status != GW_OK) {
        return status;
    }
    *codec = cuda->table->find(gw_codec_id(params->codec));
    if (*codec == NULL) {
        return GW_FAIL(why, GW_ERR_UNSUPPORTED, "%s has no CUDA side",
                       gw_codec_name(params->codec));
    }
    return GW_OK;
}

gw_status gw_cuda_workspace(const gw_cuda *cuda, const gw_params *params, gw_dtype dtype,
                            const size_t *counts, size_t n, int feedback, size_t *bytes)
{
    const gw_cuda_codec *codec = NULL;
    const gw_status status = find_codec(cuda, params, &codec, NULL);
    if (status != GW_OK) {
        return status;
    }
    if (gw_dtype_size(dtype) == 0 || (counts == NULL && n != 0) || bytes == NULL) {
        return GW_ERR_ARG;
    }
    size_t total = 0;
    for (size_t i = 0; codec->workspace != NULL && i < n; i++) {
        if (counts[i] > SIZE_MAX / 64) {
            return GW_ERR_RANGE;
        }
        total += gw_cuda_aligned(codec->workspace(params->value, dtype, counts[i], feedback));
    }
    *bytes = total;
    return GW_OK;
}

/* Only codecs that select leave something due, and these take no longer tensors. */
static size_t due_of(const gw_cuda_codec *codec, const gw_params *params, size_t count)
{
    return codec->due_bytes != NULL && count <= UINT32_MAX ? codec->due_bytes(params->value, count)
                                                           : 0;
}

gw_status gw_cuda_due_bytes(const gw_cuda *cuda, const gw_params *params, size_t count,
                            size_t *bytes)
{
    const gw_cuda_codec *codec = NULL;
    const gw_status status = find_codec(cuda, params, &codec, NULL);
    if (status != GW_OK) {
        return status;
    }
    if (bytes == NULL) {
        return GW_ERR_ARG;
    }
    if (count > SIZE_MAX / 64) {
        return GW_ERR_RANGE;
    }
    *bytes = due_of(codec, params, count);
    return GW_OK;
}

/* Tensors that one call of a codec's own takes; longer lists go in parts, so that sizes need no allocation. */
enum { AT_ONCE = 512 };

/* A call over `n` tensors of up to AT_ONCE; `take` brings its counts. */
typedef struct part {
    const gw_cuda_codec *codec;
    gw_cuda_call call;
    size_t bytes[AT_ONCE];
} part;

static gw_status check_tensor(const gw_tensor *t, gw_dtype dtype, const gw_cuda_result *result)
{
    const size_t width = gw_dtype_size(t->dtype);
    return width == 0 || t->dtype != dtype || t->count > SIZE_MAX / 64 || result == NULL ||
                   (t->data == NULL && t->count != 0) || (uintptr_t)t->data % width != 0
               ? GW_ERR_ARG
               : GW_OK;
}

static gw_status check_source(const gw_params *params, const gw_cuda_source *s,
                              const gw_cuda_source *first, size_t *bytes)
{
    if ((s->due == NULL) != (s->due_after == NULL) ||
        (s->due != NULL && (s->due == s->due_after || s->residual == NULL ||
                            ((uintptr_t)s->due | (uintptr_t)s->due_after) % 256 != 0))) {
        return GW_ERR_ARG;
    }
    const size_t grain = gw_codec_grain(params);
    if (check_tensor(&s->in, first->in.dtype, s->result) != GW_OK ||
        (s->residual == NULL) != (s->residual_after == NULL) ||
        (s->residual != NULL && s->residual == s->residual_after && s->in.count != 0) ||
        (s->residual == NULL) != (first->residual == NULL)) {
        return GW_ERR_ARG;
    }
    if (s->key.first != 0 && (grain == 0 || s->key.first % grain != 0)) {
        return GW_ERR_RANGE;
    }
    if (grain == 0 && s->in.count > UINT32_MAX) {
        return GW_ERR_UNSUPPORTED;
    }
    const gw_status status = gw_payload_bound(params, s->in.count, bytes);
    if (status != GW_OK) {
        return status;
    }
    return *bytes > s->capacity                ? GW_ERR_CAPACITY
           : s->payload == NULL && *bytes != 0 ? GW_ERR_ARG
                                               : GW_OK;
}

static gw_status check_sink(const gw_params *params, const gw_cuda_sink *s,
                            const gw_cuda_sink *first, size_t *bytes)
{
    if (check_tensor(&s->out, first->out.dtype, s->result) != GW_OK || s->payloads == NULL ||
        s->n_payloads == 0 || s->n_payloads > GW_CUDA_MAX_PAYLOADS || s->divisor == 0 ||
        (s->how != GW_SET && s->how != GW_ADD) || s->how != first->how ||
        s->divisor != first->divisor || s->n_payloads != first->n_payloads) {
        return GW_ERR_ARG;
    }
    if (gw_codec_grain(params) == 0 && s->out.count > UINT32_MAX) {
        return GW_ERR_UNSUPPORTED;
    }
    const gw_status status = gw_payload_bound(params, s->out.count, bytes);
    if (status != GW_OK) {
        return status;
    }
    const int fixed = (gw_params_flags(params) & GW_CODEC_FIXED_SIZE) != 0;
    for (size_t i = 0; i < s->n_payloads; i++) {
        const gw_cuda_payload *p = &s->payloads[i];
        if (p->bytes == NULL && *bytes != 0) {
            return GW_ERR_ARG;
        }
        if (fixed && p->size < *bytes) {
            return GW_ERR_TRUNCATED;
        }
        if (fixed && p->size_there == NULL && p->size > *bytes) {
            return GW_ERR_CORRUPT;
        }
    }
    return GW_OK;
}

static gw_status prepare(part *p, const gw_cuda *cuda, void *stream, const gw_params *params,
                         const void *tensors, size_t n, gw_workspace workspace, gw_why *why)
{
    if (tensors == NULL && n != 0) {
        return GW_FAIL(why, GW_ERR_ARG, "no tensors");
    }
    if (workspace.data == NULL ? workspace.size != 0 : (uintptr_t)workspace.data % 256 != 0) {
        return GW_FAIL(why, GW_ERR_ARG, "the workspace is not aligned to 256 bytes");
    }
    p->call = (gw_cuda_call){.stream = stream,
                             .value = params != NULL ? params->value : NULL,
                             .bytes = p->bytes,
                             .workspace = workspace};
    const gw_status status = find_codec(cuda, params, &p->codec, why);
    p->call.grain = status == GW_OK ? gw_codec_grain(params) : 0;
    return status;
}

static size_t need_of(const part *p, const gw_params *params, size_t count)
{
    return p->codec->workspace == NULL
               ? 0
               : gw_cuda_aligned(
                     p->codec->workspace(params->value, p->call.dtype, count, p->call.feedback));
}

static gw_status say(gw_why *why, gw_status status, size_t index)
{
    return status == GW_OK
               ? GW_OK
               : gw_fail(why, status, "tensor %zu: %s", index, gw_status_string(status));
}

static gw_status check_room(size_t need, gw_workspace workspace, gw_why *why)
{
    return need <= workspace.size
               ? GW_OK
               : GW_FAIL(why, GW_ERR_WORKSPACE, "the workspace has %zu bytes, not %zu",
                         workspace.size, need);
}

/* What a tensor took of the workspace is not for the next call's. */
static void step_over(part *p, const gw_params *params, uint64_t count)
{
    const size_t used = need_of(p, params, count);
    if (used != 0) {
        p->call.workspace.data = (uint8_t *)p->call.workspace.data + used;
        p->call.workspace.size -= used;
    }
}

/* Of the tensors that can leave something due, all do what the first does; *seen counts them. */
static gw_status check_due(part *p, const gw_params *params, const gw_cuda_source *s, size_t *seen)
{
    const int owes = s->due != NULL;
    if (due_of(p->codec, params, s->in.count) == 0) {
        return owes ? GW_ERR_ARG : GW_OK;
    }
    p->call.due = (*seen)++ == 0 ? owes : p->call.due;
    return owes == p->call.due ? GW_OK : GW_ERR_ARG;
}

gw_status gw_cuda_encode(const gw_cuda *cuda, void *stream, const gw_params *params,
                         const gw_cuda_source *tensors, size_t n, gw_workspace workspace,
                         gw_why *why)
{
    part p;
    gw_status status = prepare(&p, cuda, stream, params, tensors, n, workspace, why);
    size_t need = 0, may_owe = 0;
    for (size_t i = 0; status == GW_OK && i < n; i++) {
        p.call.dtype = tensors->in.dtype;
        p.call.feedback = tensors->residual != NULL;
        status = say(why, check_source(params, &tensors[i], tensors, &p.bytes[0]), i);
        status =
            status == GW_OK ? say(why, check_due(&p, params, &tensors[i], &may_owe), i) : status;
        need += status == GW_OK ? need_of(&p, params, tensors[i].in.count) : 0;
    }
    status = status == GW_OK ? check_room(need, workspace, why) : status;
    for (size_t i = 0; status == GW_OK && i < n; i += AT_ONCE) {
        const size_t m = n - i < AT_ONCE ? n - i : AT_ONCE;
        for (size_t j = 0; j < m; j++) {
            (void)gw_payload_bound(params, tensors[i + j].in.count, &p.bytes[j]);
        }
        status = p.codec->encode(&p.call, tensors + i, m, why);
        for (size_t j = 0; j < m; j++) {
            step_over(&p, params, tensors[i + j].in.count);
        }
    }
    return status;
}

gw_status gw_cuda_decode(const gw_cuda *cuda, void *stream, const gw_params *params,
                         const gw_cuda_sink *tensors, size_t n, gw_workspace workspace, gw_why *why)
{
    part p;
    gw_status status = prepare(&p, cuda, stream, params, tensors, n, workspace, why);
    size_t need = 0;
    for (size_t i = 0; status == GW_OK && i < n; i++) {
        p.call.dtype = tensors->out.dtype;
        status = say(why, check_sink(params, &tensors[i], tensors, &p.bytes[0]), i);
        need += status == GW_OK ? need_of(&p, params, tensors[i].out.count) : 0;
    }
    status = status == GW_OK ? check_room(need, workspace, why) : status;
    for (size_t i = 0; status == GW_OK && i < n; i += AT_ONCE) {
        const size_t m = n - i < AT_ONCE ? n - i : AT_ONCE;
        for (size_t j = 0; j < m; j++) {
            (void)gw_payload_bound(params, tensors[i + j].out.count, &p.bytes[j]);
        }
        status = p.codec->decode(&p.call, tensors + i, m, why);
        for (size_t j = 0; j < m; j++) {
            step_over(&p, params, tensors[i + j].out.count);
        }
    }
    return status;
}

gw_status gw_cuda_settle(const gw_cuda *cuda, void *stream, const gw_params *params,
                         const gw_cuda_debt *debts, size_t n, gw_why *why)
{
    part p;
    const gw_status status = prepare(&p, cuda, stream, params, debts, n, (gw_workspace){0}, why);
    for (size_t i = 0; status == GW_OK && i < n; i++) {
        const gw_cuda_debt *d = &debts[i];
        if (due_of(p.codec, params, d->count) == 0 || d->residual == NULL || d->due == NULL ||
            (uintptr_t)d->residual % sizeof(float) != 0 || (uintptr_t)d->due % 256 != 0) {
            return say(why, GW_ERR_ARG, i);
        }
    }
    return status == GW_OK && n != 0 ? p.codec->settle(&p.call, debts, n, why) : status;
}
