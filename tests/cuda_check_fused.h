/* The part of cuda_check that is about products of codes with all that follows in one kernel. */
#ifndef DFX_TESTS_CUDA_CHECK_FUSED_H
#define DFX_TESTS_CUDA_CHECK_FUSED_H

#include "tests/cuda_pair.h"

void check_fused(pair *p);

#endif
