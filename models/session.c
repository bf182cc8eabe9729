#include "models/session.h"

#include <string.h>

#include "models/early.h"
#include "models/lanes.h"
#include "models/model.h"

static size_t lora_image_bytes(const dfx_model *m, const dfx_session *ses) {
    return m->backend->host_visible ? 0 : dfx_loras_image_bytes(ses->programs);
}

/* Of pinned memory, for pages. */
static uint64_t ram_budget(const dfx_model *m, const dfx_session *ses) {
    uint64_t image = lora_image_bytes(m, ses);
    return m->ram_budget_bytes > image ? m->ram_budget_bytes - image : 0;
}

/* Decide how many pictures go together and where everything will be; nothing of the session is on the device yet. */
static dfx_status make_plan(dfx_model *m, const dfx_shape *request, dfx_session *ses) {
    dfx_lanes_answer answer;
    dfx_lanes_question question = {
        .configs = &m->parts.configs,
        .programs = ses->programs,
        .shape = *request,
        .n_steps = ses->shape.n_steps,
        .act_dtype = m->backend->act_dtype,
        .problem = {.budget_bytes = m->budget.limit_bytes,
                    .workspace_bytes = m->backend->vt->workspace_bytes(m->backend),
                    .driver_bytes = m->backend->vt->driver_reserve_bytes(m->backend),
                    .ram_budget_bytes = ram_budget(m, ses),
                    .offload = m->offload,
                    .profile = &m->profile}};
    DFX_TRY(dfx_lanes_choose(&question, &m->sink, &answer));
    ses->shape = answer.shape;
    ses->trace = answer.trace;
    ses->plan = answer.plan;
    if (ses->shape.n_lanes > 1)
        dfx_debug(&m->sink, "up to %d pictures are made together and share what is brought",
                  ses->shape.n_lanes);
    return DFX_OK;
}

/* Every page of every program lies in the file as it will be read. */
static dfx_status find_pages(dfx_model *m, dfx_session *ses) {
    uint32_t n = 0;
    DFX_TRY(dfx_new_array(&m->sink, ses->trace.n_pages, "session", &ses->page_idx));
    for (int p = 0; p < DFX_N_PLANNED_PROGRAMS; p++) {
        const dfx_program *program = &ses->programs[p];
        for (uint32_t i = 0; i < program->n_pages; i++) {
            DFX_TRY(dfx_packed_check_page(m->packed, program, i, &m->sink));
            ses->page_idx[n++] = (uint32_t)dfx_packed_page_of(m->packed, program, i);
        }
        bool follows = p > 0 && dfx_picture_stage(&ses->shape, (dfx_program_id)p) ==
                                    dfx_picture_stage(&ses->shape, (dfx_program_id)(p - 1));
        ses->first_region[p] =
            follows ? ses->first_region[p - 1] + ses->programs[p - 1].n_regions : 0;
    }
    if (ses->shape.reuses) /* its page is REST's last */
        ses->first_region[DFX_PROGRAM_REUSED] =
            ses->first_region[DFX_PROGRAM_REST] + ses->programs[DFX_PROGRAM_REST].n_regions - 1;
    return DFX_OK;
}

/* The ledger shows what the plan said, owner by owner. */
static dfx_status reserve(dfx_model *m, const dfx_plan *plan) {
    dfx_budget_init(&m->budget, m->budget.limit_bytes);
    for (uint32_t i = 0; i < plan->n_owners; i++)
        DFX_TRY(
            dfx_budget_reserve(&m->budget, &m->sink, plan->owners[i].name, plan->owners[i].bytes));
    return DFX_OK;
}

/* Of one lane. */
static size_t latent_bytes(const dfx_model *m) {
    return (size_t)(dfx_picture_tokens(&m->parts.configs, &m->session.shape) *
                    m->parts.configs.flux.in_channels) *
           dfx_dtype_bytes(m->backend->act_dtype);
}

