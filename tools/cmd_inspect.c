/* dfx-edge inspect: what a file or folder holds, for a reader or (--json) for a program. Names in the output come from
 * files, so bytes that steer a terminal are shown as '?'. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/args.h"
#include "tools/commands.h"
#include "tools/console.h"
#include "tools/inspect_lora.h"
#include "tools/inspect_packed.h"
#include "tools/inspect_read.h"
#include "tools/output.h"
#include "tools/report.h"

enum { OPT_ERROR, OPT_SOURCE, OPT_MODEL, OPT_JSON, OPT_VERBOSE, OPT_HELP, OPT_VERSION, N_OPTIONS };

static const dfx_args_option options[N_OPTIONS] = {
    [OPT_ERROR] = {"error", 0, NULL},
    [OPT_SOURCE] = {"source", 0, "the folder that it was packed from"},
    [OPT_MODEL] = {"model", 'm', "the model that a LoRA is for"},
    [OPT_JSON] = {"json", 0, NULL},
    [OPT_VERBOSE] = {"verbose", 'v', NULL},
    [OPT_HELP] = {"help", 'h', NULL},
    [OPT_VERSION] = {"version", 0, NULL},
};

enum { LINE_BYTES = 4096, METADATA_COLUMNS = 100 };

/* One line of the output. */
__attribute__((format(printf, 1, 2))) static void line(const char *fmt, ...) {
    char text[LINE_BYTES];
    va_list list;
    va_start(list, fmt);
    vsnprintf(text, sizeof(text), fmt, list);
    va_end(list);
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if (*p < 0x20 || *p == 0x7f)
            *p = '?';
    puts(text);
}

static const char *string(const json_t *object, const char *key) {
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static uint64_t number(const json_t *object, const char *key) {
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static char *bytes(const json_t *object, const char *key, char text[DFX_REPORT_TEXT_BYTES]) {
    return dfx_report_bytes(number(object, key), text);
}

static char *count(const json_t *object, const char *key, char text[DFX_REPORT_TEXT_BYTES]) {
    return dfx_report_count(number(object, key), text);
}

static void print_list(const json_t *table) {
    size_t i, d;
    json_t *tensor, *side;
    json_array_foreach(json_object_get(table, "list"), i, tensor) {
        char shape[256] = "";
        size_t used = 0;
        json_array_foreach(json_object_get(tensor, "shape"), d, side) used +=
            (size_t)snprintf(shape + used, sizeof(shape) - used, "%s%" JSON_INTEGER_FORMAT,
                             d ? ", " : "", json_integer_value(side));
        line("  %-8s [%s]  %s", string(tensor, "dtype"), shape, string(tensor, "name"));
    }
}

/* Of a packed model the weights count, and its kind is plain. */
static bool is_filling(const json_t *group) {
    const char *name = string(group, "name");
    return strncmp(name, "pad/", 4) == 0 || strncmp(name, "files/", 6) == 0;
}

/* Groups of names are left out where there would be one for each module. */
static void print_table(const json_t *table, bool packed, bool grouped) {
    char t[DFX_REPORT_TEXT_BYTES], p[DFX_REPORT_TEXT_BYTES];
    size_t i;
    json_t *row;
    line("%llu tensors, %s parameters, %s", (unsigned long long)number(table, "tensors"),
         count(table, "parameters", p), bytes(table, "bytes", t));
    if (!packed)
        line("looks like: %s", string(table, "kind"));
    puts("");
    json_array_foreach(json_object_get(table, "dtypes"), i, row)
        line("  %-12s %7llu tensors  %10s parameters  %12s", string(row, "dtype"),
             (unsigned long long)number(row, "tensors"), count(row, "parameters", p),
             bytes(row, "bytes", t));
    if (grouped)
        puts("");
    json_array_foreach(json_object_get(table, "groups"), i,
                       row) if (grouped && !(packed && is_filling(row)))
        line("  %12s  %5llu  %s", bytes(row, "bytes", t),
             (unsigned long long)number(row, "tensors"), string(row, "name"));
    if (json_object_get(table, "list")) {
        puts("");
        print_list(table);
    }
}

static void print_metadata(const json_t *metadata) {
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)metadata, key, value) {
        const char *text = json_string_value(value);
        size_t len = strlen(text);
        line("  metadata %s: %.*s%s", key, METADATA_COLUMNS, text,
             len > METADATA_COLUMNS ? " ..." : "");
    }
}

