#!/usr/bin/env python3
"""Make init.safetensors beside this file: image to image and inpainting by diffusers, in f32 on the CPU.

    pip install torch diffusers transformers accelerate
    python3 tests/golden/make_init.py

The pipelines are called as they are, with one change: the encoder's posterior gives its mean instead of a sample, so that the
generator's first draw is the noise. Weights are those of weights.json; text goes in as the embeddings of e2e.safetensors, case
e2e0. The init picture has the value (5 x + 3 y + 80 c + x y // 16) mod 256 at column x, row y, channel c.
"""
import json
import pathlib
import types

import diffusers
import numpy as np
import PIL.Image
import torch
from diffusers.pipelines.flux import pipeline_flux_img2img, pipeline_flux_inpaint
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).resolve().parent
WIDTH, HEIGHT = 80, 64
SEED = 1234
GUIDANCE = 3.5
# name, steps, strength, masked
CASES = [("img2img", 5, 0.6, False), ("inpaint", 4, 0.85, True)]


def values(key, spec):
    n = int(np.prod(spec["shape"]))
    h = 0xCBF29CE484222325
    for byte in key.encode():
        h = (h ^ byte) * 0x100000001B3 & (1 << 64) - 1
    with np.errstate(over="ignore"):
        z = np.uint64(h) + (np.arange(n, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    k = (z >> np.uint64(32)) % np.uint64(15)
    out = spec["base"] + (k.astype(np.float64) - 7) * 2.0 ** -spec["e"]
    return torch.from_numpy(out.astype(np.float32).reshape(spec["shape"]))


def load(cls, component):
    model = cls.from_config(cls.load_config(HERE / "tiny-dev" / component)).eval()
    rule = json.loads((HERE / "weights.json").read_text())["components"][component]
    model.load_state_dict({name: values(f"{component}/{name}", spec) for name, spec in rule.items()})
    return model


def init_picture():
    y, x, c = np.mgrid[0:HEIGHT, 0:WIDTH, 0:3]
    return PIL.Image.fromarray(((5 * x + 3 * y + 80 * c + x * y // 16) % 256).astype(np.uint8))


def mask_picture():
    """Grey values on both sides of 128, edges off the latents' grid."""
    mask = np.full((HEIGHT, WIDTH), 127, np.uint8)
    mask[5:43, 11:62] = 128
    mask[20:36, 24:40] = 0
    return PIL.Image.fromarray(mask)


def mean_latents(encoder_output, generator=None, sample_mode="sample"):
    return encoder_output.latent_dist.mode()


def run(case, parts, embeds):
    name, steps, strength, masked = case
    cls = diffusers.FluxInpaintPipeline if masked else diffusers.FluxImg2ImgPipeline
    pipe = cls(scheduler=diffusers.FlowMatchEulerDiscreteScheduler.from_pretrained(HERE / "tiny-dev" / "scheduler"),
               text_encoder=None, tokenizer=None, text_encoder_2=None, tokenizer_2=None, **parts)
    pipe.set_progress_bar_config(disable=True)
    out = {}

    def keep(_pipe, i, _t, tensors):
        out[f"{name}.x{i + 1}"] = tensors["latents"][0].clone()
        return tensors

    kwargs = {"mask_image": mask_picture()} if masked else {}
    picture = pipe(image=init_picture(), width=WIDTH, height=HEIGHT, strength=strength, num_inference_steps=steps,
                   guidance_scale=GUIDANCE, generator=torch.Generator("cpu").manual_seed(SEED),
                   output_type="np", callback_on_step_end=keep, **embeds, **kwargs).images[0]
    out[f"{name}.image_u8"] = torch.from_numpy(np.rint(picture * 255).astype(np.float32))
    print(name, "steps made:", len(out) - 1)
    return out


def main():
    e2e = load_file(HERE / "e2e.safetensors")
    embeds = {"prompt_embeds": e2e["e2e0.in.prompt_embeds"].reshape(1, 64, 64),
              "pooled_prompt_embeds": e2e["e2e0.in.pooled"].reshape(1, 64)}
    parts = {"transformer": load(diffusers.FluxTransformer2DModel, "transformer"),
             "vae": load(diffusers.AutoencoderKL, "vae")}
    pipeline_flux_img2img.retrieve_latents = mean_latents
    pipeline_flux_inpaint.retrieve_latents = mean_latents
    out = {}
    for case in CASES:
        out |= run(case, parts, embeds)
    vae = parts["vae"]
    picture = torch.from_numpy(np.asarray(init_picture()).astype(np.float32) / 255 * 2 - 1).permute(2, 0, 1)[None]
    with torch.no_grad():
        z = (vae.encode(picture).latent_dist.mode() - vae.config.shift_factor) * vae.config.scaling_factor
    out["z"] = pipeline_flux_img2img.FluxImg2ImgPipeline._pack_latents(z, 1, *z.shape[1:])[0].clone()
    out["steps"] = torch.tensor(first_steps(), dtype=torch.float32)
    save_file({name: value.contiguous() for name, value in out.items()}, HERE / "init.safetensors")


def first_steps():
    """Rows of steps, strength in hundredths, first step, as the pipeline counts."""
    rows = []
    for steps in (1, 2, 4, 7, 10, 20, 28, 50):
        pipe = types.SimpleNamespace(scheduler=diffusers.FlowMatchEulerDiscreteScheduler())
        pipe.scheduler.set_timesteps(steps)
        for hundredths in range(5, 101, 5):
            _, made = diffusers.FluxImg2ImgPipeline.get_timesteps(pipe, steps, hundredths / 100, "cpu")
            rows.append([steps, hundredths, steps - made])
    return rows


main()
