/* dfx-edge inspect: what a file or folder holds, for a reader or (--json) for a program. Names in the output come from
 * files, so bytes that steer a terminal are shown as '?'. */
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tools/args.h"
#include "tools/commands.h"
#include "tools/console.h"
#include "tools/inspect_read.h"
#include "tools/output.h"
#include "tools/report.h"

enum { OPT_JSON, OPT_VERBOSE, OPT_HELP, OPT_VERSION, N_OPTIONS };

static const dfx_args_option options[N_OPTIONS] = {
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

static void print_table(const json_t *table) {
    char t[DFX_REPORT_TEXT_BYTES], p[DFX_REPORT_TEXT_BYTES];
    size_t i;
    json_t *row;
    line("%llu tensors, %s parameters, %s", (unsigned long long)number(table, "tensors"),
         count(table, "parameters", p), bytes(table, "bytes", t));
    line("looks like: %s", string(table, "kind"));
    puts("");
    json_array_foreach(json_object_get(table, "dtypes"), i, row)
        line("  %-12s %7llu tensors  %10s parameters  %12s", string(row, "dtype"),
             (unsigned long long)number(row, "tensors"), count(row, "parameters", p),
             bytes(row, "bytes", t));
    puts("");
    json_array_foreach(json_object_get(table, "groups"), i, row)
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

static void print_text(const json_t *found) {
    char b[DFX_REPORT_TEXT_BYTES];
    const json_t *components = json_object_get(found, "components");
    if (components) {
        line("%s: %s", string(found, "path"), string(found, "class"));
        puts("");
        print_components(components);
    } else {
        line("%s:", string(found, "path"));
        if (json_object_get(found, "files"))
            line("%llu file%s, %s", (unsigned long long)number(found, "files"),
                 number(found, "files") == 1 ? "" : "s", bytes(found, "file_bytes", b));
        print_metadata(json_object_get(found, "metadata"));
        print_table(json_object_get(found, "table"));
    }
    puts("");
    line("%s", string(found, "verdict"));
}

static dfx_status inspect(const char *path, bool listed, bool as_json, dfx_console *console) {
    json_t *found;
    dfx_status status = dfx_inspect_read(path, listed, &console->sink, &found);
    if (found) {
        if (!as_json)
            print_text(found);
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
    else
        status = inspect(args.word, verbose, dfx_args_given(&args, OPT_JSON), &console);
    dfx_console_fini(&console);
    return dfx_status_exit_code(status);
}
