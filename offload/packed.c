/* Reader of packed models. Everything that the metadata claims is checked at open: pages on their borders, in order,
 * within the file; what of a page lies where. core/safetensors.c has checked before that tensors cover the file. */
#include "offload/packed.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/checksum.h"
#include "core/json.h"
#include "offload/packed_format.h"

/* What of a page only this file needs. */
typedef struct page_parts {
    const char *component; /* in arena */
    const dfx_tensor
        *tensors; /* in arena; of a compressed page: file_idx NO_FILE, off in the page */
    size_t n_tensors;
} page_parts;

typedef struct component {
    const char *name; /* in arena */
    dfx_tensors *set; /* owned view of `file` */
} component;

struct dfx_packed {
    dfx_arena arena;
    dfx_tensors *file;      /* owned */
    dfx_packed_page *pages; /* in arena, like their parts */
    page_parts *parts;
    component *components; /* in arena */
    size_t n_pages, n_components;
    uint64_t data_off;
    dfx_qformat quant;
    const char *source; /* borrowed from file */
};

static dfx_status open_packed(dfx_packed *packed, const dfx_sink *sink);

/* A GGUF file with our keys is none: kernels do not know its types. */
static bool is_packed(const dfx_tensors *file) {
    return !dfx_tensors_is_gguf(file) && dfx_tensors_metadata(file, DFX_PACKED_KEY_VERSION);
}

dfx_status dfx_packed_ask(const char *path, const dfx_sink *sink, bool *is) {
    dfx_tensors *set;
    DFX_TRY(dfx_tensors_open_file(path, sink, &set));
    *is = is_packed(set);
    dfx_tensors_close(set);
    return DFX_OK;
}

bool dfx_packed_is(const char *path) {
    bool is = false;
    return dfx_packed_ask(path, NULL, &is) == DFX_OK && is;
}

dfx_status dfx_packed_open(const char *path, const dfx_sink *sink, dfx_packed **out) {
    dfx_packed *packed;
    DFX_TRY(dfx_new(sink, "packed model", &packed));
    dfx_arena_init(&packed->arena, "packed model");
    dfx_status status = dfx_tensors_open_file(path, sink, &packed->file);
    if (status == DFX_OK)
        status = open_packed(packed, sink);
    if (status == DFX_OK)
        *out = packed;
    else
        dfx_packed_close(packed);
    return status;
}

void dfx_packed_close(dfx_packed *packed) {
    if (!packed)
        return;
    for (size_t i = 0; i < packed->n_components; i++)
        dfx_tensors_close(packed->components[i].set);
    dfx_tensors_close(packed->file);
    dfx_arena_fini(&packed->arena);
    dfx_free(packed);
}

const char *dfx_packed_path(const dfx_packed *packed) {
    return dfx_tensors_file_path(packed->file, 0);
}

size_t dfx_packed_n_pages(const dfx_packed *packed) {
    return packed->n_pages;
}

const dfx_packed_page *dfx_packed_page_at(const dfx_packed *packed, size_t idx) {
    return &packed->pages[idx];
}

static int64_t find_page(const dfx_packed *packed, const char *name) {
    for (size_t i = 0; i < packed->n_pages; i++)
        if (strcmp(packed->pages[i].name, name) == 0)
            return (int64_t)i;
    return -1;
}

int64_t dfx_packed_find_page(const dfx_packed *packed, const char *program, const char *page) {
    char name[DFX_PACKED_NAME_BYTES];
    size_t len = strlen(page);
    snprintf(name, sizeof(name), "%s/%.*s", program,
             (int)(len > 0 && page[len - 1] == '.' ? len - 1 : len), page);
    return find_page(packed, name);
}

void dfx_packed_page_name(const dfx_program *program, uint32_t page_idx,
                          char out[DFX_PACKED_NAME_BYTES]) {
    const char *page = program->pages[page_idx].name;
    size_t len = strlen(page);
    unsigned nth = 1;
    for (uint32_t i = 0; i < page_idx; i++)
        nth += strcmp(program->pages[i].name, page) == 0;
    int n = snprintf(out, DFX_PACKED_NAME_BYTES, "%s/%.*s", program->name,
                     (int)(len > 0 && page[len - 1] == '.' ? len - 1 : len), page);
    if (nth > 1 && n < DFX_PACKED_NAME_BYTES)
        snprintf(out + n, DFX_PACKED_NAME_BYTES - (size_t)n, "~%u", nth);
}

