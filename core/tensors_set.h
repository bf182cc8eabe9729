/* Private to core: what a dfx_tensors is made of, shared by the readers that fill it
 * (safetensors.c, gguf.c, shards.c). Built as new, add_file..., seal; read-only from then on, so any thread
 * may read. */
#ifndef DFX_CORE_TENSORS_SET_H
#define DFX_CORE_TENSORS_SET_H

#include "core/arena.h"
#include "core/safetensors.h"

typedef struct dfx_tensors_meta {
    const char *key, *value; /* in the file's header or text; value NULL: not a string, ignored */
} dfx_tensors_meta;

typedef struct dfx_tensors_file {
    dfx_file file;
    bool is_gguf;           /* else safetensors */
    char *header;           /* owned; of safetensors: names and metadata point into it */
    dfx_arena text;         /* of GGUF: the same */
    dfx_tensors_meta *meta; /* owned; sorted by key */
    size_t n_meta, cap_meta;
} dfx_tensors_file;

struct dfx_tensors {
    dfx_tensor *tensors; /* owned; sorted by name once sealed */
    size_t n_tensors, cap_tensors;
    dfx_tensors_file *files; /* owned */
    size_t n_files, cap_files;
    const dfx_tensors *base; /* borrowed; of a view: whose files are meant. Else NULL */
    uint64_t bytes;
};

dfx_status dfx_tensors_new(const dfx_sink *sink, dfx_tensors **out);

/* Open, check and append one file, of safetensors or GGUF; its tensors come sorted by name. After a failure the
 * set can only be closed. Errors: as dfx_tensors_open_file. */
dfx_status dfx_tensors_add_file(dfx_tensors *set, const char *path, const dfx_sink *sink);

/* The same for `file`, which is the set's last and open. */
dfx_status dfx_safetensors_read(dfx_tensors *set, dfx_tensors_file *file, const dfx_sink *sink);

/* Sort a file's metadata by key, and the set's tensors from index `first` on by name. One of two that have the same key or
 * name, or NULL. */
const dfx_tensors_meta *dfx_tensors_sort_meta(dfx_tensors_file *file);
const dfx_tensor *dfx_tensors_sort_from(dfx_tensors *set, size_t first);

/* What a shape of numbers that are not negative holds, blocks of the type that are cut left out of the bytes. False on
 * overflow. */
bool dfx_tensor_count(const dfx_tensor *tensor, uint64_t *n_elements, uint64_t *bytes);

/* No block is cut: of ggml's types rows are whole blocks, of others the tensor is. */
bool dfx_tensor_is_whole(const dfx_tensor *tensor, uint64_t n_elements);

/* A file's name for something, for a message: long ones cut, control characters as '?'. */
enum { DFX_NAME_TEXT = 200 };
char *dfx_name_text(const char *name, char text[DFX_NAME_TEXT]);

#endif
