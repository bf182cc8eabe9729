/* One GGUF file into a table of tensors. Its header has no length of its own, so it is read through a window, and what is
 * kept of it (names, keys, string values) goes to the file's arena.
 *
 * Until place_data() is done, a tensor's `off` is relative to the data. Offsets and sizes up to there are at most 2^63 - 1, so
 * sums of two fit uint64_t. */
#include "core/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <utf8proc.h>

enum {
    WINDOW_BYTES = 16 << 10,
    MAGIC_BYTES = 4,
    DIMS_MAX = 4,
    ALIGN_DEFAULT = 32,
    KV_BYTES_MIN = 8 + 1 + 4 + 1,       /* key of one byte, type, value of one byte */
    INFO_BYTES_MIN = 8 + 1 + 4 + 4 + 8, /* name of one byte, no dimensions, type, offset */
};

enum { VALUE_U32 = 4, VALUE_STRING = 8, VALUE_ARRAY = 9 };

/* Of a value of each type; 0: it says itself how long it is. */
static const unsigned value_bytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

static const struct {
    uint32_t id;
    dfx_dtype dtype;
} types[] = {
    {0, DFX_DTYPE_F32},   {1, DFX_DTYPE_F16},   {2, DFX_DTYPE_Q4_0},  {3, DFX_DTYPE_Q4_1},
    {6, DFX_DTYPE_Q5_0},  {7, DFX_DTYPE_Q5_1},  {8, DFX_DTYPE_Q8_0},  {10, DFX_DTYPE_Q2_K},
    {11, DFX_DTYPE_Q3_K}, {12, DFX_DTYPE_Q4_K}, {13, DFX_DTYPE_Q5_K}, {14, DFX_DTYPE_Q6_K},
    {24, DFX_DTYPE_I8},   {25, DFX_DTYPE_I16},  {26, DFX_DTYPE_I32},  {27, DFX_DTYPE_I64},
    {28, DFX_DTYPE_F64},  {30, DFX_DTYPE_BF16},
};

typedef struct reader {
    dfx_tensors *set;
    dfx_tensors_file *file;
    const dfx_sink *sink;
    const char *path;
    uint64_t file_bytes, at; /* the next byte to read */
    uint64_t n_tensors, n_kvs, align;
    uint64_t data_bytes; /* of the tensors so far, padding between them included */
    size_t first;        /* of this file's tensors in the set */
    uint64_t window_at;
    size_t window_bytes;
    unsigned char window[WINDOW_BYTES];
} reader;

/* A tensor as a message calls it. */
typedef struct tensor_text {
    char text[DFX_NAME_TEXT + 40];
} tensor_text;

static dfx_status read_head(reader *r);
static dfx_status read_kv(reader *r);
static dfx_status check_keys(const reader *r);
static dfx_status read_info(reader *r);
static dfx_status place_data(reader *r);
static dfx_status check_names(const reader *r);

bool dfx_gguf_is(const unsigned char *head, size_t n_head) {
    return n_head >= MAGIC_BYTES && memcmp(head, "GGUF", MAGIC_BYTES) == 0;
}

static dfx_status read_all(reader *r) {
    DFX_TRY(read_head(r));
    for (uint64_t i = 0; i < r->n_kvs; i++)
        DFX_TRY(read_kv(r));
    DFX_TRY(check_keys(r));
    for (uint64_t i = 0; i < r->n_tensors; i++)
        DFX_TRY(read_info(r));
    DFX_TRY(place_data(r));
    return check_names(r);
}

dfx_status dfx_gguf_read(dfx_tensors *set, dfx_tensors_file *file, const dfx_sink *sink) {
    reader *r;
    DFX_TRY(dfx_new(sink, "tensors", &r));
    r->set = set;
    r->file = file;
    r->sink = sink;
    r->path = file->file.path;
    r->file_bytes = file->file.bytes;
    r->align = ALIGN_DEFAULT;
    r->first = set->n_tensors;
    dfx_arena_init(&file->text, "tensors");
    dfx_status status = read_all(r);
    dfx_free(r);
    return status;
}

