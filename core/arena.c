/* Chunks form a list, newest first; a request that does not fit opens a chunk of at least twice the
 * last one's size. */
#include "core/arena.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { FIRST_CHUNK_BYTES = 4096, ALIGN = 16 };

struct dfx_arena_chunk {
    dfx_arena_chunk *below;
    size_t cap, used;
    _Alignas(ALIGN) unsigned char data[];
};

void dfx_arena_init(dfx_arena *arena, const char *tag) {
    *arena = (dfx_arena){.tag = tag};
}

void dfx_arena_fini(dfx_arena *arena) {
    dfx_arena_rewind(arena, (dfx_arena_mark){0});
}

dfx_status dfx_arena_alloc(dfx_arena *arena, const dfx_sink *sink, size_t bytes, void **out) {
    if (bytes > SIZE_MAX / 4)
        return dfx_fail(sink, DFX_E_NOFIT, "out of memory: %s asked for %zu bytes", arena->tag,
                        bytes);
    dfx_arena_chunk *top = arena->top;
    size_t need = dfx_align_up(bytes ? bytes : 1, ALIGN);
    if (!top || top->cap - top->used < need) {
        size_t cap = top ? top->cap * 2 : FIRST_CHUNK_BYTES;
        if (cap < need)
            cap = need;
        void *raw = NULL;
        DFX_TRY(dfx_alloc(sink, sizeof(*top) + cap, arena->tag, &raw));
        dfx_arena_chunk *fresh = raw;
        *fresh = (dfx_arena_chunk){.below = top, .cap = cap};
        arena->top = top = fresh;
    }
    *out = memset(top->data + top->used, 0, need);
    top->used += need;
    return DFX_OK;
}

dfx_status dfx_arena_text(dfx_arena *arena, const dfx_sink *sink, const char *text, size_t len,
                          char **out) {
    void *copy = NULL;
    DFX_TRY(dfx_arena_alloc(arena, sink, len + 1, &copy));
    memcpy(copy, text, len);
    *out = copy;
    return DFX_OK;
}

dfx_status dfx_arena_printf(dfx_arena *arena, const dfx_sink *sink, char **out, const char *fmt,
                            ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    void *text = NULL;
    dfx_status status =
        len < 0 ? DFX_E_INTERNAL : dfx_arena_alloc(arena, sink, (size_t)len + 1, &text);
    if (status == DFX_OK) {
        vsnprintf(text, (size_t)len + 1, fmt, again);
        *out = text;
    }
    va_end(again);
    return status;
}

dfx_arena_mark dfx_arena_begin(const dfx_arena *arena) {
    return (dfx_arena_mark){.chunk = arena->top, .used = arena->top ? arena->top->used : 0};
}

void dfx_arena_rewind(dfx_arena *arena, dfx_arena_mark mark) {
    while (arena->top && arena->top != mark.chunk) {
        dfx_arena_chunk *below = arena->top->below;
        dfx_free(arena->top);
        arena->top = below;
    }
    if (arena->top)
        arena->top->used = mark.used;
}
