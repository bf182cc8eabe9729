/* From measured seconds to the rates of a profile, such that the planner's formula (offload/plan_trace.h) gives those seconds
 * back. Pure arithmetic.
 *
 * A pass over a program of FLUX blocks is products, attention, and the rest, which memory bounds. The rest alone gives the
 * rate of memory, attention alone its own; the rate of products is what the whole pass leaves for them: so a whole pass, with
 * whatever one op costs the next, is what is foretold, not a sum of ops in their best case. */
#ifndef DFX_TOOLS_BENCH_FIT_H
#define DFX_TOOLS_BENCH_FIT_H

#include "offload/profile.h"
#include "offload/program.h"

typedef enum dfx_bench_part {
    DFX_BENCH_PRODUCTS,
    DFX_BENCH_ATTENTION,
    DFX_BENCH_REST,
    DFX_BENCH_PARTS
} dfx_bench_part;

dfx_bench_part dfx_bench_part_of(dfx_op_kind kind);

/* Seconds of one pass. */
typedef struct dfx_bench_pass {
    const dfx_program *program; /* borrowed */
    double whole_s, attention_s, rest_s;
} dfx_bench_pass;

/* What the profile says of a part of a pass, or (DFX_BENCH_PARTS) of all of it. */
double dfx_bench_foretold(const dfx_program *program, const dfx_profile *profile,
                          dfx_bench_part part);

/* Wants launch_s; sets memory_bytes_per_s and attention_flops. */
void dfx_bench_fit_machine(const dfx_bench_pass *pass, dfx_profile *profile);

/* The share by which passes took longer beside copies: the mean of n pairs, or 0 where noise makes it less. */
double dfx_bench_fit_share(const double *alone_s, const double *beside_s, int n);

/* Wants what that one set, and the other rates that the program uses; *rate is the field of `profile` for its products. */
void dfx_bench_fit_products(const dfx_bench_pass *pass, dfx_profile *profile, double *rate);

#endif
