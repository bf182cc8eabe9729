/* A group of pictures: prompt -> tokens -> text encoders -> conditioning -> denoiser x N, a lane for each picture -> decoder, one
 * picture after the other -> 8-bit pixels. With an init picture its encoder comes before the denoiser: models/init.h.
 *
 * What an earlier group left in the session and is still true is not done again: the text encodings of the same prompt,
 * the modulation table of the same prompt, guidance and steps, the latents of the same init picture. */
#include "models/pipeline.h"

#include <stdio.h>
#include <string.h>

#include "core/rng.h"
#include "models/embed.h"
#include "models/image.h"
#include "models/reuse.h"
#include "models/values.h"

/* What has been done for the group so far; bytes since the session was opened. */
typedef struct account {
    double seconds, compute_seconds, disk_seconds, link_seconds;
    uint64_t read_bytes, copied_bytes;
} account;

typedef struct run {
    dfx_model *m;
    dfx_session *ses;
    const dfx_request *request;
    dfx_group *group;
    float guidance; /* as used */
    int first_step; /* of the request's; those before it are not made */
    int n_steps;    /* that are made */
    bool encodes;   /* an init picture */
    dfx_reuse reuse;
    int at, n_at;   /* pictures of the group that the stage works on */
    account booked; /* what pictures have their shares of */
    uint64_t stage_begin_ns;
    uint64_t step_begin_ns;
    dfx_stage stage;
    int n_reused; /* steps of the stage in which no picture took all blocks */
} run;

static double seconds_since(uint64_t begin_ns) {
    return 1e-9 * (double)(dfx_clock_ns() - begin_ns);
}

static void report(run *r, int step, int n_steps) {
    if (r->request->progress)
        r->request->progress(r->request->user,
                             &(dfx_progress){.stage = r->stage,
                                             .step = step,
                                             .n_steps = n_steps,
                                             .stage_seconds = seconds_since(r->stage_begin_ns),
                                             .picture = r->group->first + r->at,
                                             .n_reused = r->n_reused,
                                             .n_together = r->n_at,
                                             .n_pictures = r->group->n_pictures});
}

/* Of n_at pictures of the group, from `at` on. */
static void stage_begin(run *r, dfx_stage stage, int n_steps, int at, int n_at) {
    r->stage = stage;
    r->stage_begin_ns = dfx_clock_ns();
    r->at = at;
    r->n_at = n_at;
    r->n_reused = 0;
    report(r, 0, n_steps);
}

/* `name`: on the timeline, where a stage of two parts is two spans. */
static void stage_end(run *r, const char *name) {
    for (int i = r->at; i < r->at + r->n_at; i++)
        r->group->images[i].stage_seconds[r->stage] += seconds_since(r->stage_begin_ns) / r->n_at;
    dfx_model_span(r->m, name, r->stage_begin_ns);
}

const char *dfx_stage_name(dfx_stage stage) {
    static const char *const names[DFX_N_STAGES] = {"text", "encode", "denoise", "decode"};
    return stage < DFX_N_STAGES ? names[stage] : "?";
}

/* Both tokenizers on the same prompt. The pooled vector is at the first end token. */
typedef struct prompt_ids {
    dfx_tokens clip, t5;
    int64_t pooled_row;
} prompt_ids;

static void warn_cut(const run *r, const prompt_ids *ids) {
    const dfx_sink *sink = &r->m->sink;
    if (ids->t5.n_dropped)
        dfx_warn(sink, "the prompt is longer than %d tokens: the last %zu are cut (--text-length)",
                 r->request->text_length, ids->t5.n_dropped);
    else if (ids->clip.n_dropped)
        dfx_debug(sink, "CLIP sees the first %lld tokens of the prompt, T5 sees all of it",
                  (long long)r->m->parts.configs.clip.n_positions);
    if (ids->t5.n_unknown * 2 > ids->t5.n)
        dfx_warn(sink, "most of the prompt is unknown to the T5 tokenizer, which knows English, "
                       "German, French and Romanian");
}

static dfx_status tokenize(run *r, prompt_ids *out) {
    dfx_model *m = r->m;
    const char *text = r->request->prompt;
    size_t bytes = strlen(text), n_clip = (size_t)m->parts.configs.clip.n_positions;
    DFX_TRY(dfx_tok_clip_encode(m->parts.tok_clip, text, bytes, n_clip, &m->sink, &out->clip));
    DFX_TRY(dfx_tok_t5_encode(m->parts.tok_t5, text, bytes, (size_t)r->ses->shape.n_text, &m->sink,
                              &out->t5));
    int32_t end = out->clip.ids[out->clip.n - 1];
    out->pooled_row = 1;
    while (out->clip.ids[out->pooled_row] != end)
        out->pooled_row++;
    warn_cut(r, out);
    return DFX_OK;
}

