#include "models/picture.h"

/* Stages where there is an init picture; else those behind the encoder are one less. */
enum { TEXT, COND, ENCODE, DENOISE, DECODE };

static const struct {
    const char *stage;
    int stage_idx;
} PROGRAMS[DFX_N_PROGRAMS] = {
    [DFX_PROGRAM_CLIP] = {"text", TEXT},       [DFX_PROGRAM_T5] = {"text", TEXT},
    [DFX_PROGRAM_COND] = {"cond", COND},       [DFX_PROGRAM_ENCODE] = {"encode", ENCODE},
    [DFX_PROGRAM_STEP] = {"denoise", DENOISE}, [DFX_PROGRAM_REST] = {"denoise", DENOISE},
    [DFX_PROGRAM_DECODE] = {"decode", DECODE}, [DFX_PROGRAM_REUSED] = {"denoise", DENOISE},
};

int dfx_picture_stage(const dfx_shape *shape, dfx_program_id id) {
    int stage = PROGRAMS[id].stage_idx;
    return stage - (stage > ENCODE && !shape->has_init);
}

int64_t dfx_picture_latents(const dfx_configs *c, int64_t pixels) {
    return pixels / dfx_vae_factor(&c->vae);
}

int64_t dfx_picture_tokens(const dfx_configs *c, const dfx_shape *s) {
    return dfx_picture_latents(c, s->height) / 2 * (dfx_picture_latents(c, s->width) / 2);
}

int dfx_picture_step_capacity(int n_steps) {
    enum { FEW = 4, SOME = 8, GRAIN = 16 };
    return n_steps <= FEW ? FEW : n_steps <= SOME ? SOME : (n_steps + GRAIN - 1) / GRAIN * GRAIN;
}

bool dfx_picture_serves(const dfx_shape *session, const dfx_shape *request) {
    enum { SAME_BITS_ROWS = 64 };
    return session->width == request->width && session->height == request->height &&
           session->has_init == request->has_init && session->reuses >= request->reuses &&
           session->n_text == request->n_text && session->n_pictures >= request->n_pictures &&
           session->n_steps >= request->n_steps &&
           (session->n_steps <= SAME_BITS_ROWS ||
            session->n_steps == dfx_picture_step_capacity(request->n_steps));
}

/* A step, whole or in parts. */
static dfx_status build_step(const dfx_configs *c, const dfx_build_env *env, const dfx_shape *s,
                             dfx_program p[DFX_N_PROGRAMS]) {
    int64_t I = dfx_picture_tokens(c, s);
    if (!s->reuses)
        return dfx_flux_build_step(&c->flux, env, s->n_text, I, &p[DFX_PROGRAM_STEP]);
    DFX_TRY(dfx_flux_build_part(&c->flux, env, s->n_text, I, DFX_FLUX_FIRST, &p[DFX_PROGRAM_STEP]));
    DFX_TRY(dfx_flux_build_part(&c->flux, env, s->n_text, I, DFX_FLUX_REST, &p[DFX_PROGRAM_REST]));
    return dfx_flux_build_part(&c->flux, env, s->n_text, I, DFX_FLUX_REUSED,
                               &p[DFX_PROGRAM_REUSED]);
}

dfx_status dfx_picture_build(const dfx_configs *c, const dfx_build_env env[DFX_N_COMPONENTS],
                             const dfx_shape *s, dfx_program p[DFX_N_PROGRAMS]) {
    int64_t h = dfx_picture_latents(c, s->height), w = dfx_picture_latents(c, s->width);
    dfx_status status;
    DFX_TRY_OUT(status, dfx_clip_build(&c->clip, &env[DFX_CLIP], c->clip.n_positions,
                                       &p[DFX_PROGRAM_CLIP]));
    DFX_TRY_OUT(status, dfx_t5_build(&c->t5, &env[DFX_T5], s->n_text, &p[DFX_PROGRAM_T5]));
    DFX_TRY_OUT(status, dfx_flux_build_cond(&c->flux, &env[DFX_TRANSFORMER], s->n_text, s->n_steps,
                                            &p[DFX_PROGRAM_COND]));
    if (s->has_init)
        DFX_TRY_OUT(status,
                    dfx_vae_build_encoder(&c->vae, &env[DFX_VAE], h, w, &p[DFX_PROGRAM_ENCODE]));
    DFX_TRY_OUT(status, build_step(c, &env[DFX_TRANSFORMER], s, p));
    DFX_TRY_OUT(status,
                dfx_vae_build_decoder(&c->vae, &env[DFX_VAE], h, w, &p[DFX_PROGRAM_DECODE]));
out:
    for (int i = 0; status != DFX_OK && i < DFX_N_PROGRAMS; i++)
        dfx_program_fini(&p[i]);
    return status;
}