/* ---- bytes ---- */

/* Are there n more bytes in the file, and may the header be that long? */
static dfx_status want(const reader *r, uint64_t n, const char *what) {
    if (n > r->file_bytes - r->at)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: GGUF header: %s takes %" PRIu64 " bytes from byte %" PRIu64
                        " on, the file has %" PRIu64
                        "; it is damaged, or the download is incomplete",
                        r->path, what, n, r->at, r->file_bytes);
    if (r->at + n > DFX_GGUF_HEADER_BYTES_MAX)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: the GGUF header goes on past byte %d, where %s begins at byte %" PRIu64
                        "; no more is read",
                        r->path, DFX_GGUF_HEADER_BYTES_MAX, what, r->at);
    return DFX_OK;
}

static dfx_status take(reader *r, void *dst, uint64_t n, const char *what) {
    unsigned char *to = dst;
    DFX_TRY(want(r, n, what));
    while (n > 0) {
        if (r->at < r->window_at || r->at >= r->window_at + r->window_bytes) {
            uint64_t left = r->file_bytes - r->at;
            r->window_bytes = 0; /* a failed read leaves nothing that looks valid */
            size_t fresh = left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES;
            DFX_TRY(dfx_file_read(&r->file->file, r->sink, r->at, r->window, fresh));
            r->window_at = r->at;
            r->window_bytes = fresh;
        }
        uint64_t off = r->at - r->window_at, there = r->window_bytes - off;
        size_t step = (size_t)(n < there ? n : there);
        memcpy(to, r->window + off, step);
        to += step;
        r->at += step;
        n -= step;
    }
    return DFX_OK;
}

static dfx_status skip(reader *r, uint64_t n, const char *what) {
    DFX_TRY(want(r, n, what));
    r->at += n;
    return DFX_OK;
}

static dfx_status take_u32(reader *r, const char *what, uint32_t *out) {
    unsigned char b[4];
    DFX_TRY(take(r, b, sizeof(b), what));
    *out = b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
    return DFX_OK;
}

static dfx_status take_u64(reader *r, const char *what, uint64_t *out) {
    uint32_t low = 0, high = 0;
    DFX_TRY(take_u32(r, what, &low));
    DFX_TRY(take_u32(r, what, &high));
    *out = (uint64_t)high << 32 | low;
    return DFX_OK;
}

static bool is_text(const char *text, size_t len) {
    utf8proc_int32_t code;
    for (size_t at = 0; at < len;) {
        utf8proc_ssize_t step = utf8proc_iterate((const utf8proc_uint8_t *)text + at,
                                                 (utf8proc_ssize_t)(len - at), &code);
        if (step <= 0 || code == 0)
            return false;
        at += (size_t)step;
    }
    return true;
}

/* A string that is kept; in the file's arena. */
static dfx_status take_text(reader *r, const char *what, char **out) {
    uint64_t len = 0;
    char *text, excerpt[DFX_NAME_TEXT];
    DFX_TRY(take_u64(r, what, &len));
    DFX_TRY(want(r, len, what));
    DFX_TRY(dfx_arena_alloc(&r->file->text, r->sink, (size_t)len + 1, (void **)&text));
    DFX_TRY(take(r, text, len, what));
    if (!is_text(text, (size_t)len)) {
        for (char *c = text; *c; c++)
            *c = (unsigned char)*c < 0x80 ? *c : '?';
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: %s \"%s\" is not UTF-8, or holds a NUL; the file is damaged", r->path,
                        what, dfx_name_text(text, excerpt));
    }
    *out = text;
    return DFX_OK;
}

static dfx_status skip_text(reader *r, const char *what) {
    uint64_t len = 0;
    DFX_TRY(take_u64(r, what, &len));
    return skip(r, len, what);
}

/* ---- what stands before the tensors ---- */

