/* The table of tensors: life, lookup, reading. Who fills it has checked every number. */
#include "core/tensors_set.h"

#include "core/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes read at a time where values are widened on the way. */
enum { WIDEN_BYTES = 1 << 20 };

dfx_status dfx_tensors_new(const dfx_sink *sink, dfx_tensors **out) {
    return dfx_new(sink, "tensors", out);
}

void dfx_tensors_close(dfx_tensors *set) {
    if (!set)
        return;
    for (size_t i = 0; i < set->n_files; i++) {
        dfx_file_close(&set->files[i].file);
        dfx_free(set->files[i].header);
        dfx_arena_fini(&set->files[i].text);
        dfx_free(set->files[i].meta);
    }
    dfx_free(set->files);
    dfx_free(set->tensors);
    dfx_free(set);
}

dfx_status dfx_tensors_open_file(const char *path, const dfx_sink *sink, dfx_tensors **out) {
    dfx_tensors *set;
    DFX_TRY(dfx_tensors_new(sink, &set));
    dfx_status status = dfx_tensors_add_file(set, path, sink);
    if (status == DFX_OK)
        status = dfx_tensors_seal(set, sink);
    if (status == DFX_OK)
        *out = set;
    else
        dfx_tensors_close(set);
    return status;
}

dfx_status dfx_tensors_add_file(dfx_tensors *set, const char *path, const dfx_sink *sink) {
    unsigned char head[4] = {0};
    DFX_TRY(dfx_grow(sink, set->n_files + 1, sizeof(*set->files), "tensors", &set->cap_files,
                     (void **)&set->files));
    dfx_tensors_file *file = &set->files[set->n_files];
    DFX_TRY(dfx_file_open(path, sink, &file->file));
    set->n_files++; /* from here dfx_tensors_close() undoes everything */
    size_t n_head = file->file.bytes < sizeof(head) ? (size_t)file->file.bytes : sizeof(head);
    DFX_TRY(dfx_file_read(&file->file, sink, 0, head, n_head));
    file->is_gguf = dfx_gguf_is(head, n_head);
    return file->is_gguf ? dfx_gguf_read(set, file, sink) : dfx_safetensors_read(set, file, sink);
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const dfx_tensor *)a)->name, ((const dfx_tensor *)b)->name);
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const dfx_tensors_meta *)a)->key, ((const dfx_tensors_meta *)b)->key);
}

const dfx_tensor *dfx_tensors_sort_from(dfx_tensors *set, size_t first) {
    dfx_tensor *tensors = set->tensors;
    if (set->n_tensors > first)
        qsort(tensors + first, set->n_tensors - first, sizeof(*tensors), by_name);
    for (size_t i = first + 1; i < set->n_tensors; i++)
        if (by_name(&tensors[i - 1], &tensors[i]) == 0)
            return &tensors[i];
    return NULL;
}

const dfx_tensors_meta *dfx_tensors_sort_meta(dfx_tensors_file *file) {
    if (file->n_meta > 0)
        qsort(file->meta, file->n_meta, sizeof(*file->meta), by_key);
    for (size_t i = 1; i < file->n_meta; i++)
        if (by_key(&file->meta[i - 1], &file->meta[i]) == 0)
            return &file->meta[i];
    return NULL;
}

dfx_status dfx_tensors_new_view(const dfx_tensors *base, const dfx_sink *sink, dfx_tensors **out) {
    DFX_TRY(dfx_tensors_new(sink, out));
    (*out)->base = base;
    return DFX_OK;
}

dfx_status dfx_tensors_add(dfx_tensors *view, const dfx_tensor *tensor, const dfx_sink *sink) {
    DFX_TRY(dfx_grow(sink, view->n_tensors + 1, sizeof(*tensor), "tensors", &view->cap_tensors,
                     (void **)&view->tensors));
    view->tensors[view->n_tensors++] = *tensor;
    view->bytes += tensor->bytes;
    return DFX_OK;
}

static dfx_status twice(const dfx_tensors *set, const dfx_tensor *a, const dfx_tensor *b,
                        const dfx_sink *sink) {
    char name[DFX_NAME_TEXT];
    dfx_name_text(a->name, name);
    if (a->file_idx == b->file_idx || a->file_idx == DFX_TENSOR_NO_FILE ||
        b->file_idx == DFX_TENSOR_NO_FILE)
        return dfx_fail(sink, DFX_E_FORMAT, "tensor \"%s\" is there twice", name);
    return dfx_fail(
        sink, DFX_E_FORMAT, "tensor \"%s\" is in two files, %s and %s, and only one can be right",
        name, dfx_tensors_file_path(set, a->file_idx), dfx_tensors_file_path(set, b->file_idx));
}

