/* LZ4 of byte planes, one block at a time, and the way back for a whole page. LZ4 finds repeated bytes; in bf16 weights only
 * the upper bytes (sign and exponent) repeat, so they are put together first.
 * Source: lz4, doc/lz4_Block_format.md. */
#include <inttypes.h>
#include <lz4.h>
#include <string.h>

#include "offload/packed_format.h"

static const char *const NAMES[] = {[DFX_CODEC_RAW] = "raw", [DFX_CODEC_LZ4_PLANES] = "lz4-planes"};

const char *dfx_packed_codec_name(dfx_codec codec) {
    return NAMES[codec];
}

bool dfx_packed_codec_parse(const char *text, dfx_codec *out) {
    for (size_t i = 0; i < DFX_COUNT(NAMES); i++)
        if (strcmp(text, NAMES[i]) == 0) {
            *out = (dfx_codec)i;
            return true;
        }
    return false;
}

/* Pages are multiples of 64 bytes, so blocks have an even length. */
static void split(const uint8_t *restrict block, size_t n_bytes, uint8_t *restrict planes) {
    size_t half = n_bytes / 2;
    for (size_t i = 0; i < half; i++) {
        planes[i] = block[2 * i];
        planes[half + i] = block[2 * i + 1];
    }
}

static void join(const uint8_t *restrict planes, size_t n_bytes, uint8_t *restrict block) {
    size_t half = n_bytes / 2;
    for (size_t i = 0; i < half; i++) {
        block[2 * i] = planes[i];
        block[2 * i + 1] = planes[half + i];
    }
}

size_t dfx_packed_squeeze(const void *block, size_t n_bytes, void *planes, void *dst) {
    split(block, n_bytes, planes);
    int stored = LZ4_compress_default(planes, dst, (int)n_bytes, (int)n_bytes - 1);
    if (stored > 0)
        return (size_t)stored;
    memcpy(dst, block, n_bytes);
    return n_bytes;
}

static uint32_t read_u32(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static dfx_status damaged(const dfx_packed_page *page, const dfx_sink *sink, const char *what) {
    return dfx_fail(sink, DFX_E_FORMAT, "page %s: %s; the file is damaged, pack it again",
                    page->name, what);
}

static dfx_status expand_blocks(const dfx_packed_page *page, const dfx_sink *sink,
                                const uint8_t *stored, uint8_t *dst, uint8_t *scratch) {
    uint64_t n_blocks = dfx_packed_n_blocks(page->bytes), at = n_blocks * DFX_PACKED_SIZE_BYTES;
    if (at > page->stored_bytes)
        return damaged(page, sink, "the table of its blocks is cut off");
    for (uint64_t i = 0; i < n_blocks; i++, dst += DFX_PACKED_BLOCK_BYTES) {
        uint64_t bytes = dfx_packed_block_bytes(page->bytes, i);
        uint32_t have = read_u32(stored + i * DFX_PACKED_SIZE_BYTES);
        if (have > bytes || have > page->stored_bytes - at)
            return damaged(page, sink, "a compressed block is longer than its place");
        if (have == bytes) {
            memcpy(dst, stored + at, bytes);
        } else {
            int got = LZ4_decompress_safe((const char *)stored + at, (char *)scratch, (int)have,
                                          (int)bytes);
            if (got < 0 || (uint64_t)got != bytes)
                return damaged(page, sink, "a compressed block cannot be expanded");
            join(scratch, bytes, dst);
        }
        at += have;
    }
    return at == page->stored_bytes ? DFX_OK : damaged(page, sink, "bytes follow its last block");
}

dfx_status dfx_packed_expand(const dfx_packed_page *page, const dfx_sink *sink, const void *stored,
                             void *dst, void *scratch) {
    if (page->codec == DFX_CODEC_LZ4_PLANES)
        return expand_blocks(page, sink, stored, dst, scratch);
    memcpy(dst, stored, page->bytes);
    return DFX_OK;
}
