/* LoRA files of every style, read into one normal form: for each linear layer of our programs that the file changes, two f32
 * factors with  delta W = scale * up * down,  down [rank, k], up [n, rank].
 *
 *     dfx_lora *lora;
 *     if (dfx_lora_open("style.safetensors", &parts.configs, sink, &lora) == DFX_OK) {
 *         for (size_t i = 0; i < dfx_lora_n_parts(lora); i++) {
 *             const dfx_lora_part *part = dfx_lora_part_at(lora, i);
 *             ... down: part->rank * part->k floats, up: part->n * part->rank floats ...
 *             dfx_lora_factors(lora, part, sink, down, up);
 *         }
 *         dfx_lora_close(lora);
 *     }
 *
 * Words: a *module* is what the file has for one layer of its own naming (often a pair, lora_A and lora_B); a *part* is for one
 * layer of ours. A module of a fused layer (qkv, linear1) is cut into parts by rows of `up`.
 *
 * Facts that have bitten someone (guards in tests/test_lora*.c): the `down` of a fused module belongs to each of its parts whole;
 * XLabs' 1 is the image stream, 2 the text; BFL's final_layer.adaLN_modulation.1 has shift before scale, norm_out.linear has
 * scale before shift; the rank is the rows of down, never a number in metadata; proj_out and a single block's proj_out are two
 * layers; alpha / rank counts the rank of the fused module, also where it is block diagonal.
 *
 * Everything is read once when the file is opened, so that what is wrong is told before any work: a factor without its other,
 * shapes that do not fit the model, values that are not finite, two modules for one layer, and kinds that we do not apply
 * (GLoRA, OFT, Tucker; biases, norms and full matrices that are not zero; control LoRAs that widen x_embedder). The values are
 * read again by dfx_lora_factors(): the file stays open and must not change. */
#ifndef DFX_MODELS_LORA_H
#define DFX_MODELS_LORA_H

#include "models/configs.h"

typedef struct dfx_lora dfx_lora;

/* A module whose factors have no low rank of their own (LoHa, LoKr) is taken up to this rank. */
enum { DFX_LORA_DERIVED_RANK_MAX = 512, DFX_LORA_NAMED_MAX = 5 };

/*      name                  text */
#define DFX_LORA_STYLE_LIST(X)                                                  \
    X(DFX_LORA_PEFT, "PEFT (diffusers names)")                                  \
    X(DFX_LORA_KOHYA, "kohya (lora_unet_)")                                     \
    X(DFX_LORA_ONETRAINER, "OneTrainer (lora_transformer_)")                    \
    X(DFX_LORA_XLABS, "XLabs (processor)")                                      \
    X(DFX_LORA_FAL, "PEFT of the original model (base_model.model, BFL names)") \
    X(DFX_LORA_BFL, "BFL names")                                                \
    X(DFX_LORA_LYCORIS, "LyCORIS (lycoris_)")

#define DFX_LORA_STYLE_ENUM(name, text) name,
typedef enum dfx_lora_style {
    DFX_LORA_STYLE_LIST(DFX_LORA_STYLE_ENUM) DFX_N_LORA_STYLES
} dfx_lora_style;
#undef DFX_LORA_STYLE_ENUM
const char *dfx_lora_style_text(dfx_lora_style style);

/* What a DoRA magnitude scales: W' = magnitude * (W + delta W) / norm(W + delta W), over each row or over each column. */
typedef enum dfx_lora_magnitude_axis {
    DFX_LORA_NO_MAGNITUDE,
    DFX_LORA_MAGNITUDE_ROWS,   /* n values */
    DFX_LORA_MAGNITUDE_COLUMNS /* k values */
} dfx_lora_magnitude_axis;

