#include "offload/placement.h"

static size_t max_size(size_t a, size_t b) {
    return a > b ? a : b;
}

dfx_status dfx_placement_make(dfx_stage_need *stages, size_t n_stages, const dfx_fixed_need *fixed,
                              size_t budget_bytes, const dfx_sink *sink, size_t *peak_bytes) {
    size_t fixed_bytes = fixed->activation_bytes + fixed->state_bytes + fixed->workspace_bytes;
    size_t all = 0, least = 0;
    for (size_t i = 0; i < n_stages; i++) {
        all += stages[i].page_bytes;
        least = max_size(least, stages[i].page_bytes_max);
    }
    if (fixed_bytes > budget_bytes || least > budget_bytes - fixed_bytes) {
        char act[DFX_BYTES_TEXT], state[DFX_BYTES_TEXT], work[DFX_BYTES_TEXT], page[DFX_BYTES_TEXT],
            have[DFX_BYTES_TEXT], need[DFX_BYTES_TEXT];
        return dfx_fail(sink, DFX_E_NOFIT,
                        "does not fit the budget of %s: activations %s, state %s, workspace %s, "
                        "largest page of weights "
                        "%s; give at least %s (--vram-budget %zu), or choose a smaller size",
                        dfx_bytes_text(budget_bytes, have),
                        dfx_bytes_text(fixed->activation_bytes, act),
                        dfx_bytes_text(fixed->state_bytes, state),
                        dfx_bytes_text(fixed->workspace_bytes, work), dfx_bytes_text(least, page),
                        dfx_bytes_text(fixed_bytes + least, need), fixed_bytes + least);
    }
    size_t room = budget_bytes - fixed_bytes, held = 0;
    bool keep_all = all <= room;
    for (size_t i = 0; i < n_stages; i++) {
        dfx_stage_need *s = &stages[i];
        s->residency = s->page_bytes <= room ? DFX_KEEP : DFX_STREAM;
        s->drop_after = !keep_all;
        held = max_size(held, s->residency == DFX_KEEP ? s->page_bytes : s->page_bytes_max);
        if (s->residency == DFX_STREAM)
            dfx_info(sink,
                     "the weights of %s do not fit the budget at once: reading them page by page, "
                     "which is slow",
                     s->name);
    }
    *peak_bytes = fixed_bytes + (keep_all ? all : held);
    return DFX_OK;
}
