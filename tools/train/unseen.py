"""The evaluation's captions: each asks for a (kind, colour, sky, ground, place) that is never drawn
in training.

    python3 tools/train/unseen.py    writes captions.json: 200 of {"seed", "caption", "request"}
"""
import json
from pathlib import Path
from random import Random

import numpy as np

from caption import caption, make_request
from scene import held_out, sample

CAPTIONS = Path(__file__).with_name("captions.json")
FIRST_SEED = 1000


def unseen(n: int, seed: int = 2026) -> list[dict]:
    """n captions whose first object is held out from training and has its colour, place, sky and
    ground named."""
    rng, r, out = np.random.default_rng(seed), Random(seed), []
    while len(out) < n:
        s = sample(rng, 256, allow_held_out=True)
        kind, colour, place = s["kind"][:, 0], s["colour"][:, 0], s["place"][:, 0]
        for i in np.flatnonzero(held_out(kind, colour, s["sky"], s["ground"], place)):
            if len(out) == n:
                break
            q = make_request(s, i, r)
            q["objects"][0].update(colour=int(colour[i]), place=int(place[i]))
            q.update(sky=int(s["sky"][i]), ground=int(s["ground"][i]))
            out.append({"seed": FIRST_SEED + len(out), "caption": caption(q, r), "request": q})
    return out


def load() -> list[dict]:
    """What captions.json holds."""
    return json.loads(CAPTIONS.read_text(encoding="utf-8"))


def main() -> None:
    lines = ",\n".join(json.dumps(entry) for entry in unseen(200))
    CAPTIONS.write_text(f"[\n{lines}\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
