"""The last stage: what the judge says of drawn scenes, of drawn scenes through the VAE, and of the
exported model's pictures."""
from pathlib import Path
from random import Random

import numpy as np
import torch
from torch import Tensor

import evaluate
import export
import judge
import png
import unseen
from caption import EVERYTHING, make_request
from draw import draw_bytes
from log import Log
from recipe import Recipe
from sampler import from_bytes, paint, to_bytes
from scene import sample
from vae import Vae


def judge_model(recipe: Recipe, folder: Path, images: Path, device: torch.device, log: Log) -> dict:
    """Draws the unseen captions into `images` (SEED.png) and returns all figures."""
    denoiser, vae = export.load(folder, device)
    drawn, decoded = _judge_the_judge(recipe, vae, device)
    log("judge", drawn=drawn["whole"]["rate"], through_vae=decoded["whole"]["rate"])
    entries = unseen.load()[:recipe.judged_captions]
    pictures = paint(denoiser, vae, [e["caption"] for e in entries], [e["seed"] for e in entries],
                     recipe.judged_steps, device)
    images.mkdir(parents=True, exist_ok=True)
    all_marks = []
    for entry, rgb in zip(entries, pictures):
        png.write(images / f"{entry['seed']}.png", rgb)
        all_marks.append(judge.judge(judge.look(rgb), entry["request"]))
    model = evaluate.report(entries, all_marks, recipe.judged_steps)
    return {"judge_on_drawn_scenes": drawn, "judge_through_vae": decoded, "model": model}


def _judge_the_judge(recipe: Recipe, vae: Vae, device: torch.device) -> tuple[dict, dict]:
    """Rates of drawn scenes with every attribute asked for, as they are and through the VAE."""
    scenes, r = sample(np.random.default_rng(31337), recipe.judged_scenes, True), Random(31337)
    pictures = draw_bytes(scenes, device)
    requests = [make_request(scenes, i, r, EVERYTHING) for i in range(len(pictures))]
    return _rates(pictures, requests), _rates(_through(vae, pictures), requests)


@torch.no_grad()
def _through(vae: Vae, pictures: Tensor) -> Tensor:
    """uint8 [n, 3, h, w], encoded and decoded."""
    return torch.cat([to_bytes(vae.decoder(vae.encoder(from_bytes(part))[0]))
                      for part in pictures.split(50)])


def _rates(pictures: Tensor, requests: list[dict]) -> dict:
    rgb = pictures.permute(0, 2, 3, 1).cpu().numpy()
    return judge.rates([judge.judge(judge.look(picture), q) for picture, q in zip(rgb, requests)])
