/* What a device does beside its ops: recordings give the bits of op by op, copies and ops wait for each other as they are told
 * to, no memory is taken once a step has been made, and memory that is not there is refused in one sentence. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/device_checks.h"
#include "tests/device_program.h"
#include "tests/golden_flux.h"

enum { N_STEPS = 3, N_MORE_STEPS = 5, C = 64, TEXT_BYTES = 256 };

static void must(dfx_status status, const char *what) {
    if (status != DFX_OK)
        fail_msg("%s: %s", what, dfx_status_text(status));
}

/* ---- The step of the tiny FLUX.1 dev, 8x12 latents and 33 tokens of text. */

typedef struct step_rig {
    model_rig *r;
    flux_run f;
    dfx_program program;
    device_program d;
    int64_t n; /* values of the latents */
} step_rig;

enum { STEP_X, STEP_TXT, STEP_MOD, STEP_COS, STEP_SIN, STEP_DT, STEP_V };

static step_rig *begin_step(device_checks *c) {
    step_rig *s = calloc(1, sizeof(*s));
    if (!s)
        abort();
    s->r = mrig_open_on(c->backend, c->sink, c->dir);
    s->f = flux_begin(s->r, &GOLDEN_FLUX_CASES[2]);
    s->n = s->f.Ti * C;
    flux_run_cond(&s->f, 0);
    must(dfx_flux_build_step(&s->f.config, &s->f.env, s->f.Tt, s->f.Ti, &s->program), "step");
    device_program_open(&s->d, c->backend, &s->program, c->sink);
    const float dt = -0.25f;
    device_program_put(&s->d, STEP_TXT, s->f.txt);
    device_program_put(&s->d, STEP_MOD, s->f.mod);
    device_program_put(&s->d, STEP_COS, s->f.cos);
    device_program_put(&s->d, STEP_SIN, s->f.sin);
    device_program_put(&s->d, STEP_DT, &dt);
    return s;
}

static void end_step(step_rig *s) {
    device_program_close(&s->d);
    dfx_program_fini(&s->program);
    mrig_close(s->r);
    free(s);
}

/* Latents after N_STEPS steps from the case's; the rig's. */
static const float *latents(step_rig *s, dfx_recorded *recorded) {
    float *x = mrig_floats(s->r, s->n);
    device_program_put(&s->d, STEP_X, flux_in(&s->f, "hidden_states", s->n, 0));
    for (int i = 0; i < N_STEPS; i++)
        device_program_run(&s->d, recorded, NULL, NULL);
    device_program_get(&s->d, STEP_X, x);
    return x;
}

static int64_t n_other(const float *a, const float *b, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += memcmp(&a[i], &b[i], sizeof(*a)) != 0;
    return count;
}

/* With the recordings: while they are made, and from what was made. */
static void check_recorded(device_checks *c) {
    static const char name[] = "DEVICE recorded steps are those of op by op";
    char why[TEXT_BYTES];
    if (!c->wanted(c->user, name))
        return;
    step_rig *s = begin_step(c);
    dfx_recorded recorded = {0};
    const float *one_by_one = latents(s, NULL), *made = latents(s, &recorded);
    uint32_t n_made = recorded.n;
    const float *replayed = latents(s, &recorded);
    int64_t other = n_other(made, one_by_one, s->n) + n_other(replayed, one_by_one, s->n);
    snprintf(why, sizeof(why), "%" PRId64 " of %" PRId64 " values differ; %u of %u regions kept",
             other, 2 * s->n, n_made, s->program.n_regions);
    bool moved = n_other(one_by_one, flux_in(&s->f, "hidden_states", s->n, 0), s->n) > s->n / 2;
    c->verdict(c->user, name,
               other == 0 && moved && n_made == s->program.n_regions && recorded.n == n_made, why);
    dfx_recorded_fini(&recorded, c->backend);
    end_step(s);
}

