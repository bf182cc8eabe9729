/* Attention of one block of FLUX: heads of q and k are normed and rotated, then softmax. In 16 bits, or in 8 where the env says
 * attention_codes (kernels/ops.h has the arithmetic).
 *
 *     dfx_flux_attention a = dfx_flux_attention_begin(b, config, n_queries, n_tokens);
 *     ... a product writes rows of a.q ...
 *     dfx_flux_attention_norm_q(&a, &rows);    // for text, then for the image, where each has norms of its own
 *     ... a product writes rows of a.k ...
 *     dfx_flux_attention_norm_k(&a, &rows);
 *     ... a product writes rows of a.v ...
 *     dfx_ref y = dfx_flux_attention_end(&a, into);
 *
 * Weights are named in the same order either way, since pages are laid out by it. */
#ifndef DFX_MODELS_FLUX_ATTENTION_H
#define DFX_MODELS_FLUX_ATTENTION_H

#include "models/flux.h"

extern const float DFX_FLUX_EPS;

typedef struct dfx_flux_rows {
    int64_t row0, n_rows;
    const char *norm_q, *norm_k; /* weights: name.weight; literals */
    dfx_ref cos, sin;            /* [n_rows, E/2]; absent: positions that rotate by nothing */
} dfx_flux_rows;

/* One that has begun. */
typedef struct dfx_flux_attention {
    dfx_builder *b;
    const dfx_flux_config *config;
    dfx_ref q, k, v;           /* [n_queries, D], [n_tokens, D] twice */
    dfx_attention_codes codes; /* in 8 bits */
    dfx_flux_rows rows[2];     /* whose keys are there */
    dfx_ref norm_k[2];         /* of rows */
    int n_rows;
} dfx_flux_attention;

dfx_flux_attention dfx_flux_attention_begin(dfx_builder *b, const dfx_flux_config *config,
                                            int64_t n_queries, int64_t n_tokens);

void dfx_flux_attention_norm_q(dfx_flux_attention *a, const dfx_flux_rows *rows);

/* At most two times, text first. The last rows, the image's, say what codes are made with, also for the text: to softmax it is
 * the same, and keys of the text have room in the scale. */
void dfx_flux_attention_norm_k(dfx_flux_attention *a, const dfx_flux_rows *rows);

/* [n_queries, D]; `into` absent: a new temp. */
dfx_ref dfx_flux_attention_end(dfx_flux_attention *a, dfx_ref into);

#endif
