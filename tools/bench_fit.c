#include "tools/bench_fit.h"

#include <math.h>

#include "offload/plan_trace.h"

/* Rates between which one is looked for: a calculator's and one that no machine has. */
static const double RATE_LEAST = 1e3, RATE_MOST = 1e21;

/* Of a pass, for products: less is left only where a busy machine took longer for the parts than for the whole. */
static const double LEAST_SHARE = 0.05;

dfx_bench_part dfx_bench_part_of(dfx_op_kind kind) {
    return kind == DFX_OP_LINEAR      ? DFX_BENCH_PRODUCTS
           : kind == DFX_OP_ATTENTION ? DFX_BENCH_ATTENTION
                                      : DFX_BENCH_REST;
}

double dfx_bench_foretold(const dfx_program *program, const dfx_profile *profile,
                          dfx_bench_part part) {
    double seconds = 0;
    for (uint32_t i = 0; i < program->n_ops; i++) {
        dfx_op_call call;
        if (part != DFX_BENCH_PARTS && dfx_bench_part_of(program->ops[i].kind) != part)
            continue;
        dfx_program_call(program, i, &call);
        seconds += dfx_trace_op_seconds(&call, profile);
    }
    return seconds;
}

/* The rate at which the part takes that long. What is foretold falls as the rate rises, but not below what launches and the
 * other bound take: then every rate is as good, and the search ends at the highest. */
static void find_rate(const dfx_program *program, dfx_bench_part part, double seconds,
                      const dfx_profile *profile, double *rate) {
    double low = RATE_LEAST, high = RATE_MOST;
    for (int i = 0; i < 200 && high > low * (1 + 1e-12); i++) {
        *rate = sqrt(low * high);
        if (dfx_bench_foretold(program, profile, part) > seconds)
            low = *rate;
        else
            high = *rate;
    }
}

void dfx_bench_fit_machine(const dfx_bench_pass *pass, dfx_profile *profile) {
    profile->bf16_flops = RATE_MOST; /* not the bound of what is fitted here */
    find_rate(pass->program, DFX_BENCH_REST, pass->rest_s, profile, &profile->memory_bytes_per_s);
    find_rate(pass->program, DFX_BENCH_ATTENTION, pass->attention_s, profile,
              &profile->attention_flops);
}

double dfx_bench_fit_share(const double *alone_s, const double *beside_s, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += beside_s[i] / alone_s[i] - 1;
    return n > 0 ? fmax(sum / n, 0) : 0;
}

void dfx_bench_fit_products(const dfx_bench_pass *pass, dfx_profile *profile, double *rate) {
    double others = dfx_bench_foretold(pass->program, profile, DFX_BENCH_ATTENTION) +
                    dfx_bench_foretold(pass->program, profile, DFX_BENCH_REST);
    find_rate(pass->program, DFX_BENCH_PRODUCTS,
              fmax(pass->whole_s - others, LEAST_SHARE * pass->whole_s), profile, rate);
}
