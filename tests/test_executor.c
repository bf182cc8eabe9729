/* Executor and pager: streamed pages give the bytes of kept ones, pages are read as often as they have to be, and every
 * byte is in the ledger. */
#include "offload/executor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/mem.h"
#include "offload/builder.h"
#include "tests/stfile.h"

/* Two square layers of 8 x 8 with biases in two pages, f32: 256 + 32 bytes each. */
enum { D = 8, ROWS = 5, LAYER_BYTES = (D * D + D) * 4, DATA_BYTES = 2 * LAYER_BYTES };
static const char HEADER[] =
    "{\"l.0.w.weight\":{\"dtype\":\"F32\",\"shape\":[8,8],\"data_offsets\":[0,256]},"
    "\"l.0.w.bias\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[256,288]},"
    "\"l.1.w.weight\":{\"dtype\":\"F32\",\"shape\":[8,8],\"data_offsets\":[288,544]},"
    "\"l.1.w.bias\":{\"dtype\":\"F32\",\"shape\":[8],\"data_offsets\":[544,576]}}";

typedef struct bench {
    tmpdir *dir;
    dfx_tensors *tensors;
    dfx_program program;
    dfx_backend *backend;
    dfx_budget budget;
    dfx_executor executor;
    dfx_pager pager;
    size_t held_bytes;
    _Alignas(64) float x[ROWS * D];
    _Alignas(64) float y[ROWS * D];
} bench;

static float weight_value(int i) {
    return (float)(i * 7 % 19 - 9) / 16;
}

/* y = l.1(silu(l.0(x))) + l.0(x): page 0 is used twice when `again`, with page 1 between. */
static void build(bench *t, bool again) {
    dfx_builder b;
    dfx_builder_init(&b, "program", t->tensors, "part", DFX_DTYPE_F32, &t->dir->log.sink);
    dfx_ref x = dfx_extern_buf(&b, "x", ROWS, D, DFX_DTYPE_F32);
    dfx_ref y = dfx_extern_buf(&b, "y", ROWS, D, DFX_DTYPE_F32);
    dfx_builder_page(&b, "l.%d", 0);
    dfx_ref w = dfx_weight_ref(&b, "w.weight", D, D), bias = dfx_weight_ref(&b, "w.bias", 1, D);
    dfx_ref h = dfx_temp(&b, ROWS, D), g = dfx_temp(&b, ROWS, D);
    dfx_emit(&b, DFX_OP_LINEAR, "w", (dfx_ref[DFX_OP_SLOTS]){h, x, w, bias}, NULL);
    dfx_emit(&b, DFX_OP_ACT, "silu", (dfx_ref[DFX_OP_SLOTS]){g, h},
             &(dfx_op_params){.act = DFX_ACT_SILU});
    dfx_builder_page(&b, "l.%d", 1);
    dfx_linear(&b, &(dfx_linear_spec){.x = g, .name = "w", .n = D, .residual = h, .into = y});
    if (again) {
        dfx_ref z = dfx_temp(&b, ROWS, D);
        dfx_emit(&b, DFX_OP_LINEAR, "again", (dfx_ref[DFX_OP_SLOTS]){z, y, w, bias}, NULL);
        dfx_emit(&b, DFX_OP_ACT, "copy", (dfx_ref[DFX_OP_SLOTS]){y, z}, NULL);
    }
    assert_int_equal(dfx_builder_finish(&b, &t->program), DFX_OK);
}

static bench *begin(tmpdir *dir, bool again, size_t limit_bytes) {
    float data[DATA_BYTES / 4];
    for (int i = 0; i < DATA_BYTES / 4; i++)
        data[i] = weight_value(i);
    bench *t = aligned_alloc(64, (sizeof(*t) + 63) / 64 * 64);
    assert_non_null(t);
    memset(t, 0, sizeof(*t));
    t->dir = dir;
    t->held_bytes = dfx_mem_held_bytes();
    t->tensors = stfile_accepts_header(dir, HEADER, data, DATA_BYTES);
    recorder_clear(&dir->log);
    for (int i = 0; i < ROWS * D; i++)
        t->x[i] = weight_value(i * 3 + 1);
    build(t, again);
    dfx_cpu_options options = {.n_threads = 1};
    assert_int_equal(dfx_cpu_backend_open(&options, &dir->log.sink, &t->backend), DFX_OK);
    dfx_budget_init(&t->budget, limit_bytes);
    dfx_executor_init(&t->executor, t->backend, &t->budget, &dir->log.sink);
    assert_int_equal(dfx_executor_announce(&t->executor, &t->program), DFX_OK);
    assert_int_equal(dfx_pager_init(&t->pager, &t->program, t->backend, &t->budget, &dir->log.sink),
                     DFX_OK);
    return t;
}

