/* dfx-edge: FLUX.1 pictures inside a memory budget. The public C API, which the dfx-edge program itself uses.
 *
 *     dfx_model *model;
 *     dfx_image image;
 *     dfx_open_options options = {.model_path = "FLUX.1-schnell", .sink = {.say = my_say}};
 *     dfx_request request;
 *     if (dfx_model_open(&options, &model) == DFX_OK) {
 *         dfx_request_init(model, &request);            // the model's defaults
 *         request.prompt = "a cat holding a sign";
 *         request.seed = 7;
 *         if (dfx_generate(model, &request, &image) == DFX_OK) {
 *             dfx_image_save_png(&image, "cat.png", &options.sink);
 *             dfx_image_free(&image);
 *         }
 *         dfx_model_close(model);
 *     }
 *
 * Every failing call says one sentence to the sink and returns a negative status; only DFX_E_CANCELLED comes without one,
 * since it was asked for. Link with -ldfx.
 * A model serves one thread at a time. */
#ifndef DFX_MODELS_DFX_H
#define DFX_MODELS_DFX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

typedef struct dfx_model dfx_model;

typedef enum dfx_device_choice {
    DFX_DEVICE_AUTO,
    DFX_DEVICE_CPU,
    DFX_DEVICE_CUDA
} dfx_device_choice;

typedef struct dfx_open_options {
    /* A packed model; or a diffusers folder, or a file with a FLUX transformer in it (safetensors, GGUF), which is packed once
     * into the cache, together with the files that follow. */
    const char *model_path;
    /* Files for parts that model_path has not, or instead of those that it has; NULL: none. */
    const char *vae_path, *clip_path, *t5_path;
    /* For single files: a folder with tokenizer/ and tokenizer_2/ in it, or a packed model. NULL: the ones that were left in the
     * cache by an earlier use of it. */
    const char *tokenizer_path;
    dfx_device_choice device; /* AUTO: the best that this build and machine have */
    int device_index;         /* of CUDA, from 0 as the driver lists them; 0 beside AUTO and CPU */
    int n_threads;            /* 0: one for each usable core */
    /* Bounds what the device holds: weights, activations, state and workspace; on a GPU all that the driver counts for this
     * process, with context and libraries. 0: what the device has. */
    uint64_t vram_budget_bytes;
    /* Bounds pinned host memory. 0: what the machine has. */
    uint64_t ram_budget_bytes;
    /* Where weights come from that do not stay on the device: "ram" (pinned memory), "nvme" (read for each use), "auto"
     * (pinned memory as far as the RAM budget goes), "none" (all must stay). NULL: auto. */
    const char *offload;
    /* Number format of a folder or file that is packed: "auto", "bf16", "int8", "int8wo", "fp8". NULL: auto. A packed model has
     * that which it has; another one is DFX_E_USAGE. */
    const char *quant;
    /* Of the denoiser's attention: 16, or 8: over int8 and fp8 codes, which GPUs multiply faster; another picture, close to it.
     * 0: 16. */
    int attention_bits;
    /* Machine profile that plans are made from: a shipped one's name or a file. NULL: the one that was measured on this
     * device, else the shipped one that is nearest. It changes what streams, never the picture. */
    const char *profile;
    bool
        verify_always; /* check a page's checksum on every read, not only on its first; embedding tables at open */
    /* LoRAs that requests will name: so much room is made beside the layers that these fit all at once, and lora_max files of
     * rank lora_max_rank. Zeros and no paths: requests name none. A NULL between paths begins another list, so that each list fits,
     * and not all of them at once; it counts in n_loras. Paths are borrowed for the call. */
    const char *const *loras;
    int n_loras, lora_max_rank, lora_max;
    /* A timeline of stages, ops, copies and reads: Chrome's trace JSON, which Perfetto shows. Written anew after each picture
     * and when the model is closed. NULL: none. */
    const char *trace_path;
    /* While a folder is packed; both may be NULL. */
    void (*packing)(void *user, uint64_t done_bytes, uint64_t all_bytes);
    bool (*cancelled)(void *user);
    void *user;
    dfx_sink sink; /* copied */
} dfx_open_options;

/* Reads configurations, tokenizers and tensor tables and checks them against each other: every tensor that is wanted is
 * there and has the right shape. Weights begin to be read, those that the first picture wants first; nothing waits for them.
 * Errors: DFX_E_USAGE, DFX_E_IO, DFX_E_FORMAT (not a model that we run), DFX_E_DEVICE, DFX_E_NOFIT. */
dfx_status dfx_model_open(const dfx_open_options *options, dfx_model **out);
void dfx_model_close(dfx_model *model); /* NULL is fine */

