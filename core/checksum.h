/* Checksum of bytes against damage, not against forgery: XXH3 with 64 bits and seed 0, the same on every machine.
 * Source: xxHash, doc/xxhash_spec.md. */
#ifndef DFX_CORE_CHECKSUM_H
#define DFX_CORE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

/* Any thread. Tens of GB/s, so a disk does not notice. */
uint64_t dfx_xxh3(const void *bytes, size_t n_bytes);

#endif