static dfx_status allocate(dfx_model *m, dfx_session *ses) {
    const dfx_plan *plan = &ses->plan;
    DFX_TRY(reserve(m, plan));
    DFX_TRY(m->backend->vt->workspace_alloc(m->backend));
    DFX_TRY(m->backend->vt->alloc(m->backend, plan->arena_bytes, "arena", &ses->arena));
    size_t state_bytes = dfx_picture_state(&m->parts.configs, &ses->shape, m->backend->act_dtype,
                                           ses->programs, ses->arena.ptr, &ses->state);
    ses->executor = (dfx_executor){.backend = m->backend,
                                   .sink = &m->sink,
                                   .activations = (unsigned char *)ses->arena.ptr + state_bytes};
    for (uint32_t s = 0; s < ses->trace.n_stages; s++)
        if (ses->trace.stages[s].activation_bytes > ses->executor.activation_bytes)
            ses->executor.activation_bytes = ses->trace.stages[s].activation_bytes;
    dfx_feed_options feed = {.plan = plan,
                             .packed = m->packed,
                             .page_idx = ses->page_idx,
                             .tier = m->tier,
                             .early_bytes =
                                 dfx_early_spare_bytes(m, ram_budget(m, ses), plan->host_bytes),
                             .backend = m->backend,
                             .arena = ses->arena.ptr,
                             .queue_depth = m->profile.disk_queue_depth,
                             .verify = m->verify,
                             .unified = m->profile.unified,
                             .timeline = m->timeline};
    for (int i = 0; i < 2; i++)
        DFX_TRY(m->backend->vt->pinned_alloc(
            m->backend, (size_t)ses->shape.n_lanes * latent_bytes(m), "latents", &ses->latents[i]));
    if (ses->shape.reuses)
        DFX_TRY(m->backend->vt->pinned_alloc(m->backend, (size_t)ses->shape.n_lanes * sizeof(float),
                                             "diffs", &ses->diffs));
    DFX_TRY(dfx_feed_open(&feed, &m->sink, &ses->feed));
    size_t image_bytes = lora_image_bytes(m, ses); /* has room when early reading has ended */
    return image_bytes
               ? m->backend->vt->pinned_alloc(m->backend, image_bytes, "LoRAs", &ses->lora_image)
               : DFX_OK;
}

static dfx_status upload_minus(dfx_model *m, dfx_session *ses) {
    const float minus = -1;
    if (!ses->shape.reuses)
        return DFX_OK;
    return m->backend->vt->upload(m->backend, ses->state.minus, &minus, sizeof(minus));
}

/* What depends on the size alone. */
static dfx_status upload_rope(dfx_model *m, dfx_session *ses) {
    const dfx_shape *s = &ses->shape;
    int64_t h = dfx_picture_latents(&m->parts.configs, s->height) / 2,
            w = dfx_picture_latents(&m->parts.configs, s->width) / 2;
    size_t n = (size_t)((s->n_text + h * w) * (m->parts.configs.flux.head_size / 2));
    const dfx_backend_vtable *vt = m->backend->vt;
    float *cos_table, *sin_table;
    DFX_TRY(dfx_new_array(&m->sink, 2 * n, "rope", &cos_table));
    sin_table = cos_table + n;
    dfx_flux_rope(&m->parts.configs.flux, s->n_text, h, w, cos_table, sin_table);
    dfx_status status;
    DFX_TRY_OUT(status, vt->upload(m->backend, ses->state.cos, cos_table, n * sizeof(float)));
    DFX_TRY_OUT(status, vt->upload(m->backend, ses->state.sin, sin_table, n * sizeof(float)));
out:
    dfx_free(cos_table);
    return status;
}

