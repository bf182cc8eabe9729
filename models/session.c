#include "models/session.h"

#include "models/model.h"
#include "offload/planner.h"

/* Decide where everything will be; nothing of the session is on the device yet. */
static dfx_status make_plan(dfx_model *m, dfx_session *ses) {
    dfx_state unused;
    DFX_TRY(
        dfx_picture_trace(ses->programs, ses->shape.n_steps, &m->profile, &m->sink, &ses->trace));
    dfx_plan_problem problem = {
        .pages = ses->trace.pages,
        .stages = ses->trace.stages,
        .n_pages = ses->trace.n_pages,
        .n_stages = ses->trace.n_stages,
        .budget_bytes = m->budget.limit_bytes,
        .workspace_bytes = m->backend->vt->workspace_bytes(m->backend),
        .state_bytes =
            dfx_picture_state(&m->parts.configs, &ses->shape, m->backend->act_dtype, NULL, &unused),
        .ram_budget_bytes = m->ram_budget_bytes,
        .offload = m->offload,
        .profile = &m->profile};
    return dfx_plan_make(&problem, &m->sink, &ses->plan);
}

/* Every page of every program lies in the file as it will be read. */
static dfx_status find_pages(dfx_model *m, dfx_session *ses) {
    uint32_t n = 0;
    DFX_TRY(dfx_new_array(&m->sink, ses->trace.n_pages, "session", &ses->page_idx));
    for (int p = 0; p < DFX_N_PROGRAMS; p++) {
        const dfx_program *program = &ses->programs[p];
        for (uint32_t i = 0; i < program->n_pages; i++) {
            DFX_TRY(dfx_packed_check_page(m->packed, program, i, &m->sink));
            ses->page_idx[n++] = (uint32_t)dfx_packed_page_of(m->packed, program, i);
        }
        bool follows = p > 0 && dfx_picture_stage((dfx_program_id)p) ==
                                    dfx_picture_stage((dfx_program_id)(p - 1));
        ses->first_region[p] = follows ? ses->first_region[p - 1] +
                                             dfx_trace_regions(&ses->programs[p - 1], NULL, NULL)
                                       : 0;
    }
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

static dfx_status allocate(dfx_model *m, dfx_session *ses) {
    const dfx_plan *plan = &ses->plan;
    DFX_TRY(reserve(m, plan));
    DFX_TRY(m->backend->vt->workspace_alloc(m->backend));
    DFX_TRY(m->backend->vt->alloc(m->backend, plan->arena_bytes, "arena", &ses->arena));
    size_t state_bytes = dfx_picture_state(&m->parts.configs, &ses->shape, m->backend->act_dtype,
                                           ses->arena.ptr, &ses->state);
    ses->executor = (dfx_executor){.backend = m->backend,
                                   .sink = &m->sink,
                                   .activations = (unsigned char *)ses->arena.ptr + state_bytes};
    for (uint32_t s = 0; s < ses->trace.n_stages; s++)
        if (ses->trace.stages[s].activation_bytes > ses->executor.activation_bytes)
            ses->executor.activation_bytes = ses->trace.stages[s].activation_bytes;
    dfx_feed_options feed = {.plan = plan,
                             .packed = m->packed,
                             .page_idx = ses->page_idx,
                             .backend = m->backend,
                             .arena = ses->arena.ptr,
                             .queue_depth = m->profile.disk_queue_depth,
                             .verify = m->verify,
                             .unified = m->profile.unified,
                             .timeline = m->timeline};
    return dfx_feed_open(&feed, &m->sink, &ses->feed);
}

/* What depends on the shape alone: RoPE tables, sigmas and their differences. */
static dfx_status upload_tables(dfx_model *m, dfx_session *ses) {
    const dfx_shape *s = &ses->shape;
    int64_t h = dfx_picture_latents(&m->parts.configs, s->height) / 2,
            w = dfx_picture_latents(&m->parts.configs, s->width) / 2;
    size_t n = (size_t)((s->n_text + h * w) * (m->parts.configs.flux.head_size / 2)),
           steps = (size_t)s->n_steps;
    const dfx_backend_vtable *vt = m->backend->vt;
    float *cos_table, *sin_table, *sigmas = NULL, *dt = NULL;
    DFX_TRY(dfx_new_array(&m->sink, 2 * n, "rope", &cos_table));
    sin_table = cos_table + n;
    dfx_flux_rope(&m->parts.configs.flux, s->n_text, h, w, cos_table, sin_table);
    dfx_status status;
    DFX_TRY_OUT(status, vt->upload(m->backend, ses->state.cos, cos_table, n * sizeof(float)));
    DFX_TRY_OUT(status, vt->upload(m->backend, ses->state.sin, sin_table, n * sizeof(float)));
    DFX_TRY_OUT(status, dfx_new_array(&m->sink, 2 * steps + 1, "sigmas", &sigmas));
    dt = sigmas + steps + 1;
    dfx_sigmas_make(&m->parts.configs.sigmas, h * w, s->n_steps, sigmas);
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
    uint64_t begin_ns = dfx_clock_ns();
    dfx_build_env env[DFX_N_COMPONENTS];
    dfx_model_env(m, env);
    DFX_TRY_OUT(status, dfx_picture_build(&m->parts.configs, env, shape, ses->programs));
    for (int i = 0; i < DFX_N_PROGRAMS; i++)
        DFX_TRY_OUT(status, dfx_executor_announce(m->backend, &ses->programs[i]));
    DFX_TRY_OUT(status, make_plan(m, ses));
    DFX_TRY_OUT(status, find_pages(m, ses));
    DFX_TRY_OUT(status, allocate(m, ses));
    DFX_TRY_OUT(status, upload_tables(m, ses));
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
    if (ses->arena.ptr)
        m->backend->vt->free(m->backend, &ses->arena);
    if (m->backend)
        m->backend->vt->workspace_free(m->backend);
    dfx_plan_fini(&ses->plan);
    dfx_trace_fini(&ses->trace);
    for (int i = 0; i < DFX_N_PROGRAMS; i++)
        dfx_program_fini(&ses->programs[i]);
    dfx_free(ses->page_idx);
    dfx_free(ses->text_key);
    *ses = (dfx_session){0};
}

/* A pin that waits no longer than this has not waited, for the timeline. */
enum { STALL_NS = 20000 };

/* The executor's pages: visits of the plan, from the run's first one on. */
typedef struct feed_pages {
    dfx_model *m;
    dfx_feed *feed;
    dfx_backend *backend;
    uint64_t pinned_ns; /* when the ops of the region began */
    dfx_status status;  /* of unpinning */
    uint32_t first_visit;
    bool (*cancelled)(void *user);
    void *user;
} feed_pages;

/* By the page's name in the file, as the feed names it. */
static void note_visit(const feed_pages *f, dfx_track track, uint32_t visit, uint64_t begin_ns,
                       uint64_t end_ns) {
    const dfx_session *ses = &f->m->session;
    uint32_t page_idx = ses->page_idx[ses->plan.visits[visit].page_idx];
    dfx_timeline_span(f->m->timeline, track, dfx_packed_page_at(f->m->packed, page_idx)->name,
                      begin_ns, end_ns, 0);
}

static dfx_status pin_visit(void *self, uint32_t region, uint32_t page_idx, void **base) {
    feed_pages *f = self;
    uint32_t visit = f->first_visit + region;
    uint64_t begin_ns = dfx_clock_ns();
    DFX_TRY(dfx_feed_pin(f->feed, visit, f->cancelled, f->user, base));
    f->pinned_ns = dfx_clock_ns();
    if (f->pinned_ns - begin_ns > STALL_NS)
        note_visit(f, DFX_TRACK_STALL, visit, begin_ns, f->pinned_ns);
    return DFX_OK;
}

/* The feed may think of writing there again only when the backend can tell it how long the ops take. */
static void unpin_visit(void *self, uint32_t region) {
    feed_pages *f = self;
    uint32_t visit = f->first_visit + region;
    if (f->backend->host_visible) /* else the ops are queued, and have not run */
        note_visit(f, DFX_TRACK_COMPUTE, visit, f->pinned_ns, dfx_clock_ns());
    dfx_status status = f->backend->vt->mark(f->backend, visit);
    if (status == DFX_OK)
        dfx_feed_unpin(f->feed, visit);
    else if (f->status == DFX_OK)
        f->status = status;
}

dfx_status dfx_session_run(dfx_model *m, dfx_program_id id, int step, void *const *externs) {
    dfx_session *ses = &m->session;
    const dfx_plan_stage *stage = &ses->trace.stages[dfx_picture_stage(id)];
    feed_pages f = {.m = m,
                    .feed = ses->feed,
                    .backend = m->backend,
                    .first_visit = ses->plan.stage_first_visit[dfx_picture_stage(id)] +
                                   (uint32_t)step * stage->n_regions + ses->first_region[id],
                    .cancelled = m->cancelled,
                    .user = m->cancel_user};
    dfx_page_source pages = {.pin = pin_visit, .unpin = unpin_visit, .self = &f};
    dfx_status status = dfx_executor_run(&ses->executor, &ses->programs[id], &pages, externs);
    return status == DFX_OK ? f.status : status;
}
