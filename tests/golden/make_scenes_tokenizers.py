#!/usr/bin/env python3
"""Make scenes-tokenizers.json and tokenizer-variants.json beside this file, with the Python libraries as the judge.

    pip install tokenizers transformers
    python3 tests/golden/make_scenes_tokenizers.py

scenes-tokenizers.json: ids of prompts with the bundled model's two vocabularies (transformers for CLIP, tokenizers for T5).
tokenizer-variants.json: small unigram tokenizer.json files, one for each rule that the T5 reader follows, with ids.
"""
import base64
import json
import pathlib
import struct

import tokenizers
import transformers

HERE = pathlib.Path(__file__).resolve().parent
SCENES = HERE.parent.parent / "models" / "scenes"

PROMPTS = [
    "", " ", "\n\t ", "a", "a red ball", "A Red Ball", "a red ball.", "a red ball on the grass",
    "a photo of a big blue box on the sand", "a small white house on a snowy hill at night",
    "a tiny purple toadstool in a grassy field during the day", "a lovely painting of the sea at sunset",
    "an old orange hot air balloon over the desert dunes", "two green balls next to a yellow cube",
    "a turquoise sphere in the middle", "a cottage under a starry sky, winter evening",
    "a pink mushroom to the left of a teal tree", "there is a huge red balloon in the centre of this picture",
    "some bright stars and the moon", "three islands in the ocean at dusk", "illustration of a cute fir tree",
    "a photo of an astronaut riding a horse on mars", "a steampunk zeppelin", "xylophone", "zzzz qqqq", "redball",
    "a-red-ball", "a_red_ball", "red,blue;green:yellow", "a red ball!!!", "(a red ball)", '"a red ball"',
    "it's a ball", "IT'S A BALL", "we'll see, they've seen, I'm here, don't", "''s", "o'clock 'n' roll",
    "42", "3.14 balls", "1234567890", "ball2box", "a red ball, 8k, f/1.8", "50% off & more", "#sun @sea",
    "caf\u00e9", "cafe\u0301", "na\u00efve fa\u00e7ade", "Stra\u00dfe", "\u0130stanbul", "\u0391\u03a3",
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u043c\u0438\u0440", "\u732b\u3068\u72ac", "a red \u732b ball",
    "\U0001f431", "a red ball \U0001f534\U0001f534", "\u2764\ufe0f", "\ufb01eld", "\u00bd \u2460 x\u00b2",
    "a\u00a0red\u2003ball\u3000box", "a\u200bred", "a\r\nred\nball", "   a   red   ball   ", "it\u2019s \u201cred\u201d",
    "a\u2581red", "\u2581", "\u2581\u2581red ball", "<|endoftext|>", "a <|startoftext|> red", "<pad>", "red</s>ball",
    "<unk> ball<pad>box <pad> sun", "<pad", "a" * 200, "aB" * 70, "a red ball and " * 20, "ball " * 80, "1 " * 80,
    "a" * 63, "\u732b " * 70, "supercalifragilisticexpialidocious pneumonoultramicroscopic",
]

VARIANT_PROMPTS = [
    "", " ", "red", " red", "  red  ball ", "red ball", "a\tred\nball", "red\u2003ball", "\u2581red", "red\u2581\u2581ball",
    "xyz", "red xyz ball", "<pad>red", "<pad> red", " <pad>  red", "red <mark> ball", "red  <mark>  ball<mark>",
    "<mark>ball", "<mark2>ball", "red<mark><mark> ball", "caf\u00e9 \u732b\u732b red", "reda", "aaaa", "\ufb01\u2026\u2460",
    "e\u0302\u0301x", "e\u0301\u0301\u0301", "\u0007red\u00a0ball", "\r\nred\r\n", "\u200b\u200bred", "e\u0302 e\u0302\u0301\u0301",
]

PIECES = [["<pad>", 0.0], ["</s>", 0.0], ["<unk>", 0.0], ["\u2581", -2.0], ["\u2581red", -4.0], ["\u2581ball", -4.5],
          ["red", -5.0], ["ball", -5.25], ["\u2581a", -3.0], ["a", -3.5], ["aa", -7.0], ["\u2581re", -4.0], ["d", -3.0],
          ["b", -6.0], ["l", -6.0], ["r", -6.0], ["e", -6.0], ["f", -6.5], ["i", -6.5], [".", -6.5], ["...", -6.75],
          ["1", -6.5], ["\u00e9", -7.0], ["\u00ea", -7.0], ["\u2581b", -5.0], ["ed", -2.0], ["c", -6.0], ["ca", -8.0]]

