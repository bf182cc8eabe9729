#!/usr/bin/env python3
"""Make bnb_rows.safetensors beside this file: NF4 (plain and doubly quantized) and LLM.int8 weights and their values.

    pip install numpy
    python3 tests/golden/make_bnb_rows.py

Written from the published description of bitsandbytes' layout alone, one element after the other, in float32.
"""
import json
import pathlib
import struct

import numpy as np

F32 = np.float32
HERE = pathlib.Path(__file__).resolve().parent
NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
       -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
       0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
# 0, 1/192, 2/3, 1, 1/3, 1/2, 1/6, 1/4 and their negatives: a map of the kind that fp4 files hold.
FP4 = [0.0, 0.0052083334, 0.66666669, 1.0, 0.33333334, 0.5, 0.16666667, 0.25]
BLOCK, NESTED = 64, 256


def nibble(codes, i):
    return codes[i // 2] >> 4 if i % 2 == 0 else codes[i // 2] & 15


def four_bits(codes, table, absmax, n):
    return np.array([F32(table[nibble(codes, i)]) * F32(absmax[i // BLOCK]) for i in range(n)], F32)


def write(path, tensors):
    header, data = {}, b""
    names = {"uint8": "U8", "int8": "I8", "float32": "F32"}
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": names[str(array.dtype)], "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header, separators=(",", ":")).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def main():
    rng = np.random.default_rng(11)
    n = 1000  # its last block and the last byte of absmax are short
    n_blocks = -(-n // BLOCK)
    nf4, fp4 = np.array(NF4, F32), np.array(FP4 + [-v for v in FP4], F32)
    codes = rng.integers(0, 256, n // 2, dtype=np.uint8)
    absmax = np.exp(rng.normal(-3, 1, n_blocks)).astype(F32)
    out = {"nf4.codes": codes, "nf4.map": nf4, "nf4.absmax": absmax, "nf4.values": four_bits(codes, nf4, absmax, n),
           "fp4.map": fp4, "fp4.values": four_bits(codes, fp4, absmax, n)}

    # More than one nested block: 300 of 64 elements.
    n_blocks, n = 300, 300 * BLOCK
    codes = rng.integers(0, 256, n // 2, dtype=np.uint8)
    inner = rng.integers(0, 256, n_blocks, dtype=np.uint8)
    inner_map = np.sort(rng.uniform(-1, 1, 256)).astype(F32)
    inner_absmax = np.array([0.0731, 0.0412], F32)
    offset = np.array([0.0388], F32)
    absmax = np.array([F32(inner_map[inner[b]] * inner_absmax[b // NESTED]) + offset[0] for b in range(n_blocks)], F32)
    values = four_bits(codes, nf4, absmax, n)
    keep = 255 * BLOCK  # the blocks around the border of nested blocks
    out |= {"nested.codes": codes, "nested.absmax": inner, "nested.nested_absmax": inner_absmax, "nested.nested_map": inner_map,
            "nested.offset": offset, "nested.values": values[keep:keep + 3 * BLOCK]}

    rows = rng.integers(-127, 128, (5, 37), dtype=np.int8)
    scb = np.exp(rng.normal(-3, 1, 5)).astype(F32)
    values = np.array([[F32(F32(c) * scb[r]) / F32(127) for c in rows[r]] for r in range(5)], F32)
    out |= {"int8.codes": rows, "int8.scb": scb, "int8.values": values}
    write(HERE / "bnb_rows.safetensors", out)


main()