int64_t dfx_packed_page_of(const dfx_packed *packed, const dfx_program *program,
                           uint32_t page_idx) {
    char name[DFX_PACKED_NAME_BYTES];
    dfx_packed_page_name(program, page_idx, name);
    return find_page(packed, name);
}

static component *find_component(const dfx_packed *packed, const char *name) {
    for (size_t i = 0; i < packed->n_components; i++)
        if (strcmp(packed->components[i].name, name) == 0)
            return &packed->components[i];
    return NULL;
}

const dfx_tensors *dfx_packed_tensors(const dfx_packed *packed, const char *name) {
    const component *c = find_component(packed, name);
    return c ? c->set : NULL;
}

const char *dfx_packed_component(const dfx_packed *packed, size_t page_idx) {
    return packed->parts[page_idx].component;
}

dfx_bundle dfx_packed_bundle(const dfx_packed *packed) {
    return (dfx_bundle){.tensors = packed->file, .name = dfx_packed_path(packed)};
}

dfx_qformat dfx_packed_quant(const dfx_packed *packed) {
    return packed->quant;
}

const char *dfx_packed_source(const dfx_packed *packed) {
    return packed->source;
}

uint64_t dfx_packed_source_bytes(const dfx_packed *packed) {
    const char *text = dfx_tensors_metadata(packed->file, DFX_PACKED_KEY_SOURCE_BYTES);
    bool is_number = text && *text && strlen(text) < 20 && text[strspn(text, "0123456789")] == 0;
    return is_number ? strtoull(text, NULL, 10) : 0;
}

static dfx_status compare_sums(const dfx_packed *packed, const dfx_packed_page *page,
                               uint64_t found, const dfx_sink *sink) {
    if (found == page->xxh3)
        return DFX_OK;
    return dfx_fail(sink, DFX_E_FORMAT,
                    "%s: page %s has the checksum %016" PRIx64 ", wanted %016" PRIx64
                    "; the file is damaged, pack it again",
                    dfx_packed_path(packed), page->name, found, page->xxh3);
}

dfx_status dfx_packed_verify(const dfx_packed *packed, const dfx_packed_page *page,
                             const void *bytes, const dfx_sink *sink) {
    return compare_sums(packed, page, dfx_xxh3(bytes, page->bytes), sink);
}

dfx_status dfx_packed_verify_file(const dfx_packed *packed, const dfx_packed_page *page,
                                  const dfx_sink *sink) {
    dfx_file file;
    uint64_t found;
    DFX_TRY(dfx_file_open(dfx_packed_path(packed), sink, &file));
    dfx_status status = dfx_xxh3_file(&file, page->off, page->bytes, sink, &found);
    dfx_file_close(&file);
    return status == DFX_OK ? compare_sums(packed, page, found, sink) : status;
}

/* ---- Does a page lie as a program reads it? ---- */

/* Where a weight is in the page, by its tensor; false when it is elsewhere. */
static bool place_of(const dfx_packed *packed, size_t page_idx, const dfx_tensor *t,
                     uint64_t *off) {
    const dfx_packed_page *page = &packed->pages[page_idx];
    const page_parts *parts = &packed->parts[page_idx];
    if (page->codec == DFX_CODEC_RAW) {
        *off = t->off - page->off;
        return t->file_idx != DFX_TENSOR_NO_FILE && t->off >= page->off &&
               *off + t->bytes <= page->bytes;
    }
    for (size_t i = 0; i < parts->n_tensors; i++)
        if (t->file_idx == DFX_TENSOR_NO_FILE && strcmp(parts->tensors[i].name, t->name) == 0) {
            *off = t->off;
            return true;
        }
    return false;
}

