/* Series of Taylor after an exact reduction of the argument. The reduced ranges are small enough
 * for plain Taylor coefficients, which a reader can check, to reach the last bits of double. */
#include "core/detmath.h"

#include <float.h>
#include <stdint.h>
#include <string.h>

/* 16 is compilers' word for "no excess, and half precision has instructions of its own". */
_Static_assert(FLT_EVAL_METHOD == 0 || FLT_EVAL_METHOD == 16,
               "double must be computed in double; on x86-32 use -mfpmath=sse");

enum { EXPONENT_BIAS = 1023, MANTISSA_BITS = 52 };

static const double LN_2 = 0x1.62e42fefa39efp-1;
static const double SQRT_2 = 0x1.6a09e667f3bcdp+0;
static const double TWO_OVER_PI = 0x1.45f306dc9c883p-1;

/* pi/2 = PIO2_HIGH + PIO2_LOW to 106 bits. The high part ends in three zero bits, so its product
 * with a quadrant 0..4 is exact. */
static const double PIO2_HIGH = 0x1.921fb54442d18p+0;
static const double PIO2_LOW = 0x1.1a62633145c07p-54;

/* x = m * 2^e with m in [sqrt(1/2), sqrt(2)). */
static double split(double x, int *e) {
    const uint64_t mantissa = (UINT64_C(1) << MANTISSA_BITS) - 1;
    uint64_t bits;
    double m;
    memcpy(&bits, &x, sizeof(bits));
    *e = (int)(bits >> MANTISSA_BITS) - EXPONENT_BIAS;
    bits = (bits & mantissa) | (uint64_t)EXPONENT_BIAS << MANTISSA_BITS;
    memcpy(&m, &bits, sizeof(m));
    if (m >= SQRT_2) {
        m *= 0.5;
        ++*e;
    }
    return m;
}

/* ln m = 2 artanh s with s = (m-1)/(m+1), |s| < 0.1716: the first omitted term is below 2^-60. */
double dfx_det_log(double x) {
    static const double coef[] = {1.0 / 21, 1.0 / 19, 1.0 / 17, 1.0 / 15, 1.0 / 13,
                                  1.0 / 11, 1.0 / 9,  1.0 / 7,  1.0 / 5,  1.0 / 3};
    int e;
    double m = split(x, &e);
    double s = (m - 1) / (m + 1);
    double z = s * s;
    double tail = 0;
    for (unsigned i = 0; i < sizeof(coef) / sizeof(coef[0]); i++)
        tail = (tail + coef[i]) * z;
    return e * LN_2 + (2 * s + 2 * s * tail);
}

/* |r| <= pi/4; the first omitted term is below 2^-63. */
static double sin_near_zero(double r) {
    static const double coef[] = {
        1.0 / 355687428096000, -1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800,
        1.0 / 362880,          -1.0 / 5040,          1.0 / 120,        -1.0 / 6};
    double z = r * r;
    double tail = 0;
    for (unsigned i = 0; i < sizeof(coef) / sizeof(coef[0]); i++)
        tail = (tail + coef[i]) * z;
    return r + r * tail;
}

/* |r| <= pi/4; the first omitted term is below 2^-58. */
static double cos_near_zero(double r) {
    static const double coef[] = {
        1.0 / 20922789888000, -1.0 / 87178291200, 1.0 / 479001600, -1.0 / 3628800,
        1.0 / 40320,          -1.0 / 720,         1.0 / 24,        -1.0 / 2};
    double z = r * r;
    double tail = 0;
    for (unsigned i = 0; i < sizeof(coef) / sizeof(coef[0]); i++)
        tail = (tail + coef[i]) * z;
    return 1 + tail;
}

void dfx_det_sincos(double x, double *sin_x, double *cos_x) {
    int quadrant = (int)(x * TWO_OVER_PI + 0.5);
    /* The first difference is exact (the operands are within a factor of two, or quadrant is 0). */
    double r = (x - quadrant * PIO2_HIGH) - quadrant * PIO2_LOW;
    double s = sin_near_zero(r);
    double c = cos_near_zero(r);
    switch (quadrant & 3) {
    case 0:
        *sin_x = s, *cos_x = c;
        break;
    case 1:
        *sin_x = c, *cos_x = -s;
        break;
    case 2:
        *sin_x = -s, *cos_x = -c;
        break;
    default:
        *sin_x = -c, *cos_x = s;
        break;
    }
}
