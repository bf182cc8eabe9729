/* Whole pictures at several budgets of the device: how long, how much of it waiting, beside what the plan said. */
#ifndef DFX_TOOLS_BENCH_IMAGE_H
#define DFX_TOOLS_BENCH_IMAGE_H

#include "kernels/backend.h"
#include "models/dfx.h"
#include "tools/bench_sample.h"
#include "tools/console.h"

enum { DFX_BENCH_BUDGETS_MAX = 32 };

typedef struct dfx_bench_image_question {
    dfx_open_options open; /* its budget, callbacks and sink are set here */
    const char *prompt;
    int width, height, steps, text_length; /* 0: the model's own */
    double reuse;                          /* of the request; 0: all steps are whole */
    uint32_t n_runs;                       /* warm pictures; one that is not counted goes before */
    uint64_t budgets[DFX_BENCH_BUDGETS_MAX]; /* bytes; 0: what the device has */
    int n_budgets;
} dfx_bench_image_question;

/* Seconds are of whole pictures: neither text nor conditioning is taken over from the one before. */
typedef struct dfx_bench_image_row {
    uint64_t budget_bytes;
    bool fits;           /* false: there is no plan for this budget, and nothing below */
    double cold_seconds; /* of the first picture, which fills pinned memory from disk */
    dfx_bench_sample seconds;
    dfx_bench_sample step_seconds; /* of each warm picture: a step but the first */
    double planned_step_seconds, planned_seconds;
    double floor_seconds; /* of the plan: computing alone */
    double wait_seconds;  /* of the last picture, as what follows */
    uint64_t peak_device_bytes, read_bytes, copied_bytes;
    uint64_t picture; /* a hash of the first picture's pixels */
    int n_reused;     /* steps of it */
    double psnr;      /* against the picture of whole steps, in dB; with reuse alone */
} dfx_bench_image_row;

typedef struct dfx_bench_image {
    dfx_device_facts facts;
    char model[128], quant[16], profile[64];
    int width, height, steps, text_length;
    double reuse;
    int attention_bits;
    dfx_bench_image_row rows[DFX_BENCH_BUDGETS_MAX];
    int n_rows;
} dfx_bench_image;

/* Errors: those of opening and drawing but DFX_E_NOFIT, which is a row; DFX_E_NOFIT when no budget fits. */
dfx_status dfx_bench_image_run(const dfx_bench_image_question *question, dfx_console *console,
                               dfx_bench_image *out);

#endif
