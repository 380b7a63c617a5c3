/* libnccl and the CUDA driver, loaded when they are asked for. The driver, not CUDA's runtime: its file has one name
 * everywhere, its interface never changes, and NCCL needs it anyway. */
#include "base/why.h"
#include "comm/nccl_job.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef struct call {
    const char *name;
    size_t at; /* in gw_nccl */
} call;

#define CALL(name, arguments) {#name, offsetof(gw_nccl, name)},
static const call nccl_calls[] = {GW_NCCL_CALLS(CALL) CALL(ncclGetErrorString, )
                                      CALL(ncclGetLastError, )};
static const call cuda_calls[] = {GW_CUDA_CALLS(CALL)};
#undef CALL

static gw_status find_calls(gw_nccl *nccl, void *library, const char *file, const call *calls,
                            size_t n, gw_why *why)
{
    for (size_t i = 0; i < n; i++) {
        void *symbol = dlsym(library, calls[i].name);
        if (symbol == NULL) {
            return GW_FAIL(why, GW_ERR_VERSION, "%s has no %s: too old, or another library", file,
                           calls[i].name);
        }
        memcpy((char *)nccl + calls[i].at, &symbol, sizeof symbol);
    }
    return GW_OK;
}

/* Stays loaded: NCCL's threads may outlive a group, and a CUDA driver cannot be unloaded. */
static gw_status load(const char *file, void **library, gw_why *why)
{
    *library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    return *library != NULL ? GW_OK : GW_FAIL(why, GW_ERR_UNSUPPORTED, "no NCCL: %s", dlerror());
}

static gw_status load_cuda(gw_nccl *nccl, const char *file, gw_why *why)
{
    gw_status status = load(file, &nccl->cuda_library, why);
    if (status == GW_OK) {
        status = find_calls(nccl, nccl->cuda_library, file, cuda_calls,
                            sizeof cuda_calls / sizeof *cuda_calls, why);
    }
    if (status != GW_OK) {
        return status;
    }
    const int code = nccl->cuInit(0);
    const char *words = NULL;
    if (code != 0) {
        (void)nccl->cuGetErrorString(code, &words);
        return GW_FAIL(why, GW_ERR_UNSUPPORTED, "no CUDA device: %s",
                       words != NULL ? words : "an error without a name");
    }
    return GW_OK;
}

static gw_status load_nccl(gw_nccl *nccl, const char *file, gw_why *why)
{
    const gw_status status = load(file, &nccl->nccl_library, why);
    if (status != GW_OK) {
        return status;
    }
    /* first: "2.7 is too old" says more than the name of what it lacks */
    const gw_status found = find_calls(nccl, nccl->nccl_library, file, nccl_calls, 1, why);
    if (found != GW_OK) {
        return found;
    }
    if (nccl->ncclGetVersion(&nccl->version) != 0 || nccl->version < GW_NCCL_OLDEST) {
        const int v = nccl->version; /* before 2.9 a version was written in four digits */
        const int unit = v < 10000 ? 1000 : 10000;
        return GW_FAIL(why, GW_ERR_VERSION, "%s is NCCL %d.%d.%d; 2.18 is the oldest that will do",
                       file, v / unit, v % unit / 100, v % 100);
    }
    return find_calls(nccl, nccl->nccl_library, file, nccl_calls,
                      sizeof nccl_calls / sizeof *nccl_calls, why);
}

gw_status gw_nccl_open(const char *nccl_path, const char *cuda_path, gw_nccl **out, gw_why *why)
{
    if (out == NULL) {
        return GW_FAIL(why, GW_ERR_ARG, "gw_nccl_open: no place for the result");
    }
    gw_nccl *nccl = calloc(1, sizeof *nccl);
    if (nccl == NULL) {
        return GW_FAIL(why, GW_ERR_MEMORY, "no memory for NCCL's calls");
    }
    gw_status status = load_cuda(nccl, cuda_path != NULL ? cuda_path : "libcuda.so.1", why);
    if (status == GW_OK) {
        status = load_nccl(nccl, nccl_path != NULL ? nccl_path : "libnccl.so.2", why);
    }
    if (status != GW_OK) {
        gw_nccl_close(nccl);
        return status;
    }
    *out = nccl;
    return GW_OK;
}

void gw_nccl_close(gw_nccl *nccl)
{
    if (nccl == NULL) {
        return;
    }
    void *const libraries[] = {nccl->nccl_library, nccl->cuda_library};
    for (size_t i = 0; i < 2; i++) {
        if (libraries[i] != NULL) {
            (void)dlclose(libraries[i]);
        }
    }
    free(nccl);
}

int gw_nccl_version(const gw_nccl *nccl)
{
    return nccl != NULL ? nccl->version : 0;
}
