/* See timeline.h. Spans lie in chunks that never move, so that a writer reads what was there when it began while others add.
 * Names are kept once, by content, and spans hold their numbers. One mutex for all: it is taken some thousand times a second.
 */
#include "core/timeline.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <utf8proc.h>

#include "core/checksum.h"
#include "core/file.h"

enum {
    CHUNK_SPANS = 8192,
    N_CHUNKS = DFX_TIMELINE_SPANS_MAX / CHUNK_SPANS,
    NAMES_MAX = 1 << 14,
    NAME_SLOTS = 2 * NAMES_MAX, /* of the hash table: a power of two, never full */
    NAME_BYTES_MAX = 256,       /* longer names are cut */
};

typedef struct span {
    uint64_t begin_ns, end_ns, bytes;
    uint32_t name, track;
} span;

struct dfx_timeline {
    const dfx_sink *sink; /* borrowed */
    uint64_t origin_ns;
    pthread_mutex_t lock;   /* all below */
    span *chunks[N_CHUNKS]; /* owned */
    uint64_t n_spans, n_dropped;
    uint64_t total_ns[DFX_N_TRACKS];
    char *names[NAMES_MAX]; /* owned */
    uint32_t n_names;
    uint32_t slots[NAME_SLOTS]; /* number of the name + 1; 0: free */
};

uint64_t dfx_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

dfx_status dfx_timeline_open(const dfx_sink *sink, dfx_timeline **out) {
    dfx_timeline *t;
    DFX_TRY(dfx_new(sink, "timeline", &t));
    t->sink = sink;
    t->origin_ns = dfx_clock_ns();
    pthread_mutex_init(&t->lock, NULL);
    *out = t;
    return DFX_OK;
}

void dfx_timeline_close(dfx_timeline *t) {
    if (!t)
        return;
    if (t->n_dropped > 0)
        dfx_warn(t->sink,
                 "the timeline is full: %" PRIu64 " of %" PRIu64 " spans were dropped; make fewer "
                 "pictures in a run",
                 t->n_dropped, t->n_spans + t->n_dropped);
    for (int i = 0; i < N_CHUNKS; i++)
        dfx_free(t->chunks[i]);
    for (uint32_t i = 0; i < t->n_names; i++)
        dfx_free(t->names[i]);
    pthread_mutex_destroy(&t->lock);
    dfx_free(t);
}

/* The number of a name; false when there is no room for a new one. */
static bool intern(dfx_timeline *t, const char *name, uint32_t *out) {
    size_t bytes = strnlen(name, NAME_BYTES_MAX);
    uint32_t slot = (uint32_t)dfx_xxh3(name, bytes) % NAME_SLOTS;
    for (; t->slots[slot]; slot = (slot + 1) % NAME_SLOTS) {
        const char *known = t->names[t->slots[slot] - 1];
        if (strncmp(known, name, bytes) == 0 && !known[bytes]) {
            *out = t->slots[slot] - 1;
            return true;
        }
    }
    void *copy;
    if (t->n_names == NAMES_MAX || dfx_alloc(NULL, bytes + 1, "timeline", &copy) != DFX_OK)
        return false;
    t->names[t->n_names] = memcpy(copy, name, bytes);
    *out = t->n_names++;
    t->slots[slot] = t->n_names;
    return true;
}

static span *span_at(const dfx_timeline *t, uint64_t i) {
    return &t->chunks[i / CHUNK_SPANS][i % CHUNK_SPANS];
}

/* False: there is no room. */
static bool add(dfx_timeline *t, const span *s, const char *name) {
    uint32_t name_idx;
    if (t->n_spans == DFX_TIMELINE_SPANS_MAX || !intern(t, name, &name_idx))
        return false;
    span **chunk = &t->chunks[t->n_spans / CHUNK_SPANS];
    if (!*chunk && dfx_new_array(NULL, CHUNK_SPANS, "timeline", chunk) != DFX_OK)
        return false;
    span *to = span_at(t, t->n_spans++);
    *to = *s;
    to->name = name_idx;
    return true;
}

void dfx_timeline_span(dfx_timeline *t, dfx_track track, const char *name, uint64_t begin_ns,
                       uint64_t end_ns, uint64_t bytes) {
    if (!t)
        return;
    end_ns = end_ns < begin_ns ? begin_ns : end_ns;
    span s = {.begin_ns = begin_ns, .end_ns = end_ns, .bytes = bytes, .track = track};
    pthread_mutex_lock(&t->lock);
    t->total_ns[track] += end_ns - begin_ns;
    t->n_dropped += !add(t, &s, name);
    pthread_mutex_unlock(&t->lock);
}

static uint64_t get(dfx_timeline *t, const uint64_t *number) {
    pthread_mutex_lock(&t->lock);
    uint64_t value = *number;
    pthread_mutex_unlock(&t->lock);
    return value;
}

uint64_t dfx_timeline_total_ns(dfx_timeline *t, dfx_track track) {
    return t ? get(t, &t->total_ns[track]) : 0;
}

uint64_t dfx_timeline_n_spans(dfx_timeline *t) {
    return t ? get(t, &t->n_spans) : 0;
}

uint64_t dfx_timeline_n_dropped(dfx_timeline *t) {
    return t ? get(t, &t->n_dropped) : 0;
}

