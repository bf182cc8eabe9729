/* dfx-edge: FLUX.1 pictures inside a memory budget. Chooses the command; the first word is a prompt when it is none.
 * From here read cmd_generate.c, then models/pipeline.c behind models/dfx.h. */
#include <stdio.h>
#include <string.h>

#include "models/dfx.h"
#include "tools/commands.h"

static int cmd_help(int argc, char **argv) {
    if (argc == 0)
        return dfx_help_overview();
    if (argc == 1 && strcmp(argv[0], "generate") == 0)
        return dfx_help_generate();
    if (argc == 1 && strcmp(argv[0], "inspect") == 0)
        return dfx_help_inspect();
    if (argc == 1 && strcmp(argv[0], "bench") == 0)
        return dfx_help_bench();
    if (argc == 1 && strcmp(argv[0], "pack") == 0)
        return dfx_help_pack();
    if (argc == 1 && strcmp(argv[0], "plan") == 0)
        return dfx_help_plan();
    if (argc == 1 && strcmp(argv[0], "repl") == 0)
        return dfx_help_repl();
    if (argc == 1 && strcmp(argv[0], "random-model") == 0)
        return dfx_help_random_model();
    fprintf(stderr, "dfx-edge: help: wanted generate, inspect, bench, pack, plan, repl, "
                    "random-model or nothing after it\n");
    return dfx_status_exit_code(DFX_E_USAGE);
}

int main(int argc, char **argv) {
    const char *first = argc > 1 ? argv[1] : "";
    if (strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0)
        return dfx_help_overview();
    if (strcmp(first, "help") == 0)
        return cmd_help(argc - 2, argv + 2);
    if (strcmp(first, "inspect") == 0)
        return dfx_cmd_inspect(argc - 2, argv + 2);
    if (strcmp(first, "bench") == 0)
        return dfx_cmd_bench(argc - 2, argv + 2);
    if (strcmp(first, "pack") == 0)
        return dfx_cmd_pack(argc - 2, argv + 2);
    if (strcmp(first, "plan") == 0)
        return dfx_cmd_plan(argc - 2, argv + 2);
    if (strcmp(first, "repl") == 0)
        return dfx_cmd_repl(argc - 2, argv + 2);
    if (strcmp(first, "random-model") == 0)
        return dfx_cmd_random_model(argc - 2, argv + 2);
    if (strcmp(first, "generate") == 0)
        return dfx_cmd_generate(argc - 2, argv + 2);
    return dfx_cmd_generate(argc > 0 ? argc - 1 : 0, argv + 1);
}
