#include "models/machine.h"

#include "models/cache.h"
#include "offload/profile_choice.h"

dfx_status dfx_machine_profile(const dfx_backend *backend, const dfx_sink *sink, dfx_profile *out) {
    char folder[DFX_PATH_BYTES];
    dfx_device_facts facts;
    backend->vt->describe(backend, &facts);
    return dfx_profile_choose(&facts, dfx_cache_find(folder) ? folder : NULL, sink, out);
}
