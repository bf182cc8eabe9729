/* Executor: what a program computes, and how it asks for its pages: in the order of the regions, one at a time, each given
 * back before the next; errors of pages and backend come through. */
#include "offload/executor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "offload/builder.h"
#include "offload/plan_trace.h"
#include "tests/stfile.h"

/* Two square layers of 8 x 8 with biases in two pages, f32: 256 + 32 bytes each. */
enum { D = 8, ROWS = 5, LAYER_BYTES = (D * D + D) * 4, DATA_BYTES = 2 * LAYER_BYTES };
static const char HEADER[] =
    "{\"l.0.w.weight\":{\"dtype\":\"F32\",\"shape\":[8,8],\"data_offsets\":[0,256]},"
    "\"l.0.w.bias\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[256,288]},"
    "\"l.1.w.weight\":{\"dtype\":\"F32\",\"shape\":[8,8],\"data_offsets\":[288,544]},"
    "\"l.1.w.bias\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[544,576]}}";

enum { EVENTS_MAX = 32, NEVER = -1 };

typedef struct event {
    char what; /* 'p' pin, 'u' unpin, or the first letter of an op's name: 'l' linear, 'a' act */
    uint32_t region, page_idx;
} event;

typedef struct bench {
    tmpdir *dir;
    dfx_tensors *tensors;
    dfx_program program;
    dfx_backend *backend;
    dfx_executor executor;
    dfx_page_source pages;
    event events[EVENTS_MAX];
    int n_events;
    int fail_region; /* pin of it fails with fail_status */
    dfx_status fail_status;
    void *page; /* the one that is pinned */
    size_t held_bytes;
    _Alignas(64) float x[ROWS * D];
    _Alignas(64) float y[ROWS * D];
} bench;

static float weight_value(int i) {
    return (float)(i * 7 % 19 - 9) / 16;
}

static void note(bench *t, event e) {
    assert_in_range(t->n_events, 0, EVENTS_MAX - 1);
    t->events[t->n_events++] = e;
}

/* The page is in memory between pin and unpin and no longer: what reads it earlier or later shows under ASan. */
static dfx_status pin(void *self, uint32_t region, uint32_t page_idx, void **base) {
    bench *t = self;
    const dfx_page *page = &t->program.pages[page_idx];
    note(t, (event){'p', region, page_idx});
    assert_null(t->page);
    if ((int)region == t->fail_region)
        return t->fail_status;
    t->page = aligned_alloc(64, page->bytes);
    assert_non_null(t->page);
    for (uint32_t i = page->first_weight; i < page->first_weight + page->n_weights; i++) {
        const dfx_weight *w = &t->program.weights[i];
        assert_int_equal(
            dfx_tensors_read(t->tensors, w->tensor, &t->dir->log.sink, (char *)t->page + w->off),
            DFX_OK);
    }
    *base = t->page;
    return DFX_OK;
}

static void unpin(void *self, uint32_t region) {
    bench *t = self;
    assert_non_null(t->page);
    note(t, (event){'u', region, DFX_NO_PAGE});
    free(t->page);
    t->page = NULL;
}

static void on_op(void *user, const dfx_op *op, const dfx_op_call *call) {
    assert_non_null(call->m[0].ptr);
    note(user, (event){dfx_op_info_of(op->kind)->name[0], 0, op->page_idx});
}

/* g = silu(x); h = l.0(g); y = l.1(silu(h)) + h; when `again`, y = silu(l.0(y)): page 0 once more, with page 1 between. The
 * first op and some others read no weight. */
static void build(bench *t, bool again) {
    dfx_builder b;
    dfx_build_env env = {
        .tensors = t->tensors, .act_dtype = DFX_DTYPE_F32, .sink = &t->dir->log.sink};
    dfx_builder_init(&b, "program", "part", &env);
    dfx_ref x = dfx_extern_buf(&b, "x", ROWS, D, DFX_DTYPE_F32);
    dfx_ref y = dfx_extern_buf(&b, "y", ROWS, D, DFX_DTYPE_F32);
    dfx_ref g = dfx_activate(&b, x, DFX_ACT_SILU, "first");
    dfx_builder_page(&b, "l.%d", 0);
    dfx_ref w = dfx_weight_ref(&b, "w.weight", D, D), bias = dfx_weight_ref(&b, "w.bias", 1, D);
    dfx_ref h = dfx_temp(&b, ROWS, D);
    dfx_emit(&b, DFX_OP_LINEAR, "w", (dfx_ref[DFX_OP_SLOTS]){h, g, w, bias}, NULL);
    dfx_ref s = dfx_activate(&b, h, DFX_ACT_SILU, "silu");
    dfx_builder_page(&b, "l.%d", 1);
    dfx_linear(&b, &(dfx_linear_spec){.x = s, .name = "w", .n = D, .residual = h, .into = y});
    if (again) {
        dfx_ref z = dfx_temp(&b, ROWS, D);
        dfx_emit(&b, DFX_OP_LINEAR, "again", (dfx_ref[DFX_OP_SLOTS]){z, y, w, bias}, NULL);
        dfx_emit(&b, DFX_OP_ACT, "last", (dfx_ref[DFX_OP_SLOTS]){y, z},
                 &(dfx_op_params){.act = DFX_ACT_SILU});
    }
    assert_int_equal(dfx_builder_finish(&b, &t->program), DFX_OK);
}

