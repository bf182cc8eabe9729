/* Private to core: what a dfx_tensors is made of, shared by the readers that fill it
 * (safetensors.c, shards.c). Built as new, add_file..., seal; read-only from then on, so any thread
 * may read. */
#ifndef DFX_CORE_TENSORS_SET_H
#define DFX_CORE_TENSORS_SET_H

#include "core/safetensors.h"

typedef struct dfx_tensors_meta {
    const char *key, *value; /* in the file's header; value NULL: not a string, ignored */
} dfx_tensors_meta;

typedef struct dfx_tensors_file {
    dfx_file file;
    char *header;           /* owned; names and metadata point into it */
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

/* Open, check and append one safetensors file; its tensors come sorted by name. After a failure the
 * set can only be closed. Errors: as dfx_tensors_open_file. */
dfx_status dfx_tensors_add_file(dfx_tensors *set, const char *path, const dfx_sink *sink);

/* What a shape of numbers that are not negative holds. False on overflow. */
bool dfx_tensor_count(const dfx_tensor *tensor, uint64_t *n_elements, uint64_t *bits);

/* qsort order of dfx_tensor: by name. */
int dfx_tensor_by_name(const void *a, const void *b);

/* A file's name for something, for a message: long ones cut, control characters as '?'. */
enum { DFX_NAME_TEXT = 200 };
char *dfx_name_text(const char *name, char text[DFX_NAME_TEXT]);

#endif
