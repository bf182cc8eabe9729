/* A CUDA device as a backend: memory, and a switch from the kind of an op to its launcher.
 *
 * Ops, uploads and downloads go to the stream `compute`, in the order of the calls; what is beside it is in cuda_stream.c.
 *
 * The workspace is one block: what the greediest op wants, then what cuBLASLt wants. Ops run one after the other, so all use
 * it in turn. */
#include <limits.h>

#include "kernels/cuda/cuda_gemm.h"
#include "kernels/cuda/cuda_open.h"
#include "kernels/cuda/cuda_stream.h"

enum { PINNED_ALIGN = 4096, PART_ALIGN = 256 };

static dfx_cuda *cuda_of(dfx_backend *be) {
    return (dfx_cuda *)be;
}

static void free_workspace(dfx_cuda *cuda) {
    if (cuda->workspace)
        cudaFree(cuda->workspace);
    cuda->workspace = NULL;
    cuda->workspace_bytes = 0;
}

static void cuda_close(dfx_backend *be) {
    if (!be)
        return;
    dfx_cuda *cuda = cuda_of(be);
    dfx_cuda_close_device(cuda);
    free_workspace(cuda);
    dfx_free(cuda);
}

dfx_status dfx_cuda_use(const dfx_cuda *cuda) {
    return dfx_cuda_check(cuda, cudaSetDevice(cuda->device), "choosing the device");
}

static dfx_status cuda_alloc(dfx_backend *be, size_t bytes, const char *tag, dfx_mem *out) {
    void *ptr;
    DFX_TRY(dfx_cuda_use(cuda_of(be)));
    cudaError_t error = cudaMalloc(&ptr, bytes ? bytes : 1);
    if (error == cudaErrorMemoryAllocation) {
        size_t free_bytes = 0, all_bytes = 0;
        cudaGetLastError(); /* told here, and not by the next launch */
        cudaMemGetInfo(&free_bytes, &all_bytes);
        return dfx_fail(be->sink, DFX_E_NOFIT,
                        "cuda: %s wants %zu bytes, the device has %zu free of %zu; lower the "
                        "budget (--vram-budget) or end other programs that use the device",
                        tag, bytes, free_bytes, all_bytes);
    }
    DFX_TRY(dfx_cuda_check(cuda_of(be), error, tag));
    cuda_of(be)->n_allocs++;
    *out = (dfx_mem){ptr, bytes, DFX_SPACE_DEVICE, tag};
    return DFX_OK;
}

static void cuda_free(dfx_backend *be, dfx_mem *mem) {
    if (mem->ptr)
        cudaFree(mem->ptr);
    *mem = (dfx_mem){0};
}

/* Registering memory of ours, which is counted, takes a tenth of cudaMallocHost's time. */
static dfx_status cuda_pin(dfx_backend *be, void *ptr, size_t bytes) {
    DFX_TRY(dfx_cuda_use(cuda_of(be)));
    cudaError_t error = cudaHostRegister(ptr, bytes, cudaHostRegisterDefault);
    if (error == cudaSuccess)
        return DFX_OK;
    cudaGetLastError(); /* told here, and not by the next launch */
    if (error != cudaErrorMemoryAllocation)
        return dfx_cuda_check(cuda_of(be), error, "pinning memory");
    return dfx_fail(be->sink, DFX_E_NOFIT,
                    "cuda: the system does not pin %zu bytes more; lower the budget (--ram-budget)",
                    bytes);
}

static void cuda_unpin(dfx_backend *be, void *ptr, size_t bytes) {
    cudaHostUnregister(ptr);
}

static dfx_status cuda_pinned_alloc(dfx_backend *be, size_t bytes, const char *tag, dfx_mem *out) {
    size_t padded;
    if (!dfx_add_size(bytes ? bytes : 1, PINNED_ALIGN - 1, &padded))
        return dfx_fail(be->sink, DFX_E_NOFIT,
                        "cuda: %s wants %zu bytes, more than can be addressed", tag, bytes);
    padded = padded / PINNED_ALIGN * PINNED_ALIGN;
    DFX_TRY(dfx_mem_alloc_aligned(be->sink, padded, PINNED_ALIGN, tag, out));
    dfx_status status = cuda_pin(be, out->ptr, padded);
    if (status != DFX_OK) {
        dfx_mem_free(out);
        return status;
    }
    out->bytes = bytes;
    out->space = DFX_SPACE_PINNED;
    return DFX_OK;
}

