/* The goldens of the models on a device with BF16 activations. Goldens are F32; what a value may be off by:
 *
 * Storing a value in BF16 moves it by 2^-8 of itself at the most, 1.7e-3 root mean square over all mantissas. A block makes some
 * ten roundings one after the other, not all of a whole sum: about 6e-3 when they add up at random. Later blocks add to a
 * residual sum that is itself rounded each time, the VAE's thirty convolutions to half as much again and more. Seen on an H200,
 * and within a tenth of that with the CPU's ops rounded to BF16 (test_device_checks): at most 7e-3 in the transformer, 6e-3 in
 * the text encoders, 1.5e-2 in the decoder's picture; a wrong operand gives 4e-2 to 1. So each value between is held to 2e-2.
 * Timestep and guidance reach the device as F32: in BF16 they alone would be off by more.
 *
 * Latents over the steps of a picture are x = x0 + sum of dt_i v_i with sum |dt_i| = 1, and v is about as large as x. Each v is off
 * by what a step is, and by what the x that it was made from is off; weighed by dt the errors of all steps together are no more
 * than that of one v that is off all the way: the same 2e-2 (seen: v 6.5e-3, x 4.1e-3 after four steps, picture 1.1e-2). */
#include "tests/device_checks.h"

#include <stdio.h>

#include "tests/golden_clip.h"
#include "tests/golden_lora.h"
#include "tests/golden_pipeline.h"
#include "tests/golden_t5.h"
#include "tests/golden_vae.h"
#include "tests/tiny.h"

static const double TOLERANCE = 2e-2;

enum { TEXT_BYTES = 256 };

bool device_write_models(tmpdir *dir) {
    char path[TMPDIR_PATH];
    static const char *const names[] = {"dev", "schnell", "g32", "g8"};
    for (size_t i = 0; i < DFX_COUNT(names); i++)
        tmpdir_mkdir(dir, names[i]);
    return tiny_write_model(tmpdir_join(dir, "dev", path), TINY_DEV) == DFX_OK &&
           tiny_write_model(tmpdir_join(dir, "schnell", path), TINY_SCHNELL) == DFX_OK &&
           tiny_write_vae(tmpdir_join(dir, "g32", path), 32) == DFX_OK &&
           tiny_write_vae(tmpdir_join(dir, "g8", path), 8) == DFX_OK;
}

/* One line of golden_cases: a part of the models and which case of it. */
typedef struct golden_case {
    const char *name;
    void (*run)(model_rig *r, int arg);
    int arg;
} golden_case;

static void run_clip_layers(model_rig *r, int arg) {
    golden_clip_layers(r);
}

static void run_clip_pooled(model_rig *r, int arg) {
    golden_clip_pooled(r);
}

static void run_t5_blocks(model_rig *r, int arg) {
    golden_t5_blocks(r);
}

static void run_t5_long(model_rig *r, int arg) {
    golden_t5_long(r);
}

static void run_flux(model_rig *r, int arg) {
    golden_flux(r, &GOLDEN_FLUX_CASES[arg]);
}

static void run_lora(model_rig *r, int arg) {
    golden_lora(r, &GOLDEN_LORA_CASES[arg]);
}

static void run_pipeline(model_rig *r, int arg) {
    golden_pipeline(r, &GOLDEN_PIPE_CASES[arg]);
}

static void run_pipeline_of_ids(model_rig *r, int arg) {
    golden_pipeline_of_ids(r, &GOLDEN_PIPE_CASES[arg], true);
}

static const golden_case golden_cases[] = {
    {"clip, every layer of 3 prompts", run_clip_layers, 0},
    {"clip, pooled row", run_clip_pooled, 0},
    {"t5, every block of 2 prompts", run_t5_blocks, 0},
    {"t5, 300 tokens", run_t5_long, 0},
    {"flux dev 4x4, every block", run_flux, 0},
    {"flux dev 3x5, every block", run_flux, 1},
    {"flux dev 8x12", run_flux, 2},
    {"flux dev, batch of 2", run_flux, 3},
    {"flux schnell 4x4, every block", run_flux, 4},
    {"flux schnell 5x2", run_flux, 5},
    {"flux with a LoRA at 0.7, 3x5", run_lora, 5},
    {"flux with a dense LoRA on all layers", run_lora, 8},
    {"flux with two LoRAs", run_lora, 10},
    {"vae decoder, 32 groups", golden_vae_decode, 32},
    {"vae decoder, 8 groups", golden_vae_decode, 8},
    {"vae encoder, 32 groups", golden_vae_encode, 32},
    {"vae encoder, 8 groups", golden_vae_encode, 8},
    {"pipeline dev, 4 steps", run_pipeline, 0},
    {"pipeline schnell, 4 steps", run_pipeline, 1},
    {"pipeline dev, 2 pictures of 2 steps", run_pipeline, 2},
    {"pipeline dev from ids, 4 steps", run_pipeline_of_ids, 3},
    {"pipeline schnell from ids, 2 steps", run_pipeline_of_ids, 4},
    {"pipeline dev from ids, 512 tokens, 3 steps", run_pipeline_of_ids, 5},
};

typedef struct tally {
    device_checks *c;
    size_t n_off;
} tally;

static void count_off(void *user, const char *what, double error, double tolerance) {
    tally *t = user;
    char text[TEXT_BYTES];
    snprintf(text, sizeof(text), "error %.2e of %.1e at %s", error, tolerance, what);
    t->c->note(t->c->user, t->c->name, text);
    t->n_off++;
}

static void run_case(device_checks *c, const golden_case *g) {
    char name[TEXT_BYTES], why[TEXT_BYTES];
    snprintf(name, sizeof(name), "GOLDEN %s", g->name);
    if (!c->wanted(c->user, name))
        return;
    tally t = {.c = c};
    c->name = name;
    model_rig *r = mrig_open_on(c->backend, c->sink, c->dir);
    r->tolerance = TOLERANCE;
    r->off = count_off;
    r->off_user = &t;
    g->run(r, g->arg);
    snprintf(why, sizeof(why), "error %.2e of %.1e, worst of %zu: %s", r->worst, TOLERANCE,
             r->n_compared, r->worst_of ? r->worst_of : "none");
    c->verdict(c->user, name, t.n_off == 0 && r->n_compared > 0, why);
    mrig_close(r);
    c->name = NULL;
}

void device_goldens(device_checks *c) {
    for (size_t i = 0; i < DFX_COUNT(golden_cases); i++)
        run_case(c, &golden_cases[i]);
}
