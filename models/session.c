#include "models/session.h"

#include "models/model.h"

static const struct {
    const char *name;
    dfx_program_id first, last;
} STAGES[DFX_N_STAGE_NEEDS] = {
    {"the text encoders", DFX_PROGRAM_CLIP, DFX_PROGRAM_T5},
    {"the conditioning", DFX_PROGRAM_COND, DFX_PROGRAM_COND},
    {"the denoiser", DFX_PROGRAM_STEP, DFX_PROGRAM_STEP},
    {"the decoder", DFX_PROGRAM_DECODE, DFX_PROGRAM_DECODE},
};

static int64_t latent_side(const dfx_model *m, int64_t pixels) {
    return pixels / dfx_vae_factor(&m->vae);
}

static int64_t n_image_tokens(const dfx_model *m, const dfx_shape *s) {
    return latent_side(m, s->height) / 2 * (latent_side(m, s->width) / 2);
}

dfx_status dfx_session_build(const dfx_model *m, const dfx_shape *s, dfx_dtype act,
                             dfx_program p[DFX_N_PROGRAMS]) {
    int64_t h = latent_side(m, s->height), w = latent_side(m, s->width);
    dfx_status status;
    DFX_TRY_OUT(status, dfx_clip_build(&m->clip, m->tensors[DFX_CLIP], m->clip.n_positions, act,
                                       &m->sink, &p[DFX_PROGRAM_CLIP]));
    DFX_TRY_OUT(status, dfx_t5_build(&m->t5, m->tensors[DFX_T5], s->n_text, act, &m->sink,
                                     &p[DFX_PROGRAM_T5]));
    DFX_TRY_OUT(status, dfx_flux_build_cond(&m->flux, m->tensors[DFX_TRANSFORMER], s->n_text,
                                            s->n_steps, act, &m->sink, &p[DFX_PROGRAM_COND]));
    DFX_TRY_OUT(status,
                dfx_flux_build_step(&m->flux, m->tensors[DFX_TRANSFORMER], s->n_text,
                                    n_image_tokens(m, s), act, &m->sink, &p[DFX_PROGRAM_STEP]));
    DFX_TRY_OUT(status, dfx_vae_build_decoder(&m->vae, m->tensors[DFX_VAE], h, w, act, &m->sink,
                                              &p[DFX_PROGRAM_DECODE]));
out:
    for (int i = 0; status != DFX_OK && i < DFX_N_PROGRAMS; i++)
        dfx_program_fini(&p[i]);
    return status;
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

static size_t carve_state(const dfx_model *m, const dfx_shape *s, void *base, dfx_state *out) {
    carver c = {.base = base};
    size_t act = dfx_dtype_bytes(m->backend->act_dtype);
    int64_t I = n_image_tokens(m, s), L = s->n_text + I, half = m->flux.head_size / 2;
    out->clip_ids = carve(&c, 1, m->clip.n_positions, sizeof(int32_t));
    out->clip_out = carve(&c, m->clip.n_positions, m->clip.width, act);
    out->t5_ids = carve(&c, 1, s->n_text, sizeof(int32_t));
    out->t5_out = carve(&c, s->n_text, m->t5.width, act);
    out->sigmas = carve(&c, 1, s->n_steps, sizeof(float));
    out->dt = carve(&c, 1, s->n_steps, sizeof(float));
    out->guidance = carve(&c, 1, 1, sizeof(float));
    out->txt = carve(&c, s->n_text, m->flux.width, act);
    out->mod = carve(&c, s->n_steps, dfx_flux_mod_cols(&m->flux), act);
    out->cos = carve(&c, L, half, sizeof(float));
    out->sin = carve(&c, L, half, sizeof(float));
    out->x = carve(&c, I, m->flux.in_channels, act);
    out->v = carve(&c, I, m->flux.out_channels, act);
    out->rgb = carve(&c, s->width * s->height, 3, act);
    return c.used;
}

/* Decide where the pages live; nothing of the session is on the device yet. */
static dfx_status place(dfx_model *m, dfx_session *ses) {
    dfx_fixed_need fixed = {.workspace_bytes = m->backend->vt->workspace_bytes(m->backend)};
    dfx_state unused;
    fixed.state_bytes = carve_state(m, &ses->shape, NULL, &unused);
    for (int i = 0; i < DFX_N_PROGRAMS; i++)
        if (ses->programs[i].act_bytes > fixed.activation_bytes)
            fixed.activation_bytes = ses->programs[i].act_bytes;
    for (int i = 0; i < DFX_N_STAGE_NEEDS; i++) {
        dfx_stage_need *need = &ses->needs[i];
        *need = (dfx_stage_need){.name = STAGES[i].name};
        for (int p = (int)STAGES[i].first; p <= (int)STAGES[i].last; p++) {
            need->page_bytes += ses->programs[p].page_bytes;
            if (ses->programs[p].page_bytes_max > need->page_bytes_max)
                need->page_bytes_max = ses->programs[p].page_bytes_max;
        }
    }
    return dfx_placement_make(ses->needs, DFX_N_STAGE_NEEDS, &fixed, m->budget.limit_bytes,
                              &m->sink, &ses->peak_bytes);
}

static dfx_status allocate(dfx_model *m, dfx_session *ses) {
    dfx_state unused;
    size_t act_bytes = 0;
    for (int i = 0; i < DFX_N_PROGRAMS; i++)
        if (ses->programs[i].act_bytes > act_bytes)
            act_bytes = ses->programs[i].act_bytes;
    size_t workspace = m->backend->vt->workspace_bytes(m->backend);
    DFX_TRY(dfx_budget_reserve(&m->budget, &m->sink, "workspace", workspace - m->workspace_bytes));
    m->workspace_bytes = workspace;
    DFX_TRY(dfx_executor_reserve(&m->executor, act_bytes));
    DFX_TRY(dfx_executor_state_alloc(&m->executor, carve_state(m, &ses->shape, NULL, &unused),
                                     &ses->state_mem));
    carve_state(m, &ses->shape, ses->state_mem.ptr, &ses->state);
    for (int i = 0; i < DFX_N_STAGE_NEEDS; i++)
        for (int p = (int)STAGES[i].first; p <= (int)STAGES[i].last; p++) {
            DFX_TRY(dfx_pager_init(&ses->pagers[p], &ses->programs[p], m->backend, &m->budget,
                                   &m->sink));
            dfx_pager_set_residency(&ses->pagers[p], ses->needs[i].residency);
        }
    return DFX_OK;
}

/* What depends on the shape alone: RoPE tables, sigmas and their differences. */
static dfx_status upload_tables(dfx_model *m, dfx_session *ses) {
    const dfx_shape *s = &ses->shape;
    int64_t h = latent_side(m, s->height) / 2, w = latent_side(m, s->width) / 2;
    size_t n = (size_t)((s->n_text + h * w) * (m->flux.head_size / 2)), steps = (size_t)s->n_steps;
    const dfx_backend_vtable *vt = m->backend->vt;
    float *cos_table, *sin_table, *sigmas = NULL, *dt = NULL;
    DFX_TRY(dfx_new_array(&m->sink, 2 * n, "rope", &cos_table));
    sin_table = cos_table + n;
    dfx_flux_rope(&m->flux, s->n_text, h, w, cos_table, sin_table);
    dfx_status status;
    DFX_TRY_OUT(status, vt->upload(m->backend, ses->state.cos, cos_table, n * sizeof(float)));
    DFX_TRY_OUT(status, vt->upload(m->backend, ses->state.sin, sin_table, n * sizeof(float)));
    DFX_TRY_OUT(status, dfx_new_array(&m->sink, 2 * steps + 1, "sigmas", &sigmas));
    dt = sigmas + steps + 1;
    dfx_sigmas_make(&m->sigmas, h * w, s->n_steps, sigmas);
    for (size_t i = 0; i < steps; i++)
        dt[i] = sigmas[i + 1] - sigmas[i];
    DFX_TRY_OUT(status, vt->upload(m->backend, ses->state.sigmas, sigmas, steps * sizeof(float)));
    DFX_TRY_OUT(status, vt->upload(m->backend, ses->state.dt, dt, steps * sizeof(float)));
out:
    dfx_free(sigmas);
    dfx_free(cos_table);
    return status;
}

static bool same_shape(const dfx_shape *a, const dfx_shape *b) {
    return a->width == b->width && a->height == b->height && a->n_text == b->n_text &&
           a->n_steps == b->n_steps;
}

dfx_status dfx_session_begin(dfx_model *m, const dfx_shape *shape) {
    dfx_session *ses = &m->session;
    if (ses->ready && same_shape(&ses->shape, shape))
        return DFX_OK;
    dfx_session_end(m);
    ses->shape = *shape;
    dfx_status status;
    DFX_TRY_OUT(status, dfx_session_build(m, shape, m->backend->act_dtype, ses->programs));
    for (int i = 0; i < DFX_N_PROGRAMS; i++)
        DFX_TRY_OUT(status, dfx_executor_announce(&m->executor, &ses->programs[i]));
    DFX_TRY_OUT(status, place(m, ses));
    DFX_TRY_OUT(status, allocate(m, ses));
    DFX_TRY_OUT(status, upload_tables(m, ses));
    ses->ready = true;
out:
    if (status != DFX_OK)
        dfx_session_end(m);
    return status;
}

void dfx_session_end(dfx_model *m) {
    dfx_session *ses = &m->session;
    for (int i = 0; i < DFX_N_PROGRAMS; i++) {
        dfx_pager_fini(&ses->pagers[i]);
        dfx_program_fini(&ses->programs[i]);
    }
    dfx_executor_state_free(&m->executor, &ses->state_mem);
    dfx_free(ses->text_key);
    *ses = (dfx_session){0};
}
