/* A set of tensors in figures. */
#ifndef DFX_TOOLS_INSPECT_TABLE_H
#define DFX_TOOLS_INSPECT_TABLE_H

#include <jansson.h>
#include <stdbool.h>

#include "core/safetensors.h"

/* "kind", "tensors", "parameters", "bytes", "dtypes", "groups" and perhaps "list", see inspect_read.h. The groups are
 * the words of the names up to the first '.' after what all names share. NULL when out of memory. */
json_t *dfx_inspect_table(const dfx_tensors *set, bool listed);

#endif
