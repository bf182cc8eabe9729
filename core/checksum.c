#include "core/checksum.h"

#include <xxhash.h>

uint64_t dfx_xxh3(const void *bytes, size_t n_bytes) {
    return XXH3_64bits(bytes, n_bytes);
}

static dfx_status update(XXH3_state_t *state, const dfx_file *file, uint64_t off, uint64_t n_bytes,
                         const dfx_sink *sink) {
    enum { PIECE = 1 << 20 };
    unsigned char *piece;
    dfx_status status = DFX_OK;
    DFX_TRY(dfx_new_array(sink, PIECE, "checksum", &piece));
    for (uint64_t done = 0; done < n_bytes && status == DFX_OK; done += PIECE) {
        size_t n = n_bytes - done < PIECE ? (size_t)(n_bytes - done) : PIECE;
        status = dfx_file_read(file, sink, off + done, piece, n);
        if (status == DFX_OK)
            XXH3_64bits_update(state, piece, n);
    }
    dfx_free(piece);
    return status;
}

dfx_status dfx_xxh3_file(const dfx_file *file, uint64_t off, uint64_t n_bytes, const dfx_sink *sink,
                         uint64_t *out) {
    XXH3_state_t *state = XXH3_createState();
    if (!state)
        return dfx_fail(sink, DFX_E_NOFIT, "out of memory checking %s", file->path);
    XXH3_64bits_reset(state);
    dfx_status status = update(state, file, off, n_bytes, sink);
    *out = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return status;
}
