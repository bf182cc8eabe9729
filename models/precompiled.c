/* The walk follows the double array without bounds checks: check_units() has shown that from each
 * unit that is not a leaf, offset and any byte stay inside (the array is whole blocks of 256, and a
 * byte changes the low 8 bits only). */
#include "models/precompiled.h"

#include <string.h>
#include <utf8proc.h>

#include "core/sink.h"

enum {
    BLOCK_UNITS = 256,
    CLUSTER_BYTES = 6, /* clusters below this are looked up as a whole */
    REPLACEMENT_BYTES =
        64 /* a longer replacement is refused: it bounds how much a prompt can grow */
};

static uint32_t unit_label(uint32_t unit) {
    return unit & UINT32_C(0x800000FF);
}
static uint32_t unit_offset(uint32_t unit) {
    return (unit >> 10) << ((unit & 0x200) >> 6);
}
static bool unit_is_leaf(uint32_t unit) {
    return unit >> 31;
}
static bool unit_has_leaf(uint32_t unit) {
    return unit >> 8 & 1;
}
static uint32_t unit_value(uint32_t unit) {
    return unit & UINT32_C(0x7FFFFFFF);
}

void dfx_precompiled_fini(dfx_precompiled *map) {
    dfx_free(map->units);
    dfx_free(map->texts);
    *map = (dfx_precompiled){0};
}

static dfx_status check_units(const dfx_precompiled *map, const char *name, const dfx_sink *sink) {
    for (size_t at = 0; at < map->n_units; at++) {
        uint32_t unit = map->units[at];
        if (unit_is_leaf(unit) && at > 0) /* a walk starts at unit 0 whatever it is */
            continue;
        size_t base = at ^ unit_offset(unit);
        if (base >= map->n_units)
            return dfx_fail(
                sink, DFX_E_FORMAT,
                "%s: character map: unit %zu leads to unit %zu of %zu; the file is damaged", name,
                at, base, map->n_units);
        uint32_t leaf = map->units[base];
        if (unit_has_leaf(unit) && (!unit_is_leaf(leaf) || unit_value(leaf) >= map->texts_bytes))
            return dfx_fail(
                sink, DFX_E_FORMAT,
                "%s: character map: unit %zu names replacement %u in %zu bytes of them; the "
                "file is damaged",
                name, at, (unsigned)unit_value(leaf), map->texts_bytes);
    }
    return DFX_OK;
}

static dfx_status check_texts(const dfx_precompiled *map, const char *name, const dfx_sink *sink) {
    if (map->texts_bytes == 0 || map->texts[map->texts_bytes - 1] != '\0')
        return dfx_fail(sink, DFX_E_FORMAT, "%s: character map: its last replacement has no end",
                        name);
    for (size_t at = 0, len; at < map->texts_bytes; at += len + 1) {
        len = strlen(map->texts + at);
        if (len > REPLACEMENT_BYTES)
            return dfx_fail(sink, DFX_E_FORMAT,
                            "%s: character map: a replacement of %zu bytes, wanted at most %d",
                            name, len, REPLACEMENT_BYTES);
        if (!dfx_utf8_valid(map->texts + at, len))
            return dfx_fail(sink, DFX_E_FORMAT,
                            "%s: character map: the replacement at %zu is not UTF-8", name, at);
    }
    return DFX_OK;
}

static uint32_t read_u32(const unsigned char *at) {
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

dfx_status dfx_precompiled_init(dfx_precompiled *map, const char *name, const void *blob,
                                size_t bytes, const dfx_sink *sink) {
    const unsigned char *data = blob;
    *map = (dfx_precompiled){0};
    size_t trie_bytes = bytes >= 4 ? read_u32(data) : 0;
    if (trie_bytes == 0 || trie_bytes % (4 * BLOCK_UNITS) != 0 || trie_bytes > bytes - 4)
        return dfx_fail(
            sink, DFX_E_FORMAT,
            "%s: character map of %zu bytes whose trie would have %zu bytes (wanted whole "
            "blocks of %d that fit)",
            name, bytes, trie_bytes, 4 * BLOCK_UNITS);
    map->n_units = trie_bytes / 4;
    map->texts_bytes = bytes - 4 - trie_bytes;
    dfx_status status;
    DFX_TRY_OUT(status, dfx_new_array(sink, map->n_units, "character map", &map->units));
    for (size_t i = 0; i < map->n_units; i++)
        map->units[i] = read_u32(data + 4 + 4 * i);
    DFX_TRY_OUT(status, dfx_new_array(sink, map->texts_bytes, "character map", &map->texts));
    memcpy(map->texts, data + 4 + trie_bytes, map->texts_bytes);
    DFX_TRY_OUT(status, check_texts(map, name, sink));
    DFX_TRY_OUT(status, check_units(map, name, sink));
out:
    if (status != DFX_OK)
        dfx_precompiled_fini(map);
    return status;
}

/* The replacement of the shortest beginning of `text` that has one; NULL when none has. */
static const char *shortest_match(const dfx_precompiled *map, const char *text, size_t bytes) {
    size_t at = unit_offset(map->units[0]);
    for (size_t i = 0; i < bytes && text[i] != '\0'; i++) {
        at ^= (unsigned char)text[i];
        uint32_t unit = map->units[at];
        if (unit_label(unit) != (unsigned char)text[i])
            return NULL;
        at ^= unit_offset(unit);
        if (unit_has_leaf(unit))
            return map->texts + unit_value(map->units[at]);
    }
    return NULL;
}

/* Bytes of the grapheme cluster at text[0]. */
static size_t cluster_bytes(const char *text, size_t bytes) {
    int32_t code, next;
    utf8proc_int32_t state = 0;
    size_t at = dfx_utf8_next(text, bytes, &code);
    while (at < bytes) {
        size_t taken = dfx_utf8_next(text + at, bytes - at, &next);
        if (utf8proc_grapheme_break_stateful(code, next, &state))
            break;
        code = next;
        at += taken;
    }
    return at;
}

static dfx_status apply_characters(const dfx_precompiled *map, const char *text, size_t bytes,
                                   const dfx_sink *sink, dfx_text_buf *out) {
    for (size_t at = 0, taken; at < bytes; at += taken) {
        int32_t code;
        taken = dfx_utf8_next(text + at, bytes - at, &code);
        const char *normal = shortest_match(map, text + at, taken);
        DFX_TRY(dfx_text_buf_add(out, sink, normal ? normal : text + at,
                                 normal ? strlen(normal) : taken));
    }
    return DFX_OK;
}

dfx_status dfx_precompiled_apply(const dfx_precompiled *map, const char *text, size_t bytes,
                                 const dfx_sink *sink, dfx_text_buf *out) {
    for (size_t at = 0, taken; at < bytes; at += taken) {
        taken = cluster_bytes(text + at, bytes - at);
        const char *normal = taken < CLUSTER_BYTES ? shortest_match(map, text + at, taken) : NULL;
        if (normal)
            DFX_TRY(dfx_text_buf_add(out, sink, normal, strlen(normal)));
        else
            DFX_TRY(apply_characters(map, text + at, taken, sink, out));
    }
    return DFX_OK;
}
