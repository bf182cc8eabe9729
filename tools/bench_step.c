/* See bench_step.h. The model is packed into the cache when it is not there yet; the plan is made from the same file. */
#include "tools/bench_step.h"

#include <stdio.h>

#include "models/parts.h"
#include "models/picture_plan.h"
#include "offload/packed.h"
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

static dfx_status plan(const dfx_packed *packed, const dfx_profile *profile, dfx_backend *be,
                       const dfx_sink *sink, double *seconds) {
    dfx_build_env env[DFX_N_COMPONENTS];
    dfx_bundle bundle = dfx_packed_bundle(packed);
    dfx_parts parts;
    dfx_picture_plan picture;
    for (int i = 0; i < DFX_N_COMPONENTS; i++)
        env[i] =
            (dfx_build_env){.tensors = dfx_packed_tensors(packed, dfx_component_places[i].folder),
                            .weight_only = dfx_packed_quant(packed) == DFX_Q_INT8WO,
                            .act_dtype = be->act_dtype,
                            .sink = sink};
    DFX_TRY(dfx_parts_load(&bundle, sink, &parts));
    dfx_picture_question question = {.configs = &parts.configs,
                                     .env = env,
                                     .shape = parts.defaults.shape,
                                     .backend = be,
                                     .profile = profile};
    question.shape.n_steps = N_STEPS;
    dfx_status status = dfx_picture_plan_make(&question, sink, &picture);
    if (status == DFX_OK) {
        *seconds = picture.plan.step_seconds;
        dfx_picture_plan_fini(&picture);
    }
    dfx_parts_fini(&parts);
    return status;
}

static dfx_status plan_file(const char *path, const dfx_profile *profile, int n_threads,
                            const dfx_sink *sink, double *seconds) {
    dfx_packed *packed;
    dfx_backend *be = NULL;
    DFX_TRY(dfx_packed_open(path, sink, &packed));
    dfx_status status = dfx_cpu_backend_open(&(dfx_cpu_options){.n_threads = n_threads}, sink, &be);
    if (status == DFX_OK) {
        status = plan(packed, profile, be, sink, seconds);
        be->vt->close(be);
    }
    dfx_packed_close(packed);
    return status;
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
        status = plan_file(info.path, profile, n_threads, &console->sink, &out->planned_seconds);
    dfx_model_close(model);
    return status;
}
