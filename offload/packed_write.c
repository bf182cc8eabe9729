/* Writer of packed models. One page after the other is filled on all cores (packed_fill.c), compressed where that pays,
 * and written by a thread of its own while the next one is filled: two buffers of the largest page, and no more.
 * The header comes last, over zeros, so that until then the file is not even safetensors; and the file has no name
 * before it is complete. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/checksum.h"
#include "core/write_behind.h"
#include "offload/packed_fill.h"

typedef struct packer {
    const dfx_pack_options *options;
    const dfx_sink *sink;
    dfx_pack_layout layout;
    dfx_fill fill;
    dfx_pool *pool;
    dfx_file_writer file;
    dfx_mem buffers[2];
    dfx_write_behind write; /* from buffers[1 - filling] */
    uint64_t done_bytes, all_bytes;
} packer;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Does the path name this very file, by whatever name? */
static bool same_file(const struct stat *target, const char *path) {
    struct stat st;
    return stat(path, &st) == 0 && st.st_dev == target->st_dev && st.st_ino == target->st_ino;
}

static dfx_status own_source(const char *path, const dfx_sink *sink) {
    return dfx_fail(sink, DFX_E_USAGE,
                    "%s: is a file of the model that is packed, and would be lost; choose another "
                    "name",
                    path);
}

static dfx_status check_target(const dfx_pack_source *s, const char *path, const dfx_sink *sink) {
    struct stat target;
    char file[DFX_PATH_BYTES];
    if (stat(path, &target) != 0)
        return DFX_OK;
    for (size_t p = 0; p < s->n_programs; p++) {
        const dfx_tensors *set = s->programs[p]->tensors;
        for (size_t i = 0; i < dfx_tensors_n_files(set); i++)
            if (same_file(&target, dfx_tensors_file_path(set, (uint32_t)i)))
                return own_source(path, sink);
    }
    for (size_t i = 0; s->bundle && s->bundle->folder && i < s->n_files; i++)
        if (dfx_path_join(NULL, s->bundle->folder, s->files[i], file) == DFX_OK &&
            same_file(&target, file))
            return own_source(path, sink);
    return DFX_OK;
}

/* ---- pages ---- */

/* Kept where it saves a tenth. The other buffer must be free. */
static dfx_status try_squeeze(packer *k, dfx_packed_page *page, const void *bytes, void *other,
                              const void **out) {
    uint64_t stored;
    *out = bytes;
    DFX_TRY(dfx_fill_squeeze(&k->fill, bytes, page->bytes, other, &stored));
    if (stored > page->bytes / 10 * 9)
        return DFX_OK;
    page->codec = DFX_CODEC_LZ4_PLANES;
    page->stored_bytes = stored;
    *out = other;
    return DFX_OK;
}

static uint64_t source_bytes(const dfx_pack_layout *l, const dfx_pack_page *page) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < page->n_tensors; i++) {
        const dfx_pack_tensor *t = &l->tensors[page->first_tensor + i];
        sum += t->source ? t->source->bytes : 0;
    }
    return sum;
}

/* *filling: the buffer that is free, and becomes the other one of what is written. */
static dfx_status pack_page(packer *k, dfx_pack_page *page, int *filling) {
    void *bytes = k->buffers[*filling].ptr, *other = k->buffers[1 - *filling].ptr;
    const void *stored = bytes;
    DFX_TRY(dfx_fill_page(&k->fill, page, bytes));
    page->page.xxh3 = dfx_xxh3(bytes, page->page.bytes);
    DFX_TRY(dfx_write_behind_wait(&k->write));
    if (k->options->compress && !page->looked_up) {
        DFX_TRY(try_squeeze(k, &page->page, bytes, other, &stored));
        dfx_pack_layout_place(&k->layout);
    }
    if (stored == bytes)
        *filling = 1 - *filling;
    dfx_write_behind_begin(&k->write, &k->file, k->sink, k->layout.data_off + page->page.off,
                           stored, (size_t)page->page.stored_bytes);
    k->done_bytes += source_bytes(&k->layout, page);
    if (k->options->progress)
        k->options->progress(k->options->user, k->done_bytes, k->all_bytes);
    return DFX_OK;
}

