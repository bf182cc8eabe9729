/* See bf16_device.h. The vtable of a CPU backend is replaced by one that keeps the old one behind it; driver_bytes counts what
 * was allocated. */
#include "tests/bf16_device.h"

#include <stdlib.h>

struct dfx_recording {
    dfx_op_call *calls; /* owned */
    size_t n, cap;
};

typedef struct bf16_vtable {
    dfx_backend_vtable vt; /* first: backend->vt points here */
    const dfx_backend_vtable *cpu;
    dfx_recording *recording; /* owned; NULL: calls are run */
    uint64_t held_bytes, n_allocs;
    dfx_op_kind spoiled; /* DFX_N_OP_KINDS: none */
} bf16_vtable;

static bf16_vtable *own(const dfx_backend *be) {
    return (bf16_vtable *)be->vt;
}

static void *must_have(void *block) {
    if (!block)
        abort();
    return block;
}

static bool is_rounded(const dfx_op_call *call, int slot) {
    bool weight = dfx_op_info_of(call->kind)->weights >> slot & 1;
    return call->m[slot].rows && !weight && call->m[slot].dtype == DFX_DTYPE_BF16;
}

/* The call as the CPU takes it; operands without addresses. */
static dfx_op_call widened(const dfx_op_call *call) {
    dfx_op_call wide = *call;
    for (int slot = 0; slot < DFX_OP_SLOTS; slot++)
        if (is_rounded(call, slot))
            wide.m[slot] = (dfx_mat){.rows = call->m[slot].rows,
                                     .cols = call->m[slot].cols,
                                     .ld = (call->m[slot].cols + 3) / 4 * 4,
                                     .dtype = DFX_DTYPE_F32};
    return wide;
}

static dfx_status prepare(dfx_backend *be, const dfx_op_call *call) {
    const dfx_op_call wide = widened(call);
    return own(be)->cpu->prepare(be, &wide);
}

static void widen(const dfx_mat *from, dfx_mat *to) {
    size_t bytes = (size_t)(to->rows * to->ld) * sizeof(float);
    to->ptr = must_have(aligned_alloc(64, dfx_align_up(bytes, 64)));
    for (int64_t t = 0; t < to->rows; t++)
        dfx_to_f32(DFX_DTYPE_BF16, (const uint16_t *)from->ptr + t * from->ld,
                   (float *)to->ptr + t * to->ld, (size_t)to->cols);
}

static void spoil(dfx_mat *y) {
    for (int64_t i = 0; i < y->rows * y->ld; i++)
        ((float *)y->ptr)[i] *= 1.25f;
}

static dfx_status run(dfx_backend *be, const dfx_op_call *call) {
    dfx_recording *recording = own(be)->recording;
    if (recording) {
        DFX_TRY(dfx_grow(be->sink, recording->n + 1, sizeof(*recording->calls), "recording",
                         &recording->cap, (void **)&recording->calls));
        recording->calls[recording->n++] = *call;
        return DFX_OK;
    }
    dfx_op_call wide = widened(call);
    for (int slot = 0; slot < DFX_OP_SLOTS; slot++)
        if (is_rounded(call, slot))
            widen(&call->m[slot], &wide.m[slot]);
    dfx_status status = own(be)->cpu->run(be, &wide);
    const dfx_mat *y = &call->m[0];
    if (call->kind == own(be)->spoiled)
        spoil(&wide.m[0]);
    if (status == DFX_OK && is_rounded(call, 0))
        for (int64_t t = 0; t < y->rows; t++)
            dfx_from_f32(DFX_DTYPE_BF16, (const float *)wide.m[0].ptr + t * wide.m[0].ld,
                         (uint16_t *)y->ptr + t * y->ld, (size_t)y->cols);
    for (int slot = 0; slot < DFX_OP_SLOTS; slot++)
        if (is_rounded(call, slot))
            free(wide.m[slot].ptr);
    return status;
}

static void recording_free(dfx_backend *be, dfx_recording *recording) {
    if (!recording)
        return;
    dfx_free(recording->calls);
    free(recording);
}

static dfx_status record_begin(dfx_backend *be) {
    own(be)->recording = must_have(calloc(1, sizeof(dfx_recording)));
    return DFX_OK;
}

static dfx_status record_end(dfx_backend *be, dfx_recording **out) {
    dfx_recording *recording = own(be)->recording;
    own(be)->recording = NULL;
    if (out)
        *out = recording;
    else
        recording_free(be, recording);
    return DFX_OK;
}

static dfx_status replay(dfx_backend *be, dfx_recording *recording) {
    for (size_t i = 0; i < recording->n; i++)
        DFX_TRY(run(be, &recording->calls[i]));
    return DFX_OK;
}

static dfx_status counted_alloc(dfx_backend *be, size_t bytes, const char *tag, dfx_mem *out) {
    DFX_TRY(own(be)->cpu->alloc(be, bytes, tag, out));
    own(be)->held_bytes += out->bytes;
    own(be)->n_allocs++;
    return DFX_OK;
}

static void counted_free(dfx_backend *be, dfx_mem *mem) {
    own(be)->held_bytes -= mem->bytes;
    own(be)->cpu->free(be, mem);
}

static uint64_t driver_bytes(const dfx_backend *be) {
    return own(be)->held_bytes;
}

uint64_t bf16_device_n_allocs(dfx_backend *be) {
    return own(be)->n_allocs;
}

void bf16_device_spoil(dfx_backend *be, dfx_op_kind kind) {
    own(be)->spoiled = kind;
}

static void close_device(dfx_backend *be) {
    bf16_vtable *mine = own(be);
    mine->cpu->close(be);
    free(mine);
}

dfx_status bf16_device_open(int n_threads, const dfx_sink *sink, dfx_backend **out) {
    dfx_cpu_options options = {.n_threads = n_threads};
    DFX_TRY(dfx_cpu_backend_open(&options, sink, out));
    bf16_vtable *mine = must_have(calloc(1, sizeof(*mine)));
    mine->cpu = (*out)->vt;
    mine->vt = *mine->cpu;
    mine->spoiled = DFX_N_OP_KINDS;
    mine->vt.prepare = prepare;
    mine->vt.run = run;
    mine->vt.alloc = counted_alloc;
    mine->vt.free = counted_free;
    mine->vt.driver_bytes = driver_bytes;
    mine->vt.record_begin = record_begin;
    mine->vt.record_end = record_end;
    mine->vt.replay = replay;
    mine->vt.recording_free = recording_free;
    mine->vt.close = close_device;
    (*out)->vt = &mine->vt;
    (*out)->name = "bf16";
    (*out)->act_dtype = DFX_DTYPE_BF16;
    (*out)->host_visible = false;
    return DFX_OK;
}