static bench *begin(tmpdir *dir, bool again) {
    float data[DATA_BYTES / 4];
    for (int i = 0; i < DATA_BYTES / 4; i++)
        data[i] = weight_value(i);
    bench *t = aligned_alloc(64, (sizeof(*t) + 63) / 64 * 64);
    assert_non_null(t);
    memset(t, 0, sizeof(*t));
    t->dir = dir;
    t->fail_region = NEVER;
    t->pages = (dfx_page_source){.pin = pin, .unpin = unpin, .self = t};
    t->held_bytes = dfx_mem_held_bytes();
    t->tensors = stfile_accepts_header(dir, HEADER, data, DATA_BYTES);
    recorder_clear(&dir->log);
    for (int i = 0; i < ROWS * D; i++)
        t->x[i] = weight_value(i * 3 + 1);
    build(t, again);
    dfx_cpu_options options = {.n_threads = 1};
    assert_int_equal(dfx_cpu_backend_open(&options, &dir->log.sink, &t->backend), DFX_OK);
    assert_int_equal(dfx_executor_announce(t->backend, &t->program), DFX_OK);
    assert_int_equal(t->backend->vt->workspace_alloc(t->backend), DFX_OK);
    t->executor = (dfx_executor){.backend = t->backend,
                                 .sink = &dir->log.sink,
                                 .activations = aligned_alloc(DFX_ACT_ALIGN, t->program.act_bytes),
                                 .activation_bytes = t->program.act_bytes,
                                 .probe = on_op,
                                 .probe_user = t};
    assert_non_null(t->executor.activations);
    return t;
}

static void end(bench *t) {
    assert_null(t->page);
    free(t->executor.activations);
    t->backend->vt->close(t->backend);
    dfx_program_fini(&t->program);
    dfx_tensors_close(t->tensors);
    assert_int_equal(dfx_mem_held_bytes(), t->held_bytes);
    free(t);
}

static dfx_status run(bench *t) {
    memset(t->y, 0xFF, sizeof(t->y));
    memset(t->executor.activations, 0xFF, t->program.act_bytes);
    t->n_events = 0;
    return dfx_executor_run(&t->executor, &t->program, NULL, &t->pages, (void *[]){t->x, t->y});
}

static void same_events(const bench *t, const event *want, int n) {
    assert_int_equal(t->n_events, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(t->events[i].what, want[i].what);
        assert_int_equal(t->events[i].region, want[i].region);
        assert_int_equal(t->events[i].page_idx, want[i].page_idx);
    }
}

static double silu(double x) {
    return x / (1 + exp(-x));
}

/* By hand, in f64. */
static void executor_computes_the_program(void **state) {
    bench *t = begin(*state, false);
    assert_int_equal(run(t), DFX_OK);
    for (int r = 0; r < ROWS; r++) {
        double h[D];
        for (int n = 0; n < D; n++) {
            h[n] = (double)weight_value(D * D + n);
            for (int k = 0; k < D; k++)
                h[n] += (double)weight_value(n * D + k) * silu((double)t->x[r * D + k]);
        }
        for (int n = 0; n < D; n++) {
            int base = LAYER_BYTES / 4;
            double y = h[n] + (double)weight_value(base + D * D + n);
            for (int k = 0; k < D; k++)
                y += (double)weight_value(base + n * D + k) * silu(h[k]);
            assert_true(fabs(y - (double)t->y[r * D + n]) < 1e-5);
        }
    }
    end(t);
}

