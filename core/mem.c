/* The one place that talks to mimalloc. Sizes are taken from the allocator, so the counters tell what it really handed
 * out. Sanitizer builds use the C library's allocator, whose blocks the sanitizer guards byte by byte. */
#include "core/mem.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef DFX_SANITIZED
#include <malloc.h>
#define block_bytes malloc_usable_size
#define block_free free
static void *block_alloc(size_t bytes, size_t align) {
    void *ptr;
    return posix_memalign(&ptr, align, bytes) == 0 ? ptr : NULL;
}
#else
#include <mimalloc.h>
#define block_bytes mi_usable_size
#define block_free mi_free
#define block_alloc mi_malloc_aligned
#endif

enum { SMALL_ALIGN = 16, BUFFER_ALIGN = 64, PAGE_BYTES = 4096 };

static atomic_size_t held_bytes, peak_bytes;
static atomic_uint_fast64_t fail_countdown;

static bool fault_due(void) {
    uint_fast64_t left = atomic_load(&fail_countdown);
    while (left > 0)
        if (atomic_compare_exchange_weak(&fail_countdown, &left, left - 1))
            return left == 1;
    return false;
}

static void count_bytes_in(size_t bytes) {
    size_t now = atomic_fetch_add(&held_bytes, bytes) + bytes;
    size_t peak = atomic_load(&peak_bytes);
    while (now > peak && !atomic_compare_exchange_weak(&peak_bytes, &peak, now))
        continue;
}

static void count_in(void *ptr) {
    count_bytes_in(block_bytes(ptr));
}

static void count_out(void *ptr) {
    atomic_fetch_sub(&held_bytes, block_bytes(ptr));
}

static dfx_status no_memory(const dfx_sink *sink, size_t bytes, const char *tag) {
    return dfx_fail(sink, DFX_E_NOFIT,
                    "out of memory: %s needs %zu more bytes and the system has none; "
                    "close other programs or choose a smaller size",
                    tag, bytes);
}

dfx_status dfx_alloc(const dfx_sink *sink, size_t bytes, const char *tag, void **out) {
    void *ptr = fault_due() ? NULL : block_alloc(bytes ? bytes : 1, SMALL_ALIGN);
    if (!ptr)
        return no_memory(sink, bytes, tag);
    count_in(ptr);
    *out = memset(ptr, 0, bytes);
    return DFX_OK;
}

dfx_status dfx_alloc_array(const dfx_sink *sink, size_t count, size_t size, const char *tag,
                           void **out) {
    size_t bytes;
    if (!dfx_mul_size(count, size, &bytes))
        return no_memory(sink, SIZE_MAX, tag);
    return dfx_alloc(sink, bytes, tag, out);
}

void dfx_free(void *ptr) {
    if (!ptr)
        return;
    count_out(ptr);
    block_free(ptr);
}

dfx_status dfx_grow(const dfx_sink *sink, size_t count, size_t size, const char *tag, size_t *cap,
                    void **ptr) {
    if (count <= *cap)
        return DFX_OK;
    size_t new_cap = *cap ? *cap : 8;
    while (new_cap < count)
        if (!dfx_mul_size(new_cap, 2, &new_cap))
            return no_memory(sink, SIZE_MAX, tag);
    void *grown = NULL;
    DFX_TRY(dfx_alloc_array(sink, new_cap, size, tag, &grown));
    if (*ptr)
        memcpy(grown, *ptr, *cap * size);
    dfx_free(*ptr);
    *ptr = grown;
    *cap = new_cap;
    return DFX_OK;
}

char *dfx_strdup(const char *text, const char *tag) {
    size_t bytes = strlen(text) + 1;
    void *copy = NULL;
    if (dfx_alloc(NULL, bytes, tag, &copy) != DFX_OK)
        return NULL;
    return memcpy(copy, text, bytes);
}

static void ask_for_huge_pages(void *ptr, size_t bytes) {
#ifdef MADV_HUGEPAGE
    enum { HUGE_PAGE_BYTES = 2 << 20, HUGE_PAGES_MIN = 4 };
    uintptr_t first = dfx_align_up((uintptr_t)ptr, HUGE_PAGE_BYTES);
    uintptr_t end = ((uintptr_t)ptr + bytes) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if (end > first && end - first >= (size_t)HUGE_PAGES_MIN * HUGE_PAGE_BYTES)
        madvise((void *)first, end - first, MADV_HUGEPAGE); /* a refusal costs speed alone */
#endif
}

dfx_status dfx_mem_alloc(const dfx_sink *sink, size_t bytes, const char *tag, dfx_mem *out) {
    return dfx_mem_alloc_aligned(sink, bytes, BUFFER_ALIGN, tag, out);
}

dfx_status dfx_mem_alloc_aligned(const dfx_sink *sink, size_t bytes, size_t align, const char *tag,
                                 dfx_mem *out) {
    bool possible =
        bytes <= PTRDIFF_MAX; /* no object is larger, and sanitizers abort where it is asked for */
    void *ptr = fault_due() || !possible ? NULL : block_alloc(bytes ? bytes : 1, align);
    if (!ptr)
        return no_memory(sink, bytes, tag);
    count_in(ptr);
    ask_for_huge_pages(ptr, bytes);
    *out = (dfx_mem){.ptr = ptr, .bytes = bytes, .space = DFX_SPACE_HOST, .tag = tag};
    return DFX_OK;
}

void dfx_mem_free(dfx_mem *mem) {
    if (mem->ptr)
        dfx_free(mem->ptr);
    *mem = (dfx_mem){0};
}

/* Sanitizers guard blocks of the C library only. */
#ifdef DFX_SANITIZED

dfx_status dfx_mem_map(const dfx_sink *sink, size_t bytes, const char *tag, dfx_mem *out) {
    return dfx_mem_alloc_aligned(sink, bytes, PAGE_BYTES, tag, out);
}

void dfx_mem_unmap(dfx_mem *mem) {
    dfx_mem_free(mem);
}

#else

static size_t mapped_bytes(size_t bytes) {
    return dfx_align_up(bytes ? bytes : 1, PAGE_BYTES);
}

dfx_status dfx_mem_map(const dfx_sink *sink, size_t bytes, const char *tag, dfx_mem *out) {
    bool possible = bytes <= PTRDIFF_MAX;
    void *ptr = fault_due() || !possible ? MAP_FAILED
                                         : mmap(NULL, mapped_bytes(bytes), PROT_READ | PROT_WRITE,
                                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (ptr == MAP_FAILED)
        return no_memory(sink, bytes, tag);
    count_bytes_in(mapped_bytes(bytes));
    ask_for_huge_pages(ptr, bytes);
    *out = (dfx_mem){.ptr = ptr, .bytes = bytes, .space = DFX_SPACE_HOST, .tag = tag};
    return DFX_OK;
}

void dfx_mem_unmap(dfx_mem *mem) {
    if (mem->ptr) {
        munmap(mem->ptr, mapped_bytes(mem->bytes));
        atomic_fetch_sub(&held_bytes, mapped_bytes(mem->bytes));
    }
    *mem = (dfx_mem){0};
}

#endif

size_t dfx_mem_held_bytes(void) {
    return atomic_load(&held_bytes);
}

size_t dfx_mem_peak_bytes(void) {
    return atomic_load(&peak_bytes);
}

void dfx_mem_fail_nth(uint64_t nth) {
    atomic_store(&fail_countdown, nth);
}