/* As wide as the "s" of files. */
static const char *plural(const json_t *component) {
    return number(component, "files") == 1 ? " " : "s";
}

static void dtype_names(const json_t *table, char text[128]) {
    size_t i, used = 0;
    json_t *row;
    text[0] = 0;
    json_array_foreach(json_object_get(table, "dtypes"), i, row) if (used < 100) used +=
        (size_t)snprintf(text + used, 128 - used, "%s%s", i ? " " : "", string(row, "dtype"));
}

static void print_component(const json_t *component) {
    const json_t *table = json_object_get(component, "table");
    char b[DFX_REPORT_TEXT_BYTES], p[DFX_REPORT_TEXT_BYTES], names[128];
    if (json_object_get(component, "broken")) {
        line("  %-15s %-32s  cannot be read", string(component, "name"),
             string(component, "class"));
        return;
    }
    dtype_names(table, names);
    if (table)
        line("  %-15s %-32s %3llu file%s %10s  %5llu tensors %8s  %s", string(component, "name"),
             string(component, "class"), (unsigned long long)number(component, "files"),
             plural(component), bytes(component, "file_bytes", b),
             (unsigned long long)number(table, "tensors"), count(table, "parameters", p), names);
    else
        line("  %-15s %-32s %3llu file%s %10s", string(component, "name"),
             string(component, "class"), (unsigned long long)number(component, "files"),
             plural(component), bytes(component, "file_bytes", b));
}

static void print_components(const json_t *components) {
    char b[DFX_REPORT_TEXT_BYTES], p[DFX_REPORT_TEXT_BYTES];
    uint64_t n_bytes = 0, n_parameters = 0, n_files = 0;
    size_t i;
    json_t *component;
    json_array_foreach(components, i, component) {
        print_component(component);
        n_files += number(component, "files");
        n_bytes += number(component, "file_bytes");
        n_parameters += number(json_object_get(component, "table"), "parameters");
    }
    line("  %-48s %3llu file%s %10s  %13s %8s", "together", (unsigned long long)n_files,
         n_files == 1 ? " " : "s", dfx_report_bytes(n_bytes, b), "",
         dfx_report_count(n_parameters, p));
    json_array_foreach(components, i, component) {
        const json_t *table = json_object_get(component, "table");
        if (table && json_object_get(table, "list")) {
            puts("");
            line("%s: %s", string(component, "name"), string(table, "kind"));
            print_list(table);
        }
    }
}

static void print_pages(const json_t *found) {
    char b[DFX_REPORT_TEXT_BYTES], t[DFX_REPORT_TEXT_BYTES];
    size_t i;
    json_t *page;
    line("  %12s  %12s  %-10s  %-12s  %s", "in memory", "in the file", "codec", "types", "page");
    json_array_foreach(json_object_get(found, "pages"), i, page)
        line("  %12s  %12s  %-10s  %-12s  %s", bytes(page, "bytes", b), bytes(page, "stored", t),
             string(page, "codec"), string(page, "dtypes"), string(page, "name"));
    puts("");
}

static void print_packed(const json_t *found, bool listed) {
    char p[DFX_REPORT_TEXT_BYTES], s[DFX_REPORT_TEXT_BYTES], w[DFX_REPORT_TEXT_BYTES];
    const json_t *pages = json_object_get(found, "pages"), *page;
    uint64_t memory = 0, stored = 0, source = number(found, "source_bytes");
    size_t i;
    json_array_foreach(pages, i, page) {
        memory += number(page, "bytes");
        stored += number(page, "stored");
    }
    line("packed model, %s, from %s", string(found, "quant"), string(found, "source"));
    line("%zu pages of %s, the largest of %s", json_array_size(pages), dfx_report_bytes(memory, p),
         bytes(found, "page_bytes_max", s));
    if (source > stored)
        line("saved: %s of the source's %s (%.1f %%)", dfx_report_bytes(source - stored, p),
             dfx_report_bytes(source, s), 100.0 * (double)(source - stored) / (double)source);
    if (number(found, "compressed_pages"))
        line("compressed: %llu pages; %s in the file for %s (%.1f %% less)",
             (unsigned long long)number(found, "compressed_pages"), dfx_report_bytes(stored, s),
             dfx_report_bytes(memory, w), 100.0 * (double)(memory - stored) / (double)memory);
    puts("");
    if (listed)
        print_pages(found);
}

