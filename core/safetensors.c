/* One safetensors file into a table of tensors. The order of the checks decides which fault is
 * told: what the file is, then JSON, then duplicate keys, then each tensor's size, then how they
 * cover the data.
 *
 * Until cover_data() is done, a tensor's `off` is relative to the data, and `off` and `bytes` are
 * what the file claims. Its numbers are at most 2^63 - 1, so sums of two fit uint64_t. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/jscan.h"
#include "core/tensors_set.h"

enum { LENGTH_BYTES = 8, HEAD_BYTES = 9 }; /* the header's length; and its first byte */

typedef struct reader {
    dfx_tensors *set;
    dfx_tensors_file *file;
    const dfx_sink *sink;
    const char *path;
    uint64_t header_bytes, data_off;
    size_t first; /* of this file's tensors in the set */
    dfx_jscan scan;
    const char *inside; /* the member of the header being read, or NULL */
    bool has_metadata;
} reader;

static dfx_status read_length(reader *r);
static dfx_status read_header(reader *r);
static dfx_status check_names(reader *r);
static dfx_status check_sizes(reader *r);
static dfx_status cover_data(reader *r);

dfx_status dfx_safetensors_read(dfx_tensors *set, dfx_tensors_file *file, const dfx_sink *sink) {
    reader r = {
        .set = set, .file = file, .sink = sink, .path = file->file.path, .first = set->n_tensors};
    DFX_TRY(read_length(&r));
    DFX_TRY(read_header(&r));
    DFX_TRY(check_names(&r));
    DFX_TRY(check_sizes(&r));
    return cover_data(&r);
}

/* What people take for safetensors files, by their first bytes. */
static const char *foreign_kind(const unsigned char *head, size_t n) {
    static const struct {
        const char *bytes, *kind;
    } kinds[] = {
        {"version ", "a Git LFS pointer; fetch the real file (git lfs pull)"},
        {"<!DOCTYP", "an HTML page; the download went wrong, fetch the file itself"},
        {"<!doctyp", "an HTML page; the download went wrong, fetch the file itself"},
        {"<html", "an HTML page; the download went wrong, fetch the file itself"},
        {"PK\3\4", "a PyTorch zip (pickle); convert it to safetensors"},
        {"\x80\x02\x8a\x0a", "a PyTorch pickle; convert it to safetensors"},
    };
    for (size_t i = 0; i < DFX_COUNT(kinds); i++) {
        size_t len = strlen(kinds[i].bytes);
        if (len <= n && memcmp(head, kinds[i].bytes, len) == 0)
            return kinds[i].kind;
    }
    return NULL;
}

static dfx_status not_safetensors(const reader *r, const unsigned char *head, size_t n_head) {
    const char *kind = foreign_kind(head, n_head);
    uint64_t file_bytes = r->file->file.bytes;
    if (kind)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: not a safetensors file but %s", r->path, kind);
    if (file_bytes == 0)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: the file is empty; fetch it again", r->path);
    if (file_bytes < LENGTH_BYTES)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: a file of %" PRIu64 " bytes; a safetensors file has 8 or more",
                        r->path, file_bytes);
    if (r->header_bytes > DFX_SAFETENSORS_HEADER_BYTES_MAX)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: header of %" PRIu64 " bytes where at most %d are allowed; "
                        "this is no safetensors or GGUF file, or a damaged one",
                        r->path, r->header_bytes, DFX_SAFETENSORS_HEADER_BYTES_MAX);
    if (r->header_bytes > file_bytes - LENGTH_BYTES)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: header of %" PRIu64 " bytes needs a file of %" PRIu64
                        " or more, found %" PRIu64 "; the download is incomplete, fetch it again",
                        r->path, r->header_bytes, r->header_bytes + LENGTH_BYTES, file_bytes);
    if (r->header_bytes == 0)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: header of 0 bytes where '{' must stand",
                        r->path);
    return dfx_fail(r->sink, DFX_E_FORMAT,
                    "%s: the header must begin with '{', found byte 0x%02x; "
                    "this is no safetensors or GGUF file, or a damaged one",
                    r->path, head[LENGTH_BYTES]);
}