/* Nothing may be left in the ledger or on the heap. */
static void end(bench *t) {
    dfx_pager_fini(&t->pager);
    dfx_executor_fini(&t->executor);
    assert_int_equal(t->budget.used_bytes, 0);
    t->backend->vt->close(t->backend);
    dfx_program_fini(&t->program);
    dfx_tensors_close(t->tensors);
    assert_int_equal(dfx_mem_held_bytes(), t->held_bytes);
    free(t);
}

static dfx_status run(bench *t) {
    memset(t->y, 0xFF, sizeof(t->y));
    return dfx_executor_run(&t->executor, &t->pager, (void *[]){t->x, t->y});
}

static void reserve(bench *t) {
    assert_int_equal(dfx_executor_reserve(&t->executor, t->program.act_bytes), DFX_OK);
}

/* By hand, in f64. */
static void executor_computes_the_program(void **state) {
    bench *t = begin(*state, false, SIZE_MAX);
    reserve(t);
    assert_int_equal(run(t), DFX_OK);
    for (int r = 0; r < ROWS; r++) {
        double h[D], g[D];
        for (int n = 0; n < D; n++) {
            h[n] = (double)weight_value(D * D + n);
            for (int k = 0; k < D; k++)
                h[n] += (double)weight_value(n * D + k) * (double)t->x[r * D + k];
            g[n] = h[n] / (1 + exp(-h[n]));
        }
        for (int n = 0; n < D; n++) {
            int base = LAYER_BYTES / 4;
            double y = h[n] + (double)weight_value(base + D * D + n);
            for (int k = 0; k < D; k++)
                y += (double)weight_value(base + n * D + k) * g[k];
            assert_true(fabs(y - (double)t->y[r * D + n]) < 1e-5);
        }
    }
    end(t);
}

static void executor_streaming_equals_keeping_bit_for_bit(void **state) {
    bench *t = begin(*state, true, SIZE_MAX);
    float kept[ROWS * D];
    reserve(t);
    assert_int_equal(run(t), DFX_OK);
    memcpy(kept, t->y, sizeof(kept));
    dfx_pager_set_residency(&t->pager, DFX_STREAM);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(run(t), DFX_OK);
        assert_memory_equal(t->y, kept, sizeof(kept));
    }
    end(t);
}

/* Kept: each page once, however many runs. Dropped: once more. */
static void pager_keeping_reads_each_page_once(void **state) {
    bench *t = begin(*state, true, SIZE_MAX);
    reserve(t);
    assert_false(dfx_pager_is_loaded(&t->pager));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(run(t), DFX_OK);
        assert_true(dfx_pager_is_loaded(&t->pager));
        assert_int_equal(t->pager.read_bytes, DATA_BYTES);
    }
    dfx_pager_drop(&t->pager);
    assert_false(dfx_pager_is_loaded(&t->pager));
    assert_int_equal(run(t), DFX_OK);
    assert_int_equal(t->pager.read_bytes, 2 * DATA_BYTES);
    end(t);
}

/* Pages 0, 1, 0 in each run. */
static void pager_streaming_reads_each_page_at_each_use(void **state) {
    bench *t = begin(*state, true, SIZE_MAX);
    reserve(t);
    dfx_pager_set_residency(&t->pager, DFX_STREAM);
    for (int i = 1; i <= 3; i++) {
        assert_int_equal(run(t), DFX_OK);
        assert_int_equal(t->pager.read_bytes, i * 3 * LAYER_BYTES);
    }
    end(t);
}

static void pager_streaming_holds_one_page_in_the_ledger(void **state) {
    bench *t = begin(*state, true, SIZE_MAX);
    reserve(t);
    size_t fixed = t->budget.used_bytes;
    assert_true(fixed >= t->program.act_bytes);
    assert_int_equal(run(t), DFX_OK);
    assert_int_equal(t->budget.used_bytes, fixed + t->program.page_bytes);
    dfx_pager_set_residency(&t->pager, DFX_STREAM);
    assert_int_equal(t->budget.used_bytes, fixed);
    assert_int_equal(run(t), DFX_OK);
    assert_int_equal(t->budget.used_bytes, fixed + t->program.page_bytes_max);
    end(t);
}

/* A budget for one page and the activations: streaming fits, keeping is told what it lacks and can be undone. */
static void executor_within_budget_of_one_page_streams(void **state) {
    bench *t = begin(*state, false, SIZE_MAX);
    reserve(t);
    t->budget.limit_bytes = t->budget.used_bytes + t->program.page_bytes_max;
    assert_int_equal(run(t), DFX_E_NOFIT);
    said_error(&t->dir->log, "weights wants");
    dfx_pager_set_residency(&t->pager, DFX_STREAM);
    assert_int_equal(run(t), DFX_OK);
    assert_true(t->budget.peak_bytes <= t->budget.limit_bytes);
    end(t);
}

