/* Packed model: the whole pipeline in one valid safetensors file, whose pages are what moves.
 *
 * quant/FORMAT.md says every byte. In short: the small files of the model (U8 tensors "files/<path>"), then the pages in
 * trace order. A page starts on a DFX_PACKED_ALIGN border of the file, its tensors lie in it exactly as a program lays out
 * its page (DFX_PAGE_ALIGN apart), and named U8 padding fills every gap, since the format allows none. A quantized weight
 * X.weight has its scales beside it as X.weight_scale (F32, one a row).
 * A page may be stored compressed; then it is one U8 tensor, and its tensors are described in the metadata alone. */
#ifndef DFX_OFFLOAD_PACKED_H
#define DFX_OFFLOAD_PACKED_H

#include "core/bundle.h"
#include "offload/program.h"
#include "quant/qformat.h"

enum { DFX_PACKED_ALIGN = 4096, DFX_PACKED_VERSION = 1 };

typedef enum dfx_codec { DFX_CODEC_RAW, DFX_CODEC_LZ4_PLANES } dfx_codec;

/* One page of the file. */
typedef struct dfx_packed_page {
    const char
        *name; /* "<program>/<page>", e.g. "step/transformer_blocks.0"; borrowed from the model */
    uint64_t off;          /* of its first byte in the file, a multiple of DFX_PACKED_ALIGN */
    uint64_t bytes;        /* in memory */
    uint64_t stored_bytes; /* in the file, without padding */
    uint64_t xxh3;         /* of the bytes in memory */
    dfx_codec codec;
} dfx_packed_page;

typedef struct dfx_packed dfx_packed;

/* Is it a packed model (a safetensors file with our metadata)? False for anything else. Cheap; says nothing. */
bool dfx_packed_is(const char *path);

/* The same where it must be a file of weights. Errors: those of dfx_tensors_open_file(). */
dfx_status dfx_packed_ask(const char *path, const dfx_sink *sink, bool *is);

/* Errors: DFX_E_IO; DFX_E_FORMAT: not packed, a version that we do not read, pages that do not lie as they must. */
dfx_status dfx_packed_open(const char *path, const dfx_sink *sink, dfx_packed **out);
void dfx_packed_close(dfx_packed *packed); /* NULL is fine */

const char *dfx_packed_path(const dfx_packed *packed);
size_t dfx_packed_n_pages(const dfx_packed *packed);
const dfx_packed_page *dfx_packed_page_at(const dfx_packed *packed, size_t idx); /* in file order */
/* Index of the page, or -1. */
int64_t dfx_packed_find_page(const dfx_packed *packed, const char *program, const char *page);
/* The same for a page of a program. Take this one where there is a program: the decoder has two pages called "decoder",
 * which are "decode/decoder" and "decode/decoder~2" in the file. */
int64_t dfx_packed_page_of(const dfx_packed *packed, const dfx_program *program, uint32_t page_idx);
/* Whose tensors a page holds: "transformer", ... Borrowed. */
const char *dfx_packed_component(const dfx_packed *packed, size_t page_idx);

/* The tensors of one component ("transformer", "vae", ...) under their own names: what a builder wants. Borrowed; NULL
 * when no page is of that component. Tensors of compressed pages are in it too, with file_idx DFX_TENSOR_NO_FILE and `off`
 * in the page; they are read through their page. */
const dfx_tensors *dfx_packed_tensors(const dfx_packed *packed, const char *component);

dfx_bundle dfx_packed_bundle(const dfx_packed *packed);

/* What the pack was made with: "int8", "bf16", ... and the identity of its source. */
dfx_qformat dfx_packed_quant(const dfx_packed *packed);
const char *dfx_packed_source(const dfx_packed *packed);
/* Of the weights and small files that were taken along, as the source had them; 0 when the file does not say. */
uint64_t dfx_packed_source_bytes(const dfx_packed *packed);

/* Does the page of a program, built from dfx_packed_tensors, lie in the file as the program will read it?
 * Errors: DFX_E_FORMAT naming page and tensor. */
dfx_status dfx_packed_check_page(const dfx_packed *packed, const dfx_program *program,
                                 uint32_t page_idx, const dfx_sink *sink);

/* Decompress a page: stored -> memory. scratch: as large as the page. Errors: DFX_E_FORMAT. */
dfx_status dfx_packed_expand(const dfx_packed_page *page, const dfx_sink *sink, const void *stored,
                             void *dst, void *scratch);

/* Checksum of page->bytes bytes against the file's. Errors: DFX_E_FORMAT: the file is damaged, pack it again. */
dfx_status dfx_packed_verify(const dfx_packed *packed, const dfx_packed_page *page,
                             const void *bytes, const dfx_sink *sink);
/* The same of a page that is not compressed, read from the file in pieces. Errors: DFX_E_IO, too. */
dfx_status dfx_packed_verify_file(const dfx_packed *packed, const dfx_packed_page *page,
                                  const dfx_sink *sink);

/* ---- writing ---- */

typedef struct dfx_pack_options {
    dfx_qformat quant;       /* target of the policy; DFX_Q_STORED: as the source has it */
    const char *const *keep; /* patterns that stay as stored; borrowed */
    size_t n_keep;
    bool
        compress; /* try LZ4 on every page that an op reads; kept where it saves at least a tenth */
    const char *source; /* identity text for the metadata */
    int n_threads;      /* 0: one for each usable core */
    void (*progress)(void *user, uint64_t done_bytes,
                     uint64_t all_bytes); /* of the source; may be NULL */
    bool (*cancelled)(void *user);        /* may be NULL */
    void *user;
} dfx_pack_options;

/* What a pack is made from: the programs in trace order with their components, and the small files. */
typedef struct dfx_pack_source {
    const dfx_program *const
        *programs; /* built from the source's tensors, layout of the source's types */
    const char *const *components; /* [n_programs]: "text_encoder", ... */
    size_t n_programs;
    const char *const *files; /* paths of the small files to take along */
    const char *const
        *file_texts; /* [n_files]: what is in them; NULL: they are read from the bundle */
    size_t n_files;
    const dfx_bundle *bundle; /* may be NULL where nothing is read from it */

    /* Where weights come from that lie in no file: bytes [off, off + n_bytes) of the tensor. NULL: from the files of
     * program->tensors. On any thread, several at once. */
    dfx_status (*read)(void *user, const char *component, const dfx_tensor *tensor, uint64_t off,
                       void *dst, size_t n_bytes);
    void *read_user;
} dfx_pack_source;

typedef struct dfx_pack_report {
    uint64_t source_bytes; /* of the weights and small files that are taken along */
    uint64_t file_bytes;   /* of the result; with `compress` and no path, without any gain */
    uint64_t n_quantized, n_tensors, n_pages, n_compressed, page_bytes_max;
    double seconds;
} dfx_pack_report;

/* Written under a temporary name, fsynced, renamed. Holds at most two pages and their sources at a time.
 * path NULL: only the report of what would be written (--dry-run).
 * Errors: DFX_E_IO, DFX_E_NUMERIC (a weight that is not finite, named), DFX_E_CANCELLED, DFX_E_USAGE (onto its own source). */
dfx_status dfx_pack_write(const dfx_pack_source *source, const dfx_pack_options *options,
                          const char *path, const dfx_sink *sink, dfx_pack_report *report);

#endif
