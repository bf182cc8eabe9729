/* What tests of CPU ops share: operands that show every stray access, goldens, and a way to run one
 * call.
 *
 *     static void op_x_does_y(void **state) {
 *         rig *r = *state;
 *         dfx_op_call call = {.kind = DFX_OP_ADD};
 *         call.m[DFX_BIN_A] = rig_random(r, 5, 7, 12, 1);
 *         call.m[DFX_BIN_B] = rig_random(r, 5, 7, 8, 2);
 *         call.m[0] = rig_poison(r, 5, 7, 8);
 *         rig_run(r, &call);
 *         rig_same(&call.m[0], want, 1e-6);
 *     }
 *     cmocka_unit_test_setup_teardown(op_x_does_y, rig_setup, rig_teardown)
 *
 * Activations start out as NaN, also between the columns and the next row, so that a value that is
 * read from there or left out shows. Operands belong to the rig and go with it. The helpers fail
 * the running test. */
#ifndef DFX_TESTS_CPU_RIG_H
#define DFX_TESTS_CPU_RIG_H

#include "kernels/backend.h"
#include "tests/tmpdir.h"

typedef struct rig {
    recorder log;
    void **blocks; /* owned, each */
    size_t n_blocks;
} rig;

/* cmocka fixtures: *state is a rig *. */
int rig_setup(void **state);
int rig_teardown(void **state);

/* Zeroed memory of the rig's, 64-byte aligned. */
void *rig_alloc(rig *r, size_t bytes);

/* An f32 activation of NaN; ld a multiple of 4, so that rows keep their alignment. */
dfx_mat rig_poison(rig *r, int64_t rows, int64_t cols, int64_t ld);
/* The same with values in [-2, 2) that depend on the seed alone. */
dfx_mat rig_random(rig *r, int64_t rows, int64_t cols, int64_t ld, uint64_t seed);
/* The same with given values, packed rows. */
dfx_mat rig_values(rig *r, int64_t rows, int64_t cols, int64_t ld, const float *values);
/* A weight at an odd address. */
dfx_mat rig_weight(rig *r, dfx_dtype dtype, int64_t rows, int64_t cols, const float *values);
dfx_mat rig_random_weight(rig *r, dfx_dtype dtype, int64_t rows, int64_t cols, uint64_t seed);

/* Value (row, col) of any operand, widened. */
double rig_at(const dfx_mat *m, int64_t row, int64_t col);
/* Of a row's operand, or `absent` where the call has none. */
double rig_or(const dfx_mat *m, int64_t col, double absent);

/* A tensor of tests/golden/<file>.safetensors as f32; it must have n values. */
const float *rig_golden(rig *r, const char *file, const char *name, size_t n);

/* Check, prepare and run the call on a backend of 3 threads; then again on one of 1 thread from the
 * same contents of slot 0, which must give the same bytes. */
void rig_run(rig *r, const dfx_op_call *call);
/* The run must fail with this status and one error with these words. */
void rig_run_fails(rig *r, const dfx_op_call *call, dfx_status status, const char *words);

/* Every |got - want| <= tolerance, want packed [rows, cols]; the gaps between rows hold NaN. */
void rig_same(const dfx_mat *got, const float *want, double tolerance);

#endif
