/* Which of several ways to do a product is the fastest on this device? Asked once for each product and machine: the answer is kept
 * (cuda_algos.h).
 *
 * A candidate must give the first one's bits on noise of the real shape: sums in another order would make pictures depend on
 * a clock. Each is then run a few times in a row on test data of its own; nothing of a session is touched, and what is
 * allocated here is given back before the session takes its memory. A fault here leaves the first candidate, as does a budget
 * too small for the test data; if the device itself is at fault, the next call says so. */
#ifndef DFX_KERNELS_CUDA_TUNE_H
#define DFX_KERNELS_CUDA_TUNE_H

#include "kernels/algo_file.h"
#include "kernels/cuda/cuda_internal.h"

enum { DFX_CUDA_TRIAL_PARTS = 9 };

typedef struct dfx_cuda_trial {
    const void *key; /* DFX_ALGO_KEY_BYTES: what tells the product apart from others */
    /* What is kept of a candidate, and known again by; zeros: not to be used, which the first one never is. */
    const unsigned char (*candidates)[DFX_ALGO_BYTES];
    int n_candidates;
    double operations;
    /* The caller's operands: noise of that type. 0 bytes: there is none, and launch gets NULL. */
    struct dfx_cuda_trial_part {
        size_t bytes;
        dfx_dtype dtype;
    } parts[DFX_CUDA_TRIAL_PARTS];
    size_t y_bytes;
    /* Queue one of them, into y; workspace: as much as cuBLASLt's. False: it cannot be done. */
    bool (*launch)(dfx_cuda *cuda, void *user, int candidate, void *const *parts, void *y,
                   void *workspace);
    void *user;
} dfx_cuda_trial;

/* The candidate: as it was chosen before, else by the clock, else the first one. May wait. */
int dfx_cuda_choose(dfx_cuda *cuda, const dfx_cuda_trial *trial);

#endif