typedef struct dfx_model_info {
    const char *name;   /* of the folder, or as its dfx.json says; borrowed from the model */
    const char *kind;   /* "FLUX.1 dev" or "FLUX.1 schnell"; borrowed */
    const char *device; /* "cpu" or "cuda"; borrowed */
    const char *path;   /* of the packed file; borrowed */
    bool has_guidance;  /* false: the guidance of a request is ignored */
    int steps;          /* defaults of a request */
    int width, height;  /* pixels */
    int text_length;    /* T5 tokens */
    int max_text_length;
    uint64_t weight_bytes; /* of all components, as stored */
    uint64_t n_parameters;
} dfx_model_info;
void dfx_model_describe(const dfx_model *model, dfx_model_info *out);

typedef enum dfx_stage {
    DFX_STAGE_TEXT,
    DFX_STAGE_ENCODE, /* of an init picture */
    DFX_STAGE_DENOISE,
    DFX_STAGE_DECODE,
    DFX_N_STAGES
} dfx_stage;
const char *dfx_stage_name(dfx_stage stage); /* "text", "encode", "denoise", "decode" */

typedef struct dfx_progress {
    dfx_stage stage;
    int step, n_steps;    /* steps done of the stage; 0 of n when it begins */
    int n_reused;         /* of them, those that did without most blocks, in all pictures at hand */
    double stage_seconds; /* since the stage began */
    /* It works on pictures [picture, picture + n_together) of the call's n_pictures. */
    int picture, n_together, n_pictures;
} dfx_progress;

enum {
    DFX_SIZE_MULTIPLE = 16,
    DFX_SIDE_MAX = 16384,
    DFX_PIXELS_MAX = 1 << 24, /* 4096 x 4096 */
    DFX_STEPS_MAX = 1000,
    DFX_PROMPT_BYTES_MAX = 1 << 20,
    DFX_INIT_PIXELS_MAX = 1 << 28,
};

typedef struct dfx_image dfx_image;

/* A LoRA file, or a folder with one, and how much of it. */
typedef struct dfx_lora_use {
    const char *path; /* borrowed for the call */
    float strength;   /* finite; 0: as if it were not named */
} dfx_lora_use;

typedef struct dfx_request {
    const char *
        prompt; /* UTF-8, at most DFX_PROMPT_BYTES_MAX bytes; borrowed for the call. Bad UTF-8 becomes U+FFFD */
    int width, height; /* pixels; rounded down to multiples of 16, with a warning */
    int steps;         /* [1, DFX_STEPS_MAX] */
    float guidance;    /* >= 0, finite */
    int text_length; /* T5 tokens, [1, max_text_length]; padding is attended to, so it changes the picture */
    /* Image to image: the picture to begin with, [init_height][init_width][3], borrowed for the call; its middle is scaled to the
     * size. NULL: none, and nothing of this counts. */
    const uint8_t *init_rgb;
    int init_width, init_height;
    double
        strength; /* (0, 1]: this part of the steps is made; 1 keeps nothing but what the mask keeps */
    /* Inpainting, [init_height][init_width]: 128 and up is painted anew, what is below stays. NULL: all is painted. */
    const uint8_t *mask;
    /* Finite. Above 0: steps whose first block adds almost what it added in the last step that was whole do without the other
     * blocks: sum |r - r'| < reuse * sum |r'|. Never the first or the last step, nor more than three in a row. Another picture,
     * and faster. 0: all steps are whole. */
    float reuse;
    uint64_t
        seed; /* the noise is torch.randn's for this seed; only the low 32 bits matter, as in torch */
    /* Their changes add up, whatever the order. Another list than before changes no more than a block of the device's memory. */
    const dfx_lora_use *loras;
    int n_loras;
    void (*progress)(void *user, const dfx_progress *progress); /* may be NULL */
    bool (*cancelled)(void *user); /* may be NULL; polled often, from any thread */
    /* A picture is finished, *image is its place in `out`; may be NULL. It may be saved here, and freed, which leaves zeros in
     * `out`. Any status but DFX_OK ends the call with it. */
    dfx_status (*made)(void *user, dfx_image *image);
    void *user;
} dfx_request;

/* The model's defaults, an empty prompt, seed 0, no init picture, strength 0.6. */
void dfx_request_init(const dfx_model *model, dfx_request *out);

/* A width or height of 0 becomes that of the init picture: scaled down to as many pixels as the model's default size has where it
 * has more, or by as much as the other side is; then the nearest multiple of 16. */
void dfx_request_size_of_init(const dfx_model *model, dfx_request *request);