/* Programs and plan; `ses` is zeroed. */
static dfx_status build(dfx_model *m, const dfx_shape *shape, dfx_session *ses) {
    dfx_build_env env[DFX_N_COMPONENTS];
    dfx_model_env(m, env);
    ses->shape = *shape;
    ses->shape.n_steps = dfx_picture_step_capacity(shape->n_steps);
    DFX_TRY(dfx_picture_build(&m->parts.configs, env, &ses->shape, ses->programs));
    for (int i = 0; i < DFX_N_PROGRAMS; i++)
        DFX_TRY(dfx_executor_announce(m->backend, &ses->programs[i]));
    return make_plan(m, shape, ses);
}

static void free_built(dfx_session *ses) {
    dfx_plan_fini(&ses->plan);
    dfx_trace_fini(&ses->trace);
    for (int i = 0; i < DFX_N_PROGRAMS; i++)
        dfx_program_fini(&ses->programs[i]);
}

dfx_status dfx_session_look(dfx_model *m, const dfx_shape *shape) {
    dfx_session *ses;
    if ((m->session.ready && dfx_picture_serves(&m->session.shape, shape)) ||
        dfx_picture_serves(&m->looked, shape))
        return DFX_OK;
    DFX_TRY(dfx_new(&m->sink, "session", &ses));
    dfx_status status = build(m, shape, ses);
    if (status == DFX_OK)
        m->looked = ses->shape;
    free_built(ses);
    dfx_free(ses);
    return status;
}

dfx_status dfx_session_begin(dfx_model *m, const dfx_shape *shape) {
    dfx_session *ses = &m->session;
    if (ses->ready && dfx_picture_serves(&ses->shape, shape))
        return DFX_OK;
    dfx_session_end(m);
    dfx_status status;
    uint64_t begin_ns = dfx_clock_ns();
    DFX_TRY_OUT(status, build(m, shape, ses));
    DFX_TRY_OUT(status, find_pages(m, ses));
    DFX_TRY_OUT(status,
                dfx_visit_clock_init(&ses->clock, &ses->plan, &ses->trace, m->timeline, &m->sink));
    DFX_TRY_OUT(status, allocate(m, ses));
    DFX_TRY_OUT(status, upload_rope(m, ses));
    DFX_TRY_OUT(status, upload_minus(m, ses));
    ses->ready = true;
    dfx_model_span(m, "prepare", begin_ns);
out:
    if (status != DFX_OK)
        dfx_session_end(m);
    return status;
}

void dfx_session_end(dfx_model *m) {
    dfx_session *ses = &m->session;
    dfx_feed_close(ses->feed);
    for (int p = 0; p < DFX_N_PROGRAMS; p++)
        for (int lane = 0; lane < DFX_LANES_MAX; lane++)
            dfx_recorded_fini(&ses->recorded[p][lane], m->backend);
    for (int i = 0; i < 2; i++)
        if (ses->latents[i].ptr)
            m->backend->vt->pinned_free(m->backend, &ses->latents[i]);
    if (ses->diffs.ptr)
        m->backend->vt->pinned_free(m->backend, &ses->diffs);
    if (ses->lora_image.ptr)
        m->backend->vt->pinned_free(m->backend, &ses->lora_image);
    if (ses->arena.ptr)
        m->backend->vt->free(m->backend, &ses->arena);
    if (m->backend)
        m->backend->vt->workspace_free(m->backend);
    free_built(ses);
    dfx_visit_clock_fini(&ses->clock);
    dfx_init_fini(&ses->init);
    dfx_free(ses->sigmas);
    dfx_free(ses->page_idx);
    dfx_free(ses->text_key);
    dfx_free(ses->loras_key);
    *ses = (dfx_session){0};
}

/* The executor's pages: visits of the plan, from the run's first one on. */
typedef struct feed_pages {
    dfx_model *m;
    dfx_feed *feed;
    dfx_backend *backend;
    uint64_t pinned_ns; /* when the ops of the region began, on a backend that runs them at once */
    dfx_status status;  /* of unpinning */
    uint32_t first_visit;
    bool kept; /* the feed is not asked */
} feed_pages;