/* Everything that can be refused before the header is in memory. */
static dfx_status read_length(reader *r) {
    unsigned char head[HEAD_BYTES] = {0};
    uint64_t file_bytes = r->file->file.bytes;
    size_t n_head = file_bytes < HEAD_BYTES ? (size_t)file_bytes : HEAD_BYTES;
    DFX_TRY(dfx_file_read(&r->file->file, r->sink, 0, head, n_head));
    for (size_t i = 0; i < LENGTH_BYTES; i++)
        r->header_bytes |= (uint64_t)head[i] << 8 * i;
    bool fits = n_head == HEAD_BYTES && r->header_bytes > 0 &&
                r->header_bytes <= DFX_SAFETENSORS_HEADER_BYTES_MAX &&
                r->header_bytes <= file_bytes - LENGTH_BYTES;
    if (!fits || head[LENGTH_BYTES] != '{')
        return not_safetensors(r, head, n_head);
    r->data_off = LENGTH_BYTES + r->header_bytes;
    return DFX_OK;
}

static dfx_status bad_json(const reader *r) {
    char name[DFX_NAME_TEXT];
    if (r->inside)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: \"%s\": %s (byte %zu of the header)", r->path,
                        dfx_name_text(r->inside, name), r->scan.fault, r->scan.at);
    return dfx_fail(r->sink, DFX_E_FORMAT, "%s: byte %zu of the header: %s", r->path, r->scan.at,
                    r->scan.fault);
}

/* `within` is the tensor or object that holds the key, or NULL for the header itself. */
static dfx_status duplicate_key(const reader *r, const char *within, const char *key) {
    char name[DFX_NAME_TEXT], key_text[DFX_NAME_TEXT];
    return dfx_fail(r->sink, DFX_E_FORMAT, "%s: %s%s%sduplicate key \"%s\" in the header", r->path,
                    within ? "\"" : "", within ? dfx_name_text(within, name) : "",
                    within ? "\": " : "", dfx_name_text(key, key_text));
}

static dfx_status bad_tensor(const reader *r, const char *tensor, const char *rule,
                             const char *found) {
    char name[DFX_NAME_TEXT], text[DFX_NAME_TEXT];
    return dfx_fail(r->sink, DFX_E_FORMAT, "%s: tensor \"%s\": %s%s", r->path,
                    dfx_name_text(tensor, name), rule, dfx_name_text(found, text));
}

/* Strings are kept; other values keep their key, so that it still counts as a duplicate. */
static dfx_status read_metadata_values(reader *r) {
    dfx_tensors_file *file = r->file;
    char *key, *value;
    for (size_t n = 0; dfx_jscan_next(&r->scan, '}', &n);) {
        if (!dfx_jscan_key(&r->scan, &key))
            break;
        char first = dfx_jscan_peek(&r->scan);
        if (first == '[' && (strcmp(key, "shape") == 0 || strcmp(key, "data_offsets") == 0))
            return dfx_fail(r->sink, DFX_E_FORMAT,
                            "%s: __metadata__ is written as a tensor; the name is reserved for a "
                            "table of strings",
                            r->path);
        value = NULL;
        if (!(first == '"' ? dfx_jscan_string(&r->scan, &value) : dfx_jscan_skip(&r->scan)))
            break;
        DFX_TRY(dfx_grow(r->sink, file->n_meta + 1, sizeof(*file->meta), "tensors", &file->cap_meta,
                         (void **)&file->meta));
        file->meta[file->n_meta++] = (dfx_tensors_meta){.key = key, .value = value};
    }
    return r->scan.fault ? bad_json(r) : DFX_OK;
}

static dfx_status read_metadata(reader *r) {
    if (r->has_metadata)
        return duplicate_key(r, NULL, "__metadata__");
    r->has_metadata = true;
    r->inside = "__metadata__";
    if (dfx_jscan_null(&r->scan))
        return DFX_OK;
    if (!dfx_jscan_open(&r->scan, '{'))
        return bad_json(r);
    DFX_TRY(read_metadata_values(r));
    const dfx_tensors_file *file = r->file;
    const dfx_tensors_meta *twice = dfx_tensors_sort_meta(r->file);
    if (twice)
        return duplicate_key(r, "__metadata__", twice->key);
    size_t n_ignored = 0, first_ignored = 0;
    for (size_t i = 0; i < file->n_meta; i++)
        if (!file->meta[i].value && n_ignored++ == 0)
            first_ignored = i;
    char name[DFX_NAME_TEXT];
    if (n_ignored > 0)
        dfx_warn(r->sink,
                 "%s: %zu values of __metadata__ are not strings and are ignored, one is \"%s\"",
                 r->path, n_ignored, dfx_name_text(file->meta[first_ignored].key, name));
    return DFX_OK;
}

