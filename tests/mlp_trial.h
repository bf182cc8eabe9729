/* One run of a block of mlp_blocks.h on the CPU, what its ops made, and what that must be: double loops over the checkpoint.
 *
 *     mlp_trial r = {.dir = dir, .set = set, .n_tokens = 9};
 *     mlp_trial_run(&r, &program, mlp_look);
 *     mlp_check_mlp(&r);
 *     mlp_check_y(&r, "down", MLP_F);
 *
 * The calls fail the running test. */
#ifndef DFX_TESTS_MLP_TRIAL_H
#define DFX_TESTS_MLP_TRIAL_H

#include "offload/executor.h"
#include "tests/mlp_blocks.h"

/* Decoded: codes of x that products read, of what stands before the MLP in the joined buffer, and of the MLP. */
typedef struct mlp_made {
    double x[MLP_T * MLP_D], first[MLP_T * MLP_A], mlp[MLP_T * MLP_F];
    float bounds[MLP_T], scales[MLP_T]; /* scales: of first and mlp */
} mlp_made;

/* `first` has rows of all sizes: under a bound, above it, and of zeros. */
typedef struct mlp_trial {
    tmpdir *dir;
    const dfx_tensors *set;
    int n_tokens;
    float first[MLP_T * MLP_A], y[MLP_T * MLP_N];
    mlp_made seen;
} mlp_trial;

/* On externs that are the same each time; `look` is called with r after each op. */
void mlp_trial_run(mlp_trial *r, const dfx_program *p, dfx_probe_fn look);

/* A probe that fills r->seen. */
void mlp_look(void *trial, const dfx_op *op, const dfx_op_call *call);

/* Packed [rows, cols] of codes, scales one a row. */
void mlp_decode(const dfx_mat *codes, const dfx_mat *scales, double *values);

/* Codes of the MLP stand for what the weights say of x, to half a step of their scale; none is at its end. */
void mlp_check_mlp(const mlp_trial *r);

/* The product `of` of mlp, and of first where n_cols are so many, has found their codes, with their scales. */
void mlp_check_y(const mlp_trial *r, const char *of, int n_cols);

/* A layer's weights as they are, code times scale, and its bias. */
typedef struct mlp_weights {
    float *w, *b; /* owned; [n, k], [n] */
    int k;
} mlp_weights;

mlp_weights mlp_weights_read(const mlp_trial *r, const char *of, int n, int k);
void mlp_weights_free(mlp_weights *l);

/* x W^T + b of one row and one column; *size is the sum of magnitudes. */
double mlp_product_at(const mlp_weights *l, const double *x, int n, double *size);

/* Half of the distance between neighbours, of values that have this scale; 2^-15 for the roundings of scale and inverse. */
double mlp_half_step(double value, double scale);

#endif
