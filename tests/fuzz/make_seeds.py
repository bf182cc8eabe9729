#!/usr/bin/env python3
"""Make the folders of seeds/ beside this file: small valid files for each target of `make fuzz`.

    pip install xxhash
    python3 tests/fuzz/make_seeds.py
"""
import base64
import json
import pathlib
import struct
import zlib

import xxhash

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"
CUT = b"\x1e"


def put(target, name, data):
    path = HERE / "seeds" / target / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def dumps(value):
    return json.dumps(value, separators=(",", ":")).encode()


def safetensors(tensors, metadata=None, align=1):
    """tensors: name -> (dtype, shape, bytes)."""
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = dumps(header)
    text += b" " * (-(8 + len(text)) % align)
    return struct.pack("<Q", len(text)) + text + data


def make_safetensors():
    put("safetensors", "types", safetensors({"a": ("F32", [1, 2], bytes(8)), "b": ("BF16", [2], bytes(4)), "c": ("F8_E4M3", [0], b""),
                                             "d": ("I64", [], bytes(8)), "e": ("F4", [2], b"\1")}, {"k": "v", "n": ""}))
    put("safetensors", "escapes", safetensors({"a/\u00e9\U0001f600\n": ("U8", [1], b"\1")}, {}))
    put("safetensors", "empty", safetensors({}))
    put("safetensors", "null", safetensors({"w": ("F6_E2M3", [4], bytes(3))}, {"a": "1"}).replace(b'{"a":"1"}', b"null     "))


def text(s):
    return struct.pack("<Q", len(s)) + s.encode()


def gguf(kvs, tensors, version=3, align=32):
    """Without the magic. kvs: (key, type, bytes). tensors: (name, type, dims fastest first, bytes)."""
    out = struct.pack("<IQQ", version, len(tensors), len(kvs))
    for key, kind, raw in kvs:
        out += text(key) + struct.pack("<I", kind) + raw
    off, data = 0, b""
    for name, kind, dims, raw in tensors:
        out += text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, len(data))
        data += raw + bytes(-len(raw) % align)
    return out + bytes(-(4 + len(out)) % align) + data


def make_gguf():
    string, array = 8, 9
    put("gguf", "empty", gguf([], []))
    put("gguf", "version2", gguf([], [("w", 0, (2,), bytes(8))], version=2))
    kvs = [("general.architecture", string, text("flux")), ("general.alignment", 4, struct.pack("<I", 8)), ("a", 0, b"\1"),
           ("b", 12, bytes(8)), ("s", array, struct.pack("<IQ", string, 2) + text("one") + text("")), ("u", array, struct.pack("<IQ", 2, 3) + bytes(6))]
    put("gguf", "keys", gguf(kvs, [("w", 8, (32, 2), bytes(68)), ("n", 1, (3,), bytes(6))], align=8))
    types = [(2, 32, 18), (3, 32, 20), (6, 32, 22), (7, 32, 24), (8, 32, 34), (10, 256, 84), (11, 256, 110), (12, 256, 144), (13, 256, 176), (14, 256, 210), (30, 1, 2)]
    put("gguf", "types", gguf([], [("t%d" % kind, kind, (n,), bytes(size)) for kind, n, size in types]))


def make_shards():
    put("shards", "whole", dumps({"metadata": {"total_size": 8}, "weight_map": {"a": "m-1.safetensors", "b": "m-1.safetensors", "c": "m-2.safetensors"}}))
    put("shards", "part", dumps({"weight_map": {"c": "m-2.safetensors"}}))


def make_packed():
    weight = bytes(range(64))
    small = dumps({"_class_name": "FluxPipeline"})
    begin = 4096

    def packed(page, tensors, stored):
        page |= {"name": "step/proj_out", "component": "transformer", "begin": begin, "bytes": 64, "stored": len(stored), "xxh3": "%016x" % xxhash.xxh3_64_intdigest(weight)}
        metadata = {"format": "pt", "dfx.version": "1", "dfx.quant": "int8", "dfx.source": "", "dfx.source_bytes": "128", "dfx.pages": dumps([page]).decode()}
        rest = bytes(-len(stored) % 4096)
        return safetensors({"files/model_index.json": ("U8", [len(small)], small), "pad/0": ("U8", [begin - len(small)], bytes(begin - len(small))),
                            **tensors, "pad/1": ("U8", [len(rest)], rest)}, metadata, align=4096)

    put("packed", "raw", packed({"codec": "raw"}, {"transformer.proj_out.weight": ("BF16", [2, 16], weight)}, weight))
    # One LZ4 block of literals only: 15 and 49 more of them, in planes.
    block = b"\xf0\x31" + weight[0::2] + weight[1::2]
    stored = struct.pack("<I", len(block)) + block
    tensors = [{"name": "proj_out.weight", "dtype": "BF16", "shape": [2, 16], "off": 0}]
    put("packed", "lz4", packed({"codec": "lz4-planes", "tensors": tensors}, {"pages/step/proj_out": ("U8", [len(stored)], stored)}, stored))


def make_configs():
    names = ["model_index.json", "scheduler/scheduler_config.json", "text_encoder/config.json", "text_encoder_2/config.json",
             "transformer/config.json", "vae/config.json"]
    for i, name in enumerate(names):
        put("configs", name.replace("/", "-"), bytes([i]) + dumps(json.loads((GOLDEN / "tiny-dev" / name).read_text())))
    put("configs", "dfx.json", b"\6" + dumps({"name": "tiny", "steps": 4, "width": 64, "height": 64}))


