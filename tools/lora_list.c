#include "tools/lora_list.h"

dfx_status dfx_lora_list_read(dfx_lora_list *list, const dfx_args *args, int which,
                              dfx_console *console) {
    const char *values[DFX_ARGS_LISTED_MAX];
    char error[DFX_LORA_OPTION_ERROR_BYTES];
    list->n = dfx_args_list(args, which, values);
    for (int i = 0; i < list->n; i++) {
        if (!dfx_lora_option_parse(values[i], &list->options[i], error))
            return dfx_console_fail(console, DFX_E_USAGE, "%s", error);
        list->uses[i] = (dfx_lora_use){list->options[i].path, list->options[i].strength};
        if (list->options[i].strength != 0)
            list->acting[list->n_acting++] = list->options[i].path;
    }
    return DFX_OK;
}
