/* What checks of the CUDA backend share: one call on two backends, the CPU's in F32 and CUDA's in BF16, from the same values.
 *
 *     if (pair_begin(p, DFX_OP_ADD, "[%d, %d]", 5, 7)) {
 *         pair_act(p, DFX_BIN_A, 5, 7, 8, 1.0f);
 *         pair_act(p, DFX_BIN_B, 5, 7, 8, 1.0f);
 *         pair_out(p, 5, 7, 8);
 *         pair_end(p, PAIR_ROUNDED);
 *     }
 *
 * Activations are BF16 values, so both sides see the same numbers; weights are the same bytes. Outputs start out as NaN, also
 * between the columns and the next row, so that a value that is left out shows, and one that is written there. */
#ifndef DFX_TESTS_CUDA_PAIR_H
#define DFX_TESTS_CUDA_PAIR_H

#include "kernels/cuda/cuda_internal.h"

/* Bounds of ||cuda - cpu|| / ||cpu||. BF16 keeps 8 bits, so one rounding moves a value by at most 2^-8 = 3.9e-3 of itself
 * (1.7e-3 root mean square over all mantissas); sums in F32 differ by some 1e-6 between the sides. */
#define PAIR_SAME 0.0       /* values are only moved */
#define PAIR_ROUNDED 4.1e-3 /* one rounding, the output's */
#define PAIR_TWICE 6e-3     /* an intermediate in BF16 too: sqrt(2) 3.9e-3 = 5.5e-3 */
#define PAIR_ATTENTION 1e-2 /* probabilities, whose maximum may still move, and the output */
#define PAIR_ATTENTION_CODES \
    5e-2 /* weights are E4M3 on the straight line between powers of two: 6 % of one at most, 3.2 % root mean square */
#define PAIR_ATTENTION_F16 \
    PAIR_ROUNDED /* weights are F16, and so may sums of 64 keys be: 2^-12 of those, four times */
#define PAIR_FP8 \
    8e-3 /* the output, and sums of e4m3 products, which Hopper keeps to 14 bits or so */

enum { PAIR_TEXT = 160 };

typedef struct pair {
    dfx_backend *cpu, *cuda;
    bool timing;
    const char *only; /* part of the names of the cases to run; NULL: all */
    int n_passed, n_failed, n_skipped;
    /* The case in hand. Set params before pair_end, and `kernel` where not what the backend chooses is to run. */
    dfx_op_params params;
    dfx_status (*kernel)(dfx_cuda *cuda, const dfx_op_call *call);
    dfx_op_call on_cpu, on_cuda;
    dfx_mem cpu_mem[DFX_OP_SLOTS], cuda_mem[DFX_OP_SLOTS]; /* owned until pair_end */
    uint64_t seed;
    char name[PAIR_TEXT];
} pair;

/* Whether the case is wanted; counts it as skipped when it is not. */
bool pair_begin(pair *p, dfx_op_kind kind, const char *fmt, ...) DFX_PRINTF(3, 4);

/* An activation with values in [-range, range). */
void pair_act(pair *p, int slot, int64_t rows, int64_t cols, int64_t ld, float range);
/* An operand that is F32 on both sides: values in [low, high). */
void pair_f32(pair *p, int slot, int64_t rows, int64_t cols, float low, float high);
/* A weight; of I8 all codes but -128, else values in [-range, range) rounded to the type. */
void pair_weight(pair *p, int slot, dfx_dtype dtype, int64_t rows, int64_t cols, float range);
void pair_out(pair *p, int64_t rows, int64_t cols, int64_t ld);
/* The output is the operand in `slot`, or its first columns, of which the others are to stay. F32 outputs are pair_f32 with
 * NaN for bounds. */
void pair_out_is(pair *p, int slot);
void pair_out_in(pair *p, int slot, int64_t cols);

/* Codes and the scales of their rows, if they are made too, for pair_end_codes. */
void pair_out_codes(pair *p, dfx_dtype dtype, int64_t rows, int64_t cols, int scale_slot);

/* Instead of an end: the case is not for this device. */
void pair_leave(pair *p);

/* For checks of their own: an operand of CUDA's as it lies there, gaps too; what the call leaves in y; and an end that says how it
 * went. free() by the caller. */
void *pair_download(pair *p, int slot);
void *pair_run(pair *p);
void pair_verdict(pair *p, bool ok, const char *fmt, ...) DFX_PRINTF(3, 4);

/* Run on both sides, compare, print a line, time when that is wanted. Gives the operands back. */
void pair_end(pair *p, double tolerance);
/* The same; and all values taken together are as great as the CPU's but for `factor`: errors are not to one side. */
void pair_end_factor(pair *p, double tolerance, double factor);
/* The same; every value within one unit in the last place of BF16 of the CPU's. */
void pair_end_ulp(pair *p);
/* Every code within so many steps of the CPU's (0: the same bytes), scales within 1e-5 (0: the same); slot 0: no scales. */
void pair_end_codes(pair *p, int most_steps, int scale_slot);
/* CUDA alone: the first rows of the output are the same bits however many rows there are, up to those of the operands. */
void pair_end_rows(pair *p, const int *n_rows, int n);

#endif