dfx_status dfx_tensors_seal(dfx_tensors *set, const dfx_sink *sink) {
    if (set->n_files == 1 || set->n_tensors == 0) /* one file's are sorted already */
        return DFX_OK;
    const dfx_tensor *second = dfx_tensors_sort_from(set, 0);
    return second ? twice(set, second - 1, second, sink) : DFX_OK;
}

/* Whose files a set's tensors are in. */
static const dfx_tensors *owner(const dfx_tensors *set) {
    while (set->base)
        set = set->base;
    return set;
}

/* NULL, said, when it lies in none. */
static const dfx_file *file_of(const dfx_tensors *set, const dfx_tensor *tensor,
                               const dfx_sink *sink) {
    char name[DFX_NAME_TEXT];
    if (tensor->file_idx != DFX_TENSOR_NO_FILE)
        return &owner(set)->files[tensor->file_idx].file;
    dfx_fail(sink, DFX_E_INTERNAL, "tensor \"%s\" lies in no file by itself",
             dfx_name_text(tensor->name, name));
    return NULL;
}

size_t dfx_tensors_count(const dfx_tensors *set) {
    return set->n_tensors;
}

const dfx_tensor *dfx_tensors_at(const dfx_tensors *set, size_t idx) {
    return &set->tensors[idx];
}

const dfx_tensor *dfx_tensors_find(const dfx_tensors *set, const char *name) {
    dfx_tensor wanted = {.name = name};
    if (set->n_tensors == 0)
        return NULL;
    return bsearch(&wanted, set->tensors, set->n_tensors, sizeof(wanted), by_name);
}

uint64_t dfx_tensors_bytes(const dfx_tensors *set) {
    return set->bytes;
}

size_t dfx_tensors_n_files(const dfx_tensors *set) {
    return owner(set)->n_files;
}

const char *dfx_tensors_file_path(const dfx_tensors *set, uint32_t file_idx) {
    return owner(set)->files[file_idx].file.path;
}

const char *dfx_tensors_file_format(const dfx_tensors *set, uint32_t file_idx) {
    return owner(set)->files[file_idx].is_gguf ? "GGUF" : "safetensors";
}

bool dfx_tensors_is_gguf(const dfx_tensors *set) {
    const dfx_tensors_file *first = owner(set)->files;
    return first && first->is_gguf;
}

size_t dfx_tensors_n_metadata(const dfx_tensors *set) {
    const dfx_tensors_file *first = owner(set)->files;
    return first ? first->n_meta : 0;
}

const char *dfx_tensors_metadata_at(const dfx_tensors *set, size_t idx, const char **value) {
    const dfx_tensors_meta *meta = &owner(set)->files->meta[idx];
    *value = meta->value;
    return meta->key;
}

const char *dfx_tensors_metadata(const dfx_tensors *set, const char *key) {
    const char *value;
    for (size_t i = 0; i < dfx_tensors_n_metadata(set); i++)
        if (strcmp(dfx_tensors_metadata_at(set, i, &value), key) == 0)
            return value;
    return NULL;
}

dfx_status dfx_tensors_read(const dfx_tensors *set, const dfx_tensor *tensor, const dfx_sink *sink,
                            void *dst) {
    const dfx_file *file = file_of(set, tensor, sink);
    if (!file)
        return DFX_E_INTERNAL;
    return dfx_file_read(file, sink, tensor->off, dst, (size_t)tensor->bytes);
}

dfx_status dfx_tensors_read_part(const dfx_tensors *set, const dfx_tensor *tensor, uint64_t off,
                                 size_t n_bytes, const dfx_sink *sink, void *dst) {
    const dfx_file *file = file_of(set, tensor, sink);
    if (!file)
        return DFX_E_INTERNAL;
    return dfx_file_read(file, sink, tensor->off + off, dst, n_bytes);
}

