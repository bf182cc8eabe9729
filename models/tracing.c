/* The timeline of a model (core/timeline.h): a file that is written anew after each picture, so that a crash loses one picture
 * at the most, and when the model is closed. A file that cannot be written is told before anything is computed; when it fails
 * later, that costs no picture. */
#include <string.h>

#include "core/file.h"
#include "models/model.h"

/* The name will do, and the folder can be written; what is there stays. */
static dfx_status check_path(const char *path, const dfx_sink *sink) {
    dfx_file_writer file;
    DFX_TRY(dfx_file_write_begin(path, sink, &file));
    dfx_file_write_abort(&file);
    return DFX_OK;
}

dfx_status dfx_model_trace_open(dfx_model *m, const char *path) {
    if (!path)
        return DFX_OK;
    DFX_TRY(check_path(path, &m->sink));
    if (!(m->trace_path = dfx_strdup(path, "model")))
        return dfx_fail(&m->sink, DFX_E_NOFIT, "out of memory opening %s", path);
    return dfx_timeline_open(&m->sink, &m->timeline);
}

/* The picture is there: what is said of the file is a warning. */
static void say_as_warning(void *user, dfx_level level, const char *text) {
    const dfx_model *m = user;
    dfx_warn(&m->sink, "%s", text);
}

/* Reads alone, which began with the model, are not worth a file. */
void dfx_model_trace_write(dfx_model *m) {
    dfx_sink sink = {.say = say_as_warning, .user = m};
    uint64_t n_spans = dfx_timeline_n_spans(m->timeline);
    if (n_spans == m->n_traced || dfx_timeline_total_ns(m->timeline, DFX_TRACK_HOST) == 0)
        return;
    m->n_traced = n_spans;
    dfx_timeline_write(m->timeline, m->trace_path, &sink);
}

void dfx_model_trace_close(dfx_model *m) {
    dfx_model_trace_write(m);
    dfx_timeline_close(m->timeline);
    dfx_free(m->trace_path);
}

void dfx_model_span(dfx_model *m, const char *name, uint64_t begin_ns) {
    dfx_timeline_span(m->timeline, DFX_TRACK_HOST, name, begin_ns, dfx_clock_ns(), 0);
}
