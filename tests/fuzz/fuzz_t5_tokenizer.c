/* T5's tokenizer: an input that begins with '{' is tokenizer.json and, behind a cut, tokenizer_config.json; any other is
 * spiece.model. A text goes through whatever comes out. */
#include "models/tok_t5.h"
#include "tests/fuzz/fuzzing.h"

enum { N_TOKENS = 64 };

static const char text[] =
    "A caf\xc3\xa9, <extra_id_0> don't 12 \xe2\x80\xa6 \xff ab\xef\xac\x81 </s>";

static void put_parts(const uint8_t *data, size_t bytes) {
    size_t n = 0;
    bool json = bytes > 0 && data[0] == '{';
    fuzz_drop("tokenizer_config.json");
    fuzz_drop(json ? "spiece.model" : "tokenizer.json");
    if (!json) {
        fuzz_put("spiece.model", data, bytes);
        return;
    }
    const uint8_t *part = fuzz_next(&data, &bytes, &n);
    fuzz_put("tokenizer.json", part, n);
    part = fuzz_next(&data, &bytes, &n);
    if (part)
        fuzz_put("tokenizer_config.json", part, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    dfx_tok_t5 *tok = NULL;
    dfx_tokens tokens = {0};
    put_parts(data, bytes);
    dfx_bundle bundle = {.folder = fuzz_folder(), .name = "tokenizer_2"};
    fuzz_begin();
    dfx_status status = dfx_tok_t5_open(&bundle, "", &fuzz_sink, &tok);
    if (status == DFX_OK)
        status = dfx_tok_t5_encode(tok, text, sizeof(text) - 1, N_TOKENS, &fuzz_sink, &tokens);
    dfx_tokens_free(&tokens);
    dfx_tok_t5_close(tok);
    fuzz_end(status);
    return 0;
}