dfx_status dfx_tensors_read_f32(const dfx_tensors *set, const dfx_tensor *tensor,
                                const dfx_sink *sink, float *dst) {
    const dfx_file *file = file_of(set, tensor, sink);
    char name[DFX_NAME_TEXT];
    if (!file)
        return DFX_E_INTERNAL;
    if (tensor->dtype == DFX_DTYPE_F32)
        return dfx_tensors_read(set, tensor, sink, dst);
    if (!dfx_dtype_is_numeric(tensor->dtype))
        return dfx_fail(sink, DFX_E_FORMAT,
                        "%s: tensor \"%s\": %s values cannot be read as numbers", file->path,
                        dfx_name_text(tensor->name, name), dfx_dtype_name(tensor->dtype));
    dfx_dtype_block block = dfx_dtype_block_of(tensor->dtype);
    uint64_t chunk = (uint64_t)(WIDEN_BYTES / block.bytes) * block.elements;
    if (chunk > tensor->n_elements)
        chunk = tensor->n_elements;
    dfx_mem stored;
    DFX_TRY(dfx_mem_alloc(sink, dfx_dtype_size(tensor->dtype, chunk), "tensor widening", &stored));
    dfx_status status = DFX_OK;
    for (uint64_t at = 0; status == DFX_OK && at < tensor->n_elements; at += chunk) {
        uint64_t left = tensor->n_elements - at;
        size_t n = (size_t)(left < chunk ? left : chunk);
        status = dfx_file_read(file, sink, tensor->off + dfx_dtype_size(tensor->dtype, at),
                               stored.ptr, dfx_dtype_size(tensor->dtype, n));
        if (status == DFX_OK)
            dfx_to_f32(tensor->dtype, stored.ptr, dst + at, n);
    }
    dfx_mem_free(&stored);
    return status;
}

/* Zeros are left out of the overflow check: users of a shape may multiply in any order. */
bool dfx_tensor_count(const dfx_tensor *tensor, uint64_t *n_elements, uint64_t *bytes) {
    dfx_dtype_block block = dfx_dtype_block_of(tensor->dtype);
    int64_t product = 1;
    bool empty = false;
    for (int i = 0; i < tensor->rank; i++) {
        empty |= tensor->shape[i] == 0;
        if (tensor->shape[i] != 0 && __builtin_mul_overflow(product, tensor->shape[i], &product))
            return false;
    }
    *n_elements = empty ? 0 : (uint64_t)product;
    return !__builtin_mul_overflow(*n_elements / block.elements, block.bytes, bytes);
}

bool dfx_tensor_is_whole(const dfx_tensor *tensor, uint64_t n_elements) {
    uint64_t row = tensor->rank > 0 ? (uint64_t)tensor->shape[tensor->rank - 1] : 1;
    uint64_t n = dfx_dtype_is_ggml(tensor->dtype) ? row : n_elements;
    return n % dfx_dtype_block_of(tensor->dtype).elements == 0;
}

bool dfx_tensor_measure(dfx_tensor *tensor) {
    uint64_t n_elements, bytes;
    if (!dfx_tensor_count(tensor, &n_elements, &bytes) || !dfx_tensor_is_whole(tensor, n_elements))
        return false;
    tensor->n_elements = n_elements;
    tensor->bytes = bytes;
    return true;
}

char *dfx_tensor_shape_text(const dfx_tensor *tensor, char text[DFX_SHAPE_TEXT]) {
    int len = snprintf(text, DFX_SHAPE_TEXT, "%s [", dfx_dtype_name(tensor->dtype));
    for (int i = 0; i < tensor->rank; i++)
        len += snprintf(text + len, (size_t)(DFX_SHAPE_TEXT - len), "%s%lld", i ? ", " : "",
                        (long long)tensor->shape[i]);
    snprintf(text + len, (size_t)(DFX_SHAPE_TEXT - len), "]");
    return text;
}

char *dfx_name_text(const char *name, char text[DFX_NAME_TEXT]) {
    static const char dots[] = "...";
    size_t len = strnlen(name, DFX_NAME_TEXT);
    bool cut = len == DFX_NAME_TEXT;
    if (cut) {
        len = DFX_NAME_TEXT - sizeof(dots);
        while (len > 0 && ((unsigned char)name[len] & 0xc0) == 0x80)
            len--;
    }
    for (size_t i = 0; i < len; i++)
        text[i] = (unsigned char)name[i] < 0x20 || name[i] == 0x7f ? '?' : name[i];
    strcpy(text + len, cut ? dots : "");
    return text;
}