static void executor_without_reserved_block_says_so(void **state) {
    bench *t = begin(*state, false, SIZE_MAX);
    assert_int_equal(run(t), DFX_E_INTERNAL);
    said_error(&t->dir->log, "is not reserved");
    end(t);
}

/* What does not fit is not in the ledger afterwards. */
static void executor_memory_beyond_budget_is_refused(void **state) {
    bench *t = begin(*state, false, SIZE_MAX);
    reserve(t);
    size_t used = t->budget.used_bytes;
    dfx_mem state_mem = {0};
    t->budget.limit_bytes = used + 1000;
    assert_int_equal(dfx_executor_state_alloc(&t->executor, 1001, &state_mem), DFX_E_NOFIT);
    said_error(&t->dir->log, "state wants 1001 bytes");
    assert_true(t->budget.used_bytes == used && !state_mem.ptr);
    assert_int_equal(dfx_executor_state_alloc(&t->executor, 1000, &state_mem), DFX_OK);
    assert_int_equal(t->budget.used_bytes, used + 1000);
    dfx_executor_state_free(&t->executor, &state_mem);
    assert_int_equal(t->budget.used_bytes, used);
    end(t);
}

static void executor_block_beyond_budget_is_refused(void **state) {
    bench *t = begin(*state, false, 1000);
    assert_int_equal(dfx_executor_reserve(&t->executor, 1001), DFX_E_NOFIT);
    assert_int_equal(recorder_count(&t->dir->log, DFX_ERROR), 1);
    end(t);
}

typedef struct seen {
    const char *labels[8];
    int n;
} seen;

static void note(void *user, const dfx_op *op, const dfx_op_call *call) {
    seen *s = user;
    assert_non_null(call->m[0].ptr);
    s->labels[s->n++] = op->label;
}

static void executor_probe_sees_every_op_in_order(void **state) {
    bench *t = begin(*state, true, SIZE_MAX);
    static const char *const want[] = {"l.0.w", "l.0.silu", "l.1.w", "l.1.again", "l.1.copy"};
    seen s = {0};
    reserve(t);
    t->executor.probe = note;
    t->executor.probe_user = &s;
    assert_int_equal(run(t), DFX_OK);
    assert_int_equal(s.n, DFX_COUNT(want));
    for (size_t i = 0; i < DFX_COUNT(want); i++)
        assert_string_equal(s.labels[i], want[i]);
    end(t);
}

static bool at_third_poll(void *user) {
    return ++*(int *)user >= 3;
}

static void executor_cancelled_stops_and_runs_again(void **state) {
    bench *t = begin(*state, true, SIZE_MAX);
    float usual[ROWS * D];
    int n_polls = 0;
    reserve(t);
    assert_int_equal(run(t), DFX_OK);
    memcpy(usual, t->y, sizeof(usual));
    t->backend->vt->set_cancel(t->backend, at_third_poll, &n_polls);
    assert_int_equal(run(t), DFX_E_CANCELLED);
    t->backend->vt->set_cancel(t->backend, NULL, NULL);
    assert_int_equal(run(t), DFX_OK);
    assert_memory_equal(t->y, usual, sizeof(usual));
    end(t);
}

/* The file shrinks after it was opened. */
static void executor_short_file_is_an_io_error_and_leaves_nothing(void **state) {
    tmpdir *dir = *state;
    bench *t = begin(dir, false, SIZE_MAX);
    reserve(t);
    tmpdir_write(dir, stfile_name, HEADER, 64);
    size_t used = t->budget.used_bytes;
    assert_int_equal(run(t), DFX_E_IO);
    said_error(&dir->log, stfile_name);
    assert_int_equal(t->budget.used_bytes, used);
    end(t);
}

#define IN_TMPDIR(test) cmocka_unit_test_setup_teardown(test, tmpdir_setup, tmpdir_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        IN_TMPDIR(executor_computes_the_program),
        IN_TMPDIR(executor_streaming_equals_keeping_bit_for_bit),
        IN_TMPDIR(pager_keeping_reads_each_page_once),
        IN_TMPDIR(pager_streaming_reads_each_page_at_each_use),
        IN_TMPDIR(pager_streaming_holds_one_page_in_the_ledger),
        IN_TMPDIR(executor_within_budget_of_one_page_streams),
        IN_TMPDIR(executor_without_reserved_block_says_so),
        IN_TMPDIR(executor_memory_beyond_budget_is_refused),
        IN_TMPDIR(executor_block_beyond_budget_is_refused),
        IN_TMPDIR(executor_probe_sees_every_op_in_order),
        IN_TMPDIR(executor_cancelled_stops_and_runs_again),
        IN_TMPDIR(executor_short_file_is_an_io_error_and_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
