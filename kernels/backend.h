/* The device contract: memory, transfers and the running of ops. A backend has never heard of models, pages or files.
 *
 *     dfx_backend *be;
 *     DFX_TRY(dfx_cpu_backend_open(&(dfx_cpu_options){.n_threads = 2}, sink, &be));
 *     DFX_TRY(be->vt->alloc(be, bytes, "activations", &mem));
 *     DFX_TRY(be->vt->run(be, &call));
 *     be->vt->free(be, &mem);
 *     be->vt->close(be);
 *
 * Order: ops and uploads take effect in the order of the calls, as on one stream; download waits for what was begun
 * before it. A failed call leaves the backend usable for free and close. One thread, the executor's. */
#ifndef DFX_KERNELS_BACKEND_H
#define DFX_KERNELS_BACKEND_H

#include "core/mem.h"
#include "kernels/ops.h"

typedef struct dfx_backend dfx_backend;

typedef struct dfx_backend_vtable {
    void (*close)(dfx_backend *be);

    /* Device memory, 256-byte aligned, contents undefined. Errors: DFX_E_NOFIT. */
    dfx_status (*alloc)(dfx_backend *be, size_t bytes, const char *tag, dfx_mem *out);
    void (*free)(dfx_backend *be, dfx_mem *mem);

    /* Host <-> device, `bytes` bytes. */
    dfx_status (*upload)(dfx_backend *be, void *dst_device, const void *src_host, size_t bytes);
    dfx_status (*download)(dfx_backend *be, void *dst_host, const void *src_device, size_t bytes);

    /* Host memory that the device can copy from at full speed and that direct reads may fill: 4096-byte aligned.
     * Errors: DFX_E_NOFIT. Any thread. */
    dfx_status (*pinned_alloc)(dfx_backend *be, size_t bytes, const char *tag, dfx_mem *out);
    void (*pinned_free)(dfx_backend *be, dfx_mem *mem);

    /* A page from pinned memory to the device, beside the running of ops: from the pager's thread, one at a time. The place
     * is not in use until it returns. Errors: DFX_E_DEVICE. */
    dfx_status (*copy_page)(dfx_backend *be, void *dst_device, const void *src_pinned,
                            size_t bytes);

    /* Count the scratch that the op will want; nothing is allocated. Every call a program holds is announced before it
     * is run. Errors: DFX_E_NOFIT (more than can be addressed), DFX_E_DEVICE (an op or dtype it cannot do). */
    dfx_status (*prepare)(dfx_backend *be, const dfx_op_call *call);

    /* Bytes that the backend takes for itself after what was prepared since the last workspace_free; on a GPU with what the
     * driver takes for the process. While no other memory of the backend is held. */
    size_t (*workspace_bytes)(const dfx_backend *be);

    /* Hold them, so that no run allocates. Errors: DFX_E_NOFIT. */
    dfx_status (*workspace_alloc)(dfx_backend *be);
    /* Give them back and forget what was prepared; fine when there is none. */
    void (*workspace_free)(dfx_backend *be);

    /* Errors: DFX_E_CANCELLED when the cancel function said so; DFX_E_DEVICE. */
    dfx_status (*run)(dfx_backend *be, const dfx_op_call *call);

    /* `mark`: all ops so far belong to visits up to `visit`. wait_mark: blocks the caller, the feed's copying thread, until
     * they have ended. Backends that run ops to their end before run returns do nothing. */
    dfx_status (*mark)(dfx_backend *be, uint32_t visit);
    dfx_status (*wait_mark)(dfx_backend *be, uint32_t visit);

    /* Polled during run; NULL turns it off. */
    void (*set_cancel)(dfx_backend *be, bool (*cancelled)(void *user), void *user);
} dfx_backend_vtable;

struct dfx_backend {
    const dfx_backend_vtable *vt;
    const char *name;     /* "cpu" */
    dfx_dtype act_dtype;  /* of activations */
    bool host_visible;    /* the host may read and write device memory directly */
    const dfx_sink *sink; /* borrowed */
};

/* The CPU backend: obvious loops, OpenBLAS under the products, activations in f32. The oracle for every other one.
 * Results do not depend on the number of threads. n_threads <= 0: one for each usable core. */
typedef struct dfx_cpu_options {
    int n_threads;
} dfx_cpu_options;

dfx_status dfx_cpu_backend_open(const dfx_cpu_options *options, const dfx_sink *sink,
                                dfx_backend **out);

/* The CUDA backend (kernels/cuda/, where there is nvcc): activations in BF16, cuBLASLt and own kernels. Ops and uploads are
 * queued on one stream; nothing waits but download, wait_mark and close.
 * Errors: DFX_E_DEVICE in one sentence: no driver, driver too old, no such device, libraries missing. */
typedef struct dfx_cuda_options {
    int device; /* index */
    uint64_t
        budget_bytes; /* what the process may hold there, also while algorithms are tried; 0: no bound */
    /* Where the algorithms that were chosen are kept for the next process; borrowed for the call. NULL: nowhere. */
    const char *cache_folder;
} dfx_cuda_options;

dfx_status dfx_cuda_backend_open(const dfx_cuda_options *options, const dfx_sink *sink,
                                 dfx_backend **out);

/* What the device has free now, bytes. */
dfx_status dfx_cuda_free_bytes(dfx_backend *be, uint64_t *bytes);

#endif