dfx_status dfx_packed_check_page(const dfx_packed *packed, const dfx_program *program,
                                 uint32_t page_idx, const dfx_sink *sink) {
    const dfx_page *want = &program->pages[page_idx];
    const char *path = dfx_packed_path(packed);
    char name[DFX_PACKED_NAME_BYTES];
    dfx_packed_page_name(program, page_idx, name);
    int64_t idx = find_page(packed, name);
    if (idx < 0)
        return dfx_fail(sink, DFX_E_FORMAT, "%s: there is no page %s; pack the model again", path,
                        name);
    const dfx_packed_page *page = &packed->pages[idx];
    if (page->bytes != want->bytes)
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: page %s has %" PRIu64 " bytes, wanted %zu; pack the model again", path,
                        name, page->bytes, want->bytes);
    for (uint32_t i = want->first_weight; i < want->first_weight + want->n_weights; i++) {
        const dfx_weight *w = &program->weights[i];
        uint64_t off = 0;
        if (!w->tensor || w->tensor->bytes != w->bytes ||
            !place_of(packed, (size_t)idx, w->tensor, &off) || off != w->off)
            return dfx_fail(sink, DFX_E_FORMAT,
                            "%s: page %s: tensor %s is not at byte %zu of it, where this version "
                            "reads it; pack the model again",
                            path, name, w->name, w->off);
    }
    return DFX_OK;
}

/* ---- opening ---- */

static dfx_status bad(const dfx_packed *packed, const dfx_sink *sink, const char *page,
                      const char *rule) {
    return dfx_fail(sink, DFX_E_FORMAT, "%s: page %s: %s; pack the model again",
                    dfx_packed_path(packed), page, rule);
}

/* The data begins with its first tensor: the format allows no hole. */
static uint64_t first_byte(const dfx_tensors *set) {
    uint64_t first = dfx_tensors_count(set) ? UINT64_MAX : 0;
    for (size_t i = 0; i < dfx_tensors_count(set); i++)
        if (dfx_tensors_at(set, i)->off < first)
            first = dfx_tensors_at(set, i)->off;
    return first;
}

static dfx_status keep_text(dfx_packed *packed, const dfx_sink *sink, const char *text,
                            const char **out) {
    char *copy;
    DFX_TRY(dfx_arena_text(&packed->arena, sink, text, strlen(text), &copy));
    *out = copy;
    return DFX_OK;
}

static bool parse_hex(const char *text, uint64_t *out) {
    char *end;
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return false;
    *out = strtoull(text, &end, 16);
    return true;
}

/* Type, shape and place of one tensor of a compressed page. */
static dfx_status read_part(dfx_packed *packed, const dfx_packed_page *page, const json_t *json,
                            const dfx_sink *sink, dfx_tensor *t) {
    const char *name, *dtype;
    json_t *shape;
    int64_t off;
    DFX_TRY(dfx_json_str(json, page->name, "name", sink, &name));
    DFX_TRY(dfx_json_str(json, page->name, "dtype", sink, &dtype));
    DFX_TRY(dfx_json_int(json, page->name, "off", 0, (int64_t)page->bytes, sink, &off));
    DFX_TRY(dfx_json_array(json, page->name, "shape", sink, &shape));
    *t = (dfx_tensor){
        .rank = (int)json_array_size(shape), .file_idx = DFX_TENSOR_NO_FILE, .off = (uint64_t)off};
    if (!dfx_dtype_parse(dtype, &t->dtype) || json_array_size(shape) > DFX_TENSOR_RANK_MAX)
        return bad(packed, sink, page->name, "a tensor of unknown type or of too many dimensions");
    for (int i = 0; i < t->rank; i++) {
        const json_t *side = json_array_get(shape, (size_t)i);
        t->shape[i] = json_is_integer(side) ? json_integer_value(side) : -1;
        if (t->shape[i] < 0)
            return bad(packed, sink, page->name, "a shape is not a list of numbers");
    }
    if (!dfx_tensor_measure(t) || t->bytes > page->bytes - t->off || t->off % DFX_PAGE_ALIGN != 0)
        return bad(packed, sink, page->name, "a tensor does not lie within it");
    return keep_text(packed, sink, name, &t->name);
}

static dfx_status read_parts(dfx_packed *packed, size_t idx, const json_t *json,
                             const dfx_sink *sink) {
    const dfx_packed_page *page = &packed->pages[idx];
    page_parts *parts = &packed->parts[idx];
    json_t *list;
    dfx_tensor *tensors;
    DFX_TRY(dfx_json_array(json, page->name, "tensors", sink, &list));
    size_t n = json_array_size(list);
    DFX_TRY(dfx_arena_alloc(&packed->arena, sink, n * sizeof(*tensors), (void **)&tensors));
    for (size_t i = 0; i < n; i++)
        DFX_TRY(read_part(packed, page, json_array_get(list, i), sink, &tensors[i]));
    parts->tensors = tensors;
    parts->n_tensors = n;
    return DFX_OK;
}

