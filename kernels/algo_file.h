/* A small file that remembers which algorithm was chosen for which product, so that choosing by the clock is done once on a
 * machine and not in each process. What a product and an algorithm are, only the backend knows; here they are bytes.
 *
 * The file is this machine's alone: numbers are as its processor stores them. In order, without gaps:
 *
 *   bytes  what
 *       8  "DFXALGOS"
 *       4  version, DFX_ALGOS_VERSION; another layout, or another way to choose, is another version
 *       4  n, the number of entries, at most DFX_ALGOS_MAX
 *       8  XXH3 with 64 bits of all that follows
 *     384  heading: what the choices depend on (device, driver, library), as text, filled up with zeros
 *   n*160  entries: key (96), algorithm (64); no key twice
 *
 * It is a hint: whoever takes an entry from it checks that it can be used. Nothing here is an error for the caller: a file
 * that is missing, damaged, of another heading, or that cannot be written, is told as a detail and costs time alone. */
#ifndef DFX_KERNELS_ALGO_FILE_H
#define DFX_KERNELS_ALGO_FILE_H

#include "core/mem.h"

enum {
    DFX_ALGOS_VERSION = 1,
    DFX_ALGOS_MAX = 4096,
    DFX_ALGOS_HEADING_BYTES = 384, /* the last one is 0 */
    DFX_ALGO_KEY_BYTES = 96,
    DFX_ALGO_BYTES = 64
};

typedef struct dfx_algo {
    unsigned char key[DFX_ALGO_KEY_BYTES], algo[DFX_ALGO_BYTES];
} dfx_algo;

/* Zeroed: empty. */
typedef struct dfx_algos {
    dfx_algo *list; /* [n], owned; oldest first */
    size_t n, cap;
} dfx_algos;

void dfx_algos_fini(dfx_algos *algos);

/* The DFX_ALGO_BYTES of the key, borrowed until the next put; NULL when it is not there. */
const void *dfx_algos_find(const dfx_algos *algos, const void *key);

/* Add, or replace what the key had; of a full list the oldest entry goes. Errors: DFX_E_NOFIT. */
dfx_status dfx_algos_put(dfx_algos *algos, const void *key, const void *algo, const dfx_sink *sink);

/* The whole file as bytes; *out is owned by the caller (dfx_free). Errors: DFX_E_NOFIT. */
dfx_status dfx_algos_encode(const dfx_algos *algos, const char *heading, const dfx_sink *sink,
                            void **out, size_t *out_bytes);

/* Into an empty list. NULL, or why not, as a string literal; the list is then empty. */
const char *dfx_algos_decode(const void *bytes, size_t n_bytes, const char *heading,
                             dfx_algos *out);

/* What the file holds, into an empty list. */
void dfx_algos_load(const char *path, const char *heading, const dfx_sink *sink, dfx_algos *out);

/* Write the list, and what another process has written since, as far as there is room; never half a file. When two write at
 * the same moment, the choices of one may be forgotten. */
void dfx_algos_store(const char *path, const char *heading, dfx_algos *algos, const dfx_sink *sink);

#endif
