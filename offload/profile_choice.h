/* Which profile stands for a device: the one that was measured on it, or the shipped one that is nearest.
 *
 * A plan is made from it, so it decides what stays on the device and what streams, and how long that is said to take. The
 * picture is the same whatever it says. */
#ifndef DFX_OFFLOAD_PROFILE_CHOICE_H
#define DFX_OFFLOAD_PROFILE_CHOICE_H

#include "core/file.h"
#include "kernels/backend.h"
#include "offload/profile.h"

/* "Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz" becomes "intel-core-i7-9750h-cpu-2.60ghz": what a profile's name may be. */
void dfx_profile_slug(const char *device, char slug[DFX_PROFILE_NAME]);

/* Where the profile that is measured on a device is kept: folder/machine-<slug>.profile. Errors: DFX_E_USAGE: too long. */
dfx_status dfx_profile_path(const char *folder, const char *device, const dfx_sink *sink,
                            char out[DFX_PATH_BYTES]);

/* The measured one counts where it is of this device and driver, and of this program's way of measuring. Else, for a
 * processor `cpu`; for a GPU the shipped one whose name is part of the device's, or that of the nearest memory rate; its
 * bytes and abilities are then the device's own. `folder` NULL: nothing was measured. Says which at DFX_DEBUG; a measured
 * one that cannot be read is a warning. Errors: none of the files, DFX_E_NOFIT. */
dfx_status dfx_profile_choose(const dfx_device_facts *facts, const char *folder,
                              const dfx_sink *sink, dfx_profile *out);

#endif