/* The first steps load kernels and make recordings; those after them take nothing. */
static void check_memory(device_checks *c) {
    static const char name[] = "DEVICE no memory is taken after the first step";
    char why[TEXT_BYTES];
    if (!c->wanted(c->user, name))
        return;
    step_rig *s = begin_step(c);
    dfx_recorded recorded = {0};
    float *v = mrig_floats(s->r, s->n);
    device_program_put(&s->d, STEP_X, flux_in(&s->f, "hidden_states", s->n, 0));
    device_program_run(&s->d, &recorded, NULL, NULL);
    device_program_get(&s->d, STEP_V, v);
    uint64_t bytes = c->held_bytes(c->backend), n_allocs = c->n_allocs(c->backend);
    for (int i = 0; i < N_MORE_STEPS; i++) {
        device_program_run(&s->d, &recorded, NULL, NULL);
        device_program_get(&s->d, STEP_V, v);
    }
    uint64_t bytes_after = c->held_bytes(c->backend), n_after = c->n_allocs(c->backend);
    snprintf(why, sizeof(why),
             "%" PRIu64 " bytes held after 1 step, %" PRIu64 " after %d; %" PRIu64 " allocations",
             bytes, bytes_after, 1 + N_MORE_STEPS, n_after - n_allocs);
    c->verdict(c->user, name, bytes > 0 && bytes_after == bytes && n_after == n_allocs, why);
    dfx_recorded_fini(&recorded, c->backend);
    end_step(s);
}

/* ---- Copies beside ops: pages p = 0, 1, ... of values p + 1 through two places, each added to a sum when it is there. */

enum { PAGE_COLS = 4096, N_PAGES = 8, N_PLACES = 2, N_DELAYS = 64 };

typedef struct copy_rig {
    dfx_backend *be;
    int64_t rows;
    size_t bytes; /* of a page */
    dfx_mem pages[N_PAGES], out, places[N_PLACES], sum, idle, zero;
} copy_rig;

static void fill(void *values, float value, size_t n) {
    uint16_t bits = dfx_f32_to_bf16(value);
    for (size_t i = 0; i < n; i++)
        ((uint16_t *)values)[i] = bits;
}

static dfx_op_call add_call(const copy_rig *g, const dfx_mem *to, const dfx_mem *what) {
    const dfx_mat m = {
        .rows = g->rows, .cols = PAGE_COLS, .ld = PAGE_COLS, .dtype = DFX_DTYPE_BF16};
    dfx_op_call call = {.kind = DFX_OP_ADD, .m = {m, m, m}};
    call.m[0].ptr = call.m[DFX_BIN_A].ptr = to->ptr;
    call.m[DFX_BIN_B].ptr = what->ptr;
    return call;
}

static void add(const copy_rig *g, const dfx_mem *to, const dfx_mem *what) {
    const dfx_op_call call = add_call(g, to, what);
    must(g->be->vt->run(g->be, &call), "add");
}

static void put(const copy_rig *g, const dfx_mem *to, float value) {
    void *host = malloc(g->bytes);
    if (!host)
        abort();
    fill(host, value, g->bytes / sizeof(uint16_t));
    must(g->be->vt->upload(g->be, to->ptr, host, g->bytes), "upload");
    free(host);
}

static void begin_copies(copy_rig *g, dfx_backend *be, int64_t rows) {
    *g = (copy_rig){.be = be, .rows = rows, .bytes = (size_t)(rows * PAGE_COLS) * 2};
    for (int p = 0; p < N_PAGES; p++) {
        must(be->vt->pinned_alloc(be, g->bytes, "page", &g->pages[p]), "pinned page");
        fill(g->pages[p].ptr, (float)(p + 1), g->bytes / sizeof(uint16_t));
    }
    must(be->vt->pinned_alloc(be, g->bytes, "out", &g->out), "pinned out");
    for (int i = 0; i < N_PLACES; i++)
        must(be->vt->alloc(be, g->bytes, "place", &g->places[i]), "place");
    must(be->vt->alloc(be, g->bytes, "sum", &g->sum), "sum");
    must(be->vt->alloc(be, g->bytes, "idle", &g->idle), "idle");
    must(be->vt->alloc(be, g->bytes, "zero", &g->zero), "zero");
    const dfx_op_call call = add_call(g, &g->sum, &g->zero);
    must(be->vt->prepare(be, &call), "add");
    must(be->vt->workspace_alloc(be), "workspace");
    put(g, &g->zero, 0);
}

