/* Ops recorded as a CUDA graph: what goes to the compute stream between begin and end becomes its nodes, and replay is one
 * launch. The launchers allocate nothing and wait for nothing, so all of them can be recorded. Recording is of this thread
 * alone: the pager's goes on copying. */
#include "kernels/cuda/cuda_stream.h"

struct dfx_recording {
    cudaGraphExec_t exec; /* owned */
};

static dfx_cuda *cuda_of(dfx_backend *be) {
    return (dfx_cuda *)be;
}

dfx_status dfx_cuda_record_begin(dfx_backend *be) {
    dfx_cuda *cuda = cuda_of(be);
    return dfx_cuda_check(cuda,
                          cudaStreamBeginCapture(cuda->compute, cudaStreamCaptureModeThreadLocal),
                          "recording ops");
}

dfx_status dfx_cuda_record_end(dfx_backend *be, dfx_recording **out) {
    dfx_cuda *cuda = cuda_of(be);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec;
    static const char what[] = "recording ops";
    cudaError_t ended = cudaStreamEndCapture(cuda->compute, &graph);
    if (!out) {
        cudaGraphDestroy(graph);
        cudaGetLastError(); /* the op that failed has spoken */
        return DFX_OK;
    }
    DFX_TRY(dfx_cuda_check(cuda, ended, what));
    cudaError_t error = cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphDestroy(graph);
    if (error == cudaSuccess && (error = cudaGraphUpload(exec, cuda->compute)) != cudaSuccess)
        cudaGraphExecDestroy(exec);
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError(); /* the caller knows what to do */
        return DFX_E_NOFIT;
    }
    DFX_TRY(dfx_cuda_check(cuda, error, what));
    dfx_recording *recording;
    dfx_status status = dfx_new(be->sink, "recording", &recording);
    if (status != DFX_OK) {
        cudaGraphExecDestroy(exec);
        return status;
    }
    recording->exec = exec;
    *out = recording;
    return DFX_OK;
}

dfx_status dfx_cuda_replay(dfx_backend *be, dfx_recording *recording) {
    dfx_cuda *cuda = cuda_of(be);
    if (cuda->cancelled && cuda->cancelled(cuda->cancel_user))
        return DFX_E_CANCELLED;
    return dfx_cuda_check(cuda, cudaGraphLaunch(recording->exec, cuda->compute),
                          "launching recorded ops");
}

void dfx_cuda_recording_free(dfx_backend *be, dfx_recording *recording) {
    if (!recording)
        return;
    cudaGraphExecDestroy(recording->exec);
    dfx_free(recording);
}
