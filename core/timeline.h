/* Timeline: who did what from when to when, kept in memory and written as a file that chrome://tracing and Perfetto show.
 *
 *     DFX_TRY(dfx_timeline_open(sink, &t));
 *     uint64_t begin_ns = dfx_clock_ns();
 *     ... read a page ...
 *     dfx_timeline_span(t, DFX_TRACK_DISK, "transformer_blocks.0", begin_ns, dfx_clock_ns(), bytes);
 *     DFX_TRY(dfx_timeline_write(t, "run.json", sink));
 *     dfx_timeline_close(t);
 *
 * Spans of one track lie one behind the other or inside one another; viewers show nothing sensible for others. Memory is
 * bounded: what does not fit any more is counted, and that is told at the end.
 * Source of the format: "Trace Event Format", the JSON object form, events of phases X and M. */
#ifndef DFX_CORE_TIMELINE_H
#define DFX_CORE_TIMELINE_H

#include "core/mem.h"

typedef struct dfx_timeline dfx_timeline;

/* In the order in which they are shown. */
#define DFX_TRACK_LIST(X)                                                               \
    X(DFX_TRACK_HOST, "host")       /* stages of a picture, and what is between them */ \
    X(DFX_TRACK_COMPUTE, "compute") /* ops of a region */                               \
    X(DFX_TRACK_STALL, "stall")     /* waiting for a page */                            \
    X(DFX_TRACK_COPY, "copy")       /* of a page to the device */                       \
    X(DFX_TRACK_DISK, "disk")       /* reading and expanding of a page */

#define DFX_TRACK_ENUM(name, text) name,
typedef enum dfx_track { DFX_TRACK_LIST(DFX_TRACK_ENUM) DFX_N_TRACKS } dfx_track;
#undef DFX_TRACK_ENUM

enum { DFX_TIMELINE_SPANS_MAX = 1 << 19 }; /* 16 MiB; some 90 pictures of a FLUX that streams */

/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t dfx_clock_ns(void);

/* `sink` is borrowed until close. Errors: DFX_E_NOFIT. */
dfx_status dfx_timeline_open(const dfx_sink *sink, dfx_timeline **out);
void dfx_timeline_close(dfx_timeline *t); /* NULL is fine; warns when spans were dropped */

/* Any thread. `name` is copied; bytes 0: none. Never fails: what does not fit is dropped and counted. NULL is fine and does
 * nothing. */
void dfx_timeline_span(dfx_timeline *t, dfx_track track, const char *name, uint64_t begin_ns,
                       uint64_t end_ns, uint64_t bytes);

/* So far; of spans inside others both count, and so do those that were dropped. 0 for NULL. */
uint64_t dfx_timeline_total_ns(dfx_timeline *t, dfx_track track);
uint64_t dfx_timeline_n_spans(dfx_timeline *t);
uint64_t dfx_timeline_n_dropped(dfx_timeline *t);

/* All spans so far, in the order of their begins, from the first call of open on: valid JSON whatever the names are; never
 * half a file. Others may go on recording. Errors: DFX_E_IO, DFX_E_NOFIT. */
dfx_status dfx_timeline_write(dfx_timeline *t, const char *path, const dfx_sink *sink);

#endif