static void print_error(const json_t *row) {
    const json_t *snr = json_object_get(row, "snr_db");
    char db[32] = "exact";
    if (json_is_real(snr))
        snprintf(db, sizeof(db), "%.1f dB", json_real_value(snr));
    line("  %8.4f %%  %9s  %7llu  %9llu  %s",
         100 * json_real_value(json_object_get(row, "relative")), db,
         (unsigned long long)number(row, "tensors"),
         (unsigned long long)number(row, "outlier_rows"), string(row, "name"));
}

static void print_errors(const json_t *error, bool listed) {
    size_t i;
    json_t *row;
    line("  %10s  %9s  %7s  %9s  %s", "error", "SNR", "tensors", "outliers", "kind");
    json_array_foreach(json_object_get(error, "kinds"), i, row) print_error(row);
    print_error(json_object_get(error, "total"));
    if (listed) {
        puts("");
        json_array_foreach(json_object_get(error, "pages"), i, row) print_error(row);
    }
    if (number(error, "skipped_pages"))
        line("  %llu compressed pages were not compared",
             (unsigned long long)number(error, "skipped_pages"));
    puts("");
}

static double real(const json_t *object, const char *key) {
    return json_real_value(json_object_get(object, key));
}

static void print_lora_layers(const json_t *lora) {
    const char *component;
    size_t i;
    json_t *n, *part;
    json_object_foreach(json_object_get(lora, "layers"), component,
                        n) if (json_integer_value(n) > 0)
        line("  %5lld layers of %s", (long long)json_integer_value(n), component);
    json_array_foreach(json_object_get(lora, "parts"), i, part)
        line("  rank %3llu  scale %-8g  %s%s", (unsigned long long)number(part, "rank"),
             real(part, "scale"), string(part, "layer"),
             json_is_true(json_object_get(part, "dora")) ? "  DoRA" : "");
}

static void print_lora(const json_t *lora) {
    size_t i;
    json_t *name;
    line("LoRA: %s, for %s", string(lora, "style"), string(lora, "for"));
    line("%llu of %llu modules match", (unsigned long long)number(lora, "matched"),
         (unsigned long long)number(lora, "modules"));
    if (number(lora, "rank_max"))
        line("ranks %llu to %llu, alpha %g to %g, scale %g to %g",
             (unsigned long long)number(lora, "rank_min"),
             (unsigned long long)number(lora, "rank_max"), real(lora, "alpha_min"),
             real(lora, "alpha_max"), real(lora, "scale_min"), real(lora, "scale_max"));
    if (number(lora, "loha") + number(lora, "lokr") + number(lora, "dora"))
        line("kinds: %llu LoHa, %llu LoKr, %llu with DoRA",
             (unsigned long long)number(lora, "loha"), (unsigned long long)number(lora, "lokr"),
             (unsigned long long)number(lora, "dora"));
    if (json_is_true(json_object_get(lora, "split_qkv")))
        line("trained with split_qkv: fused layers have 3 or 4 times the rank of training, and the "
             "scale is alpha / that rank");
    if (number(lora, "zero"))
        line("zero, and left out: %llu layers", (unsigned long long)number(lora, "zero"));
    print_lora_layers(lora);
    json_array_foreach(json_object_get(lora, "unmatched_names"), i, name)
        line("  no layer of this model: %s", json_string_value(name));
    if (number(lora, "unmatched") > json_array_size(json_object_get(lora, "unmatched_names")))
        line("  no layer of this model: %llu in all",
             (unsigned long long)number(lora, "unmatched"));
    puts("");
}

