/* See output.h. */
#include "tools/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SEED_BYTES = 21,      /* '-' and the digits of 2^64 - 1 */
    TEMPORARY_BYTES = 32, /* what the library may add to a name while it writes */
};

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

dfx_status dfx_output_init(dfx_output *output, dfx_console *console, const char *path,
                           int n_pictures) {
    memset(output, 0, sizeof(*output));
    output->extension = ".png";
    bool automatic = !path;
    output->with_seed = automatic || n_pictures > 1;
    if (automatic)
        path = "dfx";
    if (strcmp(path, "-") == 0) {
        output->to_stdout = true;
        if (n_pictures > 1)
            return dfx_console_fail(console, DFX_E_USAGE,
                                    "--output -: wanted one picture on standard output, found "
                                    "--count %d",
                                    n_pictures);
        if (isatty(STDOUT_FILENO))
            return dfx_console_fail(
                console, DFX_E_USAGE,
                "--output -: standard output is a terminal, which cannot show a "
                "PNG; send it to a file or a program");
        return DFX_OK;
    }
    const char *base = base_name(path);
    size_t stem_bytes = strlen(path);
    if (!*base)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "--output: wanted the name of a file, found \"%s\"", path);
    const char *dot = strrchr(base, '.');
    if (dot && dot != base && strspn(base, ".") != strlen(base)) {
        if (strcasecmp(dot, ".png") != 0)
            return dfx_console_fail(
                console, DFX_E_USAGE,
                "--output %s: wanted a name that ends in .png, found \"%s\"; only "
                "PNG is written",
                path, dot);
        output->extension = dot;
        stem_bytes = (size_t)(dot - path);
    } else {
        output->bare = !automatic;
    }
    if (strlen(base) > NAME_MAX - SEED_BYTES - TEMPORARY_BYTES ||
        stem_bytes > sizeof(output->stem) - SEED_BYTES - TEMPORARY_BYTES)
        return dfx_console_fail(
            console, DFX_E_USAGE,
            "--output: the path of %zu bytes is too long: wanted at most %d bytes, "
            "and %d in the name of the file",
            strlen(path), DFX_OUTPUT_PATH_BYTES - SEED_BYTES - TEMPORARY_BYTES,
            NAME_MAX - SEED_BYTES - TEMPORARY_BYTES);
    memcpy(output->stem, path, stem_bytes);
    return DFX_OK;
}

void dfx_output_name(const dfx_output *output, uint64_t seed, char name[DFX_OUTPUT_PATH_BYTES]) {
    char suffix[SEED_BYTES + 1] = "";
    if (output->with_seed)
        snprintf(suffix, sizeof(suffix), "-%" PRIu64, seed);
    if (output->to_stdout)
        snprintf(name, DFX_OUTPUT_PATH_BYTES, "standard output");
    else /* dfx_output_init left room in the stem for the rest */
        snprintf(name, DFX_OUTPUT_PATH_BYTES, "%.*s%s%s",
                 DFX_OUTPUT_PATH_BYTES - SEED_BYTES - TEMPORARY_BYTES, output->stem, suffix,
                 output->extension);
}

static dfx_status check_folder(const dfx_output *output, dfx_console *console) {
    char folder[DFX_OUTPUT_PATH_BYTES] = ".";
    struct stat info;
    const char *slash = strrchr(output->stem, '/');
    if (slash)
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - output->stem + 1), output->stem);
    if (stat(folder, &info) != 0)
        return dfx_console_fail(console, DFX_E_IO, "%s: the folder for the picture: %s", folder,
                                strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return dfx_console_fail(console, DFX_E_IO,
                                "%s: wanted a folder for the picture, found a file", folder);
    if (faccessat(AT_FDCWD, folder, W_OK | X_OK, AT_EACCESS) != 0)
        return dfx_console_fail(console, DFX_E_IO, "%s: the folder for the picture: %s", folder,
                                strerror(errno));
    return DFX_OK;
}

/* What is there under the name of a picture may be replaced, or is not there. */
static dfx_status check_target(dfx_console *console, const char *name) {
    struct stat info;
    if (stat(name, &info) != 0)
        return errno == ENOENT
                   ? DFX_OK
                   : dfx_console_fail(console, DFX_E_IO, "%s: %s", name, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return dfx_console_fail(console, DFX_E_USAGE,
                                "%s: wanted a file to write, found a folder; name a file in it",
                                name);
    if (!S_ISREG(info.st_mode))
        return dfx_console_fail(console, DFX_E_USAGE,
                                "%s: wanted a file to write, found a device or pipe", name);
    return DFX_OK;
}

dfx_status dfx_output_check(const dfx_output *output, dfx_console *console, uint64_t seed,
                            int n_pictures) {
    char name[DFX_OUTPUT_PATH_BYTES];
    if (output->to_stdout)
        return DFX_OK;
    dfx_status status = check_folder(output, console);
    if (status == DFX_OK && output->bare) /* someone who names a folder does not want folder.png */
        status = check_target(console, output->stem);
    for (int i = 0; status == DFX_OK && i < n_pictures; i++) {
        dfx_output_name(output, seed + (uint64_t)i, name);
        status = check_target(console, name);
    }
    return status;
}

static dfx_status write_stdout(dfx_console *console, const uint8_t *data, size_t n_bytes) {
    while (n_bytes > 0) {
        ssize_t n = write(STDOUT_FILENO, data, n_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return dfx_console_fail(console, DFX_E_IO, "standard output: %s", strerror(errno));
        data += n;
        n_bytes -= (size_t)n;
    }
    return DFX_OK;
}

dfx_status dfx_output_write(const dfx_output *output, dfx_console *console,
                            const dfx_image *image) {
    char name[DFX_OUTPUT_PATH_BYTES];
    uint8_t *png;
    size_t png_bytes;
    if (!output->to_stdout) {
        dfx_output_name(output, image->seed, name);
        return dfx_image_save_png(image, name, &console->sink);
    }
    dfx_status status = dfx_image_encode_png(image, &console->sink, &png, &png_bytes);
    if (status == DFX_OK) {
        status = write_stdout(console, png, png_bytes);
        dfx_buffer_free(png);
    }
    return status;
}

dfx_status dfx_output_flush(dfx_console *console) {
    if (fflush(stdout) != 0 || ferror(stdout))
        return dfx_console_fail(console, DFX_E_IO, "standard output: %s", strerror(errno));
    return DFX_OK;
}
