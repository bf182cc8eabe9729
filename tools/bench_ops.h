/* Every op of a step, of T5 and of the VAE's decoder, timed alone at its own shape. Ops of one shape are one row. */
#ifndef DFX_TOOLS_BENCH_OPS_H
#define DFX_TOOLS_BENCH_OPS_H

#include "models/architecture.h"
#include "tools/bench_timer.h"

enum { DFX_BENCH_OP_TEXT = 128, DFX_BENCH_OPS_MAX = 256, DFX_BENCH_OP_KERNELS = 128 };

typedef struct dfx_bench_op {
    const char *program; /* string literal: "step", "t5", "decode" */
    dfx_op_kind kind;
    char text[DFX_BENCH_OP_TEXT];       /* "linear int8 4608x12288, K 3072, gelu" */
    char kernels[DFX_BENCH_OP_KERNELS]; /* backend.h; empty where there was no choice */
    uint32_t n_same;     /* ops of this shape in the program, all blocks and layers */
    double flops, bytes; /* as a plan counts them */
    double floor_s;      /* what the profile says */
    dfx_bench_sample seconds;
} dfx_bench_op;

typedef struct dfx_bench_ops {
    dfx_bench_op *ops; /* owned; [n_ops] */
    uint32_t n_ops;
} dfx_bench_ops;

typedef struct dfx_bench_ops_question {
    const dfx_architecture *architecture;
    dfx_qformat format;
    dfx_shape shape;
    bool attention_codes; /* of the denoiser, in 8 bits */
    const char *only;     /* a part of "program text"; NULL: all */
    const dfx_profile *profile;
} dfx_bench_ops_question;

/* A shape as one line, without its program. */
void dfx_bench_op_text(const dfx_op_call *call, char text[DFX_BENCH_OP_TEXT]);

/* Close it, whatever this returns. Errors: DFX_E_NOFIT, DFX_E_DEVICE, DFX_E_CANCELLED. */
dfx_status dfx_bench_ops_run(const dfx_bench_timer *timer, const dfx_bench_ops_question *question,
                             const dfx_sink *sink, dfx_bench_ops *out);
void dfx_bench_ops_close(dfx_bench_ops *ops); /* zeroed is fine */

#endif
