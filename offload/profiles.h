/* The machine profiles that we ship: the files of offload/profiles/, held in the library. */
#ifndef DFX_OFFLOAD_PROFILES_H
#define DFX_OFFLOAD_PROFILES_H

#include <stddef.h>

typedef struct dfx_shipped_profile {
    const char *name; /* "rtx4090" */
    const char *text; /* not terminated */
    size_t bytes;
} dfx_shipped_profile;

size_t dfx_shipped_profile_count(void);
dfx_shipped_profile dfx_shipped_profile_at(size_t idx); /* sorted by name */

#endif