/* Compressed bytes are one tensor, which is then known to be inside the file; LZ4 gains a factor of 255 at the most. */
static dfx_status check_compressed(const dfx_packed *packed, const dfx_packed_page *page,
                                   const dfx_sink *sink) {
    char name[DFX_PACKED_NAME_BYTES + sizeof(DFX_PACKED_PAGE)];
    snprintf(name, sizeof(name), "%s%s", DFX_PACKED_PAGE, page->name);
    const dfx_tensor *t = dfx_tensors_find(packed->file, name);
    if (!t || t->off != page->off || t->bytes != page->stored_bytes)
        return bad(packed, sink, page->name, "its compressed bytes are not where they should be");
    if (page->bytes / 256 > page->stored_bytes)
        return bad(packed, sink, page->name, "it claims to be larger than LZ4 can make it");
    return DFX_OK;
}

static dfx_status check_place(const dfx_packed *packed, size_t idx, uint64_t end_of_file,
                              const dfx_sink *sink) {
    const dfx_packed_page *page = &packed->pages[idx];
    uint64_t before = idx ? packed->pages[idx - 1].off + packed->pages[idx - 1].stored_bytes : 0;
    if (page->off % DFX_PACKED_ALIGN != 0)
        return bad(packed, sink, page->name, "it does not begin on a border of 4096 bytes");
    if (page->bytes % DFX_PAGE_ALIGN != 0)
        return bad(packed, sink, page->name, "its bytes are not a multiple of 64");
    if (page->off < before)
        return bad(packed, sink, page->name, "it overlaps the page before it");
    if (page->off > end_of_file || page->stored_bytes > end_of_file - page->off)
        return bad(packed, sink, page->name, "it reaches beyond the end of the file");
    if (find_page(packed, page->name) != (int64_t)idx)
        return bad(packed, sink, page->name, "another page has the same name");
    if (page->codec == DFX_CODEC_LZ4_PLANES)
        return check_compressed(packed, page, sink);
    if (page->stored_bytes != page->bytes)
        return bad(packed, sink, page->name, "it is not compressed, but stored has another length");
    return DFX_OK;
}

static dfx_status read_page(dfx_packed *packed, size_t idx, const json_t *json,
                            uint64_t end_of_file, const dfx_sink *sink) {
    const char *path = dfx_packed_path(packed), *name, *where, *codec, *sum;
    dfx_packed_page *page = &packed->pages[idx];
    int64_t begin, bytes, stored, limit = INT64_MAX / 2;
    DFX_TRY(dfx_json_str(json, path, "name", sink, &name));
    DFX_TRY(dfx_json_str(json, name, "component", sink, &where));
    DFX_TRY(dfx_json_str(json, name, "codec", sink, &codec));
    DFX_TRY(dfx_json_str(json, name, "xxh3", sink, &sum));
    DFX_TRY(dfx_json_int(json, name, "begin", 0, limit, sink, &begin));
    DFX_TRY(dfx_json_int(json, name, "bytes", 1, limit, sink, &bytes));
    DFX_TRY(dfx_json_int(json, name, "stored", 1, limit, sink, &stored));
    DFX_TRY(keep_text(packed, sink, name, &page->name));
    DFX_TRY(keep_text(packed, sink, where, &packed->parts[idx].component));
    page->off = packed->data_off + (uint64_t)begin;
    page->bytes = (uint64_t)bytes;
    page->stored_bytes = (uint64_t)stored;
    if (!dfx_packed_codec_parse(codec, &page->codec))
        return bad(packed, sink, name, "its codec is not known to this version");
    if (!parse_hex(sum, &page->xxh3))
        return bad(packed, sink, name, "its checksum is not 16 hexadecimal digits");
    packed->n_pages = idx + 1;
    DFX_TRY(check_place(packed, idx, end_of_file, sink));
    return page->codec == DFX_CODEC_RAW ? DFX_OK : read_parts(packed, idx, json, sink);
}