/* Ops before the first page belong to its region; those without weights keep the page before them. */
static void executor_pins_one_page_at_a_time_in_order_of_regions(void **state) {
    static const event want[] = {
        {'p', 0, 0},           {'a', 0, DFX_NO_PAGE}, {'l', 0, 0},           {'a', 0, DFX_NO_PAGE},
        {'u', 0, DFX_NO_PAGE}, {'p', 1, 1},           {'l', 0, 1},           {'u', 1, DFX_NO_PAGE},
        {'p', 2, 0},           {'l', 0, 0},           {'a', 0, DFX_NO_PAGE}, {'u', 2, DFX_NO_PAGE}};
    bench *t = begin(*state, true);
    for (int i = 0; i < 2; i++) { /* each run counts from 0 */
        assert_int_equal(run(t), DFX_OK);
        same_events(t, want, (int)DFX_COUNT(want));
    }
    end(t);
}

static void executor_regions_are_those_of_the_program(void **state) {
    bench *t = begin(*state, true);
    assert_int_equal(run(t), DFX_OK);
    assert_int_equal(t->program.n_regions, 3);
    uint32_t n_pins = 0, n_ops = 0;
    for (int i = 0; i < t->n_events; i++) {
        const event *e = &t->events[i];
        if (e->what == 'p') {
            assert_int_equal(e->region, n_pins);
            assert_int_equal(e->page_idx, t->program.regions[n_pins].page_idx);
            assert_int_equal(n_ops, t->program.regions[n_pins].first_op);
            n_pins++;
        } else if (e->what == 'u') {
            assert_int_equal(n_ops, t->program.regions[e->region].end_op);
        } else {
            n_ops++;
        }
    }
    assert_int_equal(n_pins, 3);
    assert_int_equal(n_ops, t->program.n_ops);
    end(t);
}

static void executor_forwards_error_of_pin_and_leaves_nothing_pinned(void **state) {
    static const dfx_status statuses[] = {DFX_E_IO, DFX_E_FORMAT, DFX_E_CANCELLED};
    bench *t = begin(*state, true);
    for (int region = 0; region < 3; region++) {
        t->fail_region = region;
        t->fail_status = statuses[region];
        assert_int_equal(run(t), statuses[region]);
        assert_null(t->page);
        assert_int_equal(t->events[t->n_events - 1].what, 'p');
        assert_int_equal(t->events[t->n_events - 1].region, region);
    }
    said_nothing(&t->dir->log, DFX_ERROR);
    t->fail_region = NEVER;
    assert_int_equal(run(t), DFX_OK);
    end(t);
}

static bool at_third_poll(void *user) {
    return ++*(int *)user >= 3;
}

static void executor_cancelled_stops_unpins_and_runs_again(void **state) {
    bench *t = begin(*state, true);
    float usual[ROWS * D];
    int n_polls = 0;
    assert_int_equal(run(t), DFX_OK);
    memcpy(usual, t->y, sizeof(usual));
    t->backend->vt->set_cancel(t->backend, at_third_poll, &n_polls);
    assert_int_equal(run(t), DFX_E_CANCELLED);
    assert_int_equal(t->events[t->n_events - 1].what, 'u');
    t->backend->vt->set_cancel(t->backend, NULL, NULL);
    assert_int_equal(run(t), DFX_OK);
    assert_memory_equal(t->y, usual, sizeof(usual));
    end(t);
}

static void executor_with_too_small_a_block_says_so_and_pins_nothing(void **state) {
    bench *t = begin(*state, false);
    t->executor.activation_bytes--;
    assert_int_equal(run(t), DFX_E_INTERNAL);
    said_error(&t->dir->log, "program: an activation block of");
    assert_int_equal(t->n_events, 0);
    end(t);
}

/* Two lanes, the second one with the rows of x the other way round. */
static dfx_status run_two_lanes(bench *t, float x[ROWS * D], float y[ROWS * D]) {
    for (int i = 0; i < ROWS * D; i++)
        x[i] = t->x[ROWS * D - 1 - i];
    t->n_events = 0;
    dfx_lane lanes[] = {{.externs = (void *[]){t->x, t->y}}, {.externs = (void *[]){x, y}}};
    return dfx_executor_run_lanes(&t->executor, &t->program, &t->pages, lanes, 2);
}

static void give_two_blocks(bench *t) {
    free(t->executor.activations);
    t->executor.activation_bytes = 2 * t->program.act_bytes;
    t->executor.activations = aligned_alloc(DFX_ACT_ALIGN, t->executor.activation_bytes);
    assert_non_null(t->executor.activations);
    memset(t->executor.activations, 0xFF, t->executor.activation_bytes);
}