typedef struct dfx_lora_part {
    dfx_component component; /* DFX_TRANSFORMER, DFX_CLIP or DFX_T5 */
    const char *
        layer; /* ours: "transformer_blocks.0.attn.to_q", without ".weight"; borrowed from the lora */
    const char
        *module; /* the file's: "lora_unet_double_blocks_0_img_attn_qkv"; borrowed from the lora */
    int64_t n, k, rank; /* out and in features of the layer, as the configurations have them */
    float
        scale; /* alpha / rank of the module, or what its kind says; not in the factors; without strength */
    float alpha;                       /* as used: the module's rank where the file has none */
    dfx_lora_magnitude_axis magnitude; /* DoRA: the factors alone are not the change */
} dfx_lora_part;

typedef struct dfx_lora_facts {
    dfx_lora_style style; /* of most modules */
    size_t n_modules;     /* matched and unmatched */
    size_t n_matched;     /* name a layer of the model */
    size_t n_unmatched;
    size_t n_zero; /* parts that are left out because their delta is zero, of matched modules */
    size_t n_loha, n_lokr, n_dora; /* matched modules of these kinds */
    size_t n_block_diagonal;       /* fused modules whose parts have ranks of their own */
    size_t n_ignored_zeros;        /* biases, norms and full matrices that are zero */
    int64_t rank_min, rank_max;    /* of parts; 0 without any */
    float alpha_min, alpha_max, scale_min, scale_max;
    size_t n_parts_of[DFX_N_COMPONENTS];
    size_t n_named;                            /* of `unmatched` */
    const char *unmatched[DFX_LORA_NAMED_MAX]; /* the first names; borrowed from the lora */
    bool split_qkv;                            /* its metadata says so: see dfx_lora_open */
} dfx_lora_facts;

/* `path`: a safetensors file, or a folder with adapter_model.safetensors (PEFT) or pytorch_lora_weights.safetensors (diffusers).
 * adapter_config.json beside a file of one of these two names is read, too.
 * Modules that name no layer of the model are left out with a warning that has their number and the first names. A file of which
 * no module matches is an error; so is one of which no module for the transformer matches although it has some, which is a LoRA
 * for another model with the same text encoder.
 * Metadata that says split_qkv (sd-scripts): parts were trained apart and saved as one module of 3 or 4 times their rank with the
 * alpha of one. The scale is alpha / rank as it stands in the file, which is what others do; it is said as a note.
 * Errors: DFX_E_IO, DFX_E_FORMAT with the file's own name of the module or tensor; DFX_E_NOFIT. */
dfx_status dfx_lora_open(const char *path, const dfx_configs *configs, const dfx_sink *sink,
                         dfx_lora **out);

/* The same for looking at a file: one of which nothing matches opens, too, and of modules that do not match nothing is said. */
dfx_status dfx_lora_look(const char *path, const dfx_configs *configs, const dfx_sink *sink,
                         dfx_lora **out);

/* What dfx_lora_open says of a file of which nothing matches, or DFX_OK. */
dfx_status dfx_lora_check_matched(const dfx_lora *lora, const dfx_sink *sink);

void dfx_lora_close(dfx_lora *lora); /* NULL is fine */

const dfx_lora_facts *dfx_lora_facts_of(const dfx_lora *lora);

/* Ordered as layers are used: transformer, CLIP, T5. At most one a layer. */
size_t dfx_lora_n_parts(const dfx_lora *lora);
const dfx_lora_part *dfx_lora_part_at(const dfx_lora *lora, size_t idx);
/* NULL when the file does not change that layer. */
const dfx_lora_part *dfx_lora_find(const dfx_lora *lora, dfx_component component,
                                   const char *layer);

/* down [rank, k], up [n, rank]. LoHa and LoKr are products of the file's values, rounded to f32 once. Any thread.
 * Errors: DFX_E_IO, DFX_E_NOFIT. */
dfx_status dfx_lora_factors(const dfx_lora *lora, const dfx_lora_part *part, const dfx_sink *sink,
                            float *down, float *up);

/* The magnitude of a part that has one: n or k values. */
dfx_status dfx_lora_magnitude(const dfx_lora *lora, const dfx_lora_part *part, const dfx_sink *sink,
                              float *out);

#endif
