"""Does a picture match its caption? Decided from the pixels alone, by segmenting colours and
measuring shapes (numpy only).

    seen = look(rgb)               rgb uint8 [256, 256, 3]; sky, ground, sun or moon, things in it
    marks = judge(seen, request)   attribute -> True or False, for each that the request names
    rates([marks, ...])            the share of each attribute over many pictures

Thresholds were set on drawn scenes, of which the judge reads 99.7 % entirely right.
"""
import itertools

import numpy as np

from palette import GROUND, SKY
from scene import KINDS, NIGHT, SKIES

BALL, CUBE, HOUSE, TREE, MUSHROOM, BALLOON = range(len(KINDS))
DAY = SKIES.index("day")

# upper ends of the hue ranges (degrees), from red to pink and red again
HUE_ENDS = np.array([14, 38.5, 68, 158, 204, 249, 297, 345, 361])
HUE_COLOUR = np.array([0, 1, 2, 3, 4, 5, 6, 7, 0])
MIN_THING_AREA = 110
MIN_ORB_AREA = 90
# heights (pixels) that part small from big, by kind
BIG_HEIGHT = np.array([51, 52, 56, 62, 31, 58])

Runs = list[tuple[int, int, int]]    # (row, first column, end column) of a region's pixels


# Seeing

def look(rgb: np.ndarray) -> dict:
    """What is in a picture. rgb uint8 [256, 256, 3]. things: dicts with kind, colour, size, place,
    the largest first."""
    picture = rgb.astype(np.float32) / 255
    hue, saturation, value = _hsv(picture)
    sky = _sky(picture)
    strong = (saturation > .60) & (value > (.32 if sky == NIGHT else .36))
    return {"sky": sky, "ground": _ground(picture, sky),
            "orb": _has_orb(picture[:150], sky, ~strong[:150]),
            "things": _things(strong, HUE_COLOUR[np.searchsorted(HUE_ENDS, hue)])}


