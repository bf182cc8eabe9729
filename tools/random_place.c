#include "tools/random_place.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

dfx_status dfx_random_check_empty(const char *dir, const dfx_sink *sink) {
    DIR *open_dir = opendir(dir);
    size_t n = 0;
    if (!open_dir)
        return errno == ENOENT ? DFX_OK
                               : dfx_fail(sink, DFX_E_IO, "%s: wanted a folder to write to: %s",
                                          dir, strerror(errno));
    for (const struct dirent *entry; (entry = readdir(open_dir)) != NULL;)
        n += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(open_dir);
    return n == 0 ? DFX_OK
                  : dfx_fail(sink, DFX_E_USAGE,
                             "%s: wanted an empty folder or none, found one "
                             "with %zu entries; choose another name",
                             dir, n);
}

dfx_status dfx_random_make_folder(const char *dir, const char *name, const dfx_sink *sink) {
    char path[DFX_PATH_BYTES];
    DFX_TRY(dfx_path_join(sink, dir, name, path));
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return dfx_fail(sink, DFX_E_IO, "%s: cannot make the folder: %s", path, strerror(errno));
    return DFX_OK;
}

dfx_status dfx_random_write_text(const char *dir, const char *name, const char *text,
                                 const dfx_sink *sink) {
    char path[DFX_PATH_BYTES];
    dfx_file_writer file;
    DFX_TRY(dfx_path_join(sink, dir, name, path));
    DFX_TRY(dfx_file_write_begin(path, sink, &file));
    dfx_status status = dfx_file_write(&file, sink, text, strlen(text));
    if (status == DFX_OK)
        return dfx_file_write_commit(&file, sink);
    dfx_file_write_abort(&file);
    return status;
}
