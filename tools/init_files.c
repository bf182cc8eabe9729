#include "tools/init_files.h"

static dfx_status read_mask(dfx_console *console, const char *path, dfx_init_files *files) {
    int width, height;
    dfx_status status = dfx_picture_read_grey(path, &console->sink, &files->mask, &width, &height);
    if (status == DFX_OK && (width != files->width || height != files->height))
        status = dfx_console_fail(console, DFX_E_USAGE,
                                  "--mask %s: wanted %dx%d pixels, as the picture of --init, found "
                                  "%dx%d",
                                  path, files->width, files->height, width, height);
    return status;
}

dfx_status dfx_init_files_read(dfx_console *console, const char *init_path, const char *mask_path,
                               dfx_init_files *out) {
    dfx_init_files files = {.has_init = init_path != NULL, .has_mask = mask_path != NULL};
    dfx_status status = DFX_OK;
    if (mask_path && !init_path)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "--mask: wanted --init with it, the picture that it belongs to");
    if (init_path)
        status = dfx_picture_read_rgb(init_path, &console->sink, &files.rgb, &files.width,
                                      &files.height);
    if (status == DFX_OK && mask_path)
        status = read_mask(console, mask_path, &files);
    if (status == DFX_OK)
        *out = files;
    else
        dfx_init_files_free(&files);
    return status;
}

void dfx_init_files_drop(dfx_init_files *files) {
    dfx_buffer_free(files->rgb);
    dfx_buffer_free(files->mask);
    files->rgb = files->mask = NULL;
}

void dfx_init_files_free(dfx_init_files *files) {
    dfx_init_files_drop(files);
    *files = (dfx_init_files){0};
}

void dfx_init_files_request(const dfx_init_files *files, const dfx_model *model, int width,
                            int height, dfx_request *request) {
    static const uint8_t dropped[1] = {0}; /* stands for pixels that are not looked at */
    if (!files->has_init)
        return;
    request->init_rgb = files->rgb ? files->rgb : dropped;
    request->mask = files->mask ? files->mask : files->has_mask ? dropped : NULL;
    request->init_width = files->width;
    request->init_height = files->height;
    request->width = width;
    request->height = height;
    dfx_request_size_of_init(model, request);
}