static void cuda_pinned_free(dfx_backend *be, dfx_mem *mem) {
    if (mem->ptr)
        cuda_unpin(be, mem->ptr, mem->bytes);
    dfx_mem_free(mem);
}

/* The driver has taken a copy of pageable memory when the call returns, but reads pinned memory later. */
static dfx_status cuda_upload(dfx_backend *be, void *dst_device, const void *src_host,
                              size_t bytes) {
    dfx_cuda *cuda = cuda_of(be);
    struct cudaPointerAttributes attributes;
    static const char what[] = "upload";
    DFX_TRY(dfx_cuda_check(cuda, cudaPointerGetAttributes(&attributes, src_host), what));
    DFX_TRY(dfx_cuda_check(
        cuda, cudaMemcpyAsync(dst_device, src_host, bytes, cudaMemcpyHostToDevice, cuda->compute),
        what));
    if (attributes.type == cudaMemoryTypeUnregistered)
        return DFX_OK;
    return dfx_cuda_check(cuda, cudaStreamSynchronize(cuda->compute), what);
}

static dfx_status cuda_download(dfx_backend *be, void *dst_host, const void *src_device,
                                size_t bytes) {
    dfx_cuda *cuda = cuda_of(be);
    static const char what[] = "download";
    DFX_TRY(dfx_cuda_check(
        cuda, cudaMemcpyAsync(dst_host, src_device, bytes, cudaMemcpyDeviceToHost, cuda->compute),
        what));
    return dfx_cuda_check(cuda, cudaStreamSynchronize(cuda->compute), what);
}

static size_t workspace_of(const dfx_cuda *cuda, const dfx_op_call *call) {
    switch (call->kind) {
    case DFX_OP_LINEAR:
        return dfx_cuda_linear_workspace(cuda, call);
    case DFX_OP_CONV2D:
        return dfx_cuda_conv2d_workspace(cuda, call);
    case DFX_OP_ATTENTION:
    case DFX_OP_ATTENTION_CODES:
        return dfx_cuda_attend_workspace(cuda, call);
    case DFX_OP_GROUPNORM:
    case DFX_OP_GROUPNORM_STATS:
        return dfx_cuda_groupnorm_workspace(cuda, call);
    case DFX_OP_REL_DIFF:
        return dfx_cuda_rel_diff_workspace(cuda, call);
    default: /* the others work in their operands */
        return 0;
    }
}

/* Tables stay in f32, too. */
static bool wants_f32(dfx_op_kind kind, int slot) {
    return (kind == DFX_OP_QKNORM_ROPE && (slot == DFX_QKNORM_COS || slot == DFX_QKNORM_SIN)) ||
           dfx_op_wants_f32(kind, slot);
}

/* Launchers count rows and strides of one operand in int. */
static dfx_status check_operands(const dfx_backend *be, const dfx_op_call *call) {
    const dfx_op_info *info = dfx_op_info_of(call->kind);
    for (int slot = 0; slot < info->n_slots; slot++) {
        const dfx_mat *m = &call->m[slot];
        dfx_dtype wanted = wants_f32(call->kind, slot) ? DFX_DTYPE_F32 : DFX_DTYPE_BF16;
        bool weight = info->weights >> slot & 1;
        if (m->rows && !weight && !dfx_op_is_codes(call, slot) && m->dtype != wanted)
            return dfx_fail(be->sink, DFX_E_DEVICE, "cuda: op %s wants operand %d as %s, it is %s",
                            info->name, slot, dfx_dtype_name(wanted), dfx_dtype_name(m->dtype));
        if (m->ld > INT_MAX || m->rows > INT_MAX)
            return dfx_fail(be->sink, DFX_E_DEVICE,
                            "cuda: op %s wants rows and strides below 2^31, operand %d has %lld "
                            "rows of stride %lld",
                            info->name, slot, (long long)m->rows, (long long)m->ld);
    }
    return DFX_OK;
}

