/* The CPU as a backend: host memory, one scratch block, and a switch from the kind of an op to its function.
 *
 * Prepare counts scratch and workspace_alloc takes it; a run that would need more is a fault of the caller. Calls run to their
 * end before run returns, so order is kept and download has nothing to wait for. */
#include "kernels/cpu/cpu_internal.h"

#include <limits.h>
#include <string.h>

enum { DEVICE_ALIGN = 256, PINNED_ALIGN = 4096, SCRATCH_ALIGN = 64 };

static dfx_cpu *cpu_of(dfx_backend *be) {
    return (dfx_cpu *)be;
}

void *dfx_cpu_worker_scratch(const dfx_cpu *cpu, int worker) {
    return (char *)cpu->scratch.ptr + (size_t)worker * cpu->worker_scratch_bytes;
}

void *dfx_cpu_shared_scratch(const dfx_cpu *cpu) {
    return dfx_cpu_worker_scratch(cpu, dfx_pool_n_threads(cpu->pool));
}

static void cpu_close(dfx_backend *be) {
    if (!be)
        return;
    dfx_cpu *cpu = cpu_of(be);
    dfx_mem_free(&cpu->scratch);
    dfx_pool_close(cpu->pool);
    dfx_free(cpu);
}

static dfx_status cpu_alloc(dfx_backend *be, size_t bytes, const char *tag, dfx_mem *out) {
    return dfx_mem_alloc_aligned(be->sink, bytes, DEVICE_ALIGN, tag, out);
}

static dfx_status cpu_pinned_alloc(dfx_backend *be, size_t bytes, const char *tag, dfx_mem *out) {
    return dfx_mem_alloc_aligned(be->sink, bytes, PINNED_ALIGN, tag, out);
}

static void cpu_free(dfx_backend *be, dfx_mem *mem) {
    dfx_mem_free(mem);
}

static dfx_status cpu_pin(dfx_backend *be, void *ptr, size_t bytes) {
    return DFX_OK;
}

static void cpu_unpin(dfx_backend *be, void *ptr, size_t bytes) {}

static dfx_status cpu_copy_in(dfx_backend *be, void *dst_device, const void *src_host,
                              size_t bytes) {
    memcpy(dst_device, src_host, bytes);
    return DFX_OK;
}

static dfx_status cpu_copy_out(dfx_backend *be, void *dst_host, const void *src_device,
                               size_t bytes) {
    memcpy(dst_host, src_device, bytes);
    return DFX_OK;
}

/* A LINEAR of codes. By rows, not ptr: prepare may see operands that have no address yet. */
static bool is_scaled(const dfx_op_call *call) {
    return call->m[DFX_LINEAR_SCALE].rows != 0 || dfx_op_is_codes(call, DFX_LINEAR_X);
}

static dfx_cpu_scratch_need scratch_of(const dfx_op_call *call) {
    dfx_cpu_scratch_need need = {0};
    switch (call->kind) {
    case DFX_OP_LINEAR:
        need = is_scaled(call) ? dfx_cpu_linear_q_scratch(call) : dfx_cpu_linear_scratch(call);
        break;
    case DFX_OP_CONV2D:
        need = dfx_cpu_conv2d_scratch(call);
        break;
    case DFX_OP_ATTENTION:
        need = dfx_cpu_attention_scratch(call);
        break;
    case DFX_OP_KV_CENTER:
    case DFX_OP_QK_CODES:
        need = dfx_cpu_qkv_codes_scratch(call);
        break;
    case DFX_OP_ATTENTION_CODES:
        need = dfx_cpu_attention_codes_scratch(call);
        break;
    case DFX_OP_LAYERNORM:
    case DFX_OP_RMSNORM:
    case DFX_OP_GROUPNORM:
    case DFX_OP_GROUPNORM_STATS:
    case DFX_OP_QKNORM_ROPE:
        need = dfx_cpu_norm_scratch(call);
        break;
    case DFX_OP_ACT_MUL:
        need = dfx_cpu_act_mul_scratch(call);
        break;
    case DFX_OP_REL_DIFF:
        need = dfx_cpu_rel_diff_scratch(call);
        break;
    default: /* the others work in their operands */
        break;
    }
    need.worker_bytes = dfx_align_up(need.worker_bytes, SCRATCH_ALIGN);
    need.shared_bytes = dfx_align_up(need.shared_bytes, SCRATCH_ALIGN);
    return need;
}

