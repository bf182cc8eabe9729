/* CLIP's tokenizer: input is tokenizer.json; or vocab.json, merges.txt and, if it has three parts, tokenizer_config.json. A
 * text goes through whatever comes out. */
#include <string.h>

#include "models/tok_clip.h"
#include "tests/fuzz/fuzzing.h"

enum { N_TOKENS = 77 };

static const char text[] = "A caf\xc3\xa9, <|endoftext|> don't 12 \xe2\x80\xa6 \xff abcab";

static void put_parts(const uint8_t *data, size_t bytes) {
    static const char *const parts[] = {"vocab.json", "merges.txt", "tokenizer_config.json"};
    size_t n;
    bool alone = !bytes || !memchr(data, FUZZ_CUT, bytes);
    fuzz_drop("tokenizer.json");
    if (alone)
        fuzz_put("tokenizer.json", data, bytes);
    for (size_t i = 0; i < DFX_COUNT(parts); i++) {
        const uint8_t *part = alone ? NULL : fuzz_next(&data, &bytes, &n);
        if (part)
            fuzz_put(parts[i], part, n);
        else
            fuzz_drop(parts[i]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    dfx_tok_clip *tok = NULL;
    dfx_tokens tokens = {0};
    put_parts(data, bytes);
    dfx_bundle bundle = {.folder = fuzz_folder(), .name = "tokenizer"};
    fuzz_begin();
    dfx_status status = dfx_tok_clip_open(&bundle, "", &fuzz_sink, &tok);
    if (status == DFX_OK)
        status = dfx_tok_clip_encode(tok, text, sizeof(text) - 1, N_TOKENS, &fuzz_sink, &tokens);
    dfx_tokens_free(&tokens);
    dfx_tok_clip_close(tok);
    fuzz_end(status);
    return 0;
}