static dfx_status read_dtype(reader *r, dfx_tensor *tensor) {
    char *text;
    if (!dfx_jscan_string(&r->scan, &text))
        return bad_json(r);
    if (!dfx_dtype_parse(text, &tensor->dtype))
        return bad_tensor(r, tensor->name, "unknown dtype ", text);
    return DFX_OK;
}

static dfx_status read_shape(reader *r, dfx_tensor *tensor) {
    dfx_jscan_open(&r->scan, '[');
    for (size_t n = 0; dfx_jscan_next(&r->scan, ']', &n);) {
        if (n > DFX_TENSOR_RANK_MAX)
            return bad_tensor(r, tensor->name, "shape of more than 8 dimensions", "");
        if (!dfx_jscan_whole(&r->scan, &tensor->shape[n - 1]))
            break;
        tensor->rank = (int)n;
    }
    return r->scan.fault ? bad_json(r) : DFX_OK;
}

static dfx_status read_offsets(reader *r, dfx_tensor *tensor) {
    int64_t ends[2];
    size_t n = 0;
    dfx_jscan_open(&r->scan, '[');
    while (dfx_jscan_next(&r->scan, ']', &n))
        if (n > 2 || !dfx_jscan_whole(&r->scan, &ends[n - 1]))
            break;
    if (r->scan.fault)
        return bad_json(r);
    if (n != 2)
        return bad_tensor(r, tensor->name, "data_offsets must be [begin, end], two numbers", "");
    if (ends[0] > ends[1])
        return bad_tensor(r, tensor->name, "data_offsets end before they begin", "");
    tensor->off = (uint64_t)ends[0];
    tensor->bytes = (uint64_t)(ends[1] - ends[0]);
    return DFX_OK;
}

static dfx_status read_entry(reader *r, const char *name) {
    static const struct {
        const char *key;
        dfx_status (*read)(reader *r, dfx_tensor *tensor);
    } fields[] = {{"dtype", read_dtype}, {"shape", read_shape}, {"data_offsets", read_offsets}};
    dfx_tensors *set = r->set;
    dfx_tensor tensor = {.name = name, .file_idx = (uint32_t)(r->file - set->files)};
    bool seen[DFX_COUNT(fields)] = {false};
    char *key;
    r->inside = name;
    dfx_jscan_open(&r->scan, '{');
    for (size_t n = 0, i; dfx_jscan_next(&r->scan, '}', &n);) {
        if (!dfx_jscan_key(&r->scan, &key))
            break;
        for (i = 0; i < DFX_COUNT(fields) && strcmp(fields[i].key, key) != 0;)
            i++;
        if (i == DFX_COUNT(fields))
            return bad_tensor(r, name, "unknown member ", key);
        if (seen[i])
            return duplicate_key(r, name, key);
        seen[i] = true;
        DFX_TRY(fields[i].read(r, &tensor));
    }
    if (r->scan.fault)
        return bad_json(r);
    for (size_t i = 0; i < DFX_COUNT(fields); i++)
        if (!seen[i])
            return bad_tensor(r, name, "the header does not give its ", fields[i].key);
    DFX_TRY(dfx_grow(r->sink, set->n_tensors + 1, sizeof(tensor), "tensors", &set->cap_tensors,
                     (void **)&set->tensors));
    set->tensors[set->n_tensors++] = tensor;
    return DFX_OK;
}

static dfx_status read_header(reader *r) {
    size_t bytes = (size_t)r->header_bytes;
    char *name;
    DFX_TRY(dfx_alloc(r->sink, bytes, "tensors", (void **)&r->file->header));
    DFX_TRY(dfx_file_read(&r->file->file, r->sink, LENGTH_BYTES, r->file->header, bytes));
    r->scan = (dfx_jscan){.text = r->file->header, .bytes = bytes};
    dfx_jscan_open(&r->scan, '{');
    for (size_t n = 0; dfx_jscan_next(&r->scan, '}', &n); r->inside = NULL) {
        if (!dfx_jscan_key(&r->scan, &name))
            break;
        bool is_metadata = strcmp(name, "__metadata__") == 0;
        DFX_TRY(is_metadata ? read_metadata(r) : read_entry(r, name));
    }
    return dfx_jscan_end(&r->scan) ? DFX_OK : bad_json(r);
}

