/* The calls that make pictures: a request is checked, the session built for it, and the pictures are made in groups of as many
 * as it has lanes. */
#include "models/model.h"
#include "models/pipeline.h"

static dfx_shape shape_of(const dfx_request *request, int n_pictures) {
    return (dfx_shape){.width = request->width / DFX_SIZE_MULTIPLE * DFX_SIZE_MULTIPLE,
                       .height = request->height / DFX_SIZE_MULTIPLE * DFX_SIZE_MULTIPLE,
                       .n_text = request->text_length,
                       .n_steps = request->steps - dfx_request_first_step(request),
                       .n_pictures = n_pictures,
                       .has_init = request->init_rgb != NULL,
                       .reuses = request->reuse > 0};
}

static dfx_status validate(dfx_model *m, const dfx_request *request, int n_pictures) {
    DFX_TRY(dfx_request_validate(m, request));
    if (n_pictures < 1)
        return dfx_fail(&m->sink, DFX_E_USAGE, "pictures: wanted at least 1, found %d", n_pictures);
    return dfx_loras_check(m, request);
}

dfx_status dfx_request_check_batch(dfx_model *m, const dfx_request *request, int n_pictures) {
    DFX_TRY(validate(m, request, n_pictures));
    dfx_shape shape = shape_of(request, n_pictures);
    return dfx_session_begin(m, &shape);
}

dfx_status dfx_request_look(dfx_model *m, const dfx_request *request, int n_pictures) {
    DFX_TRY(validate(m, request, n_pictures));
    dfx_shape shape = shape_of(request, n_pictures);
    return dfx_session_look(m, &shape);
}

dfx_status dfx_request_check(dfx_model *m, const dfx_request *request) {
    return dfx_request_check_batch(m, request, 1);
}

/* A size that was changed, or is far from what the model was made for: a tenth to twice the pixels of its default. */
static void warn_size(const dfx_model *m, const dfx_request *request, const dfx_shape *shape) {
    int64_t pixels = shape->width * shape->height,
            usual = m->parts.defaults.shape.width * m->parts.defaults.shape.height;
    if (shape->width != request->width || shape->height != request->height)
        dfx_warn(&m->sink, "size %dx%d is rounded down to %lldx%lld, multiples of %d",
                 request->width, request->height, (long long)shape->width, (long long)shape->height,
                 DFX_SIZE_MULTIPLE);
    if (pixels * 10 < usual || pixels > usual * 2)
        dfx_warn(&m->sink,
                 "%lldx%lld is far from the %dx%d that %s was made for: expect odd pictures",
                 (long long)shape->width, (long long)shape->height,
                 (int)m->parts.defaults.shape.width, (int)m->parts.defaults.shape.height, m->name);
}

/* Who is asked, between ops and while pages are waited for. */
static void set_cancel(dfx_model *m, bool (*cancelled)(void *user), void *user) {
    m->cancelled = cancelled;
    m->cancel_user = user;
    m->backend->vt->set_cancel(m->backend, cancelled, user);
}

static dfx_image asked_for(const dfx_model *m, const dfx_request *request, int picture) {
    const dfx_init *init = &m->session.init;
    return (dfx_image){.width = (int)m->session.shape.width,
                       .height = (int)m->session.shape.height,
                       .seed = request->seed + (uint64_t)picture,
                       .steps = request->steps,
                       .text_length = request->text_length,
                       .reuse = request->reuse,
                       .attention_bits = m->attention_codes ? 8 : 16,
                       .guidance = m->parts.configs.flux.has_guidance ? request->guidance : 0,
                       .strength = request->init_rgb ? request->strength : 0,
                       .init_checksum = init->checksum,
                       .has_mask = request->mask != NULL};
}

/* Pictures of the group that were not finished are nobody's. */
static dfx_status draw_group(dfx_model *m, const dfx_request *request, dfx_group *group) {
    for (int i = 0; i < group->n; i++)
        group->images[i] = asked_for(m, request, group->first + i);
    dfx_status status = dfx_group_draw(m, request, group);
    for (int i = group->n_made; i < group->n; i++)
        dfx_image_free(&group->images[i]);
    return status;
}

/* As few groups as there must be, of about one size: five pictures in four lanes are two and three. */
static dfx_status draw_groups(dfx_model *m, const dfx_request *request, int n, dfx_image *out,
                              uint64_t begin_ns) {
    int n_lanes = m->session.shape.n_lanes, n_groups = (n + n_lanes - 1) / n_lanes, first = 0;
    for (int i = 0; i < n_groups; i++) {
        dfx_group group = {.first = first,
                           .n = (n - first) / (n_groups - i),
                           .n_pictures = n,
                           .images = out + first,
                           .begin_ns = begin_ns};
        DFX_TRY(draw_group(m, request, &group));
        first += group.n;
        begin_ns = dfx_clock_ns();
    }
    return DFX_OK;
}

dfx_status dfx_generate_batch(dfx_model *m, const dfx_request *request, int n, dfx_image *out) {
    uint64_t begin_ns = dfx_clock_ns();
    for (int i = 0; i < n; i++)
        out[i] = (dfx_image){0};
    DFX_TRY(dfx_request_check_batch(m, request, n));
    warn_size(m, request, &m->session.shape);
    DFX_TRY(dfx_init_begin(m, request));
    DFX_TRY(dfx_loras_apply(m, request));
    set_cancel(m, request->cancelled, request->user);
    dfx_status status = draw_groups(m, request, n, out, begin_ns);
    set_cancel(m, NULL, NULL);
    dfx_model_trace_write(m);
    return status;
}

dfx_status dfx_generate(dfx_model *m, const dfx_request *request, dfx_image *out) {
    dfx_image image;
    DFX_TRY(dfx_generate_batch(m, request, 1, &image));
    *out = image;
    return DFX_OK;
}