static dfx_status pin_visit(void *self, uint32_t region, uint32_t page_idx, void **base) {
    feed_pages *f = self;
    uint32_t visit = f->first_visit + region;
    dfx_session *ses = &f->m->session;
    if (f->kept)
        *base = (unsigned char *)ses->arena.ptr + ses->plan.visits[visit].off;
    else
        DFX_TRY(dfx_feed_pin(f->feed, visit, f->m->cancelled, f->m->cancel_user, base));
    dfx_visit_clock_pinned(&ses->clock, visit,
                           f->kept ? DFX_FEED_NO_WAIT : dfx_feed_last_wait(f->feed));
    f->pinned_ns = dfx_clock_ns();
    return f->backend->vt->mark_begin(f->backend, visit);
}

/* The feed may think of writing there again only when the backend can tell it how long the ops take. */
static void unpin_visit(void *self, uint32_t region) {
    feed_pages *f = self;
    uint32_t visit = f->first_visit + region;
    if (!f->backend->vt->visit_times)
        dfx_visit_clock_ended(&f->m->session.clock, visit,
                              (dfx_times){(int64_t)f->pinned_ns, (int64_t)dfx_clock_ns()});
    dfx_status status = f->backend->vt->mark(f->backend, visit);
    if (status == DFX_OK && f->kept)
        f->m->session.kept_visit = visit;
    else if (status == DFX_OK)
        dfx_feed_unpin(f->feed, visit);
    else if (f->status == DFX_OK)
        f->status = status;
}

/* Of the plan, which has as many steps and lanes as the session can make. A shorter picture does without the last steps; a
 * group that is not full without the first decodings, so that what is left out is one piece. */
static uint32_t first_visit_of(const dfx_session *ses, dfx_program_id id, int repeat) {
    int stage = dfx_picture_stage(&ses->shape, id);
    if (id == DFX_PROGRAM_DECODE)
        repeat += ses->n_idle_lanes;
    return ses->plan.stage_first_visit[stage] +
           (uint32_t)repeat * ses->trace.stages[stage].n_regions + ses->first_region[id];
}

static dfx_status upload_steps(dfx_model *m, const float *sigmas, size_t n_steps, float *rows,
                               float *dt) {
    const dfx_session *ses = &m->session;
    const dfx_backend_vtable *vt = m->backend->vt;
    size_t most = (size_t)ses->shape.n_steps;
    for (size_t i = 0; i < most; i++)
        rows[i] = sigmas[i < n_steps ? i : n_steps - 1];
    for (size_t i = 0; i < n_steps; i++)
        dt[i] = sigmas[i + 1] - sigmas[i];
    DFX_TRY(vt->upload(m->backend, ses->state.sigmas, rows, most * sizeof(float)));
    return vt->upload(m->backend, ses->state.dt, dt, most * sizeof(float));
}

/* Rows beyond the steps that are made are conditioned like the last one; nobody reads them. */
dfx_status dfx_session_upload_sigmas(dfx_model *m, int n_steps, int first_step) {
    dfx_session *ses = &m->session;
    size_t most = (size_t)ses->shape.n_steps, n_made = (size_t)(n_steps - first_step);
    float *rows = NULL;
    dfx_free(ses->sigmas);
    ses->sigmas = NULL;
    DFX_TRY(dfx_new_array(&m->sink, (size_t)n_steps + 1, "sigmas", &ses->sigmas));
    DFX_TRY(dfx_new_array(&m->sink, 2 * most, "sigmas", &rows));
    dfx_sigmas_make(&m->parts.configs.sigmas, dfx_picture_tokens(&m->parts.configs, &ses->shape),
                    n_steps, ses->sigmas);
    memmove(ses->sigmas, ses->sigmas + first_step, (n_made + 1) * sizeof(float));
    dfx_status status = upload_steps(m, ses->sigmas, n_made, rows, rows + most);
    dfx_free(rows);
    return status;
}

/* 0: all is sure. */
static uint32_t hold_from(const dfx_session *ses, int n_sure, int n_most) {
    return n_sure < n_most ? first_visit_of(ses, DFX_PROGRAM_STEP, n_sure) : 0;
}