def make_clip():
    letters = ["a", "b", "c", "f", "\u00c3", "\u00a9"]
    words = letters + [c + "</w>" for c in letters] + ["ab", "abc</w>", "<|startoftext|>", "<|endoftext|>"]
    vocab = {w: i for i, w in enumerate(words)}
    merges = ["a b", "ab c</w>"]
    two = dumps(vocab) + CUT + ("#version: 0.2\n" + "\n".join(merges) + "\n").encode()
    put("clip_tokenizer", "two", two)
    put("clip_tokenizer", "three", two + CUT + dumps({"model_max_length": 77, "bos_token": "<|startoftext|>", "eos_token": {"content": "<|endoftext|>"}}))
    special = [{"id": vocab[t], "content": t, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
               for t in words[-2:]]
    put("clip_tokenizer", "json", dumps({"added_tokens": special, "model": {"type": "BPE", "vocab": vocab, "merges": merges, "end_of_word_suffix": "</w>", "unk_token": "<|endoftext|>"}}))


PIECES = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -2.0), ("\u2581a", -3.0), ("b", -4.0), ("ab", -4.5), ("\u00e9", -6.0)]


def varint(n):
    out = b""
    while n > 127:
        out += bytes([n & 127 | 128])
        n >>= 7
    return out + bytes([n])


def field(number, raw):
    return varint(number << 3 | 2) + varint(len(raw)) + raw


def make_t5():
    # A precompiled map: the bytes of its double array, 256 empty units, no texts.
    charsmap = struct.pack("<I", 1024) + bytes(1024) + b"\0"
    added = [{"id": i, "content": t, "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
             for i, t in [(0, "<pad>"), (1, "</s>"), (2, "<unk>"), (8, "<extra_id_0>")]]
    model = {"added_tokens": added, "model": {"type": "Unigram", "unk_id": 2, "vocab": [list(p) for p in PIECES] + [["<extra_id_0>", 0.0]]},
             "normalizer": {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()},
             "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": True}}
    put("t5_tokenizer", "json", dumps(model))
    put("t5_tokenizer", "json-config", dumps(model) + CUT + dumps({"model_max_length": 512, "extra_ids": 1}))
    spiece = b""
    for i, (piece, score) in enumerate(PIECES):
        kind = [3, 3, 2][i] if i < 3 else 1
        spiece += field(1, field(1, piece.encode()) + varint(2 << 3 | 5) + struct.pack("<f", score) + varint(3 << 3) + varint(kind))
    spiece += field(2, varint(3 << 3) + varint(1)) + field(3, field(1, b"nmt_nfkc") + field(2, charsmap))
    put("t5_tokenizer", "spiece", spiece)


def make_lora():
    def f32(rows, cols):
        return "F32", [rows, cols], struct.pack("<%df" % (rows * cols), *((i % 5 - 2) for i in range(rows * cols)))

    def pair(name, n, k, r, down=".lora_down.weight", up=".lora_up.weight"):
        return {name + down: f32(r, k), name + up: f32(n, r)}

    one = "F16", [], b"\0\x3c"
    put("lora", "kohya", safetensors({**pair("lora_unet_double_blocks_0_img_attn_qkv", 6, 2, 3), "lora_unet_double_blocks_0_img_attn_qkv.alpha": one,
                                      **pair("lora_te1_text_model_encoder_layers_0_mlp_fc1", 3, 2, 1)}, {"ss_network_args": '{"split_qkv": "True"}'}))
    put("lora", "peft", safetensors({**pair("transformer.proj_out", 4, 2, 2, ".lora_A.weight", ".lora_B.weight"), "transformer.proj_out.lora_magnitude_vector": ("F32", [4], bytes(16))},
                                    {"lora_adapter_metadata": '{"transformer.lora_alpha": 4, "transformer.use_rslora": true, "transformer.alpha_pattern": {"proj_out": 2}}'}))
    put("lora", "xlabs", safetensors(pair("single_blocks.0.processor.qkv_lora", 6, 2, 1, ".down.weight", ".up.weight")))
    loha = {"final_layer.adaLN_modulation.1.hada_" + k: f32(*s) for k, s in [("w1_a", (4, 1)), ("w1_b", (1, 2)), ("w2_a", (4, 2)), ("w2_b", (2, 2))]}
    lokr = {"lycoris_single_blocks_0_linear1.lokr_" + k: f32(*s) for k, s in [("w1", (2, 1)), ("w2_a", (7, 3)), ("w2_b", (3, 2))]}
    put("lora", "lycoris", safetensors({**loha, **lokr, "x_embedder.diff_b": ("BF16", [2], bytes(4)), "nowhere.alpha": one}))
    put("lora", "gguf", b"GGUF" + gguf([], [("proj_out.diff", 8, (32,), bytes(34)), ("proj_out.lora_A.weight", 0, (2, 1), bytes(8))]))


def make_pixels():
    for name in ("colour", "progressive", "grey", "cmyk", "exif_ii", "exif_mm"):
        put("pixels", name, (GOLDEN / "pictures" / f"{name}.jpg").read_bytes())

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    for name, depth, colour, interlace, row, extra in [
        ("rgba", 8, 6, 0, 16, b""), ("grey16", 16, 0, 0, 8, b""), ("adam7", 8, 2, 1, 12, b""),
        ("palette", 2, 3, 0, 1, chunk(b"PLTE", bytes(range(12))) + chunk(b"tRNS", b"\0\x80"))]:
        head = struct.pack(">IIBBBBB", 4, 4, depth, colour, 0, 0, interlace)
        rows = bytes(4 * (row + 1) if not interlace else 96)
        put("pixels", name, b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


for make in (make_safetensors, make_gguf, make_shards, make_packed, make_lora, make_configs, make_clip, make_t5, make_pixels):
    make()
