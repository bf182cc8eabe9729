/* Pipeline: from a request to pixels, for a group of its pictures. Private to models/. */
#ifndef DFX_MODELS_PIPELINE_H
#define DFX_MODELS_PIPELINE_H

#include "models/model.h"

/* Pictures [first, first + n) of the n_pictures of a call, which are made together: n is at most the session's lanes. */
typedef struct dfx_group {
    int first, n, n_pictures;
    dfx_image *
        images; /* [n], borrowed; what is asked for is filled in: size, seed, steps, text length, guidance */
    uint64_t begin_ns; /* from when on time is counted for them */
    int n_made;        /* out: whole, in order; on failure too */
} dfx_group;

/* In the session, which serves the request. Errors: as dfx_generate_batch, behind the checks. */
dfx_status dfx_group_draw(dfx_model *model, const dfx_request *request, dfx_group *group);

#endif
