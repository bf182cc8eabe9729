/* Reading protocol buffers (wire format), field by field, without knowing the message. Nothing is
 * copied. */
#ifndef DFX_MODELS_PROTOBUF_H
#define DFX_MODELS_PROTOBUF_H

#include "core/mem.h"

/* What is left of a message. */
typedef struct dfx_pb {
    const unsigned char *at, *end; /* borrowed from the file's bytes */
} dfx_pb;

typedef enum dfx_pb_type {
    DFX_PB_VARINT = 0,
    DFX_PB_FIXED64 = 1,
    DFX_PB_BYTES = 2,
    DFX_PB_FIXED32 = 5
} dfx_pb_type;

typedef struct dfx_pb_field {
    uint32_t number;
    dfx_pb_type type;
    uint64_t value; /* VARINT, FIXED64, FIXED32 */
    dfx_pb bytes;   /* BYTES: also a message of its own */
} dfx_pb_field;

/* Take the next field; while (msg->at < msg->end). `name` is for messages.
 * Errors: DFX_E_FORMAT: truncated, a varint above 64 bits, a field number of 0, a group or unknown
 * wire type. */
dfx_status dfx_pb_next(dfx_pb *msg, const char *name, const dfx_sink *sink, dfx_pb_field *out);

#endif
