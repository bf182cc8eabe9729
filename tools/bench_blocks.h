/* FLUX blocks as a step runs them, one double and two single ones, which is FLUX.1's mix, in one number format and at one size:
 * the seconds that a profile is made from (tools/bench_fit.h). On a GPU they are FLUX.1-dev's own; on a processor narrower and shorter ones, as wide and
 * long as it does in time. */
#ifndef DFX_TOOLS_BENCH_BLOCKS_H
#define DFX_TOOLS_BENCH_BLOCKS_H

#include "quant/qformat.h"
#include "tools/bench_copies.h"
#include "tools/bench_fit.h"

typedef struct dfx_bench_size {
    int64_t n_heads, n_text, n_image; /* heads of 128; tokens */
} dfx_bench_size;

typedef struct dfx_bench_blocks {
    dfx_qformat format;
    dfx_bench_size size;
    dfx_program program;    /* owned */
    dfx_bench_sample whole; /* seconds of a pass */
    /* Only when asked for: of its parts, and of the whole beside copies, with the rate that these reach. */
    dfx_bench_sample attention, rest, beside;
    double copy_bytes_per_s;
} dfx_bench_blocks;

typedef struct dfx_bench_blocks_question {
    dfx_qformat format;
    dfx_bench_size size;
    double settle_seconds; /* how long whole passes go on before they are timed */
    bool parts;
    dfx_bench_copies *copies; /* NULL: not beside copies */
} dfx_bench_blocks_question;

/* The large size, for this device. The small one is a quarter of its pixels. Errors: those of a measurement. */
dfx_status dfx_bench_blocks_size(const dfx_bench_timer *timer, bool is_gpu, const dfx_sink *sink,
                                 dfx_bench_size *out);
dfx_bench_size dfx_bench_blocks_quarter(const dfx_bench_size *size);

/* Errors: DFX_E_NOFIT, DFX_E_DEVICE, DFX_E_CANCELLED. Close it, whatever this returns. */
dfx_status dfx_bench_blocks_run(const dfx_bench_timer *timer,
                                const dfx_bench_blocks_question *question, const dfx_sink *sink,
                                dfx_bench_blocks *out);
void dfx_bench_blocks_close(dfx_bench_blocks *blocks); /* zeroed is fine */

/* The medians. */
dfx_bench_pass dfx_bench_blocks_pass(const dfx_bench_blocks *blocks);

/* What a profile says of a whole step of FLUX.1-dev at 1024x1024 when everything stays on the device. */
dfx_status dfx_bench_flux_step(const dfx_profile *profile, dfx_dtype act_dtype, dfx_qformat format,
                               const dfx_sink *sink, double *seconds);

#endif
