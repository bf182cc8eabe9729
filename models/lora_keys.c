#include "models/lora_keys.h"

#include <string.h>

#include "core/sink.h"

typedef struct ending {
    const char *text;
    dfx_lora_role role;
    const char *what;
} ending;

static const ending ENDINGS[] = {
    {".lora_A", DFX_LORA_DOWN, NULL},
    {".lora_B", DFX_LORA_UP, NULL},
    {".lora_A.weight", DFX_LORA_DOWN, NULL},
    {".lora_B.weight", DFX_LORA_UP, NULL},
    {".lora_down.weight", DFX_LORA_DOWN, NULL},
    {".lora_up.weight", DFX_LORA_UP, NULL},
    {"_lora.down.weight", DFX_LORA_DOWN, NULL},
    {"_lora.up.weight", DFX_LORA_UP, NULL},
    {".lora.down.weight", DFX_LORA_DOWN, NULL},
    {".lora.up.weight", DFX_LORA_UP, NULL},
    {".lora_linear_layer.down.weight", DFX_LORA_DOWN, NULL},
    {".lora_linear_layer.up.weight", DFX_LORA_UP, NULL},
    {".down.weight", DFX_LORA_DOWN, NULL},
    {".up.weight", DFX_LORA_UP, NULL},
    {".hada_w1_a", DFX_LORA_HADA_W1_A, NULL},
    {".hada_w1_b", DFX_LORA_HADA_W1_B, NULL},
    {".hada_w2_a", DFX_LORA_HADA_W2_A, NULL},
    {".hada_w2_b", DFX_LORA_HADA_W2_B, NULL},
    {".lokr_w1", DFX_LORA_LOKR_W1, NULL},
    {".lokr_w1_a", DFX_LORA_LOKR_W1_A, NULL},
    {".lokr_w1_b", DFX_LORA_LOKR_W1_B, NULL},
    {".lokr_w2", DFX_LORA_LOKR_W2, NULL},
    {".lokr_w2_a", DFX_LORA_LOKR_W2_A, NULL},
    {".lokr_w2_b", DFX_LORA_LOKR_W2_B, NULL},
    {".alpha", DFX_LORA_ALPHA, NULL},
    {".dora_scale", DFX_LORA_MAGNITUDE, NULL},
    {".lora_magnitude_vector", DFX_LORA_MAGNITUDE, NULL},
    {".lora_magnitude_vector.weight", DFX_LORA_MAGNITUDE, NULL},
    {".reshape_weight", DFX_LORA_RESHAPE, NULL},
    {".diff", DFX_LORA_EXTRA, "a full matrix"},
    {".diff_b", DFX_LORA_EXTRA, "a bias"},
    {".w_norm", DFX_LORA_EXTRA, "a norm's weight"},
    {".b_norm", DFX_LORA_EXTRA, "a norm's bias"},
    {".set_weight", DFX_LORA_EXTRA, "a whole weight"},
    {".lora_B.bias", DFX_LORA_EXTRA, "a bias"},
    {".lora_A.bias", DFX_LORA_EXTRA, "a bias"},
    {".lora_up.bias", DFX_LORA_EXTRA, "a bias"},
    {".lora_down.bias", DFX_LORA_EXTRA, "a bias"},
    {".query_norm.scale", DFX_LORA_EXTRA, "a norm's weight"},
    {".key_norm.scale", DFX_LORA_EXTRA, "a norm's weight"},
    {".norm_q.weight", DFX_LORA_EXTRA, "a norm's weight"},
    {".norm_k.weight", DFX_LORA_EXTRA, "a norm's weight"},
    {".norm_added_q.weight", DFX_LORA_EXTRA, "a norm's weight"},
    {".norm_added_k.weight", DFX_LORA_EXTRA, "a norm's weight"},
    {".lora_mid.weight", DFX_LORA_REFUSED, "a Tucker decomposition (for convolutions)"},
    {".hada_t1", DFX_LORA_REFUSED, "a Tucker decomposition (for convolutions)"},
    {".hada_t2", DFX_LORA_REFUSED, "a Tucker decomposition (for convolutions)"},
    {".lokr_t2", DFX_LORA_REFUSED, "a Tucker decomposition (for convolutions)"},
    {".a1.weight", DFX_LORA_REFUSED, "GLoRA"},
    {".a2.weight", DFX_LORA_REFUSED, "GLoRA"},
    {".b1.weight", DFX_LORA_REFUSED, "GLoRA"},
    {".b2.weight", DFX_LORA_REFUSED, "GLoRA"},
    {".oft_blocks", DFX_LORA_REFUSED, "OFT or BOFT"},
    {".oft_diag", DFX_LORA_REFUSED, "OFT or BOFT"},
    {".rescale", DFX_LORA_REFUSED, "OFT or BOFT"},
};

/* The longest ending of the first `bytes` bytes of name, or NULL. */
static const ending *find_ending(const char *name, size_t bytes) {
    const ending *best = NULL;
    size_t best_len = 0;
    for (size_t i = 0; i < DFX_COUNT(ENDINGS); i++) {
        size_t len = strlen(ENDINGS[i].text);
        if (len > best_len && len < bytes &&
            memcmp(name + bytes - len, ENDINGS[i].text, len) == 0) {
            best = &ENDINGS[i];
            best_len = len;
        }
    }
    return best;
}

/* PEFT's adapters have a name, which some savers leave in: "x.lora_A.default.weight". The length without it. */
static size_t bytes_before_adapter_name(const char *name, size_t bytes) {
    static const char last[] = ".weight";
    size_t len = strlen(last), at;
    if (bytes <= len || memcmp(name + bytes - len, last, len) != 0)
        return 0;
    for (at = bytes - len; at > 0 && name[at - 1] != '.'; at--)
        continue;
    return at > 0 ? at - 1 : 0;
}

static bool takes_adapter_name(const ending *e) {
    return e && (strcmp(e->text, ".lora_A") == 0 || strcmp(e->text, ".lora_B") == 0 ||
                 strcmp(e->text, ".lora_magnitude_vector") == 0);
}

dfx_lora_key dfx_lora_key_split(const char *name) {
    size_t bytes = strlen(name);
    const ending *found = find_ending(name, bytes);
    if (!found) {
        size_t before = bytes_before_adapter_name(name, bytes);
        const ending *named = find_ending(name, before);
        if (takes_adapter_name(named)) {
            found = named;
            bytes = before;
        }
    }
    if (!found)
        return (dfx_lora_key){DFX_LORA_UNKNOWN, bytes, NULL};
    return (dfx_lora_key){found->role, bytes - strlen(found->text), found->what};
}
