"""How many of the unseen captions does dfx-edge draw right? Needs Python and numpy only.

    python3 tools/train/evaluate.py --binary ./dfx-edge --model models/scenes [--device auto]
                                    [--steps 16] [--limit N] [--jobs N] [--keep DIR] [--json FILE]
    python3 tools/train/evaluate.py --images DIR        judges pictures that are there: DIR/SEED.png

Draws each caption of captions.json with its seed, lets the judge look at the picture, and prints
the rates beside those that diffusers reached with the bundled model.
"""
import argparse
import json
import multiprocessing as mp
from pathlib import Path
import subprocess
import sys
import tempfile
from typing import NamedTuple

import judge
import png
import unseen

ATTRIBUTES = {"whole": "whole caption", "whole_without_count": "without count", "colour": "colour",
              "kind": "kind", "size": "size", "place": "place", "sky": "sky", "ground": "ground",
              "orb": "sun/moon", "count": "count"}
# per cent of the 200 captions, in the order of ATTRIBUTES: diffusers' FluxPipeline on the bundled
# model in float32, shift 3, noise from torch's CPU generator with the same seeds; by steps
DIFFUSERS = {4: (79.5, 83.0, 99.4, 97.1, 97.7, 99.7, 100, 100, 64.6, 94.0),
             8: (87.5, 92.0, 99.1, 97.4, 98.3, 99.7, 100, 100, 92.3, 93.0),
             12: (90.5, 94.5, 99.1, 98.3, 98.3, 99.7, 100, 100, 93.9, 94.0),
             16: (89.5, 94.0, 99.4, 98.3, 98.3, 100, 100, 100, 95.4, 94.5),
             20: (91.5, 95.0, 99.4, 98.9, 98.3, 100, 100, 100, 95.4, 96.0)}
SIDE = 256    # what the judge is made for


class Job(NamedTuple):
    """One caption's picture: drawn first if there is a binary."""
    entry: dict
    images: Path
    binary: Path | None
    model: Path | None
    steps: int
    device: str = "auto"


def draw(job: Job) -> None:
    seed = job.entry["seed"]
    command = [str(job.binary), "-m", str(job.model), "--seed", str(seed),
               "--steps", str(job.steps), "--device", job.device, "-q",
               "-o", str(job.images / f"{seed}.png"), job.entry["caption"]]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: status {done.returncode}: {done.stderr.strip()}")


def marks_of(job: Job) -> dict[str, bool]:
    """The judge's marks of one caption's picture."""
    if job.binary:
        draw(job)
    path = job.images / f"{job.entry['seed']}.png"
    rgb = png.read(path)
    if rgb.shape != (SIDE, SIDE, 3):
        raise ValueError(f"{path}: {rgb.shape[1]} x {rgb.shape[0]} pixels, "
                         f"the judge wants {SIDE} x {SIDE}")
    return judge.judge(judge.look(rgb), job.entry["request"])


def table(rates: dict[str, dict], steps: int, name: str) -> str:
    """Rates in per cent as a Markdown table, beside diffusers' where they are known for that many
    steps."""
    known = DIFFUSERS.get(steps)
    head = f"| attribute | asked | {name} |" + (" diffusers |" if known else "")
    lines = [head, "| --- | ---: | ---: |" + (" ---: |" if known else "")]
    for i, (key, words) in enumerate(ATTRIBUTES.items()):
        if key in rates:
            line = f"| {words} | {rates[key]['n']} | {100 * rates[key]['rate']:.1f} |"
            lines.append(line + (f" {known[i]:.1f} |" if known else ""))
    return "\n".join(lines)


def report(entries: list[dict], all_marks: list[dict[str, bool]], steps: int) -> dict:
    """What --json writes: rates and each caption that was missed, with the attributes missing."""
    return {"steps": steps, "captions": len(entries), "rates": judge.rates(all_marks),
            "misses": [{"seed": e["seed"], "caption": e["caption"],
                        "missing": [name for name, ok in m.items() if not ok]}
                       for e, m in zip(entries, all_marks) if not all(m.values())]}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--binary", type=Path, help="the dfx-edge program, which draws")
    source.add_argument("--images", type=Path, help="folder of pictures SEED.png drawn before")
    parser.add_argument("--model", type=Path, default=Path("models/scenes"), help="model folder")
    parser.add_argument("--device", default="auto", help="what draws: auto, cpu, cuda, cuda:1")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--limit", type=int, help="only the first N captions")
    parser.add_argument("--jobs", type=int, default=1, help="captions drawn and judged at a time")
    parser.add_argument("--keep", type=Path, help="folder for the pictures drawn, else they go")
    parser.add_argument("--json", type=Path, help="file for the figures and the misses")
    return parser.parse_args()


def main() -> int:
    args = arguments()
    entries = unseen.load()[:args.limit]
    with tempfile.TemporaryDirectory() as scratch:
        images = args.images or args.keep or Path(scratch)
        if args.binary:
            images.mkdir(parents=True, exist_ok=True)
        jobs = [Job(e, images, args.binary, args.model, args.steps, args.device)
                for e in entries]
        try:
            with mp.Pool(args.jobs) as pool:
                all_marks = pool.map(marks_of, jobs, chunksize=1)
        except (OSError, RuntimeError, ValueError) as e:
            print(f"evaluate.py: {e}", file=sys.stderr)
            return 1
    result = report(entries, all_marks, args.steps)
    print(f"{len(entries)} captions, {args.steps} steps, per cent right "
          f"(diffusers: all {len(unseen.load())} captions)\n")
    print(table(result["rates"], args.steps, "dfx-edge" if args.binary else "pictures"))
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
