/* Number formats: the table behind names and storage types. */
#include "quant/qformat.h"

#include <string.h>

typedef struct qformat_info {
    const char *name;
    dfx_dtype storage; /* DFX_N_DTYPES: as the source */
    bool has_row_scale;
} qformat_info;

static const qformat_info infos[DFX_N_QFORMATS] = {
#define INFO(name, text, dtype, scaled) {text, dtype, scaled},
    DFX_Q_LIST(INFO)
#undef INFO
};

const char *dfx_q_name(dfx_qformat format) {
    return (unsigned)format < DFX_N_QFORMATS ? infos[format].name : "unknown";
}

bool dfx_q_parse(const char *name, dfx_qformat *out) {
    for (unsigned i = 0; i < DFX_N_QFORMATS; i++)
        if (strcmp(infos[i].name, name) == 0) {
            *out = (dfx_qformat)i;
            return true;
        }
    return false;
}

dfx_dtype dfx_q_storage(dfx_qformat format, dfx_dtype source) {
    return format == DFX_Q_STORED ? source : infos[format].storage;
}

dfx_qformat dfx_q_unchanged(dfx_dtype source) {
    return dfx_dtype_is_ggml(source) ? DFX_Q_BF16 : DFX_Q_STORED;
}

bool dfx_q_has_row_scale(dfx_qformat format) {
    return infos[format].has_row_scale;
}