static void executor_lanes_share_pages_and_nothing_else(void **state) {
    static const event want[] = {
        {'p', 0, 0},           {'a', 0, DFX_NO_PAGE}, {'l', 0, 0},           {'a', 0, DFX_NO_PAGE},
        {'a', 0, DFX_NO_PAGE}, {'l', 0, 0},           {'a', 0, DFX_NO_PAGE}, {'u', 0, DFX_NO_PAGE},
        {'p', 1, 1},           {'l', 0, 1},           {'l', 0, 1},           {'u', 1, DFX_NO_PAGE}};
    bench *t = begin(*state, false);
    float first[ROWS * D], second[ROWS * D], x[ROWS * D], y[ROWS * D];
    assert_int_equal(run(t), DFX_OK);
    memcpy(first, t->y, sizeof(first));
    give_two_blocks(t);
    assert_int_equal(run_two_lanes(t, x, y), DFX_OK);
    same_events(t, want, (int)DFX_COUNT(want));
    assert_memory_equal(t->y, first, sizeof(first));
    memcpy(second, y, sizeof(second));
    memcpy(t->x, x, sizeof(x)); /* what the second lane had, alone */
    assert_int_equal(run(t), DFX_OK);
    assert_memory_equal(t->y, second, sizeof(second));
    assert_memory_not_equal(first, second, sizeof(first));
    end(t);
}

/* The other one computes what it would, and where it would: recordings hold addresses. */
static void executor_lane_that_takes_no_part_keeps_its_place(void **state) {
    static const event want[] = {{'p', 0, 0},           {'a', 0, DFX_NO_PAGE}, {'l', 0, 0},
                                 {'a', 0, DFX_NO_PAGE}, {'u', 0, DFX_NO_PAGE}, {'p', 1, 1},
                                 {'l', 0, 1},           {'u', 1, DFX_NO_PAGE}};
    bench *t = begin(*state, false);
    float usual[ROWS * D];
    assert_int_equal(run(t), DFX_OK);
    memcpy(usual, t->y, sizeof(usual));
    memset(t->y, 0, sizeof(usual));
    give_two_blocks(t);
    t->n_events = 0;
    dfx_recorded recorded = {0};
    dfx_lane lanes[] = {{.externs = NULL, .recorded = &recorded},
                        {.externs = (void *[]){t->x, t->y}}};
    assert_int_equal(dfx_executor_run_lanes(&t->executor, &t->program, &t->pages, lanes, 2),
                     DFX_OK);
    same_events(t, want, (int)DFX_COUNT(want));
    assert_memory_equal(t->y, usual, sizeof(usual));
    for (size_t i = 0; i < t->program.act_bytes; i++)
        assert_int_equal(((unsigned char *)t->executor.activations)[i], 0xFF);
    assert_null(recorded.externs);
    end(t);
}

static void executor_lanes_cancelled_in_the_second_leave_nothing_pinned(void **state) {
    bench *t = begin(*state, false);
    float x[ROWS * D], y[ROWS * D];
    int n_polls = -2; /* the first lane has three ops in the first region */
    give_two_blocks(t);
    t->backend->vt->set_cancel(t->backend, at_third_poll, &n_polls);
    assert_int_equal(run_two_lanes(t, x, y), DFX_E_CANCELLED);
    assert_null(t->page);
    assert_int_equal(t->n_events, 6); /* pin, three ops, one of the second lane, unpin */
    assert_int_equal(t->events[5].what, 'u');
    t->backend->vt->set_cancel(t->backend, NULL, NULL);
    end(t);
}

static void executor_with_a_block_for_one_of_two_lanes_says_so(void **state) {
    bench *t = begin(*state, false);
    float x[ROWS * D], y[ROWS * D];
    give_two_blocks(t);
    t->executor.activation_bytes--;
    assert_int_equal(run_two_lanes(t, x, y), DFX_E_INTERNAL);
    said_error(&t->dir->log, "program: an activation block of");
    assert_int_equal(t->n_events, 0);
    end(t);
}

/* A backend that records, in words: a recording is a number, and nothing is computed by it. */
typedef struct recorder_backend {
    dfx_backend be; /* else the CPU's */
    int n_recorded, n_replayed, n_run;
    bool is_recording;
} recorder_backend;

static recorder_backend recording;

static dfx_status fake_run(dfx_backend *be, const dfx_op_call *call) {
    recording.n_run += !recording.is_recording;
    return DFX_OK;
}

static dfx_status fake_record_begin(dfx_backend *be) {
    recording.is_recording = true;
    return DFX_OK;
}

static dfx_status fake_record_end(dfx_backend *be, dfx_recording **out) {
    recording.is_recording = false;
    *out = (dfx_recording *)&recording;
    recording.n_recorded++;
    return DFX_OK;
}

