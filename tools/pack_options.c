#include "tools/pack_options.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/progress.h"
#include "tools/report.h"

dfx_status dfx_pack_read_quant(const dfx_args *args, int which, dfx_console *console,
                               dfx_qformat *quant) {
    const char *text = args->value[which];
    if (!dfx_args_given(args, which))
        return DFX_OK;
    if (strcmp(text, "auto") == 0)
        *quant = DFX_Q_INT8;
    else if (!dfx_q_parse(text, quant))
        return dfx_console_fail(
            console, DFX_E_USAGE,
            "--quant: wanted int8, fp8, int8wo, bf16, f32, stored or auto, found \"%s\"", text);
    return DFX_OK;
}

dfx_status dfx_pack_read_keep(const dfx_args *args, int which, dfx_console *console,
                              dfx_pack_keep *keep) {
    keep->n = 0;
    if (!dfx_args_given(args, which))
        return DFX_OK;
    if (strlen(args->value[which]) >= sizeof(keep->text))
        return dfx_console_fail(console, DFX_E_USAGE, "--keep: wanted at most %zu characters",
                                sizeof(keep->text) - 1);
    strcpy(keep->text, args->value[which]);
    for (char *rest = keep->text, *pattern; (pattern = strsep(&rest, ",")) != NULL;) {
        if (!*pattern)
            return dfx_console_fail(console, DFX_E_USAGE,
                                    "--keep: wanted patterns with commas between, found \"%s\"",
                                    args->value[which]);
        if (keep->n == DFX_PACK_KEEP_MAX)
            return dfx_console_fail(console, DFX_E_USAGE, "--keep: wanted at most %d patterns",
                                    DFX_PACK_KEEP_MAX);
        keep->patterns[keep->n++] = pattern;
    }
    return DFX_OK;
}

void dfx_pack_warn_twice(const dfx_args *args, dfx_console *console) {
    for (int i = 0; i < args->n_options; i++)
        if (args->n_given[i] > 1 && args->options[i].value)
            dfx_console_say(console, DFX_WARN, "--%s: given %d times; the last one, \"%s\", counts",
                            args->options[i].name, args->n_given[i], args->value[i]);
}

void dfx_pack_tell(dfx_console *console, const char *path, dfx_qformat quant,
                   const dfx_pack_report *report) {
    char to[DFX_REPORT_TEXT_BYTES], from[DFX_REPORT_TEXT_BYTES], page[DFX_REPORT_TEXT_BYTES];
    char seconds[DFX_PROGRESS_SECONDS_BYTES], formats[96] = "";
    if (dfx_q_has_row_scale(quant))
        snprintf(formats, sizeof(formats), "  %" PRIu64 " of %" PRIu64 " tensors in %s",
                 report->n_quantized, report->n_tensors, dfx_q_name(quant));
    dfx_console_say(console, DFX_INFO, "%s  %s from %s (%.1f %%)%s  %s", path,
                    dfx_report_bytes(report->file_bytes, to),
                    dfx_report_bytes(report->source_bytes, from),
                    100.0 * (double)report->file_bytes / (double)report->source_bytes, formats,
                    dfx_progress_seconds(report->seconds, seconds));
    dfx_console_say(console, DFX_DEBUG,
                    "%" PRIu64 " pages, the largest of %s, %" PRIu64 " compressed", report->n_pages,
                    dfx_report_bytes(report->page_bytes_max, page), report->n_compressed);
}