static dfx_trace_program traced(const dfx_program *program, dfx_program_id id, const dfx_shape *s) {
    bool denoises = PROGRAMS[id].stage_idx == DENOISE;
    return (dfx_trace_program){.program = program,
                               .stage = PROGRAMS[id].stage,
                               .n_repeats = denoises                   ? (uint32_t)s->n_steps
                                            : id == DFX_PROGRAM_DECODE ? (uint32_t)s->n_lanes
                                                                       : 1,
                               .n_lanes = denoises ? (uint32_t)s->n_lanes : 1};
}

dfx_status dfx_picture_trace(const dfx_program programs[DFX_N_PROGRAMS], const dfx_shape *shape,
                             const dfx_profile *profile, const dfx_sink *sink, dfx_trace *out) {
    dfx_trace_program list[DFX_N_PLANNED_PROGRAMS];
    size_t n = 0;
    for (int i = 0; i < DFX_N_PLANNED_PROGRAMS; i++)
        if (i != DFX_PROGRAM_ENCODE || shape->has_init)
            list[n++] = traced(&programs[i], (dfx_program_id)i, shape);
    return dfx_trace_make(list, n, profile, sink, out);
}

/* Gives out pieces of one block; with base NULL it only counts. */
typedef struct carver {
    unsigned char *base;
    size_t used;
} carver;

static void *carve(carver *c, int64_t rows, int64_t cols, size_t value_bytes) {
    void *at = c->base ? c->base + c->used : NULL;
    c->used += dfx_align_up((size_t)rows * (size_t)cols * value_bytes, DFX_ACT_ALIGN);
    return at;
}

size_t dfx_picture_state(const dfx_configs *f, const dfx_shape *s, dfx_dtype act_dtype,
                         const dfx_program programs[DFX_N_PROGRAMS], void *base, dfx_state *out) {
    carver c = {.base = base};
    size_t act = dfx_dtype_bytes(act_dtype);
    int64_t I = dfx_picture_tokens(f, s), L = s->n_text + I, half = f->flux.head_size / 2;
    out->clip_x = carve(&c, f->clip.n_positions, f->clip.width, act);
    out->clip_out = carve(&c, f->clip.n_positions, f->clip.width, act);
    out->t5_x = carve(&c, s->n_text, f->t5.width, act);
    out->t5_out = carve(&c, s->n_text, f->t5.width, act);
    out->pooled = carve(&c, 1, f->clip.width, act);
    out->sigmas = carve(&c, 1, s->n_steps, sizeof(float));
    out->dt = carve(&c, 1, s->n_steps, sizeof(float));
    out->guidance = carve(&c, 1, 1, sizeof(float));
    out->txt = carve(&c, s->n_text, f->flux.width, act);
    out->mod = carve(&c, s->n_steps, dfx_flux_mod_cols(&f->flux), act);
    out->step_mod = carve(&c, 1, dfx_flux_mod_cols(&f->flux), act);
    out->step_dt = carve(&c, 1, 1, sizeof(float));
    out->cos = carve(&c, L, half, sizeof(float));
    out->sin = carve(&c, L, half, sizeof(float));
    for (int lane = 0; lane < s->n_lanes; lane++) {
        out->x[lane] = carve(&c, I, f->flux.in_channels, act);
        out->v[lane] = carve(&c, I, f->flux.out_channels, act);
    }
    out->rgb = carve(&c, s->width * s->height, 3, act);
    if (s->has_init) {
        out->moments = carve(&c, 4 * I, 2 * f->vae.latent_channels, act);
        out->init_x = carve(&c, I, f->flux.in_channels, act);
    }
    for (int i = 0; i < DFX_N_PROGRAMS; i++)
        out->adapters[i] =
            programs[i].adapter_bytes ? carve(&c, 1, (int64_t)programs[i].adapter_bytes, 1) : NULL;
    for (int lane = 0; s->reuses && lane < s->n_lanes; lane++) {
        out->h[lane] = carve(&c, L, f->flux.width, act);
        out->first[lane] = carve(&c, I, f->flux.width, act);
        out->last[lane] = carve(&c, I, f->flux.width, act);
        out->rest[lane] = carve(&c, I, f->flux.width, act);
    }
    if (s->reuses) {
        out->minus = carve(&c, 1, 1, sizeof(float));
        out->diff = carve(&c, 1, s->n_lanes, sizeof(float));
    }
    return c.used;
}
