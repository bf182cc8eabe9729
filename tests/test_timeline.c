/* Timeline: what is recorded stands in the file, which another reader of JSON takes; order, names of every kind, a full
 * recorder, several threads at once, files that cannot be written. */
#include "core/timeline.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/tmpdir.h"

enum { N_HEAD_EVENTS = 1 + 2 * DFX_N_TRACKS };

typedef struct bench {
    tmpdir *dir;
    dfx_timeline *t;
    char path[TMPDIR_PATH];
    size_t held_bytes;
} bench;

static int setup(void **state) {
    static bench b;
    void *dir;
    if (tmpdir_setup(&dir) != 0)
        return -1;
    b = (bench){.dir = dir, .held_bytes = dfx_mem_held_bytes()};
    tmpdir_join(b.dir, "run.json", b.path);
    *state = &b;
    return dfx_timeline_open(&b.dir->log.sink, &b.t) == DFX_OK ? 0 : -1;
}

static int teardown(void **state) {
    bench *b = *state;
    dfx_timeline_close(b->t);
    bool leaks = dfx_mem_held_bytes() != b->held_bytes;
    void *dir = b->dir;
    return tmpdir_teardown(&dir) != 0 || leaks ? -1 : 0;
}

/* The file as jansson reads it; events behind those that name the tracks. */
static json_t *written(bench *b) {
    assert_int_equal(dfx_timeline_write(b->t, b->path, &b->dir->log.sink), DFX_OK);
    json_error_t error;
    json_t *root = json_load_file(b->path, JSON_REJECT_DUPLICATES, &error);
    if (!root)
        fail_msg("line %d: %s", error.line, error.text);
    return root;
}

static json_t *span_at(json_t *root, size_t i) {
    json_t *event = json_array_get(json_object_get(root, "traceEvents"), N_HEAD_EVENTS + i);
    assert_non_null(event);
    assert_string_equal(json_string_value(json_object_get(event, "ph")), "X");
    return event;
}

static size_t n_spans(json_t *root) {
    return json_array_size(json_object_get(root, "traceEvents")) - N_HEAD_EVENTS;
}

static const char *text_of(json_t *event, const char *key) {
    return json_string_value(json_object_get(event, key));
}

/* Nanoseconds, which the file has as microseconds. */
static int64_t ns_of(json_t *event, const char *key) {
    return (int64_t)(json_number_value(json_object_get(event, key)) * 1000 + 0.5);
}

static void timeline_without_spans_names_its_tracks_in_order(void **state) {
    static const char *const names[] = {"host", "compute", "stall", "copy", "disk"};
    json_t *root = written(*state), *events = json_object_get(root, "traceEvents");
    assert_int_equal(n_spans(root), 0);
    assert_string_equal(text_of(json_array_get(events, 0), "name"), "process_name");
    for (size_t i = 0; i < DFX_COUNT(names); i++) {
        json_t *name = json_array_get(events, 1 + 2 * i),
               *order = json_array_get(events, 2 + 2 * i);
        assert_string_equal(text_of(name, "name"), "thread_name");
        assert_string_equal(text_of(json_object_get(name, "args"), "name"), names[i]);
        assert_string_equal(text_of(order, "name"), "thread_sort_index");
        assert_int_equal(json_integer_value(json_object_get(order, "tid")),
                         json_integer_value(json_object_get(name, "tid")));
        assert_int_equal(
            json_integer_value(json_object_get(json_object_get(order, "args"), "sort_index")),
            i + 1);
    }
    json_decref(root);
}

static void timeline_writes_what_was_recorded(void **state) {
    bench *b = *state;
    uint64_t base = dfx_clock_ns();
    dfx_timeline_span(b->t, DFX_TRACK_COPY, "page", base + 1234567, base + 2234567, 4096);
    dfx_timeline_span(b->t, DFX_TRACK_HOST, "late", base + 9000001, base + 9000002, 0);
    json_t *root = written(b), *copy = span_at(root, 0), *late = span_at(root, 1);
    assert_int_equal(n_spans(root), 2);
    assert_string_equal(text_of(copy, "name"), "page");
    assert_int_equal(json_integer_value(json_object_get(copy, "tid")), DFX_TRACK_COPY + 1);
    assert_int_equal(ns_of(copy, "dur"), 1000000);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(copy, "args"), "bytes")),
                     4096);
    assert_int_equal(ns_of(late, "dur"), 1);
    assert_int_equal(ns_of(late, "ts") - ns_of(copy, "ts"), 9000001 - 1234567);
    assert_null(json_object_get(late, "args"));
    json_decref(root);
}

