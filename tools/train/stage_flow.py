"""The denoiser's two stages: rectified flow on captioned latents, then guidance distilled into the
weights.

Rectified flow: x = (1 - sigma) z + sigma noise, and the velocity to learn is noise - z. Distilling:
a frozen copy's guided velocity u + w (c - u), of its answers to the caption (c) and to none (u), is
the target instead.
"""
import copy
import math
from random import Random

import torch
from torch import Tensor

from budget import Budget
from data import Captioned, rows_by_size
from denoiser import Denoiser, longer, padded_ids
from draw import draw_bytes
from flux import pack, rope_table
from log import Log
from optimiser import Optimiser
from recipe import Recipe
from sampler import from_bytes
from scene import take
from vae import FACTOR, Vae
from vocabularies import Encoder as Tokenizers

USUAL_TOKENS = 256 + 64    # of a picture of 256 pixels with 64 T5 tokens


class Batches:
    """All scenes' latents and captions on the device, and random batches of them. Both stages share
    one, since drawing and encoding the scenes takes long; each begins with reseed()."""

    def __init__(self, recipe: Recipe, data: Captioned, vae: Vae, device: torch.device) -> None:
        self.recipe, self.device = recipe, device
        self._rows = rows_by_size(len(data.scenes["sky"]), recipe)
        self._latents = {size: _latents(vae, data, rows, size, device)
                         for size, rows in self._rows.items()}
        self._clip = torch.from_numpy(data.clip).to(device)
        self._t5 = torch.from_numpy(data.t5).to(device)
        clip, self.empty_t5 = padded_ids(Tokenizers(), [""], device)
        self.empty_clip = clip[:, :data.clip.shape[-1]]
        self._ropes: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}

    def reseed(self, seed: int) -> None:
        """What next() gives from now on depends on the seed alone."""
        self.g, self.r = torch.Generator(self.device).manual_seed(seed), Random(seed)

    def next(self) -> tuple[Tensor, Tensor, Tensor, tuple[Tensor, Tensor]]:
        """Latents [B, Ti, 64], ids clip [B, longest] and t5 [B, Tt], rope table. One shape a batch;
        some captions empty."""
        recipe, g = self.recipe, self.g
        size, t5_length, _ = self.r.choices(recipe.shapes, [s[2] for s in recipe.shapes])[0]
        latents = self._latents[size]
        n = max(1, recipe.flow_batch * USUAL_TOKENS // (latents.shape[1] + t5_length))
        rows = torch.randint(0, len(latents), (n,), device=self.device, generator=g)
        which = torch.randint(0, recipe.captions, (n,), device=self.device, generator=g)
        empty = torch.rand(n, 1, device=self.device, generator=g) < recipe.p_empty
        scene = rows + self._rows[size].start
        clip = torch.where(empty, self.empty_clip, self._clip[scene, which].long())
        t5 = torch.where(empty, self.empty_t5, self._t5[scene, which].long())
        return latents[rows].float(), clip, longer(t5, t5_length), self._rope(t5_length, size)

    def _rope(self, t5_length: int, size: int) -> tuple[Tensor, Tensor]:
        if (t5_length, size) not in self._ropes:
            side = size // (2 * FACTOR)
            self._ropes[t5_length, size] = rope_table(t5_length, side, side, self.device)
        return self._ropes[t5_length, size]


@torch.no_grad()
def _latents(vae: Vae, data: Captioned, rows: slice, size: int, device: torch.device) -> Tensor:
    """Normalised latents of some scenes as tokens, bfloat16 [n, Ti, 64]. Pictures are drawn and
    forgotten."""
    encoder = copy.deepcopy(vae.encoder).to(torch.bfloat16)
    out = []
    for a in range(rows.start, rows.stop, 128):
        part = take(data.scenes, slice(a, min(a + 128, rows.stop)))
        mean, _ = encoder(from_bytes(draw_bytes(part, device, size), torch.bfloat16))
        out.append(pack((mean.float() - vae.shift) * vae.scaling).to(torch.bfloat16))
    return torch.cat(out)


def train_flow(recipe: Recipe, seed: int, budget: Budget, batches: Batches, compiled: bool,
               log: Log) -> Denoiser:
    """From fresh weights to the mean of the last steps."""
    torch.manual_seed(seed)
    batches.reseed(seed)
    denoiser = Denoiser(Tokenizers()).to(batches.device)

    def course(step: int, done: float) -> float:
        """A rise, level for three tenths, then a cosine down to 8 %."""
        fall = max(0., (done - .3) / .7)
        level = .08 + .92 * (.5 + .5 * math.cos(math.pi * fall))
        return recipe.flow_lr * min(1., (step + 1) / recipe.flow_warm_up) * level + 1e-6

    return _train("flow", denoiser, None, course, .999, recipe, budget, batches, compiled, log)


def train_guide(recipe: Recipe, seed: int, budget: Budget, denoiser: Denoiser, batches: Batches,
                compiled: bool, log: Log) -> Denoiser:
    """The denoiser goes on from its own guided answers; leaves the one handed in as it is."""
    batches.reseed(seed)
    teacher = copy.deepcopy(denoiser).to(torch.bfloat16).requires_grad_(False)

    def course(step: int, done: float) -> float:
        return recipe.guide_lr * min(1., (step + 1) / 30) * (1 - done) + 1e-6

    return _train("guide", copy.deepcopy(denoiser), teacher, course, .99, recipe, budget, batches,
                  compiled, log)


def _train(name: str, denoiser: Denoiser, teacher: Denoiser | None, course, mean_decay: float,
           recipe: Recipe, budget: Budget, batches: Batches, compiled: bool, log: Log) -> Denoiser:
    plain = copy.deepcopy(denoiser)    # compiled blocks stay behind here
    optimiser = Optimiser(denoiser.train(), (.9, .98), .01, mean_decay, muon=True)
    if compiled:
        _compile(denoiser, len(recipe.shapes))
    smooth, n_samples = None, 0
    for step, done in budget:
        z, clip, t5, rope = batches.next()
        sigma = _sigmas(len(z), batches.g)
        noise = torch.randn(z.shape, device=z.device, generator=batches.g)
        x = torch.lerp(z, noise, sigma[:, None, None]).to(torch.bfloat16)
        target = noise - z
        if teacher is not None:
            target = _guided(teacher, x, sigma, clip, t5, rope, batches, recipe.guidance)
        loss = (denoiser(x, sigma, clip, t5, rope) - target).square().mean()
        loss.backward()
        optimiser.step(course(step, done))
        smooth = loss.detach() if smooth is None else smooth * .99 + loss.detach() * .01
        n_samples += len(z)
        if log.due():
            log(name, step=step, done=done, samples=n_samples, loss=smooth.item())
            if not math.isfinite(smooth.item()):
                raise ArithmeticError(f"{name}: the loss is not finite at step {step}")
    log(f"{name} done", steps=step + 1, samples=n_samples, loss=smooth.item())
    plain.float().load_state_dict(optimiser.mean())
    return plain.eval()


def _compile(denoiser: Denoiser, n_shapes: int) -> None:
    """The blocks, each kind once for each shape, which past torch's limit would run plainly. Not
    the teacher's: in its few steps it would not win back the time."""
    torch._dynamo.config.recompile_limit = max(torch._dynamo.config.recompile_limit, n_shapes)
    for block in [*denoiser.transformer.transformer_blocks,
                  *denoiser.transformer.single_transformer_blocks]:
        block.compile(dynamic=False)


def _sigmas(n: int, g: torch.Generator) -> Tensor:
    """[n]: logistic of a normal, a little to the noisy side; 15 % uniform, so that no level is
    forgotten."""
    normal = torch.sigmoid(.3 + torch.randn(n, device=g.device, generator=g))
    uniform = torch.rand(n, device=g.device, generator=g)
    chosen = torch.rand(n, device=g.device, generator=g) < .15
    return torch.where(chosen, uniform, normal)


@torch.no_grad()
def _guided(teacher: Denoiser, x: Tensor, sigma: Tensor, clip: Tensor, t5: Tensor,
            rope: tuple[Tensor, Tensor], batches: Batches, guidance: float) -> Tensor:
    n = len(x)
    empty_t5 = longer(batches.empty_t5, t5.shape[1]).expand(n, -1)
    conditional = teacher(x, sigma, clip, t5, rope)
    unconditional = teacher(x, sigma, batches.empty_clip.expand(n, -1), empty_t5, rope)
    return unconditional + guidance * (conditional - unconditional)
