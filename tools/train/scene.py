"""What is in a picture: one to three things of a kind, colour, size and place, on a ground, under a
sky.

A batch of n scenes is a dict of numpy arrays, one row a scene:

    sky [n]  ground [n]                      which of SKIES, GROUNDS
    n_things [n]                             1..3; the further columns of the next four are unused
    kind  colour  size  place [n, 3]         which of KINDS, COLOURS, SIZES, PLACES; places differ
    orb [n]                                  whether the sun (day, sunset) or the moon (night) is up
    crescent  orb_xy [n, 2]                  the moon's phase; where the orb is, in picture sides
    shift_x  scale  shift_y [n, 3]           how each thing departs from its place and size
    horizon  wave_height [n]  phase  frequency [n, 3]     the ground's outline
    n_clouds [n]  cloud [n, 3, 4]  hills [n]  stars [n, 18, 3]

Everything comes from the numpy Generator handed in: one seed, one batch. The order of the draws is
part of that promise.
"""
import numpy as np

Scenes = dict[str, np.ndarray]

SKIES = ["day", "sunset", "night"]
GROUNDS = ["meadow", "desert", "snow", "sea"]
KINDS = ["ball", "cube", "house", "tree", "mushroom", "balloon"]
COLOURS = ["red", "orange", "yellow", "green", "teal", "blue", "purple", "pink"]
SIZES = ["small", "big"]
PLACES = ["left", "middle", "right"]

NIGHT = SKIES.index("night")
DESERT, SEA = GROUNDS.index("desert"), GROUNDS.index("sea")
TREE, BALLOON = KINDS.index("tree"), KINDS.index("balloon")
GREEN = COLOURS.index("green")


def held_out(kind, colour, sky, ground, place):
    """One (kind, colour, sky, ground, place) in eleven is never drawn in training; the evaluation
    asks for these."""
    code = (((kind * 8 + colour) * 3 + sky) * 4 + ground) * 3 + place
    return (code * 7 + 3) % 11 == 0


def sample(rng: np.random.Generator, n: int, allow_held_out: bool = False) -> Scenes:
    """n random scenes."""
    s: Scenes = {}
    s["sky"] = rng.integers(0, 3, n)
    s["ground"] = rng.integers(0, 4, n)
    s["n_things"] = rng.choice([1, 2, 3], n, p=[.4, .45, .15])
    s["kind"] = rng.integers(0, 6, (n, 3))
    s["colour"] = rng.integers(0, 8, (n, 3))
    s["place"] = np.argsort(rng.random((n, 3)), 1)
    _recolour(s, rng, allow_held_out)
    s["size"] = rng.integers(0, 2, (n, 3))
    _add_details(s, rng)
    return s


def _recolour(s: Scenes, rng: np.random.Generator, allow_held_out: bool) -> None:
    """Trees green a little more often, two things seldom of one colour, nothing held out."""
    n, colour = len(s["sky"]), s["colour"]

    def forbidden() -> np.ndarray:
        return held_out(s["kind"], colour, s["sky"][:, None], s["ground"][:, None], s["place"])

    colour[(s["kind"] == TREE) & (rng.random((n, 3)) < .25)] = GREEN
    for _ in range(60):
        bad = np.zeros((n, 3), bool)
        if not allow_held_out:
            bad |= forbidden()
        apart = rng.random(n) < .9
        bad[:, 1] |= (colour[:, 1] == colour[:, 0]) & apart
        bad[:, 2] |= ((colour[:, 2] == colour[:, 0]) | (colour[:, 2] == colour[:, 1])) & apart
        if not bad.any():
            break
        colour[bad] = rng.integers(0, 8, bad.sum())
    if not allow_held_out:    # what is left after all rounds takes the next allowed colour
        for _ in range(8):
            bad = forbidden()
            colour[bad] = (colour[bad] + 1) % 8


def _add_details(s: Scenes, rng: np.random.Generator) -> None:
    """What no caption names, and whether there is a sun or a moon."""
    n = len(s["sky"])

    def uniform(*shape: int, low: float = 0., high: float = 1.) -> np.ndarray:
        return rng.uniform(low, high, (n, *shape)).astype(np.float32)

    s["orb"] = rng.random(n) < .6
    taken = np.zeros((n, 3), bool)    # by balloons, which keep their place in the sky
    for k in range(3):
        flies = (s["kind"][:, k] == BALLOON) & (k < s["n_things"])
        taken[np.arange(n)[flies], s["place"][flies, k]] = True
    orb_place = np.where(taken, -1, rng.random((n, 3))).argmax(1)
    s["orb"] &= ~taken.all(1)
    s["crescent"] = rng.random(n) < .5
    s["orb_xy"] = np.stack([.2 + .3 * orb_place + uniform(low=-.05, high=.05),
                            uniform(low=.12, high=.24)], 1)
    s["shift_x"], s["scale"] = uniform(3, low=-.03, high=.03), uniform(3, low=.93, high=1.07)
    s["shift_y"] = uniform(3)
    s["horizon"], s["wave_height"] = uniform(low=.60, high=.67), uniform(low=.010, high=.028)
    s["phase"], s["frequency"] = uniform(3, high=6.2832), uniform(3, low=.5, high=1.1)
    s["n_clouds"] = rng.integers(0, 4, n)
    s["cloud"] = uniform(3, 4)
    s["hills"] = rng.random(n) < .7
    s["stars"] = uniform(18, 3)


def concat(parts: list[Scenes]) -> Scenes:
    """Batches one after another."""
    return {k: np.concatenate([p[k] for p in parts]) for k in parts[0]}


def take(s: Scenes, rows) -> Scenes:
    """The scenes of some rows (an index, a slice or an array)."""
    return {k: v[rows] for k, v in s.items()}