/* Whoever ends first is recorded first, and whoever begins first is written first; the outer before the inner. */
static void timeline_orders_spans_by_begin(void **state) {
    bench *b = *state;
    uint64_t base = dfx_clock_ns();
    static const char *const wanted[] = {"outer", "inner", "second", "third"};
    dfx_timeline_span(b->t, DFX_TRACK_HOST, "inner", base, base + 10, 0);
    dfx_timeline_span(b->t, DFX_TRACK_DISK, "third", base + 40, base + 50, 0);
    dfx_timeline_span(b->t, DFX_TRACK_HOST, "second", base + 20, base + 30, 0);
    dfx_timeline_span(b->t, DFX_TRACK_HOST, "outer", base, base + 90, 0);
    json_t *root = written(b);
    assert_int_equal(n_spans(root), 4);
    for (size_t i = 0; i < DFX_COUNT(wanted); i++)
        assert_string_equal(text_of(span_at(root, i), "name"), wanted[i]);
    json_decref(root);
}

static void timeline_written_again_has_all_spans(void **state) {
    bench *b = *state;
    for (size_t n = 1; n <= 3; n++) {
        dfx_timeline_span(b->t, DFX_TRACK_HOST, "one more", dfx_clock_ns(), dfx_clock_ns(), 0);
        json_t *root = written(b);
        assert_int_equal(n_spans(root), n);
        json_decref(root);
    }
    assert_int_equal(tmpdir_count_entries(b->dir, "."), 1);
}

/* As C has them, and as JSON shall give them back. */
static void timeline_escapes_names(void **state) {
    bench *b = *state;
    static const char *const names[][2] = {
        {"", ""},
        {"a \"quoted\" \\ name", "a \"quoted\" \\ name"},
        {"tab\tline\nbell\a\x1f\x7f", "tab\tline\nbell\a\x1f\x7f"},
        {"\"", "\""},
        {"\\", "\\"},
        {"Gr\xc3\xbc\xc3\x9f"
         "e \xf0\x9f\x8e\xa8",
         "Gr\xc3\xbc\xc3\x9f"
         "e \xf0\x9f\x8e\xa8"},
        {"bad \xff\xc3", "bad ??"},
        {"\xed\xa0\x80 surrogate", "??? surrogate"},
        {"</script>%s%n", "</script>%s%n"}};
    uint64_t base = dfx_clock_ns();
    for (size_t i = 0; i < DFX_COUNT(names); i++)
        dfx_timeline_span(b->t, DFX_TRACK_HOST, names[i][0], base + i, base + i, 0);
    json_t *root = written(b);
    assert_int_equal(n_spans(root), DFX_COUNT(names));
    for (size_t i = 0; i < DFX_COUNT(names); i++)
        assert_string_equal(text_of(span_at(root, i), "name"), names[i][1]);
    json_decref(root);
}

static void timeline_cuts_long_names_and_copies_short_ones(void **state) {
    bench *b = *state;
    char text[5000], short_name[] = "first";
    memset(text, 'x', sizeof(text));
    text[4999] = '\0';
    uint64_t base = dfx_clock_ns();
    dfx_timeline_span(b->t, DFX_TRACK_HOST, text, base, base, 0);
    dfx_timeline_span(b->t, DFX_TRACK_HOST, short_name, base + 1, base + 1, 0);
    strcpy(short_name, "other");
    dfx_timeline_span(b->t, DFX_TRACK_HOST, short_name, base + 2, base + 2, 0);
    json_t *root = written(b);
    assert_int_equal(strlen(text_of(span_at(root, 0), "name")), 256);
    assert_string_equal(text_of(span_at(root, 1), "name"), "first");
    assert_string_equal(text_of(span_at(root, 2), "name"), "other");
    json_decref(root);
}

