/* The --lora options of a command line: the files with their strengths, and what room the model shall make for them. */
#ifndef DFX_TOOLS_LORA_LIST_H
#define DFX_TOOLS_LORA_LIST_H

#include "models/dfx.h"
#include "tools/args.h"
#include "tools/console.h"
#include "tools/lora_option.h"

typedef struct dfx_lora_list {
    dfx_lora_option options[DFX_ARGS_LISTED_MAX];
    dfx_lora_use uses[DFX_ARGS_LISTED_MAX]; /* of options */
    int n;
    const char *acting
        [DFX_ARGS_LISTED_MAX]; /* paths of those whose strength is not 0, for which room is made: with none of
                                              * them the picture is, bit for bit, the one without --lora */
    int n_acting;
} dfx_lora_list;

/* Values of the listed option `which`. The list must not be moved afterwards. Errors: DFX_E_USAGE, said. */
dfx_status dfx_lora_list_read(dfx_lora_list *list, const dfx_args *args, int which,
                              dfx_console *console);

#endif
