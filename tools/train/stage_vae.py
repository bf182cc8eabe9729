"""The autoencoder's two stages: encoder and decoder together, then the decoder alone on latents
with noise.

A sampler never ends exactly on a latent that the encoder could have given; the second stage makes
the decoder forgive that.
"""
import copy
import math
from random import Random

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from budget import Budget
from data import rows_by_size
from draw import draw_bytes
from log import Log
from optimiser import Optimiser
from recipe import Recipe
from sampler import from_bytes
from scene import sample, take
from vae import Decoder, Encoder, Vae

WHOLE_FROM = .8    # share of the steps after which windows give way to whole pictures


def train_vae(recipe: Recipe, seed: int, budget: Budget, device: torch.device, log: Log) -> Vae:
    """Mostly on windows, which is cheap; at last on whole pictures, for the attention in the
    middle."""
    torch.manual_seed(seed)
    pictures = _draw_sizes(recipe, recipe.vae_pictures, seed, device)
    sizes = recipe.sizes()
    vae = Vae().to(device)
    optimiser = Optimiser(vae, (.9, .99), 1e-4, .997)
    g, r = torch.Generator(device).manual_seed(seed), Random(seed)
    for step, done in budget:
        size = r.choices(list(sizes), list(sizes.values()))[0]
        window, n = recipe.vae_window, recipe.vae_batch
        if done >= WHOLE_FROM:
            window, n = size, max(1, recipe.vae_batch // 4)
        x = from_bytes(_windows(pictures[size], n, window, g, r))
        mean, log_variance = (t.float() for t in vae.encoder(x.to(torch.bfloat16)))
        log_variance = log_variance.clamp(-20, 10)
        noise = torch.randn(mean.shape, device=device, generator=g)
        z = mean + (log_variance * .5).exp() * noise
        loss, mse = picture_loss(vae.decoder(z.to(torch.bfloat16)).float(), x)
        kl = .5 * (mean.square() + log_variance.exp() - 1 - log_variance).mean()
        (loss + recipe.kl * kl).backward()
        optimiser.step(1.2e-3 * _course(step, done, 200))
        if log.due():
            log("vae", step=step, done=done, window=window, loss=loss.item(),
                psnr=psnr(mse).item(), kl=kl.item())
    vae.float().load_state_dict(optimiser.mean())
    vae.eval()
    z = _encode(vae.encoder, _unseen(recipe, device))
    vae.scaling, vae.shift = round(1 / z.std().item(), 4), round(z.mean().item(), 4)
    log("vae done", scaling=vae.scaling, shift=vae.shift, **measure(vae, recipe, device))
    return vae


def train_decoder(recipe: Recipe, seed: int, budget: Budget, vae: Vae, device: torch.device,
                  log: Log) -> Decoder:
    """Starts from the VAE's decoder and leaves the VAE as it is."""
    pictures = _draw_sizes(recipe, recipe.decoder_pictures, seed, device)
    encoder = copy.deepcopy(vae.encoder).to(torch.bfloat16)
    latents = {size: _encode(encoder, x) for size, x in pictures.items()}
    most = recipe.decoder_noise / vae.scaling    # scaling is one over the latents' deviation
    sizes = recipe.sizes()
    decoder = copy.deepcopy(vae.decoder).train()
    optimiser = Optimiser(decoder, (.9, .99), 1e-4, .998)
    g, r = torch.Generator(device).manual_seed(seed), Random(seed)
    for step, done in budget:
        size = r.choices(list(sizes), list(sizes.values()))[0]
        n = recipe.decoder_batch
        rows = torch.randint(0, len(latents[size]), (n,), device=device, generator=g)
        z = latents[size][rows].float()
        strength = torch.rand(n, 1, 1, 1, device=device, generator=g) * most
        z = z + strength * torch.randn(z.shape, device=device, generator=g)
        x = from_bytes(pictures[size][rows])
        loss, mse = picture_loss(decoder(z.to(torch.bfloat16)).float(), x)
        loss.backward()
        optimiser.step(1e-3 * _course(step, done, 100))
        if log.due():
            log("decoder", step=step, done=done, loss=loss.item(), psnr=psnr(mse).item())
    decoder.float().load_state_dict(optimiser.mean())
    return decoder.eval()


def picture_loss(y: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """(loss, mean square) of pictures y against x [B, 3, h, w]: absolute, of edges, of coarse
    colours, and square."""
    d = x - y
    mse = d.square().mean()
    edges = (d[..., 1:] - d[..., :-1]).abs().mean() + (d[..., 1:, :] - d[..., :-1, :]).abs().mean()
    return d.abs().mean() + .5 * edges + .5 * F.avg_pool2d(d, 4).abs().mean() + 2 * mse, mse


def psnr(mse: Tensor) -> Tensor:
    """In decibel, of pictures in -1..1."""
    return -10 * torch.log10(mse / 4)


@torch.no_grad()
def measure(vae: Vae, recipe: Recipe, device: torch.device) -> dict[str, float]:
    """Peak signal to noise of unseen scenes at 256 pixels, through the latents' means."""
    x = _unseen(recipe, device)
    values = []
    for part in x.split(64):
        y = vae.decoder(vae.encoder(from_bytes(part))[0]).clamp(-1, 1)
        values.append(psnr((from_bytes(part) - y).square().mean((1, 2, 3))))
    all_values = torch.cat(values)
    return {"psnr_mean": all_values.mean().item(), "psnr_min": all_values.min().item()}


def _unseen(recipe: Recipe, device: torch.device) -> Tensor:
    """uint8 [n, 3, 256, 256]: the same in every run."""
    return draw_bytes(sample(np.random.default_rng(777), recipe.test_scenes), device)


@torch.no_grad()
def _encode(encoder: Encoder, pictures: Tensor) -> Tensor:
    """Means of the latents of uint8 pictures, in the encoder's number format."""
    dtype = encoder.conv_in.weight.dtype
    return torch.cat([encoder(from_bytes(part, dtype))[0] for part in pictures.split(64)])


def _draw_sizes(recipe: Recipe, n: int, seed: int, device: torch.device) -> dict[int, Tensor]:
    """n scenes, uint8 [n_size, 3, size, size] by size."""
    scenes = sample(np.random.default_rng(seed), n)
    return {size: draw_bytes(take(scenes, rows), device, size)
            for size, rows in rows_by_size(n, recipe).items()}


def _windows(pictures: Tensor, n: int, window: int, g: torch.Generator, r: Random) -> Tensor:
    """n random pictures' windows [n, 3, window, window], all at the same place."""
    rows = torch.randint(0, len(pictures), (n,), device=pictures.device, generator=g)
    free = pictures.shape[-1] - window + 1
    y, x = r.randrange(free), r.randrange(free)
    return pictures[:, :, y:y + window, x:x + window][rows]


def _course(step: int, done: float, warm_up: int) -> float:
    """Learning rate: a short rise, then a cosine down to a hundredth."""
    return min(1., (step + 1) / warm_up) * (math.cos(math.pi / 2 * done) ** 2 * .99 + .01)
