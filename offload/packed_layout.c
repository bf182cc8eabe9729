#include "offload/packed_layout.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/q_policy.h"

/* Small files together: configurations and vocabularies take a few MB. */
enum { FILE_BYTES_MAX = 256 << 20 };

void dfx_pack_layout_fini(dfx_pack_layout *layout) {
    for (size_t i = 0; i < layout->n_files; i++)
        dfx_free(layout->files[i].owned);
    dfx_free(layout->tensors);
    dfx_arena_fini(&layout->arena);
    *layout = (dfx_pack_layout){0};
}

/* The user's patterns mean "as stored", whatever becomes of the layers that the table keeps. */
static dfx_qformat format_of(const dfx_pack_options *o, const char *name, const dfx_tensor *t) {
    bool wide = o->quant == DFX_Q_BF16 || o->quant == DFX_Q_F32;
    for (size_t i = 0; i < o->n_keep; i++)
        if (dfx_q_glob(o->keep[i], name))
            return dfx_q_unchanged(t->dtype);
    if (o->quant == DFX_Q_STORED)
        return dfx_q_unchanged(t->dtype);
    dfx_q_policy policy = {.target = o->quant, .kept = wide ? o->quant : DFX_Q_STORED};
    dfx_q_tensor tensor = {.name = name, .dtype = t->dtype, .shape = t->shape, .n_dims = t->rank};
    dfx_qformat format = dfx_q_policy_format(&policy, &tensor);
    /* A format that changes nothing is a copy. 8 bits with a scale stay what they are, quant/FORMAT.md says. */
    bool same = !dfx_q_has_row_scale(format) && dfx_q_storage(format, t->dtype) == t->dtype;
    return same || dfx_dtype_bytes(t->dtype) == 1 ? DFX_Q_STORED : format;
}

static dfx_status add_tensor(dfx_pack_layout *l, dfx_pack_page *page, const dfx_pack_tensor *tensor,
                             const dfx_sink *sink) {
    DFX_TRY(dfx_grow(sink, l->n_tensors + 1, sizeof(*l->tensors), "pack", &l->cap_tensors,
                     (void **)&l->tensors));
    dfx_pack_tensor *t = &l->tensors[l->n_tensors++];
    *t = *tensor;
    t->made.file_idx = DFX_TENSOR_NO_FILE;
    t->made.name = t->name;
    t->made.off = page->page.bytes;
    page->page.bytes = dfx_align_up(page->page.bytes + t->made.bytes, DFX_PAGE_ALIGN);
    page->n_tensors++;
    return DFX_OK;
}

/* A weight, and its scales where it has become codes: the order in which dfx_linear() reads them. */
static dfx_status add_weight(dfx_pack_layout *l, dfx_pack_page *page, const dfx_weight *w,
                             const dfx_pack_options *o, const dfx_sink *sink) {
    char *name, *scale_name;
    dfx_pack_tensor t = {.source = w->tensor};
    if (!w->tensor || w->tensor->bytes != w->bytes)
        return dfx_fail(sink, DFX_E_INTERNAL, "pack: weight %s has no tensor of its size", w->name);
    DFX_TRY(dfx_arena_printf(&l->arena, sink, &name, "%s.%s", page->component, w->name));
    l->source_bytes += w->tensor->bytes;
    t.name = name;
    t.format = format_of(o, name, w->tensor);
    t.made = *w->tensor;
    t.made.dtype = dfx_q_storage(t.format, w->tensor->dtype);
    if (!dfx_tensor_measure(&t.made))
        return dfx_fail(sink, DFX_E_FORMAT, "%s is too large in the format %s", name,
                        dfx_q_name(t.format));
    DFX_TRY(add_tensor(l, page, &t, sink));
    if (!dfx_q_has_row_scale(t.format))
        return DFX_OK;
    DFX_TRY(dfx_arena_printf(&l->arena, sink, &scale_name, "%s_scale", name));
    dfx_pack_tensor scale = {
        .name = scale_name,
        .format = DFX_Q_F32,
        .made = {.dtype = DFX_DTYPE_F32, .rank = 1, .shape = {w->tensor->shape[0]}}};
    dfx_tensor_measure(&scale.made);
    return add_tensor(l, page, &scale, sink);
}

