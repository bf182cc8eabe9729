"""Does one device draw what another draws? Needs Python and numpy only.

    python3 tools/train/devices.py --binary ./dfx-edge [--device cuda] [--against cpu]
                                   [--model models/scenes] [--steps 16] [--limit 20] [--jobs N]

Draws captions of captions.json with their seeds on both, prints how far apart the pictures are and
how many captions the judge finds right in each. Exit status 1 where a picture is further away than
35 dB, or the judge's rate of whole captions differs by more than a point.
"""
import argparse
import math
from multiprocessing.pool import Pool
from pathlib import Path
import sys
import tempfile

import numpy as np

import evaluate
import judge
import png
import unseen

LEAST_DB = 35.0
POINT = 0.01    # of the judge's rate


def psnr(a: np.ndarray, b: np.ndarray) -> float:
    """Peak signal to noise of two 8-bit pictures of one size in dB; infinite when they are equal."""
    if a.shape != b.shape:
        raise ValueError(f"pictures of {a.shape[1]} x {a.shape[0]} and {b.shape[1]} x {b.shape[0]}")
    square = float(np.mean((a.astype(np.float64) - b.astype(np.float64)) ** 2))
    return 10 * math.log10(255 ** 2 / square) if square else math.inf


def faults(decibels: dict[int, float], rate: float, against: float) -> list[str]:
    """What is wrong with pictures so far apart, by seed, and with two rates; empty: nothing."""
    found = [f"seed {seed}: {db:.1f} dB, at least {LEAST_DB:.1f} wanted"
             for seed, db in decibels.items() if db < LEAST_DB]
    if abs(rate - against) > POINT + 1e-9:
        found.append(f"whole captions right: {100 * rate:.1f} % and {100 * against:.1f} %, "
                     "at most a point apart wanted")
    return found


def whole_rate(pool: Pool, jobs: list[evaluate.Job]) -> float:
    """Draws; the share of captions that are right as a whole."""
    return judge.rates(pool.map(evaluate.marks_of, jobs, chunksize=1))["whole"]["rate"]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--binary", type=Path, required=True, help="the dfx-edge program")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--against", default="cpu")
    parser.add_argument("--model", type=Path, default=Path("models/scenes"), help="model folder")
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--limit", type=int, default=20, help="how many captions")
    parser.add_argument("--jobs", type=int, default=1, help="captions drawn and judged at a time")
    args = parser.parse_args()
    if args.limit < 1:
        parser.error("--limit: at least 1 wanted")
    return args


def main() -> int:
    args = arguments()
    entries = unseen.load()[:args.limit]
    rates, pictures = [], []
    with tempfile.TemporaryDirectory() as scratch, Pool(args.jobs) as pool:
        try:
            for i, device in enumerate((args.device, args.against)):
                images = Path(scratch) / str(i)
                images.mkdir()
                rates.append(whole_rate(pool, [
                    evaluate.Job(e, images, args.binary, args.model, args.steps, device)
                    for e in entries]))
                pictures.append([png.read(images / f"{e['seed']}.png") for e in entries])
            decibels = {e["seed"]: psnr(a, b) for e, a, b in zip(entries, *pictures)}
        except (OSError, RuntimeError, ValueError) as e:
            print(f"devices.py: {e}", file=sys.stderr)
            return 1
    for entry in entries:
        print(f"{decibels[entry['seed']]:6.1f} dB  seed {entry['seed']}  {entry['caption']}")
    print(f"{len(entries)} captions, {args.steps} steps, {args.device} against {args.against}: "
          f"lowest {min(decibels.values()):.1f} dB, whole captions right "
          f"{100 * rates[0]:.1f} % and {100 * rates[1]:.1f} %")
    found = faults(decibels, *rates)
    for fault in found:
        print(f"FAIL  {fault}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