static void end_copies(copy_rig *g) {
    const dfx_backend_vtable *vt = g->be->vt;
    for (int p = 0; p < N_PAGES; p++)
        vt->pinned_free(g->be, &g->pages[p]);
    vt->pinned_free(g->be, &g->out);
    for (int i = 0; i < N_PLACES; i++)
        vt->free(g->be, &g->places[i]);
    vt->free(g->be, &g->sum);
    vt->free(g->be, &g->idle);
    vt->free(g->be, &g->zero);
    vt->workspace_free(g->be);
}

/* Visit and copy numbers count on from `first`. n_delays ops come between a page's arrival and its use. */
static void visit_pages(copy_rig *g, uint32_t first, int n_delays) {
    const dfx_backend_vtable *vt = g->be->vt;
    put(g, &g->sum, 0);
    put(g, &g->idle, 0);
    put(g, &g->places[0], 0);
    put(g, &g->places[1], 0);
    must(vt->mark(g->be, first + N_PAGES), "mark");
    must(vt->wait_mark(g->be, first + N_PAGES), "wait for a mark"); /* copies begin at once */
    for (uint32_t p = 0; p < N_PLACES; p++)
        must(vt->copy_begin(g->be, first + p, DFX_NO_MARK, g->places[p].ptr, g->pages[p].ptr,
                            g->bytes),
             "copy");
    for (uint32_t p = 0; p < N_PAGES; p++) {
        const dfx_mem *place = &g->places[p % N_PLACES];
        must(vt->copy_join(g->be, first + p), "join");
        for (int i = 0; i < n_delays; i++)
            add(g, &g->idle, &g->zero);
        add(g, &g->sum, place);
        must(vt->mark(g->be, first + p), "mark");
        must(vt->copy_wait(g->be, first + p), "wait for a copy");
        if (p + N_PLACES < N_PAGES)
            must(vt->copy_begin(g->be, first + p + N_PLACES, first + p, place->ptr,
                                g->pages[p + N_PLACES].ptr, g->bytes),
                 "copy");
    }
    fill(g->out.ptr, -1, g->bytes / sizeof(uint16_t));
    must(vt->download_begin(g->be, g->out.ptr, g->sum.ptr, g->bytes), "download");
    must(vt->mark(g->be, first + N_PAGES), "mark");
    must(vt->wait_mark(g->be, first + N_PAGES), "wait for a mark");
}

/* 1 + 2 + ... + 8: every partial sum is a BF16. */
static size_t n_wrong_sums(const copy_rig *g) {
    uint16_t want = dfx_f32_to_bf16(N_PAGES * (N_PAGES + 1) / 2);
    size_t n = 0;
    for (size_t i = 0; i < g->bytes / sizeof(uint16_t); i++)
        n += ((const uint16_t *)g->out.ptr)[i] != want;
    return n;
}

/* Slow visits: a copy that did not wait for its mark would write over a page that is still to be read. Quick ones: ops that did
 * not wait for their copy would read the page before. */
static void check_copies(device_checks *c, uint32_t first, int n_delays, const char *name) {
    char why[TEXT_BYTES];
    if (!c->wanted(c->user, name))
        return;
    copy_rig g;
    begin_copies(&g, c->backend, c->copy_rows);
    visit_pages(&g, first, n_delays);
    size_t n_wrong = n_wrong_sums(&g);
    snprintf(why, sizeof(why), "%zu of %zu sums wrong", n_wrong, g.bytes / sizeof(uint16_t));
    c->verdict(c->user, name, n_wrong == 0, why);
    end_copies(&g);
}

void device_streams(device_checks *c) {
    check_recorded(c);
    check_memory(c);
    check_copies(c, 0, N_DELAYS, "DEVICE copies wait for the mark of the visit before");
    check_copies(c, N_PAGES + 1, 0, "DEVICE ops wait for the copy that they join");
}
