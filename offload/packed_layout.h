/* Private to offload/packed*.c: the packed file before it is written. What goes where follows from the programs and the
 * policy alone, so --dry-run knows all of it but what compression gains. */
#ifndef DFX_OFFLOAD_PACKED_LAYOUT_H
#define DFX_OFFLOAD_PACKED_LAYOUT_H

#include "offload/packed_format.h"

/* One tensor of the result. */
typedef struct dfx_pack_tensor {
    const char *name; /* with the component and a point in front; in arena */
    const dfx_tensor
        *source; /* borrowed; NULL for scales, which are made along with the codes before them */
    dfx_qformat format;
    dfx_tensor made; /* type, shape, bytes; `off` is in the page, file_idx NO_FILE */
} dfx_pack_tensor;

typedef struct dfx_pack_page {
    dfx_packed_page
        page; /* name in arena; `off` counts from the data's beginning until the file is placed */
    const char *component;
    const dfx_tensors *set; /* borrowed; where the sources are */
    uint32_t first_tensor, n_tensors;
    bool looked_up; /* no op reads it: rows are looked up in the file, so it is never compressed */
} dfx_pack_page;

typedef struct dfx_pack_file {
    const char *path, *text; /* borrowed */
    char *owned;             /* the text, when it was read here */
    size_t bytes;
} dfx_pack_file;

typedef struct dfx_pack_layout {
    dfx_arena arena;
    dfx_pack_tensor *tensors; /* owned */
    dfx_pack_page *pages;     /* in arena */
    dfx_pack_file *files;     /* in arena; the small files, read at once */
    size_t n_tensors, cap_tensors, n_pages, n_files;
    uint64_t files_bytes,
        source_bytes;    /* small files; weights and small files as the source has them */
    uint64_t data_off;   /* of the first byte after the header; a multiple of DFX_PACKED_ALIGN */
    uint64_t data_bytes; /* with the pages where they are now */
} dfx_pack_layout;

/* Everything but checksums and gains. Errors: DFX_E_USAGE, DFX_E_INTERNAL, those of reading the small files. */
dfx_status dfx_pack_layout_make(dfx_pack_layout *layout, const dfx_pack_source *source,
                                const dfx_pack_options *options, const dfx_sink *sink);
void dfx_pack_layout_fini(dfx_pack_layout *layout); /* zeroed is fine */

/* Put every page after the one before it, by stored bytes. */
void dfx_pack_layout_place(dfx_pack_layout *layout);

/* The header with its length before it, layout->data_off bytes. dfx_free by the caller. */
dfx_status dfx_pack_header(const dfx_pack_layout *layout, const dfx_pack_options *options,
                           const dfx_sink *sink, char **out);

#endif
