/* Tagged memory. Every block of dfx-edge comes from here, carries its owner's tag, and is counted.
 *
 * Small host objects: dfx_new / dfx_alloc / dfx_free. Buffers of tensors: dfx_mem, which also says in
 * which space it lives; core allocates host space only, a backend the others.
 * mimalloc is called in core/mem.c and nowhere else.
 * The two counters and the fault hook are the only process-wide state of the library. */
#ifndef DFX_CORE_MEM_H
#define DFX_CORE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/sink.h"

typedef enum dfx_space { DFX_SPACE_HOST, DFX_SPACE_PINNED, DFX_SPACE_DEVICE } dfx_space;

/* One block. `tag` is a string literal naming the owner; freeing reads `space`. */
typedef struct dfx_mem {
    void *ptr;
    size_t bytes;
    dfx_space space;
    const char *tag;
} dfx_mem;

/* `bytes` zeroed bytes, 16-byte aligned; never NULL on DFX_OK (0 bytes give a 1-byte block).
 * Errors: DFX_E_NOFIT with one sentence that names the tag and the bytes. Any thread. */
dfx_status dfx_alloc(const dfx_sink *sink, size_t bytes, const char *tag, void **out);
void dfx_free(void *ptr); /* NULL is fine */

/* count * size with overflow check, else as dfx_alloc. */
dfx_status dfx_alloc_array(const dfx_sink *sink, size_t count, size_t size, const char *tag,
                           void **out);

#define dfx_new(sink, tag, pp) dfx_alloc((sink), sizeof(**(pp)), (tag), (void **)(pp))
#define dfx_new_array(sink, count, tag, pp) \
    dfx_alloc_array((sink), (count), sizeof(**(pp)), (tag), (void **)(pp))

/* Grow *ptr (NULL at first) so that `count` elements of `size` bytes fit; contents kept, *cap updated,
 * new bytes zeroed. Growth is geometric. */
dfx_status dfx_grow(const dfx_sink *sink, size_t count, size_t size, const char *tag, size_t *cap,
                    void **ptr);

char *dfx_strdup(const char *text, const char *tag); /* NULL when out of memory */

/* A host buffer of exactly `bytes`, 64-byte aligned (or `align`, a power of two), not zeroed. Under a large one the system is
 * asked for huge pages: a direct read into pages of 4 KiB has a segment for each and is split, and products miss the TLB. Only
 * whole huge pages inside the block, so it does not grow. */
dfx_status dfx_mem_alloc(const dfx_sink *sink, size_t bytes, const char *tag, dfx_mem *out);
dfx_status dfx_mem_alloc_aligned(const dfx_sink *sink, size_t bytes, size_t align, const char *tag,
                                 dfx_mem *out);
void dfx_mem_free(dfx_mem *mem); /* host space only; leaves *mem zeroed */

/* The same for large blocks that come and go, straight from the system: exactly `bytes`, up to whole pages of memory on whose
 * border it begins, none of it taken before it is touched, all of it given back at once. */
dfx_status dfx_mem_map(const dfx_sink *sink, size_t bytes, const char *tag, dfx_mem *out);
void dfx_mem_unmap(dfx_mem *mem); /* zeroed is fine; leaves *mem zeroed */

/* Bytes held through this header now, and the most ever held. */
size_t dfx_mem_held_bytes(void);
size_t dfx_mem_peak_bytes(void);

/* Fault injection for tests: the n-th allocation from now (1 is the next) fails; 0 turns it off. */
void dfx_mem_fail_nth(uint64_t nth);

/* Untrusted sizes. False, and *out untouched, on overflow. */
static inline bool dfx_mul_size(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}
static inline bool dfx_add_size(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}
static inline size_t dfx_align_up(size_t x, size_t align) {
    return (x + align - 1) / align * align;
}

#endif
