/* Logarithm, sine and cosine whose last bit does not depend on the machine or its C library.
 *
 * Built from IEEE double add, multiply and divide only, each rounded to double by itself: the file
 * must be compiled without contraction (-ffp-contract=off), and a machine that computes double in a
 * wider type is refused at compile time. Only the ranges below are served; arguments outside them
 * give meaningless numbers, not errors. Any thread. */
#ifndef DFX_CORE_DETMATH_H
#define DFX_CORE_DETMATH_H

/* ln x for x in [2^-1022, 1]. Relative error below 2^-51. */
double dfx_det_log(double x);

/* sin x and cos x for x in [0, 2 pi]. Absolute error below 2^-52, relative error below 2^-51: the
 * values next to a zero are right too. */
void dfx_det_sincos(double x, double *sin_x, double *cos_x);

#endif