static dfx_status add_page(dfx_pack_layout *l, const dfx_program *program, const char *component,
                           uint32_t page_idx, const dfx_pack_options *o, const dfx_sink *sink) {
    const dfx_page *from = &program->pages[page_idx];
    dfx_pack_page *page = &l->pages[l->n_pages];
    char name[DFX_PACKED_NAME_BYTES], *copy;
    dfx_packed_page_name(program, page_idx, name);
    DFX_TRY(dfx_arena_text(&l->arena, sink, name, strlen(name), &copy));
    *page = (dfx_pack_page){.page.name = copy,
                            .component = component,
                            .set = program->tensors,
                            .first_tensor = (uint32_t)l->n_tensors,
                            .looked_up = program->n_ops == 0};
    for (uint32_t i = from->first_weight; i < from->first_weight + from->n_weights; i++)
        DFX_TRY(add_weight(l, page, &program->weights[i], o, sink));
    page->page.stored_bytes = page->page.bytes;
    l->n_pages += page->page.bytes > 0; /* a page without weights is no page of the file */
    return DFX_OK;
}

static dfx_status add_pages(dfx_pack_layout *l, const dfx_pack_source *s, const dfx_pack_options *o,
                            const dfx_sink *sink) {
    size_t n = 0;
    for (size_t p = 0; p < s->n_programs; p++)
        n += s->programs[p]->n_pages;
    if (n == 0 || n > DFX_PACKED_PAGES_MAX)
        return dfx_fail(sink, DFX_E_INTERNAL, "pack: wanted 1 to %d pages, found %zu",
                        DFX_PACKED_PAGES_MAX, n);
    DFX_TRY(dfx_arena_alloc(&l->arena, sink, n * sizeof(*l->pages), (void **)&l->pages));
    for (size_t p = 0; p < s->n_programs; p++)
        for (uint32_t i = 0; i < s->programs[p]->n_pages; i++)
            DFX_TRY(add_page(l, s->programs[p], s->components[p], i, o, sink));
    return DFX_OK;
}

static dfx_status add_files(dfx_pack_layout *l, const dfx_pack_source *s, const dfx_sink *sink) {
    DFX_TRY(dfx_arena_alloc(&l->arena, sink, s->n_files * sizeof(*l->files), (void **)&l->files));
    for (size_t i = 0; i < s->n_files; i++) {
        dfx_pack_file *file = &l->files[i];
        file->path = s->files[i];
        if (s->file_texts) {
            file->text = s->file_texts[i];
            file->bytes = strlen(file->text);
        } else {
            DFX_TRY(dfx_bundle_slurp(s->bundle, file->path, sink, FILE_BYTES_MAX - l->files_bytes,
                                     &file->owned, &file->bytes));
            file->text = file->owned;
        }
        l->n_files++;
        l->files_bytes += file->bytes;
        l->source_bytes += file->bytes;
    }
    return DFX_OK;
}

void dfx_pack_layout_place(dfx_pack_layout *l) {
    uint64_t at = dfx_align_up(l->files_bytes, DFX_PACKED_ALIGN);
    for (size_t i = 0; i < l->n_pages; i++) {
        l->pages[i].page.off = at;
        at = dfx_align_up(at + l->pages[i].page.stored_bytes, DFX_PACKED_ALIGN);
    }
    l->data_bytes = at;
}

/* ---- header ---- */

/* The header as a tree, with what the next padding is called. */
typedef struct header {
    const dfx_pack_layout *layout;
    json_t *root;
    uint64_t end; /* of the tensors so far */
    unsigned n_pads;
    bool as_compressed; /* every page, to see how long that is */
    bool failed;        /* out of memory */
} header;

static void put(header *h, json_t *object, const char *key, json_t *value) {
    h->failed |= json_object_set_new(object, key, value) != 0;
}

static void put_tensor(header *h, const char *name, const dfx_tensor *t, uint64_t begin) {
    json_t *entry = json_object(), *shape = json_array();
    for (int i = 0; i < t->rank; i++)
        h->failed |= json_array_append_new(shape, json_integer(t->shape[i])) != 0;
    put(h, entry, "dtype", json_string(dfx_dtype_name(t->dtype)));
    put(h, entry, "shape", shape);
    put(h, entry, "data_offsets",
        json_pack("[I, I]", (json_int_t)begin, (json_int_t)(begin + t->bytes)));
    put(h, h->root, name, entry);
    h->end = begin + t->bytes;
}

static void put_bytes(header *h, const char *name, uint64_t begin, uint64_t n_bytes) {
    dfx_tensor t = {
        .dtype = DFX_DTYPE_U8, .rank = 1, .shape = {(int64_t)n_bytes}, .bytes = n_bytes};
    put_tensor(h, name, &t, begin);
}

/* Whatever lies between two tensors is one of padding. */
static void pad_to(header *h, uint64_t off) {
    char name[32];
    if (h->end == off)
        return;
    snprintf(name, sizeof(name), "%s%u", DFX_PACKED_PAD, h->n_pads++);
    put_bytes(h, name, h->end, off - h->end);
}

static bool compressed(const header *h, const dfx_pack_page *page) {
    return h->as_compressed || page->page.codec == DFX_CODEC_LZ4_PLANES;
}

