/* What attention of a small block is given, decoded, and what it should make of it: softmax in double. Sizes are those of
 * attended_block.h. */
#ifndef DFX_TESTS_ATTENDED_SEEN_H
#define DFX_TESTS_ATTENDED_SEEN_H

#include "tests/attended_block.h"

/* [tokens, A]; `greatest` magnitude of its values. */
typedef struct attended_seen {
    double q[MLP_T * MLP_A], k[MLP_T * MLP_A], v[MLP_T * MLP_A], want[MLP_T * MLP_A], greatest;
} attended_seen;

/* Of a call that has been run; of other ops than attention nothing is seen. */
void attended_look(attended_seen *a, const dfx_op_call *call);

#endif
