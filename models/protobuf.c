/* Source: the protocol buffers encoding page. Groups (types 3 and 4) are deprecated and refused. */
#include "models/protobuf.h"

#include "core/sink.h"

static bool take_varint(dfx_pb *msg, uint64_t *out) {
    *out = 0;
    for (unsigned shift = 0; shift < 64 && msg->at < msg->end; shift += 7) {
        unsigned char byte = *msg->at++;
        if (shift == 63 && byte > 1)
            return false;
        *out |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

static bool take_fixed(dfx_pb *msg, size_t n, uint64_t *out) {
    if ((size_t)(msg->end - msg->at) < n)
        return false;
    *out = 0;
    for (size_t i = 0; i < n; i++)
        *out |= (uint64_t)msg->at[i] << (8 * i);
    msg->at += n;
    return true;
}

static bool take_bytes(dfx_pb *msg, dfx_pb *out) {
    uint64_t n;
    if (!take_varint(msg, &n) || n > (uint64_t)(msg->end - msg->at))
        return false;
    *out = (dfx_pb){.at = msg->at, .end = msg->at + n};
    msg->at += n;
    return true;
}

static bool take_value(dfx_pb *msg, dfx_pb_field *out) {
    switch (out->type) {
    case DFX_PB_VARINT:
        return take_varint(msg, &out->value);
    case DFX_PB_FIXED64:
        return take_fixed(msg, 8, &out->value);
    case DFX_PB_BYTES:
        return take_bytes(msg, &out->bytes);
    case DFX_PB_FIXED32:
        return take_fixed(msg, 4, &out->value);
    }
    return false;
}

dfx_status dfx_pb_next(dfx_pb *msg, const char *name, const dfx_sink *sink, dfx_pb_field *out) {
    uint64_t key;
    *out = (dfx_pb_field){0};
    bool good = take_varint(msg, &key) && key >> 3 >= 1 && key >> 3 <= UINT32_MAX;
    if (good) {
        out->number = (uint32_t)(key >> 3);
        out->type = (dfx_pb_type)(key & 7);
        good = take_value(msg, out);
    }
    if (!good)
        return dfx_fail(
            sink, DFX_E_FORMAT,
            "%s: not a protocol buffer after field %u: %zu bytes left in the message; the file is "
            "damaged or cut off",
            name, (unsigned)out->number, (size_t)(msg->end - msg->at));
    return DFX_OK;
}
