/* Arena: many small objects that live and die together. Grows in chunks; pointers stay valid until
 * rewind or fini. Not thread safe.
 *
 *     dfx_arena arena;
 *     dfx_arena_init(&arena, "program");
 *     DFX_TRY(dfx_arena_alloc(&arena, sink, n * sizeof(*ops), (void **)&ops));
 *     dfx_arena_fini(&arena); */
#ifndef DFX_CORE_ARENA_H
#define DFX_CORE_ARENA_H

#include "core/mem.h"

typedef struct dfx_arena_chunk dfx_arena_chunk;

typedef struct dfx_arena {
    dfx_arena_chunk *top; /* owned; the newest chunk */
    const char *tag;
} dfx_arena;

typedef struct dfx_arena_mark {
    dfx_arena_chunk *chunk;
    size_t used;
} dfx_arena_mark;

void dfx_arena_init(dfx_arena *arena, const char *tag);
void dfx_arena_fini(dfx_arena *arena); /* zeroed arena is fine */

/* `bytes` zeroed bytes, 16-byte aligned. */
dfx_status dfx_arena_alloc(dfx_arena *arena, const dfx_sink *sink, size_t bytes, void **out);

/* A copy of `len` bytes of text, NUL-terminated. */
dfx_status dfx_arena_text(dfx_arena *arena, const dfx_sink *sink, const char *text, size_t len,
                          char **out);

/* printf into the arena. */
dfx_status dfx_arena_printf(dfx_arena *arena, const dfx_sink *sink, char **out, const char *fmt,
                            ...) DFX_PRINTF(4, 5);

/* Rewind frees what was allocated after the mark. */
dfx_arena_mark dfx_arena_begin(const dfx_arena *arena);
void dfx_arena_rewind(dfx_arena *arena, dfx_arena_mark mark);

#endif