/* Embedded tokens of one encoder onto the device. */
static dfx_status upload_embedded(run *r, const dfx_program *tables, bool with_position,
                                  const int32_t *ids, int64_t n, int64_t width, void *dst) {
    float *x;
    DFX_TRY(dfx_new_array(&r->m->sink, (size_t)(n * width), "embedding", &x));
    const dfx_weight *position = with_position ? &tables->weights[1] : NULL;
    dfx_status status =
        dfx_embed_rows(tables, &tables->weights[0], position, ids, n, &r->m->sink, x);
    if (status == DFX_OK)
        status = dfx_values_upload(r->m, dst, x, (size_t)(n * width));
    dfx_free(x);
    return status;
}

static dfx_status run_encoders(run *r, const prompt_ids *ids) {
    dfx_state *s = &r->ses->state;
    dfx_model *m = r->m;
    stage_begin(r, DFX_STAGE_TEXT, 3, 0, r->group->n);
    DFX_TRY(upload_embedded(r, &m->clip_table, true, ids->clip.ids,
                            m->parts.configs.clip.n_positions, m->parts.configs.clip.width,
                            s->clip_x));
    DFX_TRY(upload_embedded(r, &m->t5_table, false, ids->t5.ids, r->ses->shape.n_text,
                            m->parts.configs.t5.width, s->t5_x));
    DFX_TRY(dfx_session_run(m, DFX_PROGRAM_CLIP, 0, (void *[]){s->clip_x, s->clip_out}));
    report(r, 1, 3);
    DFX_TRY(dfx_session_run(m, DFX_PROGRAM_T5, 0, (void *[]){s->t5_x, s->t5_out}));
    report(r, 2, 3);
    stage_end(r, "text");
    return DFX_OK;
}

/* What an earlier picture left in the state. */
static bool text_is_there(const run *r) {
    return r->ses->text_key && strcmp(r->ses->text_key, r->request->prompt) == 0;
}

static bool cond_is_there(const run *r) {
    return text_is_there(r) && r->ses->cond_valid && r->ses->cond_guidance == r->guidance &&
           r->ses->cond_steps == r->request->steps && r->ses->cond_first_step == r->first_step;
}

static bool init_is_there(const run *r) {
    return !r->ses->shape.has_init || r->ses->init.is_encoded;
}

static dfx_status encode_text(run *r) {
    dfx_session *ses = r->ses;
    if (text_is_there(r))
        return DFX_OK;
    dfx_free(ses->text_key);
    ses->text_key = NULL;
    ses->cond_valid = false;
    prompt_ids ids = {0};
    dfx_status status;
    DFX_TRY_OUT(status, tokenize(r, &ids));
    DFX_TRY_OUT(status, run_encoders(r, &ids));
    ses->pooled_row = ids.pooled_row;
    ses->text_key = dfx_strdup(r->request->prompt, "prompt");
    if (!ses->text_key)
        status = dfx_fail(&r->m->sink, DFX_E_NOFIT, "out of memory keeping the prompt");
out:
    dfx_tokens_free(&ids.clip);
    dfx_tokens_free(&ids.t5);
    return status;
}

static dfx_status condition(run *r) {
    dfx_session *ses = r->ses;
    dfx_state *s = &ses->state;
    dfx_backend *be = r->m->backend;
    float guidance = r->guidance;
    if (cond_is_there(r))
        return DFX_OK;
    ses->cond_valid = false; /* until the whole table is new */
    stage_begin(r, DFX_STAGE_TEXT, 3, 0, r->group->n);
    DFX_TRY(dfx_session_upload_sigmas(r->m, r->request->steps, r->first_step));
    DFX_TRY(be->vt->upload(be, s->guidance, &guidance, sizeof(guidance)));
    size_t row_bytes = (size_t)r->m->parts.configs.clip.width * dfx_dtype_bytes(be->act_dtype);
    DFX_TRY(be->vt->copy_device(be, s->pooled,
                                (unsigned char *)s->clip_out + (size_t)ses->pooled_row * row_bytes,
                                row_bytes));
    DFX_TRY(
        dfx_session_run(r->m, DFX_PROGRAM_COND, 0,
                        (void *[]){s->t5_out, s->pooled, s->sigmas, s->guidance, s->txt, s->mod}));
    DFX_TRY(dfx_session_wait(r->m, DFX_PROGRAM_COND, 0));
    report(r, 3, 3);
    stage_end(r, "cond");
    ses->cond_valid = true;
    ses->cond_guidance = guidance;
    ses->cond_steps = r->request->steps;
    ses->cond_first_step = r->first_step;
    return DFX_OK;
}

