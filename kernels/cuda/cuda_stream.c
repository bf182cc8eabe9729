/* Two streams and the events between them. Ops, uploads and downloads go to `compute`, in the order of the calls; pages go to
 * `copy`. What one must have ended for the other to go on is an event that the stream waits for, not the host:
 *
 *   a page's place is free    mark(visit) records on compute, copy_begin makes copy wait for it
 *   a page is in its place    copy_begin records on copy, copy_join makes compute wait for it
 *
 * Events lie in two rings. A place in the ring of visits that a later visit has taken over says that one's end, which is later
 * still; a copy's place is its own until it has been waited for. Who records and who waits are different threads: the pager's
 * lock is between them. */
#include "kernels/cuda/cuda_stream.h"

#include <nvtx3/nvToolsExt.h>
#include <time.h>

static dfx_cuda *cuda_of(dfx_backend *be) {
    return (dfx_cuda *)be;
}

static dfx_status record(dfx_cuda *cuda, cudaEvent_t *event, cudaStream_t stream,
                         const char *what) {
    if (!*event)
        DFX_TRY(dfx_cuda_check(cuda, cudaEventCreateWithFlags(event, cudaEventBlockingSync), what));
    return dfx_cuda_check(cuda, cudaEventRecord(*event, stream), what);
}

static dfx_cuda_span *visit_of(dfx_cuda *cuda, uint32_t visit) {
    return &cuda->visits[visit % DFX_CUDA_VISITS];
}

static dfx_cuda_span *copy_of(dfx_cuda *cuda, uint32_t copy) {
    return &cuda->copies[copy % DFX_CUDA_COPIES];
}

dfx_status dfx_cuda_mark_begin(dfx_backend *be, uint32_t visit) {
    dfx_cuda *cuda = cuda_of(be);
    return record(cuda, &visit_of(cuda, visit)->begin, cuda->compute, "begin of a visit");
}

dfx_status dfx_cuda_mark(dfx_backend *be, uint32_t visit) {
    dfx_cuda *cuda = cuda_of(be);
    return record(cuda, &visit_of(cuda, visit)->end, cuda->compute, "mark of a visit");
}

dfx_status dfx_cuda_wait_mark(dfx_backend *be, uint32_t visit) {
    dfx_cuda *cuda = cuda_of(be);
    cudaEvent_t event = visit_of(cuda, visit)->end;
    if (!event) /* no such visit has been made: nothing to wait for */
        return DFX_OK;
    DFX_TRY(dfx_cuda_use(cuda));
    return dfx_cuda_check(cuda, cudaEventSynchronize(event), "ops of a visit");
}

dfx_status dfx_cuda_copy_begin(dfx_backend *be, uint32_t copy, uint32_t after_visit,
                               void *dst_device, const void *src_pinned, size_t bytes) {
    dfx_cuda *cuda = cuda_of(be);
    dfx_cuda_span *span = copy_of(cuda, copy);
    static const char what[] = "copy of a page";
    DFX_TRY(dfx_cuda_use(cuda));
    cudaEvent_t after = after_visit == DFX_NO_MARK ? NULL : visit_of(cuda, after_visit)->end;
    if (after)
        DFX_TRY(dfx_cuda_check(cuda, cudaStreamWaitEvent(cuda->copy, after, 0), what));
    DFX_TRY(record(cuda, &span->begin, cuda->copy, what));
    DFX_TRY(dfx_cuda_check(
        cuda, cudaMemcpyAsync(dst_device, src_pinned, bytes, cudaMemcpyHostToDevice, cuda->copy),
        what));
    return record(cuda, &span->end, cuda->copy, what);
}

dfx_status dfx_cuda_copy_wait(dfx_backend *be, uint32_t copy) {
    dfx_cuda *cuda = cuda_of(be);
    DFX_TRY(dfx_cuda_use(cuda));
    return dfx_cuda_check(cuda, cudaEventSynchronize(copy_of(cuda, copy)->end), "copy of a page");
}

dfx_status dfx_cuda_copy_join(dfx_backend *be, uint32_t copy) {
    dfx_cuda *cuda = cuda_of(be);
    return dfx_cuda_check(cuda, cudaStreamWaitEvent(cuda->compute, copy_of(cuda, copy)->end, 0),
                          "wait for a page");
}

dfx_status dfx_cuda_copy_device(dfx_backend *be, void *dst_device, const void *src_device,
                                size_t bytes) {
    dfx_cuda *cuda = cuda_of(be);
    return dfx_cuda_check(
        cuda,
        cudaMemcpyAsync(dst_device, src_device, bytes, cudaMemcpyDeviceToDevice, cuda->compute),
        "copy on the device");
}

dfx_status dfx_cuda_download_begin(dfx_backend *be, void *dst_pinned, const void *src_device,
                                   size_t bytes) {
    dfx_cuda *cuda = cuda_of(be);
    return dfx_cuda_check(
        cuda, cudaMemcpyAsync(dst_pinned, src_device, bytes, cudaMemcpyDeviceToHost, cuda->compute),
        "download");
}

void dfx_cuda_range_begin(dfx_backend *be, const char *name) {
    nvtxRangePushA(name);
}

void dfx_cuda_range_end(dfx_backend *be) {
    nvtxRangePop();
}

dfx_status dfx_cuda_clock_sync(dfx_backend *be) {
    dfx_cuda *cuda = cuda_of(be);
    struct timespec now;
    static const char what[] = "clock of the device";
    DFX_TRY(record(cuda, &cuda->clock, cuda->compute, what));
    DFX_TRY(dfx_cuda_check(cuda, cudaEventSynchronize(cuda->clock), what));
    clock_gettime(CLOCK_MONOTONIC, &now);
    cuda->clock_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    return DFX_OK;
}

static dfx_status times_of(dfx_cuda *cuda, const dfx_cuda_span *span, dfx_times *out) {
    float begin_ms, end_ms;
    static const char what[] = "times of the device";
    DFX_TRY(dfx_cuda_check(cuda, cudaEventElapsedTime(&begin_ms, cuda->clock, span->begin), what));
    DFX_TRY(dfx_cuda_check(cuda, cudaEventElapsedTime(&end_ms, cuda->clock, span->end), what));
    *out = (dfx_times){cuda->clock_ns + (int64_t)(1e6 * (double)begin_ms),
                       cuda->clock_ns + (int64_t)(1e6 * (double)end_ms)};
    return DFX_OK;
}

dfx_status dfx_cuda_visit_times(dfx_backend *be, uint32_t visit, dfx_times *out) {
    return times_of(cuda_of(be), visit_of(cuda_of(be), visit), out);
}

dfx_status dfx_cuda_copy_times(dfx_backend *be, uint32_t copy, dfx_times *out) {
    return times_of(cuda_of(be), copy_of(cuda_of(be), copy), out);
}

static void close_spans(dfx_cuda_span *spans, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (spans[i].begin)
            cudaEventDestroy(spans[i].begin);
        if (spans[i].end)
            cudaEventDestroy(spans[i].end);
        spans[i] = (dfx_cuda_span){0};
    }
}

void dfx_cuda_stream_close(dfx_cuda *cuda) {
    close_spans(cuda->visits, DFX_CUDA_VISITS);
    close_spans(cuda->copies, DFX_CUDA_COPIES);
    if (cuda->clock)
        cudaEventDestroy(cuda->clock);
    cuda->clock = NULL;
}
