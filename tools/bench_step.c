/* See bench_step.h. The model is packed into the cache when it is not there yet. Everything of it stays on the device, so
 * that a step is computing alone. */
#include "tools/bench_step.h"

#include <stdio.h>

#include "models/model.h"
#include "tools/bench_fit.h"
#include "tools/find_model.h"

enum { N_STEPS = 9 };

typedef struct timing {
    dfx_bench_sample *sample;
    double last; /* when the step before ended, from the beginning of the stage */
    bool (*cancelled)(void *user);
} timing;

static void on_progress(void *user, const dfx_progress *progress) {
    timing *t = user;
    if (progress->stage != DFX_STAGE_DENOISE)
        return;
    if (progress->step > 1)
        dfx_bench_sample_add(t->sample, progress->stage_seconds - t->last);
    t->last = progress->stage_seconds;
}

static bool on_cancelled(void *user) {
    const timing *t = user;
    return t->cancelled(NULL);
}

static dfx_status measure(dfx_model *model, const dfx_model_info *info,
                          bool (*cancelled)(void *user), dfx_bench_step *out) {
    timing t = {.sample = &out->measured, .cancelled = cancelled};
    dfx_request request;
    dfx_image image;
    dfx_request_init(model, &request);
    request.prompt = "a red ball on a green hill";
    request.steps = N_STEPS;
    request.progress = on_progress;
    request.cancelled = on_cancelled;
    request.user = &t;
    dfx_status status = dfx_generate(model, &request, &image);
    if (status != DFX_OK)
        return status;
    snprintf(out->model, sizeof(out->model), "%s", info->name);
    out->width = image.width;
    out->height = image.height;
    dfx_image_free(&image);
    return DFX_OK;
}

/* What the profile says of the ops that were run. */
static double plan_seconds(const dfx_model *m, const dfx_profile *profile) {
    const dfx_program *step = &m->session.programs[DFX_PROGRAM_STEP];
    return dfx_bench_foretold(step, profile, DFX_BENCH_PARTS);
}

dfx_status dfx_bench_step_run(const dfx_profile *profile, int n_threads,
                              bool (*cancelled)(void *user), dfx_console *console,
                              dfx_bench_step *out) {
    char path[DFX_MODEL_PATH_BYTES];
    dfx_model *model;
    dfx_model_info info;
    *out = (dfx_bench_step){0};
    DFX_TRY(dfx_bundled_find(console, path));
    DFX_TRY(dfx_model_open(&(dfx_open_options){.model_path = path,
                                               .device = DFX_DEVICE_CPU,
                                               .n_threads = n_threads,
                                               .cancelled = cancelled,
                                               .sink = console->sink},
                           &model));
    dfx_model_describe(model, &info);
    dfx_status status = measure(model, &info, cancelled, out);
    if (status == DFX_OK)
        out->planned_seconds = plan_seconds(model, profile);
    dfx_model_close(model);
    return status;
}