dfx_status dfx_session_group_begin(dfx_model *m, int first_stage, int n_sure, int n_most,
                                   int n_pictures) {
    dfx_session *ses = &m->session;
    ses->n_idle_lanes = ses->shape.n_lanes - n_pictures;
    ses->kept_visit = DFX_NO_VISIT;
    dfx_feed_visits visits = {.first = ses->plan.stage_first_visit[first_stage],
                              .skip_from = first_visit_of(ses, DFX_PROGRAM_STEP, n_most),
                              .skip_to = first_visit_of(ses, DFX_PROGRAM_DECODE, 0),
                              .hold_from = hold_from(ses, n_sure, n_most)};
    if (m->backend->vt->clock_sync)
        DFX_TRY(m->backend->vt->clock_sync(m->backend));
    dfx_visit_clock_begin(&ses->clock, &visits);
    return dfx_feed_begin(ses->feed, &visits);
}

dfx_status dfx_session_sure(dfx_model *m, int n_sure, int n_most) {
    dfx_session *ses = &m->session;
    uint32_t skip_from = first_visit_of(ses, DFX_PROGRAM_STEP, n_most);
    DFX_TRY(dfx_feed_decide(ses->feed, skip_from, hold_from(ses, n_sure, n_most)));
    dfx_visit_clock_skip(&ses->clock, skip_from);
    return DFX_OK;
}

static void tell_driver_bytes(const dfx_model *m) {
    char held[DFX_BYTES_TEXT], limit[DFX_BYTES_TEXT];
    const dfx_executor *ex = &m->session.executor;
    uint64_t bytes = m->backend->vt->driver_bytes(m->backend);
    if (bytes > 0)
        dfx_debug(
            &m->sink,
            "%s: the driver counts %s for this process, the budget is %s; %u regions recorded "
            "in %.1f ms",
            m->backend->name, dfx_bytes_text(bytes, held),
            dfx_bytes_text(m->budget.limit_bytes, limit), ex->n_recorded,
            1e-6 * (double)ex->record_ns);
}

/* The feed waits for the ops of its visits; those beside it write where pages of the next group may come, too. */
void dfx_session_group_end(dfx_model *m) {
    if (m->session.kept_visit != DFX_NO_VISIT)
        m->backend->vt->wait_mark(m->backend, m->session.kept_visit);
    dfx_feed_end(m->session.feed);
    tell_driver_bytes(m);
}

/* kept: beside the feed. */
static dfx_status run_lanes(dfx_model *m, dfx_program_id id, int repeat, void *const *externs,
                            int n_lanes, const bool *takes_part, bool kept) {
    dfx_session *ses = &m->session;
    dfx_lane lanes[DFX_LANES_MAX];
    feed_pages f = {.m = m,
                    .feed = ses->feed,
                    .backend = m->backend,
                    .first_visit = first_visit_of(ses, id, repeat),
                    .kept = kept};
    dfx_page_source pages = {.pin = pin_visit, .unpin = unpin_visit, .self = &f};
    bool records =
        dfx_picture_stage(&ses->shape, id) == dfx_picture_stage(&ses->shape, DFX_PROGRAM_STEP);
    for (int i = 0; i < n_lanes; i++)
        lanes[i] = (dfx_lane){.externs = takes_part && !takes_part[i]
                                             ? NULL
                                             : externs + (size_t)i * ses->programs[id].n_externs,
                              .recorded = records ? &ses->recorded[id][i] : NULL};
    ses->executor.adapters = ses->state.adapters[id];
    dfx_status status = dfx_executor_run_lanes(&ses->executor, &ses->programs[id], &pages, lanes,
                                               (uint32_t)n_lanes);
    return status == DFX_OK ? f.status : status;
}