CHARACTER_MAP = {"\t": " ", "\n": " ", "\r": " ", "\u00a0": " ", "\u2003": " ", "\u200b": " ", "\u2581": " ", "\u0007": "",
                 "\ufb01": "fi", "\u2026": "...", "\u2460": "1", "e\u0301": "\u00e9", "e\u0302": "\u00ea",
                 "e\u0302\u0301": "\u1ebf"}

METASPACE = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": True}
REPLACE = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"}


def precompiled(char_map):
    """sentencepiece's blob: every trie node has a block of 256 units, its leaf is the block's first unit."""
    nodes, texts = [{}], b""
    leaves = {}
    for key, value in char_map.items():
        node = 0
        for byte in key.encode():
            if byte not in nodes[node]:
                nodes[node][byte] = len(nodes)
                nodes.append({})
            node = nodes[node][byte]
        leaves[node] = len(texts)
        texts += value.encode() + b"\0"
    units = [0] * (256 * (len(nodes) + 1))
    base = lambda node: 256 * (node + 1)
    units[0] = base(0) << 10
    for node, children in enumerate(nodes):
        if node in leaves:
            units[base(node)] = 0x80000000 | leaves[node]
        for byte, child in children.items():
            place = base(node) ^ byte
            units[place] = (place ^ base(child)) << 10 | (0x100 if child in leaves else 0) | byte
    trie = struct.pack("<%dI" % len(units), *units)
    return base64.b64encode(struct.pack("<I", len(trie)) + trie + texts).decode()


def added(token_id, content, lstrip=False, rstrip=False):
    return {"id": token_id, "content": content, "single_word": False, "lstrip": lstrip, "rstrip": rstrip,
            "normalized": False, "special": True}


def variant(name, normalizer, pre_tokenizer, marks=()):
    specials = [added(0, "<pad>"), added(1, "</s>"), added(2, "<unk>")]
    return {"name": name, "tokenizer": {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": specials + list(marks),
        "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": None,
        "model": {"type": "Unigram", "unk_id": 2, "vocab": PIECES, "byte_fallback": False}}}


def sequence(key, *parts):
    return {"type": "Sequence", key: list(parts)}


def variants():
    strip = {"type": "Strip", "strip_left": False, "strip_right": True}
    char_map = {"type": "Precompiled", "precompiled_charsmap": precompiled(CHARACTER_MAP)}
    split = {"type": "WhitespaceSplit"}
    n = len(PIECES)
    yield variant("metaspace first", None, METASPACE)
    yield variant("metaspace always", None, dict(METASPACE, prepend_scheme="always"))
    yield variant("metaspace never", None, dict(METASPACE, prepend_scheme="never"))
    yield variant("metaspace whole", None, dict(METASPACE, split=False))
    yield variant("no pre-tokenizer", None, None)
    yield variant("white space then metaspace first", None, sequence("pretokenizers", split, METASPACE))
    yield variant("nested sequences", sequence("normalizers", sequence("normalizers", strip), REPLACE),
                  sequence("pretokenizers", sequence("pretokenizers", split), dict(METASPACE, prepend_scheme="always")))
    yield variant("strip both", dict(strip, strip_left=True), METASPACE)
    yield variant("collapse to a space", dict(REPLACE, content=" "), METASPACE)
    yield variant("t5", sequence("normalizers", char_map, strip, REPLACE), METASPACE)
    yield variant("added tokens strip", sequence("normalizers", strip, REPLACE), METASPACE,
                  [added(n, "<mark>", lstrip=True, rstrip=True), added(n + 1, "<mark2>", rstrip=True)])


def write(name, content):
    text = json.dumps(content, indent=None, separators=(", ", ": "))
    text = text.replace('{"text"', '\n{"text"').replace('{"name"', '\n{"name"')
    (HERE / name).write_text(text + "\n")


def main():
    clip = transformers.CLIPTokenizer.from_pretrained(SCENES / "tokenizer")
    t5 = tokenizers.Tokenizer.from_file(str(SCENES / "tokenizer_2" / "tokenizer.json"))
    versions = {"tokenizers": tokenizers.__version__, "transformers": transformers.__version__}
    write("scenes-tokenizers.json", {"versions": versions, "prompts": [
        {"text": text, "clip": clip(text)["input_ids"], "t5": t5.encode(text).ids} for text in PROMPTS]})
    out = []
    for v in variants():
        judge = tokenizers.Tokenizer.from_str(json.dumps(v["tokenizer"]))
        v["prompts"] = [{"text": text, "t5": judge.encode(text).ids + [1]} for text in VARIANT_PROMPTS]
        out.append(v)
    write("tokenizer-variants.json", {"versions": versions, "variants": out})


if __name__ == "__main__":
    main()