static dfx_status cuda_prepare(dfx_backend *be, const dfx_op_call *call) {
    dfx_cuda *cuda = cuda_of(be);
    DFX_TRY(dfx_op_check(call, be->sink));
    DFX_TRY(check_operands(be, call));
    if (call->kind == DFX_OP_LINEAR)
        DFX_TRY(dfx_cuda_linear_prepare(cuda, call));
    if (call->kind == DFX_OP_ATTENTION_CODES)
        DFX_TRY(dfx_cuda_attention_codes_prepare(cuda, call));
    size_t bytes = workspace_of(cuda, call);
    if (bytes > SIZE_MAX / 2)
        return dfx_fail(be->sink, DFX_E_NOFIT,
                        "cuda: scratch of op %s is more than can be addressed",
                        dfx_op_info_of(call->kind)->name);
    bytes = bytes ? dfx_align_up(bytes, PART_ALIGN) : PART_ALIGN; /* 0 means nothing prepared */
    if (bytes > cuda->wanted_bytes)
        cuda->wanted_bytes = bytes;
    return DFX_OK;
}

/* To be allocated. */
static size_t own_bytes(const dfx_cuda *cuda) {
    return cuda->wanted_bytes ? cuda->wanted_bytes + dfx_cuda_blas_workspace_bytes(cuda) : 0;
}

/* Of the budget, which is the whole process's. */
static size_t cuda_driver_reserve_bytes(const dfx_backend *be) {
    return dfx_cuda_context_bytes(&((const dfx_cuda *)be)->context);
}

static size_t cuda_workspace_bytes(const dfx_backend *be) {
    return own_bytes((const dfx_cuda *)be) + cuda_driver_reserve_bytes(be);
}

static uint64_t cuda_driver_bytes(const dfx_backend *be) {
    return dfx_cuda_context_held_bytes(&((const dfx_cuda *)be)->context);
}

static dfx_status cuda_workspace_alloc(dfx_backend *be) {
    dfx_cuda *cuda = cuda_of(be);
    dfx_mem block = {0};
    dfx_cuda_products_keep(cuda);
    free_workspace(cuda); /* first, so that the two are never held together */
    DFX_TRY(cuda_alloc(be, own_bytes(cuda), "workspace", &block));
    cuda->workspace = block.ptr;
    cuda->workspace_bytes = cuda->wanted_bytes;
    return DFX_OK;
}

static void cuda_workspace_free(dfx_backend *be) {
    dfx_cuda *cuda = cuda_of(be);
    free_workspace(cuda);
    cuda->wanted_bytes = 0;
}

static dfx_status launch(dfx_cuda *cuda, const dfx_op_call *call) {
    switch (call->kind) {
    case DFX_OP_LINEAR:
        return dfx_cuda_linear(cuda, call);
    case DFX_OP_LAYERNORM:
        return dfx_cuda_layernorm(cuda, call);
    case DFX_OP_QUANTIZE:
        return dfx_cuda_quantize(cuda, call);
    case DFX_OP_BOUND:
        return dfx_cuda_bound(cuda, call);
    case DFX_OP_RMSNORM:
        return dfx_cuda_rmsnorm(cuda, call);
    case DFX_OP_QKNORM_ROPE:
        return dfx_cuda_qknorm_rope(cuda, call);
    case DFX_OP_ATTENTION:
    case DFX_OP_ATTENTION_CODES:
        return dfx_cuda_attend(cuda, call);
    case DFX_OP_REL_BIAS:
        return dfx_cuda_rel_bias(cuda, call);
    case DFX_OP_ACT:
        return dfx_cuda_act(cuda, call);
    case DFX_OP_ACT_MUL:
        return dfx_cuda_act_mul(cuda, call);
    case DFX_OP_ADD:
        return dfx_cuda_add(cuda, call);
    case DFX_OP_AXPY:
        return dfx_cuda_axpy(cuda, call);
    case DFX_OP_REL_DIFF:
        return dfx_cuda_rel_diff(cuda, call);
    case DFX_OP_SINUSOID:
        return dfx_cuda_sinusoid(cuda, call);
    case DFX_OP_CONV2D:
        return dfx_cuda_conv2d(cuda, call);
    case DFX_OP_GROUPNORM:
        return dfx_cuda_groupnorm(cuda, call);
    case DFX_OP_GROUPNORM_STATS:
        return dfx_cuda_groupnorm_stats(cuda, call);
    case DFX_OP_UNPACK:
        return dfx_cuda_unpack(cuda, call);
    case DFX_OP_PACK:
        return dfx_cuda_pack(cuda, call);
    case DFX_OP_KV_CENTER:
        return dfx_cuda_kv_center(cuda, call);
    case DFX_OP_QK_CODES:
        return dfx_cuda_qk_codes(cuda, call);
    case DFX_OP_V_CODES:
        return dfx_cuda_v_codes(cuda, call);
    case DFX_N_OP_KINDS:
        break;
    }
    return dfx_fail(cuda->base.sink, DFX_E_INTERNAL, "cuda: wanted a kind of op below %d, found %u",
                    DFX_N_OP_KINDS, (unsigned)call->kind);
}

