/* Computing beside copies: a copy takes its part of the memory's bandwidth and of the power, so what is computed meanwhile takes
 * longer by a share. Copies are one after the other, and when they are made is known before the computing beside them begins:
 * none waits for it but those after it. */
#include "offload/planner_internal.h"

void dfx_plan_compute_beside(dfx_plan_computing *c, double share, double begin, double end) {
    double alone = begin > c->at ? begin - c->at : 0;
    if (end <= c->at || c->left <= alone)
        return;
    c->at += alone;
    c->left -= alone;
    double done = (end - c->at) / (1 + share);
    if (c->left <= done) {
        c->at += c->left * (1 + share);
        c->left = 0;
    } else {
        c->at = end;
        c->left -= done;
    }
}