static dfx_status bad_version(const reader *r, uint32_t version) {
    if (version != 0 && version << 16 == 0)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: a GGUF file for big-endian machines; get the little-endian one",
                        r->path);
    return dfx_fail(r->sink, DFX_E_FORMAT,
                    "%s: GGUF version %" PRIu32 "; versions 2 and 3 are read", r->path, version);
}

static dfx_status check_count(const reader *r, uint64_t n, uint64_t bytes_min, const char *what) {
    if (n <= (r->file_bytes - r->at) / bytes_min)
        return DFX_OK;
    return dfx_fail(r->sink, DFX_E_FORMAT,
                    "%s: GGUF header: %" PRIu64 " %s in a file of %" PRIu64
                    " bytes; it is damaged, or the download is incomplete",
                    r->path, n, what, r->file_bytes);
}

static dfx_status read_head(reader *r) {
    uint32_t version = 0;
    DFX_TRY(skip(r, MAGIC_BYTES, "the magic"));
    DFX_TRY(take_u32(r, "the version", &version));
    if (version != 2 && version != 3)
        return bad_version(r, version);
    DFX_TRY(take_u64(r, "the number of tensors", &r->n_tensors));
    DFX_TRY(take_u64(r, "the number of keys", &r->n_kvs));
    DFX_TRY(check_count(r, r->n_tensors, INFO_BYTES_MIN, "tensors"));
    return check_count(r, r->n_kvs, KV_BYTES_MIN, "keys");
}

static dfx_status bad_key(const reader *r, const char *key, const char *rule, uint32_t found) {
    char name[DFX_NAME_TEXT];
    return dfx_fail(r->sink, DFX_E_FORMAT, "%s: key \"%s\": %s%" PRIu32, r->path,
                    dfx_name_text(key, name), rule, found);
}

static dfx_status skip_array(reader *r, const char *key) {
    char name[DFX_NAME_TEXT];
    uint32_t type = 0;
    uint64_t n = 0;
    DFX_TRY(take_u32(r, "an array's type", &type));
    DFX_TRY(take_u64(r, "an array's length", &n));
    if (type == VALUE_ARRAY)
        return bad_key(r, key, "an array of arrays, which no model has: element type ", type);
    if (type >= DFX_COUNT(value_bytes))
        return bad_key(r, key, "an array of unknown element type ", type);
    uint64_t bytes_min = type == VALUE_STRING ? sizeof(uint64_t) : value_bytes[type];
    if (n > (r->file_bytes - r->at) / bytes_min)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: key \"%s\": an array of %" PRIu64 " values in a file of %" PRIu64
                        " bytes; it is damaged, or the download is incomplete",
                        r->path, dfx_name_text(key, name), n, r->file_bytes);
    if (type != VALUE_STRING)
        return skip(r, n * bytes_min, "an array");
    for (uint64_t i = 0; i < n; i++)
        DFX_TRY(skip_text(r, "a string of an array"));
    return DFX_OK;
}

static dfx_status read_align(reader *r, const char *key, uint32_t type) {
    uint32_t align = 0;
    if (type != VALUE_U32)
        return bad_key(r, key, "wanted a u32 (value type 4), found value type ", type);
    DFX_TRY(take_u32(r, "general.alignment", &align));
    if (align == 0 || (align & (align - 1)) != 0 || align > DFX_GGUF_ALIGN_MAX)
        return bad_key(r, key, "wanted a power of two up to 1048576, found ", align);
    r->align = align;
    return DFX_OK;
}