static dfx_status encode_init(run *r) {
    if (!r->encodes)
        return DFX_OK;
    stage_begin(r, DFX_STAGE_ENCODE, 1, 0, r->group->n);
    DFX_TRY(dfx_init_encode(r->m));
    report(r, 1, 1);
    stage_end(r, "encode");
    return DFX_OK;
}

/* The draw of torch.randn([1, C, h, w]), packed: token (row, col), channel 4 z + 2 i + j = noise[z][2 row + i][2 col + j]. */
static void pack_noise(const float *noise, int64_t channels, int64_t h, int64_t w, float *tokens) {
    for (int64_t z = 0; z < channels; z++)
        for (int64_t y = 0; y < h; y++)
            for (int64_t x = 0; x < w; x++) {
                int64_t token = y / 2 * (w / 2) + x / 2, channel = 4 * z + 2 * (y % 2) + x % 2;
                tokens[token * 4 * channels + channel] = noise[(z * h + y) * w + x];
            }
}

/* Each lane begins with the noise of its own seed, an init picture in it. `tokens`: room for one. */
static dfx_status draw_noise(run *r, int lane, float *tokens) {
    const dfx_model *m = r->m;
    int64_t h = r->ses->shape.height / 8, w = r->ses->shape.width / 8,
            channels = m->parts.configs.vae.latent_channels;
    size_t n = (size_t)(channels * h * w);
    float *noise;
    dfx_rng rng;
    DFX_TRY(dfx_new_array(&m->sink, n, "noise", &noise));
    dfx_rng_seed(&rng, r->group->images[lane].seed);
    dfx_rng_normal(&rng, noise, n);
    pack_noise(noise, channels, h, w, tokens);
    dfx_free(noise);
    if (r->ses->shape.has_init)
        dfx_init_start(r->m, lane, r->ses->sigmas[0], tokens);
    return dfx_values_upload(r->m, r->ses->state.x[lane], tokens, n);
}

/* What differs from step to step is copied to one place, so that all steps are one program with the same addresses. */
static dfx_status run_step(run *r, int step) {
    dfx_state *s = &r->ses->state;
    void *externs[DFX_LANES_MAX * DFX_PART_EXTERNS];
    dfx_backend *be = r->m->backend;
    bool in_parts = r->ses->shape.reuses;
    size_t row_bytes = (size_t)dfx_flux_mod_cols(&r->m->parts.configs.flux) *
                       dfx_dtype_bytes(be->act_dtype),
           n_externs = in_parts ? DFX_PART_EXTERNS : DFX_STEP_EXTERNS;
    DFX_TRY(be->vt->copy_device(be, s->step_mod, (unsigned char *)s->mod + (size_t)step * row_bytes,
                                row_bytes));
    DFX_TRY(be->vt->copy_device(be, s->step_dt, s->dt + step, sizeof(float)));
    for (int lane = 0; lane < r->group->n; lane++)
        memcpy(externs + (size_t)lane * n_externs,
               (void *[DFX_PART_EXTERNS]){s->x[lane], s->txt, s->step_mod, s->cos, s->sin,
                                          s->step_dt, s->v[lane], s->h[lane], s->first[lane],
                                          s->last[lane], s->rest[lane], s->minus, s->diff + lane},
               n_externs * sizeof(*externs));
    if (in_parts)
        return dfx_reuse_step(r->m, &r->reuse, step, externs);
    DFX_TRY(dfx_session_run_lanes(r->m, DFX_PROGRAM_STEP, step, externs, r->group->n, NULL));
    return dfx_session_keep_latents(r->m, step, step, r->group->n);
}

static dfx_status wait_step(run *r, int step) {
    return r->ses->shape.reuses ? dfx_reuse_wait(r->m, &r->reuse, step)
                                : dfx_session_wait(r->m, DFX_PROGRAM_STEP, step);
}