/* Activations are f32 here, and sgemm counts columns and strides in int. */
static dfx_status check_operands(dfx_backend *be, const dfx_op_call *call) {
    const dfx_op_info *info = dfx_op_info_of(call->kind);
    for (int slot = 0; slot < info->n_slots; slot++) {
        const dfx_mat *m = &call->m[slot];
        bool weight = info->weights >> slot & 1;
        if (m->rows && !weight && !dfx_op_is_codes(call, slot) && m->dtype != DFX_DTYPE_F32)
            return dfx_fail(be->sink, DFX_E_DEVICE,
                            "cpu: op %s wants F32 activations, operand %d is %s", info->name, slot,
                            dfx_dtype_name(m->dtype));
        if (m->ld > INT_MAX || m->rows > INT_MAX)
            return dfx_fail(be->sink, DFX_E_DEVICE,
                            "cpu: op %s wants rows and strides below 2^31, operand %d has %lld "
                            "rows of stride %lld",
                            info->name, slot, (long long)m->rows, (long long)m->ld);
    }
    return DFX_OK;
}

static size_t greater(size_t a, size_t b) {
    return a > b ? a : b;
}

static dfx_status cpu_prepare(dfx_backend *be, const dfx_op_call *call) {
    dfx_cpu *cpu = cpu_of(be);
    DFX_TRY(dfx_op_check(call, be->sink));
    DFX_TRY(check_operands(be, call));
    dfx_cpu_scratch_need need = scratch_of(call);
    need.worker_bytes = greater(need.worker_bytes, cpu->wanted.worker_bytes);
    need.shared_bytes = greater(need.shared_bytes, cpu->wanted.shared_bytes);
    size_t bytes, n_threads = (size_t)dfx_pool_n_threads(cpu->pool);
    if (!dfx_mul_size(need.worker_bytes, n_threads, &bytes) ||
        !dfx_add_size(bytes, need.shared_bytes, &bytes))
        return dfx_fail(be->sink, DFX_E_NOFIT,
                        "cpu: scratch of op %s is more than can be addressed",
                        dfx_op_info_of(call->kind)->name);
    cpu->wanted = need;
    return DFX_OK;
}

static size_t cpu_workspace_bytes(const dfx_backend *be) {
    const dfx_cpu *cpu = (const dfx_cpu *)be;
    return cpu->wanted.worker_bytes * (size_t)dfx_pool_n_threads(cpu->pool) +
           cpu->wanted.shared_bytes;
}

static void free_scratch(dfx_cpu *cpu) {
    dfx_mem_free(&cpu->scratch);
    cpu->worker_scratch_bytes = cpu->shared_scratch_bytes = 0;
}

/* Memory of the host, which others count. */
static uint64_t cpu_driver_bytes(const dfx_backend *be) {
    return 0;
}

static size_t cpu_driver_reserve_bytes(const dfx_backend *be) {
    return 0;
}

static dfx_status cpu_workspace_alloc(dfx_backend *be) {
    dfx_cpu *cpu = cpu_of(be);
    free_scratch(cpu); /* first, so that the two are never held together */
    DFX_TRY(dfx_mem_alloc(be->sink, cpu_workspace_bytes(be), "cpu scratch", &cpu->scratch));
    cpu->worker_scratch_bytes = cpu->wanted.worker_bytes;
    cpu->shared_scratch_bytes = cpu->wanted.shared_bytes;
    return DFX_OK;
}

static void cpu_workspace_free(dfx_backend *be) {
    dfx_cpu *cpu = cpu_of(be);
    free_scratch(cpu);
    cpu->wanted = (dfx_cpu_scratch_need){0};
}

