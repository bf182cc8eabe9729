/* The part of cuda_check that is about ops bound by memory: norms, rotations, elementwise ops and layouts. */
#ifndef DFX_TESTS_CUDA_CHECK_ROWS_H
#define DFX_TESTS_CUDA_CHECK_ROWS_H

#include "tests/cuda_pair.h"

void check_rows(pair *p);

#endif
