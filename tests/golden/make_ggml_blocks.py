#!/usr/bin/env python3
"""Make ggml_blocks.safetensors beside this file: blocks of each GGUF type and their values in f32.

    pip install numpy gguf
    python3 tests/golden/make_ggml_blocks.py

The values are computed here one element after the other, from the published layouts; then the package `gguf`, which ggml's
authors maintain, has to give the same bits. Of each type: random blocks, then blocks of extreme scales and codes.
"""
import json
import pathlib
import struct

import gguf
import numpy as np

F32 = np.float32
HERE = pathlib.Path(__file__).resolve().parent


def half(block, at):
    return F32(np.frombuffer(bytes(block[at:at + 2]), np.float16)[0])


def q4_0(b, e):
    q = b[2 + e % 16] & 15 if e < 16 else b[2 + e % 16] >> 4
    return half(b, 0) * F32(q - 8)


def q4_1(b, e):
    q = b[4 + e % 16] & 15 if e < 16 else b[4 + e % 16] >> 4
    return half(b, 0) * F32(q) + half(b, 2)


def five(b, qh_at, e):
    qh, = struct.unpack("<I", bytes(b[qh_at:qh_at + 4]))
    byte = b[qh_at + 4 + e % 16]
    return (byte & 15 if e < 16 else byte >> 4) + 16 * (qh >> e & 1)


def q5_0(b, e):
    return half(b, 0) * F32(five(b, 2, e) - 16)


def q5_1(b, e):
    return half(b, 0) * F32(five(b, 4, e)) + half(b, 2)


def q8_0(b, e):
    return half(b, 0) * F32(np.int8(np.uint8(b[2 + e])))


def parts(e):
    """Of an element of Q2_K and Q3_K: half n, shift step s, sub-block h of the two of it, place l."""
    return e // 128, e % 128 // 32, e % 32 // 16, e % 16


def q2_k(b, e):
    n, s, h, l = parts(e)
    sc = b[8 * n + 2 * s + h]
    q = b[16 + 32 * n + 16 * h + l] >> (2 * s) & 3
    return half(b, 80) * F32(sc & 15) * F32(q) - half(b, 82) * F32(sc >> 4)


def q3_k(b, e):
    n, s, h, l = parts(e)
    hmask, qs, scales = b[:32], b[32:96], b[96:108]
    k = 8 * n + 2 * s + h
    low = scales[k] & 15 if k < 8 else scales[k - 8] >> 4
    high = scales[8 + k % 4] >> (2 * (k // 4)) & 3
    q = (qs[32 * n + 16 * h + l] >> (2 * s) & 3) - (0 if hmask[16 * h + l] >> (4 * n + s) & 1 else 4)
    return half(b, 108) * F32((low | high << 4) - 32) * F32(q)


def scale_min(scales, k):
    if k < 4:
        return scales[k] & 63, scales[k + 4] & 63
    return (scales[k + 4] & 15) | (scales[k - 4] >> 6) << 4, (scales[k + 4] >> 4) | (scales[k] >> 6) << 4


def q4_k(b, e):
    k, l = e // 32, e % 32
    sc, mn = scale_min(b[4:16], k)
    byte = b[16 + 32 * (k // 2) + l]
    return half(b, 0) * F32(sc) * F32(byte >> 4 if k % 2 else byte & 15) - half(b, 2) * F32(mn)


def q5_k(b, e):
    k, l = e // 32, e % 32
    sc, mn = scale_min(b[4:16], k)
    byte = b[48 + 32 * (k // 2) + l]
    q = (byte >> 4 if k % 2 else byte & 15) + 16 * (b[16 + l] >> k & 1)
    return half(b, 0) * F32(sc) * F32(q) - half(b, 2) * F32(mn)


def q6_k(b, e):
    n, run, l = e // 128, e % 128 // 32, e % 32
    ql, qh, sc = b[64 * n:], b[128 + 32 * n:], b[192 + 8 * n:]
    low = [ql[l] & 15, ql[l + 32] & 15, ql[l] >> 4, ql[l + 32] >> 4][run]
    q = low | (qh[l] >> (2 * run) & 3) << 4
    return half(b, 208) * F32(np.int8(np.uint8(sc[l // 16 + 2 * run]))) * F32(q - 32)


# name: function, elements and bytes of a block, where its f16 are
TYPES = {
    "Q4_0": (q4_0, 32, 18, [0]), "Q4_1": (q4_1, 32, 20, [0, 2]), "Q5_0": (q5_0, 32, 22, [0]), "Q5_1": (q5_1, 32, 24, [0, 2]),
    "Q8_0": (q8_0, 32, 34, [0]), "Q2_K": (q2_k, 256, 84, [80, 82]), "Q3_K": (q3_k, 256, 110, [108]),
    "Q4_K": (q4_k, 256, 144, [0, 2]), "Q5_K": (q5_k, 256, 176, [0, 2]), "Q6_K": (q6_k, 256, 210, [208]),
}
# 1, -1, smallest and largest subnormal, smallest normal, largest of both signs, zero of both signs
HALVES = [0x3C00, 0xBC00, 0x0001, 0x03FF, 0x0400, 0x7BFF, 0xFBFF, 0x0000, 0x8000]


def make_blocks(rng, elements, n_bytes, halves):
    blocks = rng.integers(0, 256, (24 if elements == 32 else 4, n_bytes), dtype=np.uint8)
    for block in blocks:
        for at in halves:
            block[at:at + 2] = np.frombuffer(F32(rng.normal(0, 0.1)).astype(np.float16).tobytes(), np.uint8)
    edges = []
    for i, code in enumerate([0x00, 0xFF, 0x80, 0x7F, 0x0F, 0xF0] if elements == 32 else [0x00, 0xFF]):
        edges.append(np.full(n_bytes, code, np.uint8))
    for _ in HALVES if elements == 32 else HALVES[2:7:2]:
        edges.append(rng.integers(0, 256, n_bytes, dtype=np.uint8))
    for i, block in enumerate(edges):
        for k, at in enumerate(halves):
            block[at:at + 2] = np.frombuffer(struct.pack("<H", HALVES[(i + 3 * k) % len(HALVES)]), np.uint8)
    return np.concatenate([blocks, edges])


def main():
    rng = np.random.default_rng(2)
    tensors, dtypes = {}, {"uint8": "U8", "float32": "F32"}
    for name, (value, elements, n_bytes, halves) in TYPES.items():
        kind = gguf.GGMLQuantizationType[name]
        assert gguf.GGML_QUANT_SIZES[kind] == (elements, n_bytes)
        blocks = make_blocks(rng, elements, n_bytes, halves)
        values = np.array([[value(b, e) for e in range(elements)] for b in blocks.tolist()], F32)
        theirs = gguf.quants.dequantize(blocks, kind).reshape(values.shape)
        assert np.isfinite(values).all() and theirs.dtype == F32
        assert (values.view(np.uint32) == theirs.view(np.uint32)).all(), name
        tensors[name + ".blocks"], tensors[name + ".values"] = blocks, values
    header, data = {}, b""
    for name, array in tensors.items():
        raw = array.tobytes()
        header[name] = {"dtype": dtypes[str(array.dtype)], "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    (HERE / "ggml_blocks.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


main()