static dfx_status cuda_run(dfx_backend *be, const dfx_op_call *call) {
    dfx_cuda *cuda = cuda_of(be);
    if (cuda->cancelled && cuda->cancelled(cuda->cancel_user))
        return DFX_E_CANCELLED;
    if (!cuda->workspace || workspace_of(cuda, call) > cuda->workspace_bytes)
        return dfx_fail(be->sink, DFX_E_INTERNAL, "cuda: op %s was run without being prepared",
                        dfx_op_info_of(call->kind)->name);
    cuda->kernels[0] = '\0';
    return launch(cuda, call);
}

static const char *cuda_kernels(const dfx_backend *be) {
    return ((const dfx_cuda *)be)->kernels;
}

static void cuda_set_cancel(dfx_backend *be, bool (*cancelled)(void *user), void *user) {
    dfx_cuda *cuda = cuda_of(be);
    cuda->cancelled = cancelled;
    cuda->cancel_user = user;
}

dfx_status dfx_cuda_free_bytes(dfx_backend *be, uint64_t *bytes) {
    size_t free_bytes, all_bytes;
    DFX_TRY(
        dfx_cuda_check(cuda_of(be), cudaMemGetInfo(&free_bytes, &all_bytes), "asking for memory"));
    *bytes = free_bytes + dfx_cuda_context_bytes(&cuda_of(be)->context);
    return DFX_OK;
}

static const dfx_backend_vtable cuda_vtable = {
    .close = cuda_close,
    .describe = dfx_cuda_describe,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .upload = cuda_upload,
    .download = cuda_download,
    .pinned_alloc = cuda_pinned_alloc,
    .pinned_free = cuda_pinned_free,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .copy_begin = dfx_cuda_copy_begin,
    .copy_wait = dfx_cuda_copy_wait,
    .copy_join = dfx_cuda_copy_join,
    .copy_device = dfx_cuda_copy_device,
    .download_begin = dfx_cuda_download_begin,
    .prepare = cuda_prepare,
    .workspace_bytes = cuda_workspace_bytes,
    .driver_reserve_bytes = cuda_driver_reserve_bytes,
    .driver_bytes = cuda_driver_bytes,
    .workspace_alloc = cuda_workspace_alloc,
    .workspace_free = cuda_workspace_free,
    .run = cuda_run,
    .record_begin = dfx_cuda_record_begin,
    .record_end = dfx_cuda_record_end,
    .replay = dfx_cuda_replay,
    .recording_free = dfx_cuda_recording_free,
    .range_begin = dfx_cuda_range_begin,
    .range_end = dfx_cuda_range_end,
    .mark_begin = dfx_cuda_mark_begin,
    .mark = dfx_cuda_mark,
    .wait_mark = dfx_cuda_wait_mark,
    .clock_sync = dfx_cuda_clock_sync,
    .visit_times = dfx_cuda_visit_times,
    .copy_times = dfx_cuda_copy_times,
    .kernels = cuda_kernels,
    .set_cancel = cuda_set_cancel,
};

dfx_status dfx_cuda_backend_open(const dfx_cuda_options *options, const dfx_sink *sink,
                                 dfx_backend **out) {
    dfx_cuda *cuda;
    DFX_TRY(dfx_new(sink, "cuda backend", &cuda));
    cuda->base = (dfx_backend){
        .vt = &cuda_vtable, .name = "cuda", .act_dtype = DFX_DTYPE_BF16, .sink = sink};
    cuda->device = options->device;
    cuda->budget_bytes = options->budget_bytes;
    cuda->cache_folder = options->cache_folder;
    dfx_status status = dfx_cuda_open_device(cuda);
    if (status != DFX_OK) {
        cuda_close(&cuda->base);
        return status;
    }
    *out = &cuda->base;
    return DFX_OK;
}