/* On the timeline steps lie one behind the other, though the host is ahead of the device. */
static void note_step(run *r, int step) {
    char name[24];
    snprintf(name, sizeof(name), "step %d", step + 1);
    dfx_model_span(r->m, name, r->step_begin_ns);
    r->step_begin_ns = dfx_clock_ns();
}

/* What a step makes goes into the next one by the host. */
static bool is_masked(const run *r) {
    return r->ses->init.repaint != NULL;
}

/* The step has run: look at what it made. */
static dfx_status end_step(run *r, int step, float *latents, size_t n) {
    DFX_TRY(wait_step(r, step));
    for (int lane = 0; lane < r->group->n; lane++) {
        dfx_values_widen(r->m, latents, dfx_session_latents(r->m, step, lane), n);
        if (!dfx_values_are_finite(latents, n))
            return dfx_fail(&r->m->sink, DFX_E_NUMERIC,
                            "%s: the latents are not finite after step %d of %d; the weights are "
                            "damaged or not of this architecture",
                            r->m->path, step + 1, r->n_steps);
        if (is_masked(r))
            DFX_TRY(dfx_init_blend(r->m, lane, r->ses->sigmas[step + 1], latents));
    }
    r->n_reused += r->ses->shape.reuses && r->reuse.all_reused[step % 2];
    report(r, step + 1, r->n_steps);
    note_step(r, step);
    return DFX_OK;
}

/* A step ahead: while the host looks at a step, the device has the next one. Not so with a mask. */
static dfx_status denoise(run *r) {
    dfx_model *m = r->m;
    int n_steps = r->n_steps, ahead = is_masked(r) ? 0 : 1;
    size_t n = (size_t)(dfx_picture_tokens(&m->parts.configs, &r->ses->shape) *
                        m->parts.configs.flux.in_channels);
    float *latents;
    DFX_TRY(dfx_new_array(&m->sink, n, "latents", &latents));
    dfx_status status;
    for (int lane = 0; lane < r->group->n; lane++)
        DFX_TRY_OUT(status, draw_noise(r, lane, latents));
    stage_begin(r, DFX_STAGE_DENOISE, n_steps, 0, r->group->n);
    r->step_begin_ns = r->stage_begin_ns;
    for (int i = 0; i < n_steps; i++) {
        DFX_TRY_OUT(status, run_step(r, i));
        if (i >= ahead)
            DFX_TRY_OUT(status, end_step(r, i - ahead, latents, n));
    }
    if (ahead)
        DFX_TRY_OUT(status, end_step(r, n_steps - 1, latents, n));
    for (int lane = 0; lane < r->group->n; lane++)
        r->group->images[lane].n_reused = r->reuse.n_reused[lane];
    stage_end(r, "denoise");
out:
    dfx_free(latents);
    return status;
}

static dfx_status decode(run *r, int lane) {
    dfx_model *m = r->m;
    dfx_state *s = &r->ses->state;
    dfx_image *image = &r->group->images[lane];
    size_t n = (size_t)(image->width * image->height) * 3;
    float *rgb;
    stage_begin(r, DFX_STAGE_DECODE, 1, lane, 1);
    DFX_TRY(dfx_session_run(m, DFX_PROGRAM_DECODE, lane, (void *[]){s->x[lane], s->rgb}));
    DFX_TRY(dfx_new_array(&m->sink, n, "picture", &rgb));
    dfx_status status;
    DFX_TRY_OUT(status, dfx_values_download(m, rgb, s->rgb, n));
    DFX_TRY_OUT(status, dfx_session_wait(m, DFX_PROGRAM_DECODE, lane));
    if (!dfx_values_are_finite(rgb, n)) {
        status = dfx_fail(&m->sink, DFX_E_NUMERIC,
                          "%s: the decoder made values that are not finite", m->path);
        goto out;
    }
    DFX_TRY_OUT(status, dfx_image_pixels(image, rgb, &m->sink));
    report(r, 1, 1);
    stage_end(r, "decode");
out:
    dfx_free(rgb);
    return status;
}

static account account_now(const run *r) {
    const dfx_visit_clock *clock = &r->ses->clock;
    dfx_feed_stats feed;
    dfx_feed_get_stats(r->ses->feed, &feed);
    return (account){.seconds = seconds_since(r->group->begin_ns),
                     .compute_seconds = clock->compute_seconds,
                     .disk_seconds = clock->disk_seconds,
                     .link_seconds = clock->link_seconds,
                     .read_bytes = feed.read_bytes,
                     .copied_bytes = feed.copied_bytes};
}

