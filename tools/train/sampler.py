"""Pictures of captions: Euler steps down the shifted sigmas of FLUX.1, from the noise that torch
draws for a seed on the CPU."""
import numpy as np
import torch
from torch import Tensor

from denoiser import Denoiser, padded_ids
from flux import pack, rope_table, unpack
from vae import FACTOR, LATENT_CHANNELS, Vae
from vocabularies import T5_LENGTH
from vocabularies import Encoder as Tokenizers

SHIFT = 3.0


def sigmas(steps: int) -> Tensor:
    """[steps + 1], from 1 down to 0."""
    s = torch.linspace(1, 1 / steps, steps)
    return torch.cat((SHIFT * s / (1 + (SHIFT - 1) * s), torch.zeros(1)))


@torch.no_grad()
def paint(denoiser: Denoiser, vae: Vae, captions: list[str], seeds: list[int], steps: int,
          device: torch.device, size: int = 256, batch: int = 50) -> np.ndarray:
    """uint8 [n, size, size, 3]."""
    tokenizers, side, out = Tokenizers(), size // FACTOR, []
    rope = rope_table(T5_LENGTH, side // 2, side // 2, device)
    levels = sigmas(steps)
    for a in range(0, len(captions), batch):
        clip, t5 = padded_ids(tokenizers, captions[a:a + batch], device)
        noise = [_noise(seed, side) for seed in seeds[a:a + batch]]
        x = pack(torch.stack(noise)).to(device)
        for now, then in zip(levels[:-1], levels[1:]):
            sigma = now.to(device).expand(len(x))
            x = x + (then - now).item() * denoiser(x, sigma, clip, t5, rope)
        picture = vae.decoder(unpack(x, side, side) / vae.scaling + vae.shift)
        out.append(to_bytes(picture).permute(0, 2, 3, 1).cpu().numpy())
    return np.concatenate(out)


def _noise(seed: int, side: int) -> Tensor:
    """[16, side, side]"""
    return torch.randn(LATENT_CHANNELS, side, side, generator=torch.Generator().manual_seed(seed))


def to_bytes(picture: Tensor) -> Tensor:
    """-1..1 to uint8."""
    return picture.clamp(-1, 1).add(1).mul(127.5).add(.5).to(torch.uint8)


def from_bytes(picture: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """uint8 to -1..1."""
    return picture.to(dtype).div(127.5).sub(1)
