/* What a request may be: everything that can be refused is refused here, before anything is computed. */
#include <math.h>
#include <string.h>

#include "models/model.h"

void dfx_request_init(const dfx_model *m, dfx_request *out) {
    *out = (dfx_request){.prompt = "",
                         .width = (int)m->parts.defaults.shape.width,
                         .height = (int)m->parts.defaults.shape.height,
                         .steps = m->parts.defaults.shape.n_steps,
                         .guidance = 3.5f,
                         .text_length = (int)m->parts.defaults.shape.n_text};
}

static dfx_status check_int(const dfx_model *m, const char *what, int64_t value, int64_t min,
                            int64_t max) {
    if (value >= min && value <= max)
        return DFX_OK;
    return dfx_fail(&m->sink, DFX_E_USAGE,
                    "%s: wanted a whole number from %lld to %lld, found %lld", what, (long long)min,
                    (long long)max, (long long)value);
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
    return DFX_OK;
}
