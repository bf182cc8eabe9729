/* What a request may be: everything that can be refused is refused here, before anything is computed. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "models/model.h"

void dfx_request_init(const dfx_model *m, dfx_request *out) {
    *out = (dfx_request){.prompt = "",
                         .width = (int)m->parts.defaults.shape.width,
                         .height = (int)m->parts.defaults.shape.height,
                         .steps = m->parts.defaults.shape.n_steps,
                         .guidance = 3.5f,
                         .text_length = (int)m->parts.defaults.shape.n_text,
                         .strength = 0.6};
}

int dfx_request_first_step(const dfx_request *r) {
    return r->init_rgb ? dfx_init_first_step(r->strength, r->steps) : 0;
}

static dfx_status check_int(const dfx_model *m, const char *what, int64_t value, int64_t min,
                            int64_t max) {
    if (value >= min && value <= max)
        return DFX_OK;
    return dfx_fail(&m->sink, DFX_E_USAGE,
                    "%s: wanted a whole number from %lld to %lld, found %lld", what, (long long)min,
                    (long long)max, (long long)value);
}

static dfx_status check_encoder(const dfx_model *m) {
    static const char name[] = "encoder.conv_in.weight";
    const char *folder = dfx_component_places[DFX_VAE].folder;
    if (dfx_tensors_find(dfx_packed_tensors(m->packed, folder), name))
        return DFX_OK;
    return dfx_fail(&m->sink, DFX_E_FORMAT,
                    "%s: an init picture needs the VAE's encoder, and there is no %s/%s: the "
                    "checkpoint that was packed had a decoder only; pack one that has both",
                    m->path, folder, name);
}

static dfx_status check_init(const dfx_model *m, const dfx_request *r) {
    if (!r->init_rgb && !r->mask)
        return DFX_OK;
    if (!r->init_rgb)
        return dfx_fail(&m->sink, DFX_E_USAGE,
                        "mask: wanted an init picture that it belongs to, found none");
    DFX_TRY(check_int(m, "width of the init picture", r->init_width, 1, INT_MAX));
    DFX_TRY(check_int(m, "height of the init picture", r->init_height, 1, INT_MAX));
    if ((int64_t)r->init_width * r->init_height > DFX_INIT_PIXELS_MAX)
        return dfx_fail(&m->sink, DFX_E_USAGE,
                        "init picture: wanted at most 2^28 pixels, found %dx%d", r->init_width,
                        r->init_height);
    if (!(r->strength > 0 && r->strength <= 1))
        return dfx_fail(&m->sink, DFX_E_USAGE,
                        "strength: wanted a number above 0, at most 1, found %g", r->strength);
    if (dfx_request_first_step(r) >= r->steps)
        return dfx_fail(&m->sink, DFX_E_USAGE,
                        "strength %g of %d steps leaves none to make; wanted more of either",
                        r->strength, r->steps);
    return check_encoder(m);
}

/* The multiple of DFX_SIZE_MULTIPLE that is nearest. */
static int rounded_side(double pixels) {
    double side = floor(pixels / DFX_SIZE_MULTIPLE + 0.5) * DFX_SIZE_MULTIPLE;
    return (int)fmin(fmax(side, DFX_SIZE_MULTIPLE), DFX_SIDE_MAX);
}

void dfx_request_size_of_init(const dfx_model *m, dfx_request *r) {
    const dfx_shape *usual = &m->parts.defaults.shape;
    double width = r->init_width, height = r->init_height,
           most = (double)(usual->width * usual->height),
           scale = fmin(sqrt(most / (width * height)), 1);
    if (r->width > 0)
        scale = r->width / width;
    else if (r->height > 0)
        scale = r->height / height;
    if (r->width <= 0)
        r->width = rounded_side(width * scale);
    if (r->height <= 0)
        r->height = rounded_side(height * scale);
}

dfx_status dfx_request_validate(const dfx_model *m, const dfx_request *r) {
    DFX_TRY(check_int(m, "width", r->width, DFX_SIZE_MULTIPLE, DFX_SIDE_MAX));
    DFX_TRY(check_int(m, "height", r->height, DFX_SIZE_MULTIPLE, DFX_SIDE_MAX));
    if ((int64_t)r->width * r->height > DFX_PIXELS_MAX)
        return dfx_fail(&m->sink, DFX_E_USAGE,
                        "size: wanted at most %d pixels (4096x4096), found %dx%d", DFX_PIXELS_MAX,
                        r->width, r->height);
    DFX_TRY(check_int(m, "steps", r->steps, 1, DFX_STEPS_MAX));
    DFX_TRY(check_int(m, "text length", r->text_length, 1, m->parts.defaults.max_text_length));
    if (!isfinite(r->guidance) || r->guidance < 0)
        return dfx_fail(&m->sink, DFX_E_USAGE, "guidance: wanted a number from 0 up, found %g",
                        (double)r->guidance);
    if (!isfinite(r->reuse) || r->reuse < 0)
        return dfx_fail(&m->sink, DFX_E_USAGE, "reuse: wanted a number from 0 up, found %g",
                        (double)r->reuse);
    if (r->reuse > 0 && m->parts.configs.flux.n_double < 1)
        return dfx_fail(
            &m->sink, DFX_E_USAGE,
            "reuse: wanted a model that begins with a block of two streams, %s has none", m->name);
    if (!r->prompt)
        return dfx_fail(&m->sink, DFX_E_USAGE,
                        "prompt: wanted a text (an empty one is fine), found none");
    if (strlen(r->prompt) > DFX_PROMPT_BYTES_MAX)
        return dfx_fail(&m->sink, DFX_E_USAGE, "prompt: wanted at most %d bytes, found %zu",
                        DFX_PROMPT_BYTES_MAX, strlen(r->prompt));
    return check_init(m, r);
}