/* Strings are kept; other values keep their key, so that it still counts as a duplicate. */
static dfx_status read_kv(reader *r) {
    dfx_tensors_file *file = r->file;
    char *key = NULL, *value = NULL;
    uint32_t type = 0;
    DFX_TRY(take_text(r, "a key", &key));
    if (!key[0])
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: a key before byte %" PRIu64 " is empty",
                        r->path, r->at);
    DFX_TRY(take_u32(r, "a value's type", &type));
    if (type >= DFX_COUNT(value_bytes))
        return bad_key(r, key, "unknown value type ", type);
    if (strcmp(key, "general.alignment") == 0)
        DFX_TRY(read_align(r, key, type));
    else if (type == VALUE_STRING)
        DFX_TRY(take_text(r, "a value", &value));
    else if (type == VALUE_ARRAY)
        DFX_TRY(skip_array(r, key));
    else
        DFX_TRY(skip(r, value_bytes[type], "a value"));
    DFX_TRY(dfx_grow(r->sink, file->n_meta + 1, sizeof(*file->meta), "tensors", &file->cap_meta,
                     (void **)&file->meta));
    file->meta[file->n_meta++] = (dfx_tensors_meta){.key = key, .value = value};
    return DFX_OK;
}

static dfx_status check_keys(const reader *r) {
    char name[DFX_NAME_TEXT];
    const dfx_tensors_meta *twice = dfx_tensors_sort_meta(r->file);
    if (twice)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: duplicate key \"%s\"", r->path,
                        dfx_name_text(twice->key, name));
    return DFX_OK;
}

/* ---- tensors ---- */

static const char *tensor_words(const char *tensor, uint32_t id, tensor_text *out) {
    char name[DFX_NAME_TEXT];
    snprintf(out->text, sizeof(out->text), "tensor \"%s\" (type id %" PRIu32 ")",
             dfx_name_text(tensor, name), id);
    return out->text;
}

/* Types that ggml has or had and that are not read here; for the message. */
static const char *other_type(uint32_t id) {
    static const char *const names[] = {
        [4] = "Q4_2, removed from ggml",
        [5] = "Q4_3, removed from ggml",
        [9] = "Q8_1",
        [15] = "Q8_K",
        [16] = "IQ2_XXS",
        [17] = "IQ2_XS",
        [18] = "IQ3_XXS",
        [19] = "IQ1_S",
        [20] = "IQ4_NL",
        [21] = "IQ3_S",
        [22] = "IQ2_S",
        [23] = "IQ4_XS",
        [29] = "IQ1_M",
        [34] = "TQ1_0",
        [35] = "TQ2_0",
        [39] = "MXFP4",
        [40] = "NVFP4",
    };
    return id < DFX_COUNT(names) && names[id] ? names[id] : "unknown";
}

static dfx_status find_type(const reader *r, dfx_tensor *t, uint32_t id) {
    tensor_text words;
    for (size_t i = 0; i < DFX_COUNT(types); i++)
        if (types[i].id == id) {
            t->dtype = types[i].dtype;
            return DFX_OK;
        }
    return dfx_fail(r->sink, DFX_E_FORMAT,
                    "%s: %s: this type is not read: %s; wanted F32, F16, BF16, Q4_0, Q4_1, Q5_0, "
                    "Q5_1, Q8_0 or Q2_K to Q6_K",
                    r->path, tensor_words(t->name, id, &words), other_type(id));
}

/* Dimensions come fastest first. */
static dfx_status read_shape(reader *r, dfx_tensor *t) {
    char name[DFX_NAME_TEXT];
    uint32_t n_dims = 0;
    DFX_TRY(take_u32(r, "a tensor's number of dimensions", &n_dims));
    if (n_dims > DIMS_MAX)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: tensor \"%s\": %" PRIu32 " dimensions where at most %d are allowed",
                        r->path, dfx_name_text(t->name, name), n_dims, DIMS_MAX);
    t->rank = (int)n_dims;
    for (int i = t->rank - 1; i >= 0; i--) {
        uint64_t dim = 0;
        DFX_TRY(take_u64(r, "a tensor's dimension", &dim));
        if (dim == 0 || dim > INT64_MAX)
            return dfx_fail(r->sink, DFX_E_FORMAT,
                            "%s: tensor \"%s\": a dimension of %" PRIu64 "; wanted 1 to 2^63 - 1",
                            r->path, dfx_name_text(t->name, name), dim);
        t->shape[i] = (int64_t)dim;
    }
    return DFX_OK;
}

