#include "tools/picture_options.h"

#include <inttypes.h>
#include <stdlib.h>
#include <sys/random.h>

#include "tools/memory.h"

enum { TEXT_LENGTH_MAX = 65536, GUIDANCE_MAX = 1000, REUSE_MAX = 1000 };

void dfx_picture_options_init(dfx_picture_options *picture) {
    *picture = (dfx_picture_options){.guidance = -1, .strength = -1, .n_pictures = 1};
}

void dfx_picture_options_inherit(dfx_picture_options *picture, const dfx_picture_options *from) {
    *picture = *from;
    picture->own_loras = NULL;
    picture->init = (dfx_init_files){0};
}

void dfx_picture_options_fini(dfx_picture_options *picture) {
    dfx_init_files_free(&picture->init);
    free(picture->own_loras);
    *picture = (dfx_picture_options){0};
}

static void warn_twice(const dfx_args *args, dfx_console *console) {
    const dfx_args_option *options = args->options;
    for (int i = 0; i < args->n_options; i++)
        if (args->n_given[i] > 1 && options[i].value && !options[i].listed)
            dfx_console_say(console, DFX_WARN, "--%s: given %d times; the last one, \"%s\", counts",
                            options[i].name, args->n_given[i], args->value[i]);
    for (int side = DFX_PICTURE_WIDTH; side <= DFX_PICTURE_HEIGHT; side++)
        if (dfx_args_given(args, DFX_PICTURE_SIZE) && dfx_args_given(args, side))
            dfx_console_say(
                console, DFX_WARN, "--size and --%s: both given; the last one, --%s, counts",
                options[side].name,
                args->at[side] > args->at[DFX_PICTURE_SIZE] ? options[side].name : "size");
}

/* One side: from --size or from its own option, whichever came last. */
static bool read_side(dfx_args *args, int which, int *side) {
    int own = *side;
    if (!dfx_args_int(args, which, DFX_SIZE_MULTIPLE, DFX_SIDE_MAX, &own))
        return false;
    if (!dfx_args_given(args, DFX_PICTURE_SIZE) || args->at[which] > args->at[DFX_PICTURE_SIZE])
        *side = own;
    return true;
}

/* A seed that was there stays where none is given; -1 takes it away. */
static bool read_seed(dfx_args *args, dfx_picture_options *to) {
    return !dfx_args_given(args, DFX_PICTURE_SEED) ||
           dfx_args_seed(args, DFX_PICTURE_SEED, &to->has_seed, &to->seed);
}

static bool read_numbers(dfx_args *args, dfx_picture_options *to) {
    return dfx_args_extent(args, DFX_PICTURE_SIZE, DFX_SIZE_MULTIPLE, DFX_SIDE_MAX, &to->width,
                           &to->height) &&
           read_side(args, DFX_PICTURE_WIDTH, &to->width) &&
           read_side(args, DFX_PICTURE_HEIGHT, &to->height) &&
           dfx_args_int(args, DFX_PICTURE_STEPS, 1, DFX_STEPS_MAX, &to->steps) &&
           dfx_args_real(args, DFX_PICTURE_GUIDANCE, 0, GUIDANCE_MAX, &to->guidance) &&
           dfx_args_real(args, DFX_PICTURE_STRENGTH, 0, 1, &to->strength) &&
           dfx_args_int(args, DFX_PICTURE_TEXT_LENGTH, 1, TEXT_LENGTH_MAX, &to->text_length) &&
           dfx_args_real(args, DFX_PICTURE_REUSE, 0, REUSE_MAX, &to->reuse) &&
           read_seed(args, to) &&
           dfx_args_int(args, DFX_PICTURE_COUNT, 1, DFX_PICTURES_MAX, &to->n_pictures);
}

static void read_text(const dfx_args *args, int which, const char **to) {
    if (dfx_args_given(args, which))
        *to = args->value[which];
}

/* A list takes the place of the one that was there. */
static dfx_status read_loras(const dfx_args *args, dfx_console *console, dfx_picture_options *to) {
    if (!dfx_args_given(args, DFX_PICTURE_LORA))
        return DFX_OK;
    if (!to->own_loras)
        DFX_OR_RETURN(dfx_take_array(console, 1, "LoRAs", &to->own_loras));
    to->loras = to->own_loras;
    return dfx_lora_list_read(to->own_loras, args, DFX_PICTURE_LORA, console);
}

dfx_status dfx_picture_options_read(dfx_args *args, dfx_console *console, dfx_picture_options *to) {
    warn_twice(args, console);
    if (!read_numbers(args, to))
        return dfx_console_fail(console, DFX_E_USAGE, "%s", args->error);
    read_text(args, DFX_PICTURE_PROMPT, &to->prompt);
    read_text(args, DFX_PICTURE_OUTPUT, &to->output_path);
    read_text(args, DFX_PICTURE_INIT, &to->init_path);
    read_text(args, DFX_PICTURE_MASK, &to->mask_path);
    to->reuse_check |= dfx_args_given(args, DFX_PICTURE_REUSE_CHECK);
    to->no_metadata |= dfx_args_given(args, DFX_PICTURE_NO_METADATA);
    return read_loras(args, console, to);
}

static dfx_status check_together(const dfx_picture_options *p, dfx_console *console) {
    int64_t width = p->width / DFX_SIZE_MULTIPLE * DFX_SIZE_MULTIPLE;
    int64_t height = p->height / DFX_SIZE_MULTIPLE * DFX_SIZE_MULTIPLE;
    if (width * height > DFX_PIXELS_MAX)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "--size %dx%d: wanted at most %d pixels, found %" PRId64, p->width,
                                p->height, DFX_PIXELS_MAX, width * height);
    if (p->has_seed && p->seed > UINT64_MAX - (uint64_t)(p->n_pictures - 1))
        return dfx_console_fail(console, DFX_E_USAGE,
                                "--seed %" PRIu64
                                " --count %d: the last seed would be above %" PRIu64,
                                p->seed, p->n_pictures, UINT64_MAX);
    if (p->reuse_check && p->reuse <= 0)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "--reuse-check: wanted --reuse with a number above 0 beside it");
    if (p->strength == 0)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "--strength 0: wanted more than 0; it would leave no step to make");
    if (p->strength > 0 && !p->init_path)
        return dfx_console_fail(console, DFX_E_USAGE,
                                "--strength: wanted --init with it, the picture to begin with");
    return DFX_OK;
}

/* Below 2^32, since noise depends on the low 32 bits alone; the seeds of the whole batch too. */
static dfx_status draw_seed(dfx_picture_options *picture, dfx_console *console) {
    uint32_t drawn;
    if (getrandom(&drawn, sizeof(drawn), 0) != sizeof(drawn))
        return dfx_console_fail(console, DFX_E_IO,
                                "no random numbers from the system; give --seed");
    picture->seed = drawn % (UINT32_MAX - (uint32_t)DFX_PICTURES_MAX);
    return DFX_OK;
}

dfx_status dfx_picture_options_settle(dfx_picture_options *p, dfx_console *console) {
    DFX_OR_RETURN(check_together(p, console));
    DFX_OR_RETURN(dfx_output_init(&p->output, console, p->output_path, p->n_pictures));
    p->output.with_seed |= p->seed_in_name && !p->output.to_stdout;
    if (!p->has_seed)
        DFX_OR_RETURN(draw_seed(p, console));
    DFX_OR_RETURN(dfx_output_check(&p->output, console, p->seed, p->n_pictures));
    return dfx_init_files_read(console, p->init_path, p->mask_path, &p->init);
}