static void put_page(header *h, const dfx_pack_page *page) {
    char name[DFX_PACKED_NAME_BYTES + sizeof(DFX_PACKED_PAGE)];
    const dfx_pack_tensor *t = &h->layout->tensors[page->first_tensor];
    pad_to(h, page->page.off);
    if (compressed(h, page)) {
        snprintf(name, sizeof(name), "%s%s", DFX_PACKED_PAGE, page->page.name);
        put_bytes(h, name, page->page.off, page->page.stored_bytes);
        return;
    }
    for (uint32_t i = 0; i < page->n_tensors; i++) {
        pad_to(h, page->page.off + t[i].made.off);
        put_tensor(h, t[i].name, &t[i].made, page->page.off + t[i].made.off);
    }
}

/* Names in it are those of the component, without it in front. */
static json_t *describe_tensors(header *h, const dfx_pack_page *page) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < page->n_tensors; i++) {
        const dfx_pack_tensor *t = &h->layout->tensors[page->first_tensor + i];
        json_t *shape = json_array();
        for (int d = 0; d < t->made.rank; d++)
            h->failed |= json_array_append_new(shape, json_integer(t->made.shape[d])) != 0;
        json_t *entry = json_pack(
            "{s:s, s:s, s:o, s:I}", "name", t->name + strlen(page->component) + 1, "dtype",
            dfx_dtype_name(t->made.dtype), "shape", shape, "off", (json_int_t)t->made.off);
        h->failed |= json_array_append_new(list, entry) != 0;
    }
    return list;
}

static json_t *describe_page(header *h, const dfx_pack_page *page) {
    char sum[17];
    snprintf(sum, sizeof(sum), "%016" PRIx64, page->page.xxh3);
    dfx_codec codec = compressed(h, page) ? DFX_CODEC_LZ4_PLANES : DFX_CODEC_RAW;
    json_t *json =
        json_pack("{s:s, s:s, s:I, s:I, s:I, s:s, s:s}", "name", page->page.name, "component",
                  page->component, "begin", (json_int_t)page->page.off, "bytes",
                  (json_int_t)page->page.bytes, "stored", (json_int_t)page->page.stored_bytes,
                  "codec", dfx_packed_codec_name(codec), "xxh3", sum);
    if (codec != DFX_CODEC_RAW)
        put(h, json, "tensors", describe_tensors(h, page));
    return json;
}

/* Metadata first: whoever looks at the beginning of the file sees what it is. */
static void put_metadata(header *h, const dfx_pack_options *o) {
    char version[16], source_bytes[24];
    json_t *pages = json_array(), *metadata = json_object();
    for (size_t i = 0; i < h->layout->n_pages; i++)
        h->failed |= json_array_append_new(pages, describe_page(h, &h->layout->pages[i])) != 0;
    char *text = json_dumps(pages, JSON_COMPACT);
    snprintf(version, sizeof(version), "%d", DFX_PACKED_VERSION);
    put(h, metadata, "format", json_string("pt")); /* transformers refuses files without it */
    put(h, metadata, DFX_PACKED_KEY_VERSION, json_string(version));
    put(h, metadata, DFX_PACKED_KEY_QUANT, json_string(dfx_q_name(o->quant)));
    json_t *source = o->source ? json_string(o->source) : NULL; /* NULL: a path that is no UTF-8 */
    put(h, metadata, DFX_PACKED_KEY_SOURCE, source ? source : json_string(""));
    snprintf(source_bytes, sizeof(source_bytes), "%" PRIu64, h->layout->source_bytes);
    put(h, metadata, DFX_PACKED_KEY_SOURCE_BYTES, json_string(source_bytes));
    put(h, metadata, DFX_PACKED_KEY_PAGES, text ? json_string(text) : NULL);
    put(h, h->root, "__metadata__", metadata);
    free(text);
    json_decref(pages);
}

static char *header_text(const dfx_pack_layout *l, const dfx_pack_options *o, bool as_compressed) {
    header h = {.layout = l, .root = json_object(), .as_compressed = as_compressed};
    char name[DFX_PATH_BYTES];
    put_metadata(&h, o);
    for (size_t i = 0; i < l->n_files; i++) {
        snprintf(name, sizeof(name), "%s%s", DFX_BUNDLE_PREFIX, l->files[i].path);
        put_bytes(&h, name, h.end, l->files[i].bytes);
    }
    for (size_t i = 0; i < l->n_pages; i++)
        put_page(&h, &l->pages[i]);
    pad_to(&h, l->data_bytes);
    char *text = h.failed ? NULL : json_dumps(h.root, JSON_COMPACT);
    json_decref(h.root);
    return text;
}

static dfx_status no_header(const dfx_sink *sink) {
    return dfx_fail(sink, DFX_E_NOFIT, "pack: out of memory writing the table of contents");
}

