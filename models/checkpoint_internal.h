/* Private to models/checkpoint*.c. In the order of their work:
 *   checkpoint_source   one opened path: its tensors, and which components are in it behind which prefix
 *   checkpoint_kind     what it is instead, where it is nothing that we run
 *   checkpoint_names    the names of others to those of diffusers
 *   checkpoint_storage  how one weight is stored: plain, codes with scales, 4 bits, rotated
 *   checkpoint_decode   its values
 *   checkpoint_view     a component: recipes, each a tensor and what it is made from; reading by them
 *   checkpoint_configs  configurations out of shapes
 *   checkpoint          which file is what, and everything put together */
#ifndef DFX_MODELS_CHECKPOINT_INTERNAL_H
#define DFX_MODELS_CHECKPOINT_INTERNAL_H

#include "core/arena.h"
#include "core/json.h"
#include "models/checkpoint.h"
#include "models/checkpoint_names.h"

enum { DFX_PREFIX_BYTES = 128 };

/* A component in a file. */
typedef struct dfx_found {
    bool is;
    dfx_names names;
    char prefix[DFX_PREFIX_BYTES]; /* before the names of `names`; "text_model." is part of it */
} dfx_found;

/* One opened path. */
typedef struct dfx_source {
    const char *path; /* of the file or folder; in arena */
    dfx_tensors *set; /* owned */
    bool *
        used; /* owned; [n tensors]: something was made of it, or it is known to matter to nobody */
    bool is_folder; /* one component of diffusers: whatever it holds is taken along */
    dfx_found found[DFX_N_COMPONENTS];
    json_t *layers; /* owned; of the metadata _quantization_metadata, or NULL */
} dfx_source;

/* How a weight is stored. */
typedef enum dfx_storage_kind {
    DFX_STORE_PLAIN,  /* values of code_dtype */
    DFX_STORE_SCALED, /* code * scale, one for all or one a row */
    DFX_STORE_ROTATED, /* the same, and each `group` inputs multiplied by a rotation that is its own inverse */
    DFX_STORE_4BIT /* bitsandbytes: quant_map[nibble] * absmax of a block */
} dfx_storage_kind;

typedef struct dfx_storage {
    dfx_storage_kind kind;
    const dfx_tensor *codes; /* of the source */
    dfx_dtype code_dtype;    /* of its bytes: fp8 may lie in U8 */
    int rank;
    int64_t shape[DFX_TENSOR_RANK_MAX]; /* of the values */
    const float *scales;                /* in arena; [n_scales]; n_scales is 1 or the rows */
    int64_t n_scales;
    int64_t group;       /* ROTATED */
    bool full_precision; /* the file forbids products of these codes */
    /* 4BIT; tensors of the source, maps in arena */
    const dfx_tensor *absmax;
    const float *quant_map, *nested_absmax, *nested_map;
    int64_t block, nested_block;
    float nested_offset;
} dfx_storage;

/* A tensor of a component, and what it is made from. */
typedef struct dfx_recipe {
    dfx_tensor made;         /* name in arena */
    const dfx_storage *from; /* in arena */
    int64_t row0;            /* the first of from's rows */
    int64_t half;            /* above 0: rows [0, half) and [half, 2 half) trade places */
    bool is_scale;           /* the scales of from's rows, one for each */
} dfx_recipe;

typedef struct dfx_part {
    dfx_source *source; /* borrowed */
    dfx_found found;    /* of it */
    const char *config; /* in arena: text of a config.json that came along; NULL: derived */
    size_t config_bytes;
    dfx_qformat target;  /* what its large matrices become */
    bool is_blocks;      /* stored in a format of blocks */
    bool scaled_marker;  /* "scaled_fp8" or any scale: fp8 without one is a fault */
    bool full_precision; /* of all its codes */
    char types[64];      /* "F8_E4M3, F32", for people */
    dfx_tensors *view;   /* owned */
    dfx_recipe *recipes; /* owned; sorted by name once the view is sealed */
    size_t n_recipes, cap_recipes;
} dfx_part;

enum { DFX_CHECKPOINT_SOURCES = 8 };