dfx_status dfx_session_run_lanes(dfx_model *m, dfx_program_id id, int repeat, void *const *externs,
                                 int n_lanes, const bool *takes_part) {
    return run_lanes(m, id, repeat, externs, n_lanes, takes_part, false);
}

dfx_status dfx_session_run_kept(dfx_model *m, dfx_program_id id, int repeat, void *const *externs,
                                int n_lanes, const bool *takes_part) {
    return run_lanes(m, id, repeat, externs, n_lanes, takes_part, true);
}

dfx_status dfx_session_run(dfx_model *m, dfx_program_id id, int repeat, void *const *externs) {
    return run_lanes(m, id, repeat, externs, 1, NULL, false);
}

static uint32_t last_visit_of(const dfx_session *ses, dfx_program_id id, int repeat) {
    return first_visit_of(ses, id, repeat) + ses->programs[id].n_regions - 1;
}

/* Up to `last`, from the one on whose end is not known yet. */
static dfx_status take_times(dfx_model *m, uint32_t last) {
    const dfx_backend_vtable *vt = m->backend->vt;
    dfx_visit_clock *clock = &m->session.clock;
    dfx_times at;
    while (vt->visit_times && clock->next_visit <= last) {
        DFX_TRY(vt->visit_times(m->backend, clock->next_visit, &at));
        dfx_visit_clock_ended(clock, clock->next_visit, at);
    }
    return DFX_OK;
}

dfx_status dfx_session_wait(dfx_model *m, dfx_program_id id, int repeat) {
    uint32_t last = last_visit_of(&m->session, id, repeat);
    DFX_TRY(m->backend->vt->wait_mark(m->backend, last));
    return take_times(m, last);
}

dfx_status dfx_session_wait_reused(dfx_model *m, int repeat) {
    dfx_session *ses = &m->session;
    uint32_t first = first_visit_of(ses, DFX_PROGRAM_STEP, repeat),
             reused = first_visit_of(ses, DFX_PROGRAM_REUSED, repeat);
    DFX_TRY(m->backend->vt->wait_mark(m->backend, reused));
    DFX_TRY(take_times(m, last_visit_of(ses, DFX_PROGRAM_STEP, repeat)));
    dfx_visit_clock_again(&ses->clock, reused);
    DFX_TRY(take_times(m, reused));
    dfx_visit_clock_again(&ses->clock, first);
    return DFX_OK;
}

/* The part's mark is made again, behind the copies. */
dfx_status dfx_session_diffs(dfx_model *m, int repeat, int n_lanes, float *out) {
    dfx_session *ses = &m->session;
    const dfx_backend_vtable *vt = m->backend->vt;
    uint32_t visit = last_visit_of(ses, DFX_PROGRAM_STEP, repeat);
    size_t bytes = (size_t)n_lanes * sizeof(float);
    DFX_TRY(vt->download_begin(m->backend, ses->diffs.ptr, ses->state.diff, bytes));
    DFX_TRY(vt->mark(m->backend, visit));
    DFX_TRY(vt->wait_mark(m->backend, visit));
    memcpy(out, ses->diffs.ptr, bytes);
    return DFX_OK;
}

/* The step's mark is made again, behind the copies. */
dfx_status dfx_session_keep_latents(dfx_model *m, int step, int repeat, int n_lanes) {
    dfx_session *ses = &m->session;
    const dfx_backend_vtable *vt = m->backend->vt;
    dfx_program_id last_part = ses->shape.reuses ? DFX_PROGRAM_REST : DFX_PROGRAM_STEP;
    for (int lane = 0; lane < n_lanes; lane++)
        DFX_TRY(vt->download_begin(m->backend, dfx_session_latents(m, step, lane),
                                   ses->state.x[lane], latent_bytes(m)));
    return vt->mark(m->backend, last_visit_of(ses, last_part, repeat));
}

void *dfx_session_latents(const dfx_model *m, int step, int lane) {
    return (unsigned char *)m->session.latents[step % 2].ptr + (size_t)lane * latent_bytes(m);
}
