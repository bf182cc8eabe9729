/* Program: one stage of the pipeline as data. Ops in order, the buffers they name, the weights they read, and the pages
 * those weights live in. Built by a model through offload/builder.h, immutable afterwards, run by offload/executor.h.
 *
 *   buffer  a matrix with a place: TEMP (in the activation block, placed by liveness), EXTERN (its address is bound at
 *           each run: inputs, outputs, state that outlives the run), WEIGHT (in a page), ADAPTER (in the adapter block, which
 *           outlives runs and is written between them)
 *   ref     a rectangle of a buffer: what an op names
 *   page    all weights of one block, contiguous; the unit that moves. An op reads weights of one page at the most.
 *   adapter what is added to a linear layer beside its weights: y += (x A^T) u^T, A [rank, k] and u [n, rank] in the adapter
 *           block. Zeros add nothing.
 *   region  the longest run of ops that wants no other page. Ops without weights belong to the region before them, the
 *           first ones to the first region. */
#ifndef DFX_OFFLOAD_PROGRAM_H
#define DFX_OFFLOAD_PROGRAM_H

#include "core/arena.h"
#include "core/safetensors.h"
#include "kernels/ops.h"

enum { DFX_NO_PAGE = UINT32_MAX, DFX_PAGE_ALIGN = 64, DFX_ACT_ALIGN = 256 };

/* Zeroed: absent. */
typedef struct dfx_ref {
    uint32_t buf; /* 0: absent */
    int64_t row0, rows, col0, cols;
} dfx_ref;

static inline bool dfx_ref_same(const dfx_ref *a, const dfx_ref *b) {
    return a->buf == b->buf && a->row0 == b->row0 && a->rows == b->rows && a->col0 == b->col0 &&
           a->cols == b->cols;
}

/* Whether a is some rows of b, or all. */
static inline bool dfx_ref_rows_of(const dfx_ref *a, const dfx_ref *b) {
    return a->buf == b->buf && a->col0 == b->col0 && a->cols == b->cols && b->row0 <= a->row0 &&
           a->row0 + a->rows <= b->row0 + b->rows;
}

typedef enum dfx_buf_kind {
    DFX_BUF_TEMP,
    DFX_BUF_EXTERN,
    DFX_BUF_WEIGHT,
    DFX_BUF_ADAPTER
} dfx_buf_kind;

typedef struct dfx_buf {
    dfx_buf_kind kind;
    dfx_dtype dtype;
    int64_t rows, cols;
    size_t bytes;
    uint32_t idx;               /* EXTERN: into the bindings; WEIGHT: into weights */
    uint32_t first_op, last_op; /* TEMP: lifetime, both ends included */
    size_t off;                 /* TEMP: in the activation block; ADAPTER: in the adapter block */
} dfx_buf;

typedef struct dfx_weight {
    const char *name; /* in arena */
    const dfx_tensor *
        tensor; /* borrowed from the component's tensors; NULL when built from the architecture alone */
    dfx_dtype dtype;
    uint32_t page_idx;
    size_t off, bytes; /* in the page */
} dfx_weight;

typedef struct dfx_page {
    const char *name; /* in arena, e.g. "transformer_blocks.0" */
    uint32_t first_weight, n_weights;
    size_t bytes;
    bool keep; /* shall always be on the device */
} dfx_page;

typedef struct dfx_op {
    dfx_op_kind kind;
    const char
        *label; /* in arena: the block and the weight, e.g. "transformer_blocks.0.attn.to_q" */
    dfx_ref r[DFX_OP_SLOTS];
    dfx_op_params p;
    uint32_t page_idx; /* DFX_NO_PAGE: reads no weight */
} dfx_op;

/* A [rank, k] is rows [a_row, a_row + rank) of a_buf, u [n, rank] all of u_buf; both of the activation type. */
typedef struct dfx_adapter {
    const char *layer; /* in arena: "transformer_blocks.0.attn.to_q" */
    int64_t n, k;
    uint32_t a_buf, u_buf;
    int64_t a_row;
    /* Where the program was built with adapter_scales and the layer's weight has scales: [1, n] F32 in the adapter block, by which
     * the layer is computed instead of those of its page. Whoever fills the block begins with a copy of them. 0: none. */
    uint32_t scale_buf;
    uint32_t weight_idx, scale_idx; /* of the weight and its scales, into weights */
} dfx_adapter;

typedef struct dfx_region {
    uint32_t page_idx, first_op, end_op;
} dfx_region;

typedef struct dfx_extern {
    const char *name; /* in arena */
    uint32_t buf;
} dfx_extern;

typedef struct dfx_program {
    const char *name;           /* string literal: "clip", "t5", ... */
    const dfx_tensors *tensors; /* borrowed: where the pages are read from */
    dfx_arena arena;            /* owns everything below */
    dfx_buf *bufs;              /* [n_bufs]; 0 is not used */
    dfx_weight *weights;
    dfx_page *pages;
    dfx_op *ops;
    dfx_region *regions; /* in order: every op is in one; a page may have several */
    dfx_extern *externs;
    dfx_adapter *adapters;
    uint32_t n_bufs, n_weights, n_pages, n_ops, n_regions, n_externs, n_adapters;
    int64_t adapter_rank; /* of each */
    size_t act_bytes;     /* of the activation block */
    size_t adapter_bytes; /* of the adapter block */
    size_t page_bytes;    /* of all pages */
    size_t page_bytes_max;
} dfx_program;

bool dfx_op_names(const dfx_op *op, uint32_t buf);

void dfx_program_fini(dfx_program *program); /* zeroed program is fine */

/* The call of op `op_idx` without addresses: shapes, types and parameters. */
void dfx_program_call(const dfx_program *program, uint32_t op_idx, dfx_op_call *out);

#endif
