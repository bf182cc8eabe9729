"""Training data: scenes with several captions each, made by a pool of processes; pictures in
several sizes.

To be called before the GPU is first used: the pool's processes are forks.
"""
from dataclasses import dataclass
import multiprocessing as mp
from random import Random

import numpy as np

from caption import caption, make_request
from recipe import Recipe
from scene import Scenes, concat, sample
from vocabularies import CLIP_LENGTH, T5_LENGTH, T5_PAD_ID, Encoder

CHUNK = 1000


@dataclass
class Captioned:
    """n scenes, k captions each."""
    scenes: Scenes
    clip: np.ndarray    # int16 [n, k, longest], ended and padded by the end token
    t5: np.ndarray      # int16 [n, k, 64], padded by 0


def make(recipe: Recipe, seed: int) -> Captioned:
    """The same for the same recipe and seed, whatever the number of processes."""
    jobs = [(recipe, [seed, first], min(CHUNK, recipe.scenes - first))
            for first in range(0, recipe.scenes, CHUNK)]
    with mp.get_context("fork").Pool() as pool:
        parts = pool.map(_make_chunk, jobs, chunksize=1)
    clip = np.concatenate([p.clip for p in parts])
    # CLIP is causal: positions after every caption's end change nothing
    longest = int((clip != clip[0, 0, -1]).sum(-1).max()) + 1
    return Captioned(concat([p.scenes for p in parts]), clip[..., :longest],
                     np.concatenate([p.t5 for p in parts]))


def _make_chunk(job: tuple[Recipe, list[int], int]) -> Captioned:
    recipe, seed, n = job
    rng, r, encode = np.random.default_rng(seed), Random(str(seed)), Encoder()
    scenes = sample(rng, n)
    clip = np.full((n, recipe.captions, CLIP_LENGTH), encode.eos, np.int16)
    t5 = np.full((n, recipe.captions, T5_LENGTH), T5_PAD_ID, np.int16)
    for i in range(n):
        for j in range(recipe.captions):
            text = caption(make_request(scenes, i, r), r)
            clip_ids, t5_ids = encode(text, r, recipe.p_junk)
            clip[i, j, :len(clip_ids)], t5[i, j, :len(t5_ids)] = clip_ids, t5_ids
    return Captioned(scenes, clip, t5)


def rows_by_size(n: int, recipe: Recipe) -> dict[int, slice]:
    """n scenes divided among the picture sides by their shares; each side gets one at least."""
    out, at, share_so_far = {}, 0, 0.
    for size, share in recipe.sizes().items():
        share_so_far += share
        end = max(at + 1, round(n * share_so_far))
        out[size] = slice(at, end)
        at = end
    return out
