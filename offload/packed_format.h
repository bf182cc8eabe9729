/* Private to offload/packed*.c: the words of the packed format that reader and writer share. quant/FORMAT.md explains
 * them; a change here is a new DFX_PACKED_VERSION. */
#ifndef DFX_OFFLOAD_PACKED_FORMAT_H
#define DFX_OFFLOAD_PACKED_FORMAT_H

#include "offload/packed.h"

/* Keys of __metadata__. */
#define DFX_PACKED_KEY_VERSION "dfx.version"
#define DFX_PACKED_KEY_QUANT "dfx.quant"
#define DFX_PACKED_KEY_SOURCE "dfx.source"
#define DFX_PACKED_KEY_SOURCE_BYTES "dfx.source_bytes"
#define DFX_PACKED_KEY_PAGES "dfx.pages"

/* Names of tensors that are no weights. */
#define DFX_PACKED_PAD "pad/"
#define DFX_PACKED_PAGE "pages/"

/* FLUX.1 has 200 or so. */
enum { DFX_PACKED_PAGES_MAX = 16384 };

/* A compressed page: u32 LE stored bytes of each block, then the blocks. A block is this much of the page's memory (the
 * last one the rest). Its even bytes and then its odd bytes are one LZ4 block; stored bytes equal to its length mean
 * that it is there as it is. */
enum { DFX_PACKED_BLOCK_BYTES = 1 << 20, DFX_PACKED_SIZE_BYTES = 4 };

static inline uint64_t dfx_packed_n_blocks(uint64_t page_bytes) {
    return (page_bytes + DFX_PACKED_BLOCK_BYTES - 1) / DFX_PACKED_BLOCK_BYTES;
}

static inline uint64_t dfx_packed_block_bytes(uint64_t page_bytes, uint64_t block_idx) {
    uint64_t left = page_bytes - block_idx * DFX_PACKED_BLOCK_BYTES;
    return left < DFX_PACKED_BLOCK_BYTES ? left : DFX_PACKED_BLOCK_BYTES;
}

const char *dfx_packed_codec_name(dfx_codec codec);
bool dfx_packed_codec_parse(const char *text, dfx_codec *out);

/* "<program>/<page>": the builder's name without its final point. A program that uses a page name again has the second
 * as "name~2", so that names are unique in a file. */
enum { DFX_PACKED_NAME_BYTES = 512 };
void dfx_packed_page_name(const dfx_program *program, uint32_t page_idx,
                          char out[DFX_PACKED_NAME_BYTES]);

/* Compress a block: even bytes, then odd bytes into `planes`, and LZ4 of that into `dst`, both as large as the block.
 * Returns the stored bytes; the block's own length when it did not become smaller (dst is then the block as it is). */
size_t dfx_packed_squeeze(const void *block, size_t n_bytes, void *planes, void *dst);

#endif
