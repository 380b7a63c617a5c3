/* Running codecs; see exec.h. */
#include "cli/exec.h"

#include <stdlib.h>

#include "cli/say.h"

bool gw_cli_exec_open(gw_isa isa, unsigned threads, gw_exec *out)
{
    gw_exec exec = {.isa = isa};
    if (isa != GW_ISA_AUTO && !gw_isa_runs_here(isa)) {
        gw_cli_error("this processor does not run %s", gw_isa_name(isa));
        return false;
    }
    if (threads > 1) {
        gw_status status = gw_pool_create(threads, &exec.pool);
        if (status != GW_OK) {
            gw_cli_error("%u threads: %s", threads, gw_status_string(status));
            return false;
        }
    }
    *out = exec;
    return true;
}

bool gw_cli_exec_fit(gw_exec *exec, const gw_params *params, gw_dtype dtype, uint64_t count,
                     bool feedback)
{
    if (exec->isa != GW_ISA_AUTO && !gw_codec_has_isa(params->codec, exec->isa)) {
        gw_cli_error("codec %s has no variant for %s in this build", gw_codec_name(params->codec),
                     gw_isa_name(exec->isa));
        return false;
    }
    size_t bytes = 0;
    gw_status status = gw_codec_workspace(params, dtype, (size_t)count, feedback,
                                          gw_pool_threads(exec->pool), &bytes);
    if (status != GW_OK) {
        gw_cli_error("workspace of codec %s: %s", gw_codec_name(params->codec),
                     gw_status_string(status));
        return false;
    }
    if (bytes > exec->workspace.size) {
        bytes = (bytes + 63) / 64 * 64;
        free(exec->workspace.data);
        exec->workspace.data = aligned_alloc(64, bytes);
        exec->workspace.size = exec->workspace.data ? bytes : 0;
        if (!exec->workspace.data) {
            gw_cli_out_of_memory();
            return false;
        }
    }
    return true;
}

void gw_cli_exec_close(gw_exec *exec)
{
    gw_pool_destroy(exec->pool);
    free(exec->workspace.data);
    *exec = (gw_exec){0};
}
