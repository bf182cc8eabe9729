/* GGUF, versions 2 and 3, as a table of tensors (core/safetensors.h): shapes have their slowest dimension first, as
 * everywhere here, block types are dtypes (core/ggml_blocks.h).
 *
 * File: "GGUF" | u32 version | u64 tensors | u64 KVs | KVs | tensor infos | padding | data, all little endian. Every rule is
 * checked at open, before any allocation that depends on a number of the file: counts and lengths fit the bytes that remain;
 * keys and names are UTF-8 without NUL, not empty, and unique; value types are known, no array holds arrays;
 * general.alignment is a u32 and a power of two up to DFX_GGUF_ALIGN_MAX; dimensions above 0, their product without overflow;
 * rows of whole blocks; each tensor begins where the one before it ends, padded; and all of it is in the file. Bytes after
 * the last tensor are a warning: some writers pad it, some do not.
 *
 * String values are metadata ("general.architecture"); other values are passed over, and so are arrays of strings. */
#ifndef DFX_CORE_GGUF_H
#define DFX_CORE_GGUF_H

#include "core/tensors_set.h"

enum {
    DFX_GGUF_ALIGN_MAX = 1 << 20,
    DFX_GGUF_HEADER_BYTES_MAX =
        100000000 /* all before the data; a tokenizer of 256k words takes 12 MB */
};

/* Do these first bytes of a file begin a GGUF file? */
bool dfx_gguf_is(const unsigned char *head, size_t n_head);

/* Read and check `file`, which is open and dfx_gguf_is, and append its tensors to the set, sorted by name. After a failure the
 * set can only be closed. Errors: DFX_E_IO, DFX_E_FORMAT. */
dfx_status dfx_gguf_read(dfx_tensors *set, dfx_tensors_file *file, const dfx_sink *sink);

#endif