static void timeline_totals_are_sums_by_track(void **state) {
    bench *b = *state;
    dfx_timeline_span(b->t, DFX_TRACK_DISK, "a", 100, 130, 0);
    dfx_timeline_span(b->t, DFX_TRACK_COPY, "a", 100, 107, 0);
    dfx_timeline_span(b->t, DFX_TRACK_DISK, "b", 130, 142, 0);
    dfx_timeline_span(b->t, DFX_TRACK_DISK, "backwards", 50, 40, 0); /* counts as nothing */
    assert_int_equal(dfx_timeline_total_ns(b->t, DFX_TRACK_DISK), 42);
    assert_int_equal(dfx_timeline_total_ns(b->t, DFX_TRACK_COPY), 7);
    assert_int_equal(dfx_timeline_total_ns(b->t, DFX_TRACK_STALL), 0);
    json_t *root = written(b); /* spans of before the recorder was opened */
    assert_int_equal(ns_of(span_at(root, 0), "ts"), 0);
    json_decref(root);
}

static void timeline_null_is_fine(void **state) {
    dfx_timeline_span(NULL, DFX_TRACK_HOST, "a", 1, 2, 3);
    assert_int_equal(dfx_timeline_total_ns(NULL, DFX_TRACK_HOST), 0);
    assert_int_equal(dfx_timeline_n_spans(NULL), 0);
    assert_int_equal(dfx_timeline_n_dropped(NULL), 0);
    dfx_timeline_close(NULL);
}

static void timeline_full_drops_and_says_how_many(void **state) {
    bench *b = *state;
    for (uint64_t i = 0; i < DFX_TIMELINE_SPANS_MAX + 5; i++)
        dfx_timeline_span(b->t, DFX_TRACK_DISK, "page", i, i + 2, 0);
    assert_int_equal(dfx_timeline_n_spans(b->t), 524288);
    assert_int_equal(dfx_timeline_n_dropped(b->t), 5);
    assert_int_equal(dfx_timeline_total_ns(b->t, DFX_TRACK_DISK), 2 * (524288 + 5));
    assert_int_equal(dfx_timeline_write(b->t, b->path, &b->dir->log.sink), DFX_OK);
    /* An event a line: half a million objects take jansson long under sanitizers. */
    size_t n_bytes, n_lines = 0;
    char *text = tmpdir_slurp(b->dir, "run.json", &n_bytes);
    for (size_t i = 0; i < n_bytes; i++)
        n_lines += text[i] == '\n';
    assert_int_equal(n_lines, 2 + N_HEAD_EVENTS + 524288 + 1);
    text[200] = '\0';
    assert_non_null(strstr(text, "\"otherData\":{\"dropped\":5}"));
    free(text);
    dfx_timeline_close(b->t);
    b->t = NULL;
    said_words(&b->dir->log, DFX_WARN, "5 of 524293 spans were dropped");
}

/* A name that is new has no place any more; those that are known have. */
static void timeline_with_too_many_names_drops_the_new_ones(void **state) {
    bench *b = *state;
    char name[32];
    for (int i = 0; i < (1 << 14) + 3; i++) {
        snprintf(name, sizeof(name), "name %d", i);
        dfx_timeline_span(b->t, DFX_TRACK_HOST, name, 1, 2, 0);
    }
    assert_int_equal(dfx_timeline_n_dropped(b->t), 3);
    dfx_timeline_span(b->t, DFX_TRACK_HOST, "name 77", 1, 2, 0);
    assert_int_equal(dfx_timeline_n_dropped(b->t), 3);
    assert_int_equal(dfx_timeline_n_spans(b->t), (1 << 14) + 1);
}

enum { N_THREADS = 4, N_EACH = 5000 };

static void *record(void *raw) {
    bench *b = raw;
    for (int i = 0; i < N_EACH; i++)
        dfx_timeline_span(b->t, (dfx_track)(i % DFX_N_TRACKS), i % 2 ? "odd" : "even",
                          dfx_clock_ns(), dfx_clock_ns(), (uint64_t)i);
    return NULL;
}