/* Text on its way to the file. The first fault sticks. */
enum { OUT_BYTES = 1 << 16, PIECE_BYTES = 512 };

typedef struct out {
    dfx_file_writer file;
    const dfx_sink *sink;
    dfx_status status;
    size_t n;
    char text[OUT_BYTES];
} out;

static void flush(out *o) {
    if (o->status == DFX_OK)
        o->status = dfx_file_write(&o->file, o->sink, o->text, o->n);
    o->n = 0;
}

/* At most PIECE_BYTES. */
DFX_PRINTF(2, 3) static void put(out *o, const char *fmt, ...) {
    va_list list;
    if (o->n + PIECE_BYTES > OUT_BYTES)
        flush(o);
    va_start(list, fmt);
    o->n += (size_t)vsnprintf(o->text + o->n, PIECE_BYTES, fmt, list);
    va_end(list);
}

/* How many bytes stand for themselves in JSON. */
static int plain_bytes(const char *text) {
    int n = 0;
    while (text[n] >= 0x20 && text[n] < 0x7f && text[n] != '"' && text[n] != '\\')
        n++;
    return n;
}

/* A JSON string; bytes that are not UTF-8 are shown as '?'. */
static void put_string(out *o, const char *text) {
    put(o, "\"");
    while (*text) {
        utf8proc_int32_t code;
        int n = plain_bytes(text);
        if (n == 0 && (*text & 0x80))
            n = (int)utf8proc_iterate((const unsigned char *)text, -1, &code);
        if (n > 0)
            put(o, "%.*s", n, text);
        else if (n < 0)
            put(o, "?");
        else
            put(o, "\\u%04x", *text);
        text += n > 0 ? n : 1;
    }
    put(o, "\"");
}

/* Microseconds with three places, from the origin; a span that is older, which only a caller's mistake makes, is at 0. */
static void put_time(out *o, const char *key, uint64_t ns) {
    put(o, ",\"%s\":%" PRIu64 ".%03u", key, ns / 1000, (unsigned)(ns % 1000));
}

static void put_span(out *o, const dfx_timeline *t, const span *s) {
    put(o, ",\n{\"ph\":\"X\",\"pid\":1,\"tid\":%u", s->track + 1);
    put_time(o, "ts", s->begin_ns > t->origin_ns ? s->begin_ns - t->origin_ns : 0);
    put_time(o, "dur", s->end_ns - s->begin_ns);
    put(o, ",\"name\":");
    put_string(o, t->names[s->name]);
    if (s->bytes)
        put(o, ",\"args\":{\"bytes\":%" PRIu64 "}", s->bytes);
    put(o, "}");
}

/* Names of the tracks, and that they stand in our order. */
static void put_head(out *o, uint64_t n_dropped) {
#define TEXT(name, text) text,
    static const char *const tracks[] = {DFX_TRACK_LIST(TEXT)};
#undef TEXT
    put(o, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"dropped\":%" PRIu64 "},\n", n_dropped);
    put(o, "\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",");
    put(o, "\"args\":{\"name\":\"dfx-edge\"}}");
    for (unsigned i = 0; i < DFX_N_TRACKS; i++) {
        put(o, ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"name\":\"thread_name\",", i + 1);
        put(o, "\"args\":{\"name\":\"%s\"}}", tracks[i]);
        put(o, ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":%u,\"name\":\"thread_sort_index\",", i + 1);
        put(o, "\"args\":{\"sort_index\":%u}}", i + 1);
    }
}

/* The earlier first; of two that begin together the one that holds the other. */
static int compare(const void *a, const void *b) {
    const span *x = *(span *const *)a, *y = *(span *const *)b;
    if (x->begin_ns != y->begin_ns)
        return x->begin_ns < y->begin_ns ? -1 : 1;
    return x->end_ns == y->end_ns ? 0 : x->end_ns > y->end_ns ? -1 : 1;
}

/* Spans [0, n) do not change any more, nor do their names. */
static dfx_status write_spans(dfx_timeline *t, uint64_t n, uint64_t n_dropped, out *o) {
    span **order;
    DFX_TRY(dfx_new_array(o->sink, n, "timeline", &order));
    for (uint64_t i = 0; i < n; i++)
        order[i] = span_at(t, i);
    qsort(order, n, sizeof(*order), compare);
    put_head(o, n_dropped);
    for (uint64_t i = 0; i < n; i++)
        put_span(o, t, order[i]);
    put(o, "\n]}\n");
    flush(o);
    dfx_free(order);
    return o->status;
}

dfx_status dfx_timeline_write(dfx_timeline *t, const char *path, const dfx_sink *sink) {
    out *o;
    DFX_TRY(dfx_new(sink, "timeline", &o));
    o->sink = sink;
    dfx_status status = dfx_file_write_begin(path, sink, &o->file);
    if (status == DFX_OK) {
        pthread_mutex_lock(&t->lock);
        uint64_t n = t->n_spans, n_dropped = t->n_dropped;
        pthread_mutex_unlock(&t->lock);
        status = write_spans(t, n, n_dropped, o);
        if (status == DFX_OK)
            status = dfx_file_write_commit(&o->file, sink);
        else
            dfx_file_write_abort(&o->file);
    }
    dfx_free(o);
    return status;
}
