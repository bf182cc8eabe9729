#include "tools/lora_option.h"

#include <stdio.h>
#include <string.h>

#include "tools/args.h"

/* Beyond this a strength is a slip of the finger, and f16 files overflow. */
static const double STRENGTH_MAX = 1000;

/* A sign, or none, and a decimal. */
static bool number(const char *text, double *out) {
    double value;
    const char *digits = text + (*text == '-' || *text == '+');
    if (!dfx_args_decimal(digits, digits + strlen(digits), &value))
        return false;
    *out = *text == '-' ? -value : value;
    return true;
}

static bool is_rest_of_a_path(const char *text) {
    static const char ending[] = ".safetensors";
    size_t len = strlen(text), ending_len = strlen(ending);
    return strchr(text, '/') || (len >= ending_len && strcmp(text + len - ending_len, ending) == 0);
}

bool dfx_lora_option_parse(const char *text, dfx_lora_option *out,
                           char error[DFX_LORA_OPTION_ERROR_BYTES]) {
    const char *colon = strrchr(text, ':');
    size_t path_bytes = strlen(text);
    double strength = 1;
    error[0] = 0;
    if (colon && number(colon + 1, &strength)) {
        path_bytes = (size_t)(colon - text);
    } else if (colon && !is_rest_of_a_path(colon + 1)) {
        snprintf(error, DFX_LORA_OPTION_ERROR_BYTES,
                 "wanted a strength such as 0.8 after the last ':', found \"%.100s\" in \"%.200s\"",
                 colon + 1, text);
        return false;
    }
    if (path_bytes == 0 || path_bytes >= sizeof(out->path)) {
        snprintf(error, DFX_LORA_OPTION_ERROR_BYTES,
                 "wanted a file of at most %zu bytes, or FILE:STRENGTH, found \"%.200s\"",
                 sizeof(out->path) - 1, text);
        return false;
    }
    if (strength < -STRENGTH_MAX || strength > STRENGTH_MAX) {
        snprintf(error, DFX_LORA_OPTION_ERROR_BYTES,
                 "wanted a strength from %g to %g, found \"%.100s\"", -STRENGTH_MAX, STRENGTH_MAX,
                 colon + 1);
        return false;
    }
    memcpy(out->path, text, path_bytes);
    out->path[path_bytes] = 0;
    out->strength = (float)strength;
    return true;
}
