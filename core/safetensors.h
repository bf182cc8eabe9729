/* Weight files as a table of tensors: one file, or the shards that an index names. A file is safetensors or GGUF
 * (core/gguf.h), told by its first bytes and never by its name. Of safetensors:
 *
 * File: u64 LE header bytes N | N bytes of JSON | data. Every rule of the format is checked at
 * open, before any allocation that depends on a number of the file: N <= 100,000,000 and 8 + N <=
 * file; JSON object without duplicate keys; known dtype; shape product without overflow and equal
 * to end - begin; tensors sorted by begin cover the data without hole, overlap or trailing bytes.
 * Tensor data has no alignment: it starts at 8 + N, never rounded.
 *
 * Where readers differ, this one is strict: the header's first byte is '{' (no white space or byte
 * order mark before it), white space may follow its end but no NUL; names hold no U+0000; a tensor
 * entry holds dtype, shape and data_offsets and nothing else. `__metadata__` may be null (absent);
 * values in it that are not strings are ignored with a warning. */
#ifndef DFX_CORE_SAFETENSORS_H
#define DFX_CORE_SAFETENSORS_H

#include "core/dtype.h"
#include "core/file.h"

enum {
    DFX_TENSOR_RANK_MAX = 8,
    /* The only limit on a header. One of 90 MB with a million tensors opens in about a second. */
    DFX_SAFETENSORS_HEADER_BYTES_MAX = 100000000
};

typedef struct dfx_tensor {
    const char *name; /* borrowed from the set */
    dfx_dtype dtype;
    int rank; /* 0: a scalar, one element */
    int64_t shape[DFX_TENSOR_RANK_MAX];
    uint64_t n_elements;
    uint64_t bytes;
    uint32_t file_idx; /* into dfx_tensors.files */
    uint64_t off;      /* of the first byte, in that file */
} dfx_tensor;

/* A set of tensors in one or more open files. */
typedef struct dfx_tensors dfx_tensors;

/* One file. Errors: DFX_E_IO, DFX_E_FORMAT (with a hint for Git LFS pointers, HTML pages, PyTorch
 * zips). */
dfx_status dfx_tensors_open_file(const char *path, const dfx_sink *sink, dfx_tensors **out);

/* The weights `stem` (e.g. "diffusion_pytorch_model") of a folder, first found of:
 *   <stem>.safetensors.index.json and the shards it names (with a note when the next is there too);
 *   <stem>.safetensors;
 *   <stem>.<variant>.safetensors, the variant one word: the first in alphabetical order, so bf16
 *     before fp16, with a note which;
 *   <stem>-0000k-of-0000n.safetensors without an index, when all n are there.
 * Shard names with path separators are refused; a missing shard, a tensor missing from its shard,
 * or one in two shards is an error that names it; a tensor that the index does not name, or a wrong
 * total_size, is a warning. Errors: DFX_E_IO (no such folder), DFX_E_FORMAT. */
dfx_status dfx_tensors_open_dir(const char *dir, const char *stem, const dfx_sink *sink,
                                dfx_tensors **out);

void dfx_tensors_close(dfx_tensors *set);

size_t dfx_tensors_count(const dfx_tensors *set);
const dfx_tensor *dfx_tensors_at(const dfx_tensors *set, size_t idx);         /* sorted by name */
const dfx_tensor *dfx_tensors_find(const dfx_tensors *set, const char *name); /* NULL when absent */
uint64_t dfx_tensors_bytes(const dfx_tensors *set); /* sum over all tensors */
size_t dfx_tensors_n_files(const dfx_tensors *set);
const char *dfx_tensors_file_path(const dfx_tensors *set, uint32_t file_idx);
const char *dfx_tensors_file_format(const dfx_tensors *set, uint32_t file_idx); /* e.g. "GGUF" */
bool dfx_tensors_is_gguf(const dfx_tensors *set);                               /* the first file */

/* Metadata of the first file: __metadata__ of safetensors, keys of GGUF. A string, or NULL when it is absent or none. */
const char *dfx_tensors_metadata(const dfx_tensors *set, const char *key);

/* All of it, sorted by key; idx < dfx_tensors_n_metadata(). The value is NULL where it is no string. */
size_t dfx_tensors_n_metadata(const dfx_tensors *set);
const char *dfx_tensors_metadata_at(const dfx_tensors *set, size_t idx, const char **value);

/* All bytes of a tensor, as stored. dst holds tensor->bytes. Any thread. */
dfx_status dfx_tensors_read(const dfx_tensors *set, const dfx_tensor *tensor, const dfx_sink *sink,
                            void *dst);

/* The same widened to f32; dst holds n_elements floats. Errors: DFX_E_FORMAT for types that are not
 * numbers. */
dfx_status dfx_tensors_read_f32(const dfx_tensors *set, const dfx_tensor *tensor,
                                const dfx_sink *sink, float *dst);

/* Bytes [off, off + n_bytes) of a tensor, as stored; the caller keeps within tensor->bytes. Any thread. */
dfx_status dfx_tensors_read_part(const dfx_tensors *set, const dfx_tensor *tensor, uint64_t off,
                                 size_t n_bytes, const dfx_sink *sink, void *dst);

/* ---- sets made by hand ----
 *
 * A view names tensors of another set anew, and may describe tensors that lie in no file by themselves (parts of a
 * compressed page, weights that a rule makes): file_idx DFX_TENSOR_NO_FILE. Reading such a one is DFX_E_INTERNAL.
 *     dfx_tensors_new_view(base, sink, &view);  dfx_tensors_add(...) each;  dfx_tensors_seal(view, sink); */
enum { DFX_TENSOR_NO_FILE = UINT32_MAX };

/* `base` is borrowed for the life of the view; NULL: no files. Close the view before it. */
dfx_status dfx_tensors_new_view(const dfx_tensors *base, const dfx_sink *sink, dfx_tensors **out);

/* *tensor is copied; its name is borrowed for the life of the view. file_idx is one of base's; the caller has checked
 * shape, bytes and off. */
dfx_status dfx_tensors_add(dfx_tensors *view, const dfx_tensor *tensor, const dfx_sink *sink);

/* Sort; from here on it can be read, by any thread. Errors: DFX_E_FORMAT: two tensors have one name. */
dfx_status dfx_tensors_seal(dfx_tensors *set, const dfx_sink *sink);

/* n_elements and bytes from type and shape. False, and *tensor untouched, when they overflow or end inside a byte or, of
 * ggml's types, a row inside a block. */
bool dfx_tensor_measure(dfx_tensor *tensor);

/* "F32 [3, 4]" into text, for messages; returns text. */
enum { DFX_SHAPE_TEXT = 192 };
char *dfx_tensor_shape_text(const dfx_tensor *tensor, char text[DFX_SHAPE_TEXT]);

#endif