/* Room for the header, whichever pages end up compressed: never more than all as they are and all compressed together,
 * since offsets only become smaller. */
static dfx_status reserve_header(dfx_pack_layout *l, const dfx_pack_options *o,
                                 const dfx_sink *sink) {
    uint64_t bytes = sizeof(uint64_t);
    for (int as_compressed = 0; as_compressed <= (o->compress ? 1 : 0); as_compressed++) {
        char *text = header_text(l, o, as_compressed);
        if (!text)
            return no_header(sink);
        bytes += strlen(text);
        free(text);
    }
    l->data_off = dfx_align_up(bytes, DFX_PACKED_ALIGN);
    if (l->data_off > DFX_SAFETENSORS_HEADER_BYTES_MAX)
        return dfx_fail(sink, DFX_E_USAGE, "pack: a table of contents of %" PRIu64 " bytes",
                        l->data_off);
    return DFX_OK;
}

dfx_status dfx_pack_header(const dfx_pack_layout *l, const dfx_pack_options *o,
                           const dfx_sink *sink, char **out) {
    uint64_t text_bytes = l->data_off - sizeof(uint64_t);
    char *text = header_text(l, o, false);
    if (!text)
        return no_header(sink);
    size_t len = strlen(text);
    dfx_status status = DFX_OK;
    if (len > text_bytes)
        status = dfx_fail(sink, DFX_E_INTERNAL,
                          "pack: the header has outgrown its %" PRIu64 " bytes", text_bytes);
    if (status == DFX_OK)
        status = dfx_alloc(sink, l->data_off, "pack", (void **)out);
    if (status == DFX_OK) {
        for (int i = 0; i < 8; i++)
            (*out)[i] = (char)(text_bytes >> 8 * i);
        memcpy(*out + sizeof(uint64_t), text, len);
        memset(*out + sizeof(uint64_t) + len, ' ', text_bytes - len);
    }
    free(text);
    return status;
}

/* ---- checks ---- */

static int by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* A weight that two pages read would need two places. */
static dfx_status check_names(const dfx_pack_layout *l, const dfx_sink *sink) {
    const char **names;
    dfx_status status = DFX_OK;
    DFX_TRY(dfx_new_array(sink, l->n_tensors, "pack", &names));
    for (size_t i = 0; i < l->n_tensors; i++)
        names[i] = l->tensors[i].name;
    qsort(names, l->n_tensors, sizeof(*names), by_name);
    for (size_t i = 1; i < l->n_tensors && status == DFX_OK; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status = dfx_fail(sink, DFX_E_INTERNAL,
                              "pack: tensor %s is in two pages, or already has scales", names[i]);
    dfx_free(names);
    return status;
}

static bool is_read(const dfx_pack_source *s, const dfx_tensor *t) {
    for (size_t p = 0; p < s->n_programs; p++)
        for (uint32_t i = 0; i < s->programs[p]->n_weights; i++)
            if (s->programs[p]->weights[i].tensor == t)
                return true;
    return false;
}

static bool seen_before(const dfx_pack_source *s, size_t program) {
    for (size_t p = 0; p < program; p++)
        if (s->programs[p]->tensors == s->programs[program]->tensors)
            return true;
    return false;
}

static void warn_left_out(const dfx_pack_source *s, const dfx_sink *sink) {
    for (size_t p = 0; p < s->n_programs; p++) {
        const dfx_tensors *set = s->programs[p]->tensors;
        size_t n = 0;
        const char *first = NULL;
        for (size_t i = 0; !seen_before(s, p) && i < dfx_tensors_count(set); i++)
            if (!is_read(s, dfx_tensors_at(set, i)) && n++ == 0)
                first = dfx_tensors_at(set, i)->name;
        if (n > 0)
            dfx_warn(sink, "%s: %zu tensor%s left out that no program reads, the first is %s",
                     s->components[p], n, n == 1 ? " is" : "s are", first);
    }
}

static dfx_status make(dfx_pack_layout *l, const dfx_pack_source *s, const dfx_pack_options *o,
                       const dfx_sink *sink) {
    DFX_TRY(add_files(l, s, sink));
    DFX_TRY(add_pages(l, s, o, sink));
    DFX_TRY(check_names(l, sink));
    warn_left_out(s, sink);
    dfx_pack_layout_place(l);
    return reserve_header(l, o, sink);
}

dfx_status dfx_pack_layout_make(dfx_pack_layout *layout, const dfx_pack_source *source,
                                const dfx_pack_options *options, const dfx_sink *sink) {
    *layout = (dfx_pack_layout){0};
    dfx_arena_init(&layout->arena, "pack");
    dfx_status status = make(layout, source, options, sink);
    if (status != DFX_OK)
        dfx_pack_layout_fini(layout);
    return status;
}
