/* See find_model.h. The Makefile names the data folder of the installation in DFX_DATADIR. */
#include "tools/find_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_model(const char *path) {
    char index[DFX_MODEL_PATH_BYTES + 32];
    struct stat info;
    snprintf(index, sizeof(index), "%s/model_index.json", path);
    return stat(index, &info) == 0 && S_ISREG(info.st_mode);
}

/* The folder that the program lies in, or false. */
static bool program_folder(char path[DFX_MODEL_PATH_BYTES]) {
    ssize_t len = readlink("/proc/self/exe", path, DFX_MODEL_PATH_BYTES - 1);
    if (len <= 0)
        return false;
    path[len] = 0;
    char *slash = strrchr(path, '/');
    if (!slash)
        return false;
    *slash = 0;
    return true;
}

/* A candidate: true when it is the model, else one more name in the list of places. */
static bool look_at(const char *folder, const char *name, char path[DFX_MODEL_PATH_BYTES],
                    char *places, size_t places_bytes) {
    size_t used = strlen(places);
    int len = snprintf(path, DFX_MODEL_PATH_BYTES, "%s%s", folder, name);
    if (len < 0 || len >= DFX_MODEL_PATH_BYTES)
        return false;
    snprintf(places + used, places_bytes - used, ", %s", path);
    return is_model(path);
}

dfx_status dfx_bundled_find(dfx_console *console, char path[DFX_MODEL_PATH_BYTES]) {
    char folder[DFX_MODEL_PATH_BYTES], places[2048] = "";
    const char *chosen = getenv("DFX_MODEL");
    if (chosen && *chosen) {
        int len = snprintf(path, DFX_MODEL_PATH_BYTES, "%s", chosen);
        if (len < 0 || len >= DFX_MODEL_PATH_BYTES)
            return dfx_console_fail(console, DFX_E_USAGE,
                                    "DFX_MODEL: wanted a path shorter than %d bytes, found %d",
                                    DFX_MODEL_PATH_BYTES, len);
        return DFX_OK;
    }
    if (program_folder(folder) && look_at(folder, "/models/scenes", path, places, sizeof(places)))
        return DFX_OK;
#ifdef DFX_DATADIR
    if (look_at(DFX_DATADIR, "/scenes", path, places, sizeof(places)))
        return DFX_OK;
#endif
    if (look_at("", "models/scenes", path, places, sizeof(places)))
        return DFX_OK;
    return dfx_console_fail(
        console, DFX_E_IO,
        "no --model and no bundled model: looked at $DFX_MODEL (not set)%s; give "
        "the folder with --model",
        places);
}