/* And is written while others record. */
static void timeline_takes_spans_of_several_threads(void **state) {
    bench *b = *state;
    pthread_t threads[N_THREADS];
    for (int i = 0; i < N_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, record, b), 0);
    for (size_t last = 0, i = 0; i < 3; i++) {
        json_t *root = written(b);
        assert_true(n_spans(root) >= last);
        last = n_spans(root);
        json_decref(root);
    }
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    json_t *root = written(b);
    size_t n_odd = 0;
    assert_int_equal(n_spans(root), N_THREADS * N_EACH);
    for (size_t i = 0; i < n_spans(root); i++) {
        n_odd += strcmp(text_of(span_at(root, i), "name"), "odd") == 0;
        if (i > 0)
            assert_true(ns_of(span_at(root, i), "ts") >= ns_of(span_at(root, i - 1), "ts"));
    }
    assert_int_equal(n_odd, N_THREADS * N_EACH / 2);
    json_decref(root);
}

static void timeline_to_a_path_that_cannot_be_written_fails(void **state) {
    bench *b = *state;
    char path[TMPDIR_PATH];
    static const char *const names[] = {"none/run.json", "folder", ""};
    tmpdir_mkdir(b->dir, "folder");
    for (size_t i = 0; i < DFX_COUNT(names); i++) {
        recorder_clear(&b->dir->log);
        assert_int_equal(
            dfx_timeline_write(b->t, tmpdir_join(b->dir, names[i], path), &b->dir->log.sink),
            DFX_E_IO);
        said_error(&b->dir->log, "cannot create");
    }
}

/* Spans are dropped, or the file is not written: nothing else, and no leak (the teardown looks). */
static void timeline_without_memory_drops_or_fails(void **state) {
    bench *b = *state;
    dfx_status status = DFX_E_NOFIT;
    uint64_t n = 0, n_failed = 0;
    for (uint64_t dropped = 1; dropped > 0 || status != DFX_OK;) {
        char name[32];
        uint64_t before = dfx_timeline_n_dropped(b->t);
        snprintf(name, sizeof(name), "name %d", (int)++n);
        dfx_mem_fail_nth(n);
        dfx_timeline_span(b->t, DFX_TRACK_HOST, name, 1, 2, 0);
        status = dfx_timeline_write(b->t, b->path, &b->dir->log.sink);
        dfx_mem_fail_nth(0);
        assert_true(status == DFX_OK || status == DFX_E_NOFIT);
        dropped = dfx_timeline_n_dropped(b->t) - before;
        n_failed += status != DFX_OK;
    }
    assert_true(n_failed > 1);
    assert_true(dfx_timeline_n_dropped(b->t) > 0);
    assert_int_equal(dfx_timeline_n_dropped(b->t) + dfx_timeline_n_spans(b->t), n);
    dfx_timeline *none = NULL;
    dfx_mem_fail_nth(1);
    assert_int_equal(dfx_timeline_open(&b->dir->log.sink, &none), DFX_E_NOFIT);
    dfx_mem_fail_nth(0);
    assert_null(none);
}

#define WITH_BENCH(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        WITH_BENCH(timeline_without_spans_names_its_tracks_in_order),
        WITH_BENCH(timeline_writes_what_was_recorded),
        WITH_BENCH(timeline_orders_spans_by_begin),
        WITH_BENCH(timeline_written_again_has_all_spans),
        WITH_BENCH(timeline_escapes_names),
        WITH_BENCH(timeline_cuts_long_names_and_copies_short_ones),
        WITH_BENCH(timeline_totals_are_sums_by_track),
        cmocka_unit_test(timeline_null_is_fine),
        WITH_BENCH(timeline_full_drops_and_says_how_many),
        WITH_BENCH(timeline_with_too_many_names_drops_the_new_ones),
        WITH_BENCH(timeline_takes_spans_of_several_threads),
        WITH_BENCH(timeline_to_a_path_that_cannot_be_written_fails),
        WITH_BENCH(timeline_without_memory_drops_or_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