def _hsv(picture: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """[h, w, 3] -> hue in degrees, saturation, value, each [h, w]."""
    top, bottom = picture.max(2), picture.min(2)
    d = top - bottom
    r, g, b = picture[..., 0], picture[..., 1], picture[..., 2]
    with np.errstate(divide="ignore", invalid="ignore"):
        hue = 60 * np.where(top == r, (g - b) / d % 6,
                            np.where(top == g, (b - r) / d + 2, (r - g) / d + 4))
        saturation = np.where(top > 0, d / np.maximum(top, 1e-6), 0)
    return np.where(d < 1e-6, 0, hue), saturation, top


def _sky(picture: np.ndarray) -> int:
    """The sky whose gradient is nearest to the medians of some upper rows."""
    rows = np.array([4, 12, 24, 40, 60])
    depth = np.clip((rows + .5) / 256 / .635, 0, 1)
    medians = np.median(picture[rows], axis=1)
    errors = []
    for stops in SKY:
        expected = np.stack([np.interp(depth, [0, .5, 1], stops[:, c]) for c in range(3)], 1)
        errors.append(np.abs(medians - expected).mean())
    return int(np.argmin(errors))


def _ground(picture: np.ndarray, sky: int) -> int:
    """The ground whose colour is nearest to the median of the bottom rows."""
    expected = GROUND[sky][:, 0] * .22 + GROUND[sky][:, 1] * .78
    median = np.median(picture[240:254], axis=(0, 1))
    return int(np.argmin(np.abs(median - expected).mean(1)))


def _has_orb(upper: np.ndarray, sky: int, free: np.ndarray) -> bool:
    """A round patch of warm light in the sky. upper [150, 256, 3]; free [150, 256]: where no thing
    is."""
    r, g, b = upper[..., 0], upper[..., 1], upper[..., 2]
    if sky == NIGHT:
        light = (r > .80) & (g > .76) & (b > .52)
    elif sky == DAY:
        light = (r > .93) & (g > .85) & (b < .72) & (b > .36)
    else:
        light = (r > .95) & (g > .90) & (b > .60) & (b < .86)
    for runs in _regions(light & free):
        if _area(runs) >= MIN_ORB_AREA and .3 < _shape(runs)["aspect"] < 3.2:
            return True
    return False


def _things(strong: np.ndarray, colour: np.ndarray) -> list[dict]:
    """Regions of one strong colour that are large enough. strong, colour [256, 256]."""
    found = []
    for c in range(8):
        mask = strong & (colour == c)
        if mask.sum() < MIN_THING_AREA:
            continue
        for runs in _regions(_dilate(mask)):
            if _area(runs) < MIN_THING_AREA:
                continue
            m = _shape(runs)
            if m["y0"] < 3 and m["h"] < 20:    # the deep blue at the upper edge of a day's sky
                continue
            if m["w"] < 12 or m["h"] < 9 or m["fill"] * m["w"] * m["h"] < MIN_THING_AREA:
                continue
            kind = _kind(m)
            found.append({**m, "colour": c, "kind": kind, "size": int(m["h"] > BIG_HEIGHT[kind]),
                          "place": 0 if m["cx"] < 90 else 2 if m["cx"] > 166 else 1})
    found.sort(key=lambda m: -m["area"])
    keep: list[dict] = []
    for m in found:
        if not any(_is_part_of(m, larger) for larger in keep):
            keep.append(m)
    return keep


def _is_part_of(m: dict, larger: dict) -> bool:
    """Whether a region is but a part of a thing, cut off by shading of another hue."""
    return (larger["x0"] - 3 <= m["cx"] <= larger["x1"] + 3
            and larger["y0"] - 3 <= (m["y0"] + m["y1"]) / 2 <= larger["y1"] + 3
            and m["area"] < .35 * larger["area"])


def _dilate(mask: np.ndarray) -> np.ndarray:
    """Grown by one pixel, so that a thing's parts (roof and wall, faces of a cube) hang
    together."""
    rows = mask.copy()
    rows[1:] |= mask[:-1]
    rows[:-1] |= mask[1:]
    both = rows.copy()
    both[:, 1:] |= rows[:, :-1]
    both[:, :-1] |= rows[:, 1:]
    return both


def _regions(mask: np.ndarray) -> list[Runs]:
    """Connected regions (8-neighbourhood) of a boolean picture [h, w]; runs of pixels joined by
    union-find."""
    parent: list[int] = []
    runs: Runs = []

    def root(a: int) -> int:
        while parent[a] != a:
            parent[a] = parent[parent[a]]
            a = parent[a]
        return a

    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    above: Runs = []
    for y in range(mask.shape[0]):
        here = []
        for a, b in zip(np.flatnonzero(edges[y] == 1), np.flatnonzero(edges[y] == -1)):
            i = len(parent)
            parent.append(i)
            runs.append((y, a, b))
            for j, above_a, above_b in above:
                if above_a <= b and a <= above_b:
                    parent[root(i)] = root(j)
            here.append((i, a, b))
        above = here
    groups: dict[int, Runs] = {}
    for i, run in enumerate(runs):
        groups.setdefault(root(i), []).append(run)
    return list(groups.values())


def _area(runs: Runs) -> int:
    return sum(b - a for _, a, b in runs)


def _shape(runs: Runs) -> dict:
    """A region's box, area and outline: mean width of some bands of rows, in widths of the box."""
    y0, y1 = min(r[0] for r in runs), max(r[0] for r in runs) + 1
    x0, x1 = min(r[1] for r in runs), max(r[2] for r in runs)
    h, w = y1 - y0, x1 - x0
    left, right = np.full(h, 10 ** 6), np.full(h, -1)
    for y, a, b in runs:
        left[y - y0], right[y - y0] = min(left[y - y0], a), max(right[y - y0], b)
    widths = np.maximum(right - left, 0) / w

    def band(a: float, b: float) -> float:
        first = int(a * h)
        return float(widths[first:max(first + 1, int(np.ceil(b * h)))].mean())

    return {"x0": x0, "x1": x1, "y0": y0, "y1": y1, "w": w, "h": h, "cx": (x0 + x1) / 2,
            "area": float(_area(runs)), "aspect": w / h, "fill": float(widths.mean()),
            "top": band(0, .12), "mid": band(.45, .55), "bottom": band(.88, 1)}


def _kind(m: dict) -> int:
    """By outline: place and taper tell balloons, flatness mushroom caps, the waist houses from
    trees, flat ends cubes."""
    if m["y1"] < 148 and m["aspect"] < 1.05 and m["bottom"] < .62:
        return BALLOON
    if m["aspect"] > 1.42:    # a cap is about twice as wide as high
        return MUSHROOM
    if m["top"] < .36 and m["bottom"] > .62:
        return HOUSE if m["mid"] > .72 else TREE    # straight walls, or tiers of branches
    if m["bottom"] > .60 and (m["top"] > .60 or m["fill"] > .84):
        return CUBE
    if m["top"] < .36 and m["aspect"] < .85:
        return TREE
    return BALL


# Judging

def judge(seen: dict, request: dict) -> dict[str, bool]:
    """Marks of a picture. Requested objects are matched to seen things in the way that gives the
    most marks."""
    marks = {}
    if request["sky"] is not None:
        marks["sky"] = seen["sky"] == request["sky"]
    if request["ground"] is not None:
        marks["ground"] = seen["ground"] == request["ground"]
    if request["orb"]:
        marks["orb"] = seen["orb"] and seen["sky"] == request["sky_of_orb"]
    objects = request["objects"]
    marks["count"] = len(seen["things"]) == len(objects)
    candidates = seen["things"][:6] + [None] * len(objects)
    best, best_score = [], -1.
    for chosen in itertools.permutations(candidates, len(objects)):
        tried = [_object_marks(o, thing) for o, thing in zip(objects, chosen)]
        # colour counts more: it is what the eye finds a thing by
        score = sum(sum(m.values()) + .5 * m.get("colour", 0) for m in tried)
        if score > best_score:
            best, best_score = tried, score
    for k, object_marks in enumerate(best):
        marks.update({f"{attribute}{k}": ok for attribute, ok in object_marks.items()})
    return {attribute: bool(ok) for attribute, ok in marks.items()}


def _object_marks(o: dict, thing: dict | None) -> dict[str, bool]:
    """The marks of one requested object if `thing` is it (None: it is missing)."""
    named = ["kind"] + [a for a in ("colour", "size", "place") if o[a] is not None]
    return {a: thing is not None and thing[a] == o[a] for a in named}


def rates(all_marks: list[dict[str, bool]]) -> dict[str, dict]:
    """{attribute: {"rate": share right, "n": how often asked}}; "whole": pictures with every mark
    right, "whole_without_count": those with every mark right but perhaps the number of things."""
    totals: dict[str, list[bool]] = {}
    for marks in all_marks:
        for name, ok in marks.items():
            totals.setdefault(name.rstrip("0123456789"), []).append(ok)
        totals.setdefault("whole", []).append(all(marks.values()))
        totals.setdefault("whole_without_count", []).append(
            all(ok for name, ok in marks.items() if name != "count"))
    return {name: {"rate": round(sum(oks) / len(oks), 4), "n": len(oks)}
            for name, oks in sorted(totals.items())}
