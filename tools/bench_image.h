/* Whole pictures of several models and sizes at several budgets of the device: how long, how much of it waiting, beside what the
 * plan said. */
#ifndef DFX_TOOLS_BENCH_IMAGE_H
#define DFX_TOOLS_BENCH_IMAGE_H

#include "kernels/backend.h"
#include "models/dfx.h"
#include "tools/bench_sample.h"
#include "tools/console.h"

enum { DFX_BENCH_BUDGETS_MAX = 32, DFX_BENCH_SERIES_MAX = 32 };

/* What a series of pictures is of. */
typedef struct dfx_bench_image_subject {
    const char *model_path, *quant; /* as in dfx_open_options */
    int width, height;              /* 0: the model's own */
} dfx_bench_image_subject;

typedef struct dfx_bench_image_question {
    dfx_open_options open; /* its model, quant, budget, callbacks and sink are set here */
    dfx_bench_image_subject subjects[DFX_BENCH_SERIES_MAX];
    int n_subjects;
    const char *prompt;
    int steps, text_length; /* 0: the model's own */
    double reuse;           /* of the request; 0: all steps are whole */
    uint32_t n_runs;        /* warm pictures; one that is not counted goes before */
    uint64_t budgets[DFX_BENCH_BUDGETS_MAX]; /* bytes; 0: what the device has */
    int n_budgets;
} dfx_bench_image_question;

/* Seconds are of whole pictures: neither text nor conditioning is taken over from the one before. */
typedef struct dfx_bench_image_row {
    uint64_t budget_bytes;
    bool fits;           /* false: there is no plan for this budget, and nothing below */
    double cold_seconds; /* of the first picture, which fills pinned memory from disk */
    dfx_bench_sample seconds;
    dfx_bench_sample step_seconds; /* of each warm picture: a step but the first and the last */
    double planned_step_seconds, planned_seconds;
    double floor_seconds; /* of the plan: computing alone */
    double wait_seconds;  /* of the last picture, as what follows */
    uint64_t peak_device_bytes, read_bytes, copied_bytes;
    uint64_t picture; /* a hash of the first picture's pixels */
    int n_reused;     /* steps of it */
    double psnr;      /* against the picture of whole steps, in dB; with reuse alone */
} dfx_bench_image_row;

typedef struct dfx_bench_image_series {
    char model[128], quant[16], profile[64];
    double link_bytes_per_s; /* of the profile; 0: device and host share their memory */
    int width, height, steps, text_length;
    dfx_bench_image_row rows[DFX_BENCH_BUDGETS_MAX];
    int n_rows;
} dfx_bench_image_series;

typedef struct dfx_bench_image {
    dfx_device_facts facts;
    double reuse;
    int attention_bits;
    dfx_bench_image_series series[DFX_BENCH_SERIES_MAX];
    int n_series;
} dfx_bench_image;

/* Errors: those of opening and drawing but DFX_E_NOFIT, which is a row; DFX_E_NOFIT when no budget fits. What was measured until
 * then is in *out: no series where there is nothing. */
dfx_status dfx_bench_image_run(const dfx_bench_image_question *question, dfx_console *console,
                               dfx_bench_image *out);

#endif
