/* The profile of the device at hand: measured into the cache folder, or shipped. */
#ifndef DFX_MODELS_MACHINE_H
#define DFX_MODELS_MACHINE_H

#include "kernels/backend.h"
#include "offload/profile.h"

/* As dfx_profile_choose, with the cache folder's profiles. While no memory of the backend is held. */
dfx_status dfx_machine_profile(const dfx_backend *backend, const dfx_sink *sink, dfx_profile *out);

#endif
