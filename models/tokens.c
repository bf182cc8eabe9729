/* Collecting ids, and the frame of begin, end and padding that both tokenizers put around them. */
#include "models/tokens.h"

#include <string.h>

void dfx_tokens_free(dfx_tokens *tokens) {
    dfx_free(tokens->ids);
    *tokens = (dfx_tokens){0};
}

dfx_status dfx_id_list_add(dfx_id_list *list, const dfx_sink *sink, int32_t id) {
    if (list->n == list->cap)
        DFX_TRY(dfx_grow(sink, list->n + 1, sizeof(*list->ids), "token ids", &list->cap,
                         (void **)&list->ids));
    list->ids[list->n++] = id;
    return DFX_OK;
}

void dfx_id_list_free(dfx_id_list *list) {
    dfx_free(list->ids);
    *list = (dfx_id_list){0};
}

dfx_status dfx_tokens_check(const dfx_sink *sink, size_t text_bytes, size_t max_len,
                            size_t n_special) {
    if (text_bytes > DFX_TOKENIZER_BYTES_MAX)
        return dfx_fail(sink, DFX_E_USAGE, "prompt of %zu bytes: at most %d are taken", text_bytes,
                        DFX_TOKENIZER_BYTES_MAX);
    if (max_len < n_special)
        return dfx_fail(sink, DFX_E_USAGE,
                        "a prompt length of %zu tokens has no room for the %zu that frame the text",
                        max_len, n_special);
    return DFX_OK;
}

dfx_status dfx_tokens_frame(const dfx_id_list *list, int32_t begin, int32_t end, int32_t pad,
                            size_t max_len, const dfx_sink *sink, dfx_tokens *out) {
    size_t n_begin = begin >= 0;
    size_t room = max_len - n_begin - 1;
    size_t kept = list->n < room ? list->n : room;
    dfx_tokens made = {.n_unknown = list->n_unknown, .n_dropped = list->n - kept};
    DFX_TRY(dfx_new_array(sink, max_len, "token ids", &made.ids));
    if (n_begin)
        made.ids[made.n++] = begin;
    if (kept > 0)
        memcpy(made.ids + made.n, list->ids, kept * sizeof(*made.ids));
    made.n += kept;
    made.ids[made.n++] = end;
    for (size_t i = made.n; i < max_len; i++)
        made.ids[i] = pad;
    *out = made;
    return DFX_OK;
}
