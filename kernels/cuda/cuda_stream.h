/* Order on the device: marks of visits and copies of pages as events on the two streams, ops recorded as graphs, and times. The
 * calls are those of dfx_backend_vtable. */
#ifndef DFX_KERNELS_CUDA_STREAM_H
#define DFX_KERNELS_CUDA_STREAM_H

#include "kernels/cuda/cuda_internal.h"

dfx_status dfx_cuda_copy_begin(dfx_backend *be, uint32_t copy, uint32_t after_visit,
                               void *dst_device, const void *src_pinned, size_t bytes);
dfx_status dfx_cuda_copy_wait(dfx_backend *be, uint32_t copy);
dfx_status dfx_cuda_copy_join(dfx_backend *be, uint32_t copy);
dfx_status dfx_cuda_copy_device(dfx_backend *be, void *dst_device, const void *src_device,
                                size_t bytes);
dfx_status dfx_cuda_download_begin(dfx_backend *be, void *dst_pinned, const void *src_device,
                                   size_t bytes);

dfx_status dfx_cuda_mark_begin(dfx_backend *be, uint32_t visit);
dfx_status dfx_cuda_mark(dfx_backend *be, uint32_t visit);
dfx_status dfx_cuda_wait_mark(dfx_backend *be, uint32_t visit);

/* NVTX */
void dfx_cuda_range_begin(dfx_backend *be, const char *name);
void dfx_cuda_range_end(dfx_backend *be);

dfx_status dfx_cuda_clock_sync(dfx_backend *be);
dfx_status dfx_cuda_visit_times(dfx_backend *be, uint32_t visit, dfx_times *out);
dfx_status dfx_cuda_copy_times(dfx_backend *be, uint32_t copy, dfx_times *out);

/* cuda_graph.c */
dfx_status dfx_cuda_record_begin(dfx_backend *be);
dfx_status dfx_cuda_record_end(dfx_backend *be, dfx_recording **out);
dfx_status dfx_cuda_replay(dfx_backend *be, dfx_recording *recording);
void dfx_cuda_recording_free(dfx_backend *be, dfx_recording *recording);

/* All events; fine when there are none. */
void dfx_cuda_stream_close(dfx_cuda *cuda);

#endif
