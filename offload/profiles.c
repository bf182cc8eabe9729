/* The files of offload/profiles/, taken in by the assembler: the program needs no data files, and a profile stays a text
 * file that people can read and copy. Paths are from the root, where the compiler is run; the Makefile names the files as
 * what this object is made from. */
#include "offload/profiles.h"

#define PROFILES(X) \
    X(cpu)          \
    X(h200)         \
    X(orin)         \
    X(rtx3060)      \
    X(rtx4070)      \
    X(rtx4090)

/* clang-format off */
#define TAKE_IN(name)                                      \
    __asm__(".pushsection .rodata\n"                       \
            ".globl dfx_profile_text_" #name "\n"          \
            ".hidden dfx_profile_text_" #name "\n"         \
            "dfx_profile_text_" #name ":\n"                \
            ".incbin \"offload/profiles/" #name         \
            ".profile\"\n"                                \
            ".globl dfx_profile_end_" #name "\n"           \
            ".hidden dfx_profile_end_" #name "\n"          \
            "dfx_profile_end_" #name ":\n"                 \
            ".popsection\n");                              \
    extern const char dfx_profile_text_##name[]            \
        __attribute__((visibility("hidden")));             \
    extern const char dfx_profile_end_##name[]             \
        __attribute__((visibility("hidden")));
/* clang-format on */
PROFILES(TAKE_IN)
#undef TAKE_IN

#define COUNT(name) +1
size_t dfx_shipped_profile_count(void) {
    return PROFILES(COUNT);
}
#undef COUNT

dfx_shipped_profile dfx_shipped_profile_at(size_t idx) {
#define ENTRY(name) \
    {#name, dfx_profile_text_##name, (size_t)(dfx_profile_end_##name - dfx_profile_text_##name)},
    const dfx_shipped_profile all[] = {PROFILES(ENTRY)};
#undef ENTRY
    return all[idx];
}