static dfx_status check_size(const reader *r, dfx_tensor *t, uint32_t id) {
    tensor_text words;
    char shape[DFX_SHAPE_TEXT];
    bool fits = dfx_tensor_count(t, &t->n_elements, &t->bytes);
    dfx_tensor_shape_text(t, shape);
    tensor_words(t->name, id, &words);
    if (!fits || t->bytes > INT64_MAX)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: %s: its number of elements overflows: %s",
                        r->path, words.text, shape);
    if (!dfx_tensor_is_whole(t, t->n_elements))
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: %s: its rows are not whole blocks of %" PRIu32 " values: %s", r->path,
                        words.text, dfx_dtype_block_of(t->dtype).elements, shape);
    return DFX_OK;
}

/* Where the tensor before it ends, and nowhere else: so ggml writes and wants it. */
static dfx_status check_off(const reader *r, const dfx_tensor *t, uint32_t id) {
    tensor_text words;
    uint64_t begin = dfx_align_up(r->data_bytes, r->align);
    tensor_words(t->name, id, &words);
    if (t->off % r->align != 0)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: %s: offset %" PRIu64 " is no multiple of the alignment %" PRIu64,
                        r->path, words.text, t->off, r->align);
    if (t->off != begin)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: %s: offset %" PRIu64 " where %" PRIu64
                        " follows from the tensors before it",
                        r->path, words.text, t->off, begin);
    if (t->bytes > INT64_MAX - begin)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: %s ends past 2^63 bytes", r->path, words.text);
    return DFX_OK;
}

static dfx_status read_info(reader *r) {
    dfx_tensors *set = r->set;
    dfx_tensor t = {.file_idx = (uint32_t)(set->n_files - 1)};
    uint32_t id = 0;
    char *name = NULL;
    DFX_TRY(take_text(r, "a tensor's name", &name));
    if (!name[0])
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: a tensor before byte %" PRIu64 " has no name",
                        r->path, r->at);
    t.name = name;
    DFX_TRY(read_shape(r, &t));
    DFX_TRY(take_u32(r, "a tensor's type", &id));
    DFX_TRY(take_u64(r, "a tensor's offset", &t.off));
    DFX_TRY(find_type(r, &t, id));
    DFX_TRY(check_size(r, &t, id));
    DFX_TRY(check_off(r, &t, id));
    r->data_bytes = t.off + t.bytes;
    DFX_TRY(dfx_grow(r->sink, set->n_tensors + 1, sizeof(t), "tensors", &set->cap_tensors,
                     (void **)&set->tensors));
    set->tensors[set->n_tensors++] = t;
    set->bytes += t.bytes;
    return DFX_OK;
}

/* The data is in the file; then offsets become those of the file. */
static dfx_status place_data(reader *r) {
    if (r->n_tensors == 0)
        return DFX_OK;
    uint64_t begin = dfx_align_up(r->at, r->align), end = begin + r->data_bytes;
    if (end > r->file_bytes)
        return dfx_fail(r->sink, DFX_E_FORMAT,
                        "%s: the file is %" PRIu64 " bytes short: %" PRIu64 " expected, %" PRIu64
                        " found; the download is incomplete, fetch it again",
                        r->path, end - r->file_bytes, end, r->file_bytes);
    if (dfx_align_up(end, r->align) < r->file_bytes)
        dfx_warn(r->sink, "%s: %" PRIu64 " bytes after the last tensor belong to none", r->path,
                 r->file_bytes - end);
    for (size_t i = r->first; i < r->set->n_tensors; i++)
        r->set->tensors[i].off += begin;
    return DFX_OK;
}

static dfx_status check_names(const reader *r) {
    char name[DFX_NAME_TEXT];
    const dfx_tensor *twice = dfx_tensors_sort_from(r->set, r->first);
    if (twice)
        return dfx_fail(r->sink, DFX_E_FORMAT, "%s: duplicate tensor name \"%s\"", r->path,
                        dfx_name_text(twice->name, name));
    return DFX_OK;
}
