"""The two small tokenizers, built from the grammar's words: CLIP's byte-pair files and a T5-style
unigram tokenizer.json.

Every word of the grammar is one piece in both; anything else falls apart into bytes (CLIP) or
letters (T5). `Encoder` maps captions of the grammar to ids by table look-up, which is what training
needs.
"""
import json
from pathlib import Path
from random import Random

from caption import vocabulary

CLIP_LENGTH = 77
T5_LENGTH = 64    # what the exported tokenizer pads to; training also pads to more
START_WORDS = ["A", "An", "At", "By", "On", "In", "Under", "During", "The", "There", "We", "With"]
CLIP_BOS, CLIP_EOS = "<|startoftext|>", "<|endoftext|>"
T5_SPECIALS = ["<pad>", "</s>", "<unk>"]
T5_PAD_ID, T5_EOS_ID, T5_UNK_ID = range(3)
MARK = "▁"    # begins each word's first T5 piece
LETTERS = "abcdefghijklmnopqrstuvwxyz"


# CLIP: byte pairs

def byte_symbols() -> list[str]:
    """CLIP's byte alphabet: printable bytes as themselves, then U+0100 and on for the other 68."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b) for b in printable] + [chr(256 + k) for k in range(256 - len(printable))]


def clip_vocabulary() -> tuple[dict[str, int], list[tuple[str, str]]]:
    """(ids, merges): 256 bytes, the same with </w>, results of merges in order, the two special
    tokens, as in CLIP."""
    alphabet = byte_symbols()
    pieces = dict.fromkeys(alphabet + [b + "</w>" for b in alphabet])
    ranks: dict[tuple[str, str], int] = {}
    words = sorted(vocabulary(), key=lambda w: (len(w), w))
    changed = True
    while changed:    # a later merge can change how an earlier word splits
        changed = False
        for word in words:
            while len(symbols := _split(word, ranks)) > 1:
                pair = (symbols[-2], symbols[-1])    # grow from the end, so that endings are shared
                ranks[pair] = len(ranks)
                pieces.setdefault("".join(pair))
                changed = True
    names = [*pieces, CLIP_BOS, CLIP_EOS]
    return {name: i for i, name in enumerate(names)}, list(ranks)


def _split(word: str, ranks: dict[tuple[str, str], int]) -> list[str]:
    """Byte-pair encoding of a word: the pair of the lowest rank is merged, wherever it stands,
    until none is left."""
    symbols = [*word[:-1], word[-1] + "</w>"]
    while len(symbols) > 1:
        pair = min(zip(symbols, symbols[1:]), key=lambda p: ranks.get(p, len(ranks)))
        if pair not in ranks:
            break
        merged, i = [], 0
        while i < len(symbols):
            n = 2 if tuple(symbols[i:i + 2]) == pair else 1
            merged.append("".join(symbols[i:i + n]))
            i += n
        symbols = merged
    return symbols


# T5: unigrams

def t5_pieces() -> list[tuple[str, float]]:
    """[(piece, log probability)]: specials, the word mark, words that bear it, signs, letters."""
    words = [w for w in vocabulary() + START_WORDS if len(w) > 1]
    others = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789'-!?\":;()"
    return ([(special, 0.0) for special in T5_SPECIALS] + [(MARK, -6.0)]
            + [(MARK + w, -4.0) for w in words]
            + [(MARK + "a", -3.0), (MARK + "A", -3.5), (",", -2.0), (".", -2.5)]
            + [(c, -8.0) for c in LETTERS] + [(c, -9.0) for c in others])


# Files

def write(folder: Path) -> None:
    """tokenizer/ and tokenizer_2/ of a model folder."""
    _write_clip(folder / "tokenizer")
    _write_t5(folder / "tokenizer_2")


def _write_clip(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    ids, merges = clip_vocabulary()
    _write_json(folder / "vocab.json", ids, indent=None)
    lines = "".join(f"{a} {b}\n" for a, b in merges)
    (folder / "merges.txt").write_text("#version: 0.2\n" + lines, encoding="utf-8")

    def token(content: str) -> dict:
        return {"content": content, "lstrip": False, "normalized": True, "rstrip": False,
                "single_word": False}

    def added(content: str) -> dict:
        return {"__type": "AddedToken", **token(content)}

    _write_json(folder / "tokenizer_config.json", {
        "add_prefix_space": False, "bos_token": added(CLIP_BOS), "do_lower_case": True,
        "eos_token": added(CLIP_EOS), "errors": "replace", "model_max_length": CLIP_LENGTH,
        "pad_token": CLIP_EOS, "tokenizer_class": "CLIPTokenizer", "unk_token": added(CLIP_EOS)})
    _write_json(folder / "special_tokens_map.json", {
        "bos_token": token(CLIP_BOS), "eos_token": token(CLIP_EOS), "pad_token": CLIP_EOS,
        "unk_token": token(CLIP_EOS)})


def _write_t5(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    metaspace = {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "always",
                 "split": True}
    words = {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]}
    end = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    first, second = ({"Sequence": {"id": x, "type_id": 0}} for x in "AB")
    _write_json(folder / "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": c, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}
                         for i, c in enumerate(T5_SPECIALS)],
        "normalizer": None,
        "pre_tokenizer": words,
        "post_processor": {"type": "TemplateProcessing", "single": [first, end],
                           "pair": [first, end, second, end],
                           "special_tokens": {"</s>": {"id": "</s>", "ids": [T5_EOS_ID],
                                                       "tokens": ["</s>"]}}},
        "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": T5_UNK_ID, "vocab": t5_pieces(),
                  "byte_fallback": False}}, indent=None)
    specials = {"eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    _write_json(folder / "tokenizer_config.json", {
        "additional_special_tokens": [], "clean_up_tokenization_spaces": True,
        "eos_token": "</s>", "extra_ids": 0, "legacy": False, "model_max_length": T5_LENGTH,
        "pad_token": "<pad>", "tokenizer_class": "T5TokenizerFast", "unk_token": "<unk>"})
    _write_json(folder / "special_tokens_map.json", specials)


def _write_json(path: Path, value, indent: int | None = 2) -> None:
    separators = None if indent else (",", ":")
    text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators)
    path.write_text(text, encoding="utf-8")


# Captions to ids

class Encoder:
    """Captions made of the grammar's words, commas and full stops to ids. Any other word is a
    KeyError."""

    def __init__(self) -> None:
        clip, _ = clip_vocabulary()
        t5 = {piece: i for i, (piece, _) in enumerate(t5_pieces())}
        self.clip_size, self.t5_size = len(clip), len(t5)
        self.bos, self.eos = clip[CLIP_BOS], clip[CLIP_EOS]
        self._words = {}
        for word in {*vocabulary(), *START_WORDS}:
            clip_ids, t5_ids = [clip[word.lower() + "</w>"]], [t5[MARK + word]]
            self._words[word] = clip_ids, t5_ids
            for sign in ",.":
                self._words[word + sign] = clip_ids + [clip[sign + "</w>"]], t5_ids + [t5[sign]]
        self._clip_letters = [clip[c] for c in LETTERS]
        self._clip_last_letters = [clip[c + "</w>"] for c in LETTERS]
        self._t5_letters, self._t5_mark = [t5[c] for c in LETTERS], t5[MARK]

    def __call__(self, text: str, r: Random | None = None,
                 p_junk: float = 0.) -> tuple[list[int], list[int]]:
        """(clip ids, t5 ids), each with its end token, not padded. With r: with probability p_junk
        a word of random letters is put in, so that unknown words do no harm."""
        words = text.split()
        junk_at = r.randrange(len(words) + 1) if r and r.random() < p_junk else -1
        pairs = [self._words[w] for w in words]
        if junk_at >= 0:
            pairs.insert(junk_at, self._junk(r))
        clip = [self.bos] + [i for ids, _ in pairs for i in ids]
        t5 = [i for _, ids in pairs for i in ids]
        return clip[:CLIP_LENGTH - 1] + [self.eos], t5[:T5_LENGTH - 1] + [T5_EOS_ID]

    def _junk(self, r: Random) -> tuple[list[int], list[int]]:
        """The ids of a word of two to seven random letters."""
        n = r.randrange(2, 8)
        letters = [r.randrange(26) for _ in range(n)]
        clip = [self._clip_letters[x] for x in letters[:-1]]
        clip.append(self._clip_last_letters[letters[-1]])
        return clip, [self._t5_mark] + [self._t5_letters[x] for x in letters]
