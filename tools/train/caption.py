"""What a picture is called: requests (which of a scene's attributes are named) and the English
grammar that words them.

A request is what the judge checks a picture against:

    {"objects": [{"kind": 0..5, "colour": 0..7 or None, "size": 0..1 or None,
                  "place": 0..2 or None}, ...],
     "ground": 0..3 or None, "sky": 0..2 or None, "orb": bool, and if orb "sky_of_orb": 0..2}

None where the caption leaves it open. Everything comes from the random.Random handed in: one seed,
one caption. The order and number of its draws are part of that promise, also where there is only
one thing to choose from.
"""
from random import Random
from typing import NamedTuple

from scene import Scenes

KIND_WORDS = [["ball", "ball", "sphere"], ["cube", "cube", "box"], ["house", "house", "cottage"],
              ["tree", "tree", "fir tree"], ["mushroom", "mushroom", "toadstool"],
              ["balloon", "hot air balloon", "balloon"]]
COLOUR_WORDS = [["red"], ["orange"], ["yellow"], ["green"], ["teal", "teal", "turquoise"], ["blue"],
                ["purple", "purple", "violet"], ["pink"]]
SIZE_WORDS = [["small", "small", "little", "tiny"], ["big", "big", "large", "huge"]]
PLACE_WORDS = [
    ["on the left", "on the left", "on the left side", "to the left", "at the left"],
    ["in the middle", "in the middle", "in the center", "at the center", "in the centre"],
    ["on the right", "on the right", "on the right side", "to the right", "at the right"]]
GROUND_WORDS = [
    ["on a green hill", "on a green hill", "on a meadow", "on the grass", "in a green field",
     "on a grassy hill", "in a meadow"],
    ["in the desert", "in the desert", "on the sand", "on sand dunes", "in a sandy desert"],
    ["in the snow", "in the snow", "on a snowy hill", "in a snowy field", "on white snow",
     "in winter"],
    ["in the sea", "on the sea", "in the ocean", "on the water", "on islands in the sea", "at sea"]]
SKY_WORDS = [
    ["under a blue sky", "by day", "on a sunny day", "in the daytime", "under a bright blue sky",
     "during the day"],
    ["at sunset", "at sunset", "under a sunset sky", "in the evening", "under an orange sky",
     "at dusk"],
    ["at night", "at night", "under a night sky", "under the stars", "under a starry sky",
     "by night"]]
SUN_WORDS = ["with the sun", "with a sun in the sky", "and the sun", "with a bright sun"]
MOON_WORDS = ["with the moon", "with a moon in the sky", "and the moon", "with a bright moon"]
ORB_WORDS = [SUN_WORDS, SUN_WORDS, MOON_WORDS]
PREFIXES = ["a picture of", "a painting of", "a drawing of", "an illustration of", "a photo of",
            "a scene with", "there is", "we see"]
PRAISE = ["beautiful", "lovely", "cute", "nice", "old"]
# words that people put into captions: the tokenizers know them, the grammar does not use most
FURTHER_WORDS = [*PRAISE, "some", "is", "are", "this", "that", "it", "one", "two", "three", "very",
                 "my", "our", "of", "the"]


def vocabulary() -> list[str]:
    """All words of the grammar in lower case, sorted."""
    words = {"a", "an", "and", "with", "next", "to", "standing", *FURTHER_WORDS}
    for table in (KIND_WORDS, COLOUR_WORDS, SIZE_WORDS, PLACE_WORDS, GROUND_WORDS, SKY_WORDS,
                  ORB_WORDS, [PREFIXES]):
        for phrases in table:
            for phrase in phrases:
                words.update(phrase.split())
    return sorted(words)


class Naming(NamedTuple):
    """How probable it is that a caption names each attribute."""
    colour: float = .85
    size: float = .5
    place: float = .6
    ground: float = .8
    sky: float = .8
    orb: float = .5


USUAL = Naming()
EVERYTHING = Naming(1, 1, 1, 1, 1, 1)


def make_request(s: Scenes, i: int, r: Random, naming: Naming = USUAL) -> dict:
    """Which attributes of scene i a caption will name. A sun or moon that is not there is never
    named."""
    def maybe(value, probability: float):
        return int(value) if r.random() < probability else None

    q = {"objects": [], "ground": None, "sky": None, "orb": False}
    for k in range(int(s["n_things"][i])):
        q["objects"].append({"kind": int(s["kind"][i, k]),
                             "colour": maybe(s["colour"][i, k], naming.colour),
                             "size": maybe(s["size"][i, k], naming.size),
                             "place": maybe(s["place"][i, k], naming.place)})
    q["ground"] = maybe(s["ground"][i], naming.ground)
    q["sky"] = maybe(s["sky"][i], naming.sky)
    if s["orb"][i] and r.random() < naming.orb:
        q["orb"] = True
        q["sky_of_orb"] = int(s["sky"][i])
    return q


def caption(q: dict, r: Random) -> str:
    """One of the many English captions of a request."""
    what = _things(q["objects"], r)
    tail = []
    if q["ground"] is not None:
        tail.append(r.choice(GROUND_WORDS[q["ground"]]))
    if q["sky"] is not None:
        tail.append(r.choice(SKY_WORDS[q["sky"]]))
    r.shuffle(tail)
    comma = r.choice([" ", ", "])
    orb = r.choice(ORB_WORDS[q["sky_of_orb"]]) if q["orb"] else None
    form = r.random()
    if form < .15 and tail:
        parts = [tail[0] + r.choice([", ", " "]) + what, *tail[1:]]
    elif form < .35:
        parts = [r.choice(PREFIXES) + " " + what, *tail]
    else:
        parts = [what, *tail]
    text = comma.join(parts)
    if orb:
        text += r.choice([" ", ", "]) + orb
    if r.random() < .12:
        text = text[0].upper() + text[1:]
    if r.random() < .12:
        text += "."
    return text


def _things(objects: list[dict], r: Random) -> str:
    """The things of a request in any order: "a red ball on the left and a small house"."""
    phrases = [_thing(o, r) for o in objects]
    r.shuffle(phrases)
    if len(phrases) == 3:
        first, second = r.choice([", ", ", ", " and "]), r.choice([" and ", ", ", ", and "])
        return phrases[0] + first + phrases[1] + second + phrases[2]
    if len(phrases) == 2:
        return r.choice([" and ", " and ", ", ", " with ", " next to "]).join(phrases)
    return r.choice([" and "]).join(phrases)    # the draw keeps a seed's captions what they are


def _thing(o: dict, r: Random) -> str:
    """One thing: article, size, praise, colour, kind, place."""
    words = r.choice(KIND_WORDS[o["kind"]])
    if o["colour"] is not None:
        words = r.choice(COLOUR_WORDS[o["colour"]]) + " " + words
    if r.random() < .06:
        words = r.choice(PRAISE) + " " + words
    if o["size"] is not None:
        words = r.choice(SIZE_WORDS[o["size"]]) + " " + words
    words = ("an " if words[0] in "aeiou" else "a ") + words
    if o["place"] is not None:
        words += " " + r.choice(PLACE_WORDS[o["place"]])
    return words
