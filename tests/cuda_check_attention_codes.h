/* The part of cuda_check that is about attention in 8 bits: what makes its codes, and the products of codes. */
#ifndef DFX_TESTS_CUDA_CHECK_ATTENTION_CODES_H
#define DFX_TESTS_CUDA_CHECK_ATTENTION_CODES_H

#include "tests/cuda_pair.h"

void check_attention_codes(pair *p);

#endif
