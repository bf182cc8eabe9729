/* LINEAR with adapters of low rank on CUDA: y with t and u in every way that it is made, and t out of codes. */
#ifndef DFX_TESTS_CUDA_CHECK_ADAPTER_H
#define DFX_TESTS_CUDA_CHECK_ADAPTER_H

#include "tests/cuda_pair.h"

void check_adapters(pair *p);

#endif
