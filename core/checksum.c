#include "core/checksum.h"

#include <xxhash.h>

uint64_t dfx_xxh3(const void *bytes, size_t n_bytes) {
    return XXH3_64bits(bytes, n_bytes);
}