/* A PNG or JPEG file as RGB [height][width][3], or grey [height][width]: alpha over white, 16 bits to 8, upright as EXIF says; not
 * more than DFX_INIT_PIXELS_MAX pixels. *values from the library: dfx_buffer_free. Errors: DFX_E_IO, DFX_E_FORMAT, DFX_E_NOFIT. */
dfx_status dfx_picture_read_rgb(const char *path, const dfx_sink *sink, uint8_t **values,
                                int *width, int *height);
dfx_status dfx_picture_read_grey(const char *path, const dfx_sink *sink, uint8_t **values,
                                 int *width, int *height);

/* Everything that can be refused about a request is refused here, before anything is computed; pixels are not looked at.
 * dfx_generate calls it. Errors: DFX_E_USAGE naming the field, wanted and found; DFX_E_NOFIT with the smallest budget that would
 * do. */
dfx_status dfx_request_check(dfx_model *model, const dfx_request *request);

/* The same for dfx_generate_batch, which calls it. */
dfx_status dfx_request_check_batch(dfx_model *model, const dfx_request *request, int n_pictures);

/* The same to ask about many requests beforehand: memory is planned, not taken, and what the last request has left stays. */
dfx_status dfx_request_look(dfx_model *model, const dfx_request *request, int n_pictures);

struct dfx_image {
    int width, height;
    uint8_t *rgb; /* [height][width][3], owned by the image */
    uint64_t seed;
    int steps, text_length;
    float guidance;         /* as used; 0 when the model has none */
    float reuse;            /* as asked for */
    int n_reused;           /* steps that did without most blocks */
    int attention_bits;     /* 16 or 8 */
    double strength;        /* 0: there was no init picture */
    uint64_t init_checksum; /* of its values: XXH3 */
    bool has_mask;
    /* Of what was done for several pictures together each has an equal share: the sums are those of the call. */
    double stage_seconds[DFX_N_STAGES]; /* 0 for what was not done again */
    double seconds;                     /* the whole call */
    double compute_seconds;             /* of it, ops running on the device */
    double wait_seconds;                /* of it, ops waiting for pages */
    double disk_wait_seconds;           /* of that, for pages that were not read yet */
    double link_wait_seconds;           /* of that, for pages that were, and were not copied yet */
    uint64_t read_bytes, copied_bytes;  /* from the disk; from host to device */
    uint64_t peak_device_bytes;         /* of the ledger that the budget bounds */
    char *parameters; /* the text of the PNG's "parameters" chunk; owned by the image */
    /* The same as a JSON object, without times: the same picture is the same file. Owned by the image. */
    char *json;
    bool plain; /* set it before saving: the PNG carries no text chunks */
};

/* One picture. Errors: as dfx_request_check; DFX_E_CANCELLED; DFX_E_NUMERIC when a value is not finite; DFX_E_IO. On any
 * error *out is not touched. The same model, request and kind of processor give the same bytes. */
dfx_status dfx_generate(dfx_model *model, const dfx_request *request, dfx_image *out);

/* n pictures of one request, in order: out[i] has the seed request->seed + i and is, bit for bit, what dfx_generate makes of that
 * seed. Where weights are waited for, as many pictures as fit the budget and gain by it go through the denoiser together, and
 * what is brought serves them all; they are decoded one after the other. Text is encoded once. A model that has made fewer at a
 * time may plan anew for more, and read its weights again, once.
 * Errors: as dfx_generate; DFX_E_USAGE for n < 1; what request->made said. On an error, cancellation too, the pictures that were
 * finished before are in `out`, and the others are zeroed. */
dfx_status dfx_generate_batch(dfx_model *model, const dfx_request *request, int n, dfx_image *out);
void dfx_image_free(dfx_image *image); /* zeroed image is fine */

/* The PNG with its parameters, in memory (*out from the library: dfx_buffer_free) or to a file: written under a temporary
 * name and renamed, so that nobody sees half a picture. */
dfx_status dfx_image_encode_png(const dfx_image *image, const dfx_sink *sink, uint8_t **out,
                                size_t *out_bytes);
dfx_status dfx_image_save_png(const dfx_image *image, const char *path, const dfx_sink *sink);
void dfx_buffer_free(void *buffer);

/* Something that the caller has done, from begin_ns until now, as a span of the timeline; nothing where there is none. `name`
 * is copied. dfx_clock_ns: nanoseconds of CLOCK_MONOTONIC. */
void dfx_model_span(dfx_model *model, const char *name, uint64_t begin_ns);
uint64_t dfx_clock_ns(void);

/* Peak of all host memory that the library has held, bytes. */
uint64_t dfx_host_peak_bytes(void);

const char *dfx_version(void); /* "0.1.0" */

#endif
