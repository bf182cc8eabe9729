/* --init and --mask: the files, read and checked against each other before any model is opened. */
#ifndef DFX_TOOLS_INIT_FILES_H
#define DFX_TOOLS_INIT_FILES_H

#include "tools/console.h"

typedef struct dfx_init_files {
    bool has_init, has_mask;
    int width, height; /* of both */
    uint8_t *rgb;      /* owned; [height][width][3]; NULL: dropped, or none */
    uint8_t *mask;     /* owned; [height][width]; NULL: dropped, or none */
} dfx_init_files;

/* Either path may be NULL. Errors: DFX_E_USAGE: a mask alone, or of another size; those of reading. */
dfx_status dfx_init_files_read(dfx_console *console, const char *init_path, const char *mask_path,
                               dfx_init_files *out);
void dfx_init_files_free(dfx_init_files *files); /* zeroed is fine */

/* Frees the pixels and keeps what is known of them, which is enough to look at a request. */
void dfx_init_files_drop(dfx_init_files *files);

/* Into a request; its size is that of the picture where `width` or `height` is 0. */
void dfx_init_files_request(const dfx_init_files *files, const dfx_model *model, int width,
                            int height, dfx_request *request);

#endif
