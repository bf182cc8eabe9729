#include "models/parts.h"

static dfx_status load(const dfx_bundle *bundle, const dfx_sink *sink, dfx_parts *p) {
    DFX_TRY(dfx_configs_load(bundle, sink, &p->configs));
    DFX_TRY(dfx_tok_clip_open(bundle, "tokenizer", sink, &p->tok_clip));
    DFX_TRY(dfx_tok_t5_open(bundle, "tokenizer_2", sink, &p->tok_t5));
    DFX_TRY(dfx_configs_agree(bundle, sink, "the CLIP tokenizer's vocabulary",
                              (int64_t)dfx_tok_clip_vocab_size(p->tok_clip),
                              "the CLIP encoder's vocab_size", p->configs.clip.n_vocab, true));
    DFX_TRY(dfx_configs_agree(bundle, sink, "the T5 tokenizer's vocabulary",
                              (int64_t)dfx_tok_t5_vocab_size(p->tok_t5),
                              "the T5 encoder's vocab_size", p->configs.t5.n_vocab, true));
    return dfx_defaults_load(bundle, &p->configs, dfx_tok_t5_model_max_length(p->tok_t5), sink,
                             &p->defaults);
}

dfx_status dfx_parts_load(const dfx_bundle *bundle, const dfx_sink *sink, dfx_parts *out) {
    dfx_parts parts = {0};
    dfx_status status = load(bundle, sink, &parts);
    if (status == DFX_OK)
        *out = parts;
    else
        dfx_parts_fini(&parts);
    return status;
}

void dfx_parts_fini(dfx_parts *parts) {
    dfx_tok_clip_close(parts->tok_clip);
    dfx_tok_t5_close(parts->tok_t5);
    *parts = (dfx_parts){0};
}

const char *dfx_parts_kind(const dfx_parts *parts) {
    return parts->configs.flux.has_guidance ? "FLUX.1 dev" : "FLUX.1 schnell";
}