static dfx_status read_pages(dfx_packed *packed, const json_t *root, const dfx_sink *sink) {
    size_t n = json_array_size(root);
    uint64_t end = packed->data_off + dfx_tensors_bytes(packed->file);
    if (n == 0 || n > DFX_PACKED_PAGES_MAX)
        return dfx_fail(sink, DFX_E_FORMAT, "%s: %s is not a list of 1 to %d pages",
                        dfx_packed_path(packed), DFX_PACKED_KEY_PAGES, DFX_PACKED_PAGES_MAX);
    DFX_TRY(
        dfx_arena_alloc(&packed->arena, sink, n * sizeof(*packed->pages), (void **)&packed->pages));
    DFX_TRY(
        dfx_arena_alloc(&packed->arena, sink, n * sizeof(*packed->parts), (void **)&packed->parts));
    DFX_TRY(dfx_arena_alloc(&packed->arena, sink, n * sizeof(*packed->components),
                            (void **)&packed->components));
    for (size_t i = 0; i < n; i++)
        DFX_TRY(read_page(packed, i, json_array_get(root, i), end, sink));
    return DFX_OK;
}

/* One view for each component that a page names. */
static dfx_status add_components(dfx_packed *packed, const dfx_sink *sink) {
    for (size_t p = 0; p < packed->n_pages; p++) {
        const page_parts *parts = &packed->parts[p];
        component *c = find_component(packed, parts->component);
        if (!c) {
            c = &packed->components[packed->n_components];
            DFX_TRY(dfx_tensors_new_view(packed->file, sink, &c->set));
            c->name = parts->component;
            packed->n_components++;
        }
        for (size_t i = 0; i < parts->n_tensors; i++)
            DFX_TRY(dfx_tensors_add(c->set, &parts->tensors[i], sink));
    }
    for (size_t i = 0; i < dfx_tensors_count(packed->file); i++) {
        dfx_tensor t = *dfx_tensors_at(packed->file, i);
        for (size_t k = 0; k < packed->n_components; k++) {
            component *c = &packed->components[k];
            size_t len = strlen(c->name);
            if (strncmp(t.name, c->name, len) != 0 || t.name[len] != '.')
                continue;
            t.name += len + 1;
            DFX_TRY(dfx_tensors_add(c->set, &t, sink));
            break;
        }
    }
    for (size_t k = 0; k < packed->n_components; k++)
        DFX_TRY(dfx_tensors_seal(packed->components[k].set, sink));
    return DFX_OK;
}

static dfx_status metadata(const dfx_packed *packed, const char *key, const dfx_sink *sink,
                           const char **out) {
    *out = dfx_tensors_metadata(packed->file, key);
    if (*out)
        return DFX_OK;
    return dfx_fail(sink, DFX_E_FORMAT, "%s: not a packed model: its metadata has no %s",
                    dfx_packed_path(packed), key);
}

static dfx_status open_packed(dfx_packed *packed, const dfx_sink *sink) {
    const char *version, *quant, *pages, *path = dfx_packed_path(packed);
    char ours[16], label[DFX_PATH_BYTES];
    json_t *root;
    snprintf(ours, sizeof(ours), "%d", DFX_PACKED_VERSION);
    if (dfx_tensors_is_gguf(packed->file))
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: a GGUF file, not a packed model; dfx-edge pack makes one of a folder",
                        path);
    DFX_TRY(metadata(packed, DFX_PACKED_KEY_VERSION, sink, &version));
    if (strcmp(version, ours) != 0)
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: packed model of version %.20s where this dfx-edge reads version %s; "
                        "pack it again with this one, or use a newer dfx-edge",
                        path, version, ours);
    DFX_TRY(metadata(packed, DFX_PACKED_KEY_QUANT, sink, &quant));
    if (!dfx_q_parse(quant, &packed->quant))
        return dfx_fail(sink, DFX_E_FORMAT, "%s: %s: \"%.40s\" is no number format that we know",
                        path, DFX_PACKED_KEY_QUANT, quant);
    DFX_TRY(metadata(packed, DFX_PACKED_KEY_SOURCE, sink, &packed->source));
    DFX_TRY(metadata(packed, DFX_PACKED_KEY_PAGES, sink, &pages));
    packed->data_off = first_byte(packed->file);
    snprintf(label, sizeof(label), "%s: %s", path, DFX_PACKED_KEY_PAGES);
    DFX_TRY(dfx_json_parse(pages, strlen(pages), label, sink, &root));
    dfx_status status = read_pages(packed, root, sink);
    json_decref(root);
    DFX_TRY(status);
    return add_components(packed, sink);
}