static dfx_status cpu_run(dfx_backend *be, const dfx_op_call *call) {
    dfx_cpu *cpu = cpu_of(be);
    dfx_cpu_scratch_need need = scratch_of(call);
    if (need.worker_bytes > cpu->worker_scratch_bytes ||
        need.shared_bytes > cpu->shared_scratch_bytes)
        return dfx_fail(be->sink, DFX_E_INTERNAL, "cpu: op %s was run without being prepared",
                        dfx_op_info_of(call->kind)->name);
    switch (call->kind) {
    case DFX_OP_LINEAR:
        return is_scaled(call) ? dfx_cpu_linear_q(cpu, call) : dfx_cpu_linear(cpu, call);
    case DFX_OP_LAYERNORM:
        return dfx_cpu_layernorm(cpu, call);
    case DFX_OP_QUANTIZE:
        return dfx_cpu_quantize(cpu, call);
    case DFX_OP_BOUND:
        return dfx_cpu_bound(cpu, call);
    case DFX_OP_RMSNORM:
        return dfx_cpu_rmsnorm(cpu, call);
    case DFX_OP_QKNORM_ROPE:
        return dfx_cpu_qknorm_rope(cpu, call);
    case DFX_OP_ATTENTION:
        return dfx_cpu_attention(cpu, call);
    case DFX_OP_KV_CENTER:
        return dfx_cpu_kv_center(cpu, call);
    case DFX_OP_QK_CODES:
        return dfx_cpu_qk_codes(cpu, call);
    case DFX_OP_V_CODES:
        return dfx_cpu_v_codes(cpu, call);
    case DFX_OP_ATTENTION_CODES:
        return dfx_cpu_attention_codes(cpu, call);
    case DFX_OP_REL_BIAS:
        return dfx_cpu_rel_bias(cpu, call);
    case DFX_OP_ACT:
        return dfx_cpu_act_op(cpu, call);
    case DFX_OP_ACT_MUL:
        return dfx_cpu_act_mul(cpu, call);
    case DFX_OP_ADD:
        return dfx_cpu_add(cpu, call);
    case DFX_OP_AXPY:
        return dfx_cpu_axpy(cpu, call);
    case DFX_OP_REL_DIFF:
        return dfx_cpu_rel_diff(cpu, call);
    case DFX_OP_SINUSOID:
        return dfx_cpu_sinusoid(cpu, call);
    case DFX_OP_CONV2D:
        return dfx_cpu_conv2d(cpu, call);
    case DFX_OP_GROUPNORM:
        return dfx_cpu_groupnorm(cpu, call);
    case DFX_OP_GROUPNORM_STATS:
        return dfx_cpu_groupnorm_stats(cpu, call);
    case DFX_OP_UNPACK:
        return dfx_cpu_unpack(cpu, call);
    case DFX_OP_PACK:
        return dfx_cpu_pack(cpu, call);
    case DFX_N_OP_KINDS:
        break;
    }
    return dfx_fail(be->sink, DFX_E_INTERNAL, "cpu: wanted a kind of op below %d, found %u",
                    DFX_N_OP_KINDS, (unsigned)call->kind);
}

/* `after_visit` has ended when the caller knows of its end. */
static dfx_status cpu_copy_begin(dfx_backend *be, uint32_t copy, uint32_t after_visit,
                                 void *dst_device, const void *src_pinned, size_t bytes) {
    memcpy(dst_device, src_pinned, bytes);
    return DFX_OK;
}

/* Ops and copies have ended when their calls return. */
static dfx_status cpu_ended(dfx_backend *be, uint32_t visit_or_copy) {
    return DFX_OK;
}

static void cpu_set_cancel(dfx_backend *be, bool (*cancelled)(void *user), void *user) {
    dfx_pool_set_cancel(cpu_of(be)->pool, cancelled, user);
}

static const dfx_backend_vtable cpu_vtable = {
    .close = cpu_close,
    .describe = dfx_cpu_describe,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = cpu_copy_in,
    .download = cpu_copy_out,
    .pinned_alloc = cpu_pinned_alloc,
    .pinned_free = cpu_free,
    .pin = cpu_pin,
    .unpin = cpu_unpin,
    .copy_begin = cpu_copy_begin,
    .copy_wait = cpu_ended,
    .copy_join = cpu_ended,
    .copy_device = cpu_copy_in,
    .download_begin = cpu_copy_out,
    .prepare = cpu_prepare,
    .workspace_bytes = cpu_workspace_bytes,
    .driver_reserve_bytes = cpu_driver_reserve_bytes,
    .driver_bytes = cpu_driver_bytes,
    .workspace_alloc = cpu_workspace_alloc,
    .workspace_free = cpu_workspace_free,
    .run = cpu_run,
    .mark_begin = cpu_ended,
    .mark = cpu_ended,
    .wait_mark = cpu_ended,
    .set_cancel = cpu_set_cancel,
};

dfx_status dfx_cpu_backend_open(const dfx_cpu_options *options, const dfx_sink *sink,
                                dfx_backend **out) {
    dfx_cpu *cpu;
    DFX_TRY(dfx_new(sink, "cpu backend", &cpu));
    dfx_status status = dfx_cpu_blas_open(sink, &cpu->blas);
    if (status == DFX_OK)
        status = dfx_pool_open(sink, options->n_threads, &cpu->pool);
    if (status != DFX_OK) {
        dfx_free(cpu);
        return status;
    }
    cpu->base = (dfx_backend){.vt = &cpu_vtable,
                              .name = "cpu",
                              .act_dtype = DFX_DTYPE_F32,
                              .host_visible = true,
                              .sink = sink};
    *out = &cpu->base;
    return DFX_OK;
}
