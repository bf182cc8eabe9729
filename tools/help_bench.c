/* --help of bench. */
#include "tools/commands.h"

int dfx_help_bench(void) {
    return dfx_help_page(
        "dfx-edge bench: measure parts of dfx-edge on this machine\n"
        "\n"
        "Usage\n"
        "  dfx-edge bench io [options] MODEL.safetensors\n"
        "\n"
        "io reads all pages of a packed model from disk, as generate does when they fit neither\n"
        "the device nor RAM, and in turn the same bytes with a bare loop over io_uring. It tells\n"
        "both rates and their ratio. Reads are direct: the page cache has no part in it. The disk\n"
        "should have nothing else to do, and the model be larger than the disk's own cache.\n"
        "\n"
        "Options\n"
        "      --queue-depth N    1 to 4096 requests of 1 MiB in flight; default 32\n"
        "      --runs N           1 to 99 of each; default 5. The median counts\n"
        "      --json             one JSON object on standard output instead of text\n"
        "  -v, --verbose          more\n"
        "  -h, --help             this text\n");
}
