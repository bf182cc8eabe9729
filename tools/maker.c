#include "tools/maker.h"

#include <inttypes.h>

#include "tools/memory.h"
#include "tools/psnr.h"
#include "tools/report.h"
#include "tools/signals.h"

static void on_progress(void *user, const dfx_progress *progress) {
    const dfx_maker *maker = user;
    dfx_console_progress(maker->console, progress);
}

static void on_packing(void *user, uint64_t done_bytes, uint64_t all_bytes) {
    dfx_maker *maker = user;
    dfx_pack_progress_show(&maker->packing, done_bytes, all_bytes);
}

static bool on_cancelled(void *user) {
    return dfx_signals_interrupted();
}

/* What reuse has cost. *psnr: where there is something to compare with. */
static const double *check_reuse(const dfx_maker *maker, const dfx_image *image, double *psnr) {
    char text[DFX_PSNR_TEXT_BYTES];
    if (!maker->whole)
        return NULL;
    dfx_image *whole = &maker->whole[maker->n_written];
    *psnr = dfx_psnr(image->rgb, whole->rgb, image->width, image->height);
    dfx_console_say(maker->console, DFX_INFO,
                    "  --reuse %g: %d of %d steps reused; against all steps in full: %s",
                    (double)image->reuse, image->n_reused, image->steps,
                    dfx_psnr_text(*psnr, text));
    dfx_image_free(whole);
    return psnr;
}

/* A picture is there: to its file at once, and out of memory. */
static dfx_status on_made(void *user, dfx_image *image) {
    dfx_maker *maker = user;
    const dfx_picture_options *picture = maker->picture;
    char name[DFX_OUTPUT_PATH_BYTES];
    image->plain = picture->no_metadata;
    uint64_t begin_ns = dfx_clock_ns();
    dfx_status status = dfx_output_write(&picture->output, maker->console, image);
    dfx_model_span(maker->model, "png", begin_ns);
    if (status == DFX_OK) {
        double psnr;
        dfx_output_name(&picture->output, image->seed, name);
        dfx_report_picture(maker->console, name, image);
        const double *loss = check_reuse(maker, image, &psnr);
        maker->n_written++;
        if (maker->json) {
            dfx_report_json(name, &maker->info, image, loss);
            status = dfx_output_flush(maker->console);
        }
    }
    dfx_image_free(image);
    return status;
}

/* The library stops silently: we are the ones who asked. */
static dfx_status say_interrupted(dfx_console *console, dfx_status status) {
    return status == DFX_E_CANCELLED ? dfx_console_fail(console, status, "interrupted") : status;
}

dfx_status dfx_maker_open(dfx_maker *maker, dfx_console *console, const dfx_open_options *open,
                          bool json) {
    char parameters[DFX_REPORT_TEXT_BYTES], weights[DFX_REPORT_TEXT_BYTES];
    dfx_open_options options = *open;
    *maker = (dfx_maker){.console = console, .json = json};
    dfx_pack_progress_begin(&maker->packing, console, "pack");
    options.packing = on_packing;
    options.cancelled = on_cancelled;
    options.user = maker;
    dfx_status status = dfx_model_open(&options, &maker->model);
    if (status != DFX_OK)
        return say_interrupted(console, status);
    dfx_model_describe(maker->model, &maker->info);
    dfx_console_say(console, DFX_DEBUG, "%s: %s, %s parameters, %s, on %s", maker->info.name,
                    maker->info.kind, dfx_report_count(maker->info.n_parameters, parameters),
                    dfx_report_bytes(maker->info.weight_bytes, weights), maker->info.device);
    return DFX_OK;
}

void dfx_maker_close(dfx_maker *maker) {
    dfx_model_close(maker->model);
    *maker = (dfx_maker){0};
}

static void make_request(dfx_maker *maker, const dfx_picture_options *p, dfx_request *request) {
    dfx_request_init(maker->model, request);
    request->prompt = p->prompt;
    request->seed = p->seed;
    if (p->width)
        request->width = p->width;
    if (p->height)
        request->height = p->height;
    if (p->steps)
        request->steps = p->steps;
    if (p->text_length)
        request->text_length = p->text_length;
    if (p->guidance >= 0)
        request->guidance = (float)p->guidance;
    if (p->strength >= 0)
        request->strength = p->strength;
    request->reuse = (float)p->reuse;
    dfx_init_files_request(&p->init, maker->model, p->width, p->height, request);
    if (p->loras) {
        request->loras = p->loras->uses;
        request->n_loras = p->loras->n;
    }
    request->progress = on_progress;
    request->cancelled = on_cancelled;
    request->made = on_made;
    request->user = maker;
}

dfx_status dfx_maker_look(dfx_maker *maker, const dfx_picture_options *picture) {
    dfx_request request;
    make_request(maker, picture, &request);
    return dfx_request_look(maker->model, &request, picture->n_pictures);
}

/* After a failure: what is there all the same. */
static void list_written(const dfx_maker *maker) {
    const dfx_picture_options *p = maker->picture;
    char name[DFX_OUTPUT_PATH_BYTES];
    for (int i = 0; i < maker->n_written; i++) {
        dfx_output_name(&p->output, p->seed + (uint64_t)i, name);
        dfx_console_say(maker->console, DFX_ERROR, "written before the failure (%d of %d): %s",
                        i + 1, p->n_pictures, name);
    }
}

/* The same pictures with all steps in full, in the same session, to be compared with. */
static dfx_status make_whole(dfx_maker *maker, const dfx_request *request) {
    static dfx_image whole[DFX_PICTURES_MAX];
    if (!maker->picture->reuse_check)
        return DFX_OK;
    dfx_request full = *request;
    full.reuse = 0;
    full.made = NULL;
    maker->whole = whole;
    return dfx_generate_batch(maker->model, &full, maker->picture->n_pictures, whole);
}

static void free_whole(dfx_maker *maker) {
    for (int i = 0; maker->whole && i < maker->picture->n_pictures; i++)
        dfx_image_free(&maker->whole[i]);
    maker->whole = NULL;
}

static dfx_status make_all(dfx_maker *maker, const dfx_request *request) {
    static dfx_image images[DFX_PICTURES_MAX];
    dfx_status status = make_whole(maker, request);
    if (status == DFX_OK)
        status = dfx_generate_batch(maker->model, request, maker->picture->n_pictures, images);
    free_whole(maker);
    return status;
}

dfx_status dfx_maker_make(dfx_maker *maker, const dfx_picture_options *picture) {
    dfx_request request;
    maker->picture = picture;
    maker->n_written = 0;
    make_request(maker, picture, &request);
    DFX_OR_RETURN(dfx_request_check_batch(maker->model, &request, picture->n_pictures));
    if (picture->guidance >= 0 && !maker->info.has_guidance)
        dfx_console_say(maker->console, DFX_INFO,
                        "--guidance is ignored: %s has no guidance embedding", maker->info.kind);
    if (!picture->has_seed)
        dfx_console_say(maker->console, DFX_INFO, "seed %" PRIu64, picture->seed);
    dfx_status status = say_interrupted(maker->console, make_all(maker, &request));
    if (status != DFX_OK)
        list_written(maker);
    return status;
}