static dfx_status write_files(packer *k) {
    uint64_t off = k->layout.data_off;
    for (size_t i = 0; i < k->layout.n_files; i++) {
        const dfx_pack_file *file = &k->layout.files[i];
        DFX_TRY(dfx_file_write_at(&k->file, k->sink, off, file->text, file->bytes));
        off += file->bytes;
    }
    return DFX_OK;
}

static dfx_status write_header(packer *k) {
    char *header;
    DFX_TRY(dfx_file_write_end_at(&k->file, k->sink, k->layout.data_off + k->layout.data_bytes));
    DFX_TRY(dfx_pack_header(&k->layout, k->options, k->sink, &header));
    dfx_status status = dfx_file_write_at(&k->file, k->sink, 0, header, (size_t)k->layout.data_off);
    dfx_free(header);
    return status;
}

static dfx_status write_all(packer *k) {
    int filling = 0;
    if (!k->options->compress)
        DFX_TRY(dfx_file_write_room(&k->file, k->sink, k->layout.data_off + k->layout.data_bytes));
    DFX_TRY(write_files(k));
    dfx_status status = DFX_OK;
    for (size_t i = 0; i < k->layout.n_pages && status == DFX_OK; i++)
        status = pack_page(k, &k->layout.pages[i], &filling);
    dfx_status written = dfx_write_behind_wait(&k->write);
    DFX_TRY(status);
    DFX_TRY(written);
    return write_header(k);
}

static uint64_t page_bytes_max(const dfx_pack_layout *l) {
    uint64_t max = 0;
    for (size_t i = 0; i < l->n_pages; i++)
        if (l->pages[i].page.bytes > max)
            max = l->pages[i].page.bytes;
    return max;
}

static dfx_status pack(packer *k, const dfx_pack_source *source, const char *path) {
    const dfx_pack_options *o = k->options;
    uint64_t bytes = dfx_fill_squeeze_bound(page_bytes_max(&k->layout));
    dfx_status status;
    DFX_TRY(check_target(source, path, k->sink));
    DFX_TRY(dfx_pool_open(k->sink, o->n_threads, &k->pool));
    dfx_pool_set_cancel(k->pool, o->cancelled, o->user);
    DFX_TRY(dfx_fill_init(&k->fill, &k->layout, source, k->pool, o->compress, k->sink));
    for (int i = 0; i < 2; i++)
        DFX_TRY(dfx_mem_alloc(k->sink, bytes, "pack", &k->buffers[i]));
    DFX_TRY(dfx_file_write_begin_large(path, k->sink, &k->file));
    status = write_all(k);
    if (status == DFX_OK)
        return dfx_file_write_commit(&k->file, k->sink);
    dfx_file_write_abort(&k->file);
    return status;
}

static void tell(const packer *k, double begun, dfx_pack_report *report) {
    const dfx_pack_layout *l = &k->layout;
    *report = (dfx_pack_report){.source_bytes = l->source_bytes,
                                .file_bytes = l->data_off + l->data_bytes,
                                .n_pages = l->n_pages,
                                .page_bytes_max = page_bytes_max(l),
                                .seconds = now_s() - begun};
    for (size_t i = 0; i < l->n_tensors; i++) {
        report->n_tensors += l->tensors[i].source != NULL;
        report->n_quantized += dfx_q_has_row_scale(l->tensors[i].format);
    }
    for (size_t i = 0; i < l->n_pages; i++)
        report->n_compressed += l->pages[i].page.codec != DFX_CODEC_RAW;
}

dfx_status dfx_pack_write(const dfx_pack_source *source, const dfx_pack_options *options,
                          const char *path, const dfx_sink *sink, dfx_pack_report *report) {
    packer k = {.options = options, .sink = sink};
    double begun = now_s();
    DFX_TRY(dfx_pack_layout_make(&k.layout, source, options, sink));
    k.all_bytes = k.layout.source_bytes - k.layout.files_bytes;
    dfx_status status = path ? pack(&k, source, path) : DFX_OK;
    if (status == DFX_OK)
        tell(&k, begun, report);
    for (int i = 0; i < 2; i++)
        dfx_mem_free(&k.buffers[i]);
    dfx_fill_fini(&k.fill);
    dfx_pool_close(k.pool);
    dfx_pack_layout_fini(&k.layout);
    return status;
}