struct dfx_checkpoint {
    const dfx_sink *sink;
    dfx_sink own_sink; /* sink's copy */
    dfx_checkpoint_options options;
    dfx_arena arena;
    dfx_source sources[DFX_CHECKPOINT_SOURCES];
    size_t n_sources;
    dfx_part parts[DFX_N_COMPONENTS];
    dfx_qformat quant;
    const char *keep[DFX_N_COMPONENTS];
    size_t n_keep;
    dfx_bundle_text *texts; /* in arena */
    size_t n_texts;
    dfx_bundle bundle;
};

/* ---- checkpoint_source.c ---- */

/* "the FLUX transformer", "the VAE", ...; the command line's option, or "--model". */
extern const char *const dfx_component_texts[DFX_N_COMPONENTS];
extern const char *const dfx_component_options[DFX_N_COMPONENTS];

/* Opens into c->sources. `folder_of`: the path is a folder of this component; else it is a file and is looked through. */
dfx_status dfx_source_open_file(dfx_checkpoint *c, const char *path, dfx_source **out);
dfx_status dfx_source_open_folder(dfx_checkpoint *c, const char *dir, dfx_component component,
                                  dfx_source **out);
void dfx_source_close(dfx_source *source);

/* Tensor "<prefix><name>", which from now on is used; NULL when absent. */
const dfx_tensor *dfx_source_take(dfx_source *source, const char *prefix, const char *name);
void dfx_source_use(dfx_source *source, const dfx_tensor *tensor);

/* "a VAE and a T5 encoder", "a LoRA", "nothing that dfx-edge knows" into text. */
enum { DFX_SOURCE_TEXT_BYTES = 256 };
char *dfx_source_text(const dfx_source *source, char text[DFX_SOURCE_TEXT_BYTES]);

/* ---- checkpoint_kind.c ---- */

/* A family of models or a kind of file that a tensor's name gives away; NULL: none that we know. *example: that name. */
const char *dfx_kind_foreign(const dfx_tensors *set, const char **example);
/* The same of ways to store weights. */
const char *dfx_kind_storage(const dfx_tensors *set, const char **example);
/* A GGUF's general.architecture against the component. Errors: DFX_E_FORMAT. */
dfx_status dfx_kind_check_architecture(const dfx_source *source, dfx_component component,
                                       const dfx_sink *sink);

/* ---- checkpoint_storage.c, checkpoint_decode.c ---- */

/* `tensor` is "<layer>.weight" or anything else of the source; what belongs to it is used up. *layer: the full name without
 * its last part, for messages. */
dfx_status dfx_storage_describe(dfx_checkpoint *c, const dfx_part *part, const dfx_tensor *tensor,
                                dfx_storage *out);

/* Is it no tensor of its own, but belongs to the storage of another? */
bool dfx_storage_is_part(const char *name);

/* Elements [first, first + n) of the values as f32. Any thread. */
dfx_status dfx_storage_decode(const dfx_storage *s, const dfx_tensors *set, const dfx_sink *sink,
                              int64_t first, int64_t n, float *dst);
/* Elements are decoded from multiples of this; a power of two. */
int64_t dfx_storage_unit(const dfx_storage *s);
enum { DFX_STORAGE_CHUNK = 16384 }; /* elements of a call at the most; a multiple of every unit */

/* ---- checkpoint_view.c ---- */

/* Fills part->view from part->source. */
dfx_status dfx_part_make(dfx_checkpoint *c, dfx_component component);
dfx_status dfx_part_read(const dfx_part *part, const dfx_tensor *tensor, const dfx_sink *sink,
                         uint64_t off, void *dst, size_t n_bytes);

/* In many files, and of no use to anybody who runs the model: position_ids, logit_scale and the like. */
bool dfx_name_is_idle(const char *name);

/* ---- checkpoint_configs.c ---- */

/* c->texts out of the parts' shapes: the index, each part's configuration, the scheduler's. Checks what the shapes say. */
dfx_status dfx_checkpoint_derive(dfx_checkpoint *c);
dfx_status dfx_checkpoint_add_text(dfx_checkpoint *c, const char *path, const char *text,
                                   size_t bytes);

#endif