/* The i-th of n whole parts of `all`. */
static uint64_t part(uint64_t all, uint64_t i, uint64_t n) {
    return all * (i + 1) / n - all * i / n;
}

/* What has been done since the last time was for n pictures of the group, from `at` on: to each an equal share. */
static void book(run *r, int at, int n) {
    account now = account_now(r), *old = &r->booked;
    double disk_seconds = (now.disk_seconds - old->disk_seconds) / n,
           link_seconds = (now.link_seconds - old->link_seconds) / n;
    for (int i = 0; i < n; i++) {
        dfx_image *image = &r->group->images[at + i];
        image->seconds += (now.seconds - old->seconds) / n;
        image->compute_seconds += (now.compute_seconds - old->compute_seconds) / n;
        image->disk_wait_seconds += disk_seconds;
        image->link_wait_seconds += link_seconds;
        image->wait_seconds += disk_seconds + link_seconds;
        image->read_bytes += part(now.read_bytes - old->read_bytes, (uint64_t)i, (uint64_t)n);
        image->copied_bytes += part(now.copied_bytes - old->copied_bytes, (uint64_t)i, (uint64_t)n);
    }
    *old = now;
}

/* The picture is whole, and the caller's. What the caller does with it takes no time of the next one. */
static dfx_status hand_out(run *r, int lane) {
    dfx_group *group = r->group;
    dfx_image *image = &group->images[lane];
    book(r, lane, 1);
    image->peak_device_bytes = r->m->budget.peak_bytes;
    DFX_TRY(dfx_image_describe(image, r->request, r->m->name, &r->m->sink));
    group->n_made++;
    dfx_model_trace_write(r->m);
    dfx_status status = r->request->made ? r->request->made(r->request->user, image) : DFX_OK;
    r->booked.seconds = seconds_since(group->begin_ns);
    return status;
}

static dfx_status make_latents(run *r) {
    DFX_TRY(encode_text(r));
    DFX_TRY(condition(r));
    DFX_TRY(encode_init(r));
    DFX_TRY(denoise(r));
    book(r, 0, r->group->n);
    return DFX_OK;
}

/* From here on all is done, the encoder too where an earlier one is: visits that are left out are the first ones. */
static dfx_program_id first_program(const run *r) {
    if (!text_is_there(r))
        return DFX_PROGRAM_CLIP;
    if (!cond_is_there(r))
        return DFX_PROGRAM_COND;
    return init_is_there(r) ? DFX_PROGRAM_STEP : DFX_PROGRAM_ENCODE;
}

/* Pages begin to come before the first stage asks for one. The last picture is handed out when the feed has counted all that it
 * moved. */
static dfx_status draw(run *r) {
    const dfx_shape *shape = &r->ses->shape;
    dfx_program_id first = first_program(r);
    int last = r->group->n - 1, n_sure = dfx_reuse_sure(r->reuse.threshold, r->n_steps);
    r->encodes = shape->has_init && first != DFX_PROGRAM_STEP;
    DFX_TRY(dfx_session_group_begin(r->m, dfx_picture_stage(shape, first), n_sure, r->n_steps,
                                    r->group->n));
    dfx_status status = make_latents(r);
    for (int lane = 0; status == DFX_OK && lane < last; lane++) {
        status = decode(r, lane);
        if (status == DFX_OK)
            status = hand_out(r, lane);
    }
    if (status == DFX_OK)
        status = decode(r, last);
    dfx_session_group_end(r->m);
    return status == DFX_OK ? hand_out(r, last) : status;
}

dfx_status dfx_group_draw(dfx_model *m, const dfx_request *request, dfx_group *group) {
    int first_step = dfx_request_first_step(request), n_steps = request->steps - first_step;
    run r = {.m = m,
             .ses = &m->session,
             .request = request,
             .group = group,
             .guidance = group->images[0].guidance,
             .first_step = first_step,
             .n_steps = n_steps,
             .reuse = {.threshold = request->reuse, .n_steps = n_steps, .n_lanes = group->n}};
    dfx_feed_stats feed;
    dfx_feed_get_stats(r.ses->feed, &feed);
    r.booked = (account){.read_bytes = feed.read_bytes, .copied_bytes = feed.copied_bytes};
    return draw(&r);
}
