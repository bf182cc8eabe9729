"""Trains the bundled model from scratch: VAE, text encoders and transformer of a small FLUX.1 that
draws storybook scenes.

    python3 tools/train/train.py --out DIR [--minutes N] [--seed S]

Leaves DIR/model (a model folder in diffusers' layout), DIR/images (the unseen captions, drawn) and
DIR/report.json (the judge's rates). Five stages: vae, decoder, flow, guide, then export and
judgement. Each of the first four leaves DIR/stages/NAME.pt, and a second call goes on after the
last that is there.
"""
import argparse
import functools
import json
import os
from pathlib import Path
from typing import Callable

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")    # what repeatable products need

import torch

import data
import evaluate
from budget import Budget
from denoiser import Denoiser
from export import export
from log import Log
from recipe import SMOKE, TIME_SHARES, Recipe
from stage_flow import Batches, train_flow, train_guide
from stage_judge import judge_model
from stage_vae import measure, train_decoder, train_vae
from vae import Vae
from vocabularies import Encoder as Tokenizers


class Run:
    """One output folder and the stages that are done in it."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.recipe = SMOKE if args.smoke else Recipe()
        self.seed, self.minutes = args.seed, args.minutes
        self.stages: Path = args.out / "stages"
        self.stages.mkdir(parents=True, exist_ok=True)
        self.log = Log(args.out / "log.jsonl")
        self._claim(args.out / "recipe.json")

    def _claim(self, path: Path) -> None:
        """Stages of different recipes must not be mixed: the folder belongs to the first call's."""
        mine = {"seed": self.seed, "minutes": self.minutes, **self.recipe.as_json()}
        if not path.exists():
            path.write_text(json.dumps(mine, indent=1) + "\n", encoding="utf-8")
        elif json.loads(path.read_text(encoding="utf-8")) != mine:
            raise SystemExit(f"{path}: these stages have another recipe, seed or time; "
                             "choose another --out")

    def budget(self, stage: str) -> Budget:
        seconds = None if self.minutes is None else self.minutes * 60 * TIME_SHARES[stage]
        return Budget(getattr(self.recipe, f"{stage}_steps"), seconds)

    def seed_of(self, stage: str) -> int:
        """Each stage has its own, so that a run that goes on draws what an unbroken run draws."""
        return self.seed * 10 + list(TIME_SHARES).index(stage)

    def has(self, stage: str) -> bool:
        return self._file(stage).exists()

    def stage(self, name: str, train: Callable[[], dict]) -> dict:
        """What a stage left; trained now if it was not yet."""
        path = self._file(name)
        if not path.exists():
            self.log(name, begins=True)
            unfinished = path.with_suffix(".tmp")
            torch.save(train(), unfinished)
            unfinished.replace(path)
        return torch.load(path, map_location="cpu", weights_only=True)

    def _file(self, stage: str) -> Path:
        return self.stages / f"{stage}.pt"


def trained_vae(run: Run, device: torch.device) -> Vae:
    """The stages vae and decoder."""
    def first() -> dict:
        vae = train_vae(run.recipe, run.seed_of("vae"), run.budget("vae"), device, run.log)
        return {"weights": vae.state_dict(), "scaling": vae.scaling, "shift": vae.shift}

    def second() -> dict:
        return train_decoder(run.recipe, run.seed_of("decoder"), run.budget("decoder"), vae, device,
                             run.log).state_dict()

    vae = Vae().to(device).eval()
    left = run.stage("vae", first)
    vae.load_state_dict(left["weights"])
    vae.scaling, vae.shift = left["scaling"], left["shift"]
    vae.decoder.load_state_dict(run.stage("decoder", second))
    return vae


def trained_denoiser(run: Run, captioned: data.Captioned | None, vae: Vae, device: torch.device,
                     compiled: bool) -> Denoiser:
    """The stages flow and guide. captioned: None if guide is done."""
    @functools.cache
    def batches() -> Batches:
        made = Batches(run.recipe, captioned, vae, device)
        run.log("latents", scenes=run.recipe.scenes)
        return made

    def first() -> dict:
        return train_flow(run.recipe, run.seed_of("flow"), run.budget("flow"), batches(), compiled,
                          run.log).state_dict()

    def second() -> dict:
        return train_guide(run.recipe, run.seed_of("guide"), run.budget("guide"), denoiser,
                           batches(), compiled, run.log).state_dict()

    denoiser = Denoiser(Tokenizers()).to(device).eval()
    if not run.has("guide"):
        denoiser.load_state_dict(run.stage("flow", first))
    denoiser.load_state_dict(run.stage("guide", second))
    return denoiser


def make_repeatable(device: torch.device) -> None:
    """Same seed, machine and libraries: same weights, as far as the libraries can promise it."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    torch.backends.cudnn.benchmark = False
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True
        # its backward pass read illegal addresses in compiled blocks
        torch.backends.cuda.enable_cudnn_sdp(False)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, required=True,
                        help="folder of stages, model and report")
    parser.add_argument("--minutes", type=float,
                        help="time for the four training stages, compiling counted, drawing not "
                             "(default: the recipe's steps)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--smoke", action="store_true",
                        help="a few steps of every stage at tiny sizes, on the CPU")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    run = Run(args)
    captioned = None
    if not run.has("guide"):
        captioned = data.make(run.recipe, run.seed)    # forks, so before the GPU wakes up
        run.log("data", scenes=run.recipe.scenes)
    on_gpu = torch.cuda.is_available() and not args.smoke
    device = torch.device("cuda" if on_gpu else "cpu")
    make_repeatable(device)
    run.log("start", torch=torch.__version__,
            device=torch.cuda.get_device_name() if on_gpu else "cpu")

    vae = trained_vae(run, device)
    denoiser = trained_denoiser(run, captioned, vae, device, on_gpu and not args.no_compile)
    model: Path = args.out / "model"
    run.log("export", bytes=export(model, denoiser, vae))
    if on_gpu:    # figures are of the float32 model
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    figures = {"vae": measure(vae, run.recipe, device),
               **judge_model(run.recipe, model, args.out / "images", device, run.log)}
    run.log("judged", whole=figures["model"]["rates"]["whole"]["rate"])
    (args.out / "report.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(evaluate.table(figures["model"]["rates"], run.recipe.judged_steps, "this run"))


if __name__ == "__main__":
    main()