static dfx_status check_names(reader *r) {
    const dfx_tensor *twice = dfx_tensors_sort_from(r->set, r->first);
    return twice ? duplicate_key(r, NULL, twice->name) : DFX_OK;
}

static dfx_status bad_shape(const reader *r, const dfx_tensor *tensor, const char *rule) {
    char shape[DFX_SHAPE_TEXT];
    return bad_tensor(r, tensor->name, rule, dfx_tensor_shape_text(tensor, shape));
}

static dfx_status check_sizes(reader *r) {
    char name[DFX_NAME_TEXT], shape[DFX_SHAPE_TEXT];
    for (size_t i = r->first; i < r->set->n_tensors; i++) {
        dfx_tensor *tensor = &r->set->tensors[i];
        uint64_t bytes;
        if (!dfx_tensor_count(tensor, &tensor->n_elements, &bytes))
            return bad_shape(r, tensor, "its number of elements overflows: ");
        if (!dfx_tensor_is_whole(tensor, tensor->n_elements))
            return bad_shape(r, tensor, "it does not end at a whole byte: ");
        if (bytes != tensor->bytes)
            return dfx_fail(r->sink, DFX_E_FORMAT,
                            "%s: tensor \"%s\": %s takes %" PRIu64
                            " bytes, its data_offsets span %" PRIu64,
                            r->path, dfx_name_text(tensor->name, name),
                            dfx_tensor_shape_text(tensor, shape), bytes, tensor->bytes);
    }
    return DFX_OK;
}

/* Empty tensors before the one that starts at the same byte. */
static int by_place(const void *a, const void *b) {
    const dfx_tensor *x = *(dfx_tensor *const *)a, *y = *(dfx_tensor *const *)b;
    if (x->off != y->off)
        return x->off < y->off ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static dfx_status check_neighbours(const reader *r, dfx_tensor *const *order, size_t n,
                                   uint64_t *out_end) {
    uint64_t end = 0;
    for (size_t i = 0; i < n; end = order[i]->off + order[i]->bytes, i++) {
        char name[DFX_NAME_TEXT], before[DFX_NAME_TEXT];
        if (order[i]->off == end)
            continue;
        dfx_name_text(order[i]->name, name);
        dfx_name_text(i > 0 ? order[i - 1]->name : "", before);
        if (order[i]->off < end)
            return dfx_fail(r->sink, DFX_E_FORMAT,
                            "%s: tensor \"%s\" overlaps \"%s\": it begins at %" PRIu64
                            ", before the other's end at %" PRIu64,
                            r->path, name, before, order[i]->off, end);
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: %" PRIu64 " bytes before tensor \"%s\" belong to no tensor", r->path,
                        order[i]->off - end, name);
    }
    *out_end = end;
    return DFX_OK;
}

/* Every byte of the data belongs to exactly one tensor; then offsets become those of the file. */
static dfx_status cover_data(reader *r) {
    size_t n = r->set->n_tensors - r->first;
    uint64_t end = 0, file_bytes = r->file->file.bytes, data_bytes = file_bytes - r->data_off;
    dfx_tensor **order;
    DFX_TRY(dfx_new_array(r->sink, n, "tensors", &order));
    for (size_t i = 0; i < n; i++)
        order[i] = &r->set->tensors[r->first + i];
    qsort(order, n, sizeof(*order), by_place);
    dfx_status status = check_neighbours(r, order, n, &end);
    for (size_t i = 0; i < n; i++)
        order[i]->off += r->data_off;
    dfx_free(order);
    DFX_TRY(status);
    if (end > data_bytes)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: the file is %" PRIu64 " bytes short: %" PRIu64 " expected, %" PRIu64
                        " found; the download is incomplete, fetch it again",
                        r->path, end - data_bytes, r->data_off + end, file_bytes);
    if (end < data_bytes)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: %" PRIu64 " bytes after the last tensor: %" PRIu64
                        " expected, %" PRIu64 " found; the file is damaged or hides something",
                        r->path, data_bytes - end, r->data_off + end, file_bytes);
    r->set->bytes += end;
    return DFX_OK;
}
