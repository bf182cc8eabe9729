/* Values between the host, where they are f32, and buffers of the device's activation type. Private to models/. */
#ifndef DFX_MODELS_VALUES_H
#define DFX_MODELS_VALUES_H

#include "models/model.h"

/* n values to `dst` on the device. */
dfx_status dfx_values_upload(dfx_model *model, void *dst, const float *values, size_t n);

/* n values of `src` on the device, when everything before has run. */
dfx_status dfx_values_download(dfx_model *model, float *dst, const void *src, size_t n);

/* The same of a host buffer that holds them as the device has them. */
void dfx_values_widen(const dfx_model *model, float *dst, const void *src, size_t n);

bool dfx_values_are_finite(const float *values, size_t n);

#endif
