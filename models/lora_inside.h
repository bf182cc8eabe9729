/* What is behind dfx_lora, shared by the files that fill it. Private to models/lora*.c. */
#ifndef DFX_MODELS_LORA_INSIDE_H
#define DFX_MODELS_LORA_INSIDE_H

#include "models/lora_keys.h"
#include "models/lora_layers.h"
#include "models/lora_values.h"

typedef enum dfx_lora_kind { DFX_LORA_PLAIN, DFX_LORA_LOHA, DFX_LORA_LOKR } dfx_lora_kind;

/* LoKr: delta = kron(w1, w2), w1 [o1, i1], w2 [o2, i2]; n = o1 o2, k = i1 i2. With w1 = u1 d1 of rank r1 and w2 = u2 d2 of rank
 * r2 it is kron(u1, u2) kron(d1, d2), of rank r1 r2. A whole w has rank min(o, i): one of its factors is the identity. */
typedef struct dfx_lora_kron {
    int64_t o1, i1, o2, i2, r1, r2;
} dfx_lora_kron;

typedef struct dfx_lora_module {
    const dfx_lora_alias *alias;
    const char *name; /* in arena */
    dfx_lora_style style;
    const dfx_tensor *tensors[DFX_LORA_N_ROLES]; /* NULL: not there */
    dfx_lora_kind kind;
    dfx_lora_matrix matrices[DFX_LORA_N_FACTORS]; /* of those that are there */
    dfx_lora_kron kron;
    int64_t rank; /* of all of it, in the form that dfx_lora_factors() gives */
    float scale, alpha;
    dfx_lora_magnitude_axis magnitude;
    bool
        block_diagonal; /* part c has columns and rows [c rank / n_cuts, (c + 1) rank / n_cuts) of up and down alone */
    bool is_zero[DFX_LORA_CUTS_MAX];
} dfx_lora_module;

/* Where a part's factors are. */
typedef struct dfx_lora_origin {
    uint32_t module_idx;
    int cut;
    int64_t row; /* of the module, where the part begins */
} dfx_lora_origin;

struct dfx_lora {
    dfx_arena arena;
    char path[DFX_PATH_BYTES]; /* of the file */
    dfx_tensors *set;          /* owned */
    dfx_lora_layers layers;
    dfx_lora_module *modules; /* owned */
    size_t n_modules, cap_modules;
    dfx_lora_part *parts;     /* owned */
    dfx_lora_origin *origins; /* owned; of each part */
    size_t n_parts;
    dfx_lora_facts facts;
    size_t n_unmatched_text; /* of facts.n_unmatched, those of text encoders */
};

/* Kind, shapes, scale and zeros of a module whose tensors are all known; every value is looked at once. `alphas`: see
 * models/lora_alpha.h. */
typedef struct dfx_lora_alphas dfx_lora_alphas;
dfx_status dfx_lora_module_check(const dfx_lora *lora, const dfx_lora_alphas *alphas,
                                 const dfx_sink *sink, dfx_lora_module *module);

#endif
