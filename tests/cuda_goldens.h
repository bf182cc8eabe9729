/* The part of cuda_check that is about the device as a whole: the models' goldens, recordings, copies, memory, budgets. */
#ifndef DFX_TESTS_CUDA_GOLDENS_H
#define DFX_TESTS_CUDA_GOLDENS_H

#include "tests/cuda_pair.h"

/* Reads tests/golden and models/scenes below the working directory; what is not there is skipped. */
void check_device(pair *p);

#endif