static dfx_status fake_replay(dfx_backend *be, dfx_recording *what) {
    recording.n_replayed++;
    return DFX_OK;
}

static void fake_recording_free(dfx_backend *be, dfx_recording *what) {
    recording.n_recorded--;
}

static dfx_status pin_in_place(void *self, uint32_t region, uint32_t page_idx, void **base) {
    *base = self;
    return DFX_OK;
}

static void unpin_in_place(void *self, uint32_t region) {}

/* Each lane its own; when all that there is room for are made, the others are run op by op. */
static void executor_records_each_lane_while_there_is_room(void **state) {
    enum { LANES = 2, REGIONS = 2, ROOM = 3 };
    bench *t = begin(*state, false);
    float x[ROWS * D], y[ROWS * D], page[DATA_BYTES / 4];
    dfx_backend_vtable vt = *t->backend->vt;
    vt.run = fake_run;
    vt.record_begin = fake_record_begin;
    vt.record_end = fake_record_end;
    vt.replay = fake_replay;
    vt.recording_free = fake_recording_free;
    recording = (recorder_backend){.be = *t->backend};
    recording.be.vt = &vt;
    give_two_blocks(t);
    t->executor.backend = &recording.be;
    t->executor.probe = NULL;
    t->executor.n_recorded = DFX_RECORDINGS_MAX - ROOM;
    dfx_recorded recorded[LANES] = {0};
    dfx_page_source pages = {.pin = pin_in_place, .unpin = unpin_in_place, .self = page};
    dfx_lane lanes[] = {{.externs = (void *[]){t->x, t->y}, .recorded = &recorded[0]},
                        {.externs = (void *[]){x, y}, .recorded = &recorded[1]}};
    for (int n = 1; n <= 2; n++) {
        assert_int_equal(dfx_executor_run_lanes(&t->executor, &t->program, &pages, lanes, LANES),
                         DFX_OK);
        assert_int_equal(recording.n_recorded, ROOM);
        assert_int_equal(recording.n_replayed, n * ROOM);
        assert_int_equal(recording.n_run, n * (LANES * REGIONS - ROOM)); /* the last has one op */
    }
    for (int i = 0; i < LANES; i++)
        dfx_recorded_fini(&recorded[i], &recording.be);
    assert_int_equal(recording.n_recorded, 0);
    t->executor.backend = t->backend;
    end(t);
}

/* After announce and workspace_alloc, and with pages there, a run takes no memory. */
static void executor_run_does_not_allocate(void **state) {
    bench *t = begin(*state, true);
    float usual[ROWS * D];
    assert_int_equal(run(t), DFX_OK);
    memcpy(usual, t->y, sizeof(usual));
    dfx_mem_fail_nth(1);
    dfx_status status = run(t);
    dfx_mem_fail_nth(0);
    assert_int_equal(status, DFX_OK);
    assert_memory_equal(t->y, usual, sizeof(usual));
    end(t);
}

static void executor_announces_every_op(void **state) {
    bench *t = begin(*state, true);
    t->backend->vt->workspace_free(t->backend);
    assert_int_equal(run(t), DFX_E_INTERNAL);
    said_error(&t->dir->log, "without being prepared");
    assert_int_equal(dfx_executor_announce(t->backend, &t->program), DFX_OK);
    assert_int_equal(t->backend->vt->workspace_alloc(t->backend), DFX_OK);
    assert_int_equal(run(t), DFX_OK);
    end(t);
}

#define IN_TMPDIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_TMPDIR(executor_computes_the_program),
        IN_TMPDIR(executor_pins_one_page_at_a_time_in_order_of_regions),
        IN_TMPDIR(executor_regions_are_those_of_the_program),
        IN_TMPDIR(executor_forwards_error_of_pin_and_leaves_nothing_pinned),
        IN_TMPDIR(executor_cancelled_stops_unpins_and_runs_again),
        IN_TMPDIR(executor_with_too_small_a_block_says_so_and_pins_nothing),
        IN_TMPDIR(executor_lanes_share_pages_and_nothing_else),
        IN_TMPDIR(executor_lane_that_takes_no_part_keeps_its_place),
        IN_TMPDIR(executor_lanes_cancelled_in_the_second_leave_nothing_pinned),
        IN_TMPDIR(executor_with_a_block_for_one_of_two_lanes_says_so),
        IN_TMPDIR(executor_records_each_lane_while_there_is_room),
        IN_TMPDIR(executor_run_does_not_allocate),
        IN_TMPDIR(executor_announces_every_op),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
