/* The part of cuda_check that is about products that make codes of their values, and what they want for it: norms of rows, bounds,
 * scales that are not below others. */
#ifndef DFX_TESTS_CUDA_CHECK_BOUND_H
#define DFX_TESTS_CUDA_CHECK_BOUND_H

#include "tests/cuda_pair.h"

void check_bound(pair *p);

#endif
