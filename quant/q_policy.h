/* Which tensor gets which number format.
 *
 *     dfx_q_policy policy = {DFX_Q_INT8, DFX_Q_STORED, patterns, n_patterns};
 *     dfx_qformat format = dfx_q_policy_format(&policy, &tensor);
 *
 * Names are those of diffusers and transformers behind the component's: "transformer.",
 * "text_encoder.", "text_encoder_2.", "vae.". Other namings are translated before they come
 * here. Only what the table names is converted. Layers that FLUX does not survive in 8 bits
 * (first and last projections, embedders of time, guidance and text, modulation, norms, biases)
 * are kept. */
#ifndef DFX_QUANT_Q_POLICY_H
#define DFX_QUANT_Q_POLICY_H

#include "quant/qformat.h"

typedef enum dfx_q_action { DFX_Q_KEEP, DFX_Q_CONVERT } dfx_q_action;

typedef struct dfx_q_rule {
    const char *pattern; /* '*' is any run of characters, dots and none included */
    dfx_q_action action;
} dfx_q_rule;

typedef struct dfx_q_tensor {
    const char *name; /* with the component in front */
    dfx_dtype dtype;
    const int64_t *shape; /* borrowed */
    int n_dims;
} dfx_q_tensor;

typedef struct dfx_q_policy {
    dfx_qformat target;      /* of what the table converts */
    dfx_qformat kept;        /* of the rest: DFX_Q_STORED, DFX_Q_BF16 or DFX_Q_F32 */
    const char *const *keep; /* borrowed; the user's patterns, before the table */
    int n_keep;
} dfx_q_policy;

/* The default table: first match wins, the last row matches all. */
extern const dfx_q_rule dfx_q_rules[];
extern const int dfx_q_n_rules;

/* The format for one tensor. Never a scaled one for a tensor that is not a matrix, is narrower
 * than 64 columns, or is already 8 bits wide; DFX_Q_STORED for what is not f64, f32, f16, bf16,
 * fp8 or a type of ggml (indices, packed formats, markers). "Stored" of ggml's types is what
 * dfx_q_unchanged says. */
dfx_qformat dfx_q_policy_format(const dfx_q_policy *policy, const dfx_q_tensor *tensor);

/* True when `pattern` covers the whole of `name`. */
bool dfx_q_glob(const char *pattern, const char *name);

#endif