static void print_text(const json_t *found, bool listed) {
    char b[DFX_REPORT_TEXT_BYTES];
    const json_t *components = json_object_get(found, "components");
    if (components) {
        line("%s: %s", string(found, "path"), string(found, "class"));
        puts("");
        print_components(components);
    } else {
        line("%s:%s%s", string(found, "path"), json_object_get(found, "format") ? " " : "",
             string(found, "format"));
        if (json_object_get(found, "files"))
            line("%llu file%s, %s", (unsigned long long)number(found, "files"),
                 number(found, "files") == 1 ? "" : "s", bytes(found, "file_bytes", b));
        if (json_object_get(found, "pages"))
            print_packed(found, listed);
        if (json_object_get(found, "lora"))
            print_lora(json_object_get(found, "lora"));
        if (json_object_get(found, "error"))
            print_errors(json_object_get(found, "error"), listed);
        print_metadata(json_object_get(found, "metadata"));
        print_table(json_object_get(found, "table"), json_object_get(found, "pages") != NULL,
                    strcmp(string(found, "form"), "lora") != 0);
    }
    puts("");
    line("%s", string(found, "verdict"));
}

/* Measuring needs both: what was packed, and what it was packed from. */
static dfx_status add_error(const char *path, const char *source, dfx_console *console,
                            json_t *found) {
    if (!json_object_get(found, "pages"))
        return dfx_console_fail(console, DFX_E_USAGE, "--error: wanted a packed model, found %s",
                                path);
    return dfx_inspect_packed_error(path, source, &console->sink, found);
}

/* A LoRA is told apart from a model by its tensors. */
static dfx_status add_lora(const char *path, const char *model, bool listed, dfx_console *console,
                           json_t *found) {
    if (strcmp(string(found, "form"), "lora") == 0)
        return dfx_inspect_lora(path, model, listed, &console->sink, found);
    if (model)
        return dfx_console_fail(console, DFX_E_USAGE, "--model: wanted a LoRA file, found %s",
                                path);
    return DFX_OK;
}

static dfx_status inspect(const char *path, const char *source, const char *model, bool listed,
                          bool as_json, dfx_console *console) {
    json_t *found;
    dfx_status status = dfx_inspect_read(path, listed, &console->sink, &found);
    if (status == DFX_OK && source)
        status = add_error(path, source, console, found);
    if (status == DFX_OK)
        status = add_lora(path, model, listed, console, found);
    if (found) {
        if (!as_json)
            print_text(found, listed);
        else if (json_dumpf(found, stdout, JSON_COMPACT) == 0)
            puts("");
        dfx_status written = dfx_output_flush(console);
        status = status != DFX_OK ? status : written;
    }
    json_decref(found);
    return status;
}

int dfx_cmd_inspect(int argc, char **argv) {
    dfx_args args;
    dfx_console console;
    dfx_status status;
    bool good = dfx_args_parse(&args, options, N_OPTIONS, argc, argv);
    bool verbose = dfx_args_given(&args, OPT_VERBOSE);
    if (dfx_args_given(&args, OPT_HELP))
        return dfx_help_inspect();
    if (dfx_args_given(&args, OPT_VERSION))
        return dfx_help_version();
    dfx_console_init(&console, false, verbose);
    if (!good)
        status = dfx_console_fail(&console, DFX_E_USAGE, "%s", args.error);
    else if (args.n_words != 1)
        status = dfx_console_fail(&console, DFX_E_USAGE,
                                  "inspect: wanted one file or folder after it, found %d words",
                                  args.n_words);
    else if (dfx_args_given(&args, OPT_ERROR) != dfx_args_given(&args, OPT_SOURCE))
        status = dfx_console_fail(&console, DFX_E_USAGE,
                                  "--error and --source FOLDER: wanted both or none");
    else
        status = inspect(args.word, args.value[OPT_SOURCE], args.value[OPT_MODEL], verbose,
                         dfx_args_given(&args, OPT_JSON), &console);
    dfx_console_fini(&console);
    return dfx_status_exit_code(status);
}
