/* Maker: a model that is open, and pictures made with it, one request after the other, each saved and told when it is there. */
#ifndef DFX_TOOLS_MAKER_H
#define DFX_TOOLS_MAKER_H

#include "tools/model_options.h"
#include "tools/pack_progress.h"

typedef struct dfx_maker {
    dfx_console *console; /* borrowed */
    dfx_model *model;     /* owned */
    dfx_model_info info;
    dfx_pack_progress packing;
    bool json;                          /* a line on standard output for each picture */
    const dfx_picture_options *picture; /* of the request at hand */
    int n_written;                      /* of it */
    dfx_image *whole;                   /* its pictures without reuse; NULL: nobody asked */
} dfx_maker;

/* `open`: borrowed for the call. Errors: those of dfx_model_open, said, DFX_E_CANCELLED too. */
dfx_status dfx_maker_open(dfx_maker *maker, dfx_console *console, const dfx_open_options *open,
                          bool json);
void dfx_maker_close(dfx_maker *maker);

/* Would the model make it? Nothing is allocated for it; `picture` is settled, of its files the sizes are enough. */
dfx_status dfx_maker_look(dfx_maker *maker, const dfx_picture_options *picture);

/* Make, save, tell. `picture` is settled. Errors: those of dfx_generate_batch and of writing, said; what was written before is
 * then listed. */
dfx_status dfx_maker_make(dfx_maker *maker, const dfx_picture_options *picture);

#endif
