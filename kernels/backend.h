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
typedef struct dfx_recording dfx_recording; /* of the backend that made it */

typedef struct dfx_times {
    int64_t begin_ns, end_ns;
} dfx_times;

/* DFX_RECORDINGS_MAX: regions of some ten ops, which driver_reserve_bytes has room for. */
enum { DFX_NO_MARK = UINT32_MAX, DFX_COPIES_AHEAD = 4, DFX_RECORDINGS_MAX = 1500 };

/* What a device is: for the choice of a machine profile, and for reports. */
enum { DFX_DEVICE_TEXT = 96 };
typedef struct dfx_device_facts {
    char name[DFX_DEVICE_TEXT];   /* "NVIDIA H200"; of a processor with the threads that are used */
    char driver[DFX_DEVICE_TEXT]; /* "580.159, CUDA 13.0"; "" where there is none */
    int sm;                       /* compute capability, 90 is 9.0; 0: no GPU */
    bool has_fp8;                 /* products of F8_E4M3 run faster than widened ones, or as fast */
    bool unified;                 /* its memory is the host's, and pages are read into it */
    double stated_bytes_per_s;    /* of its memory, by clock and width; 0: not known */
    uint64_t device_bytes;        /* of its memory; of a processor half of the RAM, for the arena */
    uint64_t context_bytes;       /* of it, taken by the driver for this process */
    int core_mhz, memory_mhz;     /* now; 0: nobody tells */
} dfx_device_facts;

typedef struct dfx_backend_vtable {
    void (*close)(dfx_backend *be);

    /* While no other memory of the backend is held. */
    void (*describe)(const dfx_backend *be, dfx_device_facts *out);

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

    /* The same for part of a block of core/mem.h: [ptr, ptr + bytes), both multiples of 4096. To be undone before the block
     * is freed. Errors: DFX_E_NOFIT. Any thread. */
    dfx_status (*pin)(dfx_backend *be, void *ptr, size_t bytes);
    void (*unpin)(dfx_backend *be, void *ptr, size_t bytes);

    /* Pages, from pinned memory to the device, beside the running of ops. Copies are made one after the other, in the order
     * of the calls; the caller numbers them, each one more than the one before. A copy begins when the ops up to the mark of
     * `after_visit` have ended (DFX_NO_MARK: at once). At most DFX_COPIES_AHEAD may be begun and not yet waited for. From
     * the pager's thread. Errors: DFX_E_DEVICE. */
    dfx_status (*copy_begin)(dfx_backend *be, uint32_t copy, uint32_t after_visit, void *dst_device,
                             const void *src_pinned, size_t bytes);
    /* Blocks until the copy has ended: what it was copied from may be written over. The same thread. */
    dfx_status (*copy_wait)(dfx_backend *be, uint32_t copy);
    /* Ops that are run from here on begin when the copy, one of those not yet waited for, has ended. Does not block. */
    dfx_status (*copy_join)(dfx_backend *be, uint32_t copy);

    /* Device to device, and device to pinned memory, in the order of the ops; what came is there when a later mark has been
     * waited for. */
    dfx_status (*copy_device)(dfx_backend *be, void *dst_device, const void *src_device,
                              size_t bytes);
    dfx_status (*download_begin)(dfx_backend *be, void *dst_pinned, const void *src_device,
                                 size_t bytes);

    /* Count the scratch that the op will want; nothing is allocated. Every call a program holds is announced before it
     * is run. Errors: DFX_E_NOFIT (more than can be addressed), DFX_E_DEVICE (an op or dtype it cannot do). */
    dfx_status (*prepare)(dfx_backend *be, const dfx_op_call *call);

    /* Bytes that the backend takes for itself after what was prepared since the last workspace_free; on a GPU with what the
     * driver takes for the process. While no other memory of the backend is held. */
    size_t (*workspace_bytes)(const dfx_backend *be);

    /* Of workspace_bytes, what the driver takes and will take: context, libraries, kernels that are loaded when they are
     * first run, recordings. */
    size_t (*driver_reserve_bytes)(const dfx_backend *be);

    /* What the device's driver counts for this process now, all included; another process that took or gave back memory since
     * the backend was opened is counted in or out. 0: nobody knows. */
    uint64_t (*driver_bytes)(const dfx_backend *be);

    /* Hold them, so that no run allocates. Errors: DFX_E_NOFIT. */
    dfx_status (*workspace_alloc)(dfx_backend *be);
    /* Give them back and forget what was prepared; fine when there is none. */
    void (*workspace_free)(dfx_backend *be);

    /* Errors: DFX_E_CANCELLED when the cancel function said so; DFX_E_DEVICE. */
    dfx_status (*run)(dfx_backend *be, const dfx_op_call *call);

    /* Ops between record_begin and record_end are kept, not run; replay runs them again, with the addresses they had, as one
     * launch. NULL where running op by op costs nothing. */
    dfx_status (*record_begin)(dfx_backend *be);
    /* out NULL: abandon it. DFX_E_NOFIT, without a word: the device has no memory for it. */
    dfx_status (*record_end)(dfx_backend *be, dfx_recording **out);
    dfx_status (*replay)(dfx_backend *be, dfx_recording *recording);
    void (*recording_free)(dfx_backend *be, dfx_recording *recording); /* NULL is fine */

    /* What a profiler shows around the calls between them. NULL where there is none. */
    void (*range_begin)(dfx_backend *be, const char *name);
    void (*range_end)(dfx_backend *be);

    /* mark_begin: the ops of `visit` begin here. mark: they end here. wait_mark: blocks the caller, of any thread, until they
     * have ended. Backends that run ops to their end before run returns do nothing. */
    dfx_status (*mark_begin)(dfx_backend *be, uint32_t visit);
    dfx_status (*mark)(dfx_backend *be, uint32_t visit);
    dfx_status (*wait_mark)(dfx_backend *be, uint32_t visit);

    /* When the device did what has been waited for, ns of CLOCK_MONOTONIC; not long after: only the last thousands of
     * visits and the last DFX_COPIES_AHEAD copies are known. clock_sync, once before a picture, lays the device's clock
     * beside the host's. NULL where the host's clock around the calls says it. */
    dfx_status (*clock_sync)(dfx_backend *be);
    dfx_status (*visit_times)(dfx_backend *be, uint32_t visit, dfx_times *out);
    dfx_status (*copy_times)(dfx_backend *be, uint32_t copy, dfx_times *out);

    /* What the last op that ran was given to, in words, such as "wgmma 128x192 by turns, clusters of 2"; empty where there is but
     * one way. NULL: for no op there are several. */
    const char *(*kernels)(const dfx_backend *be);

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
