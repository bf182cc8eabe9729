/* Checksum of bytes against damage, not against forgery: XXH3 with 64 bits and seed 0, the same on every machine.
 * Source: xxHash, doc/xxhash_spec.md. */
#ifndef DFX_CORE_CHECKSUM_H
#define DFX_CORE_CHECKSUM_H

#include "core/file.h"

/* Any thread. Tens of GB/s, so a disk does not notice. */
uint64_t dfx_xxh3(const void *bytes, size_t n_bytes);

/* Of the bytes [off, off + n_bytes) of a file, read in pieces. Errors: DFX_E_IO, DFX_E_NOFIT. */
dfx_status dfx_xxh3_file(const dfx_file *file, uint64_t off, uint64_t n_bytes, const dfx_sink *sink,
                         uint64_t *out);

#endif
